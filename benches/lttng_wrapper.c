/* A preload as one would write it with LTTng-UST instead of the shim: it records each copy by a tracepoint before the
 * real function, found once before, and one after it. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "null_cuda.h"

#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "lttng_copies.h"

enum { RUNTIME_COPY, DRIVER_COPY };

static __typeof__(cudaMemcpyPeerAsync) *real_cuda;
static memcpy_peer_async_t *real_peer;

__attribute__((constructor)) static void find(void)
{
	*(void **)&real_cuda = dlsym(RTLD_NEXT, "cudaMemcpyPeerAsync");
	*(void **)&real_peer = dlsym(RTLD_NEXT, "cuMemcpyPeerAsync");
}

int cudaMemcpyPeerAsync(void *dst, int dstDevice, const void *src, int srcDevice, size_t count, void *stream)
{
	lttng_ust_tracepoint(p2pshim_bench, begin, RUNTIME_COPY, (uintptr_t)src, (uintptr_t)dst, count, stream);
	int result = real_cuda(dst, dstDevice, src, srcDevice, count, stream);
	lttng_ust_tracepoint(p2pshim_bench, end, RUNTIME_COPY, result);
	return result;
}

int cuMemcpyPeerAsync(uint64_t dst, void *dstContext, uint64_t src, void *srcContext, size_t count, void *stream)
{
	lttng_ust_tracepoint(p2pshim_bench, begin, DRIVER_COPY, src, dst, count, stream);
	int result = real_peer(dst, dstContext, src, srcContext, count, stream);
	lttng_ust_tracepoint(p2pshim_bench, end, DRIVER_COPY, result);
	return result;
}
