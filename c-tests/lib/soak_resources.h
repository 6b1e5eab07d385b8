/*
 * What a process holds, for soak.c: each is a figure that must not grow from round to round.
 */
#ifndef P2PSHIM_C_TESTS_SOAK_RESOURCES_H
#define P2PSHIM_C_TESTS_SOAK_RESOURCES_H

#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static long entries(const char *folder)
{
    long count = -2; /* . and .. */
    DIR *open = opendir(folder);
    REQUIRE(open);
    while (readdir(open))
        count++;
    closedir(open);
    return count;
}

/* Bytes of device memory that all devices have given away, and of page-locked memory, where the driver is a simulated one. */
static void ask_driver(int devices, long long *device_bytes, unsigned long long *pinned_bytes)
{
    int (*held)(unsigned long long *) = (int (*)(unsigned long long *))dlsym(RTLD_DEFAULT, "p2psim_pinned");
    *device_bytes = 0, *pinned_bytes = 0;
    if (held)
        held(pinned_bytes);
    for (int device = 0; device < devices; device++) {
        size_t free_bytes, total;
        CHECK_CU(cuCtxSetCurrent(contexts[device]));
        CHECK_CU(cuMemGetInfo(&free_bytes, &total));
        *device_bytes += (long long)(total - free_bytes);
    }
}

/* Threads, once there are no more than the program's own; those of the driver that have nothing to do end in time. */
static long settled_threads(int own)
{
    enum { MOST = 100 };
    long count = entries("/proc/self/task");
    for (int i = 0; i < MOST && count > own; i++) {
        struct timespec a_while = {.tv_nsec = 20000000};
        while (nanosleep(&a_while, &a_while) != 0)
            ;
        count = entries("/proc/self/task");
    }
    return count;
}

/* Prints a line on standard error. */
static void show_resources(int round, int devices, int own_threads)
{
    long long device_bytes;
    unsigned long long pinned;
    long count = settled_threads(own_threads);
    ask_driver(devices, &device_bytes, &pinned);
    struct mallinfo2 heap = mallinfo2();
    long pages = 0, resident = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    REQUIRE(statm && fscanf(statm, "%ld %ld", &pages, &resident) == 2);
    fclose(statm);
    fprintf(stderr, "round %d: heap %zu, resident %ld, descriptors %ld, threads %ld, mappings %ld, pinned %llu, device %lld\n", round,
            heap.uordblks + heap.hblkhd, resident * sysconf(_SC_PAGESIZE), entries("/proc/self/fd"), count,
            pages, pinned, device_bytes);
}

#endif
