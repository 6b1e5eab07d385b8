//! Past that calls have shown about handles and memory, to be looked up later.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, fence};

use crate::api::abi::Code;
use crate::os;

/// How many frees are remembered.
const FREES: usize = 256;
/// How many ranges of mapped memory are remembered to which access was refused.
const REFUSALS: usize = 1024;

/// Past about the program's handles and memory.
pub(crate) struct Past {
    /// Mapped memory to which access was asked for and refused: where it begins, where it ends, and with which code.
    refused: Mutex<BTreeMap<u64, (u64, Code)>>,
    /// The last pair of which access was disabled under a copy: a bit, then the source's device and the destination's.
    disabled_under_copy: AtomicU32,
    /// Memory that was freed lately: where each began, and ended.
    frees: [[AtomicU64; 2]; FREES],
    next_free: AtomicUsize,
}

impl Past {
    pub(crate) const fn new() -> Self {
        Self {
            refused: Mutex::new(BTreeMap::new()),
            disabled_under_copy: AtomicU32::new(0),
            frees: [const { [const { AtomicU64::new(0) }; 2] }; FREES],
            next_free: AtomicUsize::new(0),
        }
    }

    /// Access was disabled, not only by the program's account, under a copy from a device to another.
    pub(crate) fn set_disabled_under_copy(&self, [src, dst]: [u8; 2]) {
        self.disabled_under_copy.store(1 << 16 | u32::from(src) << 8 | u32::from(dst), Relaxed);
    }

    /// The last such copy.
    pub(crate) fn disabled_under_copy(&self) -> Option<[u8; 2]> {
        let [_, is_any, src, dst] = self.disabled_under_copy.load(Relaxed).to_be_bytes();
        (is_any != 0).then_some([src, dst])
    }

    /// Access to what is mapped in a range was asked for, and returned a code.
    pub(crate) fn note_access_set(&self, start: u64, bytes: u64, ret: Code) {
        let mut refused = os::lock(&self.refused);
        let end = start.saturating_add(bytes);
        refused.retain(|&from, &mut (to, _)| to <= start || end <= from);
        if ret != Code::SUCCESS && refused.len() < REFUSALS {
            refused.insert(start, (end, ret));
        }
    }

    /// The code of a failed request for access to mapped memory.
    pub(crate) fn refused_access(&self, address: u64) -> Option<Code> {
        let refused = os::lock(&self.refused);
        let (_, &(end, code)) = refused.range(..=address).next_back()?;
        (address < end).then_some(code)
    }

    pub(crate) fn forget(&self) {
        os::lock(&self.refused).clear();
        self.frees.iter().for_each(|[_, to]| to.store(0, Relaxed));
    }

    /// Memory was freed; `end` is just after it, or 0 if no more is known.
    pub(crate) fn note_freed(&self, start: u64, end: u64) {
        if let Some([from, to]) = self.frees.get(self.next_free.fetch_add(1, Relaxed) % FREES) {
            to.store(0, Relaxed);
            // Whoever finds the new beginning finds no end, or the end behind it.
            fence(Release);
            from.store(start, Relaxed);
            to.store(end.max(start.saturating_add(1)), Release);
        }
    }

    /// Whether an address was in memory that was freed lately. The driver says whether it is memory again.
    pub(crate) fn was_freed(&self, address: u64) -> bool {
        self.frees.iter().any(|[from, to]| {
            let end = to.load(Acquire);
            let is_within = (from.load(Relaxed)..end).contains(&address);
            fence(Acquire);
            // Another thread may be writing it anew.
            is_within && to.load(Relaxed) == end
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn was_freed_only_lately() {
        let past = Box::new(Past::new());
        past.note_freed(0x1000, 0x2000);
        past.note_freed(0x8000, 0);
        assert!([0x1000, 0x1fff, 0x8000].iter().all(|&address| past.was_freed(address)));
        assert!([0xfff, 0x2000, 0x8001, 0].iter().all(|&address| !past.was_freed(address)));
        (0..FREES as u64).for_each(|number| past.note_freed(0x10_0000 + number * 0x1000, 0));
        assert!(!past.was_freed(0x1000));
    }

    #[test]
    fn refused_access_is_that_of_the_last_call_about_an_address() {
        let past = Box::new(Past::new());
        past.note_access_set(0x1000, 0x1000, Code(101));
        assert_eq!(
            [0xfff, 0x1000, 0x1fff, 0x2000].map(|at| past.refused_access(at).is_some()),
            [false, true, true, false]
        );
        past.note_access_set(0x1800, 0x100, Code::SUCCESS);
        assert_eq!(past.refused_access(0x1000), None, "what is left of a range is not known");
    }

    #[test]
    fn disabled_under_copy_is_the_last() {
        let past = Box::new(Past::new());
        assert_eq!(past.disabled_under_copy(), None);
        past.set_disabled_under_copy([0, 3]);
        assert_eq!(past.disabled_under_copy(), Some([0, 3]));
    }
}
