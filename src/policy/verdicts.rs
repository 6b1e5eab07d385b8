//! `P2PSHIM_VERIFY=full`: a pair is judged by the verdict that `p2pshim doctor` or `p2pshim run` has left in a file.
//!
//! In the program's process nothing of the kind can be tested: loading a kernel may wait for a device, and a kernel of the
//! program may be waiting for its host. Of HIP, which the doctor does not test, what copies have shown in this process is kept.

use std::path::PathBuf;
use std::sync::Mutex;

use p2pshim_host::machine;
use p2pshim_host::verdicts::{self, Cache, Facts, Question};

use crate::os;

pub(crate) use p2pshim_host::verdict::Verdict;

/// Verdicts depend on these facts of each device. The mutex is the standard library's: see [`os::lock`].
static FACTS: Mutex<Facts> = Mutex::new(Facts::new());

/// The verdict that is kept on a pair, if there is one. Reads a small file; and what verdicts depend on, once for each device.
pub(crate) fn verdict(question: &Question) -> Option<Verdict> {
    let find = |cache: Cache| cache.find(&mut os::lock(&FACTS), question);
    os::undisturbed(|| verdicts::together(caches(question.faults.is_none()).filter_map(find)))
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

/// The verdict on two devices of which this process may see neither: it can only reach them through other processes.
pub(crate) fn between(uuids: [&str; 2], are_simulated: bool) -> Option<Verdict> {
    let faults = are_simulated.then(faults);
    let find = |cache: Cache| cache.between(uuids, faults.as_deref());
    os::undisturbed(|| verdicts::together(caches(!are_simulated).filter_map(find)))
}

/// The verdict on two devices, simulated or not, of which a program knows the UUIDs.
pub(crate) fn of_uuids(uuids: [&str; 2]) -> Option<Verdict> {
    between(uuids, false).or_else(|| between(uuids, true))
}

/// A device's names in a report; empty where the library does not tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gpu {
    pub(crate) name: String,
    pub(crate) uuid: String,
    pub(crate) bus_id: String,
}

impl Gpu {
    /// Where its machine says what it is; none if the device is simulated, and nothing is said of its machine.
    pub(crate) fn root(&self) -> Option<PathBuf> {
        let is_simulated = [machine::SIMULATED_NAME, machine::SIMULATED_AMD_NAME].contains(&&*self.name);
        machine::root(is_simulated, os::variable("P2PSIM_ROOT"))
    }
}

/// The key of a verdict on one device's access to the memory of another; none if the library does not tell it.
pub(crate) fn question([from, to]: [Gpu; 2], driver_version: i32) -> Option<Question> {
    let are_known = [&from, &to].iter().all(|gpu| !gpu.uuid.is_empty() && !gpu.bus_id.is_empty());
    let faults = from.root().is_none().then(faults);
    are_known.then_some(Question {
        from_uuid: from.uuid,
        from_bus_id: from.bus_id,
        to_uuid: to.uuid,
        to_bus_id: to.bus_id,
        driver_version,
        faults,
    })
}

/// The faults of simulated GPUs.
fn faults() -> String {
    verdicts::faults(os::variable)
}

/// The verdicts of the user, and of GPUs that the machine has those of root.
fn caches(are_of_machine: bool) -> impl Iterator<Item = Cache> {
    let root = machine::root(!are_of_machine, os::variable("P2PSIM_ROOT")).filter(|_| are_of_machine);
    cache().into_iter().chain(root.as_deref().map(Cache::of_system))
}

/// The verdicts of the user.
fn cache() -> Option<Cache> {
    Cache::of(os::variable("XDG_CACHE_HOME"), os::variable("HOME"), os::user_id())
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
