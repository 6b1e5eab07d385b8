/*
 * Ends the process while it is inside a call: as one that hangs, and is ended from outside.
 */
#ifndef ENDS_INSIDE_H
#define ENDS_INSIDE_H

#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

/* Staging so much takes 6.7 ms, for which the call does not return. */
enum { LARGE = 256 << 20, SMALL = 4096 };

static volatile sig_atomic_t is_inside, ticks;

static inline void on_tick(int signal)
{
    (void)signal;
    ticks = is_inside ? ticks + 1 : 0;
    if (ticks == 3)
        _exit(3);
}

/* CALL is made, and again, should it return too soon. After the third tick of a millisecond the process ends. */
#define END_INSIDE(call) \
    do { \
        struct sigaction action = {.sa_handler = on_tick, .sa_flags = SA_RESTART}; \
        struct itimerval often = {{0, 1000}, {0, 1000}}; \
        REQUIRE(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0); \
        for (;;) { \
            is_inside = 1; \
            call; \
            is_inside = 0; \
        } \
    } while (0)

#endif
