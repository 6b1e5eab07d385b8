/* build: driver; run: broken_paths nobody|program|asks|pool|mapped [times] on sim gpu
 * Copies between two devices in seven forms, with peer access that somebody has enabled, or nobody: does the data arrive? For
 * paths that are broken.
 *
 *   nobody   peer access is not enabled by the program
 *   program  the program enables it, both ways
 *   asks     the same, if the driver says that there is a path
 *   pool     the memory comes from pools, and the program grants the other device access to them
 *   mapped   the program maps the memory, and grants the other device access to it
 *   times    prints nothing else than how many microseconds the first enabling takes
 *
 * Prints what enabling returned, and a line for each form: right, WRONG, hangs, or refused, as regular copies are of memory with
 * rights of its own that the current device does not have. Waits for no device, and ends by _exit.
 */
#include <cuda.h>

#include "check.h"
#include "lib/batches.h"
#include "lib/mappings.h"

enum {
    COUNT = 24, /* copies of each form; one alone would be too few for a pair to be worth enabling */
    BYTES = 64 << 10,
    SIZE = COUNT * BYTES,
    OFFSET = 16 << 20, /* of what is copied in its allocation: behind a window that is too small */
    ALLOCATED = 18 << 20, /* in whole granules of a mapping */
};

static CUcontext contexts[2];
static CUmemoryPool pools[2];
static const char *who;

static int is(const char *word)
{
    return strcmp(who, word) == 0;
}

/* Once each way is enough. */
static void show_enabling(CUresult result)
{
    static int shown;
    if (shown++ < 2)
        printf("access: %s\n", driver_error_name(result));
}

