/* build: hip; run: P2PSIM_DEVICES=3 P2PSIM_NO_P2P=1-2 hip_grants on sim
 * Which devices' kernels could touch which memory, as the simulation tells: access is granted allocation by allocation, to
 * all peers at once, and never taken back. There are three devices, 1 and 2 without a path.
 */
#include "hip.h"

enum { SIZE = 4096 };

static void *allocate(int device)
{
    void *pointer;
    CHECK(hipSetDevice(device));
    CHECK(hipMalloc(&pointer, SIZE));
    CHECK(hipSetDevice(0));
    return pointer;
}

static void show(const char *what, const void *pointer)
{
    printf("  %s:", what);
    for (int device = 0; device < 3; device++)
        if (p2psim_hip_reaches(device, pointer))
            printf(" %d", device);
    puts("");
}

static void show_copies(int from, int to)
{
    unsigned long long direct, staged;
    REQUIRE(p2psim_hip_copies(from, to, &direct, &staged) == 0);
    printf("  copies from %d to %d: %llu direct, %llu staged\n", from, to, direct, staged);
}

int main(void)
{
    void *zero = allocate(0), *one = allocate(1), *two = allocate(2), *host;
    REQUIRE(p2psim_hip_reaches && p2psim_hip_copies);
    CHECK(hipHostMalloc(&host, SIZE, 0));
    puts("allocated");
    show("of 0", zero);
    show("of 1", one);
    show("host", host);
    show("freed", NULL);

    puts("copied within a device");
    CHECK(hipMemcpyPeer(zero, 1, (char *)zero + SIZE / 2, 0, SIZE / 2));
    show("of 0", zero);

    puts("copied from 0 to 1");
    CHECK(hipMemcpyPeer(one, 1, zero, 0, SIZE));
    show("of 0", zero);
    show("of 1", one);
    show("of 1, another", allocate(1));

    puts("copied from 1 to 2, without a path");
    CHECK(hipMemcpyPeerAsync(two, 2, one, 1, SIZE, NULL));
    CHECK(hipDeviceSynchronize());
    show("of 2", two);

    puts("enabled from 0 to 2");
    void *before = allocate(2);
    show("of 2, before", before);
    CHECK(hipDeviceEnablePeerAccess(2, 0));
    show("of 2, before", before);
    void *since = allocate(2);
    show("of 2, since", since);
    show("of 1", allocate(1));

    puts("disabled");
    CHECK(hipDeviceDisablePeerAccess(2));
    show("of 2, before", before);
    show("of 2, since", since);
    show("of 2, now", allocate(2));

    puts("reset while enabled");
    CHECK(hipDeviceEnablePeerAccess(1, 0));
    CHECK(hipSetDevice(1));
    CHECK(hipDeviceReset());
    show("of 1, gone", one);
    show("of 1, now", allocate(1));

    show_copies(0, 1);
    show_copies(1, 2);
    show_copies(0, 0);
    return 0;
}
