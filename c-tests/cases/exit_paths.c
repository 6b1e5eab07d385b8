/* build: runtime old; run: exit_paths on sim
 * Peer calls when a process or a thread is young or dying: from a constructor, from the destructors of thread-local
 * values, from a thread that outlives main's, from atexit handlers and from a destructor of the program.
 */
#include <cuda_runtime_api.h>

#include "check.h"

static pthread_key_t key;
static pthread_t main_thread;

static void call_from(const char *where)
{
    int can = -7;
    printf("%s\n", where);
    SHOW(cudaDeviceCanAccessPeer(&can, 0, 1));
    SHOW(cudaMemcpyPeer(NULL, 1, NULL, 0, 0));
    SHOW(cudaMemcpyPeer(NULL, 99, NULL, 0, 1));
    SHOW(cudaGetLastError());
    fflush(stdout);
}

__attribute__((constructor)) static void at_load(void)
{
    call_from("constructor");
}

__attribute__((destructor)) static void at_unload(void)
{
    call_from("destructor");
}

static void at_exit(void)
{
    call_from("atexit");
}

/* Sets the value again: it is destroyed once more, after the thread-local values of every library are gone. */
static void at_thread_end(void *left)
{
    call_from("thread-local destructor");
    if ((uintptr_t)left > 1)
        pthread_setspecific(key, (void *)((uintptr_t)left - 1));
}

static void *short_lived(void *argument)
{
    pthread_setspecific(key, (void *)3);
    return argument;
}

static void *outliving(void *argument)
{
    pthread_join(main_thread, NULL);
    call_from("thread that outlives main's");
    return argument;
}

int main(void)
{
    pthread_t thread;
    main_thread = pthread_self();
    REQUIRE(atexit(at_exit) == 0);
    call_from("main");
    REQUIRE(atexit(at_exit) == 0);
    REQUIRE(pthread_key_create(&key, at_thread_end) == 0);
    run_in_thread(short_lived, NULL);
    REQUIRE(pthread_create(&thread, NULL, outliving, NULL) == 0);
    pthread_detach(thread);
    pthread_exit(NULL);
}
