//! Fixtures that several tests share. Since each test is a process of its own, they share files, under locks.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Nobody else has the lock of this name until it is dropped.
#[must_use]
pub(crate) fn alone(name: &str) -> File {
    let lock = File::create(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.lock"))).unwrap();
    lock.lock().unwrap();
    lock
}

/// A folder that the first test which wants it makes, in each run of the tests. The others find it as it is.
pub(crate) fn made_once(name: &str, make: impl FnOnce(&Path)) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let made = folder.with_extension("made");
    // By cargo-nextest; without it the tests of one process are a run.
    let run = std::env::var("NEXTEST_RUN_ID").unwrap_or_else(|_| std::process::id().to_string());
    let _alone = alone(name);
    if fs::read_to_string(&made).is_ok_and(|made| made == run) {
        return folder;
    }
    // An earlier run has left it.
    let _ = fs::remove_dir_all(&folder);
    make(&folder);
    fs::write(made, run).unwrap();
    folder
}
