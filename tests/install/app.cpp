// A user's program in C++: copies between two devices, and asks p2pshim what it has seen of that.
#include <cuda_runtime_api.h>
#include <p2pshim.hpp>

#include <iostream>
#include <stdexcept>
#include <string>

static void *allocate(int device) {
    void *memory = nullptr;
    if (cudaSetDevice(device) != cudaSuccess || cudaMalloc(&memory, 4096) != cudaSuccess) {
        throw std::runtime_error("no memory on device " + std::to_string(device));
    }
    return memory;
}

int main() {
    void *from = allocate(0), *to = allocate(1);
    if (cudaMemcpyPeer(to, 1, from, 0, 4096) != cudaSuccess) {
        return 1;
    }
    p2pshim_pair_t pair = p2pshim::copies(0, 1);
    std::cout << "p2pshim " << p2pshim_version() << " saw " << pair.direct_copies + pair.staged_copies << " copies of "
              << pair.direct_bytes + pair.staged_bytes << " bytes\n";
}
