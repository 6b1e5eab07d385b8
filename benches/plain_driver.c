/* Another libcuda.so.1 with nothing behind it: it tells the context, device and range of memory and the context of a
 * stream, and hands out the function that is measured. All else that the shim may ask for succeeds and writes nothing,
 * CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE among it: so memory may be another process's, and the path of a copy
 * stays unknown. The path is decided all the same, and such a copy may cost no more than others. */
#include <string.h>

#include "null_cuda.h"

int cuMemcpyPeerAsync(uint64_t dst, void *dstContext, uint64_t src, void *srcContext, size_t count, void *stream)
{
	(void)dst, (void)dstContext, (void)src, (void)srcContext, (void)count;
	return answer(stream);
}

int cuMemcpyPeerAsync_ptsz(uint64_t dst, void *dstContext, uint64_t src, void *srcContext, size_t count, void *stream)
{
	(void)dst, (void)dstContext, (void)src, (void)srcContext, (void)count;
	return answer(stream);
}

int cuMemcpy3DPeerAsync(const struct memcpy_3d_peer *copy, void *stream)
{
	(void)copy;
	return answer(stream);
}

int cuMemcpyAsync(uint64_t dst, uint64_t src, size_t count, void *stream)
{
	(void)dst, (void)src, (void)count;
	return answer(stream);
}

int cuMemcpyDtoDAsync_v2(uint64_t dst, uint64_t src, size_t count, void *stream)
{
	(void)dst, (void)src, (void)count;
	return answer(stream);
}

int cuMemFreeAsync(uint64_t pointer, void *stream)
{
	(void)pointer;
	return answer(stream);
}

int cuCtxGetId(uintptr_t context, uint64_t *id)
{
	*id = context;
	return 0;
}

static int stream_context(uintptr_t *context)
{
	*context = PLAIN_CONTEXT(0);
	return 0;
}

int cuStreamGetCtx(void *stream, uintptr_t *context)
{
	(void)stream;
	return stream_context(context);
}

int cuStreamGetCtx_ptsz(void *stream, uintptr_t *context)
{
	(void)stream;
	return stream_context(context);
}

int cuPointerGetAttributes(unsigned count, const int *attributes, void **data, uint64_t pointer)
{
	unsigned device = pointer >= LARGE(1);
	for (unsigned i = 0; i < count; i++)
		switch (attributes[i]) {
		case 1: /* CU_POINTER_ATTRIBUTE_CONTEXT */
			*(uintptr_t *)data[i] = PLAIN_CONTEXT(device);
			break;
		case 2: /* …_MEMORY_TYPE */
			*(unsigned *)data[i] = MEMORYTYPE_DEVICE;
			break;
		case 9: /* …_DEVICE_ORDINAL */
			*(int *)data[i] = (int)device;
			break;
		case 11: /* …_RANGE_START_ADDR */
			*(uint64_t *)data[i] = LARGE(device);
			break;
		case 12: /* …_RANGE_SIZE */
			*(uint64_t *)data[i] = LARGE_BYTES;
			break;
		}
	return 0;
}

int cuGetProcAddress_v2(const char *symbol, void **pfn, int version, uint64_t flags, int *status)
{
	(void)version, (void)flags, (void)status;
	*pfn = strcmp(symbol, "cuMemcpyPeerAsync") == 0 ? (void *)cuMemcpyPeerAsync : NULL;
	return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
	(void)context, (void)device;
	return 0;
}

int cuStreamBeginCapture_v2(void *stream, int mode)
{
	(void)stream, (void)mode;
	return 0;
}

#define SUCCEEDS(name) int name(void) { return 0; }
SUCCEEDS(cuCtxDisablePeerAccess)
SUCCEEDS(cuCtxEnablePeerAccess)
SUCCEEDS(cuCtxGetCurrent)
SUCCEEDS(cuCtxGetDevice)
SUCCEEDS(cuCtxPopCurrent_v2)
SUCCEEDS(cuCtxPushCurrent_v2)
SUCCEEDS(cuCtxRecordEvent)
SUCCEEDS(cuDeviceCanAccessPeer)
SUCCEEDS(cuDeviceGetCount)
SUCCEEDS(cuDeviceGetDefaultMemPool)
SUCCEEDS(cuDeviceGetPCIBusId)
SUCCEEDS(cuDeviceGetUuid_v2)
SUCCEEDS(cuDevicePrimaryCtxGetState)
SUCCEEDS(cuDevicePrimaryCtxRelease_v2)
SUCCEEDS(cuDriverGetVersion)
SUCCEEDS(cuEventCreate)
SUCCEEDS(cuEventDestroy_v2)
SUCCEEDS(cuEventQuery)
SUCCEEDS(cuEventRecord)
SUCCEEDS(cuEventRecord_ptsz)
SUCCEEDS(cuMemGetAccess)
SUCCEEDS(cuMemPoolGetAccess)
SUCCEEDS(cuPointerGetAttribute)
SUCCEEDS(cuStreamIsCapturing)
SUCCEEDS(cuStreamIsCapturing_ptsz)
SUCCEEDS(cuStreamQuery)
SUCCEEDS(cuThreadExchangeStreamCaptureMode)
