/* build: runtime driver; run: random_graphs FIRST COUNT [WORD…] on sim gpu
 * Sequences of calls drawn from a seed: batches, graphs made by hand and by capture, their launches and updates, beside regular
 * copies, peer access, pools and streams that come and go, with good and bad arguments. After each step the code, the runtime's last
 * error and the bytes that the step may have written go into a checksum; one line a sequence shows it, and says WRONG if the bytes are
 * not those that the program expects. Two runs print the same. The last lines count what was done, and how often it succeeded.
 *
 * The sequences are FIRST to FIRST + COUNT - 1.
 *
 *   steps    a line for each step, too
 *   real     for real GPUs: nothing of which they might crash, and devices are not reset
 *   plain    no memory comes from pools
 *   lost     each sequence ends with a launch after access was disabled that the graph relies on, so that the context is lost; such
 *              a run is one sequence
 *
 * No graph is launched whose access was closed or whose memory was freed, but by `lost`. Parameters of ready graphs change within the
 * allocations that they had: real GPUs take others only of copies that are direct. Memory of pools is copied only by devices that the
 * program has given rights to it: others are refused, and no more once p2pshim has granted them. On real GPUs ready graphs with copies
 * between devices are not changed: some changes are refused while the copies are staged. Nowhere are they once the program has enabled
 * access between the devices, or has given rights: then all changes of copies that were staged are refused.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "check.h"
#include "lib/copy_forms.h"
#include "lib/devices.h"
#include "lib/random.h"

enum {
    STEPS = 40,
    BUFFERS = 8,
    STREAMS = 3,
    POOLS = 2,
    GRAPHS = 3,
    EXECS = 3,
    OPS = 10,     /* copies of a graph, those of its children too */
    BATCH = 6,    /* copies of a batch */
    SLOT = 4096,  /* where a copy goes, within a buffer */
    SLOTS = 16,
    SIZE = SLOT * SLOTS,
    HOST = -1,    /* in place of a device */
    PITCH = 64,
};

/* Forms of the driver that headers hide or rename, found by name. */
static struct {
    CUresult (*instantiate)(CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t);
    CUresult (*instantiate_2)(CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t);
    CUresult (*instantiate_flags)(CUgraphExec *, CUgraph, unsigned long long);
    CUresult (*instantiate_params)(CUgraphExec *, CUgraph, void *);
    CUresult (*update)(CUgraphExec, CUgraph, CUgraphNode *, int *);
    CUresult (*update_2)(CUgraphExec, CUgraph, void *);
    CUresult (*launch_per_thread)(CUgraphExec, CUstream);
    CUresult (*set_node)(CUgraphExec, CUgraphNode, void *);
} driver;

enum kind { NONE, PLAIN, POOLED, PINNED, PAGEABLE };

struct buffer {
    enum kind kind;
    int device, pool; /* pool: an index, or -1 for the device's own */
    unsigned char *at, *expected;
};

struct pool {
    CUmemoryPool handle;
    int device;
    bool rights[MOST_DEVICES]; /* which devices may access its memory */
};

/* From slot to slot; 1D if it has one row. */
struct copy {
    int dst, src, dst_slot, src_slot; /* dst, src: indices of buffers */
    size_t width, height, depth;
};

/* A copy of a graph: by a node of its own, or in a child of the graph, whose number it has. */
struct op {
    struct copy copy;
    cudaGraphNode_t node;
    int child;
    int device; /* that was current */
};

enum { NO_CHILD = -1, MOST_CHILDREN = 2 };

struct graph {
    cudaGraph_t handle;
    bool by_hand;
    int count, children;
    struct op ops[OPS];
    cudaGraphNode_t child[MOST_CHILDREN], last;
};

struct exec {
    cudaGraphExec_t handle;
    bool dead; /* never to be launched any more */
    bool late; /* not to be changed any more */
    int of;    /* which graph, while that is there, or -1 */
    struct graph what;
};

/* Each kind of step, to be counted. */
enum step {
    COPY,
    RUNTIME_BATCH,
    RUNTIME_BATCH_3D,
    DRIVER_BATCH,
    DRIVER_BATCH_2,
    DRIVER_BATCH_3D,
    DRIVER_BATCH_3D_2,
    NODE_1D,
    NODE_3D,
    NODE_BY_DRIVER,
    CHILD_NODE,
    CAPTURE,
    LAUNCH_CAPTURED,
    RUNTIME_INSTANTIATE,
    RUNTIME_INSTANTIATE_FLAGS,
    RUNTIME_INSTANTIATE_PARAMS,
    DRIVER_INSTANTIATE,
    DRIVER_INSTANTIATE_FLAGS,
    DRIVER_INSTANTIATE_PARAMS,
    RUNTIME_LAUNCH,
    DRIVER_LAUNCH,
    RUNTIME_UPDATE,
    DRIVER_UPDATE,
    SET_NODE_1D,
    SET_NODE,
    SET_NODE_BY_DRIVER,
    SET_CHILD,
    DESTROY_GRAPH,
    DESTROY_EXEC,
    ENABLE,
    DISABLE,
    ALLOCATE,
    FREE,
    POOL,
    POOL_RIGHTS,
    STREAM,
    RESET,
    KINDS,
};

static const char *const names[KINDS] = {
    "copy", "runtime batch", "runtime 3D batch", "driver batch", "driver batch v2", "driver 3D batch", "driver 3D batch v2",
    "1D node", "3D node", "node by driver", "child node", "capture", "captured launch",
    "runtime instantiation", "runtime instantiation with flags", "runtime instantiation with parameters",
    "driver instantiation", "driver instantiation with flags", "driver instantiation with parameters",
    "runtime launch", "driver launch", "runtime update", "driver update", "1D node set", "node set", "node set by driver",
    "child set", "graph destroyed", "executable graph destroyed", "enable", "disable", "allocate", "free", "pool", "rights of a pool",
    "stream", "reset",
};

static bool is_real, is_plain, is_to_be_lost;
static unsigned done[KINDS], succeeded[KINDS];

/* The sequence. */
static struct buffer buffers[BUFFERS];
static struct pool pools[POOLS];
static bool default_rights[MOST_DEVICES][MOST_DEVICES]; /* to the default pool of the first */
static CUstream streams[STREAMS];
static int stream_devices[STREAMS];
static struct graph graphs[GRAPHS];
static struct exec execs[EXECS];
static bool enabled[MOST_DEVICES][MOST_DEVICES];

