/* build: -rdynamic driver; run: questions_interrupted HOW on sim
 * Functions of the C interface are interrupted at each of their allocations by a signal. Its handler makes a call with a finding, and
 * returns (`finds`) or leaves by siglongjmp (`leaves`); then the function is called once more. Prints how many have returned each time.
 */
#include <cuda.h>

#include "../../include/p2pshim.h"
#include "check.h"

enum { BYTES = 1 << 16, MOST = 40 };

static CUcontext context;
static CUdeviceptr memory;
static sigjmp_buf before;
static volatile int allocations_left = -1, leaves;

extern void *__libc_malloc(size_t bytes);

/* In place of the C library's, for all objects. */
void *malloc(size_t bytes)
{
    if (allocations_left >= 0 && allocations_left-- == 0)
        raise(SIGUSR1);
    return __libc_malloc(bytes);
}

static void handle(int signal)
{
    (void)signal;
    /* Bytes that overlap. */
    cuMemcpyPeer(memory + 16, context, memory, context, 64);
    if (leaves)
        siglongjmp(before, 1);
}

#define FUNCTION(name) ((__typeof__(&p2pshim_##name))dlsym(RTLD_DEFAULT, "p2pshim_" #name))
#define QUESTION(name, ...)                                                                                             \
    static void ask_##name(void)                                                                                        \
    {                                                                                                                   \
        static __typeof__(&p2pshim_##name) call;                                                                        \
        if (!call)                                                                                                      \
            call = FUNCTION(name);                                                                                      \
        call(__VA_ARGS__);                                                                                              \
    }

static char text[512];
static uint64_t id;
static p2pshim_finding_t finding = P2PSHIM_INIT(p2pshim_finding_t);
static p2pshim_state_t state = P2PSHIM_INIT(p2pshim_state_t);
static p2pshim_library_t library = P2PSHIM_INIT(p2pshim_library_t);
static p2pshim_pair_state_t pair = P2PSHIM_INIT(p2pshim_pair_state_t);
static p2pshim_trace_t trace = P2PSHIM_INIT(p2pshim_trace_t);
static p2pshim_verdict_t verdict = P2PSHIM_INIT(p2pshim_verdict_t);

static void on_event(const p2pshim_event_t *event, void *data)
{
    (void)event;
    (void)data;
}

QUESTION(finding_last, &finding, text, sizeof text)
QUESTION(state_get, &state)
QUESTION(library_count)
QUESTION(library_get, 0, &library)
QUESTION(option_value, "P2PSHIM_VALIDATE", text, sizeof text, NULL)
QUESTION(option_set, "P2PSHIM_VALIDATE", "warn")
QUESTION(pair_state_get, 0, 1, &pair)
QUESTION(pair_prepare, 0, 1)
QUESTION(trace_start, getenv("FOLDER"))
QUESTION(trace_mark, "here")
QUESTION(trace_get, &trace)
QUESTION(trace_stop)
QUESTION(verdict_get, "GPU-0", "GPU-1", &verdict)
QUESTION(callback_add, on_event, NULL, &id)
QUESTION(callback_remove, id)

static void (*const questions[])(void) = {
    ask_finding_last, ask_state_get,    ask_library_count, ask_library_get, ask_option_value,
    ask_option_set,   ask_pair_state_get, ask_pair_prepare, ask_trace_start, ask_trace_mark,
    ask_trace_get,    ask_trace_stop,   ask_verdict_get,   ask_callback_add, ask_callback_remove,
};

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = handle};
    volatile int returned = 0;
    CHECK_CU(cuInit(0));
    CUcontext other;
    context_memory(&other, 1, BYTES);
    memory = context_memory(&context, 0, BYTES);
    handle(0);
    leaves = has_word(argc, argv, "leaves");
    REQUIRE(sigaction(SIGUSR1, &action, NULL) == 0);
    for (size_t question = 0; question < sizeof questions / sizeof *questions; question++) {
        questions[question]();
        for (volatile int at = 0; at < MOST; at++) {
            if (sigsetjmp(before, 1) == 0) {
                allocations_left = at;
                questions[question]();
            }
            volatile int is_past = allocations_left >= 0;
            allocations_left = -1;
            questions[question]();
            if (is_past)
                break;
        }
        returned++;
    }
    printf("%d functions have returned each time\n", returned);
    return 0;
}
