/* build: runtime old driver; run: repeated_copies SCENARIO on sim
 * Copies like ones before, again and again, and between them what makes them others: memory, streams, peers, contexts and
 * captures that come and go, mistakes, threads, children. After each change all bytes have to arrive, and each code is what
 * it is without p2pshim. For tests/it/repeated_copies.rs.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "check.h"
#include "lib/threads_sleep.h"

CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream);

/* After each change 16 copies pass before one is like those before, and 16 make a pair worth enabling. */
enum { COPIES = 80, SLICE = 4096, BYTES = COPIES * SLICE, MOST_DEVICES = 4 };

enum way { STREAM, DEFAULT, PER_THREAD, DRIVER, DRIVER_PER_THREAD, WAYS };
static const char *const names[WAYS] = {"cudaMemcpyPeerAsync", "on the default stream", "on cudaStreamPerThread",
                                        "cuMemcpyPeerAsync", "cuMemcpyPeerAsync_ptsz"};

/* Memory somewhere. */
struct place {
    int device;
    CUcontext context;
    char *memory;
};

/* What a thread copies with: from the first place to the second. */
struct pair {
    struct place places[2];
    cudaStream_t stream;
    unsigned seed;
    unsigned char sent[BYTES], got[BYTES];
};
static struct pair pair = {.places = {{.device = 0}, {.device = 1}}};

/* The one place for copies of each way. */
__attribute__((noinline)) static int copy(enum way way, const struct place *to, const struct place *from, size_t offset,
                                          size_t bytes, cudaStream_t stream)
{
    char *dst = to->memory + offset, *src = from->memory + offset;
    switch (way) {
    case STREAM:
        return cudaMemcpyPeerAsync(dst, to->device, src, from->device, bytes, stream);
    case DEFAULT:
        return cudaMemcpyPeerAsync(dst, to->device, src, from->device, bytes, NULL);
    case PER_THREAD:
        return cudaMemcpyPeerAsync(dst, to->device, src, from->device, bytes, cudaStreamPerThread);
    case DRIVER:
        return cuMemcpyPeerAsync((CUdeviceptr)dst, to->context, (CUdeviceptr)src, from->context, bytes, stream);
    default:
        return cuMemcpyPeerAsync_ptsz((CUdeviceptr)dst, to->context, (CUdeviceptr)src, from->context, bytes, NULL);
    }
}

static cudaStream_t stream_of(enum way way, cudaStream_t stream)
{
    if (way == STREAM || way == DRIVER)
        return stream;
    return way == DEFAULT ? NULL : cudaStreamPerThread;
}

/* On the device of the memory, which alone may copy that of a pool. */
static void copy_to(const struct place *place, const void *host)
{
    int before;
    CHECK(cudaGetDevice(&before));
    CHECK(cudaSetDevice(place->device));
    CHECK(cudaMemcpy(place->memory, host, BYTES, cudaMemcpyHostToDevice));
    CHECK(cudaSetDevice(before));
}

static void prepare(struct pair *of)
{
    fill(of->sent, BYTES, ++of->seed);
    memset(of->got, 0, BYTES);
    copy_to(&of->places[0], of->sent);
    copy_to(&of->places[1], of->got);
}

static bool has_arrived(struct pair *of)
{
    int before;
    CHECK(cudaGetDevice(&before));
    CHECK(cudaSetDevice(of->places[1].device));
    CHECK(cudaMemcpy(of->got, of->places[1].memory, BYTES, cudaMemcpyDeviceToHost));
    CHECK(cudaSetDevice(before));
    return memcmp(of->sent, of->got, BYTES) == 0;
}

/* Copies all bytes, a slice at a time. */
static int slices(struct pair *of, enum way way)
{
    int refused = 0;
    for (size_t i = 0; i < COPIES; i++)
        refused += copy(way, &of->places[1], &of->places[0], i * SLICE, SLICE, of->stream) != 0;
    return refused;
}

static int wrong_in_loop(struct pair *of, enum way way)
{
    prepare(of);
    int refused = slices(of, way);
    CHECK(cudaStreamSynchronize(stream_of(way, of->stream)));
    return refused + !has_arrived(of);
}

