/* build: hip; run: P2PSIM_DEVICES=4 hip_random_sequences FIRST COUNT [steps] on sim
 * Sequences of HIP calls drawn from a seed: peer access enabled and disabled, copies of all forms, memory, streams and
 * captures that come and go, resets, with good and bad arguments. After each call its code and the thread's last error, and
 * after each copy the bytes that it may have written, go into a checksum. The program knows what each call has to answer and
 * what all memory has to hold: a line says WRONG if either is otherwise, and LAST if the last error is. Two runs print the
 * same.
 *
 * The sequences are FIRST to FIRST + COUNT - 1; with `steps` there is a line for each call, too.
 *
 * In one sequence of ten, four threads share the devices. What is enabled belongs to all threads, so each enables from a
 * device of its own.
 */
#define _GNU_SOURCE
#include "random.h"

#include <pthread.h>
#include <string.h>

enum { STEPS = 24, THREADS = 4, DEVICES = 4, BUFFERS = 8, STREAMS = 3, SMALL = 2000, LARGE = (256 << 10) + 512 };

enum memory { NONE, OF_DEVICE, PINNED };

struct buffer {
    enum memory memory;
    int device;
    unsigned char *at, *expected;
    size_t size;
};

struct stream {
    hipStream_t handle;
    int device;
};

struct world {
    struct seen seen;
    int number, current;
    bool alone;
    struct buffer buffers[BUFFERS];
    struct stream streams[STREAMS];
    char *text;
    size_t length;
};

static bool logging, path[DEVICES][DEVICES];
static bool is_enabled[DEVICES][DEVICES]; /* a thread writes the row of its own device only */

static int some_device(struct world *w)
{
    return (int)draw(&w->seen, DEVICES);
}

static int some_ordinal(struct world *w)
{
    static const int bad[] = {-1, DEVICES, 99};
    return draw(&w->seen, 10) ? some_device(w) : bad[draw(&w->seen, 3)];
}

static bool is_device(int ordinal)
{
    return ordinal >= 0 && ordinal < DEVICES;
}

/* Not part of what is tested. */
static void move_to(struct world *w, int device)
{
    CHECK(hipSetDevice(device));
    w->current = device;
    settled(&w->seen);
}

/* ---- memory ---- */

static void drop(struct buffer *buffer)
{
    free(buffer->expected);
    memset(buffer, 0, sizeof *buffer);
}

static struct buffer *some_buffer(struct world *w)
{
    unsigned first = draw(&w->seen, BUFFERS);
    for (unsigned i = 0; i < BUFFERS; i++) {
        struct buffer *buffer = &w->buffers[(first + i) % BUFFERS];
        if (buffer->memory != NONE)
            return buffer;
    }
    return NULL;
}

static void settle(struct world *w)
{
    for (int device = 0; device < DEVICES; device++) {
        CHECK(hipSetDevice(device));
        CHECK(hipDeviceSynchronize());
    }
    CHECK(hipSetDevice(w->current));
    settled(&w->seen);
}

static void inspect(struct world *w, const struct buffer *buffer)
{
    static _Thread_local unsigned char bytes[LARGE];
    CHECK(hipMemcpy(bytes, buffer->at, buffer->size, hipMemcpyDefault));
    settled(&w->seen);
    fold(&w->seen, checksum(bytes, buffer->size < SMALL ? buffer->size : SMALL));
    if (memcmp(bytes, buffer->expected, buffer->size) != 0)
        is_wrong(&w->seen, "bytes");
}

