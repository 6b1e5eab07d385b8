/*
 * Which calls wait for a copy between devices that is queued, though nobody has asked them to.
 *
 *   implicit_waits COPY OPERATION [0|1 [kernel]]
 *   implicit_waits list
 *
 * A copy is queued behind work on device 0 that waits for the host; then the operation is called, with device 0 or 1 (the default)
 * current. If the call returns while that work still waits, it has not waited for the copy; else the work is let go after PATIENCE.
 * The work is a host function, or on real GPUs, with `kernel`, a kernel.
 *
 * Prints: whether the call waited, its code, the code that the copy's stream ends with, and whether the bytes are right.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <cudaProfiler.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

#ifndef SIZE
#define SIZE (4 << 20)
#endif
enum { BYTES = SIZE, WIDTH = 1024, ROWS = BYTES / WIDTH, WARM_UPS = 3 };
enum { PATIENCE = 700 }; /* milliseconds */

/* ---- The work before the copy ---- */

static volatile int *is_let_go, *has_begun;
static CUfunction spin;

static const char spin_code[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry spin(.param .u64 flag, .param .u64 begun) {\n"
    ".reg .u64 %a, %b; .reg .u32 %v; .reg .pred %p;\n"
    "ld.param.u64 %a, [flag]; ld.param.u64 %b, [begun]; mov.u32 %v, 1; st.volatile.u32 [%b], %v;\n"
    "again: ld.volatile.u32 %v, [%a]; setp.eq.u32 %p, %v, 0; @%p bra again; ret; }\n";

static const char empty_code[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                                 ".visible .entry p2pshim_probe_copy(.param .u64 to, .param .u64 from, .param .u64 words) { ret; }\n";

static void milliseconds(int count)
{
    nanosleep(&(struct timespec){.tv_sec = count / 1000, .tv_nsec = count % 1000 * 1000000L}, NULL);
}

static void CUDART_CB wait_for_host(void *data)
{
    (void)data;
    *has_begun = 1;
    while (!*is_let_go)
        milliseconds(1);
}

static void hold(cudaStream_t stream)
{
    *is_let_go = *has_begun = 0;
    if (spin) {
        void *arguments[] = {&is_let_go, &has_begun};
        CHECK_CU(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, (CUstream)stream, arguments, NULL));
    } else {
        CHECK(cudaLaunchHostFunc(stream, wait_for_host, NULL));
    }
}

/* ---- Copies ---- */

static char *src, *dst;
static int is_pull, other = 1;
static cudaStream_t stream;
static cudaGraphExec_t graph;
static int has_tail;
static unsigned char pattern[BYTES], found[64 << 20];

static int device_of(const char *memory) { return (memory == src) == is_pull; }

static void copy_peer_async(void) { CHECK(cudaMemcpyPeerAsync(dst, device_of(dst), src, device_of(src), BYTES, stream)); }
static void copy_peer(void) { CHECK(cudaMemcpyPeer(dst, device_of(dst), src, device_of(src), BYTES)); }
static void copy_async(void) { CHECK(cudaMemcpyAsync(dst, src, BYTES, cudaMemcpyDefault, stream)); }
static void copy_sync(void) { CHECK(cudaMemcpy(dst, src, BYTES, cudaMemcpyDefault)); }
static void copy_2d(void) { CHECK(cudaMemcpy2DAsync(dst, WIDTH, src, WIDTH, WIDTH, ROWS, cudaMemcpyDefault, stream)); }
static void copy_graph(void) { CHECK(cudaGraphLaunch(graph, stream)); }

static void copy_3d(void)
{
    struct cudaMemcpy3DParms p = {.srcPtr = {src, WIDTH, WIDTH, ROWS}, .dstPtr = {dst, WIDTH, WIDTH, ROWS},
                                  .extent = {WIDTH, ROWS, 1}, .kind = cudaMemcpyDefault};
    CHECK(cudaMemcpy3DAsync(&p, stream));
}

static void copy_3d_peer(void)
{
    struct cudaMemcpy3DPeerParms p = {.srcPtr = {src, WIDTH, WIDTH, ROWS}, .srcDevice = device_of(src),
                                      .dstPtr = {dst, WIDTH, WIDTH, ROWS}, .dstDevice = device_of(dst), .extent = {WIDTH, ROWS, 1}};
    CHECK(cudaMemcpy3DPeerAsync(&p, stream));
}

static void copy_batch(void)
{
    CUresult (*batch)(CUdeviceptr *, CUdeviceptr *, size_t *, size_t, void *, size_t *, size_t, CUstream);
    CUdeviceptr to[2] = {(CUdeviceptr)dst, (CUdeviceptr)dst + BYTES / 2}, from[2] = {(CUdeviceptr)src, (CUdeviceptr)src + BYTES / 2};
    size_t sizes[2] = {BYTES / 2, BYTES / 2}, index = 0;
    struct { int order; int hints[4]; unsigned flags; } attributes = {.order = 1};
    CUdriverProcAddressQueryResult status;
    CHECK_CU(cuGetProcAddress_v2("cuMemcpyBatchAsync", (void **)&batch, 13000, 0, &status));
    CHECK_CU(batch(to, from, sizes, 2, &attributes, &index, 1, (CUstream)stream));
}

enum stream_kind { NON_BLOCKING, BLOCKING, LEGACY, PER_THREAD, THIRD };
enum memory_kind { PLAIN, POOL };

static const struct form {
    const char *name;
    void (*copy)(void);
    enum stream_kind stream;
    enum memory_kind memory;
    int is_pull;
    int has_tail; /* the work that waits for the host comes after the copy */
} forms[] = {
    {"peer_async", copy_peer_async, NON_BLOCKING, PLAIN, 0, 0},
    {"peer_async_pull", copy_peer_async, NON_BLOCKING, PLAIN, 1, 0},
    {"async", copy_async, NON_BLOCKING, PLAIN, 0, 0},
    {"async_pull", copy_async, NON_BLOCKING, PLAIN, 1, 0},
    {"async_blocking", copy_async, BLOCKING, PLAIN, 0, 0},
    {"2d", copy_2d, NON_BLOCKING, PLAIN, 0, 0},
    {"3d", copy_3d, NON_BLOCKING, PLAIN, 0, 0},
    {"3d_peer", copy_3d_peer, NON_BLOCKING, PLAIN, 0, 0},
    {"batch", copy_batch, NON_BLOCKING, PLAIN, 0, 0},
    {"graph", copy_graph, NON_BLOCKING, PLAIN, 0, 0},
    {"graph_pull", copy_graph, NON_BLOCKING, PLAIN, 1, 0},
    {"pool", copy_peer_async, NON_BLOCKING, POOL, 0, 0},
    {"pool_pull", copy_peer_async, NON_BLOCKING, POOL, 1, 0},
    {"per_thread", copy_async, PER_THREAD, PLAIN, 0, 0},
    {"per_thread_peer", copy_peer_async, PER_THREAD, PLAIN, 0, 0},
    {"legacy_peer_async", copy_peer_async, LEGACY, PLAIN, 0, 0},
    {"legacy_async", copy_async, LEGACY, PLAIN, 0, 0},
    {"legacy_peer", copy_peer, LEGACY, PLAIN, 0, 0},
    {"legacy_peer_pull", copy_peer, LEGACY, PLAIN, 1, 0},
    {"legacy_sync", copy_sync, LEGACY, PLAIN, 0, 0},
    {"legacy_graph", copy_graph, LEGACY, PLAIN, 0, 0},
    {"third", copy_peer_async, THIRD, PLAIN, 0, 0},
    {"peer_async_tail", copy_peer_async, NON_BLOCKING, PLAIN, 0, 1},
    {"peer_async_pull_tail", copy_peer_async, NON_BLOCKING, PLAIN, 1, 1},
    {"graph_tail", copy_graph, NON_BLOCKING, PLAIN, 0, 1},
    {"graph_in_tail", copy_graph, NON_BLOCKING, PLAIN, 0, 2},
    {"legacy_peer_tail", copy_peer, LEGACY, PLAIN, 0, 1},
};

static volatile int has_returned, has_waited;

/* ---- Operations ---- */

static char *spare, *host, *registered, *far_end;
static cudaStream_t stream_of_other;
static cudaEvent_t event_of_other;
static CUmodule module;
static CUarray array;
static CUmipmappedArray mipmapped;
static cudaMemPool_t pool;
static CUlibrary library;
static CUtexObject texture;
static char *managed;
static cudaGraphExec_t graph_of_other;

/* Each is called to prepare what it takes, and then to do it. Returns the code of the call. */
static int synchronize(int act) { return act ? cudaDeviceSynchronize() : 0; }
static int free_far(int act) { return act ? cudaFree(far_end) : 0; }
static int free_near(int act) { return act ? cudaFree(is_pull ? dst : src) : 0; }
static int free_spare(int act) { return act ? cudaFree(spare) : cudaMalloc((void **)&spare, BYTES); }
static int free_async_far(int act) { return act ? cudaFreeAsync(far_end, stream_of_other) : 0; }
static int destroy_then_free_far(int act)
{
    if (!act)
        return 0;
    cudaStreamDestroy(stream);
    stream = NULL;
    return cudaFree(far_end);
}
static int destroy_then_synchronize(int act)
{
    if (!act)
        return 0;
    cudaStreamDestroy(stream);
    stream = NULL;
    return cudaDeviceSynchronize();
}
static int reset(int act) { return act ? cudaDeviceReset() : 0; }
static int release_primary(int act) { return act ? cuDevicePrimaryCtxRelease(other) : 0; }
static int reset_primary(int act) { return act ? cuDevicePrimaryCtxReset(other) : 0; }
static int free_host(int act) { return act ? cudaFreeHost(host) : cudaHostAlloc((void **)&host, BYTES, 0); }
static int unregister(int act)
{
    if (act)
        return cudaHostUnregister(registered);
    registered = aligned_alloc(4096, BYTES);
    return cudaHostRegister(registered, BYTES, 0);
}
static int register_host(int act)
{
    if (act)
        return cudaHostRegister(registered, BYTES, 0);
    registered = aligned_alloc(4096, BYTES);
    return 0;
}
static int alloc(int act) { return act ? cudaMalloc((void **)&spare, BYTES) : 0; }
static int alloc_host(int act) { return act ? cudaHostAlloc((void **)&host, BYTES, 0) : 0; }
static int alloc_async(int act) { return act ? cudaMallocAsync((void **)&spare, BYTES, stream_of_other) : 0; }
static int alloc_managed(int act) { return act ? cudaMallocManaged((void **)&managed, BYTES, 1) : 0; }
static int free_managed(int act) { return act ? cudaFree(managed) : cudaMallocManaged((void **)&managed, BYTES, 1); }
static int load_module(int act) { return act ? cuModuleLoadData(&module, empty_code) : 0; }
static int unload_module(int act) { return act ? cuModuleUnload(module) : cuModuleLoadData(&module, empty_code); }
static int load_library(int act) { return act ? cuLibraryLoadData(&library, empty_code, NULL, NULL, 0, NULL, NULL, 0) : 0; }
static int unload_library(int act)
{
    CUkernel kernel;
    CUfunction function;
    if (act)
        return cuLibraryUnload(library);
    CHECK_CU(cuLibraryLoadData(&library, empty_code, NULL, NULL, 0, NULL, NULL, 0));
    CHECK_CU(cuLibraryGetKernel(&kernel, library, "p2pshim_probe_copy"));
    return cuKernelGetFunction(&function, kernel);
}
static int destroy_array(int act)
{
    CUDA_ARRAY_DESCRIPTOR shape = {.Width = 256, .Height = 256, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    return act ? cuArrayDestroy(array) : cuArrayCreate(&array, &shape);
}
static int destroy_mipmapped(int act)
{
    CUDA_ARRAY3D_DESCRIPTOR shape = {.Width = 256, .Height = 256, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    return act ? cuMipmappedArrayDestroy(mipmapped) : cuMipmappedArrayCreate(&mipmapped, &shape, 2);
}
static int destroy_texture(int act)
{
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_LINEAR};
    CUDA_TEXTURE_DESC description = {.filterMode = CU_TR_FILTER_MODE_POINT};
    if (act)
        return cuTexObjectDestroy(texture);
    CHECK(cudaMalloc((void **)&spare, BYTES));
    resource.res.linear.devPtr = (CUdeviceptr)spare;
    resource.res.linear.format = CU_AD_FORMAT_UNSIGNED_INT8;
    resource.res.linear.numChannels = 1;
    resource.res.linear.sizeInBytes = 4096;
    return cuTexObjectCreate(&texture, &resource, &description, NULL);
}
static int set_limit_printf(int act) { return act ? cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 2 << 20) : 0; }
static int set_limit_heap(int act) { return act ? cudaDeviceSetLimit(cudaLimitMallocHeapSize, 32 << 20) : 0; }
static int set_limit_stack(int act) { return act ? cudaDeviceSetLimit(cudaLimitStackSize, 16 << 10) : 0; }
static int stop_profiler(int act) { return act ? cuProfilerStop() : cuProfilerStart(); }
static int new_pool(void)
{
    struct cudaMemPoolProps properties = {.allocType = cudaMemAllocationTypePinned, .location = {cudaMemLocationTypeDevice, 1}};
    CHECK(cudaMemPoolCreate(&pool, &properties));
    CHECK(cudaMallocFromPoolAsync((void **)&spare, BYTES, pool, stream_of_other));
    CHECK(cudaStreamSynchronize(stream_of_other));
    CHECK(cudaFreeAsync(spare, stream_of_other));
    return cudaStreamSynchronize(stream_of_other);
}
static int trim_pool(int act) { return act ? (int)cudaMemPoolTrimTo(pool, 0) : new_pool(); }
static int destroy_pool(int act) { return act ? (int)cudaMemPoolDestroy(pool) : new_pool(); }
static int free_pool_memory(int act)
{
    if (act)
        return cudaFree(spare);
    CHECK(cudaMallocAsync((void **)&spare, BYTES, stream_of_other));
    return cudaStreamSynchronize(stream_of_other);
}
static int create_stream(int act) { return act ? cudaStreamCreateWithFlags(&stream_of_other, cudaStreamNonBlocking) : 0; }
static int destroy_stream(int act) { return act ? cudaStreamDestroy(stream_of_other) : 0; }
static int destroy_event(int act) { return act ? cudaEventDestroy(event_of_other) : 0; }
static int synchronize_stream(int act) { return act ? cudaStreamSynchronize(stream_of_other) : 0; }
static int synchronize_legacy(int act) { return act ? cudaStreamSynchronize(cudaStreamLegacy) : 0; }
static int query_legacy(int act) { return act ? cudaStreamQuery(cudaStreamLegacy) : 0; }
static int synchronize_event_of_legacy(int act)
{
    if (!act)
        return 0;
    CHECK(cudaEventRecord(event_of_other, cudaStreamLegacy));
    return cudaEventSynchronize(event_of_other);
}
static int record_event_of_context(int act)
{
    CUcontext context;
    if (!act)
        return 0;
    CHECK_CU(cuCtxGetCurrent(&context));
    CHECK_CU(cuCtxRecordEvent(context, (CUevent)event_of_other));
    return cudaEventSynchronize(event_of_other);
}
static int set(int act) { return act ? cudaMemset(spare, 1, BYTES) : cudaMalloc((void **)&spare, BYTES); }
static int copy_to_host(int act) { return act ? cudaMemcpy(found, spare, BYTES, cudaMemcpyDeviceToHost) : cudaMalloc((void **)&spare, BYTES); }
static int copy_to_device(int act) { return act ? cudaMemcpy(spare, pattern, BYTES, cudaMemcpyHostToDevice) : cudaMalloc((void **)&spare, BYTES); }
static int memory_info(int act)
{
    size_t available, total;
    return act ? cudaMemGetInfo(&available, &total) : 0;
}
static int enable_peer(int act) { return act ? cudaDeviceEnablePeerAccess(0, 0) : 0; }
static int ipc_handle(int act)
{
    cudaIpcMemHandle_t handle;
    return act ? cudaIpcGetMemHandle(&handle, spare) : cudaMalloc((void **)&spare, BYTES);
}
static int capture_of_other(cudaGraph_t *captured)
{
    CHECK(cudaStreamBeginCapture(stream_of_other, cudaStreamCaptureModeRelaxed));
    CHECK(cudaMemsetAsync(spare, 1, BYTES, stream_of_other));
    return cudaStreamEndCapture(stream_of_other, captured);
}
static int instantiate_graph(int act)
{
    static cudaGraph_t captured;
    if (act)
        return cudaGraphInstantiateWithFlags(&graph_of_other, captured, 0);
    CHECK(cudaMalloc((void **)&spare, BYTES));
    return capture_of_other(&captured);
}
static int destroy_graph(int act)
{
    cudaGraph_t captured;
    if (act)
        return cudaGraphExecDestroy(graph_of_other);
    CHECK(cudaMalloc((void **)&spare, BYTES));
    capture_of_other(&captured);
    CHECK(cudaGraphInstantiateWithFlags(&graph_of_other, captured, 0));
    CHECK(cudaGraphLaunch(graph_of_other, stream_of_other));
    return cudaStreamSynchronize(stream_of_other);
}
static int trim_graphs(int act) { return act ? cudaDeviceGraphMemTrim(other) : 0; }
static int map_memory(int act)
{
    static CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}};
    static CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle physical;
    CUdeviceptr at;
    if (!act)
        return 0;
    CHECK_CU(cuMemCreate(&physical, BYTES, &properties, 0));
    CHECK_CU(cuMemAddressReserve(&at, BYTES, 0, 0, 0));
    CHECK_CU(cuMemMap(at, BYTES, 0, physical, 0));
    CHECK_CU(cuMemSetAccess(at, BYTES, &access, 1));
    return cuMemRelease(physical);
}
static int unmap_memory(int act)
{
    static CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}};
    static CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    static CUmemGenericAllocationHandle physical;
    static CUdeviceptr at;
    if (act)
        return cuMemUnmap(at, BYTES);
    CHECK_CU(cuMemCreate(&physical, BYTES, &properties, 0));
    CHECK_CU(cuMemAddressReserve(&at, BYTES, 0, 0, 0));
    CHECK_CU(cuMemMap(at, BYTES, 0, physical, 0));
    return cuMemSetAccess(at, BYTES, &access, 1);
}

