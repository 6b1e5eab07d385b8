/* build: runtime old; run: thread_limits stack|main-ends|raw-child|elsewhere on sim
 * Things that threads of C programs do and the main threads of most do not.
 * stack: the first call of all is made by a thread whose stack is as small as can be.
 * main-ends: the main thread ends by pthread_exit; the process ends, with status 0, with the last of the others.
 * raw-child: a child that has run no fork handler calls as well.
 * elsewhere: the program goes to another folder, closes all descriptors, and goes on.
 */
#include <cuda_runtime_api.h>
#include <limits.h>

#include "check.h"
#include "lib/threads_sleep.h"

static void *first_call(void *argument)
{
    int can = -7;
    SHOW(cudaDeviceCanAccessPeer(&can, 0, 1));
    return argument;
}

/* So many that a trace takes more space several times. */
static void *many_calls(void *argument)
{
    int can = -7;
    for (int i = 0; i < 20000; i++)
        CHECK(cudaDeviceCanAccessPeer(&can, 0, 1));
    printf("all calls made\n");
    fflush(stdout);
    return argument;
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 2);
    pthread_attr_t attributes;
    pthread_t thread;
    REQUIRE(pthread_attr_init(&attributes) == 0);
    if (strcmp(argv[1], "stack") == 0) {
        REQUIRE(pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN) == 0);
        REQUIRE(pthread_create(&thread, &attributes, first_call, NULL) == 0);
        REQUIRE(pthread_join(thread, NULL) == 0);
    } else if (strcmp(argv[1], "main-ends") == 0) {
        REQUIRE(pthread_create(&thread, &attributes, many_calls, NULL) == 0);
        pthread_exit(NULL);
    } else if (strcmp(argv[1], "raw-child") == 0) {
        int can = -7;
        first_call(NULL);
        fflush(stdout);
        threads_sleep();
        long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        REQUIRE(child >= 0);
        for (int i = 0; i < (child == 0 ? 50 : 1); i++)
            cudaDeviceCanAccessPeer(&can, 0, 1);
        if (child == 0)
            _exit(0);
        REQUIRE(waitpid((pid_t)child, NULL, 0) == child);
        first_call(NULL);
    } else {
        first_call(NULL);
        REQUIRE(chdir("/") == 0);
        for (int descriptor = 3; descriptor < 4096; descriptor++)
            close(descriptor);
        many_calls(NULL);
    }
    return 0;
}
