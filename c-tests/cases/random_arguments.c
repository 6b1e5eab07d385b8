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
#define _GNU_SOURCE
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#include "../../include/p2pshim.h"
#include "check.h"

enum {
    CALLS = 200, /* of a sequence */
    THREADS = 4,
    DEVICES = 4,
    SIZE = 5000, /* no multiple of what allocations are rounded up to, so that nothing begins where one ends */
    LARGE = 70000,
    GRANULE = 2 << 20,
    EDGE = 4096, /* of mapped memory, so much is looked at, at either end */
    STREAMS = 6,
    ARRAYS = 4,
    INTERVAL = 25, /* calls after which all memory is looked at */
    MOST_RULES = 256,
};

/* In every driver and runtime; the headers of some releases hide them or rename them. */
CUresult cuCtxCreate_v2(CUcontext *, unsigned int, CUdevice);
__typeof__(cudaMemcpy3DPeer) cudaMemcpy3DPeer_ptds;
__typeof__(cudaMemcpy3DPeerAsync) cudaMemcpy3DPeerAsync_ptsz;
__typeof__(cuMemcpyPeer) cuMemcpyPeer_ptds;
__typeof__(cuMemcpyPeerAsync) cuMemcpyPeerAsync_ptsz;
__typeof__(cuMemcpy3DPeer) cuMemcpy3DPeer_ptds;
__typeof__(cuMemcpy3DPeerAsync) cuMemcpy3DPeerAsync_ptsz;

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
    int number, calls;
    bool alone, was_none, wrong, last_wrong;
    uint64_t state, sum;
    struct buffer pieces[PIECES];
    CUdeviceptr unmapped, reserved[2]; /* addresses set aside; some of them were memory once */
    CUmemoryPool pool;
    CUcontext created, destroyed;
    int created_on;
    CUstream streams[STREAMS], gone_stream;
    cudaArray_t arrays[ARRAYS], gone_array; /* of the sizes and devices below */
    int left;                               /* what should be in the last-error slot */
    FILE *log;
    char *text;
    size_t length;
};

static const struct {
    int device, bits;
} array_kinds[ARRAYS] = {{0, 32}, {1, 32}, {1, 8}, {2, 32}};

/* Of arrays, in elements of 4 bytes, and of boxes. */
enum { WIDTH = 16, ROWS = 8, SLICES = 3 };

static CUcontext primaries[DEVICES];
static bool logging, wild;
static void *nowhere; /* a page that cannot be read */
static p2pshim_status_t (*rule_get)(size_t, p2pshim_rule_t *);
static size_t rules;

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

