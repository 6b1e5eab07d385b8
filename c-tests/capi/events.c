/* Calls, told as they return. */
#include <dlfcn.h>
#include <setjmp.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "capi.h"

static struct gpus *two;
static int told, inside;
static uint64_t own;
static p2pshim_event_t last;
static char findings[256];

/* Calls CUDA and the shim itself, and is told of none of that. */
static void listen(const p2pshim_event_t *event, void *data)
{
    REQUIRE(data == &told && event->size >= sizeof last && inside == 0);
    inside++;
    told++;
    last = *event;
    findings[0] = 0;
    for (size_t i = 0; i < event->finding_count; i++)
        snprintf(findings + strlen(findings), sizeof findings - strlen(findings), "%s ", event->findings[i]);
    copy_some(two, 1);
    SAME(API(memcpy_peer)((void *)two->buffers[1], 1, (void *)two->buffers[0], 0, 7), P2PSHIM_OK);
    /* What is wrong with its own calls is not with the next of the program's. */
    SAME(two->cu.cuCtxEnablePeerAccess(two->contexts[1], 1), CUDA_ERROR_INVALID_VALUE);
    p2pshim_state_t state = {.size = sizeof state};
    SAME(API(state_get)(&state), P2PSHIM_OK);
    SAME(API(option_set)("P2PSHIM_CAPTURE", "rewrite"), P2PSHIM_OK);
    char value[8];
    SAME(API(option_value)("P2PSHIM", value, sizeof value, NULL), P2PSHIM_OK);
    p2pshim_finding_t finding = {.size = sizeof finding};
    (void)API(finding_last)(&finding, NULL, 0);
    p2pshim_pair_state_t pair = {.size = sizeof pair};
    SAME(API(pair_state_get)(0, 1, &pair), P2PSHIM_OK);
    inside--;
}

static void listen_once(const p2pshim_event_t *event, void *data)
{
    (void)event;
    ++*(int *)data;
    SAME(API(listener_remove)(own), P2PSHIM_OK);
}

static void nothing(const p2pshim_event_t *event, void *data)
{
    (void)event;
    (void)data;
}

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void copy(size_t bytes)
{
    SAME(API(memcpy_peer)((void *)two->buffers[1], 1, (void *)two->buffers[0], 0, bytes), P2PSHIM_OK);
}

static void run(const char *folder)
{
    (void)folder;
    uint64_t id = 0, ids[16], unused;
    SAME(API(listener_add)(NULL, NULL, &id), P2PSHIM_INVALID_ARGUMENT);
    SAME(API(listener_add)(nothing, NULL, NULL), P2PSHIM_INVALID_ARGUMENT);
    SAME(API(listener_remove)(0), P2PSHIM_NOT_FOUND);
    SAME(API(listener_remove)(12345), P2PSHIM_NOT_FOUND);
    for (int i = 0; i < 16; i++)
        SAME(API(listener_add)(nothing, NULL, &ids[i]), P2PSHIM_OK);
    SAME(API(listener_add)(nothing, NULL, &unused), P2PSHIM_FULL);
    for (int i = 0; i < 16; i++) {
        SAME(API(listener_remove)(ids[i]), P2PSHIM_OK);
        SAME(API(listener_remove)(ids[i]), P2PSHIM_NOT_FOUND);
    }

    /* Added before the first call. */
    SAME(API(listener_add)(listen, &told, &id), P2PSHIM_OK);
    two = gpus();
    if (!two)
        return;
    uint64_t before = now();
    copy(999);
    REQUIRE(told == 1);
    REQUIRE(strcmp(last.function, "cuMemcpyPeer") == 0 && strcmp(last.layer, "driver") == 0);
    REQUIRE(last.thread == (int)syscall(SYS_gettid) && last.depth == 0);
    REQUIRE(last.start_ns >= before && last.start_ns + last.duration_ns <= now() && last.duration_ns > 0);
    REQUIRE(last.result == 0 && strcmp(last.result_name, "CUDA_SUCCESS") == 0);
    REQUIRE(last.src_device == 0 && last.dst_device == 1 && last.bytes == 999);
    REQUIRE(last.src == two->buffers[0] && last.dst == two->buffers[1] && last.stream == 0);
    REQUIRE(strcmp(last.path, "staged") == 0 && strcmp(last.reason, "not yet worth enabling") == 0);
    REQUIRE(last.finding_count == 0);
    for (int i = 0; i < ENOUGH; i++)
        copy(BYTES);
    REQUIRE(told == 1 + ENOUGH && strcmp(last.path, "direct") == 0 && *last.reason == 0);

    /* What the program calls itself, if that reaches the shim; and what is wrong with it. */
    if (is_in_front()) {
        copy_some(two, 1);
        REQUIRE(told == 2 + ENOUGH && last.bytes == BYTES);
        SAME(two->cu.cuCtxEnablePeerAccess(two->contexts[1], 1), CUDA_ERROR_INVALID_VALUE);
        REQUIRE(strcmp(last.function, "cuCtxEnablePeerAccess") == 0 && last.result == CUDA_ERROR_INVALID_VALUE);
        REQUIRE(strcmp(findings, "P2P-enable-flags-nonzero ") == 0);
        REQUIRE(*last.path == 0 && last.bytes == 0 && last.src_device == -1);
        copy_some(two, 1);
        REQUIRE(findings[0] == 0);
    }

    /* A second one, which removes itself. */
    int once = 0, sum = told;
    SAME(API(listener_add)(listen_once, &once, &own), P2PSHIM_OK);
    copy(11);
    copy(12);
    REQUIRE(once == 1 && told == sum + 2);
    SAME(API(listener_remove)(own), P2PSHIM_NOT_FOUND);
    SAME(API(listener_remove)(id), P2PSHIM_OK);
    copy(13);
    REQUIRE(told == sum + 2);
}

