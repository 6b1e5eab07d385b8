/* build: runtime12+ driver; run: random_threads SEED [ROUNDS [DEVICES]] on sim gpu
 * Threads that copy between devices and rely on what calls wait for while the driver stages copies, beside others that make and end pools,
 * contexts, peer access, arrays, modules, streams, graphs and memory all the time. What p2pshim remembers of a copy is outdated by these at
 * any moment, and the calls have to wait all the same.
 *
 * The seed draws 2 to 16 workers and 1 to 4 threads beside them, which go on until the workers have done 60 rounds each, if no number is
 * given. A worker has memory, streams and graphs of its own, and no access to peers. In a round it
 *
 *   1. fills its source with values that no other round has,
 *   2. puts a delay, and behind it a copy, on a stream,
 *   3. makes a call that waits for all work of the context of one end: the destination's or, if the stream is one of the destination's
 *      device, the source's,
 *   4. and relies on that: it reads the destination, or overwrites the source, on a stream that is ordered with nothing else.
 *
 * If the call is cudaFree of that end's memory itself, the copy must succeed; docs/LIMITS.md has the calls. All is right plain, on simulated
 * and on real GPUs.
 *
 * Prints how many rounds each of these calls had, and how many were wrong: nothing of that depends on time. Before it are lines for what is
 * wrong; then it exits with 1.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "check.h"
#include "lib/copy_forms.h"
#include "lib/devices.h"
#include "lib/random.h"

enum {
    DEVICES = MOST_DEVICES, /* those of the workers, and two more for peer access beside them */
    OF_WORKERS = 3,       /* devices, at most */
    WORKERS = 16,
    BESIDE = 4,           /* threads */
    ROUNDS = 60,
    HALF = 1 << 20,       /* bytes of the largest copy, which is in one of two halves of a memory */
    ROOM = 2 * HALF,
    BLOCK = 1 << 16,      /* bytes of what is there to be freed */
    SLOTS = 2,            /* graphs that a worker keeps for each role */
    MANY = 1100,          /* graphs that few workers have */
    WARM_UPS = 20,
    SHOWN = 20,           /* lines for what is wrong */
    POISON = 0xee,
};

/* ---- kinds of everything ---- */

/* The stream's device is the source's, the destination's or a third one. */
enum role { PUSH, PULL, THIRD, ROLES };
enum way { DEFAULT, DEVICE_TO_DEVICE, PEER, BY_ROWS, BY_BOX, PEER_BOX, GRAPH, NEW_GRAPH, UPDATED_GRAPH, ENDED_GRAPH };
enum kind { BLOCKING, NON_BLOCKING, PER_THREAD, KINDS };
enum fate { KEPT, ANEW, ENDED, FATES };
/* Those before LONGER also wait for a copy whose stream was destroyed. */
enum wait { SYNC_DEVICE, SYNC_CONTEXT, FREE_OTHER, FREE_END, LONGER, FREE_HOST = LONGER, UNREGISTER, LOAD_MODULE, UNLOAD_MODULE, FREE_ARRAY,
            FREE_MIPMAPPED, RECORD_EVENT, WAITS };
enum change { POOL, CONTEXT, ACCESS, ARRAY, STREAM, MODULE, MEMORY, EXEC, WITHIN, BETWEEN, ASYNC, HOST, LEGACY, CHANGES };

static const char *const ways[] = {"cudaMemcpyAsync", "cudaMemcpyAsync, device to device", "cudaMemcpyPeerAsync", "cudaMemcpy2DAsync",
                                    "cudaMemcpy3DAsync", "cudaMemcpy3DPeerAsync", "a graph", "a new graph", "an updated graph",
                                    "a graph, destroyed after its launch"};
static const char *const kinds[] = {"a blocking stream", "a non-blocking stream", "the stream of the thread"};
static const char *const fates[] = {"", ", a new one", ", destroyed after the copy"};
static const char *const waits[] = {"cudaDeviceSynchronize", "cuCtxSynchronize", "cudaFree of other memory", "cudaFree of the copy's memory",
                                    "cudaFreeHost", "cudaHostUnregister", "cuModuleLoadData", "cuModuleUnload", "cudaFreeArray",
                                    "cuMipmappedArrayDestroy", "cuCtxRecordEvent"};