static void step_allocate(struct world *w)
{
    struct buffer *buffer = &w->buffers[draw(&w->seen, BUFFERS)];
    if (buffer->memory != NONE)
        return;
    buffer->memory = draw(&w->seen, 5) ? OF_DEVICE : PINNED;
    buffer->device = w->current;
    buffer->size = draw(&w->seen, 150) ? 1 + draw(&w->seen, SMALL) : LARGE;
    void *at = NULL;
    note(&w->seen, "%s(%zu) on %d", buffer->memory == PINNED ? "hipHostMalloc" : "hipMalloc", buffer->size, w->current);
    hipError_t code = buffer->memory == PINNED ? hipHostMalloc(&at, buffer->size, 0) : hipMalloc(&at, buffer->size);
    REQUIRE(answered(&w->seen, code, hipSuccess, true));
    buffer->at = at;
    buffer->expected = malloc(buffer->size);
    REQUIRE(buffer->expected);
    fill(buffer->expected, buffer->size, draw(&w->seen, 1000));
    CHECK(hipMemcpy(at, buffer->expected, buffer->size, hipMemcpyDefault));
    settled(&w->seen);
}

static void step_free(struct world *w)
{
    struct buffer *buffer = some_buffer(w);
    if (!buffer)
        return;
    note(&w->seen, "hipFree of %d", (int)(buffer - w->buffers));
    answered(&w->seen, buffer->memory == PINNED ? hipHostFree(buffer->at) : hipFree(buffer->at), hipSuccess, true);
    drop(buffer);
}

/* ---- peer access ---- */

static int right_for_peer(const struct world *w, int peer)
{
    return is_device(peer) && path[w->current][peer] ? hipSuccess : hipErrorInvalidDevice;
}

/* With other threads about, from this one's own device only. */
static void move_home(struct world *w)
{
    if (!w->alone)
        move_to(w, w->number);
}

static void step_enable(struct world *w)
{
    move_home(w);
    int peer = some_ordinal(w), right = right_for_peer(w, peer);
    unsigned flags = draw(&w->seen, 12) == 0;
    if (flags)
        right = hipErrorInvalidValue;
    else if (right == hipSuccess && is_enabled[w->current][peer])
        right = hipErrorPeerAccessAlreadyEnabled;
    note(&w->seen, "hipDeviceEnablePeerAccess(%d, %u) from %d", peer, flags, w->current);
    if (answered(&w->seen, hipDeviceEnablePeerAccess(peer, flags), right, true) && right == hipSuccess)
        is_enabled[w->current][peer] = true;
}

static void step_disable(struct world *w)
{
    move_home(w);
    int peer = some_ordinal(w), right = right_for_peer(w, peer);
    if (right == hipSuccess && !is_enabled[w->current][peer])
        right = hipErrorPeerAccessNotEnabled;
    note(&w->seen, "hipDeviceDisablePeerAccess(%d) from %d", peer, w->current);
    if (answered(&w->seen, hipDeviceDisablePeerAccess(peer), right, true) && right == hipSuccess)
        is_enabled[w->current][peer] = false;
}

static void step_ask(struct world *w)
{
    int from = some_ordinal(w), to = some_ordinal(w), can = -7;
    int right = from == to || (is_device(from) && is_device(to)) ? hipSuccess : hipErrorInvalidDevice;
    note(&w->seen, "hipDeviceCanAccessPeer(%d, %d)", from, to);
    answered(&w->seen, hipDeviceCanAccessPeer(&can, from, to), right, true);
    if (can != (right != hipSuccess ? -7 : from != to && path[from][to]))
        is_wrong(&w->seen, "output");
    note(&w->seen, " can %d", can);
}

/* ---- copies ---- */

/* A stream: the null stream, the thread's own, or one that was created. */
static hipStream_t some_stream(struct world *w)
{
    unsigned which = draw(&w->seen, STREAMS + 2);
    if (which >= STREAMS || !w->streams[which].handle)
        return which == STREAMS ? hipStreamPerThread : NULL;
    return w->streams[which].handle;
}

enum form {
    PEER,
    PEER_ASYNC,
    PLAIN,
    PLAIN_ASYNC,
    OF_DEVICES,
    FLAT,
    FLAT_ASYNC,
    CUBE,
    CUBE_ASYNC,
    PLAIN_SPT,
    PLAIN_ASYNC_SPT,
    FLAT_SPT,
    FLAT_ASYNC_SPT,
    CUBE_SPT,
    CUBE_ASYNC_SPT,
    BOX, /* from 7.1 on, like all that follow */
    BOX_ASYNC,
    BATCH,
    BATCH_3D,
    FORMS
};

