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
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "check.h"
#include "lib/kinds_of_memory.h"

enum {
    PAIR = 2,
    THREADS = 32,
    MOST_THREADS = 256,
    STEPS = 100,
    NOISY = 4,              /* one thread of so many does not copy */
    SMALL = 160 << 10,      /* bytes of a buffer */
    LARGE = (8 << 20) + 4096,
    WARM = 40,              /* copies each way that a pair makes at first */
    SHOWN = 20,
};

/* In which ways memory is taken: a granted one is for the other device, too, if that is not refused; a pool that is gone ends with its memory. */
static const struct {
    const char *name;
    enum kind kind;
    bool is_granted, is_gone;
} kinds[] = {{"plain", PLAIN, false, false}, {"pool", POOLED, false, false},       {"own pool", OWN_POOL, true, false},
             {"pool that is gone", OWN_POOL, true, true}, {"mapped", MAPPED, false, false}, {"mapped, granted", MAPPED, true, false}};
enum { KINDS = sizeof kinds / sizeof *kinds };

struct thread {
    unsigned number;
    struct part part;
    int step;
    CUstream streams[PAIR];
    struct memory buffers[PAIR];
    unsigned char *sent, *got;
};

static unsigned seed;
static int thread_count = THREADS, steps = STEPS, is_real, is_late, hangs;
static atomic_int copied, refused, wrong, workers;

/* ---- memory ---- */

/* Memory of cuMemAlloc waits for all work of the device when it is freed. */
static void take(struct thread *t, struct memory *m, int device, size_t bytes)
{
    unsigned wanted;
    do
        wanted = hangs ? 1 + draw(KINDS - 1) : draw(KINDS);
    while (is_real && kinds[wanted].is_gone);
    make_current(device);
    take_memory(m, kinds[wanted].kind, device, bytes, t->streams[device]);
    m->wanted = (int)wanted;
    if (kinds[wanted].is_granted)
        (void)grant(m, !device);
    if (!kinds[wanted].is_gone)
        return;
    CHECK_CU(cuMemPoolDestroy(m->pool)); /* once its memory is freed, too */
    m->pool = NULL;
}

static void take_any(struct thread *t, int device)
{
    take(t, &t->buffers[device], device, draw(24) == 0 ? LARGE : SMALL);
}

static void give_back(struct thread *t, struct memory *m)
{
    make_current(m->device);
    give_back_memory(m, t->streams[m->device]);
}

/* ---- what a thread does ---- */

static bool has_arrived(const struct thread *t, const struct transfer *c)
{
    for (size_t line = 0; line < c->rows * c->slices; line++)
        if (memcmp(t->sent + line * c->pitch, t->got + line * c->pitch, c->width) != 0)
            return false;
    return true;
}

/* How much of the transfer is wrong, and whether the wrong bytes are those from before, which nothing overwrote. */
static void show_wrong(const struct thread *t, const struct transfer *c)
{
    size_t bytes = 0, old = 0, first = 0;
    for (size_t line = 0; line < c->rows * c->slices; line++)
        for (size_t at = line * c->pitch; at < line * c->pitch + c->width; at++)
            if (t->sent[at] != t->got[at]) {
                first = bytes++ == 0 ? at : first;
                old += t->got[at] == 0xee;
            }
    printf("WRONG: thread %u: %zu of %zu x %zu x %zu bytes, the first at %zu; %zu are as before the copy\n", t->number, bytes, c->width, c->rows,
           c->slices, first, old);
}

