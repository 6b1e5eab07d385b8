/* build: standin-runtime/libcudart.so.12 driver; run: forked_inside on standin-runtime
 * A child that is forked inside the 301st copy of its place returns from it, to an error; the process itself never does, and ends.
 * On the stand-in runtime, which has the driver copy.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "check.h"
#include "lib/standin_runtime.h"

enum { BEFORE = 300, BYTES = 4096 };

static CUcontext context[2];
static CUdeviceptr memory[2];

static void copy_by_driver(void)
{
    CHECK_CU(cuMemcpyPeerAsync(memory[1], context[1], memory[0], context[0], BYTES, NULL));
}

static void fork_behind_it(void)
{
    int status;
    copy_by_driver();
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        standin_async_answers(cudaErrorNotReady);
        return;
    }
    REQUIRE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    _exit(3);
}

/* The one place that copies. */
__attribute__((noinline)) static cudaError_t copy(void)
{
    return cudaMemcpyPeerAsync((void *)memory[1], 1, (void *)memory[0], 0, BYTES, NULL);
}

int main(void)
{
    CHECK_CU(cuInit(0));
    for (int device = 1; device >= 0; device--)
        memory[device] = context_memory(&context[device], device, BYTES);
    standin_async_answers(cudaSuccess);
    standin_on_copy(copy_by_driver);
    for (int i = 0; i < BEFORE; i++)
        CHECK(copy());
    standin_on_copy(fork_behind_it);
    _exit(copy() == cudaErrorNotReady ? 0 : 1);
}
