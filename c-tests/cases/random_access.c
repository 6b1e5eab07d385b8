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
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "check.h"
#include "lib/copy_forms.h"
#include "lib/devices.h"
#include "lib/random.h"

enum {
    STEPS = 30,
    DEVICES = 4,
    PHASES = 3, /* with threads: a device may be reset after each */
    BUFFERS = 10,
    CREATED = 3,
    STREAMS = 3,
    POOLS = 2,
    SMALL = 4096,
    LARGE = (1 << 20) + 8192,
    BLOCK = 250, /* seeds after which the choice of API starts anew */
};

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

enum { DRIVER, RUNTIME, MIXED };

/* What one thread has. */
struct world {
    int api;
    int favourites[2]; /* devices that half of all steps are about, so that steps meet */
    bool has_enabled;
    struct buffer buffers[BUFFERS];
    struct stream streams[STREAMS];
    struct created created[CREATED];
    struct pool pools[POOLS];
    CUdeviceptr reserved;
    int step;
};

static struct world worlds[MOST_PARTS];
static _Thread_local struct world *world;
static int retained[DEVICES];
static pthread_mutex_t retaining = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t under_way = PTHREAD_RWLOCK_INITIALIZER; /* read by who copies, written by who closes */
static int reset_now; /* the device that was reset between two phases, or -1 */

/* Brings a primary context to life, if it is not. */
static CUcontext primary(int device)
{
    unsigned version;
    pthread_mutex_lock(&retaining);
    if (!contexts[device] || cuCtxGetApiVersion(contexts[device], &version) != CUDA_SUCCESS) {
        CHECK_CU(cuDevicePrimaryCtxRetain(&contexts[device], device));
        retained[device]++;
    }
    pthread_mutex_unlock(&retaining);
    return contexts[device];
}

static void leave_all(void)
{
    CUcontext gone;
    while (cuCtxPopCurrent(&gone) == CUDA_SUCCESS)
        continue;
}

static CUcontext context_of(int device, int context)
{
    return context < 0 ? primary(device) : world->created[context].handle;
}

static bool by_runtime(void)
{
    return world->api == RUNTIME || (world->api == MIXED && draw(2));
}

static int some_device(void)
{
    return draw(2) ? (int)draw(DEVICES) : world->favourites[draw(2)];
}

/* A device; now and then an ordinal that is none. */
static int some_ordinal(void)
{
    static const int bad[] = {-1, DEVICES, 99};
    return draw(12) ? some_device() : ONE_OF(bad);
}

