//! Statements that contradict each other, as `cli/src/report/opposites.txt` lists them, looked for in what the command says.

use std::collections::BTreeSet;

const ROWS: &str = include_str!("../../src/report/opposites.txt");

struct Row<'a> {
    is_of_pair: bool,
    statements: [&'a str; 2],
}

fn rows() -> impl Iterator<Item = Row<'static>> {
    let lines = ROWS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| {
        let (kind, statements) = line.split_once(' ').unwrap();
        assert!(["any", "pair"].contains(&kind), "{line}");
        Row { is_of_pair: kind == "pair", statements: statements.trim_start().split_once(" | ").unwrap().into() }
    })
}

/// The statements of all rows.
pub(crate) fn statements() -> BTreeSet<&'static str> {
    rows().flat_map(|row| row.statements).collect()
}

/// The pairs of GPUs that a line names: `GPU 0 > GPU 1`, `GPU 0 and GPU 1`, `GPU 0 to GPU 1`.
fn pairs(line: &str) -> BTreeSet<[u32; 2]> {
    let mut found = BTreeSet::new();
    let parts: Vec<&str> = line.split("GPU ").collect();
    for [_, one, other] in parts.array_windows() {
        let digits = |text: &str| text.len() - text.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
        let (number, between) = one.split_at(digits(one));
        let (Ok(one), Ok(other)) = (number.parse::<u32>(), other[..digits(other)].parse()) else { continue };
        if [" > ", " and ", " to "].contains(&between) {
            found.insert([one.min(other), one.max(other)]);
        }
    }
    found
}

/// Which two statements of a text contradict each other: both lines, for each.
pub(crate) fn contradictions(text: &str) -> Vec<String> {
    let mut of_line = BTreeSet::new();
    let mut lines = Vec::new();
    for line in text.lines() {
        let named = pairs(line);
        if !named.is_empty() {
            of_line = named;
        }
        lines.push((line, of_line.clone()));
    }
    let mut found = Vec::new();
    for Row { is_of_pair, statements: [one, other] } in rows() {
        for (first, pairs) in lines.iter().filter(|(line, _)| line.contains(one)) {
            let contradicts = |(line, others): &&(&str, BTreeSet<[u32; 2]>)| {
                line.contains(other) && (!is_of_pair || !pairs.is_disjoint(others))
            };
            found.extend(lines.iter().find(contradicts).map(|(second, _)| format!("{first}\n  beside\n{second}")));
        }
    }
    found
}
