/* build: 12 driver; run: random_order FIRST COUNT whole|less on sim
 * COUNT programs, drawn from the seeds that begin with FIRST, whose order is known: memsets, copies within a device and between two, and frees of
 * a pool's memory, on streams of all kinds of two devices, by two threads. Whoever uses memory waits for what it has to come after: its stream
 * for an event, or the host. `less`: of each program one wait of a stream for an event is left out, such that two uses of the same bytes lose
 * their order; a program without such a wait stays whole.
 *
 * Whether an event on a default stream, or a wait for that, also waits for the blocking streams, and the other way round, is not relied on.
 *
 * Each use is a call from a place of its own, which BASE and its number tell. Prints `missing FIRST SECOND` for each pair of uses that lost
 * their order, with the addresses of both places, or `perhaps FIRST SECOND` where that depends on what is not relied on; `wrong SEED` if at the end memory is not as the program should leave it; and how many programs
 * and uses there were.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "check.h"
#include "lib/devices.h"
#include "lib/random.h"

enum {
    DEVICES = 2,
    STREAMS = 8, /* of each device: a legacy, a blocking and two non-blocking ones */
    BUFFERS = 5, /* the last one is a pool's */
    BYTES = 4096,
    MOST_USES = 14,
    MOST_STEPS = 64,
    PLACES = 1 << 12,
    STUB = 16,
    RETURNS = 10, /* bytes of a stub before the place where its call returns to */
};
#define BASE ((unsigned char *)0x200000000000)

enum kind { SET, COPY, FREE };
enum role { LEGACY, BLOCKING, NON_BLOCKING };
enum what { USE, EDGE, HOST };

struct range {
    int buffer; /* or -1 */
    size_t at, bytes;
};

struct use {
    enum kind kind;
    int stream;
    struct range reads, writes;
    int value;
};

/* A use; a wait of stream `to` for an event on stream `from`; or a wait of the host for stream `from`. */
struct step {
    enum what what;
    int use, from, to, thread;
};

static const enum role roles[STREAMS / DEVICES] = {LEGACY, BLOCKING, NON_BLOCKING, NON_BLOCKING};
static cudaStream_t streams[STREAMS];
static cudaEvent_t events[STREAMS];
static unsigned char *memory[BUFFERS], expected[BUFFERS][BYTES];
static struct use uses[MOST_USES];
static struct step steps[MOST_STEPS];
static int use_count, step_count, places;

static int device_of(int stream)
{
    return stream / (STREAMS / DEVICES);
}

static enum role role_of(int stream)
{
    return roles[stream % (STREAMS / DEVICES)];
}

static int home_of(int buffer)
{
    return buffer % DEVICES;
}

/* ---- the order ---- */

/* The uses that come before each use, as bits, if a step is left out (or none is, -1): those that surely do, or all that may. */
static void find_order(int without, bool is_most, unsigned before[MOST_USES])
{
    unsigned of_stream[STREAMS] = {0}, host = 0;
    for (int i = 0; i < step_count; i++) {
        const struct step *step = &steps[i];
        if (i == without)
            continue;
        int at = step->what == USE ? uses[step->use].stream : step->from;
        unsigned *own = &of_stream[at];
        *own |= host;
        for (int other = 0; other < STREAMS && (is_most || step->what == USE); other++) {
            bool is_side = device_of(other) == device_of(at) && other != at;
            if (is_side && ((role_of(at) == LEGACY && role_of(other) == BLOCKING) || (role_of(at) == BLOCKING && role_of(other) == LEGACY)))
                *own |= of_stream[other];
        }
        if (step->what == USE) {
            before[step->use] = *own;
            *own |= 1u << step->use;
        } else if (step->what == EDGE) {
            of_stream[step->to] |= *own;
        } else {
            host |= *own;
        }
    }
}

static bool meet(const struct range *one, const struct range *other)
{
    return one->buffer >= 0 && one->buffer == other->buffer && one->at < other->at + other->bytes && other->at < one->at + one->bytes;
}

