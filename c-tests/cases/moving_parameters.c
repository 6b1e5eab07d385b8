/* build: driver; run: moving_parameters on sim
 * The parameters of 3D copies in all kinds of places: copy after copy in one, each time in another, across a page's end,
 * in memory that is gone for the next copy, at an odd address; and pointers into nothing, in calls that are refused before
 * anybody follows them.
 */
#include <cuda.h>

#include "check.h"

enum { COUNT = 6000, PAGE = 4096, ROUNDS = 40 };

static CUDA_MEMCPY3D_PEER box;
static CUdeviceptr a, b;
static unsigned rounds;

static void copy(void *place)
{
    unsigned char host[COUNT];
    fill(host, COUNT, ++rounds);
    CHECK_CU(cuMemcpyHtoD(a, host, COUNT));
    unsigned expected = checksum(host, COUNT);
    memcpy(place, &box, sizeof box);
    CHECK_CU(cuMemcpy3DPeer(place));
    CHECK_CU(cuMemcpyDtoH(host, b, COUNT));
    REQUIRE(checksum(host, COUNT) == expected);
}

static void *map(size_t bytes)
{
    void *place = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(place != MAP_FAILED);
    return place;
}

int main(void)
{
    CUcontext context0, context1;
    char *mapped = map(2 * PAGE);

    SHOW_CU(cuMemcpy3DPeer((const CUDA_MEMCPY3D_PEER *)8));
    SHOW_CU(cuMemcpy3DPeer((const CUDA_MEMCPY3D_PEER *)-8));
    /* The end of it is missing. */
    REQUIRE(munmap(mapped + PAGE, PAGE) == 0);
    SHOW_CU(cuMemcpy3DPeer((const CUDA_MEMCPY3D_PEER *)(mapped + PAGE - 16)));

    CHECK_CU(cuInit(0));
    b = context_memory(&context1, 1, COUNT);
    a = context_memory(&context0, 0, COUNT);
    box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    box.srcDevice = a;
    box.srcContext = context0;
    box.dstDevice = b;
    box.dstContext = context1;
    box.srcPitch = box.dstPitch = 60;
    box.srcHeight = box.dstHeight = 10;
    box.WidthInBytes = 60;
    box.Height = 10;
    box.Depth = 10;

    CUDA_MEMCPY3D_PEER local;
    for (int round = 0; round < ROUNDS; round++)
        copy(&local);
    for (int round = 0; round < ROUNDS; round++) {
        char *place = map(2 * PAGE);
        copy(place + PAGE - 64);
        copy(place + PAGE - 64);
        REQUIRE(munmap(place, 2 * PAGE) == 0);
        copy(mapped + 8 * round);
        copy(&local);
        place = malloc(sizeof box + 3);
        REQUIRE(place);
        copy(place + 3);
        free(place);
    }
    printf("%u copies\n", rounds);
    return 0;
}