/* Takes the code of a step into the sum, and counts it. */
static int count_answer(enum step kind, int code)
{
    done[kind]++;
    succeeded[kind] += code == 0;
    return answer(code);
}

/* ---- where we are ---- */

static int some_device(void)
{
    return (int)draw((unsigned)devices);
}

static CUstream some_stream(void)
{
    static const CUstream defaults[] = {NULL, (CUstream)1, (CUstream)2};
    CUstream created = streams[draw(STREAMS)];
    return created && draw(4) ? created : defaults[draw(3)];
}

/* The device of a stream; `current` for default streams. */
static int device_of(CUstream stream, int current)
{
    for (int i = 0; i < STREAMS; i++)
        if (stream && stream == streams[i])
            return stream_devices[i];
    return current;
}

/* ---- memory ---- */

static unsigned char *place(int buffer, int slot)
{
    return buffers[buffer].at + slot * SLOT;
}

static unsigned char *expected_at(int buffer, int slot)
{
    return buffers[buffer].expected + slot * SLOT;
}

/* What some slots hold, against what they should. What a refused call left on a real GPU is not known: it is taken as it is. */
static void inspect(int number, int slot, int count, bool was_refused)
{
    static unsigned char got[SIZE];
    size_t bytes = (size_t)(count * SLOT);
    read_memory(buffers[number].device, got, (CUdeviceptr)place(number, slot), bytes);
    fold_bytes(got, bytes);
    if (memcmp(got, expected_at(number, slot), bytes) == 0)
        return;
    memcpy(expected_at(number, slot), got, bytes);
    if (!was_refused || !is_real)
        is_wrong("bytes");
}

static void make_buffer(int number)
{
    struct buffer *buffer = &buffers[number];
    void *at = NULL;
    buffer->device = make_current(some_device());
    buffer->pool = -1;
    int which = draw(8), from = draw(POOLS);
    note("allocate %d on %d, way %d", number, buffer->device, which);
    buffer->kind = which < 3 || (is_plain && which < 6) ? PLAIN : which < 6 ? POOLED : which == 6 ? PINNED : PAGEABLE;
    if (buffer->kind == PLAIN) {
        count_answer(ALLOCATE, draw(2) ? (int)cudaMalloc(&at, SIZE) : (int)cuMemAlloc((CUdeviceptr *)&at, SIZE));
    } else if (buffer->kind == POOLED && pools[from].handle && draw(2)) {
        buffer->pool = from;
        buffer->device = pools[from].device;
        count_answer(ALLOCATE, cuMemAllocFromPoolAsync((CUdeviceptr *)&at, SIZE, pools[from].handle, NULL));
    } else if (buffer->kind == POOLED) {
        count_answer(ALLOCATE, cudaMallocAsync(&at, SIZE, NULL));
    } else if (buffer->kind == PINNED) {
        count_answer(ALLOCATE, cudaMallocHost(&at, SIZE));
    } else {
        at = malloc(SIZE);
    }
    REQUIRE((buffer->at = at));
    REQUIRE((buffer->expected = malloc(SIZE)));
    draw_bytes(buffer->expected, SIZE);
    /* A copy from pageable memory, too, may be under way after its call. */
    synchronize_all();
    if (buffer->kind >= PINNED)
        buffer->device = HOST;
    write_memory(buffer->device, (CUdeviceptr)at, buffer->expected, SIZE);
    synchronize_all();
}

static bool uses(const struct graph *graph, int buffer)
{
    for (int i = 0; i < graph->count; i++)
        if (graph->ops[i].copy.dst == buffer || graph->ops[i].copy.src == buffer)
            return true;
    return false;
}

static void destroy_graph(int number);

/* Graphs with this memory are not launched any more, nor instantiated. */
static void let_go(int buffer)
{
    for (int i = 0; i < EXECS; i++)
        execs[i].dead |= uses(&execs[i].what, buffer);
    for (int i = 0; i < GRAPHS; i++)
        if (graphs[i].handle && uses(&graphs[i], buffer))
            destroy_graph(i);
}

static void free_buffer(int number)
{
    struct buffer *buffer = &buffers[number];
    bool runtime = draw(2), on_stream = draw(2);
    let_go(number);
    if (buffer->device != HOST)
        make_current(buffer->device);
    synchronize_all(); /* cudaFree takes a pool's memory away from a copy under way */
    note("free %d", number);
    if (buffer->kind == PAGEABLE)
        free(buffer->at);
    else if (buffer->kind == PINNED)
        count_answer(FREE, runtime ? (int)cudaFreeHost(buffer->at) : (int)cuMemFreeHost(buffer->at));
    else if (buffer->kind == POOLED && on_stream)
        count_answer(FREE, runtime ? (int)cudaFreeAsync(buffer->at, NULL) : (int)cuMemFreeAsync((CUdeviceptr)buffer->at, NULL));
    else
        count_answer(FREE, runtime ? (int)cudaFree(buffer->at) : (int)cuMemFree((CUdeviceptr)buffer->at));
    free(buffer->expected);
    memset(buffer, 0, sizeof *buffer);
}

static int some_buffer(void)
{
    for (;;) {
        int number = draw(BUFFERS);
        if (buffers[number].kind != NONE)
            return number;
    }
}

/* The first four are always there. */
static void change_memory(void)
{
    int number = 4 + draw(BUFFERS - 4);
    if (buffers[number].kind == NONE)
        make_buffer(number);
    else
        free_buffer(number);
}

/* ---- copies ---- */

static bool may_access(int device, int number)
{
    const struct buffer *buffer = &buffers[number];
    if (buffer->kind != POOLED || buffer->device == device)
        return true;
    return buffer->pool < 0 ? default_rights[buffer->device][device] : pools[buffer->pool].rights[device];
}

/* 1D, or a box that fits into a slot; one that a device may make. The first two buffers are of no pool. */
static struct copy some_copy(bool is_3d, int device)
{
    struct copy copy = {.dst = some_buffer(), .src = some_buffer(), .dst_slot = draw(SLOTS), .src_slot = draw(SLOTS)};
    for (int i = 0; i < 3 && buffers[copy.dst].device == buffers[copy.src].device; i++)
        copy.src = some_buffer();
    if (!may_access(device, copy.dst))
        copy.dst = draw(2);
    if (!may_access(device, copy.src))
        copy.src = draw(2);
    if (copy.dst == copy.src && copy.dst_slot == copy.src_slot)
        copy.dst_slot = (copy.dst_slot + 1) % SLOTS;
    copy.height = is_3d ? 5 : 1;
    copy.depth = is_3d ? 3 : 1;
    copy.width = is_3d ? 60 : draw(3) ? 1 + (size_t)draw(SLOT) : SLOT;
    return copy;
}

