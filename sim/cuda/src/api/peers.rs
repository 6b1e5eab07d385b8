//! Peer access.

use p2psim_core::machine::ContextHandle;
use p2psim_core::{Error, Machine, Result};

use super::require;
use crate::abi::{In, Out};
use crate::entry::{api, machine};

fn pair(machine: &Machine, from: i32, to: i32) -> Result<(usize, usize)> {
    Ok((machine.device(from)?, machine.device(to)?))
}

/// `CUdevice_P2PAttribute`: what a pair with a path answers.
fn attribute(number: i32, path: bool) -> Result<i32> {
    match number {
        // Performance rank: the best; nothing about atomics is partial.
        1 | 5 => Ok(0),
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
        value.set(attribute(number, machine.has_path(from, to))?);
        Ok(())
    }

    /// As of 13.0; no operation is simulated, so none is possible.
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
        (0..count).for_each(|index| capabilities.set_nth(index as usize, 0));
        Ok(())
    }

    fn cuCtxEnablePeerAccess(peer: u64, flags: u32) {
        let machine = machine()?;
        machine.current_context()?;
        require(flags == 0)?;
        machine.enable_peer(ContextHandle(peer))
    }

    fn cuCtxDisablePeerAccess(peer: u64) {
        machine()?.disable_peer(ContextHandle(peer))
    }
}
