/* build: old; run: enables_at_load on sim
 * Access is enabled before main, by a constructor, and the device is reset as programs did before 4.0. No headers are needed: it is for
 * runtimes that nobody has headers of.
 */
#include "check.h"

typedef int result;

const char *cudaGetErrorName(result error);
result cudaDeviceDisablePeerAccess(int peer);
result cudaDeviceEnablePeerAccess(int peer, unsigned flags);
result cudaDeviceSynchronize(void);
result cudaGetDeviceCount(int *count);
result cudaMalloc(void **at, size_t bytes);
result cudaMemcpy(void *dst, const void *src, size_t bytes, int kind);
result cudaMemcpyPeer(void *dst, int dst_device, const void *src, int src_device, size_t bytes);
result cudaSetDevice(int device);
result cudaThreadExit(void);

#define TELL(call)                                   \
    do {                                             \
        result code_ = (call);                       \
        printf("%s = %s\n", #call, cudaGetErrorName(code_)); \
    } while (0)

enum { BYTES = 2 << 20, TO_DEVICE = 1, TO_HOST = 2 };

__attribute__((constructor)) static void enable(void)
{
    int count = 0;
    TELL(cudaGetDeviceCount(&count));
    printf("%d devices\n", count);
    TELL(cudaSetDevice(0));
    TELL(cudaDeviceEnablePeerAccess(1, 0));
    TELL(cudaSetDevice(1));
    TELL(cudaDeviceEnablePeerAccess(0, 0));
    TELL(cudaDeviceEnablePeerAccess(0, 0));
}

static unsigned char content[BYTES], got[BYTES];

int main(void)
{
    void *src = NULL, *dst = NULL;
    memset(content, 42, BYTES);
    TELL(cudaSetDevice(0));
    TELL(cudaMalloc(&src, BYTES));
    TELL(cudaMemcpy(src, content, BYTES, TO_DEVICE));
    TELL(cudaSetDevice(1));
    TELL(cudaMalloc(&dst, BYTES));
    TELL(cudaMemcpyPeer(dst, 1, src, 0, BYTES));
    TELL(cudaDeviceSynchronize());
    TELL(cudaMemcpy(got, dst, BYTES, TO_HOST));
    puts(memcmp(got, content, BYTES) == 0 ? "right" : "WRONG");
    TELL(cudaDeviceDisablePeerAccess(0));
    TELL(cudaDeviceDisablePeerAccess(0));
    TELL(cudaThreadExit());
    TELL(cudaMemcpyPeer(dst, 1, src, 0, BYTES));
    return 0;
}
