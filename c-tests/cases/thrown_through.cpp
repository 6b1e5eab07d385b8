// build: standin-runtime/libcudart.so.12; run: thrown_through on standin-runtime
// A callback of the program throws while the program is inside a peer copy, and the program catches it: the exception
// passes through the shim, and the calls after it are not taken for nested ones.
#include <cuda_runtime_api.h>

#include <stdexcept>

#include "check.h"
#include "lib/standin_runtime.h"

struct Counted {
    static int alive;
    Counted() { alive++; }
    ~Counted() { alive--; }
};
int Counted::alive;

static void throw_it()
{
    throw std::runtime_error("thrown inside the copy");
}

static void copy_and_catch()
{
    try {
        Counted counted;
        cudaMemcpyPeer(nullptr, 1, nullptr, 0, 1);
        printf("returned\n");
    } catch (const std::exception &error) {
        printf("caught: %s, objects alive: %d\n", error.what(), Counted::alive);
    }
}

int main()
{
    copy_and_catch();
    for (int round = 0; round < 3; round++) {
        standin_on_copy(throw_it);
        copy_and_catch();
        standin_on_copy(nullptr);
        SHOW(cudaMemcpyPeer(nullptr, 1, nullptr, 0, 1));
        SHOW(cudaMemcpyPeerAsync(nullptr, 1, nullptr, 0, 1, nullptr));
    }
    return 0;
}
