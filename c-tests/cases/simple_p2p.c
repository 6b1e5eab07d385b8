/* build: runtime12+ driver; run: simple_p2p on sim
 * NVIDIA's sample simpleP2P without its kernel: asks whether two devices reach each other, before either has a context; enables that;
 * copies there and back, and looks at the data.
 */
#include <cuda_runtime_api.h>

#include "check.h"

enum { COUNT = 16 << 20 };

int main(void)
{
    static unsigned char host[COUNT], back[COUNT];
    char *memory[2];
    int can[2];
    size_t wrong = 0;
    CHECK(cudaDeviceCanAccessPeer(&can[0], 0, 1));
    CHECK(cudaDeviceCanAccessPeer(&can[1], 1, 0));
    printf("can %d %d\n", can[0], can[1]);
    if (!can[0] || !can[1])
        return 0;
    CHECK(cudaSetDevice(0));
    if (cudaDeviceEnablePeerAccess(1, 0) != cudaSuccess) {
        (void)SHOW(cudaDeviceEnablePeerAccess(1, 0));
        return 1;
    }
    CHECK(cudaSetDevice(1));
    CHECK(cudaDeviceEnablePeerAccess(0, 0));
    puts("enabled");
    for (int device = 0; device < 2; device++)
        memory[device] = device_memory(device, COUNT);
    fill(host, COUNT, 1);
    CHECK(cudaMemcpy(memory[0], host, COUNT, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(memory[1], memory[0], COUNT, cudaMemcpyDefault));
    CHECK(cudaMemset(memory[0], 0, COUNT));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(memory[0], memory[1], COUNT, cudaMemcpyDefault));
    CHECK(cudaMemcpy(back, memory[0], COUNT, cudaMemcpyDeviceToHost));
    for (size_t at = 0; at < COUNT; at++)
        wrong += host[at] != back[at];
    puts(wrong ? "data is wrong" : "data is right");
    return wrong != 0;
}
