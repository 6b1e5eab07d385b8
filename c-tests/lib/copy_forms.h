/*
 * Copies between two devices in every form. Include after check.h, where there are `contexts`, by device, and `struct buffer`, of which `at`
 * and `device` are used.
 */
#ifndef P2PSHIM_C_TESTS_COPY_FORMS_H
#define P2PSHIM_C_TESTS_COPY_FORMS_H

/* The batches of 12.8, which headers of 13 call otherwise; NULL if the driver has none. */
typedef CUresult batch_fn(CUdeviceptr *, CUdeviceptr *, size_t *, size_t, CUmemcpyAttributes *, size_t *, size_t, size_t *, CUstream);
typedef CUresult batch_3d_fn(size_t, CUDA_MEMCPY3D_BATCH_OP *, size_t *, unsigned long long, CUstream);
static batch_fn *copy_batch;
static batch_3d_fn *copy_batch_3d;

static void find_batches(void)
{
    CUdriverProcAddressQueryResult found;
    (void)cuGetProcAddress("cuMemcpyBatchAsync", (void **)&copy_batch, 12080, CU_GET_PROC_ADDRESS_DEFAULT, &found);
    (void)cuGetProcAddress("cuMemcpy3DBatchAsync", (void **)&copy_batch_3d, 12080, CU_GET_PROC_ADDRESS_DEFAULT, &found);
}

static void make_current(int device)
{
    CHECK_CU(cuCtxSetCurrent(contexts[device]));
}

/* What is copied: so many slices of rows, each `pitch` bytes after the last; and the stream, of asynchronous ones. */
struct copy {
    const struct buffer *src, *dst;
    size_t width, height, depth, pitch;
    CUstream stream;
};

static size_t extent(const struct copy *c)
{
    return c->pitch * c->height * c->depth;
}

static CUDA_MEMCPY2D rows(const struct copy *c)
{
    return (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_UNIFIED, .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .srcDevice = c->src->at, .dstDevice = c->dst->at, .srcPitch = c->pitch, .dstPitch = c->pitch,
                           .WidthInBytes = c->width, .Height = c->height * c->depth};
}

static CUDA_MEMCPY3D slices(const struct copy *c)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = c->src->at, .dstDevice = c->dst->at, .srcPitch = c->pitch, .dstPitch = c->pitch,
                           .srcHeight = c->height, .dstHeight = c->height, .WidthInBytes = c->width, .Height = c->height, .Depth = c->depth};
}

static CUDA_MEMCPY3D_PEER peer_slices(const struct copy *c)
{
    return (CUDA_MEMCPY3D_PEER){.srcMemoryType = CU_MEMORYTYPE_DEVICE, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = c->src->at, .dstDevice = c->dst->at, .srcPitch = c->pitch, .dstPitch = c->pitch,
                                .srcContext = contexts[c->src->device], .dstContext = contexts[c->dst->device],
                                .srcHeight = c->height, .dstHeight = c->height, .WidthInBytes = c->width, .Height = c->height, .Depth = c->depth};
}

static struct cudaPitchedPtr pitched(const struct copy *c, const struct buffer *b)
{
    return (struct cudaPitchedPtr){.ptr = (void *)b->at, .pitch = c->pitch, .xsize = c->pitch, .ysize = c->height};
}

static struct cudaMemcpy3DParms runtime_slices(const struct copy *c)
{
    return (struct cudaMemcpy3DParms){.srcPtr = pitched(c, c->src), .dstPtr = pitched(c, c->dst),
                                      .extent = {c->width, c->height, c->depth}, .kind = cudaMemcpyDefault};
}

static struct cudaMemcpy3DPeerParms runtime_peer_slices(const struct copy *c)
{
    return (struct cudaMemcpy3DPeerParms){.srcPtr = pitched(c, c->src), .dstPtr = pitched(c, c->dst), .srcDevice = c->src->device,
                                          .dstDevice = c->dst->device, .extent = {c->width, c->height, c->depth}};
}

static int batch(const struct copy *c)
{
    size_t half = extent(c) / 2, sizes[2] = {half ? half : extent(c), extent(c) - half}, first = 0, failed;
    CUdeviceptr from[2] = {c->src->at, c->src->at + half}, to[2] = {c->dst->at, c->dst->at + half};
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    return copy_batch ? (int)copy_batch(to, from, sizes, half ? 2 : 1, &attributes, &first, 1, &failed, c->stream) : -1;
}

static int batch_3d(const struct copy *c)
{
    size_t failed;
    CUDA_MEMCPY3D_BATCH_OP op = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    op.src.type = op.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    op.src.op.ptr.ptr = c->src->at, op.dst.op.ptr.ptr = c->dst->at;
    op.src.op.ptr.rowLength = op.dst.op.ptr.rowLength = c->pitch;
    op.src.op.ptr.layerHeight = op.dst.op.ptr.layerHeight = c->height;
    op.extent.width = c->width, op.extent.height = c->height, op.extent.depth = c->depth;
    return copy_batch_3d ? (int)copy_batch_3d(1, &op, &failed, 0, c->stream) : -1;
}