static bool conflict(const struct use *one, const struct use *other)
{
    return meet(&one->writes, &other->writes) || meet(&one->writes, &other->reads) || meet(&one->reads, &other->writes);
}

static int count_missing(int without, void say(bool, int, int))
{
    unsigned least[MOST_USES], most[MOST_USES];
    int count = 0;
    find_order(without, false, least);
    find_order(without, true, most);
    for (int later = 0; later < use_count; later++)
        for (int earlier = 0; earlier < later; earlier++)
            if (conflict(&uses[earlier], &uses[later]) && !(least[later] >> earlier & 1)) {
                bool is_sure = !(most[later] >> earlier & 1);
                count += is_sure;
                if (say)
                    say(is_sure, earlier, later);
            }
    return count;
}

/* ---- drawing ---- */

static struct range some_range(int buffer)
{
    static const size_t parts[][2] = {{0, BYTES}, {0, BYTES}, {0, BYTES / 2}, {BYTES / 2, BYTES / 2}, {BYTES / 4, BYTES / 2}};
    const size_t *part = ONE_OF(parts);
    return (struct range){buffer, part[0], part[1]};
}

static void add_step(struct step step)
{
    REQUIRE(step_count < MOST_STEPS);
    step.thread = (int)draw(2);
    steps[step_count++] = step;
}

/* A legacy stream is ordered with those of other devices by a copy between them, which the model does not know. */
static bool may_be_on(const struct use *use)
{
    bool is_between = use->reads.buffer >= 0 && home_of(use->reads.buffer) != home_of(use->writes.buffer);
    int home = home_of(use->writes.buffer);
    return is_between ? role_of(use->stream) != LEGACY : device_of(use->stream) == home;
}

static void add_use(struct use use)
{
    int number = use_count++;
    unsigned before[MOST_USES];
    uses[number] = use;
    add_step((struct step){USE, .use = number});
    find_order(-1, false, before);
    step_count--;
    for (int earlier = number - 1; earlier >= 0; earlier--) {
        if (!conflict(&uses[earlier], &use) || before[number] >> earlier & 1)
            continue;
        enum what what = draw(10) == 0 ? HOST : EDGE;
        add_step((struct step){what, .from = uses[earlier].stream, .to = use.stream});
        add_step((struct step){USE, .use = number});
        find_order(-1, false, before);
        step_count--;
    }
    if (draw(8) == 0)
        add_step((struct step){EDGE, .from = (int)draw(STREAMS), .to = use.stream});
    add_step((struct step){USE, .use = number});
}

static void draw_program(void)
{
    int count = 5 + (int)draw(MOST_USES - 6);
    use_count = step_count = 0;
    while (use_count < count) {
        struct use use = {.kind = draw(2) ? SET : COPY, .stream = (int)draw(STREAMS), .value = 1 + (int)draw(255)};
        use.writes = some_range((int)draw(BUFFERS));
        use.reads.buffer = -1;
        if (use.kind == COPY) {
            use.reads = (struct range){(int)draw(BUFFERS), (size_t)draw(2) * (BYTES - use.writes.bytes), use.writes.bytes};
            /* Copies between devices of a pool's memory need rights. */
            bool is_pooled = use.reads.buffer == BUFFERS - 1 || use.writes.buffer == BUFFERS - 1;
            if (use.reads.buffer == use.writes.buffer || (is_pooled && home_of(use.reads.buffer) != home_of(use.writes.buffer)))
                continue;
        }
        if (may_be_on(&use))
            add_use(use);
    }
    struct use last = {.kind = FREE, .writes = {BUFFERS - 1, 0, BYTES}, .reads = {.buffer = -1}};
    do
        last.stream = (int)draw(STREAMS);
    while (!may_be_on(&last));
    add_use(last);
}

/* ---- running ---- */

