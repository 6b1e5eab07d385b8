/* build: runtime12+; run: ipc_unordered wrong|right|told on sim gpu
 * Two processes: the first one sets memory of GPU 1 on a stream that is held up, and records an event; the second one copies over the memory on GPU 0. It
 * waits for the event on its stream if the program is right, and not if it is wrong. `told`: the first one waits for its stream itself before it says so. Prints how
 * many bytes are not as a right program has them.
 */
#include <cuda_runtime_api.h>

#include "check.h"

enum { BYTES = 1 << 20, HELD_UP = 60000 };

struct ticket {
    cudaIpcMemHandle_t memory;
    cudaIpcEventHandle_t event;
};

static const char *word;

static void CUDART_CB nap(void *microseconds)
{
    usleep((useconds_t)(uintptr_t)microseconds);
}

static void get(int from, void *message, size_t length)
{
    REQUIRE(read(from, message, length) == (ssize_t)length);
}

static void put(int to, const void *message, size_t length)
{
    REQUIRE(write(to, message, length) == (ssize_t)length);
}

static int second(int from, int to)
{
    void *theirs, *own;
    cudaEvent_t event;
    struct ticket ticket;
    char letter;
    get(from, &ticket, sizeof ticket);
    CHECK(cudaSetDevice(0));
    CHECK(cudaMalloc(&own, BYTES));
    CHECK(cudaMemset(own, 8, BYTES));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaIpcOpenMemHandle(&theirs, ticket.memory, cudaIpcMemLazyEnablePeerAccess));
    CHECK(cudaIpcOpenEventHandle(&event, ticket.event));
    put(to, "o", 1);
    get(from, &letter, 1);
    if (strcmp(word, "right") == 0)
        CHECK(cudaStreamWaitEvent(0, event, 0));
    CHECK(cudaMemcpyAsync(theirs, own, BYTES, cudaMemcpyDefault, 0));
    CHECK(cudaStreamSynchronize(0));
    put(to, "x", 1);
    get(from, &letter, 1);
    return 0;
}

int main(int argc, char **argv)
{
    static unsigned char host[BYTES];
    int there[2], back[2], status;
    struct ticket ticket;
    void *memory;
    cudaEvent_t event;
    char letter;
    size_t wrong = 0;
    REQUIRE(argc == 2 && pipe(there) == 0 && pipe(back) == 0);
    word = argv[1];
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0)
        return second(there[0], back[1]);
    CHECK(cudaSetDevice(1));
    CHECK(cudaMalloc(&memory, BYTES));
    cudaStream_t stream = non_blocking_stream();
    CHECK(cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming));
    CHECK(cudaIpcGetMemHandle(&ticket.memory, memory));
    CHECK(cudaIpcGetEventHandle(&ticket.event, event));
    put(there[1], &ticket, sizeof ticket);
    get(back[0], &letter, 1);
    CHECK(cudaLaunchHostFunc(stream, nap, (void *)(uintptr_t)HELD_UP));
    CHECK(cudaMemsetAsync(memory, 1, BYTES, stream));
    CHECK(cudaEventRecord(event, stream));
    if (strcmp(word, "told") == 0)
        CHECK(cudaStreamSynchronize(stream));
    put(there[1], "g", 1);
    get(back[0], &letter, 1);
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(host, memory, BYTES, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < BYTES; i++)
        wrong += host[i] != 8;
    printf("%zu bytes are wrong\n", wrong);
    fflush(stdout);
    put(there[1], "e", 1);
    REQUIRE(waitpid(child, &status, 0) == child && status == 0);
    return 0;
}
