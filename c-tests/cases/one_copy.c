/* build: 12; run: one_copy between|within on sim
 * Copies of a kind that p2pshim has decided about, and one more between two marks, where a debugger stops: tests/path_of_a_call.py shows
 * which functions it passes.
 */
#include <cuda_runtime_api.h>

#include "check.h"

/* More than make a pair worth enabling. */
enum { BYTES = 4096, WARM_UP = 64 };

static void *memory[2];
static cudaStream_t stream;
static int is_within;
/* The time before the last copy of the warm-up: the debugger stops time there, so that no work is due which is done now and then. */
unsigned long long last_copy;

/* The processor's counter. */
static unsigned long long ticks(void)
{
#ifdef __aarch64__
    unsigned long long now;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(now));
    return now;
#else
    return __builtin_ia32_rdtsc();
#endif
}

__attribute__((noinline)) static void copy(void)
{
    if (is_within)
        CHECK(cudaMemcpyAsync(memory[1], memory[0], BYTES, cudaMemcpyDeviceToDevice, stream));
    else
        CHECK(cudaMemcpyPeerAsync(memory[1], 1, memory[0], 0, BYTES, stream));
}

__attribute__((noinline)) void mark(void)
{
    __asm__ volatile("" ::: "memory");
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 2);
    is_within = has_word(argc, argv, "within");
    memory[1] = device_memory(!is_within, BYTES);
    memory[0] = device_memory(0, BYTES);
    CHECK(cudaStreamCreate(&stream));
    for (int i = 0; i < WARM_UP; i++)
        copy();
    CHECK(cudaStreamSynchronize(stream));
    last_copy = ticks();
    copy();
    CHECK(cudaStreamSynchronize(stream));

    mark();
    copy();
    mark();
    CHECK(cudaStreamSynchronize(stream));
    return 0;
}