static struct transfer transfer_of(const struct copy *copy)
{
    return (struct transfer){.dst = (CUdeviceptr)place(copy->dst, copy->dst_slot), .src = (CUdeviceptr)place(copy->src, copy->src_slot),
                             .width = copy->width, .pitch = copy->height > 1 ? PITCH : copy->width, .rows = copy->height, .slices = copy->depth,
                             .kind = cudaMemcpyDefault};
}

/* What has been copied is what is expected. */
static void expect(const struct copy *copy)
{
    struct transfer t = transfer_of(copy);
    expect_rows(expected_at(copy->dst, copy->dst_slot), expected_at(copy->src, copy->src_slot), &t);
}

static void inspect_copy(const struct copy *copy, bool was_refused)
{
    inspect(copy->dst, copy->dst_slot, 1, was_refused);
}

/* By one of the functions that can be captured. */
static int copy_on(const struct copy *copy, CUstream stream, unsigned form)
{
    bool is_inside = buffers[copy->dst].device != HOST && buffers[copy->src].device != HOST;
    const enum form lines[] = {BY_cudaMemcpyAsync, BY_cuMemcpyAsync, BY_cudaMemcpy2DAsync, is_inside ? BY_cuMemcpyDtoDAsync : BY_cudaMemcpyAsync};
    struct transfer t = transfer_of(copy);
    t.form = copy->height == 1 ? lines[form] : form % 2 ? BY_cudaMemcpy3DAsync : BY_cuMemcpy3DAsync;
    t.kind = is_inside && form == 0 && copy->height == 1 ? cudaMemcpyDeviceToDevice : cudaMemcpyDefault;
    t.stream = stream;
    return make(&t);
}

static void copy_once(void)
{
    int device = make_current(some_device());
    struct copy copy = some_copy(draw(4) == 0, device);
    CUstream stream = some_stream();
    unsigned form = draw(4);
    int times = draw(6) ? 1 : 17;
    note("copy on %d, form %u, %d>%d, %zu bytes, %d times", device, form, buffers[copy.src].device,
         buffers[copy.dst].device, copy.width * copy.height * copy.depth, times);
    if (draw(16) == 0)
        copy.width = copy.height > 1 ? 0 : (size_t)1 << 40;
    bool is_right = copy.width && copy.width <= SLOT;
    for (int i = 0; i < times; i++) {
        int code = copy_on(&copy, stream, form);
        count_answer(COPY, code);
        if (code == 0 && is_right)
            expect(&copy);
    }
    synchronize_all();
    inspect_copy(&copy, false);
}

/* ---- batches ---- */

struct batch {
    int count;
    struct copy copies[BATCH];
    void *dsts[BATCH], *srcs[BATCH];
    size_t sizes[BATCH], firsts[BATCH], number; /* number: of attributes */
    struct attributes attributes[BATCH];
    struct operation operations[BATCH];
    int lacks; /* 1, 2, 3: one of the arrays is not there */
    size_t fail;
};

static struct operand operand(int buffer, int slot)
{
    return (struct operand){.type = 1, .at = (CUdeviceptr)place(buffer, slot), .row = PITCH, .layer = 5};
}

/* Sources lie in the first half of a buffer, destinations in the other, each in one of its own: the order does not matter. */
static void draw_batch(struct batch *batch, bool is_3d, int device)
{
    memset(batch, 0, sizeof *batch);
    batch->count = 1 + draw(BATCH);
    for (int i = 0; i < batch->count; i++) {
        struct copy *copy = &batch->copies[i];
        *copy = some_copy(is_3d, device);
        copy->dst_slot = SLOTS / 2 + i;
        copy->src_slot = draw(SLOTS / 2);
        batch->dsts[i] = place(copy->dst, copy->dst_slot);
        batch->srcs[i] = place(copy->src, copy->src_slot);
        batch->sizes[i] = copy->width;
        int order = draw(4) ? IN_ORDER : buffers[copy->src].device == HOST ? DURING_CALL : ANY_ORDER;
        struct operation *operation = &batch->operations[i];
        *operation = (struct operation){operand(copy->src, copy->src_slot), operand(copy->dst, copy->dst_slot), copy->width,
                                        copy->height, copy->depth, order, 0};
    }
    for (int at = 0; at < batch->count && batch->number < 3; at += 1 + draw(3)) {
        batch->firsts[batch->number] = (size_t)at;
        batch->attributes[batch->number++] = (struct attributes){.order = draw(4) ? IN_ORDER : ANY_ORDER, .flags = (unsigned)draw(2)};
    }
    batch->fail = (size_t)-7;
}

/* Arguments that are wrong now and then; what it is that is wrong, or -1. */
static int spoil_batch(struct batch *batch)
{
    int which = draw(24), at = draw((unsigned)batch->count);
    switch (which) {
    case 0:
        batch->dsts[at] = NULL;
        batch->operations[at].dst.at = 0;
        return which;
    case 1:
        batch->srcs[at] = NULL;
        batch->operations[at].src.at = 0;
        return which;
    case 2:
        batch->attributes[draw((unsigned)batch->number)].order = batch->operations[at].order = draw(2) ? 0 : 9;
        return which;
    case 3:
        batch->firsts[0] = 1;
        batch->operations[at].width = 0;
        return which;
    case 4:
        batch->number = draw(2) ? 0 : BATCH + 1;
        batch->operations[at].src.type = draw(2) ? 0 : 3;
        return which;
    case 5:
        batch->sizes[at] = (size_t)1 << 40;
        batch->operations[at].dst.row = 8;
        return which;
    case 6:
        batch->sizes[at] = 0;
        batch->operations[at].flags = 8;
        return which;
    case 7:
        batch->lacks = is_real ? 0 : 1 + draw(3);
        return which;
    default:
        return -1;
    }
}

#if CUDART_VERSION >= 13000
#define DSTS(dsts) ((void *const *)(dsts))
#define SRCS(srcs) ((const void *const *)(srcs))
#define FAIL(fail)
#elif CUDART_VERSION >= 12080
#define DSTS(dsts) ((void **)(dsts))
#define SRCS(srcs) ((void **)(srcs))
#define FAIL(fail) fail,
#endif

