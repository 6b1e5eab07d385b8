//! The library's memory: malloc's, and behind it a reserve, so that an allocation of ours that fails does not end the
//! program. Rust ends the process where memory is asked for that cannot be had; the program might well go on.
//!
//! The reserve is part of the library's zeroed data: the system has promised it when the library was loaded, it takes no
//! memory until it is used, and it can neither fail nor be forgotten. It is two tables of blocks, and a word for every 64
//! blocks says which of them are in use. An allocation is a run of blocks under one word, taken by one compare-and-swap. So
//! it needs no lock: a signal handler, another thread and a forked child find it as it is.
//!
//! Once the reserve has served an allocation the shim does without memory as far as it can (`call/mode.rs`, `Activity::Exhausted`):
//! docs/decisions/allocation-reserve.md.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

#[global_allocator]
static ALLOCATOR: Allocator<System> = Allocator::new(System);

/// Whether malloc has failed us, and the reserve has helped out.
pub(crate) fn has_reserve_served() -> bool {
    ALLOCATOR.reserve.has_served.load(Relaxed)
}

/// Whether half of the reserve is in use.
#[cold]
pub(crate) fn is_reserve_half_used() -> bool {
    ALLOCATOR.reserve.is_half_used()
}

/// Collects what may be more than the reserve has room for; none if there is no memory for it.
pub(crate) fn collect<T>(items: impl Iterator<Item = T>) -> Option<Vec<T>> {
    let mut all = Vec::new();
    all.try_reserve_exact(items.size_hint().1.unwrap_or_default()).ok()?;
    for item in items {
        if all.len() == all.capacity() {
            all.try_reserve(1).ok()?;
        }
        all.push(item);
    }
    Some(all)
}

/// The same, if there is each of them.
pub(crate) fn collect_all<T>(items: impl Iterator<Item = Option<T>>) -> Option<Vec<T>> {
    let mut are_all = true;
    let all = collect(items.map_while(|item| {
        are_all &= item.is_some();
        item
    }))?;
    are_all.then_some(all)
}

/// Blocks that lie under one word.
const RUN: usize = u64::BITS as usize;
/// Most of our allocations are as small as this, or a few of it.
const SMALL: usize = 64;
/// The others are listed modules, buffers and tables: a run of these has room for the maps of a process with 3,000 of them.
/// What is asked for beyond that is memory for copies, by who can do without.
const LARGE: usize = 4096;

/// Memory of `base`, or of the reserve where that has none.
struct Allocator<Base> {
    base: Base,
    reserve: Reserve,
}

struct Reserve {
    small: Blocks<SMALL, 128>,
    large: Blocks<LARGE, 4>,
    has_served: AtomicBool,
}

impl<Base> Allocator<Base> {
    const fn new(base: Base) -> Self {
        let (small, large) = (Blocks::new(), Blocks::new());
        Self { base, reserve: Reserve { small, large, has_served: AtomicBool::new(false) } }
    }
}

// None is inlined, since that would add a tenth to the library's code.
// SAFETY: what is given out is the base's, or a run of the reserve that nobody else has until it is given back; each goes
// back to where its address says that it is from.
unsafe impl<Base: GlobalAlloc> GlobalAlloc for Allocator<Base> {
    #[inline(never)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        let memory = unsafe { self.base.alloc(layout) };
        if memory.is_null() { self.reserve.take(layout) } else { memory }
    }

    #[inline(never)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        let memory = unsafe { self.base.alloc_zeroed(layout) };
        if !memory.is_null() {
            return memory;
        }
        let memory = self.reserve.take(layout);
        if !memory.is_null() {
            // SAFETY: it has that many bytes, which nobody else has.
            unsafe { ptr::write_bytes(memory, 0, layout.size()) };
        }
        memory
    }

    #[inline(never)]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if !self.reserve.takes_back(memory, layout) {
            // SAFETY: the caller's, of memory that is the base's.
            unsafe { self.base.dealloc(memory, layout) };
        }
    }

    #[inline(never)]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !self.reserve.has(memory) {
            // SAFETY: the caller's, of memory that is the base's.
            let moved = unsafe { self.base.realloc(memory, layout, size) };
            if !moved.is_null() {
                return moved;
            }
        }
        // SAFETY: the caller promises that the size is none that overflows.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: the caller's.
        let moved = unsafe { self.alloc(wanted) };
        if !moved.is_null() {
            // SAFETY: both have that many bytes, and the new one is nobody else's; the old one is the caller's to end.
            unsafe {
                ptr::copy_nonoverlapping(memory, moved, layout.size().min(size));
                self.dealloc(memory, layout);
            }
        }
        moved
    }
}

