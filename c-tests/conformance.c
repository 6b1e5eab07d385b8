/* build: runtime old nvidia12 nvidia13 driver; run: conformance [measure] [OPTION…] TABLE.tsv on sim gpu
 * Return codes of the peer functions of both APIs, row by row, against what the real libraries answered.
 *
 * Prints the table with what is answered here, and fails if a row differs; with `measure` all else is as it was.
 *
 *   --jobs N                      so many rows at a time (default 1)
 *   --only FROM-TO                these rows only, counted from 1
 *   --times N                     measure each row so often (default 1)
 *   --allow-crash-rows-error      where the real library crashes or hangs, an error code will do
 *   --announce                    each row says on standard error when its setup begins, and when its call does
 *
 * Each row runs in a process of its own: this program executes itself with `--row N`, and the parent never touches CUDA.
 * A row is printed as soon as it and all before it are done; one that takes longer than 20 s says `timeout`. To measure
 * fails if a row does not come to its call, or if its answer is not the same each time.
 *
 * A row is compiled as it is written: CALL(x), STEP(x) and ASSIGN(x) compare the row's text with their argument's. They are
 * written from the tables by make-conformance; a row that was in none of them then is an error. Variables and steps are
 * explained on top of the tables: tests/golden/conformance.tsv has what was measured on real GPUs,
 * conformance-unmeasured.tsv what was not yet. Rows about batches and graphs are in tests/golden/conformance-graphs.tsv,
 * and what they need is in conformance_graphs.h.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <ctype.h>
#include <sys/resource.h>

#include "check.h"

/* The newest header would have the form of a newer driver. */
#undef cuCtxCreate
#define cuCtxCreate cuCtxCreate_v2
CUresult CUDAAPI cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device);

/* The forms that programs get which are compiled for per-thread default streams. */
__typeof__(cudaMemcpy3DPeer) cudaMemcpy3DPeer_ptds;
__typeof__(cudaMemcpy3DPeerAsync) cudaMemcpy3DPeerAsync_ptsz;
__typeof__(cuMemcpyPeer) cuMemcpyPeer_ptds;
__typeof__(cuMemcpyPeerAsync) cuMemcpyPeerAsync_ptsz;
__typeof__(cuMemcpy3DPeer) cuMemcpy3DPeer_ptds;
__typeof__(cuMemcpy3DPeerAsync) cuMemcpy3DPeerAsync_ptsz;

enum { MAX_ROWS = 1024, MAX_LINE = 512, MAX_JOBS = 64, MAX_TIMES = 16, TIMEOUT_SECONDS = 20 };

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

static const size_t n = 1 << 20;
static void *a, *b, *c, *h, *ph, *mg;
static CUdeviceptr da, db, dc, dh, dp, md, m;
static size_t g;
static cudaStream_t s0, s1, sd, sx;
static CUcontext x0, x1, xd, xo;
static cudaArray_t array0, array1;
static CUarray l0, l1; /* of one dimension, 8192 bytes */
static CUmemoryPool pool;
static CUmemAccessDesc d, e[2];
static struct cudaMemcpy3DPeerParms p;
static CUDA_MEMCPY3D_PEER q;
static struct cudaMemcpy3DParms r;
static CUDA_MEMCPY2D t;
static CUDA_MEMCPY3D u;
static int v = -7;
static unsigned long long w = (unsigned long long)-7;

static void make_graph_variables(void);