static int make_batch(struct batch *b, enum step form, CUstream stream)
{
    CUdeviceptr *dsts = b->lacks == 1 ? NULL : (CUdeviceptr *)b->dsts, *srcs = (CUdeviceptr *)b->srcs;
    size_t count = (size_t)b->count, *sizes = b->lacks == 2 ? NULL : b->sizes;
    struct attributes *attributes = b->lacks == 3 ? NULL : b->attributes;
    struct operation *operations = b->lacks ? NULL : b->operations;
    switch (form) {
#ifdef DSTS
    case RUNTIME_BATCH:
        return cudaMemcpyBatchAsync(DSTS(dsts), SRCS(srcs), sizes, count, (struct cudaMemcpyAttributes *)attributes, b->firsts,
                                    b->number, FAIL(&b->fail) stream);
    case RUNTIME_BATCH_3D:
        return cudaMemcpy3DBatchAsync(count, (struct cudaMemcpy3DBatchOp *)operations, FAIL(&b->fail) 0, stream);
#endif
    case DRIVER_BATCH:
        return batches.linear(dsts, srcs, sizes, count, attributes, b->firsts, b->number, &b->fail, stream);
    case DRIVER_BATCH_2:
        return (draw(3) ? batches.linear_2 : batches.linear_2_per_thread)(dsts, srcs, sizes, count, attributes, b->firsts, b->number,
                                                                     stream);
    case DRIVER_BATCH_3D:
        return batches.boxes(count, operations, &b->fail, 0, stream);
    default:
        return batches.boxes_2(count, operations, 0, stream);
    }
}

static void batch(void)
{
    static const enum step steps[] = {
#ifdef DSTS
        RUNTIME_BATCH, RUNTIME_BATCH, RUNTIME_BATCH_3D,
#endif
        DRIVER_BATCH, DRIVER_BATCH_2, DRIVER_BATCH_3D, DRIVER_BATCH_3D_2,
    };
    struct batch b;
    enum step form = ONE_OF(steps);
    bool is_3d = form == RUNTIME_BATCH_3D || form == DRIVER_BATCH_3D || form == DRIVER_BATCH_3D_2;
    CUstream stream = some_stream();
    int device = make_current(some_device());
    draw_batch(&b, is_3d, device_of(stream, device));
    int spoilt = spoil_batch(&b);
    note("%s of %d on %d, %s stream, wrong %d:", names[form], b.count, device, stream > (CUstream)2 ? "a" : "default", spoilt);
    for (int i = 0; i < b.count; i++)
        note(" %d>%d", buffers[b.copies[i].src].device, buffers[b.copies[i].dst].device);
    int code = make_batch(&b, form, stream);
    count_answer(form, code);
    fold(b.fail);
    note(" fails at %d", (int)b.fail);
    synchronize_all();
    for (int i = 0; i < b.count; i++)
        if (code == 0 && (is_3d || b.sizes[i]))
            expect(&b.copies[i]);
    for (int i = 0; i < b.count; i++)
        inspect_copy(&b.copies[i], code != 0);
}

/* ---- graphs ---- */

/* Adds a node that copies, after all others, with the device as the current one. */
static int add_node(struct graph *graph, const struct copy *copy, enum step form, int device)
{
    cudaGraphNode_t node = NULL, *after = graph->last ? &graph->last : NULL;
    struct transfer t = transfer_of(copy);
    struct cudaMemcpy3DParms p = runtime_box(&t);
    CUDA_MEMCPY3D q = driver_box_of(&t);
    CUcontext here = contexts[device];
    int code;
    make_current(device);
    if (form == NODE_1D)
        code = cudaGraphAddMemcpyNode1D(&node, graph->handle, after, after != NULL, p.dstPtr.ptr, p.srcPtr.ptr, copy->width,
                                        cudaMemcpyDefault);
    else if (form == NODE_3D)
        code = cudaGraphAddMemcpyNode(&node, graph->handle, after, after != NULL, &p);
    else
        code = cuGraphAddMemcpyNode(&node, graph->handle, after, after != NULL, &q, here);
    if (code == 0) {
        graph->ops[graph->count++] = (struct op){*copy, node, NO_CHILD, device};
        graph->last = node;
    }
    return code;
}

static bool may_be_child(const struct graph *child, const struct graph *parent)
{
    return child->handle && child != parent && child->by_hand && child->children == 0 && child->count > 0 &&
           parent->children < MOST_CHILDREN && parent->count + child->count <= OPS;
}

static int add_child(struct graph *graph, const struct graph *child)
{
    cudaGraphNode_t node = NULL, *after = graph->last ? &graph->last : NULL;
    int code = draw(2) ? (int)cudaGraphAddChildGraphNode(&node, graph->handle, after, after != NULL, child->handle)
                       : (int)cuGraphAddChildGraphNode(&node, graph->handle, after, after != NULL, child->handle);
    if (code)
        return code;
    for (int i = 0; i < child->count; i++)
        graph->ops[graph->count++] = (struct op){child->ops[i].copy, NULL, graph->children, child->ops[i].device};
    graph->child[graph->children++] = graph->last = node;
    return 0;
}

/* Nodes that are refused leave the graph as it is. */
static void add_wrong_node(struct graph *graph, int device)
{
    cudaGraphNode_t node;
    struct copy copy = some_copy(false, device);
    void *dst = place(copy.dst, copy.dst_slot), *src = place(copy.src, copy.src_slot);
    switch (draw(4)) {
    case 0:
        count_answer(NODE_1D, cudaGraphAddMemcpyNode1D(&node, graph->handle, NULL, 0, NULL, src, 64, cudaMemcpyDefault));
        break;
    case 1:
        count_answer(NODE_1D, cudaGraphAddMemcpyNode1D(&node, NULL, NULL, 0, dst, src, 64, cudaMemcpyDefault));
        break;
    case 2:
        count_answer(NODE_1D, cudaGraphAddMemcpyNode1D(&node, graph->handle, NULL, 0, dst, src, 64, (enum cudaMemcpyKind)7));
        break;
    default:
        count_answer(CHILD_NODE, cudaGraphAddChildGraphNode(&node, graph->handle, NULL, 0, NULL));
    }
}

static void make_graph(struct graph *graph)
{
    static const enum step steps[] = {NODE_1D, NODE_1D, NODE_3D, NODE_BY_DRIVER};
    int count = 1 + draw(4), device = make_current(some_device());
    note("make a graph on %d:", device);
    CHECK(cudaGraphCreate(&graph->handle, 0));
    graph->by_hand = true;
    for (int i = 0; i < count; i++) {
        enum step form = ONE_OF(steps);
        struct copy copy = some_copy(form == NODE_3D || (form == NODE_BY_DRIVER && draw(2)), device);
        struct graph *child = &graphs[draw(GRAPHS)];
        bool is_wrong = draw(16) == 0;
        if (draw(4) == 0 && may_be_child(child, graph)) {
            note(" child");
            count_answer(CHILD_NODE, add_child(graph, child));
        } else if (graph->count < OPS) {
            note(" %d>%d", buffers[copy.src].device, buffers[copy.dst].device);
            count_answer(form, add_node(graph, &copy, form, device));
        }
        if (is_wrong)
            add_wrong_node(graph, device);
    }
}

