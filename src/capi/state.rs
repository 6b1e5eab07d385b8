//! Is the shim active, what does it reach, and what is known of two devices?

use std::ffi::{c_char, c_int, c_uint};
use std::mem::size_of;

use super::event::path_texts;
use super::p2pshim_status_t::{
    self, P2PSHIM_INACTIVE, P2PSHIM_NOT_READY, P2PSHIM_OK, P2PSHIM_OUT_OF_RANGE, P2PSHIM_STAGED,
};
use super::{give, kept, text};
use crate::api::Function;
use crate::call::control::{self, Failure};
use crate::call::mode::{self, Activity};
use crate::model::counters;
use crate::model::{Path, Why};
use crate::os;
use crate::policy::access::Verification;
use crate::policy::{ACCESS, Driver, HIP};
use crate::real::driver::{self, RealDriver};

const STATE_SIZE_0_1: usize = 40;
const LIBRARY_SIZE_0_1: usize = 40;
const PAIR_STATE_SIZE_0_1: usize = 48;

/// What the shim does with calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum p2pshim_activity_t {
    /// Nothing yet: no function was called or looked up. Options can be set.
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

/// The shim in this process.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct p2pshim_state_t {
    /// Set by the caller: sizeof(p2pshim_state_t).
    pub size: usize,
    /// What it does with calls.
    pub activity: p2pshim_activity_t,
    /// Whether calls are being recorded: 1 or 0.
    pub recording: c_int,
    /// The version of the driver that is loaded, 1000 times the major plus 10 times the minor; 0 for none.
    pub driver_version: c_int,
    /// How many devices the process sees; 0 if there is no driver, or it is not initialised yet.
    pub device_count: c_int,
    /// How many calls of functions whose kind is "traced" were intercepted.
    pub calls: u64,
    /// How many of them returned an error.
    pub failures: u64,
}

/// What is linked with the library calls the shim: it was preloaded, or linked first.
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
    /// "runtime", "driver" or "hip".
    pub layer: *const c_char,
    /// By which routes its calls reach the shim: P2PSHIM_ROUTE_LINKED and the others, added up.
    pub routes: c_uint,
    /// Which of its calls bypass the shim, and what to do about it; empty if no such calls are known.
    pub bypass: *const c_char,
}

/// What verification has shown about the path between two devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum p2pshim_proof_t {
    /// Not verified yet: a pair is verified once it has copied enough.
    P2PSHIM_PROOF_NONE = 0,
    /// Verified: data arrives in both directions.
    P2PSHIM_PROOF_PASSED = 1,
    /// The driver says that there is no path.
    P2PSHIM_PROOF_NO_PATH = 2,
    /// Data is lost, so the pair is blocked; or a copy did not end in time, so it is blocked until it is verified again.
    P2PSHIM_PROOF_FAILED = 3,
    /// Data arrives, but direct copies are slower than copies through the host.
    P2PSHIM_PROOF_SLOWER = 4,
}

/// The program has enabled access, between any contexts of the two devices.
pub const P2PSHIM_BY_PROGRAM: c_uint = 1;
/// The shim has enabled access.
pub const P2PSHIM_BY_SHIM: c_uint = 2;

/// A device's access to the memory of another.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct p2pshim_pair_state_t {
    /// Set by the caller: sizeof(p2pshim_pair_state_t).
    pub size: usize,
    /// Whether the hardware allows it, as the driver says: 1, 0, or -1 if it does not say.
    pub possible: c_int,
    /// Who has enabled it: P2PSHIM_BY_PROGRAM, P2PSHIM_BY_SHIM, both added up, or 0.
    pub enabled_by: c_uint,
    /// Whether P2PSHIM_ACCESS or P2PSHIM_DENY hides it from the program: 1 or 0.
    pub denied: c_int,
    /// What is known of the path between the two.
    pub proof: p2pshim_proof_t,
    /// The same for memory of pools.
    pub pool_proof: p2pshim_proof_t,
    /// The path of copies between them, as of now: "direct", "staged" or "same-device"; with HIP also "mapped on first use".
    /// It applies to memory of cudaMalloc or cuMemAlloc; pools and mapped memory have access rights of their own.
    pub path: *const c_char,
    /// Why copies take that path, such as "blocked: lost data or hung in verification"; empty if there is nothing to say.
    pub reason: *const c_char,
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
    let sums = Function::ALL.iter().map(|&function| counters::calls(function));
    let [calls, failures] = sums.fold([0; 2], |[calls, failures], [more, failed]| [calls + more, failures + failed]);
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
}

/// How many runtimes and drivers are loaded now. A statically linked runtime does not count: its calls are intercepted where
/// they reach the driver.
///
/// Thread-safety: any thread; not in signal handlers, nor in constructors of libraries: it asks the dynamic linker.
///
/// @return The number of indexes that p2pshim_library_get() takes, until the program loads or unloads one.
#[unsafe(no_mangle)]
pub extern "C" fn p2pshim_library_count() -> usize {
    control::libraries().len()
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
        layer: text(found.layer.c_name()),
        routes: bits.into_iter().filter(|&(is_one, _)| is_one).map(|(_, bit)| bit).sum(),
        bypass: text(bypass(&found)),
        path: kept(found.object.path),
    };
    // SAFETY: the caller's promise.
    unsafe { give(&described, library, LIBRARY_SIZE_0_1) }
}

/// Which of a library's calls bypass the shim.
fn bypass(library: &control::Library) -> &'static str {
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

