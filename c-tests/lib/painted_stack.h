/*
 * How much stack a call takes: it is made on a stack that was painted before, and what is not painted any more was used.
 */
#ifndef P2PSHIM_C_TESTS_PAINTED_STACK_H
#define P2PSHIM_C_TESTS_PAINTED_STACK_H

#include "check.h"

enum { PAINT = 0xa5, BELOW = 512 /* bytes under a frame that are left to it */ };

static struct {
    unsigned char *deepest;
    void (*prepare)(void), (*call)(void);
    int by_signal;
    long took;
} painted;

static void *on_painted(void *unused)
{
    (void)unused;
    if (painted.prepare && !painted.by_signal)
        painted.prepare();
    unsigned char *here = __builtin_frame_address(0);
    /* What was called before has left its traces. */
    for (volatile unsigned char *at = painted.deepest; at < here - BELOW; at++)
        *at = PAINT;
    painted.call();
    unsigned char *at = painted.deepest;
    while (at < here && *at == PAINT)
        at++;
    painted.took = here - at;
    return NULL;
}

static void on_painted_by_signal(int signal)
{
    (void)signal;
    on_painted(NULL);
}

/* Bytes that `call` takes of a stack of `bytes`: of a new thread, which calls `prepare` before, or of a signal handler of this one. */
static inline long painted_depth(size_t bytes, int by_signal, void (*prepare)(void), void (*call)(void))
{
    /* The page below is nobody's. */
    enum { GUARD = 4096 };
    unsigned char *stack = mmap(NULL, GUARD + bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(stack != MAP_FAILED && mprotect(stack, GUARD, PROT_NONE) == 0);
    painted.deepest = stack + GUARD;
    painted.prepare = prepare;
    painted.call = call;
    painted.by_signal = by_signal;
    if (by_signal) {
        stack_t own = {.ss_sp = painted.deepest, .ss_size = bytes}, none = {.ss_flags = SS_DISABLE};
        struct sigaction action = {.sa_handler = on_painted_by_signal, .sa_flags = SA_ONSTACK};
        REQUIRE(sigaltstack(&own, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
        raise(SIGUSR1);
        REQUIRE(sigaltstack(&none, NULL) == 0);
    } else {
        pthread_attr_t attributes;
        pthread_t thread;
        REQUIRE(pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, painted.deepest, bytes) == 0);
        REQUIRE(pthread_create(&thread, &attributes, on_painted, NULL) == 0 && pthread_join(thread, NULL) == 0);
    }
    munmap(stack, GUARD + bytes);
    return painted.took;
}

/* Prints the most that one of the early calls took, among which something is made for the first time, and one of the later ones. */
static inline void painted_show(size_t bytes, int by_signal, void (*prepare)(void), void (*call)(void))
{
    enum { EARLY = 40, LATER = 10 };
    long now, most[2] = {0};
    for (int i = 0; i < EARLY + LATER; i++)
        most[i >= EARLY] = (now = painted_depth(bytes, by_signal, prepare, call)) > most[i >= EARLY] ? now : most[i >= EARLY];
    printf("first %ld\nlater %ld\n", most[0], most[1]);
}

#endif
