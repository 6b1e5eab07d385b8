/* build: hip; run: P2PSIM_DEVICES=4 hip_random_arguments FIRST COUNT [steps] on sim
 * HIP's peer functions with arguments drawn from a seed: good ones, those at the edge and bad ones. After each call its code,
 * its outputs and the thread's last error go into a checksum, and so does the memory that it may have written; one line a
 * sequence shows it. The program knows what each call has to answer and move: a line says WRONG if it does otherwise, and
 * LAST if the last error is not the right one. Two runs print the same.
 *
 * The sequences are FIRST to FIRST + COUNT - 1; with `steps` there is a line for each call, too.
 *
 * In one sequence of eight, four threads share the devices, each with memory and streams of its own; what is enabled belongs
 * to all of them, so each enables from a device of its own.
 */
#define _GNU_SOURCE
#include "random.h"

#include <limits.h>
#include <pthread.h>
#include <string.h>

enum {
    CALLS = 100, /* of a sequence */
    THREADS = 4,
    DEVICES = 4,
    SIZE = 5000, /* no multiple of what allocations are rounded up to, so that nothing begins where one ends */
    LARGE = 70000,
    HOST = 200000, /* more than any copy moves */
    STREAMS = DEVICES + 1,
    INTERVAL = 25, /* calls after which all memory is looked at */
};

enum piece { LARGE_OF_0 = DEVICES, PINNED, PAGEABLE, PIECES };

struct memory {
    unsigned char *at, *expected;
    size_t size;
};

struct world {
    struct seen seen;
    int number, current, calls;
    bool alone;
    struct memory pieces[PIECES];
    unsigned char *freed;
    unsigned char *behind;
    hipStream_t streams[STREAMS], gone; /* one a device, and one that does not wait */
    hipCtx_t contexts[DEVICES];
    char *text;
    size_t length;
};

static bool logging, path[DEVICES][DEVICES];
static bool is_enabled[DEVICES][DEVICES]; /* a thread writes the row of its own device only */
static pthread_barrier_t phase;
static const int bad_ordinals[] = {-1, DEVICES, DEVICES + 1, 99, INT_MAX, INT_MIN};

#define ONE_OF(w, array) ((array)[draw(&(w)->seen, sizeof(array) / sizeof *(array))])

static bool is_device(int ordinal)
{
    return ordinal >= 0 && ordinal < DEVICES;
}

static int some_ordinal(struct world *w, const char *name)
{
    int ordinal = draw(&w->seen, 5) ? (int)draw(&w->seen, DEVICES) : ONE_OF(w, bad_ordinals);
    note(&w->seen, " %s=%d", name, ordinal);
    return ordinal;
}

static void move_to(struct world *w, int device)
{
    CHECK(hipSetDevice(device));
    w->current = device;
    settled(&w->seen);
}

/* ---- memory ---- */

