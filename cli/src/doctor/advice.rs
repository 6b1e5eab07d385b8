//! The meaning of the results, and the advice: words for people, made of plain values.

use p2pshim_host::machine::{self, Machine};

use super::lines::{Finding, Known, Path, Test, Verdict};
use super::narrow;
use super::place::Joint;
use super::report::{Row, names, short};
use crate::judge::{self, Level};
use crate::status;

/// The verdict on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conclusion {
    /// Every pair with a path is verified.
    Safe,
    /// A pair lost data, or hung.
    Unsafe,
    /// Something could not be tested.
    Untested,
    /// There is no pair with a path.
    NoAccess,
}

impl Conclusion {
    pub(super) fn of(rows: &[Row]) -> Self {
        let has = |wanted: fn(&Verdict) -> bool| rows.iter().any(|row| wanted(&row.verdict));
        if has(|verdict| matches!(verdict, Verdict::Failed(_))) {
            Self::Unsafe
        } else if has(|verdict| matches!(verdict, Verdict::Unknown(_))) {
            Self::Untested
        } else if has(|verdict| matches!(verdict, Verdict::Passed)) {
            Self::Safe
        } else {
            Self::NoAccess
        }
    }

    /// Its word for programs.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::Unsafe => "unsafe",
            Self::Untested => "not-tested",
            Self::NoAccess => "no-peer-access",
        }
    }

    /// The exit status that tells it.
    pub(super) fn status(self) -> u8 {
        match self {
            Self::Safe | Self::NoAccess => status::GOOD,
            Self::Unsafe => status::NEGATIVE,
            Self::Untested => status::UNKNOWN,
        }
    }

    /// A sentence or two.
    pub(super) fn text(self, rows: &[Row], devices: usize) -> String {
        let is_all = rows.len() >= devices * devices.saturating_sub(1);
        let others = if is_all { "" } else { ". The other pairs were not tested" };
        let through_host = Self::through_host(rows);
        match (self, through_host) {
            // It is known more than that the path is not.
            (Self::Untested, Some(wrong)) => format!("{wrong}{}{others}", Self::untested(rows, devices)),
            (_, wrong) => {
                let wrong = wrong.map_or(String::new(), |wrong| format!(". {wrong}"));
                let tested = self.of_tested(rows, devices, is_all);
                format!("{tested}{wrong}{}{others}", Self::untested(rows, devices))
            }
        }
    }

    /// Names the pairs on which data is wrong on either way.
    fn through_host(rows: &[Row]) -> Option<String> {
        let wrong = names(rows.iter().filter(|row| row.is_wrong_through_host()));
        let others =
            names(rows.iter().filter(|row| matches!(row.verdict, Verdict::Unknown(_)) && !row.is_wrong_through_host()));
        let others = if others.is_empty() { others } else { format!(". {others} could not be verified") };
        (!wrong.is_empty()).then(|| {
            format!(
                "DATA IS WRONG on {wrong}, both directly and through the host: a GPU, its memory or the driver is at \
                 fault. Nothing is known about the path{others}"
            )
        })
    }

    /// Names the tests that were not made of pairs that are verified without them.
    fn untested(rows: &[Row], devices: usize) -> String {
        let is_untested = |row: &&Row, test| {
            row.verdict == Verdict::Passed && matches!(row.finding(test), Some(Finding::Untested(_)))
        };
        let mut text = String::new();
        for (test, what) in [
            (Test::Flags, "By flags between kernels"),
            (Test::Pull, "By kernels that read flags and data"),
            (Test::Ll, "By flags in line with data (LL)"),
            (Test::Ll128, "By flags in line with data (LL128)"),
            (Test::Ipc, "Between processes by IPC handle"),
            (Test::Vmm, "Between processes by file descriptor"),
            (Test::IpcKernels, "Between kernels of two processes"),
            (Test::AllMemory, "In all of the memory"),
            (Test::AllPairs, "While all pairs copy at once"),
            (Test::AllToAll, "While kernels store from each GPU to each other"),
            (Test::AllReduce, "By all-reduces of all GPUs"),
            (Test::Pools, "In memory of pools and mapped memory with granted access"),
            (Test::Graphs, "By copies in a graph"),
        ] {
            let rows: Vec<&Row> = rows.iter().filter(|row| is_untested(row, test)).collect();
            if !rows.is_empty() {
                text += &format!(". {what}, {} could not be tested", short(&rows, devices));
            }
        }
        text
    }

    fn of_tested(self, rows: &[Row], devices: usize, is_all: bool) -> String {
        let list = |wanted: fn(&Verdict) -> bool| {
            short(&rows.iter().filter(|row| wanted(&row.verdict)).collect::<Vec<_>>(), devices)
        };
        let passed = rows.iter().filter(|row| row.verdict == Verdict::Passed).count();
        match self {
            Self::Safe if passed == rows.len() && is_all => {
                "peer access can be trusted. Data arrived in every test of every pair".to_owned()
            }
            Self::Safe if passed == rows.len() => {
                format!("peer access can be trusted on {}. Data arrived in every test there", names(rows.iter()))
            }
            Self::Safe => format!(
                "peer access can be trusted where there is a path; {} have none",
                list(|verdict| matches!(verdict, Verdict::NoPath))
            ),
            Self::Unsafe => narrow::verdict(rows, devices).unwrap_or_else(|| {
                format!(
                    "UNSAFE. Peer access loses data or hangs on {}, although CUDA reports success",
                    list(|verdict| matches!(verdict, Verdict::Failed(_)))
                )
            }),
            Self::Untested => {
                format!("not known: {} could not be verified", list(|verdict| matches!(verdict, Verdict::Unknown(_))))
            }
            Self::NoAccess if rows.is_empty() => "nothing to test: there is no pair of GPUs".to_owned(),
            Self::NoAccess => {
                "there is no peer access here: copies go through the host, which is safe but slow".to_owned()
            }
        }
    }
}

