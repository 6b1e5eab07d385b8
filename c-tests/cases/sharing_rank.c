/* build: 13 driver; run: sharing_rank on sim
 * A rank of a job whose processes share memory, which does what it is told by lines on standard input, and answers each with one: `ok` and what
 * was asked for, or `refused` and a code. Memory has a number that whoever tells it gives.
 *
 *   alloc N ipc|vmm|pool DEVICE BYTES               the UUID of its GPU
 *   export N                                        the handle, or the descriptor, or both
 *   open N ipc DEVICE UUID BYTES HANDLE             as `vmm DEVICE UUID BYTES PROCESS DESCRIPTOR`, and `pool`, which takes all of these
 *   copy FORM DEVICE N OFFSET M OFFSET BYTES        from M to N: the UUIDs of the GPUs that they are from and to, and the bytes
 *   close N                                         or frees it
 */
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "check.h"
#include "lib/runtime_batches.h"

enum { DEVICES = 4, MEMORIES = 4096, POOLS = 64, HANDLE = 64, UUID = 41, ROW = 64 };

static struct memory {
    enum { NONE, IPC, VMM, POOL } how;
    bool is_opened;
    int device;
    char uuid[UUID];
    size_t bytes;
    char *address;
    CUmemGenericAllocationHandle physical;
    cudaMemPool_t pool;
} memories[MEMORIES];

/* Pools of this process, one a device, and those of others, by process and descriptor there. */
static struct pool {
    long process;
    int descriptor;
    cudaMemPool_t pool;
} own_pools[DEVICES], pools[POOLS];

static int count;

/* A call that may be refused: then the answer says so, and the command is over. */
#define MAY(call) \
    do { \
        int code = (int)(call); \
        if (code != 0) { \
            (void)cudaGetLastError(); \
            printf("refused %d\n", code); \
            return; \
        } \
    } while (0)

static void print_hex(const void *bytes)
{
    for (int i = 0; i < HANDLE; i++)
        printf("%02x", ((const unsigned char *)bytes)[i]);
}

static void read_hex(void *bytes, const char *text)
{
    for (int i = 0; i < HANDLE; i++) {
        unsigned byte;
        REQUIRE(sscanf(text + 2 * i, "%2x", &byte) == 1);
        ((unsigned char *)bytes)[i] = (unsigned char)byte;
    }
}

static void name(char *out, int device)
{
    CUuuid uuid;
    CHECK_CU(cuDeviceGetUuid_v2(&uuid, device));
    out += sprintf(out, "GPU-");
    for (int i = 0; i < 16; i++)
        out += sprintf(out, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", (unsigned char)uuid.bytes[i]);
}

/* Maps physical memory, and lets all devices reach it. */
static CUresult map(struct memory *it)
{
    CUdeviceptr address;
    CUmemAccessDesc access[DEVICES];
    for (int i = 0; i < count; i++)
        access[i] = (CUmemAccessDesc){.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = i}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK_CU(cuMemAddressReserve(&address, it->bytes, 0, 0, 0));
    CHECK_CU(cuMemMap(address, it->bytes, 0, it->physical, 0));
    it->address = (char *)address;
    return cuMemSetAccess(address, it->bytes, access, count);
}

/* Lets all devices reach a pool's memory. */
static void grant(cudaMemPool_t pool)
{
    struct cudaMemAccessDesc access[DEVICES];
    for (int i = 0; i < count; i++)
        access[i] = (struct cudaMemAccessDesc){.location = {.type = cudaMemLocationTypeDevice, .id = i}, .flags = cudaMemAccessFlagsProtReadWrite};
    CHECK(cudaMemPoolSetAccess(pool, access, count));
}

static cudaMemPool_t own_pool(int device)
{
    struct pool *own = &own_pools[device];
    struct cudaMemPoolProps properties = {.allocType = cudaMemAllocationTypePinned, .handleTypes = cudaMemHandleTypePosixFileDescriptor,
                                          .location = {.type = cudaMemLocationTypeDevice, .id = device}};
    if (!own->pool) {
        CHECK(cudaMemPoolCreate(&own->pool, &properties));
        CHECK(cudaMemPoolExportToShareableHandle(&own->descriptor, own->pool, cudaMemHandleTypePosixFileDescriptor, 0));
        grant(own->pool);
    }
    return own->pool;
}

static int how_of(const char *word)
{
    return strcmp(word, "ipc") == 0 ? IPC : strcmp(word, "vmm") == 0 ? VMM : POOL;
}

static void allocate(struct memory *it, const char *how, int device, size_t bytes)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    *it = (struct memory){.how = how_of(how), .device = device, .bytes = bytes};
    name(it->uuid, device);
    CHECK(cudaSetDevice(device));
    if (it->how == IPC) {
        CHECK(cudaMalloc((void **)&it->address, bytes));
    } else if (it->how == VMM) {
        CHECK_CU(cuMemCreate(&it->physical, bytes, &properties, 0));
        CHECK_CU(map(it));
    } else {
        it->pool = own_pool(device);
        CHECK(cudaMallocFromPoolAsync((void **)&it->address, bytes, it->pool, NULL));
        CHECK(cudaStreamSynchronize(NULL));
    }
    printf("ok %s\n", it->uuid);
}

