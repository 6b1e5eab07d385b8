/* build: runtime old; run: P2PSIM_DEVICES=3 copies_on_wrong_stream [default|late] on sim
 * A ring of three devices, each of which passes on what it got, in one step a stream. The streams are taken by the number of
 * the step, not of the device, so that one copy is on the stream of a device that takes no part in it. `default`: on the
 * default stream, of whichever device is current. `late`: the same copy on the default stream again and again, until another
 * device becomes current half-way. Nothing fails; the copy is only not ordered with what made its data.
 */
#include <cuda_runtime_api.h>

#include "check.h"

enum { DEVICES = 3, COUNT = 65536, OFTEN = 100 };

static void copy_until_late(void *dst, const void *src)
{
    CHECK(cudaSetDevice(0));
    for (int i = 0; i < 2 * OFTEN; i++) {
        if (i == OFTEN)
            CHECK(cudaSetDevice(2));
        CHECK(cudaMemcpyPeerAsync(dst, 1, src, 0, COUNT, 0));
    }
    CHECK(cudaDeviceSynchronize());
    printf("%d copies\n", 2 * OFTEN);
}

int main(int argc, char **argv)
{
    int is_late = argc > 1 && strcmp(argv[1], "late") == 0;
    int on_default = argc > 1 && strcmp(argv[1], "default") == 0;
    cudaStream_t streams[DEVICES];
    void *memory[DEVICES];
    for (int device = 0; device < DEVICES; device++) {
        memory[device] = device_memory(device, COUNT);
        CHECK(cudaStreamCreateWithFlags(&streams[device], cudaStreamNonBlocking));
    }
    if (is_late) {
        copy_until_late(memory[1], memory[0]);
        return 0;
    }
    /* Device 2 is current from here on. */
    for (int from = 0; from + 1 < DEVICES; from++) {
        int step = DEVICES - 1 - from; /* 2 for 0 to 1, which is wrong; 1 for 1 to 2 */
        CHECK(cudaMemcpyPeerAsync(memory[from + 1], from + 1, memory[from], from, COUNT, on_default ? 0 : streams[step]));
        CHECK(cudaDeviceSynchronize());
    }
    for (int device = 0; device < DEVICES; device++)
        CHECK(cudaStreamSynchronize(streams[device]));
    printf("%d copies\n", DEVICES - 1);
    return 0;
}
