/* build: runtime old nvidia12 nvidia13 driver; run: conformance [measure] [OPTION…] TABLE.tsv on sim gpu
 * Return codes of the peer functions of both APIs, row by row, against what the real libraries answered.
 *
 * Prints the table with what is answered here, and fails if a row differs; with `measure` all else is as it was.
 *
 *   --jobs N                      so many rows at a time (default 1)
 *   --only FROM-TO                these rows only, counted from 1
 *   --times N                     measure each row so often (default 1)
 *   --allow-crash-rows-error      where the real library crashes or hangs, an error code will do
 *   --announce                    each row says on standard error when its setup begins, and when its call does
 *
 * Each row runs in a process of its own: this program executes itself with `--row N`, and the parent never touches CUDA.
 * A row is printed as soon as it and all before it are done; one that takes longer than 20 s says `timeout`. To measure
 * fails if a row does not come to its call, or if its answer is not the same each time.
 *
 * What a row says is what is compiled: CALL(x), STEP(x) and ASSIGN(x) compare the row's text with their argument's, so a
 * row that nothing below implements is an error. Variables and steps are explained on top of the tables:
 * tests/golden/conformance.tsv has what was measured on real GPUs, conformance-unmeasured.tsv what was not yet. Rows about
 * batches and graphs are in tests/golden/conformance-graphs.tsv, and what they need is in conformance_graphs.h.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <ctype.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

/* The newest header would have the form of a newer driver. */
#undef cuCtxCreate
#define cuCtxCreate cuCtxCreate_v2
CUresult CUDAAPI cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device);

/* The forms that programs get which are compiled for per-thread default streams. */
__typeof__(cudaMemcpy3DPeer) cudaMemcpy3DPeer_ptds;
__typeof__(cudaMemcpy3DPeerAsync) cudaMemcpy3DPeerAsync_ptsz;
__typeof__(cuMemcpyPeer) cuMemcpyPeer_ptds;
__typeof__(cuMemcpyPeerAsync) cuMemcpyPeerAsync_ptsz;
__typeof__(cuMemcpy3DPeer) cuMemcpy3DPeer_ptds;
__typeof__(cuMemcpy3DPeerAsync) cuMemcpy3DPeerAsync_ptsz;

enum { MAX_ROWS = 1024, MAX_LINE = 512, MAX_JOBS = 64, MAX_TIMES = 16, TIMEOUT_SECONDS = 20 };

static bool same_text(const char *left, const char *right)
{
    for (;; left++, right++) {
        while (isspace((unsigned char)*left))
            left++;
        while (isspace((unsigned char)*right))
            right++;
        if (*left != *right)
            return false;
        if (*left == '\0')
            return true;
    }
}

/* ---- One row, in the child ---- */

static const size_t n = 1 << 20;
static void *a, *b, *c, *h, *ph, *mg;
static CUdeviceptr da, db, dc, dh, dp, md, m;
static size_t g;
static cudaStream_t s0, s1, sd, sx;
static CUcontext x0, x1, xd, xo;
static cudaArray_t array0, array1;
static CUarray l0, l1; /* of one dimension, 8192 bytes */
static CUmemoryPool pool;
static CUmemAccessDesc d, e[2];
static struct cudaMemcpy3DPeerParms p;
static CUDA_MEMCPY3D_PEER q;
static struct cudaMemcpy3DParms r;
static CUDA_MEMCPY2D t;
static CUDA_MEMCPY3D u;
static int v = -7;
static unsigned long long w = (unsigned long long)-7;

static void make_graph_variables(void);

static void make_variables(void)
{
    CHECK(cudaSetDevice(1));
    CHECK(cudaMalloc(&b, n));
    CHECK(cudaStreamCreate(&s1));
    CHECK_CU(cuCtxGetCurrent(&x1));
    CHECK(cudaSetDevice(0));
    CHECK(cudaMalloc(&a, n));
    CHECK(cudaMalloc(&c, n));
    CHECK(cudaStreamCreate(&s0));
    CHECK(cudaStreamCreate(&sd));
    CHECK(cudaMallocHost(&ph, n));
    CHECK_CU(cuCtxGetCurrent(&x0));
    CHECK_CU(cuDeviceGetDefaultMemPool(&pool, 0));
    REQUIRE((h = calloc(1, n)) != NULL);
    da = (CUdeviceptr)a;
    db = (CUdeviceptr)b;
    dc = (CUdeviceptr)c;
    dh = (CUdeviceptr)h;
    dp = (CUdeviceptr)ph;

    p.srcDevice = 0;
    p.dstDevice = 1;
    p.srcPtr.ptr = a;
    p.dstPtr.ptr = b;
    p.srcPtr.pitch = p.dstPtr.pitch = p.srcPtr.xsize = p.dstPtr.xsize = 1024;
    p.srcPtr.ysize = p.dstPtr.ysize = 16;
    p.extent.width = 1024;
    p.extent.height = 16;
    p.extent.depth = 4;

    q.srcMemoryType = q.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    q.srcDevice = da;
    q.dstDevice = db;
    q.srcContext = x0;
    q.dstContext = x1;
    q.srcPitch = q.dstPitch = 1024;
    q.srcHeight = q.dstHeight = 16;
    q.WidthInBytes = 1024;
    q.Height = 16;
    q.Depth = 4;

    r.srcPtr = p.srcPtr;
    r.dstPtr = p.dstPtr;
    r.extent = p.extent;
    r.kind = cudaMemcpyDeviceToDevice;
    t.srcMemoryType = t.dstMemoryType = u.srcMemoryType = u.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    t.srcDevice = u.srcDevice = da;
    t.dstDevice = u.dstDevice = db;
    t.srcPitch = t.dstPitch = u.srcPitch = u.dstPitch = 1024;
    t.WidthInBytes = u.WidthInBytes = 1024;
    t.Height = u.Height = u.srcHeight = u.dstHeight = 16;
    u.Depth = 4;

    d.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    d.location.id = 1;
    d.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    e[0] = e[1] = d;
    make_graph_variables();
}

static CUresult make_context(CUcontext *context, CUdevice device)
{
    CUcontext made;
    CUresult error = cuCtxCreate(context, 0, device);
    return error ? error : cuCtxPopCurrent(&made);
}

static CUresult memory_of(CUcontext context, CUdeviceptr *memory)
{
    CHECK_CU(cuCtxPushCurrent(context));
    CHECK_CU(cuMemAlloc(memory, n));
    return cuCtxPopCurrent(&context);
}

static CUresult stream_of(CUcontext context, CUstream *stream)
{
    CHECK_CU(cuCtxPushCurrent(context));
    CHECK_CU(cuStreamCreate(stream, CU_STREAM_DEFAULT));
    return cuCtxPopCurrent(&context);
}

