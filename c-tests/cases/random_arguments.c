/* build: runtime old driver; run: random_arguments FIRST COUNT [steps] [wild] on sim
 * Peer calls of both layers with arguments drawn from a seed: good ones, those at the edge and bad ones. Copies in all
 * forms, enabling and disabling, queries. After each call its answer, its outputs and the runtime's last error go into a
 * checksum, and so does all memory now and then; one line a sequence shows it. Two runs print the same.
 *
 * The sequences are FIRST to FIRST + COUNT - 1. steps: a line for each call as well, with the rules that p2pshim finds broken, if it is there. wild: parameters of 3D
 * copies at addresses where nothing is too, which no library survives that looks at them.
 *
 * A sequence says WRONG if a copy that succeeded moved something else than it was asked for, or one that was refused moved
 * anything; LAST if the runtime's last error is not what the call answered. In one sequence of eight, four threads share
 * the devices, each with memory, streams and contexts of its own, so that no answer depends on who comes first.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <limits.h>

#include "../../include/p2pshim.h"
#include "check.h"
#include "lib/copy_forms.h"
#include "lib/devices.h"
#include "lib/random.h"

enum {
    CALLS = 200, /* of a sequence */
    DEVICES = 4,
    SIZE = 5000, /* no multiple of what allocations are rounded up to, so that nothing begins where one ends */
    LARGE = 70000,
    EDGE = 4096, /* of mapped memory, so much is looked at, at either end */
    STREAMS = 6,
    ARRAYS = 4,
    INTERVAL = 25, /* calls after which all memory is looked at */
};

/* One piece of memory each. */
enum piece {
    OF_DEVICE,                        /* one a device */
    OF_CONTEXT = OF_DEVICE + DEVICES, /* of a context that was created */
    OF_POOL,
    OF_OTHER_POOL,
    MAPPED,
    MAPPED_NO_RIGHTS,
    PINNED,
    PAGEABLE, /* only a box of the driver can have it */
    PIECES,
};

struct buffer {
    CUdeviceptr at;
    size_t size;
    int device; /* -1: of the host */
};

/* What one thread has. */
struct world {
    bool was_none;
    struct buffer pieces[PIECES];
    CUdeviceptr unmapped, reserved[2]; /* addresses set aside; some of them were memory once */
    CUmemoryPool pool;
    CUcontext created, destroyed;
    int created_on;
    CUstream streams[STREAMS], gone_stream;
    cudaArray_t arrays[ARRAYS], gone_array; /* of the sizes and devices below */
};

static struct world worlds[MOST_PARTS];
static _Thread_local struct world *world;

static const struct {
    int device, bits;
} array_kinds[ARRAYS] = {{0, 32}, {1, 32}, {1, 8}, {2, 32}};

/* Of arrays, in elements of 4 bytes, and of boxes. */
enum { WIDTH = 16, HEIGHT = 8, SLICES = 3 };

static bool wild;
static void *nowhere; /* a page that cannot be read */
static __typeof__(&p2pshim_findings_get) findings_get;
static const struct {
    const char *id, *severity;
    int runtime_code, driver_code;
} rules[] = {
#include "finding_rules.h"
};
enum { RULES = sizeof rules / sizeof *rules };

/* ---- memory ---- */

/* How much of a piece is looked at: mapped memory is large. */
static size_t looked_at(const struct buffer *piece)
{
    return piece->size == GRANULE ? EDGE : piece->size;
}

static bool is_seen(int piece)
{
    return piece != MAPPED_NO_RIGHTS && world->pieces[piece].at;
}

static void read_piece(int piece, unsigned char *bytes, bool from_end)
{
    const struct buffer *from = &world->pieces[piece];
    size_t count = looked_at(from);
    read_memory(from->device, bytes, from->at + (from_end ? from->size - count : 0), count);
}

/* Takes all that a copy could have written to into the sum. */
static void fold_all(void)
{
    static _Thread_local unsigned char bytes[LARGE];
    for (int piece = 0; piece < PIECES; piece++)
        for (int from_end = 0; from_end < 2 && is_seen(piece); from_end++) {
            read_piece(piece, bytes, from_end);
            fold_bytes(bytes, looked_at(&world->pieces[piece]));
        }
    for (int i = 0; i < ARRAYS; i++) {
        size_t row = WIDTH * 4, rows = HEIGHT * SLICES;
        struct cudaMemcpy3DParms p = {.srcArray = world->arrays[i], .kind = cudaMemcpyDeviceToHost};
        p.dstPtr = (struct cudaPitchedPtr){bytes, row, row, HEIGHT};
        p.extent = (struct cudaExtent){row * 8 / (size_t)array_kinds[i].bits, HEIGHT, SLICES};
        enter(contexts[array_kinds[i].device]);
        CHECK(cudaMemcpy3D(&p));
        leave();
        fold_bytes(bytes, row * rows);
    }
    note(" memory %016llx", (unsigned long long)mine->sum);
}

