//! The contexts whose work a copy between two devices is, and the calls that wait for it. Measured on H100s.
//!
//! A copy that the driver stages is work of three contexts: its stream's, and those that the memory on either side is of. A call that waits
//! for all work of one of them waits for the copy. A direct copy is work of its stream's context alone; but on a legacy default stream
//! it is ordered with those of both sides too, as a staged one is.

use std::sync::Arc;

use super::{ContextId, Machine, State};
use crate::error::{Error, Result};
use crate::fence::{Fence, wait_all};
use crate::gate::Gate;
use crate::space::{Allocation, Owner};
use crate::stream::{Role, Stream};
use crate::transfer::{Memory, Piece, Transfer};
use crate::work::{Copy, Path, Work};

impl Machine {
    /// Gives back memory that nobody can name any more, after `tails`. Work that still relies on it ends with 719, as was measured.
    pub(super) fn give_back(&self, gone: &[Allocation], tails: &[Arc<Fence>]) {
        wait_all(tails);
        gone.iter().for_each(|gone| gone.mapped.close(Error::LAUNCH_FAILED));
        gone.iter().for_each(|gone| gone.mapped.drain());
        let mut state = self.lock();
        gone.iter().for_each(|gone| state.space.recycle(gone));
    }
}

impl State {
    /// All that a context has to do by now, the copies of others that it takes part in included.
    pub(super) fn work_of(&self, id: ContextId) -> Vec<Arc<Fence>> {
        self.contexts.get(&id).map(|context| context.all_tails()).unwrap_or_default()
    }

    /// Freeing memory waits for all work of its context, whichever is current, and of no other.
    pub(super) fn work_before_free(&self, owner: Owner) -> Vec<Arc<Fence>> {
        match owner {
            Owner::Context(id) | Owner::Import(id) => self.work_of(id),
            Owner::Pool(_) | Owner::Mapping => Vec::new(),
            Owner::Device => self.all_tails(),
        }
    }

    /// Submits a copy, in order with the streams `beside` its own; a staged one counts as work of both sides' contexts too.
    pub(super) fn submit_copy(
        &mut self,
        stream: &Arc<Stream>,
        beside: &[Arc<Stream>],
        transfer: Transfer,
        (copy, gates): (Copy, Vec<Arc<Gate>>),
    ) -> Result<Arc<Fence>> {
        let is_staged = copy.path == Path::Staged;
        let work = self.gated(stream.context, gates, Work::Copy(copy));
        let fence = self.submit_beside(stream, beside, work)?;
        if is_staged {
            for id in other_contexts(transfer, stream.context) {
                self.contexts.get_mut(&id).into_iter().for_each(|context| context.take_part(&fence));
            }
        }
        Ok(fence)
    }

    /// Submits work that comes after all that the other streams have to wait for too, and before all that comes later there.
    fn submit_beside(&self, stream: &Arc<Stream>, beside: &[Arc<Stream>], work: Work) -> Result<Arc<Fence>> {
        let others = || beside.iter().filter(|other| other.id != stream.id);
        let mut after: Vec<_> = others().flat_map(|other| self.implicit_order(other)).collect();
        after.extend(others().map(|other| other.tail()));
        let fence = self.submit(stream, after, work)?;
        for other in others() {
            self.submit(other, vec![Arc::clone(&fence)], Work::Nothing)?;
        }
        Ok(fence)
    }

    /// The legacy default streams that a copy between two devices on `stream` is ordered with, if that is one itself.
    pub(super) fn legacy_beside(&self, stream: &Stream, transfer: Transfer) -> Vec<Arc<Stream>> {
        let is_between =
            matches!(transfer.memories(), [Memory::Device(src), Memory::Device(dst)] if src.device != dst.device);
        if stream.role != Role::Legacy || !is_between {
            return Vec::new();
        }
        let others = other_contexts(transfer, stream.context);
        others.iter().filter_map(|id| Some(Arc::clone(&self.contexts.get(id)?.legacy))).collect()
    }

    /// The gates that work of a context relies on if it touches an address, if that may be taken away: a mapping, memory of a pool, and memory of
    /// another context, since freeing that does not wait for this work.
    pub(super) fn kept(&self, by: ContextId, address: u64) -> Option<Arc<Gate>> {
        if self.space.reservation(address).is_some() {
            return self.mapped(address);
        }
        let found = self.space.find(address)?;
        let may_go = match found.owner {
            Owner::Context(owner) => owner != by,
            Owner::Pool(_) => true,
            Owner::Mapping | Owner::Device | Owner::Import(_) => false,
        };
        may_go.then(|| Arc::clone(&found.mapped))
    }

    /// As [`State::kept`], for a copy: freeing waits for a staged one that its context takes part in.
    pub(super) fn kept_by_copy(
        &self,
        by: ContextId,
        path: Path,
        (address, memory): (u64, Memory),
    ) -> Option<Arc<Gate>> {
        let is_waited_for = matches!(memory, Memory::Device(Piece { owner: Owner::Context(_), .. }));
        if path == Path::Staged && is_waited_for { None } else { self.kept(by, address) }
    }
}

/// The contexts that both sides of a copy are of, without `own`.
fn other_contexts(transfer: Transfer, own: ContextId) -> Vec<ContextId> {
    let mut others: Vec<_> = transfer.sides().into_iter().filter_map(context_of_memory).collect();
    others.retain(|id| *id != own);
    others.dedup();
    others
}

/// The context that a side of a copy is of: that of device memory or, since memory of a pool and mapped memory have none, the one that
/// a peer copy names, whoever has allocated it. Measured on an H200.
fn context_of_memory((memory, named): (Memory, Option<ContextId>)) -> Option<ContextId> {
    let Memory::Device(piece) = memory else { return None };
    match piece.owner {
        Owner::Context(id) | Owner::Import(id) => Some(id),
        Owner::Device => None,
        Owner::Pool(_) | Owner::Mapping => named,
    }
}