static CUdeviceptr map(int device)
{
    CUdeviceptr at = mapped_memory(device, ALLOCATED, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    show_enabling(grant_mapping(at, ALLOCATED, !device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    return at;
}

static CUdeviceptr take(int device, CUstream stream)
{
    CUdeviceptr at;
    CHECK_CU(cuCtxSetCurrent(contexts[device]));
    if (is("mapped")) {
        at = map(device);
    } else if (is("pool")) {
        CHECK_CU(cuMemAllocFromPoolAsync(&at, ALLOCATED, pools[device], stream));
        CHECK_CU(cuStreamSynchronize(stream));
    } else {
        CHECK_CU(cuMemAlloc(&at, ALLOCATED));
    }
    return at + OFFSET;
}

/* One way: who reaches whose memory. */
static void enable(int from, int to)
{
    int can = 1;
    if (is("asks"))
        CHECK_CU(cuDeviceCanAccessPeer(&can, from, to));
    CHECK_CU(cuCtxSetCurrent(contexts[from]));
    if (!can)
        printf("access: there is no path\n");
    else if (is("program") || is("asks"))
        show_enabling(cuCtxEnablePeerAccess(contexts[to], 0));
    else if (is("pool"))
        show_enabling(grant_pool(pools[to], from, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
}

static CUresult copy_peer(CUdeviceptr dst, CUdeviceptr src, CUstream stream)
{
    CUresult code = CUDA_SUCCESS;
    for (size_t at = 0; at < SIZE && code == CUDA_SUCCESS; at += BYTES)
        code = cuMemcpyPeerAsync(dst + at, contexts[1], src + at, contexts[0], BYTES, stream);
    return code;
}

static CUresult copy_regular(CUdeviceptr dst, CUdeviceptr src, CUstream stream)
{
    CUresult code = CUDA_SUCCESS;
    for (size_t at = 0; at < SIZE && code == CUDA_SUCCESS; at += BYTES)
        code = cuMemcpyDtoDAsync(dst + at, src + at, BYTES, stream);
    return code;
}

static CUresult copy_3d(CUdeviceptr dst, CUdeviceptr src, CUstream stream)
{
    CUDA_MEMCPY3D_PEER p = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .dstMemoryType = CU_MEMORYTYPE_DEVICE};
    p.srcContext = contexts[0];
    p.dstContext = contexts[1];
    p.srcPitch = p.dstPitch = p.WidthInBytes = 256;
    p.srcHeight = p.dstHeight = p.Height = BYTES / 256;
    p.Depth = 1;
    CUresult code = CUDA_SUCCESS;
    for (size_t at = 0; at < SIZE && code == CUDA_SUCCESS; at += BYTES) {
        p.srcDevice = src + at;
        p.dstDevice = dst + at;
        code = cuMemcpy3DPeerAsync(&p, stream);
    }
    return code;
}

/* The stream's next work comes after the copy, as that of a default stream would. */
static CUresult copy_synchronous(CUdeviceptr dst, CUdeviceptr src, CUstream stream)
{
    CUresult code = CUDA_SUCCESS;
    CUevent done;
    for (size_t at = 0; at < SIZE && code == CUDA_SUCCESS; at += BYTES)
        code = cuMemcpyPeer(dst + at, contexts[1], src + at, contexts[0], BYTES);
    CHECK_CU(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
    CHECK_CU(cuEventRecord(done, 0));
    CHECK_CU(cuStreamWaitEvent(stream, done, 0));
    return code;
}

/* Every other row of 256 bytes, and then the others. */
static CUresult copy_2d(CUdeviceptr dst, CUdeviceptr src, CUstream stream)
{
    CUDA_MEMCPY2D p = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED, .dstMemoryType = CU_MEMORYTYPE_UNIFIED};
    CUresult code = CUDA_SUCCESS;
    p.srcPitch = p.dstPitch = 512;
    p.WidthInBytes = 256;
    p.Height = SIZE / 512;
    for (size_t at = 0; at < 512 && code == CUDA_SUCCESS; at += 256) {
        p.srcDevice = src + at;
        p.dstDevice = dst + at;
        code = cuMemcpy2DAsync(&p, stream);
    }
    return code;
}

static CUresult batch(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, CUstream stream)
{
    struct attributes attributes = {.order = IN_ORDER};
    size_t first = 0, failed = 0;
    return batches.linear(dsts, srcs, sizes, COUNT, &attributes, &first, 1, &failed, stream);
}

/* What is wrong with a batch is seen before anything is copied, on whichever path. */
static CUresult copy_batch(CUdeviceptr dst, CUdeviceptr src, CUstream stream)
{
    CUdeviceptr dsts[COUNT], srcs[COUNT];
    size_t sizes[COUNT];
    for (int n = 0; n < COUNT; n++) {
        dsts[n] = dst + (size_t)n * BYTES;
        srcs[n] = src + (size_t)n * BYTES;
        sizes[n] = BYTES;
    }
    REQUIRE(batch(dsts, srcs, sizes, NULL) == CUDA_ERROR_INVALID_VALUE);
    sizes[COUNT - 1] = 0;
    REQUIRE(batch(dsts, srcs, sizes, stream) == CUDA_ERROR_INVALID_VALUE);
    sizes[COUNT - 1] = BYTES;
    return batch(dsts, srcs, sizes, stream);
}

static CUresult copy_graph(CUdeviceptr dst, CUdeviceptr src, CUstream stream)
{
    CUDA_MEMCPY3D p = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED, .dstMemoryType = CU_MEMORYTYPE_UNIFIED};
    CUgraphNode node;
    CUgraph graph;
    CUgraphExec exec;
    p.srcDevice = src;
    p.dstDevice = dst;
    p.srcPitch = p.dstPitch = p.WidthInBytes = SIZE;
    p.Height = p.srcHeight = p.dstHeight = p.Depth = 1;
    CHECK_CU(cuGraphCreate(&graph, 0));
    CUresult code = cuGraphAddMemcpyNode(&node, graph, NULL, 0, &p, contexts[0]);
    if (code != CUDA_SUCCESS)
        return code;
    CHECK_CU(cuGraphInstantiate(&exec, graph, 0));
    return cuGraphLaunch(exec, stream);
}

/* Waits at most a second for what may hang, else as long as a busy machine may need. */
static int has_ended(CUstream stream)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    const char *fault = getenv("P2PSIM_FAULT");
    const int most = fault && !strstr(fault, "hang") ? 60000 : 1000;
    for (int n = 0; n < most; n++) {
        CUresult state = cuStreamQuery(stream);
        if (state != CUDA_ERROR_NOT_READY) {
            CHECK_CU(state);
            return 1;
        }
        nanosleep(&moment, NULL);
    }
    return 0;
}

static void show(const char *form, unsigned char seed, CUresult (*copy)(CUdeviceptr, CUdeviceptr, CUstream), CUdeviceptr dst,
                 CUdeviceptr src)
{
    static unsigned char sent[SIZE], received[SIZE];
    CUstream streams[2];
    for (int device = 0; device < 2; device++) {
        CHECK_CU(cuCtxSetCurrent(contexts[device]));
        CHECK_CU(cuStreamCreate(&streams[device], CU_STREAM_NON_BLOCKING));
    }
    fill(sent, SIZE, seed);
    CHECK_CU(cuCtxSetCurrent(contexts[0]));
    CHECK_CU(cuMemcpyHtoDAsync(src, sent, SIZE, streams[0]));
    CHECK_CU(cuStreamSynchronize(streams[0]));
    CUresult code = copy(dst, src, streams[0]);
    if (code == CUDA_ERROR_INVALID_VALUE && (is("pool") || is("mapped"))) {
        printf("%s: refused\n", form);
        return;
    }
    CHECK_CU(code);
    if (!has_ended(streams[0])) {
        printf("%s: hangs\n", form);
        return;
    }
    CHECK_CU(cuCtxSetCurrent(contexts[1]));
    CHECK_CU(cuMemcpyDtoHAsync(received, dst, SIZE, streams[1]));
    CHECK_CU(cuStreamSynchronize(streams[1]));
    printf("%s: %s\n", form, memcmp(sent, received, SIZE) == 0 ? "right" : "WRONG");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        CUresult (*copy)(CUdeviceptr, CUdeviceptr, CUstream);
    } forms[] = {{"peer", copy_peer}, {"regular", copy_regular}, {"batch", copy_batch}, {"graph", copy_graph}, {"3D", copy_3d},
                 {"synchronous", copy_synchronous}, {"2D", copy_2d}};
    enum { FORMS = sizeof forms / sizeof *forms };
    CUdeviceptr memory[FORMS][2];
    CUstream streams[2];
    REQUIRE(argc == 2 || argc == 3);
    who = argv[1];
    find_batches();
    CHECK_CU(cuInit(0));
    for (int device = 0; device < 2; device++) {
        contexts[device] = primary_context(device);
        CHECK_CU(new_pool(&pools[device], device));
        CHECK_CU(cuStreamCreate(&streams[device], CU_STREAM_NON_BLOCKING));
    }
    if (argc == 3) {
        struct timespec begun, ended;
        clock_gettime(CLOCK_MONOTONIC, &begun);
        CHECK_CU(cuCtxSetCurrent(contexts[0]));
        CHECK_CU(cuCtxEnablePeerAccess(contexts[1], 0));
        clock_gettime(CLOCK_MONOTONIC, &ended);
        printf("%.1f\n", (double)(ended.tv_sec - begun.tv_sec) * 1e6 + (double)(ended.tv_nsec - begun.tv_nsec) / 1e3);
        return 0;
    }
    enable(0, 1);
    enable(1, 0);
    for (int form = 0; form < FORMS; form++)
        for (int device = 0; device < 2; device++)
            memory[form][device] = take(device, streams[device]);
    for (int form = 0; form < FORMS; form++)
        show(forms[form].name, (unsigned char)form, forms[form].copy, memory[form][1], memory[form][0]);
    fflush(stdout);
    _exit(0);
}
