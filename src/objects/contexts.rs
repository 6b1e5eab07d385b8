//! Contexts of the program, and what the driver does not tell of them.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};

use crate::os;
use crate::os::table::Table;

const DEVICES: usize = 64;

pub(crate) struct Contexts {
    /// Their devices. The driver is asked about one that does not fit.
    devices: Table<1024, 48>,
    /// The context that each thread is about to end.
    ending: Mutex<BTreeMap<usize, usize>>,
    /// How often the program has retained the primary context of each device, as far as was seen.
    retained: [AtomicU32; DEVICES],
    /// Whether somebody retains the primary context of each device who was not seen, as the runtime does.
    held: [AtomicBool; DEVICES],
    /// The contexts of modules that were loaded in sight: unloading waits for that context, whichever is current.
    modules: Mutex<BTreeMap<usize, usize>>,
}

impl Contexts {
    pub(crate) const fn new() -> Self {
        Self {
            devices: Table::new(),
            ending: Mutex::new(BTreeMap::new()),
            retained: [const { AtomicU32::new(0) }; DEVICES],
            held: [const { AtomicBool::new(false) }; DEVICES],
            modules: Mutex::new(BTreeMap::new()),
        }
    }

    /// The device of a context that was seen, and exists.
    #[inline(always)]
    pub(crate) fn device_of(&self, context: usize) -> Option<u8> {
        self.devices.find(context as u64).map(|device| device as u8)
    }

    pub(crate) fn note_device(&self, context: usize, device: u8) {
        if self.device_of(context) != Some(device) {
            self.devices.set(context as u64, device.into(), |_| false, true);
        }
    }

    /// A context may have ended, or be about to. If it is not known which, any may be it.
    pub(crate) fn forget(&self, context: Option<usize>, primary_of: Option<i32>) {
        self.devices.retain(|known, device| match (context, primary_of) {
            (Some(context), _) => known != context as u64,
            (None, Some(primary_of)) => device as i32 != primary_of,
            (None, None) => false,
        });
    }

    /// A thread is about to end a context, if it is known which.
    pub(crate) fn mark_ending(&self, thread: usize, context: Option<usize>) {
        let ending = &mut *os::lock(&self.ending);
        match context {
            Some(context) => ending.insert(thread, context),
            None => ending.remove(&thread),
        };
    }

    /// The thread's call has returned. The context that it was to end.
    pub(crate) fn ended_by(&self, thread: usize) -> Option<usize> {
        os::lock(&self.ending).remove(&thread)
    }

    /// The program has retained the primary context of a device.
    pub(crate) fn count_retain(&self, device: i32) {
        at(&self.retained, device).inspect(|count| _ = count.fetch_add(1, Relaxed));
    }

    /// The program is about to release one. Whether that may end it.
    pub(crate) fn count_release(&self, device: i32) -> bool {
        let less = |count: u32| count.checked_sub(1);
        let before = at(&self.retained, device).map(|count| count.fetch_update(Relaxed, Relaxed, less));
        let is_held = at(&self.held, device).is_some_and(|held| held.load(Relaxed));
        !matches!((before, is_held), (Some(Ok(2..)), _) | (Some(Ok(1)), true))
    }

    /// A primary context was released and is there, or it was reset: who retains it unseen is known anew.
    pub(crate) fn note_held(&self, device: i32, is_there: bool) {
        let is_seen = at(&self.retained, device).is_some_and(|count| count.load(Relaxed) > 0);
        if !is_there || !is_seen {
            at(&self.held, device).inspect(|held| held.store(is_there, Relaxed));
        }
    }

    pub(crate) fn note_module(&self, module: usize, context: usize) {
        os::lock(&self.modules).insert(module, context);
    }

    /// A module is about to be unloaded. Its context, if it was loaded in sight.
    pub(crate) fn forget_module(&self, module: usize) -> Option<usize> {
        os::lock(&self.modules).remove(&module)
    }
}

/// Returns the entry of a device; none if the table has no place for it.
fn at<T>(of_devices: &[T; DEVICES], device: i32) -> Option<&T> {
    of_devices.get(usize::try_from(device).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forget_others_are_known_still() {
        let contexts = Contexts::new();
        let learn = || [(0xa0, 0), (0xb0, 1), (0xc0, 1)].map(|(context, device)| contexts.note_device(context, device));
        let known = || [0xa0, 0xb0, 0xc0].map(|context| contexts.device_of(context));
        learn();
        contexts.forget(Some(0xb0), Some(1));
        assert_eq!(known(), [Some(0), None, Some(1)]);
        learn();
        contexts.forget(None, Some(1));
        assert_eq!(known(), [Some(0), None, None]);
        contexts.forget(None, None);
        assert_eq!(known(), [None; 3]);
    }

    #[test]
    fn count_release_by_how_often_it_was_retained() {
        let contexts = Contexts::new();
        assert!(contexts.count_release(0), "retained unseen");
        (0..2).for_each(|_| contexts.count_retain(0));
        assert_eq!([contexts.count_release(0), contexts.count_release(0)], [false, true]);
        assert!(contexts.count_release(-1) && contexts.count_release(64));
    }

    #[test]
    fn count_release_of_a_context_that_others_hold_does_not_end_it() {
        let contexts = Contexts::new();
        let releases = || {
            contexts.count_retain(0);
            contexts.count_release(0)
        };
        assert!(releases());
        contexts.note_held(0, true);
        assert!(!releases() && !releases());
        contexts.count_retain(0);
        contexts.note_held(0, true);
        assert!(!contexts.count_release(0));
        assert!(contexts.count_release(0), "retained unseen, and released in sight");
        contexts.note_held(0, false);
        assert!(releases(), "after a reset");
    }
}
