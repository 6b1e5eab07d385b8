//! Dangers and costs of a copy that succeeds.

use std::fmt::Display;

use super::call::{CallView, Operand, Sides};
use crate::model::{Finding, Named, Path, Rule, Why, counters};
use crate::objects::streams::{self, Known};
use crate::objects::{Objects, captures};
use crate::policy::driver::{Driver, Holder};

/// A pair whose copies are staged is spoken of from the copy on that exceeds either.
const COPIES: u64 = 16;
const BYTES: u64 = 1 << 20;

/// Adds what is dangerous or slow about a copy that has succeeded.
pub(super) fn find(driver: &impl Driver, objects: &Objects, seen: &CallView<'_>, found: &mut Vec<Finding>) {
    let Some(call) = Sides::of(seen.request) else { return };
    if call.is_empty() {
        return;
    }
    let Some(devices) = devices(driver, objects, &call) else { return };
    match seen.request.stream() {
        Some(stream) => check_stream(driver, objects, seen, (stream, devices), found),
        // A regular copy may well have nothing to do with the stream.
        None if is_regular(seen) => {}
        None => check_synchronous(driver, objects, seen, devices, found),
    }
    check_path(driver, seen, devices, found);
}

fn is_regular(seen: &CallView<'_>) -> bool {
    seen.request.copy().is_some_and(|copy| copy.src_named == Named::Pointer)
}

/// The devices of a copy: the source's, the destination's.
fn devices(driver: &impl Driver, objects: &Objects, call: &Sides) -> Option<[i32; 2]> {
    let device = |index: usize| {
        let address = match call.sides.get(index)?.given {
            Operand::Device(address) | Operand::Any(address) => address,
            Operand::Array(array) => return objects.arrays.made_in(array).map(|(.., device)| device),
            _ => return None,
        };
        let memory = driver.memory(address)?;
        // Of managed memory, and of other processes', the driver names a device that need not be the right one.
        (!matches!(memory.holder, Holder::Host | Holder::Opened | Holder::Foreign)).then_some(memory.device)
    };
    Some([device(0)?, device(1)?])
}

/// Whether the stream belongs to a device that takes part.
fn check_stream(
    driver: &impl Driver,
    objects: &Objects,
    seen: &CallView<'_>,
    (stream, devices): (usize, [i32; 2]),
    found: &mut Vec<Finding>,
) {
    let is_default = !streams::is_created(stream);
    let device = if is_default {
        let Some(context) = driver.current_context() else { return };
        let device = driver.device_of_context(context).and_then(|device| u8::try_from(device).ok());
        device.inspect(|&device| objects.contexts.note_device(context, device))
    } else {
        // Not to be made current here to be asked: a green context may be current to one thread only.
        let context = driver.stream_context(stream, seen.request.function.per_thread());
        let device = context.and_then(|context| objects.contexts.device_of(context));
        let known = objects.streams.there(stream).unwrap_or(Known::on(None));
        let (context, device) = (context.map_or(known.context, Known::context), device.unwrap_or(known.device));
        objects.streams.note(stream, Known { context, device: Known::on(Some(device)).device, ..known });
        (device != Known::NOWHERE).then_some(device)
    };
    let Some(device) = device.map(i32::from).filter(|device| !devices.contains(device)) else { return };
    let [src, dst] = devices;
    let (rule, of) = if is_default {
        (Rule::OrderDefaultStream, format!("stream={stream:#x} is a default stream of the current device {device}"))
    } else {
        (Rule::OrderStreamElsewhere, format!("stream={stream:#x} belongs to device {device}"))
    };
    found.push(Finding::new(rule, seen.layer(), format!("{of}; the copy is from device {src} to device {dst}")));
}

/// Whether a stream that the copy does not wait for has something to do: one that the same thread made, since what threads do
/// beside each other is not meant to be ordered.
fn check_synchronous(
    driver: &impl Driver,
    objects: &Objects,
    seen: &CallView<'_>,
    devices: [i32; 2],
    found: &mut Vec<Finding>,
) {
    let is_near =
        |known: Known| known.non_blocking && known.is_of(seen.thread) && devices.contains(&i32::from(known.device));
    // Asking about a stream could end a capture.
    let may_ask = || !captures::may_be_under_way();
    let is_busy = |stream| may_ask() && driver.is_stream_idle(stream) == Some(false);
    // Nobody is about to destroy one meanwhile.
    let busy = captures::ask()
        .and_then(|_asking| objects.streams.all().find(|&(stream, known)| is_near(known) && is_busy(stream)));
    if let Some((stream, known)) = busy {
        let what = format!("stream {stream:#x} of device {} is non-blocking and has unfinished work", known.device);
        found.push(Finding::new(Rule::OrderNonBlocking, seen.layer(), what));
    }
}

