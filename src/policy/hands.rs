//! The host's way by hand: a program copies from a device to the host, and from there to another device.
//!
//! The last copies to the host are kept by their buffers' addresses. A copy from exactly such a buffer, or from its start, to another
//! device is taken for the second half, once for each copy to the host and device. It is counted once the same two places in the code have
//! made three of them between the same devices: one alone may be chance, since allocators hand out buffers again.
//!
//! Whether the bytes are those that came from the device is seen by samples of a few of them. Where as many differ as agree, the buffer
//! carries other data, and nothing is counted.
//!
//! But for a copy of which a sample is still to be taken nothing here takes a lock, as in [`crate::objects::memory`]: each entry has a version that
//! is odd while it is written. One copy that is not counted gets lost that way.

use std::sync::Mutex;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, fence};

use crate::os;
use crate::os::table::{Table, spread};

/// A copy from a device to the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Download {
    /// The address of the buffer.
    pub(crate) host: u64,
    pub(crate) bytes: u64,
    /// When it began, in ticks of the trace.
    pub(crate) start: u64,
    /// The place in the program, as an address.
    pub(crate) place: u64,
    /// A sample of the bytes; 0 for none, [`ZEROS`] if all are 0.
    pub(crate) sample: u64,
    /// Where it comes from.
    pub(crate) device: u8,
    /// The number of the place with its line; 0 if that was not looked for.
    pub(crate) site: u16,
}

/// The sample of bytes that are all 0.
pub(crate) const ZEROS: u64 = 1;

/// A sample's word on whether the bytes that leave the host are those that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sampled {
    Unknown,
    Same,
    Differ,
}

impl Sampled {
    /// Compares two samples, of which 0 is none.
    pub(crate) fn of(came: u64, leaves: u64) -> Self {
        match (came, leaves) {
            // Much memory holds zeros.
            (0, _) | (_, 0) | (ZEROS, ZEROS) => Self::Unknown,
            _ if came == leaves => Self::Same,
            _ => Self::Differ,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Same => "same",
            Self::Differ => "differ",
        }
    }
}

/// The last copy to a buffer; in a cache line of its own.
#[repr(align(64))]
struct Buffer {
    version: AtomicU64,
    words: [AtomicU64; 6],
    /// The devices that it was copied on to, a bit each.
    taken: AtomicU64,
}

impl Buffer {
    const fn new() -> Self {
        let [version, taken] = [const { AtomicU64::new(0) }; 2];
        Self { version, words: [const { AtomicU64::new(0) }; 6], taken }
    }

    fn read(&self) -> (Download, bool) {
        let version = self.version.load(Acquire);
        let [host, bytes, start, place, sample, info] = self.words.each_ref().map(|word| word.load(Relaxed));
        fence(Acquire);
        let is_whole = version & 1 == 0 && self.version.load(Relaxed) == version;
        (Download { host, bytes, start, place, sample, device: info as u8, site: (info >> 8) as u16 }, is_whole)
    }

    fn get(&self, of: u64) -> Option<Download> {
        let (download, is_whole) = self.read();
        (is_whole && download.host == of).then_some(download)
    }

    /// Fills the entry, unless another thread is doing so.
    fn set(&self, &Download { host, bytes, start, place, sample, device, site }: &Download) {
        let version = self.version.load(Relaxed);
        let odd = version.wrapping_add(1);
        if version & 1 != 0 || self.version.compare_exchange(version, odd, AcqRel, Relaxed).is_err() {
            return;
        }
        fence(Release);
        let words = [host, bytes, start, place, sample, u64::from(device) | u64::from(site) << 8];
        self.words.iter().zip(words).for_each(|(to, word)| to.store(word, Relaxed));
        self.taken.store(0, Relaxed);
        self.version.store(odd.wrapping_add(1), Release);
    }
}

/// A copy to the host, looked at, that may be under way still: on a stream, queued by a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnderWay {
    pub(crate) stream: usize,
    /// Which was current.
    pub(crate) context: usize,
    pub(crate) thread: usize,
    pub(crate) host: u64,
    pub(crate) bytes: u64,
    pub(crate) start: u64,
}

/// So many of a way's first copies are counted with the one after them.
const FIRST: usize = 2;

/// The copies by two places between two devices.
struct Way {
    /// The key that they share; 0 for none.
    key: AtomicU64,
    count: AtomicU64,
    /// Bytes of the first, until they are counted.
    first: [AtomicU64; FIRST],
    same: AtomicU64,
    differ: AtomicU64,
}

impl Way {
    const fn new() -> Self {
        let [key, count, same, differ] = [const { AtomicU64::new(0) }; 4];
        Self { key, count, first: [const { AtomicU64::new(0) }; FIRST], same, differ }
    }