/// Direct copies that have less than this part of the speed of others are called slower.
const SLOWER: f64 = 0.5;
/// From so many microseconds on, 4 bytes are said to stall. Real GPUs take 2 to 20.
const STALLED: f64 = 1000.0;

/// Whether direct copies are slower than those through the host.
pub(super) fn is_slower(row: &Row) -> bool {
    let [direct, staged] = [Path::Direct, Path::Staged].map(|path| row.measure(path).map(|measure| measure.speed));
    direct.zip(staged).is_some_and(|(direct, staged)| direct < SLOWER * staged)
}

/// Whether direct copies take far too long, of any size.
pub(super) fn is_stalled(row: &Row) -> bool {
    row.measure(Path::Direct).is_some_and(|direct| direct.latency >= STALLED)
}

/// The facts on which advice rests.
pub(super) struct Facts<'a> {
    pub(super) rows: &'a [Row],
    /// None of simulated GPUs.
    pub(super) machine: Option<&'a Machine>,
    pub(super) gpus: &'a [Known],
    pub(super) joint: &'a dyn Fn([usize; 2]) -> Joint,
    /// The likely cause why a pair failed, if its links or its driver tell one.
    pub(super) cause: &'a dyn Fn(&Row) -> Option<String>,
    /// About closed gates.
    pub(super) gates: Vec<String>,
    pub(super) hints: Vec<String>,
}

/// The advice, the most urgent first: on pairs that failed, closed gates, hints, the rest.
pub(super) fn advice(facts: &Facts) -> Vec<String> {
    use Level::{Bad, Warn};
    let rows = [
        judge::Row::new(Bad, "likely causes", Facts::causes),
        judge::Row::new(Bad, "more causes", Facts::more_causes),
        judge::Row::new(Bad, "only NCCL's protocols fail", Facts::only_nccl),
        judge::Row::new(Bad, "only memory of other processes fails", Facts::only_shared),
        judge::Row::new(Bad, "pairs to avoid", Facts::to_avoid),
        judge::Row::new(Warn, "closed gates", |it: &Facts| it.gates.clone()),
        judge::Row::new(Warn, "hints", |it: &Facts| it.hints.clone()),
        judge::Row::new(Warn, "slower directly", Facts::slower),
        judge::Row::new(Warn, "stalls", Facts::stalled),
        judge::Row::new(Warn, "small BAR1", Facts::small_window),
        judge::Row::new(Warn, "wrong through the host", Facts::wrong_through_host),
        judge::Row::new(Warn, "not tested", Facts::not_tested),
    ];
    judge::texts(judge::evaluate(&rows, facts))
}

