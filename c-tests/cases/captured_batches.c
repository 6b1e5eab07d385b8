/* build: runtime12+ driver; run: captured_batches nodes|refused HOW on sim
 * Batches of copies on streams that are being captured. Drivers from 12.8 to 13.4 refuse them and go on with the capture; those of 13.5
 * and later make one node of each. Prints what the calls return, the nodes that there are, and whether data is right.
 *
 *   refused stream|any|during|mixed|pageable|3d
 *       one batch for each mode of captures: between devices, inside one, and from pinned memory; sources may be read in the stream's
 *       order, or in any; during the call, or the last of them; the last from pageable memory; the first of them as a 3D batch
 *   nodes
 *       captured and made by hand, launched, and changed: needs 13.5
 */
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "check.h"

enum { COUNT = 1 << 20, COPIES = 3, LAUNCHES = 2, BATCH_NODE = 14 };

#define FORM __attribute__((weak)) CUresult CUDAAPI
FORM cuGraphAddNode_v2(CUgraphNode *, CUgraph, const CUgraphNode *, const CUgraphEdgeData *, size_t, CUgraphNodeParams *);
FORM cuGraphExecNodeSetParams(CUgraphExec, CUgraphNode, CUgraphNodeParams *);

#include "graph_ends.h"

static unsigned char *pinned;
static bool reads_far_copy;

static void refill_all(void)
{
    refill();
    memcpy(pinned, sent, COUNT);
    if (reads_far_copy)
        CHECK(cudaMemcpy(far_copy, sent, COUNT, cudaMemcpyHostToDevice));
}

/* How much of it, from the beginning. */
static size_t right_bytes(const void *end)
{
    CHECK(cudaMemcpy(received, end, COUNT, cudaMemcpyDeviceToHost));
    size_t count = 0;
    while (count < COUNT && received[count] == sent[count])
        count++;
    return count;
}

