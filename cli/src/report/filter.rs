//! Which calls are wanted.

use std::str::FromStr;

use clap::Args;
use p2pshim_trace::State;

use super::merge::Call;
use super::model::Report;

/// Which calls `--calls` lists.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Which calls --calls lists")]
pub(crate) struct Filter {
    /// Only copies between these GPUs, by the numbers of the report: 0>1 or, both ways, 0-1
    #[arg(long, value_name = "PAIR", requires = "calls")]
    pair: Option<PairFilter>,
    /// Only functions whose name contains NAME, or matches it as a pattern with * and ?
    #[arg(long, value_name = "NAME", requires = "calls")]
    api: Option<String>,
    /// Only calls that begin at least this many seconds after the start of the report
    #[arg(long, value_name = "SECONDS", requires = "calls")]
    since: Option<f64>,
    /// Only calls that begin at most this many seconds after the start of the report
    #[arg(long, value_name = "SECONDS", requires = "calls")]
    until: Option<f64>,
    /// Only calls with this result: ok, error, unfinished, a code such as 217, or its name
    #[arg(long, value_name = "RESULT", requires = "calls")]
    result: Option<String>,
    /// Only threads with this number or name
    #[arg(long, value_name = "THREAD", requires = "calls")]
    thread: Option<String>,
    /// Only copies whose path contains PATH, such as direct, staged or "never enabled"
    #[arg(long, value_name = "PATH", requires = "calls")]
    path: Option<String>,
    /// List at most N calls
    #[arg(long, value_name = "N", requires = "calls")]
    pub(super) limit: Option<u64>,
}

/// A pair of GPUs as the user names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PairFilter {
    src: u32,
    dst: u32,
    both_ways: bool,
}

impl FromStr for PairFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a pair of GPUs such as 0>1 or 0-1 (quote the >)");
        let both_ways = !text.contains('>');
        let (src, dst) = text.split_once(if both_ways { '-' } else { '>' }).ok_or_else(wrong)?;
        let number = |text: &str| text.trim().parse().map_err(|_| wrong());
        Ok(Self { src: number(src)?, dst: number(dst)?, both_ways })
    }
}

/// What a filter has to know of a call beside its record.
pub(super) struct Named<'a> {
    pub(super) function: &'a str,
    /// The code's name.
    pub(super) result: Option<&'a str>,
    pub(super) path: Option<&'a str>,
}

impl Filter {
    /// Whether a call is wanted that began so many nanoseconds after the start of the report.
    pub(super) fn wants(&self, report: &Report, call: &Call, after: u64, named: &Named) -> bool {
        let record = &call.record;
        let seconds = || after as f64 / 1e9;
        self.api.as_deref().is_none_or(|api| matches(api, named.function))
            && self.result.as_deref().is_none_or(|result| match result {
                "unfinished" => record.state == State::Begun,
                _ if record.state == State::Begun => false,
                "ok" => record.result == 0,
                "error" => record.result != 0,
                code => {
                    code.parse() == Ok(record.result)
                        || named.result.is_some_and(|name| name.eq_ignore_ascii_case(code))
                }
            })
            && self.path.as_deref().is_none_or(|path| named.path.is_some_and(|name| name.contains(path)))
            && self.since.is_none_or(|since| seconds() >= since)
            && self.until.is_none_or(|until| seconds() <= until)
            && self.thread.as_deref().is_none_or(|thread| is_thread(report, call, thread))
            && self.pair.is_none_or(|pair| pair.wants(report, call))
    }

    /// Whether calls that begin later than this one may be wanted.
    pub(super) fn is_over(&self, after: u64) -> bool {
        self.until.is_some_and(|until| after as f64 / 1e9 > until)
    }
}

impl PairFilter {
    fn wants(self, report: &Report, call: &Call) -> bool {
        let number = |ordinal: Option<u8>| {
            let gpu = report.files.get(call.source.file)?.devices.get(&ordinal?)?;
            Some(report.gpus.get(*gpu)?.number)
        };
        let (Some(src), Some(dst)) = (number(call.record.src_device), number(call.record.dst_device)) else {
            return false;
        };
        (src, dst) == (self.src, self.dst) || self.both_ways && (dst, src) == (self.src, self.dst)
    }
}

fn is_thread(report: &Report, call: &Call, wanted: &str) -> bool {
    if wanted.parse() == Ok(call.thread) {
        return true;
    }
    let threads = report.files.get(call.source.file).map(|file| file.threads.as_slice()).unwrap_or_default();
    threads.iter().any(|thread| thread.id == call.thread && thread.name == wanted)
}

/// Whether a name has a part, or fits a pattern. Case does not matter.
fn matches(wanted: &str, name: &str) -> bool {
    let (wanted, name) = (wanted.to_ascii_lowercase(), name.to_ascii_lowercase());
    if wanted.contains(['*', '?']) { fits(wanted.as_bytes(), name.as_bytes()) } else { name.contains(&wanted) }
}

fn fits(mut pattern: &[u8], mut name: &[u8]) -> bool {
    // Where to go on if what followed the last star does not fit.
    let mut star: Option<(&[u8], &[u8])> = None;
    loop {
        match (pattern.split_first(), name.split_first()) {
            (Some((b'*', rest)), _) => {
                star = Some((rest, name));
                pattern = rest;
            }
            (Some((&letter, pattern_rest)), Some((&other, name_rest))) if letter == b'?' || letter == other => {
                (pattern, name) = (pattern_rest, name_rest);
            }
            (None, None) => return true,
            _ => {
                let Some((after, from)) = star else { return false };
                let Some((_, from)) = from.split_first() else { return false };
                star = Some((after, from));
                (pattern, name) = (after, from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_a_part_or_a_pattern() {
        let name = "cudaMemcpyPeerAsync";
        for yes in
            ["peer", "cudaMemcpyPeer", "cuda*", "*Async", "cuda*Peer*", "cuda??mcpyPeerAsync", "*", "**", "cu*y*c"]
        {
            assert!(matches(yes, name), "{yes}");
        }
        for no in ["peers", "cuda*Peer", "?", "Peer*", "cuda*x*", "cudaMemcpyPeerAsync?"] {
            assert!(!matches(no, name), "{no}");
        }
    }

    #[test]
    fn pair_one_way_and_both_ways() {
        assert_eq!("0>1".parse(), Ok(PairFilter { src: 0, dst: 1, both_ways: false }));
        assert_eq!("0-1".parse(), Ok(PairFilter { src: 0, dst: 1, both_ways: true }));
        assert_eq!("2>2".parse(), Ok(PairFilter { src: 2, dst: 2, both_ways: false }));
        for wrong in ["", "0", "0>", "a-b", "-1", "0>1>2"] {
            assert!(wrong.parse::<PairFilter>().is_err(), "{wrong}");
        }
    }
}
