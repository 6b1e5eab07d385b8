/* build: runtime old; run: hip_for_nvidia on sim
 * A HIP program that is built for NVIDIA's platform: there the names of HIP are other names for CUDA's functions, so that the
 * program calls CUDA. A few of them, as such headers have them.
 */
#include <cuda_runtime_api.h>

#include "check.h"

typedef cudaError_t hipError_t;
typedef cudaStream_t hipStream_t;
#define hipSuccess cudaSuccess
#define hipMemcpyHostToDevice cudaMemcpyHostToDevice
#define hipMemcpyDeviceToHost cudaMemcpyDeviceToHost

static inline hipError_t hipSetDevice(int device)
{
    return cudaSetDevice(device);
}

static inline hipError_t hipMalloc(void **pointer, size_t size)
{
    return cudaMalloc(pointer, size);
}

static inline hipError_t hipMemcpy(void *dst, const void *src, size_t size, enum cudaMemcpyKind kind)
{
    return cudaMemcpy(dst, src, size, kind);
}

static inline hipError_t hipDeviceCanAccessPeer(int *can, int device, int peer)
{
    return cudaDeviceCanAccessPeer(can, device, peer);
}

static inline hipError_t hipDeviceEnablePeerAccess(int peer, unsigned flags)
{
    return cudaDeviceEnablePeerAccess(peer, flags);
}

static inline hipError_t hipMemcpyPeer(void *dst, int to, const void *src, int from, size_t size)
{
    return cudaMemcpyPeer(dst, to, src, from, size);
}

static inline hipError_t hipMemcpyPeerAsync(void *dst, int to, const void *src, int from, size_t size, hipStream_t stream)
{
    return cudaMemcpyPeerAsync(dst, to, src, from, size, stream);
}

static inline hipError_t hipDeviceSynchronize(void)
{
    return cudaDeviceSynchronize();
}

int main(void)
{
    enum { SIZE = 4096 };
    static char sent[SIZE] = "by HIP's names", received[SIZE];
    void *first, *second;
    int can = -1;
    SHOW(hipDeviceCanAccessPeer(&can, 0, 1));
    printf("can = %d\n", can);
    CHECK(hipSetDevice(1));
    CHECK(hipMalloc(&second, SIZE));
    CHECK(hipSetDevice(0));
    CHECK(hipMalloc(&first, SIZE));
    SHOW(hipDeviceEnablePeerAccess(1, 0));
    CHECK(hipMemcpy(first, sent, SIZE, hipMemcpyHostToDevice));
    SHOW(hipMemcpyPeer(second, 1, first, 0, SIZE));
    CHECK(hipMemcpy(received, second, SIZE, hipMemcpyDeviceToHost));
    printf("%s\n", received);
    SHOW(hipMemcpyPeerAsync(first, 0, second, 1, SIZE, NULL));
    SHOW(hipDeviceSynchronize());
    return 0;
}
