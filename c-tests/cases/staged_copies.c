/* build: runtime old; run: staged_copies time|sizes|ends|many COPIES RESETS|FIRST COUNT [WORD…] on sim gpu
 * Copies between devices that have no path, drawn from a seed: large and small, of rows and slices, of ordinary memory and of pools, on the
 * legacy default stream, blocking and non-blocking streams of either device, and synchronous, beside memsets and copies with the host.
 * Each use of a buffer comes after the last one of it, by events, and nothing else orders them: whoever stages has to keep exactly that.
 *
 *   FIRST COUNT [WORD…]    sequences from FIRST on; prints a line for each
 *     steps    its steps, too
 *     real     for real GPUs: devices are not reset, since that takes long
 *     enables  the program enables peer access, and grants the other device access to its pools
 *   time                   prints whether the call of a large copy returned while its stream was held up
 *   sizes                  prints the microseconds of the quickest call of 30 large copies, after 1,000 small ones of the
 *                          same memory in the same stream
 *   ends                   resets the source's device while its copy may be under way
 *   many COPIES RESETS     makes so many copies, large ones if it gets no access, and resets the source's device so often
 *                          after a large one; prints what of the process has grown since the first tenth of each
 */
#include <cuda_runtime_api.h>
#include <dirent.h>

#include "check.h"
#include "lib/random.h"

enum { DEVICES = 2, BUFFERS = 3, STREAMS = 4, MIB = 1 << 20, LARGEST = 18 * MIB + 12345, STEPS = 14 };

struct buffer {
    unsigned char *address;
    size_t bytes;
    int device, is_pooled;
    cudaEvent_t used; /* recorded after its last use */
};

struct stream {
    cudaStream_t handle;
    int device;
};

static struct buffer buffers[DEVICES * BUFFERS];
static struct stream streams[DEVICES * STREAMS];
static int is_real, enables;

static size_t size(void)
{
    static const size_t sizes[] = {1, 4096, MIB, 8 * MIB - 1, 8 * MIB, 8 * MIB + 1, 16 * MIB - 1, 16 * MIB, LARGEST};
    return ONE_OF(sizes);
}

static void take(struct buffer *b, int device)
{
    CHECK(cudaSetDevice(device));
    b->device = device;
    b->bytes = LARGEST;
    b->is_pooled = draw(4) == 0;
    CHECK(cudaEventCreateWithFlags(&b->used, cudaEventDisableTiming));
    if (b->is_pooled)
        CHECK(cudaMallocAsync((void **)&b->address, b->bytes, 0));
    else
        CHECK(cudaMalloc((void **)&b->address, b->bytes));
    CHECK(cudaMemsetAsync(b->address, (int)draw(256), b->bytes, 0));
    CHECK(cudaEventRecord(b->used, 0));
}

static void give_back(struct buffer *b)
{
    CHECK(cudaSetDevice(b->device));
    CHECK(cudaEventSynchronize(b->used));
    if (b->is_pooled)
        CHECK(cudaFreeAsync(b->address, 0));
    else
        CHECK(cudaFree(b->address));
    CHECK(cudaEventDestroy(b->used));
}

static void begin(struct stream s, struct buffer *b)
{
    CHECK(cudaStreamWaitEvent(s.handle, b->used, 0));
}

/* An event is recorded on its own device only, so each use of a buffer has a new one. */
static void end(struct stream s, struct buffer *b)
{
    cudaEvent_t done;
    CHECK(cudaEventDestroy(b->used));
    CHECK(cudaSetDevice(s.device));
    CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    CHECK(cudaEventRecord(done, s.handle));
    b->used = done;
}

/* So many bytes in rows, at half the pitch. */
static struct cudaMemcpy3DPeerParms rows(struct buffer *dst, size_t to, struct buffer *src, size_t from, size_t bytes, size_t depth)
{
    size_t height = 1 + 7 * draw(4), pitch = bytes / height / depth;
    struct cudaMemcpy3DPeerParms p = {.srcDevice = src->device, .dstDevice = dst->device};
    if (pitch < 2) {
        pitch = bytes;
        height = depth = 1;
    }
    p.srcPtr = (struct cudaPitchedPtr){src->address + from, pitch, pitch, height};
    p.dstPtr = (struct cudaPitchedPtr){dst->address + to, pitch, pitch, height};
    p.extent = (struct cudaExtent){pitch / 2 + 1, height, depth};
    if (pitch == bytes)
        p.extent.width = bytes;
    return p;
}

