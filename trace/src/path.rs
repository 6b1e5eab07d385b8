//! The path of a copy, and the reason for it: one table for log, trace, C interface, report, page and documents.

use std::ffi::CStr;
use std::fmt::{self, Display, Formatter};

/// The path that the bytes of a copy take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Path {
    /// From device to device through the host.
    Staged(Why),
    /// From device to device, one of which can access the memory of the other.
    Direct,
    /// Inside one device.
    SameDevice,
    /// From or to memory of the host.
    Host,
    /// Not known: managed memory moves by itself, and of HIP memory of another process is not followed.
    Unknown,
    /// From device to device: HIP maps the memory for the copy on first use, whether access is enabled or not.
    MappedOnUse,
    /// None now: the copy becomes part of a graph, whose launches make it.
    Captured,
    /// Direct, on a path that is blocked: the copy could not be staged, and its data may be wrong.
    Broken,
    /// From device to host, and from there to another device: by two copies of the program.
    ByHand,
}

/// The reason for staging.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Why {
    /// The program has not enabled peer access, or has disabled it, and `P2PSHIM_ACCESS=app` leaves that to it.
    NotEnabled,
    /// The pair has not copied enough yet to be worth the cost of enabling.
    NotYetWorth,
    /// Another thread is verifying a pair right now.
    Verifying,
    /// The thread is capturing a stream; verification follows.
    Capturing,
    /// Data was lost, or never arrived, when the pair was verified.
    Broken,
    /// `P2PSHIM_ACCESS=off` or `P2PSHIM_DENY`.
    Denied,
    /// Memory of a pool that the other device has not been granted access to.
    Pool,
    /// Memory that the program mapped without access for the other device.
    Mapped,
    /// The driver says that the devices cannot access each other.
    NoPath,
    /// The context has as many peers as it can have, or as p2pshim uses.
    Limit,
    /// The devices are busy, so that verifying would take long; it is tried again later.
    Busy,
    /// The pair could not be verified, for want of memory or after an error of the program's own.
    Unverified,
    /// Verified, but slower than through the host.
    Slower,
    /// Broken, but access is enabled all the same, and CUDA would use it: p2pshim stages the copy. Or CUDA would refuse the copy, since
    /// p2pshim has refused the program rights to memory.
    BrokenInUse,
    /// Denied, but access is enabled all the same.
    DeniedInUse,
    /// As `NotEnabled`, and an earlier check found that peer access loses data there, or hangs.
    BrokenNotEnabled,
    /// There is an executable graph whose copies of the pair are staged: if access were enabled now, the driver would refuse to update it.
    Graph,
}

/// The meaning of a path and its reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// From GPU to GPU.
    Direct,
    /// HIP maps the memory on first use. It was not measured that such a copy is direct.
    Mapped,
    /// Staged (the first copies of a pair, before p2pshim enables peer access), until the pair is worth access, and verified.
    StartUp,
    /// Staged because the program has not given access, where the GPUs have a path.
    Avoidable,
    /// Staged, as peer access loses data there, or hangs.
    Blocked,
    /// Staged for another reason: on purpose, because nothing is better, or because it was not known whether data would arrive.
    Staged,
    /// Inside one device.
    SameDevice,
    /// From or to memory of the host.
    Host,
    /// Part of a graph; nothing was copied.
    Captured,
    /// Through the host, by the program's own copies.
    ByHand,
    /// Not known.
    #[default]
    Unknown,
}

impl Class {
    /// Its name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Mapped => "mapped",
            Self::StartUp => "start-up",
            Self::Avoidable => "avoidable",
            Self::Blocked => "blocked",
            Self::Staged => "staged",
            Self::SameDevice => "same-device",
            Self::Host => "host",
            Self::Captured => "captured",
            Self::ByHand => "by-hand",
            Self::Unknown => "unknown",
        }
    }

    /// Whether the bytes went through the host.
    pub const fn is_staged(self) -> bool {
        matches!(self, Self::StartUp | Self::Avoidable | Self::Blocked | Self::Staged)
    }
}

