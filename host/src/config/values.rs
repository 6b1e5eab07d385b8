//! The types of options' values, and the readers of their texts.

use std::fmt::{self, Display, Formatter};

use crate::nearest::nearest;

/// The party that decides about peer access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// The shim: verified, for pairs that copy.
    #[default]
    Auto,
    /// The program.
    App,
    /// Nobody gets any.
    Off,
}

/// How a pair is verified before it is trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// By copies.
    #[default]
    Quick,
    /// By copies, and by the verdict that the command has left.
    Full,
    /// Not at all.
    Off,
}

/// The answer to a program that asks for peer access between devices whose path is broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Broken {
    /// The answer where there is no path.
    #[default]
    Refuse,
    /// Peer access, and a warning.
    Warn,
}

/// The codes that are forgiven: of calls that had nothing to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forgiven {
    /// 704: peer access is enabled already.
    pub enabled: bool,
    /// 705: peer access is not enabled.
    pub not_enabled: bool,
}

/// The stager of a copy for which there is no direct path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Staging {
    /// The driver.
    Driver,
    /// Whoever is faster; if that is the shim, the call returns at once.
    Auto,
    /// The shim, and the call returns at once.
    Always,
    /// The shim, and the call returns when the copy is done.
    Blocking,
}

/// Which copies of the program are read back and compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Readback {
    /// None.
    Off,
    /// Parts of some.
    Sample,
    /// All of each.
    All,
}

/// Whether order is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Order is not checked.
    #[default]
    Off,
    /// Order is checked.
    On,
    /// Order is checked, and waits are added that an earlier run lacked.
    Enforce,
}

/// The treatment of calls whose arguments are wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validate {
    /// Findings are logged.
    Warn,
    /// Findings are logged, and the calls return the documented error.
    Strict,
    /// Findings are not looked for.
    Off,
}

/// The copies whose time on the GPU is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum GpuTiming {
    /// As many as cost little.
    Sample,
    /// Each.
    All,
    /// None.
    Off,
}

/// The copies that the Python line is noted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stacks {
    /// The first from each place, and fewer and fewer of those that follow.
    Sites,
    /// Each.
    All,
    /// None.
    Off,
}

/// A GPU, as the user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GpuName {
    /// By the program's ordinal.
    Ordinal(i32),
    /// By its ordinal in HIP alone.
    Hip(i32),
    /// `GPU-`, or of an instance of a partitioned one `MIG-`, and 32 digits, in lower case.
    Uuid(String),
    /// `0000:1a:00.0`, in lower case.
    BusId(String),
}

impl GpuName {
    /// Reads an ordinal, `hip:` and an ordinal, a UUID as `nvidia-smi -L` prints it, or a PCI address with a domain of up to eight digits or without.
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim().to_ascii_lowercase();
        if let Ok(ordinal) = text.parse::<u16>() {
            return Some(Self::Ordinal(ordinal.into()));
        }
        if let Some(ordinal) = text.strip_prefix("hip:") {
            return ordinal.parse::<u16>().ok().map(|ordinal| Self::Hip(ordinal.into()));
        }
        let is_hex = |part: &str, digits: usize| part.len() == digits && part.bytes().all(|it| it.is_ascii_hexdigit());
        if let Some(uuid) = text.strip_prefix("gpu-").or_else(|| text.strip_prefix("mig-")) {
            let parts: Vec<&str> = uuid.split('-').collect();
            let is_uuid =
                parts.len() == 5 && parts.iter().zip([8, 4, 4, 4, 12]).all(|(part, digits)| is_hex(part, digits));
            return is_uuid.then_some(Self::Uuid(text));
        }
        let (bus, function) = text.rsplit_once('.')?;
        let parts: Vec<&str> = bus.split(':').collect();
        let (domain, bus, device) = match parts[..] {
            [bus, device] => ("0", bus, device),
            [domain, bus, device] => (domain, bus, device),
            _ => return None,
        };
        let domain = u32::from_str_radix(domain, 16).ok()?;
        let is_address = is_hex(bus, 2) && is_hex(device, 2) && is_hex(function, 1);
        is_address.then(|| Self::BusId(format!("{domain:04x}:{bus}:{device}.{function}")))
    }

    /// Whether it is the GPU with that ordinal in CUDA, UUID and PCI address.
    pub fn is(&self, ordinal: i32, uuid: &str, bus_id: &str) -> bool {
        match self {
            Self::Ordinal(own) => *own == ordinal,
            Self::Hip(_) => false,
            Self::Uuid(own) => uuid.eq_ignore_ascii_case(own),
            Self::BusId(own) => bus_id.eq_ignore_ascii_case(own),
        }
    }
}

