//! Names of the codes that functions of CUDA and HIP return.

use std::ops::RangeInclusive;

/// Code, name in the runtime, in the driver, in HIP; `-` where a layer has no such code.
/// Source: driver_types.h and cuda.h of CUDA 13.5; what hipGetErrorName of HIP 5.2.3 returns.
pub static NAMES: &str = "
0 cudaSuccess CUDA_SUCCESS hipSuccess
1 cudaErrorInvalidValue CUDA_ERROR_INVALID_VALUE hipErrorInvalidValue
2 cudaErrorMemoryAllocation CUDA_ERROR_OUT_OF_MEMORY hipErrorOutOfMemory
3 cudaErrorInitializationError CUDA_ERROR_NOT_INITIALIZED hipErrorNotInitialized
4 cudaErrorCudartUnloading CUDA_ERROR_DEINITIALIZED hipErrorDeinitialized
5 cudaErrorProfilerDisabled CUDA_ERROR_PROFILER_DISABLED hipErrorProfilerDisabled
6 cudaErrorProfilerNotInitialized CUDA_ERROR_PROFILER_NOT_INITIALIZED hipErrorProfilerNotInitialized
7 cudaErrorProfilerAlreadyStarted CUDA_ERROR_PROFILER_ALREADY_STARTED hipErrorProfilerAlreadyStarted
8 cudaErrorProfilerAlreadyStopped CUDA_ERROR_PROFILER_ALREADY_STOPPED hipErrorProfilerAlreadyStopped
9 cudaErrorInvalidConfiguration - hipErrorInvalidConfiguration
10 cudaErrorVersionTranslation - -
12 cudaErrorInvalidPitchValue - hipErrorInvalidPitchValue
13 cudaErrorInvalidSymbol - hipErrorInvalidSymbol
16 cudaErrorInvalidHostPointer - -
17 cudaErrorInvalidDevicePointer - hipErrorInvalidDevicePointer
18 cudaErrorInvalidTexture - -
19 cudaErrorInvalidTextureBinding - -
20 cudaErrorInvalidChannelDescriptor - -
21 cudaErrorInvalidMemcpyDirection - hipErrorInvalidMemcpyDirection
22 cudaErrorAddressOfConstant - -
23 cudaErrorTextureFetchFailed - -
24 cudaErrorTextureNotBound - -
25 cudaErrorSynchronizationError - -
26 cudaErrorInvalidFilterSetting - -
27 cudaErrorInvalidNormSetting - -
28 cudaErrorMixedDeviceExecution - -
31 cudaErrorNotYetImplemented - -
32 cudaErrorMemoryValueTooLarge - -
34 cudaErrorStubLibrary CUDA_ERROR_STUB_LIBRARY -
35 cudaErrorInsufficientDriver - hipErrorInsufficientDriver
36 cudaErrorCallRequiresNewerDriver CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER -
37 cudaErrorInvalidSurface - -
43 cudaErrorDuplicateVariableName - -
44 cudaErrorDuplicateTextureName - -
45 cudaErrorDuplicateSurfaceName - -
46 cudaErrorDevicesUnavailable CUDA_ERROR_DEVICE_UNAVAILABLE -
47 - CUDA_ERROR_MULTICAST_RESOURCE_FULL -
49 cudaErrorIncompatibleDriverContext - -
52 cudaErrorMissingConfiguration - hipErrorMissingConfiguration
53 cudaErrorPriorLaunchFailure - hipErrorPriorLaunchFailure
65 cudaErrorLaunchMaxDepthExceeded - -
66 cudaErrorLaunchFileScopedTex - -
67 cudaErrorLaunchFileScopedSurf - -
68 cudaErrorSyncDepthExceeded - -
69 cudaErrorLaunchPendingCountExceeded - -
98 cudaErrorInvalidDeviceFunction - hipErrorInvalidDeviceFunction
100 cudaErrorNoDevice CUDA_ERROR_NO_DEVICE hipErrorNoDevice
101 cudaErrorInvalidDevice CUDA_ERROR_INVALID_DEVICE hipErrorInvalidDevice
102 cudaErrorDeviceNotLicensed CUDA_ERROR_DEVICE_NOT_LICENSED -
103 cudaErrorSoftwareValidityNotEstablished - -
127 cudaErrorStartupFailure - -
200 cudaErrorInvalidKernelImage CUDA_ERROR_INVALID_IMAGE hipErrorInvalidImage
201 cudaErrorDeviceUninitialized CUDA_ERROR_INVALID_CONTEXT hipErrorInvalidContext
202 - CUDA_ERROR_CONTEXT_ALREADY_CURRENT hipErrorContextAlreadyCurrent
205 cudaErrorMapBufferObjectFailed CUDA_ERROR_MAP_FAILED hipErrorMapFailed
206 cudaErrorUnmapBufferObjectFailed CUDA_ERROR_UNMAP_FAILED hipErrorUnmapFailed
207 cudaErrorArrayIsMapped CUDA_ERROR_ARRAY_IS_MAPPED hipErrorArrayIsMapped
208 cudaErrorAlreadyMapped CUDA_ERROR_ALREADY_MAPPED hipErrorAlreadyMapped
209 cudaErrorNoKernelImageForDevice CUDA_ERROR_NO_BINARY_FOR_GPU hipErrorNoBinaryForGpu
210 cudaErrorAlreadyAcquired CUDA_ERROR_ALREADY_ACQUIRED hipErrorAlreadyAcquired
211 cudaErrorNotMapped CUDA_ERROR_NOT_MAPPED hipErrorNotMapped
212 cudaErrorNotMappedAsArray CUDA_ERROR_NOT_MAPPED_AS_ARRAY hipErrorNotMappedAsArray
213 cudaErrorNotMappedAsPointer CUDA_ERROR_NOT_MAPPED_AS_POINTER hipErrorNotMappedAsPointer
214 cudaErrorECCUncorrectable CUDA_ERROR_ECC_UNCORRECTABLE hipErrorECCNotCorrectable
215 cudaErrorUnsupportedLimit CUDA_ERROR_UNSUPPORTED_LIMIT hipErrorUnsupportedLimit
216 cudaErrorDeviceAlreadyInUse CUDA_ERROR_CONTEXT_ALREADY_IN_USE hipErrorContextAlreadyInUse
217 cudaErrorPeerAccessUnsupported CUDA_ERROR_PEER_ACCESS_UNSUPPORTED hipErrorPeerAccessUnsupported
218 cudaErrorInvalidPtx CUDA_ERROR_INVALID_PTX hipErrorInvalidKernelFile
219 cudaErrorInvalidGraphicsContext CUDA_ERROR_INVALID_GRAPHICS_CONTEXT hipErrorInvalidGraphicsContext
220 cudaErrorNvlinkUncorrectable CUDA_ERROR_NVLINK_UNCORRECTABLE -
221 cudaErrorJitCompilerNotFound CUDA_ERROR_JIT_COMPILER_NOT_FOUND -
222 cudaErrorUnsupportedPtxVersion CUDA_ERROR_UNSUPPORTED_PTX_VERSION -
223 cudaErrorJitCompilationDisabled CUDA_ERROR_JIT_COMPILATION_DISABLED -
224 cudaErrorUnsupportedExecAffinity CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY -
225 cudaErrorUnsupportedDevSideSync CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC -
226 cudaErrorContained CUDA_ERROR_CONTAINED -
227 cudaErrorInsufficientLoaderVersion CUDA_ERROR_INSUFFICIENT_LOADER_VERSION -
300 cudaErrorInvalidSource CUDA_ERROR_INVALID_SOURCE hipErrorInvalidSource
301 cudaErrorFileNotFound CUDA_ERROR_FILE_NOT_FOUND hipErrorFileNotFound
302 cudaErrorSharedObjectSymbolNotFound CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND hipErrorSharedObjectSymbolNotFound
303 cudaErrorSharedObjectInitFailed CUDA_ERROR_SHARED_OBJECT_INIT_FAILED hipErrorSharedObjectInitFailed
304 cudaErrorOperatingSystem CUDA_ERROR_OPERATING_SYSTEM hipErrorOperatingSystem
400 cudaErrorInvalidResourceHandle CUDA_ERROR_INVALID_HANDLE hipErrorInvalidHandle
401 cudaErrorIllegalState CUDA_ERROR_ILLEGAL_STATE hipErrorIllegalState
402 cudaErrorLossyQuery CUDA_ERROR_LOSSY_QUERY -
500 cudaErrorSymbolNotFound CUDA_ERROR_NOT_FOUND hipErrorNotFound
600 cudaErrorNotReady CUDA_ERROR_NOT_READY hipErrorNotReady
700 cudaErrorIllegalAddress CUDA_ERROR_ILLEGAL_ADDRESS hipErrorIllegalAddress
701 cudaErrorLaunchOutOfResources CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES hipErrorLaunchOutOfResources
702 cudaErrorLaunchTimeout CUDA_ERROR_LAUNCH_TIMEOUT hipErrorLaunchTimeOut
703 cudaErrorLaunchIncompatibleTexturing CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING -
704 cudaErrorPeerAccessAlreadyEnabled CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED hipErrorPeerAccessAlreadyEnabled
705 cudaErrorPeerAccessNotEnabled CUDA_ERROR_PEER_ACCESS_NOT_ENABLED hipErrorPeerAccessNotEnabled
708 cudaErrorSetOnActiveProcess CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE hipErrorSetOnActiveProcess
709 cudaErrorContextIsDestroyed CUDA_ERROR_CONTEXT_IS_DESTROYED hipErrorContextIsDestroyed
710 cudaErrorAssert CUDA_ERROR_ASSERT hipErrorAssert
711 cudaErrorTooManyPeers CUDA_ERROR_TOO_MANY_PEERS -
712 cudaErrorHostMemoryAlreadyRegistered CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED hipErrorHostMemoryAlreadyRegistered
713 cudaErrorHostMemoryNotRegistered CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED hipErrorHostMemoryNotRegistered
714 cudaErrorHardwareStackError CUDA_ERROR_HARDWARE_STACK_ERROR -
715 cudaErrorIllegalInstruction CUDA_ERROR_ILLEGAL_INSTRUCTION -
716 cudaErrorMisalignedAddress CUDA_ERROR_MISALIGNED_ADDRESS -
717 cudaErrorInvalidAddressSpace CUDA_ERROR_INVALID_ADDRESS_SPACE -
718 cudaErrorInvalidPc CUDA_ERROR_INVALID_PC -
719 cudaErrorLaunchFailure CUDA_ERROR_LAUNCH_FAILED hipErrorLaunchFailure
720 cudaErrorCooperativeLaunchTooLarge CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE hipErrorCooperativeLaunchTooLarge
721 cudaErrorTensorMemoryLeak CUDA_ERROR_TENSOR_MEMORY_LEAK -
800 cudaErrorNotPermitted CUDA_ERROR_NOT_PERMITTED -
801 cudaErrorNotSupported CUDA_ERROR_NOT_SUPPORTED hipErrorNotSupported
802 cudaErrorSystemNotReady CUDA_ERROR_SYSTEM_NOT_READY -
803 cudaErrorSystemDriverMismatch CUDA_ERROR_SYSTEM_DRIVER_MISMATCH -
804 cudaErrorCompatNotSupportedOnDevice CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE -
805 cudaErrorMpsConnectionFailed CUDA_ERROR_MPS_CONNECTION_FAILED -
806 cudaErrorMpsRpcFailure CUDA_ERROR_MPS_RPC_FAILURE -
807 cudaErrorMpsServerNotReady CUDA_ERROR_MPS_SERVER_NOT_READY -
808 cudaErrorMpsMaxClientsReached CUDA_ERROR_MPS_MAX_CLIENTS_REACHED -
809 cudaErrorMpsMaxConnectionsReached CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED -
810 cudaErrorMpsClientTerminated CUDA_ERROR_MPS_CLIENT_TERMINATED -
811 cudaErrorCdpNotSupported CUDA_ERROR_CDP_NOT_SUPPORTED -
812 cudaErrorCdpVersionMismatch CUDA_ERROR_CDP_VERSION_MISMATCH -
900 cudaErrorStreamCaptureUnsupported CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED hipErrorStreamCaptureUnsupported
901 cudaErrorStreamCaptureInvalidated CUDA_ERROR_STREAM_CAPTURE_INVALIDATED hipErrorStreamCaptureInvalidated
902 cudaErrorStreamCaptureMerge CUDA_ERROR_STREAM_CAPTURE_MERGE hipErrorStreamCaptureMerge
903 cudaErrorStreamCaptureUnmatched CUDA_ERROR_STREAM_CAPTURE_UNMATCHED hipErrorStreamCaptureUnmatched
904 cudaErrorStreamCaptureUnjoined CUDA_ERROR_STREAM_CAPTURE_UNJOINED hipErrorStreamCaptureUnjoined
905 cudaErrorStreamCaptureIsolation CUDA_ERROR_STREAM_CAPTURE_ISOLATION hipErrorStreamCaptureIsolation
906 cudaErrorStreamCaptureImplicit CUDA_ERROR_STREAM_CAPTURE_IMPLICIT hipErrorStreamCaptureImplicit
907 cudaErrorCapturedEvent CUDA_ERROR_CAPTURED_EVENT hipErrorCapturedEvent
908 cudaErrorStreamCaptureWrongThread CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD hipErrorStreamCaptureWrongThread
909 cudaErrorTimeout CUDA_ERROR_TIMEOUT -
910 cudaErrorGraphExecUpdateFailure CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE hipErrorGraphExecUpdateFailure
911 cudaErrorExternalDevice CUDA_ERROR_EXTERNAL_DEVICE -
912 cudaErrorInvalidClusterSize CUDA_ERROR_INVALID_CLUSTER_SIZE -
913 cudaErrorFunctionNotLoaded CUDA_ERROR_FUNCTION_NOT_LOADED -
914 cudaErrorInvalidResourceType CUDA_ERROR_INVALID_RESOURCE_TYPE -
915 cudaErrorInvalidResourceConfiguration CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION -
916 - CUDA_ERROR_KEY_ROTATION -
917 cudaErrorStreamDetached CUDA_ERROR_STREAM_DETACHED -
918 cudaErrorGraphRecaptureFailure CUDA_ERROR_GRAPH_RECAPTURE_FAILURE -
919 cudaErrorFabricNotReady CUDA_ERROR_FABRIC_NOT_READY -
999 cudaErrorUnknown CUDA_ERROR_UNKNOWN hipErrorUnknown
1052 - - hipErrorRuntimeMemory
1053 - - hipErrorRuntimeOther
1054 - - hipErrorTbd
";

