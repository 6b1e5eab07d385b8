/* build: cudart13 driver; run: probes [WORD...] on gpu sim
 * The same questions to CUDA on a machine with GPUs and to simulated GPUs: a line a probe, its name and the answer, with a tab between.
 * Each probe is a process of its own; numbers are error codes. `late` is about 200 ms, for which a host function holds a stream up.
 * A probe that needs two devices says "unmeasured" if there is one.
 *
 *   probes [WORD...]    those that have these names, or whose names contain a word without a point; or all
 *
 * By hand: gcc -O1 -w probes.c -I$CUDA/include -L$CUDA/lib64 -lcudart -lcuda -lpthread -ldl -o probes && ./probes
 * With kernels: nvcc -x cu -cudart shared -arch=native probes.c -o kernels && ./kernels kernel.image; with -arch=sm_75: kernel.no_image
 */
#ifdef __CUDACC__
#include <stdio.h>

__global__ void store(int *to, int value)
{
    *to = value;
}

/* The rows that need nvcc: of a kernel that has an image for the device, or has none, as it is built. */
int main(int, char **argv)
{
    int *memory, value = -1;
    cudaFuncAttributes attributes;
    int blocks = -1;
    printf("%s\tcudaMalloc %d, ", argv[1], cudaMalloc(&memory, 4));
    printf("attributes %d, ", cudaFuncGetAttributes(&attributes, store));
    printf("occupancy %d, ", cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, store, 32, 0));
    printf("last error %d, ", cudaGetLastError());
    static const struct {
        const char *name;
        unsigned blocks, threads, shared;
    } launches[] = {{"launch", 1, 1, 0}, {"no block", 0, 1, 0}, {"no thread", 1, 0, 0}, {"2000 threads", 1, 2000, 0}, {"1 MiB shared", 1, 1, 1 << 20}};
    for (auto &launch : launches) {
        store<<<launch.blocks, launch.threads, launch.shared>>>(memory, 7);
        printf("%s: peek %d, ", launch.name, cudaPeekAtLastError());
        printf("last error %d, ", cudaGetLastError());
        printf("synchronize %d, ", cudaDeviceSynchronize());
    }
    printf("copy %d, ", cudaMemcpy(&value, memory, 4, cudaMemcpyDeviceToHost));
    printf("%s\n", value == 7 ? "stored" : "not stored");
    return 0;
}
#else
#define _GNU_SOURCE
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
enum { HELD = 200, SECONDS = 30 };

/* The answer goes here: it is written even if the process ends badly. */
static int answer;
static int devices;

static void say(const char *format, ...)
{
    char text[4096];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (write(answer, text, (size_t)length) < 0)
        _exit(3);
}

#define MUST(call) must(#call, (int)(call))

static void must(const char *call, int error)
{
    if (error != 0) {
        say("[%.40s: %d]", call, error);
        _exit(0);
    }
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* How long something took, in words. */
static const char *took(double begun)
{
    return now() - begun < HELD * 3 / 4 ? "at once" : "late";
}

/* Says what a call returns, and how long it took. */
#define SAY_TIMED(format, call) \
    do { \
        double begun_ = now(); \
        int result_ = (call); \
        say(format, result_, took(begun_)); \
    } while (0)

static void nap(void *ms)
{
    usleep((useconds_t)(uintptr_t)ms * 1000);
}

CUresult cuCtxCreate_v2(CUcontext *, unsigned int, CUdevice);

static CUcontext context(int device)
{
    CUcontext made;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&made, device));
    MUST(cuCtxSetCurrent(made));
    return made;
}

static CUstream stream(void)
{
    CUstream made;
    MUST(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
    return made;
}

static CUdeviceptr memory(size_t bytes)
{
    CUdeviceptr made;
    MUST(cuMemAlloc(&made, bytes));
    return made;
}

static void *pinned(size_t bytes)
{
    void *made;
    MUST(cuMemAllocHost(&made, bytes));
    return made;
}

static void *pageable(size_t bytes, int value)
{
    void *made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(made, value, bytes);
    return made;
}

/* Holds a stream up. What it needs is made before, so that nothing is slow for being the first. */
static void hold(CUstream on)
{
    MUST(cuLaunchHostFunc(on, nap, (void *)(uintptr_t)HELD));
}

static CUstream held(void)
{
    CUstream made = stream();
    MUST(cuLaunchHostFunc(made, nap, (void *)(uintptr_t)1));
    MUST(cuStreamSynchronize(made));
    hold(made);
    return made;
}

/* --- The end of the process --- */

static CUdeviceptr left;
static CUstream left_stream;
static int in_destructor, with_runtime;

static void show_end(const char *where)
{
    if (with_runtime) {
        int device = -1;
        say("%s: cudaGetDevice %d, ", where, cudaGetDevice(&device));
        say("cudaFree %d, ", cudaFree((void *)left));
        say("cudaStreamSynchronize %d, ", cudaStreamSynchronize(left_stream));
        say("cudaStreamDestroy %d; ", cudaStreamDestroy(left_stream));
        return;
    }
    CUcontext current = NULL;
    int got = cuCtxGetCurrent(&current);
    say("%s: current %d%s, ", where, got, current ? "" : " none");
    say("cuMemFree %d, ", cuMemFree(left));
    say("cuStreamSynchronize %d, ", cuStreamSynchronize(left_stream));
    say("cuStreamDestroy %d; ", cuStreamDestroy(left_stream));
}

static void at_end_early(void)
{
    show_end("handler from before cuInit");
}

static void at_end_late(void)
{
    show_end("handler");
}

__attribute__((destructor)) static void at_unload(void)
{
    if (in_destructor)
        show_end("destructor");
}

static void use_context(void)
{
    context(0);
    left = memory(MIB);
    left_stream = stream();
}

static void use_runtime(void)
{
    with_runtime = 1;
    MUST(cudaMalloc((void **)&left, MIB));
    MUST(cudaStreamCreate(&left_stream));
}

/* With a handler from before the first call or after it, or by the destructor. */
static void end_after(void (*use)(void), void (*early)(void), void (*late)(void))
{
    if (early)
        atexit(early);
    use();
    if (late)
        atexit(late);
    in_destructor = !early && !late;
    exit(0);
}

static void end_handler(void) { end_after(use_context, NULL, at_end_late); }
static void end_handler_from_before(void) { end_after(use_context, at_end_early, NULL); }
static void end_destructor(void) { end_after(use_context, NULL, NULL); }
static void end_runtime_handler(void) { end_after(use_runtime, NULL, at_end_late); }
static void end_runtime_handler_from_before(void) { end_after(use_runtime, at_end_early, NULL); }
static void end_runtime_destructor(void) { end_after(use_runtime, NULL, NULL); }

static void at_thread_end(void *unused)
{
    (void)unused;
    show_end("value of the thread");
}

static void *ends(void *unused)
{
    (void)unused;
    pthread_key_t key;
    pthread_key_create(&key, at_thread_end);
    pthread_setspecific(key, &answer);
    use_context();
    return NULL;
}

static void end_of_thread(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, ends, NULL);
    pthread_join(thread, NULL);
}