impl Facts<'_> {
    fn short(&self, rows: &[&Row]) -> String {
        short(rows, self.gpus.len())
    }

    fn failed(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| matches!(row.verdict, Verdict::Failed(_)))
    }

    /// The likely cause for a pair that is wrong only beyond the first part of memory, and has no NVLink.
    fn window(&self, row: &Row) -> Option<String> {
        let [_, to] = row.pair;
        let is_it = row.fails_only(&[Test::AllMemory]) && (self.joint)(row.pair) != Joint::NvLink;
        is_it.then(|| {
            let bar1 = self.gpus.get(to).and_then(|gpu| gpu.bar1);
            let size = bar1.map_or(String::new(), |bytes| format!(" ({} MiB)", bytes >> 20));
            format!(
                "peers access memory of GPU {to} over PCI through its BAR1{size}, which may show only a part of it. Enable a larger one in \
                 the firmware (resizable BAR, above 4G decoding), and test again"
            )
        })
    }

    /// The pairs that failed, by their likely causes: those that are shown, and the others, which would fill the screen and are mostly alike.
    fn by_cause(&self) -> (Vec<(String, Vec<&Row>)>, Vec<&Row>) {
        let mut causes: Vec<(String, Vec<&Row>)> = Vec::new();
        for row in self.failed() {
            let of_pair = || self.window(row).or_else(|| (self.cause)(row));
            let cause = match self.machine {
                Some(machine) => of_pair().unwrap_or_else(|| machine.likely_cause(row.pair)),
                None => machine::SIMULATED_CAUSE.to_owned(),
            };
            match causes.iter_mut().find(|(known, _)| *known == cause) {
                Some((_, rows)) => rows.push(row),
                None => causes.push((cause, vec![row])),
            }
        }
        let shown = if self.gpus.len() > 4 { 1 } else { 2 };
        let others = causes.split_off(causes.len().min(shown));
        (causes, others.into_iter().flat_map(|(_, rows)| rows).collect())
    }

    fn causes(&self) -> Vec<String> {
        let (causes, _) = self.by_cause();
        let said = causes.into_iter().map(|(cause, rows)| format!("Likely cause for {}: {cause}.", self.short(&rows)));
        said.collect()
    }

    fn more_causes(&self) -> Option<String> {
        let (_, others) = self.by_cause();
        let name = others.first()?.name();
        Some(format!("Likely causes for {}: `p2pshim doctor '{name}'` shows them.", self.short(&others)))
    }

    fn only_nccl(&self) -> Option<String> {
        let rows: Vec<&Row> = self.failed().filter(|row| row.fails_only(&Test::OF_NCCL)).collect();
        let (protocols, value) = narrow::protocols(rows.iter().copied());
        (!rows.is_empty()).then(|| {
            format!(
                "Only tests of NCCL's {protocols} fail on {}: NCCL_PROTO={value} makes NCCL do without. p2pshim still \
                 uses these pairs.",
                self.short(&rows)
            )
        })
    }

    fn only_shared(&self) -> Option<String> {
        let rows: Vec<&Row> = self.failed().filter(|row| row.fails_only(&Test::BETWEEN_PROCESSES)).collect();
        (!rows.is_empty()).then(|| {
            format!(
                "Only tests between processes fail on {}: NCCL_P2P_DISABLE=1 keeps NCCL from sharing GPU memory between \
                 them. p2pshim does not stage copies of memory that another process allocated.",
                self.short(&rows)
            )
        })
    }

    fn to_avoid(&self) -> Option<String> {
        let is_meant = |row: &&Row| !row.fails_only(&Test::OF_NCCL) && !row.fails_only(&Test::BETWEEN_PROCESSES);
        let (rows, devices) = (self.failed().filter(is_meant).collect::<Vec<_>>(), self.gpus.len());
        (!rows.is_empty()).then(|| {
            format!(
                "To avoid it now: {} keeps programs under the shim off these pairs, and NCCL_P2P_DISABLE=1 does so for NCCL.",
                // The list of all pairs of many is long.
                if devices > 2 && rows.len() == devices * (devices - 1) {
                    "P2PSHIM_ACCESS=off".to_owned()
                } else {
                    deny(&rows)
                }
            )
        })
    }

    fn slower(&self) -> Option<String> {
        let slow: Vec<&Row> = self.rows.iter().filter(|row| is_slower(row)).collect();
        (!slow.is_empty()).then(|| {
            format!(
                "Direct copies are slower than those through the host for {}: {} makes programs under the shim copy through the host.",
                self.short(&slow),
                deny(&slow)
            )
        })
    }

    fn stalled(&self) -> Option<String> {
        let stalled: Vec<&Row> = self.rows.iter().filter(|row| is_stalled(row)).collect();
        let took = stalled.first()?.measure(Path::Direct).map_or(0.0, |direct| direct.latency / 1000.0);
        Some(format!(
            "Direct copies stall: 4 bytes took {took:.1} ms on {}. IOMMU and ACS are the usual causes. {} makes programs under the \
             shim copy through the host.",
            self.short(&stalled),
            deny(&stalled)
        ))
    }

    fn small_window(&self) -> Option<String> {
        let is_by_pci = |row: &Row| row.verdict != Verdict::NoPath && (self.joint)(row.pair) != Joint::NvLink;
        let is_small = |gpu: &Known| gpu.bar1.is_some_and(|bytes| bytes <= 256 << 20);
        let small = self.gpus.iter().enumerate().filter(|(_, gpu)| is_small(gpu));
        let small = small.map(|(ordinal, _)| ordinal.to_string()).collect::<Vec<_>>().join(" and ");
        (!small.is_empty() && self.rows.iter().any(is_by_pci)).then(|| {
            format!(
                "BAR1 of GPU {small} is 256 MiB or less, and peers access memory over PCI through it. Enable a larger one in the \
                 firmware (resizable BAR, above 4G decoding)."
            )
        })
    }

    fn wrong_through_host(&self) -> Option<String> {
        let advice =
            "Look for errors of these GPUs (`dmesg | grep Xid`, `nvidia-smi -q -d ECC`), and try another driver.";
        self.rows.iter().any(Row::is_wrong_through_host).then(|| advice.to_owned())
    }

    fn not_tested(&self) -> Option<String> {
        let is_unknown = |row: &Row| matches!(row.verdict, Verdict::Unknown(_)) && !row.is_wrong_through_host();
        let advice = "The reasons why pairs could not be tested are below. Correct them and test again.";
        let is_so = self.rows.iter().any(|row| is_unknown(row) || row.lacks_what_is_essential());
        is_so.then(|| advice.to_owned())
    }
}

