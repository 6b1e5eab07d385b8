//! A thread's part of a file: where its next record is, what a call notes in one, and which chunk comes after that.

use std::hint::cold_path;
use std::mem::offset_of;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicI16, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, fence};

use super::Writer;
use crate::layout::{
    CHUNK_HEADER_BYTES, Capture, ChunkKind, DeviceTime, RECORD_BYTES, RECORDS, State, chunk, pack, record,
};
use crate::machine;

/// How many calls enclose each other at most whose records know of each other.
const NESTED: usize = 4;

/// Which records of a thread are of calls under way, outermost first.
pub type Open = [u32; NESTED];

/// A record as it lies in the file. All fields are atomic, because the file may be read and written meanwhile; that costs
/// nothing.
#[derive(Debug)]
#[repr(C)]
struct Cell {
    start: AtomicU64,
    took: AtomicU32,
    result: AtomicI16,
    function: AtomicU8,
    path: AtomicU8,
    src: AtomicU64,
    dst: AtomicU64,
    bytes: AtomicU64,
    stream: AtomicU64,
    device_after: AtomicU32,
    device_nanos: AtomicU32,
    site: AtomicU16,
    src_device: AtomicU8,
    dst_device: AtomicU8,
    findings: [AtomicU8; 2],
    parent: AtomicU8,
    state: AtomicU8,
}

const _: () = {
    assert!(cfg!(target_endian = "little"));
    assert!(size_of::<Cell>() == RECORD_BYTES && align_of::<Cell>() == 8);
    assert!(offset_of!(Cell, start) == record::START && offset_of!(Cell, took) == record::TOOK);
    assert!(offset_of!(Cell, result) == record::RESULT && offset_of!(Cell, function) == record::FUNCTION);
    assert!(offset_of!(Cell, path) == record::PATH && offset_of!(Cell, stream) == record::STREAM);
    assert!(offset_of!(Cell, src) == record::SRC && offset_of!(Cell, dst) == record::DST);
    assert!(offset_of!(Cell, bytes) == record::BYTES && offset_of!(Cell, site) == record::SITE);
    assert!(offset_of!(Cell, device_after) == record::DEVICE_AFTER);
    assert!(offset_of!(Cell, device_nanos) == record::DEVICE_NANOS);
    assert!(offset_of!(Cell, src_device) == record::SRC_DEVICE);
    assert!(offset_of!(Cell, dst_device) == record::DST_DEVICE);
    assert!(offset_of!(Cell, findings) == record::FINDINGS && offset_of!(Cell, parent) == record::PARENT);
    assert!(offset_of!(Cell, state) == record::STATE);
};

/// The end of a chunk's header: a call without a record, which may block.
#[derive(Debug)]
#[repr(C)]
struct Slot {
    when: AtomicU64,
    handle: AtomicU64,
    site: AtomicU16,
    function: AtomicU8,
    state: AtomicU8,
}

impl Slot {
    fn is_open(&self) -> bool {
        self.state.load(Relaxed) == State::Begun.number()
    }
}

const _: () = {
    assert!(offset_of!(Slot, handle) == chunk::HANDLE - chunk::WAIT);
    assert!(offset_of!(Slot, site) == chunk::SITE - chunk::WAIT);
    assert!(offset_of!(Slot, function) == chunk::FUNCTION - chunk::WAIT);
    assert!(offset_of!(Slot, state) == chunk::STATE - chunk::WAIT);
    assert!(chunk::WAIT + size_of::<Slot>() <= CHUNK_HEADER_BYTES);
};

/// A thread's part of a file: zeros at first. It has nothing to drop.
#[derive(Debug, Default)]
pub struct Segment {
    /// Where the thread's next record is, and, in the highest bits, how many are left of its chunk. One word, so that a signal
    /// handler that copies finds what was before a change, or after it.
    pub(super) next: AtomicU64,
    /// The room for records in the chunks that it has had.
    pub(super) room: AtomicU32,
    /// Which of them enclose the next, outermost first.
    open: [AtomicU32; NESTED],
    /// Where calls without a record are noted: in its last chunk.
    slot: AtomicPtr<Slot>,
    /// How many chunks it has had.
    pub(super) chunks: std::cell::Cell<u32>,
    /// The thread's id and name, as the kernel has told them.
    thread: std::cell::Cell<u32>,
    name: std::cell::Cell<[u8; 16]>,
}

/// Space in a chunk that is one thread's alone: a header, and room for so many records behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    pub(super) start: *mut u8,
    pub(super) records: u32,
}

impl Stretch {
    /// All of a chunk.
    fn whole(start: *mut u8) -> Self {
        Self { start, records: RECORDS as u32 }
    }

