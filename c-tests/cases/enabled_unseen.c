/* build: driver; run: enabled_unseen [LIBRARY] on sim
 * Peer access that was enabled where no preload sees it (here: by a library that was opened with RTLD_DEEPBIND, or the
 * function that a symbol table names). Then copies: how long a small one takes, on average.
 *
 *   LIBRARY    what enables it (lib/enables_unseen.c); without, the program does, and is seen
 */
#include <cuda.h>

#include "check.h"

enum { SIZE = 64, COPIES = 20000 };
typedef CUresult enable_fn(CUcontext, unsigned);

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

int main(int argc, char **argv)
{
    CUcontext contexts[2];
    CUdeviceptr memory[2];
    CHECK_CU(cuInit(0));
    for (int device = 0; device < 2; device++)
        memory[device] = context_memory(&contexts[device], device, SIZE);
    enable_fn *enable = cuCtxEnablePeerAccess;
    if (argc > 1) {
        void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_DEEPBIND);
        REQUIRE(plugin);
        enable = (enable_fn *)dlsym(plugin, "enable");
    }
    for (int device = 0; device < 2; device++) {
        CHECK_CU(cuCtxSetCurrent(contexts[device]));
        CHECK_CU(enable(contexts[!device], 0));
    }
    CHECK_CU(cuCtxSetCurrent(contexts[0]));
    for (int i = 0; i < 100; i++)
        CHECK_CU(cuMemcpyPeer(memory[1], contexts[1], memory[0], contexts[0], SIZE));
    double best = 1e18;
    for (int r = 0; r < 10; r++) {
        double before = now();
        for (int i = 0; i < COPIES / 10; i++)
            CHECK_CU(cuMemcpyPeerAsync(memory[1], contexts[1], memory[0], contexts[0], 0, NULL));
        double took = (now() - before) / (COPIES / 10);
        best = took < best ? took : best;
    }
    fprintf(stderr, "%.0f ns a copy\n", best);
    return 0;
}
