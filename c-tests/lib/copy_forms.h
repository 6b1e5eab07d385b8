/*
 * Copies between devices in every form. Include after cuda.h, cuda_runtime_api.h and check.h. Where there are batches, find_batches() is called
 * first.
 */
#ifndef P2PSHIM_C_TESTS_COPY_FORMS_H
#define P2PSHIM_C_TESTS_COPY_FORMS_H

#include "batches.h"

/* In every driver and runtime; the headers of some releases hide them or rename them. */
__typeof__(cudaMemcpy3DPeer) cudaMemcpy3DPeer_ptds;
__typeof__(cudaMemcpy3DPeerAsync) cudaMemcpy3DPeerAsync_ptsz;
__typeof__(cuMemcpyPeer) cuMemcpyPeer_ptds;
__typeof__(cuMemcpyPeerAsync) cuMemcpyPeerAsync_ptsz;
__typeof__(cuMemcpy3DPeer) cuMemcpy3DPeer_ptds;
__typeof__(cuMemcpy3DPeerAsync) cuMemcpy3DPeerAsync_ptsz;
__typeof__(cuMemcpy) cuMemcpy_ptds;
__typeof__(cuMemcpyDtoDAsync) cuMemcpyDtoDAsync_v2_ptsz;

/* A form copies bytes from the first to the last, or rows of the same pitch on both sides, or slices of such rows, too. */
enum shape { LINE, ROWS, BOX };

/* Each form: its function, the shape, and the call, in make(). */
#define FORMS_OF_COPIES(FORM) \
    FORM(cudaMemcpyPeer, LINE, cudaMemcpyPeer(dst, t->dst_device, src, t->src_device, t->width)) \
    FORM(cudaMemcpyPeerAsync, LINE, cudaMemcpyPeerAsync(dst, t->dst_device, src, t->src_device, t->width, t->stream)) \
    FORM(cudaMemcpy, LINE, cudaMemcpy(dst, src, t->width, t->kind)) \
    FORM(cudaMemcpyAsync, LINE, cudaMemcpyAsync(dst, src, t->width, t->kind, t->stream)) \
    FORM(cudaMemcpy2D, ROWS, cudaMemcpy2D(dst, t->pitch, src, t->pitch, t->width, lines, t->kind)) \
    FORM(cudaMemcpy2DAsync, ROWS, cudaMemcpy2DAsync(dst, t->pitch, src, t->pitch, t->width, lines, t->kind, t->stream)) \
    FORM(cudaMemcpy3D, BOX, cudaMemcpy3D(&box)) \
    FORM(cudaMemcpy3DAsync, BOX, cudaMemcpy3DAsync(&box, t->stream)) \
    FORM(cudaMemcpy3DPeer, BOX, cudaMemcpy3DPeer(peer_box)) \
    FORM(cudaMemcpy3DPeerAsync, BOX, cudaMemcpy3DPeerAsync(peer_box, t->stream)) \
    FORM(cuMemcpyPeer, LINE, cuMemcpyPeer(t->dst, t->dst_context, t->src, t->src_context, t->width)) \
    FORM(cuMemcpyPeerAsync, LINE, cuMemcpyPeerAsync(t->dst, t->dst_context, t->src, t->src_context, t->width, t->stream)) \
    FORM(cuMemcpyDtoD, LINE, cuMemcpyDtoD(t->dst, t->src, t->width)) \
    FORM(cuMemcpyDtoDAsync, LINE, cuMemcpyDtoDAsync(t->dst, t->src, t->width, t->stream)) \
    FORM(cuMemcpy, LINE, cuMemcpy(t->dst, t->src, t->width)) \
    FORM(cuMemcpyAsync, LINE, cuMemcpyAsync(t->dst, t->src, t->width, t->stream)) \
    FORM(cuMemcpy2D, ROWS, cuMemcpy2D(&driver_rows)) \
    FORM(cuMemcpy2DUnaligned, ROWS, cuMemcpy2DUnaligned(&driver_rows)) \
    FORM(cuMemcpy2DAsync, ROWS, cuMemcpy2DAsync(&driver_rows, t->stream)) \
    FORM(cuMemcpy3D, BOX, cuMemcpy3D(&driver_box)) \
    FORM(cuMemcpy3DAsync, BOX, cuMemcpy3DAsync(&driver_box, t->stream)) \
    FORM(cuMemcpy3DPeer, BOX, cuMemcpy3DPeer(driver_peer_box)) \
    FORM(cuMemcpy3DPeerAsync, BOX, cuMemcpy3DPeerAsync(driver_peer_box, t->stream))

