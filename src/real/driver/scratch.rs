//! Memory to verify pairs with.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_uint};
use std::mem::zeroed;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::functions::{
    checked, mem_address_reserve, mem_alloc, mem_alloc_from_pool_async, mem_create, mem_get_allocation_granularity,
    mem_host_register, mem_map, mem_pool_create, mem_set_access, stream_create,
};
use super::types::{AccessDesc, AllocationProp, Location, PINNED, PoolProps};
use crate::api::abi::Code;
use crate::machine::Pages;
use crate::os::pages;
use crate::policy::driver::{HALF, Scratch, ScratchKind};
use crate::policy::staging::NEEDED;

/// Takes memory, page-locked memory of the host, and a stream, in the current context. Nothing of it is ever given back:
/// that would wait for the device. So what is most likely to fail comes first.
pub(super) fn take(kind: ScratchKind, (context, context_id): (usize, u64), device: i32) -> Result<Scratch, Code> {
    /// `CU_STREAM_NON_BLOCKING`.
    const NON_BLOCKING: c_uint = 1;
    let wanted = if kind == ScratchKind::Page { 4096 } else { 2 * HALF };
    let (mut address, mut bytes, mut pool, mut stream) = (0, wanted, 0, 0);
    let take_stream = |stream: &mut usize| {
        // SAFETY: the function writes a handle.
        checked(unsafe { stream_create(stream, NON_BLOCKING) })
    };
    match kind {
        // SAFETY: the function writes an address.
        ScratchKind::Page => checked(unsafe { mem_alloc(&mut address, wanted) })?,
        ScratchKind::Mapped => (address, bytes) = take_mapped(wanted, device)?,
        ScratchKind::Pool => {
            // SAFETY: plain integers, for which zero is a value.
            let mut properties: PoolProps = unsafe { zeroed() };
            (properties.kind, properties.location) = (PINNED, Location::device(device));
            take_stream(&mut stream)?;
            // SAFETY: the functions write a handle and an address.
            unsafe {
                checked(mem_pool_create(&mut pool, &properties))?;
                checked(mem_alloc_from_pool_async(&mut address, wanted, pool, stream))?;
            }
        }
    }
    if stream == 0 {
        take_stream(&mut stream)?;
    }
    let host = take_host(wanted)?;
    register(host, wanted)?;
    let receives = address + (bytes / 2).min(HALF) as u64;
    Ok(Scratch { kind, context, context_id, device, address, receives, bytes, stream, control: 0, pool, host })
}

/// Takes memory of the host that is ours, to be page-locked: the driver's own would go with the context, which another thread may end
/// meanwhile. Children do not get it ([`pages`]).
pub(super) fn take_host(bytes: usize) -> Result<usize, Code> {
    pages::take_uninherited(bytes, 1).ok_or(Code::OUT_OF_MEMORY)
}

/// Takes much memory; in large pages, if there are any, which are made and page-locked in a third of the time (measured on H100).
pub(super) fn take_large(bytes: usize) -> Result<usize, Code> {
    const LARGE_PAGE: usize = 2 << 20;
    if bytes < LARGE_PAGE {
        return take_host(bytes);
    }
    let host = pages::take_uninherited(bytes, LARGE_PAGE).ok_or(Code::OUT_OF_MEMORY)?;
    // SAFETY: the memory is ours. That the kernel has no large pages is no reason to fail.
    unsafe { libc::madvise(ptr::with_exposed_provenance_mut(host), bytes, libc::MADV_HUGEPAGE) };
    Ok(host)
}

/// Memory for the copies of a blocked pair if there is no other: part of the library's zeroed data, it costs none until it is used, and
/// cannot fail.
struct Reserve(Pages<UnsafeCell<[u8; NEEDED]>>);

// SAFETY: only its address is taken, once; what lies there is written and read by the driver.
unsafe impl Sync for Reserve {}

static RESERVE: Reserve = Reserve(Pages(UnsafeCell::new([0; NEEDED])));
static IS_RESERVE_TAKEN: AtomicBool = AtomicBool::new(false);

/// Takes the reserve, if that is what is asked for and nobody has it. It is for no smaller ring, which can be done without.
pub(super) fn take_reserve(bytes: usize) -> Option<usize> {
    let is_ours = bytes == NEEDED && !IS_RESERVE_TAKEN.swap(true, Relaxed);
    is_ours.then(|| {
        let address = RESERVE.0.0.get().expose_provenance();
        pages::wipe_in_children(address, NEEDED);
        address
    })
}

/// Page-locks memory of [`take_host`], as long as the current context is there.
pub(super) fn register(host: usize, bytes: usize) -> Result<(), Code> {
    /// `CU_MEMHOSTREGISTER_PORTABLE`: page-locked for every context.
    const PORTABLE: c_uint = 1;
    // SAFETY: the memory is there, and for ever.
    checked(unsafe { mem_host_register(host, bytes, PORTABLE) })
}

fn take_mapped(wanted: usize, device: i32) -> Result<(u64, usize), Code> {
    /// `CU_MEM_ALLOC_GRANULARITY_MINIMUM`.
    const MINIMUM: c_int = 0;
    // SAFETY: plain integers, for which zero is a value.
    let mut properties: AllocationProp = unsafe { zeroed() };
    (properties.kind, properties.location) = (PINNED, Location::device(device));
    let (mut granularity, mut handle, mut address) = (0, 0, 0);
    // SAFETY: each function writes one value of the type of the variable that it is given.
    unsafe {
        checked(mem_get_allocation_granularity(&mut granularity, &properties, MINIMUM))?;
        let bytes = wanted.next_multiple_of(granularity.max(1));
        checked(mem_create(&mut handle, bytes, &properties, 0))?;
        checked(mem_address_reserve(&mut address, bytes, 0, 0, 0))?;
        checked(mem_map(address, bytes, 0, handle, 0))?;
        let desc = AccessDesc::read_write(device);
        checked(mem_set_access(address, bytes, &desc, 1))?;
        Ok((address, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserve_is_taken_once_and_for_nothing_else() {
        assert_eq!(take_reserve(NEEDED / 32), None, "copies that are read back are no need");
        let address = take_reserve(NEEDED).unwrap();
        assert!(address.is_multiple_of(4096));
        assert!(pages::flags_of(address).contains(" wf"), "children do not share it");
        assert_eq!(take_reserve(NEEDED), None);
    }
}