static void export(const struct memory *it)
{
    cudaIpcMemHandle_t handle;
    struct cudaMemPoolPtrExportData data;
    int descriptor;
    CHECK(cudaSetDevice(it->device));
    if (it->how == IPC) {
        CHECK(cudaIpcGetMemHandle(&handle, it->address));
        printf("ok ");
        print_hex(&handle);
    } else if (it->how == VMM) {
        CHECK_CU(cuMemExportToShareableHandle(&descriptor, it->physical, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        printf("ok %d", descriptor);
    } else {
        CHECK(cudaMemPoolExportPointer(&data, it->address));
        printf("ok %d ", own_pools[it->device].descriptor);
        print_hex(&data);
    }
    printf("\n");
}

/* A descriptor of another process. */
static int descriptor_of(long process, int descriptor)
{
    char path[64];
    sprintf(path, "/proc/%ld/fd/%d", process, descriptor);
    int own = open(path, O_RDWR | O_CLOEXEC);
    REQUIRE(own >= 0);
    return own;
}

static cudaMemPool_t pool_of(long process, int descriptor)
{
    int i = 0;
    for (; pools[i].pool; i++) {
        if (pools[i].process == process && pools[i].descriptor == descriptor)
            return pools[i].pool;
    }
    REQUIRE(i + 1 < POOLS);
    int own = descriptor_of(process, descriptor);
    cudaMemPool_t pool;
    CHECK(cudaMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)own, cudaMemHandleTypePosixFileDescriptor, 0));
    REQUIRE(close(own) == 0);
    grant(pool);
    pools[i] = (struct pool){process, descriptor, pool};
    return pool;
}

static void open_theirs(struct memory *it, const char *how, int device, const char *uuid, size_t bytes, const char *rest)
{
    static char text[2 * HANDLE + 1];
    cudaIpcMemHandle_t handle;
    struct cudaMemPoolPtrExportData data;
    long process;
    int descriptor;
    struct memory opened = {.how = how_of(how), .is_opened = true, .device = device, .bytes = bytes};
    strcpy(opened.uuid, uuid);
    CHECK(cudaSetDevice(device));
    if (opened.how == IPC) {
        REQUIRE(sscanf(rest, "%128s", text) == 1);
        read_hex(&handle, text);
        MAY(cudaIpcOpenMemHandle((void **)&opened.address, handle, cudaIpcMemLazyEnablePeerAccess));
    } else if (opened.how == VMM) {
        REQUIRE(sscanf(rest, "%ld %d", &process, &descriptor) == 2);
        int own = descriptor_of(process, descriptor);
        CHECK_CU(cuMemImportFromShareableHandle(&opened.physical, (void *)(intptr_t)own, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        REQUIRE(close(own) == 0);
        CHECK_CU(map(&opened));
    } else {
        REQUIRE(sscanf(rest, "%ld %d %128s", &process, &descriptor, text) == 3);
        read_hex(&data, text);
        opened.pool = pool_of(process, descriptor);
        MAY(cudaMemPoolImportPointer((void **)&opened.address, opened.pool, &data));
    }
    *it = opened;
    printf("ok\n");
}

/* Twice. */
static void copy_in_graph(char *dst, const char *src, size_t bytes, cudaStream_t stream)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphNode_t node;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddMemcpyNode1D(&node, graph, NULL, 0, dst, src, bytes, cudaMemcpyDefault));
    CHECK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

static int device_of(const void *address)
{
    struct cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, address));
    return attributes.device;
}

