//! The check that `p2pshim run` makes before the program starts, once after each boot: of all GPUs, whichever the program sees, and in
//! processes of their own.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use p2pshim_host::machine::{self, Machine};
use p2pshim_host::stagers::Stagers;
use p2pshim_host::verdict;
use p2pshim_host::verdicts::{self, Cache, Key};

use super::TIMEOUT_S;
use super::examine::{self, patience};
use super::inventory::Inventory;
use super::kept;
use super::level::Level;
use super::lines::{Finding, Test, Verdict};
use super::progress::{Note, Progress};
use super::report::Row;
use super::session::{Session, Settings};
use crate::complain;

/// After how long a run says that it waits for another that checks, and how long it waits.
const PATIENCE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];
/// How often it looks.
const PAUSE: Duration = Duration::from_millis(20);

/// How much is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// Copies within a process and between two.
    Quick,
    /// Accesses of kernels too, and large copies.
    Full,
}

impl Check {
    /// Its word in the name of a file.
    fn word(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Full => "full",
        }
    }
}

/// How a check came out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Checked {
    /// A line for the user; none of an earlier check.
    pub(crate) line: Option<String>,
    /// Whether all GPUs were checked, and no data was lost.
    pub(crate) is_right: bool,
    /// Whether kernels' accesses were checked too.
    pub(crate) is_full: bool,
    /// The time of an earlier check.
    pub(crate) earlier: Option<SystemTime>,
    /// The pairs, by UUIDs, on which copies through the host are wrong as well.
    pub(crate) wrong_through_host: BTreeSet<[String; 2]>,
}

/// Checks the GPUs, unless that was done since the machine was booted, or there are less than two. The program finds `environment`, with
/// so many simulated GPUs.
///
/// # Errors
/// Why they are not checked, for the user.
pub(crate) fn check(
    environment: &[(OsString, OsString)],
    simulated: Option<u8>,
    check: Check,
) -> Result<Option<Checked>, String> {
    let root = machine::root(simulated.is_some(), std::env::var_os("P2PSIM_ROOT"));
    let gpus = match (&root, simulated) {
        (Some(root), _) => Machine::uuids(root),
        (None, count) => vec![format!("simulated {}", count.unwrap_or_default())],
    };
    if simulated.is_some_and(|count| count < 2) || root.is_some() && gpus.len() == 1 {
        return Ok(None);
    }
    let (cache, places) = (kept::cache(), kept::places(root.as_deref()));
    let faults = Some(kept::faults()).filter(|_| std::env::var_os("P2PSIM_ROOT").is_none());
    let faults = faults.filter(|faults| simulated.is_some() || faults != ";");
    let key = |check: Check| verdicts::key_of_all(&gpus, faults.as_deref(), check.word());
    let own = key(check).ok_or("the system does not say when it was booted")?;
    let full = key(Check::Full).unwrap_or_else(|| own.clone());
    let done = |cache: &Cache| {
        let (key, verdict) = [&own, &full].into_iter().find_map(|key| Some((key, cache.get(key)?)))?;
        // Faults that were found since then count too.
        let is_right = verdict.within_process() == Some(Ok(())) && kept::for_nccl(simulated.is_some()).broken.is_none();
        let is_full = cache.get(&full).is_some();
        let earlier = cache.time(key);
        // Such a pair is undecided, and the check is made again.
        Some(Checked { line: None, is_right, is_full, earlier, wrong_through_host: BTreeSet::new() })
    };
    if let done @ Some(_) = places.iter().find_map(done) {
        log::info!("the GPUs were checked since the machine was booted");
        return Ok(done);
    }
    // Where the kernel module names no GPU there mostly is none, and nobody has to hear about it.
    let are_several = || inventory(environment, true).is_ok_and(|inventory| inventory.devices.len() > 1);
    if gpus.is_empty() && !are_several() {
        return Ok(None);
    }
    let cache = cache.ok_or("neither XDG_CACHE_HOME nor HOME is set, so that verdicts cannot be saved")?;
    let lock = hold(&cache, &own, PATIENCE, complain)?;
    // Another may have done it meanwhile.
    if let done @ Some(_) = done(&cache) {
        return Ok(done);
    }
    make(&cache, &own, environment, (check, simulated.is_some()), lock)
}

/// Checks of this user that are under way, with the process that makes each and what it tests, in a sentence.
pub(crate) fn under_way() -> Vec<(u32, String)> {
    let Some(cache) = kept::cache() else { return Vec::new() };
    let of = |path: PathBuf| {
        let is_lock = path.extension().is_some_and(|end| end == "lock");
        let mut file =
            OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(&path).ok().filter(|_| is_lock)?;
        // Whoever checks holds it, and lets go of it in the end, whatever becomes of the process.
        let is_held = matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
        let since = file.metadata().ok()?.modified().ok()?.elapsed().unwrap_or_default().as_secs();
        let mut text = String::new();
        file.read_to_string(&mut text).ok().filter(|_| is_held)?;
        let Note { process, patience, test } = Note::read(&text)?;
        let patience = patience.as_secs();
        Some((
            process,
            format!(
                "process {process} checks the GPUs before its program starts, and has been testing {test} for {since} s; a pair that makes no progress is given up after {patience} s"
            ),
        ))
    };
    let files = fs::read_dir(cache.folder()).into_iter().flatten().flatten();
    files.filter_map(|entry| of(entry.path())).collect()
}