const struct task events_task = {"events", run};

/* A call of the runtime: first the driver's inside it, then itself. */
static char heard[512];
static uint64_t inner_told;

static void note(const p2pshim_event_t *event, void *data)
{
    (void)data;
    snprintf(heard + strlen(heard), sizeof heard - strlen(heard), "%d %s %d->%d %d %s\n", event->depth, event->function,
             event->src_device, event->dst_device, (int)event->bytes, event->path);
    /* By then the runtime has returned, and holds no lock of its own. */
    if (event->depth == 1) {
        inner_told = now();
        copy_some(two, 1);
    } else {
        REQUIRE(inner_told == 0 || inner_told >= event->start_ns + event->duration_ns);
        inner_told = 0;
    }
}

static void run_runtime(const char *folder)
{
    (void)folder;
    uint64_t id;
    void *runtime = dlopen("libcudart.so.12", RTLD_NOW);
    two = gpus();
    if (!two || !runtime || !is_in_front())
        return;
    int (*copy_peer)(void *, int, const void *, int, size_t);
    *(void **)&copy_peer = dlsym(runtime, "cudaMemcpyPeer");
    REQUIRE(copy_peer);
    SAME(copy_peer((void *)two->buffers[1], 1, (void *)two->buffers[0], 0, 55), 0);
    SAME(API(listener_add)(note, NULL, &id), P2PSHIM_OK);
    SAME(copy_peer((void *)two->buffers[1], 1, (void *)two->buffers[0], 0, 55), 0);
    if (strcmp(heard, "1 cuMemcpyPeer 0->1 55 staged\n0 cudaMemcpyPeer 0->1 55 staged\n") != 0)
        check_failed(__FILE__, __LINE__, "what was told", heard);
    /* Ordinals that are none: the driver is not called. */
    heard[0] = 0;
    SAME(copy_peer((void *)two->buffers[1], 99, (void *)two->buffers[0], 0, 55), 101);
    if (strcmp(heard, "0 cudaMemcpyPeer 0->99 55 \n") != 0)
        check_failed(__FILE__, __LINE__, "what was told", heard);
    SAME(API(listener_remove)(id), P2PSHIM_OK);
}

const struct task runtime_events_task = {"runtime_events", run_runtime};

/* A listener that leaves by longjmp is told of the next call all the same. */
static jmp_buf back;
static int left;

static void leave(const p2pshim_event_t *event, void *data)
{
    (void)event;
    (void)data;
    left++;
    longjmp(back, 1);
}

/* Calls from below where the listener was left. */
__attribute__((noinline)) static void copy_from_below(volatile int depth)
{
    if (depth > 0)
        copy_from_below(depth - 1);
    else
        copy_some(two, 1);
    depth++;
}

static void run_leaves(const char *folder)
{
    (void)folder;
    uint64_t id;
    two = gpus();
    if (!two || !is_in_front())
        return;
    SAME(API(listener_add)(leave, NULL, &id), P2PSHIM_OK);
    for (volatile int i = 0; i < 3; i++)
        if (setjmp(back) == 0)
            copy_some(two, 1);
    REQUIRE(left == 3);
    for (volatile int i = 0; i < 4; i++)
        if (setjmp(back) == 0)
            copy_from_below(i);
    REQUIRE(left == 7);
    SAME(API(listener_remove)(id), P2PSHIM_OK);
    copy_some(two, 1);
    REQUIRE(left == 7);
}

const struct task leaves_task = {"leaves", run_leaves};
