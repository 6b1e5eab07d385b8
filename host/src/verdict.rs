//! A verdict on a pair of GPUs, part by part: `p2pshim doctor` and `p2pshim run` make it, files keep it ([`crate::verdicts`]), and
//! the shim goes by it.
//!
//! A part decides only about its own use: wrong IPC says nothing against copies within one process.

use std::fmt::Write as _;

use crate::stagers::{Stagers, rate};

/// One thing that is tested about a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Copies by the copy engines.
    Copies,
    /// Copies, loads and stores in memory of a pool, and in memory that the program mapped, to which access was granted.
    Pools,
    /// Copies that a graph makes, which is replayed.
    Graphs,
    /// Loads of a kernel.
    Loads,
    /// Stores of a kernel.
    Stores,
    /// Atomic operations of a kernel, where the link has them.
    Atomics,
    /// Flags between kernels that run at the same time.
    Flags,
    /// Flags and data that a kernel reads from the memory of the peer, where a running kernel stores them.
    Pull,
    /// Data with a flag in each 8 bytes, as NCCL's LL protocol has it.
    Ll,
    /// Lines of 128 bytes whose last 8 are a flag, as NCCL's LL128 protocol has it, where NVLink joins the pair.
    Ll128,
    /// Copies to and from memory that another process allocated, which was opened by an IPC handle.
    Ipc,
    /// As `Ipc`, with memory that was mapped by a file descriptor (Virtual Memory Management).
    Vmm,
    /// Kernels of two processes that exchange data and flags in such memory of an IPC handle, while copies use what is beside it.
    IpcKernels,
    /// Copies and accesses of kernels in memory wherever it lies.
    AllMemory,
    /// Copies of all pairs at once.
    AllPairs,
    /// Stores of kernels from each GPU to each other one at once.
    AllToAll,
    /// All-reduces of all GPUs: by kernels that load from each other one, and around a ring.
    AllReduce,
}

impl Part {
    /// In the order of the doctor's table.
    pub const ALL: [Self; 17] = [
        Self::Copies,
        Self::Pools,
        Self::Graphs,
        Self::Loads,
        Self::Stores,
        Self::Atomics,
        Self::Flags,
        Self::Pull,
        Self::Ll,
        Self::Ll128,
        Self::Ipc,
        Self::Vmm,
        Self::IpcKernels,
        Self::AllMemory,
        Self::AllPairs,
        Self::AllToAll,
        Self::AllReduce,
    ];

    /// The tests of memory that processes share.
    pub const BETWEEN_PROCESSES: [Self; 3] = [Self::Ipc, Self::Vmm, Self::IpcKernels];

    /// The tests of all pairs at once.
    pub const AT_ONCE: [Self; 3] = [Self::AllPairs, Self::AllToAll, Self::AllReduce];

    /// The tests of what only NCCL's protocols do, and NCCL can do without.
    pub const OF_NCCL: [Self; 2] = [Self::Ll, Self::Ll128];

    /// Its word in files and lines.
    pub fn word(self) -> &'static str {
        match self {
            Self::Copies => "copies",
            Self::Pools => "pools",
            Self::Graphs => "graphs",
            Self::Loads => "loads",
            Self::Stores => "stores",
            Self::Atomics => "atomics",
            Self::Flags => "flags",
            Self::Pull => "pull",
            Self::Ll => "ll",
            Self::Ll128 => "ll128",
            Self::Ipc => "ipc",
            Self::Vmm => "vmm",
            Self::IpcKernels => "ipc-kernels",
            Self::AllMemory => "all-memory",
            Self::AllPairs => "all-pairs",
            Self::AllToAll => "all-to-all",
            Self::AllReduce => "all-reduce",
        }
    }

    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Copies => "copies",
            Self::Pools => "memory with granted access",
            Self::Graphs => "copies in a graph",
            Self::Loads => "kernel loads",
            Self::Stores => "kernel stores",
            Self::Atomics => "kernel atomics",
            Self::Flags => "kernel flags",
            Self::Pull => "kernel pull",
            Self::Ll => "kernel flags in line, LL",
            Self::Ll128 => "kernel flags in line, LL128",
            Self::Ipc => "between processes, IPC",
            Self::Vmm => "between processes, VMM",
            Self::IpcKernels => "between processes, kernels",
            Self::AllMemory => "all memory",
            Self::AllPairs => "all pairs at once",
            Self::AllToAll => "all-to-all by kernels",
            Self::AllReduce => "all-reduce",
        }
    }

    /// The value of `NCCL_PROTO` that excludes the protocols of NCCL that fail; none if none does.
    ///
    /// Source: NCCL's user guide: since 2.5 a list among LL, LL128 and Simple, of those to exclude after `^`.
    pub fn nccl_proto(fails: impl Fn(Self) -> bool) -> Option<&'static str> {
        match Self::OF_NCCL.map(fails) {
            [true, true] => Some("^LL,LL128"),
            [true, false] => Some("^LL"),
            [false, true] => Some("^LL128"),
            [false, false] => None,
        }
    }

    /// The part of that word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|part| part.word() == word)
    }

    /// Whether a pair is not verified without it. The rest may be impossible on a machine where peer access is right: containers
    /// may keep processes from sharing memory, other processes use it, and kernels need not run at the same time.
    pub fn is_essential(self) -> bool {
        matches!(self, Self::Copies | Self::Loads | Self::Stores | Self::Atomics)
    }
}

