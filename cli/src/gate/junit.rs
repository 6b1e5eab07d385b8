//! JUnit's XML, as continuous integration reads it: a test case for each condition.

use std::fmt::Write as _;

use p2pshim_host::machine;

use super::Case;
use crate::report::term::date;

/// The XML of some cases of a program that was started then, in nanoseconds since 1970, and took so many seconds.
pub(super) fn xml(program: &str, start: u64, seconds: f64, cases: &[Case]) -> String {
    let failures = cases.iter().filter(|case| case.failure.is_some()).count();
    let (tests, time) = (cases.len(), format!("{seconds:.3}"));
    // The schema wants no zone.
    let timestamp = date(start).replacen(' ', "T", 1).replace(" UTC", "");
    let (name, host) = (escaped(program), escaped(&machine::host_name()));
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    let counts = format!("tests=\"{tests}\" failures=\"{failures}\" errors=\"0\"");
    let _ = writeln!(
        out,
        "  <testsuite name=\"p2pshim\" package=\"p2pshim\" id=\"0\" timestamp=\"{timestamp}\" hostname=\"{host}\" {counts} time=\"{time}\">\n    <properties/>"
    );
    for Case { name: case, failure, seconds } in cases {
        let case = escaped(case);
        let _ = write!(out, "    <testcase name=\"{case}\" classname=\"p2pshim.{name}\" time=\"{seconds:.6}\"");
        let _ = match failure {
            None => writeln!(out, "/>"),
            Some(why) => {
                let why = escaped(why);
                writeln!(out, ">\n      <failure message=\"{why}\" type=\"p2pshim\">{why}</failure>\n    </testcase>")
            }
        };
    }
    out.push_str("    <system-out/>\n    <system-err/>\n  </testsuite>\n</testsuites>\n");
    out
}

/// A text for an attribute or an element. XML has no way to write most control characters.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            letter if letter.is_control() => _ = write!(out, "{}", letter.escape_default()),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xml_of_cases_counts_them_and_escapes() {
        let case = |name: &str, failure: Option<&str>, seconds| {
            let (name, failure) = (name.to_owned(), failure.map(str::to_owned));
            Case { name, failure, seconds }
        };
        let cases = [case("staged", Some("\"GPU 0 > GPU 1\" & <b>\u{1b}[m\u{ffff}"), 2e-5), case("hazard", None, 1.25)];
        let xml = xml("a&b", 1_800_000_000_000_000_000, 1.25, &cases);
        for part in [
            "timestamp=\"2027-01-15T08:00:00\"",
            "tests=\"2\" failures=\"1\" errors=\"0\" time=\"1.250\"",
            "<testcase name=\"staged\" classname=\"p2pshim.a&amp;b\" time=\"0.000020\">",
            "message=\"&quot;GPU 0 &gt; GPU 1&quot; &amp; &lt;b&gt;\\u{1b}[m\u{fffd}\"",
            "<testcase name=\"hazard\" classname=\"p2pshim.a&amp;b\" time=\"1.250000\"/>",
        ] {
            assert!(xml.contains(part), "{part}: {xml}");
        }
    }
}
