//! Kernels and variables of programs that nvcc has built: what their start registers, and launches.
//!
//! As with NVIDIA's runtime nothing reaches the driver before a kernel or variable is used: then its binary is loaded as a library.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{CString, c_char};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use super::copies::copy;
use super::require;
use crate::abi::{In, Opaque, Out};
use crate::driver::{DefaultStream, Driver};
use crate::entry::api;
use crate::error::{Error, Result};
use crate::thread;

/// `dim3`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Dim3([u32; 3]);

/// `cudaLaunchConfig_t`, without its attributes.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Configuration {
    grid: Dim3,
    block: Dim3,
    shared: u64,
    stream: u64,
}

/// All that a program has registered.
#[derive(Default)]
struct Registered {
    /// The libraries of binaries that were loaded, by the addresses of the images.
    libraries: HashMap<u64, u64>,
    /// Binary and name of each kernel, by the address of the function that stands for it.
    kernels: HashMap<u64, (u64, CString)>,
    /// Binary and size of each variable, by its address in the program.
    variables: HashMap<u64, (u64, u64)>,
    /// Where variables are, by address in the program and device.
    places: HashMap<(u64, i32), u64>,
}

static REGISTERED: LazyLock<Mutex<Registered>> = LazyLock::new(Mutex::default);

thread_local! {
    /// The shape of a launch of which the program has not yet said the kernel.
    static CONFIGURED: Cell<Option<(Dim3, Dim3, u64, u64)>> = const { Cell::new(None) };
}

fn registered() -> MutexGuard<'static, Registered> {
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The driver's kernel that a function of the program stands for.
fn kernel(driver: &Driver, function: u64) -> Result<u64> {
    let mut registered = registered();
    let (image, name) = registered.kernels.get(&function).ok_or(Error::INVALID_HANDLE)?.clone();
    let library = match registered.libraries.get(&image) {
        Some(library) => *library,
        None => {
            let mut library = 0;
            let none = Opaque::NULL;
            driver.cuLibraryLoadData(&raw mut library, image, none, none, 0, none, none, 0)?;
            registered.libraries.insert(image, library);
            library
        }
    };
    let mut kernel = 0;
    driver.cuLibraryGetKernel(&raw mut kernel, library, name.as_ptr())?;
    Ok(kernel)
}

/// Where a variable is in the memory of the current device.
fn place(driver: &Driver, variable: u64) -> Result<(u64, u64)> {
    thread::bind(driver)?;
    let device = thread::device(driver)?;
    let mut registered = registered();
    let (_, size) = *registered.variables.get(&variable).ok_or(Error::INVALID_SYMBOL)?;
    if let Some(place) = registered.places.get(&(variable, device)) {
        return Ok((*place, size));
    }
    let mut place = 0;
    driver.cuMemAlloc(&raw mut place, size)?;
    driver.cuMemsetD8(DefaultStream::Legacy, place, 0, size)?;
    registered.places.insert((variable, device), place);
    Ok((place, size))
}

/// Where some bytes of a variable are.
fn part(driver: &Driver, variable: u64, count: u64, offset: u64) -> Result<u64> {
    let (place, size) = place(driver, variable)?;
    require(offset.checked_add(count).is_some_and(|end| end <= size))?;
    Ok(place + offset)
}

fn launch(
    driver: &Driver,
    default: DefaultStream,
    kernel: u64,
    Configuration { grid: Dim3(grid), block: Dim3(block), shared, stream }: Configuration,
    arguments: Opaque,
) -> Result<()> {
    let [grid_x, grid_y, grid_z] = grid;
    let [block_x, block_y, block_z] = block;
    let (shared, none) = (shared as u32, Opaque::NULL);
    driver.cuLaunchKernel(
        default, kernel, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, arguments, none,
    )
}

/// Registers a binary: the address of nvcc's reference to it, which the driver takes as an image too. It serves as the handle.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __cudaRegisterFatBinary(reference: u64) -> u64 {
    reference
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn __cudaRegisterFatBinaryEnd(_binary: u64) {}

