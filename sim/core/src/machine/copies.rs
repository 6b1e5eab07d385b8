//! Copies and memsets: checking them, choosing their way, submitting them.

use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use super::contexts::NO_CONTEXT;
use super::stalls::{Asked, Until};
use super::{ContextHandle, ContextId, DefaultStream, Machine, State, StreamRef};
use crate::access::READ_WRITE;
use crate::error::{Error, Result};
use crate::fault::{APERTURE, Defect, Means, WINDOW};
use crate::fence::Fence;
use crate::gate::Gate;
use crate::graph::Step;
use crate::os;
use crate::space::Owner;
use crate::stream::Stream;
use crate::transfer::{Memory, Piece, Place, Request, Transfer};
use crate::work::{Copy, Extent, Fill, Gated, Path, Places, Work, has_delays, staging_time};

/// Whether the program expects a copy to be over when the call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// If the host takes part; between devices nobody waits.
    Sync,
    /// Only if the host's side is pageable memory.
    Async,
    /// As `Async`, but for when the source is read.
    Batch(SourceOrder),
}

/// When a copy of a batch reads its source, as the program says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceOrder {
    /// In the order of the stream.
    Stream,
    /// Before the call returns.
    DuringCall,
    /// At any time.
    Any,
}

/// Pageable sources of fewer bytes are copied at once. Measured on an H200.
const SMALL: u64 = 64 << 10;
/// With more bytes to upload than this a call waits for the stream's earlier work: 2 MiB did not on an H200, 4 MiB did.
const BUFFERED: u64 = 2 << 20;

impl Machine {
    /// Copies on a stream.
    pub fn copy(&self, stream: StreamRef, request: &Request, completion: Completion) -> Result<()> {
        self.wait_for_others(Asked::Work);
        self.wait_for_room(stream, |state| state.places(request));
        let mut state = self.lock();
        let stream = match completion {
            Completion::Async => state.stream_of_async_copy(stream)?,
            _ => state.stream(stream)?,
        };
        if request.extent.is_empty() {
            return Ok(());
        }
        let transfer = state.transfer(request)?;
        // Where no context is current a created stream's makes the copy.
        let by = state.current().unwrap_or(stream.context);
        state.refuse_beyond_rights(by, transfer)?;
        self.copy_on(state, &stream, transfer, completion)
    }

    /// The peer copy on a stream, which no capture can take: it was measured to break the capture, before anything else
    /// is looked at.
    pub fn copy_peer_async(&self, stream: StreamRef, request: &Request, contexts: [ContextHandle; 2]) -> Result<()> {
        self.wait_for_others(Asked::Work);
        self.wait_for_room(stream, |state| state.places(request));
        let mut state = self.lock();
        let stream = state.stream_of_async_copy(stream)?;
        state.refuse_captured(&stream)?;
        if request.extent.is_empty() {
            return Ok(());
        }
        let transfer = state.peer_transfer(request, contexts)?;
        self.copy_on(state, &stream, transfer, Completion::Async)
    }

    /// The synchronous peer copy: ordered on the default streams of the current context and both sides', and the host does not
    /// wait for it unless the host takes part. A capture that the caller's default stream would pass over is refused before
    /// anything else is looked at, as was measured.
    pub fn copy_peer(&self, default: DefaultStream, request: &Request, contexts: [ContextHandle; 2]) -> Result<()> {
        let mut state = self.lock();
        let own = state.stream(StreamRef::Default(default))?;
        state.refuse_synchronous(&own)?;
        if request.extent.is_empty() {
            return Ok(());
        }
        let transfer = state.peer_transfer(request, contexts)?;
        let streams = state.default_streams(default, transfer)?;
        for stream in &streams {
            state.refuse_synchronous(stream)?;
        }
        let planned = state.plan(own.context, transfer);
        let path = planned.0.path;
        let fence = state.submit_copy(&own, &streams, transfer, planned)?;
        if path == Path::Staged {
            state.stall(own.context, false, Until::Time(Instant::now() + staging_time(request.extent.bytes())));
        }
        drop(state);
        finish(&fence, path == Path::Host, path, request.extent);
        Ok(())
    }

