//! The CUDA runtimes that a program finds which is started here.

use std::ffi::c_int;

use libloading::Library;

/// Their names, the newest first. Those that say all of the version have it here: they would start the driver to tell it.
const NAMES: [(&str, Option<c_int>); 10] = [
    ("libcudart.so.13", None),
    ("libcudart.so.12", None),
    ("libcudart.so.11.0", None),
    ("libcudart.so.10.2", Some(10020)),
    ("libcudart.so.10.1", Some(10010)),
    ("libcudart.so.10.0", Some(10000)),
    ("libcudart.so.9.2", Some(9020)),
    ("libcudart.so.9.1", Some(9010)),
    ("libcudart.so.9.0", Some(9000)),
    ("libcudart.so.8.0", Some(8000)),
];

/// Version and name of each that is there.
pub(super) fn found() -> impl Iterator<Item = (i32, &'static str)> {
    NAMES.into_iter().filter_map(|(name, known)| Some((version(name, known)?, name)))
}

fn version(name: &str, known: Option<c_int>) -> Option<c_int> {
    // SAFETY: it is the runtime, or what the library path puts in its place; loading it starts nothing.
    let library = unsafe { Library::new(name) }.ok()?;
    let version = known.or_else(|| ask(&library));
    // After an unload, functions that it registered to be called at the end would be gone.
    std::mem::forget(library);
    version
}

fn ask(library: &Library) -> Option<c_int> {
    // SAFETY: the type is that of the runtime's documentation.
    let get = unsafe { library.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"cudaRuntimeGetVersion\0") }.ok()?;
    let mut version = 0;
    // SAFETY: it writes a number.
    (unsafe { get(&mut version) } == 0).then_some(version)
}
