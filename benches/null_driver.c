/* libcuda.so.1 with nothing behind it but two devices, a context and some memory for each, in so far as
 * the shim asks for them: enough for it to find out whose memory is copied and to enable peer access.
 * There are no bytes, so no pair can be proven; whoever wants a trusted one sets P2PSHIM_VERIFY=off.
 *
 * Linked with -Bsymbolic: like NVIDIA's, its cuGetProcAddress hands out its own functions, whatever is
 * preloaded. */
#include <string.h>

#include "null_cuda.h"

enum { INVALID_VALUE = 1, INVALID_CONTEXT = 201, NOT_FOUND = 500, NOT_SUPPORTED = 801 };

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

/* null_events.c has streams and events; a file that includes both defines WITH_EVENTS. */
#ifndef WITH_EVENTS
__attribute__((weak)) int cuStreamSynchronize(void *stream)
{
	return answer(stream);
}

__attribute__((weak)) int cuEventRecord(void *event, void *stream)
{
	(void)event;
	return answer(stream);
}
#endif

int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t count, void *stream)
{
	(void)dst, (void)src, (void)count;
	return answer(stream);
}

int cuGraphInstantiateWithFlags(void **exec, void *graph, uint64_t flags)
{
	*exec = graph;
	return (int)flags;
}

int cuGraphExecDestroy(void *exec)
{
	(void)exec;
	return 0;
}

int cuGraphLaunch(void *exec, void *stream)
{
	(void)exec;
	return answer(stream);
}

/* A node is its graph. */
int cuGraphGetNodes(void *graph, void **nodes, size_t *count)
{
	size_t room = *count;
	*count = ((struct null_graph *)graph)->nodes;
	for (size_t i = 0; nodes && i < *count && i < room; i++)
		nodes[i] = graph;
	return 0;
}

int cuGraphNodeGetType(void *node, int *type)
{
	(void)node;
	*type = 1; /* it copies */
	return 0;
}

int cuGraphMemcpyNodeGetParams(void *node, struct memcpy_3d_peer *copy)
{
	const struct null_graph *graph = node;
	*copy = (struct memcpy_3d_peer){ .srcMemoryType = MEMORYTYPE_DEVICE, .srcDevice = graph->src,
					 .dstMemoryType = MEMORYTYPE_DEVICE, .dstDevice = graph->dst,
					 .WidthInBytes = 64, .Height = 1, .Depth = 1 };
	return 0;
}

int cuStreamBeginCapture_v2(void *stream, int mode)
{
	(void)stream, (void)mode;
	return 0;
}

/* Only the stream of no copy is ever captured. */
int cuStreamIsCapturing(void *stream, unsigned *status)
{
	(void)stream;
	*status = 0;
	return 0;
}

int cuThreadExchangeStreamCaptureMode(unsigned *mode)
{
	(void)mode;
	return 0;
}

static char contexts[DEVICES + 1];
static _Thread_local char *current[8] = { &contexts[0] };
static _Thread_local unsigned top;

static int is_context(const char *context)
{
	return context >= contexts && context < contexts + DEVICES + 1;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
	*context = &contexts[device];
	return 0;
}

int cuCtxGetCurrent(char **context)
{
	*context = current[top];
	return 0;
}

int cuCtxCreate_v2(void **context, unsigned flags, int device)
{
	(void)flags, (void)device;
	*context = &contexts[DEVICES];
	return 0;
}

int cuCtxDestroy_v2(void *context)
{
	return is_context(context) ? 0 : INVALID_CONTEXT;
}

int cuMemPoolCreate(void **pool, const void *properties)
{
	(void)properties;
	static char only;
	*pool = &only;
	return 0;
}

int cuMemPoolSetAccess(void *pool, const void *grants, size_t count)
{
	(void)pool, (void)grants, (void)count;
	return 0;
}

