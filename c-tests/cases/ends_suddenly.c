/* build: runtime; run: ends_suddenly HOW FILE [COPIES] on sim
 * Eight threads copy, each noting its id and how many copies have returned in FILE, which is
 * mapped; in the middle the process ends: by kill (SIGKILL), abort, segfault, _exit, or exit; or once there were so many copies. What FILE says has returned is
 * what a trace must know of.
 */
#include <cuda_runtime_api.h>

#include "check.h"

enum { THREADS = 8, COUNT = 512 };

struct returned {
    _Atomic uint64_t thread, copies;
};

static struct returned *returned;
static _Atomic int ready;

/* While the process exits, calls of other threads fail: these wait for its end. */
static void check_or_stay(cudaError_t ret)
{
    while (ret == cudaErrorCudartUnloading)
        pause();
    CHECK(ret);
}

static void *thread(void *argument)
{
    struct returned *mine = argument;
    void *from, *to;
    to = device_memory(1, COUNT);
    from = device_memory(0, COUNT);
    cudaStream_t stream = non_blocking_stream();
    mine->thread = (uint64_t)syscall(SYS_gettid);
    ready++;
    for (;;) {
        check_or_stay(cudaMemcpyPeerAsync(to, 1, from, 0, COUNT, stream));
        mine->copies++;
        if (mine->copies % 64 == 0)
            check_or_stay(cudaStreamSynchronize(stream));
    }
    return NULL;
}

/* Each thread, and all together so often. */
static int all_have_copied(uint64_t least)
{
    uint64_t sum = 0;
    for (int i = 0; i < THREADS; i++) {
        if (returned[i].copies == 0)
            return 0;
        sum += returned[i].copies;
    }
    return sum >= least;
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 3 || argc == 4);
    int file = open(argv[2], O_RDWR | O_CREAT | O_TRUNC, 0600);
    REQUIRE(file >= 0 && ftruncate(file, sizeof *returned * THREADS) == 0);
    returned = mmap(NULL, sizeof *returned * THREADS, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    REQUIRE(returned != MAP_FAILED);
    for (int i = 0; i < THREADS; i++) {
        pthread_t id;
        REQUIRE(pthread_create(&id, NULL, thread, &returned[i]) == 0);
    }
    uint64_t least = argc == 4 ? strtoull(argv[3], NULL, 10) : 0;
    while (ready < THREADS || !all_have_copied(least))
        usleep(1000);
    /* Some way into the copies, another one each time. */
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    usleep((useconds_t)(5000 + now.tv_nsec / 1000 % 20000));

    if (strcmp(argv[1], "kill") == 0)
        kill(getpid(), SIGKILL);
    else if (strcmp(argv[1], "abort") == 0)
        abort();
    else if (strcmp(argv[1], "segfault") == 0)
        *(volatile int *)8 = 1;
    else if (strcmp(argv[1], "_exit") == 0)
        _exit(3);
    else if (strcmp(argv[1], "exit") == 0)
        exit(3);
    REQUIRE(!"reached");
}
