//! How a call gets in: the C ABI, the machine, the errors, the faults that were asked for.

use std::ffi::CString;
use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use p2psim_core::config::Config;
use p2psim_core::fault::Failure;
use p2psim_core::machine::{ContextHandle, DefaultStream, StreamHandle, StreamRef};
use p2psim_core::{Error, Machine, Repeated, at_fork_in_child, current, visible};

use crate::error::{NO_ERROR, Outcome, Result};
use crate::{flavour, lookup, thread};

/// Defines exported functions. The body is a block that ends in a [`Result`].
///
/// `fn name [gpus] (…)` exports one function; `gpus` is [`Gpus`] in its body, which does not run where there is no device.
/// `fn name (…)` exports one whose body runs in any case. The ABI lets a thread be cancelled while it waits in a call.
macro_rules! api {
    () => {};
    ($(#[$doc:meta])* fn $name:ident [$gpus:ident] ($($arg:ident: $type:ty),* $(,)?) $body:block $($rest:tt)*) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub(crate) extern "C-unwind" fn $name($($arg: $type),*) -> u32 {
            $crate::entry::call(stringify!($name), move || {
                let $gpus = $crate::entry::gpus()?;
                $body
            })
        }
        $crate::entry::api!($($rest)*);
    };
    ($(#[$doc:meta])* fn $name:ident ($($arg:ident: $type:ty),* $(,)?) $body:block $($rest:tt)*) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub(crate) extern "C-unwind" fn $name($($arg: $type),*) -> u32 {
            $crate::entry::call(stringify!($name), move || $body)
        }
        $crate::entry::api!($($rest)*);
    };
}
pub(crate) use api;

/// The machine with the contexts of its devices, which are there for ever.
pub(crate) struct Gpus {
    machine: Machine,
    contexts: Vec<ContextHandle>,
}

impl Deref for Gpus {
    type Target = Machine;

    fn deref(&self) -> &Machine {
        &self.machine
    }
}

impl Gpus {
    fn new(config: Config) -> std::result::Result<Gpus, Error> {
        let machine = Machine::new(config)?;
        let contexts = (0..machine.devices()).map(|device| machine.retain_primary(device));
        let contexts = contexts.collect::<std::result::Result<_, _>>()?;
        Ok(Gpus { machine, contexts })
    }

    /// The calling thread's device.
    pub(crate) fn current(&self) -> Result<usize> {
        Ok(self.machine.current_context()?.device)
    }

    /// Makes a device the calling thread's.
    pub(crate) fn set_current(&self, device: usize) -> Result<()> {
        current::set(Some(self.context(device)?));
        Ok(())
    }

    /// The program's handle of a device's context.
    pub(crate) fn context(&self, device: usize) -> Result<ContextHandle> {
        Ok(self.contexts.get(device).copied().ok_or(Error::INVALID_DEVICE)?)
    }

    /// The device whose context a program names; None for anything else.
    pub(crate) fn device_of(&self, context: u64) -> Option<usize> {
        self.contexts.iter().position(|known| known.0 == context)
    }

    /// Refuses what no capture bears. Before 6.x that breaks none.
    pub(crate) fn refuse_in_captures(&self) -> std::result::Result<(), Error> {
        if flavour::major() >= 6 {
            return self.machine.refuse_beside_captures(Error::STREAM_CAPTURE_IMPLICIT);
        }
        if self.machine.is_capturing_anything() { Err(Error::STREAM_CAPTURE_IMPLICIT) } else { Ok(()) }
    }

    /// The stream that a program means by a handle; what names none counts as one that went with its device.
    pub(crate) fn stream(&self, handle: u64) -> std::result::Result<StreamRef, Error> {
        let stream = match handle {
            0 => StreamRef::Default(DefaultStream::Legacy),
            1 if flavour::major() >= 7 => StreamRef::Default(DefaultStream::Legacy),
            2 => StreamRef::Default(DefaultStream::PerThread),
            created => StreamRef::Created(StreamHandle(created)),
        };
        self.machine.stream_info(stream).map(|_| stream).map_err(|_| Error::CONTEXT_IS_DESTROYED)
    }
}

static GPUS: OnceLock<std::result::Result<Gpus, Error>> = OnceLock::new();
static FORKED: AtomicBool = AtomicBool::new(false);

/// Runs the body of an exported function, unless that is to fail; remembers how it ended and gives the caller its code.
pub(crate) fn call(function: &str, body: impl FnOnce() -> Result<()>) -> u32 {
    let setup = setup();
    let failure = if setup.failures.is_empty() { None } else { setup.failure(function) };
    let outcome = failure
        .map_or_else(|| body().map_or_else(|outcome| outcome, |()| Outcome::Recorded(NO_ERROR)), Outcome::Recorded);
    thread::remember(outcome);
    let (Outcome::Recorded(code) | Outcome::Silent(code)) = outcome;
    code
}

