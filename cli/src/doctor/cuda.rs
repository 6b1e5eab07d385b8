//! The few functions of the driver that the verification calls, loaded by name: the library path decides whose they are.
//! docs/dev/decisions/cudarc.md says why not by cudarc; its declarations check ours.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use libloading::Library;
use p2pshim_host::machine;

use super::lines::Attributes;
use crate::shim::linkers_words;

pub(super) type Result<T> = std::result::Result<T, CudaError>;

/// A device, as the driver names it.
pub(super) type Device = c_int;
/// An address of device memory.
pub(super) type Address = u64;

/// `CU_DEVICE_ATTRIBUTE_COMPUTE_MODE`.
const COMPUTE_MODE: c_int = 20;
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR`.
const CAPABILITY_MAJOR: c_int = 75;
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR`.
const CAPABILITY_MINOR: c_int = 76;
/// `CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK`.
const RANK: c_int = 1;
/// `CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED`.
const ATOMICS: c_int = 3;
/// `CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED`.
const ARRAYS: c_int = 4;
/// `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`.
const ALREADY_ENABLED: c_int = 704;
/// `CUDA_ERROR_PEER_ACCESS_NOT_ENABLED`.
const NOT_ENABLED: c_int = 705;
/// `CUDA_ERROR_NOT_READY`.
const NOT_READY: c_int = 600;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(super) const OUT_OF_MEMORY: c_int = 2;
/// `CUDA_ERROR_NOT_SUPPORTED`: also what a function returns that this driver lacks.
const NOT_SUPPORTED: c_int = 801;
/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: c_uint = 1;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $($(#[$doc])* #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)] pub(super) struct $name(usize);)*
    };
}

handles! {
    /// A context.
    Context;
    /// A stream.
    Stream;
    /// A module of a context.
    Module;
    /// A function of a module.
    Function;
    /// An event that keeps the time.
    Event;
}

#[cfg(test)]
macro_rules! inferred {
    ($argument:ty) => {
        _
    };
}

