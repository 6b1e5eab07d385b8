/* build: cudart12 driver; run: every_call [hip|pools] on sim
 * Every intercepted function that the simulated GPUs have, called once or more: functions of the runtime and of the driver, and of
 * HIP with the argument `hip`; with `pools`, pools without end. Prints what each answers. For tests in which something fails at every single point of a program.
 * No peer copy is captured, since the shim lets that succeed.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "check.h"

enum { BYTES = 64 << 10, MAPPED = 2 << 20 };

typedef int any();

static void *library = RTLD_DEFAULT;

static any *found(const char *name)
{
    return (any *)dlsym(library, name);
}

static int show(const char *name, int code)
{
    printf("%s = %d\n", name, code);
    return code;
}

/* Integers of 64 bits and pointers must be given as such. */
#define CALL(name, ...) show(#name, found(#name) ? found(#name)(__VA_ARGS__) : -1)

static void *a0, *a1;
static CUcontext c0, c1;
static CUstream stream;

static void copies_of_runtime(void)
{
    struct cudaMemcpy3DPeerParms p = {.srcDevice = 0, .dstDevice = 1, .srcPtr = {a0, 256, 256, 1}, .dstPtr = {a1, 256, 256, 1}, .extent = {256, 1, 1}};
    for (int i = 0; i < 20; i++)
        CHECK(cudaMemcpyPeerAsync(a1, 1, a0, 0, 4096, (cudaStream_t)stream));
    SHOW(cudaMemcpyPeer(a1, 1, a0, 0, BYTES));
    SHOW(cudaMemcpy3DPeer(&p));
    SHOW(cudaMemcpy3DPeerAsync(&p, (cudaStream_t)stream));
    CALL(cudaMemcpyPeer, a1, 1, a0, 0, (size_t)64);
    CALL(cudaMemcpyPeerAsync, a1, 1, a0, 0, (size_t)64, stream);
    CALL(cudaMemcpy3DPeer_ptds, &p);
    CALL(cudaMemcpy3DPeerAsync_ptsz, &p, stream);
    SHOW(cudaStreamSynchronize((cudaStream_t)stream));
}

static void regular_copies_of_runtime(void)
{
    enum cudaMemcpyKind kind = cudaMemcpyDeviceToDevice;
    struct cudaMemcpy3DParms p = {.srcPtr = {a0, 256, 256, 1}, .dstPtr = {a1, 256, 256, 1}, .extent = {256, 1, 1}, .kind = kind};
    char host[64];
    for (int i = 0; i < 20; i++)
        CHECK(cudaMemcpyAsync(a1, a0, 4096, kind, (cudaStream_t)stream));
    CALL(cudaMemcpy, a1, a0, (size_t)64, kind);
    CALL(cudaMemcpy_ptds, a1, a0, (size_t)64, kind);
    CALL(cudaMemcpyAsync, a1, a0, (size_t)64, kind, stream);
    CALL(cudaMemcpyAsync_ptsz, a1, a0, (size_t)64, kind, stream);
    CALL(cudaMemcpy2D, a1, (size_t)256, a0, (size_t)256, (size_t)64, (size_t)2, kind);
    CALL(cudaMemcpy2D_ptds, a1, (size_t)256, a0, (size_t)256, (size_t)64, (size_t)2, kind);
    CALL(cudaMemcpy2DAsync, a1, (size_t)256, a0, (size_t)256, (size_t)64, (size_t)2, kind, stream);
    CALL(cudaMemcpy2DAsync_ptsz, a1, (size_t)256, a0, (size_t)256, (size_t)64, (size_t)2, kind, stream);
    CALL(cudaMemcpy3D, &p);
    CALL(cudaMemcpy3D_ptds, &p);
    CALL(cudaMemcpy3DAsync, &p, stream);
    CALL(cudaMemcpy3DAsync_ptsz, &p, stream);
    CALL(cudaMemcpy, host, a0, sizeof host, cudaMemcpyDefault);
    CALL(cudaMemcpy, a0, host, sizeof host, cudaMemcpyHostToDevice);
    SHOW(cudaStreamSynchronize((cudaStream_t)stream));
    cudaEvent_t event = NULL;
    CALL(cudaEventCreate, &event);
    CALL(cudaEventRecord, event, stream);
    CALL(cudaEventSynchronize, event);
    CALL(cudaStreamSynchronize_ptsz, stream);
    CALL(cudaDeviceSynchronize);
}

