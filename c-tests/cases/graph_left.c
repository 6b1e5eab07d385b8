/* build: driver; run: graph_left jumps|cancelled launch|copy EVERY FIRST on sim
 * A launch of a graph, or a copy, is left at the instruction FIRST, and EVERY so many further on, until the real driver is reached. Afterwards the graph is
 * destroyed, which must not wait for anything that was left behind. For each instruction: a trap is taken there, and acts, which has
 * effect at once or, where that is held back, as soon as it may.
 *
 *   jumps        by a signal handler, with siglongjmp
 *   cancelled    by a thread that is cancelled, asynchronously
 *
 * Prints whether there were many, how the last launch went, and that it was destroyed.
 */
#include <cuda.h>
#include <ucontext.h>

#include "check.h"

enum {
    BYTES = 1 << 16,
    TRAP_FLAG = 256,
    MANY = 20,
    PATIENCE = 30, /* seconds, for what takes microseconds or for ever */
};

static CUcontext contexts[2];
static CUstream stream;
static CUgraphExec exec;
static sigjmp_buf out;
static volatile int steps, at, is_cancelled, is_copy;
static CUdeviceptr ends[2];
static uintptr_t driver[2];

static void on_user(int signal)
{
    (void)signal;
    siglongjmp(out, 1);
}

static void on_trap(int signal, siginfo_t *info, void *argument)
{
    (void)signal, (void)info;
    ucontext_t *context = argument;
    uintptr_t here = (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
    int is_over = here >= driver[0] && here < driver[1] && !sigismember(&context->uc_sigmask, SIGUSR1);
    int is_there = ++steps == at;
    if (is_over || is_there)
        context->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
    if (!is_there || is_over)
        return;
    if (is_cancelled)
        pthread_cancel(pthread_self());
    else
        raise(SIGUSR1);
}

static CUresult leavable(void)
{
    return is_copy ? cuMemcpyPeerAsync(ends[1], contexts[1], ends[0], contexts[0], BYTES, stream) : cuGraphLaunch(exec, stream);
}

__attribute__((noinline)) static void launch_in_steps(void)
{
    __asm__ volatile("pushfq; orq $256, (%%rsp); popfq" ::: "memory", "cc");
    leavable();
    __asm__ volatile("pushfq; andq $-257, (%%rsp); popfq" ::: "memory", "cc");
}

static void *launch_cancellable(void *unused)
{
    int type;
    CHECK_CU(cuCtxSetCurrent(contexts[0]));
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
    launch_in_steps();
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
    return unused;
}

/* Whether the launch was left. */
static int leave(void)
{
    if (is_cancelled)
        return run_in_thread(launch_cancellable, NULL) == PTHREAD_CANCELED;
    if (sigsetjmp(out, 1) != 0)
        return 1;
    launch_in_steps();
    return 0;
}

/* Where the driver's code is. */
static void find_driver(void)
{
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    REQUIRE(maps);
    while (fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        char rights[5];
        if (strstr(line, "/libcuda.so") && sscanf(line, "%lx-%lx %4s", &start, &end, rights) == 3 && rights[2] == 'x') {
            driver[0] = start;
            driver[1] = end;
        }
    }
    fclose(maps);
    REQUIRE(driver[0]);
}

static void *watch(void *unused)
{
    (void)unused;
    sleep(PATIENCE);
    printf("destroying it does NOT return\n");
    fflush(stdout);
    _exit(1);
}

int main(int argc, char **argv)
{
    CUgraph graph;
    CUgraphNode node;
    REQUIRE(argc == 5);
    is_cancelled = strcmp(argv[1], "cancelled") == 0;
    is_copy = strcmp(argv[2], "copy") == 0;
    CHECK_CU(cuInit(0));
    for (int device = 1; device >= 0; device--)
        ends[device] = context_memory(&contexts[device], device, BYTES);
    CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .dstMemoryType = CU_MEMORYTYPE_DEVICE};
    copy.srcDevice = ends[0];
    copy.dstDevice = ends[1];
    copy.WidthInBytes = copy.srcPitch = copy.dstPitch = BYTES;
    copy.Height = copy.Depth = copy.srcHeight = copy.dstHeight = 1;
    CHECK_CU(cuGraphCreate(&graph, 0));
    CHECK_CU(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, contexts[0]));
    CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < (is_copy ? 40 : 3); i++)
        CHECK_CU(leavable());
    find_driver();
    struct sigaction trap = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO}, user = {.sa_handler = on_user};
    REQUIRE(sigaction(SIGTRAP, &trap, NULL) == 0 && sigaction(SIGUSR1, &user, NULL) == 0);
    volatile int left = 0, is_left = 1;
    for (at = atoi(argv[4]); is_left; at += atoi(argv[3])) {
        steps = 0;
        is_left = leave();
        left += is_left;
    }
    CHECK_CU(cuStreamSynchronize(stream));
    /* Without p2pshim there are few. */
    fprintf(stderr, "%s left\n", left > MANY ? "many" : "few");
    SHOW_CU(leavable());
    CHECK_CU(cuStreamSynchronize(stream));
    pthread_t watcher;
    REQUIRE(pthread_create(&watcher, NULL, watch, NULL) == 0);
    SHOW_CU(cuGraphExecDestroy(exec));
    return 0;
}
