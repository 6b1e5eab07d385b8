/*
 * Return codes of the peer functions, row by row, against what the real runtime answered (conformance.tsv).
 *
 *   conformance [--skip-groups GROUP,...] [--allow-crash-rows-error] TABLE.tsv
 *
 * Each row runs in a process of its own: this program executes itself with `--row N`, and the parent never touches CUDA.
 * Prints the table with what was answered; exits with 0 only if no row differs.
 *
 *   --skip-groups capture,pools   rows that need stream capture, memory pools; printed as skipped
 *   --allow-crash-rows-error      where the real runtime crashes, an error code will do
 *
 * What a row says is what is compiled: CALL(x) and SETUP(x) compare the row's text with their argument's, so a row that
 * nothing below implements is an error. The variables are explained on top of the table.
 */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <ctype.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* The simulated runtime need not have these. */
#pragma weak cudaStreamBeginCapture
#pragma weak cudaMallocAsync

enum { MAX_ROWS = 512, MAX_LINE = 512, TIMEOUT_SECONDS = 120 };

struct row {
    char setup[MAX_LINE], call[MAX_LINE], expected[64]; /* expected: "ret\tlast\tv" */
};

static bool same_text(const char *left, const char *right)
{
    for (;; left++, right++) {
        while (isspace((unsigned char)*left))
            left++;
        while (isspace((unsigned char)*right))
            right++;
        if (*left != *right)
            return false;
        if (*left == '\0')
            return true;
    }
}

/* ---- One row, in the child ---- */

static void *a, *b, *c, *h, *ph, *mg;
static cudaStream_t s0, s1, sd;
static struct cudaMemcpy3DPeerParms p;
static int v = -7;
static const size_t n = 1 << 20;

static void make_variables(void)
{
    CHECK(cudaSetDevice(1));
    CHECK(cudaMalloc(&b, n));
    CHECK(cudaStreamCreate(&s1));
    CHECK(cudaSetDevice(0));
    CHECK(cudaMalloc(&a, n));
    CHECK(cudaMalloc(&c, n));
    CHECK(cudaStreamCreate(&s0));
    CHECK(cudaStreamCreate(&sd));
    CHECK(cudaMallocHost(&ph, n));
    REQUIRE((h = malloc(n)) != NULL);

    p.srcDevice = 0;
    p.dstDevice = 1;
    p.srcPtr.ptr = a;
    p.dstPtr.ptr = b;
    p.srcPtr.pitch = p.dstPtr.pitch = p.srcPtr.xsize = p.dstPtr.xsize = 1024;
    p.srcPtr.ysize = p.dstPtr.ysize = 16;
    p.extent.width = 1024;
    p.extent.height = 16;
    p.extent.depth = 4;
}

static void prepare(const char *step)
{
#define SETUP(...) if (same_text(step, #__VA_ARGS__)) { CHECK(__VA_ARGS__); return; }
#define ASSIGN(...) if (same_text(step, #__VA_ARGS__)) { __VA_ARGS__; return; }
    SETUP(cudaDeviceEnablePeerAccess(1, 0))
    SETUP(cudaDeviceReset())
    SETUP(cudaFree(a))
    SETUP(cudaStreamDestroy(sd))
    SETUP(cudaStreamBeginCapture(s0, cudaStreamCaptureModeGlobal))
    SETUP(cudaStreamBeginCapture(s0, cudaStreamCaptureModeRelaxed))
    SETUP(cudaMallocAsync(&mg, n, s0))
    ASSIGN(p.extent.width = 0)
    ASSIGN(p.extent.height = 0)
    ASSIGN(p.extent.depth = 0)
    ASSIGN(p.srcPtr.ptr = 0)
    ASSIGN(p.srcPtr.ptr = h)
    ASSIGN(p.srcPtr.pitch = 0)
    ASSIGN(p.srcPtr.pitch = 8)
    ASSIGN(p.srcPtr.xsize = 8)
    ASSIGN(p.srcPtr.ysize = 2)
    ASSIGN(p.srcPos.x = 512)
    ASSIGN(p.dstPtr.ptr = 0)
    ASSIGN(p.srcArray = (cudaArray_t)a)
    ASSIGN(p.srcDevice = 99)
    ASSIGN(p.srcDevice = 1)
    ASSIGN(p.dstDevice = 0)
    check_failed(__FILE__, __LINE__, step, "no SETUP or ASSIGN implements this step of the table");
}

