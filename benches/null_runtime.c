/* libcudart.so.12 without anything behind it: what remains of a call is what reaching it costs. */
#include "null_cuda.h"

int cudaMemcpyPeerAsync(void *dst, int dstDevice, const void *src, int srcDevice, size_t count, void *stream)
{
	(void)dst, (void)dstDevice, (void)src, (void)srcDevice, (void)count;
	return answer(stream);
}
