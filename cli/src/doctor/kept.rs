//! Verdicts that are kept for the shim: those that the doctor has found, and those that `p2pshim run` makes.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use p2pshim_host::machine::{self, Machine};
use p2pshim_host::verdicts::{self, Cache, Facts, Key, Question};

use super::examine::{self, patience};
use super::lines::{Finding, Test, Verdict};
use super::progress::Progress;
use super::session::{Session, Settings};
use super::verify::Level;
use super::{FAILED, Inventory, Row, TIMEOUT_S};
use crate::complain;

/// Where the shim looks for verdicts, if there is a place for them.
pub(super) fn cache() -> Option<Cache> {
    // SAFETY: geteuid takes and touches nothing.
    let user = unsafe { libc::geteuid() };
    Cache::of(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME"), user)
}

/// Keeps the verdict on a pair for the shim; returns whether it is kept.
pub(super) fn keep(cache: &Cache, inventory: &Inventory, row: &Row, timeout: u64) -> bool {
    let is_hung = row.findings.iter().any(|finding| matches!(finding, Some(Finding::Hung(_))));
    let verdict = match &row.verdict {
        Verdict::Passed => verdicts::Verdict::Passed,
        // A user may be less patient than others.
        Verdict::Failed(why) if !is_hung || timeout >= TIMEOUT_S => verdicts::Verdict::Failed(why.clone()),
        Verdict::Failed(_) | Verdict::NoPath | Verdict::Unknown(_) => return false,
    };
    let Some(key) = key(inventory, row.pair) else { return false };
    // That less memory is right says nothing of the rest.
    let is_less = verdict == verdicts::Verdict::Passed && row.finding(Test::AllMemory) != Some(&Finding::Right);
    if is_less
        && matches!(cache.get(&key), Some(verdicts::Verdict::Failed(why)) if why.starts_with(Test::AllMemory.name()))
    {
        return false;
    }
    cache.put(&key, &verdict)
}

/// What the verdict on a pair is kept by.
fn key(inventory: &Inventory, pair: [usize; 2]) -> Option<Key> {
    let [from, to] = pair.map(|ordinal| inventory.devices.get(ordinal).cloned());
    let (from, to) = (from?, to?);
    Facts::new().key(&Question {
        from_uuid: from.uuid,
        from_bus_id: from.bus_id,
        to_uuid: to.uuid,
        to_bus_id: to.bus_id,
        driver_version: inventory.driver?,
    })
}

/// Two GPUs of this machine between which data does not arrive, by the verdicts that are kept: a sentence.
pub(crate) fn broken_pair(are_simulated: bool) -> Option<String> {
    let gpus = Machine::uuids(&machine::root(are_simulated, std::env::var_os("P2PSIM_ROOT"))?);
    let failed = cache()?.failed();
    let [from, to] = failed.into_iter().find(|pair| pair.iter().all(|uuid| gpus.contains(uuid)))?;
    Some(format!("peer access from {from} to {to} is broken (p2pshim doctor)"))
}

/// Removes all verdicts.
///
/// # Errors
/// The output could not be written.
pub(super) fn forget(out: &mut impl Write) -> io::Result<ExitCode> {
    let Some(cache) = cache() else {
        complain("neither XDG_CACHE_HOME nor HOME is set, so no verdicts are saved");
        return Ok(ExitCode::from(FAILED));
    };
    match cache.forget() {
        Ok(count) => {
            writeln!(out, "verdicts removed from {}: {count}", cache.folder().display())?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            complain(format_args!("a verdict in {} cannot be removed: {error}", cache.folder().display()));
            Ok(ExitCode::from(FAILED))
        }
    }
}

/// Which verdicts are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needed {
    /// On all pairs: `P2PSHIM_PROBE=full`.
    All,
    /// On those that the shim does not verify in the program's process, since a copy may hang there.
    Risky,
}

