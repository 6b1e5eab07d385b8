//! Makes the rules of their data file, and hands the symbol versions to the linker.

use std::error::Error;
use std::fmt::Write;
use std::path::PathBuf;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    const RULES: &str = "src/model/rules.txt";
    let root = env::var("CARGO_MANIFEST_DIR")?;
    println!("cargo::rerun-if-changed=exports.map");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={root}/exports.map");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libp2pshim.so.0");
    // Pointers into the library are handed to the program: it must never be unloaded.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed={RULES}");
    let out = PathBuf::from(env::var("OUT_DIR")?).join("rules.rs");
    fs::write(out, rules(&fs::read_to_string(RULES)?)?)?;
    Ok(())
}

/// The enum of all rules, and their texts.
fn rules(text: &str) -> Result<String, Box<dyn Error>> {
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
