/*
 * The program of README.md and docs/USAGE.md: copies 64 KiB at a time from GPU 0 to GPU 1 and never enables peer access, as
 * many programs do. Says how long it took, and whether the bytes arrived.
 */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COPIES = 10000, BYTES = 64 << 10 };

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        cudaError_t error = (call);                                                                                    \
        if (error != cudaSuccess) {                                                                                    \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorName(error));                                               \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

int main(void)
{
    static unsigned char sent[BYTES], received[BYTES];
    void *memory[2];
    cudaStream_t stream;
    memset(sent, 42, BYTES);
    for (int gpu = 0; gpu < 2; gpu++) {
        CHECK(cudaSetDevice(gpu));
        CHECK(cudaMalloc(&memory[gpu], BYTES));
    }
    CHECK(cudaSetDevice(0));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMemcpy(memory[0], sent, BYTES, cudaMemcpyHostToDevice));
    double begun = now();
    for (int i = 0; i < COPIES; i++)
        CHECK(cudaMemcpyPeerAsync(memory[1], 1, memory[0], 0, BYTES, stream));
    CHECK(cudaStreamSynchronize(stream));
    double took = now() - begun;
    CHECK(cudaMemcpy(received, memory[1], BYTES, cudaMemcpyDeviceToHost));
    int right = memcmp(sent, received, BYTES) == 0;
    printf("%d copies of %d KiB from GPU 0 to GPU 1: %.0f ms, data %s\n", COPIES, BYTES >> 10, took, right ? "right" : "WRONG");
    return !right;
}