#if HIP_MAJOR >= 7
/* In two pieces, if it is long enough. */
static hipError_t copy_batch(bool is_3d, char *dst, char *src, size_t size, hipStream_t stream)
{
    size_t half = size / 2, count = half ? 2 : 1, sizes[] = {half ? half : size, size - half}, failed = 7;
    void *dsts[] = {dst, dst + half}, *srcs[] = {src, src + half};
    hipMemcpy3DBatchOp operations[2];
    if (!is_3d)
        return hipMemcpyBatchAsync(dsts, srcs, sizes, count, NULL, NULL, 0, &failed, stream);
    memset(operations, 0, sizeof operations);
    for (size_t i = 0; i < count; i++) {
        operations[i].src.type = operations[i].dst.type = 1;
        operations[i].src.op.ptr.ptr = srcs[i];
        operations[i].dst.op.ptr.ptr = dsts[i];
        operations[i].extent = (hipExtent){sizes[i], 1, 1};
    }
    return hipMemcpy3DBatchAsync(count, operations, &failed, 0, stream);
}
#endif


static hipError_t copy(enum form form, void *dst, int dst_device, const void *src, int src_device, size_t size,
                       hipStream_t stream)
{
    hipMemcpy3DParms cube = {.srcPtr = {(void *)src, size, size, 1}, .dstPtr = {dst, size, size, 1}, .extent = {size, 1, 1}};
    cube.kind = hipMemcpyDefault;
#if HIP_MAJOR >= 7
    hipMemcpy3DPeerParms box = {.srcPtr = {(void *)src, size, size, 1}, .srcDevice = src_device};
    box.dstPtr = (hipPitchedPtr){dst, size, size, 1};
    box.dstDevice = dst_device;
    box.extent = (hipExtent){size, 1, 1};
#endif
    switch (form) {
    case PEER:
        return hipMemcpyPeer(dst, dst_device, src, src_device, size);
    case PEER_ASYNC:
        return hipMemcpyPeerAsync(dst, dst_device, src, src_device, size, stream);
    case PLAIN:
        return hipMemcpy(dst, src, size, hipMemcpyDefault);
    case PLAIN_ASYNC:
        return hipMemcpyAsync(dst, src, size, hipMemcpyDefault, stream);
    case OF_DEVICES:
        return hipMemcpyDtoD(dst, (void *)src, size);
    case FLAT:
        return hipMemcpy2D(dst, size, src, size, size, 1, hipMemcpyDefault);
    case FLAT_ASYNC:
        return hipMemcpy2DAsync(dst, size, src, size, size, 1, hipMemcpyDefault, stream);
    case CUBE:
        return hipMemcpy3D(&cube);
    case CUBE_ASYNC:
        return hipMemcpy3DAsync(&cube, stream);
    case PLAIN_SPT:
        return hipMemcpy_spt(dst, src, size, hipMemcpyDefault);
    case PLAIN_ASYNC_SPT:
        return hipMemcpyAsync_spt(dst, src, size, hipMemcpyDefault, stream);
    case FLAT_SPT:
        return hipMemcpy2D_spt(dst, size, src, size, size, 1, hipMemcpyDefault);
    case FLAT_ASYNC_SPT:
        return hipMemcpy2DAsync_spt(dst, size, src, size, size, 1, hipMemcpyDefault, stream);
    case CUBE_SPT:
        return hipMemcpy3D_spt(&cube);
    case CUBE_ASYNC_SPT:
        return hipMemcpy3DAsync_spt(&cube, stream);
#if HIP_MAJOR >= 7
    case BOX:
        return hipMemcpy3DPeer(&box);
    case BOX_ASYNC:
        return hipMemcpy3DPeerAsync(&box, stream);
    case BATCH:
    case BATCH_3D:
        return copy_batch(form == BATCH_3D, dst, (char *)src, size, stream);
#endif
    default:
        break;
    }
    return hipErrorUnknown;
}

