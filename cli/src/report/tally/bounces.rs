//! Copies between devices that a program makes by hand: one to the host, and one from the same buffer to another device.
//!
//! The second may take a part from the buffer's start. Each copy to the host counts once for each device to which it continues. Two copies alone
//! may be chance, since allocators hand out buffers again: the same two places have to make three between the same devices. Samples tell
//! whether the bytes that left the buffer were those that came; if as many differ as agree, nothing counts.

use std::collections::HashMap;
use std::mem::take;

use p2pshim_trace::{DeviceTime, Path, Record};

use super::{Lens, Tally, Walk};
use crate::report::model::Sampled;
use crate::report::names::Names;

/// A copy between a device and the host that has succeeded, and its thread.
type HostCopy = (Record, u32);

/// All of a file.
#[derive(Debug, Default)]
pub(in crate::report) struct HostCopies {
    copies: Vec<HostCopy>,
    /// Those that were not kept.
    pub(in crate::report) left_out: u64,
}

/// The bounces between a pair of GPUs whose uploads are made at one place of the program.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::report) struct BouncePair {
    pub(in crate::report) calls: u64,
    pub(in crate::report) bytes: u64,
    pub(in crate::report) sampled: Sampled,
    /// The place of the copies to the host: one with a line, if there is any.
    pub(in crate::report) from: u16,
}

/// A copy by hand: the indices of its two halves, and what their samples say.
type Bounce = ([usize; 2], Sampled);

fn is_download(record: &Record) -> bool {
    record.src_device.is_some()
}

impl HostCopies {
    /// Copies of a file that are kept.
    const MOST: usize = 1 << 21;

