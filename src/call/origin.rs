//! Where in a program a call was made whose return address does not say it.
//!
//! A framework's copies return to one place in its library; who called it is the line of the Python program. A runtime's calls of
//! the driver, by functions that it has looked up, return into the runtime, which may be linked into the program; who called it are
//! the functions above on the stack, the *callers*. Both are found out once a recorded call has returned, after all that is
//! measured: in the mode `sites` of the first 64 of each kind (place in the code, pair and size class), then of those whose number is a power
//! of two. The record then gets a number of its own for its place. For lines a program without Python pays two loads a call.

use std::sync::atomic::Ordering::Relaxed;

use p2pshim_host::python::Line;
use p2pshim_trace::{NoteKind, OpenRecord};

use super::arrival::{Call, Caller};
use super::decision::Decision;
use super::mode;
use super::thread;
use crate::api::{Effect, Function, Layer};
use crate::config::Stacks;
use crate::model::Origin;
use crate::os;
use crate::os::table::{Table, spread};
use crate::real::{python, stack};
use crate::record::trace;

fn are(stacks: Stacks) -> bool {
    mode::STACKS.load(Relaxed) == stacks as u8
}

/// Whether it is wanted through which functions a call came.
fn wants_callers(call: &Call<'_>) -> bool {
    let function = call.function();
    function.layer() == Layer::Driver && call.caller.has_looked_up(function) && !are(Stacks::Off)
}

/// Copies from one place that are alike enough for one of them to speak for all: between the same devices, and of as many bytes,
/// within a factor of two. Of the places in a table the upper half is enough, since it is spread.
fn kind(address: usize, [src, dst]: [u8; 2], bytes: u64) -> u64 {
    let rest = u64::from(src) << 56 | u64::from(dst) << 48 | u64::from(bytes.checked_ilog2().unwrap_or_default());
    (spread(address as u64 ^ rest.rotate_left(8), 32) as u64).max(1)
}

/// How often copies of a kind were recorded. Threads have them in common, since the thread's block has little room; where two count at
/// once, one may be lost.
static COUNTS: Table<2048, 32> = Table::new();

/// Calls of a kind whose callers are looked for, each: they may come from as many places.
const FIRST: u32 = 64;

/// Whether the line of a copy is to be found out, after so many like it.
fn is_due(before: u32) -> bool {
    before.wrapping_add(1).is_power_of_two()
}

/// Whether a copy with the host is one of the first of its kind, or, after these, its number is a power of two: then it is looked at closely.
pub(super) fn count_host_copy(address: usize, devices: [Option<u8>; 2], bytes: u64) -> bool {
    const ALL: u32 = 8;
    let before = COUNTS.count(kind(address, devices.map(|device| device.unwrap_or(u8::MAX)), bytes)) as u32;
    before < ALL || is_due(before)
}

/// Finds out where a call was made that nothing encloses, and whose record is complete, if it is its turn: of a copy between
/// devices the line, of any call its callers.
pub(super) fn after(call: &Call<'_>, decision: &Decision, record: OpenRecord) {
    let is_copy = matches!(call.function().effect(), Effect::Copy(_) | Effect::Copies(_));
    if (is_copy && mode::MAY_BE_PYTHON.load(Relaxed)) || (wants_callers(call) && thread::current().is_idle()) {
        after_call(call, decision, record);
    }
}

#[cold]
#[inline(never)]
fn after_call(call: &Call<'_>, decision: &Decision, record: OpenRecord) {
    let thread = thread::current();
    let first = decision.copied.parts().first().map(|part| part.traffic);
    let devices = record.devices().or_else(|| first.map(|traffic| [traffic.src, traffic.dst]));
    let alike = match devices.filter(|[src, dst]| src != dst) {
        Some(devices) => Some((devices, record.bytes())),
        // Of calls that copy nothing only the function counts.
        None => wants_callers(call).then_some(([u8::MAX; 2], 1 << (call.function() as u8 % 64))),
    };
    let Some((devices, bytes)) = alike.filter(|_| thread.is_idle()) else { return };
    let kind = kind(call.caller.return_address() as usize, devices, bytes);
    let before = COUNTS.count(kind) as u32;
    if before < FIRST || is_due(before) || are(Stacks::All) {
        mode::unseen(|| _ = find(call, Some(record)));
    }
}

