//! Parts of logs and reports that are shown the same everywhere: text from outside, bytes, and durations.

use std::fmt::{self, Display, Formatter, Write};
use std::time::Duration;

/// A text without what a terminal would obey, or what would make it read as something else: control characters, ends of lines
/// and marks of direction are shown as `\x1b`, `\n` or `\u{202e}`.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<T>(pub T);

impl<T: Display> Display for Escaped<T> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(Escaping(out), "{}", self.0)
    }
}

struct Escaping<'a, 'b>(&'a mut Formatter<'b>);

impl Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some((at, letter)) = rest.char_indices().find(|&(_, letter)| is_escaped(letter)) {
            let (before, after) = rest.split_at(at);
            self.0.write_str(before)?;
            match letter {
                '\n' | '\r' | '\t' => write!(self.0, "{}", letter.escape_default())?,
                '\0'..='\u{7f}' => write!(self.0, "\\x{:02x}", u32::from(letter))?,
                _ => write!(self.0, "{}", letter.escape_unicode())?,
            }
            rest = after.get(letter.len_utf8()..).unwrap_or_default();
        }
        self.0.write_str(rest)
    }
}

/// Whether a character is not shown as it is.
pub fn is_escaped(letter: char) -> bool {
    let turns = matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    letter.is_control() || turns || matches!(letter, '\u{2028}' | '\u{2029}')
}

/// Bytes in the unit that shows them in at most three digits before the point.
#[derive(Clone, Copy, Debug)]
pub struct Bytes(pub u64);

impl Display for Bytes {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
        if self.0 < 1000 {
            return write!(out, "{} B", self.0);
        }
        let mut value = self.0 as f64;
        let mut unit = "B";
        for name in UNITS {
            // 999.95 would be shown with four digits.
            if value < 999.95 {
                break;
            }
            (value, unit) = (value / 1e3, name);
        }
        write!(out, "{value:.1} {unit}")
    }
}

/// A duration in the unit that shows it in at most three digits before the point.
#[derive(Clone, Copy, Debug)]
pub struct Elapsed(pub Duration);

impl Display for Elapsed {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let nanoseconds = self.0.as_nanos();
        match nanoseconds {
            0..1_000 => write!(out, "{nanoseconds}ns"),
            1_000..1_000_000 => write!(out, "{:.1}us", nanoseconds as f64 / 1e3),
            1_000_000..1_000_000_000 => write!(out, "{:.1}ms", nanoseconds as f64 / 1e6),
            _ => write!(out, "{:.3}s", nanoseconds as f64 / 1e9),
        }
    }
}

/// A text without the rest of what is too long to be read: of words, and of all.
pub fn shortened(text: &str) -> String {
    const WORD: usize = 200;
    const ALL: usize = 1000;
    let cut = |text: &str, most: usize| match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    };
    let words: Vec<String> = text.split(' ').map(|word| cut(word, WORD)).collect();
    cut(&words.join(" "), ALL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_each_unit() {
        for (number, shown) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (999_949, "999.9 kB"),
            (999_951, "1.0 MB"),
            (12_300_000_000, "12.3 GB"),
            (u64::MAX, "18.4 EB"),
        ] {
            assert_eq!(Bytes(number).to_string(), shown);
        }
    }

    #[test]
    fn elapsed_each_unit() {
        for (nanoseconds, shown) in
            [(0, "0ns"), (999, "999ns"), (1_000, "1.0us"), (25_000_000, "25.0ms"), (1_500_000_000, "1.500s")]
        {
            assert_eq!(Elapsed(Duration::from_nanos(nanoseconds)).to_string(), shown);
        }
    }

    #[test]
    fn shortened_leaves_out_the_rest_of_long_words_and_of_long_texts() {
        assert_eq!(shortened("--deny=0-1 as it is"), "--deny=0-1 as it is");
        assert_eq!(shortened(&format!("a {} b", "é".repeat(100_000))), format!("a {}… b", "é".repeat(200)));
        assert_eq!(shortened(&"x ".repeat(100_000)).chars().count(), 1001);
    }

    #[test]
    fn escaped_nothing_is_left_that_a_terminal_obeys() {
        for (text, shown) in [
            ("GPU 0 → 1 \\ é", "GPU 0 → 1 \\ é"),
            ("\x1b[31mred", "\\x1b[31mred"),
            ("a\nb\r\tc", "a\\nb\\r\\tc"),
            ("\u{9b}1m\u{7f}\0", "\\u{9b}1m\\x7f\\x00"),
            ("exe.\u{202e}gnp", "exe.\\u{202e}gnp"),
            ("\u{2028}", "\\u{2028}"),
        ] {
            assert_eq!(Escaped(text).to_string(), shown);
        }
    }
}
