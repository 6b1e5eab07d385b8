/* build: 12; run: demo_copies never|enables on sim
 * The program of `make demo`: copies from GPU 0 to GPU 1, and says how they went and whether the bytes arrived.
 *
 *   never      never enables peer access, as many programs do
 *   enables    enables it at start if CUDA offers it, as the documentation asks
 *
 * On real GPUs it says how fast the copies were. A rate of simulated GPUs means nothing: there the simulated driver
 * says which path they took. Exits with 1 if a byte is wrong.
 */
#include <cuda_runtime_api.h>

#include "check.h"

enum { WARM_UP = 20, COPIES = 64, REAL = 256 << 20, SIMULATED = 1 << 20 };

static void *memory[2];
static cudaStream_t stream;

static void copy(int count, size_t bytes)
{
    for (int i = 0; i < count; i++)
        CHECK(cudaMemcpyPeerAsync(memory[1], 1, memory[0], 0, bytes, stream));
    CHECK(cudaStreamSynchronize(stream));
}

static void say_path(size_t bytes)
{
    unsigned long long direct[2], staged[2];
    REQUIRE(simulated_copies(0, 1, &direct[0], &staged[0]));
    copy(COPIES, bytes);
    REQUIRE(simulated_copies(0, 1, &direct[1], &staged[1]));
    printf("%llu through the host, %llu direct", staged[1] - staged[0], direct[1] - direct[0]);
}

static void say_rate(size_t bytes)
{
    cudaEvent_t begin, end;
    float milliseconds;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    CHECK(cudaEventRecord(begin, stream));
    copy(COPIES, bytes);
    CHECK(cudaEventRecord(end, stream));
    CHECK(cudaEventSynchronize(end));
    CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
    printf("%.0f GB/s", (double)bytes * COPIES / milliseconds * 1e-6);
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 2);
    CHECK(cudaFree(NULL));
    unsigned long long none[2];
    bool is_simulated = simulated_copies(0, 1, &none[0], &none[1]);
    size_t bytes = is_simulated ? SIMULATED : REAL, wrong = 0;
    int can = 0;
    unsigned char *sent = malloc(bytes), *received = malloc(bytes);
    REQUIRE(sent && received);
    fill(sent, bytes, 1);
    for (int gpu = 0; gpu < 2; gpu++) {
        memory[gpu] = device_memory(gpu, bytes);
        if (strcmp(argv[1], "enables") == 0)
            CHECK(cudaDeviceCanAccessPeer(&can, gpu, !gpu));
        /* If it is refused, copies go on without it. */
        if (can && cudaDeviceEnablePeerAccess(!gpu, 0) != cudaSuccess)
            cudaGetLastError();
    }
    CHECK(cudaSetDevice(0));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMemcpy(memory[0], sent, bytes, cudaMemcpyHostToDevice));
    copy(WARM_UP, bytes);
    /* A report counts all of them. */
    printf("%d copies of %zu MiB from GPU 0 to 1, the last %d: ", WARM_UP + COPIES, bytes >> 20, COPIES);
    is_simulated ? say_path(bytes) : say_rate(bytes);
    CHECK(cudaMemcpy(received, memory[1], bytes, cudaMemcpyDeviceToHost));
    for (size_t at = 0; at < bytes; at++)
        wrong += sent[at] != received[at];
    wrong ? printf(", %zu bytes WRONG\n", wrong) : printf(", data right\n");
    return wrong != 0;
}
