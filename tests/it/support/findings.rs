//! The shim's findings in a program's calls, against tests/golden/findings.tsv.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::once::alone;

/// One of the rules, said of a call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    pub(crate) function: String,
    pub(crate) rule: String,
    pub(crate) severity: String,
    /// All that was said.
    pub(crate) text: String,
}

impl Finding {
    /// `P2P-… (error): cudaMemcpyPeer at …` behind the level; anything may stand before it.
    pub(crate) fn parse(line: &str) -> Option<Finding> {
        let (_, text) = line.split_once(" warn: ").or_else(|| line.split_once(" info: "))?;
        let (rule, rest) = text.split_once(" (").filter(|(rule, _)| rule.starts_with("P2P-") && !rule.contains(' '))?;
        let (severity, rest) = rest.split_once("): ")?;
        let function = rest.split([' ', ':']).next()?;
        let [rule, severity, function] = [rule, severity, function].map(str::to_owned);
        Some(Finding { function, rule, severity, text: text.to_owned() })
    }
}

const GOLDEN: &str = "tests/golden/findings.tsv";
const HEAD: &str = "\
# Findings of `P2PSHIM_VALIDATE=warn` in the test programs on simulated GPUs: by which functions, which rules. A program that is
# not listed has no finding; -shared: with each shared runtime. Written anew by `P2PSHIM_UPDATE=1 make test`; read what has changed.
program\tfindings
";

/// A run's name in the golden file: programs with each of the shared runtimes have one row.
fn of_any_shared(run: &str) -> String {
    let word = |word: &str| match word.rsplit_once('-') {
        Some((name, "11" | "12" | "13")) => format!("{name}-shared"),
        _ => word.to_owned(),
    };
    run.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Compares what was found in a run with the golden file, or writes it there.
pub(crate) fn check(run: &str, found: &[Finding]) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(GOLDEN);
    let names: BTreeSet<_> = found.iter().map(|one| format!("{} {}", one.function, one.rule)).collect();
    let names = names.into_iter().collect::<Vec<_>>().join("; ");
    let is_written = std::env::var_os("P2PSHIM_UPDATE").is_some();
    let _alone = is_written.then(|| alone("findings"));
    let golden = fs::read_to_string(&file).unwrap_or_default();
    let rows = golden.lines().filter(|line| !line.starts_with('#')).skip(1);
    let mut rows: BTreeMap<_, _> = rows.map(|row| row.split_once('\t').unwrap()).collect();
    let row = of_any_shared(run);
    let expected = rows.get(&*row).copied().unwrap_or_default();
    if expected == names {
        return;
    }
    if is_written {
        rows.insert(&row, &names);
        rows.retain(|_, names| !names.is_empty());
        let rows: String = rows.into_iter().map(|(run, names)| format!("{run}\t{names}\n")).collect();
        fs::write(&file, format!("{HEAD}{rows}")).unwrap();
        return;
    }
    let texts: Vec<_> = found.iter().map(|one| &one.text).collect();
    panic!("findings of `{run}`, expected:\n    {expected}\nand found:\n    {names}\n{texts:#?}");
}