/// Waits until no other process checks the same GPUs.
///
/// # Errors
/// Why nothing can be kept, or that it takes too long, for the user.
fn hold(cache: &Cache, key: &Key, [quiet, patience]: [Duration; 2], say: impl FnOnce(String)) -> Result<File, String> {
    let (file, started, mut say) = (cache.lock_file(key)?, Instant::now(), Some(say));
    while let Err(TryLockError::WouldBlock) = file.try_lock() {
        if started.elapsed() >= quiet
            && let Some(say) = say.take()
        {
            let who = under_way().into_iter().next().map(|(_, what)| what);
            let who = who.unwrap_or_else(|| "another process checks the GPUs before its program starts".to_owned());
            say(format!("waiting for at most {} s: {who}", patience.as_secs()));
        }
        if started.elapsed() > patience {
            return Err(format!("another process has been checking them for {} s", patience.as_secs()));
        }
        thread::sleep(PAUSE);
    }
    Ok(file)
}

fn settings<'a>(
    environment: &'a [(OsString, OsString)],
    level: Level,
    progress: &'a Progress,
    sees_all: bool,
) -> Settings<'a> {
    let timeout = Duration::from_secs(TIMEOUT_S);
    Settings { environment, level, timeout, patience: patience(timeout), progress, sees_all, soak: Duration::ZERO }
}

/// The GPUs that a process with this environment sees, or all of them.
///
/// # Errors
/// Why it sees none, in a sentence for the user.
fn inventory(environment: &[(OsString, OsString)], sees_all: bool) -> Result<Inventory, String> {
    let progress = Progress::new();
    let mut session = Session::start(settings(environment, Level::Quick, &progress, sees_all))?;
    let inventory = session.list();
    session.end();
    progress.clear();
    inventory
}

/// The UUIDs of the GPUs that a process with this environment sees, by their ordinals.
///
/// # Errors
/// Why it sees none, in a sentence for the user.
pub(crate) fn uuids(environment: &[(OsString, OsString)]) -> Result<Vec<String>, String> {
    Ok(inventory(environment, false)?.devices.into_iter().map(|device| device.uuid).collect())
}

fn make(
    cache: &Cache,
    key: &Key,
    environment: &[(OsString, OsString)],
    (check, are_simulated): (Check, bool),
    lock: File,
) -> Result<Option<Checked>, String> {
    let (progress, started) = (Progress::noted(lock), Instant::now());
    let level = if check == Check::Full { Level::Usual } else { Level::Quick };
    let settings = settings(environment, level, &progress, true);
    let mut session = Session::start(settings)?;
    let inventory = session.list()?;
    if inventory.devices.len() < 2 {
        session.end();
        return Ok(None);
    }
    let is_fit = |ordinal: usize| !inventory.unfit.iter().any(|(unfit, _)| *unfit == ordinal);
    let pairs = inventory.paths.iter().map(|(pair, _)| *pair).filter(|pair| pair.iter().all(|gpu| is_fit(*gpu)));
    let rows = examine::test(&pairs.collect::<Vec<_>>(), session, settings);
    let others = measured_without_path(&inventory, &rows, settings);
    progress.clear();
    let is_right = inventory.unfit.is_empty() && rows.iter().all(|row| row.verdict == Verdict::Passed);
    let is_decided = rows.iter().all(|row| !is_undecided(row));
    let tested = rows.len();
    let all: Vec<Row> = rows.into_iter().chain(others).collect();
    // The note on the check, which follows, says why if nothing can be kept.
    let _ = kept::keep_all(&inventory, &all, TIMEOUT_S, check == Check::Quick);
    // Earlier findings of more tests than these count too.
    let earlier = kept::for_nccl(are_simulated).broken;
    let line = line(&inventory, all.get(..tested).unwrap_or_default(), (check, earlier.as_deref()), started.elapsed());
    let of_all =
        if is_right { verdict::Verdict::of(Test::Copies, Finding::Right) } else { verdict::Verdict::default() };
    let note = |cache: &Cache| cache.put(key, of_all.clone(), false);
    if is_decided && !kept::own_places(&inventory).iter().map(note).fold(false, |any, one| any | one) {
        return Err(format!("{} cannot be written to", cache.folder().display()));
    }
    let is_right = is_right && earlier.is_none();
    let uuid = |ordinal: usize| inventory.devices.get(ordinal).map(|device| device.uuid.clone());
    let tested = all.get(..tested).unwrap_or_default().iter().filter(|row| row.is_wrong_through_host());
    let wrong_through_host = tested.filter_map(|row| Some([uuid(row.pair[0])?, uuid(row.pair[1])?])).collect();
    let is_full = check == Check::Full;
    Ok(Some(Checked { line: Some(line), is_right, is_full, earlier: None, wrong_through_host }))
}

