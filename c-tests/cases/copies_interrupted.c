/* build: -Ibenches -Iinclude null-driver/libcudart.so.12; run: P2PSHIM_VERIFY=off copies_interrupted [driver EVERY FIRST|below|above] on null-driver
 * Copies like ones before, interrupted at every single instruction by a signal handler that copies as well, by a runtime that has
 * the driver copy; with the argument "driver", at the instruction FIRST and EVERY so many further on, each in another copy, by a handler
 * that has the driver copy itself; with "below" or "above", by one on a stack of its own, which lies below or above the thread's. All are made, and both layers' calls are counted as often as they were made. On a runtime, and the benchmarks' driver,
 * without locks and with nothing behind them.
 */
#include <ucontext.h>

#include "check.h"
#include "null_cuda.h"
#include "p2pshim.h"

/* Before: enough for whatever the shim does once, threads of its own included. */
enum { BEFORE = 3000, ROUNDS = 3, BETWEEN = 7, BYTES = 8192, TRAP_FLAG = 256 };

static volatile unsigned long long made, by_driver, wrong, traps;
static volatile int steps, at; /* of the copy that is interrupted once */
static int every = 1, first = 1;
static memcpy_peer_async_t *copy_by_driver;
static void *contexts[DEVICES];

/* The one place that copies. */
__attribute__((noinline)) static void copy(void)
{
    __atomic_fetch_add(&made, 1, __ATOMIC_RELAXED); /* one instruction: the handler counts too */
    wrong += cudaMemcpyPeerAsync((void *)LARGE(1), 1, (void *)LARGE(0), 0, BYTES, NULL) != 0;
}

static void on_trap(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info;
    traps++;
    if (!copy_by_driver) {
        copy();
        return;
    }
    if (++steps != at)
        return;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
    by_driver++;
    wrong += copy_by_driver(LARGE(1), contexts[1], LARGE(0), contexts[0], BYTES, NULL) != 0;
}

static void set_trap(int on)
{
    if (on) /* the trap flag of EFLAGS: 256 */
        __asm__ volatile("pushfq; orq $256, (%%rsp); popfq" ::: "memory", "cc");
    else
        __asm__ volatile("pushfq; andq $-257, (%%rsp); popfq" ::: "memory", "cc");
}

/* How often a function was called, by the shim's account. */
static unsigned long long calls_of(const char *name, unsigned long long otherwise)
{
    __typeof__(&p2pshim_calls_get) get;
    *(void **)&get = dlsym(RTLD_DEFAULT, "p2pshim_calls_get");
    uint64_t calls = otherwise; /* nobody counts */
    REQUIRE(!get || get(name, &calls, NULL) == P2PSHIM_OK);
    return calls;
}

/* As the runtime does. */
static void find_driver(void)
{
    get_proc_address_t *get;
    int (*retain)(void **, int);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    REQUIRE(driver);
    *(void **)&get = dlsym(driver, "cuGetProcAddress_v2");
    *(void **)&retain = dlsym(driver, "cuDevicePrimaryCtxRetain");
    for (int device = 0; device < DEVICES; device++)
        REQUIRE(retain(&contexts[device], device) == 0);
    REQUIRE(get("cuMemcpyPeerAsync", (void **)&copy_by_driver, 4000, 0, NULL) == 0);
}

static const char *mode = "";
static char *stacks;
enum { STACK = 1 << 20 };

static void *copies(void *unused)
{
    int is_above = strcmp(mode, "above") == 0;
    if (stacks)
        REQUIRE(sigaltstack(&(stack_t){.ss_sp = stacks + (is_above ? STACK : 0), .ss_size = STACK}, NULL) == 0);
    REQUIRE(sigaction(SIGTRAP, &(struct sigaction){.sa_sigaction = on_trap, .sa_flags = SA_ONSTACK | SA_SIGINFO}, NULL) == 0);
    for (int i = 0; i < BEFORE; i++)
        copy();
    if (strcmp(mode, "driver") == 0)
        find_driver();
    for (int round = 0; copy_by_driver ? steps >= at : round < ROUNDS; round++) {
        steps = 0;
        at = first + round * every;
        set_trap(1);
        copy();
        set_trap(0);
        for (int i = 0; i < BETWEEN; i++)
            copy();
    }
    return unused;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        mode = argv[1];
    if (strcmp(mode, "driver") == 0) {
        REQUIRE(argc == 4);
        every = atoi(argv[2]);
        first = atoi(argv[3]);
    }
    if (strcmp(mode, "below") == 0 || strcmp(mode, "above") == 0) {
        stacks = mmap(NULL, 2 * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        REQUIRE(stacks != MAP_FAILED);
        pthread_t thread;
        pthread_attr_t attributes;
        REQUIRE(pthread_attr_init(&attributes) == 0);
        REQUIRE(pthread_attr_setstack(&attributes, stacks + (strcmp(mode, "above") ? STACK : 0), STACK) == 0);
        REQUIRE(pthread_create(&thread, &attributes, copies, NULL) == 0);
        REQUIRE(pthread_join(thread, NULL) == 0);
    } else {
        copies(NULL);
    }
    printf("refused: %llu, the handler ran: %s\n", wrong, traps > 10 ? "yes" : "no");
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "cuMemcpyPeerAsync" : "cudaMemcpyPeerAsync";
        unsigned long long all = made + (i ? by_driver : 0);
        long long more = (long long)(calls_of(name, all) - all);
        printf("%s: counted %lld more than made\n", name, more);
    }
    return 0;
}
