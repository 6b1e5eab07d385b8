/* build: runtime12+ driver; run: waits_churn pools|rights|owners ROUNDS [THREADS] on sim gpu
 * Threads copy from device 0 to device 1 and rely on what waits for their copies, while another thread changes what belongs to whom.
 *
 *   pools     they synchronize device 1 and read what has arrived; the other thread makes and destroys pools
 *   rights    they free the destination at once; the other thread changes the access of devices 2 and 3 to each other. Takes four devices
 *   owners    as pools, but the destination is memory of the device or of a pool, anew in each round, as is the other thread's, which also
 *             makes and ends contexts with memory of their own, so that addresses and whatever numbers memory get other owners
 *
 * Each of the THREADS (4) makes ROUNDS rounds. A host function before each copy takes a moment, so that the copy is not over when its call
 * returns. Prints how many rounds were wrong.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "check.h"

enum { BYTES = 64 << 10, LARGE = 2 << 20, WARM_UP_BYTES = 1 << 20, WARM_UPS = 40, MOST_THREADS = 64, PER_STREAM = 4, DELAY_US = 300 };

static int rounds, threads = 4;
static volatile int is_over;
static int wrong;

static void CUDART_CB delay(void *data) { (void)data, usleep(DELAY_US); }
static void count_wrong(void) { __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED); }

static cudaStream_t new_stream(int device)
{
    CHECK(cudaSetDevice(device));
    cudaStream_t made = non_blocking_stream();
    return made;
}

static char *memory(int device, size_t bytes)
{
    char *made;
    made = device_memory(device, bytes);
    return made;
}

/* So many copies that p2pshim has made the pair direct. */
static void prepare(void)
{
    char *dst = memory(1, WARM_UP_BYTES), *src = memory(0, WARM_UP_BYTES);
    for (int i = 0; i < WARM_UPS; i++)
        CHECK(cudaMemcpy(dst, src, WARM_UP_BYTES, cudaMemcpyDefault));
    CHECK(cudaDeviceSynchronize());
}

/* ---- Pools ---- */

static cudaMemPool_t new_pool(void)
{
    struct cudaMemPoolProps properties = {.allocType = cudaMemAllocationTypePinned, .location = {cudaMemLocationTypeDevice, 1}};
    cudaMemPool_t pool;
    CHECK(cudaMemPoolCreate(&pool, &properties));
    return pool;
}

static char *memory_of_pool(cudaMemPool_t pool, cudaStream_t stream)
{
    char *made;
    CHECK(cudaSetDevice(1));
    CHECK(cudaMallocFromPoolAsync((void **)&made, BYTES, pool, stream));
    CHECK(cudaStreamSynchronize(stream));
    return made;
}

