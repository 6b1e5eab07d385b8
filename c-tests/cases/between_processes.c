/* build: runtime driver; run: between_processes ipc|vmm|pool push|pull both|each [freed|killed] on sim gpu
 * Memory of GPU 1 that one process owns and another one opens on GPU 0, shared by an IPC handle, by the descriptor of memory that both map, or
 * from a pool: what each is told of it, and the bytes that the second one pushes there or pulls from there. Both see both GPUs, or
 * each sees its own alone, as device 0. Where both are seen, the owner fills it some time later, and the other one waits for its event.
 * `freed`, `killed`: as soon as the memory is open, its owner frees it, or is killed; documented as undefined, so on simulated GPUs alone.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <spawn.h>
#include <sys/socket.h>

#include "check.h"
#include "lib/mappings.h"
#include "lib/runtime_batches.h"

enum { COUNT = 2 << 20, PART = 300000, ROW = 1000, INSIDE = 5000, OWNERS_SEED = 1, OPENERS_SEED = 2, CHANNEL = 9 };

extern char **environ;

/* All that an opener needs, besides the descriptor that comes with it. */
struct ticket {
    cudaIpcMemHandle_t handle;
    CUmemPoolPtrExportData data;
    cudaIpcEventHandle_t event;
};

static const char *transport, *direction, *visibility, *end;
static unsigned char host[COUNT], expected[COUNT];

static bool is(const char *word, const char *other)
{
    return strcmp(word, other) == 0;
}

/* The device of a GPU, by the numbering of a process that sees both or this one alone. */
static int device_of(int gpu)
{
    return is(visibility, "each") ? 0 : gpu;
}

static void say(const char *what, long long value)
{
    printf("%s: %lld\n", what, value);
}

/* A message, and a descriptor that it carries or -1. */
static void send_message(const void *message, size_t length, int descriptor)
{
    char control[CMSG_SPACE(sizeof descriptor)] = {0};
    struct iovec part = {.iov_base = (void *)message, .iov_len = length};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (descriptor >= 0) {
        header.msg_control = control;
        header.msg_controllen = sizeof control;
        struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof descriptor);
        memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
    }
    REQUIRE(sendmsg(CHANNEL, &header, MSG_NOSIGNAL) == (ssize_t)length);
}

static int receive_message(void *message, size_t length)
{
    int descriptor = -1;
    char control[CMSG_SPACE(sizeof descriptor)];
    struct iovec part = {.iov_base = message, .iov_len = length};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    REQUIRE(recvmsg(CHANNEL, &header, 0) == (ssize_t)length);
    struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
    if (rights)
        memcpy(&descriptor, CMSG_DATA(rights), sizeof descriptor);
    return descriptor;
}

/* The opener has it open, is refused it, has done; the owner lets it go on: o, r, d, g. */
static void tell(char what)
{
    send_message(&what, 1, -1);
}

static char hear(void)
{
    char heard;
    receive_message(&heard, 1);
    return heard;
}

/* Ends the opener, which is refused the memory. */
static void refused(void)
{
    tell('r');
    exit(0);
}

/* Maps physical memory and lets a device reach it. */
static CUdeviceptr map(CUmemGenericAllocationHandle physical, int device)
{
    CUmemAccessDesc access = access_of(device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUdeviceptr address = map_physical(physical, COUNT);
    if (SHOW_CU(cuMemSetAccess(address, COUNT, &access, 1)) != CUDA_SUCCESS)
        refused();
    return address;
}

static void put(void *memory, unsigned seed)
{
    fill(host, COUNT, seed);
    CHECK(cudaMemcpy(memory, host, COUNT, cudaMemcpyHostToDevice));
    CHECK(cudaDeviceSynchronize());
}

static void CUDART_CB sleep_a_while(void *data)
{
    (void)data;
    usleep(100000);
}

/* Whether the owner is not done with its memory when the opener gets it, and an event says when it is. */
static bool is_ordered(void)
{
    return is(visibility, "both") && is(end, "waits");
}

/* Fills memory some time after it has returned. */
static void put_later(void *memory, struct ticket *ticket)
{
    cudaEvent_t event;
    void *pinned;
    CHECK(cudaMallocHost(&pinned, COUNT));
    fill(pinned, COUNT, OWNERS_SEED);
    cudaStream_t stream = non_blocking_stream();
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
    CHECK(cudaIpcGetEventHandle(&ticket->event, event));
    CHECK(cudaLaunchHostFunc(stream, sleep_a_while, NULL));
    CHECK(cudaMemcpyAsync(memory, pinned, COUNT, cudaMemcpyHostToDevice, stream));
    CHECK(cudaEventRecord(event, stream));
}

static bool holds(const void *memory, unsigned seed)
{
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(host, memory, COUNT, cudaMemcpyDeviceToHost));
    fill(expected, COUNT, seed);
    return memcmp(host, expected, COUNT) == 0;
}

