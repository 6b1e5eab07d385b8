/* build: 11 12 13 static; run: P2PSIM_KERNELS=fill:w0=4096 built_by_nvcc on sim
 * A program as nvcc builds it for the shared runtime: its start registers a binary, kernels and a variable, launches go by the addresses of
 * functions. `fill` is declared to the simulation, and `other` is not: no image of it is for these devices.
 */
#include <cuda_runtime_api.h>

#include "check.h"

enum { BYTES = 4096 };

/* What crt/host_runtime.h declares. */
void **__cudaRegisterFatBinary(void *);
void __cudaRegisterFatBinaryEnd(void **);
void __cudaUnregisterFatBinary(void **);
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *, int *);
void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int);
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, struct CUstream_st *);
cudaError_t __cudaPopCallConfiguration(dim3 *, dim3 *, size_t *, void *);

static const unsigned long long image[] = {0x00100001ba55ed50, 0};
static const struct {
    int magic, version;
    const void *image;
    void *file;
} reference = {0x466243b1, 1, image, NULL};
static void **binary;
static int counter;

static void launch(const void *function, void **arguments)
{
    dim3 grid, block;
    size_t shared;
    void *stream;
    if (__cudaPopCallConfiguration(&grid, &block, &shared, &stream) == cudaSuccess)
        (void)cudaLaunchKernel(function, grid, block, arguments, shared, stream);
}

static void fill_kernel(unsigned char *to, int value)
{
    void *arguments[] = {&to, &value};
    launch((const void *)fill_kernel, arguments);
}

static void other_kernel(unsigned char *to)
{
    void *arguments[] = {&to};
    launch((const void *)other_kernel, arguments);
}

static void unregister(void)
{
    __cudaUnregisterFatBinary(binary);
}

__attribute__((constructor)) static void register_all(void)
{
    binary = __cudaRegisterFatBinary((void *)&reference);
    __cudaRegisterFunction(binary, (const char *)fill_kernel, "_Z4fillPhi", "_Z4fillPhi", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFunction(binary, (const char *)other_kernel, "_Z5otherPh", "_Z5otherPh", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterVar(binary, (char *)&counter, "counter", "counter", 0, sizeof counter, 0, 0);
    __cudaRegisterFatBinaryEnd(binary);
    atexit(unregister);
}

int main(void)
{
    const dim3 one = {1, 1, 1}, many = {2000, 1, 1};
    unsigned char *memory = device_memory(0, BYTES), found[BYTES];
    int value = 7;

    CHECK(cudaMemset(memory, 0, BYTES));
    __cudaPushCallConfiguration(one, one, 0, NULL);
    fill_kernel(memory, value);
    SHOW(cudaGetLastError());
    CHECK(cudaMemcpy(found, memory, BYTES, cudaMemcpyDeviceToHost));
    printf("stored: %d\n", found[0] == 1 && found[BYTES - 1] == 1);

    __cudaPushCallConfiguration(one, many, 0, NULL);
    fill_kernel(memory, value);
    SHOW(cudaGetLastError());
    __cudaPushCallConfiguration(one, one, 0, NULL);
    other_kernel(memory);
    SHOW(cudaGetLastError());
    SHOW(cudaDeviceSynchronize());

    CHECK(cudaMemcpyToSymbol(&counter, &value, sizeof value, 0, cudaMemcpyHostToDevice));
    value = 0;
    CHECK(cudaMemcpyFromSymbol(&value, &counter, sizeof value, 0, cudaMemcpyDeviceToHost));
    printf("variable: %d\n", value);

    /* The kernel reaches memory of the other device only with access. */
    unsigned char *far = device_memory(1, BYTES);
    CHECK(cudaSetDevice(0));
    CHECK(cudaDeviceEnablePeerAccess(1, 0));
    __cudaPushCallConfiguration(one, one, 0, NULL);
    fill_kernel(far, value);
    SHOW(cudaDeviceSynchronize());
    CHECK(cudaDeviceDisablePeerAccess(1));
    __cudaPushCallConfiguration(one, one, 0, NULL);
    fill_kernel(far, value);
    SHOW(cudaDeviceSynchronize());
    return 0;
}
