/* build: driver; run: first_call_wrong on sim
 * The first call that p2pshim sees is wrong: NULL for a context, which is documented to be refused with 201, and accepted.
 * Prints what it answers, and what the same call answers again.
 */
#include <cuda.h>

#include "check.h"

enum { SIZE = 4096 };

int main(void)
{
    CUcontext contexts[2];
    CUdeviceptr memory[2];
    CHECK_CU(cuInit(0));
    for (int device = 1; device >= 0; device--)
        memory[device] = context_memory(&contexts[device], device, SIZE);
    for (int time = 0; time < 2; time++)
        SHOW_CU(cuMemcpyPeer(memory[1], NULL, memory[0], contexts[0], SIZE));
    return 0;
}
