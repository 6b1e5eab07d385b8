//! NCCL's own diagnostics, beside ours. Since 2.31 NCCL tests the paths that it means to use when a communicator is made, if
//! `NCCL_RUN_DIAGNOSTICS` is 1, and reports to standard output in lines with `NCCL DIAG`.
//!
//! A process of its own loads NCCL and makes a communicator of all GPUs that are tested: that may crash, or never end.
//!
//! Source: NCCL's user guide, Diagnostics; `src/diagnostics.cc`, `src/diagnostics/p2p.cc` of 2.32.

use std::ffi::{OsString, c_int, c_void};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Instant;

use libloading::Library;
use serde::{Deserialize, Serialize};

use super::session::Settings;
use crate::processes;
use crate::shim::linkers_words;

/// The name by which programs load NCCL.
pub(super) const NAME: &str = "libnccl.so.2";
/// The first version that has diagnostics: 2.31.
const FIRST: i32 = 23100;
/// How much longer than a pair all of it may take: NCCL starts on every GPU.
const PATIENCE: u32 = 3;
/// The mark of a line of the report.
const MARK: &str = "NCCL DIAG ";

/// The outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Diagnosed {
    /// The library, as it was loaded.
    pub(super) library: String,
    /// Its version, such as `2.32.3`.
    pub(super) version: Option<String>,
    /// The lines of its report.
    pub(super) lines: Vec<String>,
    /// Why there is no report.
    pub(super) error: Option<String>,
}

/// The words of the process that loads NCCL.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    /// NCCL's version, as a number.
    Version(i32),
    /// The code that making the communicator returned.
    Made(i32),
    /// Why it could not be tried.
    Failed(String),
}

impl Diagnosed {
    /// Takes in a line of that process.
    fn take(&mut self, line: &str) {
        match serde_json::from_str(line) {
            Ok(Word::Version(number)) => {
                self.version = Some(version(number));
                if number < FIRST {
                    self.error = Some("too old: NCCL has diagnostics since 2.31".to_owned());
                }
            }
            Ok(Word::Made(0)) if self.lines.is_empty() => {
                self.error = Some("NCCL started, but reported nothing".to_owned());
            }
            Ok(Word::Made(0)) => {}
            Ok(Word::Made(code)) => self.error = Some(format!("ncclCommInitAll returned {code}")),
            Ok(Word::Failed(why)) => self.error = Some(why),
            Err(_) => {
                let said = line.split_once(MARK).map(|(_, said)| said.trim()).filter(|said| !said.starts_with("==="));
                self.lines.extend(said.map(|said| p2pshim_host::text::Escaped(said).to_string()));
            }
        }
    }

    /// Whether NCCL was found.
    fn is_there(&self) -> bool {
        self.version.is_some()
    }

    /// Whether it has diagnostics.
    fn is_new(&self) -> bool {
        self.is_there() && self.error.as_ref().is_none_or(|why| !why.starts_with("too old"))
    }
}

/// A version in words.
fn version(number: i32) -> String {
    format!("{}.{}.{}", number / 10000, number / 100 % 100, number % 100)
}

/// Runs the diagnostics of the NCCL that the user names, or of the first that has them, on the GPUs of these pairs.
pub(super) fn run(named: &Path, pairs: &[[usize; 2]], settings: Settings<'_>) -> Diagnosed {
    let mut gpus = pairs.as_flattened().to_vec();
    gpus.sort_unstable();
    gpus.dedup();
    let candidates = if named == Path::new(NAME) { candidates() } else { vec![named.to_owned()] };
    settings.progress.begin(1, "running NCCL's diagnostics");
    let mut old: Option<Diagnosed> = None;
    let mut missing: Option<Diagnosed> = None;
    for library in candidates {
        let diagnosed = diagnose(&library, &gpus, settings);
        if diagnosed.is_new() {
            return diagnosed;
        }
        let kept = if diagnosed.is_there() { &mut old } else { &mut missing };
        kept.get_or_insert(diagnosed);
    }
    let mut none = old.or(missing).unwrap_or_default();
    if !none.is_there() && named == Path::new(NAME) {
        let found = format!("{NAME} is neither on the library path nor in a Python environment");
        none.error = Some(format!("{found}; --nccl=LIBRARY names it"));
        none.library.clear();
    }
    none
}

/// Where NCCL may be: where the dynamic linker finds it, and in the Python environment that is active.
fn candidates() -> Vec<PathBuf> {
    let environments = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(std::env::var_os);
    let packaged = environments.flat_map(|folder| {
        let pythons = fs::read_dir(Path::new(&folder).join("lib")).into_iter().flatten().flatten();
        pythons.map(|python| python.path().join("site-packages/nvidia/nccl/lib").join(NAME)).collect::<Vec<_>>()
    });
    std::iter::once(PathBuf::from(NAME)).chain(packaged.filter(|library| library.exists())).collect()
}

