//! The work of streams.

use std::iter::Sum;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::fault::Defect;
use crate::fence::Fence;
use crate::gate::{Gate, pass_all};
use crate::kernel::KernelRun;
use crate::os;
use crate::traffic::Traffic;

/// A box of bytes, rows and slices in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Address of the first byte.
    pub address: u64,
    /// Bytes from one row to the next.
    pub pitch: u64,
    /// Bytes from one slice to the next.
    pub slice: u64,
}

impl Layout {
    fn row(&self, y: u64, z: u64) -> u64 {
        self.address.wrapping_add(z.wrapping_mul(self.slice)).wrapping_add(y.wrapping_mul(self.pitch))
    }
}

/// How much is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes of a row.
    pub width: u64,
    /// Rows of a slice.
    pub height: u64,
    /// Slices.
    pub depth: u64,
}

impl Extent {
    /// The extent of one row.
    pub fn linear(length: u64) -> Extent {
        Extent { width: length, height: 1, depth: 1 }
    }

    /// Whether there is nothing to copy.
    pub fn is_empty(&self) -> bool {
        self.width == 0 || self.height == 0 || self.depth == 0
    }

    /// Whether there is no more than one row.
    pub(crate) fn is_one_row(&self) -> bool {
        self.height <= 1 && self.depth <= 1
    }

    /// All bytes.
    pub fn bytes(&self) -> u64 {
        self.width.saturating_mul(self.height).saturating_mul(self.depth)
    }

    fn rows(self) -> impl Iterator<Item = (u64, u64)> {
        (0..self.depth).flat_map(move |z| (0..self.height).map(move |y| (y, z)))
    }
}

/// The way that bytes take between two places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// Between two devices, one of which can reach the other's allocation.
    Direct,
    /// Between two devices through host memory, since neither can reach the other's.
    Staged,
    /// Inside one device.
    SameDevice,
    /// From or to the host.
    Host,
}

/// Places in the queues of a stream. Each engine that a stream uses has a queue of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    /// The queue that holds copies.
    pub copies: usize,
    /// The queue that holds memsets.
    pub sets: usize,
}

impl Places {
    /// The place of a memset.
    pub(crate) const SET: Places = Places { copies: 0, sets: 1 };

    /// The places of a copy, as measured on an H200.
    pub(crate) fn of_copy(path: Path) -> Places {
        Places { copies: if path == Path::Staged { 3 } else { 1 }, sets: 0 }
    }

    /// Whether queues of that length in which so much is taken have room for `wanted`. An empty queue takes anything.
    pub(crate) fn have_room(self, wanted: Places, length: usize) -> bool {
        let fits = |taken: usize, wanted: usize| taken == 0 || wanted == 0 || taken + wanted <= length;
        fits(self.copies, wanted.copies) && fits(self.sets, wanted.sets)
    }
}

impl Sum for Places {
    fn sum<I: Iterator<Item = Places>>(all: I) -> Places {
        all.fold(Places::default(), |sum, one| Places { copies: sum.copies + one.copies, sets: sum.sets + one.sets })
    }
}

/// A copy, checked and ready to run.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    /// The destination.
    pub dst: Layout,
    /// The source.
    pub src: Layout,
    /// How much.
    pub extent: Extent,
    /// Which way.
    pub path: Path,
    /// Its defect.
    pub defect: Option<Defect>,
    /// Counts it while it is under way, if it is direct.
    pub traffic: Option<Arc<Traffic>>,
    /// Holds what `src` points to if the program's buffer was read when the copy was submitted.
    pub snapshot: Option<Arc<[u8]>>,
    /// Reached when all of one row of the program's has been read, whose last bytes then get there later.
    pub read: Option<Arc<Fence>>,
}

/// Bytes that have been read, and get there later.
const LAST: u64 = 64 << 10;

