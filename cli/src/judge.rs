//! The one evaluator: tables of rows judge facts.
//!
//! A row has a condition on the facts, which yields its words, and fields that say how bad that is, where it stands and beside which other rows it is
//! not said. Report, compare, gate, doctor, fleet and hang each have a table and their facts. A sentence is said because its row holds: to add a
//! sentence is to add a row.

use serde::Serialize;

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// The program is wrong, hangs, or was ended.
    Bad,
    /// Something is to be done, or known.
    Warn,
    /// All is well.
    Good,
    /// Something that a reader may want to know.
    Note,
}

/// A sentence.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Sentence {
    /// The name of its row.
    #[serde(skip)]
    pub(crate) name: &'static str,
    /// How bad it is.
    pub(crate) level: Level,
    /// One or two words for the sentence.
    pub(crate) word: &'static str,
    /// The sentence.
    pub(crate) text: String,
    /// Its grounds, or the remedy.
    pub(crate) more: Option<String>,
    /// The part of the page that says more.
    pub(crate) section: Option<&'static str>,
}

/// The words of a row that holds.
pub(crate) struct Words {
    pub(crate) text: String,
    /// The grounds, or the remedy.
    pub(crate) more: Option<String>,
}

impl Words {
    /// Adds the grounds, or the remedy; an empty text is none.
    pub(crate) fn more(self, more: impl Into<String>) -> Self {
        Self { more: Some(more.into()).filter(|more| !more.is_empty()), ..self }
    }

    /// Adds to the grounds.
    pub(crate) fn and(self, more: &str) -> Self {
        let all = self.more.iter().map(String::as_str).chain([more].into_iter().filter(|more| !more.is_empty()));
        let all = all.collect::<Vec<_>>().join(" ");
        self.more(all)
    }
}

impl From<String> for Words {
    fn from(text: String) -> Self {
        Self { text, more: None }
    }
}

/// The condition of a row: its words, or none if it does not hold.
type Says<'r, F> = Box<dyn Fn(&F) -> Vec<Words> + 'r>;

/// A row of a table that judges facts of the type `F`.
pub(crate) struct Row<'r, F: ?Sized> {
    level: Level,
    /// One or two words for the sentence.
    word: &'static str,
    /// The name by which other rows refer to it: the word, unless several rows have that.
    name: &'static str,
    section: Option<&'static str>,
    says: Says<'r, F>,
    /// One row of a group is said: the first that holds and gives way to no other.
    group: Option<&'static str>,
    /// The rows beside which it is not said.
    unless: &'r [&'static str],
    /// The level from which on no row may be said beside it.
    unless_any: Option<Level>,
    place: Place<'r>,
}

/// The place of a row among the others.
enum Place<'r> {
    /// Before all, at any level.
    Head,
    /// At its level, in the order of the table.
    Usual,
    /// The cause of these rows, if they are said: then it is no less than a warning, and the first of them.
    CauseOf(&'r [&'static str]),
    /// The last of its level.
    Last,
}

impl<'r, F: ?Sized> Row<'r, F> {
    /// A row that says at a level what a condition on the facts yields.
    pub(crate) fn new<W: Into<Words>, S: IntoIterator<Item = W>>(
        level: Level,
        word: &'static str,
        says: impl Fn(&F) -> S + 'r,
    ) -> Self {
        let says: Says<'r, F> = Box::new(move |facts| says(facts).into_iter().map(Into::into).collect());
        let (section, group, unless, unless_any, place) = (None, None, &[], None, Place::Usual);
        Self { level, word, name: word, section, says, group, unless, unless_any, place }
    }

    pub(crate) fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// The part of the page that says more.
    pub(crate) fn section(self, section: &'static str) -> Self {
        Self { section: Some(section), ..self }
    }

    /// Is not said beside an earlier row of this group.
    pub(crate) fn one_of(self, group: &'static str) -> Self {
        Self { group: Some(group), ..self }
    }

    /// Is not said beside these rows.
    pub(crate) fn unless(self, unless: &'r [&'static str]) -> Self {
        Self { unless, ..self }
    }

    /// Is not said beside any row of this level, or a worse one.
    pub(crate) fn unless_any(self, level: Level) -> Self {
        Self { unless_any: Some(level), ..self }
    }

    pub(crate) fn head(self) -> Self {
        Self { place: Place::Head, ..self }
    }

    pub(crate) fn last(self) -> Self {
        Self { place: Place::Last, ..self }
    }

    pub(crate) fn cause_of(self, rows: &'r [&'static str]) -> Self {
        Self { place: Place::CauseOf(rows), ..self }
    }

    #[cfg(test)]
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Whether it gives way to another row, which may come before it.
    fn yields_to(&self, other: &Self, is_before: bool) -> bool {
        self.unless.contains(&other.name)
            || self.unless_any.is_some_and(|level| other.level <= level)
            || is_before && self.group.is_some() && self.group == other.group
    }

    /// Where it stands beside the rows that are said, by their names.
    fn rank(&self, said: &[&str]) -> (bool, Level, u8) {
        match self.place {
            Place::Head => (false, Level::Bad, 0),
            Place::CauseOf(rows) if rows.iter().any(|row| said.contains(row)) => (true, self.level.min(Level::Warn), 0),
            Place::Usual | Place::CauseOf(_) => (true, self.level, 1),
            Place::Last => (true, self.level, 2),
        }
    }
}

