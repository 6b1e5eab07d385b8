//! What surrounds every real call: is the shim on, who called, what encloses it, where does it go.

use std::ffi::c_void;
use std::ops::RangeInclusive;
use std::ptr;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, compiler_fence};
use std::sync::{Mutex, Once, PoisonError};
use std::time::Instant;

use super::control::{Activity, OPTIONS};
use super::exports::entrance;
use super::fence::{caught, fenced, report_panics_to_the_log};
use super::hip;
use p2pshim_trace::{Begun, Capture};

use super::read::{self, Subject};
use super::thread;
use super::timing;
use crate::api::abi::{Code, Value};
use crate::api::{Function, Layer};
use crate::capi::event;
use crate::config::{self, GpuTiming};
use crate::os::{self, alloc};
use crate::policy::access::{Circumstances, Grants};
use crate::policy::capture;
use crate::policy::path::Path;
use crate::policy::validate::Kind;
use crate::policy::{
    self, ACCESS, Driver, HIP, HarmlessEnable, PeerCopy, Revision, Traffic, VALIDATE, Verdict, changes,
};
use crate::real::driver::{self, AccessDesc, Location, PoolProps, ReadyCopy, RealDriver};
use crate::real::slot::{Slot, resolve, route};
use crate::record::trace::{self, Trace};
use crate::record::{self, Event, counters};

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
    /// Each call is recorded.
    Record = 3,
    /// Each call is shown: in the log, or to the program's own listeners.
    Show = 4,
    /// Both.
    RecordAndShow = 5,
    /// Memory has run out. What the program is told of its peers stays as it was, and calls are counted; what takes more
    /// memory is over: pairs are not verified, and calls neither recorded, nor shown, nor looked at.
    Exhausted = 6,
}

impl Mode {
    fn of(records: bool, shows: bool) -> Self {
        match (records, shows) {
            (false, false) => Self::Quiet,
            (true, false) => Self::Record,
            (false, true) => Self::Show,
            (true, true) => Self::RecordAndShow,
        }
    }

    fn numbered(number: u8) -> Self {
        match number {
            2 => Self::Quiet,
            3 => Self::Record,
            4 => Self::Show,
            5 => Self::RecordAndShow,
            6 => Self::Exhausted,
            _ => Self::Forward,
        }
    }
}

/// The modes that follow from what is wanted.
const CHOSEN: RangeInclusive<u8> = Mode::Quiet as u8..=Mode::RecordAndShow as u8;

static MODE: AtomicU8 = AtomicU8::new(Mode::Unstarted as u8);

/// Whether calls are to be recorded, and whether the log shows them. [`refresh`] makes the mode of it.
pub(super) static RECORDS: AtomicBool = AtomicBool::new(false);
pub(super) static LOGS: AtomicBool = AtomicBool::new(false);

fn wanted() -> Mode {
    Mode::of(RECORDS.load(SeqCst), LOGS.load(SeqCst) || event::are_heard())
}

/// Has the mode follow what is wanted by now; not before the start, and neither where calls are only forwarded nor where
/// memory has run out.
pub(super) fn refresh() {
    static CHANGING: Mutex<()> = Mutex::new(());
    let _changing = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
    let now = MODE.load(SeqCst);
    if CHOSEN.contains(&now) {
        // It fails if calls are only forwarded from now on, or memory has run out.
        let _ = MODE.compare_exchange(now, wanted() as u8, SeqCst, SeqCst);
    }
    changes::happened();
}

/// Whether calls are recorded; none if they are shown too, or only forwarded.
pub(super) fn records_unshown() -> Option<bool> {
    match mode() {
        Mode::Quiet => Some(false),
        Mode::Record => Some(true),
        _ => None,
    }
}

/// What the shim does with calls by now.
pub(super) fn activity() -> Activity {
    let process = PROCESS.load(Relaxed);
    match MODE.load(Relaxed) {
        _ if process != 0 && process != os::process_id() => Activity::Child,
        0 => Activity::Unstarted,
        1 if process != 0 && alloc::has_reserve_served() => Activity::Exhausted,
        1 => Activity::Off,
        6 => Activity::Exhausted,
        _ => Activity::On,
    }
}

/// The process that started. A child made by `_Fork` or `clone` runs no fork handler.
static PROCESS: AtomicI32 = AtomicI32::new(0);

fn mode() -> Mode {
    match MODE.load(Relaxed) {
        0 => start(),
        number => Mode::numbered(number),
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
            MODE.store(mode as u8, SeqCst);
            match mode {
                Mode::Forward => VALIDATE.stop(),
                _ => changes::begin(),
            }
            // Who came to listen meanwhile may have seen the mode of before.
            refresh();
        });
        record::log::warnings(&warnings);
    });
    Mode::numbered(MODE.load(Relaxed))
}

fn configure(warnings: &mut Vec<String>) -> Mode {
    OPTIONS.read(os::environment(config::PREFIX), |config, unusable| {
        if !config.on {
            return Mode::Forward;
        }
        PROCESS.store(os::process_id(), Relaxed);
        *warnings = unusable;
        policy::configure(config);
        report_panics_to_the_log();
        LOGS.store(record::log::open(config, warnings), SeqCst);
        record::summary::write_at_exit(config.summary);
        let records = trace::open(config, warnings);
        timing::configure(if records { config.gpu_timing } else { GpuTiming::Off });
        RECORDS.store(records, SeqCst);
        wanted()
    })
}

