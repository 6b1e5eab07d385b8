//! NVML's answers about peer access that is hidden, on simulated GPUs: those of CUDA, where NCCL does not end with an error for it.

use std::fs;

use crate::support::sequences::Variables;
use crate::support::{Program, Scratch, doctor};

/// NVML's answers about both directions between two devices, to a program that sees them by CUDA, uses them, or does not.
fn nvml_status(seen: &str, env: Variables) -> (Vec<String>, String) {
    let nvlink = Scratch::folder("nvlink");
    let program = Program::case("nvml_status").arg(seen).env("P2PSIM_NVLINK", nvlink.to_string_lossy());
    let outcome = env.iter().fold(program, |program, (name, value)| program.env(name, *value)).preloaded();
    outcome.assert_success();
    let said: Vec<_> = outcome.said_on_any_machine().into_iter().cloned().collect();
    (outcome.stdout.lines().map(str::to_owned).collect(), said.join("\n"))
}

#[test]
fn nvml_says_what_cuda_says_where_nccl_bears_it() {
    const TOLD: [(&str, &str); 3] =
        [("P2PSIM_NVML", "pci"), ("NCCL_P2P_DISABLE", "1"), ("NCCL_IGNORE_DISABLED_P2P", "1")];
    let hidden = |link: u8| format!("5 5 {link} 5");
    for seen in ["unseen", "seen", "used"] {
        for told in TOLD {
            let link = u8::from(told.0 == "P2PSIM_NVML");
            let (there, off) = (format!("0 0 {link} 0"), ("P2PSHIM_ACCESS", "off"));
            let both = |one: &str, other: &str| vec![format!("0>1: {one}"), format!("1>0: {other}")];
            let quiet = |status: Vec<String>| (status, String::new());
            assert_eq!(nvml_status(seen, &[told]), quiet(both(&there, &there)), "{seen} {told:?}");
            assert_eq!(nvml_status(seen, &[told, off]), quiet(both(&hidden(link), &hidden(link))), "{seen} {told:?}");
            let deny = ("P2PSHIM_DENY", "GPU-70327073-696d-2047-5055-202e2e2e2e01>01:00.0");
            assert_eq!(nvml_status(seen, &[told, deny]), quiet(both(&there, &hidden(link))), "{seen} {told:?}");
            let by_ordinal = nvml_status(seen, &[told, ("P2PSHIM_DENY", "0>1")]).0;
            let is_known = seen != "unseen";
            assert_eq!(by_ordinal, both(&if is_known { hidden(link) } else { there.clone() }, &there), "{seen}");
        }
        let untold = [("P2PSHIM_ACCESS", "off"), ("NCCL_P2P_DISABLE", "0")];
        let (status, said) = nvml_status(seen, &untold);
        assert_eq!(status, ["0>1: 0 0 0 0", "1>0: 0 0 0 0"], "NCCL would end with an error");
        assert!(said.lines().count() == 1 && said.contains("export NCCL_P2P_DISABLE=1"), "{said}");
    }
}

#[test]
fn nvml_says_that_a_broken_path_is_none() {
    let broken = [("P2PSIM_FAULT", "drop:0>1"), ("NCCL_P2P_DISABLE", "1")];
    let is_hidden = |status: &[String]| status == ["0>1: 5 5 0 5", "1>0: 5 5 0 5"];
    let (status, said) = nvml_status("used", &broken);
    assert!(is_hidden(&status) && said.contains("data does not arrive"), "verified when asked: {status:?} {said}");
    let (cache, machine) = (Scratch::new("cache"), Scratch::new("machine"));
    let (cache_home, root) = (cache.to_string_lossy(), machine.to_string_lossy());
    let doctor = doctor().libraries("target/sim/lib").env("P2PSIM_FAULT", "drop:0>1");
    doctor.env("XDG_CACHE_HOME", &*cache_home).env("P2PSIM_ROOT", &*root).plain();
    let kept = [broken[1], ("XDG_CACHE_HOME", &*cache_home), ("P2PSIM_ROOT", &*root)];
    let unseen = nvml_status("unseen", &kept);
    assert_eq!((unseen.0[0].as_str(), unseen.1.as_str()), ("0>1: 5 5 0 5", ""), "by the verdict that is kept");
    assert!(is_hidden(&nvml_status("seen", &kept).0));
    let warns = [kept[0], kept[1], kept[2], ("P2PSHIM_BROKEN", "warn")];
    assert_eq!(nvml_status("unseen", &warns).0[0], "0>1: 0 0 0 0");
    fs::remove_dir_all(cache).unwrap();
}
