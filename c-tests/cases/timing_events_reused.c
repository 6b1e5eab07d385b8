/* build: driver; run: timing_events_reused on reusing-driver
 * A device is reset while another's stream is captured, so that p2pshim must leave its events of copies that it measured. The program's events
 * have their handles then. For lib/reusing_driver.c without ids of contexts, which does not survive the use of an event that is gone.
 */
#include <cuda.h>

#include "check.h"

enum { COPIES = 8, EVENTS = 4 * COPIES };

int main(void)
{
    const CUdeviceptr memory[] = {(CUdeviceptr)1 << 40, ((CUdeviceptr)1 << 40) + ((CUdeviceptr)1 << 32)};
    CUcontext contexts[2];
    CUstream streams[2];
    CUgraph graph;
    CUevent events[EVENTS];
    int refused = 0;
    CHECK_CU(cuInit(0));
    for (int device = 1; device >= 0; device--) {
        contexts[device] = primary_context(device);
        CHECK_CU(cuStreamCreate(&streams[device], CU_STREAM_NON_BLOCKING));
    }
    for (int i = 0; i < COPIES; i++)
        refused += cuMemcpyPeerAsync(memory[1], contexts[1], memory[0], contexts[0], 64, streams[0]) != CUDA_SUCCESS;
    CHECK_CU(cuStreamBeginCapture(streams[1], CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK_CU(cuDevicePrimaryCtxReset(0));
    CHECK_CU(cuStreamEndCapture(streams[1], &graph));
    for (int i = 0; i < EVENTS; i++)
        CHECK_CU(cuEventCreate(&events[i], CU_EVENT_DEFAULT));
    /* Whoever ends a context gives back events that were left. */
    CHECK_CU(cuDevicePrimaryCtxRelease(1));
    for (int i = 0; i < EVENTS; i++)
        CHECK_CU(cuEventRecord(events[i], streams[1]));
    printf("%d copies refused\n", refused);
    return 0;
}