/// The devices, where a call may use them; the calling thread has one of them from then on.
///
/// Without any, 5.2 was measured to answer [`Error::INVALID_DEVICE`], 6.4 and 7.2 [`Error::NO_DEVICE`].
pub(crate) fn gpus() -> Result<&'static Gpus> {
    let gpus = all_gpus()?.ok_or(if flavour::major() < 6 { Error::INVALID_DEVICE } else { Error::NO_DEVICE })?;
    if current::get().is_none() {
        gpus.set_current(0)?;
    }
    Ok(gpus)
}

/// The devices, if there are any.
pub(crate) fn all_gpus() -> Result<Option<&'static Gpus>> {
    // A child of a fork has none of the parent's threads and perhaps a lock that nobody will release.
    if FORKED.load(Ordering::Relaxed) {
        return Err(Error::NOT_INITIALIZED.into());
    }
    let config = &setup().config;
    if config.devices == 0 {
        return Ok(None);
    }
    let gpus = GPUS.get_or_init(|| {
        at_fork_in_child(after_fork);
        Gpus::new(config.clone())
    });
    gpus.as_ref().map(Some).map_err(|error| (*error).into())
}

extern "C" fn after_fork() {
    FORKED.store(true, Ordering::Relaxed);
}

/// The environment's settings: read at the first call.
struct Setup {
    config: Config,
    /// Functions that are to fail, with their uses so far.
    failures: Vec<(Failure, AtomicU64)>,
}

impl Setup {
    /// Functions of CUDA are the other simulation's business.
    fn new() -> Setup {
        // AMD's devices are none of NVML's.
        let mut config = Config { nvlink: None, is_guarded: false, ..Config::from_env() };
        show_visible(&mut config, |name| std::env::var(name).ok());
        let ours = config.faults.failures.iter().filter(|failure| failure.function.starts_with("hip")).cloned();
        let (known, unknown): (Vec<_>, Vec<_>) = ours.partition(|failure| exports(&failure.function));
        for Failure { function, .. } in unknown {
            eprintln!("p2psim: P2PSIM_FAULT: the simulated HIP has no function {function}; ignored");
        }
        Setup { config, failures: known.into_iter().map(|failure| (failure, AtomicU64::new(0))).collect() }
    }

    /// Counts a use of a function; returns what it is to fail with now.
    fn failure(&self, function: &str) -> Option<u32> {
        let of_it = self.failures.iter().filter(|(failure, _)| failure.function == function);
        let due = |(failure, uses): &(Failure, AtomicU64)| {
            (uses.fetch_add(1, Ordering::Relaxed) + 1 >= failure.from_use).then_some(failure.code)
        };
        // All rules count, and the last that is due decides.
        of_it.filter_map(due).last().filter(|code| *code != 0)
    }
}

/// The name of a device in lists of visible devices, by its number on the machine: `GPU-` and 16 digits.
fn name_of(number: usize) -> String {
    format!("GPU-{number:016x}")
}

/// Hides devices as the sources of the runtime of ROCm and of HIP do, one after the other.
fn show_visible(config: &mut Config, variable: impl Fn(&str) -> Option<String>) {
    let names: Vec<String> = (0..config.devices).map(name_of).collect();
    let mut left: Vec<usize> = (0..config.devices).collect();
    if let Some(list) = variable("ROCR_VISIBLE_DEVICES") {
        left = visible(&list, left.len(), Repeated::Ends, |device, name| {
            name.len() > 4 && names.get(device).is_some_and(|known| known.starts_with(name))
        });
    }
    let lists = ["HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"].map(&variable);
    if let Some(list) = lists.into_iter().flatten().find(|list| !list.is_empty()) {
        let number = |device: usize| left.get(device).copied().unwrap_or_default();
        let shown = visible(&list, left.len(), Repeated::IsSkipped, |device, name| {
            names.get(number(device)).is_some_and(|known| known == name)
        });
        left = shown.into_iter().map(number).collect();
    }
    config.show(&left);
}

fn exports(function: &str) -> bool {
    CString::new(function).is_ok_and(|name| lookup::export(&name).is_some())
}

fn setup() -> &'static Setup {
    static SETUP: OnceLock<Setup> = OnceLock::new();
    SETUP.get_or_init(Setup::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn show_visible_takes_one_list_after_the_other() {
        let numbers = |lists: [&str; 3]| {
            let mut config = Config { devices: 4, ..Config::default() };
            let names = ["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"];
            show_visible(&mut config, |name| {
                let (_, list) = names.iter().zip(lists).find(|(known, _)| **known == name)?;
                (list != "unset").then(|| list.to_owned())
            });
            (0..config.devices).map(|device| config.number(device)).collect::<Vec<_>>()
        };
        assert_eq!(numbers(["unset", "unset", "unset"]), [0, 1, 2, 3]);
        assert_eq!(numbers(["3,GPU-0000000000000001", "1", "0"]), [1]);
        assert_eq!(numbers(["", "0", "unset"]), []);
        assert_eq!(numbers(["unset", "", "2,2,0,-1,1"]), [2, 0]);
        assert_eq!(numbers(["unset", "GPU-0000000000000003,GPU-000,1", "unset"]), [3]);
    }
}