static void regular_copies_of_driver(void)
{
    CUdeviceptr from = (CUdeviceptr)a0, to = (CUdeviceptr)a1;
    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = from, .srcPitch = 256,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = to, .dstPitch = 256, .WidthInBytes = 256, .Height = 1};
    CUDA_MEMCPY3D p = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = from, .srcPitch = 256, .srcHeight = 1,
                       .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = to, .dstPitch = 256, .dstHeight = 1,
                       .WidthInBytes = 256, .Height = 1, .Depth = 1};
    CALL(cuMemcpy, to, from, (size_t)512);
    CALL(cuMemcpy_ptds, to, from, (size_t)512);
    CALL(cuMemcpyAsync, to, from, (size_t)512, stream);
    CALL(cuMemcpyAsync_ptsz, to, from, (size_t)512, stream);
    CALL(cuMemcpyDtoD_v2, to, from, (size_t)512);
    CALL(cuMemcpyDtoD_v2_ptds, to, from, (size_t)512);
    CALL(cuMemcpyDtoDAsync_v2, to, from, (size_t)512, stream);
    CALL(cuMemcpyDtoDAsync_v2_ptsz, to, from, (size_t)512, stream);
    /* Often enough that they are seen as copies by hand. */
    static char host[BYTES];
    for (int i = 0; i < 4; i++) {
        CALL(cuMemcpyDtoH_v2, host, from, (size_t)BYTES);
        CALL(cuMemcpyHtoD_v2, to, host, (size_t)BYTES);
    }
    CALL(cuStreamSynchronize, stream);
    CALL(cuStreamSynchronize_ptsz, stream);
    CUevent event = NULL;
    CALL(cuEventCreate, &event, 0u);
    CALL(cuEventRecord, event, stream);
    CALL(cuEventSynchronize, event);
    CALL(cuEventDestroy_v2, event);
    CALL(cuMemcpyDtoH_v2_ptds, host, from, (size_t)512);
    CALL(cuMemcpyHtoD_v2_ptds, to, host, (size_t)512);
    CALL(cuMemcpyDtoHAsync_v2, host, from, (size_t)512, stream);
    CALL(cuMemcpyHtoDAsync_v2, to, host, (size_t)512, stream);
    CALL(cuMemcpyDtoHAsync_v2_ptsz, host, from, (size_t)512, stream);
    CALL(cuMemcpyHtoDAsync_v2_ptsz, to, host, (size_t)512, stream);
    CALL(cuMemcpy2D_v2, &rows);
    CALL(cuMemcpy2D_v2_ptds, &rows);
    CALL(cuMemcpy2DUnaligned_v2, &rows);
    CALL(cuMemcpy2DUnaligned_v2_ptds, &rows);
    CALL(cuMemcpy2DAsync_v2, &rows, stream);
    CALL(cuMemcpy2DAsync_v2_ptsz, &rows, stream);
    CALL(cuMemcpy3D_v2, &p);
    CALL(cuMemcpy3D_v2_ptds, &p);
    CALL(cuMemcpy3DAsync_v2, &p, stream);
    CALL(cuMemcpy3DAsync_v2_ptsz, &p, stream);
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    CALL(cuMemcpyWithAttributesAsync, to, from, (size_t)512, &attributes, stream);
    CALL(cuMemcpyWithAttributesAsync_ptsz, to, from, (size_t)512, &attributes, stream);
    SHOW_CU(cuStreamSynchronize(stream));
}

