/*
 * At the limit of peers (P2PSIM_MAX_PEERS=1, three devices), after copies from 0 to 1, a third context copies between
 * their memories, behind 50 ms of other work. Meanwhile the program enables access of device 0 to 2. The copy must end
 * well, and the contexts with it.
 *
 *   limit_third_context stream|default|ordinary|created
 *
 * stream: on a stream of device 2's context. default: on its default stream. ordinary: by cuMemcpyAsync. created: on the
 * default stream of a context that the program has made, and that has nothing else.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

enum { SIZE = 2 << 20 };

CUresult cuCtxCreate_v2(CUcontext *, unsigned int, CUdevice);

static unsigned char bytes[SIZE], expected[SIZE];

static void busy(void *unused)
{
    (void)unused;
    usleep(50000);
}

int main(int argc, char **argv)
{
    CUcontext contexts[3], third, popped;
    CUdeviceptr memory[2];
    CUstream stream = NULL;
    const char *how = argc > 1 ? argv[1] : "stream";
    CHECK_CU(cuInit(0));
    for (int device = 0; device < 3; device++)
        CHECK_CU(cuDevicePrimaryCtxRetain(&contexts[device], device));
    third = contexts[2];
    if (strcmp(how, "created") == 0) {
        CHECK_CU(cuCtxCreate_v2(&third, 0, 2));
        CHECK_CU(cuCtxPopCurrent(&popped));
    }
    for (int device = 0; device < 2; device++) {
        CHECK_CU(cuCtxSetCurrent(contexts[device]));
        CHECK_CU(cuMemAlloc(&memory[device], SIZE));
    }
    CHECK_CU(cuCtxSetCurrent(contexts[0]));
    for (int i = 0; i < 3; i++)
        CHECK_CU(cuMemcpyPeer(memory[1], contexts[1], memory[0], contexts[0], SIZE));
    fill(expected, SIZE, 7);
    CHECK_CU(cuMemcpyHtoD(memory[0], expected, SIZE));
    CHECK_CU(cuCtxSynchronize());

    CHECK_CU(cuCtxSetCurrent(third));
    if (strcmp(how, "stream") == 0)
        CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_CU(cuLaunchHostFunc(stream, busy, NULL));
    if (strcmp(how, "ordinary") == 0)
        CHECK_CU(cuMemcpyAsync(memory[1], memory[0], SIZE, stream));
    else
        CHECK_CU(cuMemcpyPeerAsync(memory[1], contexts[1], memory[0], contexts[0], SIZE, stream));

    CHECK_CU(cuCtxSetCurrent(contexts[0]));
    SHOW_CU(cuCtxEnablePeerAccess(contexts[2], 0));
    CHECK_CU(cuCtxSetCurrent(third));
    SHOW_CU(cuStreamSynchronize(stream));
    for (int device = 0; device < 3; device++) {
        CHECK_CU(cuCtxSetCurrent(contexts[device]));
        SHOW_CU(cuCtxSynchronize());
    }
    CHECK_CU(cuCtxSetCurrent(contexts[1]));
    CHECK_CU(cuMemcpyDtoH(bytes, memory[1], SIZE));
    printf("%s: %s\n", how, memcmp(bytes, expected, SIZE) == 0 ? "right" : "WRONG");
    return 0;
}
