/*
 * Memory that is taken on a device in one of several ways, and given back, and copies of it. What is taken or given back is of the device whose
 * context is current. Include after check.h.
 */
#ifndef P2PSHIM_C_TESTS_KINDS_OF_MEMORY_H
#define P2PSHIM_C_TESTS_KINDS_OF_MEMORY_H

#include "copy_forms.h"
#include "devices.h"
#include "random.h"

enum kind { PLAIN, POOLED, OWN_POOL, MAPPED, OF_CONTEXT };

struct memory {
    enum kind kind;
    int device;
    size_t bytes, mapped;
    CUdeviceptr at;
    CUmemoryPool pool;
    CUmemGenericAllocationHandle physical;
    CUcontext context;
    int wanted;           /* a kind or a row of the program's own */
    unsigned char *known; /* what is in it, if the program keeps that */
};

static inline void make_context(CUcontext *context, int device)
{
#if CUDA_VERSION >= 13000
    CHECK_CU(cuCtxCreate(context, NULL, 0, device));
#else
    CHECK_CU(cuCtxCreate(context, 0, device));
#endif
    leave();
}

static inline void take_memory(struct memory *m, enum kind kind, int device, size_t bytes, CUstream stream)
{
    *m = (struct memory){.kind = kind, .device = device, .bytes = bytes, .known = m->known};
    m->mapped = (bytes + GRANULE - 1) / GRANULE * GRANULE;
    switch (kind) {
    case PLAIN:
        CHECK_CU(cuMemAlloc(&m->at, bytes));
        break;
    case POOLED:
        CHECK_CU(cuMemAllocAsync(&m->at, bytes, stream));
        CHECK_CU(cuStreamSynchronize(stream));
        break;
    case OWN_POOL:
        CHECK_CU(new_pool(&m->pool, device));
        CHECK_CU(cuMemAllocFromPoolAsync(&m->at, bytes, m->pool, stream));
        CHECK_CU(cuStreamSynchronize(stream));
        break;
    case MAPPED:
        CHECK_CU(cuMemAddressReserve(&m->at, m->mapped, 0, 0, 0));
        CHECK_CU(new_physical(&m->physical, device, m->mapped));
        CHECK_CU(cuMemMap(m->at, m->mapped, 0, m->physical, 0));
        CHECK_CU(grant_mapping(m->at, m->mapped, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
        break;
    default:
        make_context(&m->context, device);
        enter(m->context);
        CHECK_CU(cuMemAlloc(&m->at, bytes));
        leave();
    }
}

/* Gives a device rights to memory of a pool of its own, or mapped memory; other memory has none. */
static inline CUresult grant(const struct memory *m, int device)
{
    if (m->kind == OWN_POOL)
        return grant_pool(m->pool, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    return m->kind == MAPPED ? grant_mapping(m->at, m->mapped, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE) : CUDA_SUCCESS;
}

static inline void give_back_memory(struct memory *m, CUstream stream)
{
    switch (m->kind) {
    case PLAIN:
        CHECK_CU(cuMemFree(m->at));
        break;
    case POOLED:
    case OWN_POOL:
        CHECK_CU(cuMemFreeAsync(m->at, stream));
        CHECK_CU(cuStreamSynchronize(stream));
        if (m->pool)
            CHECK_CU(cuMemPoolDestroy(m->pool));
        break;
    case MAPPED:
        CHECK_CU(cuMemUnmap(m->at, m->mapped));
        CHECK_CU(cuMemRelease(m->physical));
        CHECK_CU(cuMemAddressFree(m->at, m->mapped));
        break;
    default:
        CHECK_CU(cuCtxDestroy(m->context));
    }
    m->at = 0;
}

/* A copy in some form, of as much as both have, or less. */
static inline struct transfer some_transfer(const struct memory *dst, const struct memory *src)
{
    struct transfer t = {.form = (enum form)draw(FORMS), .dst = dst->at, .src = src->at, .dst_device = dst->device, .src_device = src->device,
                         .dst_context = contexts[dst->device], .src_context = contexts[src->device], .rows = 1, .slices = 1};
    size_t bytes = src->bytes < dst->bytes ? src->bytes : dst->bytes;
    t.kind = draw(2) ? cudaMemcpyDefault : cudaMemcpyDeviceToDevice;
    t.dst_type = draw(2) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_UNIFIED;
    t.src_type = draw(2) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_UNIFIED;
    if (forms[t.form].shape == LINE) {
        t.width = t.pitch = draw(4) == 0 ? 1u + is_batch(t.form) + draw(64) : bytes - draw(256);
        return t;
    }
    t.pitch = 1024;
    t.width = 1 + draw(1024);
    t.rows = 1 + draw(10);
    t.slices = 1 + draw(8);
    return t;
}

#endif
