/* build: runtime; run: entry_point on sim gpu
 * Driver functions asked of the runtime: cudaGetDriverEntryPoint, and ...ByVersion from 12.5 on. The shim does not export
 * these; it sees the copies because the runtime asks cuGetProcAddress.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <cudaTypedefs.h>

#include "check.h"

enum { COUNT = 4096 };

static void *a, *b;
static CUcontext context0, context1;

/* Where a runtime cannot choose a version, it asks for that of its own release. */
static cudaError_t ask(const char *name, void **function, unsigned version, unsigned long long flags)
{
#if CUDART_VERSION >= 12050
    enum cudaDriverEntryPointQueryResult found = (enum cudaDriverEntryPointQueryResult)-1;
    cudaError_t error = cudaGetDriverEntryPointByVersion(name, function, version, flags, &found);
    printf("%s at %u, flags %llu: found %d\n", name, version, flags, (int)found);
    return error;
#else
    printf("%s at %u, flags %llu\n", name, version, flags);
    return cudaGetDriverEntryPoint(name, function, flags);
#endif
}

static void *get(const char *name, unsigned version, unsigned long long flags)
{
    void *function = NULL;
    cudaError_t error = ask(name, &function, version, flags);
    printf("    %s, a function: %s\n", cudaGetErrorName(error), function ? "yes" : "no");
    cudaGetLastError();
    return function;
}

static CUcontext current_context(int device)
{
    PFN_cuCtxGetCurrent_v4000 get_current = (PFN_cuCtxGetCurrent_v4000)get("cuCtxGetCurrent", 4000, cudaEnableDefault);
    CUcontext context = NULL;
    CHECK(cudaSetDevice(device));
    CHECK(cudaFree(NULL));
    REQUIRE(get_current && get_current(&context) == CUDA_SUCCESS && context);
    return context;
}

static void copy_with(void *function)
{
    static unsigned char host[COUNT];
    static unsigned seed;
    if (!function)
        return;
    fill(host, COUNT, ++seed);
    CHECK(cudaMemcpy(a, host, COUNT, cudaMemcpyHostToDevice));
    int ret = (int)((PFN_cuMemcpyPeer_v4000)function)((CUdeviceptr)b, context1, (CUdeviceptr)a, context0, COUNT);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(host, b, COUNT, cudaMemcpyDeviceToHost));
    printf("    called: %d, destination %08x\n", ret, checksum(host, COUNT));
}

int main(void)
{
    b = device_memory(1, COUNT);
    a = device_memory(0, COUNT);
    context1 = current_context(1);
    context0 = current_context(0);

    copy_with(get("cuMemcpyPeer", 4000, cudaEnableDefault));
    copy_with(get("cuMemcpyPeer", 4000, cudaEnableLegacyStream));
    copy_with(get("cuMemcpyPeer", 7000, cudaEnablePerThreadDefaultStream));
    copy_with(get("cuMemcpyPeer", 12000, cudaEnableDefault));
    copy_with(get("cuMemcpyPeer", 3000, cudaEnableDefault));
    get("cuMemcpyPeerAsync", 4000, cudaEnableDefault);
    get("cuDeviceCanAccessPeer", 4000, cudaEnableDefault);
    get("cuMemcpyPear", 4000, cudaEnableDefault);
    get("cuMemcpyPeer", 4000, 77);

    int can = -7;
    PFN_cuDeviceCanAccessPeer_v4000 can_access =
        (PFN_cuDeviceCanAccessPeer_v4000)get("cuDeviceCanAccessPeer", 4000, cudaEnableDefault);
    if (can_access)
        printf("    called: %d", (int)can_access(&can, 0, 1)), printf(", can %d\n", can);
    return 0;
}
