//! What surrounds every real call: is the shim on, who called, what encloses it, where does it go.

use std::ffi::c_void;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering::Relaxed};
use std::time::Instant;

use super::exports::entrance;
use super::fence::{caught, fenced, report_panics_to_the_log};
use super::read;
use super::thread;
use crate::api::Function;
use crate::api::abi::{Code, Value};
use crate::config::{self, Config};
use crate::os;
use crate::policy::{self, Driver, Verdict};
use crate::real::driver::{self, ReadyCopy, RealDriver};
use crate::real::slot::{Slot, resolve, route};
use crate::record::{self, Event};

/// What the shim does with calls; decided at the first GPU call.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Mode {
    /// No GPU call was made yet.
    Unstarted = 0,
    /// Forward and hand out real functions, nothing else: switched off, or a forked child, whose
    /// locks and threads are its parent's.
    Forward = 1,
    /// Nobody wants to see calls.
    Quiet = 2,
    /// Each call is shown.
    Show = 3,
}

static MODE: AtomicU8 = AtomicU8::new(Mode::Unstarted as u8);

/// The process that started. A child made by `_Fork` or `clone` runs no fork handler.
static PROCESS: AtomicI32 = AtomicI32::new(0);

fn mode() -> Mode {
    match MODE.load(Relaxed) {
        0 => start(),
        1 => Mode::Forward,
        2 => Mode::Quiet,
        _ => Mode::Show,
    }
}

/// Reads the options and opens the log, once. What is done while others may wait for it calls nothing of the dynamic
/// linker: another thread may hold its lock and wait for us in a library's constructor.
#[cold]
fn start() -> Mode {
    static STARTED: Once = Once::new();
    // What starting calls may come back to us on this thread (an allocator that looks functions up); it is forwarded,
    // and does not wait for itself.
    while_busy(|| {
        let mut warnings = Vec::new();
        // First, so that a child that another thread forks meanwhile does not wait for us.
        static REGISTERED: AtomicBool = AtomicBool::new(false);
        if !REGISTERED.swap(true, Relaxed) {
            os::at_fork_in_child(forward_only);
        }
        STARTED.call_once(|| {
            let mode = fenced(|| Some(configure(&mut warnings))).unwrap_or(Mode::Forward);
            MODE.store(mode as u8, Relaxed);
        });
        record::log::warnings(&warnings);
    });
    match MODE.load(Relaxed) {
        2 => Mode::Quiet,
        3 => Mode::Show,
        _ => Mode::Forward,
    }
}

fn configure(warnings: &mut Vec<String>) -> Mode {
    let (config, unusable) = Config::read(os::environment(config::PREFIX));
    if !config.on {
        return Mode::Forward;
    }
    PROCESS.store(os::process_id(), Relaxed);
    *warnings = unusable;
    policy::configure(&config);
    report_panics_to_the_log();
    if record::log::open(&config, warnings) { Mode::Show } else { Mode::Quiet }
}

extern "C" fn forward_only() {
    MODE.store(Mode::Forward as u8, Relaxed);
}

/// Whether look-ups hand out hooks.
pub(crate) fn hands_out_hooks() -> bool {
    mode() != Mode::Forward
}

/// Runs our own work outside the path of a call: fenced, and with all that it calls forwarded unseen.
/// Where such work is already running on this thread the answer is the default one.
pub(crate) fn unseen<T: Default>(work: impl FnOnce() -> T) -> T {
    // Not from within: the work may ask for the mode, and the log must be open by then.
    mode();
    while_busy(work)
}

/// The same before it is known whether the program makes GPU calls: nothing is started.
pub(crate) fn while_busy<T: Default>(work: impl FnOnce() -> T) -> T {
    let thread = thread::current();
    // SAFETY: the block is this thread's own, and each reference ends with its statement.
    if unsafe { &*thread }.is_busy() {
        return T::default();
    }
    // All of it while signals are held back: a handler may leave by longjmp.
    os::undisturbed(|| {
        // SAFETY: as above.
        unsafe { &mut *thread }.set_busy(true);
        let result = caught(work);
        // SAFETY: as above.
        unsafe { &mut *thread }.set_busy(false);
        result
    })
}

/// An intercepted call: which function, by which route, from where. It has nothing to drop, so that
/// a thread may be cancelled inside the real function.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    function: Function,
    slot: *const Slot,
    stack: usize,
}

/// What has to be put right when the real function has returned.
#[derive(Clone, Copy)]
pub(crate) struct Running {
    /// How many calls enclose this one.
    depth: usize,
    /// When the real function was called, if the call is to be shown.
    since: Option<Instant>,
}

impl Running {
    /// Whether the call is to be shown.
    #[inline(always)]
    pub(crate) fn is_shown(self) -> bool {
        self.since.is_some()
    }
}

