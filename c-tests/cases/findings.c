/* build: runtime old driver; run: findings runtime|driver CASE fires|silent on sim
 * What the shim's rules are about and a single call in a fresh process cannot show: one mistake each (`fires`), and beside
 * it the call as it should be (`silent`), which may differ in one thing only.
 *
 * By `driver` the peer functions of the driver are called, by `runtime` those of the runtime; all else is the same.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "check.h"
#include "lib/mappings.h"

enum { DEVICES = 3, SIZE = GRANULE };

static bool by_driver, fires;
static CUcontext contexts[DEVICES];
static void *memory[DEVICES];

/* ---- The peer functions of either API ---- */

static int copy(void *dst, int to, const void *src, int from, size_t count)
{
    if (by_driver)
        return (int)cuMemcpyPeer((CUdeviceptr)dst, contexts[to], (CUdeviceptr)src, contexts[from], count);
    return (int)cudaMemcpyPeer(dst, to, src, from, count);
}

static int copy_async(void *dst, int to, const void *src, int from, size_t count, cudaStream_t stream)
{
    if (by_driver)
        return (int)cuMemcpyPeerAsync((CUdeviceptr)dst, contexts[to], (CUdeviceptr)src, contexts[from], count, stream);
    return (int)cudaMemcpyPeerAsync(dst, to, src, from, count, stream);
}

static int enable(int peer)
{
    return by_driver ? (int)cuCtxEnablePeerAccess(contexts[peer], 0) : (int)cudaDeviceEnablePeerAccess(peer, 0);
}

static int disable(int peer)
{
    return by_driver ? (int)cuCtxDisablePeerAccess(contexts[peer]) : (int)cudaDeviceDisablePeerAccess(peer);
}

static int can_access(int *can)
{
    return by_driver ? (int)cuDeviceCanAccessPeer(can, 0, 1) : (int)cudaDeviceCanAccessPeer(can, 0, 1);
}

/* ---- What the cases need ---- */

static int device_count(void)
{
    int count;
    CHECK(cudaGetDeviceCount(&count));
    return count < DEVICES ? count : DEVICES;
}

/* Memory on each device; device 0 is current. */
static void set_up(void)
{
    for (int device = device_count() - 1; device >= 0; device--) {
        memory[device] = device_memory(device, SIZE);
        CHECK_CU(cuCtxGetCurrent(&contexts[device]));
    }
}

static cudaStream_t stream_of(int device, unsigned flags)
{
    cudaStream_t stream;
    CHECK(cudaSetDevice(device));
    CHECK(cudaStreamCreateWithFlags(&stream, flags));
    CHECK(cudaSetDevice(0));
    return stream;
}

static atomic_bool may_end;

static void CUDART_CB wait_for_the_host(void *nothing)
{
    (void)nothing;
    while (!atomic_load(&may_end))
        usleep(100);
}

static void CUDART_CB wait_a_little(void *nothing)
{
    (void)nothing;
    usleep(100000);
}

static void many_copies(const void *src)
{
    for (int i = 0; i < 40; i++)
        printf("%d\n", copy(memory[1], 1, src, 0, SIZE));
}

/* ---- Peer access ---- */

/* There is no path between the two: P2PSIM_NO_P2P. */
static void enable_unsupported(void)
{
    int can;
    printf("%d\n", can_access(&can));
    if (fires || can)
        printf("%d\n", enable(1));
    printf("%d\n", copy(memory[1], 1, memory[0], 0, SIZE));
}

/* P2PSIM_MAX_PEERS=1 */
static void enable_limit(void)
{
    printf("%d\n", enable(1));
    if (!fires)
        printf("%d\n", disable(1));
    printf("%d\n", enable(2));
}

static void enable_churn(void)
{
    for (int i = 0; i < (fires ? 10 : 1); i++) {
        printf("%d\n", enable(1));
        printf("%d\n", copy(memory[1], 1, memory[0], 0, SIZE));
        printf("%d\n", disable(1));
    }
}

/* What the slot holds is looked at with cudaPeekAtLastError, which leaves it there; or it is taken out. */
static void left_behind(void)
{
    printf("%d\n", fires ? cudaPeekAtLastError() : cudaGetLastError());
    printf("%d\n", copy(memory[1], 1, memory[0], 0, SIZE));
    printf("%d\n", cudaGetLastError());
}

static void left_behind_704(void)
{
    printf("%d\n", enable(1));
    printf("%d\n", enable(1));
    left_behind();
}

static void left_behind_705(void)
{
    printf("%d\n", disable(1));
    left_behind();
}

/* ---- Copies ---- */

static void freed_memory(void)
{
    CHECK(cudaFree(memory[0]));
    void *before = memory[0];
    if (!fires) {
        CHECK(cudaMalloc(&memory[0], SIZE));
        printf("%s\n", memory[0] == before ? "the same address again" : "another address");
    }
    printf("%d\n", copy(memory[1], 1, memory[0], 0, SIZE));
}

