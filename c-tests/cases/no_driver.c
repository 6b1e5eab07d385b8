/* build: runtime old nvidia12 nvidia13; run: no_driver on sim nvidia
 * Every peer function of the runtime, with good and bad arguments, and the last-error calls, on a machine that may have no
 * driver. Prints plain numbers, so that it runs with any runtime.
 */
#include <cuda_runtime_api.h>
#include <stdio.h>

#define PRINT(call) (printf("%s = %d\n", #call, (int)(call)), print_errors())

static void print_errors(void)
{
    int peeked = (int)cudaPeekAtLastError(), last = (int)cudaGetLastError(), after = (int)cudaGetLastError();
    printf("    peek %d, get %d, get again %d\n", peeked, last, after);
}

int main(void)
{
    void *a = (void *)0x100000, *b = (void *)0x200000;
    struct cudaMemcpy3DPeerParms p = {0};
    int v = -7;
    p.dstDevice = 1;
    p.srcPtr = (struct cudaPitchedPtr){a, 64, 64, 1};
    p.dstPtr = (struct cudaPitchedPtr){b, 64, 64, 1};
    p.extent = (struct cudaExtent){64, 1, 1};

    print_errors();
    PRINT(cudaMemcpyPeer(b, 1, a, 0, 64));
    PRINT(cudaMemcpyPeer(NULL, 1, a, 0, 64));
    PRINT(cudaMemcpyPeer(b, 99, a, -1, 64));
    PRINT(cudaMemcpyPeer(NULL, 0, NULL, 0, 0));
    PRINT(cudaMemcpyPeerAsync(b, 1, a, 0, 64, NULL));
    PRINT(cudaMemcpyPeerAsync(NULL, 1, NULL, 0, 0, cudaStreamPerThread));
    PRINT(cudaMemcpyPeerAsync(b, 99, a, 0, 64, cudaStreamLegacy));
    PRINT(cudaMemcpy3DPeer(&p));
    PRINT(cudaMemcpy3DPeer(NULL));
    PRINT(cudaMemcpy3DPeerAsync(&p, NULL));
    PRINT(cudaMemcpy3DPeerAsync(NULL, NULL));
    PRINT(cudaDeviceCanAccessPeer(&v, 0, 1));
    PRINT(cudaDeviceCanAccessPeer(NULL, 0, 1));
    PRINT(cudaDeviceCanAccessPeer(&v, -1, 99));
    PRINT(cudaDeviceEnablePeerAccess(1, 0));
    PRINT(cudaDeviceEnablePeerAccess(99, 1));
    PRINT(cudaDeviceDisablePeerAccess(1));
    PRINT(cudaDeviceDisablePeerAccess(-1));
    PRINT(cudaDeviceGetP2PAttribute(&v, cudaDevP2PAttrAccessSupported, 0, 1));
    PRINT(cudaDeviceGetP2PAttribute(NULL, cudaDevP2PAttrAccessSupported, 0, 99));
    printf("v %d\n", v);
    return 0;
}
