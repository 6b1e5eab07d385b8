//! The conditions that a run is to keep to, as `--fail-on` names them.

use std::ffi::OsStr;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command};
use p2pshim_host::nearest::nearest;
use p2pshim_host::size::size;

use crate::tables;

/// The names, and after an equals sign what may or has to follow.
const NAMES: [(&str, &str); 9] = [
    ("staged", "[=BYTES]"),
    ("bounce", ""),
    ("hazard", ""),
    ("error", ""),
    ("finding", "[=ID]"),
    ("unverified", ""),
    ("slow", "=GB/s"),
    ("race", ""),
    ("possible-race", ""),
];

/// Reads conditions; shells complete their names.
#[derive(Clone)]
pub(super) struct ConditionParser;

impl TypedValueParser for ConditionParser {
    type Value = Condition;

    fn parse_ref(&self, command: &Command, argument: Option<&Arg>, value: &OsStr) -> Result<Condition, clap::Error> {
        Condition::from_str.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(NAMES.iter().map(|(name, value)| match value.strip_prefix('=') {
            Some(_) => PossibleValue::new(format!("{name}=")),
            None => PossibleValue::new(*name),
        })))
    }
}

/// Something that is not to happen.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Condition {
    /// As it was given.
    text: String,
    pub(super) is: What,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum What {
    /// More than so many bytes are staged, without the first copies of a pair.
    Staged(u64),
    /// The program copies from GPU to GPU by its own copies through the host.
    Bounce,
    /// A finding is a hazard.
    Hazard,
    /// A call fails, or a finding is an error.
    Error,
    /// There is a finding: of this id, or else any that is no note.
    Finding(Option<String>),
    /// Copies are direct between GPUs that were not verified, or failed that.
    Unverified,
    /// Large copies of a pair make fewer GB/s.
    Slow(f64),
    /// Two accesses have no order, or memory is freed too early.
    Race,
    /// They may have none.
    PossibleRace,
}

impl Display for Condition {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        let is = match (name, value) {
            ("staged", None) => What::Staged(0),
            ("staged", Some(value)) => What::Staged(size(value).map_err(|why| format!("{value:?} is {why}"))?),
            ("slow", value) => {
                let rate = value.and_then(|value| value.trim_end_matches("GB/s").trim().parse().ok());
                let rate = rate.filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
                What::Slow(rate.ok_or("slow needs the least GB/s that copies may have, such as slow=20")?)
            }
            ("finding", None) => What::Finding(None),
            ("finding", Some(id)) => What::Finding(Some(known_id(id)?)),
            ("bounce", None) => What::Bounce,
            ("hazard", None) => What::Hazard,
            ("error", None) => What::Error,
            ("unverified", None) => What::Unverified,
            ("race", None) => What::Race,
            ("possible-race", None) => What::PossibleRace,
            (name, Some(_)) if NAMES.iter().any(|(known, _)| *known == name) => {
                return Err(format!("{name} takes no value"));
            }
            (name, _) => return Err(unknown(name)),
        };
        Ok(Self { text: text.to_owned(), is })
    }
}

/// The id of a finding, as it is written.
fn known_id(id: &str) -> Result<String, String> {
    let rules = tables::read().map_err(|error| error.to_string())?.rules;
    let known = rules.iter().map(|rule| rule.id.as_str());
    let meant = nearest(id, known.clone()).map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
    let found = { known }.find(|known| known.eq_ignore_ascii_case(id));
    found.map(str::to_owned).ok_or_else(|| {
        format!("{id:?} is no finding{meant} `p2pshim explain` lists them").replace("finding `", "finding. `")
    })
}

fn unknown(name: &str) -> String {
    let meant = nearest(name, NAMES.iter().map(|(known, _)| *known));
    let meant = meant.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
    let all = NAMES.map(|(name, value)| format!("{name}{value}")).join(", ");
    format!("{name:?} is no condition{meant} There are {all}").replace("condition There", "condition. There")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn condition_each_form_is_taken_and_told_as_it_was_given() {
        for (text, is) in [
            ("staged", What::Staged(0)),
            ("staged=4096", What::Staged(4096)),
            ("staged=10MB", What::Staged(10_000_000)),
            ("staged=1 MiB", What::Staged(1 << 20)),
            ("bounce", What::Bounce),
            ("hazard", What::Hazard),
            ("error", What::Error),
            ("finding", What::Finding(None)),
            ("finding=P2P-enable-twice", What::Finding(Some("P2P-enable-twice".to_owned()))),
            ("unverified", What::Unverified),
            ("slow=20", What::Slow(20.0)),
            ("slow=0.5GB/s", What::Slow(0.5)),
            ("race", What::Race),
            ("possible-race", What::PossibleRace),
        ] {
            let condition: Condition = text.parse().unwrap();
            assert_eq!(condition.to_string(), text);
            assert_eq!(condition.is, is);
        }
    }

    #[test]
    fn condition_that_is_none_is_told_what_there_is() {
        let wrong = |text: &str| text.parse::<Condition>().unwrap_err();
        assert_eq!(
            wrong("stagd"),
            "\"stagd\" is no condition; did you mean staged? There are staged[=BYTES], bounce, hazard, error, finding[=ID], unverified, slow=GB/s, race, possible-race"
        );
        assert!(wrong("x").starts_with("\"x\" is no condition. There are staged"), "{}", wrong("x"));
        assert!(wrong("").starts_with("\"\" is no condition. There are"), "{}", wrong(""));
        for text in ["staged=", "staged=-1", "staged=1.5", "staged=10XB", "staged=99999999999GiB"] {
            assert!(wrong(text).contains("is no size; write bytes"), "{text}: {}", wrong(text));
        }
        for text in ["slow", "slow=", "slow=0", "slow=nan", "slow=fast"] {
            assert!(wrong(text).starts_with("slow needs the least GB/s"), "{text}: {}", wrong(text));
        }
        assert_eq!(wrong("hazard=1"), "hazard takes no value");
        let meant = "\"P2P-enable-twise\" is no finding; did you mean P2P-enable-twice? `p2pshim explain` lists them";
        assert_eq!(wrong("finding=P2P-enable-twise"), meant);
    }
}
