//! The whole simulated machine.
//!
//! Methods of [`Machine`] lock its state, decide, submit work and unlock; whatever has to be waited for is
//! waited for afterwards, so that one blocked stream never stops a call about another.

mod batches;
mod captures;
mod contexts;
mod copies;
mod devices;
mod graphs;
mod kernels;
mod libraries;
mod mappings;
mod memory;
mod places;
mod pools;
mod shared_events;
mod sharing;
mod stalls;
mod streams;
mod updates;
mod waits;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::CStr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

pub use batches::BatchError;
pub use contexts::{ContextInfo, PrimaryState};
pub use copies::{Completion, SourceOrder};
pub use devices::{Followed, InCapture};
pub use mappings::MAPPING_GRANULE;
pub use memory::ArrayShape;
pub use pools::{PoolAttribute, PoolExport};
pub use shared_events::EventExport;
pub use sharing::Export;
pub use streams::{StreamInfo, StreamRef};

pub use self::kernels::Entries;
use self::kernels::Module;
use self::libraries::Library;
use self::mappings::Mappings;
use self::pools::{Pool, Retiring};
use self::shared_events::SharedEvent;
use self::sharing::Imports;
use self::stalls::Stall;
use crate::capture::Captures;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::fault::Faults;
use crate::fence::{Fence, lock};
use crate::grants::Grants;
use crate::graph::{Graph, Shape, Step};
pub use crate::graph::{NodeKind, Unlike};
pub use crate::ids::{
    ArrayHandle, CaptureId, ContextHandle, ContextId, DefaultStream, EventHandle, ExecHandle, FunctionHandle,
    GraphHandle, KernelHandle, LibraryHandle, ModuleHandle, NodeHandle, PhysicalHandle, PoolHandle, StreamHandle,
    StreamId,
};
pub use crate::kernel::{ADD_KERNEL, COPY_KERNEL, RECEIVE_KERNEL, SEND_KERNEL};
use crate::nvlink::Counters;
use crate::peers::Peers;
use crate::space::{Allocation, Space};
use crate::stream::{Role, Stream};
use crate::traffic::Traffic;
pub use crate::transfer::{Locus, Place, Request};
use crate::work::{self, Work};

/// The simulated machine.
pub struct Machine {
    config: Config,
    state: Mutex<State>,
}

#[derive(Default)]
struct Primary {
    references: u32,
    flags: u32,
}

struct Context {
    handle: ContextHandle,
    device: usize,
    flags: u32,
    legacy: Arc<Stream>,
    per_thread: HashMap<u64, Arc<Stream>>,
    /// Created streams, as long as they may have work.
    streams: Vec<Arc<Stream>>,
    /// Limits that the program has set.
    limits: HashMap<u32, u64>,
    /// Copies of other contexts that it takes part in, as long as they are not done.
    shared: Vec<Arc<Fence>>,
    /// The error that its work has led to: all that the context answers from then on.
    broken: Arc<OnceLock<Error>>,
}

impl Context {
    /// Streams whose work is ordered with the legacy default stream's, besides itself.
    fn blocking_streams(&self) -> impl Iterator<Item = &Arc<Stream>> {
        self.per_thread.values().chain(self.streams.iter().filter(|stream| stream.role == Role::Blocking))
    }

    fn all_tails(&self) -> Vec<Arc<Fence>> {
        let streams = self.per_thread.values().chain(&self.streams).chain([&self.legacy]);
        streams.map(|stream| stream.tail()).chain(self.shared.iter().map(Arc::clone)).collect()
    }

    /// Notes a copy of another context that it takes part in.
    fn take_part(&mut self, fence: &Arc<Fence>) {
        self.shared.retain(|fence| !fence.is_done());
        self.shared.push(Arc::clone(fence));
    }
}

struct Event {
    context: ContextId,
    has_time: bool,
    /// The last record of this process.
    recorded: Recorded,
    /// The part of it that other processes see and use.
    shared: Option<Arc<SharedEvent>>,
}

/// An event's last record.
#[derive(Clone)]
enum Recorded {
    Never,
    /// Among the work of a stream, or of all of a context's.
    Run(Vec<Arc<Fence>>),
    /// In a capture, after these nodes.
    Captured(CaptureId, Vec<NodeHandle>),
}

/// A graph that is ready to run.
struct Exec {
    steps: Arc<[Step]>,
    /// The nodes that the steps are of, in the same order.
    nodes: Vec<NodeHandle>,
    /// The nodes that do nothing until they are enabled.
    disabled: BTreeSet<NodeHandle>,
    /// The shape of its graph.
    shape: Shape,
    /// The end of its last launch; the next one comes after that.
    last: Arc<Fence>,
}

impl Exec {
    /// Which steps a launch takes.
    fn are_enabled(&self) -> Vec<bool> {
        self.nodes.iter().map(|node| !self.disabled.contains(node)).collect()
    }
}

struct Array {
    shape: ArrayShape,
    storage: Allocation,
}