    /// One more. The bytes of those that are to be counted now; 0 for none.
    fn add(&self, bytes: u64, sampled: Sampled) -> [u64; FIRST + 1] {
        let count_of = |of: &AtomicU64| of.fetch_add(1, Relaxed);
        match sampled {
            Sampled::Same => _ = count_of(&self.same),
            Sampled::Differ => _ = count_of(&self.differ),
            Sampled::Unknown => {}
        }
        let differ = self.differ.load(Relaxed);
        let is_of_others = differ > 0 && self.same.load(Relaxed) <= differ;
        if sampled == Sampled::Differ || is_of_others {
            return [0; FIRST + 1];
        }
        let number = self.count.fetch_add(1, AcqRel);
        let [one, other] = &self.first;
        let take = |of: &AtomicU64| of.swap(0, AcqRel);
        match usize::try_from(number).ok().and_then(|number| self.first.get(number)) {
            Some(place) => {
                place.store(bytes, Release);
                // Another thread's may have been the third meanwhile.
                [if self.count.load(Acquire) > FIRST as u64 { take(place) } else { 0 }, 0, 0]
            }
            None => [take(one), take(other), bytes],
        }
    }
}

const SETS: usize = 256;
const WAYS: usize = 256;

/// See the module.
pub(crate) struct Hands {
    buffers: [[Buffer; 4]; SETS],
    ways: [Way; WAYS],
    /// By places of copies to the host: how many were copied on.
    onward: Table<256, 48>,
    /// The last of them, and whether there is one.
    under_way: Mutex<Option<UnderWay>>,
    awaits: AtomicBool,
    /// By two places, two devices and a word: what is noted.
    noted: Table<1024, 48>,
}

impl Hands {
    pub(crate) const fn new() -> Self {
        Self {
            buffers: [const { [const { Buffer::new() }; 4] }; SETS],
            ways: [const { Way::new() }; WAYS],
            onward: Table::new(),
            under_way: Mutex::new(None),
            awaits: AtomicBool::new(false),
            noted: Table::new(),
        }
    }

    fn set(&self, host: u64) -> &[Buffer] {
        self.buffers.get(spread(host, SETS.trailing_zeros())).map_or(&[], |set| set.as_slice())
    }

    /// Keeps a copy to the host: of those to its buffer the last, and of others in its place the oldest goes.
    pub(crate) fn keep(&self, download: &Download) {
        let worth = |buffer: &&Buffer| match buffer.read().0 {
            Download { host, .. } if host == download.host => 0,
            Download { start, .. } => start.saturating_add(1),
        };
        self.set(download.host).iter().min_by_key(worth).into_iter().for_each(|buffer| buffer.set(download));
    }

    /// The copy to the host whose bytes, or the first of them, leave it by a copy from this address.
    #[inline]
    pub(crate) fn find(&self, host: u64, bytes: u64) -> Option<Download> {
        let found = self.set(host).iter().find_map(|buffer| buffer.get(host))?;
        (bytes <= found.bytes).then_some(found)
    }

    /// Whether a copy to the host from a place in the code is to be looked at closely. Only some are, and none from a place from which
    /// nothing went on to another device.
    pub(crate) fn is_looked_at(&self, place: u64) -> bool {
        const ALL: u64 = 8;
        self.onward.find(key(place)).is_some_and(|before| before < ALL || before.is_power_of_two())
    }

    /// The bytes of a copy to the host have reached another device, by a copy from a place in the code. The bytes of each copy that
    /// is to be counted now; 0 for none.
    pub(crate) fn goes_on(
        &self,
        download: &Download,
        device: u8,
        (place, bytes): (u64, u64),
        sampled: Sampled,
    ) -> [u64; FIRST + 1] {
        let is_it = |buffer: &&Buffer| buffer.get(download.host) == Some(*download);
        let bit = 1u64.checked_shl(device.into()).unwrap_or(0);
        let of_this = self.set(download.host).iter().find(is_it).filter(|_| device != download.device);
        if of_this.is_none_or(|buffer| buffer.taken.fetch_or(bit, AcqRel) & bit != 0) {
            return [0; FIRST + 1];
        }
        self.onward.count(key(download.place));
        let of = (download.place.rotate_left(24) ^ place).rotate_left(8) ^ u64::from(download.device) << 8;
        let key = (of ^ u64::from(device)).max(1);
        let first = spread(key, WAYS.trailing_zeros());
        let mut ways = (0..8).filter_map(|step| self.ways.get((first + step) % WAYS));
        let is_it = |way: &&Way| match way.key.compare_exchange(0, key, AcqRel, Acquire) {
            Ok(_) => true,
            Err(known) => known == key,
        };
        ways.find(is_it).map_or([0; FIRST + 1], |way| way.add(bytes, sampled))
    }

    /// Keeps a copy that may be under way. Inside our own work.
    pub(crate) fn is_under_way(&self, copy: UnderWay) {
        *os::lock(&self.under_way) = Some(copy);
        self.awaits.store(true, Relaxed);
    }

    /// Whether a copy is kept that may be under way.
    #[inline(always)]
    pub(crate) fn awaits_any(&self) -> bool {
        self.awaits.load(Relaxed)
    }

