/* The last finding. */
#include <sys/syscall.h>
#include <unistd.h>

#include "capi.h"

static void run(const char *folder)
{
    (void)folder;
    char message[2048] = "";
    p2pshim_finding_t finding = P2PSHIM_INIT(p2pshim_finding_t);
    SAME(API(finding_last)(NULL, NULL, 0), P2PSHIM_INVALID_ARGUMENT);
    SAME(API(finding_last)(&finding, NULL, 8), P2PSHIM_INVALID_ARGUMENT);
    SAME(API(finding_last)(&finding, message, sizeof message), P2PSHIM_NOT_FOUND);
    struct gpus *two = gpus();
    if (!two || !is_in_front())
        return;
    /* Bytes that overlap. */
    SAME(two->cu.cuMemcpyPeer(two->buffers[0] + 16, two->contexts[0], two->buffers[0], two->contexts[0], 64), CUDA_SUCCESS);
    SAME(API(finding_last)(&finding, message, sizeof message), P2PSHIM_OK);
    REQUIRE(strcmp(finding.rule, "P2P-copy-overlap") == 0 && strcmp(finding.function, "cuMemcpyPeer") == 0);
    REQUIRE(finding.number == 1 && finding.result == 0 && finding.thread == (int)syscall(SYS_gettid));
    REQUIRE(strstr(message, "P2P-copy-overlap") && strlen(message) > 40);
    char begin[16];
    SAME(API(finding_last)(&finding, begin, sizeof begin), P2PSHIM_TOO_SMALL);
    REQUIRE(strncmp(begin, message, sizeof begin - 1) == 0 && strlen(begin) == sizeof begin - 1);
    finding.size = sizeof finding - 1;
    SAME(API(finding_last)(&finding, message, sizeof message), P2PSHIM_INVALID_ARGUMENT);
    finding.size = sizeof finding;
    /* A copy that the driver refuses: its code, and what it means. */
    SAME(two->cu.cuMemcpyPeer(two->buffers[1], two->contexts[1], two->buffers[0], two->contexts[0], 2 * BYTES + 1),
         CUDA_ERROR_INVALID_VALUE);
    SAME(API(finding_last)(&finding, NULL, 0), P2PSHIM_OK);
    REQUIRE(finding.number > 1 && finding.result == CUDA_ERROR_INVALID_VALUE);
    /* Counted by rule too. */
    uint64_t times, calls, failures;
    SAME(API(findings_get)("P2P-copy-overlap", &times), P2PSHIM_OK);
    REQUIRE(times == 1);
    /* What strict mode refuses is a call that failed, though the driver knows nothing of it. */
    SAME(API(option_set)("P2PSHIM_VALIDATE", "strict"), P2PSHIM_OK);
    SAME(two->cu.cuCtxEnablePeerAccess(two->contexts[1], 1), CUDA_ERROR_INVALID_VALUE);
    SAME(API(calls_get)("cuCtxEnablePeerAccess", &calls, &failures), P2PSHIM_OK);
    REQUIRE(calls == 1 && failures == 1);
}

const struct task findings_task = {"findings", run};