impl Display for GpuName {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ordinal(ordinal) => write!(out, "device {ordinal}"),
            Self::Hip(ordinal) => write!(out, "device {ordinal} of HIP"),
            Self::Uuid(uuid) => write!(out, "{}", uuid.replacen("gpu", "GPU", 1).replacen("mig", "MIG", 1)),
            Self::BusId(address) => write!(out, "GPU {address}"),
        }
    }
}

/// One device's access to the memory of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// The device that would reach.
    pub device: GpuName,
    /// The device whose memory it would be.
    pub peer: GpuName,
}

impl Denied {
    /// The ordinals of both in HIP, if they are named so.
    pub fn hip_ordinals(&self) -> Option<[i32; 2]> {
        match (&self.device, &self.peer) {
            (GpuName::Hip(device), GpuName::Hip(peer)) => Some([*device, *peer]),
            _ => self.ordinals(),
        }
    }

    /// The ordinals of both, if they are named so.
    pub fn ordinals(&self) -> Option<[i32; 2]> {
        match (&self.device, &self.peer) {
            (GpuName::Ordinal(device), GpuName::Ordinal(peer)) => Some([*device, *peer]),
            _ => None,
        }
    }
}

/// Reads `0-1,2>3`.
///
/// # Errors
/// A sentence about the items that are no pairs.
pub(super) fn pairs(text: &str) -> Result<Vec<Denied>, String> {
    let (mut pairs, mut wrong) = (Vec::new(), Vec::new());
    for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let Some((pair, is_both_ways)) = pair(item).filter(|([device, peer], _)| device != peer) else {
            wrong.push(format!("`{item}`"));
            continue;
        };
        let [device, peer] = pair;
        if is_both_ways {
            pairs.push(Denied { device: peer.clone(), peer: device.clone() });
        }
        pairs.push(Denied { device, peer });
    }
    let are = match wrong.len() {
        0 => return Ok(pairs),
        1 => "is no pair of devices",
        _ => "are no pairs of devices",
    };
    Err(format!(
        "{} {are}; write 0-1 (both ways) or 0>1, with ordinals, UUIDs or PCI addresses. Nothing is denied",
        wrong.join(", ")
    ))
}

/// Reads `704,705`: codes that may be forgiven.
///
/// # Errors
/// A sentence about the item that is none of them.
pub(super) fn forgiven(text: &str) -> Result<Forgiven, String> {
    let mut forgiven = Forgiven::default();
    for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        match item {
            "704" => forgiven.enabled = true,
            "705" => forgiven.not_enabled = true,
            _ => {
                return Err(format!(
                    "`{item}` cannot be forgiven; write 704 (access is enabled already) or 705 (it is not enabled): calls that had nothing to do. Nothing is forgiven"
                ));
            }
        }
    }
    Ok(forgiven)
}

/// Reads a pair, and whether both ways are meant.
fn pair(item: &str) -> Option<([GpuName; 2], bool)> {
    let named = |device: &str, peer: &str| Some([GpuName::parse(device)?, GpuName::parse(peer)?]);
    if let Some((device, peer)) = item.split_once('>') {
        return Some((named(device, peer)?, false));
    }
    // A UUID has dashes too.
    let dashes = item.match_indices('-').map(|(at, _)| item.split_at(at));
    let pair = dashes.filter_map(|(device, peer)| named(device, peer.strip_prefix('-')?)).next()?;
    Some((pair, true))
}

/// The targets that a filter of the log may name.
const TARGETS: &[&str] = &["p2pshim", "p2pshim::call", "p2pshim::finding", "p2pshim::lookup", "p2pshim::policy"];

const LEVELS: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];

/// Reads a filter of the log, as env_logger has it.
///
/// # Errors
/// A sentence.
pub(super) fn filter(text: &str) -> Result<String, String> {
    check_filter(text).map(|()| text.to_owned()).map_err(|why| match nearest(text, LEVELS.iter().copied()) {
        Some(nearest) => format!("{why}; did you mean {nearest}?"),
        None => format!("{why}."),
    })
}

/// # Errors
/// Why `filter` is none. A bare word that is no level would be taken for a module's name and
/// silence everything else, so it is refused unless it names one of ours.
fn check_filter(filter: &str) -> Result<(), String> {
    env_filter::Builder::new().try_parse(filter).map_err(|error| error.to_string())?;
    for directive in filter.split('/').next().unwrap_or_default().split(',') {
        let directive = directive.trim();
        let target = directive.split('=').next().unwrap_or_default();
        let is_level = LEVELS.iter().any(|level| level.eq_ignore_ascii_case(directive));
        if !directive.is_empty() && !is_level && !TARGETS.contains(&target) {
            let (levels, targets) = (LEVELS.join(", "), TARGETS.join(", "));
            return Err(format!("`{directive}` is neither a level ({levels}) nor one of the targets {targets}"));
        }
    }
    Ok(())
}