static struct buffer *some_buffer(void)
{
    unsigned first = draw(BUFFERS);
    for (unsigned i = 0; i < BUFFERS; i++) {
        struct buffer *buffer = &world->buffers[(first + i) % BUFFERS];
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
static void forget(int device, int context)
{
    for (int i = 0; i < BUFFERS; i++) {
        struct buffer *buffer = &world->buffers[i];
        bool gone = buffer->kind == PLAIN ? buffer->device == device && buffer->context == context
                                          : buffer->kind == POOLED && buffer->device == device && context < 0;
        if (gone)
            drop(buffer);
    }
    for (int i = 0; i < STREAMS; i++)
        if (world->streams[i].handle && world->streams[i].device == device && world->streams[i].context == context)
            memset(&world->streams[i], 0, sizeof world->streams[i]);
    for (int i = 0; i < POOLS && context < 0; i++)
        if (world->pools[i].handle && world->pools[i].device == device)
            memset(&world->pools[i], 0, sizeof world->pools[i]);
}

/* What a buffer holds from an offset on, against what it should. */
static void inspect(struct buffer *buffer, size_t offset, size_t count)
{
    static _Thread_local unsigned char got[LARGE];
    primary(buffer->device);
    read_memory(buffer->device, got, buffer->at + offset, count);
    fold_bytes(got, count);
    if (memcmp(got, buffer->expected + offset, count) == 0)
        return;
    is_wrong("bytes");
    memcpy(buffer->expected + offset, got, count);
}

static void fill_buffer(struct buffer *buffer)
{
    REQUIRE(buffer->at);
    buffer->expected = malloc(buffer->size);
    REQUIRE(buffer->expected);
    draw_bytes(buffer->expected, buffer->size);
    primary(buffer->device);
    write_memory(buffer->device, buffer->at, buffer->expected, buffer->size);
}

static void begin_closing(void)
{
    if (!mine->is_alone)
        REQUIRE(pthread_rwlock_wrlock(&under_way) == 0);
}

static void begin_copying(void)
{
    if (!mine->is_alone)
        REQUIRE(pthread_rwlock_rdlock(&under_way) == 0);
}

static void end_either(void)
{
    if (!mine->is_alone)
        REQUIRE(pthread_rwlock_unlock(&under_way) == 0);
}

/* ---- peer access ---- */

/* Makes a context current from which this thread may enable. */
static void stand_somewhere(bool runtime)
{
    int device = mine->is_alone ? some_device() : mine->number;
    unsigned where = draw(8);
    struct created *created = &world->created[draw(CREATED)];
    if (runtime) {
        note("on %d: ", device);
        fold((uint64_t)cudaSetDevice(device));
    } else if (where == 0 && mine->is_alone) {
        note("where we are: ");
    } else if (where == 1) {
        note("nowhere: ");
        leave_all();
    } else if (where <= 4 && created->alive) {
        note("on created %d: ", (int)(created - world->created));
        CHECK_CU(cuCtxSetCurrent(created->handle));
    } else {
        note("on primary %d: ", device);
        CHECK_CU(cuCtxSetCurrent(primary(device)));
    }
}

/* A context to be a peer, dead ones among them where that is sure to stay so. */
static CUcontext some_peer(void)
{
    unsigned which = draw(10);
    int device = some_device();
    struct created *created = &world->created[draw(CREATED)];
    if (which == 0) {
        note("null");
        return NULL;
    }
    if (which <= 3 && created->handle && (mine->is_alone || created->alive)) {
        note("created %d", (int)(created - world->created));
        return created->handle;
    }
    note("primary %d", device);
    return mine->is_alone && contexts[device] ? contexts[device] : primary(device);
}

static void enable(void)
{
    bool runtime = by_runtime();
    stand_somewhere(runtime);
    unsigned flags = draw(12) == 0;
    note("enable flags %u ", flags);
    if (runtime) {
        int peer = some_ordinal();
        note("%d", peer);
        world->has_enabled |= answer(cudaDeviceEnablePeerAccess(peer, flags)) == 0;
    } else {
        world->has_enabled |= answer(cuCtxEnablePeerAccess(some_peer(), flags)) == 0;
    }
}

static void disable(void)
{
    bool runtime = by_runtime(), closes = world->has_enabled;
    if (closes)
        begin_closing();
    stand_somewhere(runtime);
    note("disable ");
    if (runtime) {
        int peer = some_ordinal();
        note("%d", peer);
        answer(cudaDeviceDisablePeerAccess(peer));
    } else {
        answer(cuCtxDisablePeerAccess(some_peer()));
    }
    if (closes)
        end_either();
}

static void query(void)
{
    bool runtime = by_runtime(), nowhere = draw(16) == 0;
    int value = -7, from = some_ordinal(), to = some_ordinal(), attribute = (int)draw(7);
    int *out = nowhere ? NULL : &value;
    if (draw(2)) {
        note("can %d access %d", from, to);
        answer(runtime ? (int)cudaDeviceCanAccessPeer(out, from, to) : (int)cuDeviceCanAccessPeer(out, from, to));
    } else {
        note("attribute %d of %d>%d", attribute, from, to);
        answer(runtime ? (int)cudaDeviceGetP2PAttribute(out, (enum cudaDeviceP2PAttr)attribute, from, to)
                          : (int)cuDeviceGetP2PAttribute(out, (CUdevice_P2PAttribute)attribute, from, to));
    }
    fold((uint64_t)value);
    note(" -> %d", value);
}

/* ---- contexts ---- */

/* With several threads only between two phases. */
static void reset(int device, bool runtime)
{
    note("reset %d", device);
    if (runtime) {
        fold((uint64_t)cudaSetDevice(device));
        answer(cudaDeviceReset());
    } else {
        answer(cuDevicePrimaryCtxReset(device));
    }
    forget(device, -1);
}

/* Without the runtime, which has references of its own, the last reference ends the context. */
static void release(void)
{
    int device = some_device(), active = -7;
    unsigned flags;
    if (world->api != DRIVER) {
        reset(device, by_runtime());
        return;
    }
    note("release %d, %d times", device, retained[device]);
    for (; retained[device] > 0; retained[device]--)
        answer(cuDevicePrimaryCtxRelease(device));
    CHECK_CU(cuDevicePrimaryCtxGetState(device, &flags, &active));
    fold((uint64_t)active);
    note(" -> %s", active ? "active" : "gone");
    if (!active)
        forget(device, -1);
}

static void create(void)
{
    int which = (int)draw(CREATED);
    struct created *created = &world->created[which];
    if (created->alive) {
        note("destroy created %d", which);
        /* A handle is used again, by another thread perhaps: nobody else's may be left on this thread's stack. */
        if (!mine->is_alone)
            leave_all();
        answer(cuCtxDestroy(created->handle));
        created->alive = false;
        forget(created->device, which);
        return;
    }
    created->device = some_device();
    note("create %d on %d", which, created->device);
    created->alive = answer(cuCtxCreate_v2(&created->handle, 0, created->device)) == 0;
}

static void change_current(void)
{
    CUcontext context = NULL;
    struct created *created = &world->created[draw(CREATED)];
    bool stale_too = mine->is_alone;
    if (created->handle && (created->alive || stale_too))
        context = created->handle;
    else
        context = primary(some_device());
    switch (draw(4)) {
    case 0:
        note("push");
        answer(cuCtxPushCurrent(context));
        break;
    case 1:
        note("pop");
        answer(cuCtxPopCurrent(&context));
        break;
    case 2:
        note("set");
        answer(cuCtxSetCurrent(context));
        break;
    default:
        if (by_runtime()) {
            int device = some_ordinal();
            note("set device %d", device);
            answer(cudaSetDevice(device));
        } else {
            note("destroy no created one");
            answer(cuCtxDestroy(draw(2) ? primary(0) : NULL));
        }
    }
}

/* ---- memory ---- */

static bool has_large(void)
{
    int count = 0;
    for (int i = 0; i < BUFFERS; i++)
        count += world->buffers[i].size >= LARGE;
    return count >= 3;
}

static void allocate(struct buffer *buffer)
{
    bool runtime = by_runtime();
    int which = (int)draw(CREATED);
    buffer->device = some_device();
    buffer->context = -1;
    buffer->size = draw(3) || has_large() ? SMALL : LARGE;
    buffer->kind = PLAIN;
    if (!runtime && world->created[which].alive && draw(2)) {
        buffer->context = which;
        buffer->device = world->created[which].device;
    }
    note("allocate %zu on %d, context %d", buffer->size, buffer->device, buffer->context);
    if (runtime) {
        void *at = NULL;
        fold((uint64_t)cudaSetDevice(buffer->device));
        answer(cudaMalloc(&at, buffer->size));
        buffer->at = (CUdeviceptr)at;
    } else {
        enter(context_of(buffer->device, buffer->context));
        answer(cuMemAlloc(&buffer->at, buffer->size));
        leave();
    }
    fill_buffer(buffer);
}

static void allocate_from_pool(struct buffer *buffer)
{
    struct pool *pool = &world->pools[draw(POOLS)];
    buffer->size = draw(3) || has_large() ? SMALL : LARGE;
    buffer->kind = POOLED;
    buffer->context = -1;
    if (pool->handle && draw(2)) {
        buffer->device = pool->device;
        note("allocate %zu from a pool of %d", buffer->size, buffer->device);
        enter(primary(buffer->device));
        answer(cuMemAllocFromPoolAsync(&buffer->at, buffer->size, pool->handle, NULL));
        leave();
    } else if (by_runtime()) {
        void *at = NULL;
        buffer->device = some_device();
        note("allocate %zu on a stream of %d", buffer->size, buffer->device);
        fold((uint64_t)cudaSetDevice(buffer->device));
        answer(cudaMallocAsync(&at, buffer->size, NULL));
        buffer->at = (CUdeviceptr)at;
    } else {
        buffer->device = some_device();
        note("allocate %zu on a stream of %d by the driver", buffer->size, buffer->device);
        enter(primary(buffer->device));
        answer(cuMemAllocAsync(&buffer->at, buffer->size, NULL));
        leave();
    }
    fill_buffer(buffer);
}

/* Always at the same address, for whatever device. */
static void map(struct buffer *buffer)
{
    CUmemGenericAllocationHandle physical;
    for (int i = 0; i < BUFFERS; i++)
        if (world->buffers[i].kind == MAPPED)
            return;
    if (!world->reserved)
        CHECK_CU(cuMemAddressReserve(&world->reserved, GRANULE, 0, 0, 0));
    buffer->device = some_device();
    buffer->size = draw(3) ? SMALL : LARGE;
    buffer->kind = MAPPED;
    buffer->context = -1;
    buffer->at = world->reserved;
    note("map memory of %d", buffer->device);
    answer(new_physical(&physical, buffer->device, GRANULE));
    answer(cuMemMap(world->reserved, GRANULE, 0, physical, 0));
    answer(grant_mapping(world->reserved, GRANULE, buffer->device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    CHECK_CU(cuMemRelease(physical));
    fill_buffer(buffer);
}

/* The address of freed memory is worth nothing, until it is used again. */
static void copy_stale(CUdeviceptr stale)
{
    struct buffer *other = some_buffer();
    if (!other || !mine->is_alone)
        return;
    note(", from there");
    enter(primary(other->device));
    answer(cuMemcpyPeer(other->at, NULL, stale, NULL, 4));
    leave();
    inspect(other, 0, 4);
}

static void release_memory(struct buffer *buffer)
{
    CUdeviceptr at = buffer->at;
    bool runtime = by_runtime(), on_stream = buffer->kind == POOLED && draw(2);
    note("free memory of %d, kind %d", buffer->device, buffer->kind);
    if (buffer->kind == MAPPED) {
        answer(cuMemUnmap(at, GRANULE));
    } else if (runtime) {
        fold((uint64_t)cudaSetDevice(buffer->device));
        answer(on_stream ? cudaFreeAsync((void *)at, NULL) : cudaFree((void *)at));
    } else {
        enter(primary(buffer->device));
        answer(on_stream ? cuMemFreeAsync(at, NULL) : cuMemFree(at));
        leave();
    }
    drop(buffer);
    if (draw(2))
        copy_stale(at);
}

static void change_memory(void)
{
    struct buffer *buffer = &world->buffers[draw(BUFFERS)];
    if (buffer->kind != NONE) {
        release_memory(buffer);
        return;
    }
    switch (draw(5)) {
    case 0:
    case 1:
        allocate(buffer);
        break;
    case 2:
    case 3:
        allocate_from_pool(buffer);
        break;
    default:
        map(buffer);
    }
}

static void change_pool(void)
{
    struct pool *pool = &world->pools[draw(POOLS)];
    if (!pool->handle) {
        pool->device = some_device();
        note("create a pool of %d", pool->device);
        if (answer(new_pool(&pool->handle, pool->device)))
            pool->handle = NULL;
    } else if (draw(3) == 0) {
        note("destroy a pool of %d", pool->device);
        answer(cuMemPoolDestroy(pool->handle));
        pool->handle = NULL;
    } else if (mine->is_alone && draw(3) == 0) {
        int device = some_ordinal();
        note("make a pool of %d that of %d", pool->device, device);
        answer(cuDeviceSetMemPool(device, pool->handle));
    }
}

/* The driver's and the runtime's descriptors are the same bytes. */
static void change_access(void)
{
    static const int rights[] = {CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                                 CU_MEM_ACCESS_FLAGS_PROT_NONE, 2};
    struct pool *pool = &world->pools[draw(POOLS)];
    struct buffer *buffer = some_buffer();
    CUmemAccessDesc access = access_of(some_ordinal(), (CUmemAccess_flags)ONE_OF(rights));
    CUmemoryPool handle = pool->handle;
    int device = some_device();
    if (buffer && buffer->kind == MAPPED && access.location.id != buffer->device) {
        note("mapped memory of %d: rights %d for %d", buffer->device, (int)access.flags, access.location.id);
        answer(cuMemSetAccess(buffer->at, GRANULE, &access, 1));
        return;
    }
    if (!handle)
        CHECK_CU(cuDeviceGetDefaultMemPool(&handle, device));
    note("pool of %d: rights %d for %d", pool->handle ? pool->device : device, (int)access.flags,
         access.location.id);
    begin_closing();
    if (by_runtime())
        answer(cudaMemPoolSetAccess((cudaMemPool_t)handle, (struct cudaMemAccessDesc *)&access, 1));
    else
        answer(cuMemPoolSetAccess(handle, &access, 1));
    end_either();
}

static void change_stream(void)
{
    struct stream *stream = &world->streams[draw(STREAMS)];
    int which = (int)draw(CREATED);
    if (stream->handle) {
        note("destroy a stream");
        answer(cuStreamDestroy(stream->handle));
        memset(stream, 0, sizeof *stream);
        return;
    }
    stream->context = world->created[which].alive && draw(2) ? which : -1;
    stream->device = stream->context < 0 ? some_device() : world->created[which].device;
    note("create a stream on %d, context %d", stream->device, stream->context);
    enter(context_of(stream->device, stream->context));
    answer(cuStreamCreate(&stream->handle, draw(2) ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    leave();
}

/* ---- copies ---- */

static void draw_shape(struct transfer *t, bool large)
{
    enum shape shape = forms[t->form].shape;
    t->width = shape == LINE ? (large ? LARGE - 4096 : draw(2) ? 4 : 1 + draw(1024)) : large ? 4080 : 60;
    t->pitch = shape == LINE ? t->width : large ? 4096 : 64;
    t->rows = shape == LINE ? 1 : !large ? 5 : shape == ROWS ? 256 : 32;
    t->slices = shape == BOX ? (large ? 8 : 3) : 1;
}

/* Arguments that are wrong now and then. */
static void spoil(struct transfer *t)
{
    switch (draw(30)) {
    case 0:
        t->dst = 0;
        break;
    case 1:
        t->src = 0;
        break;
    case 2:
        t->dst_device = 99;
        break;
    case 3:
        t->src_device = -1;
        break;
    case 4:
        t->width = forms[t->form].shape == LINE ? (size_t)1 << 40 : 0;
        break;
    case 5:
        t->dst_context = mine->is_alone && world->created[0].handle ? world->created[0].handle : NULL;
        break;
    default:
        break;
    }
}

/* Waits for everything that a copy may have been put in order with. */
static void settle(void)
{
    for (int device = 0; device < DEVICES; device++) {
        unsigned flags;
        int active = 0;
        CHECK_CU(cuDevicePrimaryCtxGetState(device, &flags, &active));
        if (active)
            synchronize(primary(device));
    }
    for (int i = 0; i < CREATED; i++)
        if (world->created[i].alive)
            synchronize(world->created[i].handle);
}

/* The context in which a copy is made: any that is at hand for the driver, a device for the runtime. */
static void stand(enum form form)
{
    struct created *created = &world->created[draw(CREATED)];
    int device = some_device();
    if (is_of_runtime(form)) {
        if (draw(2))
            fold((uint64_t)cudaSetDevice(device));
    } else if (draw(4)) {
        CHECK_CU(cuCtxSetCurrent(created->alive && draw(2) ? created->handle : primary(device)));
    }
}

static CUstream some_stream(void)
{
    struct stream *stream = &world->streams[draw(STREAMS)];
    static const CUstream defaults[] = {NULL, (CUstream)1, (CUstream)2};
    return stream->handle && draw(3) ? stream->handle : defaults[draw(3)];
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
    static const enum form linear[2][2] = {{BY_cuMemcpyPeer, BY_cuMemcpyPeerAsync}, {BY_cudaMemcpyPeer, BY_cudaMemcpyPeerAsync}};
    static const enum form boxes[2][2] = {{BY_cuMemcpy3DPeer, BY_cuMemcpy3DPeerAsync}, {BY_cudaMemcpy3DPeer, BY_cudaMemcpy3DPeerAsync}};
    return (forms[form].shape == LINE ? linear : boxes)[is_of_runtime(form)][is_async(form)];
}

static enum form some_form(bool only_async)
{
    for (;;) {
        enum form form = (enum form)draw(ALL_FORMS);
        bool allowed = world->api == MIXED || (world->api == RUNTIME) == is_of_runtime(form);
        if (allowed && !is_batch(form) && (!only_async || is_async(form)))
            return form;
    }
}

/* Once, some times, or so often that small copies add up to something. */
static unsigned repeats(bool large)
{
    static const unsigned times[] = {1, 1, 2, 3, 17, 20};
    return large ? 1 : times[draw(6)];
}

static void copy(void)
{
    struct buffer *src = some_buffer(), *dst = some_buffer();
    for (int i = 0; i < 4 && src && (src == dst || src->device == dst->device); i++)
        dst = some_buffer();
    if (!src || src == dst)
        return;
    bool large = src->size >= LARGE && dst->size >= LARGE && draw(4);
    /* A synchronous copy of memory that is of no context is put in order with a context that may be another thread's. */
    bool only_async = !mine->is_alone && (src->kind != PLAIN || dst->kind != PLAIN);
    struct transfer t = {.form = some_form(only_async), .dst = dst->at, .src = src->at};
    t.dst_device = draw(4) ? dst->device : some_device();
    t.src_device = draw(4) ? src->device : some_device();
    t.dst_context = draw(2) ? NULL : context_of(dst->device, dst->context);
    t.src_context = draw(2) ? NULL : context_of(src->device, src->context);
    t.kind = draw(2) ? cudaMemcpyDefault : cudaMemcpyDeviceToDevice;
    t.dst_type = draw(2) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_UNIFIED;
    t.src_type = draw(2) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_UNIFIED;
    draw_shape(&t, large);
    t.stream = some_stream();
    stand(t.form);
    if (!may_be_regular(src, dst))
        t.form = peer_form(t.form);
    struct transfer asked = t;
    unsigned times = repeats(large);
    spoil(&t);
    size_t step = forms[t.form].shape != LINE || asked.width > 64 ? 0 : 4, most = span(&asked) + step * (times - 1);
    note("copy by %s, %d>%d, kinds %d>%d, %zu bytes, %u times", forms[t.form].name, src->device, dst->device, (int)src->kind, (int)dst->kind,
         asked.width * asked.rows * asked.slices, times);
    begin_copying();
    for (unsigned i = 0; i < times; i++) {
        int code = make(&t);
        fold((uint64_t)code);
        if (i == 0 || code)
            note(" = %d", code);
        if (code == 0 && t.width == asked.width && t.dst && t.src)
            expect_rows(dst->expected + i * step, src->expected + i * step, &asked);
        if (t.dst)
            t.dst += step;
        if (t.src)
            t.src += step;
    }
    settle();
    end_either();
    inspect(dst, 0, most);
}

/* ---- captures ---- */

/* While a stream is being captured: what breaks a capture breaks it, what does not does not. */
static void capture(void)
{
    struct buffer *src = some_buffer(), *dst = some_buffer();
    CUstreamCaptureMode mode = (CUstreamCaptureMode)draw(3);
    unsigned what = draw(4), times = draw(2) ? 1 : 18;
    int device = some_device(), peer = some_device(), can = -7;
    CUgraph graph = NULL;
    CUgraphExec executable;
    if (!mine->is_alone || !src || src == dst)
        return;
    CUcontext to = primary(peer);
    enter(primary(device));
    CUstream stream = driver_stream();
    CUstream other = driver_stream();
    note("capture on %d, mode %d", device, (int)mode);
    answer(cuStreamBeginCapture(stream, mode));
    bool inside = false;
    switch (what) {
    case 0:
        note(", enable %d", peer);
        answer(cuCtxEnablePeerAccess(to, 0));
        break;
    case 1:
        note(", disable %d", peer);
        answer(cuCtxDisablePeerAccess(to));
        break;
    case 2:
        note(", copies beside it %d>%d", src->device, dst->device);
        for (unsigned i = 0; i < times; i++)
            if (answer(cuMemcpyPeerAsync(dst->at, NULL, src->at, NULL, 64, other)) == 0)
                memmove(dst->expected, src->expected, 64);
        break;
    default:
        note(", a copy inside %d>%d", src->device, dst->device);
        if (may_be_regular(src, dst))
            inside = answer(cuMemcpyAsync(dst->at, src->at, 64, stream)) == 0;
        answer(cuDeviceCanAccessPeer(&can, device, peer));
        fold((uint64_t)can);
    }
    note(", end");
    if (answer(cuStreamEndCapture(stream, &graph)) == 0) {
        CHECK_CU(cuGraphInstantiateWithFlags(&executable, graph, 0));
        answer(cuGraphLaunch(executable, stream));
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
    inspect(dst, 0, 64);
}

/* ---- sequences ---- */

static void step(void)
{
    unsigned which = draw(100);
    if (which < 34)
        copy();
    else if (which < 48)
        enable();
    else if (which < 57)
        disable();
    else if (which < 63)
        query();
    else if (which < 78)
        change_memory();
    else if (which < 83)
        create();
    else if (which < 87)
        change_current();
    else if (which < 90)
        change_pool();
    else if (which < 94)
        change_access();
    else if (which < 96)
        change_stream();
    else if (which < 98)
        capture();
    else if (mine->is_alone && draw(2))
        reset(some_device(), by_runtime());
    else if (mine->is_alone)
        release();
}

static void steps(int count)
{
    for (int i = 0; i < count; i++, world->step++) {
        note("  %d.%d ", mine->number, world->step);
        step();
        int peeked = cudaPeekAtLastError(), last = cudaGetLastError();
        fold((uint64_t)peeked << 16 | (uint64_t)last);
        note(" last %d %d\n", peeked, last);
    }
}

/* Some memory to begin with. */
static void begin(void)
{
    if (world->api != DRIVER)
        fold((uint64_t)cudaSetDevice(mine->number));
    for (int i = 0; i < 4; i++) {
        note("  %d.begin ", mine->number);
        allocate(&world->buffers[i]);
        note("\n");
    }
}

static void end(void)
{
    for (int i = 0; i < BUFFERS; i++) {
        if (world->buffers[i].kind == MAPPED)
            CHECK_CU(cuMemUnmap(world->buffers[i].at, GRANULE));
        drop(&world->buffers[i]);
    }
    if (world->reserved)
        CHECK_CU(cuMemAddressFree(world->reserved, GRANULE));
    for (int i = 0; i < CREATED; i++)
        if (world->created[i].alive)
            CHECK_CU(cuCtxDestroy(world->created[i].handle));
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
        contexts[device] = NULL;
    }
}

/* One thread resets a device between two phases, perhaps. */
static void change_phase(bool is_last)
{
    pthread_barrier_wait(&all_parts);
    if (mine->number == 0) {
        reset_now = !is_last && draw(2) ? some_device() : -1;
        if (reset_now >= 0)
            reset(reset_now, by_runtime());
        for (int device = 0; device < DEVICES; device++)
            primary(device);
        note("\n");
    }
    pthread_barrier_wait(&all_parts);
    if (reset_now >= 0)
        forget(reset_now, -1);
    pthread_barrier_wait(&all_parts);
}

static void take(void)
{
    world = &worlds[mine->number];
    begin();
    if (mine->is_alone)
        steps(STEPS);
    for (int phase = 1; phase <= PHASES && !mine->is_alone; phase++) {
        steps(STEPS / PHASES);
        change_phase(phase == PHASES);
    }
    end();
}

static void begin_world(void)
{
    world = &worlds[mine->number];
    memset(world, 0, sizeof *world);
    world->api = mine->seed % BLOCK < 60 ? DRIVER : mine->seed % BLOCK < 120 ? RUNTIME : MIXED;
    world->favourites[0] = mine->is_alone ? (int)draw(DEVICES) : mine->number;
    world->favourites[1] = (world->favourites[0] + 1 + (int)draw(DEVICES - 1)) % DEVICES;
    if (!mine->is_alone)
        primary(mine->number);
}

int main(int argc, char **argv)
{
    static const struct program program = {.one_in = 10, .begin = begin_world, .take = take, .finish = end_devices};
    count_devices(DEVICES);
    REQUIRE(devices == DEVICES);
    return take_sequences(argc, argv, &program);
}
