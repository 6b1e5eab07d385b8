//! Which context may reach the memory of which other context.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::gate::Gate;
use crate::ids::ContextId;

/// An enabled access.
#[derive(Debug)]
struct Peer {
    /// First the context that may reach, second the owner of the memory.
    pair: (ContextId, ContextId),
    /// Direct copies rely on it.
    gate: Arc<Gate>,
    /// The place among the peers that a device may have on the whole machine, if processes count them together.
    _place: Option<File>,
}

#[derive(Debug, Default)]
pub(crate) struct Peers {
    enabled: Vec<Peer>,
}

/// A place among as many as `limit` that processes with one folder share. Dropping it frees it, and so does the end of the process.
///
/// # Errors
/// All places are taken.
pub(crate) fn place(folder: &Path, device: usize, limit: usize) -> Result<File> {
    let take = |number| {
        let file = File::options().create(true).append(true).open(folder.join(format!("{device}-{number}"))).ok()?;
        file.try_lock().ok().map(|()| file)
    };
    (0..limit).find_map(take).ok_or(Error::TOO_MANY_PEERS)
}

impl Peers {
    /// How many accesses are enabled.
    pub(crate) fn enabled(&self) -> usize {
        self.enabled.len()
    }

    /// Lets `from` reach memory of `to`.
    pub(crate) fn enable(&mut self, from: ContextId, to: ContextId, place: Option<File>) {
        self.enabled.push(Peer { pair: (from, to), gate: Gate::open(), _place: place });
    }

    /// Fails if `from` can reach memory of `to` already.
    pub(crate) fn refuse_again(&self, from: ContextId, to: ContextId) -> Result<()> {
        if self.reaches(from, to) { Err(Error::PEER_ACCESS_ALREADY_ENABLED) } else { Ok(()) }
    }

    /// Fails if `from` has `limit` peers already.
    pub(crate) fn refuse_more(&self, from: ContextId, limit: usize) -> Result<()> {
        if self.of(from).count() >= limit { Err(Error::TOO_MANY_PEERS) } else { Ok(()) }
    }

    /// The contexts that `from` has enabled access to.
    pub(crate) fn of(&self, from: ContextId) -> impl Iterator<Item = ContextId> {
        self.enabled.iter().filter(move |peer| peer.pair.0 == from).map(|peer| peer.pair.1)
    }

    /// Undoes [`Peers::enable`]. Direct copies that are queued end, as was measured.
    pub(crate) fn disable(&mut self, from: ContextId, to: ContextId) -> Result<()> {
        self.gate(from, to).ok_or(Error::PEER_ACCESS_NOT_ENABLED)?.close(Error::LAUNCH_FAILED);
        self.enabled.retain(|peer| peer.pair != (from, to));
        Ok(())
    }

    /// Whether `from` may reach memory of `to`.
    pub(crate) fn reaches(&self, from: ContextId, to: ContextId) -> bool {
        self.gate(from, to).is_some()
    }

    /// The gate of direct copies that `from` makes to or from memory of `to`; None if it may not reach it.
    pub(crate) fn gate(&self, from: ContextId, to: ContextId) -> Option<Arc<Gate>> {
        self.enabled.iter().find(|peer| peer.pair == (from, to)).map(|peer| Arc::clone(&peer.gate))
    }

    /// Drops every access from and to a context that ends.
    pub(crate) fn forget(&mut self, context: ContextId) {
        self.enabled.retain(|peer| peer.pair.0 != context && peer.pair.1 != context);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ContextId = ContextId(1);
    const B: ContextId = ContextId(2);
    const C: ContextId = ContextId(3);

    #[test]
    fn enable_is_one_way_and_only_once() {
        let mut peers = Peers::default();
        assert_eq!(peers.refuse_again(A, B), Ok(()));
        peers.enable(A, B, None);
        assert!(peers.reaches(A, B) && !peers.reaches(B, A));
        assert_eq!(peers.refuse_again(A, B), Err(Error::PEER_ACCESS_ALREADY_ENABLED));
        assert_eq!(peers.refuse_again(B, A), Ok(()));
    }

    #[test]
    fn enable_beyond_limit_is_refused_until_one_is_disabled() {
        let mut peers = Peers::default();
        peers.enable(A, B, None);
        assert_eq!(peers.refuse_more(A, 1), Err(Error::TOO_MANY_PEERS));
        assert_eq!(peers.refuse_more(B, 1), Ok(()));
        assert_eq!(peers.disable(A, B), Ok(()));
        assert_eq!(peers.refuse_more(A, 1), Ok(()));
    }

    #[test]
    fn forget_ends_both_directions() {
        let mut peers = Peers::default();
        peers.enable(A, B, None);
        peers.enable(B, A, None);
        peers.enable(B, C, None);
        peers.forget(A);
        assert_eq!(peers.disable(A, B), Err(Error::PEER_ACCESS_NOT_ENABLED));
        assert_eq!(peers.disable(B, A), Err(Error::PEER_ACCESS_NOT_ENABLED));
        assert!(peers.reaches(B, C));
    }
}
