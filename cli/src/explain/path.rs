//! The meaning of the words that log and report have for paths.

use std::io::{self, Write};

use p2pshim_trace::Path;

use super::Page;

/// The words and their meaning.
const WORDS: [(&str, &str); 13] = [
    (
        "direct",
        "The data goes from GPU to GPU, over NVLink or PCIe, without a buffer on the host. This is the fastest path.",
    ),
    (
        "staged",
        "The data goes through a buffer on the host. The driver copies it there and on, or p2pshim does in its place. That is slower than a \
         direct copy. `p2pshim doctor` tests whether data arrives.",
    ),
    (
        "broken",
        "Verification of the pair of GPUs failed: test data arrived wrong, or a copy hung, although CUDA reports success. Unless \
         P2PSHIM_BROKEN=warn is set, p2pshim keeps the program off the path and stages its copies.",
    ),
    (
        "blocked",
        "p2pshim keeps the pair of GPUs from direct copies, because it is broken, or denied by P2PSHIM_ACCESS=off or P2PSHIM_DENY.",
    ),
    (
        "hang",
        "A call or a copy does not end. While a program of `p2pshim run` hangs, `p2pshim hang` says which call each of its processes is in, \
         and where in the program; `p2pshim hang DIR` does so of the traces of one that has ended. If it does not hang with `--access off`, \
         the path between the GPUs hangs: `p2pshim doctor` tests that.",
    ),
    ("denied", "The user keeps the pair of GPUs from direct copies, by P2PSHIM_ACCESS=off or P2PSHIM_DENY."),
    (
        "by hand",
        "The program itself copies from one GPU to the host and from there to another, as x.cpu().to(\"cuda:1\") does.",
    ),
    ("captured", "The copy became part of a CUDA graph. The call moved no data; each launch of the graph does."),
    ("mapped on first use", "HIP maps the memory for its copies, whether the program enabled peer access or not."),
    (
        "verified",
        "p2pshim copied data between the two GPUs of the line, and looked at what arrived. `p2pshim doctor` has more tests.",
    ),
    (
        "enabled",
        "p2pshim gave the two GPUs of the line access to each other's memory: their copies are direct from then on.",
    ),
    ("same-device", "Source and destination are memory of one GPU."),
    ("host", "Source or destination is memory of the host."),
];

/// All words that are explained.
pub(super) fn known() -> impl Iterator<Item = String> {
    let reasons = Path::ALL.iter().map(|path| path.reason()).filter(|reason| !reason.is_empty());
    WORDS.iter().map(|(word, _)| *word).chain(reasons).map(str::to_owned)
}

/// The reason for a path that a line has in it, or else the word: the longest.
fn within(line: &str) -> Option<&'static str> {
    /// A path with its reason may have fewer.
    const WORDS_OF_A_LINE: usize = 6;
    let plain = |text: &str| {
        let is_end = |letter: char| !letter.is_alphanumeric() && letter != '-';
        let words: Vec<&str> = text.split(is_end).filter(|word| !word.is_empty()).collect();
        format!(" {} ", words.join(" "))
    };
    let plain_line = plain(line);
    let reasons = Path::ALL.iter().filter(|path| !path.remedy().is_empty()).map(|path| path.reason());
    let known = |word: &&str| plain_line.contains(&plain(word));
    let longest = |all: Vec<&'static str>| all.into_iter().filter(known).max_by_key(|word| word.len());
    let found = || longest(reasons.collect()).or_else(|| longest(WORDS.iter().map(|(word, _)| *word).collect()));
    (line.split_whitespace().count() >= WORDS_OF_A_LINE).then(found).flatten().filter(|word| *word != line)
}

/// Explains a word for paths, the reason for one, or both as the report shows them. Returns whether there is such a word.
///
/// # Errors
/// The errors of the output.
pub(super) fn print(page: &mut Page<'_, impl Write>, text: &str) -> io::Result<bool> {
    let text = text.trim().to_ascii_lowercase();
    if let Some(word) = within(&text) {
        return print(page, word);
    }
    let name = text.split([':', '(']).next().unwrap_or_default().trim();
    let name = if ["hangs", "hung", "hanging"].contains(&name) { "hang" } else { name };
    let meaning = WORDS.iter().find(|(word, _)| *word == name);
    let has = |path: &&Path| {
        let (title, logged) = (path.title(), path.to_string());
        let reason = path.reason().split([':', ' ', ',']).next().unwrap_or_default();
        [title.as_str(), logged.as_str(), path.reason(), path.name(), reason]
            .iter()
            .any(|known| known.eq_ignore_ascii_case(&text))
    };
    let paths: Vec<&Path> = Path::ALL.iter().filter(|path| !path.remedy().is_empty()).filter(has).collect();
    match (meaning, paths.is_empty()) {
        (None, true) => return Ok(false),
        (Some((word, meaning)), _) => {
            page.line(word)?;
            page.section("Meaning")?;
            page.text(meaning)?;
        }
        (None, false) => page.line(&text)?,
    }
    for path in paths {
        page.section(&path.title())?;
        page.text(path.remedy())?;
    }
    Ok(true)
}
