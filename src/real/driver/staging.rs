//! The driver's calls by which a copy goes through a ring ([`crate::policy::staging`]). Only [`wait`] waits for a device.

use std::ffi::c_uint;

use super::contexts::{on_stream, within};
use super::functions::{
    asked, checked, event_create, event_query, event_record, event_record_ptsz, event_synchronize, is_ready,
    memcpy_3d_async, memcpy_async, stream_create, stream_wait_event, stream_wait_event_ptsz,
};
use super::{RealDriver, scratch};
use crate::api::abi::{CUDA_MEMCPY3D_PEER, Code};
use crate::policy::VerifyBackend;
use crate::policy::staging::{Host, Part, Ring, Stager, Transfer, as_row};

/// `CU_EVENT_DISABLE_TIMING`.
const NO_TIMING: c_uint = 2;
/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: c_uint = 1;

impl Stager for RealDriver {
    fn host_memory(&self, bytes: usize) -> Result<Host, Code> {
        let address = scratch::take_large(bytes).or_else(|code| scratch::take_reserve(bytes).ok_or(code))?;
        Ok(Host { address, bytes, locked_in: Host::UNLOCKED })
    }

    fn complete(&self, ring: &mut Ring, has_to_lock: bool) -> Result<(), Code> {
        for (part, handle) in ring.parts().filter(|(_, handle)| **handle == 0) {
            *handle = within(part.context().0, || {
                // SAFETY: the functions write the place.
                asked(|handle| unsafe {
                    match part {
                        Part::Stream(_) => stream_create(handle, NON_BLOCKING),
                        Part::Event(_) => event_create(handle, NO_TIMING),
                    }
                })
            })?;
        }
        // Last, since it is what cannot be given back.
        let (src, host) = (ring.contexts[1], &mut ring.host);
        match within(src.0, || scratch::register(host.address, host.bytes)) {
            // Memory of a ring that is gone may still be locked, in a context that is there.
            Err(Code::HOST_MEMORY_ALREADY_REGISTERED) => {}
            Err(code) if has_to_lock => return Err(code),
            locked => host.locked_in = if locked.is_ok() { src } else { Host::UNLOCKED },
        }
        Ok(())
    }

    fn is_over(&self, ring: &Ring) -> Result<bool, Code> {
        // SAFETY: the event is the ring's.
        let is_over = || is_ready(unsafe { event_query(ring.ends) });
        // To ask about an event would end another thread's capture.
        self.relaxed(is_over).unwrap_or(Ok(false))
    }

    fn is_past(&self, _: &Ring, mark: usize) -> bool {
        // SAFETY: the event is a ring's.
        self.relaxed(|| is_ready(unsafe { event_query(mark) })).unwrap_or(Ok(false)) != Ok(false)
    }

    fn bytes_of(&self, ring: &Ring) -> &[u8] {
        // SAFETY: the memory is never freed, and has so many bytes. Nothing is written there before the ring is given back.
        unsafe { std::slice::from_raw_parts(ring.host.address as *const u8, ring.host.bytes) }
    }
}

/// Has a stream wait for what an event was recorded for.
fn follow(stream: usize, event: usize) -> Result<(), Code> {
    // SAFETY: both are ours.
    checked(unsafe { stream_wait_event(stream, event, 0) })
}

fn record(event: usize, stream: usize) -> Result<(), Code> {
    // SAFETY: both are ours.
    checked(unsafe { event_record(event, stream) })
}

/// Submits one half of a chunk: one row between addresses, if it is that. One endpoint is the program's, which it has asked to copy; the other lies
/// in a ring.
fn copy_half(half: &CUDA_MEMCPY3D_PEER, stream: usize) -> Result<(), Code> {
    checked(match as_row(half) {
        // SAFETY: as said.
        Some((dst, src, bytes)) => unsafe { memcpy_async(dst, src, bytes, stream) },
        // SAFETY: as said. The struct is that of copies within a context, whose reserved words are 0.
        None => unsafe { memcpy_3d_async(half, stream) },
    })
}

/// A stream of the program, or a default stream of the current context, which the second says to be one per thread.
pub(crate) type ProgramStream = (usize, bool);

