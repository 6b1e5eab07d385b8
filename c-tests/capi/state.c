/* Is the shim active, what does it reach, and what is known of a pair? */
#include "capi.h"

static p2pshim_pair_state_t pair_state(int device, int peer)
{
    p2pshim_pair_state_t state = P2PSHIM_INIT(p2pshim_pair_state_t);
    SAME(API(pair_state_get)(device, peer, &state), P2PSHIM_OK);
    return state;
}

static void check_libraries(bool has_driver)
{
    size_t count = API(library_count)();
    bool is_found = false;
    p2pshim_library_t library;
    for (size_t i = 0; i < count; i++) {
        memset(&library, 0, sizeof library);
        library.size = sizeof library;
        SAME(API(library_get)(i, &library), P2PSHIM_OK);
        REQUIRE(strstr(library.path, "libp2pshim") == NULL);
        if (strstr(library.path, "libcuda.so")) {
            is_found = true;
            REQUIRE(library.layer == P2PSHIM_LAYER_DRIVER);
            REQUIRE(((library.routes & P2PSHIM_ROUTE_LINKED) != 0) == is_in_front());
            REQUIRE((*library.bypass == 0) == is_in_front());
            REQUIRE(((library.routes & P2PSHIM_ROUTE_LOOKED_UP) != 0) == is_in_front());
        }
        library.size = sizeof library - 1;
        SAME(API(library_get)(i, &library), P2PSHIM_INVALID_ARGUMENT);
        SAME(API(library_get)(i, NULL), P2PSHIM_INVALID_ARGUMENT);
    }
    REQUIRE(is_found == has_driver);
    library.size = sizeof library;
    SAME(API(library_get)(count, &library), P2PSHIM_OUT_OF_RANGE);
    SAME(API(library_get)((size_t)-1, NULL), P2PSHIM_OUT_OF_RANGE);
}

/* Copies so often that the pair is worth enabling, if the shim sees it; else asks for that. */
static void use(struct gpus *two, p2pshim_status_t expected)
{
    if (is_in_front())
        copy_some(two, ENOUGH);
    SAME(API(pair_prepare)(0, 1), expected);
}

static void run(const char *folder)
{
    (void)folder;
    p2pshim_state_t state = P2PSHIM_INIT(p2pshim_state_t);
    p2pshim_pair_state_t pair = pair_state(0, 1);
    SAME(API(state_get)(&state), P2PSHIM_OK);
    REQUIRE(state.activity == P2PSHIM_ACTIVITY_NOT_STARTED && !state.recording && state.driver_version == 0);
    REQUIRE(pair.possible == -1 && pair.enabled_by == 0 && pair.verification == P2PSHIM_VERIFICATION_NONE && !pair.denied);
    REQUIRE(API(library_count)() == 0);

    struct gpus *two = gpus();
    check_libraries(two != NULL);
    if (!two)
        return;
    SAME(API(state_get)(&state), P2PSHIM_OK);
    REQUIRE(state.driver_version >= 12000 && state.device_count >= 2);
    pair = pair_state(0, 1);
    REQUIRE(pair.possible == 1 && pair.enabled_by == 0 && pair.verification == P2PSHIM_VERIFICATION_NONE);
    REQUIRE(pair.path == P2PSHIM_PATH_STAGED && *pair.reason);
    REQUIRE(pair_state(1, 1).path == P2PSHIM_PATH_SAME_DEVICE && pair_state(1, 1).possible == 1);

    use(two, P2PSHIM_OK);
    check_libraries(true);
    pair = pair_state(0, 1);
    REQUIRE(pair.verification == P2PSHIM_VERIFICATION_PASSED && pair.enabled_by == P2PSHIM_BY_SHIM);
    REQUIRE(pair.path == P2PSHIM_PATH_DIRECT && *pair.reason == 0);
    REQUIRE(pair.pool_verification == P2PSHIM_VERIFICATION_NONE);
    SAME(API(state_get)(&state), P2PSHIM_OK);
    const uint64_t seen = is_in_front() ? ENOUGH : 0;
    REQUIRE(state.activity == P2PSHIM_ACTIVITY_ON && state.calls >= seen && state.failures == 0);

    /* What was counted: by pair and by function. */
    p2pshim_pair_t counted = P2PSHIM_INIT(p2pshim_pair_t);
    SAME(API(pair_get)(0, 1, &counted), P2PSHIM_OK);
    REQUIRE(counted.direct_copies + counted.staged_copies == seen && (counted.direct_copies > 0) == is_in_front());
    REQUIRE(counted.direct_bytes + counted.staged_bytes == seen * BYTES);
    uint64_t calls, failures;
    SAME(API(calls_get)("cuMemcpyPeer", &calls, &failures), P2PSHIM_OK);
    REQUIRE(calls == seen && failures == 0);

    /* The program enables it as well: it is seen if its calls reach the shim. */
    SAME(two->cu.cuCtxEnablePeerAccess(two->contexts[1], 0), is_in_front() ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    pair = pair_state(0, 1);
    REQUIRE(pair.enabled_by == (unsigned)(is_in_front() ? P2PSHIM_BY_SHIM | P2PSHIM_BY_PROGRAM : P2PSHIM_BY_SHIM));
}

const struct task state_task = {"state", run};

/* The program denies a pair before it begins. */
static void run_denied(const char *folder)
{
    (void)folder;
    SAME(API(option_set)("P2PSHIM_DENY", "0>1"), P2PSHIM_OK);
    struct gpus *two = gpus();
    if (!two)
        return;
    use(two, P2PSHIM_STAGED);
    p2pshim_pair_state_t pair = pair_state(0, 1), back = pair_state(1, 0);
    REQUIRE(pair.denied == 1 && pair.possible == 1 && pair.enabled_by == 0);
    REQUIRE(back.denied == 0 && back.enabled_by == 0);
    REQUIRE(pair.path == P2PSHIM_PATH_STAGED && strcmp(pair.reason, "denied") == 0);
}

const struct task denied_task = {"denied", run_denied};

/* The simulated driver loses what is copied directly: P2PSIM_FAULT=drop:0-1. */
static void run_vetoed(const char *folder)
{
    (void)folder;
    struct gpus *two = gpus();
    if (!two)
        return;
    prepare(two, 3);
    use(two, P2PSHIM_STAGED);
    copy_some(two, 1);
    REQUIRE(has_arrived(two, 3));
    p2pshim_pair_state_t pair = pair_state(0, 1);
    REQUIRE(pair.verification == P2PSHIM_VERIFICATION_FAILED && pair.enabled_by == 0 && pair.possible == 1);
    REQUIRE(pair.path == P2PSHIM_PATH_STAGED && strncmp(pair.reason, "broken", 6) == 0);
}

const struct task vetoed_task = {"vetoed", run_vetoed};
