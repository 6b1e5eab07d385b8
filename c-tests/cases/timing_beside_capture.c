/* build: driver; run: timing_beside_capture on sim
 * One thread copies on a stream of its own all the time, another captures in global mode again and again: who measures the
 * first one's copies must ask about no event meanwhile, since that would end the other's captures.
 */
#include <cuda.h>

#include "check.h"

enum { CAPTURES = 300, BYTES = 1 << 16 };

static CUcontext contexts[2];
static CUdeviceptr from, to, inside;
static atomic_int over;

static void *copies(void *unused)
{
    CHECK_CU(cuCtxSetCurrent(contexts[0]));
    CUstream stream = driver_stream();
    do
        for (int i = 0; i < 8; i++)
            CHECK_CU(cuMemcpyPeerAsync(to, contexts[1], from, contexts[0], BYTES, stream));
    while (!over);
    return unused;
}

int main(void)
{
    pthread_t thread;
    int failed = 0;
    CHECK_CU(cuInit(0));
    for (int device = 0; device < 2; device++)
        CHECK_CU(cuDevicePrimaryCtxRetain(&contexts[device], device));
    CHECK_CU(cuCtxSetCurrent(contexts[1]));
    CHECK_CU(cuMemAlloc(&to, BYTES));
    CHECK_CU(cuCtxSetCurrent(contexts[0]));
    CHECK_CU(cuMemAlloc(&from, BYTES));
    CHECK_CU(cuMemAlloc(&inside, BYTES));
    CUstream stream = driver_stream();
    REQUIRE(pthread_create(&thread, NULL, copies, NULL) == 0);
    for (int i = 0; i < CAPTURES; i++) {
        CUgraph graph = NULL;
        CHECK_CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        CHECK_CU(cuMemsetD8Async(inside, 7, BYTES, stream));
        usleep(100);
        failed += cuStreamEndCapture(stream, &graph) != CUDA_SUCCESS;
        if (graph)
            CHECK_CU(cuGraphDestroy(graph));
        usleep(100);
    }
    over = 1;
    REQUIRE(pthread_join(thread, NULL) == 0);
    printf("%d of %d captures failed\n", failed, CAPTURES);
    return 0;
}
