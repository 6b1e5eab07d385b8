/* build: runtime12+ driver; run: soak SEED [THREADS [STEPS [WORD…]]] on sim gpu
 * Threads that use all of the driver at once, each memory of its own, and know what is in it: memory of every kind taken and given back, copies
 * of every form, also by signal handlers and on small stacks, graphs captured, launched and updated, contexts, streams and events made and destroyed,
 * peer access enabled, other runtimes loaded and unloaded, threads that end, children that copy and return, exec or are killed, memory shared
 * with other processes; at times all stop, and devices are reset, access is disabled, or a capture forbids others what it cannot see. Signals arrive
 * meanwhile.
 *
 *   hangs        for paths that hang: nothing waits for all work of a device, not even the end of the process
 *   graphless    no graph: its copies are not staged where a path is broken and the program has access
 *   unasked      no thread enables peer access between contexts that others use
 *   right        no call that is wrong on purpose
 *   untold       of paths that lose data of which p2pshim cannot know: bytes are not compared
 *   real         for real GPUs: no device is reset, no handler copies at any time
 *   rounds=N     between two of them all threads stop (4); given, a line on standard error says what the process holds
 *   processes=N  with this one (3): threads share memory with them
 *   log          each step of each thread, on standard error
 *
 * Draws what each of 8 threads does in 200 steps from the seed. Prints for each thread what its calls returned, as a sum, but where that depends on others; how many
 * copies were made between each two devices; and what is wrong. Exits with 1 if anything is. Standard error names the process and each child that
 * copied, with how often, for whoever compares their traces.
 *
 * `soak child` is one of these children.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <limits.h>
#include <sys/time.h>

#include "check.h"

#define MOST_DEVICES 3
#include "lib/kinds_of_memory.h"

enum {
    THREADS = 8,
    MOST_THREADS = 64,
    STEPS = 200,
    BUFFERS = 5,
    SMALL = 96 << 10,       /* bytes of a buffer */
    LARGE = (8 << 20) + 4096,
    SHOWN = 20,
    TICK_US = 500,
    TICKED = 256,           /* bytes */
    SMALL_STACK = 20 << 10, /* 16 suffice with simulated GPUs; p2pshim may take 4 more */
    HELD_UP_NS = 2000000,
};

enum { KINDS = OF_CONTEXT + 1 };

struct thread {
    unsigned number;
    struct part part;
    int step;
    CUstream streams[MOST_DEVICES], last; /* the stream of the last work */
    int last_device;
    CUevent events[MOST_DEVICES];
    struct memory buffers[BUFFERS];
    unsigned char *got;
    uint32_t codes;
    unsigned long long copies[MOST_DEVICES][MOST_DEVICES], bytes[MOST_DEVICES][MOST_DEVICES];
    int partner[2]; /* to another process, and from there */
};

static struct thread threads[MOST_THREADS];
static pthread_barrier_t barrier;
static unsigned seed;
static int thread_count = THREADS, steps = STEPS, rounds = 4, processes = 3;
static bool hangs, has_no_graphs, is_right, is_unasked, is_untold, is_real, is_measured, logs, is_pool_refused;
static atomic_int wrong, ticks;
static _Thread_local struct thread *handled; /* whose copy a handler makes */
static _Thread_local volatile bool is_interruptible; /* nothing but p2pshim and the driver runs */
static CUresult (*copy_with_attributes)(CUdeviceptr, CUdeviceptr, size_t, CUmemcpyAttributes *, CUstream);

#include "lib/soak_children.h"
#include "lib/soak_resources.h"

/* What a call returned that depends on this thread alone. */
static void returned(struct thread *t, const char *what, int code)
{
    t->codes = (t->codes ^ (uint32_t)code) * 16777619u ^ checksum(what, strlen(what));
    if (logs)
        fprintf(stderr, "thread %u step %d: %s %d\n", t->number, t->step, what, code);
}

static void say_wrong(const struct thread *t, const char *what)
{
    if (wrong++ < SHOWN)
        printf("WRONG: seed %u thread %u step %d: %s\n", seed, t->number, t->step, what);
}

/* ---- order: all work of a thread is done in turn, whatever its streams ---- */

static void settle(struct thread *t)
{
    make_current(t->last_device);
    CHECK_CU(cuStreamSynchronize(t->last));
}

