/* build: standin-runtime/libcudart.so.12; run: trace_at_limit THREADS COPIES [ROUNDS] on standin-runtime
 * So many threads at once make so many copies each, and as many after them, on the stand-in runtime, so that each copy is one call. A
 * thread's copies are as large as its number.
 */
#include <cuda_runtime_api.h>

#include "check.h"
#include "lib/standin_runtime.h"

enum { MOST_THREADS = 64 };

static char from[64], to[64];
static int copies;

static void *copy(void *number)
{
    for (int i = 0; i < copies; i++)
        REQUIRE(cudaMemcpyPeerAsync(to, 1, from, 0, (size_t)number, NULL) == cudaSuccess);
    return NULL;
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 3 || argc == 4);
    int threads = atoi(argv[1]), rounds = argc == 4 ? atoi(argv[3]) : 1;
    copies = atoi(argv[2]);
    REQUIRE(threads <= MOST_THREADS);
    standin_async_answers(cudaSuccess);
    pthread_t thread[MOST_THREADS];
    for (size_t round = 0; round < (size_t)rounds; round++) {
        for (int i = 0; i < threads; i++)
            REQUIRE(pthread_create(&thread[i], NULL, copy, (void *)(round * threads + i + 1)) == 0);
        for (int i = 0; i < threads; i++)
            REQUIRE(pthread_join(thread[i], NULL) == 0);
    }
    return 0;
}