static void loop(enum way way)
{
    int wrong = wrong_in_loop(&pair, way);
    if (wrong)
        printf("    %s: %d WRONG\n", names[way], wrong);
}

static void loops(const char *when)
{
    printf("%s\n", when);
    for (enum way way = 0; way < WAYS; way++)
        loop(way);
}

static void take(struct place *place, size_t bytes)
{
    place->memory = device_memory(place->device, bytes);
    CHECK_CU(cuDevicePrimaryCtxRetain(&place->context, place->device));
    CHECK(cudaSetDevice(0));
}

static void take_pair(struct pair *of)
{
    for (int i = 0; i < 2; i++)
        take(&of->places[i], BYTES);
    CHECK(cudaStreamCreate(&of->stream));
}

static void enable_both(void)
{
    for (int device = 1; device >= 0; device--) {
        CHECK(cudaSetDevice(device));
        int has_path;
        CHECK(cudaDeviceCanAccessPeer(&has_path, device, !device));
        if (has_path)
            CHECK(cudaDeviceEnablePeerAccess(!device, 0));
    }
}

static void give(struct place *place)
{
    CHECK(cudaFree(place->memory));
}

/* Memory that goes, and memory that comes in its place. */
static void memory(void)
{
    struct place *from = &pair.places[0], *to = &pair.places[1];
    loops("at first");
    give(to);
    take(to, BYTES);
    loops("the destination is another");
    give(from);
    take(from, BYTES);
    loops("the source is another");
    give(to);
    take(to, 3 * BYTES + 1);
    loops("the destination is larger");
    /* Devices trade places: what was the one's address may now be the other's. */
    for (int round = 0; round < 3; round++) {
        give(from);
        give(to);
        from->device ^= 1, to->device ^= 1;
        take(to, BYTES);
        take(from, BYTES);
        loops("devices have changed");
    }
    from->device ^= 1, to->device ^= 1;
    give(from);
    give(to);
    take(from, BYTES);
    take(to, BYTES);
    /* From and to pools. */
    for (int round = 0; round < 2; round++) {
        give(to);
        CHECK(cudaSetDevice(to->device));
        CHECK(cudaMallocAsync((void **)&to->memory, BYTES, cudaStreamPerThread));
        CHECK(cudaStreamSynchronize(cudaStreamPerThread));
        CHECK(cudaSetDevice(0));
        loops("the destination is of a pool");
        CHECK(cudaSetDevice(to->device));
        CHECK(cudaFreeAsync(to->memory, cudaStreamPerThread));
        CHECK(cudaStreamSynchronize(cudaStreamPerThread));
        CHECK(cudaSetDevice(0));
        take(to, BYTES);
        loops("it no longer is");
    }
}

/* Memory that is gone is copied from and to. */
static void gone(void)
{
    for (int end = 0; end < 2; end++) {
        loops("all is there");
        for (enum way way = 0; way < WAYS; way++) {
            loop(way);
            give(&pair.places[end]);
            SHOW(copy(way, &pair.places[1], &pair.places[0], 0, SLICE, pair.stream));
            SHOW(cudaGetLastError());
            take(&pair.places[end], BYTES);
            loop(way);
        }
    }
}

static void streams(void)
{
    static const unsigned flags[] = {cudaStreamNonBlocking, cudaStreamDefault, cudaStreamNonBlocking};
    loops("at first");
    for (int round = 0; round < 3; round++) {
        CHECK(cudaStreamDestroy(pair.stream));
        CHECK(cudaStreamCreateWithFlags(&pair.stream, flags[round]));
        loops("another stream");
    }
    CHECK(cudaStreamDestroy(pair.stream));
    CHECK(cudaSetDevice(1));
    CHECK(cudaStreamCreate(&pair.stream));
    CHECK(cudaSetDevice(0));
    loops("a stream of the other device");
    CHECK(cudaSetDevice(1));
    loops("from the other device");
    CHECK(cudaSetDevice(0));
    for (enum way way = STREAM; way < WAYS; way += DRIVER - STREAM) {
        loop(way);
        CHECK(cudaStreamDestroy(pair.stream));
        SHOW(copy(way, &pair.places[1], &pair.places[0], 0, SLICE, pair.stream));
        SHOW(cudaGetLastError());
        CHECK(cudaStreamCreate(&pair.stream));
        loops("after a stream that was none");
    }
}