/// The functions, by their exported names.
macro_rules! functions {
    ($($symbol:ident($($argument:ty),* $(,)?);)*) => {
        #[expect(non_snake_case, reason = "the vendor's names")]
        pub(super) struct Functions {
            $($symbol: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        /// Each with our signature and cudarc's.
        #[cfg(test)]
        fn signatures() -> Vec<(&'static str, &'static str, &'static str)> {
            use cudarc::driver::sys;
            vec![$((
                stringify!($symbol),
                std::any::type_name::<unsafe extern "C" fn($($argument),*) -> c_int>(),
                std::any::type_name_of_val(&(sys::$symbol as unsafe fn($(inferred!($argument)),*) -> _)),
            )),*]
        }

        impl Functions {
            /// # Errors
            /// The function that is missing.
            pub(super) fn load(library: &libloading::Library) -> std::result::Result<Self, libloading::Error> {
                Ok(Self {
                    $($symbol: {
                        let name = concat!(stringify!($symbol), "\0");
                        // SAFETY: the type is that of the driver's documentation.
                        *unsafe { library.get::<unsafe extern "C" fn($($argument),*) -> c_int>(name.as_bytes()) }?
                    },)*
                })
            }
        }
    };
}

/// Calls a function and turns its code into a result.
macro_rules! call {
    ($driver:expr, $symbol:ident($($argument:expr),* $(,)?)) => {{
        let driver: &Driver = $driver;
        // SAFETY: every method here hands over pointers to locals of the documented types, and handles and addresses
        // that the driver gave it.
        let code = unsafe { (driver.functions.$symbol)($($argument),*) };
        driver.check(stringify!($symbol), code)
    }};
}

/// Calls a function that not every driver has.
macro_rules! call_optional {
    ($driver:expr, $group:ident.$symbol:ident($($argument:expr),* $(,)?)) => {{
        let driver: &Driver = $driver;
        match &driver.$group {
            // SAFETY: as above.
            Some(functions) => driver.check(stringify!($symbol), unsafe { (functions.$symbol)($($argument),*) }),
            None => driver.check(stringify!($symbol), super::NOT_SUPPORTED),
        }
    }};
}

mod error;
mod graphs;
mod instances;
mod mapping;
mod pools;
mod sharing;

pub(super) use error::CudaError;
pub(super) use sharing::Handle;

functions! {
    cuInit(c_uint);
    cuDriverGetVersion(*mut c_int);
    cuGetErrorName(c_int, *mut *const c_char);
    cuDeviceGetCount(*mut c_int);
    cuDeviceGet(*mut Device, c_int);
    cuDeviceGetName(*mut c_char, c_int, Device);
    cuDeviceGetPCIBusId(*mut c_char, c_int, Device);
    cuDeviceGetUuid(*mut [u8; 16], Device);
    cuDeviceGetAttribute(*mut c_int, c_int, Device);
    cuDeviceCanAccessPeer(*mut c_int, Device, Device);
    cuDeviceGetP2PAttribute(*mut c_int, c_int, Device, Device);
    cuDevicePrimaryCtxRetain(*mut usize, Device);
    cuCtxSetCurrent(usize);
    cuCtxSynchronize();
    cuCtxEnablePeerAccess(usize, c_uint);
    cuCtxDisablePeerAccess(usize);
    cuMemAlloc_v2(*mut Address, usize);
    cuMemFree_v2(Address);
    cuMemGetInfo_v2(*mut usize, *mut usize);
    cuMemcpyHtoD_v2(Address, *const c_void, usize);
    cuMemcpyDtoH_v2(*mut c_void, Address, usize);
    cuMemcpyPeerAsync(Address, usize, Address, usize, usize, usize);
    cuMemcpyDtoDAsync_v2(Address, Address, usize, usize);
    cuStreamCreate(*mut usize, c_uint);
    cuStreamSynchronize(usize);
    cuStreamQuery(usize);
    cuEventCreate(*mut usize, c_uint);
    cuEventRecord(usize, usize);
    cuEventElapsedTime(*mut f32, usize, usize);
    cuEventDestroy_v2(usize);
    cuModuleLoadData(*mut usize, *const c_void);
    cuModuleGetFunction(*mut usize, usize, *const c_char);
    cuLaunchKernel(
        usize, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, usize, *mut *mut c_void, *mut *mut c_void,
    );
}

/// The driver.
pub(super) struct Driver {
    functions: Functions,
    sharing: Option<sharing::Functions>,
    mapping: Option<mapping::Functions>,
    instances: Option<instances::Functions>,
    pools: Option<pools::Functions>,
    graphs: Option<graphs::Functions>,
}

impl Driver {
    /// Loads the driver and starts it.
    ///
    /// # Errors
    /// A sentence for the user.
    pub(super) fn start() -> std::result::Result<Self, String> {
        const NAME: &str = "libcuda.so.1";
        // SAFETY: it is the driver, or what the library path puts in its place.
        let library = unsafe { Library::new(NAME) }.map_err(|error| {
            let words = linkers_words(&error);
            format!("{words}. Is NVIDIA's driver installed? In a container, was it started with access to the GPUs?")
        })?;
        let functions = Functions::load(&library)
            .map_err(|error| format!("{}: this driver is too old; 9.2 or newer is required", linkers_words(&error)))?;
        let (sharing, mapping) = (sharing::Functions::load(&library).ok(), mapping::Functions::load(&library).ok());
        let instances = instances::Functions::load(&library).ok();
        let (pools, graphs) = (pools::Functions::load(&library).ok(), graphs::Functions::load(&library).ok());
        // Its threads may outlive whatever we do.
        std::mem::forget(library);
        let driver = Self { functions, sharing, mapping, instances, pools, graphs };
        call!(&driver, cuInit(0)).map_err(|error| error.to_string())?;
        Ok(driver)
    }

    fn check(&self, function: &'static str, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let mut name: *const c_char = std::ptr::null();
        // SAFETY: the function stores a pointer to a text of its own, or NULL.
        unsafe { (self.functions.cuGetErrorName)(code, &mut name) };
        let name = if name.is_null() {
            "an error without a name".to_owned()
        } else {
            // SAFETY: it is a C string that is never freed.
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
        };
        Err(CudaError { function, code, name })
    }

    /// The CUDA version of the driver, as the API writes it.
    pub(super) fn version(&self) -> Result<c_int> {
        let mut version = 0;
        call!(self, cuDriverGetVersion(&mut version))?;
        Ok(version)
    }

    /// All devices, in the order of their ordinals.
    pub(super) fn devices(&self) -> Result<Vec<Device>> {
        let mut count = 0;
        call!(self, cuDeviceGetCount(&mut count))?;
        (0..count)
            .map(|ordinal| {
                let mut device = 0;
                call!(self, cuDeviceGet(&mut device, ordinal))?;
                Ok(device)
            })
            .collect()
    }

    /// A device's name.
    pub(super) fn name(&self, device: Device) -> Result<String> {
        let mut text = [0; 256];
        call!(self, cuDeviceGetName(text.as_mut_ptr(), text.len() as c_int, device))?;
        Ok(from_c(&text))
    }

    /// Whether the devices are simulated: all are or none is.
    pub(super) fn is_simulated(&self, devices: &[Device]) -> bool {
        devices.first().is_some_and(|&device| self.name(device).is_ok_and(|name| name == machine::SIMULATED_NAME))
    }

    /// A device's place on the PCI bus, as sysfs writes it.
    pub(super) fn bus_id(&self, device: Device) -> Result<String> {
        let mut text = [0; 32];
        call!(self, cuDeviceGetPCIBusId(text.as_mut_ptr(), text.len() as c_int, device))?;
        Ok(from_c(&text).to_ascii_lowercase())
    }

    /// A device's UUID, as `CUDA_VISIBLE_DEVICES` takes it.
    pub(super) fn uuid(&self, device: Device) -> Result<String> {
        let mut of_gpu = [0; 16];
        call!(self, cuDeviceGetUuid(&mut of_gpu, device))?;
        let bytes = self.instance(device).unwrap_or(of_gpu);
        let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut text = if bytes == of_gpu { "GPU" } else { "MIG" }.to_owned();
        let mut rest = digits.as_slice();
        for length in [4, 2, 2, 2, 6] {
            let (group, others) = rest.split_at_checked(length).unwrap_or((rest, &[]));
            text = format!("{text}-{}", group.concat());
            rest = others;
        }
        Ok(text)
    }

    /// A device's compute capability: major, minor.
    pub(super) fn capability(&self, device: Device) -> Result<(c_int, c_int)> {
        let attribute = |number| {
            let mut value = 0;
            call!(self, cuDeviceGetAttribute(&mut value, number, device))?;
            Ok(value)
        };
        Ok((attribute(CAPABILITY_MAJOR)?, attribute(CAPABILITY_MINOR)?))
    }

    /// Whether any number of processes may use a device: else one more would take it from a program.
    pub(super) fn is_for_all(&self, device: Device) -> Result<bool> {
        let mut mode = 0;
        call!(self, cuDeviceGetAttribute(&mut mode, COMPUTE_MODE, device))?;
        Ok(mode == 0)
    }

    /// Whether the hardware lets a device reach another's memory.
    pub(super) fn can_access(&self, device: Device, peer: Device) -> Result<bool> {
        let mut can = 0;
        call!(self, cuDeviceCanAccessPeer(&mut can, device, peer))?;
        Ok(can != 0)
    }

    /// The driver's attributes of a pair.
    pub(super) fn attributes(&self, device: Device, peer: Device) -> Result<Attributes> {
        let attribute = |number| {
            let mut value = 0;
            call!(self, cuDeviceGetP2PAttribute(&mut value, number, device, peer))?;
            Ok(value)
        };
        Ok(Attributes { rank: attribute(RANK)?, atomics: attribute(ATOMICS)? != 0, arrays: attribute(ARRAYS)? != 0 })
    }

    /// A device's primary context, which is new in a process that has just started.
    pub(super) fn context(&self, device: Device) -> Result<Context> {
        let mut context = 0;
        call!(self, cuDevicePrimaryCtxRetain(&mut context, device))?;
        Ok(Context(context))
    }

    /// Makes a context the calling thread's.
    pub(super) fn enter(&self, context: Context) -> Result<()> {
        call!(self, cuCtxSetCurrent(context.0))
    }

    /// Waits for all work of a context.
    pub(super) fn synchronize(&self, context: Context) -> Result<()> {
        self.enter(context)?;
        call!(self, cuCtxSynchronize())
    }

    /// Lets a context reach the memory of another, if it does not yet.
    pub(super) fn enable(&self, context: Context, peer: Context) -> Result<()> {
        self.enter(context)?;
        match call!(self, cuCtxEnablePeerAccess(peer.0, 0)) {
            Err(error) if error.code == ALREADY_ENABLED => Ok(()),
            result => result,
        }
    }

    /// Takes that back.
    pub(super) fn disable(&self, context: Context, peer: Context) -> Result<()> {
        self.enter(context)?;
        match call!(self, cuCtxDisablePeerAccess(peer.0)) {
            Err(error) if error.code == NOT_ENABLED => Ok(()),
            result => result,
        }
    }

    /// Memory of a context.
    pub(super) fn allocate(&self, context: Context, bytes: usize) -> Result<Address> {
        self.enter(context)?;
        let mut address = 0;
        call!(self, cuMemAlloc_v2(&mut address, bytes))?;
        Ok(address)
    }

    /// How much memory of a context's device is free, and how much there is.
    pub(super) fn memory(&self, context: Context) -> Result<(usize, usize)> {
        self.enter(context)?;
        let (mut free, mut total) = (0, 0);
        call!(self, cuMemGetInfo_v2(&mut free, &mut total))?;
        Ok((free, total))
    }

    /// Gives memory back.
    pub(super) fn free(&self, context: Context, address: Address) -> Result<()> {
        self.enter(context)?;
        call!(self, cuMemFree_v2(address))
    }

    /// Writes to memory of a context, by that context.
    pub(super) fn write(&self, context: Context, address: Address, bytes: &[u8]) -> Result<()> {
        self.enter(context)?;
        call!(self, cuMemcpyHtoD_v2(address, bytes.as_ptr().cast(), bytes.len()))
    }

    /// Reads from memory of a context, by that context.
    pub(super) fn read(&self, context: Context, address: Address, bytes: &mut [u8]) -> Result<()> {
        self.enter(context)?;
        call!(self, cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), address, bytes.len()))
    }

    /// A stream of a context, ordered with no other.
    pub(super) fn stream(&self, context: Context) -> Result<Stream> {
        self.enter(context)?;
        let mut stream = 0;
        call!(self, cuStreamCreate(&mut stream, NON_BLOCKING))?;
        Ok(Stream(stream))
    }

    /// Copies from one context's memory to another's, on a stream of the context that is current.
    pub(super) fn copy(
        &self,
        (to, to_context): (Address, Context),
        (from, from_context): (Address, Context),
        bytes: usize,
        stream: Stream,
    ) -> Result<()> {
        call!(self, cuMemcpyPeerAsync(to, to_context.0, from, from_context.0, bytes, stream.0))
    }

    /// Copies between memory that the context that is current can access.
    pub(super) fn copy_unified(&self, to: Address, from: Address, bytes: usize, stream: Stream) -> Result<()> {
        call!(self, cuMemcpyDtoDAsync_v2(to, from, bytes, stream.0))
    }

    /// Whether a stream of the context that is current has done all its work.
    pub(super) fn is_done(&self, stream: Stream) -> Result<bool> {
        match call!(self, cuStreamQuery(stream.0)) {
            Ok(()) => Ok(true),
            Err(error) if error.code == NOT_READY => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Waits for a stream of the context that is current.
    pub(super) fn wait(&self, stream: Stream) -> Result<()> {
        call!(self, cuStreamSynchronize(stream.0))
    }

    /// An event of the context that is current.
    pub(super) fn event(&self) -> Result<Event> {
        let mut event = 0;
        call!(self, cuEventCreate(&mut event, 0))?;
        Ok(Event(event))
    }

    /// Has a stream note when it comes to an event.
    pub(super) fn record(&self, event: Event, stream: Stream) -> Result<()> {
        call!(self, cuEventRecord(event.0, stream.0))
    }

    /// Milliseconds from one event to another, both of which streams have come to.
    pub(super) fn elapsed(&self, begin: Event, end: Event) -> Result<f64> {
        let mut millis = 0.0;
        call!(self, cuEventElapsedTime(&mut millis, begin.0, end.0))?;
        Ok(f64::from(millis))
    }

    pub(super) fn destroy(&self, event: Event) -> Result<()> {
        call!(self, cuEventDestroy_v2(event.0))
    }

    /// Loads kernels into a context.
    pub(super) fn module(&self, context: Context, ptx: &CStr) -> Result<Module> {
        self.enter(context)?;
        let mut module = 0;
        call!(self, cuModuleLoadData(&mut module, ptx.as_ptr().cast()))?;
        Ok(Module(module))
    }

    /// A kernel of a module.
    pub(super) fn function(&self, context: Context, module: Module, entry_point: &CStr) -> Result<Function> {
        self.enter(context)?;
        let mut function = 0;
        call!(self, cuModuleGetFunction(&mut function, module.0, entry_point.as_ptr()))?;
        Ok(Function(function))
    }

    /// Runs a kernel, which takes two addresses and a number, on a stream of the context that is current.
    pub(super) fn launch(
        &self,
        kernel: Function,
        (to, from, words): (Address, Address, u64),
        stream: Stream,
    ) -> Result<()> {
        const BLOCKS: c_uint = 64;
        const THREADS: c_uint = 256;
        let (mut to, mut from, mut words) = (to, from, words);
        let mut arguments: [*mut c_void; 3] = [(&raw mut to).cast(), (&raw mut from).cast(), (&raw mut words).cast()];
        let (arguments, no_extra) = (arguments.as_mut_ptr(), std::ptr::null_mut());
        call!(self, cuLaunchKernel(kernel.0, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream.0, arguments, no_extra))
    }
}

/// A text that the driver wrote.
fn from_c(text: &[c_char]) -> String {
    text.iter().take_while(|&&byte| byte != 0).map(|&byte| char::from(byte as u8)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    use cudarc::driver::sys::{CUdevice_P2PAttribute, CUdevice_attribute, CUresult, CUstream_flags};

    /// The vendor's signature with our types.
    pub(super) fn plain(theirs: &str) -> String {
        let mut plain = theirs.replace("unsafe fn", "unsafe extern \"C\" fn").replace("cudarc::driver::sys::", "");
        for (theirs, ours) in [
            ("*mut CUctx_st", "usize"),
            ("*mut CUstream_st", "usize"),
            ("*mut CUmod_st", "usize"),
            ("*mut CUfunc_st", "usize"),
            ("*mut CUevent_st", "usize"),
            ("*mut CUgraphExec_st", "usize"),
            ("*mut CUgraph_st", "usize"),
            ("*mut CUmemPoolHandle_st", "usize"),
            ("CUstreamCaptureMode_enum", "u32"),
            ("CUuuid_st", "[u8; 16]"),
            ("CUdevice_attribute_enum", "i32"),
            ("CUdevice_P2PAttribute_enum", "i32"),
            ("cudaError_enum", "i32"),
        ] {
            plain = plain.replace(theirs, ours);
        }
        plain
    }

    #[test]
    fn signatures_are_those_of_the_vendor() {
        for (symbol, ours, theirs) in signatures() {
            assert_eq!(ours, plain(theirs), "{symbol}");
        }
    }

    #[test]
    fn numbers_are_those_of_the_vendor() {
        assert_eq!(CAPABILITY_MAJOR, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as c_int);
        assert_eq!(CAPABILITY_MINOR, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as c_int);
        assert_eq!(COMPUTE_MODE, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE as c_int);
        assert_eq!(RANK, CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK as c_int);
        assert_eq!(ATOMICS, CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED as c_int);
        assert_eq!(ARRAYS, CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED as c_int);
        assert_eq!(ALREADY_ENABLED, CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED as c_int);
        assert_eq!(NOT_ENABLED, CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED as c_int);
        assert_eq!(NOT_READY, CUresult::CUDA_ERROR_NOT_READY as c_int);
        assert_eq!(NOT_SUPPORTED, CUresult::CUDA_ERROR_NOT_SUPPORTED as c_int);
        assert_eq!(OUT_OF_MEMORY, CUresult::CUDA_ERROR_OUT_OF_MEMORY as c_int);
        assert_eq!(NON_BLOCKING, CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint);
    }
}