/// Notes for the trace which GPUs there are, and what the hardware says of each pair.
fn note_gpus() {
    if let Some(version) = driver::version() {
        trace::version("driver", &format!("{}.{}", version / 1000, version % 1000 / 10));
    }
    let count = u8::try_from(RealDriver.device_count()).unwrap_or(0).min(64);
    for device in 0..count {
        if let Some(gpu) = driver::gpu(device.into()) {
            trace::gpu(device, &[&gpu.name, &gpu.uuid, &gpu.bus_id]);
        }
    }
    for (device, peer) in (0..count).flat_map(|device| (0..count).map(move |peer| (device, peer))) {
        if device == peer {
            continue;
        }
        let [access, rank, atomics] = driver::peer_attributes(device.into(), peer.into());
        // Over PCIe there are none.
        let link = match (access, atomics) {
            (Some(1), Some(1)) => "NVLink",
            (Some(1), Some(0)) => "PCIe",
            _ => "",
        };
        let known = [("access", access), ("performance_rank", rank), ("native_atomics", atomics)];
        let known = known.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?)));
        let mut strings: Vec<String> = known.collect();
        if !link.is_empty() {
            strings.push(format!("link={link}"));
        }
        trace::peer(device, peer, &strings.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

extern "C" fn forward_only() {
    MODE.store(Mode::Forward as u8, Relaxed);
    changes::stop();
    VALIDATE.stop();
}

/// Takes note that malloc has failed us and the reserve has helped out. What is under way goes on from the reserve and ends as
/// it would have; nothing of it depends on the mode in which it ends.
#[cold]
pub(super) fn memory_has_run_out() {
    const EXHAUSTED: u8 = Mode::Exhausted as u8;
    let becomes = |from, to: Mode| MODE.compare_exchange(from, to as u8, SeqCst, SeqCst).is_ok();
    let now = MODE.load(SeqCst);
    if CHOSEN.contains(&now) && becomes(now, Mode::Exhausted) {
        VALIDATE.stop();
        changes::happened();
        record::out_of_memory();
    } else if now == EXHAUSTED && alloc::is_reserve_half_used() && becomes(EXHAUSTED, Mode::Forward) {
        // Before the rest is gone, which would end the program. What the program is told of its peers may be another now.
        changes::stop();
    }
}

/// Whether this is a child of the process that started: then calls are only forwarded from now on.
pub(super) fn is_in_a_child() -> bool {
    let is_child = PROCESS.load(Relaxed) != os::process_id();
    if is_child {
        forward_only();
    }
    is_child
}

/// Whether hooks do nothing but forward.
#[inline(always)]
pub(crate) fn only_forwards() -> bool {
    MODE.load(Relaxed) == Mode::Forward as u8
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

/// An intercepted call: which function, from where. It has nothing to drop, so that a thread may be cancelled inside the
/// real function. It fits into two registers, so that hooks can hand it on without a place in memory.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    function: Function,
    stack: usize,
}

/// Where a call stands that must not meet the closing of a link.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is forwarded as it came, or may meet it.
    Outside,
    /// In the gate, since a call around it does.
    Nested,
    /// In the gate, which it has to [`Call::leave`].
    Inside,
}

/// Waits until the gate is open.
#[cold]
fn wait_at_the_gate() {
    // SAFETY: the block is this thread's own; the reference ends with the statement.
    let shard = unsafe { &*thread::current() }.shard;
    // Nobody opens it there.
    if is_in_a_child() {
        return;
    }
    fenced(|| ACCESS.gate().wait(shard));
}

/// By which route a call came.
#[derive(Clone, Copy)]
pub(crate) struct Route(*const Slot);

impl Route {
    /// Which of a function's routes it is. Those of one runtime have the same number, whichever the function.
    pub(super) fn number(self, function: Function) -> u8 {
        entrance(function).position(self.0) as u8
    }
}

impl Call {
    /// Which function.
    #[inline(always)]
    pub(super) const fn function(self) -> Function {
        self.function
    }

    /// The stack pointer at entry.
    #[inline(always)]
    pub(super) const fn stack(self) -> usize {
        self.stack
    }

    /// Whether it is a function of the driver.
    #[inline(always)]
    pub(super) const fn is_of_driver(self) -> bool {
        matches!(self.function.layer(), Layer::Driver)
    }
}

/// What was decided about a call. It has nothing to drop.
#[derive(Clone, Copy)]
pub(crate) struct Decision<'a> {
    /// What is called in place of the real function.
    pub(crate) instead: Option<&'a Instead>,
    /// For a copy: from where to where, and which way.
    pub(crate) traffic: Option<Traffic>,
}

impl Decision<'_> {
    /// The real function gets the call as it came.
    pub(crate) const FORWARD: Self = Self { instead: None, traffic: None };
    /// The real function does not get it, or such that it fails.
    pub(super) const REFUSED: Self = Self { instead: Some(&Instead::Refused), traffic: None };

    fn note(&self) -> Option<&'static str> {
        match self.instead {
            Some(Instead::Copy(copy)) => Some(copy.note),
            Some(Instead::Refused) => Some("refused by P2PSHIM_VALIDATE=strict"),
            _ => None,
        }
    }
}

/// What was decided about a call that had to be considered. It has nothing to drop.
#[derive(Clone, Copy)]
pub(crate) struct Considered {
    instead: Option<Instead>,
    traffic: Option<Traffic>,
}

impl Considered {
    const FORWARD: Self = Self { instead: None, traffic: None };