    /// The rest of a chunk that a thread has left, of a word like [`Segment::next`]; none if a record has no room there.
    pub(super) fn of(word: u64) -> Option<Self> {
        let records = Segment::left(word).checked_sub(1).filter(|&records| records > 0)?;
        Some(Self { start: Segment::cell(word).cast(), records })
    }
}

/// The record of a call that has begun.
#[derive(Clone, Copy, Debug)]
pub struct OpenRecord(&'static Cell);

/// The bits of a state that say what is known of the time that the GPU took, and how many calls enclose it.
const DEVICE_TIME: u8 = 3 << 4;
const DEPTH: u8 = 3 << 6;

impl Segment {
    /// No address of a process has this bit, or a higher one, unless it asked for such addresses.
    const LEFT: u32 = 48;
    /// Set as long as there is one left. The bits below it, from [`Segment::LEFT`] on, say how many come after that.
    pub(super) const ROOM: u64 = 1 << 63;
    const MOST_LEFT: u32 = (1 << (63 - Self::LEFT)) - 1;

    /// Whether there is room for one more record.
    #[inline(always)]
    pub fn has_room(&self) -> bool {
        self.next.load(Relaxed) & Self::ROOM != 0
    }

    #[inline(always)]
    fn slot(&self) -> Option<&'static Slot> {
        // SAFETY: in a chunk, which stays mapped, and never anything but atomics.
        unsafe { self.slot.load(Relaxed).as_ref() }
    }

    /// Which calls enclose the next.
    #[inline(always)]
    pub fn open(&self) -> Open {
        self.open.each_ref().map(|open| open.load(Relaxed))
    }

    /// Puts that back: the calls inside a signal handler have returned.
    #[inline(always)]
    pub fn reopen(&self, before: Open) {
        self.open.iter().zip(before).for_each(|(open, before)| open.store(before, Relaxed));
    }

    /// Notes a call that gets no record and may block. False if the thread has had no chunk yet.
    #[inline(always)]
    pub fn waits(&self, function: u8, site: u16, handle: u64, now: u64) -> bool {
        let Some(slot) = self.slot() else { return false };
        slot.state.store(0, Relaxed);
        // Whoever finds any of the new words finds 0, or the state behind them.
        fence(Release);
        slot.when.store(now, Relaxed);
        slot.handle.store(handle, Relaxed);
        slot.site.store(site, Relaxed);
        slot.function.store(function, Relaxed);
        slot.state.store(State::Begun.number(), Release);
        true
    }

    /// Notes that it has returned.
    #[inline(always)]
    pub fn note_return(&self, now: u64) {
        if let Some(slot) = self.slot().filter(|slot| slot.is_open()) {
            slot.when.store(now, Relaxed);
            slot.state.store(State::Done.number(), Release);
        }
    }

    /// Takes the next record; and how many come after it in its chunk. There was room when the caller looked.
    #[inline(always)]
    fn take(&self) -> Option<(&'static Cell, u32)> {
        let step = (RECORD_BYTES as u64).wrapping_sub(1 << Self::LEFT);
        // If a signal handler has taken the last meanwhile, there is still none left afterwards.
        // SAFETY: a word of this thread, which no other writes.
        let word = unsafe { machine::add_unlocked(self.next.as_ptr(), step) };
        if word & Self::ROOM == 0 {
            cold_path();
            return None;
        }
        // SAFETY: a record of this thread's chunk, which stays mapped.
        let cell = unsafe { NonNull::new_unchecked(Self::cell(word)).as_ref() };
        Some((cell, (word >> Self::LEFT) as u32 & Self::MOST_LEFT))
    }

    /// The record that a word says is next.
    #[inline(always)]
    fn cell(word: u64) -> *mut Cell {
        let address = word << (u64::BITS - Self::LEFT) >> (u64::BITS - Self::LEFT);
        ptr::with_exposed_provenance_mut(address as usize)
    }

    /// How many records a word has room for.
    pub(super) fn left(word: u64) -> u32 {
        if word & Self::ROOM == 0 { 0 } else { ((word >> Self::LEFT) as u32 & Self::MOST_LEFT) + 1 }
    }

    /// Has the thread's next records be those of a stretch that nobody else has.
    fn continue_at(&self, Stretch { start, records }: Stretch) {
        const _: () = assert!((RECORDS as u64 - 1) << Segment::LEFT < Segment::ROOM);
        let first = start.wrapping_add(CHUNK_HEADER_BYTES);
        let word = first.expose_provenance() as u64 | u64::from(records - 1) << Self::LEFT | Self::ROOM;
        self.next.store(word, Release);
    }

    /// Begins the record of a call that `depth` calls enclose, from the place in the code with the number `site`. None if the
    /// thread's chunk is full: it gets another by [`Writer::extend`].
    #[inline(always)]
    pub fn begin(&self, depth: usize, function: u8, site: u16, start: u64) -> Option<OpenRecord> {
        if !self.has_room() {
            cold_path();
            return None;
        }
        // None if a signal handler has taken the last since.
        let (cell, left) = self.take()?;
        // The one after the next is nowhere near yet. Behind a chunk it may be anything: nothing comes of that.
        machine::prefetch_to_write(ptr::from_ref(cell).wrapping_add(2).cast());
        // Where it lies, whoever begins first. If a signal handler has gone on to another chunk since, it is out of reach of the others.
        let number = self.room.load(Relaxed).wrapping_sub(left);
        let distance = match depth.checked_sub(1).and_then(|outer| self.open.get(outer)) {
            Some(outer) => number.wrapping_sub(outer.load(Relaxed)),
            None => 0,
        };
        if let Some(open) = self.open.get(depth) {
            open.store(number, Relaxed);
        }
        cell.start.store(start, Relaxed);
        cell.site.store(site, Relaxed);
        cell.function.store(function, Relaxed);
        cell.parent.store(u8::try_from(distance).unwrap_or(0), Relaxed);
        cell.state.store((depth.min(3) as u8) << 6 | State::Begun.number(), Release);
        Some(OpenRecord(cell))
    }
}

