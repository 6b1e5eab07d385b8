/* build: old-driver/libcuda.so.1; run: old_driver_forms on old-driver
 * Functions of the driver as programs until CUDA 3.1 call them, by names that have no `_v2`: addresses and sizes have 32 bits. They are
 * other functions than those of the same name in today's headers, and come by linking, by dlsym, and by cuGetProcAddress for an old version.
 * After each, the form of today. No headers are needed. It runs on a stand-in driver that prints what it was given.
 */
#include "check.h"

int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags);
int cuInit(unsigned flags);
int cuMemAlloc(uint32_t *at, uint32_t bytes);
int cuMemcpyDtoD(uint32_t dst, uint32_t src, uint32_t bytes);
int cuMemcpyDtoDAsync(uint32_t dst, uint32_t src, uint32_t bytes, void *stream);
int cuMemFree(uint32_t at);
int cuMemcpyDtoD_v2(uint64_t dst, uint64_t src, uint64_t bytes);

/* Where the stand-in has memory of its two devices. */
static const uint64_t ON_0 = 1ull << 40, ON_1 = (1ull << 40) + (1ull << 32);

typedef int new_copy_form(uint64_t, uint64_t, uint64_t);

static void *by_version(const char *name, int version)
{
    void *function;
    REQUIRE(cuGetProcAddress(name, &function, version, 0) == 0);
    return function;
}

static void call(const char *how, void *old, void *new)
{
    printf("%s\n", how);
    /* Above 32 bits a register may hold anything. */
    printf("%d\n", ((new_copy_form *)old)(ON_1 + 0x2000, ON_0 + 0x1000, 0xfffffff0));
    printf("%d\n", ((new_copy_form *)new)(ON_1, ON_0, 0x1000));
}

int main(void)
{
    uint32_t guarded[2] = {0, 0x55555555};
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    REQUIRE(driver != NULL);
    printf("%d\n", cuInit(0));
    printf("%d\n", cuMemAlloc(guarded, 0xfffffff0));
    REQUIRE(guarded[0] == 0x1000 && guarded[1] == 0x55555555);
    call("linked", (void *)cuMemcpyDtoD, (void *)cuMemcpyDtoD_v2);
    call("by dlsym", dlsym(driver, "cuMemcpyDtoD"), dlsym(driver, "cuMemcpyDtoD_v2"));
    call("by dlsym everywhere", dlsym(RTLD_DEFAULT, "cuMemcpyDtoD"), dlsym(RTLD_DEFAULT, "cuMemcpyDtoD_v2"));
    call("by version", by_version("cuMemcpyDtoD", 2000), by_version("cuMemcpyDtoD", 3020));
    printf("%d\n", cuMemcpyDtoDAsync(0x2000, 0x1000, 0xfffffff0, &driver));
    printf("%d\n", cuMemFree(0x1000));
    return 0;
}
