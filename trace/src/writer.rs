//! Writing files in place, by any number of threads, without a lock or a system call for a call.
//!
//! A file is mapped into memory for good: nothing that was handed out is ever taken back. What is mapped lies in the page
//! cache from the moment it is written, so that only the end of the system loses it.
//!
//! A thread takes a chunk at a time by one atomic addition and fills it alone. Where its next record is and how many are left is
//! one word, changed by one instruction: a signal handler that copies in the middle of that takes another record, and neither is
//! lost. Space is taken before it is needed, since every 64th record touches a new page.
//!
//! Ticks are those of the time-stamp counter where it is invariant and the system relies on it. What they are in nanoseconds is
//! known from comparisons with the system's clocks, the first two at once, then after twice as long each time.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, _MM_HINT_ET0, _mm_prefetch, _rdtsc};
use std::convert::Infallible;
use std::ffi::CString;
use std::fs::File;
use std::hint::cold_path;
use std::io;
use std::mem::{ManuallyDrop, offset_of};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI16, AtomicU8, AtomicU16, AtomicU32, AtomicU64};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::layout::{
    CALIBRATIONS, CHUNK_BYTES, CHUNK_HEADER_BYTES, Capture, ChunkKind, Clock, DeviceTime, HAS_EXITED, HEADER_BYTES,
    MAGIC, NOTE_COMMIT, NOTE_HEADER_BYTES, NOTE_MOST, NoteKind, RECORD_BYTES, RECORDS, State, VERSION, chunk, header,
    pack, record,
};

/// How many calls enclose each other at most whose records know of each other.
const NESTED: usize = 4;
/// Chunks that space is taken for at a time. What is taken is brought into memory, which would cost every 64th call a
/// microsecond or two otherwise.
const STEP: u64 = 32;
/// How many chunks are to be there that nobody has taken yet.
const AHEAD: u64 = 128;
/// After so many ticks the clocks are compared for the second time, then after twice as many, and so on.
const FIRST_CALIBRATION: u64 = 1 << 14;
const LAST_CALIBRATION: u64 = 1 << 30;

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

/// What a thread writes to: zeros at first. It has nothing to drop.
#[derive(Debug, Default)]
pub struct Segment {
    /// Where the thread's next record is, and, in the highest bits, how many are left of its chunk. One word, so that a signal
    /// handler that copies finds what was before a change, or after it.
    next: AtomicU64,
    /// How many records it has begun.
    begun: AtomicU32,
    /// Which of them enclose the next, outermost first.
    open: [AtomicU32; NESTED],
    /// How many chunks it has had.
    chunks: std::cell::Cell<u32>,
    /// The thread's id and name, as the kernel has told them.
    thread: std::cell::Cell<u32>,
    name: std::cell::Cell<[u8; 16]>,
}

