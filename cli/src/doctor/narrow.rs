//! Failures that concern few programs: who is affected, and what keeps them off. Words for people, made of plain values.

use super::lines::{Test, Verdict};
use super::report::{Row, short};

/// The verdict on a machine whose pairs fail in no other use than one; none if that is not so.
pub(super) fn verdict(rows: &[Row], devices: usize) -> Option<String> {
    let failed: Vec<&Row> = rows.iter().filter(|row| matches!(row.verdict, Verdict::Failed(_))).collect();
    let names = short(&failed, devices);
    let fail_only = |tests: &[Test]| failed.iter().all(|row| row.fails_only(tests));
    if fail_only(&Test::OF_NCCL) {
        let (protocols, value) = protocols(failed.iter().copied());
        return Some(format!(
            "UNSAFE for NCCL's {protocols} on {names}: data and the flag in line with it arrive apart, although CUDA \
             reports success. NCCL_PROTO={value} makes NCCL do without; all else is right"
        ));
    }
    let (what, remedy) = match () {
        () if fail_only(&[Test::IpcKernels]) => (
            "Kernels of two processes lose data or hang in memory that these share by IPC",
            "NCCL_P2P_DISABLE=1 keeps NCCL off it, --disable-custom-all-reduce vLLM and SGLang",
        ),
        () if fail_only(&Test::BETWEEN_PROCESSES) => (
            "Memory that processes share loses data or hangs",
            "NCCL_P2P_DISABLE=1 keeps NCCL off it, --disable-custom-all-reduce vLLM and SGLang",
        ),
        () if fail_only(&[Test::Pools]) => (
            "Memory of pools, and mapped memory, with granted access loses data",
            "Other memory is right: use cudaMalloc, and PyTorch without expandable segments",
        ),
        () if fail_only(&[Test::Graphs]) => (
            "Copies that a graph makes lose data",
            "Other copies are right: programs without CUDA graphs are safe (vLLM: --enforce-eager)",
        ),
        () if fail_only(&[Test::AllToAll]) => (
            "While kernels store from each GPU to each other, data is lost or they hang",
            "NCCL_P2P_DISABLE=1 keeps NCCL off it; each pair alone is right",
        ),
        () => return None,
    };
    Some(format!("UNSAFE. {what} on {names}, although CUDA reports success. {remedy}"))
}

/// The protocols of NCCL that fail on these pairs, and the value of `NCCL_PROTO` that keeps NCCL from them.
pub(super) fn protocols<'a>(rows: impl Iterator<Item = &'a Row> + Clone) -> (&'static str, &'static str) {
    let value = Test::nccl_proto(|test| rows.clone().any(|row| row.has_failed(test))).unwrap_or_default();
    let protocols = match value {
        "^LL,LL128" => "protocols LL and LL128",
        "^LL128" => "protocol LL128",
        _ => "protocol LL",
    };
    (protocols, value)
}

#[cfg(test)]
mod tests {
    use super::super::lines::Finding;
    use super::*;

    fn row(tests: &[Test]) -> Row {
        let mut row = Row::new([0, 1], Verdict::Passed);
        tests.iter().for_each(|test| row.add(*test, Finding::Wrong("late".to_owned())));
        row
    }

    #[test]
    fn verdict_names_the_use_and_the_remedy_if_there_is_no_other() {
        for (tests, said) in [
            (&[Test::Ll][..], "NCCL_PROTO=^LL makes"),
            (&[Test::Ll128], "NCCL_PROTO=^LL128 makes"),
            (&[Test::Ll, Test::Ll128], "NCCL_PROTO=^LL,LL128 makes"),
            (&[Test::Ipc], "Memory that processes share loses data"),
            (&[Test::Vmm, Test::IpcKernels], "NCCL_P2P_DISABLE=1 keeps"),
            (&[Test::IpcKernels], "Kernels of two processes lose data"),
            (&[Test::AllToAll], "each pair alone is right"),
            (&[Test::Pools], "use cudaMalloc"),
            (&[Test::Graphs], "--enforce-eager"),
        ] {
            let rows = [row(tests), Row::new([1, 0], Verdict::Passed)];
            let verdict = verdict(&rows, 2).unwrap();
            assert!(verdict.contains(said) && verdict.contains(" 0>1"), "{verdict}");
        }
        for tests in [&[Test::Ll, Test::Flags][..], &[Test::Ipc, Test::Ll], &[Test::Pull], &[Test::Copies]] {
            assert_eq!(verdict(&[row(tests)], 2), None, "{tests:?}");
        }
        assert_eq!(verdict(&[row(&[Test::Ll]), row(&[Test::Ipc])], 2), None);
    }
}