/// How a part came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Every byte was right.
    Right,
    /// Data was wrong, or a device faulted.
    Wrong(String),
    /// It did not end in time.
    Hung(String),
    /// It cannot be tested here.
    Untested(String),
}

impl Finding {
    /// Its word in files and lines, and its text.
    pub fn parts(&self) -> (&'static str, &str) {
        match self {
            Self::Right => ("right", ""),
            Self::Wrong(text) => ("wrong", text),
            Self::Hung(text) => ("hung", text),
            Self::Untested(text) => ("untested", text),
        }
    }

    /// Its word for people and programs.
    pub fn word(&self) -> &'static str {
        self.parts().0
    }

    /// Its text; none if all is right.
    pub fn detail(&self) -> Option<&str> {
        Some(self.parts().1).filter(|text| !text.is_empty())
    }

    /// Reads both parts.
    pub fn parse(word: &str, text: &str) -> Option<Self> {
        Some(match word {
            "right" => Self::Right,
            "wrong" => Self::Wrong(text.to_owned()),
            "hung" => Self::Hung(text.to_owned()),
            "untested" => Self::Untested(text.to_owned()),
            _ => return None,
        })
    }

    /// Whether data was lost or never came.
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::Wrong(_) | Self::Hung(_))
    }
}

/// A verdict on a pair: the device that accesses, and the one whose memory it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// In the order of [`Part::ALL`]; none of what was not tried.
    findings: [Option<Finding>; Part::ALL.len()],
    /// GB/s, in the order of [`Speed::ALL`].
    speeds: [Option<f64>; Speed::ALL.len()],
    /// The rates of both stagers on this machine.
    pub stagers: Stagers,
}

/// A speed that was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    /// The speed of direct copies.
    Direct,
    /// The speed of copies through the host.
    Staged,
    /// The speed of direct copies while all pairs copy.
    Together,
}

impl Speed {
    /// In the order of the file.
    pub const ALL: [Self; 3] = [Self::Direct, Self::Staged, Self::Together];

    fn word(self) -> &'static str {
        match self {
            Self::Direct => "speed-direct",
            Self::Staged => "speed-staged",
            Self::Together => "speed-together",
        }
    }
}

impl Verdict {
    /// A verdict of one part.
    pub fn of(part: Part, finding: Finding) -> Self {
        let mut verdict = Self::default();
        verdict.set(part, finding);
        verdict
    }

    /// Whether nothing was tried.
    pub fn is_empty(&self) -> bool {
        self.findings.iter().all(Option::is_none) && self.stagers.is_empty()
    }

    /// How a part came out; none if it was not tried.
    pub fn finding(&self, part: Part) -> Option<&Finding> {
        let found = Part::ALL.iter().zip(&self.findings).find(|(known, _)| **known == part);
        found.and_then(|(_, finding)| finding.as_ref())
    }

    /// Notes how a part came out.
    pub fn set(&mut self, part: Part, finding: Finding) {
        let place = Part::ALL.iter().zip(&mut self.findings).find(|(known, _)| **known == part);
        if let Some((_, place)) = place {
            *place = Some(finding);
        }
    }

    /// A speed in GB/s; none if it was not measured.
    pub fn speed(&self, speed: Speed) -> Option<f64> {
        let found = Speed::ALL.iter().zip(self.speeds).find(|(known, _)| **known == speed);
        found.and_then(|(_, measured)| measured)
    }

    /// Notes a speed in GB/s.
    pub fn set_speed(&mut self, speed: Speed, measured: f64) {
        let place = Speed::ALL.iter().zip(&mut self.speeds).find(|(known, _)| **known == speed);
        if let Some((_, place)) = place {
            *place = Some(measured);
        }
    }

