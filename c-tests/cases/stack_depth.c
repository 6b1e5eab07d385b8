/*
 * How much stack calls about copies take, each on a thread whose stack was painted before: the first of its kind, and a later one.
 *
 *   stack_depth WHAT BYTES STACK [signal]
 *       async     cuMemcpyPeerAsync between two devices
 *       regular   cuMemcpyDtoDAsync between two devices
 *       batch     cuMemcpyBatchAsync between two devices
 *       graph     instantiating a graph with such a copy, and launching it
 *       query     cuDeviceCanAccessPeer
 *       enable    cuCtxEnablePeerAccess
 *
 * BYTES are copied, on stacks of so many KiB, each a thread's own, or with `signal` that of a handler on the main thread.
 *
 * Prints the most that one of the early calls took, and one of the later ones; and how a copy goes then that is made on the main
 * thread's own stack, after some others.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

enum {
    EARLY = 40, /* calls, among which something is made for the first time */
    LATER = 10,
    PAINT = 0xa5,
};

static CUcontext contexts[2];
static CUdeviceptr memory[2];
static CUstream stream;
static CUgraph graph;
static CUgraphExec exec;
static size_t bytes, stack_size;
static int by_signal;
static const char *what;

static int is(const char *name)
{
    return strcmp(what, name) == 0;
}

__attribute__((noinline)) static void call(void)
{
    int can;
    if (is("async"))
        CHECK_CU(cuMemcpyPeerAsync(memory[1], contexts[1], memory[0], contexts[0], bytes, stream));
    else if (is("regular"))
        CHECK_CU(cuMemcpyDtoDAsync(memory[1], memory[0], bytes, stream));
    else if (is("batch")) {
        CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
        size_t first = 0, failed;
        CHECK_CU(cuMemcpyBatchAsync(&memory[1], &memory[0], &bytes, 1, &attributes, &first, 1, &failed, stream));
    } else if (is("graph"))
        CHECK_CU(cuGraphLaunch(exec, stream));
    else if (is("instantiate"))
        CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
    else if (is("enable"))
        REQUIRE(cuCtxEnablePeerAccess(contexts[1], 0) != CUDA_ERROR_INVALID_VALUE);
    else
        CHECK_CU(cuDeviceCanAccessPeer(&can, 0, 1));
}

static unsigned char *deepest;
static long took;

static void *on_painted(void *unused)
{
    (void)unused;
    if (!by_signal)
        CHECK_CU(cuCtxSetCurrent(contexts[0]));
    unsigned char *here = __builtin_frame_address(0);
    /* What was called before has left its traces: painted over, up to a little below this frame. */
    for (volatile unsigned char *at = deepest; at < here - 512; at++)
        *at = PAINT;
    call();
    unsigned char *at = deepest;
    while (at < here && *at == PAINT)
        at++;
    took = here - at;
    return NULL;
}

static void on_user(int signal)
{
    (void)signal;
    on_painted(NULL);
}

static long depth(void)
{
    /* The page below is nobody's. */
    enum { GUARD = 4096 };
    unsigned char *stack = mmap(NULL, GUARD + stack_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(stack != MAP_FAILED && mprotect(stack, GUARD, PROT_NONE) == 0);
    deepest = stack + GUARD;
    if (by_signal) {
        stack_t own = {.ss_sp = deepest, .ss_size = stack_size}, none = {.ss_flags = SS_DISABLE};
        struct sigaction action = {.sa_handler = on_user, .sa_flags = SA_ONSTACK};
        REQUIRE(sigaltstack(&own, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
        raise(SIGUSR1);
        REQUIRE(sigaltstack(&none, NULL) == 0);
    } else {
        pthread_attr_t attributes;
        pthread_t thread;
        REQUIRE(pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, deepest, stack_size) == 0);
        REQUIRE(pthread_create(&thread, &attributes, on_painted, NULL) == 0 && pthread_join(thread, NULL) == 0);
    }
    munmap(stack, GUARD + stack_size);
    return took;
}

static const char *path(void)
{
    int (*count)(int, int, unsigned long long *, unsigned long long *);
    unsigned long long before, after, staged;
    *(void **)&count = dlsym(RTLD_DEFAULT, "p2psim_copies");
    if (!count)
        return "as real GPUs do";
    REQUIRE(count(0, 1, &before, &staged) == 0);
    call();
    REQUIRE(count(0, 1, &after, &staged) == 0);
    return after > before ? "direct" : "not direct";
}

int main(int argc, char **argv)
{
    REQUIRE(argc > 3);
    what = argv[1];
    bytes = strtoul(argv[2], NULL, 0);
    stack_size = strtoul(argv[3], NULL, 0) << 10;
    by_signal = argc > 4;
    CHECK_CU(cuInit(0));
    for (int device = 1; device >= 0; device--) {
        CHECK_CU(cuDevicePrimaryCtxRetain(&contexts[device], device));
        CHECK_CU(cuCtxSetCurrent(contexts[device]));
        CHECK_CU(cuMemAlloc(&memory[device], bytes));
    }
    CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (is("graph")) {
        CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .dstMemoryType = CU_MEMORYTYPE_DEVICE};
        CUgraphNode node;
        copy.srcDevice = memory[0];
        copy.dstDevice = memory[1];
        copy.WidthInBytes = copy.srcPitch = copy.dstPitch = bytes;
        copy.Height = copy.Depth = copy.srcHeight = copy.dstHeight = 1;
        CHECK_CU(cuGraphCreate(&graph, 0));
        CHECK_CU(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, contexts[0]));
        what = "instantiate";
        printf("instantiate %ld\n", depth());
        what = "graph";
    }
    long first = 0, now, later = 0;
    for (int i = 0; i < EARLY; i++)
        first = (now = depth()) > first ? now : first;
    for (int i = 0; i < LATER; i++)
        later = (now = depth()) > later ? now : later;
    printf("first %ld\nlater %ld\n", first, later);
    for (int i = 0; i < EARLY; i++)
        call();
    printf("then %s\n", path());
    CHECK_CU(cuStreamSynchronize(stream));
    return 0;
}
