/* build: standin-runtime/libcudart.so.12; run: vforked_inside on standin-runtime
 * Children that share the memory of their process, and end inside a copy: by _exit, and by execve. The process itself copies on.
 * On the stand-in runtime.
 */
#include <cuda_runtime_api.h>

#include "check.h"
#include "lib/standin_runtime.h"

enum { COPIES = 10 };

static void copy(void)
{
    for (int i = 0; i < COPIES; i++)
        CHECK(cudaMemcpyPeer(NULL, 1, NULL, 0, 64));
}

static void end(void)
{
    _exit(42);
}

static void become_another(void)
{
    execl("/bin/sh", "sh", "-c", "exit 42", (char *)NULL);
}

/* A child in whose second copy this is done, which ends it. Of the first, which fails, more is asked than of one that succeeds. */
static void have_child(void (*action)(void))
{
    int status;
    pid_t child = vfork();
    if (child == 0) {
        cudaMemcpyPeerAsync(NULL, 1, NULL, 0, 4096, NULL);
        standin_on_copy(action);
        cudaMemcpyPeer(NULL, 1, NULL, 0, 4096);
        _exit(1);
    }
    standin_on_copy(NULL);
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
    printf("child: %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

int main(void)
{
    copy();
    have_child(end);
    copy();
    have_child(become_another);
    copy();
    return 0;
}
