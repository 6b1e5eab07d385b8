//! THE rules: what programs get wrong with peer calls, one row each.
//!
//! # How to add a rule
//!
//! Add one row, find it in `arguments`, `returned` or `hazards`, and make it speak, and be silent beside it: by rows of the
//! conformance tables if one call in a fresh process can show it, else by a case of c-tests/cases/findings.c and
//! tests/it/findings.rs, which says so as long as there is neither. `make header` writes docs/MESSAGES.md anew. An id is never
//! renamed and never reused.
//!
//! The documentation is that of CUDA 13.0; what real hardware does was measured: docs/CONFORMANCE.md. What HIP documents, and
//! what its published code does, stands behind "HIP:"; no AMD GPU was run. A message about a call of HIP has HIP's names for
//! those of CUDA (`src/record/hipify.rs`).

use crate::api::Layer;
use crate::api::abi::Code;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// The call fails, or would fail if CUDA checked its arguments.
    Error,
    /// The call succeeds, and data may be wrong.
    Hazard,
    /// It takes longer than it has to.
    Performance,
    /// Harmless by itself; what programs make of it is often not. In the log from `info` on.
    Note,
}

impl Severity {
    /// The severity's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Hazard => "hazard",
            Self::Performance => "performance",
            Self::Note => "note",
        }
    }
}

/// The texts of a rule. They end in NUL, so that they can be handed to C as they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text {
    /// The stable id.
    pub(crate) id: &'static str,
    /// How bad it is.
    pub(crate) severity: Severity,
    /// The functions that it is about, as far as the program calls them.
    pub(crate) functions: &'static str,
    /// The codes that the documentation gives: of the runtime, the driver, and HIP. 0 for none.
    pub(crate) codes: [i32; 3],
    /// The documentation's words, and their place.
    pub(crate) documentation: &'static str,
    /// The behaviour of real hardware, where it is not that.
    pub(crate) hardware: &'static str,
    /// Why it matters.
    pub(crate) why: &'static str,
    /// The remedy.
    pub(crate) remedy: &'static str,
}

macro_rules! rules {
    ($( $rule:ident $id:literal $severity:ident [$runtime:literal, $driver:literal, $hip:literal] $functions:literal
        $documentation:literal $hardware:literal $why:literal $remedy:literal; )*) => {
        /// A rule.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub(crate) enum Rule { $($rule),* }

        impl Rule {
            /// All rules, in the order of the documents.
            pub(crate) const ALL: &[Self] = &[$(Self::$rule),*];

            /// The texts of the rule.
            pub(crate) const fn text(self) -> &'static Text {
                match self {
                    $(Self::$rule => &Text {
                        id: concat!($id, "\0"),
                        severity: Severity::$severity,
                        functions: concat!($functions, "\0"),
                        codes: [$runtime, $driver, $hip],
                        documentation: concat!($documentation, "\0"),
                        hardware: concat!($hardware, "\0"),
                        why: concat!($why, "\0"),
                        remedy: concat!($remedy, "\0"),
                    }),*
                }
            }
        }
    };
}

impl Text {
    /// The code of a layer; success for none.
    pub(crate) fn code(&self, layer: Layer) -> Code {
        let [runtime, driver, hip] = self.codes;
        Code(match layer {
            Layer::Runtime => runtime,
            Layer::Driver => driver,
            Layer::Hip => hip,
            Layer::Nvml => 0,
        })
    }
}

impl Rule {
    /// The code that the documentation gives for it.
    pub(crate) fn code(self, layer: Layer) -> Option<Code> {
        Some(self.text().code(layer)).filter(|&code| code != Code::SUCCESS)
    }

    /// The stable id.
    pub(crate) fn id(self) -> &'static str {
        self.text().id.trim_end_matches('\0')
    }
}

