//! THE list: every function that p2pshim intercepts, one row each.
//!
//! # How to add a function
//!
//! Add one row. Its columns:
//!
//! | column | says |
//! | --- | --- |
//! | effect | what a call means to the shim ([`Effect`](super::Effect)), see below |
//! | layer | `runtime` (libcudart), `driver` (libcuda), `hip` (libamdhip64) or `nvml` (libnvidia-ml) |
//! | since | the version of CUDA, or of HIP, that introduced it, as `cuGetProcAddress` counts (4.0 is `4000`) |
//! | symbol | the exported name; less `_ptds`, `_ptsz` and `_v2` (any number) it is the name that `cuGetProcAddress` knows |
//! | arguments | C names and the types of `api/abi.rs`, in order; there may be none |
//!
//! | effect | for functions that |
//! | --- | --- |
//! | `traced` | are forwarded and shown, and nothing is decided about them |
//! | `copy(sync)`, `copy(async)` | copy between devices, and wait for that, or do not |
//! | `copy(…, refused_in_capture)` | and are refused by CUDA on a stream that is being captured, where another may take their place |
//! | `copy(…, regular)` | and name no devices: only calls whose pointers lie on two devices are copies to the shim, others are passed on |
//! | `access(enable)`, `access(disable)`, `access(query)` | change peer access, or tell of it; `query_capabilities` tells of several operations at once |
//! | `host(download)`, `host(upload)` | copy from a device to the host, or from there to a device: both together may be a copy between devices |
//! | `state(…)` | change what copies and peer access depend on: a [`State`](super::State), with an arm in `call/change.rs`; never shown |
//! | `lookup` | hand out functions; their hooks are written by hand in `entry/lookup.rs` |
//!
//! The arguments of `copy` and `access` are read in `model/request.rs`, by their types and order.
//!
//! Then run `make header`, which writes tables.json and docs/INTERCEPTED.md anew. An argument type whose name begins with `Out` is for a pointer
//! to exactly one value; a pointer to an array is a `Pointer`. docs/dev/HOWTO_ADD_API.md tells all.