macro_rules! table {
    ($( $number:literal $path:ident $(($why:ident))?: $class:ident, $reason:literal, $remedy:literal; )*) => {
        impl Path {
            /// All paths, in the order of their numbers.
            pub const ALL: &[Self] = &[$( Self::$path $((Why::$why))?, )*];

            /// Its number in a record.
            #[inline(always)]
            pub const fn number(self) -> u8 {
                match self {
                    $( Self::$path $((Why::$why))? => $number, )*
                }
            }

            /// The path with a number; none for 0, and for numbers of a later version.
            #[inline(always)]
            pub const fn numbered(number: u8) -> Option<Self> {
                match number {
                    $( $number => Some(Self::$path $((Why::$why))?), )*
                    _ => None,
                }
            }

            /// Its meaning.
            pub const fn class(self) -> Class {
                match self {
                    $( Self::$path $((Why::$why))? => Class::$class, )*
                }
            }

            /// The reason for it, for C; empty if it needs none.
            pub const fn reason_for_c(self) -> &'static CStr {
                let text = match self {
                    $( Self::$path $((Why::$why))? => concat!($reason, "\0"), )*
                };
                match CStr::from_bytes_with_nul(text.as_bytes()) {
                    Ok(text) => text,
                    Err(_) => c"",
                }
            }

            /// The reason for it; empty if it needs none.
            pub const fn reason(self) -> &'static str {
                match self {
                    $( Self::$path $((Why::$why))? => $reason, )*
                }
            }

            /// The advice to a user whose copies take it for that reason; empty if there is none.
            pub const fn remedy(self) -> &'static str {
                match self {
                    $( Self::$path $((Why::$why))? => $remedy, )*
                }
            }
        }
    };
}

// Number, path, class, reason, remedy. A number keeps its meaning within a major version of the format.
table! {
    1 Staged(NotEnabled): Avoidable, "access not enabled",
        "Run without `--access app` (P2PSHIM_ACCESS=app), so that p2pshim enables peer access; or call cudaDeviceEnablePeerAccess on both devices of a pair.";
    2 Staged(NotYetWorth): StartUp, "not yet worth enabling",
        "A pair is enabled once it has copied more than 1 MiB or 16 times. Usually there is nothing to do.";
    3 Staged(Verifying): StartUp, "being verified by another thread",
        "Copies do not wait for a verification in another thread. Usually there is nothing to do.";
    4 Staged(Capturing): Staged, "verified after the capture",
        "Copy between these GPUs once before a capture, so that they can be verified.";
    5 Staged(Broken): Blocked, "broken: failed verification",
        "These pairs failed verification: direct copies arrive wrong, or hang. `p2pshim doctor` names the likely cause, such as an IOMMU, and tests staged copies too.";
    6 Staged(Denied): Staged, "denied",
        "P2PSHIM_ACCESS=off or P2PSHIM_DENY keeps these pairs staged. Remove it if that is not intended.";
    7 Staged(Pool): Avoidable, "pool without access",
        "The other device cannot access the pool. Run without `--pools app` (P2PSHIM_POOLS=app), or call cudaMemPoolSetAccess.";
    8 Staged(Mapped): Avoidable, "mapped memory without access",
        "The program mapped the memory for one device only. Call cuMemSetAccess for the other.";
    9 Staged(NoPath): Staged, "no hardware path",
        "These GPUs cannot access each other. `p2pshim doctor` shows which can: place neighbours on those.";
    10 Staged(Limit): Staged, "peer limit",
        "A context can have 8 peers, of which p2pshim enables 4: copy along a ring or a tree, or let the program choose and enable its peers (`--access app`).";
    11 Staged(Busy): Staged, "devices are busy, to be verified later",
        "Copy between these GPUs once before the work begins, so that they can be verified.";
    12 Staged(Unverified): Staged, "could not be verified",
        "Decisions say why, where that is known.";
    13 Staged(Slower): Staged, "direct is slower",
        "Direct copies were measured to be slower. There is nothing to do.";
    14 Staged(BrokenInUse): Blocked, "broken though access is enabled",
        "These pairs failed verification: direct copies arrive wrong, or hang. `p2pshim doctor` names the likely cause, such as an IOMMU, and tests staged copies too.";
    15 Staged(DeniedInUse): Staged, "denied though access is enabled",
        "P2PSHIM_ACCESS=off or P2PSHIM_DENY keeps these pairs staged. Remove it if that is not intended.";
    16 Direct: Direct, "", "";
    17 SameDevice: SameDevice, "", "";
    18 Host: Host, "", "";
    19 Unknown: Unknown, "managed memory; with HIP also another process's", "";
    20 MappedOnUse: Mapped, "", "";
    21 Captured: Captured, "", "";
    22 Broken: Direct, "broken or denied, and could not be staged",
        "The data may be wrong. Run the program with `P2PSHIM_ACCESS=off`, or with `P2PSHIM_DENY` for the pair.";
    23 ByHand: ByHand, "by the program through the host",
        "Copy directly from GPU to GPU, such as by `x.to(\"cuda:1\")`, cudaMemcpyPeerAsync or MPI with CUDA: p2pshim makes that direct where it can.";
    24 Staged(BrokenNotEnabled): Blocked, "access not enabled, and broken",
        "Leave it so: an earlier check found that peer access loses data there, or hangs. `p2pshim doctor` names the likely cause, such as an IOMMU.";
    25 Staged(Graph): Staged, "a graph was instantiated before",
        "Copy between these GPUs once before graphs are instantiated. If access were enabled now, CUDA would refuse to update the graph that copies between them.";
}

