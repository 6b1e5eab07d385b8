/* build: hip unlinked; run: hip_dlopened on sim
 * A program that is not linked with HIP and opens it itself, out of everybody's sight, as Python extensions do: functions by
 * name, and by name and version.
 */
#include "hip.h"

enum { SIZE = 4096 };

#define QUOTE_AGAIN(x) #x
#define QUOTE(x) QUOTE_AGAIN(x)
#define FIND(name) __typeof__(name) *find_##name = (__typeof__(name) *)dlsym(library, #name)
#define TRY(call) printf("%s = %d\n", #call, (int)(call))

int main(void)
{
    void *library = dlopen("libamdhip64.so." QUOTE(HIP_MAJOR), RTLD_LAZY | RTLD_LOCAL);
    REQUIRE(library);
    FIND(hipSetDevice);
    FIND(hipMalloc);
    FIND(hipFree);
    FIND(hipMemcpy);
    FIND(hipDeviceSynchronize);
    FIND(hipDeviceCanAccessPeer);
    FIND(hipDeviceEnablePeerAccess);
    FIND(hipDeviceDisablePeerAccess);
    FIND(hipMemcpyPeer);
    FIND(hipMemcpyPeerAsync);
    FIND(hipPeekAtLastError);
    REQUIRE(find_hipSetDevice && find_hipMalloc && find_hipFree && find_hipMemcpy && find_hipDeviceSynchronize);
    REQUIRE(find_hipDeviceCanAccessPeer && find_hipDeviceEnablePeerAccess && find_hipDeviceDisablePeerAccess);
    REQUIRE(find_hipMemcpyPeer && find_hipMemcpyPeerAsync && find_hipPeekAtLastError);

    printf("another look: %s\n", dlsym(library, "hipMemcpyPeer") == (void *)find_hipMemcpyPeer ? "the same" : "another");
    printf("hip_4.2: %s\n", dlvsym(library, "hipMemcpyPeer", "hip_4.2") ? "there" : "not there");
    printf("hip_7.1: %s\n", dlvsym(library, "hipMemcpyPeer", "hip_7.1") ? "there" : "not there");
    printf("hipMemcpy3DPeer: %s\n", dlsym(library, "hipMemcpy3DPeer") ? "there" : "not there");
    printf("hipMemcpyPeerNever: %s\n", dlsym(library, "hipMemcpyPeerNever") ? "there" : "not there");
    printf("in the global scope: %s\n", dlsym(RTLD_DEFAULT, "hipSetDevice") ? "there" : "not there");

    unsigned char sent[SIZE], received[SIZE] = {0};
    void *first, *second;
    int can = -1;
    fill(sent, SIZE, 1);
    TRY(find_hipMalloc(&first, SIZE));
    TRY(find_hipSetDevice(1));
    TRY(find_hipMalloc(&second, SIZE));
    TRY(find_hipSetDevice(0));
    TRY(find_hipMemcpy(first, sent, SIZE, hipMemcpyHostToDevice));
    TRY(find_hipDeviceCanAccessPeer(&can, 0, 1));
    printf("can = %d\n", can);
    TRY(find_hipDeviceEnablePeerAccess(1, 0));
    TRY(find_hipDeviceEnablePeerAccess(1, 0));
    TRY(find_hipPeekAtLastError());
    TRY(find_hipMemcpyPeer(second, 1, first, 0, SIZE / 2));
    TRY(find_hipMemcpyPeerAsync((char *)second + SIZE / 2, 1, (char *)first + SIZE / 2, 0, SIZE / 2, NULL));
    TRY(find_hipDeviceSynchronize());
    TRY(find_hipMemcpy(received, second, SIZE, hipMemcpyDeviceToHost));
    printf("%s\n", memcmp(sent, received, SIZE) == 0 ? "the same bytes" : "other bytes");
    TRY(find_hipDeviceDisablePeerAccess(1));
    TRY(find_hipFree(first));
    TRY(find_hipFree(second));
    return 0;
}
