//! The lines that the process that touches the GPUs writes, and the supervisor reads.
//!
//! ```text
//! {"partner":4711}
//! {"pair":[0,{"begun":"copies"}]}
//! {"pair":[0,{"found":["copies","right"]}]}
//! {"pair":[0,{"found":["loads",{"wrong":"4096 of 4096 bytes never arrived, the first at 0 (launch 1)"}]}]}
//! {"pair":[0,{"verdict":{"failed":"kernel loads: 4096 of 4096 bytes …"}}]}
//! {"done":true}
//! {"pair":[0,{"measured":["staged",{"speed":38.12,"latency":14.03}]}]}
//! {"done":true}
//! ```
//! Each thing that it was asked for ends with `done`. A pair has a number, its place in what was asked for. It has a verdict if its tests
//! came to an end, also by a hang; if they did not, because of another pair's, it has none.

use p2pshim_host::text::Escaped;
pub(super) use p2pshim_host::verdict::{Finding, Part as Test};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::nvml::{Fabric, Links};

/// A task of that process, which it gets with pairs of ordinals: `["test",[[0,1],[1,0]]]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Task {
    /// To test these pairs.
    Test,
    /// To measure direct copies and those through the host.
    Measure,
    /// To measure only those through the host.
    MeasureStaged,
    /// To have them copy at once.
    AtOnce,
    /// To measure who stages copies of these GPUs faster.
    Stagers,
    /// To copy so many bytes to memory that has guards around it.
    Guarded(usize),
}

/// The verification's answer about a pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    /// Every test was right.
    Passed,
    /// The hardware has no path, so nothing can go wrong on it.
    NoPath,
    /// Data was lost, or work never ended.
    Failed(String),
    /// It could not be tested.
    Unknown(String),
}

impl Verdict {
    /// Adds how a test came out: a failure outweighs what could not be tested, and the first of a kind is kept. A test that is not
    /// essential says nothing if it could not be made.
    pub(super) fn and(self, test: Test, finding: Finding) -> Self {
        let said = |text: &str| format!("{}: {text}", test.name());
        match (self, finding) {
            (before @ Self::Failed(_), _) | (before, Finding::Right) => before,
            (before, Finding::Untested(_)) if !test.is_essential() => before,
            (_, Finding::Wrong(text) | Finding::Hung(text)) => Self::Failed(said(&text)),
            (Self::Passed, Finding::Untested(text)) => Self::Unknown(said(&text)),
            (before, Finding::Untested(_)) => before,
        }
    }
}

/// How copies are made that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Path {
    /// From device to device.
    Direct,
    /// Through the host.
    Staged,
}

/// How fast a path is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Measure {
    /// GB/s of large copies.
    pub(super) speed: f64,
    /// Microseconds that the GPU takes for a copy of 4 bytes.
    pub(super) latency: f64,
}

/// The driver's attributes of a pair with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Attributes {
    /// Rank of its performance; 0 is the best.
    pub(super) rank: i32,
    /// Whether the link does atomics itself.
    pub(super) atomics: bool,
    /// Whether arrays can be reached.
    pub(super) arrays: bool,
}

/// Further facts about a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Known {
    /// Its name.
    pub(super) name: String,
    /// Whether confidential computing is on, for all GPUs.
    pub(super) is_confidential: Option<bool>,
    /// Whether MIG divides it.
    pub(super) is_mig: Option<bool>,
    /// Bytes of BAR1.
    pub(super) bar1: Option<u64>,
    /// Its NVLinks.
    pub(super) links: Option<Links>,
    pub(super) fabric: Option<Fabric>,
    /// NVML's mode of virtualization.
    pub(super) virtualization: Option<u32>,
    /// How many links to a processor's memory (C2C) there are.
    pub(super) c2c: Option<u32>,
    /// Bytes of its memory.
    pub(super) memory: Option<u64>,
    /// Its compute capability, as CUDA has it.
    pub(super) capability: Option<(i32, i32)>,
}

/// A line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Line {
    /// It is about the pair at that place.
    Pair(usize, Box<Line>),
    /// A test begins, and may never end.
    Begun(#[serde(with = "Tests")] Test),
    /// How a test came out.
    Found(#[serde(with = "Tests")] Test, #[serde(with = "Findings")] Finding),
    /// The speed of a path.
    Measured(Path, Measure),
    /// GB/s of a pair while all copy.
    AtOnce(f64),
    /// All pairs copy on.
    Soaks,
    /// GB/s of both stagers for copies of a class of sizes, of one link or while all are busy.
    Stagers { class: usize, are_all_busy: bool, driver: f64, shim: f64 },
    /// The process has done what it was asked for; whether all its GPUs can still be used.
    Done(bool),
    /// Another process that takes part.
    Partner(u32),
    /// The CUDA version of the driver.
    Driver(i32),
    /// A device: ordinal, bus address, UUID, name.
    Device { ordinal: usize, bus_id: String, uuid: String, name: String },
    /// A pair of ordinals that has a path.
    Path(usize, usize),
    /// The driver's attributes of a pair with a path.
    Attributes(usize, usize, Attributes),
    /// A CUDA runtime that programs find: version, and the library's name.
    Runtime(i32, String),
    /// Facts about a device, as NVML tells them.
    Known(usize, Box<Known>),
    /// A pair of ordinals that NVLink joins, as NVML says.
    NvLink(usize, usize),
    /// Why a device is not to be checked before a program starts.
    Unfit(usize, String),
    /// NVML's statuses of a pair of ordinals: reads, writes, atomic operations, PCI.
    Statuses(usize, usize, [Option<i32>; 4]),
    /// Whether confidential computing is on, as NVML says.
    Confidential(bool),
    /// The verdict of all tests, on a pair or on all.
    Verdict(Verdict),
}

/// The tests, for serde.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Test", rename_all = "kebab-case")]
enum Tests {
    Copies,
    Pools,
    Graphs,
    Loads,
    Stores,
    Atomics,
    Flags,
    Pull,
    Ll,
    Ll128,
    Ipc,
    Vmm,
    IpcKernels,
    AllMemory,
    AllPairs,
    AllToAll,
    AllReduce,
}

/// Findings, likewise.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Finding", rename_all = "kebab-case")]
enum Findings {
    Right,
    Wrong(String),
    Hung(String),
    Untested(String),
}

impl Line {
    /// Reads a line; none if it is not one of ours. Names of devices and messages of libraries may have anything in them.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut value = serde_json::from_str(line).ok()?;
        escape(&mut value);
        serde_json::from_value(value).ok()
    }
}

