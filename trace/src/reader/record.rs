//! Calls: what a record says, and which of them a chunk holds.

use super::{text, u8_at, u16_at, u32_at, u64_at};
use crate::Path;
use crate::layout::{CHUNK_HEADER_BYTES, Capture, DeviceTime, PART, RECORD_BYTES, State, chunk, record, unpack};

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// How far it has come. If it has not returned, fields that are only known then are 0 or none.
    pub state: State,
    /// Ticks when it began.
    pub start: u64,
    /// Ticks when it returned.
    pub end: u64,
    /// Source address of a copy.
    pub src: u64,
    /// Destination address of a copy.
    pub dst: u64,
    /// Bytes of a copy.
    pub bytes: u64,
    /// Stream handle.
    pub stream: u64,
    /// The number of the place in the code that called; 0 if it is not known.
    pub site: u16,
    /// When the GPU began with the copy, in ticks, if `device_time` is [`DeviceTime::Known`].
    pub device_start: u64,
    /// How long the GPU took, in nanoseconds, if `device_time` is [`DeviceTime::Known`].
    pub device_nanos: u64,
    /// Its result.
    pub result: i32,
    /// How many calls of the thread before this one the call is that made it; 0 if the program did, or if that is not known.
    pub parent: u8,
    /// The function's number.
    pub function: u8,
    /// The device that the bytes come from.
    pub src_device: Option<u8>,
    /// The device that they go to.
    pub dst_device: Option<u8>,
    /// The number of the path that the copy took; 0 for none.
    pub path: u8,
    /// Its part in a capture.
    pub capture: Capture,
    /// Rules that it breaks: their numbers plus 1, then zeros.
    pub findings: [u8; 2],
    /// How many intercepted calls enclose it; 3 for 3 or more.
    pub depth: u8,
    /// Whether the time that the GPU took is known.
    pub device_time: DeviceTime,
    /// Whether the writer knew that a copy between a device and the host had ended when its call returned.
    pub has_ended: bool,
    /// A sample of the bytes of such a copy, and when it was taken, in ticks.
    pub sample: Option<(u64, u64)>,
}

impl Record {
    /// Reads a record; none if no call has begun here, or something else was written.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; RECORD_BYTES] = bytes.try_into().ok()?;
        let word = u8_at(bytes, record::STATE);
        let state = State::numbered(word & 3)?;
        let device = |offset| u8_at(bytes, offset).checked_sub(1);
        let finding = |index| u8_at(bytes, record::FINDINGS + index);
        let start = u64_at(bytes, record::START);
        let after = |offset| start.saturating_add(unpack(u32_at(bytes, offset)));
        let [src_device, dst_device] = [device(record::SRC_DEVICE), device(record::DST_DEVICE)];
        let is_with_host = is_with_host(u8_at(bytes, record::PATH), [src_device, dst_device]);
        let device_time = DeviceTime::numbered(word >> 4 & 3).unwrap_or(DeviceTime::None);
        let (device_start, device_nanos) = (after(record::DEVICE_AFTER), unpack(u32_at(bytes, record::DEVICE_NANOS)));
        Some(Self {
            state,
            start,
            end: after(record::TOOK),
            src: u64_at(bytes, record::SRC),
            dst: u64_at(bytes, record::DST),
            bytes: u64_at(bytes, record::BYTES),
            stream: u64_at(bytes, record::STREAM),
            site: u16_at(bytes, record::SITE),
            device_start,
            device_nanos,
            result: u16_at(bytes, record::RESULT).cast_signed().into(),
            parent: u8_at(bytes, record::PARENT),
            function: u8_at(bytes, record::FUNCTION),
            src_device,
            dst_device,
            path: u8_at(bytes, record::PATH),
            capture: Capture::numbered(word >> 2 & 3).unwrap_or(Capture::None),
            findings: [finding(0), finding(1)],
            depth: word >> 6,
            device_time: if is_with_host { DeviceTime::None } else { device_time },
            has_ended: is_with_host && device_time == DeviceTime::Known,
            sample: (is_with_host && device_nanos != 0).then_some((device_start, device_nanos)),
        })
    }

    /// Whether it is of a copy between a device and the host.
    pub fn is_with_host(&self) -> bool {
        is_with_host(self.path, [self.src_device, self.dst_device])
    }

    /// Whether it is of a part of what a call copies: from one device to another, on one path.
    pub fn is_part(&self) -> bool {
        self.function == PART
    }

    /// How many copies it is of: as many as a writer counts at most, so that sums of a damaged file do not overflow.
    pub fn copies(&self) -> u64 {
        if self.is_part() { self.src.min(u32::MAX.into()) } else { 1 }
    }

    /// The numbers of the rules that it breaks.
    pub fn rules(&self) -> impl Iterator<Item = u8> {
        self.findings.into_iter().filter_map(|finding| finding.checked_sub(1))
    }
}