impl Reserve {
    /// Null if it has no such memory.
    #[cold]
    fn take(&self, layout: Layout) -> *mut u8 {
        let small = if layout.align() <= SMALL { self.small.take(layout.size()) } else { None };
        let large = || if layout.align() <= LARGE { self.large.take(layout.size()) } else { None };
        match small.or_else(large) {
            Some(memory) => {
                self.has_served.store(true, Relaxed);
                memory
            }
            None => ptr::null_mut(),
        }
    }

    #[inline(always)]
    fn has(&self, memory: *mut u8) -> bool {
        self.small.offset(memory).is_some() || self.large.offset(memory).is_some()
    }

    /// Takes an allocation back, if it is one of its own.
    #[inline(always)]
    fn takes_back(&self, memory: *mut u8, layout: Layout) -> bool {
        self.small.takes_back(memory, layout.size()) || self.large.takes_back(memory, layout.size())
    }

    fn is_half_used(&self) -> bool {
        self.small.is_half_used() || self.large.is_half_used()
    }
}

/// Blocks of `BYTES` bytes. It begins where a block of any size may.
#[repr(C, align(4096))]
struct Blocks<const BYTES: usize, const WORDS: usize> {
    memory: UnsafeCell<[[[u8; BYTES]; RUN]; WORDS]>,
    /// Which blocks are in use, the first in the lowest bit.
    used: [AtomicU64; WORDS],
}

// SAFETY: a block's memory is touched by who has taken it only.
unsafe impl<const BYTES: usize, const WORDS: usize> Sync for Blocks<BYTES, WORDS> {}

impl<const BYTES: usize, const WORDS: usize> Blocks<BYTES, WORDS> {
    const fn new() -> Self {
        Self { memory: UnsafeCell::new([[[0; BYTES]; RUN]; WORDS]), used: [const { AtomicU64::new(0) }; WORDS] }
    }

    /// The bits of as many blocks as it takes, in the lowest places; none if they are too many for one word.
    fn run(bytes: usize) -> Option<u64> {
        let unused = RUN.checked_sub(bytes.div_ceil(BYTES).max(1))?;
        Some(u64::MAX >> unused)
    }

    fn take(&self, bytes: usize) -> Option<*mut u8> {
        let run = Self::run(bytes)?;
        for (number, word) in self.used.iter().enumerate() {
            let mut used = word.load(Relaxed);
            while let Some(at) = (0..=run.leading_zeros()).find(|at| used & run << at == 0) {
                match word.compare_exchange(used, used | run << at, Acquire, Relaxed) {
                    Ok(_) => {
                        let block = number * RUN + at as usize;
                        return Some(self.memory.get().cast::<u8>().wrapping_add(block * BYTES));
                    }
                    Err(by_now) => used = by_now,
                }
            }
        }
        None
    }

    /// How far from the first block an address is, if it is in one of them.
    #[inline(always)]
    fn offset(&self, memory: *mut u8) -> Option<usize> {
        let offset = (memory as usize).wrapping_sub(self.memory.get() as usize);
        (offset < BYTES * RUN * WORDS).then_some(offset)
    }

    #[inline(always)]
    fn takes_back(&self, memory: *mut u8, bytes: usize) -> bool {
        let Some(offset) = self.offset(memory) else { return false };
        self.release(offset / BYTES, bytes);
        true
    }

    #[cold]
    fn release(&self, block: usize, bytes: usize) {
        if let (Some(word), Some(run)) = (self.used.get(block / RUN), Self::run(bytes)) {
            word.fetch_and(!(run << (block % RUN)), Release);
        }
    }

    fn is_half_used(&self) -> bool {
        let used: u32 = self.used.iter().map(|word| word.load(Relaxed).count_ones()).sum();
        used as usize > WORDS * RUN / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// A malloc that has so many allocations left.
    struct Failing(AtomicUsize);

    impl Failing {
        fn has_one(&self) -> bool {
            self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
        }
    }

    // SAFETY: the system's, or null.
    unsafe impl GlobalAlloc for Failing {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: the caller's.
            if self.has_one() { unsafe { System.alloc(layout) } } else { ptr::null_mut() }
        }

        unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
            // SAFETY: the caller's.
            unsafe { System.dealloc(memory, layout) }
        }

        unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
            // SAFETY: the caller's.
            if self.has_one() { unsafe { System.realloc(memory, layout, size) } } else { ptr::null_mut() }
        }
    }

    /// Never on a thread's stack, which has no room for it.
    macro_rules! with {
        ($left:expr) => {{
            static TESTED: Allocator<Failing> = Allocator::new(Failing(AtomicUsize::new($left)));
            &TESTED
        }};
    }

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    fn in_use(tested: &Allocator<Failing>) -> u32 {
        let words = tested.reserve.small.used.iter().chain(&tested.reserve.large.used);
        words.map(|word| word.load(Relaxed).count_ones()).sum()
    }

    #[test]
    fn alloc_malloc_works_the_reserve_is_untouched() {
        let tested = with!(1);
        // SAFETY: taken and given back with one layout.
        unsafe {
            let memory = tested.alloc(layout(100, 8));
            assert!(!memory.is_null() && !tested.reserve.has(memory));
            tested.dealloc(memory, layout(100, 8));
        }
        assert!(!tested.reserve.has_served.load(Relaxed));
    }

    #[test]
    fn alloc_malloc_fails_the_reserve_serves_each_size_aligned_and_apart() {
        let tested = with!(0);
        let layouts: Vec<_> = [1, 8, 63, 64, 65, 500, 4095, 4096, 4097, 70_000, 262_144]
            .into_iter()
            .flat_map(|size| [1, 16, 64, 128, 4096].map(|align| layout(size, align)))
            .collect();
        for again in 0..2 {
            let mut taken = Vec::new();
            for (number, &layout) in layouts.iter().filter(|layout| layout.size() < 10_000).enumerate() {
                // SAFETY: filled as far as it goes.
                let memory = unsafe { tested.alloc(layout) };
                assert!(!memory.is_null() && (memory as usize).is_multiple_of(layout.align()), "{layout:?} {again}");
                // SAFETY: as above.
                unsafe { ptr::write_bytes(memory, number as u8, layout.size()) };
                taken.push((memory, layout, number as u8));
            }
            for (memory, layout, number) in taken {
                // SAFETY: it was filled; and is given back as it was taken.
                unsafe {
                    let bytes = std::slice::from_raw_parts(memory, layout.size());
                    assert!(bytes.iter().all(|&byte| byte == number), "{layout:?} is somebody else's too");
                    tested.dealloc(memory, layout);
                }
            }
            assert_eq!(in_use(tested), 0);
        }
        for layout in layouts {
            // SAFETY: taken and given back with one layout.
            unsafe {
                let memory = tested.alloc_zeroed(layout);
                assert!(!memory.is_null(), "{layout:?}");
                assert!(std::slice::from_raw_parts(memory, layout.size()).iter().all(|&byte| byte == 0));
                tested.dealloc(memory, layout);
            }
        }
        assert!(tested.reserve.has_served.load(Relaxed));
    }

    #[test]
    fn alloc_more_than_the_reserve_has_is_null_and_not_served() {
        let tested = with!(0);
        for layout in [layout(262_145, 1), layout(1, 8192), layout(1 << 40, 8)] {
            // SAFETY: nothing is touched.
            assert!(unsafe { tested.alloc(layout) }.is_null(), "{layout:?}");
        }
        assert!(!tested.reserve.has_served.load(Relaxed));
        // SAFETY: never touched, and kept.
        let count = (0..).take_while(|_| !unsafe { tested.alloc(layout(64, 8)) }.is_null()).count();
        assert_eq!(count, 128 * RUN + 4 * RUN);
        assert!(tested.reserve.is_half_used());
    }

    #[test]
    fn realloc_malloc_fails_bytes_move_to_the_reserve_and_within_it() {
        let tested = with!(1);
        // SAFETY: each time with the layout of the last, reading what was written.
        unsafe {
            let first = tested.alloc(layout(100, 8));
            assert!(!tested.reserve.has(first));
            ptr::write_bytes(first, 7, 100);
            let mut memory = first;
            let mut before = 100;
            for size in [300, 5000, 100, 200_000, 1] {
                memory = tested.realloc(memory, layout(before, 8), size);
                assert!(tested.reserve.has(memory), "{size}");
                let bytes = std::slice::from_raw_parts(memory, size.min(100));
                assert!(bytes.iter().all(|&byte| byte == 7), "{size}");
                before = size;
            }
            let last = tested.realloc(memory, layout(1, 8), 1 << 20);
            assert!(last.is_null() && memory.read() == 7, "what cannot grow stays as it is");
            tested.dealloc(memory, layout(1, 8));
        }
        assert_eq!(in_use(tested), 0);
    }

    #[test]
    fn alloc_many_threads_no_block_is_given_twice() {
        let tested = with!(0);
        std::thread::scope(|scope| {
            for thread in 0..8_u8 {
                scope.spawn(move || {
                    for round in 0..2_000 {
                        let layout = layout(1 + (round * 37 + usize::from(thread)) % 700, 8);
                        // SAFETY: filled, read and given back with one layout.
                        unsafe {
                            let memory = tested.alloc(layout);
                            assert!(!memory.is_null());
                            ptr::write_bytes(memory, thread, layout.size());
                            std::thread::yield_now();
                            let bytes = std::slice::from_raw_parts(memory, layout.size());
                            assert!(bytes.iter().all(|&byte| byte == thread));
                            tested.dealloc(memory, layout);
                        }
                    }
                });
            }
        });
        assert_eq!(in_use(tested), 0);
    }
}
