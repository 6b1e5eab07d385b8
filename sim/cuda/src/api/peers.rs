//! Peer access.

use p2psim_core::machine::ContextHandle;
use p2psim_core::{Error, Machine, Result};

use super::require;
use crate::abi::{In, Out};
use crate::entry::{api, machine};

/// `CU_ATOMIC_CAPABILITY_SIGNED | …_UNSIGNED | …_SCALAR_32 | …_SCALAR_64`.
const ATOMIC_WORDS: u32 = 0b11011;

fn pair(machine: &Machine, from: i32, to: i32) -> Result<(usize, usize)> {
    Ok((machine.device(from)?, machine.device(to)?))
}

/// `CUdevice_P2PAttribute`: what a pair with a path answers.
fn attribute(number: i32, path: bool, is_pci: bool) -> Result<i32> {
    match number {
        // Performance rank: the best; nothing about atomics is partial.
        1 | 5 => Ok(0),
        // Native atomics, which PCI does not have.
        3 if is_pci => Ok(0),
        // Access, native atomics, access to arrays.
        2..=4 => Ok(path.into()),
        _ => Err(Error::INVALID_VALUE),
    }
}

api! {
    fn cuDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) {
        let machine = machine()?;
        let can = can.required()?;
        let (from, to) = pair(machine, device, peer)?;
        can.set(machine.has_path(from, to).into());
        Ok(())
    }

    fn cuDeviceGetP2PAttribute(value: Out<i32>, number: i32, from: i32, to: i32) {
        let machine = machine()?;
        let value = value.required()?;
        let (from, to) = pair(machine, from, to)?;
        if from == to {
            return Err(Error::INVALID_DEVICE);
        }
        value.set(attribute(number, machine.has_path(from, to), machine.is_pci())?);
        Ok(())
    }

    /// As of 13.0; none is simulated, but with a path all are said to be possible.
    fn cuDeviceGetP2PAtomicCapabilities(
        capabilities: Out<u32>,
        operations: In<u32>,
        count: u32,
        from: i32,
        to: i32,
    ) {
        let machine = machine()?;
        let capabilities = capabilities.required()?;
        operations.read()?;
        require(count > 0)?;
        let (from, to) = pair(machine, from, to)?;
        if from == to {
            return Err(Error::INVALID_DEVICE);
        }
        let possible = if machine.has_path(from, to) { ATOMIC_WORDS } else { 0 };
        (0..count).for_each(|index| capabilities.set_nth(index as usize, possible));
        Ok(())
    }

    fn cuCtxEnablePeerAccess(peer: u64, flags: u32) {
        let machine = machine()?;
        machine.enable_peer(ContextHandle(peer), flags)
    }

    fn cuCtxDisablePeerAccess(peer: u64) {
        machine()?.disable_peer(ContextHandle(peer))
    }
}
