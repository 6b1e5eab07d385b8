//! The few calls that the shim itself makes to the real HIP.
//!
//! A process may have several copies of it. The library of a call is the one that its real function lies in, and our own
//! calls about it go there.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::transmute;
use std::ptr;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::loader::{self, Wanted};
use super::{LazySymbol, asked, checked, downloaded, fill, is_ready};
use crate::api::abi::Code;
use crate::os::{self, pages};
use crate::policy::access::verify::WHOLE;
use crate::policy::driver::{Holder, Memory, Scratch, ScratchKind, Span, VerifyBackend};
use crate::policy::hip::{Hip, LIBRARIES};
use crate::policy::verdicts::Gpu;

/// Where a library that calls were forwarded to is in memory.
struct Image {
    start: AtomicUsize,
    end: AtomicUsize,
}

static IMAGES: [Image; LIBRARIES] =
    [const { Image { start: AtomicUsize::new(0), end: AtomicUsize::new(0) } }; LIBRARIES];

/// A copy of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Library {
    number: u8,
    real: *const c_void,
}

// SAFETY: the address is a function's, which is never given back.
unsafe impl Send for Library {}
// SAFETY: as above; nothing is written through it.
unsafe impl Sync for Library {}

impl Library {
    /// The library that a real function lies in, if calls of it were seen before.
    pub(crate) fn seen(real: *const c_void) -> Option<Self> {
        // The end is written last: until then nothing lies in it.
        let holds = |image: &Image| {
            let end = image.end.load(Acquire);
            (image.start.load(Relaxed)..end).contains(&(real as usize))
        };
        let number = IMAGES.iter().position(holds)?;
        Some(Self { number: number as u8, real })
    }

    /// The library that a real function lies in; none if there are more than are told apart.
    pub(crate) fn of(real: *const c_void) -> Option<Self> {
        if let Some(seen) = Self::seen(real) {
            return Some(seen);
        }
        let image = os::undisturbed(|| loader::image_of(real))?;
        let number = IMAGES.iter().position(|place| {
            match place.start.compare_exchange(0, image.start, Relaxed, Relaxed) {
                Ok(_) => place.end.store(image.end, Release),
                Err(start) if start != image.start => return false,
                Err(_) => {}
            }
            true
        })?;
        Some(Self { number: number as u8, real })
    }

    pub(crate) fn number(self) -> usize {
        self.number.into()
    }
}