/* Makes the next work of a stream come after all before. */
static CUstream next_stream(struct thread *t, int device)
{
    CUstream stream = t->streams[device];
    if (stream != t->last) {
        make_current(t->last_device);
        CHECK_CU(cuEventRecord(t->events[t->last_device], t->last));
        make_current(device);
        CHECK_CU(cuStreamWaitEvent(stream, t->events[t->last_device], 0));
        t->last = stream;
        t->last_device = device;
    }
    make_current(device);
    return stream;
}

/* ---- memory ---- */

static void give_back(struct thread *t, struct memory *b)
{
    make_current(b->device);
    give_back_memory(b, t->streams[b->device]);
}

/* All devices get access, so that it is not left to chance who has it. Where that is refused, the memory is given back. */
static bool take(struct thread *t, struct memory *b, enum kind kind, int device, size_t bytes)
{
    CUresult granted = CUDA_SUCCESS;
    make_current(device);
    take_memory(b, kind, device, bytes, t->streams[device]);
    for (int peer = 0; peer < devices && granted == CUDA_SUCCESS; peer++)
        if (peer != device)
            granted = grant(b, peer);
    if (granted != CUDA_SUCCESS)
        give_back(t, b);
    return granted == CUDA_SUCCESS;
}

static void refill(struct thread *t, struct memory *b)
{
    CUstream stream = next_stream(t, b->device);
    fill(b->known, b->bytes, draw(1 << 16));
    returned(t, "upload", (int)cuMemcpyHtoDAsync(b->at, b->known, b->bytes, stream));
    settle(t);
}

static void take_any(struct thread *t, struct memory *b)
{
    enum kind kind = (enum kind)draw(KINDS);
    int device = (int)draw((unsigned)devices);
    size_t bytes = draw(20) == 0 ? LARGE : SMALL;
    if (hangs || (kind == POOLED && is_pool_refused) || !take(t, b, kind, device, bytes))
        REQUIRE(take(t, b, PLAIN, device, bytes));
    b->wanted = (int)kind;
    refill(t, b);
}

static void compare(struct thread *t, const struct memory *b, const char *what)
{
    CUstream stream = next_stream(t, b->device);
    memset(t->got, 0, b->bytes);
    returned(t, "download", (int)cuMemcpyDtoHAsync(t->got, b->at, b->bytes, stream));
    settle(t);
    if (!is_untold && memcmp(t->got, b->known, b->bytes) != 0)
        say_wrong(t, what);
}

/* ---- copies ---- */

static void count(struct thread *t, int from, int to, unsigned copies, size_t bytes)
{
    t->copies[from][to] += copies;
    t->bytes[from][to] += bytes;
}

static void any_two(struct thread *t, struct memory **src, struct memory **dst)
{
    unsigned first = draw(BUFFERS), second = (first + 1 + draw(BUFFERS - 1)) % BUFFERS;
    *src = &t->buffers[first], *dst = &t->buffers[second];
}

static void copy(struct thread *t)
{
    struct memory *src, *dst;
    any_two(t, &src, &dst);
    int by = draw(2) ? src->device : (int)draw((unsigned)devices);
    struct transfer c = some_transfer(dst, src);
    enum form form = c.form;
    if (is_async(form)) {
        c.stream = next_stream(t, by);
    } else {
        settle(t);
        make_current(by);
    }
    is_interruptible = !handled && !is_of_runtime(form);
    int ret = make(&c);
    is_interruptible = false;
    CUcontext current;
    CHECK_CU(cuCtxGetCurrent(&current));
    if (current != contexts[by])
        say_wrong(t, "another context is current after a copy");
    if (!is_async(form)) {
        CHECK_CU(wait_for_transfer(&c, contexts[src->device], contexts[dst->device]));
        make_current(by);
        CHECK_CU(cuStreamSynchronize(CU_STREAM_LEGACY));
    }
    returned(t, forms[form].name, ret);
    if (ret != 0)
        return;
    expect_rows(dst->known, src->known, &c);
    if (src->device != dst->device)
        count(t, src->device, dst->device, form == BY_cuMemcpyBatchAsync ? 2 : 1, c.width * c.rows * c.slices);
    /* Else other work comes between. */
    if (draw(2))
        compare(t, dst, forms[form].name);
}

