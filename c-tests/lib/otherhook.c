/* build: -ldl; run: by LD_PRELOAD
 * Somebody else's preload library: wraps dlsym and cudaMemcpyPeer and hands on to the next. With OTHERHOOK_LOG set to a
 * file, it writes a line there for each call that it saw.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "glibc.h"

typedef int copy_fn(void *, int, const void *, int, size_t);

copy_fn cudaMemcpyPeer;

static void note(const char *what)
{
    const char *path = getenv("OTHERHOOK_LOG");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file)
        return;
    fprintf(file, "%s\n", what);
    fclose(file);
}

void *dlsym(void *restrict handle, const char *restrict name)
{
    static void *(*real)(void *, const char *);
    if (!real)
        *(void **)&real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (!real)
        *(void **)&real = dlvsym(RTLD_NEXT, "dlsym", FIRST_GLIBC);
    if (strcmp(name, "cudaMemcpyPeer") == 0)
        note("dlsym");
    return real(handle, name);
}

int cudaMemcpyPeer(void *dst, int dst_device, const void *src, int src_device, size_t count)
{
    static copy_fn *next;
    if (!next)
        next = (copy_fn *)dlsym(RTLD_NEXT, "cudaMemcpyPeer");
    note("cudaMemcpyPeer");
    return next(dst, dst_device, src, src_device, count);
}
