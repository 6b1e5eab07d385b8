/* build: nvcc; run: scatter FORM|all push|pull ROUNDS on gpu
 * Programs that never enable peer access and are right, since calls wait for copies that the driver stages.
 *
 *   push   GPU 0 computes and copies to each other GPU on its own stream; that GPU is synchronized, and sums
 *   pull   each other GPU copies from GPU 0 on its own stream, behind work of its own; GPU 0 is synchronized, and overwrites the source
 *
 * FORM is a form of copy, or `all`. Prints for each how many sums are wrong; exits with 1 if any is.
 */
#include <cuda.h>
#include <cuda_runtime.h>
#include <string.h>

#include "check.h"

enum { WORDS = 1 << 20, WIDTH = 4096, ROWS = WORDS * 4 / WIDTH, MOST = 16, SLOW = 40 };

static unsigned *source, *target[MOST];
static unsigned long long *sums[MOST];
static cudaStream_t streams[MOST];
static cudaGraphExec_t graphs[MOST];

__global__ void fill(unsigned *words, unsigned value, int rounds)
{
    for (int round = 0; round < rounds; round++)
        for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < WORDS; i += gridDim.x * blockDim.x)
            words[i] = value + i % 7;
}

__global__ void sum(const unsigned *words, unsigned long long *to)
{
    unsigned long long own = 0;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < WORDS; i += gridDim.x * blockDim.x)
        own += words[i];
    atomicAdd(to, own);
}

static void copy_peer_async(int to, cudaStream_t stream) { CHECK(cudaMemcpyPeerAsync(target[to], to, source, 0, WORDS * 4, stream)); }
static void copy_async(int to, cudaStream_t stream) { CHECK(cudaMemcpyAsync(target[to], source, WORDS * 4, cudaMemcpyDefault, stream)); }
static void copy_2d(int to, cudaStream_t stream) { CHECK(cudaMemcpy2DAsync(target[to], WIDTH, source, WIDTH, WIDTH, ROWS, cudaMemcpyDefault, stream)); }
static void copy_graph(int to, cudaStream_t stream) { CHECK(cudaGraphLaunch(graphs[to], stream)); }

static void copy_3d(int to, cudaStream_t stream)
{
    cudaMemcpy3DParms p = {};
    p.srcPtr = make_cudaPitchedPtr(source, WIDTH, WIDTH, ROWS);
    p.dstPtr = make_cudaPitchedPtr(target[to], WIDTH, WIDTH, ROWS);
    p.extent = make_cudaExtent(WIDTH, ROWS, 1);
    p.kind = cudaMemcpyDefault;
    CHECK(cudaMemcpy3DAsync(&p, stream));
}

static void copy_3d_peer(int to, cudaStream_t stream)
{
    cudaMemcpy3DPeerParms p = {};
    p.srcPtr = make_cudaPitchedPtr(source, WIDTH, WIDTH, ROWS);
    p.dstPtr = make_cudaPitchedPtr(target[to], WIDTH, WIDTH, ROWS);
    p.dstDevice = to;
    p.extent = make_cudaExtent(WIDTH, ROWS, 1);
    CHECK(cudaMemcpy3DPeerAsync(&p, stream));
}

static void copy_batch(int to, cudaStream_t stream)
{
    const int half = WORDS * 2;
    void *dsts[] = {target[to], (char *)target[to] + half};
    const void *srcs[] = {source, (char *)source + half};
    size_t sizes[] = {(size_t)half, (size_t)half}, index = 0;
    cudaMemcpyAttributes attributes = {};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    CHECK(cudaMemcpyBatchAsync(dsts, srcs, sizes, 2, &attributes, &index, 1, stream));
}

static const struct form {
    const char *name;
    void (*copy)(int to, cudaStream_t stream);
} forms[] = {{"peer_async", copy_peer_async}, {"async", copy_async}, {"2d", copy_2d},       {"3d", copy_3d},
             {"3d_peer", copy_3d_peer},       {"batch", copy_batch}, {"graph", copy_graph}};