/// The record of a call that has begun.
#[derive(Clone, Copy, Debug)]
pub struct Begun(&'static Cell);

/// The bits of a state that say what is known of the time that the GPU took, and how many calls enclose it.
const DEVICE_TIME: u8 = 3 << 4;
const DEPTH: u8 = 3 << 6;

impl Segment {
    /// No address of a process has this bit, or a higher one, unless it asked for such addresses.
    const LEFT: u32 = 48;
    /// Set as long as there is one left. The bits below it, from [`Segment::LEFT`] on, say how many come after that.
    const ROOM: u64 = 1 << 63;

    /// Whether there is room for one more record.
    #[inline(always)]
    pub fn has_room(&self) -> bool {
        self.next.load(Relaxed) & Self::ROOM != 0
    }

    /// Takes the next record. There was room when the caller looked.
    #[inline(always)]
    fn take(&self) -> Option<&'static Cell> {
        let mut word = (RECORD_BYTES as u64).wrapping_sub(1 << Self::LEFT);
        // One instruction, inside which no signal handler takes it too; other threads have their own, so that it need not be
        // locked. If a handler has taken the last meanwhile, there is still none left afterwards.
        // SAFETY: changes the word only.
        unsafe {
            asm!(
                "xadd qword ptr [{next}], {word}",
                next = in(reg) self.next.as_ptr(),
                word = inout(reg) word,
                options(nostack),
            );
        }
        if word & Self::ROOM == 0 {
            cold_path();
            return None;
        }
        let address = word << (u64::BITS - Self::LEFT) >> (u64::BITS - Self::LEFT);
        let cell: *const Cell = ptr::with_exposed_provenance(address as usize);
        // SAFETY: a record of this thread's chunk, which stays mapped.
        Some(unsafe { NonNull::new_unchecked(cell.cast_mut()).as_ref() })
    }

    /// Has the thread's next records be those of a chunk that nobody else has, unless a signal handler has had it go on elsewhere
    /// since its word was `before`.
    fn continue_at(&self, first: *mut u8, before: u64) {
        const AFTER_IT: u64 = RECORDS as u64 - 1;
        const _: () = assert!(AFTER_IT << Segment::LEFT < Segment::ROOM);
        let word = first.expose_provenance() as u64 | AFTER_IT << Self::LEFT | Self::ROOM;
        let _ = self.next.compare_exchange(before, word, Release, Relaxed);
    }

    /// Begins the record of a call that `depth` calls enclose, from the place in the code with the number `site`. None if the
    /// thread's chunk is full: it gets another by [`Writer::extend`].
    #[inline(always)]
    pub fn begin(&self, depth: usize, function: u8, site: u16, start: u64) -> Option<Begun> {
        if !self.has_room() {
            cold_path();
            return None;
        }
        self.begin_next(depth, function, site, start)
    }

    /// The same, for who has seen that there is room. None if a signal handler has taken the last since.
    #[inline(always)]
    pub fn begin_next(&self, depth: usize, function: u8, site: u16, start: u64) -> Option<Begun> {
        let cell = self.take()?;
        // The one after the next is nowhere near yet. Behind a chunk it may be anything: nothing comes of that.
        prefetch(ptr::from_ref(cell).wrapping_add(2));
        let number = self.begun.load(Relaxed);
        self.begun.store(number.wrapping_add(1), Relaxed);
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
        Some(Begun(cell))
    }
}

impl Begun {
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

    /// The same as [`Begun::done`] for a copy that has succeeded, outside every capture, which no call encloses, and of which no
    /// time of the GPU is asked.
    #[inline(always)]
    pub fn copied(self, end: u64) {
        let Self(cell) = self;
        let took = end.saturating_sub(cell.start.load(Relaxed));
        cell.took.store(pack(took), Relaxed);
        cell.result.store(0, Relaxed);
        cell.state.store(Capture::None.number() << 2 | State::Done.number(), Release);
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

    /// Notes which function the one call inside this one is of, if that has no record of its own: the same copy, with the same
    /// return. Of calls only that no other encloses.
    #[inline(always)]
    pub fn is_made_by(self, function: u8) {
        self.0.parent.store(function.saturating_add(1), Relaxed);
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
    pub fn is_part_of(self, call: Self, copies: u64, bytes: u64) {
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

    /// What a call that has returned had to do with a capture.
    pub fn capture(self) -> Capture {
        Capture::numbered(self.0.state.load(Relaxed) >> 2 & 3).unwrap_or(Capture::None)
    }

    /// Notes, after the fact, that the call breaks a rule. What there is no room for is left out.
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
    pub fn is_timed(self) {
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
                cell.device_nanos.store(pack(nanos), Relaxed);
                self.set_device_time(DeviceTime::Known);
            }
            None => self.set_device_time(DeviceTime::Failed),
        }
    }

    fn set_device_time(self, time: DeviceTime) {
        let set = |word: u8| Some(word & !DEVICE_TIME | time.number() << 4);
        let _ = self.0.state.fetch_update(Release, Relaxed, set);
    }
}

/// What a file is made with.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder. It is made if there is none.
    pub folder: PathBuf,
    /// The file's name.
    pub name: String,
    /// How many bytes it may have.
    pub limit: u64,
}

