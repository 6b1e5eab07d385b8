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
#include "random.h"

enum { STEPS = 24, BUFFERS = 8, STREAMS = 3, SMALL = 2000, LARGE = (256 << 10) + 512 };

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

static _Thread_local struct buffer buffers[BUFFERS];
static _Thread_local struct stream streams[STREAMS];

static int some_device(void)
{
    return (int)draw(DEVICES);
}

static int some_ordinal(void)
{
    static const int bad[] = {-1, DEVICES, 99};
    return draw(10) ? some_device() : ONE_OF(bad);
}

/* ---- memory ---- */

static void drop(struct buffer *buffer)
{
    free(buffer->expected);
    memset(buffer, 0, sizeof *buffer);
}

static struct buffer *some_buffer(void)
{
    unsigned first = draw(BUFFERS);
    for (unsigned i = 0; i < BUFFERS; i++) {
        struct buffer *buffer = &buffers[(first + i) % BUFFERS];
        if (buffer->memory != NONE)
            return buffer;
    }
    return NULL;
}

static void step_allocate(void)
{
    struct buffer *buffer = &buffers[draw(BUFFERS)];
    if (buffer->memory != NONE)
        return;
    buffer->memory = draw(5) ? OF_DEVICE : PINNED;
    buffer->device = current;
    buffer->size = draw(150) ? 1 + draw(SMALL) : LARGE;
    void *at = NULL;
    note("%s(%zu) on %d", buffer->memory == PINNED ? "hipHostMalloc" : "hipMalloc", buffer->size, current);
    hipError_t code = buffer->memory == PINNED ? hipHostMalloc(&at, buffer->size, 0) : hipMalloc(&at, buffer->size);
    REQUIRE(answered(code, hipSuccess, true));
    buffer->at = at;
    buffer->expected = malloc(buffer->size);
    REQUIRE(buffer->expected);
    fill(buffer->expected, buffer->size, draw(1000));
    CHECK(hipMemcpy(at, buffer->expected, buffer->size, hipMemcpyDefault));
    settled();
}

static void step_free(void)
{
    struct buffer *buffer = some_buffer();
    if (!buffer)
        return;
    note("hipFree of %d", (int)(buffer - buffers));
    answered(buffer->memory == PINNED ? hipHostFree(buffer->at) : hipFree(buffer->at), hipSuccess, true);
    drop(buffer);
}

/* ---- peer access ---- */

static void step_enable(void)
{
    move_home();
    int peer = some_ordinal();
    enable(peer, draw(12) == 0);
}

static void step_disable(void)
{
    move_home();
    disable(some_ordinal());
}

static void step_ask(void)
{
    int from = some_ordinal(), to = some_ordinal();
    ask(from, to, false);
}

/* ---- copies ---- */

/* A stream: the null stream, the thread's own, or one that was created. */
static hipStream_t some_stream(void)
{
    unsigned which = draw(STREAMS + 2);
    if (which >= STREAMS || !streams[which].handle)
        return which == STREAMS ? hipStreamPerThread : NULL;
    return streams[which].handle;
}

/* Each form of a copy: its function and the call, in copy(). From 7.1 on there are more. */
#define FORMS_OF_COPIES(FORM) \
    FORM(hipMemcpyPeer, hipMemcpyPeer(dst, dst_device, src, src_device, size)) \
    FORM(hipMemcpyPeerAsync, hipMemcpyPeerAsync(dst, dst_device, src, src_device, size, stream)) \
    FORM(hipMemcpy, hipMemcpy(dst, src, size, hipMemcpyDefault)) \
    FORM(hipMemcpyAsync, hipMemcpyAsync(dst, src, size, hipMemcpyDefault, stream)) \
    FORM(hipMemcpyDtoD, hipMemcpyDtoD(dst, src, size)) \
    FORM(hipMemcpy2D, hipMemcpy2D(dst, size, src, size, size, 1, hipMemcpyDefault)) \
    FORM(hipMemcpy2DAsync, hipMemcpy2DAsync(dst, size, src, size, size, 1, hipMemcpyDefault, stream)) \
    FORM(hipMemcpy3D, hipMemcpy3D(&cube)) \
    FORM(hipMemcpy3DAsync, hipMemcpy3DAsync(&cube, stream)) \
    FORM(hipMemcpy_spt, hipMemcpy_spt(dst, src, size, hipMemcpyDefault)) \
    FORM(hipMemcpyAsync_spt, hipMemcpyAsync_spt(dst, src, size, hipMemcpyDefault, stream)) \
    FORM(hipMemcpy2D_spt, hipMemcpy2D_spt(dst, size, src, size, size, 1, hipMemcpyDefault)) \
    FORM(hipMemcpy2DAsync_spt, hipMemcpy2DAsync_spt(dst, size, src, size, size, 1, hipMemcpyDefault, stream)) \
    FORM(hipMemcpy3D_spt, hipMemcpy3D_spt(&cube)) \
    FORM(hipMemcpy3DAsync_spt, hipMemcpy3DAsync_spt(&cube, stream))

