//! Callbacks of the program, which run after each call.

use std::ffi::{c_char, c_int, c_void};
use std::mem::size_of;
use std::ptr::{null, null_mut};
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};

use parking_lot::Mutex;

use super::pair::{p2pshim_path_t, reason};
use super::process::p2pshim_layer_t;
use super::status::p2pshim_status_t::{
    self, P2PSHIM_FULL, P2PSHIM_INACTIVE, P2PSHIM_INVALID_ARGUMENT, P2PSHIM_NOT_FOUND, P2PSHIM_OK,
};
use super::{guarded, text};
use crate::api::codes;
use crate::call::callbacks;
use crate::call::mode::{self, Activity};
use crate::model::Rule;
use crate::model::event::{CallEvent, FOUND};
use crate::os;

/// A call that has returned. The struct is valid until the callback returns, its strings as long as the library is loaded.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct p2pshim_event_t {
    /// sizeof(p2pshim_event_t) in the library. Fields beyond it do not exist.
    pub size: usize,
    /// The function, such as "cudaMemcpyPeerAsync".
    pub function: *const c_char,
    /// The kind of library that the function belongs to.
    pub layer: p2pshim_layer_t,
    /// The thread that called, as the kernel numbers it.
    pub thread: c_int,
    /// How many intercepted calls enclose it: 1 for the driver's inside one of the runtime.
    pub depth: c_int,
    /// When the real function was called, in nanoseconds of CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// How long it took the host, in nanoseconds.
    pub duration_ns: u64,
    /// The code that the call returned to the program: a cudaError_t or a CUresult. Until CUDA 10.0 the runtime had numbers of its own.
    pub result: c_int,
    /// The name of that code; empty if it has none.
    pub result_name: *const c_char,
    /// The device that bytes were copied from, or that accesses; -1 if that is not known, as of memory of another process, or there is none.
    pub src_device: c_int,
    /// The device that they were copied to, or whose memory is accessed; -1 if that is not known, as of memory of another process, or there is none.
    pub dst_device: c_int,
    /// How many bytes were copied, of a batch or a graph between devices; 0 for other functions.
    pub bytes: u64,
    /// The address of the source; 0 for other functions.
    pub src: u64,
    /// The address of the destination; 0 for other functions.
    pub dst: u64,
    /// The handle of the stream; 0 for the default stream, and for functions without one.
    pub stream: u64,
    /// The path of a copy that succeeded; P2PSHIM_PATH_NONE for other calls, and for a batch or a graph that copies between several
    /// pairs.
    pub path: p2pshim_path_t,
    /// Why the copy took that path, such as "no hardware path"; empty if there is nothing to say.
    pub reason: *const c_char,
    /// The ids of the rules with a finding about the call, such as "P2P-enable-twice". Findings about a driver call inside a
    /// runtime call are reported with the runtime call.
    pub findings: *const *const c_char,
    /// How many there are, at most 4.
    pub finding_count: usize,
}

/// A callback: gets the event, and the pointer that it was added with. It must return: it may not longjmp, throw, or end its
/// thread.
pub type p2pshim_callback_t = Option<unsafe extern "C" fn(event: *const p2pshim_event_t, data: *mut c_void)>;

/// It is never freed: a thread may be about to call it. It may be anywhere, so it must be one that all threads can call.
struct Callback {
    id: u64,
    call: unsafe extern "C" fn(*const p2pshim_event_t, *mut c_void),
    data: *mut c_void,
}

/// How many there can be at a time.
const MOST: usize = 16;
static CALLBACKS: [AtomicPtr<Callback>; MOST] = [const { AtomicPtr::new(null_mut()) }; MOST];
/// All that there ever were, by address. Held by who adds and removes.
static EVER: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// Calls all callbacks. `found` are the numbers plus one of the rules with a finding about the call.
fn call_back(call: &CallEvent, found: [u8; FOUND]) {
    let mut findings = [null(); FOUND];
    let mut finding_count = 0;
    for (place, number) in findings.iter_mut().zip(found) {
        if let Some(rule) = Rule::ALL.iter().find(|&&rule| (rule as u8).saturating_add(1) == number) {
            *place = text(rule.text().id);
            finding_count += 1;
        }
    }
    let layer = call.function.layer();
    let [src_device, dst_device] = call.devices;
    let [src, dst] = call.ends;
    let event = p2pshim_event_t {
        size: size_of::<p2pshim_event_t>(),
        function: call.function.c_name().as_ptr(),
        layer: layer.into(),
        thread: call.thread,
        depth: c_int::try_from(call.depth).unwrap_or(c_int::MAX),
        start_ns: call.start,
        duration_ns: call.took,
        result: call.given.0,
        result_name: text(codes::c_name(layer, call.ret).unwrap_or("\0")),
        src_device,
        dst_device,
        bytes: call.bytes,
        src,
        dst,
        stream: call.stream,
        path: call.path.into(),
        reason: reason(call.path),
        findings: findings.as_ptr(),
        finding_count,
    };
    for slot in &CALLBACKS {
        // SAFETY: a callback is never freed.
        if let Some(callback) = unsafe { slot.load(Acquire).as_ref() } {
            // The program may be about to read what its call has left there.
            // SAFETY: who added it promised that any thread may call it, and that it returns.
            os::keep_errno(|| unsafe { (callback.call)(&event, callback.data) });
        }
    }
}

