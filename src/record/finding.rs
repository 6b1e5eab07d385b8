//! The last finding, for those who ask.

use parking_lot::Mutex;

use super::text::Found;
use crate::api::Function;
use crate::api::abi::Code;
use crate::model::{Finding, Rule};
use crate::os;

static LAST: Mutex<Last> = Mutex::new(Last { count: 0, found: None });

struct Last {
    count: u64,
    found: Option<Kept>,
}

struct Kept {
    function: Function,
    finding: Finding,
    ret: Option<Code>,
    thread: i32,
}

/// A finding.
pub(crate) struct LastFinding {
    /// The function that was called.
    pub(crate) function: Function,
    /// The rule that has spoken.
    pub(crate) rule: Rule,
    /// What the program gets; none before a call that may crash.
    pub(crate) ret: Option<Code>,
    /// The thread that called.
    pub(crate) thread: i32,
    /// How many there were by then.
    pub(crate) count: u64,
    /// As the log says it.
    pub(crate) text: String,
}

/// Keeps a finding in place of the last.
pub(crate) fn keep(function: Function, finding: &Finding, ret: Option<Code>) {
    let mut last = LAST.lock();
    last.count += 1;
    last.found = Some(Kept { function, finding: finding.clone(), ret, thread: os::thread_id() });
}

/// The last one of the process.
pub(crate) fn last() -> Option<LastFinding> {
    let last = LAST.lock();
    let Kept { function, finding, ret, thread } = last.found.as_ref()?;
    let (&function, &ret, &thread) = (function, ret, thread);
    let text = Found { function, finding, ret, caller: None }.to_string();
    Some(LastFinding { function, rule: finding.rule, ret, thread, count: last.count, text })
}