static void free_to_pool(char *memory, cudaMemPool_t pool, cudaStream_t stream)
{
    CHECK(cudaFreeAsync(memory, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemPoolDestroy(pool));
}

static void *change_pools(void *data)
{
    CHECK(cudaSetDevice(1));
    while (!is_over) {
        CHECK(cudaMemPoolDestroy(new_pool()));
    }
    return data;
}

/* ---- Owners ---- */

static void copy_to_pool(char *src, cudaStream_t reader, cudaStream_t stream)
{
    cudaMemPool_t pool = new_pool();
    char *dst = memory_of_pool(pool, reader);
    CHECK(cudaMemcpyPeerAsync(dst, 1, src, 0, BYTES, stream));
    CHECK(cudaStreamSynchronize(stream));
    free_to_pool(dst, pool, reader);
}

static void copy_to_context(CUcontext primary, char *src, cudaStream_t stream)
{
    CUcontext context;
    CUdeviceptr dst;
    CHECK_CU(cuCtxCreate_v2(&context, 0, 1));
    CHECK_CU(cuMemAlloc(&dst, BYTES));
    CHECK_CU(cuMemcpyPeerAsync(dst, context, (CUdeviceptr)src, primary, BYTES, (CUstream)stream));
    CHECK_CU(cuCtxSynchronize());
    CHECK_CU(cuCtxDestroy(context));
}

static void *change_owners(void *data)
{
    char *src = memory(0, BYTES);
    CUcontext primary;
    CHECK_CU(cuCtxGetCurrent(&primary));
    cudaStream_t stream = new_stream(0), reader = new_stream(1);
    while (!is_over) {
        copy_to_pool(src, reader, stream);
        CHECK(cudaSetDevice(0));
        copy_to_context(primary, src, stream);
    }
    return data;
}

/* ---- Rights ---- */

static void *change_rights(void *data)
{
    CHECK(cudaSetDevice(2));
    while (!is_over) {
        CHECK(cudaDeviceEnablePeerAccess(3, 0));
        CHECK(cudaDeviceDisablePeerAccess(3));
    }
    return data;
}

static void *free_at_once(void *data)
{
    char *src = memory(0, LARGE);
    cudaStream_t stream = NULL;
    for (int round = 0; round < rounds; round++) {
        if (round % PER_STREAM == 0)
            stream = new_stream(0);
        char *dst = memory(1, LARGE);
        CHECK(cudaSetDevice(0));
        CHECK(cudaMemcpyAsync(dst, src, LARGE, cudaMemcpyDefault, stream));
        CHECK(cudaSetDevice(1));
        CHECK(cudaFree(dst));
        CHECK(cudaSetDevice(0));
        CHECK(cudaStreamSynchronize(stream));
        if (round % PER_STREAM == PER_STREAM - 1)
            CHECK(cudaStreamDestroy(stream));
    }
    return data;
}

/* ---- Copies ---- */

/* Copies, synchronizes the other device and reads on a stream there, which comes after no copy. */
static void round_trip(char *dst, char *src, unsigned seed, cudaStream_t stream, cudaStream_t reader)
{
    unsigned char sent[BYTES], found[BYTES];
    fill(sent, BYTES, seed);
    CHECK(cudaSetDevice(0));
    CHECK(cudaMemcpyAsync(src, sent, BYTES, cudaMemcpyHostToDevice, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaLaunchHostFunc(stream, delay, NULL));
    CHECK(cudaMemcpyPeerAsync(dst, 1, src, 0, BYTES, stream));
    CHECK(cudaSetDevice(1));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpyAsync(found, dst, BYTES, cudaMemcpyDeviceToHost, reader));
    CHECK(cudaStreamSynchronize(reader));
    if (memcmp(found, sent, BYTES))
        count_wrong();
    CHECK(cudaStreamSynchronize(stream));
}

static void *copy_and_read(void *number)
{
    char *dst = memory(1, BYTES), *src = memory(0, BYTES);
    cudaStream_t stream = new_stream(0), reader = new_stream(1);
    for (int round = 0; round < rounds; round++)
        round_trip(dst, src, (unsigned)(intptr_t)number * 7 + round, stream, reader);
    return number;
}

static void *copy_to_new_memory(void *number)
{
    char *src = memory(0, BYTES);
    cudaStream_t stream = new_stream(0), reader = new_stream(1);
    for (int round = 0; round < rounds; round++) {
        unsigned seed = (unsigned)(intptr_t)number * 7 + round;
        if (seed % 2) {
            char *dst = memory(1, BYTES);
            round_trip(dst, src, seed, stream, reader);
            CHECK(cudaFree(dst));
        } else {
            CHECK(cudaSetDevice(1));
            cudaMemPool_t pool = new_pool();
            char *dst = memory_of_pool(pool, reader);
            round_trip(dst, src, seed, stream, reader);
            free_to_pool(dst, pool, reader);
        }
    }
    return number;
}

static const struct mode {
    const char *name;
    void *(*copies)(void *), *(*changes)(void *);
} modes[] = {
    {"pools", copy_and_read, change_pools},
    {"rights", free_at_once, change_rights},
    {"owners", copy_to_new_memory, change_owners},
};

int main(int argc, char **argv)
{
    const struct mode *mode = NULL;
    pthread_t other, thread[MOST_THREADS];
    REQUIRE(argc > 2);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (strcmp(argv[1], modes[i].name) == 0)
            mode = &modes[i];
    REQUIRE(mode);
    rounds = atoi(argv[2]);
    threads = argc > 3 ? atoi(argv[3]) : threads;
    REQUIRE(threads <= MOST_THREADS);
    prepare();
    REQUIRE(pthread_create(&other, NULL, mode->changes, NULL) == 0);
    for (intptr_t i = 0; i < threads; i++)
        REQUIRE(pthread_create(&thread[i], NULL, mode->copies, (void *)i) == 0);
    for (int i = 0; i < threads; i++)
        REQUIRE(pthread_join(thread[i], NULL) == 0);
    is_over = 1;
    REQUIRE(pthread_join(other, NULL) == 0);
    printf("%s: %d of %d rounds wrong\n", mode->name, wrong, threads * rounds);
    return 0;
}
