/* build: runtime old driver; run: lists_peers on sim
 * Asks by every route which devices can reach which: both APIs, linked, by dlsym and by cuGetProcAddress; attributes,
 * atomics, enabling and disabling, primary and created contexts, pools and mapped memory; with good and bad arguments.
 * Then copies between all pairs and checks every byte.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "check.h"
#include "lib/mappings.h"

enum { MOST = 8, SIZE = (1 << 20) + 4096, SMALL = 16, SMALLS = 20, OPERATIONS = 13 };

typedef CUresult can_fn(int *, CUdevice, CUdevice);
typedef CUresult attribute_fn(int *, CUdevice_P2PAttribute, CUdevice, CUdevice);
/* CUDA 13.0: the headers of older releases lack it, and its enumeration. */
typedef int atomics_fn(unsigned int *, const int *, unsigned int, int, int);
typedef CUresult get_v1_fn(const char *, void **, int, cuuint64_t);
typedef CUresult get_v2_fn(const char *, void **, int, cuuint64_t, int *);

static int devices;
static void *driver;
static CUcontext primary[MOST], created[MOST];
static unsigned char sent[SIZE], received[SIZE];

/* ---- routes to the driver's functions ---- */

static void *linked(const char *name)
{
    if (strcmp(name, "cuDeviceCanAccessPeer") == 0)
        return (void *)cuDeviceCanAccessPeer;
    return strcmp(name, "cuDeviceGetP2PAttribute") == 0 ? (void *)cuDeviceGetP2PAttribute : NULL;
}

static void *by_dlsym(const char *name)
{
    return dlsym(driver, name);
}

static void *by_default_scope(const char *name)
{
    return dlsym(RTLD_DEFAULT, name);
}

static void *by_get_v1(const char *name)
{
    void *found = NULL;
    ((get_v1_fn *)dlsym(driver, "cuGetProcAddress"))(name, &found, 13000, 0);
    return found;
}

static void *by_get_v2(const char *name)
{
    void *found = NULL;
    ((get_v2_fn *)dlsym(driver, "cuGetProcAddress_v2"))(name, &found, 13000, 0, NULL);
    return found;
}

/* Through itself. */
static void *by_get_of_get(const char *name)
{
    void *get = by_get_v2("cuGetProcAddress"), *found = NULL;
    ((get_v2_fn *)get)(name, &found, 13000, 2, NULL);
    return found;
}

static const struct {
    const char *name;
    void *(*find)(const char *);
} routes[] = {
    {"linked", linked},     {"dlsym", by_dlsym},  {"dlsym(RTLD_DEFAULT)", by_default_scope},
    {"get v1", by_get_v1}, {"get v2", by_get_v2}, {"get of get", by_get_of_get},
};

/* ---- questions ---- */