/// Makes the verdicts that are missing on pairs of GPUs that a process with this environment sees, and says what it does.
/// Those on simulated GPUs, with which something else may go wrong each time, are made anew.
///
/// # Errors
/// Why there is none on some pair, and what follows, in a sentence for the user.
pub(crate) fn make_missing(
    environment: &[(OsString, OsString)],
    are_simulated: bool,
    needed: Needed,
) -> Result<(), String> {
    let root = machine::root(are_simulated, std::env::var_os("P2PSIM_ROOT"));
    let machine = root.as_deref().map(Machine::read_all).unwrap_or_default();
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
    let all = root.and_then(|root| verdicts::key_of_all(&Machine::uuids(&root), &visible)).zip(cache());
    let is_none_missing = || all.as_ref().is_some_and(|(key, cache)| cache.get(key).is_some());
    // On most machines no copy is known to hang, and their GPUs are asked nothing; on others once after each boot.
    if needed == Needed::Risky && (!machine.has_risk() || is_none_missing()) {
        return Ok(());
    }
    make(environment, are_simulated, needed, &machine).map_err(|why| match needed {
        Needed::All => format!("P2PSHIM_PROBE=full: {why}; pairs without a verdict are verified as with quick"),
        Needed::Risky => format!("{why}; no pair is enabled that has no verdict"),
    })?;
    if let Some((key, cache)) = all {
        cache.put(&key, &verdicts::Verdict::Passed);
    }
    Ok(())
}

fn settings<'a>(environment: &'a [(OsString, OsString)], level: Level, progress: &'a Progress) -> Settings<'a> {
    let timeout = Duration::from_secs(TIMEOUT_S);
    Settings { environment, level, timeout, patience: patience(timeout), progress }
}

/// The UUIDs of the GPUs that a process with this environment sees, by their ordinals.
///
/// # Errors
/// Why it sees none, in a sentence for the user.
pub(crate) fn uuids(environment: &[(OsString, OsString)]) -> Result<Vec<String>, String> {
    let progress = Progress::new();
    let mut session = Session::start(settings(environment, Level::Quick, &progress))?;
    let inventory = session.list();
    session.end();
    progress.clear();
    Ok(inventory?.devices.into_iter().map(|device| device.uuid).collect())
}

fn make(
    environment: &[(OsString, OsString)],
    are_simulated: bool,
    needed: Needed,
    machine: &Machine,
) -> Result<(), String> {
    let cache = cache().ok_or("neither XDG_CACHE_HOME nor HOME is set, so verdicts cannot be saved")?;
    let progress = Progress::new();
    let settings = settings(environment, Level::Usual, &progress);
    let mut session = Session::start(settings)?;
    let inventory = session.list()?;
    let is_missing =
        |pair: &[usize; 2]| are_simulated || key(&inventory, *pair).is_none_or(|key| cache.get(&key).is_none());
    let is_needed = |pair: &[usize; 2]| needed == Needed::All || inventory.risk(machine, *pair).is_some();
    let paths = inventory.paths.iter().map(|(pair, _)| *pair);
    let missing: Vec<[usize; 2]> = paths.filter(is_needed).filter(is_missing).collect();
    let Some(first) = missing.first() else {
        session.end();
        return Ok(());
    };
    let why = match needed {
        Needed::All => "P2PSHIM_PROBE=full".to_owned(),
        Needed::Risky => inventory.risk(machine, *first).unwrap_or_default(),
    };
    complain(format_args!(
        "{why}: {} between GPUs {} verified before the program starts; verdicts are saved in {}",
        if missing.len() == 1 { "1 path".to_owned() } else { format!("{} paths", missing.len()) },
        if missing.len() == 1 { "is" } else { "are" },
        cache.folder().display()
    ));
    let mut unknown = None;
    let rows = examine::test(&missing, session, settings);
    progress.clear();
    for row in rows {
        if !keep(&cache, &inventory, &row, TIMEOUT_S) {
            let why = match row.verdict {
                Verdict::Unknown(why) => why,
                _ => format!("cannot write to {}", cache.folder().display()),
            };
            let [from, to] = row.pair;
            unknown = unknown.or(Some(format!("{from}>{to}: {why}")));
        }
    }
    unknown.map_or(Ok(()), Err)
}
