/* Eight threads that call everything at once, while others hear of it. */
#include <pthread.h>
#include <stdatomic.h>

#include "capi.h"

enum { THREADS = 8, ROUNDS = 150 };

static struct gpus *two;
static const char *traces;
static atomic_uint_fast64_t told;

static void listen(const p2pshim_event_t *event, void *data)
{
    (void)data;
    atomic_fetch_add(&told, 1);
    REQUIRE(event->function && event->layer && event->reason && event->result_name);
}

static void ask(unsigned round)
{
    uint64_t calls, failures, times;
    p2pshim_pair_t pair = P2PSHIM_INIT(p2pshim_pair_t);
    p2pshim_state_t state = P2PSHIM_INIT(p2pshim_state_t);
    p2pshim_pair_state_t pair_state = P2PSHIM_INIT(p2pshim_pair_state_t);
    p2pshim_trace_t trace = P2PSHIM_INIT(p2pshim_trace_t);
    p2pshim_finding_t finding = P2PSHIM_INIT(p2pshim_finding_t);
    char text[300];
    SAME(API(calls_get)("cuMemcpyPeer", &calls, &failures), P2PSHIM_OK);
    SAME(API(findings_get)("P2P-copy-overlap", &times), P2PSHIM_OK);
    SAME(API(option_value)("P2PSHIM_LOG", text, sizeof text, NULL), P2PSHIM_OK);
    SAME(API(pair_get)(0, 1, &pair), P2PSHIM_OK);
    SAME(API(state_get)(&state), P2PSHIM_OK);
    SAME(API(pair_state_get)(0, 1, &pair_state), P2PSHIM_OK);
    int status = API(finding_last)(&finding, text, sizeof text);
    REQUIRE(status == P2PSHIM_OK || status == P2PSHIM_TOO_SMALL || status == P2PSHIM_NOT_FOUND);
    status = API(trace_get)(&trace);
    REQUIRE(status == P2PSHIM_OK || status == P2PSHIM_NOT_FOUND);
    REQUIRE(*API(version)() && *API(status_name)((int)round) && *API(status_text)((int)round));
    if (round % 16 == 0) {
        p2pshim_library_t library = P2PSHIM_INIT(p2pshim_library_t);
        if (API(library_count)() > 0)
            SAME(API(library_get)(0, &library), P2PSHIM_OK);
    }
}

static void change(unsigned number, unsigned round)
{
    static const char *const values[] = {"warn", "off", "warn", "strict"};
    static const char *const logs[] = {"off", "error", "p2pshim::lookup=info", "error"};
    SAME(API(option_set)("P2PSHIM_VALIDATE", values[(round + number) % 4]), P2PSHIM_OK);
    SAME(API(option_set)("P2PSHIM_LOG", logs[(round + number) % 4]), P2PSHIM_OK);
    SAME(API(option_set)("P2PSHIM_ACCESS", round % 2 ? "auto" : "app"), P2PSHIM_OK);
    SAME(API(trace_start)(traces), P2PSHIM_OK);
    int status = API(trace_mark)("a mark");
    REQUIRE(status == P2PSHIM_OK || status == P2PSHIM_NOT_FOUND);
    if (round % 4 == 3)
        SAME(API(trace_stop)(), P2PSHIM_OK);
}

static void use(unsigned round)
{
    if (!two)
        return;
    SAME(two->cu.cuCtxSetCurrent(two->contexts[0]), CUDA_SUCCESS);
    copy_some(two, 1);
    /* Other threads set P2PSHIM_ACCESS meanwhile, and keep the devices busy. */
    int status = API(pair_prepare)((int)(round % 2), (int)(1 - round % 2));
    REQUIRE(status == P2PSHIM_OK || status == P2PSHIM_STAGED || status == P2PSHIM_NOT_READY);
}

static void *work(void *number)
{
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint64_t id;
        SAME(API(callback_add)(listen, NULL, &id), P2PSHIM_OK);
        ask(round);
        change((unsigned)(uintptr_t)number, round);
        use(round);
        SAME(API(callback_remove)(id), P2PSHIM_OK);
    }
    return NULL;
}

static void run(const char *folder)
{
    pthread_t threads[THREADS];
    traces = folder;
    two = gpus();
    for (size_t i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (size_t i = 0; i < THREADS; i++)
        REQUIRE(pthread_join(threads[i], NULL) == 0);
    /* Each of a thread's own copies is told to its own callback at least. */
    if (two && is_in_front()) {
        const uint64_t copies = (uint64_t)THREADS * ROUNDS;
        p2pshim_pair_t pair = P2PSHIM_INIT(p2pshim_pair_t);
        SAME(API(pair_get)(0, 1, &pair), P2PSHIM_OK);
        REQUIRE(atomic_load(&told) >= copies && pair.direct_copies + pair.staged_copies == copies);
    }
}

const struct task threads_task = {"threads", run};