fn is_with_host(path: u8, devices: [Option<u8>; 2]) -> bool {
    path == Path::Host.number() && matches!(devices, [Some(_), None] | [None, Some(_)])
}

/// A call that has no record, and that may block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Whether it is under way.
    pub state: State,
    /// Ticks when it began or, once it has returned, ended.
    pub when: u64,
    /// Its first argument: mostly the handle of what it waits for.
    pub handle: u64,
    /// The number of the place in the code that called; 0 if it is not known.
    pub site: u16,
    /// The function's number.
    pub function: u8,
}

impl Wait {
    /// The call as a record, whose stream is the handle. It begins and ends at the one moment that is known.
    pub fn record(self) -> Record {
        let Self { state, when, handle, site, function } = self;
        Record {
            state,
            start: when,
            end: when,
            src: 0,
            dst: 0,
            bytes: 0,
            stream: handle,
            site,
            device_start: 0,
            device_nanos: 0,
            result: 0,
            parent: 0,
            function,
            src_device: None,
            dst_device: None,
            path: 0,
            capture: Capture::None,
            findings: [0; 2],
            depth: 0,
            device_time: DeviceTime::None,
            has_ended: false,
            sample: None,
        }
    }
}

/// Calls of a thread in a chunk, in the order in which they began.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// The thread's id.
    pub thread: u32,
    /// How many calls of the thread come before these.
    pub first: u64,
    /// The last call without a record of a thread, if this is its last block.
    pub wait: Option<Wait>,
    name: &'a [u8],
    records: &'a [u8],
}

impl<'a> Block<'a> {
    /// The block of a thread at the beginning of these bytes.
    pub(super) fn of(thread: u32, bytes: &'a [u8]) -> Self {
        let end = usize::from(u16_at(bytes, chunk::NEXT)) * RECORD_BYTES;
        let bytes = bytes.get(..end).filter(|block| !block.is_empty()).unwrap_or(bytes);
        let wait = |state| Wait {
            state,
            when: u64_at(bytes, chunk::WAIT),
            handle: u64_at(bytes, chunk::HANDLE),
            site: u16_at(bytes, chunk::SITE),
            function: u8_at(bytes, chunk::FUNCTION),
        };
        Self {
            thread,
            first: u64_at(bytes, chunk::FIRST),
            wait: State::numbered(u8_at(bytes, chunk::STATE)).map(wait),
            name: bytes.get(chunk::NAME..chunk::NAME + 16).unwrap_or_default(),
            records: bytes.get(CHUNK_HEADER_BYTES..).unwrap_or_default(),
        }
    }

    /// The thread's name.
    pub fn name(&self) -> String {
        text(self.name.split(|&byte| byte == 0).next().unwrap_or_default())
    }

    /// The calls.
    pub fn calls(&self) -> Calls<'a> {
        Calls { records: self.records }
    }
}

/// The calls of a [`Block`].
#[derive(Clone, Debug)]
pub struct Calls<'a> {
    records: &'a [u8],
}

impl Iterator for Calls<'_> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        loop {
            let (bytes, rest) = self.records.split_at_checked(RECORD_BYTES)?;
            self.records = rest;
            // Bytes that do not read as a call may have calls behind them: a thread may have been killed between two calls.
            if let Some(record) = Record::decode(bytes) {
                return Some(record);
            }
        }
    }
}
