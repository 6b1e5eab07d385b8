/* build: driver; run: freed_early free|behind|unmap [TIMES] on sim gpu
 * Large copies between two devices without a path, whose source is taken away before anybody has waited for the copy, behind something that
 * takes long. Where the driver stages, its call does not wait for that, and data is wrong (H100).
 *
 *   free    the source is of a pool, is freed in another stream, and what is allocated there in its place is set
 *   behind  so is it, but behind that copy alone; another copy behind it waits for the host, which waits for the free
 *   unmap   the source is mapped, and is unmapped
 *
 * Prints how many copies have not arrived as they were.
 */
#include <cuda.h>

#include "check.h"
#include "lib/mappings.h"

enum { BYTES = 32 << 20, VALUE = 0x11, OTHER = 0x22 };

static CUcontext contexts[2];
static CUstream streams[2];
static CUdeviceptr others[2];
static atomic_bool is_freed;
static unsigned char found[BYTES];

static void CUDA_CB take_long(void *data)
{
    (void)data;
    sleep_for(50);
}

static void CUDA_CB wait_for_free(void *data)
{
    (void)data;
    while (!atomic_load(&is_freed))
        sleep_for(1);
}

/* Behind something that takes longer than all that follows. */
static void copy(CUdeviceptr dst, CUdeviceptr src)
{
    CHECK_CU(cuMemsetD8Async(src, VALUE, BYTES, streams[0]));
    CHECK_CU(cuLaunchHostFunc(streams[0], take_long, NULL));
    CHECK_CU(cuMemcpyPeerAsync(dst, contexts[1], src, contexts[0], BYTES, streams[0]));
}

static void copy_freed(CUdeviceptr dst, bool is_another_behind)
{
    CUdeviceptr src, other;
    CHECK_CU(cuMemAllocAsync(&src, BYTES, streams[0]));
    copy(dst, src);
    if (is_another_behind) {
        CUevent copied;
        atomic_store(&is_freed, false);
        CHECK_CU(cuEventCreate(&copied, CU_EVENT_DISABLE_TIMING));
        CHECK_CU(cuEventRecord(copied, streams[0]));
        CHECK_CU(cuStreamWaitEvent(streams[1], copied, 0));
        CHECK_CU(cuEventDestroy(copied));
        CHECK_CU(cuLaunchHostFunc(streams[0], wait_for_free, NULL));
        CHECK_CU(cuMemcpyPeerAsync(others[1], contexts[1], others[0], contexts[0], BYTES, streams[0]));
    }
    CHECK_CU(cuMemFreeAsync(src, streams[1]));
    CHECK_CU(cuStreamSynchronize(streams[1]));
    atomic_store(&is_freed, true);
    CHECK_CU(cuMemAllocAsync(&other, BYTES, streams[1]));
    CHECK_CU(cuMemsetD8Async(other, OTHER, BYTES, streams[1]));
    CHECK_CU(cuStreamSynchronize(streams[0]));
    CHECK_CU(cuMemFreeAsync(other, streams[1]));
    CHECK_CU(cuStreamSynchronize(streams[1]));
}

static void copy_unmapped(CUdeviceptr dst)
{
    CUmemGenericAllocationHandle physical;
    CHECK_CU(new_physical(&physical, 0, BYTES));
    CUdeviceptr src = map_physical(physical, BYTES);
    CHECK_CU(grant_mapping(src, BYTES, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    copy(dst, src);
    CHECK_CU(cuMemUnmap(src, BYTES));
    CHECK_CU(cuMemRelease(physical));
    CHECK_CU(cuMemAddressFree(src, BYTES));
    CHECK_CU(cuStreamSynchronize(streams[0]));
}

int main(int argc, char **argv)
{
    int times = argc > 2 ? atoi(argv[2]) : 10, wrong = 0;
    CUdeviceptr dst;
    REQUIRE(argc > 1);
    CHECK_CU(cuInit(0));
    for (int device = 1; device >= 0; device--) {
        others[device] = context_memory(&contexts[device], device, BYTES);
        if (device == 1)
            CHECK_CU(cuMemAlloc(&dst, BYTES));
    }
    for (int i = 0; i < 2; i++)
        CHECK_CU(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < times; i++) {
        if (strcmp(argv[1], "unmap") == 0)
            copy_unmapped(dst);
        else
            copy_freed(dst, strcmp(argv[1], "behind") == 0);
        CHECK_CU(cuMemcpyDtoH(found, dst, BYTES));
        wrong += others_than(found, BYTES, VALUE) > 0;
        memset(found, 0, BYTES);
    }
    printf("%d of %d copies wrong\n", wrong, times);
    return 0;
}
