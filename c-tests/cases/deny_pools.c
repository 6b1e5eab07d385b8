/* build: driver; run: P2PSIM_DEVICES=3 P2PSIM_NO_P2P=1-2 deny_pools on sim
 * A pool of device 0 is granted to 2 and then to 1, by a program that never copied from it; and addresses set aside, of
 * which the first part is memory of device 0 and the second of device 2, are granted to 1 at once. With
 * P2PSHIM_DENY=1-2 in place of P2PSIM_NO_P2P it should look the same.
 */
#include <cuda.h>

#include "check.h"

int main(void)
{
    CUcontext context;
    CUmemoryPool pool;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemAccessDesc desc = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 2},
                            .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK_CU(cuInit(0));
    CHECK_CU(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK_CU(cuCtxSetCurrent(context));
    CHECK_CU(cuMemPoolCreate(&pool, &props));
    SHOW_CU(cuMemPoolSetAccess(pool, &desc, 1));
    desc.location.id = 1;
    SHOW_CU(cuMemPoolSetAccess(pool, &desc, 1));

    enum { GRANULE = 2 << 20 };
    CUdeviceptr at;
    CHECK_CU(cuMemAddressReserve(&at, 2 * GRANULE, 0, 0, 0));
    for (int part = 0; part < 2; part++) {
        CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                          .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = part * 2}};
        CUmemGenericAllocationHandle physical;
        CHECK_CU(cuMemCreate(&physical, GRANULE, &properties, 0));
        CHECK_CU(cuMemMap(at + (CUdeviceptr)part * GRANULE, GRANULE, 0, physical, 0));
    }
    SHOW_CU(cuMemSetAccess(at + GRANULE, GRANULE, &desc, 1));
    SHOW_CU(cuMemSetAccess(at, 2 * GRANULE, &desc, 1));
    for (int part = 0; part < 2; part++) {
        unsigned long long flags = 9;
        CHECK_CU(cuMemGetAccess(&flags, &desc.location, at + (CUdeviceptr)part * GRANULE));
        printf("part %d: %llu\n", part, flags);
    }
    return 0;
}
