/* build: runtime old; run: sigpipe_stderr on sim
 * Standard error is a pipe that nobody reads any more: a log line must neither kill the program nor leave a SIGPIPE
 * pending, nor take away one that the program has pending itself.
 */
#include <cuda_runtime_api.h>

#include "check.h"

static void peer_calls(void)
{
    int can = -7;
    SHOW(cudaDeviceCanAccessPeer(&can, 0, 1));
    SHOW(cudaMemcpyPeer(NULL, 1, NULL, 0, 0));
    SHOW(cudaMemcpyPeer(NULL, 99, NULL, 0, 1));
    SHOW(cudaGetLastError());
}

static void print_pending(void)
{
    sigset_t pending;
    sigpending(&pending);
    printf("SIGPIPE pending: %s\n", sigismember(&pending, SIGPIPE) ? "yes" : "no");
}

int main(void)
{
    int ends[2];
    struct sigaction before, after;
    sigset_t sigpipe, mask;
    sigemptyset(&sigpipe);
    sigaddset(&sigpipe, SIGPIPE);
    REQUIRE(pipe(ends) == 0);
    REQUIRE(dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    sigaction(SIGPIPE, NULL, &before);

    printf("SIGPIPE not blocked\n");
    peer_calls();
    print_pending();

    printf("SIGPIPE blocked\n");
    pthread_sigmask(SIG_BLOCK, &sigpipe, NULL);
    peer_calls();
    print_pending();

    printf("the program's own SIGPIPE pending\n");
    raise(SIGPIPE);
    peer_calls();
    print_pending();

    sigaction(SIGPIPE, NULL, &after);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    printf("handler as before: %s, blocked as before: %s\n", before.sa_handler == after.sa_handler ? "yes" : "no",
           sigismember(&mask, SIGPIPE) ? "yes" : "no");
    return 0;
}