static void copies_of_driver(void)
{
    CUdeviceptr from = (CUdeviceptr)a0, to = (CUdeviceptr)a1;
    CUDA_MEMCPY3D_PEER p = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = from, .srcContext = c0, .srcPitch = 256, .srcHeight = 1,
                            .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = to, .dstContext = c1, .dstPitch = 256, .dstHeight = 1,
                            .WidthInBytes = 256, .Height = 1, .Depth = 1};
    SHOW_CU(cuMemcpyPeer(to, c1, from, c0, BYTES));
    CALL(cuMemcpyPeer, to, c1, from, c0, (size_t)512);
    CALL(cuMemcpyPeer_ptds, to, c1, from, c0, (size_t)512);
    for (int i = 0; i < 3; i++)
        CALL(cuMemcpyPeerAsync, to, c1, from, c0, (size_t)512, stream);
    CALL(cuMemcpyPeerAsync_ptsz, to, c1, from, c0, (size_t)512, stream);
    CALL(cuMemcpy3DPeer, &p);
    CALL(cuMemcpy3DPeer_ptds, &p);
    CALL(cuMemcpy3DPeerAsync, &p, stream);
    CALL(cuMemcpy3DPeerAsync_ptsz, &p, stream);
    CALL(cuMemcpyPeer, to, c1, (CUdeviceptr)8, c0, (size_t)512);
    SHOW_CU(cuStreamSynchronize(stream));
    /* A synchronous peer copy may be under way still, and taking access away meanwhile ends the context. */
    SHOW_CU(cuCtxSynchronize());
}

static void peers(void)
{
    int can[2] = {-1, -1}, value = -1;
    SHOW(cudaDeviceCanAccessPeer(&can[0], 0, 1));
    CALL(cuDeviceCanAccessPeer, &can[1], 0, 1);
    SHOW(cudaDeviceGetP2PAttribute(&value, cudaDevP2PAttrAccessSupported, 0, 1));
    CALL(cuDeviceGetP2PAttribute, &value, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, 0, 1);
    printf("can %d %d %d\n", can[0], can[1], value);
    unsigned capabilities[2] = {9, 9}, operations[2] = {0, 1};
    CALL(cuDeviceGetP2PAtomicCapabilities, capabilities, operations, 2u, 0, 1);
    printf("atomics %u %u\n", capabilities[0], capabilities[1]);
    for (int i = 0; i < 2; i++)
        SHOW(cudaDeviceEnablePeerAccess(1, 0));
    SHOW(cudaDeviceEnablePeerAccess(1, 5));
    CALL(cudaGetLastError);
    SHOW(cudaSetDevice(0));
    copies_of_runtime();
    regular_copies_of_runtime();
    regular_copies_of_driver();
    copies_of_driver();
    for (int i = 0; i < 2; i++)
        SHOW(cudaDeviceDisablePeerAccess(1));
    SHOW(cudaGetLastError());
    for (int i = 0; i < 2; i++)
        CALL(cuCtxEnablePeerAccess, c1, 0u);
    for (int i = 0; i < 2; i++)
        CALL(cuCtxDisablePeerAccess, c1);
}

static void graph_of(int code)
{
    (void)code;
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {0};
    static int which;
    CALL(cuStreamEndCapture, stream, &graph);
    if (!graph)
        return;
    switch (which++ % 5) {
    case 0: CALL(cuGraphInstantiate, &exec, graph, NULL, NULL, (size_t)0); break;
    case 1: CALL(cuGraphInstantiate_v2, &exec, graph, NULL, NULL, (size_t)0); break;
    case 2: CALL(cuGraphInstantiateWithFlags, &exec, graph, (size_t)0); break;
    case 3: CALL(cuGraphInstantiateWithParams, &exec, graph, &params); break;
    default: CALL(cuGraphInstantiateWithParams_ptsz, &exec, graph, &params); break;
    }
    if (exec)
        CALL(cuGraphExecDestroy, exec);
}

