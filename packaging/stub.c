/*
 * The libp2pshim.so that linkers see. It has the functions of p2pshim.h and the real library's soname, so that a program
 * which is linked with -lp2pshim records these functions and libp2pshim.so.0, and nothing else. Linked with the real library,
 * it would record that its cudaMemcpyPeer is the shim's: no runtime has that, and of which runtime it is would be lost.
 *
 * Nothing loads this file, unless somebody preloads it for the real one. That would do nothing, so it says so.
 * functions.h has a line STUB(p2pshim_…) for each function that the real library exports.
 */
#include <string.h>
#include <unistd.h>

#define STUB(name) \
    long name(void); \
    long name(void) { return 0; }
#include "functions.h"

static const char MISTAKEN[] =
    "p2pshim: this libp2pshim.so is for linking only, and does nothing. Preload libp2pshim.so.0, which is beside it, or use "
    "`p2pshim run`.\n";

__attribute__((constructor)) static void say_so(void) {
    ssize_t written = write(STDERR_FILENO, MISTAKEN, strlen(MISTAKEN));
    (void)written;
}