enum { PEER, PEER_ROWS, REGULAR, REGULAR_ROWS };

/* A part of a buffer. */
struct part_of {
    struct buffer *buffer;
    size_t at;
};

/* On a stream, or synchronously, without one. */
static cudaError_t make(unsigned form, const struct stream *s, struct part_of dst, struct part_of src, size_t bytes)
{
    unsigned char *to = dst.buffer->address + dst.at, *from = src.buffer->address + src.at;
    if (form == PEER)
        return s ? cudaMemcpyPeerAsync(to, dst.buffer->device, from, src.buffer->device, bytes, s->handle)
                 : cudaMemcpyPeer(to, dst.buffer->device, from, src.buffer->device, bytes);
    if (form == REGULAR)
        return s ? cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, s->handle) : cudaMemcpy(to, from, bytes, cudaMemcpyDefault);
    struct cudaMemcpy3DPeerParms p = rows(dst.buffer, dst.at, src.buffer, src.at, bytes, form == PEER_ROWS ? 1 + draw(3) : 1);
    if (form == PEER_ROWS)
        return s ? cudaMemcpy3DPeerAsync(&p, s->handle) : cudaMemcpy3DPeer(&p);
    size_t pitch = p.dstPtr.pitch, width = p.extent.width, height = p.extent.height;
    return s ? cudaMemcpy2DAsync(to, pitch, from, pitch, width, height, cudaMemcpyDefault, s->handle)
             : cudaMemcpy2D(to, pitch, from, pitch, width, height, cudaMemcpyDefault);
}

/* A synchronous copy is ordered by the default streams of both devices, or of the source's if it names none. */
static void copy(const struct stream *s, struct part_of dst, struct part_of src, size_t bytes)
{
    /* A regular copy would need rights to a pool's memory. */
    unsigned form = draw(dst.buffer->is_pooled || src.buffer->is_pooled ? 2 : 4);
    struct stream of_dst = {0, dst.buffer->device}, of_src = {0, src.buffer->device};
    if (form >= REGULAR)
        of_dst = of_src;
    if (s)
        of_dst = of_src = *s;
    CHECK(cudaSetDevice(of_dst.device));
    begin(of_dst, dst.buffer);
    CHECK(cudaSetDevice(of_src.device));
    begin(of_src, src.buffer);
    CHECK(make(form, s, dst, src, bytes));
    end(of_dst, dst.buffer);
    end(of_src, src.buffer);
}

static void step(int number)
{
    struct stream s = streams[draw(DEVICES * STREAMS)];
    struct buffer *dst = &buffers[draw(DEVICES * BUFFERS)], *src = &buffers[draw(DEVICES * BUFFERS)];
    static unsigned char host[4096];
    size_t bytes = size(), to, from;
    unsigned what = draw(12);

    if (src == dst)
        src = &buffers[(src - buffers + 1) % (DEVICES * BUFFERS)];
    to = draw((unsigned)(LARGEST - bytes + 1));
    from = draw((unsigned)(LARGEST - bytes + 1));
    CHECK(cudaSetDevice(s.device));
    if (what < 6) {
        if (s.device != dst->device && s.device != src->device)
            s = streams[src->device];
        CHECK(cudaSetDevice(s.device));
        copy(&s, (struct part_of){dst, to}, (struct part_of){src, from}, bytes);
    } else if (what >= 10) {
        copy(NULL, (struct part_of){dst, to}, (struct part_of){src, from}, bytes);
    } else if (what == 6) {
        if (s.device == dst->device) {
            begin(s, dst);
            CHECK(cudaMemsetAsync(dst->address + to, (int)draw(256), bytes, s.handle));
            end(s, dst);
        }
    } else if (what == 7) {
        s = s.device == dst->device ? s : streams[dst->device];
        CHECK(cudaSetDevice(s.device));
        begin(s, dst);
        fill(host, sizeof host, draw(256));
        CHECK(cudaMemcpyAsync(dst->address + to % (LARGEST - sizeof host), host, sizeof host, cudaMemcpyHostToDevice, s.handle));
        end(s, dst);
        CHECK(cudaEventSynchronize(dst->used));
    } else if (what == 8) {
        int device = dst->device;
        give_back(dst);
        take(dst, device);
    } else {
        int i = (int)draw(DEVICES * STREAMS);
        if (streams[i].handle) {
            CHECK(cudaSetDevice(streams[i].device));
            CHECK(cudaStreamDestroy(streams[i].handle));
            CHECK(cudaStreamCreateWithFlags(&streams[i].handle, draw(2) ? cudaStreamNonBlocking : cudaStreamDefault));
        }
    }
    note("  step %d: %u, %zu bytes\n", number, what, bytes);
}