static void step_copy(struct world *w)
{
    static const char *const names[] = {
        "hipMemcpyPeer",      "hipMemcpyPeerAsync",  "hipMemcpy",          "hipMemcpyAsync",     "hipMemcpyDtoD",
        "hipMemcpy2D",        "hipMemcpy2DAsync",    "hipMemcpy3D",        "hipMemcpy3DAsync",   "hipMemcpy_spt",
        "hipMemcpyAsync_spt", "hipMemcpy2D_spt",     "hipMemcpy2DAsync_spt", "hipMemcpy3D_spt",  "hipMemcpy3DAsync_spt",
        "hipMemcpy3DPeer",    "hipMemcpy3DPeerAsync", "hipMemcpyBatchAsync", "hipMemcpy3DBatchAsync",
    };
    struct buffer *dst = some_buffer(w), *src = some_buffer(w);
    if (!dst || dst == src)
        return;
    size_t dst_offset = draw(&w->seen, 3) ? 0 : draw(&w->seen, (unsigned)dst->size);
    size_t src_offset = draw(&w->seen, 3) ? 0 : draw(&w->seen, (unsigned)src->size);
    size_t room = dst->size - dst_offset, there = src->size - src_offset, most = room < there ? room : there;
    size_t size = draw(&w->seen, 2) ? most : 1 + draw(&w->seen, (unsigned)most);
    enum form form = draw(&w->seen, HIP_MAJOR >= 7 ? FORMS : BOX);
    bool names_devices = form == PEER || form == PEER_ASYNC || form == BOX || form == BOX_ASYNC;
    int dst_device = draw(&w->seen, 8) ? dst->device : some_ordinal(w);
    int src_device = draw(&w->seen, 8) ? src->device : some_ordinal(w);
    hipStream_t stream = some_stream(w);
    int right = hipSuccess;
    if (names_devices && (!is_device(dst_device) || !is_device(src_device)))
        right = hipErrorInvalidDevice;
    else if (draw(&w->seen, 25) == 0 && form != BATCH_3D) { /* of which the first copy is made */
        size = most + 1; /* more than one of them has */
        right = hipErrorInvalidValue;
    } else if (names_devices && form < BOX && draw(&w->seen, 30) == 0)
        size = 0;
    move_to(w, draw(&w->seen, 4) ? src->device : some_device(w));
    note(&w->seen, "%s of %zu bytes: %d+%zu on %d to %d+%zu on %d", names[form], size, (int)(src - w->buffers), src_offset,
         src_device, (int)(dst - w->buffers), dst_offset, dst_device);
    hipError_t code = copy(form, dst->at + dst_offset, dst_device, src->at + src_offset, src_device, size, stream);
    if (answered(&w->seen, code, right, true) && right == hipSuccess)
        memcpy(dst->expected + dst_offset, src->expected + src_offset, size);
    settle(w);
    inspect(w, dst);
}