/// Numbers that the runtime's codes had until CUDA 10.0, and those they have since 10.1, where the two differ.
/// Source: what cudaGetErrorName of 9.0, 10.0 and 10.1 returns.
const RENUMBERED: &[(i32, i32)] = &[
    (1, 52),
    (4, 719),
    (5, 53),
    (6, 702),
    (7, 701),
    (8, 98),
    (10, 101),
    (11, 1),
    (14, 205),
    (15, 206),
    (29, 4),
    (30, 999),
    (33, 400),
    (34, 600),
    (36, 708),
    (38, 100),
    (39, 214),
    (40, 302),
    (41, 303),
    (42, 215),
    (47, 200),
    (48, 209),
    (50, 704),
    (51, 705),
    (54, 216),
    (55, 5),
    (56, 6),
    (57, 7),
    (58, 8),
    (59, 710),
    (60, 711),
    (61, 712),
    (62, 713),
    (63, 304),
    (64, 217),
    (70, 800),
    (71, 801),
    (72, 714),
    (73, 715),
    (74, 716),
    (75, 717),
    (76, 718),
    (77, 700),
    (78, 218),
    (79, 219),
    (80, 220),
    (81, 221),
    (82, 720),
    (83, 802),
    (84, 401),
];

/// Codes that had the same number.
const KEPT: &[RangeInclusive<i32>] = &[
    0..=0,
    2..=3,
    9..=9,
    12..=13,
    16..=28,
    31..=32,
    35..=35,
    37..=37,
    43..=46,
    49..=49,
    65..=69,
    127..=127,
    900..=907,
];