fn diagnose(library: &Path, gpus: &[usize], settings: Settings<'_>) -> Diagnosed {
    let mut diagnosed = Diagnosed { library: library.display().to_string(), ..Diagnosed::default() };
    let run = [(OsString::from("NCCL_RUN_DIAGNOSTICS"), OsString::from("1"))];
    let started = processes::own("gpu-worker", &[settings.environment, &run].concat()).and_then(|mut command| {
        command.arg("--nccl").arg(library).arg("--gpus").args(gpus.iter().map(usize::to_string));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
    });
    let mut child = match started {
        Ok(child) => child,
        Err(error) => {
            diagnosed.error = Some(format!("the process for it could not be started: {error}"));
            return diagnosed;
        }
    };
    let (sender, lines) = mpsc::channel();
    if let Some(output) = child.stdout.take() {
        thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
    }
    let (time, begin) = (settings.timeout * PATIENCE, Instant::now());
    loop {
        match lines.recv_timeout(time.saturating_sub(begin.elapsed())) {
            Ok(line) => diagnosed.take(&line),
            Err(RecvTimeoutError::Timeout) => {
                diagnosed.error = Some(format!("it had not finished after {} s", time.as_secs()));
                break;
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    // It ends when nobody writes to it any more.
    drop(child.stdin.take());
    let status = processes::end(&mut child);
    if diagnosed.error.is_none() && !diagnosed.is_there() {
        let status = status.map_or_else(String::new, |status| format!(" ({status})"));
        diagnosed.error = Some(format!("the process that loaded it ended without a report{status}"));
    }
    diagnosed
}

/// Loads NCCL, and makes a communicator of GPUs of these ordinals.
pub(super) fn serve(library: &Path, gpus: &[usize]) {
    // It ends with who has started it.
    let _asked = processes::asked::<()>();
    if let Err(why) = make(library, gpus) {
        processes::say(&Word::Failed(why));
    }
}

/// # Errors
/// Why it cannot be tried, for the user.
fn make(library: &Path, gpus: &[usize]) -> Result<(), String> {
    // SAFETY: it is NCCL, as the user has it installed or named.
    let library = unsafe { Library::new(library) }.map_err(|error| linkers_words(&error))?;
    // SAFETY: NCCL's header declares it so.
    let get_version = unsafe { library.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"ncclGetVersion\0") };
    let get_version = get_version.map_err(|error| linkers_words(&error))?;
    let mut version = 0;
    // SAFETY: it stores a number.
    let code = unsafe { get_version(&mut version) };
    if code != 0 {
        return Err(format!("ncclGetVersion returned {code}"));
    }
    processes::say(&Word::Version(version));
    if version < FIRST {
        return Ok(());
    }
    type InitAll = unsafe extern "C" fn(*mut *mut c_void, c_int, *const c_int) -> c_int;
    // SAFETY: NCCL's header declares it so.
    let init_all = unsafe { library.get::<InitAll>(b"ncclCommInitAll\0") }.map_err(|error| linkers_words(&error))?;
    let devices: Vec<c_int> = gpus.iter().filter_map(|&gpu| c_int::try_from(gpu).ok()).collect();
    let mut communicators = vec![std::ptr::null_mut(); devices.len()];
    // SAFETY: it reads so many numbers, and stores so many pointers. The process ends with the communicators.
    let code = unsafe { init_all(communicators.as_mut_ptr(), devices.len() as c_int, devices.as_ptr()) };
    // Its report may still be in the C library's buffer.
    // SAFETY: NULL means all streams.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    processes::say(&Word::Made(code));
    // Its threads may outlive whatever we do.
    std::mem::forget(library);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diagnosed(lines: &[&str]) -> Diagnosed {
        let mut diagnosed = Diagnosed::default();
        lines.iter().for_each(|line| diagnosed.take(line));
        diagnosed
    }

    #[test]
    fn take_keeps_the_lines_of_the_report() {
        let found = diagnosed(&[
            r#"{"version":23203}"#,
            "host:42 NCCL DIAG === NCCL Diagnostics ===",
            "host:42:57 [0] NCCL INFO Bootstrap: Using eth0",
            "host:42 NCCL DIAG [INFO] p2p: write mismatch srcRank=0 path=PIX",
            "host:42 NCCL DIAG [INFO] p2p: 11/12 directed GPU P2P edges verified",
            r#"{"made":0}"#,
        ]);
        let lines =
            ["[INFO] p2p: write mismatch srcRank=0 path=PIX", "[INFO] p2p: 11/12 directed GPU P2P edges verified"];
        assert_eq!((found.version.as_deref(), &found.error), (Some("2.32.3"), &None));
        assert!(found.lines == lines && found.is_new());
    }

    #[test]
    fn take_says_why_there_is_no_report() {
        for (lines, why) in [
            (&[r#"{"version":22809}"#][..], "too old: NCCL has diagnostics since 2.31"),
            (&[r#"{"version":23100}"#, r#"{"made":1}"#], "ncclCommInitAll returned 1"),
            (&[r#"{"version":23100}"#, r#"{"made":0}"#], "NCCL started, but reported nothing"),
            (&[r#"{"failed":"no such file"}"#], "no such file"),
        ] {
            assert_eq!(diagnosed(lines).error.as_deref(), Some(why));
        }
        assert!(!diagnosed(&[r#"{"version":22809}"#]).is_new() && !diagnosed(&[]).is_there());
        assert!(diagnosed(&[r#"{"version":23100}"#, r#"{"made":1}"#]).is_new());
    }
}