impl Path {
    /// Its name without the reason.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Staged(_) => "staged",
            Self::Direct | Self::Broken => "direct",
            Self::SameDevice => "same-device",
            Self::Host => "host",
            Self::Unknown => "unknown",
            Self::MappedOnUse => "mapped on first use",
            Self::Captured => "captured",
            Self::ByHand => "by hand",
        }
    }

    /// Whether p2pshim has to stage such a copy: CUDA would copy on a path that is blocked, or refuse.
    #[inline(always)]
    pub const fn has_to_be_staged_by_us(self) -> bool {
        matches!(self, Self::Staged(Why::BrokenInUse | Why::DeniedInUse))
    }

    /// As reports show it: the name, and after a colon the reason.
    pub fn title(self) -> String {
        let (name, reason) = (self.name(), self.reason());
        if reason.is_empty() { name.to_owned() } else { format!("{name}: {reason}") }
    }
}

/// As the log shows it: the name, and in brackets the reason.
impl Display for Path {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        if *self == Self::Unknown {
            out.write_str("path ")?;
        }
        out.write_str(self.name())?;
        if self.reason().is_empty() { Ok(()) } else { write!(out, " ({})", self.reason()) }
    }
}

/// The outcome of verifying a pair of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verified {
    /// The pair can be trusted.
    Right,
    /// Copies are right, but slower than through the host.
    Slower,
    /// Verification did not come to an end.
    Unknown,
    /// The pair loses data, or hangs, and is not used.
    Avoided,
    /// The pair loses data, or hangs, and the program continues to use it.
    InUse,
    /// The pair was found before to lose data, or to hang, and `P2PSHIM_VERIFY=off` disregards that.
    Disregarded,
}

impl Verified {
    const ALL: [Self; 6] = [Self::Right, Self::Slower, Self::Unknown, Self::Avoided, Self::InUse, Self::Disregarded];

    /// Its name, in a decision's note and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Right => "right",
            Self::Slower => "slower",
            Self::Unknown => "unknown",
            Self::Avoided => "avoided",
            Self::InUse => "in use",
            Self::Disregarded => "disregarded",
        }
    }

    /// The outcome with a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verified| verified.name() == name)
    }

    /// Whether the pair loses data, or hangs.
    pub const fn is_broken(self) -> bool {
        matches!(self, Self::Avoided | Self::InUse | Self::Disregarded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_numbers_are_in_order_and_come_back() {
        for (number, &path) in (1..).zip(Path::ALL) {
            assert_eq!((path.number(), Path::numbered(number)), (number, Some(path)));
            assert_eq!(path.reason_for_c().to_str(), Ok(path.reason()));
            assert_eq!(path.class().is_staged(), matches!(path, Path::Staged(_)), "{path}");
            let is_other = matches!(path, Path::Broken | Path::ByHand);
            assert_eq!(path.class().is_staged(), !path.remedy().is_empty() && !is_other, "{path}");
        }
        assert_eq!([0, 26, 255].map(Path::numbered), [None; 3]);
    }

    #[test]
    fn path_as_log_and_report_show_it() {
        let pool = Path::Staged(Why::Pool);
        assert_eq!(
            (pool.to_string(), pool.title()),
            ("staged (pool without access)".into(), "staged: pool without access".into())
        );
        assert_eq!((Path::Direct.to_string(), Path::Direct.title()), ("direct".into(), "direct".into()));
        assert_eq!(Path::Unknown.to_string(), "path unknown (managed memory; with HIP also another process's)");
        assert_eq!(Path::Unknown.title(), "unknown: managed memory; with HIP also another process's");
    }
}
