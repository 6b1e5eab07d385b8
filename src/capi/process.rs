//! The shim in this process: whether it is active, what it has counted, and which libraries it reaches.

use std::ffi::{c_char, c_int, c_uint};
use std::mem::size_of;

use super::status::p2pshim_status_t::{
    self, P2PSHIM_INVALID_ARGUMENT, P2PSHIM_OK, P2PSHIM_OUT_OF_RANGE, P2PSHIM_UNKNOWN_NAME,
};
use super::{give, given, guarded, kept, tell, text};
use crate::api::{Function, Layer};
use crate::call::control;
use crate::call::mode::{self, Activity};
use crate::model::counters;
use crate::os;
use crate::policy::VerifyBackend;
use crate::real::driver::{self, RealDriver};

const STATE_SIZE_0_1: usize = 40;
const LIBRARY_SIZE_0_1: usize = 32;

/// The shim may intercept calls, or only forward them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum p2pshim_activity_t {
    /// Nothing yet: no function was called. Options can be set.
    P2PSHIM_ACTIVITY_NOT_STARTED = 0,
    /// It intercepts the calls that reach it; p2pshim_library_get() says which do.
    P2PSHIM_ACTIVITY_ON = 1,
    /// It only forwards calls: P2PSHIM=off.
    P2PSHIM_ACTIVITY_OFF = 2,
    /// It only forwards calls: the process is a forked child.
    P2PSHIM_ACTIVITY_FORKED = 3,
    /// It forwards and counts calls, and does nothing else: it has run out of memory.
    P2PSHIM_ACTIVITY_EXHAUSTED = 4,
}

/// The kind of a library. 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum p2pshim_layer_t {
    /// CUDA's runtime, such as libcudart.so.12.
    P2PSHIM_LAYER_RUNTIME = 1,
    /// CUDA's driver: libcuda.so.1.
    P2PSHIM_LAYER_DRIVER = 2,
    /// AMD's runtime, such as libamdhip64.so.6.
    P2PSHIM_LAYER_HIP = 3,
    /// NVIDIA's library for management: libnvidia-ml.so.1.
    P2PSHIM_LAYER_NVML = 4,
}

impl From<Layer> for p2pshim_layer_t {
    fn from(layer: Layer) -> Self {
        match layer {
            Layer::Runtime => Self::P2PSHIM_LAYER_RUNTIME,
            Layer::Driver => Self::P2PSHIM_LAYER_DRIVER,
            Layer::Hip => Self::P2PSHIM_LAYER_HIP,
            Layer::Nvml => Self::P2PSHIM_LAYER_NVML,
        }
    }
}

/// The shim in this process.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct p2pshim_state_t {
    /// Set by the caller: sizeof(p2pshim_state_t).
    pub size: usize,
    /// Whether it intercepts calls.
    pub activity: p2pshim_activity_t,
    /// Whether calls are being recorded: 1 or 0.
    pub recording: c_int,
    /// The version of the driver that is loaded, 1000 times the major plus 10 times the minor; 0 for none.
    pub driver_version: c_int,
    /// How many devices the process sees; 0 if there is no driver, or it is not initialised yet.
    pub device_count: c_int,
    /// How many calls of traced functions (docs/INTERCEPTED.md) were intercepted.
    pub calls: u64,
    /// How many of them returned an error.
    pub failures: u64,
}

/// Programs that are linked with the library call the shim: it was preloaded, or linked first.
pub const P2PSHIM_ROUTE_LINKED: c_uint = 1;
/// Functions of the library that were looked up by name (dlsym, cuGetProcAddress) were returned as the shim's.
pub const P2PSHIM_ROUTE_LOOKED_UP: c_uint = 2;
/// Linked calls have gone through the shim to the library.
pub const P2PSHIM_ROUTE_CALLED: c_uint = 4;

/// A library that has intercepted functions: a runtime or a driver.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct p2pshim_library_t {
    /// Set by the caller: sizeof(p2pshim_library_t).
    pub size: usize,
    /// Its file.
    pub path: *const c_char,
    /// Its kind, which is not P2PSHIM_LAYER_NVML.
    pub layer: p2pshim_layer_t,
    /// By which routes its calls reach the shim: P2PSHIM_ROUTE_LINKED and the others, added up.
    pub routes: c_uint,
    /// Which of its calls bypass the shim, and what to do about it; empty if no such calls are known.
    pub bypass: *const c_char,
}

