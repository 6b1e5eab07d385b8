/* build: hip; run: hip_unordered wrong|right on sim
 * A copy to GPU 1 on a stream that is held up, and a read there on another stream, which waits for it in a program that is right. HIP's copies of
 * memory between devices run on the stream of the caller: nothing orders the destination's device behind it. Prints the first byte.
 */
#include "hip.h"

enum { BYTES = 1 << 20 };

static void nap(void *unused)
{
    (void)unused;
    usleep(60000);
}

int main(int argc, char **argv)
{
    static char host[BYTES];
    void *from, *to;
    hipStream_t first, second;
    hipEvent_t event;
    REQUIRE(argc == 2);
    CHECK(hipSetDevice(0));
    CHECK(hipMalloc(&from, BYTES));
    CHECK(hipMemset(from, 9, BYTES));
    CHECK(hipStreamCreateWithFlags(&first, hipStreamNonBlocking));
    CHECK(hipEventCreateWithFlags(&event, hipEventDisableTiming));
    CHECK(hipDeviceSynchronize());
    CHECK(hipSetDevice(1));
    CHECK(hipMalloc(&to, BYTES));
    CHECK(hipMemset(to, 0, BYTES));
    CHECK(hipStreamCreateWithFlags(&second, hipStreamNonBlocking));
    CHECK(hipDeviceSynchronize());
    CHECK(hipSetDevice(0));
    CHECK(hipLaunchHostFunc(first, nap, NULL));
    CHECK(hipMemcpyAsync(to, from, BYTES, hipMemcpyDeviceToDevice, first));
    if (strcmp(argv[1], "right") == 0) {
        CHECK(hipEventRecord(event, first));
        CHECK(hipStreamWaitEvent(second, event, 0));
    }
    CHECK(hipMemcpyAsync(host, to, BYTES, hipMemcpyDeviceToHost, second));
    CHECK(hipStreamSynchronize(second));
    printf("%d\n", host[0]);
    CHECK(hipSetDevice(0));
    CHECK(hipDeviceSynchronize());
    return 0;
}
