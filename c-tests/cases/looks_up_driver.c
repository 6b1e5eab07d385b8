/* build: -Wl,-rpath,$ORIGIN; run: looks_up_driver [all] on sim
 * A program of the driver API that finds each function by dlsym and is linked with nothing of CUDA. With `all`
 * it asks for them in all that is loaded, instead of by the driver's handle.
 */
#include <cuda.h>

#include "check.h"

#define FIND(name) __typeof__(name) *find_##name = dlsym(from, #name); REQUIRE(find_##name)

int main(int count, char **arguments)
{
    (void)arguments;
    enum { COPIES = 30, BYTES = 4096 };
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | (count > 1 ? RTLD_GLOBAL : RTLD_LOCAL));
    REQUIRE(driver);
    void *from = count > 1 ? RTLD_DEFAULT : driver;
    FIND(cuInit);
    FIND(cuDevicePrimaryCtxRetain);
    FIND(cuCtxSetCurrent);
    FIND(cuMemAlloc_v2);
    FIND(cuMemcpyPeerAsync);
    FIND(cuStreamCreate);
    FIND(cuStreamSynchronize);
    FIND(cuMemcpyDtoH_v2);
    FIND(cuMemcpyHtoD_v2);
    CUcontext contexts[2];
    CUdeviceptr memory[2];
    CUstream stream;
    unsigned char host[BYTES], back[BYTES];
    int code = find_cuInit(0), wrong = 0;
    for (int i = 0; i < 2; i++) {
        code |= find_cuDevicePrimaryCtxRetain(&contexts[i], i);
        code |= find_cuCtxSetCurrent(contexts[i]);
        code |= find_cuMemAlloc_v2(&memory[i], BYTES);
    }
    code |= find_cuCtxSetCurrent(contexts[0]);
    code |= find_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < COPIES; i++) {
        fill(host, BYTES, i);
        code |= find_cuMemcpyHtoD_v2(memory[0], host, BYTES);
        code |= find_cuMemcpyPeerAsync(memory[1], contexts[1], memory[0], contexts[0], BYTES, stream);
        code |= find_cuStreamSynchronize(stream);
        code |= find_cuMemcpyDtoH_v2(back, memory[1], BYTES);
        wrong += memcmp(host, back, BYTES) != 0;
    }
    printf("codes %d, %d of %d wrong\n", code, wrong, COPIES);
    return code != 0 || wrong != 0;
}
