/*
 * Tests of the C interface: `capi TASK FOLDER`. Each task is a process of its own, since the shim is one for a process.
 * Works without a driver too, and leaves out then what needs one.
 */
#include <dlfcn.h>

#include "capi.h"

void same(const char *file, int line, const char *call, int is, int expected)
{
    if (is == expected)
        return;
    fprintf(stderr, "%s:%d: %s = %d (%s), expected %d\n", file, line, call, is, API(status_name)(is), expected);
    exit(1);
}

void *found(const char *name)
{
    static void *library = RTLD_DEFAULT;
    void *function = dlsym(library, name);
    if (!function && library == RTLD_DEFAULT && getenv("SHIM")) {
        library = dlopen(getenv("SHIM"), RTLD_NOW | RTLD_LOCAL);
        if (library)
            function = dlsym(library, name);
    }
    if (!function)
        check_failed(name, 0, "is not there", dlerror());
    return function;
}

bool is_in_front(void)
{
    return !getenv("SHIM");
}

struct gpus *gpus(void)
{
    static struct gpus gpus;
    static bool is_ready;
    if (is_ready)
        return &gpus;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver)
        return NULL;
#define FIND(name, arguments)                                                                                           \
    *(void **)&gpus.cu.name = dlsym(driver, #name);                                                                      \
    REQUIRE(gpus.cu.name);
    DRIVER(FIND)
    SAME(gpus.cu.cuInit(0), CUDA_SUCCESS);
    for (int device = 1; device >= 0; device--) {
        SAME(gpus.cu.cuDevicePrimaryCtxRetain(&gpus.contexts[device], device), CUDA_SUCCESS);
        SAME(gpus.cu.cuCtxSetCurrent(gpus.contexts[device]), CUDA_SUCCESS);
        SAME(gpus.cu.cuMemAlloc_v2(&gpus.buffers[device], BYTES), CUDA_SUCCESS);
    }
    is_ready = true;
    return &gpus;
}

void copy(struct gpus *gpus, size_t bytes)
{
    SAME(gpus->cu.cuMemcpyPeer(gpus->buffers[1], gpus->contexts[1], gpus->buffers[0], gpus->contexts[0], bytes), CUDA_SUCCESS);
}

void copy_some(struct gpus *gpus, int times)
{
    for (int i = 0; i < times; i++)
        copy(gpus, BYTES);
}

void prepare(struct gpus *gpus, unsigned seed)
{
    static unsigned char host[BYTES];
    fill(host, BYTES, seed);
    SAME(gpus->cu.cuMemcpyHtoD_v2(gpus->buffers[0], host, BYTES), CUDA_SUCCESS);
    memset(host, 0, BYTES);
    SAME(gpus->cu.cuMemcpyHtoD_v2(gpus->buffers[1], host, BYTES), CUDA_SUCCESS);
}

bool has_arrived(struct gpus *gpus, unsigned seed)
{
    static unsigned char host[BYTES], expected[BYTES];
    fill(expected, BYTES, seed);
    SAME(gpus->cu.cuCtxSynchronize(), CUDA_SUCCESS);
    SAME(gpus->cu.cuMemcpyDtoH_v2(host, gpus->buffers[1], BYTES), CUDA_SUCCESS);
    return memcmp(host, expected, BYTES) == 0;
}

int main(int argc, char **argv)
{
    static const struct task *const tasks[] = {&numbers_task,  &settings_task, &state_task,    &denied_task, &vetoed_task,
                                               &trace_task,  &events_task,   &runtime_events_task, &late_task, &findings_task,
                                               &prepare_task, &enabled_task, &hip_task, &threads_task,  &forked_task,   &off_task,
                                               &repeated_copies_task, &verdict_task};
    for (size_t i = 0; argc == 3 && i < sizeof tasks / sizeof *tasks; i++) {
        if (strcmp(tasks[i]->name, argv[1]) == 0) {
            tasks[i]->run(argv[2]);
            printf("done\n");
            return 0;
        }
    }
    fprintf(stderr, "usage: capi TASK FOLDER\n");
    return 2;
}