/* Memory that has no IPC handle, and a pool that has no descriptor. */
static void show_refused(void)
{
    cudaIpcMemHandle_t handle;
    struct cudaMemPoolProps properties = {.allocType = cudaMemAllocationTypePinned,
                                          .location = {.type = cudaMemLocationTypeDevice, .id = device_of(1)}};
    cudaMemPool_t pool;
    void *memory;
    int descriptor;
    CHECK(cudaMemPoolCreate(&pool, &properties));
    CHECK(cudaMallocFromPoolAsync(&memory, COUNT, pool, NULL));
    CHECK(cudaDeviceSynchronize());
    SHOW(cudaIpcGetMemHandle(&handle, memory));
    SHOW(cudaIpcGetMemHandle(&handle, host));
    SHOW(cudaMemPoolExportToShareableHandle(&descriptor, pool, cudaMemHandleTypePosixFileDescriptor, 0));
    CHECK(cudaFreeAsync(memory, NULL));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemPoolDestroy(pool));
    (void)cudaGetLastError();
}

static void *share_handle(struct ticket *ticket)
{
    cudaIpcMemHandle_t again, inside;
    void *memory, *opened;
    unsigned pid;
    unsigned long long size;
    CHECK(cudaMalloc(&memory, COUNT));
    CHECK(cudaIpcGetMemHandle(&ticket->handle, memory));
    CHECK(cudaIpcGetMemHandle(&again, memory));
    CHECK(cudaIpcGetMemHandle(&inside, (char *)memory + INSIDE));
    say("the handle is the same again", memcmp(&ticket->handle, &again, sizeof again) == 0);
    say("and of an address inside", memcmp(&ticket->handle, &inside, sizeof inside) == 0);
    memcpy(&pid, ticket->handle.reserved + 8, sizeof pid);
    memcpy(&size, ticket->handle.reserved + 16, sizeof size);
    say("it has the process at 8", pid == (unsigned)getpid());
    say("it has the size at 16", (long long)size);
    SHOW(cudaIpcOpenMemHandle(&opened, ticket->handle, cudaIpcMemLazyEnablePeerAccess));
    (void)cudaGetLastError();
    return memory;
}

static void *share_mapped(int *descriptor)
{
    CUmemGenericAllocationHandle physical;
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device_of(1)}};
    CUipcMemHandle handle;
    CHECK_CU(cuMemCreate(&physical, COUNT, &properties, 0));
    CHECK_CU(cuMemExportToShareableHandle(descriptor, physical, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CUdeviceptr memory = map(physical, device_of(1));
    CHECK_CU(cuMemRelease(physical));
    SHOW_CU(cuIpcGetMemHandle(&handle, memory));
    return (void *)memory;
}

static void *share_pool(struct ticket *ticket, int *descriptor, cudaMemPool_t *pool)
{
    struct cudaMemPoolProps properties = {.allocType = cudaMemAllocationTypePinned,
                                          .handleTypes = cudaMemHandleTypePosixFileDescriptor,
                                          .location = {.type = cudaMemLocationTypeDevice, .id = device_of(1)}};
    struct cudaMemPoolPtrExportData data;
    void *memory;
    CHECK(cudaMemPoolCreate(pool, &properties));
    CHECK(cudaMallocFromPoolAsync(&memory, COUNT, *pool, NULL));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemPoolExportToShareableHandle(descriptor, *pool, cudaMemHandleTypePosixFileDescriptor, 0));
    CHECK(cudaMemPoolExportPointer(&data, memory));
    memcpy(&ticket->data, &data, sizeof data);
    SHOW(cudaIpcGetMemHandle(&ticket->handle, memory));
    (void)cudaGetLastError();
    return memory;
}

static void give_back(void *memory, cudaMemPool_t pool)
{
    if (is(transport, "vmm")) {
        CHECK_CU(cuMemUnmap((CUdeviceptr)memory, COUNT));
        CHECK_CU(cuMemAddressFree((CUdeviceptr)memory, COUNT));
    } else {
        CHECK(cudaFree(memory));
        if (pool)
            CHECK(cudaMemPoolDestroy(pool));
    }
}

