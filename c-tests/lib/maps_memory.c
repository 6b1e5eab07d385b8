/* build: -Wl,-Bsymbolic-functions -ldl; run: by LD_PRELOAD
 * As NVIDIA's cuInterpose, with which checkpoints rebuild what processes share: memory that is allocated is mapped memory, to which its
 * own device has access, and other processes open it by a ticket. A ticket is as large as a driver's handle, and has nothing where that
 * has it. It says at the end how often it allocated, exported and opened.
 */
#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "glibc.h"

typedef void *dlsym_fn(void *, const char *);

struct ticket {
    char version[8];
    uint64_t creator[2], allocation[2];
    uint32_t process, descriptor;
    uint64_t requested, extent;
};
_Static_assert(sizeof(struct ticket) == sizeof(CUipcMemHandle), "a ticket is in the place of a handle");

struct memory {
    struct memory *next;
    CUdeviceptr at;
    CUmemGenericAllocationHandle physical;
    struct ticket ticket;
    unsigned opened; /* how often, if it is another process's */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct memory *known;
static uint64_t creator[2];
static unsigned allocated, exported, opened;

static void *real_dlsym(void *handle, const char *name)
{
    static dlsym_fn *real;
    if (!real)
        *(void **)&real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (!real)
        *(void **)&real = dlvsym(RTLD_NEXT, "dlsym", FIRST_GLIBC);
    return real(handle, name);
}

static void *find(const char *name)
{
    void *found = real_dlsym(RTLD_NEXT, name);
    return found ? found : real_dlsym(dlopen("libcuda.so.1", RTLD_LAZY), name);
}

#define NEXT(function) ((__typeof__(&(function)))find(#function))

static struct memory *memory_at(CUdeviceptr address)
{
    struct memory *it = known;
    while (it && !(address >= it->at && address < it->at + it->ticket.extent))
        it = it->next;
    return it;
}

/* Maps physical memory for the current device. */
static CUresult map(struct memory *it)
{
    size_t extent = it->ticket.extent;
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult code = NEXT(cuCtxGetDevice)(&access.location.id);
    if (code == CUDA_SUCCESS)
        code = NEXT(cuMemAddressReserve)(&it->at, extent, 0, 0, 0);
    if (code != CUDA_SUCCESS)
        return code;
    code = NEXT(cuMemMap)(it->at, extent, 0, it->physical, 0);
    if (code == CUDA_SUCCESS && (code = NEXT(cuMemSetAccess)(it->at, extent, &access, 1)) != CUDA_SUCCESS)
        NEXT(cuMemUnmap)(it->at, extent);
    if (code != CUDA_SUCCESS)
        NEXT(cuMemAddressFree)(it->at, extent);
    return code;
}

static CUresult unmap(struct memory *it)
{
    CUresult code = NEXT(cuCtxSynchronize)();
    if (code != CUDA_SUCCESS)
        return code;
    NEXT(cuMemUnmap)(it->at, it->ticket.extent);
    NEXT(cuMemAddressFree)(it->at, it->ticket.extent);
    NEXT(cuMemRelease)(it->physical);
    for (struct memory **at = &known; *at; at = &(*at)->next) {
        if (*at == it) {
            *at = it->next;
            break;
        }
    }
    free(it);
    return CUDA_SUCCESS;
}

static CUresult keep(struct memory it, CUdeviceptr *address)
{
    struct memory *kept = malloc(sizeof *kept);
    CUresult code = kept ? map(&it) : CUDA_ERROR_OUT_OF_MEMORY;
    if (code != CUDA_SUCCESS) {
        NEXT(cuMemRelease)(it.physical);
        free(kept);
        return code;
    }
    it.next = known;
    *kept = it;
    known = kept;
    *address = it.at;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    struct memory it = {.ticket = {.version = "TICKET01", .requested = bytes}};
    size_t granule;
    CUresult code = NEXT(cuCtxGetDevice)(&properties.location.id);
    if (code != CUDA_SUCCESS || !address || bytes == 0)
        return NEXT(cuMemAlloc_v2)(address, bytes);
    code = NEXT(cuMemGetAllocationGranularity)(&granule, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (code != CUDA_SUCCESS)
        return code;
    it.ticket.extent = (bytes + granule - 1) / granule * granule;
    code = NEXT(cuMemCreate)(&it.physical, it.ticket.extent, &properties, 0);
    if (code != CUDA_SUCCESS)
        return code;
    pthread_mutex_lock(&lock);
    code = keep(it, address);
    allocated += code == CUDA_SUCCESS;
    pthread_mutex_unlock(&lock);
    return code;
}

CUresult cuMemFree_v2(CUdeviceptr address)
{
    pthread_mutex_lock(&lock);
    struct memory *it = memory_at(address);
    CUresult code = !it ? CUDA_SUCCESS : it->at != address || it->opened ? CUDA_ERROR_INVALID_VALUE : unmap(it);
    pthread_mutex_unlock(&lock);
    return it ? code : NEXT(cuMemFree_v2)(address);
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    pthread_mutex_lock(&lock);
    struct memory *it = memory_at(address);
    if (it && base)
        *base = it->at;
    if (it && bytes)
        *bytes = it->ticket.requested;
    pthread_mutex_unlock(&lock);
    return it ? CUDA_SUCCESS : NEXT(cuMemGetAddressRange_v2)(base, bytes, address);
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
    pthread_mutex_lock(&lock);
    struct memory *it = memory_at(address);
    CUresult code = it && handle ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (code == CUDA_SUCCESS && !it->ticket.process) {
        int descriptor;
        code = NEXT(cuMemExportToShareableHandle)(&descriptor, it->physical, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
        if (code == CUDA_SUCCESS && (getrandom(it->ticket.allocation, sizeof it->ticket.allocation, 0) < 0 ||
                                     (!creator[0] && getrandom(creator, sizeof creator, 0) < 0)))
            code = CUDA_ERROR_UNKNOWN;
        if (code == CUDA_SUCCESS) {
            memcpy(it->ticket.creator, creator, sizeof creator);
            it->ticket.process = (uint32_t)getpid();
            it->ticket.descriptor = (uint32_t)descriptor;
            exported++;
        }
    }
    if (code == CUDA_SUCCESS)
        memcpy(handle, &it->ticket, sizeof *handle);
    pthread_mutex_unlock(&lock);
    return code;
}

static CUresult open_ticket(struct memory it, CUdeviceptr *address)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%u/fd/%u", it.ticket.process, it.ticket.descriptor);
    int descriptor = open(path, O_RDWR | O_CLOEXEC);
    if (descriptor < 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult code = NEXT(cuMemImportFromShareableHandle)(&it.physical, (void *)(intptr_t)descriptor,
                                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    close(descriptor);
    return code == CUDA_SUCCESS ? keep(it, address) : code;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags)
{
    struct memory it = {.opened = 1}, *there;
    CUresult code = CUDA_SUCCESS;
    memcpy(&it.ticket, &handle, sizeof handle);
    if (!address || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || memcmp(it.ticket.version, "TICKET01", 8) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    for (there = known; there && memcmp(&there->ticket, &it.ticket, sizeof it.ticket) != 0;)
        there = there->next;
    if (there && there->opened) {
        there->opened++;
        *address = there->at;
    } else {
        code = there ? CUDA_ERROR_INVALID_CONTEXT : open_ticket(it, address);
    }
    opened += code == CUDA_SUCCESS;
    pthread_mutex_unlock(&lock);
    return code;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
    pthread_mutex_lock(&lock);
    struct memory *it = memory_at(address);
    CUresult code = !it || it->at != address || !it->opened ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    if (code == CUDA_SUCCESS && --it->opened == 0)
        code = unmap(it);
    pthread_mutex_unlock(&lock);
    return code;
}

#undef cuGetProcAddress
typedef CUresult look_up_fn(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
look_up_fn cuGetProcAddress_v2;
CUresult cuGetProcAddress(const char *, void **, int, cuuint64_t);

static const struct {
    const char *name, *base;
    void *own;
} wrapped[] = {
#define WRAPPED(name, base) {#name, base, (void *)(name)}
    WRAPPED(cuMemAlloc_v2, "cuMemAlloc"),
    WRAPPED(cuMemFree_v2, "cuMemFree"),
    WRAPPED(cuMemGetAddressRange_v2, "cuMemGetAddressRange"),
    WRAPPED(cuIpcGetMemHandle, "cuIpcGetMemHandle"),
    WRAPPED(cuIpcOpenMemHandle_v2, "cuIpcOpenMemHandle"),
    WRAPPED(cuIpcCloseMemHandle, "cuIpcCloseMemHandle"),
};

static void *own(const char *name, int is_base)
{
    for (size_t i = 0; i < sizeof wrapped / sizeof *wrapped; i++) {
        if (strcmp(name, is_base ? wrapped[i].base : wrapped[i].name) == 0)
            return wrapped[i].own;
    }
    return NULL;
}

CUresult cuGetProcAddress_v2(const char *name, void **found, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
    CUresult code = ((look_up_fn *)find("cuGetProcAddress_v2"))(name, found, version, flags, status);
    if (code == CUDA_SUCCESS && name && found && *found) {
        void *mine = own(name, 1);
        if (strcmp(name, "cuGetProcAddress") == 0)
            mine = version >= 12000 ? (void *)cuGetProcAddress_v2 : (void *)cuGetProcAddress;
        if (mine)
            *found = mine;
    }
    return code;
}

CUresult cuGetProcAddress(const char *name, void **found, int version, cuuint64_t flags)
{
    return cuGetProcAddress_v2(name, found, version, flags, NULL);
}

void *dlsym(void *restrict handle, const char *restrict name)
{
    void *found = real_dlsym(handle, name), *mine = found ? own(name, 0) : NULL;
    if (found && strcmp(name, "cuGetProcAddress_v2") == 0)
        mine = (void *)cuGetProcAddress_v2;
    if (found && strcmp(name, "cuGetProcAddress") == 0)
        mine = (void *)cuGetProcAddress;
    return mine ? mine : found;
}

__attribute__((destructor)) static void end(void)
{
    fprintf(stderr, "mapped: %u allocations, %u exports, %u opened\n", allocated, exported, opened);
}
