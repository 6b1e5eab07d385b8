/* build: driver; run: context_ends_during_proof [MICROSECONDS] on sim
 * One thread copies between memory of two devices' pools. Another one, which has nothing to do with it, has created
 * contexts of its own on all devices and copied within them; it destroys them MICROSECONDS after.
 * For each pair of devices. Must end, and the bytes be right.
 */
#include <cuda.h>

#include "check.h"

enum { SIZE = 2 << 20, MOST = 8 };
static CUcontext contexts[MOST];
static CUdeviceptr pooled[MOST];
static int devices, from, to;
static pthread_barrier_t start;

static void *copy(void *unused)
{
    CHECK_CU(cuCtxSetCurrent(contexts[from]));
    pthread_barrier_wait(&start);
    for (int i = 0; i < 3; i++)
        CHECK_CU(cuMemcpyPeer(pooled[to], contexts[to], pooled[from], contexts[from], SIZE));
    return unused;
}

int main(int argc, char **argv)
{
    static unsigned char sent[SIZE], received[SIZE];
    int delay = argc > 1 ? atoi(argv[1]) : 0, wrong = 0;
    CHECK_CU(cuInit(0));
    CHECK_CU(cuDeviceGetCount(&devices));
    REQUIRE(devices <= MOST);
    pthread_barrier_init(&start, NULL, 2);
    for (int device = 0; device < devices; device++) {
        contexts[device] = primary_context(device);
        CHECK_CU(cuMemAllocAsync(&pooled[device], SIZE, NULL));
        CHECK_CU(cuCtxSynchronize());
    }
    for (from = 0; from < devices; from++)
        for (to = from + 1; to < devices; to++) {
            pthread_t thread;
            CUcontext own[MOST], popped;
            for (int device = 0; device < devices; device++) {
                CUdeviceptr memory;
                CHECK_CU(cuCtxCreate_v2(&own[device], 0, device));
                CHECK_CU(cuMemAlloc(&memory, 128));
                CHECK_CU(cuMemcpyPeer(memory, own[device], memory + 64, own[device], 64));
                CHECK_CU(cuCtxSynchronize());
                CHECK_CU(cuCtxPopCurrent(&popped));
            }
            CHECK_CU(cuCtxSetCurrent(contexts[from]));
            fill(sent, SIZE, (unsigned)(from * MOST + to));
            CHECK_CU(cuMemcpyHtoD(pooled[from], sent, SIZE));
            REQUIRE(pthread_create(&thread, NULL, copy, NULL) == 0);
            pthread_barrier_wait(&start);
            usleep((unsigned)delay);
            for (int device = 0; device < devices; device++)
                CHECK_CU(cuCtxDestroy(own[device]));
            REQUIRE(pthread_join(thread, NULL) == 0);
            CHECK_CU(cuCtxSynchronize());
            CHECK_CU(cuMemcpyDtoH(received, pooled[to], SIZE));
            wrong += memcmp(sent, received, SIZE) != 0;
        }
    printf("%s\n", wrong ? "WRONG" : "right");
    return 0;
}
