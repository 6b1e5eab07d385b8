//! Queries and changes of the shim by a program that runs. The C interface calls these.

use std::ffi::{OsStr, OsString, c_void};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::mode::{self, Activity, OPTIONS, Observers, while_busy};
use crate::api::{Function, Layer};
use crate::config::settings::Refused;
use crate::config::{self, Config, Variable};
use crate::model::{Path, Why};
use crate::objects::captures;
use crate::os;
use crate::policy::{self, ACCESS};
use crate::real::driver::{self, RealDriver};
use crate::real::loader::{self, Object};
use crate::real::slot::{self, CLAIMABLE, Slot};
use crate::record::{self, trace};

/// Why something is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Calls are only forwarded.
    Inactive,
    /// An option has no such value.
    Value,
    /// It cannot change any more.
    TooLate,
    /// There is no trace, or no folder to put it in.
    NoTrace,
    /// The driver is not loaded.
    NoDriver,
    /// A device has no context, or a capture is under way.
    NotReady,
    /// The system has refused something; a warning says what.
    System,
    /// A fault of ours, or a call from inside our own work.
    Internal,
}

/// Whether calls are seen, or will be.
fn is_active() -> bool {
    matches!(mode::activity(), Activity::Unstarted | Activity::On)
}

/// Does work of ours that may fail. None where our own code is running already.
fn attempt<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    while_busy(|| Some(work())).unwrap_or(Err(Failure::Internal))
}

/// Sets an option; an empty value stands for the default.
///
/// # Errors
/// Why it is not set.
pub(crate) fn set_option(option: Variable, value: &OsStr) -> Result<(), Failure> {
    if !is_active() {
        return Err(Failure::Inactive);
    }
    attempt(|| {
        OPTIONS.set(option, value, || trace::file().is_some(), apply).map_err(|refused| match refused {
            Refused::Value => Failure::Value,
            Refused::TooLate => Failure::TooLate,
        })
    })
}

/// Has options that have changed take effect.
fn apply(config: &Config) {
    policy::configure(config);
    record::log::set_filter(&config.log);
    record::summary::write_at_exit(config.summary);
    mode::set_recorded(config, trace::file().is_some());
    mode::observe(Observers::LOG, record::log::shows_calls());
}

/// The value that an option has, or will have; empty for none.
///
/// # Errors
/// A forked child, or a fault of ours.
pub(crate) fn option_value(option: Variable) -> Result<OsString, Failure> {
    // Another thread may have held the lock when the process was forked.
    if mode::activity() == Activity::Child {
        return Err(Failure::Inactive);
    }
    attempt(|| Ok(OPTIONS.value(option, os::environment(config::PREFIX))))
}

/// Records calls from now on: in a file of this folder, or where the options say, or, if there is a file, in that.
///
/// # Errors
/// Why it does not.
pub(crate) fn start_trace(folder: Option<&OsStr>) -> Result<(), Failure> {
    static STARTING: Mutex<()> = Mutex::new(());
    if !mode::is_on() {
        return Err(Failure::Inactive);
    }
    attempt(|| {
        let _starting = STARTING.lock();
        let mut config = OPTIONS.config().ok_or(Failure::Internal)?;
        if let Some(there) = trace::file() {
            if folder.is_some_and(|folder| !there.is_in(folder)) {
                return Err(Failure::TooLate);
            }
        } else {
            config.trace = folder.map(OsStr::to_owned).or(config.trace);
            if config.trace.is_none() {
                return Err(Failure::NoTrace);
            }
            let mut warnings = Vec::new();
            let is_open = trace::open(&config, &mut warnings);
            record::log::warnings(&warnings);
            if !is_open {
                return Err(Failure::System);
            }
            mode::set_recorded(&config, true);
        }
        mode::observe(Observers::TRACE, true);
        Ok(())
    })
}

/// Records no more calls; those under way are still completed.
///
/// # Errors
/// There is no trace.
pub(crate) fn stop_trace() -> Result<(), Failure> {
    if trace::file().is_none() {
        return Err(Failure::NoTrace);
    }
    if mode::activity() != Activity::On {
        return Err(Failure::Inactive);
    }
    attempt(|| {
        mode::observe(Observers::TRACE, false);
        Ok(())
    })
}

/// Whether calls are recorded.
pub(crate) fn is_recording() -> bool {
    mode::activity() == Activity::On && mode::observers().has(Observers::TRACE)
}

/// Leaves a mark in the trace, if calls are recorded.
///
/// # Errors
/// They are not.
pub(crate) fn mark(text: &str) -> Result<(), Failure> {
    if !is_recording() {
        return Err(Failure::NoTrace);
    }
    attempt(|| {
        record::log::marked(text);
        Ok(())
    })
}

