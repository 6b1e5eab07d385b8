/* build: runtime driver; run: random_waits SEED [STEPS [DEVICES [documented] [unordered]]] on sim gpu
 * A program that is right, drawn from a seed: copies between devices, memsets and delays on streams of all kinds, memory and streams that
 * come and go, and calls that wait. It never enables peer access, so the driver stages its copies, and calls that do not name a copy's
 * stream wait for it all the same. The program relies on that, as often as it can, and on nothing else: where its copies are made direct
 * and nobody waits in the driver's place, it reads or overwrites memory too early, and prints something else than before.
 *
 * There are 60 steps on all devices, but no more than 3, if no numbers are given.
 *
 *   documented    relies on what is documented only, which direct copies keep too
 *   unordered     makes no stream wait for an event, though it relies on that: it is wrong
 *
 * Prints a line for each call of a step, with its code, and what was read; WRONG follows if that is not what the program expects. A use of
 * memory that nothing but staging orders says so, with the step that it has to come after and the step that waited for that. The last
 * lines count what was done, and how much of it only staging ordered. Two runs print the same.
 *
 * A staged copy on a stream of device A's context, from memory of context X to memory of Y, is work of A and Y until the copy itself is
 * done, and of X until the source has been read, as was measured on H100. For all work of a context wait: cudaDeviceSynchronize and
 * cuCtxSynchronize in it, cudaFree of memory of cudaMalloc, cudaFreeHost and cudaHostUnregister of what belongs to it, whichever context is current; and cudaDeviceReset of any device
 * waits for all work of the process. Copies of a graph are such work, too. A copy on the legacy default stream comes after what was
 * put earlier on the legacy default streams of X and Y, and before what is put on them later. Nothing else is relied on, of what is not
 * documented. Two threads make the calls, one at a time.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "check.h"

#define MOST_DEVICES 3
#include "lib/copy_forms.h"
#include "lib/devices.h"
#include "lib/random.h"

enum {
    THREADS = 2,
    CREATED = 7, /* streams, besides the default ones */
    STREAMS = MOST_DEVICES * (1 + THREADS) + CREATED,
    BUFFERS = 11,
    EVENTS = 4,
    GRAPHS = 3,
    IN_GRAPH = 2,
    IN_BATCH = 3,
    BLOCKS = 2,           /* of memory that is only there to be freed, of each kind, for each device */
    BLOCK = 1 << 16,
    LARGEST = 2 << 20,    /* bytes of a buffer */
    WARM = 1536 << 10,    /* bytes that each pair copies at first */
    MOST_OPS = 2048,
    WORDS = MOST_OPS / 64,
    STEPS = 60,
    FRESH = 2,            /* steps after it was waited for, and uses that rely on it, for which an operation is of interest */
    DELAYS = 250000,      /* microseconds; once they are used up, delays are short */
};

/* ---- the order of work ---- */

/* Of operations, by number. */
struct set {
    uint64_t words[WORDS];
};

/* As the driver orders work where it stages, and where copies are direct and nobody waits in its place. */
enum model { STAGED, DIRECT, MODELS };

/* Operations that are done before something. */
struct order {
    struct set of[MODELS];
};

static struct {
    struct order before; /* the operation itself, too */
    unsigned contexts[MODELS];
    int step, waited; /* waited: the step in which the host waited for it, or -1 */
    int relied_on;    /* how often nothing but staging put a use after it */
} ops[MOST_OPS];
static int op_count;
static struct order seen; /* by the host */
static struct set stale;  /* done long ago, whoever waited: to rely on their order shows nothing any more */

static void add(struct set *set, int op)
{
    set->words[op / 64] |= 1ull << op % 64;
}

static bool has(const struct set *set, int op)
{
    return set->words[op / 64] >> op % 64 & 1;
}

static void join_set(struct set *to, const struct set *more)
{
    for (int i = 0; i < WORDS; i++)
        to->words[i] |= more->words[i];
}

static void join(struct order *to, const struct order *more)
{
    for (int model = 0; model < MODELS; model++)
        join_set(&to->of[model], &more->of[model]);
}

static bool within(const struct set *set, const struct set *of)
{
    for (int i = 0; i < WORDS; i++)
        if (set->words[i] & ~of->words[i])
            return false;
    return true;
}

/* ---- what there is ---- */

enum role { LEGACY, BLOCKING, NON_BLOCKING };

struct stream {
    cudaStream_t handle;
    bool exists;
    int device;
    int thread; /* whose default stream it is, or -1 */
    enum role role;
    struct order order;   /* its work */
    struct order waits;   /* events that its next work comes after */
    struct order foreign; /* a legacy stream's: copies on other legacy streams that its next work comes after */
};

struct buffer {
    unsigned char *at, *expected;
    size_t bytes;
    int device;
    bool is_pooled;
    struct set reads, writes;
};

struct event {
    cudaEvent_t handle;
    int device;
    struct order order;
};

/* Rows at the same distance on both sides; of one row, `width` bytes. */
struct copy {
    int dst, src;
    size_t dst_at, src_at, pitch, width, rows, slices;
};

struct graph {
    cudaGraphExec_t handle;
    int count, device; /* device: that was current */
    unsigned delay;
    struct copy copies[IN_GRAPH];
};

static int step;
static bool is_documented, is_unordered;
static _Thread_local int thread;
static long delays_left = DELAYS;
static struct stream streams[STREAMS];
static struct buffer buffers[BUFFERS];
static struct event events[EVENTS];
static struct graph graphs[GRAPHS];
static void *freed[MOST_DEVICES][BLOCKS], *pinned[MOST_DEVICES][BLOCKS], *registered[MOST_DEVICES][BLOCKS];
static unsigned char *landing[MOST_DEVICES]; /* where bytes are read to */
static unsigned char value; /* of the last memset */

/* Kinds of calls, to be counted; the first ones are forms of copies. */
enum kind {
    PEER_ASYNC,
    DEFAULT_ASYNC,
    ROWS_ASYNC,
    BOX_ASYNC,
    PEER_BOX_ASYNC,
    PEER_SYNC,
    DEFAULT_SYNC,
    ROWS_SYNC,
    BOX_SYNC,
    PEER_BOX_SYNC,
    BATCH,
    LAUNCH,
    SAME_DEVICE,
    DELAY,
    MEMSET,
    READ,
    READ_ON_STREAM,
    MALLOC,
    MALLOC_ASYNC,
    FREE,
    FREE_POOLED,
    FREE_ASYNC,
    FREE_OTHER,
    FREE_HOST,
    UNREGISTER,
    SYNC_DEVICE,
    SYNC_CONTEXT,
    SYNC_STREAM,
    SYNC_EVENT,
    QUERY_STREAM,
    EVENT_WAIT,
    CREATE_STREAM,
    DESTROY_STREAM,
    CAPTURE,
    RESET,
    KINDS,
};

