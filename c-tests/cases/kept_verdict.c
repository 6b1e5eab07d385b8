/* build: driver; run: kept_verdict on sim
 * Enabling peer access where the verdict on the pair is kept in a file: once there are contexts on both devices, no file is opened, nor
 * looked at, for it. A filter of system calls ends the process otherwise.
 */
#include <cuda.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include "check.h"

#define ENDS_AT(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

static void forbid_files(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ENDS_AT(SYS_open),
        ENDS_AT(SYS_openat),
        ENDS_AT(SYS_read),
        ENDS_AT(SYS_stat),
        ENDS_AT(SYS_lstat),
        ENDS_AT(SYS_newfstatat),
        ENDS_AT(SYS_statx),
        ENDS_AT(SYS_readlink),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    REQUIRE(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

int main(void)
{
    CUcontext contexts[2];
    CHECK_CU(cuInit(0));
    for (int device = 0; device < 2; device++)
        CHECK_CU(cuDevicePrimaryCtxRetain(&contexts[device], device));
    printf("there are contexts\n");
    fflush(stdout);
    forbid_files();
    for (int device = 0; device < 2; device++) {
        CHECK_CU(cuCtxSetCurrent(contexts[device]));
        SHOW_CU(cuCtxEnablePeerAccess(contexts[!device], 0));
    }
    return 0;
}
