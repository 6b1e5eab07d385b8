/* build: cudart12 -Wl,-soname,libat_load.so; run: by linking
 * See cases/library_constructor.c.
 */
#include <cuda_runtime_api.h>

#include "check.h"

void at_load_call(const char *where);

void at_load_call(const char *where)
{
    int can = -7;
    printf("%s\n", where);
    SHOW(cudaDeviceCanAccessPeer(&can, 0, 1));
    SHOW(cudaMemcpyPeer(NULL, 1, NULL, 0, 0));
    SHOW(cudaMemcpyPeer(NULL, 99, NULL, 0, 1));
    SHOW(cudaGetLastError());
    fflush(stdout);
}

__attribute__((constructor)) static void at_load(void)
{
    at_load_call("constructor of a library");
}

__attribute__((destructor)) static void at_unload(void)
{
    at_load_call("destructor of a library");
}