/// Where a call was made that something was found about. Inside our own work.
pub(super) fn of_finding(call: &Call<'_>, record: Option<OpenRecord>, is_first: bool) -> Option<Origin> {
    let is_known = record.is_some_and(|record| {
        let address = call.caller.return_address() as usize;
        trace::file().and_then(|trace| trace.known_site(address)) != Some(record.site())
    });
    // Without a trace only the log wants to know, which says it once.
    if !is_first && (is_known || trace::file().is_none()) { None } else { find(call, record) }
}

/// The number of the place of a copy with the host, or another call that is not traced, if more is known of it than the address. Inside our
/// own work. Where there is a line, callers may be spared.
pub(super) fn of_untraced(caller: Caller, function: Function, are_spared: bool) -> Option<u16> {
    let thread = thread::current();
    if are(Stacks::Off) || thread.held.get().has_handler() || !os::has_room() {
        return None;
    }
    let lines = lines();
    let is_inner = caller.has_looked_up(function) && thread.enclosing(caller.stack()).is_none();
    let are_wanted = is_inner && (!are_spared || lines.is_empty());
    let callers = if are_wanted { stack::callers(caller.stack()) } else { Vec::new() };
    let origin = Origin { lines, callers }.known()?;
    trace::file()?.site_with(caller.program_address() as usize, &origin)
}

/// Finds out where the thread is, and notes it in a record. In a signal handler, which may have come in the middle of
/// anything, and on a small stack that is not looked for.
fn find(call: &Call<'_>, record: Option<OpenRecord>) -> Option<Origin> {
    if are(Stacks::Off) || thread::current().held.get().has_handler() || !os::has_room() {
        return None;
    }
    look_for(call, record)
}

#[cold]
#[inline(never)]
fn look_for(call: &Call<'_>, record: Option<OpenRecord>) -> Option<Origin> {
    let callers = if wants_callers(call) { stack::callers(call.caller.stack()) } else { Vec::new() };
    let origin = Origin { lines: lines(), callers }.known()?;
    if let (Some(record), Some(trace)) = (record, trace::file())
        && let Some(place) = trace.site_with(call.caller.return_address() as usize, &origin)
    {
        record.comes_from(place);
    }
    Some(origin)
}

/// The lines of Python that the thread is at. The trace is told once where its interpreter is, so that `p2pshim hang` can find its lines
/// later. Whether there is a Python is found out at the first copy between devices.
fn lines() -> Vec<Line> {
    if !mode::MAY_BE_PYTHON.load(Relaxed) {
        return Vec::new();
    }
    if !python::search() {
        mode::MAY_BE_PYTHON.store(false, Relaxed);
        return Vec::new();
    }
    let Some((python, of)) = python::thread() else { return Vec::new() };
    let noted = &thread::current().python;
    if noted.get() != of.state && trace::file().is_some() {
        noted.set(of.state);
        trace::note(NoteKind::Python, os::thread_id().cast_unsigned(), &[&python.note(&of)]);
    }
    python::lines((python, &of))
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
            assert!(kinds.iter().skip(index + 1).all(|other| one != other));
        }
        assert_eq!(kind(0x1234, [0, 1], 4096), kind(0x1234, [0, 1], 8191));
    }

    #[test]
    fn is_due_the_first_and_each_whose_number_is_a_power_of_two() {
        let due: Vec<u32> = (0..70).filter(|&before| is_due(before)).map(|before| before + 1).collect();
        assert_eq!(due, [1, 2, 4, 8, 16, 32, 64]);
        assert!(!is_due(u32::MAX));
    }
}
