/*
 * HIP, as far as the test programs use it: names, numbers and layouts are facts of its public interface (5.x to 7.x); the
 * text is ours. HIP_MAJOR says for which release a program is built.
 *
 *   CHECK(call)    a call that must succeed; otherwise says where and why and exits with 1
 *   SHOW(call)     prints "call = hipErrorName", success or not
 *
 * Programs that use CUDA as well, and include its header first, say CHECK_HIP and SHOW_HIP.
 */
#ifndef P2PSHIM_C_TESTS_HIP_H
#define P2PSHIM_C_TESTS_HIP_H

#include <stddef.h>
#include <stdint.h>

#ifndef HIP_MAJOR
#define HIP_MAJOR 6
#endif

typedef enum hipError_t {
    hipSuccess = 0,
    hipErrorInvalidValue = 1,
    hipErrorOutOfMemory = 2,
    hipErrorInvalidPitchValue = 12,
    hipErrorInvalidMemcpyDirection = 21,
    hipErrorNoDevice = 100,
    hipErrorInvalidDevice = 101,
    hipErrorInvalidContext = 201,
    hipErrorPeerAccessUnsupported = 217,
    hipErrorInvalidHandle = 400,
    hipErrorIllegalState = 401,
    hipErrorNotFound = 500,
    hipErrorNotReady = 600,
    hipErrorPeerAccessAlreadyEnabled = 704,
    hipErrorPeerAccessNotEnabled = 705,
    hipErrorContextIsDestroyed = 709,
    hipErrorNotSupported = 801,
    hipErrorStreamCaptureUnsupported = 900,
    hipErrorStreamCaptureInvalidated = 901,
    hipErrorStreamCaptureImplicit = 906,
    hipErrorUnknown = 999,
    hipErrorTbd = 1054,
} hipError_t;

typedef enum hipMemcpyKind {
    hipMemcpyHostToHost,
    hipMemcpyHostToDevice,
    hipMemcpyDeviceToHost,
    hipMemcpyDeviceToDevice,
    hipMemcpyDefault,
    hipMemcpyDeviceToDeviceNoCU = 1024,
} hipMemcpyKind;

typedef enum hipDeviceP2PAttr {
    hipDevP2PAttrPerformanceRank,
    hipDevP2PAttrAccessSupported,
    hipDevP2PAttrNativeAtomicSupported,
    hipDevP2PAttrHipArrayAccessSupported,
} hipDeviceP2PAttr;

typedef enum hipStreamCaptureMode {
    hipStreamCaptureModeGlobal,
    hipStreamCaptureModeThreadLocal,
    hipStreamCaptureModeRelaxed,
} hipStreamCaptureMode;

typedef enum hipStreamCaptureStatus {
    hipStreamCaptureStatusNone,
    hipStreamCaptureStatusActive,
    hipStreamCaptureStatusInvalidated,
} hipStreamCaptureStatus;

typedef enum hipDriverProcAddressQueryResult {
    HIP_GET_PROC_ADDRESS_SUCCESS,
    HIP_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND,
    HIP_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT,
} hipDriverProcAddressQueryResult;

typedef struct ihipStream_t *hipStream_t;
typedef struct ihipEvent_t *hipEvent_t;
typedef struct ihipCtx_t *hipCtx_t;
typedef struct ihipGraph *hipGraph_t;
typedef struct hipGraphNode *hipGraphNode_t;
typedef struct hipGraphExec *hipGraphExec_t;
typedef struct hipArray *hipArray_t;
typedef void *hipDeviceptr_t;
typedef int hipDevice_t;
typedef void (*hipHostFn_t)(void *);

#define hipStreamLegacy ((hipStream_t)1) /* from 6.2 on */
#define hipStreamPerThread ((hipStream_t)2)
#define hipStreamNonBlocking 1u
#define hipEventDisableTiming 2u

