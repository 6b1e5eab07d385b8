/* build: runtime old driver; run: random_access FIRST COUNT [steps] on sim
 * Sequences of calls drawn from a seed: peer access enabled and disabled, copies of all forms and sizes, contexts,
 * memory, pools and mappings that come and go, with good and bad arguments. After each step the answer, the runtime's
 * last error and the bytes that the step may have written go into a checksum; one line a sequence shows it, and says
 * WRONG if the bytes are not those that the program expects. Two runs print the same.
 *
 * The sequences are FIRST to FIRST + COUNT - 1; with `steps` there is a line for each step, too.
 *
 * In one sequence of ten, four threads share the devices. Each enables from contexts of its own, so that no answer
 * depends on who comes first. No access that a thread has is closed while another one's copies are under way: they would
 * end with an error, and their context with them. What was never enabled is disabled at any time, and whoever enables does so
 * beside other threads' copies.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include "check.h"

enum {
    STEPS = 30,
    THREADS = 4,
    DEVICES = 4,
    PHASES = 3, /* with threads: a device may be reset after each */
    BUFFERS = 10,
    CREATED = 3,
    STREAMS = 3,
    POOLS = 2,
    SMALL = 4096,
    LARGE = (1 << 20) + 8192,
    GRANULE = 2 << 20,
    PATTERN = LARGE + (64 << 10),
    BLOCK = 250, /* seeds after which the choice of API starts anew */
};

/* In every driver; the headers of some releases hide them or rename them. */
CUresult cuMemcpyPeer_ptds(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t);
CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream);
CUresult cuMemcpy_ptds(CUdeviceptr, CUdeviceptr, size_t);
CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr, CUdeviceptr, size_t, CUstream);

enum kind { NONE, PLAIN, POOLED, MAPPED };

struct buffer {
    enum kind kind;
    int device, context; /* of plain memory: an index into created, or -1 for the primary one */
    CUdeviceptr at;
    size_t size;
    unsigned char *expected;
};

struct stream {
    CUstream handle;
    int device, context;
};

struct created {
    CUcontext handle;
    int device;
    bool alive;
};

struct pool {
    CUmemoryPool handle;
    int device;
};

/* What one thread has. */
struct world {
    int number;
    bool alone;
    int api;
    int favourites[2]; /* devices that half of all steps are about, so that steps meet */
    bool has_enabled;
    uint64_t state, sum;
    struct buffer buffers[BUFFERS];
    struct stream streams[STREAMS];
    struct created created[CREATED];
    struct pool pools[POOLS];
    CUdeviceptr reserved;
    int step;
    bool wrong;
    FILE *log;
    char *text;
    size_t length;
};

enum { DRIVER, RUNTIME, MIXED };

/* One box of a copy; a linear copy is a row. */
struct box {
    size_t width, pitch, height, depth;
};

static unsigned char *pattern, read_back[THREADS][LARGE];
static CUcontext primaries[DEVICES];
static int retained[DEVICES];
static pthread_mutex_t retaining = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t barrier;
static pthread_rwlock_t under_way = PTHREAD_RWLOCK_INITIALIZER; /* read by who copies, written by who closes */
static int reset_now; /* the device that was reset between two phases, or -1 */
static bool logging;

static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* 0 to below - 1. */
static unsigned draw(struct world *w, unsigned below)
{
    return (unsigned)(next(&w->state) % below);
}

static void fold(struct world *w, uint64_t value)
{
    w->sum = (w->sum ^ value) * 0x100000001b3u;
}

static void fold_bytes(struct world *w, const unsigned char *bytes, size_t count)
{
    uint64_t word;
    for (; count >= sizeof word; count -= sizeof word, bytes += sizeof word) {
        memcpy(&word, bytes, sizeof word);
        fold(w, word);
    }
    for (; count > 0; count--)
        fold(w, *bytes++);
}

__attribute__((format(printf, 2, 3))) static void note(struct world *w, const char *format, ...)
{
    va_list arguments;
    if (!w->log)
        return;
    va_start(arguments, format);
    vfprintf(w->log, format, arguments);
    va_end(arguments);
}

/* Takes an answer into the sum. */
static int answer(struct world *w, int code)
{
    fold(w, (uint64_t)code + 1);
    note(w, " = %d", code);
    return code;
}

/* Brings a primary context to life, if it is not. */
static CUcontext primary(int device)
{
    unsigned version;
    pthread_mutex_lock(&retaining);
    if (!primaries[device] || cuCtxGetApiVersion(primaries[device], &version) != CUDA_SUCCESS) {
        CHECK_CU(cuDevicePrimaryCtxRetain(&primaries[device], device));
        retained[device]++;
    }
    pthread_mutex_unlock(&retaining);
    return primaries[device];
}

static void enter(CUcontext context)
{
    CHECK_CU(cuCtxPushCurrent(context));
}

static void leave(void)
{
    CUcontext gone;
    CHECK_CU(cuCtxPopCurrent(&gone));
}

static void leave_all(void)
{
    CUcontext gone;
    while (cuCtxPopCurrent(&gone) == CUDA_SUCCESS)
        continue;
}

static CUcontext context_of(struct world *w, int device, int context)
{
    return context < 0 ? primary(device) : w->created[context].handle;
}

static bool by_runtime(struct world *w)
{
    return w->api == RUNTIME || (w->api == MIXED && draw(w, 2));
}

static int some_device(struct world *w)
{
    return draw(w, 2) ? (int)draw(w, DEVICES) : w->favourites[draw(w, 2)];
}

/* A device; now and then an ordinal that is none. */
static int some_ordinal(struct world *w)
{
    static const int bad[] = {-1, DEVICES, 99};
    return draw(w, 12) ? some_device(w) : bad[draw(w, 3)];
}

static struct buffer *some_buffer(struct world *w)
{
    unsigned first = draw(w, BUFFERS);
    for (unsigned i = 0; i < BUFFERS; i++) {
        struct buffer *buffer = &w->buffers[(first + i) % BUFFERS];
        if (buffer->kind != NONE)
            return buffer;
    }
    return NULL;
}

