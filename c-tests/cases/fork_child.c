/* build: runtime old; run: fork_child [_exit] on sim
 * A child forked before the first CUDA call is a program like any other; one forked after it cannot use the GPUs, and gets
 * whatever the real library answers, without a hang. The parent goes on either way; with `_exit` it ends by that.
 */
#include <cuda_runtime_api.h>

#include "check.h"

enum { COUNT = 100000 };

static void *a, *b;

static void copy(const char *who)
{
    static unsigned char host[COUNT];
    fill(host, COUNT, 9);
    printf("%s\n", who);
    SHOW(cudaSetDevice(1));
    SHOW(cudaMalloc(&b, COUNT));
    SHOW(cudaSetDevice(0));
    SHOW(cudaMalloc(&a, COUNT));
    SHOW(cudaMemcpy(a, host, COUNT, cudaMemcpyHostToDevice));
    SHOW(cudaMemcpyPeer(b, 1, a, 0, COUNT));
    SHOW(cudaMemcpyPeerAsync(b, 1, a, 0, COUNT, 0));
    SHOW(cudaDeviceSynchronize());
    memset(host, 0, COUNT);
    SHOW(cudaMemcpy(host, b, COUNT, cudaMemcpyDeviceToHost));
    printf("    destination %08x\n", checksum(host, COUNT));
}

static void peer_calls_only(const char *who)
{
    int can = -7;
    printf("%s\n", who);
    SHOW(cudaDeviceCanAccessPeer(&can, 0, 1));
    SHOW(cudaDeviceEnablePeerAccess(1, 0));
    SHOW(cudaMemcpyPeer(b, 1, a, 0, COUNT));
    SHOW(cudaMemcpyPeerAsync(b, 1, a, 0, COUNT, 0));
    SHOW(cudaMemcpy3DPeer(NULL));
    SHOW(cudaGetLastError());
}

static void in_child(void (*work)(const char *), const char *who)
{
    int status;
    fflush(stdout);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        alarm(60);
        work(who);
        exit(7);
    }
    REQUIRE(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status))
        printf("child exited with %d\n", WEXITSTATUS(status));
    else
        printf("child was killed by signal %d\n", WTERMSIG(status));
}

int main(int argc, char **argv)
{
    (void)argv;
    in_child(copy, "child of a fresh parent");
    copy("parent");
    in_child(peer_calls_only, "child of a parent with CUDA in use");
    copy("parent again");
    if (argc > 1)
        _exit(0);
    return 0;
}
