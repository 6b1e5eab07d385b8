//! The library's memory: malloc's, and behind it a reserve, so that an allocation of ours that fails does not end the
//! program. Rust ends the process where memory is asked for that cannot be had; the program might well continue.
//!
//! The reserve is part of the library's zeroed data: the system has promised it when the library was loaded, it takes no
//! memory until it is used, and it can neither fail nor be forgotten. It is given out from its beginning to its end. Memory that was
//! given out last can be given out again once it comes back, and everything once nothing is in use. One word says all that, and is
//! changed by a compare-and-swap: a signal handler, another thread and a forked child find it as it is.
//!
//! Once the reserve has served an allocation the shim does without memory as far as it can (`call/mode.rs`, `Activity::Exhausted`):
//! docs/dev/decisions/allocation-reserve.md.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU64};

#[global_allocator]
static ALLOCATOR: Allocator<System> = Allocator::new(System);

/// Whether malloc has failed us, and the reserve has helped out.
pub(crate) fn has_reserve_served() -> bool {
    ALLOCATOR.has_served.load(Relaxed)
}

#[cold]
pub(crate) fn is_reserve_half_used() -> bool {
    ALLOCATOR.is_half_used()
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

/// Collects items, if there is each of them.
pub(crate) fn collect_all<T>(items: impl Iterator<Item = Option<T>>) -> Option<Vec<T>> {
    let mut are_all = true;
    let all = collect(items.map_while(|item| {
        are_all &= item.is_some();
        item
    }))?;
    are_all.then_some(all)
}

/// The reserve has as many bytes.
const BYTES: usize = 3 << 19;
/// It begins where anything may.
const ALIGN: usize = 4096;
/// So much is given at once: the maps of a process with 3,000 mappings. Requests beyond that are for memory of copies, by
/// who can do without.
const MOST: usize = 256 << 10;

#[repr(C, align(4096))]
struct Reserve(UnsafeCell<[u8; BYTES]>);

// SAFETY: what is given out of it is touched by who has it only.
unsafe impl Sync for Reserve {}

/// Memory of `base`, or of the reserve where that has none.
struct Allocator<Base> {
    base: Base,
    reserve: Reserve,
    /// How many bytes of the reserve are given out, and in the upper half how many allocations have some of it.
    given: AtomicU64,
    has_served: AtomicBool,
}

impl<Base> Allocator<Base> {
    const fn new(base: Base) -> Self {
        let reserve = Reserve(UnsafeCell::new([0; BYTES]));
        Self { base, reserve, given: AtomicU64::new(0), has_served: AtomicBool::new(false) }
    }

    fn end(given: u64) -> usize {
        given as u32 as usize
    }

    fn is_half_used(&self) -> bool {
        Self::end(self.given.load(Relaxed)) > BYTES / 2
    }

    /// Null if the reserve has no such memory.
    #[cold]
    fn take(&self, layout: Layout) -> *mut u8 {
        if layout.size() > MOST || layout.align() > ALIGN {
            return ptr::null_mut();
        }
        let at = |given| Self::end(given).next_multiple_of(layout.align());
        let taken = self.given.fetch_update(AcqRel, Relaxed, |given| {
            let end = at(given) + layout.size();
            (end <= BYTES).then_some(((given >> 32) + 1) << 32 | end as u64)
        });
        let Ok(before) = taken else { return ptr::null_mut() };
        self.has_served.store(true, Relaxed);
        self.reserve.0.get().cast::<u8>().wrapping_add(at(before))
    }

    /// How far from its beginning an address is, if it is in the reserve.
    #[inline(always)]
    fn offset(&self, memory: *mut u8) -> Option<usize> {
        let offset = (memory as usize).wrapping_sub(self.reserve.0.get() as usize);
        (offset < BYTES).then_some(offset)
    }

    #[cold]
    fn take_back(&self, at: usize, bytes: usize) {
        let _ = self.given.fetch_update(AcqRel, Relaxed, |given| {
            let end = match Self::end(given) {
                _ if given >> 32 == 1 => 0,
                end if end == at + bytes => at,
                end => end,
            };
            Some(((given >> 32) - 1) << 32 | end as u64)
        });
    }
}

// None of them is inlined: that would add a tenth to the library's code.
// SAFETY: what is given out is the base's, or a part of the reserve that nobody else has until it is given back; each goes
// back to where its address says that it is from.
unsafe impl<Base: GlobalAlloc> GlobalAlloc for Allocator<Base> {
    #[inline(never)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        let memory = unsafe { self.base.alloc(layout) };
        if memory.is_null() { self.take(layout) } else { memory }
    }

    /// Large memory of the base is zero already, and takes no page until it is written.
    #[inline(never)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        let memory = unsafe { self.base.alloc_zeroed(layout) };
        if !memory.is_null() {
            return memory;
        }
        let memory = self.take(layout);
        if !memory.is_null() {
            // SAFETY: it has so many bytes, and is nobody else's.
            unsafe { ptr::write_bytes(memory, 0, layout.size()) };
        }
        memory
    }

    #[inline(never)]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        match self.offset(memory) {
            Some(at) => self.take_back(at, layout.size()),
            // SAFETY: the caller's, of memory that is the base's.
            None => unsafe { self.base.dealloc(memory, layout) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// A malloc that has so many allocations left.
    struct Failing(AtomicUsize);

    // SAFETY: the system's, or null.
    unsafe impl GlobalAlloc for Failing {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            match self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)) {
                // SAFETY: the caller's.
                Ok(_) => unsafe { System.alloc(layout) },
                Err(_) => ptr::null_mut(),
            }
        }

        unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
            // SAFETY: the caller's.
            unsafe { System.dealloc(memory, layout) }
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

    #[test]
    fn alloc_malloc_works_the_reserve_is_untouched() {
        let tested = with!(1);
        // SAFETY: taken and given back with one layout.
        unsafe {
            let memory = tested.alloc(layout(100, 8));
            assert!(!memory.is_null() && tested.offset(memory).is_none());
            tested.dealloc(memory, layout(100, 8));
        }
        assert!(!tested.has_served.load(Relaxed));
    }

    #[test]
    fn alloc_malloc_fails_the_reserve_serves_each_size_aligned_and_apart() {
        let tested = with!(0);
        let layouts: Vec<_> = [1, 8, 63, 64, 65, 500, 4095, 4096, 4097, 70_000]
            .into_iter()
            .flat_map(|size| [1, 16, 64, 128, 4096].map(|align| layout(size, align)))
            .collect();
        for again in 0..2 {
            let mut taken = Vec::new();
            for (number, &layout) in layouts.iter().enumerate() {
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
            assert_eq!(tested.given.load(Relaxed), 0);
        }
        assert!(tested.has_served.load(Relaxed));
    }

    #[test]
    fn alloc_zeroed_where_others_were_is_zero() {
        let tested = with!(0);
        for _ in 0..2 {
            // SAFETY: read, filled and given back with one layout.
            unsafe {
                let memory = tested.alloc_zeroed(layout(MOST, 8));
                assert!(std::slice::from_raw_parts(memory, MOST).iter().all(|&byte| byte == 0));
                ptr::write_bytes(memory, 7, MOST);
                tested.dealloc(memory, layout(MOST, 8));
            }
        }
    }

    #[test]
    fn alloc_more_than_the_reserve_has_is_null_and_not_served() {
        let tested = with!(0);
        for layout in [layout(MOST + 1, 1), layout(1, 2 * ALIGN), layout(1 << 40, 8)] {
            // SAFETY: nothing is touched.
            assert!(unsafe { tested.alloc(layout) }.is_null(), "{layout:?}");
        }
        assert!(!tested.has_served.load(Relaxed) && !tested.is_half_used());
        // SAFETY: never touched, and kept.
        let count = (0..).take_while(|_| !unsafe { tested.alloc(layout(64, 8)) }.is_null()).count();
        assert_eq!(count, BYTES / 64);
        assert!(tested.is_half_used());
    }

    /// Something is kept, as by a cache, and yet what comes and goes takes no more than once.
    #[test]
    fn dealloc_of_the_last_makes_room_for_the_next() {
        let tested = with!(0);
        // SAFETY: each is given back as it was taken, but for the first.
        unsafe {
            tested.alloc(layout(100, 8));
            let kept = tested.given.load(Relaxed);
            for _ in 0..100_000 {
                let [outer, inner] = [1000, 500].map(|bytes| tested.alloc(layout(bytes, 8)));
                tested.dealloc(inner, layout(500, 8));
                tested.dealloc(outer, layout(1000, 8));
            }
            assert!(tested.given.load(Relaxed) - kept < 8, "no more than was left out for alignment");
        }
    }

    #[test]
    fn realloc_malloc_fails_bytes_move_to_the_reserve_and_within_it() {
        let tested = with!(1);
        // SAFETY: each time with the layout of the last, reading what was written.
        unsafe {
            let first = tested.alloc(layout(100, 8));
            assert!(tested.offset(first).is_none());
            ptr::write_bytes(first, 7, 100);
            let mut memory = first;
            let mut before = 100;
            for size in [300, 5000, 100, 200_000, 1] {
                memory = tested.realloc(memory, layout(before, 8), size);
                assert!(tested.offset(memory).is_some(), "{size}");
                let bytes = std::slice::from_raw_parts(memory, size.min(100));
                assert!(bytes.iter().all(|&byte| byte == 7), "{size}");
                before = size;
            }
            let last = tested.realloc(memory, layout(1, 8), 1 << 20);
            assert!(last.is_null() && memory.read() == 7, "what cannot grow stays as it is");
            tested.dealloc(memory, layout(1, 8));
        }
        assert_eq!(tested.given.load(Relaxed), 0);
    }

    #[test]
    fn alloc_many_threads_no_memory_is_given_twice() {
        let tested = with!(0);
        std::thread::scope(|scope| {
            for thread in 0..8_u8 {
                scope.spawn(move || {
                    for round in 0..if cfg!(miri) { 10 } else { 200 } {
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
        assert_eq!(tested.given.load(Relaxed), 0);
    }
}
