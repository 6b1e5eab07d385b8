/* build: runtime12+; run: waits_left wait jump|return|cancel [capture], or: waits_left copy jump|cancel EVENTS [known] on sim gpu
 * A signal, or the end of its thread, takes a thread out of a call, and later calls wait as before.
 *
 *   wait   the call waits for a copy from device 0 to device 1: cudaDeviceSynchronize of device 1. The handler leaves it by siglongjmp or
 *          returns, or the thread is cancelled. `capture`: meanwhile this thread captures a stream. Afterwards that capture ends, and the
 *          thread's capture mode is the program's
 *   copy   the call queues a copy on a stream that is full: P2PSIM_QUEUE, after EVENTS events. Whether it has queued the copy before it was
 *          left nobody can say; but no copy may arrive after cudaDeviceSynchronize of device 1. `known`: other copies were on the stream before
 *
 * The gate that holds up the copies opens LATER_MS after cudaDeviceSynchronize was called, when the thread is out.
 */
#include <cuda_runtime_api.h>

#include "check.h"

enum { BYTES = 1 << 20, PART = 4096, PARTS = BYTES / PART, WARM_UPS = 40, ROUNDS = 3, SIGNAL_MS = 30, LATER_MS = 100, GIVES_UP_MS = 10000 };
/* A thread that gets no further for so many checks, a millisecond or more each, is blocked in a call. */
enum { STILL = 150 };

static volatile int is_open, is_armed, copies_made;
static int is_jump, is_cancel;
static sigjmp_buf back;
static char *src, *dst;
static cudaStream_t stream, beside, reader;
static unsigned char pattern[BYTES], found[BYTES], later[BYTES];

static void CUDART_CB hold(void *data)
{
    (void)data;
    while (!is_open)
        sleep_for(1);
}

static void on_signal(int signal)
{
    (void)signal;
    if (!is_armed)
        return;
    is_armed = 0;
    if (is_jump)
        siglongjmp(back, 1);
}

/* Opens the gate, after so many milliseconds or when it is open already. */
static void *open_gate(void *milliseconds)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    for (intptr_t i = 0; i < (intptr_t)milliseconds && !is_open; i++)
        sleep_for(1);
    is_open = 1;
    return NULL;
}

static pthread_t opens_after(intptr_t milliseconds)
{
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, open_gate, (void *)milliseconds) == 0);
    return thread;
}

static cudaStream_t new_stream(int device)
{
    CHECK(cudaSetDevice(device));
    cudaStream_t made = non_blocking_stream();
    return made;
}

static void prepare(int is_known)
{
    dst = device_memory(1, BYTES);
    reader = new_stream(1);
    src = device_memory(0, BYTES);
    CHECK(cudaMemset(src, 0, BYTES));
    CHECK(cudaDeviceSynchronize());
    stream = new_stream(0);
    beside = new_stream(0);
    for (int i = 0; i < WARM_UPS; i++)
        CHECK(cudaMemcpyPeerAsync(dst, 1, src, 0, BYTES, is_known ? stream : beside));
    CHECK(cudaStreamSynchronize(is_known ? stream : beside));
}

static void set_source(unsigned seed)
{
    fill(pattern, BYTES, seed);
    CHECK(cudaSetDevice(0));
    CHECK(cudaMemcpyAsync(src, pattern, BYTES, cudaMemcpyHostToDevice, beside));
    CHECK(cudaStreamSynchronize(beside));
}

/* By a stream that comes after no copy. */
static void read_to(unsigned char *bytes)
{
    CHECK(cudaSetDevice(1));
    CHECK(cudaMemcpyAsync(bytes, dst, BYTES, cudaMemcpyDeviceToHost, reader));
    CHECK(cudaStreamSynchronize(reader));
}

/* Synchronizes device 1, opens the gate meanwhile if it is not open, and says whether the call has waited. */
static void synchronize(void)
{
    pthread_t opener = opens_after(LATER_MS);
    CHECK(cudaSetDevice(1));
    cudaError_t code = cudaDeviceSynchronize();
    int has_waited = is_open;
    REQUIRE(pthread_join(opener, NULL) == 0);
    printf("synchronize %s, %s; ", has_waited ? "waits" : "DOES NOT WAIT", cudaGetErrorName(code));
}

/* ---- A call that waits ---- */

static void *waits(void *data)
{
    CHECK(cudaSetDevice(1));
    cudaDeviceSynchronize();
    pthread_testcancel();
    return data;
}

static void cancel_one(void)
{
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, waits, NULL) == 0);
    sleep_for(SIGNAL_MS);
    REQUIRE(pthread_cancel(thread) == 0 && pthread_join(thread, NULL) == 0);
}

static void interrupt(timer_t timer)
{
    struct itimerspec soon = {.it_value = {.tv_nsec = SIGNAL_MS * 1000000L}};
    if (sigsetjmp(back, 1) == 0) {
        is_armed = 1;
        CHECK(cudaSetDevice(1));
        REQUIRE(timer_settime(timer, 0, &soon, NULL) == 0);
        CHECK(cudaDeviceSynchronize());
    }
    is_armed = 0;
}