struct State {
    primaries: Vec<Primary>,
    /// Includes contexts that are ending but still have work.
    contexts: BTreeMap<ContextId, Context>,
    /// The contexts that a program can name.
    handles: HashMap<ContextHandle, ContextId>,
    streams: HashMap<StreamHandle, Arc<Stream>>,
    /// Streams that went with their context, which a real driver can tell of them.
    orphans: HashSet<StreamHandle>,
    events: HashMap<EventHandle, Event>,
    arrays: HashMap<ArrayHandle, Array>,
    captures: Captures,
    graphs: HashMap<GraphHandle, Graph>,
    execs: HashMap<ExecHandle, Exec>,
    modules: HashMap<ModuleHandle, Module>,
    libraries: HashMap<LibraryHandle, Library>,
    space: Space,
    pools: HashMap<PoolHandle, Pool>,
    /// By device.
    current_pools: Vec<PoolHandle>,
    retiring: Vec<Retiring>,
    stalls: Vec<Stall>,
    mappings: Mappings,
    imports: Imports,
    peers: Peers,
    grants: Grants,
    /// Copies between two devices, from and to: direct ones, staged ones.
    copies: HashMap<(usize, usize), (u64, u64)>,
    counters: Option<Counters>,
    /// Direct copies by pair, from and to, and what all pairs share.
    traffic: HashMap<(usize, usize), Arc<Traffic>>,
    any_traffic: Traffic,
    kernel_traffic: HashMap<(usize, usize), Arc<Traffic>>,
    any_kernel_traffic: Traffic,
    faults: Faults,
    last_number: u64,
}

impl Machine {
    /// A machine at power-on.
    pub fn new(config: Config) -> Result<Machine> {
        work::set_staging_speed(config.staging_speed);
        config.delays.into_iter().for_each(|(seed, most)| work::set_delays(seed, most));
        let numbers = (0..config.all_devices()).map(|device| config.number(device)).collect();
        let state = State {
            primaries: (0..config.all_devices()).map(|_| Primary::default()).collect(),
            contexts: BTreeMap::new(),
            handles: HashMap::new(),
            streams: HashMap::new(),
            orphans: HashSet::new(),
            events: HashMap::new(),
            arrays: HashMap::new(),
            captures: Captures::default(),
            graphs: HashMap::new(),
            execs: HashMap::new(),
            modules: HashMap::new(),
            libraries: HashMap::new(),
            space: Space::new(config.all_devices(), config.shares_addresses, config.is_guarded)?,
            pools: State::default_pools(config.all_devices()).collect(),
            current_pools: State::default_pools(config.all_devices()).map(|(handle, _)| handle).collect(),
            retiring: Vec::new(),
            stalls: Vec::new(),
            mappings: Mappings::default(),
            imports: Imports::new(),
            peers: Peers::default(),
            grants: Grants::new(&config),
            copies: HashMap::new(),
            counters: config.nvlink.as_deref().and_then(|folder| Counters::open(folder, numbers).ok()),
            traffic: HashMap::new(),
            any_traffic: Traffic::default(),
            kernel_traffic: HashMap::new(),
            any_kernel_traffic: Traffic::default(),
            faults: config.faults.clone(),
            last_number: 0,
        };
        Ok(Machine { config, state: Mutex::new(state) })
    }

    /// How many devices there are.
    pub fn devices(&self) -> usize {
        self.config.devices
    }

    /// How much the process holds of each thing: of page-locked memory bytes.
    pub fn held(&self) -> [(&'static CStr, u64); 13] {
        let state = self.lock();
        let objects = |count: usize| count as u64;
        [
            (c"pinned", state.space.pinned()),
            (c"allocations", objects(state.space.allocations())),
            (c"physicals", objects(state.mappings.physicals())),
            (c"pools", objects(state.pools.len())),
            (c"contexts", objects(state.handles.len())),
            (c"peers", objects(state.peers.enabled())),
            (c"streams", objects(state.streams.len())),
            (c"events", objects(state.events.len())),
            (c"arrays", objects(state.arrays.len())),
            (c"graphs", objects(state.graphs.len())),
            (c"execs", objects(state.execs.len())),
            (c"modules", objects(state.modules.len())),
            (c"libraries", objects(state.libraries.len())),
        ]
    }

    /// Turns a program's ordinal into a device.
    pub fn device(&self, ordinal: i32) -> Result<usize> {
        usize::try_from(ordinal).ok().filter(|device| *device < self.config.devices).ok_or(Error::INVALID_DEVICE)
    }

    /// The number of a device on the machine, on which others may be hidden.
    pub fn number(&self, device: usize) -> usize {
        self.config.number(device)
    }

    /// The devices' name.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Whether the devices hang on PCI only.
    pub fn is_pci(&self) -> bool {
        self.config.is_pci
    }

    /// Whether the hardware lets device `from` reach the memory of device `to`.
    pub fn has_path(&self, from: usize, to: usize) -> bool {
        self.config.has_path(from, to)
    }

    /// Sets other faults: other devices have taken the places of these.
    pub fn set_faults(&self, faults: Faults) {
        self.lock().faults = faults;
    }

    /// How many copies between two devices have been submitted: direct ones, staged ones.
    pub fn copies(&self, from: usize, to: usize) -> (u64, u64) {
        self.lock().copies.get(&(from, to)).copied().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    /// A number that was never handed out before.
    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// The one door through which work reaches a stream: adds what the default streams' rules demand.
    fn submit(&self, stream: &Arc<Stream>, mut after: Vec<Arc<Fence>>, work: Work) -> Result<Arc<Fence>> {
        after.extend(self.implicit_order(stream));
        stream.submit(after, work)
    }

    /// The fences that the next work on `stream` has to wait for besides the stream's own earlier work.
    fn implicit_order(&self, stream: &Stream) -> Vec<Arc<Fence>> {
        let Some(context) = self.contexts.get(&stream.context) else { return Vec::new() };
        match stream.role {
            Role::Legacy => context.blocking_streams().map(|stream| stream.tail()).collect(),
            Role::Blocking => vec![context.legacy.tail()],
            Role::NonBlocking => Vec::new(),
        }
    }

    /// Everything submitted so far, on the whole machine.
    fn all_tails(&self) -> Vec<Arc<Fence>> {
        self.contexts.values().flat_map(Context::all_tails).collect()
    }
}

#[cfg(test)]
mod tests;
