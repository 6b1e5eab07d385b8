//! The driver, as decisions see it.

use p2pshim_host::machine::Machine;

use super::verdicts::{self, Gpu, Verdict};
use crate::api::abi::{CUDA_MEMCPY3D_PEER, Code};

/// Bytes of a half of a [`Scratch`].
pub(crate) const HALF: usize = 512 << 10;

/// CUDA's driver or HIP, as [`PeerVerifier`](super::access::verifier::PeerVerifier) uses it. Nothing here waits for a device.
pub(crate) trait VerifyBackend {
    fn device_count(&self) -> i32;

    /// Begins to copy bytes to where they are sent from, on the memory's own stream.
    fn upload(&self, to: &Scratch, bytes: &[u8]) -> Result<(), Code>;

    /// Begins to copy from where one sends to where another receives, on the sender's stream.
    fn send(&self, from: &Scratch, to: &Scratch, span: Span) -> Result<(), Code>;

    /// Begins to copy what was received to the host, on the memory's own stream.
    fn download(&self, from: &Scratch, bytes: usize) -> Result<(), Code>;

    /// The bytes that were downloaded; none if there is no memory for them.
    fn downloaded(&self, from: &Scratch, bytes: usize) -> Option<Vec<u8>>;

    /// Whether the memory's stream has nothing left to do.
    fn is_done(&self, scratch: &Scratch) -> Result<bool, Code>;

    /// Whether the hardware lets a device access the memory of another.
    fn can_access(&self, device: i32, peer: i32) -> Result<bool, Code>;

    /// Which of two devices can access the other's memory.
    fn can_reach(&self, [one, other]: [i32; 2]) -> Result<[bool; 2], Code> {
        Ok([self.can_access(one, other)?, self.can_access(other, one)?])
    }

    /// Runs `work` so that its calls disturb no capture, whichever thread's. None if that cannot be had.
    fn relaxed<T>(&self, work: impl FnOnce() -> T) -> Option<T>;

    /// Takes memory for a verification.
    fn scratch(&self, kind: ScratchKind, context: (usize, u64), device: i32) -> Result<Scratch, Code>;

    /// Lets another device access it; for mapped memory and pools.
    fn share(&self, _scratch: &Scratch, _device: i32) -> Result<(), Code> {
        Ok(())
    }

    /// Begins to copy what was last downloaded from one into the first half of another, on the latter's stream.
    fn upload_downloaded(&self, _from: &Scratch, _to: &Scratch, _bytes: usize) -> Result<(), Code> {
        Err(Code::NOT_SUPPORTED)
    }

    /// Whether the host can read at an address.
    fn is_readable(&self, address: u64) -> bool;

    /// A device's names. Nothing here needs a context, or disturbs a capture.
    fn gpu(&self, device: i32) -> Option<Gpu>;

    /// The version, as CUDA or HIP counts: 12.8 is 12080, or 120800000 and more.
    fn version(&self) -> Option<i32>;

    /// The machine's properties of these devices, as its first GPUs; none if they are simulated, on a machine of which nothing is said. Takes a millisecond or more.
    fn machine(&self, devices: [i32; 2]) -> Option<Machine> {
        let gpus = devices.map(|device| self.gpu(device).unwrap_or_default());
        let root = gpus[0].root()?;
        Some(Machine::read(&root, &gpus.map(|gpu| gpu.bus_id.to_ascii_lowercase())))
    }

    /// Whether NVLink joins two devices, or the like: a link that does atomic operations itself.
    fn is_linked(&self, devices: [i32; 2]) -> bool;

    /// The verdict that is kept on a device's access to the memory of another.
    fn verdict(&self, by: i32, of: i32) -> Option<Verdict> {
        verdicts::verdict(&verdicts::question([self.gpu(by)?, self.gpu(of)?], self.version()?)?)
    }

    /// Keeps what copies in this process have shown.
    fn keep_verdict(&self, by: i32, of: i32, verdict: Verdict) {
        let question = || verdicts::question([self.gpu(by)?, self.gpu(of)?], self.version()?);
        question().into_iter().for_each(|question| verdicts::keep(&question, verdict.clone()));
    }
}

/// Questions and orders of decisions to the real driver. Nothing here waits for a device.
///
/// Contexts, pools and streams are handles, devices are ordinals, addresses are those of the unified address space. Functions that
/// change anything are called within [`VerifyBackend::relaxed`] only.
pub(crate) trait Driver: VerifyBackend {
    fn is_device_memory(&self, address: u64) -> bool;

    /// The memory that an address belongs to; none if the driver does not know it, or does not tell.
    fn memory(&self, address: u64) -> Option<Memory>;

    /// Whether the driver says that it knows no memory there.
    fn is_unknown(&self, address: u64) -> bool {
        self.memory(address).is_none()
    }

    fn current_context(&self) -> Option<usize>;

    /// A number that tells the context from later ones with the same handle; none if there is no such context (any more). 0 for all
    /// contexts of drivers that do not number them.
    fn context_id(&self, context: usize) -> Option<u64>;

    fn device_of_context(&self, context: usize) -> Option<i32>;

    /// A device's primary context, if it exists; none is made.
    fn primary_context(&self, device: i32) -> Option<usize>;

    fn names(&self, device: i32) -> Option<[String; 2]> {
        self.gpu(device).map(|gpu| [gpu.uuid, gpu.bus_id])
    }

    fn pool_access(&self, pool: usize, device: i32) -> bool;

