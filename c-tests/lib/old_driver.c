/* build old-driver/libcuda.so.1: reusing_driver.c -Wl,-Bsymbolic -lpthread; run: by LD_LIBRARY_PATH
 * A stand-in for libcuda.so.1 that has functions of the driver in both forms, as NVIDIA's has: those until CUDA 3.1, in which addresses and
 * sizes have 32 bits, and those since 3.2. Each prints its name and what it was given, and returns a code of its own. They do nothing.
 * All else is of reusing_driver.c, which knows from an address which of two devices has it.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { NOT_FOUND = 500 };

int cuMemAlloc(uint32_t *at, uint32_t bytes);
int cuMemAlloc_v2(uint64_t *at, uint64_t bytes);
int cuMemFree(uint32_t at);
int cuMemFree_v2(uint64_t at);
int cuMemcpyDtoD(uint32_t dst, uint32_t src, uint32_t bytes);
int cuMemcpyDtoD_v2(uint64_t dst, uint64_t src, uint64_t bytes);
int cuMemcpyDtoDAsync(uint32_t dst, uint32_t src, uint32_t bytes, void *stream);
int cuMemcpyDtoDAsync_v2(uint64_t dst, uint64_t src, uint64_t bytes, void *stream);
int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags);

int cuMemAlloc(uint32_t *at, uint32_t bytes)
{
    printf("    cuMemAlloc of %#x\n", (unsigned)bytes);
    *at = 0x1000;
    return 41;
}

int cuMemAlloc_v2(uint64_t *at, uint64_t bytes)
{
    printf("    cuMemAlloc_v2 of %#llx\n", (unsigned long long)bytes);
    *at = 0x1000000000;
    return 42;
}

int cuMemFree(uint32_t at)
{
    printf("    cuMemFree of %#x\n", (unsigned)at);
    return 43;
}

int cuMemFree_v2(uint64_t at)
{
    printf("    cuMemFree_v2 of %#llx\n", (unsigned long long)at);
    return 44;
}

int cuMemcpyDtoD(uint32_t dst, uint32_t src, uint32_t bytes)
{
    printf("    cuMemcpyDtoD from %#x to %#x, %#x\n", (unsigned)src, (unsigned)dst, (unsigned)bytes);
    return 45;
}

int cuMemcpyDtoD_v2(uint64_t dst, uint64_t src, uint64_t bytes)
{
    printf("    cuMemcpyDtoD_v2 from %#llx to %#llx, %#llx\n", (unsigned long long)src, (unsigned long long)dst, (unsigned long long)bytes);
    return 46;
}

int cuMemcpyDtoDAsync(uint32_t dst, uint32_t src, uint32_t bytes, void *stream)
{
    printf("    cuMemcpyDtoDAsync from %#x to %#x, %#x, stream %d\n", (unsigned)src, (unsigned)dst, (unsigned)bytes, stream != NULL);
    return 47;
}

int cuMemcpyDtoDAsync_v2(uint64_t dst, uint64_t src, uint64_t bytes, void *stream)
{
    printf("    cuMemcpyDtoDAsync_v2 from %#llx to %#llx, %#llx, stream %d\n", (unsigned long long)src, (unsigned long long)dst,
           (unsigned long long)bytes, stream != NULL);
    return 48;
}

int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags)
{
    static const struct {
        const char *name;
        void *old, *new;
    } functions[] = {
        {"cuMemAlloc", (void *)cuMemAlloc, (void *)cuMemAlloc_v2},
        {"cuMemFree", (void *)cuMemFree, (void *)cuMemFree_v2},
        {"cuMemcpyDtoD", (void *)cuMemcpyDtoD, (void *)cuMemcpyDtoD_v2},
        {"cuMemcpyDtoDAsync", (void *)cuMemcpyDtoDAsync, (void *)cuMemcpyDtoDAsync_v2},
    };
    (void)flags;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strcmp(functions[i].name, name) == 0) {
            *function = version < 3020 ? functions[i].old : functions[i].new;
            return 0;
        }
    *function = NULL;
    return NOT_FOUND;
}
