//! The report as a page: one file, with its style, its script and its data, which loads nothing.
//!
//! The page is made of the files in page/. The policy in page.html lets a browser use just this style and this script, by
//! their hashes; tests/html/check.py compares them, and writes them anew.

use std::io::{self, Write};

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
/// One script: its parts see each other.
const SCRIPT: &str = concat!(
    include_str!("page/base.js"),
    include_str!("page/processes.js"),
    include_str!("page/verdict.js"),
    include_str!("page/tables.js"),
    include_str!("page/map.js"),
    include_str!("page/timeline.js"),
    include_str!("page/sections.js"),
);

/// Writes the page that shows `json`, a report as `p2pshim report --json` prints it.
///
/// # Errors
///
/// The errors of `out`.
pub(crate) fn write(json: &str, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let mut rest = PAGE;
    while let Some((before, (name, after))) = rest.split_once("{{").and_then(|(b, a)| Some((b, a.split_once("}}")?))) {
        out.write_all(before.as_bytes())?;
        match name {
            "style" => out.write_all(STYLE.as_bytes())?,
            "script" => out.write_all(SCRIPT.as_bytes())?,
            _ => write_data(json, out)?,
        }
        rest = after;
    }
    out.write_all(rest.as_bytes())
}

/// JSON such that nothing in it looks like markup. The letters that are replaced stand inside strings only, where JSON has another
/// spelling for it; U+2028 and U+2029 end lines in scripts.
fn write_data(json: &str, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let mut rest = json;
    while let Some(at) = rest.find(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        let (before, special) = rest.split_at(at);
        out.write_all(before.as_bytes())?;
        let mut chars = special.chars();
        if let Some(char) = chars.next() {
            write!(out, "\\u{:04x}", u32::from(char))?;
        }
        rest = chars.as_str();
    }
    out.write_all(rest.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(json: &str) -> String {
        let mut page = Vec::new();
        write(json, &mut page).unwrap();
        String::from_utf8(page).unwrap()
    }

    fn data(json: &str) -> String {
        let page = page(json);
        let (_, rest) = page.split_once("id=\"data\">").unwrap();
        rest.split_once("</script>").unwrap().0.to_owned()
    }

    #[test]
    fn write_end_of_script_in_a_string_stays_data() {
        let json = r#"{"program":["</script><script>alert(1)</script><!-- & -->"]}"#;
        assert_eq!(
            data(json),
            r#"{"program":["\u003c/script\u003e\u003cscript\u003ealert(1)\u003c/script\u003e\u003c!-- \u0026 --\u003e"]}"#
        );
        assert_eq!(page(json).matches("</script").count(), page("{}").matches("</script").count());
    }

    #[test]
    fn write_line_separators_are_spelt_out() {
        assert_eq!(data("[\"a\u{2028}b\u{2029}\"]"), r#"["a\u2028b\u2029"]"#);
    }

    #[test]
    fn write_other_text_stays_as_it_is() {
        let json = r#"{"a":"GPU 0 → 1 \u003c \" \\ {{script}}","b":[1,2.5,null]}"#;
        assert_eq!(data(json), json);
        assert_eq!(data(""), "");
    }

    #[test]
    fn write_page_has_all_its_parts_and_names_no_other_place() {
        let page = page("{}");
        assert!(page.contains(STYLE) && page.contains(SCRIPT) && page.ends_with("</html>\n"));
        assert!(!STYLE.contains("url(") && !STYLE.contains("@import"));
        for text in [PAGE, STYLE, SCRIPT] {
            // The one address is the name of SVG.
            assert_eq!(text.replace("http://www.w3.org/2000/svg", "").matches("://").count(), 0);
        }
        assert!(PAGE.len() + STYLE.len() + SCRIPT.len() < 96 * 1024, "keep the page small");
    }

    #[test]
    fn page_style_and_script_cannot_end_their_elements() {
        assert!(!STYLE.contains("</") && !SCRIPT.contains("</script") && !SCRIPT.contains("<!--"));
    }
}
