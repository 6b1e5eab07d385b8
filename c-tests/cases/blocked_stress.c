/* build: runtime12+ driver; run: blocked_stress SEED [THREADS [STEPS [WORD…]]] on sim gpu
 * Threads that copy between two devices in every form, each between buffers of its own, while others allocate, free, map, reset and destroy:
 * does the data of each copy that succeeds arrive? For pairs that p2pshim has to stage, whatever happens beside a copy.
 *
 *   late    the program enables access while it captures, so that the pair is verified by copies, which are not looked at
 *   hangs   for paths that hang: nothing waits for all work of a device, not even the end of the process
 *   real    for real GPUs: no device is reset, and no pool is destroyed under its memory, in which driver 580 crashes, plain too
 *
 * Draws what each of 32 threads does in 100 steps from the seed; what happens at the same time differs from run to run. Prints a line for each of the first copies
 * that are wrong: the thread, the step, the form, both memories and the size. The last line counts copies, those that were refused, as regular copies are of
 * memory with rights of its own that the current device does not have, and wrong ones. Exits with 1 if there are any.
 *
 * Copies go between devices 0 and 1. The last device, if there are more, is reset.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

enum {
    PAIR = 2,
    THREADS = 32,
    MOST_THREADS = 256,
    STEPS = 100,
    NOISY = 4,              /* one thread of so many does not copy */
    SMALL = 160 << 10,      /* bytes of a buffer */
    LARGE = (8 << 20) + 4096,
    GRANULE = 2 << 20,
    WARM = 40,              /* copies each way that a pair makes at first */
    SHOWN = 20,
};

enum kind { PLAIN, POOLED, OWN_POOL, GONE_POOL, MAPPED, GRANTED, KINDS };
static const char *const kinds[KINDS] = {"plain", "pool", "own pool", "pool that is gone", "mapped", "mapped, granted"};

struct buffer {
    enum kind kind;
    int device;
    size_t bytes;
    CUdeviceptr at;
    CUmemoryPool pool;
    CUmemGenericAllocationHandle physical;
};

struct thread {
    unsigned number, state;
    int step;
    CUstream streams[PAIR];
    struct buffer buffers[PAIR];
    unsigned char *sent, *got;
};

static CUcontext contexts[PAIR];
static unsigned seed;
static int thread_count = THREADS, steps = STEPS, device_count, is_real, is_late, hangs;
static atomic_int copied, refused, wrong, workers;

#include "lib/copy_forms.h"

static unsigned draw(struct thread *t, unsigned count)
{
    t->state = t->state * 1664525u + 1013904223u;
    return (t->state >> 8) % count;
}

/* ---- memory ---- */

static CUmemAccessDesc access_of(int device)
{
    CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    return access;
}

static size_t whole(size_t bytes)
{
    return (bytes + GRANULE - 1) / GRANULE * GRANULE;
}

static void take(struct buffer *b, int device, enum kind kind, size_t bytes, CUstream stream)
{
    CUmemPoolProps pool = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = access_of(device).location};
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = access_of(device).location};
    CUmemAccessDesc own = access_of(device), other = access_of(!device);
    *b = (struct buffer){.kind = kind, .device = device, .bytes = bytes};
    switch (kind) {
    case PLAIN:
        CHECK_CU(cuMemAlloc(&b->at, bytes));
        break;
    case POOLED:
        CHECK_CU(cuMemAllocAsync(&b->at, bytes, stream));
        break;
    case OWN_POOL:
    case GONE_POOL:
        CHECK_CU(cuMemPoolCreate(&b->pool, &pool));
        (void)cuMemPoolSetAccess(b->pool, &other, 1); /* which may be refused */
        CHECK_CU(cuMemAllocFromPoolAsync(&b->at, bytes, b->pool, stream));
        if (kind == OWN_POOL)
            break;
        CHECK_CU(cuStreamSynchronize(stream));
        CHECK_CU(cuMemPoolDestroy(b->pool)); /* once its memory is freed, too */
        b->pool = NULL;
        break;
    default:
        CHECK_CU(cuMemAddressReserve(&b->at, whole(bytes), 0, 0, 0));
        CHECK_CU(cuMemCreate(&b->physical, whole(bytes), &properties, 0));
        CHECK_CU(cuMemMap(b->at, whole(bytes), 0, b->physical, 0));
        CHECK_CU(cuMemSetAccess(b->at, whole(bytes), &own, 1));
        if (kind == GRANTED)
            (void)cuMemSetAccess(b->at, whole(bytes), &other, 1);
    }
}

