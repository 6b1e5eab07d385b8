/*
 * Copies by HIP's functions that name no devices, each between two devices, inside one, and with the host. Exits with 0 only if all
 * bytes arrive.
 */
#include "hip.h"
#include <string.h>

enum { SIZE = 1 << 20, FUNCTIONS = 5 };

static unsigned char sent[SIZE], received[SIZE];

static hipError_t copy(int function, void *dst, void *src, hipMemcpyKind kind, hipStream_t stream)
{
    switch (function) {
    case 0:
        return hipMemcpy(dst, src, SIZE, kind);
    case 1:
        return hipMemcpyAsync(dst, src, SIZE, kind, stream);
    case 2:
        return hipMemcpyWithStream(dst, src, SIZE, kind, stream);
    case 3:
        return hipMemcpyDtoD(dst, src, SIZE);
    default:
        return hipMemcpyDtoDAsync(dst, src, SIZE, stream);
    }
}

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
        CHECK(hipStreamSynchronize(stream));
        CHECK(copy(function, there, here, hipMemcpyDefault, stream));
        CHECK(hipStreamSynchronize(stream));
        CHECK(hipDeviceSynchronize());
        memset(received, 0, SIZE);
        CHECK(hipMemcpy(received, there, SIZE, hipMemcpyDefault));
        REQUIRE(memcmp(sent, received, SIZE) == 0);
    }
    printf("last error %d\n", (int)hipGetLastError());
    return 0;
}
