//! The meaning of a finding, a code, or a word for paths.

mod code;
mod measured;
mod path;

use std::error::Error;
use std::ffi::OsStr;
use std::fmt::{self, Display, Formatter};
use std::io::{self, Write};

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Command};
use p2pshim_host::nearest::nearest;

use crate::report::{self, wrapped};
use crate::status::Refusal;
use crate::tables::{self, Rule};

/// The help's text after the options.
pub(crate) const EXAMPLES: &str = "\
Examples:
  p2pshim explain 704
  p2pshim explain 50                                 of a runtime of CUDA 10.0 or older
  p2pshim explain 217 cudaDeviceEnablePeerAccess     what it means there
  p2pshim explain CUDA_ERROR_INVALID_CONTEXT
  p2pshim explain P2P-enable-twice
  p2pshim explain staged                             or broken, or \"staged: peer limit\", as in a report
  p2pshim explain \"$(grep -m 1 ' = cudaError' app.log)\"";

/// There is nothing in it that can be explained.
struct Unknown {
    text: String,
    nearest: Option<String>,
}

impl Display for Unknown {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{:?} is not a code of CUDA or HIP, a code's name, a finding or a path, and contains none of them; ",
            self.text
        )?;
        if let Some(nearest) = &self.nearest {
            write!(out, "did you mean {nearest}? ")?;
        }
        write!(out, "`p2pshim explain` lists the findings")
    }
}

/// Any text; shells complete the names of findings and codes, and the words for paths.
pub(crate) fn words_to_complete() -> impl TypedValueParser<Value = String> {
    Words
}

#[derive(Clone)]
struct Words;

impl TypedValueParser for Words {
    type Value = String;

    fn parse_ref(&self, command: &Command, argument: Option<&Arg>, value: &OsStr) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let rules = tables::read().map(|tables| tables.rules).unwrap_or_default();
        let known = rules.into_iter().map(|rule| rule.id).chain(code::names()).chain(path::known());
        Some(Box::new(known.filter(|word| !word.contains(' ')).map(PossibleValue::new)))
    }
}

/// Prints one line for each rule.
pub(crate) fn print_list(out: &mut impl Write, rules: &[Rule]) -> io::Result<()> {
    let width = rules.iter().map(|rule| rule.id.len()).max().unwrap_or_default();
    for Rule { id, severity, functions, .. } in rules {
        writeln!(out, "{id:width$}  {severity:11}  {functions}")?;
    }
    Ok(())
}

/// Explains the findings that are named in a text, such as a line of the log, or else the codes.
///
/// # Errors
/// There are none, or `out` returns an error.
pub(crate) fn print(
    out: &mut impl Write,
    rules: &[Rule],
    functions: &[String],
    text: &str,
) -> Result<(), Box<dyn Error>> {
    let mut page = Page { out, width: report::width().map_or(WIDTH, |width| width.min(WIDTH)) };
    let mut found: Vec<&Rule> = Vec::new();
    for rule in words(text).filter_map(|word| rules.iter().find(|rule| rule.id.eq_ignore_ascii_case(word))) {
        if !found.iter().any(|known| known.id == rule.id) {
            found.push(rule);
        }
    }
    for (number, rule) in found.iter().enumerate() {
        page.next(number)?;
        print_rule(&mut page, rule)?;
    }
    if !found.is_empty() {
        return Ok(());
    }
    let codes = codes(text);
    if codes.is_empty() {
        if path::print(&mut page, text)? {
            return Ok(());
        }
        let known = rules.iter().map(|rule| rule.id.clone()).chain(code::known()).chain(path::known());
        let known: Vec<String> = known.collect();
        let nearest = nearest(text.trim(), known.iter().map(String::as_str)).map(str::to_owned);
        return Err(Box::new(Refusal::none_found(Unknown { text: text.to_owned(), nearest })));
    }
    let functions: Vec<&str> = words(text).filter(|word| functions.iter().any(|known| known == word)).collect();
    for (number, &code) in codes.iter().enumerate() {
        page.next(number)?;
        code::print(&mut page, rules, code, &functions)?;
    }
    Ok(())
}