static const char *const changes[] = {"pools", "contexts", "peer access", "arrays", "streams", "modules", "memory", "graphs",
                                      "copies within a device", "copies between devices", "memory of the default pool", "host memory",
                                      "work of the legacy stream"};

/* ---- threads ---- */

#define MUST(call) must_runtime(#call, (call))
#define MUST_CU(call) must_driver(#call, (call))
static void must_runtime(const char *call, cudaError_t error);
static void must_driver(const char *call, CUresult error);

#include "lib/copy_graphs.h"

struct thread {
    pthread_t handle;
    int number;
    bool is_worker;
    struct part part;
    /* A worker's: */
    int from, to;
    char *src, *dst, *host; /* host: pinned */
    cudaStream_t streams[ROLES][KINDS], beside[DEVICES]; /* beside: ordered with nothing */
    struct graph graphs[ROLES][SLOTS];
    bool has_many, has_fresh; /* fresh: memory for each round */
    unsigned waited[WAITS];
    /* Its round: */
    int round;
    uint64_t value;
    enum role role;
    enum way way;
    enum kind kind;
    enum fate fate;
    enum wait wait;
    struct graph *graph;
    struct copy copy;
    /* Another's: */
    enum change all[3], change;
    unsigned pause; /* microseconds */
};

static uint64_t seed;
static int of_workers;
static atomic_int wrong, workers_left;
static pthread_barrier_t begun, ended;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local struct thread *self;
static CUresult (*record_event)(CUcontext, CUevent);

