/* build: driver; run: streams_reused handles|queries|waits on reusing-driver
 * Streams that threads make and destroy while others do the same, or copy: their handles are given again at once. All of it
 * is right, and no copy may be refused. For lib/reusing_driver.c, which does not survive the use of a stream that is gone.
 *
 * handles: each thread makes a stream, copies on it and destroys it. queries: one thread makes streams that do not wait for
 * default streams, and copies synchronously; another destroys them. waits: as handles, and one thread waits for all copies again and again.
 */
#include <cuda.h>

#include "check.h"

enum { THREADS = 4, ROUNDS = 30000, COPIES = 3 };

static const CUdeviceptr memory[] = {(CUdeviceptr)1 << 40, ((CUdeviceptr)1 << 40) + ((CUdeviceptr)1 << 32)};
static CUcontext contexts[2];
static _Atomic CUstream handed_over;
static atomic_bool finished;
static atomic_int refused;

static void copy(CUstream stream)
{
    refused += cuMemcpyPeerAsync(memory[1], contexts[1], memory[0], contexts[0], 64, stream) != CUDA_SUCCESS;
}

static void *use_and_destroy(void *unused)
{
    (void)unused;
    CHECK_CU(cuCtxSetCurrent(contexts[0]));
    for (int round = 0; round < ROUNDS; round++) {
        CUstream stream = driver_stream();
        for (int i = 0; i < COPIES; i++)
            copy(stream);
        CHECK_CU(cuStreamDestroy(stream));
    }
    return NULL;
}

static void *make_and_copy(void *unused)
{
    (void)unused;
    CHECK_CU(cuCtxSetCurrent(contexts[0]));
    for (int round = 0; round < ROUNDS; round++) {
        if (!atomic_load(&handed_over)) {
            CUstream stream = driver_stream();
            copy(stream);
            atomic_store(&handed_over, stream);
        }
        for (int i = 0; i < COPIES; i++)
            refused += cuMemcpyPeer(memory[1], contexts[1], memory[0], contexts[0], 64) != CUDA_SUCCESS;
    }
    atomic_store(&finished, true);
    return NULL;
}

static void *destroy(void *unused)
{
    (void)unused;
    while (!atomic_load(&finished)) {
        CUstream stream = atomic_load(&handed_over);
        if (!stream)
            continue;
        CHECK_CU(cuStreamDestroy(stream));
        atomic_store(&handed_over, NULL);
    }
    return NULL;
}

static void *synchronize(void *unused)
{
    (void)unused;
    CHECK_CU(cuCtxSetCurrent(contexts[1]));
    while (!atomic_load(&finished))
        CHECK_CU(cuCtxSynchronize());
    return NULL;
}

int main(int argc, char **argv)
{
    bool queries = argc > 1 && strcmp(argv[1], "queries") == 0;
    bool waits = argc > 1 && strcmp(argv[1], "waits") == 0;
    int count = queries ? 2 : THREADS;
    pthread_t waiting;
    pthread_t threads[THREADS];
    CHECK_CU(cuInit(0));
    for (int device = 0; device < 2; device++)
        CHECK_CU(cuDevicePrimaryCtxRetain(&contexts[device], device));
    for (int i = 0; i < count; i++)
        REQUIRE(pthread_create(&threads[i], NULL, !queries ? use_and_destroy : i == 0 ? make_and_copy : destroy, NULL) == 0);
    if (waits)
        REQUIRE(pthread_create(&waiting, NULL, synchronize, NULL) == 0);
    for (int i = 0; i < count; i++)
        REQUIRE(pthread_join(threads[i], NULL) == 0);
    atomic_store(&finished, true);
    if (waits)
        REQUIRE(pthread_join(waiting, NULL) == 0);
    printf("%d copies refused\n", atomic_load(&refused));
    return 0;
}