    /// The same, without a copy of what is called instead.
    #[inline(always)]
    pub(crate) fn decision(&self) -> Decision<'_> {
        Decision { instead: self.instead.as_ref(), traffic: self.traffic }
    }
}

/// What is called in place of a function.
#[expect(clippy::large_enum_variant, reason = "it stays on the stack of a hook, where nothing may have a destructor")]
#[derive(Clone, Copy)]
pub(crate) enum Instead {
    /// Another copy.
    Copy(ReadyCopy),
    /// Another question about peer access.
    Harmless(HarmlessEnable),
    /// Nothing: the call was refused.
    Refused,
}

impl Instead {
    /// Calls it.
    ///
    /// # Safety
    /// What the function asks of its caller whose place this takes.
    pub(crate) unsafe fn make(&self) -> Code {
        match self {
            // SAFETY: the caller's.
            Self::Copy(copy) => unsafe { copy.make() },
            Self::Refused => Code::INVALID_VALUE,
            &Self::Harmless(HarmlessEnable { peer, flags, from, to }) => {
                match driver::enable_peer_access(peer, flags) {
                    // Enabled after all, if it was not: that is what it takes the access to be.
                    ret if ret == from || ret == Code::SUCCESS => to,
                    ret => ret,
                }
            }
        }
    }
}

/// What the program gets for an answer.
#[derive(Clone, Copy)]
pub(crate) struct Revised {
    /// The code.
    pub(crate) ret: Code,
    /// Whether the function is called once more.
    pub(crate) again: bool,
}

/// What has to be put right when the real function has returned. Two fields, which fit into two registers.
#[derive(Clone, Copy)]
pub(crate) struct Running {
    /// How many calls enclose this one, and [`Running::SHOWN`].
    depth: u8,
    /// The call's record, if it has one.
    record: Option<Begun>,
}

impl Running {
    /// The bit that says that the call is to be shown.
    const SHOWN: u8 = 1 << 7;

    #[inline(always)]
    pub(super) const fn new(depth: usize, is_shown: bool, record: Option<Begun>) -> Self {
        Self { depth: depth as u8 | if is_shown { Self::SHOWN } else { 0 }, record }
    }

    /// How many calls enclose this one.
    #[inline(always)]
    pub(super) fn depth(self) -> usize {
        usize::from(self.depth & !Self::SHOWN)
    }

    /// Whether the call is to be shown.
    #[inline(always)]
    pub(crate) fn is_shown(self) -> bool {
        self.depth & Self::SHOWN != 0
    }

    /// Whether the call has a record.
    #[inline(always)]
    pub(crate) fn is_recorded(self) -> bool {
        self.record.is_some()
    }

    /// The call's record.
    #[inline(always)]
    pub(crate) fn begun(self) -> Option<Begun> {
        self.record
    }

    /// Whether no other call encloses it.
    #[inline(always)]
    pub(super) fn is_outermost(self) -> bool {
        self.depth() == 0
    }
}

/// What came of a call, for its record.
#[derive(Clone, Copy)]
struct Made {
    ret: Code,
    capture: Capture,
    path: Option<Path>,
}

/// The number of a place in the code that the thread's last call at this depth did not come from.
#[inline(never)]
fn find_site(trace: &Trace, depth: usize, address: usize) -> u16 {
    let site = match trace.known_site(address) {
        Some(site) => site,
        None => unseen(|| trace.new_site(address)),
    };
    if site != 0 {
        // SAFETY: the block is this thread's own; the reference ends with the statement.
        unsafe { &mut *thread::current() }.note_site(depth, address, site);
    }
    site
}

/// Takes note that contexts may be gone: that of a device, or one by its handle, if it is known which.
fn contexts_have_changed(device: Option<i32>, context: Option<usize>) {
    capture::contexts_have_changed(&RealDriver);
    ACCESS.contexts_have_changed(&RealDriver, device, context);
}

/// Notes which GPUs there are, if the driver tells: the first copy may never return.
fn note_gpus_before_a_copy() {
    if let Some(trace) = trace::file()
        && trace.wants_gpus()
        && RealDriver.device_count() > 0
        && trace.may_note_gpus()
    {
        note_gpus();
    }
}

/// Notes in the trace what is noted now and then: what time it is by all clocks, and, where the driver can be asked, which
/// GPUs there are.
#[cold]
#[inline(never)]
fn describe(trace: &Trace, now: u64, can_ask: bool) {
    trace.calibrate_if_due(now);
    if can_ask && trace.may_note_gpus() {
        unseen(note_gpus);
    }
}

/// What it takes to show a call, besides what it was.
pub(crate) struct Showing {
    /// When the real function was called.
    pub(crate) since: Option<Instant>,
    /// By which route it came, if something may be wrong with it.
    pub(crate) looked_at: Option<Route>,
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
pub(crate) unsafe fn arrive(function: Function, arrival: Arrival) -> (Call, Route) {
    let Arrival { slot, stack } = arrival;
    (Call { function, stack: stack.to_bits() as usize }, Route(slot.to_bits() as usize as *const Slot))
}

impl Call {
    /// A call that was entered with this stack pointer.
    pub(super) const fn new(function: Function, stack: usize) -> Self {
        Self { function, stack }
    }

