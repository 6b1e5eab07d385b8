/* build: 12 driver; run: causes CASE on sim
 * Calls that fail, or succeed beside a mistake, for one cause that is easily taken for another: tests/it/causes.rs says which.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <sched.h>

#include "check.h"

enum { SIZE = 4 << 20 };

static char *memory[2];

/* Memory on devices 0 and 1; device 0 is current. */
static void set_up(void)
{
    for (int device = 1; device >= 0; device--)
        memory[device] = device_memory(device, SIZE);
}

static cudaStream_t stream_of(int device)
{
    cudaStream_t stream;
    CHECK(cudaSetDevice(device));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaSetDevice(0));
    return stream;
}

/* ---- Captures ---- */

static void capture_lost(int names_devices, int by_unseen)
{
    cudaGraph_t graph;
    cudaStream_t stream = stream_of(0);
    void *other;
    CHECK(cudaMalloc(&other, 64));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    if (by_unseen)
        SHOW(cudaStreamQuery(stream));
    else
        SHOW(cudaFree(other));
    if (names_devices)
        SHOW(cudaMemcpyPeerAsync(memory[1], 1, memory[0], 0, 64, stream));
    else
        SHOW(cudaMemcpyAsync(memory[1], memory[0], 64, cudaMemcpyDefault, stream));
    SHOW(cudaStreamEndCapture(stream, &graph));
}

static void lost_regular(void)
{
    capture_lost(0, 0);
}

static void lost_peer(void)
{
    capture_lost(1, 0);
}

static void lost_unseen(void)
{
    capture_lost(1, 1);
}

/* P2PSHIM_CAPTURE=forward: the first copy loses the capture itself. */
static void lost_by_copy(void)
{
    cudaGraph_t graph;
    cudaStream_t stream = stream_of(0);
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    SHOW(cudaMemcpyPeerAsync(memory[1], 1, memory[0], 0, 64, stream));
    SHOW(cudaMemcpyPeerAsync(memory[1], 1, memory[0], 0, 128, stream));
    SHOW(cudaStreamEndCapture(stream, &graph));
    /* Another capture, which is not lost before its copy. */
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    SHOW(cudaMemcpyPeerAsync(memory[1], 1, memory[0], 0, 256, stream));
    SHOW(cudaStreamEndCapture(stream, &graph));
}

/* ---- Peer access ---- */

static void wrong_current(void)
{
    CUcontext contexts[2];
    for (int device = 0; device < 2; device++)
        CHECK_CU(cuDevicePrimaryCtxRetain(&contexts[device], device));
    CHECK_CU(cuCtxSetCurrent(contexts[1]));
    SHOW_CU(cuCtxEnablePeerAccess(contexts[0], 0));
    SHOW_CU(cuCtxEnablePeerAccess(contexts[1], 0));
}

static void twice(void)
{
    SHOW(cudaDeviceDisablePeerAccess(1));
    SHOW(cudaDeviceEnablePeerAccess(1, 0));
    SHOW(cudaDeviceEnablePeerAccess(1, 0));
}

static void enable(void)
{
    SHOW(cudaDeviceEnablePeerAccess(1, 0));
}

/* Four devices, P2PSIM_MAX_PEERS=2 */
static void limit(int is_reached)
{
    if (is_reached) {
        CHECK(cudaSetDevice(1));
        CHECK(cudaDeviceEnablePeerAccess(0, 0));
        CHECK(cudaSetDevice(0));
    }
    for (int peer = 2; peer < 4; peer++)
        CHECK(cudaDeviceEnablePeerAccess(peer, 0));
    SHOW(cudaDeviceEnablePeerAccess(1, 0));
    SHOW(cudaMemcpyPeer(memory[1], 1, memory[0], 0, SIZE));
}

static void limit_reached(void)
{
    limit(1);
}

static void limit_apart(void)
{
    limit(0);
}

static void CUDART_CB wait_for(void *may_end)
{
    while (!*(volatile int *)may_end)
        usleep(100);
}

static void disables(int waits)
{
    static volatile int may_end;
    cudaStream_t stream = stream_of(0);
    SHOW(cudaDeviceEnablePeerAccess(1, 0));
    CHECK(cudaMemcpyAsync(memory[1], memory[0], SIZE, cudaMemcpyDefault, stream));
    CHECK(cudaLaunchHostFunc(stream, wait_for, (void *)&may_end));
    if (waits) {
        may_end = 1;
        CHECK(cudaStreamSynchronize(stream));
    }
    SHOW(cudaDeviceDisablePeerAccess(1));
    may_end = 1;
    /* Which fails without p2pshim, and with it if access is really disabled. */
    cudaStreamSynchronize(stream);
}

static void disables_under_copy(void)
{
    disables(0);
}

static void disables_behind_copy(void)
{
    disables(1);
}

/* ---- Memory ---- */