static void give_back(struct buffer *b, CUstream stream)
{
    switch (b->kind) {
    case PLAIN:
        CHECK_CU(cuMemFree(b->at));
        break;
    case POOLED:
    case OWN_POOL:
    case GONE_POOL:
        CHECK_CU(cuMemFreeAsync(b->at, stream));
        CHECK_CU(cuStreamSynchronize(stream));
        if (b->pool)
            CHECK_CU(cuMemPoolDestroy(b->pool));
        break;
    default:
        CHECK_CU(cuMemUnmap(b->at, whole(b->bytes)));
        CHECK_CU(cuMemRelease(b->physical));
        CHECK_CU(cuMemAddressFree(b->at, whole(b->bytes)));
    }
}

/* Memory of cuMemAlloc waits for all work of the device when it is freed. */
static enum kind any_kind(struct thread *t)
{
    enum kind kind;
    do
        kind = (enum kind)(hangs ? POOLED + draw(t, KINDS - POOLED) : draw(t, KINDS));
    while (is_real && kind == GONE_POOL);
    return kind;
}

static void take_any(struct thread *t, int device)
{
    make_current(device);
    take(&t->buffers[device], device, any_kind(t), draw(t, 24) == 0 ? LARGE : SMALL, t->streams[device]);
}

static void give_back_any(struct thread *t, int device)
{
    make_current(device);
    give_back(&t->buffers[device], t->streams[device]);
}

/* ---- what a thread does ---- */

static bool has_arrived(const struct thread *t, const struct copy *c)
{
    for (size_t line = 0; line < c->height * c->depth; line++)
        if (memcmp(t->sent + line * c->pitch, t->got + line * c->pitch, c->width) != 0)
            return false;
    return true;
}

static void copy(struct thread *t)
{
    int from = (int)draw(t, PAIR), by = (int)draw(t, PAIR);
    struct buffer *src = &t->buffers[from], *dst = &t->buffers[!from];
    size_t bytes = src->bytes < dst->bytes ? src->bytes : dst->bytes;
    enum form form = (enum form)draw(t, FORMS);
    struct copy c = {.src = src, .dst = dst, .height = 1, .depth = 1};
    if (forms[form].is_linear) {
        c.width = c.pitch = draw(t, 4) == 0 ? 1 + draw(t, 64) : bytes - draw(t, 256);
    } else {
        c.pitch = 1024, c.width = 1 + draw(t, 1024), c.height = 1 + draw(t, 16), c.depth = 1 + draw(t, 8);
    }
    CUstream streams[] = {t->streams[by], t->streams[by], NULL, CU_STREAM_PER_THREAD};
    c.stream = streams[draw(t, forms[form].takes_no_default ? 2 : 4)];

    fill(t->sent, extent(&c), draw(t, 1 << 16));
    memset(t->got, 0, extent(&c));
    make_current(from);
    CHECK_CU(cuMemcpyHtoDAsync(src->at, t->sent, extent(&c), t->streams[from]));
    CHECK_CU(cuStreamSynchronize(t->streams[from]));
    make_current(!from);
    CHECK_CU(cuMemsetD8Async(dst->at, 0xee, extent(&c), t->streams[!from]));
    CHECK_CU(cuStreamSynchronize(t->streams[!from]));

    make_current(by);
    int ret = make(form, &c);
    CUresult waited = wait_for(form, &c, by, !by);
    if (waited != CUDA_SUCCESS)
        printf("seed %u thread %u step %d: %s returned %d, and then its stream %s\n", seed, t->number, t->step, forms[form].name, ret,
               driver_error_name(waited));
    CHECK_CU(waited);
    if (ret != 0) {
        /* Nobody refuses memory without rights of its own, but for a batch where there are none. */
        if (src->kind == PLAIN && dst->kind == PLAIN && ret != -1)
            printf("seed %u thread %u step %d: %s of %zu x %zu x %zu bytes returned %d\n", seed, t->number, t->step, forms[form].name, c.width,
                   c.height, c.depth, ret);
        REQUIRE(src->kind != PLAIN || dst->kind != PLAIN || ret == -1);
        refused++;
        return;
    }
    make_current(!from);
    CHECK_CU(cuMemcpyDtoHAsync(t->got, dst->at, extent(&c), t->streams[!from]));
    CHECK_CU(cuStreamSynchronize(t->streams[!from]));
    copied++;
    if (!has_arrived(t, &c) && wrong++ < SHOWN)
        printf("WRONG: seed %u thread %u step %d: %s of %zu bytes from device %d (%s) to %d (%s), made by %d\n", seed, t->number, t->step,
               forms[form].name, extent(&c), from, kinds[src->kind], !from, kinds[dst->kind], by);
}

