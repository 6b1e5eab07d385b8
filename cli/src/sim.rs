//! Simulated GPUs for a program, or for the doctor: the libraries that the dynamic linker is to find first.

use std::error::Error;
use std::ffi::OsString;
use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};

/// The most devices that can be simulated.
pub(crate) const MOST: u64 = 64;

/// Where the libraries are, seen from the folder of this program: in the build tree, and installed.
const PLACES: [&str; 2] = ["../sim/lib", "../lib/p2pshim/sim"];

/// The simulated libraries are not there.
#[derive(Debug)]
pub(crate) struct NotThere(Vec<PathBuf>);

impl Error for NotThere {}

impl Display for NotThere {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let places: Vec<_> = self.0.iter().map(|place| place.display().to_string()).collect();
        write!(
            out,
            "the simulated GPUs are not there: no libcuda.so.1 in {}. `make sim` builds them where the sources are; without \
             --sim the real GPUs are used",
            places.join(" or ")
        )
    }
}

/// The variables of a program that is to see so many simulated devices.
///
/// # Errors
/// The libraries are not there.
pub(crate) fn environment(devices: u8) -> Result<Vec<(OsString, OsString)>, NotThere> {
    let program = crate::processes::own_path().unwrap_or_default();
    let folder = folder(program.parent().unwrap_or(Path::new(".")))?;
    let path = path_with(&folder, std::env::var_os("LD_LIBRARY_PATH"));
    Ok(vec![("LD_LIBRARY_PATH".into(), path), ("P2PSIM_DEVICES".into(), devices.to_string().into())])
}

fn folder(program_folder: &Path) -> Result<PathBuf, NotThere> {
    let places: Vec<PathBuf> = PLACES.iter().map(|place| program_folder.join(place)).collect();
    let found = places.iter().find(|place| place.join("libcuda.so.1").exists()).cloned();
    // Without `..`, so that it stays readable where the program shows it.
    found.map(|place| place.canonicalize().unwrap_or(place)).ok_or(NotThere(places))
}

/// A library path with a folder before all others. An empty entry would be the folder where the program stands.
fn path_with(folder: &Path, before: Option<OsString>) -> OsString {
    let mut path = folder.as_os_str().to_owned();
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        path.push(":");
        path.push(before);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn folder_build_tree_comes_first_and_absence_names_both() {
        let root = tempfile::tempdir().unwrap();
        let [program, installed, built] = ["bin", "lib/p2pshim/sim", "sim/lib"].map(|folder| root.path().join(folder));
        fs::create_dir_all(&program).unwrap();
        fs::create_dir_all(&installed).unwrap();
        let said = folder(&program).unwrap_err().to_string();
        assert!(said.contains("../sim/lib or ") && said.contains("../lib/p2pshim/sim. `make sim`"), "{said}");
        fs::write(installed.join("libcuda.so.1"), "").unwrap();
        assert_eq!(folder(&program).unwrap(), installed.canonicalize().unwrap());
        fs::create_dir_all(&built).unwrap();
        fs::write(built.join("libcuda.so.1"), "").unwrap();
        assert_eq!(folder(&program).unwrap(), built.canonicalize().unwrap());
    }

    #[test]
    fn path_with_keeps_what_was_there_and_adds_no_empty_entry() {
        let sim = Path::new("/sim");
        assert_eq!(path_with(sim, None), "/sim");
        assert_eq!(path_with(sim, Some("".into())), "/sim");
        assert_eq!(path_with(sim, Some("/a:/b".into())), "/sim:/a:/b");
    }
}