/* Mapped, and opened to devices 0 and 1 with one call, which fails if there is no path: P2PSIM_NO_P2P=0-1. */
static void mapped_refused(void)
{
    CUmemAllocationProp what = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    CUmemGenericAllocationHandle handle;
    CUmemAccessDesc access[2] = {0};
    CUdeviceptr at;
    size_t size;
    what.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CHECK_CU(cuMemGetAllocationGranularity(&size, &what, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK_CU(cuMemCreate(&handle, size, &what, 0));
    CHECK_CU(cuMemAddressReserve(&at, size, 0, 0, 0));
    CHECK_CU(cuMemMap(at, size, 0, handle, 0));
    for (int device = 0; device < 2; device++) {
        access[device].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access[device].location.id = device;
        access[device].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    SHOW_CU(cuMemSetAccess(at, size, access, 2));
    SHOW(cudaMemcpyPeer(memory[1], 1, (void *)at, 0, 4096));
    SHOW_CU(cuMemSetAccess(at, size, access, 1));
    SHOW(cudaMemcpyPeer(memory[1], 1, (void *)at, 0, 4096));
}

static void pitches(void)
{
    SHOW(cudaMemcpy2DAsync(memory[1], 50, memory[0], 512, 100, 10, cudaMemcpyDeviceToDevice, 0));
    SHOW(cudaMemcpy2D(memory[1], 512, memory[0], 50, 100, 10, cudaMemcpyDeviceToDevice));
}

static void reset(void)
{
    cudaStream_t stream = stream_of(1);
    CHECK(cudaMemcpyPeerAsync(memory[1], 1, memory[0], 0, 64, stream));
    CHECK(cudaSetDevice(1));
    CHECK(cudaDeviceReset());
    SHOW(cudaMemcpyPeerAsync(memory[0], 0, memory[0] + 4096, 0, 64, stream));
}

enum { LARGE = 16 << 20 };

static char *source;
static atomic_int rounds, copies_are_over;

/* With another value each time, so that what is read later is never what was read before. */
static void *overwrite(void *nothing)
{
    CHECK(cudaSetDevice(1));
    for (int value = 1; !copies_are_over; value++) {
        CHECK(cudaMemset(source, value, LARGE));
        rounds++;
    }
    return nothing;
}

/* P2PSIM_NO_P2P=0-1: a source that another thread overwrites all the time. */
static void source_overwritten(void)
{
    char *dst;
    pthread_t thread;
    cudaStream_t stream = stream_of(0);
    CHECK(cudaMalloc((void **)&dst, LARGE));
    source = device_memory(1, LARGE);
    REQUIRE(pthread_create(&thread, NULL, overwrite, NULL) == 0);
    /* Each copy begins while the other thread runs, and the last ones when it has run for a while, however busy the machine is. */
    for (int i = 0; i < 100; i++) {
        for (int before = rounds; rounds == before;)
            sched_yield();
        CHECK(cudaMemcpyPeerAsync(dst, 0, source, 1, LARGE, stream));
        CHECK(cudaStreamSynchronize(stream));
    }
    copies_are_over = 1;
    REQUIRE(pthread_join(thread, NULL) == 0);
}

/* ---- Pending errors ---- */

static void copies(cudaStream_t stream)
{
    for (int i = 0; i < 3; i++)
        CHECK(cudaMemcpyPeerAsync(memory[1], 1, memory[0], 0, 64, stream));
    CHECK(cudaStreamSynchronize(stream));
}

/* Those of calls that p2pshim does not check: 400 and 712. */
static void pending(void)
{
    cudaEvent_t event;
    cudaStream_t stream = stream_of(0), other = stream_of(1);
    void *host = malloc(SIZE);
    REQUIRE(host != NULL);
    copies(stream);
    CHECK(cudaEventCreate(&event));
    SHOW(cudaEventRecord(event, other));
    copies(stream);
    SHOW(cudaGetLastError());
    copies(stream);
    CHECK(cudaHostRegister(host, SIZE, 0));
    SHOW(cudaHostRegister(host, SIZE, 0));
    SHOW(cudaMemcpyPeer(memory[1], 1, memory[0], 0, 64));
    SHOW(cudaGetLastError());
}

/* Of a call that is checked enough was said. */
static void pending_of_checked(void)
{
    cudaStream_t stream = stream_of(0);
    SHOW(cudaMemcpyPeerAsync(memory[1], 1, memory[0], 0, 2 * SIZE, stream));
    copies(stream);
    SHOW(cudaGetLastError());
}

static void pending_access(void)
{
    cudaStream_t stream = stream_of(0);
    SHOW(cudaDeviceDisablePeerAccess(1));
    copies(stream);
    SHOW(cudaGetLastError());
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
#define CASE(name) {#name, name}
    CASE(lost_regular), CASE(lost_peer), CASE(lost_unseen), CASE(lost_by_copy), CASE(wrong_current), CASE(twice), CASE(enable),
    CASE(limit_reached), CASE(limit_apart), CASE(disables_under_copy), CASE(disables_behind_copy), CASE(mapped_refused),
    CASE(pitches), CASE(reset), CASE(source_overwritten), CASE(pending), CASE(pending_of_checked), CASE(pending_access),
};

int main(int argc, char **argv)
{
    REQUIRE(argc == 2);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(argv[1], cases[i].name) == 0) {
            set_up();
            cases[i].run();
            fflush(stdout);
            _exit(0); /* a context may be lost */
        }
    fprintf(stderr, "there is no case %s\n", argv[1]);
    return 2;
}