static void at_end_waits(void)
{
    SAY_TIMED("cuCtxSynchronize %d %s", cuCtxSynchronize());
}

static void end_waits_for_work(void)
{
    use_context();
    atexit(at_end_waits);
    hold(left_stream);
    exit(0);
}

static void *exits(void *unused)
{
    (void)unused;
    exit(0);
}

static void end_by_thread(void)
{
    use_context();
    atexit(at_end_late);
    pthread_t thread;
    pthread_create(&thread, NULL, exits, NULL);
    pthread_join(thread, NULL);
}

static void end_with_work(void)
{
    int ready[2];
    if (pipe(ready) != 0)
        return;
    pid_t child = fork();
    if (child == 0) {
        use_context();
        hold(left_stream);
        if (write(ready[1], "", 1) != 1)
            _exit(1);
        exit(0);
    }
    char byte;
    if (read(ready[0], &byte, 1) != 1)
        return;
    double begun = now();
    int status;
    waitpid(child, &status, 0);
    say("exit with work under way: %s", now() - begun < 150 ? "does not wait" : "takes its time");
}

/* --- Memory of other processes --- */

static int to_opener[2], to_owner[2];

static void give(const int *to, const void *bytes, size_t count)
{
    if (write(to[1], bytes, count) != (ssize_t)count)
        _exit(4);
}

static void get(const int *from, void *bytes, size_t count)
{
    for (size_t have = 0; have < count;) {
        ssize_t more = read(from[0], (char *)bytes + have, count - have);
        if (more <= 0)
            _exit(5);
        have += (size_t)more;
    }
}

/* Runs the other side in a process of its own. */
static pid_t beside(void (*opener)(void))
{
    if (pipe(to_opener) != 0 || pipe(to_owner) != 0)
        _exit(6);
    pid_t child = fork();
    if (child == 0) {
        close(to_opener[1]);
        close(to_owner[0]);
        opener();
        _exit(0);
    }
    close(to_opener[0]);
    close(to_owner[1]);
    return child;
}

static void done(void)
{
    char byte = 0;
    give(to_owner, &byte, 1);
}

static void await(void)
{
    char byte;
    get(to_owner, &byte, 1);
}

static void get_handle_waits(void)
{
    context(0);
    CUdeviceptr first = memory(4 * MIB), second = memory(4 * MIB);
    CUipcMemHandle handle;
    for (int time = 0; time < 4; time++) {
        CUstream busy = held();
        double begun = now();
        int result = cuIpcGetMemHandle(&handle, time < 2 ? first : second);
        say("%s %d %s; ", (const char *[]){"first", "again", "other memory", "again"}[time], result, took(begun));
        cuStreamSynchronize(busy);
    }
}

