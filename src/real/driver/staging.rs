//! The driver's calls by which a copy is staged ([`crate::policy::staging`]). Only [`wait`] waits for a device.

use std::ffi::c_uint;

use super::contexts::{on_stream, within};
use super::functions::{
    asked, checked, event_create, event_destroy, event_query, event_record, event_record_ptsz, event_synchronize,
    is_ready, memcpy_3d_async, memcpy_async, stream_create, stream_destroy, stream_wait_event, stream_wait_event_ptsz,
};
use super::{RealDriver, scratch};
use crate::api::abi::{CUDA_MEMCPY3D_PEER, Code};
use crate::policy::Judged;
use crate::policy::staging::{Contexts, Host, Ring, SLOTS, Staged, Stager, as_row};

/// `CU_EVENT_DISABLE_TIMING`.
const NO_TIMING: c_uint = 2;
/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: c_uint = 1;

impl Stager for RealDriver {
    fn host_memory(&self, bytes: usize) -> Result<Host, Code> {
        let address = scratch::take_large(bytes).or_else(|code| scratch::take_reserve(bytes).ok_or(code))?;
        Ok(Host { address, bytes, locked_in: Host::UNLOCKED })
    }

    fn ring(&self, contexts: Contexts, host: Host, has_to_lock: bool) -> Result<Ring, Code> {
        let [caller, src, dst] = contexts.map(|(handle, _)| handle);
        let mut ring =
            Ring { contexts, streams: [0; 2], begins: 0, ends: 0, filled: [0; SLOTS], drained: [0; SLOTS], host };
        let Ring { streams: [from, to], begins, ends, filled, drained, .. } = &mut ring;
        let made = within(caller, || new_event(begins))
            .and_then(|()| within(src, || new_side(from, filled)))
            .and_then(|()| within(dst, || new_side(to, drained).and_then(|()| new_event(ends))));
        // Last, since it is what cannot be given back.
        let made = made.and_then(|()| match within(src, || scratch::register(host.address, host.bytes)) {
            // Memory of a ring that is gone may still be locked, in a context that is there.
            Err(Code::HOST_MEMORY_ALREADY_REGISTERED) => Ok(()),
            Err(code) if has_to_lock => Err(code),
            locked => {
                ring.host.locked_in = if locked.is_ok() { contexts[1] } else { Host::UNLOCKED };
                Ok(())
            }
        });
        if made.is_err() {
            destroy(&ring);
        }
        made.map(|()| ring)
    }

    fn is_ring_done(&self, ring: &Ring) -> bool {
        // That of a context that is gone is refused, and has nothing to do.
        is_over(ring) != Ok(false)
    }
}

/// Whether all that a ring was given to do is done. To ask about an event would end another thread's capture.
pub(super) fn is_over(ring: &Ring) -> Result<bool, Code> {
    // SAFETY: the event is the ring's.
    RealDriver.relaxed(|| is_ready(unsafe { event_query(ring.ends) })).unwrap_or(Ok(false))
}

fn new_event(event: &mut usize) -> Result<(), Code> {
    // SAFETY: the function writes the place.
    *event = asked(|event| unsafe { event_create(event, NO_TIMING) })?;
    Ok(())
}

fn new_side(stream: &mut usize, events: &mut [usize; SLOTS]) -> Result<(), Code> {
    // SAFETY: the function writes the place.
    *stream = asked(|stream| unsafe { stream_create(stream, NON_BLOCKING) })?;
    events.iter_mut().try_for_each(new_event)
}

/// Gives back what a ring has got before something could not be had.
fn destroy(ring: &Ring) {
    let events = [ring.begins, ring.ends].into_iter().chain(ring.filled).chain(ring.drained);
    for event in events.filter(|&event| event != 0) {
        // SAFETY: the event is ours, and was never recorded.
        unsafe { event_destroy(event) };
    }
    for stream in ring.streams.into_iter().filter(|&stream| stream != 0) {
        // SAFETY: the stream is ours, and has nothing to do.
        unsafe { stream_destroy(stream) };
    }
}

/// Has a stream wait for what an event was recorded for.
pub(super) fn follow(stream: usize, event: usize) -> Result<(), Code> {
    // SAFETY: both are ours.
    checked(unsafe { stream_wait_event(stream, event, 0) })
}

pub(super) fn record(event: usize, stream: usize) -> Result<(), Code> {
    // SAFETY: both are ours.
    checked(unsafe { event_record(event, stream) })
}

fn copy(dst: u64, src: u64, bytes: usize, stream: usize) -> Result<(), Code> {
    // SAFETY: one end is the program's, which it has asked to copy; the other lies in a slot.
    checked(unsafe { memcpy_async(dst, src, bytes, stream) })
}

