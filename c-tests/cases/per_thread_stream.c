/* build: runtime old; run: per_thread_stream on sim
 * The two peer copies that the runtime has a per-thread-default-stream form of: what a program calls that was compiled
 * with CUDA_API_PER_THREAD_DEFAULT_STREAM.
 */
#include <cuda_runtime_api.h>

#include "check.h"

enum { COUNT = 10000 };

cudaError_t cudaMemcpy3DPeer_ptds(const struct cudaMemcpy3DPeerParms *p);
cudaError_t cudaMemcpy3DPeerAsync_ptsz(const struct cudaMemcpy3DPeerParms *p, cudaStream_t stream);

static void *a, *b;

static void print_and_clear(void)
{
    static unsigned char host[COUNT];
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(host, b, COUNT, cudaMemcpyDeviceToHost));
    printf("    destination %08x\n", checksum(host, COUNT));
    memset(host, 0, COUNT);
    CHECK(cudaMemcpy(b, host, COUNT, cudaMemcpyHostToDevice));
}

int main(void)
{
    static unsigned char host[COUNT];
    struct cudaMemcpy3DPeerParms p = {0};
    fill(host, COUNT, 5);
    b = device_memory(1, COUNT);
    a = device_memory(0, COUNT);
    CHECK(cudaMemcpy(a, host, COUNT, cudaMemcpyHostToDevice));
    print_and_clear();

    p.dstDevice = 1;
    p.srcPtr = (struct cudaPitchedPtr){a, 100, 100, 100};
    p.dstPtr = (struct cudaPitchedPtr){b, 100, 100, 100};
    p.extent = (struct cudaExtent){100, 100, 1};
    SHOW(cudaMemcpy3DPeer_ptds(&p));
    print_and_clear();
    SHOW(cudaMemcpy3DPeerAsync_ptsz(&p, 0));
    print_and_clear();
    SHOW(cudaMemcpy3DPeer_ptds(NULL));
    SHOW(cudaGetLastError());
    SHOW(cudaMemcpy3DPeerAsync_ptsz(NULL, 0));
    SHOW(cudaGetLastError());
    return 0;
}
