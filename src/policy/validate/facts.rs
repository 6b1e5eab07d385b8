//! Facts that calls have shown about handles and memory, to be looked up later.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, AtomicUsize};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use super::handles::{Fact, Handles};
use crate::api::abi::Code;
use crate::policy::capture;
use crate::policy::driver::Driver;

/// An array, as it was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Array {
    /// Width, height and depth in elements; 1 where it has none.
    pub(crate) extent: [u64; 3],
    /// Bytes of an element.
    pub(crate) element: u64,
    /// The device that it lies on, if that is known.
    pub(crate) device: Option<i32>,
}

/// How often who waits for askers looks again, and how long it waits at most: longer than any asks that is not stopped.
const INTERVAL: Duration = Duration::from_micros(20);
const PATIENCE: Duration = Duration::from_millis(200);

/// How many frees are remembered.
const FREES: usize = 256;
/// How many arrays are remembered, destroyed ones included.
const ARRAYS: usize = 4096;
/// How many ranges of mapped memory are remembered to which access was refused.
const REFUSALS: usize = 1024;
const DEVICES: usize = 64;
/// `cudaStreamPerThread` is the last handle that means no stream of its own.
pub(super) const LAST_DEFAULT_STREAM: usize = 2;

/// Facts about the program's handles and memory.
pub(crate) struct Facts {
    /// A copy on a stream that is not among them is checked with what the driver says, which takes six times as long.
    pub(crate) streams: Handles<32_768>,
    pub(crate) contexts: Handles<1024>,
    /// How many non-blocking streams each device has, by the tag of the thread that made them.
    non_blocking: [[AtomicU16; Fact::TAGS]; DEVICES],
    /// None for one that was destroyed.
    arrays: Mutex<BTreeMap<usize, Option<Array>>>,
    /// Held while the driver is asked about streams: those that are about to be destroyed wait for that.
    asking: RwLock<()>,
    /// How many threads wait for those who ask; nobody begins to ask meanwhile.
    waiting: AtomicU32,
    /// The last stream of each pair's direct copies, of those that the program created: from device, to device.
    last_streams: [[AtomicUsize; DEVICES]; DEVICES],
    /// Streams that a reset of their device took along.
    reset: Mutex<BTreeMap<usize, u8>>,
    /// Mapped memory to which access was asked for and refused: where it begins, where it ends, and with which code.
    refused: Mutex<BTreeMap<u64, (u64, Code)>>,
    /// The last pair of which access was disabled under a copy: a bit, then the source's device and the destination's.
    disabled_under_copy: AtomicU32,
    /// Memory that was freed lately: where each began, and ended.
    frees: [[AtomicU64; 2]; FREES],
    next_free: AtomicUsize,
}