static void make_variables(void)
{
    b = device_memory(1, n);
    CHECK(cudaStreamCreate(&s1));
    CHECK_CU(cuCtxGetCurrent(&x1));
    a = device_memory(0, n);
    CHECK(cudaMalloc(&c, n));
    CHECK(cudaStreamCreate(&s0));
    CHECK(cudaStreamCreate(&sd));
    CHECK(cudaMallocHost(&ph, n));
    CHECK_CU(cuCtxGetCurrent(&x0));
    CHECK_CU(cuDeviceGetDefaultMemPool(&pool, 0));
    REQUIRE((h = calloc(1, n)) != NULL);
    da = (CUdeviceptr)a;
    db = (CUdeviceptr)b;
    dc = (CUdeviceptr)c;
    dh = (CUdeviceptr)h;
    dp = (CUdeviceptr)ph;

    p.srcDevice = 0;
    p.dstDevice = 1;
    p.srcPtr.ptr = a;
    p.dstPtr.ptr = b;
    p.srcPtr.pitch = p.dstPtr.pitch = p.srcPtr.xsize = p.dstPtr.xsize = 1024;
    p.srcPtr.ysize = p.dstPtr.ysize = 16;
    p.extent.width = 1024;
    p.extent.height = 16;
    p.extent.depth = 4;

    q.srcMemoryType = q.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    q.srcDevice = da;
    q.dstDevice = db;
    q.srcContext = x0;
    q.dstContext = x1;
    q.srcPitch = q.dstPitch = 1024;
    q.srcHeight = q.dstHeight = 16;
    q.WidthInBytes = 1024;
    q.Height = 16;
    q.Depth = 4;

    r.srcPtr = p.srcPtr;
    r.dstPtr = p.dstPtr;
    r.extent = p.extent;
    r.kind = cudaMemcpyDeviceToDevice;
    t.srcMemoryType = t.dstMemoryType = u.srcMemoryType = u.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    t.srcDevice = u.srcDevice = da;
    t.dstDevice = u.dstDevice = db;
    t.srcPitch = t.dstPitch = u.srcPitch = u.dstPitch = 1024;
    t.WidthInBytes = u.WidthInBytes = 1024;
    t.Height = u.Height = u.srcHeight = u.dstHeight = 16;
    u.Depth = 4;

    d.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    d.location.id = 1;
    d.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    e[0] = e[1] = d;
    make_graph_variables();
}

static CUresult make_context(CUcontext *context, CUdevice device)
{
    CUcontext made;
    CUresult error = cuCtxCreate(context, 0, device);
    return error ? error : cuCtxPopCurrent(&made);
}

static CUresult memory_of(CUcontext context, CUdeviceptr *memory)
{
    CHECK_CU(cuCtxPushCurrent(context));
    CHECK_CU(cuMemAlloc(memory, n));
    return cuCtxPopCurrent(&context);
}

static CUresult stream_of(CUcontext context, CUstream *stream)
{
    CHECK_CU(cuCtxPushCurrent(context));
    CHECK_CU(cuStreamCreate(stream, CU_STREAM_DEFAULT));
    return cuCtxPopCurrent(&context);
}

