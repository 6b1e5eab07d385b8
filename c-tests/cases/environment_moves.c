/* build: driver; run: environment_moves on sim
 * Once the first call is made, another thread goes on changing the environment, which moves it and frees where it was: as here, to a page that
 * nobody may read. Whoever looks there again ends the program.
 */
#include <cuda.h>

#include "check.h"

enum { BYTES = 16 << 20, SMALL = 256 << 10, COPIES = 20 };

int main(void)
{
    CUcontext contexts[3];
    CUdeviceptr memory[3];
    CHECK_CU(cuInit(0));
    for (int device = 2; device >= 0; device--)
        memory[device] = context_memory(&contexts[device], device, BYTES);
    /* After one copy of each way, the driver has read all of its own. */
    for (int peer = 1; peer < 3; peer++)
        CHECK_CU(cuMemcpyPeer(memory[peer], contexts[peer], memory[0], contexts[0], 64));
    CHECK_CU(cuCtxSynchronize());
    environ = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(environ != MAP_FAILED);
    for (int peer = 1; peer < 3; peer++) {
        for (int copy = 0; copy < COPIES; copy++)
            CHECK_CU(cuMemcpyPeer(memory[peer], contexts[peer], memory[0], contexts[0], SMALL));
        CHECK_CU(cuMemcpyPeer(memory[peer], contexts[peer], memory[0], contexts[0], BYTES));
    }
    CHECK_CU(cuCtxSynchronize());
    printf("copied\n");
    fflush(stdout);
    _exit(0);
}
