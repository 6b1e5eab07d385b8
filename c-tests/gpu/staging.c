/*
 * How fast copies are between two GPUs that do not access each other, by whoever stages them.
 *
 *   staging [LARGEST]      in MiB; 1024 if it is not given
 *
 * A line a size, with tabs: MiB, GB/s of a copy from GPU 0 to GPU 1, the host time of its call in microseconds, and GB/s of copies
 * both ways at once, together. Medians. Exits with 1 if a copy brought wrong bytes.
 */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>

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

int main(int argc, char **argv)
{
    const size_t largest = (argc > 1 ? (size_t)atoi(argv[1]) : 1024) * MIB;
    static const size_t sizes[] = {1, 4, 8, 16, 64, 128, 256, 1024};

    for (int device = 0; device < 2; device++) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaStreamCreateWithFlags(&stream[device], cudaStreamNonBlocking));
        CHECK(cudaMalloc((void **)&source[device], largest));
        CHECK(cudaMalloc((void **)&target[device], largest));
        fill_device(source[device], largest, 1 + (unsigned)device);
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