    /// The device whose pool it is from the start, if it is such a pool.
    fn default_pool(&self, device: i32) -> Option<usize>;

    /// Whether a device may access memory that the program mapped.
    fn mapped_access(&self, address: u64, device: i32) -> bool;

    /// The mapping there: its first address, and its bytes. (An [allocation](Memory) is all addresses that were set aside.)
    fn mapping(&self, _address: u64) -> Option<(u64, u64)> {
        None
    }

    /// The device on which physical memory lies; negative if the process does not see it.
    fn location(&self, _physical: usize) -> Option<i32> {
        None
    }

    /// The physical memory that is mapped there, if any is.
    fn mapped_memory(&self, address: u64) -> Option<usize>;

    fn enable(&self, context: usize, peer: usize) -> Code;

    fn grant(&self, pool: usize, device: i32) -> Code;

    /// The verdict that is kept on two devices, by their UUIDs.
    fn verdict_between(&self, uuids: [&str; 2]) -> Option<Verdict>;

    /// The copies of a graph and of its child graphs that name no devices, each with its node. Those in the bodies of conditional nodes
    /// are not among them: how often they run only the device knows. None if there is no memory for them.
    fn graph_copies(&self, graph: usize) -> Option<Vec<NodeCopy>>;

    fn child_graph(&self, node: usize) -> Option<usize>;

    /// The context that a stream of the program's belongs to; none if the driver cannot tell.
    fn stream_context(&self, stream: usize, per_thread: bool) -> Option<usize>;

    /// Whether a stream of the program's has nothing left to do; none if it has failed.
    fn is_stream_idle(&self, stream: usize) -> Option<bool>;

    /// The context that memory of a device or of the host belongs to, if it belongs to one.
    fn context_of_memory(&self, address: u64) -> Option<usize>;

    /// An event of a context that keeps no time.
    fn new_event(&self, context: (usize, u64)) -> Option<usize>;

    /// Records an event on a stream of its context. Whether it was.
    fn record(&self, event: usize, stream: usize) -> bool;

    /// Whether an event can be recorded on a stream without becoming part of a capture, or ending one.
    fn may_record(&self, stream: usize) -> bool;

    /// Records one while its context is current.
    fn record_within(&self, context: usize, event: usize, stream: usize) -> bool;

    /// Whether what an event was recorded for is over, or has failed.
    fn has_passed(&self, event: usize) -> bool;

    /// Whether nodes can be taken out of a graph again: not if it allocates or frees memory.
    fn can_lose_nodes(&self, graph: usize) -> bool;

    /// The nodes of a graph without those of child graphs, and which comes directly before which. None if the driver does not tell.
    fn graph_order(&self, graph: usize) -> Option<(Vec<usize>, Vec<[usize; 2]>)>;

    /// Adds a node to a graph that records an event, behind other nodes. The new one; none if one of the others is not the graph's own.
    fn add_record(&self, graph: usize, behind: &[usize], event: usize) -> Option<usize>;

    /// Takes a node that was added out of its graph.
    fn remove_node(&self, node: usize);
}

/// A copy that a node of a graph makes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NodeCopy {
    pub(crate) node: usize,
    /// The node of the graph itself: that, or the child graph that it is in.
    pub(crate) within: usize,
    /// The copy; the contexts are reserved words.
    pub(crate) parameters: CUDA_MEMCPY3D_PEER,
}

/// The driver's answer about an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    /// The allocation: its first address, and its bytes.
    pub(crate) range: (u64, u64),
    /// The device, if it is memory of one.
    pub(crate) device: i32,
    pub(crate) holder: Holder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    Host,
    Context(usize),
    Pool(usize),
    /// The program's, which mapped it.
    Mapped,
    /// Another process's, opened by an IPC handle. The device is the opener's.
    Opened,
    /// Managed memory: its copies are not ours to judge.
    Foreign,
}

/// The kind of memory that a verification is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScratchKind {
    /// Mapped, with rights of its own: nothing of the program's is affected.
    Mapped,
    /// Memory of a pool of our own.
    Pool,
    /// A page only, to see whether the device has time: a context's.
    Page,
}

/// A piece of a device's memory for verifications, of two halves, with a stream of its own and memory of the host. The first half
/// sends, the second receives. It is never freed: that would wait for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scratch {
    pub(crate) kind: ScratchKind,
    pub(crate) context: usize,
    /// A number that tells it from later ones.
    pub(crate) context_id: u64,
    pub(crate) device: i32,
    /// Where bytes are sent from, and where they arrive.
    pub(crate) address: u64,
    pub(crate) receives: u64,
    pub(crate) bytes: usize,
    /// The stream, which blocks no other.
    pub(crate) stream: usize,
    /// With HIP, the stream of what goes through the host.
    pub(crate) control: usize,
    pub(crate) pool: usize,
    /// Page-locked memory of the host, as much as the device has: what is uploaded, and what was downloaded. With HIP, as much again
    /// for the control.
    pub(crate) host: usize,
}

impl Scratch {
    /// How many bytes each half has.
    pub(crate) fn half(&self) -> usize {
        (self.bytes / 2).min(HALF)
    }

    /// With HIP, its control: what goes through the host, to where the other's copies arrive, and from there.
    pub(crate) fn through_host(self) -> Self {
        Self { address: self.receives, host: self.host + self.bytes, stream: self.control, ..self }
    }
}

/// A part of a half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}