/// A function of each copy of the runtime, looked for once.
struct Entry(&'static CStr, [LazySymbol; LIBRARIES]);

impl Entry {
    const fn new(name: &'static CStr) -> Self {
        Self(name, [const { LazySymbol::new() }; LIBRARIES])
    }

    fn get(&self, library: Library) -> Option<*mut c_void> {
        // As a caller in there would be bound: a library that wraps HIP has it among what it depends on.
        let wanted = Wanted { name: self.0, version: None };
        self.1.get(library.number())?.get(|| Some(wanted.in_scope_of(library.real).or_else(|| wanted.next_global())))
    }
}

/// Functions of HIP with their real signatures. A library that lacks one returns 302 for it.
macro_rules! hip_functions {
    ($($(#[$doc:meta])* fn $name:ident $symbol:literal ($($argument:ident: $type:ty),* $(,)?);)*) => { $(
        $(#[$doc])*
        /// # Safety
        /// Pointers point to what the function documents.
        unsafe fn $name(library: Library, $($argument: $type),*) -> Code {
            static ENTRY: Entry = Entry::new($symbol);
            let Some(function) = ENTRY.get(library) else { return Code::SHARED_OBJECT_SYMBOL_NOT_FOUND };
            // SAFETY: the entry holds what was looked up under that name.
            let function = unsafe { transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> Code>(function) };
            // SAFETY: the caller's.
            unsafe { function($($argument),*) }
        }
    )* };
}

hip_functions! {
    fn peek_at_last_error c"hipPeekAtLastError" ();
    fn get_last_error c"hipGetLastError" ();
    fn get_device c"hipGetDevice" (device: *mut c_int);
    fn set_device c"hipSetDevice" (device: c_int);
    fn get_device_count c"hipGetDeviceCount" (count: *mut c_int);
    fn device_can_access_peer c"hipDeviceCanAccessPeer" (can: *mut c_int, device: c_int, peer: c_int);
    fn device_enable_peer_access c"hipDeviceEnablePeerAccess" (peer: c_int, flags: c_uint);
    fn device_disable_peer_access c"hipDeviceDisablePeerAccess" (peer: c_int);
    fn mem_get_address_range c"hipMemGetAddressRange" (start: *mut usize, bytes: *mut usize, address: usize);
    fn pointer_get_attributes c"hipPointerGetAttributes" (attributes: *mut Attributes, address: usize);
    fn runtime_get_version c"hipRuntimeGetVersion" (version: *mut c_int);
    fn device_get_name c"hipDeviceGetName" (text: *mut c_char, length: c_int, device: c_int);
    fn device_get_uuid c"hipDeviceGetUuid" (uuid: *mut [u8; 16], device: c_int);
    fn device_get_pci_bus_id c"hipDeviceGetPCIBusId" (text: *mut c_char, length: c_int, device: c_int);
    fn device_get_p2p_attribute c"hipDeviceGetP2PAttribute" (value: *mut c_int, attribute: c_int, src: c_int, dst: c_int);
    fn malloc c"hipMalloc" (address: *mut usize, bytes: usize);
    fn host_malloc c"hipHostMalloc" (address: *mut usize, bytes: usize, flags: c_uint);
    fn stream_create_with_flags c"hipStreamCreateWithFlags" (stream: *mut usize, flags: c_uint);
    fn exchange_capture_mode c"hipThreadExchangeStreamCaptureMode" (mode: *mut c_uint);
    fn stream_query c"hipStreamQuery" (stream: usize);
    fn event_create_with_flags c"hipEventCreateWithFlags" (event: *mut usize, flags: c_uint);
    fn event_record c"hipEventRecord" (event: usize, stream: usize);
    fn event_destroy c"hipEventDestroy" (event: usize);
    fn stream_wait_event c"hipStreamWaitEvent" (stream: usize, event: usize, flags: c_uint);
    fn memcpy_async c"hipMemcpyAsync" (dst: usize, src: usize, bytes: usize, kind: c_int, stream: usize);
    fn memcpy_peer_async c"hipMemcpyPeerAsync" (
        dst: usize,
        dst_device: c_int,
        src: usize,
        src_device: c_int,
        bytes: usize,
        stream: usize,
    );
}

/// `hipPointerAttribute_t`, whose last fields are reserved.
#[derive(Clone, Copy)]
#[repr(C)]
struct Attributes {
    kind: c_int,
    device: c_int,
    device_pointer: usize,
    host_pointer: usize,
    is_managed: c_int,
    flags: c_uint,
    reserved: [u64; 8],
}

/// Succeeds and does nothing, in the place of a call that has nothing to do, with what success does to the last error. By
/// the same function it was found out that there is nothing to do, so the library has it.
pub(crate) fn succeed(library: Library) -> Code {
    let mut device = 0;
    // SAFETY: `device` is what the function writes.
    unsafe { get_device(library, &mut device) }
}

/// Has the library fail with a code, 101 or else 1, which becomes the thread's last error, by a call that does nothing else.
pub(crate) fn fail(library: Library, code: Code) -> Code {
    match code {
        // SAFETY: plain data.
        Code::INVALID_DEVICE => unsafe { set_device(library, -1) },
        // SAFETY: the function refuses NULL.
        _ => unsafe { get_device_count(library, ptr::null_mut()) },
    }
}

/// Takes memory, page-locked memory of the host, and streams, on the current device. Nothing of it is ever given back: that would
/// wait for the device.
fn take(
    library: Library,
    kind: ScratchKind,
    (context, context_id): (usize, u64),
    device: i32,
) -> Result<Scratch, Code> {
    /// `hipHostMallocPortable`: for all devices.
    const PORTABLE: c_uint = 1;
    /// `hipStreamNonBlocking`.
    const NON_BLOCKING: c_uint = 1;
    let bytes = 2 * WHOLE;
    // SAFETY: each function writes one value of the type of the place that it is given.
    let address = asked(|address| unsafe { malloc(library, address, bytes) })? as u64;
    // SAFETY: as above.
    let host = asked(|address| unsafe { host_malloc(library, address, 2 * bytes, PORTABLE) })?;
    pages::keep_from_children(host, 2 * bytes);
    // SAFETY: as above.
    let stream = || asked(|stream| unsafe { stream_create_with_flags(library, stream, NON_BLOCKING) });
    let (receives, stream, control) = (address + WHOLE as u64, stream()?, stream()?);
    Ok(Scratch { kind, context, context_id, device, address, receives, bytes, stream, control, pool: 0, host })
}

impl Library {
    /// Runs `work` on a device, which stays current.
    fn on<T>(self, device: i32, work: impl FnOnce() -> Result<T, Code>) -> Result<T, Code> {
        match self.make_current(device) {
            Code::SUCCESS => work(),
            code => Err(code),
        }
    }
}

impl Library {
    /// A new event of the current device, behind all that a stream has to do; none if there is an error already that the program has not read.
    pub(crate) fn record_event(self, stream: usize) -> Option<usize> {
        /// `hipEventDisableTiming`.
        const NO_TIMING: c_uint = 2;
        self.quietly(|| {
            // SAFETY: the function writes the place.
            let event = asked(|event| unsafe { event_create_with_flags(self, event, NO_TIMING) })?;
            // SAFETY: the event is ours, and the stream one on which the program has just queued something.
            checked(unsafe { event_record(self, event, stream) }).map(|()| event)
        })
    }

    /// Has a stream wait for an event of ours. Whether it does.
    pub(crate) fn wait_for_event(self, stream: usize, event: usize) -> bool {
        // SAFETY: the stream is one on which the program is about to queue something.
        self.quietly(|| checked(unsafe { stream_wait_event(self, stream, event, 0) })).is_some()
    }

    pub(crate) fn drop_event(self, event: usize) {
        // SAFETY: the event is ours, and nobody uses it any more.
        self.quietly(|| checked(unsafe { event_destroy(self, event) }));
    }

    /// Does something, unless the program has an error to read, and leaves it none.
    fn quietly<T>(self, work: impl FnOnce() -> Result<T, Code>) -> Option<T> {
        (self.last_error() == Some(Code::SUCCESS)).then_some(())?;
        work().inspect_err(|_| self.clear_last_error()).ok()
    }
}

impl VerifyBackend for Library {
    fn device_count(&self) -> i32 {
        // SAFETY: the function writes the place.
        asked(|count| unsafe { get_device_count(*self, count) }).unwrap_or(0)
    }

    fn upload(&self, to: &Scratch, bytes: &[u8]) -> Result<(), Code> {
        /// `hipMemcpyHostToDevice`.
        const HOST_TO_DEVICE: c_int = 1;
        let (dst, count) = (to.address as usize, fill(to, bytes));
        // SAFETY: both have that many bytes and are never freed.
        let copy = || unsafe { memcpy_async(*self, dst, to.host, count, HOST_TO_DEVICE, to.stream) };
        self.on(to.device, || checked(copy()))
    }

    fn send(&self, from: &Scratch, to: &Scratch, span: Span) -> Result<(), Code> {
        let (src, dst) = (from.address as usize + span.offset, to.receives as usize + span.offset);
        // SAFETY: the span lies in what either has.
        let copy = || unsafe { memcpy_peer_async(*self, dst, to.device, src, from.device, span.bytes, from.stream) };
        self.on(from.device, || checked(copy()))
    }

    fn download(&self, from: &Scratch, bytes: usize) -> Result<(), Code> {
        /// `hipMemcpyDeviceToHost`.
        const DEVICE_TO_HOST: c_int = 2;
        let (host, src, bytes) = (from.host + from.half(), from.receives as usize, bytes.min(from.half()));
        // SAFETY: as above.
        let copy = || unsafe { memcpy_async(*self, host, src, bytes, DEVICE_TO_HOST, from.stream) };
        self.on(from.device, || checked(copy()))
    }

    fn downloaded(&self, from: &Scratch, bytes: usize) -> Option<Vec<u8>> {
        downloaded(from, bytes)
    }

    fn is_done(&self, scratch: &Scratch) -> Result<bool, Code> {
        // SAFETY: the stream is ours and is never destroyed.
        is_ready(unsafe { stream_query(*self, scratch.stream) })
    }

    fn can_access(&self, device: i32, peer: i32) -> Result<bool, Code> {
        // SAFETY: the function writes the place.
        asked(|can| unsafe { device_can_access_peer(*self, can, device, peer) }).map(|can| can != 0)
    }

    fn relaxed<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        // SAFETY: the function swaps the calling thread's mode with `mode`.
        let exchange = |mode: &mut c_uint| unsafe { exchange_capture_mode(*self, mode) };
        // Without it nothing can be exchanged; no capture is known to be under way.
        super::relaxed(exchange, |code| code == Code::SHARED_OBJECT_SYMBOL_NOT_FOUND, work)
    }

    fn scratch(&self, kind: ScratchKind, context: (usize, u64), device: i32) -> Result<Scratch, Code> {
        self.on(device, || take(*self, kind, context, device))
    }

    /// The UUID is as `rocm-smi` writes it.
    fn gpu(&self, device: i32) -> Option<Gpu> {
        type TextOf = unsafe fn(Library, *mut c_char, c_int, c_int) -> Code;
        let text = |ask: TextOf| {
            let mut text = [0u8; 256];
            // SAFETY: the function writes a text with a NUL of at most that length.
            let code = unsafe { ask(*self, text.as_mut_ptr().cast(), text.len() as c_int, device) };
            let text = CStr::from_bytes_until_nul(&text).unwrap_or_default();
            if code == Code::SUCCESS { text.to_string_lossy().into_owned() } else { String::new() }
        };
        // SAFETY: the function writes the place.
        let uuid = asked(|uuid: &mut [u8; 16]| unsafe { device_get_uuid(*self, uuid, device) });
        // AMD's are sixteen digits.
        let uuid = uuid.map_or(String::new(), |uuid| match str::from_utf8(&uuid) {
            Ok(digits) if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => format!("GPU-{digits}"),
            _ => uuid.iter().fold("GPU-".to_owned(), |text, byte| text + &format!("{byte:02x}")),
        });
        Some(Gpu { name: text(device_get_name), uuid, bus_id: text(device_get_pci_bus_id) })
    }

    fn version(&self) -> Option<i32> {
        // SAFETY: the function writes the place.
        asked(|version| unsafe { runtime_get_version(*self, version) }).ok()
    }

    fn is_linked(&self, [device, peer]: [i32; 2]) -> bool {
        /// `hipDevP2PAttrNativeAtomicSupported`.
        const NATIVE_ATOMICS: c_int = 2;
        // SAFETY: the function writes the place.
        let atomics = asked(|value| unsafe { device_get_p2p_attribute(*self, value, NATIVE_ATOMICS, device, peer) });
        atomics == Ok(1)
    }

    fn is_readable(&self, address: u64) -> bool {
        // SAFETY: any byte is a number.
        unsafe { os::read(address as *const u8) }.is_ok()
    }
}

impl Hip for Library {
    fn last_error(&self) -> Option<Code> {
        // SAFETY: no arguments.
        let code = unsafe { peek_at_last_error(*self) };
        (code != Code::SHARED_OBJECT_SYMBOL_NOT_FOUND).then_some(code)
    }

    fn clear_last_error(&self) {
        // SAFETY: no arguments.
        unsafe { get_last_error(*self) };
    }

    fn keeps_last_error(&self) -> bool {
        self.version().is_none_or(|version| version >= FIRST_OF_7)
    }

    fn current_device(&self) -> Option<i32> {
        // SAFETY: the function writes the place.
        asked(|device| unsafe { get_device(*self, device) }).ok().filter(|&device| device >= 0)
    }

    fn make_current(&self, device: i32) -> Code {
        // SAFETY: the function takes a value.
        unsafe { set_device(*self, device) }
    }

    fn enable(&self, peer: i32) -> Code {
        // SAFETY: the function takes values.
        unsafe { device_enable_peer_access(*self, peer, 0) }
    }

    fn disable(&self, peer: i32) -> Code {
        // SAFETY: the function takes a value.
        unsafe { device_disable_peer_access(*self, peer) }
    }

    fn memory(&self, address: u64) -> Result<Option<Memory>, Code> {
        let address = address as usize;
        let (mut start, mut bytes) = (0, 0);
        // SAFETY: both are what the function writes. The address is looked up, not read.
        let code = unsafe { mem_get_address_range(*self, &mut start, &mut bytes, address) };
        if NOT_KNOWN.contains(&code) || (code == Code::SUCCESS && bytes == 0) {
            return Ok(None);
        }
        checked(code)?;
        let mut attributes = Attributes {
            kind: -1,
            device: -1,
            device_pointer: 0,
            host_pointer: 0,
            is_managed: 0,
            flags: 0,
            reserved: [0; 8],
        };
        // SAFETY: as above.
        let code = unsafe { pointer_get_attributes(*self, &mut attributes, address) };
        checked(code)?;
        let version = self.version().ok_or(Code::NOT_SUPPORTED)?;
        // `hipMemoryTypeHost`, `hipMemoryTypeDevice`: the numbers are others from 6.0 on.
        let [host, device] = if version < FIRST_OF_6 { [0, 1] } else { [1, 2] };
        let holder = match attributes.kind {
            kind if attributes.is_managed == 0 && kind == host => Holder::Host,
            kind if attributes.is_managed == 0 && kind == device => Holder::Context(0),
            _ => Holder::Foreign,
        };
        Ok(Some(Memory { range: (start as u64, bytes as u64), device: attributes.device, holder }))
    }
}

/// How `hipMemGetAddressRange` says that it does not know an address: `hipErrorInvalidValue`,
/// `hipErrorInvalidDevicePointer`, `hipErrorNotFound`, in one release or another.
const NOT_KNOWN: [Code; 3] = [Code::INVALID_VALUE, Code(17), Code(500)];

/// HIP 6.0 and 7.0 as `hipRuntimeGetVersion` counts.
const FIRST_OF_6: c_int = 60_000_000;
const FIRST_OF_7: c_int = 70_000_000;
