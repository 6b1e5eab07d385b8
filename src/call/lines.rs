//! Which line of a Python program made a copy.
//!
//! A framework's copies have one return address in common, so where in the library they come from says nothing about them. Of
//! a recorded copy between devices the line is found out once the call has returned, after all that is measured: in the mode
//! `sites` of the first copy from each place in the code, of each pair and size class, and of those whose number is a power of
//! two. The record then gets a number of its own for its place.
//!
//! A program without Python pays two loads on the [ordinary path](super::run), and nothing on the [fast path](super::fast):
//! that takes the place from what a thread remembers of its last ones, and a thread remembers none as long as lines are wanted.
//! So its copies come to [`place`], which counts them, and goes on as the fast path does if the line is not due.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use p2pshim_trace::Begun;

use super::arrival::Call;
use super::mode;
use super::thread::{self, Thread};
use crate::api::Effect;
use crate::config::Stacks;
use crate::model::Line;
use crate::real::python;
use crate::record::trace;

/// Whether lines are wanted, and there may be any.
#[inline(always)]
pub(super) fn are_wanted() -> bool {
    mode::stacks() != Stacks::Off
}

/// Copies from one place that are alike enough for one of them to speak for all: between the same devices, and of as many bytes,
/// within a factor of two.
fn kind(address: usize, [src, dst]: [u8; 2], bytes: u64) -> u64 {
    let rest = u64::from(src) << 56 | u64::from(dst) << 48 | u64::from(bytes.checked_ilog2().unwrap_or_default());
    (address as u64 ^ rest.rotate_left(8)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// How often copies of a kind were recorded: the upper half of the kind, then the count. Threads have them in common, since the
/// thread's block has little room; where two count at once, one may be lost.
struct Counts([AtomicU64; Self::SLOTS]);

static COUNTS: Counts = Counts::new();

impl Counts {
    const SLOTS: usize = 1 << 11;
    /// How far from where it should be a kind is looked for.
    const REACH: usize = 8;

    const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; Self::SLOTS])
    }

    /// Where copies of a kind are counted, and how many there were. If too many kinds come together, they share a count.
    fn of(&self, kind: u64) -> (&AtomicU64, u32) {
        let Self(slots @ [first, ..]) = self;
        let upper = (kind >> 32).max(1);
        let near = |step: usize| slots.get((kind as usize).wrapping_add(step) % Self::SLOTS).unwrap_or(first);
        for count in (0..Self::REACH).map(near) {
            match count.load(Relaxed) {
                0 => {
                    count.store(upper << 32, Relaxed);
                    return (count, 0);
                }
                word if word >> 32 == upper => return (count, word as u32),
                _ => {}
            }
        }
        (near(0), near(0).load(Relaxed) as u32)
    }
}

/// Counts a copy that is about to take the fast path, and returns the number of its place; none if its line is due, or the place
/// has no number yet.
pub(super) fn place(thread: &Thread, address: usize, devices: [u8; 2], bytes: u64) -> Option<u16> {
    // Without room for a record the copy takes the ordinary path, which counts it.
    if mode::stacks() != Stacks::Sites || !thread.segment.has_room() {
        return None;
    }
    let place = trace::file()?.known_site(address).filter(|&place| place != 0)?;
    let kind = kind(address, devices, bytes);
    let (count, before) = COUNTS.of(kind);
    if is_due(before) {
        thread.line_due.set(kind);
        return None;
    }
    count_one_more(count, before);
    Some(place)
}

/// Whether the line of a copy is to be found out, after so many like it.
fn is_due(before: u32) -> bool {
    before.wrapping_add(1).is_power_of_two()
}

fn count_one_more(count: &AtomicU64, before: u32) {
    // Not further than to the last number: it is no power of two.
    if before != u32::MAX {
        count.store(count.load(Relaxed) + 1, Relaxed);
    }
}