/// A file that is being written.
#[derive(Debug)]
pub struct Writer {
    /// The whole mapping. Only the first `ready` chunks of it are there.
    base: *mut u8,
    /// How many chunks the file can have.
    most: u64,
    clock: Clock,
    /// How many chunks there is space for.
    ready: AtomicU64,
    space: Mutex<Space>,
    /// Whether there is no more space; `space` knows why.
    is_full: AtomicBool,
    /// Who waits for chunks to be taken.
    taken: Condvar,
    is_awaited: AtomicBool,
    notes: Mutex<Notes>,
    /// When clocks are to be compared again, in ticks.
    calibration_due: AtomicU64,
    calibration: Mutex<(usize, u64)>,
    /// See [`own`].
    own: &'static AtomicU32,
}

// SAFETY: the mapping is never undone, and all that several threads write to in it is atomic or under a lock.
unsafe impl Send for Writer {}
// SAFETY: as above.
unsafe impl Sync for Writer {}

/// Where more space comes from.
#[derive(Debug)]
struct Space {
    /// Never closed by us: by then the number may be somebody else's.
    file: ManuallyDrop<File>,
    /// Device and inode: a program that closes all descriptors may get our number for a file of its own.
    identity: (u64, u64),
    path: PathBuf,
    /// Why there will be no more space.
    exhausted: Option<Exhausted>,
}

/// Why there is no more space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exhausted {
    Limit,
    System(i32),
}

/// Where the next note goes.
#[derive(Debug)]
struct Notes {
    at: *mut u8,
    left: usize,
}

impl Writer {
    /// Makes a file for the calling process, for its user only. Fails if there is such a file, if it would lie behind a
    /// symbolic link in `folder`, or if there is no space for it.
    pub fn create(options: &Options) -> io::Result<Self> {
        let most = options.limit.saturating_sub(HEADER_BYTES as u64) / CHUNK_BYTES as u64;
        if most < 2 {
            return Err(io::Error::other(format!(
                "a limit of {} bytes has no room for calls; {} is the least",
                options.limit,
                HEADER_BYTES + 2 * CHUNK_BYTES
            )));
        }
        make_folder(&options.folder)?;
        // The program may go elsewhere.
        let path = std::path::absolute(&options.folder).unwrap_or_else(|_| options.folder.clone()).join(&options.name);
        let file = open(&path, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL)?;
        Self::map(file, &path, options.limit, most).inspect_err(|_| {
            // Nobody can make anything of it.
            let _ = std::fs::remove_file(&path);
        })
    }

    fn map(file: File, path: &Path, limit: u64, most: u64) -> io::Result<Self> {
        let step = STEP.min(most);
        allocate(&file, 0, HEADER_BYTES as u64 + step * CHUNK_BYTES as u64)?;
        let bytes = HEADER_BYTES as u64 + most * CHUNK_BYTES as u64;
        let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
        // SAFETY: a new mapping at an address that the system chooses.
        let base =
            unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_NONE, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let metadata = file.metadata()?;
        let writer = Self {
            base: base.cast(),
            most,
            clock: clock(),
            ready: AtomicU64::new(step),
            space: Mutex::new(Space {
                file: ManuallyDrop::new(file),
                identity: (metadata.dev(), metadata.ino()),
                path: path.to_owned(),
                exhausted: None,
            }),
            is_full: AtomicBool::new(false),
            taken: Condvar::new(),
            is_awaited: AtomicBool::new(false),
            notes: Mutex::new(Notes { at: ptr::null_mut(), left: 0 }),
            calibration_due: AtomicU64::new(0),
            calibration: Mutex::new((0, FIRST_CALIBRATION)),
            own: own()?,
        };
        writer.open_up(0, step)?;
        writer.calibrate(writer.now());
        writer.populate(0, step);
        for (offset, value) in [
            (header::HEADER_BYTES, HEADER_BYTES as u32),
            (header::CHUNK_BYTES, CHUNK_BYTES as u32),
            (header::RECORD_BYTES, RECORD_BYTES as u32),
            (header::PROCESS, std::process::id()),
            (header::CLOCK, writer.clock.number()),
            (header::MAJOR, u32::from(VERSION.0) | u32::from(VERSION.1) << 16),
        ] {
            writer.u32_at(offset).store(value, Relaxed);
        }
        writer.u64_at(header::LIMIT).store(limit, Relaxed);
        // Even of the shortest program it is known how fast the clock runs.
        writer.calibrate(writer.now());
        writer.u64_at(header::MAGIC).store(u64::from_le_bytes(MAGIC), Release);
        Ok(writer)
    }