static int own_it(void)
{
    struct ticket ticket = {0};
    cudaMemPool_t pool = NULL;
    int descriptor = -1;
    void *memory;
    CHECK(cudaSetDevice(device_of(1)));
    CHECK(cudaFree(NULL));
    show_refused();
    if (is(transport, "ipc"))
        memory = share_handle(&ticket);
    else if (is(transport, "vmm"))
        memory = share_mapped(&descriptor);
    else
        memory = share_pool(&ticket, &descriptor, &pool);
    if (is_ordered())
        put_later(memory, &ticket);
    else
        put(memory, OWNERS_SEED);
    send_message(&ticket, sizeof ticket, descriptor);
    if (descriptor >= 0)
        REQUIRE(close(descriptor) == 0);

    char answer = hear();
    if (answer == 'o' && is(end, "killed"))
        raise(SIGKILL);
    if (answer == 'r')
        CHECK(cudaDeviceSynchronize());
    if (answer == 'r' || is(end, "freed"))
        give_back(memory, pool);
    if (answer == 'r')
        return 0;
    tell('g');
    REQUIRE(hear() == 'd');
    if (is(end, "freed"))
        return 0;
    say("the owner finds what was pushed", holds(memory, OPENERS_SEED));
    say("the owner finds its own", holds(memory, OWNERS_SEED));
    give_back(memory, pool);
    return 0;
}

static void show_pointer(void *memory)
{
    CUcontext context = NULL, current;
    CUmemoryPool pool = NULL;
    int device;
    /* Of one byte as documented; drivers write more. */
    unsigned long long is_legacy = 0;
    struct cudaPointerAttributes attributes;
    CHECK_CU(cuCtxGetCurrent(&current));
    CHECK_CU(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (CUdeviceptr)memory));
    CHECK_CU(cuPointerGetAttribute(&is_legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, (CUdeviceptr)memory));
    CHECK_CU(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, (CUdeviceptr)memory));
    CHECK_CU(cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, (CUdeviceptr)memory));
    CHECK(cudaPointerGetAttributes(&attributes, memory));
    printf("device %d, %d; context %s; legacy IPC %d; pool %s\n", device, attributes.device,
           context == NULL ? "none" : context == current ? "the current one" : "another", (int)(is_legacy & 1), pool ? "set" : "none");
}

static void *open_handle(const struct ticket *ticket)
{
    void *memory, *again;
    if (SHOW(cudaIpcOpenMemHandle(&memory, ticket->handle, cudaIpcMemLazyEnablePeerAccess)) != cudaSuccess)
        refused();
    CHECK(cudaIpcOpenMemHandle(&again, ticket->handle, cudaIpcMemLazyEnablePeerAccess));
    say("opened again at the same address", again == memory);
    SHOW(cudaIpcOpenMemHandle(&again, ticket->handle, 0));
    SHOW(cudaFree(memory));
    (void)cudaGetLastError();
    CHECK(cudaIpcCloseMemHandle(memory));
    if (is(visibility, "both")) {
        CHECK(cudaSetDevice(1));
        CHECK(cudaIpcOpenMemHandle(&again, ticket->handle, cudaIpcMemLazyEnablePeerAccess));
        printf("opened with device 1 current: ");
        show_pointer(again);
        CHECK(cudaIpcCloseMemHandle(again));
        CHECK(cudaSetDevice(0));
    }
    return memory;
}

