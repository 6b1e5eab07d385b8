/* build: 12; run: hanging STOPS|event|context|copy|free|beside|idle|spawns|barrierN FOLDER on sim gpu
 * Programs that hang until FOLDER/go is there, for tests/it/hang.rs.
 *
 *   STOPS    a rank of a job: all wait for their stream, in which something waits for the others; rank STOPS does not come that far
 *   event    waits for an event, others for the context, in a synchronous copy, or for memory to be freed
 *   beside   frees memory in a second thread, when a callback keeps the device busy; the main thread has waited for its copies
 *   idle     makes no further call
 *   barrierN rank N waits for its stream; all others make no further call, as in a barrier of the host
 *   spawns   starts a program that waits for its stream, then one that makes no further call, and waits for both
 */
#include <cuda_runtime_api.h>

#include "check.h"

enum { BYTES = 1 << 20 };

static const char *folder;

static void wait_for_go(void *unused)
{
    char path[4096];
    (void)unused;
    snprintf(path, sizeof path, "%s/go", folder);
    while (access(path, F_OK) != 0)
        sleep_for(1);
}

static void start(char *program, const char *what)
{
    if (fork() != 0)
        return;
    execl(program, program, what, folder, (char *)NULL);
    _exit(127);
}

static void *frees(void *memory)
{
    CHECK(cudaSetDevice(0));
    CHECK(cudaLaunchHostFunc(cudaStreamLegacy, wait_for_go, NULL));
    CHECK(cudaFree(memory));
    return NULL;
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 3);
    const char *what = argv[1], *rank = getenv("RANK");
    folder = argv[2];
    static char host[BYTES];
    void *memory[2];
    cudaEvent_t event;
    for (int device = 1; device >= 0; device--)
        memory[device] = device_memory(device, BYTES);
    cudaStream_t stream = non_blocking_stream();
    CHECK(cudaEventCreate(&event));
    for (int i = 0; i < 3; i++)
        CHECK(cudaMemcpyPeerAsync(memory[1], 1, memory[0], 0, BYTES, stream));
    CHECK(cudaStreamSynchronize(stream));
    int is_at_barrier = rank && strncmp(what, "barrier", 7) == 0 && strcmp(rank, what + 7) != 0;
    if (strcmp(what, "idle") == 0 || is_at_barrier || (rank && strcmp(rank, what) == 0)) {
        wait_for_go(NULL);
        return 0;
    }
    if (strcmp(what, "spawns") == 0) {
        start(argv[0], "none");
        start(argv[0], "idle");
        while (wait(NULL) > 0)
            continue;
        return 0;
    }
    if (strcmp(what, "beside") == 0) {
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, frees, memory[0]) == 0 && pthread_join(thread, NULL) == 0);
        return 0;
    }
    cudaStream_t held = strcmp(what, "copy") == 0 || strcmp(what, "free") == 0 ? cudaStreamLegacy : stream;
    CHECK(cudaLaunchHostFunc(held, wait_for_go, NULL));
    if (strcmp(what, "event") == 0) {
        CHECK(cudaEventRecord(event, stream));
        CHECK(cudaEventSynchronize(event));
    } else if (strcmp(what, "context") == 0) {
        CHECK(cudaDeviceSynchronize());
    } else if (strcmp(what, "copy") == 0) {
        CHECK(cudaMemcpy(host, memory[0], BYTES, cudaMemcpyDeviceToHost));
    } else if (strcmp(what, "free") == 0) {
        CHECK(cudaFree(memory[0]));
    } else {
        CHECK(cudaStreamSynchronize(stream));
    }
    return 0;
}