    /// The file's clock.
    #[inline(always)]
    pub fn now(&self) -> u64 {
        match self.clock {
            Clock::TimeStampCounter => time_stamp(),
            Clock::Monotonic => nanos(libc::CLOCK_MONOTONIC),
        }
    }

    /// The file's clock, where it takes no call to read it.
    #[inline(always)]
    pub fn now_at_once(&self) -> Option<u64> {
        match self.clock {
            Clock::TimeStampCounter => Some(time_stamp()),
            Clock::Monotonic => None,
        }
    }

    /// Whether this is a child of the process whose file it is, however it was made, and must leave it alone.
    #[inline(always)]
    pub fn is_in_a_child(&self) -> bool {
        match self.own.load(Relaxed) {
            OWN => false,
            0 => true,
            process => is_another(process),
        }
    }

    /// Counts a call that finds no room, if there is no more room for any.
    #[inline(always)]
    pub fn drops(&self) -> bool {
        let is_full = self.is_full.load(Relaxed);
        if is_full {
            self.drop_call();
        }
        is_full
    }

    /// Counts a call that is not recorded.
    #[inline(always)]
    pub fn drop_call(&self) {
        self.u64_at(header::DROPPED).fetch_add(1, Relaxed);
    }

    /// Keeps the status that the process gives to `exit`. Takes no lock: a signal handler may have called it.
    pub fn exits(&self, status: u8) {
        if !self.is_in_a_child() {
            self.u64_at(header::EXIT).store(HAS_EXITED | u64::from(status), Relaxed);
        }
    }

    /// How many calls have found no room.
    pub fn dropped(&self) -> u64 {
        self.u64_at(header::DROPPED).load(Relaxed)
    }

    /// Takes space before it is needed: the work of a thread of its own. It ends when `is_over` says so, which is asked
    /// every now and then.
    pub fn stay_ahead(&self, is_over: impl Fn() -> bool) {
        /// What the process then lives longer, at most.
        const OFTEN: Duration = Duration::from_millis(50);
        let mut space = lock(&self.space);
        loop {
            let ready = self.ready.load(Relaxed);
            let taken = self.u64_at(header::CHUNKS).load(Relaxed);
            if space.exhausted.is_some() || ready == self.most {
                return;
            }
            if ready < taken + AHEAD {
                // Whoever needs the space meets the error again, and says it.
                if self.grow(&mut space).is_err() {
                    return;
                }
                // Those who wait for the lock need what is there now.
                drop(space);
                space = lock(&self.space);
                continue;
            }
            self.is_awaited.store(true, SeqCst);
            let mut is_idle = false;
            if self.u64_at(header::CHUNKS).load(SeqCst) + AHEAD <= ready {
                let waited = self.taken.wait_timeout(space, OFTEN).unwrap_or_else(PoisonError::into_inner);
                (space, is_idle) = (waited.0, waited.1.timed_out());
            }
            self.is_awaited.store(false, Relaxed);
            if is_idle && is_over() {
                return;
            }
        }
    }

