/*
 * p2pshim for programs that do not link it: each function calls the one of p2pshim.h if the library was preloaded or linked, and else
 * does nothing and returns P2PSHIM_INACTIVE. Header-only, for GCC and Clang, C99 and C++11 or later; before glibc 2.34 link with -ldl.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The library's function is looked for at the first call, and remembered. (Weak symbols would not do: in a program that is
 * linked with -no-pie they are NULL although the library is preloaded.) They may be called by any thread.
 */

#ifndef P2PSHIM_ANNOTATE_H
#define P2PSHIM_ANNOTATE_H

#include <dlfcn.h>
#include <string.h>

#include "p2pshim.h"

/* In place of a function that no library has. */
static inline p2pshim_status_t p2pshim_annotate_nothing(const char *text)
{
    (void)text;
    return P2PSHIM_INACTIVE;
}

typedef p2pshim_status_t (*p2pshim_annotate_t)(const char *text);

static inline p2pshim_annotate_t p2pshim_annotate_find(p2pshim_annotate_t *known, const char *name)
{
    p2pshim_annotate_t function = __atomic_load_n(known, __ATOMIC_RELAXED);
    if (!function) {
        void *found = dlsym(NULL /* RTLD_DEFAULT */, name);
        memcpy(&function, &found, sizeof function);
        function = function ? function : p2pshim_annotate_nothing;
        __atomic_store_n(known, function, __ATOMIC_RELAXED);
    }
    return function;
}

/** Starts recording calls: p2pshim_trace_start(). */
static inline p2pshim_status_t p2pshim_annotate_start(const char *folder)
{
    static p2pshim_annotate_t known;
    return p2pshim_annotate_find(&known, "p2pshim_trace_start")(folder);
}

/** Writes a mark to the trace: p2pshim_trace_mark(). */
static inline p2pshim_status_t p2pshim_annotate_mark(const char *text)
{
    static p2pshim_annotate_t known;
    return p2pshim_annotate_find(&known, "p2pshim_trace_mark")(text);
}

/** Stops recording calls: p2pshim_trace_stop(). */
static inline p2pshim_status_t p2pshim_annotate_stop(void)
{
    void *found = dlsym(NULL /* RTLD_DEFAULT */, "p2pshim_trace_stop");
    p2pshim_status_t (*stop)(void);
    memcpy(&stop, &found, sizeof stop);
    return stop ? stop() : P2PSHIM_INACTIVE;
}

#endif /* P2PSHIM_ANNOTATE_H */
