/* Options, before and after the first intercepted call. */
#include "capi.h"

static void expect(const char *name, const char *expected)
{
    char value[256];
    size_t length = 0;
    memset(value, 'x', sizeof value);
    SAME(API(option_value)(name, value, sizeof value, &length), P2PSHIM_OK);
    if (strcmp(value, expected) != 0)
        check_failed(name, 0, value, expected);
    REQUIRE(length == strlen(expected));
    if (length > 1) {
        SAME(API(option_value)(name, value, length, NULL), P2PSHIM_TOO_SMALL);
        REQUIRE(strlen(value) == length - 1 && strncmp(value, expected, length - 1) == 0);
    }
    length = 0;
    SAME(API(option_value)(name, NULL, 0, &length), P2PSHIM_TOO_SMALL);
    REQUIRE(length == strlen(expected));
}

static void check_bad_arguments(void)
{
    char value[8];
    size_t length;
    SAME(API(option_set)(NULL, "x"), P2PSHIM_INVALID_ARGUMENT);
    SAME(API(option_set)("", "x"), P2PSHIM_UNKNOWN_NAME);
    SAME(API(option_set)("P2PSHIM_LOGG", "x"), P2PSHIM_UNKNOWN_NAME);
    SAME(API(option_set)("\xff\xfe", "x"), P2PSHIM_UNKNOWN_NAME);
    SAME(API(option_set)("P2PSHIM_VALIDATE", "sometimes"), P2PSHIM_INVALID_VALUE);
    SAME(API(option_set)("P2PSHIM_VALIDATE", "\xff"), P2PSHIM_INVALID_VALUE);
    SAME(API(option_set)("P2PSHIM_DENY", "0-0"), P2PSHIM_INVALID_VALUE);
    SAME(API(option_set)("P2PSHIM_TRACE_LIMIT", "much"), P2PSHIM_INVALID_VALUE);
    SAME(API(option_set)("P2PSHIM_LOG", "loud"), P2PSHIM_INVALID_VALUE);
    SAME(API(option_value)(NULL, value, sizeof value, &length), P2PSHIM_INVALID_ARGUMENT);
    SAME(API(option_value)("P2PSHIM_NO", value, sizeof value, &length), P2PSHIM_UNKNOWN_NAME);
    SAME(API(option_value)("P2PSHIM", NULL, sizeof value, &length), P2PSHIM_INVALID_ARGUMENT);
    SAME(API(option_value)("P2PSHIM", value, 0, NULL), P2PSHIM_TOO_SMALL);
}

