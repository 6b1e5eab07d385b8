//! `P2PSHIM_PROBE=full`: a pair is judged by the verdict that `p2pshim doctor` or `p2pshim run` has left in a file.
//!
//! In the program's process nothing of the kind can be tested: loading a kernel may wait for a device, and a kernel of the
//! program may be waiting for its host. Of HIP, which the doctor does not test, what copies have shown in this process is kept.

use std::sync::Mutex;

use p2pshim_host::verdicts::{self, Cache, Facts, Question};

use crate::os;

pub(crate) use p2pshim_host::verdict::Verdict;

/// Verdicts depend on these facts of each device. The mutex is the standard library's: see [`os::lock`].
static FACTS: Mutex<Facts> = Mutex::new(Facts::new());

/// The verdict that is kept on a pair, if there is one. Reads a small file; and what verdicts depend on, once for each device.
pub(crate) fn verdict(question: &Question) -> Option<Verdict> {
    os::undisturbed(|| cache()?.find(&mut os::lock(&FACTS), question))
}

/// Keeps a verdict, if there is a place for it, and a file may have any size: the signal for one that may not ends programs.
pub(crate) fn keep(question: &Question, verdict: Verdict) {
    if !os::may_write_files() {
        return;
    }
    os::undisturbed(|| {
        let key = os::lock(&FACTS).key(question)?;
        cache()?.put(&key, verdict, true).then_some(())
    });
}

/// Whether anything failed about two devices of which this process may see neither: it can only reach them through other processes.
pub(crate) fn has_failed(uuids: [&str; 2], are_simulated: bool) -> bool {
    let faults = are_simulated.then(faults);
    let failed = || cache()?.between(uuids, faults.as_deref())?.any_failure().map(drop);
    os::undisturbed(failed).is_some()
}

/// The faults of simulated GPUs.
pub(crate) fn faults() -> String {
    verdicts::faults(os::variable)
}

/// The verdicts of the user. Where a program has more rights than its user, its environment, and so the folder, are the user's choice.
fn cache() -> Option<Cache> {
    let variable = |name: &str| os::variable(name);
    let cache = || Cache::of(variable("XDG_CACHE_HOME"), variable("HOME"), os::user_id());
    if os::is_secure_execution() { None } else { cache() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_on_devices_that_nobody_has_is_none() {
        let question = Question {
            from_uuid: "GPU-fefefefe-fefe-fefe-fefe-fefefefefefe".to_owned(),
            from_bus_id: "0000:01:00.0".to_owned(),
            to_uuid: "GPU-01010101-0101-0101-0101-010101010101".to_owned(),
            to_bus_id: "0000:02:00.0".to_owned(),
            driver_version: 13000,
            faults: None,
        };
        assert_eq!(verdict(&question), None);
    }
}
