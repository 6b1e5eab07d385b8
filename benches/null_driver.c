/* libcuda.so.1 without anything behind it. Linked with -Bsymbolic: like NVIDIA's, its cuGetProcAddress
 * hands out its own functions, whatever is preloaded. */
#include <string.h>

#include "null_cuda.h"

int cuMemcpyPeerAsync(uint64_t dst, void *dstContext, uint64_t src, void *srcContext, size_t count, void *stream)
{
	(void)dst, (void)dstContext, (void)src, (void)srcContext, (void)count;
	return answer(stream);
}

/* Asked while a call is shown: which device an address lies on. */
int cuPointerGetAttribute(void *data, int attribute, uint64_t pointer)
{
	(void)attribute, (void)pointer;
	*(int *)data = 0;
	return 0;
}

int cuGetProcAddress_v2(const char *symbol, void **pfn, int version, uint64_t flags, int *status)
{
	(void)flags;
	int found = strcmp(symbol, "cuMemcpyPeerAsync") == 0 && version >= 4000;
	*pfn = found ? (void *)cuMemcpyPeerAsync : NULL;
	if (status)
		*status = !found;
	return found ? 0 : 500; /* CUDA_ERROR_NOT_FOUND */
}
