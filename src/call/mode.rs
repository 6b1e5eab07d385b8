//! Whether the shim does anything, and what: decided at the first GPU call.
//!
//! [process] says it: as long as nothing has started, calls are only forwarded, and in every child that does not share
//! this process's memory, since locks and threads are the parent's there. A child that shares it (`vfork`) is as good as its
//! parent. Nothing else is stored that a parent and a child could see differently.
//!
//! The start waits for the first call: a look-up takes slots, which are atomic, and no lock. So a process that only looks functions
//! up, as one that loads a runtime does, has children that start by themselves. After cuInit CUDA fails in children anyway. Where it
//! works although the parent has started, copies are counted in the parent's trace.
//!
//! The page with that word is set up before the start says that calls are seen, so that no thread takes itself for a child. A fork
//! handler stores 0 there too: a child then does not wait for a start that another thread of its parent was in.
//!
//! A part of the start that others wait for calls nothing of the dynamic linker: another thread may hold
//! that lock in `dlopen`, and the constructor that it runs may call us and wait for our start to end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU8};
use std::time::{Duration, Instant};

use p2pshim_host::job;

use super::thread;
use crate::api::abi::Code;
use crate::api::{AccessKind, Effect, Function, Layer};
use crate::config::settings::Settings;
use crate::config::{self, Config, GpuTiming, Stacks};
use crate::model::process;
use crate::os::{self, alloc};
use crate::policy::{self, VALIDATE};
use crate::real::slot;
use crate::record::{self, trace};

/// How far the shim takes part in calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Activity {
    /// Nothing yet: there was no call; a look-up is none.
    Unstarted = 0,
    /// It forwards them: `P2PSHIM=off`, or a fault of ours at the start.
    Off = 1,
    /// It sees them.
    On = 2,
    /// It forwards them: the process is a forked child of one in which they are seen.
    Child = 3,
    /// It forwards and counts them, and keeps hiding what is hidden: memory has run out.
    Exhausted = 4,
}

/// The decision of the start, of this process or of the one that it is a copy of.
static STARTED: AtomicU8 = AtomicU8::new(Activity::Unstarted as u8);

/// How far the shim takes part in calls by now.
pub(crate) fn activity() -> Activity {
    match STARTED.load(Acquire) {
        0 => Activity::Unstarted,
        1 => Activity::Off,
        _ if is_exhausted() => Activity::Exhausted,
        _ if process::is_seen() => Activity::On,
        _ => Activity::Child,
    }
}

/// Whether calls are seen; if this is not decided yet, it is now.
#[inline(always)]
pub(crate) fn is_on() -> bool {
    process::is_seen() || starts()
}

/// Another thread may have started since this one looked whether calls are seen.
#[cold]
#[inline(never)]
fn starts() -> bool {
    if STARTED.load(Acquire) == Activity::Unstarted as u8 { start() } else { process::is_seen() }
}

/// A call was forwarded unseen, and what it returned. In a child nothing protects a copy, and nothing is known of it: gates must not pass.
#[cold]
#[inline(never)]
pub(crate) fn forwarded(function: Function, ret: Code) -> Code {
    // A runtime's call ends in the driver's.
    let matters = function.layer() != Layer::Runtime
        && matches!(function.effect(), Effect::Copy(_) | Effect::Copies(_) | Effect::Access(AccessKind::enable));
    if matters && ret == Code::SUCCESS && activity() == Activity::Child {
        trace::miss_child();
    }
    ret
}

/// Whether calls are seen still: not in a child that was forked inside a call, and returns from it as well.
#[inline(always)]
pub(crate) fn is_still_on() -> bool {
    process::is_seen()
}

/// Reads the options and opens the log, once. Work that others may wait for calls nothing of the dynamic
/// linker: another thread may hold its lock and wait for us in a library's constructor.
#[cold]
#[inline(never)]
fn start() -> bool {
    /// The standard library's, and not parking_lot's: a thread that waits for it must not allocate.
    static ONCE: Once = Once::new();
    // A function that the start calls may come back to us on this thread (an allocator that looks functions up); it is forwarded,
    // and does not wait for itself.
    while_busy(|| {
        // First, so that a child that another thread forks meanwhile does not wait for us.
        static REGISTERED: AtomicBool = AtomicBool::new(false);
        if !REGISTERED.swap(true, Relaxed) {
            os::at_fork_in_child(forked);
        }
        ONCE.call_once(|| {
            let is_on = contained(configure);
            if is_on {
                process::start();
            }
            STARTED.store(if is_on { Activity::On } else { Activity::Off } as u8, SeqCst);
        });
    });
    process::is_seen()
}

