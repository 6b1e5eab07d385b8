//! `p2pshim doctor` of a machine whose files are made here. Its words for each kind: cli/src/doctor/machines.rs.

use std::fs;

use crate::support::{Program, command, doctor, scratch, virtual_machine};

#[test]
fn issue_names_the_cause_on_this_machine() {
    let machine = scratch("machine");
    virtual_machine(&machine);
    let program = doctor().args(&["--sim", "2", "--quick", "--issue"]).env("P2PSIM_ROOT", machine.to_string_lossy());
    let outcome = program.env("P2PSIM_FAULT", "drop:0-1").plain();
    fs::remove_dir_all(machine).unwrap();
    let text = &outcome.stdout;
    assert_eq!(outcome.status, "exit status: 1", "{text}");
    for said in [": unsafe\n\nUNSAFE. ", "0>1      wrong", "this is a virtual machine (QEMU)"] {
        assert!(text.contains(said), "no {said}: {text}");
    }
    assert!(!text.contains("GPU-7032"), "a UUID: {text}");
}

#[test]
fn issue_without_a_driver_says_that_nothing_was_tested() {
    let program = Program::new(command()).args(&["doctor", "--issue"]).env("LD_LIBRARY_PATH", "/nonexistent");
    let outcome = program.plain();
    assert!(outcome.stdout.contains("nothing was tested"), "{}", outcome.stdout);
    assert_eq!(outcome.status, "exit status: 2");
}
