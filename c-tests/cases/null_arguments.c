/* build: runtime old; run: null_arguments on sim
 * NULL wherever a pointer is expected, with every other argument good: the real function's answer comes back, and nobody
 * reads or writes through the pointer.
 */
#include <cuda_runtime_api.h>

#include "check.h"

#define SHOW_BOTH(call) (SHOW(call), SHOW(cudaGetLastError()))

int main(void)
{
    enum { COUNT = 1024 };
    struct cudaMemcpy3DPeerParms zeros = {0};
    void *a, *b;
    b = device_memory(1, COUNT);
    a = device_memory(0, COUNT);

    SHOW_BOTH(cudaDeviceCanAccessPeer(NULL, 0, 1));
    SHOW_BOTH(cudaDeviceCanAccessPeer(NULL, 0, 0));
    SHOW_BOTH(cudaDeviceCanAccessPeer(NULL, -1, 99));
    SHOW_BOTH(cudaDeviceGetP2PAttribute(NULL, cudaDevP2PAttrAccessSupported, 0, 1));
    SHOW_BOTH(cudaDeviceGetP2PAttribute(NULL, cudaDevP2PAttrAccessSupported, 0, 99));
    SHOW_BOTH(cudaMemcpyPeer(NULL, 1, a, 0, COUNT));
    SHOW_BOTH(cudaMemcpyPeer(b, 1, NULL, 0, COUNT));
    SHOW_BOTH(cudaMemcpyPeer(NULL, 1, NULL, 0, 0));
    SHOW_BOTH(cudaMemcpyPeerAsync(NULL, 1, a, 0, COUNT, NULL));
    SHOW_BOTH(cudaMemcpyPeerAsync(b, 1, NULL, 0, COUNT, NULL));
    SHOW_BOTH(cudaMemcpyPeerAsync(NULL, 1, NULL, 0, 0, NULL));
    SHOW_BOTH(cudaMemcpy3DPeer(NULL));
    SHOW_BOTH(cudaMemcpy3DPeer(&zeros));
    SHOW_BOTH(cudaMemcpy3DPeerAsync(NULL, NULL));
    SHOW_BOTH(cudaMemcpy3DPeerAsync(&zeros, NULL));
    return 0;
}
