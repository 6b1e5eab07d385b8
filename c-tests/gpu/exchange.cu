/* build: nvcc; run: exchange ROUNDS on gpu
 * Two GPUs that compute on 8 MiB each and exchange them, as a program in tensor-split mode does, without ever enabling access.
 *
 * Prints the milliseconds of a round, the median of seven parts of the run, and the sum of all results.
 */
#include <cuda_runtime.h>

#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "measure.h"

enum { COUNT = (8 << 20) / sizeof(unsigned), PARTS = 7 };

/* Some 0.1 ms of work on a GPU, whose result depends on each word that the other has sent. */
__global__ void mix(unsigned *mine, const unsigned *other, unsigned salt)
{
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < COUNT; i += gridDim.x * blockDim.x) {
        unsigned word = mine[i] ^ (other[i] * 2654435761u + salt);
        for (int step = 0; step < 64; step++)
            word = word * 1664525u + 1013904223u + (word >> 7);
        mine[i] = word;
    }
}

static unsigned *mine[2], *other[2];
static cudaStream_t stream[2];
static cudaEvent_t mixed[2], sent[2];

static void one_round(unsigned number)
{
    for (int device = 0; device < 2; device++) {
        CHECK(cudaSetDevice(device));
        /* The other has sent what is read here, and what this has sent has left. */
        CHECK(cudaStreamWaitEvent(stream[device], sent[1 - device], 0));
        mix<<<256, 256, 0, stream[device]>>>(mine[device], other[device], number);
        CHECK(cudaEventRecord(mixed[device], stream[device]));
    }
    for (int device = 0; device < 2; device++) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaStreamWaitEvent(stream[device], mixed[1 - device], 0));
        CHECK(cudaMemcpyPeerAsync(other[1 - device], 1 - device, mine[device], device, COUNT * sizeof(unsigned), stream[device]));
        CHECK(cudaEventRecord(sent[device], stream[device]));
    }
}

static void finish(void)
{
    for (int device = 0; device < 2; device++)
        CHECK(cudaStreamSynchronize(stream[device]));
}

int main(int argc, char **argv)
{
    const int rounds = argc > 1 ? atoi(argv[1]) : 700;
    double samples[PARTS];
    unsigned number = 0, sum = 0;
    unsigned *host = (unsigned *)malloc(COUNT * sizeof(unsigned));

    for (int device = 0; device < 2; device++) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaStreamCreateWithFlags(&stream[device], cudaStreamNonBlocking));
        CHECK(cudaEventCreateWithFlags(&mixed[device], cudaEventDisableTiming));
        CHECK(cudaEventCreateWithFlags(&sent[device], cudaEventDisableTiming));
        CHECK(cudaMalloc((void **)&mine[device], COUNT * sizeof(unsigned)));
        CHECK(cudaMalloc((void **)&other[device], COUNT * sizeof(unsigned)));
        CHECK(cudaMemset(mine[device], 1 + device, COUNT * sizeof(unsigned)));
        CHECK(cudaMemset(other[device], 3 + device, COUNT * sizeof(unsigned)));
        CHECK(cudaDeviceSynchronize());
    }
    for (int part = 0; part < PARTS; part++) {
        const double begun = host_time();
        for (int i = 0; i < rounds / PARTS; i++)
            one_round(number++);
        finish();
        samples[part] = (host_time() - begun) / (rounds / PARTS) / 1e3;
    }
    for (int device = 0; device < 2; device++) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaMemcpy(host, mine[device], COUNT * sizeof(unsigned), cudaMemcpyDeviceToHost));
        for (unsigned i = 0; i < COUNT; i++)
            sum = sum * 31 + host[i];
    }
    printf("%.4f\t%u\n", median(samples, PARTS), sum);
    return 0;
}