/* These take no default stream. */
#define BATCH_FORMS(FORM) \
    FORM(cuMemcpyBatchAsync, LINE, copy_in_batch(t)) \
    FORM(cuMemcpy3DBatchAsync, BOX, copy_in_3d_batch(t))

/* On the thread's own default stream, if they are given none. */
#define PER_THREAD_FORMS(FORM) \
    FORM(cudaMemcpy3DPeer_ptds, BOX, cudaMemcpy3DPeer_ptds(peer_box)) \
    FORM(cudaMemcpy3DPeerAsync_ptsz, BOX, cudaMemcpy3DPeerAsync_ptsz(peer_box, t->stream)) \
    FORM(cuMemcpyPeer_ptds, LINE, cuMemcpyPeer_ptds(t->dst, t->dst_context, t->src, t->src_context, t->width)) \
    FORM(cuMemcpyPeerAsync_ptsz, LINE, cuMemcpyPeerAsync_ptsz(t->dst, t->dst_context, t->src, t->src_context, t->width, t->stream)) \
    FORM(cuMemcpyDtoDAsync_v2_ptsz, LINE, cuMemcpyDtoDAsync_v2_ptsz(t->dst, t->src, t->width, t->stream)) \
    FORM(cuMemcpy_ptds, LINE, cuMemcpy_ptds(t->dst, t->src, t->width)) \
    FORM(cuMemcpy3DPeer_ptds, BOX, cuMemcpy3DPeer_ptds(driver_peer_box)) \
    FORM(cuMemcpy3DPeerAsync_ptsz, BOX, cuMemcpy3DPeerAsync_ptsz(driver_peer_box, t->stream))

#define FORM_NUMBER(function, shape, call) BY_##function,
enum form {
    FORMS_OF_COPIES(FORM_NUMBER)
    BATCH_FORMS(FORM_NUMBER)
    FORMS,
    BEFORE_PER_THREAD = FORMS - 1,
    PER_THREAD_FORMS(FORM_NUMBER)
    ALL_FORMS,
};

#define FORM_ROW(function, shape, call) {#function, shape},
static const struct {
    const char *name;
    enum shape shape;
} forms[ALL_FORMS] = {FORMS_OF_COPIES(FORM_ROW) BATCH_FORMS(FORM_ROW) PER_THREAD_FORMS(FORM_ROW)};

static inline bool is_of_runtime(enum form form)
{
    return strncmp(forms[form].name, "cuda", 4) == 0;
}

static inline bool is_async(enum form form)
{
    return strstr(forms[form].name, "Async");
}

static inline bool is_batch(enum form form)
{
    return strstr(forms[form].name, "Batch");
}

/* A call. Of one row and slice only the width counts. */
struct transfer {
    enum form form;
    CUdeviceptr dst, src;
    int dst_device, src_device;
    CUcontext dst_context, src_context;
    size_t width, pitch, rows, slices;
    enum cudaMemcpyKind kind;        /* of copies of the runtime that name no devices */
    CUmemorytype dst_type, src_type; /* of rows and boxes of the driver; 0: unified */
    CUstream stream;
    const void *given; /* parameters of a peer copy in 3D, in place of those that follow from the rest, if it has any */
    bool has_given;
};

static inline struct cudaMemcpy3DParms runtime_box(const struct transfer *t)
{
    return (struct cudaMemcpy3DParms){.srcPtr = {(void *)t->src, t->pitch, t->width, t->rows},
                                      .dstPtr = {(void *)t->dst, t->pitch, t->width, t->rows},
                                      .extent = {t->width, t->rows, t->slices}, .kind = t->kind};
}

static inline struct cudaMemcpy3DPeerParms runtime_peer_box(const struct transfer *t)
{
    struct cudaMemcpy3DParms box = runtime_box(t);
    return (struct cudaMemcpy3DPeerParms){.srcPtr = box.srcPtr, .dstPtr = box.dstPtr, .srcDevice = t->src_device, .dstDevice = t->dst_device,
                                          .extent = box.extent};
}

static inline CUmemorytype type_or_unified(CUmemorytype type)
{
    return type ? type : CU_MEMORYTYPE_UNIFIED;
}

static inline CUDA_MEMCPY3D driver_box_of(const struct transfer *t)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = type_or_unified(t->src_type), .dstMemoryType = type_or_unified(t->dst_type),
                           .srcDevice = t->src, .dstDevice = t->dst, .srcPitch = t->pitch, .dstPitch = t->pitch,
                           .srcHeight = t->rows, .dstHeight = t->rows, .WidthInBytes = t->width, .Height = t->rows, .Depth = t->slices};
}

