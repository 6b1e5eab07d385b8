//! Copies of the program that are compared with their source once they are made, with `P2PSHIM_READBACK`.
//!
//! The device that has the source reads windows of it back into page-locked memory, and then the device that has the destination
//! those of the destination. Each does so in a stream of its own behind the copy, and the copy's stream waits for both: what the
//! program does in it next overwrites nothing too early, and its host waits for nothing. What came of it is found out with a later
//! call. A call that waits for its copy waits for this too; so does each with `all`, where a large copy takes several turns.
//!
//! The streams and the memory are a [`Ring`] of those that stage copies.

mod windows;

pub(crate) use windows::Window;

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::{Duration, Instant};

use p2pshim_trace::{Begun, REMOTE};
use parking_lot::Mutex;

use super::access::Access;
use super::staging::{self, Context, RING, Ring, Stager, Staging, extent};
use crate::api::Function;
use crate::api::abi::{CUDA_MEMCPY3D_PEER, Code};
use crate::api::codes::Numbering;
use crate::config::{Config, Readback as Mode};
use crate::model::{Finding, Memcpy, Origin, Path, Rule, Traffic};
use crate::record::log;

/// Bytes of a ring for samples.
const SAMPLES: usize = 32 << 10;
const _: () = assert!(3 * windows::BYTES <= SAMPLES / 2);
/// The copies of a pair and path that are read back first. Of later ones it may be those that take the ordinary path: ever fewer.
const FIRST: u64 = 8;
/// How long after one of them no other is, then: a hundred times what it takes.
const INTERVAL: Duration = Duration::from_millis(10);
/// The mode that is `off` once all that is being read back has been.
const ENDING: u8 = u8::MAX;
/// Copies that have been read back and not been compared, at most.
const PENDING: usize = 4;

/// A part of a copy that is read back. It has nothing to drop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) ring: Ring,
    /// The copy, as a 3D copy of the driver.
    pub(crate) copy: CUDA_MEMCPY3D_PEER,
    /// Its stream.
    pub(crate) stream: usize,
    pub(crate) per_thread: bool,
    /// Those without bytes are none.
    pub(crate) windows: [Window; 3],
}

impl Reading {
    /// The copies that read a window: of the source's to `at` in the ring's memory, and of the destination's behind.
    pub(crate) fn of_source(&self, (window, at): (Window, usize)) -> CUDA_MEMCPY3D_PEER {
        staging::to_host(&self.copy, &window.of(extent(&self.copy)), self.ring.host.address + at)
    }

    pub(crate) fn of_destination(&self, (window, at): (Window, usize)) -> CUDA_MEMCPY3D_PEER {
        let host = self.ring.host.address + at + self.side();
        staging::to_host(&staging::reversed(&self.copy), &window.of(extent(&self.copy)), host)
    }

    /// All of the copy in turns: the next, behind an end. None if there is nothing left.
    pub(crate) fn next(&self) -> Option<[Window; 3]> {
        let [Window { offset, bytes }, ..] = self.windows;
        let next = Window::from(extent(&self.copy), offset + bytes, self.side());
        (next.bytes > 0).then_some([next, Window::NONE, Window::NONE])
    }

    /// The most that is read back of either side at a time; the destination's comes behind the source's.
    pub(crate) fn side(&self) -> usize {
        self.ring.host.bytes / 2
    }

    /// The windows, each with where it lies in the ring's memory, from where a side begins.
    pub(crate) fn placed(&self) -> impl Iterator<Item = (Window, usize)> {
        let mut end = 0;
        self.windows.into_iter().filter(|window| window.bytes > 0).map(move |window| {
            let at = end;
            end += window.bytes;
            (window, at)
        })
    }

    /// How the two sides differ, as they were read back.
    pub(crate) fn difference(&self, src: &[u8], dst: &[u8]) -> Option<Difference> {
        if src == dst {
            return None;
        }
        let differ = || src.iter().zip(dst).enumerate().filter(|(_, (src, dst))| src != dst);
        let (at, (&src_byte, &dst_byte)) = differ().next()?;
        let (window, begins) = self.placed().filter(|&(_, begins)| begins <= at).last()?;
        let byte = Window { offset: window.offset + at - begins, bytes: 1 };
        Some(Difference {
            at: byte.of(extent(&self.copy)).at,
            bytes: [src_byte, dst_byte],
            differ: differ().count(),
            of: src.len(),
            is_zero: differ().all(|(_, (_, &dst))| dst == 0),
        })
    }
}

