/* A program of HIP alone: its library is listed, its calls are heard, its pairs are known. */
#include <dlfcn.h>

#include "capi.h"

static char heard[256];

static void note(const p2pshim_event_t *event, void *data)
{
    (void)data;
    REQUIRE(event->layer == P2PSHIM_LAYER_HIP);
    snprintf(heard, sizeof heard, "%d %s %d->%d %d", event->depth, event->function, event->src_device,
             event->dst_device, (int)event->bytes);
}

static void run(const char *folder)
{
    (void)folder;
    void *hip = dlopen("libamdhip64.so.6", RTLD_NOW);
    if (!hip || !is_in_front())
        return;
    int (*set_device)(int), (*allocate)(void **, size_t), (*copy)(void *, int, const void *, int, size_t);
    *(void **)&set_device = dlsym(hip, "hipSetDevice");
    *(void **)&allocate = dlsym(hip, "hipMalloc");
    *(void **)&copy = dlsym(hip, "hipMemcpyPeer");
    REQUIRE(set_device && allocate && copy);
    void *buffers[2];
    for (int device = 1; device >= 0; device--)
        REQUIRE(set_device(device) == 0 && allocate(&buffers[device], BYTES) == 0);

    uint64_t id;
    SAME(API(callback_add)(note, NULL, &id), P2PSHIM_OK);
    SAME(copy(buffers[1], 1, buffers[0], 0, 77), 0);
    if (strcmp(heard, "0 hipMemcpyPeer 0->1 77") != 0)
        check_failed(__FILE__, __LINE__, "what was told", heard);
    SAME(API(callback_remove)(id), P2PSHIM_OK);

    bool is_listed = false;
    p2pshim_library_t library = P2PSHIM_INIT(p2pshim_library_t);
    for (size_t i = 0; API(library_get)(i, &library) == P2PSHIM_OK; i++)
        if (library.layer == P2PSHIM_LAYER_HIP) {
            is_listed = true;
            REQUIRE(strstr(library.path, "libamdhip64") && *library.bypass == 0);
            REQUIRE(library.routes == (P2PSHIM_ROUTE_LINKED | P2PSHIM_ROUTE_LOOKED_UP));
        }
    REQUIRE(is_listed);

    p2pshim_pair_t counted = P2PSHIM_INIT(p2pshim_pair_t);
    p2pshim_pair_state_t pair = P2PSHIM_INIT(p2pshim_pair_state_t);
    SAME(API(pair_get)(0, 1, &counted), P2PSHIM_OK);
    REQUIRE(counted.direct_copies + counted.staged_copies == 1 && counted.direct_bytes + counted.staged_bytes == 77);
    SAME(API(pair_state_get)(0, 1, &pair), P2PSHIM_OK);
    REQUIRE(pair.possible == 1 && pair.path == P2PSHIM_PATH_MAPPED_ON_USE);
    REQUIRE(pair.verification == P2PSHIM_VERIFICATION_PASSED && pair.enabled_by == P2PSHIM_BY_SHIM);
    int (*enable)(int, unsigned);
    *(void **)&enable = dlsym(hip, "hipDeviceEnablePeerAccess");
    REQUIRE(enable && enable(1, 0) == 0);
    SAME(API(pair_state_get)(0, 1, &pair), P2PSHIM_OK);
    REQUIRE(pair.verification == P2PSHIM_VERIFICATION_PASSED && pair.enabled_by == P2PSHIM_BY_PROGRAM);
    SAME(API(pair_prepare)(0, 1), P2PSHIM_NO_DRIVER);
}

const struct task hip_task = {"hip", run};
