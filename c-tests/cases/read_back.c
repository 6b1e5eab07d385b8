/* build: runtime old; run: read_back enable|leave async|held|sync|2d|3d|batch BYTES COUNT on sim gpu
 * Copies that p2pshim reads back while the program uses both buffers again at once, in the same stream.
 *
 *   enable   the program enables peer access itself, from the destination to the source
 *   async    on a non-blocking stream of the source; else synchronous copies
 *   held     the same, behind work that waits until the copy's call has returned
 *   2d, 3d   on that stream, 1000 of every 1024 bytes as rows, of one slice or of two
 *   batch    the same bytes as four copies of a batch
 *
 * Prints whether the data of all copies was right, and frees its memory.
 */
#include <cuda_runtime_api.h>

#include "check.h"
#include "lib/runtime_batches.h"

enum {
    PITCH = 1024,
    WIDTH = 1000,
    PARTS = 4,
};

static const char *how;

static int is(const char *word)
{
    return strcmp(how, word) == 0;
}

static int has_rows(void)
{
    return is("2d") || is("3d");
}

/* The first, the last, and one between; of rows in each, and not what lies between rows. */
static int is_right(const unsigned char *bytes, size_t size, unsigned char expected)
{
    if (!has_rows())
        return bytes[0] == expected && bytes[size / 2] == expected && bytes[size - 1] == expected;
    for (size_t row = 0; row < size / PITCH; row++) {
        const unsigned char *at = bytes + row * PITCH;
        if (at[0] != expected || at[WIDTH / 2] != expected || at[WIDTH - 1] != expected || at[WIDTH] != 0xdd)
            return 0;
    }
    return 1;
}

static cudaError_t copy_rows(unsigned char *dst, unsigned char *src, size_t bytes, cudaStream_t stream)
{
    size_t rows = bytes / PITCH;
    if (is("2d"))
        return cudaMemcpy2DAsync(dst, PITCH, src, PITCH, WIDTH, rows, cudaMemcpyDefault, stream);
    struct cudaMemcpy3DPeerParms p = {
        .srcDevice = 0,
        .srcPtr = {.ptr = src, .pitch = PITCH, .xsize = WIDTH, .ysize = rows / 2},
        .dstDevice = 1,
        .dstPtr = {.ptr = dst, .pitch = PITCH, .xsize = WIDTH, .ysize = rows / 2},
        .extent = {.width = WIDTH, .height = rows / 2, .depth = 2},
    };
    return cudaMemcpy3DPeerAsync(&p, stream);
}

static cudaError_t copy(unsigned char *dst, unsigned char *src, size_t bytes, cudaStream_t stream)
{
    if (has_rows())
        return copy_rows(dst, src, bytes, stream);
    if (is("batch"))
        return copy_in_parts((char *)dst, (char *)src, bytes, PARTS, stream);
    return cudaMemcpyPeerAsync(dst, 1, src, 0, bytes, stream);
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
    how = argv[2];
    int is_held = is("held"), count = atoi(argv[4]), wrong = 0;
    size_t bytes = strtoull(argv[3], NULL, 10);
    unsigned char *src, *dst, *seen, *other;
    dst = device_memory(1, bytes);
    if (strcmp(argv[1], "enable") == 0)
        CHECK(cudaDeviceEnablePeerAccess(0, 0));
    CHECK(cudaSetDevice(0));
    if (strcmp(argv[1], "enable") == 0)
        CHECK(cudaDeviceEnablePeerAccess(1, 0));
    CHECK(cudaMalloc((void **)&src, bytes));
    cudaStream_t stream = non_blocking_stream();
    CHECK(cudaMallocHost((void **)&seen, bytes));
    CHECK(cudaMallocHost((void **)&other, bytes));
    memset(other, 0xdd, bytes);
    if (has_rows())
        CHECK(cudaMemcpy(dst, other, bytes, cudaMemcpyHostToDevice));
    for (int i = 0; i < count; i++) {
        CHECK(cudaMemsetAsync(src, i + 1, bytes, stream));
        if (is_held)
            CHECK(cudaLaunchHostFunc(stream, hold_up, NULL));
        if (!is("sync")) {
            CHECK(copy(dst, src, bytes, stream));
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
