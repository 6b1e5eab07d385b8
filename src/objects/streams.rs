//! Streams: what a handle names, and what is known of those that the program created.
//!
//! A fact about a stream may be out of date: the stream may have ended unseen. So the driver is asked again before p2pshim says anything.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize};

use super::map::{Full, Map};
use crate::os::table::spread;

/// `CU_STREAM_LEGACY`, `CU_STREAM_PER_THREAD`.
pub(crate) const LEGACY: usize = 1;
pub(crate) const PER_THREAD: usize = 2;

/// Whether a handle names a stream that the program created, not a default stream.
#[inline(always)]
pub(crate) fn is_created(handle: usize) -> bool {
    handle > PER_THREAD
}

/// The stream that a handle names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Created(usize),
    /// The legacy default stream of the current context.
    Legacy,
    /// The default stream of a thread, by anything that tells threads apart, in the current context.
    PerThread(usize),
}

impl Stream {
    /// A handle that names it.
    pub(crate) fn handle(self) -> usize {
        match self {
            Self::Created(handle) => handle,
            Self::Legacy => LEGACY,
            Self::PerThread(_) => PER_THREAD,
        }
    }

    /// `per_thread` says whether the null handle names the thread's own default stream.
    #[inline(always)]
    pub(crate) fn new(handle: usize, per_thread: bool, thread: usize) -> Self {
        match handle {
            PER_THREAD => Self::PerThread(thread),
            0 if per_thread => Self::PerThread(thread),
            0 | LEGACY => Self::Legacy,
            _ => Self::Created(handle),
        }
    }
}

/// A stream that the program created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// Its context, by a number that others may have too: [`Known::context`]. 0 if that is not known.
    pub(crate) context: u16,
    /// [`Known::NOWHERE`] if that is not known.
    pub(crate) device: u8,
    /// Whether the legacy default stream does not wait for it.
    pub(crate) non_blocking: bool,
    pub(crate) state: State,
    /// The tag of the thread that made it.
    pub(crate) thread: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    There,
    Destroyed,
    /// A reset of its device took it along.
    Reset,
}

impl Known {
    /// In place of a device.
    pub(crate) const NOWHERE: u8 = 127;
    /// How many tags of threads there are.
    pub(crate) const TAGS: usize = 1 << 6;
    /// In place of a tag.
    pub(crate) const NO_THREAD: u8 = 0;
    /// The tag that all threads share for which there is none of their own.
    pub(crate) const MANY: u8 = Self::TAGS as u8 - 1;

    /// A stream of which only the device may be known.
    pub(crate) const fn on(device: Option<u8>) -> Self {
        let device = match device {
            Some(device) if device < Self::NOWHERE => device,
            _ => Self::NOWHERE,
        };
        Self { context: 0, device, non_blocking: false, state: State::There, thread: Self::NO_THREAD }
    }

    /// Whether a thread made it, as far as that is known.
    pub(crate) fn is_of(self, thread: u8) -> bool {
        self.thread == thread && thread != Self::MANY
    }

    /// The number of a context; 0 for none.
    pub(crate) fn context(handle: usize) -> u16 {
        if handle == 0 { 0 } else { (spread(handle as u64, 16) as u16).max(1) }
    }

    fn pack(self) -> u32 {
        u32::from(self.device)
            | u32::from(self.non_blocking) << 7
            | (self.state as u32) << 8
            | u32::from(self.thread) << 10
            | u32::from(self.context) << 16
    }

    #[inline(always)]
    fn unpack(word: u32) -> Self {
        let state = match word >> 8 & 3 {
            0 => State::There,
            1 => State::Destroyed,
            _ => State::Reset,
        };
        Self {
            context: (word >> 16) as u16,
            device: word as u8 & 127,
            non_blocking: word >> 7 & 1 != 0,
            state,
            thread: (word >> 10) as u8 & 63,
        }
    }
}

const DEVICES: usize = 64;
/// How many streams are known, destroyed ones included, which go first. A copy on another is checked with what the driver says.
const MOST: u32 = 32_768;

pub(crate) struct Streams {
    known: Map,
    /// Whether any of them may be there no more.
    has_past: AtomicBool,
    /// How many non-blocking streams each device has, by the tag of the thread that made them.
    non_blocking: [[AtomicU16; Known::TAGS]; DEVICES],
    /// The last of each pair's direct copies: from device, to device.
    last: [[AtomicUsize; DEVICES]; DEVICES],
}