rules! {
    // ---- Copies: arguments ----

    CopyNullPointer "P2P-copy-null-pointer" Error [1, 1, 1]
        "all copies between devices"
        "Memory Management: dst and src are device pointers; a parameter out of range returns invalid value. HIP: the same."
        "NULL is accepted if the size is zero. The documentation allows that too."
        "NULL is not device memory. Most often an earlier allocation failed and its error was not checked."
        "Check what cudaMalloc or cuMemAlloc returned for this buffer.";

    CopyDeviceOrdinal "P2P-copy-device-ordinal" Error [101, 0, 101]
        "cudaMemcpyPeer, cudaMemcpyPeerAsync, cudaMemcpy3DPeer, cudaMemcpy3DPeerAsync, hipMemcpyPeer, hipMemcpyPeerAsync, hipMemcpy3DPeer, hipMemcpy3DPeerAsync"
        "Memory Management: an ordinal without a device returns cudaErrorInvalidDevice. HIP: the same; it is checked before anything else."
        "A linear copy of zero bytes accepts any ordinal. A 3D copy with an empty extent checks it."
        "Ordinals count from 0, over the devices that this process sees. CUDA_VISIBLE_DEVICES hides devices and renumbers the rest."
        "Compare with cudaGetDeviceCount in this process. Use this process's numbering, not that of nvidia-smi.";

    CopyZeroBytes "P2P-copy-zero-bytes" Hazard [101, 201, 0]
        "cudaMemcpyPeer, cudaMemcpyPeerAsync, cuMemcpyPeer, cuMemcpyPeerAsync"
        "Memory Management: bad ordinals, contexts and streams are errors, whatever the size."
        "A copy of zero bytes succeeds, and its ordinals and contexts are not checked. The runtime does not check the stream either; the driver uses it, and crashes."
        "The bad argument goes unnoticed until the size is not zero, or until another release of CUDA checks it."
        "Correct the argument, or skip the call when there is nothing to copy.";

    CopyPastAllocation "P2P-copy-past-allocation" Error [1, 1, 1]
        "all copies between devices"
        "Memory Management: the copied range must lie inside the allocation. HIP: the same."
        "The whole copy is refused; nothing is copied."
        "The count is too large, or it counts elements instead of bytes, or the pointer was advanced too far."
        "Compare pointer and size with the allocation.";

    CopyHostMemory "P2P-copy-host-memory" Error [1, 1, 1]
        "all copies between devices"
        "Memory Management: dst and src are device pointers. HIP: the same, but accepted."
        "Pageable memory is refused with invalid value. The runtime's 3D copies refuse it too, although their documentation allows it. The driver's 3D copies accept it as host or unified memory."
        "This address is ordinary host memory, which CUDA does not know."
        "Use cudaMemcpyAsync with cudaMemcpyDefault to copy from or to the host.";

    CopyPinnedHost "P2P-copy-pinned-host" Hazard [0, 0, 0]
        "cudaMemcpyPeer, cudaMemcpyPeerAsync, cuMemcpyPeer, cuMemcpyPeerAsync, hipMemcpyPeer, hipMemcpyPeerAsync"
        "Memory Management: dst and src are device pointers; page-locked host memory is not mentioned. HIP: the same."
        "Page-locked host memory is accepted as source and destination. The ordinal given for it has no effect."
        "It works by accident. It is not a copy between devices: it crosses PCIe, at the speed of host memory."
        "If this is intended, use cudaMemcpyAsync with cudaMemcpyDefault. If not, one of the pointers is wrong.";

    CopyFreedMemory "P2P-copy-freed-memory" Error [1, 1, 0]
        "all copies between devices"
        "Memory Management: memory cannot be used after it was freed."
        "Refused with invalid value until something else is allocated at the same address."
        "The program has freed this memory. Once something else is allocated at the address, the copy succeeds and overwrites it."
        "Free it after the last copy has completed, or order the two with a stream (cudaFreeAsync) or an event.";

    CopyUnknownPointer "P2P-copy-unknown-pointer" Error [1, 1, 1]
        "all copies between devices"
        "Memory Management: dst and src are device pointers of this process. HIP: the same; HIP takes an unknown address for host memory, and the process may end with a fault."
        "Refused with invalid value."
        "CUDA knows no memory at this address. It was never allocated, belongs to another process, or was freed, perhaps when its device was reset or its context destroyed."
        "Find out where the pointer comes from. Open memory of another process with cudaIpcOpenMemHandle first.";

    CopyMappedNoAccess "P2P-copy-mapped-no-access" Error [0, 0, 0]
        "all copies between devices"
        "Virtual Memory Management: mapped memory cannot be accessed until cuMemSetAccess grants access to a device."
        "Refused with invalid value."
        "After cuMemMap no device can access the memory, not even its own, until cuMemSetAccess succeeds."
        "Call cuMemSetAccess for the device of the memory, and for each peer that copies from or to it. Check what it returns: if one of the devices has no path to the memory, none gets access.";

    CopyNoRights "P2P-copy-no-rights" Error [1, 1, 0]
        "cudaMemcpy, cudaMemcpyAsync, cuMemcpy, cuMemcpyAsync, cuMemcpyDtoD, cuMemcpyDtoDAsync, and the 2D and 3D copies that name no devices"
        "Stream Ordered Memory Allocator, Virtual Memory Management: memory is accessible from its own device, and from those to which cudaMemPoolSetAccess or cuMemSetAccess grants access."
        "Refused with invalid value, whether peer access is enabled or not. Which device counts is the current one; of a batch, that of its stream."
        "Memory of cudaMallocAsync and of cuMemMap has access rights of its own. A regular copy needs those of the device that makes it for both ends. So a copy from the pool of one device to the pool of another always fails until one of the two pools is opened to the other device."
        "Make the memory's device current for the copy, grant the current device access, or use cudaMemcpyPeerAsync, which needs no rights.";

    CopyNullContext "P2P-copy-null-context" Hazard [0, 201, 0]
        "cuMemcpyPeer, cuMemcpyPeerAsync, cuMemcpy3DPeer, cuMemcpy3DPeerAsync"
        "Memory Management: dstContext and srcContext are contexts; an invalid one returns invalid context."
        "NULL is accepted: with unified addressing the pointers decide."
        "It works by accident. Another release of CUDA may check it."
        "Pass the context that each pointer was allocated in.";

    CopyInvalidContext "P2P-copy-invalid-context" Error [0, 201, 0]
        "cuMemcpyPeer, cuMemcpyPeerAsync, cuMemcpy3DPeer, cuMemcpy3DPeerAsync"
        "Memory Management: an invalid context returns invalid context."
        "The library crashes, unless the size is zero: then the context is not checked."
        "The context was destroyed, its device was reset, its primary context was released, or the handle was never a context."
        "Keep contexts until the last copy has completed. After cuDevicePrimaryCtxReset or Release, retain the primary context again and pass the new handle.";

    CopyNoContext "P2P-copy-no-context" Error [0, 201, 0]
        "cuMemcpyPeer, cuMemcpyPeerAsync, cuMemcpy3DPeer, cuMemcpy3DPeerAsync"
        "Memory Management: without a current context the driver returns invalid context, although both contexts are passed."
        "An asynchronous copy on a created stream succeeds nevertheless. On a default stream it is refused, and so is a synchronous copy."
        "Contexts are current per thread: a new thread has none."
        "Call cuCtxSetCurrent in this thread first.";

    CopyDestroyedStream "P2P-copy-destroyed-stream" Error [400, 400, 0]
        "all asynchronous copies of CUDA between devices"
        "Memory Management (driver): an invalid stream returns invalid handle; the runtime's page does not say. HIP: not documented either; returns 709, 400 or 1, depending on the release."
        "The library crashes. A stream that was destroyed with its context returns 709, context is destroyed."
        "The stream was destroyed, by the program or with its context, or the handle was never a stream. A new stream may get the same handle at any time, and the copy then runs on that one."
        "Destroy a stream after the last call that uses it, and then set the variable to NULL.";

    CopyOverlap "P2P-copy-overlap" Hazard [0, 0, 0]
        "all copies between devices"
        "Memory Management: memory areas may not overlap; the result is undefined if they do."
        "Accepted."
        "The copy may read bytes that it has already written, depending on size, alignment and device."
        "Copy through a second buffer, or avoid the overlap.";

    CopyOrdinalMismatch "P2P-copy-ordinal-mismatch" Hazard [0, 0, 0]
        "all copies between devices"
        "Memory Management: dstDevice and srcDevice (dstContext and srcContext) are the devices (contexts) of the pointers. HIP: the same for dstDeviceId and srcDeviceId."
        "Accepted: with unified addressing the pointers decide, and ordinals and contexts have no effect."
        "The copy does not go where its arguments say. If the program chooses peer access, streams or events by the same ordinals, it chooses them for the wrong devices."
        "Get the device of each pointer from cudaPointerGetAttributes, and pass it.";

    // ---- Copies in 3D ----

    Copy3dNullParameters "P2P-copy3d-null-parameters" Error [1, 1, 1]
        "cudaMemcpy3DPeer, cudaMemcpy3DPeerAsync, cuMemcpy3DPeer, cuMemcpy3DPeerAsync, hipMemcpy3DPeer, hipMemcpy3DPeerAsync"
        "Memory Management: p points to the parameters. HIP: NULL returns invalid value."
        "The runtime returns invalid value; the driver crashes."
        "The call has no parameters to read."
        "Pass the address of the parameters.";

    Copy3dArrayAndPointer "P2P-copy3d-array-and-pointer" Error [1, 0, 1]
        "cudaMemcpy3DPeer, cudaMemcpy3DPeerAsync, hipMemcpy3DPeer, hipMemcpy3DPeerAsync"
        "cudaMemcpy3DPeerParms: each side sets exactly one of array and pitched pointer; setting both is an error. HIP: the same."
        "Refused with invalid value if the array is valid. An invalid array crashes the library."
        "CUDA cannot know which of the two is meant. Most often the parameters were not cleared (= {0}) before use."
        "Begin with cudaMemcpy3DPeerParms p = {0}, and set either the array or the pointer of each side.";

    Copy3dNoMemory "P2P-copy3d-no-memory" Error [1, 1, 1]
        "cudaMemcpy3DPeer, cudaMemcpy3DPeerAsync, cuMemcpy3DPeer, cuMemcpy3DPeerAsync, hipMemcpy3DPeer, hipMemcpy3DPeerAsync"
        "cudaMemcpy3DPeerParms: each side sets exactly one of array and pitched pointer. HIP: the same."
        "Accepted if the extent is zero."
        "One side has neither array nor pointer."
        "Set the array or the pointer. Check what the allocation returned.";

    Copy3dPitch "P2P-copy3d-pitch" Error [12, 1, 12]
        "all 2D and 3D copies between devices"
        "Memory Management: a pitch smaller than the row, or larger than cudaDevAttrMaxPitch, returns invalid pitch value (driver: invalid value). HIP: the same."
        "Returns invalid value if the pitch is too large, or if an array takes part. A pitch that is too large is accepted for a single row. The driver accepts 0."
        "The pitch counts bytes. So does the width of the extent, unless an array takes part."
        "Use the pitch that cudaMalloc3D or cudaMallocPitch returned, or the bytes per row if the memory has no padding.";

    Copy3dHeight "P2P-copy3d-height" Error [12, 1, 0]
        "all 2D and 3D copies between devices"
        "Memory Management: the height of the memory (ysize, srcHeight, dstHeight) says where the next slice begins; a height below that of the extent is an error."
        "The runtime returns invalid pitch value, the driver invalid value. If there is only one slice, the runtime refuses a height that is too small with invalid value. The driver accepts 0."
        "The slices would overlap."
        "Set ysize (srcHeight, dstHeight) to the number of rows of one slice as allocated.";

    Copy3dPosition "P2P-copy3d-position" Error [1, 1, 1]
        "all 2D and 3D copies between devices"
        "Memory Management: position and extent must lie inside the object. HIP: the same."
        ""
        "Position plus extent exceeds the row or the slice. Positions count elements: bytes for pointers, texels for arrays."
        "Subtract the position from the extent, and check the units.";

    Copy3dOutsideArray "P2P-copy3d-outside-array" Error [1, 1, 0]
        "cudaMemcpy3DPeer, cudaMemcpy3DPeerAsync, cuMemcpy3DPeer, cuMemcpy3DPeerAsync"
        "Memory Management: position and extent must lie inside the array."
        ""
        "If an array takes part, the width of the extent counts elements of the array in the runtime, and bytes in the driver."
        "Compare with cudaArrayGetInfo.";

    Copy3dElementSize "P2P-copy3d-element-size" Error [1, 0, 0]
        "cudaMemcpy3DPeer, cudaMemcpy3DPeerAsync"
        "Memory Management: both arrays of a copy have elements of the same size."
        ""
        "The extent counts elements, and the elements of the two arrays differ in size."
        "Create both arrays with the same cudaChannelFormatDesc.";

    Copy3dDestroyedArray "P2P-copy3d-destroyed-array" Error [1, 1, 0]
        "cudaMemcpy3DPeer, cudaMemcpy3DPeerAsync, cuMemcpy3DPeer, cuMemcpy3DPeerAsync"
        "Memory Management: srcArray and dstArray are arrays."
        "The library crashes."
        "The program has freed this array."
        "Free arrays after the last copy has completed.";

    Copy3dReservedField "P2P-copy3d-reserved-field" Error [0, 1, 0]
        "cuMemcpy3DPeer, cuMemcpy3DPeerAsync"
        "CUDA_MEMCPY3D_PEER: srcLOD and dstLOD must be 0."
        "Accepted."
        "Most often the parameters were not cleared before use, and other fields are uninitialised too."
        "Begin with CUDA_MEMCPY3D_PEER p = {0}.";

    Copy3dMemoryType "P2P-copy3d-memory-type" Error [0, 1, 0]
        "cuMemcpy3DPeer, cuMemcpy3DPeerAsync"
        "CUDA_MEMCPY3D_PEER: srcMemoryType and dstMemoryType are host, device, array or unified."
        ""
        "The type says which of the fields host, device and array is read. 0 is none of them."
        "Set it to CU_MEMORYTYPE_DEVICE, or CU_MEMORYTYPE_UNIFIED for any pointer.";

    // ---- Peer access ----

    EnableFlags "P2P-enable-flags-nonzero" Error [1, 1, 1]
        "cudaDeviceEnablePeerAccess, cuCtxEnablePeerAccess, hipDeviceEnablePeerAccess"
        "Peer Device Memory Access: flags is reserved for future use and must be 0. HIP: the same; it is checked before anything else."
        ""
        "Most often the arguments are in the wrong order: the peer comes first."
        "Pass 0.";

    EnableSelf "P2P-enable-self" Error [101, 201, 101]
        "cudaDeviceEnablePeerAccess, cuCtxEnablePeerAccess, hipDeviceEnablePeerAccess, hipDeviceDisablePeerAccess"
        "Peer Device Memory Access: the current device as its own peer returns invalid device (driver: invalid context). HIP: a device is not its own peer; enabling and disabling return invalid device."
        "Both return 217, peer access unsupported."
        "Access is given to the current device, and a device always reaches its own memory. A program that reads cudaErrorPeerAccessUnsupported as a machine without peer access gives up for no reason."
        "Make the device current that is to have access (cudaSetDevice, cuCtxSetCurrent). In a loop over peers, leave out the device that is current.";

    EnableDeviceOrdinal "P2P-enable-device-ordinal" Error [101, 0, 101]
        "cudaDeviceEnablePeerAccess, cudaDeviceDisablePeerAccess, hipDeviceEnablePeerAccess, hipDeviceDisablePeerAccess"
        "Peer Device Memory Access: an ordinal without a device returns invalid device. HIP: the same."
        ""
        "Ordinals count from 0, over the devices that this process sees. CUDA_VISIBLE_DEVICES hides devices and renumbers the rest."
        "Compare with cudaGetDeviceCount in this process.";

    EnableTwice "P2P-enable-twice" Note [704, 704, 704]
        "cudaDeviceEnablePeerAccess, cuCtxEnablePeerAccess, hipDeviceEnablePeerAccess"
        "Peer Device Memory Access: enabling access that is enabled returns peer access already enabled. HIP: the same; before 7.0 the next call of any kind overwrites the pending error, from 7.0 on it stays."
        ""
        "Access is enabled, so this is not a failure. A program that ends here, or goes on without peer access, is wrong. The code also stays as the runtime's pending error: a later check finds it and blames another call."
        "Treat cudaErrorPeerAccessAlreadyEnabled as success, and clear the pending error with cudaGetLastError().";

    EnableUnsupported "P2P-enable-unsupported" Error [101, 217, 101]
        "cudaDeviceEnablePeerAccess, cuCtxEnablePeerAccess, hipDeviceEnablePeerAccess, hipDeviceDisablePeerAccess"
        "Peer Device Memory Access: a pair for which cudaDeviceCanAccessPeer reports 0 returns invalid device (driver: peer access unsupported). HIP: enabling and disabling return invalid device."
        "Both return 217, peer access unsupported."
        "The hardware has no path between the two devices. Copies between them still work, through the host."
        "Call cudaDeviceCanAccessPeer first. `p2pshim doctor` and `nvidia-smi topo -p2p r` show which pairs have a path.";

    EnableBroken "P2P-enable-broken" Error [101, 217, 101]
        "cudaDeviceEnablePeerAccess, cuCtxEnablePeerAccess, hipDeviceEnablePeerAccess, hipDeviceDisablePeerAccess"
        "P2PSHIM_BROKEN=refuse, the default: a path that loses data looks to the program like no path."
        "CUDA enables access, and data does not arrive."
        "CUDA offers this path, but data that p2pshim sent over it did not arrive. So p2pshim refuses access. Copies between them still work, through the host."
        "Go on without peer access, as on a machine that has no path. Run p2pshim doctor once after each boot: it names the cause, and programs are told at their first question.";

    EnableDenied "P2P-enable-denied" Error [101, 217, 101]
        "cudaDeviceEnablePeerAccess, cuCtxEnablePeerAccess, hipDeviceEnablePeerAccess, hipDeviceDisablePeerAccess"
        "P2PSHIM_DENY, P2PSHIM_ACCESS=off: the path looks to the program like no path."
        "CUDA enables access."
        "An option of p2pshim hides peer access between the two devices. Copies between them still work, through the host."
        "Remove that option if the program is to have peer access.";

    EnableLimit "P2P-enable-limit" Error [0, 711, 0]
        "cudaDeviceEnablePeerAccess, cuCtxEnablePeerAccess"
        "Peer Context Memory Access: enabling more peers than a context can have returns too many peers. The programming guide gives a limit of eight, without NVSwitch."
        ""
        "The current device cannot access this peer's memory: a kernel that tries fails. Copies of cudaMalloc's memory between the two are direct only if the peer has access to the current device."
        "Enable the pairs that are used most, and disable those that are no longer used.";

    AccessInvalidContext "P2P-access-invalid-context" Error [0, 201, 0]
        "cuCtxEnablePeerAccess, cuCtxDisablePeerAccess"
        "Peer Context Memory Access: an invalid context returns invalid context."
        "Returns 709, context is destroyed; for NULL 201."
        "The context was destroyed, its device was reset, its primary context was released, or the handle was never a context. It is that of the peer, or the current one."
        "Pass a context that exists. After a reset, retain the primary context again and enable access again.";

    AccessNoContext "P2P-access-no-context" Error [0, 201, 0]
        "cuCtxEnablePeerAccess, cuCtxDisablePeerAccess"
        "Peer Context Memory Access: without a current context the driver returns invalid context."
        ""
        "Contexts are current per thread: a new thread has none."
        "Call cuCtxSetCurrent in this thread first.";

    DisableNotEnabled "P2P-disable-not-enabled" Error [705, 705, 705]
        "cudaDeviceDisablePeerAccess, cuCtxDisablePeerAccess, hipDeviceDisablePeerAccess"
        "Peer Device Memory Access: disabling access that the current device has not enabled returns peer access not enabled. HIP: the same."
        "The current device itself returns the same."
        "Access has a direction: if device 0 enabled it, device 0 must disable it. A reset of either device ends it."
        "Make the device that enabled access current. Do not disable after a reset. Clear the pending error with cudaGetLastError().";

    QueryDeviceOrdinal "P2P-query-device-ordinal" Error [101, 101, 101]
        "cudaDeviceCanAccessPeer, cudaDeviceGetP2PAttribute, cuDeviceCanAccessPeer, cuDeviceGetP2PAttribute, hipDeviceCanAccessPeer, hipDeviceGetP2PAttribute"
        "Peer Device Memory Access: an ordinal without a device returns invalid device. HIP: the same, but hipDeviceCanAccessPeer with the same ordinal twice succeeds and writes 0."
        "The driver returns invalid value if the output is NULL as well."
        "The output was not written: it still holds its old value."
        "Compare with cudaGetDeviceCount in this process.";

    QueryNullOutput "P2P-query-null-output" Error [1, 1, 1]
        "cudaDeviceCanAccessPeer, cudaDeviceGetP2PAttribute, cuDeviceCanAccessPeer, cuDeviceGetP2PAttribute, hipDeviceCanAccessPeer, hipDeviceGetP2PAttribute"
        "Device Management: NULL for the attribute's value returns invalid value; the pages of cudaDeviceCanAccessPeer and cuDeviceCanAccessPeer do not mention NULL. HIP: NULL returns invalid value."
        "All of them return invalid value."
        "There is nowhere to write the output."
        "Pass the address of an int.";

    QuerySameDevice "P2P-query-same-device" Error [101, 101, 101]
        "cudaDeviceGetP2PAttribute, cuDeviceGetP2PAttribute, hipDeviceGetP2PAttribute"
        "Device Management: the same device twice returns invalid device. HIP: the same."
        ""
        "A device is not its own peer."
        "Leave the device itself out of the loop over peers.";

    QueryAttribute "P2P-query-attribute" Error [1, 1, 1]
        "cudaDeviceGetP2PAttribute, cuDeviceGetP2PAttribute, hipDeviceGetP2PAttribute"
        "Device Management: an unknown attribute returns invalid value. HIP: the same, for its own attributes (0 to 3)."
        ""
        "CUDA 13 has the attributes 1 to 5; an older driver has fewer."
        "Pass one of cudaDeviceP2PAttr.";

    // ---- Captures ----

    CaptureCopy "P2P-capture-copy" Error [0, 0, 0]
        "cudaMemcpyPeerAsync, cudaMemcpy3DPeerAsync, cuMemcpyPeerAsync, cuMemcpy3DPeerAsync"
        "CUDA Graphs: not every call can be captured. The documentation does not say whether peer copies can."
        "Returns 900 and the capture is lost (cudaStreamEndCapture returns 901), whether access is enabled or not."
        "Peer copies cannot be captured into a graph. With P2PSHIM_CAPTURE=rewrite, the default, p2pshim makes an equivalent copy that can be captured, where there is one."
        "Capture cudaMemcpyAsync with cudaMemcpyDefault (cudaMemcpy3DAsync) between the same pointers: it does the same.";

    CaptureDefaultStream "P2P-capture-default-stream" Error [0, 0, 0]
        "all copies between devices"
        "CUDA Graphs: a call that uses the legacy default stream, such as a synchronous copy, is not allowed while a blocking stream of its context is being captured."
        "Returns 906, and the capture is lost."
        "The copy would wait for the stream that is being captured. Another thread may have begun that capture."
        "Copy asynchronously on a stream that takes part in the capture, or copy before the capture begins. Create streams with cudaStreamNonBlocking.";

    CaptureAccess "P2P-capture-access" Error [0, 0, 0]
        "cudaDeviceEnablePeerAccess, cudaDeviceDisablePeerAccess, cuCtxEnablePeerAccess, cuCtxDisablePeerAccess"
        "CUDA Graphs: potentially unsafe calls are prohibited while a stream is captured; in global mode, while any thread captures."
        "Returns 900, and the capture is lost. In relaxed mode it succeeds."
        "Peer access cannot be changed while a stream is being captured."
        "Enable access before captures begin, or capture in relaxed mode (cudaStreamCaptureModeRelaxed).";

    CaptureLost "P2P-capture-lost" Error [0, 0, 0]
        "all asynchronous copies between devices"
        "CUDA Graphs: a call that is not allowed during a capture invalidates it. Its streams then return errors until cudaStreamEndCapture, which returns 901."
        "Returns 901; copies that name devices return 900."
        "This copy is not the cause: an earlier call had ended the capture of this stream."
        "Find the first call that failed while the stream was being captured. Make it before the capture, or capture in relaxed mode (cudaStreamCaptureModeRelaxed).";

    CaptureBatch "P2P-capture-batch" Error [0, 0, 0]
        "cudaMemcpyBatchAsync, cudaMemcpy3DBatchAsync, cuMemcpyBatchAsync, cuMemcpy3DBatchAsync"
        "CUDA Graphs: graphs have nodes for batches of copies since 13.5. The behaviour of older drivers is not documented."
        "Drivers before 13.5 return 900. The capture goes on, so users report, and its graph lacks the copies."
        "Batches cannot be captured into a graph before CUDA 13.5. With P2PSHIM_CAPTURE=rewrite, the default, p2pshim captures their copies one by one, where that does the same: all ends are memory of devices or pinned memory, and sources may be read in the stream's order."
        "Capture cudaMemcpyAsync (cudaMemcpy3DAsync) for each copy, and look at what the call returns.";

    // ---- Return codes ----

    ErrorEarlierWork "P2P-error-earlier-work" Error [0, 0, 0]
        "all functions about peers, and all copies between devices"
        "Every page: the function may also return errors from previous, asynchronous launches."
        ""
        "This call is not the cause. A kernel or copy that was queued earlier in this context has failed, and every call returns this error from now on. The context is lost."
        "Find the work that failed: run with CUDA_LAUNCH_BLOCKING=1 or under compute-sanitizer, and check errors after each launch.";

    ErrorNoDriver "P2P-error-no-driver" Error [0, 0, 0]
        "all functions about peers, and all copies between devices"
        "Error Handling: without a driver, or with a driver older than the runtime, the runtime returns insufficient driver. Without a device it returns no device. Before cuInit the driver returns not initialised."
        ""
        "CUDA is not available to this process. The arguments do not matter."
        "Check that nvidia-smi works here, that the driver is as new as the runtime (nvidia-smi shows the newest CUDA that it supports), and what CUDA_VISIBLE_DEVICES hides. A program that uses the driver API must call cuInit first.";

    ErrorLeftBehind "P2P-error-left-behind" Note [0, 0, 0]
        "cudaDeviceEnablePeerAccess, cudaDeviceDisablePeerAccess, cudaMemcpyPeer, cudaMemcpyPeerAsync, cudaMemcpy3DPeer, cudaMemcpy3DPeerAsync, cudaMemcpy, cudaMemcpyAsync, cudaMemcpy2D, cudaMemcpy2DAsync, cudaMemcpy3D, cudaMemcpy3DAsync"
        "Error Handling: cudaGetLastError returns the last error of any call in this thread, and clears it; nothing else does."
        ""
        "This call has succeeded. The error stays pending until the program reads it, or another error replaces it; a successful call does not clear it. The next check with cudaGetLastError finds it, and blames the call before that check."
        "Check what each call returns. Where an error is expected, as from enabling access twice, call cudaGetLastError() right after it.";

    ErrorUndocumented "P2P-error-undocumented" Error [0, 0, 0]
        "all functions about peers, and all copies between devices"
        "The function's page does not list this code."
        ""
        "Code that handles only the documented codes misbehaves here."
        "Treat unexpected codes as failures, and print them with cudaGetErrorName.";

    ErrorUnexplained "P2P-error-unexplained" Error [0, 0, 0]
        "all functions about peers, and all copies between devices"
        "The function's page lists this code."
        ""
        "None of the arguments explains it: everything that the driver reports about them is valid now."
        "Run with P2PSHIM_LOG=trace to see the arguments of this call and the calls before it.";

    // ---- Order ----

    OrderStreamElsewhere "P2P-order-stream-elsewhere" Hazard [0, 0, 0]
        "all asynchronous copies of CUDA between devices"
        "Memory Management: the copy is asynchronous. It is ordered only with the work of its stream."
        "The same."
        "A stream of a third device does not order the copy with work on the source or the destination. The copy may read data that is not written yet, and overwrite data that is still being read."
        "Use a stream of the source or the destination, or make both wait with events (cudaStreamWaitEvent).";

    OrderDefaultStream "P2P-order-default-stream" Hazard [0, 0, 0]
        "all asynchronous copies of CUDA between devices"
        "Stream Management: stream 0 is the default stream of the current device."
        "The same."
        "The default stream of a third device does not order the copy with work on the source or the destination. The copy may read data that is not written yet, and overwrite data that is still being read."
        "Call cudaSetDevice for the source or the destination first, or pass a stream of one of them.";

    OrderNonBlocking "P2P-order-non-blocking" Hazard [0, 0, 0]
        "cudaMemcpyPeer, cudaMemcpy3DPeer, cuMemcpyPeer, cuMemcpy3DPeer"
        "Programming guide: the copy begins after all commands issued to either device, and ends before later ones."
        "Not so for non-blocking streams: the copy does not wait for their work, and reads the old data."
        "The copy does not wait for non-blocking streams. If their work uses the memory of this copy, the copy may read data that is not written yet, and overwrite data that is not read yet."
        "Synchronize that stream first (cudaStreamSynchronize), or copy asynchronously on it.";

    DisableUnderCopy "P2P-disable-under-copy" Hazard [0, 0, 0]
        "cudaDeviceDisablePeerAccess, cuCtxDisablePeerAccess"
        "Peer Device Memory Access: the documentation does not say what becomes of copies that have not completed."
        "A direct copy that is under way fails with 719, and its context is lost."
        "A copy between the two devices may not have completed when peer access is disabled. P2PSHIM_ACCESS=auto keeps a path enabled that it has verified, so that the copy completes; without it the copy may fail."
        "Wait for the copies' streams first (cudaStreamSynchronize), or leave access enabled.";

    // ---- Graphs ----

    GraphAccessLost "P2P-graph-access-lost" Error [0, 0, 0]
        "cudaGraphLaunch, cuGraphLaunch"
        "Peer Device Memory Access: access lasts until it is disabled."
        "The launch returns success. The copy then fails with 719, and the context is lost. Or the driver crashes in the launch: it reads memory that it gave back when access was disabled, and that may be in use by now."
        "The graph was instantiated while access was enabled, so its copies are direct. Access has been disabled since."
        "Do not disable peer access as long as a graph that was instantiated with it is launched; or instantiate the graph again.";

    // ---- Data ----

    DataWrong "P2P-data-wrong" Hazard [0, 0, 0]
        "all copies between devices without arrays, but not graphs, with P2PSHIM_READBACK"
        "Peer Device Memory Access: a copy copies."
        "The call returns success; on a machine whose IOMMU or virtual machine breaks peer access, data is zero, or old."
        "The destination is not what its source is, and data of p2pshim's own does not arrive on this path either: peer access between these devices loses data."
        "Run the program with P2PSHIM_DENY for this pair, and p2pshim doctor for the cause.";

    DataChanged "P2P-data-changed" Hazard [0, 0, 0]
        "all copies between devices without arrays, but not graphs, with P2PSHIM_READBACK"
        "Programming guide: work in different streams is not ordered but by events, or by waiting."
        "The same."
        "The destination is not what its source is. Other work may have written to one of them while the copy was made or read back; it may do so by design, as a kernel that polls a flag which copies set, and clears it. If nothing does, this copy lost data, though the path does not lose all: it may beyond a certain address, or under load."
        "Order all work on both buffers behind the copy, by its stream or by events. If it is, run p2pshim doctor, which tests larger copies.";

    DataBlocked "P2P-data-blocked" Hazard [0, 0, 0]
        "all copies between devices, cudaGraphLaunch, cuGraphLaunch"
        "Peer Device Memory Access: a copy copies."
        "The call returns success; data may be wrong, or never arrive."
        "Peer access between these devices is blocked (it loses data, or P2PSHIM_ACCESS=off or P2PSHIM_DENY says so), but enabled. p2pshim stages copies on such a path itself. It cannot stage those of graphs, which CUDA makes; those of synchronous functions while a stream is being captured; batches that have to read their sources during the call; memory that another process allocated; nor any for which CUDA has no streams and events left; nor any of HIP, which maps memory for copies whatever is enabled."
        "Do not let the program enable peer access: without P2PSHIM_BROKEN=warn it gets none where data does not arrive. p2pshim doctor shows the cause.";

    // ---- Performance ----

    StagedNeverEnabled "P2P-staged-never-enabled" Performance [0, 0, 0]
        "all copies between devices"
        "Peer Device Memory Access: without access, a copy goes through the host."
        "38 instead of 397 GB/s on two H200, and the call blocks the host for 25 ms per GiB."
        "CUDA offers a direct path between the two devices, but the program has not enabled peer access, or has disabled it again."
        "Run it without `--access app` (P2PSHIM_ACCESS=app): p2pshim then enables access if data arrives. Or call cudaDeviceEnablePeerAccess at start, and wait for the copy's stream or an event: cudaFree and the like on the other device no longer wait for the copy then (docs/WAITS.md).";

    StagedPool "P2P-staged-pool" Performance [0, 0, 0]
        "all copies between devices"
        "Stream Ordered Memory Allocator: other devices can access memory of a pool only after cudaMemPoolSetAccess. Enabling peer access is not enough."
        "39 instead of 396 GB/s on two H200, with peer access enabled."
        "Copies of memory from cudaMallocAsync go through the host, even if peer access is enabled."
        "Run it without `--access app` and `--pools app` (P2PSHIM_ACCESS, P2PSHIM_POOLS), or call cudaMemPoolSetAccess for the other device.";

    StagedMapped "P2P-staged-mapped" Performance [0, 0, 0]
        "all copies between devices"
        "Virtual Memory Management: other devices can access mapped memory only after cuMemSetAccess. Enabling peer access is not enough."
        "As slow as without peer access."
        "Copies of memory that the program, or a library in it, mapped (cuMemMap) go through the host, even if peer access is enabled."
        "Call cuMemSetAccess with a descriptor for the other device. PyTorch's expandable segments are such memory, and beside cuInterpose what cudaMalloc gives.";

    GraphStaged "P2P-graph-staged" Performance [0, 0, 0]
        "cudaGraphLaunch, cuGraphLaunch"
        "Peer Device Memory Access: without access, a copy goes through the host."
        "A copy in a graph takes the path that there was when the graph was instantiated, for ever: 38 instead of 391 GB/s on two H200. If access is enabled afterwards, in either direction, that does not change, and cudaGraphExecMemcpyNodeSetParams and cudaGraphExecUpdate refuse to change the copy."
        "Each launch of this graph copies through the host, and blocks the host meanwhile."
        "Enable peer access before cudaGraphInstantiate, or instantiate the graph again; or run it without `--access app` (P2PSHIM_ACCESS=app).";

    SlowSmallCopies "P2P-slow-small-copies" Performance [0, 0, 0]
        "all copies between devices"
        "Best practices: many small transfers take longer than one large one."
        "A small copy takes 2 us with access and 16 us without, whatever its size up to some ten KiB."
        "Each of these copies takes as long as one that is at least ten times as large."
        "Gather the data into one buffer and copy that, or let a kernel read the peer's memory.";

    SlowSynchronousLoop "P2P-slow-synchronous-loop" Performance [0, 0, 0]
        "cudaMemcpyPeer, cudaMemcpy3DPeer, cuMemcpyPeer, cuMemcpy3DPeer"
        "Programming guide: the copy begins after all commands issued to either device, and ends before later ones."
        "The call returns before the copy has completed. The next work on either device still waits for the copy."
        "Each copy stops both devices until it has completed, so copies and kernels never overlap. The time between two copies is not considered."
        "Use cudaMemcpyPeerAsync on a stream of its own, with events where order matters.";

    SlowEnableChurn "P2P-slow-enable-churn" Performance [0, 0, 0]
        "cudaDeviceEnablePeerAccess, cuCtxEnablePeerAccess, hipDeviceEnablePeerAccess"
        "Peer Device Memory Access: access lasts until it is disabled. HIP: likewise."
        "Disabling and enabling takes 8.5 ms per pair on H200. If a copy is in flight when access is disabled, the context is lost."
        "The program enables and disables access to the same peer again and again."
        "Enable it once, at start.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_each_is_well_formed_and_unique() {
        for (position, &rule) in Rule::ALL.iter().enumerate() {
            assert_eq!(rule as usize, position);
            let id = rule.id();
            let parts: Vec<_> = id.split('-').collect();
            assert!(parts.len() >= 3 && parts[0] == "P2P", "{id}");
            let is_plain = |part: &&str| part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
            assert!(parts[1..].iter().all(is_plain), "{id}");
            assert_eq!(Rule::ALL.iter().filter(|other| other.id() == id).count(), 1, "{id}");
        }
    }

    #[test]
    fn text_each_says_what_matters_and_what_to_do() {
        for rule in Rule::ALL {
            let text = rule.text();
            for part in [text.id, text.functions, text.documentation, text.hardware, text.why, text.remedy] {
                assert_eq!(part.find('\0'), Some(part.len() - 1), "{}: {part}", rule.id());
            }
            for sentence in [text.documentation, text.why, text.remedy] {
                assert!(sentence.ends_with(".\0"), "{}: {sentence}", rule.id());
            }
        }
    }
}