enum form {
    R_PEER_ASYNC, R_PEER, R_ASYNC, R_SYNC, R_2D_ASYNC, R_2D, R_3D_ASYNC, R_3D, R_3D_PEER_ASYNC, R_3D_PEER,
    D_PEER_ASYNC, D_PEER, D_DTOD_ASYNC, D_DTOD, D_ASYNC, D_SYNC, D_2D_ASYNC, D_2D, D_3D_ASYNC, D_3D, D_3D_PEER_ASYNC, D_3D_PEER,
    D_BATCH, D_BATCH_3D, FORMS
};
static const struct {
    const char *name;
    bool is_linear; /* copies all bytes from the first to the last */
    bool takes_no_default; /* no default stream */
} forms[FORMS] = {
    {"cudaMemcpyPeerAsync", true, false}, {"cudaMemcpyPeer", true, false}, {"cudaMemcpyAsync", true, false}, {"cudaMemcpy", true, false},
    {"cudaMemcpy2DAsync", false, false}, {"cudaMemcpy2D", false, false}, {"cudaMemcpy3DAsync", false, false}, {"cudaMemcpy3D", false, false},
    {"cudaMemcpy3DPeerAsync", false, false}, {"cudaMemcpy3DPeer", false, false},
    {"cuMemcpyPeerAsync", true, false}, {"cuMemcpyPeer", true, false}, {"cuMemcpyDtoDAsync", true, false}, {"cuMemcpyDtoD", true, false},
    {"cuMemcpyAsync", true, false}, {"cuMemcpy", true, false}, {"cuMemcpy2DAsync", false, false}, {"cuMemcpy2D", false, false},
    {"cuMemcpy3DAsync", false, false}, {"cuMemcpy3D", false, false}, {"cuMemcpy3DPeerAsync", false, false}, {"cuMemcpy3DPeer", false, false},
    {"cuMemcpyBatchAsync", true, true}, {"cuMemcpy3DBatchAsync", false, true},
};

static int make(enum form form, const struct copy *c)
{
    void *dst = (void *)c->dst->at, *src = (void *)c->src->at;
    int to = c->dst->device, from = c->src->device;
    size_t bytes = extent(c), lines = c->height * c->depth;
    cudaStream_t stream = c->stream;
    CUDA_MEMCPY2D of_rows = rows(c);
    CUDA_MEMCPY3D of_slices = slices(c);
    CUDA_MEMCPY3D_PEER of_peer = peer_slices(c);
    struct cudaMemcpy3DParms runtime = runtime_slices(c);
    struct cudaMemcpy3DPeerParms runtime_peer = runtime_peer_slices(c);
    switch (form) {
    case R_PEER_ASYNC: return (int)cudaMemcpyPeerAsync(dst, to, src, from, bytes, stream);
    case R_PEER: return (int)cudaMemcpyPeer(dst, to, src, from, bytes);
    case R_ASYNC: return (int)cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, stream);
    case R_SYNC: return (int)cudaMemcpy(dst, src, bytes, cudaMemcpyDefault);
    case R_2D_ASYNC: return (int)cudaMemcpy2DAsync(dst, c->pitch, src, c->pitch, c->width, lines, cudaMemcpyDefault, stream);
    case R_2D: return (int)cudaMemcpy2D(dst, c->pitch, src, c->pitch, c->width, lines, cudaMemcpyDeviceToDevice);
    case R_3D_ASYNC: return (int)cudaMemcpy3DAsync(&runtime, stream);
    case R_3D: return (int)cudaMemcpy3D(&runtime);
    case R_3D_PEER_ASYNC: return (int)cudaMemcpy3DPeerAsync(&runtime_peer, stream);
    case R_3D_PEER: return (int)cudaMemcpy3DPeer(&runtime_peer);
    case D_PEER_ASYNC: return (int)cuMemcpyPeerAsync(c->dst->at, contexts[to], c->src->at, contexts[from], bytes, stream);
    case D_PEER: return (int)cuMemcpyPeer(c->dst->at, contexts[to], c->src->at, contexts[from], bytes);
    case D_DTOD_ASYNC: return (int)cuMemcpyDtoDAsync(c->dst->at, c->src->at, bytes, stream);
    case D_DTOD: return (int)cuMemcpyDtoD(c->dst->at, c->src->at, bytes);
    case D_ASYNC: return (int)cuMemcpyAsync(c->dst->at, c->src->at, bytes, stream);
    case D_SYNC: return (int)cuMemcpy(c->dst->at, c->src->at, bytes);
    case D_2D_ASYNC: return (int)cuMemcpy2DAsync(&of_rows, stream);
    case D_2D: return (int)cuMemcpy2D(&of_rows);
    case D_3D_ASYNC: return (int)cuMemcpy3DAsync(&of_slices, stream);
    case D_3D: return (int)cuMemcpy3D(&of_slices);
    case D_3D_PEER_ASYNC: return (int)cuMemcpy3DPeerAsync(&of_peer, stream);
    case D_3D_PEER: return (int)cuMemcpy3DPeer(&of_peer);
    case D_BATCH: return batch(c);
    default: return batch_3d(c);
    }
}

/* A synchronous copy is work of the default stream, of one that names devices of those of both; its call need not have waited for it. */
static CUresult wait_for(enum form form, const struct copy *c, int by, int other)
{
    if (strstr(forms[form].name, "Async"))
        return cuStreamSynchronize(c->stream ? c->stream : CU_STREAM_LEGACY);
    make_current(other);
    CUresult waited = cuStreamSynchronize(CU_STREAM_LEGACY);
    make_current(by);
    return waited ? waited : cuStreamSynchronize(CU_STREAM_LEGACY);
}

#endif
