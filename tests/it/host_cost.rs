//! `make bench` measures what it says: each variant runs once, and the shim sees its calls as expected.

use std::process::Command;

use crate::support::outside::told;
use crate::support::{path, shim};

#[test]
fn host_cost_every_variant_runs_as_expected() {
    let programs = path("target/bench/call_cost");
    let mut command = Command::new(path("benches/host-cost"));
    let said = told(command.arg("--check").arg(programs.parent().unwrap()).arg(shim()));
    assert!(said.ends_with(" variants run as expected\n"), "{said}");
}
