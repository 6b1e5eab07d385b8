//! Options as the program gives them itself, by the C interface, before and after they are read.
//!
//! Until the first intercepted call they are kept, and then go before the environment's. After it only those change that
//! can change under way.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Changes, Config, Variable};

/// Why an option is not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It has no such value.
    Value,
    /// It cannot change any more.
    TooLate,
}

/// The options that are in effect, and those that the program has set. The lock is the standard library's: threads wait for it during the
/// start, when nothing may be allocated that they would wait with.
pub struct Settings(Mutex<State>);

struct State {
    /// The values that the program has set; empty for the default.
    own: BTreeMap<&'static str, OsString>,
    /// The values that hold since the options were read.
    held: Option<Held>,
}

struct Held {
    config: Config,
    values: BTreeMap<&'static str, OsString>,
}

impl Default for Settings {
    fn default() -> Self {
        Self::new()
    }
}

impl Settings {
    /// Nothing is given yet.
    pub const fn new() -> Self {
        Self(Mutex::new(State { own: BTreeMap::new(), held: None }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the options, once: what the program has set itself, and of the rest what the environment has. `with` makes them
    /// take effect, and gets what could not be used of them; until it is done nobody can set any.
    pub fn read<T>(
        &self,
        environment: impl Iterator<Item = (OsString, OsString)>,
        with: impl FnOnce(&Config, Vec<String>) -> T,
    ) -> T {
        let mut state = self.lock();
        let is_set = |name: &OsStr| name.to_str().is_some_and(|name| state.own.contains_key(name));
        let others: Vec<_> = environment.filter(|(name, _)| !is_set(name)).collect();
        let own = state.own.iter().map(|(name, value)| (OsString::from(name), value.clone()));
        let (config, warnings) = Config::read(others.iter().cloned().chain(own));
        let values = Variable::ALL.iter().map(|&option| {
            let given = others.iter().find(|(name, _)| name == option.name()).map(|(_, value)| value.clone());
            let given = state.own.get(option.name()).cloned().or(given);
            (option.name(), option.holding(given))
        });
        let values = values.collect();
        let held = state.held.insert(Held { config, values });
        with(&held.config, warnings)
    }

    /// Sets an option; an empty value stands for the default. After the options were read, `apply` makes what holds from
    /// now on take effect; `is_traced` says whether there is a trace file by then.
    ///
    /// # Errors
    /// Why nothing has changed.
    pub fn set(
        &self,
        option: Variable,
        value: &OsStr,
        is_traced: impl FnOnce() -> bool,
        apply: impl FnOnce(&Config),
    ) -> Result<(), Refused> {
        if !value.is_empty() && option.holding(Some(value.to_owned())) != value {
            return Err(Refused::Value);
        }
        let mut state = self.lock();
        let Some(held) = &mut state.held else {
            state.own.insert(option.name(), value.to_owned());
            return Ok(());
        };
        let mut values = held.values.clone();
        values.insert(option.name(), option.holding(Some(value.to_owned())));
        let of_all = values.iter().map(|(name, value)| (OsString::from(name), value.clone()));
        let (config, _) = Config::read(of_all);
        if config != held.config && !option.may_change(&held.config, &config, is_traced) {
            return Err(Refused::TooLate);
        }
        apply(&config);
        *held = Held { config, values };
        Ok(())
    }

    /// The value that an option has, or will have as far as is known now: `environment` is asked before the options were
    /// read. Empty if it has none.
    pub fn value(&self, option: Variable, mut environment: impl Iterator<Item = (OsString, OsString)>) -> OsString {
        let state = self.lock();
        if let Some(held) = &state.held {
            return held.values.get(option.name()).cloned().unwrap_or_default();
        }
        let own = state.own.get(option.name()).cloned();
        let given = own.or_else(|| environment.find(|(name, _)| name == option.name()).map(|(_, value)| value));
        option.holding(given)
    }

    /// The options that hold, once they were read.
    pub fn config(&self) -> Option<Config> {
        self.lock().held.as_ref().map(|held| held.config.clone())
    }
}

impl Variable {
    /// The value that holds if the option was given this: that, or the default if it is empty or cannot be used.
    fn holding(self, given: Option<OsString>) -> OsString {
        let given = given.filter(|value| !value.is_empty() && self.check(value).is_ok());
        given.unwrap_or_else(|| self.default.into())
    }

    /// Whether an option can still change once the options were read.
    fn may_change(self, before: &Config, after: &Config, is_traced: impl FnOnce() -> bool) -> bool {
        match self.changes() {
            Changes::Never => false,
            Changes::Always => true,
            Changes::UntilTraced => !is_traced(),
            Changes::Between(is_between, _) => is_between(before) && is_between(after),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Access, Validate};

    fn environment(pairs: &[(&str, &str)]) -> impl Iterator<Item = (OsString, OsString)> {
        pairs.iter().map(|&(name, value)| (name.into(), value.into())).collect::<Vec<_>>().into_iter()
    }

    fn option(name: &str) -> Variable {
        Variable::named(name).unwrap()
    }

    fn set(given: &Settings, name: &str, value: &str) -> Result<(), Refused> {
        given.set(option(name), OsStr::new(value), || false, |_| {})
    }

    #[test]
    fn set_before_the_options_are_read_goes_before_the_environment() {
        let given = Settings::new();
        let there = [("P2PSHIM_VALIDATE", "strict"), ("P2PSHIM_ACCESS", "app"), ("P2PSHIM_VERIFY", "nonsense")];
        set(&given, "P2PSHIM_VALIDATE", "off").unwrap();
        set(&given, "P2PSHIM_ACCESS", "").unwrap();
        set(&given, "P2PSHIM_TRACE", "folder").unwrap();
        assert_eq!(given.value(option("P2PSHIM_VALIDATE"), environment(&there)), "off");
        assert_eq!(given.value(option("P2PSHIM_VERIFY"), environment(&there)), "quick", "the default holds");
        let (config, warnings) = given.read(environment(&there), |config, warnings| (config.clone(), warnings));
        assert_eq!((config.validate, config.access), (Validate::Off, Access::Auto));
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert_eq!(given.value(option("P2PSHIM_TRACE"), environment(&[])), "folder");
        assert_eq!(given.config(), Some(config));
    }

    #[test]
    fn set_afterwards_only_what_can_change_does() {
        let given = Settings::new();
        given.read(environment(&[("P2PSHIM_DENY", "0-1"), ("P2PSHIM", "on")]), |_, _| {});
        for (name, value) in [("P2PSHIM_VALIDATE", "strict"), ("P2PSHIM_ACCESS", "app"), ("P2PSHIM_VERIFY", "off")] {
            assert_eq!(set(&given, name, value), Ok(()), "{name}");
            assert_eq!(given.value(option(name), environment(&[])), value);
        }
        for (name, value) in
            [("P2PSHIM", "off"), ("P2PSHIM_ACCESS", "off"), ("P2PSHIM_DENY", ""), ("P2PSHIM_TRACE", "x")]
        {
            assert_eq!(set(&given, name, value), Err(Refused::TooLate), "{name}");
        }
        assert_eq!(set(&given, "P2PSHIM", "on"), Ok(()), "it is that already");
        assert_eq!(set(&given, "P2PSHIM_VALIDATE", "sometimes"), Err(Refused::Value));
        let limit = option("P2PSHIM_TRACE_LIMIT");
        assert_eq!(given.set(limit, OsStr::new("1M"), || true, |_| {}), Err(Refused::TooLate));
        assert_eq!(
            given.set(limit, OsStr::new("1M"), || false, |config| assert_eq!(config.trace_limit, 1 << 20)),
            Ok(())
        );
    }

    #[test]
    fn set_unusable_value_nothing_has_changed() {
        let given = Settings::new();
        for (name, value) in
            [("P2PSHIM", "yes"), ("P2PSHIM_LOG", "loud"), ("P2PSHIM_DENY", "0"), ("P2PSHIM_TRACE_LIMIT", "x")]
        {
            assert_eq!(set(&given, name, value), Err(Refused::Value), "{name}");
        }
        given.read(environment(&[]), |config, _| assert_eq!(*config, Config::default()));
    }
}