/* Created and mapped, g bytes; the device that has it may read (1), read and write (3) or do nothing (0). */
static CUresult map_memory(CUdeviceptr *memory, CUdevice device, int rights)
{
    CUmemAllocationProp what = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    CUmemGenericAllocationHandle handle;
    what.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    what.location.id = device;
    CHECK_CU(cuMemGetAllocationGranularity(&g, &what, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK_CU(cuMemCreate(&handle, g, &what, 0));
    CHECK_CU(cuMemAddressReserve(memory, 4 * g, 0, 0, 0));
    CHECK_CU(cuMemMap(*memory, g, 0, handle, 0));
    CHECK_CU(cuMemRelease(handle));
    CUmemAccessDesc access = {.location = what.location, .flags = (CUmemAccess_flags)rights};
    return rights ? cuMemSetAccess(*memory, g, &access, 1) : CUDA_SUCCESS;
}

static CUresult make_pool(CUmemoryPool *made, int device)
{
    CUmemPoolProps what = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED};
    what.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    what.location.id = device;
    return cuMemPoolCreate(made, &what);
}

/* 4 layers of 16 rows of 1024 bytes. */
static CUresult make_line(CUarray *array, int device)
{
    CUDA_ARRAY_DESCRIPTOR format = {.Width = 2048, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
    CHECK(cudaSetDevice(device));
    CUresult result = cuArrayCreate(array, &format);
    CHECK(cudaSetDevice(0));
    return result;
}

static cudaError_t make_array(cudaArray_t *array, int device, int bits)
{
    struct cudaChannelFormatDesc format = {.x = bits, .f = cudaChannelFormatKindUnsigned};
    struct cudaExtent extent = {.width = 8192 / (size_t)bits, .height = 16, .depth = 4};
    CHECK(cudaSetDevice(device));
    CHECK(cudaMalloc3DArray(array, &format, extent, 0));
    return cudaSetDevice(0);
}

static cudaError_t reset_device(int device)
{
    CHECK(cudaSetDevice(device));
    CHECK(cudaDeviceReset());
    return cudaSetDevice(0);
}

static void CUDART_CB wait_a_little(void *nothing)
{
    (void)nothing;
    usleep(200000);
}

/* With direct access: a copy on s0 is queued when it is disabled. */
static cudaError_t disable_under_way(void)
{
    cudaDeviceEnablePeerAccess(1, 0); /* or it is enabled already */
    CHECK(cudaLaunchHostFunc(s0, wait_a_little, NULL));
    CHECK(cudaMemcpyPeerAsync(b, 1, a, 0, n, s0));
    CHECK(cudaDeviceDisablePeerAccess(1));
    return cudaStreamSynchronize(s0);
}

/* Makes the context of device 0 unusable without device code: what a queued copy is to read is unmapped. */
static int lose_context(void)
{
    CUdeviceptr gone;
    CHECK_CU(map_memory(&gone, 0, 3));
    CHECK(cudaLaunchHostFunc(s0, wait_a_little, NULL));
    CHECK(cudaMemcpyAsync(c, (void *)gone, n, cudaMemcpyDeviceToDevice, s0));
    CHECK_CU(cuMemUnmap(gone, g));
    if (cudaStreamSynchronize(s0) != cudaSuccess)
        return 0;
    fprintf(stderr, "the copy ended before its source was unmapped\n");
    return disable_under_way() == cudaSuccess;
}

#define STEP(...) if (same_text(text, #__VA_ARGS__)) return (int)(__VA_ARGS__);
#define ASSIGN(...) if (same_text(text, #__VA_ARGS__)) { __VA_ARGS__; return 0; }
#define CALL(...) if (same_text(call, #__VA_ARGS__)) return (int)(__VA_ARGS__);

#include "conformance_graphs.h"

static int step(const char *text)
{
    STEP(cuCtxSetCurrent(NULL))
    STEP(cudaDeviceEnablePeerAccess(1, 0))
    STEP(cudaDeviceEnablePeerAccess(0, 0))
    STEP(cudaStreamBeginCapture(s0, cudaStreamCaptureModeGlobal))
    STEP(lose_context())
    STEP(cudaDeviceDisablePeerAccess(1))
    STEP(cudaMemcpyPeer(b, 1, a, 0, n))
    STEP(cudaDeviceReset())
    STEP(reset_device(1))
    STEP(cudaSetDevice(1))
    STEP(cuMemPoolSetAccess(pool, &d, 1))
    STEP(cuDevicePrimaryCtxRelease(1))
    STEP(cuDevicePrimaryCtxReset(1))
    STEP(cuCtxEnablePeerAccess(x1, 0))
    STEP(make_context(&xo, 0))
    STEP(cuCtxSetCurrent(xo))
    STEP(cudaStreamBeginCapture(s0, cudaStreamCaptureModeThreadLocal))
    STEP(cudaStreamBeginCapture(s0, cudaStreamCaptureModeRelaxed))
    STEP(cudaHostRegister(h, n, 0))
    STEP(cudaFree(a))
    STEP(cudaFree(b))
    STEP(cudaMallocAsync(&mg, n, s0))
    STEP(cudaStreamSynchronize(s0))
    STEP(cudaFreeAsync(mg, s0))
    STEP(map_memory(&m, 0, 3))
    STEP(map_memory(&m, 0, 0))
    STEP(cuMemUnmap(m, g))
    STEP(map_memory(&m, 0, 1))
    STEP(make_context(&xd, 1))
    STEP(memory_of(xd, &md))
    STEP(cuCtxDestroy(xd))
    STEP(disable_under_way())
    STEP(cudaStreamDestroy(sd))
    STEP(stream_of(xd, &sx))
    STEP(make_line(&l0, 0))
    STEP(make_line(&l1, 1))
    STEP(cuArrayDestroy(l0))
    STEP(cuArrayDestroy(l1))
    STEP(make_array(&array0, 0, 32))
    STEP(make_array(&array1, 1, 32))
    STEP(make_array(&array1, 1, 8))
    STEP(cudaFreeArray(array0))
    STEP(cuCtxSetCurrent(x1))
    STEP(cuDevicePrimaryCtxRetain(&x1, 1))
    STEP(cuDevicePrimaryCtxRelease(0))
    STEP(cuCtxSetCurrent(xd))
    STEP(cuMemcpyPeer(db, x1, da, x0, n))
    STEP(cuCtxDisablePeerAccess(x1))
    STEP(cuCtxEnablePeerAccess(xd, 0))
    STEP(cuMemPoolSetAccess(pool, &d, 1))
    STEP(make_pool(&pool, 0))
    STEP(cuMemPoolDestroy(pool))
    STEP(cuMemPoolSetAccess(pool, e, 2))
    STEP(cuMemSetAccess(m, g, &d, 1))
    STEP(cuMemSetAccess(m, g, e, 2))
    ASSIGN(r.kind = cudaMemcpyDefault)
    ASSIGN(r.kind = (enum cudaMemcpyKind)7)
    ASSIGN(r.srcPtr.ptr = 0)
    ASSIGN(r.srcPtr.pitch = 8)
    ASSIGN(r.extent.width = 0)
    ASSIGN(t.srcPitch = 8)
    ASSIGN(t.WidthInBytes = 0)
    ASSIGN(t.dstDevice = 0)
    ASSIGN(u.srcPitch = 8)
    ASSIGN(u.WidthInBytes = 0)
    ASSIGN(u.dstDevice = 0)
    ASSIGN(p.extent.width = 0)
    ASSIGN(p.extent.height = 0)
    ASSIGN(p.extent.depth = 0)
    ASSIGN(p.srcDevice = 99)
    ASSIGN(p.srcPtr.ptr = 0)
    ASSIGN(p.srcPtr.pitch = 8)
    ASSIGN(p.srcArray = (cudaArray_t)a)
    ASSIGN(p.srcPtr.pitch = 0)
    ASSIGN(p.dstPtr.pitch = 8)
    ASSIGN(p.srcPtr.pitch = 1023)
    ASSIGN(p.srcPtr.pitch = (size_t)1 << 40)
    ASSIGN(p.extent.height = 1)
    ASSIGN(p.extent.depth = 1)
    ASSIGN(p.dstDevice = 99)
    ASSIGN(p.srcDevice = -1)
    ASSIGN(p.srcDevice = 1)
    ASSIGN(p.dstDevice = 0)
    ASSIGN(p.dstPtr.ptr = 0)
    ASSIGN(p.srcPtr.ysize = 2)
    ASSIGN(p.dstPtr.ysize = 2)
    ASSIGN(p.srcPtr.ysize = 0)
    ASSIGN(p.srcPtr.xsize = 8)
    ASSIGN(p.srcPtr.xsize = 0)
    ASSIGN(p.srcPos.x = 512)
    ASSIGN(p.srcPos.y = 8)
    ASSIGN(p.srcPos.z = 8)
    ASSIGN(p.srcPos.z = 1000)
    ASSIGN(p.dstPos.z = 1000)
    ASSIGN(p.srcPos.x = (size_t)-1)
    ASSIGN(p.extent.width = 512)
    ASSIGN(p.extent.width = 2048)
    ASSIGN(p.extent.height = 17)
    ASSIGN(p.extent.depth = 65)
    ASSIGN(p.extent.depth = 10000)
    ASSIGN(p.extent.width = (size_t)-1)
    ASSIGN(p.srcPtr.ptr = h)
    ASSIGN(p.dstPtr.ptr = h)
    ASSIGN(p.srcPtr.ptr = ph)
    ASSIGN(p.dstPtr.ptr = a)
    ASSIGN(p.dstPtr.ptr = c)
    ASSIGN(p.srcPtr.ptr = mg)
    ASSIGN(p.srcPtr.ptr = (void *)m)
    ASSIGN(p.srcArray = array0)
    ASSIGN(p.extent.width = 256)
    ASSIGN(p.dstArray = array1)
    ASSIGN(p.extent.width = 257)
    ASSIGN(p.dstPtr.ysize = 17)
    ASSIGN(p.extent.depth = 5)
    ASSIGN(p.srcPos.x = 1)
    ASSIGN(p.dstPtr.pitch = 256)
    ASSIGN(p.srcPtr.ptr = a)
    ASSIGN(p.dstPtr.pitch = 0)
    ASSIGN(p.dstDevice = -1)
    ASSIGN(q.WidthInBytes = 0)
    ASSIGN(q.Height = 0)
    ASSIGN(q.Depth = 0)
    ASSIGN(q.srcPitch = 8)
    ASSIGN(q.dstPitch = 8)
    ASSIGN(q.srcHeight = 2)
    ASSIGN(q.srcDevice = 0)
    ASSIGN(q.dstDevice = 0)
    ASSIGN(q.srcContext = NULL)
    ASSIGN(q.dstContext = NULL)
    ASSIGN(q.srcContext = x1)
    ASSIGN(q.dstContext = x0)
    ASSIGN(q.dstContext = xd)
    ASSIGN(q.dstContext = (CUcontext)h)
    ASSIGN(q.srcMemoryType = (CUmemorytype)0)
    ASSIGN(q.srcMemoryType = (CUmemorytype)99)
    ASSIGN(q.srcMemoryType = CU_MEMORYTYPE_HOST)
    ASSIGN(q.srcHost = h)
    ASSIGN(q.srcHost = ph)
    ASSIGN(q.srcHost = NULL)
    ASSIGN(q.srcMemoryType = CU_MEMORYTYPE_ARRAY)
    ASSIGN(q.srcMemoryType = CU_MEMORYTYPE_UNIFIED)
    ASSIGN(q.srcDevice = dh)
    ASSIGN(q.srcXInBytes = 512)
    ASSIGN(q.srcY = 8)
    ASSIGN(q.srcZ = 8)
    ASSIGN(q.srcZ = 1000)
    ASSIGN(q.dstZ = 1000)
    ASSIGN(q.srcLOD = 1)
    ASSIGN(q.dstLOD = 1)
    ASSIGN(q.WidthInBytes = 2048)
    ASSIGN(q.Height = 17)
    ASSIGN(q.Depth = 10000)
    ASSIGN(q.srcPitch = 0)
    ASSIGN(q.Height = 1)
    ASSIGN(q.Depth = 1)
    ASSIGN(q.srcHeight = 0)
    ASSIGN(q.srcPitch = (size_t)1 << 40)
    ASSIGN(q.dstDevice = da)
    ASSIGN(q.srcArray = (CUarray)array0)
    ASSIGN(q.srcXInBytes = 4)
    ASSIGN(q.Depth = 5)
    ASSIGN(d.location.id = 99)
    ASSIGN(d.location.id = -1)
    ASSIGN(d.flags = (CUmemAccess_flags)2)
    ASSIGN(d.flags = CU_MEM_ACCESS_FLAGS_PROT_READ)
    ASSIGN(d.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE)
    ASSIGN(d.location.id = 0)
    ASSIGN(d.location.type = (CUmemLocationType)0)
    ASSIGN(d.location.type = (CUmemLocationType)2)
    ASSIGN(d.location.type = (CUmemLocationType)77)
    ASSIGN(e[1].location.id = 99)
    int answer = graph_step(text);
    if (answer != UNKNOWN)
        return answer;
    check_failed(__FILE__, __LINE__, text, "no STEP or ASSIGN implements this step of the table");
    return 1;
}

static const char *without(const char *word, const char *text)
{
    size_t length = strlen(word);
    return strncmp(text, word, length) == 0 ? text + length : NULL;
}

/* A step for a thread of its own, which lives on. */
struct elsewhere {
    const char *text;
    pthread_barrier_t taken;
};

static void *take_step_and_stay(void *argument)
{
    struct elsewhere *other = argument;
    CHECK(cudaSetDevice(0));
    if (step(other->text) != 0)
        check_failed(__FILE__, __LINE__, other->text, "fails in another thread");
    pthread_barrier_wait(&other->taken);
    pause();
    return NULL;
}

static void prepare(const char *text)
{
    const char *rest;
    if ((rest = without("try ", text)) != NULL) {
        step(rest);
    } else if ((rest = without("elsewhere ", text)) != NULL) {
        static struct elsewhere other;
        pthread_t thread;
        other.text = rest;
        REQUIRE(pthread_barrier_init(&other.taken, NULL, 2) == 0);
        REQUIRE(pthread_create(&thread, NULL, take_step_and_stay, &other) == 0);
        pthread_barrier_wait(&other.taken);
    } else {
        int error = step(text);
        if (error != 0) {
            char why[32];
            snprintf(why, sizeof why, "answers %d", error);
            check_failed(__FILE__, __LINE__, text, why);
        }
    }
}

static int evaluate(const char *call)
{
    CALL(cudaMemcpy(b, a, n, cudaMemcpyDeviceToDevice))
    CALL(cudaMemcpy(b, a, n, cudaMemcpyDefault))
    CALL(cudaMemcpy(b, a, n, cudaMemcpyHostToDevice))
    CALL(cudaMemcpy(b, a, n, cudaMemcpyDeviceToHost))
    CALL(cudaMemcpy(b, a, n, cudaMemcpyHostToHost))
    CALL(cudaMemcpy(b, a, n, (enum cudaMemcpyKind)7))
    CALL(cudaMemcpy(NULL, a, n, cudaMemcpyDeviceToDevice))
    CALL(cudaMemcpy(b, NULL, n, cudaMemcpyDeviceToDevice))
    CALL(cudaMemcpy(NULL, NULL, 0, cudaMemcpyDeviceToDevice))
    CALL(cudaMemcpy(b, a, 0, cudaMemcpyDeviceToDevice))
    CALL(cudaMemcpy(b, a, n * 64, cudaMemcpyDeviceToDevice))
    CALL(cudaMemcpy(b, h, n, cudaMemcpyDeviceToDevice))
    CALL(cudaMemcpy(h, a, n, cudaMemcpyDefault))
    CALL(cudaMemcpyAsync(b, a, n, cudaMemcpyDeviceToDevice, s0))
    CALL(cudaMemcpyAsync(b, mg, n, cudaMemcpyDefault, s0))
    CALL(cudaMemcpyAsync(b, mg, n, cudaMemcpyDefault, s1))
    CALL(cudaMemcpyAsync(mg, b, n, cudaMemcpyDefault, s0))
    CALL(cudaMemcpyAsync(mg, b, n, cudaMemcpyDefault, s1))
    CALL(cudaMemcpyAsync(mg, ph, n, cudaMemcpyDefault, s0))
    CALL(cudaMemcpy(b, mg, n, cudaMemcpyDefault))
    CALL(cuMemcpyDtoDAsync(db, (CUdeviceptr)mg, n, s0))
    CALL(cudaMemsetAsync(b, 0, n, s0))
    CALL(cudaMemsetAsync(b, 0, n, s1))
    CALL(cudaMemsetAsync(mg, 0, n, s1))
    CALL(cudaMemcpyAsync(b, a, n, cudaMemcpyDefault, s0))
    CALL(cudaMemcpyAsync(b, a, n, cudaMemcpyHostToDevice, s0))
    CALL(cudaMemcpyAsync(b, a, n, cudaMemcpyDeviceToHost, s0))
    CALL(cudaMemcpyAsync(b, a, n, cudaMemcpyHostToHost, s0))
    CALL(cudaMemcpyAsync(b, a, n, (enum cudaMemcpyKind)7, s0))
    CALL(cudaMemcpyAsync(NULL, a, n, cudaMemcpyDeviceToDevice, s0))
    CALL(cudaMemcpyAsync(b, NULL, n, cudaMemcpyDeviceToDevice, s0))
    CALL(cudaMemcpyAsync(NULL, NULL, 0, cudaMemcpyDeviceToDevice, s0))
    CALL(cudaMemcpyAsync(b, a, 0, cudaMemcpyDeviceToDevice, s0))
    CALL(cudaMemcpyAsync(b, a, n * 64, cudaMemcpyDeviceToDevice, s0))
    CALL(cudaMemcpyAsync(b, h, n, cudaMemcpyDeviceToDevice, s0))
    CALL(cudaMemcpyAsync(h, a, n, cudaMemcpyDefault, s0))
    CALL(cudaMemcpy2D(b, 1024, a, 1024, 1024, 16, cudaMemcpyDeviceToDevice))
    CALL(cudaMemcpy2D(b, 1024, a, 1024, 512, 16, cudaMemcpyDeviceToDevice))
    CALL(cudaMemcpy2D(b, 512, a, 1024, 1024, 16, cudaMemcpyDeviceToDevice))
    CALL(cudaMemcpy2D(b, 1024, a, 512, 1024, 16, cudaMemcpyDeviceToDevice))
    CALL(cudaMemcpy2D(NULL, 1024, a, 1024, 1024, 16, cudaMemcpyDeviceToDevice))
    CALL(cudaMemcpy2D(b, 1024, a, 1024, 0, 16, cudaMemcpyDeviceToDevice))
    CALL(cudaMemcpy2D(b, 1024, a, 1024, 1024, 0, cudaMemcpyDeviceToDevice))
    CALL(cudaMemcpy2D(b, 1024, a, 1024, 1024, 16, (enum cudaMemcpyKind)7))
    CALL(cudaMemcpy2D(b, 1024, a, 1024, 1024, n, cudaMemcpyDeviceToDevice))
    CALL(cudaMemcpy2DAsync(b, 1024, a, 1024, 1024, 16, cudaMemcpyDeviceToDevice, s0))
    CALL(cudaMemcpy2DAsync(b, 1024, a, 1024, 512, 16, cudaMemcpyDeviceToDevice, s0))
    CALL(cudaMemcpy2DAsync(b, 512, a, 1024, 1024, 16, cudaMemcpyDeviceToDevice, s0))
    CALL(cudaMemcpy2DAsync(b, 1024, a, 512, 1024, 16, cudaMemcpyDeviceToDevice, s0))
    CALL(cudaMemcpy2DAsync(NULL, 1024, a, 1024, 1024, 16, cudaMemcpyDeviceToDevice, s0))
    CALL(cudaMemcpy2DAsync(b, 1024, a, 1024, 0, 16, cudaMemcpyDeviceToDevice, s0))
    CALL(cudaMemcpy2DAsync(b, 1024, a, 1024, 1024, 0, cudaMemcpyDeviceToDevice, s0))
    CALL(cudaMemcpy2DAsync(b, 1024, a, 1024, 1024, 16, (enum cudaMemcpyKind)7, s0))
    CALL(cudaMemcpy2DAsync(b, 1024, a, 1024, 1024, n, cudaMemcpyDeviceToDevice, s0))
    CALL(cudaMemcpy3D(&r))
    CALL(cudaMemcpy3DAsync(&r, s0))
    CALL(cuMemcpy(db, da, n))
    CALL(cuMemcpy(0, da, n))
    CALL(cuMemcpy(db, 0, n))
    CALL(cuMemcpy(db, da, 0))
    CALL(cuMemcpy(db, da, n * 64))
    CALL(cuMemcpy(db, dh, n))
    CALL(cuMemcpyDtoD(db, da, n))
    CALL(cuMemcpyDtoD(0, da, n))
    CALL(cuMemcpyDtoD(db, 0, n))
    CALL(cuMemcpyDtoD(db, da, 0))
    CALL(cuMemcpyDtoD(db, da, n * 64))
    CALL(cuMemcpyDtoD(db, dh, n))
    CALL(cuMemcpyAsync(db, da, n, s0))
    CALL(cuMemcpyAsync(0, da, n, s0))
    CALL(cuMemcpyAsync(db, 0, n, s0))
    CALL(cuMemcpyAsync(db, da, 0, s0))
    CALL(cuMemcpyAsync(db, da, n * 64, s0))
    CALL(cuMemcpyAsync(db, dh, n, s0))
    CALL(cuMemcpyDtoDAsync(db, da, n, s0))
    CALL(cuMemcpyDtoDAsync(0, da, n, s0))
    CALL(cuMemcpyDtoDAsync(db, 0, n, s0))
    CALL(cuMemcpyDtoDAsync(db, da, 0, s0))
    CALL(cuMemcpyDtoDAsync(db, da, n * 64, s0))
    CALL(cuMemcpyDtoDAsync(db, dh, n, s0))
    CALL(cuMemcpy2D(&t))
    CALL(cuMemcpy2DUnaligned(&t))
    CALL(cuMemcpy2DAsync(&t, s0))
    CALL(cuMemcpy3D(&u))
    CALL(cuMemcpy3DAsync(&u, s0))
    CALL(cuMemcpyDtoA(l1, 0, da, 1024))
    CALL(cuMemcpyDtoA(l1, 0, da, 0))
    CALL(cuMemcpyDtoA(l1, 4, da, 1024))
    CALL(cuMemcpyDtoA(l1, 8192, da, 4))
    CALL(cuMemcpyDtoA(l1, 0, da, 16384))
    CALL(cuMemcpyDtoA(NULL, 0, da, 1024))
    CALL(cuMemcpyDtoA(l1, 0, 0, 1024))
    CALL(cuMemcpyDtoA(l1, 0, dh, 1024))
    CALL(cuMemcpyDtoA((CUarray)array1, 0, da, 1024))
    CALL(cuMemcpyAtoD(db, l0, 0, 1024))
    CALL(cuMemcpyAtoD(db, l0, 0, 0))
    CALL(cuMemcpyAtoD(db, l0, 4, 1024))
    CALL(cuMemcpyAtoD(db, l0, 0, 16384))
    CALL(cuMemcpyAtoD(db, NULL, 0, 1024))
    CALL(cuMemcpyAtoD(0, l0, 0, 1024))
    CALL(cuMemcpyAtoD(dh, l0, 0, 1024))
    CALL(cuMemcpyAtoA(l1, 0, l0, 0, 1024))
    CALL(cuMemcpyAtoA(l1, 0, l0, 0, 0))
    CALL(cuMemcpyAtoA(l1, 4096, l0, 4, 1024))
    CALL(cuMemcpyAtoA(l1, 0, l0, 8192, 4))
    CALL(cuMemcpyAtoA(NULL, 0, l0, 0, 1024))
    CALL(cuMemcpyAtoA(l1, 0, NULL, 0, 1024))
    CALL(cudaDeviceCanAccessPeer(&v, 0, 1))
    CALL(cudaDeviceCanAccessPeer(&v, 1, 0))
    CALL(cudaDeviceCanAccessPeer(&v, 0, 0))
    CALL(cudaDeviceCanAccessPeer(NULL, 0, 1))
    CALL(cudaDeviceCanAccessPeer(NULL, 0, 99))
    CALL(cudaDeviceCanAccessPeer(&v, -1, 0))
    CALL(cudaDeviceCanAccessPeer(&v, 0, 99))
    CALL(cudaDeviceCanAccessPeer(&v, 99, 0))
    CALL(cudaDeviceCanAccessPeer(&v, 0, -1))
    CALL(cudaDeviceCanAccessPeer(&v, 99, 99))
    CALL(cudaDeviceGetP2PAttribute(&v, cudaDevP2PAttrPerformanceRank, 0, 1))
    CALL(cudaDeviceGetP2PAttribute(&v, cudaDevP2PAttrAccessSupported, 0, 1))
    CALL(cudaDeviceGetP2PAttribute(&v, cudaDevP2PAttrNativeAtomicSupported, 0, 1))
    CALL(cudaDeviceGetP2PAttribute(&v, cudaDevP2PAttrCudaArrayAccessSupported, 0, 1))
    CALL(cudaDeviceGetP2PAttribute(&v, cudaDevP2PAttrAccessSupported, 1, 0))
    CALL(cudaDeviceGetP2PAttribute(NULL, cudaDevP2PAttrAccessSupported, 0, 1))
    CALL(cudaDeviceGetP2PAttribute(&v, (enum cudaDeviceP2PAttr)0, 0, 1))
    CALL(cudaDeviceGetP2PAttribute(&v, (enum cudaDeviceP2PAttr)77, 0, 1))
    CALL(cudaDeviceGetP2PAttribute(&v, cudaDevP2PAttrAccessSupported, 0, 0))
    CALL(cudaDeviceGetP2PAttribute(&v, cudaDevP2PAttrAccessSupported, 0, 99))
    CALL(cudaDeviceGetP2PAttribute(&v, cudaDevP2PAttrAccessSupported, -1, 0))
    CALL(cudaDeviceGetP2PAttribute(&v, cudaDevP2PAttrAccessSupported, 99, 99))
    CALL(cudaDeviceGetP2PAttribute(NULL, cudaDevP2PAttrAccessSupported, 0, 99))
    CALL(cudaDeviceGetP2PAttribute(NULL, cudaDevP2PAttrAccessSupported, 0, 0))
    CALL(cudaDeviceGetP2PAttribute(&v, (enum cudaDeviceP2PAttr)77, 0, 0))
    CALL(cudaDeviceGetP2PAttribute(&v, (enum cudaDeviceP2PAttr)77, 0, 99))
    CALL(cudaDeviceGetP2PAttribute(NULL, (enum cudaDeviceP2PAttr)77, 0, 1))
    CALL(cudaDeviceEnablePeerAccess(1, 0))
    CALL(cudaDeviceEnablePeerAccess(1, 1))
    CALL(cudaDeviceEnablePeerAccess(0, 0))
    CALL(cudaDeviceEnablePeerAccess(0, 1))
    CALL(cudaDeviceEnablePeerAccess(99, 0))
    CALL(cudaDeviceEnablePeerAccess(-1, 0))
    CALL(cudaDeviceEnablePeerAccess(99, 1))
    CALL(cudaDeviceDisablePeerAccess(1))
    CALL(cudaDeviceDisablePeerAccess(0))
    CALL(cudaDeviceDisablePeerAccess(99))
    CALL(cudaDeviceDisablePeerAccess(-1))
    CALL(cudaMemcpyPeer(b, 1, a, 0, n))
    CALL(cudaMemcpyPeer(a, 0, b, 1, n))
    CALL(cudaMemcpyPeer(NULL, 1, a, 0, n))
    CALL(cudaMemcpyPeer(b, 1, NULL, 0, n))
    CALL(cudaMemcpyPeer(NULL, 1, NULL, 0, 0))
    CALL(cudaMemcpyPeer(b, 1, a, 0, 0))
    CALL(cudaMemcpyPeer(b, 99, a, 0, n))
    CALL(cudaMemcpyPeer(b, -1, a, 0, n))
    CALL(cudaMemcpyPeer(b, 1, a, 99, n))
    CALL(cudaMemcpyPeer(b, 1, a, -1, n))
    CALL(cudaMemcpyPeer(b, 99, a, 0, 0))
    CALL(cudaMemcpyPeer(NULL, 99, NULL, 99, 0))
    CALL(cudaMemcpyPeer(NULL, 99, a, 0, n))
    CALL(cudaMemcpyPeer(b, 99, NULL, 0, n))
    CALL(cudaMemcpyPeer(b, 99, h, 0, n))
    CALL(cudaMemcpyPeer(b, 99, a, 0, n * 64))
    CALL(cudaMemcpyPeer(b, 0, a, 1, n))
    CALL(cudaMemcpyPeer(b, 0, a, 0, n))
    CALL(cudaMemcpyPeer(c, 0, a, 0, n))
    CALL(cudaMemcpyPeer(a, 0, a, 0, n))
    CALL(cudaMemcpyPeer((char *)a + 1, 0, a, 0, n / 2))
    CALL(cudaMemcpyPeer(c, 1, a, 1, n))
    CALL(cudaMemcpyPeer(h, 1, a, 0, n))
    CALL(cudaMemcpyPeer(b, 1, h, 0, n))
    CALL(cudaMemcpyPeer(h, 1, h, 0, n))
    CALL(cudaMemcpyPeer(ph, 1, a, 0, n))
    CALL(cudaMemcpyPeer(b, 1, ph, 0, n))
    CALL(cudaMemcpyPeer(h, 1, a, 0, 0))
    CALL(cudaMemcpyPeer(b, 1, a, 0, n * 64))
    CALL(cudaMemcpyPeer(b, 1, a, 0, (size_t)-1))
    CALL(cudaMemcpyPeer(b, 1, (char *)a + n/2, 0, n * 64))
    CALL(cudaMemcpyPeer((char *)b + 1, 1, (char *)a + 3, 0, n / 2))
    CALL(cudaMemcpyPeer(b, 1, mg, 0, n))
    CALL(cudaMemcpyPeer(b, 1, (void *)m, 0, n))
    CALL(cudaMemcpyPeer((void *)m, 0, b, 1, n))
    CALL(cudaMemcpyPeer(b, 1, (void *)m, 0, g + 1))
    CALL(cudaMemcpyPeer(NULL, 99, NULL, 0, n))
    CALL(cudaMemcpyPeer(c, 1, a, 0, n))
    CALL(cudaMemcpyPeer((void *)md, 1, a, 0, n))
    CALL(cudaMemcpyPeerAsync(b, 1, a, 0, n, s0))
    CALL(cudaMemcpyPeerAsync(b, 1, a, 0, n, s1))
    CALL(cudaMemcpyPeerAsync(b, 1, a, 0, n, 0))
    CALL(cudaMemcpyPeerAsync(b, 1, a, 0, n, cudaStreamLegacy))
    CALL(cudaMemcpyPeerAsync(b, 1, a, 0, n, cudaStreamPerThread))
    CALL(cudaMemcpyPeerAsync(NULL, 1, a, 0, n, s0))
    CALL(cudaMemcpyPeerAsync(b, 1, NULL, 0, n, s0))
    CALL(cudaMemcpyPeerAsync(b, 1, a, 0, 0, s0))
    CALL(cudaMemcpyPeerAsync(NULL, 1, NULL, 0, 0, s0))
    CALL(cudaMemcpyPeerAsync(b, 99, a, 0, n, s0))
    CALL(cudaMemcpyPeerAsync(b, 1, a, 99, n, s0))
    CALL(cudaMemcpyPeerAsync(b, -1, a, 0, n, s0))
    CALL(cudaMemcpyPeerAsync(b, 99, a, 0, 0, s0))
    CALL(cudaMemcpyPeerAsync(NULL, 99, a, 0, n, s0))
    CALL(cudaMemcpyPeerAsync(b, 0, a, 1, n, s0))
    CALL(cudaMemcpyPeerAsync(c, 0, a, 0, n, s1))
    CALL(cudaMemcpyPeerAsync(a, 0, a, 0, n, s0))
    CALL(cudaMemcpyPeerAsync(h, 1, a, 0, n, s0))
    CALL(cudaMemcpyPeerAsync(b, 1, h, 0, n, s0))
    CALL(cudaMemcpyPeerAsync(b, 1, ph, 0, n, s0))
    CALL(cudaMemcpyPeerAsync(b, 1, a, 0, n * 64, s0))
    CALL(cudaMemcpyPeerAsync(b, 1, a, 0, (size_t)-1, s0))
    CALL(cudaMemcpyPeerAsync(b, 1, mg, 0, n, s0))
    CALL(cudaMemcpyPeerAsync(b, 1, mg, 0, n, s1))
    CALL(cudaMemcpyPeerAsync(b, 1, (void *)m, 0, n, s0))
    CALL(cudaMemcpyPeerAsync(b, 1, a, 0, n, sd))
    CALL(cudaMemcpyPeerAsync(b, 1, a, 0, 0, sd))
    CALL(cudaMemcpyPeerAsync(b, 99, a, 0, n, sd))
    CALL(cudaMemcpyPeerAsync(NULL, 1, a, 0, n, sd))
    CALL(cudaMemcpyPeerAsync(NULL, 99, NULL, 0, n, 0))
    CALL(cudaMemcpyPeerAsync(b, 1, a, 0, n, sx))
    CALL(cudaMemcpyPeerAsync(c, 0, a, 0, n, s0))
    CALL(cudaMemcpy3DPeer(&p))
    CALL(cudaMemcpy3DPeer(NULL))
    CALL(cudaMemcpy3DPeer_ptds(&p))
    CALL(cudaMemcpy3DPeerAsync(&p, s0))
    CALL(cudaMemcpy3DPeerAsync(&p, s1))
    CALL(cudaMemcpy3DPeerAsync(&p, 0))
    CALL(cudaMemcpy3DPeerAsync(&p, cudaStreamLegacy))
    CALL(cudaMemcpy3DPeerAsync(&p, cudaStreamPerThread))
    CALL(cudaMemcpy3DPeerAsync(NULL, s0))
    CALL(cudaMemcpy3DPeerAsync_ptsz(&p, s0))
    CALL(cudaMemcpy3DPeerAsync_ptsz(&p, 0))
    CALL(cudaMemcpy3DPeerAsync(&p, sd))
    CALL(cuDeviceCanAccessPeer(&v, 0, 1))
    CALL(cuDeviceCanAccessPeer(&v, 0, 0))
    CALL(cuDeviceCanAccessPeer(NULL, 0, 1))
    CALL(cuDeviceCanAccessPeer(&v, 0, 99))
    CALL(cuDeviceCanAccessPeer(&v, -1, 0))
    CALL(cuDeviceCanAccessPeer(&v, 99, 99))
    CALL(cuDeviceCanAccessPeer(NULL, 0, 99))
    CALL(cuDeviceGetP2PAttribute(&v, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1))
    CALL(cuDeviceGetP2PAttribute(NULL, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1))
    CALL(cuDeviceGetP2PAttribute(&v, (CUdevice_P2PAttribute)77, 0, 1))
    CALL(cuDeviceGetP2PAttribute(&v, (CUdevice_P2PAttribute)0, 0, 1))
    CALL(cuDeviceGetP2PAttribute(&v, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0))
    CALL(cuDeviceGetP2PAttribute(&v, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 99))
    CALL(cuDeviceGetP2PAttribute(&v, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, -1, 0))
    CALL(cuDeviceGetP2PAttribute(NULL, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 99))
    CALL(cuDeviceGetP2PAttribute(NULL, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0))
    CALL(cuDeviceGetP2PAttribute(&v, (CUdevice_P2PAttribute)77, 0, 99))
    CALL(cuDeviceGetP2PAttribute(&v, (CUdevice_P2PAttribute)77, 0, 0))
    CALL(cuDeviceGetP2PAttribute(&v, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, 0, 1))
    CALL(cuCtxEnablePeerAccess(x1, 0))
    CALL(cuCtxEnablePeerAccess(x1, 1))
    CALL(cuCtxEnablePeerAccess(x0, 0))
    CALL(cuCtxEnablePeerAccess(x0, 1))
    CALL(cuCtxEnablePeerAccess(NULL, 0))
    CALL(cuCtxEnablePeerAccess(NULL, 1))
    CALL(cuCtxEnablePeerAccess((CUcontext)h, 0))
    CALL(cuCtxEnablePeerAccess(xd, 0))
    CALL(cuCtxEnablePeerAccess(xd, 1))
    CALL(cuCtxEnablePeerAccess(xo, 0))
    CALL(cuCtxDisablePeerAccess(x1))
    CALL(cuCtxDisablePeerAccess(x0))
    CALL(cuCtxDisablePeerAccess(NULL))
    CALL(cuCtxDisablePeerAccess((CUcontext)h))
    CALL(cuCtxDisablePeerAccess(xd))
    CALL(cuCtxDisablePeerAccess(xo))
    CALL(cuMemcpyPeer(db, x1, da, x0, n))
    CALL(cuMemcpyPeer(db, NULL, da, x0, n))
    CALL(cuMemcpyPeer(db, x1, da, NULL, n))
    CALL(cuMemcpyPeer(db, NULL, da, NULL, n))
    CALL(cuMemcpyPeer(db, x0, da, x1, n))
    CALL(cuMemcpyPeer(0, x1, da, x0, n))
    CALL(cuMemcpyPeer(db, x1, 0, x0, n))
    CALL(cuMemcpyPeer(db, x1, da, x0, 0))
    CALL(cuMemcpyPeer(0, x1, 0, x0, 0))
    CALL(cuMemcpyPeer(0, NULL, 0, NULL, 0))
    CALL(cuMemcpyPeer(0, NULL, da, x0, n))
    CALL(cuMemcpyPeer(db, (CUcontext)h, da, x0, n))
    CALL(cuMemcpyPeer(db, (CUcontext)h, da, x0, 0))
    CALL(cuMemcpyPeer(db, xd, da, x0, n))
    CALL(cuMemcpyPeer(db, xd, da, x0, 0))
    CALL(cuMemcpyPeer(0, xd, da, x0, n))
    CALL(cuMemcpyPeer(dc, x1, da, x0, n))
    CALL(cuMemcpyPeer(dh, x1, da, x0, n))
    CALL(cuMemcpyPeer(db, x1, dh, x0, n))
    CALL(cuMemcpyPeer(dp, x1, da, x0, n))
    CALL(cuMemcpyPeer(db, x1, da, x0, n * 64))
    CALL(cuMemcpyPeer(da, x0, da, x0, n))
    CALL(cuMemcpyPeer(db, x1, (CUdeviceptr)mg, x0, n))
    CALL(cuMemcpyPeer(db, x1, m, x0, n))
    CALL(cuMemcpyPeer(md, x1, da, x0, n))
    CALL(cuMemcpyPeer_ptds(db, x1, da, x0, n))
    CALL(cuMemcpyPeer_ptds(0, x1, da, x0, n))
    CALL(cuMemcpyPeer_ptds(db, NULL, da, NULL, n))
    CALL(cuMemcpyPeerAsync(db, x1, da, x0, n, s0))
    CALL(cuMemcpyPeerAsync(db, NULL, da, x0, n, s0))
    CALL(cuMemcpyPeerAsync(db, x1, da, NULL, n, s0))
    CALL(cuMemcpyPeerAsync(db, NULL, da, NULL, n, s0))
    CALL(cuMemcpyPeerAsync(db, x0, da, x1, n, s0))
    CALL(cuMemcpyPeerAsync(0, x1, da, x0, n, s0))
    CALL(cuMemcpyPeerAsync(db, x1, 0, x0, n, s0))
    CALL(cuMemcpyPeerAsync(db, x1, da, x0, 0, s0))
    CALL(cuMemcpyPeerAsync(0, x1, 0, x0, 0, s0))
    CALL(cuMemcpyPeerAsync(0, NULL, 0, NULL, 0, s0))
    CALL(cuMemcpyPeerAsync(0, NULL, da, x0, n, s0))
    CALL(cuMemcpyPeerAsync(db, (CUcontext)h, da, x0, n, s0))
    CALL(cuMemcpyPeerAsync(db, (CUcontext)h, da, x0, 0, s0))
    CALL(cuMemcpyPeerAsync(db, xd, da, x0, n, s0))
    CALL(cuMemcpyPeerAsync(db, xd, da, x0, 0, s0))
    CALL(cuMemcpyPeerAsync(0, xd, da, x0, n, s0))
    CALL(cuMemcpyPeerAsync(dc, x1, da, x0, n, s0))
    CALL(cuMemcpyPeerAsync(dh, x1, da, x0, n, s0))
    CALL(cuMemcpyPeerAsync(db, x1, dh, x0, n, s0))
    CALL(cuMemcpyPeerAsync(dp, x1, da, x0, n, s0))
    CALL(cuMemcpyPeerAsync(db, x1, da, x0, n * 64, s0))
    CALL(cuMemcpyPeerAsync(da, x0, da, x0, n, s0))
    CALL(cuMemcpyPeerAsync(db, x1, (CUdeviceptr)mg, x0, n, s0))
    CALL(cuMemcpyPeerAsync(db, x1, m, x0, n, s0))
    CALL(cuMemcpyPeerAsync(md, x1, da, x0, n, s0))
    CALL(cuMemcpyPeerAsync(db, x1, da, x0, n, s1))
    CALL(cuMemcpyPeerAsync(db, x1, da, x0, n, 0))
    CALL(cuMemcpyPeerAsync(db, x1, da, x0, n, CU_STREAM_LEGACY))
    CALL(cuMemcpyPeerAsync(db, x1, da, x0, n, CU_STREAM_PER_THREAD))
    CALL(cuMemcpyPeerAsync(db, x1, da, x0, n, sd))
    CALL(cuMemcpyPeerAsync(db, x1, da, x0, 0, sd))
    CALL(cuMemcpyPeerAsync(0, x1, da, x0, n, sd))
    CALL(cuMemcpyPeerAsync(db, x1, da, x0, n, (CUstream)h))
    CALL(cuMemcpyPeerAsync(db, x1, da, x0, n, sx))
    CALL(cuMemcpyPeerAsync_ptsz(db, x1, da, x0, n, s0))
    CALL(cuMemcpyPeerAsync_ptsz(db, x1, da, x0, n, 0))
    CALL(cuMemcpyPeerAsync_ptsz(db, x1, da, x0, n, CU_STREAM_LEGACY))
    CALL(cuMemcpyPeerAsync_ptsz(db, x1, da, x0, 0, 0))
    CALL(cuMemcpyPeerAsync_ptsz(db, x1, da, x0, n, sd))
    CALL(cuMemcpy3DPeer(&q))
    CALL(cuMemcpy3DPeer(NULL))
    CALL(cuMemcpy3DPeer_ptds(&q))
    CALL(cuMemcpy3DPeerAsync(&q, s0))
    CALL(cuMemcpy3DPeerAsync(&q, s1))
    CALL(cuMemcpy3DPeerAsync(&q, 0))
    CALL(cuMemcpy3DPeerAsync(&q, CU_STREAM_PER_THREAD))
    CALL(cuMemcpy3DPeerAsync(NULL, s0))
    CALL(cuMemcpy3DPeerAsync(&q, sd))
    CALL(cuMemcpy3DPeerAsync_ptsz(&q, s0))
    CALL(cuMemcpy3DPeerAsync_ptsz(&q, 0))
    CALL(cuMemPoolSetAccess(pool, &d, 1))
    CALL(cuMemPoolSetAccess(pool, &d, 0))
    CALL(cuMemPoolSetAccess(pool, NULL, 1))
    CALL(cuMemPoolSetAccess(pool, NULL, 0))
    CALL(cuMemPoolSetAccess(NULL, &d, 1))
    CALL(cuMemPoolSetAccess(NULL, &d, 0))
    CALL(cuMemPoolSetAccess(pool, e, 2))
    CALL(cuMemPoolGetAccess((CUmemAccess_flags *)&v, pool, &d.location))
    CALL(cuMemPoolGetAccess(NULL, pool, &d.location))
    CALL(cuMemPoolGetAccess((CUmemAccess_flags *)&v, NULL, &d.location))
    CALL(cuMemPoolGetAccess((CUmemAccess_flags *)&v, pool, NULL))
    CALL(cuMemSetAccess(m, g, &d, 1))
    CALL(cuMemSetAccess(m, g, &d, 0))
    CALL(cuMemSetAccess(m, g, NULL, 1))
    CALL(cuMemSetAccess(m, 0, &d, 1))
    CALL(cuMemSetAccess(m, g / 2, &d, 1))
    CALL(cuMemSetAccess(m, 2 * g, &d, 1))
    CALL(cuMemSetAccess(m + 1, g, &d, 1))
    CALL(cuMemSetAccess(0, g, &d, 1))
    CALL(cuMemSetAccess(da, g, &d, 1))
    CALL(cuMemSetAccess(m, g, e, 2))
    CALL(cuMemSetAccess(0, 0, &d, 1))
    CALL(cuMemGetAccess(&w, &d.location, m))
    CALL(cuMemGetAccess(NULL, &d.location, m))
    CALL(cuMemGetAccess(&w, NULL, m))
    CALL(cuMemGetAccess(&w, &d.location, m + 1))
    CALL(cuMemGetAccess(&w, &d.location, da))
    CALL(cuMemGetAccess(&w, &d.location, 0))
    CALL(cudaPointerGetAttributes((struct cudaPointerAttributes *)h, a))
    int answer = graph_call(call);
    if (answer != UNKNOWN)
        return answer;
    check_failed(__FILE__, __LINE__, call, "no CALL implements this call of the table");
    return 1;
}

struct row {
    char comment[8 * MAX_LINE]; /* the lines before it */
    char setup[MAX_LINE], call[MAX_LINE], documented[64], expected[64]; /* expected: "ret\tlast\tv" */
};

static const char reached[] = "reached\n";

/* So that what others say on standard error can be told apart, by process and row. */
static void announce(int number, const char *part)
{
    fprintf(stderr, "row %d in %d: %s\n", number, (int)getpid(), part);
}

/* Prints that the call was reached, then "ret\tlast\tv"; the last error must be gone once it was read. */
static int run_row(const struct row *row, int number, bool announced)
{
    const struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    bool runtime = without("cuda", row->call) != NULL;
    if (announced)
        announce(number, "setup");
    char steps[MAX_LINE], *rest, *text;
    strcpy(steps, row->setup);
    text = strtok_r(steps, ";", &rest);
    if (text && strcmp(text, "uninitialised") == 0)
        text = strtok_r(NULL, ";", &rest);
    else
        make_variables();
    for (; text; text = strtok_r(NULL, ";", &rest))
        prepare(text);
    if (runtime)
        cudaGetLastError();
    printf(reached);
    fflush(stdout);
    if (announced)
        announce(number, "call");

    int ret = evaluate(row->call);
    char last[64] = "-";
    if (runtime) {
        cudaError_t error = cudaGetLastError(), after = cudaGetLastError();
        snprintf(last, sizeof last, after == cudaSuccess ? "%d" : "%d then %d", error, after);
    }
    long long output = w == (unsigned long long)-7 ? v : (long long)w;
    graph_output(&output);
    printf("%d\t%s\t%lld\n", ret, last, output);
    fflush(stdout);
    _exit(0); /* whatever the row has done to the libraries: it is over */
}

/* ---- All rows, in the parent ---- */

enum { COLUMNS = 6 };

static int read_table(const char *path, struct row *rows)
{
    FILE *file = fopen(path, "r");
    if (!file) {
        perror(path);
        exit(2);
    }
    int count = 0;
    bool header_seen = false;
    char line[MAX_LINE];
    while (fgets(line, sizeof line, file)) {
        struct row *row = &rows[count];
        if (count == MAX_ROWS || strlen(row->comment) + strlen(line) >= sizeof row->comment)
            check_failed(path, count + 1, line, "there is no room for it");
        if (line[0] == '#' || !header_seen) {
            header_seen |= line[0] != '#';
            strcat(row->comment, line);
            continue;
        }
        line[strcspn(line, "\n")] = '\0';
        char *columns[COLUMNS] = {line};
        int found = 1;
        for (char *tab = line; found < COLUMNS && (tab = strchr(tab, '\t')) != NULL; found++) {
            if (found < 4) /* the answer stays one text */
                *tab = '\0';
            columns[found] = ++tab;
        }
        if (found < COLUMNS || strlen(columns[2]) >= sizeof row->documented || strlen(columns[3]) >= sizeof row->expected)
            check_failed(path, count + 1, line, "is not a row");
        strcpy(row->setup, columns[0]);
        strcpy(row->call, columns[1]);
        strcpy(row->documented, columns[2]);
        strcpy(row->expected, columns[3]);
        count++;
    }
    fclose(file);
    return count;
}

struct child {
    pid_t pid;
    int output, row, time;
    time_t begun;
};

static time_t now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec;
}

static struct child begin(int row, int time, const char *table, bool announced)
{
    int ends[2];
    if (pipe(ends) != 0) {
        perror("pipe");
        exit(2);
    }
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0) {
        perror("fork");
        exit(2);
    }
    if (pid == 0) {
        char text[16];
        snprintf(text, sizeof text, "%d", row);
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        alarm(TIMEOUT_SECONDS);
        execl("/proc/self/exe", "conformance", "--row", text, table, announced ? "--announce" : NULL, (char *)NULL);
        perror("/proc/self/exe");
        _exit(2);
    }
    close(ends[1]);
    return (struct child){.pid = pid, .output = ends[0], .row = row, .time = time, .begun = now()};
}

