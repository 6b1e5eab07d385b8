/* build: driver; run: contexts_in_turn on sim
 * Threads make contexts on two of three devices, copy between them, and destroy them with their memory. If all devices share one space of
 * addresses, another thread's memory may have an address as soon as its context is gone. Prints the copies of each pair.
 */
#include <cuda.h>

#include "check.h"

/* The newest header would have the form of a newer driver. */
#undef cuCtxCreate
#define cuCtxCreate cuCtxCreate_v2
CUresult CUDAAPI cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device);

enum { DEVICES = 3, THREADS = 8, COPIES = 1000, BYTES = 4096 };

static atomic_int copies[DEVICES][DEVICES];

static void *copy(void *argument)
{
    unsigned number = *(unsigned *)argument;
    for (int i = 0; i < COPIES; i++) {
        CUcontext contexts[2];
        CUdeviceptr memory[2];
        number = number * 1103515245 + 12345;
        int src = (int)(number >> 16) % DEVICES, dst = (src + 1 + (int)(number >> 24) % (DEVICES - 1)) % DEVICES;
        const int devices[] = {src, dst};
        for (int end = 0; end < 2; end++) {
            CHECK_CU(cuCtxCreate(&contexts[end], 0, devices[end]));
            CHECK_CU(cuMemAlloc(&memory[end], BYTES));
            CHECK_CU(cuCtxPopCurrent(NULL));
        }
        CHECK_CU(cuCtxSetCurrent(contexts[0]));
        CHECK_CU(cuMemcpyPeer(memory[1], contexts[1], memory[0], contexts[0], BYTES));
        atomic_fetch_add(&copies[src][dst], 1);
        for (int end = 0; end < 2; end++)
            CHECK_CU(cuCtxDestroy(contexts[end]));
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    unsigned numbers[THREADS];
    CHECK_CU(cuInit(0));
    for (unsigned i = 0; i < THREADS; i++) {
        numbers[i] = i;
        REQUIRE(pthread_create(&threads[i], NULL, copy, &numbers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        REQUIRE(pthread_join(threads[i], NULL) == 0);
    for (int src = 0; src < DEVICES; src++)
        for (int dst = 0; dst < DEVICES; dst++)
            if (src != dst)
                printf("%d>%d: %d copies\n", src, dst, copies[src][dst]);
    return 0;
}