    /// Gives a thread another chunk, if there is one for which no space has to be taken from the disk. A signal handler may get
    /// between, take one too, and go on or leave by `longjmp`: then ours stays empty, so that a thread's chunks are in its order.
    #[cold]
    pub fn extend_at_once(&self, segment: &Segment) -> bool {
        let take = || {
            let ready = self.ready.load(Acquire);
            let chunks = self.u64_at(header::CHUNKS);
            let taken = chunks.fetch_update(SeqCst, Relaxed, |taken| (taken < ready).then_some(taken + 1));
            let Ok(number) = taken else { return Ok::<_, Infallible>(None) };
            self.wake_helper(number);
            Ok(Some(self.chunk(number)))
        };
        self.hand_out(segment, take).unwrap_or_default()
    }

    /// Gives a thread another chunk. False if there is no more room; whoever is told first gets the reason.
    #[cold]
    pub fn extend(&self, segment: &Segment) -> Result<bool, String> {
        self.hand_out(segment, || self.take_chunk())
    }

    /// Gives a thread a chunk that `take` takes, or more, if a signal handler fills one meanwhile.
    fn hand_out<E>(&self, segment: &Segment, take: impl Fn() -> Result<Option<*mut u8>, E>) -> Result<bool, E> {
        loop {
            let before = segment.next.load(Relaxed);
            if before & Segment::ROOM != 0 {
                return Ok(true);
            }
            let Some(start) = take()? else { return Ok(segment.has_room()) };
            self.describe(start, segment);
            // SAFETY: the chunk is as large as that.
            segment.continue_at(unsafe { start.add(CHUNK_HEADER_BYTES) }, before);
        }
    }

    /// Notes whose calls a chunk holds.
    fn describe(&self, start: *mut u8, segment: &Segment) {
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
        // SAFETY: the chunk is this thread's alone, and as large as that.
        unsafe {
            start.add(chunk::THREAD).cast::<u32>().write(segment.thread.get());
            start.add(chunk::FIRST).cast::<u64>().write(u64::from(segment.begun.load(Relaxed)));
            start.add(chunk::NAME).cast::<[u8; 16]>().write(segment.name.get());
            start.add(chunk::TIME).cast::<u64>().write(self.now());
            (*start.add(chunk::KIND).cast::<AtomicU32>()).store(ChunkKind::Calls.number(), Release);
        }
    }

    /// Writes a note. Strings hold no zeros; what is too long is cut off. False if there is no room.
    pub fn note(&self, kind: NoteKind, number: u32, strings: &[&[u8]]) -> bool {
        let mut text = strings.join(&0);
        text.truncate(NOTE_MOST);
        let whole = NOTE_HEADER_BYTES + text.len().next_multiple_of(8);
        let time = self.now();
        self.calibrate_if_due(time);
        let mut notes = lock(&self.notes);
        if notes.left < whole {
            let Ok(Some(start)) = self.take_chunk() else { return false };
            // SAFETY: the chunk is this writer's notes' alone, and as large as that.
            unsafe {
                start.add(chunk::TIME).cast::<u64>().write(time);
                (*start.add(chunk::KIND).cast::<AtomicU32>()).store(ChunkKind::Notes.number(), Release);
                *notes = Notes { at: start.add(CHUNK_HEADER_BYTES), left: CHUNK_BYTES - CHUNK_HEADER_BYTES };
            }
        }
        let length = text.len() as u32;
        // SAFETY: there are `whole` bytes, which the lock makes ours, aligned to 8.
        unsafe {
            ptr::copy_nonoverlapping(text.as_ptr(), notes.at.add(NOTE_HEADER_BYTES), text.len());
            notes.at.cast::<u32>().write(length);
            notes.at.add(4).cast::<u16>().write(kind.number());
            notes.at.add(8).cast::<u32>().write(number);
            notes.at.add(12).cast::<u32>().write(time as u32);
            notes.at.add(16).cast::<u32>().write((time >> 32) as u32);
            (*notes.at.add(20).cast::<AtomicU32>()).store(length ^ NOTE_COMMIT, Release);
            notes.at = notes.at.add(whole);
        }
        notes.left -= whole;
        true
    }

