//! THE rules: what programs get wrong with peer calls, one row each.
//!
//! # How to add a rule
//!
//! Add one row, find it in `arguments`, `answers` or `hazards`, and make it speak, and be silent beside it: by rows of the
//! conformance tables if one call in a fresh process can show it, else by a case of c-tests/cases/findings.c and
//! tests/findings.rs, which says so as long as there is neither. `make header` writes docs/MESSAGES.md anew. An id is never
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
    /// The call fails, or would if the library looked.
    Error,
    /// The call succeeds, and data may be wrong.
    Hazard,
    /// It takes longer than it has to.
    Performance,
    /// Harmless by itself; what programs make of it is often not. In the log from `info` on.
    Note,
}

impl Severity {
    /// The severity's name, with a terminating NUL.
    pub(crate) fn c_name(self) -> &'static str {
        match self {
            Self::Error => "error\0",
            Self::Hazard => "hazard\0",
            Self::Performance => "performance\0",
            Self::Note => "note\0",
        }
    }

    /// The severity's name.
    pub(crate) fn name(self) -> &'static str {
        self.c_name().trim_end_matches('\0')
    }
}

/// What a rule says. The texts end in NUL, so that they can be handed to C as they are.
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
    /// What the documentation says, and where.
    pub(crate) documentation: &'static str,
    /// What real hardware does, where it is not that.
    pub(crate) hardware: &'static str,
    /// Why it matters.
    pub(crate) why: &'static str,
    /// What to do.
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

            /// What the rule says.
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
        "all peer copies"
        "Memory Management: dst and src are device pointers; a parameter outside its range is answered with invalid value. HIP: the same."
        "With zero bytes NULL is accepted, by the documentation too."
        "A NULL pointer is no memory: most often an allocation failed before, and its error was not looked at."
        "Check what cudaMalloc or cuMemAlloc answered for this buffer.";

    CopyDeviceOrdinal "P2P-copy-device-ordinal" Error [101, 0, 101]
        "cudaMemcpyPeer, cudaMemcpyPeerAsync, cudaMemcpy3DPeer, cudaMemcpy3DPeerAsync, hipMemcpyPeer, hipMemcpyPeerAsync, hipMemcpy3DPeer, hipMemcpy3DPeerAsync"
        "Memory Management: an ordinal that is no device is answered with cudaErrorInvalidDevice. HIP: the same, and looked at before anything else."
        "A 3D copy of nothing is looked at all the same; a linear copy of zero bytes accepts any ordinal."
        "Ordinals count the devices that this process sees, from 0: CUDA_VISIBLE_DEVICES hides devices and renumbers the rest."
        "Compare with cudaGetDeviceCount in this process; number devices as the process sees them, not as nvidia-smi does.";

    CopyZeroBytes "P2P-copy-zero-bytes" Hazard [101, 201, 0]
        "cudaMemcpyPeer, cudaMemcpyPeerAsync, cuMemcpyPeer, cuMemcpyPeerAsync"
        "Memory Management: bad ordinals, contexts and streams are errors, whatever the size."
        "A copy of zero bytes succeeds without a look at ordinals and contexts; the runtime does not look at the stream either, but the driver does, and crashes."
        "The bad argument stays unnoticed until the size is not zero, or another release of CUDA looks."
        "Set the argument right, or leave the call out when there is nothing to copy.";

    CopyPastAllocation "P2P-copy-past-allocation" Error [1, 1, 1]
        "all peer copies"
        "Memory Management: the range copied has to lie inside the memory. HIP: the same."
        "The copy is refused as a whole; nothing is copied."
        "The count is too large, or it is counted in elements where bytes are meant, or the pointer was moved too far."
        "Compare pointer and size with what was allocated.";

    CopyHostMemory "P2P-copy-host-memory" Error [1, 1, 1]
        "all peer copies"
        "Memory Management: dst and src are device pointers. HIP: the same; accepted."
        "Pageable memory is refused with invalid value; by the runtime in 3D copies too, whose documentation allows it. The driver's 3D copies accept it as memory of the host, or unified."
        "This address is ordinary memory of the host, which CUDA does not know."
        "Copy from or to the host with cudaMemcpyAsync and cudaMemcpyDefault.";

    CopyPinnedHost "P2P-copy-pinned-host" Hazard [0, 0, 0]
        "cudaMemcpyPeer, cudaMemcpyPeerAsync, cuMemcpyPeer, cuMemcpyPeerAsync, hipMemcpyPeer, hipMemcpyPeerAsync"
        "Memory Management: dst and src are device pointers; about page-locked memory of the host it says nothing. HIP: the same."
        "Page-locked memory of the host is accepted, and copied from and to; the ordinal given for it means nothing."
        "It works by accident, and is no copy between devices: it goes over PCIe at the host's speed."
        "If it is meant, say so with cudaMemcpyAsync and cudaMemcpyDefault; if not, one of the pointers is the wrong one.";

    CopyFreedMemory "P2P-copy-freed-memory" Error [1, 1, 0]
        "all peer copies"
        "Memory Management: memory is no more once it was freed."
        "Refused with invalid value as long as nothing else has been allocated at the same address."
        "The program freed this memory before. When something else lies at the address, the copy succeeds, and overwrites it."
        "Free it after the last copy is done, or order the two by a stream (cudaFreeAsync) or an event.";

    CopyUnknownPointer "P2P-copy-unknown-pointer" Error [1, 1, 1]
        "all peer copies"
        "Memory Management: dst and src are device pointers of this process. HIP: the same; an address that it does not know it takes for memory of the host, and the process may end with a fault."
        "Refused with invalid value."
        "CUDA knows no memory at this address: it was freed, perhaps by a reset of its device or the end of its context, never allocated, or is an address of another process."
        "Find out where the pointer comes from; memory of another process must be opened with cudaIpcOpenMemHandle first.";

    CopyMappedNoAccess "P2P-copy-mapped-no-access" Error [0, 0, 0]
        "all peer copies"
        "Virtual Memory Management: mapped memory cannot be accessed before cuMemSetAccess has said by whom."
        "Refused with invalid value."
        "Memory that cuMemMap has mapped is nobody's before cuMemSetAccess, its own device's neither."
        "Call cuMemSetAccess for the device of the memory, and for each peer that copies from or to it.";

    CopyNullContext "P2P-copy-null-context" Hazard [0, 201, 0]
        "cuMemcpyPeer, cuMemcpyPeerAsync, cuMemcpy3DPeer, cuMemcpy3DPeerAsync"
        "Memory Management: dstContext and srcContext are contexts; one that is invalid is answered with invalid context."
        "NULL is accepted: under unified addressing the pointers decide."
        "It works by accident; CUDA may look in another release."
        "Pass the context that each pointer was allocated in.";

    CopyInvalidContext "P2P-copy-invalid-context" Error [0, 201, 0]
        "cuMemcpyPeer, cuMemcpyPeerAsync, cuMemcpy3DPeer, cuMemcpy3DPeerAsync"
        "Memory Management: a context that is invalid is answered with invalid context."
        "The library crashes, unless there are zero bytes to copy: then it does not look."
        "The context was destroyed, its device was reset, its primary context released, or it never was one."
        "Keep contexts until the last copy is done; after cuDevicePrimaryCtxReset or Release, retain and pass the new one.";

    CopyNoContext "P2P-copy-no-context" Error [0, 201, 0]
        "cuMemcpyPeer, cuMemcpyPeerAsync, cuMemcpy3DPeer, cuMemcpy3DPeerAsync"
        "Memory Management: without a current context the driver answers invalid context, though both contexts are given."
        "An asynchronous copy on a stream that was created succeeds all the same; on a default stream it is refused, as a synchronous one is."
        "Contexts are current per thread: a new thread has none."
        "Call cuCtxSetCurrent in this thread first.";

    CopyDestroyedStream "P2P-copy-destroyed-stream" Error [400, 400, 0]
        "cudaMemcpyPeerAsync, cudaMemcpy3DPeerAsync, cuMemcpyPeerAsync, cuMemcpy3DPeerAsync"
        "Memory Management (driver): a stream that is none is answered with invalid handle; the runtime's page does not say. HIP: not said either; answered with 709, 400 or 1, by release."
        "The library crashes. A stream that went with its context is answered with 709, context is destroyed."
        "The stream was destroyed before, by the program or with its context, or never was one. The handle may be given to another stream at any time, so that the copy lands there."
        "Destroy streams after the last call that names them, and set the variable to NULL then.";

    CopyOverlap "P2P-copy-overlap" Hazard [0, 0, 0]
        "all peer copies"
        "Memory Management: memory areas may not overlap; what is copied then is undefined."
        "Accepted."
        "Bytes are read that the same copy has written already, depending on size, alignment and device."
        "Copy by way of another buffer, or do not overlap.";

    CopyOrdinalMismatch "P2P-copy-ordinal-mismatch" Hazard [0, 0, 0]
        "all peer copies"
        "Memory Management: dstDevice and srcDevice (dstContext and srcContext) are those of the pointers. HIP: dstDeviceId and srcDeviceId, likewise."
        "Accepted: under unified addressing the pointers decide, and ordinals and contexts have no effect."
        "The copy does not go where it says. What the program decides by the same ordinals, such as peer access, streams and events, is then about the wrong devices."
        "Ask cudaPointerGetAttributes for the device of each pointer, and pass that.";

    // ---- Copies in 3D ----

    Copy3dNullParameters "P2P-copy3d-null-parameters" Error [1, 1, 1]
        "cudaMemcpy3DPeer, cudaMemcpy3DPeerAsync, cuMemcpy3DPeer, cuMemcpy3DPeerAsync, hipMemcpy3DPeer, hipMemcpy3DPeerAsync"
        "Memory Management: p points to the parameters. HIP: answered with invalid value."
        "The runtime answers invalid value; the driver crashes."
        "There is nothing to copy from."
        "Pass the address of the parameters.";

    Copy3dArrayAndPointer "P2P-copy3d-array-and-pointer" Error [1, 0, 1]
        "cudaMemcpy3DPeer, cudaMemcpy3DPeerAsync, hipMemcpy3DPeer, hipMemcpy3DPeerAsync"
        "cudaMemcpy3DPeerParms: for each side exactly one of array and pitched pointer is given; passing both is an error. HIP: the same."
        "An array that is one is refused with invalid value; one that is none crashes the library."
        "CUDA cannot know which of the two is meant; most often the parameters were not cleared (= {0}) before use."
        "Begin with cudaMemcpy3DPeerParms p = {0}, and set either the array or the pointer of each side.";

    Copy3dNoMemory "P2P-copy3d-no-memory" Error [1, 1, 1]
        "cudaMemcpy3DPeer, cudaMemcpy3DPeerAsync, cuMemcpy3DPeer, cuMemcpy3DPeerAsync, hipMemcpy3DPeer, hipMemcpy3DPeerAsync"
        "cudaMemcpy3DPeerParms: for each side exactly one of array and pitched pointer is given. HIP: the same."
        "With an extent of zero it is accepted."
        "One side has neither array nor pointer."
        "Set the array or the pointer; check what the allocation answered.";

    Copy3dPitch "P2P-copy3d-pitch" Error [12, 1, 12]
        "cudaMemcpy3DPeer, cudaMemcpy3DPeerAsync, cuMemcpy3DPeer, cuMemcpy3DPeerAsync, hipMemcpy3DPeer, hipMemcpy3DPeerAsync"
        "Memory Management: a pitch smaller than the row, or larger than cudaDevAttrMaxPitch, is answered with invalid pitch value (driver: invalid value). HIP: the same."
        "Answered with invalid value for a pitch that is too large, or where an array takes part. Too large a pitch is accepted where there is a single row; 0 is by the driver."
        "The pitch is counted in bytes, and so is the width of the extent unless an array takes part."
        "Take the pitch that cudaMalloc3D or cudaMallocPitch gave, or bytes per row for memory without padding.";

    Copy3dHeight "P2P-copy3d-height" Error [12, 1, 0]
        "cudaMemcpy3DPeer, cudaMemcpy3DPeerAsync, cuMemcpy3DPeer, cuMemcpy3DPeerAsync"
        "Memory Management: the height of the memory (ysize, srcHeight, dstHeight) tells where the next slice begins; one that is smaller than the extent is an error."
        "Answered with invalid pitch value by the runtime, invalid value by the driver. The runtime refuses a height that is too small for the only slice as well, with invalid value. The driver accepts 0."
        "Slices would lie inside each other."
        "Set ysize (srcHeight, dstHeight) to the rows of one slice as allocated.";

    Copy3dPosition "P2P-copy3d-position" Error [1, 1, 1]
        "cudaMemcpy3DPeer, cudaMemcpy3DPeerAsync, cuMemcpy3DPeer, cuMemcpy3DPeerAsync, hipMemcpy3DPeer, hipMemcpy3DPeerAsync"
        "Memory Management: position and extent have to lie inside the object. HIP: the same."
        ""
        "Position plus extent goes past the row or the slice. Positions count elements: bytes for pointers, texels for arrays."
        "Make the extent smaller by the position, and check the units.";

    Copy3dOutsideArray "P2P-copy3d-outside-array" Error [1, 1, 0]
        "cudaMemcpy3DPeer, cudaMemcpy3DPeerAsync, cuMemcpy3DPeer, cuMemcpy3DPeerAsync"
        "Memory Management: position and extent have to lie inside the array."
        ""
        "With an array the width of the extent counts elements of the array, not bytes, in the runtime; bytes in the driver."
        "Compare with cudaArrayGetInfo.";

    Copy3dElementSize "P2P-copy3d-element-size" Error [1, 0, 0]
        "cudaMemcpy3DPeer, cudaMemcpy3DPeerAsync"
        "Memory Management: arrays between which is copied have elements of the same size."
        ""
        "The extent counts elements, and the two arrays disagree about how large one is."
        "Create both arrays with the same cudaChannelFormatDesc.";

    Copy3dDestroyedArray "P2P-copy3d-destroyed-array" Error [1, 1, 0]
        "cudaMemcpy3DPeer, cudaMemcpy3DPeerAsync, cuMemcpy3DPeer, cuMemcpy3DPeerAsync"
        "Memory Management: srcArray and dstArray are arrays."
        "The library crashes."
        "The program freed this array before."
        "Free arrays after the last copy is done.";

    Copy3dReservedField "P2P-copy3d-reserved-field" Error [0, 1, 0]
        "cuMemcpy3DPeer, cuMemcpy3DPeerAsync"
        "CUDA_MEMCPY3D_PEER: srcLOD and dstLOD must be 0."
        "Accepted."
        "Most often the parameters were not cleared before use, so that other fields are chance values too."
        "Begin with CUDA_MEMCPY3D_PEER p = {0}.";

    Copy3dMemoryType "P2P-copy3d-memory-type" Error [0, 1, 0]
        "cuMemcpy3DPeer, cuMemcpy3DPeerAsync"
        "CUDA_MEMCPY3D_PEER: srcMemoryType and dstMemoryType are host, device, array or unified."
        ""
        "The type tells which of the fields host, device and array is read; 0 is none of them."
        "Set it to CU_MEMORYTYPE_DEVICE, or CU_MEMORYTYPE_UNIFIED for any pointer.";

    // ---- Peer access ----

    EnableFlags "P2P-enable-flags-nonzero" Error [1, 1, 1]
        "cudaDeviceEnablePeerAccess, cuCtxEnablePeerAccess, hipDeviceEnablePeerAccess"
        "Peer Device Memory Access: flags is reserved for future use and must be 0. HIP: the same, and looked at before anything else."
        ""
        "Most often the arguments are in the wrong order: the peer comes first."
        "Pass 0.";

    EnableSelf "P2P-enable-self" Error [101, 201, 101]
        "cudaDeviceEnablePeerAccess, cuCtxEnablePeerAccess, hipDeviceEnablePeerAccess, hipDeviceDisablePeerAccess"
        "Peer Device Memory Access: the current device as its own peer is answered with invalid device (driver: invalid context). HIP: a device is no peer of itself; answered with invalid device, by disabling too."
        "Answered with 217, peer access unsupported, in both."
        "A device always reaches its own memory. Code that takes 217 for a machine without peer access gives up here for nothing."
        "Leave the current device out of the loop over peers.";

    EnableDeviceOrdinal "P2P-enable-device-ordinal" Error [101, 0, 101]
        "cudaDeviceEnablePeerAccess, cudaDeviceDisablePeerAccess, hipDeviceEnablePeerAccess, hipDeviceDisablePeerAccess"
        "Peer Device Memory Access: an ordinal that is no device is answered with invalid device. HIP: the same."
        ""
        "Ordinals count the devices that this process sees, from 0: CUDA_VISIBLE_DEVICES hides devices and renumbers the rest."
        "Compare with cudaGetDeviceCount in this process.";

    EnableTwice "P2P-enable-twice" Note [704, 704, 704]
        "cudaDeviceEnablePeerAccess, cuCtxEnablePeerAccess, hipDeviceEnablePeerAccess"
        "Peer Device Memory Access: access that is enabled already is answered with peer access already enabled. HIP: the same; before 7.0 the next call of any kind overwrites the last error, from 7.0 on it stays."
        ""
        "Access is enabled, so this is no failure; a program that ends here, or that goes on without peer access, is wrong. The code also stays in the runtime's last-error slot, where a later check finds it and blames another call."
        "Treat 704 as success, and call cudaGetLastError() after it to clear the slot.";

    EnableUnsupported "P2P-enable-unsupported" Error [101, 217, 101]
        "cudaDeviceEnablePeerAccess, cuCtxEnablePeerAccess, hipDeviceEnablePeerAccess, hipDeviceDisablePeerAccess"
        "Peer Device Memory Access: a pair for which cudaDeviceCanAccessPeer answers 0 is answered with invalid device (driver: peer access unsupported). HIP: invalid device, by disabling too."
        "Answered with 217, peer access unsupported, in both."
        "The hardware has no path between the two, or it is hidden (P2PSHIM_ACCESS=off, P2PSHIM_DENY). Copies between them still work, through the host."
        "Ask cudaDeviceCanAccessPeer first; `p2pshim doctor` and `nvidia-smi topo -p2p r` say which pairs have a path.";

    EnableLimit "P2P-enable-limit" Error [0, 711, 0]
        "cudaDeviceEnablePeerAccess, cuCtxEnablePeerAccess"
        "Peer Context Memory Access: one peer more than there is room for is answered with too many peers; the programming guide gives room for eight, without NVSwitch."
        ""
        "This pair stays without access, so that its copies go through the host."
        "Enable the pairs that copy most, and disable those that do not copy any more.";

    AccessInvalidContext "P2P-access-invalid-context" Error [0, 201, 0]
        "cuCtxEnablePeerAccess, cuCtxDisablePeerAccess"
        "Peer Context Memory Access: a context that is none is answered with invalid context."
        "Answered with 709, context is destroyed; NULL with 201."
        "The context was destroyed, its device was reset, its primary context released, or it never was one. The peer's is meant, or the current one."
        "Pass a context that exists; after a reset, retain the primary context again and enable access again.";

    AccessNoContext "P2P-access-no-context" Error [0, 201, 0]
        "cuCtxEnablePeerAccess, cuCtxDisablePeerAccess"
        "Peer Context Memory Access: without a current context the driver answers invalid context."
        ""
        "Contexts are current per thread: a new thread has none."
        "Call cuCtxSetCurrent in this thread first.";

    DisableNotEnabled "P2P-disable-not-enabled" Error [705, 705, 705]
        "cudaDeviceDisablePeerAccess, cuCtxDisablePeerAccess, hipDeviceDisablePeerAccess"
        "Peer Device Memory Access: access that was not enabled from the current device is answered with peer access not enabled. HIP: the same."
        "So is the current device itself."
        "Access has a direction: what device 0 enabled to device 1 is disabled from device 0. A reset of either device ends it."
        "Make the device current that enabled it; leave out disabling after a reset. Clear the last error with cudaGetLastError().";

    QueryDeviceOrdinal "P2P-query-device-ordinal" Error [101, 101, 101]
        "cudaDeviceCanAccessPeer, cudaDeviceGetP2PAttribute, cuDeviceCanAccessPeer, cuDeviceGetP2PAttribute, hipDeviceCanAccessPeer, hipDeviceGetP2PAttribute"
        "Peer Device Memory Access: an ordinal that is no device is answered with invalid device. HIP: the same, unless hipDeviceCanAccessPeer is given the same ordinal twice: that succeeds with 0."
        "The driver answers invalid value if the output is NULL as well."
        "The output was not written: what the program reads there is what was there before."
        "Compare with cudaGetDeviceCount in this process.";

    QueryNullOutput "P2P-query-null-output" Error [1, 1, 1]
        "cudaDeviceCanAccessPeer, cudaDeviceGetP2PAttribute, cuDeviceCanAccessPeer, cuDeviceGetP2PAttribute, hipDeviceCanAccessPeer, hipDeviceGetP2PAttribute"
        "Device Management: NULL for the attribute's value is answered with invalid value; the pages of cudaDeviceCanAccessPeer and cuDeviceCanAccessPeer say nothing of NULL. HIP: answered with invalid value."
        "Answered with invalid value by all of them."
        "There is nowhere to write the answer to."
        "Pass the address of an int.";

    QuerySameDevice "P2P-query-same-device" Error [101, 101, 101]
        "cudaDeviceGetP2PAttribute, cuDeviceGetP2PAttribute, hipDeviceGetP2PAttribute"
        "Device Management: the same device twice is answered with invalid device. HIP: the same."
        ""
        "A device is not its own peer."
        "Leave the device itself out of the loop over peers.";

    QueryAttribute "P2P-query-attribute" Error [1, 1, 1]
        "cudaDeviceGetP2PAttribute, cuDeviceGetP2PAttribute, hipDeviceGetP2PAttribute"
        "Device Management: an attribute that there is not is answered with invalid value. HIP: the same, for its own attributes (0 to 3)."
        ""
        "The attribute is none that CUDA 13 has (1 to 5); an older driver has fewer."
        "Pass one of cudaDeviceP2PAttr.";

    // ---- Captures ----

    CaptureCopy "P2P-capture-copy" Error [0, 0, 0]
        "cudaMemcpyPeerAsync, cudaMemcpy3DPeerAsync, cuMemcpyPeerAsync, cuMemcpy3DPeerAsync"
        "CUDA Graphs: not every call can be captured; which cannot is not said of peer copies."
        "Answered with 900, and the capture is lost (cudaStreamEndCapture answers 901), whether access is enabled or not."
        "Peer copies cannot be captured into a graph. With P2PSHIM_CAPTURE=rewrite, the default, the equal copy that can be is made instead, where there is one."
        "Capture cudaMemcpyAsync with cudaMemcpyDefault (cudaMemcpy3DAsync) between the same pointers: it does the same.";

    CaptureDefaultStream "P2P-capture-default-stream" Error [0, 0, 0]
        "all peer copies"
        "CUDA Graphs: what uses the legacy default stream, as synchronous copies do, cannot run while a blocking stream of its context is captured."
        "Answered with 906, and the capture is lost."
        "The copy would wait for the stream that is being captured. It may be another thread's capture."
        "Copy asynchronously on a stream that takes part in the capture, or before it begins; make streams with cudaStreamNonBlocking.";

    CaptureAccess "P2P-capture-access" Error [0, 0, 0]
        "cudaDeviceEnablePeerAccess, cudaDeviceDisablePeerAccess, cuCtxEnablePeerAccess, cuCtxDisablePeerAccess"
        "CUDA Graphs: calls that are potentially unsafe are prohibited while a stream is captured, in global mode by any thread's capture."
        "Answered with 900, and the capture is lost; in relaxed mode it is fine."
        "Peer access cannot be changed while a stream is being captured."
        "Enable access before captures begin, or capture in relaxed mode (cudaStreamCaptureModeRelaxed).";

    // ---- Answers ----

    ErrorEarlierWork "P2P-error-earlier-work" Error [0, 0, 0]
        "all peer functions"
        "Every page: the function may also return errors from previous, asynchronous launches."
        ""
        "This call is not the cause: a kernel or copy that was queued earlier in this context has failed, and every call answers so from now on. The context is lost."
        "Find that work: run with CUDA_LAUNCH_BLOCKING=1 or under compute-sanitizer, and check errors after each launch.";

    ErrorNoDriver "P2P-error-no-driver" Error [0, 0, 0]
        "all peer functions"
        "Error Handling: without a driver, or with one older than the runtime, the runtime answers insufficient driver; without a device, no device; the driver before cuInit, not initialised."
        ""
        "CUDA is not there for this process, whatever the arguments are."
        "See whether nvidia-smi works here, whether the driver is as new as the runtime (nvidia-smi names the newest CUDA it serves), and what CUDA_VISIBLE_DEVICES hides; a program of the driver calls cuInit first.";

    ErrorLeftBehind "P2P-error-left-behind" Note [0, 0, 0]
        "cudaDeviceEnablePeerAccess, cudaDeviceDisablePeerAccess"
        "Error Handling: cudaGetLastError returns the last error of any call in this thread, and clears it; nothing else does."
        ""
        "704 and 705 stay in the slot until it is read, or another error takes their place; no success clears it. The next check after a kernel launch finds them, and blames the kernel."
        "Call cudaGetLastError() after an enable or disable that answered 704 or 705.";

    ErrorUndocumented "P2P-error-undocumented" Error [0, 0, 0]
        "all peer functions"
        "The function's page does not list this code."
        ""
        "Code that handles the documented codes alone takes a wrong turn here."
        "Handle codes that are not expected as failures, and print them with cudaGetErrorName.";

    ErrorUnexplained "P2P-error-unexplained" Error [0, 0, 0]
        "all peer functions"
        "The function's page lists this code."
        ""
        "None of the arguments shows why: what the driver knows of them looks right by now."
        "Run with P2PSHIM_LOG=trace to see the arguments of this call and the calls before it.";

    // ---- Order ----

    OrderStreamElsewhere "P2P-order-stream-elsewhere" Hazard [0, 0, 0]
        "cudaMemcpyPeerAsync, cudaMemcpy3DPeerAsync, cuMemcpyPeerAsync, cuMemcpy3DPeerAsync"
        "Memory Management: the copy is asynchronous, and ordered with the work of its stream only."
        "The same."
        "A stream of a third device orders the copy with nothing that source or destination do: it may read what is not written yet, and overwrite what is still read."
        "Use a stream of the source or the destination, or make both wait with events (cudaStreamWaitEvent).";

    OrderDefaultStream "P2P-order-default-stream" Hazard [0, 0, 0]
        "cudaMemcpyPeerAsync, cudaMemcpy3DPeerAsync, cuMemcpyPeerAsync, cuMemcpy3DPeerAsync"
        "Stream Management: stream 0 is the default stream of the current device."
        "The same."
        "The default stream of a third device orders the copy with nothing that source or destination do: it may read what is not written yet, and overwrite what is still read."
        "Call cudaSetDevice for the source or the destination first, or pass a stream of one of them.";

    OrderNonBlocking "P2P-order-non-blocking" Hazard [0, 0, 0]
        "cudaMemcpyPeer, cudaMemcpy3DPeer, cuMemcpyPeer, cuMemcpy3DPeer"
        "Programming guide: the copy begins after all commands issued to either device, and ends before later ones."
        "Not so for non-blocking streams: the copy does not wait for their work, and reads what was there before."
        "Non-blocking streams are not waited for. If their work uses the memory of this copy, the copy may read what is still to be written, and overwrite what is still to be read."
        "Synchronize that stream first (cudaStreamSynchronize), or copy asynchronously on it.";

    // ---- Performance ----

    StagedNeverEnabled "P2P-staged-never-enabled" Performance [0, 0, 0]
        "all peer copies"
        "Peer Device Memory Access: without access, a copy goes through the host."
        "On two H200 38 instead of 397 GB/s, and the call blocks the host 25 ms a GiB."
        "The program copies between two devices that could reach each other, and never enables it."
        "Run it with P2PSHIM_ACCESS=auto, the default, or call cudaDeviceEnablePeerAccess at start.";

    StagedPool "P2P-staged-pool" Performance [0, 0, 0]
        "all peer copies"
        "Stream Ordered Memory Allocator: memory of a pool is accessible from other devices only after cudaMemPoolSetAccess; enabling peer access does not do it."
        "On two H200 39 instead of 396 GB/s, with peer access enabled."
        "Memory of cudaMallocAsync goes through the host, though peer access may be enabled."
        "Run it with P2PSHIM_ACCESS=auto and P2PSHIM_POOLS=auto, the defaults, or call cudaMemPoolSetAccess for the other device.";

    StagedMapped "P2P-staged-mapped" Performance [0, 0, 0]
        "all peer copies"
        "Virtual Memory Management: mapped memory is accessible from other devices only after cuMemSetAccess; enabling peer access does not do it."
        "As slow as without peer access."
        "Memory that the program mapped (cuMemMap) goes through the host, though peer access may be enabled."
        "Call cuMemSetAccess with a descriptor for the other device. PyTorch's expandable segments are such memory.";

    SlowSmallCopies "P2P-slow-small-copies" Performance [0, 0, 0]
        "all peer copies"
        "Best practices: many small transfers take longer than one large one."
        "A small copy takes 2 us with access and 16 us without, whatever its size up to some ten KiB."
        "Each of these copies is so small that it takes the time of one at least ten times as large."
        "Gather the data into one buffer and copy that, or let a kernel read the peer's memory.";

    SlowSynchronousLoop "P2P-slow-synchronous-loop" Performance [0, 0, 0]
        "cudaMemcpyPeer, cudaMemcpy3DPeer, cuMemcpyPeer, cuMemcpy3DPeer"
        "Programming guide: the copy begins after all commands issued to either device, and ends before later ones."
        "The call returns before the copy is done; the next work on either device waits for it all the same."
        "Each copy stops both devices until it is done, so that copies and kernels never overlap. How much time lies between two is not looked at."
        "Use cudaMemcpyPeerAsync on a stream of its own, with events where order matters.";

    SlowEnableChurn "P2P-slow-enable-churn" Performance [0, 0, 0]
        "cudaDeviceEnablePeerAccess, cuCtxEnablePeerAccess, hipDeviceEnablePeerAccess"
        "Peer Device Memory Access: access lasts until it is disabled. HIP: likewise."
        "Disabling and enabling takes 8.5 ms a pair on H200, and a copy under way when access is disabled loses the context."
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