/* On the default stream, and then a stream comes that does not wait for it. */
static void beside(void)
{
    cudaStream_t other;
    for (int round = 0; round < 2; round++) {
        printf("round %d\n", round);
        for (int i = 0; i < 3; i++)
            loop(DEFAULT);
        CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
        for (int i = 0; i < 4; i++)
            loop(DEFAULT);
        CHECK(cudaStreamDestroy(other));
        loop(DEFAULT);
    }
}

/* Which way copies went, as the simulation counts them since the last time. */
static void show_ways(void)
{
    static unsigned long long before[2];
    unsigned long long now[2];
    REQUIRE(simulated_copies(0, 1, &now[0], &now[1]));
    printf("    %llu direct, %llu staged\n", now[0] - before[0], now[1] - before[1]);
    memcpy(before, now, sizeof now);
}

static void change_peers(bool shows_ways)
{
    for (int round = 0; round < 2; round++) {
        loops("not enabled");
        shows_ways ? show_ways() : (void)0;
        SHOW(cudaDeviceEnablePeerAccess(1, 0));
        loops("enabled by the program");
        shows_ways ? show_ways() : (void)0;
        SHOW(cudaDeviceEnablePeerAccess(1, 0));
        SHOW(cudaGetLastError());
        loops("twice");
        SHOW(cudaDeviceDisablePeerAccess(1));
        loops("disabled");
        shows_ways ? show_ways() : (void)0;
        SHOW(cudaDeviceDisablePeerAccess(1));
        SHOW(cudaGetLastError());
    }
}

static void peers(void)
{
    change_peers(false);
}

/* For where p2pshim enables nothing. */
static void ways(void)
{
    change_peers(true);
}

/* Wrong calls between right ones. */
static void mistakes(void)
{
    struct place good[2], *from = &pair.places[0], *to = &pair.places[1];
    memcpy(good, pair.places, sizeof good);
    loops("at first");
    for (enum way way = 0; way < WAYS; way++) {
        for (int mistake = 0; mistake < 11; mistake++) {
            size_t bytes = SLICE;
            cudaStream_t stream = pair.stream;
            loop(way);
            printf("%s, mistake %d\n", names[way], mistake);
            switch (mistake) {
            case 0: to->device = 99; to->context = NULL; break;
            case 1: from->device = -1; from->context = NULL; break;
            case 2: to->device = 0; to->context = good[0].context; break;
            case 3: from->device = 1; from->context = good[1].context; break;
            case 4: to->memory = NULL; break;
            case 5: from->memory = NULL; break;
            case 6: bytes = 0; break;
            case 7: bytes = 64 << 20; break;
            case 8: to->memory = from->memory + SLICE; break;
            case 9: to->memory = from->memory + SLICE / 2, to->device = 0, to->context = good[0].context; break;
            case 10: to->memory = from->memory, to->device = 0, to->context = good[0].context; bytes = 0; break;
            }
            int code = copy(way, to, from, 0, bytes, stream);
            printf("    %d, last error %s\n", code, cudaGetErrorName(cudaGetLastError()));
            memcpy(pair.places, good, sizeof good);
            CHECK(cudaStreamSynchronize(stream_of(way, pair.stream)));
            loop(way);
        }
    }
    /* An error that nobody has asked for stays. */
    SHOW(cudaMemcpyPeerAsync(to->memory, 99, from->memory, 0, SLICE, pair.stream));
    loops("with an error left");
    SHOW(cudaPeekAtLastError());
    SHOW(cudaDeviceEnablePeerAccess(0, 0));
    loops("with another");
    SHOW(cudaGetLastError());
    SHOW(cudaGetLastError());
    /* The very next copy, from the same place as those before, is where it shows. */
    for (int i = 0; i < 2; i++) {
        loop(STREAM);
        loop(STREAM);
        SHOW(i ? cudaDeviceDisablePeerAccess(1) : cudaDeviceEnablePeerAccess(0, 0));
        loop(STREAM);
        SHOW(cudaGetLastError());
    }
}