    /// The real function, if it is known already.
    #[inline(always)]
    pub(super) fn real_at_once(self, Route(slot): Route) -> Option<*mut c_void> {
        /// By call site, where the caller's own library decided.
        #[cold]
        #[inline(never)]
        fn routed(call: Call, slot: &Slot) -> Option<*mut c_void> {
            route(slot, call.return_address())
        }
        // SAFETY: the trampoline's slot is one of the function's statics.
        let slot = unsafe { &*slot };
        let real = slot.real();
        if real.is_null() { routed(self, slot) } else { Some(real) }
    }

    /// The same, if it does not depend on the call site.
    #[inline(always)]
    pub(super) fn only_real(self, Route(slot): Route) -> Option<*mut c_void> {
        // SAFETY: the trampoline's slot is one of the function's statics.
        let real = unsafe { &*slot }.real();
        (!real.is_null()).then_some(real)
    }

    /// The real function, or none if no loaded library has it.
    #[inline(always)]
    pub(crate) fn real(self, Route(slot): Route) -> Option<*mut c_void> {
        // SAFETY: the trampoline's slot is one of the function's statics.
        let real = unsafe { &*slot }.real();
        if real.is_null() { self.find_real(slot) } else { Some(real) }
    }

    #[cold]
    fn find_real(self, slot: *const Slot) -> Option<*mut c_void> {
        // SAFETY: the trampoline's slot is one of the function's statics.
        if let Some(real) = route(unsafe { &*slot }, self.return_address()) {
            return Some(real);
        }
        let entrance = entrance(self.function);
        // Not only while we are not busy: a call that cannot be forwarded would fail.
        fenced(|| resolve(self.function, entrance.slots, entrance.position(slot), self.return_address()))
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

    /// Enters the gate, unless calls are only forwarded.
    ///
    /// A thread that leaves the real function otherwise than by returning stands in the gate for ever: nothing is closed any
    /// more.
    #[inline(always)]
    pub(crate) fn enter(self) -> Standing {
        const FORWARD: u8 = Mode::Forward as u8;
        if !policy::passes_gate(self.function) || MODE.load(Relaxed) == FORWARD {
            return Standing::Outside;
        }
        // SAFETY: the block is this thread's own; no other reference to it lives.
        let thread = unsafe { &mut *thread::current() };
        if thread.inside {
            return Standing::Nested;
        }
        if ACCESS.gate().enter(&mut thread.shard) {
            wait_at_the_gate();
        }
        // After that, and before it is left again: a signal handler's copies count as well.
        compiler_fence(SeqCst);
        thread.inside = true;
        Standing::Inside
    }

    /// Leaves the gate, if it was entered.
    #[inline(always)]
    pub(crate) fn leave(self, standing: Standing) {
        if standing == Standing::Inside {
            // SAFETY: the block is this thread's own; no other reference to it lives.
            let thread = unsafe { &mut *thread::current() };
            thread.inside = false;
            compiler_fence(SeqCst);
            ACCESS.gate().leave(thread.shard);
        }
    }

    /// Decides about a copy, if all that it takes is known. The values are the program's arguments.
    #[inline(always)]
    pub(crate) fn settled(self, values: &[Value]) -> Option<Decision<'static>> {
        const UNSTARTED: u8 = Mode::Unstarted as u8;
        const FORWARD: u8 = Mode::Forward as u8;
        match MODE.load(Relaxed) {
            FORWARD => Some(Decision::FORWARD),
            UNSTARTED => None,
            _ if capture::is_refused_in_captures(self.function) && capture::may_be_under_way() => None,
            _ => Some(Decision { instead: None, traffic: Some(ACCESS.settled(&read::ends(values)?)?) }),
        }
    }

    /// Decides about a copy.
    #[cold]
    #[inline(never)]
    pub(crate) fn consider(self, values: &[Value]) -> Considered {
        if !hands_out_hooks() {
            return Considered::FORWARD;
        }
        // A query like any of the program's own, with nothing of ours around it: most copies are not being captured.
        let captured = match values.last() {
            Some(&Value::Stream(stream))
                if capture::is_refused_in_captures(self.function) && capture::may_be_under_way() =>
            {
                RealDriver.is_capturing(stream, self.function.per_thread())
            }
            _ => Some(false),
        };
        let is_captured = captured == Some(true);
        if !is_captured && let Some(ends) = read::ends(values) {
            let traffic = ACCESS.settled(&ends);
            if traffic.is_some() {
                return Considered { instead: None, traffic };
            }
        }
        if is_in_a_child() {
            return Considered::FORWARD;
        }
        unseen(|| {
            let is_exhausted = mode() == Mode::Exhausted;
            if !is_exhausted {
                note_gpus_before_a_copy();
            }
            let copy = read::peer_copy(values)?;
            // Where the driver does not say, nothing is done that a capture could not bear.
            let thread_captures = captured != Some(false) || capture::is_capturing(thread::current() as usize);
            let contexts = read::contexts(values, &copy);
            let on = Circumstances { contexts, thread_captures, ..Circumstances::default() };
            let ends = copy.ends().filter(|_| !is_exhausted);
            let traffic = ends.and_then(|ends| ACCESS.consider(&RealDriver, &ends, on));
            let instead = if is_captured { self.captured(&copy) } else { None };
            Some(Considered { instead: instead.map(Instead::Copy), traffic })
        })
        .unwrap_or(Considered::FORWARD)
    }

    /// What is called in place of a copy on a stream that is being captured.
    fn captured(self, copy: &PeerCopy) -> Option<ReadyCopy> {
        match policy::decide(&RealDriver, self.function, copy) {
            Verdict::Forward => {
                record::log::decided(self.function, policy::why_forwarded());
                None
            }
            Verdict::Instead(replacement) => {
                let ready = driver::ready(&replacement)?;
                record::log::decided(self.function, ready.note);
                Some(ready)
            }
        }
    }