/// The finding about a copy that was made on a path that is blocked.
pub(super) fn blocked(seen: &CallView<'_>, [src, dst]: [impl Display; 2]) -> Finding {
    let what = format!("a copy from device {src} to device {dst} was {}", Path::Broken);
    Finding::new(Rule::DataBlocked, seen.layer(), what)
}

/// Whether the copy took a detour that the program could have spared it.
fn check_path(driver: &impl Driver, seen: &CallView<'_>, [src, dst]: [i32; 2], found: &mut Vec<Finding>) {
    let rule = match seen.path {
        Some(Path::Broken) => return found.push(blocked(seen, [src, dst])),
        Some(Path::Staged(Why::NotEnabled)) => Rule::StagedNeverEnabled,
        Some(Path::Staged(Why::Pool)) => Rule::StagedPool,
        Some(Path::Staged(Why::Mapped)) => Rule::StagedMapped,
        _ => return,
    };
    let ordinals = u8::try_from(src).ok().zip(u8::try_from(dst).ok());
    let staged = ordinals.and_then(|(src, dst)| counters::sums([src, dst])).unwrap_or_default().staged;
    let is_much = staged.copies > COPIES || staged.bytes > BYTES;
    // Where there is no path nothing can be done.
    if is_much && [(src, dst), (dst, src)].iter().any(|&(device, peer)| driver.can_access(device, peer) == Ok(true)) {
        // Of one place nothing is counted but findings.
        let what = format!(
            "a copy from device {src} to device {dst} was staged through the host, one of {} of this pair so far from all places, {} bytes \
             in total",
            staged.copies, staged.bytes,
        );
        found.push(Finding::new(rule, seen.layer(), what));
    }
}

/// Adds what a run of copies from one place shows.
pub(super) fn of_run(seen: &CallView<'_>, run: Run, found: &mut Vec<Finding>) {
    if run.is_small() {
        let what = format!("{} copies of less than {SMALL} bytes in a row", run.small);
        found.push(Finding::new(Rule::SlowSmallCopies, seen.layer(), what));
    }
    if seen.request.stream().is_none() && !is_regular(seen) && run.is_long() {
        let what = format!("{} synchronous copies in a row", run.length);
        found.push(Finding::new(Rule::SlowSynchronousLoop, seen.layer(), what));
    }
}

/// The largest small copy.
const SMALL: u64 = 4096;
/// So many small copies in a row are many.
const MANY: u32 = 1024;
/// So many synchronous copies in a row are a loop.
const LONG: u32 = 256;

/// Copies that a thread makes from one place in the program, one after another. All zero is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Run {
    /// Where the program continues after each.
    site: usize,
    length: u32,
    /// How many of the last were small.
    small: u32,
}

impl Run {
    #[cfg(test)]
    pub(crate) const NONE: Self = Self { site: 0, length: 0, small: 0 };

    /// One more copy. Whether it is now worth a word.
    #[inline(always)]
    pub(crate) fn add(&mut self, site: usize, bytes: u64, is_synchronous: bool) -> bool {
        if self.site != site {
            *self = Self { site, length: 0, small: 0 };
        }
        self.length = self.length.saturating_add(1);
        self.small = if bytes < SMALL { self.small.saturating_add(1) } else { 0 };
        self.is_small() || (is_synchronous && self.is_long())
    }

    /// Whether the next copy from a place is checked in full: the first few, and one now and then.
    #[inline(always)]
    pub(crate) fn is_check_due(self, site: usize) -> bool {
        const FIRST: u32 = 16;
        self.site != site || self.length < FIRST || self.length.is_power_of_two()
    }

    #[inline(always)]
    fn is_small(self) -> bool {
        self.small == MANY
    }

    #[inline(always)]
    fn is_long(self) -> bool {
        self.length == LONG
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_is_worth_a_word_once() {
        let mut run = Run::NONE;
        let spoken = |run: &mut Run, bytes, sync, times| (0..times).filter(|_| run.add(0x10, bytes, sync)).count();
        assert_eq!(spoken(&mut run, 1 << 20, false, 5000), 0, "large and asynchronous");
        run = Run::NONE;
        assert_eq!(spoken(&mut run, 1 << 20, true, 5000), 1, "synchronous");
        run = Run::NONE;
        assert_eq!(spoken(&mut run, 100, false, 5000), 1, "small");
    }

    #[test]
    fn run_another_place_or_size_begins_anew() {
        let mut run = Run::NONE;
        for turn in 0..10_000usize {
            assert!(!run.add(turn % 2 + 1, 100, true));
        }
        run = Run::NONE;
        for turn in 0..10_000u64 {
            assert!(!run.add(1, if turn % 1000 == 0 { 1 << 20 } else { 100 }, false));
        }
    }
}
