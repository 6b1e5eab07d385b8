//! What is done about a call before it is made.
//!
//! Decisions are made at the driver layer, where every client of CUDA ends, over plain values and through the small
//! [`Driver`], so that they are tested without a driver.

#![forbid(unsafe_code)]

pub(crate) mod access;
pub(crate) mod capture;
pub(crate) mod changes;
pub(crate) mod familiar;
pub(crate) mod full;
pub(crate) mod hip;
pub(crate) mod memory;
pub(crate) mod path;
pub(crate) mod validate;

use crate::api::Function;
use crate::api::abi::{CUDA_MEMCPY3D_PEER, Code, is_pointer};
use crate::config::Config;
use access::Access;
use hip::Peers;
use path::Path;
use validate::Validate;

/// What decisions ask the real driver, and have it do. Nothing here waits for a device.
///
/// Contexts, pools and streams are handles, devices are ordinals, addresses are those of the unified address space. What
/// changes anything is called within [`Driver::relaxed`] only.
pub(crate) trait Driver {
    /// Whether the stream is being captured; none if the driver cannot tell. `per_thread` says which default stream a
    /// null handle means.
    fn is_capturing(&self, stream: usize, per_thread: bool) -> Option<bool>;

    /// Whether an address is that of memory on a device.
    fn is_device_memory(&self, address: u64) -> bool;

    /// What an address belongs to; none if the driver does not know it.
    fn memory(&self, address: u64) -> Option<Memory>;

    /// The calling thread's context.
    fn current_context(&self) -> Option<usize>;

    /// What tells the context from later ones with the same handle; none if there is no such context (any more). 0 for all
    /// contexts of drivers that do not number them.
    fn context_id(&self, context: usize) -> Option<u64>;

    /// The device of a context that exists.
    fn device_of_context(&self, context: usize) -> Option<i32>;

    /// The primary contexts that exist.
    fn primary_contexts(&self) -> Vec<usize>;

    /// How many devices there are.
    fn device_count(&self) -> i32;

    /// Whether the hardware lets a device access the memory of another.
    fn can_access(&self, device: i32, peer: i32) -> Result<bool, Code>;

    /// Whether a device may access a pool's memory.
    fn pool_access(&self, pool: usize, device: i32) -> bool;

    /// The device whose pool it is from the start, if it is such a pool.
    fn default_pool(&self, device: i32) -> Option<usize>;

    /// Whether a device may access memory that the program mapped.
    fn mapped_access(&self, address: u64, device: i32) -> bool;

    /// Runs `work` so that its calls disturb no capture, whichever thread's. None if that cannot be had.
    fn relaxed<T>(&self, work: impl FnOnce() -> T) -> Option<T>;

    /// Lets one context access the memory of another.
    fn enable(&self, context: usize, peer: usize) -> Code;

    /// Undoes [`Driver::enable`].
    fn disable(&self, context: usize, peer: usize) -> Code;

    /// Lets a device access a pool's memory.
    fn grant(&self, pool: usize, device: i32) -> Code;

    /// Whether [`Driver::mark`] can be had.
    fn has_marks(&self) -> bool;

    /// Marks all that a context has to do by now; none if the driver cannot.
    fn mark(&self, context: usize) -> Option<Mark>;

    /// Whether all is done that was marked.
    fn is_passed(&self, mark: &Mark) -> bool;

    /// Gives a mark back.
    fn drop_mark(&self, mark: Mark);

    /// Takes memory for a proof.
    fn scratch(&self, kind: ScratchKind, context: (usize, u64), device: i32) -> Result<Scratch, Code>;

    /// Lets another device access it; for mapped memory and pools.
    fn share(&self, scratch: &Scratch, device: i32) -> Result<(), Code>;

    /// Begins to copy bytes into the first half, on the memory's own stream.
    fn upload(&self, to: &Scratch, bytes: &[u8]) -> Result<(), Code>;

    /// Begins to copy what was last downloaded from one into the first half of another, on the latter's stream.
    fn upload_downloaded(&self, from: &Scratch, to: &Scratch, bytes: usize) -> Result<(), Code>;

    /// Begins to copy from the first half to the second half of another, on the source's stream.
    fn send(&self, from: &Scratch, to: &Scratch, span: Span) -> Result<(), Code>;

    /// Begins to copy out of the second half, on the memory's own stream.
    fn download(&self, from: &Scratch, bytes: usize) -> Result<(), Code>;

    /// What has been downloaded; none if there is no memory for it.
    fn downloaded(&self, from: &Scratch, bytes: usize) -> Option<Vec<u8>>;