static const char *const names[KINDS] = {
    "cudaMemcpyPeerAsync", "cudaMemcpyAsync", "cudaMemcpy2DAsync", "cudaMemcpy3DAsync", "cudaMemcpy3DPeerAsync", "cudaMemcpyPeer",
    "cudaMemcpy", "cudaMemcpy2D", "cudaMemcpy3D", "cudaMemcpy3DPeer", "cuMemcpyBatchAsync", "cudaGraphLaunch", "copy within a device",
    "cudaLaunchHostFunc", "cudaMemsetAsync", "read on a new stream", "read on a stream", "cudaMalloc", "cudaMallocAsync", "cudaFree",
    "cudaFree of a pool's memory", "cudaFreeAsync", "cudaFree of other memory", "cudaFreeHost", "cudaHostUnregister",
    "cudaDeviceSynchronize", "cuCtxSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cudaStreamQuery",
    "cudaStreamWaitEvent", "stream created", "cudaStreamDestroy", "capture", "cudaDeviceReset",
};
static unsigned done[KINDS], only_staged[KINDS];

/* ---- the model ---- */

static struct stream *legacy(int device)
{
    return &streams[device];
}

/* What comes before the next work of a stream. Only what is put on a legacy stream comes after copies on other ones. */
static struct order before_on(const struct stream *s, bool is_work)
{
    struct order before = seen;
    join(&before, &s->order);
    join(&before, &s->waits);
    if (s->role == BLOCKING)
        join(&before, &legacy(s->device)->order);
    if (s->role == LEGACY && is_work) {
        join(&before, &s->foreign);
        for (int i = 0; i < STREAMS; i++)
            if (streams[i].exists && streams[i].device == s->device && streams[i].role == BLOCKING)
                join(&before, &streams[i].order);
    }
    return before;
}

/* What comes before a copy on a stream. A synchronous peer copy has none where the current device has no part in it. */
static struct order before_copy(const struct stream *s, int dst, int src)
{
    struct order before = s ? before_on(s, true) : seen;
    if ((!s || s->role == LEGACY) && !is_documented) {
        join_set(&before.of[STAGED], &legacy(dst)->order.of[STAGED]);
        join_set(&before.of[STAGED], &legacy(src)->order.of[STAGED]);
    }
    for (int model = 0; model < MODELS && !s; model++)
        join_set(&before.of[model], &legacy(src)->order.of[model]);
    return before;
}

static int add_op(struct order before, unsigned staged, unsigned direct)
{
    int op = op_count++;
    REQUIRE(op < MOST_OPS);
    if (is_documented)
        staged = direct;
    for (int model = 0; model < MODELS; model++)
        add(&before.of[model], op);
    ops[op].before = before;
    ops[op].contexts[STAGED] = staged;
    ops[op].contexts[DIRECT] = direct;
    ops[op].step = step;
    ops[op].waited = -1;
    return op;
}

/* Work of a stream, of its own context. */
static int add_work(struct stream *s)
{
    int op = add_op(before_on(s, true), 1u << s->device, 1u << s->device);
    s->order = ops[op].before;
    return op;
}

/* Copies of a graph are ordered with no other stream. The source's side is over once the source was read. */
static void add_copy(struct stream *s, const struct copy *copy, bool is_in_graph)
{
    int dst = buffers[copy->dst].device, src = buffers[copy->src].device;
    unsigned own = 1u << (s ? s->device : src), of_stream = s ? own : 0;
    bool is_beside = dst != src && !is_in_graph && !is_documented && (!s || s->role == LEGACY);
    struct order before = is_in_graph || dst == src ? before_on(s, true) : before_copy(s, dst, src);
    int read = add_op(before, of_stream | 1u << src, own), written = add_op(ops[read].before, of_stream | 1u << dst, own);
    if (is_beside && (!s || s->device != src))
        join_set(&legacy(src)->foreign.of[STAGED], &ops[read].before.of[STAGED]);
    if (is_beside && (!s || s->device != dst))
        join_set(&legacy(dst)->foreign.of[STAGED], &ops[written].before.of[STAGED]);
    if (s)
        s->order = ops[written].before;
    add(&buffers[copy->dst].writes, written);
    add(&buffers[copy->src].reads, read);
}

/* All work of a context, and what comes before that. */
static struct order work_of(int device)
{
    struct order work = {0};
    for (int op = 0; op < op_count; op++)
        for (int model = 0; model < MODELS; model++)
            if (ops[op].contexts[model] >> device & 1)
                join_set(&work.of[model], &ops[op].before.of[model]);
    return work;
}

static void see(const struct order *order)
{
    join(&seen, order);
    for (int op = 0; op < op_count; op++)
        if (ops[op].waited < 0 && has(&seen.of[STAGED], op))
            ops[op].waited = step;
}

static void see_work_of(int device)
{
    struct order work = work_of(device);
    see(&work);
}

/* Whether the host knows that all is done. */
static bool is_idle(void)
{
    for (int op = 0; op < op_count; op++)
        if (!has(&seen.of[STAGED], op))
            return false;
    return true;
}

static void see_all(void)
{
    for (int device = 0; device < devices; device++)
        see_work_of(device);
}

static bool is_ordered(const struct buffer *b, bool writes, const struct order *before, enum model model)
{
    return within(&b->writes, &before->of[model]) && (!writes || within(&b->reads, &before->of[model]));
}

/* A use of memory that has to come after others. */
struct use {
    int buffer;
    bool writes;
};

enum heat { IMPOSSIBLE, COLD, HOT };

/* Whether these uses may come after that, and whether they could where copies are direct. */
static enum heat heat_of(const struct use *uses, int count, const struct order *before)
{
    enum heat heat = COLD;
    for (int i = 0; i < count; i++) {
        const struct buffer *b = &buffers[uses[i].buffer];
        if (!is_ordered(b, uses[i].writes, before, STAGED))
            return IMPOSSIBLE;
        struct order direct = {.of[DIRECT] = before->of[DIRECT]};
        join_set(&direct.of[DIRECT], &stale);
        if (!is_ordered(b, uses[i].writes, &direct, DIRECT))
            heat = HOT;
    }
    return heat;
}

