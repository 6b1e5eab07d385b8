//! The meaning of the paths and reasons that traces name.

use serde::Serialize;

/// The meaning of a path, with the reason why copies took it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Class {
    /// From GPU to GPU.
    Direct,
    /// HIP's, which maps the memory for a copy on first use. It was not measured that such a copy is direct.
    Mapped,
    /// Staged, as the first copies of a pair are, until it is known to be worth access, and right.
    StartUp,
    /// Staged because the program has not given access, where the GPUs have a path.
    Avoidable,
    /// Staged, as peer access loses data there, or hangs.
    Blocked,
    /// Staged for another reason: on purpose, because nothing is better, or because it was not known whether data would arrive.
    Staged,
    SameDevice,
    Host,
    /// It became part of a graph, and was not made.
    Captured,
    #[default]
    Unknown,
}

/// The reasons for staging that mean more than that, by parts of what traces say.
const REASONS: &[(&str, Class)] = &[
    ("blocked", Class::Blocked),
    // In older traces.
    ("vetoed", Class::Blocked),
    ("not yet worth", Class::StartUp),
    ("being verified", Class::StartUp),
    ("not enabled", Class::Avoidable),
    // In older traces.
    ("never enabled", Class::Avoidable),
    ("pool", Class::Avoidable),
    ("mapped", Class::Avoidable),
];

impl Class {
    pub(super) fn of(path: &str, why: Option<&str>) -> Self {
        match path {
            "direct" => Self::Direct,
            "mapped on first use" => Self::Mapped,
            "same-device" => Self::SameDevice,
            "host" => Self::Host,
            "captured" => Self::Captured,
            "staged" => {
                let reason = REASONS.iter().find(|(part, _)| why.is_some_and(|why| why.contains(part)));
                reason.map_or(Self::Staged, |(_, class)| *class)
            }
            _ => Self::Unknown,
        }
    }

    /// Whether the bytes went through the host.
    pub(super) fn is_staged(self) -> bool {
        matches!(self, Self::StartUp | Self::Avoidable | Self::Blocked | Self::Staged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_reason_of_the_shim() {
        for (why, expected) in [
            ("never enabled", Class::Avoidable),
            ("access not enabled", Class::Avoidable),
            ("not yet worth enabling", Class::StartUp),
            ("being verified by another thread", Class::StartUp),
            ("verified after the capture", Class::Staged),
            ("pool without access", Class::Avoidable),
            ("mapped memory without access", Class::Avoidable),
            ("peer limit", Class::Staged),
            ("devices are busy, to be verified later", Class::Staged),
            ("could not be verified", Class::Staged),
            ("blocked: lost data or hung in verification", Class::Blocked),
            ("vetoed: lost data, or hung, when verified", Class::Blocked),
            ("blocked, by p2pshim in the driver's place", Class::Blocked),
            ("denied", Class::Staged),
            ("denied, by p2pshim in the driver's place", Class::Staged),
            ("no hardware path", Class::Staged),
            ("direct is slower", Class::Staged),
            ("something new", Class::Staged),
        ] {
            assert_eq!(Class::of("staged", Some(why)), expected, "{why}");
        }
        assert_eq!(Class::of("staged", None), Class::Staged);
        assert_eq!(Class::of("direct", Some("never enabled")), Class::Direct);
        assert_eq!(Class::of("something new", None), Class::Unknown);
    }

    #[test]
    fn is_staged_for_each_reason_and_no_other_path() {
        assert!(REASONS.iter().all(|(part, _)| Class::of("staged", Some(part)).is_staged()));
        assert!(
            ["direct", "mapped on first use", "same-device", "host", "captured", ""].iter().all(|path| !Class::of(
                path,
                Some("blocked")
            )
            .is_staged())
        );
    }
}
