/* build: runtime old; run: full_log pipe|socket|terminal|fifo WHAT on sim
 * The log goes where nobody reads: the program must go on, end, and be ended by signals as if there were none.
 *
 * A process watches the one that calls: that one's standard error is full to the brim, or its log file (fifo). WHAT it does:
 *
 *   finds      two calls that the shim finds something wrong with, the second when all has been read
 *   threads    eight threads call, then one when all has been read
 *   term       calls until SIGTERM comes
 *   alarm      calls until SIGALRM comes
 *   full       ends while nobody reads
 *   closes     closes standard error and goes on: who reads must find the end
 *   slow       four threads call while somebody reads, slowly
 */
#include <cuda_runtime_api.h>
#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "check.h"

enum { THREADS = 8, CALLS = 200, SLOW_THREADS = 4, SLOW_CALLS = 250, MOST_SECONDS = 300 };

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- The process that calls ---- */

static char text[4 << 20];
static size_t length;

/* Reads what is there, at most so much. */
static size_t take(int reader, size_t most)
{
    size_t before = length;
    while (length - before < most && length < sizeof text - 1) {
        size_t room = sizeof text - 1 - length, left = most - (length - before);
        ssize_t got = read(reader, text + length, room < left ? room : left);
        if (got <= 0)
            break;
        length += (size_t)got;
    }
    text[length] = 0;
    return length - before;
}

/* The lines that were read, but for reports of lost ones, and how many those say. Threads' lines may mix on a terminal. */
static void count_lines(int *lines, long *lost)
{
    long number;
    for (const char *at = text; (at = strchr(at, '\n')); at++)
        *lines += 1;
    for (const char *at = text; (at = strstr(at, "p2pshim: ")); at++)
        if (sscanf(at, "p2pshim: %ld lines before this one are lost", &number) == 1) {
            *lines -= 1;
            *lost += number;
        }
}

/* Threads that have made their calls. */
static _Atomic int ended;

static void *calls(void *count)
{
    int can;
    for (int i = 0; i < *(int *)count; i++)
        CHECK(cudaDeviceCanAccessPeer(&can, 0, 1));
    ended++;
    return NULL;
}

static void begin(pthread_t *threads, int count, int *each)
{
    for (int i = 0; i < count; i++)
        REQUIRE(pthread_create(&threads[i], NULL, calls, each) == 0);
}

static void join(pthread_t *threads, int count)
{
    for (int i = 0; i < count; i++)
        REQUIRE(pthread_join(threads[i], NULL) == 0);
}

static void slow(int reader)
{
    pthread_t threads[SLOW_THREADS];
    int each = SLOW_CALLS, one = 1, lines = 0;
    long lost = 0;
    double began = seconds();
    begin(threads, SLOW_THREADS, &each);
    for (; ended < SLOW_THREADS; sleep_for(2))
        take(reader, 8192);
    long took = (long)(1000 * (seconds() - began));
    take(reader, sizeof text);
    join(threads, SLOW_THREADS);
    calls(&one);
    take(reader, sizeof text);
    count_lines(&lines, &lost);
    printf("lines: %d\nlost: %ld\ntook: %ld\n", lines, lost, took);
}

static int work(const char *what, int reader)
{
    int flags = fcntl(STDERR_FILENO, F_GETFL), can, many = CALLS, one = 1, lines = 0;
    long lost = 0;
    pthread_t threads[THREADS];
    double began = seconds();
    if (strcmp(what, "slow") == 0) {
        slow(reader);
        return 0;
    }
    if (strcmp(what, "alarm") == 0)
        alarm(1);
    while (strcmp(what, "alarm") == 0 || strcmp(what, "term") == 0)
        calls(&one);
    if (strcmp(what, "finds") == 0) {
        SHOW(cudaDeviceCanAccessPeer(&can, 0, 99));
    } else {
        begin(threads, THREADS, &many);
        join(threads, THREADS);
    }
    // A fifth of a second for each of thousands of lines takes longer, on a machine that is not busy too.
    printf("soon: %s\n", seconds() - began < 60 ? "yes" : "no");
    printf("flags as before: %s\n", fcntl(STDERR_FILENO, F_GETFL) == flags ? "yes" : "no");
    if (strcmp(what, "full") == 0)
        return 0;
    if (strcmp(what, "closes") == 0) {
        take(reader, sizeof text);
        calls(&one);
        close(STDERR_FILENO);
        calls(&one);
        take(reader, sizeof text);
        printf("the end is found: %s\n", read(reader, text, 1) == 0 ? "yes" : "no");
        return 0;
    }
    take(reader, sizeof text);
    length = 0;
    if (strcmp(what, "finds") == 0)
        SHOW(cudaDeviceEnablePeerAccess(1, 7));
    else
        calls(&one);
    take(reader, sizeof text);
    count_lines(&lines, &lost);
    printf("lines when somebody reads: %s\n", lines > 0 ? "yes" : "no");
    printf("lost: %ld\n", lost);
    return 0;
}