/* The environment has P2PSHIM_VALIDATE=off, P2PSHIM_VERIFY=nonsense and P2PSHIM_LOG=error. */
static void run(const char *folder)
{
    (void)folder;
    check_bad_arguments();
    expect("P2PSHIM_VALIDATE", "off");
    expect("P2PSHIM_VERIFY", "quick");
    expect("P2PSHIM_DENY", "");
    SAME(API(option_set)("P2PSHIM_VERIFY", "quick"), P2PSHIM_OK);
    SAME(API(option_set)("P2PSHIM_LOG", "info"), P2PSHIM_OK);
    SAME(API(option_set)("P2PSHIM_LOG", NULL), P2PSHIM_OK);
    expect("P2PSHIM_LOG", "warn");
    SAME(API(option_set)("P2PSHIM_DENY", "2-3"), P2PSHIM_OK);
    SAME(API(option_set)("P2PSHIM_TRACE_LIMIT", "64M"), P2PSHIM_OK);
    expect("P2PSHIM_DENY", "2-3");

    /* What reads the options: a call of the driver that the shim sees, or else one of the shim. */
    struct gpus *two = gpus();
    if (two && is_in_front())
        copy_some(two, 1);
    else if (two)
        SAME(API(pair_prepare)(0, 1), P2PSHIM_OK);
    else
        SAME(API(trace_start)(NULL), P2PSHIM_NOT_FOUND);
    p2pshim_state_t state = P2PSHIM_INIT(p2pshim_state_t);
    SAME(API(state_get)(&state), P2PSHIM_OK);
    REQUIRE(state.activity == P2PSHIM_ACTIVITY_ON);

    check_bad_arguments();
    expect("P2PSHIM_DENY", "2-3");
    expect("P2PSHIM_VALIDATE", "off");
    SAME(API(option_set)("P2PSHIM", "off"), P2PSHIM_TOO_LATE);
    SAME(API(option_set)("P2PSHIM", "on"), P2PSHIM_OK);
    SAME(API(option_set)("P2PSHIM_DENY", ""), P2PSHIM_TOO_LATE);
    SAME(API(option_set)("P2PSHIM_DENY", "2-3"), P2PSHIM_OK);
    SAME(API(option_set)("P2PSHIM_ACCESS", "off"), P2PSHIM_TOO_LATE);
    SAME(API(option_set)("P2PSHIM_LOG_FILE", "/tmp/x"), P2PSHIM_TOO_LATE);
    SAME(API(option_set)("P2PSHIM_TRACE", "/tmp/x"), P2PSHIM_TOO_LATE);
    expect("P2PSHIM_TRACE", "");
    static const char *const changes[][2] = {{"P2PSHIM_ACCESS", "app"},      {"P2PSHIM_ACCESS", "auto"},
                                             {"P2PSHIM_VERIFY", "off"},       {"P2PSHIM_VERIFY", "quick"},
                                             {"P2PSHIM_POOLS", "app"},       {"P2PSHIM_CAPTURE", "forward"},
                                             {"P2PSHIM_GPU_TIMING", "all"},  {"P2PSHIM_SUMMARY", "on"},
                                             {"P2PSHIM_SUMMARY", "off"},     {"P2PSHIM_TRACE_LIMIT", "2M"},
                                             {"P2PSHIM_VALIDATE", "strict"}, {"P2PSHIM_VALIDATE", "warn"}};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        SAME(API(option_set)(changes[i][0], changes[i][1]), P2PSHIM_OK);
        expect(changes[i][0], changes[i][1]);
    }
    if (!two || !is_in_front())
        return;

    /* A single call is shown: the test looks for it. */
    copy(two, 101);
    SAME(API(option_set)("P2PSHIM_LOG", "trace"), P2PSHIM_OK);
    copy(two, 102);
    SAME(API(option_set)("P2PSHIM_LOG", "warn"), P2PSHIM_OK);
    copy(two, 103);

    /* Findings come with P2PSHIM_VALIDATE=warn and go with off: here bytes that overlap. */
    p2pshim_finding_t finding = P2PSHIM_INIT(p2pshim_finding_t);
    SAME(API(finding_last)(&finding, NULL, 0), P2PSHIM_NOT_FOUND);
    SAME(two->cu.cuMemcpyPeer(two->buffers[0] + 16, two->contexts[0], two->buffers[0], two->contexts[0], 64), CUDA_SUCCESS);
    SAME(API(finding_last)(&finding, NULL, 0), P2PSHIM_OK);
    uint64_t number = finding.number;
    SAME(API(option_set)("P2PSHIM_VALIDATE", "off"), P2PSHIM_OK);
    SAME(two->cu.cuMemcpyPeer(two->buffers[0] + 16, two->contexts[0], two->buffers[0], two->contexts[0], 64), CUDA_SUCCESS);
    SAME(API(finding_last)(&finding, NULL, 0), P2PSHIM_OK);
    REQUIRE(finding.number == number);

    /* With P2PSHIM_ACCESS=app nothing is enabled, with auto again it is. */
    p2pshim_pair_state_t pair = P2PSHIM_INIT(p2pshim_pair_state_t);
    SAME(API(option_set)("P2PSHIM_ACCESS", "app"), P2PSHIM_OK);
    copy_some(two, ENOUGH);
    SAME(API(pair_prepare)(0, 1), P2PSHIM_STAGED);
    SAME(API(pair_state_get)(0, 1, &pair), P2PSHIM_OK);
    REQUIRE(pair.enabled_by == 0 && pair.path == P2PSHIM_PATH_STAGED);
    SAME(API(option_set)("P2PSHIM_ACCESS", "auto"), P2PSHIM_OK);
    copy_some(two, ENOUGH);
    SAME(API(pair_state_get)(0, 1, &pair), P2PSHIM_OK);
    REQUIRE(pair.enabled_by == P2PSHIM_BY_SHIM && pair.path == P2PSHIM_PATH_DIRECT);
}

const struct task settings_task = {"settings", run};