/// What a trampoline adds to the arguments: two addresses, as the bits of two numbers. The ABI passes such a struct in
/// two vector registers, behind integers and pointers of any number.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Arrival {
    slot: f64,
    stack: f64,
}

/// Takes over what the trampoline says.
///
/// # Safety
/// `arrival` was made by a trampoline of `function` that jumped to the caller.
#[inline(always)]
pub(crate) unsafe fn arrive(function: Function, arrival: Arrival) -> Call {
    let Arrival { slot, stack } = arrival;
    Call { function, slot: slot.to_bits() as usize as *const Slot, stack: stack.to_bits() as usize }
}

impl Call {
    /// The real function, or none if no loaded library has it.
    #[inline(always)]
    pub(crate) fn real(self) -> Option<*mut c_void> {
        // SAFETY: the trampoline's slot is one of the function's statics.
        let real = unsafe { &*self.slot }.real();
        if real.is_null() { self.find_real() } else { Some(real) }
    }

    #[cold]
    fn find_real(self) -> Option<*mut c_void> {
        // SAFETY: the trampoline's slot is one of the function's statics.
        if let Some(real) = route(unsafe { &*self.slot }, self.return_address()) {
            return Some(real);
        }
        let entrance = entrance(self.function);
        // Not only while we are not busy: a call that cannot be forwarded would fail.
        fenced(|| resolve(self.function, entrance.slots, entrance.position(self.slot), self.return_address()))
    }

    /// The answer for a function that no loaded library has, as the vendor documents it for a symbol
    /// that could not be resolved.
    #[cold]
    pub(crate) fn unavailable(self) -> Code {
        let answer = Code::SHARED_OBJECT_SYMBOL_NOT_FOUND;
        if hands_out_hooks() {
            unseen(|| record::log::unavailable(self.function, answer));
        }
        answer
    }

    /// Decides about a copy that concerns the policy: what is to be called in its place, if anything. The values are the
    /// program's arguments.
    #[cold]
    pub(crate) fn decide(self, values: &[Value]) -> Option<ReadyCopy> {
        if !hands_out_hooks() {
            return None;
        }
        // A query like any of the program's own, with nothing of ours around it: most copies are not being captured.
        let Some(&Value::Stream(stream)) = values.last() else { return None };
        if RealDriver.is_capturing(stream, self.function.per_thread()) != Some(true) {
            return None;
        }
        unseen(|| {
            let copy = read::peer_copy(values)?;
            match policy::decide(&RealDriver, self.function, &copy) {
                Verdict::Forward => {
                    record::log::decided(self.function, "refused by CUDA: no capturable copy is its equal");
                    None
                }
                Verdict::Instead(replacement) => {
                    let ready = driver::ready(&replacement)?;
                    record::log::decided(self.function, ready.note);
                    Some(ready)
                }
            }
        })
    }

    /// Takes note of a call that is seen for the sake of our own state.
    pub(crate) fn note(self, ret: Code) {
        if hands_out_hooks() {
            policy::note(self.function, ret);
        }
    }

    /// Notes that the real function is about to be called.
    #[inline(always)]
    pub(crate) fn begin(self) -> Running {
        let mode = mode();
        // SAFETY: the block is this thread's own; no other reference to it lives.
        let thread = unsafe { &mut *thread::current() };
        let depth = thread.enter(self.stack);
        let shown = mode == Mode::Show && !thread.is_busy();
        Running { depth, since: shown.then(|| os::uncancelled(Instant::now)) }
    }

    /// Notes that the real function has returned.
    #[inline(always)]
    pub(crate) fn end(self, running: Running) {
        // SAFETY: the block is this thread's own; no other reference to it lives.
        unsafe { &mut *thread::current() }.leave(running.depth);
    }

    /// Shows the call, once the real function has returned.
    #[cold]
    pub(crate) fn show(self, running: Running, values: &[Value], ret: Code, instead: Option<ReadyCopy>) {
        let elapsed = os::uncancelled(|| running.since.map(|since| since.elapsed()).unwrap_or_default());
        if PROCESS.load(Relaxed) != os::process_id() {
            forward_only();
            return;
        }
        unseen(|| {
            let arguments = read::arguments(self.function, values, ret);
            record::log::call(&Event {
                function: self.function,
                depth: running.depth,
                pair: read::pair(&arguments),
                arguments: &arguments,
                ret,
                elapsed,
                note: instead.map(|copy| copy.note),
                caller: read::call_site(self.return_address()),
            });
        });
    }

    /// Where the program goes on after the call.
    fn return_address(self) -> *const c_void {
        // SAFETY: at entry the stack pointer points to the return address, which stays there until
        // the hook returns.
        unsafe { *(self.stack as *const *const c_void) }
    }
}