static void inspect(struct world *w, int piece)
{
    static _Thread_local unsigned char bytes[HOST];
    const struct memory *memory = &w->pieces[piece];
    CHECK(hipMemcpy(bytes, memory->at, memory->size, hipMemcpyDefault));
    settled(&w->seen);
    fold(&w->seen, checksum(bytes, SIZE));
    if (memcmp(bytes, memory->expected, memory->size) != 0)
        is_wrong(&w->seen, "bytes");
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

/* Where a copy begins: in a piece, at nothing, or where nothing is any more. */
struct place {
    unsigned char *at;
    int piece; /* -1 for none */
    size_t offset;
};

static struct place some_place(struct world *w, const char *name)
{
    struct place place = {.piece = (int)draw(&w->seen, PIECES)};
    const struct memory *memory = &w->pieces[place.piece];
    switch (draw(&w->seen, 20)) {
    case 0:
        note(&w->seen, " %s=NULL", name);
        return (struct place){.piece = -1};
    case 1:
        note(&w->seen, " %s=freed", name);
        return (struct place){.at = w->freed, .piece = -1};
    case 2:
        if (place.piece < PINNED) {
            note(&w->seen, " %s=end of %d", name, place.piece);
            return (struct place){.at = memory->at + memory->size, .piece = -1};
        }
        break;
    case 3:
        place.offset = draw(&w->seen, SIZE);
        break;
    case 4:
        place.offset = SIZE - 1;
        break;
    default:
        break;
    }
    place.at = memory->at + place.offset;
    note(&w->seen, " %s=%d+%zu", name, place.piece, place.offset);
    return place;
}

/* Memory that HIP knows. */
static bool is_known(struct place place)
{
    return place.piece >= 0 && place.piece != PAGEABLE;
}

static size_t room(const struct world *w, struct place place)
{
    return w->pieces[place.piece].size - place.offset;
}

static size_t some_size(struct world *w, struct place dst, struct place src)
{
    size_t size = 1 + draw(&w->seen, SIZE);
    size_t of_dst = dst.piece < 0 ? SIZE : room(w, dst), of_src = src.piece < 0 ? SIZE : room(w, src);
    size_t most = of_dst < of_src ? of_dst : of_src;
    switch (draw(&w->seen, 10)) {
    case 0:
        size = 0;
        break;
    case 1:
        size = 1;
        break;
    case 2:
        size = most;
        break;
    case 3:
        size = most + 1;
        break;
    case 4:
        size = ONE_OF(w, ((const size_t[]){SIZE_MAX, SIZE_MAX - SIZE, (size_t)1 << 63, (size_t)1 << 32, HOST}));
        break;
    default:
        size = size > most ? most : size;
        break;
    }
    note(&w->seen, " size=%zu", size);
    return size;
}

/* ---- streams ---- */

static hipStream_t some_stream(struct world *w, bool *good)
{
    unsigned which = draw(&w->seen, STREAMS + 6);
    *good = true;
    if (which < STREAMS) {
        note(&w->seen, " stream=%u", which);
        return w->streams[which];
    }
    if (which == STREAMS) {
        note(&w->seen, " stream=gone");
        *good = false;
        return w->gone;
    }
    if (which == STREAMS + 1) {
        note(&w->seen, " stream=legacy");
        *good = HIP_MAJOR >= 7;
        return hipStreamLegacy;
    }
    if (which == STREAMS + 2) {
        note(&w->seen, " stream=per thread");
        return hipStreamPerThread;
    }
    return NULL;
}

/* ---- calls ---- */

static void move_home(struct world *w)
{
    if (!w->alone)
        move_to(w, w->number);
}

static int right_for_peer(const struct world *w, int peer)
{
    return is_device(peer) && path[w->current][peer] ? hipSuccess : hipErrorInvalidDevice;
}

static void call_enable(struct world *w)
{
    move_home(w);
    note(&w->seen, "hipDeviceEnablePeerAccess from %d", w->current);
    int peer = some_ordinal(w, "peer"), right = right_for_peer(w, peer);
    unsigned flags = draw(&w->seen, 8) ? 0 : ONE_OF(w, ((const unsigned[]){1, 2, UINT_MAX, 1u << 31}));
    if (flags)
        right = hipErrorInvalidValue;
    else if (right == hipSuccess && is_enabled[w->current][peer])
        right = hipErrorPeerAccessAlreadyEnabled;
    note(&w->seen, " flags=%u", flags);
    if (answered(&w->seen, hipDeviceEnablePeerAccess(peer, flags), right, true) && right == hipSuccess)
        is_enabled[w->current][peer] = true;
}

static void call_disable(struct world *w)
{
    move_home(w);
    note(&w->seen, "hipDeviceDisablePeerAccess from %d", w->current);
    int peer = some_ordinal(w, "peer"), right = right_for_peer(w, peer);
    if (right == hipSuccess && !is_enabled[w->current][peer])
        right = hipErrorPeerAccessNotEnabled;
    if (answered(&w->seen, hipDeviceDisablePeerAccess(peer), right, true) && right == hipSuccess)
        is_enabled[w->current][peer] = false;
}

static void check_output(struct world *w, int out, int right)
{
    fold(&w->seen, (unsigned)out);
    if (out != right)
        is_wrong(&w->seen, "output");
}

static void call_can(struct world *w)
{
    note(&w->seen, "hipDeviceCanAccessPeer");
    int from = some_ordinal(w, "device"), to = draw(&w->seen, 8) ? some_ordinal(w, "peer") : from, out = -7;
    bool null = draw(&w->seen, 10) == 0;
    int right = from == to || (is_device(from) && is_device(to)) ? hipSuccess : hipErrorInvalidDevice;
    if (null)
        right = hipErrorInvalidValue;
    note(&w->seen, " peer=%d%s", to, null ? " to NULL" : "");
    answered(&w->seen, hipDeviceCanAccessPeer(null ? NULL : &out, from, to), right, true);
    check_output(w, out, right != hipSuccess ? -7 : from != to && path[from][to]);
}

static void call_attribute(struct world *w)
{
    note(&w->seen, "hipDeviceGetP2PAttribute");
    int from = some_ordinal(w, "src"), to = some_ordinal(w, "dst"), out = -7, right = hipSuccess;
    bool null = draw(&w->seen, 10) == 0;
    unsigned attribute = draw(&w->seen, 5) ? draw(&w->seen, 4) : ONE_OF(w, ((const unsigned[]){4, 5, 99, UINT_MAX}));
    if (null)
        right = hipErrorInvalidValue;
    else if (from == to || from >= DEVICES || to >= DEVICES)
        right = hipErrorInvalidDevice;
    else if (attribute > hipDevP2PAttrHipArrayAccessSupported)
        right = hipErrorInvalidValue;
    else if (!is_device(from) || !is_device(to))
        right = hipErrorInvalidDevice;
    note(&w->seen, " attribute=%u%s", attribute, null ? " to NULL" : "");
    answered(&w->seen, hipDeviceGetP2PAttribute(null ? NULL : &out, (hipDeviceP2PAttr)attribute, from, to), right, true);
    if (right == hipSuccess && attribute == hipDevP2PAttrPerformanceRank)
        fold(&w->seen, (unsigned)out); /* the type of the link, which is not ours to know */
    else
        check_output(w, out, right != hipSuccess ? -7 : path[from][to]);
}

static int right_for_copy(const struct world *w, struct place dst, struct place src, size_t size)
{
    if (size == 0)
        return hipSuccess;
    if (!dst.at || !src.at || (!is_known(dst) && !is_known(src)) || dst.piece < 0 || src.piece < 0)
        return hipErrorInvalidValue;
    if ((is_known(dst) && size > room(w, dst)) || (is_known(src) && size > room(w, src)))
        return hipErrorInvalidValue;
    return hipSuccess;
}

static void call_copy(struct world *w)
{
    bool async = draw(&w->seen, 2), good_stream = true;
    note(&w->seen, async ? "hipMemcpyPeerAsync" : "hipMemcpyPeer");
    struct place dst = some_place(w, "dst"), src = some_place(w, "src");
    int dst_device = draw(&w->seen, 3) || dst.piece >= DEVICES || dst.piece < 0 ? some_ordinal(w, "dstDevice") : dst.piece;
    int src_device = draw(&w->seen, 3) || src.piece >= DEVICES || src.piece < 0 ? some_ordinal(w, "srcDevice") : src.piece;
    size_t size = some_size(w, dst, src);
    hipStream_t stream = async ? some_stream(w, &good_stream) : NULL;
    bool good_devices = is_device(dst_device) && is_device(src_device);
    int right = right_for_copy(w, dst, src, size);
    if (!good_devices)
        right = hipErrorInvalidDevice;
    else if (!good_stream)
        right = hipErrorContextIsDestroyed;
    hipError_t code = async ? hipMemcpyPeerAsync(dst.at, dst_device, src.at, src_device, size, stream)
                            : hipMemcpyPeer(dst.at, dst_device, src.at, src_device, size);
    bool done = answered(&w->seen, code, right, good_stream || !good_devices);
    settle(w);
    if (done && right == hipSuccess && size > 0)
        memmove(w->pieces[dst.piece].expected + dst.offset, w->pieces[src.piece].expected + src.offset, size);
    if (dst.piece >= 0)
        inspect(w, dst.piece);
}

struct side {
    struct place place;
    hipPitchedPtr pitched;
    hipPos position;
    bool array;
};

static size_t some_count(struct world *w, const char *name, size_t usual)
{
    size_t count = usual;
    if (draw(&w->seen, 12) == 0)
        count = ONE_OF(w, ((const size_t[]){0, 1, usual + 1, usual * 2, SIZE, INT_MAX, SIZE_MAX, (size_t)1 << 63}));
    if (count != usual)
        note(&w->seen, " %s=%zu", name, count);
    return count;
}

static struct side some_side(struct world *w, const char *name)
{
    struct side side = {.place = some_place(w, name), .array = draw(&w->seen, 40) == 0};
    side.pitched.ptr = side.place.at;
    side.pitched.pitch = some_count(w, "pitch", 64);
    side.pitched.xsize = some_count(w, "xsize", 32);
    side.pitched.ysize = some_count(w, "ysize", 5);
    side.position.x = some_count(w, "x", draw(&w->seen, 8));
    side.position.y = some_count(w, "y", draw(&w->seen, 2));
    side.position.z = some_count(w, "z", draw(&w->seen, 2));
    return side;
}

/* By the measures of the pointer, which need not be those of the memory. */
static bool is_too_small(const struct world *w, const struct side *side, hipExtent extent)
{
    size_t width = side->pitched.xsize, rows = side->pitched.ysize, slice = width * rows;
    if (!is_known(side->place) || slice == 0)
        return false;
    size_t slices = w->pieces[side->place.piece].size / slice;
    return width * (rows - side->position.y) * (slices - side->position.z) < extent.width * extent.height * extent.depth;
}

/* Bytes from slice to slice; the product may wrap around. */
static size_t slice_of(const struct side *side, hipExtent extent)
{
    size_t slice = side->pitched.pitch * side->pitched.ysize;
    return slice ? slice : side->pitched.pitch * extent.height;
}

static bool has_measures(const struct side *side, hipExtent extent)
{
    size_t pitch = side->pitched.pitch, slice = slice_of(side, extent);
    return pitch > 0 && pitch >= extent.width && slice % pitch == 0 && slice / pitch >= extent.height;
}

/* Where a row of a box begins in its piece. */
static unsigned __int128 offset_of(const struct side *side, hipExtent extent, size_t y, size_t z)
{
    unsigned __int128 pitch = side->pitched.pitch, slice = slice_of(side, extent);
    return slice * ((unsigned __int128)side->position.z + z) + pitch * ((unsigned __int128)side->position.y + y) +
           side->position.x + side->place.offset;
}

static bool lies_inside(const struct world *w, const struct side *side, hipExtent extent)
{
    /* So large that the offset would not fit; nothing has that room. */
    if (side->position.z > HOST || side->position.y > HOST || extent.depth > HOST || extent.height > HOST)
        return false;
    return offset_of(side, extent, extent.height - 1, extent.depth - 1) + extent.width <= w->pieces[side->place.piece].size;
}

/* What a kind says of memory that is not known: only the host's can be that. */
static bool may_be_host(const struct side sides[2], int side, hipMemcpyKind kind)
{
    hipMemcpyKind one = side == 0 ? hipMemcpyDeviceToHost : hipMemcpyHostToDevice;
    return sides[side].place.at && (kind == one || kind == hipMemcpyHostToHost || kind == hipMemcpyDefault);
}

static bool is_kind(hipMemcpyKind kind)
{
    return kind <= hipMemcpyDefault || (kind == hipMemcpyDeviceToDeviceNoCU && HIP_MAJOR >= 6);
}

static int right_for_memory(const struct world *w, const struct side sides[2], hipExtent extent, hipMemcpyKind kind)
{
    for (int i = 0; i < 2; i++) {
        if (!is_known(sides[i].place) && !may_be_host(sides, i, kind))
            return hipErrorInvalidValue;
        if (!has_measures(&sides[i], extent) || (is_known(sides[i].place) && !lies_inside(w, &sides[i], extent)))
            return hipErrorInvalidValue;
    }
    return hipSuccess;
}

static int right_for_box(const struct world *w, const struct side sides[2], hipExtent extent, hipMemcpyKind kind)
{
    for (int i = 0; i < 2; i++)
        if (sides[i].array == (sides[i].place.at != NULL))
            return hipErrorInvalidValue;
    for (int i = 0; i < 2; i++)
        if (sides[i].pitched.pitch < sides[i].pitched.xsize)
            return hipErrorInvalidPitchValue;
    for (int i = 0; i < 2; i++)
        if (sides[i].pitched.pitch >= INT_MAX)
            return hipErrorInvalidValue;
    if (sides[0].array || sides[1].array)
        return hipErrorNotSupported; /* by the simulation */
    for (int i = 0; i < 2; i++)
        if (extent.width + sides[i].position.x > sides[i].pitched.pitch || is_too_small(w, &sides[i], extent))
            return hipErrorInvalidValue;
    if (!is_kind(kind))
        return hipErrorInvalidMemcpyDirection;
    if (!is_known(sides[0].place) && !is_known(sides[1].place) && kind != hipMemcpyDefault && kind != hipMemcpyHostToHost)
        return hipErrorInvalidValue;
    if (extent.width == 0 || extent.height == 0 || extent.depth == 0)
        return hipSuccess;
    return right_for_memory(w, sides, extent, kind);
}

static int right_for_flat(const struct world *w, const struct side sides[2], hipExtent extent, hipMemcpyKind kind)
{
    if (!is_kind(kind))
        return hipErrorInvalidMemcpyDirection;
    for (int i = 1; i >= 0 && HIP_MAJOR < 6; i--) {
        if (!sides[i].place.at)
            return hipErrorInvalidValue;
        if (sides[i].pitched.pitch == 0 || sides[i].pitched.pitch < extent.width)
            return hipErrorInvalidPitchValue;
    }
    if (extent.width == 0 || extent.height == 0)
        return hipSuccess;
    if (extent.width > sides[0].pitched.pitch || extent.width > sides[1].pitched.pitch)
        return hipErrorInvalidPitchValue;
    return right_for_memory(w, sides, extent, kind);
}

static void copy_expected(struct world *w, const struct side sides[2], hipExtent extent)
{
    for (size_t z = 0; z < extent.depth; z++)
        for (size_t y = 0; y < extent.height; y++)
            memmove(w->pieces[sides[0].place.piece].expected + (size_t)offset_of(&sides[0], extent, y, z),
                    w->pieces[sides[1].place.piece].expected + (size_t)offset_of(&sides[1], extent, y, z), extent.width);
}

static hipMemcpyKind some_kind(struct world *w)
{
    static const hipMemcpyKind kinds[] = {hipMemcpyDeviceToDevice, hipMemcpyDefault, hipMemcpyDeviceToDeviceNoCU,
                                          hipMemcpyHostToDevice,   hipMemcpyDeviceToHost, (hipMemcpyKind)5};
    hipMemcpyKind kind = kinds[draw(&w->seen, 4) ? draw(&w->seen, 2) : draw(&w->seen, sizeof kinds / sizeof *kinds)];
    note(&w->seen, " kind=%d", (int)kind);
    return kind;
}

/* Whether a call would read or write what is nobody's memory, which it does not notice. */
static bool is_beyond_host(const struct world *w, const struct side sides[2], hipExtent extent)
{
    for (int i = 0; i < 2; i++)
        if (!is_known(sides[i].place) && (sides[i].place.piece < 0 || !lies_inside(w, &sides[i], extent)))
            return true;
    return false;
}

static void copied(struct world *w, const struct side sides[2], hipExtent extent, bool is_done)
{
    settle(w);
    if (is_done && extent.width && extent.height && extent.depth)
        copy_expected(w, sides, extent);
    if (sides[0].place.piece >= 0)
        inspect(w, sides[0].place.piece);
}

static hipStream_t stream_that_is_there(struct world *w)
{
    unsigned which = draw(&w->seen, STREAMS + 2);
    return which < STREAMS ? w->streams[which] : which == STREAMS ? hipStreamPerThread : NULL;
}

/* Copies in 3D that name no devices, and in 2D. */
static void call_regular(struct world *w)
{
    static const char *const names[] = {"hipMemcpy3D", "hipMemcpy3DAsync", "hipMemcpy3D_spt", "hipMemcpy3DAsync_spt",
                                        "hipMemcpy2D", "hipMemcpy2DAsync", "hipMemcpy2D_spt", "hipMemcpy2DAsync_spt"};
    unsigned form = draw(&w->seen, 8);
    bool is_flat = form >= 4;
    note(&w->seen, "%s", names[form]);
    struct side sides[2] = {some_side(w, "dst"), some_side(w, "src")};
    hipMemcpyKind kind = some_kind(w);
    hipExtent extent = {some_count(w, "width", 32), some_count(w, "height", 3), is_flat ? 1 : some_count(w, "depth", 2)};
    hipStream_t stream = stream_that_is_there(w);
    for (int i = 0; i < 2 && is_flat; i++) {
        sides[i].array = false;
        sides[i].pitched.ysize = 0;
        sides[i].position = (hipPos){0};
    }
    int right = is_flat ? right_for_flat(w, sides, extent, kind) : right_for_box(w, sides, extent, kind);
    bool is_same = sides[0].place.piece >= 0 && sides[0].place.piece == sides[1].place.piece; /* no order of rows */
    bool is_empty = extent.width == 0 || extent.height == 0 || extent.depth == 0;
    if (is_same || (right == hipSuccess && !is_empty && is_beyond_host(w, sides, extent)))
        return;
    hipMemcpy3DParms p = {.dstPtr = sides[0].pitched, .dstPos = sides[0].position, .extent = extent, .kind = kind};
    p.srcPtr = sides[1].pitched;
    p.srcPos = sides[1].position;
    p.dstArray = sides[0].array ? (hipArray_t)w->freed : NULL;
    p.srcArray = sides[1].array ? (hipArray_t)w->freed : NULL;
#define FLAT p.dstPtr.ptr, p.dstPtr.pitch, p.srcPtr.ptr, p.srcPtr.pitch, extent.width, extent.height, kind
    hipError_t code = form == 0   ? hipMemcpy3D(&p)
                      : form == 1 ? hipMemcpy3DAsync(&p, stream)
                      : form == 2 ? hipMemcpy3D_spt(&p)
                      : form == 3 ? hipMemcpy3DAsync_spt(&p, stream)
                      : form == 4 ? hipMemcpy2D(FLAT)
                      : form == 5 ? hipMemcpy2DAsync(FLAT, stream)
                      : form == 6 ? hipMemcpy2D_spt(FLAT)
                                  : hipMemcpy2DAsync_spt(FLAT, stream);
    copied(w, sides, extent, answered(&w->seen, code, right, true) && right == hipSuccess);
}

#if HIP_MAJOR >= 7

/* Up to three linear copies at once. */
static void call_batch(struct world *w)
{
    struct place dsts[3], sources[3];
    void *to[3], *from[3];
    size_t count = draw(&w->seen, 4), sizes[3], failed = 7, blamed = SIZE_MAX;
    bool good = true;
    note(&w->seen, "hipMemcpyBatchAsync");
    for (size_t i = 0; i < count; i++) {
        to[i] = (dsts[i] = some_place(w, "dst")).at;
        from[i] = (sources[i] = some_place(w, "src")).at;
        sizes[i] = some_size(w, dsts[i], sources[i]);
        if (dsts[i].piece >= 0 && (dsts[i].piece == sources[i].piece || (i > 0 && dsts[i].piece == sources[0].piece)))
            return;
        if ((dsts[i].at && dsts[i].piece < 0) || (sources[i].at && sources[i].piece < 0))
            return; /* taken for host memory */
    }
    hipStream_t stream = some_stream(w, &good);
    int right = count && good ? hipSuccess : good ? hipErrorInvalidValue : hipErrorInvalidHandle;
    for (size_t i = count; i-- > 0 && right == hipSuccess;)
        if (sizes[i] == 0)
            blamed = i;
    for (size_t i = 0; i < count && right == hipSuccess && blamed == SIZE_MAX; i++) {
        bool is_host = dsts[i].piece == PAGEABLE && sources[i].piece == PAGEABLE;
        if (is_host || right_for_copy(w, dsts[i], sources[i], sizes[i]) != hipSuccess)
            right = hipErrorInvalidValue;
    }
    bool is_looked_at = count && good;
    if (blamed != SIZE_MAX)
        right = hipErrorInvalidValue;
    hipError_t code = hipMemcpyBatchAsync(to, from, sizes, count, NULL, NULL, 0, &failed, stream);
    bool done = answered(&w->seen, code, right, true) && right == hipSuccess;
    if (failed != (is_looked_at ? blamed : 7))
        is_wrong(&w->seen, "index");
    settle(w);
    for (size_t i = 0; i < count && done; i++)
        memmove(w->pieces[dsts[i].piece].expected + dsts[i].offset, w->pieces[sources[i].piece].expected + sources[i].offset,
                sizes[i]);
    for (size_t i = 0; i < count; i++)
        if (dsts[i].piece >= 0)
            inspect(w, dsts[i].piece);
}

static void call_box(struct world *w)
{
    bool async = draw(&w->seen, 2), null = draw(&w->seen, 30) == 0, good_stream = true;
    note(&w->seen, async ? "hipMemcpy3DPeerAsync" : "hipMemcpy3DPeer");
    struct side sides[2] = {some_side(w, "dst"), some_side(w, "src")};
    hipMemcpy3DPeerParms p = {.dstPtr = sides[0].pitched, .dstPos = sides[0].position};
    p.srcPtr = sides[1].pitched;
    p.srcPos = sides[1].position;
    p.dstArray = sides[0].array ? (hipArray_t)w->freed : NULL;
    p.srcArray = sides[1].array ? (hipArray_t)w->freed : NULL;
    p.dstDevice = some_ordinal(w, "dstDevice");
    p.srcDevice = some_ordinal(w, "srcDevice");
    p.extent = (hipExtent){some_count(w, "width", 32), some_count(w, "height", 3), some_count(w, "depth", 2)};
    hipStream_t stream = async ? some_stream(w, &good_stream) : NULL;
    if (sides[0].place.piece >= 0 && sides[0].place.piece == sides[1].place.piece)
        return; /* rows that overlap have no order */
    bool good_devices = is_device(p.dstDevice) && is_device(p.srcDevice);
    int right = right_for_box(w, sides, p.extent, hipMemcpyDeviceToDevice);
    if (null)
        right = hipErrorInvalidValue;
    else if (!good_devices)
        right = hipErrorInvalidDevice;
    else if (!good_stream)
        right = hipErrorContextIsDestroyed;
    note(&w->seen, "%s", null ? " NULL" : "");
    hipError_t code = async ? hipMemcpy3DPeerAsync(null ? NULL : &p, stream) : hipMemcpy3DPeer(null ? NULL : &p);
    bool done = answered(&w->seen, code, right, null || !good_devices || good_stream);
    copied(w, sides, p.extent, done && right == hipSuccess);
}

#else

static void call_box(struct world *w)
{
    call_copy(w);
}

static void call_batch(struct world *w)
{
    call_regular(w);
}

#endif

static void call_context(struct world *w)
{
    hipCtx_t context = draw(&w->seen, 4) ? w->contexts[draw(&w->seen, DEVICES)] : NULL;
    unsigned flags = draw(&w->seen, 3);
    bool enable = draw(&w->seen, 2);
    note(&w->seen, enable ? "hipCtxEnablePeerAccess flags=%u" : "hipCtxDisablePeerAccess", flags);
    answered(&w->seen, enable ? hipCtxEnablePeerAccess(context, flags) : hipCtxDisablePeerAccess(context), hipSuccess, true);
}

static void call_last_error(struct world *w)
{
    int last = w->seen.last;
    note(&w->seen, "hipGetLastError");
    int code = hipGetLastError();
    w->seen.last = hipSuccess;
    answered(&w->seen, code, last, false);
}

/* ---- a sequence ---- */

static void begin(struct world *w)
{
    w->current = w->number;
    for (int piece = 0; piece < PIECES; piece++) {
        struct memory *memory = &w->pieces[piece];
        void *at = NULL;
        memory->size = piece == LARGE_OF_0 ? LARGE : piece == PAGEABLE ? HOST : SIZE;
        memory->expected = malloc(memory->size);
        REQUIRE(memory->expected);
        fill(memory->expected, memory->size, draw(&w->seen, 1000));
        CHECK(hipSetDevice(piece < DEVICES ? piece : 0));
        if (piece == PAGEABLE)
            REQUIRE((at = malloc(memory->size)));
        else if (piece == PINNED)
            CHECK(hipHostMalloc(&at, memory->size, 0));
        else
            CHECK(hipMalloc(&at, memory->size));
        memory->at = at;
        if (piece == PAGEABLE)
            memcpy(at, memory->expected, memory->size);
        else
            CHECK(hipMemcpy(at, memory->expected, memory->size, hipMemcpyDefault));
    }
    for (int i = 0; i < STREAMS; i++) {
        CHECK(hipSetDevice(i < DEVICES ? i : 0));
        CHECK(hipStreamCreateWithFlags(&w->streams[i], i < DEVICES ? 0 : hipStreamNonBlocking));
    }
    for (int device = 0; device < DEVICES; device++)
        CHECK(hipDevicePrimaryCtxRetain(&w->contexts[device], device));
    CHECK(hipStreamCreate(&w->gone));
    CHECK(hipStreamDestroy(w->gone));
    /* Freed when nobody allocates any more, but the shim, for a verification: more than fits in between. */
    CHECK(hipMalloc((void **)&w->freed, SIZE));
    CHECK(hipMalloc((void **)&w->behind, SIZE));
    pthread_barrier_wait(&phase);
    CHECK(hipFree(w->freed));
    pthread_barrier_wait(&phase);
    (void)hipGetLastError();
    w->seen.last = hipSuccess;
}

static void end(struct world *w)
{
    settle(w);
    CHECK(hipFree(w->behind));
    for (int piece = 0; piece < PIECES; piece++) {
        inspect(w, piece);
        if (piece == PAGEABLE)
            free(w->pieces[piece].at);
        else
            CHECK(piece == PINNED ? hipHostFree(w->pieces[piece].at) : hipFree(w->pieces[piece].at));
        free(w->pieces[piece].expected);
    }
    for (int i = 0; i < STREAMS; i++)
        CHECK(hipStreamDestroy(w->streams[i]));
}

static void *run(void *argument)
{
    struct world *w = argument;
    static void (*const calls[])(struct world *) = {
        call_copy,    call_copy,    call_copy,  call_copy,   call_box,    call_box,     call_regular, call_regular,
        call_regular, call_regular, call_batch, call_enable, call_enable, call_disable, call_can,     call_attribute,
        call_context, call_last_error,
    };
    begin(w);
    for (w->calls = 0; w->calls < CALLS; w->calls++) {
        move_to(w, draw(&w->seen, 4) ? w->current : (int)draw(&w->seen, DEVICES));
        ONE_OF(w, calls)(w);
        note(&w->seen, "\n");
        for (int piece = 0; piece < PIECES && w->calls % INTERVAL == 0; piece++)
            inspect(w, piece);
    }
    pthread_barrier_wait(&phase);
    end(w);
    return NULL;
}

static void sequence(unsigned seed)
{
    static struct world worlds[THREADS];
    pthread_t threads[THREADS];
    int count = seed % 8 == 7 ? THREADS : 1, calls = 0;
    bool wrong = false, last_wrong = false;
    uint64_t sum = 0;
    memset(worlds, 0, sizeof worlds);
    REQUIRE(pthread_barrier_init(&phase, NULL, (unsigned)count) == 0);
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
        calls += worlds[i].calls;
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
    printf("sequence %u: %016llx, %d calls%s%s\n", seed, (unsigned long long)sum, calls, wrong ? " WRONG" : "",
           last_wrong ? " LAST" : "");
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
