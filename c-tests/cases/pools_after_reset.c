/* build: driver; run: P2PSIM_DEVICES=3 pools_after_reset on sim
 * Copies memory of pools from one device to each other one, enough for peer access to be worth granting, and resets
 * the first device in between; then the same on created contexts that are destroyed. What was made for one life of a
 * context must not be used in the next. Checks every byte.
 */
#include <cuda.h>

#include "check.h"

enum { SIZE = 4096, COPIES = 20, ROUNDS = 3 };

static unsigned char sent[SIZE], received[SIZE];

/* In the current context, which is one of the source's device; the destination's is pushed where it is needed. */
static int is_right(CUcontext there, unsigned seed)
{
    CUdeviceptr src, dst;
    CUcontext popped;
    fill(sent, SIZE, seed);
    CHECK_CU(cuMemAllocAsync(&src, SIZE, NULL));
    CHECK_CU(cuMemcpyHtoD(src, sent, SIZE));
    CHECK_CU(cuCtxPushCurrent(there));
    CHECK_CU(cuMemAllocAsync(&dst, SIZE, NULL));
    CHECK_CU(cuStreamSynchronize(NULL));
    CHECK_CU(cuCtxPopCurrent(&popped));
    for (int i = 0; i < COPIES; i++)
        CHECK_CU(cuMemcpyPeerAsync(dst, there, src, NULL, SIZE, NULL));
    CHECK_CU(cuStreamSynchronize(NULL));
    CHECK_CU(cuCtxPushCurrent(there));
    CHECK_CU(cuMemcpyDtoH(received, dst, SIZE));
    CHECK_CU(cuCtxPopCurrent(&popped));
    CHECK_CU(cuMemFreeAsync(src, NULL));
    CHECK_CU(cuMemFreeAsync(dst, NULL));
    return memcmp(sent, received, SIZE) == 0;
}

int main(void)
{
    CUcontext primary[3], created, popped;
    CHECK_CU(cuInit(0));
    for (int round = 0; round < ROUNDS; round++) {
        for (int device = 0; device < 3; device++)
            CHECK_CU(cuDevicePrimaryCtxRetain(&primary[device], device));
        for (int device = 1; device < 3; device++) {
            primary[0] = primary_context(0);
            printf("0>%d: %s\n", device, is_right(primary[device], (unsigned)(round * 8 + device)) ? "right" : "WRONG");
            CHECK_CU(cuDevicePrimaryCtxReset(0));
        }
        for (int device = 0; device < 2; device++) {
            CHECK_CU(cuDevicePrimaryCtxRetain(&primary[device], device));
            CHECK_CU(cuCtxCreate_v2(&created, 0, 2));
            int right = is_right(primary[device], (unsigned)(round * 8 + device + 4));
            printf("2>%d, created: %s\n", device, right ? "right" : "WRONG");
            CHECK_CU(cuCtxPopCurrent(&popped));
            CHECK_CU(cuCtxDestroy(created));
            SHOW_CU(cuDevicePrimaryCtxReset(device));
        }
    }
    return 0;
}
