/* build: driver; run: late_copies enables|asks|copies on sim
 * A path on which copies once took longer than p2pshim waits for them, as where other processes keep it busy. The program goes
 * on, and later the path is used.
 *
 *   enables  enables peer access, until it gets it
 *   asks     asks whether there is access, until there is, and enables it
 *   copies   copies, until a copy is direct
 *
 * Prints what it got first, and then; how the last copy went, and whether all bytes were right.
 */
#include <cuda.h>

#include "check.h"

enum {
    BYTES = 2 << 20,
    TRIES = 200,
};

static CUcontext contexts[2];
static CUdeviceptr memory[2];
static unsigned char sent[BYTES], got[BYTES];

static unsigned long long direct(void)
{
    unsigned long long direct, staged;
    REQUIRE(simulated_copies(0, 1, &direct, &staged));
    return direct;
}

/* Whether the copy was direct. */
static int copy(unsigned seed)
{
    fill(sent, BYTES, seed);
    CHECK_CU(cuCtxSetCurrent(contexts[0]));
    CHECK_CU(cuMemcpyHtoD(memory[0], sent, BYTES));
    unsigned long long before = direct();
    CHECK_CU(cuMemcpyPeer(memory[1], contexts[1], memory[0], contexts[0], BYTES));
    int is_direct = direct() == before + 1;
    CHECK_CU(cuCtxSetCurrent(contexts[1]));
    CHECK_CU(cuMemcpyDtoH(got, memory[1], BYTES));
    REQUIRE(memcmp(sent, got, BYTES) == 0);
    return is_direct;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    CHECK_CU(cuInit(0));
    for (int device = 0; device < 2; device++)
        memory[device] = context_memory(&contexts[device], device, BYTES);
    CHECK_CU(cuCtxSetCurrent(contexts[0]));
    int can = 0, is_direct = 0;
    CUresult access = CUDA_SUCCESS;
    for (int i = 0; i < TRIES; i++, usleep(50000)) {
        if (strcmp(how, "enables") == 0) {
            access = cuCtxEnablePeerAccess(contexts[1], 0);
            if (i == 0)
                printf("first: %s\n", driver_error_name(access));
            if (access == CUDA_SUCCESS)
                break;
        } else if (strcmp(how, "asks") == 0) {
            CHECK_CU(cuDeviceCanAccessPeer(&can, 0, 1));
            if (i == 0)
                printf("first: %d\n", can);
            if (can)
                break;
        } else {
            is_direct = copy(i);
            if (i == 0)
                printf("first: %s\n", is_direct ? "direct" : "staged");
            if (is_direct)
                break;
        }
    }
    if (can)
        access = cuCtxEnablePeerAccess(contexts[1], 0);
    printf("then: %s\n", driver_error_name(access));
    printf("last copy: %s\n", copy(TRIES) ? "direct" : "staged");
    return 0;
}
