//! Buffers of a graphics library, as far as copies can meet them: each mapping of one has memory of its own, in the current context.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use p2psim_core::{Error, Kind, Result};

use super::require;
use crate::abi::{In, Out};
use crate::entry::{api, machine};

/// Bytes of a buffer, whichever it is.
const SIZE: u64 = 4 << 20;
const FIRST_HANDLE: u64 = 0x506d_0000_0000;

/// Where the buffers are mapped, by their handles; 0 for nowhere.
static BUFFERS: LazyLock<Mutex<HashMap<u64, u64>>> = LazyLock::new(Mutex::default);

/// Changes what is known of each of these buffers.
fn each(count: u32, resources: In<u64>, change: impl Fn(&mut u64) -> Result<()>) -> Result<()> {
    let mut buffers = BUFFERS.lock().unwrap_or_else(PoisonError::into_inner);
    for index in 0..count as usize {
        change(buffers.get_mut(&resources.read_nth(index)?).ok_or(Error::INVALID_HANDLE)?)?;
    }
    Ok(())
}

fn unmap(count: u32, resources: In<u64>) -> Result<()> {
    let machine = machine()?;
    each(count, resources, |address| {
        require(*address != 0)?;
        machine.free(std::mem::take(address), Kind::Device)
    })
}

fn map(count: u32, resources: In<u64>) -> Result<()> {
    let machine = machine()?;
    each(count, resources, |address| {
        require(*address == 0)?;
        *address = machine.allocate(Kind::Device, SIZE, 0)?;
        Ok(())
    })
}

api! {
    fn cuGraphicsGLRegisterBuffer(resource: Out<u64>, buffer: u32, _flags: u32) {
        machine()?.current_context()?;
        let resource = resource.required()?;
        let mut buffers = BUFFERS.lock().unwrap_or_else(PoisonError::into_inner);
        let handle = FIRST_HANDLE + u64::from(buffer) * 0x10;
        buffers.insert(handle, 0);
        resource.set(handle);
        Ok(())
    }

    fn cuGraphicsMapResources(count: u32, resources: In<u64>, _stream: u64) { map(count, resources) }
    fn cuGraphicsMapResources_ptsz(count: u32, resources: In<u64>, _stream: u64) { map(count, resources) }
    fn cuGraphicsUnmapResources(count: u32, resources: In<u64>, _stream: u64) { unmap(count, resources) }
    fn cuGraphicsUnmapResources_ptsz(count: u32, resources: In<u64>, _stream: u64) { unmap(count, resources) }

    fn cuGraphicsResourceGetMappedPointer_v2(pointer: Out<u64>, size: Out<u64>, resource: u64) {
        machine()?.current_context()?;
        let buffers = BUFFERS.lock().unwrap_or_else(PoisonError::into_inner);
        let address = *buffers.get(&resource).ok_or(Error::INVALID_HANDLE)?;
        require(address != 0)?;
        pointer.set(address);
        size.set(SIZE);
        Ok(())
    }
}