static void destroy_stream(struct thread *t, int device)
{
    make_current(device);
    CHECK_CU(cuStreamDestroy(t->streams[device]));
    CHECK_CU(cuStreamCreate(&t->streams[device], CU_STREAM_NON_BLOCKING));
}

/* Other contexts on both devices, which get access to each other, and copy. */
static void copy_in_contexts(struct thread *t)
{
    enum { BYTES = 4096 };
    CUcontext made[PAIR];
    CUdeviceptr at[PAIR];
    unsigned char sent[BYTES], got[BYTES] = {0};
    fill(sent, BYTES, draw(t, 1 << 16));
    for (int device = 0; device < PAIR; device++) {
#if CUDA_VERSION >= 13000
        CHECK_CU(cuCtxCreate(&made[device], NULL, 0, device));
#else
        CHECK_CU(cuCtxCreate(&made[device], 0, device));
#endif
        CHECK_CU(cuMemAlloc(&at[device], BYTES));
        CHECK_CU(cuCtxPopCurrent(NULL));
    }
    CHECK_CU(cuCtxSetCurrent(made[0]));
    (void)cuCtxEnablePeerAccess(made[1], 0);
    CHECK_CU(cuMemcpyHtoD(at[0], sent, BYTES));
    CHECK_CU(cuMemcpyPeer(at[1], made[1], at[0], made[0], BYTES));
    CHECK_CU(cuCtxSynchronize());
    CHECK_CU(cuCtxSetCurrent(made[1]));
    CHECK_CU(cuMemcpyDtoH(got, at[1], BYTES));
    copied++;
    if (memcmp(sent, got, BYTES) != 0 && wrong++ < SHOWN)
        printf("WRONG: seed %u thread %u step %d: cuMemcpyPeer in contexts of its own\n", seed, t->number, t->step);
    for (int device = 0; device < PAIR; device++)
        CHECK_CU(cuCtxDestroy(made[device]));
    make_current(0);
}

static void step(struct thread *t)
{
    int device = (int)draw(t, PAIR);
    switch (draw(t, 16)) {
    case 0:
        give_back_any(t, device);
        take_any(t, device);
        break;
    case 1:
        destroy_stream(t, device);
        break;
    case 2:
        make_current(device);
        (void)cuCtxEnablePeerAccess(contexts[!device], 0);
        break;
    default:
        copy(t);
    }
}

static void noise(struct thread *t)
{
    struct buffer b;
    int device = (int)draw(t, PAIR);
    make_current(device);
    switch (draw(t, is_real ? 11 : 12) + (hangs ? 2u : 0u)) {
    case 0:
        destroy_stream(t, device);
        break;
    case 1:
        copy_in_contexts(t);
        break;
    case 11:
        if (device_count > PAIR && t->number == 0 && !hangs) {
            CHECK(cudaSetDevice(device_count - 1));
            CHECK(cudaFree(NULL));
            CHECK(cudaDeviceReset());
        }
        break;
    default:
        take(&b, device, any_kind(t), 1 + draw(t, SMALL), t->streams[device]);
        CHECK_CU(cuMemsetD8Async(b.at, 1, 1, t->streams[device]));
        CHECK_CU(cuStreamSynchronize(t->streams[device]));
        make_current(device);
        give_back(&b, t->streams[device]);
    }
}