static void fill_piece(int piece)
{
    static _Thread_local unsigned char bytes[LARGE];
    struct buffer *to = &world->pieces[piece];
    size_t count = looked_at(to);
    REQUIRE(to->at);
    fill(bytes, count, draw(1000));
    write_memory(to->device, to->at, bytes, count);
    write_memory(to->device, to->at + to->size - count, bytes, count);
}

static void allocate(int piece)
{
    struct buffer *buffer = &world->pieces[piece];
    buffer->size = piece < 2 ? LARGE : SIZE;
    buffer->device = piece < OF_CONTEXT ? piece : world->created_on;
    enter(piece < OF_CONTEXT ? contexts[piece] : world->created);
    CHECK_CU(cuMemAlloc(&buffer->at, buffer->size));
    leave();
    fill_piece(piece);
}

static void allocate_from_pools(void)
{
    int device_of_pool = (int)draw(DEVICES);
    CHECK_CU(new_pool(&world->pool, device_of_pool));
    for (int piece = OF_POOL; piece <= OF_OTHER_POOL; piece++) {
        struct buffer *buffer = &world->pieces[piece];
        buffer->size = SIZE;
        buffer->device = piece == OF_POOL ? device_of_pool : (int)draw(DEVICES);
        enter(contexts[buffer->device]);
        CHECK_CU(piece == OF_POOL ? cuMemAllocFromPoolAsync(&buffer->at, SIZE, world->pool, NULL)
                                  : cuMemAllocAsync(&buffer->at, SIZE, NULL));
        CHECK_CU(cuCtxSynchronize());
        leave();
        fill_piece(piece);
    }
}