/// The number since CUDA 10.1 of a code of the runtime of CUDA 10.0 or older; none if it was no code there.
pub fn since_10_1(old: i32) -> Option<i32> {
    RENUMBERED.iter().find(|(number, _)| *number == old).map(|(_, code)| *code).or_else(|| kept(old))
}

/// The number that a code of the runtime had until 10.0; none if it had none.
pub fn until_10_0(code: i32) -> Option<i32> {
    RENUMBERED.iter().find(|(_, now)| *now == code).map(|(number, _)| *number).or_else(|| kept(code))
}

fn kept(code: i32) -> Option<i32> {
    KEPT.iter().any(|range| range.contains(&code)).then_some(code)
}

/// The codes, each with its names in the runtime, in the driver and in HIP.
pub fn rows() -> impl Iterator<Item = (i32, [Option<&'static str>; 3])> {
    NAMES.lines().filter_map(|line| {
        let mut columns = line.split(' ');
        let code = columns.next()?.parse().ok()?;
        Some((code, [(); 3].map(|()| columns.next().filter(|&name| name != "-"))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_a_name_each_and_codes_rise() {
        let rows: Vec<_> = rows().collect();
        assert_eq!(rows.len(), NAMES.trim().lines().count());
        assert!(rows.iter().all(|(_, names)| names.iter().any(Option::is_some)));
        assert!(rows.is_sorted_by(|(one, _), (other, _)| one < other));
    }

    #[test]
    fn old_numbers_and_new_ones_are_each_others() {
        let old: Vec<i32> = (0..1_000).filter(|&number| since_10_1(number).is_some()).collect();
        assert_eq!(old.len(), 92, "as many as cudaGetErrorName of 10.0 knows");
        for number in old {
            let code = since_10_1(number).unwrap();
            assert_eq!(until_10_0(code), Some(number));
            let (_, [runtime, ..]) = rows().find(|(known, _)| *known == code).unwrap();
            assert!(runtime.is_some(), "{code}");
        }
        // Measured with 9.0 on H200: bad ordinal, enabled twice, with itself, not enabled, invalid value, capture.
        assert_eq!([10, 50, 64, 51, 11, 900].map(since_10_1), [101, 704, 217, 705, 1, 900].map(Some));
        assert_eq!([101, 704, 909].map(since_10_1), [None; 3], "of 10.1 and later");
        assert_eq!([909, 223].map(until_10_0), [None; 2]);
    }
}