    /// Decides what is called in place of a function about peer access.
    pub(crate) fn ask(self, values: &[Value]) -> Considered {
        if !hands_out_hooks() {
            return Considered::FORWARD;
        }
        let question = match (self.function, values) {
            (Function::cuCtxEnablePeerAccess, &[Value::Address(peer), Value::UInt(flags)]) if ACCESS.hides() => {
                unseen(|| ACCESS.enabling(&RealDriver, peer, flags as u32))
            }
            (Function::cuCtxDisablePeerAccess, &[Value::Address(peer)]) => {
                unseen(|| ACCESS.disabling(&RealDriver, peer))
            }
            _ => None,
        };
        Considered { instead: question.map(Instead::Harmless), traffic: None }
    }

    /// What the program gets for an answer of a function about peer access.
    pub(crate) fn revise(self, values: &[Value], ret: Code, decision: Decision<'_>) -> Revised {
        let stays = matches!(decision.instead, Some(Instead::Harmless(_)));
        self.revised(values, ret, stays, true)
    }

    /// The same when it was called a second time.
    #[cold]
    pub(crate) fn revise_again(self, values: &[Value], ret: Code) -> Revised {
        self.revised(values, ret, false, false)
    }

    fn revised(self, values: &[Value], ret: Code, stays: bool, is_first: bool) -> Revised {
        let keep = Revised { ret, again: false };
        if !hands_out_hooks() {
            return keep;
        }
        match (self.function, values) {
            (Function::cuCtxEnablePeerAccess, &[Value::Address(peer), Value::UInt(flags)]) if !stays => {
                let revision = unseen(|| Some(ACCESS.enabled(&RealDriver, peer, flags as u32, ret, is_first)));
                match revision {
                    Some(Revision::Answer(ret)) => Revised { ret, again: false },
                    Some(Revision::Again) => Revised { ret, again: true },
                    Some(Revision::Keep) | None => keep,
                }
            }
            (Function::cuCtxDisablePeerAccess, &[Value::Address(peer)]) => {
                let ret = unseen(|| Some(ACCESS.disabled(&RealDriver, peer, ret, stays))).unwrap_or(ret);
                Revised { ret, again: false }
            }
            _ if ACCESS.hides() && ret == Code::SUCCESS => {
                self.hide(values);
                keep
            }
            _ => keep,
        }
    }

    /// Writes over what a query told of access that is hidden.
    fn hide(self, values: &[Value]) {
        let (output, count, is_hidden) = match *values {
            [Value::OutInt(can), Value::Ordinal(device), Value::Ordinal(peer)] => {
                (can, 1, ACCESS.is_hidden(device, peer, None))
            }
            [Value::OutInt(value), Value::P2pAttribute(attribute), Value::Ordinal(device), Value::Ordinal(peer)] => {
                (value, 1, ACCESS.is_hidden(device, peer, Some(attribute)))
            }
            [Value::Address(all), _, Value::UInt(count), Value::Ordinal(device), Value::Ordinal(peer)] => {
                (all as *mut i32, count as usize, ACCESS.is_hidden(device, peer, None))
            }
            _ => return,
        };
        if is_hidden && !output.is_null() {
            // SAFETY: the real function reports success, so it has just written that many numbers of 4 bytes there.
            unsafe { ptr::write_bytes(output, 0, count) };
        }
    }

    /// What is answered to a call that sets rights of memory, if it must not be made.
    #[inline(always)]
    pub(crate) fn refused(self, values: &[Value]) -> Option<Code> {
        match self.function {
            Function::cuMemSetAccess if ACCESS.hides() => self.check_grants(values),
            Function::cuMemPoolSetAccess => self.check_grants(values),
            _ => None,
        }
    }

    #[cold]
    fn check_grants(self, values: &[Value]) -> Option<Code> {
        if !hands_out_hooks() {
            return None;
        }
        let (of, grants, count) = match *values {
            [Value::Address(address), Value::UInt(bytes), Value::Address(grants), Value::UInt(count)] => {
                (Grants::OfMapped { address: address as u64, bytes }, grants, count)
            }
            [Value::Address(pool), Value::Address(grants), Value::UInt(count)] => (Grants::OfPool(pool), grants, count),
            _ => return None,
        };
        unseen(|| {
            let grants = read::grants(grants as *const AccessDesc, count)?;
            let devices: Vec<i32> = grants.iter().filter_map(AccessDesc::device).collect();
            if ACCESS.hides()
                && let Some(refused) = ACCESS.refused(&RealDriver, of, &devices)
            {
                return Some(refused);
            }
            let Grants::OfPool(pool) = of else { return None };
            if !grants.iter().any(AccessDesc::takes_away) {
                return None;
            }
            // First, since who gives a right says so under the lock and then looks here.
            ACCESS.taking_begins();
            let stays = |grant: &AccessDesc| {
                grant.takes_away() && grant.device().is_some_and(|device| ACCESS.keeps_right(pool, device))
            };
            if grants.iter().any(stays) && grants.len() as u64 == count {
                let kept = |grant: &AccessDesc| if stays(grant) { grant.giving() } else { *grant };
                let ret = driver::set_rights(pool, &grants.iter().map(kept).collect::<Vec<_>>());
                ACCESS.taking_is_over();
                return Some(ret);
            }
            // SAFETY: the block is this thread's own; the reference ends with the statement.
            unsafe { &mut *thread::current() }.takes = true;
            None
        })
    }