enum { ANSWER = 128 };

/* What a row has answered: as in the table, or a word on what went wrong. */
static void answer_of(const struct child *child, int status, char *answer)
{
    char text[ANSWER];
    size_t length = 0;
    for (ssize_t got; length + 1 < sizeof text && (got = read(child->output, text + length, sizeof text - 1 - length)) > 0;)
        length += (size_t)got;
    close(child->output);
    text[length] = '\0';

    const char *line = without(reached, text);
    const char *where = line ? "" : "setup ";
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        snprintf(answer, ANSWER, "%stimeout\t-\t-", where);
    else if (WIFSIGNALED(status))
        snprintf(answer, ANSWER, "%scrash\t-\t-", where);
    else if (!line || WEXITSTATUS(status) != 0)
        snprintf(answer, ANSWER, "%sexit %d\t-\t-", where, WEXITSTATUS(status));
    else
        snprintf(answer, ANSWER, "%.*s", (int)strcspn(line, "\n"), line);
}

/* What has been answered, and how that compares. */
static char answers[MAX_ROWS][MAX_TIMES][ANSWER];

struct run {
    const char *table;
    const struct row *rows;
    int from, to, jobs, times; /* rows from <= i < to */
    bool measure, crash_or_error, announced;
    int printed, same, wrong;
};

