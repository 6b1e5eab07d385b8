//! Small files of JSON that `p2pshim run` keeps beside traces, each with the version of its form.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::complain;

/// Writes a new file to a folder: in whole, or not at all.
///
/// # Errors
/// The system's.
pub(crate) fn write(folder: &Path, name: &str, what: &impl Serialize) -> io::Result<PathBuf> {
    let path = folder.join(name);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    file.write_all(&serde_json::to_vec(what)?).inspect_err(|_| {
        let _ = fs::remove_file(&path);
    })?;
    Ok(path)
}

/// The contents of a file, which may have been damaged.
pub(crate) trait Kept: DeserializeOwned {
    /// Whether its figures may be right.
    fn is_possible(&self) -> bool;
}

/// Whether something may have begun and ended then, in nanoseconds since 1970. A clock may be set back meanwhile.
pub(crate) fn are_times(start: u64, end: u64) -> bool {
    const YEAR: u64 = 31_557_600_000_000_000;
    start.abs_diff(end) <= 10 * YEAR && start.max(end) <= 230 * YEAR
}

/// Reads a file of this version.
///
/// # Errors
/// A sentence for the user.
pub(crate) fn read<T: Kept>(path: &Path, version: u32) -> Result<T, String> {
    /// A later version may have other fields.
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    let bytes = fs::read(path).map_err(|error| error.to_string())?;
    let found: Versioned = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    if found.version != version {
        return Err(format!("it has version {}, and this p2pshim reads {version}", found.version));
    }
    let kept: T = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    if kept.is_possible() { Ok(kept) } else { Err("it is damaged: its figures are not possible".to_owned()) }
}

/// Reads files. A file that cannot be read is said, and left out.
pub(crate) fn read_all<T: Kept>(paths: &[PathBuf], version: u32) -> Vec<T> {
    let read = |path: &PathBuf| {
        let why = |why| complain(format_args!("{} is left out: {why}", path.display()));
        read(path, version).map_err(why).ok()
    };
    paths.iter().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct Text {
        version: u32,
        text: String,
    }

    impl Kept for Text {
        fn is_possible(&self) -> bool {
            self.text != "damaged"
        }
    }

    #[test]
    fn read_gives_what_was_written_once_and_refuses_other_versions() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let kept = Text { version: 1, text: "a".to_owned() };
        let path = write(folder, "one", &kept).unwrap();
        assert_eq!(read(&path, 1), Ok(kept));
        assert!(write(folder, "one", &0).is_err(), "what is there stays");
        fs::write(&path, "{\"version\":2}").unwrap();
        let damaged = write(folder, "two", &Text { version: 1, text: "damaged".to_owned() }).unwrap();
        assert!(read::<Text>(&damaged, 1).unwrap_err().contains("not possible"));
        assert!(read::<Text>(&path, 1).unwrap_err().contains("it has version 2, and this p2pshim reads 1"));
        assert_eq!(read_all::<Text>(&[path, folder.join("none")], 1), []);
    }
}
