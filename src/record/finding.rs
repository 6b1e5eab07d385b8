//! The last finding, for those who ask.

use parking_lot::Mutex;

use super::text::Found;
use crate::api::Function;
use crate::api::abi::Code;
use crate::model::Finding;
use crate::os;

static LAST: Mutex<Option<LastFinding>> = Mutex::new(None);

/// A finding.
#[derive(Clone)]
pub(crate) struct LastFinding {
    pub(crate) function: Function,
    pub(crate) finding: Finding,
    /// What the program gets; none before a call that may crash.
    pub(crate) ret: Option<Code>,
    pub(crate) thread: i32,
    /// How many there were by then.
    pub(crate) count: u64,
}

impl LastFinding {
    /// As the log says it.
    pub(crate) fn text(&self) -> String {
        Found { function: self.function, finding: &self.finding, ret: self.ret, caller: None }.to_string()
    }
}

/// Keeps a finding in place of the last.
pub(crate) fn keep(function: Function, finding: &Finding, ret: Option<Code>) {
    let mut last = LAST.lock();
    let count = last.as_ref().map_or(0, |last| last.count) + 1;
    *last = Some(LastFinding { function, finding: finding.clone(), ret, thread: os::thread_id(), count });
}

/// The last one of the process.
pub(crate) fn last() -> Option<LastFinding> {
    LAST.lock().clone()
}