static int uses_of(const struct copy *copy, struct use uses[2])
{
    uses[0] = (struct use){copy->dst, true};
    uses[1] = (struct use){copy->src, false};
    return 2;
}

/* ---- calls ---- */

__attribute__((format(printf, 3, 4))) static void begin(int device, enum kind kind, const char *format, ...)
{
    va_list arguments;
    CHECK(cudaSetDevice(device));
    printf("%d thread %d on %d: %s", step, thread, device, names[kind]);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    done[kind]++;
}

/* Ends the line of a call, which has to succeed. */
static void finish(int code, const char *name)
{
    printf(" = %s\n", name);
    if (code != 0)
        exit(1);
}

static void end(cudaError_t code)
{
    finish(code, cudaGetErrorName(code));
}

static void end_driver(CUresult code)
{
    finish((int)code, driver_error_name(code));
}

/* Says which earlier steps nothing but staging puts before these uses. */
static void explain(enum kind kind, const struct use *uses, int count, const struct order *before)
{
    int said = 0, last = -1;
    only_staged[kind] += heat_of(uses, count, before) == HOT;
    for (int op = 0; op < op_count; op++)
        for (int i = 0; i < count; i++) {
            const struct buffer *b = &buffers[uses[i].buffer];
            bool is_needed = has(&b->writes, op) || (uses[i].writes && has(&b->reads, op));
            if (!is_needed || has(&before->of[DIRECT], op))
                continue;
            ops[op].relied_on++;
            if (ops[op].step == last)
                continue;
            last = ops[op].step;
            printf(said++ ? ", and after %d" : " [only staging puts it after %d", last);
            if (ops[op].waited >= 0)
                printf(", waited for in %d", ops[op].waited);
        }
    if (said)
        printf("]");
}

