/* build: driver; run: graphs_together THREADS on sim gpu
 * Threads that instantiate a graph each at the same moment, whose copies go between the same two devices. A graph keeps for ever the path
 * that its copies get then. The program never enables access.
 *
 * Exits with 0 only if all bytes arrive. Prints on the simulated driver how many copies were direct, and how many staged; on a real one to
 * standard error how many GB/s each graph makes.
 */
#include <cuda.h>

#include "check.h"

enum {
    MOST = 16,
    LAUNCHES = 3,
};

static size_t bytes = 1 << 20;
static CUcontext contexts[2];
static pthread_barrier_t barrier;
static bool is_simulated;

struct one {
    pthread_t thread;
    unsigned seed;
    CUdeviceptr src, dst;
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
};

static void prepare(struct one *one)
{
    CHECK_CU(cuCtxSetCurrent(contexts[1]));
    CHECK_CU(cuMemAlloc(&one->dst, bytes));
    CHECK_CU(cuCtxSetCurrent(contexts[0]));
    CHECK_CU(cuMemAlloc(&one->src, bytes));
    CHECK_CU(cuStreamCreate(&one->stream, CU_STREAM_NON_BLOCKING));
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .dstMemoryType = CU_MEMORYTYPE_DEVICE};
    copy.srcDevice = one->src;
    copy.dstDevice = one->dst;
    copy.WidthInBytes = copy.srcPitch = copy.dstPitch = bytes;
    copy.Height = copy.Depth = copy.srcHeight = copy.dstHeight = 1;
    CUgraphNode node;
    CHECK_CU(cuGraphCreate(&one->graph, 0));
    CHECK_CU(cuGraphAddMemcpyNode(&node, one->graph, NULL, 0, &copy, contexts[0]));
}

static void *instantiate(void *argument)
{
    struct one *one = argument;
    CHECK_CU(cuCtxSetCurrent(contexts[0]));
    pthread_barrier_wait(&barrier);
    CHECK_CU(cuGraphInstantiateWithFlags(&one->exec, one->graph, 0));
    return NULL;
}

static void launch(struct one *one)
{
    unsigned char *sent = malloc(bytes), *got = calloc(1, bytes);
    REQUIRE(sent && got);
    fill(sent, bytes, one->seed);
    CHECK_CU(cuMemcpyHtoD(one->src, sent, bytes));
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int i = 0; i < LAUNCHES; i++)
        CHECK_CU(cuGraphLaunch(one->exec, one->stream));
    CHECK_CU(cuStreamSynchronize(one->stream));
    clock_gettime(CLOCK_MONOTONIC, &end);
    CHECK_CU(cuMemcpyDtoH(got, one->dst, bytes));
    REQUIRE(memcmp(sent, got, bytes) == 0);
    if (!is_simulated)
        fprintf(stderr, "%.1f GB/s\n", LAUNCHES * (double)bytes / ((end.tv_sec - start.tv_sec) * 1e9 + (end.tv_nsec - start.tv_nsec)));
    free(sent);
    free(got);
}

int main(int argc, char **argv)
{
    static struct one all[MOST];
    int threads = argc > 1 ? atoi(argv[1]) : 2;
    unsigned long long before[2], direct, staged;
    REQUIRE(threads > 0 && threads <= MOST);
    CHECK_CU(cuInit(0));
    is_simulated = simulated_copies(0, 1, &before[0], &before[1]);
    bytes = is_simulated ? bytes : (size_t)256 << 20;
    for (int device = 0; device < 2; device++)
        CHECK_CU(cuDevicePrimaryCtxRetain(&contexts[device], device));
    REQUIRE(pthread_barrier_init(&barrier, NULL, (unsigned)threads) == 0);
    for (int i = 0; i < threads; i++) {
        all[i].seed = (unsigned)i;
        prepare(&all[i]);
    }
    for (int i = 0; i < threads; i++)
        REQUIRE(pthread_create(&all[i].thread, NULL, instantiate, &all[i]) == 0);
    for (int i = 0; i < threads; i++)
        REQUIRE(pthread_join(all[i].thread, NULL) == 0);
    if (is_simulated)
        REQUIRE(simulated_copies(0, 1, &before[0], &before[1]));
    for (int i = 0; i < threads; i++)
        launch(&all[i]);
    if (is_simulated) {
        REQUIRE(simulated_copies(0, 1, &direct, &staged));
        printf("%llu direct, %llu staged\n", direct - before[0], staged - before[1]);
    }
    return 0;
}
