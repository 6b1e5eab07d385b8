//! Writing files in place, by any number of threads, without a lock or a system call for a call.
//!
//! A file is mapped into memory for good, a region at a time as it grows: nothing that was handed out is ever taken back. Mapped
//! memory lies in the page cache from the moment it is written, so that only the end of the system loses it.
//!
//! A thread takes a chunk at a time by one atomic addition and fills it alone; its first is what a thread that has ended left of one, if
//! any has. Where its next record is and how many are left is
//! one word, changed by one instruction: a signal handler that copies in the middle of that takes another record, and neither is
//! lost. Space is taken before it is needed, since every 64th record touches a new page.
//!
//! Ticks are those of the time-stamp counter where it is invariant and the system relies on it. Their length in nanoseconds is
//! known from comparisons with the system's clocks, the first two at once, then after twice as long each time.

mod chunks;
mod clock;
mod left;
mod note;
mod room;
mod segment;

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::layout::{CHUNK_BYTES, Clock, HAS_EXITED, HEADER_BYTES, MAGIC, RECORD_BYTES, VERSION, header};
use chunks::{Space, allocate, is_in_memory, map};
use clock::{FIRST_CALIBRATION, clock};
use left::Left;
use room::{Room, STEP};
pub use segment::{Open, OpenRecord, Segment};

/// The smallest file that has room for calls.
const LEAST: u64 = 2 * CHUNK_BYTES as u64;

/// The largest file: each 8 MiB of what it may have cost a pointer from the start.
const MOST: u64 = 1 << 40;

/// The place, name and size of a file to be made.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder. It is made if there is none.
    pub folder: PathBuf,
    /// The file's name.
    pub name: String,
    /// How many bytes it may have.
    pub limit: u64,
    /// How many if its file system is in memory.
    pub limit_in_memory: u64,
}

/// A file that is being written.
#[derive(Debug)]
pub struct Writer {
    /// The header, and how many bytes it has.
    base: *mut u8,
    header_bytes: u64,
    room: Room,
    left: Left,
    clock: Clock,
    space: Mutex<Space>,
    /// Whether there is no more space; `space` knows why.
    is_full: AtomicBool,
    notes: Mutex<Notes>,
    /// When clocks are to be compared again, in ticks.
    calibration_due: AtomicU64,
    calibration: Mutex<(usize, u64)>,
}

// SAFETY: no mapping is ever undone, and all that several threads write to in it is atomic or under a lock.
unsafe impl Send for Writer {}
// SAFETY: as above.
unsafe impl Sync for Writer {}

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
        // SAFETY: takes a number and returns one.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        Self::create_for_pages(options, usize::try_from(page).unwrap_or(HEADER_BYTES))
    }

    /// Like [`Writer::create`], of a system whose pages have so many bytes.
    pub fn create_for_pages(options: &Options, page: usize) -> io::Result<Self> {
        let header_bytes = page.max(HEADER_BYTES) as u64;
        let least = header_bytes + LEAST;
        if options.limit < least {
            return Err(io::Error::other(format!(
                "a limit of {} bytes has no room for calls; {least} is the least",
                options.limit
            )));
        }
        make_folder(&options.folder)?;
        // The program may go elsewhere.
        let path = std::path::absolute(&options.folder).unwrap_or_else(|_| options.folder.clone()).join(&options.name);
        let file = open(&path, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL)?;
        let in_memory = is_in_memory(&file).then_some(options.limit_in_memory.max(least));
        let limit = options.limit.min(MOST).min(in_memory.unwrap_or(u64::MAX));
        Self::map(file, &path, limit, header_bytes).inspect_err(|_| {
            // Nobody can make anything of it.
            let _ = std::fs::remove_file(&path);
        })
    }

    fn map(file: File, path: &Path, limit: u64, header_bytes: u64) -> io::Result<Self> {
        let most = (limit - header_bytes) / CHUNK_BYTES as u64;
        let step = STEP.min(most);
        allocate(&file, 0, header_bytes + step * CHUNK_BYTES as u64)?;
        let writer = Self {
            base: map(&file, 0, header_bytes as usize, libc::PROT_READ | libc::PROT_WRITE)?,
            header_bytes,
            room: Room::new(most).ok_or(io::ErrorKind::InvalidInput)?,
            left: Left::new(),
            clock: clock(),
            space: Mutex::new(Space::of(file, path)?),
            is_full: AtomicBool::new(false),
            notes: Mutex::new(Notes { at: ptr::null_mut(), left: 0 }),
            calibration_due: AtomicU64::new(0),
            calibration: Mutex::new((0, FIRST_CALIBRATION)),
        };
        writer.calibrate(writer.now());
        writer.open_up(&lock(&writer.space), step)?;
        for (offset, value) in [
            (header::HEADER_BYTES, header_bytes as u32),
            (header::CHUNK_BYTES, CHUNK_BYTES as u32),
            (header::RECORD_BYTES, RECORD_BYTES as u32),
            (header::PROCESS, std::process::id()),
            (header::CLOCK, writer.clock.number()),
            (header::MAJOR, u32::from(VERSION.0) | u32::from(VERSION.1) << 16),
        ] {
            writer.u32_at(offset).store(value, Relaxed);
        }
        writer.u64_at(header::LIMIT).store(limit, Relaxed);
        writer.u64_at(header::TICKS_PER_SECOND).store(writer.clock_rate().unwrap_or(0), Relaxed);
        // Even of the shortest program it is known how fast the clock runs.
        writer.calibrate(writer.now());
        writer.u64_at(header::MAGIC).store(u64::from_le_bytes(MAGIC), Release);
        Ok(writer)
    }

    /// Whether there is no more room for any call.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Relaxed)
    }

    /// Counts a call that is not recorded.
    #[inline(always)]
    pub fn drop_call(&self) {
        self.u64_at(header::DROPPED).fetch_add(1, Relaxed);
    }

    /// Counts what a forked child has done that is in no file: the header is shared with it.
    pub fn miss_child(&self) {
        self.u64_at(header::UNSEEN).fetch_add(1, Relaxed);
    }

    /// Keeps the status that the process gives to `exit`. Takes no lock: a signal handler may have called it.
    pub fn exits(&self, status: u8) {
        self.u64_at(header::EXIT).store(HAS_EXITED | u64::from(status), Relaxed);
    }

    /// How many calls have found no room.
    pub fn dropped(&self) -> u64 {
        self.u64_at(header::DROPPED).load(Relaxed)
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

/// The standard library's: a thread that waits for one of parking_lot's allocates, and the program may have no memory left.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