#if HIP_MAJOR >= 7
#define LATER_FORMS(FORM) \
    FORM(hipMemcpy3DPeer, hipMemcpy3DPeer(&box)) \
    FORM(hipMemcpy3DPeerAsync, hipMemcpy3DPeerAsync(&box, stream)) \
    FORM(hipMemcpyBatchAsync, copy_batch(false, dst, src, size, stream)) \
    FORM(hipMemcpy3DBatchAsync, copy_batch(true, dst, src, size, stream))

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
#else
#define LATER_FORMS(FORM)
#endif

#define FORM_NUMBER(function, call) BY_##function,
#define FORM_NAME(function, call) #function,
#define FORM_CASE(function, call) \
    case BY_##function: \
        return call;

enum form { FORMS_OF_COPIES(FORM_NUMBER) LATER_FORMS(FORM_NUMBER) FORMS };
static const char *const names[] = {FORMS_OF_COPIES(FORM_NAME) LATER_FORMS(FORM_NAME)};

static hipError_t copy(enum form form, void *dst, int dst_device, void *src, int src_device, size_t size, hipStream_t stream)
{
    hipMemcpy3DParms cube = {.srcPtr = {src, size, size, 1}, .dstPtr = {dst, size, size, 1}, .extent = {size, 1, 1}};
    cube.kind = hipMemcpyDefault;
#if HIP_MAJOR >= 7
    hipMemcpy3DPeerParms box = {.srcPtr = cube.srcPtr, .srcDevice = src_device, .dstPtr = cube.dstPtr, .dstDevice = dst_device};
    box.extent = cube.extent;
#endif
    switch (form) {
        FORMS_OF_COPIES(FORM_CASE)
        LATER_FORMS(FORM_CASE)
    default:
        return hipErrorUnknown;
    }
}

static void step_copy(void)
{
    struct buffer *dst = some_buffer(), *src = some_buffer();
    if (!dst || dst == src)
        return;
    size_t dst_offset = draw(3) ? 0 : draw((unsigned)dst->size);
    size_t src_offset = draw(3) ? 0 : draw((unsigned)src->size);
    size_t room = dst->size - dst_offset, there = src->size - src_offset, most = room < there ? room : there;
    size_t size = draw(2) ? most : 1 + draw((unsigned)most);
    enum form form = draw(FORMS);
    bool names_devices = strstr(names[form], "Peer"), is_box = names_devices && strstr(names[form], "3D");
    int dst_device = draw(8) ? dst->device : some_ordinal();
    int src_device = draw(8) ? src->device : some_ordinal();
    hipStream_t stream = some_stream();
    int right = hipSuccess;
    if (names_devices && (!is_device(dst_device) || !is_device(src_device)))
        right = hipErrorInvalidDevice;
    else if (draw(25) == 0 && !strstr(names[form], "3DBatch")) { /* of which the first copy is made */
        size = most + 1; /* more than one of them has */
        right = hipErrorInvalidValue;
    } else if (names_devices && !is_box && draw(30) == 0)
        size = 0;
    move_to(draw(4) ? src->device : some_device());
    note("%s of %zu bytes: %d+%zu on %d to %d+%zu on %d", names[form], size, (int)(src - buffers), src_offset,
         src_device, (int)(dst - buffers), dst_offset, dst_device);
    hipError_t code = copy(form, dst->at + dst_offset, dst_device, src->at + src_offset, src_device, size, stream);
    if (answered(code, right, true) && right == hipSuccess)
        memcpy(dst->expected + dst_offset, src->expected + src_offset, size);
    settle();
    inspect(dst->at, dst->expected, dst->size);
}

