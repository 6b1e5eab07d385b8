//! The cost of staging.

use std::collections::{BTreeMap, BTreeSet};

use p2pshim_trace::Class;

use super::model::{File, Lost, LostBy, Pair, Path, Report, Run, Share};
use super::term::count;

/// Processes that are named with what they lost.
const NAMED: usize = 16;

/// Why it is not known how much longer staging took.
pub(super) const NO_RATE: &str = "no direct copies of like size were measured";
/// Why it is not known where a filter has left copies out.
pub(super) const NO_RATE_THAT_FITS: &str = "none of the direct copies that fit are of like size and measured";

/// A run, a pair, and about which size: copies are compared with those of the same run, pair and size only, or of that run and size
/// anywhere.
type Kind = (usize, [usize; 2], u32);

/// Copies that were timed: bytes, and nanoseconds on the device.
#[derive(Clone, Copy, Default)]
struct Timed(f64, f64);

impl Timed {
    fn add(&mut self, path: &Path) {
        self.0 += path.device_bytes as f64;
        self.1 += path.device_ns as f64;
    }

    /// Nanoseconds a byte.
    fn pace(self) -> Option<f64> {
        (self.0 > 0.0 && self.1 > 0.0).then(|| self.1 / self.0)
    }
}

/// Adds up what was staged, of all processes and of each. Seconds are only told if there is something measured to tell them by.
/// `runs` has the files of each run, if there are several.
pub(super) fn lost(pairs: &[Pair], shares: &[Share], runs: &[Run]) -> Lost {
    let of: BTreeMap<usize, usize> =
        runs.iter().enumerate().flat_map(|(run, it)| it.files.iter().map(move |&file| (file, run))).collect();
    let kind =
        |share: &Share| -> Kind { (of.get(&share.file).copied().unwrap_or(runs.len()), share.pair, share.power) };
    let all = || pairs.iter().flat_map(|pair| &pair.paths);
    let mut lost = Lost {
        staged_bytes: sum(all().filter(|path| path.taken.class().is_staged()), |path| path.bytes),
        start_up_bytes: sum(all().filter(|path| path.taken.class() == Class::StartUp), |path| path.bytes),
        ..Lost::default()
    };
    let can = |pair: &&Pair| pair.access == Some(true) && !pair.is_blocked;
    let able: BTreeSet<[usize; 2]> = pairs.iter().filter(can).map(|pair| [pair.src, pair.dst]).collect();
    let could = || shares.iter().filter(|it| it.path.taken.class() == Class::Avoidable && able.contains(&it.pair));
    let mut staged: BTreeMap<Kind, Timed> = BTreeMap::new();
    for share in could() {
        lost.could_be_direct_bytes = lost.could_be_direct_bytes.saturating_add(share.path.bytes);
        lost.could_be_direct_calls += share.path.calls;
        staged.entry(kind(share)).or_default().add(&share.path);
    }
    let (mut direct, mut anywhere): (BTreeMap<Kind, Timed>, BTreeMap<(usize, u32), Timed>) = Default::default();
    for share in shares.iter().filter(|share| share.path.taken.class() == Class::Direct) {
        direct.entry(kind(share)).or_default().add(&share.path);
        anywhere.entry((kind(share).0, share.power)).or_default().add(&share.path);
    }
    let (mut by_others, mut no_rate) = (false, false);
    let mut more: BTreeMap<Kind, f64> = BTreeMap::new();
    for (kind, timed) in staged {
        let Some(pace) = timed.pace() else { continue };
        let own = direct.get(&kind).and_then(|timed| timed.pace());
        let Some(best) = own.or_else(|| anywhere.get(&(kind.0, kind.2))?.pace()) else {
            no_rate = true;
            continue;
        };
        by_others |= own.is_none();
        // Less than nothing where direct copies are slower: what is lost is lost in all.
        more.insert(kind, pace - best);
    }
    let mut nanos: BTreeMap<usize, f64> = BTreeMap::new();
    for share in could() {
        let Some(more) = more.get(&kind(share)) else {
            lost.is_at_least |= share.path.bytes > 0;
            continue;
        };
        lost.measured_calls += share.path.device_calls;
        lost.measured_bytes = lost.measured_bytes.saturating_add(share.path.device_bytes);
        *nanos.entry(share.file).or_default() += share.path.bytes as f64 * more;
    }
    if lost.could_be_direct_bytes == 0 {
        nothing_better(&mut lost, pairs);
    } else if lost.measured_calls > 0 {
        lost.seconds = Some(nanos.values().sum::<f64>().max(0.0) / 1e9);
        let processes = nanos.iter().map(|(&file, nanos)| LostBy { file, seconds: nanos / 1e9 });
        lost.processes = processes.filter(|by| by.seconds > 0.0).collect();
        lost.processes.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
        lost.processes.truncate(NAMED);
        let of = if by_others { "other pairs" } else { "the same pair" };
        lost.basis = format!(
            "{} of {}, compared with direct copies of like size of {of}",
            count(lost.measured_calls),
            counted_copies(lost.could_be_direct_calls),
        );
    } else if no_rate {
        lost.basis = NO_RATE.to_owned();
    } else {
        lost.basis = "no GPU times of the staged copies are known (P2PSHIM_GPU_TIMING says which are taken)".to_owned();
    }
    lost
}

