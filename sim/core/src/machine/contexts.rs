//! Contexts, primary and created, and peer access between them.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Context, ContextHandle, ContextId, Machine, State, StreamHandle};
use crate::config::Config;
use crate::current;
use crate::error::{Error, Result};
use crate::fence::wait_all;
use crate::peers::place;
use crate::space::Owner;
use crate::stream::{Role, Stream};

/// Primary contexts keep their handle through resets, as a real driver's do.
const PRIMARY_HANDLES: u64 = 0x5051_0000_0000;
/// Handles of created contexts, used again after their context has gone.
const CREATED_HANDLES: u64 = 0x5052_0000_0000;
const HANDLE_STEP: u64 = 0x100;
/// `CU_LIMIT_STACK_SIZE` and `CU_LIMIT_PERSISTING_L2_CACHE_SIZE`.
const WAITING_LIMITS: [u32; 2] = [0, 6];
/// The limits of a context and what they are at first.
const DEFAULT_LIMITS: [(u32, u64); 7] = [(0, 1024), (1, 7 << 20), (2, 8 << 20), (3, 2), (4, 2048), (5, 64), (6, 0)];
/// The handle that a program passes for no context.
pub(super) const NO_CONTEXT: ContextHandle = ContextHandle(0);

/// A reason to refuse peer access, besides the lack of a current context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// No peer.
    NoPeer,
    /// Flags other than 0.
    Flags,
    /// A peer that is no context, or none any more.
    Peer,
    /// No path between the devices, or only one device.
    Path,
    /// A capture under way that enabling would break, and breaks.
    Capture,
    /// Access that is enabled already.
    Again,
    /// As many peers as a context can have.
    Limit,
}

/// In the order in which they are looked at, as was measured but for the limit: the first that holds decides.
const ENABLE_REFUSALS: &[Refusal] =
    &[Refusal::NoPeer, Refusal::Flags, Refusal::Peer, Refusal::Path, Refusal::Capture, Refusal::Again, Refusal::Limit];

/// The facts that a program may ask about a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextInfo {
    /// Unique in the life of the process.
    pub id: ContextId,
    /// Its handle.
    pub handle: ContextHandle,
    /// Its device.
    pub device: usize,
    /// Flags that it was created with.
    pub flags: u32,
}

/// The facts that a program may ask about a device's primary context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrimaryState {
    /// Flags for its next life.
    pub flags: u32,
    /// Whether it is alive.
    pub active: bool,
}

impl Machine {
    /// Takes a reference to a device's primary context; brings it to life if it is not alive.
    pub fn retain_primary(&self, device: usize) -> Result<ContextHandle> {
        let mut state = self.lock();
        let handle = primary_handle(device);
        let primary = state.primaries.get_mut(device).ok_or(Error::INVALID_DEVICE)?;
        primary.references += 1;
        let flags = primary.flags;
        if !state.handles.contains_key(&handle) {
            state.start_context(handle, device, flags);
        }
        Ok(handle)
    }

    /// Drops a reference to a device's primary context; the last one ends it.
    pub fn release_primary(&self, device: usize) -> Result<()> {
        let mut state = self.lock();
        let primary = state.primaries.get_mut(device).ok_or(Error::INVALID_DEVICE)?;
        primary.references = primary.references.checked_sub(1).ok_or(Error::INVALID_CONTEXT)?;
        let last = primary.references == 0;
        drop(state);
        if last {
            self.end_context(primary_handle(device));
        }
        Ok(())
    }

    /// Ends a device's primary context whoever still refers to it.
    pub fn reset_primary(&self, device: usize) -> Result<()> {
        self.end_context(primary_handle(device));
        Ok(())
    }

    /// Asks about a device's primary context.
    pub fn primary_state(&self, device: usize) -> Result<PrimaryState> {
        let state = self.lock();
        let primary = state.primaries.get(device).ok_or(Error::INVALID_DEVICE)?;
        Ok(PrimaryState { flags: primary.flags, active: state.handles.contains_key(&primary_handle(device)) })
    }

    /// Sets the flags of a device's primary context, also while it is alive.
    pub fn set_primary_flags(&self, device: usize, flags: u32) -> Result<()> {
        let mut state = self.lock();
        state.primaries.get_mut(device).ok_or(Error::INVALID_DEVICE)?.flags = flags;
        let id = state.handles.get(&primary_handle(device)).copied();
        if let Some(context) = id.and_then(|id| state.contexts.get_mut(&id)) {
            context.flags = flags;
        }
        Ok(())
    }

