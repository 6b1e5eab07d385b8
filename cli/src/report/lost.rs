//! What staging has cost.

use std::collections::BTreeMap;

use super::model::{Lost, LostBy, Pair, Path, Share};
use super::paths::Class;
use super::term::count;

/// Processes that are named with what they lost.
const NAMED: usize = 16;

/// Adds up what was staged, of all processes and of each. Seconds are only told if there is something measured to tell them by.
pub(super) fn lost(pairs: &[Pair], shares: &[Share]) -> Lost {
    let all = || pairs.iter().flat_map(|pair| &pair.paths);
    let mut lost = Lost {
        staged_bytes: sum(all().filter(|path| path.class.is_staged()), |path| path.bytes),
        start_up_bytes: sum(all().filter(|path| path.class == Class::StartUp), |path| path.bytes),
        ..Lost::default()
    };
    let anywhere = direct_rate(pairs.iter());
    let (mut by_others, mut no_rate) = (false, false);
    let mut rates: BTreeMap<[usize; 2], f64> = BTreeMap::new();
    for pair in pairs.iter().filter(|pair| pair.access == Some(true) && !pair.is_blocked) {
        let could = || pair.paths.iter().filter(|path| path.class == Class::Avoidable);
        lost.could_be_direct_bytes = lost.could_be_direct_bytes.saturating_add(sum(could(), |path| path.bytes));
        lost.could_be_direct_calls += sum(could(), |path| path.calls);
        if sum(could(), |path| path.device_bytes) == 0 {
            continue;
        }
        let own = direct_rate([pair].into_iter());
        let Some(rate) = own.or(anywhere) else {
            no_rate = true;
            continue;
        };
        by_others |= own.is_none();
        lost.measured_calls += sum(could(), |path| path.device_calls);
        lost.measured_bytes = lost.measured_bytes.saturating_add(sum(could(), |path| path.device_bytes));
        rates.insert([pair.src, pair.dst], rate);
    }
    let mut nanos: BTreeMap<usize, f64> = BTreeMap::new();
    for Share { file, pair, path } in shares.iter().filter(|share| share.path.class == Class::Avoidable) {
        if let Some(rate) = rates.get(pair) {
            *nanos.entry(*file).or_default() += (path.device_ns as f64 - path.device_bytes as f64 / rate).max(0.0);
        }
    }
    if lost.could_be_direct_bytes == 0 {
        let unknown = pairs
            .iter()
            .any(|pair| pair.access.is_none() && pair.paths.iter().any(|path| path.class == Class::Avoidable));
        lost.basis = match (lost.staged_bytes, unknown) {
            (0, _) => "nothing was staged".to_owned(),
            (_, true) => "it is not known whether the GPUs can access each other".to_owned(),
            (staged, false) if staged == lost.start_up_bytes => "only the first copies of pairs were staged".to_owned(),
            (_, false) => "staged copies had no better path, or were staged on purpose".to_owned(),
        };
        // Nothing is lost where nothing could be better; that is known, and not estimated.
        lost.seconds = (!unknown).then_some(0.0);
    } else if lost.measured_calls > 0 {
        lost.seconds = Some(nanos.values().sum::<f64>() / 1e9);
        let processes = nanos.iter().map(|(&file, nanos)| LostBy { file, seconds: nanos / 1e9 });
        lost.processes = processes.collect();
        lost.processes.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
        lost.processes.truncate(NAMED);
        let rate = if by_others { "other pairs" } else { "the same pair" };
        lost.basis = format!(
            "{} of {} measured, against the rate of direct copies of {rate}",
            count(lost.measured_calls),
            counted_copies(lost.could_be_direct_calls),
        );
    } else if no_rate {
        lost.basis = "no direct copy was measured to compare with".to_owned();
    } else {
        lost.basis = "no times on the device are known; they are measured of asynchronous copies that have finished, not on the \
                      legacy default stream (P2PSHIM_GPU_TIMING)"
            .to_owned();
    }
    lost
}

fn counted_copies(number: u64) -> String {
    if number == 1 { "1 copy".to_owned() } else { format!("{} copies", count(number)) }
}