/// Says why no copy is known to have been staged for nothing.
fn nothing_better(lost: &mut Lost, pairs: &[Pair]) {
    let unknown = pairs
        .iter()
        .any(|pair| pair.access.is_none() && pair.paths.iter().any(|path| path.taken.class() == Class::Avoidable));
    lost.basis = match (lost.staged_bytes, unknown) {
        (0, _) => "nothing was staged".to_owned(),
        (_, true) => "it is not known whether the GPUs can access each other".to_owned(),
        (staged, false) if staged == lost.start_up_bytes => "only the first copies of pairs were staged".to_owned(),
        (_, false) if lost.start_up_bytes > 0 => {
            "no staged copy but the first of pairs is known to have had a better path".to_owned()
        }
        (_, false) => "no staged copy is known to have had a better path".to_owned(),
    };
    // Nothing is lost where nothing could be better; that is known, and not estimated.
    lost.seconds = (!unknown).then_some(0.0);
}

/// Takes an estimate back that does not fit into the time that a process had, if that is known: its copies of a pair one way follow each
/// other.
pub(super) fn bound(report: &mut Report) {
    let Report { lost, shares, files, .. } = report;
    let took = |file: &File| {
        let ended = file.gone.or(file.run_ended)?;
        Some(ended.saturating_sub(file.started?) as f64 / 1e9)
    };
    let fits = |by: &LostBy| {
        let ways = shares
            .iter()
            .filter(|it| it.file == by.file && it.path.taken.class() == Class::Avoidable)
            .map(|it| it.pair);
        let ways = ways.collect::<BTreeSet<_>>().len() as f64;
        files.get(by.file).and_then(took).is_none_or(|took| by.seconds <= took * ways)
    };
    if lost.measured_calls >= lost.could_be_direct_calls || lost.processes.iter().all(fits) {
        return;
    }
    (lost.seconds, lost.processes) = (None, Vec::new());
    lost.basis = format!(
        "{} of {} were measured, and not all can have taken as long",
        count(lost.measured_calls),
        counted_copies(lost.could_be_direct_calls),
    );
}

fn counted_copies(number: u64) -> String {
    if number == 1 { "1 copy".to_owned() } else { format!("{} copies", count(number)) }
}

