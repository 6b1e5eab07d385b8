//! Modules, and launches of their kernels.
//!
//! Unlike a copy a kernel has no other way: what its context cannot reach is an illegal address, after which the
//! context answers nothing but that.

use std::sync::Arc;

use super::{ContextId, FunctionHandle, Machine, ModuleHandle, State, StreamRef};
use crate::access::NO_ACCESS;
use crate::current;
use crate::error::{Error, Result};
use crate::fault::Means;
use crate::fence::wait_all;
use crate::graph::Step;
use crate::kernel::{Kernel, KernelRun, Launch, Touch};
use crate::space::Owner;
use crate::traffic::Traffic;
use crate::transfer::{Memory, Piece};

pub(super) const MODULE_HANDLES: u64 = 0x505b_0000_0000;
pub(super) const FUNCTION_HANDLES: u64 = 0x505c_0000_0000;
/// Bytes of a word.
const WORD: u64 = 8;

/// A module of a context.
pub(super) struct Module {
    pub(super) context: ContextId,
    entries: Vec<String>,
    /// The kernels that were asked for.
    functions: Vec<(Kernel, FunctionHandle)>,
}

impl Module {
    pub(super) fn new(context: ContextId, entries: Vec<String>) -> Module {
        Module { context, entries, functions: Vec::new() }
    }

    fn kernel(&self, function: FunctionHandle) -> Option<Kernel> {
        self.functions.iter().find(|(_, known)| *known == function).map(|(kernel, _)| *kernel)
    }
}

impl Machine {
    /// Loads a module with these entry points into the current context; waits for all its work, as was measured.
    pub fn load_module(&self, entries: Vec<String>) -> Result<ModuleHandle> {
        let mut state = self.lock();
        let context = state.current()?;
        state.captures.refuse_unseen(current::caller())?;
        let handle = ModuleHandle(MODULE_HANDLES + state.number() * 0x10);
        state.modules.insert(handle, Module::new(context, entries));
        let tails = state.work_of(context);
        drop(state);
        wait_all(&tails);
        Ok(handle)
    }

    /// Makes a module unknown after all work of its context submitted so far.
    pub fn unload_module(&self, handle: ModuleHandle) -> Result<()> {
        let mut state = self.lock();
        state.current()?;
        state.captures.refuse_unseen(current::caller())?;
        let module = state.modules.remove(&handle).ok_or(Error::INVALID_HANDLE)?;
        let tails = state.work_of(module.context);
        drop(state);
        wait_all(&tails);
        Ok(())
    }

    /// An entry point of a module, if it is one that can run.
    pub fn module_function(&self, handle: ModuleHandle, name: &str) -> Result<FunctionHandle> {
        let mut state = self.lock();
        state.current()?;
        let function = FunctionHandle(FUNCTION_HANDLES + state.number() * 0x10);
        let module = state.modules.get_mut(&handle).ok_or(Error::INVALID_HANDLE)?;
        if !module.entries.iter().any(|entry| entry == name) {
            return Err(Error::NOT_FOUND);
        }
        let kernel = Kernel::named(name).ok_or(Error::NOT_SUPPORTED)?;
        if let Some((_, function)) = module.functions.iter().find(|(known, _)| *known == kernel) {
            return Ok(*function);
        }
        module.functions.push((kernel, function));
        Ok(function)
    }

    /// Whether a function can be launched.
    pub fn is_kernel(&self, function: FunctionHandle) -> bool {
        self.lock().modules.values().any(|module| module.kernel(function).is_some())
    }

    /// Runs a kernel on a stream of its context.
    pub fn launch(&self, stream: StreamRef, function: FunctionHandle, [to, from, words]: [u64; 3]) -> Result<()> {
        let mut state = self.lock();
        let stream = state.stream(stream)?;
        let mut modules = state.modules.values();
        let found = modules.find_map(|module| Some((module.context, module.kernel(function)?)));
        let (context, kernel) = found.filter(|(of, _)| *of == stream.context).ok_or(Error::INVALID_HANDLE)?;
        words.checked_mul(WORD).ok_or(Error::INVALID_VALUE)?;
        let step = Step::Kernel(Launch { kernel, context, to, from, words });
        if state.capture(&stream, &step)? {
            return Ok(());
        }
        state.run(&stream, &step).map(drop)
    }
}

impl State {
    /// Decides what the kernel will see of both sides.
    pub(super) fn plan_kernel(&mut self, launch: Launch) -> KernelRun {
        let Launch { kernel, context, to, from, words } = launch;
        let broken = self.contexts.get(&context).map(|context| Arc::clone(&context.broken)).unwrap_or_default();
        let [at_to, at_from] = kernel.reach(words);
        let stores = self.touch(context, to, at_to * WORD, kernel);
        let loads = self.touch(context, from, at_from * WORD, Kernel::Copy);
        let traffic = self.kernel_traffic(context, to, kernel);
        KernelRun { kernel, to, from, words, stores, loads, traffic, broken }
    }

    /// The counter of a kernel that copies to another device.
    fn kernel_traffic(&mut self, context: ContextId, to: u64, kernel: Kernel) -> Option<Arc<Traffic>> {
        let own = self.contexts.get(&context)?.device;
        let Ok(Memory::Device(Piece { device, .. })) = self.memory_at(to, WORD) else { return None };
        let of_pair = (kernel == Kernel::Copy && device != own).then(|| self.kernel_traffic.entry((own, device)))?;
        Some(Arc::clone(of_pair.or_insert_with(|| Arc::new(self.any_kernel_traffic.of_another()))))
    }

    /// The fate of a kernel's accesses to these bytes: loads and stores, or its other work there.
    fn touch(&self, context: ContextId, address: u64, bytes: u64, kernel: Kernel) -> Touch {
        if kernel != Kernel::Copy && !address.is_multiple_of(WORD) {
            return Touch::Illegal;
        }
        if bytes == 0 {
            return Touch::Right;
        }
        let Some(own) = self.contexts.get(&context).map(|context| context.device) else { return Touch::Illegal };
        let Ok(memory) = self.memory_at(address, bytes) else { return Touch::Illegal };
        let piece = match memory {
            Memory::Pageable | Memory::Gone { .. } => return Touch::Illegal,
            Memory::Pinned { .. } => return Touch::Right,
            Memory::Device(piece) => piece,
        };
        match self.can_reach(context, own, piece) {
            false => Touch::Illegal,
            true if self.faults.loses(own, piece.device) => Touch::Lost,
            true if self.space.depth(address) >= self.faults.window(own, piece.device) => Touch::Lost,
            true => {
                let is_imported = self.came_by(&piece) == Some(Means::IpcHandle);
                self.faults.touch(own, piece.device, kernel, is_imported).unwrap_or(Touch::Right)
            }
        }
    }

    /// Whether what a context runs on its device can access a piece of memory.
    pub(super) fn can_reach(&self, context: ContextId, own: usize, piece: Piece) -> bool {
        match piece.owner {
            Owner::Context(owner) => own == piece.device || self.peers.reaches(context, owner),
            Owner::Import(by) => own == piece.device || by == context,
            Owner::Pool(pool) => self.pools.get(&pool).is_some_and(|pool| pool.rights.get(own) != NO_ACCESS),
            Owner::Mapping => self.mappings.rights(piece.base).is_some_and(|rights| rights.get(own) != NO_ACCESS),
            Owner::Device => self.grants.gate(own, piece.base).is_some(),
        }
    }
}
