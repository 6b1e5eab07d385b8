//! Races of an earlier run that `P2PSHIM_ORDER=enforce` ends: the command writes them into the folder of that run's traces, and the shim reads them.

use std::collections::BTreeSet;
use std::path::Path;

/// The file's name in the folder.
pub const FILE: &str = "races.txt";

/// Pairs of places, the one that was queued first before the other.
pub type Pairs = BTreeSet<[String; 2]>;

/// The name of a place in the code, which is the same in each run: the file's name, and where in the file the call returns to.
pub fn place(file: &str, offset: u64) -> String {
    let name = Path::new(file).file_name().unwrap_or_default().to_string_lossy();
    format!("{name}+{offset:#x}")
}

/// The text of the file.
pub fn text(pairs: &Pairs) -> String {
    let is_plain = |pair: &&[String; 2]| pair.iter().all(|place| !place.contains(['\t', '\n']));
    pairs.iter().filter(is_plain).map(|[first, second]| format!("{first}\t{second}\n")).collect()
}

/// The pairs of a text. Lines that are none are left out.
pub fn parse(text: &str) -> Pairs {
    let pair = |line: &str| line.split_once('\t').map(|(first, second)| [first.to_owned(), second.to_owned()]);
    text.lines().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_comes_back() {
        let pair = |one: &str, other: &str| [one.to_owned(), other.to_owned()];
        let pairs = Pairs::from([pair("app+0x12", "lib a.so+0x3"), pair("app+0x12", "app+0x4")]);
        assert_eq!(parse(&text(&pairs)), pairs);
        assert_eq!(parse(&text(&Pairs::from([pair("a\tb+0x1", "c")]))), Pairs::new());
        assert_eq!(place("/usr/bin/app", 0x12), "app+0x12");
    }
}