/// The codes in a text: their names, what stands behind `=` or such a word, and a number alone, or beside a function. Success
/// only if there is no other.
fn codes(text: &str) -> Vec<i32> {
    const BEFORE: [&str; 5] = ["=", "code", "error", "returned", "result"];
    let parts: Vec<&str> = text.split_whitespace().collect();
    let is_short = parts.len() <= 2;
    let mut codes: Vec<i32> = words(text).filter_map(code::named).collect();
    for (index, part) in parts.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|before| parts.get(before)).copied().unwrap_or_default();
        let is_code = is_short || BEFORE.iter().any(|word| before.trim_end_matches(':').eq_ignore_ascii_case(word));
        let number = part.trim_matches(|letter: char| !letter.is_alphanumeric()).parse::<i32>();
        if let (true, Ok(code)) = (is_code && !part.contains('<'), number)
            && let Some(code) = code::numbered(code)
        {
            codes.push(code);
        }
    }
    codes.sort_unstable();
    codes.dedup();
    if codes.len() > 1 {
        codes.retain(|&code| code != 0);
    }
    codes
}

/// The words of a text: names, ids, numbers.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_ascii_alphanumeric() && !"_-".contains(letter)).filter(|word| !word.is_empty())
}

fn print_rule(page: &mut Page<impl Write>, rule: &Rule) -> io::Result<()> {
    page.line(&format!("{} ({})", rule.id, rule.severity))?;
    for (title, text) in sections(rule) {
        page.section(title)?;
        page.text(&text)?;
    }
    Ok(())
}

/// The explanation, in lines that fit.
struct Page<'a, W> {
    out: &'a mut W,
    width: usize,
}

impl<W: Write> Page<'_, W> {
    /// An empty line between two explanations.
    fn next(&mut self, number: usize) -> io::Result<()> {
        if number > 0 { writeln!(self.out) } else { Ok(()) }
    }

    fn line(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{}", wrapped(text, Some(self.width), ""))
    }

    fn section(&mut self, title: &str) -> io::Result<()> {
        writeln!(self.out, "\n{title}:")
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{}", wrapped(&format!("    {text}"), Some(self.width), "    "))
    }
}

