/* build: hip; run: hip_no_device on sim amd
 * Every peer function, regular copies, with good and bad arguments, and the last-error calls, on a machine that may have no device. Prints
 * plain numbers, so that it runs with any release, real ones included.
 */
#include "hip.h"

#define PRINT(call) (printf("%s = %d\n", #call, (int)(call)), print_errors())

static void print_errors(void)
{
    int peeked = (int)hipPeekAtLastError(), last = (int)hipGetLastError(), after = (int)hipGetLastError();
    printf("    peek %d, get %d, get again %d\n", peeked, last, after);
}

int main(void)
{
    void *a = (void *)0x100000, *b = (void *)0x200000;
    int out = -7;

    PRINT(hipGetDeviceCount(&out));
    printf("    count %d\n", out);
    out = -7;
    PRINT(hipDeviceCanAccessPeer(&out, 0, 1));
    PRINT(hipDeviceCanAccessPeer(&out, 0, 0));
    PRINT(hipDeviceCanAccessPeer(NULL, 0, 1));
    PRINT(hipDeviceEnablePeerAccess(1, 0));
    PRINT(hipDeviceEnablePeerAccess(1, 1));
    PRINT(hipDeviceDisablePeerAccess(1));
    PRINT(hipDeviceGetP2PAttribute(&out, hipDevP2PAttrAccessSupported, 0, 1));
    PRINT(hipDeviceGetP2PAttribute(NULL, hipDevP2PAttrAccessSupported, 0, 1));
    PRINT(hipMemcpyPeer(b, 1, a, 0, 64));
    PRINT(hipMemcpyPeer(NULL, 0, NULL, 0, 0));
    PRINT(hipMemcpyPeerAsync(b, 1, a, 0, 64, NULL));
    PRINT(hipMemcpyPeerAsync(b, 1, a, 0, 64, hipStreamPerThread));
    PRINT(hipMemcpy(b, a, 64, hipMemcpyDefault));
    PRINT(hipMemcpyAsync_spt(b, a, 64, hipMemcpyDefault, NULL));
    PRINT(hipMemcpy2D(b, 64, a, 64, 32, 2, hipMemcpyDeviceToDevice));
    PRINT(hipMemcpy2D(NULL, 0, NULL, 0, 0, 0, (hipMemcpyKind)5));
    PRINT(hipMemcpy3D(NULL));
    PRINT(hipMemcpy3D_spt(NULL));
    PRINT(hipCtxEnablePeerAccess(NULL, 0));
    PRINT(hipCtxDisablePeerAccess(NULL));
#if HIP_MAJOR >= 7
    hipMemcpy3DPeerParms p = {.srcPtr = {a, 64, 64, 1}, .dstPtr = {b, 64, 64, 1}, .dstDevice = 1, .extent = {64, 1, 1}};
    PRINT(hipMemcpy3DPeer(&p));
    PRINT(hipMemcpy3DPeer(NULL));
    PRINT(hipMemcpy3DPeerAsync(&p, NULL));
    PRINT(hipMemcpyBatchAsync(NULL, NULL, NULL, 0, NULL, NULL, 0, NULL, NULL));
    PRINT(hipMemcpy3DBatchAsync(0, NULL, NULL, 1, NULL));
#endif
    printf("output %d\n", out);
    return 0;
}
