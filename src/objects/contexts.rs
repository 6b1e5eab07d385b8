//! Contexts of the program, and what the driver does not tell of them.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::os;
use crate::os::table::Table;

/// The retains and releases of a primary context.
#[derive(Default)]
struct Holds {
    /// How often the program has retained it, as far as was seen.
    retained: u32,
    /// How many releases are under way.
    releasing: u32,
    /// Whether somebody retains it who was not seen, as the runtime does.
    by_others: bool,
}

pub(crate) struct Contexts {
    /// Their devices. The driver is asked about one that does not fit.
    devices: Table<1024, 48>,
    /// The context that each thread may be about to end, if it is known which.
    ending: Mutex<BTreeMap<usize, Option<usize>>>,
    /// By device.
    holds: Mutex<BTreeMap<i32, Holds>>,
    /// The contexts of modules that were loaded in sight: unloading waits for that context, whichever is current.
    modules: Mutex<BTreeMap<usize, usize>>,
}

impl Contexts {
    pub(crate) const fn new() -> Self {
        Self {
            devices: Table::new(),
            ending: Mutex::new(BTreeMap::new()),
            holds: Mutex::new(BTreeMap::new()),
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

    /// A thread may be about to end a context.
    pub(crate) fn mark_ending(&self, thread: usize, context: Option<usize>) {
        os::lock(&self.ending).insert(thread, context);
    }

    /// Whether that was said of a thread's call.
    pub(crate) fn is_ending(&self, thread: usize) -> bool {
        os::lock(&self.ending).contains_key(&thread)
    }

    /// The thread's call has returned. The context that it may have ended, if it is known which; none if it could end none.
    pub(crate) fn take_ending(&self, thread: usize) -> Option<Option<usize>> {
        os::lock(&self.ending).remove(&thread)
    }

    /// The program is about to retain the primary context of a device: counted before, so that nobody's release passes for the last.
    pub(crate) fn begin_retain(&self, device: i32) {
        self.with(device, |holds| holds.retained += 1);
    }

    /// The driver has refused to retain it.
    pub(crate) fn undo_retain(&self, device: i32) {
        self.with(device, |holds| holds.retained = holds.retained.saturating_sub(1));
    }

    /// The program is about to release one. Returns whether that may end it. A release that fails is counted too: then one more may end it.
    pub(crate) fn begin_release(&self, device: i32) -> bool {
        self.with(device, |holds| {
            holds.releasing += 1;
            let before = holds.retained;
            holds.retained = before.saturating_sub(1);
            before < 2 && !(before == 1 && holds.by_others)
        })
    }

    /// The call has returned, and the context is there: whoever retains it was not seen, if nobody seen does or is about to release it.
    pub(crate) fn note_held(&self, device: i32) {
        self.with(device, |holds| holds.by_others |= holds.retained == 0 && holds.releasing == 1);
    }

    /// The primary context of a device has ended, or was reset.
    pub(crate) fn forget_held(&self, device: i32) {
        self.with(device, |holds| holds.by_others = false);
    }

    pub(crate) fn end_release(&self, device: i32) {
        self.with(device, |holds| holds.releasing = holds.releasing.saturating_sub(1));
    }

    fn with<T>(&self, device: i32, change: impl FnOnce(&mut Holds) -> T) -> T {
        change(os::lock(&self.holds).entry(device).or_default())
    }

    pub(crate) fn note_module(&self, module: usize, context: usize) {
        os::lock(&self.modules).insert(module, context);
    }

    /// A module is about to be unloaded. Its context, if it was loaded in sight.
    pub(crate) fn forget_module(&self, module: usize) -> Option<usize> {
        os::lock(&self.modules).remove(&module)
    }
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

    fn release(contexts: &Contexts, device: i32) -> bool {
        let may_end = contexts.begin_release(device);
        contexts.end_release(device);
        may_end
    }

    #[test]
    fn begin_release_by_how_often_it_was_retained() {
        let contexts = Contexts::new();
        assert!(release(&contexts, 0), "retained unseen");
        (0..3).for_each(|_| contexts.begin_retain(0));
        contexts.undo_retain(0);
        assert_eq!([release(&contexts, 0), release(&contexts, 0)], [false, true]);
        assert!(release(&contexts, -1) && release(&contexts, 64));
    }

    /// As a library does that retains and releases around each copy.
    fn in_turn(contexts: &Contexts, is_there: bool) -> bool {
        contexts.begin_retain(0);
        let may_end = contexts.begin_release(0);
        if is_there {
            contexts.note_held(0);
        } else {
            contexts.forget_held(0);
        }
        contexts.end_release(0);
        may_end
    }

    #[test]
    fn begin_release_of_a_context_that_others_hold_does_not_end_it() {
        let contexts = Contexts::new();
        assert_eq!(
            [in_turn(&contexts, true), in_turn(&contexts, true), in_turn(&contexts, false)],
            [true, false, false]
        );
        assert!(in_turn(&contexts, true), "the others have let it go");
    }

    #[test]
    fn note_held_says_nothing_where_another_thread_retains_or_releases() {
        let contexts = Contexts::new();
        contexts.begin_retain(0);
        assert!(contexts.begin_release(0));
        contexts.begin_retain(0);
        contexts.note_held(0);
        contexts.end_release(0);
        assert!(contexts.begin_release(0), "the other thread's is the last");
        let other = contexts.begin_release(0);
        contexts.note_held(0);
        assert!(other);
        (0..2).for_each(|_| contexts.end_release(0));
        contexts.begin_retain(0);
        assert!(release(&contexts, 0), "two releases were under way");
    }
}
