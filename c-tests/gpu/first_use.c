/* build: static; run: first_use explicit|copy [pool] on gpu
 * What the first use of a pair of GPUs costs the host.
 *
 *   explicit   the program enables peer access in both directions and then copies
 *   copy       it only copies: under the shim, the first copy enables
 *   pool       memory of cudaMallocAsync on both sides; explicit grants access to the pools too
 *
 * A line a pair, with tabs: the GPUs i and j, the host time of enabling, of the first copy (4 MiB) from i to j, until
 * that is complete, of the first copy back, until that is complete, in microseconds; then GB/s from i to j, which tells
 * whether the copies are direct by then. Exits with 1 if a copy brought wrong bytes.
 */
#include <cuda_runtime_api.h>

#include "check.h"
#include "measure.h"

enum { MAX_GPUS = 16, LATER = 16 };

static const size_t first = 4 * MIB, later = 64 * MIB;
static void *memory[MAX_GPUS];
static cudaStream_t stream[MAX_GPUS];
static int in_pools;

static void prepare(int device)
{
    CHECK(cudaSetDevice(device));
    CHECK(cudaStreamCreateWithFlags(&stream[device], cudaStreamNonBlocking));
    if (in_pools)
        CHECK(cudaMallocAsync(&memory[device], later, stream[device]));
    else
        CHECK(cudaMalloc(&memory[device], later));
    CHECK(cudaDeviceSynchronize());
}

static void reach(int device, int peer)
{
    CHECK(cudaSetDevice(device));
    CHECK(cudaDeviceEnablePeerAccess(peer, 0));
    if (in_pools) {
        struct cudaMemAccessDesc access;
        cudaMemPool_t pool;
        memset(&access, 0, sizeof access);
        access.location.type = cudaMemLocationTypeDevice;
        access.location.id = peer;
        access.flags = cudaMemAccessFlagsProtReadWrite;
        CHECK(cudaDeviceGetDefaultMemPool(&pool, device));
        CHECK(cudaMemPoolSetAccess(pool, &access, 1));
    }
}

/* The first copy of the pair; prints its times. Returns whether it brought the right bytes. */
static int copy(int from, int to)
{
    const unsigned seed = (unsigned)(from * MAX_GPUS + to);
    CHECK(cudaSetDevice(to));
    CHECK(cudaMemset(memory[to], 0, first));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaSetDevice(from));
    fill_device(memory[from], first, seed);
    CHECK(cudaDeviceSynchronize());

    double begun = host_time();
    CHECK(cudaMemcpyPeerAsync(memory[to], to, memory[from], from, first, stream[from]));
    double called = host_time();
    CHECK(cudaStreamSynchronize(stream[from]));
    printf("\t%.1f\t%.1f", called - begun, host_time() - begun);

    CHECK(cudaSetDevice(to));
    return holds(memory[to], first, seed);
}

static double gigabytes_per_second(int from, int to)
{
    cudaEvent_t begun, ended;
    float milliseconds;
    CHECK(cudaSetDevice(from));
    CHECK(cudaEventCreate(&begun));
    CHECK(cudaEventCreate(&ended));
    CHECK(cudaEventRecord(begun, stream[from]));
    for (int i = 0; i < LATER; i++)
        CHECK(cudaMemcpyPeerAsync(memory[to], to, memory[from], from, later, stream[from]));
    CHECK(cudaEventRecord(ended, stream[from]));
    CHECK(cudaEventSynchronize(ended));
    CHECK(cudaEventElapsedTime(&milliseconds, begun, ended));
    return (double)later * LATER / milliseconds * 1e-6;
}

int main(int argc, char **argv)
{
    int gpus, right = 1;
    if (argc < 2 || (strcmp(argv[1], "explicit") != 0 && strcmp(argv[1], "copy") != 0)) {
        fprintf(stderr, "usage: first_use explicit|copy [pool]\n");
        return 2;
    }
    in_pools = argc > 2;
    CHECK(cudaGetDeviceCount(&gpus));
    REQUIRE(gpus >= 2 && gpus <= MAX_GPUS);
    for (int device = 0; device < gpus; device++)
        prepare(device);
    for (int i = 0; i < gpus; i++)
        for (int j = i + 1; j < gpus; j++) {
            double begun = host_time();
            if (strcmp(argv[1], "explicit") == 0) {
                reach(i, j);
                reach(j, i);
            }
            printf("%d\t%d\t%.1f", i, j, host_time() - begun);
            right &= copy(i, j);
            right &= copy(j, i);
            printf("\t%.1f\n", gigabytes_per_second(i, j));
        }
    if (!right)
        fprintf(stderr, "a copy brought wrong bytes\n");
    return !right;
}
