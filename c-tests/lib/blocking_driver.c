/* build blocking-driver/libcuda.so.1: -Ibenches -Wl,-Bsymbolic -lpthread; run: by LD_LIBRARY_PATH
 * The benchmarks' driver with streams and events, whose calls that make an event do what the program says: block, for example. It knows its
 * last copy.
 */
#define cuEventCreate create_event
#define cuMemcpyPeerAsync copy_between_peers
#define cuCtxEnablePeerAccess enable_access
#define cuCtxDisablePeerAccess disable_access
#define WITH_EVENTS
#include "null_driver.c"
#include "null_events.c"
#undef cuEventCreate
#undef cuMemcpyPeerAsync
#undef cuCtxEnablePeerAccess
#undef cuCtxDisablePeerAccess
#include "blocking_driver.h"

static void (*volatile on_event)(void);

void blocking_on_event(void (*action)(void))
{
    on_event = action;
}

int cuEventCreate(void **event, unsigned flags)
{
    if (on_event)
        on_event();
    return create_event(event, flags);
}

static void (*volatile on_disable)(void);

void blocking_on_disable(void (*action)(void))
{
    on_disable = action;
}

int cuCtxDisablePeerAccess(char *peer)
{
    if (on_disable)
        on_disable();
    return disable_access(peer);
}

static volatile long enables;

long blocking_enables(void)
{
    return enables;
}

int cuCtxEnablePeerAccess(char *peer, unsigned flags)
{
    enables++;
    return enable_access(peer, flags);
}

static volatile long copies;
static volatile uint64_t recorded_before;

long blocking_copies(uint64_t *recorded)
{
    *recorded = recorded_before;
    return copies;
}

int cuMemcpyPeerAsync(uint64_t dst, void *dst_context, uint64_t src, void *src_context, size_t bytes, void *stream)
{
    recorded_before = counts.recorded;
    copies++;
    return copy_between_peers(dst, dst_context, src, src_context, bytes, stream);
}