static void CUDART_CB take_time(void *microseconds)
{
    long us = (long)(intptr_t)microseconds;
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

static unsigned some_delay(void)
{
    unsigned us = draw(4) ? 2000 + (unsigned)draw(18000) : (unsigned)draw(2000);
    if (us > delays_left)
        us = (unsigned)draw(500);
    delays_left -= us;
    return us;
}

static const char *name_of(const struct stream *s)
{
    static char name[64];
    if (s->role == LEGACY)
        return "the legacy stream";
    if (s->thread >= 0)
        return "the stream of the thread";
    snprintf(name, sizeof name, "stream %d of %d, %s", (int)(s - streams), s->device, s->role == BLOCKING ? "blocking" : "non-blocking");
    return name;
}

static int some_device(void)
{
    return (int)draw((unsigned)devices);
}

static cudaStream_t handle_of(const struct stream *s)
{
    return s->role == LEGACY && draw(2) ? cudaStreamLegacy : s->handle;
}

static bool is_usable(const struct stream *s)
{
    return s->exists && (s->thread < 0 || s->thread == thread);
}

/* Where a stream is used: default streams are those of the current device, and others may be used from anywhere. */
static int stand_for(const struct stream *s)
{
    return s->role == LEGACY || s->thread >= 0 || draw(3) ? s->device : some_device();
}

static void delay(struct stream *s)
{
    unsigned us = some_delay();
    begin(s->device, DELAY, " of %u us on %s", us, name_of(s));
    end(cudaLaunchHostFunc(handle_of(s), take_time, (void *)(intptr_t)us));
    add_work(s);
}

/* Bytes of a buffer, on a stream of its device. */
static void set_bytes(struct stream *s, int number, size_t at, size_t bytes)
{
    struct buffer *b = &buffers[number];
    struct use use = {number, true};
    struct order before = before_on(s, true);
    value = (unsigned char)(value % 255 + 1);
    begin(s->device, MEMSET, " of buffer %d + %zu, %zu bytes, to %d on %s", number, at, bytes, value, name_of(s));
    explain(MEMSET, &use, 1, &before);
    end(cudaMemsetAsync(b->at + at, value, bytes, handle_of(s)));
    memset(b->expected + at, value, bytes);
    add(&b->writes, add_work(s));
}

/* ---- candidates: the first try is for uses that only staging orders ---- */

struct candidate {
    struct stream *stream;
    int dst, src;
};

static enum heat looked_for;
static struct candidate chosen;
static int met;

/* Each has the same chance. */
static void offer(struct stream *stream, int dst, int src)
{
    if (draw((unsigned)++met) == 0)
        chosen = (struct candidate){stream, dst, src};
}

static bool exists(int number)
{
    return buffers[number].at;
}

/* Copies that a stream may make now; a stream of NULL is that of a synchronous peer copy, by a third device. */
static bool find_copy(bool is_regular, bool is_created, bool is_third)
{
    met = 0;
    for (int i = 0; i < (is_third ? 1 : STREAMS); i++) {
        struct stream *s = is_third ? NULL : &streams[i];
        if (s && (!is_usable(s) || (is_created && (s->role == LEGACY || s->thread >= 0))))
            continue;
        for (int dst = 0; dst < BUFFERS; dst++)
            for (int src = 0; src < BUFFERS; src++) {
                struct use uses[] = {{dst, true}, {src, false}};
                if (!exists(dst) || !exists(src) || buffers[dst].device == buffers[src].device)
                    continue;
                if (is_regular && (buffers[dst].is_pooled || buffers[src].is_pooled))
                    continue;
                struct order before = before_copy(s, buffers[dst].device, buffers[src].device);
                if (heat_of(uses, 2, &before) == looked_for)
                    offer(s, dst, src);
            }
    }
    return met > 0;
}

/* A buffer that may be used on a stream of its device. */
static bool find_use(bool writes)
{
    met = 0;
    for (int i = 0; i < STREAMS; i++) {
        struct stream *s = &streams[i];
        if (!is_usable(s))
            continue;
        struct order before = before_on(s, true);
        for (int number = 0; number < BUFFERS; number++) {
            struct use use = {number, writes};
            if (exists(number) && buffers[number].device == s->device && heat_of(&use, 1, &before) == looked_for)
                offer(s, number, number);
        }
    }
    return met > 0;
}

/* ---- copies ---- */

static struct copy some_copy(int dst, int src, bool is_rows, bool is_box)
{
    size_t room = buffers[dst].bytes < buffers[src].bytes ? buffers[dst].bytes : buffers[src].bytes;
    struct copy copy = {.dst = dst, .src = src, .rows = 1, .slices = 1};
    if (is_rows || is_box) {
        copy.slices = is_box ? 1 + (size_t)draw(3) : 1;
        copy.rows = 1 + (size_t)draw(7);
        copy.pitch = room / copy.rows / copy.slices / 64 * 64 / (draw(3) ? 1 : 2);
        copy.width = copy.pitch - (size_t)draw(3) * 4;
        room = copy.pitch * copy.rows * copy.slices;
    } else {
        copy.width = copy.pitch = draw(3) ? room : 1 + (size_t)draw((unsigned)room);
        room = copy.width;
    }
    copy.dst_at = draw(2) ? 0 : (size_t)draw((unsigned)(buffers[dst].bytes - room + 1));
    copy.src_at = draw(2) ? 0 : (size_t)draw((unsigned)(buffers[src].bytes - room + 1));
    return copy;
}

static void expect(const struct copy *copy)
{
    const struct buffer *dst = &buffers[copy->dst], *src = &buffers[copy->src];
    for (size_t row = 0; row < copy->rows * copy->slices; row++)
        memcpy(dst->expected + copy->dst_at + row * copy->pitch, src->expected + copy->src_at + row * copy->pitch, copy->width);
}

static cudaError_t make_copy(enum kind kind, const struct copy *c, cudaStream_t stream)
{
    static const enum form forms_of_kinds[] = {
        BY_cudaMemcpyPeerAsync, BY_cudaMemcpyAsync, BY_cudaMemcpy2DAsync, BY_cudaMemcpy3DAsync, BY_cudaMemcpy3DPeerAsync,
        BY_cudaMemcpyPeer, BY_cudaMemcpy, BY_cudaMemcpy2D, BY_cudaMemcpy3D, BY_cudaMemcpy3DPeer,
    };
    const struct buffer *dst = &buffers[c->dst], *src = &buffers[c->src];
    struct transfer t = {.form = forms_of_kinds[kind], .dst = (CUdeviceptr)(dst->at + c->dst_at), .src = (CUdeviceptr)(src->at + c->src_at),
                         .dst_device = dst->device, .src_device = src->device, .width = c->width, .pitch = c->pitch, .rows = c->rows,
                         .slices = c->slices, .kind = cudaMemcpyDefault, .stream = stream};
    return (cudaError_t)make(&t);
}

static void say_copy(const struct copy *copy)
{
    printf(" buffer %d of %d + %zu < %d of %d + %zu, ", copy->dst, buffers[copy->dst].device, copy->dst_at, copy->src,
           buffers[copy->src].device, copy->src_at);
    if (copy->rows * copy->slices > 1)
        printf("%zu x %zu rows of ", copy->slices, copy->rows);
    printf("%zu bytes", copy->width);
}

/* In one of the forms. Those of rows and boxes may have one row. */
static bool move_copy(void)
{
    bool is_third = devices > 2 && draw(20) == 0;
    if (!find_copy(false, false, is_third))
        return false;
    struct stream *s = chosen.stream;
    int dst = chosen.dst, src = chosen.src;
    bool is_pooled = buffers[dst].is_pooled || buffers[src].is_pooled, is_sync = !s || (s->role == LEGACY && draw(2));
    static const enum kind peer[] = {PEER_ASYNC, PEER_BOX_ASYNC}, all[] = {PEER_ASYNC, PEER_ASYNC, DEFAULT_ASYNC, DEFAULT_ASYNC, ROWS_ASYNC, BOX_ASYNC, PEER_BOX_ASYNC};
    enum kind form = is_pooled || !s ? ONE_OF(peer) : ONE_OF(all);
    struct copy copy = some_copy(dst, src, form == ROWS_ASYNC, form == BOX_ASYNC || form == PEER_BOX_ASYNC);
    int device = !s ? 3 - buffers[dst].device - buffers[src].device : is_sync ? s->device : stand_for(s);
    if (is_sync && s && s->device != buffers[dst].device && s->device != buffers[src].device && (form == PEER_ASYNC || form == PEER_BOX_ASYNC))
        is_sync = false;
    if (is_sync)
        form = (enum kind)(form + PEER_SYNC - PEER_ASYNC);
    if (s && draw(5) > 1)
        delay(s);
    begin(device, form, "%s", "");
    say_copy(&copy);
    if (!is_sync)
        printf(" on %s", name_of(s));
    struct use uses[2];
    struct order before = before_copy(s, buffers[dst].device, buffers[src].device);
    explain(form, uses, uses_of(&copy, uses), &before);
    end(make_copy(form, &copy, is_sync ? NULL : handle_of(s)));
    expect(&copy);
    add_copy(s, &copy, false);
    return true;
}

static bool move_copy_within(void)
{
    if (!find_use(true))
        return false;
    struct candidate to = chosen;
    struct order before = before_on(to.stream, true);
    for (int src = 0; src < BUFFERS; src++) {
        struct use use = {src, false}, uses[2];
        if (!exists(src) || src == to.dst || buffers[src].device != to.stream->device || heat_of(&use, 1, &before) == IMPOSSIBLE)
            continue;
        struct copy copy = some_copy(to.dst, src, false, false);
        begin(to.stream->device, SAME_DEVICE, "%s", "");
        say_copy(&copy);
        printf(" on %s", name_of(to.stream));
        explain(SAME_DEVICE, uses, uses_of(&copy, uses), &before);
        end(make_copy(DEFAULT_ASYNC, &copy, handle_of(to.stream)));
        expect(&copy);
        add_copy(to.stream, &copy, false);
        return true;
    }
    return false;
}

/* Copies of a batch are not ordered among each other: each buffer has a part in one of them only. */
static bool move_batch(void)
{
    struct copy copies[IN_BATCH];
    struct use uses[2 * IN_BATCH];
    CUdeviceptr to[IN_BATCH], from[IN_BATCH];
    size_t bytes[IN_BATCH], first = 0, failed;
    struct attributes attributes = {.order = IN_ORDER};
    int count = 0;
    if (!batches.linear || !find_copy(true, true, false))
        return false;
    struct stream *s = chosen.stream;
    unsigned taken = 0;
    for (int i = 0, wanted = 1 + draw(IN_BATCH); i < BUFFERS * BUFFERS && count < wanted; i++) {
        int dst = i == 0 ? chosen.dst : (int)draw(BUFFERS), src = i == 0 ? chosen.src : (int)draw(BUFFERS);
        struct use both[] = {{dst, true}, {src, false}};
        struct order before = before_on(s, true);
        if (!exists(dst) || !exists(src) || buffers[dst].device == buffers[src].device || buffers[dst].is_pooled || buffers[src].is_pooled)
            continue;
        if ((taken >> dst | taken >> src) & 1 || heat_of(both, 2, &before) == IMPOSSIBLE)
            continue;
        taken |= 1u << dst | 1u << src;
        copies[count] = some_copy(dst, src, false, false);
        uses_of(&copies[count], &uses[2 * count]);
        to[count] = (CUdeviceptr)(buffers[dst].at + copies[count].dst_at);
        from[count] = (CUdeviceptr)(buffers[src].at + copies[count].src_at);
        bytes[count] = copies[count].width;
        count++;
    }
    if (draw(3))
        delay(s);
    struct order before = before_on(s, true), after = before;
    begin(s->device, BATCH, "%s", "");
    for (int i = 0; i < count; i++)
        say_copy(&copies[i]);
    printf(" on %s", name_of(s));
    explain(BATCH, uses, 2 * count, &before);
    make_current(s->device);
    end_driver(batches.linear(to, from, bytes, (size_t)count, &attributes, &first, 1, &failed, s->handle));
    struct order own = s->order;
    for (int i = 0; i < count; i++) {
        s->order = own;
        add_copy(s, &copies[i], false);
        join(&after, &s->order);
        expect(&copies[i]);
    }
    s->order = after;
    return true;
}

/* ---- graphs ---- */

static void destroy_graph(struct graph *graph)
{
    if (graph->handle)
        CHECK(cudaGraphExecDestroy(graph->handle));
    memset(graph, 0, sizeof *graph);
}

static void destroy_graphs_with(int buffer)
{
    for (int i = 0; i < GRAPHS; i++)
        for (int j = 0; j < graphs[i].count; j++)
            if (graphs[i].copies[j].dst == buffer || graphs[i].copies[j].src == buffer) {
                destroy_graph(&graphs[i]);
                break;
            }
}

/* Some regular copies, one after the other, perhaps behind a delay. Nothing is done yet. */
static bool move_capture(void)
{
    struct graph *graph = &graphs[draw(GRAPHS)];
    struct stream *s = NULL;
    cudaGraph_t captured;
    met = 0;
    for (int i = 0; i < STREAMS; i++)
        if (is_usable(&streams[i]) && streams[i].role != LEGACY && streams[i].thread < 0)
            offer(&streams[i], 0, 0);
    if (met == 0)
        return false;
    s = chosen.stream;
    met = 0;
    for (int dst = 0; dst < BUFFERS; dst++)
        for (int src = 0; src < BUFFERS; src++)
            if (exists(dst) && exists(src) && !buffers[dst].is_pooled && !buffers[src].is_pooled && buffers[dst].device != buffers[src].device)
                offer(s, dst, src);
    if (met == 0)
        return false;
    destroy_graph(graph);
    graph->device = s->device;
    graph->delay = draw(3) ? some_delay() : 0;
    graph->count = 1 + draw(IN_GRAPH);
    graph->copies[0] = some_copy(chosen.dst, chosen.src, draw(3) == 0, false);
    for (int i = 1; i < graph->count; i++)
        graph->copies[i] = some_copy(chosen.dst, chosen.src, draw(2), false);
    begin(s->device, CAPTURE, " of graph %d:", (int)(graph - graphs));
    CHECK(cudaStreamBeginCapture(s->handle, cudaStreamCaptureModeRelaxed));
    if (graph->delay) {
        printf(" delay of %u us,", graph->delay);
        CHECK(cudaLaunchHostFunc(s->handle, take_time, (void *)(intptr_t)graph->delay));
    }
    for (int i = 0; i < graph->count; i++) {
        say_copy(&graph->copies[i]);
        CHECK(make_copy(graph->copies[i].rows > 1 ? ROWS_ASYNC : DEFAULT_ASYNC, &graph->copies[i], s->handle));
    }
    CHECK(cudaStreamEndCapture(s->handle, &captured));
    end(cudaGraphInstantiateWithFlags(&graph->handle, captured, 0));
    CHECK(cudaGraphDestroy(captured));
    return true;
}

static bool move_launch(void)
{
    struct use uses[2 * IN_GRAPH];
    met = 0;
    for (int i = 0; i < STREAMS; i++)
        for (int j = 0; j < GRAPHS; j++) {
            if (!is_usable(&streams[i]) || !graphs[j].handle)
                continue;
            struct order before = before_on(&streams[i], true);
            for (int k = 0; k < graphs[j].count; k++)
                uses_of(&graphs[j].copies[k], &uses[2 * k]);
            if (heat_of(uses, 2 * graphs[j].count, &before) == looked_for)
                offer(&streams[i], j, j);
        }
    if (met == 0)
        return false;
    struct stream *s = chosen.stream;
    struct graph *graph = &graphs[chosen.dst];
    struct order before = before_on(s, true);
    begin(s->device, LAUNCH, " of graph %d on %s", chosen.dst, name_of(s));
    for (int k = 0; k < graph->count; k++)
        uses_of(&graph->copies[k], &uses[2 * k]);
    explain(LAUNCH, uses, 2 * graph->count, &before);
    end(cudaGraphLaunch(graph->handle, handle_of(s)));
    for (int k = 0; k < graph->count; k++) {
        add_copy(s, &graph->copies[k], true);
        expect(&graph->copies[k]);
    }
    return true;
}

/* ---- memory ---- */

/* Memory begins with values of its own, set on some stream of its device. */
static void allocate(int number, int device, bool is_pooled, struct stream *s)
{
    static const size_t sizes[] = {4096, 4096, 65536, 65536, 65536, 200000, 262144, 1 << 20, LARGEST};
    struct buffer *b = &buffers[number];
    memset(b, 0, sizeof *b);
    b->bytes = ONE_OF(sizes);
    b->device = device;
    b->is_pooled = is_pooled;
    REQUIRE((b->expected = malloc(b->bytes)));
    if (is_pooled) {
        begin(device, MALLOC_ASYNC, " of buffer %d, %zu bytes, on %s", number, b->bytes, name_of(s));
        end(cudaMallocAsync((void **)&b->at, b->bytes, handle_of(s)));
        add(&b->writes, add_work(s));
    } else {
        begin(device, MALLOC, " of buffer %d, %zu bytes", number, b->bytes);
        end(cudaMalloc((void **)&b->at, b->bytes));
    }
    set_bytes(s, number, 0, b->bytes);
    set_bytes(s, number, b->bytes / 4, b->bytes / 2);
}

static struct stream *some_stream_of(int device)
{
    for (;;) {
        struct stream *s = &streams[draw(STREAMS)];
        if (is_usable(s) && s->device == device)
            return s;
    }
}

static bool allocate_on(int device)
{
    for (int number = 0; number < BUFFERS; number++)
        if (!exists(number)) {
            allocate(number, device, draw(4) == 0, some_stream_of(device));
            return true;
        }
    return false;
}

static bool move_allocate(void)
{
    return allocate_on(some_device());
}

static int count_of(int device)
{
    int count = 0;
    for (int number = 0; number < BUFFERS; number++)
        count += exists(number) && buffers[number].device == device;
    return count;
}

static void forget(int number)
{
    free(buffers[number].expected);
    memset(&buffers[number], 0, sizeof buffers[number]);
}

/* cudaFree waits for the work of the context of the memory, if that is not a pool's. What is allocated next has its place. */
static bool move_free(void)
{
    met = 0;
    for (int number = 0; number < BUFFERS; number++) {
        struct use use = {number, true};
        struct order before = seen;
        if (!exists(number) || count_of(buffers[number].device) < 3)
            continue;
        if (!buffers[number].is_pooled) {
            struct order work = work_of(buffers[number].device);
            join(&before, &work);
        }
        if (heat_of(&use, 1, &before) == looked_for)
            offer(NULL, number, number);
    }
    if (met == 0)
        return false;
    int number = chosen.dst, device = buffers[number].device;
    bool is_pooled = buffers[number].is_pooled;
    enum kind kind = is_pooled ? FREE_POOLED : FREE;
    struct use use = {number, true};
    struct order before = seen, work = work_of(device);
    if (!is_pooled)
        join(&before, &work);
    destroy_graphs_with(number);
    begin(some_device(), kind, " of buffer %d of %d", number, device);
    explain(kind, &use, 1, &before);
    end(cudaFree(buffers[number].at));
    if (!is_pooled)
        see(&work);
    forget(number);
    if (draw(4))
        allocate(number, device, is_pooled, some_stream_of(device));
    return true;
}

static bool move_free_async(void)
{
    if (!find_use(true) || !buffers[chosen.dst].is_pooled || count_of(chosen.stream->device) < 3)
        return false;
    int number = chosen.dst;
    struct stream *s = chosen.stream;
    struct use use = {number, true};
    struct order before = before_on(s, true);
    begin(s->device, FREE_ASYNC, " of buffer %d on %s", number, name_of(s));
    explain(FREE_ASYNC, &use, 1, &before);
    end(cudaFreeAsync(buffers[number].at, handle_of(s)));
    add_work(s);
    forget(number);
    if (draw(4))
        allocate(number, s->device, true, draw(2) ? s : some_stream_of(s->device));
    return true;
}

static bool move_memset(void)
{
    if (!find_use(true))
        return false;
    size_t bytes = buffers[chosen.dst].bytes;
    struct candidate to = chosen;
    bool is_whole = draw(2);
    if (draw(3) == 0)
        delay(to.stream);
    set_bytes(to.stream, to.dst, is_whole ? 0 : bytes / 8, is_whole ? bytes : bytes / 2);
    return true;
}

/* On a new stream, which is ordered with nothing, or on one that there is. */
static void read_buffer(int number, struct stream *s)
{
    const struct buffer *b = &buffers[number];
    enum kind kind = s ? READ_ON_STREAM : READ;
    struct use use = {number, false};
    struct order before = s ? before_on(s, true) : seen;
    cudaStream_t stream;
    CHECK(cudaSetDevice(b->device));
    if (!s)
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    else
        stream = handle_of(s);
    begin(b->device, kind, " of buffer %d", number);
    if (s)
        printf(", on %s", name_of(s));
    explain(kind, &use, 1, &before);
    CHECK(cudaMemcpyAsync(landing[b->device], b->at, b->bytes, cudaMemcpyDeviceToHost, stream));
    if (s)
        add_work(s);
    printf(" = ");
    CHECK(cudaStreamSynchronize(stream));
    if (s)
        see(&s->order);
    mine->sum = 0;
    fold_bytes(landing[b->device], b->bytes);
    printf("%016llx%s\n", (unsigned long long)mine->sum,
           memcmp(landing[b->device], b->expected, b->bytes) ? " WRONG" : "");
    if (!s)
        CHECK(cudaStreamDestroy(stream));
}

static bool move_read(void)
{
    met = 0;
    for (int number = 0; number < BUFFERS; number++) {
        struct use use = {number, false};
        if (exists(number) && heat_of(&use, 1, &seen) == looked_for)
            offer(NULL, number, number);
    }
    if (met == 0)
        return false;
    read_buffer(chosen.dst, NULL);
    return true;
}

static bool move_read_on_stream(void)
{
    if (!find_use(false))
        return false;
    read_buffer(chosen.dst, chosen.stream);
    return true;
}

/* ---- waiting ---- */

/* What is there to be freed. */
static void prepare(int device)
{
    CHECK(cudaSetDevice(device));
    for (int i = 0; i < BLOCKS; i++) {
        if (!freed[device][i])
            CHECK(cudaMalloc(&freed[device][i], BLOCK));
        if (!pinned[device][i])
            CHECK(cudaMallocHost(&pinned[device][i], BLOCK));
        if (!registered[device][i]) {
            REQUIRE(posix_memalign(&registered[device][i], 4096, BLOCK) == 0);
            CHECK(cudaHostRegister(registered[device][i], BLOCK, cudaHostRegisterDefault));
        }
    }
}

static bool move_prepare(void)
{
    prepare(some_device());
    return true;
}

static void **some_block(void *blocks[BLOCKS])
{
    for (int i = 0; i < BLOCKS; i++)
        if (blocks[i])
            return &blocks[i];
    return NULL;
}

/* In one of the calls that wait for all work of a context. */
static void wait_for(int device)
{
    static const enum kind kinds[] = {SYNC_DEVICE, SYNC_CONTEXT, FREE_OTHER, FREE_HOST, UNREGISTER};
    enum kind kind = ONE_OF(kinds);
    int from = some_device();
    void **block = kind == FREE_OTHER ? some_block(freed[device]) : kind == FREE_HOST ? some_block(pinned[device]) : some_block(registered[device]);
    if (kind >= FREE_OTHER && kind <= UNREGISTER && !block)
        kind = SYNC_DEVICE;
    if (kind == SYNC_DEVICE) {
        begin(device, kind, "%s", "");
        end(cudaDeviceSynchronize());
    } else if (kind == SYNC_CONTEXT) {
        begin(device, kind, "%s", "");
        make_current(device);
        end_driver(cuCtxSynchronize());
    } else {
        begin(from, kind, " of %d", device);
        end(kind == FREE_OTHER ? cudaFree(*block) : kind == FREE_HOST ? cudaFreeHost(*block) : cudaHostUnregister(*block));
        if (kind == UNREGISTER)
            free(*block);
        *block = NULL;
    }
    see_work_of(device);
}

/* For a context that copies are under way to or from which it has not queued. */
static bool move_wait_far(void)
{
    met = 0;
    for (int device = 0; device < devices; device++) {
        struct order work = work_of(device);
        for (int op = 0; op < op_count; op++)
            if (!has(&seen.of[STAGED], op) && has(&work.of[STAGED], op) && !has(&work.of[DIRECT], op)) {
                offer(NULL, device, device);
                break;
            }
    }
    if (met == 0)
        return false;
    wait_for(chosen.dst);
    return true;
}

static bool move_wait(void)
{
    wait_for(some_device());
    return true;
}

static bool move_sync_stream(void)
{
    struct stream *s = &streams[draw(STREAMS)];
    cudaError_t code;
    if (!is_usable(s))
        return false;
    if (draw(2)) {
        begin(stand_for(s), SYNC_STREAM, " of %s", name_of(s));
        end(cudaStreamSynchronize(handle_of(s)));
    } else {
        cudaStream_t stream = handle_of(s);
        begin(stand_for(s), QUERY_STREAM, " of %s, until it is done", name_of(s));
        while ((code = cudaStreamQuery(stream)) == cudaErrorNotReady)
            nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
        end(code);
    }
    see(&s->order);
    return true;
}

/* Recorded on a stream, and waited for by another one, or by the host. */
static bool move_event(void)
{
    struct stream *from = &streams[draw(STREAMS)], *to = &streams[draw(STREAMS)];
    struct event *event = &events[draw(EVENTS)];
    if (!is_usable(from) || !is_usable(to) || from == to || within(&from->order.of[STAGED], &seen.of[STAGED]))
        return false;
    CHECK(cudaSetDevice(from->device));
    if (event->handle)
        CHECK(cudaEventDestroy(event->handle));
    CHECK(cudaEventCreateWithFlags(&event->handle, cudaEventDisableTiming));
    event->device = from->device;
    event->order = before_on(from, false);
    CHECK(cudaEventRecord(event->handle, handle_of(from)));
    if (draw(3)) {
        begin(to->device, EVENT_WAIT, " by %s", name_of(to));
        printf(", of %d for %s", from->device, name_of(from));
        end(is_unordered ? cudaSuccess : cudaStreamWaitEvent(handle_of(to), event->handle, 0));
        join(&to->waits, &event->order);
    } else {
        begin(some_device(), SYNC_EVENT, " of %d for %s", from->device, name_of(from));
        end(cudaEventSynchronize(event->handle));
        see(&event->order);
    }
    return true;
}

/* ---- streams and devices ---- */

static bool create_stream(int device)
{
    for (int i = STREAMS - CREATED; i < STREAMS; i++) {
        struct stream *s = &streams[i];
        if (s->exists)
            continue;
        memset(s, 0, sizeof *s);
        *s = (struct stream){.exists = true, .device = device, .thread = -1, .role = draw(3) ? NON_BLOCKING : BLOCKING};
        begin(device, CREATE_STREAM, ": %s", name_of(s));
        end(cudaStreamCreateWithFlags(&s->handle, s->role == BLOCKING ? cudaStreamDefault : cudaStreamNonBlocking));
        return true;
    }
    return false;
}

static bool move_create_stream(void)
{
    return create_stream(some_device());
}

/* Mostly with work that is not done. */
static bool move_destroy_stream(void)
{
    met = 0;
    for (int i = STREAMS - CREATED; i < STREAMS; i++)
        if (streams[i].exists && (draw(6) == 0 || !within(&streams[i].order.of[STAGED], &seen.of[STAGED])))
            offer(&streams[i], 0, 0);
    if (met == 0)
        return false;
    begin(some_device(), DESTROY_STREAM, " of %s", name_of(chosen.stream));
    end(cudaStreamDestroy(chosen.stream->handle));
    memset(chosen.stream, 0, sizeof *chosen.stream);
    return true;
}

static void begin_device(int device)
{
    find_context(device);
    CHECK(cudaMallocHost((void **)&landing[device], LARGEST));
    *legacy(device) = (struct stream){.exists = true, .device = device, .thread = -1, .role = LEGACY};
    for (int i = 0; i < THREADS; i++)
        streams[MOST_DEVICES * (1 + i) + device] =
            (struct stream){.handle = cudaStreamPerThread, .exists = true, .device = device, .thread = i, .role = BLOCKING};
    prepare(device);
}

/* Copies over a pair, in both directions, until they may be worth to be direct. */
static void warm_up(int one, int other)
{
    void *memory[2][2]; /* plain and of a pool, of each */
    int at[] = {one, other};
    for (int i = 0; i < 2; i++) {
        CHECK(cudaSetDevice(at[i]));
        CHECK(cudaMalloc(&memory[0][i], WARM));
        CHECK(cudaMallocAsync(&memory[1][i], WARM, NULL));
        CHECK(cudaMemsetAsync(memory[0][i], 0, WARM, NULL));
        CHECK(cudaMemsetAsync(memory[1][i], 0, WARM, NULL));
        CHECK(cudaDeviceSynchronize());
    }
    for (int i = 0; i < 12; i++) {
        int kind = i % 2, from = i / 2 % 2;
        CHECK(cudaSetDevice(at[i / 4 % 2]));
        CHECK(cudaMemcpyPeerAsync(memory[kind][!from], at[!from], memory[kind][from], at[from], WARM, NULL));
        CHECK(cudaDeviceSynchronize());
    }
    for (int i = 0; i < 2; i++) {
        CHECK(cudaSetDevice(at[i]));
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaFree(memory[0][i]));
        CHECK(cudaFreeAsync(memory[1][i], NULL));
        CHECK(cudaDeviceSynchronize());
    }
}

