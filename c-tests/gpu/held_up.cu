/* build: nvcc; run: held_up never|enables on gpu
 * Whether a copy waits, in its call, for a kernel before it: a program whose kernel never ends would hang there.
 *
 * Peer access is enabled both ways, or never. Prints a line for each place of the kernel and size of the copy: which, bytes, and milliseconds until the call returned.
 */
#include <cuda_runtime.h>

#include "check.h"
#include "measure.h"

static const unsigned long long spin_nanoseconds = 150000000ull;
static const size_t sizes[] = {4, MIB, 64 * MIB, 1024 * MIB};

__global__ void spin(unsigned long long nanoseconds)
{
    unsigned long long begun, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begun));
    do {
        __nanosleep(2000);
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - begun < nanoseconds);
}

static cudaStream_t non_blocking[2], blocking;
static char *source, *target;

static void synchronize(void)
{
    for (int device = 1; device >= 0; device--) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaDeviceSynchronize());
    }
}

/* Has `busy` of a device run a kernel while there is a copy on `stream`, or a synchronous one if `is_synchronous`. */
static void measure(const char *name, int device, cudaStream_t busy, bool is_synchronous, cudaStream_t stream)
{
    for (size_t size : sizes) {
        CHECK(cudaSetDevice(device));
        spin<<<1, 1, 0, busy>>>(spin_nanoseconds);
        CHECK(cudaGetLastError());
        CHECK(cudaSetDevice(0));
        double begun = host_time();
        if (is_synchronous)
            CHECK(cudaMemcpyPeer(target, 1, source, 0, size));
        else
            CHECK(cudaMemcpyPeerAsync(target, 1, source, 0, size, stream));
        printf("%s\t%zu\t%.3f\n", name, size, (host_time() - begun) * 1e-3);
        synchronize();
    }
}

int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "";
    const bool enables = strcmp(kind, "enables") == 0;
    const size_t most = sizes[sizeof sizes / sizeof *sizes - 1];
    if (!enables && strcmp(kind, "never") != 0) {
        fprintf(stderr, "usage: held_up never|enables\n");
        return 2;
    }
    for (int device = 1; device >= 0; device--) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaMalloc((void **)(device == 0 ? &source : &target), most));
        CHECK(cudaStreamCreateWithFlags(&non_blocking[device], cudaStreamNonBlocking));
        /* So that nothing has to be loaded later. */
        spin<<<1, 1, 0, non_blocking[device]>>>(0);
        CHECK(cudaGetLastError());
        if (enables)
            CHECK(cudaDeviceEnablePeerAccess(!device, 0));
    }
    CHECK(cudaStreamCreate(&blocking));
    CHECK(cudaMemcpyPeer(target, 1, source, 0, most));
    synchronize();

    measure("async, kernel on its stream", 0, non_blocking[0], false, non_blocking[0]);
    measure("async, kernel on another", 0, non_blocking[0], false, blocking);
    measure("sync, kernel on NULL", 0, NULL, true, NULL);
    measure("sync, kernel on non-blocking", 0, non_blocking[0], true, NULL);
    measure("sync, kernel on NULL of GPU 1", 1, NULL, true, NULL);
    return 0;
}
