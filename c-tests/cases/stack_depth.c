/* build: runtime12+ driver; run: stack_depth WHAT BYTES STACK [signal] [after] on sim gpu
 * How much stack calls about copies take, each on a stack of its own: the first of their kind, and later ones.
 *
 *   async     cuMemcpyPeerAsync between two devices
 *   sync      cuMemcpyPeer
 *   3d        cuMemcpy3DPeerAsync
 *   regular   cuMemcpyDtoDAsync
 *   runtime   cudaMemcpyPeerAsync
 *   batch     cuMemcpyBatchAsync
 *   captured  cuMemcpyPeerAsync in a capture, with its begin and end
 *   graph     instantiating a graph with such a copy, and launching it
 *   free      cuMemAlloc and cuMemFree
 *   query     cuDeviceCanAccessPeer
 *   enable    cuCtxEnablePeerAccess
 *
 * BYTES are copied, on stacks of so many KiB: of threads, or with `signal` of a handler on the main thread. With `after` the main thread has
 * made such calls before, on its large stack.
 *
 * Prints the most that one of the early calls took, and one of the later ones; and how a copy goes then that is made on the main
 * thread's own stack, after some others.
 */
#include <cuda_runtime_api.h>
#include <cuda.h>

#include "lib/painted_stack.h"

enum { BEFORE = 40 };

static CUcontext contexts[2];
static CUdeviceptr memory[2];
static CUstream stream;
static CUgraph graph;
static CUgraphExec exec;
static size_t bytes;
static const char *what;

static int is(const char *name)
{
    return strcmp(what, name) == 0;
}

static void async(void)
{
    CHECK_CU(cuMemcpyPeerAsync(memory[1], contexts[1], memory[0], contexts[0], bytes, stream));
}

static void synchronous(void)
{
    CHECK_CU(cuMemcpyPeer(memory[1], contexts[1], memory[0], contexts[0], bytes));
}

static void in_3d(void)
{
    CUDA_MEMCPY3D_PEER copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .dstMemoryType = CU_MEMORYTYPE_DEVICE};
    copy.srcDevice = memory[0];
    copy.dstDevice = memory[1];
    copy.srcContext = contexts[0];
    copy.dstContext = contexts[1];
    copy.Height = 2;
    copy.WidthInBytes = copy.srcPitch = copy.dstPitch = bytes / copy.Height;
    copy.srcHeight = copy.dstHeight = copy.Height;
    copy.Depth = 1;
    CHECK_CU(cuMemcpy3DPeerAsync(&copy, stream));
}

static void regular(void)
{
    CHECK_CU(cuMemcpyDtoDAsync(memory[1], memory[0], bytes, stream));
}

static void runtime(void)
{
    CHECK(cudaMemcpyPeerAsync((void *)memory[1], 1, (void *)memory[0], 0, bytes, (cudaStream_t)stream));
}

static void batch(void)
{
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    size_t first = 0;
#if CUDA_VERSION >= 13000
    CHECK_CU(cuMemcpyBatchAsync(&memory[1], &memory[0], &bytes, 1, &attributes, &first, 1, stream));
#else
    size_t failed;
    CHECK_CU(cuMemcpyBatchAsync(&memory[1], &memory[0], &bytes, 1, &attributes, &first, 1, &failed, stream));
#endif
}

static void captured(void)
{
    CUgraph made;
    CHECK_CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    /* Without p2pshim CUDA refuses the copy, and the capture is lost. A regular one is captured. */
    if (cuMemcpyPeerAsync(memory[1], contexts[1], memory[0], contexts[0], bytes, stream) != CUDA_SUCCESS) {
        (void)cuStreamEndCapture(stream, &made);
        CHECK_CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        regular();
    }
    CHECK_CU(cuStreamEndCapture(stream, &made));
    CHECK_CU(cuGraphDestroy(made));
}

static void launch(void)
{
    CHECK_CU(cuGraphLaunch(exec, stream));
}

static void instantiate(void)
{
    CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
}

static void allocate_and_free(void)
{
    CUdeviceptr other;
    CHECK_CU(cuMemAlloc(&other, bytes));
    CHECK_CU(cuMemFree(other));
}

static void query(void)
{
    int can;
    CHECK_CU(cuDeviceCanAccessPeer(&can, 0, 1));
}

static void enable(void)
{
    REQUIRE(cuCtxEnablePeerAccess(contexts[1], 0) != CUDA_ERROR_INVALID_VALUE);
}

static const struct named_case CALLS[] = {
    NAMED(async), {"sync", synchronous}, {"3d", in_3d}, NAMED(regular), NAMED(runtime), NAMED(batch), {"graph", launch}, NAMED(captured),
    {"free", allocate_and_free}, NAMED(query), NAMED(enable)};

static void prepare(void)
{
    CHECK_CU(cuCtxSetCurrent(contexts[0]));
}

static const char *path(void (*call)(void))
{
    unsigned long long before, after, staged;
    if (!simulated_copies(0, 1, &before, &staged))
        return "as real GPUs do";
    call();
    REQUIRE(simulated_copies(0, 1, &after, &staged));
    return after > before ? "direct" : "not direct";
}

int main(int argc, char **argv)
{
    REQUIRE(argc > 3);
    what = argv[1];
    bytes = strtoul(argv[2], NULL, 0);
    size_t stack = strtoul(argv[3], NULL, 0) << 10;
    int by_signal = has_word(argc, argv, "signal"), is_after = has_word(argc, argv, "after");
    REQUIRE(FIND_CASE(CALLS, what));
    void (*call)(void) = FIND_CASE(CALLS, what)->run;
    CHECK_CU(cuInit(0));
    for (int device = 1; device >= 0; device--) {
        memory[device] = context_memory(&contexts[device], device, bytes);
    }
    CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (is("graph")) {
        CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .dstMemoryType = CU_MEMORYTYPE_DEVICE};
        CUgraphNode node;
        copy.srcDevice = memory[0];
        copy.dstDevice = memory[1];
        copy.WidthInBytes = copy.srcPitch = copy.dstPitch = bytes;
        copy.Height = copy.Depth = copy.srcHeight = copy.dstHeight = 1;
        CHECK_CU(cuGraphCreate(&graph, 0));
        CHECK_CU(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, contexts[0]));
        for (int i = 0; is_after && i < BEFORE; i++)
            instantiate();
        printf("instantiate %ld\n", painted_depth(stack, by_signal, prepare, instantiate));
    }
    for (int i = 0; is_after && i < BEFORE; i++)
        call();
    CHECK_CU(cuStreamSynchronize(stream));
    painted_show(stack, by_signal, prepare, call);
    for (int i = 0; i < BEFORE; i++)
        call();
    printf("then %s\n", path(call));
    CHECK_CU(cuStreamSynchronize(stream));
    return 0;
}
