/* build: ucx cudart12 driver; run: ucx_events FOLDER [before|after] [runtime] on sim
 * UCX in the program: it patches the code of the driver's functions, or the tables of those who call them, to hear of GPU
 * memory. Memory is allocated and freed by each route to the driver; it says what UCX heard of.
 * UCX comes before the first call of CUDA, or after it; with `runtime`, memory of the runtime is wanted too. (UCX's tables lead calls of any runtime to its own, which needs a real driver.)
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <ucm/api/ucm.h>
#include <ucp/api/ucp.h>

#include "check.h"

#undef cuMemAlloc
#undef cuMemFree
typedef CUresult allocate(CUdeviceptr *, size_t);
typedef CUresult release(CUdeviceptr);

static void *watched;
static int allocated, freed;

static void on_event(ucm_event_type_t type, ucm_event_t *event, void *unused)
{
    (void)unused;
    if (type == UCM_EVENT_MEM_TYPE_ALLOC)
        watched = event->mem_type.address, allocated++;
    else if (event->mem_type.address == watched)
        freed++;
}

static void *opened(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/libucx/lib/%s", folder, name);
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        fprintf(stderr, "%s\n", dlerror());
    REQUIRE(library);
    return library;
}

static void begin_ucx(const char *folder)
{
    void *ucp = opened(folder, "libucp.so.0"), *ucm = opened(folder, "libucm.so.0");
    __typeof__(ucp_init_version) *init = dlsym(ucp, "ucp_init_version");
    __typeof__(ucm_set_event_handler) *set = dlsym(ucm, "ucm_set_event_handler");
    REQUIRE(init && set);
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG | UCP_FEATURE_RMA};
    ucp_context_h context;
    /* It says in its log whether it could patch what it wants to. */
    printf("UCX begins: %d\n", init(UCP_API_MAJOR, UCP_API_MINOR, &params, NULL, &context));
    printf("handler: %d\n", set(UCM_EVENT_MEM_TYPE_ALLOC | UCM_EVENT_MEM_TYPE_FREE, 1000, on_event, NULL));
}

static void told(const char *route, void *memory)
{
    printf("%s: heard of %d allocations, this one %d, and %d frees\n", route, allocated, watched == memory, freed);
    allocated = freed = 0;
    watched = NULL;
}

static void by(const char *route, allocate *allocate, release *release)
{
    CUdeviceptr memory;
    REQUIRE(allocate && release);
    REQUIRE(allocate(&memory, 1 << 20) == CUDA_SUCCESS);
    REQUIRE(release(memory) == CUDA_SUCCESS);
    told(route, (void *)memory);
}

static void by_runtime(void)
{
    void *memory;
    cudaStream_t stream;
    CHECK(cudaMalloc(&memory, 1 << 20));
    CHECK(cudaFree(memory));
    told("runtime", memory);
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMallocAsync(&memory, 1 << 20, stream));
    CHECK(cudaFreeAsync(memory, stream));
    CHECK(cudaStreamSynchronize(stream));
    told("runtime, on a stream", memory);
}

int main(int count, char **arguments)
{
    REQUIRE(count >= 3);
    int before = strcmp(arguments[2], "before") == 0;
    CUcontext contexts[2];
    CUdeviceptr memory[2];
    if (before)
        begin_ucx(arguments[1]);
    CHECK_CU(cuInit(0));
    for (int i = 1; i >= 0; i--) {
        contexts[i] = primary_context(i);
        CHECK_CU(cuMemAlloc_v2(&memory[i], 1 << 20));
    }
    if (!before)
        begin_ucx(arguments[1]);
    allocated = freed = 0;

    by("linked", cuMemAlloc_v2, cuMemFree_v2);
    by("looked up in all", (allocate *)dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"), (release *)dlsym(RTLD_DEFAULT, "cuMemFree_v2"));
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    by("looked up", (allocate *)dlsym(driver, "cuMemAlloc_v2"), (release *)dlsym(driver, "cuMemFree_v2"));
    void *found[2];
    CHECK_CU(cuGetProcAddress("cuMemAlloc", &found[0], 12000, 0, NULL));
    CHECK_CU(cuGetProcAddress("cuMemFree", &found[1], 12000, 0, NULL));
    by("asked for", (allocate *)found[0], (release *)found[1]);
    if (count > 3)
        by_runtime();

    /* The shim allocates and frees for its own purposes when it verifies the pair; what UCX hears of that is right. */
    unsigned char host[900];
    fill(host, sizeof host, 4);
    CHECK_CU(cuMemcpyHtoD_v2(memory[0], host, sizeof host));
    for (int i = 0; i < 40; i++)
        CHECK_CU(cuMemcpyPeer(memory[1], contexts[1], memory[0], contexts[0], sizeof host));
    CHECK_CU(cuMemcpyDtoH_v2(host, memory[1], sizeof host));
    printf("destination %08x\n", checksum(host, sizeof host));
    allocated = freed = 0;
    CHECK_CU(cuMemFree_v2(memory[0]));
    printf("at the end: %d allocations\n", allocated);
    return 0;
}
