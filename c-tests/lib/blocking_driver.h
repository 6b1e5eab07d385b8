/* A driver without anything behind it: benches/null_driver.c and null_events.c, and this. */
#ifndef P2PSHIM_C_TESTS_BLOCKING_DRIVER_H
#define P2PSHIM_C_TESTS_BLOCKING_DRIVER_H

#include <stdint.h>

/* What cuEventCreate and cuCtxDisablePeerAccess do first from now on; NULL: nothing. */
void blocking_on_event(void (*action)(void));
void blocking_on_disable(void (*action)(void));
long blocking_copies(uint64_t *recorded); /* how many cuMemcpyPeerAsync there were, and the events recorded before the last */
long blocking_enables(void);              /* how many cuCtxEnablePeerAccess there were */

#endif
