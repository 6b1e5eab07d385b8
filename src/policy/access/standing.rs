//! How a pair stands whose peer access the program did not get.

use super::Access;
use crate::model::Hidden;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// The devices that the current device has access to.
    pub(crate) peers: Vec<i32>,
    /// Whether the peer has access to the current device.
    pub(crate) is_reached: bool,
    /// Why p2pshim refuses the access.
    pub(crate) hidden: Option<Hidden>,
}

impl Access {
    pub(crate) fn standing(&self, [device, peer]: [i32; 2]) -> Standing {
        let registry = self.lock();
        let device_of = |number| registry.owner(number).map(|owner| owner.device());
        let enabled = registry.links().filter(|link| link.is_enabled());
        let enabled: Vec<_> = enabled.map(|link| (device_of(link.from), device_of(link.to))).collect();
        let mut peers: Vec<i32> =
            enabled.iter().filter_map(|&(from, to)| to.filter(|_| from == Some(device))).collect();
        peers.sort_unstable();
        peers.dedup();
        let hidden = registry.why_hidden(device, peer);
        Standing { peers, is_reached: enabled.contains(&(Some(peer), Some(device))), hidden }
    }
}