/// Forgets what came with a binary. Its library stays: the process ends, or is about to unload the program's library.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __cudaUnregisterFatBinary(binary: u64) {
    let mut registered = registered();
    registered.kernels.retain(|_, (of, _)| *of != binary);
    registered.variables.retain(|_, (of, _)| *of != binary);
    registered.libraries.remove(&binary);
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn __cudaInitModule(_binary: u64) -> c_char {
    1
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn __cudaRegisterFunction(
    binary: u64,
    function: u64,
    _device_function: u64,
    name: In<c_char>,
    _limit: i32,
    _thread: Opaque,
    _block: Opaque,
    _block_shape: Opaque,
    _grid_shape: Opaque,
    _warp: Opaque,
) {
    let name = name.text().ok().and_then(|name| CString::new(name).ok()).unwrap_or_default();
    registered().kernels.insert(function, (binary, name));
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn __cudaRegisterVar(
    binary: u64,
    variable: u64,
    _address: u64,
    _name: In<c_char>,
    _is_external: i32,
    size: u64,
    _is_constant: i32,
    _is_global: i32,
) {
    registered().variables.insert(variable, (binary, size));
}

/// Managed memory is not simulated: the program's pointer to it stays NULL.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __cudaRegisterManagedVar(
    _binary: u64,
    _pointer: u64,
    _address: u64,
    _name: In<c_char>,
    _is_external: i32,
    _size: u64,
    _is_constant: i32,
    _is_global: i32,
) {
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn __cudaPushCallConfiguration(grid: Dim3, block: Dim3, shared: u64, stream: u64) -> u32 {
    CONFIGURED.set(Some((grid, block, shared, stream)));
    0
}

api! {
    fn __cudaPopCallConfiguration [_driver] (grid: Out<Dim3>, block: Out<Dim3>, shared: Out<u64>, stream: Out<u64>) {
        let last = CONFIGURED.take().ok_or(Error::INVALID_VALUE)?;
        grid.set(last.0);
        block.set(last.1);
        shared.set(last.2);
        stream.set(last.3);
        Ok(())
    }

    /// Launching it, and not asking for it, is what fails if the device has no image of it: the function stands for it then.
    fn __cudaGetKernel [driver] (out: Out<u64>, function: u64) {
        let out = out.required()?;
        out.set(match kernel(driver, function) {
            Err(Error::INVALID_HANDLE) => return Err(Error::INVALID_HANDLE),
            found => found.unwrap_or(function),
        });
        Ok(())
    }

    fn cudaGetKernel [driver] (out: Out<u64>, function: u64) {
        let out = out.required()?;
        out.set(kernel(driver, function)?);
        Ok(())
    }

    fn __cudaLaunchKernel | __cudaLaunchKernel_ptsz [driver, default] (
        known: u64,
        grid: Dim3,
        block: Dim3,
        arguments: Opaque,
        shared: u64,
        stream: u64,
    ) {
        thread::bind(driver)?;
        let is_function = registered().kernels.contains_key(&known);
        let kernel = if is_function { kernel(driver, known)? } else { known };
        launch(driver, default, kernel, Configuration { grid, block, shared, stream }, arguments)
    }

    fn cudaLaunchKernel | cudaLaunchKernel_ptsz [driver, default] (
        function: u64,
        grid: Dim3,
        block: Dim3,
        arguments: Opaque,
        shared: u64,
        stream: u64,
    ) {
        thread::bind(driver)?;
        launch(driver, default, kernel(driver, function)?, Configuration { grid, block, shared, stream }, arguments)
    }

    /// The attributes change nothing.
    fn cudaLaunchKernelExC | cudaLaunchKernelExC_ptsz [driver, default] (
        configuration: In<Configuration>,
        function: u64,
        arguments: Opaque,
    ) {
        thread::bind(driver)?;
        launch(driver, default, kernel(driver, function)?, configuration.read()?, arguments)
    }

    /// As many blocks of the kernel's threads as an H200 runs of a small one.
    fn cudaOccupancyMaxActiveBlocksPerMultiprocessor [driver] (blocks: Out<i32>, function: u64, threads: i32, _shared: u64) {
        const BLOCKS: i32 = 32;
        const THREADS: i32 = 2048;
        kernel(driver, function)?;
        require(threads > 0)?;
        blocks.required()?.set((THREADS / threads).min(BLOCKS));
        Ok(())
    }

    /// Returns the attributes of a small kernel.
    fn cudaFuncGetAttributes [driver] (attributes: Out<u64>, function: u64) {
        /// Threads of a block, registers, versions of PTX and code, how it caches, shared memory, and how much of the cache that is.
        const NUMBERS: [i32; 7] = [1024, 16, 90, 90, 0, 48 << 10, -1];
        kernel(driver, function)?;
        let sizes = attributes.required()?;
        (0..3).for_each(|index| sizes.set_nth(index, 0));
        let numbers = Out::at(sizes.address() + 24);
        NUMBERS.iter().enumerate().for_each(|(index, number)| numbers.set_nth(index, *number));
        Ok(())
    }

    fn cudaGetFuncBySymbol [driver] (out: Out<u64>, function: u64) {
        thread::bind(driver)?;
        let out = out.required()?;
        let mut found = 0;
        driver.cuKernelGetFunction(&raw mut found, kernel(driver, function)?)?;
        out.set(found);
        Ok(())
    }

    fn cudaFuncSetAttribute [driver] (function: u64, _attribute: u32, _value: i32) {
        kernel(driver, function).map(drop)
    }

    fn cudaGetSymbolAddress [driver] (address: Out<u64>, variable: u64) {
        let address = address.required()?;
        address.set(place(driver, variable)?.0);
        Ok(())
    }

    fn cudaGetSymbolSize [driver] (size: Out<u64>, variable: u64) {
        let size = size.required()?;
        size.set(place(driver, variable)?.1);
        Ok(())
    }

    fn cudaMemcpyToSymbol | cudaMemcpyToSymbol_ptds [driver, default] (
        variable: u64,
        src: u64,
        count: u64,
        offset: u64,
        kind: u32,
    ) {
        copy(driver, default, part(driver, variable, count, offset)?, src, count, kind)
    }

    fn cudaMemcpyFromSymbol | cudaMemcpyFromSymbol_ptds [driver, default] (
        dst: u64,
        variable: u64,
        count: u64,
        offset: u64,
        kind: u32,
    ) {
        copy(driver, default, dst, part(driver, variable, count, offset)?, count, kind)
    }
}
