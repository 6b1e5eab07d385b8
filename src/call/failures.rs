//! Calls that have no record, or copy with the host, and fail: a note in the trace says which, with which code, from where, and which GPU's context was current. So the
//! report knows of a context that is lost. An error that the program reads by `cudaGetLastError` is noted too, and calls about peer access whose code is
//! forgiven. Of the functions that only the checker of order needs, memsets are noted always, the others if order is checked.

use p2pshim_trace::{CAPTURING, NoteKind};

use super::arrival::Caller;
use super::{blocked, mode, origin, recording, thread};
use crate::api::abi::Code;
use crate::api::{Effect, Function, Layer, State, codes};
use crate::objects::{OBJECTS, captures};
use crate::os::table::Table;
use crate::policy::Driver;
use crate::policy::driver::Holder;
use crate::real::driver::RealDriver;
use crate::record::trace;

/// How often a function has returned a code.
static TIMES: Table<512, 32> = Table::new();

/// A call has failed that has no record. Of a function and code the first is noted, the second, the fourth, and so on: a program may go on for ever.
#[cold]
#[inline(never)]
pub(super) fn note(function: Function, caller: Caller, code: Code) {
    note_about(function, caller, code, None);
}

/// Likewise, of a call about this memory.
#[cold]
#[inline(never)]
pub(super) fn note_about(function: Function, caller: Caller, code: Code, memory: Option<u64>) {
    /// `CUDA_ERROR_NOT_READY`.
    const NOT_READY: Code = Code(600);
    if code == NOT_READY || is_tidied_up(function, code) {
        return;
    }
    let Some((trace, _)) = blocked::place(function, caller) else { return };
    let code = caller.numbering(function).usual(code);
    let kind = (function as u64 + 1) << 16 | u64::from(code.0.unsigned_abs() & 0xffff);
    if !(TIMES.count(kind) + 1).is_power_of_two() {
        return;
    }
    mode::unseen(|| {
        let site = origin::of_untraced(caller, function, false).unwrap_or_else(|| site(trace, caller));
        // CUDA's says nothing of HIP's.
        let current = if function.layer() == Layer::Hip { None } else { RealDriver.current_context() };
        let device = current.and_then(|context| {
            let asked = || u8::try_from(RealDriver.device_of_context(context)?).ok();
            OBJECTS.contexts.device_of(context).or_else(|| if captures::may_be_under_way() { None } else { asked() })
        });
        let name = codes::name(function.layer(), code).unwrap_or_default();
        // Only this code may be about access to the memory.
        let memory =
            memory.filter(|_| code == Code(1) && function.layer() != Layer::Hip && !captures::may_be_under_way());
        memory.iter().for_each(|_| recording::note_gpus_before_a_copy());
        let of_memory = memory.and_then(|it| RealDriver.memory(it));
        let of_memory = of_memory.filter(|it| !matches!(it.holder, Holder::Host | Holder::Foreign));
        let of_memory = of_memory.and_then(|memory| u8::try_from(memory.device).ok());
        let [device, of_memory] = [device, of_memory].map(|it| it.map(|it| it.to_string()).unwrap_or_default());
        let capture = if captures::is_capturing(thread::id()) { CAPTURING } else { "" };
        let text = [function.base(), &code.0.to_string(), name, &device, &of_memory, capture];
        trace::note(NoteKind::Failed, site.into(), &text);
    });
}

/// Whether NVIDIA's runtime makes the call once the driver has been shut down, as its destructors do in every program.
fn is_tidied_up(function: Function, code: Code) -> bool {
    /// `CUDA_ERROR_DEINITIALIZED`.
    const DEINITIALIZED: Code = Code(4);
    let is_its_own = Effect::State(State::releases_primary_context) == function.effect()
        || Effect::State(State::unloads_module) == function.effect()
        || function == Function::cuLibraryUnload;
    code == DEINITIALIZED && is_its_own
}

/// Whether a code says that a context is lost.
pub(super) fn loses_context(code: Code) -> bool {
    matches!(code.0, 214 | 220 | 226 | 700 | 702 | 710 | 714..=719)
}

/// The number of the place in the program that a call comes from.
pub(super) fn site(trace: &trace::Trace, caller: Caller) -> u16 {
    let address = caller.program_address() as usize;
    trace.known_site(address).unwrap_or_else(|| trace.new_site(address))
}
