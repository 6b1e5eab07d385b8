//! Tables: columns over some items, for a terminal, for a page and as CSV.
//!
//! In a terminal a table that is too wide loses columns, then ends of cells. A column without any text is not there.

use std::io::{self, Write};

use crate::report::term;

/// Letters of a cell that are shown at most.
const WIDEST: usize = 4096;

/// A table of items, whose columns are made one by one.
pub(crate) struct Table<T> {
    items: Vec<T>,
    columns: Vec<Column>,
}

/// A column, of text or of numbers.
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) is_text: bool,
    pub(crate) cells: Vec<String>,
    /// Whether it may be left out where there is no room: the least first.
    spare: Option<usize>,
    /// Whether its cells may lose their ends.
    is_flexible: bool,
}

impl<T> Table<T> {
    pub(crate) fn of(items: impl IntoIterator<Item = T>) -> Self {
        Self { items: items.into_iter().collect(), columns: Vec::new() }
    }

    fn column(mut self, name: &str, is_text: bool, cell: impl Fn(&T) -> String) -> Self {
        let (name, cells) = (name.to_owned(), self.items.iter().map(cell).collect());
        self.columns.push(Column { name, is_text, cells, spare: None, is_flexible: false });
        self
    }

    /// Adds a column of text, on the left side.
    pub(crate) fn text(self, name: &str, cell: impl Fn(&T) -> String) -> Self {
        self.column(name, true, cell)
    }

    /// Adds a column of numbers, on the right side.
    pub(crate) fn number(self, name: &str, cell: impl Fn(&T) -> String) -> Self {
        self.column(name, false, cell)
    }

    /// Says which columns may be left out, the first of them first.
    pub(crate) fn spare(mut self, columns: &[usize]) -> Self {
        for (order, &column) in columns.iter().enumerate() {
            self.columns.get_mut(column).into_iter().for_each(|column| column.spare = Some(order));
        }
        self
    }

    /// Says of which column cells may lose their ends.
    pub(crate) fn flexible(mut self, column: usize) -> Self {
        self.columns.get_mut(column).into_iter().for_each(|column| column.is_flexible = true);
        self
    }

    pub(crate) fn items(&self) -> &[T] {
        &self.items
    }

    /// The columns, without the items.
    pub(crate) fn columns(self) -> Vec<Column> {
        self.columns
    }

    /// The lines of names and cells, in so many letters if there is a limit.
    pub(crate) fn lines(self, width: Option<usize>) -> Vec<String> {
        lines(self.columns, width)
    }

    /// Writes it as CSV. Columns without any text are there, too.
    pub(crate) fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let line = |cell: &dyn Fn(&Column) -> String| self.columns.iter().map(cell).collect::<Vec<_>>().join(",");
        writeln!(out, "{}", line(&|column| column.name.clone()))?;
        let cell = |row: usize| move |column: &Column| column.cells.get(row).map_or(String::new(), |cell| field(cell));
        (0..self.items.len()).try_for_each(|row| writeln!(out, "{}", line(&cell(row))))
    }
}

impl Column {
    pub(crate) fn letters(&self) -> usize {
        let cells = self.cells.iter().chain([&self.name]);
        // A damaged trace may have any name, and `format!` panics at a width above 65,535.
        cells.map(|cell| cell.chars().count()).max().unwrap_or_default().min(WIDEST)
    }
}

