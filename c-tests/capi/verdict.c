/* The verdict of the doctor, which found memory of another process wrong from GPU 0 to 1, and tested no kernels. */
#include "capi.h"

#define ZERO "GPU-70327073-696d-2047-5055-202e2e2e2e00"
#define ONE "GPU-70327073-696d-2047-5055-202e2e2e2e01"

static void run(const char *folder)
{
    (void)folder;
    p2pshim_verdict_t verdict = P2PSHIM_INIT(p2pshim_verdict_t);
    SAME(API(verdict_get)(ZERO, ONE, &verdict), P2PSHIM_OK);
    REQUIRE(verdict.right == P2PSHIM_PART_COPIES && verdict.wrong == P2PSHIM_PART_IPC);
    SAME(API(verdict_get)(ONE, ZERO, &verdict), P2PSHIM_OK);
    REQUIRE(verdict.right == (P2PSHIM_PART_COPIES | P2PSHIM_PART_IPC) && verdict.wrong == 0);
    SAME(API(verdict_get)(ONE, ONE, &verdict), P2PSHIM_NOT_FOUND);
    SAME(API(verdict_get)("../" ONE, "", &verdict), P2PSHIM_NOT_FOUND);
    SAME(API(verdict_get)(NULL, ONE, &verdict), P2PSHIM_INVALID_ARGUMENT);
    SAME(API(verdict_get)(ZERO, "\xff", &verdict), P2PSHIM_INVALID_ARGUMENT);
    SAME(API(verdict_get)(ZERO, ONE, NULL), P2PSHIM_INVALID_ARGUMENT);
    verdict.size--;
    SAME(API(verdict_get)(ZERO, ONE, &verdict), P2PSHIM_INVALID_ARGUMENT);
    REQUIRE(verdict.wrong == 0);
    /* Of other faults anything may be right. */
    verdict.size++;
    REQUIRE(setenv("P2PSIM_FAULT", "", 1) == 0);
    SAME(API(verdict_get)(ZERO, ONE, &verdict), P2PSHIM_NOT_FOUND);
}

const struct task verdict_task = {"verdict", run};
