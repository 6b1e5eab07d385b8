//! HIP's ways other than CUDA's: memory, peer access and resets are a matter of devices, not of contexts.
//!
//! Each device has its primary context for ever; who may reach an allocation is in `grants`. Nothing that was opened is
//! ever closed, so a copy never loses its way. Checks, orders and ways are those of the sources of HIP 5.7 to 7.1.

use std::sync::Arc;

use super::copies::finish;
use super::{DefaultStream, Machine, Place, Request, State, StreamRef};
use crate::current;
use crate::error::{Error, Result};
use crate::fence::Fence;
use crate::graph::Step;
use crate::space::{Kind, Owner};
use crate::stream::{Role, Stream};
use crate::transfer::{Memory, Piece};
use crate::work::{Extent, Fill, Path, Work};

/// The followers of a copy besides its stream's later work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Followed {
    /// The return of the call, unless the copy stays on one device.
    ByCaller,
    /// Nothing else, unless pageable memory takes part: then the return of the call.
    ByNobody,
    /// The return of the call if pageable memory takes part, and the default stream of the destination's device.
    ByDestination,
}

/// The effect of a capture on a call on its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InCapture {
    /// A node.
    Captured,
    /// Nothing: it is done at once, as if nothing were captured.
    DoneAtOnce,
}

impl Machine {
    /// Allocates memory of the current context's device.
    pub fn allocate_of_device(&self, size: u64) -> Result<u64> {
        let mut state = self.lock();
        let context = state.current()?;
        let device = state.info(context)?.device;
        state.allocate_of_device(device, size)
    }

    /// Allocates memory of a stream's device.
    pub fn allocate_of_stream(&self, stream: StreamRef, size: u64) -> Result<u64> {
        let mut state = self.lock();
        let stream = state.stream(stream)?;
        let device = state.info(stream.context)?.device;
        state.allocate_of_device(device, size)
    }

    /// Lets all memory of device `to`, what it allocates later too, be reached by `from`, and by all its other peers with it.
    pub fn enable_device(&self, from: usize, to: usize) -> Result<()> {
        self.lock().grants.enable(from, to)
    }

    /// Undoes [`Machine::enable_device`] for memory that is not allocated yet.
    pub fn disable_device(&self, from: usize, to: usize) -> Result<()> {
        self.lock().grants.disable(from, to)
    }

    /// Whether a kernel of a device could touch what lies at an address.
    pub fn device_reaches(&self, device: usize, address: u64) -> bool {
        let state = self.lock();
        match state.memory_at(address, 1) {
            Ok(Memory::Pinned { .. }) => true,
            Ok(Memory::Device(Piece { owner: Owner::Device, base, .. })) => state.grants.gate(device, base).is_some(),
            _ => false,
        }
    }

    /// Refuses what no capture at all bears, in whatever mode, with a code of the caller's choice; breaks all captures.
    pub fn refuse_beside_captures(&self, error: Error) -> Result<()> {
        self.lock().captures.refuse_on(|_| true).map_err(|_| error)
    }

    /// Whether anything is captured.
    pub fn is_capturing_anything(&self) -> bool {
        self.lock().captures.is_any()
    }

    /// Copies, also between devices, whatever was enabled: both allocations are open to all peers from then on.
    pub fn copy_by_device(
        &self,
        stream: StreamRef,
        request: &Request,
        followed: Followed,
        in_capture: InCapture,
    ) -> Result<()> {
        let mut state = self.lock();
        let stream = state.stream(stream)?;
        let transfer = state.transfer(request)?;
        if in_capture == InCapture::Captured && state.capture_by_device(&stream, &Step::Copy(transfer))? {
            return Ok(());
        }
        let [src, dst] = transfer.memories();
        let (copy, _) = state.plan(stream.context, transfer);
        let path = copy.path;
        let fence = state.run_near([src, dst], &stream, Work::Copy(copy))?;
        if followed == Followed::ByDestination {
            let context = state.home(dst)?;
            let after = state.default_stream(context, DefaultStream::Legacy)?;
            after.submit(vec![Arc::clone(&fence)], Work::Nothing)?;
        }
        drop(state);
        let is_pageable = [src, dst].contains(&Memory::Pageable);
        let must_wait = is_pageable || (followed == Followed::ByCaller && path != Path::SameDevice);
        finish(&fence, must_wait, path, request.extent);
        Ok(())
    }