/* Created and mapped, g bytes; the device that has it may read (1), read and write (3) or do nothing (0). */
static CUresult map_memory(CUdeviceptr *memory, CUdevice device, int rights)
{
    CUmemAllocationProp what = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    CUmemGenericAllocationHandle handle;
    what.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    what.location.id = device;
    CHECK_CU(cuMemGetAllocationGranularity(&g, &what, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK_CU(cuMemCreate(&handle, g, &what, 0));
    CHECK_CU(cuMemAddressReserve(memory, 4 * g, 0, 0, 0));
    CHECK_CU(cuMemMap(*memory, g, 0, handle, 0));
    CHECK_CU(cuMemRelease(handle));
    CUmemAccessDesc access = {.location = what.location, .flags = (CUmemAccess_flags)rights};
    return rights ? cuMemSetAccess(*memory, g, &access, 1) : CUDA_SUCCESS;
}

static CUresult make_pool(CUmemoryPool *made, int device)
{
    CUmemPoolProps what = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED};
    what.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    what.location.id = device;
    return cuMemPoolCreate(made, &what);
}

/* 4 layers of 16 rows of 1024 bytes. */
static CUresult make_line(CUarray *array, int device)
{
    CUDA_ARRAY_DESCRIPTOR format = {.Width = 2048, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
    CHECK(cudaSetDevice(device));
    CUresult result = cuArrayCreate(array, &format);
    CHECK(cudaSetDevice(0));
    return result;
}

static cudaError_t make_array(cudaArray_t *array, int device, int bits)
{
    struct cudaChannelFormatDesc format = {.x = bits, .f = cudaChannelFormatKindUnsigned};
    struct cudaExtent extent = {.width = 8192 / (size_t)bits, .height = 16, .depth = 4};
    CHECK(cudaSetDevice(device));
    CHECK(cudaMalloc3DArray(array, &format, extent, 0));
    return cudaSetDevice(0);
}

static cudaError_t reset_device(int device)
{
    CHECK(cudaSetDevice(device));
    CHECK(cudaDeviceReset());
    return cudaSetDevice(0);
}

static void CUDART_CB wait_a_little(void *nothing)
{
    (void)nothing;
    usleep(200000);
}

/* With direct access: a copy on s0 is queued when it is disabled. */
static cudaError_t disable_under_way(void)
{
    cudaDeviceEnablePeerAccess(1, 0); /* or it is enabled already */
    CHECK(cudaLaunchHostFunc(s0, wait_a_little, NULL));
    CHECK(cudaMemcpyPeerAsync(b, 1, a, 0, n, s0));
    CHECK(cudaDeviceDisablePeerAccess(1));
    return cudaStreamSynchronize(s0);
}

/* Makes the context of device 0 unusable without device code: what a queued copy is to read is unmapped. */
static int lose_context(void)
{
    CUdeviceptr gone;
    CHECK_CU(map_memory(&gone, 0, 3));
    CHECK(cudaLaunchHostFunc(s0, wait_a_little, NULL));
    CHECK(cudaMemcpyAsync(c, (void *)gone, n, cudaMemcpyDeviceToDevice, s0));
    CHECK_CU(cuMemUnmap(gone, g));
    if (cudaStreamSynchronize(s0) != cudaSuccess)
        return 0;
    fprintf(stderr, "the copy ended before its source was unmapped\n");
    return disable_under_way() == cudaSuccess;
}

#define STEP(...) if (same_text(text, #__VA_ARGS__)) return (int)(__VA_ARGS__);
#define ASSIGN(...) if (same_text(text, #__VA_ARGS__)) { __VA_ARGS__; return 0; }
#define CALL(...) if (same_text(call, #__VA_ARGS__)) return (int)(__VA_ARGS__);

#include "conformance_graphs.h"

static int step(const char *text)
{
#include "conformance_steps.h"
    check_failed(__FILE__, __LINE__, text, "no STEP or ASSIGN implements this step of the table");
    return 1;
}

static const char *without(const char *word, const char *text)
{
    size_t length = strlen(word);
    return strncmp(text, word, length) == 0 ? text + length : NULL;
}

/* A step for a thread of its own, which lives on. */
struct elsewhere {
    const char *text;
    pthread_barrier_t taken;
};

static void *take_step_and_stay(void *argument)
{
    struct elsewhere *other = argument;
    CHECK(cudaSetDevice(0));
    if (step(other->text) != 0)
        check_failed(__FILE__, __LINE__, other->text, "fails in another thread");
    pthread_barrier_wait(&other->taken);
    pause();
    return NULL;
}

static void prepare(const char *text)
{
    const char *rest;
    if ((rest = without("try ", text)) != NULL) {
        step(rest);
    } else if ((rest = without("elsewhere ", text)) != NULL) {
        static struct elsewhere other;
        pthread_t thread;
        other.text = rest;
        REQUIRE(pthread_barrier_init(&other.taken, NULL, 2) == 0);
        REQUIRE(pthread_create(&thread, NULL, take_step_and_stay, &other) == 0);
        pthread_barrier_wait(&other.taken);
    } else {
        int error = step(text);
        if (error != 0) {
            char why[32];
            snprintf(why, sizeof why, "answers %d", error);
            check_failed(__FILE__, __LINE__, text, why);
        }
    }
}

static int evaluate(const char *call)
{
#include "conformance_calls.h"
    check_failed(__FILE__, __LINE__, call, "no CALL implements this call of the table");
    return 1;
}

struct row {
    char comment[8 * MAX_LINE]; /* the lines before it */
    char setup[MAX_LINE], call[MAX_LINE], documented[64], expected[64]; /* expected: "ret\tlast\tv" */
};

static const char reached[] = "reached\n";

/* So that what others say on standard error can be told apart, by process and row. */
static void announce(int number, const char *part)
{
    fprintf(stderr, "row %d in %d: %s\n", number, (int)getpid(), part);
}

/* Prints that the call was reached, then "ret\tlast\tv"; the last error must be gone once it was read. */
static int run_row(const struct row *row, int number, bool announced)
{
    const struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    bool runtime = without("cuda", row->call) != NULL;
    if (announced)
        announce(number, "setup");
    char steps[MAX_LINE], *rest, *text;
    strcpy(steps, row->setup);
    text = strtok_r(steps, ";", &rest);
    if (text && strcmp(text, "uninitialised") == 0)
        text = strtok_r(NULL, ";", &rest);
    else
        make_variables();
    for (; text; text = strtok_r(NULL, ";", &rest))
        prepare(text);
    if (runtime)
        cudaGetLastError();
    printf(reached);
    fflush(stdout);
    if (announced)
        announce(number, "call");

    int ret = evaluate(row->call);
    char last[64] = "-";
    if (runtime) {
        cudaError_t error = cudaGetLastError(), after = cudaGetLastError();
        snprintf(last, sizeof last, after == cudaSuccess ? "%d" : "%d then %d", error, after);
    }
    long long output = w == (unsigned long long)-7 ? v : (long long)w;
    graph_output(&output);
    printf("%d\t%s\t%lld\n", ret, last, output);
    fflush(stdout);
    _exit(0); /* whatever the row has done to the libraries: it is over */
}

/* ---- All rows, in the parent ---- */

enum { COLUMNS = 6 };

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
        struct row *row = &rows[count];
        if (count == MAX_ROWS || strlen(row->comment) + strlen(line) >= sizeof row->comment)
            check_failed(path, count + 1, line, "there is no room for it");
        if (line[0] == '#' || !header_seen) {
            header_seen |= line[0] != '#';
            strcat(row->comment, line);
            continue;
        }
        line[strcspn(line, "\n")] = '\0';
        char *columns[COLUMNS] = {line};
        int found = 1;
        for (char *tab = line; found < COLUMNS && (tab = strchr(tab, '\t')) != NULL; found++) {
            if (found < 4) /* the answer stays one text */
                *tab = '\0';
            columns[found] = ++tab;
        }
        if (found < COLUMNS || strlen(columns[2]) >= sizeof row->documented || strlen(columns[3]) >= sizeof row->expected)
            check_failed(path, count + 1, line, "is not a row");
        strcpy(row->setup, columns[0]);
        strcpy(row->call, columns[1]);
        strcpy(row->documented, columns[2]);
        strcpy(row->expected, columns[3]);
        count++;
    }
    fclose(file);
    return count;
}