impl Copy {
    /// Reads the source now, so that the program may change it before the copy runs.
    pub(crate) fn take_snapshot(&mut self) {
        let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, self.extent.bytes() as usize).collect();
        let Some(all) = Arc::get_mut(&mut bytes) else { return };
        let packed = Layout {
            address: all.as_mut_ptr() as u64,
            pitch: self.extent.width,
            slice: self.extent.width * self.extent.height,
        };
        copy_rows(packed, self.src, self.extent);
        self.src = packed;
        self.snapshot = Some(bytes);
    }

    fn copy_row_late(&self, read: &Fence) {
        let last = self.extent.width.min(LAST);
        let first = self.extent.width - last;
        let mut bytes = vec![0u8; last as usize];
        os::copy(self.dst.address, self.src.address, first);
        os::copy(bytes.as_mut_ptr() as u64, self.src.address + first, last);
        read.signal();
        os::pause(late(0, self.extent.width));
        os::copy(self.dst.address + first, bytes.as_ptr() as u64, last);
    }

    /// How long it takes by the modelled clock.
    fn time(&self) -> Duration {
        let bytes = self.extent.bytes();
        let usual = match self.path {
            Path::Direct => transfer_time(bytes, DIRECT_SPEED),
            Path::Staged => staging_time(bytes),
            Path::SameDevice => transfer_time(bytes, MEMORY_SPEED),
            Path::Host => transfer_time(bytes, HOST_SPEED),
        };
        usual
            + match self.defect {
                Some(Defect::Stall(milliseconds)) => Duration::from_millis(milliseconds.into()),
                Some(Defect::Slow) => slow_time(bytes),
                Some(Defect::Crowd | Defect::CrowdHang) => CROWDED,
                _ => Duration::ZERO,
            }
    }

    fn run(&self) {
        if self.path == Path::Staged {
            os::pause(staging_time(self.extent.bytes()));
        }
        let under_way = self.traffic.as_deref().map(Traffic::begin);
        match self.defect {
            Some(Defect::Drop | Defect::First | Defect::Both) => return,
            Some(Defect::Logged) => return os::log_stopped_access(),
            Some(Defect::Hang) => os::hang(),
            Some(Defect::Stall(milliseconds)) => os::pause(Duration::from_millis(milliseconds.into())),
            Some(Defect::Slow) => os::pause(slow_time(self.extent.bytes())),
            Some(defect @ (Defect::Crowd | Defect::CrowdHang)) => {
                os::pause(CROWDED);
                match under_way.is_some_and(|begun| begun.met_others()) {
                    true if defect == Defect::CrowdHang => os::hang(),
                    true => return,
                    false => {}
                }
            }
            Some(_) | None => {}
        }
        match &self.read {
            Some(read) => self.copy_row_late(read),
            None => copy_rows(self.dst, self.src, self.extent),
        }
        if self.path == Path::Host && self.extent.bytes() >= LARGE {
            let copied = Instant::now();
            // A program's clock may stand still.
            (0..SPINS).take_while(|_| copied.elapsed() < HOST_LINK).for_each(|_| std::hint::spin_loop());
        }
        if self.defect == Some(Defect::Corrupt) {
            corrupt(self.dst, self.extent);
        }
        if self.defect == Some(Defect::Spill) {
            os::fill(self.dst.address + self.extent.width, 0, 1, SPILLED);
        }
    }
}

/// Bytes that a copy writes behind its end if it is to.
const SPILLED: u64 = 64;
/// MB/s of direct copies, of those from or to the host, and within a device. Orders of magnitude of an H100.
const DIRECT_SPEED: u64 = 380_000;
const HOST_SPEED: u64 = 50_000;
const MEMORY_SPEED: u64 = 2_000_000;
/// Large copies from or to the host take so much longer than direct ones, not only by the modelled clock: else a busy machine, on which both are
/// a `memcpy`, may take direct copies to be the slower ones.
const HOST_LINK: Duration = Duration::from_micros(40);
const LARGE: u64 = 128 << 10;
/// So often the clock is read meanwhile, at most: some milliseconds.
const SPINS: u32 = 100_000;
/// The time that anything takes besides.
const LATENCY: Duration = Duration::from_micros(2);

/// How long bytes take at so many MB/s.
fn transfer_time(bytes: u64, speed: u64) -> Duration {
    LATENCY + Duration::from_nanos(bytes.saturating_mul(1000) / speed)
}

/// A slow direct copy takes so long besides eight times the time of a staged one: enough for a test that compares the two
/// on a busy machine, where waking a thread may take longer than a copy.
const SLOWNESS: Duration = Duration::from_millis(20);
/// A copy that minds others takes so long besides: enough for them to be under way meanwhile on a busy machine.
const CROWDED: Duration = Duration::from_millis(5);
/// One wrong byte in so many.
const CORRUPTION_STEP: usize = 4096;

fn corrupt(dst: Layout, extent: Extent) {
    for (y, z) in extent.rows() {
        (0..extent.width).step_by(CORRUPTION_STEP).for_each(|x| os::spoil(dst.row(y, z) + x));
    }
}

fn copy_rows(dst: Layout, src: Layout, extent: Extent) {
    for (y, z) in extent.rows() {
        os::copy(dst.row(y, z), src.row(y, z), extent.width);
    }
}

