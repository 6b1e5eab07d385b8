//! The path of a call as a trace has it, and as JSON has it.

use p2pshim_trace::{Class, Path, Verified};
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

/// The path that copies took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Taken {
    /// None if the trace does not say, or its number is one of a later version.
    pub(crate) path: Option<Path>,
    /// Whether one end is memory of another process than that of the other end.
    pub(crate) between_processes: bool,
}

impl Taken {
    pub(super) const fn of(path: Option<Path>) -> Self {
        Self { path, between_processes: false }
    }

    pub(super) fn numbered(number: u8) -> Self {
        Self::of(Path::numbered(number))
    }

    pub(crate) fn name(self) -> &'static str {
        self.path.map_or("unknown", Path::name)
    }

    pub(crate) fn class(self) -> Class {
        self.path.map_or(Class::Unknown, Path::class)
    }

    /// The reason for it, if it needs one.
    pub(crate) fn why(self) -> Option<&'static str> {
        self.path.map(Path::reason).filter(|reason| !reason.is_empty())
    }

    /// The path, and after a colon the reason; and whether it was between processes.
    pub(crate) fn title(self) -> String {
        let title = self.path.map_or_else(|| self.name().to_owned(), Path::title);
        if self.between_processes { format!("{title}, between processes") } else { title }
    }

    pub(crate) fn remedy(self) -> Option<&'static str> {
        self.path.map(Path::remedy).filter(|remedy| !remedy.is_empty())
    }
}

impl Serialize for Taken {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Taken", 5)?;
        fields.serialize_field("path", self.name())?;
        fields.serialize_field("why", &self.why())?;
        fields.serialize_field("class", self.class().name())?;
        fields.serialize_field("remedy", &self.remedy())?;
        fields.serialize_field("between_processes", &self.between_processes)?;
        fields.end()
    }
}

/// Writes path and reason of a call: `null` where a copy with neither may not have been one.
pub(super) fn of_call<S: Serializer>(path: &Option<Path>, serializer: S) -> Result<S::Ok, S::Error> {
    let mut fields = serializer.serialize_struct("Path", 2)?;
    fields.serialize_field("path", &path.map(Path::name))?;
    fields.serialize_field("why", &Taken::of(*path).why())?;
    fields.end()
}

/// Writes the outcome of a verification.
pub(super) fn of_verified<S: Serializer>(verified: &Option<Verified>, serializer: S) -> Result<S::Ok, S::Error> {
    verified.map(Verified::name).serialize(serializer)
}