    /// Creates a context.
    pub fn create_context(&self, device: usize, flags: u32) -> Result<ContextHandle> {
        let mut state = self.lock();
        let handles = (1..).map(|slot| ContextHandle(CREATED_HANDLES + slot * HANDLE_STEP));
        let unused = |handle: &ContextHandle| !state.handles.contains_key(handle);
        let handle = handles.into_iter().find(unused).ok_or(Error::OUT_OF_MEMORY)?;
        state.start_context(handle, device, flags);
        Ok(handle)
    }

    /// Destroys a created context.
    pub fn destroy_context(&self, handle: ContextHandle) -> Result<()> {
        if handle.0 < CREATED_HANDLES || !self.end_context(handle) {
            return Err(Error::INVALID_CONTEXT);
        }
        if current::get() == Some(handle) {
            current::pop();
        }
        Ok(())
    }

    /// Asks about a context by its handle.
    pub fn context(&self, handle: ContextHandle) -> Result<ContextInfo> {
        let state = self.lock();
        state.info(state.named(handle)?)
    }

    /// The handle of a context that is still alive.
    pub fn context_of(&self, id: ContextId) -> Option<ContextHandle> {
        self.lock().contexts.get(&id).map(|context| context.handle)
    }

    /// Asks about the calling thread's current context.
    pub fn current_context(&self) -> Result<ContextInfo> {
        let state = self.lock();
        state.info(state.current()?)
    }

    /// Sets a limit of the current context; for some it waits for all its work, as was measured.
    pub fn set_limit(&self, limit: u32, value: u64) -> Result<()> {
        let mut state = self.lock();
        let id = state.current()?;
        let is_known = DEFAULT_LIMITS.iter().any(|(known, _)| *known == limit);
        let context = state.contexts.get_mut(&id).filter(|_| is_known).ok_or(Error::INVALID_VALUE)?;
        context.limits.insert(limit, value);
        let tails = if WAITING_LIMITS.contains(&limit) { state.work_of(id) } else { Vec::new() };
        drop(state);
        wait_all(&tails);
        Ok(())
    }

    /// A limit of the current context.
    pub fn limit(&self, limit: u32) -> Result<u64> {
        let state = self.lock();
        let id = state.current()?;
        let set = state.contexts.get(&id).and_then(|context| context.limits.get(&limit).copied());
        let default = || DEFAULT_LIMITS.iter().find(|(known, _)| *known == limit).map(|(_, value)| *value);
        set.or_else(default).ok_or(Error::INVALID_VALUE)
    }

    /// Waits for all work of the current context.
    pub fn synchronize_context(&self) -> Result<()> {
        self.synchronize_context_of(current::get().unwrap_or(NO_CONTEXT))
    }

    /// Waits for all work of a context, whichever is current.
    pub fn synchronize_context_of(&self, context: ContextHandle) -> Result<()> {
        let mut state = self.lock();
        let id = state.named(context)?;
        state.intact(id)?;
        state.captures.refuse_on(|stream| stream.context == id)?;
        state.refuse_waiting(id)?;
        let tails = state.work_of(id);
        drop(state);
        wait_all(&tails);
        self.lock().intact(id)
    }

    /// Lets the current context reach the memory of `peer`.
    pub fn enable_peer(&self, peer: ContextHandle, flags: u32) -> Result<()> {
        let mut state = self.lock();
        let from = state.current()?;
        for refusal in ENABLE_REFUSALS {
            state.refuse_enabling(*refusal, from, peer, flags, &self.config)?;
        }
        let (to, device) = (state.named(peer)?, state.info(from)?.device);
        let of_machine = self.config.peers.as_deref();
        let place = of_machine.map(|folder| place(folder, device, self.config.max_peers)).transpose()?;
        state.peers.enable(from, to, place);
        Ok(())
    }

    /// Undoes [`Machine::enable_peer`].
    pub fn disable_peer(&self, peer: ContextHandle) -> Result<()> {
        let mut state = self.lock();
        let (from, to) = (state.current()?, state.named(peer)?);
        state.captures.refuse_unseen(current::caller())?;
        state.peers.disable(from, to)
    }

