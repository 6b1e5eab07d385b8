/* build: hip; run: hip_entry_point on sim
 * hipGetProcAddress, from 6.1 on: every peer function by name, called through what it answers; names that are none; bad
 * arguments; itself through itself. From 7.1 on the other look-ups, too.
 */
#include "hip.h"

#if HIP_MAJOR < 6

int main(void)
{
    puts("this release has no hipGetProcAddress");
    return 0;
}

#else

enum { SIZE = 4096, VERSION = HIP_MAJOR * 100 };

typedef __typeof__(hipGetProcAddress) finder;

static void *find(finder *by, const char *name, int version)
{
    void *found = NULL;
    hipDriverProcAddressQueryResult status = (hipDriverProcAddressQueryResult)-7;
    hipError_t error = by(name, &found, version, 0, &status);
    printf("%s, %d = %s, %s, status %d, last %d\n", name, version, hipGetErrorName(error), found ? "found" : "not found",
           (int)status, hipPeekAtLastError());
    return found;
}

#if HIP_MAJOR >= 7
static void copy(const char *how, hipError_t error, void *found, void *dst, void *src)
{
    printf("%s: %s, %s\n", how, hipGetErrorName(error), found ? "found" : "not found");
    REQUIRE(found);
    CHECK(((__typeof__(hipMemcpyPeerAsync) *)found)(dst, 1, src, 0, SIZE, NULL));
    CHECK(hipDeviceSynchronize());
}

/* What these find is called once each: in the order of the test's list. */
static void other_lookups(void *dst, void *src)
{
    hipDriverProcAddressQueryResult status;
    void *found = NULL;
    hipError_t error = hipGetDriverEntryPoint("hipMemcpyPeerAsync", &found, 0, &status);
    copy("hipGetDriverEntryPoint", error, found, dst, src);
    error = hipGetDriverEntryPoint_spt("hipMemcpyPeerAsync", &found, 0, &status);
    copy("hipGetDriverEntryPoint_spt", error, found, dst, src);
    error = hipGetProcAddress_spt("hipMemcpyPeerAsync", &found, VERSION, 0, &status);
    copy("hipGetProcAddress_spt", error, found, dst, src);
    /* One that has a form for the per-thread default stream, by the name of the other. */
    SHOW(hipGetProcAddress_spt("hipMemcpyAsync", &found, VERSION, 0, &status));
    CHECK(((__typeof__(hipMemcpyAsync) *)found)(dst, src, SIZE, hipMemcpyDeviceToDevice, NULL));
    SHOW(hipGetDriverEntryPoint("hipMemcpyAsync", &found, 0, &status));
    CHECK(((__typeof__(hipMemcpyAsync) *)found)(dst, src, SIZE, hipMemcpyDeviceToDevice, NULL));
    CHECK(hipDeviceSynchronize());
    SHOW(hipGetDriverEntryPoint("hipMemcpyPeerNever", &found, 0, &status));
    SHOW(hipGetLastError());
}
#endif

#define FIND(name) __typeof__(name) *find_##name = (__typeof__(name) *)find(hipGetProcAddress, #name, VERSION)

int main(void)
{
    FIND(hipDeviceCanAccessPeer);
    FIND(hipDeviceEnablePeerAccess);
    FIND(hipDeviceDisablePeerAccess);
    FIND(hipDeviceGetP2PAttribute);
    FIND(hipMemcpyPeer);
    FIND(hipMemcpyPeerAsync);
    FIND(hipCtxEnablePeerAccess);
    FIND(hipCtxDisablePeerAccess);
    find(hipGetProcAddress, "hipMemcpy3DPeer", VERSION);
    find(hipGetProcAddress, "hipMemcpy3DPeerAsync", VERSION);
    find(hipGetProcAddress, "hipMemcpyPeerNever", VERSION);
    find(hipGetProcAddress, "cudaMemcpyPeer", VERSION);
    find(hipGetProcAddress, "", VERSION);
    find(hipGetProcAddress, "hipMemcpyPeer", 0);

    hipDriverProcAddressQueryResult status;
    void *found = NULL;
    SHOW(hipGetProcAddress("hipMemcpyPeer", NULL, VERSION, 0, &status));
    SHOW(hipGetProcAddress("hipMemcpyPeer", &found, VERSION, 0, NULL));
    printf("without a status: %s\n", found ? "found" : "not found");
    printf("another look: %s\n", found == (void *)find_hipMemcpyPeer ? "the same" : "another");

    finder *itself = (finder *)find(hipGetProcAddress, "hipGetProcAddress", VERSION);
    REQUIRE(itself);
    printf("through itself: %s\n", find(itself, "hipMemcpyPeer", VERSION) == found ? "the same" : "another");

    unsigned char sent[SIZE], received[SIZE] = {0};
    void *first, *second;
    int can = -1, value = -1;
    REQUIRE(find_hipDeviceCanAccessPeer && find_hipDeviceEnablePeerAccess && find_hipDeviceDisablePeerAccess);
    REQUIRE(find_hipDeviceGetP2PAttribute && find_hipMemcpyPeer && find_hipMemcpyPeerAsync);
    REQUIRE(find_hipCtxEnablePeerAccess && find_hipCtxDisablePeerAccess);
    fill(sent, SIZE, 1);
    CHECK(hipSetDevice(1));
    CHECK(hipMalloc(&second, SIZE));
    CHECK(hipSetDevice(0));
    CHECK(hipMalloc(&first, SIZE));
    CHECK(hipMemcpy(first, sent, SIZE, hipMemcpyHostToDevice));
    SHOW(find_hipDeviceCanAccessPeer(&can, 0, 1));
    SHOW(find_hipDeviceGetP2PAttribute(&value, hipDevP2PAttrAccessSupported, 0, 1));
    printf("can = %d, value = %d\n", can, value);
    SHOW(find_hipDeviceEnablePeerAccess(1, 0));
    SHOW(find_hipDeviceEnablePeerAccess(1, 0));
    SHOW(hipGetLastError());
    SHOW(find_hipMemcpyPeer(second, 1, first, 0, SIZE / 2));
    SHOW(find_hipMemcpyPeerAsync((char *)second + SIZE / 2, 1, (char *)first + SIZE / 2, 0, SIZE / 2, NULL));
    CHECK(hipDeviceSynchronize());
    CHECK(hipMemcpy(received, second, SIZE, hipMemcpyDeviceToHost));
    printf("%s\n", memcmp(sent, received, SIZE) == 0 ? "the same bytes" : "other bytes");
#if HIP_MAJOR >= 7
    other_lookups(second, first);
#endif
    SHOW(find_hipCtxEnablePeerAccess(NULL, 0));
    SHOW(find_hipCtxDisablePeerAccess(NULL));
    SHOW(find_hipDeviceDisablePeerAccess(1));
    return 0;
}

#endif
