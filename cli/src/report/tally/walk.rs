//! Which records of a thread belong together, and what counts of each.

use p2pshim_trace::{DeviceTime, Record, State, Timeline};

use super::{Key, Lens};
use crate::report::filter::Selection;

/// The walk through the records of a thread, which belong together: a call of the program, and those made inside it.
#[derive(Clone, Copy, Default)]
pub(in crate::report) struct Walk {
    /// The program's call.
    pub(super) root: Option<(Key, Record)>,
    /// How deep the record is whose time on the device was counted; those inside it are not counted again.
    timed: Option<u8>,
    /// How deep the outermost call is that is wanted.
    wanted: Option<u8>,
}

/// The ways in which a record counts.
#[derive(Clone, Copy)]
pub(in crate::report) struct Step {
    /// It is wanted.
    pub(in crate::report) is_wanted: bool,
    /// It is, and no call around it: without a filter, it is the program's own.
    pub(super) is_outermost: bool,
    /// Its time on the device counts.
    pub(in crate::report) is_timed: bool,
}

impl Walk {
    /// Goes on to the next record of a thread.
    pub(in crate::report) fn step(
        &mut self,
        key: Key,
        record: &Record,
        thread: u32,
        wants: Option<(&Selection, Timeline)>,
    ) -> Step {
        if record.depth == 0 {
            self.root = Some((key, *record));
        }
        for outer in [&mut self.timed, &mut self.wanted] {
            *outer = outer.filter(|depth| record.depth > *depth);
        }
        let call = self.root.filter(|_| record.is_part()).map_or(*record, |(_, root)| root);
        let is_wanted = wants.is_none_or(|(selection, timeline)| selection.wants(timeline, thread, record, &call));
        let is_outermost = is_wanted && self.wanted.is_none();
        if is_outermost {
            self.wanted = Some(record.depth);
        }
        let is_timed = record.device_time == DeviceTime::Known && self.timed.is_none();
        if is_timed {
            self.timed = Some(record.depth);
        }
        Step { is_wanted, is_outermost, is_timed: is_timed && self.wanted.is_some() }
    }

    /// The devices of the copy that a record is of, and its path.
    pub(in crate::report) fn copy(&self, record: &Record) -> Option<([u8; 2], u8)> {
        let of = |record: &Record| Some([record.src_device?, record.dst_device?]);
        let root = self.root.as_ref().map(|(_, root)| root);
        let pair = of(record).or_else(|| of(root?))?;
        let path = if record.path == 0 { root.map_or(0, |root| root.path) } else { record.path };
        Some((pair, path))
    }

    /// The call that has copied what a record is of; of one that makes many copies with the first part of them. One that failed has
    /// copied nothing, nor has one that became part of a graph.
    pub(super) fn copied(&self, lens: &Lens, key: Key, record: &Record, step: Step) -> Option<(Key, Record)> {
        let is_made = record.state == State::Done && record.result == 0;
        if !is_made || !lens.is_copy(record) || lens.is_captured(record) {
            return None;
        }
        if !record.is_part() {
            return step.is_outermost.then_some((key, *record));
        }
        let (key, root) = self.root.filter(|_| step.is_wanted)?;
        let Record { src_device, dst_device, bytes, path, .. } = *record;
        Some((key, Record { src_device, dst_device, bytes, path, ..root }))
    }
}