    /// How many of the file's ticks so many nanoseconds are, as far as is known by now.
    pub fn ticks(&self, nanos: u64) -> u64 {
        let at = |slot: usize| {
            let at = header::CALIBRATIONS + slot * 24;
            (self.u64_at(at).load(Acquire), self.u64_at(at + 8).load(Relaxed))
        };
        let (first, last) = (at(0), (1..CALIBRATIONS).map(at).max().unwrap_or_default());
        let (ticks, elapsed) = (last.0.saturating_sub(first.0), last.1.saturating_sub(first.1));
        match (self.clock, elapsed) {
            (Clock::Monotonic, _) | (_, 0) => nanos,
            _ => (nanos as f64 * (ticks as f64 / elapsed as f64)) as u64,
        }
    }

    /// Whether it is time to compare the clocks.
    #[inline(always)]
    pub fn is_calibration_due(&self, now: u64) -> bool {
        now >= self.calibration_due.load(Relaxed)
    }

    /// When it is time to.
    pub fn calibration_due(&self) -> u64 {
        self.calibration_due.load(Relaxed)
    }

    /// Compares the clocks, if it is time to.
    pub fn calibrate_if_due(&self, now: u64) {
        if self.is_calibration_due(now) {
            self.calibrate(now);
        }
    }

    #[cold]
    fn calibrate(&self, now: u64) {
        let Ok(mut calibration) = self.calibration.try_lock() else { return };
        let (slot, wait) = *calibration;
        // The quickest of a few, in case we are interrupted between the clocks.
        let measured = (0..4).map(|_| {
            let before = self.now();
            let (monotonic, real) = (nanos(libc::CLOCK_MONOTONIC), nanos(libc::CLOCK_REALTIME));
            let after = self.now();
            (after.wrapping_sub(before), before.midpoint(after), monotonic, real)
        });
        let Some((_, ticks, monotonic, real)) = measured.min_by_key(|&(took, ..)| took) else { return };
        let at = header::CALIBRATIONS + slot * 24;
        self.u64_at(at).store(0, Release);
        self.u64_at(at + 8).store(monotonic, Relaxed);
        self.u64_at(at + 16).store(real, Release);
        self.u64_at(at).store(ticks, Release);
        // The last two take turns.
        let following = if slot + 1 == CALIBRATIONS { slot - 1 } else { slot + 1 };
        *calibration = (following, (wait * 2).min(LAST_CALIBRATION));
        self.calibration_due.store(now.saturating_add(wait), Relaxed);
    }

    /// A chunk of zeros that nobody else has. None if there are no more; the first time, with the reason.
    fn take_chunk(&self) -> Result<Option<*mut u8>, String> {
        let chunks = self.u64_at(header::CHUNKS);
        // Not added up for ever by calls that find no room.
        let taken = chunks.fetch_update(SeqCst, Relaxed, |taken| (taken < self.most).then_some(taken + 1));
        let Ok(number) = taken else { return self.exhausted(&mut lock(&self.space), Exhausted::Limit) };
        self.wake_helper(number);
        while number >= self.ready.load(Acquire) {
            let mut space = lock(&self.space);
            if number < self.ready.load(Relaxed) {
                break;
            }
            // At the limit this is one of the last chunks.
            if matches!(space.exhausted, Some(Exhausted::System(_))) {
                self.hand_out_no_more();
                return Ok(None);
            }
            if let Err(error) = self.grow(&mut space) {
                // Before anybody else has the lock: nor may they take space that is there by then.
                self.hand_out_no_more();
                return self.exhausted(&mut space, Exhausted::System(error.raw_os_error().unwrap_or(libc::EIO)));
            }
        }
        Ok(Some(self.chunk(number)))
    }

