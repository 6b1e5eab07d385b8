/* build: runtime12+ driver; run: implicit_waits list|COPY OPERATION [CURRENT [kernel]] on sim gpu
 * Which calls wait for a copy between two devices that is queued, though nobody has asked them to.
 *
 * The copy is between devices 0 and 1, and by `third` on a stream of device 2. It is queued on a stream of device 0, behind work that
 * waits for the host. In the forms that end in `_tail` that work comes after the copy, so the copy is over when the operation is called.
 * Then the operation is called with device CURRENT current, 1 if none is named. What the operation needs (memory, modules, streams)
 * was made with the same device current; `_elsewhere` in its name means that device 2 is current for the call alone.
 *
 * A thread lets the work go once the operation has returned, or after IMPLICIT_WAITS_PATIENCE milliseconds (700). The operation has
 * waited if the work was let go before it returned. An operation that does not wait, but was late on a busy machine, looks the same:
 * who did not expect it to wait tries again with more patience. A slow machine cannot make a call that waits return early.
 *
 * The work is a function of the host; on real GPUs, with `kernel`, it is a kernel. (A host function holds up other host functions there.)
 *
 * Prints whether the call waited, its code, the code that the copy's stream ends with, and whether the bytes at the destination are
 * right, wrong, or gone with their memory. Instead it prints `skipped` and why, where the driver or the machine lacks something.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "check.h"
#include "lib/mappings.h"

enum { BYTES = 4 << 20, WIDTH = 1024, ROWS = BYTES / WIDTH, WARM_UPS = 3, FLAGS = 4096 };
/* The device at the other end, and one that has no part in the copies but of `third`. */
enum { OTHER = 1, ELSEWHERE = 2 };

static int current = OTHER;

/* ---- What the driver may lack ---- */

static const char *title[2];

static void skip(const char *why)
{
    printf("%s %s %d: skipped: %s\n", title[0], title[1], current, why);
    fflush(stdout);
    _exit(0);
}

static void *driver_function(const char *name, int version)
{
    void *found = NULL;
    CUdriverProcAddressQueryResult status;
    if (cuGetProcAddress_v2(name, &found, version, CU_GET_PROC_ADDRESS_DEFAULT, &status) != CUDA_SUCCESS || !found)
        skip("no such function");
    return found;
}

/* The driver's function of that name, in its form of a version. Ends the program if there is none. */
#define DRIVER(name, version, ...) ((CUresult(*)(__VA_ARGS__))driver_function(#name, version))

/* ---- The work before the copy ---- */

static volatile int *is_let_go, *has_begun;
static CUfunction spin;

