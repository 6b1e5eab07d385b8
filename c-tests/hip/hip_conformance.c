/* build: hip; run: P2PSIM_DEVICES=3 P2PSIM_NO_P2P=1-2 hip_conformance [ROW] on sim
 * What each peer function answers, in the order in which it looks at its arguments: the rows of tests/golden/hip-conformance.tsv, each
 * in a process of its own. A line has, separated by tabs: what was done before, the call, its code, the last error behind it
 * (hipPeekAtLastError), and what the call has changed of outputs, bytes and captures ("-" for nothing).
 *
 * ROW is the number of one row, from 1. Device 0 has a path to both others, and these have none to each other.
 *
 * Bytes: A and C are of device 0, B of device 1, H is pinned host memory; each holds its own letter. "B=a64b448" says that
 * the first 64 bytes of B are A's.
 */
#include "hip.h"

enum { SIZE = 512, NOTHING = -77 };

static void *A, *B, *C, *H;
static char pageable[SIZE];
static hipStream_t S, T, gone; /* of devices 0 and 1; destroyed */
static hipCtx_t context;
static hipStream_t capturing;
static int out = NOTHING;
static size_t failed_copy = (size_t)NOTHING; /* of a batch */

static void *allocate(int device, char letter)
{
    void *pointer;
    CHECK(hipSetDevice(device));
    CHECK(hipMalloc(&pointer, SIZE));
    CHECK(hipMemset(pointer, letter, SIZE));
    CHECK(hipDeviceSynchronize());
    return pointer;
}

static void prepare(void)
{
    B = allocate(1, 'b');
    CHECK(hipStreamCreate(&T));
    A = allocate(0, 'a');
    C = allocate(0, 'c');
    CHECK(hipStreamCreate(&S));
    CHECK(hipStreamCreate(&gone));
    CHECK(hipStreamDestroy(gone));
    CHECK(hipHostMalloc(&H, SIZE, 0));
    memset(H, 'h', SIZE);
    memset(pageable, 'p', SIZE);
    CHECK(hipDevicePrimaryCtxRetain(&context, 1));
    (void)hipGetLastError();
}

/* ---- what is done before a call ---- */

static void nothing(void)
{
}

static void current(int device)
{
    CHECK(hipSetDevice(device));
}

/* Of device 0 to a peer. */
static void enabled(int peer)
{
    CHECK(hipDeviceEnablePeerAccess(peer, 0));
}

static void disabled(int peer)
{
    CHECK(hipDeviceDisablePeerAccess(peer));
}

static void reset(void)
{
    CHECK(hipDeviceReset());
    A = allocate(0, 'a');
    C = allocate(0, 'c');
    CHECK(hipStreamCreate(&S));
    (void)hipGetLastError();
}

/* Leaves 101 as the last error. */
static void failed(void)
{
    REQUIRE(hipDeviceEnablePeerAccess(99, 0) == hipErrorInvalidDevice);
}

static void capture(hipStream_t stream, hipStreamCaptureMode mode)
{
    CHECK(hipStreamBeginCapture(stream, mode));
    capturing = stream;
}

/* A box of 16 bytes, 2 rows and 2 slices, the rows 32 bytes apart and the slices four rows. */
static hipMemcpy3DParms Q;

static void cube(void)
{
    Q = (hipMemcpy3DParms){.srcPtr = {A, 32, 16, 4}, .dstPtr = {B, 32, 16, 4}, .extent = {16, 2, 2}};
    Q.kind = hipMemcpyDeviceToDevice;
}

#if HIP_MAJOR >= 7
/* The same box. */
static hipMemcpy3DPeerParms P;

static void box(void)
{
    P = (hipMemcpy3DPeerParms){.srcPtr = {A, 32, 16, 4}, .dstPtr = {B, 32, 16, 4}, .dstDevice = 1, .extent = {16, 2, 2}};
}

