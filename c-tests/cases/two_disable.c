/* build: driver; run: two_disable [ROUNDS] on sim
 * Two threads at once disable access of the same context to the same peer: one succeeds and the other is told that it is
 * not enabled (705), always. Prints how often it was otherwise.
 */
#include <cuda.h>

#include "check.h"

enum { SIZE = 2 << 20 };

static CUcontext contexts[2];
static pthread_barrier_t start, finished;
static atomic_int ready;
static CUresult answers[2];
static int rounds = 2000;

static void *disable(void *number)
{
    CHECK_CU(cuCtxSetCurrent(contexts[0]));
    for (int round = 0; round < rounds; round++) {
        pthread_barrier_wait(&start);
        /* Closer together than the barrier wakes them. */
        atomic_fetch_add(&ready, 1);
        while (atomic_load(&ready) < 2)
            continue;
        answers[(intptr_t)number] = cuCtxDisablePeerAccess(contexts[1]);
        pthread_barrier_wait(&finished);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[2];
    CUdeviceptr memory[2];
    int both = 0, neither = 0;
    rounds = argc > 1 ? atoi(argv[1]) : rounds;
    CHECK_CU(cuInit(0));
    for (int device = 0; device < 2; device++)
        memory[device] = context_memory(&contexts[device], device, SIZE);
    CHECK_CU(cuCtxSetCurrent(contexts[0]));
    for (int i = 0; i < 3; i++)
        CHECK_CU(cuMemcpyPeer(memory[1], contexts[1], memory[0], contexts[0], SIZE));
    CHECK_CU(cuCtxSynchronize());
    pthread_barrier_init(&start, NULL, 3);
    pthread_barrier_init(&finished, NULL, 3);
    for (intptr_t i = 0; i < 2; i++)
        REQUIRE(pthread_create(&threads[i], NULL, disable, (void *)i) == 0);
    for (int round = 0; round < rounds; round++) {
        CHECK_CU(cuCtxEnablePeerAccess(contexts[1], 0));
        atomic_store(&ready, 0);
        pthread_barrier_wait(&start);
        pthread_barrier_wait(&finished);
        both += answers[0] == CUDA_SUCCESS && answers[1] == CUDA_SUCCESS;
        neither += answers[0] != CUDA_SUCCESS && answers[1] != CUDA_SUCCESS;
    }
    for (int i = 0; i < 2; i++)
        REQUIRE(pthread_join(threads[i], NULL) == 0);
    printf("both succeeded: %s, neither: %s\n", both ? "sometimes" : "never", neither ? "sometimes" : "never");
    fprintf(stderr, "%d %d of %d\n", both, neither, rounds);
    return 0;
}
