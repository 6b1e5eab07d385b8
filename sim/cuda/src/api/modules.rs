//! Modules, and launches of the kernels that are simulated.
//!
//! A module is PTX text, of which only the names of the entry points are read: what an entry point does follows from
//! its name.

use std::collections::HashMap;
use std::ffi::c_char;
use std::sync::{LazyLock, Mutex, PoisonError};

use p2psim_core::machine::{Entries, FunctionHandle, KernelHandle, LibraryHandle, ModuleHandle};
use p2psim_core::{Error, Kind, Machine, Result};

use super::require;
use crate::abi::{In, Opaque, Out};
use crate::entry::{api, machine, stream};

/// Most threads of a block.
const MAX_THREADS: u64 = 1024;

/// Bytes of a module's variable.
const GLOBAL_SIZE: u64 = 4 << 20;

/// Where the variables of modules are.
static GLOBALS: LazyLock<Mutex<HashMap<u64, u64>>> = LazyLock::new(Mutex::default);

/// The first bytes of compiled images: code for devices in a file (ELF), several in one, and nvcc's reference to those.
const COMPILED: [[u8; 4]; 3] = [*b"\x7fELF", 0xBA55_ED50_u32.to_le_bytes(), 0x4662_43B1_u32.to_le_bytes()];

/// The entry points of an image; none if it is no image.
fn entries(image: In<c_char>) -> Result<Entries> {
    let begins = |with: &[u8; 4]| {
        with.iter().enumerate().all(|(at, byte)| image.read_nth(at).is_ok_and(|found| found as u8 == *byte))
    };
    if COMPILED.iter().any(begins) {
        return Ok(Entries::Compiled);
    }
    entry_points(image.text()?).map(Entries::Text).ok_or(Error::INVALID_IMAGE)
}

/// The names of a PTX module's entry points; none if the text is not one.
fn entry_points(ptx: &str) -> Option<Vec<String>> {
    let code = ptx.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
    if !code.trim_start().starts_with(".version") {
        return None;
    }
    let name = |rest: &str| -> String {
        let is_part = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%');
        rest.trim_start().chars().take_while(is_part).collect()
    };
    Some(code.split(".entry").skip(1).map(name).collect())
}

/// The shape of a launch.
#[derive(Clone, Copy)]
struct Shape {
    grid: [u32; 3],
    block: [u32; 3],
}

impl Shape {
    fn check(self) -> Result<()> {
        require(self.grid.into_iter().chain(self.block).all(|length| length > 0))?;
        require(
            self.block.into_iter().map(u64::from).try_fold(1, u64::checked_mul).is_some_and(|all| all <= MAX_THREADS),
        )
    }
}

/// Reads the arguments of a kernel: addresses of values.
fn arguments(parameters: In<In<u64>>, count: usize) -> Result<Vec<u64>> {
    (0..count).map(|index| Ok(parameters.read_nth(index)?.read()?)).collect()
}

/// The variable of a module that is gone.
fn free_global(machine: &Machine, module: u64) -> Result<()> {
    let global = GLOBALS.lock().unwrap_or_else(PoisonError::into_inner).remove(&module);
    global.map_or(Ok(()), |address| machine.free(address, Kind::Device))
}

api! {
    /// A module of PTX text has the entry points that the text names. A compiled module has those that `P2PSIM_KERNELS` declares.
    fn cuModuleLoadData(module: Out<u64>, image: In<c_char>) {
        let machine = machine()?;
        let module = module.required()?;
        module.set(machine.load_module(entries(image)?)?.0);
        Ok(())
    }

    fn cuModuleUnload(module: u64) {
        let machine = machine()?;
        machine.unload_module(ModuleHandle(module))?;
        free_global(machine, module)
    }

    /// Each module has one variable, whatever it is called.
    fn cuModuleGetGlobal_v2(pointer: Out<u64>, size: Out<u64>, module: u64, _name: In<c_char>) {
        let machine = machine()?;
        let mut globals = GLOBALS.lock().unwrap_or_else(PoisonError::into_inner);
        let address = match globals.get(&module) {
            Some(&address) => address,
            None => machine.allocate(Kind::Device, GLOBAL_SIZE, 0)?,
        };
        globals.insert(module, address);
        pointer.set(address);
        size.set(GLOBAL_SIZE);
        Ok(())
    }

    fn cuModuleGetFunction(function: Out<u64>, module: u64, name: In<c_char>) {
        let machine = machine()?;
        let function = function.required()?;
        function.set(machine.module_function(ModuleHandle(module), name.text()?)?.0);
        Ok(())
    }

    /// Takes the same images. The options change nothing.
    fn cuLibraryLoadData(
        library: Out<u64>,
        code: In<c_char>,
        _options: Opaque,
        _option_values: Opaque,
        _option_count: u32,
        _library_options: Opaque,
        _library_values: Opaque,
        _library_option_count: u32,
    ) {
        let machine = machine()?;
        let library = library.required()?;
        let entries = match entries(code) {
            Err(Error::INVALID_IMAGE) => Entries::Unreadable,
            entries => entries?,
        };
        library.set(machine.load_library(entries)?.0);
        Ok(())
    }

    fn cuLibraryUnload(library: u64) {
        let machine = machine()?;
        let modules = machine.unload_library(LibraryHandle(library))?;
        modules.into_iter().try_for_each(|module| free_global(machine, module.0))
    }

    fn cuLibraryGetKernel(kernel: Out<u64>, library: u64, name: In<c_char>) {
        let machine = machine()?;
        let kernel = kernel.required()?;
        kernel.set(machine.library_kernel(LibraryHandle(library), name.text()?)?.0);
        Ok(())
    }

    fn cuLibraryGetModule(module: Out<u64>, library: u64) {
        let machine = machine()?;
        let module = module.required()?;
        module.set(machine.library_module(LibraryHandle(library))?.0);
        Ok(())
    }

    fn cuKernelGetFunction(function: Out<u64>, kernel: u64) {
        let machine = machine()?;
        let function = function.required()?;
        function.set(machine.kernel_function(KernelHandle(kernel))?.0);
        Ok(())
    }

    /// A kernel of a library is as good as a function, and is loaded if need be. Arguments packed into a buffer (`extra`) are not simulated.
    fn cuLaunchKernel | cuLaunchKernel_ptsz [default] (
        function: u64,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        _shared_bytes: u32,
        queue: u64,
        parameters: In<In<u64>>,
        extra: Out<Opaque>,
    ) {
        let machine = machine()?;
        machine.current_context()?;
        let of_library = machine.kernel_function(KernelHandle(function));
        let function = of_library.unwrap_or(FunctionHandle(function));
        let count = machine.kernel_parameters(function).ok_or(Error::INVALID_HANDLE)?;
        Shape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z] }.check()?;
        if extra.required().is_ok() {
            return Err(Error::NOT_SUPPORTED);
        }
        machine.launch(stream(queue, default), function, arguments(parameters, count)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_points_reads_names_and_nothing_else() {
        let ptx = "// a comment\n.version 6.3\n.target sm_75\n.visible .entry first(\n.param .u64 a)\n{ ret; }\n\
                   // .entry none\n.entry second_2 () { ret; }";
        assert_eq!(entry_points(ptx).unwrap(), ["first", "second_2"]);
        assert_eq!(entry_points(".version 6.3\n.target sm_75").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn entry_points_other_images_are_refused() {
        for image in ["", "\u{7f}ELF", ".entry first() {}"] {
            assert_eq!(entry_points(image), None);
        }
    }
}