    /// Ends a context: at once nobody can name it any more, then its work ends, then what it owned goes.
    fn end_context(&self, handle: ContextHandle) -> bool {
        let mut state = self.lock();
        let Some(id) = state.handles.remove(&handle) else { return false };
        state.peers.forget(id);
        state.forget_captures(|gone| gone.context == id);
        let orphans: Vec<_> =
            state.streams.values().filter(|stream| stream.context == id).map(|stream| stream.handle).collect();
        state.streams.retain(|_, stream| stream.context != id);
        state.orphans.extend(orphans);
        state.events.retain(|_, event| event.context != id);
        state.modules.retain(|_, module| module.context != id);
        state.arrays.retain(|_, array| array.storage.owner != Owner::Context(id));
        let mut allocations = state.space.take_where(|known| known.owner.context() == Some(id));
        state.forget_imports(id);
        if let Some(device) = (0..self.config.devices).find(|device| primary_handle(*device) == handle) {
            allocations.extend(state.reset_pools(device));
        }
        // Direct copies of others that are queued find this context's device memory gone, though the call waits for all work: measured.
        let device_memory = allocations.iter().filter(|gone| !gone.kind.is_host() && gone.owner == Owner::Context(id));
        device_memory.for_each(|gone| gone.mapped.close(Error::LAUNCH_FAILED));
        let tails = state.all_tails();
        drop(state);

        self.give_back(&allocations, &tails);
        self.lock().contexts.remove(&id);
        true
    }
}

impl State {
    /// Fails if enabling access from one context to another is to be refused for that reason.
    fn refuse_enabling(
        &mut self,
        refusal: Refusal,
        from: ContextId,
        peer: ContextHandle,
        flags: u32,
        config: &Config,
    ) -> Result<()> {
        let to = self.named(peer);
        match refusal {
            Refusal::NoPeer if peer == NO_CONTEXT => Err(Error::INVALID_CONTEXT),
            Refusal::NoPeer => Ok(()),
            Refusal::Flags if flags != 0 => Err(Error::INVALID_VALUE),
            Refusal::Flags => Ok(()),
            Refusal::Peer => to.map(drop),
            Refusal::Path if config.has_path(self.info(from)?.device, self.info(to?)?.device) => Ok(()),
            Refusal::Path => Err(Error::PEER_ACCESS_UNSUPPORTED),
            Refusal::Capture => self.captures.refuse_unseen(current::caller()),
            Refusal::Again => self.peers.refuse_again(from, to?),
            Refusal::Limit => self.peers.refuse_more(from, config.max_peers),
        }
    }

    fn start_context(&mut self, handle: ContextHandle, device: usize, flags: u32) {
        let id = ContextId(self.number());
        let legacy = Stream::new(StreamHandle(1), id, Role::Legacy, 0);
        let (per_thread, streams, shared) = (HashMap::new(), Vec::new(), Vec::new());
        let (limits, broken) = (HashMap::new(), Arc::default());
        let context = Context { handle, device, flags, legacy, per_thread, streams, limits, shared, broken };
        self.contexts.insert(id, context);
        self.handles.insert(handle, id);
    }

    /// The context that a program names. A handle of none counts as one that was destroyed.
    pub(super) fn named(&self, handle: ContextHandle) -> Result<ContextId> {
        let missing = if handle == NO_CONTEXT { Error::INVALID_CONTEXT } else { Error::CONTEXT_IS_DESTROYED };
        self.handles.get(&handle).copied().ok_or(missing)
    }

    /// The calling thread's current context, if its work has not broken it.
    pub(super) fn current(&self) -> Result<ContextId> {
        let handle = current::get().ok_or(Error::INVALID_CONTEXT)?;
        let id = self.handles.get(&handle).copied().ok_or(Error::CONTEXT_IS_DESTROYED)?;
        self.intact(id)?;
        Ok(id)
    }

    /// Refuses a context that its work has broken.
    pub(super) fn intact(&self, id: ContextId) -> Result<()> {
        self.contexts.get(&id).and_then(|context| context.broken.get()).map_or(Ok(()), |error| Err(*error))
    }

    pub(super) fn info(&self, id: ContextId) -> Result<ContextInfo> {
        let context = self.contexts.get(&id).ok_or(Error::INVALID_CONTEXT)?;
        Ok(ContextInfo { id, handle: context.handle, device: context.device, flags: context.flags })
    }
}

fn primary_handle(device: usize) -> ContextHandle {
    ContextHandle(PRIMARY_HANDLES + (device as u64 + 1) * HANDLE_STEP)
}
