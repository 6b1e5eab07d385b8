/* build: runtime old; run: raw_fork on sim
 * A child made by the system call alone, so that no fork handler runs in it, calls peer functions.
 */
#include <cuda_runtime_api.h>

#include "check.h"
#include "lib/threads_sleep.h"

int main(void)
{
    int can, status = -1;
    CHECK(cudaDeviceCanAccessPeer(&can, 0, 1));
    fflush(stdout);
    threads_sleep();
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (child == 0) {
        cudaDeviceCanAccessPeer(NULL, 0, 1);
        cudaMemcpyPeer(NULL, 1, NULL, 0, 0);
        _exit(7);
    }
    REQUIRE(waitpid(child, &status, 0) == child);
    printf("the child ended with %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    SHOW(cudaDeviceCanAccessPeer(&can, 0, 1));
    return 0;
}