static void drop(struct buffer *buffer)
{
    free(buffer->expected);
    memset(buffer, 0, sizeof *buffer);
}

/* Forgets what has gone with a context: context < 0 for the primary one, with which the device's pools go. */
static void forget(struct world *w, int device, int context)
{
    for (int i = 0; i < BUFFERS; i++) {
        struct buffer *buffer = &w->buffers[i];
        bool gone = buffer->kind == PLAIN ? buffer->device == device && buffer->context == context
                                          : buffer->kind == POOLED && buffer->device == device && context < 0;
        if (gone)
            drop(buffer);
    }
    for (int i = 0; i < STREAMS; i++)
        if (w->streams[i].handle && w->streams[i].device == device && w->streams[i].context == context)
            memset(&w->streams[i], 0, sizeof w->streams[i]);
    for (int i = 0; i < POOLS && context < 0; i++)
        if (w->pools[i].handle && w->pools[i].device == device)
            memset(&w->pools[i], 0, sizeof w->pools[i]);
}

/* What a buffer holds from an offset on, against what it should. */
static void inspect(struct world *w, struct buffer *buffer, size_t offset, size_t count)
{
    unsigned char *got = read_back[w->number];
    enter(primary(buffer->device));
    CHECK_CU(cuMemcpyDtoH(got, buffer->at + offset, count));
    leave();
    fold_bytes(w, got, count);
    if (memcmp(got, buffer->expected + offset, count) == 0)
        return;
    note(w, " WRONG");
    w->wrong = true;
    memcpy(buffer->expected + offset, got, count);
}

static void fill_buffer(struct world *w, struct buffer *buffer)
{
    REQUIRE(buffer->at);
    buffer->expected = malloc(buffer->size);
    REQUIRE(buffer->expected);
    memcpy(buffer->expected, pattern + draw(w, PATTERN - LARGE), buffer->size);
    enter(primary(buffer->device));
    CHECK_CU(cuMemcpyHtoD(buffer->at, buffer->expected, buffer->size));
    leave();
}

static void begin_closing(struct world *w)
{
    if (!w->alone)
        REQUIRE(pthread_rwlock_wrlock(&under_way) == 0);
}

static void begin_copying(struct world *w)
{
    if (!w->alone)
        REQUIRE(pthread_rwlock_rdlock(&under_way) == 0);
}

static void end_either(struct world *w)
{
    if (!w->alone)
        REQUIRE(pthread_rwlock_unlock(&under_way) == 0);
}

/* ---- peer access ---- */

/* Makes a context current from which this thread may enable. */
static void stand_somewhere(struct world *w, bool runtime)
{
    int device = w->alone ? some_device(w) : w->number;
    unsigned where = draw(w, 8);
    struct created *created = &w->created[draw(w, CREATED)];
    if (runtime) {
        note(w, "on %d: ", device);
        fold(w, (uint64_t)cudaSetDevice(device));
    } else if (where == 0 && w->alone) {
        note(w, "where we are: ");
    } else if (where == 1) {
        note(w, "nowhere: ");
        leave_all();
    } else if (where <= 4 && created->alive) {
        note(w, "on created %d: ", (int)(created - w->created));
        CHECK_CU(cuCtxSetCurrent(created->handle));
    } else {
        note(w, "on primary %d: ", device);
        CHECK_CU(cuCtxSetCurrent(primary(device)));
    }
}

/* A context to be a peer, dead ones among them where that is sure to stay so. */
static CUcontext some_peer(struct world *w)
{
    unsigned which = draw(w, 10);
    int device = some_device(w);
    struct created *created = &w->created[draw(w, CREATED)];
    if (which == 0) {
        note(w, "null");
        return NULL;
    }
    if (which <= 3 && created->handle && (w->alone || created->alive)) {
        note(w, "created %d", (int)(created - w->created));
        return created->handle;
    }
    note(w, "primary %d", device);
    return w->alone && primaries[device] ? primaries[device] : primary(device);
}

static void enable(struct world *w)
{
    bool runtime = by_runtime(w);
    stand_somewhere(w, runtime);
    unsigned flags = draw(w, 12) == 0;
    note(w, "enable flags %u ", flags);
    if (runtime) {
        int peer = some_ordinal(w);
        note(w, "%d", peer);
        w->has_enabled |= answer(w, cudaDeviceEnablePeerAccess(peer, flags)) == 0;
    } else {
        w->has_enabled |= answer(w, cuCtxEnablePeerAccess(some_peer(w), flags)) == 0;
    }
}

static void disable(struct world *w)
{
    bool runtime = by_runtime(w), closes = w->has_enabled;
    if (closes)
        begin_closing(w);
    stand_somewhere(w, runtime);
    note(w, "disable ");
    if (runtime) {
        int peer = some_ordinal(w);
        note(w, "%d", peer);
        answer(w, cudaDeviceDisablePeerAccess(peer));
    } else {
        answer(w, cuCtxDisablePeerAccess(some_peer(w)));
    }
    if (closes)
        end_either(w);
}

static void query(struct world *w)
{
    bool runtime = by_runtime(w), nowhere = draw(w, 16) == 0;
    int value = -7, from = some_ordinal(w), to = some_ordinal(w), attribute = (int)draw(w, 7);
    int *out = nowhere ? NULL : &value;
    if (draw(w, 2)) {
        note(w, "can %d access %d", from, to);
        answer(w, runtime ? (int)cudaDeviceCanAccessPeer(out, from, to) : (int)cuDeviceCanAccessPeer(out, from, to));
    } else {
        note(w, "attribute %d of %d>%d", attribute, from, to);
        answer(w, runtime ? (int)cudaDeviceGetP2PAttribute(out, (enum cudaDeviceP2PAttr)attribute, from, to)
                          : (int)cuDeviceGetP2PAttribute(out, (CUdevice_P2PAttribute)attribute, from, to));
    }
    fold(w, (uint64_t)value);
    note(w, " -> %d", value);
}

/* ---- contexts ---- */

