//! What values mean, and how texts are read.

use crate::nearest::nearest;

/// Who decides about peer access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The shim: verified, for pairs that copy.
    Auto,
    /// The program.
    App,
    /// Nobody gets any.
    Off,
}

/// How a pair is verified before it is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// By copies.
    Quick,
    /// By copies, and by the verdict that the command has left.
    Full,
    /// Not at all.
    Off,
}

/// What a program gets that asks for peer access between devices whose path is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// What it gets where there is no path.
    Refuse,
    /// What it asks for. It is said.
    Warn,
}

/// Who takes a copy through the host for which there is no direct path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Staging {
    /// The driver.
    Driver,
    /// The shim, and the call returns at once.
    Auto,
    /// The shim, and the call returns when the copy is done.
    Blocking,
}

/// What is done about calls whose arguments are wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validate {
    /// It is said.
    Warn,
    /// It is said, and they get the documented error.
    Strict,
    /// Nothing.
    Off,
}

/// Of which copies it is measured how long GPUs take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum GpuTiming {
    /// Of as many as cost little.
    Sample,
    /// Of each.
    All,
    /// Of none.
    Off,
}

/// For which copies the Python line is noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stacks {
    /// For the first from each place, and for fewer and fewer of those that follow.
    Sites,
    /// For each.
    All,
    /// For none.
    Off,
}

/// One device's access to the memory of another, by ordinals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied {
    /// The device that would reach.
    pub device: i32,
    /// The device whose memory it would be.
    pub peer: i32,
}

/// Reads `0-1,2>3`.
///
/// # Errors
/// A sentence about the item that is no pair.
pub(super) fn pairs(text: &str) -> Result<Vec<Denied>, String> {
    parse_pairs(text)
        .map_err(|item| format!("`{item}` is no pair of devices; write 0-1 (both ways) or 0>1. Nothing is denied"))
}

/// # Errors
/// The item that is no pair.
fn parse_pairs(text: &str) -> Result<Vec<Denied>, &str> {
    let mut pairs = Vec::new();
    for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let both_ways = item.split_once('-');
        let (device, peer) = both_ways.or(item.split_once('>')).ok_or(item)?;
        let ordinal = |text: &str| text.trim().parse::<u16>().map(i32::from).map_err(|_| item);
        let (device, peer) = (ordinal(device)?, ordinal(peer)?);
        if device == peer {
            return Err(item);
        }
        pairs.push(Denied { device, peer });
        pairs.extend(both_ways.map(|_| Denied { device: peer, peer: device }));
    }
    Ok(pairs)
}

/// Reads `500M`: bytes, with a power of 1024.
///
/// # Errors
/// A sentence.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let problem = "no size; write bytes, such as 500M (K, M, G and T are powers of 1024).";
    parse_size(text).ok_or_else(|| problem.to_owned())
}

fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.trim_end_matches(|last: char| !last.is_ascii_digit());
    let unit = text.strip_prefix(digits)?.trim().to_ascii_uppercase();
    let power = match unit.trim_end_matches('B').trim_end_matches('I') {
        "" => 0,
        "K" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << (10 * power))
}

/// What lines of the log are filtered by.
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
