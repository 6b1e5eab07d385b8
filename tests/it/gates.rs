//! `p2pshim doctor` where CUDA keeps GPUs apart, and `--try-override`. The gates of made-up machines: cli/src/doctor/described.rs.

use std::fs;

use crate::support::{Outcome, Program, Scratch, command};

/// A machine whose kernel's log can be read.
struct Machine(Scratch);

impl Machine {
    fn new() -> Self {
        let folder = Scratch::new("gates");
        const LOG: &str = "6,1,1,-;booted\n4,2,2,-;DMAR: [DMA Read] Request device [01:00.0] fault addr 1\n";
        fs::create_dir_all(folder.join("dev")).unwrap();
        fs::write(folder.join("dev/kmsg"), LOG).unwrap();
        Self(folder)
    }

    fn doctor(&self, fault: &str) -> Program {
        // Other tests may keep this one waiting, but for a copy that never ends.
        let timeout = if fault.contains("hang") { "20" } else { "600" };
        let program = Program::new(command()).args(&["doctor", "--sim", "2", "--timeout", timeout]);
        program.env("P2PSIM_ROOT", self.0.to_string_lossy()).env("P2PSIM_DRIVER", "13050").env("P2PSIM_FAULT", fault)
    }

    fn tries(&self, fault: &str) -> Outcome {
        self.doctor(fault).args(&["--try-override", "--yes"]).plain()
    }
}

fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn gate_of_cuda_is_named_and_nvml_is_shown_where_it_disagrees() {
    let machine = Machine::new();
    let program =
        machine.doctor("gate:0-1").env("P2PSIM_NVLINK", machine.0.to_string_lossy()).env("P2PSIM_NVML", "pci");
    let outcome = program.arg("--quick").plain();
    outcome.assert_success();
    let text = joined(&outcome.stdout);
    for said in [
        "No peer access on 0>1 1>0: CUDA 13.5 is said to ask about IOMMU and ACS; NVML allows it (NVML: OK; CUDA: no).",
        "Test `p2pshim doctor --try-override`",
        "NVML disagrees 0>1: reads OK, writes OK; CUDA has none",
    ] {
        assert!(text.contains(said), "no {said}: {}", outcome.stdout);
    }
}

#[test]
fn override_is_recommended_if_data_arrives_and_stays_off() {
    let machine = Machine::new();
    let outcome = machine.tries("gate:0-1");
    outcome.assert_success();
    let said = "Data arrived in all tests of 0>1 1>0, and the kernel's log has no new line about an error: put this variable into the job:\n  \
                export CUDA_DISABLE_IOMMU_ACS_P2P_CAPABILITY_CHECK=1\n";
    assert!(outcome.stdout.starts_with(said), "{}", outcome.stdout);
    assert!(outcome.shim[0].contains("WARNING: with CUDA_DISABLE_"), "{:?}", outcome.shim);
    let after = machine.doctor("gate:0-1").arg("--quick").plain();
    assert!(after.stdout.starts_with("Verdict: there is no peer access here"), "{}", after.stdout);
}

#[test]
fn override_is_advised_against_at_the_first_trouble() {
    for (fault, said) in [
        ("drop:1>0", "Leave it off: 100 % of bytes lost by copies from 1 to 0."),
        ("corrupt:1>0", "Leave it off: less than 0.1 % of bytes lost by copies from 1 to 0."),
        ("stores:0>1", "Leave it off: 100 % of bytes lost by kernel stores from 0 to 1."),
        ("loads:0>1", " % of bytes lost by kernel loads from 0 to 1."),
        ("spill:0>1", "Leave it off: bytes beside the data changed by copies from 0 to 1."),
        ("logged:1>0", "from 1 to 0; the kernel's log says `DMAR: [DMA Write NO_PASID]"),
        ("hang:0>1", "Leave it off: a copy had not ended after 5 s, from 0 to 1."),
    ] {
        let outcome = Machine::new().tries(&format!("gate:0-1,{fault}"));
        assert!(outcome.stdout.contains(said), "{fault}: {}{:?}", outcome.stdout, outcome.shim);
        assert_eq!(outcome.status, "exit status: 1", "{fault}");
        assert!(!outcome.stdout.contains("export"), "{fault}: {}", outcome.stdout);
    }
}

#[test]
fn override_is_not_tried_unconfirmed_or_where_nobody_can_see_what_it_does() {
    let machine = Machine::new();
    let tried = |program: Program| {
        let outcome = program.arg("--try-override").plain();
        assert_eq!((outcome.status.as_str(), outcome.stdout.as_str()), ("exit status: 3", ""));
        outcome.shim.join(" ")
    };
    let gated = || machine.doctor("gate:0-1");
    assert!(tried(gated()).contains("nothing was tried: nobody has confirmed the warning: give --yes"));
    let job = tried(gated().arg("--yes").env("SLURM_JOB_ID", "7"));
    assert!(job.contains("this is a job (SLURM_JOB_ID is set)"), "{job}");
    fs::write(machine.0.join(".dockerenv"), "").unwrap();
    let container = tried(gated().arg("--yes"));
    assert!(container.contains("this is a container (docker)"), "{container}");
    fs::remove_file(machine.0.join(".dockerenv")).unwrap();
    fs::remove_file(machine.0.join("dev/kmsg")).unwrap();
    let without_log = tried(gated().arg("--yes"));
    assert!(without_log.contains("the kernel's log cannot be read"), "{without_log}");
}

#[test]
fn override_that_opens_nothing_is_left_off() {
    let machine = Machine::new();
    let outcome = machine.tries("");
    outcome.assert_success();
    assert_eq!(outcome.stdout, "Leave it off: every pair has peer access without it.\n");
    let closed = machine.doctor("").env("P2PSIM_NO_P2P", "0-1").args(&["--try-override", "--yes"]).plain();
    assert_eq!(closed.status, "exit status: 3");
    assert!(closed.stdout.starts_with("Leave it off: CUDA_DISABLE_"), "{}", closed.stdout);
}
