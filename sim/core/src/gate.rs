//! Gates, which queued work relies on: memory that stays mapped, access that stays open.

use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, TryLockError};
use std::time::Duration;

use crate::error::Error;
use crate::os;

/// How often a thread that waits for work to leave a gate looks again.
const INTERVAL: Duration = Duration::from_micros(50);

/// Open until it is closed for ever. Closing waits for nobody, and it is the work that suffers.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    closed: OnceLock<Error>,
    passing: RwLock<()>,
}

impl Gate {
    /// An open gate.
    pub(crate) fn open() -> Arc<Gate> {
        Arc::default()
    }

    /// A gate that was closed before anybody came.
    pub(crate) fn shut(error: Error) -> Arc<Gate> {
        let gate = Gate::open();
        gate.close(error);
        gate
    }

    /// Ends all work that relies on it with `error`, work that is under way too.
    pub(crate) fn close(&self, error: Error) {
        self.closed.get_or_init(|| error);
    }

    /// Returns when nothing is under way any more that came before it was closed; the calling thread may be cancelled
    /// meanwhile.
    pub(crate) fn drain(&self) {
        while matches!(self.passing.try_write(), Err(TryLockError::WouldBlock)) {
            os::pause(INTERVAL);
        }
    }

    fn pass(&self) -> RwLockReadGuard<'_, ()> {
        self.passing.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Does `work` if all `gates` are open; if one is not, or is closed before the end, `broken` says what came of it.
pub(crate) fn pass_all(gates: &[Arc<Gate>], broken: &OnceLock<Error>, work: impl FnOnce()) {
    let passing: Vec<_> = gates.iter().map(|gate| gate.pass()).collect();
    let closed = || gates.iter().find_map(|gate| gate.closed.get().copied());
    if closed().is_none() {
        work();
    }
    if let Some(error) = closed() {
        broken.get_or_init(|| error);
    }
    drop(passing);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(gates: &[Arc<Gate>], work: impl FnOnce()) -> Option<Error> {
        let broken = OnceLock::new();
        pass_all(gates, &broken, work);
        broken.get().copied()
    }

    #[test]
    fn pass_all_works_only_where_all_are_open() {
        let [first, second] = [Gate::open(), Gate::open()];
        let mut times = 0;
        assert_eq!(passed(&[Arc::clone(&first), Arc::clone(&second)], || times += 1), None);
        second.close(Error::LAUNCH_FAILED);
        assert_eq!(passed(&[first, second], || times += 1), Some(Error::LAUNCH_FAILED));
        assert_eq!(times, 1);
    }

    #[test]
    fn close_meanwhile_breaks_what_is_under_way() {
        let gate = Gate::open();
        assert_eq!(passed(&[Arc::clone(&gate)], || gate.close(Error::LAUNCH_FAILED)), Some(Error::LAUNCH_FAILED));
    }

    #[test]
    fn drain_waits_for_what_is_under_way() {
        let gate = Gate::open();
        let passing = gate.pass();
        std::thread::scope(|scope| {
            let drained = scope.spawn(|| gate.drain());
            std::thread::sleep(INTERVAL * 20);
            assert!(!drained.is_finished());
            drop(passing);
        });
    }
}
