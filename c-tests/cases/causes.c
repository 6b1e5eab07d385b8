/* build: 12 driver; run: causes CASE on sim
 * Calls that fail, or succeed beside a mistake, for one cause that is easily taken for another: tests/it/causes.rs says which.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <sched.h>

#include "check.h"
#include "lib/mappings.h"

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
    CHECK(cudaSetDevice(device));
    cudaStream_t stream = non_blocking_stream();
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
    CUmemAccessDesc access[2] = {access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), access_of(1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)};
    CUdeviceptr at = mapped_memory(0, GRANULE, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    SHOW_CU(cuMemSetAccess(at, GRANULE, access, 2));
    SHOW(cudaMemcpyPeer(memory[1], 1, (void *)at, 0, 4096));
    SHOW_CU(cuMemSetAccess(at, GRANULE, access, 1));
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

static const struct named_case cases[] = {
    NAMED(lost_regular), NAMED(lost_peer), NAMED(lost_unseen), NAMED(lost_by_copy), NAMED(wrong_current), NAMED(twice), NAMED(enable),
    NAMED(limit_reached), NAMED(limit_apart), NAMED(disables_under_copy), NAMED(disables_behind_copy), NAMED(mapped_refused),
    NAMED(pitches), NAMED(reset), NAMED(source_overwritten), NAMED(pending), NAMED(pending_of_checked), NAMED(pending_access),
};

int main(int argc, char **argv)
{
    REQUIRE(argc == 2);
    const struct named_case *chosen = FIND_CASE(cases, argv[1]);
    REQUIRE(chosen);
    set_up();
    chosen->run();
    fflush(stdout);
    _exit(0); /* a context may be lost */
}