    /// Sends a copy on its way that has been checked, or captures it.
    fn copy_on(
        &self,
        mut state: MutexGuard<'_, State>,
        stream: &Arc<Stream>,
        transfer: Transfer,
        completion: Completion,
    ) -> Result<()> {
        if completion == Completion::Sync {
            state.refuse_synchronous(stream)?;
        } else if state.capture(stream, &Step::Copy(transfer.unified()))? {
            return Ok(());
        }
        let sent = state.send(stream, transfer, completion)?;
        if let Some(until) = sent.stalls(transfer) {
            state.stall(stream.context, false, until);
        }
        drop(state);
        sent.finish();
        self.lock().intact(stream.context)
    }

    /// Sets `extent` of device or pinned memory to the low `unit` bytes of `value`.
    pub fn fill(
        &self,
        stream: StreamRef,
        dst: Place,
        extent: Extent,
        (value, unit): (u32, u64),
        completion: Completion,
    ) -> Result<()> {
        self.wait_for_room(stream, |_| Places::SET);
        let mut state = self.lock();
        let stream = state.stream(stream)?;
        if extent.is_empty() {
            return Ok(());
        }
        let side = state.side(&dst, extent)?;
        if !side.layout.address.is_multiple_of(unit) || !extent.width.is_multiple_of(unit) {
            return Err(Error::INVALID_VALUE);
        }
        if let Memory::Device(piece) = side.memory
            && !state.may_set(stream.context, piece)
        {
            return Err(Error::INVALID_VALUE);
        }
        let step = Step::Fill(Fill { dst: side.layout, extent, value, unit });
        if completion == Completion::Sync {
            state.refuse_synchronous(&stream)?;
        } else if state.capture(&stream, &step)? {
            return Ok(());
        }
        let fence = state.run(&stream, &step)?;
        // Documented: only setting page-locked memory is over when the call returns.
        if completion == Completion::Sync && matches!(side.memory, Memory::Pinned { .. }) {
            drop(state);
            fence.wait();
        }
        Ok(())
    }
}

/// Holds the caller after a copy was submitted, as long as the call takes.
pub(super) fn finish(fence: &Fence, must_wait: bool, path: Path, extent: Extent) {
    if must_wait {
        fence.wait();
    } else if path == Path::Staged {
        // It was measured that the call takes the time of the transfer. Not waiting for the fence keeps this true
        // and still lets a program release, from this thread, what the stream's earlier work waits for.
        os::pause(staging_time(extent.bytes()));
    }
}

/// A copy that was submitted.
pub(super) struct Sent {
    fence: Arc<Fence>,
    must_wait: bool,
    path: Path,
    extent: Extent,
}

impl Sent {
    /// Until when the call keeps others waiting, if it does.
    fn stalls(&self, transfer: Transfer) -> Option<Until> {
        let is_pageable = transfer.memories().contains(&Memory::Pageable);
        match self.path {
            Path::Host if self.must_wait && is_pageable => Some(Until::Reached(vec![Arc::clone(&self.fence)])),
            Path::Staged => Some(Until::Time(Instant::now() + staging_time(self.extent.bytes()))),
            _ => None,
        }
    }

    /// Holds the caller as long as the call takes.
    pub(super) fn finish(&self) {
        finish(&self.fence, self.must_wait, self.path, self.extent);
    }
}