/// The variable that keeps programs off pairs: both ways, since either side may carry a copy out.
fn deny(rows: &[&Row]) -> String {
    format!("P2PSHIM_DENY='{}'", denied(rows.iter().copied(), |ordinal| ordinal.to_string()))
}

/// The value of that variable, by other names of GPUs.
pub(super) fn denied<'a>(rows: impl Iterator<Item = &'a Row>, name: impl Fn(usize) -> String) -> String {
    let mut pairs: Vec<String> = Vec::new();
    for [from, to] in rows.map(|row| row.pair) {
        let pair = format!("{}-{}", name(from.min(to)), name(from.max(to)));
        if !pairs.contains(&pair) {
            pairs.push(pair);
        }
    }
    pairs.join(",")
}

#[cfg(test)]
mod tests {
    use super::super::lines::Measure;
    use super::*;

    fn row(pair: [usize; 2], verdict: Verdict, speeds: [Option<f64>; 2]) -> Row {
        let measures = speeds.map(|speed| speed.map(|speed| Measure { speed, latency: 1.0 }));
        Row { measures, ..Row::new(pair, verdict) }
    }

    fn failed() -> Verdict {
        Verdict::Failed("gone".to_owned())
    }

    fn given(rows: &[Row], gpus: &[Known], joint: Joint) -> String {
        let (joint, machine) = (|_| joint, Machine::default());
        let (machine, gates, hints) = (Some(&machine), Vec::new(), Vec::new());
        advice(&Facts { rows, machine, gpus, joint: &joint, cause: &|_| None, gates, hints }).join("\n")
    }

    #[test]
    fn of_failure_outweighs_what_could_not_be_tested() {
        let unknown = || Verdict::Unknown(String::new());
        for (verdicts, expected, status) in [
            (vec![Verdict::Passed, Verdict::NoPath], Conclusion::Safe, 0),
            (vec![Verdict::Passed, unknown()], Conclusion::Untested, 3),
            (vec![unknown(), failed(), Verdict::Passed], Conclusion::Unsafe, 1),
            (vec![Verdict::NoPath], Conclusion::NoAccess, 0),
            (vec![], Conclusion::NoAccess, 0),
        ] {
            let rows: Vec<Row> = verdicts.into_iter().map(|verdict| row([0, 1], verdict, [None; 2])).collect();
            let conclusion = Conclusion::of(&rows);
            assert_eq!((conclusion, conclusion.status()), (expected, status));
            assert!(!conclusion.text(&rows, 3).is_empty() && !conclusion.word().is_empty());
        }
    }

    #[test]
    fn advice_nothing_wrong_nothing_to_do() {
        let rows = [row([0, 1], Verdict::Passed, [Some(396.0), Some(38.0)])];
        let large = Known { is_mig: Some(false), bar1: Some(256 << 30), ..Known::default() };
        assert_eq!(given(&rows, &[large], Joint::Host), "");
    }

