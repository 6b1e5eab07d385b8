//! `make bench` measures what it says: each variant runs once, and the shim sees its calls as expected.

use std::process::Command;

use crate::support::outside::told;
use crate::support::{path, say, shim};

#[test]
fn host_cost_every_variant_runs_as_expected() {
    let programs = path("target/bench/call_cost");
    let mut command = Command::new(path("benches/host-cost"));
    let said = told(command.arg("--check").arg(programs.parent().unwrap()).arg(shim()));
    assert!(said.ends_with(" variants run as expected\n"), "{said}");
}

/// Copies cost as much with many streams and graphs as with one, and their memory is bounded. Needs valgrind.
fn many_streams(copies: &str) {
    if Command::new("valgrind").arg("--version").output().is_err()
        && !Command::new(path("c-tests/fetch-debian"))
            .arg("valgrind")
            .output()
            .is_ok_and(|output| output.status.success())
    {
        return say("skipped: there is no valgrind");
    }
    let programs = path("target/bench/many_streams");
    let mut command = Command::new(path("benches/host-cost"));
    let said = told(command.args(["--many", copies]).arg(programs.parent().unwrap()).arg(shim()));
    assert!(said.lines().count() == 8 && said.lines().all(|line| line.starts_with("ok ")), "{said}");
}

#[test]
fn host_cost_many_streams_cost_as_much_as_one() {
    many_streams("100000");
}

#[test]
#[ignore = "make soak"]
fn host_cost_ten_thousand_streams_cost_as_much_as_one() {
    many_streams("1000000");
}