impl State {
    /// Submits a copy that has been checked.
    pub(super) fn send(&mut self, stream: &Arc<Stream>, transfer: Transfer, completion: Completion) -> Result<Sent> {
        let (mut copy, gates) = self.plan(stream.context, transfer);
        let [src, dst] = transfer.memories();
        let (is_pageable, bytes) = (src == Memory::Pageable, transfer.extent.bytes());
        let is_idle = || {
            let before = self.implicit_order(stream).into_iter().chain([stream.tail()]);
            before.into_iter().all(|fence| fence.is_done())
        };
        let is_upload = is_pageable && matches!(dst, Memory::Device(_));
        let (must_wait, reads_now) = match completion {
            Completion::Sync => (copy.path == Path::Host, false),
            _ if dst == Memory::Pageable => (true, false),
            Completion::Async if !is_upload => (false, is_pageable),
            Completion::Async if is_idle() => (bytes < SMALL, bytes >= SMALL),
            Completion::Async => (bytes > BUFFERED, bytes <= BUFFERED),
            // Measured on an H200, but for sources on devices, which wait for nobody here.
            Completion::Batch(SourceOrder::Stream) => (is_pageable, false),
            Completion::Batch(_) if is_pageable => (false, bytes < SMALL),
            Completion::Batch(SourceOrder::DuringCall) => {
                (matches!(src, Memory::Pinned { .. }), matches!(src, Memory::Device(_)))
            }
            Completion::Batch(SourceOrder::Any) => (false, false),
        };
        // The call has read all of the source when it returns; where delays are drawn the last bytes have yet to get there.
        let is_late = has_delays()
            && is_upload
            && gates.is_empty()
            && bytes >= SMALL
            && transfer.is_one_row()
            && matches!(completion, Completion::Sync | Completion::Async)
            && is_idle();
        let (path, beside) = (copy.path, self.legacy_beside(stream, transfer));
        if is_late {
            let read = Fence::pending();
            copy.read = Some(Arc::clone(&read));
            self.submit_copy(stream, &beside, transfer, (copy, gates))?;
            return Ok(Sent { fence: read, must_wait: true, path, extent: transfer.extent });
        }
        if reads_now {
            copy.take_snapshot();
        }
        let fence = self.submit_copy(stream, &beside, transfer, (copy, gates))?;
        Ok(Sent { fence, must_wait, path, extent: transfer.extent })
    }

    /// The places that a copy would take in the queues of its stream; none if it cannot be made.
    fn places(&self, request: &Request) -> Places {
        let transfer = if request.extent.is_empty() { None } else { self.transfer(request).ok() };
        let path = transfer.map(|transfer| self.path(transfer.dst.memory, transfer.src.memory).0);
        path.map_or_else(Places::default, Places::of_copy)
    }

    pub(super) fn transfer(&self, request: &Request) -> Result<Transfer> {
        let Request { dst, src, extent } = *request;
        let (dst, src) = (self.side(&dst, extent)?, self.side(&src, extent)?);
        self.writable(Transfer { dst, src, extent, request: *request, named: [None; 2] })
    }

    /// A copy that a node of a graph, or a batch, is to make. It has to copy something; the memory may be gone, and need not be what the
    /// program says, as was measured.
    pub(super) fn loose_transfer(&self, request: &Request) -> Result<Transfer> {
        let Request { dst, src, extent } = *request;
        if extent.is_empty() {
            return Err(Error::INVALID_VALUE);
        }
        let (dst, src) = (self.loose_side(&dst, extent)?, self.loose_side(&src, extent)?);
        self.writable(Transfer { dst, src, extent, request: *request, named: [None; 2] })
    }

    fn writable(&self, transfer: Transfer) -> Result<Transfer> {
        if self.may_write(transfer.dst.memory) { Ok(transfer) } else { Err(Error::INVALID_VALUE) }
    }

    /// Whether memory that the program mapped may be written by any device; other memory always may.
    fn may_write(&self, memory: Memory) -> bool {
        let Memory::Device(Piece { owner: Owner::Mapping, base, .. }) = memory else { return true };
        self.mappings.rights(base).is_some_and(|rights| rights.allow_any(READ_WRITE))
    }

    /// Memory with rights of its own, of a pool or mapped, takes part in a copy only if the device of the context that makes it has
    /// some; a peer copy asks for none. Both were measured.
    pub(super) fn refuse_beyond_rights(&self, by: ContextId, transfer: Transfer) -> Result<()> {
        let own = self.info(by)?.device;
        let is_within = |memory: &Memory| match memory {
            Memory::Device(piece @ Piece { owner: Owner::Pool(_) | Owner::Mapping, .. }) => {
                self.can_reach(by, own, *piece)
            }
            _ => true,
        };
        if transfer.memories().iter().all(is_within) { Ok(()) } else { Err(Error::INVALID_VALUE) }
    }

