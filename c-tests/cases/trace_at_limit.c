/* build: standin-runtime/libcudart.so.12; run: trace_at_limit THREADS COPIES on standin-runtime
 * So many threads make so many copies each, on the stand-in runtime, so that each is one call.
 */
#include <cuda_runtime_api.h>
#include <pthread.h>

#include "check.h"
#include "lib/standin_runtime.h"

enum { MOST_THREADS = 64 };

static char from[64], to[64];
static int copies;

static void *copy(void *unused)
{
    (void)unused;
    for (int i = 0; i < copies; i++)
        REQUIRE(cudaMemcpyPeerAsync(to, 1, from, 0, sizeof to, NULL) == cudaSuccess);
    return NULL;
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 3);
    int threads = atoi(argv[1]);
    copies = atoi(argv[2]);
    REQUIRE(threads <= MOST_THREADS);
    standin_async_answers(cudaSuccess);
    pthread_t thread[MOST_THREADS];
    for (int i = 0; i < threads; i++)
        REQUIRE(pthread_create(&thread[i], NULL, copy, NULL) == 0);
    for (int i = 0; i < threads; i++)
        REQUIRE(pthread_join(thread[i], NULL) == 0);
    return 0;
}