int cuCtxPushCurrent_v2(char *context)
{
	if (!is_context(context) || top + 1 == sizeof current / sizeof *current)
		return INVALID_CONTEXT;
	current[++top] = context;
	return 0;
}

int cuCtxPopCurrent_v2(char **context)
{
	if (top == 0)
		return INVALID_CONTEXT;
	*context = current[top--];
	return 0;
}

int cuCtxGetId(char *context, uint64_t *id)
{
	if (!is_context(context))
		return INVALID_CONTEXT;
	*id = context - contexts + 1;
	return 0;
}

int cuCtxGetDevice(int *device)
{
	*device = current[top] - contexts < DEVICES ? current[top] - contexts : DEVICES - 1;
	return 0;
}

int cuDeviceGetCount(int *count)
{
	*count = DEVICES;
	return 0;
}

int cuDeviceCanAccessPeer(int *can, int device, int peer)
{
	*can = device != peer;
	return 0;
}

int cuCtxEnablePeerAccess(char *peer, unsigned flags)
{
	return is_context(peer) && flags == 0 ? 0 : INVALID_VALUE;
}

int cuCtxDisablePeerAccess(char *peer)
{
	return is_context(peer) ? 0 : INVALID_CONTEXT;
}

/* The allocation that an address lies in; answers its device, or -1. */
static int find(uint64_t address, uint64_t *start, uint64_t *bytes)
{
	for (int device = 0; device < DEVICES; device++) {
		if (address - LARGE(device) < LARGE_BYTES) {
			*start = LARGE(device);
			*bytes = LARGE_BYTES;
			return device;
		}
		if (address - SMALL(device) < SMALL_BLOCK) {
			*start = address & -SMALL_BYTES;
			*bytes = SMALL_BYTES;
			return device;
		}
	}
	return -1;
}

/* CU_POINTER_ATTRIBUTE_… */
enum {
	CONTEXT = 1,
	MEMORY_TYPE = 2,
	IS_MANAGED = 8,
	DEVICE_ORDINAL = 9,
	IS_LEGACY_CUDA_IPC_CAPABLE = 10,
	RANGE_START_ADDR = 11,
	RANGE_SIZE = 12,
	MEMPOOL_HANDLE = 17,
};

int cuPointerGetAttribute(void *data, int attribute, uint64_t pointer)
{
	uint64_t start, bytes;
	int device = find(pointer, &start, &bytes);
	if (device < 0)
		return INVALID_VALUE;
	switch (attribute) {
	case CONTEXT:
		*(char **)data = &contexts[device];
		return 0;
	case MEMORY_TYPE:
		*(unsigned *)data = MEMORYTYPE_DEVICE;
		return 0;
	case IS_MANAGED:
		*(unsigned *)data = 0;
		return 0;
	case DEVICE_ORDINAL:
		*(int *)data = device;
		return 0;
	case IS_LEGACY_CUDA_IPC_CAPABLE:
		*(char *)data = 1;
		return 0;
	case RANGE_START_ADDR:
		*(uint64_t *)data = start;
		return 0;
	case RANGE_SIZE:
		*(uint64_t *)data = bytes;
		return 0;
	case MEMPOOL_HANDLE:
		*(void **)data = NULL;
		return 0;
	}
	return NOT_SUPPORTED;
}

int cuPointerGetAttributes(unsigned count, const int *attributes, void **data, uint64_t pointer)
{
	for (unsigned i = 0; i < count; i++) {
		int code = cuPointerGetAttribute(data[i], attributes[i], pointer);
		if (code)
			return code;
	}
	return 0;
}

int cuGetProcAddress_v2(const char *symbol, void **pfn, int version, uint64_t flags, int *status)
{
	(void)flags;
	int found = strcmp(symbol, "cuMemcpyPeerAsync") == 0 && version >= 4000;
	*pfn = found ? (void *)cuMemcpyPeerAsync : NULL;
	if (status)
		*status = !found;
	return found ? 0 : NOT_FOUND;
}
