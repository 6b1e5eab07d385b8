//! Raw memory and the operating system: all unsafe code of the simulation.
//!
//! Addresses are numbers everywhere else. Those of simulated device memory and of pinned memory that the
//! simulation allocated stay mapped for as long as work may use them, because freeing waits for all work, and
//! work that comes to memory which the program has unmapped leaves it alone (`gate`); those of the program's own
//! memory are the program's promise, as they are with a real GPU.

use std::ffi::CStr;
use std::fs::{self, File};
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// Maps `length` bytes of zeroes that cost memory only where they are touched.
pub(crate) fn map(length: u64) -> Result<u64> {
    let length = usize::try_from(length).map_err(|_| Error::OUT_OF_MEMORY)?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice replaces nothing.
    let map = |length| unsafe { libc::mmap(ptr::null_mut(), length, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    // The kernel's own pages may be smaller.
    const LEAST: u64 = 4096;
    let slack = PAGE - LEAST;
    let all = length.checked_add(slack as usize).ok_or(Error::OUT_OF_MEMORY)?;
    let address = map(all);
    if address == libc::MAP_FAILED {
        return Err(Error::OUT_OF_MEMORY);
    }
    let (start, first) = (address as u64, (address as u64).next_multiple_of(PAGE));
    let [end, all_end] = [first + length as u64, start + all as u64].map(|end| end.next_multiple_of(LEAST));
    for (from, to) in [(start, first), (end, all_end)] {
        if from < to {
            unmap(from, to - from);
        }
    }
    Ok(first)
}

/// Has memory that is large and about to be used be made of large pages, where the kernel has some: it is touched in a third of the time.
pub(crate) fn expect_use(address: u64, length: u64) {
    const LARGE: u64 = 4 << 20;
    if length >= LARGE {
        let address = at(address);
        let start = address / PAGE * PAGE;
        // SAFETY: only how the pages are made changes, not what they hold; without such pages it fails, which changes nothing.
        unsafe { libc::madvise(start as *mut libc::c_void, (address + length - start) as usize, libc::MADV_HUGEPAGE) };
    }
}

/// The most ranges that are kept from the host; memory of further ones it can touch.
const MOST_GUARDED: usize = 1024;
/// A range of addresses of a device, which the host cannot touch; the memory itself is as far behind as the range is long.
struct Guarded {
    /// Counts twice for each range that the entry gets: odd while that is written.
    changes: AtomicU64,
    /// 0 is none, and the greatest number one that is about to be.
    begin: AtomicU64,
    end: AtomicU64,
}

impl Guarded {
    const fn none() -> Self {
        Self { changes: AtomicU64::new(0), begin: AtomicU64::new(0), end: AtomicU64::new(0) }
    }

    /// Takes the entry, if it is free.
    fn take(&self) -> bool {
        self.begin.compare_exchange(0, u64::MAX, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// By whoever has taken it.
    fn set(&self, base: u64, length: u64) {
        self.changes.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.end.store(base + length, Ordering::Relaxed);
        self.begin.store(base, Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::Release);
    }

    fn give_back(&self) {
        self.begin.store(0, Ordering::SeqCst);
    }

    /// How far behind an address its memory is, if the range contains it. Such a range stays meanwhile: an entry that changes is of another one.
    fn distance(&self, address: u64) -> Option<u64> {
        let before = self.changes.load(Ordering::Acquire);
        let range = self.begin.load(Ordering::Relaxed)..self.end.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let is_whole = before.is_multiple_of(2) && self.changes.load(Ordering::Relaxed) == before;
        (is_whole && range.start != 0 && range.contains(&address)).then(|| range.end - range.start)
    }
}

static GUARDED: [Guarded; MOST_GUARDED] = [const { Guarded::none() }; MOST_GUARDED];
/// As many of them may be in use.
static USED: AtomicUsize = AtomicUsize::new(0);
/// Read by whoever copies or fills memory, so that pages can be replaced.
static PAGES: RwLock<()> = RwLock::new(());

/// Sets `length` addresses aside for memory of a device. Nobody can read there, and it cannot be read here before [`allow`].
pub(crate) fn guard(length: u64) -> Result<u64> {
    let base = map(length.checked_mul(2).ok_or(Error::OUT_OF_MEMORY)?)?;
    match GUARDED.iter().zip(1..).find(|(range, _)| range.take()) {
        Some((range, used)) => {
            protect(base, 2 * length, libc::PROT_NONE)?;
            range.set(base, length);
            USED.fetch_max(used, Ordering::SeqCst);
        }
        None => unmap(base + length, length),
    }
    Ok(base)
}

/// Gives back what [`guard`] returned.
pub(crate) fn unguard(base: u64, length: u64) {
    let range = GUARDED.iter().find(|range| range.begin.load(Ordering::SeqCst) == base);
    range.into_iter().for_each(Guarded::give_back);
    unmap(base, if range.is_some() { 2 * length } else { length });
}

/// Where the memory of an address is.
fn at(address: u64) -> u64 {
    let distance = GUARDED.iter().take(USED.load(Ordering::Relaxed)).find_map(|range| range.distance(address));
    address + distance.unwrap_or(0)
}

/// Keeps pages as they are.
fn touching() -> RwLockReadGuard<'static, ()> {
    PAGES.read().unwrap_or_else(PoisonError::into_inner)
}

fn protect(address: u64, length: u64, access: libc::c_int) -> Result<()> {
    // SAFETY: the range is one of whole pages inside a mapping made by `map`, and its owner decides who may touch it.
    let failed = unsafe { libc::mprotect(address as *mut libc::c_void, length as usize, access) } != 0;
    if failed { Err(Error::OUT_OF_MEMORY) } else { Ok(()) }
}

/// Gives back what [`map`] returned; the caller knows that no work uses it any more.
pub(crate) fn unmap(address: u64, length: u64) {
    // SAFETY: the range is a whole mapping made by `map`, and its owner has waited for all work.
    unsafe { libc::munmap(address as *mut libc::c_void, length as usize) };
}

/// Bytes of the largest page that Linux has on this machine.
pub(crate) const PAGE: u64 = if cfg!(target_arch = "aarch64") { 65536 } else { 4096 };

/// Lets the kernel take back the whole pages of a freed range. Until [`allow`] nobody can read there, as is so with addresses
/// of a device at which nothing is; afterwards they read as zeroes.
pub(crate) fn discard(address: u64, length: u64) {
    let address = at(address);
    let start = address.next_multiple_of(PAGE);
    let end = (address + length) / PAGE * PAGE;
    if start < end {
        let (start, length) = (start as *mut libc::c_void, (end - start) as usize);
        // SAFETY: the range lies inside a mapping made by `map`, and nothing in it is allocated any more.
        unsafe {
            libc::madvise(start, length, libc::MADV_DONTNEED);
            libc::mprotect(start, length, libc::PROT_NONE);
        }
    }
}

/// Lets all pages of a range be read and written.
pub(crate) fn allow(address: u64, length: u64) -> Result<()> {
    let address = at(address);
    let start = address / PAGE * PAGE;
    protect(start, (address + length - start).next_multiple_of(PAGE), libc::PROT_READ | libc::PROT_WRITE)
}

/// A file of zeroes that holds memory which other processes can map. Others that have it open can read the name.
pub(crate) fn memory_file(name: &CStr, length: u64) -> Result<File> {
    // SAFETY: the name is text that ends, and the call touches nothing else.
    let descriptor = unsafe { libc::syscall(libc::SYS_memfd_create, name.as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(Error::OPERATING_SYSTEM);
    }
    // SAFETY: the descriptor is new, and nobody else's.
    let file = unsafe { File::from_raw_fd(descriptor as libc::c_int) };
    file.set_len(length).map_err(|_| Error::OUT_OF_MEMORY)?;
    Ok(file)
}

/// Marks a file as in use by whoever opened it, until that closes it.
pub(crate) fn hold(file: &File) {
    // Without it its owner's memory is given back earlier, and nothing else.
    let _ = lock_file(file, libc::F_OFD_SETLK, libc::F_RDLCK);
}

/// Whether somebody else has marked a file as in use.
pub(crate) fn is_held(file: &File) -> bool {
    lock_file(file, libc::F_OFD_GETLK, libc::F_WRLCK).is_some_and(|found| found != libc::F_UNLCK)
}

fn lock_file(file: &File, what: libc::c_int, kind: libc::c_int) -> Option<libc::c_int> {
    // SAFETY: all bytes of the structure may be zero; the call reads and writes it alone.
    let (failed, lock) = unsafe {
        let mut lock: libc::flock = std::mem::zeroed();
        lock.l_type = kind as libc::c_short;
        (libc::fcntl(file.as_raw_fd(), what, &raw mut lock) != 0, lock)
    };
    (!failed).then(|| lock.l_type.into())
}

/// The file behind a descriptor of the program; none if there is no such descriptor.
pub(crate) fn file_of(descriptor: libc::c_int) -> Option<File> {
    // SAFETY: takes numbers, and touches no memory of ours.
    let own = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 0) };
    if own < 0 {
        return None;
    }
    // SAFETY: the descriptor is new, and nobody else's.
    Some(unsafe { File::from_raw_fd(own) })
}

/// The name of a file of [`memory_file`], whichever process made it.
pub(crate) fn name_of(file: &File) -> Option<String> {
    let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    Some(path.to_str()?.strip_prefix("/memfd:")?.trim_end_matches(" (deleted)").to_owned())
}

/// Puts a file that other processes can map in the place of whole pages, whose bytes it then holds; whoever is about to use them waits.
pub(crate) fn share(name: &CStr, address: u64, length: u64) -> Result<File> {
    let file = memory_file(name, length)?;
    let held = map_file(&file, length)?;
    let _replacing = PAGES.write().unwrap_or_else(PoisonError::into_inner);
    let address = at(address);
    // SAFETY: the range was checked against its allocation, and `held` is as long.
    unsafe { ptr::copy_nonoverlapping(address as *const u8, held as *mut u8, length as usize) };
    unmap(held, length);
    map_at(address, length, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, (file.as_raw_fd(), 0))?;
    Ok(file)
}

/// Puts a file, from a place in it on, in the place of whole pages, whatever they hold. It has to be as long as that.
pub(crate) fn put_file(address: u64, length: u64, file: &File, place: u64) -> Result<()> {
    let is_inside = |size: u64| place.checked_add(length).is_some_and(|end| end <= size);
    if !file.metadata().is_ok_and(|data| is_inside(data.len())) {
        return Err(Error::INVALID_VALUE);
    }
    let access = libc::PROT_READ | libc::PROT_WRITE;
    map_at(at(address), length, access, libc::MAP_SHARED, (file.as_raw_fd(), place))
}

/// Puts pages that are the process's own in the place of shared ones. Until [`allow`] nobody can read there.
pub(crate) fn unshare(address: u64, length: u64) {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // Without memory for that, what is allocated there next is shared with who has imported this.
    let _ = map_at(at(address), length, libc::PROT_NONE, flags, (-1, 0));
}

/// Maps a file that holds shared memory.
pub(crate) fn map_file(file: &File, length: u64) -> Result<u64> {
    let length = usize::try_from(length).map_err(|_| Error::INVALID_VALUE)?;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a mapping at an address of the kernel's choice replaces nothing.
    let address = unsafe { libc::mmap(ptr::null_mut(), length, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if address == libc::MAP_FAILED { Err(Error::MAP_FAILED) } else { Ok(address as u64) }
}

fn map_at(
    address: u64,
    length: u64,
    access: libc::c_int,
    flags: libc::c_int,
    (file, place): (libc::c_int, u64),
) -> Result<()> {
    let place = libc::off_t::try_from(place).map_err(|_| Error::INVALID_VALUE)?;
    let (start, length) = (address as *mut libc::c_void, length as usize);
    // SAFETY: the range is one of whole pages inside a mapping made by `map`, and belongs to one allocation, which no work uses.
    let mapped = unsafe { libc::mmap(start, length, access, flags | libc::MAP_FIXED, file, place) };
    if mapped == libc::MAP_FAILED { Err(Error::OUT_OF_MEMORY) } else { Ok(()) }
}

/// Copies `length` bytes; the ranges may overlap.
pub(crate) fn copy(dst: u64, src: u64, length: u64) {
    let _touching = touching();
    let (dst, src) = (at(dst), at(src));
    // SAFETY: both ranges were checked against their allocation, or are the program's own memory (module comment).
    unsafe { ptr::copy(src as *const u8, dst as *mut u8, length as usize) };
}

/// Fills `length` bytes by repeating the low `unit` (1, 2 or 4) bytes of `value`.
pub(crate) fn fill(dst: u64, value: u32, unit: u64, length: u64) {
    let _touching = touching();
    let (bytes, dst) = (value.to_le_bytes(), at(dst));
    if unit == 1 {
        // SAFETY: the range was checked against its allocation, or is the program's own memory (module comment).
        unsafe { ptr::write_bytes(dst as *mut u8, value as u8, length as usize) };
        return;
    }
    for offset in (0..length).step_by(unit as usize) {
        // SAFETY: as above; `unit` is at most the four bytes of `bytes`, and `length` a multiple of it.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), (dst + offset) as *mut u8, unit as usize) };
    }
}

/// Adds to a word whose address is a multiple of 8, whoever else does so meanwhile; returns what was there before.
pub(crate) fn add(address: u64, value: u64) -> u64 {
    // SAFETY: the word was checked against its allocation and is aligned, and whoever else touches it now does so by this function, or
    // the program has made a mistake that real memory bears too.
    unsafe { AtomicU64::from_ptr(at(address) as *mut u64) }.fetch_add(value, Ordering::SeqCst)
}

/// Makes a word whose address is a multiple of 8 at least that large.
pub(crate) fn raise(address: u64, value: u64) {
    // SAFETY: as in `add`.
    unsafe { AtomicU64::from_ptr(at(address) as *mut u64) }.fetch_max(value, Ordering::SeqCst);
}

/// Stores a word whose address is a multiple of 8, after all that was stored before.
pub(crate) fn store(address: u64, value: u64) {
    // SAFETY: as in `add`.
    unsafe { AtomicU64::from_ptr(at(address) as *mut u64) }.store(value, Ordering::SeqCst);
}

/// Loads a word whose address is a multiple of 8.
pub(crate) fn load(address: u64) -> u64 {
    // SAFETY: as in `add`.
    unsafe { AtomicU64::from_ptr(at(address) as *mut u64) }.load(Ordering::SeqCst)
}

/// Adds a line about a stopped access to the kernel's log of the simulated machine, if it has one.
pub(crate) fn log_stopped_access() {
    static NUMBER: AtomicU64 = AtomicU64::new(1 << 32);
    let Some(root) = std::env::var_os("P2PSIM_ROOT") else { return };
    let log = std::fs::OpenOptions::new().append(true).open(std::path::Path::new(&root).join("dev/kmsg"));
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let line = format!(
        "4,{number},{number},-;DMAR: [DMA Write NO_PASID] Request device [01:00.0] fault addr 0x38120000000 [fault reason 0x05]\n"
    );
    let _ = log.and_then(|mut log| std::io::Write::write_all(&mut log, line.as_bytes()));
}

/// Never returns; the process can still end.
pub(crate) fn hang() -> ! {
    loop {
        pause(Duration::from_secs(3600));
    }
}

/// Waits until a word has at least that value; false after so long.
pub(crate) fn reaches(address: u64, value: u64, time: Duration) -> bool {
    let deadline = Instant::now() + time;
    while load(address) < value {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

/// Makes a byte wrong, and wrong again each time: a copy there and back does not make it right.
pub(crate) fn spoil(address: u64) {
    let byte = at(address) as *mut u8;
    // SAFETY: as in `copy`; the byte is one that was just written.
    unsafe { byte.write(byte.read().wrapping_add(0x55)) };
}

/// Runs `start` with all signals blocked, so that a thread which it starts never runs the program's handlers.
pub(crate) fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    // SAFETY: both sets are local and written by sigfillset and pthread_sigmask before they are read.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let result = start();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
        result
    }
}

// Declared here since a thread that is cancelled in one of them unwinds, which the usual declarations forbid.
unsafe extern "C-unwind" {
    fn nanosleep(time: *const libc::timespec, left: *mut libc::timespec) -> libc::c_int;
    fn pthread_testcancel();
}

/// How much longer than asked Linux lets a thread sleep.
const TIMER_SLACK: Duration = Duration::from_micros(50);

/// Keeps the calling thread busy for a while; it may be cancelled meanwhile.
pub(crate) fn pause(time: Duration) {
    if time < TIMER_SLACK {
        let begin = Instant::now();
        // A library that replaces the clock may make it stand still: milliseconds at most.
        (0..1 << 16).take_while(|_| begin.elapsed() < time).for_each(|_| std::hint::spin_loop());
        return cancellation_point();
    }
    let mut left = libc::timespec { tv_sec: time.as_secs() as libc::time_t, tv_nsec: time.subsec_nanos().into() };
    // SAFETY: both pointers are to the same local, which the call may read and write.
    while unsafe { nanosleep(&raw const left, &raw mut left) } != 0 {}
}

/// Lets the calling thread be cancelled here; it must hold no lock.
pub(crate) fn cancellation_point() {
    // SAFETY: takes and returns nothing.
    unsafe { pthread_testcancel() };
}

/// Loads a tool's library and lets it set itself up, as drivers do with `CUDA_INJECTION64_PATH`. Answers whether it could.
pub fn inject(library: &CStr) -> bool {
    // SAFETY: the name is text that ends; what the library's own constructors do is its business.
    let handle = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_NOW) };
    if handle.is_null() {
        return false;
    }
    // SAFETY: the handle is of dlopen, the name text that ends.
    let entry = unsafe { libc::dlsym(handle, c"InitializeInjection".as_ptr()) };
    if entry.is_null() {
        return false;
    }
    // SAFETY: by agreement a function of that name has this type. The library stays loaded.
    let initialise = unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> libc::c_int>(entry) };
    initialise() != 0
}

/// Has a function called when the process ends, before all that were given before.
pub fn at_exit(function: extern "C" fn()) {
    // SAFETY: the function is the library's own, which is never unloaded.
    unsafe { libc::atexit(function) };
}

/// Has `hook` called in every child of a fork from now on.
pub fn at_fork_in_child(hook: unsafe extern "C" fn()) {
    // SAFETY: `hook` is a function that lives as long as the library, which is never unloaded.
    unsafe { libc::pthread_atfork(None, None, Some(hook)) };
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    /// An entry has a range below an address, and then one above it.
    #[test]
    fn guarded_no_address_is_between_two_ranges() {
        let (range, is_over) = (Guarded::none(), AtomicBool::new(false));
        let wrong = thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    for base in [0x1000, 0x9000] {
                        assert!(range.take());
                        range.set(base, 0x1000);
                        range.give_back();
                    }
                }
            });
            let wrong = (0..10_000_000).filter_map(|_| range.distance(0x5000)).count();
            is_over.store(true, Ordering::Relaxed);
            wrong
        });
        assert_eq!(wrong, 0);
        range.set(0x1000, 0x800);
        assert_eq!(
            [0xfff, 0x1000, 0x17ff, 0x1800].map(|at| range.distance(at)),
            [None, Some(0x800), Some(0x800), None]
        );
    }
}
