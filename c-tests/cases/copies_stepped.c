/* build: standin-runtime/libcudart.so.12; run: P2PSHIM_VALIDATE=off copies_stepped clocks FIRST|FUNCTION COPIES JUMPS EVERY FIRST on standin-runtime
 * Copies that are interrupted at one instruction after the other, where the file of a trace goes on in another chunk, by a
 * signal handler that copies as well and then goes back, or leaves by longjmp. Each copy has a number, which is how many bytes
 * it says it has. On the stand-in runtime, whose copies nobody can look at.
 *
 *   FUNCTION  async or sync: cudaMemcpyPeerAsync or cudaMemcpyPeer
 *   COPIES    how many copies the handler makes
 *   JUMPS     1 if it then leaves by longjmp, else 0
 *   EVERY     how many instructions further each time
 *   FIRST     at which instruction first, from 1 on
 *   clocks    a process each time makes its first copies, is interrupted in one, which also compares clocks, leaves it by longjmp, and
 *             sees whether its clocks are compared again
 *
 * What it is to be run with: P2PSHIM_TRACE, a folder with nothing else in it, and P2PSHIM_TRACE_LIMIT=64M.
 * Prints how often it was interrupted, how many copies there were, and the numbers of those that were left.
 */
#include <cuda_runtime_api.h>
#include <ucontext.h>

#include "check.h"
#include "lib/standin_runtime.h"

enum { RECORDS = 255, CHUNKS_BEFORE = 6, MOST = 1 << 20, LIMIT = 64 << 20, TRAP_FLAG = 256 };

static char from[64], to[64];
static int is_async, copies_of_handler, jumps;
static int begun;
static char has_returned[MOST];

/* The one place that copies. */
__attribute__((noinline)) static void copy(void)
{
    int number = __atomic_fetch_add(&begun, 1, __ATOMIC_RELAXED); /* one instruction: the handler counts too */
    REQUIRE(number < MOST - 1);
    size_t bytes = (size_t)number + 1;
    REQUIRE((is_async ? cudaMemcpyPeerAsync(to, 1, from, 0, bytes, NULL) : cudaMemcpyPeer(to, 1, from, 0, bytes)) ==
            cudaSuccess);
    has_returned[number] = 1;
}

static volatile int steps, at;
static sigjmp_buf out;

static void on_user(int signal)
{
    (void)signal;
    for (int i = 0; i < copies_of_handler; i++)
        copy();
    if (jumps)
        siglongjmp(out, 1);
}

/* A trap cannot be held back, the signal can. */
static void on_trap(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info;
    if (++steps != at)
        return;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
    raise(SIGUSR1);
}

__attribute__((noinline)) static void copy_in_steps(void)
{
    __asm__ volatile("pushfq; orq $256, (%%rsp); popfq" ::: "memory", "cc");
    copy();
    __asm__ volatile("pushfq; andq $-257, (%%rsp); popfq" ::: "memory", "cc");
}

static const char *trace;

static void open_trace(void)
{
    char file[4096];
    FILE *find = popen("echo \"$P2PSHIM_TRACE\"/*-$PPID-*", "r");
    REQUIRE(find && fscanf(find, "%4095s", file) == 1 && pclose(find) == 0);
    int descriptor = open(file, O_RDONLY);
    trace = mmap(NULL, LIMIT, PROT_READ, MAP_SHARED, descriptor, 0);
    REQUIRE(descriptor >= 0 && trace != MAP_FAILED);
    close(descriptor);
}

static uint64_t number_at(size_t offset)
{
    return *(const uint64_t *)(trace + offset);
}

/* Makes a copy, and says which record of its chunk it has; see docs/dev/TRACE_FORMAT.md. */
static int copy_and_find(void)
{
    copy();
    for (uint64_t chunk = number_at(32); chunk-- > 0;)
        for (int record = 0; record < RECORDS; record++)
            if (number_at(4096 + chunk * 16384 + 64 + record * 64 + 32) == (uint64_t)begun)
                return record;
    printf("copy %d is NOT recorded\n", begun);
    exit(1);
}

/* Interrupts the copy that is to have this record of its chunk. Whether it took so many instructions. */
static int interrupt(int record, int instruction)
{
    for (int next = copy_and_find() + 1; next % RECORDS != record; next++)
        copy();
    steps = 0;
    at = instruction;
    if (sigsetjmp(out, 1) == 0)
        copy_in_steps();
    return steps >= at;
}

/* How often clocks have been compared by now, as long as there is room. */
static int compared(void)
{
    int count = 0;
    for (int slot = 0; slot < 64; slot++)
        count += number_at(64 + slot * 24) != 0;
    return count;
}

/* Whether clocks are compared after a copy that was left at this instruction; -1 if it has not so many. */
static int is_compared_after(int instruction)
{
    enum { FIRST_COPIES = 60 };
    for (int i = 0; i < FIRST_COPIES; i++)
        copy();
    at = instruction;
    if (sigsetjmp(out, 1) == 0)
        copy_in_steps();
    if (steps < at)
        return -1;
    open_trace();
    int before = compared();
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        copy();
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (compared() == before && now.tv_sec < start.tv_sec + 2);
    return compared() > before;
}

static void leave_comparing(int first)
{
    enum { EVERY = 20, IS_OVER = 2 };
    int status = 0, left = 0, stuck = 0;
    for (int instruction = first; WEXITSTATUS(status) != IS_OVER; instruction += EVERY) {
        pid_t child = fork();
        if (child == 0) {
            int compared = is_compared_after(instruction);
            _exit(compared < 0 ? IS_OVER : !compared);
        }
        REQUIRE(waitpid(child, &status, 0) == child && WIFEXITED(status));
        left++;
        stuck += WEXITSTATUS(status) == 1;
    }
    printf("%s, clocks stand still after %d\n", left > 20 ? "many left" : "FEW left", stuck);
}

int main(int argc, char **argv)
{
    struct sigaction trap = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO}, user = {.sa_handler = on_user};
    REQUIRE(sigaction(SIGTRAP, &trap, NULL) == 0 && sigaction(SIGUSR1, &user, NULL) == 0);
    standin_async_answers(cudaSuccess);
    if (argc == 3 && strcmp(argv[1], "clocks") == 0) {
        is_async = jumps = 1;
        leave_comparing(atoi(argv[2]));
        return 0;
    }
    REQUIRE(argc == 6);
    is_async = strcmp(argv[1], "async") == 0;
    copies_of_handler = atoi(argv[2]);
    jumps = atoi(argv[3]);
    int every = atoi(argv[4]), first = atoi(argv[5]), interrupted = 0;
    for (int i = 0; i < CHUNKS_BEFORE * RECORDS; i++)
        copy();
    open_trace();
    /* The last but one of a chunk, the last, and the first. */
    for (int record = RECORDS - 2; record <= RECORDS; record++)
        for (int instruction = first; interrupt(record % RECORDS, instruction); instruction += every)
            interrupted++;
    copy();
    printf("%d times interrupted\n%d copies\nleft:", interrupted, begun);
    for (int number = 0; number < begun; number++)
        if (!has_returned[number])
            printf(" %d", number + 1);
    printf("\n");
    return 0;
}
