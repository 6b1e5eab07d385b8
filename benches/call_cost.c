/* call_cost ROUTE MEMORY THREADS CALLS LIBRARY [capture]: CPU time of one call in ns, the median over
 * threads.
 *
 * ROUTE is how the program comes by the function, and which it is: runtime, driver and driver-3d are
 * peer copies and free is cuMemFreeAsync, all linked symbols; lookup asks cuGetProcAddress as the CUDA
 * runtime does. other-free, pool, access and context change something that the copies have nothing to do with; after-free, after-pool,
 * after-access and after-context are such a change and then a copy. The others are regular copies, linked: regular and same-device are cuMemcpyDtoDAsync_v2, and
 * runtime-same-device, runtime-to-device and runtime-default-host are cudaMemcpyAsync of the kind that they name. All are on
 * stream 0.
 *
 * MEMORY is what is copied: one allocation of each device (pair), or 64 small ones in turn (small). Where a route does not go between devices, device 0 stands for device 1, or the host for device 0.
 * LIBRARY is the file that the called code must lie in; anything else ends the program, since a figure for the
 * wrong code is worse than none. The function that the runtime calls in turn must lie in LIBRARY too, if that is a preload.
 * With `capture` another stream is being captured all the time.
 * CPU time, so that waiting for a core does not count. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "null_cuda.h"

/* The drivers define them with types of their own. */
int cuCtxEnablePeerAccess(void *peer, unsigned flags);
int cuCtxDisablePeerAccess(void *peer);
int cuCtxGetCurrent(void **context);

enum { MAX_THREADS = 64, WARM_UP = 1000, BYTES = 256, ARRIVED = 1236, NODES = 10 };

static const struct memory {
	const char *name;
	/* The first address on device 0 and on device 1; what comes after it, and when it begins anew. */
	uint64_t src, dst;
	size_t step, span;
	/* It stands for the first address on device 1 in copies on device 0. */
	uint64_t dst_on_0;
} memories[] = {
	{ "pair", LARGE(0), LARGE(1), 0, 1, LARGE(0) + LARGE_BYTES / 2 },
	{ "small", SMALL(0), SMALL(1), SMALL_BYTES, 64 * SMALL_BYTES, SMALL(0) + SMALL_BLOCK / 2 },
};

static struct memory memory;
static memcpy_peer_async_t *looked_up;
static void *contexts[DEVICES];

static int call_runtime(uint64_t dst, uint64_t src, void *stream)
{
	return cudaMemcpyPeerAsync((void *)dst, 1, (void *)src, 0, BYTES, stream);
}

static int call_driver(uint64_t dst, uint64_t src, void *stream)
{
	return cuMemcpyPeerAsync(dst, contexts[1], src, contexts[0], BYTES, stream);
}

static int call_lookup(uint64_t dst, uint64_t src, void *stream)
{
	return looked_up(dst, contexts[1], src, contexts[0], BYTES, stream);
}

static int call_dtod(uint64_t dst, uint64_t src, void *stream)
{
	return cuMemcpyDtoDAsync_v2(dst, src, BYTES, stream);
}

static int call_runtime_dtod(uint64_t dst, uint64_t src, void *stream)
{
	return cudaMemcpyAsync((void *)dst, (void *)src, BYTES, DEVICE_TO_DEVICE, stream);
}

static int call_runtime_to_device(uint64_t dst, uint64_t src, void *stream)
{
	return cudaMemcpyAsync((void *)dst, (void *)src, BYTES, HOST_TO_DEVICE, stream);
}

static int call_runtime_default(uint64_t dst, uint64_t src, void *stream)
{
	return cudaMemcpyAsync((void *)dst, (void *)src, BYTES, DEFAULT, stream);
}

/* As programs do it: the parameters of one copy are changed for the next. */
static int call_driver_3d(uint64_t dst, uint64_t src, void *stream)
{
	static _Thread_local struct memcpy_3d_peer copy = {
		.srcMemoryType = MEMORYTYPE_DEVICE, .dstMemoryType = MEMORYTYPE_DEVICE,
		.WidthInBytes = BYTES, .Height = 1, .Depth = 1,
	};
	copy.srcContext = (uintptr_t)contexts[0];
	copy.dstContext = (uintptr_t)contexts[1];
	copy.dstDevice = dst;
	copy.srcDevice = src;
	return cuMemcpy3DPeerAsync(&copy, stream);
}

