//! Where in a program a call came from, besides the address that it returns to.

use p2pshim_host::python::Line;

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
