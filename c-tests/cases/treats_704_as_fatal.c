/* build: runtime old; run: treats_704_as_fatal [fatal] on sim
 * Two libraries in one program enable peer access, as two frameworks do. The second is answered 704, access being enabled
 * already. It goes on, but leaves 704 in the last-error slot; the program's check behind the next step finds it, takes that
 * step for failed, and ends. `fatal`: the second library itself ends there. Its copies would have been right.
 */
#include <cuda_runtime_api.h>

#include "check.h"

enum { COUNT = 65536 };

static void *on0, *on1;

/* What many programs have behind each kernel launch. */
static int last_step_failed(const char *step)
{
    cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess)
        printf("%s failed: %s\n", step, cudaGetErrorName(error));
    return error != cudaSuccess;
}

static cudaError_t library(void)
{
    int can = 0;
    CHECK(cudaDeviceCanAccessPeer(&can, 0, 1));
    return can ? cudaDeviceEnablePeerAccess(1, 0) : cudaSuccess;
}

int main(int argc, char **argv)
{
    int fatal = argc > 1 && strcmp(argv[1], "fatal") == 0;
    on1 = device_memory(1, COUNT);
    on0 = device_memory(0, COUNT);
    CHECK(library());
    cudaError_t error = library();
    printf("the second library: %s\n", cudaGetErrorName(error));
    if (fatal && error != cudaSuccess)
        return 1;
    printf("the copy: %s\n", cudaGetErrorName(cudaMemcpyPeerAsync(on1, 1, on0, 0, COUNT, 0)));
    return last_step_failed("the copy");
}
