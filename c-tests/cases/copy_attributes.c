/* build: driver; run: copy_attributes BYTES… on sim
 * Copies with attributes (CUDA 13.2), between two devices: from when to when may the source be read, and what is refused?
 *
 * Prints a line for each form, order of access and number of bytes: what the destination holds, if the source is overwritten as soon as the
 * call has returned. With `stream` the copy is held up until then; with `during_call` for 50 ms, and it has to hold what the source held
 * during the call. Then what is refused, and that nothing was copied.
 */
#include <cuda.h>

#include "check.h"

enum { FIRST = 0x11, SECOND = 0x22, NOTHING = 0x33, PITCH = 4096, STREAM = 1, DURING_CALL = 2, ANY = 3 };

typedef CUresult copy_fn(CUdeviceptr, CUdeviceptr, size_t, CUmemcpyAttributes *, CUstream);
typedef CUresult copy_3d_fn(CUDA_MEMCPY3D_BATCH_OP *, unsigned long long, CUstream);

static CUcontext contexts[2];
static CUstream streams[2], other;
static CUdeviceptr src, dst;
static copy_fn *copy;
static copy_3d_fn *copy_3d;
static atomic_bool is_let_go;

static void CUDA_CB wait_a_while(void *unused)
{
    (void)unused;
    sleep_for(50);
}

static void CUDA_CB wait_for_the_program(void *unused)
{
    (void)unused;
    while (!is_let_go)
        sleep_for(1);
}

static void set(CUdeviceptr at, unsigned char value, size_t bytes, CUstream stream)
{
    CHECK_CU(cuMemsetD8Async(at, value, bytes, stream));
    CHECK_CU(cuStreamSynchronize(stream));
}

static void prepare(size_t bytes)
{
    CHECK_CU(cuCtxSetCurrent(contexts[1]));
    set(dst, NOTHING, bytes, streams[1]);
    CHECK_CU(cuCtxSetCurrent(contexts[0]));
    set(src, FIRST, bytes, streams[0]);
}

static CUresult make(bool is_3d, size_t bytes, int order, unsigned flags)
{
    CUmemcpyAttributes attributes = {.srcAccessOrder = (CUmemcpySrcAccessOrder)order, .flags = flags};
    CUDA_MEMCPY3D_BATCH_OP op = {.srcAccessOrder = (CUmemcpySrcAccessOrder)order, .flags = flags};
    op.src.type = op.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    op.src.op.ptr.ptr = src, op.dst.op.ptr.ptr = dst;
    op.extent.width = PITCH, op.extent.height = bytes / PITCH, op.extent.depth = 1;
    return is_3d ? copy_3d(&op, 0, streams[0]) : copy(dst, src, bytes, &attributes, streams[0]);
}

/* What all bytes of the destination are, if they are the same. */
static const char *found(size_t bytes)
{
    unsigned char *got = malloc(bytes);
    REQUIRE(got);
    CHECK_CU(cuCtxSetCurrent(contexts[1]));
    CHECK_CU(cuMemcpyDtoHAsync(got, dst, bytes, streams[1]));
    CHECK_CU(cuStreamSynchronize(streams[1]));
    CHECK_CU(cuCtxSetCurrent(contexts[0]));
    bool is_one = memcmp(got, got + 1, bytes - 1) == 0;
    unsigned char value = got[0];
    free(got);
    if (!is_one)
        return "a mixture";
    return value == FIRST ? "what the source held during the call" : value == SECOND ? "what it held later" : value == NOTHING ? "nothing" : "something else";
}

static void show(bool is_3d, size_t bytes, int order)
{
    static const char *const orders[] = {NULL, "stream", "during_call", "any"};
    prepare(bytes);
    is_let_go = false;
    CHECK_CU(cuLaunchHostFunc(streams[0], order == DURING_CALL ? wait_a_while : wait_for_the_program, NULL));
    CUresult ret = make(is_3d, bytes, order, 0);
    /* Of any order the program knows nothing, so it keeps its source. */
    if (order != ANY)
        set(src, SECOND, bytes, other);
    is_let_go = true;
    CHECK_CU(cuStreamSynchronize(streams[0]));
    printf("%s, %zu bytes, %s: %s, %s\n", is_3d ? "3D" : "linear", bytes, orders[order], driver_error_name(ret), found(bytes));
}

static void show_refused(bool is_3d, size_t bytes, int order, unsigned flags)
{
    prepare(bytes);
    CUresult ret = make(is_3d, bytes, order, flags);
    CHECK_CU(cuStreamSynchronize(streams[0]));
    printf("%s, order %d, flags %u: %s, %s\n", is_3d ? "3D" : "linear", order, flags, driver_error_name(ret), found(bytes));
}

int main(int argc, char **argv)
{
    CUdriverProcAddressQueryResult result;
    CUdevice devices[2];
    size_t most = 0;
    CHECK_CU(cuInit(0));
    for (int i = 0; i < 2; i++) {
        CHECK_CU(cuDeviceGet(&devices[i], i));
        CHECK_CU(cuDevicePrimaryCtxRetain(&contexts[i], devices[i]));
    }
    (void)cuGetProcAddress("cuMemcpyWithAttributesAsync", (void **)&copy, 13020, CU_GET_PROC_ADDRESS_DEFAULT, &result);
    (void)cuGetProcAddress("cuMemcpy3DWithAttributesAsync", (void **)&copy_3d, 13020, CU_GET_PROC_ADDRESS_DEFAULT, &result);
    REQUIRE(copy && copy_3d);
    for (int word = 1; word < argc; word++)
        most = most > strtoul(argv[word], NULL, 10) ? most : strtoul(argv[word], NULL, 10);
    REQUIRE(most >= PITCH);
    for (int i = 0; i < 2; i++) {
        CHECK_CU(cuCtxSetCurrent(contexts[i]));
        CHECK_CU(cuMemAlloc(i ? &dst : &src, most));
        CHECK_CU(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    }
    CHECK_CU(cuCtxSetCurrent(contexts[0]));
    CHECK_CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    for (int word = 1; word < argc; word++)
        for (int is_3d = 0; is_3d < 2; is_3d++) {
            size_t bytes = strtoul(argv[word], NULL, 10);
            for (int order = STREAM; order <= ANY; order++)
                show(is_3d, bytes, order);
            show_refused(is_3d, bytes, 0, 0);
            show_refused(is_3d, bytes, 9, 0);
            show_refused(is_3d, bytes, STREAM, 2);
            if (!is_3d) {
                prepare(bytes);
                CUresult ret = copy(dst, src, bytes, NULL, streams[0]);
                CHECK_CU(cuStreamSynchronize(streams[0]));
                printf("no attributes: %s, %s\n", driver_error_name(ret), found(bytes));
            }
        }
    return 0;
}