static void ask_driver(const char *route, void *(*find)(const char *))
{
    can_fn *can = (can_fn *)find("cuDeviceCanAccessPeer");
    attribute_fn *get = (attribute_fn *)find("cuDeviceGetP2PAttribute");
    atomics_fn *atomics = (atomics_fn *)find("cuDeviceGetP2PAtomicCapabilities");
    int value, operations[OPERATIONS];
    for (int i = 0; i < OPERATIONS; i++)
        operations[i] = i;
    printf("%s:\n", route);
    for (int from = -1; from <= devices; from++)
        for (int to = -1; to <= devices; to++) {
            value = -7;
            int code = (int)can(&value, from, to);
            printf("  %d>%d: can %d %d, attributes", from, to, code, value);
            for (int attribute = 0; attribute <= 6; attribute++) {
                value = -7;
                code = (int)get(&value, (CUdevice_P2PAttribute)attribute, from, to);
                printf(" %d %d", code, value);
            }
            if (atomics) {
                unsigned capabilities[OPERATIONS] = {77, 77};
                code = atomics(capabilities, operations, OPERATIONS, from, to);
                printf(", atomics %d %u %u", code, capabilities[0], capabilities[OPERATIONS - 1]);
            }
            printf("\n");
        }
    printf("  null: %d %d\n", (int)can(NULL, 0, 1), (int)get(NULL, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
    if (atomics) {
        unsigned capabilities = 77;
        printf("  atomics, wrong: %d", atomics(NULL, operations, 1, 0, 1));
        printf(" %d", atomics(&capabilities, NULL, 1, 0, 1));
        printf(" %d %u\n", atomics(&capabilities, operations, 0, 0, 1), capabilities);
    }
}

static void ask_runtime(void)
{
    atomics_fn *atomics = (atomics_fn *)dlsym(RTLD_DEFAULT, "cudaDeviceGetP2PAtomicCapabilities");
    int operation = 0;
    printf("runtime:\n");
    for (int from = -1; from <= devices; from++)
        for (int to = -1; to <= devices; to++) {
            int value = -7, code = (int)cudaDeviceCanAccessPeer(&value, from, to);
            printf("  %d>%d: can %d %d, attributes", from, to, code, value);
            for (int attribute = 0; attribute <= 6; attribute++) {
                value = -7;
                code = (int)cudaDeviceGetP2PAttribute(&value, (enum cudaDeviceP2PAttr)attribute, from, to);
                printf(" %d %d", code, value);
            }
            if (atomics) {
                unsigned capability = 77;
                code = atomics(&capability, &operation, 1, from, to);
                printf(", atomics %d %u", code, capability);
            }
            printf(", last %d\n", (int)cudaGetLastError());
        }
    printf("  null: %d", (int)cudaDeviceCanAccessPeer(NULL, 0, 1));
    printf(" %d\n", (int)cudaDeviceGetP2PAttribute(NULL, cudaDevP2PAttrAccessSupported, 0, 1));
    cudaGetLastError();
}

/* ---- demands ---- */

static void demand_runtime(void)
{
    printf("runtime, enable and disable:\n");
    for (int from = 0; from < devices; from++)
        for (int to = -1; to <= devices; to++) {
            CHECK(cudaSetDevice(from));
            printf("  %d>%d:", from, to);
            printf(" %d", (int)cudaDeviceDisablePeerAccess(to));
            printf(" %d", (int)cudaDeviceEnablePeerAccess(to, 1));
            printf(" %d", (int)cudaDeviceEnablePeerAccess(to, 0));
            printf(" %d", (int)cudaDeviceEnablePeerAccess(to, 0));
            printf(" %d", (int)cudaDeviceDisablePeerAccess(to));
            printf(" %d, last %d\n", (int)cudaDeviceDisablePeerAccess(to), (int)cudaGetLastError());
        }
}

static void demand_driver(const char *what, CUcontext from, CUcontext to)
{
    CHECK_CU(cuCtxSetCurrent(from));
    printf("  %s:", what);
    printf(" %d", (int)cuCtxDisablePeerAccess(to));
    printf(" %d", (int)cuCtxEnablePeerAccess(to, 1));
    printf(" %d", (int)cuCtxEnablePeerAccess(to, 0));
    printf(" %d", (int)cuCtxEnablePeerAccess(to, 0));
    printf(" %d", (int)cuCtxDisablePeerAccess(to));
    printf(" %d\n", (int)cuCtxDisablePeerAccess(to));
}

static void demand_contexts(void)
{
    char what[64];
    printf("driver, enable and disable:\n");
    for (int from = 0; from < devices; from++)
        for (int to = 0; to < devices; to++) {
            snprintf(what, sizeof what, "%d>%d, primary", from, to);
            demand_driver(what, primary[from], primary[to]);
            snprintf(what, sizeof what, "%d>%d, created", from, to);
            demand_driver(what, created[from], created[to]);
            snprintf(what, sizeof what, "%d>%d, created and primary", from, to);
            demand_driver(what, created[from], primary[to]);
        }
    demand_driver("to null", primary[0], NULL);
    CHECK_CU(cuCtxSetCurrent(NULL));
    printf("  from null: %d %d\n", (int)cuCtxEnablePeerAccess(primary[1], 0), (int)cuCtxDisablePeerAccess(primary[1]));
    CHECK_CU(cuCtxSetCurrent(primary[0]));
}

static int access_of_pool(CUmemoryPool pool, int device)
{
    CUmemAccess_flags flags = (CUmemAccess_flags)77;
    CUmemLocation location = access_of(device, CU_MEM_ACCESS_FLAGS_PROT_NONE).location;
    return cuMemPoolGetAccess(&flags, pool, &location) == CUDA_SUCCESS ? (int)flags : -1;
}

static void demand_of_pool(const char *what, int of, CUmemoryPool pool)
{
    printf("  %s of %d:", what, of);
    for (int device = -1; device <= devices; device++) {
        CUmemAccessDesc both[] = {access_of(of, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), access_of(device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)};
        CUmemAccessDesc none = access_of(device, CU_MEM_ACCESS_FLAGS_PROT_NONE), wrong = access_of(device, (CUmemAccess_flags)2);
        printf(" for %d: %d", device, (int)cuMemPoolSetAccess(pool, &wrong, 1));
        printf(" %d", (int)cuMemPoolSetAccess(pool, &both[1], 1));
        printf(" %d", access_of_pool(pool, device));
        printf(" %d", (int)cudaMemPoolSetAccess((cudaMemPool_t)pool, (struct cudaMemAccessDesc *)both, 2));
        printf(" %d", (int)cuMemPoolSetAccess(pool, &none, 1));
        printf(" %d;", access_of_pool(pool, device));
        cudaGetLastError();
    }
    printf("\n");
}

static void demand_pools(void)
{
    printf("pools:\n");
    for (int of = 0; of < devices; of++) {
        CUmemoryPool pool;
        CHECK_CU(cuDeviceGetDefaultMemPool(&pool, of));
        demand_of_pool("the default one", of, pool);
        CHECK_CU(new_pool(&pool, of));
        demand_of_pool("a created one", of, pool);
        CHECK_CU(cuMemPoolDestroy(pool));
    }
}

static void demand_mappings(void)
{
    printf("mapped memory:\n");
    for (int of = 0; of < devices; of++) {
        CUmemGenericAllocationHandle physical;
        CHECK_CU(new_physical(&physical, of, GRANULE));
        CUdeviceptr at = map_physical(physical, GRANULE);
        printf("  of %d:", of);
        for (int device = -1; device <= devices; device++) {
            CUmemAccessDesc access = access_of(device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), wrong = access_of(device, (CUmemAccess_flags)2);
            CUmemAccessDesc both[] = {access_of(of, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), access};
            unsigned long long flags = 77;
            printf(" for %d: %d", device, (int)cuMemSetAccess(at, GRANULE, &wrong, 1));
            printf(" %d", (int)cuMemSetAccess(at, GRANULE, &access, 1));
            printf(" %d", (int)cuMemSetAccess(at, GRANULE, both, 2));
            printf(" %d", (int)cuMemGetAccess(&flags, &access.location, at));
            printf(" %llu;", flags);
        }
        printf("\n");
        CHECK_CU(cuMemUnmap(at, GRANULE));
        CHECK_CU(cuMemRelease(physical));
        CHECK_CU(cuMemAddressFree(at, GRANULE));
    }
}

/* ---- copies ---- */

static void copy_all(void)
{
    void *memory[MOST], *from_pool[MOST];
    int wrong = 0, copies = 0;
    for (int device = 0; device < devices; device++) {
        memory[device] = device_memory(device, SIZE);
        CHECK(cudaMallocAsync(&from_pool[device], SIZE, NULL));
        CHECK(cudaDeviceSynchronize());
    }
    for (int from = 0; from < devices; from++)
        for (int to = 0; to < devices; to++)
            for (int pooled = 0; pooled < 2; pooled++) {
                char *src = pooled ? from_pool[from] : memory[from], *dst = memory[to];
                if (from == to)
                    continue;
                fill(sent, SIZE, (unsigned)(from * MOST + to + pooled * 100));
                CHECK(cudaSetDevice(from));
                CHECK(cudaMemcpy(src, sent, SIZE, cudaMemcpyHostToDevice));
                for (size_t at = 0; at < SMALLS * SMALL; at += SMALL)
                    CHECK(cudaMemcpyPeerAsync(dst + at, to, src + at, from, SMALL, NULL));
                CHECK(cudaMemcpyPeer(dst + SMALLS * SMALL, to, src + SMALLS * SMALL, from, SIZE - SMALLS * SMALL));
                CHECK(cudaDeviceSynchronize());
                CHECK(cudaSetDevice(to));
                CHECK(cudaMemcpy(received, dst, SIZE, cudaMemcpyDeviceToHost));
                wrong += memcmp(sent, received, SIZE) != 0;
                copies++;
            }
    printf("copies: %d, %d wrong\n", copies, wrong);
}

int main(void)
{
    CHECK_CU(cuInit(0));
    CHECK_CU(cuDeviceGetCount(&devices));
    REQUIRE(devices >= 2 && devices <= MOST);
    REQUIRE((driver = dlopen("libcuda.so.1", RTLD_NOW)));
    for (int device = 0; device < devices; device++) {
        CHECK_CU(cuDevicePrimaryCtxRetain(&primary[device], device));
        CHECK_CU(cuCtxCreate_v2(&created[device], 0, device));
    }
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        ask_driver(routes[i].name, routes[i].find);
    ask_runtime();
    demand_runtime();
    demand_contexts();
    demand_pools();
    demand_mappings();
    copy_all();
    return 0;
}
