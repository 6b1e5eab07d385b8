/* build: runtime old; run: copies_beside_capture on sim
 * Many peer copies while a capture is under way on another stream, of this thread or of another one: more and larger
 * ones than it takes for peer access to be worth enabling. The capture must come out whole and the bytes right.
 */
#include <cuda_runtime_api.h>

#include "check.h"

enum { SIZE = (1 << 20) + 4096, SMALL = 64, ROUNDS = 3, SMALLS = 20 };

static void *on_gpu0, *on_gpu1, *inside;
static unsigned char sent[SIZE], received[SIZE];
static pthread_barrier_t begun, finished;

/* Into the graph goes a memset. */
static void begin(cudaStream_t *stream, enum cudaStreamCaptureMode mode)
{
    CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    CHECK(cudaStreamBeginCapture(*stream, mode));
    CHECK(cudaMemsetAsync(inside, 7, SMALL, *stream));
}

static void end(const char *what, cudaStream_t stream)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t executable;
    cudaError_t ended = cudaStreamEndCapture(stream, &graph);
    printf("%s: capture %s, last error %s\n", what, cudaGetErrorName(ended), cudaGetErrorName(cudaGetLastError()));
    if (ended != cudaSuccess)
        return;
    CHECK(cudaGraphInstantiateWithFlags(&executable, graph, 0));
    CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
}

/* Called while a capture is under way: uses only what a capture in global mode leaves to others. */
static void copy_much(cudaStream_t stream)
{
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t at = 0; at < SMALLS * SMALL; at += SMALL)
            CHECK(cudaMemcpyPeerAsync((char *)on_gpu1 + at, 1, (char *)on_gpu0 + at, 0, SMALL, stream));
        CHECK(cudaMemcpyPeerAsync((char *)on_gpu1 + SMALLS * SMALL, 1, (char *)on_gpu0 + SMALLS * SMALL, 0,
                                  SIZE - SMALLS * SMALL, stream));
    }
}

static void prepare(unsigned seed)
{
    fill(sent, SIZE, seed);
    CHECK(cudaMemcpy(on_gpu0, sent, SIZE, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(inside, 0, SMALL));
    CHECK(cudaDeviceSynchronize());
}

static void check(const char *what, cudaStream_t stream)
{
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(received, on_gpu1, SIZE, cudaMemcpyDefault));
    printf("%s: %s\n", what, memcmp(sent, received, SIZE) == 0 ? "right" : "WRONG");
    CHECK(cudaMemcpy(received, inside, SMALL, cudaMemcpyDefault));
    printf("%s: graph %s\n", what, received[0] == 7 && received[SMALL - 1] == 7 ? "right" : "WRONG");
}

static void *capture_elsewhere(void *mode)
{
    cudaStream_t stream;
    CHECK(cudaSetDevice(0));
    begin(&stream, *(enum cudaStreamCaptureMode *)mode);
    pthread_barrier_wait(&begun);
    pthread_barrier_wait(&finished);
    end("of another thread", stream);
    return NULL;
}

int main(void)
{
    enum cudaStreamCaptureMode modes[] = {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
                                          cudaStreamCaptureModeRelaxed};
    cudaStream_t capturing;
    pthread_t other;
    on_gpu1 = device_memory(1, SIZE);
    on_gpu0 = device_memory(0, SIZE);
    CHECK(cudaMalloc(&inside, SMALL));
    cudaStream_t stream = non_blocking_stream();
    for (int i = 0; i < 3; i++) {
        printf("mode %d\n", i);
        prepare((unsigned)i);
        begin(&capturing, modes[i]);
        copy_much(stream);
        end("of this thread", capturing);
        check("of this thread", stream);

        prepare((unsigned)i + 10);
        pthread_barrier_init(&begun, NULL, 2);
        pthread_barrier_init(&finished, NULL, 2);
        REQUIRE(pthread_create(&other, NULL, capture_elsewhere, &modes[i]) == 0);
        pthread_barrier_wait(&begun);
        copy_much(stream);
        pthread_barrier_wait(&finished);
        REQUIRE(pthread_join(other, NULL) == 0);
        check("of another thread", stream);
    }
    /* With no capture under way. */
    prepare(99);
    copy_much(stream);
    CHECK(cudaMemset(inside, 7, SMALL));
    check("alone", stream);
    return 0;
}
