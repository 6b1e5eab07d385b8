/* build: static; run: alloc_cost enables|copies on gpu
 * What allocation costs on GPU 0, with none of the other GPUs as enabled peers, with one, and so on.
 *
 *   enables    enables access in both directions between GPU 0 and the next one
 *   copies     copies to and from the next one instead: under the shim, that enables
 *
 * A line a number of peers, with tabs: the number, medians of the host time of cudaMalloc and of cudaFree of 4 MiB, in
 * microseconds.
 */
#include <cuda_runtime_api.h>

#include "check.h"
#include "measure.h"

enum { SAMPLES = 101, WARM_UP = 10 };

static const size_t size = 4 * MIB;

static void *memory_of(int device)
{
    void *memory;
    memory = device_memory(device, size);
    return memory;
}

static void enable(int device, int peer)
{
    CHECK(cudaSetDevice(device));
    CHECK(cudaDeviceEnablePeerAccess(peer, 0));
}

static void copy(void *to, int to_device, void *from, int from_device)
{
    CHECK(cudaSetDevice(from_device));
    CHECK(cudaMemcpyPeerAsync(to, to_device, from, from_device, size, 0));
    CHECK(cudaDeviceSynchronize());
}

static void measure(int peers)
{
    static double taken[SAMPLES], freed[SAMPLES];
    CHECK(cudaSetDevice(0));
    for (int i = -WARM_UP; i < SAMPLES; i++) {
        void *memory;
        double begun = host_time();
        CHECK(cudaMalloc(&memory, size));
        double between = host_time();
        CHECK(cudaFree(memory));
        if (i >= 0) {
            taken[i] = between - begun;
            freed[i] = host_time() - between;
        }
    }
    printf("%d\t%.1f\t%.1f\n", peers, median(taken, SAMPLES), median(freed, SAMPLES));
}

int main(int argc, char **argv)
{
    int gpus;
    if (argc != 2 || (strcmp(argv[1], "enables") != 0 && strcmp(argv[1], "copies") != 0)) {
        fprintf(stderr, "usage: alloc_cost enables|copies\n");
        return 2;
    }
    CHECK(cudaGetDeviceCount(&gpus));
    REQUIRE(gpus >= 2);
    /* All contexts first, so that only access differs. */
    void *own = memory_of(0), *others[16];
    REQUIRE(gpus <= 16);
    for (int peer = 1; peer < gpus; peer++)
        others[peer] = memory_of(peer);
    measure(0);
    for (int peer = 1; peer < gpus; peer++) {
        if (strcmp(argv[1], "enables") == 0) {
            enable(0, peer);
            enable(peer, 0);
        } else {
            copy(others[peer], peer, own, 0);
            copy(own, 0, others[peer], peer);
        }
        measure(peer);
    }
    return 0;
}
