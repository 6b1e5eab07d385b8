//! Which GPU another process's memory lies on, as far as it has said so in the folder of the `p2pshim run` that has started both. A bare
//! preload says nothing.

use std::sync::Mutex;

use p2pshim_host::exports::{Exports, Gpu, Handle};
use p2pshim_host::job;

use crate::os;

/// None until it is looked for. The mutex is the standard library's: see [`os::lock`].
static EXPORTS: Mutex<Option<Option<Exports>>> = Mutex::new(None);

fn with<T>(work: impl FnOnce(&mut Exports) -> Option<T>) -> Option<T> {
    let find = || {
        let folder = os::variable(job::EXPORTS)?;
        Exports::of(folder.into(), os::user_id())
    };
    os::undisturbed(|| work(os::lock(&EXPORTS).get_or_insert_with(find).as_mut()?))
}

/// Whether there are others to tell.
pub(crate) fn are_shared() -> bool {
    with(|_| Some(())).is_some()
}

/// Tells the others of memory that is exported.
pub(crate) fn publish(handle: &Handle, [uuid, bus_id]: [String; 2]) {
    if os::may_write_files() {
        with(|exports| {
            exports.publish(handle, &Gpu { uuid, bus_id });
            Some(())
        });
    }
}

/// Whether no process of the run has said this yet; this one says it then.
pub(crate) fn is_news(said: &str) -> bool {
    !os::may_write_files() || with(|exports| Some(exports.is_news(said))).unwrap_or(true)
}

/// The UUID and the place of the GPU on which memory of another process lies.
pub(crate) fn find(handle: &Handle) -> Option<[String; 2]> {
    with(|exports| exports.find(handle)).map(|gpu| [gpu.uuid, gpu.bus_id])
}
