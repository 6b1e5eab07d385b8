/* build: driver; run: waits_contexts on sim gpu
 * Of three contexts on device 1, which one's synchronization waits for a copy from device 0: that of the destination, or that which
 * cuMemcpyPeerAsync names? It depends on the memory, which is of the pool, or of the primary context, or of the first created one.
 *
 * Prints a line for each memory, and a word for each context that the copy names and each that is synchronized. A call has waited if the gate
 * that holds up the copy was open when it returned. A thread opens the gate after LATER_MS if the call has to wait, and else after so long
 * that a call which does not wait has returned on any machine: the program opens the gate then.
 */
#include <cuda.h>

#include "check.h"

enum { BYTES = 1 << 20, WARM_UPS = 40, LATER_MS = 30, GIVES_UP_MS = 5000 };
enum { PRIMARY, FIRST, SECOND, CONTEXTS };
static const char *const names[CONTEXTS] = {"primary", "first", "second"};

static CUcontext near_end, contexts[CONTEXTS];
static CUdeviceptr src;
static CUstream stream;
static volatile int is_open;

static const struct kind {
    const char *name;
    /* The context that waits, or none: that which the copy names. */
    int owner;
} kinds[] = {{"of a pool", CONTEXTS}, {"of the primary context", PRIMARY}, {"of the first context", FIRST}};

static void CUDA_CB hold(void *data)
{
    (void)data;
    while (!is_open)
        sleep_for(1);
}

static void *open_gate(void *milliseconds)
{
    for (intptr_t i = 0; i < (intptr_t)milliseconds && !is_open; i++)
        sleep_for(1);
    is_open = 1;
    return NULL;
}

static void make_contexts(void)
{
    CHECK_CU(cuInit(0));
    CHECK_CU(cuDevicePrimaryCtxRetain(&contexts[PRIMARY], 1));
    CHECK_CU(cuCtxCreate_v2(&contexts[FIRST], 0, 1));
    CHECK_CU(cuCtxCreate_v2(&contexts[SECOND], 0, 1));
    src = context_memory(&near_end, 0, BYTES);
    CHECK_CU(cuMemsetD8(src, 1, BYTES));
    CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

static CUdeviceptr memory(const struct kind *kind)
{
    CUdeviceptr made;
    CUmemoryPool pool;
    CHECK_CU(cuCtxSetCurrent(contexts[kind->owner == CONTEXTS ? PRIMARY : kind->owner]));
    if (kind->owner != CONTEXTS) {
        CHECK_CU(cuMemAlloc(&made, BYTES));
        return made;
    }
    CHECK_CU(cuDeviceGetDefaultMemPool(&pool, 1));
    CUstream beside = driver_stream();
    CHECK_CU(cuMemAllocFromPoolAsync(&made, BYTES, pool, beside));
    CHECK_CU(cuStreamSynchronize(beside));
    return made;
}

static void copy(CUdeviceptr dst, CUcontext named)
{
    CHECK_CU(cuCtxSetCurrent(near_end));
    CHECK_CU(cuMemcpyPeerAsync(dst, named, src, near_end, BYTES, stream));
}

/* Whether the synchronization of a context waits for the copy. */
static int waits(CUdeviceptr dst, CUcontext named, CUcontext synchronized, int is_to_wait)
{
    pthread_t opener;
    is_open = 0;
    CHECK_CU(cuCtxSetCurrent(near_end));
    CHECK_CU(cuLaunchHostFunc(stream, hold, NULL));
    copy(dst, named);
    CHECK_CU(cuCtxSetCurrent(synchronized));
    REQUIRE(pthread_create(&opener, NULL, open_gate, (void *)(intptr_t)(is_to_wait ? LATER_MS : GIVES_UP_MS)) == 0);
    CHECK_CU(cuCtxSynchronize());
    int has_waited = is_open;
    is_open = 1;
    REQUIRE(pthread_join(opener, NULL) == 0);
    CHECK_CU(cuStreamSynchronize(stream));
    return has_waited;
}

int main(void)
{
    make_contexts();
    for (const struct kind *kind = kinds; kind < kinds + sizeof kinds / sizeof *kinds; kind++) {
        CUdeviceptr dst = memory(kind);
        printf("memory %s\n", kind->name);
        for (int named = PRIMARY; named < CONTEXTS; named++) {
            /* So many that p2pshim has made the pair direct. */
            for (int i = 0; i < WARM_UPS; i++)
                copy(dst, contexts[named]);
            CHECK_CU(cuStreamSynchronize(stream));
            printf("  the copy names the %s:", names[named]);
            for (int other = PRIMARY; other < CONTEXTS; other++) {
                int is_to_wait = other == (kind->owner == CONTEXTS ? named : kind->owner);
                int has_waited = waits(dst, contexts[named], contexts[other], is_to_wait);
                printf(" %s %s%s", names[other], has_waited ? "waits" : "at once", other + 1 < CONTEXTS ? "," : "\n");
            }
            fflush(stdout);
        }
    }
    fflush(stdout);
    _exit(0);
}