static int call_free(uint64_t dst, uint64_t src, void *stream)
{
	(void)src;
	return cuMemFreeAsync(dst, stream);
}

/* Changes of other memory, of a pool, of a third context's access, and of such a context. Each is a call that takes a stream last, or none. */
static void *pool, *third;

static int call_other_free(uint64_t dst, uint64_t src, void *stream)
{
	(void)dst, (void)src;
	return cuMemFreeAsync(SMALL(1), stream);
}

static int call_pool(uint64_t dst, uint64_t src, void *stream)
{
	(void)dst, (void)src;
	static const int grant[3] = { 1, 1, 3 }; /* device 1 may read and write */
	int code = cuMemPoolSetAccess(pool, grant, 1);
	return code ? code : answer(stream);
}

static int call_access(uint64_t dst, uint64_t src, void *stream)
{
	(void)dst, (void)src;
	int code = cuCtxDisablePeerAccess(third) | cuCtxEnablePeerAccess(third, 0);
	return code ? code : answer(stream);
}

static int call_context(uint64_t dst, uint64_t src, void *stream)
{
	(void)dst, (void)src;
	int code = cuCtxDestroy_v2(third);
	return code ? code : answer(stream);
}

/* Calls that only wait, record or ask, and a copy to the host. */
static int call_synchronize(uint64_t dst, uint64_t src, void *stream)
{
	(void)dst, (void)src;
	return cuStreamSynchronize(stream);
}

static int call_event(uint64_t dst, uint64_t src, void *stream)
{
	(void)dst, (void)src;
	return cuEventRecord(NULL, stream);
}

static int call_to_host(uint64_t dst, uint64_t src, void *stream)
{
	static char host[128 << 10];
	(void)dst;
	return cuMemcpyDtoHAsync_v2(host, src, sizeof host, stream);
}

static int call_peers(uint64_t dst, uint64_t src, void *stream)
{
	(void)dst, (void)src;
	int can;
	int code = cuDeviceCanAccessPeer(&can, 0, 1);
	return code ? code : answer(stream);
}

/* A change, and the copy that comes after it. */
#define AFTER(change)                                                                        \
	static int call_after_##change(uint64_t dst, uint64_t src, void *stream)                 \
	{                                                                                        \
		return call_##change(dst, src, stream) | call_driver(dst, src, stream);              \
	}
AFTER(other_free)
AFTER(pool)
AFTER(access)
AFTER(context)

/* The graph that is launched, and one between devices. */
static struct null_graph launched, between;
static void *exec;

static int call_graph(uint64_t dst, uint64_t src, void *stream)
{
	(void)dst, (void)src;
	return cuGraphLaunch(exec, stream);
}

/* The driver gets the stream as flags, and so answers as to a launch. */
static int call_instantiate(uint64_t dst, uint64_t src, void *stream)
{
	(void)dst, (void)src;
	int code = cuGraphInstantiateWithFlags(&exec, &launched, (uintptr_t)stream);
	return code ? code : cuGraphExecDestroy(exec);
}

/* The call is inlined into its loop; says whether every call succeeded. */
#define LOOP(route)                                                                                  \
	static int loop_##route(long calls)                                                          \
	{                                                                                            \
		int codes = 0;                                                                       \
		const struct memory of = memory;                                                     \
		for (size_t at = 0; calls--; at = (at + of.step) & (of.span - 1))                    \
			codes |= call_##route(of.dst + at, of.src + at, NULL);                       \
		return codes == 0;                                                                   \
	}
LOOP(runtime)
LOOP(driver)
LOOP(lookup)
LOOP(driver_3d)
LOOP(dtod)
LOOP(runtime_dtod)
LOOP(runtime_to_device)
LOOP(runtime_default)
LOOP(free)
LOOP(other_free)
LOOP(pool)
LOOP(access)
LOOP(context)
LOOP(after_other_free)
LOOP(after_pool)
LOOP(after_access)
LOOP(after_context)
LOOP(graph)
LOOP(instantiate)
LOOP(synchronize)
LOOP(event)
LOOP(to_host)
LOOP(peers)

