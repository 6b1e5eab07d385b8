/* The floor: a preload that does nothing but jump to the real function, found once before. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "null_cuda.h"

static __typeof__(cudaMemcpyPeerAsync) *real_cuda;
static memcpy_peer_async_t *real_cu;

__attribute__((constructor)) static void find(void)
{
	*(void **)&real_cuda = dlsym(RTLD_NEXT, "cudaMemcpyPeerAsync");
	*(void **)&real_cu = dlsym(RTLD_NEXT, "cuMemcpyPeerAsync");
}

int cudaMemcpyPeerAsync(void *dst, int dstDevice, const void *src, int srcDevice, size_t count, void *stream)
{
	return real_cuda(dst, dstDevice, src, srcDevice, count, stream);
}

int cuMemcpyPeerAsync(uint64_t dst, void *dstContext, uint64_t src, void *srcContext, size_t count, void *stream)
{
	return real_cu(dst, dstContext, src, srcContext, count, stream);
}
