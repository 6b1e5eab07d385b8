/* Streams and events for the null driver, linked with null_driver.c: enough for the shim to keep waits. All streams are of device 0.
 * Nothing is ever under way, but an event has passed only when the program says so, or when somebody waits for it.
 *
 * What it keeps lies in shared mappings: so it counts neither as allocated nor as anonymous memory of the process. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>

#include "null_cuda.h"

enum { MOST = 4 << 20, NOT_READY = 600, OUT_OF_MEMORY = 2 };
/* Apart like a driver's, which are allocated. */
enum { STREAM_BYTES = 752, EVENT_BYTES = 160 };
#define FIRST_EVENT 0x570000000000

/* Handles: those that were destroyed are given out first, the last one before the others. */
struct handles {
	uint32_t *spare;
	size_t made, spares;
};

static struct handles streams, events;
/* For each event, which record of all its last one was; 0 for none. */
static uint64_t *records;
static struct null_events counts;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct null_events *null_events(void)
{
	return &counts;
}

static void *shared(size_t bytes)
{
	return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

static void __attribute__((constructor)) start(void)
{
	streams.spare = shared(MOST * sizeof *streams.spare);
	events.spare = shared(MOST * sizeof *events.spare);
	records = shared(MOST * sizeof *records);
}

/* The number of a handle that nobody has; MOST if there is none. */
static size_t take(struct handles *of)
{
	pthread_mutex_lock(&lock);
	size_t number = of->spares ? of->spare[--of->spares] : of->made < MOST ? of->made++ : MOST;
	pthread_mutex_unlock(&lock);
	return number;
}

static void give_back(struct handles *to, size_t number)
{
	pthread_mutex_lock(&lock);
	to->spare[to->spares++] = (uint32_t)number;
	pthread_mutex_unlock(&lock);
}

static uint64_t count(uint64_t *number)
{
	return __atomic_add_fetch(number, 1, __ATOMIC_RELAXED);
}

int cuStreamCreate(void **stream, unsigned flags)
{
	size_t number = take(&streams);
	(void)flags;
	*stream = (void *)(FIRST_STREAM + number * STREAM_BYTES);
	return number < MOST ? 0 : OUT_OF_MEMORY;
}

int cuStreamDestroy_v2(void *stream)
{
	give_back(&streams, ((uintptr_t)stream - FIRST_STREAM) / STREAM_BYTES);
	return 0;
}

int cuStreamGetCtx(void *stream, void **context)
{
	(void)stream;
	return cuDevicePrimaryCtxRetain(context, 0);
}

int cuStreamQuery(void *stream)
{
	(void)stream;
	return 0;
}

int cuStreamSynchronize(void *stream)
{
	(void)stream;
	return 0;
}

int cuStreamWaitEvent(void *stream, void *event, unsigned flags)
{
	(void)stream, (void)event, (void)flags;
	return 0;
}

int cuCtxSynchronize(void)
{
	return 0;
}

int cuCtxGetFlags(unsigned *flags)
{
	*flags = 0;
	return 0;
}

static uint64_t *last_record(void *event)
{
	return &records[((uintptr_t)event - FIRST_EVENT) / EVENT_BYTES];
}

int cuEventCreate(void **event, unsigned flags)
{
	size_t number = take(&events);
	(void)flags;
	*event = (void *)(FIRST_EVENT + number * EVENT_BYTES);
	if (number == MOST)
		return OUT_OF_MEMORY;
	count(&counts.created);
	records[number] = 0;
	return 0;
}

int cuEventDestroy_v2(void *event)
{
	count(&counts.destroyed);
	give_back(&events, ((uintptr_t)event - FIRST_EVENT) / EVENT_BYTES);
	return 0;
}

int cuEventRecord(void *event, void *stream)
{
	(void)stream;
	__atomic_store_n(last_record(event), count(&counts.recorded), __ATOMIC_RELAXED);
	return 0;
}

int cuEventRecord_ptsz(void *event, void *stream)
{
	return cuEventRecord(event, stream);
}

int cuEventQuery(void *event)
{
	count(&counts.queried);
	return __atomic_load_n(last_record(event), __ATOMIC_RELAXED) <= counts.passed ? 0 : NOT_READY;
}

int cuEventSynchronize(void *event)
{
	count(&counts.waited);
	uint64_t last = __atomic_load_n(last_record(event), __ATOMIC_RELAXED);
	if (last > counts.passed)
		counts.passed = last;
	return 0;
}

int cuGraphGetEdges(void *graph, void **from, void **to, size_t *edges)
{
	(void)graph, (void)from, (void)to;
	*edges = 0;
	return 0;
}

/* A launch records nothing: the events of graphs have always passed. */
int cuGraphAddEventRecordNode(void **node, void *graph, void *const *behind, size_t of, void *event)
{
	(void)graph, (void)behind, (void)of;
	*node = event;
	return 0;
}

int cuGraphDestroyNode(void *node)
{
	(void)node;
	return 0;
}
