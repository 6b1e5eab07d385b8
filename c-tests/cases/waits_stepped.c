/* build: -Ibenches blocking-driver/libcuda.so.1; run: P2PSHIM_VERIFY=off waits_stepped jump|cancel EVERY FIRST on blocking-driver
 * A copy is left at the instruction FIRST of its call, and EVERY so many further on, by a signal handler with siglongjmp, or since its thread is cancelled.
 * If the driver has got the copy, cuCtxSynchronize of the other context waits for an event that was recorded behind it.
 *
 * Prints how many copies nobody waits for, and on standard error whether many were left. Without p2pshim no event is recorded, and none is needed.
 */
#include <ucontext.h>

#include "check.h"
#include "lib/blocking_driver.h"
#include "null_cuda.h"

enum { BYTES = 1 << 20, WARM_UPS = 40, TRAP_FLAG = 256, MANY = 20 };

/* The driver defines them with types of its own. */
int cuCtxPushCurrent_v2(void *context);
int cuCtxPopCurrent_v2(void **context);

static void *contexts[DEVICES], *stream;
static sigjmp_buf out;
static volatile int steps, at, is_copying;
static int is_cancel;

static void on_user(int signal)
{
    (void)signal;
    siglongjmp(out, 1);
}

/* At the instruction, something happens at once or, where that is held back, as soon as it may. */
static void on_trap(int signal, siginfo_t *info, void *argument)
{
    ucontext_t *context = argument;
    (void)signal, (void)info;
    /* What sets and clears the flag has the stack otherwise than unwinding a cancelled thread expects it. */
    if (!is_copying || ++steps != at)
        return;
    context->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
    if (is_cancel)
        pthread_cancel(pthread_self());
    else
        raise(SIGUSR1);
}

static void copy(void)
{
    REQUIRE(cuMemcpyPeerAsync(LARGE(1), contexts[1], LARGE(0), contexts[0], BYTES, stream) == 0);
}

__attribute__((noinline)) static void copy_in_steps(void)
{
    is_copying = 0;
    __asm__ volatile("pushfq; orq $256, (%%rsp); popfq" ::: "memory", "cc");
    is_copying = 1;
    copy();
    is_copying = 0;
    __asm__ volatile("pushfq; andq $-257, (%%rsp); popfq" ::: "memory", "cc");
}

static void *copies(void *data)
{
    int type;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
    copy_in_steps();
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
    return data;
}

/* Whether the copy was left. */
static int leave(void)
{
    if (is_cancel)
        return run_in_thread(copies, NULL) == PTHREAD_CANCELED;
    if (sigsetjmp(out, 1) != 0)
        return 1;
    copy_in_steps();
    return 0;
}

/* Whether somebody has waited for an event behind the last copy, once the other context is synchronized. */
static int is_waited_for(void)
{
    uint64_t before;
    blocking_copies(&before);
    void *popped;
    REQUIRE(cuCtxPushCurrent_v2(contexts[1]) == 0);
    REQUIRE(cuCtxSynchronize() == 0);
    REQUIRE(cuCtxPopCurrent_v2(&popped) == 0);
    return null_events()->recorded == 0 || null_events()->passed > before;
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 4);
    is_cancel = strcmp(argv[1], "cancel") == 0;
    for (int device = 0; device < DEVICES; device++)
        REQUIRE(cuDevicePrimaryCtxRetain(&contexts[device], device) == 0);
    REQUIRE(cuStreamCreate(&stream, 1) == 0);
    for (int i = 0; i < WARM_UPS; i++)
        copy();
    struct sigaction trap = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO}, user = {.sa_handler = on_user};
    REQUIRE(sigaction(SIGTRAP, &trap, NULL) == 0 && sigaction(SIGUSR1, &user, NULL) == 0);
    volatile int left = 0, missed = 0, is_left = 1;
    for (at = atoi(argv[3]); is_left; at += atoi(argv[2])) {
        uint64_t ignored;
        long before = blocking_copies(&ignored);
        steps = 0;
        is_left = leave();
        left += is_left;
        missed += blocking_copies(&ignored) != before && !is_waited_for();
    }
    fprintf(stderr, "%s left\n", left > MANY ? "many" : "few");
    printf("%d copies that nobody waits for\n", missed);
    return missed != 0;
}
