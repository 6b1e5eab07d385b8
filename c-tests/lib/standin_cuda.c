/* build standin-driver/libcuda.so.1: -lpthread; run: by LD_LIBRARY_PATH
 * A stand-in for libcuda.so.1 that only resolves: it has cuGetProcAddress v1 and v2, which write each request
 * ("name version flags", a line each) to the file named by STANDIN_CUDA_LOG and hand out a function of its own for each.
 * Every such function returns CUDA_SUCCESS without doing anything: enough for NVIDIA's runtime to go on asking.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_REQUESTS = 4096, NAME = 96, SUCCESS = 0, NOT_FOUND = 500, INVALID_VALUE = 1 };

int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags);
int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status);

/* MAX_REQUESTS functions of 16 bytes each that return 0. */
extern char standin_functions[];
__asm__(".text\n"
        ".balign 16\n"
        "standin_functions:\n"
        ".rept 4096\n"
        "xorl %eax, %eax\n"
        "ret\n"
        ".balign 16\n"
        ".endr\n");

static struct {
    char name[NAME];
    int version;
    uint64_t flags;
} requests[MAX_REQUESTS];
static int count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void note(const char *name, int version, uint64_t flags)
{
    const char *path = getenv("STANDIN_CUDA_LOG");
    FILE *log = path ? fopen(path, "a") : NULL;
    if (!log)
        return;
    fprintf(log, "%s %d %d\n", name, version, (int)flags);
    fclose(log);
}

/* One function per name, version and flags. */
static void *function_for(const char *name, int version, uint64_t flags)
{
    int i = 0;
    while (i < count && (requests[i].version != version || requests[i].flags != flags || strcmp(requests[i].name, name)))
        i++;
    if (i == MAX_REQUESTS || strlen(name) >= NAME)
        return NULL;
    if (i == count) {
        note(name, version, flags);
        strcpy(requests[i].name, name);
        requests[i].version = version;
        requests[i].flags = flags;
        count++;
    }
    return standin_functions + 16 * i;
}

static int resolve(const char *name, void **function, int version, uint64_t flags)
{
    if (!name || !function)
        return INVALID_VALUE;
    if (strcmp(name, "cuGetProcAddress") == 0) {
        note(name, version, flags);
        *function = version >= 12000 ? (void *)cuGetProcAddress_v2 : (void *)cuGetProcAddress;
        return SUCCESS;
    }
    pthread_mutex_lock(&lock);
    *function = *name ? function_for(name, version, flags) : NULL;
    pthread_mutex_unlock(&lock);
    return *function ? SUCCESS : NOT_FOUND;
}

int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags)
{
    return resolve(name, function, version, flags);
}

int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status)
{
    int error = resolve(name, function, version, flags);
    if (status)
        *status = error == SUCCESS ? 0 : 1; /* found, or no such symbol */
    return error;
}
