/* build: driver; run: timing_beside_releases on reusing-driver
 * A thread copies on a stream of one device, while another releases the primary context of the other device again and again.
 * What is kept for measuring the one must outlive what is given back for the other. For lib/reusing_driver.c, which does not
 * survive the use of an event that is gone.
 */
#include <cuda.h>

#include "check.h"

enum { COPIES = 20000 };

static const CUdeviceptr memory[] = {(CUdeviceptr)1 << 40, ((CUdeviceptr)1 << 40) + ((CUdeviceptr)1 << 32)};
static CUcontext contexts[2];
static atomic_bool finished;

static void *release(void *unused)
{
    while (!atomic_load(&finished))
        CHECK_CU(cuDevicePrimaryCtxRelease(1));
    return unused;
}

int main(void)
{
    pthread_t thread;
    int refused = 0;
    CHECK_CU(cuInit(0));
    for (int device = 0; device < 2; device++)
        CHECK_CU(cuDevicePrimaryCtxRetain(&contexts[device], device));
    CHECK_CU(cuCtxSetCurrent(contexts[0]));
    CUstream stream = driver_stream();
    REQUIRE(pthread_create(&thread, NULL, release, NULL) == 0);
    for (int i = 0; i < COPIES; i++)
        refused += cuMemcpyPeerAsync(memory[1], contexts[1], memory[0], contexts[0], 64, stream) != CUDA_SUCCESS;
    atomic_store(&finished, true);
    REQUIRE(pthread_join(thread, NULL) == 0);
    printf("%d copies refused\n", refused);
    return 0;
}