    /// Where a device is on the PCI bus.
    fn bus_id(&self, device: i32) -> Option<String>;

    /// The verdict that is kept on a device's access to the memory of another.
    fn verdict(&self, src: i32, dst: i32) -> Option<full::Answer>;

    /// The context that a stream of the program's belongs to; none if the driver cannot tell.
    fn stream_context(&self, stream: usize, per_thread: bool) -> Option<usize>;

    /// Whether a stream of the program's has nothing left to do; none if it has failed.
    fn is_stream_idle(&self, stream: usize) -> Option<bool>;

    /// Whether the host can read at an address.
    fn is_readable(&self, address: u64) -> bool;

    /// Whether the memory's stream has nothing left to do.
    fn is_done(&self, scratch: &Scratch) -> Result<bool, Code>;
}

/// All that a context had to do at some time.
#[derive(Debug)]
pub(crate) struct Mark {
    /// The context.
    pub(crate) context: usize,
    /// The event that follows it all.
    pub(crate) event: usize,
}

/// What the driver says of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    /// The allocation: its first address, and its bytes.
    pub(crate) range: (u64, u64),
    /// The device, if it is memory of one.
    pub(crate) device: i32,
    /// Whose it is.
    pub(crate) holder: Holder,
}

/// Whose memory it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// The host's.
    Host,
    /// A context's.
    Context(usize),
    /// A pool's.
    Pool(usize),
    /// The program's, which mapped it.
    Mapped,
    /// Managed memory, and memory of other processes: its copies are not ours to judge.
    Foreign,
}

/// What kind of memory a proof is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScratchKind {
    /// Mapped, with rights of its own: nothing of the program's is affected.
    Mapped,
    /// A context's: reached by what reaches the program's memory in it.
    Plain,
    /// That of a pool of our own.
    Pool,
    /// A page only, to see whether the device has time: a context's.
    Page,
}

/// A piece of a device's memory for proofs, of two halves of [`access::HALF`] bytes, with a stream of its own and memory of
/// the host. It is never freed: that would wait for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scratch {
    /// What kind of memory it is.
    pub(crate) kind: ScratchKind,
    /// The context of the stream.
    pub(crate) context: usize,
    /// What tells it from later ones.
    pub(crate) context_id: u64,
    /// The device.
    pub(crate) device: i32,
    /// The memory's address.
    pub(crate) address: u64,
    /// How many bytes it has.
    pub(crate) bytes: usize,
    /// The stream, which blocks no other.
    pub(crate) stream: usize,
    /// The pool, for memory of one.
    pub(crate) pool: usize,
    /// Page-locked memory of the host, as much as the device has: what is uploaded, and what was downloaded.
    pub(crate) host: usize,
}

impl Scratch {
    /// How many bytes each half has.
    pub(crate) fn half(&self) -> usize {
        (self.bytes / 2).min(access::HALF)
    }
}

/// A part of a half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Where it begins.
    pub(crate) offset: usize,
    /// How many bytes it has.
    pub(crate) bytes: usize,
}

/// A peer copy, as the driver is asked for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PeerCopy {
    /// What is copied.
    pub(crate) copied: Copied,
    /// The stream's handle; the default stream for a synchronous copy.
    pub(crate) stream: usize,
}

/// What a copy copies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Copied {
    /// A number of bytes.
    Linear { dst: usize, src: usize, bytes: usize },
    /// A box of bytes.
    Box(CUDA_MEMCPY3D_PEER),
}

/// From where to where, and how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    /// The source's address.
    pub(crate) src: u64,
    /// The destination's address.
    pub(crate) dst: u64,
    /// How many bytes.
    pub(crate) bytes: u64,
}

impl Ends {
    /// Those of a 3D copy. None for arrays and memory of the host, which have no address here.
    #[inline(always)]
    pub(crate) fn of_box(peer: &CUDA_MEMCPY3D_PEER) -> Option<Self> {
        let bytes = peer.WidthInBytes.saturating_mul(peer.Height).saturating_mul(peer.Depth);
        (is_pointer(peer.srcMemoryType) && is_pointer(peer.dstMemoryType)).then_some(Self {
            src: peer.srcDevice,
            dst: peer.dstDevice,
            bytes: bytes as u64,
        })
    }
}

impl PeerCopy {
    /// None for arrays and memory of the host, which have no address here.
    pub(crate) fn ends(&self) -> Option<Ends> {
        match &self.copied {
            &Copied::Linear { dst, src, bytes } => Some(Ends { src: src as u64, dst: dst as u64, bytes: bytes as u64 }),
            Copied::Box(peer) => Ends::of_box(peer),
        }
    }
}

