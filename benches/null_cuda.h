/* The part of CUDA's interface that the benchmarks use, as far as a caller's machine code is concerned. */
#ifndef NULL_CUDA_H
#define NULL_CUDA_H

#include <stddef.h>
#include <stdint.h>

/* CUDA_MEMCPY3D_PEER, with one word for each of its fields. */
struct memcpy_3d_peer {
	uint64_t srcXInBytes, srcY, srcZ, srcLOD, srcMemoryType, srcHost, srcDevice, srcArray, srcContext, srcPitch, srcHeight;
	uint64_t dstXInBytes, dstY, dstZ, dstLOD, dstMemoryType, dstHost, dstDevice, dstArray, dstContext, dstPitch, dstHeight;
	uint64_t WidthInBytes, Height, Depth;
};
_Static_assert(sizeof(struct memcpy_3d_peer) == 200, "as in the vendor's headers");
#define MEMORYTYPE_DEVICE 2

typedef int memcpy_peer_async_t(uint64_t dst, void *dstContext, uint64_t src, void *srcContext, size_t count,
				void *stream);
typedef int memcpy_async_t(uint64_t dst, uint64_t src, size_t count, void *stream);
typedef int memcpy_3d_peer_async_t(const struct memcpy_3d_peer *copy, void *stream);
typedef int mem_free_async_t(uint64_t pointer, void *stream);
typedef int get_proc_address_t(const char *symbol, void **pfn, int version, uint64_t flags, int *status);

int cudaMemcpyPeerAsync(void *dst, int dstDevice, const void *src, int srcDevice, size_t count, void *stream);
int cudaMemcpyAsync(void *dst, const void *src, size_t count, int kind, void *stream);
/* The driver's last answer to the null runtime, if that was an error. Reading clears it. */
int null_last_error(void);
memcpy_peer_async_t cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz;
memcpy_async_t cuMemcpyAsync, cuMemcpyDtoDAsync_v2;
memcpy_3d_peer_async_t cuMemcpy3DPeerAsync;
mem_free_async_t cuMemFreeAsync;
/* A graph of copies that are all the same; its handle, and that of what it is instantiated as, is its address. */
struct null_graph {
	uint64_t dst, src;
	size_t nodes;
};
int cuGraphInstantiateWithFlags(void **exec, void *graph, uint64_t flags);
int cuGraphExecDestroy(void *exec);
int cuGraphLaunch(void *exec, void *stream);
get_proc_address_t cuGetProcAddress_v2;
/* Calls that are no copies between devices. */
int cuStreamSynchronize(void *stream);
int cuEventRecord(void *event, void *stream);
int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t count, void *stream);
int cuDeviceCanAccessPeer(int *can, int device, int peer);
/* A third context, which is always there and never current, and a pool. */
int cuCtxCreate_v2(void **context, unsigned flags, int device);
int cuCtxDestroy_v2(void *context);
int cuMemPoolCreate(void **pool, const void *properties);
int cuMemPoolSetAccess(void *pool, const void *grants, size_t count);
int cuStreamBeginCapture_v2(void *stream, int mode);
int cuDevicePrimaryCtxRetain(void **context, int device);

/* Of null_events.c: streams, and events that pass when the program says so. */
int cuStreamCreate(void **stream, unsigned flags);
int cuStreamDestroy_v2(void *stream);
int cuCtxSynchronize(void);
/* What was done with events. The first `passed` records of all are over; the program sets it. */
struct null_events {
	uint64_t created, destroyed, recorded, queried, waited, passed;
};
struct null_events *null_events(void);

/* cudaMemcpyKind. */
#define HOST_TO_DEVICE 1
#define DEVICE_TO_DEVICE 3
#define DEFAULT 4

/* The null functions return the stream that they are given as a code: 0 is success, and any other value that comes back shows
 * that the call arrived, its last argument intact. On a stream that was made they succeed. */
#define FIRST_STREAM 0x560000000000
static inline int answer(void *stream)
{
	return (uintptr_t)stream < FIRST_STREAM ? (int)(uintptr_t)stream : 0;
}

/* The null driver's memory, laid out as CUDA does it: one large allocation for each device, and for
 * each a block of 2 MiB with small ones, at multiples of 512. */
#define DEVICES 2
#define LARGE_BYTES (1ull << 30)
#define LARGE(device) (0x7f0000000000 + (device) * LARGE_BYTES)
#define SMALL_BYTES 512ull
#define SMALL_BLOCK (2ull << 20)
#define SMALL(device) (0x7f8000000000 + (device) * SMALL_BLOCK)
/* Ordinary memory of the host, which the driver does not know. */
#define HOST 0x600000000000

#endif
