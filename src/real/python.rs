//! Which line the Python program of the calling thread is at.
//!
//! One function of CPython is called, `PyGILState_GetThisThreadState`, which reads a variable of the thread. The memory that its state
//! leads to is read by the system ([`Memory`]). The interpreter's lock is not needed: the thread is in a call of ours. `_Py_DumpTraceback`, which
//! some versions export, would need a descriptor, and follows pointers into memory that is gone.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};

use p2pshim_host::python::{Line, Memory as _, Python, Thread};

use super::loader::{self, Handle, Object, Wanted};
use crate::os::Memory;

/// The process's CPython.
struct Found {
    /// The calling thread's state; null for a thread that has none.
    thread_state: unsafe extern "C" fn() -> *const c_void,
    python: Python,
}

static FOUND: AtomicPtr<Found> = AtomicPtr::new(ptr::null_mut());

/// Looks for a CPython whose memory can be read, in the objects that are loaded, and says whether there is one.
pub(crate) fn search() -> bool {
    if !FOUND.load(Acquire).is_null() {
        return true;
    }
    let found = find();
    if found.is_none() {
        loader::forget_error();
    }
    found.is_some_and(|python| {
        // For good. Of two threads that search at once one leaves its own unused.
        FOUND.store(Box::into_raw(Box::new(python)), Release);
        true
    })
}

/// The calling thread in the interpreter, after a search.
pub(crate) fn thread() -> Option<(&'static Python, Thread)> {
    // SAFETY: what was stored there stays.
    let found = unsafe { FOUND.load(Acquire).as_ref() }?;
    // SAFETY: the function takes nothing, may be called by any thread at any time, and its library is pinned.
    let state = unsafe { (found.thread_state)() } as usize;
    // SAFETY: it touches nothing.
    let id = unsafe { libc::pthread_self() } as usize;
    (state != 0).then_some((&found.python, Thread { state, id }))
}

/// The lines that the calling thread is at.
pub(crate) fn lines((python, thread): (&Python, &Thread)) -> Vec<Line> {
    python.lines(thread, &Memory::new())
}

fn find() -> Option<Found> {
    // In the program or what it is linked with; or in a library that something has loaded for itself.
    let is_python = |object: &Object| object.file_name().starts_with(b"libpython");
    let libraries: Vec<Handle> =
        loader::loaded_objects().iter().filter(|object| is_python(object)).filter_map(Object::handle).collect();
    let find = |name: &'static CStr| {
        let everywhere = Wanted { name, version: None }.through(libc::RTLD_DEFAULT);
        everywhere.or_else(|| libraries.iter().find_map(|library| library.symbol(name)))
    };
    let thread_state = find(c"PyGILState_GetThisThreadState")?;
    let of_it = |name| Some(find(name).filter(|&found| loader::are_together(found, thread_state))? as usize);
    let memory = Memory::new();
    // `Py_Version` is an `unsigned long`.
    let version = memory.word(of_it(c"Py_Version")?)?;
    let types = [of_it(c"PyCode_Type")?, of_it(c"PyUnicode_Type")?, of_it(c"PyBytes_Type")?];
    let python = Python::new(version, of_it(c"_PyRuntime")?, types, &memory)?;
    if !loader::pin(thread_state) {
        return None;
    }
    // SAFETY: CPython's function of that name, which takes nothing and returns a pointer, in a library that stays.
    let thread_state =
        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *const c_void>(thread_state) };
    Some(Found { thread_state, python })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_here_finds_no_python() {
        assert!(!search() && thread().is_none());
    }
}
