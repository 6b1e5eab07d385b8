/* build: runtime old driver; run: ends_inside HOW [PROGRAM [ARGUMENT…]] on sim gpu
 * The process ends, or becomes PROGRAM, inside a copy from GPU 0 to GPU 1 that is staged: one of
 * the runtime (sync, async, box), of the driver (driver, driver-async, driver-box), or the 301st of its place (repeated_copies), which is not
 * large.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "check.h"
#include "lib/ends_inside.h"

enum { MEDIUM = 4 << 20 };

static CUcontext context[2];
static void *from, *to;
static cudaStream_t stream;

static void box(void)
{
    struct cudaMemcpy3DPeerParms p = {.srcPtr = {from, LARGE, LARGE, 1}, .dstPtr = {to, LARGE, LARGE, 1}, .dstDevice = 1,
                                      .extent = {LARGE, 1, 1}};
    CHECK(cudaMemcpy3DPeer(&p));
}

static void driver_box(void)
{
    CUDA_MEMCPY3D_PEER p = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                            .srcDevice = (CUdeviceptr)from, .dstDevice = (CUdeviceptr)to,
                            .srcContext = context[0], .dstContext = context[1],
                            .srcPitch = LARGE, .dstPitch = LARGE, .WidthInBytes = LARGE, .Height = 1, .Depth = 1};
    CHECK_CU(cuMemcpy3DPeer(&p));
}

static void async(size_t bytes)
{
    CHECK(cudaMemcpyPeerAsync(to, 1, from, 0, bytes, stream));
}

int main(int argc, char **argv)
{
    REQUIRE(argc >= 2);
    becomes = argc > 2 ? argv + 2 : NULL;
    to = device_memory(1, LARGE);
    CHECK_CU(cuCtxGetCurrent(&context[1]));
    from = device_memory(0, LARGE);
    CHECK_CU(cuCtxGetCurrent(&context[0]));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUdeviceptr src = (CUdeviceptr)from, dst = (CUdeviceptr)to;
    if (getenv("ENDS_BY_TICKS")) { /* the first call of all takes as long as some ticks before it is recorded */
        async(SMALL);
        CHECK(cudaStreamSynchronize(stream));
    }

    if (strcmp(argv[1], "sync") == 0)
        END_INSIDE(CHECK(cudaMemcpyPeer(to, 1, from, 0, LARGE)));
    else if (strcmp(argv[1], "async") == 0)
        END_INSIDE(async(LARGE));
    else if (strcmp(argv[1], "box") == 0)
        END_INSIDE(box());
    else if (strcmp(argv[1], "driver") == 0)
        END_INSIDE(CHECK_CU(cuMemcpyPeer(dst, context[1], src, context[0], LARGE)));
    else if (strcmp(argv[1], "driver-async") == 0)
        END_INSIDE(CHECK_CU(cuMemcpyPeerAsync(dst, context[1], src, context[0], LARGE, stream)));
    else if (strcmp(argv[1], "driver-box") == 0)
        END_INSIDE(driver_box());
    else if (strcmp(argv[1], "repeated_copies") == 0) {
        for (int i = 0; i < 300; i++)
            async(SMALL);
        CHECK(cudaStreamSynchronize(stream)); /* what they have put on it sleeps, too */
        END_INSIDE(async(MEDIUM));
    }
    REQUIRE(!"known");
}
