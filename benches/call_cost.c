/* call_cost ROUTE THREADS CALLS LIBRARY: CPU time of one call in ns, the median over threads.
 *
 * ROUTE is how the program comes by the function: runtime and driver are linked symbols; lookup asks
 * cuGetProcAddress as the CUDA runtime does. LIBRARY is the file that the called code must lie in;
 * anything else ends the program, since a figure for the wrong code is worse than none.
 * CPU time, so that waiting for a core does not count. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "null_cuda.h"

enum { MAX_THREADS = 64, WARM_UP = 1000, BYTES = 4096 };
#define DST 0x7f0000000000
#define SRC 0x7e0000000000

static memcpy_peer_async_t *looked_up;

static int call_runtime(void *stream)
{
	return cudaMemcpyPeerAsync((void *)DST, 1, (void *)SRC, 0, BYTES, stream);
}

static int call_driver(void *stream)
{
	return cuMemcpyPeerAsync(DST, (void *)DST, SRC, (void *)SRC, BYTES, stream);
}

static int call_lookup(void *stream)
{
	return looked_up(DST, (void *)DST, SRC, (void *)SRC, BYTES, stream);
}

/* The call is inlined into its loop; answers whether every call succeeded. */
#define LOOP(route)                                      \
	static int loop_##route(long calls)              \
	{                                                \
		int codes = 0;                           \
		while (calls--)                          \
			codes |= call_##route(NULL);     \
		return codes == 0;                       \
	}
LOOP(runtime)
LOOP(driver)
LOOP(lookup)

static const struct route {
	const char *name;
	int (*call)(void *stream);
	int (*loop)(long calls);
} routes[] = {
	{ "runtime", call_runtime, loop_runtime },
	{ "driver", call_driver, loop_driver },
	{ "lookup", call_lookup, loop_lookup },
};

static const struct route *route;
static long calls;
static pthread_barrier_t start;

static void fail(const char *what, const char *detail)
{
	fprintf(stderr, "call_cost: %s: %s\n", what, detail);
	exit(2);
}

static memcpy_peer_async_t *look_up(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	get_proc_address_t *get = NULL;
	void *found = NULL;
	if (driver)
		*(void **)&get = dlsym(driver, "cuGetProcAddress_v2");
	if (!get || get("cuMemcpyPeerAsync", &found, 4000, 0, NULL))
		fail("look-up failed", "cuMemcpyPeerAsync");
	return (memcpy_peer_async_t *)found;
}

/* The code that the route's calls go to first. */
static void *target(void)
{
	if (route->call == call_runtime)
		return (void *)cudaMemcpyPeerAsync;
	return route->call == call_driver ? (void *)cuMemcpyPeerAsync : (void *)looked_up;
}

static void check_target(const char *library)
{
	Dl_info info;
	if (!dladdr(target(), &info))
		fail("called code lies nowhere", route->name);
	const char *slash = strrchr(info.dli_fname, '/');
	if (strcmp(slash ? slash + 1 : info.dli_fname, library) != 0)
		fail("calls go elsewhere", info.dli_fname);
	if (route->call((void *)1234) != 1234)
		fail("calls do not arrive at the null library", route->name);
}

static double cpu_time_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return now.tv_sec * 1e9 + now.tv_nsec;
}

static void *measure(void *ns_per_call)
{
	int succeeded = route->loop(WARM_UP);
	pthread_barrier_wait(&start);
	double since = cpu_time_ns();
	succeeded &= route->loop(calls);
	*(double *)ns_per_call = (cpu_time_ns() - since) / calls;
	if (!succeeded)
		fail("a call failed", route->name);
	return NULL;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	if (argc != 5)
		fail("usage", "call_cost ROUTE THREADS CALLS LIBRARY");
	for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
		if (strcmp(argv[1], routes[i].name) == 0)
			route = &routes[i];
	int threads = atoi(argv[2]);
	calls = atol(argv[3]);
	if (!route || threads < 1 || threads > MAX_THREADS || calls < 1)
		fail("bad argument", argv[1]);

	/* A jump-only preload does not hook look-ups: there, its symbol stands for what one would give. */
	looked_up = strcmp(argv[4], "libjump_only.so") == 0 ? cuMemcpyPeerAsync : look_up();
	check_target(argv[4]);

	pthread_t thread[MAX_THREADS];
	double ns[MAX_THREADS];
	pthread_barrier_init(&start, NULL, threads);
	for (int i = 0; i < threads; i++)
		if (pthread_create(&thread[i], NULL, measure, &ns[i]))
			fail("cannot create a thread", argv[2]);
	for (int i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	qsort(ns, threads, sizeof *ns, ascending);
	printf("%.3f\n", (ns[(threads - 1) / 2] + ns[threads / 2]) / 2);
	return 0;
}
