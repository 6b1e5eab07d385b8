/* build: driver; run: disable_beside_copies [ROUNDS] on sim
 * One thread copies between two contexts until access would be worth it; another one, which never enables access, asks all
 * the time for it to be disabled: 705, always. Then the program enables for the first time (0), for the second (704),
 * disables (0), and again (705). With new contexts each round.
 */
#include <cuda.h>

#include "check.h"

enum { SIZE = 64, COPIES = 20 };

static CUcontext contexts[2];
static pthread_barrier_t start, finished;
static atomic_int copying;
static int rounds = 500, others;

static void *disable(void *unused)
{
    for (int round = 0; round < rounds; round++) {
        pthread_barrier_wait(&start);
        CHECK_CU(cuCtxSetCurrent(contexts[0]));
        while (atomic_load(&copying))
            others += cuCtxDisablePeerAccess(contexts[1]) != CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
        pthread_barrier_wait(&finished);
    }
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    CUdeviceptr memory[2];
    CUcontext popped;
    int wrong = 0;
    rounds = argc > 1 ? atoi(argv[1]) : rounds;
    CHECK_CU(cuInit(0));
    pthread_barrier_init(&start, NULL, 2);
    pthread_barrier_init(&finished, NULL, 2);
    REQUIRE(pthread_create(&thread, NULL, disable, NULL) == 0);
    for (int round = 0; round < rounds; round++) {
        for (int device = 0; device < 2; device++) {
            CHECK_CU(cuCtxCreate_v2(&contexts[device], 0, device));
            CHECK_CU(cuMemAlloc(&memory[device], SIZE));
            CHECK_CU(cuCtxPopCurrent(&popped));
        }
        CHECK_CU(cuCtxPushCurrent(contexts[0]));
        atomic_store(&copying, 1);
        pthread_barrier_wait(&start);
        for (int i = 0; i < COPIES; i++)
            CHECK_CU(cuMemcpyPeer(memory[1], contexts[1], memory[0], contexts[0], SIZE));
        atomic_store(&copying, 0);
        pthread_barrier_wait(&finished);
        CUresult answers[] = {cuCtxEnablePeerAccess(contexts[1], 0), cuCtxEnablePeerAccess(contexts[1], 0),
                              cuCtxDisablePeerAccess(contexts[1]), cuCtxDisablePeerAccess(contexts[1])};
        CUresult expected[] = {CUDA_SUCCESS, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, CUDA_SUCCESS,
                               CUDA_ERROR_PEER_ACCESS_NOT_ENABLED};
        for (int i = 0; i < 4; i++)
            wrong += answers[i] != expected[i];
        CHECK_CU(cuCtxSynchronize());
        CHECK_CU(cuCtxPopCurrent(&popped));
        for (int device = 0; device < 2; device++)
            CHECK_CU(cuCtxDestroy(contexts[device]));
    }
    REQUIRE(pthread_join(thread, NULL) == 0);
    printf("disabling what was not enabled: %s\n", others ? "not always 705" : "always 705");
    printf("enabling and disabling afterwards: %s\n", wrong ? "WRONG" : "as ever");
    fprintf(stderr, "%d %d\n", others, wrong);
    return 0;
}
