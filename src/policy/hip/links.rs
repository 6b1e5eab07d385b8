//! Who may access whose memory because of us: from device, to device.

use std::mem;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

/// How many copies of the runtime are told apart in a process.
pub(crate) const LIBRARIES: usize = 4;
/// How many devices are told apart.
pub(super) const DEVICES: usize = 64;

/// The bit of a device; none of one that is not told apart.
pub(super) fn bit(device: i32) -> u64 {
    u32::try_from(device).ok().and_then(|device| 1u64.checked_shl(device)).unwrap_or_default()
}

/// What a table has about two devices, if they are told apart.
#[inline(always)]
pub(super) fn at<T>(table: &[[T; DEVICES]; DEVICES], [one, other]: [u8; 2]) -> Option<&T> {
    table.get(usize::from(one))?.get(usize::from(other))
}

/// Access from one device to the memory of another, as far as it is our doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Link {
    /// It is none, or the program's.
    Idle = 0,
    Enabling = 1,
    /// It is ours: the program has not asked for it.
    Ours = 2,
    Disabling = 3,
}

/// All pairs of devices, each direction by itself.
pub(super) struct Links {
    links: [[AtomicU8; DEVICES]; DEVICES],
    decided: [[AtomicU8; DEVICES]; DEVICES],
}

/// A link that nobody else changes until it is ended.
pub(super) struct Changing<'a>(&'a AtomicU8);

impl Changing<'_> {
    /// Says what has become of it.
    pub(super) fn end(self, link: Link) {
        self.0.store(link as u8, Release);
        mem::forget(self);
    }
}

impl Drop for Changing<'_> {
    /// After a panic: who waits for it goes on.
    fn drop(&mut self) {
        self.0.store(Link::Idle as u8, Release);
    }
}

impl Links {
    pub(super) const fn new() -> Self {
        Self {
            links: [const { [const { AtomicU8::new(Link::Idle as u8) }; DEVICES] }; DEVICES],
            decided: [const { [const { AtomicU8::new(0) }; DEVICES] }; DEVICES],
        }
    }

    fn link(&self, from: u8, to: u8) -> Option<&AtomicU8> {
        at(&self.links, [from, to])
    }

    /// Begins to change a link that is not ours; none if it is, or if somebody changes it.
    pub(super) fn begin(&self, from: u8, to: u8, into: Link) -> Option<Changing<'_>> {
        let link = self.link(from, to)?;
        link.compare_exchange(Link::Idle as u8, into as u8, AcqRel, Acquire).ok().map(|_| Changing(link))
    }

    /// Begins to disable a link that is ours; none if it is not.
    pub(super) fn begin_disabling(&self, from: u8, to: u8) -> Option<Changing<'_>> {
        let link = self.link(from, to)?;
        wait(link);
        let began = link.compare_exchange(Link::Ours as u8, Link::Disabling as u8, AcqRel, Acquire);
        began.ok().map(|_| Changing(link))
    }

    /// Makes a link the program's that was ours. False if it was not.
    pub(super) fn take(&self, from: u8, to: u8) -> bool {
        let Some(link) = self.link(from, to) else { return false };
        wait(link);
        link.compare_exchange(Link::Ours as u8, Link::Idle as u8, AcqRel, Acquire).is_ok()
    }

    /// Whether there is nothing more to be done about a pair.
    #[inline(always)]
    pub(super) fn are_decided(&self, one: u8, other: u8) -> bool {
        at(&self.decided, [one, other]).is_some_and(|decided| decided.load(Relaxed) != 0)
    }

    /// Says that there is nothing more to be done about a pair.
    pub(super) fn mark_decided(&self, one: u8, other: u8) {
        self.set(one, other, 1);
    }

    /// Says that a pair has to be decided anew.
    pub(super) fn invalidate(&self, one: u8, other: u8) {
        self.set(one, other, 0);
    }

    /// Says that every pair has to be decided anew.
    pub(super) fn invalidate_all(&self) {
        self.decided.iter().flatten().for_each(|decided| decided.store(0, Relaxed));
    }

    /// Whether a link is ours, for those who ask.
    pub(super) fn is_ours(&self, from: u8, to: u8) -> bool {
        self.link(from, to).is_some_and(|link| link.load(Relaxed) == Link::Ours as u8)
    }

    fn set(&self, one: u8, other: u8, decided: u8) {
        for place in [[one, other], [other, one]].into_iter().filter_map(|pair| at(&self.decided, pair)) {
            place.store(decided, Relaxed);
        }
    }
}

/// Waits while another thread changes a link: the runtime may have much memory to map. Not for ever, since that thread may
/// have been ended.
fn wait(link: &AtomicU8) {
    const MOST: Duration = Duration::from_secs(10);
    const PAUSE: Duration = Duration::from_micros(20);
    let is_changing = || [Link::Enabling as u8, Link::Disabling as u8].contains(&link.load(Acquire));
    if !is_changing() {
        return;
    }
    let since = Instant::now();
    while is_changing() && since.elapsed() < MOST {
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take_of_a_link_that_is_slow_to_enable_waits_for_it() {
        let links = Box::new(Links::new());
        let changing = links.begin(0, 1, Link::Enabling).unwrap();
        std::thread::scope(|scope| {
            let taker = scope.spawn(|| links.take(0, 1));
            std::thread::sleep(Duration::from_millis(400));
            changing.end(Link::Ours);
            assert!(taker.join().unwrap(), "it would be enabled twice, and return 704");
        });
    }
}