/* It waits for all work of the process. All of the device is gone then. */
static bool move_reset(void)
{
    int device = some_device();
    if (done[RESET] > 0 || (is_documented && !is_idle()))
        return false;
    for (int i = 0; i < GRAPHS; i++)
        destroy_graph(&graphs[i]);
    begin(device, RESET, "%s", "");
    end(cudaDeviceReset());
    see_all();
    for (int number = 0; number < BUFFERS; number++)
        if (exists(number) && buffers[number].device == device)
            forget(number);
    for (int i = 0; i < STREAMS; i++)
        if (streams[i].exists && streams[i].device == device)
            memset(&streams[i], 0, sizeof streams[i]);
    for (int i = 0; i < EVENTS; i++)
        if (events[i].device == device)
            memset(&events[i], 0, sizeof events[i]);
    for (int i = 0; i < BLOCKS; i++) {
        free(registered[device][i]);
        freed[device][i] = pinned[device][i] = registered[device][i] = NULL;
    }
    /* What has arrived by now, before anything else is done. */
    for (int number = 0; number < BUFFERS; number++)
        if (exists(number) && draw(2))
            read_buffer(number, NULL);
    begin_device(device);
    for (int other = 0; other < devices; other++)
        if (other != device)
            warm_up(device, other);
    create_stream(device);
    for (int i = 0; i < 3; i++)
        allocate_on(device);
    return true;
}