/* One that may be launched; if none is found, one that is not there. */
static struct exec *some_exec(void)
{
    int number = draw(EXECS);
    for (int i = 0; i < EXECS && (!execs[number].handle || execs[number].dead); i++)
        number = (number + 1) % EXECS;
    return &execs[number];
}

/* Copies, and now and then a batch or a launch, which break the capture. */
static void capture_steps(struct graph *graph, CUstream stream, int device)
{
    int count = 1 + draw(4);
    for (int i = 0; i < count; i++) {
        struct copy copy = some_copy(draw(4) == 0, device);
        struct exec *exec = some_exec();
        int what = draw(12), form = draw(4);
        if (what == 0) {
            struct batch b;
            draw_batch(&b, false, device_of(stream, device));
            note(" batch");
            count_answer(DRIVER_BATCH_2, batches.linear_2((CUdeviceptr *)b.dsts, (CUdeviceptr *)b.srcs, b.sizes, (size_t)b.count,
                                                  b.attributes, b.firsts, b.number, stream));
        } else if (what == 1 && exec->handle && !exec->dead) {
            note(" launch");
            count_answer(LAUNCH_CAPTURED, cudaGraphLaunch(exec->handle, stream));
        } else if (graph->count < OPS && buffers[copy.dst].kind != PAGEABLE && buffers[copy.src].kind != PAGEABLE) {
            note(" %d>%d", buffers[copy.src].device, buffers[copy.dst].device);
            if (count_answer(COPY, copy_on(&copy, stream, form)) == 0)
                graph->ops[graph->count++] = (struct op){copy, NULL, NO_CHILD, device};
        }
    }
}

static void capture_graph(struct graph *graph)
{
    CUstream stream = streams[draw(STREAMS)];
    int mode = draw(3);
    if (!stream)
        return;
    int device = make_current(some_device());
    note("capture on %d, mode %d:", device, mode);
    CHECK(cudaStreamBeginCapture(stream, (enum cudaStreamCaptureMode)mode));
    capture_steps(graph, stream, device);
    if (count_answer(CAPTURE, cudaStreamEndCapture(stream, &graph->handle)) != 0)
        memset(graph, 0, sizeof *graph);
}

static void destroy_graph(int number)
{
    count_answer(DESTROY_GRAPH, draw(2) ? (int)cudaGraphDestroy(graphs[number].handle) : (int)cuGraphDestroy(graphs[number].handle));
    memset(&graphs[number], 0, sizeof graphs[number]);
    for (int i = 0; i < EXECS; i++)
        if (execs[i].of == number)
            execs[i].of = -1;
}

/* One that is not there is made; one that is there goes now and then, or another is made instead. */
static void change_graph(void)
{
    int number = draw(GRAPHS);
    if (graphs[number].handle && draw(3) == 0) {
        note("destroy graph %d", number);
        destroy_graph(number);
        return;
    }
    for (int i = 0; i < GRAPHS && graphs[number].handle; i++)
        number = (number + 1) % GRAPHS;
    if (graphs[number].handle)
        return;
    if (draw(3))
        make_graph(&graphs[number]);
    else
        capture_graph(&graphs[number]);
}

/* ---- executable graphs ---- */

static int instantiate_by_runtime(enum step form, cudaGraphExec_t *exec, cudaGraph_t graph, unsigned flags)
{
#if CUDART_VERSION >= 12000
    cudaGraphInstantiateParams parameters = {.flags = flags};
    if (form == RUNTIME_INSTANTIATE_PARAMS)
        return cudaGraphInstantiateWithParams(exec, graph, &parameters);
    if (form == RUNTIME_INSTANTIATE)
        return cudaGraphInstantiate(exec, graph, flags);
#else
    if (form == RUNTIME_INSTANTIATE)
        return cudaGraphInstantiate(exec, graph, NULL, NULL, 0);
#endif
    return cudaGraphInstantiateWithFlags(exec, graph, flags);
}

static int instantiate_as(enum step form, cudaGraphExec_t *exec, cudaGraph_t graph, unsigned flags)
{
    /* CUDA_GRAPH_INSTANTIATE_PARAMS. */
    struct {
        uint64_t flags;
        CUstream upload;
        CUgraphNode error;
        uint64_t result;
    } parameters = {.flags = flags};
    switch (form) {
    case DRIVER_INSTANTIATE:
        return (draw(2) ? driver.instantiate : driver.instantiate_2)(exec, graph, NULL, NULL, 0);
    case DRIVER_INSTANTIATE_FLAGS:
        return driver.instantiate_flags(exec, graph, flags);
    case DRIVER_INSTANTIATE_PARAMS:
        return driver.instantiate_params(exec, graph, &parameters);
    default:
        return instantiate_by_runtime(form, exec, graph, flags);
    }
}

static void destroy_exec(int number)
{
    cudaGraphExec_t handle = execs[number].handle;
    count_answer(DESTROY_EXEC, draw(2) ? (int)cudaGraphExecDestroy(handle) : (int)cuGraphExecDestroy(handle));
    memset(&execs[number], 0, sizeof execs[number]);
}

static void instantiate(void)
{
    int number = draw(EXECS), of = draw(GRAPHS), wrong_how = draw(16);
    struct exec *exec = &execs[number];
    for (int i = 0; i < GRAPHS && !graphs[of].handle; i++)
        of = (of + 1) % GRAPHS;
    enum step form = (enum step)(RUNTIME_INSTANTIATE + draw(6));
#if CUDART_VERSION < 12000
    if (form == RUNTIME_INSTANTIATE_PARAMS)
        form = RUNTIME_INSTANTIATE;
#endif
    unsigned flags = wrong_how == 0 ? 99 : draw(4) ? 0 : 8;
    if (exec->handle && (exec->dead || draw(4) == 0)) {
        note("destroy ready graph %d", number);
        destroy_exec(number);
        return;
    }
    if (exec->handle || !graphs[of].handle)
        return;
    note("%s of %d on %d", names[form], of, make_current(some_device()));
    cudaGraphExec_t made = NULL;
    if (count_answer(form, instantiate_as(form, &made, wrong_how == 1 ? NULL : graphs[of].handle, flags)) == 0)
        *exec = (struct exec){.handle = made, .of = of, .what = graphs[of]};
}

