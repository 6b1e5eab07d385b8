/* build: standin-runtime/libcudart.so.12; run: cancelled_thread on standin-runtime
 * A thread is cancelled while it blocks inside a peer copy. It unwinds through the shim: its clean-up handlers run, the
 * process lives on, and later copies of the same thread function and of the main thread are not taken for nested ones.
 */
#include <cuda_runtime_api.h>
#include <semaphore.h>

#include "check.h"
#include "lib/standin_runtime.h"

static sem_t blocked;
static int cleaned_up;

static void block(void)
{
    sem_post(&blocked);
    for (;;)
        pause();
}

static void clean_up(void *argument)
{
    (void)argument;
    cleaned_up++;
}

static void *copying(void *returned)
{
    pthread_cleanup_push(clean_up, NULL);
    cudaMemcpyPeer(NULL, 1, NULL, 0, 1);
    pthread_cleanup_pop(0);
    return returned;
}

static void cancel_one(int round)
{
    pthread_t thread;
    void *result;
    standin_on_copy(block);
    REQUIRE(pthread_create(&thread, NULL, copying, NULL) == 0);
    REQUIRE(sem_wait(&blocked) == 0);
    REQUIRE(pthread_cancel(thread) == 0);
    REQUIRE(pthread_join(thread, &result) == 0);
    printf("round %d: %s, cleaned up %d\n", round, result == PTHREAD_CANCELED ? "cancelled" : "NOT cancelled", cleaned_up);
    standin_on_copy(NULL);
    SHOW(cudaMemcpyPeer(NULL, 1, NULL, 0, 1));
    SHOW(cudaMemcpyPeerAsync(NULL, 1, NULL, 0, 1, NULL));
}

int main(void)
{
    REQUIRE(sem_init(&blocked, 0, 0) == 0);
    for (int round = 1; round <= 3; round++)
        cancel_one(round);
    return 0;
}