static void enable(int device, int peer)
{
    CHECK(cudaSetDevice(device));
    cudaError_t code = cudaDeviceEnablePeerAccess(peer, 0);
    if (code == cudaErrorPeerAccessAlreadyEnabled)
        cudaGetLastError();
    else
        CHECK(code);
#ifndef OLD_RUNTIME
    cudaMemPool_t pool;
    struct cudaMemAccessDesc access = {.location = {cudaMemLocationTypeDevice, peer}, .flags = cudaMemAccessFlagsProtReadWrite};
    CHECK(cudaDeviceGetDefaultMemPool(&pool, device));
    CHECK(cudaMemPoolSetAccess(pool, &access, 1));
#endif
}

static void take_steps(void)
{
    static unsigned char host[LARGEST];

    for (int i = 0; enables && i < DEVICES; i++)
        enable(i, !i);
    for (int i = 0; i < DEVICES * BUFFERS; i++)
        take(&buffers[i], i % DEVICES);
    for (int i = 0; i < DEVICES * STREAMS; i++) {
        streams[i] = (struct stream){0, i % DEVICES};
        CHECK(cudaSetDevice(i % DEVICES));
        if (i >= DEVICES)
            CHECK(cudaStreamCreateWithFlags(&streams[i].handle, draw(2) ? cudaStreamNonBlocking : cudaStreamDefault));
    }
    for (int i = 0; i < STEPS; i++)
        step(i);
    for (int i = 0; i < DEVICES * BUFFERS; i++) {
        CHECK(cudaEventSynchronize(buffers[i].used));
        CHECK(cudaSetDevice(buffers[i].device));
        CHECK(cudaMemcpy(host, buffers[i].address, LARGEST, cudaMemcpyDeviceToHost));
        fold_bytes(host, LARGEST);
        give_back(&buffers[i]);
    }
    for (int i = DEVICES; i < DEVICES * STREAMS; i++) {
        CHECK(cudaSetDevice(streams[i].device));
        CHECK(cudaStreamDestroy(streams[i].handle));
    }
    for (int device = 0; !is_real && draw(3) == 0 && device < DEVICES; device++) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaDeviceReset());
    }
}

static volatile int may_go;

static void CUDART_CB hold_up(void *nothing)
{
    (void)nothing;
    for (int i = 0; i < 20000 && !may_go; i++)
        nanosleep(&(struct timespec){0, 100000}, NULL);
}

