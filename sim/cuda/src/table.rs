//! All exported functions, as `cuGetProcAddress` hands them out: their names, versions and forms.
//!
//! To add a function: define it with `api!` in a file under `api/` and give it a row here. Its name there is
//! the symbol in the library; the name in the first column is what programs ask for. The version is the one
//! in which that form of the function appeared; `per_thread` marks the form that programs get which are
//! compiled for per-thread default streams.

/// Hands all rows to a macro.
macro_rules! functions {
    ($with:ident) => {
        $with! {
            cuInit 2000 cuInit;
            cuDriverGetVersion 2020 cuDriverGetVersion;
            cuGetErrorName 6000 cuGetErrorName;
            cuGetErrorString 6000 cuGetErrorString;
            cuGetExportTable 3000 cuGetExportTable;
            cuGetProcAddress 11030 cuGetProcAddress;
            cuGetProcAddress 12000 cuGetProcAddress_v2;

            cuDeviceGet 2000 cuDeviceGet;
            cuDeviceGetCount 2000 cuDeviceGetCount;
            cuDeviceGetName 2000 cuDeviceGetName;
            cuDeviceGetUuid 9020 cuDeviceGetUuid;
            cuDeviceGetUuid 11040 cuDeviceGetUuid_v2;
            cuDeviceTotalMem 3020 cuDeviceTotalMem_v2;
            cuDeviceGetAttribute 2000 cuDeviceGetAttribute;
            cuDeviceComputeCapability 2000 cuDeviceComputeCapability;
            cuDeviceGetPCIBusId 4010 cuDeviceGetPCIBusId;
            cuDeviceGetByPCIBusId 4010 cuDeviceGetByPCIBusId;

            cuDeviceCanAccessPeer 4000 cuDeviceCanAccessPeer;
            cuDeviceGetP2PAttribute 8000 cuDeviceGetP2PAttribute;
            cuDeviceGetP2PAtomicCapabilities 13000 cuDeviceGetP2PAtomicCapabilities;
            cuCtxEnablePeerAccess 4000 cuCtxEnablePeerAccess;
            cuCtxDisablePeerAccess 4000 cuCtxDisablePeerAccess;

            cuDevicePrimaryCtxRetain 7000 cuDevicePrimaryCtxRetain;
            cuDevicePrimaryCtxRelease 7000 cuDevicePrimaryCtxRelease;
            cuDevicePrimaryCtxRelease 11000 cuDevicePrimaryCtxRelease_v2;
            cuDevicePrimaryCtxReset 7000 cuDevicePrimaryCtxReset;
            cuDevicePrimaryCtxReset 11000 cuDevicePrimaryCtxReset_v2;
            cuDevicePrimaryCtxSetFlags 7000 cuDevicePrimaryCtxSetFlags;
            cuDevicePrimaryCtxSetFlags 11000 cuDevicePrimaryCtxSetFlags_v2;
            cuDevicePrimaryCtxGetState 7000 cuDevicePrimaryCtxGetState;
            cuCtxCreate 3020 cuCtxCreate_v2;
            cuCtxCreate 11040 cuCtxCreate_v3;
            cuCtxCreate 12050 cuCtxCreate_v4;
            cuCtxDestroy 4000 cuCtxDestroy_v2;
            cuCtxDetach 2000 cuCtxDetach;
            cuCtxPushCurrent 4000 cuCtxPushCurrent_v2;
            cuCtxPopCurrent 4000 cuCtxPopCurrent_v2;
            cuCtxSetCurrent 4000 cuCtxSetCurrent;
            cuCtxGetCurrent 4000 cuCtxGetCurrent;
            cuCtxGetDevice 2000 cuCtxGetDevice;
            cuCtxGetDevice 13000 cuCtxGetDevice_v2;
            cuCtxGetId 12000 cuCtxGetId;
            cuCtxGetApiVersion 3020 cuCtxGetApiVersion;
            cuCtxGetFlags 7000 cuCtxGetFlags;
            cuCtxSynchronize 2000 cuCtxSynchronize;
            cuCtxSynchronize 13000 cuCtxSynchronize_v2;
            cuCtxSetLimit 3010 cuCtxSetLimit;
            cuCtxGetLimit 3010 cuCtxGetLimit;
            cuProfilerStart 4000 cuProfilerStart;
            cuProfilerStop 4000 cuProfilerStop;
            cuCtxGetStreamPriorityRange 5050 cuCtxGetStreamPriorityRange;

            cuMemAlloc 3020 cuMemAlloc_v2;
            cuMemAllocPitch 3020 cuMemAllocPitch_v2;
            cuMemFree 3020 cuMemFree_v2;
            cuMemGetInfo 3020 cuMemGetInfo_v2;
            cuMemGetAddressRange 3020 cuMemGetAddressRange_v2;
            cuMemAllocHost 3020 cuMemAllocHost_v2;
            cuMemHostAlloc 2020 cuMemHostAlloc;
            cuMemFreeHost 2000 cuMemFreeHost;
            cuMemHostRegister 6050 cuMemHostRegister_v2;
            cuMemHostUnregister 4000 cuMemHostUnregister;
            cuMemHostGetDevicePointer 3020 cuMemHostGetDevicePointer_v2;
            cuMemHostGetFlags 2030 cuMemHostGetFlags;
            cuPointerGetAttribute 4000 cuPointerGetAttribute;
            cuPointerGetAttributes 7000 cuPointerGetAttributes;
            cuArrayCreate 3020 cuArrayCreate_v2;
            cuArray3DCreate 3020 cuArray3DCreate_v2;
            cuArrayDestroy 2000 cuArrayDestroy;
            cuMipmappedArrayCreate 5000 cuMipmappedArrayCreate;
            cuMipmappedArrayDestroy 5000 cuMipmappedArrayDestroy;
            cuArrayGetDescriptor 3020 cuArrayGetDescriptor_v2;
            cuArray3DGetDescriptor 3020 cuArray3DGetDescriptor_v2;

            cuIpcGetMemHandle 4010 cuIpcGetMemHandle;
            cuIpcOpenMemHandle 4010 cuIpcOpenMemHandle;
            cuIpcOpenMemHandle 11000 cuIpcOpenMemHandle_v2;
            cuIpcCloseMemHandle 4010 cuIpcCloseMemHandle;
            cuIpcGetEventHandle 4010 cuIpcGetEventHandle;
            cuIpcOpenEventHandle 4010 cuIpcOpenEventHandle;

            cuMemAllocAsync 11020 cuMemAllocAsync per_thread 11020 cuMemAllocAsync_ptsz;
            cuMemAllocFromPoolAsync 11020 cuMemAllocFromPoolAsync per_thread 11020 cuMemAllocFromPoolAsync_ptsz;
            cuMemFreeAsync 11020 cuMemFreeAsync per_thread 11020 cuMemFreeAsync_ptsz;
            cuDeviceGetDefaultMemPool 11020 cuDeviceGetDefaultMemPool;
            cuDeviceGetMemPool 11020 cuDeviceGetMemPool;
            cuDeviceSetMemPool 11020 cuDeviceSetMemPool;
            cuMemGetDefaultMemPool 13000 cuMemGetDefaultMemPool;
            cuMemGetMemPool 13000 cuMemGetMemPool;
            cuMemSetMemPool 13000 cuMemSetMemPool;
            cuMemPoolCreate 11020 cuMemPoolCreate;
            cuMemPoolDestroy 11020 cuMemPoolDestroy;
            cuMemPoolExportToShareableHandle 11020 cuMemPoolExportToShareableHandle;
            cuMemPoolImportFromShareableHandle 11020 cuMemPoolImportFromShareableHandle;
            cuMemPoolExportPointer 11020 cuMemPoolExportPointer;
            cuMemPoolImportPointer 11020 cuMemPoolImportPointer;
            cuMemPoolSetAccess 11020 cuMemPoolSetAccess;
            cuMemPoolGetAccess 11020 cuMemPoolGetAccess;
            cuMemPoolTrimTo 11020 cuMemPoolTrimTo;
            cuMemPoolSetAttribute 11020 cuMemPoolSetAttribute;
            cuMemPoolGetAttribute 11020 cuMemPoolGetAttribute;

            cuMemAddressReserve 10020 cuMemAddressReserve;
            cuMemAddressFree 10020 cuMemAddressFree;
            cuMemCreate 10020 cuMemCreate;
            cuMemExportToShareableHandle 10020 cuMemExportToShareableHandle;
            cuMemImportFromShareableHandle 10020 cuMemImportFromShareableHandle;
            cuMemRelease 10020 cuMemRelease;
            cuMemRetainAllocationHandle 11000 cuMemRetainAllocationHandle;
            cuMemMap 10020 cuMemMap;
            cuMemUnmap 10020 cuMemUnmap;
            cuMemSetAccess 10020 cuMemSetAccess;
            cuMemGetAccess 10020 cuMemGetAccess;
            cuMemGetAllocationGranularity 10020 cuMemGetAllocationGranularity;
            cuMemGetAllocationPropertiesFromHandle 10020 cuMemGetAllocationPropertiesFromHandle;

            cuMemcpy 4000 cuMemcpy per_thread 7000 cuMemcpy_ptds;
            cuMemcpyAsync 4000 cuMemcpyAsync per_thread 7000 cuMemcpyAsync_ptsz;
            cuMemcpyHtoD 3020 cuMemcpyHtoD_v2 per_thread 7000 cuMemcpyHtoD_v2_ptds;
            cuMemcpyHtoDAsync 3020 cuMemcpyHtoDAsync_v2 per_thread 7000 cuMemcpyHtoDAsync_v2_ptsz;
            cuMemcpyDtoH 3020 cuMemcpyDtoH_v2 per_thread 7000 cuMemcpyDtoH_v2_ptds;
            cuMemcpyDtoHAsync 3020 cuMemcpyDtoHAsync_v2 per_thread 7000 cuMemcpyDtoHAsync_v2_ptsz;
            cuMemcpyDtoD 3020 cuMemcpyDtoD_v2 per_thread 7000 cuMemcpyDtoD_v2_ptds;
            cuMemcpyDtoDAsync 3020 cuMemcpyDtoDAsync_v2 per_thread 7000 cuMemcpyDtoDAsync_v2_ptsz;
            cuMemcpy2D 3020 cuMemcpy2D_v2 per_thread 7000 cuMemcpy2D_v2_ptds;
            cuMemcpy2DUnaligned 3020 cuMemcpy2DUnaligned_v2 per_thread 7000 cuMemcpy2DUnaligned_v2_ptds;
            cuMemcpy2DAsync 3020 cuMemcpy2DAsync_v2 per_thread 7000 cuMemcpy2DAsync_v2_ptsz;
            cuMemcpy3D 3020 cuMemcpy3D_v2 per_thread 7000 cuMemcpy3D_v2_ptds;
            cuMemcpy3DAsync 3020 cuMemcpy3DAsync_v2 per_thread 7000 cuMemcpy3DAsync_v2_ptsz;
            cuMemcpyDtoA 3020 cuMemcpyDtoA_v2 per_thread 7000 cuMemcpyDtoA_v2_ptds;
            cuMemcpyAtoD 3020 cuMemcpyAtoD_v2 per_thread 7000 cuMemcpyAtoD_v2_ptds;
            cuMemcpyAtoA 3020 cuMemcpyAtoA_v2 per_thread 7000 cuMemcpyAtoA_v2_ptds;
            cuMemcpyWithAttributesAsync 13020 cuMemcpyWithAttributesAsync per_thread 13020 cuMemcpyWithAttributesAsync_ptsz;
            cuMemcpy3DWithAttributesAsync 13020 cuMemcpy3DWithAttributesAsync per_thread 13020 cuMemcpy3DWithAttributesAsync_ptsz;
            cuMemcpyPeer 4000 cuMemcpyPeer per_thread 7000 cuMemcpyPeer_ptds;
            cuMemcpyPeerAsync 4000 cuMemcpyPeerAsync per_thread 7000 cuMemcpyPeerAsync_ptsz;
            cuMemcpy3DPeer 4000 cuMemcpy3DPeer per_thread 7000 cuMemcpy3DPeer_ptds;
            cuMemcpy3DPeerAsync 4000 cuMemcpy3DPeerAsync per_thread 7000 cuMemcpy3DPeerAsync_ptsz;
            cuMemcpyBatchAsync 12080 cuMemcpyBatchAsync per_thread 12080 cuMemcpyBatchAsync_ptsz;
            cuMemcpyBatchAsync 13000 cuMemcpyBatchAsync_v2 per_thread 13000 cuMemcpyBatchAsync_v2_ptsz;
            cuMemcpy3DBatchAsync 12080 cuMemcpy3DBatchAsync per_thread 12080 cuMemcpy3DBatchAsync_ptsz;
            cuMemcpy3DBatchAsync 13000 cuMemcpy3DBatchAsync_v2 per_thread 13000 cuMemcpy3DBatchAsync_v2_ptsz;
            cuMemsetD8 3020 cuMemsetD8_v2 per_thread 7000 cuMemsetD8_v2_ptds;
            cuMemsetD16 3020 cuMemsetD16_v2 per_thread 7000 cuMemsetD16_v2_ptds;
            cuMemsetD32 3020 cuMemsetD32_v2 per_thread 7000 cuMemsetD32_v2_ptds;
            cuMemsetD8Async 3020 cuMemsetD8Async per_thread 7000 cuMemsetD8Async_ptsz;
            cuMemsetD16Async 3020 cuMemsetD16Async per_thread 7000 cuMemsetD16Async_ptsz;
            cuMemsetD32Async 3020 cuMemsetD32Async per_thread 7000 cuMemsetD32Async_ptsz;
            cuMemsetD2D8 3020 cuMemsetD2D8_v2 per_thread 7000 cuMemsetD2D8_v2_ptds;
            cuMemsetD2D8Async 3020 cuMemsetD2D8Async per_thread 7000 cuMemsetD2D8Async_ptsz;

            cuStreamCreate 2000 cuStreamCreate;
            cuStreamCreateWithPriority 5050 cuStreamCreateWithPriority;
            cuStreamDestroy 4000 cuStreamDestroy_v2;
            cuStreamSynchronize 2000 cuStreamSynchronize per_thread 7000 cuStreamSynchronize_ptsz;
            cuStreamQuery 2000 cuStreamQuery per_thread 7000 cuStreamQuery_ptsz;
            cuStreamGetFlags 5050 cuStreamGetFlags per_thread 7000 cuStreamGetFlags_ptsz;
            cuStreamGetPriority 5050 cuStreamGetPriority per_thread 7000 cuStreamGetPriority_ptsz;
            cuStreamGetCtx 9020 cuStreamGetCtx per_thread 9020 cuStreamGetCtx_ptsz;
            cuStreamGetDevice 12080 cuStreamGetDevice per_thread 12080 cuStreamGetDevice_ptsz;
            cuLaunchHostFunc 10000 cuLaunchHostFunc per_thread 10000 cuLaunchHostFunc_ptsz;
            cuStreamAddCallback 5000 cuStreamAddCallback per_thread 7000 cuStreamAddCallback_ptsz;
            cuStreamWaitEvent 3020 cuStreamWaitEvent per_thread 7000 cuStreamWaitEvent_ptsz;

            cuModuleLoadData 2000 cuModuleLoadData;
            cuModuleUnload 2000 cuModuleUnload;
            cuModuleGetFunction 2000 cuModuleGetFunction;
            cuModuleGetGlobal 3020 cuModuleGetGlobal_v2;
            cuLibraryLoadData 12000 cuLibraryLoadData;
            cuLibraryUnload 12000 cuLibraryUnload;
            cuLibraryGetKernel 12000 cuLibraryGetKernel;
            cuLibraryGetModule 12000 cuLibraryGetModule;
            cuKernelGetFunction 12000 cuKernelGetFunction;
            cuLaunchKernel 4000 cuLaunchKernel per_thread 7000 cuLaunchKernel_ptsz;

            cuStreamBeginCapture 10000 cuStreamBeginCapture per_thread 10000 cuStreamBeginCapture_ptsz;
            cuStreamBeginCapture 10010 cuStreamBeginCapture_v2 per_thread 10010 cuStreamBeginCapture_v2_ptsz;
            cuStreamBeginCaptureToGraph 12030 cuStreamBeginCaptureToGraph per_thread 12030 cuStreamBeginCaptureToGraph_ptsz;
            cuStreamBeginRecaptureToGraph 13030 cuStreamBeginRecaptureToGraph per_thread 13030 cuStreamBeginRecaptureToGraph_ptsz;
            cuStreamBeginCaptureToCig 13010 cuStreamBeginCaptureToCig per_thread 13010 cuStreamBeginCaptureToCig_ptsz;
            cuStreamEndCaptureToCig 13010 cuStreamEndCaptureToCig per_thread 13010 cuStreamEndCaptureToCig_ptsz;
            cuStreamEndCapture 10000 cuStreamEndCapture per_thread 10000 cuStreamEndCapture_ptsz;
            cuStreamIsCapturing 10000 cuStreamIsCapturing per_thread 10000 cuStreamIsCapturing_ptsz;
            cuStreamGetCaptureInfo 10010 cuStreamGetCaptureInfo per_thread 10010 cuStreamGetCaptureInfo_ptsz;
            cuStreamGetCaptureInfo 11030 cuStreamGetCaptureInfo_v2 per_thread 11030 cuStreamGetCaptureInfo_v2_ptsz;
            cuStreamGetCaptureInfo 12030 cuStreamGetCaptureInfo_v3 per_thread 12030 cuStreamGetCaptureInfo_v3_ptsz;
            cuThreadExchangeStreamCaptureMode 10010 cuThreadExchangeStreamCaptureMode;
            cuGraphCreate 10000 cuGraphCreate;
            cuGraphDestroy 10000 cuGraphDestroy;
            cuGraphGetNodes 10000 cuGraphGetNodes;
            cuGraphGetEdges 10000 cuGraphGetEdges;
            cuGraphGetEdges 12030 cuGraphGetEdges_v2;
            cuGraphNodeGetType 10000 cuGraphNodeGetType;
            cuGraphNodeGetDependentNodes 10000 cuGraphNodeGetDependentNodes;
            cuGraphNodeGetDependentNodes 12030 cuGraphNodeGetDependentNodes_v2;
            cuGraphAddEventRecordNode 11010 cuGraphAddEventRecordNode;
            cuGraphDestroyNode 10000 cuGraphDestroyNode;
            cuGraphMemcpyNodeGetParams 10000 cuGraphMemcpyNodeGetParams;
            cuGraphMemcpyNodeSetParams 10000 cuGraphMemcpyNodeSetParams;
            cuGraphChildGraphNodeGetGraph 10000 cuGraphChildGraphNodeGetGraph;
            cuGraphAddMemcpyNode 10000 cuGraphAddMemcpyNode;
            cuGraphAddNode 12020 cuGraphAddNode;
            cuGraphAddNode 12030 cuGraphAddNode_v2;
            cuGraphNodeGetParams 13020 cuGraphNodeGetParams;
            cuGraphAddChildGraphNode 10000 cuGraphAddChildGraphNode;
            cuGraphExecUpdate 10020 cuGraphExecUpdate;
            cuGraphExecUpdate 12000 cuGraphExecUpdate_v2;
            cuGraphExecMemcpyNodeSetParams 10000 cuGraphExecMemcpyNodeSetParams;
            cuGraphExecChildGraphNodeSetParams 11010 cuGraphExecChildGraphNodeSetParams;
            cuGraphExecNodeSetParams 12020 cuGraphExecNodeSetParams;
            cuGraphNodeSetEnabled 11060 cuGraphNodeSetEnabled;
            cuGraphInstantiate 10000 cuGraphInstantiate;
            cuGraphInstantiate 11000 cuGraphInstantiate_v2;
            cuGraphInstantiate 12000 cuGraphInstantiateWithFlags;
            cuGraphInstantiateWithFlags 11040 cuGraphInstantiateWithFlags;
            cuGraphInstantiateWithParams 12000 cuGraphInstantiateWithParams per_thread 12000 cuGraphInstantiateWithParams_ptsz;
            cuGraphUpload 11010 cuGraphUpload per_thread 11010 cuGraphUpload_ptsz;
            cuGraphLaunch 10000 cuGraphLaunch per_thread 10000 cuGraphLaunch_ptsz;
            cuGraphExecDestroy 10000 cuGraphExecDestroy;

            cuGraphicsGLRegisterBuffer 3000 cuGraphicsGLRegisterBuffer;
            cuGraphicsMapResources 3000 cuGraphicsMapResources per_thread 7000 cuGraphicsMapResources_ptsz;
            cuGraphicsUnmapResources 3000 cuGraphicsUnmapResources per_thread 7000 cuGraphicsUnmapResources_ptsz;
            cuGraphicsResourceGetMappedPointer 3020 cuGraphicsResourceGetMappedPointer_v2;

            cuCheckpointProcessLock 12080 cuCheckpointProcessLock;
            cuCheckpointProcessCheckpoint 12080 cuCheckpointProcessCheckpoint;
            cuCheckpointProcessRestore 12080 cuCheckpointProcessRestore;
            cuCheckpointProcessUnlock 12080 cuCheckpointProcessUnlock;

            cuEventCreate 2000 cuEventCreate;
            cuEventDestroy 4000 cuEventDestroy_v2;
            cuEventRecord 2000 cuEventRecord per_thread 7000 cuEventRecord_ptsz;
            cuEventRecordWithFlags 11010 cuEventRecordWithFlags per_thread 11010 cuEventRecordWithFlags_ptsz;
            cuCtxRecordEvent 12050 cuCtxRecordEvent;
            cuEventQuery 2000 cuEventQuery;
            cuEventSynchronize 2000 cuEventSynchronize;
            cuEventElapsedTime 2000 cuEventElapsedTime;
            cuEventElapsedTime 12080 cuEventElapsedTime_v2;
        }
    };
}
pub(crate) use functions;

macro_rules! symbols {
    ($($name:ident $since:literal $symbol:ident $(per_thread $per_thread_since:literal $per_thread:ident)?;)*) => {
        static SYMBOLS: &[&str] = &[$(stringify!($symbol), $(stringify!($per_thread),)?)*];
    };
}

functions!(symbols);

/// Whether a symbol of that name is in the library.
pub(crate) fn exports(symbol: &str) -> bool {
    SYMBOLS.contains(&symbol)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_symbols_and_not_names() {
        assert!(exports("cuMemcpyPeer_ptds") && exports("cuMemAlloc_v2") && !exports("cuMemAlloc"));
    }
}