/* Behind each, and in place of one of them, addresses stay set aside: they are no memory, and will never be. */
static void map(void)
{
    for (int i = 0; i < 2; i++) {
        struct buffer *buffer = &world->pieces[MAPPED + i];
        CUmemGenericAllocationHandle physical;
        buffer->device = (int)draw(DEVICES);
        buffer->size = GRANULE;
        CHECK_CU(cuMemAddressReserve(&world->reserved[i], 4 * (size_t)GRANULE, 0, 0, 0));
        CHECK_CU(new_physical(&physical, buffer->device, GRANULE));
        /* Was memory, and is none any more. */
        world->unmapped = world->reserved[i] + 2 * (size_t)GRANULE;
        CHECK_CU(cuMemMap(world->unmapped, GRANULE, 0, physical, 0));
        CHECK_CU(cuMemUnmap(world->unmapped, GRANULE));
        CHECK_CU(cuMemMap(world->reserved[i], GRANULE, 0, physical, 0));
        buffer->at = world->reserved[i];
        if (i == 0) {
            CHECK_CU(grant_mapping(buffer->at, GRANULE, buffer->device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
            fill_piece(MAPPED);
        }
        CHECK_CU(cuMemRelease(physical));
    }
}

static void make_array(int which)
{
    int bits = array_kinds[which].bits;
    struct cudaChannelFormatDesc format = {.x = bits, .f = cudaChannelFormatKindUnsigned};
    struct cudaExtent extent = {.width = WIDTH * 32 / (size_t)bits, .height = HEIGHT, .depth = SLICES};
    struct cudaMemcpy3DParms p = {.kind = cudaMemcpyHostToDevice};
    unsigned char bytes[WIDTH * 4 * HEIGHT * SLICES];
    fill(bytes, sizeof bytes, draw(1000));
    enter(contexts[array_kinds[which].device]);
    CHECK(cudaMalloc3DArray(&world->arrays[which], &format, extent, 0));
    p.dstArray = world->arrays[which];
    p.srcPtr = (struct cudaPitchedPtr){bytes, WIDTH * 4, WIDTH * 4, HEIGHT};
    p.extent = extent;
    CHECK(cudaMemcpy3D(&p));
    leave();
}

static void drop_array(int which)
{
    enter(contexts[array_kinds[which].device]);
    CHECK(cudaFreeArray(world->arrays[which]));
    leave();
    world->gone_array = world->arrays[which];
}

/* One a device, one of the created context, and one that does not wait for device 0's default stream. */
static void make_stream(int which)
{
    enter(which < DEVICES ? contexts[which] : which == DEVICES ? world->created : contexts[0]);
    CHECK_CU(cuStreamCreate(&world->streams[which], which > DEVICES || draw(3) == 0 ? CU_STREAM_NON_BLOCKING : 0));
    leave();
}

/* Waits for everything that a copy may have been put in order with. */
static void settle(void)
{
    synchronize_all();
    synchronize(world->created);
}

/* ---- arguments ---- */

#define ONE_OF(array) ((array)[draw(sizeof(array) / sizeof *(array))])

/* A memory that a copy begins in: which piece it is, if it is one, and where in it. */
struct place {
    CUdeviceptr at;
    int piece; /* -1 for none */
    size_t offset;
};

static const struct place no_place = {.piece = -1};

static struct place some_place(const char *name)
{
    static const CUdeviceptr odd[] = {1, 0x10, 0xdeadb000, 1ull << 47, ~0ull, ~0ull - 4096, 0x7fffffffffff};
    int piece = draw(5) ? (int)draw(OF_OTHER_POOL + 1) : (int)draw(PIECES);
    struct buffer *buffer = &world->pieces[piece];
    struct place place = {.piece = -1};
    switch (draw(24)) {
    case 0:
        note(" %s=NULL", name);
        return place;
    case 1: {
        unsigned which = draw(sizeof odd / sizeof *odd);
        note(" %s=odd %u", name, which);
        place.at = odd[which];
        return place;
    }
    case 2:
        note(" %s=unmapped", name);
        place.at = world->unmapped + draw(2) * 8;
        return place;
    case 3:
        note(" %s=stack", name);
        place.at = (CUdeviceptr)&world->pieces;
        return place;
    case 4:
        place.offset = buffer->size;
        break;
    case 5:
        place.offset = buffer->size - 1;
        break;
    case 6:
    case 7:
        place.offset = draw(SIZE - 1);
        break;
    case 8:
        if (mine->is_alone && piece < OF_POOL) {
            /* Freed, and nothing has been allocated since. */
            enter(piece < OF_CONTEXT ? contexts[piece] : world->created);
            CHECK_CU(cuMemFree(buffer->at));
            leave();
            note(" %s=piece %d, freed", name, piece);
            place.at = buffer->at;
            buffer->at = 0;
            return place;
        }
        break;
    default:
        break;
    }
    if (!buffer->at) {
        note(" %s=NULL", name);
        return place;
    }
    note(" %s=piece %d+%zu", name, piece, place.offset);
    place.piece = place.offset < buffer->size ? piece : -1;
    place.at = buffer->at + place.offset;
    return place;
}

static int device_of(const struct place *place)
{
    int device = place->piece < 0 ? -1 : world->pieces[place->piece].device;
    return device < 0 ? (int)draw(DEVICES) : device;
}

static int some_ordinal(const char *name, int right)
{
    static const int bad[] = {-1, DEVICES, DEVICES + 1, 99, INT_MAX, INT_MIN};
    int ordinal = draw(3) ? right : draw(2) ? (int)draw(DEVICES) : ONE_OF(bad);
    note(" %s=%d", name, ordinal);
    return ordinal;
}

static CUcontext some_context(const char *name, int device)
{
    switch (draw(12)) {
    case 0:
        note(" %s=NULL", name);
        return NULL;
    case 1:
        note(" %s=created", name);
        return world->created;
    case 2:
        if (mine->is_alone) {
            note(" %s=destroyed", name);
            return world->destroyed;
        }
        break;
    case 3:
        note(" %s=garbage", name);
        return (CUcontext)world->pieces[PAGEABLE].at;
    case 4:
        device = (int)draw(DEVICES);
        break;
    default:
        break;
    }
    note(" %s=primary %d", name, device);
    return contexts[device];
}

static CUstream some_stream(void)
{
    unsigned which = draw(24);
    if (which < 3) {
        note(" stream=%u", which);
        return (CUstream)(uintptr_t)which;
    }
    if (which == 3 && world->gone_stream) {
        note(" stream=destroyed");
        return world->gone_stream;
    }
    if (which == 4) {
        note(" stream=garbage");
        return (CUstream)world->pieces[PAGEABLE].at;
    }
    which = draw(STREAMS);
    note(" stream=of %u", which);
    return world->streams[which];
}

static size_t some_size(size_t right)
{
    const size_t sizes[] = {0, 1, 4, right, right, right, right, right + 1, 2 * right, (size_t)1 << 40, SIZE_MAX};
    size_t size = draw(4) ? ONE_OF(sizes) : 1 + draw(SIZE);
    note(" size=%zu", size);
    return size;
}

/* A field with another value: at the edge, or far beyond. */
static size_t spoilt(const char *name, size_t right)
{
    const size_t values[] = {0, 1, right - 1, right + 1, right * 2, right / 2, 8, SIZE, 1 << 20, (size_t)1 << 31, (size_t)1 << 40,
                             SIZE_MAX, SIZE_MAX / 2 + 1};
    size_t value = ONE_OF(values);
    note(" %s=%zu", name, value);
    return value;
}

static unsigned some_flags(void)
{
    static const unsigned flags[] = {0, 0, 0, 0, 0, 1, 2, UINT_MAX};
    unsigned drawn = ONE_OF(flags);
    note(" flags=%u", drawn);
    return drawn;
}

static cudaArray_t some_array(const char *name)
{
    if (world->gone_array && draw(8) == 0) {
        note(" %s=destroyed", name);
        return world->gone_array;
    }
    unsigned which = draw(ARRAYS);
    note(" %s=%u", name, which);
    return world->arrays[which];
}

/* ---- calls ---- */

/* A copy between pointers, to be looked at when it has succeeded: memory of two pieces, before. */
struct side {
    size_t at, pitch, rows;
};

struct moved {
    int src, dst; /* -1: nothing to look at */
    struct side from, to;
    size_t width, height, depth;
    unsigned char src_before[LARGE], dst_before[LARGE];
};

static _Thread_local struct moved moved;

static bool is_whole(int piece)
{
    return piece >= 0 && is_seen(piece) && world->pieces[piece].size != GRANULE;
}

/* Takes note of what is there before a copy, of one in four. */
static void expect(const struct place *dst, struct side to, const struct place *src, struct side from, size_t width, size_t height, size_t depth)
{
    moved.src = moved.dst = -1;
    if (draw(4) || !is_whole(src->piece) || !is_whole(dst->piece) || src->piece == dst->piece)
        return;
    moved.src = src->piece;
    moved.dst = dst->piece;
    moved.from = from;
    moved.to = to;
    moved.from.at += src->offset;
    moved.to.at += dst->offset;
    moved.width = width;
    moved.height = height;
    moved.depth = depth;
    read_piece(moved.src, moved.src_before, false);
    read_piece(moved.dst, moved.dst_before, false);
}

static void look_at_moved(bool has_succeeded)
{
    static _Thread_local unsigned char now[LARGE];
    struct moved *m = &moved;
    settle();
    if (m->src < 0)
        return;
    read_piece(m->dst, now, false);
    size_t rows = has_succeeded && m->width ? m->height * m->depth : 0;
    for (size_t row = 0; row < rows; row++) {
        size_t y = row % m->height, z = row / m->height;
        memcpy(m->dst_before + m->to.at + (z * m->to.rows + y) * m->to.pitch,
               m->src_before + m->from.at + (z * m->from.rows + y) * m->from.pitch, m->width);
    }
    if (memcmp(now, m->dst_before, world->pieces[m->dst].size) != 0)
        is_wrong("bytes");
}

static void read_times(uint64_t *times)
{
    for (size_t i = 0; findings_get && i < RULES; i++)
        REQUIRE(findings_get(rules[i].id, &times[i]) == P2PSHIM_OK);
}

/* The rules that have spoken since: with threads, any thread's. */
static void note_rules(const uint64_t *before)
{
    uint64_t now[RULES];
    read_times(now);
    for (size_t i = 0; findings_get && i < RULES; i++)
        if (now[i] != before[i])
            note(" [%s %s %d %d]", rules[i].id, rules[i].severity, rules[i].runtime_code, rules[i].driver_code);
}

/* Takes note of what a call has answered, and looks at the last error. */
static void answered(bool runtime, int code)
{
    int peeked = cudaPeekAtLastError();
    bool right = peeked == (runtime && code ? code : mine->last);
    note(" = %d, last %d", code, peeked);
    fold((uint64_t)code << 32 | (uint64_t)peeked);
    mine->last = peeked;
    if (draw(4)) {
        right &= (int)cudaGetLastError() == peeked && cudaGetLastError() == cudaSuccess;
        mine->last = 0;
    }
    if (!right)
        note(" LAST");
    mine->last_wrong |= !right;
}

/* A call and all around it. A failed call that enables or disables does so by design. */
#define MAKE(runtime, name, ...) \
    do { \
        uint64_t before_[RULES]; \
        note(" %s", name); \
        if (mine->log) \
            read_times(before_); \
        code = (int)(__VA_ARGS__); \
        mine->calls++; \
        answered(runtime, code); \
        if (mine->log) \
            note_rules(before_); \
    } while (0)

static void enable_or_disable(void)
{
    int code = 0;
    /* What other threads copy directly meanwhile would end with 719, and its context with it. */
    bool runtime = draw(2), enables = draw(3) || !mine->is_alone;
    int device = mine->is_alone ? (int)draw(DEVICES) : mine->number;
    /* With threads, each answers for its own device. */
    unsigned where = draw(8);
    if (runtime)
        CHECK(cudaSetDevice(device));
    else
        CHECK_CU(cuCtxSetCurrent(where == 0 ? NULL : where == 1 ? world->created : contexts[device]));
    world->was_none = !runtime && where == 0;
    note("on %s %d:", !runtime && where == 0 ? "none" : !runtime && where == 1 ? "created" : "primary", device);
    settle();
    if (runtime) {
        int peer = some_ordinal("peer", (int)draw(DEVICES));
        unsigned flags = some_flags();
        if (enables)
            MAKE(true, "cudaDeviceEnablePeerAccess", cudaDeviceEnablePeerAccess(peer, flags));
        else
            MAKE(true, "cudaDeviceDisablePeerAccess", cudaDeviceDisablePeerAccess(peer));
    } else {
        CUcontext peer = some_context("peer", (int)draw(DEVICES));
        unsigned flags = some_flags();
        if (enables)
            MAKE(false, "cuCtxEnablePeerAccess", cuCtxEnablePeerAccess(peer, flags));
        else
            MAKE(false, "cuCtxDisablePeerAccess", cuCtxDisablePeerAccess(peer));
    }
    (void)code;
}

static void query(void)
{
    static const int attributes[] = {-1, 0, 1, 2, 3, 4, 5, 6, 77, INT_MAX};
    int value = -7, code = 0;
    int *out = draw(8) ? &value : NULL;
    bool runtime = draw(2), is_attribute = draw(2);
    int attribute = ONE_OF(attributes);
    note(" out=%s attribute=%d", out ? "&value" : "NULL", attribute);
    int from = some_ordinal("from", (int)draw(DEVICES)), to = some_ordinal("to", (int)draw(DEVICES));
    if (runtime && is_attribute)
        MAKE(true, "cudaDeviceGetP2PAttribute",
             cudaDeviceGetP2PAttribute(out, (enum cudaDeviceP2PAttr)attribute, from, to));
    else if (runtime)
        MAKE(true, "cudaDeviceCanAccessPeer", cudaDeviceCanAccessPeer(out, from, to));
    else if (is_attribute)
        MAKE(false, "cuDeviceGetP2PAttribute",
             cuDeviceGetP2PAttribute(out, (CUdevice_P2PAttribute)attribute, from, to));
    else
        MAKE(false, "cuDeviceCanAccessPeer", cuDeviceCanAccessPeer(out, from, to));
    (void)code;
    fold((uint64_t)value);
    note(" -> %d", value);
}

/* What is current when a copy is made: anything. */
static void stand(void)
{
    unsigned where = draw(12);
    world->was_none = where == 0;
    if (where == 0)
        CHECK_CU(cuCtxSetCurrent(NULL));
    else if (where == 1)
        CHECK_CU(cuCtxSetCurrent(world->created));
    else if (where < 6)
        CHECK_CU(cuCtxSetCurrent(contexts[mine->is_alone ? (int)draw(DEVICES) : mine->number]));
    note("current %s:", where == 0 ? "none" : where == 1 ? "created" : where < 6 ? "changed" : "same");
}

static size_t left_of(const struct place *place)
{
    return place->piece < 0 ? SIZE : world->pieces[place->piece].size - place->offset;
}

/* A copy, with what may be expected of it. */
static void make_transfer(const struct transfer *t)
{
    int code = 0;
    MAKE(is_of_runtime(t->form), forms[t->form].name, make(t));
    look_at_moved(code == 0);
}

static void copy_linear(void)
{
    static const enum form linear[] = {BY_cudaMemcpyPeer, BY_cudaMemcpyPeerAsync, BY_cuMemcpyPeer, BY_cuMemcpyPeerAsync, BY_cuMemcpyPeer_ptds,
                                       BY_cuMemcpyPeerAsync_ptsz};
    struct transfer t = {.form = ONE_OF(linear), .rows = 1, .slices = 1};
    stand();
    struct place src = some_place("src"), dst = some_place("dst");
    size_t left = left_of(&src) < left_of(&dst) ? left_of(&src) : left_of(&dst);
    t.dst = dst.at;
    t.src = src.at;
    t.width = some_size(left);
    t.src_device = device_of(&src);
    t.dst_device = device_of(&dst);
    if (is_of_runtime(t.form)) {
        t.src_device = some_ordinal("srcDevice", t.src_device);
        t.dst_device = some_ordinal("dstDevice", t.dst_device);
    } else {
        t.src_context = some_context("srcContext", t.src_device);
        t.dst_context = some_context("dstContext", t.dst_device);
    }
    t.stream = is_async(t.form) ? some_stream() : NULL;
    expect(&dst, (struct side){0}, &src, (struct side){0}, t.width, 1, 1);
    make_transfer(&t);
}

/* Rows of a box as far as memory goes: twice as far apart as they are long. */
enum { ROW = WIDTH * 4, PITCH = 2 * ROW };

/* What lies behind a piece is anybody's: a box begins inside of it, or far beyond all memory. */
static void stay_inside(const struct place *place, size_t *x, size_t *y, size_t *z, size_t pitch, size_t rows)
{
    const unsigned __int128 far = (unsigned __int128)1 << 39;
    unsigned __int128 start = ((unsigned __int128)*z * rows + *y) * pitch + *x;
    if (start >= far || (place->piece >= 0 && start < left_of(place)))
        return;
    *x = *y = *z = 0;
}

/* The parameters of a copy, or none. */
static const void *some_parameters(const void *right)
{
    switch (draw(32)) {
    case 0:
        note(" p=NULL");
        return NULL;
    case 1:
        if (!wild)
            return right;
        note(" p=wild");
        return draw(2) ? nowhere : (void *)0x10;
    default:
        return right;
    }
}

/* A field of the parameters of a copy, and its name. */
struct field {
    const char *name;
    size_t *at;
};

#define FIELD(name) {#name, &p.name}

/* Half of all copies have one or two of them that are wrong. */
static void spoil(const struct field *fields, unsigned count)
{
    for (unsigned i = draw(2) ? 0 : 1 + draw(2); i > 0; i--) {
        const struct field *field = &fields[draw(count)];
        *field->at = spoilt(field->name, *field->at);
    }
}

static void copy_3d_by_runtime(void)
{
    static const enum form boxes[] = {BY_cudaMemcpy3DPeer, BY_cudaMemcpy3DPeerAsync, BY_cudaMemcpy3DPeer_ptds, BY_cudaMemcpy3DPeerAsync_ptsz};
    struct transfer t = {.form = ONE_OF(boxes), .has_given = true};
    unsigned arrays = draw(8);
    stand();
    struct place src = some_place("src"), dst = some_place("dst");
    struct cudaMemcpy3DPeerParms p = {0};
    const struct field fields[] = {
        FIELD(srcPos.x),      FIELD(srcPos.y),      FIELD(srcPos.z),     FIELD(dstPos.x),      FIELD(dstPos.y),      FIELD(dstPos.z),
        FIELD(srcPtr.pitch),  FIELD(srcPtr.xsize),  FIELD(srcPtr.ysize), FIELD(dstPtr.pitch),  FIELD(dstPtr.xsize),  FIELD(dstPtr.ysize),
        FIELD(extent.width),  FIELD(extent.height), FIELD(extent.depth), FIELD(extent.width),  FIELD(extent.height), FIELD(extent.depth),
    };
    p.srcDevice = some_ordinal("srcDevice", device_of(&src));
    p.dstDevice = some_ordinal("dstDevice", device_of(&dst));
    p.srcPtr = (struct cudaPitchedPtr){(void *)src.at, PITCH, ROW, HEIGHT};
    p.dstPtr = (struct cudaPitchedPtr){(void *)dst.at, PITCH, ROW, HEIGHT};
    p.extent = (struct cudaExtent){ROW, HEIGHT, SLICES};
    if (arrays < 2 || arrays == 4) {
        p.srcArray = some_array("srcArray");
        p.srcPtr.ptr = arrays == 4 ? p.srcPtr.ptr : NULL;
    }
    if (arrays == 1 || arrays == 2 || arrays == 5) {
        p.dstArray = some_array("dstArray");
        p.dstPtr.ptr = arrays == 5 ? p.dstPtr.ptr : NULL;
    }
    if (p.srcArray || p.dstArray)
        p.extent.width = WIDTH;
    bool is_plain = !p.srcArray && !p.dstArray;
    spoil(fields, sizeof fields / sizeof *fields);
    stay_inside(&src, &p.srcPos.x, &p.srcPos.y, &p.srcPos.z, p.srcPtr.pitch, p.srcPtr.ysize);
    stay_inside(&dst, &p.dstPos.x, &p.dstPos.y, &p.dstPos.z, p.dstPtr.pitch, p.dstPtr.ysize);
    t.given = some_parameters(&p);
    t.stream = is_async(t.form) ? some_stream() : NULL;
    struct side from = {(p.srcPos.z * p.srcPtr.ysize + p.srcPos.y) * p.srcPtr.pitch + p.srcPos.x, p.srcPtr.pitch, p.srcPtr.ysize};
    struct side to = {(p.dstPos.z * p.dstPtr.ysize + p.dstPos.y) * p.dstPtr.pitch + p.dstPos.x, p.dstPtr.pitch, p.dstPtr.ysize};
    expect(is_plain && t.given == &p ? &dst : &no_place, to, &src, from, p.extent.width, p.extent.height, p.extent.depth);
    make_transfer(&t);
}

/* Of one side. */
static CUmemorytype some_type(const char *name)
{
    static const int types[] = {CU_MEMORYTYPE_DEVICE,  CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_DEVICE,  CU_MEMORYTYPE_DEVICE,
                                CU_MEMORYTYPE_UNIFIED, CU_MEMORYTYPE_ARRAY,  CU_MEMORYTYPE_UNIFIED, CU_MEMORYTYPE_HOST,
                                CU_MEMORYTYPE_DEVICE,  CU_MEMORYTYPE_DEVICE, 0,                     5,
                                99};
    int type = draw(2) ? CU_MEMORYTYPE_DEVICE : ONE_OF(types);
    note(" %sType=%d", name, type);
    return (CUmemorytype)type;
}

static bool is_any(CUmemorytype type)
{
    return type == CU_MEMORYTYPE_HOST || type == CU_MEMORYTYPE_UNIFIED;
}

/* Where the rows and slices of a side lie: one after another, if it does not say. */
static size_t pitch_of(const CUDA_MEMCPY3D_PEER *p, size_t pitch)
{
    return pitch == 0 && (p->Height > 1 || p->Depth > 1) ? p->WidthInBytes : pitch;
}

static size_t rows_of(const CUDA_MEMCPY3D_PEER *p, size_t rows)
{
    return rows == 0 && p->Depth > 1 ? p->Height : rows;
}

/* Pageable memory is as large as a copy says, and what no library knows is pageable memory to it. */
static bool may_be_pageable(const CUDA_MEMCPY3D_PEER *p, const struct place *place, struct side side)
{
    const unsigned __int128 slices = (unsigned __int128)(p->Depth - 1) * side.rows;
    if (place->at == 0 || p->WidthInBytes == 0 || p->Height == 0 || p->Depth == 0)
        return true;
    if (place->piece < 0 || side.at >= left_of(place))
        return false;
    if (place->piece != PAGEABLE)
        return true;
    return p->Depth < SIZE && p->Height < SIZE && p->WidthInBytes < SIZE && side.pitch < SIZE && side.rows < SIZE
           && side.at + (slices + p->Height - 1) * side.pitch + p->WidthInBytes <= left_of(place);
}

static void copy_3d_by_driver(void)
{
    static const enum form boxes[] = {BY_cuMemcpy3DPeer, BY_cuMemcpy3DPeerAsync, BY_cuMemcpy3DPeer_ptds, BY_cuMemcpy3DPeerAsync_ptsz};
    struct transfer t = {.form = ONE_OF(boxes), .has_given = true};
    stand();
    struct place src = some_place("src"), dst = some_place("dst");
    CUDA_MEMCPY3D_PEER p = {0};
    const struct field fields[] = {
        FIELD(srcXInBytes), FIELD(srcY),      FIELD(srcZ),     FIELD(srcLOD),    FIELD(dstXInBytes),  FIELD(dstY),
        FIELD(dstZ),        FIELD(dstLOD),    FIELD(srcPitch), FIELD(srcHeight), FIELD(dstPitch),     FIELD(dstHeight),
        FIELD(Height),      FIELD(WidthInBytes), FIELD(Depth), FIELD(Height),    FIELD(WidthInBytes), FIELD(Depth),
    };
    p.srcMemoryType = some_type("src");
    p.dstMemoryType = some_type("dst");
    p.srcDevice = src.at;
    p.dstDevice = dst.at;
    if (p.srcMemoryType == CU_MEMORYTYPE_HOST)
        p.srcHost = (void *)src.at;
    if (p.dstMemoryType == CU_MEMORYTYPE_HOST)
        p.dstHost = (void *)dst.at;
    if (p.srcMemoryType == CU_MEMORYTYPE_ARRAY)
        p.srcArray = draw(8) ? (CUarray)some_array("srcArray") : NULL;
    if (p.dstMemoryType == CU_MEMORYTYPE_ARRAY)
        p.dstArray = draw(8) ? (CUarray)some_array("dstArray") : NULL;
    p.srcContext = some_context("srcContext", device_of(&src));
    p.dstContext = some_context("dstContext", device_of(&dst));
    p.srcPitch = p.dstPitch = PITCH;
    p.srcHeight = p.dstHeight = p.Height = HEIGHT;
    p.WidthInBytes = ROW;
    p.Depth = SLICES;
    bool is_plain = p.srcMemoryType == CU_MEMORYTYPE_DEVICE && p.dstMemoryType == CU_MEMORYTYPE_DEVICE;
    spoil(fields, sizeof fields / sizeof *fields);
    struct side from = {.pitch = pitch_of(&p, p.srcPitch), .rows = rows_of(&p, p.srcHeight)};
    struct side to = {.pitch = pitch_of(&p, p.dstPitch), .rows = rows_of(&p, p.dstHeight)};
    stay_inside(&src, &p.srcXInBytes, &p.srcY, &p.srcZ, from.pitch, from.rows);
    stay_inside(&dst, &p.dstXInBytes, &p.dstY, &p.dstZ, to.pitch, to.rows);
    from.at = (p.srcZ * from.rows + p.srcY) * from.pitch + p.srcXInBytes;
    to.at = (p.dstZ * to.rows + p.dstY) * to.pitch + p.dstXInBytes;
    if (is_any(p.srcMemoryType) && !may_be_pageable(&p, &src, from)) {
        note(" srcType=device");
        p.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    }
    if (is_any(p.dstMemoryType) && !may_be_pageable(&p, &dst, to)) {
        note(" dstType=device");
        p.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    }
    t.given = some_parameters(&p);
    t.stream = is_async(t.form) ? some_stream() : NULL;
    expect(is_plain && t.given == &p ? &dst : &no_place, to, &src, from, p.WidthInBytes, p.Height, p.Depth);
    make_transfer(&t);
}

/* ---- sequences ---- */

/* After calls without one. A call of the runtime makes one current, if it gets so far before it fails. */
static void make_one_current(void)
{
    CUcontext context = NULL;
    if (world->was_none)
        CHECK_CU(cuCtxSetCurrent(contexts[mine->number]));
    world->was_none = false;
    CHECK_CU(cuCtxGetCurrent(&context));
    REQUIRE(context);
}

/* Handles that end, and are given again. */
static void renew(void)
{
    int which;
    switch (draw(3)) {
    case 0:
        which = (int)draw(STREAMS);
        CHECK_CU(cuStreamDestroy(world->streams[which]));
        world->gone_stream = world->streams[which];
        make_stream(which);
        break;
    case 1:
        which = (int)draw(ARRAYS);
        drop_array(which);
        make_array(which);
        break;
    default:
        for (int piece = 0; piece < OF_POOL; piece++)
            if (!world->pieces[piece].at)
                allocate(piece);
    }
}

static void step(void)
{
    unsigned which = draw(100);
    if (draw(16) == 0)
        renew();
    note("  %d.%d ", mine->number, mine->calls);
    if (which < 35)
        copy_linear();
    else if (which < 60)
        copy_3d_by_runtime();
    else if (which < 80)
        copy_3d_by_driver();
    else if (which < 90)
        enable_or_disable();
    else
        query();
    make_one_current();
    if (mine->calls % INTERVAL == 0) {
        fold_all();
    }
    note("\n");
}

static void take(void)
{
    int calls = mine->is_alone ? CALLS : CALLS / MOST_PARTS;
    world = &worlds[mine->number];
    CHECK(cudaSetDevice(mine->number));
    cudaGetLastError();
    while (mine->calls < calls)
        step();
}

static void begin(void)
{
    CHECK(cudaSetDevice(0));
    world = &worlds[mine->number];
    memset(world, 0, sizeof *world);
    world->created_on = mine->is_alone ? (int)draw(DEVICES) : mine->number;
    CHECK_CU(cuCtxCreate_v2(&world->created, 0, world->created_on));
    leave();
    for (int piece = 0; piece < OF_POOL; piece++)
        allocate(piece);
    allocate_from_pools();
    map();
    world->pieces[PINNED] = world->pieces[PAGEABLE] = (struct buffer){.size = SIZE, .device = -1};
    enter(contexts[0]);
    CHECK_CU(cuMemAllocHost((void **)&world->pieces[PINNED].at, SIZE));
    leave();
    REQUIRE((world->pieces[PAGEABLE].at = (CUdeviceptr)malloc(SIZE)));
    fill_piece(PINNED);
    fill_piece(PAGEABLE);
    for (int i = 0; i < ARRAYS; i++)
        make_array(i);
    for (int i = 0; i < STREAMS; i++)
        make_stream(i);
    if (mine->is_alone) {
        /* The last that was made, so that nothing takes its place. */
        CHECK_CU(cuCtxCreate_v2(&world->destroyed, 0, 0));
        CHECK_CU(cuCtxDestroy(world->destroyed));
    }
}

static void end(void)
{
    world = &worlds[mine->number];
    settle();
    for (int i = 0; i < ARRAYS; i++)
        drop_array(i);
    for (int i = 0; i < STREAMS; i++)
        CHECK_CU(cuStreamDestroy(world->streams[i]));
    for (int i = 0; i < 2; i++) {
        CHECK_CU(cuMemUnmap(world->pieces[MAPPED + i].at, GRANULE));
        CHECK_CU(cuMemAddressFree(world->reserved[i], 4 * (size_t)GRANULE));
    }
    for (int piece = 0; piece <= OF_OTHER_POOL; piece++) {
        if (!world->pieces[piece].at)
            continue;
        enter(piece == OF_CONTEXT ? world->created : contexts[world->pieces[piece].device]);
        CHECK_CU(cuMemFree(world->pieces[piece].at));
        leave();
    }
    CHECK_CU(cuMemPoolDestroy(world->pool));
    enter(contexts[0]);
    CHECK_CU(cuMemFreeHost((void *)world->pieces[PINNED].at));
    leave();
    free((void *)world->pieces[PAGEABLE].at);
    CHECK_CU(cuCtxDestroy(world->created));
}

static void finish(void)
{
    for (int device = 0; device < DEVICES; device++) {
        CHECK(cudaSetDevice(device));
        for (int peer = 0; peer < DEVICES; peer++)
            cudaDeviceDisablePeerAccess(peer);
    }
    cudaGetLastError();
}

int main(int argc, char **argv)
{
    static const struct program program = {.one_in = 8, .begin = begin, .take = take, .end = end, .finish = finish};
    *(void **)&findings_get = dlsym(RTLD_DEFAULT, "p2pshim_findings_get");
    wild = has_word(argc, argv, "wild");
    count_devices(DEVICES);
    REQUIRE(devices == DEVICES);
    find_contexts();
    REQUIRE((nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) != MAP_FAILED);
    return take_sequences(argc, argv, &program);
}
