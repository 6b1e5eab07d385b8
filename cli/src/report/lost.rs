//! What staging has cost.

use super::model::{Lost, Pair, Path};

/// Reasons for which a copy is staged though it might be direct: parts of what traces say.
const COULD_BE_DIRECT: &[&str] = &[
    "never enabled",
    "not yet worth",
    "pool",
    "mapped",
    "limit",
    "captur",
    "busy",
    "could not be",
    "unproven",
    "verif",
];
/// Reasons that stay.
const STAYS: &[&str] = &["blocked", "vetoed", "denied", "no path", "no hardware path", "slower"];

/// Whether a path is through the host for a reason that could be done away with.
pub(super) fn could_be_direct(path: &Path) -> bool {
    let Some(why) = path.why.as_deref().filter(|_| path.path == "staged") else { return false };
    let is_one_of = |reasons: &[&str]| reasons.iter().any(|reason| why.contains(reason));
    !is_one_of(STAYS) && is_one_of(COULD_BE_DIRECT)
}

/// Adds up what was staged. Seconds are only told if there is something measured to tell them by.
pub(super) fn lost(pairs: &[Pair]) -> Lost {
    let staged =
        |pair: &Pair| -> u64 { sum(pair.paths.iter().filter(|path| path.path == "staged"), |path| path.bytes) };
    let mut lost = Lost { staged_bytes: pairs.iter().map(staged).fold(0, u64::saturating_add), ..Lost::default() };
    let anywhere = direct_rate(pairs.iter());
    let (mut measured, mut nanos, mut by_others, mut no_rate) = (0u64, 0.0, false, false);
    for pair in pairs.iter().filter(|pair| pair.access == Some(true)) {
        let could = || pair.paths.iter().filter(|path| could_be_direct(path));
        lost.could_be_direct_bytes = lost.could_be_direct_bytes.saturating_add(sum(could(), |path| path.bytes));
        let (bytes, took) = (sum(could(), |path| path.device_bytes), sum(could(), |path| path.device_ns));
        if bytes == 0 {
            continue;
        }
        let own = direct_rate([pair].into_iter());
        let Some(rate) = own.or(anywhere) else {
            no_rate = true;
            continue;
        };
        by_others |= own.is_none();
        measured = measured.saturating_add(bytes);
        nanos += (took as f64 - bytes as f64 / rate).max(0.0);
    }
    if lost.could_be_direct_bytes == 0 {
        let unknown = pairs.iter().any(|pair| pair.access.is_none() && pair.paths.iter().any(could_be_direct));
        lost.basis = match (lost.staged_bytes, unknown) {
            (0, _) => "nothing was staged".to_owned(),
            (_, true) => "it is not known whether the GPUs can access each other".to_owned(),
            (_, false) => "staged copies had no better path, or were staged on purpose".to_owned(),
        };
        // Nothing is lost where nothing could be better; that is known, and not estimated.
        lost.seconds = (!unknown).then_some(0.0);
    } else if measured > 0 {
        lost.seconds = Some(nanos / 1e9);
        let rate = if by_others {
            "the rate of direct copies of other pairs"
        } else {
            "the rate of direct copies of the same pair"
        };
        let part = match measured as f64 <= lost.could_be_direct_bytes as f64 * 0.99 {
            true => format!(", for the {} that have measurements", super::term::bytes(measured)),
            false => String::new(),
        };
        lost.basis = format!("measured time on the device, minus the time at {rate}{part}");
    } else if no_rate {
        lost.basis = "no direct copy was measured to compare with".to_owned();
    } else {
        lost.basis =
            "no times on the device were measured; only asynchronous copies have them (P2PSHIM_GPU_TIMING)".to_owned();
    }
    lost
}

fn sum<'a>(paths: impl Iterator<Item = &'a Path>, what: fn(&Path) -> u64) -> u64 {
    paths.map(what).fold(0, u64::saturating_add)
}

/// Bytes a nanosecond of direct copies, as they were measured.
fn direct_rate<'a>(pairs: impl Iterator<Item = &'a Pair>) -> Option<f64> {
    let direct = pairs.filter(|pair| pair.src != pair.dst).flat_map(|pair| &pair.paths);
    let direct = direct.filter(|path| path.path == "direct");
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
            calls: 1,
            bytes,
            device_bytes,
            device_ns,
            ..Path::default()
        }
    }

    fn pair(dst: usize, paths: Vec<Path>) -> Pair {
        Pair { src: 0, dst, paths, access: Some(true), ..Pair::default() }
    }

    const NEVER: Option<&str> = Some("access never enabled");

    #[test]
    fn could_be_direct_each_reason_of_the_shim() {
        for (why, expected) in [
            ("never enabled", true),
            ("access never enabled", true),
            ("not yet worth enabling", true),
            ("being verified by another thread", true),
            ("verified after the capture", true),
            ("pool without access", true),
            ("mapped memory without access", true),
            ("peer limit", true),
            ("devices are busy, verified later", true),
            ("could not be verified", true),
            ("blocked: lost data or hung in verification", false),
            ("vetoed: lost data, or hung, when verified", false),
            ("denied", false),
            ("no hardware path", false),
            ("direct is slower", false),
            ("something new", false),
        ] {
            assert_eq!(could_be_direct(&path("staged", Some(why), 1, (0, 0))), expected, "{why}");
        }
        assert!(!could_be_direct(&path("direct", NEVER, 1, (0, 0))));
    }

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
        assert!(lost(&[pair(1, half.into())]).basis.contains("for the 1.0 kB that have measurements"));
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