impl OpenRecord {
    /// Notes what a copy copies: addresses of source and destination, bytes, and the stream.
    #[inline(always)]
    pub fn copies(self, src: u64, dst: u64, bytes: u64, stream: u64) {
        let Self(cell) = self;
        cell.src.store(src, Relaxed);
        cell.dst.store(dst, Relaxed);
        cell.bytes.store(bytes, Relaxed);
        cell.stream.store(stream, Relaxed);
    }

    /// Notes the devices that a call is about.
    #[inline(always)]
    pub fn between(self, src: Option<u8>, dst: Option<u8>) {
        let Self(cell) = self;
        cell.src_device.store(src.map_or(0, |device| device.saturating_add(1)), Relaxed);
        cell.dst_device.store(dst.map_or(0, |device| device.saturating_add(1)), Relaxed);
    }

    /// Notes the path of a copy, by its number.
    #[inline(always)]
    pub fn takes(self, path: u8) {
        self.0.path.store(path, Relaxed);
    }

    /// Notes that the call has returned, and what it had to do with a capture. From now on it counts.
    #[inline(always)]
    pub fn done(self, end: u64, result: i32, capture: Capture) {
        let Self(cell) = self;
        cell.took.store(pack(end.saturating_sub(cell.start.load(Relaxed))), Relaxed);
        cell.result.store(result.clamp(i16::MIN.into(), i16::MAX.into()) as i16, Relaxed);
        let kept = cell.state.load(Relaxed) & (DEPTH | DEVICE_TIME);
        cell.state.store(kept | capture.number() << 2 | State::Done.number(), Release);
    }

    /// Takes over from the record of a call inside this one what copies where and how.
    #[inline(always)]
    pub fn like(self, inner: Self) {
        let (Self(cell), Self(inner)) = (self, inner);
        for (to, from) in [
            (&cell.src, &inner.src),
            (&cell.dst, &inner.dst),
            (&cell.bytes, &inner.bytes),
            (&cell.stream, &inner.stream),
        ] {
            to.store(from.load(Relaxed), Relaxed);
        }
        for (to, from) in
            [(&cell.src_device, &inner.src_device), (&cell.dst_device, &inner.dst_device), (&cell.path, &inner.path)]
        {
            to.store(from.load(Relaxed), Relaxed);
        }
    }

    /// Makes it the record of a part of what a call has copied that has returned: `copies` copies of so many bytes together.
    pub fn set_part_of(self, call: Self, copies: u64, bytes: u64) {
        let (Self(cell), Self(call)) = (self, call);
        self.copies(copies, 0, bytes, call.stream.load(Relaxed));
        cell.start.store(call.start.load(Relaxed), Relaxed);
        cell.took.store(call.took.load(Relaxed), Relaxed);
        cell.result.store(call.result.load(Relaxed), Relaxed);
        cell.state.store(cell.state.load(Relaxed) & DEPTH | State::Done.number(), Release);
    }

    /// Notes, after the fact, more exactly where the call comes from: the number of another place.
    pub fn comes_from(self, site: u16) {
        self.0.site.store(site, Relaxed);
    }

    /// The number of the place that the call comes from.
    pub fn site(self) -> u16 {
        self.0.site.load(Relaxed)
    }

    /// The devices that the call is about, source first, if both are known.
    pub fn devices(self) -> Option<[u8; 2]> {
        let Self(cell) = self;
        let device = |device: &AtomicU8| device.load(Relaxed).checked_sub(1);
        Some([device(&cell.src_device)?, device(&cell.dst_device)?])
    }