/* So many small ones in a row are worth a word. */
static void small(void)
{
    for (int round = 0; round < 3; round++) {
        int refused = 0;
        for (int i = 0; i < 1500; i++)
            refused += copy(round ? DRIVER : STREAM, &pair.places[1], &pair.places[0], (size_t)i * 8, 8, pair.stream);
        loop(STREAM);
        printf("%d refused\n", refused);
    }
}

static int rounds = 2;

static void *in_thread(void *wrong)
{
    struct pair *own = calloc(1, sizeof *own);
    REQUIRE(own);
    own->places[1].device = 1;
    take_pair(own);
    for (int round = 0; round < rounds; round++) {
        for (enum way way = 0; way < WAYS; way++)
            *(int *)wrong += wrong_in_loop(own, way);
        give(&own->places[round]);
        take(&own->places[round], BYTES);
    }
    *(int *)wrong += wrong_in_loop(own, STREAM);
    give(&own->places[0]);
    give(&own->places[1]);
    CHECK(cudaStreamDestroy(own->stream));
    free(own);
    return NULL;
}

enum { THREADS = 40 }; /* 32 have counters and places of their own */

static void threads(void)
{
    pthread_t all[THREADS];
    int wrong[THREADS] = {0}, sum = 0;
    loops("at first");
    for (int i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&all[i], NULL, in_thread, &wrong[i]) == 0);
    for (int i = 0; i < THREADS; i++) {
        REQUIRE(pthread_join(all[i], NULL) == 0);
        sum += wrong[i];
    }
    printf("%d wrong\n", sum);
    loops("at last");
}

/* One thread after the other: nothing depends on who is first. */
static void in_turn(void)
{
    int wrong = 0;
    rounds = 1;
    for (int i = 0; i < 34; i++) {
        run_in_thread(in_thread, &wrong);
        loop(STREAM);
    }
    printf("%d wrong\n", wrong);
}

/* More memory, streams and devices than are kept in mind at a time, in no order. */
static void room(void)
{
    enum { SOURCES = 3, STREAMS = 5, COUNT = MOST_DEVICES * SOURCES * (MOST_DEVICES - 1) * STREAMS };
    static struct place from[MOST_DEVICES][SOURCES], to[COUNT];
    cudaStream_t streams[STREAMS];
    unsigned random = 1;
    int wrong = 0;
    for (int i = 0; i < STREAMS; i++)
        CHECK(cudaStreamCreateWithFlags(&streams[i], i & 1 ? cudaStreamNonBlocking : cudaStreamDefault));
    for (int i = 0; i < MOST_DEVICES * SOURCES; i++) {
        struct place *source = &from[i / SOURCES][i % SOURCES];
        source->device = i / SOURCES;
        take(source, BYTES);
        fill(pair.sent, BYTES, (unsigned)i);
        CHECK(cudaMemcpy(source->memory, pair.sent, BYTES, cudaMemcpyHostToDevice));
    }
    for (int i = 0; i < COUNT; i++) {
        int source = i / STREAMS / (MOST_DEVICES - 1) / SOURCES, other = i / STREAMS % (MOST_DEVICES - 1);
        to[i].device = other + (other >= source);
        take(&to[i], SLICE);
    }
    for (int round = 0; round < 3; round++) {
        bool is_copied[COUNT] = {false};
        for (int i = 0; i < COUNT; i++) {
            memset(pair.got, 0, SLICE);
            CHECK(cudaMemcpy(to[i].memory, pair.got, SLICE, cudaMemcpyHostToDevice));
        }
        for (int n = 0; n < 8 * COUNT; n++) {
            random = random * 1103515245 + 12345;
            int i = (int)(random >> 8) % COUNT, source = i / STREAMS / (MOST_DEVICES - 1);
            /* Runs of the same now and then. */
            for (int again = 0; again <= (random >> 28 == 0 ? 5 : 0); again++)
                wrong += copy(n & 1 ? STREAM : DRIVER, &to[i], &from[source / SOURCES][source % SOURCES], 0, SLICE,
                              streams[i % STREAMS]) != 0;
            is_copied[i] = true;
        }
        for (int i = 0; i < STREAMS; i++)
            CHECK(cudaStreamSynchronize(streams[i]));
        for (int i = 0; i < COUNT; i++) {
            fill(pair.sent, SLICE, (unsigned)(i / STREAMS / (MOST_DEVICES - 1)));
            CHECK(cudaMemcpy(pair.got, to[i].memory, SLICE, cudaMemcpyDeviceToHost));
            wrong += is_copied[i] && memcmp(pair.sent, pair.got, SLICE) != 0;
        }
        for (int i = round; i < COUNT; i += 7) {
            give(&to[i]);
            take(&to[i], SLICE);
        }
    }
    printf("%d wrong\n", wrong);
}