/// How source and destination differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Where they first do: byte of a row, row, and slice of the copy.
    pub(crate) at: [usize; 3],
    /// The source's byte there, and the destination's.
    pub(crate) bytes: [u8; 2],
    /// How many bytes differ, of how many that were read back.
    pub(crate) differ: usize,
    pub(crate) of: usize,
    /// Whether all of these are zero in the destination.
    pub(crate) is_zero: bool,
}

/// The driver, as a reader of copies.
pub(crate) trait Reader: Stager {
    /// Has the reading come after the copy, and before what the copy's stream gets to do next. Either may wait for room there.
    fn come_after(&self, reading: &Reading) -> Result<(), Code>;
    fn come_before(&self, reading: &Reading) -> Result<(), Code>;

    /// Begins to read back what a reading says.
    fn read_back(&self, reading: &Reading) -> Result<(), Code>;

    /// Whether all of it has been read.
    fn is_read(&self, reading: &Reading) -> Result<bool, Code>;

    /// Hands out both sides, once they have been read.
    fn difference(&self, reading: &Reading) -> Option<Difference>;
}

/// Whose copy it is.
#[derive(Clone)]
pub(crate) struct Made {
    pub(crate) function: Function,
    pub(crate) numbering: Numbering,
    /// Where the call returned to.
    pub(crate) site: usize,
    pub(crate) origin: Option<Origin>,
    /// The call's record in the trace.
    pub(crate) record: Option<Begun>,
    pub(crate) traffic: Traffic,
    /// Whether the call waits until it has been read back.
    pub(crate) waits: bool,
}

/// The copies of a pair on one path.
struct Pair {
    traffic: Traffic,
    begun: u64,
    last: Instant,
    /// How many were compared.
    read: u64,
    differed: u64,
    /// Whether one was not made long after its call had returned. Calls wait for no other of them.
    is_late: bool,
}

impl Pair {
    fn is_of(&self, traffic: &Traffic) -> bool {
        let direct = |traffic: &Traffic| (traffic.src, traffic.dst, traffic.path == Path::Direct);
        direct(&self.traffic) == direct(traffic)
    }
}

struct State {
    pairs: Vec<Pair>,
    pending: Vec<(Made, Box<Reading>)>,
    /// Parts that are read back too late to be compared.
    late: Vec<Reading>,
}

/// All copies that are read back.
pub(crate) struct Readback {
    mode: AtomicU8,
    state: Mutex<State>,
}

impl Readback {
    pub(crate) const fn new() -> Self {
        let state = State { pairs: Vec::new(), pending: Vec::new(), late: Vec::new() };
        Self { mode: AtomicU8::new(Mode::Off as u8), state: Mutex::new(state) }
    }

    /// Takes over the option.
    pub(crate) fn configure(&self, config: &Config) {
        let is_all_done = {
            let state = self.state.lock();
            state.pending.is_empty() && state.late.is_empty()
        };
        let mode = if config.readback == Mode::Off && !is_all_done { ENDING } else { config.readback as u8 };
        self.mode.store(mode, Relaxed);
    }

    /// Whether any copy is.
    pub(crate) fn is_on(&self) -> bool {
        self.mode.load(Relaxed) != Mode::Off as u8
    }

    /// Whether all of each is.
    pub(crate) fn is_of_all(&self) -> bool {
        self.mode.load(Relaxed) == Mode::All as u8
    }

    /// Whether a copy that was made is to be read back, and whether its call waits for that; if so, it counts as one of its pair that
    /// is.
    pub(crate) fn wants(&self, copy: &Memcpy<'_>, traffic: &Traffic) -> Option<bool> {
        let is_known = matches!(traffic.path, Path::Direct | Path::Staged(_));
        let has_parts = copy.bytes != 0 && copy.has_addresses() && staging::parameters(copy).is_some();
        if !is_known || !has_parts || self.mode.load(Relaxed) == ENDING {
            return None;
        }
        let (now, is_of_all) = (Instant::now(), self.is_of_all());
        let mut guard = self.state.lock();
        let State { pairs, pending, .. } = &mut *guard;
        let known = pairs.iter_mut().find(|pair| pair.is_of(traffic));
        let is_late = known.as_ref().is_some_and(|pair| pair.is_late);
        let waits = match copy.stream {
            None if is_late => return None,
            None => true,
            Some(_) => is_of_all && !is_late,
        };
        if !waits && pending.len() >= PENDING {
            return None;
        }
        match known {
            Some(pair) => {
                let is_due = is_of_all || pair.begun < FIRST || now.duration_since(pair.last) >= INTERVAL;
                is_due.then(|| (pair.begun, pair.last) = (pair.begun + 1, now))?;
            }
            None => {
                let traffic = *traffic;
                pairs.push(Pair { traffic, begun: 1, last: now, read: 0, differed: 0, is_late: false });
            }
        }
        Some(waits)
    }

