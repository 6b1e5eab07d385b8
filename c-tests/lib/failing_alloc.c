/* build: plain; run: by LD_PRELOAD
 * Allocations of the shim that fail, one after the other, in any program. Preload it beside the shim with
 *
 *   FAILING_ALLOC=EXPECTED    a file with what the program writes to standard output when nothing fails
 *   FAILING_ALLOC_STEP=N      each N-th only; 1 unless it is set
 *   FAILING_ALLOC_FIRST=N     the N-th first; 1 unless it is set
 *   FAILING_ALLOC_LAST=N      none after the N-th; all unless it is set
 *
 * Before main it forks a child for each n. In one the shim's n-th allocation fails, in another all from the n-th on. Every child
 * must write what is expected and exit with 0. It ends when a child has no n-th allocation, and says how many there were.
 *
 *   FAILING_ALLOC_ONLY=N      forks nothing: in the program itself all allocations of the shim fail from the N-th on; with 0 none does, and
 *                             standard error says at the end how many there were
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);

enum { JOBS = 2, PATIENCE_S = 60, MOST = 20000 };

static uintptr_t code, code_end;        /* the shim's */
static long fails_at, fails_until;      /* 0 for never */
static volatile long *seen;             /* how many allocations the shim has asked for; shared with the parent */

static int is_shim(void *caller)
{
    uintptr_t at = (uintptr_t)caller;
    return at >= code && at < code_end && seen;
}

static int fails(void *caller)
{
    if (!is_shim(caller))
        return 0;
    long number = __atomic_add_fetch(seen, 1, __ATOMIC_RELAXED);
    if (!fails_at || number < fails_at || number > fails_until)
        return 0;
    errno = ENOMEM;
    return 1;
}

#define CALLER __builtin_return_address(0)

void *malloc(size_t size) { return fails(CALLER) ? NULL : __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return fails(CALLER) ? NULL : __libc_calloc(count, size); }
void *realloc(void *old, size_t size) { return fails(CALLER) ? NULL : __libc_realloc(old, size); }
void *aligned_alloc(size_t align, size_t size) { return fails(CALLER) ? NULL : __libc_memalign(align, size); }
int posix_memalign(void **to, size_t align, size_t size)
{
    void *memory = fails(CALLER) ? NULL : __libc_memalign(align, size);
    if (!memory)
        return ENOMEM;
    *to = memory;
    return 0;
}

/* The C library takes memory for a thread's destructor, and ends the process if there is none. Here there never is any. */
int __cxa_thread_atexit_impl(void (*function)(void *), void *object, void *library)
{
    int (*real)(void (*)(void *), void *, void *) = dlvsym(RTLD_NEXT, "__cxa_thread_atexit_impl", "GLIBC_2.18");
    if (is_shim(CALLER))
        abort();
    return real(function, object, library);
}

static int find_shim(struct dl_phdr_info *object, size_t size, void *data)
{
    (void)size, (void)data;
    if (!strstr(object->dlpi_name, "libp2pshim"))
        return 0;
    for (int i = 0; i < object->dlpi_phnum; i++)
        if (object->dlpi_phdr[i].p_type == PT_LOAD && object->dlpi_phdr[i].p_flags & PF_X) {
            code = object->dlpi_addr + object->dlpi_phdr[i].p_vaddr;
            code_end = code + object->dlpi_phdr[i].p_memsz;
        }
    return 1;
}

static char expected[1 << 20], written[1 << 20];
static size_t expected_bytes;

struct child {
    pid_t process;
    int output;
    volatile long *seen;
    long n;
    int is_for_good;
};

/* Returns in the child. */
static int begin(struct child *child, long n, int is_for_good)
{
    child->n = n, child->is_for_good = is_for_good, *child->seen = 0;
    child->output = memfd_create("output", MFD_CLOEXEC);
    child->process = fork();
    if (child->process)
        return 0;
    dup2(child->output, 1);
    alarm(PATIENCE_S);
    seen = child->seen, fails_at = n, fails_until = is_for_good ? MOST * 100L : n;
    return 1;
}

/* Whether it did what it does when nothing fails. */
static int is_right(struct child *child, int status)
{
    ssize_t bytes = pread(child->output, written, sizeof written, 0);
    close(child->output);
    if (status == 0 && bytes == (ssize_t)expected_bytes && !memcmp(written, expected, expected_bytes))
        return 1;
    fprintf(stderr, "allocation %ld%s fails: status %#x, %zd bytes of output, %zu expected\n", child->n,
            child->is_for_good ? " and all after it" : "", status, bytes, expected_bytes);
    size_t same = 0;
    while (bytes > 0 && same < (size_t)bytes && same < expected_bytes && written[same] == expected[same])
        same++;
    while (same > 0 && written[same - 1] != '\n')
        same--;
    if (bytes > 0 && same < (size_t)bytes)
        fprintf(stderr, "  from line: %.*s\n", (int)strcspn(written + same, "\n"), written + same);
    return 0;
}

/* Traces of thousands of processes. */
static void clean(const char *folder)
{
    DIR *files = folder ? opendir(folder) : NULL;
    for (struct dirent *file; files && (file = readdir(files));)
        unlinkat(dirfd(files), file->d_name, 0);
    if (files)
        closedir(files);
}

static int counts;

__attribute__((destructor)) static void say(void)
{
    if (counts)
        dprintf(2, "%ld allocations\n", *seen);
}

__attribute__((constructor)) static void run(void)
{
    const char *only = getenv("FAILING_ALLOC_ONLY"), *file = getenv("FAILING_ALLOC"), *last = getenv("FAILING_ALLOC_LAST"), *by = getenv("FAILING_ALLOC_STEP"), *first = getenv("FAILING_ALLOC_FIRST");
    static long seen_here;
    if ((!file && !only) || !dl_iterate_phdr(find_shim, NULL))
        return;
    if (only) {
        seen = &seen_here, fails_at = atol(only), fails_until = MOST * 100L, counts = fails_at == 0;
        return;
    }
    int input = open(file, O_RDONLY);
    ssize_t bytes = input < 0 ? -1 : read(input, expected, sizeof expected);
    if (bytes < 0)
        _exit(2);
    close(input);
    expected_bytes = (size_t)bytes;
    volatile long *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct child children[JOBS] = {0};
    for (int i = 0; i < JOBS; i++)
        children[i].seen = shared + i * 8;
    long n = first ? atol(first) : 1, step = by ? atol(by) : 1, end = last ? atol(last) : MOST, most_seen = 0, wrong = 0, runs = 0;
    int is_for_good = 0, is_over = 0, running = 0;
    for (;;) {
        for (int i = 0; i < JOBS && !is_over; i++)
            if (!children[i].process) {
                if (begin(&children[i], n, is_for_good))
                    return;
                running++, runs++;
                n += is_for_good ? step : 0;
                is_for_good = !is_for_good;
            }
        if (!running)
            break;
        int status;
        pid_t ended = wait(&status);
        for (int i = 0; i < JOBS; i++)
            if (children[i].process == ended) {
                wrong += !is_right(&children[i], status);
                children[i].process = 0, running--;
                most_seen = *children[i].seen > most_seen ? *children[i].seen : most_seen;
                is_over |= *children[i].seen < children[i].n || n > end || wrong > 20;
            }
        clean(getenv("P2PSHIM_TRACE"));
    }
    printf("%ld allocations, %ld runs, %ld wrong\n", most_seen, runs, wrong);
    fflush(stdout);
    _exit(wrong != 0);
}