fn sum<'a>(paths: impl Iterator<Item = &'a Path>, what: fn(&Path) -> u64) -> u64 {
    paths.map(what).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::paths::Taken;

    fn path(taken: Taken, bytes: u64, device: (u64, u64)) -> Path {
        let (device_bytes, device_ns) = device;
        Path {
            taken,
            calls: 1,
            bytes,
            device_calls: u64::from(device_bytes > 0),
            device_bytes,
            device_ns,
            ..Path::default()
        }
    }

    fn pair(dst: usize, paths: Vec<Path>) -> Pair {
        Pair { src: 0, dst, paths, access: Some(true), ..Pair::default() }
    }

    /// The cost of staging if one process made all copies.
    fn lost(pairs: &[Pair]) -> Lost {
        let shares = pairs.iter().flat_map(|pair| {
            let path = |of: &Path| Path { ..*of };
            pair.paths.iter().map(move |it| Share {
                file: 0,
                pair: [pair.src, pair.dst],
                power: it.bytes.max(1).ilog2(),
                path: path(it),
            })
        });
        super::lost(pairs, &shares.collect::<Vec<_>>(), &[])
    }

    const STAGED: Taken = Taken::of(Some(p2pshim_trace::Path::Staged(p2pshim_trace::Why::NotEnabled)));
    const DIRECT: Taken = Taken::of(Some(p2pshim_trace::Path::Direct));

    #[test]
    fn lost_seconds_by_the_pair_then_by_any_pair() {
        // Staged at 10 GB/s, direct at 100 GB/s: of 100 ms 90 are lost.
        let staged = || path(STAGED, 1_000_000_000, (1_000_000_000, 100_000_000));
        let direct = || path(DIRECT, 1_000_000_000, (1_000_000_000, 10_000_000));
        let found = lost(&[pair(1, vec![staged(), direct()])]);
        assert_eq!((found.staged_bytes, found.could_be_direct_bytes), (1_000_000_000, 1_000_000_000));
        assert!((found.seconds.unwrap() - 0.09).abs() < 1e-9 && found.basis.contains("same pair"), "{found:?}");
        let found = lost(&[pair(1, vec![staged()]), pair(2, vec![direct()])]);
        assert!((found.seconds.unwrap() - 0.09).abs() < 1e-9 && found.basis.contains("other pairs"), "{found:?}");
    }

    #[test]
    fn lost_without_measurements_is_null_and_says_why() {
        let found = lost(&[pair(1, vec![path(STAGED, 5, (0, 0)), path(DIRECT, 5, (5, 1))])]);
        assert!(found.seconds.is_none() && found.basis.contains("P2PSHIM_GPU_TIMING"), "{found:?}");
        let found = lost(&[pair(1, vec![path(STAGED, 5, (5, 5))])]);
        assert!(found.seconds.is_none() && found.basis.contains("like size"), "{found:?}");
        let half = [path(STAGED, 2000, (1000, 100)), path(DIRECT, 1100, (100, 1))];
        assert!(lost(&[pair(1, half.into())]).basis.starts_with("1 of 1 copy, compared"));
    }

    #[test]
    fn lost_seconds_of_all_copies_by_those_of_like_size() {
        let one = |bytes: u64, ns: u64, taken| path(taken, bytes, (bytes, ns));
        // One of two copies of 1 MB was timed: 90 us are lost of each.
        let half = Path { calls: 2, bytes: 2_000_000, ..one(1_000_000, 100_000, STAGED) };
        let mut pair = pair(1, vec![half, one(1_000_000, 10_000, DIRECT)]);
        let shares = |pair: &Pair, power: u32| -> Vec<Share> {
            let of = |it: &Path| Path { ..*it };
            let power = |it: &Path| if it.taken.class() == Class::Direct { power } else { 20 };
            pair.paths.iter().map(|it| Share { file: 0, pair: [0, 1], power: power(it), path: of(it) }).collect()
        };
        let found = super::lost(std::slice::from_ref(&pair), &shares(&pair, 20), &[]);
        assert!((found.seconds.unwrap() - 180e-6).abs() < 1e-9 && !found.is_at_least, "{found:?}");
        let found = super::lost(std::slice::from_ref(&pair), &shares(&pair, 12), &[]);
        assert!(found.seconds.is_none() && found.basis.contains("like size"), "{found:?}");
        pair.paths[1].device_ns = 1_000_000;
        let found = super::lost(std::slice::from_ref(&pair), &shares(&pair, 20), &[]);
        assert!(found.seconds == Some(0.0) && found.processes.is_empty(), "direct copies were slower: {found:?}");
    }

    /// Copies are of two sizes, one faster and one slower when direct.
    #[test]
    fn lost_is_what_is_lost_in_all() {
        let of = |power: u32, staged_ns: u64, direct_ns: u64| {
            let share = |path| Share { file: 0, pair: [0, 1], power, path };
            let bytes = 1 << power;
            [share(path(STAGED, bytes, (bytes, staged_ns))), share(path(DIRECT, bytes, (bytes, direct_ns)))]
        };
        let pair = pair(1, vec![path(STAGED, 1 << 20, (1 << 20, 1))]);
        let seconds =
            |shares: [[Share; 2]; 2]| super::lost(std::slice::from_ref(&pair), shares.as_flattened(), &[]).seconds;
        let near = |found: Option<f64>, wanted: f64| assert!((found.unwrap() - wanted).abs() < 1e-12, "{found:?}");
        near(seconds([of(3, 90, 10), of(20, 1000, 9000)]), 0.0);
        near(seconds([of(3, 90, 10), of(20, 1000, 1040)]), 40e-9);
    }

    #[test]
    fn lost_only_where_hardware_has_a_path() {
        let staged = || vec![path(STAGED, 5, (5, 5)), path(DIRECT, 5, (5, 1))];
        let without = Pair { access: Some(false), ..pair(1, staged()) };
        let found = lost(&[without]);
        assert_eq!((found.staged_bytes, found.could_be_direct_bytes, found.seconds), (5, 0, Some(0.0)));
        let unknown = Pair { access: None, ..pair(1, staged()) };
        let found = lost(&[unknown]);
        assert!(found.could_be_direct_bytes == 0 && found.seconds.is_none(), "{found:?}");
        assert_eq!(lost(&[]).basis, "nothing was staged");
    }
}
