/* build: stub/libcudart.so.12; run: unversioned_reference on sim
 * Linked with a libcudart.so.12 that has no symbol versions, as some stubs and hand-made import libraries are: the
 * references in this program name no version and must reach the runtime that is there.
 */
#include <cuda_runtime_api.h>

#include "check.h"

int main(void)
{
    enum { COUNT = 700 };
    unsigned char host[COUNT];
    void *a, *b;
    b = device_memory(1, COUNT);
    a = device_memory(0, COUNT);
    fill(host, COUNT, 8);
    CHECK(cudaMemcpy(a, host, COUNT, cudaMemcpyHostToDevice));
    SHOW(cudaMemcpyPeer(b, 1, a, 0, COUNT));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(host, b, COUNT, cudaMemcpyDeviceToHost));
    printf("destination %08x\n", checksum(host, COUNT));
    SHOW(cudaMemcpyPeer(b, 99, a, 0, COUNT));
    SHOW(cudaGetLastError());
    return 0;
}
