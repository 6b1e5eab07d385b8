//! Copies of the program that are compared with their source once they are made, with `P2PSHIM_READBACK`.
//!
//! The device that has the source reads chunks of it back into a [ring](super::staging), as if the copy were to be staged, and then the
//! device that has the destination those of the destination. The copy's stream waits for both: what the program does in it next
//! overwrites nothing too early, and its host waits for nothing. The result is found out with a later call. A call that waits for
//! its copy waits for this too; so does each with `all`, where a large copy takes several turns.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::{Duration, Instant};

use p2pshim_trace::{OpenRecord, REMOTE};
use parking_lot::Mutex;

use super::staging::{Difference, Stager, Staging, Transfer};
use crate::api::Function;
use crate::api::abi::Code;
use crate::config::{Config, Readback as Mode};
use crate::model::{Finding, Memcpy, Origin, Path, Rule, Traffic};
use crate::record::log;

/// The copies of a pair and path that are read back first. Of later ones it may be those that take the ordinary path: ever fewer.
const FIRST: u64 = 8;
/// How long after one of them no other is, then: a hundred times what it takes.
const INTERVAL: Duration = Duration::from_millis(10);
/// The mode that is `off` once all that is being read back has been.
const ENDING: u8 = u8::MAX;
/// Copies that have been read back and not been compared, at most.
const PENDING: usize = 4;

/// A copy whose call has returned, and which is being read back.
#[derive(Clone)]
pub(crate) struct FinishedCopy {
    pub(crate) function: Function,
    /// Where the call returned to.
    pub(crate) site: usize,
    pub(crate) origin: Option<Origin>,
    /// The call's record in the trace.
    pub(crate) record: Option<OpenRecord>,
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
    pending: Vec<(Box<FinishedCopy>, Box<Transfer>)>,
}

/// All copies that are read back.
pub(crate) struct Readback {
    mode: AtomicU8,
    state: Mutex<State>,
}

impl Readback {
    pub(crate) const fn new() -> Self {
        let state = Mutex::new(State { pairs: Vec::new(), pending: Vec::new() });
        Self { mode: AtomicU8::new(Mode::Off as u8), state }
    }

    /// Takes over the option.
    pub(crate) fn configure(&self, config: &Config) {
        let is_all_done = self.state.lock().pending.is_empty();
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
        if !is_known || copy.bytes == 0 || !copy.has_addresses() || self.mode.load(Relaxed) == ENDING {
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

    /// Notes what is being read back, for later.
    pub(crate) fn keep(&self, made: Box<FinishedCopy>, reading: Box<Transfer>) {
        self.state.lock().pending.push((made, reading));
    }

    /// A call has waited in vain for a copy of this pair: no other waits.
    pub(crate) fn mark_late(&self, traffic: &Traffic) {
        let was_late = {
            let mut state = self.state.lock();
            let pair = state.pairs.iter_mut().find(|pair| pair.is_of(traffic));
            pair.is_none_or(|pair| std::mem::replace(&mut pair.is_late, true))
        };
        if !was_late {
            let what = "a copy had not ended a second after its call returned: from now on p2pshim lets no call wait \
                        for a comparison, and compares no copies whose calls return when the copy is done";
            log::pair_info(traffic.src, traffic.dst, format_args!("{what}"));
        }
    }

    /// The copies that were read back, each with the difference that there is. One that cannot be read any more, because its context has
    /// gone, is left.
    pub(crate) fn done(&self, staging: &Staging, driver: &impl Stager) -> Vec<(Box<FinishedCopy>, Option<Difference>)> {
        let pending = std::mem::take(&mut self.state.lock().pending);
        let (mut done, mut left) = (Vec::new(), Vec::new());
        for (made, reading) in pending {
            let ring = &reading.ring;
            match if staging.rings.has(ring) { driver.is_over(ring) } else { Err(Code::SUCCESS) } {
                Ok(true) => done.push((made, reading.difference(driver.bytes_of(ring)))),
                Ok(false) => {
                    left.push((made, reading));
                    continue;
                }
                Err(_) => {}
            }
            staging.rings.give_back(ring);
        }
        let mut state = self.state.lock();
        state.pending.append(&mut left);
        if state.pending.is_empty() {
            let _ = self.mode.compare_exchange(ENDING, Mode::Off as u8, Relaxed, Relaxed);
        }
        done
    }

    /// Counts a copy that was compared; how many of its pair and path were is said at each power of 8.
    pub(crate) fn count(&self, made: &FinishedCopy, is_different: bool) {
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
pub(crate) fn finding(made: &FinishedCopy, difference: &Difference, passes: Option<bool>) -> Finding {
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

    #[test]
    fn calls_wait_no_more_once_one_has_waited_in_vain() {
        let readback = Readback::new();
        readback.configure(&Config { readback: Mode::All, ..Config::default() });
        let traffic = Traffic::new([0, 1], Path::Direct, 64);
        let [waits, has_stream] = [None, Some(5)].map(|stream| Memcpy { stream, ..Memcpy::linear(0, 1 << 40, 64) });
        assert_eq!([waits, has_stream].map(|copy| readback.wants(&copy, &traffic)), [Some(true); 2]);
        let function = Function::cuMemcpyPeer;
        let made = FinishedCopy { function, site: 0, origin: None, record: None, traffic, waits: true };
        readback.keep(Box::new(made), Box::new(Transfer::of_test(64, 1, 1)));
        readback.mark_late(&traffic);
        assert_eq!([waits, has_stream].map(|copy| readback.wants(&copy, &traffic)), [None, Some(false)]);
        let other = Traffic { dst: 2, ..traffic };
        assert_eq!(readback.wants(&waits, &other), Some(true));
        readback.configure(&Config::default());
        assert!(readback.is_on(), "what is being read back still has its ring");
        assert_eq!(readback.wants(&has_stream, &traffic), None);
    }
}
