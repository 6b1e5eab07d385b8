//! The driver's answers about memory.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::zeroed;
use std::ptr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::contexts;
use super::functions::{
    asked, mem_alloc, mem_get_allocation_properties, mem_pool_set_access, pointer_get_attribute, pointer_get_attributes,
};
use super::types::{AccessDesc, AllocationProp};
use crate::api::abi::{Code, MEMORYTYPE_DEVICE, MEMORYTYPE_HOST};
use crate::objects::captures;
use crate::policy::driver::{Holder, Memory};

/// `CU_POINTER_ATTRIBUTE_…`
mod attribute {
    use std::ffi::c_int;
    pub(super) const CONTEXT: c_int = 1;
    pub(super) const MEMORY_TYPE: c_int = 2;
    pub(super) const IS_MANAGED: c_int = 8;
    pub(super) const DEVICE_ORDINAL: c_int = 9;
    pub(super) const IS_LEGACY_CUDA_IPC_CAPABLE: c_int = 10;
    pub(super) const RANGE_START_ADDR: c_int = 11;
    pub(super) const RANGE_SIZE: c_int = 12;
    pub(super) const MEMPOOL_HANDLE: c_int = 17;
    pub(super) const MAPPING_SIZE: c_int = 18;
    pub(super) const MAPPING_BASE_ADDR: c_int = 19;
}

/// The device that memory lives on, by the driver's own account; none for memory it does not know.
///
/// The query needs no context, waits for nothing and is allowed while a stream is being captured.
pub(crate) fn device_of(address: u64) -> Option<i32> {
    pointer_attribute(attribute::DEVICE_ORDINAL, address).filter(|&device| device >= 0)
}

/// An attribute of a pointer that is one `int`.
fn pointer_attribute(attribute: c_int, address: u64) -> Option<c_int> {
    let mut value: c_int = -1;
    // SAFETY: the attribute is one int, and `value` is one. The address is looked up, not read.
    let code = unsafe { pointer_get_attribute((&raw mut value).cast(), attribute, address) };
    (code == Code::SUCCESS).then_some(value)
}

/// The context that an allocation belongs to, on a device or on the host.
pub(super) fn context_of(address: u64) -> Option<usize> {
    let mut context = 0usize;
    // SAFETY: the attribute is one handle, and `context` has room for one. The address is looked up, not read.
    let code = unsafe { pointer_get_attribute((&raw mut context).cast(), attribute::CONTEXT, address) };
    (code == Code::SUCCESS && context != 0).then_some(context)
}

pub(super) fn is_on_device(address: u64) -> bool {
    pointer_attribute(attribute::MEMORY_TYPE, address).is_some_and(|kind| kind.cast_unsigned() == MEMORYTYPE_DEVICE)
}

/// Whether the driver refuses to say what kind of memory it is, as it does where it knows none: no other failure says so.
pub(super) fn is_unknown(address: u64) -> bool {
    let mut kind: c_int = 0;
    // SAFETY: the attribute is one int, and `kind` is one. The address is looked up, not read.
    let code = unsafe { pointer_get_attribute((&raw mut kind).cast(), attribute::MEMORY_TYPE, address) };
    code == Code::INVALID_VALUE
}

