/* build: static; run: open_cost on gpu
 * Host time of exporting and of opening memory: a process exports allocations of GPU 1, another one opens and closes them on GPU 0.
 * Prints medians in microseconds, with tabs: of cudaIpcGetMemHandle, of cudaIpcOpenMemHandle and of cudaIpcCloseMemHandle.
 */
#include <cuda_runtime_api.h>

#include "check.h"
#include "measure.h"

enum { SAMPLES = 101, WARM_UP = 5 };

static cudaIpcMemHandle_t handles[SAMPLES];
static double times[3][SAMPLES];

static void export_all(int to, int until)
{
    char over;
    CHECK(cudaSetDevice(1));
    for (int i = -WARM_UP; i < SAMPLES; i++) {
        void *memory;
        CHECK(cudaMalloc(&memory, 2 * MIB));
        double begun = host_time();
        CHECK(cudaIpcGetMemHandle(&handles[i < 0 ? 0 : i], memory));
        if (i >= 0)
            times[0][i] = host_time() - begun;
    }
    double exporting = median(times[0], SAMPLES);
    REQUIRE(write(to, &exporting, sizeof exporting) == (ssize_t)sizeof exporting);
    REQUIRE(write(to, handles, sizeof handles) == (ssize_t)sizeof handles);
    /* Its memory is there until the other process has closed it. */
    REQUIRE(read(until, &over, 1) == 1);
}

static void receive(int from, void *to, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t got = read(from, (char *)to + at, bytes - at);
        REQUIRE(got > 0);
        at += (size_t)got;
    }
}

static void open_all(int from, int done)
{
    double exporting;
    receive(from, &exporting, sizeof exporting);
    receive(from, handles, sizeof handles);
    CHECK(cudaSetDevice(0));
    for (int i = -WARM_UP; i < SAMPLES; i++) {
        void *memory;
        int at = i < 0 ? 0 : i;
        double begun = host_time();
        CHECK(cudaIpcOpenMemHandle(&memory, handles[at], cudaIpcMemLazyEnablePeerAccess));
        double opened = host_time();
        CHECK(cudaIpcCloseMemHandle(memory));
        times[1][at] = opened - begun;
        times[2][at] = host_time() - opened;
    }
    REQUIRE(write(done, "d", 1) == 1);
    printf("%.2f\t%.2f\t%.2f\n", exporting, median(times[1], SAMPLES), median(times[2], SAMPLES));
}

int main(void)
{
    int there[2], back[2], status;
    REQUIRE(pipe(there) == 0 && pipe(back) == 0);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        export_all(there[1], back[0]);
        return 0;
    }
    open_all(there[0], back[1]);
    REQUIRE(waitpid(child, &status, 0) == child);
    return status != 0;
}