static void make_graph(int to, int device)
{
    cudaGraph_t graph;
    CHECK(cudaSetDevice(device));
    cudaStream_t capturing = non_blocking_stream();
    CHECK(cudaStreamBeginCapture(capturing, cudaStreamCaptureModeRelaxed));
    CHECK(cudaMemcpyAsync(target[to], source, WORDS * 4, cudaMemcpyDefault, capturing));
    CHECK(cudaStreamEndCapture(capturing, &graph));
    CHECK(cudaGraphInstantiateWithFlags(&graphs[to], graph, 0));
    CHECK(cudaStreamDestroy(capturing));
    CHECK(cudaGraphDestroy(graph));
}

static int is_wrong(int device, unsigned value)
{
    unsigned long long found, wanted = 0;
    CHECK(cudaSetDevice(device));
    CHECK(cudaMemset(sums[device], 0, 8));
    sum<<<64, 256>>>(target[device], sums[device]);
    CHECK(cudaMemcpy(&found, sums[device], 8, cudaMemcpyDeviceToHost));
    for (unsigned k = 0; k < 7; k++)
        wanted += (WORDS / 7 + (k < WORDS % 7)) * (unsigned long long)(value + k);
    return found != wanted;
}

/* Streams of GPU 0, or of each other GPU. */
static int run(const struct form *form, int is_pull, int rounds, int gpus)
{
    int wrong = 0;
    for (int to = 1; to < gpus; to++)
        make_graph(to, is_pull ? to : 0);
    for (int round = 0; round < rounds; round++) {
        unsigned value = round * 1000;
        CHECK(cudaSetDevice(0));
        fill<<<64, 256, 0, streams[0]>>>(source, value, is_pull ? 1 : SLOW);
        if (is_pull)
            CHECK(cudaStreamSynchronize(streams[0]));
        for (int to = 1; to < gpus; to++) {
            if (is_pull) {
                CHECK(cudaSetDevice(to));
                fill<<<64, 256, 0, streams[to]>>>(target[to], 1, SLOW);
            }
            form->copy(to, streams[is_pull ? to : 0]);
        }
        if (is_pull) {
            CHECK(cudaSetDevice(0));
            CHECK(cudaDeviceSynchronize());
            fill<<<64, 256, 0, streams[0]>>>(source, 2, 1);
            CHECK(cudaStreamSynchronize(streams[0]));
        }
        for (int to = 1; to < gpus; to++) {
            CHECK(cudaSetDevice(to));
            CHECK(cudaDeviceSynchronize());
            wrong += is_wrong(to, value);
        }
        CHECK(cudaSetDevice(0));
        CHECK(cudaDeviceSynchronize());
    }
    printf("%s, %s: %d of %d sums wrong\n", form->name, is_pull ? "pull" : "push", wrong, rounds * (gpus - 1));
    return wrong;
}

int main(int argc, char **argv)
{
    int gpus, wrong = 0;
    REQUIRE(argc == 4);
    CHECK(cudaGetDeviceCount(&gpus));
    REQUIRE(gpus >= 2);
    gpus = gpus > MOST ? MOST : gpus;
    for (int device = 0; device < gpus; device++) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaMalloc((void **)(device ? &target[device] : &source), WORDS * 4));
        CHECK(cudaMalloc((void **)&sums[device], 8));
        CHECK(cudaStreamCreateWithFlags(&streams[device], cudaStreamNonBlocking));
        /* Loaded before anything is measured: to load a kernel waits, too. */
        unsigned *words = device ? target[device] : source;
        fill<<<64, 256>>>(words, 0, 1);
        sum<<<64, 256>>>(words, sums[device]);
        CHECK(cudaDeviceSynchronize());
    }
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strcmp(argv[1], "all") == 0 || strcmp(argv[1], forms[i].name) == 0)
            wrong += run(&forms[i], strcmp(argv[2], "pull") == 0, atoi(argv[3]), gpus);
    return wrong != 0;
}