static bool is_error(const char *answer)
{
    int ret = 0;
    return sscanf(answer, "%d\t", &ret) == 1 && ret != 0;
}

static void judge(struct run *run, int i)
{
    const struct row *row = &run->rows[i];
    const char *answer = answers[i][0], *expected = row->expected;
    int wrong = 0;
    if (without("setup ", answer)) {
        wrong++;
        fprintf(stderr, "row %d does not come to its call: %s; %s: %s\n", i + 1, row->setup, row->call, answer);
    }
    for (int time = 1; time < run->times; time++)
        if (strcmp(answer, answers[i][time]) != 0) {
            wrong++;
            fprintf(stderr, "row %d is not stable: %s; %s: %s, then %s\n", i + 1, row->setup, row->call, answer,
                    answers[i][time]);
        }
    bool is_fatal = without("crash", expected) || without("timeout", expected);
    bool as_expected = strcmp(answer, expected) == 0 || (is_fatal && run->crash_or_error && is_error(answer));
    if (!run->measure && !as_expected) {
        wrong++;
        fprintf(stderr, "row %d differs: %s; %s: expected %s, got %s\n", i + 1, row->setup, row->call, expected, answer);
    }
    run->wrong += wrong > 0;
    run->same += wrong == 0;
}

/* Prints the rows that are done, up to the first that is not. */
static void print_done(struct run *run)
{
    for (; run->printed < run->to; run->printed++) {
        const struct row *row = &run->rows[run->printed];
        for (int time = 0; time < run->times; time++)
            if (answers[run->printed][time][0] == '\0')
                return;
        judge(run, run->printed);
        printf("%s%s\t%s\t%s\t%s\n", run->measure ? row->comment : "", row->setup, row->call, row->documented,
               answers[run->printed][0]);
        fflush(stdout);
        int done = run->printed + 1 - run->from;
        if (run->measure && done % 50 == 0)
            fprintf(stderr, "%d of %d rows\n", done, run->to - run->from);
    }
}

