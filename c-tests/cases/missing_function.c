/* build: -Wl,-z,lazy cudart12; run: missing_function on standin-runtime
 * Linked with a runtime that has cudaMemcpy3DPeerAsync, run with one that lacks it, bound lazily. Plain, the dynamic linker
 * ends the process at the call. Preloaded, the call is bound to the shim, which answers that there is no such function.
 */
#include <cuda_runtime_api.h>

#include "check.h"

int main(void)
{
    SHOW(cudaMemcpyPeer(NULL, 1, NULL, 0, 1));
    fflush(stdout);
    printf("a function that is not there: %s\n", cudaMemcpy3DPeerAsync(NULL, NULL) == cudaSuccess ? "success" : "error");
    SHOW(cudaMemcpyPeer(NULL, 1, NULL, 0, 1));
    return 0;
}
