/* Where the shim only forwards calls: in a forked child, and with P2PSHIM=off. */
#include <sys/wait.h>
#include <unistd.h>

#include "capi.h"

static void nothing(const p2pshim_event_t *event, void *data)
{
    (void)event;
    (void)data;
}

static void check_inactive(p2pshim_activity_t expected, const char *folder)
{
    uint64_t id;
    p2pshim_state_t state = P2PSHIM_INIT(p2pshim_state_t);
    SAME(API(pair_prepare)(0, 1), P2PSHIM_INACTIVE);
    SAME(API(state_get)(&state), P2PSHIM_OK);
    SAME(state.activity, expected);
    REQUIRE(!state.recording);
    SAME(API(option_set)("P2PSHIM_VALIDATE", "strict"), P2PSHIM_INACTIVE);
    SAME(API(trace_start)(folder), P2PSHIM_INACTIVE);
    SAME(API(trace_mark)("x"), P2PSHIM_NOT_FOUND);
    SAME(API(callback_add)(nothing, NULL, &id), P2PSHIM_INACTIVE);
}

static void run_forked(const char *folder)
{
    struct gpus *two = gpus();
    SAME(API(trace_start)(folder), P2PSHIM_OK);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        check_inactive(P2PSHIM_ACTIVITY_FORKED, folder);
        SAME(API(trace_stop)(), P2PSHIM_INACTIVE);
        /* Other threads of the parent's may have been at it. */
        char text[64];
        p2pshim_finding_t finding = P2PSHIM_INIT(p2pshim_finding_t);
        p2pshim_pair_state_t pair = P2PSHIM_INIT(p2pshim_pair_state_t);
        p2pshim_trace_t trace = P2PSHIM_INIT(p2pshim_trace_t);
        SAME(API(option_value)("P2PSHIM_LOG", text, sizeof text, NULL), P2PSHIM_INACTIVE);
        SAME(API(finding_last)(&finding, text, sizeof text), P2PSHIM_INACTIVE);
        SAME(API(pair_state_get)(0, 1, &pair), P2PSHIM_INACTIVE);
        SAME(API(trace_get)(&trace), P2PSHIM_OK);
        REQUIRE(!trace.recording);
        if (two) {
            p2pshim_library_t library = P2PSHIM_INIT(p2pshim_library_t);
            REQUIRE(API(library_count)() > 0);
            SAME(API(library_get)(0, &library), P2PSHIM_OK);
            REQUIRE(*library.bypass);
        }
        _exit(0);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child && status == 0);
    SAME(API(trace_mark)("the parent goes on"), P2PSHIM_OK);
}

const struct task forked_task = {"forked", run_forked};

/* Set by the program itself, before its first call. */
static void run_off(const char *folder)
{
    SAME(API(option_set)("P2PSHIM", "off"), P2PSHIM_OK);
    struct gpus *two = gpus();
    if (!two) {
        SAME(API(trace_start)(folder), P2PSHIM_INACTIVE);
        return;
    }
    prepare(two, 1);
    copy_some(two, 1);
    REQUIRE(has_arrived(two, 1));
    check_inactive(P2PSHIM_ACTIVITY_OFF, folder);
    p2pshim_pair_t pair = P2PSHIM_INIT(p2pshim_pair_t);
    SAME(API(pair_get)(0, 1, &pair), P2PSHIM_OK);
    REQUIRE(pair.direct_copies + pair.staged_copies == 0);
}

const struct task off_task = {"off", run_off};
