/*
 * What a process holds, for soak.c: each is a figure that must not grow from round to round.
 */
#ifndef P2PSHIM_C_TESTS_SOAK_RESOURCES_H
#define P2PSHIM_C_TESTS_SOAK_RESOURCES_H

#include <dirent.h>
#include <errno.h>
#include <malloc.h>

/* Bytes that somebody in the process has from malloc. Its own figures count what it keeps for threads as well. */
static atomic_long heap_bytes;

#ifndef ANY_ALLOCATOR /* the program is for another one, which is preloaded or a sanitizer's */
void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
void __libc_free(void *);

static void *counted(void *memory)
{
    heap_bytes += (long)malloc_usable_size(memory);
    return memory;
}

void *malloc(size_t bytes)
{
    return counted(__libc_malloc(bytes));
}

void *calloc(size_t count, size_t bytes)
{
    return counted(__libc_calloc(count, bytes));
}

void *memalign(size_t alignment, size_t bytes)
{
    return counted(__libc_memalign(alignment, bytes));
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return memalign(alignment, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    void *got = memalign(alignment, bytes);
    if (got)
        *memory = got;
    return got ? 0 : ENOMEM;
}

void *realloc(void *old, size_t bytes)
{
    long had = (long)malloc_usable_size(old);
    void *memory = __libc_realloc(old, bytes);
    if (memory || bytes == 0)
        heap_bytes -= had;
    return counted(memory);
}

void free(void *memory)
{
    heap_bytes -= (long)malloc_usable_size(memory);
    __libc_free(memory);
}
#endif

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

/* Bytes of memory that all devices have given away. */
static long long device_bytes(int devices)
{
    long long bytes = 0;
    for (int device = 0; device < devices; device++) {
        size_t free_bytes, total;
        CHECK_CU(cuCtxSetCurrent(contexts[device]));
        CHECK_CU(cuMemGetInfo(&free_bytes, &total));
        bytes += (long long)(total - free_bytes);
    }
    return bytes;
}

/* What the driver holds for the process, if it is a simulated one: each thing by its name. */
static void show_held(void)
{
    int (*held)(unsigned, const char **, unsigned long long *) =
        (int (*)(unsigned, const char **, unsigned long long *))dlsym(RTLD_DEFAULT, "p2psim_held");
    const char *name;
    unsigned long long count;
    for (unsigned number = 0; held && held(number, &name, &count) == 0; number++)
        fprintf(stderr, ", %s %llu", name, count);
}

/* Bytes of addresses that can be used: a driver reserves others at times, which cost nothing. */
static unsigned long long mapped_bytes(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[PATH_MAX + 128], rights[5];
    unsigned long begin, end;
    unsigned long long bytes = 0;
    REQUIRE(maps);
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %4s", &begin, &end, rights) == 3 && strncmp(rights, "---", 3) != 0)
            bytes += end - begin;
    fclose(maps);
    return bytes;
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
    long count = settled_threads(own_threads);
    long long bytes = device_bytes(devices);
    fprintf(stderr, "round %d: heap %ld, mapped %llu, descriptors %ld, threads %ld, device %lld", round, heap_bytes, mapped_bytes(),
            entries("/proc/self/fd"), count, bytes);
    show_held();
    fputc('\n', stderr);
}

#endif
