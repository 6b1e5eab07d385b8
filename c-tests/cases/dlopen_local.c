/* build: -Wl,-rpath,$ORIGIN; run: dlopen_local libcudart.so.12 on sim
 * A program that links nothing of CUDA, loads a runtime with RTLD_LOCAL and asks dlsym for every peer function, as Python
 * extensions, Julia and Rust do; then closes the runtime and loads it again.
 */
#include <cuda_runtime_api.h>

static const char *(*error_name)(cudaError_t);
#define cudaGetErrorName error_name
#include "check.h"

enum { COUNT = 3000 };

#define LOAD(handle, name) __typeof__(name) *name = load(handle, #name)

static void *load(void *handle, const char *name)
{
    void *function = dlsym(handle, name);
    printf("%s: %s\n", name, function ? "found" : "missing");
    REQUIRE(function);
    return function;
}

static void use(const char *path)
{
    void *runtime = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    REQUIRE(runtime);
    *(void **)&error_name = dlsym(runtime, "cudaGetErrorName");
    LOAD(runtime, cudaSetDevice);
    LOAD(runtime, cudaMalloc);
    LOAD(runtime, cudaMemcpy);
    LOAD(runtime, cudaDeviceSynchronize);
    LOAD(runtime, cudaGetLastError);
    LOAD(runtime, cudaMemcpyPeer);
    LOAD(runtime, cudaMemcpyPeerAsync);
    LOAD(runtime, cudaMemcpy3DPeer);
    LOAD(runtime, cudaMemcpy3DPeerAsync);
    LOAD(runtime, cudaDeviceCanAccessPeer);
    LOAD(runtime, cudaDeviceEnablePeerAccess);
    LOAD(runtime, cudaDeviceDisablePeerAccess);
    LOAD(runtime, cudaDeviceGetP2PAttribute);

    unsigned char host[COUNT];
    void *a, *b;
    int can = -7, supported = -7;
    CHECK(cudaSetDevice(1));
    CHECK(cudaMalloc(&b, COUNT));
    CHECK(cudaSetDevice(0));
    CHECK(cudaMalloc(&a, COUNT));
    fill(host, COUNT, 3);
    CHECK(cudaMemcpy(a, host, COUNT, cudaMemcpyHostToDevice));

    SHOW(cudaDeviceCanAccessPeer(&can, 0, 1));
    SHOW(cudaDeviceGetP2PAttribute(&supported, cudaDevP2PAttrAccessSupported, 0, 1));
    printf("can %d, supported %d\n", can, supported);
    SHOW(cudaDeviceEnablePeerAccess(1, 0));
    SHOW(cudaMemcpyPeer(b, 1, a, 0, COUNT));
    SHOW(cudaMemcpyPeerAsync(b, 1, a, 0, COUNT, 0));
    SHOW(cudaMemcpy3DPeer(NULL));
    SHOW(cudaGetLastError());
    SHOW(cudaMemcpy3DPeerAsync(NULL, 0));
    SHOW(cudaGetLastError());
    SHOW(cudaDeviceSynchronize());
    SHOW(cudaDeviceDisablePeerAccess(1));
    memset(host, 0, COUNT);
    CHECK(cudaMemcpy(host, b, COUNT, cudaMemcpyDeviceToHost));
    printf("destination %08x\n", checksum(host, COUNT));
    REQUIRE(dlsym(runtime, "cudaMemcpyPear") == NULL && dlerror() != NULL);
    REQUIRE(dlclose(runtime) == 0);
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 2);
    use(argv[1]);
    printf("loaded again\n");
    use(argv[1]);
    return 0;
}
