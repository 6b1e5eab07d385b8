//! Two devices: whether one can access the other's memory, and what was copied between them.

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::mem::size_of;

use super::status::p2pshim_status_t::{
    self, P2PSHIM_INACTIVE, P2PSHIM_NOT_READY, P2PSHIM_OK, P2PSHIM_OUT_OF_RANGE, P2PSHIM_STAGED,
};
use super::{give, guarded, unbroken};
use crate::call::control::{self, Failure};
use crate::call::mode::{self, Activity};
use crate::model::counters;
use crate::model::{Path, Why};
use crate::os;
use crate::policy::access::Verification;
use crate::policy::{ACCESS, HIP, VerifyBackend};
use crate::real::driver::RealDriver;

const PAIR_STATE_SIZE_0_1: usize = 40;
const PAIR_SIZE_0_1: usize = 40;

/// The outcome of verifying the path between two devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum p2pshim_verification_t {
    /// Not verified yet: a pair is verified once it has copied enough.
    P2PSHIM_VERIFICATION_NONE = 0,
    /// Verified: data arrives in both directions.
    P2PSHIM_VERIFICATION_PASSED = 1,
    /// The driver says that there is no path.
    P2PSHIM_VERIFICATION_NO_PATH = 2,
    /// Data is lost, so the pair is blocked; or a copy did not end in time, so it is blocked until it is verified again.
    P2PSHIM_VERIFICATION_FAILED = 3,
    /// Data arrives, but direct copies are slower than copies through the host.
    P2PSHIM_VERIFICATION_SLOWER = 4,
}

/// The path of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum p2pshim_path_t {
    /// No copy, or copies on several paths.
    P2PSHIM_PATH_NONE = 0,
    /// From device to device.
    P2PSHIM_PATH_DIRECT = 1,
    /// From device to device through the host.
    P2PSHIM_PATH_STAGED = 2,
    /// Inside one device.
    P2PSHIM_PATH_SAME_DEVICE = 3,
    /// From or to memory of the host.
    P2PSHIM_PATH_HOST = 4,
    /// Not known: managed memory; with HIP also memory of another process.
    P2PSHIM_PATH_UNKNOWN = 5,
    /// None yet: the copy became part of a graph.
    P2PSHIM_PATH_CAPTURED = 6,
    /// From device to device: HIP maps the memory on first use.
    P2PSHIM_PATH_MAPPED_ON_USE = 7,
}

impl From<Option<Path>> for p2pshim_path_t {
    fn from(path: Option<Path>) -> Self {
        match path {
            None => Self::P2PSHIM_PATH_NONE,
            Some(Path::Direct | Path::Broken) => Self::P2PSHIM_PATH_DIRECT,
            // No call of the program is one.
            Some(Path::ByHand) => Self::P2PSHIM_PATH_NONE,
            Some(Path::Staged(_)) => Self::P2PSHIM_PATH_STAGED,
            Some(Path::SameDevice) => Self::P2PSHIM_PATH_SAME_DEVICE,
            Some(Path::Host) => Self::P2PSHIM_PATH_HOST,
            Some(Path::Unknown) => Self::P2PSHIM_PATH_UNKNOWN,
            Some(Path::Captured) => Self::P2PSHIM_PATH_CAPTURED,
            Some(Path::MappedOnUse) => Self::P2PSHIM_PATH_MAPPED_ON_USE,
        }
    }
}

/// The reason of a path as a C text.
pub(super) fn reason(path: Option<Path>) -> *const c_char {
    path.map_or(c"", Path::reason_for_c).as_ptr()
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
    /// The parties that have enabled it: P2PSHIM_BY_PROGRAM, P2PSHIM_BY_SHIM, both added up, or 0.
    pub enabled_by: c_uint,
    /// Whether P2PSHIM_ACCESS or P2PSHIM_DENY hides it from the program: 1 or 0.
    pub denied: c_int,
    /// The outcome of verifying the path between the two.
    pub verification: p2pshim_verification_t,
    /// The outcome for memory of pools.
    pub pool_verification: p2pshim_verification_t,
    /// The path of copies between them, as of now: of memory of cudaMalloc or cuMemAlloc; pools and mapped memory have access rights
    /// of their own.
    pub path: p2pshim_path_t,
    /// Why copies take that path, such as "broken: failed verification"; empty if there is nothing to say.
    pub reason: *const c_char,
}

/// The peer copies of this process from one device to another, as far as they succeeded. A copy counts when it is submitted.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct p2pshim_pair_t {
    /// Set by the caller: sizeof(p2pshim_pair_t).
    pub size: usize,
    /// Copies that went directly from device to device, or stayed in one.
    pub direct_copies: u64,
    /// Their bytes.
    pub direct_bytes: u64,
    /// Copies that went through the host.
    pub staged_copies: u64,
    /// Their bytes.
    pub staged_bytes: u64,
}

/// The name of a path.
///
/// Thread-safety: any thread, at any time, in signal handlers too.
///
/// @param path A p2pshim_path_t; any number is accepted.
/// @return A text such as "same-device"; empty for P2PSHIM_PATH_NONE and for numbers that are no path.
#[unsafe(no_mangle)]
pub extern "C" fn p2pshim_path_name(path: c_int) -> *const c_char {
    const NAMES: [&CStr; 7] =
        [c"direct", c"staged", c"same-device", c"host", c"unknown", c"captured", c"mapped on first use"];
    let name = usize::try_from(path).ok().and_then(|path| NAMES.get(path.checked_sub(1)?));
    name.map_or(c"".as_ptr(), |name| name.as_ptr())
}