/* By a runtime of another version, which is loaded for it. */
static void copy_by_another_runtime(struct thread *t)
{
    static const char *const names[] = {"libcudart.so.11.0", "libcudart.so.12", "libcudart.so.13"};
    struct memory *src, *dst;
    any_two(t, &src, &dst);
    settle(t);
    make_current(src->device);
    void *runtime = dlopen(names[draw(3)], RTLD_NOW | RTLD_LOCAL);
    REQUIRE(runtime || is_real);
    if (!runtime)
        return;
    int (*copy_peer)(void *, int, const void *, int, size_t) =
        (int (*)(void *, int, const void *, int, size_t))dlsym(runtime, "cudaMemcpyPeer");
    REQUIRE(copy_peer);
    size_t bytes = 1 + draw(SMALL);
    int ret = copy_peer((void *)dst->at, dst->device, (void *)src->at, src->device, bytes);
    for (int device = 0; device < devices; device++) {
        make_current(device);
        CHECK_CU(cuStreamSynchronize(CU_STREAM_LEGACY));
    }
    returned(t, "another runtime's cudaMemcpyPeer", ret);
    REQUIRE(dlclose(runtime) == 0);
    if (ret != 0)
        return;
    memcpy(dst->known, src->known, bytes);
    if (src->device != dst->device)
        count(t, src->device, dst->device, 1, bytes);
}

/* Through pages of the host that are registered for it. */
static void copy_by_host(struct thread *t)
{
    struct memory *src, *dst;
    any_two(t, &src, &dst);
    size_t bytes = 1 + draw(SMALL);
    void *host = mmap(NULL, SMALL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(host != MAP_FAILED);
    make_current(src->device);
    returned(t, "cuMemHostRegister", (int)cuMemHostRegister(host, SMALL, CU_MEMHOSTREGISTER_PORTABLE));
    CUstream stream = next_stream(t, src->device);
    returned(t, "to the host", (int)cuMemcpyAsync((CUdeviceptr)host, src->at, bytes, stream));
    stream = next_stream(t, dst->device);
    returned(t, "from the host", (int)cuMemcpyAsync(dst->at, (CUdeviceptr)host, bytes, stream));
    settle(t);
    memcpy(dst->known, src->known, bytes);
    if (!hangs)
        returned(t, "cuMemHostUnregister", (int)cuMemHostUnregister(host));
    REQUIRE(hangs || munmap(host, SMALL) == 0);
}

static void CUDA_CB hold_up(void *unused)
{
    (void)unused;
    nanosleep(&(struct timespec){.tv_nsec = HELD_UP_NS}, NULL);
}

/* A copy that reads its source during the call: what comes there afterwards does not arrive. */
static void overwrite_source(struct thread *t)
{
    struct memory ends[2] = {{0}};
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL};
    size_t bytes = draw(4) == 0 ? LARGE : SMALL;
    if (!copy_with_attributes)
        return;
    for (int i = 0; i < 2; i++) {
        ends[i].known = t->got;
        REQUIRE(take(t, &ends[i], PLAIN, (int)((t->number + (unsigned)i) % (unsigned)devices), bytes));
    }
    settle(t);
    CUstream stream = next_stream(t, ends[0].device);
    CUstream other = driver_stream();
    fill(t->got, bytes, draw(1 << 16));
    uint32_t sum = checksum(t->got, bytes);
    CHECK_CU(cuMemcpyHtoDAsync(ends[0].at, t->got, bytes, stream));
    settle(t);
    make_current(ends[0].device);
    CHECK_CU(cuLaunchHostFunc(stream, hold_up, NULL));
    int ret = (int)copy_with_attributes(ends[1].at, ends[0].at, bytes, &attributes, stream);
    returned(t, "cuMemcpyWithAttributesAsync", ret);
    CHECK_CU(cuMemsetD8Async(ends[0].at, 0, bytes, other));
    CHECK_CU(cuStreamSynchronize(other));
    settle(t);
    CHECK_CU(cuStreamDestroy(other));
    if (ret == 0)
        count(t, ends[0].device, ends[1].device, 1, bytes);
    make_current(ends[1].device);
    CHECK_CU(cuMemcpyDtoH(t->got, ends[1].at, bytes));
    if (ret == 0 && checksum(t->got, bytes) != sum)
        say_wrong(t, "a copy that reads its source during the call");
    for (int i = 0; i < 2; i++)
        give_back(t, &ends[i]);
}