/* 6.0 numbered the types anew: host and device were 0 and 1. */
typedef struct hipPointerAttribute_t {
    int type;
    int device;
    void *devicePointer;
    void *hostPointer;
    int isManaged;
    unsigned allocationFlags;
} hipPointerAttribute_t;

typedef struct hipPos {
    size_t x, y, z;
} hipPos;

typedef struct hipExtent {
    size_t width, height, depth;
} hipExtent;

typedef struct hipPitchedPtr {
    void *ptr;
    size_t pitch, xsize, ysize;
} hipPitchedPtr;

typedef struct hipMemcpy3DParms {
    hipArray_t srcArray;
    hipPos srcPos;
    hipPitchedPtr srcPtr;
    hipArray_t dstArray;
    hipPos dstPos;
    hipPitchedPtr dstPtr;
    hipExtent extent;
    hipMemcpyKind kind;
} hipMemcpy3DParms;

/* From 7.1 on, like all about batches. */
typedef struct hipMemcpy3DPeerParms {
    hipArray_t srcArray;
    hipPos srcPos;
    hipPitchedPtr srcPtr;
    int srcDevice;
    hipArray_t dstArray;
    hipPos dstPos;
    hipPitchedPtr dstPtr;
    int dstDevice;
    hipExtent extent;
} hipMemcpy3DPeerParms;

typedef struct hipMemLocation {
    int type, id;
} hipMemLocation;

typedef struct hipMemcpyAttributes {
    int srcAccessOrder; /* 1: that of the stream, 2: during the call, 3: any */
    hipMemLocation srcLocHint, dstLocHint;
    unsigned flags;
} hipMemcpyAttributes;

typedef struct hipMemcpy3DOperand {
    int type; /* 1: a pointer, 2: an array */
    union {
        struct {
            void *ptr;
            size_t rowLength, layerHeight;
            hipMemLocation locHint;
        } ptr;
        struct {
            hipArray_t array;
            hipPos offset;
        } array;
    } op;
} hipMemcpy3DOperand;

typedef struct hipMemcpy3DBatchOp {
    hipMemcpy3DOperand src, dst;
    hipExtent extent;
    int srcAccessOrder;
    unsigned flags;
} hipMemcpy3DBatchOp;

typedef struct hipUUID {
    char bytes[16];
} hipUUID;

hipError_t hipInit(unsigned flags);
hipError_t hipDriverGetVersion(int *version);
hipError_t hipRuntimeGetVersion(int *version);
hipError_t hipGetDeviceCount(int *count);
hipError_t hipSetDevice(int device);
hipError_t hipGetDevice(int *device);
hipError_t hipDeviceReset(void);
hipError_t hipDeviceSynchronize(void);
hipError_t hipDeviceGetName(char *name, int length, hipDevice_t device);
hipError_t hipDeviceGetUuid(hipUUID *uuid, hipDevice_t device);
hipError_t hipDeviceGetPCIBusId(char *text, int length, int device);
hipError_t hipDeviceGetAttribute(int *value, int attribute, int device);

hipError_t hipGetLastError(void);
hipError_t hipPeekAtLastError(void);
hipError_t hipExtGetLastError(void); /* from 6.0 on */
const char *hipGetErrorName(hipError_t error);
const char *hipGetErrorString(hipError_t error);

hipError_t hipDeviceCanAccessPeer(int *can, int device, int peer);
hipError_t hipDeviceEnablePeerAccess(int peer, unsigned flags);
hipError_t hipDeviceDisablePeerAccess(int peer);
hipError_t hipDeviceGetP2PAttribute(int *value, hipDeviceP2PAttr attribute, int src, int dst);
hipError_t hipMemcpyPeer(void *dst, int dstDevice, const void *src, int srcDevice, size_t size);
hipError_t hipMemcpyPeerAsync(void *dst, int dstDevice, const void *src, int srcDevice, size_t size, hipStream_t stream);
hipError_t hipMemcpy3DPeer(hipMemcpy3DPeerParms *p);
hipError_t hipMemcpy3DPeerAsync(hipMemcpy3DPeerParms *p, hipStream_t stream);
hipError_t hipCtxEnablePeerAccess(hipCtx_t peer, unsigned flags);
hipError_t hipCtxDisablePeerAccess(hipCtx_t peer);