static void set_up_anew(void)
{
    take_pair(&pair);
}

/* Contexts that end. */
static void contexts(void)
{
    loops("at first");
    for (int device = 0; device < 2; device++) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaDeviceReset());
        struct place *other = &pair.places[!device];
        give(other);
        if (device == 1)
            CHECK(cudaSetDevice(0));
        CHECK(cudaSetDevice(0));
        set_up_anew();
        loops("after a reset");
    }
    /* The driver's own: handles of contexts come again. */
    struct pair primary = pair;
    for (int round = 0; round < 4; round++) {
        CUcontext contexts[2];
        for (int i = 1; i >= 0; i--) {
            CHECK_CU(cuCtxCreate_v2(&contexts[i], 0, (round & 1) ^ i));
            CHECK_CU(cuMemAlloc((CUdeviceptr *)&pair.places[i].memory, BYTES));
            pair.places[i].context = contexts[i];
            pair.places[i].device = (round & 1) ^ i;
        }
        CHECK_CU(cuStreamCreate((CUstream *)&pair.stream, CU_STREAM_NON_BLOCKING));
        printf("contexts of the program\n");
        loop(DRIVER);
        loop(DRIVER_PER_THREAD);
        loop(DRIVER);
        for (int i = 0; i < 2; i++)
            CHECK_CU(cuCtxDestroy(contexts[i]));
        if (round & 1)
            SHOW(copy(DRIVER, &primary.places[1], &pair.places[0], 0, SLICE, primary.stream));
    }
    memcpy(pair.places, primary.places, sizeof pair.places);
    pair.stream = primary.stream;
    CHECK(cudaSetDevice(0));
    loops("as before");
}

/* Nothing of a child may be found in its parent's trace: the last one comes when the parent is done. */
static void children(void)
{
    loops("at first");
    for (int how = 0; how < 3; how++) {
        int status;
        fflush(stdout);
        threads_sleep();
        pid_t child = how ? (pid_t)syscall(SYS_fork) : fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            alarm(60);
            for (int way = WAYS - 1; way >= 0; way--)
                printf("in the child: %d\n", copy((enum way)way, &pair.places[1], &pair.places[0], 0, SLICE, pair.stream));
            fflush(stdout);
            _exit(7);
        }
        REQUIRE(waitpid(child, &status, 0) == child);
        printf("the child: %x\n", (unsigned)status);
        if (how < 2)
            loops("in the parent");
    }
}

/* The driver's function fails from some use on. */
static void fault(void)
{
    for (enum way way = 0; way < WAYS; way++) {
        int first = -1, refused = 0, code = 0;
        for (int i = 0; i < 150; i++) {
            int answer = copy(way, &pair.places[1], &pair.places[0], 0, SLICE, pair.stream);
            if (answer && !refused++)
                first = i, code = answer;
        }
        printf("%s: %d refused from %d on, with %d, last error %d\n", names[way], refused, first, code, cudaGetLastError());
    }
}

/* Between all devices there are, which the program enables in between. */
static void all_pairs(void)
{
    int count;
    CHECK(cudaGetDeviceCount(&count));
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < count * count; i++) {
            int from = i / count, to = i % count;
            if (from == to)
                continue;
            pair.places[0].device = from, pair.places[1].device = to;
            take_pair(&pair);
            CHECK(cudaSetDevice(from));
            printf("%d to %d\n", from, to);
            loop(STREAM);
            loop(DRIVER);
            SHOW(round ? cudaDeviceDisablePeerAccess(to) : cudaDeviceEnablePeerAccess(to, 0));
            (void)cudaGetLastError();
            loop(STREAM);
            loop(DRIVER);
            CHECK(cudaStreamDestroy(pair.stream));
            give(&pair.places[0]);
            give(&pair.places[1]);
        }
    }
}

