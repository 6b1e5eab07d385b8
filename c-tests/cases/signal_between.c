/* build: standin-runtime/libcudart.so.12; run: signal_between on standin-runtime
 * A signal handler makes a peer call of its own at every single instruction of another one. Neither may be mistaken for
 * the other: the copy answers as the copy, and the query writes only where it was told to. On the stand-in runtime.
 */
#include <cuda_runtime_api.h>
#include <ucontext.h>

#include "check.h"
#include "lib/standin_runtime.h"

static volatile int copies, traps, wrong;

static void count(void)
{
    __atomic_fetch_add(&copies, 1, __ATOMIC_RELAXED); /* one instruction: the handler counts too */
}

static void on_trap(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info, (void)context;
    traps++;
    /* The form with a stream answers otherwise, and so is told apart from the interrupted one. */
    if (cudaMemcpyPeerAsync(NULL, 0, NULL, 0, 0, NULL) != cudaErrorNotReady)
        wrong++;
}

static void set_trap(int on)
{
    if (on) /* the trap flag of EFLAGS: 256 */
        __asm__ volatile("pushfq; orq $256, (%%rsp); popfq" ::: "memory", "cc");
    else
        __asm__ volatile("pushfq; andq $-257, (%%rsp); popfq" ::: "memory", "cc");
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    /* Once before, so that nothing has to be looked up any more. */
    CHECK(cudaMemcpyPeer(NULL, 0, NULL, 0, 0));
    cudaMemcpyPeerAsync(NULL, 0, NULL, 0, 0, NULL);
    standin_on_copy(count);
    REQUIRE(sigaction(SIGTRAP, &action, NULL) == 0);
    set_trap(1);
    cudaError_t answer = cudaMemcpyPeer(NULL, 0, NULL, 0, 0);
    set_trap(0);
    printf("the copy: %s\n", cudaGetErrorName(answer));
    printf("calls of the handler that went elsewhere: %d, it ran: %s\n", wrong, traps > 5 ? "yes" : "no");
    printf("copies that arrived are as many as were made: %s\n", copies == traps + 1 ? "yes" : "NO");
    return 0;
}
