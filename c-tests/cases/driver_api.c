/* build: driver; run: driver_api [no-null-pointers] on sim gpu
 * A program of the driver API: every peer function of libcuda.so.1 by linking, by dlsym, and by cuGetProcAddress v1 and
 * v2, asked for directly and through itself, with good and bad arguments.
 */
#include <cuda.h>

#include "check.h"

enum { COUNT = 6000, LEGACY_STREAM = 1, PER_THREAD_STREAM = 2 }; /* flags of cuGetProcAddress */

typedef CUresult copy_fn(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t);
typedef CUresult copy_async_fn(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream);
typedef CUresult copy_3d_fn(const CUDA_MEMCPY3D_PEER *);
typedef CUresult copy_3d_async_fn(const CUDA_MEMCPY3D_PEER *, CUstream);
/* CUDA 13.0: the headers of older releases lack it, and its enumeration. */
typedef CUresult atomics_fn(unsigned int *, const int *, unsigned int, CUdevice, CUdevice);
/* CUDA 13.2. */
typedef CUresult copy_attributes_fn(CUdeviceptr, CUdeviceptr, size_t, CUmemcpyAttributes *, CUstream);
typedef CUresult copy_3d_attributes_fn(CUDA_MEMCPY3D_BATCH_OP *, unsigned long long, CUstream);
typedef CUresult get_v1_fn(const char *, void **, int, cuuint64_t);
typedef CUresult get_v2_fn(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

/* The header renames cuGetProcAddress to cuGetProcAddress_v2. */
#undef cuGetProcAddress
get_v1_fn cuGetProcAddress;
get_v2_fn cuGetProcAddress_v2;

static CUdevice device0, device1;
static CUcontext context0, context1;
static CUdeviceptr a, b;
static CUstream stream;
static CUDA_MEMCPY3D_PEER box;
static int with_null_pointers; /* not on real GPUs, where NVIDIA's driver follows them: any argument leaves them out */

static void prepare(void)
{
    static unsigned seed;
    unsigned char host[COUNT];
    fill(host, COUNT, ++seed);
    CHECK_CU(cuMemcpyHtoD(a, host, COUNT));
    memset(host, 0, COUNT);
    CHECK_CU(cuMemcpyHtoD(b, host, COUNT));
}

static void print_destination(void)
{
    unsigned char host[COUNT];
    CHECK_CU(cuCtxSynchronize());
    CHECK_CU(cuMemcpyDtoH(host, b, COUNT));
    printf("    destination %08x\n", checksum(host, COUNT));
}

static void set_up(void)
{
    CHECK_CU(cuInit(0));
    CHECK_CU(cuDeviceGet(&device0, 0));
    CHECK_CU(cuDeviceGet(&device1, 1));
    b = context_memory(&context1, device1, COUNT);
    a = context_memory(&context0, device0, COUNT);
    CHECK_CU(cuStreamCreate(&stream, CU_STREAM_DEFAULT));

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
}

static void queries(void)
{
    int can = -7, value = -7;
    SHOW_CU(cuDeviceCanAccessPeer(&can, device0, device1));
    SHOW_CU(cuDeviceCanAccessPeer(&value, device0, device0));
    printf("    can %d, self %d\n", can, value);
    SHOW_CU(cuDeviceCanAccessPeer(NULL, device0, device1));
    SHOW_CU(cuDeviceCanAccessPeer(&can, device0, 99));
    SHOW_CU(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, device0, device1));
    printf("    access supported %d\n", value);
    SHOW_CU(cuDeviceGetP2PAttribute(NULL, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, device0, device1));
    SHOW_CU(cuDeviceGetP2PAttribute(&value, (CUdevice_P2PAttribute)77, device0, device1));
    SHOW_CU(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, device0, 99));
}

static void change_access(void)
{
    SHOW_CU(cuCtxDisablePeerAccess(context1));
    SHOW_CU(cuCtxEnablePeerAccess(context1, 1));
    SHOW_CU(cuCtxEnablePeerAccess(context0, 0));
    SHOW_CU(cuCtxEnablePeerAccess(NULL, 0));
    SHOW_CU(cuCtxEnablePeerAccess(context1, 0));
    SHOW_CU(cuCtxEnablePeerAccess(context1, 0));
    SHOW_CU(cuCtxDisablePeerAccess(NULL));
    SHOW_CU(cuCtxDisablePeerAccess(context0));
    SHOW_CU(cuCtxDisablePeerAccess(context1));
    SHOW_CU(cuCtxSetCurrent(NULL));
    SHOW_CU(cuCtxEnablePeerAccess(context1, 0));
    SHOW_CU(cuMemcpyPeer(b, context1, a, context0, COUNT));
    SHOW_CU(cuCtxSetCurrent(context0));
}

