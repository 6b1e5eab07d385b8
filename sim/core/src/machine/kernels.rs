//! Modules, and launches of their kernels.
//!
//! Unlike a copy a kernel has no other way: what its context cannot reach is an illegal address, after which the
//! context answers nothing but that.

use std::sync::Arc;

use super::{ContextId, FunctionHandle, Machine, ModuleHandle, State, StreamRef};
use crate::access::NO_ACCESS;
use crate::current;
use crate::declared::{PARAMETERS, Span};
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
    entries: Entries,
    /// The kernels that were asked for.
    functions: Vec<(Kernel, FunctionHandle)>,
}

/// The entry points of a module: in text they can be read, in what was compiled not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entries {
    /// Those that the text has.
    Text(Vec<String>),
    /// Whatever the program asks for.
    Compiled,
    /// None: a library finds out when it is needed that its image is none. Measured on an H200.
    Unreadable,
}

impl From<Vec<String>> for Entries {
    fn from(names: Vec<String>) -> Entries {
        Entries::Text(names)
    }
}

impl Module {
    pub(super) fn new(context: ContextId, entries: Entries) -> Module {
        Module { context, entries, functions: Vec::new() }
    }

    fn kernel(&self, function: FunctionHandle) -> Option<Kernel> {
        self.functions.iter().find(|(_, known)| *known == function).map(|(kernel, _)| *kernel)
    }
}

impl Machine {
    /// Loads a module with these entry points into the current context; waits for all its work, as was measured.
    pub fn load_module(&self, entries: impl Into<Entries>) -> Result<ModuleHandle> {
        let mut state = self.lock();
        let context = state.current()?;
        state.captures.refuse_unseen(current::caller())?;
        let handle = ModuleHandle(MODULE_HANDLES + state.number() * 0x10);
        state.modules.insert(handle, Module::new(context, entries.into()));
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
        let kernel = self.kernel(&module.entries, name)?;
        if let Some((_, function)) = module.functions.iter().find(|(known, _)| *known == kernel) {
            return Ok(*function);
        }
        module.functions.push((kernel, function));
        Ok(function)
    }

    /// An entry point that can run: one that the simulation has, or that was declared. Nothing else has an image for these devices.
    pub(super) fn kernel(&self, entries: &Entries, name: &str) -> Result<Kernel> {
        match entries {
            Entries::Text(names) if !names.iter().any(|entry| entry == name) => return Err(Error::NOT_FOUND),
            Entries::Unreadable => return Err(Error::INVALID_IMAGE),
            Entries::Text(_) | Entries::Compiled => {}
        }
        let declared = || self.config.kernels.iter().find(|declared| declared.is_named(name));
        Kernel::named(name).or_else(|| declared().map(Kernel::Declared)).ok_or(Error::NO_BINARY_FOR_GPU)
    }

    /// How many parameters a function has that have to be read, if it can be launched.
    pub fn kernel_parameters(&self, function: FunctionHandle) -> Option<usize> {
        self.lock().modules.values().find_map(|module| module.kernel(function)).map(Kernel::parameters)
    }

    /// Runs a kernel on a stream of its context.
    pub fn launch(&self, stream: StreamRef, function: FunctionHandle, values: impl AsRef<[u64]>) -> Result<()> {
        let mut state = self.lock();
        let stream = state.stream(stream)?;
        let mut modules = state.modules.values();
        let found = modules.find_map(|module| Some((module.context, module.kernel(function)?)));
        let (context, kernel) = found.filter(|(of, _)| *of == stream.context).ok_or(Error::INVALID_HANDLE)?;
        let mut parameters = [0; PARAMETERS];
        parameters.iter_mut().zip(values.as_ref()).for_each(|(parameter, value)| *parameter = *value);
        let [_, _, words, ..] = parameters;
        if !matches!(kernel, Kernel::Declared(_)) {
            words.checked_mul(WORD).ok_or(Error::INVALID_VALUE)?;
        }
        let step = Step::Kernel(Launch { kernel, context, parameters });
        if state.capture(&stream, &step)? {
            return Ok(());
        }
        state.run(&stream, &step).map(drop)
    }
}

impl State {
    /// Decides what the kernel will see of both sides.
    pub(super) fn plan_kernel(&mut self, launch: Launch) -> KernelRun {
        let Launch { kernel, context, parameters: [to, from, words, ..] } = launch;
        let broken = self.contexts.get(&context).map(|context| Arc::clone(&context.broken)).unwrap_or_default();
        let mut spans = launch.spans();
        let as_kernel = |span: &Span| if span.writes || kernel == Kernel::Reduce { kernel } else { Kernel::Copy };
        let touch = |span: &mut Span| {
            let touch = self.touch(context, span, as_kernel(span));
            span.is_lost = touch == Touch::Lost;
            touch
        };
        let touches: Vec<_> = spans.iter_mut().map(|span| (span.writes, touch(span))).collect();
        // One that a declared kernel cannot make ends all of it.
        let worst = |writes: bool| {
            let mut of_it = touches.iter().filter(|(of, _)| *of == writes).map(|(_, touch)| *touch);
            let first = of_it.clone().next().unwrap_or(Touch::Right);
            of_it.find(|touch| *touch == Touch::Illegal).unwrap_or(first)
        };
        let (stores, loads) = (worst(true), worst(false));
        let traffic = self.kernel_traffic(context, to, kernel);
        let words = if matches!(kernel, Kernel::Declared(_)) {
            spans.iter().map(|span| span.bytes).sum::<u64>() / WORD
        } else {
            words
        };
        KernelRun { kernel, to, from, words, spans, stores, loads, traffic, broken }
    }

    /// The counter of a kernel that copies to another device.
    fn kernel_traffic(&mut self, context: ContextId, to: u64, kernel: Kernel) -> Option<Arc<Traffic>> {
        let own = self.contexts.get(&context)?.device;
        let Ok(Memory::Device(Piece { device, .. })) = self.memory_at(to, WORD) else { return None };
        let of_pair = (kernel == Kernel::Copy && device != own).then(|| self.kernel_traffic.entry((own, device)))?;
        Some(Arc::clone(of_pair.or_insert_with(|| Arc::new(self.any_kernel_traffic.of_another()))))
    }

    /// The fate of a kernel's accesses to these bytes: loads and stores, or its other work there.
    fn touch(&self, context: ContextId, &Span { address, bytes, writes, .. }: &Span, kernel: Kernel) -> Touch {
        if !matches!(kernel, Kernel::Copy | Kernel::Reduce | Kernel::Declared(_)) && !address.is_multiple_of(WORD) {
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
            true if self.faults.loses(own, piece.device, writes) => Touch::Lost,
            true if matches!(piece.owner, Owner::Pool(_) | Owner::Mapping)
                && self.came_by(&piece).is_none()
                && self.faults.drops_granted(own, piece.device) =>
            {
                Touch::Lost
            }
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
