/* build: -rdynamic driver; run: forked_during_start on sim
 * A thread forks while another makes the first call, at which the shim starts. The start is held up where the trace gets its room
 * on disk, until the child has ended. The child's own call must return.
 */
#include <cuda.h>
#include <semaphore.h>

#include "check.h"

enum { PATIENCE = 10 };

static sem_t has_begun, may_go_on;

/* In place of the C library's: for the trace, which is made during the start. */
int fallocate64(int file, int mode, off64_t offset, off64_t length)
{
    static int times;
    (void)mode;
    if (times++ == 0) {
        sem_post(&has_begun);
        sem_wait(&may_go_on);
    }
    return posix_fallocate64(file, offset, length) == 0 ? 0 : -1;
}

int fallocate(int file, int mode, off_t offset, off_t length)
{
    return fallocate64(file, mode, offset, length);
}

static void *make_first_call(void *unused)
{
    int can = 0;
    CHECK_CU(cuDeviceCanAccessPeer(&can, 0, 1));
    printf("parent: can access %d\n", can);
    return unused;
}

int main(void)
{
    pthread_t thread;
    struct timespec until;
    int status, can;
    CHECK_CU(cuInit(0));
    REQUIRE(sem_init(&has_begun, 0, 0) == 0 && sem_init(&may_go_on, 0, 0) == 0);
    REQUIRE(pthread_create(&thread, NULL, make_first_call, NULL) == 0);
    REQUIRE(clock_gettime(CLOCK_REALTIME, &until) == 0);
    until.tv_sec += PATIENCE;
    REQUIRE(sem_timedwait(&has_begun, &until) == 0);
    pid_t child = fork();
    if (child == 0) {
        alarm(PATIENCE);
        cuDeviceCanAccessPeer(&can, 0, 1);
        _exit(42);
    }
    REQUIRE(waitpid(child, &status, 0) == child);
    printf("child: %s\n", WIFEXITED(status) && WEXITSTATUS(status) == 42 ? "its call has returned" : "does not end");
    fflush(stdout);
    sem_post(&may_go_on);
    REQUIRE(pthread_join(thread, NULL) == 0);
    return 0;
}
