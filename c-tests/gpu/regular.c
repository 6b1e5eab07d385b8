/* build: static driver; run: regular never|enables [captured|made] on gpu
 * How fast copies from device 0 to device 1 are by each function that names no devices.
 *
 *   never      never enables peer access
 *   enables    enables it in both directions, as the documentation asks
 *   captured   launches a graph with a copy that was captured, in place of calling the functions
 *   made       the same with a copy that was added to it (cudaGraphAddMemcpyNode1D)
 *
 * A line a function, with tabs: name, GB/s of a copy of 64 MiB, and the host's time of its call in
 * microseconds. Medians. Exits with 1 if a copy brought wrong bytes.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "check.h"
#include "lib/batches.h"
#include "measure.h"

enum { SAMPLES = 15, IN_A_ROW = 4, WARM_UP = 3, PITCH = 4096 };

/* The headers give these names to programs that are compiled for a default stream per thread. */
CUresult cuMemcpy_ptds(CUdeviceptr, CUdeviceptr, size_t);
CUresult cuMemcpyAsync_ptsz(CUdeviceptr, CUdeviceptr, size_t, CUstream);
CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr, CUdeviceptr, size_t, CUstream);
cudaError_t cudaMemcpyAsync_ptsz(void *, const void *, size_t, enum cudaMemcpyKind, cudaStream_t);

static const size_t large = 64 * MIB;
static void *source, *target;
static cudaStream_t stream;
static cudaGraphExec_t graph;

static struct cudaMemcpy3DParms box_of_runtime(void)
{
    struct cudaMemcpy3DParms p = {.kind = cudaMemcpyDefault};
    p.srcPtr.ptr = source;
    p.dstPtr.ptr = target;
    p.srcPtr.pitch = p.dstPtr.pitch = p.srcPtr.xsize = p.dstPtr.xsize = p.extent.width = PITCH;
    p.srcPtr.ysize = p.dstPtr.ysize = p.extent.height = large / PITCH / 4;
    p.extent.depth = 4;
    return p;
}

static CUDA_MEMCPY3D box_of_driver(void)
{
    CUDA_MEMCPY3D p = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .dstMemoryType = CU_MEMORYTYPE_DEVICE};
    p.srcDevice = (CUdeviceptr)source;
    p.dstDevice = (CUdeviceptr)target;
    p.srcPitch = p.dstPitch = p.WidthInBytes = PITCH;
    p.srcHeight = p.dstHeight = p.Height = large / PITCH / 4;
    p.Depth = 4;
    return p;
}

static CUDA_MEMCPY2D rows_of_driver(void)
{
    CUDA_MEMCPY2D p = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED, .dstMemoryType = CU_MEMORYTYPE_DEVICE};
    p.srcDevice = (CUdeviceptr)source;
    p.dstDevice = (CUdeviceptr)target;
    p.srcPitch = p.dstPitch = p.WidthInBytes = PITCH;
    p.Height = large / PITCH;
    return p;
}

/* Batches: the same bytes in four parts. */
enum { PARTS = 4 };
static CUdeviceptr parts[PARTS], from[PARTS];
static size_t sizes[PARTS], first;
static CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};

static void make_batch(void)
{
    for (int i = 0; i < PARTS; i++) {
        sizes[i] = large / PARTS;
        parts[i] = (CUdeviceptr)target + i * sizes[i];
        from[i] = (CUdeviceptr)source + i * sizes[i];
    }
}

static struct cudaMemcpy3DBatchOp batch_of_one(void)
{
    struct cudaMemcpy3DBatchOp op;
    memset(&op, 0, sizeof op);
    op.src.type = op.dst.type = cudaMemcpyOperandTypePointer;
    op.src.op.ptr.ptr = source;
    op.dst.op.ptr.ptr = target;
    op.extent = (struct cudaExtent){.width = large, .height = 1, .depth = 1};
    op.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    return op;
}

