//! Functions that the program asks for by name: `dlsym`, `cuGetProcAddress`, `hipGetProcAddress` and its like.
//!
//! The static runtime, ctypes, JAX and many more reach the driver only through these. A look-up for which the
//! real one finds a function of the table returns a trampoline whose slot holds just
//! that function; everything else passes as it is, failures and status outputs included.
//!
//! `dlvsym` is not exported: it is how the real `dlsym` is found. Neither is `dlopen`, whose callers
//! would lose their RUNPATH, nor `cuGetExportTable`, which the driver guards.
//!
//! The C library's `dlsym` is found with `dlvsym`, and through it the next one, which is another's if a library behind us wraps it
//! too: that one serves the program. Left alone are look-ups by this library, by the driver's libraries, and by NVIDIA's debuggers
//! and profilers, which rely on their own functions; look-ups through `RTLD_NEXT` from behind us; and what the program itself
//! defines in front of us. Where linked references to a function are bound to our export, a look-up gets that export and not a
//! slot's trampoline: the pointer equals the program's own `&function`, as it would without us.
//!
//! The real `cuGetProcAddress` always runs first. Both forms, with four and with five parameters, are hooks of their own, and a
//! program that asks for the function through itself gets the form that it asked for. (Driver 580 hands out what it exports, for
//! all twelve forms that were tried.)

use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use super::exports::entrance;
use crate::api::{Function, Layer};
use crate::call::mode::{unseen, while_busy};
use crate::call::order;
use crate::real::loader::{self, Object, Wanted, next_dlsym};
use crate::real::slot;
use crate::record;

/// How `dlsym` goes on.
#[repr(C)]
struct Route {
    /// Where to jump to, or what to return.
    pointer: *mut c_void,
    /// Which of the two it is.
    jump: usize,
}

impl Route {
    /// Returns `pointer`, which may be NULL.
    fn returning(pointer: *mut c_void) -> Self {
        Self { pointer, jump: 0 }
    }

    /// Leaves the look-up to the next `dlsym`.
    fn real() -> Self {
        match next_dlsym() {
            Some(next) => Self { pointer: next as *mut c_void, jump: 1 },
            None => Self::returning(ptr::null_mut()),
        }
    }
}

/// `dlsym`. A name that is not in the table is left to the real function by a jump, with the caller's
/// return address on top of the stack: RTLD_NEXT and RTLD_DEFAULT depend on who calls.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code, reason = "a test program keeps its own dlsym"))]
#[unsafe(naked)]
unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    naked_asm!(include_str!(concat!(env!("MACHINE"), "/dlsym.s")), route = sym route)
}

/// Decides on a `dlsym`.
///
/// # Safety
/// `name` is what a caller of `dlsym` must pass, or NULL.
unsafe extern "C" fn route(handle: *mut c_void, name: *const c_char, caller: *const c_void) -> Route {
    if name.is_null() {
        return Route::real();
    }
    // SAFETY: dlsym takes C strings.
    let Some(function) = Function::named(unsafe { CStr::from_ptr(name) }.to_bytes()) else { return Route::real() };
    // Another's dlsym, which may do anything: not under the hold of our own work.
    let wanted = Wanted { name: function.c_name(), version: None };
    let asked_for = if depends_on_place(handle) { None } else { wanted.asked_for(handle) };
    // Work of our own leads here too, and a failure of it falls back to the real function.
    match while_busy(|| Some(look_up(handle, asked_for, wanted, caller))) {
        None | Some(Found::ByTheReal) => Route::real(),
        Some(Found::Nothing) => Route::returning(ptr::null_mut()),
        Some(Found::Function(found)) => {
            let hook = hook(found, || if is_left_alone(caller) { None } else { Some(function) });
            Route::returning(hook.unwrap_or(found))
        }
    }
}

/// The result of a look-up as if this library were not there.
enum Found {
    /// The real function has to find it.
    ByTheReal,
    /// Nothing, and `dlerror` says so.
    Nothing,
    /// A function of the table.
    Function(*mut c_void),
}

/// Whether the caller's place decides. A library behind us that wraps `dlsym` asks for `RTLD_DEFAULT` from its own place,
/// whoever calls.
fn depends_on_place(handle: *mut c_void) -> bool {
    handle == libc::RTLD_NEXT || handle == libc::RTLD_DEFAULT && !loader::another_wraps_dlsym()
}

/// `asked_for` is what the program would get for a handle of its own.
fn look_up(handle: *mut c_void, asked_for: Option<*mut c_void>, wanted: Wanted, caller: *const c_void) -> Found {
    let found = match handle {
        libc::RTLD_NEXT => return look_up_next(wanted, caller),
        // In front of us is what the program itself defines.
        libc::RTLD_DEFAULT if wanted.through(handle).is_some() => return Found::ByTheReal,
        libc::RTLD_DEFAULT if depends_on_place(handle) => wanted.next_global().or_else(|| wanted.in_scope_of(caller)),
        _ => asked_for,
    };
    match found {
        // A program that is not position-independent has an entry for our export of its own.
        Some(found) if loader::objects_between(found).is_some() => Found::ByTheReal,
        Some(found) => Found::Function(found),
        None => {
            if handle == libc::RTLD_DEFAULT {
                // The program may ask dlerror why; this failure is the one to tell of.
                wanted.next_global();
            }
            Found::Nothing
        }
    }
}

