//! What NVLink carried while a program ran, by the counters of NVML: `p2pshim run` keeps it beside the traces, and the
//! report compares it with the copies.
//!
//! `run` does not call NVML itself, for that may hang. Another process of ours does (`worker`), from before the program
//! starts until after it has ended: where nobody keeps the driver loaded, counters begin at 0 when the last process leaves.
//! `watch` starts it, and does not wait for it for ever.

mod watch;
pub(crate) mod worker;

pub(crate) use watch::Watch;

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The version of the file.
const VERSION: u32 = 1;
/// What the names of the files end in.
pub(crate) const SUFFIX: &str = ".nvlink.json";

/// What was read around one program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reading {
    pub(crate) version: u32,
    /// As traces name it.
    pub(crate) host: String,
    /// When the counters were first and last read, in nanoseconds since 1970.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Whether a signal ended the program.
    pub(crate) killed: bool,
    /// Whether processes of other PID namespaces, such as containers, may be hidden from NVML here.
    pub(crate) in_container: bool,
    pub(crate) gpus: Vec<Gpu>,
}

/// What all versions of the file have.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// What was read of one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Gpu {
    /// As NVML and traces have it.
    pub(crate) uuid: String,
    /// Bytes by the counter, first and last.
    pub(crate) sent: [u64; 2],
    pub(crate) received: [u64; 2],
    /// Whether the program, or a descendant of it, was seen to use the GPU.
    pub(crate) ours: bool,
    /// Processes that were seen to use it and are not known to descend from the program.
    pub(crate) others: Vec<u32>,
}

impl Reading {
    /// Writes it to a new file of a folder.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn keep(&self, folder: &Path) -> io::Result<PathBuf> {
        let name = format!("{}-{}-{}{SUFFIX}", self.host.replace('/', "_"), std::process::id(), self.start / 1000);
        let path = folder.join(name);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        Ok(path)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// A sentence for the user.
    pub(crate) fn load(path: &Path) -> Result<Self, String> {
        let bytes = fs::read(path).map_err(|error| error.to_string())?;
        // A later version may have other fields.
        let Versioned { version } = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
        if version != VERSION {
            return Err(format!("it has version {version}, and this p2pshim reads {VERSION}"));
        }
        serde_json::from_slice(&bytes).map_err(|error| error.to_string())
    }
}

/// A line that a file of the system has.
fn line(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_gives_what_was_kept_and_refuses_other_versions() {
        let folder = std::env::temp_dir().join(format!("p2pshim-nvlink-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let gpu = Gpu { uuid: "GPU-a".into(), sent: [1 << 40, 1 << 41], received: [0, 7], ours: true, others: vec![9] };
        let reading =
            Reading { version: VERSION, host: "a/b".into(), start: 5000, gpus: vec![gpu], ..Reading::default() };
        let path = reading.keep(&folder).unwrap();
        assert_eq!(Reading::load(&path).as_ref(), Ok(&reading));
        assert!(reading.keep(&folder).is_err(), "nothing is overwritten");
        let later = fs::read_to_string(&path).unwrap().replace("\"version\":1", "\"version\":2");
        fs::write(&path, later).unwrap();
        assert!(Reading::load(&path).unwrap_err().contains("version 2"));
        fs::write(&path, "{").unwrap();
        assert!(Reading::load(&path).is_err());
        fs::remove_dir_all(folder).unwrap();
    }
}
