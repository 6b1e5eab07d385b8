/*
 * At the limit of peers (P2PSIM_MAX_PEERS=1, three devices): one thread copies from device 0 to 1 all the time; another one
 * does between the same two contexts, on a stream of device 2; meanwhile a third one enables and disables access of device 0
 * to 2. Every answer is 0, no context is lost, and the bytes are right. With new contexts each round.
 *
 *   limit_threads [ROUNDS]
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

enum { SIZE = 128 << 10, COPIERS = 2, AT_A_TIME = 8, ENOUGH = 40 };

CUresult cuCtxCreate_v2(CUcontext *, unsigned int, CUdevice);

static CUcontext contexts[3];
static pthread_barrier_t start, finished;
static atomic_int enabling, copied[COPIERS];
static int rounds = 100, wrong[COPIERS], failed[COPIERS];

static void copy_all_the_time(int number)
{
    static unsigned char sent[COPIERS][SIZE], got[COPIERS][SIZE];
    CUdeviceptr memory[2];
    CUstream stream;
    for (int device = 0; device < 2; device++) {
        CHECK_CU(cuCtxSetCurrent(contexts[device]));
        CHECK_CU(cuMemAlloc(&memory[device], SIZE));
    }
    CHECK_CU(cuCtxSetCurrent(contexts[number ? 2 : 0]));
    CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned seed = 0; atomic_load(&enabling); seed++) {
        fill(sent[number], SIZE, seed);
        CUresult code = cuMemcpyHtoD(memory[0], sent[number], SIZE);
        for (int i = 0; i < AT_A_TIME && code == CUDA_SUCCESS; i++, atomic_fetch_add(&copied[number], 1))
            code = cuMemcpyPeerAsync(memory[1], contexts[1], memory[0], contexts[0], SIZE, stream);
        code = code ? code : cuStreamSynchronize(stream);
        code = code ? code : cuMemcpyDtoH(got[number], memory[1], SIZE);
        failed[number] += code != CUDA_SUCCESS;
        if (code != CUDA_SUCCESS)
            return;
        wrong[number] += memcmp(sent[number], got[number], SIZE) != 0;
    }
}

static void *copier(void *number)
{
    for (int round = 0; round < rounds; round++) {
        pthread_barrier_wait(&start);
        copy_all_the_time((int)(intptr_t)number);
        CHECK_CU(cuCtxSetCurrent(NULL));
        pthread_barrier_wait(&finished);
    }
    return number;
}

int main(int argc, char **argv)
{
    pthread_t threads[COPIERS];
    CUcontext popped;
    int refused[2] = {0, 0}, lost = 0;
    rounds = argc > 1 ? atoi(argv[1]) : rounds;
    CHECK_CU(cuInit(0));
    pthread_barrier_init(&start, NULL, COPIERS + 1);
    pthread_barrier_init(&finished, NULL, COPIERS + 1);
    for (int i = 0; i < COPIERS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, copier, (void *)(intptr_t)i) == 0);
    for (int round = 0; round < rounds; round++) {
        for (int device = 0; device < 3; device++) {
            CHECK_CU(cuCtxCreate_v2(&contexts[device], 0, device));
            CHECK_CU(cuCtxPopCurrent(&popped));
        }
        for (int i = 0; i < COPIERS; i++)
            atomic_store(&copied[i], 0);
        atomic_store(&enabling, 1);
        pthread_barrier_wait(&start);
        for (int i = 0; i < 2000 && (atomic_load(&copied[0]) < ENOUGH || atomic_load(&copied[1]) < ENOUGH); i++)
            usleep(100);
        CHECK_CU(cuCtxSetCurrent(contexts[0]));
        refused[0] += cuCtxEnablePeerAccess(contexts[2], 0) != CUDA_SUCCESS;
        refused[1] += cuCtxDisablePeerAccess(contexts[2]) != CUDA_SUCCESS;
        atomic_store(&enabling, 0);
        pthread_barrier_wait(&finished);
        CHECK_CU(cuCtxSetCurrent(NULL));
        for (int device = 0; device < 3; device++) {
            CHECK_CU(cuCtxPushCurrent(contexts[device]));
            lost += cuCtxSynchronize() != CUDA_SUCCESS;
            CHECK_CU(cuCtxPopCurrent(&popped));
            lost += cuCtxDestroy(contexts[device]) != CUDA_SUCCESS;
        }
    }
    for (int i = 0; i < COPIERS; i++) {
        REQUIRE(pthread_join(threads[i], NULL) == 0);
        printf("thread %d: %d wrong, %d failed\n", i, wrong[i], failed[i]);
    }
    printf("enabling refused %d times, disabling %d times, %d contexts lost\n", refused[0], refused[1], lost);
    return 0;
}
