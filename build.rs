//! Makes the rules of their data file, and hands the symbol versions to the linker.

use std::{env, fmt::Write, fs, path::Path};

fn main() {
    let root = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo::rerun-if-changed=exports.map");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={root}/exports.map");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libp2pshim.so.0");
    // Pointers into the library are handed to the program: it must never be unloaded.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    const RULES: &str = "src/model/rules.txt";
    println!("cargo::rerun-if-changed={RULES}");
    let text = fs::read_to_string(RULES).expect(RULES);
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    fs::write(Path::new(&out).join("rules.rs"), rules(&text)).expect("rules.rs is written");
}

/// The enum of all rules, and their texts.
fn rules(text: &str) -> String {
    const PARTS: [&str; 5] = ["functions", "documentation", "hardware", "why", "remedy"];
    let (mut names, mut texts) = (String::new(), String::new());
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    for block in lines.chunks(1 + PARTS.len()) {
        let [name, id, severity, runtime, driver, hip] = block[0].split(' ').collect::<Vec<_>>()[..] else {
            panic!("rules.txt: a block begins with a name, an id, how bad it is, and three codes: {}", block[0]);
        };
        let severity: String = severity[..1].to_uppercase() + &severity[1..];
        writeln!(names, "    {name},").expect("a string takes all");
        write!(texts, "            Self::{name} => &Text {{ id: \"{id}\\0\", severity: Severity::{severity}, codes: [{runtime}, {driver}, {hip}]")
            .expect("a string takes all");
        assert_eq!(block.len(), 1 + PARTS.len(), "rules.txt: {name} has not all of {PARTS:?}");
        for (part, line) in PARTS.iter().zip(&block[1..]) {
            let said = line.trim_start().strip_prefix(part).and_then(|line| line.strip_prefix(':'));
            let said = said.unwrap_or_else(|| panic!("rules.txt: {name}: {part} is expected, not {line}")).trim();
            write!(texts, ", {part}: {:?}", format!("{said}\0")).expect("a string takes all");
        }
        texts.push_str(" },\n");
    }
    let all: String = names.lines().map(|name| format!(" Self::{}", name.trim())).collect();
    format!(
        "/// A rule.\n#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]\n#[repr(u8)]\npub(crate) enum Rule {{\n{names}}}\n\nimpl Rule {{\n    \
         /// All rules, in the order of the documents.\n    pub(crate) const ALL: &[Self] = &[{all}];\n\n    /// The texts of the rule.\n    \
         pub(crate) const fn text(self) -> &'static Text {{\n        match self {{\n{texts}        }}\n    }}\n}}\n"
    )
}