/// Calls `$with!` with all rows.
macro_rules! for_each_function {
    ($with:ident) => {
        $with! {
            copy(sync)                            runtime  4000 cudaMemcpyPeer(dst: Pointer, dstDevice: Ordinal, src: Pointer, srcDevice: Ordinal, count: Size);
            copy(async)                     runtime  4000 cudaMemcpyPeerAsync(dst: Pointer, dstDevice: Ordinal, src: Pointer, srcDevice: Ordinal, count: Size, stream: Stream);
            copy(sync)                            runtime  4000 cudaMemcpy3DPeer(p: RuntimePeer3D);
            copy(sync)                            runtime  7000 cudaMemcpy3DPeer_ptds(p: RuntimePeer3D);
            copy(async)                           runtime  4000 cudaMemcpy3DPeerAsync(p: RuntimePeer3D, stream: Stream);
            copy(async)                           runtime  7000 cudaMemcpy3DPeerAsync_ptsz(p: RuntimePeer3D, stream: Stream);
            access(query)                         runtime  4000 cudaDeviceCanAccessPeer(canAccessPeer: OutInt, device: Ordinal, peerDevice: Ordinal);
            access(enable)                        runtime  4000 cudaDeviceEnablePeerAccess(peerDevice: Ordinal, flags: UInt);
            access(disable)                       runtime  4000 cudaDeviceDisablePeerAccess(peerDevice: Ordinal);
            access(query)                         runtime  8000 cudaDeviceGetP2PAttribute(value: OutInt, attr: P2pAttribute, srcDevice: Ordinal, dstDevice: Ordinal);

            copy(sync, regular)                   runtime  2000 cudaMemcpy(dst: Pointer, src: Pointer, count: Size, kind: MemcpyKind);
            copy(sync, regular)                   runtime  7000 cudaMemcpy_ptds(dst: Pointer, src: Pointer, count: Size, kind: MemcpyKind);
            copy(async, regular)            runtime  2000 cudaMemcpyAsync(dst: Pointer, src: Pointer, count: Size, kind: MemcpyKind, stream: Stream);
            copy(async, regular)            runtime  7000 cudaMemcpyAsync_ptsz(dst: Pointer, src: Pointer, count: Size, kind: MemcpyKind, stream: Stream);
            copy(sync, regular)                   runtime  2000 cudaMemcpy2D(dst: Pointer, dpitch: Size, src: Pointer, spitch: Size, width: Size, height: Size, kind: MemcpyKind);
            copy(sync, regular)                   runtime  7000 cudaMemcpy2D_ptds(dst: Pointer, dpitch: Size, src: Pointer, spitch: Size, width: Size, height: Size, kind: MemcpyKind);
            copy(async, regular)                  runtime  2000 cudaMemcpy2DAsync(dst: Pointer, dpitch: Size, src: Pointer, spitch: Size, width: Size, height: Size, kind: MemcpyKind, stream: Stream);
            copy(async, regular)                  runtime  7000 cudaMemcpy2DAsync_ptsz(dst: Pointer, dpitch: Size, src: Pointer, spitch: Size, width: Size, height: Size, kind: MemcpyKind, stream: Stream);
            copy(sync, regular)                   runtime  2000 cudaMemcpy3D(p: Runtime3D);
            copy(sync, regular)                   runtime  7000 cudaMemcpy3D_ptds(p: Runtime3D);
            copy(async, regular)                  runtime  2000 cudaMemcpy3DAsync(p: Runtime3D, stream: Stream);
            copy(async, regular)                  runtime  7000 cudaMemcpy3DAsync_ptsz(p: Runtime3D, stream: Stream);
            copies(batch)                         runtime 12080 cudaMemcpyBatchAsync(dsts: Pointer, srcs: Pointer, sizes: Pointer, count: Size, attrs: Pointer, attrsIdxs: Pointer, numAttrs: Size, failIdx: Pointer, stream: Stream);
            copies(batch)                         runtime 12080 cudaMemcpyBatchAsync_ptsz(dsts: Pointer, srcs: Pointer, sizes: Pointer, count: Size, attrs: Pointer, attrsIdxs: Pointer, numAttrs: Size, failIdx: Pointer, stream: Stream);
            copies(batch_3d)                      runtime 12080 cudaMemcpy3DBatchAsync(numOps: Size, opList: Pointer, failIdx: Pointer, flags: UInt64, stream: Stream);
            copies(batch_3d)                      runtime 12080 cudaMemcpy3DBatchAsync_ptsz(numOps: Size, opList: Pointer, failIdx: Pointer, flags: UInt64, stream: Stream);
            copies(graph)                         runtime 10000 cudaGraphLaunch(exec: Pointer, stream: Stream);
            copies(graph)                         runtime 10000 cudaGraphLaunch_ptsz(exec: Pointer, stream: Stream);

            state(clears_last_error)              runtime  2000 cudaGetLastError();
            state(waits)                          runtime  2000 cudaStreamSynchronize(stream: Stream);
            state(waits)                          runtime  7000 cudaStreamSynchronize_ptsz(stream: Stream);
            state(waits)                          runtime  2000 cudaEventSynchronize(event: Pointer);
            state(waits)                          runtime  4000 cudaDeviceSynchronize();

            state(gets_nvml_status)               nvml     8000 nvmlDeviceGetP2PStatus(device1: Pointer, device2: Pointer, p2pIndex: Int, p2pStatus: Pointer);

            copy(sync)                            driver   4000 cuMemcpyPeer(dstDevice: DevicePointer, dstContext: Context, srcDevice: DevicePointer, srcContext: Context, ByteCount: Size);
            copy(sync)                            driver   7000 cuMemcpyPeer_ptds(dstDevice: DevicePointer, dstContext: Context, srcDevice: DevicePointer, srcContext: Context, ByteCount: Size);
            copy(async, refused_in_capture) driver   4000 cuMemcpyPeerAsync(dstDevice: DevicePointer, dstContext: Context, srcDevice: DevicePointer, srcContext: Context, ByteCount: Size, hStream: Stream);
            copy(async, refused_in_capture) driver   7000 cuMemcpyPeerAsync_ptsz(dstDevice: DevicePointer, dstContext: Context, srcDevice: DevicePointer, srcContext: Context, ByteCount: Size, hStream: Stream);
            copy(sync)                            driver   4000 cuMemcpy3DPeer(pCopy: DriverPeer3D);
            copy(sync)                            driver   7000 cuMemcpy3DPeer_ptds(pCopy: DriverPeer3D);
            copy(async, refused_in_capture)       driver   4000 cuMemcpy3DPeerAsync(pCopy: DriverPeer3D, hStream: Stream);
            copy(async, refused_in_capture)       driver   7000 cuMemcpy3DPeerAsync_ptsz(pCopy: DriverPeer3D, hStream: Stream);
            access(query)                         driver   4000 cuDeviceCanAccessPeer(canAccessPeer: OutInt, dev: Ordinal, peerDev: Ordinal);
            access(enable)                        driver   4000 cuCtxEnablePeerAccess(peerContext: Context, Flags: UInt);
            access(disable)                       driver   4000 cuCtxDisablePeerAccess(peerContext: Context);
            access(query)                         driver   8000 cuDeviceGetP2PAttribute(value: OutInt, attrib: P2pAttribute, srcDevice: Ordinal, dstDevice: Ordinal);
            access(query_capabilities)            driver  13000 cuDeviceGetP2PAtomicCapabilities(capabilities: Pointer, operations: Pointer, count: UInt, srcDevice: Ordinal, dstDevice: Ordinal);

            copy(sync, regular)                   driver   4000 cuMemcpy(dst: DevicePointer, src: DevicePointer, ByteCount: Size);
            copy(sync, regular)                   driver   7000 cuMemcpy_ptds(dst: DevicePointer, src: DevicePointer, ByteCount: Size);
            copy(async, regular)            driver   4000 cuMemcpyAsync(dst: DevicePointer, src: DevicePointer, ByteCount: Size, hStream: Stream);
            copy(async, regular)            driver   7000 cuMemcpyAsync_ptsz(dst: DevicePointer, src: DevicePointer, ByteCount: Size, hStream: Stream);
            copy(sync, regular)                   driver   3020 cuMemcpyDtoD_v2(dstDevice: DevicePointer, srcDevice: DevicePointer, ByteCount: Size);
            copy(sync, regular)                   driver   7000 cuMemcpyDtoD_v2_ptds(dstDevice: DevicePointer, srcDevice: DevicePointer, ByteCount: Size);
            copy(async, regular)            driver   3020 cuMemcpyDtoDAsync_v2(dstDevice: DevicePointer, srcDevice: DevicePointer, ByteCount: Size, hStream: Stream);
            copy(async, regular)            driver   7000 cuMemcpyDtoDAsync_v2_ptsz(dstDevice: DevicePointer, srcDevice: DevicePointer, ByteCount: Size, hStream: Stream);
            copy(sync, regular)                   driver   3020 cuMemcpy2D_v2(pCopy: Driver2D);
            copy(sync, regular)                   driver   7000 cuMemcpy2D_v2_ptds(pCopy: Driver2D);
            copy(sync, regular)                   driver   3020 cuMemcpy2DUnaligned_v2(pCopy: Driver2D);
            copy(sync, regular)                   driver   7000 cuMemcpy2DUnaligned_v2_ptds(pCopy: Driver2D);
            copy(async, regular)                  driver   3020 cuMemcpy2DAsync_v2(pCopy: Driver2D, hStream: Stream);
            copy(async, regular)                  driver   7000 cuMemcpy2DAsync_v2_ptsz(pCopy: Driver2D, hStream: Stream);
            copy(sync, regular)                   driver   3020 cuMemcpy3D_v2(pCopy: Driver3D);
            copy(sync, regular)                   driver   7000 cuMemcpy3D_v2_ptds(pCopy: Driver3D);
            copy(async, regular)                  driver   3020 cuMemcpy3DAsync_v2(pCopy: Driver3D, hStream: Stream);
            copy(async, regular)                  driver   7000 cuMemcpy3DAsync_v2_ptsz(pCopy: Driver3D, hStream: Stream);
            copy(async, regular)                  driver  13020 cuMemcpyWithAttributesAsync(dst: DevicePointer, src: DevicePointer, size: Size, attr: Pointer, hStream: Stream);
            copy(async, regular)                  driver  13020 cuMemcpyWithAttributesAsync_ptsz(dst: DevicePointer, src: DevicePointer, size: Size, attr: Pointer, hStream: Stream);
            host(download)                        driver   3020 cuMemcpyDtoH_v2(dstHost: Pointer, srcDevice: DevicePointer, ByteCount: Size);
            host(download)                        driver   7000 cuMemcpyDtoH_v2_ptds(dstHost: Pointer, srcDevice: DevicePointer, ByteCount: Size);
            host(download)                        driver   3020 cuMemcpyDtoHAsync_v2(dstHost: Pointer, srcDevice: DevicePointer, ByteCount: Size, hStream: Stream);
            host(download)                        driver   7000 cuMemcpyDtoHAsync_v2_ptsz(dstHost: Pointer, srcDevice: DevicePointer, ByteCount: Size, hStream: Stream);
            host(upload)                          driver   3020 cuMemcpyHtoD_v2(dstDevice: DevicePointer, srcHost: Pointer, ByteCount: Size);
            host(upload)                          driver   7000 cuMemcpyHtoD_v2_ptds(dstDevice: DevicePointer, srcHost: Pointer, ByteCount: Size);
            host(upload)                          driver   3020 cuMemcpyHtoDAsync_v2(dstDevice: DevicePointer, srcHost: Pointer, ByteCount: Size, hStream: Stream);
            host(upload)                          driver   7000 cuMemcpyHtoDAsync_v2_ptsz(dstDevice: DevicePointer, srcHost: Pointer, ByteCount: Size, hStream: Stream);
            traced                                driver   3020 cuMemcpyDtoA_v2(dstArray: Pointer, dstOffset: Size, srcDevice: DevicePointer, ByteCount: Size);
            traced                                driver   7000 cuMemcpyDtoA_v2_ptds(dstArray: Pointer, dstOffset: Size, srcDevice: DevicePointer, ByteCount: Size);
            traced                                driver   3020 cuMemcpyAtoD_v2(dstDevice: DevicePointer, srcArray: Pointer, srcOffset: Size, ByteCount: Size);
            traced                                driver   7000 cuMemcpyAtoD_v2_ptds(dstDevice: DevicePointer, srcArray: Pointer, srcOffset: Size, ByteCount: Size);
            traced                                driver   3020 cuMemcpyAtoA_v2(dstArray: Pointer, dstOffset: Size, srcArray: Pointer, srcOffset: Size, ByteCount: Size);
            traced                                driver   7000 cuMemcpyAtoA_v2_ptds(dstArray: Pointer, dstOffset: Size, srcArray: Pointer, srcOffset: Size, ByteCount: Size);

            state(begins_capture)                 driver  10000 cuStreamBeginCapture(hStream: Stream);
            state(begins_capture)                 driver  10000 cuStreamBeginCapture_ptsz(hStream: Stream);
            state(begins_capture)                 driver  10010 cuStreamBeginCapture_v2(hStream: Stream, mode: Int);
            state(begins_capture)                 driver  10010 cuStreamBeginCapture_v2_ptsz(hStream: Stream, mode: Int);
            state(begins_capture)                 driver  12030 cuStreamBeginCaptureToGraph(hStream: Stream, hGraph: Pointer, dependencies: Pointer, dependencyData: Pointer, numDependencies: Size, mode: Int);
            state(begins_capture)                 driver  12030 cuStreamBeginCaptureToGraph_ptsz(hStream: Stream, hGraph: Pointer, dependencies: Pointer, dependencyData: Pointer, numDependencies: Size, mode: Int);
            state(begins_capture)                 driver  13030 cuStreamBeginRecaptureToGraph(hStream: Stream, mode: Int, hGraph: Pointer, callbackFunc: Pointer, userData: Pointer);
            state(begins_capture)                 driver  13030 cuStreamBeginRecaptureToGraph_ptsz(hStream: Stream, mode: Int, hGraph: Pointer, callbackFunc: Pointer, userData: Pointer);
            state(begins_capture)                 driver  13010 cuStreamBeginCaptureToCig(hStream: Stream, streamCigCaptureParams: Pointer);
            state(begins_capture)                 driver  13010 cuStreamBeginCaptureToCig_ptsz(hStream: Stream, streamCigCaptureParams: Pointer);
            state(ends_capture)                   driver  13010 cuStreamEndCaptureToCig(hStream: Stream);
            state(ends_capture)                   driver  13010 cuStreamEndCaptureToCig_ptsz(hStream: Stream);
            state(ends_capture)                   driver  10000 cuStreamEndCapture(hStream: Stream, phGraph: Pointer);
            state(ends_capture)                   driver  10000 cuStreamEndCapture_ptsz(hStream: Stream, phGraph: Pointer);
            state(waits_for_stream)               driver   2000 cuStreamSynchronize(hStream: Stream);
            state(waits_for_stream)               driver   7000 cuStreamSynchronize_ptsz(hStream: Stream);
            state(waits)                          driver   2000 cuEventSynchronize(hEvent: Pointer);
            state(creates_stream)                 driver   2000 cuStreamCreate(phStream: Pointer, Flags: UInt);
            state(creates_stream)                 driver   5050 cuStreamCreateWithPriority(phStream: Pointer, flags: UInt, priority: Int);
            state(creates_green_stream)           driver  12050 cuGreenCtxStreamCreate(phStream: Pointer, greenCtx: Pointer, flags: UInt, priority: Int);
            state(destroys_stream)                driver   2000 cuStreamDestroy(hStream: Stream);
            state(destroys_stream)                driver   4000 cuStreamDestroy_v2(hStream: Stream);

            state(creates_old_array)              driver   2000 cuArrayCreate(pHandle: Pointer, pAllocateArray: Pointer);
            state(creates_array)                  driver   3020 cuArrayCreate_v2(pHandle: Pointer, pAllocateArray: Pointer);
            state(creates_old_array)              driver   2000 cuArray3DCreate(pHandle: Pointer, pAllocateArray: Pointer);
            state(creates_3d_array)               driver   3020 cuArray3DCreate_v2(pHandle: Pointer, pAllocateArray: Pointer);
            state(destroys_array)                 driver   2000 cuArrayDestroy(hArray: Pointer);
            state(frees_memory)                   driver   2000 cuMemFree(dptr: UInt);
            state(frees_memory)                   driver   3020 cuMemFree_v2(dptr: DevicePointer);
            state(frees_memory)                   driver  11020 cuMemFreeAsync(dptr: DevicePointer, hStream: Stream);
            state(frees_memory)                   driver  11020 cuMemFreeAsync_ptsz(dptr: DevicePointer, hStream: Stream);
            state(frees_memory)                   driver   2000 cuMemFreeHost(p: Pointer);
            state(frees_memory)                   driver   4000 cuMemHostUnregister(p: Pointer);
            state(moves_memory)                   driver   3000 cuGraphicsUnmapResources(count: UInt, resources: Pointer, hStream: Stream);
            state(moves_memory)                   driver   7000 cuGraphicsUnmapResources_ptsz(count: UInt, resources: Pointer, hStream: Stream);
            state(restores_process)               driver  12080 cuCheckpointProcessRestore(pid: Int, args: Pointer);
            state(unmaps_memory)                  driver  10020 cuMemUnmap(ptr: DevicePointer, size: Size);
            state(creates_memory)                 driver  10020 cuMemCreate(handle: Pointer, size: Size, prop: Pointer, flags: UInt64);
            state(exports_memory)                 driver  10020 cuMemExportToShareableHandle(shareableHandle: Pointer, handle: UInt64, handleType: Int, flags: UInt64);
            state(imports_memory)                 driver  10020 cuMemImportFromShareableHandle(handle: Pointer, osHandle: Pointer, shHandleType: Int);
            state(sets_mapped_access)             driver  10020 cuMemSetAccess(ptr: DevicePointer, size: Size, desc: Pointer, count: Size);
            state(sets_pool_access)               driver  11020 cuMemPoolSetAccess(pool: Pointer, map: Pointer, count: Size);
            state(gets_pool_access)               driver  11020 cuMemPoolGetAccess(flags: Pointer, memPool: Pointer, location: Pointer);
            state(creates_pool)                   driver  11020 cuMemPoolCreate(pool: Pointer, poolProps: Pointer);
            state(imports_pool)                   driver  11020 cuMemPoolImportFromShareableHandle(pool_out: Pointer, handle: Pointer, handleType: Int, flags: UInt64);
            state(destroys_pool)                  driver  11020 cuMemPoolDestroy(pool: Pointer);
            state(exports_memory)                 driver  11020 cuMemPoolExportToShareableHandle(handle_out: Pointer, pool: Pointer, handleType: Int, flags: UInt64);
            state(exports_memory)                 driver  11020 cuMemPoolExportPointer(shareData_out: Pointer, ptr: DevicePointer);
            state(imports_pointer)                driver  11020 cuMemPoolImportPointer(ptr_out: Pointer, pool: Pointer, shareData: Pointer);
            state(exports_memory)                 driver   4010 cuIpcGetMemHandle(pHandle: Pointer, dptr: DevicePointer);
            state(opens_memory)                   driver   4010 cuIpcOpenMemHandle(pdptr: Pointer, handle: IpcMemHandle, Flags: UInt);
            state(opens_memory)                   driver  11000 cuIpcOpenMemHandle_v2(pdptr: Pointer, handle: IpcMemHandle, Flags: UInt);
            state(unmaps_memory)                  driver   4010 cuIpcCloseMemHandle(dptr: DevicePointer);
            state(creates_context)                driver   2000 cuCtxCreate(pctx: Pointer, flags: UInt, dev: Ordinal);
            state(creates_context)                driver   3020 cuCtxCreate_v2(pctx: Pointer, flags: UInt, dev: Ordinal);
            state(creates_context)                driver  11040 cuCtxCreate_v3(pctx: Pointer, paramsArray: Pointer, numParams: Int, flags: UInt, dev: Ordinal);
            state(creates_context)                driver  12050 cuCtxCreate_v4(pctx: Pointer, ctxCreateParams: Pointer, flags: UInt, dev: Ordinal);
            state(creates_context)                driver   7000 cuDevicePrimaryCtxRetain(pctx: Pointer, dev: Ordinal);
            state(destroys_context)               driver   2000 cuCtxDestroy(ctx: Context);
            state(destroys_context)               driver   4000 cuCtxDestroy_v2(ctx: Context);
            state(destroys_context)               driver   2000 cuCtxDetach(ctx: Context);
            state(destroys_green_context)         driver  12040 cuGreenCtxDestroy(hCtx: Pointer);
            state(releases_primary_context)       driver   7000 cuDevicePrimaryCtxRelease(dev: Ordinal);
            state(releases_primary_context)       driver  11000 cuDevicePrimaryCtxRelease_v2(dev: Ordinal);
            state(resets_primary_context)         driver   7000 cuDevicePrimaryCtxReset(dev: Ordinal);
            state(resets_primary_context)         driver  11000 cuDevicePrimaryCtxReset_v2(dev: Ordinal);

            state(waits_for_context)              driver   2000 cuCtxSynchronize();
            state(waits_for_context)              driver  13000 cuCtxSynchronize_v2(ctx: Context);
            state(waits_for_context)              driver   5000 cuMipmappedArrayDestroy(hMipmappedArray: Pointer);
            state(waits_for_context)              driver  12000 cuLibraryUnload(library: Pointer);
            state(sets_limit)                     driver   3010 cuCtxSetLimit(limit: Int, value: Size);
            state(records_event_of_context)       driver  12050 cuCtxRecordEvent(hCtx: Context, hEvent: Pointer);
            state(loads_module)                   driver   2000 cuModuleLoad(module: Pointer, fname: Pointer);
            state(loads_module)                   driver   2000 cuModuleLoadData(module: Pointer, image: Pointer);
            state(loads_module)                   driver   2010 cuModuleLoadDataEx(module: Pointer, image: Pointer, numOptions: UInt, options: Pointer, optionValues: Pointer);
            state(loads_module)                   driver   2000 cuModuleLoadFatBinary(module: Pointer, fatCubin: Pointer);
            state(unloads_module)                 driver   2000 cuModuleUnload(hmod: Pointer);

            state(instantiates_graph)             driver  10000 cuGraphInstantiate(phGraphExec: Pointer, hGraph: Pointer, phErrorNode: Pointer, logBuffer: Pointer, bufferSize: Size);
            state(instantiates_graph)             driver  11000 cuGraphInstantiate_v2(phGraphExec: Pointer, hGraph: Pointer, phErrorNode: Pointer, logBuffer: Pointer, bufferSize: Size);
            state(instantiates_graph)             driver  11040 cuGraphInstantiateWithFlags(phGraphExec: Pointer, hGraph: Pointer, flags: UInt64);
            state(instantiates_graph)             driver  12000 cuGraphInstantiateWithParams(phGraphExec: Pointer, hGraph: Pointer, instantiateParams: Pointer);
            state(instantiates_graph)             driver  12000 cuGraphInstantiateWithParams_ptsz(phGraphExec: Pointer, hGraph: Pointer, instantiateParams: Pointer);
            state(destroys_graph)                 driver  10000 cuGraphExecDestroy(hGraphExec: Pointer);
            state(updates_graph)                  driver  10020 cuGraphExecUpdate(hGraphExec: Pointer, hGraph: Pointer, hErrorNode_out: Pointer, updateResult_out: Pointer);
            state(updates_graph)                  driver  12000 cuGraphExecUpdate_v2(hGraphExec: Pointer, hGraph: Pointer, resultInfo: Pointer);
            state(sets_graph_node)                driver  10000 cuGraphExecMemcpyNodeSetParams(hGraphExec: Pointer, hNode: Pointer, copyParams: Driver3D, ctx: Context);
            state(sets_graph_node)                driver  11010 cuGraphExecChildGraphNodeSetParams(hGraphExec: Pointer, hNode: Pointer, childGraph: Pointer);
            state(sets_graph_node)                driver  12020 cuGraphExecNodeSetParams(hGraphExec: Pointer, hNode: Pointer, nodeParams: Pointer);
            state(sets_graph_node)                driver  11060 cuGraphNodeSetEnabled(hGraphExec: Pointer, hNode: Pointer, isEnabled: UInt);
            copies(graph)                         driver  10000 cuGraphLaunch(hGraphExec: Pointer, hStream: Stream);
            copies(graph)                         driver  10000 cuGraphLaunch_ptsz(hGraphExec: Pointer, hStream: Stream);

            copies(batch)                         driver  12080 cuMemcpyBatchAsync(dsts: Pointer, srcs: Pointer, sizes: Pointer, count: Size, attrs: Pointer, attrsIdxs: Pointer, numAttrs: Size, failIdx: Pointer, hStream: Stream);
            copies(batch)                         driver  12080 cuMemcpyBatchAsync_ptsz(dsts: Pointer, srcs: Pointer, sizes: Pointer, count: Size, attrs: Pointer, attrsIdxs: Pointer, numAttrs: Size, failIdx: Pointer, hStream: Stream);
            copies(batch)                         driver  13000 cuMemcpyBatchAsync_v2(dsts: Pointer, srcs: Pointer, sizes: Pointer, count: Size, attrs: Pointer, attrsIdxs: Pointer, numAttrs: Size, hStream: Stream);
            copies(batch)                         driver  13000 cuMemcpyBatchAsync_v2_ptsz(dsts: Pointer, srcs: Pointer, sizes: Pointer, count: Size, attrs: Pointer, attrsIdxs: Pointer, numAttrs: Size, hStream: Stream);
            copies(batch_3d)                      driver  12080 cuMemcpy3DBatchAsync(numOps: Size, opList: Pointer, failIdx: Pointer, flags: UInt64, hStream: Stream);
            copies(batch_3d)                      driver  12080 cuMemcpy3DBatchAsync_ptsz(numOps: Size, opList: Pointer, failIdx: Pointer, flags: UInt64, hStream: Stream);
            copies(batch_3d)                      driver  13000 cuMemcpy3DBatchAsync_v2(numOps: Size, opList: Pointer, flags: UInt64, hStream: Stream);
            copies(batch_3d)                      driver  13000 cuMemcpy3DBatchAsync_v2_ptsz(numOps: Size, opList: Pointer, flags: UInt64, hStream: Stream);
            copies(batch_3d)                      driver  13020 cuMemcpy3DWithAttributesAsync(op: Pointer, flags: UInt64, hStream: Stream);
            copies(batch_3d)                      driver  13020 cuMemcpy3DWithAttributesAsync_ptsz(op: Pointer, flags: UInt64, hStream: Stream);

            lookup                                driver  11030 cuGetProcAddress(symbol: Text, pfn: Pointer, cudaVersion: Int, flags: UInt64);
            lookup                                driver  12000 cuGetProcAddress_v2(symbol: Text, pfn: Pointer, cudaVersion: Int, flags: UInt64, symbolStatus: Pointer);

            copy(sync)                            hip      4020 hipMemcpyPeer(dst: Pointer, dstDeviceId: Ordinal, src: Pointer, srcDeviceId: Ordinal, sizeBytes: Size);
            copy(async)                           hip      4020 hipMemcpyPeerAsync(dst: Pointer, dstDeviceId: Ordinal, src: Pointer, srcDevice: Ordinal, sizeBytes: Size, stream: Stream);
            copy(sync)                            hip      7010 hipMemcpy3DPeer(p: RuntimePeer3D);
            copy(async)                           hip      7010 hipMemcpy3DPeerAsync(p: RuntimePeer3D, stream: Stream);
            copy(sync, regular)                   hip      4020 hipMemcpy(dst: Pointer, src: Pointer, sizeBytes: Size, kind: MemcpyKind);
            copy(async, regular)                  hip      4020 hipMemcpyAsync(dst: Pointer, src: Pointer, sizeBytes: Size, kind: MemcpyKind, stream: Stream);
            copy(sync, regular)                   hip      4020 hipMemcpyWithStream(dst: Pointer, src: Pointer, sizeBytes: Size, kind: MemcpyKind, stream: Stream);
            copy(sync, regular)                   hip      4020 hipMemcpyDtoD(dst: Pointer, src: Pointer, sizeBytes: Size);
            copy(async, regular)                  hip      4020 hipMemcpyDtoDAsync(dst: Pointer, src: Pointer, sizeBytes: Size, stream: Stream);
            copy(sync, regular)                   hip      4020 hipMemcpy2D(dst: Pointer, dpitch: Size, src: Pointer, spitch: Size, width: Size, height: Size, kind: MemcpyKind);
            copy(async, regular)                  hip      4020 hipMemcpy2DAsync(dst: Pointer, dpitch: Size, src: Pointer, spitch: Size, width: Size, height: Size, kind: MemcpyKind, stream: Stream);
            copy(sync, regular)                   hip      4020 hipMemcpy3D(p: Runtime3D);
            copy(async, regular)                  hip      4020 hipMemcpy3DAsync(p: Runtime3D, stream: Stream);
            copy(sync, regular)                   hip      5020 hipMemcpy_spt(dst: Pointer, src: Pointer, sizeBytes: Size, kind: MemcpyKind);
            copy(async, regular)                  hip      5020 hipMemcpyAsync_spt(dst: Pointer, src: Pointer, sizeBytes: Size, kind: MemcpyKind, stream: Stream);
            copy(sync, regular)                   hip      5020 hipMemcpy2D_spt(dst: Pointer, dpitch: Size, src: Pointer, spitch: Size, width: Size, height: Size, kind: MemcpyKind);
            copy(async, regular)                  hip      5030 hipMemcpy2DAsync_spt(dst: Pointer, dpitch: Size, src: Pointer, spitch: Size, width: Size, height: Size, kind: MemcpyKind, stream: Stream);
            copy(sync, regular)                   hip      5020 hipMemcpy3D_spt(p: Runtime3D);
            copy(async, regular)                  hip      5030 hipMemcpy3DAsync_spt(p: Runtime3D, stream: Stream);
            copies(batch)                         hip      7010 hipMemcpyBatchAsync(dsts: Pointer, srcs: Pointer, sizes: Pointer, count: Size, attrs: Pointer, attrsIdxs: Pointer, numAttrs: Size, failIdx: Pointer, stream: Stream);
            copies(batch_3d)                      hip      7010 hipMemcpy3DBatchAsync(numOps: Size, opList: Pointer, failIdx: Pointer, flags: UInt64, stream: Stream);
            access(query)                         hip      4020 hipDeviceCanAccessPeer(canAccessPeer: OutInt, deviceId: Ordinal, peerDeviceId: Ordinal);
            access(enable)                        hip      4020 hipDeviceEnablePeerAccess(peerDeviceId: Ordinal, flags: UInt);
            access(disable)                       hip      4020 hipDeviceDisablePeerAccess(peerDeviceId: Ordinal);
            access(query)                         hip      4020 hipDeviceGetP2PAttribute(value: OutInt, attr: P2pAttribute, srcDevice: Ordinal, dstDevice: Ordinal);
            traced                                hip      4020 hipCtxEnablePeerAccess(peerCtx: Context, flags: UInt);
            traced                                hip      4020 hipCtxDisablePeerAccess(peerCtx: Context);

            state(begins_capture)                 hip      4030 hipStreamBeginCapture(stream: Stream, mode: Int);
            state(begins_capture)                 hip      5030 hipStreamBeginCapture_spt(stream: Stream, mode: Int);
            state(begins_capture)                 hip      6010 hipStreamBeginCaptureToGraph(stream: Stream, graph: Pointer, dependencies: Pointer, dependencyData: Pointer, numDependencies: Size, mode: Int);
            state(ends_capture)                   hip      4030 hipStreamEndCapture(stream: Stream, pGraph: Pointer);
            state(ends_capture)                   hip      5030 hipStreamEndCapture_spt(stream: Stream, pGraph: Pointer);
            state(destroys_stream)                hip      4020 hipStreamDestroy(stream: Stream);
            state(waits)                          hip      4020 hipStreamSynchronize(stream: Stream);
            state(waits)                          hip      5020 hipStreamSynchronize_spt(stream: Stream);
            state(waits)                          hip      4020 hipCtxSynchronize();
            state(waits)                          hip      4020 hipDeviceSynchronize();
            state(waits)                          hip      4020 hipEventSynchronize(event: Pointer);
            state(resets_device)                  hip      4020 hipDeviceReset();
            state(frees_memory)                   hip      4020 hipFree(ptr: Pointer);
            state(frees_memory)                   hip      5010 hipFreeAsync(dev_ptr: Pointer, stream: Stream);
            state(frees_memory)                   hip      4020 hipHostFree(ptr: Pointer);
            state(frees_memory)                   hip      4020 hipFreeHost(ptr: Pointer);
            state(frees_memory)                   hip      4020 hipHostUnregister(hostPtr: Pointer);
            state(frees_memory)                   hip      5010 hipMemUnmap(ptr: Pointer, size: Size);
            state(frees_memory)                   hip      4020 hipIpcCloseMemHandle(devPtr: Pointer);

            lookup                                hip      6010 hipGetProcAddress(symbol: Text, pfn: Pointer, hipVersion: Int, flags: UInt64, symbolStatus: Pointer);
            lookup                                hip      7020 hipGetProcAddress_spt(symbol: Text, pfn: Pointer, hipVersion: Int, flags: UInt64, symbolStatus: Pointer);
            lookup                                hip      7010 hipGetDriverEntryPoint(symbol: Text, funcPtr: Pointer, flags: UInt64, driverStatus: Pointer);
            lookup                                hip      7010 hipGetDriverEntryPoint_spt(symbol: Text, funcPtr: Pointer, flags: UInt64, driverStatus: Pointer);
        }
    };
}
pub(crate) use for_each_function;

/// Calls `$with!` with `$args` and the symbol versions of libcudart that a program may be bound to.
macro_rules! with_runtime_versions {
    ($with:ident $($args:tt)*) => {
        $with! { $($args)*
            "libcudart.so.8.0" "libcudart.so.9.0" "libcudart.so.9.1" "libcudart.so.9.2" "libcudart.so.10.0" "libcudart.so.10.1"
            "libcudart.so.10.2" "libcudart.so.11.0" "libcudart.so.12" "libcudart.so.13" "libcudart.so.14"
        }
    };
}
pub(crate) use with_runtime_versions;

/// The versions of libamdhip64: a node for each release that added one of these functions.
macro_rules! with_hip_versions {
    ($with:ident $($args:tt)*) => {
        $with! { $($args)* "hip_4.2" "hip_4.3" "hip_5.1" "hip_5.2" "hip_5.3" "hip_6.1" "hip_7.1" "hip_7.2" }
    };
}
pub(crate) use with_hip_versions;
