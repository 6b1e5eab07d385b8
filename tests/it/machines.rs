//! `p2pshim doctor` of a machine whose files are made here. Its words for each kind: cli/src/doctor/machines.rs.

use crate::support::{Program, Scratch, command, doctor, virtual_machine};

#[test]
fn issue_names_the_cause_on_this_machine() {
    let machine = Scratch::new("machine");
    virtual_machine(&machine);
    let program = doctor().args(&["--sim", "2", "--quick", "--issue"]).env("P2PSIM_ROOT", machine.to_string_lossy());
    let outcome = program.env("P2PSIM_FAULT", "drop:0-1").plain();
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
    assert_eq!(outcome.status, "exit status: 3");
}

#[test]
fn issue_leaves_out_the_uuid_of_a_cluster() {
    let machine = Scratch::new("machine");
    virtual_machine(&machine);
    let (program, _folder) = with_nvml("cluster");
    let outcome = program.arg("--issue").env("P2PSIM_ROOT", machine.to_string_lossy()).plain();
    let text = &outcome.stdout;
    assert!(text.contains(", cluster (UUID)") && !text.contains("3f3f"), "{text}");
}

/// NVML of simulated GPUs needs a folder, and says what the words tell it to.
fn with_nvml(words: &str) -> (Program, Scratch) {
    let folder = Scratch::folder("nvml");
    let program = doctor().args(&["--sim", "2", "--quick"]).env("P2PSIM_NVLINK", folder.to_string_lossy());
    (program.env("P2PSIM_NVML", words), folder)
}

#[test]
fn fabric_is_named_first_also_where_cuda_does_not_start() {
    let (program, _folder) = with_nvml("fabric");
    let outcome = program.env("P2PSIM_FAULT", "code:cuInit:802@1").plain();
    let first: Vec<&str> = outcome.stdout.lines().take(2).collect();
    assert!(
        first[0].starts_with("Hint: NVLink fabric of GPU 0 1: not started. Start nvidia-fabricmanager"),
        "{first:?}"
    );
    assert_eq!(outcome.status, "exit status: 3");
}

#[test]
fn hints_are_in_the_json_and_change_no_status() {
    let told = |words: &str| {
        let (program, _folder) = with_nvml(words);
        let outcome = program.arg("--json").plain();
        outcome.assert_success();
        outcome.stdout
    };
    let well = told("");
    for part in [
        "\"hints\":[],",
        "\"nvlink_version\":\"4.0\",\"nvlink_mb_per_s\":26562,",
        "\"fabric\":{\"state\":\"completed\",\"status\":0,\"clique\":0,\"cluster_uuid\":null,\"health_mask\":426,\"trouble\":null}",
        "\"expected_gb_per_s\":406.4,\"expected_by\":\"18 NVLinks 4.0 of 26.6 GB/s\"",
        "\"fabric_services\":{\"fabric_manager\":",
    ] {
        assert!(well.contains(part), "no {part}: {well}");
    }
    let links = told("links");
    assert!(links.contains("\"hints\":[\"Hint: GPU 1 has 16 NVLinks up, GPU 0 has 18: reset it"), "{links}");
}
