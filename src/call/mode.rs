//! Whether the shim does anything, and what: decided at the first GPU call.
//!
//! [process] says it: as long as nothing has started, calls are only forwarded, and in every child that does not share
//! this process's memory, since locks and threads are the parent's there. A child that shares it (`vfork`) is as good as its
//! parent. Nothing else is stored that a parent and a child could see differently.
//!
//! The page with that word is set up before the start says that calls are seen, so that no thread takes itself for a child. A fork
//! handler stores 0 there too: a child then does not wait for a start that another thread of its parent was in.
//!
//! A part of the start that others wait for calls nothing of the dynamic linker: another thread may hold
//! that lock in `dlopen`, and the constructor that it runs may call us and wait for our start to end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU8};
use std::sync::{Mutex, Once, PoisonError};

use p2pshim_host::job;

use super::thread;
use crate::config::given::Given;
use crate::config::{self, GpuTiming, Stacks};
use crate::model::process;
use crate::os::{self, alloc};
use crate::policy::{self, VALIDATE};
use crate::record::{self, trace};

/// How far the shim takes part in calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Activity {
    /// Nothing yet: there was no call.
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
    match STARTED.load(Relaxed) {
        0 => Activity::Unstarted,
        1 => Activity::Off,
        _ if EXHAUSTED.load(Relaxed) => Activity::Exhausted,
        _ if process::is_seen() => Activity::On,
        _ => Activity::Child,
    }
}

/// Whether calls are seen; if this is not decided yet, it is now.
#[inline(always)]
pub(crate) fn is_on() -> bool {
    process::is_seen() || (STARTED.load(Relaxed) == Activity::Unstarted as u8 && start())
}

/// Whether calls are seen still: not in a child that was forked inside a call, and returns from it as well.
#[inline(always)]
pub(crate) fn is_still_on() -> bool {
    process::is_seen()
}

/// Reads the options and opens the log, once. What is done while others may wait for it calls nothing of the dynamic
/// linker: another thread may hold its lock and wait for us in a library's constructor.
#[cold]
#[inline(never)]
fn start() -> bool {
    /// The standard library's, and not parking_lot's: a thread that waits for it must not allocate.
    static ONCE: Once = Once::new();
    // What starting calls may come back to us on this thread (an allocator that looks functions up); it is forwarded,
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
                // Before calls are seen, which look at this.
                refresh();
                process::start();
            }
            STARTED.store(if is_on { Activity::On } else { Activity::Off } as u8, SeqCst);
            // Who added a callback meanwhile may have seen the state of before.
            refresh();
        });
    });
    process::is_seen()
}

/// Whether memory has run out.
static EXHAUSTED: AtomicBool = AtomicBool::new(false);

/// Whether memory has run out. What the program is shown of its peers stays as it was, and calls are counted; what takes more
/// memory is over: pairs are not verified, and calls neither recorded, nor shown, nor checked.
pub(crate) fn is_exhausted() -> bool {
    EXHAUSTED.load(Relaxed)
}

/// malloc has failed us, and the reserve has helped out. What is under way goes on from the reserve and ends as it would have.
#[cold]
pub(crate) fn memory_has_run_out() {
    if !process::is_seen() {
        return;
    }
    if !EXHAUSTED.swap(true, SeqCst) {
        VALIDATE.stop();
        refresh();
        record::log::out_of_memory();
    } else if alloc::is_reserve_half_used() {
        // Before the rest is gone, which would end the program. What the program is shown of its peers may be another now.
        process::stop();
    }
}

extern "C" fn forked() {
    process::stop();
    // Another thread was in the start, and will not end it here.
    let (unstarted, on) = (Activity::Unstarted as u8, Activity::On as u8);
    let _ = STARTED.compare_exchange(unstarted, on, SeqCst, SeqCst);
}

/// The environment variables that anything here asks for, at whatever time: what their names begin with.
fn variables() -> Vec<&'static str> {
    /// Variables for kept verdicts, simulated machines and NCCL.
    const OTHERS: [&str; 5] = ["XDG_CACHE_HOME=", "HOME=", "P2PSIM_", "NCCL_P2P_DISABLE=", "NCCL_IGNORE_DISABLED_P2P="];
    [config::PREFIX].iter().chain(&OTHERS).chain(job::RANKS).chain(job::OTHERS).copied().collect()
}