struct child {
    pid_t pid;
    int output, row, time;
    time_t begun;
};

static time_t now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec;
}

static struct child begin(int row, int time, const char *table, bool announced)
{
    int ends[2];
    if (pipe(ends) != 0) {
        perror("pipe");
        exit(2);
    }
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0) {
        perror("fork");
        exit(2);
    }
    if (pid == 0) {
        char text[16];
        snprintf(text, sizeof text, "%d", row);
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        alarm(TIMEOUT_SECONDS);
        execl("/proc/self/exe", "conformance", "--row", text, table, announced ? "--announce" : NULL, (char *)NULL);
        perror("/proc/self/exe");
        _exit(2);
    }
    close(ends[1]);
    return (struct child){.pid = pid, .output = ends[0], .row = row, .time = time, .begun = now()};
}

enum { ANSWER = 128 };

/* What a row has answered: as in the table, or a word on what went wrong. */
static void answer_of(const struct child *child, int status, char *answer)
{
    char text[ANSWER];
    size_t length = 0;
    for (ssize_t got; length + 1 < sizeof text && (got = read(child->output, text + length, sizeof text - 1 - length)) > 0;)
        length += (size_t)got;
    close(child->output);
    text[length] = '\0';

    const char *line = without(reached, text);
    const char *where = line ? "" : "setup ";
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        snprintf(answer, ANSWER, "%stimeout\t-\t-", where);
    else if (WIFSIGNALED(status))
        snprintf(answer, ANSWER, "%scrash\t-\t-", where);
    else if (!line || WEXITSTATUS(status) != 0)
        snprintf(answer, ANSWER, "%sexit %d\t-\t-", where, WEXITSTATUS(status));
    else
        snprintf(answer, ANSWER, "%.*s", (int)strcspn(line, "\n"), line);
}

/* What has been answered, and how that compares. */
static char answers[MAX_ROWS][MAX_TIMES][ANSWER];

struct run {
    const char *table;
    const struct row *rows;
    int from, to, jobs, times; /* rows from <= i < to */
    bool measure, crash_or_error, announced;
    int printed, same, wrong;
};

static bool is_error(const char *answer)
{
    int ret = 0;
    return sscanf(answer, "%d\t", &ret) == 1 && ret != 0;
}

static void judge(struct run *run, int i)
{
    const struct row *row = &run->rows[i];
    const char *answer = answers[i][0], *expected = row->expected;
    int wrong = 0;
    if (without("setup ", answer)) {
        wrong++;
        fprintf(stderr, "row %d does not come to its call: %s; %s: %s\n", i + 1, row->setup, row->call, answer);
    }
    for (int time = 1; time < run->times; time++)
        if (strcmp(answer, answers[i][time]) != 0) {
            wrong++;
            fprintf(stderr, "row %d is not stable: %s; %s: %s, then %s\n", i + 1, row->setup, row->call, answer,
                    answers[i][time]);
        }
    bool is_fatal = without("crash", expected) || without("timeout", expected);
    bool as_expected = strcmp(answer, expected) == 0 || (is_fatal && run->crash_or_error && is_error(answer));
    if (!run->measure && !as_expected) {
        wrong++;
        fprintf(stderr, "row %d differs: %s; %s: expected %s, got %s\n", i + 1, row->setup, row->call, expected, answer);
    }
    run->wrong += wrong > 0;
    run->same += wrong == 0;
}

