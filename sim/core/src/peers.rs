//! Which context may reach the memory of which other context.

use crate::error::{Error, Result};
use crate::machine::ContextId;

/// Enabled accesses: ordered pairs, first the context that may reach, second the owner of the memory.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    enabled: Vec<(ContextId, ContextId)>,
}

impl Peers {
    /// Lets `from` reach memory of `to`; a context has at most `limit` peers.
    pub(crate) fn enable(&mut self, from: ContextId, to: ContextId, limit: usize) -> Result<()> {
        if self.reaches(from, to) {
            return Err(Error::PEER_ACCESS_ALREADY_ENABLED);
        }
        if self.enabled.iter().filter(|pair| pair.0 == from).count() >= limit {
            return Err(Error::TOO_MANY_PEERS);
        }
        self.enabled.push((from, to));
        Ok(())
    }

    /// Undoes [`Peers::enable`].
    pub(crate) fn disable(&mut self, from: ContextId, to: ContextId) -> Result<()> {
        let before = self.enabled.len();
        self.enabled.retain(|pair| *pair != (from, to));
        if self.enabled.len() == before { Err(Error::PEER_ACCESS_NOT_ENABLED) } else { Ok(()) }
    }

    /// Whether `from` may reach memory of `to`.
    pub(crate) fn reaches(&self, from: ContextId, to: ContextId) -> bool {
        self.enabled.contains(&(from, to))
    }

    /// Drops every access from and to a context that ends.
    pub(crate) fn forget(&mut self, context: ContextId) {
        self.enabled.retain(|pair| pair.0 != context && pair.1 != context);
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
        assert_eq!(peers.enable(A, B, 8), Ok(()));
        assert!(peers.reaches(A, B) && !peers.reaches(B, A));
        assert_eq!(peers.enable(A, B, 8), Err(Error::PEER_ACCESS_ALREADY_ENABLED));
    }

    #[test]
    fn enable_beyond_limit_is_refused_until_one_is_disabled() {
        let mut peers = Peers::default();
        assert_eq!(peers.enable(A, B, 1), Ok(()));
        assert_eq!(peers.enable(A, C, 1), Err(Error::TOO_MANY_PEERS));
        assert_eq!(peers.enable(B, A, 1), Ok(()));
        assert_eq!(peers.disable(A, B), Ok(()));
        assert_eq!(peers.enable(A, C, 1), Ok(()));
    }

    #[test]
    fn forget_ends_both_directions() {
        let mut peers = Peers::default();
        peers.enable(A, B, 8).unwrap();
        peers.enable(B, A, 8).unwrap();
        peers.enable(B, C, 8).unwrap();
        peers.forget(A);
        assert_eq!(peers.disable(A, B), Err(Error::PEER_ACCESS_NOT_ENABLED));
        assert_eq!(peers.disable(B, A), Err(Error::PEER_ACCESS_NOT_ENABLED));
        assert!(peers.reaches(B, C));
    }
}