static void copies(const char *how, copy_fn *copy, copy_async_fn *copy_async, copy_3d_fn *copy_3d,
                   copy_3d_async_fn *copy_3d_async)
{
    printf("%s\n", how);
    REQUIRE(copy && copy_async && copy_3d && copy_3d_async);
    prepare();
    SHOW_CU(copy(b, context1, a, context0, COUNT));
    print_destination();
    prepare();
    SHOW_CU(copy_async(b, context1, a, context0, COUNT, stream));
    print_destination();
    prepare();
    SHOW_CU(copy_3d(&box));
    print_destination();
    prepare();
    SHOW_CU(copy_3d_async(&box, stream));
    print_destination();
    SHOW_CU(copy(b, context1, a, context0, 0));
    SHOW_CU(copy(0, context1, a, context0, COUNT));
    SHOW_CU(copy_async(b, context1, 0, context0, COUNT, stream));
    if (with_null_pointers) {
        SHOW_CU(copy_3d(NULL));
        SHOW_CU(copy_3d_async(NULL, stream));
    }
}

static void by_dlsym(void)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    REQUIRE(cuda);
    copies("by dlsym", (copy_fn *)dlsym(cuda, "cuMemcpyPeer"), (copy_async_fn *)dlsym(cuda, "cuMemcpyPeerAsync"),
           (copy_3d_fn *)dlsym(cuda, "cuMemcpy3DPeer"), (copy_3d_async_fn *)dlsym(cuda, "cuMemcpy3DPeerAsync"));
    copies("by dlsym, per-thread default stream", (copy_fn *)dlsym(cuda, "cuMemcpyPeer_ptds"),
           (copy_async_fn *)dlsym(cuda, "cuMemcpyPeerAsync_ptsz"), (copy_3d_fn *)dlsym(cuda, "cuMemcpy3DPeer_ptds"),
           (copy_3d_async_fn *)dlsym(cuda, "cuMemcpy3DPeerAsync_ptsz"));
    REQUIRE(dlclose(cuda) == 0);
}

/* One of both forms of cuGetProcAddress. */
struct finder {
    get_v1_fn *v1;
    get_v2_fn *v2;
};

static const struct finder v1 = {.v1 = cuGetProcAddress}, v2 = {.v2 = cuGetProcAddress_v2};

static void *find(struct finder by, const char *name, int version, cuuint64_t flags)
{
    void *function = NULL;
    CUdriverProcAddressQueryResult found = (CUdriverProcAddressQueryResult)-1;
    CUresult error = by.v1 ? by.v1(name, &function, version, flags) : by.v2(name, &function, version, flags, &found);
    printf("    %s at %d, flags %d: %s, found %d, a function: %s\n", name, version, (int)flags,
           driver_error_name(error), (int)found, function ? "yes" : "no");
    return function;
}

static void copies_found(const char *how, struct finder by, int version, cuuint64_t flags)
{
    copy_fn *copy = (copy_fn *)find(by, "cuMemcpyPeer", version, flags);
    copy_async_fn *copy_async = (copy_async_fn *)find(by, "cuMemcpyPeerAsync", version, flags);
    copy_3d_fn *copy_3d = (copy_3d_fn *)find(by, "cuMemcpy3DPeer", version, flags);
    copy_3d_async_fn *copy_3d_async = (copy_3d_async_fn *)find(by, "cuMemcpy3DPeerAsync", version, flags);
    copies(how, copy, copy_async, copy_3d, copy_3d_async);
}

static void by_finder(const char *how, struct finder by)
{
    void *function = NULL;
    printf("%s\n", how);
    REQUIRE(by.v1 || by.v2);
    copies_found("at 4000", by, 4000, 0);
    copies_found("at 7000, legacy stream", by, 7000, LEGACY_STREAM);
    copies_found("at 7000, per-thread default stream", by, 7000, PER_THREAD_STREAM);
    find(by, "cuMemcpyPear", 4000, 0);
    find(by, "cuMemcpyPeer", 3000, 0);
    find(by, "", 0, 0);
    if (by.v2)
        SHOW_CU(by.v2("cuMemcpyPeer", &function, 4000, 0, NULL));
    if (with_null_pointers && by.v1) {
        SHOW_CU(by.v1("cuMemcpyPeer", NULL, 4000, 0));
        SHOW_CU(by.v1(NULL, &function, 4000, 0));
    } else if (with_null_pointers) {
        SHOW_CU(by.v2("cuMemcpyPeer", NULL, 4000, 0, NULL));
        SHOW_CU(by.v2(NULL, &function, 4000, 0, NULL));
    }
}