static void run_all(struct run *run)
{
    struct child running[MAX_JOBS];
    const int all = (run->to - run->from) * run->times;
    int begun = 0, under_way = 0;
    while (begun < all || under_way > 0) {
        for (; begun < all && under_way < run->jobs; begun++)
            running[under_way++] = begin(run->from + begun / run->times, begun % run->times, run->table, run->announced);
        bool any = false;
        for (int i = 0; i < under_way; i++) {
            char *answer = answers[running[i].row][running[i].time];
            int status = 0;
            if (waitpid(running[i].pid, &status, WNOHANG) == running[i].pid) {
                answer_of(&running[i], status, answer);
            } else if (now() - running[i].begun > TIMEOUT_SECONDS + 5) {
                /* It does not even hear its alarm, deep in the driver: leave it there. */
                kill(running[i].pid, SIGKILL);
                close(running[i].output);
                snprintf(answer, ANSWER, "timeout\t-\t-");
            } else {
                continue;
            }
            running[i--] = running[--under_way];
            any = true;
        }
        if (any)
            print_done(run);
        else
            usleep(1000);
    }
}

static int number_in(const char *text, int most)
{
    int number = text ? atoi(text) : 0;
    return number >= 1 && number <= most ? number : 0;
}

int main(int argc, char **argv)
{
    static struct row rows[MAX_ROWS + 1];
    struct run run = {.rows = rows, .to = MAX_ROWS, .jobs = 1, .times = 1};
    int only = -1;
    bool understood = true;
    for (int i = 1; i < argc && understood; i++) {
        if (strcmp(argv[i], "--row") == 0 && i + 1 < argc)
            only = atoi(argv[++i]);
        else if (strcmp(argv[i], "--only") == 0)
            understood = sscanf(argv[++i] ? argv[i] : "", "%d-%d", &run.from, &run.to) == 2 && run.from-- > 0;
        else if (strcmp(argv[i], "--jobs") == 0)
            run.jobs = number_in(argv[++i], MAX_JOBS);
        else if (strcmp(argv[i], "--times") == 0)
            run.times = number_in(argv[++i], MAX_TIMES);
        else if (strcmp(argv[i], "--allow-crash-rows-error") == 0)
            run.crash_or_error = true;
        else if (strcmp(argv[i], "--announce") == 0)
            run.announced = true;
        else if (strcmp(argv[i], "measure") == 0 && i == 1)
            run.measure = true;
        else if (argv[i] && argv[i][0] != '-' && !run.table)
            run.table = argv[i];
        else
            understood = false;
    }
    if (!understood || !run.table || !run.jobs || !run.times || (run.times > 1 && !run.measure)) {
        fprintf(stderr, "usage: conformance [--jobs N] [--only FROM-TO] [--allow-crash-rows-error] [--announce] TABLE.tsv\n"
                        "       conformance measure [--jobs N] [--only FROM-TO] [--times N] [--announce] TABLE.tsv\n");
        return 2;
    }
    int count = read_table(run.table, rows);
    if (only >= 0)
        return only < count ? run_row(&rows[only], only + 1, run.announced) : 2;
    run.to = run.to < count ? run.to : count;
    run.printed = run.from;
    if (!run.measure)
        printf("setup\tcall\tdocumented\tret\tlast\tv\n");
    run_all(&run);
    if (run.measure)
        fputs(rows[count].comment, stdout);
    else
        printf("# %d rows: %d as expected, %d differ\n", run.same + run.wrong, run.same, run.wrong);
    return run.wrong == 0 && run.same > 0 ? 0 : 1;
}
