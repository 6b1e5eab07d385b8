/* build: runtime; run: copies_from_pool [granted] on sim
 * A program that did all that the guide's peer copy sample does, enabling peer access both ways, and then took its memory from
 * cudaMallocAsync: memory of a pool, for which peer access says nothing, so that all copies go through the host.
 * `granted`: it has learnt of cudaMemPoolSetAccess.
 */
#include <cuda_runtime_api.h>

#include "check.h"

enum { COUNT = 1 << 20, COPIES = 40 };

static void grant(int device, int peer)
{
    cudaMemPool_t pool;
    struct cudaMemAccessDesc access = {.flags = cudaMemAccessFlagsProtReadWrite};
    access.location.type = cudaMemLocationTypeDevice;
    access.location.id = peer;
    CHECK(cudaDeviceGetDefaultMemPool(&pool, device));
    CHECK(cudaMemPoolSetAccess(pool, &access, 1));
}

int main(int argc, char **argv)
{
    int granted = argc > 1 && strcmp(argv[1], "granted") == 0;
    cudaStream_t streams[2];
    void *memory[2];
    for (int device = 0; device < 2; device++) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaStreamCreate(&streams[device]));
        CHECK(cudaDeviceEnablePeerAccess(1 - device, 0));
        if (granted)
            grant(device, 1 - device);
        CHECK(cudaMallocAsync(&memory[device], COUNT, streams[device]));
        CHECK(cudaStreamSynchronize(streams[device]));
    }
    for (int i = 0; i < COPIES; i++) {
        int from = i % 2, to = 1 - from;
        CHECK(cudaMemcpyPeerAsync(memory[to], to, memory[from], from, COUNT, streams[from]));
        CHECK(cudaStreamSynchronize(streams[from]));
    }
    printf("%d copies\n", COPIES);
    return 0;
}
