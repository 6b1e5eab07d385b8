/* build: driver; run: P2PSIM_ONE_SPACE=1 facts_taken_back detach|graphics|module|library|host|registered|restore on sim
 * An address of device 0, or of the host, that a copy has used is given back, and comes back as memory of device 1; a copy from there to
 * device 0 is one between devices. The program has access, so that only a copy that is seen is staged where the
 * path is broken.
 *
 *   restore     a process goes on on devices between which data is lost, as P2PSIM_FAULT says from then on
 */
#include <cuda.h>

#include "check.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* cuCtxDetach */

enum { SIZE = 4 << 20, COPIES = 40 };

/* Of cudaGL.h, which needs headers of OpenGL. */
CUresult cuGraphicsGLRegisterBuffer(CUgraphicsResource *resource, unsigned buffer, unsigned flags);

static CUcontext contexts[2];
static unsigned char sent[SIZE], received[SIZE];

static void store(CUdeviceptr memory, int seed)
{
    for (int i = 0; i < SIZE; i++)
        sent[i] = (unsigned char)(i * 7 + i / 251 + seed);
    CHECK_CU(cuMemcpyHtoD(memory, sent, SIZE));
}

static void copy(CUdeviceptr dst, CUdeviceptr src)
{
    CHECK_CU(cuMemcpy(dst, src, SIZE));
}

static void compare(CUdeviceptr memory)
{
    CHECK_CU(cuCtxSynchronize());
    CHECK_CU(cuMemcpyDtoH(received, memory, SIZE));
    printf("the copy is %s\n", memcmp(sent, received, SIZE) == 0 ? "right" : "WRONG");
}

/* Memory of device 0, or of the host, that a copy has used and that is gone again. */
static CUdeviceptr given_back(const char *how, CUdeviceptr dst)
{
    CUdeviceptr old = 0;
    size_t size;
    if (strcmp(how, "detach") == 0) {
        CUcontext made;
        CHECK_CU(cuCtxCreate(&made, 0, 0));
        CHECK_CU(cuMemAlloc(&old, SIZE));
        copy(dst, old);
        CHECK_CU(cuCtxDetach(made));
    } else if (strcmp(how, "graphics") == 0) {
        CUgraphicsResource buffer;
        CHECK_CU(cuGraphicsGLRegisterBuffer(&buffer, 1, 0));
        CHECK_CU(cuGraphicsMapResources(1, &buffer, NULL));
        CHECK_CU(cuGraphicsResourceGetMappedPointer(&old, &size, buffer));
        copy(dst, old);
        CHECK_CU(cuGraphicsUnmapResources(1, &buffer, NULL));
    } else if (strcmp(how, "module") == 0) {
        CUmodule module;
        CHECK_CU(cuModuleLoadData(&module, ".version 7.0\n.target sm_50\n.address_size 64\n"));
        CHECK_CU(cuModuleGetGlobal(&old, &size, module, "variable"));
        copy(dst, old);
        CHECK_CU(cuModuleUnload(module));
    } else if (strcmp(how, "library") == 0) {
        CUlibrary library;
        CUmodule module;
        CHECK_CU(cuLibraryLoadData(&library, ".version 7.0\n.target sm_50\n.address_size 64\n", NULL, NULL, 0, NULL, NULL, 0));
        CHECK_CU(cuLibraryGetModule(&module, library));
        CHECK_CU(cuModuleGetGlobal(&old, &size, module, "variable"));
        copy(dst, old);
        CHECK_CU(cuLibraryUnload(library));
    } else if (strcmp(how, "registered") == 0) {
        /* The program's own pages, at an address that the driver is to give out again. */
        CHECK_CU(cuMemAlloc(&old, SIZE));
        CHECK_CU(cuMemFree(old));
        void *host = (void *)old;
        REQUIRE(mmap(host, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == host);
        CHECK_CU(cuMemHostRegister(host, SIZE, 0));
        copy(dst, old);
        CHECK_CU(cuMemHostUnregister(host));
    } else {
        void *host;
        CHECK_CU(cuMemHostAlloc(&host, SIZE, 0));
        old = (CUdeviceptr)host;
        copy(dst, old);
        CHECK_CU(cuMemFreeHost(host));
    }
    return old;
}

static void restore(CUdeviceptr dst, CUdeviceptr src)
{
    for (int i = 0; i < COPIES; i++)
        copy(dst, src);
    compare(dst);
    int self = getpid();
    REQUIRE(setenv("P2PSIM_FAULT", "drop:0-1", 1) == 0);
    CHECK_CU(cuCheckpointProcessLock(self, NULL));
    CHECK_CU(cuCheckpointProcessCheckpoint(self, NULL));
    CHECK_CU(cuCheckpointProcessRestore(self, NULL));
    CHECK_CU(cuCheckpointProcessUnlock(self, NULL));
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "host";
    CUdeviceptr dst, src;
    CHECK_CU(cuInit(0));
    for (int device = 0; device < 2; device++)
        CHECK_CU(cuDevicePrimaryCtxRetain(&contexts[device], device));
    CHECK_CU(cuCtxSetCurrent(contexts[0]));
    CHECK_CU(cuMemAlloc(&dst, SIZE));
    if (strcmp(how, "restore") == 0) {
        CHECK_CU(cuCtxSetCurrent(contexts[1]));
        CHECK_CU(cuMemAlloc(&src, SIZE));
        store(src, 1);
        restore(dst, src);
    } else {
        CHECK_CU(cuCtxEnablePeerAccess(contexts[1], 0));
        CHECK_CU(cuCtxSetCurrent(contexts[1]));
        CHECK_CU(cuCtxEnablePeerAccess(contexts[0], 0));
        CHECK_CU(cuCtxSetCurrent(contexts[0]));
        CUdeviceptr old = given_back(how, dst);
        CHECK_CU(cuCtxSetCurrent(contexts[1]));
        CHECK_CU(cuMemAlloc(&src, SIZE));
        REQUIRE(src == old);
    }
    store(src, 2);
    copy(dst, src);
    compare(dst);
    return 0;
}
