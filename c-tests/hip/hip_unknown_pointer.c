/* build: hip; run: hip_unknown_pointer on sim
 * A copy from an address at which there is nothing: HIP takes it for memory of the host, and the process ends.
 */
#include "hip.h"

int main(void)
{
    void *dst;
    CHECK(hipMalloc(&dst, 4096));
    setvbuf(stdout, NULL, _IONBF, 0);
    SHOW(hipMemcpyPeer(dst, 0, (void *)0x1000, 1, 64));
    SHOW(hipGetLastError());
    return 0;
}
