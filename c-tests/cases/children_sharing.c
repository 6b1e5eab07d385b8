/* build: runtime old; run: children_sharing HOW [old] on sim
 * Children that share the memory of their process, and some that do not, ask for peer access; then
 * the process itself asks and copies. HOW is `vfork`, `exec` (likewise, and the child executes a program), `clone-vfork`, `clone-vm`
 * (on a stack of its own), `raw` (by the system call, as _Fork does) or `fork`. With `old`, madvise refuses MADV_WIPEONFORK as
 * Linux did before 4.14.
 */
#include <cuda_runtime_api.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>

#include "../../include/p2pshim.h"
#include "check.h"
#include "lib/threads_sleep.h"

enum { COUNT = 1 << 16, STACK = 1 << 18, CHILDREN = 3, COPIES = 20 };
enum { WIPE_ON_FORK = 18 };

static void *memory[2];
static int executes;

static void be_old(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, WIPE_ON_FORK, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    REQUIRE(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

/* What the shim says it does, if it is there. */
static const char *activity(void)
{
    static const char *const names[] = {"not started", "on", "off", "forked"};
    p2pshim_status_t (*get)(p2pshim_state_t *);
    p2pshim_state_t state = P2PSHIM_INIT(p2pshim_state_t);
    *(void **)&get = dlsym(RTLD_DEFAULT, "p2pshim_state_get");
    return get && get(&state) == P2PSHIM_OK ? names[state.activity] : "plain";
}

static int can_access(void)
{
    int can = 7;
    cudaDeviceCanAccessPeer(&can, 0, 1);
    return can;
}

/* All that a child does; it ends with what it was told, and what the shim says. */
static int be_child(void *unused)
{
    int none;
    (void)unused;
    /* Of a call that fails more is asked than of one that succeeds. */
    cudaDeviceCanAccessPeer(&none, 0, 99);
    int told = can_access() * 10 + (strcmp(activity(), "forked") == 0);
    if (executes)
        execl("/bin/sh", "sh", "-c", "exit 42", (char *)NULL);
    _exit(told);
}

static pid_t begin(const char *how)
{
    static char *stack;
    executes = strcmp(how, "exec") == 0;
    if (executes || strcmp(how, "vfork") == 0) {
        pid_t child = vfork();
        if (child == 0)
            be_child(NULL);
        return child;
    }
    if (strcmp(how, "raw") == 0 || strcmp(how, "fork") == 0) {
        threads_sleep();
        pid_t child = *how == 'r' ? (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL) : fork();
        if (child == 0)
            be_child(NULL);
        return child;
    }
    if (!stack)
        stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(stack != MAP_FAILED);
    REQUIRE(strcmp(how, "clone-vm") == 0 || strcmp(how, "clone-vfork") == 0);
    int flags = CLONE_VM | SIGCHLD | (strcmp(how, "clone-vfork") == 0 ? CLONE_VFORK : 0);
    return clone(be_child, stack + STACK, flags, NULL);
}

static int copies_are_right(unsigned seed)
{
    static unsigned char sent[COUNT], received[COUNT];
    fill(sent, COUNT, seed);
    CHECK(cudaSetDevice(1));
    CHECK(cudaMemset(memory[1], 0, COUNT));
    CHECK(cudaSetDevice(0));
    CHECK(cudaMemcpy(memory[0], sent, COUNT, cudaMemcpyHostToDevice));
    for (int i = 0; i < COPIES; i++)
        CHECK(cudaMemcpyPeerAsync(memory[1], 1, memory[0], 0, COUNT, 0));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpyPeer(memory[1], 1, memory[0], 0, COUNT));
    CHECK(cudaMemcpy(received, memory[1], COUNT, cudaMemcpyDeviceToHost));
    return memcmp(sent, received, COUNT) == 0;
}

int main(int argc, char **argv)
{
    int status;
    REQUIRE(argc >= 2);
    if (argc > 2)
        be_old();
    for (int device = 1; device >= 0; device--)
        memory[device] = device_memory(device, COUNT);
    printf("before: can access %d, copies %s, the shim is %s\n", can_access(), copies_are_right(1) ? "right" : "WRONG",
           activity());
    for (int i = 0; i < CHILDREN; i++) {
        fflush(stdout);
        pid_t child = begin(argv[1]);
        REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
        printf("child: %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
    }
    int can = can_access();
    if (can)
        SHOW(cudaDeviceEnablePeerAccess(1, 0));
    printf("after: can access %d, copies %s, the shim is %s\n", can, copies_are_right(2) ? "right" : "WRONG", activity());
    return 0;
}