static const char spin_code[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry spin(.param .u64 flag, .param .u64 begun) {\n"
    ".reg .u64 %a, %b; .reg .u32 %v; .reg .pred %p;\n"
    "ld.param.u64 %a, [flag]; ld.param.u64 %b, [begun]; mov.u32 %v, 1; st.volatile.u32 [%b], %v;\n"
    "again: ld.volatile.u32 %v, [%a]; setp.eq.u32 %p, %v, 0; @%p bra again; ret; }\n";

/* The simulated GPUs know its name. */
#define EMPTY "p2pshim_probe_copy"
static const char empty_code[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                                 ".visible .entry " EMPTY "(.param .u64 to, .param .u64 from, .param .u64 words) { ret; }\n";

static void CUDART_CB wait_for_host(void *data)
{
    (void)data;
    *has_begun = 1;
    while (!*is_let_go)
        sleep_for(1);
}

static void hold(cudaStream_t stream)
{
    if (spin) {
        void *arguments[] = {&is_let_go, &has_begun};
        CHECK_CU(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, (CUstream)stream, arguments, NULL));
    } else {
        CHECK(cudaLaunchHostFunc(stream, wait_for_host, NULL));
    }
}

/* ---- Copies ---- */

static char *src, *dst;
static int is_pull, own; /* whether the copy is from device 1 to device 0; the device of its stream */
static int is_copy_over; /* whether it is when the operation is called */
static cudaStream_t stream;
static cudaGraphExec_t graph;
static unsigned char pattern[BYTES], found[BYTES];

static int device_of(const char *memory) { return (memory == src) == is_pull ? 1 : 0; }

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
    CUdeviceptr to[2] = {(CUdeviceptr)dst, (CUdeviceptr)dst + BYTES / 2}, from[2] = {(CUdeviceptr)src, (CUdeviceptr)src + BYTES / 2};
    size_t sizes[2] = {BYTES / 2, BYTES / 2}, index = 0;
    struct { int order; int hints[4]; unsigned flags; } attributes = {.order = 1};
    CHECK_CU(DRIVER(cuMemcpyBatchAsync, 13000, CUdeviceptr *, CUdeviceptr *, size_t *, size_t, void *, size_t *, size_t, CUstream)(
        to, from, sizes, 2, &attributes, &index, 1, (CUstream)stream));
}

enum stream_kind { NON_BLOCKING, BLOCKING, LEGACY, PER_THREAD, THIRD };
enum memory_kind { PLAIN, POOL };
/* Where the work is that waits for the host. */
enum place { BEFORE, AFTER, AFTER_IN_GRAPH };

static const struct form {
    const char *name;
    void (*copy)(void);
    enum stream_kind stream;
    enum memory_kind memory;
    int is_pull;
    enum place held;
} forms[] = {
    {"peer_async", copy_peer_async, NON_BLOCKING, PLAIN, 0, BEFORE},
    {"peer_async_pull", copy_peer_async, NON_BLOCKING, PLAIN, 1, BEFORE},
    {"async", copy_async, NON_BLOCKING, PLAIN, 0, BEFORE},
    {"async_pull", copy_async, NON_BLOCKING, PLAIN, 1, BEFORE},
    {"async_blocking", copy_async, BLOCKING, PLAIN, 0, BEFORE},
    {"2d", copy_2d, NON_BLOCKING, PLAIN, 0, BEFORE},
    {"3d", copy_3d, NON_BLOCKING, PLAIN, 0, BEFORE},
    {"3d_peer", copy_3d_peer, NON_BLOCKING, PLAIN, 0, BEFORE},
    {"batch", copy_batch, NON_BLOCKING, PLAIN, 0, BEFORE},
    {"graph", copy_graph, NON_BLOCKING, PLAIN, 0, BEFORE},
    {"graph_pull", copy_graph, NON_BLOCKING, PLAIN, 1, BEFORE},
    {"pool", copy_peer_async, NON_BLOCKING, POOL, 0, BEFORE},
    {"pool_pull", copy_peer_async, NON_BLOCKING, POOL, 1, BEFORE},
    {"per_thread", copy_async, PER_THREAD, PLAIN, 0, BEFORE},
    {"per_thread_peer", copy_peer_async, PER_THREAD, PLAIN, 0, BEFORE},
    {"legacy_peer_async", copy_peer_async, LEGACY, PLAIN, 0, BEFORE},
    {"legacy_async", copy_async, LEGACY, PLAIN, 0, BEFORE},
    {"legacy_peer", copy_peer, LEGACY, PLAIN, 0, BEFORE},
    {"legacy_peer_pull", copy_peer, LEGACY, PLAIN, 1, BEFORE},
    {"legacy_sync", copy_sync, LEGACY, PLAIN, 0, BEFORE},
    {"legacy_graph", copy_graph, LEGACY, PLAIN, 0, BEFORE},
    {"third", copy_peer_async, THIRD, PLAIN, 0, BEFORE},
    {"peer_async_tail", copy_peer_async, NON_BLOCKING, PLAIN, 0, AFTER},
    {"peer_async_pull_tail", copy_peer_async, NON_BLOCKING, PLAIN, 1, AFTER},
    {"graph_tail", copy_graph, NON_BLOCKING, PLAIN, 0, AFTER},
    {"graph_in_tail", copy_graph, NON_BLOCKING, PLAIN, 0, AFTER_IN_GRAPH},
    {"legacy_peer_tail", copy_peer, LEGACY, PLAIN, 0, AFTER},
};

/* ---- Operations ---- */

static char *far_end, *near_end; /* the memory on device 1 and on device 0 */
static char *spare, *host, *registered;
static cudaStream_t beside; /* a stream that has nothing to do, and an event, of the current device */
static cudaEvent_t event;
static CUmodule module;
static CUarray array;
static cudaMemPool_t pool;
static CUcontext created;
static int is_gone; /* whether the copy's destination is gone */

/*
 * Each is called once to prepare what it takes (act is 0), and once to do it. Returns the code of the call.
 */
static int free_end(char *memory)
{
    is_gone = memory == dst;
    return cudaFree(memory);
}

/* A context ends, and with it all that is of it. */
static void ends(int device)
{
    is_gone |= device == device_of(dst);
    if (device == own)
        stream = NULL;
}

static void destroy_stream_of_copy(void)
{
    CHECK(cudaStreamDestroy(stream));
    stream = NULL;
}

/* With device 2 current for the call alone. */
static int elsewhere(int (*operation)(int act), int act)
{
    if (act)
        CHECK(cudaSetDevice(ELSEWHERE));
    return operation(act);
}

static int synchronize(int act) { return act ? (int)cudaDeviceSynchronize() : 0; }
static int free_far(int act) { return act ? free_end(far_end) : 0; }
static int free_near(int act) { return act ? free_end(near_end) : 0; }
static int free_spare(int act) { return act ? cudaFree(spare) : cudaMalloc((void **)&spare, BYTES); }
static int free_elsewhere(int act) { return elsewhere(free_spare, act); }

static int free_async_far(int act)
{
    is_gone = act && far_end == dst;
    return act ? (int)cudaFreeAsync(far_end, beside) : 0;
}

static int destroy_then_free_far(int act)
{
    if (!act)
        return 0;
    destroy_stream_of_copy();
    return free_end(far_end);
}

static int destroy_then_synchronize(int act)
{
    if (!act)
        return 0;
    destroy_stream_of_copy();
    return cudaDeviceSynchronize();
}

static int reset(int act)
{
    if (!act)
        return 0;
    ends(current);
    return cudaDeviceReset();
}

static int release_primary(int act)
{
    if (!act)
        return 0;
    ends(OTHER);
    return cuDevicePrimaryCtxRelease(OTHER);
}

static int release_primary_retained(int act)
{
    CUcontext context;
    return act ? cuDevicePrimaryCtxRelease(OTHER) : cuDevicePrimaryCtxRetain(&context, OTHER);
}

static int reset_primary(int act)
{
    if (!act)
        return 0;
    ends(OTHER);
    return cuDevicePrimaryCtxReset(OTHER);
}

static int free_host(int act) { return act ? cudaFreeHost(host) : cudaHostAlloc((void **)&host, BYTES, 0); }
static int free_host_elsewhere(int act) { return elsewhere(free_host, act); }

static int register_host(int act)
{
    if (act)
        return cudaHostRegister(registered, BYTES, 0);
    registered = aligned_alloc(4096, BYTES);
    return registered ? 0 : 2;
}

static int unregister(int act)
{
    if (act)
        return cudaHostUnregister(registered);
    return register_host(0) ? 2 : register_host(1);
}

static int alloc(int act) { return act ? (int)cudaMalloc((void **)&spare, BYTES) : 0; }
static int alloc_host(int act) { return act ? (int)cudaHostAlloc((void **)&host, BYTES, 0) : 0; }
static int alloc_async(int act) { return act ? (int)cudaMallocAsync((void **)&spare, BYTES, beside) : 0; }

static int alloc_managed(int act)
{
    CUresult (*allocate)(CUdeviceptr *, size_t, unsigned) = DRIVER(cuMemAllocManaged, 6000, CUdeviceptr *, size_t, unsigned);
    return act ? allocate((CUdeviceptr *)&spare, BYTES, CU_MEM_ATTACH_GLOBAL) : 0;
}

static int free_managed(int act) { return act ? (int)cudaFree(spare) : alloc_managed(1); }
static int load_module(int act) { return act ? cuModuleLoadData(&module, empty_code) : 0; }
static int unload_module(int act) { return act ? (int)cuModuleUnload(module) : load_module(1); }
static int unload_module_elsewhere(int act) { return elsewhere(unload_module, act); }

/* Libraries and their kernels, which older headers do not have. */
static void *library, *kernel;
static CUfunction function;

static int load_library(int act)
{
    CUresult (*load)(void **, const void *, void *, void *, unsigned, void *, void *, unsigned) =
        DRIVER(cuLibraryLoadData, 12000, void **, const void *, void *, void *, unsigned, void *, void *, unsigned);
    return act ? load(&library, empty_code, NULL, NULL, 0, NULL, NULL, 0) : 0;
}

static int load_kernel(void)
{
    CHECK_CU((CUresult)load_library(1));
    return DRIVER(cuLibraryGetKernel, 12000, void **, void *, const char *)(&kernel, library, EMPTY);
}

static int get_function_of_kernel(int act)
{
    return act ? (int)DRIVER(cuKernelGetFunction, 12000, CUfunction *, void *)(&function, kernel) : load_kernel();
}

static int get_module_of_library(int act)
{
    return act ? (int)DRIVER(cuLibraryGetModule, 12000, CUmodule *, void *)(&module, library) : load_library(1);
}

static int first_launch_of_library(int act)
{
    unsigned long long zero = 0;
    void *arguments[] = {&zero, &zero, &zero};
    return act ? (int)cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, (CUstream)beside, arguments, NULL) : load_kernel();
}

