/* build: driver; run: floating_contexts on sim
 * Contexts as programs of 2012 have them: created by the driver API, one a device, current nowhere, and pushed and popped by whichever
 * thread needs them. Copies between them, with access enabled from one thread, used by others, and disabled by a third.
 */
#include <cuda.h>

#include "check.h"

/* The newest header would have the form of a newer driver. */
#undef cuCtxCreate
#define cuCtxCreate cuCtxCreate_v2
CUresult CUDAAPI cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device);

enum { BYTES = 4 << 20, THREADS = 4, ROUNDS = 3 };

static CUcontext contexts[2];
static CUdeviceptr memory[2];
static unsigned char content[BYTES], got[THREADS][BYTES];

static CUcontext pop(void)
{
    CUcontext popped;
    CHECK_CU(cuCtxPopCurrent(&popped));
    return popped;
}

static void make(int device)
{
    CHECK_CU(cuCtxCreate(&contexts[device], CU_CTX_SCHED_AUTO, device));
    CHECK_CU(cuMemAlloc(&memory[device], BYTES));
    REQUIRE(pop() == contexts[device]);
}

/* Copies from device 0 to device 1 with either context current, and looks at what has arrived. */
static void *copy(void *argument)
{
    unsigned char *mine = argument;
    for (int round = 0; round < ROUNDS; round++) {
        CHECK_CU(cuCtxPushCurrent(contexts[round % 2]));
        CHECK_CU(cuMemcpyPeer(memory[1], contexts[1], memory[0], contexts[0], BYTES));
        CHECK_CU(cuCtxSynchronize());
        pop();
        CHECK_CU(cuCtxPushCurrent(contexts[1]));
        CHECK_CU(cuMemcpyDtoH(mine, memory[1], BYTES));
        pop();
        REQUIRE(memcmp(mine, content, BYTES) == 0);
    }
    return NULL;
}

static void copy_by_threads(const char *when)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, copy, got[i]) == 0);
    for (int i = 0; i < THREADS; i++)
        REQUIRE(pthread_join(threads[i], NULL) == 0);
    printf("%s: right\n", when);
}

static void *change_access(void *argument)
{
    bool enables = *(bool *)argument;
    for (int device = 0; device < 2; device++) {
        CHECK_CU(cuCtxPushCurrent(contexts[device]));
        if (enables)
            SHOW_CU(cuCtxEnablePeerAccess(contexts[1 - device], 0));
        else
            SHOW_CU(cuCtxDisablePeerAccess(contexts[1 - device]));
        SHOW_CU(cuCtxEnablePeerAccess(contexts[1 - device], 1));
        pop();
    }
    return NULL;
}

static void change_access_elsewhere(bool enables)
{
    run_in_thread(change_access, &enables);
}

int main(void)
{
    CHECK_CU(cuInit(0));
    make(0);
    make(1);
    for (size_t i = 0; i < BYTES; i++)
        content[i] = (unsigned char)(i * 7 + i / 4096);
    CHECK_CU(cuCtxPushCurrent(contexts[0]));
    CHECK_CU(cuMemcpyHtoD(memory[0], content, BYTES));
    CHECK_CU(cuCtxSynchronize());
    pop();
    copy_by_threads("before access is enabled");
    change_access_elsewhere(true);
    copy_by_threads("with access");
    change_access_elsewhere(true);
    change_access_elsewhere(false);
    copy_by_threads("after it is disabled");
    change_access_elsewhere(false);
    for (int device = 0; device < 2; device++)
        SHOW_CU(cuCtxDestroy(contexts[device]));
    CUcontext current = (CUcontext)1;
    CHECK_CU(cuCtxGetCurrent(&current));
    printf("current at the end: %s\n", current ? "one" : "none");
    return 0;
}
