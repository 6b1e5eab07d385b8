//! Functions by name, as `hipGetProcAddress` finds them: this library asks the dynamic linker for its own exports. Later look-ups
//! (`hipGetDriverEntryPoint`, the `_spt` forms) find them past a `dlsym` that others wrap, as a table of the library's own would.

use std::ffi::{CStr, CString, c_void};
use std::mem::MaybeUninit;

use crate::abi::Opaque;

/// The export of this library with that name; None if there is none.
pub(crate) fn export(name: &CStr) -> Option<Opaque> {
    let library = own_library()?;
    // SAFETY: the handle is that of a loaded library, and the name is terminated.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!found.is_null()).then_some(Opaque(found))
}

/// Finds a function past `dlsym`; if `per_thread`, its form for the per-thread default stream, where there is one.
pub(crate) fn own(name: &CStr, per_thread: bool) -> Option<Opaque> {
    /// The nodes of exports.map that have functions.
    const NODES: [&CStr; 8] =
        [c"hip_4.2", c"hip_4.3", c"hip_5.1", c"hip_5.2", c"hip_5.3", c"hip_6.1", c"hip_7.1", c"hip_7.2"];
    let library = own_library()?;
    let form = CString::new([name.to_bytes(), b"_spt"].concat()).ok().filter(|_| per_thread);
    let forms = form.as_deref().into_iter().chain([name]);
    // SAFETY: the handle is that of a loaded library, and the names are terminated.
    let find = |form: &CStr, node: &CStr| unsafe { libc::dlvsym(library, form.as_ptr(), node.as_ptr()) };
    let mut found = forms.flat_map(|form| NODES.map(|node| find(form, node)));
    found.find(|found| !found.is_null()).map(Opaque)
}

/// A handle of this library, which is never unloaded.
fn own_library() -> Option<*mut c_void> {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: the address is one of this library's code; `info` is written before it is read, if the answer is not 0.
    let info = unsafe {
        if libc::dladdr(own_library as *const c_void, info.as_mut_ptr()) == 0 {
            return None;
        }
        info.assume_init()
    };
    // SAFETY: dladdr has set the name to that of a loaded file, a terminated string; RTLD_NOLOAD runs no code of others.
    let library = unsafe { libc::dlopen(info.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    (!library.is_null()).then_some(library)
}
