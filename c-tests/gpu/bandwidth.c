/* build: static; run: bandwidth never|enables|pool [MIB] on gpu
 * How fast peer copies are, on every ordered pair of GPUs.
 *
 *   never      never enables peer access
 *   enables    enables it in both directions on every pair, as the documentation asks
 *   pool       like never, with memory of cudaMallocAsync on both sides
 *
 * A line a pair, with tabs: from, to, GB/s of a large copy (256 MiB, or MIB), and of a copy of 4 bytes the call's host
 * time, the time until it is complete, and the time of each when a hundred are in a row, in microseconds. Medians.
 * Exits with 1 if a copy brought wrong bytes.
 */
#include <cuda_runtime_api.h>

#include "check.h"
#include "measure.h"

enum { MAX_GPUS = 16, SAMPLES = 15, IN_A_ROW = 4, SMALL_SAMPLES = 1001, SMALL_IN_A_ROW = 100, SMALL = 4 };

static void *source[MAX_GPUS], *target[MAX_GPUS];
static size_t large = 256 * MIB;

struct answer {
    double gigabytes_per_second, call, complete, each;
};

static void *memory_of(int device, const char *mode)
{
    void *memory;
    CHECK(cudaSetDevice(device));
    if (strcmp(mode, "pool") == 0) {
        CHECK(cudaMallocAsync(&memory, large, 0));
        CHECK(cudaStreamSynchronize(0));
    } else {
        CHECK(cudaMalloc(&memory, large));
    }
    return memory;
}

/* Microseconds of device time for each of `in_a_row` copies, the median of SAMPLES. */
static double device_time(int to, int from, size_t size, int in_a_row, cudaStream_t stream)
{
    double samples[SAMPLES];
    cudaEvent_t begun, ended;
    CHECK(cudaEventCreate(&begun));
    CHECK(cudaEventCreate(&ended));
    for (int sample = 0; sample < SAMPLES; sample++) {
        float milliseconds;
        CHECK(cudaEventRecord(begun, stream));
        for (int i = 0; i < in_a_row; i++)
            CHECK(cudaMemcpyPeerAsync(target[to], to, source[from], from, size, stream));
        CHECK(cudaEventRecord(ended, stream));
        CHECK(cudaEventSynchronize(ended));
        CHECK(cudaEventElapsedTime(&milliseconds, begun, ended));
        samples[sample] = milliseconds * 1e3 / in_a_row;
    }
    CHECK(cudaEventDestroy(begun));
    CHECK(cudaEventDestroy(ended));
    return median(samples, SAMPLES);
}

static struct answer measure(int to, int from)
{
    static double call[SMALL_SAMPLES], complete[SMALL_SAMPLES];
    struct answer answer;

    CHECK(cudaSetDevice(from));
    cudaStream_t stream = non_blocking_stream();
    for (int i = 0; i < 2; i++)
        CHECK(cudaMemcpyPeerAsync(target[to], to, source[from], from, large, stream));
    CHECK(cudaStreamSynchronize(stream));
    answer.gigabytes_per_second = (double)large / device_time(to, from, large, IN_A_ROW, stream) * 1e-3;

    for (int i = 0; i < SMALL_SAMPLES; i++) {
        double begun = host_time();
        CHECK(cudaMemcpyPeerAsync(target[to], to, source[from], from, SMALL, stream));
        call[i] = host_time() - begun;
        CHECK(cudaStreamSynchronize(stream));
        complete[i] = host_time() - begun;
    }
    answer.call = median(call, SMALL_SAMPLES);
    answer.complete = median(complete, SMALL_SAMPLES);
    answer.each = device_time(to, from, SMALL, SMALL_IN_A_ROW, stream);
    CHECK(cudaStreamDestroy(stream));
    return answer;
}

/* One more large copy, into memory that is empty. */
static int brings_the_right_bytes(int to, int from)
{
    CHECK(cudaSetDevice(to));
    CHECK(cudaMemset(target[to], 0, large));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaSetDevice(from));
    CHECK(cudaMemcpyPeerAsync(target[to], to, source[from], from, large, 0));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaSetDevice(to));
    return holds(target[to], large, (unsigned)from);
}

static void enable_all(int gpus)
{
    for (int from = 0; from < gpus; from++) {
        CHECK(cudaSetDevice(from));
        for (int to = 0; to < gpus; to++)
            if (to != from)
                CHECK(cudaDeviceEnablePeerAccess(to, 0));
    }
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    int gpus, wrong = 0;
    if (strcmp(mode, "never") != 0 && strcmp(mode, "enables") != 0 && strcmp(mode, "pool") != 0) {
        fprintf(stderr, "usage: bandwidth never|enables|pool [MIB]\n");
        return 2;
    }
    if (argc > 2)
        large = (size_t)atoi(argv[2]) * MIB;
    REQUIRE(large > 0);
    CHECK(cudaGetDeviceCount(&gpus));
    REQUIRE(gpus >= 2 && gpus <= MAX_GPUS);
    for (int device = 0; device < gpus; device++) {
        source[device] = memory_of(device, mode);
        target[device] = memory_of(device, mode);
        fill_device(source[device], large, (unsigned)device);
    }
    if (strcmp(mode, "enables") == 0)
        enable_all(gpus);
    for (int from = 0; from < gpus; from++)
        for (int to = 0; to < gpus; to++) {
            if (to == from)
                continue;
            struct answer a = measure(to, from);
            printf("%d\t%d\t%.2f\t%.3f\t%.3f\t%.3f\n", from, to, a.gigabytes_per_second, a.call, a.complete, a.each);
            if (!brings_the_right_bytes(to, from)) {
                fprintf(stderr, "from GPU %d to GPU %d: wrong bytes\n", from, to);
                wrong = 1;
            }
        }
    return wrong;
}
