//! Numbers as people read them, and what a terminal is.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::time::Duration;

use p2pshim_host::text::{Bytes, Elapsed, Escaped};
use terminal_size::{Width, terminal_size_of};
use textwrap::{WordSeparator, WordSplitter};

/// Columns that a report has at least, and that `COLUMNS` may ask for.
const LEAST: usize = 40;
const MOST: usize = 10_000;

/// Bytes, in the unit that shows them in at most three digits before the point.
pub(crate) fn bytes(count: u64) -> String {
    Bytes(count).to_string()
}

/// A duration, likewise; as the log shows it, but long ones as people say them.
pub(super) fn duration(nanos: u64) -> String {
    const MINUTE: u64 = 60_000_000_000;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    let in_units = |unit: u64| nanos.saturating_add(unit / 2) / unit;
    match nanos {
        _ if nanos < MINUTE => Elapsed(Duration::from_nanos(nanos)).to_string(),
        _ if nanos < 2 * MINUTE => format!("{} s", in_units(MINUTE / 60)),
        _ if nanos < 2 * HOUR => format!("{} min", in_units(MINUTE)),
        _ if nanos < 2 * DAY => format!("{} h", in_units(HOUR)),
        _ => format!("{} days", in_units(DAY)),
    }
}

/// A duration that is right to 3 %, in two digits; the longest that there is, if that would be more.
pub(super) fn rough(nanos: u64, max: u64) -> String {
    let unit = 10u64.pow(nanos.checked_ilog10().unwrap_or(0).saturating_sub(1));
    let rounded = nanos.saturating_add(unit / 2) / unit * unit;
    if rounded > max {
        return duration(max);
    }
    let text = duration(rounded);
    // 1.2us keeps its point, and 650us needs none.
    match text.split_once('.') {
        Some((whole, rest)) if whole.len() > 1 => {
            format!("{whole}{}", rest.trim_start_matches(|letter: char| letter.is_ascii_digit()))
        }
        Some((whole, rest)) if rest.len() > 2 => {
            let (digit, unit) = (rest.get(..1).unwrap_or_default(), rest.trim_start_matches(char::is_numeric));
            format!("{whole}.{digit}{unit}")
        }
        _ => text,
    }
}

/// Seconds, in three digits or so.
pub(crate) fn seconds(seconds: f64) -> String {
    match seconds {
        0.0 => "0 s".to_owned(),
        ..1e-4 => format!("{:.1} us", seconds * 1e6),
        ..0.1 => format!("{:.1} ms", seconds * 1e3),
        ..60.0 => format!("{seconds:.2} s"),
        _ => duration((seconds * 1e9) as u64),
    }
}

/// A number with its thousands apart.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// `1 call`, `2 calls`.
pub(crate) fn counted(number: u64, word: &str) -> String {
    format!("{} {word}{}", count(number), if number == 1 { "" } else { "s" })
}

/// The first of some texts with something between them, and how many more there are.
pub(crate) fn few(all: &[impl AsRef<str>], most: usize, between: &str) -> String {
    let mut text = all.iter().take(most).map(AsRef::as_ref).collect::<Vec<_>>().join(between);
    if let Some(more @ 1..) = all.len().checked_sub(most) {
        let semicolon = if between.starts_with(';') { ";" } else { "" };
        text += &format!("{semicolon} and {} more", count(more as u64));
    }
    text
}

/// A text from a file, as it can go to a terminal.
pub(crate) fn clean(text: &str) -> String {
    Escaped(text).to_string()
}

/// How the report is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    /// Whether there are colours.
    pub(crate) colour: bool,
    /// Columns; none if lines are as long as they are.
    pub(crate) width: Option<usize>,
}

impl Style {
    /// The style that standard output can show.
    pub(crate) fn of_stdout() -> Self {
        Self::of(&io::stdout())
    }

    /// The style that standard error can show.
    pub(crate) fn of_stderr() -> Self {
        Self::of(&io::stderr())
    }

    /// The style of a file.
    pub(crate) fn of_file() -> Self {
        Self { colour: false, width: columns(std::env::var_os("COLUMNS")) }
    }

    fn of(out: &(impl IsTerminal + AsFd)) -> Self {
        if !out.is_terminal() {
            return Self::of_file();
        }
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_none_or(|value| value == "dumb");
        let known = terminal_size_of(out).map(|(Width(columns), _)| columns.into());
        let width = columns(std::env::var_os("COLUMNS")).or(known.filter(|&width| width >= LEAST)).unwrap_or(80);
        Self { colour: !(no_colour || is_dumb), width: Some(width) }
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.paint("1;31", text)
    }