/// Whether memory has run out. The program sees its peers as before, and calls are counted; what takes more
/// memory is over: pairs are not verified, and calls neither recorded, nor shown, nor checked.
pub(crate) fn is_exhausted() -> bool {
    observers().has(Observers::EXHAUSTED)
}

/// malloc has failed us, and the reserve has helped out. Work that is under way continues from the reserve and ends as it would have.
#[cold]
pub(crate) fn on_out_of_memory() {
    if !process::is_seen() {
        return;
    }
    if !observe(Observers::EXHAUSTED, true) {
        VALIDATE.stop();
        record::log::out_of_memory();
    } else if alloc::is_reserve_half_used() {
        // Before the rest is gone, which would end the program. The program may see its peers otherwise now.
        process::stop();
    }
}

extern "C" fn forked() {
    process::be_child();
    // Another thread was in the start, and will not end it here.
    let (unstarted, on) = (Activity::Unstarted as u8, Activity::On as u8);
    let _ = STARTED.compare_exchange(unstarted, on, SeqCst, SeqCst);
}

/// The environment variables that anything here asks for, at whatever time: what their names begin with.
fn variables() -> Vec<&'static str> {
    /// Variables for kept verdicts, simulated machines and NCCL.
    const OTHERS: [&str; 6] =
        ["XDG_CACHE_HOME=", "HOME=", "P2PSIM_", "NCCL_P2P_DISABLE=", "NCCL_IGNORE_DISABLED_P2P=", job::EXPORTS];
    [config::PREFIX]
        .iter()
        .chain(&OTHERS)
        .chain(job::RANKS)
        .chain(job::HERE)
        .chain(job::SIZES)
        .chain(job::OTHERS)
        .copied()
        .collect()
}

fn configure() -> bool {
    os::remember_environment(&variables());
    OPTIONS.read(os::environment(config::PREFIX), |config, mut warnings| {
        if !config.on {
            return false;
        }
        if os::ignores_variables(config::PREFIX) {
            warnings
                .push("P2PSHIM variables are ignored: the program runs with more privileges than its user".to_owned());
        }
        policy::configure(config);
        report_panics_to_the_log();
        observe(Observers::LOG, record::log::open(config, &mut warnings));
        record::summary::write_at_exit(config.summary);
        let records = trace::open(config, &mut warnings);
        set_recorded(config, records);
        observe(Observers::TRACE, records);
        record::log::warnings(&warnings);
        // Those before the log was open.
        Function::ALL.iter().filter(|&&of| slot::is_handed_out(of)).for_each(|&of| record::log::looked_up(of));
        true
    })
}

/// The options, as the environment and the program give them.
pub(crate) static OPTIONS: Settings = Settings::new();

/// Facts that are recorded with a call: numbers of [`GpuTiming`] and [`Stacks`]; and whether lines may be of Python, as long as nobody has looked
/// for one.
pub(super) static GPU_TIMING: AtomicU8 = AtomicU8::new(GpuTiming::Off as u8);
pub(super) static STACKS: AtomicU8 = AtomicU8::new(Stacks::Off as u8);
pub(super) static MAY_BE_PYTHON: AtomicBool = AtomicBool::new(false);

/// Takes over those options. Only what is recorded is measured.
pub(super) fn set_recorded(config: &Config, records: bool) {
    GPU_TIMING.store(if records { config.gpu_timing } else { GpuTiming::Off } as u8, Relaxed);
    STACKS.store(config.stacks as u8, Relaxed);
    MAY_BE_PYTHON.store(records && config.stacks != Stacks::Off, Relaxed);
}

/// Each call looks at this: who observes calls, and whether memory has run out.
static OBSERVERS: AtomicU8 = AtomicU8::new(0);

