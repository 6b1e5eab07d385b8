/* build: driver; run: blocked_beside_frees asks|late COPIES on sim
 * One thread copies from device 0 to device 1, in each form of copy, while another does nothing but allocate and free: does the data of each
 * copy arrive? For pairs that p2pshim has to stage.
 *
 *   asks    the program enables access
 *   late    it does so while it captures, so that the pair is verified by copies; those are not looked at
 *
 * Prints what enabling returned, and how many copies are wrong.
 */
#include <cuda.h>

#include "check.h"

enum { BYTES = 64 << 10, WARM = 40, FORMS = 5 };

typedef CUresult batch_fn(CUdeviceptr *, CUdeviceptr *, size_t *, size_t, CUmemcpyAttributes *, size_t *, size_t, size_t *, CUstream);

static CUcontext contexts[2];
static CUdeviceptr src, dst;
static CUstream streams[2];
static batch_fn *copy_batch;
static atomic_bool is_over;

static void *frees(void *unused)
{
    CHECK_CU(cuCtxSetCurrent(contexts[0]));
    while (!is_over) {
        CUdeviceptr at;
        CHECK_CU(cuMemAlloc(&at, 4096));
        CHECK_CU(cuMemFree(at));
    }
    return unused;
}

static CUresult copy(int form)
{
    size_t bytes = BYTES, first = 0, failed;
    CUdeviceptr from = src, to = dst;
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    CUDA_MEMCPY3D_PEER peer = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .dstMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = src,
                               .dstDevice = dst, .srcContext = contexts[0], .dstContext = contexts[1], .srcPitch = 1024, .dstPitch = 1024,
                               .srcHeight = BYTES / 1024, .dstHeight = BYTES / 1024, .WidthInBytes = 1024, .Height = BYTES / 1024, .Depth = 1};
    switch (form) {
    case 0:
        return cuMemcpyPeerAsync(dst, contexts[1], src, contexts[0], BYTES, streams[0]);
    case 1:
        return cuMemcpyDtoDAsync(dst, src, BYTES, streams[0]);
    case 2:
        return cuMemcpyAsync(dst, src, BYTES, streams[0]);
    case 3:
        return cuMemcpy3DPeerAsync(&peer, streams[0]);
    default:
        return copy_batch ? copy_batch(&to, &from, &bytes, 1, &attributes, &first, 1, &failed, streams[0])
                          : cuMemcpyPeerAsync(dst, contexts[1], src, contexts[0], BYTES, streams[0]);
    }
}

static bool arrives(int number)
{
    static unsigned char sent[BYTES], got[BYTES];
    memset(sent, number * 7 + 1, BYTES);
    CHECK_CU(cuCtxSetCurrent(contexts[0]));
    CHECK_CU(cuMemcpyHtoDAsync(src, sent, BYTES, streams[0]));
    CHECK_CU(copy(number % FORMS));
    CHECK_CU(cuStreamSynchronize(streams[0]));
    CHECK_CU(cuCtxSetCurrent(contexts[1]));
    CHECK_CU(cuMemcpyDtoHAsync(got, dst, BYTES, streams[1]));
    CHECK_CU(cuStreamSynchronize(streams[1]));
    return memcmp(sent, got, BYTES) == 0;
}

int main(int argc, char **argv)
{
    CUdevice devices[2];
    CUstream captured;
    CUgraph graph;
    pthread_t thread;
    CUdriverProcAddressQueryResult result;
    REQUIRE(argc == 3);
    int copies = atoi(argv[2]), wrong = 0, is_late = strcmp(argv[1], "late") == 0;
    CHECK_CU(cuInit(0));
    for (int i = 0; i < 2; i++) {
        CHECK_CU(cuDeviceGet(&devices[i], i));
        contexts[i] = primary_context(devices[i]);
        CHECK_CU(cuMemAlloc(i ? &dst : &src, BYTES));
        CHECK_CU(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    }
    (void)cuGetProcAddress("cuMemcpyBatchAsync", (void **)&copy_batch, 12080, CU_GET_PROC_ADDRESS_DEFAULT, &result);
    if (is_late) {
        CHECK_CU(cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
        CHECK_CU(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
    }
    for (int i = 0; i < 2; i++) {
        CHECK_CU(cuCtxSetCurrent(contexts[i]));
        printf("access: %s\n", driver_error_name(cuCtxEnablePeerAccess(contexts[!i], 0)));
    }
    if (is_late)
        CHECK_CU(cuStreamEndCapture(captured, &graph));
    for (int number = 0; number < WARM; number++)
        (void)arrives(number);
    REQUIRE(pthread_create(&thread, NULL, frees, NULL) == 0);
    for (int number = 0; number < copies; number++)
        wrong += !arrives(number);
    is_over = true;
    pthread_join(thread, NULL);
    printf("%d of %d copies are wrong\n", wrong, copies);
    return 0;
}