static void batches(void)
{
    CUdeviceptr dsts[] = {(CUdeviceptr)a1, (CUdeviceptr)a0}, srcs[] = {(CUdeviceptr)a0, (CUdeviceptr)a1};
    size_t sizes[] = {4096, 4096}, first = 0, fail = 0, none = 0;
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    CUDA_MEMCPY3D_BATCH_OP op = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    op.src.type = op.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    op.src.op.ptr.ptr = srcs[0];
    op.dst.op.ptr.ptr = dsts[0];
    op.extent.width = 4096, op.extent.height = op.extent.depth = 1;
    CALL(cudaMemcpyBatchAsync, dsts, srcs, sizes, (size_t)2, &attributes, &first, (size_t)1, &fail, stream);
    CALL(cudaMemcpyBatchAsync_ptsz, dsts, srcs, sizes, (size_t)2, &attributes, &first, (size_t)1, &fail, stream);
    CALL(cudaMemcpy3DBatchAsync, (size_t)1, &op, &fail, none, stream);
    CALL(cudaMemcpy3DBatchAsync_ptsz, (size_t)1, &op, &fail, none, stream);
    CALL(cuMemcpyBatchAsync, dsts, srcs, sizes, (size_t)2, &attributes, &first, (size_t)1, &fail, stream);
    CALL(cuMemcpyBatchAsync_ptsz, dsts, srcs, sizes, (size_t)2, &attributes, &first, (size_t)1, &fail, stream);
    CALL(cuMemcpyBatchAsync_v2, dsts, srcs, sizes, (size_t)2, &attributes, &first, (size_t)1, stream);
    CALL(cuMemcpyBatchAsync_v2_ptsz, dsts, srcs, sizes, (size_t)2, &attributes, &first, (size_t)1, stream);
    CALL(cuMemcpy3DBatchAsync, (size_t)1, &op, &fail, none, stream);
    CALL(cuMemcpy3DBatchAsync_ptsz, (size_t)1, &op, &fail, none, stream);
    CALL(cuMemcpy3DBatchAsync_v2, (size_t)1, &op, none, stream);
    CALL(cuMemcpy3DBatchAsync_v2_ptsz, (size_t)1, &op, none, stream);
    CALL(cuMemcpy3DWithAttributesAsync, &op, none, stream);
    CALL(cuMemcpy3DWithAttributesAsync_ptsz, &op, none, stream);
    CHECK_CU(cuStreamSynchronize(stream));
}

static void graphs(void)
{
    CUgraph graph = NULL, child = NULL;
    CUgraphNode node, inner, error = NULL;
    CUgraphExec exec = NULL;
    CUgraphExecUpdateResult result;
    CUgraphExecUpdateResultInfo info;
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED, .dstMemoryType = CU_MEMORYTYPE_UNIFIED, .Height = 1, .Depth = 1};
    copy.srcDevice = (CUdeviceptr)a0, copy.dstDevice = (CUdeviceptr)a1, copy.WidthInBytes = 4096;
    CHECK_CU(cuGraphCreate(&graph, 0));
    CHECK_CU(cuGraphCreate(&child, 0));
    CHECK_CU(cuGraphAddMemcpyNode(&inner, child, NULL, 0, &copy, NULL));
    CHECK_CU(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, NULL));
    CHECK_CU(cuGraphAddChildGraphNode(&inner, graph, &node, 1, child));
    CALL(cuGraphInstantiateWithFlags, &exec, graph, (size_t)0);
    for (int i = 0; i < 2; i++) {
        CALL(cuGraphLaunch, exec, stream);
        CALL(cuGraphLaunch_ptsz, exec, stream);
        CALL(cudaGraphLaunch, exec, stream);
        CALL(cudaGraphLaunch_ptsz, exec, stream);
        copy.WidthInBytes = 64;
        CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
        params.memcpy.copyParams = copy;
        CALL(cuGraphExecMemcpyNodeSetParams, exec, node, &copy, c0);
        CALL(cuGraphExecNodeSetParams, exec, node, &params);
        CALL(cuGraphExecChildGraphNodeSetParams, exec, inner, child);
        CALL(cuGraphNodeSetEnabled, exec, node, i);
        CALL(cuGraphExecUpdate, exec, graph, &error, &result);
        CALL(cuGraphExecUpdate_v2, exec, graph, &info);
    }
    CHECK_CU(cuStreamSynchronize(stream));
    CALL(cuGraphExecDestroy, exec);
    CHECK_CU(cuGraphDestroy(graph));
    CHECK_CU(cuGraphDestroy(child));
}

