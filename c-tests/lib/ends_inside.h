/*
 * Ends the process while it is inside a call: as one that hangs, and is ended from outside.
 */
#ifndef ENDS_INSIDE_H
#define ENDS_INSIDE_H

#include <time.h>
#include <unistd.h>

enum { LARGE = 256 << 20, SMALL = 4096 };

static volatile int is_inside;

/* By which simulated GPUs stage, in the program's thread too: its call cannot have returned by then, however busy the machine is. */
int nanosleep(const struct timespec *time, struct timespec *left)
{
    if (is_inside)
        _exit(3);
    return clock_nanosleep(CLOCK_MONOTONIC, 0, time, left);
}

/* CALL is made, and the process ends in it. */
#define END_INSIDE(call) \
    do { \
        is_inside = 1; \
        call; \
    } while (0)

#endif
