/*
 * How fast copies are between two GPUs that do not access each other, by whoever stages them.
 *
 *   staging [LARGEST]      in MiB; 1024 if it is not given
 *   staging beside         1 GiB from GPU 0 to GPU 1 while 1 GiB of page-locked memory goes to GPU 1
 *
 * beside: a line, with tabs: milliseconds until the copy is made, until the memory is there, and until both are. Else a line a size, with tabs: MiB, GB/s of a copy from GPU 0 to GPU 1, the host time of its call in microseconds, and GB/s of copies
 * both ways at once, together. Medians. Exits with 1 if a copy brought wrong bytes.
 */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <string.h>

#include "check.h"
#include "measure.h"

enum { SAMPLES = 7 };

static char *source[2], *target[2];
static cudaStream_t stream[2];

static void copy(int from, size_t size)
{
    CHECK(cudaMemcpyPeerAsync(target[1 - from], 1 - from, source[from], from, size, stream[from]));
}

static void finish(void)
{
    for (int device = 0; device < 2; device++)
        CHECK(cudaStreamSynchronize(stream[device]));
}

/* Several copies in a row, of one or both directions; as many that they take milliseconds. */
static double rate(size_t size, int ways)
{
    double samples[SAMPLES];
    const int in_a_row = size >= 128 * MIB ? 2 : (int)(256 * MIB / size) < 32 ? (int)(256 * MIB / size) : 32;
    for (int sample = 0; sample < SAMPLES; sample++) {
        finish();
        double begun = host_time();
        for (int i = 0; i < in_a_row; i++)
            for (int from = 0; from < ways; from++)
                copy(from, size);
        finish();
        samples[sample] = (double)size * in_a_row * ways / (host_time() - begun) * 1e-3;
    }
    return median(samples, SAMPLES);
}

static double call(size_t size)
{
    double samples[SAMPLES];
    for (int sample = 0; sample < SAMPLES; sample++) {
        finish();
        double begun = host_time();
        copy(0, size);
        samples[sample] = host_time() - begun;
    }
    finish();
    return median(samples, SAMPLES);
}

/* Copies of the program between the host and a GPU do not stand still. */
static void show_beside(void)
{
    enum { COPIES = 4, BYTES = 256 * MIB };
    double samples[3][SAMPLES];
    cudaStream_t upload;
    char *host, *there;
    CHECK(cudaSetDevice(1));
    CHECK(cudaMallocHost((void **)&host, BYTES));
    memset(host, 1, BYTES);
    CHECK(cudaMalloc((void **)&there, BYTES));
    CHECK(cudaStreamCreateWithFlags(&upload, cudaStreamNonBlocking));
    for (int sample = -2; sample < SAMPLES; sample++) { /* at first it is found out who stages */
        double done[2] = {0}, since;
        CHECK(cudaDeviceSynchronize());
        since = host_time();
        for (int i = 0; i < COPIES; i++)
            CHECK(cudaMemcpyAsync(there, host, BYTES, cudaMemcpyHostToDevice, upload));
        for (int i = 0; i < COPIES; i++)
            copy(0, BYTES);
        while (done[0] == 0 || done[1] == 0) {
            if (done[0] == 0 && cudaStreamQuery(stream[0]) == cudaSuccess)
                done[0] = host_time() - since;
            if (done[1] == 0 && cudaStreamQuery(upload) == cudaSuccess)
                done[1] = host_time() - since;
        }
        for (int i = 0; i < 2 && sample >= 0; i++)
            samples[i][sample] = done[i];
        if (sample >= 0)
            samples[2][sample] = done[0] > done[1] ? done[0] : done[1];
    }
    for (int i = 0; i < 3; i++)
        printf("%.3f%c", median(samples[i], SAMPLES) * 1e-3, i < 2 ? '\t' : '\n');
}

int main(int argc, char **argv)
{
    const int is_beside = argc > 1 && strcmp(argv[1], "beside") == 0;
    const size_t largest = (argc > 1 && !is_beside ? (size_t)atoi(argv[1]) : 1024) * MIB;
    static const size_t sizes[] = {1, 4, 8, 16, 64, 128, 256, 1024};

    for (int device = 0; device < 2; device++) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaStreamCreateWithFlags(&stream[device], cudaStreamNonBlocking));
        CHECK(cudaMalloc((void **)&source[device], largest));
        CHECK(cudaMalloc((void **)&target[device], largest));
        fill_device(source[device], largest, 1 + (unsigned)device);
    }
    if (is_beside) {
        show_beside();
        return 0;
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && sizes[i] * MIB <= largest; i++) {
        const size_t size = sizes[i] * MIB;
        for (int device = 0; device < 2; device++) {
            CHECK(cudaSetDevice(device));
            CHECK(cudaMemset(target[device], 0, largest));
            CHECK(cudaDeviceSynchronize());
        }
        copy(0, size);
        copy(1, size);
        const double one_way = rate(size, 1), host = call(size), both_ways = rate(size, 2);
        for (int device = 0; device < 2; device++) {
            CHECK(cudaSetDevice(device));
            REQUIRE(holds(target[device], size, 2 - (unsigned)device));
        }
        printf("%zu\t%.2f\t%.1f\t%.2f\n", sizes[i], one_way, host, both_ways);
    }
    return 0;
}