/* Copies to the host, of so many bytes, pageable or pinned. */
static char *pinned;
static int to_host(int act, size_t bytes, int is_pinned, int is_async, int is_far)
{
    if (!act) {
        CHECK(cudaMalloc((void **)&spare, 64 << 20));
        return cudaHostAlloc((void **)&pinned, 64 << 20, cudaHostAllocPortable);
    }
    char *to = is_pinned ? pinned : (char *)found, *from = is_far ? far_end : spare;
    return is_async ? cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_of_other) : cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost);
}
static int d2h_4k(int act) { return to_host(act, 4096, 0, 0, 0); }
static int d2h_64k(int act) { return to_host(act, 65536, 0, 0, 0); }
static int d2h_64k1(int act) { return to_host(act, 65537, 0, 0, 0); }
static int d2h_128k(int act) { return to_host(act, 131072, 0, 0, 0); }
static int d2h_1m(int act) { return to_host(act, 1 << 20, 0, 0, 0); }
static int d2h_pinned(int act) { return to_host(act, BYTES, 1, 0, 0); }
static int d2h_async(int act) { return to_host(act, BYTES, 0, 1, 0); }
static int d2h_far(int act) { return to_host(act, BYTES, 0, 0, 1); }
static int d2h_far_64k(int act) { return to_host(act, 65536, 0, 0, 1); }
static int d2h_2d(int act)
{
    if (act)
        return cudaMemcpy2D(found, 1024, spare, 2048, 1024, 1024, cudaMemcpyDeviceToHost);
    return cudaMalloc((void **)&spare, BYTES);
}
static int from_host(int act, size_t bytes)
{
    if (!act)
        return cudaMalloc((void **)&spare, 64 << 20);
    static char *big;
    big = calloc(1, 64 << 20);
    return cudaMemcpy(spare, big, bytes, cudaMemcpyHostToDevice);
}
static int h2d_64k1(int act) { return from_host(act, 65537); }
static int h2d_64m(int act) { return from_host(act, 64 << 20); }
static CUfunction function;
static CUkernel kernel;
static int first_launch_of_library(int act)
{
    unsigned long long zero = 0;
    void *arguments[] = {&zero, &zero, &zero};
    if (act)
        return cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, (CUstream)stream_of_other, arguments, NULL);
    CHECK_CU(cuLibraryLoadData(&library, empty_code, NULL, NULL, 0, NULL, NULL, 0));
    return cuLibraryGetKernel(&kernel, library, "p2pshim_probe_copy");
}
static int get_function_of_kernel(int act)
{
    if (act)
        return cuKernelGetFunction(&function, kernel);
    CHECK_CU(cuLibraryLoadData(&library, empty_code, NULL, NULL, 0, NULL, NULL, 0));
    return cuLibraryGetKernel(&kernel, library, "p2pshim_probe_copy");
}
static int get_module_of_library(int act)
{
    if (act)
        return cuLibraryGetModule(&module, library);
    return cuLibraryLoadData(&library, empty_code, NULL, NULL, 0, NULL, NULL, 0);
}
static int get_function_of_module(int act)
{
    return act ? cuModuleGetFunction(&function, module, "p2pshim_probe_copy") : cuModuleLoadData(&module, empty_code);
}
static int first_launch_of_module(int act)
{
    unsigned long long zero = 0;
    void *arguments[] = {&zero, &zero, &zero};
    if (act)
        return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, (CUstream)stream_of_other, arguments, NULL);
    CHECK_CU(cuModuleLoadData(&module, empty_code));
    return cuModuleGetFunction(&function, module, "p2pshim_probe_copy");
}
static int set_cache_config(int act) { return act ? cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1) : 0; }
static int reset_persisting(int act) { return act ? cuCtxResetPersistingL2Cache() : 0; }
static int set_limit_persisting(int act) { return act ? cuCtxSetLimit(CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 1 << 20) : 0; }
static int set_limit_depth(int act) { return act ? cuCtxSetLimit(CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 4096) : 0; }
static int set_function_attribute(int act)
{
    if (act)
        return cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536);
    CHECK_CU(cuModuleLoadData(&module, empty_code));
    return cuModuleGetFunction(&function, module, "p2pshim_probe_copy");
}
static int disable_peer(int act)
{
    return act ? cudaDeviceDisablePeerAccess(2) : cudaDeviceEnablePeerAccess(2, 0);
}
static int synchronize_2(int act)
{
    CUresult (*function)(CUcontext);
    CUdriverProcAddressQueryResult status;
    CUcontext context;
    if (!act)
        return 0;
    if (cuGetProcAddress_v2("cuCtxSynchronize", (void **)&function, 13000, 0, &status) || !function)
        return 999;
    CHECK_CU(cuCtxGetCurrent(&context));
    return function(context);
}
/* The memory that the copy touches is of a context that the program has made. */
static CUcontext created;
static int destroy_other_context(int act)
{
    if (act)
        return cuCtxDestroy(created);
    CHECK_CU(cuCtxCreate_v2(&created, 0, 1));
    return cudaSetDevice(1);
}
static int synchronize_other_context(int act)
{
    if (act) {
        CHECK_CU(cuCtxSetCurrent(created));
        return cuCtxSynchronize();
    }
    CHECK_CU(cuCtxCreate_v2(&created, 0, 1));
    return 0;
}
static int free_of_other_context(int act)
{
    if (act)
        return cuMemFree((CUdeviceptr)spare);
    CHECK_CU(cuCtxCreate_v2(&created, 0, 1));
    return cuMemAlloc((CUdeviceptr *)&spare, BYTES);
}
static int to_symbol(int act) { return act ? cudaMemcpyAsync(found, spare, 16, cudaMemcpyDeviceToHost, stream_of_other) : cudaMalloc((void **)&spare, BYTES); }