/* The stream is held up by a host function for 2 s, or until the copy's call has returned. */
static void show_time(void)
{
    static unsigned char host[LARGEST], expected[LARGEST];
    unsigned char *on[DEVICES];
    struct timespec before, after;

    for (int i = 0; i < DEVICES; i++)
        on[i] = device_memory(i, LARGEST);
    CHECK(cudaSetDevice(0));
    cudaStream_t s = non_blocking_stream();
    fill(expected, LARGEST, 7);
    CHECK(cudaMemcpy(on[0], expected, LARGEST, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpyPeerAsync(on[1], 1, on[0], 0, LARGEST, s));
    CHECK(cudaStreamSynchronize(s));
    CHECK(cudaLaunchHostFunc(s, hold_up, NULL));
    clock_gettime(CLOCK_MONOTONIC, &before);
    CHECK(cudaMemcpyPeerAsync(on[1], 1, on[0], 0, LARGEST, s));
    clock_gettime(CLOCK_MONOTONIC, &after);
    may_go = 1;
    double seconds = (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) / 1e9;
    printf("the call %s\n", seconds < 1.5 ? "returned at once" : "waited for the copy");
    CHECK(cudaStreamSynchronize(s));
    CHECK(cudaMemcpy(host, on[1], LARGEST, cudaMemcpyDeviceToHost));
    printf("data is %s\n", memcmp(host, expected, LARGEST) == 0 ? "right" : "WRONG");
}

static void show_sizes(void)
{
    double quickest = 1e9;
    unsigned char *on[DEVICES];
    for (int i = DEVICES - 1; i >= 0; i--)
        on[i] = device_memory(i, LARGEST);
    cudaStream_t s = non_blocking_stream();
    for (int i = 0; i < 1030; i++) {
        struct timespec before, after;
        clock_gettime(CLOCK_MONOTONIC, &before);
        CHECK(cudaMemcpyPeerAsync(on[1], 1, on[0], 0, i < 1000 ? 64 : LARGEST, s));
        clock_gettime(CLOCK_MONOTONIC, &after);
        double took = (double)(after.tv_sec - before.tv_sec) * 1e6 + (double)(after.tv_nsec - before.tv_nsec) / 1e3;
        if (i >= 1000 && took < quickest)
            quickest = took;
        CHECK(cudaStreamSynchronize(s));
    }
    printf("%.0f\n", quickest);
}

static void show_ends(void)
{
    static unsigned char host[LARGEST], expected[LARGEST];
    for (int round = 0; round < 20; round++) {
        unsigned char *on[DEVICES];
        fill(expected, LARGEST, (unsigned)round);
        for (int i = 0; i < DEVICES; i++)
            on[i] = device_memory(i, LARGEST);
        CHECK(cudaSetDevice(0));
        CHECK(cudaMemcpy(on[0], expected, LARGEST, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpyPeerAsync(on[1], 1, on[0], 0, LARGEST, 0));
        CHECK(cudaDeviceReset());
        CHECK(cudaSetDevice(1));
        CHECK(cudaMemcpy(host, on[1], LARGEST, cudaMemcpyDeviceToHost));
        REQUIRE(memcmp(host, expected, LARGEST) == 0);
        CHECK(cudaFree(on[1]));
    }
    puts("all data is right");
}

static long descriptors(void)
{
    long count = 0;
    DIR *open = opendir("/proc/self/fd");
    REQUIRE(open != NULL);
    while (readdir(open) != NULL)
        count++;
    closedir(open);
    return count;
}

/* KiB of a line of the process's status. */
static long status(const char *name)
{
    char line[256];
    long value = -1;
    FILE *file = fopen("/proc/self/status", "r");
    REQUIRE(file != NULL);
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, name, strlen(name)) == 0)
            value = strtol(line + strlen(name) + 1, NULL, 10);
    fclose(file);
    REQUIRE(value >= 0);
    return value;
}

static void show_growth(const char *what, int count, void (*once)(int))
{
    static const char *const KIB[] = {"VmRSS", "VmLck", "VmPin"};
    long before[4] = {0};
    for (int i = 0; i < count; i++) {
        once(i);
        if (i != count / 10 && i != count - 1)
            continue;
        long now[4] = {descriptors(), status(KIB[0]), status(KIB[1]), status(KIB[2])};
        if (i == count - 1)
            printf("%s: %ld descriptors, %ld MiB resident, %ld MiB locked\n", what, now[0] - before[0], (now[1] - before[1]) / 1024,
                   (now[2] + now[3] - before[2] - before[3]) / 1024);
        memcpy(before, now, sizeof before);
    }
}

static unsigned char *many[DEVICES];
static size_t size_of_many;

static void copy_again(int i)
{
    CHECK(cudaMemcpyPeerAsync(many[1], 1, many[0], 0, size_of_many, 0));
    if (i % 64 == 0)
        CHECK(cudaStreamSynchronize(0));
}

static void reset_after_large(int i)
{
    (void)i;
    many[0] = device_memory(0, 8 * MIB);
    CHECK(cudaMemcpyPeerAsync(many[1], 1, many[0], 0, 8 * MIB, 0));
    CHECK(cudaDeviceReset());
}

static void show_many(int copies, int resets)
{
    for (int i = DEVICES - 1; i >= 0; i--)
        many[i] = device_memory(i, 8 * MIB);
    cudaError_t enabled = cudaDeviceEnablePeerAccess(1, 0);
    REQUIRE(enabled == cudaSuccess || enabled == cudaErrorPeerAccessUnsupported);
    cudaGetLastError();
    size_of_many = enabled == cudaSuccess ? 64 : 8 * MIB;
    show_growth("copies", copies, copy_again);
    CHECK(cudaFree(many[0]));
    show_growth("resets", resets, reset_after_large);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "time") == 0) {
        show_time();
    } else if (argc > 1 && strcmp(argv[1], "sizes") == 0) {
        show_sizes();
    } else if (argc > 1 && strcmp(argv[1], "ends") == 0) {
        show_ends();
    } else if (argc > 3 && strcmp(argv[1], "many") == 0) {
        show_many(atoi(argv[2]), atoi(argv[3]));
    } else {
        static const struct program program = {.take = take_steps};
        is_real = has_word(argc, argv, "real");
        enables = has_word(argc, argv, "enables");
        return take_sequences(argc, argv, &program);
    }
    return 0;
}