hipError_t hipMalloc(void **pointer, size_t size);
hipError_t hipFree(void *pointer);
hipError_t hipMallocAsync(void **pointer, size_t size, hipStream_t stream);
hipError_t hipFreeAsync(void *pointer, hipStream_t stream);
hipError_t hipHostMalloc(void **pointer, size_t size, unsigned flags);
hipError_t hipHostFree(void *pointer);
hipError_t hipPointerGetAttributes(hipPointerAttribute_t *attributes, const void *pointer);
hipError_t hipPointerGetAttribute(void *data, int attribute, hipDeviceptr_t pointer);
hipError_t hipMemGetAddressRange(hipDeviceptr_t *base, size_t *size, hipDeviceptr_t pointer);
hipError_t hipMemcpy(void *dst, const void *src, size_t size, hipMemcpyKind kind);
hipError_t hipMemcpyAsync(void *dst, const void *src, size_t size, hipMemcpyKind kind, hipStream_t stream);
hipError_t hipMemcpyWithStream(void *dst, const void *src, size_t size, hipMemcpyKind kind, hipStream_t stream);
hipError_t hipMemcpyDtoDAsync(hipDeviceptr_t dst, hipDeviceptr_t src, size_t size, hipStream_t stream);
hipError_t hipMemcpyDtoD(hipDeviceptr_t dst, hipDeviceptr_t src, size_t size);
hipError_t hipMemcpy2D(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height, hipMemcpyKind kind);
hipError_t hipMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
                            hipMemcpyKind kind, hipStream_t stream);
hipError_t hipMemcpy3D(const hipMemcpy3DParms *p);
hipError_t hipMemcpy3DAsync(const hipMemcpy3DParms *p, hipStream_t stream);
hipError_t hipMemcpy_spt(void *dst, const void *src, size_t size, hipMemcpyKind kind);
hipError_t hipMemcpyAsync_spt(void *dst, const void *src, size_t size, hipMemcpyKind kind, hipStream_t stream);
hipError_t hipMemcpy2D_spt(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
                           hipMemcpyKind kind);
hipError_t hipMemcpy2DAsync_spt(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
                                hipMemcpyKind kind, hipStream_t stream);
hipError_t hipMemcpy3D_spt(const hipMemcpy3DParms *p);
hipError_t hipMemcpy3DAsync_spt(const hipMemcpy3DParms *p, hipStream_t stream);
hipError_t hipMemcpyBatchAsync(void **dsts, void **srcs, size_t *sizes, size_t count, hipMemcpyAttributes *attributes,
                               size_t *firsts, size_t attributeCount, size_t *failed, hipStream_t stream);
hipError_t hipMemcpy3DBatchAsync(size_t count, hipMemcpy3DBatchOp *operations, size_t *failed, unsigned long long flags,
                                 hipStream_t stream);
hipError_t hipMemset(void *dst, int value, size_t size);
hipError_t hipMemsetAsync(void *dst, int value, size_t size, hipStream_t stream);

