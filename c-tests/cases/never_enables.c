/* build: runtime old driver; run: never_enables [pool|mapped] [enable] [counts] [times] [exit] on sim
 * Copies between two devices, in all forms and sizes, both ways, by two threads from the first moment on, and never
 * enables peer access, unless told to. Checks every byte. Exits with 0 only if all are right.
 *
 *   pool     the memory comes from the devices' memory pools
 *   mapped   the program maps the memory itself, for its own device only
 *   enable   peer access is enabled, both ways, before the first copy
 *   counts   says how the copies went after those that any threshold may have needed (simulated GPUs only)
 *   times    says how long the longest call took
 *   exit     ends by _exit, without a call that waits for a device
 */
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "check.h"
#include "lib/mappings.h"

enum {
    THREADS = 2,
    ROUNDS = 3,
    SMALL = 64,
    SMALLS = 24,
    PITCH = 256,
    WIDTH = 200,
    HEIGHT = 8,
    DEPTH = 4,
    BOX = PITCH * HEIGHT * DEPTH,
    BIG = (1 << 20) + 64,
    /* Where each form puts its bytes; all of it is less than what a mapping comes in. */
    AT_SYNC = 4096,
    AT_BOX = 8192,
    AT_SYNC_BOX = AT_BOX + BOX,
    AT_BIG = 65536,
    SIZE = AT_BIG + BIG,
    COPIES = SMALLS + 4, /* of a round, one way; the large one is synchronous every other time */
};

struct worker {
    int number;
    void *memory[2]; /* by device: sources and destinations alike */
    cudaStream_t streams[2];
    unsigned char *sent, *received, *expected;
    long wrong;
    double longest;
};

static pthread_barrier_t start;
static int pooled, mapped, enabled;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1000 + (double)time.tv_nsec / 1e6;
}

/* A call that must succeed, and how long it took. */
#define TIMED(worker, call)                                                                                            \
    do {                                                                                                               \
        double before = now();                                                                                         \
        CHECK(call);                                                                                                   \
        double took = now() - before;                                                                                  \
        if (took > (worker)->longest)                                                                                  \
            (worker)->longest = took;                                                                                  \
    } while (0)

static void set_up(struct worker *worker, int number)
{
    worker->number = number;
    for (int device = 0; device < 2; device++) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaStreamCreateWithFlags(&worker->streams[device], cudaStreamNonBlocking));
        if (mapped) {
            worker->memory[device] = (void *)mapped_memory(device, GRANULE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        } else if (pooled) {
            CHECK(cudaMallocAsync(&worker->memory[device], SIZE, worker->streams[device]));
            CHECK(cudaStreamSynchronize(worker->streams[device]));
        } else {
            CHECK(cudaMalloc(&worker->memory[device], SIZE));
        }
    }
    CHECK(cudaMallocHost((void **)&worker->sent, SIZE));
    CHECK(cudaMallocHost((void **)&worker->received, SIZE));
    REQUIRE((worker->expected = malloc(SIZE)));
}

static struct cudaMemcpy3DPeerParms box(struct worker *worker, int from, size_t at)
{
    struct cudaMemcpy3DPeerParms p = {.srcDevice = from, .dstDevice = !from};
    p.srcPtr.ptr = (char *)worker->memory[from] + at;
    p.dstPtr.ptr = (char *)worker->memory[!from] + at;
    p.srcPtr.pitch = p.dstPtr.pitch = PITCH;
    p.srcPtr.xsize = p.dstPtr.xsize = p.extent.width = WIDTH;
    p.srcPtr.ysize = p.dstPtr.ysize = p.extent.height = HEIGHT;
    p.extent.depth = DEPTH;
    return p;
}

static void expect(struct worker *worker, size_t at, size_t count)
{
    memcpy(worker->expected + at, worker->sent + at, count);
}

static void expect_box(struct worker *worker, size_t at)
{
    for (size_t row = 0; row < HEIGHT * DEPTH; row++)
        expect(worker, at + row * PITCH, WIDTH);
}

/* COPIES copies from one device to the other, each form in a place of its own. */
static void copy_all(struct worker *worker, int from, int round)
{
    char *dst = worker->memory[!from], *src = worker->memory[from];
    cudaStream_t stream = worker->streams[from];
    for (size_t at = 0; at < SMALLS * SMALL; at += SMALL) {
        TIMED(worker, cudaMemcpyPeerAsync(dst + at, !from, src + at, from, SMALL, stream));
        expect(worker, at, SMALL);
    }
    TIMED(worker, cudaMemcpyPeer(dst + AT_SYNC, !from, src + AT_SYNC, from, 100));
    expect(worker, AT_SYNC, 100);
    struct cudaMemcpy3DPeerParms p = box(worker, from, AT_BOX);
    TIMED(worker, cudaMemcpy3DPeerAsync(&p, stream));
    expect_box(worker, AT_BOX);
    p = box(worker, from, AT_SYNC_BOX);
    TIMED(worker, cudaMemcpy3DPeer(&p));
    expect_box(worker, AT_SYNC_BOX);
    if (round % 2)
        TIMED(worker, cudaMemcpyPeer(dst + AT_BIG, !from, src + AT_BIG, from, BIG));
    else
        TIMED(worker, cudaMemcpyPeerAsync(dst + AT_BIG, !from, src + AT_BIG, from, BIG, stream));
    expect(worker, AT_BIG, BIG);
}