/* A driver older than 13.0 lacks it. */
static void atomics(void)
{
    const int operations[2] = {0, 9}; /* CU_ATOMIC_OPERATION_INTEGER_ADD, CU_ATOMIC_OPERATION_CAS */
    unsigned int capabilities[3] = {7, 7, 7};
    find(v2, "cuDeviceGetP2PAtomicCapabilities", 12090, 0);
    atomics_fn *get = (atomics_fn *)find(v2, "cuDeviceGetP2PAtomicCapabilities", 13000, 0);
    if (!get)
        return;
    SHOW_CU(get(capabilities, operations, 2, device0, device1));
    printf("    capabilities %u %u %u\n", capabilities[0], capabilities[1], capabilities[2]);
    if (with_null_pointers)
        SHOW_CU(get(NULL, operations, 2, device0, device1));
    SHOW_CU(get(capabilities, operations, 0, device0, device1));
    SHOW_CU(get(capabilities, operations, 2, device0, device0));
}

/* A driver older than 13.2 lacks them. */
static void with_attributes(cuuint64_t flags)
{
    copy_attributes_fn *copy =
        (copy_attributes_fn *)find(v2, "cuMemcpyWithAttributesAsync", 13020, flags);
    copy_3d_attributes_fn *copy_3d =
        (copy_3d_attributes_fn *)find(v2, "cuMemcpy3DWithAttributesAsync", 13020, flags);
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    CUDA_MEMCPY3D_BATCH_OP op = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    op.src.type = op.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    op.src.op.ptr.ptr = a;
    op.dst.op.ptr.ptr = b;
    op.extent.width = COUNT, op.extent.height = op.extent.depth = 1;
    if (!copy || !copy_3d)
        return;
    prepare();
    SHOW_CU(copy(b, a, COUNT, &attributes, stream));
    print_destination();
    prepare();
    SHOW_CU(copy_3d(&op, 0, stream));
    print_destination();
    SHOW_CU(copy(a, a + COUNT / 2, COUNT / 2, &attributes, stream));
    attributes.srcAccessOrder = (CUmemcpySrcAccessOrder)9;
    SHOW_CU(copy(b, a, COUNT, &attributes, stream));
    SHOW_CU(copy_3d(&op, 1, stream));
}

/* The headers of CUDA 13 give the name a fourth parameter. */
static CUresult create_context(CUcontext *context, CUdevice device)
{
#if CUDA_VERSION >= 13000
    return cuCtxCreate(context, NULL, 0, device);
#else
    return cuCtxCreate(context, 0, device);
#endif
}

/* Peer access belongs to a pair of contexts: one more context on device 0 has none of the first one's. */
static void second_context(void)
{
    CUcontext other = NULL;
    SHOW_CU(cuCtxEnablePeerAccess(context1, 0));
    SHOW_CU(create_context(&other, device0));
    SHOW_CU(cuCtxDisablePeerAccess(context1));
    SHOW_CU(cuCtxEnablePeerAccess(context1, 0));
    SHOW_CU(cuCtxDestroy(other));
    SHOW_CU(cuCtxSetCurrent(context0));
    SHOW_CU(cuCtxEnablePeerAccess(context1, 0));
    SHOW_CU(cuCtxDisablePeerAccess(context1));
}

int main(int argc, char **argv)
{
    (void)argv;
    with_null_pointers = argc == 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    set_up();
    queries();
    atomics();
    with_attributes(0);
    with_attributes(PER_THREAD_STREAM);
    change_access();
    copies("by linking", cuMemcpyPeer, cuMemcpyPeerAsync, cuMemcpy3DPeer, cuMemcpy3DPeerAsync);
    by_dlsym();
    by_finder("cuGetProcAddress", v1);
    by_finder("cuGetProcAddress_v2", v2);
    by_finder("v1 from v1", (struct finder){.v1 = (get_v1_fn *)find(v1, "cuGetProcAddress", 11030, 0)});
    by_finder("v2 from v1", (struct finder){.v2 = (get_v2_fn *)find(v1, "cuGetProcAddress", 12000, 0)});
    by_finder("v1 from v2", (struct finder){.v1 = (get_v1_fn *)find(v2, "cuGetProcAddress", 11030, 0)});
    by_finder("v2 from v2", (struct finder){.v2 = (get_v2_fn *)find(v2, "cuGetProcAddress", 12000, 0)});
    second_context();
    return 0;
}
