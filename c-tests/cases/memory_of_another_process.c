/* build: driver; run: memory_of_another_process [mapped|same] on sim gpu
 * Memory of one process that another opens, one process for each GPU: the first owns memory of device 1, the second opens it on
 * device 0, copies to it and from it, and closes it. What each sees, and what is refused. `mapped`: memory that both map, which comes
 * by a file descriptor, and not by an IPC handle. `same`: of the device that opens it.
 */
#include <cuda.h>

#include "check.h"
#include "lib/mappings.h"

enum { COUNT = 1 << 20, PART = 5000, MAPPED = 2 << 20, REFUSED = 3 };

/* What the second process opens the memory by. */
struct ticket {
    CUipcMemHandle handle;
    int descriptor;
};

static int mapped, owner = 1;

/* Device `ordinal` with its primary context current, and memory on it. */
static CUdeviceptr start(int ordinal)
{
    CUdevice device;
    CUcontext context;
    CUdeviceptr memory;
    CHECK_CU(cuInit(0));
    CHECK_CU(cuDeviceGet(&device, ordinal));
    memory = context_memory(&context, device, COUNT);
    return memory;
}

static void put(CUdeviceptr memory, unsigned seed)
{
    static unsigned char host[COUNT];
    fill(host, COUNT, seed);
    CHECK_CU(cuMemcpyHtoD(memory, host, COUNT));
    CHECK_CU(cuCtxSynchronize());
}

/* Maps physical memory for a device. */
static CUdeviceptr map(CUmemGenericAllocationHandle physical, int device)
{
    CUmemAccessDesc access = access_of(device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUdeviceptr address = map_physical(physical, MAPPED);
    CHECK_CU(cuMemRelease(physical));
    if (SHOW_CU(cuMemSetAccess(address, MAPPED, &access, 1)) != CUDA_SUCCESS)
        exit(REFUSED);
    return address;
}

static void unmap(CUdeviceptr address)
{
    CHECK_CU(cuMemUnmap(address, MAPPED));
    CHECK_CU(cuMemAddressFree(address, MAPPED));
}

/* Memory of the owning device, and what another process opens it by. */
static CUdeviceptr share(struct ticket *ticket)
{
    CUdeviceptr memory = start(owner), there;
    CUmemGenericAllocationHandle physical;
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = owner}};
    memset(ticket, 0, sizeof *ticket);
    if (!mapped) {
        SHOW_CU(cuIpcGetMemHandle(&ticket->handle, 0));
        CHECK_CU(cuIpcGetMemHandle(&ticket->handle, memory));
        SHOW_CU(cuIpcOpenMemHandle(&there, ticket->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        return memory;
    }
    CHECK_CU(cuMemFree(memory));
    CHECK_CU(cuMemCreate(&physical, MAPPED, &properties, 0));
    CHECK_CU(cuMemExportToShareableHandle(&ticket->descriptor, physical, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    REQUIRE(fcntl(ticket->descriptor, F_SETFD, 0) == 0);
    return map(physical, owner);
}

static CUdeviceptr open_memory(const struct ticket *ticket)
{
    CUdeviceptr there;
    CUmemGenericAllocationHandle physical;
    if (!mapped) {
        CUresult code = cuIpcOpenMemHandle(&there, ticket->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
        if (code == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)
            exit(REFUSED);
        CHECK_CU(code);
        return there;
    }
    CHECK_CU(cuMemImportFromShareableHandle(&physical, (void *)(intptr_t)ticket->descriptor,
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    return map(physical, 0);
}

static void close_memory(CUdeviceptr there)
{
    if (mapped)
        unmap(there);
    else
        CHECK_CU(cuIpcCloseMemHandle(there));
}

static void show(const char *whose, CUdeviceptr memory)
{
    static unsigned char host[COUNT];
    CHECK_CU(cuCtxSynchronize());
    CHECK_CU(cuMemcpyDtoH(host, memory, COUNT));
    printf("%s: %08x\n", whose, checksum(host, COUNT));
    fflush(stdout);
}

/* The second process: the ticket comes on standard input, and a byte each time that it may go on. */
static int open_it(void)
{
    char go;
    struct ticket ticket;
    CUdeviceptr own = start(0), there, again;
    REQUIRE(read(STDIN_FILENO, &ticket, sizeof ticket) == sizeof ticket);
    there = open_memory(&ticket);
    again = open_memory(&ticket);
    printf("opened again it is at the same address: %d\n", again == there);
    show("the second process finds", there);
    SHOW_CU(cuMemFree(there));

    CUstream stream = driver_stream();
    put(own, 2);
    CHECK_CU(cuMemcpyDtoDAsync(there, own, COUNT, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    if (mapped) /* this process need not have a context on device 1 */
        CHECK_CU(cuMemcpyDtoD(there + PART, own, PART));
    else
        CHECK_CU(cuMemcpyPeer(there + PART, NULL, own, NULL, PART));
    show("the second process has written", there);
    close_memory(again);

    raise(SIGSTOP); /* until the first has written */
    REQUIRE(read(STDIN_FILENO, &go, 1) == 1);
    CHECK_CU(cuMemcpyDtoDAsync(own, there, COUNT, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    show("the second process has read", own);
    close_memory(there);
    SHOW_CU(cuIpcCloseMemHandle(there));
    return 0;
}

int main(int argc, char **argv)
{
    int to_child[2], status;
    struct ticket ticket;
    CUdeviceptr memory;
    pid_t child;
    mapped = argc > 1 && strcmp(argv[1], "mapped") == 0;
    owner = argc > 1 && strcmp(argv[1], "same") == 0 ? 0 : 1;
    if (argc > 1 + (mapped || owner == 0))
        return open_it();

    memory = share(&ticket);
    put(memory, 1);
    show("the first process has", memory);
    REQUIRE(pipe(to_child) == 0);
    child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        REQUIRE(dup2(to_child[0], STDIN_FILENO) == STDIN_FILENO && close(to_child[1]) == 0);
        if (mapped)
            execl("/proc/self/exe", argv[0], "mapped", "open", (char *)NULL);
        else
            execl("/proc/self/exe", argv[0], "open", (char *)NULL);
        _exit(127);
    }
    REQUIRE(write(to_child[1], &ticket, sizeof ticket) == sizeof ticket);
    REQUIRE(waitpid(child, &status, WUNTRACED) == child);
    if (!WIFSTOPPED(status)) {
        printf("the second process ends at once with %d\n", WEXITSTATUS(status));
        return 0;
    }
    show("the first process finds", memory);
    put(memory, 3);
    show("the first process has", memory);
    REQUIRE(kill(child, SIGCONT) == 0 && write(to_child[1], "", 1) == 1);
    REQUIRE(waitpid(child, &status, 0) == child);
    printf("the second process ends with %d\n", status);
    if (mapped)
        unmap(memory);
    else
        CHECK_CU(cuMemFree(memory));
    return 0;
}
