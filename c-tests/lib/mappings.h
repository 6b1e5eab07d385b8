/*
 * Memory with rights of its own: pools, and physical memory that is mapped. Include after cuda.h and check.h. The driver's and the runtime's
 * descriptors are the same bytes.
 */
#ifndef P2PSHIM_C_TESTS_MAPPINGS_H
#define P2PSHIM_C_TESTS_MAPPINGS_H

enum { GRANULE = 2 << 20 }; /* bytes of a mapping, or a multiple of it */

static inline CUmemAccessDesc access_of(int device, CUmemAccess_flags flags)
{
    return (CUmemAccessDesc){.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}, .flags = flags};
}

static inline CUresult new_pool(CUmemoryPool *pool, int device)
{
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    return cuMemPoolCreate(pool, &properties);
}

static inline CUresult new_physical(CUmemGenericAllocationHandle *physical, int device, size_t bytes)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    return cuMemCreate(physical, bytes, &properties, 0);
}

/* Which devices have rights to memory that has rights of its own. */
static inline CUresult grant_pool(CUmemoryPool pool, int device, CUmemAccess_flags flags)
{
    CUmemAccessDesc access = access_of(device, flags);
    return cuMemPoolSetAccess(pool, &access, 1);
}

static inline CUresult grant_mapping(CUdeviceptr at, size_t bytes, int device, CUmemAccess_flags flags)
{
    CUmemAccessDesc access = access_of(device, flags);
    return cuMemSetAccess(at, bytes, &access, 1);
}

/* At new addresses, which no device may reach yet. */
static inline CUdeviceptr map_physical(CUmemGenericAllocationHandle physical, size_t bytes)
{
    CUdeviceptr at;
    CHECK_CU(cuMemAddressReserve(&at, bytes, 0, 0, 0));
    CHECK_CU(cuMemMap(at, bytes, 0, physical, 0));
    return at;
}

/* For its own device, with these rights, if there are any. */
static inline CUdeviceptr mapped_memory(int device, size_t bytes, CUmemAccess_flags flags)
{
    CUmemGenericAllocationHandle physical;
    CHECK_CU(new_physical(&physical, device, bytes));
    CUdeviceptr at = map_physical(physical, bytes);
    CHECK_CU(cuMemRelease(physical));
    if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
        CHECK_CU(grant_mapping(at, bytes, device, flags));
    return at;
}

#endif
