/* build: -ldl; run: by LD_PRELOAD
 * build libwraps_driver_symbolic.so: -Wl,-Bsymbolic -ldl
 * A library like those that share a GPU among containers: it defines functions of the driver and dlsym, which hands out its
 * own, and finds the next one as wrappers do: RTLD_NEXT, then the driver by name. Built a second time with -Bsymbolic. It says
 * at the end how many calls it saw.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "glibc.h"

typedef void *dlsym_fn(void *, const char *);
typedef int copy_fn(unsigned long long, void *, unsigned long long, void *, size_t, void *);
typedef int look_up_fn(const char *, void **, int, uint64_t, void *);

copy_fn cuMemcpyPeerAsync;
look_up_fn cuGetProcAddress_v2;

static int copies, handed_out, lookups;
static copy_fn *handed_on;

static dlsym_fn *real_dlsym(void)
{
    static dlsym_fn *real;
    if (!real)
        *(void **)&real = dlvsym(RTLD_NEXT, "dlsym", FIRST_GLIBC);
    return real;
}

static void *next(const char *name)
{
    void *found = real_dlsym()(RTLD_NEXT, name);
    return found ? found : real_dlsym()(dlopen("libcuda.so.1", RTLD_LAZY), name);
}

int cuMemcpyPeerAsync(unsigned long long dst, void *to, unsigned long long src, void *from, size_t bytes, void *stream)
{
    static copy_fn *real;
    if (!real)
        real = (copy_fn *)next("cuMemcpyPeerAsync");
    copies++;
    return real(dst, to, src, from, bytes, stream);
}

static int copy_handed_out(unsigned long long dst, void *to, unsigned long long src, void *from, size_t bytes, void *stream)
{
    handed_out++;
    return handed_on(dst, to, src, from, bytes, stream);
}

int cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, void *status)
{
    static look_up_fn *real;
    if (!real)
        real = (look_up_fn *)next("cuGetProcAddress_v2");
    lookups++;
    int code = real(name, found, version, flags, status);
    if (code == 0 && found && *found && strcmp(name, "cuMemcpyPeerAsync") == 0) {
        handed_on = (copy_fn *)*found;
        *found = (void *)copy_handed_out;
    }
    if (code == 0 && found && *found && strcmp(name, "cuGetProcAddress") == 0)
        *found = (void *)cuGetProcAddress_v2;
    return code;
}

void *dlsym(void *restrict handle, const char *restrict name)
{
    if (strcmp(name, "cuMemcpyPeerAsync") == 0)
        return (void *)cuMemcpyPeerAsync;
    if (strcmp(name, "cuGetProcAddress_v2") == 0)
        return (void *)cuGetProcAddress_v2;
    return real_dlsym()(handle, name);
}

__attribute__((destructor)) static void end(void)
{
    fprintf(stderr, "wrapper: %d copies, %d copies by a pointer handed out, %d look-ups\n", copies, handed_out, lookups);
}