    /// Has the chunks count as handed out that there is space for: others would seem to have been cut off. There will be no more
    /// space, and whoever calls has its lock.
    fn hand_out_no_more(&self) {
        self.u64_at(header::CHUNKS).fetch_min(self.ready.load(Relaxed), Relaxed);
    }

    /// Where a chunk is that there is space for.
    fn chunk(&self, number: u64) -> *mut u8 {
        // SAFETY: the mapping has room for `most` chunks, and the file for `ready`.
        unsafe { self.base.add(HEADER_BYTES + number as usize * CHUNK_BYTES) }
    }

    /// Wakes who takes space before it is needed, if that is soon. The chunk with this number was taken.
    fn wake_helper(&self, number: u64) {
        if self.is_awaited.load(SeqCst) && number + AHEAD >= self.ready.load(Relaxed) {
            self.taken.notify_one();
        }
    }

    /// Takes space for some more chunks.
    fn grow(&self, space: &mut Space) -> io::Result<()> {
        let ready = self.ready.load(Relaxed);
        let step = STEP.min(self.most - ready);
        space.grow(ready, step)?;
        self.open_up(ready, step)?;
        self.populate(ready, step);
        self.ready.store(ready + step, Release);
        Ok(())
    }

    fn exhausted(&self, space: &mut Space, why: Exhausted) -> Result<Option<*mut u8>, String> {
        if space.exhausted.is_some() {
            return Ok(None);
        }
        space.exhausted = Some(why);
        self.is_full.store(true, Relaxed);
        let path = space.path.display();
        Err(match why {
            Exhausted::Limit => format!("{path} has reached its limit; further calls are only counted"),
            Exhausted::System(code) => {
                format!("{path} cannot grow: {}; further calls are only counted", io::Error::from_raw_os_error(code))
            }
        })
    }

    /// Makes chunks accessible that the file has by now. Its future is out of reach: valgrind reads all that is within reach
    /// when it looks for leaks, and each word past the end of a file is a signal.
    fn open_up(&self, from: u64, count: u64) -> io::Result<()> {
        let (start, bytes) = self.chunks(from, count);
        // SAFETY: within the mapping and the file, where nobody has been handed anything yet.
        if unsafe { libc::mprotect(start, bytes, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Brings chunks into memory, where the system can do that.
    fn populate(&self, from: u64, count: u64) {
        /// Linux 5.14.
        const MADV_POPULATE_WRITE: i32 = 23;
        let (start, bytes) = self.chunks(from, count);
        // SAFETY: within the mapping and the file; pages are only touched.
        unsafe { libc::madvise(start, bytes, MADV_POPULATE_WRITE) };
    }

    /// Where chunks lie, and how many bytes they are; the header comes with the first.
    fn chunks(&self, from: u64, count: u64) -> (*mut libc::c_void, usize) {
        let start = if from == 0 { 0 } else { HEADER_BYTES + from as usize * CHUNK_BYTES };
        let end = HEADER_BYTES + (from + count) as usize * CHUNK_BYTES;
        (self.base.wrapping_add(start).cast(), end - start)
    }

    fn u32_at(&self, offset: usize) -> &AtomicU32 {
        debug_assert!(offset < HEADER_BYTES && offset.is_multiple_of(4));
        // SAFETY: in the header, aligned, and never anything but an atomic.
        unsafe { &*self.base.add(offset).cast() }
    }

    fn u64_at(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset < HEADER_BYTES && offset.is_multiple_of(8));
        // SAFETY: as above.
        unsafe { &*self.base.add(offset).cast() }
    }
}

impl Space {
    fn grow(&mut self, ready: u64, step: u64) -> io::Result<()> {
        let is_ours =
            |file: &File| file.metadata().is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.identity);
        if !is_ours(&self.file) {
            let again = open(&self.path, libc::O_RDWR)?;
            if !is_ours(&again) {
                return Err(io::Error::from_raw_os_error(libc::ENOENT));
            }
            self.file = ManuallyDrop::new(again);
        }
        allocate(&self.file, HEADER_BYTES as u64 + ready * CHUNK_BYTES as u64, step * CHUNK_BYTES as u64)
    }
}

/// Takes space on the disk, so that writing there cannot fail.
fn allocate(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    let (from, count) = (offset.cast_signed(), bytes.cast_signed());
    loop {
        // SAFETY: the descriptor is a file's.
        if unsafe { libc::fallocate(file.as_raw_fd(), 0, from, count) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            // Some file systems cannot; they can be written to.
            Some(libc::EOPNOTSUPP | libc::ENOSYS) => return write_zeros(file, offset, bytes),
            _ => return Err(error),
        }
    }
}

fn write_zeros(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    const ZEROS: &[u8] = &[0; 4096];
    let mut at = offset;
    while at < offset + bytes {
        let count = ZEROS.len().min((offset + bytes - at) as usize);
        file.write_all_at(ZEROS.get(..count).unwrap_or_default(), at)?;
        at += count as u64;
    }
    Ok(())
}

/// What [`own`] says in the process whose file it is. No process has this number.
const OWN: u32 = u32::MAX;

/// A number in memory that a child finds to be 0, unless it shares the process's memory, and so its records too. Where the system
/// cannot do that it is the process.
fn own() -> io::Result<&'static AtomicU32> {
    const BYTES: usize = 4096;
    // SAFETY: a new mapping at an address that the system chooses, which is never undone.
    unsafe {
        let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let page = libc::mmap(ptr::null_mut(), BYTES, rights, kind, -1, 0);
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let is_wiped = libc::madvise(page, BYTES, libc::MADV_WIPEONFORK) == 0;
        let own: &'static AtomicU32 = &*page.cast();
        own.store(if is_wiped { OWN } else { std::process::id() }, Relaxed);
        Ok(own)
    }
}