/// A copy as it is counted and shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// The device that the bytes come from.
    pub(crate) src: u8,
    /// The device that they go to.
    pub(crate) dst: u8,
    /// The way that they take.
    pub(crate) path: Path,
    /// How many there are.
    pub(crate) bytes: u64,
}

/// What becomes of a copy.
#[expect(clippy::large_enum_variant, reason = "it stays on the stack of a hook, where nothing may have a destructor")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// The real function gets it as it came.
    Forward,
    /// Another function of the driver does the same in its place.
    Instead(capture::Replacement),
}

/// What is called in place of a function about peer access: `cuCtxEnablePeerAccess(peer, flags)`, such that it enables
/// nothing that was not enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HarmlessEnable {
    /// The context of the memory.
    pub(crate) peer: usize,
    /// The flags.
    pub(crate) flags: u32,
    /// The answer that means that there is no other error.
    pub(crate) from: Code,
    /// What the program gets for it.
    pub(crate) to: Code,
}

/// What is done once a function about peer access has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Revision {
    /// The program gets the answer.
    Keep,
    /// The program gets this code.
    Answer(Code),
    /// The function is called once more.
    Again,
}

/// What there may be to decide about a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Concern {
    /// Nothing.
    Nothing,
    /// It copies between devices.
    Copy,
    /// It asks for peer access, or about it.
    Peers,
}

/// What there may be to decide about a function; known at compile time.
#[inline(always)]
pub(crate) const fn concern(function: Function) -> Concern {
    match function {
        Function::cuMemcpyPeer
        | Function::cuMemcpyPeer_ptds
        | Function::cuMemcpyPeerAsync
        | Function::cuMemcpyPeerAsync_ptsz
        | Function::cuMemcpy3DPeer
        | Function::cuMemcpy3DPeer_ptds
        | Function::cuMemcpy3DPeerAsync
        | Function::cuMemcpy3DPeerAsync_ptsz => Concern::Copy,
        Function::cuCtxEnablePeerAccess
        | Function::cuCtxDisablePeerAccess
        | Function::cuDeviceCanAccessPeer
        | Function::cuDeviceGetP2PAttribute
        | Function::cuDeviceGetP2PAtomicCapabilities => Concern::Peers,
        _ => Concern::Nothing,
    }
}

/// Whether a call must not meet the closing of a link; known at compile time.
#[inline(always)]
pub(crate) const fn passes_gate(function: Function) -> bool {
    matches!(concern(function), Concern::Copy)
        || capture::is_beginning(function)
        || matches!(
            function,
            Function::cuGraphInstantiate
                | Function::cuGraphInstantiate_v2
                | Function::cuGraphInstantiateWithFlags
                | Function::cuGraphInstantiateWithParams
                | Function::cuGraphInstantiateWithParams_ptsz
                | Function::cuCtxDestroy
                | Function::cuCtxDestroy_v2
                | Function::cuGreenCtxDestroy
                | Function::cuDevicePrimaryCtxRelease
                | Function::cuDevicePrimaryCtxRelease_v2
                | Function::cuDevicePrimaryCtxReset
                | Function::cuDevicePrimaryCtxReset_v2
        )
}

/// All that is known of memory, contexts and peers in this process.
pub(crate) static ACCESS: Access = Access::new();

/// All that is known of HIP in this process.
pub(crate) static HIP: Peers = Peers::new();

/// All that is known of what the program gets wrong.
pub(crate) static VALIDATE: Validate = Validate::new();

/// Takes over the options, once, before the first decision.
pub(crate) fn configure(config: &Config) {
    capture::configure(config.rewrites_captured);
    ACCESS.configure(config);
    HIP.configure(config);
    VALIDATE.configure(config.validate);
}

/// Takes over options that have changed under way.
pub(crate) fn reconfigure(config: &Config) {
    capture::configure(config.rewrites_captured);
    ACCESS.reconfigure(config);
    HIP.reconfigure(config);
    VALIDATE.configure(config.validate);
}

/// Why a copy on a stream that is being captured is left to be refused.
pub(crate) fn why_forwarded() -> &'static str {
    if capture::rewrites() {
        "refused by CUDA: no capturable copy is its equal"
    } else {
        "refused by CUDA, and left so by P2PSHIM_CAPTURE=forward"
    }
}

/// Decides about a copy on a stream that is being captured.
pub(crate) fn decide(driver: &impl Driver, function: Function, copy: &PeerCopy) -> Verdict {
    if capture::rewrites() { capture::decide(driver, function, copy) } else { Verdict::Forward }
}