/* ---- steps ---- */

struct move {
    int weight;
    bool (*take)(void);
};

static bool take_one(const struct move *moves, int count, enum heat heat)
{
    looked_for = heat;
    int all = 0, which;
    for (int i = 0; i < count; i++)
        all += moves[i].weight;
    which = draw((unsigned)all);
    for (int i = 0;; i++)
        if ((which -= moves[i].weight) < 0)
            return moves[i].take();
}

/* What uses memory. */
static const struct move uses[] = {
    {8, move_read}, {5, move_read_on_stream}, {6, move_memset}, {8, move_copy}, {2, move_batch}, {3, move_launch},
    {6, move_free}, {6, move_free_async}, {2, move_copy_within},
};
static const struct move moves[] = {
    {30, move_copy}, {6, move_batch}, {4, move_capture}, {6, move_launch}, {6, move_memset}, {2, move_copy_within},
    {3, move_read}, {3, move_read_on_stream}, {4, move_allocate}, {3, move_free}, {3, move_free_async},
    {12, move_event}, {5, move_sync_stream}, {2, move_wait}, {4, move_prepare}, {6, move_create_stream}, {5, move_destroy_stream},
    {1, move_reset},
};

/* Mostly what only staging allows, and what makes it possible. */
static void take_step(void)
{
    int what = draw(10);
    for (int op = 0; op < op_count; op++)
        if (ops[op].waited >= 0 && (step - ops[op].waited > FRESH || ops[op].relied_on > FRESH))
            add(&stale, op);
    for (int tries = 0; tries < 3 && what < 7; tries++)
        if (take_one(uses, sizeof uses / sizeof *uses, HOT))
            return;
    if ((what < 3 || what == 9) && move_wait_far())
        return;
    for (int tries = 0; tries < 20; tries++)
        if (take_one(moves, sizeof moves / sizeof *moves, draw(3) ? HOT : COLD))
            return;
    move_wait();
}

