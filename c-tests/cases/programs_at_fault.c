/* build: cudart13; run: P2PSIM_DELAYS=1 programs_at_fault host|upload|elapsed|batch|stall on sim
 * Faults of programs that a machine must be as strict as CUDA to show.
 *
 *   host      the host reads device memory by its address
 *   upload    an upload from pageable memory returns before the last bytes are there: another stream finds old ones
 *   elapsed   the time between events of two devices
 *   batch     the source of a batch is used again while the batch is under way
 *   stall     a staged copy of one thread keeps another from allocating
 */
#include <cuda_runtime_api.h>

#include "check.h"

enum { BYTES = 4 << 20, LONG = 50 /* ms */ };

static void end(int number)
{
    static const char text[] = "ended by the signal\n";
    (void)number;
    _exit(write(1, text, sizeof text - 1) > 0 ? 0 : 1);
}

static void host(void)
{
    char *memory = device_memory(0, BYTES);
    CHECK(cudaMemset(memory, 7, BYTES));
    CHECK(cudaDeviceSynchronize());
    signal(SIGSEGV, end);
    printf("read %d\n", *(volatile char *)memory);
}

static void upload(void)
{
    char *near = device_memory(0, BYTES), *far = device_memory(1, BYTES), *source = malloc(BYTES), last = 0;
    cudaStream_t stream = non_blocking_stream();
    CHECK(cudaSetDevice(0));
    CHECK(cudaMemset(near, 0, BYTES));
    CHECK(cudaDeviceSynchronize());
    memset(source, 7, BYTES);
    CHECK(cudaMemcpy(near, source, BYTES, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpyPeerAsync(far, 1, near, 0, BYTES, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(&last, far + BYTES - 1, 1, cudaMemcpyDeviceToHost));
    printf("%s bytes\n", last == 7 ? "new" : "old");
}

static void elapsed(void)
{
    cudaEvent_t events[2];
    float milliseconds;
    for (int device = 0; device < 2; device++) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaEventCreate(&events[device]));
        CHECK(cudaEventRecord(events[device], 0));
        CHECK(cudaDeviceSynchronize());
    }
    SHOW(cudaEventElapsedTime(&milliseconds, events[0], events[1]));
}

static void CUDART_CB nap(void *unused)
{
    (void)unused;
    usleep(LONG * 1000);
}

static void batch(void)
{
    char *memory = device_memory(0, BYTES), *source, last = 0;
    CHECK(cudaHostAlloc((void **)&source, BYTES, 0));
    cudaStream_t stream = non_blocking_stream();
    memset(source, 7, BYTES);
    struct cudaMemcpyAttributes in_order = {.srcAccessOrder = cudaMemcpySrcAccessOrderStream};
    size_t bytes = BYTES, first = 0;
    CHECK(cudaLaunchHostFunc(stream, nap, NULL));
    CHECK(cudaMemcpyBatchAsync((void **)&memory, (const void **)&source, &bytes, 1, &in_order, &first, 1, stream));
    memset(source, 8, BYTES);
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(&last, memory + BYTES - 1, 1, cudaMemcpyDeviceToHost));
    printf("the batch copied %s\n", last == 7 ? "what was there" : "what came later");
}

static char *near, *far;
static volatile int begun;

static void *copies(void *unused)
{
    (void)unused;
    CHECK(cudaSetDevice(0));
    begun = 1;
    CHECK(cudaMemcpyPeerAsync(far, 1, near, 0, BYTES, cudaStreamPerThread));
    return NULL;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

/* The copy takes longer than that by the speed of staged copies that the test says. */
static void stall(void)
{
    pthread_t thread;
    void *more;
    near = device_memory(0, BYTES);
    far = device_memory(1, BYTES);
    CHECK(cudaSetDevice(0));
    REQUIRE(pthread_create(&thread, NULL, copies, NULL) == 0);
    while (!begun)
        usleep(100);
    usleep(20000);
    double before = now();
    CHECK(cudaMalloc(&more, BYTES));
    printf("cudaMalloc %s\n", now() - before > LONG ? "waits" : "returns at once");
    pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
    static const struct named_case faults[] = {NAMED(host), NAMED(upload), NAMED(elapsed), NAMED(batch), NAMED(stall)};
    REQUIRE(argc == 2);
    const struct named_case *chosen = FIND_CASE(faults, argv[1]);
    REQUIRE(chosen);
    chosen->run();
    return 0;
}