/* The program's own streams and no more: nothing here waits for a whole device. */
static void wait_for_streams(struct worker *worker)
{
    for (int device = 0; device < 2; device++) {
        CHECK(cudaSetDevice(device));
        TIMED(worker, cudaStreamSynchronize(worker->streams[device]));
        TIMED(worker, cudaStreamSynchronize(NULL));
    }
}

static void round_trip(struct worker *worker, int from, int round)
{
    fill(worker->sent, SIZE, (unsigned)(round * 8 + worker->number * 2 + from));
    memset(worker->expected, 0x5a, SIZE);
    CHECK(cudaSetDevice(!from));
    CHECK(cudaMemcpyAsync(worker->memory[!from], worker->expected, SIZE, cudaMemcpyDefault, worker->streams[!from]));
    CHECK(cudaSetDevice(from));
    CHECK(cudaMemcpyAsync(worker->memory[from], worker->sent, SIZE, cudaMemcpyDefault, worker->streams[from]));
    wait_for_streams(worker);
    CHECK(cudaSetDevice(from));
    copy_all(worker, from, round);
    wait_for_streams(worker);
    CHECK(cudaSetDevice(!from)); /* memory of a pool is copied by its device */
    CHECK(cudaMemcpyAsync(worker->received, worker->memory[!from], SIZE, cudaMemcpyDefault, worker->streams[!from]));
    wait_for_streams(worker);
    worker->wrong += differences(worker->received, worker->expected, SIZE);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    pthread_barrier_wait(&start);
    for (int round = 0; round < ROUNDS; round++) {
        round_trip(worker, worker->number, round);
        round_trip(worker, !worker->number, round);
    }
    return NULL;
}

static void count(unsigned long long copies[2][2])
{
    for (int from = 0; from < 2; from++)
        REQUIRE(simulated_copies(from, !from, &copies[from][0], &copies[from][1]));
}

/* How the copies of a further round went. One of its own comes first, since the threads' last copies may have been made
   while somebody was still making up their mind. In a thread that made no stream: a copy beside work on non-blocking streams
   is a hazard (P2P-order-non-blocking) to the thread that made them, and whether they are still at it is chance. */
static void *show_counts(void *argument)
{
    struct worker *worker = argument;
    unsigned long long before[2][2], after[2][2];
    round_trip(worker, 0, ROUNDS);
    round_trip(worker, 1, ROUNDS);
    count(before);
    round_trip(worker, 0, ROUNDS + 1);
    round_trip(worker, 1, ROUNDS + 1);
    count(after);
    for (int from = 0; from < 2; from++)
        printf("%d>%d: %d copies, %llu direct, %llu staged\n", from, !from, COPIES, after[from][0] - before[from][0],
               after[from][1] - before[from][1]);
    return NULL;
}

int main(int argc, char **argv)
{
    static struct worker workers[THREADS];
    pthread_t threads[THREADS];
    long wrong = 0;
    double longest = 0;

    pooled = has_word(argc, argv, "pool");
    mapped = has_word(argc, argv, "mapped");
    enabled = has_word(argc, argv, "enable");
    for (int device = 0; device < 2 && enabled; device++) {
        CHECK(cudaSetDevice(device));
        SHOW(cudaDeviceEnablePeerAccess(!device, 0));
    }
    for (int i = 0; i < THREADS; i++)
        set_up(&workers[i], i);
    pthread_barrier_init(&start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    for (int i = 0; i < THREADS; i++)
        REQUIRE(pthread_join(threads[i], NULL) == 0);
    if (has_word(argc, argv, "counts"))
        run_in_thread(show_counts, &workers[0]);
    for (int device = 0; device < 2 && enabled; device++) {
        CHECK(cudaSetDevice(device));
        SHOW(cudaDeviceEnablePeerAccess(!device, 0));
        SHOW(cudaDeviceDisablePeerAccess(!device));
        SHOW(cudaDeviceDisablePeerAccess(!device));
    }
    for (int i = 0; i < THREADS; i++) {
        printf("thread %d: %ld bytes wrong\n", i, workers[i].wrong);
        wrong += workers[i].wrong;
        longest = workers[i].longest > longest ? workers[i].longest : longest;
    }
    printf("last error: %s\n", cudaGetErrorName(cudaGetLastError()));
    if (has_word(argc, argv, "times"))
        printf("longest call: %d ms\n", (int)longest);
    fflush(stdout);
    if (has_word(argc, argv, "exit"))
        _exit(wrong != 0);
    for (int i = 0; i < THREADS; i++)
        for (int device = 0; device < 2 && !mapped; device++)
            CHECK(cudaFree(workers[i].memory[device]));
    CHECK(cudaDeviceSynchronize());
    return wrong != 0;
}