/* With several threads only between two phases. */
static void reset(struct world *w, int device, bool runtime)
{
    note(w, "reset %d", device);
    if (runtime) {
        fold(w, (uint64_t)cudaSetDevice(device));
        answer(w, cudaDeviceReset());
    } else {
        answer(w, cuDevicePrimaryCtxReset(device));
    }
    forget(w, device, -1);
}

/* Without the runtime, which has references of its own, the last reference ends the context. */
static void release(struct world *w)
{
    int device = some_device(w), active = -7;
    unsigned flags;
    if (w->api != DRIVER) {
        reset(w, device, by_runtime(w));
        return;
    }
    note(w, "release %d, %d times", device, retained[device]);
    for (; retained[device] > 0; retained[device]--)
        answer(w, cuDevicePrimaryCtxRelease(device));
    CHECK_CU(cuDevicePrimaryCtxGetState(device, &flags, &active));
    fold(w, (uint64_t)active);
    note(w, " -> %s", active ? "active" : "gone");
    if (!active)
        forget(w, device, -1);
}

static void create(struct world *w)
{
    int which = (int)draw(w, CREATED);
    struct created *created = &w->created[which];
    if (created->alive) {
        note(w, "destroy created %d", which);
        /* A handle is used again, by another thread perhaps: nobody else's may be left on this thread's stack. */
        if (!w->alone)
            leave_all();
        answer(w, cuCtxDestroy(created->handle));
        created->alive = false;
        forget(w, created->device, which);
        return;
    }
    created->device = some_device(w);
    note(w, "create %d on %d", which, created->device);
    created->alive = answer(w, cuCtxCreate_v2(&created->handle, 0, created->device)) == 0;
}

static void change_current(struct world *w)
{
    CUcontext context = NULL;
    struct created *created = &w->created[draw(w, CREATED)];
    bool stale_too = w->alone;
    if (created->handle && (created->alive || stale_too))
        context = created->handle;
    else
        context = primary(some_device(w));
    switch (draw(w, 4)) {
    case 0:
        note(w, "push");
        answer(w, cuCtxPushCurrent(context));
        break;
    case 1:
        note(w, "pop");
        answer(w, cuCtxPopCurrent(&context));
        break;
    case 2:
        note(w, "set");
        answer(w, cuCtxSetCurrent(context));
        break;
    default:
        if (by_runtime(w)) {
            int device = some_ordinal(w);
            note(w, "set device %d", device);
            answer(w, cudaSetDevice(device));
        } else {
            note(w, "destroy no created one");
            answer(w, cuCtxDestroy(draw(w, 2) ? primary(0) : NULL));
        }
    }
}

/* ---- memory ---- */

static bool has_large(struct world *w)
{
    int count = 0;
    for (int i = 0; i < BUFFERS; i++)
        count += w->buffers[i].size >= LARGE;
    return count >= 3;
}

static void allocate(struct world *w, struct buffer *buffer)
{
    bool runtime = by_runtime(w);
    int which = (int)draw(w, CREATED);
    buffer->device = some_device(w);
    buffer->context = -1;
    buffer->size = draw(w, 3) || has_large(w) ? SMALL : LARGE;
    buffer->kind = PLAIN;
    if (!runtime && w->created[which].alive && draw(w, 2)) {
        buffer->context = which;
        buffer->device = w->created[which].device;
    }
    note(w, "allocate %zu on %d, context %d", buffer->size, buffer->device, buffer->context);
    if (runtime) {
        void *at = NULL;
        fold(w, (uint64_t)cudaSetDevice(buffer->device));
        answer(w, cudaMalloc(&at, buffer->size));
        buffer->at = (CUdeviceptr)at;
    } else {
        enter(context_of(w, buffer->device, buffer->context));
        answer(w, cuMemAlloc(&buffer->at, buffer->size));
        leave();
    }
    fill_buffer(w, buffer);
}

static void allocate_from_pool(struct world *w, struct buffer *buffer)
{
    struct pool *pool = &w->pools[draw(w, POOLS)];
    buffer->size = draw(w, 3) || has_large(w) ? SMALL : LARGE;
    buffer->kind = POOLED;
    buffer->context = -1;
    if (pool->handle && draw(w, 2)) {
        buffer->device = pool->device;
        note(w, "allocate %zu from a pool of %d", buffer->size, buffer->device);
        enter(primary(buffer->device));
        answer(w, cuMemAllocFromPoolAsync(&buffer->at, buffer->size, pool->handle, NULL));
        leave();
    } else if (by_runtime(w)) {
        void *at = NULL;
        buffer->device = some_device(w);
        note(w, "allocate %zu on a stream of %d", buffer->size, buffer->device);
        fold(w, (uint64_t)cudaSetDevice(buffer->device));
        answer(w, cudaMallocAsync(&at, buffer->size, NULL));
        buffer->at = (CUdeviceptr)at;
    } else {
        buffer->device = some_device(w);
        note(w, "allocate %zu on a stream of %d by the driver", buffer->size, buffer->device);
        enter(primary(buffer->device));
        answer(w, cuMemAllocAsync(&buffer->at, buffer->size, NULL));
        leave();
    }
    fill_buffer(w, buffer);
}

static CUmemAccessDesc access_of(int device, CUmemAccess_flags flags)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}, .flags = flags};
    access.location.id = device;
    return access;
}

/* Always at the same address, for whatever device. */
static void map(struct world *w, struct buffer *buffer)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle physical;
    for (int i = 0; i < BUFFERS; i++)
        if (w->buffers[i].kind == MAPPED)
            return;
    if (!w->reserved)
        CHECK_CU(cuMemAddressReserve(&w->reserved, GRANULE, 0, 0, 0));
    buffer->device = properties.location.id = some_device(w);
    buffer->size = draw(w, 3) ? SMALL : LARGE;
    buffer->kind = MAPPED;
    buffer->context = -1;
    buffer->at = w->reserved;
    note(w, "map memory of %d", buffer->device);
    CUmemAccessDesc access = access_of(buffer->device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    answer(w, cuMemCreate(&physical, GRANULE, &properties, 0));
    answer(w, cuMemMap(w->reserved, GRANULE, 0, physical, 0));
    answer(w, cuMemSetAccess(w->reserved, GRANULE, &access, 1));
    CHECK_CU(cuMemRelease(physical));
    fill_buffer(w, buffer);
}

