/*
 * Variables and functions of the rows about batches and graphs, for conformance.c.
 * tests/golden/conformance-graphs.tsv explains what the rows mean. The runtime 11 has no batches; none of these rows is for it.
 */
#ifndef P2PSHIM_C_TESTS_CONFORMANCE_GRAPHS_H
#define P2PSHIM_C_TESTS_CONFORMANCE_GRAPHS_H

#if CUDART_VERSION < 12080

static void make_graph_variables(void)
{
}

static bool graph_output(long long *output)
{
    (void)output;
    return false;
}

#else

/* The forms of all releases side by side: the headers rename them. Weak: what is linked with need not have them all. */
#undef cuMemcpyBatchAsync
#undef cuMemcpy3DBatchAsync
#undef cuGraphInstantiate
#undef cuGraphExecUpdate
#define FORM __attribute__((weak)) CUresult CUDAAPI
FORM cuMemcpyBatchAsync(CUdeviceptr *, CUdeviceptr *, size_t *, size_t, CUmemcpyAttributes *, size_t *, size_t, size_t *, CUstream);
FORM cuMemcpyBatchAsync_v2(CUdeviceptr *, CUdeviceptr *, size_t *, size_t, CUmemcpyAttributes *, size_t *, size_t, CUstream);
FORM cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr *, CUdeviceptr *, size_t *, size_t, CUmemcpyAttributes *, size_t *, size_t, CUstream);
FORM cuMemcpy3DBatchAsync(size_t, CUDA_MEMCPY3D_BATCH_OP *, size_t *, unsigned long long, CUstream);
FORM cuMemcpy3DBatchAsync_v2(size_t, CUDA_MEMCPY3D_BATCH_OP *, unsigned long long, CUstream);
FORM cuGraphInstantiate(CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t);
FORM cuGraphInstantiate_v2(CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t);
FORM cuGraphInstantiateWithFlags(CUgraphExec *, CUgraph, unsigned long long);
FORM cuGraphInstantiateWithParams(CUgraphExec *, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS *);
FORM cuGraphInstantiateWithParams_ptsz(CUgraphExec *, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS *);
FORM cuGraphExecUpdate(CUgraphExec, CUgraph, CUgraphNode *, CUgraphExecUpdateResult *);
FORM cuGraphExecUpdate_v2(CUgraphExec, CUgraph, CUgraphExecUpdateResultInfo *);
FORM cuGraphLaunch_ptsz(CUgraphExec, CUstream);

/* 12.8 has one argument more. Rows are written as 13.0 has it. */
#if CUDART_VERSION >= 13000
#define cudaMemcpyBatchAsync(dsts, srcs, ...) cudaMemcpyBatchAsync((void *const *)(dsts), (const void *const *)(srcs), __VA_ARGS__)
#else
#define cudaMemcpyBatchAsync(dsts, srcs, sizes, count, attributes, firsts, number, stream) \
    cudaMemcpyBatchAsync(dsts, srcs, sizes, count, attributes, firsts, number, NULL, stream)
#define cudaMemcpy3DBatchAsync(count, operations, flags, stream) \
    cudaMemcpy3DBatchAsync(count, operations, NULL, flags, stream)
#endif

static void *bd[2], *bs[2];
static CUdeviceptr ud[2], us[2];
static size_t z[2], i[2];
static struct cudaMemcpyAttributes at[2];
static CUmemcpyAttributes ut[2];
static struct cudaMemcpy3DBatchOp o[2];
static CUDA_MEMCPY3D_BATCH_OP uo[2];

static cudaGraph_t gr, g2, gp, gc, g3, ge;
static cudaGraphNode_t nd, n2, np, nc, n3, nn;
static cudaGraphExec_t ex, ep, e3;
static cudaGraphInstantiateParams ip;
static CUDA_GRAPH_INSTANTIATE_PARAMS up;
static cudaGraphExecUpdateResultInfo ri = {.result = (enum cudaGraphExecUpdateResult)-7};
static CUgraphExecUpdateResultInfo ui = {.result = (CUgraphExecUpdateResult)-7};

/* What memory is where is known by then. */
static void make_graph_variables(void)
{
    bd[0] = b, bd[1] = c;
    bs[0] = bs[1] = a;
    z[0] = z[1] = n;
    i[1] = 1;
    at[0].srcAccessOrder = at[1].srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    for (int k = 0; k < 2; k++) {
        ud[k] = (CUdeviceptr)bd[k];
        us[k] = (CUdeviceptr)bs[k];
        ut[k].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
        o[k].src.type = o[k].dst.type = cudaMemcpyOperandTypePointer;
        o[k].src.op.ptr.ptr = bs[k];
        o[k].dst.op.ptr.ptr = bd[k];
        o[k].src.op.ptr.rowLength = o[k].dst.op.ptr.rowLength = o[k].extent.width = 1024;
        o[k].src.op.ptr.layerHeight = o[k].dst.op.ptr.layerHeight = o[k].extent.height = 16;
        o[k].extent.depth = 4;
        o[k].srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    }
    _Static_assert(sizeof uo == sizeof o, "the same for both APIs");
    memcpy(uo, o, sizeof uo);
}

static cudaError_t one_copy(cudaGraph_t *graph, cudaGraphNode_t *node, void *dst, const void *src, size_t size)
{
    CHECK(cudaGraphCreate(graph, 0));
    return cudaGraphAddMemcpyNode1D(node, *graph, NULL, 0, dst, src, size, cudaMemcpyDefault);
}

static int make_graphs(void)
{
    CHECK(one_copy(&gr, &nd, b, a, n));
    CHECK(one_copy(&g2, &n2, b, a, n / 2));
    CHECK(one_copy(&gc, &nc, c, a, n));
    CHECK(cudaGraphCreate(&ge, 0));
    CHECK(cudaGraphCreate(&gp, 0));
    CHECK(cudaGraphAddChildGraphNode(&np, gp, NULL, 0, gr));
    CHECK(cudaGraphCreate(&g3, 0));
    CHECK(cudaGraphAddMemcpyNode(&n3, g3, NULL, 0, &r));
    return 0;
}

static int make_ready(void)
{
    make_graphs();
    CHECK(cudaGraphInstantiateWithFlags(&ex, gr, 0));
    CHECK(cudaGraphInstantiateWithFlags(&ep, gp, 0));
    CHECK(cudaGraphInstantiateWithFlags(&e3, g3, 0));
    return 0;
}

/* A graph of a captured copy, and one that captured the launch of another. */
static cudaError_t capture_copy(void)
{
    CHECK(cudaStreamBeginCapture(s0, cudaStreamCaptureModeGlobal));
    CHECK(cudaMemcpyAsync(b, a, n, cudaMemcpyDefault, s0));
    return cudaStreamEndCapture(s0, &gr);
}

/* Why an update was refused; false if none was asked for. */
static bool graph_output(long long *output)
{
    if ((int)ri.result != -7)
        *output = (long long)ri.result;
    else if ((int)ui.result != -7)
        *output = (long long)ui.result;
    else
        return false;
    return true;
}

#endif
#endif
