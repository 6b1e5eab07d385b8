//! Libraries: code that is of no context until one needs it, which then loads it as a module of its own.

use std::collections::HashMap;
use std::sync::Arc;

use super::kernels::{Entries, FUNCTION_HANDLES, MODULE_HANDLES, Module};
use super::{ContextId, FunctionHandle, KernelHandle, LibraryHandle, Machine, ModuleHandle, State};
use crate::current;
use crate::error::{Error, Result};
use crate::fence::{Fence, wait_all};

const LIBRARY_HANDLES: u64 = 0x505d_0000_0000;

/// A library of the process.
pub(super) struct Library {
    entries: Entries,
    /// The entry points that were asked for.
    kernels: HashMap<KernelHandle, String>,
    /// The module that was loaded for it in each context that has needed it.
    modules: HashMap<ContextId, ModuleHandle>,
}

impl Machine {
    /// Makes a library with these entry points known, and waits for nothing.
    pub fn load_library(&self, entries: impl Into<Entries>) -> Result<LibraryHandle> {
        let entries = entries.into();
        let mut state = self.lock();
        let handle = LibraryHandle(LIBRARY_HANDLES + state.number() * 0x10);
        state.libraries.insert(handle, Library { entries, kernels: HashMap::new(), modules: HashMap::new() });
        Ok(handle)
    }

    /// Makes a library unknown after all work of the contexts that have loaded it; the modules that it was there.
    pub fn unload_library(&self, handle: LibraryHandle) -> Result<Vec<ModuleHandle>> {
        let mut state = self.lock();
        state.captures.refuse_unseen(current::caller())?;
        let library = state.libraries.remove(&handle).ok_or(Error::INVALID_HANDLE)?;
        let tails: Vec<_> = library.modules.keys().flat_map(|context| state.work_of(*context)).collect();
        library.modules.values().for_each(|module| drop(state.modules.remove(module)));
        drop(state);
        wait_all(&tails);
        Ok(library.modules.into_values().collect())
    }

    /// An entry point of a library, of no context.
    pub fn library_kernel(&self, handle: LibraryHandle, name: &str) -> Result<KernelHandle> {
        let mut state = self.lock();
        let kernel = KernelHandle(FUNCTION_HANDLES + state.number() * 0x10);
        let library = state.libraries.get_mut(&handle).ok_or(Error::INVALID_HANDLE)?;
        self.kernel(&library.entries, name)?;
        let known = library.kernels.iter().find(|(_, known)| *known == name).map(|(kernel, _)| *kernel);
        library.kernels.entry(known.unwrap_or(kernel)).or_insert_with(|| name.to_owned());
        Ok(known.unwrap_or(kernel))
    }

    /// The module that a library is in the current context; loading it, the first time, waits for that context's work.
    pub fn library_module(&self, handle: LibraryHandle) -> Result<ModuleHandle> {
        let mut state = self.lock();
        let (module, tails) = state.module_of(handle)?;
        drop(state);
        wait_all(&tails);
        Ok(module)
    }

    /// The function that a kernel of a library is in the current context, loaded if need be.
    pub fn kernel_function(&self, kernel: KernelHandle) -> Result<FunctionHandle> {
        let of_it = {
            let state = self.lock();
            let mut libraries = state.libraries.iter();
            libraries.find_map(|(handle, library)| Some((*handle, library.kernels.get(&kernel)?.clone())))
        };
        let (library, name) = of_it.ok_or(Error::INVALID_HANDLE)?;
        self.module_function(self.library_module(library)?, &name)
    }
}

impl State {
    fn module_of(&mut self, handle: LibraryHandle) -> Result<(ModuleHandle, Vec<Arc<Fence>>)> {
        let context = self.current()?;
        let module = ModuleHandle(MODULE_HANDLES + self.number() * 0x10);
        let library = self.libraries.get(&handle).ok_or(Error::INVALID_HANDLE)?;
        let known = library.modules.get(&context).filter(|module| self.modules.contains_key(module));
        if let Some(known) = known {
            return Ok((*known, Vec::new()));
        }
        let entries = library.entries.clone();
        self.captures.refuse_unseen(current::caller())?;
        self.modules.insert(module, Module::new(context, entries));
        self.libraries.get_mut(&handle).ok_or(Error::UNKNOWN)?.modules.insert(context, module);
        Ok((module, self.work_of(context)))
    }
}
