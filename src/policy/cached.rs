//! Cached decisions: copies about which nothing has to be found out any more.
//!
//! A program copies again and again between the same allocations, on the same streams. What was decided about such a copy is
//! kept in one line of the processor's cache: whose memory it goes from and to, which path, that its arguments are right,
//! whether it is recorded. With it is kept the [epoch](crate::model::epoch) in which all that holds. A copy that finds its line
//! asks nobody else.
//!
//! What no line holds is what changes without a call that is seen: which context is current, and so whose default stream it is.
//! That is asked for the first copies of a line, and now and then ([`Line::is_check_due`]).
//!
//! Each thread has a few lines of its own, for its last copies, so that writing them needs no lock. A signal handler may copy
//! while its thread is writing one; it finds that the line is being written.

use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use super::access::Access;
use super::capture;
use super::driver::Driver;
use super::validate::{Caller, Validate};
use super::{READBACK, STAGING, staging};
use crate::api::{Function, Layer};
use crate::model::{Memcpy, Named, Path, Shape, Traffic, counters};

/// How many copies of each layer a thread has decisions about.
const LINES: usize = 4;
/// How much of an allocation is known at once: what lies between two multiples of 2 to the power of this.
const WINDOW_BITS: u32 = 31;
/// In place of the epoch, while a line is being written. No epoch gets that far.
const BEING_WRITTEN: u64 = u64::MAX;

/// What is known of a copy, in one word: the function, flags, the devices of source and destination, the number of the path.
/// Of the flags the last, with the devices, is the [place](counters::place) where such copies are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known(u32);

impl Known {
    /// There is nothing to say of it, nor to do before it, if the program itself makes it.
    pub(crate) const CLEAN: u32 = 1 << 8;
    /// Only as long as it belongs to a run of which that is known: copies are being checked, or read back.
    pub(crate) const CHECKED: u32 = 1 << 9;
    pub(crate) const RECORDED: u32 = 1 << 10;
    /// Of some copies like this the GPU time is measured.
    pub(crate) const TIMED: u32 = 1 << 11;
    pub(crate) const STAGED: u32 = 1 << 12;

    /// Where the devices are, and how many bits each has.
    const SRC: u32 = 13;
    const DST: u32 = 18;
    const DEVICE_BITS: u32 = 5;
    /// It is not counted by pair: managed memory, or memory of the host.
    pub(crate) const UNCOUNTED: u32 = 1 << 23;
    const PATH: u32 = 24;

    /// None where a device has no counters.
    fn new(function: Function, path: Option<Path>, [src, dst]: [u8; 2]) -> Option<Self> {
        const { assert!(counters::DEVICES == 1 << Self::DEVICE_BITS) };
        let path = path.map_or(0, |path| path.number() as u8);
        let word = u32::from(function as u8)
            | u32::from(src) << Self::SRC
            | u32::from(dst) << Self::DST
            | u32::from(path) << Self::PATH;
        (usize::from(src.max(dst)) < counters::DEVICES).then_some(Self(word))
    }

    fn with(self, flags: &[(bool, u32)]) -> Self {
        Self(flags.iter().filter(|(is, _)| *is).fold(self.0, |word, (_, flag)| word | flag))
    }

    /// In one word; more than the first few numbers where the path is known.
    #[inline(always)]
    pub(crate) const fn word(self) -> u32 {
        self.0
    }

    /// The reverse.
    #[inline(always)]
    pub(crate) const fn of_word(word: u32) -> Self {
        Self(word)
    }

    /// Whether all of these flags are set.
    #[inline(always)]
    pub(crate) const fn has(self, what: u32) -> bool {
        self.0 & what == what
    }

    /// Whether any of them is.
    #[inline(always)]
    pub(crate) const fn has_any(self, what: u32) -> bool {
        self.0 & what != 0
    }

    #[inline(always)]
    pub(crate) const fn devices(self) -> [u8; 2] {
        const DEVICE: u32 = (1 << Known::DEVICE_BITS) - 1;
        [(self.0 >> Self::SRC & DEVICE) as u8, (self.0 >> Self::DST & DEVICE) as u8]
    }

    /// Where it is counted, if it is; of copies of the driver.
    #[inline(always)]
    pub(crate) const fn place(self) -> Option<usize> {
        const {
            let word = (Self::STAGED | 7 << Self::SRC | 9 << Self::DST) >> Self::STAGED.trailing_zeros();
            assert!(matches!(counters::place([7, 9], true), Some(place) if place == word as usize));
        };
        let place = (self.0 >> Self::STAGED.trailing_zeros()) as usize;
        if self.has(Self::UNCOUNTED) { None } else { Some(place) }
    }

