/* build: runtime; run: graph_copies WHAT on sim gpu
 * Copies between two devices that graphs and batches make. Exits with 0 only if all bytes arrive.
 *
 *   captured   a graph of captured copies, launched three times; the program never enables access
 *   made       the same made node by node, with a child graph
 *   updated    an executable graph that is updated, and whose nodes are changed
 *   renamed    one whose nodes are changed after it was updated with another graph, and disabled
 *   late       a graph that is instantiated before the program enables access
 *   lost       one that is launched after the program has disabled it; the launch's code and what comes after it are printed
 *   reused     the same in a program that takes memory for itself in between, as p2pshim may
 *   many       a graph of many copies, updated with itself, and a batch of many
 *   batch      batches of copies between two devices, inside one, and with the host
 */
#include <cuda_runtime_api.h>

#include "check.h"
#include "lib/runtime_batches.h"

enum { COUNT = 1 << 20, PITCH = 4096, LAUNCHES = 3 };

#include "graph_ends.h"

static void wait_for_both(void)
{
    for (int device = 1; device >= 0; device--) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaDeviceSynchronize());
    }
}

static void compare(const void *end, size_t bytes)
{
    CHECK(cudaMemcpy(received, end, COUNT, cudaMemcpyDeviceToHost));
    REQUIRE(memcmp(sent, received, bytes) == 0);
}

static cudaGraphExec_t instantiate(cudaGraph_t graph)
{
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
}

/* There and back, so that both directions have bytes. */
static void launch(cudaGraphExec_t exec)
{
    for (int i = 0; i < LAUNCHES; i++) {
        refill();
        CHECK(cudaGraphLaunch(exec, stream));
        wait_for_both();
        compare(far_end, COUNT);
        compare(near_copy, COUNT / 2);
    }
}

static cudaGraph_t capture(void)
{
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaMemcpyAsync(far_end, near_end, COUNT / 2, cudaMemcpyDefault, stream));
    CHECK(cudaMemcpy2DAsync((char *)far_end + COUNT / 2, PITCH, (char *)near_end + COUNT / 2, PITCH, PITCH,
                            COUNT / 2 / PITCH, cudaMemcpyDeviceToDevice, stream));
    CHECK(cudaMemcpyAsync(near_copy, far_end, COUNT / 2, cudaMemcpyDeviceToDevice, stream));
    CHECK(cudaMemcpyAsync(far_copy, far_end, COUNT, cudaMemcpyDeviceToDevice, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    return graph;
}

static cudaGraphNode_t add(cudaGraph_t graph, const cudaGraphNode_t *after, void *dst, const void *src, size_t bytes)
{
    cudaGraphNode_t node;
    CHECK(cudaGraphAddMemcpyNode1D(&node, graph, after, after != NULL, dst, src, bytes, cudaMemcpyDefault));
    return node;
}

static void made(void)
{
    cudaGraph_t graph, child;
    cudaGraphNode_t inner;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphCreate(&child, 0));
    cudaGraphNode_t first = add(graph, NULL, far_end, near_end, COUNT);
    cudaGraphNode_t second = add(child, NULL, near_copy, far_end, COUNT / 2);
    add(child, &second, far_copy, far_end, COUNT);
    CHECK(cudaGraphAddChildGraphNode(&inner, graph, &first, 1, child));
    CHECK(cudaGraphDestroy(child));
    cudaGraphExec_t exec = instantiate(graph);
    launch(exec);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

static void updated(void)
{
    cudaGraph_t graph, other;
    cudaGraphNode_t nodes[2];
    size_t count = 2;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t node = add(graph, NULL, far_end, near_end, COUNT);
    add(graph, &node, near_copy, far_end, COUNT / 2);
    cudaGraphExec_t exec = instantiate(graph);
    CHECK(cudaGraphLaunch(exec, stream));
    /* Half as much by the first node. */
    CHECK(cudaGraphExecMemcpyNodeSetParams1D(exec, node, far_end, near_end, COUNT / 2, cudaMemcpyDefault));
    CHECK(cudaGraphLaunch(exec, stream));
    wait_for_both();
    /* A quarter by each. */
    CHECK(cudaGraphCreate(&other, 0));
    node = add(other, NULL, far_end, near_end, COUNT / 4);
    add(other, &node, near_copy, far_end, COUNT / 4);
    CHECK(cudaGraphGetNodes(other, nodes, &count));
    REQUIRE(count == 2);
#if CUDART_VERSION >= 12000
    cudaGraphExecUpdateResultInfo info;
    CHECK(cudaGraphExecUpdate(exec, other, &info));
#else
    cudaGraphNode_t error;
    enum cudaGraphExecUpdateResult result;
    CHECK(cudaGraphExecUpdate(exec, other, &error, &result));
#endif
    refill();
    CHECK(cudaGraphLaunch(exec, stream));
    wait_for_both();
    compare(far_end, COUNT / 4);
    compare(near_copy, COUNT / 4);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(other));
    CHECK(cudaGraphDestroy(graph));
}