/// `RTLD_NEXT`: only the real function knows the caller's place. From behind us it cannot meet our exports, and what it
/// finds stays unseen, since whoever wraps a function was called through us. From before us it may meet our export,
/// which is as good as a look-up of ours, unless there is nothing behind it.
fn look_up_next(wanted: Wanted, caller: *const c_void) -> Found {
    if let Some(between) = loader::objects_between(caller)
        && wanted.next_global().is_none()
        && !between.iter().any(|object| object.defines(wanted.name))
    {
        // Last, so that dlerror tells of this failure.
        wanted.next_global();
        return Found::Nothing;
    }
    Found::ByTheReal
}

/// The pointer that a look-up returns in place of `real`, which is the function that `named` says. A look-up starts nothing: a process
/// that only looks functions up may fork, and its child begins as if it had not.
fn hook(real: *mut c_void, named: impl FnOnce() -> Option<Function>) -> Option<*mut c_void> {
    let (function, position) = while_busy(|| {
        let placed = named().and_then(|function| Some((function, place(function, real)?)));
        // The program may ask dlerror whether it succeeded.
        loader::forget_error();
        placed
    })?;
    if position.is_none() {
        unseen(|| record::log::no_slot(function));
    }
    Some(entrance(function).trampoline(position?))
}

/// The position of the slot that leads to `real` from now on, or none for want of one; none at all where that cannot be seen.
fn place(function: Function, real: *mut c_void) -> Option<Option<usize>> {
    let slots = entrance(function).slots;
    // A function that only the checker of order needs stays the driver's own, unless the program's references to it are bound to our export.
    if !order::is_wanted(function) {
        let position = slot::linked(function, slots, real)?;
        slot::hand_out(function, position);
        return Some(Some(position));
    }
    let held = slot::holding(slots, real);
    if !loader::is_function(real) || held.is_none() && !loader::pin(real) {
        return None;
    }
    // A program may compare the pointer with its own reference to the function, which is bound to our export.
    let position = held.or_else(|| slot::exported(function, slots, real)).or_else(|| slot::claim(slots, real));
    if let Some(position) = position {
        slot::hand_out(function, position);
        if held.is_none() {
            record::log::looked_up(function);
        }
    }
    Some(position)
}

/// Whether look-ups from there return real functions: the driver's own parts and the
/// tools that watch it rely on them.
fn is_left_alone(caller: *const c_void) -> bool {
    const PARTS: &[&[u8]] = &[b"libcuda.so", b"libnvidia-", b"libcupti", b"libcudadebugger", b"libsanitizer"];
    loader::is_own(caller)
        || Object::holding(caller).is_some_and(|object| PARTS.iter().any(|part| object.file_name().starts_with(part)))
}

/// Replaces what the real `cuGetProcAddress` handed out, if it is a function of the table.
///
/// # Safety
/// `symbol` and `pfn` are what the real function took, and it succeeded.
pub(super) unsafe fn replace(symbol: *const c_char, pfn: *mut *mut c_void, version: c_int, flags: u64) {
    if symbol.is_null() || pfn.is_null() {
        return;
    }
    // SAFETY: the real function has just read the one and written the other.
    let (base, found) = unsafe { (CStr::from_ptr(symbol).to_bytes(), *pfn) };
    if found.is_null() || loader::is_own(found) {
        return;
    }
    // Most names are none of ours, and cost no more than this.
    if Function::variants(base).next().is_none() {
        return;
    }
    if let Some(hook) = hook(found, || told_apart(base, found, version, flags)) {
        // SAFETY: as above.
        unsafe { *pfn = hook };
    }
}

/// The form of `base` that `found` is, if it is one of the table.
///
/// The name under which the driver exports the pointer says it best: there may be forms newer than the table, whose
/// arguments it does not know. Version and flags decide on a pointer that is not exported.
fn told_apart(base: &[u8], found: *mut c_void, version: c_int, flags: u64) -> Option<Function> {
    match loader::describe(found) {
        Some((_, Some(symbol))) if symbol.address == found => {
            let driver = Object::holding(found)?.handle()?;
            // Several names may stand for one address; dladdr tells only one of them.
            let is_it = |function: &Function| driver.symbol(function.c_name()) == Some(found);
            // From CUDA 12 on `cuGraphInstantiate` is another name for `cuGraphInstantiateWithFlags`, say.
            Function::variants(base).find(is_it).or_else(|| Function::of_the_driver().find(is_it))
        }
        _ => Function::variant(base, version, flags),
    }
}

/// Replaces what a real look-up of HIP handed out, if it is a function of the table. (HIP finds it by `dlsym`, which may have
/// returned our trampoline already.)
///
/// # Safety
/// `symbol` and `pfn` are what the real function took, and it succeeded.
pub(super) unsafe fn replace_hip(symbol: *const c_char, pfn: *mut *mut c_void) {
    if symbol.is_null() || pfn.is_null() {
        return;
    }
    // SAFETY: the real function has just read the one and written the other.
    let (name, found) = unsafe { (CStr::from_ptr(symbol).to_bytes(), *pfn) };
    if found.is_null() || loader::is_own(found) {
        return;
    }
    let Some(named) = Function::named(name).filter(|function| function.layer() == Layer::Hip) else { return };
    if let Some(hook) = hook(found, || Some(hip_form(named, found))) {
        // SAFETY: as above.
        unsafe { *pfn = hook };
    }
}

/// The function that was found under the name of `named`: it, or its form for the per-thread default stream.
fn hip_form(named: Function, found: *mut c_void) -> Function {
    let is_it = |function: &Function| {
        let library = Object::holding(found).and_then(|object| object.handle());
        library.is_some_and(|library| library.symbol(function.c_name()) == Some(found))
    };
    let forms = Function::ALL.iter().copied().filter(|form| form.layer() == Layer::Hip && form.base() == named.base());
    match forms.clone().count() {
        1 => named,
        _ => { forms }.find(is_it).unwrap_or(named),
    }
}
