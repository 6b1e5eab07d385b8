/* build: hip unlinked; run: hip_opened LIBRARY on sim amd
 * Every peer function of a HIP library that the program opens itself, and its regular copies, on a machine that may have no
 * device: each code, and the last error behind it.
 */
#include "hip.h"

#define EACH(f)                                                                                                                \
    f(hipDeviceCanAccessPeer) f(hipDeviceEnablePeerAccess) f(hipDeviceDisablePeerAccess) f(hipDeviceGetP2PAttribute)            \
        f(hipMemcpyPeer) f(hipMemcpyPeerAsync) f(hipCtxEnablePeerAccess) f(hipCtxDisablePeerAccess) f(hipGetLastError)          \
            f(hipPeekAtLastError) f(hipGetErrorName) f(hipMemcpy) f(hipMemcpyAsync) f(hipMemcpy2D) f(hipMemcpy2DAsync)              \
                f(hipMemcpy3D) f(hipMemcpy3DAsync) f(hipMemcpy_spt) f(hipMemcpyAsync_spt) f(hipMemcpy2D_spt) f(hipMemcpy3D_spt)

#define FIELD(name) __typeof__(&name) name;
static struct { EACH(FIELD) } hip;

static void show(const char *call, hipError_t error)
{
    hipError_t peeked = hip.hipPeekAtLastError();
    hipError_t taken = hip.hipGetLastError();
    printf("%s = %s, last %d %d %d\n", call, hip.hipGetErrorName(error), peeked, taken, hip.hipPeekAtLastError());
}

#define FOUND(name)                                                                                                            \
    *(void **)&hip.name = dlsym(library, #name);                                                                               \
    REQUIRE(hip.name != NULL);
#define SHOW_CALL(call) show(#call, hip.call)

int main(int argc, char **argv)
{
    REQUIRE(argc == 2);
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        fprintf(stderr, "%s\n", dlerror());
    REQUIRE(library != NULL);
    EACH(FOUND)

    int out = -77;
    char bytes[64];
    SHOW_CALL(hipDeviceCanAccessPeer(&out, 0, 1));
    SHOW_CALL(hipDeviceCanAccessPeer(&out, 0, 0));
    SHOW_CALL(hipDeviceCanAccessPeer(NULL, 0, 1));
    SHOW_CALL(hipDeviceEnablePeerAccess(1, 0));
    SHOW_CALL(hipDeviceEnablePeerAccess(1, 1));
    SHOW_CALL(hipDeviceDisablePeerAccess(1));
    SHOW_CALL(hipDeviceGetP2PAttribute(&out, hipDevP2PAttrAccessSupported, 0, 1));
    SHOW_CALL(hipDeviceGetP2PAttribute(NULL, hipDevP2PAttrAccessSupported, 0, 1));
    SHOW_CALL(hipMemcpyPeer(bytes, 1, bytes + 32, 0, 32));
    SHOW_CALL(hipMemcpyPeer(NULL, 1, NULL, 0, 0));
    SHOW_CALL(hipMemcpyPeerAsync(bytes, 1, bytes + 32, 0, 32, NULL));
    SHOW_CALL(hipMemcpyPeerAsync(bytes, 99, NULL, -1, 32, NULL));
    hipMemcpy3DParms p = {.srcPtr = {bytes, 16, 16, 1}, .dstPtr = {bytes + 32, 16, 16, 1}, .extent = {16, 1, 1}};
    p.kind = hipMemcpyDefault;
    SHOW_CALL(hipMemcpy(bytes, bytes + 32, 16, hipMemcpyDefault));
    SHOW_CALL(hipMemcpyAsync(bytes, NULL, 16, hipMemcpyDeviceToDevice, NULL));
    SHOW_CALL(hipMemcpy2D(bytes, 16, bytes + 32, 16, 8, 2, hipMemcpyDefault));
    SHOW_CALL(hipMemcpy2DAsync(bytes, 4, bytes + 32, 16, 8, 2, hipMemcpyDeviceToDevice, NULL));
    SHOW_CALL(hipMemcpy3D(&p));
    SHOW_CALL(hipMemcpy3DAsync(NULL, NULL));
    SHOW_CALL(hipMemcpy_spt(bytes, bytes + 32, 16, hipMemcpyDefault));
    SHOW_CALL(hipMemcpyAsync_spt(bytes, bytes + 32, 0, hipMemcpyDefault, NULL));
    SHOW_CALL(hipMemcpy2D_spt(bytes, 16, bytes + 32, 16, 8, 2, hipMemcpyDeviceToDevice));
    SHOW_CALL(hipMemcpy3D_spt(&p));
    SHOW_CALL(hipCtxEnablePeerAccess(NULL, 0));
    SHOW_CALL(hipCtxDisablePeerAccess(NULL));
    printf("out = %d\n", out);
    return 0;
}