static cudaError_t batch_of_runtime(void)
{
    struct cudaMemcpyAttributes of_runtime = {.srcAccessOrder = cudaMemcpySrcAccessOrderStream};
    return cudaMemcpyBatchAsync((void *const *)(void *)parts, (const void *const *)(void *)from, sizes, PARTS, &of_runtime, &first, 1,
                                stream);
}

/* With the place for the index of the copy that is to blame, which 13.0 does not have any more. */
static CUresult batch_of_12_8(void)
{
    struct attributes in_order = {.order = IN_ORDER};
    size_t fail;
    return batches.linear(parts, from, sizes, PARTS, &in_order, &first, 1, &fail, stream);
}

#define FROM ((CUdeviceptr)source)
#define TO ((CUdeviceptr)target)
#define EACH_FUNCTION(with) \
    with(cudaMemcpy, cudaMemcpy(target, source, large, cudaMemcpyDeviceToDevice)) \
    with(cudaMemcpyAsync, cudaMemcpyAsync(target, source, large, cudaMemcpyDeviceToDevice, stream)) \
    with(cudaMemcpyAsync_default, cudaMemcpyAsync(target, source, large, cudaMemcpyDefault, stream)) \
    with(cudaMemcpyAsync_ptsz, cudaMemcpyAsync_ptsz(target, source, large, cudaMemcpyDefault, stream)) \
    with(cudaMemcpy2D, cudaMemcpy2D(target, PITCH, source, PITCH, PITCH, large / PITCH, cudaMemcpyDefault)) \
    with(cudaMemcpy2DAsync, \
         cudaMemcpy2DAsync(target, PITCH, source, PITCH, PITCH, large / PITCH, cudaMemcpyDefault, stream)) \
    with(cudaMemcpy3D, cudaMemcpy3D(&of_runtime)) \
    with(cudaMemcpy3DAsync, cudaMemcpy3DAsync(&of_runtime, stream)) \
    with(cuMemcpy, cuMemcpy(TO, FROM, large)) \
    with(cuMemcpy_ptds, cuMemcpy_ptds(TO, FROM, large)) \
    with(cuMemcpyAsync, cuMemcpyAsync(TO, FROM, large, stream)) \
    with(cuMemcpyAsync_ptsz, cuMemcpyAsync_ptsz(TO, FROM, large, stream)) \
    with(cuMemcpyDtoD_v2, cuMemcpyDtoD(TO, FROM, large)) \
    with(cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync(TO, FROM, large, stream)) \
    with(cuMemcpyDtoDAsync_v2_ptsz, cuMemcpyDtoDAsync_v2_ptsz(TO, FROM, large, stream)) \
    with(cuMemcpy2D_v2, cuMemcpy2D(&rows)) \
    with(cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned(&rows)) \
    with(cuMemcpy2DAsync_v2, cuMemcpy2DAsync(&rows, stream)) \
    with(cuMemcpy3D_v2, cuMemcpy3D(&of_driver)) \
    with(cuMemcpy3DAsync_v2, cuMemcpy3DAsync(&of_driver, stream)) \
    with(cudaMemcpyBatchAsync, batch_of_runtime()) \
    with(cudaMemcpy3DBatchAsync, cudaMemcpy3DBatchAsync(1, &of_batch, 0, stream)) \
    with(cuMemcpyBatchAsync_v2, cuMemcpyBatchAsync(parts, from, sizes, PARTS, &attributes, &first, 1, stream)) \
    with(cuMemcpyBatchAsync, batch_of_12_8()) \
    with(cuMemcpy3DBatchAsync_v2, cuMemcpy3DBatchAsync(1, (CUDA_MEMCPY3D_BATCH_OP *)&of_batch, 0, stream)) \
    with(cudaGraphLaunch, cudaGraphLaunch(graph, stream))