/// A set of observers of calls.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Observers(u8);

impl Observers {
    pub(crate) const TRACE: Self = Self(1);
    pub(crate) const LOG: Self = Self(2);
    pub(crate) const CALLBACKS: Self = Self(4);
    /// Memory has run out, and nobody observes anything.
    const EXHAUSTED: Self = Self(8);

    #[inline(always)]
    pub(crate) fn has(self, Self(other): Self) -> bool {
        self.0 & other != 0
    }

    #[inline(always)]
    pub(crate) fn nothing(self) -> bool {
        self.0 & !Self::EXHAUSTED.0 == 0
    }

    /// Calls are recorded.
    pub(crate) fn records(self) -> bool {
        self.has(Self::TRACE) && !self.has(Self::EXHAUSTED)
    }

    /// Calls would be recorded, if there were memory.
    pub(crate) fn drops(self) -> bool {
        self.has(Self::TRACE) && self.has(Self::EXHAUSTED)
    }

    /// Calls are shown, in the log or to callbacks.
    pub(crate) fn shows(self) -> bool {
        (self.has(Self::LOG) || self.has(Self::CALLBACKS)) && !self.has(Self::EXHAUSTED)
    }
}

/// The observers of calls by now.
#[inline(always)]
pub(crate) fn observers() -> Observers {
    Observers(OBSERVERS.load(Acquire))
}

/// Someone observes calls from now on, or no longer. Whether it was so before.
pub(crate) fn observe(Observers(who): Observers, is_on: bool) -> bool {
    let before = if is_on { OBSERVERS.fetch_or(who, SeqCst) } else { OBSERVERS.fetch_and(!who, SeqCst) };
    before & who != 0
}

/// Runs our own work outside the path of a call: contained, and with all that it calls forwarded unseen.
/// Where such work is already running on this thread the result is the default one.
pub(crate) fn unseen<T: Default>(work: impl FnOnce() -> T) -> T {
    // Not from within: the work may ask whether the shim is on, and the log must be open by then.
    is_on();
    while_busy(work)
}

/// Runs our own work before it is known whether the program makes GPU calls: nothing is started.
pub(crate) fn while_busy<T: Default>(work: impl FnOnce() -> T) -> T {
    let thread = thread::current();
    if thread.is_busy() {
        return T::default();
    }
    // Written to one place: each function between would need room of its own to return it. A stack may be small.
    let mut result = T::default();
    // All of it while signals are held back: a handler may leave by longjmp.
    os::undisturbed_after(|held| {
        thread.held.set(held);
        thread.set_busy(true);
        caught(|| result = work());
        thread.set_busy(false);
    });
    result
}

/// Waits while work is under way, at most so long. Signals arrive meanwhile.
pub(super) fn wait_while(patience: Duration, are_under_way: impl Fn() -> bool) {
    let since = os::uncancelled(Instant::now);
    while unseen(&are_under_way) && os::uncancelled(|| since.elapsed()) < patience {
        os::uncancelled(|| std::thread::sleep(Duration::from_micros(20)));
    }
}

// ---- The panic boundary: a fault of our own must never end the program ----

/// Runs our own work; if it panics the result is the default one, which every caller takes for
/// "forward the call as it came". The thread notices nothing of it, see [`os::undisturbed`].
pub(crate) fn contained<T: Default>(work: impl FnOnce() -> T) -> T {
    os::undisturbed(|| caught(work))
}

/// Runs our own work without regard for the thread. Here our own work ends, so here it shows whether there was memory for it.
pub(crate) fn caught<T: Default>(work: impl FnOnce() -> T) -> T {
    let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_default();
    if alloc::has_reserve_served() {
        on_out_of_memory();
    }
    result
}

/// Replaces the standard message for a panic, which would be printed whatever descriptor 2 is by now.
pub(crate) fn report_panics_to_the_log() {
    std::panic::set_hook(Box::new(|panic| {
        log::error!("internal error; the call is forwarded unchanged. Please report this: {panic}");
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contained_panic_gives_the_default() {
        assert_eq!(contained(|| Some(3)), Some(3));
        assert_eq!(contained::<Option<i32>>(|| panic!("on purpose")), None);
    }
}