/* The address of freed memory is worth nothing, until it is used again. */
static void copy_stale(struct world *w, CUdeviceptr stale)
{
    struct buffer *other = some_buffer(w);
    if (!other || !w->alone)
        return;
    note(w, ", from there");
    enter(primary(other->device));
    answer(w, cuMemcpyPeer(other->at, NULL, stale, NULL, 4));
    leave();
    inspect(w, other, 0, 4);
}

static void release_memory(struct world *w, struct buffer *buffer)
{
    CUdeviceptr at = buffer->at;
    bool runtime = by_runtime(w), on_stream = buffer->kind == POOLED && draw(w, 2);
    note(w, "free memory of %d, kind %d", buffer->device, buffer->kind);
    if (buffer->kind == MAPPED) {
        answer(w, cuMemUnmap(at, GRANULE));
    } else if (runtime) {
        fold(w, (uint64_t)cudaSetDevice(buffer->device));
        answer(w, on_stream ? cudaFreeAsync((void *)at, NULL) : cudaFree((void *)at));
    } else {
        enter(primary(buffer->device));
        answer(w, on_stream ? cuMemFreeAsync(at, NULL) : cuMemFree(at));
        leave();
    }
    drop(buffer);
    if (draw(w, 2))
        copy_stale(w, at);
}

static void change_memory(struct world *w)
{
    struct buffer *buffer = &w->buffers[draw(w, BUFFERS)];
    if (buffer->kind != NONE) {
        release_memory(w, buffer);
        return;
    }
    switch (draw(w, 5)) {
    case 0:
    case 1:
        allocate(w, buffer);
        break;
    case 2:
    case 3:
        allocate_from_pool(w, buffer);
        break;
    default:
        map(w, buffer);
    }
}

static void change_pool(struct world *w)
{
    struct pool *pool = &w->pools[draw(w, POOLS)];
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    if (!pool->handle) {
        pool->device = properties.location.id = some_device(w);
        note(w, "create a pool of %d", pool->device);
        if (answer(w, cuMemPoolCreate(&pool->handle, &properties)))
            pool->handle = NULL;
    } else if (draw(w, 3) == 0) {
        note(w, "destroy a pool of %d", pool->device);
        answer(w, cuMemPoolDestroy(pool->handle));
        pool->handle = NULL;
    } else if (w->alone && draw(w, 3) == 0) {
        int device = some_ordinal(w);
        note(w, "make a pool of %d that of %d", pool->device, device);
        answer(w, cuDeviceSetMemPool(device, pool->handle));
    }
}

/* The driver's and the runtime's descriptors are the same bytes. */
static void change_access(struct world *w)
{
    static const int rights[] = {CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                                 CU_MEM_ACCESS_FLAGS_PROT_NONE, 2};
    struct pool *pool = &w->pools[draw(w, POOLS)];
    struct buffer *buffer = some_buffer(w);
    CUmemAccessDesc access = access_of(some_ordinal(w), (CUmemAccess_flags)rights[draw(w, 4)]);
    CUmemoryPool handle = pool->handle;
    int device = some_device(w);
    if (buffer && buffer->kind == MAPPED && access.location.id != buffer->device) {
        note(w, "mapped memory of %d: rights %d for %d", buffer->device, (int)access.flags, access.location.id);
        answer(w, cuMemSetAccess(buffer->at, GRANULE, &access, 1));
        return;
    }
    if (!handle)
        CHECK_CU(cuDeviceGetDefaultMemPool(&handle, device));
    note(w, "pool of %d: rights %d for %d", pool->handle ? pool->device : device, (int)access.flags,
         access.location.id);
    begin_closing(w);
    if (by_runtime(w))
        answer(w, cudaMemPoolSetAccess((cudaMemPool_t)handle, (struct cudaMemAccessDesc *)&access, 1));
    else
        answer(w, cuMemPoolSetAccess(handle, &access, 1));
    end_either(w);
}