    /// A peer copy. The contexts of destination and source that it names do not decide whether it is made: NULL and swapped ones were
    /// measured to succeed. With one that is gone, a real driver crashes here.
    fn peer_transfer(&self, request: &Request, [dst, src]: [ContextHandle; 2]) -> Result<Transfer> {
        let transfer = self.transfer(request)?;
        let named = |handle| if handle == NO_CONTEXT { Ok(None) } else { self.named(handle).map(Some) };
        let (dst, src) = (named(dst)?, named(src)?);
        Ok(Transfer { named: [src, dst], ..transfer })
    }

    /// Chooses the way of a copy that a context makes, counts it and lets go wrong what is to. Says what the copy relies on.
    pub(super) fn plan(&mut self, by: ContextId, transfer: Transfer) -> (Copy, Vec<Arc<Gate>>) {
        let on = self.way(transfer);
        self.plan_on(by, transfer, on)
    }

    /// The way of a copy, and what it relies on that makes it.
    pub(super) fn way(&mut self, Transfer { dst, src, .. }: Transfer) -> (Path, Option<Arc<Gate>>) {
        self.open_for_copy(dst.memory, src.memory);
        self.path(dst.memory, src.memory)
    }

    /// Does as [`State::plan`], with the way chosen before.
    pub(super) fn plan_on(
        &mut self,
        by: ContextId,
        Transfer { dst, src, mut extent, .. }: Transfer,
        (path, access): (Path, Option<Arc<Gate>>),
    ) -> (Copy, Vec<Arc<Gate>>) {
        let sides = [dst, src].map(|side| (side.layout.address, side.memory));
        let kept = sides.into_iter().filter_map(|side| self.kept_by_copy(by, path, side));
        let gates = kept.chain(access).collect();
        let (mut defect, mut traffic) = (None, None);
        if let (Memory::Device(from), Memory::Device(to)) = (src.memory, dst.memory) {
            let (direct, staged) = self.copies.entry((from.device, to.device)).or_default();
            match path {
                Path::Direct => {
                    *direct += 1;
                    if let Some(counters) = &self.counters {
                        counters.add(from.device, to.device, extent.bytes());
                    }
                    defect = self.faults.defect(from.device, to.device, *direct);
                    let of_pair = self.traffic.entry((from.device, to.device));
                    traffic = Some(Arc::clone(of_pair.or_insert_with(|| Arc::new(self.any_traffic.of_another()))));
                    let is_granted = |piece: &Piece| matches!(piece.owner, Owner::Pool(_) | Owner::Mapping);
                    let are_granted = [from, to].iter().any(|piece| is_granted(piece) && self.came_by(piece).is_none());
                    if are_granted && self.faults.drops_granted(from.device, to.device) {
                        defect = Some(Defect::Drop);
                    }
                    if let Some(by) = [from, to].iter().find_map(|piece| self.came_by(piece)) {
                        defect = self.faults.between_processes(from.device, to.device, by).or(defect);
                    }
                    if defect == Some(Defect::Aperture) && extent.height * extent.depth == 1 {
                        let end = to.base + APERTURE;
                        extent.width = extent.width.min(end.saturating_sub(dst.layout.address));
                    }
                    if defect == Some(Defect::Window) && self.space.depth(dst.layout.address) >= WINDOW {
                        defect = Some(Defect::Drop);
                    }
                }
                Path::Staged => {
                    *staged += 1;
                    defect = self.faults.drops_staged(from.device, to.device).then_some(Defect::Both);
                }
                Path::SameDevice | Path::Host => {}
            }
        }
        (Copy { dst: dst.layout, src: src.layout, extent, path, defect, traffic, snapshot: None, read: None }, gates)
    }

    /// How memory came here, if another process allocated it.
    pub(super) fn came_by(&self, piece: &Piece) -> Option<Means> {
        let origin = match piece.owner {
            Owner::Import(_) => return Some(Means::IpcHandle),
            Owner::Mapping => self.mappings.origin(piece.base),
            Owner::Pool(pool) => self.pools.get(&pool).map(|pool| &pool.origin),
            Owner::Context(_) | Owner::Device => None,
        };
        origin.is_some_and(|origin| origin.is_imported()).then_some(Means::Descriptor)
    }