/* A capture that a copy goes into, and another copy beside, which is done at once; then it is run. */
static void step_capture(void)
{
    struct buffer *dst = some_buffer(), *src = some_buffer();
    struct stream *stream = &streams[draw(STREAMS)];
    hipGraph_t graph;
    hipGraphExec_t exec;
    if (!mine->is_alone || !dst || dst == src || !stream->handle)
        return;
    size_t size = dst->size < src->size ? dst->size : src->size;
    bool peer = draw(2);
    note("captured %s", peer ? "hipMemcpyPeerAsync" : "hipMemcpyAsync");
    CHECK(hipStreamBeginCapture(stream->handle, hipStreamCaptureModeRelaxed));
    settled();
    hipError_t code = copy(peer ? BY_hipMemcpyPeerAsync : BY_hipMemcpyAsync, dst->at, dst->device, src->at, src->device, size, stream->handle);
    answered(code, hipSuccess, true);
    bool refused = HIP_MAJOR >= 7 && draw(4) == 0;
    if (refused) {
        note(", hipMemcpyPeer beside it");
        code = hipMemcpyPeer(dst->at, dst->device, src->at, src->device, size);
        answered(code, hipErrorStreamCaptureImplicit, false);
    }
    hipError_t ended = hipStreamEndCapture(stream->handle, &graph);
    note(", end");
    if (answered(ended, refused ? hipErrorStreamCaptureInvalidated : hipSuccess, true)) {
        size_t nodes = 99;
        CHECK(hipGraphGetNodes(graph, NULL, &nodes));
        if (nodes != !peer)
            is_wrong("nodes");
        CHECK(hipGraphInstantiate(&exec, graph, NULL, NULL, 0));
        CHECK(hipGraphLaunch(exec, stream->handle));
        CHECK(hipStreamSynchronize(stream->handle));
        CHECK(hipGraphExecDestroy(exec));
        CHECK(hipGraphDestroy(graph));
    }
    if (peer || ended == hipSuccess)
        memcpy(dst->expected, src->expected, size);
    settle();
    inspect(dst->at, dst->expected, dst->size);
}

static void step_memset(void)
{
    struct buffer *buffer = some_buffer();
    if (!buffer)
        return;
    int value = (int)draw(256);
    size_t size = 1 + draw((unsigned)buffer->size);
    note("hipMemset of %d, %zu bytes", (int)(buffer - buffers), size);
    if (answered(hipMemset(buffer->at, value, size), hipSuccess, true))
        memset(buffer->expected, value, size);
    settle();
    inspect(buffer->at, buffer->expected, buffer->size);
}

/* ---- the rest ---- */

static void step_stream(void)
{
    struct stream *stream = &streams[draw(STREAMS)];
    if (!stream->handle) {
        stream->device = current;
        unsigned flags = draw(2);
        note("hipStreamCreateWithFlags(%u)", flags);
        answered(hipStreamCreateWithFlags(&stream->handle, flags), hipSuccess, true);
        return;
    }
    note("hipStreamDestroy");
    answered(hipStreamDestroy(stream->handle), hipSuccess, true);
    if (mine->is_alone) {
        unsigned char byte = 0;
        note(", hipMemcpyPeerAsync on it");
        hipError_t code = hipMemcpyPeerAsync(&byte, 0, &byte, 0, 1, stream->handle);
        answered(code, hipErrorContextIsDestroyed, false);
    }
    stream->handle = NULL;
}

static void step_reset(void)
{
    if (!mine->is_alone || draw(4))
        return;
    note("hipDeviceReset of %d", current);
    answered(hipDeviceReset(), hipSuccess, true);
    for (int i = 0; i < BUFFERS; i++)
        if (buffers[i].memory == OF_DEVICE && buffers[i].device == current)
            drop(&buffers[i]);
    for (int i = 0; i < STREAMS; i++)
        if (streams[i].device == current)
            streams[i].handle = NULL;
}

static void step(void)
{
    static void (*const steps[])(void) = {
        step_allocate, step_allocate, step_allocate, step_free,   step_enable, step_enable,     step_disable, step_ask,
        step_copy,     step_copy,     step_copy,     step_copy,   step_copy,   step_copy,       step_capture, step_memset,
        step_stream,   step_stream,   step_reset,    call_last_error,
    };
    move_to(draw(3) ? current : some_device());
    ONE_OF(steps)();
    note("\n");
}

static void run(void)
{
    forget_last_error();
    for (int i = 0; i < 5; i++) {
        move_to(some_device());
        i < 4 ? step_allocate() : step_stream();
        note("\n");
    }
    for (int i = 0; i < STEPS; i++)
        step();
    settle();
    for (int i = 0; i < BUFFERS; i++) {
        struct buffer *buffer = &buffers[i];
        if (buffer->memory == NONE)
            continue;
        inspect(buffer->at, buffer->expected, buffer->size);
        CHECK(buffer->memory == PINNED ? hipHostFree(buffer->at) : hipFree(buffer->at));
        drop(buffer);
    }
    for (int i = 0; i < STREAMS; i++)
        if (streams[i].handle)
            CHECK(hipStreamDestroy(streams[i].handle));
    memset(streams, 0, sizeof streams);
}

int main(int argc, char **argv)
{
    return take_hip_sequences(argc, argv, 10, run);
}
