/* The floor: a preload that does nothing but jump to the real function, found once before. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "null_cuda.h"

static __typeof__(cudaMemcpyPeerAsync) *real_cuda;
static __typeof__(cudaMemcpyAsync) *real_cuda_regular;
static memcpy_peer_async_t *real_peer, *real_peer_ptsz;
static memcpy_async_t *real_regular, *real_dtod;
static memcpy_3d_peer_async_t *real_3d;
static mem_free_async_t *real_free;
static __typeof__(cuGraphLaunch) *real_launch;
static __typeof__(cuGraphInstantiateWithFlags) *real_instantiate;

__attribute__((constructor)) static void find(void)
{
	*(void **)&real_cuda = dlsym(RTLD_NEXT, "cudaMemcpyPeerAsync");
	*(void **)&real_cuda_regular = dlsym(RTLD_NEXT, "cudaMemcpyAsync");
	*(void **)&real_regular = dlsym(RTLD_NEXT, "cuMemcpyAsync");
	*(void **)&real_dtod = dlsym(RTLD_NEXT, "cuMemcpyDtoDAsync_v2");
	*(void **)&real_peer = dlsym(RTLD_NEXT, "cuMemcpyPeerAsync");
	*(void **)&real_peer_ptsz = dlsym(RTLD_NEXT, "cuMemcpyPeerAsync_ptsz");
	*(void **)&real_3d = dlsym(RTLD_NEXT, "cuMemcpy3DPeerAsync");
	*(void **)&real_launch = dlsym(RTLD_NEXT, "cuGraphLaunch");
	*(void **)&real_instantiate = dlsym(RTLD_NEXT, "cuGraphInstantiateWithFlags");
	*(void **)&real_free = dlsym(RTLD_NEXT, "cuMemFreeAsync");
}

int cudaMemcpyPeerAsync(void *dst, int dstDevice, const void *src, int srcDevice, size_t count, void *stream)
{
	return real_cuda(dst, dstDevice, src, srcDevice, count, stream);
}

int cudaMemcpyAsync(void *dst, const void *src, size_t count, int kind, void *stream)
{
	return real_cuda_regular(dst, src, count, kind, stream);
}

int cuMemcpyAsync(uint64_t dst, uint64_t src, size_t count, void *stream)
{
	return real_regular(dst, src, count, stream);
}

int cuMemcpyDtoDAsync_v2(uint64_t dst, uint64_t src, size_t count, void *stream)
{
	return real_dtod(dst, src, count, stream);
}

int cuMemcpyPeerAsync(uint64_t dst, void *dstContext, uint64_t src, void *srcContext, size_t count, void *stream)
{
	return real_peer(dst, dstContext, src, srcContext, count, stream);
}

int cuMemcpyPeerAsync_ptsz(uint64_t dst, void *dstContext, uint64_t src, void *srcContext, size_t count, void *stream)
{
	return real_peer_ptsz(dst, dstContext, src, srcContext, count, stream);
}

int cuMemcpy3DPeerAsync(const struct memcpy_3d_peer *copy, void *stream)
{
	return real_3d(copy, stream);
}

int cuMemFreeAsync(uint64_t pointer, void *stream)
{
	return real_free(pointer, stream);
}

int cuGraphLaunch(void *exec, void *stream)
{
	return real_launch(exec, stream);
}

int cuGraphInstantiateWithFlags(void **exec, void *graph, uint64_t flags)
{
	return real_instantiate(exec, graph, flags);
}