static void captures(void)
{
    CUgraph graph = NULL;
    graph_of(CALL(cuStreamBeginCapture, stream));
    graph_of(CALL(cuStreamBeginCapture_ptsz, stream));
    graph_of(CALL(cuStreamBeginCapture_v2, stream, 0));
    graph_of(CALL(cuStreamBeginCapture_v2_ptsz, stream, 1));
    CHECK_CU(cuGraphCreate(&graph, 0));
    graph_of(CALL(cuStreamBeginCaptureToGraph, stream, graph, NULL, NULL, (size_t)0, 2));
    CALL(cuStreamBeginRecaptureToGraph, stream, 0, graph, NULL, NULL);
    CALL(cuStreamEndCapture, stream, &graph);
    CALL(cuStreamBeginRecaptureToGraph_ptsz, stream, 1, graph, NULL, NULL);
    CALL(cuStreamEndCapture, stream, &graph);
    CALL(cuStreamBeginCaptureToCig, stream, &graph);
    CALL(cuStreamEndCaptureToCig, stream);
    CALL(cuStreamBeginCaptureToCig_ptsz, stream, &graph);
    CALL(cuStreamEndCaptureToCig_ptsz, stream);
    CALL(cuStreamBeginCaptureToGraph_ptsz, stream, graph, NULL, NULL, (size_t)0, 2);
    CALL(cuStreamEndCapture_ptsz, stream, &graph);
    CUstream more[3] = {0};
    CALL(cuStreamCreate, &more[0], 1u);
    CALL(cuStreamCreateWithPriority, &more[1], 0u, 0);
    CALL(cuGreenCtxStreamCreate, &more[2], NULL, 1u, 0);
    CALL(cuStreamDestroy, more[1]);
    CALL(cuStreamDestroy_v2, more[0]);
}