/// The lines of names and cells. If the columns are too wide, spare ones are left out; then the cells of the flexible ones lose their ends.
pub(crate) fn lines(mut columns: Vec<Column>, width: Option<usize>) -> Vec<String> {
    let rows = columns.first().map_or(0, |column| column.cells.len());
    columns.retain(|column| rows == 0 || column.cells.iter().any(|cell| !cell.is_empty()));
    let whole = |columns: &[Column]| columns.iter().map(|column| column.letters() + 2).sum::<usize>();
    let first = |columns: &[Column]| columns.iter().filter_map(|column| column.spare).min();
    while width.is_some_and(|width| whole(&columns) > width)
        && let Some(first) = first(&columns)
    {
        columns.retain(|column| column.spare != Some(first));
    }
    let over = width.map(|width| whole(&columns).saturating_sub(width));
    let widths = columns.iter().map(|column| match over.filter(|_| column.is_flexible) {
        Some(over) => column.letters().saturating_sub(over).max(8),
        None => column.letters(),
    });
    let widths: Vec<usize> = widths.collect();
    let cell = |(column, &width): (&Column, &usize), cell: &String| {
        let cell = match cell.chars().count() {
            letters if letters > width => cell.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
            _ => cell.clone(),
        };
        if column.is_text { format!("{cell:width$}") } else { format!("{cell:>width$}") }
    };
    let line = |of: &dyn Fn(&Column) -> Option<String>| {
        let cells = columns.iter().zip(&widths).map(|it| cell(it, &of(it.0).unwrap_or_default()));
        format!("  {}", cells.collect::<Vec<_>>().join("  ")).trim_end().to_owned()
    };
    let names = line(&|column| Some(column.name.clone()));
    std::iter::once(names).chain((0..rows).map(|row| line(&|column| column.cells.get(row).cloned()))).collect()
}

/// A text as a field: quoted if it would not stay one, and marked as text if a spreadsheet would take it for a formula.
fn field(text: &str) -> String {
    let text = term::clean(text);
    let text = if text.starts_with(['=', '+', '-', '@']) { format!("'{text}") } else { text };
    if text.contains(['"', ',']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_cell_of_any_length_is_shown_as_far_as_it_fits() {
        for letters in [10, 65_535, 65_536, 1_000_000] {
            for is_text in [true, false] {
                let lines = Table::of([()]).column("name", is_text, |()| "x".repeat(letters)).lines(None);
                assert_eq!(lines[1].trim().chars().count(), letters.min(WIDEST), "{letters}");
            }
        }
    }

    #[test]
    fn table_that_is_too_wide_loses_of_one_column() {
        let table = |width| {
            let rows = [("a", "what is long, and can do without its end", 9), ("bb", "short", 10)];
            let table = Table::of(rows).text("", |it| it.0.to_owned()).text("", |it| it.1.to_owned()).flexible(1);
            table.number("", |it| it.2.to_string()).lines(width)
        };
        assert_eq!(table(Some(30))[1..], ["  a   what is long, and c…   9", "  bb  short                 10"]);
        assert!(table(None)[1].ends_with("its end   9"));
    }

    #[test]
    fn table_that_is_too_wide_loses_what_is_spare_first() {
        let lines = |width| {
            let table = Table::of(["0 > 1"]).text("pair", |it| (*it).to_owned());
            let table = table.text("path", |_| "staged: never enabled".to_owned());
            let table = table.number("p50", |_| "1.0us".to_owned()).number("p99", |_| "2.0us".to_owned());
            table.text("none", |_| String::new()).flexible(1).spare(&[3, 2]).lines(Some(width))
        };
        assert_eq!(lines(44)[1], "  0 > 1  staged: never enabled  1.0us  2.0us");
        assert_eq!(lines(43), ["  pair   path                     p50", "  0 > 1  staged: never enabled  1.0us"]);
        assert_eq!(lines(30), ["  pair   path", "  0 > 1  staged: never enabled"]);
        assert_eq!(lines(29)[1], "  0 > 1  staged: never enabl…");
    }

    #[test]
    fn csv_has_all_columns() {
        let mut out = Vec::new();
        let table = Table::of([1, 2]).text("a", |it| format!("{it}, =")).text("b", |_| String::new());
        table.csv(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "a,b\n\"1, =\",\n\"2, =\",\n");
    }

    #[test]
    fn field_that_looks_like_a_formula_is_text_and_only_what_needs_it_is_quoted() {
        for (text, shown) in
            [("=1+2", "'=1+2"), ("+1", "'+1"), ("-1", "'-1"), ("@x", "'@x"), ("a=1", "a=1"), ("\t=x", "\\t=x")]
        {
            assert_eq!(field(text), shown);
        }
        assert_eq!((field("a b"), field("a,\"b\"")), ("a b".to_owned(), "\"a,\"\"b\"\"\"".to_owned()));
    }
}
