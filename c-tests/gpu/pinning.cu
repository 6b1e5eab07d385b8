/* build: nvcc driver; run: pinning [LIMIT] on gpu
 * What the calls cost that make a ring for staging, with the GPU idle and while a kernel fills it that waits for the host: none may
 * wait for the device.
 *
 * A line a call, with tabs: its name, milliseconds idle, milliseconds beside the kernel. Exits with 1 if one took LIMIT milliseconds
 * or more beside the kernel, or the kernel had ended.
 */
#include <cuda.h>
#include <cuda_runtime.h>
#include <sys/mman.h>

#include "check.h"
#include "measure.h"

enum { THREADS = 1024, CALLS = 6 };

static const size_t ring = 16 * MIB;
static const char *const names[CALLS] = {"memory of the host, touched", "cuMemHostRegister", "cuStreamCreate", "cuEventCreate",
                                         "copy both ways, submitted", "copy both ways, done"};

__global__ void spin(volatile int *stop, volatile int *running)
{
    if (threadIdx.x == 0) {
        *running = 1;
        __threadfence_system();
        while (!*stop)
            __nanosleep(2000);
    }
    __syncthreads();
}

static void measure(CUdeviceptr memory, double *took)
{
    CUstream stream;
    CUevent event;
    double begun = host_time(), now;
    int call = 0;
    char *host = (char *)aligned_alloc(2 * MIB, ring);
    madvise(host, ring, MADV_HUGEPAGE);
    memset(host, 1, ring);
#define TOOK() (now = host_time(), took[call++] = (now - begun) * 1e-3, begun = host_time())
    TOOK();
    CHECK_CU(cuMemHostRegister(host, ring, CU_MEMHOSTREGISTER_PORTABLE));
    TOOK();
    CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    TOOK();
    CHECK_CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    TOOK();
    CHECK_CU(cuMemcpyAsync((CUdeviceptr)host, memory, ring, stream));
    CHECK_CU(cuMemcpyAsync(memory, (CUdeviceptr)host, ring, stream));
    CHECK_CU(cuEventRecord(event, stream));
    TOOK();
    while (cuEventQuery(event) == CUDA_ERROR_NOT_READY && host_time() - begun < 1e6)
        ;
    TOOK();
}

int main(int argc, char **argv)
{
    const double limit = argc > 1 ? atof(argv[1]) : 0;
    double idle[CALLS], busy[CALLS];
    int processors, blocks_each, is_dear = 0;
    volatile int *flags;
    void *memory;

    CHECK(cudaHostAlloc((void **)&flags, 2 * sizeof *flags, cudaHostAllocPortable | cudaHostAllocMapped));
    CHECK(cudaMalloc(&memory, ring));
    cudaStream_t spinning = non_blocking_stream();
    CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_each, spin, THREADS, 0));
    flags[0] = 1;
    spin<<<1, THREADS, 0, spinning>>>(&flags[0], &flags[1]);
    CHECK(cudaDeviceSynchronize());
    measure((CUdeviceptr)memory, idle);
    flags[0] = flags[1] = 0;
    spin<<<processors * blocks_each, THREADS, 0, spinning>>>(&flags[0], &flags[1]);
    CHECK(cudaGetLastError());
    while (!flags[1])
        ;
    measure((CUdeviceptr)memory, busy);
    const int is_spinning = cudaStreamQuery(spinning) == cudaErrorNotReady;
    flags[0] = 1;
    CHECK(cudaDeviceSynchronize());
    for (int call = 0; call < CALLS; call++) {
        printf("%s\t%.3f\t%.3f\n", names[call], idle[call], busy[call]);
        is_dear |= limit > 0 && busy[call] >= limit;
    }
    return is_dear || !is_spinning;
}
