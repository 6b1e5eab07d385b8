//! The lines that the process that touches the GPUs writes, and the supervisor reads.
//!
//! ```text
//! partner 4711
//! pair 0 copies right
//! pair 0 loads wrong 4096 of 4096 bytes never arrived, the first at 0 (launch 1)
//! pair 0 stores untested cuLaunchKernel answered …
//! pair 0 ipc right
//! pair 0 verdict failed kernel loads: 4096 of 4096 bytes …
//! done true
//! pair 0 staged 38.12 14.03
//! pair 0 staging 64-256 all-links driver 24.50 p2pshim 38.00
//! done true
//! ```
//! Each thing that it was asked for ends with `done`. A pair has a number, its place in what was asked for. It has a verdict if its tests
//! came to an end, also by a hang; if they did not, because of another pair's, it has none.

use p2pshim_host::stagers::Stagers;
pub(super) use p2pshim_host::verdict::{Finding, Part as Test};

/// The verification's answer about a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
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

    fn write(&self) -> String {
        match self {
            Self::Passed => "passed".to_owned(),
            Self::NoPath => "no-path".to_owned(),
            Self::Failed(text) => format!("failed {text}"),
            Self::Unknown(text) => format!("unknown {text}"),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (word, text) = text.split_once(' ').unwrap_or((text, ""));
        Some(match word {
            "passed" => Self::Passed,
            "no-path" => Self::NoPath,
            "failed" => Self::Failed(text.to_owned()),
            "unknown" => Self::Unknown(text.to_owned()),
            _ => return None,
        })
    }
}

/// How copies are made that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Path {
    /// From device to device.
    Direct,
    /// Through the host.
    Staged,
}

/// How fast a path is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measure {
    /// GB/s of large copies.
    pub(super) speed: f64,
    /// Microseconds that the GPU takes for a copy of 4 bytes.
    pub(super) latency: f64,
}

/// The driver's attributes of a pair with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attributes {
    /// Rank of its performance; 0 is the best.
    pub(super) rank: i32,
    /// Whether the link does atomics itself.
    pub(super) atomics: bool,
    /// Whether arrays can be reached.
    pub(super) arrays: bool,
}

/// A line.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Line {
    /// It is about the pair at that place.
    Pair(usize, Box<Line>),
    /// How a test came out.
    Found(Test, Finding),
    /// The speed of a path.
    Measured(Path, Measure),
    /// GB/s of a pair while all copy.
    AtOnce(f64),
    /// The rates of both stagers for copies of one size.
    Stagers(Box<Stagers>),
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
    /// Bytes of a device's BAR1, as NVML says.
    Bar1(usize, u64),
    /// Whether MIG divides a device, as NVML says.
    Mig(usize, bool),
    /// How many of a device's NVLinks are up, as NVML says.
    Links(usize, u32),
    /// A pair of ordinals that NVLink joins, as NVML says.
    NvLink(usize, usize),
    /// Why a device is not to be checked before a program starts.
    Unfit(usize, String),
    /// Whether confidential computing is on, as NVML says.
    Confidential(bool),
    /// The verdict of all tests, on a pair or on all.
    Verdict(Verdict),
}

impl Line {
    /// The line as it is written, without its end.
    pub(super) fn write(&self) -> String {
        let line = match self {
            Self::Pair(place, line) => format!("pair {place} {}", line.write()),
            Self::Found(test, finding) => {
                let (word, text) = finding.parts();
                format!("{} {word} {text}", test.word())
            }
            Self::Measured(Path::Direct, Measure { speed, latency }) => format!("direct {speed:.2} {latency:.2}"),
            Self::Measured(Path::Staged, Measure { speed, latency }) => format!("staged {speed:.2} {latency:.2}"),
            Self::Stagers(stagers) => stagers.write(),
            Self::AtOnce(speed) => format!("at-once {speed:.2}"),
            Self::Done(is_whole) => format!("done {is_whole}"),
            Self::Partner(process) => format!("partner {process}"),
            Self::Driver(version) => format!("driver {version}"),
            Self::Device { ordinal, bus_id, uuid, name } => format!("device {ordinal} {bus_id} {uuid} {name}"),
            Self::Path(from, to) => format!("path {from} {to}"),
            Self::Attributes(from, to, Attributes { rank, atomics, arrays }) => {
                format!("attributes {from} {to} {rank} {atomics} {arrays}")
            }
            Self::Runtime(version, name) => format!("runtime {version} {name}"),
            Self::Bar1(ordinal, bytes) => format!("bar1 {ordinal} {bytes}"),
            Self::Mig(ordinal, is_on) => format!("mig {ordinal} {is_on}"),
            Self::Links(ordinal, count) => format!("links {ordinal} {count}"),
            Self::NvLink(from, to) => format!("nvlink {from} {to}"),
            Self::Unfit(ordinal, why) => format!("unfit {ordinal} {why}"),
            Self::Confidential(is_on) => format!("confidential {is_on}"),
            Self::Verdict(verdict) => format!("verdict {}", verdict.write()),
        };
        line.replace('\n', " ").trim_end().to_owned()
    }