static int unload_library(int act)
{
    if (act)
        return DRIVER(cuLibraryUnload, 12000, void *)(library);
    int code = load_kernel();
    return code ? code : get_function_of_kernel(1);
}
static int unload_library_elsewhere(int act) { return elsewhere(unload_library, act); }

static int destroy_array(int act)
{
    CUDA_ARRAY_DESCRIPTOR shape = {.Width = 256, .Height = 256, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    return act ? cuArrayDestroy(array) : cuArrayCreate(&array, &shape);
}
static int destroy_array_elsewhere(int act) { return elsewhere(destroy_array, act); }

static int destroy_mipmapped(int act)
{
    static CUmipmappedArray mipmapped;
    CUDA_ARRAY3D_DESCRIPTOR shape = {.Width = 256, .Height = 256, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    if (act)
        return DRIVER(cuMipmappedArrayDestroy, 5000, CUmipmappedArray)(mipmapped);
    return DRIVER(cuMipmappedArrayCreate, 5000, CUmipmappedArray *, CUDA_ARRAY3D_DESCRIPTOR *, unsigned)(&mipmapped, &shape, 2);
}

static int destroy_texture(int act)
{
    static CUtexObject texture;
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_LINEAR};
    CUDA_TEXTURE_DESC description = {.filterMode = CU_TR_FILTER_MODE_POINT};
    if (act)
        return DRIVER(cuTexObjectDestroy, 5000, CUtexObject)(texture);
    CHECK(cudaMalloc((void **)&spare, BYTES));
    resource.res.linear.devPtr = (CUdeviceptr)spare;
    resource.res.linear.format = CU_AD_FORMAT_UNSIGNED_INT8;
    resource.res.linear.numChannels = 1;
    resource.res.linear.sizeInBytes = 4096;
    return DRIVER(cuTexObjectCreate, 5000, CUtexObject *, CUDA_RESOURCE_DESC *, CUDA_TEXTURE_DESC *, void *)(
        &texture, &resource, &description, NULL);
}

static int set_limit(int act, CUlimit limit, size_t value)
{
    CUresult (*set)(CUlimit, size_t) = DRIVER(cuCtxSetLimit, 3010, CUlimit, size_t);
    return act ? set(limit, value) : 0;
}

static int set_limit_stack(int act) { return set_limit(act, CU_LIMIT_STACK_SIZE, 16 << 10); }
static int set_limit_printf(int act) { return set_limit(act, CU_LIMIT_PRINTF_FIFO_SIZE, 2 << 20); }
static int set_limit_heap(int act) { return set_limit(act, CU_LIMIT_MALLOC_HEAP_SIZE, 32 << 20); }
static int set_limit_depth(int act) { return set_limit(act, CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 4096); }
static int set_limit_persisting(int act) { return set_limit(act, CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 1 << 20); }

static int stop_profiler(int act)
{
    return act ? DRIVER(cuProfilerStop, 4000, void)() : DRIVER(cuProfilerStart, 4000, void)();
}

static int used_pool(void)
{
    struct cudaMemPoolProps properties = {.allocType = cudaMemAllocationTypePinned, .location = {.type = cudaMemLocationTypeDevice}};
    properties.location.id = current;
    CHECK(cudaMemPoolCreate(&pool, &properties));
    CHECK(cudaMallocFromPoolAsync((void **)&spare, BYTES, pool, beside));
    CHECK(cudaStreamSynchronize(beside));
    CHECK(cudaFreeAsync(spare, beside));
    return cudaStreamSynchronize(beside);
}

static int trim_pool(int act) { return act ? (int)cudaMemPoolTrimTo(pool, 0) : used_pool(); }
static int destroy_pool(int act) { return act ? (int)cudaMemPoolDestroy(pool) : used_pool(); }

static int free_pool_memory(int act)
{
    if (act)
        return cudaFree(spare);
    CHECK(cudaMallocAsync((void **)&spare, BYTES, beside));
    return cudaStreamSynchronize(beside);
}

static int create_stream(int act) { return act ? (int)cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking) : 0; }
static int destroy_stream(int act) { return act ? (int)cudaStreamDestroy(beside) : 0; }
static int destroy_event(int act) { return act ? (int)cudaEventDestroy(event) : 0; }
static int synchronize_stream(int act) { return act ? (int)cudaStreamSynchronize(beside) : 0; }
static int synchronize_legacy(int act) { return act ? (int)cudaStreamSynchronize(cudaStreamLegacy) : 0; }
/*
 * If the copy is over, a stream that waited for it still gets to that a moment later: then the answer counts that it gives before the
 * work is let go.
 */
