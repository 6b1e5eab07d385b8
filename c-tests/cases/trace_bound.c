/* build: standin-runtime/libcudart.so.12; run: trace_bound on standin-runtime
 * Binds its thread to one processor once the shim has started, then makes many copies on the stand-in runtime. Prints
 * where that thread may run, and where the shim's thread may that takes space for the trace.
 */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <dirent.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "lib/standin_runtime.h"

enum { COPIES = 5000, MOST_WAITS = 5000, WAIT_MICROSECONDS = 1000 };

/* The thread with that name, or 0. */
static int thread_named(const char *wanted)
{
    DIR *threads = opendir("/proc/self/task");
    REQUIRE(threads != NULL);
    int found = 0;
    for (struct dirent *entry; found == 0 && (entry = readdir(threads)) != NULL;) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = fopen(path, "r");
        if (file != NULL) {
            if (fgets(name, sizeof name, file) != NULL)
                name[strcspn(name, "\n")] = 0;
            if (strcmp(name, wanted) == 0)
                found = atoi(entry->d_name);
            fclose(file);
        }
    }
    closedir(threads);
    return found;
}

static int processors_of(int thread)
{
    cpu_set_t set;
    REQUIRE(sched_getaffinity(thread, sizeof set, &set) == 0);
    return CPU_COUNT(&set);
}

int main(void)
{
    static char from[64], to[64];
    cpu_set_t all, one;
    standin_async_answers(cudaSuccess);
    REQUIRE(cudaMemcpyPeerAsync(to, 1, from, 0, sizeof to, NULL) == cudaSuccess);
    REQUIRE(sched_getaffinity(0, sizeof all, &all) == 0);
    int first = 0;
    while (!CPU_ISSET(first, &all))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
    for (int i = 0; i < COPIES; i++)
        REQUIRE(cudaMemcpyPeerAsync(to, 1, from, 0, sizeof to, NULL) == cudaSuccess);
    int helper = 0, waits = 0;
    while (((helper = thread_named("p2pshim-trace")) == 0 || processors_of(helper) != CPU_COUNT(&all)) && waits++ < MOST_WAITS)
        usleep(WAIT_MICROSECONDS);
    printf("of %d processors: who copies %d, who takes space %d\n", CPU_COUNT(&all), processors_of(0),
           helper == 0 ? 0 : processors_of(helper));
    return 0;
}
