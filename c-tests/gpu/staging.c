/* build: static; run: staging [forms|beside|pairs|ceiling] on gpu
 * How fast copies are between two GPUs that do not access each other, by whoever stages them.
 *
 *   nothing     a line a size: MiB, GB/s of a copy from GPU 0 to GPU 1, the host time of its call in microseconds, GB/s of copies both
 *               ways at once, together, in streams of their own, and the same in the default streams
 *   forms       a line a form: bytes of a row, rows, whether it is in the default stream, GB/s of a copy from GPU 0 to GPU 1
 *   beside      1 GiB from GPU 0 to GPU 1 while 1 GiB of page-locked memory goes to GPU 1: milliseconds until the copy is made, until
 *               the memory is there, and until both are
 *   pairs       GB/s of copies from GPU 0 to GPU 1 and from GPU 2 to GPU 3 at once, together; and of those from GPU 0 alone
 *   ceiling     what the links to the host take: GB/s that go from each GPU to the host and back to the other at once, half of all
 *               bytes on the links
 *
 * Tabs between columns; medians. Exits with 1 if a copy brought wrong bytes.
 */
#include <cuda_runtime_api.h>

#include "check.h"
#include "measure.h"

enum {
    SAMPLES = 7,
    SAMPLES_SHORT = 31, /* of copies that differ by more from one time to the next */
};
#define LARGEST (4096 * MIB)

/* GPUs 0 and 1, and for `pairs` 2 and 3: who copies to whom differs in the last bit. */
static char *source[4], *target[4];
static cudaStream_t stream[4];
static int devices = 2;

/* A copy in a stream of its own, or in the default stream of the device that it comes from. */
static void copy(int from, size_t size, int by_default)
{
    if (by_default)
        CHECK(cudaSetDevice(from));
    CHECK(cudaMemcpyPeerAsync(target[from ^ 1], from ^ 1, source[from], from, size, by_default ? 0 : stream[from]));
}

static void finish(void)
{
    for (int device = 0; device < devices; device++) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaDeviceSynchronize());
    }
}

/* Several copies in a row, of one or both directions; as many that they take milliseconds. */
static double rate(size_t size, int ways, int by_default)
{
    double samples[SAMPLES];
    const int in_a_row = size >= 128 * MIB ? 2 : (int)(256 * MIB / size);
    for (int sample = 0; sample < SAMPLES; sample++) {
        finish();
        double begun = host_time();
        for (int i = 0; i < in_a_row; i++)
            for (int from = 0; from < ways; from++)
                copy(from, size, by_default);
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
        copy(0, size, 0);
        samples[sample] = host_time() - begun;
    }
    finish();
    return median(samples, SAMPLES);
}

static void show_sizes(void)
{
    static const size_t sizes[] = {1, 4, 8, 16, 64, 128, 256, 1024};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size_t size = sizes[i] * MIB;
        for (int device = 0; device < 2; device++) {
            CHECK(cudaSetDevice(device));
            CHECK(cudaMemset(target[device], 0, size));
            CHECK(cudaDeviceSynchronize());
        }
        copy(0, size, 0);
        copy(1, size, 0);
        const double one_way = rate(size, 1, 0), host = call(size), both_ways = rate(size, 2, 0), by_default = rate(size, 2, 1);
        for (int device = 0; device < 2; device++) {
            CHECK(cudaSetDevice(device));
            REQUIRE(holds(target[device], size, 2 - (unsigned)device));
        }
        printf("%zu\t%.2f\t%.1f\t%.2f\t%.2f\n", sizes[i], one_way, host, both_ways, by_default);
    }
}

/* Whether memory of GPU 1 has those rows, and nothing between them. */
static int has_rows(size_t width, size_t rows)
{
    static unsigned char pattern[MIB], found[MIB], nothing[MIB];
    const size_t pitch = rows == 1 ? width : 2 * width, span = pitch * rows;
    fill(pattern, MIB, 1);
    for (size_t at = 0; at < span; at += MIB) {
        const size_t bytes = span - at < MIB ? span - at : MIB;
        CHECK(cudaMemcpy(found, target[1] + at, bytes, cudaMemcpyDeviceToHost));
        /* A row, the space behind it, or a part of one of them. */
        for (size_t from = 0; from < bytes;) {
            const size_t place = (at + from) % pitch, end = place < width ? width : pitch;
            const size_t length = end - place < bytes - from ? end - place : bytes - from;
            if (memcmp(found + from, place < width ? pattern + from : nothing, length) != 0)
                return 0;
            from += length;
        }
    }
    return 1;
}