/// Returns the state of a device's access to the memory of another: whether it is possible, who has enabled it, whether it is
/// verified or blocked, and which path copies take. Before the first intercepted call only the first is known. In a process
/// without CUDA's driver the state is that of HIP, if a copy between the two was seen.
///
/// Thread-safety: any thread, also in a callback; not in signal handlers. It asks the driver whether access is possible, which does
/// not block.
///
/// @param device The ordinal of the device that accesses.
/// @param peer The ordinal of the device whose memory it is.
/// @param state Where to write; its size is set.
/// @return P2PSHIM_OK; P2PSHIM_OUT_OF_RANGE for ordinals that are negative or above 63; P2PSHIM_INACTIVE in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn p2pshim_pair_state_get(
    device: c_int,
    peer: c_int,
    state: *mut p2pshim_pair_state_t,
) -> p2pshim_status_t {
    let Some([one, other]) = ordinals([device, peer]) else { return P2PSHIM_OUT_OF_RANGE };
    // Another thread may have held the lock when the process was forked.
    if mode::activity() == Activity::Child {
        return P2PSHIM_INACTIVE;
    }
    let possible = match control::quietly(|| Some(RealDriver.can_access(device, peer))) {
        _ if one == other => 1,
        Some(Ok(can)) => can.into(),
        Some(Err(_)) | None => -1,
    };
    let known = os::undisturbed(|| ACCESS.pair_state(one, other));
    let of_hip = if control::has_driver() { None } else { HIP.pair_state(one, other) };
    let path = of_hip.map_or(known.path, |hip| hip.path);
    let possible = match path {
        Path::MappedOnUse => 1,
        Path::Broken if of_hip.is_some() => 1,
        Path::Staged(Why::NoPath) if of_hip.is_some() => 0,
        _ => possible,
    };
    let by_program = known.by_program || of_hip.is_some_and(|hip| hip.by_program);
    let by_shim = known.by_shim || of_hip.is_some_and(|hip| hip.by_shim);
    let [path, reason] = path_texts(Some(path));
    let bits = [(by_program, P2PSHIM_BY_PROGRAM), (by_shim, P2PSHIM_BY_SHIM)];
    let described = p2pshim_pair_state_t {
        size: size_of::<p2pshim_pair_state_t>(),
        possible,
        enabled_by: bits.into_iter().filter(|&(has, _)| has).map(|(_, bit)| bit).sum(),
        denied: known.is_denied.into(),
        proof: of_hip.and_then(|hip| hip.verification).or(known.verification).into(),
        pool_proof: known.pool_verification.into(),
        path,
        reason,
    };
    // SAFETY: the caller's promise.
    unsafe { give(&described, state, PAIR_STATE_SIZE_0_1) }
}

/// Verifies the path between two devices and enables peer access now: else the first copy of more than 1 MiB, or the 17th, does so, and
/// takes some milliseconds longer. Each device needs a context, such as the primary one that the runtime's first call makes. If
/// P2PSHIM_ACCESS is not auto, or P2PSHIM_DENY names the pair, nothing is enabled.
///
/// If the library was neither linked nor preloaded, it does not see the program's calls: no stream may be being captured, and a
/// cudaDeviceEnablePeerAccess() of the program returns cudaErrorPeerAccessAlreadyEnabled afterwards.
///
/// Thread-safety: any thread, also in a callback; not in signal handlers. It waits for other threads that verify one of the two
/// devices, 5 seconds at most.
///
/// @param device The ordinal of one device.
/// @param peer The ordinal of the other; access is enabled both ways, as far as the hardware allows it.
/// @return P2PSHIM_OK if copies between the two are direct from now on; P2PSHIM_STAGED if they go through the host, and
/// p2pshim_pair_state_get() says why; P2PSHIM_NOT_READY if a device has no context yet or is busy, a stream is being captured, or the
/// thread's stack is too small; P2PSHIM_OUT_OF_RANGE if there are no two such devices; P2PSHIM_NO_DRIVER without CUDA's driver, in HIP
/// programs too; P2PSHIM_INACTIVE; P2PSHIM_INTERNAL_ERROR.
#[unsafe(no_mangle)]
pub extern "C" fn p2pshim_pair_prepare(device: c_int, peer: c_int) -> p2pshim_status_t {
    let Some(devices) = ordinals([device, peer]).filter(|[one, other]| one != other) else {
        return P2PSHIM_OUT_OF_RANGE;
    };
    // The driver counts none before it is initialised.
    let is_beyond = || (1..=device.max(peer)).contains(&control::quietly(|| RealDriver.device_count()));
    match control::prepare(devices) {
        Ok(Path::Direct) => P2PSHIM_OK,
        Ok(Path::Staged(Why::Busy | Why::Verifying | Why::Capturing | Why::NotYetWorth)) => P2PSHIM_NOT_READY,
        Ok(_) => P2PSHIM_STAGED,
        Err(Failure::NotReady) if is_beyond() => P2PSHIM_OUT_OF_RANGE,
        Err(failure) => Err(failure).into(),
    }
}

/// Ordinals that the shim tells apart.
fn ordinals(given: [c_int; 2]) -> Option<[u8; 2]> {
    let ordinal = |ordinal: c_int| u8::try_from(ordinal).ok().filter(|&ordinal| ordinal < 64);
    Some([ordinal(given[0])?, ordinal(given[1])?])
}

impl From<Option<Verification>> for p2pshim_proof_t {
    fn from(verification: Option<Verification>) -> Self {
        match verification {
            None => Self::P2PSHIM_PROOF_NONE,
            Some(Verification::Passed) => Self::P2PSHIM_PROOF_PASSED,
            Some(Verification::NoPath) => Self::P2PSHIM_PROOF_NO_PATH,
            Some(Verification::Failed | Verification::Late) => Self::P2PSHIM_PROOF_FAILED,
            Some(Verification::Slower) => Self::P2PSHIM_PROOF_SLOWER,
        }
    }
}
