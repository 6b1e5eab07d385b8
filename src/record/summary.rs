//! The table of pairs and functions that is written when the program ends. It asks no GPU.

use std::fmt::{self, Display, Formatter};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use p2pshim_host::text::Bytes;
use p2pshim_trace::REMOTE;

use crate::api::Function;
use crate::model::counters::{self, DEVICES, Sum};
use crate::model::{Rule, process};
use crate::os::{self, Descriptor, alloc};

/// Has the table written to standard error when the program ends by returning from `main` or by `exit`, or not after all.
pub(crate) fn write_at_exit(is_wanted: bool) {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    IS_WANTED.store(is_wanted, Relaxed);
    if is_wanted && !REGISTERED.swap(true, Relaxed) {
        os::at_exit(write);
    }
}

static IS_WANTED: AtomicBool = AtomicBool::new(false);

extern "C" fn write() {
    // Forked children end in the same way.
    if !IS_WANTED.load(Relaxed) || !process::is_seen() {
        return;
    }
    // With signals held back, of which the writing may raise some.
    os::undisturbed(|| {
        let summary = Summary::so_far();
        if let Some(output) = Descriptor::stderr()
            && !summary.is_empty()
        {
            output.write_line(summary.to_string().as_bytes());
        }
    });
}

struct Summary {
    /// Source, destination, and what went directly and through the host.
    pairs: Vec<(u8, u8, Sum, Sum)>,
    /// Functions, how often they were called, and how often they failed.
    functions: Vec<(Function, u64, u64)>,
    findings: Vec<(Rule, u64)>,
}

impl Summary {
    fn so_far() -> Self {
        let ends = || (0..DEVICES as u8).chain([REMOTE]);
        let pairs = ends().flat_map(|src| ends().map(move |dst| (src, dst)));
        let sums = |(src, dst)| counters::sums([src, dst]).map(|sums| (src, dst, sums.direct, sums.staged));
        let calls = |&function: &Function| {
            let [calls, failures] = counters::calls(function);
            (function, calls, failures)
        };
        Self {
            pairs: pairs.filter_map(sums).filter(|(_, _, direct, staged)| direct.copies + staged.copies > 0).collect(),
            functions: Function::ALL.iter().map(calls).filter(|&(_, calls, _)| calls > 0).collect(),
            findings: Rule::ALL
                .iter()
                .map(|&rule| (rule, counters::findings(rule)))
                .filter(|&(_, times)| times > 0)
                .collect(),
        }
    }

    fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }
}

impl Display for Summary {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        writeln!(out, "p2pshim summary of process {}", os::process_id())?;
        if !self.pairs.is_empty() {
            let [copies, bytes] = ["copies", "bytes"];
            writeln!(out, "  {:>9}  {copies:>12} {bytes:>10} direct  {copies:>12} {bytes:>10} staged", "pair")?;
        }
        for (src, dst, direct, staged) in &self.pairs {
            writeln!(
                out,
                "  {:>9}  {:>12} {:>17}  {:>12} {:>17}",
                format!("{} > {}", Endpoint(*src), Endpoint(*dst)),
                direct.copies,
                Bytes(direct.bytes).to_string(),
                staged.copies,
                Bytes(staged.bytes).to_string(),
            )?;
        }
        writeln!(out, "  {:<34} {:>12} {:>8}", "function", "calls", "errors")?;
        for (function, calls, failures) in &self.functions {
            writeln!(out, "  {:<34} {calls:>12} {failures:>8}", function.name())?;
        }
        if alloc::has_reserve_served() {
            writeln!(out, "  memory ran out: calls after that were only forwarded and counted")?;
        }
        for (rule, times) in &self.findings {
            writeln!(out, "  {:<34} {times:>12} times found, {}", rule.id(), rule.text().severity.name())?;
        }
        Ok(())
    }
}

/// A device by its ordinal, or what stands for it.
pub(super) struct Endpoint(pub(super) u8);

impl Display for Endpoint {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        if self.0 >= REMOTE { out.write_str("another process") } else { self.0.fmt(out) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_lists_pairs_functions_and_findings() {
        let summary = Summary {
            pairs: vec![(0, 1, Sum { copies: 3, bytes: 4096 }, Sum { copies: 1, bytes: 5 })],
            functions: vec![(Function::cuMemcpyPeer, 4, 1)],
            findings: vec![(Rule::EnableTwice, 2)],
        };
        let text = summary.to_string();
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "       pair        copies      bytes direct        copies      bytes staged",
                "      0 > 1             3            4.1 kB             1               5 B",
                "  function                                  calls   errors",
                "  cuMemcpyPeer                                  4        1",
                "  P2P-enable-twice                              2 times found, note",
            ]
        );
    }
}
