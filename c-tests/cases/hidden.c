/* build: runtime; run: hidden on sim gpu
 * Looks for peer access by every route that a program has, on every ordered pair of GPUs, and copies along all of them.
 * Prints what it sees, and a verdict for each pair: "reachable" if every route agrees that it is, "hidden" if every route
 * agrees that it is not, else "contradictory". Exits with 1 if a verdict is contradictory or a copy brought wrong bytes.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "check.h"

enum { MAX_GPUS = 16, COUNT = 2 << 20, GRANULE = 2 << 20, COPIES = 4, FIRST_ATTRIBUTE = 1, ATTRIBUTES = 4 };
enum { SUCCESS = 0, INVALID_DEVICE = 101, UNSUPPORTED = 217, NOT_ENABLED = 705 };

/* The functions of the driver, as one route finds them. */
struct driver {
    const char *route;
    CUresult (*can_access)(int *, CUdevice, CUdevice);
    CUresult (*attribute)(int *, int, CUdevice, CUdevice);
    CUresult (*enable)(CUcontext, unsigned int);
    CUresult (*disable)(CUcontext);
    CUresult (*pool_set_access)(CUmemoryPool, const CUmemAccessDesc *, size_t);
    CUresult (*set_access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
};

/* What a pair answers; -1 where nothing was asked. */
struct seen {
    int can, attribute[ATTRIBUTES], enable, disable, pool, mapped;
};

static const struct seen nothing = {-1, {-1, -1, -1, -1}, -1, -1, -1, -1};
static void *libcuda;
static CUcontext context[MAX_GPUS];
static void *plain[MAX_GPUS], *pooled[MAX_GPUS];
static CUdeviceptr mapped[MAX_GPUS];

/* ---- Routes ---- */

typedef CUresult get_proc_address(const char *, void **, int, unsigned long long, int *);

static void *by_dlsym(const char *name)
{
    return dlsym(libcuda, name);
}

static void *by_get_proc_address(const char *name)
{
    void *function = NULL;
    int status = 0;
    get_proc_address *get = (get_proc_address *)dlsym(libcuda, "cuGetProcAddress_v2");
    return get && get(name, &function, 12000, 0, &status) == CUDA_SUCCESS ? function : NULL;
}

static void *by_runtime(const char *name)
{
    void *function = NULL;
#if CUDART_VERSION >= 12050
    enum cudaDriverEntryPointQueryResult found;
    CHECK(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found));
#else
    CHECK(cudaGetDriverEntryPoint(name, &function, cudaEnableDefault));
#endif
    return function;
}

static struct driver driver_by(const char *route, void *(*find)(const char *))
{
    struct driver driver = {.route = route};
    *(void **)&driver.can_access = find("cuDeviceCanAccessPeer");
    *(void **)&driver.attribute = find("cuDeviceGetP2PAttribute");
    *(void **)&driver.enable = find("cuCtxEnablePeerAccess");
    *(void **)&driver.disable = find("cuCtxDisablePeerAccess");
    *(void **)&driver.pool_set_access = find("cuMemPoolSetAccess");
    *(void **)&driver.set_access = find("cuMemSetAccess");
    REQUIRE(driver.can_access && driver.attribute && driver.enable && driver.disable && driver.pool_set_access &&
            driver.set_access);
    return driver;
}

/* The driver's own, for what has nothing to do with peers. */
#define DRIVER(name, ...) ((CUresult(*)(__VA_ARGS__))by_dlsym(name))

/* ---- Set-up ---- */

static CUdeviceptr map_memory(int device)
{
    CUmemAllocationProp properties;
    CUmemAccessDesc access;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr memory;
    memset(&properties, 0, sizeof properties);
    memset(&access, 0, sizeof access);
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = access.location.id = device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    REQUIRE(DRIVER("cuMemCreate", CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long)(
                &handle, GRANULE, &properties, 0) == CUDA_SUCCESS);
    REQUIRE(DRIVER("cuMemAddressReserve", CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long)(
                &memory, GRANULE, 0, 0, 0) == CUDA_SUCCESS);
    REQUIRE(DRIVER("cuMemMap", CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long)(
                memory, GRANULE, 0, handle, 0) == CUDA_SUCCESS);
    REQUIRE(DRIVER("cuMemSetAccess", CUdeviceptr, size_t, const CUmemAccessDesc *, size_t)(memory, GRANULE, &access, 1) ==
            CUDA_SUCCESS);
    return memory;
}

static void prepare(int device)
{
    plain[device] = device_memory(device, COUNT);
    CHECK(cudaMallocAsync(&pooled[device], COUNT, 0));
    CHECK(cudaDeviceSynchronize());
    REQUIRE(DRIVER("cuCtxGetCurrent", CUcontext *)(&context[device]) == CUDA_SUCCESS && context[device]);
    mapped[device] = map_memory(device);
}

/* ---- Looking ---- */

static void print(int from, int to, const char *route, const struct seen *seen)
{
    printf("%d>%d by %s: can access %d, attributes", from, to, route, seen->can);
    for (int i = 0; i < ATTRIBUTES; i++)
        printf(" %d", seen->attribute[i]);
    printf(", enable %d, disable %d, pool %d", seen->enable, seen->disable, seen->pool);
    if (seen->mapped >= 0)
        printf(", mapped %d", seen->mapped);
    printf("\n");
}