pub(super) fn of(address: u64) -> Option<Memory> {
    const WANTED: [c_int; 8] = [
        attribute::CONTEXT,
        attribute::MEMORY_TYPE,
        attribute::IS_MANAGED,
        attribute::DEVICE_ORDINAL,
        attribute::IS_LEGACY_CUDA_IPC_CAPABLE,
        attribute::RANGE_START_ADDR,
        attribute::RANGE_SIZE,
        attribute::MEMPOOL_HANDLE,
    ];
    let query = |count: usize| {
        let mut values = [0u64; WANTED.len()];
        let mut places = values.each_mut().map(|value| ptr::from_mut(value).cast::<c_void>());
        // SAFETY: each attribute is at most 8 bytes, and so is its place. The address is looked up, not read.
        let code = unsafe { pointer_get_attributes(count as c_uint, WANTED.as_ptr(), places.as_mut_ptr(), address) };
        (code == Code::SUCCESS).then_some(values)
    };
    // Drivers before 11.3 know no pools.
    let [context, kind, is_managed, device, is_own, start, bytes, pool] =
        query(WANTED.len()).or_else(|| query(WANTED.len() - 1))?;
    let (kind, device) = (kind as u32, device as u32 as i32);
    let holder = match (context as usize, pool as usize) {
        _ if kind == MEMORYTYPE_HOST => Holder::Host,
        _ if kind != MEMORYTYPE_DEVICE => return None,
        _ if is_managed as u32 & 1 != 0 => Holder::Foreign,
        (_, pool) if pool != 0 => Holder::Pool(pool),
        (0, _) => Holder::Mapped,
        // Memory of another process, whose device is not the one that the driver names.
        (context, _) if is_own as u32 & 1 == 0 && has_legacy_ipc(context, device) => Holder::Opened,
        (context, _) => Holder::Context(context),
    };
    Some(Memory { range: (start, bytes), device, holder })
}

/// Whether memory of a device can be shared by legacy IPC at all. Where it cannot (virtual GPUs, WSL), no memory is said to be, and none is
/// another process's. Memory of our own tells: once for each device, and only where any was said not to be.
fn has_legacy_ipc(context: usize, device: i32) -> bool {
    static ASKED: AtomicU64 = AtomicU64::new(0);
    static LACKED: AtomicU64 = AtomicU64::new(0);
    const BYTES: usize = 4096;
    let Some(bit) = u32::try_from(device).ok().and_then(|device| 1u64.checked_shl(device)) else { return true };
    if ASKED.load(Acquire) & bit == 0 {
        // An allocation would end a capture.
        if captures::may_be_under_way() {
            return true;
        }
        // It is never freed: that would wait for the device.
        // SAFETY: the function writes the place.
        let take = || contexts::within(context, || asked(|address| unsafe { mem_alloc(address, BYTES) }));
        let Ok(own) = take() else { return true };
        if pointer_flag(attribute::IS_LEGACY_CUDA_IPC_CAPABLE, own) == Some(false) {
            LACKED.fetch_or(bit, Relaxed);
        }
        ASKED.fetch_or(bit, Release);
    }
    LACKED.load(Relaxed) & bit == 0
}

/// An attribute of a pointer that is one byte.
fn pointer_flag(attribute: c_int, address: u64) -> Option<bool> {
    pointer_word(attribute, address).map(|value| value & 1 != 0)
}

/// An attribute of a pointer, of at most 8 bytes.
fn pointer_word(attribute: c_int, address: u64) -> Option<u64> {
    let mut value = 0u64;
    // SAFETY: the attribute is at most 8 bytes. The address is looked up, not read.
    let code = unsafe { pointer_get_attribute((&raw mut value).cast(), attribute, address) };
    (code == Code::SUCCESS).then_some(value)
}

/// The device of physical memory, which may not be visible.
pub(super) fn location(physical: usize) -> Option<i32> {
    // SAFETY: plain integers, for which zero is a value.
    let mut properties: AllocationProp = unsafe { zeroed() };
    // SAFETY: the function writes the properties. The handle is of memory that the program has just exported or imported.
    let code = unsafe { mem_get_allocation_properties(&mut properties, physical) };
    properties.location.device_id().filter(|_| code == Code::SUCCESS)
}

/// The mapping at an address: its first address, and its bytes.
pub(super) fn mapping(address: u64) -> Option<(u64, u64)> {
    pointer_word(attribute::MAPPING_BASE_ADDR, address).zip(pointer_word(attribute::MAPPING_SIZE, address))
}

pub(crate) fn set_rights(pool: usize, grants: &[AccessDesc]) -> Code {
    // SAFETY: so many descriptors are there; the pool is the program's argument.
    unsafe { mem_pool_set_access(pool, grants.as_ptr(), grants.len()) }
}