/* The second thread takes a step when it is its turn. */
static pthread_mutex_t turn_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static int turn;

static void wait_for_turn(int of)
{
    pthread_mutex_lock(&turn_lock);
    while (turn != of && turn >= 0)
        pthread_cond_wait(&turned, &turn_lock);
    pthread_mutex_unlock(&turn_lock);
}

static void give_turn(int to)
{
    pthread_mutex_lock(&turn_lock);
    turn = to;
    pthread_cond_broadcast(&turned);
    pthread_mutex_unlock(&turn_lock);
}

static void *second_thread(void *unused)
{
    thread = 1;
    for (;;) {
        wait_for_turn(1);
        if (turn < 0)
            return unused;
        take_step();
        give_turn(0);
    }
}

static void begin_all(void)
{
    for (int device = 0; device < devices; device++)
        begin_device(device);
    for (int one = 0; one < devices; one++)
        for (int other = one + 1; other < devices; other++)
            warm_up(one, other);
    for (int i = 0; i < 2 * devices; i++)
        create_stream(i % devices);
    for (int i = 0; i < 3 * devices; i++)
        allocate_on(i % devices);
}

/* All that is left is read. */
static void end_all(void)
{
    for (int device = 0; device < devices; device++) {
        begin(device, SYNC_DEVICE, "%s", "");
        end(cudaDeviceSynchronize());
    }
    see_all();
    seen.of[DIRECT] = seen.of[STAGED];
    for (int number = 0; number < BUFFERS; number++)
        if (exists(number))
            read_buffer(number, NULL);
    for (int kind = 0; kind < KINDS; kind++)
        printf("done: %s %u, %u by staging\n", names[kind], done[kind], only_staged[kind]);
}

int main(int argc, char **argv)
{
    pthread_t second;
    REQUIRE(argc >= 2);
    int steps = argc > 2 ? atoi(argv[2]) : STEPS;
    mine->state = strtoull(argv[1], NULL, 10) << 8;
    setvbuf(stdout, NULL, _IOLBF, 0);
    count_devices(argc > 3 ? atoi(argv[3]) : MOST_DEVICES);
    REQUIRE(devices >= 2 && devices <= MOST_DEVICES);
    is_documented = has_word(argc, argv, "documented");
    is_unordered = has_word(argc, argv, "unordered");
    find_batches();
    begin_all();
    REQUIRE(pthread_create(&second, NULL, second_thread, NULL) == 0);
    for (step = 1; step <= steps && op_count < MOST_OPS - 64; step++) {
        if (draw(3) == 0) {
            give_turn(1);
            wait_for_turn(0);
        } else {
            take_step();
        }
    }
    end_all();
    /* Driver 580 hangs now and then, plain too, if a thread that used its stream ends while a host function runs. */
    give_turn(-1);
    pthread_join(second, NULL);
    return 0;
}