static cudaError_t evaluate(const char *call)
{
#define CALL(...) if (same_text(call, #__VA_ARGS__)) return __VA_ARGS__;
    CALL(cudaDeviceCanAccessPeer(NULL, 0, 1))
    CALL(cudaDeviceCanAccessPeer(&v, 0, 0))
    CALL(cudaDeviceCanAccessPeer(&v, -1, 0))
    CALL(cudaDeviceCanAccessPeer(&v, 0, 99))
    CALL(cudaDeviceCanAccessPeer(&v, 0, 1))
    CALL(cudaDeviceEnablePeerAccess(1, 0))
    CALL(cudaDeviceEnablePeerAccess(1, 1))
    CALL(cudaDeviceEnablePeerAccess(0, 0))
    CALL(cudaDeviceEnablePeerAccess(99, 0))
    CALL(cudaDeviceEnablePeerAccess(-1, 0))
    CALL(cudaDeviceDisablePeerAccess(1))
    CALL(cudaDeviceDisablePeerAccess(99))
    CALL(cudaDeviceDisablePeerAccess(-1))
    CALL(cudaMemcpyPeer(b, 1, a, 0, n))
    CALL(cudaMemcpyPeer(NULL, 1, a, 0, n))
    CALL(cudaMemcpyPeer(b, 1, NULL, 0, n))
    CALL(cudaMemcpyPeer(NULL, 1, NULL, 0, 0))
    CALL(cudaMemcpyPeer(b, 1, a, 0, 0))
    CALL(cudaMemcpyPeer(b, 99, a, 0, n))
    CALL(cudaMemcpyPeer(b, -1, a, 0, n))
    CALL(cudaMemcpyPeer(b, 99, a, 0, 0))
    CALL(cudaMemcpyPeer(b, 0, a, 1, n))
    CALL(cudaMemcpyPeer(b, 0, a, 0, n))
    CALL(cudaMemcpyPeer(c, 0, a, 0, n))
    CALL(cudaMemcpyPeer(a, 0, a, 0, n))
    CALL(cudaMemcpyPeer(h, 1, a, 0, n))
    CALL(cudaMemcpyPeer(b, 1, h, 0, n))
    CALL(cudaMemcpyPeer(ph, 1, a, 0, n))
    CALL(cudaMemcpyPeer(b, 1, a, 0, n * 64))
    CALL(cudaMemcpyPeerAsync(b, 1, a, 0, n, s0))
    CALL(cudaMemcpyPeerAsync(b, 1, a, 0, n, s1))
    CALL(cudaMemcpyPeerAsync(b, 1, a, 0, n, 0))
    CALL(cudaMemcpyPeerAsync(b, 1, a, 0, n, cudaStreamLegacy))
    CALL(cudaMemcpyPeerAsync(b, 1, a, 0, n, cudaStreamPerThread))
    CALL(cudaMemcpyPeerAsync(NULL, 1, a, 0, n, s0))
    CALL(cudaMemcpyPeerAsync(b, 1, a, 0, 0, s0))
    CALL(cudaMemcpyPeerAsync(b, 0, a, 1, n, s0))
    CALL(cudaMemcpyPeerAsync(c, 0, a, 0, n, s1))
    CALL(cudaMemcpyPeerAsync(b, 1, a, 0, n, sd))
    CALL(cudaMemcpyPeerAsync(b, 1, mg, 0, n, s0))
    CALL(cudaMemcpy3DPeer(&p))
    CALL(cudaMemcpy3DPeer(NULL))
    CALL(cudaMemcpy3DPeerAsync(&p, s0))
    CALL(cudaMemcpy3DPeerAsync(&p, s1))
    CALL(cudaMemcpy3DPeerAsync(NULL, s0))
    CALL(cudaPointerGetAttributes((struct cudaPointerAttributes *)h, a))
    check_failed(__FILE__, __LINE__, call, "no CALL implements this call of the table");
    return cudaErrorUnknown;
}

/* Prints "ret\tlast\tv"; the last error must be gone once it was read. */
static int run_row(const struct row *row)
{
    char steps[MAX_LINE];
    make_variables();
    strcpy(steps, row->setup);
    for (char *rest, *step = strtok_r(steps, ";", &rest); step; step = strtok_r(NULL, ";", &rest))
        prepare(step);
    cudaGetLastError();

    cudaError_t ret = evaluate(row->call);
    cudaError_t last = cudaGetLastError();
    cudaError_t after = cudaGetLastError();
    if (after != cudaSuccess)
        printf("%d\t%d then %d\t%d\n", ret, last, after, v);
    else
        printf("%d\t%d\t%d\n", ret, last, v);
    return 0;
}