/// MB/s of staged copies: 40 GB/s were measured.
static STAGING_SPEED: AtomicUsize = AtomicUsize::new(40_000);

/// Says how many MB/s staged copies have from now on.
pub(crate) fn set_staging_speed(speed: usize) {
    STAGING_SPEED.store(speed, Relaxed);
}

/// The seed of delays, and the most microseconds of one; none if that is 0.
static DELAYS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Has a delay drawn from now on for each piece of work.
pub(crate) fn set_delays(seed: u64, most: u64) {
    DELAYS.iter().zip([seed, most]).for_each(|(known, value)| known.store(value, Relaxed));
}

/// Whether delays are drawn.
pub(crate) fn has_delays() -> bool {
    DELAYS[1].load(Relaxed) > 0
}

/// The delay of a piece of work: the same for the same seed, and the same place among the work of the same stream.
pub(crate) fn delay(stream: u64, number: u64) -> Duration {
    let [seed, most] = [&DELAYS[0], &DELAYS[1]].map(|known| known.load(Relaxed));
    Duration::from_micros(drawn([seed, stream, number]).checked_rem(most + 1).unwrap_or_default())
}

/// The delay of bytes that have been read: as drawn, and so much more than any other that work elsewhere finds old ones.
fn late(stream: u64, bytes: u64) -> Duration {
    Duration::from_micros(DELAYS[1].load(Relaxed)) + delay(stream, bytes)
}

/// A number that looks as if it were drawn, the same for the same three.
fn drawn(from: [u64; 3]) -> u64 {
    from.into_iter().fold(0, |sum, part| {
        let mixed = (sum ^ part).wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    })
}

/// How long a staged copy keeps both its stream and the submitting thread busy: 16 µs more than it takes at that speed were measured.
pub(crate) fn staging_time(bytes: u64) -> Duration {
    let nanos = bytes.saturating_mul(1000) / STAGING_SPEED.load(Relaxed) as u64;
    Duration::from_micros(16) + Duration::from_nanos(nanos)
}

/// How long it takes to page-lock memory: 0.6 to 2.4 ms were measured for 16 MiB.
pub(crate) fn page_locking_time(bytes: u64) -> Duration {
    Duration::from_nanos(bytes / 16)
}

/// How long a slow direct copy keeps its stream busy.
fn slow_time(bytes: u64) -> Duration {
    SLOWNESS + staging_time(bytes) * 8
}

/// A memset, checked and ready to run.
#[derive(Clone, Debug)]
pub(crate) struct Fill {
    /// Where.
    pub dst: Layout,
    /// How much.
    pub extent: Extent,
    /// The value, in its low `unit` bytes.
    pub value: u32,
    /// 1, 2 or 4.
    pub unit: u64,
}

/// Work that relies on something that may be taken away before it is done.
#[derive(Clone)]
pub(crate) struct Gated {
    /// The work to be done.
    pub work: Box<Work>,
    /// It relies on these.
    pub gates: Vec<Arc<Gate>>,
    /// Where its context keeps what broke it.
    pub broken: Arc<OnceLock<Error>>,
}

/// One piece of work; it can run any number of times.
#[derive(Clone)]
pub(crate) enum Work {
    /// Takes no time: records of events, waits.
    Nothing,
    /// Copies bytes.
    Copy(Copy),
    /// Sets bytes.
    Fill(Fill),
    /// Runs a kernel.
    Kernel(KernelRun),
    /// Calls a function of the program.
    Host(Arc<dyn Fn() + Send + Sync>),
    /// Does work if what it relies on is still there.
    Gated(Gated),
}

impl Work {
    /// The places that it takes in the queues of its stream: only copies and memsets take any.
    pub(crate) fn places(&self) -> Places {
        match self {
            Work::Copy(copy) => Places::of_copy(copy.path),
            Work::Fill(_) => Places::SET,
            Work::Gated(gated) => gated.work.places(),
            Work::Nothing | Work::Kernel(_) | Work::Host(_) => Places::default(),
        }
    }

    /// Whether there is nothing to do.
    pub(crate) fn is_nothing(&self) -> bool {
        matches!(self, Work::Nothing)
    }

    /// Whether it takes hardly any time.
    pub(crate) fn is_prompt(&self) -> bool {
        match self {
            Work::Nothing => true,
            _ if has_delays() => false,
            Work::Fill(_) => true,
            Work::Copy(copy) => {
                copy.path != Path::Staged
                    && !matches!(
                        copy.defect,
                        Some(Defect::Hang | Defect::Slow | Defect::Stall(_) | Defect::Crowd | Defect::CrowdHang)
                    )
            }
            Work::Kernel(_) | Work::Host(_) => false,
            Work::Gated(gated) => gated.work.is_prompt(),
        }
    }

