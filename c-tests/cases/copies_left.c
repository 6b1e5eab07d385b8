/* build: standin-runtime/libcudart.so.12; run: P2PSHIM_VALIDATE=off copies_left on standin-runtime
 * Copies like ones before are left by longjmp, by the end of a cancelled thread, and interrupted at every single instruction
 * by a signal handler that copies as well. What comes after them goes where it should and is not taken for nested. On the
 * stand-in runtime, whose copies nobody can look at.
 */
#include <cuda_runtime_api.h>
#include <semaphore.h>
#include <ucontext.h>

#include "check.h"
#include "lib/standin_runtime.h"

enum { BEFORE = 40, ROUNDS = 3 };

static char from[64], to[64];

/* The one place that copies. */
__attribute__((noinline)) static cudaError_t copy(void)
{
    return cudaMemcpyPeerAsync(to, 1, from, 0, sizeof to, NULL);
}

/* Makes copies, and one more in which something happens, unless that is NULL. */
__attribute__((noinline)) static void copies(const char *when, void (*action)(void))
{
    int refused = 0;
    for (int i = 0; i < BEFORE; i++)
        refused += copy() != cudaSuccess;
    printf("%s: %d refused\n", when, refused);
    if (!action)
        return;
    standin_on_copy(action);
    printf("returned %d\n", (int)copy());
}

static jmp_buf out;

static void jump(void)
{
    longjmp(out, 1);
}

static void leave(void)
{
    for (volatile int round = 0; round < ROUNDS; round++) {
        /* The next copies are made from as far down the stack: so it shows that this one is over. */
        if (setjmp(out) == 0)
            copies("before a jump", jump);
        standin_on_copy(NULL);
    }
    copies("after it", NULL);
}

static sem_t blocked;

static void block(void)
{
    sem_post(&blocked);
    for (;;)
        pause();
}

static void *copying(void *unused)
{
    (void)unused;
    copies("in a thread", block);
    return NULL;
}

static void cancel(void)
{
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t thread;
        void *result;
        REQUIRE(pthread_create(&thread, NULL, copying, NULL) == 0);
        REQUIRE(sem_wait(&blocked) == 0);
        REQUIRE(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
        standin_on_copy(NULL);
        printf("%s\n", result == PTHREAD_CANCELED ? "cancelled" : "NOT cancelled");
        copies("after it", NULL);
    }
}

static volatile int made, traps, wrong;

static void count(void)
{
    __atomic_fetch_add(&made, 1, __ATOMIC_RELAXED); /* one instruction: the handler counts too */
}

static void on_trap(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info, (void)context;
    traps++;
    wrong += copy() != cudaSuccess;
}

static void set_trap(int on)
{
    if (on) /* the trap flag of EFLAGS: 256 */
        __asm__ volatile("pushfq; orq $256, (%%rsp); popfq" ::: "memory", "cc");
    else
        __asm__ volatile("pushfq; andq $-257, (%%rsp); popfq" ::: "memory", "cc");
}

static void interrupt(void)
{
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    REQUIRE(sigaction(SIGTRAP, &action, NULL) == 0);
    copies("before signals", NULL);
    standin_on_copy(count);
    int refused = 0;
    set_trap(1);
    for (int i = 0; i < ROUNDS; i++)
        refused += copy() != cudaSuccess;
    set_trap(0);
    printf("refused: %d, of the handler's: %d, it ran: %s\n", refused, wrong, traps > 10 ? "yes" : "no");
    printf("copies that arrived are as many as were made: %s\n", made == traps + ROUNDS ? "yes" : "NO");
    standin_on_copy(NULL);
    copies("after signals", NULL);
}

int main(void)
{
    standin_async_answers(cudaSuccess);
    REQUIRE(sem_init(&blocked, 0, 0) == 0);
    leave();
    cancel();
    interrupt();
    return 0;
}