/* Peer access of device `from` to memory of device `to`; it is taken away again where it was given. */
static struct seen by_the_runtime(int from, int to)
{
    struct seen seen = nothing;
    struct cudaMemAccessDesc access;
    cudaMemPool_t pool;
    CHECK(cudaSetDevice(from));
    CHECK(cudaDeviceCanAccessPeer(&seen.can, from, to));
    for (int i = 0; i < ATTRIBUTES; i++)
        CHECK(cudaDeviceGetP2PAttribute(&seen.attribute[i], (enum cudaDeviceP2PAttr)(FIRST_ATTRIBUTE + i), from, to));
    seen.enable = cudaDeviceEnablePeerAccess(to, 0);
    seen.disable = cudaDeviceDisablePeerAccess(to);
    memset(&access, 0, sizeof access);
    access.location.type = cudaMemLocationTypeDevice;
    access.location.id = from;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    CHECK(cudaDeviceGetDefaultMemPool(&pool, to));
    seen.pool = cudaMemPoolSetAccess(pool, &access, 1);
    access.flags = cudaMemAccessFlagsProtNone;
    if (seen.pool == cudaSuccess)
        CHECK(cudaMemPoolSetAccess(pool, &access, 1));
    cudaGetLastError();
    return seen;
}

static struct seen by_the_driver(const struct driver *driver, int from, int to)
{
    struct seen seen = nothing;
    CUmemAccessDesc access;
    cudaMemPool_t pool;
    CHECK(cudaSetDevice(from));
    REQUIRE(driver->can_access(&seen.can, from, to) == CUDA_SUCCESS);
    for (int i = 0; i < ATTRIBUTES; i++)
        REQUIRE(driver->attribute(&seen.attribute[i], FIRST_ATTRIBUTE + i, from, to) == CUDA_SUCCESS);
    seen.enable = driver->enable(context[to], 0);
    seen.disable = driver->disable(context[to]);
    memset(&access, 0, sizeof access);
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = from;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK(cudaDeviceGetDefaultMemPool(&pool, to));
    seen.pool = driver->pool_set_access((CUmemoryPool)pool, &access, 1);
    seen.mapped = driver->set_access(mapped[to], GRANULE, &access, 1);
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    if (seen.pool == SUCCESS)
        REQUIRE(driver->pool_set_access((CUmemoryPool)pool, &access, 1) == CUDA_SUCCESS);
    if (seen.mapped == SUCCESS)
        REQUIRE(driver->set_access(mapped[to], GRANULE, &access, 1) == CUDA_SUCCESS);
    return seen;
}

static int reachable(const struct seen *seen)
{
    return seen->can == 1 && seen->attribute[1] == 1 && seen->enable == SUCCESS && seen->disable == SUCCESS &&
           seen->pool == SUCCESS && seen->mapped <= SUCCESS;
}

static int hidden(const struct seen *seen)
{
    int attributes = 0;
    for (int i = 0; i < ATTRIBUTES; i++)
        attributes |= seen->attribute[i];
    return seen->can == 0 && attributes == 0 && seen->enable == UNSUPPORTED && seen->disable == NOT_ENABLED &&
           seen->pool == INVALID_DEVICE && (seen->mapped < 0 || seen->mapped == INVALID_DEVICE);
}

/* ---- Copies ---- */

static int copy(int from, int to, void *source, void *target, unsigned seed)
{
    static unsigned char sent[COUNT], received[COUNT];
    fill(sent, COUNT, seed);
    CHECK(cudaSetDevice(to));
    CHECK(cudaMemset(target, 0, COUNT));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaSetDevice(from));
    CHECK(cudaMemcpy(source, sent, COUNT, cudaMemcpyHostToDevice));
    for (int i = 0; i < COPIES; i++)
        CHECK(cudaMemcpyPeerAsync(target, to, source, from, COUNT, 0));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaSetDevice(to));
    CHECK(cudaMemcpy(received, target, COUNT, cudaMemcpyDeviceToHost));
    return memcmp(sent, received, COUNT) == 0;
}

static int copies(int from, int to)
{
    const unsigned seed = (unsigned)(from * MAX_GPUS + to) * 4;
    int right = copy(from, to, plain[from], plain[to], seed) & copy(from, to, pooled[from], pooled[to], seed + 1) &
                copy(from, to, (void *)mapped[from], (void *)mapped[to], seed + 2) &
                copy(from, to, plain[from], pooled[to], seed + 3);
    printf("%d>%d copies: %s\n", from, to, right ? "right" : "WRONG");
    return right;
}

int main(void)
{
    int gpus, failed = 0;
    CHECK(cudaGetDeviceCount(&gpus));
    REQUIRE(gpus >= 2 && gpus <= MAX_GPUS);
    REQUIRE((libcuda = dlopen("libcuda.so.1", RTLD_NOW)) != NULL);
    for (int device = 0; device < gpus; device++)
        prepare(device);
    const struct driver drivers[] = {
        driver_by("dlsym", by_dlsym),
        driver_by("cuGetProcAddress", by_get_proc_address),
        driver_by("cudaGetDriverEntryPoint", by_runtime),
    };
    enum { DRIVERS = sizeof drivers / sizeof *drivers };

    for (int round = 0; round < 2; round++) /* the second after copies, which may have changed something */
        for (int from = 0; from < gpus; from++)
            for (int to = 0; to < gpus; to++) {
                if (to == from)
                    continue;
                struct seen seen = by_the_runtime(from, to);
                int reach = reachable(&seen), hide = hidden(&seen);
                print(from, to, "the runtime", &seen);
                for (int i = 0; i < DRIVERS; i++) {
                    seen = by_the_driver(&drivers[i], from, to);
                    reach &= reachable(&seen);
                    hide &= hidden(&seen);
                    print(from, to, drivers[i].route, &seen);
                }
                printf("%d>%d is %s\n", from, to, reach ? "reachable" : hide ? "hidden" : "contradictory");
                failed |= !reach && !hide;
                failed |= !copies(from, to);
            }
    return failed;
}