/* ---- The process that watches ---- */

static void set_blocking(int descriptor, int blocks)
{
    REQUIRE(fcntl(descriptor, F_SETFL, blocks ? 0 : O_NONBLOCK) == 0);
}

static void fill_up(int writer)
{
    char line[4096];
    memset(line, '.', sizeof line);
    line[sizeof line - 1] = '\n';
    set_blocking(writer, 0);
    /* A terminal makes room once more when it has moved what it got. */
    for (int times = 0; times < 5; times++, sleep_for(10))
        for (size_t size = sizeof line; size > 0; size /= 2)
            while (write(writer, line + sizeof line - size, size) > 0)
                ;
    REQUIRE(errno == EAGAIN);
    set_blocking(writer, 1);
}

static void open_ends(const char *kind, int ends[2])
{
    if (strcmp(kind, "pipe") == 0) {
        REQUIRE(pipe(ends) == 0);
    } else if (strcmp(kind, "socket") == 0) {
        REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    } else if (strcmp(kind, "terminal") == 0) {
        ends[0] = posix_openpt(O_RDWR | O_NOCTTY);
        REQUIRE(ends[0] >= 0 && grantpt(ends[0]) == 0 && unlockpt(ends[0]) == 0);
        ends[1] = open(ptsname(ends[0]), O_WRONLY | O_NOCTTY);
    } else {
        const char *path = getenv("P2PSHIM_LOG_FILE");
        REQUIRE(path && mkfifo(path, 0600) == 0);
        ends[0] = open(path, O_RDONLY | O_NONBLOCK);
        ends[1] = open(path, O_WRONLY);
    }
    REQUIRE(ends[0] >= 0 && ends[1] >= 0);
}

int main(int argc, char **argv)
{
    int ends[2], status;
    if (argc == 4)
        return work(argv[2], atoi(argv[3]));
    REQUIRE(argc == 3);
    open_ends(argv[1], ends);
    if (strcmp(argv[2], "slow") != 0)
        fill_up(ends[1]);
    set_blocking(ends[0], 0);
    pid_t child = fork();
    if (child == 0) {
        char number[16];
        snprintf(number, sizeof number, "%d", ends[0]);
        if (strcmp(argv[1], "fifo") != 0)
            dup2(ends[1], STDERR_FILENO);
        close(ends[1]);
        execl("/proc/self/exe", argv[0], argv[1], argv[2], number, NULL);
        _exit(99);
    }
    REQUIRE(child > 0);
    close(ends[1]);
    double began = seconds();
    int is_killed = 0;
    pid_t ended;
    while ((ended = waitpid(child, &status, WNOHANG)) == 0 && seconds() - began < MOST_SECONDS) {
        if (!is_killed && strcmp(argv[2], "term") == 0 && seconds() - began > 0.5)
            is_killed = kill(child, SIGTERM) == 0;
        sleep_for(2);
    }
    if (ended == 0) {
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        printf("it hangs\n");
        return 1;
    }
    if (WIFSIGNALED(status))
        printf("ended by %s\n", strsignal(WTERMSIG(status)));
    else
        printf("ended with %d\n", WEXITSTATUS(status));
    take(ends[0], sizeof text);
    printf("summary: %s\n", strstr(text, "p2pshim summary of process") ? "yes" : "no");
    return 0;
}
