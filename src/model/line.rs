//! Where in a program a call came from, besides the address that it returns to.

use std::fmt::{self, Display, Formatter};

/// Where a call comes from, as far as it was found out.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Origin {
    /// Where the Python program was, if it is one; then where in other files the call came from, innermost first.
    pub(crate) lines: Vec<Line>,
    /// Where the functions continue that enclose the one that made the call, innermost first.
    pub(crate) callers: Vec<usize>,
}

impl Origin {
    /// Nothing, if nothing was found.
    pub(crate) fn known(self) -> Option<Self> {
        (self != Self::default()).then_some(self)
    }

    /// As `key=value`, for a trace.
    pub(crate) fn described(&self) -> impl Iterator<Item = String> {
        let line = self.lines.iter().zip(["", "2", "3"]).flat_map(|(Line { file, number, function }, nth)| {
            [format!("python{nth}={file}"), format!("line{nth}={number}"), format!("function{nth}={function}")]
        });
        let callers: Vec<String> = self.callers.iter().map(|caller| format!("{caller:x}")).collect();
        line.chain((!callers.is_empty()).then(|| format!("callers={}", callers.join(" "))))
    }
}

/// Where a Python program is: as its traceback would say it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Line {
    /// As the interpreter names it: mostly a path.
    pub(crate) file: String,
    pub(crate) number: u32,
    /// With the classes and functions that it is defined in.
    pub(crate) function: String,
}

impl Display for Line {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let file = self.file.rsplit('/').next().unwrap_or_default();
        // Any text may be a file's name, but a line of the log is one line.
        let clean = |text: &str| text.replace(char::is_control, "\u{fffd}");
        write!(out, "{}:{} in {}", clean(file), self.number, clean(&self.function))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_with_control_characters_is_one_line_without() {
        let line = Line { file: "/a/b\n\x1b[31m.py".into(), number: 7, function: "f\r".into() };
        assert_eq!(line.to_string(), "b\u{fffd}\u{fffd}[31m.py:7 in f\u{fffd}");
    }
}