fn sum<'a>(paths: impl Iterator<Item = &'a Path>, what: fn(&Path) -> u64) -> u64 {
    paths.map(what).fold(0, u64::saturating_add)
}

/// Bytes a nanosecond of direct copies, as they were measured.
fn direct_rate<'a>(pairs: impl Iterator<Item = &'a Pair>) -> Option<f64> {
    let direct = pairs.filter(|pair| pair.src != pair.dst).flat_map(|pair| &pair.paths);
    let direct = direct.filter(|path| path.class == Class::Direct);
    let (bytes, nanos) = direct
        .fold((0.0, 0.0), |(bytes, nanos), path| (bytes + path.device_bytes as f64, nanos + path.device_ns as f64));
    (bytes > 0.0 && nanos > 0.0).then_some(bytes / nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str, why: Option<&str>, bytes: u64, device: (u64, u64)) -> Path {
        let (device_bytes, device_ns) = device;
        Path {
            path: name.into(),
            why: why.map(str::to_owned),
            class: Class::of(name, why),
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

    /// What staging costs if one process made all copies.
    fn lost(pairs: &[Pair]) -> Lost {
        let shares = pairs.iter().flat_map(|pair| {
            let path = |of: &Path| Path { path: of.path.clone(), why: of.why.clone(), ..*of };
            pair.paths.iter().map(move |it| Share { file: 0, pair: [pair.src, pair.dst], path: path(it) })
        });
        super::lost(pairs, &shares.collect::<Vec<_>>())
    }

    const NEVER: Option<&str> = Some("access not enabled");

    #[test]
    fn lost_seconds_by_the_pair_then_by_any_pair() {
        // Staged at 10 GB/s, direct at 100 GB/s: of 100 ms 90 are lost.
        let staged = || path("staged", NEVER, 1_000_000_000, (1_000_000_000, 100_000_000));
        let direct = || path("direct", None, 1_000_000_000, (1_000_000_000, 10_000_000));
        let found = lost(&[pair(1, vec![staged(), direct()])]);
        assert_eq!((found.staged_bytes, found.could_be_direct_bytes), (1_000_000_000, 1_000_000_000));
        assert!((found.seconds.unwrap() - 0.09).abs() < 1e-9 && found.basis.contains("same pair"), "{found:?}");
        let found = lost(&[pair(1, vec![staged()]), pair(2, vec![direct()])]);
        assert!((found.seconds.unwrap() - 0.09).abs() < 1e-9 && found.basis.contains("other pairs"), "{found:?}");
    }

    #[test]
    fn lost_without_measurements_is_null_and_says_why() {
        let found = lost(&[pair(1, vec![path("staged", NEVER, 5, (0, 0)), path("direct", None, 5, (5, 1))])]);
        assert!(found.seconds.is_none() && found.basis.contains("P2PSHIM_GPU_TIMING"), "{found:?}");
        let found = lost(&[pair(1, vec![path("staged", NEVER, 5, (5, 5))])]);
        assert!(found.seconds.is_none() && found.basis.contains("compare"), "{found:?}");
        let half = [path("staged", NEVER, 2000, (1000, 100)), path("direct", None, 5, (100, 1))];
        assert!(lost(&[pair(1, half.into())]).basis.starts_with("1 of 1 copy measured"));
    }

    #[test]
    fn lost_only_where_hardware_has_a_path() {
        let staged = || vec![path("staged", NEVER, 5, (5, 5)), path("direct", None, 5, (5, 1))];
        let without = Pair { access: Some(false), ..pair(1, staged()) };
        let found = lost(&[without]);
        assert_eq!((found.staged_bytes, found.could_be_direct_bytes, found.seconds), (5, 0, Some(0.0)));
        let unknown = Pair { access: None, ..pair(1, staged()) };
        let found = lost(&[unknown]);
        assert!(found.could_be_direct_bytes == 0 && found.seconds.is_none(), "{found:?}");
        assert_eq!(lost(&[]).basis, "nothing was staged");
    }
}