/* Updates with another graph leave it with the nodes that it was instantiated from, at any depth. */
static void renamed(void)
{
    cudaGraph_t graph, child, middle, other;
    cudaGraphNode_t outer, inner, copy;
    size_t one = 1;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphCreate(&middle, 0));
    CHECK(cudaGraphCreate(&child, 0));
    cudaGraphNode_t first = add(graph, NULL, far_end, near_end, COUNT);
    add(child, NULL, near_copy, far_end, COUNT);
    CHECK(cudaGraphAddChildGraphNode(&inner, middle, NULL, 0, child));
    CHECK(cudaGraphAddChildGraphNode(&outer, graph, &first, 1, middle));
    CHECK(cudaGraphChildGraphNodeGetGraph(outer, &other));
    CHECK(cudaGraphGetNodes(other, &inner, &one));
    CHECK(cudaGraphChildGraphNodeGetGraph(inner, &other));
    CHECK(cudaGraphGetNodes(other, &copy, &one));
    cudaGraphExec_t exec = instantiate(graph);
    /* With itself in other words. */
    CHECK(cudaGraphCreate(&other, 0));
    cudaGraphNode_t another = add(other, NULL, far_end, near_end, COUNT);
    CHECK(cudaGraphAddChildGraphNode(&another, other, &another, 1, middle));
#if CUDART_VERSION >= 12000
    cudaGraphExecUpdateResultInfo info;
    CHECK(cudaGraphExecUpdate(exec, other, &info));
#else
    enum cudaGraphExecUpdateResult result;
    CHECK(cudaGraphExecUpdate(exec, other, &another, &result));
#endif
    CHECK(cudaGraphExecMemcpyNodeSetParams1D(exec, first, far_end, near_end, COUNT / 2, cudaMemcpyDefault));
    CHECK(cudaGraphExecMemcpyNodeSetParams1D(exec, copy, near_copy, far_end, COUNT / 4, cudaMemcpyDefault));
    refill();
    CHECK(cudaGraphLaunch(exec, stream));
    wait_for_both();
    compare(far_end, COUNT / 2);
    compare(near_copy, COUNT / 4);
    /* The inner copy is whole again, and the outer one does nothing. */
    CHECK(cudaGraphExecChildGraphNodeSetParams(exec, inner, child));
    CHECK(cudaGraphNodeSetEnabled(exec, first, 0));
    CHECK(cudaMemcpy(far_end, sent, COUNT, cudaMemcpyHostToDevice));
    CHECK(cudaGraphLaunch(exec, stream));
    wait_for_both();
    compare(near_copy, COUNT);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphDestroy(other));
}

static void enable(bool disables)
{
    for (int device = 1; device >= 0; device--) {
        CHECK(cudaSetDevice(device));
        CHECK(disables ? cudaDeviceDisablePeerAccess(1 - device) : cudaDeviceEnablePeerAccess(1 - device, 0));
    }
}

