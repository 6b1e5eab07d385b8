/* build: hip; run: hip_regular on sim
 * Copies by HIP's functions that name no devices, each between two devices, inside one, and with the host; from 7.1 on batches
 * too. Exits with 0 only if all bytes arrive.
 */
#include "hip.h"

enum { WIDTH = 1 << 10, HEIGHT = 1 << 10, SIZE = WIDTH * HEIGHT, FUNCTIONS = 15 };

static unsigned char sent[SIZE], received[SIZE];

static hipError_t copy(int function, void *dst, void *src, hipMemcpyKind kind, hipStream_t stream)
{
    /* All of it, as rows and as slices. */
    hipMemcpy3DParms box = {.srcPtr = {src, WIDTH, WIDTH, HEIGHT / 4}, .dstPtr = {dst, WIDTH, WIDTH, HEIGHT / 4}, .kind = kind};
    box.extent = (hipExtent){WIDTH, HEIGHT / 4, 4};
    switch (function) {
    case 0:
        return hipMemcpy(dst, src, SIZE, kind);
    case 1:
        return hipMemcpyAsync(dst, src, SIZE, kind, stream);
    case 2:
        return hipMemcpyWithStream(dst, src, SIZE, kind, stream);
    case 3:
        return hipMemcpyDtoD(dst, src, SIZE);
    case 4:
        return hipMemcpyDtoDAsync(dst, src, SIZE, stream);
    case 5:
        return hipMemcpy2D(dst, WIDTH, src, WIDTH, WIDTH, HEIGHT, kind);
    case 6:
        return hipMemcpy2DAsync(dst, WIDTH, src, WIDTH, WIDTH, HEIGHT, kind, stream);
    case 7:
        return hipMemcpy3D(&box);
    case 8:
        return hipMemcpy3DAsync(&box, stream);
    case 9:
        return hipMemcpy_spt(dst, src, SIZE, kind);
    case 10:
        return hipMemcpyAsync_spt(dst, src, SIZE, kind, NULL);
    case 11:
        return hipMemcpy2D_spt(dst, WIDTH, src, WIDTH, WIDTH, HEIGHT, kind);
    case 12:
        return hipMemcpy2DAsync_spt(dst, WIDTH, src, WIDTH, WIDTH, HEIGHT, kind, NULL);
    case 13:
        return hipMemcpy3D_spt(&box);
    default:
        return hipMemcpy3DAsync_spt(&box, NULL);
    }
}

static void check_received(const void *from)
{
    memset(received, 0, SIZE);
    CHECK(hipMemcpy(received, from, SIZE, hipMemcpyDefault));
    REQUIRE(memcmp(sent, received, SIZE) == 0);
}

#if HIP_MAJOR >= 7
/* Batches of which two copies go from device to device, one back, and one stays on its device; and one that stays there whole. */
static void batches(unsigned char *here, unsigned char *beside, unsigned char *there, hipStream_t stream)
{
    enum { QUARTER = SIZE / 4 };
    size_t sizes[] = {QUARTER, QUARTER / 2, QUARTER, QUARTER}, first = 0, failed = 7;
    hipMemcpyAttributes attributes = {.srcAccessOrder = 1};
    void *dsts[] = {there, there + QUARTER, here + 2 * QUARTER, here + 3 * QUARTER};
    void *srcs[] = {here, here + QUARTER, there + 2 * QUARTER, beside + 3 * QUARTER};
    static hipMemcpy3DBatchOp operations[4];
    for (int i = 0; i < 4; i++) {
        operations[i].src.type = operations[i].dst.type = 1;
        operations[i].src.op.ptr.ptr = srcs[i];
        operations[i].dst.op.ptr.ptr = dsts[i];
        operations[i].extent = (hipExtent){64, sizes[i] / 64, 1};
        operations[i].srcAccessOrder = 1;
    }
    for (unsigned form = 0; form < 2; form++) {
        fill(sent, SIZE, 100 + form);
        CHECK(hipMemcpy(form ? there : here, sent, SIZE, hipMemcpyHostToDevice));
        for (int i = 0; i < 3; i++)
            CHECK(form ? hipMemcpy3DBatchAsync(4, operations, &failed, 0, stream)
                       : hipMemcpyBatchAsync(dsts, srcs, sizes, 4, &attributes, &first, 1, &failed, stream));
        CHECK(hipStreamSynchronize(stream));
        REQUIRE(failed == SIZE_MAX);
        CHECK(hipMemcpy(received, form ? here : there, SIZE, hipMemcpyDefault));
        size_t from = form ? 2 * QUARTER : 0, size = form ? QUARTER : QUARTER + QUARTER / 2;
        REQUIRE(memcmp(received + from, sent + from, size) == 0);
    }
    void *inside[] = {beside};
    CHECK(hipMemcpyBatchAsync(inside, srcs, sizes, 1, NULL, NULL, 0, NULL, stream));
    CHECK(hipStreamSynchronize(stream));
}
#endif

int main(void)
{
    void *here, *beside, *there;
    hipStream_t stream;
    CHECK(hipSetDevice(1));
    CHECK(hipMalloc(&there, SIZE));
    CHECK(hipSetDevice(0));
    CHECK(hipMalloc(&here, SIZE));
    CHECK(hipMalloc(&beside, SIZE));
    CHECK(hipStreamCreate(&stream));
    for (int function = 0; function < FUNCTIONS; function++) {
        fill(sent, SIZE, (unsigned)function);
        CHECK(hipMemcpy(beside, sent, SIZE, hipMemcpyHostToDevice));
        CHECK(copy(function, here, beside, hipMemcpyDeviceToDevice, stream));
        CHECK(hipDeviceSynchronize());
        CHECK(copy(function, there, here, hipMemcpyDefault, stream));
        CHECK(hipDeviceSynchronize());
        check_received(there);
        bool names_no_kind = function == 3 || function == 4;
        if (names_no_kind)
            continue;
        fill(sent, SIZE, 50 + (unsigned)function);
        CHECK(copy(function, there, sent, hipMemcpyHostToDevice, stream));
        CHECK(hipDeviceSynchronize());
        check_received(there);
        memset(received, 0, SIZE);
        CHECK(copy(function, received, there, hipMemcpyDefault, stream));
        CHECK(hipDeviceSynchronize());
        REQUIRE(memcmp(sent, received, SIZE) == 0);
    }
#if HIP_MAJOR >= 7
    batches(here, beside, there, stream);
#endif
    printf("last error %d\n", (int)hipGetLastError());
    return 0;
}