/* ---- graphs ---- */

static CUgraph capture(struct thread *t, CUstream stream, CUstreamCaptureMode mode, struct memory *ends[2], size_t bytes)
{
    CUgraph graph = NULL;
    returned(t, "begin", (int)cuStreamBeginCapture(stream, mode));
    returned(t, "captured", (int)cuMemcpyAsync(ends[1]->at, ends[0]->at, bytes, stream));
    returned(t, "end", (int)cuStreamEndCapture(stream, &graph));
    REQUIRE(graph);
    return graph;
}

static void launch(struct thread *t, CUgraphExec exec, CUstream stream, struct memory *ends[2], size_t bytes)
{
    for (unsigned i = 1 + draw(3); i > 0; i--) {
        returned(t, "launch", (int)cuGraphLaunch(exec, stream));
        if (ends[0]->device != ends[1]->device)
            count(t, ends[0]->device, ends[1]->device, 1, bytes);
    }
    memcpy(ends[1]->known, ends[0]->known, bytes);
}

static void use_graph(struct thread *t, CUstreamCaptureMode mode)
{
    struct memory *ends[2];
    any_two(t, &ends[0], &ends[1]);
    size_t bytes = 1 + draw(SMALL), others = 1 + draw(SMALL);
    CUgraphExec exec;
    CUgraph first, second;
    CUstream stream = next_stream(t, ends[0]->device);
    first = capture(t, stream, mode, ends, bytes);
    returned(t, "instantiate", (int)cuGraphInstantiateWithFlags(&exec, first, 0));
    launch(t, exec, stream, ends, bytes);
    if (draw(2)) {
        second = capture(t, stream, mode, ends, others);
        CUgraphExecUpdateResultInfo info;
        returned(t, "update", (int)cuGraphExecUpdate(exec, second, &info));
        launch(t, exec, stream, ends, others);
        returned(t, "destroy", (int)cuGraphDestroy(second));
    }
    settle(t);
    returned(t, "destroy", (int)cuGraphExecDestroy(exec));
    returned(t, "destroy", (int)cuGraphDestroy(first));
}

/* ---- contexts, streams, events ---- */

/* Other contexts on two devices, which get access to each other, and copy. */
static void copy_in_contexts(struct thread *t)
{
    enum { BYTES = 4096 };
    int on[2] = {(int)draw((unsigned)devices), (int)draw((unsigned)devices)};
    CUcontext made[2];
    CUdeviceptr at[2];
    unsigned char sent[BYTES], got[BYTES] = {0};
    fill(sent, BYTES, draw(1 << 16));
    for (int i = 0; i < 2; i++) {
        make_context(&made[i], on[i]);
        CHECK_CU(cuCtxSetCurrent(made[i]));
        CHECK_CU(cuMemAlloc(&at[i], BYTES));
    }
    CHECK_CU(cuCtxSetCurrent(made[0]));
    (void)cuCtxEnablePeerAccess(made[1], 0);
    returned(t, "upload", (int)cuMemcpyHtoD(at[0], sent, BYTES));
    returned(t, "copy in contexts", (int)cuMemcpyPeer(at[1], made[1], at[0], made[0], BYTES));
    CHECK_CU(cuCtxSynchronize());
    CHECK_CU(cuCtxSetCurrent(made[1]));
    CHECK_CU(cuCtxSynchronize());
    returned(t, "download", (int)cuMemcpyDtoH(got, at[1], BYTES));
    if (on[0] != on[1])
        count(t, on[0], on[1], 1, BYTES);
    if (!is_untold && memcmp(sent, got, BYTES) != 0)
        say_wrong(t, "copy in contexts of its own");
    for (int i = 0; i < 2; i++)
        returned(t, "cuCtxDestroy", (int)cuCtxDestroy(made[i]));
    make_current(0);
}

static void renew_stream(struct thread *t)
{
    int device = (int)draw((unsigned)devices);
    settle(t);
    make_current(device);
    returned(t, "cuStreamDestroy", (int)cuStreamDestroy(t->streams[device]));
    returned(t, "cuStreamCreate", (int)cuStreamCreate(&t->streams[device], CU_STREAM_NON_BLOCKING));
    if (device == t->last_device)
        t->last = t->streams[device];
}