static int query_legacy(int act)
{
    int code = act ? (int)cudaStreamQuery(cudaStreamLegacy) : 0;
    while (is_copy_over && code == cudaErrorNotReady && !*is_let_go) {
        sleep_for(1);
        code = (int)cudaStreamQuery(cudaStreamLegacy);
    }
    return code;
}

static int synchronize_event_of_legacy(int act)
{
    if (!act)
        return 0;
    CHECK(cudaEventRecord(event, cudaStreamLegacy));
    return cudaEventSynchronize(event);
}

static int record_event_of_context(int act)
{
    CUcontext context;
    CUresult (*record)(CUcontext, CUevent) = DRIVER(cuCtxRecordEvent, 12050, CUcontext, CUevent);
    if (!act)
        return 0;
    CHECK_CU(cuCtxGetCurrent(&context));
    CHECK_CU(record(context, (CUevent)event));
    return cudaEventSynchronize(event);
}

/* The form that takes a context. */
static int synchronize_2(int act)
{
    CUcontext context;
    CUresult (*synchronize_context)(CUcontext) = DRIVER(cuCtxSynchronize, 13000, CUcontext);
    if (!act)
        return 0;
    CHECK_CU(cuCtxGetCurrent(&context));
    return synchronize_context(context);
}

static int set(int act) { return act ? cudaMemset(spare, 1, BYTES) : cudaMalloc((void **)&spare, BYTES); }
static int copy_to_device(int act)
{
    return act ? cudaMemcpy(spare, pattern, BYTES, cudaMemcpyHostToDevice) : cudaMalloc((void **)&spare, BYTES);
}
/* Real GPUs wait here or not, by how many bytes there are: they share an engine with the copy that is queued. */
static int copy_to_host(int act)
{
    return act ? cudaMemcpy(found, spare, BYTES, cudaMemcpyDeviceToHost) : cudaMalloc((void **)&spare, BYTES);
}
static int d2h_far(int act) { return act ? (int)cudaMemcpy(found, far_end, BYTES, cudaMemcpyDeviceToHost) : 0; }

