/*
 * Copies like ones before, interrupted at every single instruction by a signal handler that copies as well, by a runtime that has
 * the driver copy; with the argument "driver", at one instruction after the other, each in another copy, by a handler that has
 * the driver copy itself. All are made, and both layers' calls are counted as often as they were made. On a runtime and a driver
 * without locks and with nothing behind them: with P2PSHIM_PROBE=off.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "null_cuda.h"
#include "p2pshim.h"

/* Before: enough for whatever the shim does once, threads of its own included. */
enum { BEFORE = 3000, ROUNDS = 3, BETWEEN = 7, BYTES = 8192 };

static volatile unsigned long long made, by_driver, wrong, traps;
static volatile int steps, at; /* of the copy that is interrupted once */
static memcpy_peer_async_t *copy_by_driver;
static void *contexts[DEVICES];

/* The one place that copies. */
__attribute__((noinline)) static void copy(void)
{
    __atomic_fetch_add(&made, 1, __ATOMIC_RELAXED); /* one instruction: the handler counts too */
    wrong += cudaMemcpyPeerAsync((void *)LARGE(1), 1, (void *)LARGE(0), 0, BYTES, NULL) != 0;
}

static void on_trap(int signal)
{
    (void)signal;
    traps++;
    if (!copy_by_driver) {
        copy();
        return;
    }
    if (++steps != at)
        return;
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
    p2pshim_status_t (*get)(size_t, p2pshim_api_t *);
    *(void **)&get = dlsym(RTLD_DEFAULT, "p2pshim_api_get");
    if (!get)
        return otherwise; /* nobody counts */
    p2pshim_api_t api = {.size = sizeof api};
    for (size_t i = 0; get(i, &api) == P2PSHIM_OK; i++)
        if (strcmp(api.name, name) == 0)
            return api.calls;
    return 0;
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

int main(int argc, char **argv)
{
    REQUIRE(signal(SIGTRAP, on_trap) != SIG_ERR);
    for (int i = 0; i < BEFORE; i++)
        copy();
    if (argc > 1 && strcmp(argv[1], "driver") == 0)
        find_driver();
    for (int round = 0; copy_by_driver ? steps >= at : round < ROUNDS; round++) {
        steps = 0;
        at = round + 1;
        set_trap(1);
        copy();
        set_trap(0);
        for (int i = 0; i < BETWEEN; i++)
            copy();
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