/// Whether this is another process.
#[cold]
#[inline(never)]
fn is_another(process: u32) -> bool {
    process != std::process::id()
}

fn make_folder(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}

fn open(path: &Path, flags: i32) -> io::Result<File> {
    /// Programs make use of low numbers.
    const LOWEST: i32 = 100;
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a path that ends with zero.
    let low = unsafe { libc::open(path.as_ptr(), flags | libc::O_NOFOLLOW | libc::O_CLOEXEC, 0o600) };
    if low < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor of ours.
    let high = unsafe { libc::fcntl(low, libc::F_DUPFD_CLOEXEC, LOWEST) };
    if high < 0 {
        // SAFETY: as above.
        return Ok(unsafe { File::from_raw_fd(low) });
    }
    // SAFETY: as above; nobody has the number.
    unsafe {
        libc::close(low);
        Ok(File::from_raw_fd(high))
    }
}

/// Has the processor fetch a record that is about to be written.
#[inline(always)]
fn prefetch(cell: *const Cell) {
    // SAFETY: every x86-64 processor takes it, if only as nothing, and whatever is there.
    unsafe { _mm_prefetch::<_MM_HINT_ET0>(cell.cast()) };
}

/// The processor's time-stamp counter: the clock of a file whose [`Writer::now_at_once`] gives a time.
#[inline(always)]
pub fn time_stamp() -> u64 {
    // SAFETY: every x86-64 processor has it.
    unsafe { _rdtsc() }
}

/// The time-stamp counter where it runs at one speed, never stops, and the system relies on it too.
fn clock() -> Clock {
    const INVARIANT: u32 = 1 << 8;
    let has_power_leaf = __cpuid(0x8000_0000).eax >= 0x8000_0007;
    let is_invariant = has_power_leaf && __cpuid(0x8000_0007).edx & INVARIANT != 0;
    let source = std::fs::read("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let is_trusted = source.is_ok_and(|source| source.trim_ascii() == b"tsc");
    if is_invariant && is_trusted { Clock::TimeStampCounter } else { Clock::Monotonic }
}

fn nanos(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the time there.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The standard library's: a thread that waits for one of parking_lot's allocates, and the program may have no memory left.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