/* A capture that a copy goes into, and another copy beside, which is done at once; then it is run. */
static void step_capture(struct world *w)
{
    struct buffer *dst = some_buffer(w), *src = some_buffer(w);
    struct stream *stream = &w->streams[draw(&w->seen, STREAMS)];
    hipGraph_t graph;
    hipGraphExec_t exec;
    if (!w->alone || !dst || dst == src || !stream->handle)
        return;
    size_t size = dst->size < src->size ? dst->size : src->size;
    bool peer = draw(&w->seen, 2);
    note(&w->seen, "captured %s", peer ? "hipMemcpyPeerAsync" : "hipMemcpyAsync");
    CHECK(hipStreamBeginCapture(stream->handle, hipStreamCaptureModeRelaxed));
    settled(&w->seen);
    hipError_t code = copy(peer ? PEER_ASYNC : PLAIN_ASYNC, dst->at, dst->device, src->at, src->device, size, stream->handle);
    answered(&w->seen, code, hipSuccess, true);
    bool refused = HIP_MAJOR >= 7 && draw(&w->seen, 4) == 0;
    if (refused) {
        note(&w->seen, ", hipMemcpyPeer beside it");
        code = hipMemcpyPeer(dst->at, dst->device, src->at, src->device, size);
        answered(&w->seen, code, hipErrorStreamCaptureImplicit, false);
    }
    hipError_t ended = hipStreamEndCapture(stream->handle, &graph);
    note(&w->seen, ", end");
    if (answered(&w->seen, ended, refused ? hipErrorStreamCaptureInvalidated : hipSuccess, true)) {
        size_t nodes = 99;
        CHECK(hipGraphGetNodes(graph, NULL, &nodes));
        if (nodes != !peer)
            is_wrong(&w->seen, "nodes");
        CHECK(hipGraphInstantiate(&exec, graph, NULL, NULL, 0));
        CHECK(hipGraphLaunch(exec, stream->handle));
        CHECK(hipStreamSynchronize(stream->handle));
        CHECK(hipGraphExecDestroy(exec));
        CHECK(hipGraphDestroy(graph));
    }
    if (peer || ended == hipSuccess)
        memcpy(dst->expected, src->expected, size);
    settle(w);
    inspect(w, dst);
}

static void step_memset(struct world *w)
{
    struct buffer *buffer = some_buffer(w);
    if (!buffer)
        return;
    int value = (int)draw(&w->seen, 256);
    size_t size = 1 + draw(&w->seen, (unsigned)buffer->size);
    note(&w->seen, "hipMemset of %d, %zu bytes", (int)(buffer - w->buffers), size);
    if (answered(&w->seen, hipMemset(buffer->at, value, size), hipSuccess, true))
        memset(buffer->expected, value, size);
    settle(w);
    inspect(w, buffer);
}

/* ---- the rest ---- */

static void step_stream(struct world *w)
{
    struct stream *stream = &w->streams[draw(&w->seen, STREAMS)];
    if (!stream->handle) {
        stream->device = w->current;
        unsigned flags = draw(&w->seen, 2);
        note(&w->seen, "hipStreamCreateWithFlags(%u)", flags);
        answered(&w->seen, hipStreamCreateWithFlags(&stream->handle, flags), hipSuccess, true);
        return;
    }
    note(&w->seen, "hipStreamDestroy");
    answered(&w->seen, hipStreamDestroy(stream->handle), hipSuccess, true);
    if (w->alone) {
        unsigned char byte = 0;
        note(&w->seen, ", hipMemcpyPeerAsync on it");
        hipError_t code = hipMemcpyPeerAsync(&byte, 0, &byte, 0, 1, stream->handle);
        answered(&w->seen, code, hipErrorContextIsDestroyed, false);
    }
    stream->handle = NULL;
}

static void step_last_error(struct world *w)
{
    note(&w->seen, "hipGetLastError");
    int last = w->seen.last;
    int code = hipGetLastError();
    w->seen.last = hipSuccess;
    answered(&w->seen, code, last, false);
}

static void step_reset(struct world *w)
{
    if (!w->alone || draw(&w->seen, 4))
        return;
    note(&w->seen, "hipDeviceReset of %d", w->current);
    answered(&w->seen, hipDeviceReset(), hipSuccess, true);
    for (int i = 0; i < BUFFERS; i++)
        if (w->buffers[i].memory == OF_DEVICE && w->buffers[i].device == w->current)
            drop(&w->buffers[i]);
    for (int i = 0; i < STREAMS; i++)
        if (w->streams[i].device == w->current)
            w->streams[i].handle = NULL;
}

