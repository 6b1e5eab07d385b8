/* build: -rdynamic cudart12; run: wraps_dlsym on sim
 * A program that exports a dlsym of its own, as some injected allocators and profilers do, with the real one found by
 * dlvsym(RTLD_NEXT). It must neither recurse nor get other answers. Its dlsym stands before every preloaded one, so only
 * calls that are bound by linking can be seen.
 */
#include <cuda_runtime_api.h>

#include "check.h"
#include "glibc.h"

static int lookups;

void *dlsym(void *restrict handle, const char *restrict name)
{
    static void *(*real)(void *, const char *);
    if (!real)
        *(void **)&real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (!real)
        *(void **)&real = dlvsym(RTLD_NEXT, "dlsym", FIRST_GLIBC);
    if (strcmp(name, "cudaMemcpyPeer") == 0)
        lookups++;
    return real(handle, name);
}

int main(void)
{
    enum { COUNT = 900 };
    unsigned char host[COUNT];
    void *a, *b;
    b = device_memory(1, COUNT);
    a = device_memory(0, COUNT);
    fill(host, COUNT, 4);
    CHECK(cudaMemcpy(a, host, COUNT, cudaMemcpyHostToDevice));
    SHOW(cudaMemcpyPeer(b, 1, a, 0, COUNT));

    void *runtime = dlopen("libcudart.so.12", RTLD_NOW | RTLD_LOCAL);
    REQUIRE(runtime);
    __typeof__(cudaMemcpyPeer) *copy = dlsym(runtime, "cudaMemcpyPeer");
    REQUIRE(copy);
    SHOW(copy(b, 1, a, 0, COUNT));
    REQUIRE(dlsym(RTLD_NEXT, "cudaGetErrorName"));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(host, b, COUNT, cudaMemcpyDeviceToHost));
    printf("destination %08x\n", checksum(host, COUNT));
    printf("own dlsym asked for cudaMemcpyPeer: %d\n", lookups);
    return 0;
}
