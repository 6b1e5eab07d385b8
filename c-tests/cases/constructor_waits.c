/* build: -rdynamic driver; run: constructor_waits LIBRARY on sim
 * A library (lib/waits_at_load.c) is opened whose constructor waits for a thread, so that the dynamic linker's lock is held. The thread
 * has a line written to the log: its first.
 */
#include <cuda.h>

#include "check.h"

enum { PATIENCE_S = 30 };

static int (*mark)(const char *text);

static void *say(void *unused)
{
    if (mark)
        mark("in a thread that a constructor waits for");
    return unused;
}

void program_waits(void);

void program_waits(void)
{
    alarm(PATIENCE_S);
    run_in_thread(say, NULL);
    printf("the thread is through\n");
}

int main(int argc, char **argv)
{
    int can;
    REQUIRE(argc == 2);
    CHECK_CU(cuInit(0));
    /* Starts the shim. */
    CHECK_CU(cuDeviceCanAccessPeer(&can, 0, 1));
    *(void **)&mark = dlsym(RTLD_DEFAULT, "p2pshim_trace_mark");
    REQUIRE(dlopen(argv[1], RTLD_NOW));
    return 0;
}
