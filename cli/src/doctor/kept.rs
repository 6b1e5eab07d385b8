//! Verdicts that are kept for the shim, and for others.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use p2pshim_host::machine::{self, Machine};
use p2pshim_host::verdict::{Finding, Speed, Verdict as Parts};
use p2pshim_host::verdicts::{self, Cache, Facts, Key, Question};

use super::lines::{Test, Verdict};
use super::published::publish;
use super::{Inventory, Row, TIMEOUT_S};
use crate::complain;
use crate::status::UNKNOWN;

/// Where the user's verdicts are, if there is a place for them.
pub(super) fn cache() -> Option<Cache> {
    let user = rustix::process::geteuid().as_raw();
    Cache::of(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME"), user)
}

/// The places in which verdicts are looked for: the user's, and root's on the machine whose files are below `root`.
pub(super) fn places(root: Option<&Path>) -> Vec<Cache> {
    cache().into_iter().chain(root.map(Cache::of_system)).collect()
}

/// The places that this user writes to. Root tests for all users, unless it has a cache of its own choice.
pub(super) fn own_places(inventory: &Inventory) -> Vec<Cache> {
    let are_simulated = inventory.devices.iter().any(|device| device.name == machine::SIMULATED_NAME);
    let root = machine::root(are_simulated, std::env::var_os("P2PSIM_ROOT"));
    let has_choice = std::env::var_os("XDG_CACHE_HOME").is_some_and(|folder| Path::new(&folder).is_absolute());
    let is_for_all = rustix::process::geteuid().is_root() && !has_choice;
    places(root.as_deref().filter(|_| is_for_all))
}

/// Keeps what was found of pairs, and writes the file that others read. The first place that has it is returned.
///
/// # Errors
/// No place takes a verdict: the first reason.
pub(super) fn keep_all(
    inventory: &Inventory,
    rows: &[Row],
    timeout: u64,
    is_quick: bool,
) -> io::Result<Option<PathBuf>> {
    let (mut first, mut failed) = (None, None);
    for cache in own_places(inventory) {
        let mut is_any = false;
        for row in rows {
            match keep(&cache, inventory, row, timeout, is_quick) {
                Ok(is_kept) => is_any |= is_kept,
                Err(error) => _ = failed.get_or_insert(error),
            }
        }
        if is_any {
            publish(&cache);
            first.get_or_insert(cache.folder().to_owned());
        }
    }
    failed.filter(|_| first.is_none()).map_or(Ok(first), Err)
}

/// Keeps for the shim how each part of a pair came out; returns whether there is anything to keep. `is_quick` says that sizes were small.
pub(super) fn keep(cache: &Cache, inventory: &Inventory, row: &Row, timeout: u64, is_quick: bool) -> io::Result<bool> {
    let verdict = verdict(row, timeout);
    let Some(key) = key(inventory, row.pair).filter(|_| !verdict.is_empty()) else { return Ok(false) };
    cache.try_put(&key, verdict, is_quick).map(|()| true)
}

/// A row as it is kept. A user may be less patient than others: what did not end in a shorter time says nothing.
fn verdict(row: &Row, timeout: u64) -> Parts {
    let mut verdict = Parts::default();
    for (part, finding) in Test::ALL.into_iter().zip(&row.findings) {
        let Some(finding) = finding else { continue };
        let is_patient = timeout >= TIMEOUT_S || !matches!(finding, Finding::Hung(_));
        // Else the same is wrong through the host, or it is not known of which pair.
        let is_of_pair = !finding.is_failure() || matches!(row.verdict, Verdict::Failed(_));
        if is_patient && is_of_pair {
            verdict.set(part, finding.clone());
        }
    }
    let [direct, staged] = row.measures.map(|measure| measure.map(|measure| measure.speed));
    for (speed, measured) in Speed::ALL.into_iter().zip([direct, staged, row.at_once]) {
        if let Some(measured) = measured {
            verdict.set_speed(speed, measured);
        }
    }
    verdict.stagers = row.stagers;
    verdict
}

/// The key of the verdict on a pair. A verdict on simulated GPUs holds for the faults that they have.
fn key(inventory: &Inventory, pair: [usize; 2]) -> Option<Key> {
    let [from, to] = pair.map(|ordinal| inventory.devices.get(ordinal).cloned());
    let (from, to) = (from?, to?);
    let are_simulated = from.name == machine::SIMULATED_NAME;
    let is_nowhere = machine::root(are_simulated, std::env::var_os("P2PSIM_ROOT")).is_none();
    Facts::new().key(&Question {
        from_uuid: from.uuid,
        from_bus_id: from.bus_id,
        to_uuid: to.uuid,
        to_bus_id: to.bus_id,
        driver_version: inventory.driver?,
        faults: is_nowhere.then(faults),
    })
}

/// The faults of simulated GPUs.
pub(super) fn faults() -> String {
    verdicts::faults(|name| std::env::var_os(name))
}

/// Kept verdicts, as NCCL's variables have to know of them.
#[derive(Default)]
pub(crate) struct ForNccl {
    /// Two GPUs between which any use of peer access fails, if there are: a sentence.
    pub(crate) broken: Option<String>,
    /// The value of `NCCL_PROTO` that excludes the protocols that fail.
    pub(crate) proto: Option<&'static str>,
}

/// The verdicts that are kept on pairs of this machine's GPUs, by the UUIDs of who reaches and who is reached.
fn all(are_simulated: bool) -> Vec<([String; 2], Parts)> {
    let root = machine::root(are_simulated, std::env::var_os("P2PSIM_ROOT"));
    let (gpus, faults) = (root.as_deref().map(Machine::uuids), root.is_none().then(faults));
    let is_here = |uuid: &String| gpus.as_ref().is_none_or(|gpus| gpus.is_empty() || gpus.contains(uuid));
    let of = |cache: &Cache| {
        let pairs = cache.pairs().into_iter().filter(|pair| pair.iter().all(is_here));
        let known = |pair: [String; 2]| {
            let verdict = cache.between(pair.each_ref().map(String::as_str), faults.as_deref())?;
            Some((pair, verdict))
        };
        pairs.filter_map(known).collect::<Vec<_>>()
    };
    places(root.as_deref()).iter().flat_map(of).collect()
}

/// Reads the verdicts on GPUs of this machine for NCCL.
pub(crate) fn for_nccl(are_simulated: bool) -> ForNccl {
    let (mut said, mut failed) = (ForNccl::default(), Vec::new());
    for ([from, to], verdict) in all(are_simulated) {
        let fails = |part: &Test| verdict.finding(*part).is_some_and(Finding::is_failure);
        failed.extend(Test::OF_NCCL.into_iter().filter(fails));
        if let (Some((part, _)), None) = (verdict.any_failure(), &said.broken) {
            said.broken = Some(format!("peer access from {from} to {to} is broken ({}; p2pshim doctor)", part.name()));
        }
    }
    said.proto = Test::nccl_proto(|part| failed.contains(&part));
    said
}

/// The pairs of GPUs of this machine, by UUIDs, between which data is known to arrive.
pub(crate) fn right(are_simulated: bool) -> BTreeSet<[String; 2]> {
    let all = all(are_simulated).into_iter().filter_map(|(pair, verdict)| Some((pair, verdict.within_process()?)));
    let (right, wrong): (Vec<_>, Vec<_>) = all.partition(|(_, within)| within.is_ok());
    // One of several places may know more.
    right.into_iter().map(|(pair, _)| pair).filter(|pair| wrong.iter().all(|(other, _)| other != pair)).collect()
}

/// Removes all verdicts that are the user's.
///
/// # Errors
/// The output could not be written.
pub(super) fn forget(out: &mut impl Write) -> io::Result<ExitCode> {
    let places = own_places(&Inventory::default());
    let Some(first) = places.first() else {
        complain("neither XDG_CACHE_HOME nor HOME is set, so no verdicts are saved");
        return Ok(ExitCode::from(UNKNOWN));
    };
    for cache in &places {
        let folder = cache.folder().display();
        match cache.forget() {
            // Root's place mostly is not there.
            Ok(0) if cache.folder() != first.folder() => {}
            Ok(count) => writeln!(out, "verdicts removed from {folder}: {count}")?,
            Err(error) => {
                complain(format_args!("a verdict in {folder} cannot be removed: {error}"));
                return Ok(ExitCode::from(UNKNOWN));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
