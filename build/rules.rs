//! The rules, of `src/model/rules.txt`.

use std::error::Error;
use std::fmt::Write;

/// The enum of all rules, and their texts.
pub(crate) fn rules(text: &str) -> Result<String, Box<dyn Error>> {
    const PARTS: [&str; 5] = ["functions", "documentation", "hardware", "why", "remedy"];
    let (mut names, mut all, mut texts) = (String::new(), String::new(), String::new());
    let mut lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    while let Some(first) = lines.next() {
        let [name, id, severity, runtime, driver, hip] = first.split(' ').collect::<Vec<_>>()[..] else {
            return Err(format!(
                "rules.txt: a block begins with a name, an id, how bad it is, and three codes, not {first}"
            )
            .into());
        };
        let severity = match severity {
            "error" => "Error",
            "hazard" => "Hazard",
            "performance" => "Performance",
            "note" => "Note",
            _ => return Err(format!("rules.txt: {name} is {severity}").into()),
        };
        writeln!(names, "    {name},")?;
        write!(all, " Self::{name},")?;
        write!(texts, "            Self::{name} => &Text {{ id: \"{id}\\0\", severity: Severity::{severity}")?;
        write!(texts, ", codes: [{runtime}, {driver}, {hip}]")?;
        for part in PARTS {
            let line = lines.next().unwrap_or_default();
            let said = line.trim_start().strip_prefix(part).and_then(|line| line.strip_prefix(':'));
            let said = said.ok_or_else(|| format!("rules.txt: {name}: {part} is expected, not {line}"))?;
            // The library says no more of it.
            let condition = if matches!(part, "why" | "remedy") { "" } else { "#[cfg(test)] " };
            write!(texts, ", {condition}{part}: {:?}", said.trim())?;
        }
        texts.push_str(" },\n");
    }
    Ok(format!(
        "/// A rule.\n#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]\n#[repr(u8)]\npub(crate) enum Rule {{\n{names}}}\n\n\
         impl Rule {{\n    /// All rules, in the order of the documents.\n    pub(crate) const ALL: &[Self] = &[{all}];\n\n    \
         /// The texts of the rule.\n    pub(crate) const fn text(self) -> &'static Text {{\n        \
         match self {{\n{texts}        }}\n    }}\n}}\n"
    ))
}