    /// The first of some parts that failed.
    fn failure(&self, is_meant: impl Fn(Part) -> bool) -> Option<(Part, &Finding)> {
        let tried = Part::ALL.into_iter().zip(&self.findings).filter_map(|(part, found)| Some((part, found.as_ref()?)));
        tried.into_iter().find(|(part, finding)| finding.is_failure() && is_meant(*part))
    }

    /// Any part that failed, but those that NCCL can do without: it uses kernels, and memory of other processes.
    pub fn any_failure(&self) -> Option<(Part, &Finding)> {
        self.failure(|part| !Part::OF_NCCL.contains(&part))
    }

    /// Whether data arrives within one process; none if that was not tested.
    ///
    /// # Errors
    /// The part that failed, and how.
    pub fn within_process(&self) -> Option<Result<(), String>> {
        if let Some((part, finding)) = self.failure(is_within_process) {
            return Some(Err(said(part, finding)));
        }
        (self.finding(Part::Copies) == Some(&Finding::Right)).then_some(Ok(()))
    }

    /// How access to memory of another process failed, which was shared in that way, or access within one process.
    pub fn between_processes(&self, way: Part) -> Option<String> {
        let is_of_way = |part| part == way || part == Part::IpcKernels && way == Part::Ipc;
        let failure = self.failure(|part| is_of_way(part) || is_within_process(part));
        failure.map(|(part, finding)| said(part, finding))
    }

    /// Whether kernels were tested too.
    pub fn has_kernels(&self) -> bool {
        let is_made = |part| self.finding(part).is_some_and(|finding| !matches!(finding, Finding::Untested(_)));
        is_made(Part::Loads) && is_made(Part::Stores)
    }

    /// Adds a later verdict. A test that was not made changes nothing, and less than what failed does not make it right:
    /// `is_quick` says that sizes were small.
    #[must_use]
    pub fn updated(mut self, later: Self, is_quick: bool) -> Self {
        for (known, later) in self.findings.iter_mut().zip(later.findings) {
            let changes = match (&known, &later) {
                (_, None) | (Some(_), Some(Finding::Untested(_))) => false,
                (Some(before), Some(Finding::Right)) => !(is_quick && before.is_failure()),
                _ => true,
            };
            if changes {
                *known = later;
            }
        }
        for (known, later) in self.speeds.iter_mut().zip(later.speeds) {
            *known = later.or(*known);
        }
        self.stagers.update(&later.stagers);
        self
    }

    /// A line for each part and speed, and for each size of copies that were staged.
    pub(crate) fn write(&self) -> String {
        let mut text = String::new();
        for (part, finding) in Part::ALL.iter().zip(&self.findings) {
            if let Some((word, detail)) = finding.as_ref().map(Finding::parts) {
                let _ = writeln!(text, "{}", format!("{} {word} {}", part.word(), plain(detail)).trim_end());
            }
        }
        for (speed, measured) in Speed::ALL.iter().zip(self.speeds) {
            if let Some(measured) = measured {
                let _ = writeln!(text, "{} {measured:.2}", speed.word());
            }
        }
        text.push_str(&self.stagers.write());
        text
    }

    /// Reads such lines; none if any is not one of ours.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut verdict = Self::default();
        for line in text.lines() {
            let (word, rest) = line.split_once(' ')?;
            if let Some(part) = Part::parse(word) {
                let (word, detail) = rest.split_once(' ').unwrap_or((rest, ""));
                verdict.set(part, Finding::parse(word, &plain(detail))?);
            } else if word == Stagers::WORD {
                verdict.stagers.read(rest)?;
            } else {
                let speed = Speed::ALL.into_iter().find(|speed| speed.word() == word)?;
                verdict.set_speed(speed, rate(rest)?);
            }
        }
        Some(verdict)
    }
}

/// Whether a part decides about all use within one process.
fn is_within_process(part: Part) -> bool {
    !Part::BETWEEN_PROCESSES.contains(&part) && !Part::OF_NCCL.contains(&part)
}

/// How a part failed, in words.
fn said(part: Part, finding: &Finding) -> String {
    format!("{}: {}", part.name(), finding.detail().unwrap_or(finding.word()))
}