/* ---- All rows, in the parent ---- */

static int read_table(const char *path, struct row *rows)
{
    FILE *file = fopen(path, "r");
    if (!file) {
        perror(path);
        exit(2);
    }
    int count = 0;
    bool header_seen = false;
    char line[MAX_LINE];
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == '#')
            continue;
        if (!header_seen) {
            header_seen = true;
            continue;
        }
        char *call = strchr(line, '\t'), *expected = call ? strchr(call + 1, '\t') : NULL;
        if (!expected || strlen(expected) >= sizeof rows->expected || count == MAX_ROWS)
            check_failed(path, count + 1, line, "is not a row");
        *call++ = *expected++ = '\0';
        strcpy(rows[count].setup, line);
        strcpy(rows[count].call, call);
        strcpy(rows[count++].expected, expected);
    }
    fclose(file);
    return count;
}

static bool in_group(const struct row *row, const char *groups)
{
    return (strstr(groups, "capture") && strstr(row->setup, "cudaStreamBeginCapture")) ||
           (strstr(groups, "pools") && strstr(row->setup, "cudaMallocAsync"));
}

/* What the row answers in a fresh process: as in the table, or a word on what went wrong. */
static void answer_of(int number, const char *table, char *answer, size_t size)
{
    int ends[2];
    if (pipe(ends) != 0) {
        perror("pipe");
        exit(2);
    }
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        char text[16];
        snprintf(text, sizeof text, "%d", number);
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        alarm(TIMEOUT_SECONDS);
        execl("/proc/self/exe", "conformance", "--row", text, table, (char *)NULL);
        perror("/proc/self/exe");
        _exit(2);
    }
    close(ends[1]);
    size_t length = 0;
    for (ssize_t got; length + 1 < size && (got = read(ends[0], answer + length, size - 1 - length)) > 0;)
        length += (size_t)got;
    close(ends[0]);
    answer[length] = '\0';
    answer[strcspn(answer, "\n")] = '\0';

    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child)
        snprintf(answer, size, "no process\t-\t-");
    else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        snprintf(answer, size, "timeout\t-\t-");
    else if (WIFSIGNALED(status))
        snprintf(answer, size, "crash\t-\t-");
    else if (WEXITSTATUS(status) != 0)
        snprintf(answer, size, "exit %d\t-\t-", WEXITSTATUS(status));
}

static bool is_error(const char *answer)
{
    int ret = 0, last = 0;
    return sscanf(answer, "%d\t%d", &ret, &last) == 2 && ret != 0 && ret == last;
}

static int run_table(const char *table, const struct row *rows, int count, const char *skip, bool crash_or_error)
{
    int same = 0, differ = 0, skipped = 0;
    printf("setup\tcall\tret\tlast\tv\n");
    for (int i = 0; i < count; i++) {
        char answer[128] = "skipped\t-\t-";
        if (in_group(&rows[i], skip)) {
            skipped++;
        } else {
            answer_of(i, table, answer, sizeof answer);
            bool crash_row = strncmp(rows[i].expected, "crash", 5) == 0;
            if (strcmp(answer, rows[i].expected) == 0 || (crash_row && crash_or_error && is_error(answer))) {
                same++;
            } else {
                differ++;
                fprintf(stderr, "row %d differs: %s; %s: expected %s, got %s\n", i + 1, rows[i].setup, rows[i].call,
                        rows[i].expected, answer);
            }
        }
        printf("%s\t%s\t%s\n", rows[i].setup, rows[i].call, answer);
    }
    printf("# %d rows: %d as expected, %d differ, %d skipped\n", count, same, differ, skipped);
    return differ == 0 && same > 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    static struct row rows[MAX_ROWS];
    const char *table = NULL, *skip = "";
    bool crash_or_error = false;
    int only = -1;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--row") == 0 && i + 1 < argc)
            only = atoi(argv[++i]);
        else if (strcmp(argv[i], "--skip-groups") == 0 && i + 1 < argc)
            skip = argv[++i];
        else if (strcmp(argv[i], "--allow-crash-rows-error") == 0)
            crash_or_error = true;
        else if (argv[i][0] != '-' && !table)
            table = argv[i];
        else
            table = NULL, i = argc;
    }
    if (!table) {
        fprintf(stderr, "usage: conformance [--skip-groups capture,pools] [--allow-crash-rows-error] TABLE.tsv\n");
        return 2;
    }
    int count = read_table(table, rows);
    if (only >= 0)
        return only < count ? run_row(&rows[only]) : 2;
    return run_table(table, rows, count, skip, crash_or_error);
}
