/* build: hip cudart12; run: hip_and_cuda on sim
 * A program with both runtimes, as frameworks have that are built for both vendors: each copies between its own devices, and
 * neither's last error or peer access has to do with the other's.
 */
#include <cuda_runtime_api.h>

#include "hip.h"

enum { SIZE = 64 << 10 };

static unsigned char sent[SIZE], received[SIZE];

static void show_bytes(const char *whose)
{
    printf("%s: %s\n", whose, memcmp(sent, received, SIZE) == 0 ? "the same bytes" : "other bytes");
    memset(received, 0, SIZE);
}

int main(void)
{
    void *hip[2], *cuda[2];
    hipStream_t hip_stream;
    cudaStream_t cuda_stream;
    for (int device = 1; device >= 0; device--) {
        CHECK_HIP(hipSetDevice(device));
        CHECK_HIP(hipMalloc(&hip[device], SIZE));
        CHECK(cudaSetDevice(device));
        CHECK(cudaMalloc(&cuda[device], SIZE));
    }
    CHECK_HIP(hipStreamCreate(&hip_stream));
    CHECK(cudaStreamCreate(&cuda_stream));

    SHOW_HIP(hipDeviceEnablePeerAccess(1, 0));
    SHOW(cudaDeviceDisablePeerAccess(1));
    SHOW_HIP(hipDeviceEnablePeerAccess(1, 0));
    SHOW_HIP(hipPeekAtLastError());
    SHOW(cudaPeekAtLastError());
    SHOW(cudaDeviceEnablePeerAccess(1, 0));
    SHOW(cudaGetLastError());
    SHOW_HIP(hipGetLastError());

    fill(sent, SIZE, 1);
    CHECK_HIP(hipMemcpy(hip[0], sent, SIZE, hipMemcpyHostToDevice));
    SHOW_HIP(hipMemcpyPeerAsync(hip[1], 1, hip[0], 0, SIZE, hip_stream));
    CHECK_HIP(hipStreamSynchronize(hip_stream));
    CHECK_HIP(hipMemcpy(received, hip[1], SIZE, hipMemcpyDeviceToHost));
    show_bytes("HIP");

    fill(sent, SIZE, 2);
    CHECK(cudaMemcpy(cuda[0], sent, SIZE, cudaMemcpyHostToDevice));
    SHOW(cudaMemcpyPeerAsync(cuda[1], 1, cuda[0], 0, SIZE, cuda_stream));
    CHECK(cudaStreamSynchronize(cuda_stream));
    CHECK(cudaMemcpy(received, cuda[1], SIZE, cudaMemcpyDeviceToHost));
    show_bytes("CUDA");

    SHOW_HIP(hipMemcpyPeer(hip[0], 9, hip[1], 1, SIZE));
    SHOW(cudaPeekAtLastError());
    SHOW(cudaMemcpyPeer(cuda[0], 0, NULL, 1, SIZE));
    SHOW_HIP(hipGetLastError());
    SHOW(cudaGetLastError());
    SHOW_HIP(hipDeviceDisablePeerAccess(1));
    SHOW(cudaDeviceDisablePeerAccess(1));

    for (int device = 0; device < 2; device++) {
        CHECK_HIP(hipFree(hip[device]));
        CHECK(cudaFree(cuda[device]));
    }
    return 0;
}
