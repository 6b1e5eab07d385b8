/* The program of docs/ORDER.md: a stream reads on GPU 1 what another one copies there, and does not wait for it. */
#include <cuda_runtime_api.h>
#include <stdio.h>

enum { BYTES = 1 << 20 };

int main(void)
{
    void *from, *to;
    static char host[BYTES];
    cudaStream_t copies, reads;
    cudaSetDevice(1);
    cudaMalloc(&to, BYTES);
    cudaStreamCreateWithFlags(&reads, cudaStreamNonBlocking);
    cudaSetDevice(0);
    cudaMalloc(&from, BYTES);
    cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking);

    cudaMemcpyPeerAsync(to, 1, from, 0, BYTES, copies);
    cudaMemcpyAsync(host, to, BYTES, cudaMemcpyDeviceToHost, reads);
    cudaStreamSynchronize(reads);
    return cudaGetLastError();
}
