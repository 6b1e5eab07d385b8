/*
 * Ends the process while it is inside a call, as one that hangs, and is ended from outside; or has it become another program.
 */
#ifndef ENDS_INSIDE_H
#define ENDS_INSIDE_H

#include <sys/time.h>

/* Staging so much takes 6.7 ms, for which the call does not return. */
enum { LARGE = 256 << 20, SMALL = 4096 };

static volatile sig_atomic_t is_inside, ticks;
/* What the process executes in its place, if anything. */
static char **becomes;

/* By which simulated GPUs stage, in the program's thread too: its call cannot have returned by then, however busy the machine is. */
int nanosleep(const struct timespec *time, struct timespec *left)
{
    if (is_inside && becomes)
        execvp(becomes[0], becomes);
    if (is_inside)
        _exit(3);
    return clock_nanosleep(CLOCK_MONOTONIC, 0, time, left);
}

static inline void on_tick(int signal)
{
    (void)signal;
    ticks = is_inside ? ticks + 1 : 0;
    if (ticks == 3)
        _exit(3);
}

/* For real GPUs: the process ends after the third tick of a millisecond inside a call. */
static inline void end_by_ticks(void)
{
    struct sigaction action = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 1000}, {0, 1000}};
    REQUIRE(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
}

/* CALL is made, and the process ends in it; with ENDS_BY_TICKS it is made again, should it return too soon. */
#define END_INSIDE(call) \
    do { \
        int by_ticks = getenv("ENDS_BY_TICKS") != NULL; \
        if (by_ticks) \
            end_by_ticks(); \
        do { \
            is_inside = 1; \
            call; \
            is_inside = 0; \
        } while (by_ticks); \
    } while (0)

#endif
