/* build: runtime old; run: four_copies_sizes on sim gpu
 * All four peer copies, both ways, in sizes 0, 1, 4, odd and 1 MiB; then 3D boxes cut out of pitched memory.
 * Shows that arguments of every shape reach the real function unchanged.
 */
#include <cuda_runtime_api.h>

#include "check.h"

enum { MIB = 1 << 20 };

static unsigned char *on_gpu[2];
static cudaStream_t stream;
static unsigned char host[MIB], expected[MIB];

static struct cudaMemcpy3DPeerParms row(int dst, int src, size_t count)
{
    struct cudaMemcpy3DPeerParms p = {0};
    p.srcDevice = src;
    p.srcPtr = (struct cudaPitchedPtr){on_gpu[src], MIB, MIB, 1};
    p.dstDevice = dst;
    p.dstPtr = (struct cudaPitchedPtr){on_gpu[dst], MIB, MIB, 1};
    p.extent = (struct cudaExtent){count, 1, 1};
    return p;
}

static void prepare(int dst, int src)
{
    memset(host, 0, MIB);
    CHECK(cudaMemcpy(on_gpu[dst], host, MIB, cudaMemcpyHostToDevice));
    fill(host, MIB, 1);
    CHECK(cudaMemcpy(on_gpu[src], host, MIB, cudaMemcpyHostToDevice));
    CHECK(cudaDeviceSynchronize());
}

static void print_destination(int dst)
{
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(host, on_gpu[dst], MIB, cudaMemcpyDeviceToHost));
    printf("    destination %08x, %s\n", checksum(host, MIB), memcmp(host, expected, MIB) == 0 ? "right" : "WRONG");
}

static void rows_of(size_t count, int dst, int src)
{
    struct cudaMemcpy3DPeerParms p = row(dst, src, count);
    fill(expected, MIB, 1);
    memset(expected + count, 0, MIB - count);
    printf("%zu bytes from GPU %d to GPU %d\n", count, src, dst);
    prepare(dst, src);
    SHOW(cudaMemcpyPeer(on_gpu[dst], dst, on_gpu[src], src, count));
    print_destination(dst);
    prepare(dst, src);
    SHOW(cudaMemcpyPeerAsync(on_gpu[dst], dst, on_gpu[src], src, count, stream));
    print_destination(dst);
    prepare(dst, src);
    SHOW(cudaMemcpy3DPeer(&p));
    print_destination(dst);
    prepare(dst, src);
    SHOW(cudaMemcpy3DPeerAsync(&p, stream));
    print_destination(dst);
}

/* A box of width x height x depth out of one pitched block into another with a different pitch and height. */
static void boxes(size_t width, size_t height, size_t depth)
{
    enum { SRC_PITCH = 256, SRC_ROWS = 16, DST_PITCH = 320, DST_ROWS = 12 };
    struct cudaMemcpy3DPeerParms p = {0};
    p.srcDevice = 0;
    p.srcPtr = (struct cudaPitchedPtr){on_gpu[0], SRC_PITCH, 200, SRC_ROWS};
    p.srcPos = (struct cudaPos){5, 2, 1};
    p.dstDevice = 1;
    p.dstPtr = (struct cudaPitchedPtr){on_gpu[1], DST_PITCH, 300, DST_ROWS};
    p.dstPos = (struct cudaPos){3, 1, 2};
    p.extent = (struct cudaExtent){width, height, depth};

    static unsigned char sent[MIB];
    fill(sent, MIB, 1);
    memset(expected, 0, MIB);
    for (size_t z = 0; z < depth; z++)
        for (size_t y = 0; y < height; y++)
            memcpy(expected + ((z + 2) * DST_ROWS + y + 1) * DST_PITCH + 3,
                   sent + ((z + 1) * SRC_ROWS + y + 2) * SRC_PITCH + 5, width);

    printf("a box of %zu x %zu x %zu bytes\n", width, height, depth);
    prepare(1, 0);
    SHOW(cudaMemcpy3DPeer(&p));
    print_destination(1);
    prepare(1, 0);
    SHOW(cudaMemcpy3DPeerAsync(&p, stream));
    print_destination(1);
}

int main(void)
{
    static const size_t counts[] = {0, 1, 4, 4097, MIB};
    for (int device = 1; device >= 0; device--)
        on_gpu[device] = device_memory(device, MIB);
    CHECK(cudaStreamCreate(&stream));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        rows_of(counts[i], 1, 0);
        rows_of(counts[i], 0, 1);
    }
    boxes(100, 7, 3);
    boxes(1, 1, 1);
    boxes(0, 7, 3);
    return 0;
}
