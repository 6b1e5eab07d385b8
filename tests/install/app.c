/* A user's program in C: copies between two devices, and asks p2pshim what it has seen of that. */
#include <cuda_runtime_api.h>
#include <p2pshim.h>
#include <stdio.h>

int main(void) {
    void *from = NULL, *to = NULL;
    cudaSetDevice(0);
    cudaMalloc(&from, 4096);
    cudaSetDevice(1);
    cudaMalloc(&to, 4096);
    if (cudaMemcpyPeer(to, 1, from, 0, 4096) != cudaSuccess) {
        return 1;
    }
    p2pshim_pair_t pair = P2PSHIM_INIT(p2pshim_pair_t);
    if (p2pshim_pair_get(0, 1, &pair) != P2PSHIM_OK) {
        return 2;
    }
    printf("p2pshim %s saw %d copies of %d bytes\n", p2pshim_version(), (int)(pair.direct_copies + pair.staged_copies),
           (int)(pair.direct_bytes + pair.staged_bytes));
    return 0;
}
