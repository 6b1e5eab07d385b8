/* libcudart.so.12 with nothing behind it but the driver's copies: what remains of a call is what reaching it
 * costs.
 *
 * Linked without the driver: its calls go where the program's would, to a preload if there is one. */
#include "null_cuda.h"

static _Thread_local int last_error;

/* Like NVIDIA's it looks at what the driver answers, so it calls and does not jump. */
static int noted(int code)
{
	if (code)
		last_error = code;
	return code;
}

static void *primary(int device)
{
	static void *known[2];
	if (!known[device & 1])
		cuDevicePrimaryCtxRetain(&known[device & 1], device);
	return known[device & 1];
}

int cudaMemcpyPeerAsync(void *dst, int dstDevice, const void *src, int srcDevice, size_t count, void *stream)
{
	return noted(cuMemcpyPeerAsync((uintptr_t)dst, primary(dstDevice), (uintptr_t)src, primary(srcDevice), count, stream));
}

int cudaMemcpyAsync(void *dst, const void *src, size_t count, int kind, void *stream)
{
	switch (kind) {
	case DEVICE_TO_DEVICE:
		return noted(cuMemcpyDtoDAsync_v2((uintptr_t)dst, (uintptr_t)src, count, stream));
	case DEFAULT:
		return noted(cuMemcpyAsync((uintptr_t)dst, (uintptr_t)src, count, stream));
	}
	return answer(stream);
}

int null_last_error(void)
{
	int code = last_error;
	last_error = 0;
	return code;
}
