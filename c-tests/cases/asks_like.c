/* build: runtime driver; run: asks_like pytorch|llama|vllm on sim gpu
 * How programs that many use ask for peer access, and copy: their calls, one after another.
 *
 *   pytorch   asks once for a pair, enables, and ends if that fails; copies on the source's stream, between events
 *   llama     asks for and enables all pairs, and passes over what fails; copies to and fro, also as rows
 *   vllm      has another process open memory and write to it, and looks at what arrived; then asks
 *
 * Prints what they are told, and whether data is right.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "check.h"

enum { DEVICES = 2, BYTES = 4 << 20, TIMES = 24, PITCH = 4096, WIDTH = 4000 };

static unsigned char *memory[DEVICES];
static cudaStream_t streams[DEVICES];
static unsigned char host[BYTES];

static void start(void)
{
    for (int device = 0; device < DEVICES; device++) {
        memory[device] = device_memory(device, BYTES);
        CHECK(cudaStreamCreateWithFlags(&streams[device], cudaStreamNonBlocking));
    }
}

/* Both devices have other bytes before. */
static void put(int from, unsigned seed)
{
    fill(host, BYTES, seed);
    CHECK(cudaMemcpy(memory[from], host, BYTES, cudaMemcpyHostToDevice));
    CHECK(cudaSetDevice(!from));
    CHECK(cudaMemset(memory[!from], 0x5a, BYTES));
    CHECK(cudaDeviceSynchronize());
}

static int is_right(int to, unsigned seed, size_t width)
{
    static unsigned char found[BYTES];
    fill(host, BYTES, seed);
    CHECK(cudaMemcpy(found, memory[to], BYTES, cudaMemcpyDeviceToHost));
    for (size_t at = 0; at < BYTES; at += PITCH)
        if (memcmp(found + at, host + at, width) != 0 || others_than(found + at + width, PITCH - width, 0x5a))
            return 0;
    return 1;
}

/* c10/cuda/PeerToPeerAccess.cpp, aten/src/ATen/native/cuda/Copy.cu */
static void like_pytorch(void)
{
    int can, right = 0;
    cudaEvent_t ready, done;
    start();
    CHECK(cudaDeviceCanAccessPeer(&can, 0, 1));
    printf("0 can access 1: %d\n", can);
    if (can) {
        CHECK(cudaSetDevice(0));
        cudaError_t error = cudaDeviceEnablePeerAccess(1, 0);
        printf("enabling: %s\n", cudaGetErrorName(error));
        if (error == cudaErrorPeerAccessAlreadyEnabled)
            (void)cudaGetLastError();
        else if (error != cudaSuccess)
            exit(3);
    }
    CHECK(cudaSetDevice(1));
    CHECK(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming));
    CHECK(cudaSetDevice(0));
    CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    for (unsigned i = 0; i < TIMES; i++) {
        put(0, i);
        CHECK(cudaSetDevice(1));
        CHECK(cudaEventRecord(ready, streams[1]));
        CHECK(cudaSetDevice(0));
        CHECK(cudaStreamWaitEvent(streams[0], ready, 0));
        if (can)
            CHECK(cudaMemcpyAsync(memory[1], memory[0], BYTES, cudaMemcpyDeviceToDevice, streams[0]));
        else
            CHECK(cudaMemcpyPeerAsync(memory[1], 1, memory[0], 0, BYTES, streams[0]));
        CHECK(cudaEventRecord(done, streams[0]));
        CHECK(cudaSetDevice(1));
        CHECK(cudaStreamWaitEvent(streams[1], done, 0));
        CHECK(cudaStreamSynchronize(streams[1]));
        right += is_right(1, i, PITCH);
    }
    printf("%d of %d copies right\n", right, TIMES);
}