fn escape(value: &mut Value) {
    match value {
        Value::String(text) => *text = Escaped(&*text).to_string(),
        Value::Array(items) => items.iter_mut().for_each(escape),
        Value::Object(fields) => fields.values_mut().for_each(escape),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::{NUMBERS, each, is_plain};

    /// A process that tests may die in a line, and a library may write to the same place.
    #[test]
    fn damaged_lines_of_other_processes_are_left_out_or_shown_as_text() {
        let good = [
            r#"{"pair":[0,{"found":["loads",{"wrong":"4096 of 4096 bytes never arrived (launch 1)"}]}]}"#,
            r#"{"pair":[0,{"verdict":{"failed":"kernel loads: gone"}}]}"#,
            r#"{"pair":[0,{"measured":["staged",{"speed":38.12,"latency":14.03}]}]}"#,
            r#"{"stagers":{"class":2,"are_all_busy":true,"driver":24.5,"shim":38.0}}"#,
            r#"{"partner":4711}"#,
        ];
        assert!(good.iter().all(|line| Line::parse(line).is_some()));
        let words: Vec<&str> =
            NUMBERS.into_iter().chain(["[", "]", "{", "}", "\"", "\\u001b[2J", "null", ","]).collect();
        let mut read = 0;
        let inputs = each(500, |_, random| {
            let line = random.one_of(&good);
            let line = random.damaged(line.as_bytes(), &words);
            let line = String::from_utf8_lossy(&line);
            let Some(parsed) = Line::parse(&line) else { return };
            read += 1;
            if let Line::Pair(_, line) = parsed
                && let Line::Found(_, Finding::Wrong(text) | Finding::Hung(text)) | Line::Verdict(Verdict::Failed(text)) =
                    *line
            {
                assert!(is_plain(&text), "{text:?}");
            }
        });
        assert!(read > inputs / 10 && read < inputs, "{read}");
    }

    #[test]
    fn parse_reads_what_was_written_and_nothing_else() {
        let wrong = |text: &str| Line::Found(Test::AllMemory, Finding::Wrong(text.to_owned()));
        let lines = [
            (
                Line::Pair(7, Box::new(wrong("1 of 8 bytes"))),
                r#"{"pair":[7,{"found":["all-memory",{"wrong":"1 of 8 bytes"}]}]}"#,
            ),
            (Line::Found(Test::Ipc, Finding::Right), r#"{"found":["ipc","right"]}"#),
            (Line::Verdict(Verdict::NoPath), r#"{"verdict":"no-path"}"#),
            (Line::Done(false), r#"{"done":false}"#),
        ];
        for (line, text) in lines {
            assert_eq!((serde_json::to_string(&line).unwrap().as_str(), Line::parse(text)), (text, Some(line)));
        }
        for text in ["", "{}", "Xid 31: x", r#"{"done":1}"#, r#"{"found":["copies","fine"]}"#] {
            assert_eq!(Line::parse(text), None, "{text}");
        }
    }

    #[test]
    fn parse_escapes_what_a_terminal_would_obey() {
        let line = serde_json::to_string(&Line::Verdict(Verdict::Unknown("a\n\u{1b}[31m\u{9b}".to_owned()))).unwrap();
        let expected = Verdict::Unknown("a\\n\\x1b[31m\\u{9b}".to_owned());
        assert_eq!((line.lines().count(), Line::parse(&line)), (1, Some(Line::Verdict(expected))));
    }

    #[test]
    fn verdict_without_processes_stands_and_with_a_failure_between_them_does_not() {
        let untested = || Finding::Untested("no handle".to_owned());
        let verdict = Verdict::Passed.and(Test::Ipc, untested()).and(Test::AllPairs, untested());
        assert_eq!(verdict, Verdict::Passed);
        let failed = verdict.and(Test::Ipc, Finding::Wrong("gone".to_owned()));
        assert_eq!(failed, Verdict::Failed("between processes, IPC: gone".to_owned()));
    }

    #[test]
    fn verdict_failure_outweighs_and_the_first_of_a_kind_is_kept() {
        let untested = || Finding::Untested("no memory".to_owned());
        let verdict = Verdict::Passed.and(Test::Copies, Finding::Right).and(Test::Loads, untested());
        assert_eq!(verdict, Verdict::Unknown("kernel loads: no memory".to_owned()));
        let verdict = verdict.and(Test::Stores, Finding::Wrong("gone".to_owned())).and(Test::Copies, untested());
        assert_eq!(verdict, Verdict::Failed("kernel stores: gone".to_owned()));
    }
}
