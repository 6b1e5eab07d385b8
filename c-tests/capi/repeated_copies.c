/*
 * What the C interface changes while a program makes copies like ones before: each change holds from the very next copy on.
 * The test reads the trace and the log.
 */
#include <dlfcn.h>

#include "capi.h"

enum { LOOP = 64, SIZE = 4096, UNSEEN = 24 }; /* a place that has made 16 copies makes copies like those */

static struct gpus *two;
static CUstream stream;
static int (*copy_peer)(void *, int, const void *, int, size_t, CUstream);
static int told;
static uint64_t callback;

/* Two places that copy: by the runtime, if there is one, and by the driver. Every copy of a loop has so many bytes. */
__attribute__((noinline)) static void copy_by_runtime(size_t bytes)
{
    if (copy_peer)
        SAME(copy_peer((void *)two->buffers[1], 1, (void *)two->buffers[0], 0, bytes, stream), 0);
}

__attribute__((noinline)) static void copy_by_driver(size_t bytes)
{
    SAME(two->cu.cuMemcpyPeerAsync(two->buffers[1], two->contexts[1], two->buffers[0], two->contexts[0], bytes, stream), 0);
}

static void (*const copies[])(size_t) = {copy_by_runtime, copy_by_driver};

static void count(const p2pshim_event_t *event, void *bytes)
{
    REQUIRE(event->bytes == (uint64_t)(uintptr_t)bytes && event->result == 0 && event->path == P2PSHIM_PATH_DIRECT);
    told++;
}

/* What happens in a loop before the copy with this number. */
static void listen(int number, size_t bytes)
{
    if (number == 20)
        SAME(API(callback_add)(count, (void *)(uintptr_t)bytes, &callback), P2PSHIM_OK);
    if (number == 50)
        SAME(API(callback_remove)(callback), P2PSHIM_OK);
}

static void record(int number, size_t bytes)
{
    (void)bytes;
    if (number == 20)
        SAME(API(trace_stop)(), P2PSHIM_OK);
    if (number == 50)
        SAME(API(trace_start)(NULL), P2PSHIM_OK);
}

static void show(int number, size_t bytes)
{
    (void)bytes;
    if (number == 20)
        SAME(API(option_set)("P2PSHIM_LOG", "trace"), P2PSHIM_OK);
    if (number == 50)
        SAME(API(option_set)("P2PSHIM_LOG", "warn"), P2PSHIM_OK);
}

static uint64_t last_finding(void)
{
    p2pshim_finding_t finding = P2PSHIM_INIT(p2pshim_finding_t);
    return API(finding_last)(&finding, NULL, 0) == P2PSHIM_OK ? finding.number : 0;
}

/* Bytes that overlap: a mistake that the library does not mind. */
static void overlap(bool is_found)
{
    uint64_t before = last_finding();
    SAME(two->cu.cuMemcpyPeerAsync(two->buffers[0] + 16, two->contexts[0], two->buffers[0], two->contexts[0], 64, stream), 0);
    REQUIRE((last_finding() != before) == is_found);
}

static void look(int number, size_t bytes)
{
    (void)bytes;
    if (number == 20) {
        overlap(true);
        SAME(API(option_set)("P2PSHIM_VALIDATE", "off"), P2PSHIM_OK);
    } else if (number == 40) {
        /* Nobody looks: these are like ones before as well. */
        for (int i = 0; i < UNSEEN; i++)
            overlap(false);
        SAME(API(option_set)("P2PSHIM_VALIDATE", "strict"), P2PSHIM_OK);
        overlap(true);
    } else if (number == 60) {
        overlap(true);
        SAME(API(option_set)("P2PSHIM_VALIDATE", "warn"), P2PSHIM_OK);
        overlap(true);
    }
}

/* Whether the program's access is hidden makes no difference to copies that are staged anyway; auto opens the way again. */
static void hide(int number, size_t bytes)
{
    (void)bytes;
    p2pshim_pair_state_t pair = P2PSHIM_INIT(p2pshim_pair_state_t);
    if (number == 20)
        SAME(API(option_set)("P2PSHIM_ACCESS", "app"), P2PSHIM_OK);
    if (number == 40)
        SAME(API(option_set)("P2PSHIM_ACCESS", "auto"), P2PSHIM_OK);
    if (number != LOOP - 1)
        return;
    SAME(API(pair_state_get)(0, 1, &pair), P2PSHIM_OK);
    REQUIRE(pair.path == P2PSHIM_PATH_DIRECT);
}

static uint64_t counted(const char *function)
{
    uint64_t calls, failures;
    SAME(API(calls_get)(function, &calls, &failures), P2PSHIM_OK);
    REQUIRE(failures == 0);
    return calls;
}

static void loop(void (*copy)(size_t), void (*change)(int, size_t), size_t bytes)
{
    for (int i = 0; i < LOOP; i++) {
        if (change)
            change(i, bytes);
        copy(bytes);
    }
}

static void run(const char *folder)
{
    static void (*const changes[])(int, size_t) = {listen, record, show, look, hide};
    enum { CHANGES = sizeof changes / sizeof *changes };
    two = gpus();
    if (!two || !is_in_front())
        return;
    void *runtime = dlopen("libcudart.so.12", RTLD_NOW);
    if (runtime)
        *(void **)&copy_peer = dlsym(runtime, "cudaMemcpyPeerAsync");
    REQUIRE(runtime && copy_peer);
    SAME(two->cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    /* Copies of a pair that the shim alone has made direct take the ordinary path. */
    SAME(two->cu.cuCtxEnablePeerAccess(two->contexts[1], 0), CUDA_SUCCESS);
    for (int with_trace = 0; with_trace < 2; with_trace++) {
        for (int i = 0; i < 2; i++) {
            loop(copies[i], NULL, SIZE);
            for (int change = 0; change < CHANGES; change++) {
                if (changes[change] == record && !with_trace)
                    continue;
                uint64_t calls[] = {counted("cudaMemcpyPeerAsync"), counted("cuMemcpyPeerAsync")};
                p2pshim_pair_t before = P2PSHIM_INIT(p2pshim_pair_t), after = before;
                SAME(API(pair_get)(0, 1, &before), P2PSHIM_OK);
                told = 0;
                /* The size tells which loop it was. */
                size_t bytes = (size_t)SIZE + 8u * (unsigned)(10 * with_trace + change);
                prepare(two, (unsigned)bytes);
                loop(copies[i], changes[change], bytes);
                SAME(two->cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
                /* A call of the runtime's has the driver's inside. */
                REQUIRE(told == (changes[change] == listen ? 30 * (i == 0 ? 2 : 1) : 0));
                int mistakes = changes[change] == look ? UNSEEN + 4 : 0;
                REQUIRE(counted("cudaMemcpyPeerAsync") - calls[0] == (i == 0 ? LOOP : 0));
                REQUIRE(counted("cuMemcpyPeerAsync") - calls[1] == (uint64_t)(LOOP + mistakes));
                SAME(API(pair_get)(0, 1, &after), P2PSHIM_OK);
                REQUIRE(after.direct_copies + after.staged_copies - before.direct_copies - before.staged_copies == LOOP);
                REQUIRE(after.direct_bytes + after.staged_bytes - before.direct_bytes - before.staged_bytes == LOOP * bytes);
            }
        }
        if (!with_trace)
            SAME(API(trace_start)(folder), P2PSHIM_OK);
    }
}

const struct task repeated_copies_task = {"repeated_copies", run};
