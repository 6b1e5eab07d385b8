//! The shim: where it is, and whether it is this command's.

use std::error::Error;
use std::ffi::{CStr, c_char};
use std::path::{Path, PathBuf};

use libloading::Library;

/// The dynamic linker's own words, which name the file or function that is missing.
pub(crate) fn linkers_words(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

/// Refuses a library that the dynamic linker would only warn of, or that is not the shim of this version. That which programs are
/// linked with has the functions, and nothing in them.
///
/// # Errors
/// A sentence for the user.
pub(crate) fn check(path: &Path) -> Result<(), String> {
    // SAFETY: the shim does nothing when it is loaded.
    let library = unsafe { Library::new(path.as_os_str()) }.map_err(|error| linkers_words(&error))?;
    // SAFETY: the type is that of include/p2pshim.h.
    let version = unsafe { library.get::<unsafe extern "C" fn() -> *const c_char>("p2pshim_version") };
    // SAFETY: the function takes nothing.
    let version = version.map_or(std::ptr::null(), |version| unsafe { version() });
    // SAFETY: the interface promises a C string.
    match (!version.is_null()).then(|| unsafe { CStr::from_ptr(version) }.to_bytes()) {
        Some(version) if version == env!("CARGO_PKG_VERSION").as_bytes() => Ok(()),
        _ => Err(format!(
            "{}: the library is not the shim, or its version differs from that of this command",
            path.display()
        )),
    }
}

/// Where the shim may be, seen from the folder of this program: installed, and in the build tree, where it has the name that
/// cargo gives. Installed, that name is the library that programs are linked with.
const PLACES: [&str; 4] =
    ["../lib/libp2pshim.so.0", crate::machine::DEBIANS_PLACE, "../lib64/libp2pshim.so.0", "libp2pshim.so"];

/// Where the shim is, from the root on: at `path`, or the one that was built or installed with this program.
///
/// # Errors
/// A sentence for the user.
pub(crate) fn find(path: Option<&Path>) -> Result<PathBuf, String> {
    let path = match path {
        Some(path) => path.to_owned(),
        None => with_this_program()?,
    };
    // A bare file name would be searched for on the library path. It is as good as before if it cannot be made longer.
    Ok(std::path::absolute(&path).unwrap_or(path))
}

fn with_this_program() -> Result<PathBuf, String> {
    let program = crate::processes::own_path().unwrap_or_default();
    let folder = program.parent().unwrap_or(Path::new("."));
    // Without `..`, so that LD_PRELOAD stays readable.
    let beside = |place: &str| match place.strip_prefix("../") {
        Some(rest) => folder.parent().unwrap_or(folder).join(rest),
        None => folder.join(place),
    };
    let places: Vec<_> = PLACES.into_iter().map(beside).collect();
    places.iter().find(|place| place.exists()).cloned().ok_or_else(|| {
        let places: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
        format!("libp2pshim.so not found; looked for {}. Pass its path with --library", places.join(", "))
    })
}
