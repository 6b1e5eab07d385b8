//! The path of a call as a trace has it, and as JSON has it.

use p2pshim_trace::{Class, Path, Verified, Why};
use serde::{Serialize, Serializer};

/// The path that copies took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(into = "Fields")]
pub(crate) struct Taken {
    /// None if the trace does not say, or its number is one of a later version.
    pub(crate) path: Option<Path>,
    /// Whether one end is memory of another process than that of the other end.
    pub(crate) between_processes: bool,
    /// Whether they are first copies of a pair that then failed verification.
    pub(super) are_before_failure: bool,
}

impl Taken {
    pub(super) const fn of(path: Option<Path>) -> Self {
        Self { path, between_processes: false, are_before_failure: false }
    }

    /// It is known how verification of the pair came out.
    pub(super) fn judge(&mut self, has_failed: bool) {
        self.are_before_failure = has_failed && self.class() == Class::StartUp;
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
        if self.are_before_failure {
            return Some("before verification failed");
        }
        self.path.map(Path::reason).filter(|reason| !reason.is_empty())
    }

    /// The path, and after a colon the reason; and whether it was between processes.
    pub(crate) fn title(self) -> String {
        let why = self.why().map(|why| format!(": {why}")).unwrap_or_default();
        let title = format!("{}{why}", self.name());
        if self.between_processes { format!("{title}, between processes") } else { title }
    }

    pub(crate) fn remedy(self) -> Option<&'static str> {
        let path = if self.are_before_failure { Some(Path::Staged(Why::Broken)) } else { self.path };
        path.map(Path::remedy).filter(|remedy| !remedy.is_empty())
    }
}

/// [`Taken`] in JSON.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Fields {
    /// How the bytes travelled: `direct`, `staged` (through the host), `mapped on first use` (HIP),
    /// `same-device`, `host`, `by hand` (through the host, by two copies of the program), `unknown`.
    path: &'static str,
    /// Why, for example `access not enabled`; null if there is no reason to give.
    why: Option<&'static str>,
    /// Meaning of the path and its reason: `direct`; `mapped` (HIP maps the memory for a copy on first use;
    /// how it travels was not measured); through the host as `start-up` (the first copies of a pair),
    /// `avoidable` (the program has not given access, where the GPUs may have a path), `blocked` (peer access
    /// loses data there, or hangs) or `staged` (on purpose, no path is better, or the pair was not verified);
    /// `same-device`; `host`; `captured`; `by-hand` (through the host, by two copies of the program);
    /// `unknown`.
    #[cfg_attr(test, schemars(extend("enum" = ["direct", "mapped", "start-up", "avoidable", "blocked", "staged", "same-device", "host", "captured", "by-hand", "unknown"])))]
    class: &'static str,
    /// Advice to a user whose copies take that path for that reason; null if there is none.
    remedy: Option<&'static str>,
    /// Whether they went between memory of two processes. Within one GPU their path is `same-device`.
    between_processes: bool,
}

impl From<Taken> for Fields {
    fn from(taken: Taken) -> Self {
        let Taken { between_processes, .. } = taken;
        let (path, class) = (taken.name(), taken.class().name());
        Self { path, why: taken.why(), class, remedy: taken.remedy(), between_processes }
    }
}

/// The path of a call in JSON: `null` where a copy with neither path nor reason may not have been one.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CallFields {
    /// The path that the copy took or was to take: `direct`, `staged`, …
    path: Option<&'static str>,
    /// Why it took that path, if there is a reason.
    why: Option<&'static str>,
}

pub(super) fn of_call<S: Serializer>(path: &Option<Path>, serializer: S) -> Result<S::Ok, S::Error> {
    CallFields { path: path.map(Path::name), why: Taken::of(*path).why() }.serialize(serializer)
}

/// Writes the outcome of a verification.
pub(super) fn of_verified<S: Serializer>(verified: &Option<Verified>, serializer: S) -> Result<S::Ok, S::Error> {
    verified.map(Verified::name).serialize(serializer)
}