static const char code[] = ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry p2pshim_probe_copy(.param .u64 to, .param .u64 from, "
                           ".param .u64 words) { ret; }\n";

/* ---- what is wrong ---- */

static int stream_device(const struct thread *t)
{
    return t->role == PUSH ? t->from : t->role == PULL ? t->to : 3 - t->from - t->to;
}

/* The device whose work is waited for. */
static int far_device(const struct thread *t)
{
    return t->role == PULL ? t->from : t->to;
}

/* Where the thread is, and what it found there. */
__attribute__((format(printf, 1, 2))) static void tell(const char *format, ...)
{
    static int told;
    va_list arguments;
    pthread_mutex_lock(&lock);
    if (told++ < SHOWN) {
        printf("WRONG: seed %llu, thread %d, ", (unsigned long long)seed, self ? self->number : -1);
        if (self && self->is_worker)
            printf("round %d: %s, %zu x %zu x %zu bytes, %d>%d, on %s of %d%s, then %s for %d: ", self->round, ways[self->way],
                   self->copy.slices, self->copy.rows, self->copy.width, self->from, self->to, kinds[self->kind], stream_device(self),
                   fates[self->fate], waits[self->wait], far_device(self));
        else
            printf("%s: ", self ? changes[self->change] : "main");
        va_start(arguments, format);
        vprintf(format, arguments);
        va_end(arguments);
        putchar('\n');
        fflush(stdout);
    }
    pthread_mutex_unlock(&lock);
    atomic_fetch_add(&wrong, 1);
}

/* Once a call has failed, a context may be lost: nothing more can be said then. */
static void must(const char *call, const char *name, int failed)
{
    if (!failed)
        return;
    tell("%s = %s", call, name);
    pthread_mutex_lock(&lock);
    _exit(1);
}

static void must_runtime(const char *call, cudaError_t error)
{
    must(call, cudaGetErrorName(error), error != cudaSuccess);
}

static void must_driver(const char *call, CUresult error)
{
    must(call, driver_error_name(error), error != CUDA_SUCCESS);
}

static void CUDART_CB take_time(void *us)
{
    usleep((unsigned)(uintptr_t)us);
}

/* ---- memory and its values ---- */

static char *memory_on(int device)
{
    void *memory;
    MUST(cudaSetDevice(device));
    MUST(cudaMalloc(&memory, ROOM));
    return memory;
}

static size_t extent(const struct copy *c)
{
    return c->pitch * c->rows * c->slices;
}

static uint64_t word(const struct thread *t, size_t index)
{
    return (t->value + index) * 0x9e3779b97f4a7c15u;
}

static void fill_source(struct thread *t)
{
    uint64_t *words = (uint64_t *)(void *)t->host;
    t->value = ((uint64_t)t->number << 32 | (unsigned)t->round) << 24;
    for (size_t i = 0; i < extent(&t->copy) / sizeof *words; i++)
        words[i] = word(t, i);
    MUST(cudaSetDevice(t->from));
    MUST(cudaMemcpyAsync(t->src + t->copy.at, words, extent(&t->copy), cudaMemcpyHostToDevice, t->beside[t->from]));
    MUST(cudaStreamSynchronize(t->beside[t->from]));
}

/* On a stream that is ordered with nothing. */
static void check_destination(struct thread *t)
{
    const struct copy *c = &t->copy;
    size_t bytes = 0;
    memset(t->host, 0, extent(c));
    MUST(cudaSetDevice(t->to));
    MUST(cudaMemcpyAsync(t->host, t->dst + c->at, extent(c), cudaMemcpyDeviceToHost, t->beside[t->to]));
    MUST(cudaStreamSynchronize(t->beside[t->to]));
    for (size_t row = 0; row < c->rows * c->slices; row++)
        for (size_t at = row * c->pitch; at < row * c->pitch + c->width; at += sizeof(uint64_t)) {
            uint64_t expected = word(t, at / sizeof expected);
            for (size_t i = 0; memcmp(t->host + at, &expected, sizeof expected) && i < sizeof expected; i++)
                bytes += t->host[at + i] != ((const char *)&expected)[i];
        }
    if (bytes)
        tell("%zu bytes wrong", bytes);
}

/* ---- graphs ---- */

static void destroy_graphs(struct thread *t)
{
    for (int i = 0; i < ROLES * SLOTS; i++)
        destroy_graph(&t->graphs[i / SLOTS][i % SLOTS]);
}

static void launch_graph(struct thread *t, cudaStream_t stream)
{
    struct graph *g = t->graph;
    int count = draw(2) ? 1 : 2 + (int)draw(IN_GRAPH - 1);
    bool is_chain = draw(2);
    if (t->way == NEW_GRAPH || t->way == ENDED_GRAPH || !g->exec) {
        destroy_graph(g);
        make_graph(g, t->dst, t->src, &t->copy, count, is_chain);
    } else if (t->way == UPDATED_GRAPH) {
        update_graph(g, t->dst, t->src, &t->copy);
    }
    MUST(cudaGraphLaunch(g->exec, stream));
    if (t->way == ENDED_GRAPH)
        destroy_graph(g);
}

/* Graphs with memory of their own, of which some are launched: more than p2pshim tells apart. They stay. */
static void make_many(struct thread *t)
{
    char *src = memory_on(t->from), *dst = memory_on(t->to);
    struct copy small = {.pitch = 64, .width = 64, .rows = 1, .slices = 1};
    MUST(cudaSetDevice(t->from));
    for (int i = 0; i < MANY; i++) {
        struct graph g;
        make_graph(&g, dst, src, &small, 1, false);
        if (draw(8) == 0)
            MUST(cudaGraphLaunch(g.exec, t->beside[t->from]));
    }
    MUST(cudaStreamSynchronize(t->beside[t->from]));
}

/* ---- a worker's round ---- */

static void draw_round(struct thread *t)
{
    static const enum way of_ways[] = {DEFAULT, DEFAULT, DEVICE_TO_DEVICE, PEER, PEER, BY_ROWS, BY_BOX, PEER_BOX, GRAPH, NEW_GRAPH, UPDATED_GRAPH,
                                         ENDED_GRAPH};
    static const size_t sizes[] = {512, 4096, 4096, 65536, 65536, 262144, HALF};
    unsigned role = draw(10);
    t->role = role < 7 ? PUSH : role < 9 || of_workers < 3 ? PULL : THIRD;
    t->way = ONE_OF(of_ways);
    t->kind = (enum kind)draw(KINDS);
    t->fate = draw(3) ? KEPT : (enum fate)draw(FATES);
    if (t->kind == PER_THREAD)
        t->fate = KEPT;
    t->wait = draw(2) ? (enum wait)draw(LONGER) : (enum wait)draw(WAITS);
    if (t->wait >= LONGER && t->fate == ENDED)
        t->wait = FREE_OTHER;
    if (t->wait == RECORD_EVENT && (t->kind == PER_THREAD || !record_event))
        t->wait = SYNC_DEVICE;
    size_t bytes = ONE_OF(sizes);
    t->copy = (struct copy){.at = draw(2) * (size_t)HALF, .pitch = bytes, .width = bytes, .rows = 1, .slices = 1};
    if (t->way >= BY_ROWS && t->way <= PEER_BOX && bytes > 512) {
        t->copy.rows = 1 + draw(8);
        t->copy.slices = t->way == BY_ROWS ? 1 : 1 + draw(3);
        t->copy.pitch = bytes / t->copy.rows / t->copy.slices / 64 * 64;
        t->copy.width = t->copy.pitch - 64 * draw(2);
    }
    t->graph = &t->graphs[t->role][draw(SLOTS)];
    if (t->way == GRAPH && t->graph->exec)
        t->copy = t->graph->copy;
}

static void destroy_stream(cudaStream_t *stream)
{
    if (*stream)
        MUST(cudaStreamDestroy(*stream));
    *stream = NULL;
}

static cudaStream_t *stream_of(struct thread *t)
{
    cudaStream_t *stream = &t->streams[t->role][t->kind];
    MUST(cudaSetDevice(stream_device(t)));
    if (t->kind == PER_THREAD) {
        *stream = cudaStreamPerThread;
        return stream;
    }
    if (t->fate == ANEW)
        destroy_stream(stream);
    if (!*stream)
        MUST(cudaStreamCreateWithFlags(stream, t->kind == BLOCKING ? cudaStreamDefault : cudaStreamNonBlocking));
    return stream;
}

static void copy(struct thread *t, cudaStream_t stream)
{
    static const enum form forms_of_ways[] = {BY_cudaMemcpyAsync,   BY_cudaMemcpyAsync,   BY_cudaMemcpyPeerAsync,
                                              BY_cudaMemcpy2DAsync, BY_cudaMemcpy3DAsync, BY_cudaMemcpy3DPeerAsync};
    const struct copy *c = &t->copy;
    if (t->way >= GRAPH) {
        launch_graph(t, stream);
        return;
    }
    struct transfer transfer = {.form = forms_of_ways[t->way], .dst = (CUdeviceptr)(t->dst + c->at), .src = (CUdeviceptr)(t->src + c->at),
                                .dst_device = t->to, .src_device = t->from, .width = c->width, .pitch = c->pitch, .rows = c->rows,
                                .slices = c->slices, .kind = t->way == DEVICE_TO_DEVICE ? cudaMemcpyDeviceToDevice : cudaMemcpyDefault,
                                .stream = stream};
    must_runtime(forms[transfer.form].name, (cudaError_t)make(&transfer));
}

/* What the waiting call takes, of the device that is current. */
struct needed {
    void *memory, *host;
    cudaArray_t array;
    CUmipmappedArray mipmapped;
    CUmodule module;
    cudaEvent_t event;
};

static void prepare_wait(const struct thread *t, struct needed *n)
{
    struct cudaChannelFormatDesc format = {8, 0, 0, 0, cudaChannelFormatKindUnsigned};
    CUDA_ARRAY3D_DESCRIPTOR shape = {.Width = 256, .Height = 256, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    memset(n, 0, sizeof *n);
    MUST(cudaSetDevice(far_device(t)));
    if (t->wait == FREE_OTHER)
        MUST(cudaMalloc(&n->memory, BLOCK));
    if (t->wait == FREE_HOST)
        MUST(cudaMallocHost(&n->host, BLOCK));
    if (t->wait == UNREGISTER) {
        REQUIRE(posix_memalign(&n->host, 4096, BLOCK) == 0);
        MUST(cudaHostRegister(n->host, BLOCK, cudaHostRegisterDefault));
    }
    if (t->wait == UNLOAD_MODULE)
        MUST_CU(cuModuleLoadData(&n->module, code));
    if (t->wait == FREE_ARRAY)
        MUST(cudaMallocArray(&n->array, &format, 256, 256, 0));
    if (t->wait == FREE_MIPMAPPED)
        MUST_CU(cuMipmappedArrayCreate(&n->mipmapped, &shape, 2));
    if (t->wait == RECORD_EVENT)
        MUST(cudaEventCreateWithFlags(&n->event, cudaEventDisableTiming));
}

static void wait_for_copy(struct thread *t, struct needed *n)
{
    int far = far_device(t);
    /* The memory tells whose work is waited for, not what is current. */
    bool is_of_memory = t->wait == FREE_OTHER || t->wait == FREE_END || t->wait == FREE_HOST;
    MUST(cudaSetDevice(is_of_memory ? (int)draw((unsigned)of_workers) : far));
    switch (t->wait) {
    case SYNC_CONTEXT:
        MUST_CU(cuCtxSynchronize());
        break;
    case FREE_OTHER:
        MUST(cudaFree(n->memory));
        break;
    case FREE_END:
        MUST(cudaFree(t->role == PULL ? t->src : t->dst));
        break;
    case FREE_HOST:
        MUST(cudaFreeHost(n->host));
        break;
    case UNREGISTER:
        MUST(cudaHostUnregister(n->host));
        free(n->host);
        break;
    case LOAD_MODULE:
        MUST_CU(cuModuleLoadData(&n->module, code));
        break;
    case UNLOAD_MODULE:
        MUST_CU(cuModuleUnload(n->module));
        break;
    case FREE_ARRAY:
        MUST(cudaFreeArray(n->array));
        break;
    case FREE_MIPMAPPED:
        MUST_CU(cuMipmappedArrayDestroy(n->mipmapped));
        break;
    case RECORD_EVENT:
        MUST_CU(record_event(contexts[far], (CUevent)n->event));
        MUST(cudaEventSynchronize(n->event));
        break;
    default:
        MUST(cudaDeviceSynchronize());
    }
    t->waited[t->wait]++;
}

/* The copy itself, in the way that is documented: it must have succeeded. */
static void end_copy(struct thread *t, const cudaStream_t *stream)
{
    MUST(cudaSetDevice(stream_device(t)));
    if (*stream)
        MUST(cudaStreamSynchronize(*stream));
    else
        MUST(cudaDeviceSynchronize());
}

/* Memory that nobody has copied from or to since it was allocated, perhaps where other memory was. */
static void renew_memory(struct thread *t)
{
    destroy_graphs(t);
    MUST(cudaFree(t->src));
    MUST(cudaFree(t->dst));
    t->src = memory_on(t->from);
    t->dst = memory_on(t->to);
}

static void take_round(struct thread *t)
{
    struct needed needed;
    if (t->has_fresh || draw(8) == 0)
        renew_memory(t);
    draw_round(t);
    fill_source(t);
    prepare_wait(t, &needed);
    cudaStream_t *stream = stream_of(t);
    if (draw(8))
        MUST(cudaLaunchHostFunc(*stream, take_time, (void *)(uintptr_t)(50 + draw(350))));
    copy(t, *stream);
    if (t->fate == ENDED)
        destroy_stream(stream);
    wait_for_copy(t, &needed);
    if (t->wait == FREE_END) {
        char **end = t->role == PULL ? &t->src : &t->dst;
        *end = memory_on(far_device(t));
    }
    if (t->role == PULL) {
        MUST(cudaSetDevice(t->from));
        MUST(cudaMemsetAsync(t->src, POISON, ROOM, t->beside[t->from]));
        MUST(cudaStreamSynchronize(t->beside[t->from]));
        end_copy(t, stream);
        check_destination(t);
    } else {
        if (t->wait != FREE_END)
            check_destination(t);
        end_copy(t, stream);
    }
    if (t->wait == FREE_END)
        destroy_graphs(t);
    if (needed.event)
        MUST(cudaEventDestroy(needed.event));
    if (t->wait == LOAD_MODULE)
        MUST_CU(cuModuleUnload(needed.module));
}

static int rounds;

static void *work(void *thread)
{
    struct thread *t = self = thread;
    mine = &t->part;
    t->src = memory_on(t->from);
    t->dst = memory_on(t->to);
    MUST(cudaMallocHost((void **)&t->host, HALF));
    for (int device = 0; device < of_workers; device++) {
        MUST(cudaSetDevice(device));
        MUST(cudaStreamCreateWithFlags(&t->beside[device], cudaStreamNonBlocking));
    }
    if (t->has_many)
        make_many(t);
    pthread_barrier_wait(&begun);
    for (t->round = 0; t->round < rounds; t->round++)
        take_round(t);
    atomic_fetch_sub(&workers_left, 1);
    /* Driver 580 hangs now and then, plain too, if a thread that used its stream ends while a host function runs. */
    pthread_barrier_wait(&ended);
    return NULL;
}

#include "lib/random_changes.h"

/* ---- the program ---- */

/* Copies over each pair, in both directions, until they may be worth to be direct. */
static void warm_up(void)
{
    for (int pair = 0; pair < of_workers * of_workers; pair++) {
        int from = pair / of_workers, to = pair % of_workers;
        if (from == to)
            continue;
        char *dst = memory_on(to), *src = memory_on(from);
        for (int i = 0; i < WARM_UPS; i++)
            MUST(cudaMemcpyPeerAsync(dst, to, src, from, HALF, cudaStreamPerThread));
        MUST(cudaStreamSynchronize(cudaStreamPerThread));
        MUST(cudaFree(dst));
        MUST(cudaFree(src));
    }
}

int main(int argc, char **argv)
{
    static struct thread threads[WORKERS + BESIDE];
    static const unsigned pauses[] = {0, 0, 0, 20, 100, 1000};
    unsigned long long waited[WAITS] = {0};
    REQUIRE(argc >= 2);
    seed = strtoull(argv[1], NULL, 10);
    mine->state = seed << 20;
    rounds = argc > 2 ? atoi(argv[2]) : ROUNDS;
    count_devices(argc > 3 ? atoi(argv[3]) : DEVICES);
    REQUIRE(devices >= 2 && devices <= DEVICES && rounds > 0);
    find_function("cuCtxRecordEvent", &record_event);

    int workers = 2 + (int)draw(WORKERS - 1), beside = 1 + (int)draw(BESIDE);
    bool has_access = devices > 3 && draw(2), is_one_way = draw(2);
    of_workers = has_access ? 2 : devices < OF_WORKERS ? devices : OF_WORKERS;
    for (int device = 0; device < (has_access ? DEVICES : of_workers); device++)
        find_context(device);
    if (draw(4))
        warm_up();
    for (int i = 0; i < workers + beside; i++) {
        struct thread *t = &threads[i];
        *t = (struct thread){.number = i, .is_worker = i < workers, .part.state = mine->state ^ (uint64_t)(i + 1) << 48};
        t->from = is_one_way ? 0 : (int)draw_from(&t->part.state, (unsigned)of_workers);
        t->to = (t->from + 1 + (is_one_way ? 0 : (int)draw_from(&t->part.state, (unsigned)of_workers - 1))) % of_workers;
        t->has_many = i == 0 && draw(8) == 0;
        t->has_fresh = draw_from(&t->part.state, 3) == 0;
        t->pause = pauses[draw_from(&t->part.state, sizeof pauses / sizeof *pauses)];
        bool is_single = draw_from(&t->part.state, 2);
        for (int j = 0; j < 3; j++) {
            /* What outdates all that is remembered comes most often. */
            unsigned what = draw_from(&t->part.state, CHANGES + 6);
            t->all[j] = what < CHANGES ? (enum change)what : what < CHANGES + 3 ? POOL : ACCESS;
            if (t->all[j] == ACCESS && !has_access)
                t->all[j] = POOL;
            t->all[j] = t->all[is_single ? 0 : j];
        }
    }
    workers_left = workers;
    pthread_barrier_init(&begun, NULL, (unsigned)(workers + beside));
    pthread_barrier_init(&ended, NULL, (unsigned)workers);
    for (int i = 0; i < workers + beside; i++)
        REQUIRE(pthread_create(&threads[i].handle, NULL, threads[i].is_worker ? work : go_on_beside, &threads[i]) == 0);
    for (int i = 0; i < workers + beside; i++) {
        pthread_join(threads[i].handle, NULL);
        for (int wait = 0; wait < WAITS; wait++)
            waited[wait] += threads[i].waited[wait];
    }
    for (int wait = 0; wait < WAITS; wait++)
        if (waited[wait])
            printf("%s: %llu rounds\n", waits[wait], waited[wait]);
    printf("%d wrong of %d\n", wrong, workers * rounds);
    return wrong != 0;
}
