//! A comparison as a page: one file without a script, with the style of a report's page, which loads nothing.

use std::io::{self, Write};

use p2pshim_host::text::Escaped;

use super::model::Comparison;
use super::text::tables;
use crate::table::Column;

const STYLE: &str = include_str!("../report/page/page.css");
/// The report's page, whose policy names that style.
const PAGE: &str = include_str!("../report/page/page.html");

/// Writes the page.
pub(super) fn write(comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
    let policy = PAGE.lines().find(|line| line.contains("Content-Security-Policy")).unwrap_or_default();
    writeln!(out, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n{policy}")?;
    writeln!(out, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">")?;
    // The policy has the sum of the style, with no line end more.
    writeln!(out, "<title>p2pshim compare</title>\n<style>{STYLE}</style>\n</head>\n<body>")?;
    writeln!(out, "<header class=\"top\"><strong class=\"name\">p2pshim compare</strong></header>\n<main>")?;
    writeln!(out, "<section class=\"first\"><h1>{}</h1>", marked_up(&comparison.text))?;
    for note in &comparison.notes {
        writeln!(out, "<p>{}</p>", marked_up(note))?;
    }
    writeln!(out, "</section>")?;
    for (title, rows, columns) in tables(comparison) {
        writeln!(out, "<section><h2>{title}</h2>\n<div class=\"scroll\"><table class=\"rows\">\n<thead><tr>")?;
        let class = |column: &Column| if column.is_text { "" } else { " class=\"right\"" };
        for column in &columns {
            writeln!(out, "<th scope=\"col\"{}>{}</th>", class(column), column.name)?;
        }
        writeln!(out, "</tr></thead>\n<tbody>")?;
        for row in 0..rows {
            write!(out, "<tr>")?;
            for column in &columns {
                let cell = column.cells.get(row).map_or("", String::as_str);
                write!(out, "<td{}>{}</td>", class(column), marked_up(cell))?;
            }
            writeln!(out, "</tr>")?;
        }
        writeln!(out, "</tbody></table></div></section>")?;
    }
    writeln!(out, "</main>\n</body>\n</html>")
}

/// A text from a file as HTML.
fn marked_up(text: &str) -> String {
    Escaped(text).to_string().replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