static void late(void)
{
    cudaGraph_t graph = capture();
    cudaGraphExec_t exec = instantiate(graph);
    enable(false);
    launch(exec);
    CHECK(cudaGraphExecDestroy(exec));
    exec = instantiate(graph);
    launch(exec);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

/* Memory of all sizes that the driver may have given back. */
static void reuse(void)
{
    for (size_t size = 16; size <= 4096; size += 16)
        for (int i = 0; i < 8; i++)
            memset(malloc(size), ' ', size);
}

static int lost(bool reuses)
{
    cudaGraph_t graph = capture();
    enable(false);
    cudaGraphExec_t exec = instantiate(graph);
    launch(exec);
    enable(true);
    if (reuses)
        reuse();
    cudaError_t launched = cudaGraphLaunch(exec, stream);
    printf("launch %d, then %d\n", launched, cudaStreamSynchronize(stream));
    fflush(stdout); /* the runtime may not live to see the end of a process whose context is lost */
    return 0;
}

#if CUDART_VERSION >= 12080
static void batch_3d(void *dst, void *src, size_t bytes)
{
    struct cudaMemcpy3DBatchOp op;
    memset(&op, 0, sizeof op);
    op.src.type = op.dst.type = cudaMemcpyOperandTypePointer;
    op.src.op.ptr.ptr = src;
    op.dst.op.ptr.ptr = dst;
    op.extent.width = bytes;
    op.extent.height = op.extent.depth = 1;
    op.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
#if CUDART_VERSION >= 13000
    CHECK(cudaMemcpy3DBatchAsync(1, &op, 0, stream));
#else
    size_t fail;
    CHECK(cudaMemcpy3DBatchAsync(1, &op, &fail, 0, stream));
#endif
}

static void batches(void)
{
    void *dsts[] = {far_end, (char *)far_end + COUNT / 2, far_copy, near_copy};
    void *srcs[] = {near_end, (char *)near_end + COUNT / 2, far_copy, far_copy};
    size_t sizes[] = {COUNT / 2, COUNT / 2, COUNT, COUNT};
    for (int i = 0; i < LAUNCHES; i++) {
        refill();
        CHECK(copy_batch(dsts, srcs, sizes, 2, stream));
        wait_for_both();
        compare(far_end, COUNT);
        /* Nothing of these is between devices. */
        void *inside[] = {near_copy, sent}, *from[] = {near_end, near_end};
        size_t both[] = {COUNT, COUNT};
        CHECK(copy_batch(inside, from, both, 2, stream));
        batch_3d(near_copy, near_end, COUNT);
        wait_for_both();
        compare(near_copy, COUNT);
        /* Both ways at once. */
        void *ways[] = {far_copy, near_copy}, *ends[] = {near_end, far_end};
        CHECK(copy_batch(ways, ends, both, 2, stream));
        batch_3d(near_copy, far_end, COUNT);
        wait_for_both();
        compare(near_copy, COUNT);
    }
}
#else
static void batches(void)
{
}
#endif

static void many(void)
{
    enum { NODES = 6000, COPIES = 60000 };
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    for (int i = 0; i < NODES; i++)
        add(graph, NULL, (char *)far_end + i, (char *)near_end + i, 1);
    cudaGraphExec_t exec = instantiate(graph);
#if CUDART_VERSION >= 12000
    cudaGraphExecUpdateResultInfo info;
    CHECK(cudaGraphExecUpdate(exec, graph, &info));
#endif
    refill();
    CHECK(cudaGraphLaunch(exec, stream));
    wait_for_both();
    compare(far_end, NODES);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
#if CUDART_VERSION >= 12080
    static void *dsts[COPIES], *srcs[COPIES];
    static size_t sizes[COPIES];
    for (int i = 0; i < COPIES; i++)
        dsts[i] = (char *)far_end + i, srcs[i] = (char *)near_end + i, sizes[i] = 1;
    refill();
    CHECK(copy_batch(dsts, srcs, sizes, COPIES, stream));
    wait_for_both();
    compare(far_end, COPIES);
#endif
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 2);
    far_end = allocate(1), far_copy = allocate(1), near_end = allocate(0), near_copy = allocate(0);
    CHECK(cudaStreamCreate(&stream));
    if (strcmp(argv[1], "lost") == 0 || strcmp(argv[1], "reused") == 0)
        return lost(strcmp(argv[1], "reused") == 0);
    if (strcmp(argv[1], "captured") == 0) {
        cudaGraph_t graph = capture();
        cudaGraphExec_t exec = instantiate(graph);
        launch(exec);
        CHECK(cudaGraphExecDestroy(exec));
        CHECK(cudaGraphDestroy(graph));
    } else if (strcmp(argv[1], "made") == 0)
        made();
    else if (strcmp(argv[1], "updated") == 0)
        updated();
    else if (strcmp(argv[1], "renamed") == 0)
        renamed();
    else if (strcmp(argv[1], "late") == 0)
        late();
    else if (strcmp(argv[1], "many") == 0)
        many();
    else if (strcmp(argv[1], "batch") == 0)
        batches();
    else
        return 2;
    CHECK(cudaStreamDestroy(stream));
    return 0;
}