static int is_loaded(int act)
{
    CUfunctionLoadingState state = (CUfunctionLoadingState)9;
    unsigned long long zero = 0;
    void *arguments[] = {&zero, &zero, &zero};
    if (act) {
        CUresult code = cuFuncIsLoaded(&state, (CUfunction)kernel);
        CUresult launch = cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, (CUstream)stream_of_other, arguments, NULL);
        CUfunctionLoadingState after = (CUfunctionLoadingState)9;
        CUresult again = cuFuncIsLoaded(&after, (CUfunction)kernel);
        printf("[loaded: %d state %d, launch %d, then %d state %d] ", code, state, launch, again, after);
        return 0;
    }
    CHECK_CU(cuLibraryLoadData(&library, empty_code, NULL, NULL, 0, NULL, NULL, 0));
    return cuLibraryGetKernel(&kernel, library, "p2pshim_probe_copy");
}
static int unload_library_elsewhere(int act)
{
    if (!act) {
        unload_library(0);
        return 0;
    }
    CHECK(cudaSetDevice(0));
    return cuLibraryUnload(library);
}
static int unload_module_elsewhere(int act)
{
    if (!act)
        return cuModuleLoadData(&module, empty_code);
    CHECK(cudaSetDevice(2));
    return cuModuleUnload(module);
}
static int destroy_array_elsewhere(int act)
{
    if (!act)
        return destroy_array(0);
    CHECK(cudaSetDevice(2));
    return cuArrayDestroy(array);
}
static int destroy_array_here(int act)
{
    if (!act) {
        CHECK(cudaSetDevice(2));
        return destroy_array(0);
    }
    return cuArrayDestroy(array);
}
static int release_primary_retained(int act)
{
    CUcontext context;
    return act ? cuDevicePrimaryCtxRelease(other) : cuDevicePrimaryCtxRetain(&context, other);
}
static int free_elsewhere(int act)
{
    if (!act)
        return free_spare(0);
    CHECK(cudaSetDevice(2));
    return cudaFree(spare);
}
static int host_elsewhere(int act)
{
    if (!act)
        return free_host(0);
    CHECK(cudaSetDevice(2));
    return cudaFreeHost(host);
}
static int event_of_context_stream_gone(int act)
{
    /* as the library would do it: a stream that waits, and is destroyed at once */
    cudaStream_t ours;
    if (!act)
        return 0;
    CHECK(cudaStreamCreateWithFlags(&ours, cudaStreamNonBlocking));
    CHECK(cudaStreamWaitEvent(ours, event_of_other, 0));
    CHECK(cudaStreamDestroy(ours));
    return record_event_of_context(1);
}
/* A node that records an event, added to a graph for as long as it is instantiated: 1 if the event is ready too early. */
static int event_node(int act)
{
    static cudaGraph_t captured;
    static cudaStream_t own;
    static cudaGraphExec_t exec;
    static cudaEvent_t event;
    static CUgraphNode node, nodes[8];
    size_t count = 8;
    static CUresult added, destroyed, updated;
    cudaGraphExecUpdateResultInfo info;
    if (!act) {
        CHECK(cudaSetDevice(0));
        CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        CHECK(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
        CHECK(cudaStreamBeginCapture(own, cudaStreamCaptureModeRelaxed));
        CHECK(cudaMemcpyAsync(dst, src, BYTES, cudaMemcpyDefault, own));
        CHECK(cudaLaunchHostFunc(own, wait_for_host, NULL));
        CHECK(cudaStreamEndCapture(own, &captured));
        CHECK_CU(cuGraphGetNodes((CUgraph)captured, nodes, &count));
        for (size_t i = 0; i < count; i++) {
            CUgraphNodeType type;
            CHECK_CU(cuGraphNodeGetType(nodes[i], &type));
            if (type == CU_GRAPH_NODE_TYPE_MEMCPY)
                added = cuGraphAddEventRecordNode(&node, (CUgraph)captured, &nodes[i], 1, (CUevent)event);
        }
        CHECK(cudaGraphInstantiateWithFlags(&exec, captured, 0));
        destroyed = cuGraphDestroyNode(node);
        updated = (CUresult)cudaGraphExecUpdate(exec, captured, &info);
        CHECK_CU(cuGraphGetNodes((CUgraph)captured, NULL, &count));
        printf("[add %d destroy %d update without %d nodes left %zu] ", added, destroyed, updated, count);
        for (size_t i = 0; i < count; i++) {
            CUgraphNodeType type;
            CHECK_CU(cuGraphGetNodes((CUgraph)captured, nodes, &count));
            CHECK_CU(cuGraphNodeGetType(nodes[i], &type));
            if (type == CU_GRAPH_NODE_TYPE_MEMCPY)
                added = cuGraphAddEventRecordNode(&node, (CUgraph)captured, &nodes[i], 1, (CUevent)event);
        }
        updated = (CUresult)cudaGraphExecUpdate(exec, captured, &info);
        destroyed = cuGraphDestroyNode(node);
        printf("[update with %d] ", updated);
        /* once through, so that an old record stands there */
        *is_let_go = 1;
        CHECK(cudaGraphLaunch(exec, own));
        CHECK(cudaStreamSynchronize(own));
        CHECK(cudaDeviceSynchronize());
        return 0;
    }
    /* behind what holds `stream`: the graph's copy cannot be over */
    CHECK(cudaGraphLaunch(exec, stream));
    cudaError_t at_once = cudaEventQuery(event);
    printf("[query behind the held work: %d] ", at_once);
    cudaEventSynchronize(event);
    printf("[then %s; the host node still %s] ", has_waited ? "waited" : "did not wait", cudaStreamQuery(stream) == cudaErrorNotReady ? "runs" : "ended");
    *is_let_go = 1;
    return 0;
}
static int event_node_tail(int act)
{
    return event_node(act);
}

#define OPERATION(function) {#function, function}
static const struct operation {
    const char *name;
    int (*call)(int act);
} operations[] = {
    OPERATION(synchronize), OPERATION(free_far), OPERATION(free_near), OPERATION(free_spare), OPERATION(free_async_far),
    OPERATION(destroy_then_free_far), OPERATION(destroy_then_synchronize), OPERATION(reset), OPERATION(release_primary),
    OPERATION(reset_primary), OPERATION(free_host), OPERATION(unregister), OPERATION(register_host), OPERATION(alloc),
    OPERATION(alloc_host), OPERATION(alloc_async), OPERATION(alloc_managed), OPERATION(free_managed), OPERATION(load_module),
    OPERATION(unload_module), OPERATION(load_library), OPERATION(unload_library), OPERATION(destroy_array),
    OPERATION(destroy_mipmapped), OPERATION(destroy_texture), OPERATION(set_limit_printf), OPERATION(set_limit_heap),
    OPERATION(set_limit_stack), OPERATION(stop_profiler), OPERATION(trim_pool), OPERATION(destroy_pool), OPERATION(free_pool_memory),
    OPERATION(create_stream), OPERATION(destroy_stream), OPERATION(destroy_event), OPERATION(synchronize_stream),
    OPERATION(synchronize_legacy), OPERATION(query_legacy), OPERATION(synchronize_event_of_legacy), OPERATION(record_event_of_context),
    OPERATION(set), OPERATION(copy_to_host), OPERATION(copy_to_device), OPERATION(memory_info), OPERATION(enable_peer),
    OPERATION(ipc_handle), OPERATION(instantiate_graph), OPERATION(destroy_graph), OPERATION(trim_graphs), OPERATION(map_memory),
    OPERATION(unmap_memory), OPERATION(d2h_4k), OPERATION(d2h_64k), OPERATION(d2h_64k1), OPERATION(d2h_128k), OPERATION(d2h_1m),
    OPERATION(d2h_pinned), OPERATION(d2h_async), OPERATION(d2h_far), OPERATION(d2h_far_64k), OPERATION(d2h_2d), OPERATION(h2d_64k1),
    OPERATION(h2d_64m), OPERATION(first_launch_of_library), OPERATION(get_function_of_kernel), OPERATION(get_module_of_library),
    OPERATION(get_function_of_module), OPERATION(first_launch_of_module), OPERATION(set_cache_config), OPERATION(reset_persisting),
    OPERATION(set_limit_persisting), OPERATION(set_limit_depth), OPERATION(set_function_attribute), OPERATION(disable_peer),
    OPERATION(synchronize_2), OPERATION(destroy_other_context), OPERATION(synchronize_other_context),
    OPERATION(free_of_other_context), OPERATION(to_symbol), OPERATION(is_loaded), OPERATION(unload_library_elsewhere), OPERATION(unload_module_elsewhere), OPERATION(destroy_array_elsewhere), OPERATION(destroy_array_here), OPERATION(release_primary_retained), OPERATION(free_elsewhere), OPERATION(host_elsewhere), OPERATION(event_of_context_stream_gone), OPERATION(event_node),  OPERATION(event_node_tail),
};

/* ---- A case ---- */

static void *let_go_later(void *data)
{
    (void)data;
    for (int waited = 0; waited < PATIENCE && !has_returned; waited++)
        milliseconds(1);
    if (!has_returned)
        has_waited = 1;
    *is_let_go = 1;
    return NULL;
}

static char *memory_on(int device, enum memory_kind kind)
{
    char *memory;
    CHECK(cudaSetDevice(device));
    if (kind == POOL)
        CHECK(cudaMallocAsync((void **)&memory, BYTES, 0));
    else
        CHECK(cudaMalloc((void **)&memory, BYTES));
    CHECK(cudaDeviceSynchronize());
    return memory;
}

static void make_stream(enum stream_kind kind)
{
    CHECK(cudaSetDevice(kind == THIRD ? 2 : 0));
    switch (kind) {
    case LEGACY: stream = cudaStreamLegacy; break;
    case PER_THREAD: stream = cudaStreamPerThread; break;
    case BLOCKING: CHECK(cudaStreamCreate(&stream)); break;
    default: CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    }
}

static void make_graph(void)
{
    cudaGraph_t captured;
    cudaStream_t capturing;
    CHECK(cudaStreamCreateWithFlags(&capturing, cudaStreamNonBlocking));
    CHECK(cudaStreamBeginCapture(capturing, cudaStreamCaptureModeRelaxed));
    CHECK(cudaMemcpyAsync(dst, src, BYTES, cudaMemcpyDefault, capturing));
    if (has_tail == 2)
        CHECK(cudaLaunchHostFunc(capturing, wait_for_host, NULL));
    CHECK(cudaStreamEndCapture(capturing, &captured));
    CHECK(cudaGraphInstantiateWithFlags(&graph, captured, 0));
}

static void run(const struct form *form, const struct operation *operation, int current, int with_kernel)
{
    pthread_t thread;
    const char *names[] = {"right", "wrong", "gone"};
    int devices = 0, own = form->stream == THIRD ? 2 : 0, outcome = 2;
    CHECK(cudaGetDeviceCount(&devices));
    if (devices < own + 1) {
        printf("%s %s %d: skipped, as it takes %d devices\n", form->name, operation->name, current, own + 1);
        exit(0);
    }
    is_pull = form->is_pull;
    has_tail = form->has_tail;
    src = memory_on(is_pull, form->memory);
    dst = memory_on(!is_pull, form->memory);
    far_end = is_pull ? src : dst;
    CHECK(cudaSetDevice(1));
    CHECK(cudaStreamCreateWithFlags(&stream_of_other, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&event_of_other, cudaEventDisableTiming));
    fill(pattern, BYTES, 1);
    CHECK(cudaSetDevice(is_pull));
    CHECK(cudaMemcpy(src, pattern, BYTES, cudaMemcpyDefault));
    make_stream(form->stream);
    char *flags;
    CHECK(cudaHostAlloc((void **)&flags, 4096, cudaHostAllocPortable | cudaHostAllocMapped));
    is_let_go = (volatile int *)flags;
    has_begun = (volatile int *)(flags + 64);
    if (with_kernel) {
        CUmodule code;
        CHECK_CU(cuModuleLoadData(&code, spin_code));
        CHECK_CU(cuModuleGetFunction(&spin, code, "spin"));
    }
    if (form->copy == copy_graph)
        make_graph();
    for (int i = 0; i < WARM_UPS; i++) {
        *is_let_go = 1;
        form->copy();
        CHECK(cudaStreamSynchronize(stream));
    }
    CHECK(cudaMemset(form->is_pull ? dst : src, 0, 0));
    CHECK(cudaSetDevice(!is_pull));
    CHECK(cudaMemset(dst, 0, BYTES));
    for (int device = 0; device < 2; device++) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaDeviceSynchronize());
    }
    CHECK(cudaSetDevice(current));
    REQUIRE(operation->call(0) == 0);

    CHECK(cudaSetDevice(own));
    if (!has_tail)
        hold(stream);
    else
        *is_let_go = *has_begun = 0;
    form->copy();
    if (has_tail == 1)
        hold(stream);
    while (!*has_begun)
        milliseconds(1);
    CHECK(cudaSetDevice(current));
    REQUIRE(pthread_create(&thread, NULL, let_go_later, NULL) == 0);
    int code = operation->call(1);
    has_returned = 1;
    REQUIRE(pthread_join(thread, NULL) == 0);

    CHECK(cudaSetDevice(own));
    int end = stream ? cudaStreamSynchronize(stream) : cudaDeviceSynchronize();
    int is_freed = strstr(operation->name, "free_far") || strncmp(operation->name, "reset", 5) == 0 || strcmp(operation->name, "release_primary") == 0 ||
                   strcmp(operation->name, "free_near") == 0;
    if (!is_freed || (is_pull && operation->call != free_near)) {
        cudaError_t read = cudaMemcpy(found, dst, BYTES, cudaMemcpyDefault);
        outcome = read != cudaSuccess || memcmp(found, pattern, BYTES) != 0;
    }
    printf("%s %s %d: %s, code %d, end %d, %s\n", form->name, operation->name, current, has_waited ? "waits" : "at once", code, end, names[outcome]);
    fflush(stdout);
    _exit(0);
}

int main(int argc, char **argv)
{
    if (argc == 2) {
        for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
            printf("copy %s\n", forms[i].name);
        for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
            printf("operation %s\n", operations[i].name);
        return 0;
    }
    REQUIRE(argc > 2);
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++)
        for (size_t o = 0; o < sizeof operations / sizeof *operations; o++)
            if (strcmp(argv[1], forms[f].name) == 0 && strcmp(argv[2], operations[o].name) == 0)
                run(&forms[f], &operations[o], argc > 3 ? atoi(argv[3]) : 1, argc > 4 && strcmp(argv[4], "kernel") == 0);
    fprintf(stderr, "no such copy, or no such operation: see `implicit_waits list`\n");
    return 2;
}