/* ggml/src/ggml-cuda/ggml-cuda.cu */
static void like_llama(void)
{
    int right = 0;
    start();
    for (int device = 0; device < DEVICES; device++) {
        CHECK(cudaSetDevice(device));
        for (int peer = 0; peer < DEVICES; peer++) {
            int can;
            if (peer == device)
                continue;
            CHECK(cudaDeviceCanAccessPeer(&can, device, peer));
            printf("%d can access %d: %d\n", device, peer, can);
            if (can) {
                cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
                printf("enabling: %s\n", cudaGetErrorName(error));
                if (error != cudaSuccess)
                    (void)cudaGetLastError();
            }
        }
    }
    for (unsigned i = 0; i < TIMES; i++) {
        int from = i % 2, is_pitched = i % 4 > 1;
        put(from, i);
        CHECK(cudaSetDevice(from));
        if (is_pitched) {
            struct cudaMemcpy3DPeerParms p = {.srcDevice = from, .dstDevice = !from};
            p.srcPtr = (struct cudaPitchedPtr){memory[from], PITCH, PITCH, BYTES / PITCH};
            p.dstPtr = (struct cudaPitchedPtr){memory[!from], PITCH, PITCH, BYTES / PITCH};
            p.extent = (struct cudaExtent){WIDTH, BYTES / PITCH, 1};
            CHECK(cudaMemcpy3DPeerAsync(&p, streams[from]));
        } else {
            CHECK(cudaMemcpyPeerAsync(memory[!from], !from, memory[from], from, BYTES, streams[from]));
        }
        CHECK(cudaStreamSynchronize(streams[from]));
        right += is_right(!from, i, is_pitched ? WIDTH : PITCH);
    }
    printf("%d of %d copies right\n", right, TIMES);
}

/* The consumer of vllm/distributed/device_communicators/custom_all_reduce_utils.py, on device 0. */
static int open_and_write(void)
{
    CUdeviceptr there;
    CUipcMemHandle handle;
    CHECK_CU(cuInit(0));
    primary_context(0);
    REQUIRE(read(STDIN_FILENO, &handle, sizeof handle) == sizeof handle);
    if (cuIpcOpenMemHandle(&there, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) != CUDA_SUCCESS)
        return 1;
    CHECK_CU(cuMemAlloc((CUdeviceptr *)&memory[0], BYTES));
    fill(host, BYTES, 7);
    CHECK_CU(cuMemcpyHtoD((CUdeviceptr)memory[0], host, BYTES));
    CHECK_CU(cuMemcpyDtoD(there, (CUdeviceptr)memory[0], BYTES));
    CHECK_CU(cuCtxSynchronize());
    return 0;
}

static void like_vllm(const char *program)
{
    int to_child[2], status, can;
    CUipcMemHandle handle;
    memory[1] = device_memory(1, BYTES);
    CHECK(cudaMemset(memory[1], 0x5a, BYTES));
    CHECK(cudaDeviceSynchronize());
    CHECK_CU(cuIpcGetMemHandle(&handle, (CUdeviceptr)memory[1]));
    REQUIRE(pipe(to_child) == 0);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        REQUIRE(dup2(to_child[0], STDIN_FILENO) == STDIN_FILENO && close(to_child[1]) == 0);
        execl("/proc/self/exe", program, "consumer", (char *)NULL);
        _exit(127);
    }
    REQUIRE(write(to_child[1], &handle, sizeof handle) == sizeof handle);
    REQUIRE(waitpid(child, &status, 0) == child);
    printf("the other process ends with %d, its data is %s\n", status, is_right(1, 7, PITCH) ? "right" : "WRONG");
    CHECK(cudaDeviceCanAccessPeer(&can, 0, 1));
    printf("0 can access 1: %d\n", can);
}

int main(int argc, char **argv)
{
    REQUIRE(argc > 1);
    if (strcmp(argv[1], "consumer") == 0)
        return open_and_write();
    if (strcmp(argv[1], "pytorch") == 0)
        like_pytorch();
    else if (strcmp(argv[1], "llama") == 0)
        like_llama();
    else
        like_vllm(argv[0]);
    return 0;
}