impl Streams {
    pub(crate) const fn new() -> Self {
        Self {
            known: Map::new(MOST),
            has_past: AtomicBool::new(false),
            non_blocking: [const { [const { AtomicU16::new(0) }; Known::TAGS] }; DEVICES],
            last: [const { [const { AtomicUsize::new(0) }; DEVICES] }; DEVICES],
        }
    }

    #[inline(always)]
    pub(crate) fn find(&self, stream: usize) -> Option<Known> {
        self.known.find(stream).map(Known::unpack)
    }

    /// A stream that is there.
    #[inline(always)]
    pub(crate) fn there(&self, stream: usize) -> Option<Known> {
        self.find(stream).filter(|known| known.state == State::There)
    }

    /// Whether it may be one that the program destroyed.
    #[inline(always)]
    pub(crate) fn is_destroyed(&self, stream: usize) -> bool {
        is_created(stream) && self.find(stream).is_some_and(|known| known.state == State::Destroyed)
    }

    /// Those that are there.
    pub(crate) fn all(&self) -> impl Iterator<Item = (usize, Known)> {
        let all = self.known.iter().map(|(stream, word)| (stream, Known::unpack(word)));
        all.filter(|(_, known)| known.state == State::There)
    }

    /// It was made, or more is known of it.
    pub(crate) fn note(&self, stream: usize, known: Known) {
        if self.find(stream) == Some(known) {
            return;
        }
        self.set(stream, known);
    }

    /// If there is no room, destroyed streams are forgotten.
    fn set(&self, stream: usize, known: Known) {
        let set = || self.known.set(stream, known.pack());
        if known.state != State::There {
            self.has_past.store(true, Relaxed);
        }
        let before = set().or_else(|Full| {
            // If all are there, to look for others would take long each time.
            if !self.has_past.swap(false, Relaxed) {
                return Err(Full);
            }
            self.known.retain(|_, word| Known::unpack(word).state == State::There);
            set()
        });
        if let Ok(before) = before {
            self.count(before, -1);
            self.count(Some(known.pack()), 1);
        }
    }

    /// It is destroyed, or about to be.
    pub(crate) fn mark_destroyed(&self, stream: usize) {
        let device = self.find(stream).map(|known| known.device);
        self.set(stream, Known { state: State::Destroyed, ..Known::on(device) });
    }

    /// Nothing is known of it any more.
    pub(crate) fn forget(&self, stream: usize) {
        self.count(self.known.remove(stream), -1);
    }

    /// A device is about to be reset, and its streams with it.
    pub(crate) fn on_device_reset(&self, device: i32) {
        for (stream, known) in self.all().filter(|(_, known)| i32::from(known.device) == device) {
            self.note(stream, Known { state: State::Reset, ..known });
        }
    }

    /// A context may have ended, or be about to: those of it that are there are forgotten. If it is not known which, all may be its own.
    pub(crate) fn forget_context(&self, context: Option<usize>, primary_of: Option<i32>) {
        let may_be_its = |known: &Known| match (context, primary_of) {
            _ if known.device == Known::NOWHERE => true,
            (Some(context), _) => known.context == Known::context(context) || known.context == 0,
            (None, Some(device)) => i32::from(known.device) == device,
            (None, None) => true,
        };
        self.all().filter(|(_, known)| may_be_its(known)).for_each(|(stream, _)| self.forget(stream));
    }

    pub(crate) fn forget_all(&self) {
        self.known.retain(|_, _| false);
        self.non_blocking.iter().flatten().for_each(|count| count.store(0, Relaxed));
    }