static void *run(void *argument)
{
    struct thread *t = argument;
    bool is_noisy = t->number % NOISY == 0 && thread_count > 1;
    for (int device = 0; device < PAIR; device++) {
        make_current(device);
        CHECK_CU(cuStreamCreate(&t->streams[device], CU_STREAM_NON_BLOCKING));
        if (!is_noisy)
            take_any(t, device);
    }
    t->sent = malloc(LARGE), t->got = malloc(LARGE);
    REQUIRE(t->sent && t->got);
    /* Those that make noise do so as long as anybody copies. */
    for (t->step = 0; is_noisy ? workers > 0 : t->step < steps; t->step++)
        is_noisy ? noise(t) : step(t);
    if (!is_noisy) {
        workers--;
        for (int device = 0; device < PAIR; device++)
            give_back_any(t, device);
    }
    free(t->sent), free(t->got);
    return NULL;
}

/* ---- the program ---- */

static void enable(void)
{
    for (int device = 0; device < PAIR; device++) {
        make_current(device);
        (void)cuCtxEnablePeerAccess(contexts[!device], 0);
    }
}

/* The pair copies enough to be verified. */
static void warm_up(void)
{
    CUdeviceptr at[PAIR];
    for (int device = 0; device < PAIR; device++) {
        make_current(device);
        CHECK_CU(cuMemAlloc(&at[device], SMALL));
    }
    for (int number = 0; number < PAIR * WARM; number++) {
        int from = number % PAIR;
        make_current(from);
        CHECK_CU(cuMemcpyPeer(at[!from], contexts[!from], at[from], contexts[from], SMALL));
        CHECK_CU(cuStreamSynchronize(CU_STREAM_LEGACY));
    }
    for (int device = 0; device < PAIR && !hangs; device++) {
        make_current(device);
        CHECK_CU(cuMemFree(at[device]));
    }
}

static void set_up(void)
{
    CHECK(cudaGetDeviceCount(&device_count));
    REQUIRE(device_count >= PAIR);
    CUstream stream;
    CUgraph graph;
    for (int device = 0; device < PAIR; device++) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaFree(NULL));
        CHECK_CU(cuCtxGetCurrent(&contexts[device]));
    }
    if (is_late) {
        CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        CHECK_CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    }
    enable();
    if (is_late) {
        CHECK_CU(cuStreamEndCapture(stream, &graph));
        CHECK_CU(cuGraphDestroy(graph));
    }
    warm_up();
    find_batches();
}

int main(int argc, char **argv)
{
    static struct thread threads[MOST_THREADS];
    static pthread_t handles[MOST_THREADS];
    REQUIRE(argc > 1);
    seed = (unsigned)strtoul(argv[1], NULL, 10);
    thread_count = argc > 2 ? atoi(argv[2]) : THREADS;
    steps = argc > 3 ? atoi(argv[3]) : STEPS;
    for (int word = 4; word < argc; word++) {
        is_late |= strcmp(argv[word], "late") == 0;
        hangs |= strcmp(argv[word], "hangs") == 0;
        is_real |= strcmp(argv[word], "real") == 0;
    }
    REQUIRE(thread_count > 0 && thread_count <= MOST_THREADS);
    setvbuf(stdout, NULL, _IOLBF, 0);
    set_up();
    for (int number = 0; number < thread_count; number++)
        workers += number % NOISY != 0 || thread_count == 1;
    for (int number = 0; number < thread_count; number++) {
        threads[number] = (struct thread){.number = (unsigned)number, .state = seed * 2654435761u + (unsigned)number * 40503u};
        REQUIRE(pthread_create(&handles[number], NULL, run, &threads[number]) == 0);
    }
    for (int number = 0; number < thread_count; number++)
        pthread_join(handles[number], NULL);
    printf("%d copies, %d refused, %d wrong\n", copied, refused, wrong);
    fflush(NULL);
    _exit(wrong > 0);
}