/// Whether the library of the driver is loaded.
pub(crate) fn has_driver() -> bool {
    driver::is_loaded()
}

/// Asks the driver something that the program has not asked. The default where our own code is running already.
pub(crate) fn quietly<T: Default>(work: impl FnOnce() -> T) -> T {
    while_busy(work)
}

/// Verifies the path between two devices and enables it now. Returns the path of their copies.
///
/// # Errors
/// Why nothing was tried.
pub(crate) fn prepare(devices: [u8; 2]) -> Result<Path, Failure> {
    /// For other threads that verify one of the devices: each takes some milliseconds.
    const PATIENCE: Duration = Duration::from_secs(5);
    if !mode::is_on() || mode::is_exhausted() {
        return Err(Failure::Inactive);
    }
    if !has_driver() {
        return Err(Failure::NoDriver);
    }
    let since = Instant::now();
    loop {
        let path = attempt(|| {
            if captures::may_be_under_way() {
                return Err(Failure::NotReady);
            }
            let path = ACCESS.prepare(&RealDriver, devices).ok_or(Failure::NotReady)?;
            // Here, where nothing can cancel the thread; between two attempts its signals arrive.
            if path == Path::Staged(Why::Verifying) {
                thread::sleep(Duration::from_millis(1));
            }
            Ok(path)
        })?;
        if path != Path::Staged(Why::Verifying) || since.elapsed() > PATIENCE {
            return Ok(path);
        }
    }
}

/// A library that defines intercepted functions of a layer, other than this one.
pub(crate) struct Definer {
    /// Where it was loaded from; empty for the program itself.
    pub(crate) object: Object,
    /// Which functions.
    pub(crate) layer: Layer,
    /// Whether what is linked with it calls us.
    pub(crate) is_shadowed: bool,
    /// Whether some of its functions were looked up and handed out as ours.
    pub(crate) is_looked_up: bool,
    /// Whether linked calls have gone through us to it.
    pub(crate) is_called: bool,
}

/// All that are loaded now, in the order of loading.
pub(crate) fn libraries() -> Vec<Definer> {
    while_busy(|| {
        let found = layers().into_iter().flat_map(|layer| {
            let routes = Routes::of(layer);
            let is_shadowed = is_first(layer);
            let objects = loader::loaded_objects().into_iter().filter(move |object| defines(object, layer));
            objects.map(move |object| Definer {
                layer,
                is_shadowed,
                is_looked_up: routes.looked_up.contains(&object.base),
                is_called: routes.called.contains(&object.base),
                object,
            })
        });
        let found = found.collect();
        loader::forget_error();
        found
    })
}

/// All layers of runtimes and drivers, in the order of the table.
fn layers() -> Vec<Layer> {
    let mut layers = Vec::new();
    for layer in Function::ALL.iter().map(|function| function.layer()) {
        if layer != Layer::Nvml && !layers.contains(&layer) {
            layers.push(layer);
        }
    }
    layers
}

/// The function by which a library of a layer is known.
fn sample(layer: Layer) -> Option<Function> {
    Function::ALL.iter().copied().find(|function| function.layer() == layer)
}

fn defines(object: &Object, layer: Layer) -> bool {
    sample(layer).is_some_and(|function| object.defines(function.c_name()))
}

/// Whether references of a layer that name no library meet our exports first.
fn is_first(layer: Layer) -> bool {
    sample(layer).is_some_and(|function| loader::is_first_in_the_program(function.c_name()))
}

/// Where the routes of a layer's functions lead: the bases of objects.
struct Routes {
    looked_up: Vec<usize>,
    called: Vec<usize>,
}

impl Routes {
    fn of(layer: Layer) -> Self {
        let of_layer = || Function::ALL.iter().filter(move |function| function.layer() == layer);
        let base = |real: *mut c_void| Object::holding(real).map(|object| object.base);
        let bases = |reals: &mut dyn Iterator<Item = *mut c_void>| {
            let mut bases: Vec<usize> = reals.filter(|real| !real.is_null()).filter_map(base).collect();
            bases.sort_unstable();
            bases.dedup();
            bases
        };
        let exported = of_layer().flat_map(|&function| slot::of(function).iter().skip(CLAIMABLE));
        Self {
            looked_up: bases(&mut of_layer().flat_map(|&function| slot::looked_up(function))),
            called: bases(&mut exported.map(Slot::real).chain(slot::routed())),
        }
    }
}