    fn count(&self, word: Option<u32>, by: i16) {
        let known = word.map(Known::unpack).filter(|known| known.non_blocking && known.state == State::There);
        if let Some(known) = known.filter(|known| known.thread != Known::MANY)
            && let Some(count) = self.counter(known.device, known.thread)
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

    /// A direct copy between two devices was queued on a stream.
    #[inline(always)]
    pub(crate) fn note_copy(&self, devices: [u8; 2], stream: usize) {
        if let Some(last) = self.last(devices).filter(|_| is_created(stream)) {
            last.store(stream, Relaxed);
        }
    }

    /// The last stream of direct copies from one device to another, if it is there.
    pub(crate) fn last_of(&self, devices: [u8; 2]) -> Option<usize> {
        let stream = self.last(devices)?.load(Relaxed);
        self.there(stream).map(|_| stream)
    }

    #[inline(always)]
    fn last(&self, [src, dst]: [u8; 2]) -> Option<&AtomicUsize> {
        self.last.get(usize::from(src))?.get(usize::from(dst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(device: u8, non_blocking: bool) -> Known {
        Known { non_blocking, thread: 5, ..Known::on(Some(device)) }
    }

    #[test]
    fn non_blocking_streams_are_counted_by_device() {
        let streams = Box::new(Streams::new());
        streams.note(0x100, stream(1, true));
        streams.note(0x200, stream(0, false));
        assert!(streams.has_non_blocking(1, 5) && !streams.has_non_blocking(0, 5));
        assert!(!streams.has_non_blocking(1, 6), "another thread's");
        streams.note(0x300, Known { thread: Known::MANY, ..stream(1, true) });
        assert!(!streams.has_non_blocking(1, Known::MANY), "any thread's");
        streams.note(0x100, stream(0, true));
        assert!(streams.has_non_blocking(0, 5) && !streams.has_non_blocking(1, 5), "the handle was given again");
        streams.mark_destroyed(0x100);
        streams.mark_destroyed(0x100);
        assert!(!streams.has_non_blocking(0, 5) && !streams.has_non_blocking(200, 5));
        assert!(streams.is_destroyed(0x100) && streams.there(0x100).is_none());
        streams.note(0x100, stream(1, true));
        streams.forget_context(None, None);
        assert!(!streams.has_non_blocking(1, 5) && streams.find(0x100).is_none());
    }

    #[test]
    fn forget_context_others_streams_stay() {
        let streams = Box::new(Streams::new());
        let of = |context, device| Known { context: Known::context(context), ..stream(device, true) };
        for (stream, known) in [(0x100, of(0xa0, 0)), (0x200, of(0xb0, 0)), (0x300, of(0, 1)), (0x400, of(0xc0, 1))] {
            streams.note(stream, known);
        }
        let there = || [0x100, 0x200, 0x300, 0x400].map(|stream| streams.there(stream).is_some());
        streams.forget_context(Some(0xa0), None);
        assert_eq!(there(), [false, true, false, true], "the third may be its own");
        streams.forget_context(None, Some(1));
        assert_eq!(there(), [false, true, false, false]);
    }

    #[test]
    fn streams_that_a_reset_took_are_known_until_the_handle_is_given_again() {
        let streams = Box::new(Streams::new());
        streams.note(0x100, stream(1, true));
        streams.note(0x200, stream(0, true));
        streams.on_device_reset(1);
        streams.forget_context(None, Some(1));
        let state = |stream| streams.find(stream).map(|known| known.state);
        assert_eq!([0x100, 0x200].map(state), [Some(State::Reset), Some(State::There)]);
        assert!(!streams.has_non_blocking(1, 5));
        streams.note(0x100, stream(0, true));
        assert_eq!(state(0x100), Some(State::There));
    }

    #[test]
    fn table_full_of_streams_takes_another_once_one_is_destroyed() {
        let streams = Box::new(Streams::new());
        let handle = |number: usize| 0x1000 + number * 0x40;
        let mut made = 0;
        while made == 0 || streams.there(handle(made)).is_some() {
            made += 1;
            streams.note(handle(made), stream(0, false));
        }
        assert!(made >= MOST as usize / 2, "{made}");
        streams.note(handle(made), stream(0, false));
        assert!(streams.there(handle(made)).is_none() && streams.there(handle(1)).is_some());
        streams.mark_destroyed(handle(1));
        streams.note(handle(made), stream(0, false));
        assert!(streams.there(handle(made)).is_some());
    }

    #[test]
    fn destroyed_streams_do_not_pile_up() {
        let streams = Box::new(Streams::new());
        streams.note(0x100, stream(1, false));
        for number in 1..=80_000 {
            streams.mark_destroyed(0x1000 + number * 0x40);
            assert!(streams.is_destroyed(0x1000 + number * 0x40), "it is about to be destroyed");
        }
        assert!(streams.known.iter().count() <= MOST as usize && streams.there(0x100).is_some());
    }

    #[test]
    fn pack_every_stream_comes_back() {
        for state in [State::There, State::Destroyed, State::Reset] {
            for (device, non_blocking, thread) in [(0, false, 0), (63, true, 63), (Known::NOWHERE, true, 1)] {
                let known = Known { context: u16::MAX, device, non_blocking, state, thread };
                assert_eq!(Known::unpack(known.pack()), known);
            }
        }
    }

    #[test]
    fn new_null_and_special_handles_name_default_streams() {
        let named = |handle, per_thread| Stream::new(handle, per_thread, 7);
        assert_eq!([named(0, false), named(1, true), named(1, false)], [Stream::Legacy; 3]);
        assert_eq!([named(0, true), named(2, false), named(2, true)], [Stream::PerThread(7); 3]);
        assert_eq!(named(0x50, true), Stream::Created(0x50));
    }
}
