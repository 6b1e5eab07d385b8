//! Answers of NVML about peer access that is hidden from the program: NCCL asks NVML if each process sees one GPU.
//!
//! Where NVLink joins two GPUs, NCCL takes "not supported" for a fault and ends with an error, unless it was told not to use peer
//! access. So a program that would run without the shim is not told so there.

use std::ffi::{c_int, c_void};
use std::mem::transmute;

use super::mode;
use crate::os;
use crate::policy::ACCESS;
use crate::real::driver::RealDriver;
use crate::real::nvml::Nvml;
use crate::record;

/// `NVML_P2P_CAPS_INDEX_…`: what is asked for.
const READ: i64 = 0;
const WRITE: i64 = 1;
const NVLINK: c_int = 2;
const ATOMICS: i64 = 3;
/// `NVML_P2P_STATUS_…`.
const OK: c_int = 0;
const NOT_SUPPORTED: c_int = 5;

/// `nvmlDeviceGetP2PStatus`.
type GetStatus = unsafe extern "C" fn(usize, usize, c_int, *mut c_int) -> c_int;

/// NVML has said how a device can access the memory of another; `found` is the function that did.
#[cold]
#[inline(never)]
pub(super) fn on_status(found: *const c_void, devices: [usize; 2], index: i64, status: *mut c_int) {
    if ![READ, WRITE, ATOMICS].contains(&index) || !ACCESS.may_hide() {
        return;
    }
    mode::unseen(|| {
        // SAFETY: the function has succeeded, so it has just written that.
        if unsafe { *status } != OK {
            return;
        }
        let Some(library) = Nvml::of(found) else { return };
        let [Some(one), Some(other)] = devices.map(|device| library.names(device)) else { return };
        if !ACCESS.is_hidden_by_name(&RealDriver, [&one, &other]) {
            return;
        }
        if is_linked(found, devices) && !nccl_keeps_off() {
            return say_what_to_export(&one, &other);
        }
        // SAFETY: as above.
        unsafe { *status = NOT_SUPPORTED };
    });
}

/// Whether NVLink joins two devices.
fn is_linked(found: *const c_void, [one, other]: [usize; 2]) -> bool {
    let mut status = NOT_SUPPORTED;
    // SAFETY: it is the function that the program called with these devices.
    let get = unsafe { transmute::<*const c_void, GetStatus>(found) };
    // SAFETY: as above; the function writes the place.
    unsafe { get(one, other, NVLINK, &mut status) == 0 && status == OK }
}

/// Whether NCCL was told to use no peer access, or not to mind that there is none.
fn nccl_keeps_off() -> bool {
    ["NCCL_P2P_DISABLE", "NCCL_IGNORE_DISABLED_P2P"].into_iter().filter_map(os::variable).any(|value| {
        let number = value.to_str().and_then(|value| value.trim().parse::<i64>().ok());
        number.is_some_and(|number| number != 0)
    })
}

fn say_what_to_export([one, _]: &[String; 2], [other, _]: &[String; 2]) {
    if record::log::Once::Export.mark_logged() {
        record::log::warnings(&[format!(
            "nvmlDeviceGetP2PStatus: peer access between {one} and {other} is hidden from CUDA, but NVML still reports it: NVLink joins \
             them, and NCCL would otherwise end with an error. To keep NCCL off it, export NCCL_P2P_DISABLE=1, or start the program with \
             p2pshim run, which does that"
        )]);
    }
}
