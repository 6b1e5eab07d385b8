//! A line of a Python program.

use std::fmt::{self, Display, Formatter};

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
        write!(out, "{file}:{} in {}", self.number, self.function)
    }
}