static void launch(void)
{
    int times = draw(5) ? 1 : 3;
    struct exec *exec = some_exec();
    CUstream stream = some_stream();
    bool runtime = draw(2), per_thread = draw(3) == 0, is_null = draw(24) == 0;
    if (!exec->handle || exec->dead)
        return;
    enum step form = runtime ? RUNTIME_LAUNCH : DRIVER_LAUNCH;
    cudaGraphExec_t handle = is_null ? NULL : exec->handle;
    note("%s of %d on %d, %d times", names[form], (int)(exec - execs), make_current(some_device()), times);
    for (int i = 0; i < times; i++) {
        int code = runtime      ? (int)cudaGraphLaunch(handle, stream)
                   : per_thread ? (int)driver.launch_per_thread(handle, stream)
                                : (int)cuGraphLaunch(handle, stream);
        if (count_answer(form, code) != 0)
            continue;
        for (int j = 0; j < exec->what.count; j++)
            expect(&exec->what.ops[j].copy);
    }
    synchronize_all();
    for (int i = 0; i < exec->what.count; i++)
        inspect_copy(&exec->what.ops[i].copy, false);
}

/* Another copy within the same allocations and of the same shape. */
static struct copy moved(const struct copy *copy)
{
    struct copy other = *copy;
    other.dst_slot = draw(SLOTS);
    other.src_slot = draw(SLOTS);
    if (other.dst == other.src && other.dst_slot == other.src_slot)
        other.dst_slot = (other.dst_slot + 1) % SLOTS;
    if (copy->height == 1)
        other.width = 1 + (size_t)draw(SLOT);
    return other;
}

/* A graph like another, with its copies moved; of one child of it only, or of all. */
static void make_like(struct graph *made, const struct graph *like, int child)
{
    memset(made, 0, sizeof *made);
    CHECK(cudaGraphCreate(&made->handle, 0));
    for (int i = 0; i < like->count;) {
        const struct op *op = &like->ops[i];
        if (op->child == child) {
            struct copy copy = moved(&op->copy);
            REQUIRE(add_node(made, &copy, copy.height > 1 ? NODE_3D : NODE_1D, op->device) == 0);
            i++;
        } else if (child == NO_CHILD) {
            struct graph inner;
            make_like(&inner, like, op->child);
            REQUIRE(add_child(made, &inner) == 0);
            CHECK(cudaGraphDestroy(inner.handle));
            i += inner.count;
        } else {
            i++;
        }
    }
}

/* Whether a ready graph is left as it is. */
static bool is_left(const struct graph *graph)
{
    for (int i = 0; is_real && i < graph->count; i++) {
        int dst = buffers[graph->ops[i].copy.dst].device, src = buffers[graph->ops[i].copy.src].device;
        if (dst != HOST && src != HOST && dst != src)
            return true;
    }
    return false;
}

static int update_with(cudaGraphExec_t exec, cudaGraph_t graph, bool runtime)
{
    struct {
        int result;
        cudaGraphNode_t node, from;
    } info = {.result = -7};
    cudaGraphNode_t node;
    int code;
    if (!runtime)
        code = draw(2) ? (int)driver.update(exec, graph, &node, &info.result) : (int)driver.update_2(exec, graph, &info);
    else
#if CUDART_VERSION >= 12000
        code = cudaGraphExecUpdate(exec, graph, (cudaGraphExecUpdateResultInfo *)&info);
#else
        code = cudaGraphExecUpdate(exec, graph, &node, (enum cudaGraphExecUpdateResult *)&info.result);
#endif
    fold((uint64_t)info.result);
    note(" result %d", info.result);
    return code;
}

/* Updates a ready graph with one of the same shape, or of another, which is refused. */
static void update(void)
{
    struct exec *exec = some_exec();
    struct graph other;
    bool runtime = draw(2), is_other_shape = draw(6) == 0;
    if (!exec->handle || exec->dead || exec->late || !exec->what.by_hand || is_left(&exec->what))
        return;
    enum step form = runtime ? RUNTIME_UPDATE : DRIVER_UPDATE;
    int device = some_device();
    note("%s of %d on %d%s", names[form], (int)(exec - execs), device, is_other_shape ? ", another shape" : "");
    make_like(&other, &exec->what, NO_CHILD);
    make_current(is_other_shape && exec->what.count ? exec->what.ops[0].device : device);
    if (is_other_shape) {
        struct copy copy = moved(&exec->what.ops[0].copy);
        cudaGraphNode_t more;
        CHECK(cudaGraphAddMemcpyNode1D(&more, other.handle, &other.last, 1, place(copy.dst, copy.dst_slot),
                                       place(copy.src, copy.src_slot), 16, cudaMemcpyDefault));
    }
    if (count_answer(form, update_with(exec->handle, other.handle, runtime)) == 0)
        for (int i = 0; i < exec->what.count; i++)
            exec->what.ops[i].copy = other.ops[i].copy;
    else
        exec->dead |= is_real;
    CHECK(cudaGraphDestroy(other.handle));
}

static int set_node_as(enum step form, cudaGraphExec_t exec, cudaGraphNode_t node, const struct copy *copy)
{
    struct transfer t = transfer_of(copy);
    struct cudaMemcpy3DParms p = runtime_box(&t);
    CUDA_MEMCPY3D q = driver_box_of(&t);
    CUcontext here;
    CHECK_CU(cuCtxGetCurrent(&here));
    if (form == SET_NODE_1D)
        return cudaGraphExecMemcpyNodeSetParams1D(exec, node, p.dstPtr.ptr, p.srcPtr.ptr, copy->width, cudaMemcpyDefault);
    if (form == SET_NODE)
        return cudaGraphExecMemcpyNodeSetParams(exec, node, &p);
#if CUDART_VERSION >= 12020
    if (driver.set_node && draw(2)) {
        CUgraphNodeParams parameters = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
        parameters.memcpy.copyCtx = here;
        parameters.memcpy.copyParams = q;
        return driver.set_node(exec, node, &parameters);
    }
#endif
    return cuGraphExecMemcpyNodeSetParams(exec, node, &q, here);
}

