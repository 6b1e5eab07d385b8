/* build: cudart13 driver; run: failing [asks | cleared | counts | hops | late | memset | negative | ordinal | pending | stray | threads | opens DEVICE closes|keeps] on sim
 * Calls that may fail, and a program that goes on: it enables access, copies from GPU 0 to GPU 1, waits, captures a copy on a stream that a second
 * one joins and does not leave, and waits again, many times. Prints the code of each.
 * `asks`: asks whether there is a path, and ends if that fails.
 * `hops`: rank 0 copies from GPU 0 to the host, and rank 1 as much from there to GPU 1.
 * `late`: waits for the device after main has returned.
 * `memset`: GPU 0 sets memory of GPU 1, to which it has no access.
 * `negative`: copies of a size that has become too large for an int.
 * `ordinal`: takes a GPU that there is not. `counts`: tries ordinals until there is no GPU. `pending`: enables access twice, and while it captures finds the code of that; `cleared`: clears that code at once, and ends with 1.
 * `stray`: the main thread works on GPU 1, and a thread that has chosen no device copies from its own memory there; `threads`: two threads, each on
 * a GPU that it has chosen.
 * `opens`: rank 1 opens memory of GPU 0 that rank 0 shares, copies it to its own device, and closes it or keeps it open; then rank 0 frees it.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "check.h"

enum { BYTES = 1 << 20, WAITS = 100 };

static void unjoined(cudaStream_t first, cudaStream_t second, void *to, void *from)
{
    cudaEvent_t event;
    cudaGraph_t graph = NULL;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaEventRecord(event, first));
    CHECK(cudaStreamWaitEvent(second, event, 0));
    CHECK(cudaMemcpyAsync(to, from, BYTES, cudaMemcpyDefault, second));
    printf("capture %d\n", cudaStreamEndCapture(first, &graph));
    CHECK(cudaEventDestroy(event));
}

/* Rank 1, once rank 0 has sent it a handle: the descriptors are 3 and 4. */
static int opens(int device, int closes)
{
    cudaIpcMemHandle_t handle;
    void *from, *to;
    CHECK(cudaSetDevice(device));
    CHECK(cudaMalloc(&to, BYTES));
    REQUIRE(read(3, &handle, sizeof handle) == sizeof handle);
    CHECK(cudaIpcOpenMemHandle(&from, handle, cudaIpcMemLazyEnablePeerAccess));
    CHECK(cudaMemcpy(to, from, BYTES, cudaMemcpyDefault));
    CHECK(cudaDeviceSynchronize());
    if (closes)
        CHECK(cudaIpcCloseMemHandle(from));
    REQUIRE(write(4, "x", 1) == 1);
    /* Until rank 0 has freed it. */
    REQUIRE(read(3, &handle, 1) == 0);
    return 0;
}