static void change_stream(struct world *w)
{
    struct stream *stream = &w->streams[draw(w, STREAMS)];
    int which = (int)draw(w, CREATED);
    if (stream->handle) {
        note(w, "destroy a stream");
        answer(w, cuStreamDestroy(stream->handle));
        memset(stream, 0, sizeof *stream);
        return;
    }
    stream->context = w->created[which].alive && draw(w, 2) ? which : -1;
    stream->device = stream->context < 0 ? some_device(w) : w->created[which].device;
    note(w, "create a stream on %d, context %d", stream->device, stream->context);
    enter(context_of(w, stream->device, stream->context));
    answer(w, cuStreamCreate(&stream->handle, draw(w, 2) ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    leave();
}

/* ---- copies ---- */

/* The forms of a copy: first the runtime's, then the driver's. Plain ones name no devices. */
enum form {
    RUNTIME_PEER,
    RUNTIME_PEER_ASYNC,
    RUNTIME_3D,
    RUNTIME_3D_ASYNC,
    RUNTIME_PLAIN,
    RUNTIME_PLAIN_ASYNC,
    RUNTIME_PLAIN_2D,
    RUNTIME_PLAIN_2D_ASYNC,
    RUNTIME_PLAIN_3D,
    RUNTIME_PLAIN_3D_ASYNC,
    DRIVER_PEER,
    DRIVER_PEER_PER_THREAD,
    DRIVER_PEER_ASYNC,
    DRIVER_PEER_ASYNC_PER_THREAD,
    DRIVER_3D,
    DRIVER_3D_ASYNC,
    DRIVER_PLAIN,
    DRIVER_PLAIN_ANY,
    DRIVER_PLAIN_ANY_PER_THREAD,
    DRIVER_PLAIN_ASYNC,
    DRIVER_PLAIN_ANY_ASYNC,
    DRIVER_PLAIN_ASYNC_PER_THREAD,
    DRIVER_PLAIN_2D,
    DRIVER_PLAIN_2D_UNALIGNED,
    DRIVER_PLAIN_2D_ASYNC,
    DRIVER_PLAIN_3D,
    DRIVER_PLAIN_3D_ASYNC,
    FORMS,
};

static bool is_of_runtime(enum form form)
{
    return form < DRIVER_PEER;
}

static bool is_async(enum form form)
{
    switch (form) {
    case RUNTIME_PEER_ASYNC:
    case RUNTIME_3D_ASYNC:
    case RUNTIME_PLAIN_ASYNC:
    case RUNTIME_PLAIN_2D_ASYNC:
    case RUNTIME_PLAIN_3D_ASYNC:
    case DRIVER_PEER_ASYNC:
    case DRIVER_PEER_ASYNC_PER_THREAD:
    case DRIVER_3D_ASYNC:
    case DRIVER_PLAIN_ASYNC:
    case DRIVER_PLAIN_ANY_ASYNC:
    case DRIVER_PLAIN_ASYNC_PER_THREAD:
    case DRIVER_PLAIN_2D_ASYNC:
    case DRIVER_PLAIN_3D_ASYNC:
        return true;
    default:
        return false;
    }
}

static bool is_2d(enum form form)
{
    return form == RUNTIME_PLAIN_2D || form == RUNTIME_PLAIN_2D_ASYNC || form == DRIVER_PLAIN_2D ||
           form == DRIVER_PLAIN_2D_UNALIGNED || form == DRIVER_PLAIN_2D_ASYNC;
}

static bool is_3d(enum form form)
{
    return form == RUNTIME_3D || form == RUNTIME_3D_ASYNC || form == RUNTIME_PLAIN_3D ||
           form == RUNTIME_PLAIN_3D_ASYNC || form == DRIVER_3D || form == DRIVER_3D_ASYNC || form == DRIVER_PLAIN_3D ||
           form == DRIVER_PLAIN_3D_ASYNC;
}

struct copy {
    enum form form;
    CUdeviceptr dst, src;
    int dst_device, src_device; /* ordinals, which decide nothing */
    CUcontext dst_context, src_context;
    struct box box;
    CUstream stream;
};

static int copy_3d(const struct copy *c)
{
    const struct box *box = &c->box;
    if (c->form == RUNTIME_3D || c->form == RUNTIME_3D_ASYNC) {
        struct cudaMemcpy3DPeerParms p = {.srcDevice = c->src_device, .dstDevice = c->dst_device};
        p.srcPtr.ptr = (void *)c->src;
        p.dstPtr.ptr = (void *)c->dst;
        p.srcPtr.pitch = p.dstPtr.pitch = box->pitch;
        p.srcPtr.xsize = p.dstPtr.xsize = p.extent.width = box->width;
        p.srcPtr.ysize = p.dstPtr.ysize = p.extent.height = box->height;
        p.extent.depth = box->depth;
        return c->form == RUNTIME_3D ? cudaMemcpy3DPeer(&p) : cudaMemcpy3DPeerAsync(&p, c->stream);
    }
    CUDA_MEMCPY3D_PEER p = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .dstMemoryType = CU_MEMORYTYPE_DEVICE};
    p.srcDevice = c->src;
    p.dstDevice = c->dst;
    p.srcContext = c->src_context;
    p.dstContext = c->dst_context;
    p.srcPitch = p.dstPitch = box->pitch;
    p.srcHeight = p.dstHeight = p.Height = box->height;
    p.WidthInBytes = box->width;
    p.Depth = box->depth;
    return c->form == DRIVER_3D ? (int)cuMemcpy3DPeer(&p) : (int)cuMemcpy3DPeerAsync(&p, c->stream);
}

static int copy_plain_3d(const struct copy *c)
{
    const struct box *box = &c->box;
    if (is_of_runtime(c->form)) {
        struct cudaMemcpy3DParms p = {.kind = cudaMemcpyDefault};
        p.srcPtr.ptr = (void *)c->src;
        p.dstPtr.ptr = (void *)c->dst;
        p.srcPtr.pitch = p.dstPtr.pitch = box->pitch;
        p.srcPtr.xsize = p.dstPtr.xsize = p.extent.width = box->width;
        p.srcPtr.ysize = p.dstPtr.ysize = p.extent.height = box->height;
        p.extent.depth = box->depth;
        return c->form == RUNTIME_PLAIN_3D ? cudaMemcpy3D(&p) : cudaMemcpy3DAsync(&p, c->stream);
    }
    CUDA_MEMCPY3D p = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .dstMemoryType = CU_MEMORYTYPE_UNIFIED};
    p.srcDevice = c->src;
    p.dstDevice = c->dst;
    p.srcPitch = p.dstPitch = box->pitch;
    p.srcHeight = p.dstHeight = p.Height = box->height;
    p.WidthInBytes = box->width;
    p.Depth = box->depth;
    return c->form == DRIVER_PLAIN_3D ? (int)cuMemcpy3D(&p) : (int)cuMemcpy3DAsync(&p, c->stream);
}

static int copy_plain_2d(const struct copy *c)
{
    const struct box *box = &c->box;
    void *dst = (void *)c->dst, *src = (void *)c->src;
    CUDA_MEMCPY2D p = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED, .dstMemoryType = CU_MEMORYTYPE_DEVICE};
    p.srcDevice = c->src;
    p.dstDevice = c->dst;
    p.srcPitch = p.dstPitch = box->pitch;
    p.WidthInBytes = box->width;
    p.Height = box->height;
    switch (c->form) {
    case RUNTIME_PLAIN_2D:
        return cudaMemcpy2D(dst, box->pitch, src, box->pitch, box->width, box->height, cudaMemcpyDeviceToDevice);
    case RUNTIME_PLAIN_2D_ASYNC:
        return cudaMemcpy2DAsync(dst, box->pitch, src, box->pitch, box->width, box->height, cudaMemcpyDefault,
                                 c->stream);
    case DRIVER_PLAIN_2D:
        return cuMemcpy2D(&p);
    case DRIVER_PLAIN_2D_UNALIGNED:
        return cuMemcpy2DUnaligned(&p);
    default:
        return cuMemcpy2DAsync(&p, c->stream);
    }
}

