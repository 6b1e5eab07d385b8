//! Functions by name, as `hipGetProcAddress` finds them: this library asks the dynamic linker for its own exports.

use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;

use crate::abi::Opaque;

/// The export of this library with that name; None if there is none.
pub(crate) fn export(name: &CStr) -> Option<Opaque> {
    let library = own_library()?;
    // SAFETY: the handle is that of a loaded library, and the name is terminated.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!found.is_null()).then_some(Opaque(found))
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