    pub(super) fn yellow(self, text: &str) -> String {
        self.paint("33", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.colour && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// The columns that `COLUMNS` sets, if a report can be read in so many.
fn columns(value: Option<OsString>) -> Option<usize> {
    value?.to_str()?.parse().ok().filter(|columns| (LEAST..=MOST).contains(columns))
}

/// Lines of words that fit. The first keeps its spaces; what comes after it begins with the indent.
pub(crate) fn wrapped(text: &str, width: Option<usize>, indent: &str) -> String {
    let Some(width) = width else { return text.to_owned() };
    let options = textwrap::Options::new(width).subsequent_indent(indent).break_words(false);
    let options = options.word_separator(WordSeparator::AsciiSpace).word_splitter(WordSplitter::NoHyphenation);
    textwrap::fill(text, options)
}

/// A time since 1970, in UTC.
pub(crate) fn date(nanos: u64) -> String {
    let seconds = nanos / 1_000_000_000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days since 1 March of the year 0: each 400 years have 146 097.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", second / 3600, second / 60 % 60, second % 60)
}

/// As a sentence begins.
pub(crate) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_leap_years_and_centuries() {
        for (seconds, shown) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (951_868_799, "2000-02-29 23:59:59 UTC"),
            (1_709_164_800, "2024-02-29 00:00:00 UTC"),
            (1_735_689_599, "2024-12-31 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(date(seconds * 1_000_000_000), shown);
        }
        assert!(date(u64::MAX).starts_with("2554-07-21"));
    }

    #[test]
    fn duration_long_ones_are_in_units_that_people_use() {
        const SECOND: u64 = 1_000_000_000;
        for (seconds, shown) in [
            (1, "1.000s"),
            (60, "60 s"),
            (150, "3 min"),
            (7199, "120 min"),
            (7200, "2 h"),
            (172_800, "2 days"),
            (4_060_800, "47 days"),
        ] {
            assert_eq!(duration(seconds * SECOND), shown);
        }
        assert_eq!(duration(u64::MAX), "213503 days");
        assert_eq!([0.000_05, 0.0225, 0.64, 90.0].map(seconds), ["50.0 us", "22.5 ms", "0.64 s", "90 s"]);
    }

    #[test]
    fn rough_has_two_digits() {
        for (nanos, shown) in [
            (0, "0ns"),
            (7, "7ns"),
            (900, "900ns"),
            (1_296, "1.3us"),
            (9_960, "10us"),
            (65_100, "65us"),
            (650_100, "650us"),
            (1_234_567_890, "1.2s"),
            (12_345_678_901, "12s"),
        ] {
            assert_eq!(rough(nanos, u64::MAX), shown);
        }
        assert_eq!(rough(168_400, 168_400), "168.4us", "not more than the longest");
    }

    #[test]
    fn count_thousands_stand_apart() {
        for (number, shown) in [(0, "0"), (999, "999"), (1000, "1 000"), (12_345_678, "12 345 678")] {
            assert_eq!(count(number), shown);
        }
        assert_eq!((counted(1, "call"), counted(2, "call")), ("1 call".to_owned(), "2 calls".to_owned()));
    }

    #[test]
    fn few_names_the_first_and_counts_the_others() {
        let all = ["a", "b", "c", "d"];
        assert_eq!(
            [few(&all, 4, ", "), few(&all, 3, " "), few(&all, 2, "; ")],
            ["a, b, c, d", "a b c and 1 more", "a; b; and 2 more"]
        );
    }

    #[test]
    fn clean_leaves_no_control_characters() {
        assert_eq!(clean("a\x1b[31mb\n\u{9b}"), "a\\x1b[31mb\\n\\u{9b}");
    }

    #[test]
    fn columns_only_what_can_be_read() {
        for (value, expected) in [("100", Some(100)), ("40", Some(40)), ("39", None), ("0", None), ("wide", None)] {
            assert_eq!(columns(Some(value.into())), expected, "{value}");
        }
        assert_eq!(columns(None), None);
    }

    #[test]
    fn wrapped_lines_fit() {
        assert_eq!(wrapped("aaa bbb ccc", Some(7), "  "), "aaa bbb\n  ccc");
        assert_eq!(wrapped("  aaa bbb", Some(5), "    "), "  aaa\n    bbb");
        assert_eq!(wrapped("aaa bbb ccc", None, "  "), "aaa bbb ccc");
        assert_eq!(wrapped("aaaaaaaaaaaa b", Some(5), ""), "aaaaaaaaaaaa\nb");
        assert_eq!(wrapped("模型 模型", Some(7), ""), "模型\n模型", "each of these letters takes two columns");
    }
}
