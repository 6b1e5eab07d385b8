/* build: hip; run: hip_broken enables|copies|pending|resets|late on sim
 * A program that enables access itself, as the guide has it, and one that only copies; between devices whose link may be broken.
 *
 *   enables    asks whether there is access, enables it in both directions, asks again, copies, disables it
 *   copies     copies, then asks and enables
 *   pending    as `enables`, with an error that it has not asked for (from 7.0 on it stays until then)
 *   resets     as `enables`, with a reset of device 0 and another pair behind it
 *   late       enables access, again and again until that succeeds, then copies
 *
 * A copy may never end: nothing waits for a device.
 */
#include "hip.h"

enum { SIZE = 1 << 16 };

static int is_done(hipStream_t stream)
{
    const struct timespec pause = {0, 1000000};
    const char *fault = getenv("P2PSIM_FAULT");
    const int hangs = fault && strstr(fault, "hang");
    for (int i = 0; i < (hangs ? 300 : 10000); i++) {
        const hipError_t ret = hipStreamQuery(stream);
        if (ret == hipSuccess)
            return 1;
        if (ret != hipErrorNotReady)
            break;
        nanosleep(&pause, NULL);
    }
    hipGetLastError(); /* not ready is one, before 7.0 */
    return 0;
}

/* On streams of its own; what comes back is read by the device that got it. */
static void copy(int from, int to)
{
    unsigned char *sent = malloc(SIZE), *got = calloc(1, SIZE);
    void *src, *dst;
    hipStream_t sender, receiver;

    for (int i = 0; i < SIZE; i++)
        sent[i] = (unsigned char)(i * 7 + i / 251 + 1);
    CHECK(hipSetDevice(to));
    CHECK(hipMalloc(&dst, SIZE));
    CHECK(hipStreamCreateWithFlags(&receiver, hipStreamNonBlocking));
    CHECK(hipSetDevice(from));
    CHECK(hipMalloc(&src, SIZE));
    CHECK(hipStreamCreateWithFlags(&sender, hipStreamNonBlocking));
    CHECK(hipMemcpyAsync(src, sent, SIZE, hipMemcpyHostToDevice, sender));
    CHECK(hipMemcpyPeerAsync(dst, to, src, from, SIZE, sender));
    if (!is_done(sender)) {
        printf("copy %d > %d: hangs\n", from, to);
        return;
    }
    CHECK(hipSetDevice(to));
    CHECK(hipMemcpyAsync(got, dst, SIZE, hipMemcpyDeviceToHost, receiver));
    CHECK(hipStreamSynchronize(receiver));
    printf("copy %d > %d: %s\n", from, to, memcmp(sent, got, SIZE) == 0 ? "right" : "WRONG");
}

static void ask(int device, int peer)
{
    int can = -1, access = -1, atomics = -1, rank = -1;
    CHECK(hipDeviceCanAccessPeer(&can, device, peer));
    CHECK(hipDeviceGetP2PAttribute(&access, hipDevP2PAttrAccessSupported, device, peer));
    CHECK(hipDeviceGetP2PAttribute(&atomics, hipDevP2PAttrNativeAtomicSupported, device, peer));
    CHECK(hipDeviceGetP2PAttribute(&rank, hipDevP2PAttrPerformanceRank, device, peer));
    printf("%d can access %d: %d, attributes %d %d, rank %d\n", device, peer, can, access, atomics, rank);
}

/* The code, and what it leaves behind; the device stays current. */
static void change(int device, int peer, int enables)
{
    int current = -1;
    CHECK(hipSetDevice(device));
    hipError_t ret = enables ? hipDeviceEnablePeerAccess(peer, 0) : hipDeviceDisablePeerAccess(peer);
    hipError_t last = hipGetLastError();
    CHECK(hipGetDevice(&current));
    printf("%s %d > %d: %d, last %d, device %d\n", enables ? "enable" : "disable", device, peer, ret, last, current);
}

static void show_reach(void)
{
    void *pointers[2];
    for (int device = 0; device < 2; device++) {
        CHECK(hipSetDevice(device));
        CHECK(hipMalloc(&pointers[device], SIZE));
    }
    printf("kernels reach: %d %d\n", p2psim_hip_reaches(0, pointers[1]), p2psim_hip_reaches(1, pointers[0]));
}

static void enable_at_last(void)
{
    const struct timespec pause = {0, 50000000};
    CHECK(hipSetDevice(0));
    hipError_t first = hipDeviceEnablePeerAccess(1, 0), last = first;
    for (int i = 0; i < 6000 && last != hipSuccess; i++) {
        hipGetLastError();
        nanosleep(&pause, NULL);
        last = hipDeviceEnablePeerAccess(1, 0);
    }
    printf("first: %d\nthen: %d\n", first, last);
    copy(0, 1);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "enables";

    REQUIRE(p2psim_hip_reaches);
    if (strcmp(what, "late") == 0) {
        enable_at_last();
        return 0;
    }
    if (strcmp(what, "copies") == 0)
        copy(0, 1);
    if (strcmp(what, "pending") == 0) {
        CHECK(hipSetDevice(0));
        hipDeviceEnablePeerAccess(77, 0);
    }
    if (strcmp(what, "pending") != 0)
        ask(0, 1);
    change(0, 1, 1);
    change(1, 0, 1);
    change(1, 0, 1);
    ask(0, 1);
    ask(1, 0);
    show_reach();
    copy(0, 1);
    copy(1, 0);
    change(0, 1, 0);
    change(0, 1, 0);
    if (strcmp(what, "resets") == 0) {
        CHECK(hipSetDevice(0));
        CHECK(hipDeviceReset());
        ask(0, 2);
        change(0, 2, 1);
        change(2, 0, 1);
        copy(2, 0);
    }
    fflush(stdout);
    /* A copy that never ends would be waited for. */
    _exit(0);
}