static void set_wrong_node(struct exec *exec, const struct op *op)
{
    void *src = place(op->copy.src, op->copy.src_slot);
    switch (draw(3)) {
    case 0:
        count_answer(SET_NODE_1D, cudaGraphExecMemcpyNodeSetParams1D(exec->handle, op->node, NULL, src, 16, cudaMemcpyDefault));
        break;
    case 1:
        count_answer(SET_NODE_1D, cudaGraphExecMemcpyNodeSetParams1D(NULL, op->node, src, src, 16, cudaMemcpyDefault));
        break;
    default:
        count_answer(SET_NODE_1D, cudaGraphExecMemcpyNodeSetParams1D(exec->handle, NULL, src, src, 16, cudaMemcpyDefault));
    }
}

/* Has a node of a ready graph copy something else. */
static void set_node(struct exec *exec)
{
    static const enum step steps[] = {SET_NODE_1D, SET_NODE_1D, SET_NODE, SET_NODE_BY_DRIVER};
    struct op *op = &exec->what.ops[draw((unsigned)exec->what.count)];
    enum step form = ONE_OF(steps);
    struct copy copy = moved(&op->copy);
    bool is_wrong = draw(8) == 0;
    if (!op->node || op->copy.height > 1)
        return;
    note("%s on %d", names[form], make_current(op->device));
    if (is_wrong)
        set_wrong_node(exec, op);
    else if (count_answer(form, set_node_as(form, exec->handle, op->node, &copy)) == 0)
        op->copy = copy;
}

static void set_child(struct exec *exec)
{
    struct graph other;
    int child = draw((unsigned)exec->what.children), at = 0;
    bool runtime = draw(2), is_wrong = draw(8) == 0;
    int device = some_device();
    note("%s on %d", names[SET_CHILD], device);
    make_like(&other, &exec->what, child);
    make_current(device);
    cudaGraph_t graph = is_wrong ? NULL : other.handle;
    int code = runtime ? (int)cudaGraphExecChildGraphNodeSetParams(exec->handle, exec->what.child[child], graph)
                       : (int)cuGraphExecChildGraphNodeSetParams(exec->handle, exec->what.child[child], graph);
    if (count_answer(SET_CHILD, code) == 0)
        for (int i = 0; i < exec->what.count; i++)
            if (exec->what.ops[i].child == child)
                exec->what.ops[i].copy = other.ops[at++].copy;
    CHECK(cudaGraphDestroy(other.handle));
}

/* Nodes are those of the graph that it was made of. */
static void set_parameters(void)
{
    struct exec *exec = some_exec();
    if (!exec->handle || exec->dead || exec->late || exec->of < 0 || !exec->what.by_hand || exec->what.count == 0 || is_left(&exec->what))
        return;
    if (exec->what.children > 0 && draw(2))
        set_child(exec);
    else
        set_node(exec);
}

/* ---- access, pools, streams ---- */

static bool is_between(const struct graph *graph, int from, int to)
{
    for (int i = 0; i < graph->count; i++) {
        int dst = buffers[graph->ops[i].copy.dst].device, src = buffers[graph->ops[i].copy.src].device;
        if ((dst == from && src == to) || (dst == to && src == from))
            return true;
    }
    return false;
}

static void enable(void)
{
    int from = make_current(some_device()), to = some_device(), flags = draw(16) == 0;
    note("enable %d>%d flags %d", from, to, flags);
    int code = draw(2) ? (int)cudaDeviceEnablePeerAccess(to, (unsigned)flags)
                       : (int)cuCtxEnablePeerAccess(contexts[to], (unsigned)flags);
    if (count_answer(ENABLE, code) != 0)
        return;
    enabled[from][to] = true;
    for (int i = 0; i < EXECS; i++)
        execs[i].late |= execs[i].handle && is_between(&execs[i].what, from, to);
}

static int disable_between(int from, int to)
{
    make_current(from);
    note("disable %d>%d", from, to);
    int code = draw(2) ? (int)cudaDeviceDisablePeerAccess(to) : (int)cuCtxDisablePeerAccess(contexts[to]);
    if (count_answer(DISABLE, code) == 0)
        enabled[from][to] = false;
    return code;
}

static void disable(void)
{
    int from = some_device(), to = some_device();
    if (disable_between(from, to) == 0)
        for (int i = 0; i < EXECS; i++)
            execs[i].dead |= is_between(&execs[i].what, from, to);
}

static void change_pool(void)
{
    int number = draw(POOLS), device = some_device();
    struct pool *pool = &pools[number];
    for (int i = 0; i < BUFFERS; i++)
        if (pool->handle && buffers[i].kind == POOLED && buffers[i].pool == number)
            return;
    if (pool->handle) {
        note("destroy a pool of %d", pool->device);
        count_answer(POOL, cuMemPoolDestroy(pool->handle));
        pool->handle = NULL;
    } else {
        note("create a pool of %d", device);
        pool->device = device;
        memset(pool->rights, 0, sizeof pool->rights);
        count_answer(POOL, (int)new_pool(&pool->handle, device));
    }
}

/* Graphs with memory of a pool are not launched, nor made ready, once rights have been taken from one. */
static void change_rights(void)
{
    struct pool *pool = &pools[draw(POOLS)];
    int owner = pool->handle ? pool->device : some_device(), device = some_device();
    CUmemoryPool handle = pool->handle;
    bool takes = draw(3) == 0, runtime = draw(2);
    if (device == owner)
        device = (device + 1) % devices;
    CUmemAccessDesc access = access_of(device, takes ? CU_MEM_ACCESS_FLAGS_PROT_NONE : CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (!handle)
        CHECK_CU(cuDeviceGetDefaultMemPool(&handle, owner));
    make_current(owner);
    note("a pool of %d: rights %d for %d", owner, (int)access.flags, device);
    int code = runtime ? (int)cudaMemPoolSetAccess((cudaMemPool_t)handle, (struct cudaMemAccessDesc *)&access, 1)
                       : (int)cuMemPoolSetAccess(handle, &access, 1);
    if (count_answer(POOL_RIGHTS, code) == 0)
        *(pool->handle ? &pool->rights[device] : &default_rights[owner][device]) = !takes;
    for (int i = 0; i < EXECS; i++)
        execs[i].late = true;
    for (int i = 0; takes && i < BUFFERS; i++)
        if (buffers[i].kind == POOLED)
            let_go(i);
}

static void change_stream(void)
{
    int number = draw(STREAMS), which = draw(3);
    CUstream *stream = &streams[number];
    if (*stream) {
        note("destroy a stream");
        count_answer(STREAM, which ? (int)cuStreamDestroy(*stream) : (int)cudaStreamDestroy(*stream));
        *stream = NULL;
        return;
    }
    stream_devices[number] = make_current(some_device());
    note("create a stream on %d, kind %d", stream_devices[number], which);
    int code = which == 0   ? (int)cuStreamCreate(stream, CU_STREAM_DEFAULT)
               : which == 1 ? (int)cuStreamCreate(stream, CU_STREAM_NON_BLOCKING)
                            : (int)cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, -1);
    count_answer(STREAM, code);
}

