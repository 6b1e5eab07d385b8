/*
 * What a peer copy costs the host that only asks for it, and how fast the GPU then is, from GPU 0 to GPU 1.
 *
 *   enqueue small    copies of 4 bytes, peer access enabled, a few hundred in a row before they are waited for: prints 0, 1,
 *                    and the nanoseconds of a call: the median of the rows, and their mean, with tabs
 *   enqueue large    copies of 256 MiB, one after the other: prints 0, 1, and GB/s by events around all of them
 */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>

#include "check.h"
#include "measure.h"

enum { ROWS = 1000, IN_A_ROW = 200, LARGE_COPIES = 40 };

int main(int argc, char **argv)
{
    static double rows[ROWS];
    void *to, *from;
    cudaStream_t stream;
    cudaEvent_t begun, ended;
    int large = argc == 2 && strcmp(argv[1], "large") == 0;
    REQUIRE(large || (argc == 2 && strcmp(argv[1], "small") == 0));
    size_t size = large ? 256 * MIB : 4;

    CHECK(cudaSetDevice(1));
    CHECK(cudaMalloc(&to, size));
    CHECK(cudaDeviceEnablePeerAccess(0, 0));
    CHECK(cudaSetDevice(0));
    CHECK(cudaMalloc(&from, size));
    CHECK(cudaDeviceEnablePeerAccess(1, 0));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&begun));
    CHECK(cudaEventCreate(&ended));
    if (large) {
        float milliseconds;
        for (int i = 0; i < 4; i++)
            CHECK(cudaMemcpyPeerAsync(to, 1, from, 0, size, stream));
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaEventRecord(begun, stream));
        for (int i = 0; i < LARGE_COPIES; i++)
            CHECK(cudaMemcpyPeerAsync(to, 1, from, 0, size, stream));
        CHECK(cudaEventRecord(ended, stream));
        CHECK(cudaEventSynchronize(ended));
        CHECK(cudaEventElapsedTime(&milliseconds, begun, ended));
        /* Once more, for who looks at what has ended only when there is something new. */
        for (int i = 0; i < LARGE_COPIES; i++) {
            CHECK(cudaMemcpyPeerAsync(to, 1, from, 0, size, stream));
            CHECK(cudaStreamSynchronize(stream));
        }
        printf("0\t1\t%.3f\n", (double)size * LARGE_COPIES / milliseconds * 1e-6);
        return 0;
    }
    double mean = 0;
    for (int row = -20; row < ROWS; row++) {
        double start = host_time();
        for (int i = 0; i < IN_A_ROW; i++)
            CHECK(cudaMemcpyPeerAsync(to, 1, from, 0, size, stream));
        double each = (host_time() - start) * 1e3 / IN_A_ROW;
        CHECK(cudaStreamSynchronize(stream));
        if (row >= 0) {
            rows[row] = each;
            mean += each / ROWS;
        }
    }
    printf("0\t1\t%.1f\t%.1f\n", median(rows, ROWS), mean);
    return 0;
}
