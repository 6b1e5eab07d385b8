/*
 * Copies that p2pshim reads back while the program uses both buffers again at once, in the same stream.
 *
 *   read_back enable|leave async|held|sync BYTES COUNT
 *       enable   the program enables peer access itself, from the destination to the source
 *       async    on a non-blocking stream of the source; else synchronous copies
 *       held     the same, behind work that waits until the copy's call has returned
 *
 * Prints whether the data of all copies was right, and frees its memory.
 */
#define _POSIX_C_SOURCE 200809L
#include <cuda_runtime_api.h>
#include <string.h>
#include <time.h>

#include "check.h"

/* The first, the last, and one between. */
static int is_right(const unsigned char *bytes, size_t size, unsigned char expected)
{
    return bytes[0] == expected && bytes[size / 2] == expected && bytes[size - 1] == expected;
}

static volatile int may_go_on;

static void hold_up(void *data)
{
    const struct timespec moment = {.tv_nsec = 100000};
    (void)data;
    while (!may_go_on)
        nanosleep(&moment, NULL);
    may_go_on = 0;
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 5);
    int is_held = strcmp(argv[2], "held") == 0, is_async = is_held || strcmp(argv[2], "async") == 0, count = atoi(argv[4]), wrong = 0;
    size_t bytes = strtoull(argv[3], NULL, 10);
    unsigned char *src, *dst, *seen, *other;
    cudaStream_t stream;
    CHECK(cudaSetDevice(1));
    CHECK(cudaMalloc((void **)&dst, bytes));
    if (strcmp(argv[1], "enable") == 0)
        CHECK(cudaDeviceEnablePeerAccess(0, 0));
    CHECK(cudaSetDevice(0));
    if (strcmp(argv[1], "enable") == 0)
        CHECK(cudaDeviceEnablePeerAccess(1, 0));
    CHECK(cudaMalloc((void **)&src, bytes));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMallocHost((void **)&seen, bytes));
    CHECK(cudaMallocHost((void **)&other, bytes));
    memset(other, 0xdd, bytes);
    for (int i = 0; i < count; i++) {
        CHECK(cudaMemsetAsync(src, i + 1, bytes, stream));
        if (is_held)
            CHECK(cudaLaunchHostFunc(stream, hold_up, NULL));
        if (is_async) {
            CHECK(cudaMemcpyPeerAsync(dst, 1, src, 0, bytes, stream));
            may_go_on = is_held;
        } else {
            CHECK(cudaStreamSynchronize(stream));
            CHECK(cudaMemcpyPeer(dst, 1, src, 0, bytes));
            /* It waits for no non-blocking stream, and none for it. */
            CHECK(cudaStreamSynchronize(cudaStreamLegacy));
        }
        /* Whoever looks at either later sees something else. */
        CHECK(cudaMemsetAsync(src, 0xee, bytes, stream));
        CHECK(cudaMemcpyAsync(seen, dst, bytes, cudaMemcpyDeviceToHost, stream));
        /* By a copy: without access a device cannot set the memory of another. */
        CHECK(cudaMemcpyAsync(dst, other, bytes, cudaMemcpyHostToDevice, stream));
        CHECK(cudaStreamSynchronize(stream));
        wrong += !is_right(seen, bytes, (unsigned char)(i + 1));
    }
    CHECK(cudaFree(src));
    CHECK(cudaFree(dst));
    printf("%d of %d copies wrong\n", wrong, count);
    return 0;
}