static void open_and_close(void)
{
    CUipcMemHandle handle;
    get(to_opener, &handle, sizeof handle);
    context(0);
    CUdeviceptr mine = memory(4 * MIB), theirs;
    MUST(cuIpcOpenMemHandle(&theirs, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    CUstream busy = held();
    MUST(cuMemcpyDtoDAsync(mine, theirs, 4 * MIB, busy));
    SAY_TIMED("copy queued: %d %s, ", cuIpcCloseMemHandle(theirs));
    say("then the stream %d; ", cuStreamSynchronize(busy));
    MUST(cuIpcOpenMemHandle(&theirs, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    busy = held();
    SAY_TIMED("other work queued: %d %s; ", cuIpcCloseMemHandle(theirs));
    cuStreamSynchronize(busy);
    busy = held();
    SAY_TIMED("open: %d %s", cuIpcOpenMemHandle(&theirs, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    done();
}

static void give_memory(CUdeviceptr made)
{
    CUipcMemHandle handle;
    MUST(cuIpcGetMemHandle(&handle, made));
    give(to_opener, &handle, sizeof handle);
}

static void close_waits(void)
{
    beside(open_and_close);
    context(0);
    give_memory(memory(4 * MIB));
    await();
}

static void keep_open(void)
{
    CUipcMemHandle handle;
    get(to_opener, &handle, sizeof handle);
    context(0);
    CUdeviceptr theirs;
    MUST(cuIpcOpenMemHandle(&theirs, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    done();
    char byte;
    get(to_opener, &byte, 1);
    unsigned char value = 0;
    say(", the opener reads %d", cuMemcpyDtoH(&value, theirs, 1));
    say(" (%s)", value == 7 ? "its bytes" : "others");
    MUST(cuIpcCloseMemHandle(theirs));
    done();
}

static size_t available(void)
{
    size_t free_bytes, all;
    MUST(cuMemGetInfo(&free_bytes, &all));
    return free_bytes;
}

static void freed_while_open(void)
{
    beside(keep_open);
    context(0);
    CUdeviceptr made = memory(512 * MIB);
    MUST(cuMemsetD8(made, 7, 512 * MIB));
    MUST(cuCtxSynchronize());
    give_memory(made);
    await();
    size_t before = available();
    say("free %d", cuMemFree(made));
    say(", memory is %s", available() > before + 256 * MIB ? "given back" : "not given back");
    give(to_opener, "", 1);
    await();
    usleep(20000);
    say("; after it closed %s", available() > before + 256 * MIB ? "given back" : "not given back");
}

static void give_event(CUevent made)
{
    CUipcEventHandle handle;
    MUST(cuIpcGetEventHandle(&handle, made));
    give(to_opener, &handle, sizeof handle);
}

static CUevent shared_event(void)
{
    CUevent made;
    MUST(cuEventCreate(&made, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
    return made;
}

static void wait_for_event(void)
{
    context(0);
    CUstream mine = stream();
    CUdeviceptr bytes = memory(MIB);
    MUST(cuMemsetD8Async(bytes, 1, MIB, mine));
    MUST(cuStreamSynchronize(mine));
    done();
    CUipcEventHandle handle;
    get(to_opener, &handle, sizeof handle);
    CUevent theirs;
    say("open %d, ", cuIpcOpenEventHandle(&theirs, handle));
    done();
    char byte;
    get(to_opener, &byte, 1);
    double begun = now();
    say("query %d, ", cuEventQuery(theirs));
    int result = cuStreamWaitEvent(mine, theirs, 0);
    say("wait %d %s, ", result, took(begun));
    MUST(cuMemsetD8Async(bytes, 2, MIB, mine));
    result = cuStreamSynchronize(mine);
    say("the stream %d %s; ", result, took(begun));
    done();
    get(to_opener, &byte, 1);
    SAY_TIMED("synchronize %d %s; ", cuEventSynchronize(theirs));
    CUstream busy = held();
    say("record %d; ", cuEventRecord(theirs, busy));
    done();
    get(to_opener, &byte, 1);
    say("destroyed by its owner: query %d, ", cuEventQuery(theirs));
    say("synchronize %d, ", cuEventSynchronize(theirs));
    say("wait %d, ", cuStreamWaitEvent(mine, theirs, 0));
    say("destroy %d", cuEventDestroy(theirs));
    done();
}

static void event_of_other_process(void)
{
    beside(wait_for_event);
    await();
    context(0);
    CUevent mine = shared_event();
    CUstream busy = stream();
    give_event(mine);
    await();
    for (int time = 0; time < 2; time++) {
        busy = held();
        MUST(cuEventRecord(mine, busy));
        give(to_opener, "", 1);
        await();
        MUST(cuStreamSynchronize(busy));
    }
    SAY_TIMED("the owner waits for it %d %s; ", cuEventSynchronize(mine));
    MUST(cuEventDestroy(mine));
    give(to_opener, "", 1);
    await();
}

static void event_handles(void)
{
    context(0);
    CUevent plain, mixed;
    CUipcEventHandle handle;
    MUST(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
    say("created with timing %d; ", cuEventCreate(&mixed, CU_EVENT_INTERPROCESS));
    say("handle of a local event %d; ", cuIpcGetEventHandle(&handle, plain));
    MUST(cuIpcGetEventHandle(&handle, shared_event()));
    CUevent opened;
    say("opened by its owner %d; ", cuIpcOpenEventHandle(&opened, handle));
    memset(&handle, 0, sizeof handle);
    say("zeros %d", cuIpcOpenEventHandle(&opened, handle));
}

/* --- What waits --- */

/* After a copy from pageable memory returns, does another stream read what it brought? */
static void upload_returns(size_t size, int async)
{
    context(0);
    CUdeviceptr target = memory(size);
    unsigned char *source = pageable(size, 0), *last = pinned(1);
    CUstream other = stream(), own = stream();
    int old = 0;
    enum { TIMES = 40 };
    for (int time = 1; time <= TIMES; time++) {
        memset(source, time, size);
        MUST(async ? cuMemcpyHtoDAsync(target, source, size, own) : cuMemcpyHtoD(target, source, size));
        MUST(cuMemcpyDtoHAsync(last, target + size - 1, 1, other));
        MUST(cuStreamSynchronize(other));
        old += *last != time;
        MUST(cuCtxSynchronize());
    }
    say("old bytes %s", old == 0 ? "never" : "at times");
}

static void upload_sync_small(void) { upload_returns(4096, 0); }
static void upload_sync_64k(void) { upload_returns(65536, 0); }
static void upload_sync_1m(void) { upload_returns(MIB, 0); }
static void upload_sync_64m(void) { upload_returns(64 * MIB, 0); }
static void upload_async_small(void) { upload_returns(4096, 1); }
static void upload_async_1m(void) { upload_returns(MIB, 1); }
static void upload_async_64m(void) { upload_returns(64 * MIB, 1); }

/* Copies with the host behind work that takes its time: does the call wait? If not, whose bytes are copied after the source has changed? */
static void behind(const size_t *sizes)
{
    context(0);
    for (; *sizes; sizes++) {
        size_t size = *sizes;
        CUdeviceptr target = memory(size);
        unsigned char *source = pageable(size, 1), value = 0;
        CUstream busy = held();
        double begun = now();
        int result = cuMemcpyHtoDAsync(target, source, size, busy);
        say("up %zu: %d %s", size, result, took(begun));
        memset(source, 2, size);
        MUST(cuStreamSynchronize(busy));
        MUST(cuMemcpyDtoH(&value, target + size - 1, 1));
        say(" %s", value == 1 ? "source as called" : "source as changed");
        busy = held();
        SAY_TIMED(", down %d %s; ", cuMemcpyDtoHAsync(source, target, size, busy));
        MUST(cuStreamSynchronize(busy));
    }
}

static void behind_work(void) { behind((const size_t[]){4096, 65536, 65536 + 4096, MIB, 16 * MIB, 0}); }
static void behind_work_more(void) { behind((const size_t[]){2 * MIB, 4 * MIB, 6 * MIB, 8 * MIB, 0}); }

static void behind_work_pinned(void)
{
    context(0);
    size_t size = 4 * MIB;
    CUdeviceptr target = memory(size);
    unsigned char *source = pinned(size), value = 0;
    memset(source, 1, size);
    CUstream busy = held();
    SAY_TIMED("up %d %s", cuMemcpyHtoDAsync(target, source, size, busy));
    memset(source, 2, size);
    MUST(cuStreamSynchronize(busy));
    MUST(cuMemcpyDtoH(&value, target + size - 1, 1));
    say(" %s", value == 1 ? "source as called" : "source as changed");
    busy = held();
    SAY_TIMED(", down %d %s; ", cuMemcpyDtoHAsync(source, target, size, busy));
    MUST(cuStreamSynchronize(busy));
    CUstream blocking;
    MUST(cuStreamCreate(&blocking, 0));
    hold(blocking);
    SAY_TIMED("default stream up %d %s; ", cuMemcpyHtoD(target, source, size));
    MUST(cuCtxSynchronize());
    hold(blocking);
    SAY_TIMED("device to device %d %s; ", cuMemcpyDtoD(target, target + MIB, MIB));
    MUST(cuCtxSynchronize());
    hold(blocking);
    SAY_TIMED("memset %d %s", cuMemsetD8(target, 1, MIB));
    MUST(cuCtxSynchronize());
}

/* A batch behind work: does the call wait, and whose bytes are copied after the source has changed? */
static void batch(int order, int kind)
{
    context(0);
    size_t size = kind == 2 ? 4096 : MIB;
    CUdeviceptr target = memory(size);
    unsigned char *source = kind == 0 ? pinned(size) : pageable(size, 1), value = 0;
    memset(source, 1, size);
    CUmemcpyAttributes attributes = {0};
    attributes.srcAccessOrder = order;
    size_t first = 0;
    CUdeviceptr from = (CUdeviceptr)source;
    CUstream busy = held();
    double begun = now();
#if CUDA_VERSION >= 13000
    int result = cuMemcpyBatchAsync(&target, &from, &size, 1, &attributes, &first, 1, busy);
#else
    size_t failed;
    int result = cuMemcpyBatchAsync(&target, &from, &size, 1, &attributes, &first, 1, &failed, busy);
#endif
    say("%s %d %s", (const char *[]){"pinned", "pageable", "pageable 4096"}[kind], result, took(begun));
    memset(source, 2, size);
    MUST(cuStreamSynchronize(busy));
    MUST(cuMemcpyDtoH(&value, target + size - 1, 1));
    say(" %s; ", value == 1 ? "source as called" : value == 2 ? "source as changed" : "nothing");
}

static void batch_stream(void) { for (int kind = 0; kind < 3; kind++) batch(CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, kind); }
static void batch_during(void) { for (int kind = 0; kind < 3; kind++) batch(CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL, kind); }
static void batch_any(void) { for (int kind = 0; kind < 3; kind++) batch(CU_MEMCPY_SRC_ACCESS_ORDER_ANY, kind); }

/* While a call of another thread waits, which calls wait with it? */
struct waiter {
    CUcontext context;
    CUdeviceptr target, other;
    CUstream stream;
    void *host;
    size_t size;
    int what;
    volatile int begun, ended;
};

static void *wait_inside(void *argument)
{
    struct waiter *w = argument;
    MUST(cuCtxSetCurrent(w->context));
    w->begun = 1;
    if (w->what == 0)
        MUST(cuMemcpyHtoDAsync(w->target, w->host, w->size, w->stream));
    else if (w->what == 1)
        MUST(cuMemcpyDtoHAsync(w->host, w->target, w->size, w->stream));
    else if (w->what == 2)
        MUST(cuMemFree(w->other));
    else if (w->what == 3)
        MUST(cuStreamSynchronize(w->stream));
    else
        MUST(cuMemcpyPeerAsync(w->other, NULL, w->target, w->context, w->size, w->stream));
    w->ended = 1;
    return NULL;
}

static void stalls(int what, CUcontext peer, CUcontext asker)
{
    CUcontext own = context(0);
    struct waiter w = {.context = own, .what = what, .size = 64 * MIB};
    w.target = memory(w.size);
    w.host = pageable(w.size, 1);
    if (peer) {
        MUST(cuCtxSetCurrent(peer));
        w.other = memory(w.size);
        MUST(cuCtxSetCurrent(own));
        MUST(cuMemcpyPeer(w.other, peer, w.target, own, w.size));
        MUST(cuCtxSynchronize());
    } else {
        w.other = memory(MIB);
    }
    if (asker)
        MUST(cuCtxSetCurrent(asker));
    CUstream other = stream();
    CUevent event;
    MUST(cuEventCreate(&event, 0));
    MUST(cuEventRecord(event, other));
    CUdeviceptr spare = memory(MIB), more;
    char *host = pinned(4096);
    MUST(cuMemcpyHtoDAsync(spare, host, 4096, other));
    MUST(cuStreamSynchronize(other));
    static const char *names[] = {"query", "alloc", "attribute", "record", "copy", "stream", "host function", "synchronize"};
    for (int call = 0; call < 8; call++) {
        w.begun = w.ended = 0;
        MUST(cuCtxSetCurrent(own));
        w.stream = held();
        if (what == 2 && call > 0)
            w.other = memory(MIB);
        pthread_t thread;
        pthread_create(&thread, NULL, wait_inside, &w);
        while (!w.begun)
            usleep(1000);
        usleep(30000);
        if (asker)
            MUST(cuCtxSetCurrent(asker));
        int inside = !w.ended, result = -1;
        double begun = now();
        CUstream made;
        CUmemorytype kind;
        switch (call) {
        case 0: result = cuStreamQuery(other); break;
        case 1: result = cuMemAlloc(&more, MIB); break;
        case 2: result = cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, spare); break;
        case 3: result = cuEventRecord(event, other); break;
        case 4: result = cuMemcpyHtoDAsync(spare, host, 4096, other); break;
        case 5: result = cuStreamCreate(&made, CU_STREAM_NON_BLOCKING); break;
        case 6: result = cuLaunchHostFunc(other, nap, NULL); break;
        default: result = cuStreamSynchronize(other); break;
        }
        say("%s%s %d %s; ", inside ? "" : "(not inside) ", names[call], result, now() - begun < HELD / 2 ? "at once" : "late");
        pthread_join(thread, NULL);
        MUST(cuCtxSynchronize());
    }
}

static void stalls_upload(void) { stalls(0, NULL, NULL); }
static void stalls_download(void) { stalls(1, NULL, NULL); }
static void stalls_free(void) { stalls(2, NULL, NULL); }
static void stalls_synchronize(void) { stalls(3, NULL, NULL); }
static void stalls_staged(void) { stalls(4, context(1), NULL); }

static CUcontext second_context(void)
{
    CUcontext made;
    context(0);
    MUST(cuCtxCreate_v2(&made, 0, 0));
    return made;
}

static void stalls_upload_elsewhere(void) { stalls(0, NULL, second_context()); }
static void stalls_free_elsewhere(void) { stalls(2, NULL, second_context()); }

/* --- Single answers --- */

static void elapsed_of(CUcontext first, CUcontext second)
{
    CUevent from, to;
    float ms = -1;
    MUST(cuCtxSetCurrent(first));
    MUST(cuEventCreate(&from, 0));
    MUST(cuEventRecord(from, 0));
    MUST(cuCtxSynchronize());
    MUST(cuCtxSetCurrent(second));
    MUST(cuEventCreate(&to, 0));
    MUST(cuEventRecord(to, 0));
    MUST(cuCtxSynchronize());
    int result = cuEventElapsedTime(&ms, from, to);
    say("%d%s, ", result, ms == -1 ? ", time untouched" : "");
    MUST(cuCtxSetCurrent(first));
    say("the other way %d", cuEventElapsedTime(&ms, to, from));
}

static void elapsed_across_contexts(void)
{
    CUcontext first = context(0), second;
    MUST(cuCtxCreate_v2(&second, 0, 0));
    elapsed_of(first, second);
}

static void elapsed_across_devices(void)
{
    CUcontext first = context(0);
    elapsed_of(first, context(1));
}

static void event_of_other_device(void)
{
    CUcontext first = context(0);
    CUevent event;
    MUST(cuEventCreate(&event, 0));
    context(1);
    say("record %d, ", cuEventRecord(event, stream()));
    say("runtime ");
    cudaEvent_t made;
    MUST(cudaSetDevice(0));
    MUST(cudaEventCreate(&made));
    MUST(cudaSetDevice(1));
    say("%d", cudaEventRecord(made, 0));
    (void)first;
}

static void elapsed_errors(void)
{
    context(0);
    CUevent unrecorded, untimed, timed;
    float ms;
    MUST(cuEventCreate(&unrecorded, 0));
    MUST(cuEventCreate(&timed, 0));
    MUST(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    MUST(cuEventRecord(timed, 0));
    MUST(cuEventRecord(untimed, 0));
    MUST(cuCtxSynchronize());
    say("never recorded %d, ", cuEventElapsedTime(&ms, unrecorded, timed));
    say("without timing %d, ", cuEventElapsedTime(&ms, timed, untimed));
    CUstream busy = held();
    MUST(cuEventRecord(unrecorded, busy));
    say("under way %d", cuEventElapsedTime(&ms, timed, unrecorded));
}

static CUmemoryPool pool_of(size_t most)
{
    CUmemPoolProps props = {.maxSize = most, .allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemoryPool made;
    MUST(cuMemPoolCreate(&made, &props));
    cuuint64_t all = ~(cuuint64_t)0;
    MUST(cuMemPoolSetAttribute(made, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    return made;
}

static CUmemoryPool pool(void)
{
    return pool_of(0);
}

static void pool_handles(void)
{
    context(0);
    CUmemoryPool first = pool();
    MUST(cuMemPoolDestroy(first));
    int same = 0;
    for (int time = 0; time < 16; time++) {
        CUmemoryPool next = pool();
        same += next == first;
        MUST(cuMemPoolDestroy(next));
    }
    say("a destroyed pool's handle is used again: %s", same ? "yes" : "no");
}

static void pool_access(void)
{
    context(0);
    CUmemoryPool made = pool();
    CUmemAccessDesc none = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}, .flags = CU_MEM_ACCESS_FLAGS_PROT_NONE};
    say("own device without rights %d, ", cuMemPoolSetAccess(made, &none, 1));
    none.location.id = 99;
    none.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    say("no such device %d, ", cuMemPoolSetAccess(made, &none, 1));
    none.location.id = 0;
    none.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    say("read only %d", cuMemPoolSetAccess(made, &none, 1));
}

static void pool_access_without_path(void)
{
    context(0);
    int can = 0;
    MUST(cuDeviceCanAccessPeer(&can, 1, 0));
    if (can) {
        say("unmeasured");
        return;
    }
    CUmemAccessDesc all = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemoryPool empty = pool(), used = pool();
    CUdeviceptr made;
    CUstream own = stream();
    say("empty %d, ", cuMemPoolSetAccess(empty, &all, 1));
    say("then an allocation %d; ", cuMemAllocFromPoolAsync(&made, MIB, empty, own));
    MUST(cuMemAllocFromPoolAsync(&made, MIB, used, own));
    say("in use %d", cuMemPoolSetAccess(used, &all, 1));
}

/* Memory of a pool, freed behind work and allocated again on another stream. */
static void reuse(int how)
{
    context(0);
    CUmemoryPool from = how >= 6 ? pool_of(32 * MIB) : pool();
    int off = 0;
    if (how != 1 && how != 6)
        MUST(cuMemPoolSetAttribute(from, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &off));
    if (how == 4)
        MUST(cuMemPoolSetAttribute(from, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, &off));
    if (how == 5)
        MUST(cuMemPoolSetAttribute(from, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &off));
    CUstream first = stream(), second = stream();
    CUdeviceptr warm, made, again;
    MUST(cuMemAllocFromPoolAsync(&warm, MIB, from, second));
    MUST(cuMemFreeAsync(warm, second));
    MUST(cuCtxSynchronize());
    MUST(cuMemPoolTrimTo(from, 0));
    MUST(cuMemAllocFromPoolAsync(&made, 32 * MIB, from, first));
    MUST(cuLaunchHostFunc(second, nap, NULL));
    MUST(cuCtxSynchronize());
    if (how != 5)
        hold(first);
    MUST(cuMemFreeAsync(made, first));
    CUevent event;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cuEventRecord(event, first));
    if (how == 3 || how == 4)
        MUST(cuStreamWaitEvent(second, event, 0));
    if (how == 5)
        MUST(cuStreamSynchronize(first));
    double begun = now();
    int result = cuMemAllocFromPoolAsync(&again, 32 * MIB, from, how == 0 ? first : second);
    if (result) {
        say("%d %s", result, took(begun));
        return;
    }
    say("%d %s, %s memory", result, took(begun), again == made ? "the same" : "other");
    CUstream used = how == 0 ? first : second;
    MUST(cuMemsetD8Async(again, 1, MIB, used));
    MUST(cuStreamSynchronize(used));
    say(", the stream %s", took(begun));
}

static void reuse_same_stream(void) { reuse(0); }
static void reuse_internal(void) { reuse(1); }
static void reuse_none(void) { reuse(2); }
static void reuse_event(void) { reuse(3); }
static void reuse_event_off(void) { reuse(4); }
static void reuse_opportunistic_off(void) { reuse(5); }
static void reuse_full(void) { reuse(6); }
static void reuse_full_none(void) { reuse(7); }

/* The same with all that a pool does by default, in the device's own pool. */
static void reuse_default(void)
{
    context(0);
    CUstream first = stream(), second = stream();
    CUdeviceptr made, again;
    MUST(cuMemAllocAsync(&made, 32 * MIB, first));
    MUST(cuCtxSynchronize());
    hold(first);
    MUST(cuMemFreeAsync(made, first));
    double begun = now();
    MUST(cuMemAllocAsync(&again, 32 * MIB, second));
    say("%s, %s memory", took(begun), again == made ? "the same" : "other");
    MUST(cuMemsetD8Async(again, 1, MIB, second));
    MUST(cuStreamSynchronize(second));
    say(", the stream %s", took(begun));
}

static void two_mappings(void)
{
    context(0);
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    size_t size = 2 * MIB;
    CUmemGenericAllocationHandle handle;
    MUST(cuMemCreate(&handle, size, &prop, 0));
    CUdeviceptr at;
    MUST(cuMemAddressReserve(&at, 2 * size, 0, 0, 0));
    say("first %d, ", cuMemMap(at, size, 0, handle, 0));
    say("second %d", cuMemMap(at + size, size, 0, handle, 0));
    CUmemAccessDesc all = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    MUST(cuMemSetAccess(at, 2 * size, &all, 1));
    MUST(cuMemsetD8(at, 7, size));
    MUST(cuCtxSynchronize());
    unsigned char value = 0;
    MUST(cuMemcpyDtoH(&value, at + size, 1));
    say(", %s", value == 7 ? "one memory" : "two memories");
    say(", unmap %d", cuMemUnmap(at, size));
    MUST(cuMemsetD8(at + size, 9, size));
    MUST(cuMemcpyDtoH(&value, at + size + 5, 1));
    say(", the other works: %s", value == 9 ? "yes" : "no");
}

/* The host reads an address; a signal ends the process, which says so for it. */
static void caught(int number)
{
    say("signal %d", number);
    _exit(0);
}

static void read_by_host(CUdeviceptr at)
{
    cuCtxSynchronize();
    int ends[2];
    if (pipe(ends) != 0)
        return;
    ssize_t wrote = write(ends[1], (void *)at, 1);
    say("write() %d, ", wrote < 0 ? errno : 0);
    signal(SIGSEGV, caught);
    signal(SIGBUS, caught);
    volatile unsigned char value = *(volatile unsigned char *)at;
    say("reads %d", value);
}

static void host_reads_memory(void)
{
    context(0);
    CUdeviceptr made = memory(MIB);
    MUST(cuMemsetD8(made, 7, MIB));
    read_by_host(made);
}

static void host_reads_pool(void)
{
    context(0);
    CUdeviceptr made;
    MUST(cuMemAllocAsync(&made, MIB, 0));
    MUST(cuMemsetD8(made, 7, MIB));
    read_by_host(made);
}

static void host_reads_mapping(void)
{
    context(0);
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemGenericAllocationHandle handle;
    MUST(cuMemCreate(&handle, 2 * MIB, &prop, 0));
    CUdeviceptr at;
    MUST(cuMemAddressReserve(&at, 2 * MIB, 0, 0, 0));
    MUST(cuMemMap(at, 2 * MIB, 0, handle, 0));
    CUmemAccessDesc all = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    MUST(cuMemSetAccess(at, 2 * MIB, &all, 1));
    MUST(cuMemsetD8(at, 7, MIB));
    read_by_host(at);
}

static void host_reads_pinned(void)
{
    context(0);
    char *made = pinned(MIB);
    memset(made, 7, MIB);
    read_by_host((CUdeviceptr)made);
}

static void names_of_driver(void)
{
    unsigned sum = 0;
    for (int code = 0; code < 1000; code++) {
        const char *name = NULL, *text = NULL;
        if (cuGetErrorName((CUresult)code, &name) == CUDA_SUCCESS && name) {
            say("%d ", code);
            cuGetErrorString((CUresult)code, &text);
            for (const char *c = name; *c; c++)
                sum = (sum ^ (unsigned char)*c) * 16777619u;
        }
    }
    say("names %08x", sum);
}

static void name_of(int code)
{
    const char *name = NULL, *text = NULL;
    int named = cuGetErrorName((CUresult)code, &name), told = cuGetErrorString((CUresult)code, &text);
    say("%d %s, %d %s", named, name ? name : "none", told, text ? text : "none");
}

static void name_802(void) { name_of(802); }
static void name_unknown(void) { name_of(12345); }

static void names_of_runtime(void)
{
    unsigned sum = 0;
    int count = 0;
    for (int code = 0; code < 1000; code++) {
        const char *name = cudaGetErrorName((cudaError_t)code);
        if (strcmp(name, "unrecognized error code") == 0)
            continue;
        count++;
        for (const char *c = name; *c; c++)
            sum = (sum ^ (unsigned char)*c) * 16777619u;
    }
    say("%d names, %08x, 802 is %s", count, sum, cudaGetErrorName((cudaError_t)802));
}

static void capability(void)
{
    CUresult (*ask)(int *, int *, CUdevice) = (CUresult(*)(int *, int *, CUdevice))dlsym(RTLD_DEFAULT, "cuDeviceComputeCapability");
    if (!ask) {
        say("no such function");
        return;
    }
    MUST(cuInit(0));
    int major = 0, minor = 0, x = 0, y = 0;
    say("%d, ", ask(&major, &minor, 0));
    cuDeviceGetAttribute(&x, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0);
    cuDeviceGetAttribute(&y, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0);
    say("%s, ", major == x && minor == y ? "as the attributes" : "other than the attributes");
    say("null %d, no such device %d", ask(NULL, &minor, 0), ask(&major, &minor, 99));
}

/* A function of NVML, which is started. */
static void *of_nvml(const char *name)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    int (*start)(void) = library ? (int (*)(void))dlsym(library, "nvmlInit_v2") : NULL;
    int result = start ? start() : -1;
    if (result != 0) {
        say("nvmlInit %d", result);
        _exit(0);
    }
    void *function = dlsym(library, name);
    if (!function) {
        say("no such function");
        _exit(0);
    }
    return function;
}

typedef int handle_function(unsigned, void **);
typedef int status_function(void *, void *, int, int *);

static void nvml_strings(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    const char *(*string)(int) = library ? (const char *(*)(int))dlsym(library, "nvmlErrorString") : NULL;
    if (!string) {
        say("no such function");
        return;
    }
    for (int code = 0; code < 32; code++)
        say("%s|", string(code));
    say("%s", string(999));
}

static void nvml_pci(void)
{
    handle_function *handle = (handle_function *)of_nvml("nvmlDeviceGetHandleByIndex_v2");
    int (*pci)(void *, void *) = (int (*)(void *, void *))of_nvml("nvmlDeviceGetPciInfo_v3");
    void *device;
    struct {
        char legacy[16];
        unsigned domain, bus, slot, id, subsystem;
        char name[32];
        char more[64];
    } info = {0};
    MUST(handle(0, &device));
    char of_driver[32] = "", joined[32];
    int result = pci(device, &info);
    MUST(cuInit(0));
    MUST(cuDeviceGetPCIBusId(of_driver, sizeof of_driver, 0));
    snprintf(joined, sizeof joined, "%04X:%02X:%02X.0", info.domain, info.bus, info.slot);
    say("%d, %s the driver's, bus id of %zu characters, legacy of %zu, null %d", result, strcasecmp(joined, of_driver) == 0 ? "as" : "not as",
        strlen(info.name), strlen(info.legacy), pci(device, NULL));
}

static void nvml_peers(void)
{
    handle_function *handle = (handle_function *)of_nvml("nvmlDeviceGetHandleByIndex_v2");
    status_function *status = (status_function *)of_nvml("nvmlDeviceGetP2PStatus");
    void *first, *second;
    MUST(handle(0, &first));
    MUST(handle(1, &second));
    for (int index = 0; index < 6; index++) {
        int value = -1, result = status(first, second, index, &value);
        say("%d %d, ", result, value);
    }
    int value = -1;
    say("itself %d", status(first, first, 0, &value));
}

static void nvml_peer_itself(void)
{
    handle_function *handle = (handle_function *)of_nvml("nvmlDeviceGetHandleByIndex_v2");
    status_function *status = (status_function *)of_nvml("nvmlDeviceGetP2PStatus");
    void *first;
    MUST(handle(0, &first));
    int value = -1, result = status(first, first, 0, &value);
    say("%d %d, null %d, index 99 %d, no device %d", result, value, status(first, first, 0, NULL), status(first, first, 99, &value),
        handle(99, &first));
}

static void modules(void)
{
    context(0);
    CUmodule module;
    CUfunction function;
    CUlibrary library;
    say("text that is no PTX %d, ", cuModuleLoadData(&module, "not a module"));
    say("as a library %d, ", cuLibraryLoadData(&library, "not a module", NULL, NULL, 0, NULL, NULL, 0));
    say("empty PTX %d, ", cuModuleLoadData(&module, ".version 6.0\n.target sm_50\n.address_size 64\n"));
    say("no such kernel %d, ", cuModuleGetFunction(&function, module, "nothing"));
    say("launch of null %d", cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, 0, NULL, NULL));
}

static void symbols(void)
{
    static const char *names[] = {"__cudaRegisterFatBinary", "__cudaRegisterFatBinaryEnd", "__cudaUnregisterFatBinary", "__cudaRegisterFunction",
        "__cudaRegisterVar", "__cudaRegisterManagedVar", "__cudaInitModule", "__cudaPushCallConfiguration", "__cudaPopCallConfiguration",
        "__cudaGetKernel", "__cudaLaunchKernel", "cudaLaunchKernel", "cudaLaunchKernelExC", "cudaFuncGetAttributes", "cudaFuncSetAttribute",
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor", "cudaMemcpyToSymbol", "cudaGetSymbolAddress", "cudaGetKernel", "cudaGetFuncBySymbol"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (!dlsym(RTLD_DEFAULT, names[i]))
            say("without %s ", names[i]);
    static int nothing;
    cudaError_t (*launch)(const void *, dim3, dim3, void **, size_t, cudaStream_t) = dlsym(RTLD_DEFAULT, "cudaLaunchKernel");
    if (launch)
        say("launch of an unregistered function %d", launch(&nothing, (dim3){1, 1, 1}, (dim3){1, 1, 1}, NULL, 0, 0));
    say(", last error %d", cudaGetLastError());
    say(", synchronize %d", cudaDeviceSynchronize());
}

static const struct {
    const char *name;
    void (*run)(void);
    int needs;
} PROBES[] = {
    {"end.handler", end_handler, 1},
    {"end.handler_from_before", end_handler_from_before, 1},
    {"end.destructor", end_destructor, 1},
    {"end.runtime_handler", end_runtime_handler, 1},
    {"end.runtime_handler_from_before", end_runtime_handler_from_before, 1},
    {"end.runtime_destructor", end_runtime_destructor, 1},
    {"end.of_thread", end_of_thread, 1},
    {"end.handler_waits", end_waits_for_work, 1},
    {"end.by_thread", end_by_thread, 1},
    {"end.with_work", end_with_work, 1},
    {"ipc.get_handle", get_handle_waits, 1},
    {"ipc.close", close_waits, 1},
    {"ipc.freed_while_open", freed_while_open, 1},
    {"ipc.event", event_of_other_process, 1},
    {"ipc.event_handles", event_handles, 1},
    {"upload.sync_4k", upload_sync_small, 1},
    {"upload.sync_64k", upload_sync_64k, 1},
    {"upload.sync_1m", upload_sync_1m, 1},
    {"upload.sync_64m", upload_sync_64m, 1},
    {"upload.async_4k", upload_async_small, 1},
    {"upload.async_1m", upload_async_1m, 1},
    {"upload.async_64m", upload_async_64m, 1},
    {"behind.pageable", behind_work, 1},
    {"behind.pageable_more", behind_work_more, 1},
    {"behind.pinned", behind_work_pinned, 1},
    {"batch.stream", batch_stream, 1},
    {"batch.during_call", batch_during, 1},
    {"batch.any", batch_any, 1},
    {"stall.upload", stalls_upload, 1},
    {"stall.download", stalls_download, 1},
    {"stall.free", stalls_free, 1},
    {"stall.upload_other_context", stalls_upload_elsewhere, 1},
    {"stall.free_other_context", stalls_free_elsewhere, 1},
    {"stall.synchronize", stalls_synchronize, 1},
    {"stall.staged_copy", stalls_staged, 2},
    {"elapsed.contexts", elapsed_across_contexts, 1},
    {"elapsed.devices", elapsed_across_devices, 2},
    {"elapsed.errors", elapsed_errors, 1},
    {"event.of_other_device", event_of_other_device, 2},
    {"pool.handles", pool_handles, 1},
    {"pool.access", pool_access, 1},
    {"pool.access_without_path", pool_access_without_path, 2},
    {"pool.reuse_same_stream", reuse_same_stream, 1},
    {"pool.reuse_internal", reuse_internal, 1},
    {"pool.reuse_none", reuse_none, 1},
    {"pool.reuse_event", reuse_event, 1},
    {"pool.reuse_event_off", reuse_event_off, 1},
    {"pool.reuse_opportunistic_off", reuse_opportunistic_off, 1},
    {"pool.reuse_full", reuse_full, 1},
    {"pool.reuse_full_none", reuse_full_none, 1},
    {"pool.reuse_default", reuse_default, 1},
    {"map.twice", two_mappings, 1},
    {"host.reads_memory", host_reads_memory, 1},
    {"host.reads_pool", host_reads_pool, 1},
    {"host.reads_mapping", host_reads_mapping, 1},
    {"host.reads_pinned", host_reads_pinned, 1},
    {"name.driver", names_of_driver, 0},
    {"name.802", name_802, 0},
    {"name.unknown", name_unknown, 0},
    {"name.runtime", names_of_runtime, 0},
    {"name.nvml", nvml_strings, 0},
    {"nvml.pci", nvml_pci, 1},
    {"nvml.peer_itself", nvml_peer_itself, 1},
    {"nvml.peers", nvml_peers, 2},
    {"device.capability", capability, 1},
    {"kernel.modules", modules, 1},
    {"kernel.symbols", symbols, 1},
};

/* Runs something in a process of its own; its answer, and how it ended if that was bad. */
static void ask(void (*run)(void), char *text, size_t size)
{
    int ends[2];
    if (pipe(ends) != 0)
        exit(1);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        close(ends[0]);
        answer = ends[1];
        run();
        _exit(0);
    }
    close(ends[1]);
    size_t length = 0;
    double limit = now() + SECONDS * 1e3;
    int hung = 0;
    for (;;) {
        struct pollfd ready = {.fd = ends[0], .events = POLLIN};
        double rest = limit - now();
        if (rest <= 0 || poll(&ready, 1, (int)rest) <= 0) {
            hung = 1;
            break;
        }
        ssize_t more = read(ends[0], text + length, size - length - 1);
        if (more <= 0)
            break;
        length += (size_t)more;
    }
    int status = 0;
    if (hung)
        kill(-child, SIGKILL);
    waitpid(child, &status, 0);
    kill(-child, SIGKILL);
    close(ends[0]);
    snprintf(text + length, size - length, "%s", hung ? " hangs" : WIFSIGNALED(status) ? " ends by a signal" : "");
}

static void count_devices(void)
{
    int count = 0;
    if (cuInit(0) == CUDA_SUCCESS)
        cuDeviceGetCount(&count);
    say("%d", count);
}

int main(int argc, char **argv)
{
    char text[65536];
    ask(count_devices, text, sizeof text);
    devices = atoi(text);
    printf("probe\tanswer\n");
    for (unsigned i = 0; i < sizeof PROBES / sizeof *PROBES; i++) {
        int chosen = argc == 1;
        for (int word = 1; word < argc; word++)
            chosen |= strchr(argv[word], '.') ? strcmp(PROBES[i].name, argv[word]) == 0 : strstr(PROBES[i].name, argv[word]) != NULL;
        if (!chosen)
            continue;
        if (devices < PROBES[i].needs)
            snprintf(text, sizeof text, "unmeasured");
        else
            ask(PROBES[i].run, text, sizeof text);
        size_t length = strlen(text);
        while (length && strchr(" ;,", text[length - 1]))
            text[--length] = 0;
        printf("%s\t%s\n", PROBES[i].name, text);
        fflush(stdout);
    }
    return 0;
}
#endif
