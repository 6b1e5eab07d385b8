/*
 * Variables, steps and calls of the rows about batches and graphs, for conformance.c, which explains STEP, ASSIGN and CALL.
 * tests/golden/conformance-graphs.tsv explains what the rows mean. The runtime 11 has no batches; none of these rows is for it.
 */
#ifndef P2PSHIM_C_TESTS_CONFORMANCE_GRAPHS_H
#define P2PSHIM_C_TESTS_CONFORMANCE_GRAPHS_H

enum { UNKNOWN = -1000 }; /* no row of this file */

#if CUDART_VERSION < 12080

static void make_graph_variables(void)
{
}

static int graph_step(const char *text)
{
    (void)text;
    return UNKNOWN;
}

static int graph_call(const char *call)
{
    (void)call;
    return UNKNOWN;
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

static int graph_step(const char *text)
{
    STEP(make_graphs())
    STEP(make_ready())
    STEP(capture_copy())
    STEP(cudaSetDevice(0))
    STEP(cudaFree(a))
    STEP(cudaGraphDestroy(gr))
    STEP(cudaGraphExecDestroy(ex))
    STEP(cudaGraphLaunch(ex, s0))
    ASSIGN(bd[0] = NULL)
    ASSIGN(bd[0] = a)
    ASSIGN(bd[1] = h)
    ASSIGN(bs[1] = NULL)
    ASSIGN(bs[1] = h)
    ASSIGN(bs[1] = ph)
    ASSIGN(bs[1] = mg)
    ASSIGN(ud[0] = 0)
    ASSIGN(us[1] = 0)
    ASSIGN(z[0] = 0)
    ASSIGN(z[1] = 0)
    ASSIGN(z[1] = n * 64)
    ASSIGN(i[0] = 1)
    ASSIGN(i[1] = 0)
    ASSIGN(i[1] = 2)
    ASSIGN(at[0].srcAccessOrder = cudaMemcpySrcAccessOrderInvalid)
    ASSIGN(at[0].srcAccessOrder = cudaMemcpySrcAccessOrderDuringApiCall)
    ASSIGN(at[0].srcAccessOrder = cudaMemcpySrcAccessOrderAny)
    ASSIGN(at[0].srcAccessOrder = (enum cudaMemcpySrcAccessOrder)7)
    ASSIGN(at[0].flags = 1)
    ASSIGN(at[0].flags = 8)
    ASSIGN(ut[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID)
    ASSIGN(ut[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID)
    ASSIGN(o[1].extent.width = 0)
    ASSIGN(o[1].extent.height = 0)
    ASSIGN(o[1].extent.depth = 0)
    ASSIGN(o[1].extent.depth = 10000)
    ASSIGN(o[1].src.op.ptr.ptr = NULL)
    ASSIGN(o[0].dst.op.ptr.ptr = NULL)
    ASSIGN(o[1].src.op.ptr.ptr = h)
    ASSIGN(o[0].src.type = (enum cudaMemcpy3DOperandType)0)
    ASSIGN(o[0].src.type = (enum cudaMemcpy3DOperandType)7)
    ASSIGN(o[0].src.op.ptr.rowLength = 8)
    ASSIGN(o[0].src.op.ptr.rowLength = 0)
    ASSIGN(o[0].src.op.ptr.layerHeight = 8)
    ASSIGN(o[0].src.op.ptr.layerHeight = 0)
    ASSIGN(o[0].srcAccessOrder = cudaMemcpySrcAccessOrderInvalid)
    ASSIGN(o[0].flags = 8)
    ASSIGN(uo[1].extent.width = 0)
    ASSIGN(uo[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID)
    ASSIGN(ip.flags = 2)
    ASSIGN(ip.uploadStream = s0)
    ASSIGN(ip.flags = 99)
    ASSIGN(up.flags = 99)
    ASSIGN(r.dstPtr.ptr = c)
    ASSIGN(r.extent.height = 1)
    ASSIGN(r.extent.depth = 1)
    ASSIGN(r.extent.depth = 2)
    ASSIGN(u.dstDevice = dc)
    return UNKNOWN;
}

static int batch_call(const char *call)
{
    CALL(cudaMemcpyBatchAsync(bd, bs, z, 2, at, i, 1, s0))
    CALL(cudaMemcpyBatchAsync(bd, bs, z, 2, at, i, 1, s1))
    CALL(cudaMemcpyBatchAsync(bd, bs, z, 2, at, i, 1, sd))
    CALL(cudaMemcpyBatchAsync(bd, bs, z, 2, at, i, 1, 0))
    CALL(cudaMemcpyBatchAsync(bd, bs, z, 2, at, i, 1, cudaStreamPerThread))
    CALL(cudaMemcpyBatchAsync(bd, bs, z, 2, at, i, 2, s0))
    CALL(cudaMemcpyBatchAsync(bd, bs, z, 2, at, i, 0, s0))
    CALL(cudaMemcpyBatchAsync(bd, bs, z, 1, at, i, 2, s0))
    CALL(cudaMemcpyBatchAsync(bd, bs, z, 0, at, i, 1, s0))
    CALL(cudaMemcpyBatchAsync(NULL, bs, z, 2, at, i, 1, s0))
    CALL(cudaMemcpyBatchAsync(bd, NULL, z, 2, at, i, 1, s0))
    CALL(cudaMemcpyBatchAsync(bd, bs, NULL, 2, at, i, 1, s0))
    CALL(cudaMemcpyBatchAsync(bd, bs, z, 2, NULL, i, 1, s0))
    CALL(cudaMemcpyBatchAsync(bd, bs, z, 2, at, NULL, 1, s0))
    CALL(cudaMemcpy3DBatchAsync(2, o, 0, s0))
    CALL(cudaMemcpy3DBatchAsync(2, o, 0, 0))
    CALL(cudaMemcpy3DBatchAsync(2, o, 1, s0))
    CALL(cudaMemcpy3DBatchAsync(0, o, 0, s0))
    CALL(cudaMemcpy3DBatchAsync(2, NULL, 0, s0))
    CALL(cuMemcpyBatchAsync(ud, us, z, 2, ut, i, 1, (size_t *)&w, s0))
    CALL(cuMemcpyBatchAsync(ud, us, z, 2, ut, i, 2, (size_t *)&w, s0))
    CALL(cuMemcpyBatchAsync(ud, us, z, 2, ut, i, 0, (size_t *)&w, s0))
    CALL(cuMemcpyBatchAsync(ud, us, z, 0, ut, i, 1, (size_t *)&w, s0))
    CALL(cuMemcpyBatchAsync(NULL, us, z, 2, ut, i, 1, (size_t *)&w, s0))
    CALL(cuMemcpyBatchAsync(ud, us, z, 2, ut, i, 1, NULL, s0))
    CALL(cuMemcpyBatchAsync(ud, us, z, 2, ut, i, 1, (size_t *)&w, 0))
    CALL(cuMemcpyBatchAsync_v2(ud, us, z, 2, ut, i, 1, s0))
    CALL(cuMemcpyBatchAsync_v2(ud, us, z, 0, ut, i, 1, s0))
    CALL(cuMemcpyBatchAsync_v2(ud, us, z, 2, ut, i, 1, 0))
    CALL(cuMemcpyBatchAsync_v2_ptsz(ud, us, z, 2, ut, i, 1, 0))
    CALL(cuMemcpy3DBatchAsync(2, uo, (size_t *)&w, 0, s0))
    CALL(cuMemcpy3DBatchAsync(2, uo, (size_t *)&w, 0, 0))
    CALL(cuMemcpy3DBatchAsync(2, uo, (size_t *)&w, 1, s0))
    CALL(cuMemcpy3DBatchAsync(0, uo, (size_t *)&w, 0, s0))
    CALL(cuMemcpy3DBatchAsync_v2(2, uo, 0, s0))
    CALL(cuMemcpy3DBatchAsync_v2(2, uo, 0, 0))
    return UNKNOWN;
}

static int ready_call(const char *call)
{
    CALL(cudaGraphInstantiate(&ex, gr, 0))
    CALL(cudaGraphInstantiate(NULL, gr, 0))
    CALL(cudaGraphInstantiate(&ex, NULL, 0))
    CALL(cudaGraphInstantiate(&ex, gr, 99))
    CALL(cudaGraphInstantiate(&ex, ge, 0))
    CALL(cudaGraphInstantiate(&ex, gp, 0))
    CALL(cudaGraphInstantiateWithFlags(&ex, gr, 0))
    CALL(cudaGraphInstantiateWithFlags(&ex, gr, 1))
    CALL(cudaGraphInstantiateWithFlags(&ex, gr, 2))
    CALL(cudaGraphInstantiateWithFlags(&ex, gr, 4))
    CALL(cudaGraphInstantiateWithFlags(&ex, gr, 8))
    CALL(cudaGraphInstantiateWithFlags(&ex, gr, 99))
    CALL(cudaGraphInstantiateWithParams(&ex, gr, &ip))
    CALL(cudaGraphInstantiateWithParams(NULL, gr, &ip))
    CALL(cudaGraphInstantiateWithParams(&ex, NULL, &ip))
    CALL(cudaGraphInstantiateWithParams(&ex, gr, NULL))
    CALL(cuGraphInstantiate((CUgraphExec *)&ex, gr, NULL, NULL, 0))
    CALL(cuGraphInstantiate(NULL, gr, NULL, NULL, 0))
    CALL(cuGraphInstantiate_v2((CUgraphExec *)&ex, gr, NULL, NULL, 0))
    CALL(cuGraphInstantiate_v2((CUgraphExec *)&ex, NULL, NULL, NULL, 0))
    CALL(cuGraphInstantiateWithFlags((CUgraphExec *)&ex, gr, 0))
    CALL(cuGraphInstantiateWithFlags((CUgraphExec *)&ex, gr, 99))
    CALL(cuGraphInstantiateWithParams((CUgraphExec *)&ex, gr, &up))
    CALL(cuGraphInstantiateWithParams((CUgraphExec *)&ex, gr, NULL))
    CALL(cuGraphInstantiateWithParams_ptsz((CUgraphExec *)&ex, gr, &up))
    CALL(cudaGraphUpload(ex, s0))
    CALL(cudaGraphUpload(NULL, s0))
    CALL(cudaGraphLaunch(ex, s0))
    CALL(cudaGraphLaunch(NULL, s0))
    CALL(cudaGraphLaunch(ex, s1))
    CALL(cudaGraphLaunch(ex, sd))
    CALL(cudaGraphLaunch(ex, 0))
    CALL(cudaGraphLaunch(ex, cudaStreamPerThread))
    CALL(cuGraphLaunch(ex, s0))
    CALL(cuGraphLaunch(NULL, s0))
    CALL(cuGraphLaunch_ptsz(ex, 0))
    CALL(cudaGraphExecDestroy(NULL))
    CALL(cudaStreamSynchronize(s0))
    return UNKNOWN;
}

static int change_call(const char *call)
{
    CALL(cudaGraphExecUpdate(ex, gr, &ri))
    CALL(cudaGraphExecUpdate(ex, g2, &ri))
    CALL(cudaGraphExecUpdate(ex, gc, &ri))
    CALL(cudaGraphExecUpdate(ex, gp, &ri))
    CALL(cudaGraphExecUpdate(ex, ge, &ri))
    CALL(cudaGraphExecUpdate(ex, g3, &ri))
    CALL(cudaGraphExecUpdate(NULL, gr, &ri))
    CALL(cudaGraphExecUpdate(ex, NULL, &ri))
    CALL(cudaGraphExecUpdate(ex, gr, NULL))
    CALL(cuGraphExecUpdate(ex, g2, (CUgraphNode *)&nn, &ui.result))
    CALL(cuGraphExecUpdate(ex, ge, (CUgraphNode *)&nn, &ui.result))
    CALL(cuGraphExecUpdate_v2(ex, g2, &ui))
    CALL(cuGraphExecUpdate_v2(ex, gc, &ui))
    CALL(cuGraphExecUpdate_v2(ex, ge, &ui))
    CALL(cudaGraphExecMemcpyNodeSetParams(ex, nd, &r))
    CALL(cudaGraphExecMemcpyNodeSetParams(ex, nd, NULL))
    CALL(cudaGraphExecMemcpyNodeSetParams(ex, NULL, &r))
    CALL(cudaGraphExecMemcpyNodeSetParams(NULL, nd, &r))
    CALL(cudaGraphExecMemcpyNodeSetParams(e3, n3, &r))
    CALL(cudaGraphExecMemcpyNodeSetParams1D(ex, nd, b, a, n, cudaMemcpyDefault))
    CALL(cudaGraphExecMemcpyNodeSetParams1D(ex, nd, b, a, n / 2, cudaMemcpyDefault))
    CALL(cudaGraphExecMemcpyNodeSetParams1D(ex, nd, (char *)b + n / 2, a, n / 2, cudaMemcpyDefault))
    CALL(cudaGraphExecMemcpyNodeSetParams1D(ex, nd, b, a, 0, cudaMemcpyDefault))
    CALL(cudaGraphExecMemcpyNodeSetParams1D(ex, nd, b, a, n, cudaMemcpyDeviceToDevice))
    CALL(cudaGraphExecMemcpyNodeSetParams1D(ex, nd, b, a, n, cudaMemcpyHostToDevice))
    CALL(cudaGraphExecMemcpyNodeSetParams1D(ex, nd, b, a, n, (enum cudaMemcpyKind)7))
    CALL(cudaGraphExecMemcpyNodeSetParams1D(ex, nd, NULL, a, n, cudaMemcpyDefault))
    CALL(cudaGraphExecMemcpyNodeSetParams1D(ex, nd, b, NULL, n, cudaMemcpyDefault))
    CALL(cudaGraphExecMemcpyNodeSetParams1D(ex, nd, b, c, n, cudaMemcpyDefault))
    CALL(cudaGraphExecMemcpyNodeSetParams1D(ex, nd, c, a, n, cudaMemcpyDefault))
    CALL(cudaGraphExecMemcpyNodeSetParams1D(ex, nd, a, b, n, cudaMemcpyDefault))
    CALL(cudaGraphExecMemcpyNodeSetParams1D(ex, nd, b, h, n, cudaMemcpyDefault))
    CALL(cudaGraphExecMemcpyNodeSetParams1D(ex, nd, b, a, n * 64, cudaMemcpyDefault))
    CALL(cudaGraphExecMemcpyNodeSetParams1D(ex, n2, b, a, n, cudaMemcpyDefault))
    CALL(cudaGraphExecMemcpyNodeSetParams1D(ex, NULL, b, a, n, cudaMemcpyDefault))
    CALL(cudaGraphExecMemcpyNodeSetParams1D(NULL, nd, b, a, n, cudaMemcpyDefault))
    CALL(cudaGraphExecChildGraphNodeSetParams(ep, np, gr))
    CALL(cudaGraphExecChildGraphNodeSetParams(ep, np, g2))
    CALL(cudaGraphExecChildGraphNodeSetParams(ep, np, gc))
    CALL(cudaGraphExecChildGraphNodeSetParams(ep, np, ge))
    CALL(cudaGraphExecChildGraphNodeSetParams(ep, np, NULL))
    CALL(cudaGraphExecChildGraphNodeSetParams(ep, NULL, gr))
    CALL(cudaGraphExecChildGraphNodeSetParams(NULL, np, gr))
    CALL(cudaGraphExecChildGraphNodeSetParams(ex, nd, gr))
    CALL(cuGraphExecMemcpyNodeSetParams(e3, n3, &u, x0))
    CALL(cuGraphExecMemcpyNodeSetParams(e3, n3, &u, NULL))
    CALL(cuGraphExecMemcpyNodeSetParams(e3, n3, NULL, x0))
    CALL(cuGraphExecChildGraphNodeSetParams(ep, np, g2))
    CALL(cuGraphExecChildGraphNodeSetParams(ep, np, NULL))
    return UNKNOWN;
}

static int add_call(const char *call)
{
    CALL(cudaGraphAddMemcpyNode1D(&nn, gr, NULL, 0, b, a, n, cudaMemcpyDefault))
    CALL(cudaGraphAddMemcpyNode1D(&nn, gr, NULL, 0, b, a, 0, cudaMemcpyDefault))
    CALL(cudaGraphAddMemcpyNode1D(&nn, gr, NULL, 0, NULL, a, n, cudaMemcpyDefault))
    CALL(cudaGraphAddMemcpyNode1D(&nn, gr, NULL, 0, b, a, n * 64, cudaMemcpyDefault))
    CALL(cudaGraphAddMemcpyNode1D(&nn, gr, NULL, 0, b, a, n, cudaMemcpyHostToDevice))
    CALL(cudaGraphAddMemcpyNode1D(&nn, gr, NULL, 0, b, a, n, (enum cudaMemcpyKind)7))
    CALL(cudaGraphAddMemcpyNode1D(&nn, gr, NULL, 0, b, h, n, cudaMemcpyDefault))
    CALL(cudaGraphAddMemcpyNode1D(&nn, NULL, NULL, 0, b, a, n, cudaMemcpyDefault))
    CALL(cudaGraphAddMemcpyNode1D(&nn, gr, &n2, 1, b, a, n, cudaMemcpyDefault))
    CALL(cudaGraphAddMemcpyNode(&nn, gr, NULL, 0, &r))
    CALL(cudaGraphAddMemcpyNode(&nn, gr, NULL, 0, NULL))
    CALL(cudaGraphAddChildGraphNode(&nn, gr, NULL, 0, g2))
    CALL(cudaGraphAddChildGraphNode(&nn, gr, NULL, 0, NULL))
    CALL(cudaGraphAddChildGraphNode(&nn, gr, NULL, 0, gr))
    CALL(cuGraphAddMemcpyNode((CUgraphNode *)&nn, gr, NULL, 0, &u, x0))
    CALL(cuGraphAddMemcpyNode((CUgraphNode *)&nn, gr, NULL, 0, &u, x1))
    CALL(cuGraphAddMemcpyNode((CUgraphNode *)&nn, gr, NULL, 0, &u, NULL))
    return UNKNOWN;
}

static int graph_call(const char *call)
{
    int (*const kinds[])(const char *) = {batch_call, ready_call, change_call, add_call};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        int answer = kinds[k](call);
        if (answer != UNKNOWN)
            return answer;
    }
    return UNKNOWN;
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
