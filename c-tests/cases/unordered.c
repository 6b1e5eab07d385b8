/* build: runtime12+; run: unordered CASE wrong|right on sim gpu
 * Work on two GPUs with an order that is missing, or its twin that has it. A stream of the first access is held up, so that the second one comes
 * first where nothing orders them. Prints how many bytes are not as a right program has them.
 *
 *   event       a copy between GPUs, and a read of the destination on another stream
 *   batch       a memset, and a batch that reads on another stream
 *   default     a memset on a non-blocking stream, and a copy on the default stream
 *   ring        copies around a ring, each behind the one of the wrong neighbour
 *   reuse       a copy, and a memset of its source on another stream
 *   free        a copy, and cudaFreeAsync of its source on another stream
 *   unmap       a copy, and cudaFree of its source where access is enabled
 *   staged      a copy, and a read of the destination once the host has waited for GPU 1: ordered if the copy is staged; or for the copy's stream
 *   graph       two copies to the same memory in a graph
 *   host        a copy, a function of the host behind it, and a read on another stream after the host has seen it: right, and a possible race
 */
#include <cuda_runtime_api.h>

#include "check.h"

enum { BYTES = 1 << 20, HELD_UP = 60000 };

static bool is_right;
static cudaStream_t streams[2][2];
static char *buffers[2][3];
static atomic_int told;

static void CUDART_CB nap(void *microseconds)
{
    usleep((useconds_t)(uintptr_t)microseconds);
}

static void CUDART_CB tell(void *unused)
{
    (void)unused;
    told = 1;
}

static void hold_up(cudaStream_t stream)
{
    CHECK(cudaLaunchHostFunc(stream, nap, (void *)(uintptr_t)HELD_UP));
}

/* The second stream waits for the first one, in a program that is right. */
static void order(cudaStream_t first, cudaStream_t second)
{
    cudaEvent_t event;
    if (!is_right)
        return;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK(cudaEventRecord(event, first));
    CHECK(cudaStreamWaitEvent(second, event, 0));
    CHECK(cudaEventDestroy(event));
}

static void show(const char *at, int expected, cudaStream_t stream)
{
    static char host[BYTES];
    size_t wrong = 0;
    memset(host, 0x55, sizeof host);
    CHECK(cudaMemcpyAsync(host, at, BYTES, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (size_t i = 0; i < BYTES; i++)
        wrong += host[i] != expected;
    printf("%zu bytes are wrong\n", wrong);
}

static void all_idle(void)
{
    for (int device = 0; device < 2; device++) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaDeviceSynchronize());
    }
}

static void of_event(void)
{
    hold_up(streams[0][0]);
    CHECK(cudaMemcpyPeerAsync(buffers[1][0], 1, buffers[0][0], 0, BYTES, streams[0][0]));
    order(streams[0][0], streams[1][0]);
    CHECK(cudaSetDevice(1));
    show(buffers[1][0], 1, streams[1][0]);
}

static void of_batch(void)
{
    void *to[] = {buffers[1][0]}, *from[] = {buffers[0][0]};
    size_t bytes[] = {BYTES}, first[] = {0};
    struct cudaMemcpyAttributes attributes = {.srcAccessOrder = cudaMemcpySrcAccessOrderStream};
    hold_up(streams[0][0]);
    CHECK(cudaMemsetAsync(buffers[0][0], 7, BYTES, streams[0][0]));
    order(streams[0][0], streams[0][1]);
#if CUDART_VERSION >= 13000
    CHECK(cudaMemcpyBatchAsync((void *const *)to, (const void *const *)from, bytes, 1, &attributes, first, 1, streams[0][1]));
#else
    size_t failed = 0;
    CHECK(cudaMemcpyBatchAsync(to, from, bytes, 1, &attributes, first, 1, &failed, streams[0][1]));
#endif
    show(buffers[1][0], 7, streams[0][1]);
}

static void of_default(void)
{
    hold_up(streams[0][0]);
    CHECK(cudaMemsetAsync(buffers[0][0], 7, BYTES, streams[0][0]));
    order(streams[0][0], 0);
    CHECK(cudaMemcpyAsync(buffers[1][0], buffers[0][0], BYTES, cudaMemcpyDefault, 0));
    show(buffers[1][0], 7, 0);
}

static void of_ring(void)
{
    cudaEvent_t sent[2];
    for (int device = 0; device < 2; device++) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaEventCreateWithFlags(&sent[device], cudaEventDisableTiming));
    }
    for (int step = 0; step < 2; step++)
        for (int device = 0; device < 2; device++) {
            CHECK(cudaSetDevice(device));
            if (step > 0)
                CHECK(cudaStreamWaitEvent(streams[device][0], sent[is_right ? 1 - device : device], 0));
            else if (device == 1)
                hold_up(streams[device][0]);
            CHECK(cudaMemcpyPeerAsync(buffers[1 - device][step + 1], 1 - device, buffers[device][step], device, BYTES, streams[device][0]));
            if (step == 0)
                CHECK(cudaEventRecord(sent[device], streams[device][0]));
        }
    all_idle();
    show(buffers[1][2], 2, streams[1][0]);
}

