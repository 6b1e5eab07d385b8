//! Copies between devices that a program makes by hand: one to the host, and one from the same buffer to another device.
//!
//! The second may take a part from the buffer's start. Each copy to the host counts once for each device that it goes on to. Two copies alone
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

/// The copies by hand to a device from a place.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::report) struct Way {
    pub(in crate::report) calls: u64,
    pub(in crate::report) bytes: u64,
    pub(in crate::report) sampled: Sampled,
    /// The place of the copies to the host: one with a line, if there is any.
    pub(in crate::report) from: u16,
}

/// A copy by hand: its halves, and what samples of them say.
type Bounce = (Record, HostCopy, Sampled);

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

    /// The copies by hand among them. `address` is where in memory a numbered place is: some have several numbers.
    fn bounces(mut self, address: impl Fn(u16) -> u64) -> Vec<Bounce> {
        // A copy has brought its bytes when its call returns, and takes them when it begins.
        self.copies.sort_by_key(|(copy, _)| if is_download(copy) { copy.end } else { copy.start });
        let mut buffers: HashMap<u64, (Record, Vec<Option<u8>>)> = HashMap::new();
        let mut ways: HashMap<_, Vec<Bounce>> = HashMap::new();
        for (copy, thread) in self.copies {
            if is_download(&copy) {
                buffers.insert(copy.dst, (copy, Vec::new()));
            } else if let Some((download, taken)) = buffers.get_mut(&copy.src)
                && copy.bytes <= download.bytes
                && copy.dst_device != download.src_device
                && !taken.contains(&copy.dst_device)
            {
                taken.push(copy.dst_device);
                let way = (address(download.site), address(copy.site), download.src_device, copy.dst_device);
                ways.entry(way).or_default().push((*download, (copy, thread), sampled(download, &copy)));
            }
        }
        let mut bounces: Vec<Bounce> = ways.into_values().flat_map(counted).collect();
        bounces.sort_by_key(|(_, (upload, _), _)| upload.start);
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
fn counted(mut way: Vec<Bounce>) -> Vec<Bounce> {
    const LEAST: usize = 3;
    let of = |sampled: Sampled| way.iter().filter(|(.., of)| *of == sampled).count();
    let (same, differ) = (of(Sampled::Same), of(Sampled::Differ));
    way.retain(|(.., sampled)| *sampled != Sampled::Differ);
    if way.len() < LEAST || (differ > 0 && same <= differ) { Vec::new() } else { way }
}

impl Tally {
    /// Counts copies by hand, each as one call from device to device that its second half made.
    pub(in crate::report) fn count_bounces(&mut self, lens: &Lens, names: &Names) {
        let host = take(&mut self.host);
        self.left_out = host.left_out;
        for (download, (upload, thread), sampled) in host.bounces(|site| names.address(site)) {
            let is_timed = download.has_ended && upload.has_ended && download.bytes == upload.bytes;
            let record = Record {
                src_device: download.src_device,
                path: Path::ByHand.number(),
                device_start: download.start,
                device_nanos: lens.timeline.nanos(upload.end.saturating_sub(download.start)),
                device_time: if is_timed { DeviceTime::Known } else { DeviceTime::None },
                ..upload
            };
            let mut walk = Walk::default();
            let wants = lens.selection.as_ref().map(|selection| (selection, lens.timeline));
            let step = walk.step((0, 0), &record, thread, wants);
            self.count(lens, &walk, (0, 0), thread, &record, step);
            if step.is_timed {
                self.count_device(lens, &walk, &record);
            }
            let (Some(src), Some(dst), true) = (record.src_device, record.dst_device, step.is_wanted) else { continue };
            let way = self.by_hand.entry(([src, dst], upload.site)).or_default();
            way.calls += 1;
            way.bytes = way.bytes.saturating_add(upload.bytes);
            way.sampled = way.sampled.and(sampled);
            if way.from == 0 || names.line(download.site).is_some() {
                way.from = download.site;
            }
        }
    }
}
