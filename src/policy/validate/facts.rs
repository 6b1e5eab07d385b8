//! Facts that calls have shown about handles and memory, to be looked up later.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

use parking_lot::Mutex;

use crate::api::abi::Code;
use crate::objects::streams::Known;
use crate::objects::{Objects, captures};
use crate::policy::driver::Driver;

/// How many frees are remembered.
const FREES: usize = 256;
/// How many ranges of mapped memory are remembered to which access was refused.
const REFUSALS: usize = 1024;

/// Facts about the program's handles and memory.
pub(crate) struct Facts {
    pub(super) objects: &'static Objects,
    /// Mapped memory to which access was asked for and refused: where it begins, where it ends, and with which code.
    refused: Mutex<BTreeMap<u64, (u64, Code)>>,
    /// The last pair of which access was disabled under a copy: a bit, then the source's device and the destination's.
    disabled_under_copy: AtomicU32,
    /// Memory that was freed lately: where each began, and ended.
    frees: [[AtomicU64; 2]; FREES],
    next_free: AtomicUsize,
}

impl Facts {
    pub(crate) const fn new(objects: &'static Objects) -> Self {
        Self {
            objects,
            refused: Mutex::new(BTreeMap::new()),
            disabled_under_copy: AtomicU32::new(0),
            frees: [const { [const { AtomicU64::new(0) }; 2] }; FREES],
            next_free: AtomicUsize::new(0),
        }
    }

    /// Access was disabled, not only by the program's account, under a copy from a device to another.
    pub(crate) fn is_disabled_under_copy(&self, [src, dst]: [u8; 2]) {
        self.disabled_under_copy.store(1 << 16 | u32::from(src) << 8 | u32::from(dst), Relaxed);
    }

    /// The last such copy.
    pub(super) fn disabled_under_copy(&self) -> Option<[u8; 2]> {
        let [_, is_any, src, dst] = self.disabled_under_copy.load(Relaxed).to_be_bytes();
        (is_any != 0).then_some([src, dst])
    }

    /// The last stream of direct copies between two devices, in either direction, that has something left to do.
    pub(crate) fn unfinished(&self, driver: &impl Driver, [one, other]: [u8; 2]) -> Option<([u8; 2], usize)> {
        captures::beside_none(|| {
            let last = |devices| Some((devices, self.objects.streams.last_of(devices)?));
            let mut copies = [[one, other], [other, one]].into_iter().filter_map(last);
            copies.find(|&(_, stream)| driver.is_stream_idle(stream) == Some(false))
        })
    }

    /// A stream of which something holds that nobody is about to destroy while it is asked.
    pub(super) fn find_stream(&self, is_it: impl Fn(usize, Known) -> bool) -> Option<(usize, Known)> {
        let _asking = captures::ask()?;
        self.objects.streams.all().find(|&(stream, known)| is_it(stream, known))
    }

    /// Access to what is mapped in a range was asked for, and returned a code.
    pub(crate) fn access_was_set(&self, start: u64, bytes: u64, ret: Code) {
        let mut refused = self.refused.lock();
        let end = start.saturating_add(bytes);
        refused.retain(|&from, &mut (to, _)| to <= start || end <= from);
        if ret != Code::SUCCESS && refused.len() < REFUSALS {
            refused.insert(start, (end, ret));
        }
    }

    /// The code of a failed request for access to mapped memory.
    pub(super) fn refused_access(&self, address: u64) -> Option<Code> {
        let refused = self.refused.lock();
        let (_, &(end, code)) = refused.range(..=address).next_back()?;
        (address < end).then_some(code)
    }

    pub(super) fn forget(&self) {
        self.objects.context_has_changed(None, None);
        self.objects.streams.forget_all();
        self.refused.lock().clear();
        self.frees.iter().for_each(|[_, to]| to.store(0, Relaxed));
    }

    /// Memory was freed; `end` is just after it, or 0 if no more is known.
    pub(crate) fn memory_is_gone(&self, start: u64, end: u64) {
        if let Some([from, to]) = self.frees.get(self.next_free.fetch_add(1, Relaxed) % FREES) {
            to.store(0, Relaxed);
            from.store(start, Relaxed);
            to.store(end.max(start.saturating_add(1)), Relaxed);
        }
    }

    /// Whether an address was in memory that was freed lately. The driver says whether it is memory again.
    pub(super) fn was_freed(&self, address: u64) -> bool {
        self.frees.iter().any(|[from, to]| (from.load(Relaxed)..to.load(Relaxed)).contains(&address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::OBJECTS;

    #[test]
    fn was_freed_only_lately() {
        let facts = Box::new(Facts::new(&OBJECTS));
        facts.memory_is_gone(0x1000, 0x2000);
        facts.memory_is_gone(0x8000, 0);
        assert!([0x1000, 0x1fff, 0x8000].iter().all(|&address| facts.was_freed(address)));
        assert!([0xfff, 0x2000, 0x8001, 0].iter().all(|&address| !facts.was_freed(address)));
        (0..FREES as u64).for_each(|number| facts.memory_is_gone(0x10_0000 + number * 0x1000, 0));
        assert!(!facts.was_freed(0x1000));
    }

    #[test]
    fn refused_access_is_that_of_the_last_call_about_an_address() {
        let facts = Box::new(Facts::new(&OBJECTS));
        facts.access_was_set(0x1000, 0x1000, Code(101));
        assert_eq!(
            [0xfff, 0x1000, 0x1fff, 0x2000].map(|at| facts.refused_access(at).is_some()),
            [false, true, true, false]
        );
        facts.access_was_set(0x1800, 0x100, Code::SUCCESS);
        assert_eq!(facts.refused_access(0x1000), None, "what is left of a range is not known");
    }

    #[test]
    fn disabled_under_copy_is_the_last() {
        let facts = Box::new(Facts::new(&OBJECTS));
        assert_eq!(facts.disabled_under_copy(), None);
        facts.is_disabled_under_copy([0, 3]);
        assert_eq!(facts.disabled_under_copy(), Some([0, 3]));
    }
}
