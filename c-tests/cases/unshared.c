/* build: driver; run: unshared on sim
 * Calls by which processes share memory, each of which fails for another reason.
 */
#include <cuda.h>
#include <spawn.h>

#include "check.h"
#include "lib/mappings.h"

enum { COUNT = 2 << 20, TIMES = 3 };

extern char **environ;

static CUdevice device;
static CUipcMemHandle handle;
static CUdeviceptr memory;
static int descriptor;

static CUmemGenericAllocationHandle make(CUmemAllocationHandleType types)
{
    CUmemGenericAllocationHandle physical;
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .requestedHandleTypes = types,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    SHOW_CU(cuMemCreate(&physical, COUNT, &properties, 0));
    return physical;
}

static void map(CUmemGenericAllocationHandle physical)
{
    memory = map_physical(physical, COUNT);
    CHECK_CU(grant_mapping(memory, COUNT, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
}

static void share_mapped(void)
{
    CUmemGenericAllocationHandle physical = make(CU_MEM_HANDLE_TYPE_NONE);
    map(physical);
    SHOW_CU(cuIpcGetMemHandle(&handle, memory));
    SHOW_CU(cuMemExportToShareableHandle(&descriptor, physical, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    SHOW_CU(cuMemExportToShareableHandle(&descriptor, physical, CU_MEM_HANDLE_TYPE_FABRIC, 0));
    make(CU_MEM_HANDLE_TYPE_FABRIC);
}

static void share_pool(void)
{
    CUmemAccessDesc none = access_of(device, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CUmemPoolPtrExportData data;
    CUmemoryPool pool;
    CHECK_CU(new_pool(&pool, device));
    CHECK_CU(cuMemAllocFromPoolAsync(&memory, COUNT, pool, NULL));
    CHECK_CU(cuStreamSynchronize(NULL));
    for (int i = 0; i < TIMES; i++)
        SHOW_CU(cuIpcGetMemHandle(&handle, memory));
    SHOW_CU(cuMemPoolExportToShareableHandle(&descriptor, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    SHOW_CU(cuMemPoolExportPointer(&data, memory));
    SHOW_CU(cuMemPoolSetAccess(pool, &none, 1));
}

static void open_wrongly(void)
{
    CHECK_CU(cuMemAlloc(&memory, COUNT));
    CHECK_CU(cuIpcGetMemHandle(&handle, memory));
    SHOW_CU(cuIpcOpenMemHandle(&memory, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    SHOW_CU(cuIpcOpenMemHandle(&memory, handle, 0));
    memset(&handle, 7, sizeof handle);
    SHOW_CU(cuIpcOpenMemHandle(&memory, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
}

/* Memory of a process that has ended. */
static void open_what_is_gone(char *program)
{
    int channel[2], status;
    pid_t child;
    posix_spawn_file_actions_t actions;
    char *arguments[] = {program, "owner", NULL};
    REQUIRE(pipe(channel) == 0);
    REQUIRE(posix_spawn_file_actions_init(&actions) == 0);
    REQUIRE(posix_spawn_file_actions_adddup2(&actions, channel[1], STDOUT_FILENO) == 0);
    REQUIRE(posix_spawn(&child, "/proc/self/exe", &actions, NULL, arguments, environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    REQUIRE(waitpid(child, &status, 0) == child && status == 0);
    REQUIRE(read(channel[0], &handle, sizeof handle) == sizeof handle);
    SHOW_CU(cuIpcOpenMemHandle(&memory, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
}

int main(int argc, char **argv)
{
    CHECK_CU(cuInit(0));
    CHECK_CU(cuDeviceGet(&device, 0));
    primary_context(device);
    if (argc > 1) {
        CHECK_CU(cuMemAlloc(&memory, COUNT));
        CHECK_CU(cuIpcGetMemHandle(&handle, memory));
        REQUIRE(write(STDOUT_FILENO, &handle, sizeof handle) == sizeof handle);
        return 0;
    }
    share_mapped();
    share_pool();
    open_wrongly();
    open_what_is_gone(argv[0]);
    return 0;
}
