//! Races that are known and left out: those of the file of `--suppress`, and of libraries that order their kernels by memory.
//!
//! A line of the file has a kind, a pattern and a reason. A race is left out if either of its calls fits.

use std::collections::BTreeMap;
use std::fs;

use super::model::{Race, RaceSide, Suppressed};

/// Lines that hold for every program.
const BUILT_IN: &str = "
kernel *ncclDevKernel*  NCCL orders its kernels by flags in memory
kernel *ncclKernel*     NCCL orders its kernels by flags in memory
kernel *nvshmem*        NVSHMEM orders its kernels by flags in memory
";

const EXAMPLE: &str = "`place train.py:88 the next step writes the buffer before anything reads it`";

/// The part of a call that a pattern is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Place,
    Library,
    Kernel,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    kind: Kind,
    /// The kind and the pattern, as they are written.
    text: String,
    pattern: String,
    reason: String,
}

/// Races that are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Suppressions(Vec<Line>);

impl Suppressions {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or a line is wrong; the text says which, and what a line is like.
    pub(crate) fn read(path: &str) -> Result<Self, String> {
        let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        lines
            .map(|(number, text)| line(text).map_err(|why| format!("line {number}: {why}")))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Takes the races that fit out of a list. Returns for each line that has fitted how many these are.
    pub(super) fn apply(&self, races: &mut Vec<Race>) -> Vec<Suppressed> {
        let built_in = Self::parse(BUILT_IN).unwrap_or_default();
        let mut fitted: BTreeMap<usize, u64> = BTreeMap::new();
        let lines: Vec<&Line> = self.0.iter().chain(&built_in.0).collect();
        races.retain(|race| {
            let fits = |line: &&Line| [&race.first, &race.second].into_iter().any(|side| line.fits(side));
            let found = lines.iter().position(fits);
            found.into_iter().for_each(|index| *fitted.entry(index).or_default() += 1);
            found.is_none()
        });
        let named = fitted.into_iter().filter_map(|(index, pairs)| Some((lines.get(index)?, pairs)));
        named.map(|(line, pairs)| Suppressed { by: line.text.clone(), reason: line.reason.clone(), pairs }).collect()
    }
}

/// # Errors
/// The fault of the line.
fn line(text: &str) -> Result<Line, String> {
    let mut words = text.split_whitespace();
    let (name, pattern) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let kind = match name {
        "place" => Kind::Place,
        "library" => Kind::Library,
        "kernel" => Kind::Kernel,
        other => return Err(format!("`{other}` is none of place, library, kernel; write a line such as {EXAMPLE}")),
    };
    let reason = words.collect::<Vec<_>>().join(" ");
    if pattern.replace('*', "").is_empty() {
        return Err(format!("`{name}` needs a pattern that does not fit everything; write a line such as {EXAMPLE}"));
    }
    if reason.is_empty() {
        return Err(format!("it has no reason; write one behind the pattern, as in {EXAMPLE}"));
    }
    Ok(Line { kind, text: format!("{name} {pattern}"), pattern: pattern.to_owned(), reason })
}

impl Line {
    fn fits(&self, side: &RaceSide) -> bool {
        let from = &side.from;
        let places = || std::iter::once(&from.site).chain(&from.caller);
        match self.kind {
            Kind::Kernel => side.function.split_once(" of ").is_some_and(|(_, kernel)| fits(&self.pattern, kernel)),
            Kind::Place => {
                places().any(|place| fits(&self.pattern, place))
                    || from.python.as_ref().is_some_and(|line| fits(&self.pattern, &line.in_full()))
                    || fits(&self.pattern, &from.in_short())
            }
            Kind::Library => places()
                .flat_map(|place| place.split(" < "))
                .any(|place| place.rsplit_once("+0x").is_some_and(|(library, _)| fits(&self.pattern, library))),
        }
    }
}

/// Whether a text has a part that a pattern fits, which begins and ends where a word does. `*` stands for any text.
fn fits(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let begins =
        |at: usize| at.checked_sub(1).and_then(|before| text.get(before)).is_none_or(|byte| !is_of_word(*byte));
    (0..=text.len()).filter(|&at| begins(at)).any(|at| fits_here(pattern, text.get(at..).unwrap_or_default()))
}

fn fits_here(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.first().is_none_or(|byte| !is_of_word(*byte)),
        Some((b'*', rest)) => (0..=text.len()).any(|at| fits_here(rest, text.get(at..).unwrap_or_default())),
        Some((byte, rest)) => text.split_first().is_some_and(|(first, text)| first == byte && fits_here(rest, text)),
    }
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::Origin;

    fn side(function: &str, site: &str, caller: Option<&str>) -> RaceSide {
        let from = Origin { site: site.to_owned(), caller: caller.map(str::to_owned), python: None };
        RaceSide { function: function.to_owned(), verb: String::new(), stream: String::new(), from }
    }

    fn race(first: RaceSide, second: RaceSide) -> Race {
        Race { file: 0, time: 0, level: "race".to_owned(), first, second, bytes: 1, gpu: None }
    }

    #[test]
    fn fits_whole_words_only() {
        for (pattern, text, expected) in [
            ("train.py:88", "train.py:88 in step", true),
            ("train.py:88", "train.py:880 in step", false),
            ("train.py:88", "strain.py:88", false),
            ("/a/train.py:88", "/a/train.py:88 in step", true),
            ("*ncclDevKernel*", "_Z40ncclDevKernel_AllReduce", true),
            ("libnccl", "libnccl.so.2.27", true),
            ("libnccl", "libnccl_net.so", false),
            ("a*c", "x abbc", true),
            ("a*c", "x abbcd", false),
        ] {
            assert_eq!(fits(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn apply_counts_by_line_and_leaves_the_rest() {
        let own = Suppressions::parse("# ours\n\nlibrary libours  by design\nplace train.py:8 twice\n").unwrap();
        let copy = || side("cudaMemcpyPeerAsync", "app+0x10 (main, train.py:9)", None);
        let mut races = vec![
            race(copy(), side("cuLaunchKernel of _Z15ncclDevKernel_AvP", "libnccl.so.2+0x1", None)),
            race(side("cuMemcpyAsync", "/lib/libours.so.1+0x20", None), copy()),
            race(side("cuMemcpyAsync", "libcudart.so+0x20", Some("app+0x1 < libours.so+0x20")), copy()),
            race(copy(), copy()),
            race(copy(), side("cuMemcpyAsync", "app+0x30 (main, train.py:8)", None)),
        ];
        let found = own.apply(&mut races);
        let told: Vec<_> = found.iter().map(|it| (it.by.as_str(), it.reason.as_str(), it.pairs)).collect();
        let nccl = ("kernel *ncclDevKernel*", "NCCL orders its kernels by flags in memory", 1);
        assert_eq!(told, [("library libours", "by design", 2), ("place train.py:8", "twice", 1), nccl]);
        assert_eq!(races.len(), 1);
    }

    #[test]
    fn parse_wrong_lines_are_named_with_what_is_missing() {
        for (text, expected) in [
            ("kernel a why\nplaces b why", "line 2: `places` is none of place, library, kernel; write"),
            ("\nkernel", "line 2: `kernel` needs a pattern"),
            ("kernel * all", "line 1: `kernel` needs a pattern"),
            ("library libx", "line 1: it has no reason; write one behind the pattern"),
        ] {
            let error = Suppressions::parse(text).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
        assert_eq!(Suppressions::parse(BUILT_IN).unwrap().0.len(), 3);
    }
}