/// Finds out the line of a copy between devices that nothing encloses, whose record is complete, if it is its turn.
#[inline(always)]
pub(super) fn after(call: &Call<'_>, record: Begun) {
    if are_wanted() && matches!(call.function().effect(), Effect::Copy(_) | Effect::Copies(_)) {
        after_copy(call, record);
    }
}

#[cold]
#[inline(never)]
fn after_copy(call: &Call<'_>, record: Begun) {
    let thread = thread::current();
    let first = call.request.batch().and_then(|batch| batch.parts.first()).map(|part| part.traffic);
    let devices = record.devices().or_else(|| first.map(|traffic| [traffic.src, traffic.dst]));
    let Some([src, dst]) = devices.filter(|[src, dst]| src != dst && thread.is_idle()) else { return };
    let address = call.caller.return_address() as usize;
    let kind = match thread.line_due.take() {
        // Of the runtime's call other devices may be known before it than after it.
        due @ 1.. => due,
        _ => kind(address, [src, dst], record.bytes()),
    };
    let (count, before) = COUNTS.of(kind);
    count_one_more(count, before);
    if is_due(before) || mode::stacks() == Stacks::All {
        mode::unseen(|| _ = find(thread, address, Some(record)));
    }
}

/// The line of the copy that something was found about. Inside our own work.
pub(super) fn of_finding(address: usize, record: Option<Begun>, is_first: bool) -> Option<Line> {
    if !are_wanted() {
        return None;
    }
    let is_known =
        record.is_some_and(|record| trace::file().and_then(|trace| trace.known_site(address)) != Some(record.site()));
    if is_known && !is_first { None } else { find(thread::current(), address, record) }
}

/// Finds out the line that the thread is at, and notes it in a record. In a signal handler, which may have come in the middle of
/// anything, none is looked for.
fn find(thread: &Thread, address: usize, record: Option<Begun>) -> Option<Line> {
    if thread.held.get().has_handler() || !is_there() {
        return None;
    }
    let line = python::line()?;
    if let (Some(record), Some(trace)) = (record, trace::file())
        && let Some(place) = trace.site_with_line(address, &line)
    {
        record.comes_from(place);
    }
    Some(line)
}

/// Whether there is a Python: found out at the first copy between devices.
fn is_there() -> bool {
    let is_there = python::search();
    if !is_there {
        mode::set_stacks(Stacks::Off);
    }
    is_there
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_tells_places_pairs_and_sizes_apart() {
        let kinds = [
            kind(0x1234, [0, 1], 4096),
            kind(0x1239, [0, 1], 4096),
            kind(0x1234, [1, 0], 4096),
            kind(0x1234, [0, 2], 4096),
            kind(0x1234, [0, 1], 8192),
            kind(0x1234, [0, 1], 0),
        ];
        for (index, one) in kinds.iter().enumerate() {
            assert!(kinds.iter().skip(index + 1).all(|other| one != other && one >> 32 != other >> 32));
        }
        assert_eq!(kind(0x1234, [0, 1], 4096), kind(0x1234, [0, 1], 8191));
    }

    #[test]
    fn counts_each_kind_has_its_own_until_there_are_too_many() {
        let counts = Box::new(Counts::new());
        let count = |kind: u64| {
            let (count, before) = counts.of(kind);
            count.store(count.load(Relaxed) + 1, Relaxed);
            before
        };
        assert_eq!([count(100 << 32), count(100 << 32), count(101 << 32), count(100 << 32 | 20)], [0, 1, 0, 0]);
        assert!((102..=107).all(|upper| count(upper << 32) == 0));
        assert_eq!([count(108 << 32), count(101 << 32), count(108 << 32)], [2, 1, 3], "shared with 100");
    }

    #[test]
    fn is_due_the_first_and_each_whose_number_is_a_power_of_two() {
        let due: Vec<u32> = (0..70).filter(|&before| is_due(before)).map(|before| before + 1).collect();
        assert_eq!(due, [1, 2, 4, 8, 16, 32, 64]);
        assert!(!is_due(u32::MAX));
    }
}