static void unknown_pointer(void)
{
    /* In the first page, where nothing is. */
    printf("%d\n", copy(memory[1], 1, fires ? (void *)2048 : memory[0], 0, 64));
}

static void freed_in_order(void)
{
    cudaStream_t stream = stream_of(0, cudaStreamDefault);
    void *pooled;
    CHECK(cudaMallocAsync(&pooled, SIZE, stream));
    if (fires)
        CHECK(cudaFreeAsync(pooled, stream));
    printf("%d\n", copy_async(memory[1], 1, pooled, 0, SIZE, stream));
    if (!fires)
        CHECK(cudaFreeAsync(pooled, stream));
    CHECK(cudaStreamSynchronize(stream));
}

static void destroyed_stream(void)
{
    cudaStream_t stream = stream_of(0, cudaStreamDefault), before = stream;
    printf("%d\n", copy_async(memory[1], 1, memory[0], 0, SIZE, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaStreamDestroy(stream));
    if (!fires) {
        stream = stream_of(0, cudaStreamDefault);
        printf("%s\n", stream == before ? "the same handle again" : "another handle");
    }
    printf("%d\n", copy_async(memory[1], 1, memory[0], 0, SIZE, stream));
}

/* 16 rows of 256 texels of 4 bytes, from an array. */
static int copy_from_array(cudaArray_t array)
{
    if (by_driver) {
        CUDA_MEMCPY3D_PEER q = {.srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = (CUarray)array,
                                .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = (CUdeviceptr)memory[1],
                                .dstContext = contexts[1], .dstPitch = 1024, .dstHeight = 16,
                                .WidthInBytes = 1024, .Height = 16, .Depth = 1};
        return (int)cuMemcpy3DPeer(&q);
    }
    struct cudaMemcpy3DPeerParms p = {.srcArray = array, .srcDevice = 0, .dstDevice = 1,
                                      .dstPtr = {memory[1], 1024, 1024, 16}, .extent = {256, 16, 1}};
    return (int)cudaMemcpy3DPeer(&p);
}

static void destroyed_array(void)
{
    struct cudaChannelFormatDesc texel = {.x = 32, .f = cudaChannelFormatKindUnsigned};
    struct cudaExtent extent = {256, 16, 4};
    cudaArray_t array;
    CHECK(cudaMalloc3DArray(&array, &texel, extent, 0));
    if (fires)
        CHECK(cudaFreeArray(array));
    printf("%d\n", copy_from_array(array));
}

static void mapped_no_access(void)
{
    CUdeviceptr mapped = mapped_memory(0, GRANULE, fires ? CU_MEM_ACCESS_FLAGS_PROT_NONE : CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    printf("%d\n", copy(memory[1], 1, (void *)mapped, 0, 4096));
}

/* ---- Order ---- */

/* Three devices: the third takes no part. */
static void stream_elsewhere(void)
{
    for (int device = 0; device < DEVICES; device++) {
        cudaStream_t stream = stream_of(device, cudaStreamNonBlocking);
        if (fires || device < 2)
            printf("%d\n", copy_async(memory[1], 1, memory[0], 0, SIZE, stream));
        CHECK(cudaStreamSynchronize(stream));
    }
}

static void default_stream(void)
{
    cudaStream_t streams[] = {0, cudaStreamLegacy, cudaStreamPerThread};
    for (int device = 0; device < DEVICES; device++)
        for (size_t i = 0; i < sizeof streams / sizeof *streams && (fires || device < 2); i++) {
            CHECK(cudaSetDevice(device));
            printf("%d\n", copy_async(memory[1], 1, memory[0], 0, SIZE, streams[i]));
            CHECK(cudaDeviceSynchronize());
        }
    CHECK(cudaSetDevice(0));
}

static void non_blocking(void)
{
    cudaStream_t stream = stream_of(0, cudaStreamNonBlocking);
    CHECK(cudaLaunchHostFunc(stream, wait_for_the_host, NULL));
    if (!fires) {
        atomic_store(&may_end, true);
        CHECK(cudaStreamSynchronize(stream));
    }
    printf("%d\n", copy(memory[1], 1, memory[0], 0, SIZE));
    atomic_store(&may_end, true);
    CHECK(cudaStreamSynchronize(stream));
}

/* The copy waits for a stream that is not one of those. */
static void blocking(void)
{
    cudaStream_t stream = stream_of(0, fires ? cudaStreamNonBlocking : cudaStreamDefault);
    CHECK(cudaLaunchHostFunc(stream, fires ? wait_for_the_host : wait_a_little, NULL));
    printf("%d\n", copy(memory[1], 1, memory[0], 0, SIZE));
    atomic_store(&may_end, true);
    CHECK(cudaStreamSynchronize(stream));
}

static void *copy_there(void *nothing)
{
    CHECK_CU(cuCtxSetCurrent(contexts[0]));
    printf("%d\n", copy(memory[1], 1, memory[0], 0, SIZE));
    return nothing;
}

/* What threads do beside each other is not meant to be ordered: a second one copies while the first one's stream works. */
static void of_another_thread(void)
{
    cudaStream_t stream = stream_of(0, cudaStreamNonBlocking);
    CHECK(cudaLaunchHostFunc(stream, wait_for_the_host, NULL));
    if (fires)
        copy_there(NULL);
    else
        run_in_thread(copy_there, NULL);
    atomic_store(&may_end, true);
    CHECK(cudaStreamSynchronize(stream));
}

/* ---- Performance ---- */

/* P2PSHIM_ACCESS=app */
static void never_enabled(void)
{
    if (!fires)
        printf("%d\n", enable(1));
    many_copies(memory[0]);
}

/* ---- Graphs ---- */

static void launch(cudaGraphExec_t exec)
{
    int launched = by_driver ? (int)cuGraphLaunch((CUgraphExec)exec, 0) : (int)cudaGraphLaunch(exec, 0);
    printf("%d\n", launched);
    printf("%d\n", cudaStreamSynchronize(0));
}

static cudaGraphExec_t instantiate(void)
{
    cudaGraph_t graph;
    cudaGraphNode_t node;
    cudaGraphExec_t exec;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddMemcpyNode1D(&node, graph, NULL, 0, memory[1], memory[0], SIZE, cudaMemcpyDefault));
    CHECK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
}

/* P2PSHIM_ACCESS=app */
static void graph_staged(void)
{
    if (!fires)
        printf("%d\n", enable(1));
    cudaGraphExec_t exec = instantiate();
    if (fires)
        printf("%d\n", enable(1));
    launch(exec);
}

/* P2PSHIM_ACCESS=app */
static void graph_lost(void)
{
    printf("%d\n", enable(1));
    cudaGraphExec_t exec = instantiate();
    if (fires)
        printf("%d\n", disable(1));
    launch(exec);
}

/* P2PSHIM_POOLS=app */
static void pool(void)
{
    void *pooled;
    CUmemoryPool of_device;
    CHECK_CU(cuDeviceGetDefaultMemPool(&of_device, 0));
    if (!fires)
        CHECK_CU(grant_pool(of_device, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    CHECK(cudaMallocAsync(&pooled, SIZE, 0));
    CHECK(cudaStreamSynchronize(0));
    many_copies(pooled);
}

static void mapped(void)
{
    CUdeviceptr at = mapped_memory(0, GRANULE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (!fires)
        CHECK_CU(grant_mapping(at, GRANULE, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    many_copies((void *)at);
}

static void small_copies(void)
{
    cudaStream_t stream = stream_of(0, cudaStreamDefault);
    size_t count = fires ? 512 : 8192;
    for (int i = 0; i < 1200; i++)
        if (copy_async(memory[1], 1, memory[0], 0, count, stream) != 0)
            printf("copy %d\n", i);
    CHECK(cudaStreamSynchronize(stream));
}

static void synchronous_loop(void)
{
    cudaStream_t stream = stream_of(0, cudaStreamDefault);
    for (int i = 0; i < 300; i++) {
        int error = fires ? copy(memory[1], 1, memory[0], 0, 65536)
                          : copy_async(memory[1], 1, memory[0], 0, 65536, stream);
        if (error)
            printf("copy %d\n", i);
    }
    CHECK(cudaStreamSynchronize(stream));
}

/* ---- Errors ---- */

/* P2PSIM_FAULT says which; or none. */
static void one_copy(void)
{
    printf("%d\n", copy(memory[1], 1, memory[0], 0, SIZE));
}

/* The driver was not initialised; there is no device, for the runtime (P2PSIM_DEVICES=0). */
static void no_driver(void)
{
    int can;
    if (!fires)
        CHECK_CU(cuInit(0));
    printf("%d\n", can_access(&can));
}

static const struct named_case cases[] = {
    NAMED(enable_unsupported), NAMED(enable_limit), NAMED(enable_churn), NAMED(left_behind_704),
    NAMED(left_behind_705), NAMED(freed_memory), NAMED(freed_in_order), NAMED(unknown_pointer), NAMED(destroyed_stream),
    NAMED(mapped_no_access), NAMED(destroyed_array), NAMED(stream_elsewhere), NAMED(default_stream), NAMED(non_blocking), NAMED(blocking),
    NAMED(of_another_thread), NAMED(never_enabled), NAMED(pool), NAMED(mapped), NAMED(small_copies),
    NAMED(synchronous_loop), NAMED(one_copy), NAMED(no_driver), NAMED(graph_staged), NAMED(graph_lost),
};

int main(int argc, char **argv)
{
    REQUIRE(argc == 4);
    by_driver = strcmp(argv[1], "driver") == 0;
    fires = strcmp(argv[3], "fires") == 0;
    const struct named_case *chosen = FIND_CASE(cases, argv[2]);
    REQUIRE(chosen);
    if (chosen->run != no_driver)
        set_up();
    chosen->run();
    fflush(stdout);
    _exit(0); /* a context may be lost */
}
