/* build: driver; run: capture_left_behind elsewhere|destroyed|reset|context|handle|null on sim
 * A capture that the thread which began it never ends: in relaxed mode another thread may end it, and a stream, or its
 * context, may be destroyed while it is captured. Or it ends by another handle of the same stream. Later copies of the thread
 * are none of that capture's business. Says how they went.
 *
 *   reset    the primary context of the stream is reset
 *   context  the created context of the stream is destroyed
 *   handle   of the thread's default stream: begun by CU_STREAM_PER_THREAD, and ended by NULL
 *   null     the other way round
 */
#include <cuda.h>

#include "check.h"

enum { SIZE = 2 << 20, COPIES = 40 };
CUresult cuStreamBeginCapture_v2_ptsz(CUstream, CUstreamCaptureMode);
CUresult cuStreamEndCapture_ptsz(CUstream, CUgraph *);
static CUcontext contexts[2];
static CUdeviceptr memory[2];
static CUstream stream;

static void *end(void *unused)
{
    CUgraph graph;
    CHECK_CU(cuCtxSetCurrent(contexts[0]));
    CHECK_CU(cuStreamEndCapture(stream, &graph));
    CHECK_CU(cuGraphDestroy(graph));
    return unused;
}

static void make(int device)
{
    memory[device] = context_memory(&contexts[device], device, SIZE);
}

int main(int argc, char **argv)
{
    CUcontext created, popped;
    CUgraph graph;
    unsigned long long direct, staged;
    REQUIRE(argc > 1);
    CHECK_CU(cuInit(0));
    for (int device = 0; device < 2; device++)
        make(device);
    CHECK_CU(cuCtxSetCurrent(contexts[0]));
    if (strcmp(argv[1], "context") == 0)
        CHECK_CU(cuCtxCreate_v2(&created, 0, 0));
    if (strcmp(argv[1], "null") == 0) {
        CHECK_CU(cuStreamBeginCapture_v2_ptsz(NULL, CU_STREAM_CAPTURE_MODE_RELAXED));
    } else {
        CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        stream = strcmp(argv[1], "handle") == 0 ? CU_STREAM_PER_THREAD : stream;
        CHECK_CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    }
    if (strcmp(argv[1], "elsewhere") == 0) {
        run_in_thread(end, NULL);
    } else if (strcmp(argv[1], "reset") == 0) {
        CHECK_CU(cuDevicePrimaryCtxReset(0));
        make(0);
    } else if (strcmp(argv[1], "context") == 0) {
        CHECK_CU(cuCtxPopCurrent(&popped));
        CHECK_CU(cuCtxDestroy(created));
    } else if (strcmp(argv[1], "handle") == 0) {
        CHECK_CU(cuStreamEndCapture_ptsz(NULL, &graph));
    } else if (strcmp(argv[1], "null") == 0) {
        CHECK_CU(cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph));
    } else {
        CHECK_CU(cuStreamDestroy(stream));
    }
    for (int i = 0; i < COPIES; i++)
        CHECK_CU(cuMemcpyPeer(memory[1], contexts[1], memory[0], contexts[0], SIZE));
    CHECK_CU(cuCtxSynchronize());
    if (simulated_copies(0, 1, &direct, &staged))
        printf("%d copies, %llu direct, %llu staged\n", COPIES, direct, staged);
    return 0;
}