#define NUMBER(name, call) N_##name,
#define NAME(name, call) #name,
#define CASE(name, call) case N_##name: return (int)call;
enum { EACH_FUNCTION(NUMBER) FUNCTIONS };
static const char *const names[] = {EACH_FUNCTION(NAME)};

static int copy(int function)
{
    struct cudaMemcpy3DParms of_runtime = box_of_runtime();
    struct cudaMemcpy3DBatchOp of_batch = batch_of_one();
    CUDA_MEMCPY3D of_driver = box_of_driver();
    CUDA_MEMCPY2D rows = rows_of_driver();
    switch (function) {
        EACH_FUNCTION(CASE)
    }
    return -1;
}

static void make_graph(int captured)
{
    cudaGraph_t made;
    cudaGraphNode_t node;
    if (captured) {
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        CHECK(cudaMemcpyAsync(target, source, large, cudaMemcpyDefault, stream));
        CHECK(cudaStreamEndCapture(stream, &made));
    } else {
        CHECK(cudaGraphCreate(&made, 0));
        CHECK(cudaGraphAddMemcpyNode1D(&node, made, NULL, 0, target, source, large, cudaMemcpyDefault));
    }
    CHECK(cudaGraphInstantiateWithFlags(&graph, made, 0));
    CHECK(cudaGraphDestroy(made));
}

static void settle(void)
{
    CHECK(cudaSetDevice(1));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaSetDevice(0));
    CHECK(cudaDeviceSynchronize());
}

static void measure(int function)
{
    double calls[SAMPLES * IN_A_ROW], whole[SAMPLES];
    for (int i = 0; i < WARM_UP; i++)
        REQUIRE(copy(function) == 0);
    for (int sample = 0; sample < SAMPLES; sample++) {
        settle();
        double begun = host_time();
        for (int i = 0; i < IN_A_ROW; i++) {
            double since = host_time();
            REQUIRE(copy(function) == 0);
            calls[sample * IN_A_ROW + i] = host_time() - since;
        }
        settle();
        whole[sample] = host_time() - begun;
    }
    double each = median(whole, SAMPLES) / IN_A_ROW;
    printf("%s\t%.2f\t%.3f\n", names[function], (double)large * 1e-3 / each, median(calls, SAMPLES * IN_A_ROW));
}

/* One more copy, into memory that is empty. */
static int brings_the_right_bytes(int function)
{
    CHECK(cudaSetDevice(1));
    CHECK(cudaMemset(target, 0, large));
    settle();
    REQUIRE(copy(function) == 0);
    settle();
    CHECK(cudaSetDevice(1));
    int right = holds(target, large, 1);
    CHECK(cudaSetDevice(0));
    return right;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "", *how = argc > 2 ? argv[2] : "captured";
    int wrong = 0, captured = strcmp(how, "captured") == 0;
    if ((strcmp(mode, "never") != 0 && strcmp(mode, "enables") != 0) || (!captured && strcmp(how, "made") != 0)) {
        fprintf(stderr, "usage: regular never|enables [captured|made]\n");
        return 2;
    }
    target = device_memory(1, large);
    if (strcmp(mode, "enables") == 0)
        CHECK(cudaDeviceEnablePeerAccess(0, 0));
    source = device_memory(0, large);
    fill_device(source, large, 1);
    if (strcmp(mode, "enables") == 0)
        CHECK(cudaDeviceEnablePeerAccess(1, 0));
    CHECK(cudaStreamCreate(&stream));
    make_batch();
    find_batches();
    REQUIRE(batches.linear);
    if (argc > 2)
        make_graph(captured);
    int first = argc > 2 ? N_cudaGraphLaunch : 0, end = argc > 2 ? FUNCTIONS : N_cudaGraphLaunch;
    for (int function = first; function < end; function++) {
        measure(function);
        if (!brings_the_right_bytes(function)) {
            fprintf(stderr, "%s brought wrong bytes\n", names[function]);
            wrong = 1;
        }
    }
    return wrong;
}