    /// A copy between two devices opens those allocations that are opened one by one.
    fn open_for_copy(&mut self, dst: Memory, src: Memory) {
        let (Memory::Device(to), Memory::Device(from)) = (dst, src) else { return };
        if from.device != to.device {
            [from, to]
                .iter()
                .filter(|piece| piece.owner == Owner::Device)
                .for_each(|piece| self.grants.open(piece.base));
        }
    }

    /// The gates that work of a context relies on if it touches these addresses.
    pub(super) fn kept_at(&self, by: ContextId, addresses: &[u64]) -> Vec<Arc<Gate>> {
        addresses.iter().filter_map(|address| self.kept(by, *address)).collect()
    }

    /// Work of a context, which breaks it if what the work relies on is gone by then.
    pub(super) fn gated(&self, context: ContextId, gates: Vec<Arc<Gate>>, work: Work) -> Work {
        if gates.is_empty() {
            return work;
        }
        let broken = self.contexts.get(&context).map(|context| Arc::clone(&context.broken)).unwrap_or_default();
        Work::Gated(Gated { work: Box::new(work), gates, broken })
    }

    /// Direct if either side can reach the other side's allocation, and as long as it can.
    fn path(&self, dst: Memory, src: Memory) -> (Path, Option<Arc<Gate>>) {
        let (Memory::Device(to), Memory::Device(from)) = (dst, src) else { return (Path::Host, None) };
        if from.device == to.device {
            return (Path::SameDevice, None);
        }
        let access = self.access_gate(from, to).or_else(|| self.access_gate(to, from));
        (if access.is_some() { Path::Direct } else { Path::Staged }, access)
    }

    /// The gate of a direct copy that the side that `from` is on makes; None if it cannot reach `to`. Memory of no
    /// context is on the side of all contexts of its device.
    fn access_gate(&self, from: Piece, to: Piece) -> Option<Arc<Gate>> {
        let rights = match to.owner {
            Owner::Context(to) => {
                let mut contexts = self.contexts.iter().filter(|(_, context)| context.device == from.device);
                return match from.owner {
                    Owner::Context(from) => self.peers.gate(from, to),
                    _ => contexts.find_map(|(from, _)| self.peers.gate(*from, to)),
                };
            }
            // An importer of memory reaches it for as long as it is imported, and closing waits for work.
            Owner::Import(by) => return (from.owner.context() == Some(by)).then(Gate::open),
            Owner::Pool(pool) => self.pools.get(&pool).map(|pool| &pool.rights),
            Owner::Mapping => self.mappings.rights(to.base),
            Owner::Device => self.grants.rights(to.base),
        };
        rights?.gate(from.device)
    }

    /// Whether work of a context may set memory: unlike a copy it cannot go by way of the host.
    fn may_set(&self, context: ContextId, piece: Piece) -> bool {
        let device = self.contexts.get(&context).map(|context| context.device);
        piece.owner == Owner::Device || device.is_some_and(|own| self.can_reach(context, own, piece))
    }

    /// The default streams of both sides' contexts, the source's first.
    fn default_streams(&mut self, default: DefaultStream, transfer: Transfer) -> Result<[Arc<Stream>; 2]> {
        let home = |side| match side {
            (Memory::Device(Piece { owner: Owner::Pool(_) | Owner::Mapping, .. }), Some(named)) => Ok(named),
            (memory, _) => self.home(memory),
        };
        let [first, second] = transfer.sides().map(home);
        Ok([self.default_stream(first?, default)?, self.default_stream(second?, default)?])
    }

    /// The context whose default streams a side of a copy is ordered on; for memory of none the current one, or else
    /// one of its device.
    pub(super) fn home(&self, memory: Memory) -> Result<ContextId> {
        let current = self.current()?;
        let device = match memory {
            Memory::Pinned { context } | Memory::Device(Piece { owner: Owner::Context(context), .. }) => {
                return Ok(context);
            }
            Memory::Device(piece) => piece.device,
            Memory::Gone { device, .. } => device,
            Memory::Pageable => return Ok(current),
        };
        let alive = self.handles.values().copied();
        let there = alive.filter(|id| self.info(*id).is_ok_and(|info| info.device == device));
        let is_there = self.info(current)?.device == device;
        Ok(if is_there { current } else { there.min().unwrap_or(current) })
    }
}