    /// The number of its path; of copies of the driver.
    #[inline(always)]
    pub(crate) const fn path(self) -> u8 {
        (self.0 >> Self::PATH) as u8
    }

    /// From where to where so many bytes go and on which path, if that is known: of copies of the driver.
    pub(crate) fn traffic(self, bytes: u64) -> Option<Traffic> {
        let ([src, dst], path) = (self.devices(), Path::numbered(self.path().into())?);
        Some(Traffic::new([src, dst], path, bytes))
    }

    #[inline(always)]
    pub(crate) const fn function(self) -> u8 {
        self.0 as u8
    }
}

/// Whether a copy's size is one of those about which decisions are cached. Who stages a larger one depends on its size, which is no
/// part of a line; and to decide about it again costs next to nothing of the time that it takes.
#[inline(always)]
pub(crate) fn is_small(copy: &Memcpy<'_>) -> bool {
    copy.bytes < staging::LEAST
}

/// One cached decision: see the module. All zero is none.
#[repr(align(64))]
pub(crate) struct Line {
    epoch: AtomicU64,
    /// Where the allocations begin that the copy goes from and to, as far as they are in a window, and how many bytes they have
    /// in it: the source's in the low half.
    src: AtomicU64,
    dst: AtomicU64,
    bytes: AtomicU64,
    src_named: AtomicU64,
    dst_named: AtomicU64,
    stream: AtomicU64,
    known: AtomicU32,
    /// How often it was used. By itself, since who counts may be interrupted by a signal handler that writes the line.
    uses: AtomicU32,
}

impl Line {
    /// What is known of a copy in this epoch.
    #[inline(always)]
    fn get(&self, function: Function, copy: &Memcpy, epoch: u64) -> Option<Known> {
        // Before anything else of the line: a signal handler may write it anew, and what was read before that must not go with
        // the epoch that it leaves.
        if self.epoch.load(Acquire) != epoch {
            return None;
        }
        let known = Known(self.known.load(Relaxed));
        let bytes = self.bytes.load(Relaxed);
        let is_it = copy.src.wrapping_sub(self.src.load(Relaxed)) < bytes & u64::from(u32::MAX)
            && copy.dst.wrapping_sub(self.dst.load(Relaxed)) < bytes >> 32
            && known.function() == function as u8
            && self.src_named.load(Relaxed) == word(copy.src_named)
            && self.dst_named.load(Relaxed) == word(copy.dst_named)
            && Some(self.stream.load(Relaxed) as usize) == copy.stream;
        is_it.then_some(known)
    }