static int perform(const struct copy *c)
{
    void *dst = (void *)c->dst, *src = (void *)c->src;
    size_t count = c->box.width;
    switch (c->form) {
    case RUNTIME_PEER:
        return cudaMemcpyPeer(dst, c->dst_device, src, c->src_device, count);
    case RUNTIME_PEER_ASYNC:
        return cudaMemcpyPeerAsync(dst, c->dst_device, src, c->src_device, count, c->stream);
    case RUNTIME_PLAIN:
        return cudaMemcpy(dst, src, count, cudaMemcpyDefault);
    case RUNTIME_PLAIN_ASYNC:
        return cudaMemcpyAsync(dst, src, count, cudaMemcpyDeviceToDevice, c->stream);
    case DRIVER_PEER:
        return cuMemcpyPeer(c->dst, c->dst_context, c->src, c->src_context, count);
    case DRIVER_PEER_PER_THREAD:
        return cuMemcpyPeer_ptds(c->dst, c->dst_context, c->src, c->src_context, count);
    case DRIVER_PEER_ASYNC:
        return cuMemcpyPeerAsync(c->dst, c->dst_context, c->src, c->src_context, count, c->stream);
    case DRIVER_PEER_ASYNC_PER_THREAD:
        return cuMemcpyPeerAsync_ptsz(c->dst, c->dst_context, c->src, c->src_context, count, c->stream);
    case DRIVER_PLAIN:
        return cuMemcpyDtoD(c->dst, c->src, count);
    case DRIVER_PLAIN_ANY:
        return cuMemcpy(c->dst, c->src, count);
    case DRIVER_PLAIN_ANY_PER_THREAD:
        return cuMemcpy_ptds(c->dst, c->src, count);
    case DRIVER_PLAIN_ASYNC:
        return cuMemcpyDtoDAsync(c->dst, c->src, count, c->stream);
    case DRIVER_PLAIN_ANY_ASYNC:
        return cuMemcpyAsync(c->dst, c->src, count, c->stream);
    case DRIVER_PLAIN_ASYNC_PER_THREAD:
        return cuMemcpyDtoDAsync_v2_ptsz(c->dst, c->src, count, c->stream);
    case RUNTIME_PLAIN_3D:
    case RUNTIME_PLAIN_3D_ASYNC:
    case DRIVER_PLAIN_3D:
    case DRIVER_PLAIN_3D_ASYNC:
        return copy_plain_3d(c);
    default:
        return is_2d(c->form) ? copy_plain_2d(c) : copy_3d(c);
    }
}

/* Bytes from the first to the last of a box. */
static size_t span(const struct box *box)
{
    return box->pitch * box->height * (box->depth - 1) + box->pitch * (box->height - 1) + box->width;
}

static void expect(unsigned char *dst, const unsigned char *src, const struct box *box)
{
    for (size_t row = 0; row < box->height * box->depth; row++)
        memmove(dst + row * box->pitch, src + row * box->pitch, box->width);
}

static void draw_box(struct world *w, struct copy *c, bool large)
{
    if (is_2d(c->form)) {
        c->box = large ? (struct box){4080, 4096, 256, 1} : (struct box){60, 64, 5, 1};
    } else if (!is_3d(c->form)) {
        size_t width = large ? LARGE - 4096 : (draw(w, 2) ? 4 : 1 + draw(w, 1024));
        c->box = (struct box){width, width, 1, 1};
    } else if (large) {
        c->box = (struct box){4080, 4096, 32, 8};
    } else {
        c->box = (struct box){60, 64, 5, 3};
    }
}

/* Arguments that are wrong now and then. */
static void spoil(struct world *w, struct copy *c)
{
    switch (draw(w, 30)) {
    case 0:
        c->dst = 0;
        break;
    case 1:
        c->src = 0;
        break;
    case 2:
        c->dst_device = 99;
        break;
    case 3:
        c->src_device = -1;
        break;
    case 4:
        c->box.width = is_2d(c->form) || is_3d(c->form) ? 0 : (size_t)1 << 40;
        break;
    case 5:
        c->dst_context = w->alone && w->created[0].handle ? w->created[0].handle : NULL;
        break;
    default:
        break;
    }
}

/* Waits for everything that a copy may have been put in order with. */
static void settle(struct world *w)
{
    for (int device = 0; device < DEVICES; device++) {
        unsigned flags;
        int active = 0;
        CHECK_CU(cuDevicePrimaryCtxGetState(device, &flags, &active));
        if (!active)
            continue;
        enter(primary(device));
        CHECK_CU(cuCtxSynchronize());
        leave();
    }
    for (int i = 0; i < CREATED; i++) {
        if (!w->created[i].alive)
            continue;
        enter(w->created[i].handle);
        CHECK_CU(cuCtxSynchronize());
        leave();
    }
}

/* The context in which a copy is made: any that is at hand for the driver, a device for the runtime. */
static void stand(struct world *w, struct copy *c)
{
    struct created *created = &w->created[draw(w, CREATED)];
    int device = some_device(w);
    if (is_of_runtime(c->form)) {
        if (draw(w, 2))
            fold(w, (uint64_t)cudaSetDevice(device));
    } else if (draw(w, 4)) {
        CHECK_CU(cuCtxSetCurrent(created->alive && draw(w, 2) ? created->handle : primary(device)));
    }
}

static CUstream some_stream(struct world *w)
{
    struct stream *stream = &w->streams[draw(w, STREAMS)];
    static const CUstream defaults[] = {NULL, (CUstream)1, (CUstream)2};
    return stream->handle && draw(w, 3) ? stream->handle : defaults[draw(w, 3)];
}

/* Whether a regular copy is not refused: memory with rights of its own is copied by its device, or one that has been given some. Those
 * that only p2pshim gave make a difference, so none is left to that. */
