/* build: hip; run: hip_for_kernels [reset] on sim
 * Whether a kernel of the one device could touch memory of the other that was allocated behind a copy: a copy opens no more
 * than what it copies. Then what the program itself asks for, and what HIP answers.
 *
 *   reset    with a reset of device 0 behind the copy, and another copy
 */
#include "hip.h"

enum { SIZE = 4096 };

static void *allocate(int device)
{
    void *pointer;
    CHECK(hipSetDevice(device));
    CHECK(hipMalloc(&pointer, SIZE));
    return pointer;
}

static void show_reach(const char *when)
{
    void *first = allocate(0), *second = allocate(1);
    printf("%s: 1 reaches 0: %d, 0 reaches 1: %d\n", when, p2psim_hip_reaches(1, first), p2psim_hip_reaches(0, second));
}

int main(int argc, char **argv)
{
    int current = -1;

    REQUIRE(p2psim_hip_reaches);
    show_reach("before");
    void *src = allocate(0), *dst = allocate(1);
    CHECK(hipSetDevice(0));
    SHOW(hipMemcpyPeer(dst, 1, src, 0, SIZE));
    CHECK(hipGetDevice(&current));
    printf("device %d\n", current);
    show_reach("behind a copy");
    if (argc > 1 && strcmp(argv[1], "reset") == 0) {
        CHECK(hipSetDevice(0));
        SHOW(hipDeviceReset());
        show_reach("behind a reset");
        src = allocate(0);
        SHOW(hipMemcpyPeer(dst, 1, src, 0, SIZE));
        show_reach("behind another copy");
    }

    CHECK(hipSetDevice(1));
    SHOW(hipDeviceDisablePeerAccess(0));
    printf("last: %s\n", hipGetErrorName(hipGetLastError()));
    SHOW(hipDeviceEnablePeerAccess(0, 0));
    SHOW(hipDeviceEnablePeerAccess(0, 0));
    printf("last: %s\n", hipGetErrorName(hipGetLastError()));
    show_reach("enabled");
    CHECK(hipSetDevice(0));
    SHOW(hipDeviceEnablePeerAccess(1, 0));
    printf("last: %s\n", hipGetErrorName(hipPeekAtLastError()));
    SHOW(hipDeviceDisablePeerAccess(1));
    SHOW(hipDeviceDisablePeerAccess(1));
    printf("last: %s\n", hipGetErrorName(hipGetLastError()));
    return 0;
}