    /// Does the work, on the calling thread; returns how long it takes by the modelled clock.
    pub(crate) fn run(&self) -> Duration {
        let begin = Instant::now();
        self.carry_out();
        match self {
            // The program's own functions take the time that they take.
            Work::Host(_) => begin.elapsed(),
            Work::Gated(Gated { work, .. }) => work.time(),
            _ => self.time(),
        }
    }

    /// How long it takes by the modelled clock, whatever this machine does besides; no function of the program.
    fn time(&self) -> Duration {
        match self {
            Work::Nothing | Work::Host(_) => Duration::ZERO,
            Work::Copy(copy) => copy.time(),
            Work::Fill(fill) => transfer_time(fill.extent.bytes(), MEMORY_SPEED),
            Work::Kernel(kernel) => kernel.time() + transfer_time(kernel.words * 8, DIRECT_SPEED),
            Work::Gated(gated) => gated.work.time(),
        }
    }

    fn carry_out(&self) {
        match self {
            Work::Nothing => {}
            Work::Copy(copy) => copy.run(),
            Work::Fill(fill) => {
                for (y, z) in fill.extent.rows() {
                    os::fill(fill.dst.row(y, z), fill.value, fill.unit, fill.extent.width);
                }
            }
            Work::Kernel(kernel) => kernel.run(),
            Work::Host(function) => function(),
            Work::Gated(Gated { work, gates, broken }) => pass_all(gates, broken, || work.carry_out()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(bytes: &mut [u8], pitch: u64, slice: u64) -> Layout {
        Layout { address: bytes.as_mut_ptr() as u64, pitch, slice }
    }

    #[test]
    fn copy_box_leaves_the_bytes_around_it() {
        let mut src: Vec<u8> = (0..24).collect();
        let mut dst = vec![99u8; 16];
        let extent = Extent { width: 2, height: 2, depth: 2 };
        let work = Work::Copy(Copy {
            dst: layout(&mut dst, 4, 8),
            src: layout(&mut src, 3, 12),
            extent,
            path: Path::SameDevice,
            defect: None,
            traffic: None,
            snapshot: None,
            read: None,
        });
        work.run();
        assert_eq!(dst, [0, 1, 99, 99, 3, 4, 99, 99, 12, 13, 99, 99, 15, 16, 99, 99]);
    }

    #[test]
    fn copy_with_snapshot_ignores_later_changes() {
        let mut src = vec![1u8, 2, 3, 4, 5, 6];
        let mut dst = vec![0u8; 4];
        let extent = Extent { width: 2, height: 2, depth: 1 };
        let mut copy = Copy {
            dst: layout(&mut dst, 2, 0),
            src: layout(&mut src, 3, 0),
            extent,
            path: Path::Host,
            defect: None,
            traffic: None,
            snapshot: None,
            read: None,
        };
        copy.take_snapshot();
        src.fill(0);
        Work::Copy(copy).run();
        assert_eq!(dst, [1, 2, 4, 5]);
    }

    #[test]
    fn corrupt_copy_has_a_wrong_byte_in_each_row() {
        let mut src = vec![1u8; 8];
        let mut dst = vec![0u8; 8];
        let (dst_layout, src_layout) = (layout(&mut dst, 4, 0), layout(&mut src, 4, 0));
        let extent = Extent { width: 2, height: 2, depth: 1 };
        let defect = Some(Defect::Corrupt);
        let copy = Copy {
            dst: dst_layout,
            src: src_layout,
            extent,
            path: Path::Direct,
            defect,
            traffic: None,
            snapshot: None,
            read: None,
        };
        Work::Copy(copy).run();
        assert_eq!(dst, [0x56, 1, 0, 0, 0x56, 1, 0, 0]);
    }

    #[test]
    fn drawn_is_the_same_for_the_same_and_differs_by_each_part() {
        let all = [[1, 1, 1], [2, 1, 1], [1, 2, 1], [1, 1, 2]].map(drawn);
        assert_eq!(drawn([1, 1, 1]), all[0]);
        assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), all.len());
    }

    #[test]
    fn fill_repeats_units() {
        let mut dst = vec![0u8; 8];
        let fill = Fill { dst: layout(&mut dst, 0, 0), extent: Extent::linear(6), value: 0x0403_0201, unit: 2 };
        Work::Fill(fill).run();
        assert_eq!(dst, [1, 2, 1, 2, 1, 2, 0, 0]);
    }
}
