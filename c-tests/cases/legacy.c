/* build: old; run: legacy [ROW|never|enables] on sim gpu
 * build -old_linker: libcudart.so.9.0 -Wl,--hash-style=sysv,-z,lazy,-z,norelro,--disable-new-dtags,-rpath,$(SIM_FOLDER)
 * build -with_shim: shim libcudart.so.9.0 -Wl,--disable-new-dtags,-rpath,$(SHIM_FOLDER):$(SIM_FOLDER)
 * What the CUDA runtimes of 8.0 to 10.2 return, row by row, and how fast they copy. It declares all functions itself, since nobody has
 * headers that old, and is linked with the runtime that it is about. `legacy-old_linker` is as linkers of 2010
 * made programs: another hash table, symbols bound when they are called, and an RPATH, which comes before LD_LIBRARY_PATH. `legacy-with_shim` has
 * the shim as one of its libraries, found by RPATH, so that it is there whatever the dynamic linker ignores.
 *
 *   ROW             each row, or one: what comes before the call, the call, the code that it returns, its name, the last error
 *                   after it, and once more, and what cudaDeviceCanAccessPeer has written (-7: nothing). Rows with functions
 *                   that the runtime lacks say so.
 *   never|enables   GB/s of cudaMemcpyPeerAsync from device 0 to the last, 64 MiB a copy, and host time of a call in us
 *
 * Each row runs in a process of its own, by executing this program again: these runtimes start the driver when they are asked for their
 * version, so that a forked child of theirs gets nothing but errors.
 *
 * a: 1 MiB on device 0; b: 1 MiB on the last device, which may be the same; h: pageable host memory; ph: pinned; s: a stream of device 0;
 * p: cudaMemcpy3DPeer's parameters from a to b; n = 1 MiB. Device 0 is current.
 */
#include "check.h"

typedef int result;
typedef void *stream, *graph;

struct position {
    size_t x, y, z;
};

struct pitched {
    void *at;
    size_t pitch, width, height;
};

struct extent {
    size_t width, height, depth;
};

/* cudaMemcpy3DPeerParms */
struct parameters {
    void *src_array;
    struct position src_position;
    struct pitched src;
    int src_device;
    void *dst_array;
    struct position dst_position;
    struct pitched dst;
    int dst_device;
    struct extent extent;
};

const char *cudaGetErrorName(result error);
result cudaDeviceCanAccessPeer(int *can, int device, int peer);
result cudaDeviceDisablePeerAccess(int peer);
result cudaDeviceEnablePeerAccess(int peer, unsigned flags);
result cudaDeviceReset(void);
result cudaDeviceSynchronize(void);
result cudaEventQuery(void *event);
result cudaFree(void *at);
result cudaGetDevice(int *device);
result cudaGetDeviceCount(int *count);
result cudaGetLastError(void);
result cudaHostUnregister(void *at);
result cudaMalloc(void **at, size_t bytes);
result cudaMallocHost(void **at, size_t bytes);
result cudaMemcpy(void *dst, const void *src, size_t bytes, int kind);
result cudaMemcpy2D(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width, size_t height, int kind);
result cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width, size_t height, int kind, stream s);
result cudaMemcpy3DPeer(const struct parameters *p);
result cudaMemcpy3DPeerAsync(const struct parameters *p, stream s);
result cudaMemcpyAsync(void *dst, const void *src, size_t bytes, int kind, stream s);
result cudaMemcpyPeer(void *dst, int dst_device, const void *src, int src_device, size_t bytes);
result cudaMemcpyPeerAsync(void *dst, int dst_device, const void *src, int src_device, size_t bytes, stream s);
result cudaRuntimeGetVersion(int *version);
result cudaSetDevice(int device);
result cudaSetDeviceFlags(unsigned flags);
result cudaStreamCreate(stream *s);
result cudaStreamQuery(stream s);
result cudaStreamSynchronize(stream s);
result cudaThreadExit(void);

/* Of 10.0 and later; that of 10.0 takes no mode. */
__attribute__((weak)) result cudaStreamBeginCapture(stream s, int mode);
__attribute__((weak)) result cudaStreamEndCapture(stream s, graph *captured);

