//! The last finding, for those who ask.

use parking_lot::Mutex;

use super::FindingLine;
use super::text::Found;
use crate::api::Function;
use crate::api::abi::Code;
use crate::api::codes::Numbering;
use crate::model::Finding;
use crate::os;

static LAST: Mutex<Option<LastFinding>> = Mutex::new(None);

#[derive(Clone)]
pub(crate) struct LastFinding {
    pub(crate) function: Function,
    pub(crate) finding: Finding,
    pub(crate) ret: Option<Code>,
    pub(crate) numbering: Numbering,
    pub(crate) thread: i32,
    /// How many there were by then.
    pub(crate) count: u64,
}

impl LastFinding {
    /// As the log says it.
    pub(crate) fn text(&self) -> String {
        let Self { function, finding, ret, numbering, .. } = self;
        let said = FindingLine { function: *function, finding, ret: *ret, numbering: *numbering };
        Found { said, caller: None, is_brief: false }.to_string()
    }
}

/// Keeps a finding in place of the last.
pub(crate) fn keep(&FindingLine { function, finding, ret, numbering }: &FindingLine<'_>) {
    let mut last = LAST.lock();
    let count = last.as_ref().map_or(0, |last| last.count) + 1;
    *last = Some(LastFinding { function, finding: finding.clone(), ret, numbering, thread: os::thread_id(), count });
}

pub(crate) fn last() -> Option<LastFinding> {
    LAST.lock().clone()
}
