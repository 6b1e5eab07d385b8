/* build: cudart13; run: P2PSIM_DELAYS=1 delayed_copies on sim
 * How long each of some copies takes on its stream, in microseconds: times of the simulation alone, which a delay for each is drawn for.
 */
#include <cuda_runtime_api.h>

#include "check.h"

enum { BYTES = 4096, COPIES = 8 };

int main(void)
{
    char *far = device_memory(1, BYTES), *near = device_memory(0, BYTES);
    cudaEvent_t events[COPIES + 1];
    CHECK(cudaDeviceEnablePeerAccess(1, 0));
    cudaStream_t stream = non_blocking_stream();
    for (int copy = 0; copy <= COPIES; copy++) {
        if (copy > 0)
            CHECK(cudaMemcpyPeerAsync(far, 1, near, 0, BYTES, stream));
        CHECK(cudaEventCreate(&events[copy]));
        CHECK(cudaEventRecord(events[copy], stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    for (int copy = 0; copy < COPIES; copy++) {
        float milliseconds;
        CHECK(cudaEventElapsedTime(&milliseconds, events[copy], events[copy + 1]));
        printf("%.0f\n", (double)milliseconds * 1000);
    }
    return 0;
}
