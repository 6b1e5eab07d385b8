/* build: cudart13 driver; run: failing on sim
 * Calls that may fail, and a program that goes on: it enables access, copies from GPU 0 to GPU 1, waits, captures a copy on a stream that a second
 * one joins and does not leave, and waits again, many times. Prints the code of each.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "check.h"

enum { BYTES = 1 << 20, WAITS = 100 };

static void unjoined(cudaStream_t first, cudaStream_t second, void *to, void *from)
{
    cudaEvent_t event;
    cudaGraph_t graph = NULL;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaEventRecord(event, first));
    CHECK(cudaStreamWaitEvent(second, event, 0));
    CHECK(cudaMemcpyAsync(to, from, BYTES, cudaMemcpyDefault, second));
    printf("capture %d\n", cudaStreamEndCapture(first, &graph));
    CHECK(cudaEventDestroy(event));
}

int main(void)
{
    void *from, *to;
    cudaStream_t first, second;
    CHECK(cudaSetDevice(1));
    CHECK(cudaMalloc(&to, BYTES));
    CHECK(cudaSetDevice(0));
    CHECK(cudaMalloc(&from, BYTES));
    CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    printf("enable %d\n", cudaDeviceEnablePeerAccess(1, 0));
    printf("copy %d\n", cudaMemcpyPeerAsync(to, 1, from, 0, BYTES, first));
    printf("wait %d\n", cudaStreamSynchronize(first));
    unjoined(first, second, to, from);
    int failed = 0;
    for (int i = 0; i < WAITS; i++)
        failed += cudaDeviceSynchronize() != cudaSuccess;
    printf("failed %d\n", failed);
    return 0;
}
