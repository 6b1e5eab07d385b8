//! THE rules: what programs get wrong with peer calls. Their texts are in rules.txt, which says how to add one.

use crate::api::Layer;
use crate::api::abi::Code;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// The call fails, or would fail if CUDA checked its arguments.
    Error,
    /// The call succeeds, and data may be wrong.
    Hazard,
    /// It takes longer than it has to.
    Performance,
    /// Harmless by itself; what programs make of it is often not. In the log from `info` on.
    Note,
}

impl Severity {
    /// The severity's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Hazard => "hazard",
            Self::Performance => "performance",
            Self::Note => "note",
        }
    }
}

/// The texts of a rule. Tests, which write the tables of all texts, have those that the library does not need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text {
    /// The stable id, with a terminating NUL, so that it can be handed to C.
    pub(crate) id: &'static str,
    /// How bad it is.
    pub(crate) severity: Severity,
    /// The functions that it is about, as far as the program calls them.
    #[cfg(test)]
    pub(crate) functions: &'static str,
    /// The codes that the documentation gives: of the runtime, the driver, and HIP. 0 for none.
    pub(crate) codes: [i32; 3],
    /// The documentation's words, and their place.
    #[cfg(test)]
    pub(crate) documentation: &'static str,
    /// The behaviour of real hardware, where it is not that.
    #[cfg(test)]
    pub(crate) hardware: &'static str,
    /// Why it matters.
    pub(crate) why: &'static str,
    /// The remedy.
    pub(crate) remedy: &'static str,
}

include!(concat!(env!("OUT_DIR"), "/rules.rs"));

impl Text {
    /// The code of a layer; success for none.
    pub(crate) fn code(&self, layer: Layer) -> Code {
        let [runtime, driver, hip] = self.codes;
        Code(match layer {
            Layer::Runtime => runtime,
            Layer::Driver => driver,
            Layer::Hip => hip,
            Layer::Nvml => 0,
        })
    }
}

impl Rule {
    /// The code that the documentation gives for it.
    pub(crate) fn code(self, layer: Layer) -> Option<Code> {
        Some(self.text().code(layer)).filter(|&code| code != Code::SUCCESS)
    }

    /// The stable id.
    pub(crate) fn id(self) -> &'static str {
        self.text().id.trim_end_matches('\0')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_each_is_well_formed_and_unique() {
        for (position, &rule) in Rule::ALL.iter().enumerate() {
            assert_eq!(rule as usize, position);
            let id = rule.id();
            let parts: Vec<_> = id.split('-').collect();
            assert!(parts.len() >= 2 && parts[0] == "P2P", "{id}");
            let is_plain = |part: &&str| part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
            assert!(parts[1..].iter().all(is_plain), "{id}");
            assert_eq!(Rule::ALL.iter().filter(|other| other.id() == id).count(), 1, "{id}");
        }
    }

    #[test]
    fn text_each_says_what_matters_and_what_to_do() {
        for rule in Rule::ALL {
            let text = rule.text();
            assert_eq!(text.id.find('\0'), Some(text.id.len() - 1), "{}", rule.id());
            for sentence in [text.documentation, text.why, text.remedy] {
                assert!(sentence.ends_with('.'), "{}: {sentence}", rule.id());
            }
        }
    }
}