static void copy(struct thread *t)
{
    int from = (int)draw(PAIR), by = (int)draw(PAIR);
    struct memory *src = &t->buffers[from], *dst = &t->buffers[!from];
    struct transfer c = some_transfer(dst, src);
    enum form form = c.form;
    size_t extent = c.pitch * c.rows * c.slices;
    CUstream streams[] = {t->streams[by], t->streams[by], NULL, CU_STREAM_PER_THREAD};
    c.stream = streams[draw(is_batch(form) ? 2 : 4)];

    fill(t->sent, extent, draw(1 << 16));
    memset(t->got, 0, extent);
    make_current(from);
    CHECK_CU(cuMemcpyHtoDAsync(src->at, t->sent, extent, t->streams[from]));
    CHECK_CU(cuStreamSynchronize(t->streams[from]));
    make_current(!from);
    CHECK_CU(cuMemsetD8Async(dst->at, 0xee, extent, t->streams[!from]));
    CHECK_CU(cuStreamSynchronize(t->streams[!from]));

    make_current(by);
    int ret = make(&c);
    CUresult waited = wait_for_transfer(&c, contexts[by], contexts[!by]);
    if (waited != CUDA_SUCCESS)
        printf("seed %u thread %u step %d: %s returned %d, and then its stream %s\n", seed, t->number, t->step, forms[form].name, ret,
               driver_error_name(waited));
    CHECK_CU(waited);
    if (ret != 0) {
        /* Nobody refuses memory without rights of its own, but for a batch where there are none. */
        if (src->kind == PLAIN && dst->kind == PLAIN && ret != -1)
            printf("seed %u thread %u step %d: %s of %zu x %zu x %zu bytes returned %d\n", seed, t->number, t->step, forms[form].name, c.width,
                   c.rows, c.slices, ret);
        REQUIRE(src->kind != PLAIN || dst->kind != PLAIN || ret == -1);
        refused++;
        return;
    }
    make_current(!from);
    CHECK_CU(cuMemcpyDtoHAsync(t->got, dst->at, extent, t->streams[!from]));
    CHECK_CU(cuStreamSynchronize(t->streams[!from]));
    copied++;
    if (!has_arrived(t, &c) && wrong++ < SHOWN) {
        printf("WRONG: seed %u thread %u step %d: %s of %zu bytes from device %d (%s) to %d (%s), made by %d\n", seed, t->number, t->step,
               forms[form].name, extent, from, kinds[src->wanted].name, !from, kinds[dst->wanted].name, by);
        show_wrong(t, &c);
        usleep(300000);
        CHECK_CU(cuMemcpyDtoHAsync(t->got, dst->at, extent, t->streams[!from]));
        CHECK_CU(cuStreamSynchronize(t->streams[!from]));
        printf("WRONG: thread %u: %s later\n", t->number, has_arrived(t, &c) ? "right" : "as wrong");
    }
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
    fill(sent, BYTES, draw(1 << 16));
    for (int device = 0; device < PAIR; device++) {
        make_context(&made[device], device);
        CHECK_CU(cuCtxSetCurrent(made[device]));
        CHECK_CU(cuMemAlloc(&at[device], BYTES));
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
    int device = (int)draw(PAIR);
    switch (draw(16)) {
    case 0:
        give_back(t, &t->buffers[device]);
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
    struct memory b = {0};
    int device = (int)draw(PAIR);
    make_current(device);
    switch (draw(is_real ? 11 : 12) + (hangs ? 2u : 0u)) {
    case 0:
        destroy_stream(t, device);
        break;
    case 1:
        copy_in_contexts(t);
        break;
    case 11:
        if (devices > PAIR && t->number == 0 && !hangs) {
            CHECK(cudaSetDevice(devices - 1));
            CHECK(cudaFree(NULL));
            CHECK(cudaDeviceReset());
        }
        break;
    default:
        take(t, &b, device, 1 + draw(SMALL));
        CHECK_CU(cuMemsetD8Async(b.at, 1, 1, t->streams[device]));
        CHECK_CU(cuStreamSynchronize(t->streams[device]));
        give_back(t, &b);
    }
}

static void *run(void *argument)
{
    struct thread *t = argument;
    mine = &t->part;
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
            give_back(t, &t->buffers[device]);
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
    count_devices(MOST_DEVICES);
    REQUIRE(devices >= PAIR);
    CUstream stream;
    CUgraph graph;
    for (int device = 0; device < PAIR; device++)
        find_context(device);
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
    is_late = has_word(argc, argv, "late");
    hangs = has_word(argc, argv, "hangs");
    is_real = has_word(argc, argv, "real");
    REQUIRE(thread_count > 0 && thread_count <= MOST_THREADS);
    setvbuf(stdout, NULL, _IOLBF, 0);
    set_up();
    for (int number = 0; number < thread_count; number++)
        workers += number % NOISY != 0 || thread_count == 1;
    for (int number = 0; number < thread_count; number++) {
        threads[number] = (struct thread){.number = (unsigned)number, .part.state = (uint64_t)seed << 8 | (unsigned)number};
        REQUIRE(pthread_create(&handles[number], NULL, run, &threads[number]) == 0);
    }
    for (int number = 0; number < thread_count; number++)
        pthread_join(handles[number], NULL);
    printf("%d copies, %d refused, %d wrong\n", copied, refused, wrong);
    fflush(NULL);
    _exit(wrong > 0);
}