/// Makes one half of a part: one row between addresses, if it is that.
pub(super) fn copy_half(half: &CUDA_MEMCPY3D_PEER, stream: usize) -> Result<(), Code> {
    match as_row(half) {
        Some((dst, src, bytes)) => copy(dst, src, bytes, stream),
        // SAFETY: as above. The struct is that of copies within a context, whose reserved words are 0.
        None => checked(unsafe { memcpy_3d_async(half, stream) }),
    }
}

/// A stream of the program, or a default stream of the current context, which the second says to be one per thread.
pub(crate) type ProgramStream = (usize, bool);

/// Records an event on a stream of the program.
pub(super) fn record_on_program(event: usize, (stream, per_thread): ProgramStream) -> Result<(), Code> {
    // SAFETY: the event is ours, the stream what the program has given, or a default stream.
    checked(unsafe { if per_thread { event_record_ptsz(event, stream) } else { event_record(event, stream) } })
}

/// Has a stream of the program wait for an event.
pub(super) fn have_program_follow((stream, per_thread): ProgramStream, event: usize) -> Result<(), Code> {
    // SAFETY: as above.
    checked(unsafe {
        if per_thread { stream_wait_event_ptsz(stream, event, 0) } else { stream_wait_event(stream, event, 0) }
    })
}

/// Has a stream of the program wait for a ring's last copy. If it cannot, it is refused, and so is what the program asks of it.
pub(crate) fn have_follow(stream: ProgramStream, ring: &Ring) {
    let _ = have_program_follow(stream, ring.ends);
}

/// Has the stream of the program that a ring's copies are for wait for the last of them. That may wait for room there.
pub(crate) fn have_caller_follow(stream: usize, ring: &Ring) {
    let [(context, _), ..] = ring.contexts;
    let _ = on_stream(context, stream, || have_program_follow((stream, false), ring.ends));
}

/// Notes in the stream of a copy, if it has one, what the copy comes after. That may wait for room there.
pub(crate) fn begin(staged: &Staged) -> Result<(), Code> {
    let record = |stream| record_on_program(staged.ring.begins, (stream, staged.per_thread));
    staged.stream.map_or(Ok(()), record)
}

pub(crate) fn end(staged: &Staged) -> Result<(), Code> {
    let follow = |stream| have_program_follow((stream, staged.per_thread), staged.ring.ends);
    staged.stream.map_or(Ok(()), follow)
}

/// Submits all of a copy, with its order if it has no stream: then what comes after it comes after what was submitted, whatever became of it.
pub(crate) fn submit(staged: &Staged, is_divided_anew: bool) -> Result<(), Code> {
    let &Staged { stream, per_thread, ref ring, .. } = staged;
    let ([(own, _), (src, _), (dst, _)], [from, to], [filled, ..]) = (ring.contexts, ring.streams, ring.filled);
    // The current context may be a third.
    let third = (own != src && own != dst).then_some(own);
    let by_default = (0, per_thread);
    if stream.is_some() {
        follow(from, ring.begins)?;
    } else {
        if let Some(third) = third {
            within(third, || record_on_program(ring.begins, by_default))?;
            follow(from, ring.begins)?;
        }
        within(src, || record_on_program(filled, by_default))?;
        follow(from, filled)?;
        // Of what was staged before: its event is recorded anew.
        follow(from, ring.ends)?;
        within(dst, || record_on_program(ring.ends, by_default))?;
        follow(from, ring.ends)?;
    }
    let submitted = submit_pieces(staged, is_divided_anew);
    let ended = within(dst, || record(ring.ends, to));
    let have_follow = |of| within(of, || have_program_follow(by_default, ring.ends));
    let followed = match stream {
        Some(_) => Ok(()),
        None => [src, dst].into_iter().chain(third).try_for_each(have_follow),
    };
    submitted.and(ended).and(followed)
}

fn submit_pieces(staged: &Staged, is_divided_anew: bool) -> Result<(), Code> {
    let ring = &staged.ring;
    let ([_, (src, _), (dst, _)], [from, to]) = (ring.contexts, ring.streams);
    if is_divided_anew {
        follow(from, ring.ends)?;
    }
    let division = &staged.division();
    for round in division.rounds() {
        let pieces = || round.clone().zip(ring.filled.iter().zip(&ring.drained));
        // Each half in the context of its side: memory of a pool can be copied in no other.
        within(src, || {
            pieces().try_for_each(|(number, (&filled, &drained))| {
                follow(from, drained)?;
                copy_half(&staged.filling(&division.piece(number)), from)?;
                record(filled, from)
            })
        })?;
        within(dst, || {
            pieces().try_for_each(|(number, (&filled, &drained))| {
                follow(to, filled)?;
                copy_half(&staged.draining(&division.piece(number)), to)?;
                record(drained, to)
            })
        })?;
    }
    Ok(())
}

pub(crate) fn wait(staged: &Staged) {
    // SAFETY: the event is the ring's, and was recorded.
    unsafe { event_synchronize(staged.ring.ends) };
}