    /// Takes note of a call that is seen for the sake of our own state.
    #[inline(always)]
    pub(crate) fn note(self, values: &[Value], ret: Code) {
        if !hands_out_hooks() {
            return;
        }
        match self.function {
            Function::cuMemFree
            | Function::cuMemFree_v2
            | Function::cuMemFreeAsync
            | Function::cuMemFreeAsync_ptsz
            | Function::cuMemUnmap
            | Function::cuMemSetAccess
            | Function::cuIpcCloseMemHandle => {
                if self.function != Function::cuMemSetAccess {
                    self.note_freed(values, ret);
                }
                ACCESS.memory_has_changed();
            }
            Function::cudaGetLastError => self.note_cleared(),
            function if hip::frees(function) => HIP.memory_has_changed(),
            _ => self.note_more(values, ret),
        }
    }

    #[cold]
    fn note_more(self, values: &[Value], ret: Code) {
        // SAFETY: the block is this thread's own; the reference ends with the statement.
        let takes = || std::mem::take(unsafe { &mut (*thread::current()).takes });
        if self.function == Function::cuMemPoolSetAccess && takes() {
            ACCESS.taking_is_over();
        }
        match (self.function, values) {
            (
                Function::cuMemPoolSetAccess
                | Function::cuMemPoolGetAccess
                | Function::cuMemPoolCreate
                | Function::cuMemPoolImportFromShareableHandle
                | Function::cuMemPoolDestroy,
                _,
            ) if ret == Code::SUCCESS => self.note_pool(values),
            (
                Function::cuGraphInstantiate
                | Function::cuGraphInstantiate_v2
                | Function::cuGraphInstantiateWithFlags
                | Function::cuGraphInstantiateWithParams
                | Function::cuGraphInstantiateWithParams_ptsz,
                _,
            ) if ret == Code::SUCCESS => ACCESS.graph_is_made(),
            (Function::cuGraphExecDestroy, _) if ret == Code::SUCCESS => ACCESS.graph_is_gone(),
            (Function::cuCtxDestroy | Function::cuCtxDestroy_v2, &[Value::Address(context)])
                if ret == Code::SUCCESS =>
            {
                VALIDATE.facts().contexts_have_changed();
                unseen(|| contexts_have_changed(None, Some(context)));
            }
            (Function::cuGreenCtxDestroy, _) => unseen(|| contexts_have_changed(None, None)),
            (
                Function::cuDevicePrimaryCtxReset
                | Function::cuDevicePrimaryCtxReset_v2
                | Function::cuDevicePrimaryCtxRelease
                | Function::cuDevicePrimaryCtxRelease_v2,
                &[Value::Ordinal(device)],
            ) => unseen(|| {
                let is_gone = !driver::is_primary_active(device);
                contexts_have_changed(is_gone.then_some(device), None);
            }),
            (_, &[Value::Stream(stream), ..]) => {
                self.note_kept(values, ret);
                self.note_stream(stream, ret);
            }
            (
                Function::cuCtxCreate
                | Function::cuCtxCreate_v2
                | Function::cuCtxCreate_v3
                | Function::cuCtxCreate_v4
                | Function::cuStreamCreate
                | Function::cuStreamCreateWithPriority,
                _,
            ) if ret == Code::SUCCESS => {
                unseen(|| ACCESS.sees_context(&RealDriver));
                self.note_made(values);
            }
            (Function::cuArrayDestroy, _) => self.note_kept(values, ret),
            _ if ret == Code::SUCCESS => self.note_made(values),
            _ => {}
        }
    }

    /// Takes note of captures that begin and end.
    fn note_stream(self, stream: usize, ret: Code) {
        // Unless our own code runs, which begins none.
        unseen(|| {
            let thread = thread::current() as usize;
            // SAFETY: the block is this thread's own; the reference ends with the statement.
            let is_counted = std::mem::take(unsafe { &mut (*thread::current()).begins });
            let has_ended = capture::note(self.function, stream, thread, ret, is_counted);
            // SAFETY: as above.
            let context = std::mem::take(unsafe { &mut (*thread::current()).begins_in });
            if ret == Code::SUCCESS
                && context != 0
                && let Some(id) = RealDriver.context_id(context)
            {
                capture::is_in(self.function, stream, thread, (context, id));
            }
            if has_ended && !capture::is_capturing(thread) && ACCESS.waits() {
                ACCESS.capture_has_ended(&RealDriver);
            }
        });
    }

    /// Takes note of a call about a pool that succeeded; what it tells of a right that only we gave is written over.
    fn note_pool(self, values: &[Value]) {
        unseen(|| match (self.function, values) {
            (Function::cuMemPoolCreate, &[Value::Address(pool), Value::Address(properties)]) => {
                if let Some(pool) = read::handle_at(pool as *const usize) {
                    ACCESS.pool_is_new(pool, read::device_of_pool(properties as *const PoolProps));
                }
            }
            (Function::cuMemPoolImportFromShareableHandle, &[Value::Address(pool), ..]) => {
                if let Some(pool) = read::handle_at(pool as *const usize) {
                    ACCESS.pool_is_new(pool, None);
                }
            }
            (Function::cuMemPoolDestroy, &[Value::Address(pool)]) => ACCESS.pool_is_gone(pool),
            (Function::cuMemPoolSetAccess, &[Value::Address(pool), Value::Address(grants), Value::UInt(count)]) => {
                let grants = read::grants(grants as *const AccessDesc, count).unwrap_or_default();
                let rights = grants.iter().filter_map(|grant| Some((grant.device()?, !grant.takes_away())));
                ACCESS.pool_has_changed(pool, rights);
            }
            (
                Function::cuMemPoolGetAccess,
                &[Value::Address(flags), Value::Address(pool), Value::Address(location)],
            ) => {
                let device = read::device_at(location as *const Location);
                if device.is_some_and(|device| ACCESS.has_granted(pool, device)) {
                    // SAFETY: the real function reports success, so it has just written the flags there.
                    unsafe { (flags as *mut u32).write(0) };
                }
            }
            _ => {}
        });
    }

