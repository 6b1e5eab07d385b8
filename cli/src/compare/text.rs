//! A comparison for people: the first line, what it rests on, and tables.

use std::io::{self, Write};

use super::model::{Comparison, CountRow, Figure, Judged, PairRow, PairSide, RankRow, Side};
use super::words;
use crate::report::term::{self, Style, bytes, clean, count, seconds};
use crate::table::{Column, Table, lines};

/// Rows of a table that are shown.
const SHOWN: usize = 20;

/// A table: its title, how many rows it has, and its columns.
type Titled = (&'static str, usize, Vec<Column>);

/// Writes the comparison.
pub(super) fn write(comparison: &Comparison, style: Style, out: &mut dyn Write) -> io::Result<()> {
    for line in term::wrapped(&clean(&comparison.text), style.width, "").lines() {
        let is_worse = comparison.changes.iter().any(|change| change.is == Judged::Worse);
        writeln!(out, "{}", if is_worse { style.red(line) } else { style.bold(line) })?;
    }
    for note in &comparison.notes {
        writeln!(out, "{}", term::wrapped(&clean(note), style.width, ""))?;
    }
    for (title, all, mut columns) in tables(comparison) {
        writeln!(out, "\n{}", style.bold(title))?;
        columns.iter_mut().for_each(|column| column.cells.truncate(SHOWN));
        fit(&mut columns, style.width);
        for line in lines(columns, style.width) {
            writeln!(out, "{line}")?;
        }
        if let Some(more @ 1..) = all.checked_sub(SHOWN) {
            writeln!(out, "  {}", style.dim(&format!("and {more} more (--json has all)")))?;
        }
    }
    Ok(())
}

/// Shortens what both sides are, such that names of rows are whole: paths and commands lose their beginnings.
fn fit(columns: &mut [Column], width: Option<usize>) {
    let ([first, before, after, last], Some(width)) = (columns, width) else { return };
    let most = (width.saturating_sub(first.letters() + last.letters() + 2 * 4) / 2).max(8);
    for cell in before.cells.iter_mut().chain(&mut after.cells) {
        let letters = cell.chars().count();
        if letters > most {
            *cell = std::iter::once('…').chain(cell.chars().skip(letters - most + 1)).collect();
        }
    }
}

/// The tables that have rows.
pub(super) fn tables(comparison: &Comparison) -> Vec<Titled> {
    let Comparison { figures, pairs, ranks, findings, errors, .. } = comparison;
    let (rates, figures): (Vec<&Figure>, Vec<&Figure>) = figures.iter().partition(|figure| figure.of.is_some());
    let figures = figures.into_iter().map(figure);
    let all = [
        ("Both", of_both(["", "before", "now", ""], sides(comparison).into_iter().chain(figures))),
        ("Pairs", of_pairs(pairs)),
        (
            "Rates of pairs whose copies were all timed",
            of_both(["pair", "before", "now", ""], rates.into_iter().map(figure)),
        ),
        ("Ranks", of_ranks(ranks)),
        ("Findings", of_both(["finding", "calls, at least", "now", ""], findings.iter().map(counted))),
        ("Failed calls", of_both(["function", "calls", "now", ""], errors.iter().map(counted))),
    ];
    let rows = |columns: &[Column]| columns.first().map_or(0, |column| column.cells.len());
    all.into_iter().map(|(title, it)| (title, rows(&it), it)).filter(|(_, rows, _)| *rows > 0).collect()
}

/// A table of names, two sides and what is to be said of them.
fn of_both(names: [&str; 4], rows: impl Iterator<Item = [String; 4]>) -> Vec<Column> {
    let [name, before, after, last] = names;
    let table = Table::of(rows).text(name, |[it, ..]| it.clone()).number(before, |[_, it, ..]| it.clone());
    table.number(after, |[_, _, it, _]| it.clone()).text(last, |[.., it]| it.clone()).flexible(3).columns()
}

/// Facts about both sides besides figures.
fn sides(Comparison { before, after, .. }: &Comparison) -> Vec<[String; 4]> {
    let end = |side: &Side| side.end.clone().unwrap_or_else(|| "not known how it ended".to_owned());
    let runs = |side: &Side| {
        let ranks =
            if side.ranks > 0 { format!(", {}", term::counted(side.ranks as u64, "rank")) } else { String::new() };
        format!("{}{ranks}", term::counted(side.runs as u64, "run"))
    };
    let row = |name: &str, what: &dyn Fn(&Side) -> String| {
        [name.to_owned(), clean(&what(before)), clean(&what(after)), String::new()]
    };
    vec![
        row("traces", &|side| side.path.clone()),
        row("program", &words::command),
        row("runs", &runs),
        row("end", &end),
    ]
}

fn figure(figure: &Figure) -> [String; 4] {
    let side = |spread| Option::map_or(spread, "-".to_owned(), |spread| words::quantity(figure, spread));
    let change = [words::percent(figure), words::judged(figure.is).to_owned()];
    let change = change.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(", ");
    [clean(&words::name(figure)), side(figure.before), side(figure.after), change]
}

fn counted(row: &CountRow) -> [String; 4] {
    let severity = row.severity.as_ref().map(|severity| format!("{severity} ")).unwrap_or_default();
    [clean(&format!("{severity}{}", row.name)), count(row.before), count(row.after), String::new()]
}

/// The columns of both sides that are left out first: the times or staged bytes, then the copies.
const SPARE: [usize; 4] = [5, 6, 1, 2];

fn of_pairs(pairs: &[PairRow]) -> Vec<Column> {
    let cell = |side: &Option<PairSide>, what: fn(&PairSide) -> String| side.as_ref().map_or("-".to_owned(), what);
    let path = |it: &PairRow| {
        let paths = [&it.before, &it.after].map(|side| cell(side, |side| side.path.clone()));
        if paths[0] == paths[1] { paths[0].clone() } else { paths.join(", now ") }
    };
    Table::of(pairs)
        .text("pair", |it| clean(&format!("{} > {}", it.src, it.dst)))
        .number("copies", |it| cell(&it.before, |side| count(side.copies)))
        .number("now", |it| cell(&it.after, |side| count(side.copies)))
        .number("bytes", |it| cell(&it.before, |side| bytes(side.bytes)))
        .number("now", |it| cell(&it.after, |side| bytes(side.bytes)))
        .number("calls", |it| cell(&it.before, |side| seconds(side.host_seconds)))
        .number("now", |it| cell(&it.after, |side| seconds(side.host_seconds)))
        .text("path", |it| path(it))
        .flexible(7)
        .spare(&SPARE)
        .columns()
}

fn of_ranks(ranks: &[RankRow]) -> Vec<Column> {
    Table::of(ranks)
        .text("rank", |it| clean(&it.rank))
        .number("copies", |it| count(it.before.copies))
        .number("now", |it| count(it.after.copies))
        .number("bytes", |it| bytes(it.before.bytes))
        .number("now", |it| bytes(it.after.bytes))
        .number("staged", |it| bytes(it.before.staged_bytes))
        .number("now", |it| bytes(it.after.staged_bytes))
        .number("calls", |it| seconds(it.before.host_seconds))
        .number("now", |it| seconds(it.after.host_seconds))
        .spare(&SPARE)
        .columns()
}