static void replay(const char *what, int refused, cudaGraph_t graph)
{
    cudaGraphExec_t executable;
    int wrong = refused;
    CHECK(cudaGraphInstantiateWithFlags(&executable, graph, 0));
    for (int i = 0; i < 3; i++) {
        prepare(&pair);
        CHECK(cudaGraphLaunch(executable, pair.stream));
        CHECK(cudaStreamSynchronize(pair.stream));
        wrong += !has_arrived(&pair);
    }
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    printf("%s: %d wrong\n", what, wrong);
}

static void *begin_elsewhere(void *unused)
{
    (void)unused;
    CHECK(cudaStreamBeginCapture(pair.stream, cudaStreamCaptureModeRelaxed));
    return NULL;
}

static pthread_barrier_t begun, finished;

static void *capture_elsewhere(void *unused)
{
    cudaGraph_t graph;
    (void)unused;
    cudaStream_t stream = non_blocking_stream();
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    pthread_barrier_wait(&begun);
    pthread_barrier_wait(&finished);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    return NULL;
}

/* Only with p2pshim: CUDA refuses peer copies on a stream that captures. */
static void captures(void)
{
    pthread_t other;
    cudaGraph_t graph;
    int refused;
    loops("at first");
    for (int i = 0; i < 4; i++) {
        enum way way = i & 1 ? DRIVER : STREAM;
        loop(way);
        CHECK(cudaStreamBeginCapture(pair.stream, i & 2 ? cudaStreamCaptureModeRelaxed : cudaStreamCaptureModeThreadLocal));
        refused = slices(&pair, way);
        CHECK(cudaStreamEndCapture(pair.stream, &graph));
        replay("captured", refused, graph);
        loops("after a capture");
    }
    for (int i = 0; i < 2; i++) {
        enum way way = i ? DRIVER : STREAM;
        loop(way);
        run_in_thread(begin_elsewhere, NULL);
        refused = slices(&pair, way);
        CHECK(cudaStreamEndCapture(pair.stream, &graph));
        replay("begun by another thread", refused, graph);
        loop(way);
    }
    pthread_barrier_init(&begun, NULL, 2);
    pthread_barrier_init(&finished, NULL, 2);
    loops("before a capture elsewhere");
    prepare(&pair);
    REQUIRE(pthread_create(&other, NULL, capture_elsewhere, NULL) == 0);
    pthread_barrier_wait(&begun);
    /* Neither may the default stream be used meanwhile, nor memory be copied without a stream. */
    refused = slices(&pair, STREAM) + slices(&pair, DRIVER);
    CHECK(cudaStreamSynchronize(pair.stream));
    pthread_barrier_wait(&finished);
    REQUIRE(pthread_join(other, NULL) == 0);
    printf("beside a capture: %d wrong\n", refused + !has_arrived(&pair));
    loops("at last");
}

int main(int argc, char **argv)
{
    static const struct named_case scenarios[] = {
        NAMED(memory), NAMED(gone), NAMED(streams), NAMED(beside), NAMED(peers), NAMED(ways), NAMED(mistakes), NAMED(small), NAMED(threads), NAMED(in_turn),
        NAMED(room), NAMED(contexts), NAMED(children), NAMED(fault), NAMED(all_pairs), NAMED(captures)};
    REQUIRE(argc == 2);
    const struct named_case *chosen = FIND_CASE(scenarios, argv[1]);
    REQUIRE(chosen);
    take_pair(&pair);
    /* These scenarios are about access, or count calls. */
    static const char *const unchanged[] = {"peers", "ways", "mistakes", "fault", "all_pairs"};
    int is_changed = 1;
    for (size_t i = 0; i < sizeof unchanged / sizeof *unchanged; i++)
        is_changed &= strcmp(argv[1], unchanged[i]) != 0;
    if (is_changed)
        enable_both();
    chosen->run();
    printf("done\n");
    return 0;
}