/// Returns whether the shim is active, and what it has intercepted.
///
/// Thread-safety: any thread, also in a callback; not in signal handlers. It asks the loaded driver for its version and its
/// devices, which does not block.
///
/// @param state Where to write; its size is set.
/// @return P2PSHIM_OK.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn p2pshim_state_get(state: *mut p2pshim_state_t) -> p2pshim_status_t {
    guarded(|| {
        let sums = Function::ALL.iter().map(|&function| counters::calls(function));
        let [calls, failures] =
            sums.fold([0; 2], |[calls, failures], [more, failed]| [calls + more, failures + failed]);
        let (driver_version, device_count) =
            control::quietly(|| (driver::version().unwrap_or(0), RealDriver.device_count()));
        let described = p2pshim_state_t {
            size: size_of::<p2pshim_state_t>(),
            activity: match mode::activity() {
                Activity::Unstarted => p2pshim_activity_t::P2PSHIM_ACTIVITY_NOT_STARTED,
                Activity::On => p2pshim_activity_t::P2PSHIM_ACTIVITY_ON,
                Activity::Off => p2pshim_activity_t::P2PSHIM_ACTIVITY_OFF,
                Activity::Child => p2pshim_activity_t::P2PSHIM_ACTIVITY_FORKED,
                Activity::Exhausted => p2pshim_activity_t::P2PSHIM_ACTIVITY_EXHAUSTED,
            },
            recording: control::is_recording().into(),
            driver_version,
            device_count,
            calls,
            failures,
        };
        // SAFETY: the caller's promise.
        unsafe { give(&described, state, STATE_SIZE_0_1) }
    })
}

/// Returns how often an intercepted function was called so far in this process. Only calls of traced functions
/// (docs/INTERCEPTED.md) are counted.
///
/// Thread-safety: any thread, also in a callback; not in signal handlers.
///
/// @param name The exported name, such as "cudaMemcpyPeer".
/// @param calls Where to write the number of calls; may be NULL.
/// @param failures Where to write how many of these calls returned an error; may be NULL.
/// @return P2PSHIM_OK; P2PSHIM_UNKNOWN_NAME if the shim does not intercept such a function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn p2pshim_calls_get(
    name: *const c_char,
    calls: *mut u64,
    failures: *mut u64,
) -> p2pshim_status_t {
    guarded(|| {
        // SAFETY: the caller's promise.
        let Some(name) = (unsafe { given(name) }) else { return P2PSHIM_INVALID_ARGUMENT };
        let Some(function) = Function::named(name.to_bytes()) else { return P2PSHIM_UNKNOWN_NAME };
        let [called, failed] = counters::calls(function);
        // SAFETY: the caller's promise.
        unsafe {
            tell(called, calls);
            tell(failed, failures);
        }
        P2PSHIM_OK
    })
}

/// How many runtimes and drivers are loaded now. A statically linked runtime does not count: its calls are intercepted where
/// they reach the driver.
///
/// Thread-safety: any thread; not in signal handlers, nor in constructors of libraries: it asks the dynamic linker.
///
/// @return The number of indexes that p2pshim_library_get() takes, until the program loads or unloads one.
#[unsafe(no_mangle)]
pub extern "C" fn p2pshim_library_count() -> usize {
    os::undisturbed(|| control::libraries().len())
}

/// Describes a loaded runtime or driver: by which routes its calls reach the shim, and which calls bypass it.
///
/// Thread-safety: any thread; not in signal handlers, nor in constructors of libraries: it asks the dynamic linker.
///
/// @param index Which one: below p2pshim_library_count(), in the order of layers and then of loading.
/// @param library Where to write; its size is set.
/// @return P2PSHIM_OK; P2PSHIM_OUT_OF_RANGE if there is no such library, or no longer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn p2pshim_library_get(index: usize, library: *mut p2pshim_library_t) -> p2pshim_status_t {
    guarded(|| {
        let mut libraries = control::libraries();
        if index >= libraries.len() {
            return P2PSHIM_OUT_OF_RANGE;
        }
        let found = libraries.swap_remove(index);
        let bits = [
            (found.is_shadowed, P2PSHIM_ROUTE_LINKED),
            (found.is_looked_up, P2PSHIM_ROUTE_LOOKED_UP),
            (found.is_called, P2PSHIM_ROUTE_CALLED),
        ];
        let described = p2pshim_library_t {
            size: size_of::<p2pshim_library_t>(),
            layer: found.layer.into(),
            routes: bits.into_iter().filter(|&(is_one, _)| is_one).map(|(_, bit)| bit).sum(),
            bypass: text(bypass(&found)),
            path: kept(found.object.path),
        };
        // SAFETY: the caller's promise.
        unsafe { give(&described, library, LIBRARY_SIZE_0_1) }
    })
}

/// Which of a library's calls bypass the shim.
fn bypass(library: &control::Definer) -> &'static str {
    match mode::activity() {
        Activity::Off => return "all calls: P2PSHIM=off\0",
        Activity::Child => {
            return "all calls: the process is a forked child; it is intercepted again after exec\0";
        }
        Activity::Exhausted => return "all calls: p2pshim has run out of memory and only counts them\0",
        Activity::Unstarted | Activity::On => {}
    }
    if library.is_shadowed {
        return "\0";
    }
    "calls of everything that is linked with it or has looked its functions up: the shim does not come first. Start the \
     program with LD_PRELOAD, or link the shim before it\0"
}