#define CALL(call)                                                                 \
    do {                                                                           \
        result code_ = (call);                                                     \
        if (code_)                                                                 \
            check_failed(__FILE__, __LINE__, #call, cudaGetErrorName(code_));      \
    } while (0)

static const size_t n = 1 << 20;
static void *a, *b, *h, *ph;
static stream s;
static graph captured;
static struct parameters p;
static int last, v = -7;

static void make_variables(void)
{
    CALL(cudaGetDeviceCount(&last));
    last--;
    CALL(cudaSetDevice(last));
    CALL(cudaMalloc(&b, n));
    CALL(cudaSetDevice(0));
    CALL(cudaMalloc(&a, n));
    CALL(cudaMallocHost(&ph, n));
    CALL(cudaStreamCreate(&s));
    REQUIRE((h = calloc(1, n)) != NULL);
    p = (struct parameters){.src = {a, 1024, 1024, 16}, .dst = {b, 1024, 1024, 16}, .dst_device = last, .extent = {1024, 16, 4}};
}

#define ENABLE cudaDeviceEnablePeerAccess(last, 0)
#define CAPTURE cudaStreamBeginCapture(s, 0)

/* What comes before, and the call. */
#define ROWS                                                                        \
    ROW(, cudaSetDevice(99))                                                        \
    ROW(, cudaSetDevice(-1))                                                        \
    ROW(, cudaGetDevice(NULL))                                                      \
    ROW(, cudaDeviceCanAccessPeer(NULL, 0, last))                                   \
    ROW(, cudaDeviceCanAccessPeer(&v, 0, 0))                                        \
    ROW(, cudaDeviceCanAccessPeer(&v, 0, last))                                     \
    ROW(, cudaDeviceCanAccessPeer(&v, 0, 99))                                       \
    ROW(, cudaDeviceCanAccessPeer(&v, -1, 0))                                       \
    ROW(, cudaDeviceEnablePeerAccess(last, 0))                                      \
    ROW(, cudaDeviceEnablePeerAccess(last, 1))                                      \
    ROW(, cudaDeviceEnablePeerAccess(0, 0))                                         \
    ROW(, cudaDeviceEnablePeerAccess(99, 0))                                        \
    ROW(, cudaDeviceEnablePeerAccess(-1, 0))                                        \
    ROW(ENABLE, cudaDeviceEnablePeerAccess(last, 0))                                \
    ROW(ENABLE, cudaDeviceDisablePeerAccess(last))                                  \
    ROW(, cudaDeviceDisablePeerAccess(last))                                        \
    ROW(, cudaDeviceDisablePeerAccess(99))                                          \
    ROW((ENABLE, cudaDeviceReset()), cudaDeviceDisablePeerAccess(last))             \
    ROW((ENABLE, cudaThreadExit()), cudaDeviceDisablePeerAccess(last))              \
    ROW(, cudaMemcpyPeer(b, last, a, 0, n))                                         \
    ROW(, cudaMemcpyPeer(b, 99, a, 0, n))                                           \
    ROW(, cudaMemcpyPeer(b, last, a, -1, n))                                        \
    ROW(, cudaMemcpyPeer(NULL, last, a, 0, n))                                      \
    ROW(, cudaMemcpyPeer(b, last, NULL, 0, n))                                      \
    ROW(, cudaMemcpyPeer(b, last, a, 0, 0))                                         \
    ROW(, cudaMemcpyPeer(b, 99, a, 0, 0))                                           \
    ROW(, cudaMemcpyPeer(h, last, a, 0, n))                                         \
    ROW(, cudaMemcpyPeer(b, last, a, 0, (size_t)1 << 40))                           \
    ROW(cudaFree(a), cudaMemcpyPeer(b, last, a, 0, n))                              \
    ROW(, cudaMemcpyPeerAsync(b, last, a, 0, n, s))                                 \
    ROW(, cudaMemcpyPeerAsync(b, 99, a, 0, n, s))                                   \
    ROW(, cudaMemcpyPeerAsync(NULL, last, a, 0, n, s))                              \
    ROW(, cudaMemcpyPeerAsync(ph, last, a, 0, n, s))                                \
    ROW(, cudaMemcpyPeerAsync(b, last, a, 0, n, (stream)1))                         \
    ROW(, cudaMemcpyPeerAsync(b, last, a, 0, n, (stream)2))                         \
    ROW(, cudaMemcpy3DPeer(&p))                                                     \
    ROW(, cudaMemcpy3DPeer(NULL))                                                   \
    ROW(p.dst_device = 99, cudaMemcpy3DPeer(&p))                                    \
    ROW(p.src.pitch = 8, cudaMemcpy3DPeer(&p))                                      \
    ROW(p.extent.width = 0, cudaMemcpy3DPeer(&p))                                   \
    ROW(, cudaMemcpy3DPeerAsync(&p, s))                                             \
    ROW(p.dst.at = NULL, cudaMemcpy3DPeerAsync(&p, s))                              \
    ROW(, cudaMemcpy(b, a, n, 3))                                                   \
    ROW(, cudaMemcpy(b, a, n, 4))                                                   \
    ROW(, cudaMemcpy(b, a, n, 7))                                                   \
    ROW(, cudaMemcpy(NULL, a, n, 3))                                                \
    ROW(, cudaMemcpy(b, a, (size_t)1 << 40, 3))                                     \
    ROW(, cudaMemcpy(b, h, n, 3))                                                   \
    ROW(, cudaMemcpyAsync(b, a, n, 3, s))                                           \
    ROW(, cudaMemcpyAsync(b, a, n, 7, s))                                           \
    ROW(, cudaMemcpy2D(b, 8, a, 8, 64, 4, 3))                                       \
    ROW(, cudaMemcpy2DAsync(b, 8, a, 8, 64, 4, 3, s))                               \
    ROW(, cudaMemcpy2D(b, 64, a, 64, 64, 4, 7))                                     \
    ROW(, cudaMalloc(&h, (size_t)1 << 50))                                          \
    ROW(, cudaMalloc(NULL, 8))                                                      \
    ROW(, cudaFree((void *)64))                                                     \
    ROW(cudaFree(a), cudaFree(a))                                                   \
    ROW(, cudaHostUnregister(h))                                                    \
    ROW(, cudaEventQuery(NULL))                                                     \
    ROW(, cudaStreamQuery(h))                                                       \
    ROW(, cudaSetDeviceFlags(4))                                                    \
    ROW(, cudaSetDeviceFlags(7))                                                    \
    ROW(cudaDeviceReset(), cudaSetDeviceFlags(4))                                   \
    ROW(cudaDeviceReset(), cudaMemcpyPeer(b, last, a, 0, n))                        \
    CAPTURE_ROWS

#define CAPTURE_ROWS                                                                \
    ROW(CAPTURE, cudaMemcpyPeerAsync(b, last, a, 0, n, s))                          \
    ROW(CAPTURE, cudaMemcpy3DPeerAsync(&p, s))                                      \
    ROW(CAPTURE, cudaMemcpyPeer(b, last, a, 0, n))                                  \
    ROW(CAPTURE, cudaMemcpyAsync(b, a, n, 3, s))                                    \
    ROW(CAPTURE, cudaMemcpy(b, a, n, 3))                                            \
    ROW(CAPTURE, cudaDeviceEnablePeerAccess(99, 0))                                 \
    ROW(CAPTURE, cudaDeviceEnablePeerAccess(0, 0))                                  \
    ROW(CAPTURE, cudaDeviceSynchronize())                                           \
    ROW((CAPTURE, cudaMemcpyPeerAsync(b, last, a, 0, n, s)), cudaStreamEndCapture(s, &captured)) \
    ROW((CAPTURE, cudaMemcpy(b, a, n, 3)), cudaStreamEndCapture(s, &captured))

/* Makes a row's call; false if there is no such row. */
static bool make_row(int wanted)
{
    int row = 0;
#define ROW(before, call)                                                                                     \
    if (++row == wanted) {                                                                                    \
        printf("%s\t%s\t", #before, #call);                                                                   \
        if (strstr(#before, "CAPTURE") && !cudaStreamBeginCapture) {                                          \
            puts("no captures");                                                                              \
            return true;                                                                                      \
        }                                                                                                     \
        make_variables();                                                                                     \
        before;                                                                                               \
        cudaGetLastError();                                                                                   \
        result code = call, pending = cudaGetLastError(), after = cudaGetLastError();                         \
        printf("%d\t%s\t%d\t%d\t%d\n", code, cudaGetErrorName(code), pending, after, v);                      \
        return true;                                                                                          \
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-value"
    ROWS
#pragma GCC diagnostic pop
    return false;
}

/* Executes this program again for each row, until there is none. */
static int make_rows(const char *self)
{
    for (int row = 1;; row++) {
        char number[16];
        int status;
        fflush(stdout);
        pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            snprintf(number, sizeof number, "%d", row);
            execl(self, self, number, (char *)NULL);
            _exit(127);
        }
        REQUIRE(waitpid(child, &status, 0) == child);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 2)
            return 0;
        if (status != 0) {
            printf("row %d ended with status %#x\n", row, status);
            return 1;
        }
    }
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static int measure(bool enables)
{
    enum { WARM = 20, COPIES = 40 };
    const size_t bytes = (size_t)64 << 20;
    double begun, queued;
    CALL(cudaGetDeviceCount(&last));
    last--;
    REQUIRE(last > 0);
    CALL(cudaSetDevice(last));
    CALL(cudaMalloc(&b, bytes));
    if (enables)
        CALL(cudaDeviceEnablePeerAccess(0, 0));
    CALL(cudaSetDevice(0));
    CALL(cudaMalloc(&a, bytes));
    if (enables)
        CALL(cudaDeviceEnablePeerAccess(last, 0));
    CALL(cudaStreamCreate(&s));
    for (int i = 0; i < WARM; i++)
        CALL(cudaMemcpyPeerAsync(b, last, a, 0, bytes, s));
    CALL(cudaStreamSynchronize(s));
    begun = now();
    for (int i = 0; i < COPIES; i++)
        CALL(cudaMemcpyPeerAsync(b, last, a, 0, bytes, s));
    queued = now();
    CALL(cudaStreamSynchronize(s));
    printf("%.1f\t%.2f\n", COPIES * (double)bytes / (now() - begun) / 1e9, (queued - begun) / COPIES * 1e6);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 1)
        return make_rows("/proc/self/exe");
    if (strcmp(argv[1], "never") == 0 || strcmp(argv[1], "enables") == 0)
        return measure(argv[1][0] == 'e');
    return make_row(atoi(argv[1])) ? 0 : 2;
}
