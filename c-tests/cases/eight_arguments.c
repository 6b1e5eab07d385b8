/* build: cudart13; run: eight_arguments on sim
 * A batch of CUDA 13, whose function takes 8 arguments, one fewer than that of 12: called with a stack that ends behind the
 * eighth, so that whoever looks for a ninth dies.
 */
#include <cuda_runtime_api.h>

#include "check.h"

enum { STACK = 1 << 20, PAGE = 4096, COPIES = 2, BYTES = 4096 };

/* Calls a function with 8 arguments on a stack that ends with them. */
__attribute__((noinline)) static int call(void *function, const uintptr_t *arguments, void *end)
{
    int code;
    __asm__ volatile("mov %%rsp, %%rbx\n\t"
                     "lea -16(%[end]), %%rsp\n\t"
                     "mov 48(%[from]), %%rax\n\t"
                     "mov %%rax, (%%rsp)\n\t"
                     "mov 56(%[from]), %%rax\n\t"
                     "mov %%rax, 8(%%rsp)\n\t"
                     "mov (%[from]), %%rdi\n\t"
                     "mov 8(%[from]), %%rsi\n\t"
                     "mov 16(%[from]), %%rdx\n\t"
                     "mov 24(%[from]), %%rcx\n\t"
                     "mov 32(%[from]), %%r8\n\t"
                     "mov 40(%[from]), %%r9\n\t"
                     "call *%[function]\n\t"
                     "mov %%rbx, %%rsp"
                     : "=&a"(code)
                     : [function] "r"(function), [from] "r"(arguments), [end] "r"(end)
                     : "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc", "xmm0", "xmm1", "xmm2",
                       "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
    return code;
}

int main(void)
{
    static unsigned char host[BYTES], back[BYTES];
    void *from, *to, *dsts[COPIES], *srcs[COPIES];
    size_t sizes[COPIES], which[1] = {0};
    cudaStream_t stream;
    to = device_memory(1, BYTES);
    from = device_memory(0, BYTES);
    CHECK(cudaStreamCreate(&stream));
    struct cudaMemcpyAttributes attributes = {.srcAccessOrder = cudaMemcpySrcAccessOrderStream};
    for (int i = 0; i < COPIES; i++) {
        dsts[i] = (char *)to + i * BYTES / COPIES;
        srcs[i] = (char *)from + i * BYTES / COPIES;
        sizes[i] = BYTES / COPIES;
    }
    char *stack = mmap(NULL, STACK + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(stack != MAP_FAILED && mprotect(stack + STACK, PAGE, PROT_NONE) == 0);
    uintptr_t arguments[8] = {(uintptr_t)dsts, (uintptr_t)srcs, (uintptr_t)sizes, COPIES,
                              (uintptr_t)&attributes, (uintptr_t)which, 1, (uintptr_t)stream};
    int wrong = 0;
    for (int i = 0; i < 20; i++) {
        fill(host, BYTES, i);
        CHECK(cudaMemcpy(from, host, BYTES, cudaMemcpyHostToDevice));
        CHECK(call((void *)cudaMemcpyBatchAsync, arguments, stack + STACK));
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaMemcpy(back, to, BYTES, cudaMemcpyDeviceToHost));
        wrong += memcmp(host, back, BYTES) != 0;
    }
    printf("%d of 20 batches wrong\n", wrong);
    return wrong != 0;
}