static void copy(const char *form, int device, const struct memory *to, size_t to_offset, const struct memory *from, size_t from_offset, size_t bytes)
{
    char *dst = to->address + to_offset, *src = from->address + from_offset;
    const size_t rows = bytes / ROW;
    struct cudaMemcpy3DParms of_3d = {.srcPtr = {src, ROW, ROW, rows}, .dstPtr = {dst, ROW, ROW, rows}, .extent = {ROW, rows, 1}, .kind = cudaMemcpyDefault};
    struct cudaMemcpy3DPeerParms of_3d_peer = {.srcPtr = {src, ROW, ROW, rows}, .dstPtr = {dst, ROW, ROW, rows}, .extent = {ROW, rows, 1},
                                               .srcDevice = device_of(src), .dstDevice = device_of(dst)};
    CHECK(cudaSetDevice(device));
    cudaStream_t stream = non_blocking_stream();
    if (strcmp(form, "peer") == 0)
        CHECK(cudaMemcpyPeer(dst, device_of(dst), src, device_of(src), bytes));
    else if (strcmp(form, "peer_async") == 0)
        CHECK(cudaMemcpyPeerAsync(dst, device_of(dst), src, device_of(src), bytes, stream));
    else if (strcmp(form, "3d_peer") == 0)
        CHECK(cudaMemcpy3DPeerAsync(&of_3d_peer, stream));
    else if (strcmp(form, "usual") == 0)
        CHECK(cudaMemcpy(dst, src, bytes, cudaMemcpyDeviceToDevice));
    else if (strcmp(form, "async") == 0)
        CHECK(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream));
    else if (strcmp(form, "2d") == 0)
        CHECK(cudaMemcpy2DAsync(dst, ROW, src, ROW, ROW, rows, cudaMemcpyDeviceToDevice, stream));
    else if (strcmp(form, "3d") == 0)
        CHECK(cudaMemcpy3DAsync(&of_3d, stream));
    else if (strcmp(form, "driver") == 0)
        CHECK_CU(cuMemcpyDtoDAsync((CUdeviceptr)dst, (CUdeviceptr)src, bytes, stream));
    else if (strcmp(form, "unified") == 0)
        CHECK_CU(cuMemcpy((CUdeviceptr)dst, (CUdeviceptr)src, bytes));
    else if (strcmp(form, "batch") == 0)
        CHECK(copy_in_parts(dst, src, bytes, 2, stream));
    else if (strcmp(form, "graph") == 0)
        copy_in_graph(dst, src, bytes, stream);
    else
        REQUIRE(!"a form of a copy");
    /* Of the default stream too, for those that name none. */
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaStreamDestroy(stream));
    printf("ok %s %s %zu\n", from->uuid, to->uuid, strcmp(form, "graph") == 0 ? 2 * bytes : bytes);
}

static void give_back(struct memory *it)
{
    CHECK(cudaSetDevice(it->device));
    if (it->how == VMM) {
        CHECK_CU(cuMemUnmap((CUdeviceptr)it->address, it->bytes));
        CHECK_CU(cuMemAddressFree((CUdeviceptr)it->address, it->bytes));
        CHECK_CU(cuMemRelease(it->physical));
    } else if (it->how == IPC && it->is_opened) {
        CHECK(cudaIpcCloseMemHandle(it->address));
    } else if (it->how == POOL && it->bytes % 128 == 0) {
        CHECK(cudaFreeAsync(it->address, NULL));
        CHECK(cudaStreamSynchronize(NULL));
    } else {
        CHECK(cudaFree(it->address));
    }
    it->how = NONE;
    printf("ok\n");
}

static struct memory *memory(int number)
{
    REQUIRE(number >= 0 && number < MEMORIES);
    return &memories[number];
}

int main(void)
{
    char line[1024], word[16], uuid[UUID];
    int number, other, device, end;
    size_t bytes, offset, others_offset;
    setvbuf(stdout, NULL, _IOLBF, 0);
    CHECK(cudaGetDeviceCount(&count));
    REQUIRE(count <= DEVICES);
    for (int i = 0; i < count; i++) {
        CHECK(cudaSetDevice(i));
        CHECK(cudaFree(NULL));
    }
    printf("ok\n");
    while (fgets(line, sizeof line, stdin)) {
        /* Only a call that hangs takes as long. */
        alarm(1800);
        if (sscanf(line, "alloc %d %15s %d %zu", &number, word, &device, &bytes) == 4)
            allocate(memory(number), word, device, bytes);
        else if (sscanf(line, "export %d", &number) == 1)
            export(memory(number));
        else if (sscanf(line, "open %d %15s %d %40s %zu %n", &number, word, &device, uuid, &bytes, &end) == 5)
            open_theirs(memory(number), word, device, uuid, bytes, line + end);
        else if (sscanf(line, "copy %15s %d %d %zu %d %zu %zu", word, &device, &number, &offset, &other, &others_offset, &bytes) == 7)
            copy(word, device, memory(number), offset, memory(other), others_offset, bytes);
        else if (sscanf(line, "close %d", &number) == 1)
            give_back(memory(number));
        else
            REQUIRE(!"a command");
        alarm(0);
    }
    return 0;
}
