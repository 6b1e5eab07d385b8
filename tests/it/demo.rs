//! `make demo` on simulated GPUs: short, and each fact that it shows is one.

use crate::support::{Program, path};

/// The line below the one that begins so.
fn below<'a>(shown: &'a str, command: &str) -> &'a str {
    let mut lines = shown.lines().skip_while(|line| !line.starts_with(command));
    assert!(lines.next().is_some(), "{command}: {shown}");
    lines.next().unwrap_or_default()
}

#[test]
fn demo_shows_in_25_lines_what_is_gained() {
    // Variables of the user have no effect.
    let demo = Program::new(path("c-tests/demo")).env("P2PSHIM_ACCESS", "off").env("P2PSIM_FAULT", "drop:0-1");
    let outcome = demo.env("PATH", "/usr/bin:/bin").plain();
    outcome.assert_success();
    assert_eq!(outcome.stderr, "");
    let shown = outcome.stdout.as_str();
    assert!((15..=25).contains(&shown.lines().count()), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
    if !shown.starts_with("p2pshim on simulated GPUs") {
        assert!(below(shown, "$ p2pshim run --trace").ends_with("GB/s, data right"), "{shown}");
        return;
    }
    let copies = "  84 copies of 1 MiB from GPU 0 to 1, the last 64: ";
    let (staged, direct) = ("64 through the host, 0 direct", "0 through the host, 64 direct");
    for (command, says) in [
        ("$ ./demo_copies-12 never", format!("{copies}{staged}, data right")),
        ("$ p2pshim run --sim 2 --trace runs ./demo_copies-12 never", format!("{copies}{direct}, data right")),
        ("$ ./demo_copies-12 enables", format!("{copies}{direct}, 256 bytes WRONG")),
        ("$ p2pshim run --sim 2 ./demo_copies-12 enables", format!("{copies}{staged}, data right")),
    ] {
        assert_eq!(below(shown, command), says, "{shown}");
    }
    // Of the 84 copies of 1 MiB, the first one is staged. A rate of simulated GPUs means nothing.
    let report = shown.split_once("$ p2pshim report runs\n").expect(shown).1;
    assert!(report.starts_with("  p2pshim enabled a pair that the program never enables: 87.0 MB "), "{shown}");
    for row in ["  GPU 0 > GPU 1      83  87.0 MB  direct\n", "1   1.0 MB  staged: "] {
        assert!(report.contains(row), "{row}: {shown}");
    }
    assert!(!shown.contains("GB/s"), "{shown}");
}
