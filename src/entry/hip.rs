//! Calls of HIP, which has no layer below: its hooks both name a call and decide about it.

use std::ffi::c_void;
use std::ptr;
use std::time::Instant;

use super::guard::{Call, Decision, Running, hands_out_hooks, is_in_a_child, unseen};
use super::read;
use crate::api::Function;
use crate::api::abi::{Code, Failing, Value};
use crate::policy::hip::{Ask, Before, Hip};
use crate::policy::path::Path;
use crate::policy::validate::{self, HipCall, Instead, Kind, Parameters};
use crate::policy::{Ends, HIP, Traffic, VALIDATE};
use crate::real::hip::{self, Library};
use crate::record::trace;

/// How the real function is called.
#[derive(Clone, Copy)]
pub(crate) enum How {
    /// As the program called it.
    AsItCame,
    /// With arguments that it refuses before it does anything.
    Failing(Failing),
    /// Not at all: another function succeeds in its place.
    Succeed(Library),
}

/// What was decided about a call of HIP. It has nothing to drop.
#[derive(Clone, Copy)]
pub(crate) struct Decided {
    /// How the real function is called.
    pub(crate) how: How,
    library: Option<Library>,
    traffic: Option<Traffic>,
    before: Before,
    /// Whether there is nothing to say of it if it succeeds.
    is_clean: bool,
    /// Whether the call changes access, and nothing else may meanwhile.
    asks: bool,
    /// Whether it fails because of what its arguments are.
    is_refused: bool,
}

impl Decided {
    const FORWARD: Self = Self {
        how: How::AsItCame,
        library: None,
        traffic: None,
        before: Before::NOTHING,
        is_clean: false,
        asks: false,
        is_refused: false,
    };

    /// What the record and the log are told of it.
    pub(crate) fn decision(&self) -> Decision<'static> {
        Decision { traffic: self.traffic, ..if self.is_refused { Decision::REFUSED } else { Decision::FORWARD } }
    }
}

/// Succeeds and does nothing, in a call's place.
#[cold]
pub(crate) fn succeed(library: Library) -> Code {
    hip::succeed(library)
}

impl Call {
    /// Decides about a call of HIP; `real` is the function that it is meant for.
    #[inline(always)]
    pub(crate) fn decide(self, real: *const c_void, values: &[Value]) -> Decided {
        if Kind::of(self.function()).copies()
            && let Some(library) = Library::seen(real)
            && let Some(copy) = read::linear(values)
            && let [src, dst] = copy.ends()
            && let Some(traffic) = HIP.settled(library.number(), &Ends { src, dst, bytes: copy.bytes })
            && (!VALIDATE.is_on() || validate::is_clean_hip(&copy, |address| HIP.known(address)))
        {
            return Decided { library: Some(library), traffic: Some(traffic), is_clean: true, ..Decided::FORWARD };
        }
        let is_query = Kind::of(self.function()) == Kind::Query;
        if Kind::of(self.function()) == Kind::Other || (is_query && !VALIDATE.is_on()) {
            return Decided::FORWARD;
        }
        // How many devices there are is all that errors of a query are explained by.
        if is_query
            && let Some(library) = Library::seen(real)
            && let Some(before) = HIP.seen_around(library.number())
        {
            return Decided { library: Some(library), before, is_clean: true, ..Decided::FORWARD };
        }
        self.consider_hip(real, values)
    }

    #[cold]
    #[inline(never)]
    fn consider_hip(self, real: *const c_void, values: &[Value]) -> Decided {
        if !hands_out_hooks() || is_in_a_child() {
            return Decided::FORWARD;
        }
        unseen(|| {
            let library = Library::of(real)?;
            let decided = match (Kind::of(self.function()), self.function()) {
                (Kind::Copy | Kind::AsyncCopy, _) => self.consider_copy(library, values),
                (Kind::Access, _) => self.consider_access(library, values),
                (Kind::Query, _) if VALIDATE.is_on() => {
                    Decided { before: HIP.look_around(library.number(), &library), ..Decided::FORWARD }
                }
                _ => Decided::FORWARD,
            };
            Some(Decided { library: Some(library), ..decided })
        })
        .unwrap_or(Decided::FORWARD)
    }

    fn consider_copy(self, library: Library, values: &[Value]) -> Decided {
        let parameters = read::parameters(values, None);
        let ends = ends(values, &parameters);
        let (traffic, before) = HIP.consider(library.number(), &library, ends.as_ref());
        let decided = Decided { traffic, before, ..Decided::FORWARD };
        // As long as something may be asked.
        if let (Some(_), Some(devices)) = (before.current, before.devices)
            && trace::file().is_some_and(|trace| trace.wants_gpus())
        {
            note_gpus(library, devices);
        }
        if !VALIDATE.is_on() {
            return decided;
        }
        let call = HipCall { function: self.function(), values, parameters, before };
        let (finding, instead) = VALIDATE.before_hip(&call);
        let code = match instead {
            Instead::Forward => None,
            Instead::Answer(code) => Some(code),
        };
        // Now, since the library may crash or the call is not made.
        if let Some(finding) = finding {
            self.say_before(&finding, code);
        }
        match code {
            None => decided,
            Some(code) => Decided { how: How::Failing(failing(code)), traffic: None, is_refused: true, ..decided },
        }
    }