/// A row that holds, with its words.
type Held<'t, 'r, F> = (&'t Row<'r, F>, Vec<Words>);

/// The sentences of the rows that hold: the worst first, and none beside one to which it gives way. A row that itself gives way to a third one
/// excludes nothing.
pub(crate) fn evaluate<F: ?Sized>(rows: &[Row<F>], facts: &F) -> Vec<Sentence> {
    let held: Vec<Held<F>> = rows.iter().map(|row| (row, (row.says)(facts))).filter(|(_, it)| !it.is_empty()).collect();
    let said: Vec<bool> = (0..held.len()).map(|place| is_said(place, &held, 0)).collect();
    let mut said: Vec<Held<F>> = held.into_iter().zip(said).filter_map(|(it, is_said)| is_said.then_some(it)).collect();
    let names: Vec<&str> = said.iter().map(|(row, _)| row.name).collect();
    said.sort_by_key(|(row, _)| row.rank(&names));
    let sentences = said.into_iter().flat_map(|(Row { name, level, word, section, .. }, words)| {
        words.into_iter().map(|Words { text, more }| Sentence {
            name,
            level: *level,
            word,
            text,
            more,
            section: *section,
        })
    });
    sentences.collect()
}

/// `depth` rows give way to one another, down to this one. A circle of such rows is a mistake of their table, and the search ends all the same.
fn is_said<F: ?Sized>(place: usize, held: &[Held<F>], depth: usize) -> bool {
    let Some((row, _)) = held.get(place).filter(|_| depth <= held.len()) else { return false };
    let mut others = held.iter().enumerate();
    !others
        .any(|(other, (it, _))| other != place && row.yields_to(it, other < place) && is_said(other, held, depth + 1))
}

/// The texts of sentences, for tables whose sentences have nothing else.
pub(crate) fn texts(sentences: Vec<Sentence>) -> Vec<String> {
    sentences.into_iter().map(|it| it.text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The facts of these tests.
    #[derive(Default)]
    struct Machine {
        hot: bool,
        failed: bool,
        idle: bool,
        unplugged: bool,
    }

    fn row<'r>(level: Level, name: &'static str, is: fn(&Machine) -> bool) -> Row<'r, Machine> {
        Row::new(level, name, move |it| is(it).then(|| format!("It is {name}.")))
    }

    fn table<'r>() -> Vec<Row<'r, Machine>> {
        vec![
            row(Level::Note, "idle", |it| it.idle).last(),
            row(Level::Warn, "failed", |it| it.failed),
            row(Level::Good, "well", |_| true).one_of("state").unless_any(Level::Warn),
            row(Level::Note, "known", |_| true).one_of("state"),
        ]
    }

    fn said(rows: &[Row<Machine>], facts: &Machine) -> Vec<&'static str> {
        evaluate(rows, facts).into_iter().map(|it| it.name).collect()
    }

    #[test]
    fn evaluate_says_the_worst_first_and_nothing_beside_that_to_which_it_gives_way() {
        let failed = Machine { failed: true, idle: true, ..Machine::default() };
        assert_eq!(said(&table(), &failed), ["failed", "known", "idle"]);
        assert_eq!(said(&table(), &Machine { idle: true, ..Machine::default() }), ["well", "idle"]);
    }

    #[test]
    fn evaluate_a_new_sentence_is_one_row() {
        let mut rows = table();
        rows.push(row(Level::Note, "hot", |it| it.hot).cause_of(&["failed"]));
        // As a cause it comes before what it led to; else it is a note, before the last one.
        let mut facts = Machine { hot: true, failed: true, idle: true, ..Machine::default() };
        assert_eq!(said(&rows, &facts), ["hot", "failed", "known", "idle"]);
        facts.failed = false;
        assert_eq!(said(&rows, &facts), ["well", "hot", "idle"]);
        let sentence = &evaluate(&rows, &facts)[1];
        assert_eq!((sentence.text.as_str(), sentence.level), ("It is hot.", Level::Note));
        // One that excludes others, and one before all.
        rows.push(row(Level::Bad, "unplugged", |it| it.unplugged).head());
        facts.unplugged = true;
        assert_eq!(said(&rows, &facts), ["unplugged", "known", "hot", "idle"]);
        // A row that gives way excludes no other.
        rows.push(row(Level::Note, "cold", |it| !it.hot).unless(&["known"]));
        facts.hot = false;
        assert_eq!(said(&rows, &facts), ["unplugged", "known", "idle"]);
        facts.unplugged = false;
        assert_eq!(said(&rows, &facts), ["well", "cold", "idle"]);
    }
}
