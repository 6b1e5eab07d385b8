/* build: driver; run: P2PSIM_DEVICES=3 P2PSIM_NO_P2P=1-2 deny_pools on sim
 * A pool of device 0 is granted to 2 and then to 1, by a program that never copied from it; and addresses set aside, of
 * which the first part is memory of device 0 and the second of device 2, are granted to 1 at once. With
 * P2PSHIM_DENY=1-2 in place of P2PSIM_NO_P2P it should look the same.
 */
#include <cuda.h>

#include "check.h"
#include "lib/mappings.h"

int main(void)
{
    CUmemoryPool pool;
    CUmemAccessDesc desc = access_of(2, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK_CU(cuInit(0));
    primary_context(0);
    CHECK_CU(new_pool(&pool, 0));
    SHOW_CU(cuMemPoolSetAccess(pool, &desc, 1));
    desc.location.id = 1;
    SHOW_CU(cuMemPoolSetAccess(pool, &desc, 1));

    CUdeviceptr at;
    CHECK_CU(cuMemAddressReserve(&at, 2 * GRANULE, 0, 0, 0));
    for (int part = 0; part < 2; part++) {
        CUmemGenericAllocationHandle physical;
        CHECK_CU(new_physical(&physical, part * 2, GRANULE));
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