    fn consider_access(self, library: Library, values: &[Value]) -> Decided {
        let number = library.number();
        let before = if VALIDATE.is_on() { HIP.look_around(number, &library) } else { Before::NOTHING };
        let ask = match *values {
            [Value::Ordinal(peer), Value::UInt(flags)] => HIP.enabling(number, &library, peer, flags as u32),
            [Value::Ordinal(peer)] => HIP.disabling(number, &library, peer),
            _ => return Decided { before, ..Decided::FORWARD },
        };
        let how = match ask {
            Ask::Forward => How::AsItCame,
            Ask::Unreachable => How::Failing(failing(Code::INVALID_DEVICE)),
            Ask::Succeed => How::Succeed(library),
        };
        Decided { how, before, asks: true, ..Decided::FORWARD }
    }

    /// What there is to do when the real function has returned.
    #[inline(always)]
    pub(crate) fn conclude(
        self,
        running: Running,
        since: Option<Instant>,
        decided: &Decided,
        values: &[Value],
        ret: Code,
    ) {
        if decided.asks {
            self.has_asked(decided);
        }
        if HIP.hides() && ret == Code::SUCCESS {
            hide(values);
        }
        let decision = decided.decision();
        if Kind::of(self.function()).copies() {
            self.count_copy(decision, ret);
        } else {
            self.count(ret);
        }
        let path = self.path(running, decision, ret);
        if running.is_recorded() {
            self.record(running, ret, decision, path);
        }
        if decided.is_refused {
            self.note_refused(running);
        }
        if running.is_shown() {
            self.show_call(running, since, values, ret, decision, path);
        }
        let is_fine = ret == Code::SUCCESS && decided.is_clean;
        if VALIDATE.is_on() && running.is_outermost() && !is_fine && !decided.is_refused {
            self.look_at_hip(decided, values, ret, path);
        }
        if running.is_shown() && running.is_outermost() && !is_in_a_child() {
            self.run_callbacks();
        }
    }

    #[cold]
    fn has_asked(self, decided: &Decided) {
        if let Some(library) = decided.library {
            HIP.asked(library.number());
        }
    }

    #[cold]
    #[inline(never)]
    fn look_at_hip(self, decided: &Decided, values: &[Value], ret: Code, _: Option<Path>) {
        if Kind::of(self.function()) == Kind::Other || decided.library.is_none() || is_in_a_child() {
            return;
        }
        unseen(|| {
            let parameters = read::parameters(values, Some(ret));
            let call = HipCall { function: self.function(), values, parameters, before: decided.before };
            for finding in VALIDATE.after_hip(&call, ret) {
                self.say(&finding, Some(ret));
            }
        });
    }

    /// Takes note of a device that is about to be reset.
    #[cold]
    pub(crate) fn note_resetting(self, real: *const c_void) -> Option<Library> {
        if !hands_out_hooks() || is_in_a_child() {
            return None;
        }
        unseen(|| {
            let library = Library::of(real)?;
            HIP.resetting(library.number(), &library);
            Some(library)
        })
    }

    /// Takes note that it was reset.
    #[cold]
    pub(crate) fn note_reset(self, library: Option<Library>) {
        if let Some(library) = library {
            HIP.asked(library.number());
        }
        HIP.memory_has_changed();
    }
}

/// Notes for the trace which GPUs there are, and which can reach each other. The last error is empty, and stays so.
fn note_gpus(library: Library, devices: i32) {
    let count = u8::try_from(devices).unwrap_or(0).min(64);
    for device in 0..count {
        let [name, uuid, bus_id] = hip::gpu(library, device.into());
        trace::gpu(device, &[&name, &uuid, &bus_id]);
    }
    for (device, peer) in (0..count).flat_map(|device| (0..count).map(move |peer| (device, peer))) {
        if device != peer {
            let access = i32::from(library.can_access(device.into(), peer.into()));
            trace::peer(device, peer, &[&format!("access={access}")]);
        }
    }
    if library.last_error() != Some(Code::SUCCESS) {
        library.clear_last_error();
    }
}

/// How a call fails with a code: HIP looks at ordinals before pointers, and at pointers before it follows them.
fn failing(code: Code) -> Failing {
    Failing { code, replaces: true, parameters: ptr::null() }
}

/// Where a copy begins and ends; none for arrays, which have no address here.
fn ends(values: &[Value], parameters: &Parameters) -> Option<Ends> {
    match (values, parameters) {
        (&[Value::Address(dst), _, Value::Address(src), _, Value::UInt(bytes), ..], _) => {
            Some(Ends { src: src as u64, dst: dst as u64, bytes })
        }
        (_, Parameters::Runtime(p)) if p.srcArray == 0 && p.dstArray == 0 => {
            let bytes = p.extent.width.saturating_mul(p.extent.height).saturating_mul(p.extent.depth);
            Some(Ends { src: p.srcPtr.ptr as u64, dst: p.dstPtr.ptr as u64, bytes: bytes as u64 })
        }
        _ => None,
    }
}

/// Writes over what a query told of access that is hidden.
#[cold]
fn hide(values: &[Value]) {
    let (output, is_hidden) = match *values {
        [Value::OutInt(can), Value::Ordinal(device), Value::Ordinal(peer)] => (can, HIP.is_hidden(device, peer, None)),
        [Value::OutInt(value), Value::P2pAttribute(attribute), Value::Ordinal(device), Value::Ordinal(peer)] => {
            (value, HIP.is_hidden(device, peer, Some(attribute)))
        }
        _ => return,
    };
    if is_hidden && !output.is_null() {
        // SAFETY: the real function reports success, so it has just written a number there.
        unsafe { output.write(0) };
    }
}

/// Whether the function frees memory.
pub(crate) const fn frees(function: Function) -> bool {
    matches!(
        function,
        Function::hipFree
            | Function::hipFreeAsync
            | Function::hipHostFree
            | Function::hipFreeHost
            | Function::hipHostUnregister
            | Function::hipMemUnmap
            | Function::hipIpcCloseMemHandle
    )
}