static inline CUDA_MEMCPY3D_PEER driver_peer_box_of(const struct transfer *t)
{
    return (CUDA_MEMCPY3D_PEER){.srcMemoryType = CU_MEMORYTYPE_DEVICE, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = t->src, .dstDevice = t->dst, .srcPitch = t->pitch, .dstPitch = t->pitch,
                                .srcContext = t->src_context, .dstContext = t->dst_context,
                                .srcHeight = t->rows, .dstHeight = t->rows, .WidthInBytes = t->width, .Height = t->rows, .Depth = t->slices};
}

static inline CUDA_MEMCPY2D driver_rows_of(const struct transfer *t)
{
    return (CUDA_MEMCPY2D){.srcMemoryType = type_or_unified(t->src_type), .dstMemoryType = type_or_unified(t->dst_type),
                           .srcDevice = t->src, .dstDevice = t->dst, .srcPitch = t->pitch, .dstPitch = t->pitch,
                           .WidthInBytes = t->width, .Height = t->rows * t->slices};
}

/* In two pieces, if it is long enough; -1 if the driver has no batches. */
static inline int copy_in_batch(const struct transfer *t)
{
    size_t half = t->width / 2, sizes[2] = {half ? half : t->width, t->width - half}, first = 0, failed;
    CUdeviceptr from[2] = {t->src, t->src + half}, to[2] = {t->dst, t->dst + half};
    struct attributes attributes = {.order = IN_ORDER};
    return batches.linear ? (int)batches.linear(to, from, sizes, half ? 2 : 1, &attributes, &first, 1, &failed, t->stream) : -1;
}

static inline int copy_in_3d_batch(const struct transfer *t)
{
    size_t failed;
    struct operation operation = {{.type = 1, .at = t->src, .row = t->pitch, .layer = t->rows},
                                  {.type = 1, .at = t->dst, .row = t->pitch, .layer = t->rows},
                                  t->width, t->rows, t->slices, IN_ORDER, 0};
    return batches.boxes ? (int)batches.boxes(1, &operation, &failed, 0, t->stream) : -1;
}

#define FORM_CASE(function, shape, call) \
    case BY_##function: \
        return (int)(call);

static inline int make(const struct transfer *t)
{
    void *dst = (void *)t->dst, *src = (void *)t->src;
    size_t lines = t->rows * t->slices;
    struct cudaMemcpy3DParms box = runtime_box(t);
    struct cudaMemcpy3DPeerParms own_box = runtime_peer_box(t);
    const struct cudaMemcpy3DPeerParms *peer_box = t->has_given ? t->given : &own_box;
    CUDA_MEMCPY2D driver_rows = driver_rows_of(t);
    CUDA_MEMCPY3D driver_box = driver_box_of(t);
    CUDA_MEMCPY3D_PEER own_driver_box = driver_peer_box_of(t);
    const CUDA_MEMCPY3D_PEER *driver_peer_box = t->has_given ? t->given : &own_driver_box;
    switch (t->form) {
        FORMS_OF_COPIES(FORM_CASE)
        BATCH_FORMS(FORM_CASE)
        PER_THREAD_FORMS(FORM_CASE)
    default:
        return -1;
    }
}

/* A synchronous copy is work of the default stream, of one that names devices of those of both; its call need not have waited for it. */
static inline CUresult wait_for_transfer(const struct transfer *t, CUcontext by, CUcontext other)
{
    if (is_async(t->form))
        return cuStreamSynchronize(t->stream ? t->stream : CU_STREAM_LEGACY);
    CHECK_CU(cuCtxSetCurrent(other));
    CUresult waited = cuStreamSynchronize(CU_STREAM_LEGACY);
    CHECK_CU(cuCtxSetCurrent(by));
    return waited ? waited : cuStreamSynchronize(CU_STREAM_LEGACY);
}

/* Bytes from the first to the last. */
static inline size_t span(const struct transfer *t)
{
    return t->pitch * (t->rows * t->slices - 1) + t->width;
}

/* What has been copied is what is expected at the destination; both pointers are those of the expected bytes. */
static inline void expect_rows(unsigned char *dst, const unsigned char *src, const struct transfer *t)
{
    for (size_t row = 0; row < t->rows * t->slices; row++)
        memmove(dst + row * t->pitch, src + row * t->pitch, t->width);
}

#endif
