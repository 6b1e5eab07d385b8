/* build: runtime old; run: multithreaded on sim gpu
 * Eight threads copy at once, half of them from GPU 0 to GPU 1 and half back, with all four functions, and check each byte.
 */
#include <cuda_runtime_api.h>

#include "check.h"

enum { THREADS = 8, ROUNDS = 40, COUNT = 20000 };

static void *thread(void *argument)
{
    unsigned number = (unsigned)(uintptr_t)argument;
    int src = (int)(number % 2), dst = 1 - src;
    void *from, *to;
    unsigned char sent[COUNT], received[COUNT];
    uintptr_t right = 0;

    to = device_memory(dst, COUNT);
    from = device_memory(src, COUNT);
    cudaStream_t stream = non_blocking_stream();

    struct cudaMemcpy3DPeerParms p = {0};
    p.srcDevice = src;
    p.dstDevice = dst;
    p.srcPtr = (struct cudaPitchedPtr){from, 100, 100, COUNT / 100};
    p.dstPtr = (struct cudaPitchedPtr){to, 100, 100, COUNT / 100};
    p.extent = (struct cudaExtent){100, COUNT / 100, 1};

    for (unsigned round = 0; round < ROUNDS; round++) {
        fill(sent, COUNT, number * ROUNDS + round);
        CHECK(cudaMemcpy(from, sent, COUNT, cudaMemcpyHostToDevice));
        CHECK(cudaDeviceSynchronize());
        switch (round % 4) {
        case 0: CHECK(cudaMemcpyPeer(to, dst, from, src, COUNT)); break;
        case 1: CHECK(cudaMemcpyPeerAsync(to, dst, from, src, COUNT, stream)); break;
        case 2: CHECK(cudaMemcpy3DPeer(&p)); break;
        case 3: CHECK(cudaMemcpy3DPeerAsync(&p, stream)); break;
        }
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaMemcpy(received, to, COUNT, cudaMemcpyDeviceToHost));
        right += memcmp(sent, received, COUNT) == 0;

        /* An error of this thread's is this thread's own. */
        if (number % 4 == 3) {
            REQUIRE(cudaMemcpyPeer(to, 99, from, src, COUNT) == cudaErrorInvalidDevice);
            REQUIRE(cudaGetLastError() == cudaErrorInvalidDevice);
        } else {
            REQUIRE(cudaGetLastError() == cudaSuccess);
        }
    }
    return (void *)right;
}

int main(void)
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, thread, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++) {
        void *right;
        REQUIRE(pthread_join(threads[i], &right) == 0);
        printf("thread %d: %d of %d copies right\n", i, (int)(uintptr_t)right, ROUNDS);
    }
    return 0;
}