    /// Sets bytes of memory that is known, on a stream or, if that is of another device, on the memory's own.
    pub fn fill_by_device(
        &self,
        stream: StreamRef,
        dst: Place,
        extent: Extent,
        value: (u32, u64),
        wait: bool,
    ) -> Result<()> {
        let mut state = self.lock();
        let stream = state.stream(stream)?;
        let side = state.side(&dst, extent)?;
        let (memory, (value, unit)) = (side.memory, value);
        let fill = Fill { dst: side.layout, extent, value, unit };
        let step = Step::Fill(fill.clone());
        if !wait && state.capture_by_device(&stream, &step)? {
            return Ok(());
        }
        let fence = state.run_near([memory, memory], &stream, Work::Fill(fill))?;
        drop(state);
        if wait && matches!(memory, Memory::Pinned { .. }) {
            fence.wait();
        }
        Ok(())
    }

    /// Frees device or pinned memory after all work submitted so far.
    pub fn free_by_device(&self, base: u64) -> Result<()> {
        let kind = self.find(base).map_or(Kind::Device, |found| found.kind);
        let mut state = self.lock();
        state.current()?;
        state.captures.refuse_unseen(current::caller())?;
        let gone = state.space.take(base, kind).ok_or(Error::INVALID_VALUE)?;
        state.leave(&gone);
        let tails = state.all_tails();
        drop(state);
        self.give_back(&[gone], &tails);
        Ok(())
    }

    /// Ends all created streams of a device and frees its memory, after all work. Enabled access stays so, as do host
    /// memory, events and contexts.
    pub fn reset_device(&self, device: usize) -> Result<()> {
        let mut state = self.lock();
        let contexts: Vec<_> =
            state.contexts.iter().filter(|(_, context)| context.device == device).map(|(id, _)| *id).collect();
        let tails = state.all_tails();
        let is_gone = |stream: &Stream| contexts.contains(&stream.context) && stream.role != Role::Legacy;
        state.forget_captures(is_gone);
        state.streams.retain(|_, stream| !is_gone(stream));
        for context in state.contexts.values_mut().filter(|context| context.device == device) {
            context.per_thread.clear();
        }
        let gone = state.space.take_where(|known| known.owner == Owner::Device && known.device == device);
        gone.iter().for_each(|allocation| state.leave(allocation));
        drop(state);
        self.give_back(&gone, &tails);
        Ok(())
    }
}

impl State {
    fn allocate_of_device(&mut self, device: usize, size: u64) -> Result<u64> {
        self.captures.refuse_unseen(current::caller())?;
        self.recycle_retired();
        let base = self.space.allocate(Kind::Device, size, Owner::Device, device, 0)?;
        self.grants.add(base, device);
        Ok(base)
    }

    /// Captures a step if `stream` captures. Work on the default stream never belongs to a capture, and breaks none.
    fn capture_by_device(&mut self, stream: &Arc<Stream>, step: &Step) -> Result<bool> {
        if stream.role == Role::Legacy { Ok(false) } else { self.capture(stream, step) }
    }

    /// Runs work that touches these memories on a stream; if all device memory among them is of one other device, on that
    /// one's default stream, with the stream's work before and after it.
    fn run_near(&mut self, memories: [Memory; 2], stream: &Arc<Stream>, work: Work) -> Result<Arc<Fence>> {
        let own = self.info(stream.context)?.device;
        let mut devices = memories.into_iter().filter_map(|memory| match memory {
            Memory::Device(piece) => Some((piece.device, memory)),
            _ => None,
        });
        let first = devices.next();
        let Some((device, memory)) = first.filter(|(device, _)| devices.all(|(other, _)| other == *device)) else {
            return self.submit(stream, Vec::new(), work);
        };
        if device == own {
            return self.submit(stream, Vec::new(), work);
        }
        let context = self.home(memory)?;
        let there = self.default_stream(context, DefaultStream::Legacy)?;
        let fence = self.submit(&there, vec![stream.tail()], work)?;
        stream.submit(vec![Arc::clone(&fence)], Work::Nothing)?;
        Ok(fence)
    }
}
