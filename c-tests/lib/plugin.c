/* build: 11 12 13; run: by dlopen
 * build -12-copy: stub/libcudart-12-copy.so -Wl,-rpath,$ORIGIN
 * See plugin.h.
 */
#include <cuda_runtime_api.h>

#include "check.h"

int plugin_version(void)
{
    int version = 0;
    cudaRuntimeGetVersion(&version);
    return version;
}

int plugin_copy(void)
{
    enum { COUNT = 2000 };
    unsigned char sent[COUNT], received[COUNT];
    void *a, *b;
    fill(sent, COUNT, (unsigned)plugin_version());
    CHECK(cudaSetDevice(1));
    CHECK(cudaMalloc(&b, COUNT));
    CHECK(cudaSetDevice(0));
    CHECK(cudaMalloc(&a, COUNT));
    CHECK(cudaMemcpy(a, sent, COUNT, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpyPeer(b, 1, a, 0, COUNT));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(received, b, COUNT, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(a));
    CHECK(cudaFree(b));
    return memcmp(sent, received, COUNT);
}

int plugin_provoke(int kind)
{
    return (int)(kind == 1 ? cudaMemcpyPeer(NULL, 99, NULL, 0, 1) : cudaDeviceDisablePeerAccess(1));
}

int plugin_last_error(void)
{
    return (int)cudaGetLastError();
}