/* Of one row, and of rows as far apart as they are long. */
static void show_forms(void)
{
    static const size_t forms[][2] = {
        {4, 1}, {64 << 10, 1}, {2 * MIB, 1}, {32 * MIB, 1}, {512 * MIB, 1}, {LARGEST, 1},
        {64, 16 << 10}, {64, 256 << 10}, {2048, 4 << 10}, {2048, 32 << 10}, {64 << 10, 256}, {64 << 10, 4 << 10}, {MIB, 64}, {32 * MIB, 16},
    };
    for (size_t form = 0; form < sizeof forms / sizeof *forms; form++) {
        const size_t width = forms[form][0], rows = forms[form][1], size = width * rows;
        const int in_a_row = size >= 64 * MIB ? 2 : size >= MIB ? 16 : 1024, samples = size >= MIB ? SAMPLES : SAMPLES_SHORT;
        for (int by_default = 0; by_default < 2; by_default++) {
            double rates[SAMPLES_SHORT];
            CHECK(cudaSetDevice(1));
            CHECK(cudaMemset(target[1], 0, rows == 1 ? size : 2 * size));
            for (int sample = -4; sample < samples; sample++) { /* at first rings are made */
                finish();
                CHECK(cudaSetDevice(0));
                double begun = host_time();
                for (int i = 0; i < in_a_row; i++) {
                    if (rows == 1)
                        copy(0, size, by_default);
                    else
                        CHECK(cudaMemcpy2DAsync(target[1], 2 * width, source[0], 2 * width, width, rows, cudaMemcpyDefault,
                                                by_default ? 0 : stream[0]));
                }
                finish();
                if (sample >= 0)
                    rates[sample] = (double)size * in_a_row / (host_time() - begun) * 1e-3;
            }
            CHECK(cudaSetDevice(1));
            REQUIRE(has_rows(width, rows));
            printf("%zu\t%zu\t%d\t%.7f\n", width, rows, by_default, median(rates, samples));
        }
    }
}

/* Copies of the program between the host and a GPU do not stand still. */
static void show_beside(void)
{
    enum { COPIES = 4, BYTES = 256 * MIB };
    double samples[3][SAMPLES];
    char *host, *there;
    CHECK(cudaSetDevice(1));
    CHECK(cudaMallocHost((void **)&host, BYTES));
    memset(host, 1, BYTES);
    CHECK(cudaMalloc((void **)&there, BYTES));
    cudaStream_t upload = non_blocking_stream();
    for (int sample = -2; sample < SAMPLES; sample++) { /* at first rings are made */
        double done[2] = {0}, since;
        CHECK(cudaDeviceSynchronize());
        since = host_time();
        for (int i = 0; i < COPIES; i++)
            CHECK(cudaMemcpyAsync(there, host, BYTES, cudaMemcpyHostToDevice, upload));
        for (int i = 0; i < COPIES; i++)
            copy(0, BYTES, 0);
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

/* From GPU 0 alone, or from GPU 2 as well. */
static double rate_of_pairs(int last)
{
    enum { COPIES = 4 };
    double samples[SAMPLES];
    const size_t size = 1024 * MIB;
    for (int sample = -2; sample < SAMPLES; sample++) { /* at first rings are made */
        finish();
        double begun = host_time();
        for (int i = 0; i < COPIES; i++)
            for (int from = 0; from <= last; from += 2)
                copy(from, size, 0);
        finish();
        if (sample >= 0)
            samples[sample] = (double)size * COPIES * (last / 2 + 1) / (host_time() - begun) * 1e-3;
    }
    return median(samples, SAMPLES);
}

static void show_pairs(void)
{
    const double alone = rate_of_pairs(0), both = rate_of_pairs(2);
    for (int to = 1; to < 4; to += 2) {
        CHECK(cudaSetDevice(to));
        REQUIRE(holds(target[to], 1024 * MIB, (unsigned)to));
    }
    printf("%.2f\t%.2f\n", both, alone);
}

/* Page-locked memory of 8 MiB for each of the four streams of bytes, which stays in the processor's cache. */
static void show_ceiling(void)
{
    enum { COPIES = 128, BYTES = 8 * MIB };
    double samples[SAMPLES];
    char *host[2][2];
    cudaStream_t streams[2][2];
    for (int device = 0; device < 2; device++) {
        CHECK(cudaSetDevice(device));
        for (int is_out = 0; is_out < 2; is_out++) {
            CHECK(cudaMallocHost((void **)&host[device][is_out], BYTES));
            memset(host[device][is_out], 1, BYTES);
            CHECK(cudaStreamCreateWithFlags(&streams[device][is_out], cudaStreamNonBlocking));
        }
    }
    for (int sample = -1; sample < SAMPLES; sample++) {
        finish();
        double begun = host_time();
        for (size_t i = 0; i < COPIES; i++)
            for (int device = 0; device < 2; device++) {
                CHECK(cudaMemcpyAsync(host[device][1], source[device] + i * BYTES, BYTES, cudaMemcpyDeviceToHost, streams[device][1]));
                CHECK(cudaMemcpyAsync(target[device] + i * BYTES, host[device][0], BYTES, cudaMemcpyHostToDevice, streams[device][0]));
            }
        finish();
        if (sample >= 0)
            samples[sample] = 2.0 * COPIES * BYTES / (host_time() - begun) * 1e-3;
    }
    printf("%.2f\n", median(samples, SAMPLES));
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "sizes";
    const size_t largest = strcmp(what, "forms") == 0 ? LARGEST : 1024 * MIB;

    if (strcmp(what, "pairs") == 0)
        devices = 4;
    for (int device = 0; device < devices; device++) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaStreamCreateWithFlags(&stream[device], cudaStreamNonBlocking));
        CHECK(cudaMalloc((void **)&source[device], largest));
        CHECK(cudaMalloc((void **)&target[device], largest));
        fill_device(source[device], largest, 1 + (unsigned)device);
    }
    if (strcmp(what, "sizes") == 0)
        show_sizes();
    else if (strcmp(what, "forms") == 0)
        show_forms();
    else if (strcmp(what, "beside") == 0)
        show_beside();
    else if (strcmp(what, "pairs") == 0)
        show_pairs();
    else if (strcmp(what, "ceiling") == 0)
        show_ceiling();
    else
        return 2;
    return 0;
}
