/* many_streams streams|graphs|made|under-way COUNT [CALLS]: what copies between two devices cost that the shim has made direct, if there
 * are many streams or executable graphs. On the null driver with events.
 *
 *   streams     COUNT streams take turns with CALLS copies; for callgrind, which counts in loop_ functions
 *   graphs      the same with executable graphs of a copy
 *   made        COUNT copies, each on a stream of its own that is destroyed soon; 16 are under way at a time. Prints by how many bytes
 *               allocated and anonymous memory have grown since a tenth of the copies
 *   under-way   COUNT copies, each on a stream of its own, none of which ends before the other context is synchronized; then as many follow.
 *               Prints the bytes of a copy, allocated and anonymous, the queries of events for each of the first copies, how many copies the
 *               synchronization did not wait for, and how many events were made for the second ones
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "null_cuda.h"

/* The driver defines them with types of its own. */
int cuCtxPushCurrent_v2(void *context);
int cuCtxPopCurrent_v2(void **context);

enum { BYTES = 8192, WARM_UP_BYTES = 1 << 20, WARM_UPS = 64, AT_A_TIME = 16, TURNS = 2 };

static void *contexts[DEVICES];

static void require(int holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "many_streams: %s\n", what);
	exit(2);
}

static int copy(void *stream, size_t bytes)
{
	return cuMemcpyPeerAsync(LARGE(1), contexts[1], LARGE(0), contexts[0], bytes, stream);
}

static void *new_stream(void)
{
	void *stream;
	require(cuStreamCreate(&stream, 1) == 0, "no stream");
	return stream;
}

/* So many copies that the pair is direct. */
static void prepare(void)
{
	for (int device = 0; device < DEVICES; device++)
		require(cuDevicePrimaryCtxRetain(&contexts[device], device) == 0, "no context");
	null_events()->passed = UINT64_MAX;
	void *stream = new_stream();
	for (int i = 0; i < WARM_UPS; i++)
		require(copy(stream, WARM_UP_BYTES) == 0, "a copy failed");
	null_events()->passed = null_events()->recorded;
}

/* Memory that does not count. */
static void *shared(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	require(memory != MAP_FAILED, "no memory");
	return memory;
}

/* ---- Turns ---- */

/* Further apart than it is large, as graphs of a driver are. */
struct graph {
	struct null_graph graph;
	char apart[512];
};

/* Not inlined: callgrind has to find them. */
__attribute__((noinline)) static int loop_streams(void **streams, size_t count, long calls)
{
	int codes = 0;
	for (size_t at = 0; calls--; at = at + 1 < count ? at + 1 : 0)
		codes |= copy(streams[at], BYTES);
	return codes;
}

__attribute__((noinline)) static int loop_graphs(void **execs, size_t count, void *stream, long calls)
{
	int codes = 0;
	for (size_t at = 0; calls--; at = at + 1 < count ? at + 1 : 0)
		codes |= cuGraphLaunch(execs[at], stream);
	return codes;
}

static void turns_of_streams(size_t count, long calls)
{
	void **streams = shared(count * sizeof *streams);
	for (size_t i = 0; i < count; i++)
		streams[i] = new_stream();
	for (size_t i = 0; i < count * TURNS; i++)
		require(copy(streams[i % count], BYTES) == 0, "a copy failed");
	null_events()->passed = UINT64_MAX;
	require(loop_streams(streams, count, calls) == 0, "a copy failed");
}

static void turns_of_graphs(size_t count, long calls)
{
	void **execs = shared(count * sizeof *execs), *stream = new_stream();
	struct graph *graphs = shared(count * sizeof *graphs);
	for (size_t i = 0; i < count; i++) {
		graphs[i].graph = (struct null_graph){ .dst = LARGE(1), .src = LARGE(0), .nodes = 1 };
		require(cuGraphInstantiateWithFlags(&execs[i], &graphs[i].graph, 0) == 0, "no graph");
	}
	for (size_t i = 0; i < count * TURNS; i++)
		require(cuGraphLaunch(execs[i % count], stream) == 0, "a launch failed");
	null_events()->passed = UINT64_MAX;
	require(loop_graphs(execs, count, stream, calls) == 0, "a launch failed");
}

/* ---- Memory ---- */

struct memory {
	double allocated, anonymous;
};

static struct memory memory(void)
{
	struct mallinfo2 heap = mallinfo2();
	char line[256];
	long kib = 0;
	FILE *status = fopen("/proc/self/status", "r");
	require(status != NULL, "no /proc");
	while (fgets(line, sizeof line, status) && sscanf(line, "RssAnon: %ld", &kib) != 1)
		;
	fclose(status);
	return (struct memory){ (double)(heap.uordblks + heap.hblkhd), kib * 1024.0 };
}

static void made_and_destroyed(long count)
{
	void *under_way[AT_A_TIME] = { NULL };
	struct memory before = memory();
	for (long i = 0; i < count; i++) {
		void **place = &under_way[i % AT_A_TIME];
		if (*place) {
			null_events()->passed = null_events()->recorded - AT_A_TIME + 1;
			require(cuStreamDestroy_v2(*place) == 0, "a stream is not destroyed");
		}
		*place = new_stream();
		require(copy(*place, BYTES) == 0, "a copy failed");
		if (i == count / 10)
			before = memory();
	}
	struct memory after = memory();
	printf("allocated %.0f\nanonymous %.0f\n", after.allocated - before.allocated, after.anonymous - before.anonymous);
}

static void copies_on_new_streams(long count)
{
	for (long i = 0; i < count; i++)
		require(copy(new_stream(), BYTES) == 0, "a copy failed");
}

static void all_under_way(long count)
{
	struct null_events before = *null_events();
	struct memory empty = memory();
	copies_on_new_streams(count);
	struct memory full = memory();
	struct null_events during = *null_events();
	require(cuCtxPushCurrent_v2(contexts[1]) == 0 && cuCtxSynchronize() == 0, "no synchronization");
	require(cuCtxPopCurrent_v2(&(void *){ NULL }) == 0, "no context");
	/* Each event stands for one copy, and who waits for one has waited for those before. */
	long waited = (long)(null_events()->passed - before.recorded);
	null_events()->passed = null_events()->recorded;
	copies_on_new_streams(count);
	printf("allocated %.1f\nanonymous %.1f\n", (full.allocated - empty.allocated) / count, (full.anonymous - empty.anonymous) / count);
	printf("queries %.2f\nmissed %ld\n", (double)(during.queried - before.queried) / count, waited < count ? count - waited : 0);
	printf("created %ld\n", (long)(null_events()->created - during.created));
}

int main(int argc, char **argv)
{
	require(argc > 2, "usage: many_streams streams|graphs|made|under-way COUNT [CALLS]");
	long count = atol(argv[2]), calls = argc > 3 ? atol(argv[3]) : count;
	prepare();
	if (strcmp(argv[1], "streams") == 0)
		turns_of_streams((size_t)count, calls);
	else if (strcmp(argv[1], "graphs") == 0)
		turns_of_graphs((size_t)count, calls);
	else if (strcmp(argv[1], "made") == 0)
		made_and_destroyed(count);
	else
		all_under_way(count);
	return 0;
}
