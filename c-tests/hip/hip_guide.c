/* build: hip; run: hip_guide on sim
 * Peer copies as HIP's guide has them: ask, enable, copy in both forms, disable. Then the same bytes the other way, with
 * nothing enabled, which HIP needs for kernels only.
 */
#include "hip.h"

enum { SIZE = 1 << 20 };

static unsigned char sent[SIZE], received[SIZE];

static void show_bytes(const char *what, const void *from)
{
    memset(received, 0, SIZE);
    CHECK(hipMemcpy(received, from, SIZE, hipMemcpyDeviceToHost));
    printf("%s: %s, %08x\n", what, memcmp(sent, received, SIZE) == 0 ? "the same bytes" : "other bytes",
           checksum(received, SIZE));
}

int main(void)
{
    int devices = 0, can = -1;
    void *first, *second;
    hipStream_t stream;

    CHECK(hipGetDeviceCount(&devices));
    REQUIRE(devices >= 2);
    SHOW(hipDeviceCanAccessPeer(&can, 0, 1));
    printf("can = %d\n", can);

    CHECK(hipSetDevice(0));
    CHECK(hipMalloc(&first, SIZE));
    CHECK(hipStreamCreate(&stream));
    SHOW(hipDeviceEnablePeerAccess(1, 0));
    CHECK(hipSetDevice(1));
    CHECK(hipMalloc(&second, SIZE));
    SHOW(hipDeviceEnablePeerAccess(0, 0));
    CHECK(hipSetDevice(0));

    fill(sent, SIZE, 1);
    CHECK(hipMemcpy(first, sent, SIZE, hipMemcpyHostToDevice));
    SHOW(hipMemcpyPeer(second, 1, first, 0, SIZE));
    CHECK(hipDeviceSynchronize());
    show_bytes("hipMemcpyPeer", second);

    fill(sent, SIZE, 2);
    CHECK(hipMemcpy(first, sent, SIZE, hipMemcpyHostToDevice));
    SHOW(hipMemcpyPeerAsync(second, 1, first, 0, SIZE, stream));
    CHECK(hipStreamSynchronize(stream));
    show_bytes("hipMemcpyPeerAsync", second);

    SHOW(hipDeviceDisablePeerAccess(1));
    CHECK(hipSetDevice(1));
    SHOW(hipDeviceDisablePeerAccess(0));
    CHECK(hipSetDevice(0));

    fill(sent, SIZE, 3);
    CHECK(hipMemcpy(second, sent, SIZE, hipMemcpyHostToDevice));
    SHOW(hipMemcpyPeerAsync(first, 0, second, 1, SIZE, stream));
    CHECK(hipStreamSynchronize(stream));
    show_bytes("with nothing enabled", first);

    CHECK(hipStreamDestroy(stream));
    CHECK(hipFree(first));
    CHECK(hipFree(second));
    SHOW(hipGetLastError());
    return 0;
}