static void end_capture(cudaStream_t captured)
{
    cudaGraph_t graph;
    size_t nodes = 0;
    CHECK(cudaSetDevice(0));
    CHECK(cudaMemcpyAsync(dst, src, PART, cudaMemcpyDefault, captured));
    cudaError_t code = cudaStreamEndCapture(captured, &graph);
    if (code == cudaSuccess)
        CHECK(cudaGraphGetNodes(graph, NULL, &nodes));
    printf("capture %s, %zu nodes; ", cudaGetErrorName(code), nodes);
}

static void show_capture_mode(void)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
    printf("capture mode %d; ", mode);
    CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
}

static void wait_once(unsigned round, timer_t timer, int is_captured)
{
    static cudaStream_t captured;
    captured = captured ? captured : new_stream(0);
    is_open = 0;
    set_source(round);
    CHECK(cudaLaunchHostFunc(stream, hold, NULL));
    CHECK(cudaMemcpyPeerAsync(dst, 1, src, 0, BYTES, stream));
    if (is_captured)
        CHECK(cudaStreamBeginCapture(captured, cudaStreamCaptureModeRelaxed));
    pthread_t opener = opens_after(is_jump ? GIVES_UP_MS : LATER_MS);
    if (is_cancel)
        cancel_one();
    else
        interrupt(timer);
    if (is_captured)
        end_capture(captured);
    show_capture_mode();
    /* Where a cancelled thread leaves depends on the driver. */
    if (!is_cancel)
        printf("gate %s; ", is_open ? "open" : "shut");
    synchronize();
    REQUIRE(pthread_join(opener, NULL) == 0);
    read_to(found);
    printf("bytes %s\n", memcmp(found, pattern, BYTES) ? "WRONG" : "right");
}

static void leave_waits(int is_captured)
{
    timer_t timer;
    /* To this thread alone: the driver's have signals held back or not, as they like. */
    struct sigevent to_it = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGALRM};
    to_it._sigev_un._tid = gettid();
    REQUIRE(timer_create(CLOCK_MONOTONIC, &to_it, &timer) == 0);
    for (unsigned round = 1; round <= ROUNDS; round++)
        wait_once(round, timer, is_captured);
}

/* ---- A call that copies ---- */

static void *copies(void *data)
{
    CHECK(cudaSetDevice(0));
    if (sigsetjmp(back, 1) == 0) {
        is_armed = 1;
        for (; copies_made < PARTS; copies_made++)
            CHECK(cudaMemcpyPeerAsync(dst + copies_made * PART, 1, src + copies_made * PART, 0, PART, stream));
    }
    return data;
}

/* Until the thread's call is blocked. */
static void wait_for_thread(void)
{
    while (!is_armed)
        sleep_for(1);
    for (int last = -1, still = 0; still < STILL && copies_made < PARTS; sleep_for(1)) {
        still = copies_made == last ? still + 1 : 0;
        last = copies_made;
    }
}

/* Whether all parts of copies whose call has returned have arrived. */
static int all_arrived(void)
{
    return memcmp(found, pattern, (size_t)copies_made * PART) == 0;
}

static void leave_copies(int events)
{
    cudaEvent_t event;
    pthread_t thread;
    void *result = NULL;
    set_source(1);
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK(cudaLaunchHostFunc(stream, hold, NULL));
    for (int i = 0; i < events; i++)
        CHECK(cudaEventRecord(event, stream));
    REQUIRE(pthread_create(&thread, NULL, copies, NULL) == 0);
    wait_for_thread();
    REQUIRE((is_cancel ? pthread_cancel(thread) : pthread_kill(thread, SIGALRM)) == 0);
    pthread_t opener = opens_after(GIVES_UP_MS);
    REQUIRE(pthread_join(thread, &result) == 0);
    printf("%s; ", is_open || copies_made == PARTS ? "NOT left" : is_cancel && result != PTHREAD_CANCELED ? "NOT cancelled" : "left");
    synchronize();
    REQUIRE(pthread_join(opener, NULL) == 0);
    read_to(found);
    CHECK(cudaStreamSynchronize(stream));
    read_to(later);
    printf("bytes %s, %s after it\n", all_arrived() ? "right" : "WRONG", memcmp(found, later, BYTES) ? "SOME" : "none");
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    REQUIRE(argc > 2);
    is_jump = strcmp(argv[2], "jump") == 0;
    is_cancel = strcmp(argv[2], "cancel") == 0;
    REQUIRE(sigaction(SIGALRM, &action, NULL) == 0);
    prepare(argc > 4);
    if (strcmp(argv[1], "wait") == 0)
        leave_waits(argc > 3);
    else
        leave_copies(argc > 3 ? atoi(argv[3]) : 0);
    fflush(stdout);
    _exit(0);
}
