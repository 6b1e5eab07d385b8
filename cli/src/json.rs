//! JSON for programs, which people also look at: no letter of it commands a terminal.

use std::io::{self, Write};

use p2pshim_host::text::is_escaped;
use serde::Serialize;

/// Writes a value as one line.
///
/// # Errors
/// The output cannot be written.
pub(crate) fn write_line(value: &impl Serialize, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    serde_json::to_writer(Plain(&mut *out), value)?;
    out.write_all(b"\n")
}

/// Writes a value as lines that are easy to read.
///
/// # Errors
/// The output cannot be written.
pub(crate) fn write_pretty(value: &impl Serialize, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    serde_json::to_writer_pretty(Plain(&mut *out), value)?;
    out.write_all(b"\n")
}

/// Has the letters written as `\u009b` that JSON allows in a string and a terminal may obey. Text comes in whole letters.
pub(crate) struct Plain<W>(pub(crate) W);

impl<W: Write> Write for Plain<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = std::str::from_utf8(bytes).map_err(io::Error::other)?;
        while let Some((at, letter)) = rest.char_indices().find(|&(_, letter)| letter != '\n' && is_escaped(letter)) {
            let (before, after) = rest.split_at(at);
            self.0.write_all(before.as_bytes())?;
            letter.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(self.0, "\\u{unit:04x}"))?;
            rest = after.get(letter.len_utf8()..).unwrap_or_default();
        }
        self.0.write_all(rest.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_read_back_as_they_were_and_are_plain_until_then() {
        let text = "a\u{7f}\u{9b}1m\u{1b}\n\t\"\\\u{202e}\u{2028}GPU 0 → 1 \u{1f600}";
        for is_pretty in [false, true] {
            let mut out = Vec::new();
            if is_pretty { write_pretty(&text, &mut out) } else { write_line(&text, &mut out) }.unwrap();
            assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
            let shown = String::from_utf8(out).unwrap();
            assert!(!shown.trim_end().chars().any(is_escaped) && shown.contains("→ 1 \u{1f600}"), "{shown:?}");
        }
    }
}
