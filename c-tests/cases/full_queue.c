/* build: driver; run: full_queue opens|leaves [FILLERS] on sim
 * Large copies on a stream that waits for the host, until queues of the driver are full and a call waits. A signal arrives all the same, and
 * its handler lets the stream go on, or leaves by siglongjmp.
 *
 * FILLERS, copies within the device, come before on the stream, so that its queue is full after fewer copies. Events are recorded between
 * them, which take no place in it.
 *
 * Prints whether the handler ran, and how many bytes of what was copied behind it are wrong: first a small copy over the end of the large
 * one that was left, which must not come later.
 */
#include <cuda.h>

#include "check.h"

enum { BYTES = 8 << 20, SMALL = 4096, COPIES = 120, VALUE = 0x5a };

static volatile sig_atomic_t is_open, has_run, is_armed, copies_made;
static int leaves;
static sigjmp_buf back;
static unsigned char found[BYTES];

static void CUDA_CB hold(void *data)
{
    (void)data;
    while (!is_open)
        sleep_for(1);
}

/* Strikes when no copy was made for a while, so that a call is waiting. */
static void on_alarm(int signal)
{
    static int last, still;
    (void)signal;
    still = copies_made == last ? still + 1 : 0;
    last = copies_made;
    if (!is_armed || still < 20)
        return;
    is_armed = 0;
    has_run = 1;
    if (leaves)
        siglongjmp(back, 1);
    is_open = 1;
}

/* Where signals never arrive, the stream goes on in the end. */
static void *give_up(void *data)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    sleep(20);
    is_open = 1;
    return data;
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = on_alarm};
    timer_t timer;
    struct itimerspec interval = {{0, 10000000}, {0, 10000000}};
    CUcontext contexts[2];
    CUdeviceptr memory[2], small;
    pthread_t other;
    volatile int wrong = 0;
    REQUIRE(argc > 1);
    leaves = !strcmp(argv[1], "leaves");
    CHECK_CU(cuInit(0));
    for (int device = 1; device >= 0; device--)
        memory[device] = context_memory(&contexts[device], device, BYTES);
    CHECK_CU(cuMemAlloc(&small, SMALL));
    CHECK_CU(cuMemsetD8(memory[0], 0, BYTES));
    CHECK_CU(cuMemsetD8(small, VALUE, SMALL));
    CUstream stream = driver_stream();
    CHECK_CU(cuMemcpyPeerAsync(memory[1], contexts[1], memory[0], contexts[0], BYTES, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    REQUIRE(pthread_create(&other, NULL, give_up, NULL) == 0);
    /* To this thread alone: the driver's have signals held back or not, as they like. */
    REQUIRE(sigaction(SIGALRM, &action, NULL) == 0);
    struct sigevent to_it = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGALRM};
    to_it._sigev_un._tid = gettid();
    REQUIRE(timer_create(CLOCK_MONOTONIC, &to_it, &timer) == 0);
    CUevent event;
    CHECK_CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK_CU(cuLaunchHostFunc(stream, hold, NULL));
    for (int i = argc > 2 ? atoi(argv[2]) : 0; i > 0; i--) {
        CHECK_CU(cuMemcpyDtoDAsync(memory[0] + 1, memory[0], 1, stream));
        CHECK_CU(cuEventRecord(event, stream));
    }
    if (sigsetjmp(back, 1) == 0) {
        is_armed = 1;
        REQUIRE(timer_settime(timer, 0, &interval, NULL) == 0);
        for (; copies_made < COPIES; copies_made++)
            CHECK_CU(cuMemcpyPeerAsync(memory[1], contexts[1], memory[0], contexts[0], BYTES, stream));
    }
    is_armed = 0;
    timer_delete(timer);
    is_open = 1;
    CUdeviceptr last = memory[1] + BYTES - SMALL;
    CHECK_CU(cuMemcpyPeerAsync(last, contexts[1], small, contexts[0], SMALL, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    for (int device = 1; device >= 0; device--) {
        CHECK_CU(cuCtxSetCurrent(contexts[device]));
        CHECK_CU(cuCtxSynchronize());
    }
    CHECK_CU(cuMemcpyDtoH(found, last, SMALL));
    wrong += others_than(found, SMALL, VALUE);
    for (int copy = 0; copy < 10; copy++) {
        CHECK_CU(cuMemsetD8Async(memory[0], (unsigned char)(VALUE + copy), BYTES, stream));
        CHECK_CU(cuMemcpyPeerAsync(memory[1], contexts[1], memory[0], contexts[0], BYTES, stream));
        CHECK_CU(cuStreamSynchronize(stream));
        CHECK_CU(cuMemcpyDtoH(found, memory[1], BYTES));
        wrong += others_than(found, BYTES, (unsigned char)(VALUE + copy));
    }
    printf("the handler %s, %d bytes wrong\n", has_run ? "ran" : "did not run", wrong);
    return 0;
}
