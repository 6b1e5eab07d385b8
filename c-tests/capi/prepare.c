/* Peer access that is verified and enabled before the first copy. */
#include <dlfcn.h>

#include "capi.h"

static void check_arguments(void)
{
    static const int wrong[][2] = {{0, 0}, {-1, 0}, {0, -1}, {0, 64}, {1 << 30, 1}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        SAME(API(pair_prepare)(wrong[i][0], wrong[i][1]), P2PSHIM_OUT_OF_RANGE);
    SAME(API(pair_prepare)(0, 1), P2PSHIM_NO_DRIVER);
    /* Before cuInit. */
    if (dlopen("libcuda.so.1", RTLD_NOW))
        SAME(API(pair_prepare)(0, 1), P2PSHIM_NOT_READY);
}

static void check_capture(struct gpus *two)
{
    CUstream stream;
    CUgraph graph;
    SAME(two->cu.cuStreamCreate(&stream, 0), CUDA_SUCCESS);
    SAME(two->cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    SAME(API(pair_prepare)(0, 1), P2PSHIM_NOT_READY);
    SAME(two->cu.cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
}

/* On two devices, and perhaps more, of which these have no context. */
static void run(const char *folder)
{
    (void)folder;
    check_arguments();
    struct gpus *two = gpus();
    if (!two)
        return;
    p2pshim_state_t state = P2PSHIM_INIT(p2pshim_state_t);
    SAME(API(state_get)(&state), P2PSHIM_OK);
    SAME(API(pair_prepare)(0, state.device_count), P2PSHIM_OUT_OF_RANGE);
    if (state.device_count > 2)
        SAME(API(pair_prepare)(0, 2), P2PSHIM_NOT_READY);
    if (is_in_front())
        check_capture(two);

    /* Data is lost, or the program is left to itself. */
    const bool is_staged = getenv("P2PSIM_FAULT") || getenv("P2PSHIM_ACCESS");
    p2pshim_pair_state_t pair = P2PSHIM_INIT(p2pshim_pair_state_t);
    for (int i = 0; i < 2; i++) {
        SAME(API(pair_prepare)(i, 1 - i), is_staged ? P2PSHIM_STAGED : P2PSHIM_OK);
        SAME(API(pair_state_get)(i, 1 - i, &pair), P2PSHIM_OK);
        REQUIRE(pair.path == (is_staged ? P2PSHIM_PATH_STAGED : P2PSHIM_PATH_DIRECT) && pair.enabled_by == (is_staged ? 0 : P2PSHIM_BY_SHIM));
    }
    /* The first copy takes that path, and its data arrives. */
    prepare(two, 10);
    copy(two, BYTES);
    REQUIRE(has_arrived(two, 10));
    p2pshim_pair_t counted = P2PSHIM_INIT(p2pshim_pair_t);
    SAME(API(pair_get)(0, 1, &counted), P2PSHIM_OK);
    REQUIRE(counted.direct_copies == (is_in_front() && !is_staged) && counted.staged_copies == (is_in_front() && is_staged));
}

const struct task prepare_task = {"prepare", run};

/* The program has enabled access itself, whether the shim saw it or not. */
static void run_enabled(const char *folder)
{
    (void)folder;
    struct gpus *two = gpus();
    if (!two)
        return;
    SAME(two->cu.cuCtxEnablePeerAccess(two->contexts[1], 0), CUDA_SUCCESS);
    SAME(API(pair_prepare)(0, 1), P2PSHIM_OK);
    SAME(API(pair_prepare)(1, 0), P2PSHIM_OK);
}

const struct task enabled_task = {"enabled", run_enabled};