/* Functions that each call another one, which `target` names, with the same arguments, from a place of its own. */
static void make_stubs(void)
{
    unsigned char *at = mmap(BASE, PLACES * (STUB + sizeof(void *)), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    REQUIRE(at == BASE);
    for (int i = 0; i < PLACES; i++) {
        /* sub $8, %rsp; call *target; add $8, %rsp; ret */
        unsigned char stub[STUB] = {0x48, 0x83, 0xec, 0x08, 0xff, 0x15, 0, 0, 0, 0, 0x48, 0x83, 0xc4, 0x08, 0xc3, 0xcc};
        int32_t distance = (int32_t)(PLACES * STUB + i * (int)sizeof(void *) - (i * STUB + RETURNS));
        memcpy(stub + 6, &distance, sizeof distance);
        memcpy(BASE + i * STUB, stub, STUB);
    }
    REQUIRE(mprotect(BASE, PLACES * STUB, PROT_READ | PROT_EXEC) == 0);
}

static void *stub(int number, void *target)
{
    REQUIRE(number < PLACES);
    memcpy(BASE + PLACES * STUB + number * sizeof target, &target, sizeof target);
    return BASE + number * STUB;
}

static void make_use(int number)
{
    const struct use *use = &uses[number];
    const struct range *to = &use->writes, *from = &use->reads;
    CUstream stream = streams[use->stream];
    CUdeviceptr writes = (CUdeviceptr)(memory[to->buffer] + to->at), reads = from->buffer < 0 ? 0 : (CUdeviceptr)(memory[from->buffer] + from->at);
    CUresult code;
    if (use->kind == SET) {
        CUresult (*set)(CUdeviceptr, unsigned char, size_t, CUstream) = stub(places + number, (void *)cuMemsetD8Async);
        code = set(writes, (unsigned char)use->value, to->bytes, stream);
    } else if (use->kind == FREE) {
        CUresult (*release)(CUdeviceptr, CUstream) = stub(places + number, (void *)cuMemFreeAsync);
        code = release(writes, stream);
    } else if (home_of(to->buffer) == home_of(from->buffer)) {
        CUresult (*copy)(CUdeviceptr, CUdeviceptr, size_t, CUstream) = stub(places + number, (void *)cuMemcpyAsync);
        code = copy(writes, reads, to->bytes, stream);
    } else {
        CUcontext there = contexts[home_of(to->buffer)], here = contexts[home_of(from->buffer)];
        CUresult (*copy)(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream) = stub(places + number, (void *)cuMemcpyPeerAsync);
        code = copy(writes, there, reads, here, to->bytes, stream);
    }
    CHECK_CU(code);
}

static void make_step(const struct step *step)
{
    int at = step->what == USE ? uses[step->use].stream : step->from;
    CHECK(cudaSetDevice(device_of(at)));
    if (step->what == USE)
        return make_use(step->use);
    if (step->what == HOST)
        return CHECK(cudaStreamSynchronize(streams[at]));
    CHECK(cudaEventRecord(events[at], streams[at]));
    CHECK(cudaSetDevice(device_of(step->to)));
    CHECK(cudaStreamWaitEvent(streams[step->to], events[at], 0));
}

static pthread_mutex_t turn_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static const struct step *given; /* to the second thread */
static bool is_over;

static void *second_thread(void *unused)
{
    pthread_mutex_lock(&turn_lock);
    while (!is_over) {
        if (given)
            make_step(given);
        given = NULL;
        pthread_cond_broadcast(&turned);
        pthread_cond_wait(&turned, &turn_lock);
    }
    pthread_mutex_unlock(&turn_lock);
    return unused;
}

static void give(const struct step *step)
{
    pthread_mutex_lock(&turn_lock);
    given = step;
    pthread_cond_broadcast(&turned);
    while (given)
        pthread_cond_wait(&turned, &turn_lock);
    pthread_mutex_unlock(&turn_lock);
}

static void wait_for_all(void)
{
    for (int device = 0; device < DEVICES; device++) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaDeviceSynchronize());
    }
}

