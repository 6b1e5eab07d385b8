/*
 * Programs that soak.c starts: each copies between devices 0 and 1, looks at what arrives, and ends by itself, by exec of another program, or by
 * kill -9. Include where there are `contexts`, `make_current` and check.h.
 *
 * What it made is on standard error for whoever reads its trace: `child PROCESS: COUNT copies`, and `or more` where it was killed.
 */
#ifndef P2PSHIM_C_TESTS_SOAK_CHILDREN_H
#define P2PSHIM_C_TESTS_SOAK_CHILDREN_H

enum { CHILD_BYTES = 4096, CHILD_COPIES = 24, CHILD_PIPE = 9 };
enum child_end { RETURNS, EXITS, EXECS, IS_KILLED, CHILD_ENDS };

/* The main function of such a program: copies until it has made `most`, and says so after each. */
static int be_child(unsigned first, unsigned most, enum child_end how)
{
    static unsigned char sent[CHILD_BYTES], got[CHILD_BYTES];
    CUdeviceptr at[2];
    CHECK_CU(cuInit(0));
    for (int device = 0; device < 2; device++) {
        CHECK_CU(cuDevicePrimaryCtxRetain(&contexts[device], device));
        make_current(device);
        CHECK_CU(cuMemAlloc(&at[device], CHILD_BYTES));
    }
    for (unsigned made = 0; made < most; made++) {
        unsigned from = (first + made) % 2;
        fill(sent, CHILD_BYTES, first + made);
        make_current((int)from);
        CHECK_CU(cuMemcpyHtoD(at[from], sent, CHILD_BYTES));
        CHECK_CU(cuMemcpyPeer(at[!from], contexts[!from], at[from], contexts[from], CHILD_BYTES));
        CHECK_CU(cuStreamSynchronize(CU_STREAM_LEGACY));
        make_current(!from);
        CHECK_CU(cuStreamSynchronize(CU_STREAM_LEGACY));
        CHECK_CU(cuMemcpyDtoH(got, at[!from], CHILD_BYTES));
        REQUIRE(memcmp(sent, got, CHILD_BYTES) == 0);
        REQUIRE(write(CHILD_PIPE, "", 1) == 1);
    }
    if (how == EXITS)
        _exit(0);
    if (how == EXECS)
        execl("/bin/true", "true", (char *)NULL);
    return 0;
}

/* Starts one, and waits until it has ended: 0, or how it ended otherwise. */
static int use_program(unsigned number, enum child_end how, unsigned copies)
{
    char words[4][16], byte;
    int status, made[2];
    unsigned count = 0;
    ssize_t got;
    REQUIRE(pipe2(made, O_CLOEXEC) == 0);
    snprintf(words[0], sizeof words[0], "%u", number);
    /* Who is killed copies on. */
    snprintf(words[1], sizeof words[1], "%u", how == IS_KILLED ? ~0u : copies);
    snprintf(words[2], sizeof words[2], "%d", how);
    pid_t child = fork();
    if (child == 0) {
        /* Also where it is that number: the copy stays open. */
        if (made[1] == CHILD_PIPE ? fcntl(CHILD_PIPE, F_SETFD, 0) : dup2(made[1], CHILD_PIPE) < 0)
            _exit(126);
        execl("/proc/self/exe", "soak", "child", words[0], words[1], words[2], (char *)NULL);
        _exit(127);
    }
    REQUIRE(child > 0);
    close(made[1]);
    while ((got = read(made[0], &byte, 1)) != 0) {
        count += got > 0;
        if (how == IS_KILLED && count == copies)
            kill(child, SIGKILL);
    }
    close(made[0]);
    while (waitpid(child, &status, 0) != child)
        ;
    fprintf(stderr, "child %d: %u copies%s\n", child, count, how == IS_KILLED ? " or more" : "");
    if (how == IS_KILLED)
        return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL ? 0 : status;
    return count == copies ? status : -1;
}

#endif
