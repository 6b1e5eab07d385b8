//! The path of a copy, and why.

/// The path that the bytes of a copy take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// From device to device, one of which can access the memory of the other.
    Direct,
    /// From device to device through the host.
    Staged(Why),
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
}

/// All paths, by their number. 0 is none.
const ALL: &[Path] = &[
    Path::Direct,
    Path::SameDevice,
    Path::Host,
    Path::Unknown,
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
    Path::MappedOnUse,
    Path::Captured,
];

impl Path {
    /// A number for it that is not 0.
    #[inline(always)]
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::Direct => 1,
            Self::SameDevice => 2,
            Self::Host => 3,
            Self::Unknown => 4,
            Self::Staged(why) => 5 + why as u32,
            Self::MappedOnUse => 6 + Why::Slower as u32,
            Self::Captured => 7 + Why::Slower as u32,
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