    /// A thread has waited: samples the copy that was under way, if it is over by that. Inside our own work.
    pub(crate) fn has_waited(&self, is_over: impl Fn(&UnderWay) -> bool, sample: impl Fn(&UnderWay) -> u64) {
        let mut under_way = os::lock(&self.under_way);
        if let Some(copy) = under_way.take_if(|copy| is_over(copy)) {
            self.awaits.store(false, Relaxed);
            // Unless another one has come to its buffer.
            if let Some(download) = self.find(copy.host, copy.bytes).filter(|it| it.start == copy.start) {
                self.keep(&Download { sample: sample(&copy), ..download });
            }
        }
    }

    /// Whether it is not noted yet that copies to and from the host are from these places, by numbers, and what samples say.
    pub(crate) fn is_new(&self, [from, to]: [u16; 2], [src, dst]: [u8; 2], sampled: Sampled) -> bool {
        let devices = u64::from(src & 63) | u64::from(dst & 63) << 6;
        let key = u64::from(from) | u64::from(to) << 16 | (sampled as u64 + 1) << 32 | devices << 34;
        self.noted.find(key).is_none() && self.noted.set(key, 1, |_| false, false)
    }
}

fn key(place: u64) -> u64 {
    place & ((1 << 48) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn download(host: u64, device: u8, start: u64) -> Download {
        Download { host, bytes: 1 << 20, start, place: 0x1000, device, ..Download::default() }
    }

    /// Copies there and on, with what samples say; the bytes that are counted each time.
    fn copies(hands: &Hands, sampled: &[Sampled]) -> Vec<u64> {
        let copy = |(start, &sampled)| {
            hands.keep(&download(0x7000, 0, start));
            let found = hands.find(0x7000, 1 << 20).unwrap();
            hands.goes_on(&found, 1, (0x2000, 1 << 20), sampled).into_iter().sum()
        };
        (1..).zip(sampled).map(copy).collect()
    }

    #[test]
    fn goes_on_the_third_counts_the_first_two_as_well() {
        let hands = Box::new(Hands::new());
        assert!(!hands.is_looked_at(0x1000));
        assert_eq!(copies(&hands, &[Sampled::Unknown; 5]), [0, 0, 3 << 20, 1 << 20, 1 << 20]);
        assert!(hands.is_looked_at(0x1000) && !hands.is_looked_at(0x2000));
    }

    #[test]
    fn goes_on_other_bytes_are_not_counted_and_nothing_if_none_agree() {
        use Sampled::{Differ, Same, Unknown};
        let counted = |sampled: &[Sampled]| copies(&Box::new(Hands::new()), sampled).into_iter().sum::<u64>() >> 20;
        assert_eq!(counted(&[Differ, Unknown, Unknown, Unknown, Unknown]), 0);
        assert_eq!(counted(&[Unknown, Same, Same, Differ, Unknown]), 4);
        assert_eq!(counted(&[Differ, Same, Unknown, Unknown, Unknown]), 0);
        assert_eq!(counted(&[Unknown, Same]), 0);
    }

    #[test]
    fn goes_on_once_for_each_device_and_not_back() {
        let hands = Box::new(Hands::new());
        let go = |device| {
            let found = hands.find(0x7000, 4096).unwrap();
            hands.goes_on(&found, device, (0x2000, 4096), Sampled::Unknown).into_iter().sum::<u64>()
        };
        for start in 1..=2 {
            hands.keep(&download(0x7000, 0, start));
            assert_eq!([0, 1, 1, 1, 1].map(go), [0; 5]);
        }
        hands.keep(&download(0x7000, 0, 3));
        assert_eq!([0, 1, 1].map(go), [0, 3 * 4096, 0]);
    }

    #[test]
    fn find_the_last_copy_to_a_buffer_and_only_from_its_start() {
        let hands = Box::new(Hands::new());
        hands.keep(&download(0x7000, 0, 1));
        hands.keep(&download(0x7000, 1, 2));
        assert_eq!(hands.find(0x7000, 64), Some(download(0x7000, 1, 2)));
        assert_eq!([hands.find(0x7040, 64), hands.find(0x7000, (1 << 20) + 1)], [None, None]);
    }

    #[test]
    fn goes_on_by_threads_at_once_each_is_counted_once() {
        let hands: &Hands = Box::leak(Box::new(Hands::new()));
        let counted = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 1..=4u64 {
                let counted = &counted;
                scope.spawn(move || {
                    for start in 1..=1000 {
                        hands.keep(&download(thread << 20, 0, start));
                        let found = hands.find(thread << 20, 8).unwrap();
                        let bytes = hands.goes_on(&found, 1, (0x2000, 8), Sampled::Unknown);
                        counted.fetch_add(bytes.into_iter().sum(), Relaxed);
                    }
                });
            }
        });
        assert_eq!(counted.into_inner(), 4 * 1000 * 8);
    }
}
