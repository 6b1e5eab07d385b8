/* build blocking-driver/libcuda.so.1: -Ibenches -Wl,-Bsymbolic -lpthread; run: by LD_LIBRARY_PATH
 * The benchmarks' driver with streams and events, whose calls that make an event do what the program says: block, for example.
 */
#define _GNU_SOURCE
#define cuEventCreate create_event
#include "null_driver.c"
#include "null_events.c"
#undef cuEventCreate
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
