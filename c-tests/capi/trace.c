/* The trace: started, marked, stopped, and started again. The test reads the file. */
#include <unistd.h>

#include "capi.h"

static void copy_if_any(struct gpus *two, size_t bytes)
{
    if (two)
        copy(two, bytes);
}

static void run(const char *folder)
{
    char path[4096];
    p2pshim_trace_t trace = P2PSHIM_INIT(p2pshim_trace_t);
    SAME(API(trace_get)(&trace), P2PSHIM_NOT_FOUND);
    SAME(API(trace_stop)(), P2PSHIM_NOT_FOUND);
    SAME(API(trace_mark)("too early"), P2PSHIM_NOT_FOUND);
    SAME(API(trace_mark)(NULL), P2PSHIM_INVALID_ARGUMENT);
    SAME(API(trace_mark)("\xff"), P2PSHIM_INVALID_ARGUMENT);
    SAME(API(trace_start)(NULL), P2PSHIM_NOT_FOUND);
    SAME(API(trace_start)(""), P2PSHIM_INVALID_ARGUMENT);
    snprintf(path, sizeof path, "%s/no/such/folder", folder);
    SAME(API(trace_start)(path), P2PSHIM_SYSTEM_ERROR);

    struct gpus *two = gpus();
    copy_if_any(two, 201);
    SAME(API(trace_start)(folder), P2PSHIM_OK);
    SAME(API(trace_start)(folder), P2PSHIM_OK);
    SAME(API(trace_start)(NULL), P2PSHIM_OK);
    snprintf(path, sizeof path, "%s/.", folder);
    SAME(API(trace_start)(path), P2PSHIM_OK);
    SAME(API(trace_start)("/tmp"), P2PSHIM_TOO_LATE);
    SAME(API(trace_get)(NULL), P2PSHIM_INVALID_ARGUMENT);
    trace.size = sizeof trace - 1;
    SAME(API(trace_get)(&trace), P2PSHIM_INVALID_ARGUMENT);
    trace.size = sizeof trace;
    SAME(API(trace_get)(&trace), P2PSHIM_OK);
    REQUIRE(trace.recording == 1 && trace.dropped == 0 && access(trace.path, R_OK) == 0);
    REQUIRE(strncmp(trace.path, folder, strlen(folder)) == 0);
    SAME(API(option_set)("P2PSHIM_TRACE_LIMIT", "2M"), P2PSHIM_TOO_LATE);

    SAME(API(trace_mark)("epoch 1"), P2PSHIM_OK);
    copy_if_any(two, 202);
    SAME(API(trace_stop)(), P2PSHIM_OK);
    SAME(API(trace_stop)(), P2PSHIM_OK);
    SAME(API(trace_mark)("not kept"), P2PSHIM_NOT_FOUND);
    SAME(API(trace_get)(&trace), P2PSHIM_OK);
    REQUIRE(trace.recording == 0);
    copy_if_any(two, 203);
    SAME(API(trace_start)(NULL), P2PSHIM_OK);
    copy_if_any(two, 204);
    char longest[10000];
    memset(longest, 'm', sizeof longest);
    longest[sizeof longest - 1] = 0;
    SAME(API(trace_mark)(longest), P2PSHIM_OK);
    SAME(API(trace_mark)(""), P2PSHIM_OK);
}

const struct task trace_task = {"trace", run};