impl Facts {
    pub(crate) const fn new() -> Self {
        Self {
            streams: Handles::new(),
            contexts: Handles::new(),
            non_blocking: [const { [const { AtomicU16::new(0) }; Fact::TAGS] }; DEVICES],
            arrays: Mutex::new(BTreeMap::new()),
            asking: RwLock::new(()),
            waiting: AtomicU32::new(0),
            last_streams: [const { [const { AtomicUsize::new(0) }; DEVICES] }; DEVICES],
            reset: Mutex::new(BTreeMap::new()),
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

    fn last_stream(&self, [src, dst]: [u8; 2]) -> Option<&AtomicUsize> {
        self.last_streams.get(usize::from(src))?.get(usize::from(dst))
    }

    /// A direct copy between two devices was queued on a stream.
    #[inline(always)]
    pub(crate) fn has_copied(&self, devices: [u8; 2], stream: usize) {
        if let Some(last) = self.last_stream(devices).filter(|_| stream > LAST_DEFAULT_STREAM) {
            last.store(stream, Relaxed);
        }
    }

    /// The last stream of copies between two devices, in either direction, that has something left to do.
    pub(crate) fn unfinished(&self, driver: &impl Driver, [one, other]: [u8; 2]) -> Option<([u8; 2], usize)> {
        self.beside_no_capture(|| {
            let last = |devices| Some((devices, self.last_stream(devices)?.load(Relaxed)));
            let mut copies = [[one, other], [other, one]].into_iter().filter_map(last);
            copies.find(|&(_, stream)| {
                let is_there = self.streams.find(stream).is_some_and(|fact| !fact.is_destroyed);
                stream > LAST_DEFAULT_STREAM && is_there && driver.is_stream_idle(stream) == Some(false)
            })
        })
    }

    /// A device is about to be reset, and its streams with it.
    pub(crate) fn device_is_reset(&self, device: i32) {
        let is_on = |fact: &Fact| i32::from(fact.device) == device && !fact.is_destroyed;
        let streams = self.streams.iter().filter(|(_, fact)| is_on(fact)).map(|(stream, fact)| (stream, fact.device));
        self.reset.lock().extend(streams);
    }

    /// The device whose reset took a stream along.
    pub(super) fn reset_of(&self, stream: usize) -> Option<u8> {
        self.reset.lock().get(&stream).copied()
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

    pub(crate) fn stream_is_made(&self, stream: usize, fact: Fact) {
        self.reset.lock().remove(&stream);
        let before = self.streams.find(stream);
        self.streams.learn(stream, fact);
        self.count(before, -1);
        self.count(Some(fact), 1);
    }

    /// A stream of which something holds that nobody is about to destroy while it is asked.
    pub(super) fn find_stream(&self, is_it: impl Fn(usize, Fact) -> bool) -> Option<(usize, Fact)> {
        let _asking = self.ask()?;
        self.streams.iter().find(|&(stream, fact)| is_it(stream, fact))
    }

    /// Does something that no capture could bear, unless one is under way; none begins meanwhile.
    pub(crate) fn beside_no_capture<T>(&self, work: impl FnOnce() -> Option<T>) -> Option<T> {
        let _asking = self.ask()?;
        if capture::may_be_under_way() { None } else { work() }
    }

    /// Begins to ask the driver, unless somebody waits for those who do.
    fn ask(&self) -> Option<RwLockReadGuard<'_, ()>> {
        if self.waiting.load(Relaxed) == 0 { self.asking.try_read() } else { None }
    }

    /// Waits for threads that ask the driver about streams that they have found before, for a limited time. If a queue is full, the
    /// driver may block until the device advances, and the device may wait for this caller.
    pub(crate) fn let_askers_finish(&self) {
        if self.asking.try_write().is_some() {
            return;
        }
        let started = Instant::now();
        self.waiting.fetch_add(1, Relaxed);
        while self.asking.try_write().is_none() && started.elapsed() < PATIENCE {
            thread::sleep(INTERVAL);
        }
        self.waiting.fetch_sub(1, Relaxed);
    }

    /// A stream is destroyed, or about to be.
    pub(crate) fn stream_is_gone(&self, stream: usize) {
        if stream <= LAST_DEFAULT_STREAM {
            return;
        }
        let before = self.streams.find(stream);
        self.count(before, -1);
        let device = before.map_or(Fact::NOWHERE, |fact| fact.device);
        self.streams.set(stream, Fact { is_destroyed: true, ..Fact::on(device) });
        self.let_askers_finish();
    }

    fn count(&self, fact: Option<Fact>, by: i16) {
        if let Some(fact) = fact.filter(|fact| fact.non_blocking && !fact.is_destroyed && fact.thread != Fact::MANY)
            && let Some(count) = self.counter(fact.device, fact.thread)
        {
            let _ = count.fetch_update(Relaxed, Relaxed, |count| count.checked_add_signed(by));
        }
    }

    /// Whether a device may have a non-blocking stream that a thread made.
    #[inline(always)]
    pub(crate) fn has_non_blocking(&self, device: u8, thread: u8) -> bool {
        self.counter(device, thread).is_some_and(|count| count.load(Relaxed) != 0)
    }

    #[inline(always)]
    fn counter(&self, device: u8, thread: u8) -> Option<&AtomicU16> {
        self.non_blocking.get(usize::from(device))?.get(usize::from(thread))
    }

    /// Forgets all contexts, and the devices of streams: some context has ended, or is about to.
    pub(crate) fn contexts_have_changed(&self) {
        self.contexts.retain(|_| false);
        self.streams.retain(|fact| fact.is_destroyed);
        self.non_blocking.iter().flatten().for_each(|count| count.store(0, Relaxed));
        self.let_askers_finish();
    }

    pub(super) fn forget(&self) {
        self.contexts_have_changed();
        self.streams.retain(|_| false);
        self.arrays.lock().clear();
        self.reset.lock().clear();
        self.refused.lock().clear();
        self.frees.iter().for_each(|[_, to]| to.store(0, Relaxed));
    }

    pub(crate) fn array_is_made(&self, handle: usize, array: Array) {
        let mut arrays = self.arrays.lock();
        if arrays.len() >= ARRAYS {
            arrays.retain(|_, known| known.is_some());
        }
        if arrays.len() < ARRAYS {
            arrays.insert(handle, Some(array));
        }
    }

    pub(crate) fn array_is_gone(&self, handle: usize) {
        if let Some(known) = self.arrays.lock().get_mut(&handle) {
            *known = None;
        }
    }

    /// There is an array where one was destroyed.
    pub(crate) fn array_is_there(&self, handle: usize) {
        let mut arrays = self.arrays.lock();
        if arrays.get(&handle) == Some(&None) {
            arrays.remove(&handle);
        }
    }

    /// An array, if it is known; none inside if it was destroyed.
    pub(super) fn array(&self, handle: usize) -> Option<Option<Array>> {
        self.arrays.lock().get(&handle).copied()
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

    fn stream(device: u8, non_blocking: bool) -> Fact {
        Fact { non_blocking, thread: 5, ..Fact::on(device) }
    }

    #[test]
    fn non_blocking_streams_are_counted_by_device() {
        let facts = Box::new(Facts::new());
        facts.stream_is_made(0x100, stream(1, true));
        facts.stream_is_made(0x200, stream(0, false));
        assert!(facts.has_non_blocking(1, 5) && !facts.has_non_blocking(0, 5));
        assert!(!facts.has_non_blocking(1, 6), "another thread's");
        facts.stream_is_made(0x300, Fact { thread: Fact::MANY, ..stream(1, true) });
        assert!(!facts.has_non_blocking(1, Fact::MANY), "any thread's");
        facts.stream_is_made(0x100, stream(0, true));
        assert!(facts.has_non_blocking(0, 5) && !facts.has_non_blocking(1, 5), "the handle was given again");
        facts.stream_is_gone(0x100);
        facts.stream_is_gone(0x100);
        assert!(!facts.has_non_blocking(0, 5) && !facts.has_non_blocking(200, 5));
        assert!(facts.streams.find(0x100).is_some_and(|fact| fact.is_destroyed));
        facts.stream_is_made(0x100, stream(1, true));
        facts.contexts_have_changed();
        assert!(!facts.has_non_blocking(1, 5) && facts.streams.find(0x100).is_none());
    }

    #[test]
    fn let_askers_finish_waits_for_them_but_not_for_ever() {
        let facts = Facts::new();
        let begun = Instant::now();
        let asked = facts.beside_no_capture(|| {
            // A driver that returns only when the caller has gone on.
            thread::scope(|scope| scope.spawn(|| facts.let_askers_finish()).join().ok())?;
            Some(begun.elapsed())
        });
        assert!(asked.is_some_and(|waited| waited >= PATIENCE), "{asked:?}");
        assert_eq!(facts.beside_no_capture(|| Some(1)), Some(1), "it is over");
        thread::scope(|scope| {
            facts.beside_no_capture(|| {
                let waiter = scope.spawn(|| facts.let_askers_finish());
                while facts.waiting.load(Relaxed) == 0 && !waiter.is_finished() {
                    thread::yield_now();
                }
                assert_eq!(facts.beside_no_capture(|| Some(1)), None, "nobody asks beside who waits");
                Some(())
            });
        });
    }

    #[test]
    fn was_freed_only_lately() {
        let facts = Box::new(Facts::new());
        facts.memory_is_gone(0x1000, 0x2000);
        facts.memory_is_gone(0x8000, 0);
        assert!([0x1000, 0x1fff, 0x8000].iter().all(|&address| facts.was_freed(address)));
        assert!([0xfff, 0x2000, 0x8001, 0].iter().all(|&address| !facts.was_freed(address)));
        (0..FREES as u64).for_each(|number| facts.memory_is_gone(0x10_0000 + number * 0x1000, 0));
        assert!(!facts.was_freed(0x1000));
    }

    #[test]
    fn refused_access_is_that_of_the_last_call_about_an_address() {
        let facts = Box::new(Facts::new());
        facts.access_was_set(0x1000, 0x1000, Code(101));
        assert_eq!(
            [0xfff, 0x1000, 0x1fff, 0x2000].map(|at| facts.refused_access(at).is_some()),
            [false, true, true, false]
        );
        facts.access_was_set(0x1800, 0x100, Code::SUCCESS);
        assert_eq!(facts.refused_access(0x1000), None, "what is left of a range is not known");
    }

    #[test]
    fn streams_that_a_reset_took_are_known_until_the_handle_is_given_again() {
        let facts = Box::new(Facts::new());
        facts.stream_is_made(0x100, stream(1, true));
        facts.stream_is_made(0x200, stream(0, true));
        facts.device_is_reset(1);
        facts.contexts_have_changed();
        assert_eq!([0x100, 0x200].map(|stream| facts.reset_of(stream)), [Some(1), None]);
        facts.stream_is_made(0x100, stream(0, true));
        assert_eq!(facts.reset_of(0x100), None);
        assert_eq!(facts.disabled_under_copy(), None);
        facts.is_disabled_under_copy([0, 3]);
        assert_eq!(facts.disabled_under_copy(), Some([0, 3]));
    }

    #[test]
    fn array_destroyed_is_not_unknown() {
        let facts = Box::new(Facts::new());
        let array = Array { extent: [4, 1, 1], element: 4, device: Some(0) };
        facts.array_is_made(0x10, array);
        assert_eq!(facts.array(0x10), Some(Some(array)));
        facts.array_is_gone(0x10);
        facts.array_is_gone(0x20);
        assert_eq!((facts.array(0x10), facts.array(0x20)), (Some(None), None));
    }
}