    /// Reads a line; none if it is not one of ours.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ')?;
        if let Some(test) = Test::parse(word) {
            let (word, text) = rest.split_once(' ').unwrap_or((rest, ""));
            return Some(Self::Found(test, Finding::parse(word, text)?));
        }
        let mut fields = rest.split(' ');
        let mut field = || fields.next();
        Some(match word {
            "pair" => {
                let (place, line) = rest.split_once(' ')?;
                Self::Pair(place.parse().ok()?, Box::new(Self::parse(line)?))
            }
            "at-once" => Self::AtOnce(field()?.parse().ok()?),
            Stagers::WORD => {
                let mut stagers = Stagers::default();
                stagers.read(rest)?;
                Self::Stagers(Box::new(stagers))
            }
            "done" => Self::Done(field()?.parse().ok()?),
            "direct" | "staged" => {
                let path = if word == "direct" { Path::Direct } else { Path::Staged };
                Self::Measured(path, Measure { speed: field()?.parse().ok()?, latency: field()?.parse().ok()? })
            }
            "partner" => Self::Partner(rest.parse().ok()?),
            "driver" => Self::Driver(rest.parse().ok()?),
            "device" => {
                let mut fields = rest.splitn(4, ' ');
                let mut field = || fields.next();
                Self::Device {
                    ordinal: field()?.parse().ok()?,
                    bus_id: field()?.to_owned(),
                    uuid: field()?.to_owned(),
                    name: field()?.to_owned(),
                }
            }
            "path" => Self::Path(field()?.parse().ok()?, field()?.parse().ok()?),
            "attributes" => {
                let (from, to) = (field()?.parse().ok()?, field()?.parse().ok()?);
                let (rank, atomics) = (field()?.parse().ok()?, field()?.parse().ok()?);
                Self::Attributes(from, to, Attributes { rank, atomics, arrays: field()?.parse().ok()? })
            }
            "runtime" => Self::Runtime(field()?.parse().ok()?, field()?.to_owned()),
            "bar1" => Self::Bar1(field()?.parse().ok()?, field()?.parse().ok()?),
            "mig" => Self::Mig(field()?.parse().ok()?, field()?.parse().ok()?),
            "links" => Self::Links(field()?.parse().ok()?, field()?.parse().ok()?),
            "nvlink" => Self::NvLink(field()?.parse().ok()?, field()?.parse().ok()?),
            "unfit" => {
                let (ordinal, why) = rest.split_once(' ')?;
                Self::Unfit(ordinal.parse().ok()?, why.to_owned())
            }
            "confidential" => Self::Confidential(field()?.parse().ok()?),
            "verdict" => Self::Verdict(Verdict::parse(rest)?),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use p2pshim_host::stagers::Rates;

    use super::*;

    #[test]
    fn parse_reads_what_was_written() {
        let mut stagers = Stagers::default();
        stagers.set(2, true, Rates { driver: 24.5, shim: 38.0 });
        let lines = [
            Line::Pair(7, Box::new(Line::Found(Test::Ipc, Finding::Wrong("1 of 8 bytes".to_owned())))),
            Line::Pair(0, Box::new(Line::Verdict(Verdict::Passed))),
            Line::Done(false),
            Line::Found(Test::Copies, Finding::Right),
            Line::Found(Test::Stores, Finding::Wrong("8 of 8 bytes never arrived, the first at 0".to_owned())),
            Line::Found(Test::Stores, Finding::Hung("after 20 s".to_owned())),
            Line::Found(Test::AllMemory, Finding::Untested("in use".to_owned())),
            Line::Measured(Path::Direct, Measure { speed: 396.25, latency: 6.5 }),
            Line::Measured(Path::Staged, Measure { speed: 38.0, latency: 14.25 }),
            Line::AtOnce(371.5),
            Line::Stagers(Box::new(stagers)),
            Line::Partner(4711),
            Line::Driver(13000),
            Line::Device {
                ordinal: 1,
                bus_id: "0000:02:00.0".to_owned(),
                uuid: "GPU-0".to_owned(),
                name: "NVIDIA H200 NVL".to_owned(),
            },
            Line::Path(0, 1),
            Line::Attributes(0, 1, Attributes { rank: 2, atomics: true, arrays: false }),
            Line::Runtime(12090, "libcudart.so.12".to_owned()),
            Line::Bar1(1, 1 << 38),
            Line::Mig(0, true),
            Line::Links(1, 18),
            Line::NvLink(1, 0),
            Line::Confidential(true),
            Line::Verdict(Verdict::Passed),
            Line::Verdict(Verdict::NoPath),
            Line::Verdict(Verdict::Unknown("cuInit answered something".to_owned())),
        ];
        for line in lines {
            assert_eq!(Line::parse(&line.write()), Some(line));
        }
    }

    #[test]
    fn write_keeps_to_one_line() {
        let line = Line::Verdict(Verdict::Unknown("one\ntwo".to_owned())).write();
        assert_eq!(line, "verdict unknown one two");
    }

    #[test]
    fn parse_anything_else_is_none() {
        for line in [
            "",
            "pair 1",
            "pair x copies right",
            "done",
            "copies",
            "copies fine",
            "verdict",
            "verdict maybe",
            "direct 1",
            "at-once x",
            "partner x",
            "Xid 31: x",
        ] {
            assert_eq!(Line::parse(line), None, "{line}");
        }
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