static int memory_info(int act)
{
    size_t available, total;
    return act ? (int)cudaMemGetInfo(&available, &total) : 0;
}

static int enable_peer(int act) { return act ? (int)cudaDeviceEnablePeerAccess(0, 0) : 0; }

static int ipc_handle(int act)
{
    CUipcMemHandle handle;
    return act ? (int)cuIpcGetMemHandle(&handle, (CUdeviceptr)spare) : (int)cudaMalloc((void **)&spare, BYTES);
}

/* A graph that has nothing to do with the copy. */
static cudaGraph_t captured_beside;
static cudaGraphExec_t graph_beside;

static int capture_beside(void)
{
    CHECK(cudaMalloc((void **)&spare, BYTES));
    CHECK(cudaStreamBeginCapture(beside, cudaStreamCaptureModeRelaxed));
    CHECK(cudaMemsetAsync(spare, 1, BYTES, beside));
    return cudaStreamEndCapture(beside, &captured_beside);
}

static int instantiate_graph(int act)
{
    return act ? (int)cudaGraphInstantiateWithFlags(&graph_beside, captured_beside, 0) : capture_beside();
}

static int destroy_graph(int act)
{
    if (act)
        return cudaGraphExecDestroy(graph_beside);
    REQUIRE(capture_beside() == 0 && instantiate_graph(1) == 0);
    CHECK(cudaGraphLaunch(graph_beside, beside));
    return cudaStreamSynchronize(beside);
}