    /// The part of a copy that is to be read back, and its ring; `on` is the context of its stream, the default stream that it means, and the
    /// thread.
    #[inline(never)]
    pub(crate) fn reading(
        &self,
        (staging, access, driver): (&Staging, &Access, &impl Stager),
        (copy, traffic): (&Memcpy<'_>, &Traffic),
        (context, per_thread, thread): (Context, bool, usize),
    ) -> Option<Box<Reading>> {
        let bytes = if self.is_of_all() { RING } else { SAMPLES };
        let ring = staging.ring((access, driver), (copy, traffic), bytes, context, (per_thread, thread))?;
        staging.use_otherwise(&ring);
        let (copy, stream) = (staging::parameters(copy)?, copy.stream.unwrap_or(0));
        let windows =
            if self.is_of_all() { windows::first(extent(&copy), RING / 2) } else { windows::sample(extent(&copy)) };
        Some(Box::new(Reading { ring, copy, stream, per_thread, windows }))
    }

    /// Notes what is being read back, for later.
    pub(crate) fn keep(&self, made: Made, reading: Box<Reading>) {
        self.state.lock().pending.push((made, reading));
    }

    /// Notes what a call has waited for in vain: a stream's copy is compared later, as the program's next work in it comes behind. Of
    /// others the program may do what it likes with its memory. No other call of the pair waits.
    pub(crate) fn keep_late(&self, made: Made, reading: Box<Reading>, has_stream: bool) {
        let traffic = made.traffic;
        let was_late = {
            let mut state = self.state.lock();
            if has_stream {
                state.pending.push((made, reading));
            } else {
                state.late.push(*reading);
            }
            let pair = state.pairs.iter_mut().find(|pair| pair.is_of(&traffic));
            pair.is_none_or(|pair| std::mem::replace(&mut pair.is_late, true))
        };
        if !was_late {
            let what = "a copy had not been made a second after its call returned: calls wait no more for copies to be compared, and of \
                        those that return when the copy is done none is";
            log::pair_info(traffic.src, traffic.dst, format_args!("{what}"));
        }
    }

    /// The parts that were read back, each with the difference that there is. A part that cannot be read any more, because its context has gone, is
    /// left.
    pub(crate) fn done(&self, staging: &Staging, driver: &impl Reader) -> Vec<(Made, Option<Difference>)> {
        let (pending, mut late) = {
            let mut state = self.state.lock();
            (std::mem::take(&mut state.pending), std::mem::take(&mut state.late))
        };
        late.retain(|reading| {
            let is_over = !staging.has(&reading.ring) || driver.is_read(reading) != Ok(false);
            if is_over {
                staging.give_back(&reading.ring);
            }
            !is_over
        });
        let (mut done, mut left) = (Vec::new(), Vec::new());
        for (made, reading) in pending {
            let state = if staging.has(&reading.ring) { driver.is_read(&reading) } else { Err(Code::SUCCESS) };
            match state {
                Ok(true) => {
                    done.push((made, driver.difference(&reading)));
                    staging.give_back(&reading.ring);
                }
                Ok(false) => left.push((made, reading)),
                Err(_) => staging.give_back(&reading.ring),
            }
        }
        let mut state = self.state.lock();
        state.pending.append(&mut left);
        state.late.append(&mut late);
        if state.pending.is_empty() && state.late.is_empty() {
            let _ = self.mode.compare_exchange(ENDING, Mode::Off as u8, Relaxed, Relaxed);
        }
        done
    }

    /// Counts a copy that was compared; how many of its pair and path were is said at each power of 8.
    pub(crate) fn count(&self, made: &Made, is_different: bool) {
        let traffic = &made.traffic;
        let (read, differed, is_whole) = {
            let mut state = self.state.lock();
            let Some(pair) = state.pairs.iter_mut().find(|pair| pair.is_of(traffic)) else { return };
            (pair.read, pair.differed) = (pair.read + 1, pair.differed + u64::from(is_different));
            (pair.read, pair.differed, self.is_of_all() && !pair.is_late)
        };
        if read.is_power_of_two() && read.trailing_zeros().is_multiple_of(3) && read > 1 {
            let which = if traffic.path == Path::Direct { "direct" } else { "staged" };
            let what = if differed == 0 { "none differs".to_owned() } else { format!("{differed} differ") };
            let (src, dst) = (traffic.src, traffic.dst);
            let [from, to] = [src, dst].map(end);
            let of = if is_whole { "" } else { "parts of " };
            let said =
                format_args!("{of}{read} {which} copies from {from} to {to} were compared with their source: {what}");
            log::pair_info(src, dst, said);
        }
    }
}

/// The finding about a difference. `passes` is whether the path was verified anew, if it was.
pub(crate) fn finding(made: &Made, difference: &Difference, passes: Option<bool>) -> Finding {
    let Traffic { src, dst, bytes, path, .. } = made.traffic;
    let Difference { at: [byte, row, slice], bytes: [from, to], differ, of, is_zero } = *difference;
    let which = if path == Path::Direct { "direct" } else { "staged" };
    let place = match [row, slice] {
        [0, 0] => String::new(),
        [_, 0] => format!(" of row {row}"),
        _ => format!(" of row {row} of slice {slice}"),
    };
    let [source, destination] = [src, dst].map(end);
    let mut what = format!(
        "{bytes} bytes from {source} to {destination}, {which}: of {of} bytes that were read back {differ} are not the source's; the first \
         at offset {byte}{place} is {to:#04x}, the source's {from:#04x}"
    );
    if is_zero {
        let _ = write!(what, "; all of these are zero");
    }
    let (rule, tested) = match passes {
        Some(false) => (Rule::DataWrong, ""),
        Some(true) => (Rule::DataChanged, "; the path was verified anew, and data arrives"),
        None if path == Path::Direct => (Rule::DataChanged, "; the path could not be verified anew now"),
        None => (Rule::DataChanged, ""),
    };
    what += tested;
    Finding::new(rule, made.function.layer(), what).without_code()
}

/// An end of a copy, in words.
fn end(device: u8) -> String {
    if device < REMOTE { format!("device {device}") } else { "memory of another process".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(windows: [Window; 3]) -> Reading {
        let host = crate::policy::staging::Host { address: 0, bytes: RING, locked_in: (0, 0) };
        let (contexts, streams, events) = ([(0, 0); 3], [0; 2], [0; crate::policy::staging::SLOTS]);
        let ring = Ring { contexts, streams, begins: 0, ends: 0, filled: events, drained: events, host };
        let copy = staging::linear(0, 1 << 40, 2000);
        Reading { ring, copy, stream: 0, per_thread: false, windows }
    }

    #[test]
    fn calls_wait_no_more_once_one_has_waited_in_vain() {
        let readback = Readback::new();
        readback.configure(&Config { readback: Mode::All, ..Config::default() });
        let traffic = Traffic::new([0, 1], Path::Direct, 64);
        let [waits, has_stream] = [None, Some(5)].map(|stream| Memcpy { stream, ..Memcpy::linear(0, 1 << 40, 64) });
        assert_eq!([waits, has_stream].map(|copy| readback.wants(&copy, &traffic)), [Some(true); 2]);
        let (function, numbering, waits_for) = (Function::cuMemcpyPeer, Numbering::Usual, true);
        let made = Made { function, numbering, site: 0, origin: None, record: None, traffic, waits: waits_for };
        readback.keep_late(made, Box::new(reading([Window::NONE; 3])), false);
        assert_eq!([waits, has_stream].map(|copy| readback.wants(&copy, &traffic)), [None, Some(false)]);
        let other = Traffic { dst: 2, ..traffic };
        assert_eq!(readback.wants(&waits, &other), Some(true));
        readback.configure(&Config::default());
        assert!(readback.is_on(), "what is being read back still has its ring");
        assert_eq!(readback.wants(&has_stream, &traffic), None);
    }

    #[test]
    fn difference_says_where_in_the_copy_it_begins() {
        let window = |offset| Window { offset, bytes: 4 };
        let reading = reading([window(0), window(100), window(1000)]);
        let src = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
        assert_eq!(reading.difference(&src, &src), None);
        let mut dst = src;
        (dst[6], dst[11]) = (0, 0);
        let found = Difference { at: [102, 0, 0], bytes: [7, 0], differ: 2, of: 12, is_zero: true };
        assert_eq!(reading.difference(&src, &dst), Some(found));
        dst[11] = 1;
        assert_eq!(reading.difference(&src, &dst), Some(Difference { is_zero: false, ..found }));
        let copy = CUDA_MEMCPY3D_PEER { WidthInBytes: 10, Height: 4, Depth: 50, ..reading.copy };
        let found = Difference { at: [2, 2, 2], is_zero: false, ..found };
        assert_eq!(Reading { copy, ..reading }.difference(&src, &dst), Some(found), "in a 3D copy");
    }
}
