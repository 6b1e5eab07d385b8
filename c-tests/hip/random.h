/*
 * What the random programs share: numbers drawn from a seed, a checksum of all that is seen, and what a thread's last error
 * should be in the release that they are built for.
 */
#ifndef P2PSHIM_C_TESTS_HIP_RANDOM_H
#define P2PSHIM_C_TESTS_HIP_RANDOM_H

#include "hip.h"

#include <stdarg.h>
#include <stdbool.h>

/* What one thread has seen. */
struct seen {
    uint64_t state, sum;
    int last; /* what hipPeekAtLastError should say */
    bool wrong, last_wrong;
    FILE *log;
};

static inline uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* 0 to below - 1. */
static inline unsigned draw(struct seen *s, unsigned below)
{
    return (unsigned)(next(&s->state) % below);
}

static inline void fold(struct seen *s, uint64_t value)
{
    s->sum = (s->sum ^ value) * 0x100000001b3u;
}

__attribute__((format(printf, 2, 3))) static inline void note(struct seen *s, const char *format, ...)
{
    va_list arguments;
    if (!s->log)
        return;
    va_start(arguments, format);
    vfprintf(s->log, format, arguments);
    va_end(arguments);
}

static inline void is_wrong(struct seen *s, const char *what)
{
    s->wrong = true;
    note(s, " WRONG (%s)", what);
}

/* Takes an answer into account, against the one that is right; some refusals do not become the last error. */
static inline bool answered(struct seen *s, int code, int right, bool recorded)
{
    int last = hipPeekAtLastError();
    if (recorded && (HIP_MAJOR < 7 || (code != hipSuccess && code != hipErrorNotReady)))
        s->last = code;
    fold(s, (uint64_t)code << 32 | (unsigned)last);
    note(s, " = %d, last %d", code, last);
    if (code != right)
        is_wrong(s, "code");
    if (last != s->last) {
        s->last_wrong = true;
        note(s, " LAST, should be %d", s->last);
        s->last = last;
    }
    return code == hipSuccess;
}

/* After calls that all succeeded and are not part of what is tested. */
static inline void settled(struct seen *s)
{
    if (HIP_MAJOR < 7)
        s->last = hipSuccess;
}

#endif
