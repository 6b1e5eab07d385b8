//! Where a call comes from, and where it goes: what a trampoline says, and the real function.

use std::ffi::c_void;
use std::ptr::NonNull;

use p2pshim_trace::UNTIL_10_0;

use super::frame::Frame;
use super::mode::{self, contained};
use super::room::Room;
use super::thread;
use crate::api::abi::{Code, Value};
use crate::api::codes::Numbering;
use crate::api::{Function, Layer};
use crate::machine::{Arrival, Entry};
use crate::model::Request;
use crate::real::runtime;
use crate::real::slot::{self, Slot};
use crate::record;

/// The caller, and its route. It has nothing to drop, so that a thread may be cancelled inside the real function.
#[derive(Clone, Copy)]
pub(crate) struct Caller {
    slot: &'static Slot,
    entry: Entry,
}

impl Caller {
    /// Takes over what the trampoline says.
    ///
    /// # Safety
    /// `arrival` was made by a trampoline that jumped to the calling hook.
    #[inline(always)]
    pub(crate) unsafe fn new(arrival: Arrival) -> Self {
        // SAFETY: the trampoline's slot is a static.
        Self { slot: unsafe { &*(arrival.slot() as *const Slot) }, entry: arrival.entry() }
    }

    /// The stack pointer at entry.
    #[inline(always)]
    pub(crate) fn stack(self) -> usize {
        self.entry.stack()
    }

    /// Where the program continues after the call.
    #[inline(always)]
    pub(crate) fn return_address(self) -> *const c_void {
        // SAFETY: a caller lives in its hook's frame.
        unsafe { self.entry.return_address() }
    }

    /// A parameter that the caller has passed on its stack, by its place among integers and pointers, from 0.
    ///
    /// # Safety
    /// The function has so many parameters.
    #[inline(always)]
    pub(crate) unsafe fn parameter(self, place: usize) -> usize {
        // SAFETY: the caller's, and a caller lives in its hook's frame.
        unsafe { self.entry.parameter(place) }
    }

    /// Which of a function's routes the call came by.
    pub(crate) fn route(self, function: Function) -> u8 {
        slot::position(function, self.slot) as u8
    }

    /// Whether the program has looked up what it calls, as a runtime does with functions of the driver.
    #[inline(always)]
    pub(crate) fn has_looked_up(self, function: Function) -> bool {
        slot::is_looked_up(function, self.slot)
    }

    /// The real function, or none if no loaded library has it.
    #[inline(always)]
    pub(crate) fn real(self, function: Function) -> Option<NonNull<c_void>> {
        NonNull::new(self.slot.real()).or_else(|| self.find_real(function))
    }

    /// The numbers in which the codes are that a call by this route returns.
    #[cold]
    #[inline(never)]
    pub(crate) fn numbering(self, function: Function) -> Numbering {
        runtime::numbering(function, self.slot, self.real(function).map(NonNull::as_ptr))
    }

    /// A code that a call has returned, as a record holds it. Success has one number in all.
    #[inline(always)]
    pub(crate) fn recorded(self, function: Function, Code(given): Code) -> i32 {
        let is_old = given != Code::SUCCESS.0 && self.numbering(function) == Numbering::Until10_0;
        if is_old { given | UNTIL_10_0 } else { given }
    }

    #[cold]
    #[inline(never)]
    fn find_real(self, function: Function) -> Option<NonNull<c_void>> {
        let real = slot::route(self.slot, self.return_address()).or_else(|| {
            let position = slot::position(function, self.slot);
            // Not only while we are not busy: a call that cannot be forwarded would fail.
            contained(|| slot::resolve(function, slot::of(function), position, self.return_address()))
        });
        NonNull::new(real?)
    }
}

impl Caller {
    /// The return address of the outermost call in progress; if no call encloses this one, of this call.
    pub(crate) fn program_address(self) -> *const c_void {
        match thread::current().enclosing(self.stack()) {
            // SAFETY: as above; the enclosing call has not returned, since its frame lies above this one's.
            Some(entry) => unsafe { entry.return_address() },
            None => self.return_address(),
        }
    }
}

/// The code of a function that no loaded library has: the vendor documents it for a symbol that could not be resolved.
#[cold]
pub(crate) fn unavailable(function: Function, caller: Caller) -> Code {
    /// `NVML_ERROR_LIBRARY_NOT_FOUND`.
    const NO_NVML: Code = Code(12);
    let numbering = caller.numbering(function);
    let code = if function.layer() == Layer::Nvml { NO_NVML } else { Code::SHARED_OBJECT_SYMBOL_NOT_FOUND };
    if mode::is_on() {
        mode::unseen(|| record::log::unavailable(function, code, numbering));
    }
    numbering.given(code)
}

/// A call that is under way: who makes it, and what it asks for. It has nothing to drop.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    /// Its request.
    pub(crate) request: Request<'a>,
    /// Its caller.
    pub(crate) caller: Caller,
    /// The real function.
    pub(crate) found: *const c_void,
}

impl<'a> Call<'a> {
    /// Parses a call. `room` is for what its arguments point to.
    #[inline(always)]
    pub(crate) fn new(
        function: Function,
        caller: Caller,
        found: *const c_void,
        arguments: &'a [Value],
        room: &'a mut Room,
    ) -> Self {
        let request = if function.is_regular() {
            Request::regular(function, arguments, |arguments| room.regular_parameters(arguments))
        } else {
            Request::new(function, arguments, |of| room.parameters(of))
        };
        Self { request, caller, found }
    }

    /// A regular copy in one dimension.
    #[inline(always)]
    pub(crate) fn linear(function: Function, (caller, found): (Caller, *const c_void), arguments: &'a [Value]) -> Self {
        Self { request: Request::regular(function, arguments, |_| None), caller, found }
    }

    /// Which function is called.
    #[inline(always)]
    pub(crate) fn function(&self) -> Function {
        self.request.function
    }

    /// The stream that it names; 0 if it names none.
    #[inline(always)]
    pub(crate) fn stream(&self) -> usize {
        self.request.stream().unwrap_or(0)
    }

    /// The call, as its thread notes it.
    #[inline(always)]
    pub(crate) fn frame(&self) -> Frame {
        Frame::new(self.function(), self.caller.slot.number(), self.caller.entry)
    }

    /// The numbers in which the codes are that it returns.
    pub(crate) fn numbering(&self) -> Numbering {
        self.caller.numbering(self.function())
    }

    /// The code that it has returned, in the usual numbers.
    #[inline(always)]
    pub(crate) fn usual(&self, given: Code) -> Code {
        match (given, self.function().layer()) {
            (Code::SUCCESS, _) | (_, Layer::Driver | Layer::Hip | Layer::Nvml) => given,
            (_, Layer::Runtime) => self.numbering().usual(given),
        }
    }
}
