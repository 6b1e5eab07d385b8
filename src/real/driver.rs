//! The few calls that the shim itself makes to the real driver.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::mem::transmute;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use super::loader::{self, Handle};
use crate::api::abi::{CUDA_MEMCPY3D_PEER, Code, MEMORYTYPE_DEVICE};
use crate::os;
use crate::policy::capture::Replacement;
use crate::policy::{Copied, Driver, PeerCopy};

/// A function of the driver, looked for once.
struct Entry {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Entry {
    const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(ptr::null_mut()) }
    }

    fn get(&self) -> Option<*mut c_void> {
        let mut found = self.found.load(Relaxed);
        if found.is_null() {
            found = os::undisturbed(|| {
                let looked_for = Handle::to_loaded(c"libcuda.so.1").and_then(|driver| driver.symbol(self.name));
                loader::forget_error();
                looked_for.filter(|&found| loader::pin(found))
            })?;
            self.found.store(found, Relaxed);
        }
        Some(found)
    }
}

/// The two forms of a function: with the legacy default stream, and with one per thread.
struct Forms {
    legacy: Entry,
    per_thread: Entry,
}

impl Forms {
    const fn new(legacy: &'static CStr, per_thread: &'static CStr) -> Self {
        Self { legacy: Entry::new(legacy), per_thread: Entry::new(per_thread) }
    }

    fn get(&self, per_thread: bool) -> Option<*mut c_void> {
        if per_thread { self.per_thread.get() } else { self.legacy.get() }
    }
}

static IS_CAPTURING: Forms = Forms::new(c"cuStreamIsCapturing", c"cuStreamIsCapturing_ptsz");
static MEMCPY_ASYNC: Forms = Forms::new(c"cuMemcpyAsync", c"cuMemcpyAsync_ptsz");
static MEMCPY_3D_ASYNC: Forms = Forms::new(c"cuMemcpy3DAsync_v2", c"cuMemcpy3DAsync_v2_ptsz");

/// The device that memory lives on, by the driver's own account; none for memory it does not know.
///
/// The query needs no context, waits for nothing and is allowed while a stream is being captured.
pub(crate) fn device_of(address: u64) -> Option<i32> {
    /// `CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL`.
    const DEVICE_ORDINAL: c_int = 9;
    pointer_attribute(DEVICE_ORDINAL, address).filter(|&device| device >= 0)
}

/// An attribute of a pointer that is one `int`.
fn pointer_attribute(attribute: c_int, address: u64) -> Option<c_int> {
    static POINTER_GET_ATTRIBUTE: Entry = Entry::new(c"cuPointerGetAttribute");
    type PointerGetAttribute = unsafe extern "C" fn(*mut c_void, c_int, u64) -> c_int;

    // SAFETY: the entry holds what was looked up under that name.
    let query = unsafe { transmute::<*mut c_void, PointerGetAttribute>(POINTER_GET_ATTRIBUTE.get()?) };
    let mut value: c_int = -1;
    // SAFETY: the attribute is one int, and `value` is one. The address is looked up, not read.
    let code = unsafe { query((&raw mut value).cast(), attribute, address) };
    (code == 0).then_some(value)
}

/// The driver of this process.
pub(crate) struct RealDriver;

impl Driver for RealDriver {
    fn is_capturing(&self, stream: usize, per_thread: bool) -> Option<bool> {
        type IsCapturing = unsafe extern "C" fn(usize, *mut c_uint) -> c_int;
        /// `CU_STREAM_CAPTURE_STATUS_ACTIVE`.
        const ACTIVE: c_uint = 1;

        // SAFETY: the entry holds what was looked up under that name.
        let query = unsafe { transmute::<*mut c_void, IsCapturing>(IS_CAPTURING.get(per_thread)?) };
        let mut status: c_uint = 0;
        // SAFETY: `status` is what the function writes. The stream is the program's own argument, which the real
        // function would get next.
        let code = unsafe { query(stream, &mut status) };
        (code == 0).then_some(status == ACTIVE)
    }

    fn is_device_memory(&self, address: u64) -> bool {
        /// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`.
        const MEMORY_TYPE: c_int = 2;
        pointer_attribute(MEMORY_TYPE, address).is_some_and(|kind| kind.cast_unsigned() == MEMORYTYPE_DEVICE)
    }
}

/// The function that makes a replacement, with its arguments. It has nothing to drop, so that it can be called outside
/// the panic fence.
#[derive(Clone, Copy)]
pub(crate) struct ReadyCopy {
    function: *mut c_void,
    copy: PeerCopy,
    /// What the log says of it.
    pub(crate) note: &'static str,
}

/// Finds the function for a replacement; none if the driver does not have it.
pub(crate) fn ready(replacement: &Replacement) -> Option<ReadyCopy> {
    let function = match replacement.copy.copied {
        Copied::Linear { .. } => MEMCPY_ASYNC.get(replacement.per_thread)?,
        Copied::Box(_) => MEMCPY_3D_ASYNC.get(replacement.per_thread)?,
    };
    Some(ReadyCopy { function, copy: replacement.copy, note: replacement.note() })
}

impl ReadyCopy {
    /// Makes the copy.
    ///
    /// # Safety
    /// What the peer copy asks of its caller.
    pub(crate) unsafe fn make(&self) -> Code {
        type MemcpyAsync = unsafe extern "C-unwind" fn(usize, usize, usize, usize) -> Code;
        type Memcpy3DAsync = unsafe extern "C-unwind" fn(*const CUDA_MEMCPY3D_PEER, usize) -> Code;
        let stream = self.copy.stream;
        // SAFETY: `ready` looked the function up under the name that goes with the copy. CUDA_MEMCPY3D has the layout
        // of CUDA_MEMCPY3D_PEER, with reserved words for the contexts.
        unsafe {
            match &self.copy.copied {
                &Copied::Linear { dst, src, bytes } => {
                    transmute::<*mut c_void, MemcpyAsync>(self.function)(dst, src, bytes, stream)
                }
                Copied::Box(parameters) => transmute::<*mut c_void, Memcpy3DAsync>(self.function)(parameters, stream),
            }
        }
    }
}