fn sections(rule: &Rule) -> Vec<(&'static str, String)> {
    let Rule { runtime_code, driver_code, runtime_code_name, driver_code_name, .. } = rule;
    let codes = [("runtime", *runtime_code, runtime_code_name), ("driver", *driver_code, driver_code_name)];
    let codes = codes.iter().filter(|(_, code, _)| *code != 0);
    let code = codes.map(|(layer, code, name)| format!("{layer} {code} ({name})")).collect::<Vec<_>>().join(", ");
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

/// Columns, where no terminal says how many there are.
pub(crate) const WIDTH: usize = 96;

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
            runtime_code: 704,
            driver_code: 0,
            runtime_code_name: "cudaErrorPeerAccessAlreadyEnabled".to_owned(),
            driver_code_name: String::new(),
        }
    }

    fn printed(text: &str) -> Result<String, String> {
        let mut out = Vec::new();
        let rules = [rule("P2P-enable-twice"), rule("P2P-copy-overlap")];
        let functions = ["cuCtxEnablePeerAccess".to_owned()];
        print(&mut out, &rules, &functions, text).map_err(|error| error.to_string())?;
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
    fn print_a_code_by_number_and_by_each_name_is_the_same() {
        let text = printed("704").unwrap();
        for name in [
            "cudaErrorPeerAccessAlreadyEnabled",
            "cuda_error_peer_access_already_enabled",
            "hipErrorPeerAccessAlreadyEnabled",
            "error 704",
            "12:00:00.000001 1/1 cudaDeviceCanAccessPeer(device=0, count=900) = 704 <7.7us> at app+0x201",
        ] {
            assert_eq!(printed(name).as_ref(), Ok(&text), "{name}");
        }
        for part in [
            "704: cudaErrorPeerAccessAlreadyEnabled, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,",
            "\nP2P-enable-twice (note):\n    cuCtxEnablePeerAccess, cudaDeviceEnablePeerAccess\n",
            "For example: cudaDeviceEnablePeerAccess(1,0) after cudaDeviceEnablePeerAccess(1,0)\n",
            "    What to do: Do it.\n",
            "    4 of 895 calls returned 704 on two H200 or H100",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn print_a_code_beside_a_function_is_about_that_one() {
        let text = printed("cuCtxEnablePeerAccess = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED").unwrap();
        assert!(text.contains("\nP2P-enable-twice (note):\n    cuCtxEnablePeerAccess\n"), "{text}");
    }

    #[test]
    fn print_a_code_that_hardware_does_not_return_where_it_should_says_so() {
        let text = printed("CUDA_ERROR_INVALID_DEVICE").unwrap();
        let differs = "Documented, but another code was returned:\n    cudaDeviceEnablePeerAccess(0,0): 217\n";
        assert!(text.contains(differs) && text.contains("\n    and "), "{text}");
    }

    #[test]
    fn codes_of_a_line_are_no_other_numbers_in_it() {
        for (text, expected) in [
            ("p2pshim 12:16:30.690442 704/705 cudaMemcpyPeer(dstDevice=1, count=700) = cudaSuccess <217ns>", vec![0]),
            ("  cuMemcpyPeer(…) = 217 <1.0us> 0>1", vec![217]),
            ("returned cudaErrorInvalidDevice (101), documented: cudaErrorInvalidValue (1)", vec![1, 101]),
            ("217 cudaDeviceEnablePeerAccess", vec![217]),
            ("10 copies of 704 bytes", vec![]),
            ("7041", vec![]),
        ] {
            assert_eq!(codes(text), expected, "{text}");
        }
    }

    #[test]
    fn print_a_word_for_paths_or_a_reason_as_reports_and_logs_have_it() {
        let all = printed("Staged").unwrap();
        assert!(all.starts_with("staged\n\nMeaning:\n    The data goes through a buffer on the host. "), "{all}");
        for path in p2pshim_trace::Path::ALL.iter().filter(|path| path.class().is_staged()) {
            assert!(all.contains(&format!("\n{}:\n", path.title())), "{path}");
            for text in [path.title(), path.to_string(), path.reason().to_owned()] {
                let one = printed(&text).unwrap();
                assert!(one.contains(&format!("\n{}:\n", path.title())) && one.len() < all.len() / 2, "{one}");
            }
        }
        let broken = printed("broken").unwrap();
        assert!(
            broken.contains("test data arrived wrong") && broken.contains("staged: broken: failed verification:"),
            "{broken}"
        );
        assert!(printed("direct").unwrap().contains("the fastest"));
        assert!(printed("stagd").unwrap_err().contains("did you mean staged?"));
    }

    #[test]
    fn print_a_line_of_the_log_explains_the_path_that_it_has_in_it() {
        let line = |text: &str| printed(&format!("p2pshim 02:08:07.977668 1/1 info: peer access 0-1: {text}")).unwrap();
        for (text, expected) in [
            ("copies are staged (no hardware path)", "\nstaged: no hardware path:\n"),
            ("verified: data arrives in both directions", "looked at what arrived"),
            ("peer access enabled in both directions", "their copies are direct"),
        ] {
            assert!(line(text).contains(expected), "{text}: {}", line(text));
        }
        assert!(printed("p2pshim 02:08:07.977668 1/1 info: nothing that is known").is_err());
    }

    #[test]
    fn print_unknown_text_names_the_nearest() {
        for (text, expected) in [
            ("P2P-enable-again", "did you mean P2P-enable-twice?"),
            ("cudaErrorPeerAcessNotEnabled", "did you mean cudaErrorPeerAccessNotEnabled?"),
            ("7044", "did you mean 704?"),
        ] {
            let error = printed(text).unwrap_err();
            assert!(error.contains(text) && error.contains(expected), "{error}");
        }
    }

    #[test]
    fn print_text_like_nothing_names_none() {
        let expected = "\"nonsense\" is not a code of CUDA or HIP, a code's name, a finding or a path, and contains none of them; \
                        `p2pshim explain` lists the findings";
        assert_eq!(printed("nonsense").unwrap_err(), expected);
    }
}
