//! What a finding means.

use std::error::Error;
use std::fmt::{self, Display, Formatter};
use std::io::{self, Write};

use crate::shim::Rule;

/// There is no rule with such an id.
#[derive(Debug)]
struct UnknownId {
    id: String,
    nearest: Option<String>,
}

impl Error for UnknownId {}

impl Display for UnknownId {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "no finding has the id {}; ", self.id)?;
        if let Some(nearest) = &self.nearest {
            write!(out, "did you mean {nearest}? ")?;
        }
        write!(out, "`p2pshim explain` lists all")
    }
}

/// One line a rule.
pub(crate) fn print_list(out: &mut impl Write, rules: &[Rule]) -> io::Result<()> {
    let width = rules.iter().map(|rule| rule.id.len()).max().unwrap_or_default();
    for Rule { id, severity, functions, .. } in rules {
        writeln!(out, "{id:width$}  {severity:11}  {functions}")?;
    }
    Ok(())
}

/// Explains one rule, whatever the case of its id.
pub(crate) fn print(out: &mut impl Write, rules: &[Rule], id: &str) -> Result<(), Box<dyn Error>> {
    let Some(rule) = rules.iter().find(|rule| rule.id.eq_ignore_ascii_case(id)) else {
        /// In thousandths; below, the nearest is a guess that only misleads.
        const ALIKE: usize = 300;
        let rated = rules.iter().map(|rule| (likeness(&rule.id.to_ascii_lowercase(), &id.to_ascii_lowercase()), rule));
        let nearest = rated.filter(|(likeness, _)| *likeness >= ALIKE).max_by_key(|(likeness, _)| *likeness);
        let nearest = nearest.map(|(_, rule)| rule.id.clone());
        return Err(Box::new(UnknownId { id: id.to_owned(), nearest }));
    };
    writeln!(out, "{} ({})", rule.id, rule.severity)?;
    for (title, text) in sections(rule) {
        writeln!(out, "\n{title}:")?;
        for line in wrapped(&text) {
            writeln!(out, "    {line}")?;
        }
    }
    Ok(())
}

/// docs/MESSAGES.md.
pub(crate) fn print_markdown(out: &mut impl Write, rules: &[Rule]) -> io::Result<()> {
    writeln!(out, "# Findings\n")?;
    writeln!(out, "Generated from src/model/rules.rs by `make header`; do not edit.\n")?;
    writeln!(
        out,
        "Findings of `P2PSHIM_VALIDATE=warn` (the default) and `strict` about peer calls. `p2pshim explain ID` prints one of \
         them. *error*: the call fails, or would if the library checked. *hazard*: the call succeeds, but data may be wrong. \
         *performance*: the call takes longer than necessary. *note*: harmless by itself; logged from `P2PSHIM_LOG=info` on. \
         Ids are never renamed and never reused. The documentation is that of CUDA 13.0. What the hardware does was measured \
         (docs/CONFORMANCE.md).\n"
    )?;
    writeln!(out, "| id | severity | functions |\n| --- | --- | --- |")?;
    for Rule { id, severity, functions, .. } in rules {
        writeln!(out, "| [{id}](#{}) | {severity} | {functions} |", id.to_ascii_lowercase())?;
    }
    for rule in rules {
        writeln!(out, "\n## {}\n\n*{}*", rule.id, rule.severity)?;
        for (title, text) in sections(rule) {
            writeln!(out, "\n**{title}.** {text}")?;
        }
    }
    Ok(())
}

fn sections(rule: &Rule) -> Vec<(&'static str, String)> {
    let code = match &rule.codes {
        [Some(runtime), Some(driver)] => format!("runtime {runtime}, driver {driver}"),
        [Some(runtime), None] => format!("runtime {runtime}"),
        [None, Some(driver)] => format!("driver {driver}"),
        [None, None] => String::new(),
    };
    let all = [
        ("Functions", &rule.functions),
        ("Why it matters", &rule.why),
        ("What to do", &rule.remedy),
        ("Documentation", &rule.documentation),
        ("Documented code", &code),
        ("Hardware", &rule.hardware),
    ];
    all.into_iter().filter(|(_, text)| !text.is_empty()).map(|(title, text)| (title, text.clone())).collect()
}

/// Lines that fit a terminal.
pub(crate) fn wrapped(text: &str) -> Vec<String> {
    const WIDTH: usize = 92;
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// How many pairs of neighbouring letters two words share.
fn likeness(one: &str, other: &str) -> usize {
    let pairs = |word: &str| word.as_bytes().windows(2).map(<[u8]>::to_vec).collect::<Vec<_>>();
    let mut left = pairs(other);
    let shared = pairs(one).into_iter().filter(|pair| {
        let found = left.iter().position(|other| other == pair);
        found.map(|position| left.swap_remove(position)).is_some()
    });
    let count = shared.count();
    (2 * count * 1000).checked_div(one.len() + other.len()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(id: &str) -> Rule {
        Rule {
            id: id.to_owned(),
            severity: "note".to_owned(),
            functions: "cudaMemcpyPeer".to_owned(),
            documentation: "It says so.".to_owned(),
            hardware: String::new(),
            why: "word ".repeat(40).trim().to_owned(),
            remedy: "Do it.".to_owned(),
            codes: [Some("704 (cudaErrorPeerAccessAlreadyEnabled)".to_owned()), None],
        }
    }

    fn printed(id: &str) -> Result<String, String> {
        let mut out = Vec::new();
        let rules = [rule("P2P-enable-twice"), rule("P2P-copy-overlap")];
        print(&mut out, &rules, id).map_err(|error| error.to_string())?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn print_tells_all_there_is_in_lines_that_fit() {
        let text = printed("p2p-ENABLE-twice").unwrap();
        assert!(text.starts_with("P2P-enable-twice (note)\n"), "{text}");
        assert!(text.contains("\nDocumented code:\n    runtime 704 (cudaErrorPeerAccessAlreadyEnabled)\n"), "{text}");
        assert!(!text.contains("Hardware"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 96), "{text}");
    }

    #[test]
    fn print_unknown_id_names_the_nearest() {
        let error = printed("P2P-enable-again").unwrap_err();
        assert!(error.contains("P2P-enable-again") && error.contains("did you mean P2P-enable-twice?"), "{error}");
    }

    #[test]
    fn print_id_like_no_other_names_none() {
        assert_eq!(printed("nonsense").unwrap_err(), "no finding has the id nonsense; `p2pshim explain` lists all");
    }
}