/* Two copies, the first from A to B, the second back, to behind. */
static void *dsts[2], *srcs[2];
static size_t sizes[2], firsts[2];
static hipMemcpyAttributes attributes[3];
static hipMemcpy3DBatchOp operations[2];

static void batch(void)
{
    dsts[0] = srcs[1] = B;
    srcs[0] = A;
    dsts[1] = (char *)A + 128;
    for (size_t i = 0; i < 2; i++) {
        sizes[i] = 64;
        firsts[i] = i;
        attributes[i].srcAccessOrder = 1;
        operations[i].src.type = operations[i].dst.type = 1;
        operations[i].src.op.ptr.ptr = srcs[i];
        operations[i].dst.op.ptr.ptr = dsts[i];
        operations[i].extent = (hipExtent){32, 2, 1};
    }
}
#endif

/* ---- what has changed ---- */

static void show_runs(const char *name, const char *bytes)
{
    printf("%s=", name);
    for (size_t from = 0, to; from < SIZE; from = to) {
        for (to = from; to < SIZE && bytes[to] == bytes[from]; to++)
            continue;
        printf("%c%zu", bytes[from], to - from);
    }
}

static bool show_capture(bool any)
{
    hipGraph_t graph = NULL;
    size_t nodes = 0;
    if (!capturing)
        return any;
    hipError_t error = hipStreamEndCapture(capturing, &graph);
    if (error == hipSuccess)
        CHECK(hipGraphGetNodes(graph, NULL, &nodes));
    printf("%scapture=%d nodes=%zu", any ? " " : "", error, nodes);
    return true;
}

static bool show_bytes(bool any)
{
    const struct {
        const char *name;
        void *at;
    } buffers[] = {{"A", A}, {"B", B}, {"C", C}, {"H", H}, {"P", pageable}};
    char bytes[SIZE], before[SIZE];
    for (int device = 0; device < 2; device++) {
        CHECK(hipSetDevice(device));
        CHECK(hipDeviceSynchronize());
    }
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
        CHECK(hipMemcpy(bytes, buffers[i].at, SIZE, hipMemcpyDefault));
        memset(before, buffers[i].name[0] - 'A' + 'a', SIZE);
        if (memcmp(bytes, before, SIZE) == 0)
            continue;
        fputs(any ? " " : "", stdout);
        show_runs(buffers[i].name, bytes);
        any = true;
    }
    return any;
}

/* ---- rows ---- */

#define JOIN_AGAIN(a, b) a##b
#define JOIN(a, b) JOIN_AGAIN(a, b)
#define ROW(before, call) \
    static hipError_t JOIN(row_, __LINE__)(void) \
    { \
        before; \
        return call; \
    }
#include "hip_conformance_rows.h"
#undef ROW

static const struct {
    const char *before, *call;
    hipError_t (*run)(void);
} rows[] = {
#define ROW(before, call) {#before, #call, JOIN(row_, __LINE__)},
#include "hip_conformance_rows.h"
};

static void run(size_t row)
{
    prepare();
    hipError_t code = rows[row].run(), last = hipPeekAtLastError();
    bool any = out != NOTHING;
    printf("%s\t%s\t%d\t%d\t", rows[row].before, rows[row].call, code, last);
    if (any)
        printf("out=%d", out);
    if (failed_copy != (size_t)NOTHING) {
        printf("failed=%zd", (ssize_t)failed_copy);
        any = true;
    }
    any = show_capture(any);
    any = show_bytes(any);
    puts(any ? "" : "-");
}

int main(int argc, char **argv)
{
    size_t count = sizeof rows / sizeof *rows, only = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
    for (size_t row = 0; row < count; row++) {
        if (only && only != row + 1)
            continue;
        fflush(stdout);
        pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            run(row);
            fflush(stdout);
            _exit(0);
        }
        int status;
        REQUIRE(waitpid(child, &status, 0) == child);
        if (status != 0)
            printf("%s\t%s\tended with status %x\n", rows[row].before, rows[row].call, (unsigned)status);
    }
    return 0;
}