__attribute__((format(printf, 2, 3))) static void note(struct world *w, const char *format, ...)
{
    va_list arguments;
    if (!w->log)
        return;
    va_start(arguments, format);
    vfprintf(w->log, format, arguments);
    va_end(arguments);
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

/* ---- memory ---- */

/* How much of a piece is looked at: mapped memory is large. */
static size_t looked_at(const struct buffer *piece)
{
    return piece->size == GRANULE ? EDGE : piece->size;
}

static bool is_seen(const struct world *w, int piece)
{
    return piece != MAPPED_NO_RIGHTS && w->pieces[piece].at;
}

static void read_piece(struct world *w, int piece, unsigned char *bytes, bool from_end)
{
    const struct buffer *from = &w->pieces[piece];
    size_t count = looked_at(from), offset = from_end ? from->size - count : 0;
    if (from->device < 0) {
        memcpy(bytes, (void *)(from->at + offset), count);
        return;
    }
    enter(primaries[from->device]);
    CHECK_CU(cuMemcpyDtoH(bytes, from->at + offset, count));
    leave();
}

static uint64_t sum_of(const unsigned char *bytes, size_t count)
{
    uint64_t sum = 0xcbf29ce484222325u, word;
    for (; count >= sizeof word; count -= sizeof word, bytes += sizeof word) {
        memcpy(&word, bytes, sizeof word);
        sum = (sum ^ word) * 0x100000001b3u;
    }
    for (; count > 0; count--)
        sum = (sum ^ *bytes++) * 0x100000001b3u;
    return sum;
}

/* All that a copy could have written to. */
static uint64_t sum_of_all(struct world *w)
{
    static _Thread_local unsigned char bytes[LARGE];
    uint64_t sum = 0;
    for (int piece = 0; piece < PIECES; piece++) {
        if (!is_seen(w, piece))
            continue;
        for (int from_end = 0; from_end < 2; from_end++) {
            read_piece(w, piece, bytes, from_end);
            sum = sum * 31 + sum_of(bytes, looked_at(&w->pieces[piece]));
        }
    }
    for (int i = 0; i < ARRAYS; i++) {
        size_t row = WIDTH * 4, rows = ROWS * SLICES;
        struct cudaMemcpy3DParms p = {.srcArray = w->arrays[i], .kind = cudaMemcpyDeviceToHost};
        p.dstPtr = (struct cudaPitchedPtr){bytes, row, row, ROWS};
        p.extent = (struct cudaExtent){row * 8 / (size_t)array_kinds[i].bits, ROWS, SLICES};
        enter(primaries[array_kinds[i].device]);
        CHECK(cudaMemcpy3D(&p));
        leave();
        sum = sum * 31 + sum_of(bytes, row * rows);
    }
    return sum;
}

static void fill_piece(struct world *w, int piece)
{
    static _Thread_local unsigned char bytes[LARGE];
    struct buffer *to = &w->pieces[piece];
    REQUIRE(to->at);
    fill(bytes, looked_at(to), draw(w, 1000));
    if (to->device < 0) {
        memcpy((void *)to->at, bytes, looked_at(to));
        return;
    }
    enter(primaries[to->device]);
    CHECK_CU(cuMemcpyHtoD(to->at, bytes, looked_at(to)));
    CHECK_CU(cuMemcpyHtoD(to->at + to->size - looked_at(to), bytes, looked_at(to)));
    leave();
}

static void allocate(struct world *w, int piece)
{
    struct buffer *buffer = &w->pieces[piece];
    buffer->size = piece < 2 ? LARGE : SIZE;
    buffer->device = piece < OF_CONTEXT ? piece : w->created_on;
    enter(piece < OF_CONTEXT ? primaries[piece] : w->created);
    CHECK_CU(cuMemAlloc(&buffer->at, buffer->size));
    leave();
    fill_piece(w, piece);
}

static void allocate_from_pools(struct world *w)
{
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    properties.location.id = (int)draw(w, DEVICES);
    CHECK_CU(cuMemPoolCreate(&w->pool, &properties));
    for (int piece = OF_POOL; piece <= OF_OTHER_POOL; piece++) {
        struct buffer *buffer = &w->pieces[piece];
        buffer->size = SIZE;
        buffer->device = piece == OF_POOL ? properties.location.id : (int)draw(w, DEVICES);
        enter(primaries[buffer->device]);
        CHECK_CU(piece == OF_POOL ? cuMemAllocFromPoolAsync(&buffer->at, SIZE, w->pool, NULL)
                                  : cuMemAllocAsync(&buffer->at, SIZE, NULL));
        CHECK_CU(cuCtxSynchronize());
        leave();
        fill_piece(w, piece);
    }
}

/* Behind each, and in place of one of them, addresses stay set aside: they are no memory, and will never be. */
static void map(struct world *w)
{
    for (int i = 0; i < 2; i++) {
        struct buffer *buffer = &w->pieces[MAPPED + i];
        CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                          .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
        CUmemGenericAllocationHandle physical;
        buffer->device = properties.location.id = (int)draw(w, DEVICES);
        buffer->size = GRANULE;
        CUmemAccessDesc access = {.location = properties.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        CHECK_CU(cuMemAddressReserve(&w->reserved[i], 4 * (size_t)GRANULE, 0, 0, 0));
        CHECK_CU(cuMemCreate(&physical, GRANULE, &properties, 0));
        /* Was memory, and is none any more. */
        w->unmapped = w->reserved[i] + 2 * (size_t)GRANULE;
        CHECK_CU(cuMemMap(w->unmapped, GRANULE, 0, physical, 0));
        CHECK_CU(cuMemUnmap(w->unmapped, GRANULE));
        CHECK_CU(cuMemMap(w->reserved[i], GRANULE, 0, physical, 0));
        buffer->at = w->reserved[i];
        if (i == 0) {
            CHECK_CU(cuMemSetAccess(buffer->at, GRANULE, &access, 1));
            fill_piece(w, MAPPED);
        }
        CHECK_CU(cuMemRelease(physical));
    }
}

static void make_array(struct world *w, int which)
{
    int bits = array_kinds[which].bits;
    struct cudaChannelFormatDesc format = {.x = bits, .f = cudaChannelFormatKindUnsigned};
    struct cudaExtent extent = {.width = WIDTH * 32 / (size_t)bits, .height = ROWS, .depth = SLICES};
    struct cudaMemcpy3DParms p = {.kind = cudaMemcpyHostToDevice};
    unsigned char bytes[WIDTH * 4 * ROWS * SLICES];
    fill(bytes, sizeof bytes, draw(w, 1000));
    enter(primaries[array_kinds[which].device]);
    CHECK(cudaMalloc3DArray(&w->arrays[which], &format, extent, 0));
    p.dstArray = w->arrays[which];
    p.srcPtr = (struct cudaPitchedPtr){bytes, WIDTH * 4, WIDTH * 4, ROWS};
    p.extent = extent;
    CHECK(cudaMemcpy3D(&p));
    leave();
}

static void drop_array(struct world *w, int which)
{
    enter(primaries[array_kinds[which].device]);
    CHECK(cudaFreeArray(w->arrays[which]));
    leave();
    w->gone_array = w->arrays[which];
}

/* One a device, one of the created context, and one that does not wait for device 0's default stream. */
static void make_stream(struct world *w, int which)
{
    enter(which < DEVICES ? primaries[which] : which == DEVICES ? w->created : primaries[0]);
    CHECK_CU(cuStreamCreate(&w->streams[which], which > DEVICES || draw(w, 3) == 0 ? CU_STREAM_NON_BLOCKING : 0));
    leave();
}

/* Waits for everything that a copy may have been put in order with. */
static void settle(struct world *w)
{
    for (int device = 0; device <= DEVICES; device++) {
        enter(device < DEVICES ? primaries[device] : w->created);
        CHECK_CU(cuCtxSynchronize());
        leave();
    }
}

/* ---- arguments ---- */

#define ONE_OF(w, array) ((array)[draw(w, sizeof(array) / sizeof *(array))])

/* A memory that a copy begins in: which piece it is, if it is one, and where in it. */
struct place {
    CUdeviceptr at;
    int piece; /* -1 for none */
    size_t offset;
};

static struct place some_place(struct world *w, const char *name)
{
    static const CUdeviceptr odd[] = {1, 0x10, 0xdeadb000, 1ull << 47, ~0ull, ~0ull - 4096, 0x7fffffffffff};
    int piece = draw(w, 5) ? (int)draw(w, OF_OTHER_POOL + 1) : (int)draw(w, PIECES);
    struct buffer *buffer = &w->pieces[piece];
    struct place place = {.piece = -1};
    switch (draw(w, 24)) {
    case 0:
        note(w, " %s=NULL", name);
        return place;
    case 1: {
        unsigned which = draw(w, sizeof odd / sizeof *odd);
        note(w, " %s=odd %u", name, which);
        place.at = odd[which];
        return place;
    }
    case 2:
        note(w, " %s=unmapped", name);
        place.at = w->unmapped + draw(w, 2) * 8;
        return place;
    case 3:
        note(w, " %s=stack", name);
        place.at = (CUdeviceptr)w;
        return place;
    case 4:
        place.offset = buffer->size;
        break;
    case 5:
        place.offset = buffer->size - 1;
        break;
    case 6:
    case 7:
        place.offset = draw(w, SIZE - 1);
        break;
    case 8:
        if (w->alone && piece < OF_POOL) {
            /* Freed, and nothing has been allocated since. */
            enter(piece < OF_CONTEXT ? primaries[piece] : w->created);
            CHECK_CU(cuMemFree(buffer->at));
            leave();
            note(w, " %s=piece %d, freed", name, piece);
            place.at = buffer->at;
            buffer->at = 0;
            return place;
        }
        break;
    default:
        break;
    }
    if (!buffer->at) {
        note(w, " %s=NULL", name);
        return place;
    }
    note(w, " %s=piece %d+%zu", name, piece, place.offset);
    place.piece = place.offset < buffer->size ? piece : -1;
    place.at = buffer->at + place.offset;
    return place;
}

static int device_of(struct world *w, const struct place *place)
{
    int device = place->piece < 0 ? -1 : w->pieces[place->piece].device;
    return device < 0 ? (int)draw(w, DEVICES) : device;
}

static int some_ordinal(struct world *w, const char *name, int right)
{
    static const int bad[] = {-1, DEVICES, DEVICES + 1, 99, INT_MAX, INT_MIN};
    int ordinal = draw(w, 3) ? right : draw(w, 2) ? (int)draw(w, DEVICES) : ONE_OF(w, bad);
    note(w, " %s=%d", name, ordinal);
    return ordinal;
}

static CUcontext some_context(struct world *w, const char *name, int device)
{
    switch (draw(w, 12)) {
    case 0:
        note(w, " %s=NULL", name);
        return NULL;
    case 1:
        note(w, " %s=created", name);
        return w->created;
    case 2:
        if (w->alone) {
            note(w, " %s=destroyed", name);
            return w->destroyed;
        }
        break;
    case 3:
        note(w, " %s=garbage", name);
        return (CUcontext)w->pieces[PAGEABLE].at;
    case 4:
        device = (int)draw(w, DEVICES);
        break;
    default:
        break;
    }
    note(w, " %s=primary %d", name, device);
    return primaries[device];
}

static CUstream some_stream(struct world *w)
{
    unsigned which = draw(w, 24);
    if (which < 3) {
        note(w, " stream=%u", which);
        return (CUstream)(uintptr_t)which;
    }
    if (which == 3 && w->gone_stream) {
        note(w, " stream=destroyed");
        return w->gone_stream;
    }
    if (which == 4) {
        note(w, " stream=garbage");
        return (CUstream)w->pieces[PAGEABLE].at;
    }
    which = draw(w, STREAMS);
    note(w, " stream=of %u", which);
    return w->streams[which];
}

static size_t some_size(struct world *w, size_t right)
{
    const size_t sizes[] = {0, 1, 4, right, right, right, right, right + 1, 2 * right, (size_t)1 << 40, SIZE_MAX};
    size_t size = draw(w, 4) ? ONE_OF(w, sizes) : 1 + draw(w, SIZE);
    note(w, " size=%zu", size);
    return size;
}

/* A field with another value: at the edge, or far beyond. */
static size_t spoilt(struct world *w, const char *name, size_t right)
{
    const size_t values[] = {0, 1, right - 1, right + 1, right * 2, right / 2, 8, SIZE, 1 << 20, (size_t)1 << 31, (size_t)1 << 40,
                             SIZE_MAX, SIZE_MAX / 2 + 1};
    size_t value = ONE_OF(w, values);
    note(w, " %s=%zu", name, value);
    return value;
}

static unsigned some_flags(struct world *w)
{
    static const unsigned flags[] = {0, 0, 0, 0, 0, 1, 2, UINT_MAX};
    unsigned drawn = ONE_OF(w, flags);
    note(w, " flags=%u", drawn);
    return drawn;
}

static cudaArray_t some_array(struct world *w, const char *name)
{
    if (w->gone_array && draw(w, 8) == 0) {
        note(w, " %s=destroyed", name);
        return w->gone_array;
    }
    unsigned which = draw(w, ARRAYS);
    note(w, " %s=%u", name, which);
    return w->arrays[which];
}

/* ---- calls ---- */

/* A copy between pointers, to be looked at when it has succeeded: memory of two pieces, before. */
struct moved {
    int src, dst; /* -1: nothing to look at */
    size_t src_at, dst_at, src_pitch, dst_pitch, src_rows, dst_rows, width, height, depth;
    unsigned char src_before[LARGE], dst_before[LARGE];
};

static _Thread_local struct moved moved;

static void expect_nothing(void)
{
    moved.src = moved.dst = -1;
}

static bool is_whole(struct world *w, int piece)
{
    return piece >= 0 && is_seen(w, piece) && w->pieces[piece].size != GRANULE;
}

/* Takes note of what is there before a copy, of one in four. */
static void expect(struct world *w, const struct place *src, const struct place *dst, const struct moved *shape)
{
    expect_nothing();
    if (draw(w, 4) || !is_whole(w, src->piece) || !is_whole(w, dst->piece) || src->piece == dst->piece)
        return;
    memcpy(&moved.src_at, &shape->src_at, offsetof(struct moved, src_before) - offsetof(struct moved, src_at));
    moved.src = src->piece;
    moved.dst = dst->piece;
    moved.src_at += src->offset;
    moved.dst_at += dst->offset;
    read_piece(w, moved.src, moved.src_before, false);
    read_piece(w, moved.dst, moved.dst_before, false);
}

static bool is_as_expected(struct world *w, bool has_succeeded)
{
    static _Thread_local unsigned char now[LARGE];
    struct moved *m = &moved;
    if (m->src < 0)
        return true;
    read_piece(w, m->dst, now, false);
    size_t rows = has_succeeded && m->width ? m->height * m->depth : 0;
    for (size_t row = 0; row < rows; row++) {
        size_t y = row % m->height, z = row / m->height;
        memcpy(m->dst_before + m->dst_at + (z * m->dst_rows + y) * m->dst_pitch,
               m->src_before + m->src_at + (z * m->src_rows + y) * m->src_pitch, m->width);
    }
    return memcmp(now, m->dst_before, w->pieces[m->dst].size) == 0;
}

static void read_times(uint64_t *times)
{
    for (size_t i = 0; i < rules; i++) {
        p2pshim_rule_t rule = P2PSHIM_INIT(p2pshim_rule_t);
        rule_get(i, &rule);
        times[i] = rule.times;
    }
}

/* The rules that have spoken since: with threads, any thread's. */
static void note_rules(struct world *w, const uint64_t *before)
{
    static const char *const severities[] = {"none", "error", "hazard", "performance", "note"};
    for (size_t i = 0; i < rules; i++) {
        p2pshim_rule_t rule = P2PSHIM_INIT(p2pshim_rule_t);
        rule_get(i, &rule);
        if (rule.times != before[i])
            note(w, " [%s %s %d %d]", rule.id, severities[rule.severity], rule.runtime_code, rule.driver_code);
    }
}

/* Takes note of what a call has answered, and looks at the last error. */
static void answered(struct world *w, bool runtime, int code)
{
    int peeked = cudaPeekAtLastError();
    bool right = peeked == (runtime && code ? code : w->left);
    note(w, " = %d, last %d", code, peeked);
    fold(w, (uint64_t)code << 32 | (uint64_t)peeked);
    w->left = peeked;
    if (draw(w, 4)) {
        right &= (int)cudaGetLastError() == peeked && cudaGetLastError() == cudaSuccess;
        w->left = 0;
    }
    if (!right)
        note(w, " LAST");
    w->last_wrong |= !right;
}

/* A call and all around it. A failed call that enables or disables does so by design. */
#define MAKE(w, runtime, name, ...) \
    do { \
        uint64_t before_[MOST_RULES]; \
        note(w, " " name); \
        if ((w)->log) \
            read_times(before_); \
        int code_ = (int)(__VA_ARGS__); \
        (w)->calls++; \
        answered(w, runtime, code_); \
        if ((w)->log) \
            note_rules(w, before_); \
        code = code_; \
    } while (0)

static void enable_or_disable(struct world *w)
{
    int code = 0;
    /* What other threads copy directly meanwhile would end with 719, and its context with it. */
    bool runtime = draw(w, 2), enables = draw(w, 3) || !w->alone;
    int device = w->alone ? (int)draw(w, DEVICES) : w->number;
    /* With threads, each answers for its own device. */
    unsigned where = draw(w, 8);
    if (runtime)
        CHECK(cudaSetDevice(device));
    else
        CHECK_CU(cuCtxSetCurrent(where == 0 ? NULL : where == 1 ? w->created : primaries[device]));
    w->was_none = !runtime && where == 0;
    note(w, "on %s %d:", !runtime && where == 0 ? "none" : !runtime && where == 1 ? "created" : "primary", device);
    settle(w);
    if (runtime) {
        int peer = some_ordinal(w, "peer", (int)draw(w, DEVICES));
        unsigned flags = some_flags(w);
        if (enables)
            MAKE(w, true, "cudaDeviceEnablePeerAccess", cudaDeviceEnablePeerAccess(peer, flags));
        else
            MAKE(w, true, "cudaDeviceDisablePeerAccess", cudaDeviceDisablePeerAccess(peer));
    } else {
        CUcontext peer = some_context(w, "peer", (int)draw(w, DEVICES));
        unsigned flags = some_flags(w);
        if (enables)
            MAKE(w, false, "cuCtxEnablePeerAccess", cuCtxEnablePeerAccess(peer, flags));
        else
            MAKE(w, false, "cuCtxDisablePeerAccess", cuCtxDisablePeerAccess(peer));
    }
    (void)code;
}

static void query(struct world *w)
{
    static const int attributes[] = {-1, 0, 1, 2, 3, 4, 5, 6, 77, INT_MAX};
    int value = -7, code = 0;
    int *out = draw(w, 8) ? &value : NULL;
    bool runtime = draw(w, 2), is_attribute = draw(w, 2);
    int attribute = ONE_OF(w, attributes);
    note(w, " out=%s attribute=%d", out ? "&value" : "NULL", attribute);
    int from = some_ordinal(w, "from", (int)draw(w, DEVICES)), to = some_ordinal(w, "to", (int)draw(w, DEVICES));
    if (runtime && is_attribute)
        MAKE(w, true, "cudaDeviceGetP2PAttribute",
             cudaDeviceGetP2PAttribute(out, (enum cudaDeviceP2PAttr)attribute, from, to));
    else if (runtime)
        MAKE(w, true, "cudaDeviceCanAccessPeer", cudaDeviceCanAccessPeer(out, from, to));
    else if (is_attribute)
        MAKE(w, false, "cuDeviceGetP2PAttribute",
             cuDeviceGetP2PAttribute(out, (CUdevice_P2PAttribute)attribute, from, to));
    else
        MAKE(w, false, "cuDeviceCanAccessPeer", cuDeviceCanAccessPeer(out, from, to));
    (void)code;
    fold(w, (uint64_t)value);
    note(w, " -> %d", value);
}

/* What is current when a copy is made: anything. */
static void stand(struct world *w)
{
    unsigned where = draw(w, 12);
    w->was_none = where == 0;
    if (where == 0)
        CHECK_CU(cuCtxSetCurrent(NULL));
    else if (where == 1)
        CHECK_CU(cuCtxSetCurrent(w->created));
    else if (where < 6)
        CHECK_CU(cuCtxSetCurrent(primaries[w->alone ? (int)draw(w, DEVICES) : w->number]));
    note(w, "current %s:", where == 0 ? "none" : where == 1 ? "created" : where < 6 ? "changed" : "same");
}

static size_t left_of(struct world *w, const struct place *place)
{
    return place->piece < 0 ? SIZE : w->pieces[place->piece].size - place->offset;
}

static void copy_linear(struct world *w)
{
    int code = 0;
    unsigned form = draw(w, 6);
    bool runtime = form < 2;
    stand(w);
    struct place src = some_place(w, "src"), dst = some_place(w, "dst");
    size_t left = left_of(w, &src) < left_of(w, &dst) ? left_of(w, &src) : left_of(w, &dst);
    size_t size = some_size(w, left);
    int src_device = device_of(w, &src), dst_device = device_of(w, &dst);
    CUcontext src_context = NULL, dst_context = NULL;
    if (runtime) {
        src_device = some_ordinal(w, "srcDevice", src_device);
        dst_device = some_ordinal(w, "dstDevice", dst_device);
    } else {
        src_context = some_context(w, "srcContext", src_device);
        dst_context = some_context(w, "dstContext", dst_device);
    }
    CUstream stream = form % 2 ? some_stream(w) : NULL;
    const struct moved shape = {.width = size, .height = 1, .depth = 1};
    expect(w, &src, &dst, &shape);
    switch (form) {
    case 0:
        MAKE(w, true, "cudaMemcpyPeer",
             cudaMemcpyPeer((void *)dst.at, dst_device, (void *)src.at, src_device, size));
        break;
    case 1:
        MAKE(w, true, "cudaMemcpyPeerAsync",
             cudaMemcpyPeerAsync((void *)dst.at, dst_device, (void *)src.at, src_device, size, stream));
        break;
    case 2:
        MAKE(w, false, "cuMemcpyPeer", cuMemcpyPeer(dst.at, dst_context, src.at, src_context, size));
        break;
    case 3:
        MAKE(w, false, "cuMemcpyPeerAsync",
             cuMemcpyPeerAsync(dst.at, dst_context, src.at, src_context, size, stream));
        break;
    case 4:
        MAKE(w, false, "cuMemcpyPeer_ptds", cuMemcpyPeer_ptds(dst.at, dst_context, src.at, src_context, size));
        break;
    default:
        MAKE(w, false, "cuMemcpyPeerAsync_ptsz",
             cuMemcpyPeerAsync_ptsz(dst.at, dst_context, src.at, src_context, size, stream));
    }
    settle(w);
    if (!is_as_expected(w, code == 0)) {
        note(w, " WRONG");
        w->wrong = true;
    }
}

/* Rows of a box as far as memory goes: twice as far apart as they are long. */
enum { ROW = WIDTH * 4, PITCH = 2 * ROW };

/* What lies behind a piece is anybody's: a box begins inside of it, or far beyond all memory. */
static void stay_inside(struct world *w, const struct place *place, size_t *x, size_t *y, size_t *z, size_t pitch, size_t rows)
{
    const unsigned __int128 far = (unsigned __int128)1 << 39;
    unsigned __int128 start = ((unsigned __int128)*z * rows + *y) * pitch + *x;
    if (start >= far || (place->piece >= 0 && start < left_of(w, place)))
        return;
    *x = *y = *z = 0;
}

static void copy_3d_by_runtime(struct world *w)
{
    int code = 0;
    unsigned form = draw(w, 4), arrays = draw(w, 8);
    stand(w);
    struct place src = some_place(w, "src"), dst = some_place(w, "dst");
    struct cudaMemcpy3DPeerParms p = {0}, *given = &p;
    p.srcDevice = some_ordinal(w, "srcDevice", device_of(w, &src));
    p.dstDevice = some_ordinal(w, "dstDevice", device_of(w, &dst));
    p.srcPtr = (struct cudaPitchedPtr){(void *)src.at, PITCH, ROW, ROWS};
    p.dstPtr = (struct cudaPitchedPtr){(void *)dst.at, PITCH, ROW, ROWS};
    p.extent = (struct cudaExtent){ROW, ROWS, SLICES};
    if (arrays < 2 || arrays == 4) {
        p.srcArray = some_array(w, "srcArray");
        p.srcPtr.ptr = arrays == 4 ? p.srcPtr.ptr : NULL;
    }
    if (arrays == 1 || arrays == 2 || arrays == 5) {
        p.dstArray = some_array(w, "dstArray");
        p.dstPtr.ptr = arrays == 5 ? p.dstPtr.ptr : NULL;
    }
    if (p.srcArray || p.dstArray)
        p.extent.width = WIDTH;
    bool is_plain = !p.srcArray && !p.dstArray;
    for (unsigned i = draw(w, 2) ? 0 : 1 + draw(w, 2); i > 0; i--) {
        size_t *const fields[] = {&p.srcPos.x,      &p.srcPos.y,     &p.srcPos.z,      &p.dstPos.x,     &p.dstPos.y,
                                  &p.dstPos.z,      &p.srcPtr.pitch, &p.srcPtr.xsize,  &p.srcPtr.ysize, &p.dstPtr.pitch,
                                  &p.dstPtr.xsize,  &p.dstPtr.ysize, &p.extent.width,  &p.extent.height,
                                  &p.extent.depth,  &p.extent.width, &p.extent.height, &p.extent.depth};
        static const char *const names[] = {"srcPos.x",     "srcPos.y",     "srcPos.z",     "dstPos.x",     "dstPos.y",
                                            "dstPos.z",     "srcPtr.pitch", "srcPtr.xsize", "srcPtr.ysize", "dstPtr.pitch",
                                            "dstPtr.xsize", "dstPtr.ysize", "extent.width", "extent.height",
                                            "extent.depth", "extent.width", "extent.height", "extent.depth"};
        unsigned which = draw(w, sizeof fields / sizeof *fields);
        *fields[which] = spoilt(w, names[which], *fields[which]);
    }
    stay_inside(w, &src, &p.srcPos.x, &p.srcPos.y, &p.srcPos.z, p.srcPtr.pitch, p.srcPtr.ysize);
    stay_inside(w, &dst, &p.dstPos.x, &p.dstPos.y, &p.dstPos.z, p.dstPtr.pitch, p.dstPtr.ysize);
    switch (draw(w, 32)) {
    case 0:
        note(w, " p=NULL");
        given = NULL;
        break;
    case 1:
        if (wild) {
            note(w, " p=wild");
            given = draw(w, 2) ? nowhere : (void *)0x10;
        }
        break;
    default:
        break;
    }
    CUstream stream = form % 2 ? some_stream(w) : NULL;
    struct moved shape = {.src_at = (p.srcPos.z * p.srcPtr.ysize + p.srcPos.y) * p.srcPtr.pitch + p.srcPos.x,
                          .dst_at = (p.dstPos.z * p.dstPtr.ysize + p.dstPos.y) * p.dstPtr.pitch + p.dstPos.x,
                          .src_pitch = p.srcPtr.pitch,
                          .dst_pitch = p.dstPtr.pitch,
                          .src_rows = p.srcPtr.ysize,
                          .dst_rows = p.dstPtr.ysize,
                          .width = p.extent.width,
                          .height = p.extent.height,
                          .depth = p.extent.depth};
    if (is_plain && given == &p)
        expect(w, &src, &dst, &shape);
    else
        expect_nothing();
    switch (form) {
    case 0:
        MAKE(w, true, "cudaMemcpy3DPeer", cudaMemcpy3DPeer(given));
        break;
    case 1:
        MAKE(w, true, "cudaMemcpy3DPeerAsync", cudaMemcpy3DPeerAsync(given, stream));
        break;
    case 2:
        MAKE(w, true, "cudaMemcpy3DPeer_ptds", cudaMemcpy3DPeer_ptds(given));
        break;
    default:
        MAKE(w, true, "cudaMemcpy3DPeerAsync_ptsz", cudaMemcpy3DPeerAsync_ptsz(given, stream));
    }
    settle(w);
    if (!is_as_expected(w, code == 0)) {
        note(w, " WRONG");
        w->wrong = true;
    }
}

/* Of one side. */
static CUmemorytype some_type(struct world *w, const char *name)
{
    static const int types[] = {CU_MEMORYTYPE_DEVICE,  CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_DEVICE,  CU_MEMORYTYPE_DEVICE,
                                CU_MEMORYTYPE_UNIFIED, CU_MEMORYTYPE_ARRAY,  CU_MEMORYTYPE_UNIFIED, CU_MEMORYTYPE_HOST,
                                CU_MEMORYTYPE_DEVICE,  CU_MEMORYTYPE_DEVICE, 0,                     5,
                                99};
    int type = draw(w, 2) ? CU_MEMORYTYPE_DEVICE : ONE_OF(w, types);
    note(w, " %sType=%d", name, type);
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
static bool may_be_pageable(struct world *w, const CUDA_MEMCPY3D_PEER *p, const struct place *place, size_t start, size_t pitch,
                            size_t rows)
{
    const unsigned __int128 slices = (unsigned __int128)(p->Depth - 1) * rows;
    if (place->at == 0 || p->WidthInBytes == 0 || p->Height == 0 || p->Depth == 0)
        return true;
    if (place->piece < 0 || start >= left_of(w, place))
        return false;
    if (place->piece != PAGEABLE)
        return true;
    return p->Depth < SIZE && p->Height < SIZE && p->WidthInBytes < SIZE && pitch < SIZE && rows < SIZE
           && start + (slices + p->Height - 1) * pitch + p->WidthInBytes <= left_of(w, place);
}

static void copy_3d_by_driver(struct world *w)
{
    int code = 0;
    unsigned form = draw(w, 4);
    stand(w);
    struct place src = some_place(w, "src"), dst = some_place(w, "dst");
    CUDA_MEMCPY3D_PEER p = {0}, *given = &p;
    p.srcMemoryType = some_type(w, "src");
    p.dstMemoryType = some_type(w, "dst");
    p.srcDevice = src.at;
    p.dstDevice = dst.at;
    if (p.srcMemoryType == CU_MEMORYTYPE_HOST)
        p.srcHost = (void *)src.at;
    if (p.dstMemoryType == CU_MEMORYTYPE_HOST)
        p.dstHost = (void *)dst.at;
    if (p.srcMemoryType == CU_MEMORYTYPE_ARRAY)
        p.srcArray = draw(w, 8) ? (CUarray)some_array(w, "srcArray") : NULL;
    if (p.dstMemoryType == CU_MEMORYTYPE_ARRAY)
        p.dstArray = draw(w, 8) ? (CUarray)some_array(w, "dstArray") : NULL;
    p.srcContext = some_context(w, "srcContext", device_of(w, &src));
    p.dstContext = some_context(w, "dstContext", device_of(w, &dst));
    p.srcPitch = p.dstPitch = PITCH;
    p.srcHeight = p.dstHeight = p.Height = ROWS;
    p.WidthInBytes = ROW;
    p.Depth = SLICES;
    bool is_plain = p.srcMemoryType == CU_MEMORYTYPE_DEVICE && p.dstMemoryType == CU_MEMORYTYPE_DEVICE;
    for (unsigned i = draw(w, 2) ? 0 : 1 + draw(w, 2); i > 0; i--) {
        size_t *const fields[] = {&p.srcXInBytes, &p.srcY,     &p.srcZ,     &p.srcLOD,       &p.dstXInBytes,
                                  &p.dstY,        &p.dstZ,     &p.dstLOD,   &p.srcPitch,     &p.srcHeight,
                                  &p.dstPitch,    &p.dstHeight, &p.Height,  &p.WidthInBytes, &p.Depth,
                                  &p.Height,      &p.WidthInBytes, &p.Depth};
        static const char *const names[] = {"srcXInBytes", "srcY",      "srcZ",   "srcLOD",       "dstXInBytes",
                                            "dstY",        "dstZ",      "dstLOD", "srcPitch",     "srcHeight",
                                            "dstPitch",    "dstHeight", "Height", "WidthInBytes", "Depth",
                                            "Height",      "WidthInBytes", "Depth"};
        unsigned which = draw(w, sizeof fields / sizeof *fields);
        *fields[which] = spoilt(w, names[which], *fields[which]);
    }
    size_t src_pitch = pitch_of(&p, p.srcPitch), src_rows = rows_of(&p, p.srcHeight);
    size_t dst_pitch = pitch_of(&p, p.dstPitch), dst_rows = rows_of(&p, p.dstHeight);
    stay_inside(w, &src, &p.srcXInBytes, &p.srcY, &p.srcZ, src_pitch, src_rows);
    stay_inside(w, &dst, &p.dstXInBytes, &p.dstY, &p.dstZ, dst_pitch, dst_rows);
    size_t src_at = (p.srcZ * src_rows + p.srcY) * src_pitch + p.srcXInBytes;
    size_t dst_at = (p.dstZ * dst_rows + p.dstY) * dst_pitch + p.dstXInBytes;
    if (is_any(p.srcMemoryType) && !may_be_pageable(w, &p, &src, src_at, src_pitch, src_rows)) {
        note(w, " srcType=device");
        p.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    }
    if (is_any(p.dstMemoryType) && !may_be_pageable(w, &p, &dst, dst_at, dst_pitch, dst_rows)) {
        note(w, " dstType=device");
        p.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    }
    switch (draw(w, 32)) {
    case 0:
        note(w, " p=NULL");
        given = NULL;
        break;
    case 1:
        if (wild) {
            note(w, " p=wild");
            given = draw(w, 2) ? nowhere : (void *)0x10;
        }
        break;
    default:
        break;
    }
    CUstream stream = form % 2 ? some_stream(w) : NULL;
    struct moved shape = {.src_at = src_at,
                          .dst_at = dst_at,
                          .src_pitch = src_pitch,
                          .dst_pitch = dst_pitch,
                          .src_rows = src_rows,
                          .dst_rows = dst_rows,
                          .width = p.WidthInBytes,
                          .height = p.Height,
                          .depth = p.Depth};
    if (is_plain && given == &p)
        expect(w, &src, &dst, &shape);
    else
        expect_nothing();
    switch (form) {
    case 0:
        MAKE(w, false, "cuMemcpy3DPeer", cuMemcpy3DPeer(given));
        break;
    case 1:
        MAKE(w, false, "cuMemcpy3DPeerAsync", cuMemcpy3DPeerAsync(given, stream));
        break;
    case 2:
        MAKE(w, false, "cuMemcpy3DPeer_ptds", cuMemcpy3DPeer_ptds(given));
        break;
    default:
        MAKE(w, false, "cuMemcpy3DPeerAsync_ptsz", cuMemcpy3DPeerAsync_ptsz(given, stream));
    }
    settle(w);
    if (!is_as_expected(w, code == 0)) {
        note(w, " WRONG");
        w->wrong = true;
    }
}

/* ---- sequences ---- */

/* After calls without one. A call of the runtime makes one current, if it gets so far before it fails. */
static void make_one_current(struct world *w)
{
    CUcontext context = NULL;
    if (w->was_none)
        CHECK_CU(cuCtxSetCurrent(primaries[w->number]));
    w->was_none = false;
    CHECK_CU(cuCtxGetCurrent(&context));
    REQUIRE(context);
}

/* Handles that end, and are given again. */
static void renew(struct world *w)
{
    int which;
    switch (draw(w, 3)) {
    case 0:
        which = (int)draw(w, STREAMS);
        CHECK_CU(cuStreamDestroy(w->streams[which]));
        w->gone_stream = w->streams[which];
        make_stream(w, which);
        break;
    case 1:
        which = (int)draw(w, ARRAYS);
        drop_array(w, which);
        make_array(w, which);
        break;
    default:
        for (int piece = 0; piece < OF_POOL; piece++)
            if (!w->pieces[piece].at)
                allocate(w, piece);
    }
}

static void step(struct world *w)
{
    unsigned which = draw(w, 100);
    if (draw(w, 16) == 0)
        renew(w);
    note(w, "  %d.%d ", w->number, w->calls);
    if (which < 35)
        copy_linear(w);
    else if (which < 60)
        copy_3d_by_runtime(w);
    else if (which < 80)
        copy_3d_by_driver(w);
    else if (which < 90)
        enable_or_disable(w);
    else
        query(w);
    make_one_current(w);
    if (w->calls % INTERVAL == 0) {
        uint64_t sum = sum_of_all(w);
        fold(w, sum);
        note(w, " memory %016llx", (unsigned long long)sum);
    }
    note(w, "\n");
}

static void *run_thread(void *world)
{
    struct world *w = world;
    int calls = w->alone ? CALLS : CALLS / THREADS;
    if (!w->alone)
        CHECK(cudaSetDevice(w->number));
    cudaGetLastError();
    while (w->calls < calls)
        step(w);
    return NULL;
}

static void begin(struct world *w, unsigned seed, int number, bool alone)
{
    memset(w, 0, sizeof *w);
    w->number = number;
    w->alone = alone;
    w->state = (uint64_t)seed << 8 | (unsigned)number;
    w->sum = 0xcbf29ce484222325u;
    if (logging)
        REQUIRE((w->log = open_memstream(&w->text, &w->length)));
    w->created_on = alone ? (int)draw(w, DEVICES) : number;
    CHECK_CU(cuCtxCreate_v2(&w->created, 0, w->created_on));
    leave();
    for (int piece = 0; piece < OF_POOL; piece++)
        allocate(w, piece);
    allocate_from_pools(w);
    map(w);
    w->pieces[PINNED] = w->pieces[PAGEABLE] = (struct buffer){.size = SIZE, .device = -1};
    enter(primaries[0]);
    CHECK_CU(cuMemAllocHost((void **)&w->pieces[PINNED].at, SIZE));
    leave();
    REQUIRE((w->pieces[PAGEABLE].at = (CUdeviceptr)malloc(SIZE)));
    fill_piece(w, PINNED);
    fill_piece(w, PAGEABLE);
    for (int i = 0; i < ARRAYS; i++)
        make_array(w, i);
    for (int i = 0; i < STREAMS; i++)
        make_stream(w, i);
}

static void end(struct world *w)
{
    settle(w);
    for (int i = 0; i < ARRAYS; i++)
        drop_array(w, i);
    for (int i = 0; i < STREAMS; i++)
        CHECK_CU(cuStreamDestroy(w->streams[i]));
    for (int i = 0; i < 2; i++) {
        CHECK_CU(cuMemUnmap(w->pieces[MAPPED + i].at, GRANULE));
        CHECK_CU(cuMemAddressFree(w->reserved[i], 4 * (size_t)GRANULE));
    }
    for (int piece = 0; piece <= OF_OTHER_POOL; piece++) {
        if (!w->pieces[piece].at)
            continue;
        enter(piece == OF_CONTEXT ? w->created : primaries[w->pieces[piece].device]);
        CHECK_CU(cuMemFree(w->pieces[piece].at));
        leave();
    }
    CHECK_CU(cuMemPoolDestroy(w->pool));
    enter(primaries[0]);
    CHECK_CU(cuMemFreeHost((void *)w->pieces[PINNED].at));
    leave();
    free((void *)w->pieces[PAGEABLE].at);
    CHECK_CU(cuCtxDestroy(w->created));
}

static void sequence(unsigned seed)
{
    static struct world worlds[THREADS];
    pthread_t threads[THREADS];
    int count = seed % 8 == 7 ? THREADS : 1, calls = 0;
    uint64_t sum = 0;
    bool wrong = false, last_wrong = false;
    CHECK(cudaSetDevice(0));
    for (int i = 0; i < count; i++)
        begin(&worlds[i], seed, i, count == 1);
    if (count == 1) {
        /* The last that was made, so that nothing takes its place. */
        CHECK_CU(cuCtxCreate_v2(&worlds[0].destroyed, 0, 0));
        CHECK_CU(cuCtxDestroy(worlds[0].destroyed));
        CHECK(cudaSetDevice(0));
        run_thread(&worlds[0]);
    } else {
        for (int i = 0; i < count; i++)
            REQUIRE(pthread_create(&threads[i], NULL, run_thread, &worlds[i]) == 0);
        for (int i = 0; i < count; i++)
            REQUIRE(pthread_join(threads[i], NULL) == 0);
    }
    for (int i = 0; i < count; i++) {
        struct world *w = &worlds[i];
        end(w);
        sum = sum * 31 + w->sum;
        calls += w->calls;
        wrong |= w->wrong;
        last_wrong |= w->last_wrong;
        if (!w->log)
            continue;
        fclose(w->log);
        fputs(w->text, stdout);
        free(w->text);
    }
    for (int device = 0; device < DEVICES; device++) {
        CHECK(cudaSetDevice(device));
        for (int peer = 0; peer < DEVICES; peer++)
            cudaDeviceDisablePeerAccess(peer);
    }
    cudaGetLastError();
    printf("sequence %u: %016llx, %d calls%s%s\n", seed, (unsigned long long)sum, calls, wrong ? " WRONG" : "",
           last_wrong ? " LAST" : "");
    fflush(stdout); /* so that a crash shows where */
}

int main(int argc, char **argv)
{
    int devices = 0;
    size_t (*rule_count)(void) = (size_t (*)(void))dlsym(RTLD_DEFAULT, "p2pshim_rule_count");
    rule_get = (p2pshim_status_t (*)(size_t, p2pshim_rule_t *))dlsym(RTLD_DEFAULT, "p2pshim_rule_get");
    rules = rule_count && rule_get ? rule_count() : 0;
    REQUIRE(argc >= 3 && rules <= MOST_RULES);
    unsigned first = (unsigned)strtoul(argv[1], NULL, 10), count = (unsigned)strtoul(argv[2], NULL, 10);
    for (int i = 3; i < argc; i++) {
        logging |= strcmp(argv[i], "steps") == 0;
        wild |= strcmp(argv[i], "wild") == 0;
    }
    CHECK_CU(cuInit(0));
    CHECK_CU(cuDeviceGetCount(&devices));
    REQUIRE(devices == DEVICES);
    for (int device = 0; device < DEVICES; device++) {
        CHECK(cudaSetDevice(device));
        CHECK_CU(cuDevicePrimaryCtxRetain(&primaries[device], device));
    }
    REQUIRE((nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) != MAP_FAILED);
    for (unsigned seed = first; seed < first + count; seed++)
        sequence(seed);
    return 0;
}
