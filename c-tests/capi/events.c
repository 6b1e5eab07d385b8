/* Calls, told as they return. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
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
    SAME(API(pair_prepare)(0, 1), P2PSHIM_OK);
    /* What is wrong with its own calls is not with the next of the program's. */
    SAME(two->cu.cuCtxEnablePeerAccess(two->contexts[1], 1), CUDA_ERROR_INVALID_VALUE);
    p2pshim_state_t state = P2PSHIM_INIT(p2pshim_state_t);
    SAME(API(state_get)(&state), P2PSHIM_OK);
    SAME(API(option_set)("P2PSHIM_CAPTURE", "rewrite"), P2PSHIM_OK);
    char value[8];
    SAME(API(option_value)("P2PSHIM", value, sizeof value, NULL), P2PSHIM_OK);
    p2pshim_finding_t finding = P2PSHIM_INIT(p2pshim_finding_t);
    (void)API(finding_last)(&finding, NULL, 0);
    p2pshim_pair_state_t pair = P2PSHIM_INIT(p2pshim_pair_state_t);
    SAME(API(pair_state_get)(0, 1, &pair), P2PSHIM_OK);
    inside--;
}

static void listen_once(const p2pshim_event_t *event, void *data)
{
    (void)event;
    ++*(int *)data;
    SAME(API(callback_remove)(own), P2PSHIM_OK);
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

static void run(const char *folder)
{
    (void)folder;
    uint64_t id = 0, ids[16], unused;
    SAME(API(callback_add)(NULL, NULL, &id), P2PSHIM_INVALID_ARGUMENT);
    SAME(API(callback_add)(nothing, NULL, NULL), P2PSHIM_INVALID_ARGUMENT);
    SAME(API(callback_remove)(0), P2PSHIM_NOT_FOUND);
    SAME(API(callback_remove)(12345), P2PSHIM_NOT_FOUND);
    for (int i = 0; i < 16; i++)
        SAME(API(callback_add)(nothing, NULL, &ids[i]), P2PSHIM_OK);
    SAME(API(callback_add)(nothing, NULL, &unused), P2PSHIM_FULL);
    for (int i = 0; i < 16; i++) {
        SAME(API(callback_remove)(ids[i]), P2PSHIM_OK);
        SAME(API(callback_remove)(ids[i]), P2PSHIM_NOT_FOUND);
    }

    /* Added before the first call. */
    SAME(API(callback_add)(listen, &told, &id), P2PSHIM_OK);
    two = gpus();
    if (!two || !is_in_front())
        return;
    uint64_t before = now();
    copy(two, 999);
    REQUIRE(told == 1);
    REQUIRE(strcmp(last.function, "cuMemcpyPeer") == 0 && last.layer == P2PSHIM_LAYER_DRIVER);
    REQUIRE(last.thread == (int)syscall(SYS_gettid) && last.depth == 0);
    REQUIRE(last.start_ns >= before && last.start_ns + last.duration_ns <= now() && last.duration_ns > 0);
    REQUIRE(last.result == 0 && strcmp(last.result_name, "CUDA_SUCCESS") == 0);
    REQUIRE(last.src_device == 0 && last.dst_device == 1 && last.bytes == 999);
    REQUIRE(last.src == two->buffers[0] && last.dst == two->buffers[1] && last.stream == 0);
    REQUIRE(last.path == P2PSHIM_PATH_STAGED && strcmp(last.reason, "not yet worth enabling") == 0);
    REQUIRE(last.finding_count == 0);
    for (int i = 0; i < ENOUGH; i++)
        copy(two, BYTES);
    REQUIRE(told == 1 + ENOUGH && last.path == P2PSHIM_PATH_DIRECT && *last.reason == 0);

    /* A call that is wrong. */
    SAME(two->cu.cuCtxEnablePeerAccess(two->contexts[1], 1), CUDA_ERROR_INVALID_VALUE);
    REQUIRE(strcmp(last.function, "cuCtxEnablePeerAccess") == 0 && last.result == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(strcmp(findings, "P2P-enable-flags-nonzero ") == 0);
    REQUIRE(last.path == P2PSHIM_PATH_NONE && last.bytes == 0 && last.src_device == -1);
    copy_some(two, 1);
    REQUIRE(findings[0] == 0);

    /* A second one, which removes itself. */
    int once = 0, sum = told;
    SAME(API(callback_add)(listen_once, &once, &own), P2PSHIM_OK);
    copy(two, 11);
    copy(two, 12);
    REQUIRE(once == 1 && told == sum + 2);
    SAME(API(callback_remove)(own), P2PSHIM_NOT_FOUND);
    SAME(API(callback_remove)(id), P2PSHIM_OK);
    copy(two, 13);
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
             event->src_device, event->dst_device, (int)event->bytes, API(path_name)(event->path));
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
    SAME(API(callback_add)(note, NULL, &id), P2PSHIM_OK);
    SAME(copy_peer((void *)two->buffers[1], 1, (void *)two->buffers[0], 0, 55), 0);
    if (strcmp(heard, "1 cuMemcpyPeer 0->1 55 staged\n0 cudaMemcpyPeer 0->1 55 staged\n") != 0)
        check_failed(__FILE__, __LINE__, "what was told", heard);
    /* Ordinals that are none: the driver is not called. */
    heard[0] = 0;
    SAME(copy_peer((void *)two->buffers[1], 99, (void *)two->buffers[0], 0, 55), 101);
    if (strcmp(heard, "0 cudaMemcpyPeer 0->99 55 \n") != 0)
        check_failed(__FILE__, __LINE__, "what was told", heard);
    SAME(API(callback_remove)(id), P2PSHIM_OK);
}

const struct task runtime_events_task = {"runtime_events", run_runtime};

/* A callback that is added while another thread's copy is under way is told of that thread's next ones, all alike. */
enum { LARGE = 256 << 20, AGAIN = 15 };
static atomic_int is_under_way, is_waited_for, copies_told;

static void count(const p2pshim_event_t *event, void *data)
{
    (void)data;
    atomic_fetch_add(&copies_told, strcmp(event->function, "cuMemcpyPeerAsync") == 0);
}

static void *add_late(void *data)
{
    is_waited_for = 1;
    while (!is_under_way)
        ;
    usleep(1000);
    SAME(API(callback_add)(count, NULL, data), P2PSHIM_OK);
    REQUIRE(is_under_way);
    return NULL;
}

__attribute__((noinline)) static void copy_on(CUstream stream, const CUdeviceptr *buffers, size_t bytes)
{
    is_under_way = 1;
    SAME(two->cu.cuMemcpyPeerAsync(buffers[1], two->contexts[1], buffers[0], two->contexts[0], bytes, stream), CUDA_SUCCESS);
    is_under_way = 0;
}

/* Without peer access: a copy returns when it is over. */
static void run_late(const char *folder)
{
    (void)folder;
    uint64_t id = 0;
    two = gpus();
    if (!two || !is_in_front())
        return;
    CUstream stream, another;
    CUdeviceptr buffers[2];
    SAME(two->cu.cuStreamCreate(&stream, 0), CUDA_SUCCESS);
    for (int device = 1; device >= 0; device--) {
        SAME(two->cu.cuCtxSetCurrent(two->contexts[device]), CUDA_SUCCESS);
        SAME(two->cu.cuMemAlloc_v2(&buffers[device], LARGE), CUDA_SUCCESS);
    }
    for (int i = 0; i < 3 * AGAIN; i++)
        copy_on(stream, buffers, 8192);
    /* What was known of these copies is to be found out again. */
    SAME(two->cu.cuStreamCreate(&another, 0), CUDA_SUCCESS);
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, add_late, &id) == 0);
    while (!is_waited_for)
        usleep(100);
    copy_on(stream, buffers, LARGE);
    REQUIRE(pthread_join(thread, NULL) == 0);
    int before = copies_told;
    for (int i = 0; i < AGAIN; i++)
        copy_on(stream, buffers, 8192);
    SAME(copies_told - before, AGAIN);
    SAME(API(callback_remove)(id), P2PSHIM_OK);
}

const struct task late_task = {"late", run_late};
