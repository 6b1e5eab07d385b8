/* What the benchmarks use of CUDA's interface, as far as a caller's machine code is concerned. */
#ifndef NULL_CUDA_H
#define NULL_CUDA_H

#include <stddef.h>
#include <stdint.h>

typedef int memcpy_peer_async_t(uint64_t dst, void *dstContext, uint64_t src, void *srcContext, size_t count,
				void *stream);
typedef int get_proc_address_t(const char *symbol, void **pfn, int version, uint64_t flags, int *status);

int cudaMemcpyPeerAsync(void *dst, int dstDevice, const void *src, int srcDevice, size_t count, void *stream);
memcpy_peer_async_t cuMemcpyPeerAsync;
get_proc_address_t cuGetProcAddress_v2;

/* The null functions answer with the stream they are given: NULL is success, and any other value that
 * comes back shows that the call arrived, its last argument intact. */
static inline int answer(void *stream)
{
	return (int)(uintptr_t)stream;
}

#endif