static void *open_mapped(int descriptor)
{
    CUmemGenericAllocationHandle physical;
    CUmemAllocationProp properties;
    CHECK_CU(cuMemImportFromShareableHandle(&physical, (void *)(intptr_t)descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    CHECK_CU(cuMemGetAllocationPropertiesFromHandle(&properties, physical));
    say("it lies on device", properties.location.id);
    CUdeviceptr memory = map(physical, 0);
    CHECK_CU(cuMemRelease(physical));
    return (void *)memory;
}

static void *open_pool(const struct ticket *ticket, int descriptor, cudaMemPool_t *pool)
{
    struct cudaMemAccessDesc access = {.location = {.type = cudaMemLocationTypeDevice, .id = 0},
                                       .flags = cudaMemAccessFlagsProtReadWrite};
    struct cudaMemPoolPtrExportData data;
    void *memory, *own;
    memcpy(&data, &ticket->data, sizeof data);
    CHECK(cudaMemPoolImportFromShareableHandle(pool, (void *)(intptr_t)descriptor, cudaMemHandleTypePosixFileDescriptor, 0));
    SHOW(cudaMallocFromPoolAsync(&own, COUNT, *pool, NULL));
    CHECK(cudaMemPoolImportPointer(&memory, *pool, &data));
    if (SHOW(cudaMemPoolSetAccess(*pool, &access, 1)) != cudaSuccess)
        refused();
    (void)cudaGetLastError();
    return memory;
}

static void copy_in_graph(char *dst, const char *src, cudaStream_t stream)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphNode_t node;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddMemcpyNode1D(&node, graph, NULL, 0, dst, src, PART, cudaMemcpyDefault));
    CHECK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

static void copy_3d(char *dst, const char *src, cudaStream_t stream)
{
    enum { ROWS = 10 };
    struct cudaMemcpy3DParms copy = {.srcPtr = {(void *)src, ROW, ROW, ROWS}, .dstPtr = {dst, ROW, ROW, ROWS},
                                     .extent = {ROW, ROWS, PART / ROW / ROWS}, .kind = cudaMemcpyDefault};
    CHECK(cudaMemcpy3DAsync(&copy, stream));
}

/* Copies all of it between the opener's memory and the owner's, after an event of that if there is one, in parts of every form. */
static void copy(char *dst, const char *src, cudaEvent_t after)
{
    enum { REST = 5 * PART, ROWS = (COUNT - REST) / ROW, LAST = COUNT - REST - ROWS * ROW };
    cudaStream_t stream = non_blocking_stream();
    if (after)
        CHECK(cudaStreamWaitEvent(stream, after, 0));
    CHECK(cudaMemcpyPeerAsync(dst, 0, src, 0, PART, stream));
    CHECK(cudaMemcpyAsync(dst + PART, src + PART, PART, cudaMemcpyDefault, stream));
    CHECK(copy_in_parts(dst + 2 * PART, (char *)src + 2 * PART, PART, 2, stream));
    copy_in_graph(dst + 3 * PART, src + 3 * PART, stream);
    copy_3d(dst + 4 * PART, src + 4 * PART, stream);
    CHECK(cudaMemcpy2DAsync(dst + REST, ROW, src + REST, ROW, ROW, ROWS, cudaMemcpyDeviceToDevice, stream));
    CHECK(cudaMemcpyAsync(dst + COUNT - LAST, src + COUNT - LAST, LAST, cudaMemcpyDeviceToDevice, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaStreamDestroy(stream));
}

static int open_it(void)
{
    struct ticket ticket;
    cudaMemPool_t pool = NULL;
    cudaEvent_t event = NULL;
    void *own, *there;
    char answer;
    own = device_memory(0, COUNT);
    put(own, OPENERS_SEED);
    int descriptor = receive_message(&ticket, sizeof ticket);
    if (is(transport, "ipc"))
        there = open_handle(&ticket);
    else if (is(transport, "vmm"))
        there = open_mapped(descriptor);
    else
        there = open_pool(&ticket, descriptor, &pool);
    show_pointer(there);
    if (is_ordered())
        CHECK(cudaIpcOpenEventHandle(&event, ticket.event));

    tell('o');
    if (is(end, "killed"))
        REQUIRE(recv(CHANNEL, &answer, 1, 0) == 0);
    else
        REQUIRE(hear() == 'g');
    /* A trace knows what came first if it is longer than this. */
    if (is(end, "freed"))
        usleep(5000);
    if (is(direction, "pull")) {
        copy(own, there, event);
        say("the opener has pulled the owner's", holds(own, OWNERS_SEED));
    } else {
        copy(there, own, event);
    }
    if (is(transport, "ipc")) {
        CHECK(cudaIpcCloseMemHandle(there));
        SHOW(cudaMemcpy(own, there, PART, cudaMemcpyDeviceToDevice));
        SHOW(cudaIpcCloseMemHandle(there));
    } else {
        give_back(there, pool);
    }
    if (!is(end, "killed"))
        tell('d');
    return 0;
}

static pid_t start(const char *role, char **argv, int channel, int gpu)
{
    pid_t child;
    posix_spawn_file_actions_t actions;
    char *arguments[] = {argv[0], argv[1], argv[2], argv[3], (char *)end, (char *)role, NULL};
    if (is(visibility, "each"))
        REQUIRE(setenv("CUDA_VISIBLE_DEVICES", gpu ? "1" : "0", 1) == 0);
    REQUIRE(posix_spawn_file_actions_init(&actions) == 0);
    REQUIRE(posix_spawn_file_actions_adddup2(&actions, channel, CHANNEL) == 0);
    REQUIRE(posix_spawn(&child, "/proc/self/exe", &actions, NULL, arguments, environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    return child;
}

int main(int argc, char **argv)
{
    int channel[2], statuses[2];
    REQUIRE(argc >= 4);
    transport = argv[1];
    direction = argv[2];
    visibility = argv[3];
    end = argc > 4 ? argv[4] : "waits";
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 5)
        return is(argv[5], "owner") ? own_it() : open_it();

    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) == 0);
    pid_t children[] = {start("owner", argv, channel[0], 1), start("opener", argv, channel[1], 0)};
    REQUIRE(close(channel[0]) == 0 && close(channel[1]) == 0);
    for (int child = 0; child < 2; child++)
        REQUIRE(waitpid(children[child], &statuses[child], 0) == children[child]);
    printf("the owner ends with %d, the opener with %d\n", statuses[0], statuses[1]);
    return 0;
}