static void step(struct world *w)
{
    static void (*const steps[])(struct world *) = {
        step_allocate, step_allocate, step_allocate, step_free,   step_enable, step_enable,     step_disable, step_ask,
        step_copy,     step_copy,     step_copy,     step_copy,   step_copy,   step_copy,       step_capture, step_memset,
        step_stream,   step_stream,   step_reset,    step_last_error,
    };
    move_to(w, draw(&w->seen, 3) ? w->current : some_device(w));
    steps[draw(&w->seen, sizeof steps / sizeof *steps)](w);
    note(&w->seen, "\n");
}

static void *run(void *argument)
{
    struct world *w = argument;
    (void)hipGetLastError();
    w->seen.last = hipSuccess;
    for (int i = 0; i < 5; i++) {
        move_to(w, some_device(w));
        i < 4 ? step_allocate(w) : step_stream(w);
        note(&w->seen, "\n");
    }
    for (int i = 0; i < STEPS; i++)
        step(w);
    settle(w);
    for (int i = 0; i < BUFFERS; i++) {
        struct buffer *buffer = &w->buffers[i];
        if (buffer->memory == NONE)
            continue;
        inspect(w, buffer);
        CHECK(buffer->memory == PINNED ? hipHostFree(buffer->at) : hipFree(buffer->at));
        drop(buffer);
    }
    for (int i = 0; i < STREAMS; i++)
        if (w->streams[i].handle)
            CHECK(hipStreamDestroy(w->streams[i].handle));
    return NULL;
}

static void sequence(unsigned seed)
{
    static struct world worlds[THREADS];
    pthread_t threads[THREADS];
    int count = seed % 10 == 9 ? THREADS : 1;
    bool wrong = false, last_wrong = false;
    uint64_t sum = 0;
    memset(worlds, 0, sizeof worlds);
    for (int i = 0; i < count; i++) {
        worlds[i].number = i;
        worlds[i].alone = count == 1;
        worlds[i].seen.state = (uint64_t)seed * THREADS + (unsigned)i;
        if (logging)
            REQUIRE((worlds[i].seen.log = open_memstream(&worlds[i].text, &worlds[i].length)));
    }
    if (count == 1)
        run(&worlds[0]);
    for (int i = 0; i < count && count > 1; i++)
        REQUIRE(pthread_create(&threads[i], NULL, run, &worlds[i]) == 0);
    for (int i = 0; i < count && count > 1; i++)
        REQUIRE(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < count; i++) {
        sum = sum * 31 + worlds[i].seen.sum;
        wrong |= worlds[i].seen.wrong;
        last_wrong |= worlds[i].seen.last_wrong;
        if (!worlds[i].seen.log)
            continue;
        fclose(worlds[i].seen.log);
        fputs(worlds[i].text, stdout);
        free(worlds[i].text);
    }
    for (int from = 0; from < DEVICES; from++) {
        CHECK(hipSetDevice(from));
        for (int to = 0; to < DEVICES; to++)
            if (is_enabled[from][to])
                CHECK(hipDeviceDisablePeerAccess(to));
    }
    memset(is_enabled, 0, sizeof is_enabled);
    printf("sequence %u: %016llx%s%s\n", seed, (unsigned long long)sum, wrong ? " WRONG" : "", last_wrong ? " LAST" : "");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    int devices = 0;
    REQUIRE(argc >= 3);
    unsigned first = (unsigned)strtoul(argv[1], NULL, 10), count = (unsigned)strtoul(argv[2], NULL, 10);
    logging = argc > 3 && strcmp(argv[3], "steps") == 0;
    CHECK(hipGetDeviceCount(&devices));
    REQUIRE(devices == DEVICES);
    for (int from = 0; from < DEVICES; from++)
        for (int to = 0, can; to < DEVICES; to++) {
            CHECK(hipDeviceCanAccessPeer(&can, from, to));
            path[from][to] = can;
        }
    for (unsigned seed = first; seed < first + count; seed++)
        sequence(seed);
    return 0;
}