/// Adds a callback. It is called for each call of a traced function (docs/INTERCEPTED.md), after the call has returned.
///
/// The thread that made the call runs the callback when the outermost call has returned: first for the calls inside it, in the
/// order in which they ended, then for the outermost call itself. The shim holds no lock meanwhile. The callback may call
/// anything, including CUDA and this interface; its own calls run no callbacks. It should return soon, because the program's
/// call waits for it. The callback must return: it may not longjmp, throw, or end its thread (pthread_exit, or a cancellation
/// that it does not hold back). While there is a callback, a call costs about two microseconds more. For a call that was in
/// progress when the callback was added, it may not be called.
///
/// A callback may also be added before the first intercepted call. At most 16 can exist at a time.
///
/// Thread-safety: any thread, also in a callback; not in signal handlers.
///
/// @param callback The callback. Any thread may call it, until it is removed and as p2pshim_callback_remove() says.
/// @param data A pointer that it gets; may be NULL.
/// @param id Where to write the id for p2pshim_callback_remove(). Ids are not reused.
/// @return P2PSHIM_OK; P2PSHIM_FULL; P2PSHIM_INACTIVE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn p2pshim_callback_add(
    callback: p2pshim_callback_t,
    data: *mut c_void,
    id: *mut u64,
) -> p2pshim_status_t {
    guarded(|| {
        let Some(call) = callback.filter(|_| !id.is_null()) else { return P2PSHIM_INVALID_ARGUMENT };
        if matches!(mode::activity(), Activity::Off | Activity::Child | Activity::Exhausted) {
            return P2PSHIM_INACTIVE;
        }
        {
            let mut ever = EVER.lock();
            let Some(free) = CALLBACKS.iter().find(|slot| slot.load(Acquire).is_null()) else { return P2PSHIM_FULL };
            let number = ever.len() as u64 + 1;
            // First: the callback may run at once.
            // SAFETY: the caller's promise.
            unsafe { id.write_unaligned(number) };
            let added = Box::into_raw(Box::new(Callback { id: number, call, data }));
            ever.push(added as usize);
            free.store(added, Release);
            callbacks::set_present(true, call_back);
        }
        P2PSHIM_OK
    })
}

/// Removes a callback.
///
/// It does not wait: a thread that is about to run the callback may still do so after this function has returned, for a call
/// that returned from the real function earlier. All that the callback uses must therefore stay valid until every thread that calls
/// CUDA has begun another call or has ended. A callback that removes itself is not called again by its own thread.
///
/// Thread-safety: any thread, also in a callback; not in signal handlers.
///
/// @param id The id that p2pshim_callback_add() wrote.
/// @return P2PSHIM_OK; P2PSHIM_NOT_FOUND if there is no such callback, or it was removed before.
#[unsafe(no_mangle)]
pub extern "C" fn p2pshim_callback_remove(id: u64) -> p2pshim_status_t {
    guarded(|| {
        if mode::activity() == Activity::Child {
            return P2PSHIM_NOT_FOUND;
        }
        {
            let _held = EVER.lock();
            // SAFETY: a callback is never freed.
            let is_it =
                |slot: &&AtomicPtr<Callback>| unsafe { slot.load(Acquire).as_ref() }.is_some_and(|of| of.id == id);
            let Some(slot) = CALLBACKS.iter().find(is_it) else { return P2PSHIM_NOT_FOUND };
            slot.store(null_mut(), Release);
            let are_there = CALLBACKS.iter().any(|slot| !slot.load(Acquire).is_null());
            callbacks::set_present(are_there, call_back);
        }
        P2PSHIM_OK
    })
}
