/* build: driver; run: pools_beside_capture on sim
 * Copies between memory of pools while a capture is under way on another stream, of this thread or of another one: the
 * capture must come out whole.
 */
#include <cuda.h>

#include "check.h"

enum { SIZE = 64, COPIES = 3 };
static CUcontext contexts[2];
static pthread_barrier_t begun, finished;

static void *capture(void *mode)
{
    CUgraph graph;
    CHECK_CU(cuCtxSetCurrent(contexts[0]));
    CUstream stream = driver_stream();
    CHECK_CU(cuStreamBeginCapture(stream, *(CUstreamCaptureMode *)mode));
    pthread_barrier_wait(&begun);
    pthread_barrier_wait(&finished);
    SHOW_CU(cuStreamEndCapture(stream, &graph));
    return NULL;
}

int main(void)
{
    CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                   CU_STREAM_CAPTURE_MODE_RELAXED};
    CUdeviceptr memory[2];
    CUgraph graph;
    CHECK_CU(cuInit(0));
    for (int device = 0; device < 2; device++) {
        contexts[device] = primary_context(device);
        CHECK_CU(cuMemAllocAsync(&memory[device], SIZE, NULL));
        CHECK_CU(cuCtxSynchronize());
    }
    CHECK_CU(cuCtxSetCurrent(contexts[0]));
    CUstream stream = driver_stream();
    CUstream captured = driver_stream();
    pthread_barrier_init(&begun, NULL, 2);
    pthread_barrier_init(&finished, NULL, 2);
    for (int mode = 0; mode < 3; mode++) {
        pthread_t thread;
        CHECK_CU(cuStreamBeginCapture(captured, modes[mode]));
        for (int i = 0; i < COPIES; i++)
            SHOW_CU(cuMemcpyPeerAsync(memory[1], contexts[1], memory[0], contexts[0], SIZE, stream));
        SHOW_CU(cuStreamEndCapture(captured, &graph));
        REQUIRE(pthread_create(&thread, NULL, capture, &modes[mode]) == 0);
        pthread_barrier_wait(&begun);
        for (int i = 0; i < COPIES; i++)
            SHOW_CU(cuMemcpyPeerAsync(memory[1], contexts[1], memory[0], contexts[0], SIZE, stream));
        pthread_barrier_wait(&finished);
        REQUIRE(pthread_join(thread, NULL) == 0);
    }
    return 0;
}