hipError_t hipStreamCreate(hipStream_t *stream);
hipError_t hipStreamCreateWithFlags(hipStream_t *stream, unsigned flags);
hipError_t hipStreamDestroy(hipStream_t stream);
hipError_t hipStreamSynchronize(hipStream_t stream);
hipError_t hipStreamQuery(hipStream_t stream);
hipError_t hipStreamGetDevice(hipStream_t stream, hipDevice_t *device);
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags);
hipError_t hipLaunchHostFunc(hipStream_t stream, hipHostFn_t function, void *data);
hipError_t hipEventCreate(hipEvent_t *event);
hipError_t hipEventCreateWithFlags(hipEvent_t *event, unsigned flags);
hipError_t hipEventDestroy(hipEvent_t event);
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream);
hipError_t hipEventQuery(hipEvent_t event);
hipError_t hipEventSynchronize(hipEvent_t event);
/* The flag of events that other processes can open, and the one of memory that they open. */
enum { hipEventInterprocess = 4, hipIpcMemLazyEnablePeerAccess = 1 };
typedef struct hipIpcMemHandle_st {
    char reserved[64];
} hipIpcMemHandle_t;
typedef struct hipIpcEventHandle_st {
    char reserved[64];
} hipIpcEventHandle_t;
hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t *handle, void *memory);
hipError_t hipIpcOpenMemHandle(void **memory, hipIpcMemHandle_t handle, unsigned flags);
hipError_t hipIpcCloseMemHandle(void *memory);
hipError_t hipIpcGetEventHandle(hipIpcEventHandle_t *handle, hipEvent_t event);
hipError_t hipIpcOpenEventHandle(hipEvent_t *event, hipIpcEventHandle_t handle);
hipError_t hipEventElapsedTime(float *milliseconds, hipEvent_t start, hipEvent_t stop);

hipError_t hipCtxCreate(hipCtx_t *context, unsigned flags, hipDevice_t device);
hipError_t hipCtxDestroy(hipCtx_t context);
hipError_t hipCtxGetCurrent(hipCtx_t *context);
hipError_t hipCtxSetCurrent(hipCtx_t context);
hipError_t hipDevicePrimaryCtxRetain(hipCtx_t *context, hipDevice_t device);
hipError_t hipDevicePrimaryCtxRelease(hipDevice_t device);

hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode);
hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t *graph);
hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus *status);
hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode *mode);
hipError_t hipGraphGetNodes(hipGraph_t graph, hipGraphNode_t *nodes, size_t *count);
hipError_t hipGraphInstantiate(hipGraphExec_t *exec, hipGraph_t graph, hipGraphNode_t *bad, char *log, size_t room);
hipError_t hipGraphLaunch(hipGraphExec_t exec, hipStream_t stream);
hipError_t hipGraphDestroy(hipGraph_t graph);
hipError_t hipGraphExecDestroy(hipGraphExec_t exec);
hipError_t hipGetProcAddress(const char *symbol, void **function, int version, uint64_t flags,
                             hipDriverProcAddressQueryResult *status); /* from 6.1 on */
hipError_t hipGetProcAddress_spt(const char *symbol, void **function, int version, uint64_t flags,
                                 hipDriverProcAddressQueryResult *status); /* from 7.2 on */
hipError_t hipGetDriverEntryPoint(const char *symbol, void **function, unsigned long long flags,
                                  hipDriverProcAddressQueryResult *status); /* from 7.1 on */
hipError_t hipGetDriverEntryPoint_spt(const char *symbol, void **function, unsigned long long flags,
                                      hipDriverProcAddressQueryResult *status);

/* Only in the simulation; a program that also runs elsewhere looks whether they are there. */
int p2psim_hip_copies(int from, int to, unsigned long long *direct, unsigned long long *staged) __attribute__((weak));
int p2psim_hip_reaches(int device, const void *address) __attribute__((weak));

#include "../check.h"

#define CHECK_HIP(call) check_hip(__FILE__, __LINE__, #call, (call))
#define SHOW_HIP(call) show_hip(#call, (call))
#ifndef CHECK
#define CHECK CHECK_HIP
#define SHOW SHOW_HIP
#endif

static inline void check_hip(const char *file, int line, const char *call, hipError_t error)
{
    if (error != hipSuccess)
        check_failed(file, line, call, hipGetErrorName(error));
}

static inline hipError_t show_hip(const char *call, hipError_t error)
{
    printf("%s = %s\n", call, hipGetErrorName(error));
    return error;
}

#endif
