//! Kernels that the environment declares (`P2PSIM_KERNELS`): which of their parameters point to what they read and write, and how much.

use std::time::Duration;

use crate::os;

/// The most parameters of a declared kernel that are read.
pub const PARAMETERS: usize = 16;

/// A kernel as it was declared.
#[derive(Debug, PartialEq, Eq)]
pub struct Declared {
    name: String,
    accesses: Vec<Access>,
    /// How long it takes besides.
    pub(crate) time: Duration,
}

/// Accesses to what a parameter points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Access {
    parameter: usize,
    writes: bool,
    /// Bytes, or bytes for each of as many things as another parameter says, a number of 4 bytes or of 8.
    bytes: u64,
    times: Option<(usize, u32)>,
}

/// Accesses of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) writes: bool,
    /// Whether they are lost.
    pub(crate) is_lost: bool,
}

impl Declared {
    /// Reads a list such as `saxpy:r1=4*i2:r0=4*i2:w0=4*i2;spin:200ms`; returns the items that mean nothing.
    pub(crate) fn parse(text: &str) -> (Vec<Declared>, Vec<String>) {
        let items = text.split(';').map(str::trim).filter(|item| !item.is_empty());
        let (known, bad): (Vec<_>, Vec<_>) = items.map(|item| one(item).ok_or(item)).partition(Result::is_ok);
        let bad = bad.into_iter().filter_map(Result::err).map(str::to_owned);
        (known.into_iter().filter_map(Result::ok).collect(), bad.collect())
    }

    /// Whether a kernel of a program is meant, by its name or, of a function that is in no namespace, by its name in the source.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        let plain = name.strip_prefix("_Z").and_then(|rest| {
            let length: String = rest.chars().take_while(char::is_ascii_digit).collect();
            rest.get(length.len()..)?.get(..length.parse().ok()?)
        });
        self.name == name || plain == Some(&self.name)
    }

    /// How many parameters have to be read for a launch.
    pub(crate) fn parameters(&self) -> usize {
        let last = |access: &Access| access.parameter.max(access.times.map_or(0, |(parameter, _)| parameter)) + 1;
        self.accesses.iter().map(last).max().unwrap_or_default()
    }

    /// The accesses of a launch with these parameters.
    pub(crate) fn spans(&self, parameters: [u64; PARAMETERS]) -> impl Iterator<Item = Span> {
        let value = move |parameter: usize| parameters.get(parameter).copied().unwrap_or_default();
        self.accesses.iter().map(move |access| {
            let times = access.times.map_or(1, |(parameter, bits)| value(parameter) & (u64::MAX >> (64 - bits)));
            let bytes = access.bytes.saturating_mul(times);
            Span { address: value(access.parameter), bytes, writes: access.writes, is_lost: false }
        })
    }
}

fn one(item: &str) -> Option<Declared> {
    let mut words = item.split(|c: char| c == ':' || c.is_whitespace()).filter(|word| !word.is_empty());
    let mut declared = Declared { name: words.next()?.to_owned(), accesses: Vec::new(), time: Duration::ZERO };
    for word in words {
        if let Some(milliseconds) = word.strip_suffix("ms") {
            declared.time = Duration::from_millis(milliseconds.parse().ok()?);
            continue;
        }
        let (place, amount) = word.split_once('=')?;
        let (bytes, times) = match amount.split_once('*') {
            None => (amount, None),
            Some((bytes, times)) => {
                let (kind, parameter) = times.split_at_checked(1)?;
                let bits = *["i", "l"].iter().position(|known| *known == kind).and_then(|at| [32, 64].get(at))?;
                (bytes, Some((index(parameter)?, bits)))
            }
        };
        let (way, parameter) = place.split_at_checked(1)?;
        let writes = *["r", "w"].iter().position(|known| *known == way).and_then(|at| [false, true].get(at))?;
        declared.accesses.push(Access { parameter: index(parameter)?, writes, bytes: bytes.parse().ok()?, times });
    }
    Some(declared)
}

fn index(text: &str) -> Option<usize> {
    text.parse().ok().filter(|index| *index < PARAMETERS)
}

/// Does what a declared kernel does: each byte that it writes is one more than the sum of those that it reads at this place, and what it reads
/// begins anew where it is shorter. Reads that are lost find all bits set.
pub(crate) fn run(spans: &[Span]) {
    let longest = spans.iter().filter(|span| span.writes).map(|span| span.bytes as usize).max().unwrap_or_default();
    let mut bytes = vec![1u8; longest];
    for span in spans.iter().filter(|span| !span.writes && span.bytes > 0) {
        let mut read = vec![u8::MAX; (span.bytes as usize).min(longest)];
        if !span.is_lost {
            os::copy(read.as_mut_ptr() as u64, span.address, read.len() as u64);
        }
        bytes.iter_mut().zip(read.iter().cycle()).for_each(|(byte, read)| *byte = byte.wrapping_add(*read));
    }
    for span in spans.iter().filter(|span| span.writes && !span.is_lost) {
        os::copy(span.address, bytes.as_ptr() as u64, span.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_names_accesses_and_times() {
        let (known, bad) = Declared::parse("saxpy:r1=4*i2:w0=4*i2; ;spin 200ms;_Z1fv w3=8*l15");
        assert!(bad.is_empty());
        let names: Vec<_> = known.iter().map(|one| (&*one.name, one.parameters(), one.time.as_millis())).collect();
        assert_eq!(names, [("saxpy", 3, 0), ("spin", 0, 200), ("_Z1fv", 16, 0)]);
        let mut parameters = [0; PARAMETERS];
        parameters[..3].copy_from_slice(&[100, 200, 7 << 32 | 5]);
        let span = |address, writes| Span { address, bytes: 20, writes, is_lost: false };
        assert_eq!(known[0].spans(parameters).collect::<Vec<_>>(), [span(200, false), span(100, true)]);
    }

    #[test]
    fn parse_what_means_nothing_is_told() {
        let text = "a x0=4; b r16=4; c r0=4*k1; d r0; e w0=many; f soon";
        let (known, bad) = Declared::parse(text);
        assert_eq!((known.len(), bad.join("; ").as_str()), (0, text));
    }

    #[test]
    fn is_named_by_symbol_and_in_the_source() {
        let (known, _) = Declared::parse("saxpy");
        let named =
            ["saxpy", "_Z5saxpyPfPKfi", "_Z6saxpy2v", "_Z5saxp", "_Z", "other"].map(|name| known[0].is_named(name));
        assert_eq!(named, [true, true, false, false, false, false]);
    }

    #[test]
    fn run_adds_what_it_reads_and_one() {
        let (mut to, from) = ([0u8; 4], [10u8, 20]);
        let span =
            |bytes: *const u8, count, writes| Span { address: bytes as u64, bytes: count, writes, is_lost: false };
        let mut spans = [span(from.as_ptr(), 2, false), span(to.as_ptr(), 4, false), span(to.as_mut_ptr(), 4, true)];
        run(&spans);
        assert_eq!(to, [11, 21, 11, 21]);
        run(&spans);
        assert_eq!(to, [22, 42, 22, 42]);
        spans[0].is_lost = true;
        run(&spans);
        assert_eq!(to, [22, 42, 22, 42]);
        spans[2].is_lost = true;
        run(&spans);
        assert_eq!(to, [22, 42, 22, 42]);
    }
}
