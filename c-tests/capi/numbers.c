/* Numbers and names, and every way to ask wrongly. */
#include "capi.h"

/* All bytes behind the size are this before a call. */
enum { UNTOUCHED = 0x5a };

static bool is_untouched(const void *bytes, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        if (((const unsigned char *)bytes)[i] != UNTOUCHED)
            return false;
    return true;
}

#define BLANK(of)                                                                                                       \
    do {                                                                                                                \
        memset(&of, UNTOUCHED, sizeof of);                                                                              \
        of.size = sizeof of;                                                                                            \
    } while (0)

/* A struct that is larger than the library knows it, one of the first release, and one that is too small. `oldest` is the size of the first
 * release. */
#define CHECK_SIZES(type, oldest, call)                                                                                 \
    do {                                                                                                                \
        struct {                                                                                                        \
            type it;                                                                                                    \
            unsigned char more[32];                                                                                     \
        } later;                                                                                                        \
        type *into = &later.it;                                                                                         \
        memset(&later, UNTOUCHED, sizeof later);                                                                        \
        into->size = sizeof later;                                                                                      \
        SAME(call, P2PSHIM_OK);                                                                                         \
        REQUIRE(into->size == sizeof later);                                                                            \
        REQUIRE(is_untouched(&later, sizeof(type), sizeof later));                                                      \
        memset(&later, UNTOUCHED, sizeof later);                                                                        \
        into->size = (oldest);                                                                                          \
        SAME(call, P2PSHIM_OK);                                                                                         \
        REQUIRE(is_untouched(&later, (oldest), sizeof later));                                                          \
        for (size_t small = 0; small < (oldest); small++) {                                                             \
            memset(&later, UNTOUCHED, sizeof later);                                                                    \
            into->size = small;                                                                                         \
            SAME(call, P2PSHIM_INVALID_ARGUMENT);                                                                       \
            REQUIRE(is_untouched(&later, sizeof(size_t), sizeof later));                                                \
        }                                                                                                               \
        into = NULL;                                                                                                    \
        SAME(call, P2PSHIM_INVALID_ARGUMENT);                                                                           \
    } while (0)

static void check_counts(void)
{
    uint64_t calls = 7, failures = 7, times = 7;
    SAME(API(calls_get)("cudaMemcpyPeerAsync", &calls, &failures), P2PSHIM_OK);
    SAME(API(findings_get)("P2P-enable-twice", &times), P2PSHIM_OK);
    REQUIRE(calls == 0 && failures == 0 && times == 0);
    SAME(API(calls_get)("cuGetProcAddress_v2", NULL, NULL), P2PSHIM_OK);
    SAME(API(findings_get)("P2P-enable-twice", NULL), P2PSHIM_OK);
    calls = failures = times = 7;
    static const char *const wrong[] = {"", "cuda", "cudaMemcpyPeerAsyncs", "malloc", "P2P", "P2P-enable-twic", "\xff\xfe"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        SAME(API(calls_get)(wrong[i], &calls, &failures), P2PSHIM_UNKNOWN_NAME);
        SAME(API(findings_get)(wrong[i], &times), P2PSHIM_UNKNOWN_NAME);
    }
    SAME(API(calls_get)(NULL, &calls, &failures), P2PSHIM_INVALID_ARGUMENT);
    SAME(API(findings_get)(NULL, &times), P2PSHIM_INVALID_ARGUMENT);
    REQUIRE(calls == 7 && failures == 7 && times == 7);
}

static void check_pairs(void)
{
    p2pshim_pair_t pair;
    BLANK(pair);
    SAME(API(pair_get)(0, 31, &pair), P2PSHIM_OK);
    REQUIRE(pair.direct_copies == 0 && pair.direct_bytes == 0 && pair.staged_copies == 0 && pair.staged_bytes == 0);
    BLANK(pair);
    static const int wrong[][2] = {{-1, 0}, {0, -1}, {32, 0}, {0, 32}, {1 << 30, 0}, {0, -(1 << 30)}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        SAME(API(pair_get)(wrong[i][0], wrong[i][1], &pair), P2PSHIM_OUT_OF_RANGE);
    REQUIRE(is_untouched(&pair, sizeof pair.size, sizeof pair));
    CHECK_SIZES(p2pshim_pair_t, 40, API(pair_get)(0, 1, into));
}

static void check_states(void)
{
    CHECK_SIZES(p2pshim_state_t, 40, API(state_get)(into));
    CHECK_SIZES(p2pshim_pair_state_t, 40, API(pair_state_get)(0, 1, into));
    p2pshim_pair_state_t state;
    BLANK(state);
    static const int wrong[][2] = {{-1, 0}, {0, -1}, {64, 0}, {0, 64}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        SAME(API(pair_state_get)(wrong[i][0], wrong[i][1], &state), P2PSHIM_OUT_OF_RANGE);
    REQUIRE(is_untouched(&state, sizeof state.size, sizeof state));
}

static void check_names(void)
{
    REQUIRE(strcmp(API(path_name)(P2PSHIM_PATH_DIRECT), "direct") == 0);
    REQUIRE(strcmp(API(path_name)(P2PSHIM_PATH_MAPPED_ON_USE), "mapped on first use") == 0);
    REQUIRE(strcmp(API(verification_name)(P2PSHIM_VERIFICATION_PASSED), "passed") == 0);
    REQUIRE(strcmp(API(verification_name)(P2PSHIM_VERIFICATION_SLOWER), "slower") == 0);
    REQUIRE(strcmp(API(verification_name)(P2PSHIM_VERIFICATION_NONE), "") == 0);
    REQUIRE(strcmp(API(verification_name)(5), "") == 0 && strcmp(API(verification_name)(-1), "") == 0);
    static const int none[] = {P2PSHIM_PATH_NONE, -1, P2PSHIM_PATH_MAPPED_ON_USE + 1, 1 << 30};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        REQUIRE(*API(path_name)(none[i]) == 0);
    for (int status = P2PSHIM_OK; status <= P2PSHIM_NOT_READY; status++) {
        REQUIRE(strncmp(API(status_name)(status), "P2PSHIM_", 8) == 0);
        REQUIRE(strlen(API(status_text)(status)) > 3 && strcmp(API(status_text)(status), "unknown") != 0);
    }
    static const int wrong[] = {-1, P2PSHIM_NOT_READY + 1, 1 << 30, -(1 << 30)};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        REQUIRE(strcmp(API(status_name)(wrong[i]), "unknown") == 0 && strcmp(API(status_text)(wrong[i]), "unknown") == 0);
}

static void run(const char *folder)
{
    (void)folder;
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", P2PSHIM_VERSION_MAJOR, P2PSHIM_VERSION_MINOR, P2PSHIM_VERSION_PATCH);
    REQUIRE(strcmp(API(version)(), version) == 0);
    check_counts();
    check_pairs();
    check_states();
    check_names();
    /* Asking has started nothing. */
    p2pshim_state_t state = P2PSHIM_INIT(p2pshim_state_t);
    SAME(API(state_get)(&state), P2PSHIM_OK);
    REQUIRE(state.activity == P2PSHIM_ACTIVITY_NOT_STARTED && state.calls == 0);
}

const struct task numbers_task = {"numbers", run};
