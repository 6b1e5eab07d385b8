//! A comparison for people: the first line, what it rests on, and tables.

use std::io::{self, Write};

use super::model::{Comparison, CountRow, Figure, Judged, PairRow, PairSide, RankRow};
use super::words;
use crate::report::term::{self, Style, bytes, clean, count, seconds};
use crate::report::text::table::{Side, table};

/// Rows of a table that are shown.
const SHOWN: usize = 20;

/// A table: title, names of its columns, rows. The first column is text, the others are numbers but for the last.
pub(super) type Table = (&'static str, Vec<&'static str>, Vec<Vec<String>>);

/// Writes the comparison.
pub(super) fn write(comparison: &Comparison, style: Style, out: &mut dyn Write) -> io::Result<()> {
    for line in term::wrapped(&clean(&comparison.text), style.width, "").lines() {
        let is_worse = comparison.changes.iter().any(|change| change.is == Judged::Worse);
        writeln!(out, "{}", if is_worse { style.red(line) } else { style.bold(line) })?;
    }
    for note in &comparison.notes {
        writeln!(out, "{}", term::wrapped(&clean(note), style.width, ""))?;
    }
    for (title, names, rows) in tables(comparison) {
        writeln!(out, "\n{}", style.bold(title))?;
        let all = rows.len();
        let names = names.into_iter().map(str::to_owned).collect();
        let mut cells: Vec<Vec<String>> = std::iter::once(names).chain(rows.into_iter().take(SHOWN)).collect();
        let columns = cells.first().map_or(0, Vec::len);
        let sides: Vec<Side> =
            (0..columns).map(|column| if is_text(column, columns) { Side::Left } else { Side::Right }).collect();
        let spare: &[usize] = if columns > 6 { &[5, 6, 1, 2] } else { &[] };
        fit(&mut cells, style.width);
        for line in table(&cells, &sides, style.width, columns.saturating_sub(1), spare) {
            writeln!(out, "{line}")?;
        }
        if let Some(more @ 1..) = all.checked_sub(SHOWN) {
            writeln!(out, "  {}", style.dim(&format!("and {more} more (--json has all)")))?;
        }
    }
    Ok(())
}

/// Shortens what both sides are, such that names of rows are whole: paths and commands lose their beginnings.
fn fit(cells: &mut [Vec<String>], width: Option<usize>) {
    const COLUMNS: usize = 4;
    let wide = |column: usize, cells: &[Vec<String>]| {
        cells.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let Some(width) = width.filter(|_| cells.first().is_some_and(|row| row.len() == COLUMNS)) else { return };
    let most = (width.saturating_sub(wide(0, cells) + wide(3, cells) + 2 * COLUMNS) / 2).max(8);
    for cell in cells.iter_mut().flat_map(|row| row.iter_mut().skip(1).take(2)) {
        let letters = cell.chars().count();
        if letters > most {
            *cell = std::iter::once('…').chain(cell.chars().skip(letters - most + 1)).collect();
        }
    }
}

/// Whether a column is text.
pub(super) fn is_text(column: usize, columns: usize) -> bool {
    column == 0 || column + 1 == columns
}

/// The tables that have rows.
pub(super) fn tables(comparison: &Comparison) -> Vec<Table> {
    let Comparison { before, after, figures, pairs, ranks, findings, errors, .. } = comparison;
    let side =
        |name: &str, one: String, other: String| vec![name.to_owned(), clean(&one), clean(&other), String::new()];
    let end = |end: &Option<String>| end.clone().unwrap_or_else(|| "not known how it ended".to_owned());
    let runs = |of: &super::model::Side| {
        let ranks = if of.ranks > 0 { format!(", {}", term::counted(of.ranks as u64, "rank")) } else { String::new() };
        format!("{}{ranks}", term::counted(of.runs as u64, "run"))
    };
    let mut first = vec![
        side("traces", before.path.clone(), after.path.clone()),
        side("program", words::command(before), words::command(after)),
        side("runs", runs(before), runs(after)),
        side("end", end(&before.end), end(&after.end)),
    ];
    first.extend(figures.iter().filter(|figure| figure.of.is_none()).map(figure));
    let rates = figures.iter().filter(|figure| figure.of.is_some()).map(figure).collect();
    let kept = |table: &Table| !table.2.is_empty();
    let all: Vec<Table> = vec![
        ("Both", vec!["", "before", "now", ""], first),
        (
            "Pairs",
            vec!["pair", "copies", "now", "bytes", "now", "calls", "now", "path"],
            pairs.iter().map(pair).collect(),
        ),
        ("Rates of pairs whose copies were all timed", vec!["pair", "before", "now", ""], rates),
        (
            "Ranks",
            vec!["rank", "copies", "now", "bytes", "now", "staged", "now", "calls", "now", ""],
            ranks.iter().map(rank).collect(),
        ),
        ("Findings", vec!["finding", "calls, at least", "now", ""], findings.iter().map(counted).collect()),
        ("Failed calls", vec!["function", "calls", "now", ""], errors.iter().map(counted).collect()),
    ];
    all.into_iter().filter(kept).collect()
}

fn figure(figure: &Figure) -> Vec<String> {
    let side = |spread| Option::map_or(spread, "-".to_owned(), |spread| words::quantity(figure, spread));
    let change = [words::percent(figure), words::judged(figure.is).to_owned()];
    let change = change.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(", ");
    vec![clean(&words::name(figure)), side(figure.before), side(figure.after), change]
}

fn pair(row: &PairRow) -> Vec<String> {
    let cell =
        |side: &Option<PairSide>, what: fn(&PairSide) -> String| side.as_ref().map_or_else(|| "-".to_owned(), what);
    let both = |what: fn(&PairSide) -> String| [cell(&row.before, what), cell(&row.after, what)];
    let numbers =
        [both(|it| count(it.copies)), both(|it| bytes(it.bytes)), both(|it| seconds(it.host_seconds))].concat();
    let paths = both(|it| it.path.clone());
    let path = if paths[0] == paths[1] { paths[0].clone() } else { paths.join(", now ") };
    [vec![clean(&format!("{} > {}", row.src, row.dst))], numbers, vec![path]].concat()
}

fn rank(row: &RankRow) -> Vec<String> {
    let RankRow { rank, before, after } = row;
    vec![
        clean(rank),
        count(before.copies),
        count(after.copies),
        bytes(before.bytes),
        bytes(after.bytes),
        bytes(before.staged_bytes),
        bytes(after.staged_bytes),
        seconds(before.host_seconds),
        seconds(after.host_seconds),
        String::new(),
    ]
}

fn counted(row: &CountRow) -> Vec<String> {
    let severity = row.severity.as_ref().map(|severity| format!("{severity} ")).unwrap_or_default();
    vec![clean(&format!("{severity}{}", row.name)), count(row.before), count(row.after), String::new()]
}
