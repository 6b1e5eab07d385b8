//! Where a report goes: standard output, or a file that is there in whole or not at all.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The path that stands for standard output.
pub(crate) const STDOUT: &str = "-";

/// Whether a path means standard output.
pub(crate) fn is_stdout(path: &Path) -> bool {
    path == Path::new(STDOUT)
}

/// Only its user can read a file, as traces are.
const PRIVATE: u32 = 0o600;
/// Whoever the user's umask lets.
const SHARED: u32 = 0o666;

/// Has something written to a path. A file gets another name until it is whole.
pub(crate) fn write_to(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    write_as(PRIVATE, path, write)
}

/// [`write_to`] a file that programs of other users read.
pub(crate) fn write_for_others(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    write_as(SHARED, path, write)
}

fn write_as(mode: u32, path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    if is_stdout(path) {
        let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
        return write(&mut out).and_then(|()| out.flush()).map_err(|error| named("standard output", error));
    }
    let name = path.display().to_string();
    // A file that is not an ordinary one, such as a pipe or /dev/null, has to stay.
    if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        let result = File::create(path).and_then(|file| {
            let mut out = BufWriter::with_capacity(1 << 16, file);
            write(&mut out)?;
            out.flush()
        });
        return result.map_err(|error| named(&name, error));
    }
    let unfinished = beside(path);
    let result = (|| {
        let mut out = BufWriter::with_capacity(1 << 16, created(&unfinished, mode)?);
        write(&mut out)?;
        out.flush()?;
        fs::rename(&unfinished, path)
    })();
    result.map_err(|error| {
        // Another's file is not ours to remove.
        if error.kind() != io::ErrorKind::AlreadyExists {
            let _ = fs::remove_file(&unfinished);
        }
        named(&name, error)
    })
}

/// # Errors
/// Nothing can be written there; the text says what stands in the way.
pub(crate) fn check(path: &Path) -> io::Result<()> {
    if is_stdout(path) || fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir()) {
        return Ok(());
    }
    if path.is_dir() {
        return Err(named(&path.display().to_string(), io::ErrorKind::IsADirectory.into()));
    }
    let unfinished = beside(path);
    let made = File::create_new(&unfinished).and_then(|_| fs::remove_file(&unfinished));
    made.map_err(|error| named(&path.display().to_string(), error))
}

fn created(path: &Path, mode: u32) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)
}

fn beside(path: &Path) -> PathBuf {
    let mut name: OsString = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}

/// Says what could not be written. Whether it is a pipe that nobody reads any more can still be told.
pub(crate) fn named(name: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{name} cannot be written: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_to_a_file_that_fails_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        write_to(&path, |out| out.write_all(b"one")).unwrap();
        let failing = |out: &mut dyn Write| {
            out.write_all(b"two")?;
            Err(io::Error::other("full"))
        };
        let error = write_to(&path, failing).unwrap_err().to_string();
        assert!(error.contains("out cannot be written: full"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"one");
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        write_to(&path, |out| out.write_all(b"three")).unwrap();
        let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(&path).unwrap());
        assert_eq!(mode & 0o777, 0o600, "nobody else can read it");
        assert_eq!(fs::read(&path).unwrap(), b"three");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing is left beside it");
        drop(folder);
        assert!(write_to(&path, |_| Ok(())).unwrap_err().to_string().contains("No such file"));
        write_to(Path::new("/dev/null"), |out| out.write_all(b"x")).unwrap();
        for (path, expected) in
            [("/dev/null", None), ("/", Some("s a directory")), ("/nowhere/out", Some("No such file"))]
        {
            let said = check(Path::new(path)).err().map(|error| error.to_string());
            assert_eq!(said.is_some(), expected.is_some(), "{path}");
            assert!(said.iter().all(|said| expected.is_some_and(|part| said.contains(part))), "{said:?}");
        }
        let error = write_to(Path::new("/dev/full"), |out| out.write_all(b"x")).unwrap_err().to_string();
        assert!(error.starts_with("/dev/full cannot be written: No space"), "{error}");
    }
}