static bool may_be_regular(const struct buffer *src, const struct buffer *dst)
{
    CUdevice device = -1;
    if (cuCtxGetDevice(&device) != CUDA_SUCCESS)
        device = -1;
    return (src->kind == PLAIN || src->device == device) && (dst->kind == PLAIN || dst->device == device);
}

/* The peer copy that does what a regular one does. */
static enum form peer_form(enum form form)
{
    bool has_rows = is_2d(form) || is_3d(form);
    if (is_of_runtime(form))
        return is_async(form) ? (has_rows ? RUNTIME_3D_ASYNC : RUNTIME_PEER_ASYNC) : (has_rows ? RUNTIME_3D : RUNTIME_PEER);
    return is_async(form) ? (has_rows ? DRIVER_3D_ASYNC : DRIVER_PEER_ASYNC) : (has_rows ? DRIVER_3D : DRIVER_PEER);
}

static enum form some_form(struct world *w, bool only_async)
{
    for (;;) {
        enum form form = (enum form)draw(w, FORMS);
        bool allowed = w->api == MIXED || (w->api == RUNTIME) == is_of_runtime(form);
        if (allowed && (!only_async || is_async(form)))
            return form;
    }
}

/* Once, some times, or so often that small copies add up to something. */
static unsigned repeats(struct world *w, bool large)
{
    static const unsigned times[] = {1, 1, 2, 3, 17, 20};
    return large ? 1 : times[draw(w, 6)];
}

static void copy(struct world *w)
{
    struct buffer *src = some_buffer(w), *dst = some_buffer(w);
    for (int i = 0; i < 4 && src && (src == dst || src->device == dst->device); i++)
        dst = some_buffer(w);
    if (!src || src == dst)
        return;
    bool large = src->size >= LARGE && dst->size >= LARGE && draw(w, 4);
    /* A synchronous copy of memory that is of no context is put in order with a context that may be another thread's. */
    bool only_async = !w->alone && (src->kind != PLAIN || dst->kind != PLAIN);
    struct copy c = {.form = some_form(w, only_async), .dst = dst->at, .src = src->at};
    c.dst_device = draw(w, 4) ? dst->device : some_device(w);
    c.src_device = draw(w, 4) ? src->device : some_device(w);
    c.dst_context = draw(w, 2) ? NULL : context_of(w, dst->device, dst->context);
    c.src_context = draw(w, 2) ? NULL : context_of(w, src->device, src->context);
    draw_box(w, &c, large);
    c.stream = some_stream(w);
    stand(w, &c);
    if (!may_be_regular(src, dst))
        c.form = peer_form(c.form);
    struct box asked = c.box;
    unsigned times = repeats(w, large);
    spoil(w, &c);
    size_t step = is_2d(c.form) || is_3d(c.form) || asked.width > 64 ? 0 : 4, most = span(&asked) + step * (times - 1);
    note(w, "copy form %d, %d>%d, kinds %d>%d, %zu bytes, %u times", (int)c.form, src->device, dst->device,
         (int)src->kind, (int)dst->kind, asked.width * asked.height * asked.depth, times);
    begin_copying(w);
    for (unsigned i = 0; i < times; i++) {
        int code = perform(&c);
        fold(w, (uint64_t)code);
        if (i == 0 || code)
            note(w, " = %d", code);
        if (code == 0 && c.box.width == asked.width && c.dst && c.src)
            expect(dst->expected + i * step, src->expected + i * step, &asked);
        if (c.dst)
            c.dst += step;
        if (c.src)
            c.src += step;
    }
    settle(w);
    end_either(w);
    inspect(w, dst, 0, most);
}

/* ---- captures ---- */

/* While a stream is being captured: what breaks a capture breaks it, what does not does not. */
static void capture(struct world *w)
{
    struct buffer *src = some_buffer(w), *dst = some_buffer(w);
    CUstreamCaptureMode mode = (CUstreamCaptureMode)draw(w, 3);
    unsigned what = draw(w, 4), times = draw(w, 2) ? 1 : 18;
    int device = some_device(w), peer = some_device(w), can = -7;
    CUstream stream, other;
    CUgraph graph = NULL;
    CUgraphExec executable;
    if (!w->alone || !src || src == dst)
        return;
    CUcontext to = primary(peer);
    enter(primary(device));
    CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    note(w, "capture on %d, mode %d", device, (int)mode);
    answer(w, cuStreamBeginCapture(stream, mode));
    bool inside = false;
    switch (what) {
    case 0:
        note(w, ", enable %d", peer);
        answer(w, cuCtxEnablePeerAccess(to, 0));
        break;
    case 1:
        note(w, ", disable %d", peer);
        answer(w, cuCtxDisablePeerAccess(to));
        break;
    case 2:
        note(w, ", copies beside it %d>%d", src->device, dst->device);
        for (unsigned i = 0; i < times; i++)
            if (answer(w, cuMemcpyPeerAsync(dst->at, NULL, src->at, NULL, 64, other)) == 0)
                memmove(dst->expected, src->expected, 64);
        break;
    default:
        note(w, ", a copy inside %d>%d", src->device, dst->device);
        if (may_be_regular(src, dst))
            inside = answer(w, cuMemcpyAsync(dst->at, src->at, 64, stream)) == 0;
        answer(w, cuDeviceCanAccessPeer(&can, device, peer));
        fold(w, (uint64_t)can);
    }
    note(w, ", end");
    if (answer(w, cuStreamEndCapture(stream, &graph)) == 0) {
        CHECK_CU(cuGraphInstantiateWithFlags(&executable, graph, 0));
        answer(w, cuGraphLaunch(executable, stream));
        CHECK_CU(cuStreamSynchronize(stream));
        CHECK_CU(cuGraphExecDestroy(executable));
        CHECK_CU(cuGraphDestroy(graph));
        if (inside)
            memmove(dst->expected, src->expected, 64);
    }
    CHECK_CU(cuStreamSynchronize(other));
    CHECK_CU(cuStreamDestroy(stream));
    CHECK_CU(cuStreamDestroy(other));
    leave();
    inspect(w, dst, 0, 64);
}