    #[test]
    fn advice_names_the_pairs_that_fail_and_how_to_do_without() {
        let rows = [row([1, 0], failed(), [None; 2]), row([0, 1], failed(), [None; 2])];
        let said = given(&rows, &[], Joint::Unseen);
        assert!(said.contains("Likely cause for 1>0 0>1: ") && said.contains("P2PSHIM_DENY='0-1' "), "{said}");
    }

    #[test]
    fn advice_between_processes_only_says_so_and_denies_nothing() {
        let mut row = row([0, 1], failed(), [None; 2]);
        row.set_finding(Test::Copies, Finding::Right);
        row.set_finding(Test::Ipc, Finding::Wrong("gone".to_owned()));
        let said = given(std::slice::from_ref(&row), &[], Joint::Unseen);
        assert!(said.contains("Only tests between processes fail on 0>1") && !said.contains("P2PSHIM_DENY"), "{said}");
        row.set_finding(Test::Loads, Finding::Wrong("gone".to_owned()));
        let said = given(&[row], &[], Joint::Unseen);
        assert!(said.contains("P2PSHIM_DENY='0-1'") && !said.contains("between processes"), "{said}");
    }

    #[test]
    fn advice_on_protocols_of_nccl_excludes_them_and_denies_nothing() {
        let mut row = row([0, 1], failed(), [None; 2]);
        row.set_finding(Test::Ll128, Finding::Wrong("torn".to_owned()));
        let said = given(std::slice::from_ref(&row), &[], Joint::NvLink);
        assert!(said.contains("protocol LL128 fail on 0>1: NCCL_PROTO=^LL128 makes"), "{said}");
        assert!(!said.contains("P2PSHIM_DENY") && !said.contains("NCCL_P2P_DISABLE"), "{said}");
    }

    #[test]
    fn advice_wrong_beyond_the_first_part_of_memory_names_bar1_but_for_nvlink() {
        let gpu = |bar1| Known { bar1, ..Known::default() };
        let gpus = [gpu(None), gpu(Some(16 << 30))];
        let mut row = row([0, 1], failed(), [None; 2]);
        row.set_finding(Test::Copies, Finding::Right);
        row.set_finding(Test::AllMemory, Finding::Wrong("gone".to_owned()));
        let said = given(std::slice::from_ref(&row), &gpus, Joint::Host);
        let cause =
            "Likely cause for 0>1: peers access memory of GPU 1 over PCI through its BAR1 (16384 MiB), which may show";
        assert!(said.contains(cause) && said.contains("P2PSHIM_DENY='0-1'"), "{said}");
        let nvlink = given(std::slice::from_ref(&row), &gpus, Joint::NvLink);
        assert!(nvlink.contains("Likely cause for 0>1: ") && !nvlink.contains("BAR1"), "{nvlink}");
        row.set_finding(Test::Copies, Finding::Wrong("gone".to_owned()));
        assert!(!given(&[row], &gpus, Joint::Host).contains("BAR1"), "the window is not to blame for the bottom");
    }

    #[test]
    fn text_says_what_could_not_be_tested_between_processes() {
        let mut row = row([0, 1], Verdict::Passed, [None; 2]);
        row.set_finding(Test::Ipc, Finding::Untested("no handle".to_owned()));
        let rows = [row, Row::new([1, 0], Verdict::Passed)];
        let said = Conclusion::of(&rows).text(&rows, 2);
        let expected = "peer access can be trusted. Data arrived in every test of every pair. Between processes by IPC handle, 0>1 could not be tested";
        assert_eq!(said, expected);
        assert_eq!(given(&rows, &[], Joint::Unseen), "");
    }

    #[test]
    fn advice_stalled_pairs_are_named() {
        let stalled = Measure { speed: 20.0, latency: 49_000.0 };
        let rows = [Row { measures: [Some(stalled), None], ..Row::new([0, 1], Verdict::Passed) }];
        let said = given(&rows, &[], Joint::NvLink);
        assert!(said.contains("4 bytes took 49.0 ms on 0>1"), "{said}");
    }

    #[test]
    fn advice_slow_pairs_and_small_windows_are_named() {
        let rows = [row([0, 1], Verdict::Passed, [Some(1.0), Some(8.0)])];
        let small = Known { bar1: Some(256 << 20), ..Known::default() };
        let said = given(&rows, std::slice::from_ref(&small), Joint::Host);
        for part in ["slower than those through the host for 0>1", "BAR1 of GPU 0"] {
            assert!(said.contains(part), "no {part}: {said}");
        }
        assert!(!given(&rows, &[small], Joint::NvLink).contains("BAR1"), "NVLink needs none");
    }
}
