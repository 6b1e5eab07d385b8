/* build: standin-runtime/libcudart.so.12; run: longjmp_out on standin-runtime
 * A callback of the program leaves a peer copy by longjmp: nothing below is unwound. The calls after it must neither be
 * taken for nested ones nor find anything locked.
 */
#include <cuda_runtime_api.h>

#include "check.h"
#include "lib/standin_runtime.h"

static jmp_buf out;

static void jump(void)
{
    longjmp(out, 1);
}

int main(void)
{
    for (volatile int round = 1; round <= 3; round++) {
        standin_on_copy(jump);
        if (setjmp(out) == 0)
            printf("returned %d\n", (int)cudaMemcpyPeer(NULL, 1, NULL, 0, 1));
        else
            printf("round %d: jumped out\n", round);
        standin_on_copy(NULL);
        SHOW(cudaMemcpyPeer(NULL, 1, NULL, 0, 1));
        SHOW(cudaMemcpyPeerAsync(NULL, 1, NULL, 0, 1, NULL));
    }
    return 0;
}