    #[inline(always)]
    pub(crate) fn count(&self) {
        self.uses.store(self.uses.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Whether it is time to check such a copy in full: the first few times, and now and then. What only the driver knows may
    /// have changed.
    #[inline(always)]
    pub(crate) fn is_check_due(&self) -> bool {
        const FIRST: u32 = 16;
        let uses = self.uses.load(Relaxed);
        // Of a power of two nothing is left.
        uses & uses.wrapping_sub(1) < FIRST
    }

    fn set(&self, copy: &Memcpy, epoch: u64, known: Known, [src, dst]: [Range<u64>; 2]) {
        let window = |address: u64, Range { start, end }: Range<u64>| {
            let begins = address >> WINDOW_BITS << WINDOW_BITS;
            let start = start.max(begins);
            (start, end.min(begins.saturating_add(1 << WINDOW_BITS)).saturating_sub(start))
        };
        let ((src, src_bytes), (dst, dst_bytes)) = (window(copy.src, src), window(copy.dst, dst));
        self.epoch.store(BEING_WRITTEN, Relaxed);
        self.src.store(src, Release);
        self.dst.store(dst, Release);
        self.bytes.store(src_bytes | dst_bytes << 32, Release);
        self.src_named.store(word(copy.src_named), Release);
        self.dst_named.store(word(copy.dst_named), Release);
        self.stream.store(copy.stream.unwrap_or_default() as u64, Release);
        self.known.store(known.word(), Release);
        self.epoch.store(epoch, Release);
    }
}

#[inline(always)]
fn word(named: Named) -> u64 {
    match named {
        Named::Ordinal(ordinal) => ordinal.cast_unsigned().into(),
        Named::Context(context) => context as u64,
        Named::Pointer => 0,
    }
}

/// The cached decisions about a thread's last copies. All zero is none.
#[repr(C)]
pub(crate) struct Recent {
    runtime: [Line; LINES],
    driver: [Line; LINES],
    /// Which line of each layer is written next.
    next: [AtomicU8; 2],
}

impl Recent {
    #[inline(always)]
    fn of(&self, function: Function) -> &[Line; LINES] {
        if matches!(function.layer(), Layer::Driver) { &self.driver } else { &self.runtime }
    }

    /// What is known of a copy in this epoch, and the line that says so.
    #[inline(always)]
    pub(crate) fn find(&self, function: Function, copy: &Memcpy, epoch: u64) -> Option<(Known, &Line)> {
        self.of(function).iter().find_map(|line| Some((line.get(function, copy, epoch)?, line)))
    }

    /// The line to write for a copy: its own, with how often it was used, else that of the longest ago; none if a signal handler
    /// has interrupted the writing of that.
    fn line_for(&self, function: Function, copy: &Memcpy) -> Option<&Line> {
        let lines = self.of(function);
        let own = lines.iter().find(|line| line.get(function, copy, line.epoch.load(Relaxed)).is_some());
        let line = own.or_else(|| {
            let [runtime, driver] = &self.next;
            let next = if matches!(function.layer(), Layer::Driver) { driver } else { runtime };
            let at = next.load(Relaxed);
            next.store(at.wrapping_add(1), Relaxed);
            let line = lines.get(usize::from(at) % LINES)?;
            line.uses.store(0, Relaxed);
            Some(line)
        });
        line.filter(|line| line.epoch.load(Relaxed) != BEING_WRITTEN)
    }
}

/// What the shim does besides deciding, as far as it is kept with what is known of copies.
#[derive(Clone, Copy)]
pub(crate) struct Habits {
    /// Whether no call encloses the copy: the program itself makes it.
    pub(crate) is_outermost: bool,
    pub(crate) records: bool,
    /// Whether of some copies of this function and stream the GPU time is measured.
    pub(crate) samples: bool,
}

/// Keeps what is known of a copy that has succeeded, for the next that is like it. The driver is not asked, and nothing is
/// waited for.
///
/// `epoch` is what [`before_keeping`](crate::model::epoch::before_keeping) returned before anything else; `tag` and `recent` are
/// those of the thread.
#[cold]
pub(crate) fn keep(
    (driver, access, validate): (&impl Driver, &Access, &Validate),
    epoch: u64,
    (tag, recent): (u8, &Recent),
    (function, copy): (Function, &Memcpy),
    habits: Habits,
) -> Option<()> {
    let is_cacheable = copy.shape == Shape::Linear && copy.bytes != 0 && copy.stream.is_some();
    // What begins to change from here on is another epoch.
    if epoch == 0 || !is_cacheable || capture::may_be_under_way() || validate.is_strict() {
        return None;
    }
    let is_checked = validate.is_on();
    let known = access.known(copy.src).zip(access.known(copy.dst));
    if habits.is_outermost && is_checked {
        let by = Caller { thread: tag, is_check_due: false };
        let ((src, _), (dst, _)) = known.as_ref()?;
        // Whether ends overlap that are on one device is checked each time.
        (src.device != dst.device && validate.is_clean(driver, access, copy, by)).then_some(())?;
    }
    let (path, devices, ranges) = match (function.layer(), known) {
        (Layer::Driver, known) => {
            let ((_, from), (_, to)) = known?;
            let Traffic { path, src, dst, kept, .. } = access.decided(copy)?;
            // Each time there is something to be done.
            (kept.is_none() && !STAGING.wants(copy, path)).then_some(())?;
            (Some(path), [src, dst], [from, to])
        }
        (_, Some(((src, from), (dst, to)))) => (None, [src.device, dst.device], [from, to]),
        // By the program's account, and wherever it is: if nobody checks it, a call of the runtime is only passed on.
        (_, None) if !is_checked => {
            let device = |named: Named| u8::try_from(named.ordinal()?).ok();
            (None, [device(copy.src_named)?, device(copy.dst_named)?], [0..u64::MAX, 0..u64::MAX])
        }
        (_, None) => return None,
    };
    let known = Known::new(function, path, devices)?.with(&[
        (matches!(path, Some(Path::Staged(_))), Known::STAGED),
        (matches!(path, Some(Path::Host | Path::Unknown)), Known::UNCOUNTED),
        (habits.is_outermost, Known::CLEAN),
        (is_checked || READBACK.is_on(), Known::CHECKED),
        (habits.records, Known::RECORDED),
        (habits.samples, Known::TIMED),
    ]);
    recent.line_for(function, copy)?.set(copy, epoch, known, ranges);
    Some(())
}

#[cfg(test)]
impl Default for Recent {
    fn default() -> Self {
        let line = || Line {
            epoch: AtomicU64::new(0),
            src: AtomicU64::new(0),
            dst: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            src_named: AtomicU64::new(0),
            dst_named: AtomicU64::new(0),
            stream: AtomicU64::new(0),
            known: AtomicU32::new(0),
            uses: AtomicU32::new(0),
        };
        let lines = || std::array::from_fn(|_| line());
        Self { runtime: lines(), driver: lines(), next: [AtomicU8::new(0), AtomicU8::new(0)] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::abi::Code;
    use crate::config::Config;
    use crate::policy::access::Circumstances;
    use crate::policy::access::fake::{Fake, context, memory_of};
    use crate::policy::validate::Fact;

    const RUNTIME: Function = Function::cudaMemcpyPeerAsync;
    const DRIVER: Function = Function::cuMemcpyPeerAsync;
    const STREAM: usize = 0x5000;
    const EPOCH: u64 = 7;
    const PLAIN: Habits = Habits { is_outermost: true, records: false, samples: false };

    /// All that is known of a pair whose peer access is enabled, and a thread.
    struct Process {
        driver: Fake,
        access: Box<Access>,
        validate: Box<Validate>,
        recent: Recent,
    }

    impl Process {
        fn new() -> Self {
            let (driver, access, validate) = (Fake::new(), Box::new(Access::new()), Box::new(Validate::new()));
            access.configure(&Config::default());
            validate.configure(crate::config::Validate::Warn);
            let large = Memcpy { bytes: 2 << 20, ..copy(DRIVER, 0) };
            (0..20).for_each(|_| _ = access.consider(&driver, &large, Circumstances::default()));
            assert!(access.decided(&large).unwrap().kept.is_some(), "no line: an event is recorded each time");
            // The program enables it as well.
            assert_eq!(access.enabled(&driver, context(1), 0, Code::PEER_ACCESS_ALREADY_ENABLED), Code::SUCCESS);
            access.consider(&driver, &large, Circumstances::default());
            assert_eq!(access.decided(&large).unwrap().kept, None);
            assert_eq!(access.decided(&large).map(|traffic| traffic.path), Some(Path::Direct));
            for device in [0, 1] {
                validate.facts().contexts.set(context(device), Fact::on(device as u8));
            }
            validate.facts().streams.set(STREAM, Fact::on(0));
            Self { driver, access, validate, recent: Recent::default() }
        }

        fn keep(&self, epoch: u64, function: Function, copy: &Memcpy, habits: Habits) -> bool {
            let all = (&self.driver, &*self.access, &*self.validate);
            keep(all, epoch, (1, &self.recent), (function, copy), habits).is_some()
        }

        /// Whether a copy by the program takes the fast path once it was to be kept.
        fn is_kept(&self, epoch: u64, function: Function, copy: &Memcpy) -> bool {
            self.keep(epoch, function, copy, PLAIN) && self.find(epoch, function, copy).is_some()
        }

        fn find(&self, epoch: u64, function: Function, copy: &Memcpy) -> Option<Known> {
            self.recent.find(function, copy, epoch).map(|(known, _)| known)
        }
    }

    fn named(function: Function, device: i32) -> Named {
        match function.layer() {
            Layer::Driver => Named::Context(context(device as usize)),
            _ => Named::Ordinal(device),
        }
    }

    fn copy(function: Function, offset: u64) -> Memcpy<'static> {
        Memcpy {
            src: memory_of(0) + offset,
            dst: memory_of(1) + offset,
            src_named: named(function, 0),
            dst_named: named(function, 1),
            bytes: 4096,
            stream: Some(STREAM),
            shape: Shape::Linear,
        }
    }

    #[test]
    fn find_what_was_kept_in_its_epoch_and_nothing_else() {
        let process = Process::new();
        for function in [RUNTIME, DRIVER] {
            let usual = copy(function, 0);
            assert_eq!(process.find(EPOCH, function, &usual), None);
            assert!(process.is_kept(EPOCH, function, &usual));
            assert!(process.find(EPOCH, function, &copy(function, (1 << 21) - 1)).is_some(), "the same allocations");
            assert_eq!(process.find(EPOCH, function, &copy(function, 1 << 24)), None);
            assert_eq!(process.find(EPOCH + 1, function, &usual), None);
            for other in [
                Memcpy { dst: memory_of(2), ..usual },
                Memcpy { dst_named: named(function, 2), ..usual },
                Memcpy { src: memory_of(0) - 1, ..usual },
                Memcpy { src_named: named(function, 2), ..usual },
                Memcpy { stream: Some(STREAM + 8), ..usual },
                Memcpy { stream: None, ..usual },
            ] {
                assert_eq!(process.find(EPOCH, function, &other), None, "{other:?}");
            }
        }
        assert_eq!(process.find(EPOCH, Function::cuMemcpyPeerAsync_ptsz, &copy(DRIVER, 0)), None);
    }

    #[test]
    fn find_says_what_was_known() {
        let process = Process::new();
        let inside = Habits { is_outermost: false, records: true, samples: true };
        assert!(process.keep(EPOCH, DRIVER, &copy(DRIVER, 0), inside));
        let known = process.find(EPOCH, DRIVER, &copy(DRIVER, 0)).unwrap();
        assert!(known.has(Known::RECORDED) && known.has(Known::TIMED) && known.has(Known::CHECKED));
        assert!(!known.has(Known::CLEAN) && !known.has(Known::STAGED), "inside a call of the runtime");
        let traffic = Traffic::new([0, 1], Path::Direct, 5);
        assert_eq!((known.traffic(5), known.devices(), known.function()), (Some(traffic), [0, 1], DRIVER as u8));
        assert!(process.keep(EPOCH, DRIVER, &copy(DRIVER, 0), PLAIN), "in its own place");
        let known = process.find(EPOCH, DRIVER, &copy(DRIVER, 0)).unwrap();
        assert!(known.has(Known::CLEAN) && !known.has(Known::RECORDED));
        process.keep(EPOCH, RUNTIME, &copy(RUNTIME, 0), PLAIN);
        let known = process.find(EPOCH, RUNTIME, &copy(RUNTIME, 0)).unwrap();
        assert_eq!((known.traffic(5), known.devices()), (None, [0, 1]), "the driver decides");
    }

    #[test]
    fn keep_only_what_holds() {
        let process = Process::new();
        let (usual, of_runtime) = (copy(DRIVER, 0), copy(RUNTIME, 0));
        assert!(!process.is_kept(0, DRIVER, &usual), "nothing may be kept");
        assert!(!process.is_kept(EPOCH, DRIVER, &Memcpy { bytes: 0, ..usual }), "a copy of nothing");
        assert!(!process.is_kept(EPOCH, DRIVER, &Memcpy { stream: None, ..usual }), "it waits");
        let mismatched = Memcpy { dst_named: Named::Ordinal(2), ..of_runtime };
        assert!(!process.is_kept(EPOCH, RUNTIME, &mismatched), "an ordinal that is wrong");
        assert!(!process.is_kept(EPOCH, DRIVER, &Memcpy { src_named: named(DRIVER, 1), ..usual }), "a context");
        assert!(!process.is_kept(EPOCH, DRIVER, &Memcpy { stream: Some(0x7000), ..usual }), "an unknown stream");
        assert!(!process.is_kept(EPOCH, DRIVER, &Memcpy { dst: memory_of(2), ..usual }), "unknown memory");
        let inside = Memcpy { dst: usual.src + 8192, dst_named: of_runtime.src_named, ..of_runtime };
        assert!(!process.is_kept(EPOCH, RUNTIME, &inside), "may overlap");
        process.validate.facts().stream_is_gone(STREAM);
        assert!(!process.is_kept(EPOCH, DRIVER, &usual), "a stream that was destroyed");
        process.validate.facts().streams.set(STREAM, Fact::on(0));
        process.validate.configure(crate::config::Validate::Strict);
        assert!(!process.is_kept(EPOCH, DRIVER, &usual), "each is checked before");
        process.validate.configure(crate::config::Validate::Warn);
        process.access.memory_has_changed();
        assert!(!process.is_kept(EPOCH, DRIVER, &usual), "memory that is not known");
        [0, 1].iter().for_each(|&device| process.access.learn(&process.driver, memory_of(device)));
        assert!(process.is_kept(EPOCH, DRIVER, &usual));
    }

    #[test]
    fn keep_runtime_copies_that_nobody_checks_are_passed_on_wherever_they_go() {
        let process = Process::new();
        process.validate.configure(crate::config::Validate::Off);
        let unknown = Memcpy { dst: 0x7777_0000, ..copy(RUNTIME, 0) };
        assert!(process.is_kept(EPOCH, RUNTIME, &unknown));
        let of_driver = Memcpy { dst: 0x7777_0000, ..copy(DRIVER, 0) };
        assert!(!process.is_kept(EPOCH, DRIVER, &of_driver), "its path matters");
        let nowhere = Memcpy { dst_named: Named::Ordinal(-1), ..unknown };
        assert!(!process.is_kept(EPOCH, RUNTIME, &nowhere), "no device");
    }

    #[test]
    fn keep_without_room_the_oldest_makes_room() {
        let process = Process::new();
        process.validate.configure(crate::config::Validate::Off);
        // Nobody knows where they are, so that all of them could be anywhere.
        let at = |number: u64| Memcpy { dst: 0x10_0000_0000 + (number << 33), ..copy(RUNTIME, 0) };
        let is_found = |number: u64| process.find(EPOCH, RUNTIME, &at(number)).is_some();
        (0..LINES as u64 + 1).for_each(|number| assert!(process.keep(EPOCH, RUNTIME, &at(number), PLAIN)));
        assert!(!is_found(0), "the oldest");
        assert!((1..LINES as u64 + 1).all(is_found));
        assert!(process.find(EPOCH, DRIVER, &copy(DRIVER, 0)).is_none(), "those of the driver have their own");
        // What a handler finds that interrupts the writing of a line.
        process.recent.runtime.iter().for_each(|line| line.epoch.store(BEING_WRITTEN, Relaxed));
        assert!(!process.keep(EPOCH, RUNTIME, &at(0), PLAIN));
        assert!(process.recent.runtime.iter().all(|line| line.epoch.load(Relaxed) == BEING_WRITTEN));
    }

    #[test]
    fn is_check_due_the_first_times_and_now_and_then() {
        let process = Process::new();
        process.keep(EPOCH, DRIVER, &copy(DRIVER, 0), PLAIN);
        let use_it = |epoch: u64| {
            let (_, line) = process.recent.find(DRIVER, &copy(DRIVER, 0), epoch).unwrap();
            let is_due = line.is_check_due();
            line.count();
            is_due
        };
        let due: Vec<usize> = (0..100).filter(|_| use_it(EPOCH)).collect();
        assert_eq!(due, (0..17).chain([32, 64]).collect::<Vec<_>>());
        process.keep(EPOCH + 1, DRIVER, &copy(DRIVER, 0), PLAIN);
        let due: Vec<usize> = (100..200).filter(|_| use_it(EPOCH + 1)).collect();
        assert_eq!(due, [128], "it counts on");
    }

    #[test]
    fn count_leaves_alone_what_a_signal_handler_has_written() {
        let process = Process::new();
        process.keep(EPOCH, DRIVER, &copy(DRIVER, 0), PLAIN);
        let (_, line) = process.recent.find(DRIVER, &copy(DRIVER, 0), EPOCH).unwrap();
        // A trace has started, and the handler copies, between that and the counting.
        process.keep(EPOCH + 1, DRIVER, &copy(DRIVER, 0), Habits { records: true, ..PLAIN });
        line.count();
        let known = process.find(EPOCH + 1, DRIVER, &copy(DRIVER, 0));
        assert!(known.is_some_and(|known| known.has(Known::RECORDED)));
    }

    #[test]
    fn set_only_what_lies_in_the_window_of_the_address_is_known() {
        let recent = Recent::default();
        let [line, ..] = &recent.runtime;
        let large = 0x20_0000_1000..0x23_0000_0000;
        let at = |address: u64| Memcpy { src: address, ..copy(RUNTIME, 0) };
        let known = Known(u32::from(RUNTIME as u8));
        line.set(&at(0x21_8000_0000), EPOCH, known, [large, 0..u64::MAX]);
        for (address, expected) in
            [(0x21_8000_0000, true), (0x21_ffff_ffff, true), (0x22_0000_0000, false), (0x21_7fff_ffff, false)]
        {
            assert_eq!(line.get(RUNTIME, &at(address), EPOCH).is_some(), expected, "{address:#x}");
        }
    }
}
