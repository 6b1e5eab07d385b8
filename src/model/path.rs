//! The path of a copy, and why.

/// The path that the bytes of a copy take. In this order its number is one more than its tag, which costs next to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// From device to device through the host.
    Staged(Why),
    /// From device to device, one of which can access the memory of the other.
    Direct,
    /// Inside one device.
    SameDevice,
    /// From or to memory of the host.
    Host,
    /// Not known: managed memory moves by itself, and of another process's memory the driver does not say where it is.
    Unknown,
    /// From device to device: HIP maps the memory for the copy on first use, whether access is enabled or not.
    MappedOnUse,
    /// None now: the copy becomes part of a graph, whose launches make it.
    Captured,
    /// Direct, on a path that is blocked: the copy could not be staged, and its data may be wrong.
    Broken,
}

/// Why a copy is staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The program has not enabled peer access, or has disabled it, and `P2PSHIM_ACCESS=app` leaves that to it.
    NotEnabled,
    /// The pair has not copied enough yet to be worth the cost of enabling.
    NotYetWorth,
    /// Another thread is verifying a pair right now.
    Verifying,
    /// The thread is capturing a stream; what has to be verified is verified afterwards.
    Capturing,
    /// Data was lost, or never arrived, when the pair was verified.
    Blocked,
    /// `P2PSHIM_ACCESS=off` or `P2PSHIM_DENY`.
    Denied,
    /// Memory of a pool that the other device has not been granted access to.
    Pool,
    /// Memory that the program mapped without access for the other device.
    Mapped,
    /// The driver says that the devices cannot access each other.
    NoPath,
    /// The context has as many peers as it can have, or as we take.
    Limit,
    /// The devices are busy, so that verifying would take long; it is tried again later.
    Busy,
    /// The pair could not be verified, for want of memory or after an error of the program's own.
    Unverified,
    /// Verified, but slower than through the host.
    Slower,
    /// Blocked, but there is access all the same, and CUDA would use it: p2pshim stages the copy. Or CUDA would refuse it, as p2pshim has
    /// refused the program rights to memory.
    BlockedInUse,
    /// A pair that is denied, but there is access all the same.
    DeniedInUse,
}

/// All paths, by their number. 0 is none.
const ALL: &[Path] = &[
    Path::Staged(Why::NotEnabled),
    Path::Staged(Why::NotYetWorth),
    Path::Staged(Why::Verifying),
    Path::Staged(Why::Capturing),
    Path::Staged(Why::Blocked),
    Path::Staged(Why::Denied),
    Path::Staged(Why::Pool),
    Path::Staged(Why::Mapped),
    Path::Staged(Why::NoPath),
    Path::Staged(Why::Limit),
    Path::Staged(Why::Busy),
    Path::Staged(Why::Unverified),
    Path::Staged(Why::Slower),
    Path::Staged(Why::BlockedInUse),
    Path::Staged(Why::DeniedInUse),
    Path::Direct,
    Path::SameDevice,
    Path::Host,
    Path::Unknown,
    Path::MappedOnUse,
    Path::Captured,
    Path::Broken,
];

impl Path {
    /// A number for it that is not 0.
    #[inline(always)]
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::Staged(why) => 1 + why as u32,
            Self::Direct => 2 + Why::DeniedInUse as u32,
            Self::SameDevice => 3 + Why::DeniedInUse as u32,
            Self::Host => 4 + Why::DeniedInUse as u32,
            Self::Unknown => 5 + Why::DeniedInUse as u32,
            Self::MappedOnUse => 6 + Why::DeniedInUse as u32,
            Self::Captured => 7 + Why::DeniedInUse as u32,
            Self::Broken => 8 + Why::DeniedInUse as u32,
        }
    }

    /// All paths, with their numbers.
    pub(crate) fn all() -> impl Iterator<Item = (u32, Self)> {
        ALL.iter().map(|path| (path.number(), *path))
    }

    /// The path with that number.
    #[inline(always)]
    pub(crate) fn numbered(number: u32) -> Option<Self> {
        ALL.get((number as usize).wrapping_sub(1)).copied()
    }

    /// Whether the shim has to stage a copy: CUDA would copy on a path that is blocked, or refuse.
    #[inline(always)]
    pub(crate) const fn has_to_be_staged_by_us(self) -> bool {
        matches!(self, Self::Staged(Why::BlockedInUse | Why::DeniedInUse))
    }

    /// As traces and reports show it: what it is, and after a colon why.
    pub(crate) fn title(self) -> String {
        match self {
            Self::Unknown => "unknown: managed or imported memory".to_owned(),
            _ => self.name().replacen(" (", ": ", 1).trim_end_matches(')').to_owned(),
        }
    }

    /// As the log shows it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Broken => "direct (blocked, and could not be staged)",
            Self::SameDevice => "same-device",
            Self::Host => "host",
            Self::MappedOnUse => "mapped on first use",
            Self::Captured => "captured",
            Self::Unknown => "path unknown (managed or imported memory)",
            Self::Staged(why) => match why {
                Why::NotEnabled => "staged (access not enabled)",
                Why::NotYetWorth => "staged (not yet worth enabling)",
                Why::Verifying => "staged (being verified by another thread)",
                Why::Capturing => "staged (verified after the capture)",
                Why::Blocked => "staged (blocked: lost data or hung in verification)",
                Why::Denied => "staged (denied)",
                Why::Pool => "staged (pool without access)",
                Why::Mapped => "staged (mapped memory without access)",
                Why::NoPath => "staged (no hardware path)",
                Why::Limit => "staged (peer limit)",
                Why::Busy => "staged (devices are busy, to be verified later)",
                Why::Unverified => "staged (could not be verified)",
                Why::Slower => "staged (direct is slower)",
                Why::BlockedInUse => "staged (blocked, by p2pshim in the driver's place)",
                Why::DeniedInUse => "staged (denied, by p2pshim in the driver's place)",
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_every_path_comes_back() {
        for (position, &path) in ALL.iter().enumerate() {
            assert_eq!(path.number() as usize, position + 1);
            assert_eq!(Path::numbered(path.number()), Some(path));
        }
        assert_eq!(Path::Direct.title(), "direct");
        assert_eq!(Path::Staged(Why::Pool).title(), "staged: pool without access");
        assert_eq!(Path::numbered(0), None);
        assert_eq!(Path::numbered(ALL.len() as u32 + 1), None);
    }
}