static const struct route {
	const char *name;
	int (*call)(uint64_t dst, uint64_t src, void *stream);
	int (*loop)(long calls);
	enum { BETWEEN_DEVICES, ON_DEVICE, FROM_HOST } ends;
	enum { NOTHING, ALONE, BEFORE_A_COPY } changes;
} routes[] = {
	{ "runtime", call_runtime, loop_runtime, BETWEEN_DEVICES, NOTHING },
	{ "driver", call_driver, loop_driver, BETWEEN_DEVICES, NOTHING },
	{ "lookup", call_lookup, loop_lookup, BETWEEN_DEVICES, NOTHING },
	{ "driver-3d", call_driver_3d, loop_driver_3d, BETWEEN_DEVICES, NOTHING },
	{ "regular", call_dtod, loop_dtod, BETWEEN_DEVICES, NOTHING },
	{ "same-device", call_dtod, loop_dtod, ON_DEVICE, NOTHING },
	{ "runtime-same-device", call_runtime_dtod, loop_runtime_dtod, ON_DEVICE, NOTHING },
	{ "runtime-to-device", call_runtime_to_device, loop_runtime_to_device, FROM_HOST, NOTHING },
	{ "runtime-default-host", call_runtime_default, loop_runtime_default, FROM_HOST, NOTHING },
	{ "other-free", call_other_free, loop_other_free, BETWEEN_DEVICES, ALONE },
	{ "pool", call_pool, loop_pool, BETWEEN_DEVICES, ALONE },
	{ "access", call_access, loop_access, BETWEEN_DEVICES, ALONE },
	{ "context", call_context, loop_context, BETWEEN_DEVICES, ALONE },
	{ "after-free", call_after_other_free, loop_after_other_free, BETWEEN_DEVICES, BEFORE_A_COPY },
	{ "after-pool", call_after_pool, loop_after_pool, BETWEEN_DEVICES, BEFORE_A_COPY },
	{ "after-access", call_after_access, loop_after_access, BETWEEN_DEVICES, BEFORE_A_COPY },
	{ "after-context", call_after_context, loop_after_context, BETWEEN_DEVICES, BEFORE_A_COPY },
	{ "graph", call_graph, loop_graph, BETWEEN_DEVICES, NOTHING },
	{ "graph-on-device", call_graph, loop_graph, ON_DEVICE, NOTHING },
	{ "instantiate", call_instantiate, loop_instantiate, BETWEEN_DEVICES, NOTHING },
	{ "synchronize", call_synchronize, loop_synchronize, BETWEEN_DEVICES, NOTHING },
	{ "event", call_event, loop_event, BETWEEN_DEVICES, NOTHING },
	{ "to-host", call_to_host, loop_to_host, BETWEEN_DEVICES, NOTHING },
	{ "peers", call_peers, loop_peers, BETWEEN_DEVICES, NOTHING },
	{ "free", call_free, loop_free, BETWEEN_DEVICES, NOTHING },
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
	if (route->call == call_dtod)
		return (void *)cuMemcpyDtoDAsync_v2;
	if (route->call == call_runtime_dtod || route->call == call_runtime_to_device || route->call == call_runtime_default)
		return (void *)cudaMemcpyAsync;
	if (route->call == call_driver_3d)
		return (void *)cuMemcpy3DPeerAsync;
	if (route->call == call_graph)
		return (void *)cuGraphLaunch;
	if (route->call == call_instantiate)
		return (void *)cuGraphInstantiateWithFlags;
	if (route->call == call_free || route->call == call_other_free)
		return (void *)cuMemFreeAsync;
	if (route->call == call_pool)
		return (void *)cuMemPoolSetAccess;
	if (route->call == call_access)
		return (void *)cuCtxEnablePeerAccess;
	if (route->call == call_synchronize)
		return (void *)cuStreamSynchronize;
	if (route->call == call_event)
		return (void *)cuEventRecord;
	if (route->call == call_to_host)
		return (void *)cuMemcpyDtoHAsync_v2;
	if (route->call == call_peers)
		return (void *)cuDeviceCanAccessPeer;
	if (route->call == call_context)
		return (void *)cuCtxDestroy_v2;
	return route->call == call_lookup ? (void *)looked_up : (void *)cuMemcpyPeerAsync;
}

/* The code that the runtime goes to in turn, which is found as the program's is; or none. */
static void *inner_target(void)
{
	if (route->call == call_runtime_dtod)
		return (void *)cuMemcpyDtoDAsync_v2;
	return route->call == call_runtime_default ? (void *)cuMemcpyAsync : NULL;
}

