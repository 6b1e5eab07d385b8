//! Modules, and the one kernel that can run: it copies words, and touches both sides as kernels do.
//!
//! Unlike a copy a kernel has no other way: what its context cannot reach is an illegal address, after which the
//! context answers nothing but that.

use std::sync::Arc;

use super::copies::{Memory, Piece};
use super::{ContextId, FunctionHandle, Machine, ModuleHandle, State, StreamRef};
use crate::access::NO_ACCESS;
use crate::current;
use crate::error::{Error, Result};
use crate::fence::wait_all;
use crate::graph::Step;
use crate::space::Owner;
use crate::work::{KernelCopy, Touch};

const MODULE_HANDLES: u64 = 0x505b_0000_0000;
const FUNCTION_HANDLES: u64 = 0x505c_0000_0000;
/// Bytes of a word.
const WORD: u64 = 8;

/// The kernel that can run, by the name of its entry point: (to, from, number of words of 8 bytes).
pub const COPY_KERNEL: &str = "p2pshim_probe_copy";

/// A module of a context.
pub(super) struct Module {
    pub(super) context: ContextId,
    entries: Vec<String>,
    /// The copying kernel, once it was asked for.
    copy: Option<FunctionHandle>,
}

/// A kernel with its arguments, not yet sent on its way.
#[derive(Clone, Copy)]
pub(crate) struct Launch {
    context: ContextId,
    to: u64,
    from: u64,
    bytes: u64,
}

impl Launch {
    /// Where it begins to touch memory.
    pub(super) fn touched(&self) -> [u64; 2] {
        [self.to, self.from]
    }
}

impl Machine {
    /// Loads a module with these entry points into the current context; waits for all work, as was measured.
    pub fn load_module(&self, entries: Vec<String>) -> Result<ModuleHandle> {
        let mut state = self.lock();
        let context = state.current()?;
        state.captures.refuse_unseen(current::caller())?;
        let handle = ModuleHandle(MODULE_HANDLES + state.number() * 0x10);
        state.modules.insert(handle, Module { context, entries, copy: None });
        let tails = state.all_tails();
        drop(state);
        wait_all(&tails);
        Ok(handle)
    }

    /// Makes a module unknown after all work submitted so far.
    pub fn unload_module(&self, handle: ModuleHandle) -> Result<()> {
        let mut state = self.lock();
        state.current()?;
        state.captures.refuse_unseen(current::caller())?;
        state.modules.remove(&handle).ok_or(Error::INVALID_HANDLE)?;
        let tails = state.all_tails();
        drop(state);
        wait_all(&tails);
        Ok(())
    }

    /// An entry point of a module, if it is the one that can run.
    pub fn module_function(&self, handle: ModuleHandle, name: &str) -> Result<FunctionHandle> {
        let mut state = self.lock();
        state.current()?;
        let function = FunctionHandle(FUNCTION_HANDLES + state.number() * 0x10);
        let module = state.modules.get_mut(&handle).ok_or(Error::INVALID_HANDLE)?;
        if !module.entries.iter().any(|entry| entry == name) {
            return Err(Error::NOT_FOUND);
        }
        if name != COPY_KERNEL {
            return Err(Error::NOT_SUPPORTED);
        }
        Ok(*module.copy.get_or_insert(function))
    }

    /// Whether a function can be launched.
    pub fn is_kernel(&self, function: FunctionHandle) -> bool {
        self.lock().modules.values().any(|module| module.copy == Some(function))
    }

    /// Runs the copying kernel on a stream of its context.
    pub fn launch_copy(&self, stream: StreamRef, function: FunctionHandle, [to, from, words]: [u64; 3]) -> Result<()> {
        let mut state = self.lock();
        let stream = state.stream(stream)?;
        let module =
            state.modules.values().find(|module| module.copy == Some(function)).ok_or(Error::INVALID_HANDLE)?;
        if module.context != stream.context {
            return Err(Error::INVALID_HANDLE);
        }
        let bytes = words.checked_mul(WORD).ok_or(Error::INVALID_VALUE)?;
        let step = Step::Kernel(Launch { context: stream.context, to, from, bytes });
        if state.capture(&stream, &step)? {
            return Ok(());
        }
        state.run(&stream, Vec::new(), &step).map(drop)
    }
}

impl State {
    /// Decides what the kernel will see of both sides.
    pub(super) fn plan_kernel(&self, launch: Launch) -> KernelCopy {
        let Launch { context, to, from, bytes } = launch;
        let broken = self.contexts.get(&context).map(|context| Arc::clone(&context.broken)).unwrap_or_default();
        let touch = |address| self.touch(context, address, bytes);
        KernelCopy { to, from, bytes, stores: touch(to), loads: touch(from), broken }
    }

    /// What becomes of a kernel's loads from, or stores to, these bytes.
    fn touch(&self, context: ContextId, address: u64, bytes: u64) -> Touch {
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
            true => Touch::Right,
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