static int shares(char **argv)
{
    int to[2], back[2];
    cudaIpcMemHandle_t handle;
    void *memory;
    char byte;
    REQUIRE(pipe(to) == 0 && pipe(back) == 0);
    pid_t child = fork();
    if (child == 0) {
        close(to[1]);
        int descriptors[2] = {dup(to[0]), dup(back[1])};
        dup2(descriptors[0], 3);
        dup2(descriptors[1], 4);
        for (int other = 5; other < 16; other++)
            close(other);
        setenv("RANK", "1", 1);
        execl(argv[0], argv[0], "opened", argv[2], argv[3], (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    CHECK(cudaSetDevice(0));
    CHECK(cudaMalloc(&memory, BYTES));
    CHECK(cudaIpcGetMemHandle(&handle, memory));
    REQUIRE(write(to[1], &handle, sizeof handle) == sizeof handle && read(back[0], &byte, 1) == 1);
    CHECK(cudaFree(memory));
    close(to[1]);
    int status;
    REQUIRE(waitpid(child, &status, 0) == child && status == 0);
    return 0;
}

/* Copies to the host, or from there. */
static int copies(int device, enum cudaMemcpyKind kind)
{
    static char host[BYTES];
    void *memory;
    CHECK(cudaSetDevice(device));
    CHECK(cudaMalloc(&memory, BYTES));
    if (kind == cudaMemcpyDeviceToHost)
        CHECK(cudaMemcpy(host, memory, BYTES, kind));
    else
        CHECK(cudaMemcpy(memory, host, BYTES, kind));
    return 0;
}

static int hops(char *program)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        setenv("RANK", "1", 1);
        execl(program, program, "hopped", (char *)NULL);
        _exit(127);
    }
    REQUIRE(waitpid(child, &status, 0) == child && status == 0);
    return copies(0, cudaMemcpyDeviceToHost);
}

static void waits(void)
{
    /* As NVIDIA's runtime does. */
    printf("release %d\n", cuDevicePrimaryCtxRelease(1));
    printf("wait %d\n", cuCtxSynchronize());
}

static void *target;

static void *strays(void *chosen)
{
    void *memory;
    if (chosen)
        CHECK(cudaSetDevice(0));
    CHECK(cudaMalloc(&memory, BYTES));
    if (target)
        CHECK(cudaMemcpy(target, memory, BYTES, cudaMemcpyDeviceToDevice));
    return NULL;
}

static void *works_on_1(void *unused)
{
    (void)unused;
    CHECK(cudaSetDevice(1));
    CHECK(cudaMalloc(&target, BYTES));
    return NULL;
}

static int cleared;

static __attribute__((noinline)) void links(void)
{
    CHECK(cudaSetDevice(0));
    CHECK(cudaDeviceEnablePeerAccess(1, 0));
    REQUIRE(cudaDeviceEnablePeerAccess(1, 0) == cudaErrorPeerAccessAlreadyEnabled);
    if (cleared)
        REQUIRE(cudaGetLastError() == cudaErrorPeerAccessAlreadyEnabled);
}

/* Whether the check behind a step of a capture finds the code of an earlier call. */
static int pending(void)
{
    cudaGraph_t graph;
    links();
    cudaStream_t stream = non_blocking_stream();
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    int has_failed = cudaGetLastError() != cudaSuccess;
    CHECK(cudaStreamEndCapture(stream, &graph));
    return has_failed;
}

/* Calls of one process that need two GPUs: -1 if it is none of these. */
static int alone(const char *what)
{
    if (strcmp(what, "stray") == 0) {
        works_on_1(NULL);
        run_in_thread(strays, NULL);
    } else if (strcmp(what, "threads") == 0) {
        run_in_thread(works_on_1, NULL);
        run_in_thread(strays, "chosen");
    } else if (strcmp(what, "late") == 0) {
        REQUIRE(atexit(waits) == 0);
        works_on_1(NULL);
    } else if (strcmp(what, "memset") == 0) {
        works_on_1(NULL);
        CHECK(cudaSetDevice(0));
        printf("memset %d\n", cudaMemset(target, 0, BYTES));
    } else if (strcmp(what, "negative") == 0) {
        void *memory;
        int elements = 1 << 28, bytes = elements * (int)sizeof(double);
        works_on_1(NULL);
        CHECK(cudaSetDevice(0));
        CHECK(cudaMalloc(&memory, BYTES));
        printf("copy %d\n", cudaMemcpyPeer(target, 1, memory, 0, bytes));
    } else if (strcmp(what, "ordinal") == 0) {
        return cudaSetDevice(5) != cudaSuccess;
    } else if (strcmp(what, "counts") == 0) {
        int count = 0;
        while (cudaSetDevice(count) == cudaSuccess)
            count++;
        printf("%d GPUs, %d\n", count, cudaGetLastError());
    } else if (strcmp(what, "pending") == 0) {
        return pending();
    } else if (strcmp(what, "cleared") == 0) {
        cleared = 1;
        return !pending();
    } else {
        return -1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    int ret = argc == 2 ? alone(argv[1]) : -1;
    if (ret >= 0)
        return ret;
    if (argc == 2 && strcmp(argv[1], "asks") != 0)
        return strcmp(argv[1], "hops") == 0 ? hops(argv[0]) : copies(1, cudaMemcpyHostToDevice);
    if (argc == 4) {
        int is_rank_1 = strcmp(argv[1], "opened") == 0;
        return is_rank_1 ? opens(atoi(argv[2]), strcmp(argv[3], "closes") == 0) : shares(argv);
    }
    int can;
    if (argc == 2)
        return cudaDeviceCanAccessPeer(&can, 0, 1) != cudaSuccess;
    void *from, *to;
    CHECK(cudaSetDevice(1));
    CHECK(cudaMalloc(&to, BYTES));
    CHECK(cudaSetDevice(0));
    CHECK(cudaMalloc(&from, BYTES));
    cudaStream_t first = non_blocking_stream();
    cudaStream_t second = non_blocking_stream();
    printf("enable %d\n", cudaDeviceEnablePeerAccess(1, 0));
    printf("copy %d\n", cudaMemcpyPeerAsync(to, 1, from, 0, BYTES, first));
    printf("wait %d\n", cudaStreamSynchronize(first));
    unjoined(first, second, to, from);
    int failed = 0;
    for (int i = 0; i < WAITS; i++)
        failed += cudaDeviceSynchronize() != cudaSuccess;
    printf("failed %d\n", failed);
    return 0;
}
