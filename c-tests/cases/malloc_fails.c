/* build: driver; run: malloc_fails [enables] on sim
 * malloc that fails for large sizes, once told so: the program goes on, and its copies are right.
 *
 *   enables   peer access is enabled by the program, both ways, before there is no memory
 */
#include <cuda.h>
#include <errno.h>

#include "check.h"

enum {
    COPIES = 20,
    BYTES = 4096,
    LARGE = 100000,
};

static int is_tight;

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static int fails(size_t size)
{
    if (is_tight && size >= LARGE)
        errno = ENOMEM;
    return is_tight && size >= LARGE;
}

void *malloc(size_t size)
{
    return fails(size) ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return size != 0 && fails(count * size) ? NULL : __libc_calloc(count, size);
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
    *out = fails(size) ? NULL : __libc_memalign(alignment, size);
    return *out == NULL ? ENOMEM : 0;
}

int main(int argc __attribute__((unused)), char **argv)
{
    CUcontext contexts[2];
    CUdeviceptr memory[2];
    int wrong = 0;
    CHECK_CU(cuInit(0));
    for (int device = 1; device >= 0; device--)
        memory[device] = context_memory(&contexts[device], device, BYTES);
    for (int device = 0; argv[1] != NULL && device < 2; device++) {
        CHECK_CU(cuCtxSetCurrent(contexts[device]));
        CHECK_CU(cuCtxEnablePeerAccess(contexts[!device], 0));
    }
    CHECK_CU(cuCtxSetCurrent(contexts[0]));
    is_tight = 1;
    for (int copy = 1; copy <= COPIES; copy++) {
        unsigned char found[BYTES];
        CHECK_CU(cuMemsetD8(memory[0], (unsigned char)copy, BYTES));
        CHECK_CU(cuMemcpyPeer(memory[1], contexts[1], memory[0], contexts[0], BYTES));
        CHECK_CU(cuMemcpyDtoH(found, memory[1], BYTES));
        for (int at = 0; at < BYTES; at++)
            wrong += found[at] != copy;
    }
    CHECK_CU(cuCtxSynchronize());
    printf("through, %d bytes are wrong\n", wrong);
    return 0;
}
