/* build: nvcc driver; run: spinning many|large|pool|mapped [LIMIT] on gpu
 * The first peer copies of a program, while kernels on both GPUs wait for the host: nothing that the copies bring about
 * may wait for a device.
 *
 *   many     20 copies of 256 KiB from GPU 0 to GPU 1, then as many back
 *   large    a copy of 4 MiB each way
 *   pool     like many, with memory of cudaMallocAsync on both sides
 *   mapped   like many, with memory of cuMemMap on both sides
 *
 * Prints what the dearest call cost, what became of kernels and copies, and how fast the same copies are when the kernels
 * have ended. Exits with 1 if a call took LIMIT milliseconds or more (if there is a LIMIT), if a kernel had ended when the
 * last call returned, or if bytes are wrong.
 */
#include <cuda.h>
#include <cuda_runtime.h>

#include "check.h"
#include "measure.h"

enum { MANY = 20, THREADS = 1024 };

static const unsigned long long longest_spin = 3000000000ull; /* nanoseconds: the kernels end by themselves after it */
static const double patience = 1e6;                           /* microseconds that copies have while the kernels spin */

/* Fills the GPU until `stop` or the time is over; says by `running` that it has begun. */
__global__ void spin(volatile int *stop, unsigned long long nanoseconds, volatile int *running)
{
    if (threadIdx.x == 0) {
        unsigned long long begun, now;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begun));
        if (blockIdx.x == 0) {
            *running = 1;
            __threadfence_system();
        }
        do {
            __nanosleep(2000);
            asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        } while (!*stop && now - begun < nanoseconds);
    }
    __syncthreads();
}

struct flags {
    volatile int stop, running[2];
};

static struct flags *flags; /* in host memory that both GPUs see */
static cudaStream_t spin_stream[2], stream[2];
static char *source[2], *target[2];

static void *mapped_memory(int device, size_t size)
{
    CUmemAllocationProp properties = {};
    CUmemAccessDesc access = {};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr memory;
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = access.location.id = device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK_CU(cuMemCreate(&handle, size, &properties, 0));
    CHECK_CU(cuMemAddressReserve(&memory, size, 0, 0, 0));
    CHECK_CU(cuMemMap(memory, size, 0, handle, 0));
    CHECK_CU(cuMemSetAccess(memory, size, &access, 1));
    return (void *)memory;
}

static char *memory_of(int device, size_t size, const char *kind)
{
    void *memory;
    if (strcmp(kind, "mapped") == 0)
        return (char *)mapped_memory(device, size);
    if (strcmp(kind, "pool") == 0)
        CHECK(cudaMallocAsync(&memory, size, stream[device]));
    else
        CHECK(cudaMalloc(&memory, size));
    return (char *)memory;
}

/* Launches one kernel that ends at once, so that nothing has to be loaded later. */
static int prepare(int device, size_t size, const char *kind)
{
    int processors, blocks_each;
    CHECK(cudaSetDevice(device));
    CHECK(cudaStreamCreateWithFlags(&spin_stream[device], cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&stream[device], cudaStreamNonBlocking));
    source[device] = memory_of(device, size, kind);
    target[device] = memory_of(device, size, kind);
    CHECK(cudaDeviceSynchronize());
    fill_device(source[device], size, 1 + (unsigned)device);
    CHECK(cudaMemset(target[device], 0, size));
    CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_each, spin, THREADS, 0));
    flags->stop = 1;
    spin<<<1, THREADS, 0, spin_stream[device]>>>(&flags->stop, longest_spin, &flags->running[device]);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    return processors * blocks_each;
}

static int spinning(void)
{
    return cudaStreamQuery(spin_stream[0]) == cudaErrorNotReady && cudaStreamQuery(spin_stream[1]) == cudaErrorNotReady;
}

static double gigabytes_per_second(size_t size)
{
    cudaEvent_t begun, ended;
    float milliseconds;
    CHECK(cudaSetDevice(0));
    CHECK(cudaEventCreate(&begun));
    CHECK(cudaEventCreate(&ended));
    CHECK(cudaEventRecord(begun, stream[0]));
    for (int i = 0; i < MANY; i++)
        CHECK(cudaMemcpyPeerAsync(target[1], 1, source[0], 0, size, stream[0]));
    CHECK(cudaEventRecord(ended, stream[0]));
    CHECK(cudaEventSynchronize(ended));
    CHECK(cudaEventElapsedTime(&milliseconds, begun, ended));
    return (double)size * MANY / milliseconds * 1e-6;
}

int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "";
    const int large = strcmp(kind, "large") == 0;
    const int copies = large ? 1 : MANY;
    const size_t size = large ? 4 * MIB : MIB / 4, all = large ? size : 5 * MIB;
    double dearest = 0, limit = argc > 2 ? atof(argv[2]) : 0;
    int blocks[2], dearest_call = 0, dearest_from = 0;

    if (!large && strcmp(kind, "many") != 0 && strcmp(kind, "pool") != 0 && strcmp(kind, "mapped") != 0) {
        fprintf(stderr, "usage: spinning many|large|pool|mapped [LIMIT]\n");
        return 2;
    }
    /* The granularity of mapped memory. */
    const size_t reserved = (all + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
    CHECK(cudaSetDevice(0));
    CHECK(cudaHostAlloc((void **)&flags, sizeof *flags, cudaHostAllocPortable | cudaHostAllocMapped));
    for (int device = 1; device >= 0; device--)
        blocks[device] = prepare(device, reserved, kind);

    flags->stop = flags->running[0] = flags->running[1] = 0;
    for (int device = 0; device < 2; device++) {
        CHECK(cudaSetDevice(device));
        spin<<<blocks[device], THREADS, 0, spin_stream[device]>>>(&flags->stop, longest_spin, &flags->running[device]);
        CHECK(cudaGetLastError());
    }
    while (!flags->running[0] || !flags->running[1])
        REQUIRE(spinning());

    double begun = host_time();
    for (int from = 0; from < 2; from++) {
        CHECK(cudaSetDevice(from));
        for (int i = 0; i < copies; i++) {
            double before = host_time();
            CHECK(cudaMemcpyPeerAsync(target[!from] + i * size, !from, source[from] + i * size, from, size, stream[from]));
            double taken = host_time() - before;
            if (taken > dearest) {
                dearest = taken;
                dearest_call = i + 1;
                dearest_from = from;
            }
        }
    }
    double took = host_time() - begun;
    int still = spinning(), complete = 0;
    while (still && !complete && host_time() - begun < patience)
        complete = cudaStreamQuery(stream[0]) == cudaSuccess && cudaStreamQuery(stream[1]) == cudaSuccess;
    complete = complete && spinning();
    flags->stop = 1;
    for (int device = 0; device < 2; device++) {
        CHECK(cudaStreamSynchronize(spin_stream[device]));
        CHECK(cudaStreamSynchronize(stream[device]));
    }

    int right = 1;
    for (int device = 0; device < 2; device++) {
        CHECK(cudaSetDevice(device));
        right &= holds(target[device], all, 1 + (unsigned)!device);
    }
    printf("dearest call %.2f ms (%d of %d from GPU %d), all calls %.2f ms; kernels when they had returned: %s; "
           "copies complete meanwhile: %s; bytes: %s; afterwards %.0f GB/s\n",
           dearest * 1e-3, dearest_call, copies, dearest_from, took * 1e-3, still ? "spinning" : "ENDED",
           complete ? "yes" : "no", right ? "right" : "WRONG", gigabytes_per_second(all));
    return !(still && right && (limit <= 0 || dearest * 1e-3 < limit));
}