/* ---- sequences ---- */

static void step(struct world *w)
{
    unsigned which = draw(w, 100);
    if (which < 34)
        copy(w);
    else if (which < 48)
        enable(w);
    else if (which < 57)
        disable(w);
    else if (which < 63)
        query(w);
    else if (which < 78)
        change_memory(w);
    else if (which < 83)
        create(w);
    else if (which < 87)
        change_current(w);
    else if (which < 90)
        change_pool(w);
    else if (which < 94)
        change_access(w);
    else if (which < 96)
        change_stream(w);
    else if (which < 98)
        capture(w);
    else if (w->alone && draw(w, 2))
        reset(w, some_device(w), by_runtime(w));
    else if (w->alone)
        release(w);
}

static void steps(struct world *w, int count)
{
    for (int i = 0; i < count; i++, w->step++) {
        note(w, "  %d.%d ", w->number, w->step);
        step(w);
        int peeked = cudaPeekAtLastError(), last = cudaGetLastError();
        fold(w, (uint64_t)peeked << 16 | (uint64_t)last);
        note(w, " last %d %d\n", peeked, last);
    }
}

/* Some memory to begin with. */
static void begin(struct world *w)
{
    if (w->api != DRIVER)
        fold(w, (uint64_t)cudaSetDevice(w->number));
    for (int i = 0; i < 4; i++) {
        note(w, "  %d.begin ", w->number);
        allocate(w, &w->buffers[i]);
        note(w, "\n");
    }
}

static void end(struct world *w)
{
    for (int i = 0; i < BUFFERS; i++) {
        if (w->buffers[i].kind == MAPPED)
            CHECK_CU(cuMemUnmap(w->buffers[i].at, GRANULE));
        drop(&w->buffers[i]);
    }
    if (w->reserved)
        CHECK_CU(cuMemAddressFree(w->reserved, GRANULE));
    for (int i = 0; i < CREATED; i++)
        if (w->created[i].alive)
            CHECK_CU(cuCtxDestroy(w->created[i].handle));
    leave_all();
    cudaGetLastError();
}

/* Everything of the devices goes, and the program's references. */
static void end_devices(void)
{
    for (int device = 0; device < DEVICES; device++) {
        CHECK_CU(cuDevicePrimaryCtxReset(device));
        for (; retained[device] > 0; retained[device]--)
            cuDevicePrimaryCtxRelease(device);
        primaries[device] = NULL;
    }
}

static void *run_thread(void *world)
{
    struct world *w = world;
    begin(w);
    for (int phase = 0; phase < PHASES; phase++) {
        steps(w, STEPS / PHASES);
        pthread_barrier_wait(&barrier);
        if (w->number == 0) {
            reset_now = phase + 1 < PHASES && draw(w, 2) ? some_device(w) : -1;
            if (reset_now >= 0)
                reset(w, reset_now, by_runtime(w));
            for (int device = 0; device < DEVICES; device++)
                primary(device);
            note(w, "\n");
        }
        pthread_barrier_wait(&barrier);
        if (reset_now >= 0)
            forget(w, reset_now, -1);
        pthread_barrier_wait(&barrier);
    }
    end(w);
    return NULL;
}

static void start_world(struct world *w, unsigned seed, int number, bool alone)
{
    memset(w, 0, sizeof *w);
    w->number = number;
    w->alone = alone;
    w->api = seed % BLOCK < 60 ? DRIVER : seed % BLOCK < 120 ? RUNTIME : MIXED;
    w->state = (uint64_t)seed << 8 | (unsigned)number;
    w->sum = 0xcbf29ce484222325u;
    w->favourites[0] = alone ? (int)draw(w, DEVICES) : number;
    w->favourites[1] = (w->favourites[0] + 1 + (int)draw(w, DEVICES - 1)) % DEVICES;
    if (logging)
        REQUIRE((w->log = open_memstream(&w->text, &w->length)));
}

static void sequence(unsigned seed)
{
    static struct world worlds[THREADS];
    pthread_t threads[THREADS];
    int count = seed % 10 == 9 ? THREADS : 1;
    uint64_t sum = 0;
    bool wrong = false;
    for (int i = 0; i < count; i++)
        start_world(&worlds[i], seed, i, count == 1);
    if (count == 1) {
        begin(&worlds[0]);
        steps(&worlds[0], STEPS);
        end(&worlds[0]);
    } else {
        for (int device = 0; device < DEVICES; device++)
            primary(device);
        for (int i = 0; i < count; i++)
            REQUIRE(pthread_create(&threads[i], NULL, run_thread, &worlds[i]) == 0);
        for (int i = 0; i < count; i++)
            REQUIRE(pthread_join(threads[i], NULL) == 0);
    }
    end_devices();
    for (int i = 0; i < count; i++) {
        sum = sum * 31 + worlds[i].sum;
        wrong |= worlds[i].wrong;
        if (!worlds[i].log)
            continue;
        fclose(worlds[i].log);
        fputs(worlds[i].text, stdout);
        free(worlds[i].text);
    }
    printf("sequence %u: %016llx%s\n", seed, (unsigned long long)sum, wrong ? " WRONG" : "");
    fflush(stdout); /* so that a crash shows where */
}

int main(int argc, char **argv)
{
    int devices = 0;
    REQUIRE(argc >= 3);
    unsigned first = (unsigned)strtoul(argv[1], NULL, 10), count = (unsigned)strtoul(argv[2], NULL, 10);
    uint64_t state = 1;
    logging = argc > 3;
    CHECK_CU(cuInit(0));
    CHECK_CU(cuDeviceGetCount(&devices));
    REQUIRE(devices == DEVICES);
    REQUIRE((pattern = malloc(PATTERN)));
    for (size_t i = 0; i < PATTERN; i++)
        pattern[i] = (unsigned char)next(&state);
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (unsigned seed = first; seed < first + count; seed++)
        sequence(seed);
    return 0;
}