/* ---- sequences ---- */

static void take_step(void)
{
    static const struct {
        int weight;
        void (*take)(void);
    } steps[] = {
        {9, copy_once}, {18, batch}, {14, change_graph}, {14, instantiate}, {18, launch}, {9, update}, {14, set_parameters},
        {5, enable}, {2, disable}, {4, change_memory}, {2, change_pool}, {2, change_rights}, {3, change_stream},
    };
    int all = 0, which;
    size_t i = 0;
    for (; i < sizeof steps / sizeof *steps; i++)
        all += steps[i].weight;
    which = draw((unsigned)all);
    i = 0;
    for (; which >= steps[i].weight; i++)
        which -= steps[i].weight;
    steps[i].take();
}

/* All that a sequence has goes again. */
static void clean_up(void)
{
    for (int i = 0; i < EXECS; i++)
        if (execs[i].handle)
            destroy_exec(i);
    for (int i = 0; i < GRAPHS; i++)
        if (graphs[i].handle)
            destroy_graph(i);
    for (int i = 0; i < BUFFERS; i++)
        if (buffers[i].kind != NONE) {
            inspect(i, 0, SLOTS, false);
            free_buffer(i);
        }
    synchronize_all();
    for (int i = 0; i < POOLS; i++)
        if (pools[i].handle) {
            CHECK_CU(cuMemPoolDestroy(pools[i].handle));
            pools[i].handle = NULL;
        }
    for (int i = 0; i < STREAMS; i++)
        if (streams[i]) {
            CHECK_CU(cuStreamDestroy(streams[i]));
            streams[i] = NULL;
        }
    for (int from = 0; from < devices; from++)
        for (int to = 0; to < devices; to++)
            if (enabled[from][to])
                REQUIRE(disable_between(from, to) == 0);
}

/* Now and then what the shim has done for a device is lost, too. */
static void reset_one(void)
{
    int device = some_device();
    note("reset %d", device);
    CHECK(cudaSetDevice(device));
    count_answer(RESET, cudaDeviceReset());
    memset(default_rights[device], 0, sizeof default_rights[device]);
    find_contexts();
}

/* A graph that relies on access is launched without. */
static void lose(void)
{
    struct graph graph = {.by_hand = true};
    cudaGraphExec_t exec;
    struct copy copy = {.dst = 1, .src = 0, .width = 64, .height = 1, .depth = 1};
    int from = buffers[0].device, to = buffers[1].device;
    make_current(from);
    if (!enabled[from][to])
        CHECK(cudaDeviceEnablePeerAccess(to, 0));
    CHECK(cudaGraphCreate(&graph.handle, 0));
    REQUIRE(add_node(&graph, &copy, NODE_1D, from) == 0);
    CHECK(cudaGraphInstantiateWithFlags(&exec, graph.handle, 0));
    CHECK(cudaDeviceDisablePeerAccess(to));
    if (enabled[to][from])
        REQUIRE(disable_between(to, from) == 0);
    make_current(from);
    int launched = cudaGraphLaunch(exec, streams[0]), ended = cudaStreamSynchronize(streams[0]);
    fold((uint64_t)ended);
    note("  lost: launch %d, then %d\n", launched, ended);
    printf("lost: %d, last %d\n", ended, cudaGetLastError());
}

/* Some memory and streams to begin with: on two devices, in plain memory and of a pool. */
static void begin(void)
{
    for (int i = 0; i < 5; i++) {
        note("  begin ");
        make_buffer(i);
        while (i < 4 && (buffers[i].kind != (i < 2 ? PLAIN : i == 2 && !is_plain ? POOLED : buffers[i].kind) ||
                         (i == 1 && buffers[1].device == buffers[0].device))) {
            free_buffer(i);
            make_buffer(i);
        }
        note("\n");
    }
    for (int i = 0; i < STREAMS - 1; i++) {
        stream_devices[i] = some_device();
        streams[i] = new_stream(stream_devices[i], draw(2) ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
    }
    note("  begin ");
    make_graph(&graphs[0]);
    note("\n");
}

static void take(void)
{
    begin();
    for (int i = 0; i < STEPS; i++) {
        note("  %d ", i);
        take_step();
        int peeked = cudaPeekAtLastError(), last = cudaGetLastError();
        fold((uint64_t)peeked << 16 | (uint64_t)last);
        note(" last %d %d\n", peeked, last);
    }
    if (is_to_be_lost) {
        lose();
        return;
    }
    note("  end ");
    clean_up();
    if (!is_real && draw(6) == 0)
        reset_one();
    note("\n");
}

static void find_forms(void)
{
    const struct {
        void *to;
        const char *name;
    } functions[] = {
        {&driver.instantiate, "cuGraphInstantiate"},
        {&driver.instantiate_2, "cuGraphInstantiate_v2"},
        {&driver.instantiate_flags, "cuGraphInstantiateWithFlags"},
        {&driver.instantiate_params, "cuGraphInstantiateWithParams"},
        {&driver.update, "cuGraphExecUpdate"},
        {&driver.update_2, "cuGraphExecUpdate_v2"},
        {&driver.launch_per_thread, "cuGraphLaunch_ptsz"},
        {&driver.set_node, "cuGraphExecNodeSetParams"},
    };
    find_batches();
    REQUIRE(batches.linear && batches.linear_2 && batches.linear_2_per_thread && batches.boxes && batches.boxes_2);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        find_function(functions[i].name, functions[i].to);
        if (!*(void **)functions[i].to)
            check_failed(__FILE__, __LINE__, functions[i].name, "is not in the driver");
    }
}

int main(int argc, char **argv)
{
    static const struct program program = {.take = take};
    is_real = has_word(argc, argv, "real");
    is_plain = has_word(argc, argv, "plain");
    is_to_be_lost = has_word(argc, argv, "lost");
    count_devices(MOST_DEVICES);
    REQUIRE(devices >= 2);
    find_forms();
    find_contexts();
    take_sequences(argc, argv, &program);
    for (int kind = 0; kind < KINDS; kind++)
        printf("done: %s %u, %u succeeded\n", names[kind], done[kind], succeeded[kind]);
    return 0;
}