    pub(super) fn add(&mut self, copy: HostCopy) {
        if self.copies.len() < Self::MOST {
            self.copies.push(copy);
        } else {
            self.left_out += 1;
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        other.copies.into_iter().for_each(|copy| self.add(copy));
        self.left_out += other.left_out;
    }

    /// The copies by hand among them, which are sorted for that. `address` is where in memory a numbered place is: some have several numbers.
    fn bounces(&mut self, address: impl Fn(u16) -> u64) -> Vec<Bounce> {
        // A copy has brought its bytes when its call returns, and takes them when it begins.
        self.copies.sort_by_key(|(copy, _)| if is_download(copy) { copy.end } else { copy.start });
        let mut buffers: HashMap<u64, (usize, Vec<Option<u8>>)> = HashMap::new();
        let mut pairs: HashMap<_, Vec<Bounce>> = HashMap::new();
        for (place, (copy, _)) in self.copies.iter().enumerate() {
            if is_download(copy) {
                buffers.insert(copy.dst, (place, Vec::new()));
            } else if let Some((from, taken)) = buffers.get_mut(&copy.src)
                && let Some((download, _)) = self.copies.get(*from)
                && copy.bytes <= download.bytes
                && copy.dst_device != download.src_device
                && !taken.contains(&copy.dst_device)
            {
                taken.push(copy.dst_device);
                let pair = (address(download.site), address(copy.site), download.src_device, copy.dst_device);
                pairs.entry(pair).or_default().push(([*from, place], sampled(download, copy)));
            }
        }
        let mut bounces: Vec<Bounce> = pairs.into_values().flat_map(counted).collect();
        bounces.sort_by_key(|([_, upload], _)| *upload);
        bounces
    }
}

/// Compares the samples of two copies.
fn sampled(download: &Record, upload: &Record) -> Sampled {
    /// Much memory holds zeros.
    const ZEROS: u64 = 1;
    match (download.sample, upload.sample) {
        (Some((when, came)), Some((_, leaves)))
            if download.bytes == upload.bytes && when <= upload.start && (came, leaves) != (ZEROS, ZEROS) =>
        {
            if came == leaves { Sampled::Same } else { Sampled::Differ }
        }
        _ => Sampled::Unknown,
    }
}

/// Those between two places that count.
fn counted(mut pair: Vec<Bounce>) -> Vec<Bounce> {
    const LEAST: usize = 3;
    let of = |sampled: Sampled| pair.iter().filter(|(.., of)| *of == sampled).count();
    let (same, differ) = (of(Sampled::Same), of(Sampled::Differ));
    pair.retain(|(.., sampled)| *sampled != Sampled::Differ);
    if pair.len() < LEAST || (differ > 0 && same <= differ) { Vec::new() } else { pair }
}

impl Tally {
    /// Counts copies by hand, each as one call from device to device that its second half made.
    pub(in crate::report) fn count_bounces(&mut self, lens: &Lens, names: &Names) {
        let mut host = take(&mut self.host);
        self.left_out = host.left_out;
        for (halves, sampled) in host.bounces(|site| names.address(site)) {
            let [Some((download, _)), Some((upload, thread))] = halves.map(|place| host.copies.get(place)) else {
                continue;
            };
            let is_timed = download.has_ended && upload.has_ended && download.bytes == upload.bytes;
            let record = Record {
                src_device: download.src_device,
                path: Path::ByHand.number(),
                device_start: download.start,
                device_nanos: lens.timeline.nanos(upload.end.saturating_sub(download.start)),
                device_time: if is_timed { DeviceTime::Known } else { DeviceTime::None },
                ..*upload
            };
            let mut walk = Walk::default();
            let wants = lens.selection.as_ref().map(|selection| (selection, lens.timeline));
            let step = walk.step((0, 0), &record, *thread, wants);
            self.count(lens, &walk, (0, 0), *thread, &record, step);
            if step.is_timed {
                self.count_device(lens, &walk, &record);
            }
            let (Some(src), Some(dst), true) = (record.src_device, record.dst_device, step.is_wanted) else { continue };
            let pair = self.by_hand.entry(([src, dst], upload.site)).or_default();
            pair.calls += 1;
            pair.bytes = pair.bytes.saturating_add(upload.bytes);
            pair.sampled = pair.sampled.and(sampled);
            if pair.from == 0 || names.line(download.site).is_some() {
                pair.from = download.site;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use p2pshim_trace::{State, Wait};

    use super::*;

    const BUFFER: u64 = 0x7000;
    const MIB: u64 = 1 << 20;

    /// A copy by `device` that is under way from `when` on for 10 ticks; a download if `to_host`.
    fn copy(device: u8, to_host: bool, when: u64, bytes: u64, sample: u64) -> Record {
        let wait = Wait { state: State::Done, when, handle: 0, site: 1 + u16::from(to_host), function: 0 };
        let (src_device, dst_device) = if to_host { (Some(device), None) } else { (None, Some(device)) };
        let (src, dst) = if to_host { (0, BUFFER) } else { (BUFFER, 0) };
        let sample = (sample != 0).then_some((when, sample));
        Record { end: when + 10, src_device, dst_device, src, dst, bytes, sample, ..wait.record() }
    }

    fn bounced(copies: &[Record]) -> Vec<u64> {
        let mut host = HostCopies::default();
        copies.iter().for_each(|copy| host.add((*copy, 1)));
        let bounces = host.bounces(|site| site.into());
        bounces.iter().map(|([_, upload], _)| host.copies[*upload].0.bytes).collect()
    }

    /// Downloads by device 0 and uploads by device 1, with these samples.
    fn with_samples(samples: &[[u64; 2]]) -> usize {
        let halves = (0..).zip(samples).flat_map(|(number, [came, leaves])| {
            [copy(0, true, number * 100, MIB, *came), copy(1, false, number * 100 + 50, MIB, *leaves)]
        });
        bounced(&halves.collect::<Vec<_>>()).len()
    }

    #[test]
    fn bounces_from_three_on_and_none_if_as_many_samples_differ_as_agree() {
        const UNKNOWN: [u64; 2] = [0, 5];
        const SAME: [u64; 2] = [5, 5];
        const DIFFER: [u64; 2] = [5, 6];
        for (samples, expected) in [
            (&[UNKNOWN; 2][..], 0),
            (&[UNKNOWN; 5], 5),
            (&[DIFFER, UNKNOWN, UNKNOWN, UNKNOWN], 0),
            (&[UNKNOWN, SAME, SAME, DIFFER, UNKNOWN], 4),
            (&[DIFFER, SAME, UNKNOWN, UNKNOWN, UNKNOWN], 0),
            (&[[1, 1], [1, 1], [1, 1]], 3),
        ] {
            assert_eq!(with_samples(samples), expected, "{samples:?}");
        }
    }

    #[test]
    fn bounces_once_for_each_other_device_from_the_start_of_the_buffer_as_it_was_last_filled() {
        let round = |at: u64| {
            [
                copy(0, true, at, MIB, 0),
                // Back to where it came from; on; once more; to a third; more than there was; while it is being filled.
                copy(0, false, at + 20, MIB, 0),
                copy(1, false, at + 21, MIB / 2, 0),
                copy(1, false, at + 22, MIB, 0),
                copy(2, false, at + 23, MIB, 0),
                copy(3, false, at + 24, MIB + 1, 0),
                copy(1, true, at + 30, MIB, 0),
                copy(4, false, at + 35, MIB, 0),
            ]
        };
        let copies: Vec<Record> = (0..3).flat_map(|number| round(number * 100)).collect();
        assert_eq!(bounced(&copies), [MIB / 2, MIB, MIB].repeat(3));
        let elsewhere = copies.iter().filter(|copy| copy.src == 0).map(|copy| Record { dst: BUFFER + 64, ..*copy });
        let uploads = copies.iter().filter(|copy| copy.src != 0).copied();
        assert_eq!(bounced(&elsewhere.chain(uploads).collect::<Vec<_>>()), [0; 0]);
    }
}