/* The bytes that a right program leaves. That of the pool is gone by then. */
static void expect(void)
{
    memset(expected, 0, sizeof expected);
    for (int i = 0; i < use_count; i++) {
        const struct use *use = &uses[i];
        unsigned char *to = expected[use->writes.buffer] + use->writes.at;
        if (use->kind == SET)
            memset(to, use->value, use->writes.bytes);
        else if (use->kind == COPY)
            memcpy(to, expected[use->reads.buffer] + use->reads.at, use->writes.bytes);
    }
}

static bool is_right(void)
{
    static unsigned char found[BYTES];
    bool is = true;
    for (int i = 0; i < BUFFERS - 1; i++) {
        CHECK(cudaMemcpy(found, memory[i], BYTES, cudaMemcpyDeviceToHost));
        is = is && memcmp(found, expected[i], BYTES) == 0;
    }
    return is;
}

static void say_missing(bool is_sure, int earlier, int later)
{
    unsigned char *first = BASE + (places + earlier) * STUB + RETURNS, *second = BASE + (places + later) * STUB + RETURNS;
    printf("%s %p %p\n", is_sure ? "missing" : "perhaps", (void *)first, (void *)second);
}

/* Returns whether a wait was left out. */
static bool run_program(unsigned seed, bool is_less)
{
    int candidates[MOST_STEPS], count = 0, without = -1;
    mine->state = (uint64_t)seed << 8;
    draw_program();
    REQUIRE(count_missing(-1, NULL) == 0);
    for (int i = 0; i < step_count; i++)
        if (steps[i].what == EDGE && count_missing(i, NULL) > 0)
            candidates[count++] = i;
    if (is_less && count > 0)
        without = candidates[draw((unsigned)count)];
    CHECK(cudaSetDevice(home_of(BUFFERS - 1)));
    CHECK(cudaMallocAsync((void **)&memory[BUFFERS - 1], BYTES, NULL));
    for (int i = 0; i < BUFFERS; i++) {
        CHECK(cudaSetDevice(home_of(i)));
        CHECK(cudaMemset(memory[i], 0, BYTES));
    }
    wait_for_all();
    for (int i = 0; i < step_count; i++) {
        if (i == without)
            continue;
        if (steps[i].thread)
            give(&steps[i]);
        else
            make_step(&steps[i]);
    }
    wait_for_all();
    expect();
    if (!is_right())
        printf("wrong %u\n", seed);
    count_missing(without, say_missing);
    places += use_count;
    return without >= 0;
}

int main(int argc, char **argv)
{
    pthread_t second;
    int less = 0;
    REQUIRE(argc == 4);
    unsigned first = (unsigned)strtoul(argv[1], NULL, 10), count = (unsigned)strtoul(argv[2], NULL, 10), ran = 0;
    make_stubs();
    count_devices(DEVICES);
    REQUIRE(devices == DEVICES);
    find_contexts();
    for (int i = 0; i < STREAMS; i++) {
        CHECK(cudaSetDevice(device_of(i)));
        if (role_of(i) != LEGACY)
            CHECK(cudaStreamCreateWithFlags(&streams[i], role_of(i) == BLOCKING ? cudaStreamDefault : cudaStreamNonBlocking));
        CHECK(cudaEventCreateWithFlags(&events[i], cudaEventDisableTiming));
    }
    for (int i = 0; i < BUFFERS - 1; i++) {
        CHECK(cudaSetDevice(home_of(i)));
        CHECK(cudaMalloc((void **)&memory[i], BYTES));
    }
    REQUIRE(pthread_create(&second, NULL, second_thread, NULL) == 0);
    for (; ran < count && places + MOST_USES < PLACES; ran++)
        less += run_program(first + ran, strcmp(argv[3], "less") == 0);
    pthread_mutex_lock(&turn_lock);
    is_over = true;
    pthread_cond_broadcast(&turned);
    pthread_mutex_unlock(&turn_lock);
    pthread_join(second, NULL);
    printf("programs %u, less %d, uses %d\n", ran, less, places);
    return 0;
}