static void of_reuse(void)
{
    hold_up(streams[0][0]);
    CHECK(cudaMemcpyPeerAsync(buffers[1][0], 1, buffers[0][0], 0, BYTES, streams[0][0]));
    order(streams[0][0], streams[0][1]);
    CHECK(cudaMemsetAsync(buffers[0][0], 9, BYTES, streams[0][1]));
    all_idle();
    show(buffers[1][0], 1, streams[1][0]);
}

static void of_free(void)
{
    void *pooled;
    CHECK(cudaMallocAsync(&pooled, BYTES, streams[0][0]));
    CHECK(cudaMemsetAsync(pooled, 3, BYTES, streams[0][0]));
    hold_up(streams[0][0]);
    CHECK(cudaMemcpyAsync(buffers[0][1], pooled, BYTES, cudaMemcpyDeviceToDevice, streams[0][0]));
    order(streams[0][0], streams[0][1]);
    CHECK(cudaFreeAsync(pooled, streams[0][1]));
    CHECK(cudaStreamSynchronize(streams[0][0]));
    show(buffers[0][1], 3, streams[0][0]);
}

static void of_unmap(void)
{
    CHECK(cudaSetDevice(1));
    CHECK(cudaDeviceEnablePeerAccess(0, 0));
    CHECK(cudaSetDevice(0));
    CHECK(cudaDeviceEnablePeerAccess(1, 0));
    if (!is_right)
        hold_up(streams[0][0]);
    CHECK(cudaMemcpyPeerAsync(buffers[1][0], 1, buffers[0][0], 0, BYTES, streams[0][0]));
    if (is_right)
        CHECK(cudaStreamSynchronize(streams[0][0]));
    CHECK(cudaSetDevice(1));
    CHECK(cudaFree(buffers[1][0]));
    CHECK(cudaSetDevice(0));
    printf("the copy ends with %d\n", cudaStreamSynchronize(streams[0][0]) != cudaSuccess);
}

static void of_staged(void)
{
    hold_up(streams[0][0]);
    CHECK(cudaMemcpyPeerAsync(buffers[1][0], 1, buffers[0][0], 0, BYTES, streams[0][0]));
    if (is_right)
        CHECK(cudaStreamSynchronize(streams[0][0]));
    CHECK(cudaSetDevice(1));
    CHECK(cudaDeviceSynchronize());
    show(buffers[1][0], 1, streams[1][0]);
}

static void of_graph(void)
{
    cudaStream_t first = streams[0][0], second = streams[0][1];
    cudaEvent_t fork, join;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeRelaxed));
    CHECK(cudaEventRecord(fork, first));
    CHECK(cudaStreamWaitEvent(second, fork, 0));
    hold_up(first);
    CHECK(cudaMemcpyAsync(buffers[1][0], buffers[0][0], BYTES, cudaMemcpyDefault, first));
    order(first, second);
    CHECK(cudaMemcpyAsync(buffers[1][0], buffers[0][1], BYTES, cudaMemcpyDefault, second));
    CHECK(cudaEventRecord(join, second));
    CHECK(cudaStreamWaitEvent(first, join, 0));
    CHECK(cudaStreamEndCapture(first, &graph));
    CHECK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, first));
    show(buffers[1][0], 0, first);
}

static void of_host(void)
{
    hold_up(streams[0][0]);
    CHECK(cudaMemcpyPeerAsync(buffers[1][0], 1, buffers[0][0], 0, BYTES, streams[0][0]));
    CHECK(cudaLaunchHostFunc(streams[0][0], tell, NULL));
    while (is_right && !told)
        usleep(1000);
    CHECK(cudaSetDevice(1));
    show(buffers[1][0], 1, streams[1][0]);
}

int main(int argc, char **argv)
{
    static const struct named_case cases[] = {{"event", of_event}, {"batch", of_batch}, {"default", of_default}, {"ring", of_ring},   {"reuse", of_reuse},
                 {"free", of_free},   {"unmap", of_unmap}, {"host", of_host},   {"staged", of_staged},
                 {"graph", of_graph}};
    REQUIRE(argc == 3);
    is_right = strcmp(argv[2], "right") == 0;
    for (int device = 0; device < 2; device++) {
        CHECK(cudaSetDevice(device));
        for (int i = 0; i < 2; i++)
            CHECK(cudaStreamCreateWithFlags(&streams[device][i], cudaStreamNonBlocking));
        for (int i = 0; i < 3; i++) {
            CHECK(cudaMalloc((void **)&buffers[device][i], BYTES));
            CHECK(cudaMemset(buffers[device][i], i == 0 ? device + 1 : 0, BYTES));
        }
    }
    all_idle();
    CHECK(cudaSetDevice(0));
    const struct named_case *chosen = FIND_CASE(cases, argv[1]);
    REQUIRE(chosen);
    chosen->run();
    all_idle();
    return 0;
}
