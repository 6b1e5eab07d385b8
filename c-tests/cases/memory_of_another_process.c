/*
 * Memory of one process that another opens, one process for each GPU: the first owns memory of device 1, the second opens it on
 * device 0, copies to it and from it, and closes it. What each sees, and what is refused.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { COUNT = 1 << 20, PART = 5000 };

/* Device `ordinal` with its primary context current, and memory on it. */
static CUdeviceptr start(int ordinal)
{
    CUdevice device;
    CUcontext context;
    CUdeviceptr memory;
    CHECK_CU(cuInit(0));
    CHECK_CU(cuDeviceGet(&device, ordinal));
    CHECK_CU(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_CU(cuCtxSetCurrent(context));
    CHECK_CU(cuMemAlloc(&memory, COUNT));
    return memory;
}

static void put(CUdeviceptr memory, unsigned seed)
{
    static unsigned char host[COUNT];
    fill(host, COUNT, seed);
    CHECK_CU(cuMemcpyHtoD(memory, host, COUNT));
    CHECK_CU(cuCtxSynchronize());
}

static void show(const char *whose, CUdeviceptr memory)
{
    static unsigned char host[COUNT];
    CHECK_CU(cuCtxSynchronize());
    CHECK_CU(cuMemcpyDtoH(host, memory, COUNT));
    printf("%s: %08x\n", whose, checksum(host, COUNT));
    fflush(stdout);
}

/* The second process: the handle comes on standard input, and a byte each time that it may go on. */
static int open_it(void)
{
    char go;
    CUipcMemHandle handle;
    CUdeviceptr own = start(0), there, again;
    CUstream stream;
    REQUIRE(read(STDIN_FILENO, &handle, sizeof handle) == sizeof handle);
    CHECK_CU(cuIpcOpenMemHandle(&there, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    CHECK_CU(cuIpcOpenMemHandle(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    printf("a second handle is the same memory: %d\n", again == there);
    show("the second process finds", there);
    SHOW_CU(cuMemFree(there));

    CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    put(own, 2);
    CHECK_CU(cuMemcpyDtoDAsync(there, own, COUNT, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    CHECK_CU(cuMemcpyPeer(there + PART, NULL, own, NULL, PART));
    show("the second process has written", there);
    CHECK_CU(cuIpcCloseMemHandle(again));

    raise(SIGSTOP); /* until the first has written */
    REQUIRE(read(STDIN_FILENO, &go, 1) == 1);
    CHECK_CU(cuMemcpyDtoDAsync(own, there, COUNT, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    show("the second process has read", own);
    SHOW_CU(cuIpcCloseMemHandle(there));
    SHOW_CU(cuIpcCloseMemHandle(there));
    return 0;
}

int main(int argc, char **argv)
{
    int to_child[2], status;
    CUipcMemHandle handle;
    CUdeviceptr memory, there;
    pid_t child;
    if (argc > 1)
        return open_it();

    memory = start(1);
    put(memory, 1);
    show("the first process has", memory);
    SHOW_CU(cuIpcGetMemHandle(&handle, 0));
    CHECK_CU(cuIpcGetMemHandle(&handle, memory));
    SHOW_CU(cuIpcOpenMemHandle(&there, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));

    REQUIRE(pipe(to_child) == 0);
    child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        REQUIRE(dup2(to_child[0], STDIN_FILENO) == STDIN_FILENO && close(to_child[1]) == 0);
        execl("/proc/self/exe", argv[0], "open", (char *)NULL);
        _exit(127);
    }
    REQUIRE(write(to_child[1], &handle, sizeof handle) == sizeof handle);
    REQUIRE(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
    show("the first process finds", memory);
    put(memory, 3);
    show("the first process has", memory);
    REQUIRE(kill(child, SIGCONT) == 0 && write(to_child[1], "", 1) == 1);
    REQUIRE(waitpid(child, &status, 0) == child);
    printf("the second process ends with %d\n", status);
    CHECK_CU(cuMemFree(memory));
    return 0;
}
