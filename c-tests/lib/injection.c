/* build: -ldl; run: by CUDA_INJECTION64_PATH
 * A tool as profilers are: the driver loads it by CUDA_INJECTION64_PATH and calls InitializeInjection inside cuInit. It looks the
 * driver's functions up by itself, calls some at once, and says at exit on standard error what it got.
 */
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static int initialised, devices, can_access, looked_up;

static void say(void)
{
    fprintf(stderr, "injection: initialised %d time(s), %d devices, peer access %d, looked up %d of 4\n", initialised, devices,
            can_access, looked_up);
}

int InitializeInjection(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), *found = NULL;
    CUresult (*init)(unsigned);
    CUresult (*can)(int *, CUdevice, CUdevice);
    CUresult (*count)(int *);
    CUresult (*address)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
    *(void **)&init = dlsym(driver, "cuInit");
    *(void **)&can = dlsym(driver, "cuDeviceCanAccessPeer");
    *(void **)&count = dlsym(driver, "cuDeviceGetCount");
    *(void **)&address = dlsym(driver, "cuGetProcAddress_v2");
    initialised++;
    looked_up = !!init + !!can + !!count + (address && address("cuMemcpyPeerAsync", &found, 4000, 0, NULL) == CUDA_SUCCESS && found);
    if (looked_up == 4 && init(0) == CUDA_SUCCESS && count(&devices) == CUDA_SUCCESS && devices > 1)
        can(&can_access, 0, 1);
    atexit(say);
    return 1;
}