static void check_lies_in(void *code, const char *library)
{
	Dl_info info;
	if (!dladdr(code, &info))
		fail("called code lies nowhere", route->name);
	const char *slash = strrchr(info.dli_fname, '/');
	if (strcmp(slash ? slash + 1 : info.dli_fname, library) != 0)
		fail("calls go elsewhere", info.dli_fname);
}

static void check_target(const char *library)
{
	check_lies_in(target(), library);
	if (inner_target())
		check_lies_in(inner_target(), strcmp(library, "libcudart.so.12") == 0 ? "libcuda.so.1" : library);
	if (route->call(memory.dst, memory.src, (void *)ARRIVED) != ARRIVED)
		fail("calls do not arrive at the null library", route->name);
	/* The runtime notes what the driver answers, and nothing else. */
	if (inner_target() && null_last_error() != ARRIVED)
		fail("calls do not arrive at the null driver", route->name);
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
	/* It is measured where copies are known. */
	if (route->changes == ALONE)
		succeeded &= loop_driver(WARM_UP);
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
	if (argc != 6 && (argc != 7 || strcmp(argv[6], "capture") != 0))
		fail("usage", "call_cost ROUTE MEMORY THREADS CALLS LIBRARY [capture]");
	for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
		if (strcmp(argv[1], routes[i].name) == 0)
			route = &routes[i];
	for (size_t i = 0; i < sizeof memories / sizeof *memories; i++)
		if (strcmp(argv[2], memories[i].name) == 0)
			memory = memories[i];
	int threads = atoi(argv[3]);
	calls = atol(argv[4]);
	if (!route || !memory.name || threads < 1 || threads > MAX_THREADS || calls < 1)
		fail("bad argument", argv[1]);
	if (route->ends == ON_DEVICE)
		memory.dst = memory.dst_on_0;
	if (route->ends == FROM_HOST)
		memory.src = HOST;
	if (argc == 7 && cuStreamBeginCapture_v2((void *)4321, 0))
		fail("cannot begin a capture", argv[1]);

	for (int device = 0; device < DEVICES; device++) {
		if (cuDevicePrimaryCtxRetain(&contexts[device], device))
			fail("no context", argv[1]);
	}
	const uint64_t on_device_0[11] = { 1, 1 };
	if (route->changes && (cuCtxCreate_v2(&third, 0, 1) || cuMemPoolCreate(&pool, on_device_0) || cuCtxEnablePeerAccess(third, 0)))
		fail("no third context, or no pool", argv[1]);

	/* Behind copies that the shim has made direct there is an event more. */
	for (int device = 0; device < DEVICES && getenv("CALL_COST_ENABLES"); device++) {
		void *current = NULL;
		if (cuCtxGetCurrent(&current) == 0 && current != contexts[device] && cuCtxEnablePeerAccess(contexts[device], 0))
			fail("no peer access", argv[1]);
	}

	/* One between devices is there in any case. */
	between = (struct null_graph){ .dst = memories[0].dst, .src = memories[0].src, .nodes = 1 };
	launched = (struct null_graph){ .dst = memory.dst, .src = memory.src, .nodes = NODES };
	if (strncmp(route->name, "graph", 5) == 0 &&
	    (cuGraphInstantiateWithFlags(&exec, &between, 0) || cuGraphInstantiateWithFlags(&exec, &launched, 0)))
		fail("cannot instantiate a graph", argv[1]);

	/* A jump-only preload does not hook look-ups: there, its symbol stands for what one would give. */
	looked_up = strcmp(argv[5], "libjump_only.so") == 0 ? cuMemcpyPeerAsync : look_up();
	check_target(argv[5]);

	pthread_t thread[MAX_THREADS];
	double ns[MAX_THREADS];
	pthread_barrier_init(&start, NULL, threads);
	for (int i = 0; i < threads; i++)
		if (pthread_create(&thread[i], NULL, measure, &ns[i]))
			fail("cannot create a thread", argv[3]);
	for (int i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	qsort(ns, threads, sizeof *ns, ascending);
	printf("%.3f\n", (ns[(threads - 1) / 2] + ns[threads / 2]) / 2);
	return 0;
}