/* Prints the rows that are done, up to the first that is not. */
static void print_done(struct run *run)
{
    for (; run->printed < run->to; run->printed++) {
        const struct row *row = &run->rows[run->printed];
        for (int time = 0; time < run->times; time++)
            if (answers[run->printed][time][0] == '\0')
                return;
        judge(run, run->printed);
        printf("%s%s\t%s\t%s\t%s\n", run->measure ? row->comment : "", row->setup, row->call, row->documented,
               answers[run->printed][0]);
        fflush(stdout);
        int done = run->printed + 1 - run->from;
        if (run->measure && done % 50 == 0)
            fprintf(stderr, "%d of %d rows\n", done, run->to - run->from);
    }
}

static void run_all(struct run *run)
{
    struct child running[MAX_JOBS];
    const int all = (run->to - run->from) * run->times;
    int begun = 0, under_way = 0;
    while (begun < all || under_way > 0) {
        for (; begun < all && under_way < run->jobs; begun++)
            running[under_way++] = begin(run->from + begun / run->times, begun % run->times, run->table, run->announced);
        bool any = false;
        for (int i = 0; i < under_way; i++) {
            char *answer = answers[running[i].row][running[i].time];
            int status = 0;
            if (waitpid(running[i].pid, &status, WNOHANG) == running[i].pid) {
                answer_of(&running[i], status, answer);
            } else if (now() - running[i].begun > TIMEOUT_SECONDS + 5) {
                /* It does not even hear its alarm, deep in the driver: leave it there. */
                kill(running[i].pid, SIGKILL);
                close(running[i].output);
                snprintf(answer, ANSWER, "timeout\t-\t-");
            } else {
                continue;
            }
            running[i--] = running[--under_way];
            any = true;
        }
        if (any)
            print_done(run);
        else
            usleep(1000);
    }
}

static int number_in(const char *text, int most)
{
    int number = text ? atoi(text) : 0;
    return number >= 1 && number <= most ? number : 0;
}

int main(int argc, char **argv)
{
    static struct row rows[MAX_ROWS + 1];
    struct run run = {.rows = rows, .to = MAX_ROWS, .jobs = 1, .times = 1};
    int only = -1;
    bool understood = true;
    for (int i = 1; i < argc && understood; i++) {
        if (strcmp(argv[i], "--row") == 0 && i + 1 < argc)
            only = atoi(argv[++i]);
        else if (strcmp(argv[i], "--only") == 0)
            understood = sscanf(argv[++i] ? argv[i] : "", "%d-%d", &run.from, &run.to) == 2 && run.from-- > 0;
        else if (strcmp(argv[i], "--jobs") == 0)
            run.jobs = number_in(argv[++i], MAX_JOBS);
        else if (strcmp(argv[i], "--times") == 0)
            run.times = number_in(argv[++i], MAX_TIMES);
        else if (strcmp(argv[i], "--allow-crash-rows-error") == 0)
            run.crash_or_error = true;
        else if (strcmp(argv[i], "--announce") == 0)
            run.announced = true;
        else if (strcmp(argv[i], "measure") == 0 && i == 1)
            run.measure = true;
        else if (argv[i] && argv[i][0] != '-' && !run.table)
            run.table = argv[i];
        else
            understood = false;
    }
    if (!understood || !run.table || !run.jobs || !run.times || (run.times > 1 && !run.measure)) {
        fprintf(stderr, "usage: conformance [--jobs N] [--only FROM-TO] [--allow-crash-rows-error] [--announce] TABLE.tsv\n"
                        "       conformance measure [--jobs N] [--only FROM-TO] [--times N] [--announce] TABLE.tsv\n");
        return 2;
    }
    int count = read_table(run.table, rows);
    if (only >= 0)
        return only < count ? run_row(&rows[only], only + 1, run.announced) : 2;
    run.to = run.to < count ? run.to : count;
    run.printed = run.from;
    if (!run.measure)
        printf("setup\tcall\tdocumented\tret\tlast\tv\n");
    run_all(&run);
    if (run.measure)
        fputs(rows[count].comment, stdout);
    else
        printf("# %d rows: %d as expected, %d differ\n", run.same + run.wrong, run.same, run.wrong);
    return run.wrong == 0 && run.same > 0 ? 0 : 1;
}
