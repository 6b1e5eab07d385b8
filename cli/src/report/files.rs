//! Which files are meant.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use p2pshim_trace::SUFFIX;

use crate::status::Refusal;
use crate::{complain, nvlink, runs};

/// Folders in folders that are looked into.
const DEPTH: usize = 8;

/// Why there is no report.
#[derive(Debug)]
pub(crate) enum Error {
    /// A path leads nowhere, or may not be read.
    Path(PathBuf, io::Error),
    /// There is no trace among these.
    NoTraces(Vec<PathBuf>),
    /// Not one of the files can be read: each with the reason.
    Unreadable(Vec<(String, String)>),
}

impl std::error::Error for Error {}

impl Error {
    /// For a command to which it is an answer that there is no trace.
    pub(super) fn refused(self) -> Box<dyn std::error::Error> {
        match self {
            Self::NoTraces(_) => Box::new(Refusal::none_found(self)),
            _ => Box::new(self),
        }
    }
}

impl Display for Error {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path, error) => write!(out, "{}: {error}", path.display()),
            Self::NoTraces(paths) => {
                let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
                write!(
                    out,
                    "no trace (*{SUFFIX}) in {}: make one with `p2pshim run --trace FOLDER PROGRAM`, or name the folder \
                     that the traces are in",
                    paths.join(", ")
                )
            }
            Self::Unreadable(files) => {
                const SHOWN: usize = 5;
                for (index, (path, why)) in files.iter().take(SHOWN).enumerate() {
                    write!(out, "{}{path}: {why}", if index == 0 { "" } else { "; " })?;
                }
                match files.len().checked_sub(SHOWN) {
                    Some(more @ 1..) => write!(out, "; and {more} more that cannot be read"),
                    _ => Ok(()),
                }
            }
        }
    }
}

/// Files to read, in order, each once.
#[derive(Debug, Default)]
pub(crate) struct Files {
    pub(crate) traces: Vec<PathBuf>,
    /// Readings of NVLink. Files beside a trace that is named alone are not among them: other traces may belong to them.
    pub(crate) readings: Vec<PathBuf>,
    /// How programs ended, likewise.
    pub(crate) runs: Vec<PathBuf>,
}

impl Files {
    /// The list that a file belongs to by its name; none if it is none of ours.
    fn list(&mut self, name: &str) -> Option<&mut Vec<PathBuf>> {
        match name {
            _ if name.ends_with(SUFFIX) => Some(&mut self.traces),
            _ if name.ends_with(nvlink::SUFFIX) => Some(&mut self.readings),
            _ if name.ends_with(runs::SUFFIX) => Some(&mut self.runs),
            _ => None,
        }
    }
}

/// The files that are named, and all in the folders that are.
pub(crate) fn find(paths: &[PathBuf]) -> Result<Files, Error> {
    let mut files = Files::default();
    for path in paths {
        let metadata = fs::metadata(path).map_err(|error| Error::Path(path.clone(), error))?;
        if metadata.is_dir() {
            look_into(path, 0, &mut files).map_err(|error| Error::Path(path.clone(), error))?;
        } else if metadata.is_file() {
            match files.list(&path.to_string_lossy()) {
                Some(list) => list.push(path.clone()),
                // Whatever it is called, it may be a trace.
                None => files.traces.push(path.clone()),
            }
        } else {
            let error = io::Error::other("neither a file nor a folder");
            return Err(Error::Path(path.clone(), error));
        }
    }
    if files.traces.is_empty() {
        return Err(Error::NoTraces(paths.to_vec()));
    }
    for files in [&mut files.traces, &mut files.readings, &mut files.runs] {
        files.sort_by_cached_key(|path| natural(&path.to_string_lossy()));
        let mut seen = BTreeSet::new();
        files.retain(|path| seen.insert(fs::canonicalize(path).unwrap_or_else(|_| path.clone())));
    }
    leave_out_copies(&mut files.traces);
    Ok(files)
}

/// If files are copies of one trace, leaves out all but the one that has the most in it.
fn leave_out_copies(traces: &mut Vec<PathBuf>) {
    let all: Vec<_> = traces.iter().map(|path| origin(path)).collect();
    let mut whole: BTreeMap<Vec<u8>, ([u64; 4], PathBuf)> = BTreeMap::new();
    for (path, found) in traces.iter().zip(&all) {
        let Some((origin, has)) = found else { continue };
        let kept = whole.entry(origin.clone()).or_insert_with(|| (*has, path.clone()));
        if *has > kept.0 {
            *kept = (*has, path.clone());
        }
    }
    let mut all = all.into_iter();
    traces.retain(|path| {
        let kept = all.next().flatten().and_then(|(origin, _)| whole.get(&origin)).map_or(path, |(_, kept)| kept);
        if kept != path {
            complain(format_args!("{} is the same trace as {}, and is left out", path.display(), kept.display()));
        }
        kept == path
    });
}

/// The facts that tell a trace from every other: the process, its clock, and when it began on three clocks; and how much is in the
/// file: the status of `exit`, chunks in use, and bytes. If two have the same, a copy is likely further down.
fn origin(path: &Path) -> Option<(Vec<u8>, [u64; 4])> {
    let mut file = fs::File::open(path).ok()?;
    let mut header = [0; 88];
    file.read_exact(&mut header).ok()?;
    let number = |at: usize| Some(u64::from_le_bytes(header.get(at..at + 8)?.try_into().ok()?));
    let depth = path.components().count() as u64;
    let has = [number(56)?, number(32)?, file.metadata().ok()?.len(), u64::MAX - depth];
    let origin = [header.get(24..32)?, header.get(64..)?].concat();
    // One that has lost its clock may be any.
    (header.starts_with(b"P2PTRACE") && number(64)? != 0).then_some((origin, has))
}

fn look_into(folder: &Path, depth: usize, files: &mut Files) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        let path = entry.path();
        if kind.is_dir() && depth < DEPTH {
            // Others' folders may be there too, in /tmp for one.
            if let Err(error) = look_into(&path, depth + 1, files) {
                complain(format_args!("{} is left out: {error}", path.display()));
            }
        } else if fs::metadata(&path).is_ok_and(|it| it.is_file()) {
            files.list(&entry.file_name().to_string_lossy()).into_iter().for_each(|list| list.push(path.clone()));
        }
    }
    Ok(())
}

/// A key that puts rank 10 behind rank 9.
fn natural(text: &str) -> Vec<(u64, String)> {
    let mut parts = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (words, after) = rest.split_at(rest.find(|letter: char| letter.is_ascii_digit()).unwrap_or(rest.len()));
        let (digits, after) =
            after.split_at(after.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(after.len()));
        parts.push((0, words.to_owned()));
        parts.push((digits.parse().unwrap_or(u64::MAX), digits.to_owned()));
        rest = after;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn natural_numbers_are_in_their_order() {
        let mut names = vec!["b", "rank-10.x", "rank-9.x", "rank-9", "99999999999999999999999", "a"];
        names.sort_by_cached_key(|name| natural(name));
        assert_eq!(names, ["99999999999999999999999", "a", "b", "rank-9", "rank-9.x", "rank-10.x"]);
    }

    #[test]
    fn error_says_what_to_do() {
        let text = Error::NoTraces(vec!["/a".into(), "/b".into()]).to_string();
        assert!(text.contains("/a, /b") && text.contains("p2pshim run --trace"), "{text}");
        let many = vec![("x".to_owned(), "damaged".to_owned()); 7];
        assert!(Error::Unreadable(many).to_string().ends_with("and 2 more that cannot be read"));
    }
}