/// Records an event on a stream of the program.
fn record_on_program(event: usize, (stream, per_thread): ProgramStream) -> Result<(), Code> {
    // SAFETY: the event is ours, the stream what the program has given, or a default stream.
    checked(unsafe { if per_thread { event_record_ptsz(event, stream) } else { event_record(event, stream) } })
}

/// Has a stream of the program wait for an event of a ring.
pub(crate) fn have_program_follow((stream, per_thread): ProgramStream, event: usize) -> Result<(), Code> {
    // SAFETY: as above.
    checked(unsafe {
        if per_thread { stream_wait_event_ptsz(stream, event, 0) } else { stream_wait_event(stream, event, 0) }
    })
}

/// Has the stream of the program that a ring's copies are for wait for the last of them. That may wait for room there.
pub(crate) fn have_caller_follow(stream: ProgramStream, ring: &Ring) -> Result<(), Code> {
    on_stream(ring.contexts[0].0, stream.0, || have_program_follow(stream, ring.ends))
}

/// Notes in the stream of a copy, if it has one, what the copy comes after. That may wait for room there.
pub(crate) fn begin(transfer: &Transfer) -> Result<(), Code> {
    let &Transfer { stream, per_thread, ref ring, .. } = transfer;
    let record = |stream| record_on_program(ring.begins, (stream, per_thread));
    stream.map_or(Ok(()), |stream| on_stream(ring.contexts[0].0, stream, || record(stream)))
}

pub(crate) fn end(transfer: &Transfer) -> Result<(), Code> {
    let follow = |stream| have_caller_follow((stream, transfer.per_thread), &transfer.ring);
    transfer.stream.map_or(Ok(()), follow)
}

/// Submits all of a step, with its order if it has no stream: then what comes after it comes after what was submitted, whatever became of
/// it. If there is a mark, it is recorded behind the step.
pub(crate) fn submit(transfer: &Transfer, is_divided_anew: bool, mark: Option<usize>) -> Result<(), Code> {
    let &Transfer { stream, per_thread, ref ring, .. } = transfer;
    let ([(own, _), (src, _), (dst, _)], [from, _], [filled, ..]) = (ring.contexts, ring.streams, ring.filled);
    let by_default = (0, per_thread);
    // The current context may be a third. An event is recorded in its own context only.
    let sides = [(own, ring.begins), (src, filled), (dst, ring.ends)];
    if stream.is_some() {
        follow(from, ring.begins)?;
    } else {
        // Earlier copies through the ring: the event is recorded anew.
        follow(from, ring.ends)?;
        for (context, event) in sides {
            within(context, || record_on_program(event, by_default))?;
            follow(from, event)?;
        }
    }
    let submitted = submit_pieces(transfer, is_divided_anew);
    let mut events = [Some(ring.ends), mark].into_iter().flatten();
    let ended = within(dst, || events.try_for_each(|event| record(event, ring.streams[1])));
    let have_follow = |(of, _)| within(of, || have_program_follow(by_default, ring.ends));
    let followed = if stream.is_some() { Ok(()) } else { sides.into_iter().try_for_each(have_follow) };
    submitted.and(ended).and(followed)
}

fn submit_pieces(transfer: &Transfer, is_divided_anew: bool) -> Result<(), Code> {
    let ring = &transfer.ring;
    let ([_, (src, _), (dst, _)], [from, to]) = (ring.contexts, ring.streams);
    if is_divided_anew {
        follow(from, ring.ends)?;
    }
    let division = &transfer.division();
    for round in division.rounds() {
        let chunks = || round.clone().zip(ring.filled.iter().zip(&ring.drained));
        // Each half in the context of its side: memory of a pool can be copied in no other.
        within(src, || {
            chunks().try_for_each(|(number, (&filled, &drained))| {
                follow(from, drained)?;
                copy_half(&transfer.filling(&division.chunk(number)), from)?;
                record(filled, from)
            })
        })?;
        within(dst, || {
            chunks().try_for_each(|(number, (&filled, &drained))| {
                follow(to, filled)?;
                copy_half(&transfer.draining(&division.chunk(number)), to)?;
                record(drained, to)
            })
        })?;
    }
    Ok(())
}

pub(crate) fn wait(ring: &Ring) {
    // SAFETY: the event is the ring's, and was recorded.
    unsafe { event_synchronize(ring.ends) };
}