static int trim_graphs(int act)
{
    CUresult (*trim)(CUdevice) = DRIVER(cuDeviceGraphMemTrim, 11040, CUdevice);
    return act ? trim(OTHER) : 0;
}

static CUdeviceptr mapped;

static int map_memory(int act)
{
    if (act)
        mapped = mapped_memory(current, BYTES, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    return 0;
}

static int unmap_memory(int act) { return act ? (int)cuMemUnmap(mapped, BYTES) : map_memory(1); }

/* A context that the program has made, on device 1; the copy has no part in it. */
static int create_context(void)
{
    return DRIVER(cuCtxCreate, 3020, CUcontext *, unsigned, CUdevice)(&created, 0, OTHER);
}

static int destroy_other_context(int act) { return act ? (int)cuCtxDestroy(created) : create_context(); }

static int synchronize_other_context(int act)
{
    if (!act)
        return create_context();
    CHECK_CU(cuCtxSetCurrent(created));
    return DRIVER(cuCtxSynchronize, 2000, void)();
}

static int free_of_other_context(int act)
{
    if (act)
        return cuMemFree((CUdeviceptr)spare);
    REQUIRE(create_context() == 0);
    return cuMemAlloc((CUdeviceptr *)&spare, BYTES);
}

#define OPERATION(function) {#function, function}
static const struct operation {
    const char *name;
    int (*call)(int act);
} operations[] = {
    OPERATION(synchronize), OPERATION(synchronize_2), OPERATION(free_far), OPERATION(free_near), OPERATION(free_spare),
    OPERATION(free_elsewhere), OPERATION(free_async_far), OPERATION(destroy_then_free_far), OPERATION(destroy_then_synchronize),
    OPERATION(reset), OPERATION(release_primary), OPERATION(release_primary_retained), OPERATION(reset_primary), OPERATION(free_host),
    OPERATION(free_host_elsewhere), OPERATION(register_host), OPERATION(unregister), OPERATION(alloc), OPERATION(alloc_host),
    OPERATION(alloc_async), OPERATION(alloc_managed), OPERATION(free_managed), OPERATION(load_module), OPERATION(unload_module),
    OPERATION(unload_module_elsewhere), OPERATION(load_library), OPERATION(get_function_of_kernel), OPERATION(get_module_of_library),
    OPERATION(first_launch_of_library), OPERATION(unload_library), OPERATION(unload_library_elsewhere), OPERATION(destroy_array),
    OPERATION(destroy_array_elsewhere), OPERATION(destroy_mipmapped), OPERATION(destroy_texture), OPERATION(set_limit_stack),
    OPERATION(set_limit_printf), OPERATION(set_limit_heap), OPERATION(set_limit_depth), OPERATION(set_limit_persisting),
    OPERATION(stop_profiler), OPERATION(trim_pool), OPERATION(destroy_pool), OPERATION(free_pool_memory), OPERATION(create_stream),
    OPERATION(destroy_stream), OPERATION(destroy_event), OPERATION(synchronize_stream), OPERATION(synchronize_legacy),
    OPERATION(query_legacy), OPERATION(synchronize_event_of_legacy), OPERATION(record_event_of_context), OPERATION(set),
    OPERATION(copy_to_device), OPERATION(copy_to_host), OPERATION(d2h_far), OPERATION(memory_info), OPERATION(enable_peer),
    OPERATION(ipc_handle), OPERATION(instantiate_graph), OPERATION(destroy_graph), OPERATION(trim_graphs), OPERATION(map_memory),
    OPERATION(unmap_memory), OPERATION(destroy_other_context), OPERATION(synchronize_other_context), OPERATION(free_of_other_context),
};

/* ---- A case ---- */

static int patience = 700;
static volatile int has_returned;

/* Lets the work go. Answers, by way of the thread's end, whether the operation had not returned by then. */
static void *let_go_later(void *has_waited)
{
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do {
        sleep_for(1);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (!has_returned && (now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < patience);
    *(int *)has_waited = !has_returned;
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
    CHECK(cudaSetDevice(own));
    switch (kind) {
    case LEGACY: stream = cudaStreamLegacy; break;
    case PER_THREAD: stream = cudaStreamPerThread; break;
    case BLOCKING: CHECK(cudaStreamCreate(&stream)); break;
    case NON_BLOCKING:
    case THIRD: CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    }
}

static void make_graph(enum place held)
{
    cudaGraph_t captured;
    cudaStream_t capturing = non_blocking_stream();
    CHECK(cudaStreamBeginCapture(capturing, cudaStreamCaptureModeRelaxed));
    CHECK(cudaMemcpyAsync(dst, src, BYTES, cudaMemcpyDefault, capturing));
    if (held == AFTER_IN_GRAPH)
        CHECK(cudaLaunchHostFunc(capturing, wait_for_host, NULL));
    CHECK(cudaStreamEndCapture(capturing, &captured));
    CHECK(cudaGraphInstantiateWithFlags(&graph, captured, 0));
}

/* The work that waits for the host, whose flags every device and the host see. */
static void make_work(int is_kernel)
{
    char *flags;
    CHECK(cudaHostAlloc((void **)&flags, FLAGS, cudaHostAllocPortable | cudaHostAllocMapped));
    is_let_go = (volatile int *)flags;
    has_begun = (volatile int *)(flags + FLAGS / 2);
    if (is_kernel) {
        CUmodule code;
        CHECK_CU(cuModuleLoadData(&code, spin_code));
        CHECK_CU(cuModuleGetFunction(&spin, code, "spin"));
    }
}

/* All that the copy and the operation take; the copy has been made a few times. Ends with the copy's device current. */
static void prepare(const struct form *form, const struct operation *operation, int is_kernel)
{
    fill(pattern, BYTES, 1);
    is_pull = form->is_pull;
    is_copy_over = form->held != BEFORE;
    far_end = memory_on(OTHER, form->memory);
    near_end = memory_on(0, form->memory);
    src = is_pull ? far_end : near_end;
    dst = is_pull ? near_end : far_end;
    CHECK(cudaSetDevice(device_of(src)));
    CHECK(cudaMemcpy(src, pattern, BYTES, cudaMemcpyDefault));
    CHECK(cudaSetDevice(current));
    CHECK(cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    make_stream(form->stream);
    make_work(is_kernel);
    if (form->copy == copy_graph)
        make_graph(form->held);
    *is_let_go = 1;
    for (int i = 0; i < WARM_UPS; i++) {
        form->copy();
        CHECK(cudaStreamSynchronize(stream));
    }
    CHECK(cudaSetDevice(device_of(dst)));
    CHECK(cudaMemset(dst, 0, BYTES));
    for (int device = 0; device < 2; device++) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaDeviceSynchronize());
    }
    CHECK(cudaSetDevice(current));
    int code = operation->call(0);
    if (code != 0) {
        fprintf(stderr, "what %s takes: code %d\n", operation->name, code);
        exit(1);
    }
    CHECK(cudaSetDevice(own));
}

static int run(const struct form *form, const struct operation *operation, int is_kernel)
{
    pthread_t thread;
    const char *bytes = "gone";
    int has_waited, devices = 0;
    own = form->stream == THIRD ? ELSEWHERE : 0;
    CHECK(cudaGetDeviceCount(&devices));
    if (devices <= own || devices <= current || (strstr(operation->name, "_elsewhere") && devices <= ELSEWHERE))
        skip("too few devices");
    prepare(form, operation, is_kernel);

    *is_let_go = *has_begun = 0;
    if (form->held == BEFORE)
        hold(stream);
    form->copy();
    if (form->held == AFTER)
        hold(stream);
    while (!*has_begun)
        sleep_for(1);
    CHECK(cudaSetDevice(current));
    REQUIRE(pthread_create(&thread, NULL, let_go_later, &has_waited) == 0);
    int code = operation->call(1);
    has_returned = 1;
    REQUIRE(pthread_join(thread, NULL) == 0);

    CHECK(cudaSetDevice(own));
    int end = stream ? cudaStreamSynchronize(stream) : cudaDeviceSynchronize();
    if (!is_gone) {
        cudaError_t read = cudaMemcpy(found, dst, BYTES, cudaMemcpyDefault);
        bytes = read == cudaSuccess && memcmp(found, pattern, BYTES) == 0 ? "right" : "wrong";
    }
    printf("%s %s %d: %s, code %d, end %d, %s\n", form->name, operation->name, current, has_waited ? "waits" : "at once", code, end, bytes);
    fflush(stdout);
    /* What is left of contexts that have ended is nothing to tidy up. */
    _exit(0);
}

int main(int argc, char **argv)
{
    const struct form *form = NULL;
    const struct operation *operation = NULL;
    size_t form_count = sizeof forms / sizeof *forms, operation_count = sizeof operations / sizeof *operations;
    const char *milliseconds = getenv("IMPLICIT_WAITS_PATIENCE");
    if (argc == 2 && strcmp(argv[1], "list") == 0) {
        for (size_t i = 0; i < form_count; i++)
            printf("copy %s\n", forms[i].name);
        for (size_t i = 0; i < operation_count; i++)
            printf("operation %s\n", operations[i].name);
        return 0;
    }
    for (size_t i = 0; argc > 2 && i < form_count; i++)
        form = strcmp(argv[1], forms[i].name) == 0 ? &forms[i] : form;
    for (size_t i = 0; argc > 2 && i < operation_count; i++)
        operation = strcmp(argv[2], operations[i].name) == 0 ? &operations[i] : operation;
    if (!form || !operation) {
        fprintf(stderr, "implicit_waits COPY OPERATION [CURRENT [kernel]]; `implicit_waits list` lists copies and operations\n");
        return 2;
    }
    title[0] = form->name;
    title[1] = operation->name;
    patience = milliseconds ? atoi(milliseconds) : patience;
    current = argc > 3 ? atoi(argv[3]) : current;
    return run(form, operation, argc > 4 && strcmp(argv[4], "kernel") == 0);
}
