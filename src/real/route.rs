//! Where calls by one route go: a real function for all callers, or one for each call site. A function that is found, without a lock, stays.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicUsize};

use crate::os::table::spread;

/// Where calls by one route go. Once set it never changes, and the library is never unloaded.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Slot(AtomicPtr<c_void>);

impl Slot {
    /// In place of a real function: [`Routes`] has one for each call site.
    const BY_CALLER: *mut c_void = ptr::without_provenance_mut(1);

    /// A slot nobody uses yet.
    pub(crate) const fn empty() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// The real function, or null if it has to be looked for first.
    #[inline(always)]
    pub(crate) fn real(&self) -> *mut c_void {
        let real = self.0.load(Acquire);
        if real == Self::BY_CALLER { ptr::null_mut() } else { real }
    }

    /// A number that tells the real function from others, as far as it is known.
    #[inline(always)]
    pub(crate) fn number(&self) -> usize {
        self.0.load(Acquire) as usize
    }

    /// Takes the slot for `real`, whose library must be there for good. False if it holds another function, or none for all callers.
    pub(crate) fn claim(&self, real: *mut c_void) -> bool {
        match self.0.compare_exchange(ptr::null_mut(), real, AcqRel, Acquire) {
            Ok(_) => true,
            Err(holder) => holder == real,
        }
    }
}

/// A call site whose own library decided. Entries are added, never changed. Three words do not fit into one of a
/// [`Table`](crate::os::table::Table).
struct Route {
    caller: AtomicUsize,
    slot: AtomicUsize,
    real: AtomicPtr<c_void>,
}

impl Route {
    const fn empty() -> Self {
        Self { caller: AtomicUsize::new(0), slot: AtomicUsize::new(0), real: AtomicPtr::new(ptr::null_mut()) }
    }
}

/// So many call sites are told apart; a power of two.
pub(crate) struct Routes<const COUNT: usize>([Route; COUNT]);

impl<const COUNT: usize> Routes<COUNT> {
    pub(crate) const fn new() -> Self {
        Self([const { Route::empty() }; COUNT])
    }

    /// All entries, beginning where this call site would be first.
    fn entries(&self, caller: *const c_void) -> impl Iterator<Item = &Route> {
        let (before, from) = self.0.split_at(spread(caller as u64, COUNT.ilog2()));
        from.iter().chain(before)
    }

    /// Where this call site's calls by the slot go, if its own library decided.
    pub(crate) fn find(&self, slot: &Slot, caller: *const c_void) -> Option<*mut c_void> {
        for entry in self.entries(caller) {
            // Read first what was written last.
            let real = entry.real.load(Acquire);
            let holder = entry.caller.load(Relaxed);
            if holder == 0 {
                return None;
            }
            if holder == caller as usize && entry.slot.load(Relaxed) == ptr::from_ref(slot) as usize && !real.is_null()
            {
                return Some(real);
            }
        }
        None
    }

    /// The real functions that call sites' own libraries decided for.
    pub(crate) fn all(&self) -> impl Iterator<Item = *mut c_void> {
        self.0.iter().map(|entry| entry.real.load(Acquire)).filter(|real| !real.is_null())
    }

    /// Has a call site's calls by the slot go to `real`, unless the slot has been taken for all callers. Where they go. With all entries
    /// taken, further call sites are looked up at every call.
    pub(crate) fn keep(&self, slot: &Slot, caller: *const c_void, real: *mut c_void) -> *mut c_void {
        if let Err(holder) = slot.0.compare_exchange(ptr::null_mut(), Slot::BY_CALLER, AcqRel, Acquire)
            && holder != Slot::BY_CALLER
        {
            return holder;
        }
        for entry in self.entries(caller) {
            if entry.caller.compare_exchange(0, caller as usize, Relaxed, Relaxed).is_ok() {
                entry.slot.store(ptr::from_ref(slot) as usize, Relaxed);
                entry.real.store(real, Release);
                break;
            }
        }
        real
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn route_is_kept_by_slot_and_caller() {
        let slots = [const { Slot::empty() }; 2];
        let (here, there) = (0x5000 as *const c_void, 0x6000 as *const c_void);
        let (one, two) = (0x100 as *mut c_void, 0x200 as *mut c_void);
        let routes = Routes::<16>::new();
        assert_eq!(routes.keep(&slots[0], here, one), one);
        assert_eq!(routes.keep(&slots[1], here, two), two);
        assert_eq!(routes.keep(&slots[0], there, two), two);
        assert_eq!(routes.find(&slots[0], here), Some(one));
        assert_eq!(routes.find(&slots[1], here), Some(two));
        assert_eq!(routes.find(&slots[0], there), Some(two));
        assert_eq!(routes.find(&slots[1], there), None);
        assert!(!slots[0].claim(one) && slots[0].real().is_null(), "call sites stay apart");
    }

    #[test]
    fn keep_a_route_by_a_slot_that_is_taken_leads_where_that_does() {
        let (slot, routes) = (Slot::empty(), Routes::<16>::new());
        let (one, two) = (0x100 as *mut c_void, 0x200 as *mut c_void);
        assert!(slot.claim(one) && slot.claim(one) && !slot.claim(two));
        assert_eq!(routes.keep(&slot, 0x5000 as *const c_void, two), one);
        assert_eq!((routes.find(&slot, 0x5000 as *const c_void), routes.all().count()), (None, 0));
    }
}
