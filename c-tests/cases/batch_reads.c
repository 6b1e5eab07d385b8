/* build: driver; run: batch_reads on sim
 * Batches of many copies: how often their arguments are asked for by a system call, which this program counts. (It defines the function that
 * makes it, so that whoever looks for that finds this one.)
 */
#include <cuda.h>
#include <sys/uio.h>

#include "check.h"

enum { COPIES = 4096, EACH = 64 };

static volatile int calls;

ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long locals, const struct iovec *remote, unsigned long remotes,
                         unsigned long flags)
{
    calls++;
    return syscall(SYS_process_vm_readv, pid, local, locals, remote, remotes, flags);
}

int main(void)
{
    static CUdeviceptr dsts[COPIES], srcs[COPIES];
    static size_t sizes[COPIES], firsts[COPIES];
    static CUmemcpyAttributes attributes[COPIES];
    CUcontext contexts[2];
    CUdeviceptr memory[2];
    size_t failed;
    CHECK_CU(cuInit(0));
    for (int device = 1; device >= 0; device--)
        memory[device] = context_memory(&contexts[device], device, COPIES * EACH);
    CUstream stream = driver_stream();
    for (int copy = 0; copy < COPIES; copy++) {
        srcs[copy] = memory[0] + (size_t)copy * EACH;
        dsts[copy] = memory[1] + (size_t)copy * EACH;
        sizes[copy] = EACH;
        firsts[copy] = (size_t)copy;
        attributes[copy].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    }
    for (int batch = 0; batch < 3; batch++) {
        calls = 0;
        CHECK_CU(cuMemcpyBatchAsync(dsts, srcs, sizes, COPIES, attributes, firsts, COPIES, &failed, stream));
        CHECK_CU(cuStreamSynchronize(stream));
        /* Each array is asked for page by page, and once as a whole. */
        if (calls < COPIES / 8)
            printf("%d copies: fewer than one call for eight\n", COPIES);
        else
            printf("%d copies: %d calls\n", COPIES, calls);
    }
    return 0;
}
