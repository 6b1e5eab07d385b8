//! How a call gets in: the C ABI, the machine, the errors.

use std::cell::Cell;
use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use p2psim_core::config::Config;
use p2psim_core::fault::Failure;
use p2psim_core::machine::{DefaultStream, StreamHandle, StreamRef};
use p2psim_core::{Error, Machine, Repeated, Result, at_exit, at_fork_in_child, inject, on_worker, visible};

use crate::{table, uuid};

/// Defines exported functions. The body is a block that ends in a [`Result`].
///
/// `fn name(…)` exports one function. `fn name | variant [default] (…)` exports two that differ in what
/// `default`, a [`DefaultStream`], is in the body. The ABI lets a thread be cancelled while it waits in a call.
macro_rules! api {
    () => {};
    ($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block $($rest:tt)*) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub(crate) extern "C-unwind" fn $name($($arg: $type),*) -> u32 {
            extern "C-unwind" fn body($($arg: $type),*) -> u32 {
                $crate::entry::call(stringify!($name), move || $body)
            }
            std::arch::naked_asm!(
                ".cfi_startproc",
                $crate::machine::export!(),
                ".cfi_endproc",
                body = sym body,
            )
        }
        $crate::entry::api!($($rest)*);
    };
    ($(#[$doc:meta])* fn $name:ident | $variant:ident [$default:ident] ($($arg:ident: $type:ty),* $(,)?) $body:block
     $($rest:tt)*) => {
        $crate::entry::api! {
            $(#[$doc])*
            fn $name($($arg: $type),*) {
                let $default = p2psim_core::machine::DefaultStream::Legacy;
                $body
            }
            $(#[$doc])*
            fn $variant($($arg: $type),*) {
                let $default = p2psim_core::machine::DefaultStream::PerThread;
                $body
            }
            $($rest)*
        }
    };
}
pub(crate) use api;

static MACHINE: OnceLock<Result<Machine>> = OnceLock::new();
static FORKED: AtomicBool = AtomicBool::new(false);
/// Whether the process ends: handlers of the program that it gave after `cuInit` have run.
static ENDED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Calls of the driver that the thread is in.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// How many calls of the driver the calling thread is in, besides this one: a signal handler may call it where there are none.
pub(crate) fn inside() -> u32 {
    INSIDE.get() - 1
}

/// Runs the body of an exported function, unless that is to fail, and gives the caller its code.
pub(crate) fn call(function: &str, body: impl FnOnce() -> Result<()>) -> u32 {
    let setup = setup();
    if !setup.failures.is_empty()
        && let Some(code) = setup.failure(function)
    {
        return code;
    }
    INSIDE.set(INSIDE.get() + 1);
    let code = body().map_or_else(|error| error.0, |()| 0);
    INSIDE.set(INSIDE.get() - 1);
    code
}

/// The environment's settings: read at the first call.
struct Setup {
    config: Config,
    /// Functions that are to fail, with their uses so far.
    failures: Vec<(Failure, AtomicU64)>,
}

impl Setup {
    fn new() -> Setup {
        let config = config_now();
        // Functions of HIP are the other simulation's business.
        let ours = config.faults.failures.iter().filter(|failure| !failure.function.starts_with("hip")).cloned();
        let (known, unknown): (Vec<_>, Vec<_>) = ours.partition(|failure| table::exports(&failure.function));
        for Failure { function, .. } in unknown {
            eprintln!("p2psim: P2PSIM_FAULT: the simulated driver has no function {function}; ignored");
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

/// The machine as the environment describes it, and its visible devices.
pub(crate) fn config_now() -> Config {
    let mut config = Config::from_env();
    if let Ok(list) = std::env::var("CUDA_VISIBLE_DEVICES") {
        let is_named = |number: usize, name: &str| uuid::is_named(number, name, config.is_mig);
        let shown = visible(&list, config.devices, Repeated::HidesAll, is_named);
        config.show(&shown);
    }
    config
}

fn setup() -> &'static Setup {
    static SETUP: OnceLock<Setup> = OnceLock::new();
    SETUP.get_or_init(Setup::new)
}

/// The version that the driver says it has.
pub(crate) fn driver_version() -> i32 {
    setup().config.driver as i32
}

/// Brings the machine up, once in a process.
pub(crate) fn initialise() -> Result<()> {
    check_process()?;
    let machine = MACHINE.get_or_init(|| {
        at_fork_in_child(after_fork);
        at_exit(after_end);
        let config = setup().config.clone();
        if config.devices == 0 { Err(Error::NO_DEVICE) } else { Machine::new(config) }
    });
    machine.as_ref().map(drop).map_err(|error| *error)?;
    inject_once();
    Ok(())
}

/// Lets in the tool that the environment names. It may call the driver meanwhile, `cuInit` too.
fn inject_once() {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    if IS_DONE.swap(true, Ordering::Relaxed) {
        return;
    }
    let Some(library) = std::env::var_os("CUDA_INJECTION64_PATH").filter(|library| !library.is_empty()) else { return };
    let name = CString::new(library.into_vec()).unwrap_or_default();
    if !inject(&name) {
        eprintln!("p2psim: CUDA_INJECTION64_PATH: {name:?} cannot be loaded, or does not set itself up; ignored");
    }
}

/// Whether a device says that only one process may use it.
pub(crate) fn is_exclusive(device: usize) -> bool {
    setup().config.exclusive.contains(&device)
}

/// Whether the devices are instances of partitioned GPUs.
pub(crate) fn is_mig() -> bool {
    setup().config.is_mig
}

/// Whether memory can be shared by `cuIpcGetMemHandle`.
pub(crate) fn has_legacy_ipc() -> bool {
    setup().config.has_legacy_ipc
}

/// The machine, where a call may use it.
pub(crate) fn machine() -> Result<&'static Machine> {
    check_process()?;
    if on_worker() {
        return Err(Error::NOT_PERMITTED);
    }
    match MACHINE.get() {
        Some(Ok(machine)) => Ok(machine),
        Some(Err(error)) => Err(*error),
        None => Err(Error::NOT_INITIALIZED),
    }
}

/// A child of a fork has none of the parent's worker threads and perhaps a lock that nobody will release:
/// it is turned away before it touches anything, with the code that a real driver gives. So is a process that ends: measured on an H200.
fn check_process() -> Result<()> {
    match (FORKED.load(Ordering::Relaxed), ENDED.load(Ordering::Relaxed)) {
        (true, _) => Err(Error::NOT_INITIALIZED),
        (_, true) => Err(Error::DEINITIALIZED),
        _ => Ok(()),
    }
}

extern "C" fn after_end() {
    ENDED.store(true, Ordering::Relaxed);
}

extern "C" fn after_fork() {
    FORKED.store(true, Ordering::Relaxed);
}

/// The stream that a program means by a handle.
pub(crate) fn stream(handle: u64, default: DefaultStream) -> StreamRef {
    match handle {
        0 => StreamRef::Default(default),
        1 => StreamRef::Default(DefaultStream::Legacy),
        2 => StreamRef::Default(DefaultStream::PerThread),
        created => StreamRef::Created(StreamHandle(created)),
    }
}