/// A text as it may be shown: one line, not too long.
pub(crate) fn plain(text: &str) -> String {
    const LONGEST: usize = 500;
    text.chars().filter(|character| !character.is_control()).take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stagers::Rates;

    fn wrong(text: &str) -> Finding {
        Finding::Wrong(text.to_owned())
    }

    fn untested() -> Finding {
        Finding::Untested("cuIpcGetMemHandle returned 801".to_owned())
    }

    #[test]
    fn parse_reads_what_was_written_and_nothing_else() {
        let mut verdict = Verdict::of(Part::Copies, Finding::Right);
        verdict.set(Part::Loads, wrong("8 of 8 bytes\u{1b}[31m\nnever arrived"));
        verdict.set(Part::Ipc, untested());
        verdict.set(Part::AllPairs, Finding::Hung("after 20 s".to_owned()));
        verdict.set_speed(Speed::Direct, 48.126);
        verdict.stagers.set(2, true, Rates { driver: 24.5, shim: 38.0 });
        let text = verdict.write();
        assert_eq!(
            text,
            "copies right\nloads wrong 8 of 8 bytes[31mnever arrived\nipc untested cuIpcGetMemHandle returned 801\n\
             all-pairs hung after 20 s\nspeed-direct 48.13\nstaging 64-256 all-links driver 24.50 p2pshim 38.00\n"
        );
        assert_eq!(Verdict::parse(&text).map(|read| read.write()), Some(text));
        for other in
            ["copies\n", "copies maybe\n", "fast right\n", "speed-direct NaN\n", "speed-direct\n", "staging 8-16\n"]
        {
            assert_eq!(Verdict::parse(other), None, "{other}");
        }
        let long = Verdict::of(Part::Stores, wrong(&"ä".repeat(5000))).write();
        assert_eq!(long.chars().count(), "stores wrong \n".len() + 500);
    }

    #[test]
    fn part_decides_only_about_its_own_use() {
        let right = || Verdict::of(Part::Copies, Finding::Right);
        let with = |part, finding| {
            let mut verdict = right();
            verdict.set(part, finding);
            verdict
        };
        assert_eq!((Verdict::default().within_process(), right().within_process()), (None, Some(Ok(()))));
        assert_eq!(Verdict::of(Part::Copies, untested()).within_process(), None);
        let ipc = with(Part::Ipc, wrong("lost"));
        assert_eq!(ipc.within_process(), Some(Ok(())));
        assert_eq!(ipc.between_processes(Part::Ipc).as_deref(), Some("between processes, IPC: lost"));
        assert_eq!(ipc.between_processes(Part::Vmm), None);
        let kernels = with(Part::IpcKernels, wrong("lost"));
        assert!(kernels.between_processes(Part::Ipc).is_some() && kernels.between_processes(Part::Vmm).is_none());
        for part in Part::OF_NCCL {
            let verdict = with(part, wrong("lost"));
            assert_eq!((verdict.within_process(), verdict.between_processes(Part::Ipc)), (Some(Ok(())), None));
            assert!(verdict.any_failure().is_none() && Part::nccl_proto(|known| known == part).is_some());
        }
        let loads = with(Part::Loads, wrong("lost"));
        assert_eq!(loads.within_process(), Some(Err("kernel loads: lost".to_owned())));
        assert!(loads.between_processes(Part::Vmm).is_some() && with(Part::Vmm, untested()).any_failure().is_none());
        assert!(!right().has_kernels() && !with(Part::Loads, untested()).has_kernels());
    }

    #[test]
    fn updated_test_that_was_not_made_changes_nothing() {
        let all = [Finding::Right, wrong("lost"), Finding::Hung(String::new()), untested()];
        let after = |before: Option<&Finding>, later: Option<&Finding>, is_quick: bool| {
            let of = |finding: Option<&Finding>| {
                finding.map_or_else(Verdict::default, |finding| Verdict::of(Part::Ipc, finding.clone()))
            };
            of(before).updated(of(later), is_quick).finding(Part::Ipc).cloned()
        };
        for before in &all {
            assert_eq!(after(Some(before), None, false).as_ref(), Some(before));
            assert_eq!(after(Some(before), Some(&untested()), false).as_ref(), Some(before));
            assert_eq!(after(Some(before), Some(&wrong("new")), true), Some(wrong("new")), "{before:?}");
            assert_eq!(after(Some(before), Some(&Finding::Right), false), Some(Finding::Right), "{before:?}");
            let less = if before.is_failure() { before } else { &Finding::Right };
            assert_eq!(after(Some(before), Some(&Finding::Right), true).as_ref(), Some(less));
            assert_eq!(after(None, Some(before), true).as_ref(), Some(before));
        }
    }
}