static void renew_event(struct thread *t)
{
    int device = (int)draw((unsigned)devices);
    make_current(device);
    returned(t, "cuEventDestroy", (int)cuEventDestroy(t->events[device]));
    returned(t, "cuEventCreate", (int)cuEventCreate(&t->events[device], CU_EVENT_DISABLE_TIMING));
}

/* Others may have done it. */
static void enable(struct thread *t)
{
    int device = (int)draw((unsigned)devices), peer = (device + 1 + (int)draw((unsigned)devices - 1)) % devices;
    make_current(device);
    CUresult ret = cuCtxEnablePeerAccess(contexts[peer], 0);
    bool is_known = ret == CUDA_SUCCESS || ret == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED || ret == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (!is_known)
        say_wrong(t, driver_error_name(ret));
}

static void do_wrong(struct thread *t)
{
    struct memory *b = &t->buffers[draw(BUFFERS)];
    make_current(b->device);
    switch (draw(5)) {
    case 0:
        returned(t, "free of nothing", (int)cuMemFree(8));
        break;
    case 1:
        returned(t, "no such device", (int)cudaMemcpyPeer((void *)b->at, 99, (void *)b->at, b->device, 4));
        returned(t, "last error", (int)cudaGetLastError());
        break;
    case 2:
        returned(t, "NULL", (int)cuMemcpyPeerAsync(0, contexts[0], b->at, contexts[b->device], 4, t->streams[b->device]));
        break;
    case 3:
        returned(t, "itself", (int)cuCtxEnablePeerAccess(contexts[b->device], 0));
        break;
    default:
        returned(t, "flags", (int)cuCtxEnablePeerAccess(contexts[!b->device], 7));
    }
}

/* ---- processes and threads ---- */

static void *copy_in_thread(void *thread)
{
    struct thread *t = thread;
    mine = &t->part;
    copy(t);
    settle(t);
    return NULL;
}

static void use_thread(struct thread *t, size_t stack)
{
    pthread_attr_t attributes;
    pthread_t thread;
    settle(t);
    REQUIRE(pthread_attr_init(&attributes) == 0);
    REQUIRE(stack == 0 || pthread_attr_setstacksize(&attributes, stack) == 0);
    REQUIRE(pthread_create(&thread, &attributes, copy_in_thread, t) == 0);
    REQUIRE(pthread_join(thread, NULL) == 0);
}

/* A handler may copy, if it does not interrupt the driver. */
static void on_request(int signal)
{
    (void)signal;
    copy(handled);
}

static void copy_in_handler(struct thread *t)
{
    handled = t;
    REQUIRE(raise(SIGUSR1) == 0);
    handled = NULL;
}