    /// Counts a call that was made.
    #[inline(always)]
    pub(crate) fn count(self, ret: Code) {
        // SAFETY: the block is this thread's own; no other reference to it lives.
        let shard = &mut unsafe { &mut *thread::current() }.shard;
        counters::count_call(shard, self.function, ret != Code::SUCCESS);
    }

    /// The same of a copy, whose bytes are counted too if it was made.
    #[inline(always)]
    pub(crate) fn count_copy(self, decision: Decision<'_>, ret: Code) {
        self.count(ret);
        if let Some(traffic) = &decision.traffic
            && ret == Code::SUCCESS
        {
            // SAFETY: the block is this thread's own; no other reference to it lives.
            counters::count(&mut unsafe { &mut *thread::current() }.shard, traffic);
        }
    }

    /// Notes that the real function is about to be called.
    #[inline(always)]
    pub(crate) fn begin(self) -> Running {
        let mode = mode();
        // SAFETY: the block is this thread's own; no other reference to it lives.
        let thread = unsafe { &mut *thread::current() };
        let depth = thread.enter(self.stack);
        if matches!(mode, Mode::Forward | Mode::Quiet) || thread.is_busy() {
            return Running::new(depth, false, None);
        }
        self.begin_seen(depth, mode)
    }

    /// The same of a call that is recorded or shown. What is rarely needed is elsewhere: here nothing has to be saved for it.
    #[inline(never)]
    fn begin_seen(self, depth: usize, mode: Mode) -> Running {
        let address = self.return_address() as usize;
        if mode == Mode::Record
            && let Some(trace) = trace::file()
            && !trace.is_in_a_child()
            // SAFETY: the block is this thread's own; the reference ends with the statement.
            && let Some(site) = unsafe { &*thread::current() }.known_site(depth, address)
            && let Some(now) = trace.now_at_once()
            && let record @ Some(_) = self.begin_record(depth, site, now)
        {
            return Running::new(depth, false, record);
        }
        self.begin_rarely(depth, mode)
    }

    #[cold]
    #[inline(never)]
    fn begin_rarely(self, depth: usize, mode: Mode) -> Running {
        if depth == 0 {
            self.forget_heard();
        }
        let is_shown = matches!(mode, Mode::Show | Mode::RecordAndShow);
        let records = matches!(mode, Mode::Record | Mode::RecordAndShow);
        let record = trace::file().filter(|_| records).and_then(|trace| self.begin_record_rarely(trace, depth));
        if mode == Mode::Exhausted && RECORDS.load(Relaxed) {
            trace::drop_call();
        }
        Running::new(depth, is_shown, record)
    }

    fn begin_record_rarely(self, trace: &Trace, depth: usize) -> Option<Begun> {
        if trace.is_in_a_child() && is_in_a_child() {
            return None;
        }
        let address = self.return_address() as usize;
        // SAFETY: the block is this thread's own; the reference ends with the statement.
        let site = match unsafe { &*thread::current() }.known_site(depth, address) {
            Some(site) => site,
            None => find_site(trace, depth, address),
        };
        self.begin_record(depth, site, trace.now()).or_else(|| {
            if trace.drops() || is_in_a_child() {
                return None;
            }
            // SAFETY: the block is this thread's own; nothing else looks at its segment.
            unseen(|| trace.extend(unsafe { &mut (*thread::current()).segment }, depth, self.function, site))
        })
    }

    /// Begins a record, if the thread has room for one.
    #[inline(always)]
    fn begin_record(self, depth: usize, site: u16, now: u64) -> Option<Begun> {
        // SAFETY: the block is this thread's own; no other reference to it lives.
        let thread = unsafe { &mut *thread::current() };
        if depth == 0 {
            thread.inner = None;
            thread.timing_cost = 0;
        }
        thread.last = None;
        thread.segment.begin(depth, self.function as u8, site, now)
    }

    /// The time, if the call is to be shown: when the real function is called.
    #[inline(always)]
    pub(crate) fn since(running: Running) -> Option<Instant> {
        /// Off the way of calls that are not.
        #[cold]
        #[inline(never)]
        fn now() -> Instant {
            os::uncancelled(Instant::now)
        }
        running.is_shown().then(now)
    }

    /// Notes that the real function has returned.
    #[inline(always)]
    pub(crate) fn end(self, running: Running) {
        // SAFETY: the block is this thread's own; no other reference to it lives.
        unsafe { &mut *thread::current() }.leave(running.depth());
    }