fn configure() -> bool {
    os::remember_environment(&variables());
    OPTIONS.read(os::environment(config::PREFIX), |config, mut warnings| {
        if !config.on {
            return false;
        }
        policy::configure(config);
        report_panics_to_the_log();
        LOGS.store(record::log::open(config, &mut warnings), SeqCst);
        record::summary::write_at_exit(config.summary);
        let records = trace::open(config, &mut warnings);
        set_gpu_timing(if records { config.gpu_timing } else { GpuTiming::Off });
        set_stacks(config.stacks, records);
        RECORDS.store(records, SeqCst);
        record::log::warnings(&warnings);
        true
    })
}

/// The options, as the environment and the program give them.
pub(crate) static OPTIONS: Given = Given::new();

/// Whether calls are to be recorded, whether the log shows them, and whether there are callbacks. [`refresh`] makes of it what
/// each call reads.
pub(crate) static RECORDS: AtomicBool = AtomicBool::new(false);
pub(crate) static LOGS: AtomicBool = AtomicBool::new(false);
pub(crate) static HAS_CALLBACKS: AtomicBool = AtomicBool::new(false);

/// The copies whose GPU time is measured.
static GPU_TIMING: AtomicU8 = AtomicU8::new(GpuTiming::Off as u8);

/// Takes over the option; only what is recorded is measured.
pub(crate) fn set_gpu_timing(mode: GpuTiming) {
    GPU_TIMING.store(mode as u8, Relaxed);
}

/// The copies whose GPU time is measured.
#[inline(always)]
pub(crate) fn gpu_timing() -> GpuTiming {
    let mode = GPU_TIMING.load(Relaxed);
    let known = [GpuTiming::Sample, GpuTiming::All].into_iter().find(|&known| known as u8 == mode);
    known.unwrap_or(GpuTiming::Off)
}

/// For which calls it is wanted whose line made them.
static STACKS: AtomicU8 = AtomicU8::new(Stacks::Off as u8);

/// Whether those may be lines of Python: as long as nobody has looked for one, where there is a trace.
static MAY_BE_PYTHON: AtomicBool = AtomicBool::new(false);

/// Takes over the option.
pub(crate) fn set_stacks(stacks: Stacks, has_trace: bool) {
    STACKS.store(stacks as u8, Relaxed);
    MAY_BE_PYTHON.store(has_trace && stacks != Stacks::Off, Relaxed);
}

/// Whether lines of Python are wanted, and there may be any.
#[inline(always)]
pub(crate) fn may_be_python() -> bool {
    MAY_BE_PYTHON.load(Relaxed)
}

/// There turned out to be no Python.
pub(crate) fn is_no_python() {
    MAY_BE_PYTHON.store(false, Relaxed);
}

/// For which calls it is wanted whose line made them.
#[inline(always)]
pub(crate) fn stacks() -> Stacks {
    let stacks = STACKS.load(Relaxed);
    let known = [Stacks::Sites, Stacks::All].into_iter().find(|&known| known as u8 == stacks);
    known.unwrap_or(Stacks::Off)
}

/// Each call looks at this: whether it is recorded, and whether it is shown, in the log or to callbacks.
static SEES: AtomicU8 = AtomicU8::new(0);

/// The observers of calls.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sees(u8);

impl Sees {
    const RECORDS: u8 = 1;
    const SHOWS: u8 = 2;
    const DROPS: u8 = 4;

    /// Nobody.
    #[inline(always)]
    pub(crate) fn nothing(self) -> bool {
        self.0 == 0
    }

    /// Calls are recorded.
    #[inline(always)]
    pub(crate) fn records(self) -> bool {
        self.0 & Self::RECORDS != 0
    }

    /// Calls would be recorded, if there were memory.
    #[inline(always)]
    pub(crate) fn drops(self) -> bool {
        self.0 & Self::DROPS != 0
    }

    /// Calls are shown.
    #[inline(always)]
    pub(crate) fn shows(self) -> bool {
        self.0 & Self::SHOWS != 0
    }
}

/// The observers of calls by now.
#[inline(always)]
pub(crate) fn sees() -> Sees {
    Sees(SEES.load(Relaxed))
}

/// Has calls be seen by who wants to by now.
pub(crate) fn refresh() {
    /// The standard library's as well: it is taken at the start.
    static CHANGING: Mutex<()> = Mutex::new(());
    let _changing = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
    let records = if RECORDS.load(SeqCst) { Sees::RECORDS } else { 0 };
    let shows = if LOGS.load(SeqCst) || HAS_CALLBACKS.load(SeqCst) { Sees::SHOWS } else { 0 };
    let sees = match is_exhausted() {
        true if records != 0 => Sees::DROPS,
        true => 0,
        false => records | shows,
    };
    SEES.store(sees, SeqCst);
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
        memory_has_run_out();
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
