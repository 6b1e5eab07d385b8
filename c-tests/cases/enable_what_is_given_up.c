/*
 * At the limit of peers (P2PSIM_MAX_PEERS=1, three devices), after copies from 0 to 1: one thread enables access of
 * device 0 to 2 while device 0 is busy for 50 ms; meanwhile the other one enables access of 0 to 1, which is as good
 * as over the limit for whoever comes second. What the answers say must be so afterwards: what was enabled
 * is enabled.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <pthread.h>
#include <unistd.h>

#include "check.h"

enum { SIZE = 2 << 20 };

static CUcontext contexts[3];
static CUresult first;

static void busy(void *unused)
{
    (void)unused;
    usleep(50000);
}

static void *enable_2(void *unused)
{
    CHECK_CU(cuCtxSetCurrent(contexts[0]));
    first = cuCtxEnablePeerAccess(contexts[2], 0);
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
    REQUIRE(pthread_create(&thread, NULL, enable_2, NULL) == 0);
    usleep(10000);
    CUresult second = cuCtxEnablePeerAccess(contexts[1], 0);
    REQUIRE(pthread_join(thread, NULL) == 0);
    printf("of two peers, %d enabled\n", (first == CUDA_SUCCESS) + (second == CUDA_SUCCESS));
    for (int peer = 1; peer < 3; peer++) {
        CUresult enabled = peer == 2 ? first : second;
        CUresult disabled = cuCtxDisablePeerAccess(contexts[peer]);
        printf("%s\n", (enabled == CUDA_SUCCESS) == (disabled == CUDA_SUCCESS) ? "so it was" : "it was NOT so");
    }
    fprintf(stderr, "%d %d\n", first, second);
    CHECK_CU(cuCtxSynchronize());
    return 0;
}