static void memory(void)
{
    CUarray array = NULL;
    CUDA_ARRAY_DESCRIPTOR flat = {.Width = 16, .Height = 4, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    CUDA_ARRAY3D_DESCRIPTOR deep = {.Width = 16, .Height = 4, .Depth = 2, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    if (CALL(cuArrayCreate_v2, &array, &flat) == 0) {
        CALL(cuMemcpyDtoA_v2, array, (size_t)0, (CUdeviceptr)a1, (size_t)16);
        CALL(cuMemcpyDtoA_v2_ptds, array, (size_t)0, (CUdeviceptr)a1, (size_t)16);
        CALL(cuMemcpyAtoD_v2, (CUdeviceptr)a1, array, (size_t)0, (size_t)16);
        CALL(cuMemcpyAtoD_v2_ptds, (CUdeviceptr)a1, array, (size_t)0, (size_t)16);
        CALL(cuMemcpyAtoA_v2, array, (size_t)0, array, (size_t)0, (size_t)16);
        CALL(cuMemcpyAtoA_v2_ptds, array, (size_t)0, array, (size_t)0, (size_t)16);
        CALL(cuArrayDestroy, array);
    }
    if (CALL(cuArray3DCreate_v2, &array, &deep) == 0)
        CALL(cuArrayDestroy, array);
    CUdeviceptr more[3] = {0};
    CHECK_CU(cuMemAlloc(&more[0], 4096));
    CHECK_CU(cuMemAllocAsync(&more[1], 4096, stream));
    CHECK_CU(cuMemAllocAsync(&more[2], 4096, stream));
    CALL(cuMemFree_v2, more[0]);
    CALL(cuMemFreeAsync, more[1], stream);
    CALL(cuMemFreeAsync_ptsz, more[2], stream);
    CUipcMemHandle foreign_handle = {{0}}, own_handle;
    CUdeviceptr foreign;
    CALL(cuIpcGetMemHandle, &own_handle, (CUdeviceptr)a0);
    CALL(cuIpcOpenMemHandle, &foreign, foreign_handle, 1u);
    CALL(cuIpcOpenMemHandle_v2, &foreign, foreign_handle, 1u);
    CALL(cuIpcCloseMemHandle, (CUdeviceptr)64);

    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 1}};
    CUmemAccessDesc both[2] = {{{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                               {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    CHECK_CU(cuMemCreate(&handle, MAPPED, &prop, 0));
    CHECK_CU(cuMemAddressReserve(&at, MAPPED, 0, 0, 0));
    CHECK_CU(cuMemMap(at, MAPPED, 0, handle, 0));
    CALL(cuMemSetAccess, at, (size_t)MAPPED, both, (size_t)2);
    CALL(cuMemcpyPeer, at, c1, (CUdeviceptr)a0, c0, (size_t)4096);
    CHECK_CU(cuCtxSynchronize());
    CALL(cuMemUnmap, at, (size_t)MAPPED);
    CHECK_CU(cuMemRelease(handle));

    CUmemGenericAllocationHandle imported;
    int descriptor;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CALL(cuMemCreate, &handle, (size_t)MAPPED, &prop, 0ull);
    CALL(cuMemExportToShareableHandle, &descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0ull);
    CALL(cuMemImportFromShareableHandle, &imported, (void *)(intptr_t)descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CHECK_CU(cuMemMap(at, MAPPED, 0, imported, 0));
    CALL(cuMemSetAccess, at, (size_t)MAPPED, both, (size_t)2);
    CALL(cuMemUnmap, at, (size_t)MAPPED);
    CHECK_CU(cuMemRelease(imported));
    CHECK_CU(cuMemRelease(handle));
    REQUIRE(close(descriptor) == 0);

    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 1}};
    CUmemoryPool pool = NULL;
    CUmemAccess_flags flags = 9;
    CALL(cuMemPoolCreate, &pool, &props);
    CHECK_CU(cuMemAllocFromPoolAsync(&at, 2 << 20, pool, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    for (int i = 0; i < 20; i++)
        CHECK_CU(cuMemcpyPeer(at, c1, (CUdeviceptr)a0, c0, BYTES));
    CHECK_CU(cuCtxSynchronize());
    CALL(cuMemPoolGetAccess, &flags, pool, &both[1].location);
    printf("flags %d\n", flags);
    CALL(cuMemPoolSetAccess, pool, &both[1], (size_t)1);
    CALL(cuMemPoolGetAccess, &flags, pool, &both[1].location);
    printf("flags %d\n", flags);
    both[1].flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    CALL(cuMemPoolSetAccess, pool, &both[1], (size_t)1);
    CUmemPoolPtrExportData data;
    int exported = -1;
    CALL(cuMemPoolExportPointer, &data, at);
    CALL(cuMemPoolExportToShareableHandle, &exported, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0ull);
    CALL(cuMemPoolImportPointer, &foreign, pool, &data);
    CALL(cuMemFreeAsync, at, stream);
    CALL(cuMemPoolDestroy, pool);
    CALL(cuMemPoolImportFromShareableHandle, &pool, NULL, 1, (size_t)0);
}

static void contexts(void)
{
    CUcontext made = NULL;
    if (CALL(cuCtxCreate_v2, &made, 0u, 1) == 0)
        CALL(cuCtxDestroy_v2, made);
    if (CALL(cuCtxCreate_v3, &made, NULL, 0, 0u, 1) == 0)
        CALL(cuCtxDestroy_v2, made);
    if (CALL(cuCtxCreate_v4, &made, NULL, 0u, 1) == 0)
        CALL(cuCtxDestroy_v2, made);
    if (cuCtxCreate(&made, 0u, 1) == CUDA_SUCCESS)
        CALL(cuCtxDetach, made);
    CALL(cuCheckpointProcessRestore, getpid(), NULL);
    CALL(cuGreenCtxDestroy, NULL);
}

/* What waits for all work of a context, besides what memory() and contexts() call. */
static void waits(void)
{
    static const char code[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                               ".visible .entry p2pshim_probe_copy(.param .u64 to, .param .u64 from, .param .u64 words) { ret; }\n";
    static char page[4096] __attribute__((aligned(4096)));
    void *host, *module = NULL;
    CUevent event;
    CALL(cuCtxSynchronize_v2, c0);
    CHECK_CU(cuMemAllocHost(&host, BYTES));
    CALL(cuMemFreeHost, host);
    CHECK_CU(cuMemHostRegister(page, sizeof page, 0));
    CALL(cuMemHostUnregister, page);
    CALL(cuMipmappedArrayDestroy, NULL);
    CALL(cuLibraryUnload, NULL);
    CALL(cuGraphicsUnmapResources, 0u, NULL, NULL);
    CALL(cuGraphicsUnmapResources_ptsz, 0u, NULL, NULL);
    CALL(cuCtxSetLimit, 0, (size_t)2048);
    CHECK_CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CALL(cuCtxRecordEvent, c0, event);
    CHECK_CU(cuEventDestroy(event));
    if (CALL(cuModuleLoadData, &module, code) == 0)
        CALL(cuModuleUnload, module);
}

static void look_ups(void)
{
    int (*copy)(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t) = NULL;
    int status = -1;
    CALL(cuGetProcAddress, "cuMemcpyPeer", &copy, 11030, (size_t)0);
    if (copy)
        show("found", copy((CUdeviceptr)a1, c1, (CUdeviceptr)a0, c0, 4096));
    CALL(cuGetProcAddress_v2, "cuMemcpyPeer", &copy, 12000, (size_t)0, &status);
    if (copy)
        show("found", copy((CUdeviceptr)a1, c1, (CUdeviceptr)a0, c0, 4096));
    CALL(cuGetProcAddress_v2, "cuNothing", &copy, 12000, (size_t)0, &status);
}

static void ends(void)
{
    CALL(cuDevicePrimaryCtxRelease, 1);
    CALL(cuDevicePrimaryCtxRelease_v2, 0);
    CALL(cuDevicePrimaryCtxReset, 1);
    CALL(cuDevicePrimaryCtxReset_v2, 0);
}

/* What is left of the table: first forms, which the simulated driver does not have, and what is of another library. */
static void absent(void)
{
    const char *names[] = {"cuArrayCreate", "cuArray3DCreate", "cuMemFree", "cuCtxCreate", "cuCtxDestroy", "nvmlDeviceGetP2PStatus",
                           "cuModuleLoad", "cuModuleLoadDataEx", "cuModuleLoadFatBinary"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        printf("%s %s\n", names[i], found(names[i]) ? "is there" : "is absent");
}

static int of_cuda(void)
{
    static unsigned char sent[BYTES], received[BYTES];
    fill(sent, BYTES, 5);
    a1 = device_memory(1, BYTES);
    CHECK_CU(cuDevicePrimaryCtxRetain(&c1, 1));
    a0 = device_memory(0, BYTES);
    CHECK_CU(cuDevicePrimaryCtxRetain(&c0, 0));
    CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cudaMemcpy(a0, sent, BYTES, cudaMemcpyHostToDevice));
    copies_of_runtime();
    copies_of_driver();
    peers();
    batches();
    graphs();
    captures();
    memory();
    waits();
    contexts();
    look_ups();
    copies_of_driver();
    absent();
    CHECK(cudaMemcpy(received, a1, BYTES, cudaMemcpyDeviceToHost));
    printf("bytes %08x of %08x\n", checksum(received, BYTES), checksum(sent, BYTES));
    ends();
    return 0;
}

static int of_hip(void)
{
    void *b0 = NULL, *b1 = NULL, *b2 = NULL, *graph = NULL, *own = NULL;
    int can = -1, value = -1, status = -1;
    library = dlopen("libamdhip64.so.7", RTLD_NOW);
    REQUIRE(library);
    REQUIRE(CALL(hipMalloc, &b0, (size_t)BYTES) == 0 && CALL(hipSetDevice, 1) == 0 && CALL(hipMalloc, &b1, (size_t)BYTES) == 0);
    CALL(hipSetDevice, 0);
    CALL(hipStreamCreate, &own);
    CALL(hipDeviceCanAccessPeer, &can, 0, 1);
    CALL(hipDeviceGetP2PAttribute, &value, 1, 0, 1);
    printf("can %d %d\n", can, value);
    struct cudaMemcpy3DPeerParms p = {.srcDevice = 0, .dstDevice = 1, .srcPtr = {b0, 256, 256, 1}, .dstPtr = {b1, 256, 256, 1}, .extent = {256, 1, 1}};
    struct cudaMemcpy3DParms regular = {.srcPtr = p.srcPtr, .dstPtr = p.dstPtr, .extent = p.extent, .kind = cudaMemcpyDefault};
    void *dsts[] = {b1}, *srcs[] = {b0};
    size_t sizes[] = {4096}, failed = 0;
    struct cudaMemcpy3DBatchOp operation = {.extent = p.extent};
    operation.src.type = operation.dst.type = cudaMemcpyOperandTypePointer;
    operation.src.op.ptr.ptr = b0;
    operation.dst.op.ptr.ptr = b1;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 3; i++) {
            CALL(hipMemcpyPeer, b1, 1, b0, 0, (size_t)BYTES);
            CALL(hipMemcpyPeerAsync, b1, 1, b0, 0, (size_t)4096, own);
        }
        CALL(hipMemcpy, b1, b0, (size_t)4096, 3);
        CALL(hipMemcpyAsync, b1, b0, (size_t)4096, 4, own);
        CALL(hipMemcpyWithStream, b1, b0, (size_t)4096, 4, own);
        CALL(hipMemcpyDtoD, b1, b0, (size_t)4096);
        CALL(hipMemcpyDtoDAsync, b1, b0, (size_t)4096, own);
        CALL(hipMemcpy2D, b1, (size_t)64, b0, (size_t)64, (size_t)64, (size_t)4, 3);
        CALL(hipMemcpy2DAsync, b1, (size_t)64, b0, (size_t)64, (size_t)64, (size_t)4, 4, own);
        CALL(hipMemcpy3D, &regular);
        CALL(hipMemcpy3DAsync, &regular, own);
        CALL(hipMemcpy_spt, b1, b0, (size_t)4096, 3);
        CALL(hipMemcpyAsync_spt, b1, b0, (size_t)4096, 4, NULL);
        CALL(hipMemcpy2D_spt, b1, (size_t)64, b0, (size_t)64, (size_t)64, (size_t)4, 3);
        CALL(hipMemcpy2DAsync_spt, b1, (size_t)64, b0, (size_t)64, (size_t)64, (size_t)4, 4, NULL);
        CALL(hipMemcpy3D_spt, &regular);
        CALL(hipMemcpy3DAsync_spt, &regular, NULL);
        CALL(hipMemcpyBatchAsync, dsts, srcs, sizes, (size_t)1, NULL, NULL, (size_t)0, &failed, own);
        CALL(hipMemcpy3DBatchAsync, (size_t)1, &operation, &failed, 0ull, own);
        CALL(hipMemcpy3DPeer, &p);
        CALL(hipMemcpy3DPeerAsync, &p, own);
        CALL(hipDeviceEnablePeerAccess, 1, 0u);
        CALL(hipDeviceEnablePeerAccess, 1, 0u);
    }
    CALL(hipDeviceDisablePeerAccess, 1);
    CALL(hipDeviceDisablePeerAccess, 1);
    CALL(hipCtxEnablePeerAccess, NULL, 0u);
    CALL(hipCtxDisablePeerAccess, NULL);
    CALL(hipStreamSynchronize, own);
    CALL(hipStreamSynchronize_spt, NULL);
    CALL(hipEventSynchronize, NULL);
    CALL(hipCtxSynchronize);
    CALL(hipDeviceSynchronize);
    CALL(hipStreamBeginCapture, own, 0);
    CALL(hipStreamEndCapture, own, &graph);
    CALL(hipStreamBeginCapture_spt, own, 0);
    CALL(hipStreamEndCapture_spt, own, &graph);
    CALL(hipStreamBeginCaptureToGraph, own, NULL, NULL, NULL, (size_t)0, 0);
    any *copy = NULL;
    CALL(hipGetProcAddress_spt, "hipMemcpyPeer", &copy, 60100, (size_t)0, &status);
    CALL(hipGetDriverEntryPoint, "hipMemcpyPeer", &copy, (size_t)0, &status);
    CALL(hipGetDriverEntryPoint_spt, "hipMemcpyPeer", &copy, (size_t)0, &status);
    CALL(hipGetProcAddress, "hipMemcpyPeer", &copy, 60100, (size_t)0, &status);
    if (copy)
        show("found", copy(b1, 1, b0, 0, (size_t)64));
    CALL(hipMallocAsync, &b2, (size_t)4096, own);
    CALL(hipFreeAsync, b2, own);
    CALL(hipFreeHost, NULL);
    CALL(hipHostFree, NULL);
    CALL(hipHostUnregister, NULL);
    CALL(hipMemUnmap, NULL, (size_t)4096);
    CALL(hipIpcCloseMemHandle, NULL);
    CALL(hipStreamDestroy, own);
    CALL(hipFree, b0);
    CALL(hipDeviceReset);
    return 0;
}

/* So many pools with rights that what is kept of them needs megabytes. */
static int of_pools(void)
{
    enum { POOLS = 60000 };
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 1}};
    CUmemAccessDesc given = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemoryPool pool;
    CHECK_CU(cuInit(0));
    for (int i = 0; i < POOLS; i++) {
        CHECK_CU(cuMemPoolCreate(&pool, &props));
        CHECK_CU(cuMemPoolSetAccess(pool, &given, 1));
    }
    printf("through\n");
    return 0;
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "cuda";
    return strcmp(what, "hip") == 0 ? of_hip() : strcmp(what, "pools") == 0 ? of_pools() : of_cuda();
}