/// The pairs whose copies will go through the host, with who stages them faster: those without a path, and those that are not right.
fn measured_without_path(inventory: &Inventory, rows: &[Row], settings: Settings<'_>) -> Vec<Row> {
    let is_fit = |ordinal: &usize| !inventory.unfit.iter().any(|(unfit, _)| unfit == ordinal);
    let fit: Vec<usize> = (0..inventory.devices.len()).filter(is_fit).collect();
    let pairs = fit.iter().flat_map(|&from| fit.iter().map(move |&to| [from, to])).filter(|[from, to]| from != to);
    let is_right = |pair: &[usize; 2]| rows.iter().any(|row| row.pair == *pair && row.verdict == Verdict::Passed);
    let staged: Vec<[usize; 2]> = pairs.filter(|pair| !is_right(pair)).collect();
    // GPUs of a pair that hung may be of no use.
    let may_measure = !staged.is_empty() && !rows.iter().any(Row::is_hung);
    let stagers = if may_measure { examine::stagers(&staged, settings) } else { Stagers::default() };
    staged.into_iter().map(|pair| Row { stagers, ..Row::new(pair, Verdict::NoPath) }).collect()
}

fn is_undecided(row: &Row) -> bool {
    matches!(row.verdict, Verdict::Unknown(_))
}

fn is_hung(finding: &Finding) -> bool {
    matches!(finding, Finding::Hung(_))
}

/// How the check came out, in a line.
fn line(inventory: &Inventory, rows: &[Row], (check, earlier): (Check, Option<&str>), time: Duration) -> String {
    let (count, unfit) = (inventory.devices.len(), inventory.unfit.len());
    let checked = match (count - unfit, unfit) {
        (fit, 0) => format!("{fit} GPUs"),
        (0 | 1, _) => format!("none of {count} GPUs"),
        (fit, _) => format!("{fit} of {count} GPUs"),
    };
    let mut parts = Vec::new();
    let names = |is_meant: &dyn Fn(&Row) -> bool| {
        let names = rows.iter().filter(|row| is_meant(row)).map(Row::name).collect::<Vec<_>>();
        Some(names.join(" ")).filter(|names| !names.is_empty())
    };
    let is_between = |row: &Row| row.fails_only(&Test::BETWEEN_PROCESSES);
    let is_wrong = |row: &Row| matches!(row.verdict, Verdict::Failed(_));
    let fails = |row: &Row| is_wrong(row) && !is_between(row);
    if let Some(names) = names(&|row| fails(row) && row.findings.iter().flatten().any(is_hung)) {
        parts.push(format!("peer access hangs on {names}, and p2pshim does not use it"));
    }
    if let Some(names) = names(&|row| fails(row) && !row.findings.iter().flatten().any(is_hung)) {
        parts.push(format!("peer access loses data on {names}, and p2pshim does not use it"));
    }
    if let Some(names) = names(&|row| is_wrong(row) && is_between(row)) {
        parts.push(format!("right within a process, but wrong between processes on {names}"));
    }
    if !parts.is_empty() {
        parts.push("`p2pshim doctor` shows more".to_owned());
    }
    if let (Some(names), Some(Verdict::Unknown(why))) = (
        names(&is_undecided),
        rows.iter().map(|row| &row.verdict).find(|verdict| matches!(verdict, Verdict::Unknown(_))),
    ) {
        parts.push(format!("undecided on {names}: {why}"));
    }
    if parts.is_empty() && count - unfit > 1 {
        // A quick check does not see the work of kernels.
        let right = if check == Check::Quick { "copies right" } else { "right" };
        parts.push(match earlier {
            _ if rows.is_empty() => "no pair has a path".to_owned(),
            Some(earlier) => format!("{right}, but an earlier check found that {earlier}"),
            None => right.to_owned(),
        });
    }
    let left_out = |(ordinal, why): &(usize, String)| format!("GPU {ordinal} ({why})");
    if unfit > 0 {
        parts.push(format!("left out: {}", inventory.unfit.iter().map(left_out).collect::<Vec<_>>().join(", ")));
    }
    let how_often = if rows.iter().any(is_undecided) { "again at the next start" } else { "once per boot" };
    format!("checked {checked}: {}; {:.1} s, {how_often} (--no-check skips it)", parts.join("; "), time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hold_says_once_that_it_waits_for_another_and_gives_up() {
        let home = tempfile::tempdir().unwrap();
        let cache = Cache::of(Some(home.path().into()), None, rustix::process::geteuid().as_raw()).unwrap();
        let key = verdicts::key_of_all(&["simulated 2".to_owned()], Some("a test"), "quick").unwrap();
        let mut said = Vec::new();
        let mut hold = |patience| hold(&cache, &key, [Duration::ZERO, patience], |line| said.push(line));
        let held = hold(Duration::ZERO).unwrap();
        let refused = hold(4 * PAUSE).unwrap_err();
        assert!(refused.starts_with("another process has been checking them for "), "{refused}");
        drop(held);
        assert!(hold(Duration::ZERO).is_ok());
        assert!(said.len() == 1 && said[0].starts_with("waiting for at most 0 s: "), "{said:?}");
    }
}
