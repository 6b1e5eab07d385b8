//! The CUDA runtimes that a program finds which is started here.

use std::ffi::c_int;

use libloading::Library;

/// Their names, the newest first.
const NAMES: [&str; 6] = [
    "libcudart.so.13",
    "libcudart.so.12",
    "libcudart.so.11.0",
    "libcudart.so.10.2",
    "libcudart.so.10.1",
    "libcudart.so.10.0",
];

/// Version and name of each that is there.
pub(super) fn found() -> impl Iterator<Item = (i32, &'static str)> {
    NAMES.into_iter().filter_map(|name| Some((version(name)?, name)))
}

fn version(name: &str) -> Option<i32> {
    // SAFETY: it is the runtime, or what the library path puts in its place; loading it starts nothing.
    let library = unsafe { Library::new(name) }.ok()?;
    // SAFETY: the type is that of the runtime's documentation.
    let get = unsafe { library.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"cudaRuntimeGetVersion\0") }.ok()?;
    let mut version = 0;
    // SAFETY: it writes a number.
    let code = unsafe { get(&mut version) };
    // What it registers to be called at the end may not be there any more.
    std::mem::forget(library);
    (code == 0).then_some(version)
}
