/* build: runtime old nvidia12 nvidia13; run: guide_sample on sim gpu
 * The peer-to-peer sample of the CUDA guide, in spirit: memory on two GPUs, peer access in both directions, and each of
 * the four peer copies of the runtime API, with every byte checked. Nothing in it knows of p2pshim.
 *
 * Exits with 0 only if every copy brought the right bytes.
 */
#include <cuda_runtime_api.h>

#include "check.h"

enum { WIDTH = 512, HEIGHT = 64, DEPTH = 32, COUNT = WIDTH * HEIGHT * DEPTH };

static void *on_gpu0, *on_gpu1;
static cudaStream_t stream;
static unsigned char sent[COUNT], received[COUNT];

static struct cudaPitchedPtr pitched(void *pointer)
{
    struct cudaPitchedPtr p = {.ptr = pointer, .pitch = WIDTH, .xsize = WIDTH, .ysize = HEIGHT};
    return p;
}

static struct cudaMemcpy3DPeerParms box(void)
{
    struct cudaMemcpy3DPeerParms p = {0};
    p.srcDevice = 0;
    p.srcPtr = pitched(on_gpu0);
    p.dstDevice = 1;
    p.dstPtr = pitched(on_gpu1);
    p.extent.width = WIDTH;
    p.extent.height = HEIGHT;
    p.extent.depth = DEPTH;
    return p;
}

static cudaError_t copy(void)
{
    return cudaMemcpyPeer(on_gpu1, 1, on_gpu0, 0, COUNT);
}

static cudaError_t copy_async(void)
{
    return cudaMemcpyPeerAsync(on_gpu1, 1, on_gpu0, 0, COUNT, stream);
}

static cudaError_t copy_3d(void)
{
    struct cudaMemcpy3DPeerParms p = box();
    return cudaMemcpy3DPeer(&p);
}

static cudaError_t copy_3d_async(void)
{
    struct cudaMemcpy3DPeerParms p = box();
    return cudaMemcpy3DPeerAsync(&p, stream);
}

static void prepare(unsigned seed)
{
    fill(sent, COUNT, seed);
    memset(received, 0, COUNT);
    CHECK(cudaMemcpy(on_gpu0, sent, COUNT, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(on_gpu1, received, COUNT, cudaMemcpyHostToDevice));
    CHECK(cudaDeviceSynchronize());
}

static int arrived(void)
{
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(received, on_gpu1, COUNT, cudaMemcpyDeviceToHost));
    return memcmp(received, sent, COUNT) == 0;
}

static void enable(int from, int to)
{
    int can = 0;
    CHECK(cudaDeviceCanAccessPeer(&can, from, to));
    CHECK(cudaSetDevice(from));
    if (can)
        CHECK(cudaDeviceEnablePeerAccess(to, 0));
    printf("GPU %d can access GPU %d: %s\n", from, to, can ? "yes, enabled" : "no, copies go through the host");
}

int main(void)
{
    static const struct {
        const char *name;
        cudaError_t (*copy)(void);
    } copies[] = {
        {"cudaMemcpyPeer", copy},
        {"cudaMemcpyPeerAsync", copy_async},
        {"cudaMemcpy3DPeer", copy_3d},
        {"cudaMemcpy3DPeerAsync", copy_3d_async},
    };
    int devices = 0;
    CHECK(cudaGetDeviceCount(&devices));
    if (devices < 2) {
        fprintf(stderr, "guide_sample: needs two GPUs, found %d\n", devices);
        return 1;
    }
    on_gpu1 = device_memory(1, COUNT);
    on_gpu0 = device_memory(0, COUNT);
    enable(1, 0);
    enable(0, 1);
    CHECK(cudaStreamCreate(&stream));

    int wrong = 0;
    printf("\n%-22s  %-7s  %-11s  %s\n", "copy GPU 0 to GPU 1", "MiB", "returned", "bytes");
    for (unsigned i = 0; i < sizeof copies / sizeof *copies; i++) {
        prepare(i + 1);
        cudaError_t error = copies[i].copy();
        int right = error == cudaSuccess && arrived();
        wrong += !right;
        printf("%-22s  %-7d  %-11s  %s\n", copies[i].name, COUNT >> 20, cudaGetErrorName(error), right ? "right" : "WRONG");
    }
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(on_gpu0));
    CHECK(cudaFree(on_gpu1));
    return wrong ? 1 : 0;
}