    /// Notes in the record of a call what it is about, and which way it is to go: it may never return.
    #[inline(always)]
    pub(crate) fn note_subject(self, running: Running, values: &[Value], decision: Decision<'_>) {
        let Some(record) = running.record else { return };
        let Subject { ends: [src, dst], bytes, stream, devices: [from, to] } = read::subject(values);
        record.copies(src, dst, bytes, stream);
        match decision.traffic {
            Some(Traffic { src, dst, path, .. }) => {
                record.between(Some(src), Some(dst));
                record.takes(path.number() as u8);
            }
            None => record.between(from, to),
        }
    }

    /// Completes the record of a call that has returned. What it is about is [noted](Self::note_subject).
    #[inline(always)]
    pub(crate) fn record(self, running: Running, ret: Code, decision: Decision<'_>, path: Option<Path>) {
        /// `cudaErrorStreamCaptureUnsupported`, and the driver's.
        const CAPTURED: Code = Code(900);
        let Some(record) = running.record else { return };
        let capture = match decision.instead {
            Some(Instead::Copy(_)) => Capture::Rewritten,
            _ if ret == CAPTURED => Capture::Forwarded,
            _ => Capture::None,
        };
        self.complete(record, Made { ret, capture, path });
    }

    #[inline(never)]
    fn complete(self, record: Begun, made: Made) {
        // A child that was forked inside the call returns from it as well: the record, and all locks, are its parent's.
        let Some(trace) = trace::file().filter(|trace| !only_forwards() && !trace.is_in_a_child()) else { return };
        match trace.now_at_once() {
            Some(end) => self.complete_at(trace, end, record, made),
            None => self.complete_slowly(trace, record, made),
        }
    }

    /// Where reading the clock is a call.
    #[cold]
    #[inline(never)]
    fn complete_slowly(self, trace: &Trace, record: Begun, made: Made) {
        self.complete_at(trace, trace.now(), record, made);
    }

    #[inline(always)]
    fn complete_at(self, trace: &Trace, end: u64, record: Begun, made: Made) {
        // SAFETY: the block is this thread's own; no other reference to it lives.
        let thread = unsafe { &mut *thread::current() };
        let inner = thread.inner.take();
        if let (Layer::Runtime, Some(inner)) = (self.function.layer(), inner)
            && Kind::of(self.function).copies()
        {
            record.like(inner);
        }
        // One that has failed went nowhere.
        record.takes(made.path.map_or(0, |path| path.number() as u8));
        // Of measuring inside it the call knows nothing.
        let end = end.saturating_sub(thread.timing_cost);
        record.done(end, made.ret.0, made.capture);
        if timing::is_timed(self.function) {
            timing::went_by(record.took(), record.bytes());
        }
        thread.last = Some(record);
        let is_of_driver = self.function.layer() == Layer::Driver;
        if is_of_driver {
            thread.inner = Some(record);
        }
        if trace.is_calibration_due(end) || (is_of_driver && trace.wants_gpus()) {
            describe(trace, end, is_of_driver && made.ret == Code::SUCCESS);
        }
    }

    /// Shows the call, once the real function has returned: in the log, and to who listens. What is wrong with it is said
    /// between the two.
    #[cold]
    pub(crate) fn show(
        self,
        running: Running,
        Showing { since, looked_at }: Showing,
        values: &[Value],
        ret: Code,
        decision: Decision<'_>,
        path: Option<Path>,
    ) {
        self.show_call(running, since, values, ret, decision, path);
        if !running.is_outermost() || is_in_a_child() {
            return;
        }
        if let Some(route) = looked_at {
            self.look_at(route, values, ret, path);
        }
        self.tell();
    }

    /// The same without what is wrong with it, and keeping what is to be told.
    #[cold]
    pub(super) fn show_call(
        self,
        running: Running,
        since: Option<Instant>,
        values: &[Value],
        ret: Code,
        decision: Decision<'_>,
        path: Option<Path>,
    ) {
        let elapsed = os::uncancelled(|| since.map(|since| since.elapsed()).unwrap_or_default());
        if is_in_a_child() {
            return;
        }
        let pair = decision.traffic.map(|traffic| (i32::from(traffic.src), i32::from(traffic.dst)));
        unseen(|| {
            if event::are_heard() {
                self.hear(running.depth(), values, (ret, pair, path), elapsed);
            }
            if !record::log::shows_calls() {
                return;
            }
            let arguments = read::arguments(self.function, values, ret);
            record::log::call(&Event {
                function: self.function,
                depth: running.depth(),
                pair: pair.or_else(|| read::pair(&arguments)),
                arguments: &arguments,
                ret,
                elapsed,
                path,
                note: decision.note(),
                caller: read::call_site(self.return_address()),
            });
        });
    }

    /// The way of a copy that succeeded. A copy that the runtime makes is routed at the driver layer, inside this call.
    #[inline(always)]
    pub(crate) fn path(self, running: Running, decision: Decision<'_>, ret: Code) -> Option<Path> {
        // SAFETY: the block is this thread's own; no other reference to it lives.
        let thread = unsafe { &mut *thread::current() };
        let own = decision.traffic.filter(|_| ret == Code::SUCCESS).map(|traffic| traffic.path);
        match self.function.layer() {
            Layer::Runtime => thread.take_path(),
            Layer::Driver if !running.is_outermost() && own.is_some() => {
                thread.set_path(own);
                own
            }
            Layer::Driver | Layer::Hip => own,
        }
    }

    /// Where the program goes on after the call.
    pub(super) fn return_address(self) -> *const c_void {
        // SAFETY: at entry the stack pointer points to the return address, which stays there until
        // the hook returns.
        unsafe { *(self.stack as *const *const c_void) }
    }
}
