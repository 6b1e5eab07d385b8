/*
 * At the limit of peers (P2PSIM_MAX_PEERS=1, three devices), after copies from 0 to 1, device 0 is busy for 60 ms. A thread
 * enables access of 0 to 2; meanwhile another one captures on device 1, which has nothing to do with it: the capture must
 * come out whole.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <pthread.h>
#include <unistd.h>

#include "check.h"

enum { SIZE = 2 << 20 };
static CUcontext contexts[3];

static void busy(void *unused)
{
    (void)unused;
    usleep(60000);
}

static void *capture(void *unused)
{
    CUstream stream;
    CUgraph graph;
    CHECK_CU(cuCtxSetCurrent(contexts[1]));
    CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    usleep(20000);
    CHECK_CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    usleep(150000);
    SHOW_CU(cuStreamEndCapture(stream, &graph));
    return unused;
}

int main(void)
{
    pthread_t thread;
    CUdeviceptr memory[3];
    CUstream stream;
    CHECK_CU(cuInit(0));
    for (int device = 0; device < 3; device++) {
        CHECK_CU(cuDevicePrimaryCtxRetain(&contexts[device], device));
        CHECK_CU(cuCtxSetCurrent(contexts[device]));
        CHECK_CU(cuMemAlloc(&memory[device], SIZE));
    }
    CHECK_CU(cuCtxSetCurrent(contexts[0]));
    CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 3; i++)
        CHECK_CU(cuMemcpyPeer(memory[1], contexts[1], memory[0], contexts[0], SIZE));
    CHECK_CU(cuCtxSynchronize());
    CHECK_CU(cuLaunchHostFunc(stream, busy, NULL));
    REQUIRE(pthread_create(&thread, NULL, capture, NULL) == 0);
    CUresult enabled = cuCtxEnablePeerAccess(contexts[2], 0);
    REQUIRE(pthread_join(thread, NULL) == 0);
    fprintf(stderr, "%d\n", enabled);
    CHECK_CU(cuCtxSynchronize());
    return 0;
}
