/* build: cudart12 driver; run: unwinds on sim
 * Calls whose first instructions in the shim are made in single steps: at each, a profiler or the cancellation of a thread
 * must find the way back to the caller. Says whether there were such instructions, and from how many the way was not found.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <link.h>
#include <ucontext.h>
#include <unwind.h>

#include "check.h"

static struct {
    uintptr_t start, end;
} shim;
enum { FIRST = 30, TRAP_FLAG = 256 }; /* further on the shim holds signals, and a trap that is held ends the process */
static int in_shim, of_call, lost;

#define STEP(call) \
    do { \
        of_call = 0; \
        if (shim.start) \
            __asm__ volatile("pushfq; orq $256, (%%rsp); popfq" ::: "memory", "cc"); \
        call; \
        __asm__ volatile("pushfq; andq $-257, (%%rsp); popfq" ::: "memory", "cc"); \
    } while (0)

static int find_shim(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size, (void)unused;
    if (!strstr(info->dlpi_name, "libp2pshim"))
        return 0;
    shim.start = info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t end = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
        shim.end = end > shim.end ? end : shim.end;
    }
    return 1;
}

static struct {
    void *memory[2];
    cudaStream_t stream;
    CUcontext contexts[2];
} with;

/* Frame by frame, to the function that makes the calls. */
__attribute__((noinline)) static void calls(void *driver)
{
    CUdeviceptr to = (CUdeviceptr)with.memory[1], from = (CUdeviceptr)with.memory[0];
    STEP(cudaMemcpyPeerAsync(with.memory[1], 1, with.memory[0], 0, 64, with.stream));
    STEP(cudaMemcpyPeer(with.memory[1], 1, with.memory[0], 0, 64));
    STEP(cuMemcpyPeerAsync(to, with.contexts[1], from, with.contexts[0], 64, with.stream));
    int can;
    STEP(cudaDeviceCanAccessPeer(&can, 0, 1));
    __typeof__(cuMemcpyPeer) *copy;
    STEP(copy = dlsym(driver, "cuMemcpyPeer"));
    STEP(copy(to, with.contexts[1], from, with.contexts[0], 64));
    STEP(dlsym(driver, "cuInit"));
}

static _Unwind_Reason_Code frame(struct _Unwind_Context *context, void *found)
{
    if (_Unwind_FindEnclosingFunction((void *)_Unwind_GetIP(context)) != (void *)calls)
        return _URC_NO_REASON;
    *(int *)found = 1;
    return _URC_END_OF_STACK;
}

static void on_trap(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    uintptr_t at = (uintptr_t)registers[REG_RIP];
    if (at < shim.start || at >= shim.end)
        return;
    if (++of_call == FIRST)
        registers[REG_EFL] &= ~TRAP_FLAG;
    int found = 0;
    _Unwind_Backtrace(frame, &found);
    in_shim++;
    if (!found && lost++ < 5)
        fprintf(stderr, "lost at %#lx\n", (unsigned long)(at - shim.start));
}

int main(void)
{
    for (int i = 1; i >= 0; i--) {
        with.memory[i] = device_memory(i, 64);
        REQUIRE(cuCtxGetCurrent(&with.contexts[i]) == CUDA_SUCCESS);
    }
    CHECK(cudaStreamCreate(&with.stream));
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    calls(driver);
    dl_iterate_phdr(find_shim, NULL);

    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    REQUIRE(sigaction(SIGTRAP, &action, NULL) == 0);
    calls(driver);
    printf("instructions of the shim: %s; no way back from %d\n", in_shim > FIRST ? "some" : "none", lost);
    return 0;
}
