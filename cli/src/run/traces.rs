//! Where the traces of a run are.
//!
//! A temporary folder goes when the run ends. Whatever ends `p2pshim` itself, the next run removes what it has left: whoever
//! uses a folder holds a lock on it, and locks end with their process. The traces are in a folder of that folder. The shim makes
//! only the last part of a path, so that a process that outlives the run makes none anew.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The beginning of the names of temporary folders.
const NAME: &str = "p2pshim-run-";

/// Where they are.
pub(super) enum Traces {
    /// There are none. The folder, if one could be made, is for exports.
    Nowhere(Option<Temporary>),
    /// In a folder of the user's.
    Kept(PathBuf, Option<Temporary>),
    /// In a folder that goes when this does.
    Temporary(Temporary),
}

impl Traces {
    /// In the folder that was named, or in a new one below `parent` if they are wanted.
    ///
    /// # Errors
    /// No folder can be made.
    pub(super) fn new(named: Option<PathBuf>, are_wanted: bool, parent: &Path) -> io::Result<Self> {
        match named {
            Some(folder) => Ok(Self::Kept(folder, Temporary::new(parent).ok())),
            None if are_wanted => Temporary::new(parent).map(Self::Temporary),
            None => Ok(Self::Nowhere(Temporary::new(parent).ok())),
        }
    }

    /// Where the processes tell each other which memory they export.
    pub(super) fn exports(&self) -> Option<&Path> {
        let (Self::Nowhere(temporary) | Self::Kept(_, temporary)) = self else {
            let Self::Temporary(temporary) = self else { return None };
            return Some(&temporary.exports);
        };
        temporary.as_ref().map(|temporary| &*temporary.exports)
    }

    pub(super) fn folder(&self) -> Option<&Path> {
        match self {
            Self::Nowhere(_) => None,
            Self::Kept(folder, _) => Some(folder),
            Self::Temporary(temporary) => Some(&temporary.traces),
        }
    }

    /// How to see more than the report.
    pub(super) fn more(&self) -> String {
        match self {
            Self::Kept(folder, _) => format!("p2pshim report {} (--help: pages, lists of calls, filters)", quoted(folder)),
            Self::Nowhere(_) | Self::Temporary(_) => {
                "p2pshim run --trace DIR keeps the trace, and p2pshim report DIR shows it: pages, lists of calls, filters"
                    .to_owned()
            }
        }
    }
}

/// Whether something can be written to a folder.
///
/// # Errors
/// The system's, if not.
pub(super) fn try_to_write(folder: &Path) -> io::Result<()> {
    let path = folder.join(format!(".p2pshim.{}", std::process::id()));
    let written = match File::create_new(&path) {
        // Of another run with this number, in another container or on another machine, or one that was killed.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        file => file?.write_all(b"\n"),
    };
    fs::remove_file(&path).and(written)
}

/// A path as a shell takes it for one word.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+:,@%".contains(letter);
    if !text.is_empty() && text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// A folder that only the user can look into.
pub(super) struct Temporary {
    folder: PathBuf,
    traces: PathBuf,
    exports: PathBuf,
    /// Holds the lock.
    _lock: File,
}

impl Temporary {
    fn new(parent: &Path) -> io::Result<Self> {
        const TRIES: u32 = 1000;
        remove_left(parent);
        let folders = (0..TRIES).map(|number| parent.join(format!("{NAME}{}-{number}", std::process::id())));
        for folder in folders {
            match DirBuilder::new().mode(0o700).create(&folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made?,
            }
            // Another run may have taken it for one that was left, and removed it.
            let lock = match File::open(&folder) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened?,
            };
            let [traces, exports] = ["traces", "exports"].map(|name| folder.join(name));
            let make = |folder: &PathBuf| DirBuilder::new().mode(0o700).create(folder).is_ok();
            let is_taken = matches!(lock.try_lock(), Err(TryLockError::WouldBlock));
            if is_taken || !make(&traces) || !make(&exports) {
                continue;
            }
            return Ok(Self { folder, traces, exports, _lock: lock });
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        remove(&self.folder);
    }
}

/// Removes a folder, even if somebody still makes files in it.
fn remove(folder: &Path) {
    const TRIES: usize = 10;
    // First a name that nobody knows: what is made by the old name from now on has no folder.
    let hidden = folder.with_extension("gone");
    let folder = if fs::rename(folder, &hidden).is_ok() { &hidden } else { folder };
    let _ =
        (0..TRIES).find(|_| !fs::remove_dir_all(folder).is_err_and(|error| error.kind() != io::ErrorKind::NotFound));
}

/// Removes the folders of runs whose `p2pshim` was killed.
fn remove_left(parent: &Path) {
    // The owner of our own entry is the user that we run as.
    let Ok(own) = fs::metadata("/proc/self") else { return };
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(NAME) {
            continue;
        }
        let is_ours = entry.metadata().is_ok_and(|it| it.is_dir() && it.uid() == own.uid());
        let lock = Some(entry.path()).filter(|_| is_ours).and_then(|folder| File::open(folder).ok());
        if lock.as_ref().is_some_and(|lock| lock.try_lock().is_ok()) {
            remove(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_folder_of_our_own_goes_and_the_users_stays() {
        let folder = tempfile::tempdir().unwrap();
        let parent = folder.path();
        let temporary = Traces::new(None, true, parent).unwrap();
        let folder = temporary.folder().unwrap().to_owned();
        assert!(folder.is_dir());
        drop(Traces::new(Some(folder.clone()), true, parent).unwrap());
        assert!(folder.is_dir());
        drop(temporary);
        // Fails if anything is left.
        fs::remove_dir(parent).unwrap();
        assert!(Traces::new(None, false, parent).unwrap().folder().is_none());
        assert!(Traces::new(None, true, parent).is_err(), "there is no place for it");
    }

    #[test]
    fn folder_that_was_left_goes_with_the_next_run_and_one_in_use_stays() {
        let folder = tempfile::tempdir().unwrap();
        let parent = folder.path();
        fs::create_dir_all(parent.join(format!("{NAME}1-0/traces"))).unwrap();
        fs::create_dir_all(parent.join("p2pshim-other")).unwrap();
        let first = Temporary::new(parent).unwrap();
        let second = Temporary::new(parent).unwrap();
        assert!(first.traces.is_dir() && second.traces.is_dir());
        drop((first, second));
        let left: Vec<_> = fs::read_dir(parent).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["p2pshim-other"]);
    }

    #[test]
    fn folder_that_is_gone_is_not_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let parent = folder.path();
        let temporary = Temporary::new(parent).unwrap();
        let traces = temporary.traces.clone();
        drop(temporary);
        assert!(fs::create_dir(&traces).is_err(), "what the shim does");
        fs::remove_dir(parent).unwrap();
    }

    #[test]
    fn quoted_only_where_a_shell_needs_it() {
        assert_eq!(quoted(Path::new("/tmp/a-1.x")), "/tmp/a-1.x");
        assert_eq!(quoted(Path::new("a b'c")), r"'a b'\''c'");
    }
}