    /// How many bytes it copies.
    pub fn bytes(self) -> u64 {
        self.0.bytes.load(Relaxed)
    }

    /// The part in a capture of a call that has returned.
    pub fn capture(self) -> Capture {
        Capture::numbered(self.0.state.load(Relaxed) >> 2 & 3).unwrap_or(Capture::None)
    }

    /// Notes, after the fact, that the call breaks a rule. A rule that there is no room for is left out.
    pub fn breaks(self, rule: u8) {
        let number = rule.saturating_add(1);
        for finding in &self.0.findings {
            match finding.compare_exchange(0, number, Relaxed, Relaxed) {
                Err(other) if other != number => {}
                _ => return,
            }
        }
    }

    /// Notes that the time of the GPU is being measured.
    pub fn mark_timed(self) {
        self.set_device_time(DeviceTime::Pending);
    }

    /// Notes what came of it: when the GPU began, in ticks, and how long it took in nanoseconds; none if that could not be
    /// measured.
    pub fn timed(self, measured: Option<(u64, u64)>) {
        let Self(cell) = self;
        match measured {
            Some((start, nanos)) => {
                let after = start.saturating_sub(cell.start.load(Relaxed));
                cell.device_after.store(pack(after), Relaxed);
                cell.device_nanos.store(pack(nanos), Release);
                self.set_device_time(DeviceTime::Known);
            }
            None => self.set_device_time(DeviceTime::Failed),
        }
    }

    /// Notes of a copy with the host a sample of its bytes, of 31 bits, and when it was taken, in ticks; 0 for none.
    pub fn sampled(self, when: u64, sample: u32) {
        let Self(cell) = self;
        // A reader that finds the sample finds the time.
        cell.device_after.store(pack(when.saturating_sub(cell.start.load(Relaxed))), Relaxed);
        cell.device_nanos.store(sample, Release);
    }

    /// Notes that a copy with the host had ended when its call returned.
    pub fn mark_ended(self) {
        self.set_device_time(DeviceTime::Known);
    }

    fn set_device_time(self, time: DeviceTime) {
        let set = |word: u8| Some(word & !DEVICE_TIME | time.number() << 4);
        let _ = self.0.state.fetch_update(Release, Relaxed, set);
    }
}

impl Writer {
    /// Gives a thread what another has left of its chunk, if it begins, or else a chunk. False if there is no more room; whoever is told
    /// first gets the reason. The caller holds signals back: space is taken under a lock.
    #[cold]
    pub fn extend(&self, segment: &Segment) -> Result<bool, String> {
        // A signal handler may have come before.
        if segment.has_room() {
            return Ok(true);
        }
        let left = if segment.chunks.get() == 0 { self.take_left() } else { None };
        let stretch = match left {
            Some(left) => Some(left),
            None => self.take_chunk()?.map(Stretch::whole),
        };
        let Some(stretch) = stretch else { return Ok(false) };
        let (start, first) = (stretch.start, segment.room.load(Relaxed));
        self.describe(start, segment, first);
        stretch.link();
        segment.continue_at(stretch);
        segment.room.store(first.wrapping_add(stretch.records), Relaxed);
        // A call that is under way ends where it began.
        if !segment.slot().is_some_and(Slot::is_open) {
            // SAFETY: the stretch is as large as that.
            segment.slot.store(unsafe { start.add(chunk::WAIT) }.cast(), Relaxed);
        }
        Ok(true)
    }

    /// Notes whose calls a chunk holds, and how many come before them.
    fn describe(&self, start: *mut u8, segment: &Segment, first: u32) {
        // A thread keeps its number; its name may change, mostly when it is young.
        let chunks = segment.chunks.get();
        if chunks == 0 {
            // SAFETY: gettid has no arguments.
            segment.thread.set(unsafe { libc::syscall(libc::SYS_gettid) } as u32);
        }
        if chunks == 0 || chunks.is_power_of_two() {
            // SAFETY: writes at most 16 bytes there.
            unsafe { libc::prctl(libc::PR_GET_NAME, segment.name.as_ptr()) };
        }
        segment.chunks.set(chunks.wrapping_add(1));
        // SAFETY: the stretch is this thread's alone, and as large as that.
        unsafe {
            start.add(chunk::THREAD).cast::<u32>().write(segment.thread.get());
            start.add(chunk::FIRST).cast::<u64>().write(u64::from(first));
            start.add(chunk::NAME).cast::<[u8; 16]>().write(segment.name.get());
            start.add(chunk::TIME).cast::<u64>().write(self.now());
            (*start.add(chunk::KIND).cast::<AtomicU32>()).store(ChunkKind::Calls.number(), Release);
        }
    }
}
