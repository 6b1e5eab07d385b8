/* build: driver; run: P2PSIM_DEVICES=3 P2PSIM_NO_P2P=1-2 forked_between on sim
 * A child is forked, and lives on, between the verification of one pair of devices and that of the next, and between two copies that are
 * staged. What was page-locked for either must not be shared with it: its parent's next write would go to another page than the GPU reads.
 *
 * Prints how many ranges of memory the child does not get, if there are any that it gets no less,
 * and how many copies were wrong.
 */
#include <cuda.h>
#include <sys/uio.h>

#include "check.h"

enum { DEVICES = 3, LARGE = 16 << 20, SMALL = 256 << 10, COPIES = 20, RANGES = 64 };

static CUcontext contexts[DEVICES];
static CUdeviceptr memory[DEVICES];
static unsigned char bytes[LARGE];
static unsigned long ranges[RANGES][2];

/* The ranges of this process that its children do not get: the kernel marks them "dc". */
static int find_ranges(void)
{
    FILE *maps = fopen("/proc/self/smaps", "r");
    unsigned long from = 0, to = 0, first, last;
    char line[512];
    int found = 0;
    REQUIRE(maps != NULL);
    while (fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx ", &first, &last) == 2) {
            from = first;
            to = last;
        } else if (!strncmp(line, "VmFlags:", 8) && strstr(line, " dc")) {
            REQUIRE(found < RANGES);
            ranges[found][0] = from;
            ranges[found++][1] = to;
        }
    }
    fclose(maps);
    return found;
}

static int is_there(unsigned long address)
{
    char byte;
    struct iovec here = {&byte, 1}, there = {(void *)address, 1};
    return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1;
}

/* Copies, and returns how many arrived wrong. */
static int copy(int from, int to, size_t count, int times, int value)
{
    int wrong = 0;
    while (times--) {
        CHECK_CU(cuCtxSetCurrent(contexts[to]));
        CHECK_CU(cuMemsetD8(memory[to], 0, count));
        CHECK_CU(cuCtxSetCurrent(contexts[from]));
        CHECK_CU(cuMemsetD8(memory[from], (unsigned char)++value, count));
        CHECK_CU(cuMemcpyPeer(memory[to], contexts[to], memory[from], contexts[from], count));
        CHECK_CU(cuMemcpyDtoH(bytes, memory[to], count));
        for (size_t at = 0; at < count; at++)
            if (bytes[at] != (unsigned char)value) {
                wrong++;
                break;
            }
    }
    return wrong;
}

int main(void)
{
    int wrong, found, status, ends[2];
    pid_t child;
    CHECK_CU(cuInit(0));
    for (int device = DEVICES - 1; device >= 0; device--)
        memory[device] = context_memory(&contexts[device], device, LARGE);
    wrong = copy(0, 1, SMALL, COPIES, 1) + copy(1, 2, LARGE, 2, 50);
    found = find_ranges();
    REQUIRE(pipe(ends) == 0);
    child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        char end;
        int here = 0;
        close(ends[1]);
        for (int range = 0; range < found; range++)
            for (unsigned long at = ranges[range][0]; at < ranges[range][1]; at += 4096)
                here |= is_there(at);
        /* Lives until its parent is done. */
        REQUIRE(read(ends[0], &end, 1) == 0);
        _exit(here);
    }
    close(ends[0]);
    wrong += copy(0, 2, SMALL, COPIES, 100) + copy(1, 0, SMALL, COPIES, 130) + copy(1, 2, LARGE, 2, 200);
    close(ends[1]);
    REQUIRE(waitpid(child, &status, 0) == child);
    printf("the child lacks %s, %d copies wrong\n", found == 0 ? "nothing" : status == 0 ? "all" : "not all", wrong);
    return 0;
}
