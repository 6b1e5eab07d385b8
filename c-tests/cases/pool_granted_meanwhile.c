/* build: driver; run: pool_granted_meanwhile [MICROSECONDS] on sim
 * A thread copies between memory of two pools; another one grants the pools to the other device itself, MICROSECONDS after
 * the first copies. What the program granted, it can see: cuMemPoolGetAccess says 3, for each of
 * all pairs of devices.
 */
#include <cuda.h>

#include "check.h"
#include "lib/mappings.h"

enum { SIZE = 2 << 20, MOST = 8 };
static CUcontext contexts[MOST];
static CUmemoryPool pools[MOST][MOST];
static CUdeviceptr memory[MOST][MOST];
static int devices, from, to;
static pthread_barrier_t start;

static void *copy(void *unused)
{
    CHECK_CU(cuCtxSetCurrent(contexts[from]));
    pthread_barrier_wait(&start);
    for (int i = 0; i < 3; i++)
        CHECK_CU(cuMemcpyPeer(memory[to][from], contexts[to], memory[from][to], contexts[from], SIZE));
    return unused;
}

int main(int argc, char **argv)
{
    int hidden = 0, pairs = 0, delay = argc > 1 ? atoi(argv[1]) : 0;
    CHECK_CU(cuInit(0));
    CHECK_CU(cuDeviceGetCount(&devices));
    pthread_barrier_init(&start, NULL, 2);
    for (int device = 0; device < devices; device++) {
        contexts[device] = primary_context(device);
        for (int peer = 0; peer < devices; peer++) {
            CHECK_CU(new_pool(&pools[device][peer], device));
            CHECK_CU(cuMemAllocFromPoolAsync(&memory[device][peer], SIZE, pools[device][peer], NULL));
        }
        CHECK_CU(cuCtxSynchronize());
    }
    for (from = 0; from < devices; from++)
        for (to = from + 1; to < devices; to++) {
            pthread_t thread;
            REQUIRE(pthread_create(&thread, NULL, copy, NULL) == 0);
            pthread_barrier_wait(&start);
            usleep((unsigned)delay);
            for (int side = 0; side < 2; side++) {
                int own = side ? to : from, other = side ? from : to;
                CHECK_CU(grant_pool(pools[own][other], other, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
            }
            REQUIRE(pthread_join(thread, NULL) == 0);
            for (int side = 0; side < 2; side++) {
                int own = side ? to : from, other = side ? from : to;
                CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = other};
                CUmemAccess_flags flags;
                CHECK_CU(cuMemPoolGetAccess(&flags, pools[own][other], &location));
                hidden += flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
                pairs++;
            }
        }
    printf("granted pools %s\n", hidden ? "NOT all seen" : "are seen");
    fprintf(stderr, "%d of %d hidden\n", hidden, pairs);
    return 0;
}
