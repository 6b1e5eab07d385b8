/* build: runtime old; run: all_pairs on sim
 * Copies between all pairs of all devices, one pair after the other: without peer access; with as much as every device
 * may enable; with none again. There may be more devices than a device may have peers. Checks every byte.
 */
#include <cuda_runtime_api.h>

#include "check.h"

enum { MOST = 64, SIZE = (1 << 20) + 4096, SMALL = 16, SMALLS = 20 };

static int devices;
static void *src[MOST], *dst[MOST];
static unsigned char sent[SIZE], received[SIZE];

static int is_right(int from, int to, unsigned seed)
{
    fill(sent, SIZE, seed);
    CHECK(cudaSetDevice(to));
    CHECK(cudaMemset(dst[to], 0, SIZE));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaSetDevice(from));
    CHECK(cudaMemcpy(src[from], sent, SIZE, cudaMemcpyHostToDevice));
    for (size_t at = 0; at < SMALLS * SMALL; at += SMALL)
        CHECK(cudaMemcpyPeerAsync((char *)dst[to] + at, to, (char *)src[from] + at, from, SMALL, NULL));
    CHECK(cudaMemcpyPeerAsync((char *)dst[to] + SMALLS * SMALL, to, (char *)src[from] + SMALLS * SMALL, from,
                              SIZE - SMALLS * SMALL, NULL));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaSetDevice(to));
    CHECK(cudaMemcpy(received, dst[to], SIZE, cudaMemcpyDeviceToHost));
    return memcmp(sent, received, SIZE) == 0;
}

static void copy_all(const char *how)
{
    int pairs = 0, wrong = 0;
    for (int from = 0; from < devices; from++)
        for (int to = 0; to < devices; to++)
            if (from != to) {
                pairs++;
                wrong += !is_right(from, to, (unsigned)(from * MOST + to));
            }
    printf("%s: %d pairs, %d wrong, last error %s\n", how, pairs, wrong, cudaGetErrorName(cudaGetLastError()));
}

int main(void)
{
    CHECK(cudaGetDeviceCount(&devices));
    REQUIRE(devices <= MOST);
    for (int device = 0; device < devices; device++) {
        src[device] = device_memory(device, SIZE);
        CHECK(cudaMalloc(&dst[device], SIZE));
    }
    copy_all("never enabled");
    for (int device = 0; device < devices; device++) {
        CHECK(cudaSetDevice(device));
        printf("enable from %d:", device);
        for (int peer = 0; peer < devices; peer++)
            printf(" %d", (int)cudaDeviceEnablePeerAccess(peer, 0));
        printf(", last error %s\n", cudaGetErrorName(cudaGetLastError()));
    }
    copy_all("enabled");
    for (int device = 0; device < devices; device++) {
        CHECK(cudaSetDevice(device));
        printf("disable from %d:", device);
        for (int peer = 0; peer < devices; peer++)
            printf(" %d", (int)cudaDeviceDisablePeerAccess(peer));
        printf(", last error %s\n", cudaGetErrorName(cudaGetLastError()));
    }
    copy_all("disabled");
    return 0;
}
