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
#include "random.h"

#include <limits.h>

enum {
    CALLS = 100, /* of a sequence */
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

static _Thread_local struct {
    struct memory pieces[PIECES];
    unsigned char *freed;
    unsigned char *behind;
    hipStream_t streams[STREAMS], gone; /* one a device, and one that does not wait */
    hipCtx_t contexts[DEVICES];
} world;
static const int bad_ordinals[] = {-1, DEVICES, DEVICES + 1, 99, INT_MAX, INT_MIN};

static int some_ordinal(const char *name)
{
    int ordinal = draw(5) ? (int)draw(DEVICES) : ONE_OF(bad_ordinals);
    note(" %s=%d", name, ordinal);
    return ordinal;
}

static void inspect_piece(int piece)
{
    const struct memory *memory = &world.pieces[piece];
    inspect(memory->at, memory->expected, memory->size);
}

/* Where a copy begins: in a piece, at nothing, or where nothing is any more. */
struct place {
    unsigned char *at;
    int piece; /* -1 for none */
    size_t offset;
};

static struct place some_place(const char *name)
{
    struct place place = {.piece = (int)draw(PIECES)};
    const struct memory *memory = &world.pieces[place.piece];
    switch (draw(20)) {
    case 0:
        note(" %s=NULL", name);
        return (struct place){.piece = -1};
    case 1:
        note(" %s=freed", name);
        return (struct place){.at = world.freed, .piece = -1};
    case 2:
        if (place.piece < PINNED) {
            note(" %s=end of %d", name, place.piece);
            return (struct place){.at = memory->at + memory->size, .piece = -1};
        }
        break;
    case 3:
        place.offset = draw(SIZE);
        break;
    case 4:
        place.offset = SIZE - 1;
        break;
    default:
        break;
    }
    place.at = memory->at + place.offset;
    note(" %s=%d+%zu", name, place.piece, place.offset);
    return place;
}

/* Memory that HIP knows. */
static bool is_known(struct place place)
{
    return place.piece >= 0 && place.piece != PAGEABLE;
}

static size_t room(struct place place)
{
    return world.pieces[place.piece].size - place.offset;
}

static size_t some_size(struct place dst, struct place src)
{
    size_t size = 1 + draw(SIZE);
    size_t of_dst = dst.piece < 0 ? SIZE : room(dst), of_src = src.piece < 0 ? SIZE : room(src);
    size_t most = of_dst < of_src ? of_dst : of_src;
    switch (draw(10)) {
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
        size = ONE_OF(((const size_t[]){SIZE_MAX, SIZE_MAX - SIZE, (size_t)1 << 63, (size_t)1 << 32, HOST}));
        break;
    default:
        size = size > most ? most : size;
        break;
    }
    note(" size=%zu", size);
    return size;
}

/* ---- streams ---- */

static hipStream_t some_stream(bool *good)
{
    unsigned which = draw(STREAMS + 6);
    *good = true;
    if (which < STREAMS) {
        note(" stream=%u", which);
        return world.streams[which];
    }
    if (which == STREAMS) {
        note(" stream=gone");
        *good = false;
        return world.gone;
    }
    if (which == STREAMS + 1) {
        note(" stream=legacy");
        *good = HIP_MAJOR >= 7;
        return hipStreamLegacy;
    }
    if (which == STREAMS + 2) {
        note(" stream=per thread");
        return hipStreamPerThread;
    }
    return NULL;
}

/* ---- calls ---- */

static void call_enable(void)
{
    move_home();
    int peer = some_ordinal("peer");
    enable(peer, draw(8) ? 0 : ONE_OF(((const unsigned[]){1, 2, UINT_MAX, 1u << 31})));
}

static void call_disable(void)
{
    move_home();
    disable(some_ordinal("peer"));
}

static void call_can(void)
{
    int from = some_ordinal("device"), to = draw(8) ? some_ordinal("peer") : from;
    ask(from, to, draw(10) == 0);
}

static void call_attribute(void)
{
    note("hipDeviceGetP2PAttribute");
    int from = some_ordinal("src"), to = some_ordinal("dst"), out = -7, right = hipSuccess;
    bool null = draw(10) == 0;
    unsigned attribute = draw(5) ? draw(4) : ONE_OF(((const unsigned[]){4, 5, 99, UINT_MAX}));
    if (null)
        right = hipErrorInvalidValue;
    else if (from == to || from >= DEVICES || to >= DEVICES)
        right = hipErrorInvalidDevice;
    else if (attribute > hipDevP2PAttrHipArrayAccessSupported)
        right = hipErrorInvalidValue;
    else if (!is_device(from) || !is_device(to))
        right = hipErrorInvalidDevice;
    note(" attribute=%u%s", attribute, null ? " to NULL" : "");
    answered(hipDeviceGetP2PAttribute(null ? NULL : &out, (hipDeviceP2PAttr)attribute, from, to), right, true);
    if (right == hipSuccess && attribute == hipDevP2PAttrPerformanceRank)
        fold((unsigned)out); /* the type of the link, which is not ours to know */
    else
        check_output(out, right != hipSuccess ? -7 : path[from][to]);
}

static int right_for_copy(struct place dst, struct place src, size_t size)
{
    if (size == 0)
        return hipSuccess;
    if (!dst.at || !src.at || (!is_known(dst) && !is_known(src)) || dst.piece < 0 || src.piece < 0)
        return hipErrorInvalidValue;
    if ((is_known(dst) && size > room(dst)) || (is_known(src) && size > room(src)))
        return hipErrorInvalidValue;
    return hipSuccess;
}

static void call_copy(void)
{
    bool async = draw(2), good_stream = true;
    note(async ? "hipMemcpyPeerAsync" : "hipMemcpyPeer");
    struct place dst = some_place("dst"), src = some_place("src");
    int dst_device = draw(3) || dst.piece >= DEVICES || dst.piece < 0 ? some_ordinal("dstDevice") : dst.piece;
    int src_device = draw(3) || src.piece >= DEVICES || src.piece < 0 ? some_ordinal("srcDevice") : src.piece;
    size_t size = some_size(dst, src);
    hipStream_t stream = async ? some_stream(&good_stream) : NULL;
    bool good_devices = is_device(dst_device) && is_device(src_device);
    int right = right_for_copy(dst, src, size);
    if (!good_devices)
        right = hipErrorInvalidDevice;
    else if (!good_stream)
        right = hipErrorContextIsDestroyed;
    hipError_t code = async ? hipMemcpyPeerAsync(dst.at, dst_device, src.at, src_device, size, stream)
                            : hipMemcpyPeer(dst.at, dst_device, src.at, src_device, size);
    bool done = answered(code, right, good_stream || !good_devices);
    settle();
    if (done && right == hipSuccess && size > 0)
        memmove(world.pieces[dst.piece].expected + dst.offset, world.pieces[src.piece].expected + src.offset, size);
    if (dst.piece >= 0)
        inspect_piece(dst.piece);
}

struct side {
    struct place place;
    hipPitchedPtr pitched;
    hipPos position;
    bool array;
};

static size_t some_count(const char *name, size_t usual)
{
    size_t count = usual;
    if (draw(12) == 0)
        count = ONE_OF(((const size_t[]){0, 1, usual + 1, usual * 2, SIZE, INT_MAX, SIZE_MAX, (size_t)1 << 63}));
    if (count != usual)
        note(" %s=%zu", name, count);
    return count;
}

static struct side some_side(const char *name)
{
    struct side side = {.place = some_place(name), .array = draw(40) == 0};
    side.pitched.ptr = side.place.at;
    side.pitched.pitch = some_count("pitch", 64);
    side.pitched.xsize = some_count("xsize", 32);
    side.pitched.ysize = some_count("ysize", 5);
    side.position.x = some_count("x", draw(8));
    side.position.y = some_count("y", draw(2));
    side.position.z = some_count("z", draw(2));
    return side;
}

/* By the measures of the pointer, which need not be those of the memory. */
static bool is_too_small(const struct side *side, hipExtent extent)
{
    size_t width = side->pitched.xsize, rows = side->pitched.ysize, slice = width * rows;
    if (!is_known(side->place) || slice == 0)
        return false;
    size_t slices = world.pieces[side->place.piece].size / slice;
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

static bool lies_inside(const struct side *side, hipExtent extent)
{
    /* So large that the offset would not fit; nothing has that room. */
    if (side->position.z > HOST || side->position.y > HOST || extent.depth > HOST || extent.height > HOST)
        return false;
    return offset_of(side, extent, extent.height - 1, extent.depth - 1) + extent.width <= world.pieces[side->place.piece].size;
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

static int right_for_memory(const struct side sides[2], hipExtent extent, hipMemcpyKind kind)
{
    for (int i = 0; i < 2; i++) {
        if (!is_known(sides[i].place) && !may_be_host(sides, i, kind))
            return hipErrorInvalidValue;
        if (!has_measures(&sides[i], extent) || (is_known(sides[i].place) && !lies_inside(&sides[i], extent)))
            return hipErrorInvalidValue;
    }
    return hipSuccess;
}

static int right_for_box(const struct side sides[2], hipExtent extent, hipMemcpyKind kind)
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
        if (extent.width + sides[i].position.x > sides[i].pitched.pitch || is_too_small(&sides[i], extent))
            return hipErrorInvalidValue;
    if (!is_kind(kind))
        return hipErrorInvalidMemcpyDirection;
    if (!is_known(sides[0].place) && !is_known(sides[1].place) && kind != hipMemcpyDefault && kind != hipMemcpyHostToHost)
        return hipErrorInvalidValue;
    if (extent.width == 0 || extent.height == 0 || extent.depth == 0)
        return hipSuccess;
    return right_for_memory(sides, extent, kind);
}

static int right_for_flat(const struct side sides[2], hipExtent extent, hipMemcpyKind kind)
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
    return right_for_memory(sides, extent, kind);
}

static void copy_expected(const struct side sides[2], hipExtent extent)
{
    for (size_t z = 0; z < extent.depth; z++)
        for (size_t y = 0; y < extent.height; y++)
            memmove(world.pieces[sides[0].place.piece].expected + (size_t)offset_of(&sides[0], extent, y, z),
                    world.pieces[sides[1].place.piece].expected + (size_t)offset_of(&sides[1], extent, y, z), extent.width);
}

static hipMemcpyKind some_kind(void)
{
    static const hipMemcpyKind kinds[] = {hipMemcpyDeviceToDevice, hipMemcpyDefault, hipMemcpyDeviceToDeviceNoCU,
                                          hipMemcpyHostToDevice,   hipMemcpyDeviceToHost, (hipMemcpyKind)5};
    hipMemcpyKind kind = kinds[draw(4) ? draw(2) : draw(sizeof kinds / sizeof *kinds)];
    note(" kind=%d", (int)kind);
    return kind;
}

/* Whether a call would read or write what is nobody's memory, which it does not notice. */
static bool is_beyond_host(const struct side sides[2], hipExtent extent)
{
    for (int i = 0; i < 2; i++)
        if (!is_known(sides[i].place) && (sides[i].place.piece < 0 || !lies_inside(&sides[i], extent)))
            return true;
    return false;
}

static void copied(const struct side sides[2], hipExtent extent, bool is_done)
{
    settle();
    if (is_done && extent.width && extent.height && extent.depth)
        copy_expected(sides, extent);
    if (sides[0].place.piece >= 0)
        inspect_piece(sides[0].place.piece);
}

static hipStream_t stream_that_is_there(void)
{
    unsigned which = draw(STREAMS + 2);
    return which < STREAMS ? world.streams[which] : which == STREAMS ? hipStreamPerThread : NULL;
}

/* Copies in 3D that name no devices, and in 2D. */
static void call_regular(void)
{
    static const char *const names[] = {"hipMemcpy3D", "hipMemcpy3DAsync", "hipMemcpy3D_spt", "hipMemcpy3DAsync_spt",
                                        "hipMemcpy2D", "hipMemcpy2DAsync", "hipMemcpy2D_spt", "hipMemcpy2DAsync_spt"};
    unsigned form = draw(8);
    bool is_flat = form >= 4;
    note("%s", names[form]);
    struct side sides[2] = {some_side("dst"), some_side("src")};
    hipMemcpyKind kind = some_kind();
    hipExtent extent = {some_count("width", 32), some_count("height", 3), is_flat ? 1 : some_count("depth", 2)};
    hipStream_t stream = stream_that_is_there();
    for (int i = 0; i < 2 && is_flat; i++) {
        sides[i].array = false;
        sides[i].pitched.ysize = 0;
        sides[i].position = (hipPos){0};
    }
    int right = is_flat ? right_for_flat(sides, extent, kind) : right_for_box(sides, extent, kind);
    bool is_same = sides[0].place.piece >= 0 && sides[0].place.piece == sides[1].place.piece; /* no order of rows */
    bool is_empty = extent.width == 0 || extent.height == 0 || extent.depth == 0;
    if (is_same || (right == hipSuccess && !is_empty && is_beyond_host(sides, extent)))
        return;
    hipMemcpy3DParms p = {.dstPtr = sides[0].pitched, .dstPos = sides[0].position, .extent = extent, .kind = kind};
    p.srcPtr = sides[1].pitched;
    p.srcPos = sides[1].position;
    p.dstArray = sides[0].array ? (hipArray_t)world.freed : NULL;
    p.srcArray = sides[1].array ? (hipArray_t)world.freed : NULL;
#define FLAT p.dstPtr.ptr, p.dstPtr.pitch, p.srcPtr.ptr, p.srcPtr.pitch, extent.width, extent.height, kind
    hipError_t code = form == 0   ? hipMemcpy3D(&p)
                      : form == 1 ? hipMemcpy3DAsync(&p, stream)
                      : form == 2 ? hipMemcpy3D_spt(&p)
                      : form == 3 ? hipMemcpy3DAsync_spt(&p, stream)
                      : form == 4 ? hipMemcpy2D(FLAT)
                      : form == 5 ? hipMemcpy2DAsync(FLAT, stream)
                      : form == 6 ? hipMemcpy2D_spt(FLAT)
                                  : hipMemcpy2DAsync_spt(FLAT, stream);
    copied(sides, extent, answered(code, right, true) && right == hipSuccess);
}

#if HIP_MAJOR >= 7

/* Up to three linear copies at once. */
static void call_batch(void)
{
    struct place dsts[3], sources[3];
    void *to[3], *from[3];
    size_t count = draw(4), sizes[3], failed = 7, blamed = SIZE_MAX;
    bool good = true;
    note("hipMemcpyBatchAsync");
    for (size_t i = 0; i < count; i++) {
        to[i] = (dsts[i] = some_place("dst")).at;
        from[i] = (sources[i] = some_place("src")).at;
        sizes[i] = some_size(dsts[i], sources[i]);
        if (dsts[i].piece >= 0 && (dsts[i].piece == sources[i].piece || (i > 0 && dsts[i].piece == sources[0].piece)))
            return;
        if ((dsts[i].at && dsts[i].piece < 0) || (sources[i].at && sources[i].piece < 0))
            return; /* taken for host memory */
    }
    hipStream_t stream = some_stream(&good);
    int right = count && good ? hipSuccess : good ? hipErrorInvalidValue : hipErrorInvalidHandle;
    for (size_t i = count; i-- > 0 && right == hipSuccess;)
        if (sizes[i] == 0)
            blamed = i;
    for (size_t i = 0; i < count && right == hipSuccess && blamed == SIZE_MAX; i++) {
        bool is_host = dsts[i].piece == PAGEABLE && sources[i].piece == PAGEABLE;
        if (is_host || right_for_copy(dsts[i], sources[i], sizes[i]) != hipSuccess)
            right = hipErrorInvalidValue;
    }
    bool is_looked_at = count && good;
    if (blamed != SIZE_MAX)
        right = hipErrorInvalidValue;
    hipError_t code = hipMemcpyBatchAsync(to, from, sizes, count, NULL, NULL, 0, &failed, stream);
    bool done = answered(code, right, true) && right == hipSuccess;
    if (failed != (is_looked_at ? blamed : 7))
        is_wrong("index");
    settle();
    for (size_t i = 0; i < count && done; i++)
        memmove(world.pieces[dsts[i].piece].expected + dsts[i].offset, world.pieces[sources[i].piece].expected + sources[i].offset,
                sizes[i]);
    for (size_t i = 0; i < count; i++)
        if (dsts[i].piece >= 0)
            inspect_piece(dsts[i].piece);
}

static void call_box(void)
{
    bool async = draw(2), null = draw(30) == 0, good_stream = true;
    note(async ? "hipMemcpy3DPeerAsync" : "hipMemcpy3DPeer");
    struct side sides[2] = {some_side("dst"), some_side("src")};
    hipMemcpy3DPeerParms p = {.dstPtr = sides[0].pitched, .dstPos = sides[0].position};
    p.srcPtr = sides[1].pitched;
    p.srcPos = sides[1].position;
    p.dstArray = sides[0].array ? (hipArray_t)world.freed : NULL;
    p.srcArray = sides[1].array ? (hipArray_t)world.freed : NULL;
    p.dstDevice = some_ordinal("dstDevice");
    p.srcDevice = some_ordinal("srcDevice");
    p.extent = (hipExtent){some_count("width", 32), some_count("height", 3), some_count("depth", 2)};
    hipStream_t stream = async ? some_stream(&good_stream) : NULL;
    if (sides[0].place.piece >= 0 && sides[0].place.piece == sides[1].place.piece)
        return; /* rows that overlap have no order */
    bool good_devices = is_device(p.dstDevice) && is_device(p.srcDevice);
    int right = right_for_box(sides, p.extent, hipMemcpyDeviceToDevice);
    if (null)
        right = hipErrorInvalidValue;
    else if (!good_devices)
        right = hipErrorInvalidDevice;
    else if (!good_stream)
        right = hipErrorContextIsDestroyed;
    note("%s", null ? " NULL" : "");
    hipError_t code = async ? hipMemcpy3DPeerAsync(null ? NULL : &p, stream) : hipMemcpy3DPeer(null ? NULL : &p);
    bool done = answered(code, right, null || !good_devices || good_stream);
    copied(sides, p.extent, done && right == hipSuccess);
}

#else

static void call_box(void)
{
    call_copy();
}

static void call_batch(void)
{
    call_regular();
}

#endif

static void call_context(void)
{
    hipCtx_t context = draw(4) ? world.contexts[draw(DEVICES)] : NULL;
    unsigned flags = draw(3);
    bool enable = draw(2);
    note(enable ? "hipCtxEnablePeerAccess flags=%u" : "hipCtxDisablePeerAccess", flags);
    answered(enable ? hipCtxEnablePeerAccess(context, flags) : hipCtxDisablePeerAccess(context), hipSuccess, true);
}

/* ---- a sequence ---- */

static void begin(void)
{
    current = mine->number;
    for (int piece = 0; piece < PIECES; piece++) {
        struct memory *memory = &world.pieces[piece];
        void *at = NULL;
        memory->size = piece == LARGE_OF_0 ? LARGE : piece == PAGEABLE ? HOST : SIZE;
        memory->expected = malloc(memory->size);
        REQUIRE(memory->expected);
        fill(memory->expected, memory->size, draw(1000));
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
        CHECK(hipStreamCreateWithFlags(&world.streams[i], i < DEVICES ? 0 : hipStreamNonBlocking));
    }
    for (int device = 0; device < DEVICES; device++)
        CHECK(hipDevicePrimaryCtxRetain(&world.contexts[device], device));
    CHECK(hipStreamCreate(&world.gone));
    CHECK(hipStreamDestroy(world.gone));
    /* Freed when nobody allocates any more, but the shim, for a verification: more than fits in between. */
    CHECK(hipMalloc((void **)&world.freed, SIZE));
    CHECK(hipMalloc((void **)&world.behind, SIZE));
    pthread_barrier_wait(&all_parts);
    CHECK(hipFree(world.freed));
    pthread_barrier_wait(&all_parts);
    forget_last_error();
}

static void end(void)
{
    settle();
    CHECK(hipFree(world.behind));
    for (int piece = 0; piece < PIECES; piece++) {
        inspect_piece(piece);
        if (piece == PAGEABLE)
            free(world.pieces[piece].at);
        else
            CHECK(piece == PINNED ? hipHostFree(world.pieces[piece].at) : hipFree(world.pieces[piece].at));
        free(world.pieces[piece].expected);
    }
    for (int i = 0; i < STREAMS; i++)
        CHECK(hipStreamDestroy(world.streams[i]));
}

static void run(void)
{
    static void (*const calls[])(void) = {
        call_copy,    call_copy,    call_copy,  call_copy,   call_box,    call_box,     call_regular, call_regular,
        call_regular, call_regular, call_batch, call_enable, call_enable, call_disable, call_can,     call_attribute,
        call_context, call_last_error,
    };
    begin();
    for (; mine->calls < CALLS; mine->calls++) {
        move_to(draw(4) ? current : (int)draw(DEVICES));
        ONE_OF(calls)();
        note("\n");
        for (int piece = 0; piece < PIECES && mine->calls % INTERVAL == 0; piece++)
            inspect_piece(piece);
    }
    pthread_barrier_wait(&all_parts);
    end();
}

int main(int argc, char **argv)
{
    return take_hip_sequences(argc, argv, 8, run);
}
