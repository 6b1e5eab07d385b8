//! Where a report goes, and in which form: to standard output, or to a file that is there in whole or not at all.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use clap::ValueEnum;

/// The path that stands for standard output.
pub(crate) const STDOUT: &str = "-";

/// Whether a path means standard output.
pub(crate) fn is_stdout(path: &Path) -> bool {
    path == Path::new(STDOUT)
}

/// Only its user can read a file, as traces are.
pub(crate) const PRIVATE: u32 = 0o600;
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
    if is_in_place(path) {
        let result = OpenOptions::new().append(true).open(path).and_then(|file| {
            let mut out = BufWriter::with_capacity(1 << 16, file);
            write(&mut out)?;
            out.flush()
        });
        return result.map_err(|error| named(&name, error));
    }
    replace(&target(path), mode, write).map_err(|error| named(&name, error))
}

/// Puts a whole file in the place of another, or of a link.
pub(crate) fn replace(path: &Path, mode: u32, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let unfinished = beside(path);
    let result = (|| {
        let mut out = BufWriter::with_capacity(1 << 16, created(&unfinished, mode)?);
        write(&mut out)?;
        out.flush()?;
        fs::rename(&unfinished, path)
    })();
    result.inspect_err(|error| {
        // Another's file is not ours to remove.
        if error.kind() != io::ErrorKind::AlreadyExists {
            let _ = fs::remove_file(&unfinished);
        }
    })
}

/// The end of the links that a path leads through, whether or not a file is there. A link of somebody else, who may have put it in a folder that all
/// can write to, is not followed, as with the kernel's `fs.protected_symlinks`: it is replaced.
fn target(path: &Path) -> PathBuf {
    /// The kernel follows no more.
    const LINKS: usize = 40;
    let own = rustix::process::geteuid().as_raw();
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let owner = |metadata: io::Result<fs::Metadata>| metadata.ok().map(|metadata| metadata.uid());
        let maker = owner(fs::symlink_metadata(&path));
        let Ok(next) = fs::read_link(&path) else { break };
        if !is_followed(maker, own, owner(fs::metadata(folder))) {
            break;
        }
        path = folder.join(next);
    }
    path
}

/// Whether a link is followed, by the users that own it, run us, and own its folder.
fn is_followed(link: Option<u32>, own: u32, folder: Option<u32>) -> bool {
    link.is_some() && (link == Some(own) || link == folder)
}

/// Whether a path has to be written to as it is: no ordinary file, such as a pipe or /dev/null, or one that names an open file.
fn is_in_place(path: &Path) -> bool {
    let is_open_file = ["/dev/fd", "/dev/stdout", "/dev/stderr", "/proc"].iter().any(|name| path.starts_with(name));
    fs::metadata(path).is_ok_and(|metadata| !metadata.is_dir() && (is_open_file || !metadata.is_file()))
}

/// The forms that are asked for, and where each goes: to no place that is named where `-o` names none.
///
/// `named` are the forms that have an option of their own. Where these may leave out their place, `-o` names it.
///
/// # Errors
/// Several would go to the same file, or the suffix of a file names no form.
pub(crate) fn places<'a, F: ValueEnum + Copy>(
    named: &[(F, &'a Option<PathBuf>)],
    format: Option<F>,
    file: Option<&'a Path>,
    (usual, may_leave_out): (F, bool),
) -> Result<Vec<(F, Option<&'a Path>)>, String> {
    let named = named.iter().filter_map(|(form, path)| Some((*form, Some(path.as_deref()?))));
    let mut all: Vec<(F, Option<&Path>)> = named.collect();
    let is_short = !all.is_empty();
    let left_out = all.iter_mut().filter(|_| may_leave_out).find(|(_, path)| path.is_some_and(is_stdout));
    match (format, file, left_out) {
        (None, Some(_), Some((_, path))) => *path = file,
        (None, None, _) if is_short => {}
        (Some(form), ..) => all.push((form, file)),
        (None, None, _) => all.push((usual, None)),
        (None, Some(file), _) => all.push((of_suffix(file, usual)?, Some(file))),
    }
    let place = |path: Option<&'a Path>| path.or(may_leave_out.then_some(Path::new(STDOUT)));
    for (index, (_, path)) in all.iter().enumerate() {
        let mut others = all.iter().skip(index + 1);
        if others.any(|(_, other)| place(*other) == place(*path)) {
            return Err(match place(*path).filter(|path| !is_stdout(path)) {
                None => "only one form can go to standard output; name a file for the others, such as --json=out.json"
                    .to_owned(),
                Some(path) => {
                    format!("only one form can go to {}; name another file for the others", path.display())
                }
            });
        }
    }
    Ok(all)
}

/// The form that the suffix of a file's name asks for.
fn of_suffix<F: ValueEnum>(file: &Path, usual: F) -> Result<F, String> {
    let Some(suffix) = file.extension() else { return Ok(usual) };
    F::from_str(&suffix.to_string_lossy(), true).map_err(|_| {
        let forms = F::value_variants().iter().filter_map(|form| Some(form.to_possible_value()?.get_name().to_owned()));
        let forms = forms.collect::<Vec<_>>().join(", ");
        format!("-o {}: the suffix is the name of no form ({forms}); --format names the form", file.display())
    })
}

/// # Errors
/// Nothing can be written there; the text says what stands in the way.
pub(crate) fn check(path: &Path) -> io::Result<()> {
    if is_stdout(path) || is_in_place(path) {
        return Ok(());
    }
    if path.is_dir() {
        return Err(named(&path.display().to_string(), io::ErrorKind::IsADirectory.into()));
    }
    let unfinished = beside(&target(path));
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
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("out", &link).unwrap();
        write_to(&link, |out| out.write_all(b"four")).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink(), "a link stays");
        assert_eq!(fs::read(&path).unwrap(), b"four");
        fs::remove_file(&path).unwrap();
        write_to(&link, |out| out.write_all(b"five")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"five", "a link to a file that is not there yet");
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

    #[test]
    fn is_followed_a_link_of_the_user_or_of_the_owner_of_its_folder() {
        const OWN: u32 = 1000;
        const OTHER: u32 = 1001;
        for (link, folder, is) in [(OWN, 0, true), (OWN, OTHER, true), (0, 0, true), (OTHER, 0, false), (0, OWN, false)]
        {
            assert_eq!(is_followed(Some(link), OWN, Some(folder)), is, "{link} in {folder}");
        }
        assert!(!is_followed(None, OWN, None));
    }

    #[test]
    fn write_to_shared_memory_replaces_and_to_an_open_file_adds() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("out");
        for text in ["one", "two"] {
            write_to(&path, |out| out.write_all(text.as_bytes())).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        let open = File::options().append(true).open(&path).unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&open);
        write_to(Path::new(&format!("/proc/self/fd/{number}")), |out| out.write_all(b"three")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "twothree");
    }
}
