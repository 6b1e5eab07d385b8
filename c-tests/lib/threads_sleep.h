/*
 * Before a raw fork: a lock that another thread holds then stays locked in the child for ever. threads_sleep() returns when
 * the kernel shows all other threads of the process asleep twice in a row: with no work left to do, they wait for work and
 * hold no lock.
 */
#ifndef P2PSHIM_C_TESTS_THREADS_SLEEP_H
#define P2PSHIM_C_TESTS_THREADS_SLEEP_H

#include <dirent.h>

/* Whether a thread is asleep, or is gone by now. */
static inline int thread_sleeps(const char *thread)
{
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%.20s/stat", thread);
    FILE *file = fopen(path, "r");
    if (!file)
        return 1;
    if (!fgets(line, sizeof line, file))
        line[0] = '\0';
    fclose(file);
    const char *end = strrchr(line, ')');
    return !end || strncmp(end, ") S", 3) == 0;
}

static inline void threads_sleep(void)
{
    for (int asleep = 0; asleep < 2;) {
        DIR *threads = opendir("/proc/self/task");
        if (!threads)
            abort();
        int all = 1;
        for (struct dirent *thread; (thread = readdir(threads));)
            if (thread->d_name[0] != '.' && atoi(thread->d_name) != getpid())
                all &= thread_sleeps(thread->d_name);
        closedir(threads);
        asleep = all ? asleep + 1 : 0;
        if (!all)
            usleep(1000);
    }
}

#endif