static void show_launch(CUgraphExec exec)
{
    refill_all();
    CHECK(cudaGraphLaunch((cudaGraphExec_t)exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    printf("  right: far %zu", right_bytes(far_end));
    printf(", near %zu", right_bytes(near_copy));
    printf(", far copy %zu\n", right_bytes(far_copy));
}

static void show_nodes(CUgraph graph)
{
    CUgraphNode nodes[8];
    size_t count = 8;
    CHECK_CU(cuGraphGetNodes(graph, nodes, &count));
    printf("  nodes %zu:", count);
    for (size_t i = 0; i < count; i++) {
        CUgraphNodeType type;
        CHECK_CU(cuGraphNodeGetType(nodes[i], &type));
        printf(" type %d", type);
    }
    printf("\n");
}

static int batch(void **dsts, void **srcs, size_t *sizes, size_t count, enum cudaMemcpySrcAccessOrder first, enum cudaMemcpySrcAccessOrder last)
{
    struct cudaMemcpyAttributes attributes[2];
    size_t firsts[2] = {0, count - 1};
    memset(attributes, 0, sizeof attributes);
    attributes[0].srcAccessOrder = first;
    attributes[1].srcAccessOrder = last;
    size_t number = count > 1 && first != last ? 2 : 1;
#if CUDART_VERSION >= 13000
    return cudaMemcpyBatchAsync((void *const *)dsts, (const void *const *)srcs, sizes, count, attributes, firsts, number, stream);
#else
    size_t fail = 7;
    int code = cudaMemcpyBatchAsync(dsts, srcs, sizes, count, attributes, firsts, number, &fail, stream);
    REQUIRE(fail == (size_t)-1);
    return code;
#endif
}

static int batch_3d(void)
{
    struct cudaMemcpy3DBatchOp op;
    memset(&op, 0, sizeof op);
    op.src.type = op.dst.type = cudaMemcpyOperandTypePointer;
    op.src.op.ptr.ptr = near_end;
    op.dst.op.ptr.ptr = far_end;
    op.src.op.ptr.rowLength = op.dst.op.ptr.rowLength = 4096;
    op.src.op.ptr.layerHeight = op.dst.op.ptr.layerHeight = 16;
    op.extent.width = 4096;
    op.extent.height = 16;
    op.extent.depth = COUNT / 4096 / 16;
    op.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
#if CUDART_VERSION >= 13000
    return cudaMemcpy3DBatchAsync(1, &op, 0, stream);
#else
    size_t fail;
    return cudaMemcpy3DBatchAsync(1, &op, &fail, 0, stream);
#endif
}

static int batch_as(const char *how)
{
    void *dsts[COPIES] = {far_end, near_copy, far_copy}, *srcs[COPIES] = {near_end, near_end, pinned};
    size_t sizes[COPIES] = {COUNT, COUNT / 2, COUNT};
    enum cudaMemcpySrcAccessOrder order = cudaMemcpySrcAccessOrderStream, last = order;
    if (strcmp(how, "3d") == 0)
        return batch_3d();
    if (strcmp(how, "any") == 0)
        order = last = cudaMemcpySrcAccessOrderAny;
    if (strcmp(how, "during") == 0)
        order = last = cudaMemcpySrcAccessOrderDuringApiCall;
    if (strcmp(how, "mixed") == 0)
        last = cudaMemcpySrcAccessOrderDuringApiCall;
    if (strcmp(how, "pageable") == 0)
        srcs[COPIES - 1] = sent;
    return batch(dsts, srcs, sizes, COPIES, order, last);
}

static CUgraph capture(const char *how, int mode)
{
    CUgraph graph = NULL;
    CHECK(cudaStreamBeginCapture(stream, (enum cudaStreamCaptureMode)mode));
    int code = batch_as(how);
    printf("%s, mode %d: batch %d, last error %d", how, mode, code, cudaGetLastError());
    printf(", ended %d\n", cuStreamEndCapture(stream, &graph));
    return graph;
}

static void refused(const char *how)
{
    for (int mode = 0; mode < 3; mode++) {
        CUgraph graph = capture(how, mode);
        CUgraphExec exec;
        if (!graph)
            continue;
        show_nodes(graph);
        CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
        for (int i = 0; i < LAUNCHES; i++)
            show_launch(exec);
        CHECK_CU(cuGraphExecDestroy(exec));
        CHECK_CU(cuGraphDestroy(graph));
    }
}

/* CUDA_MEMCPY_BATCH_NODE_PARAMS in CUgraphNodeParams. */
struct parameters {
    int type, reserved[3];
    size_t count;
    void **dsts, **srcs;
    size_t *sizes;
    struct cudaMemcpyAttributes *attributes;
    size_t *firsts, number;
    CUcontext context;
    long long padding[22];
};

static void nodes(void)
{
    struct cudaMemcpyAttributes attributes;
    memset(&attributes, 0, sizeof attributes);
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    void *dsts[2] = {far_end, near_copy}, *srcs[2] = {near_end, far_copy};
    size_t sizes[2] = {COUNT, COUNT}, first = 0;
    struct parameters parameters = {BATCH_NODE, {0}, 2, dsts, srcs, sizes, &attributes, &first, 1, NULL, {0}};
    REQUIRE(sizeof parameters == 256);
    CUgraph graph, other;
    CUgraphNode node;
    CUgraphExec exec;
    size_t one = 1;
    reads_far_copy = true;

    /* Captured: there and back. */
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(batch(dsts, srcs, sizes, 2, cudaMemcpySrcAccessOrderStream, cudaMemcpySrcAccessOrderStream));
    CHECK_CU(cuStreamEndCapture(stream, &graph));
    show_nodes(graph);
    CHECK_CU(cuGraphGetNodes(graph, &node, &one));
    CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
    show_launch(exec);
    show_launch(exec);

    /* Half of the first, and none of the other. */
    sizes[0] = COUNT / 2, sizes[1] = 0;
    printf("changed %d\n", cuGraphExecNodeSetParams(exec, node, (CUgraphNodeParams *)&parameters));
    show_launch(exec);
    sizes[0] = COUNT / 4, sizes[1] = COUNT / 4;
    printf("changed %d\n", cuGraphExecNodeSetParams(exec, node, (CUgraphNodeParams *)&parameters));
    show_launch(exec);

    /* By a graph that is made by hand: an eighth of each. */
    sizes[0] = COUNT / 8, sizes[1] = COUNT / 8;
    CHECK_CU(cuGraphCreate(&other, 0));
    CHECK_CU(cuGraphAddNode_v2(&node, other, NULL, NULL, 0, (CUgraphNodeParams *)&parameters));
    cudaGraphExecUpdateResultInfo info;
    CHECK(cudaGraphExecUpdate((cudaGraphExec_t)exec, (cudaGraph_t)other, &info));
    show_launch(exec);
    CHECK_CU(cuGraphExecDestroy(exec));
    CHECK_CU(cuGraphInstantiateWithFlags(&exec, other, 0));
    show_launch(exec);
    CHECK_CU(cuGraphExecDestroy(exec));
    CHECK_CU(cuGraphDestroy(graph));
    CHECK_CU(cuGraphDestroy(other));
}

int main(int argc, char **argv)
{
    REQUIRE(argc >= 2);
    void *host;
    far_end = allocate(1), far_copy = allocate(1), near_end = allocate(0), near_copy = allocate(0);
    CHECK(cudaMallocHost(&host, COUNT));
    pinned = host;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    if (strcmp(argv[1], "nodes") == 0)
        nodes();
    else
        refused(argv[2]);
    CHECK(cudaFreeHost(host));
    CHECK(cudaStreamDestroy(stream));
    return 0;
}