static void use_child(struct thread *t)
{
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit((int)cuMemcpyPeer(t->buffers[0].at, contexts[0], t->buffers[1].at, contexts[1], 4));
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
    returned(t, "child", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
}

struct shared {
    CUipcMemHandle handle;
    int device, device_count;
    unsigned seed;
};

/* Another process looks whether what is shared is there, and writes something else, by a copy from another device. */
static int answer_requests(int from, int to)
{
    static unsigned char sent[SMALL], got[SMALL];
    struct shared shared;
    while (read(from, &shared, sizeof shared) == sizeof shared) {
        devices = shared.device_count;
        int own = (shared.device + 1) % devices;
        CUdeviceptr theirs, mine;
        char is_there;
        if (!contexts[0]) {
            CHECK_CU(cuInit(0));
            for (int device = 0; device < devices; device++)
                CHECK_CU(cuDevicePrimaryCtxRetain(&contexts[device], device));
        }
        make_current(own);
        fill(sent, SMALL, shared.seed + 1);
        CHECK_CU(cuMemAlloc(&mine, SMALL));
        CHECK_CU(cuMemcpyHtoD(mine, sent, SMALL));
        make_current(shared.device);
        CHECK_CU(cuIpcOpenMemHandle(&theirs, shared.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        fill(sent, SMALL, shared.seed);
        CHECK_CU(cuMemcpyDtoH(got, theirs, SMALL));
        is_there = memcmp(sent, got, SMALL) == 0;
        CHECK_CU(cuMemcpyPeer(theirs, contexts[shared.device], mine, contexts[own], SMALL));
        CHECK_CU(cuStreamSynchronize(CU_STREAM_LEGACY));
        make_current(own);
        CHECK_CU(cuStreamSynchronize(CU_STREAM_LEGACY));
        make_current(shared.device);
        CHECK_CU(cuIpcCloseMemHandle(theirs));
        CHECK_CU(cuMemFree(mine));
        REQUIRE(write(to, &is_there, 1) == 1);
    }
    return 0;
}

static void share(struct thread *t)
{
    struct memory *b = &t->buffers[draw(BUFFERS)];
    struct shared shared = {.device = b->device, .device_count = devices, .seed = draw(1 << 16)};
    char is_there;
    if (b->wanted != PLAIN || b->bytes != SMALL || !t->partner[1])
        return;
    fill(b->known, SMALL, shared.seed);
    returned(t, "upload", (int)cuMemcpyHtoDAsync(b->at, b->known, SMALL, next_stream(t, b->device)));
    settle(t);
    returned(t, "cuIpcGetMemHandle", (int)cuIpcGetMemHandle(&shared.handle, b->at));
    REQUIRE(write(t->partner[0], &shared, sizeof shared) == sizeof shared);
    ssize_t got;
    while ((got = read(t->partner[1], &is_there, 1)) < 0)
        ;
    REQUIRE(got == 1);
    if (!is_untold && !is_there)
        say_wrong(t, "another process reads");
    fill(b->known, SMALL, shared.seed + 1);
    compare(t, b, "another process writes");
}

/* Before any thread, and before the driver is used: a child has the use of it. */
static void start_partner(struct thread *t)
{
    int there[2], back[2];
    REQUIRE(pipe2(there, O_CLOEXEC) == 0 && pipe2(back, O_CLOEXEC) == 0);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        close(there[1]), close(back[0]);
        _exit(answer_requests(there[0], back[1]));
    }
    close(there[0]), close(back[1]);
    t->partner[0] = there[1], t->partner[1] = back[0];
}

/* ---- what threads do ---- */

static void step(struct thread *t)
{
    struct memory *b = &t->buffers[draw(BUFFERS)];
    switch (draw(28)) {
    case 0:
        compare(t, b, "what is there");
        break;
    case 1:
    case 2:
        settle(t);
        if (!hangs) {
            give_back(t, b);
            take_any(t, b);
        }
        break;
    case 3:
        renew_stream(t);
        break;
    case 4:
        renew_event(t);
        break;
    case 5:
        if (!is_unasked)
            enable(t);
        break;
    case 6:
        if (!hangs)
            copy_in_contexts(t);
        break;
    case 7:
    case 8:
        if (!has_no_graphs && !hangs)
            use_graph(t, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
        break;
    case 9:
        copy_by_host(t);
        break;
    case 10:
        if (!hangs)
            copy_by_another_runtime(t);
        break;
    case 11:
        if (!is_right && !hangs)
            do_wrong(t);
        break;
    case 12:
        use_thread(t, draw(2) && !is_real ? SMALL_STACK : 0);
        break;
    case 13:
        if (draw(4) == 0)
            use_child(t);
        break;
    case 14:
        if (!hangs)
            share(t);
        break;
    case 15:
        refill(t, b);
        break;
    case 16:
    case 17:
        copy_in_handler(t);
        break;
    case 18:
        if (!hangs && !is_untold && draw(is_real ? 32 : 16) == 0) {
            enum child_end how = (enum child_end)draw(CHILD_ENDS);
            unsigned copies = 1 + draw(CHILD_COPIES);
            returned(t, "program", use_program(draw(1 << 16), how, copies));
        }
        break;
    case 19:
        if (!hangs && !is_untold && draw(4) == 0)
            overwrite_source(t);
        break;
    default:
        copy(t);
    }
}

static void begin(struct thread *t)
{
    for (int device = 0; device < devices; device++) {
        make_current(device);
        CHECK_CU(cuStreamCreate(&t->streams[device], CU_STREAM_NON_BLOCKING));
        CHECK_CU(cuEventCreate(&t->events[device], CU_EVENT_DISABLE_TIMING));
    }
    t->last = t->streams[0], t->last_device = 0;
    for (int i = 0; i < BUFFERS; i++)
        take_any(t, &t->buffers[i]);
}

static void end(struct thread *t)
{
    for (int i = 0; i < BUFFERS; i++)
        compare(t, &t->buffers[i], "what is there at the end");
    if (hangs)
        return;
    for (int i = 0; i < BUFFERS; i++)
        give_back(t, &t->buffers[i]);
    for (int device = 0; device < devices; device++) {
        make_current(device);
        CHECK_CU(cuStreamDestroy(t->streams[device]));
        CHECK_CU(cuEventDestroy(t->events[device]));
    }
}

/* Memory of the handlers that copy at any time, and how often they have. */
static struct {
    CUdeviceptr at[2];
    CUstream stream;
    int (*inside)(unsigned *calls); /* whether the thread is in the driver, which handlers may not interrupt */
    atomic_bool may_copy;
    atomic_uint copies, since_set_up;
} ticking;

static void on_tick(int signal)
{
    (void)signal;
    unsigned calls;
    ticks++;
    if (!is_interruptible || !ticking.may_copy || ticking.inside(&calls) != 0 || calls > 0)
        return;
    if (cuMemcpyPeerAsync(ticking.at[1], contexts[1], ticking.at[0], contexts[0], TICKED, ticking.stream) == CUDA_SUCCESS) {
        ticking.copies++;
        ticking.since_set_up++;
    }
}

/* The default pools are open to all, if that is not refused; then nobody uses them. */
static void set_up(void)
{
    unsigned char sent[TICKED];
    for (int device = 0; device < devices; device++) {
        CUmemoryPool pool;
        find_context(device);
        CHECK_CU(cuDeviceGetDefaultMemPool(&pool, device));
        for (int peer = 0; peer < devices; peer++)
            is_pool_refused |= peer != device && grant_pool(pool, peer, CU_MEM_ACCESS_FLAGS_PROT_READWRITE) != CUDA_SUCCESS;
    }
    ticking.inside = (int (*)(unsigned *))dlsym(RTLD_DEFAULT, "p2psim_inside");
    if (hangs || is_real || !ticking.inside)
        return;
    for (int i = 1; i >= 0; i--) {
        make_current(i);
        CHECK_CU(cuMemAlloc(&ticking.at[i], TICKED));
    }
    CHECK_CU(cuStreamCreate(&ticking.stream, CU_STREAM_NON_BLOCKING));
    fill(sent, TICKED, seed);
    CHECK_CU(cuMemcpyHtoD(ticking.at[0], sent, TICKED));
    ticking.since_set_up = 0;
    ticking.may_copy = true;
}

/* No other thread does anything. */
static void take_down(struct thread *t)
{
    unsigned char got[TICKED], sent[TICKED];
    if (!ticking.may_copy)
        return;
    ticking.may_copy = false;
    make_current(0);
    CHECK_CU(cuStreamSynchronize(ticking.stream));
    CHECK_CU(cuStreamDestroy(ticking.stream));
    CHECK_CU(cuMemFree(ticking.at[0]));
    make_current(1);
    CHECK_CU(cuMemcpyDtoH(got, ticking.at[1], TICKED));
    CHECK_CU(cuMemFree(ticking.at[1]));
    fill(sent, TICKED, seed);
    if (!is_untold && ticking.since_set_up > 0 && memcmp(got, sent, TICKED) != 0)
        say_wrong(t, "copies of signal handlers");
}

/* While no other thread does anything, nor has any memory. */
static void change_all(struct thread *t)
{
    int device = (int)draw((unsigned)devices), peer = (device + 1) % devices;
    if (hangs)
        return;
    take_down(t);
    switch (is_real ? 1 + draw(2) : draw(3)) {
    case 0:
        CHECK(cudaSetDevice(device));
        returned(t, "cudaDeviceReset", (int)cudaDeviceReset());
        break;
    case 1:
        make_current(device);
        (void)cuCtxEnablePeerAccess(contexts[peer], 0);
        (void)cuCtxDisablePeerAccess(contexts[peer]);
        break;
    default:
        if (!has_no_graphs) {
            begin(t);
            use_graph(t, CU_STREAM_CAPTURE_MODE_GLOBAL);
            end(t);
        }
    }
    set_up();
}

static void *run(void *argument)
{
    struct thread *t = argument;
    mine = &t->part;
    t->got = malloc(LARGE);
    REQUIRE(t->got);
    for (int i = 0; i < BUFFERS; i++)
        REQUIRE(t->buffers[i].known = malloc(LARGE));
    for (int round = 0; round < rounds; round++) {
        if (round == 0 || !hangs)
            begin(t);
        for (int i = 0; i < steps / rounds; i++, t->step++)
            step(t);
        if (round == rounds - 1 || !hangs)
            end(t);
        pthread_barrier_wait(&barrier);
        if (t->number == 0 && is_measured && !hangs)
            show_resources(round, devices, is_real ? INT_MAX : thread_count + 1);
        if (t->number == 0 && round < rounds - 1)
            change_all(t);
        pthread_barrier_wait(&barrier);
    }
    for (int i = 0; i < BUFFERS; i++)
        free(t->buffers[i].known);
    free(t->got);
    return NULL;
}

/* ---- the program ---- */

static void show(void)
{
    for (int number = 0; number < thread_count; number++)
        printf("thread %d: %08x\n", number, threads[number].codes);
    for (int from = 0; from < devices; from++)
        for (int to = 0; to < devices; to++) {
            unsigned long long copies = 0, bytes = 0;
            for (int number = 0; number < thread_count; number++) {
                copies += threads[number].copies[from][to];
                bytes += threads[number].bytes[from][to];
            }
            if (copies > 0)
                printf("%d>%d: %llu copies, %llu bytes\n", from, to, copies, bytes);
        }
    printf("%d wrong\n", wrong);
}

int main(int argc, char **argv)
{
    static pthread_t handles[MOST_THREADS];
    REQUIRE(argc > 1);
    if (strcmp(argv[1], "child") == 0 && argc == 5)
        return be_child((unsigned)strtoul(argv[2], NULL, 10), (unsigned)strtoul(argv[3], NULL, 10), (enum child_end)atoi(argv[4]));
    seed = (unsigned)strtoul(argv[1], NULL, 10);
    thread_count = argc > 2 ? atoi(argv[2]) : THREADS;
    steps = argc > 3 ? atoi(argv[3]) : STEPS;
    hangs = has_word(argc, argv, "hangs");
    has_no_graphs = has_word(argc, argv, "graphless");
    is_right = has_word(argc, argv, "right");
    is_unasked = has_word(argc, argv, "unasked");
    is_untold = has_word(argc, argv, "untold");
    is_real = has_word(argc, argv, "real");
    logs = has_word(argc, argv, "log");
    for (int word = 4; word < argc; word++) {
        is_measured |= sscanf(argv[word], "rounds=%d", &rounds) == 1;
        (void)sscanf(argv[word], "processes=%d", &processes);
    }
    REQUIRE(thread_count > 0 && thread_count <= MOST_THREADS);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int number = 0; number < thread_count; number++)
        threads[number] = (struct thread){.number = (unsigned)number, .part.state = (uint64_t)seed << 8 | (unsigned)number};
    for (int number = 0; number < thread_count && number < processes - 1 && !hangs; number++)
        start_partner(&threads[number]);
    fprintf(stderr, "process %d\n", getpid());
    count_devices(MOST_DEVICES);
    find_batches();
    find_function("cuMemcpyWithAttributesAsync", &copy_with_attributes);
    set_up();
    REQUIRE(pthread_barrier_init(&barrier, NULL, (unsigned)thread_count) == 0);
    struct sigaction action = {.sa_handler = on_tick, .sa_flags = SA_RESTART}, request = {.sa_handler = on_request, .sa_flags = SA_RESTART};
    struct itimerval every = {{0, TICK_US}, {0, TICK_US}}, never = {{0, 0}, {0, 0}};
    REQUIRE(sigaction(SIGUSR1, &request, NULL) == 0 && sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &every, NULL) == 0);
    for (int number = 0; number < thread_count; number++)
        REQUIRE(pthread_create(&handles[number], NULL, run, &threads[number]) == 0);
    /* They come to the threads. */
    sigset_t alarms;
    REQUIRE(sigemptyset(&alarms) == 0 && sigaddset(&alarms, SIGALRM) == 0 && pthread_sigmask(SIG_BLOCK, &alarms, NULL) == 0);
    for (int number = 0; number < thread_count; number++)
        REQUIRE(pthread_join(handles[number], NULL) == 0);
    REQUIRE(setitimer(ITIMER_REAL, &never, NULL) == 0);
    for (int number = 0; number < thread_count; number++)
        close(threads[number].partner[0]);
    fprintf(stderr, "handlers: %u copies, %u bytes\n", ticking.copies, ticking.copies * TICKED);
    show();
    fflush(NULL);
    _exit(wrong > 0);
}
