//! Peer access.

use p2psim_core::Error;

use super::require;
use crate::abi::{In, Out};
use crate::entry::{Gpus, api, gpus};
use crate::error::Result;

/// `hipDevP2PAttr…`: performance rank, access, native atomics, access to arrays.
const RANK: u32 = 0;
const ACCESS: u32 = 1;
const ATOMICS: u32 = 2;
const ARRAY_ACCESS: u32 = 3;
/// Types of links as `hsa_amd_link_info_type_t` numbers them, which is what the rank is.
const PCIE: i32 = 2;
const XGMI: i32 = 4;

/// Whether a device can access a peer; itself is no peer, whatever its ordinal.
fn can_access(gpus: &Gpus, device: i32, peer: i32) -> Result<bool> {
    if device == peer {
        return Ok(false);
    }
    Ok(gpus.has_path(gpus.device(device)?, gpus.device(peer)?))
}

/// The current device and a peer that it can access.
fn reachable(gpus: &Gpus, peer: i32) -> Result<(usize, usize)> {
    let device = gpus.current()?;
    if !can_access(gpus, device as i32, peer)? {
        return Err(Error::INVALID_DEVICE.into());
    }
    Ok((device, gpus.device(peer)?))
}

fn p2p_attribute(gpus: &Gpus, attribute: u32, src: i32, dst: i32) -> Result<i32> {
    if src == dst || src >= gpus.devices() as i32 || dst >= gpus.devices() as i32 {
        return Err(Error::INVALID_DEVICE.into());
    }
    require((RANK..=ARRAY_ACCESS).contains(&attribute))?;
    let access = can_access(gpus, src, dst)?;
    Ok(match attribute {
        RANK if access => XGMI,
        RANK => PCIE,
        ACCESS | ATOMICS | ARRAY_ACCESS => access.into(),
        _ => 0,
    })
}

api! {
    fn hipDeviceCanAccessPeer [gpus] (can: Out<i32>, device: i32, peer: i32) {
        can.required()?.set(can_access(gpus, device, peer)?.into());
        Ok(())
    }

    fn hipDeviceEnablePeerAccess [gpus] (peer: i32, flags: u32) {
        require(flags == 0)?;
        let (from, to) = reachable(gpus, peer)?;
        Ok(gpus.enable_device(from, to)?)
    }

    fn hipDeviceDisablePeerAccess [gpus] (peer: i32) {
        let (from, to) = reachable(gpus, peer)?;
        Ok(gpus.disable_device(from, to)?)
    }

    fn hipDeviceGetP2PAttribute [gpus] (value: Out<i32>, attribute: u32, src: i32, dst: i32) {
        value.required()?.set(p2p_attribute(gpus, attribute, src, dst)?);
        Ok(())
    }

    /// Does nothing: access is a matter of devices.
    fn hipCtxEnablePeerAccess [_gpus] (_context: u64, _flags: u32) { Ok(()) }

    /// Does nothing: access is a matter of devices.
    fn hipCtxDisablePeerAccess [_gpus] (_context: u64) { Ok(()) }
}

/// Only here: how many copies between two devices there were, direct ones and staged ones. Not 0 for a bad ordinal.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn p2psim_hip_copies(from: i32, to: i32, direct: Out<u64>, staged: Out<u64>) -> u32 {
    let Ok(gpus) = gpus() else { return Error::NO_DEVICE.0 };
    let (Ok(from), Ok(to)) = (gpus.device(from), gpus.device(to)) else { return Error::INVALID_DEVICE.0 };
    let (direct_copies, staged_copies) = gpus.copies(from, to);
    direct.set(direct_copies);
    staged.set(staged_copies);
    0
}

/// Only here: whether a kernel of a device could touch what lies at an address, 1 or 0.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn p2psim_hip_reaches(device: i32, address: In<u8>) -> i32 {
    let Ok(gpus) = gpus() else { return 0 };
    let Ok(device) = gpus.device(device) else { return 0 };
    gpus.device_reaches(device, address.pointer() as u64).into()
}