/// The name of what verifying a path has shown.
///
/// Thread-safety: any thread, at any time, in signal handlers too.
///
/// @param verification A p2pshim_verification_t; any number is accepted.
/// @return A text such as "passed"; empty for P2PSHIM_VERIFICATION_NONE and for numbers that are none.
#[unsafe(no_mangle)]
pub extern "C" fn p2pshim_verification_name(verification: c_int) -> *const c_char {
    const NAMES: [&CStr; 4] = [c"passed", c"no path", c"failed", c"slower"];
    let name = usize::try_from(verification).ok().and_then(|number| NAMES.get(number.checked_sub(1)?));
    name.map_or(c"".as_ptr(), |name| name.as_ptr())
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
    guarded(|| {
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
        let of_hip = if control::has_driver() { None } else { os::undisturbed(|| HIP.pair_state(one, other)) };
        let known = of_hip.unwrap_or_else(|| os::undisturbed(|| ACCESS.pair_state(one, other)));
        let possible = match known.path {
            Path::MappedOnUse | Path::Broken => 1,
            Path::Staged(Why::NoPath) if of_hip.is_some() => 0,
            _ => possible,
        };
        let bits = [(known.by_program, P2PSHIM_BY_PROGRAM), (known.by_shim, P2PSHIM_BY_SHIM)];
        let described = p2pshim_pair_state_t {
            size: size_of::<p2pshim_pair_state_t>(),
            possible,
            enabled_by: bits.into_iter().filter(|&(has, _)| has).map(|(_, bit)| bit).sum(),
            denied: known.is_denied.into(),
            verification: known.verification.into(),
            pool_verification: known.pool_verification.into(),
            path: Some(known.path).into(),
            reason: reason(Some(known.path)),
        };
        // SAFETY: the caller's promise.
        unsafe { give(&described, state, PAIR_STATE_SIZE_0_1) }
    })
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
    unbroken(|| {
        let Some(devices) = ordinals([device, peer]).filter(|[one, other]| one != other) else {
            return P2PSHIM_OUT_OF_RANGE;
        };
        // The driver counts none before it is initialised.
        let is_beyond = || (1..=device.max(peer)).contains(&control::quietly(|| RealDriver.device_count()));
        match control::prepare(devices) {
            Ok(Path::Direct) => P2PSHIM_OK,
            Ok(Path::Staged(Why::Busy | Why::Verifying | Why::Capturing | Why::NotYetWorth | Why::Graph)) => {
                P2PSHIM_NOT_READY
            }
            Ok(_) => P2PSHIM_STAGED,
            Err(Failure::NotReady) if is_beyond() => P2PSHIM_OUT_OF_RANGE,
            Err(failure) => Err(failure).into(),
        }
    })
}

/// Ordinals that the shim tells apart.
fn ordinals(given: [c_int; 2]) -> Option<[u8; 2]> {
    let ordinal = |ordinal: c_int| u8::try_from(ordinal).ok().filter(|&ordinal| ordinal < 64);
    Some([ordinal(given[0])?, ordinal(given[1])?])
}

/// Returns how much was copied from one device to another so far. Copies that other threads make meanwhile may or may not be
/// counted.
///
/// Thread-safety: any thread, at any time.
///
/// @param src_device The ordinal of the device that bytes came from.
/// @param dst_device The ordinal of the device that they went to.
/// @param pair Where to write; its size is set.
/// @return P2PSHIM_OK; P2PSHIM_OUT_OF_RANGE for ordinals that are negative or above 31, which are not counted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn p2pshim_pair_get(
    src_device: c_int,
    dst_device: c_int,
    pair: *mut p2pshim_pair_t,
) -> p2pshim_status_t {
    guarded(|| {
        let Some(sums) = ordinals([src_device, dst_device]).and_then(counters::sums) else {
            return P2PSHIM_OUT_OF_RANGE;
        };
        let described = p2pshim_pair_t {
            size: size_of::<p2pshim_pair_t>(),
            direct_copies: sums.direct.copies,
            direct_bytes: sums.direct.bytes,
            staged_copies: sums.staged.copies,
            staged_bytes: sums.staged.bytes,
        };
        // SAFETY: the caller's promise.
        unsafe { give(&described, pair, PAIR_SIZE_0_1) }
    })
}

impl From<Option<Verification>> for p2pshim_verification_t {
    fn from(verification: Option<Verification>) -> Self {
        match verification {
            None | Some(Verification::Risky) => Self::P2PSHIM_VERIFICATION_NONE,
            Some(Verification::Passed) => Self::P2PSHIM_VERIFICATION_PASSED,
            Some(Verification::NoPath) => Self::P2PSHIM_VERIFICATION_NO_PATH,
            Some(Verification::Broken | Verification::Late) => Self::P2PSHIM_VERIFICATION_FAILED,
            Some(Verification::Slower) => Self::P2PSHIM_VERIFICATION_SLOWER,
        }
    }
}
