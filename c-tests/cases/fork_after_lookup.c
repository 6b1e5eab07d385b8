/* build: runtime old; run: fork_after_lookup HOW [enable] on sim
 * A child copies whose parent has not initialised CUDA. HOW says what the parent does before it forks: it looks functions up (`lookup`),
 * asks for versions, and then by `cuGetProcAddress` (`version`), forks a child that forks again (`grandchild`), forks from another thread (`thread`),
 * forks by the system call, as _Fork does (`raw`), or makes a call that fails, since CUDA is not initialised (`call`). With `enable` the
 * child first enables peer access.
 */
#include <cuda_runtime_api.h>

#include "check.h"

enum { COUNT = 1 << 20, COPIES = 40 };

static int enables;

static void be_child(void)
{
    static unsigned char sent[COUNT], received[COUNT];
    void *to = device_memory(1, COUNT), *from = device_memory(0, COUNT);
    fill(sent, COUNT, 5);
    if (enables)
        SHOW(cudaDeviceEnablePeerAccess(1, 0));
    CHECK(cudaMemcpy(from, sent, COUNT, cudaMemcpyHostToDevice));
    cudaStream_t stream = non_blocking_stream();
    for (int copy = 0; copy < COPIES; copy++)
        CHECK(cudaMemcpyPeerAsync(to, 1, from, 0, COUNT, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(received, to, COUNT, cudaMemcpyDeviceToHost));
    printf("the child's data is %s\n", memcmp(sent, received, COUNT) ? "wrong" : "right");
}

static pid_t fork_raw(void)
{
    return (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

/* Has children do it, `generations` deep. */
static void have_done(pid_t (*make)(void), int generations)
{
    int status;
    fflush(stdout);
    pid_t child = make();
    REQUIRE(child >= 0);
    if (child == 0) {
        if (generations > 1)
            have_done(make, generations - 1);
        else
            be_child();
        exit(0);
    }
    REQUIRE(waitpid(child, &status, 0) == child && status == 0);
}

static void *have_one(void *unused)
{
    have_done(fork, 1);
    return unused;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    int version, can;
    int (*call)(int *, int, int), (*get)(int *), (*find)(const char *, void **, int, uint64_t);
    void *found;
    enables = has_word(argc, argv, "enable");
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    REQUIRE(driver);
    if (strcmp(how, "version") == 0) {
        CHECK(cudaRuntimeGetVersion(&version));
        *(void **)&find = dlsym(driver, "cuGetProcAddress");
        REQUIRE(find("cuDriverGetVersion", (void **)&get, 2020, 0) == 0 && get(&version) == 0);
        REQUIRE(find("cuMemcpyPeerAsync", &found, 4000, 0) == 0);
    } else if (strcmp(how, "call") == 0) {
        *(void **)&call = dlsym(driver, "cuDeviceCanAccessPeer");
        printf("before cuInit: %d\n", call(&can, 0, 1));
    } else {
        REQUIRE(dlsym(driver, "cuMemcpyPeerAsync") && dlsym(driver, "cuCtxEnablePeerAccess"));
    }
    if (strcmp(how, "thread") == 0) {
        run_in_thread(have_one, NULL);
    } else {
        have_done(strcmp(how, "raw") ? fork : fork_raw, strcmp(how, "grandchild") ? 1 : 2);
    }
    return 0;
}
