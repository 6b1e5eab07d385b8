/* build: runtime old; run: captured_copies [elsewhere] on sim gpu
 * Captures peer copies into graphs and replays them. CUDA refuses peer copies on a capturing stream, so this program
 * fails without p2pshim; with it, the graphs move the right bytes. Exits with 0 only if they do.
 *
 *   elsewhere    another thread captures in global mode meanwhile
 */
#include <cuda_runtime_api.h>

#include "check.h"

enum { PITCH = 256, WIDTH = 200, HEIGHT = 8, DEPTH = 4, COUNT = PITCH * HEIGHT * DEPTH, REPLAYS = 100 };

static void *on_gpu0, *on_gpu1;
static unsigned char sent[COUNT], received[COUNT];

static cudaError_t linear(cudaStream_t stream)
{
    return cudaMemcpyPeerAsync(on_gpu1, 1, on_gpu0, 0, COUNT, stream);
}

static cudaError_t box(cudaStream_t stream)
{
    struct cudaMemcpy3DPeerParms p = {0};
    p.srcDevice = 0;
    p.dstDevice = 1;
    p.srcPtr.ptr = on_gpu0;
    p.dstPtr.ptr = on_gpu1;
    p.srcPtr.pitch = p.dstPtr.pitch = PITCH;
    p.srcPtr.xsize = p.dstPtr.xsize = WIDTH;
    p.srcPtr.ysize = p.dstPtr.ysize = HEIGHT;
    p.extent.width = WIDTH;
    p.extent.height = HEIGHT;
    p.extent.depth = DEPTH;
    return cudaMemcpy3DPeerAsync(&p, stream);
}

/* Fills the source anew and empties the destination. */
static void prepare(unsigned seed)
{
    fill(sent, COUNT, seed);
    CHECK(cudaMemcpy(on_gpu0, sent, COUNT, cudaMemcpyHostToDevice));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaSetDevice(1));
    CHECK(cudaMemset(on_gpu1, 0, COUNT));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaSetDevice(0));
}

/* Waits for the copy and fetches what it brought. */
static void receive(cudaStream_t stream)
{
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaSetDevice(1));
    CHECK(cudaMemcpy(received, on_gpu1, COUNT, cudaMemcpyDeviceToHost));
    CHECK(cudaSetDevice(0));
}

static int rows_wrong(int width)
{
    int wrong = 0;
    for (int row = 0; row < HEIGHT * DEPTH; row++)
        wrong += memcmp(sent + row * PITCH, received + row * PITCH, (size_t)width) != 0;
    return wrong;
}

static int capture(const char *name, cudaError_t (*copy)(cudaStream_t), int width, enum cudaStreamCaptureMode mode)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t executable = NULL;
    int wrong = 0;

    cudaStream_t stream = non_blocking_stream();
    CHECK(cudaStreamBeginCapture(stream, mode));
    cudaError_t copied = copy(stream), ended = cudaStreamEndCapture(stream, &graph);
    printf("%s, mode %d: %s, capture: %s\n", name, (int)mode, cudaGetErrorName(copied), cudaGetErrorName(ended));
    printf("    last error: %s\n", cudaGetErrorName(cudaGetLastError()));
    if (ended != cudaSuccess)
        return 1;
    CHECK(cudaGraphInstantiateWithFlags(&executable, graph, 0));
    for (unsigned replay = 0; replay < REPLAYS; replay++) {
        prepare(replay);
        CHECK(cudaGraphLaunch(executable, stream));
        receive(stream);
        wrong += rows_wrong(width);
    }
    printf("    %d replays, %d rows wrong\n", REPLAYS, wrong);
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    return wrong != 0;
}

static pthread_barrier_t begun, finished;

static void *capture_elsewhere(void *unused)
{
    cudaGraph_t graph = NULL;
    (void)unused;
    cudaStream_t stream = non_blocking_stream();
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    pthread_barrier_wait(&begun);
    pthread_barrier_wait(&finished);
    CHECK(cudaStreamEndCapture(stream, &graph));
    printf("the capture elsewhere is whole\n");
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    return NULL;
}

int main(int argc, char **argv)
{
    int failed = 0;
    (void)argv;
    on_gpu1 = device_memory(1, COUNT);
    on_gpu0 = device_memory(0, COUNT);

    if (argc == 1) {
        const enum cudaStreamCaptureMode modes[] = {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
                                               cudaStreamCaptureModeRelaxed};
        for (int i = 0; i < 3; i++) {
            failed |= capture("cudaMemcpyPeerAsync", linear, PITCH, modes[i]);
            failed |= capture("cudaMemcpy3DPeerAsync", box, WIDTH, modes[i]);
        }
        /* Outside of a capture the copies are what they were. */
        cudaStream_t stream;
        CHECK(cudaStreamCreate(&stream));
        prepare(7);
        CHECK(linear(stream));
        receive(stream);
        printf("not captured: %d rows wrong\n", rows_wrong(PITCH));
        failed |= rows_wrong(PITCH) != 0;
    } else {
        pthread_t other;
        pthread_barrier_init(&begun, NULL, 2);
        pthread_barrier_init(&finished, NULL, 2);
        REQUIRE(pthread_create(&other, NULL, capture_elsewhere, NULL) == 0);
        pthread_barrier_wait(&begun);
        cudaGraph_t graph = NULL;
        cudaStream_t stream = non_blocking_stream();
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
        printf("beside a capture elsewhere: %s", cudaGetErrorName(linear(stream)));
        printf(", %s", cudaGetErrorName(box(stream)));
        cudaError_t ended = cudaStreamEndCapture(stream, &graph);
        printf(", capture: %s\n", cudaGetErrorName(ended));
        failed = ended != cudaSuccess;
        pthread_barrier_wait(&finished);
        REQUIRE(pthread_join(other, NULL) == 0);
    }
    return failed;
}
