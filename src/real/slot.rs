//! One real pointer for each route in.
//!
//! A slot of a look-up has its pointer from the start. For a slot of an export the first call looks: in the global scope, behind us; else
//! in the scope of the object that contains the caller, since `RTLD_NEXT` misses a runtime that was opened with `RTLD_LOCAL`, as every
//! Python extension does; else in any loaded object. As in the dynamic linker, a definition in an object without versions satisfies every
//! version.
//!
//! A slot, once set, never changes, so a call loads one pointer. The library that it leads to is pinned (`RTLD_NODELETE`) before, and so
//! are both ends of a call site's route; what cannot be pinned, in a namespace of `dlmopen`, is not hooked. A slot whose call sites were
//! told apart is never filled, even if a runtime is opened globally later.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

use super::loader::{self, Handle, Wanted};
use super::route::Routes;
pub(crate) use super::route::Slot;
use crate::api::{Function, HIP_VERSIONS, Layer, RUNTIME_VERSIONS};

/// How many definitions of one name a program may look up and have seen: each loaded copy of a
/// runtime or driver takes one.
pub(crate) const CLAIMABLE: usize = 8;
/// The slot of the export that references without a version are bound to.
pub(crate) const UNVERSIONED: usize = CLAIMABLE;
/// The slot of the export with the first of the library's versions.
pub(crate) const FIRST_VERSION: usize = UNVERSIONED + 1;

/// How many slots a function of the driver has.
pub(crate) const DRIVER_SLOTS: usize = FIRST_VERSION;
/// How many slots a function of the runtime has.
pub(crate) const RUNTIME_SLOTS: usize = FIRST_VERSION + RUNTIME_VERSIONS.len();
/// How many slots a function of HIP has.
pub(crate) const HIP_SLOTS: usize = FIRST_VERSION + HIP_VERSIONS.len();

include!(concat!(env!("OUT_DIR"), "/slots.rs"));

/// Which of a function's routes a slot belongs to. Those of one runtime have the same number, whichever the function.
pub(crate) fn position(function: Function, slot: &Slot) -> usize {
    (ptr::from_ref(slot) as usize).wrapping_sub(of(function).as_ptr() as usize) / size_of::<Slot>()
}

/// The symbol version that callers by a route are bound to, if it is the export's of one.
pub(crate) fn version(function: Function, slot: &Slot) -> Option<&'static CStr> {
    wanted(function, position(function, slot))?.version
}

/// The slot through which calls reach `real` already; its position. An export's counts before the others.
pub(crate) fn holding(slots: &[Slot], real: *mut c_void) -> Option<usize> {
    slots.iter().rposition(|slot| slot.real() == real)
}

/// Claims a slot through which calls reach `real`; its position, or none if more copies have been looked up than there
/// are slots. The function's library must be there for good.
pub(crate) fn claim(slots: &[Slot], real: *mut c_void) -> Option<usize> {
    slots.iter().take(CLAIMABLE).position(|slot| slot.claim(real))
}

/// Whether look-ups hand a function out as ours: 0 no; its export, `LINKED` or `ALONE`; or only otherwise, `APART`.
static HANDED_OUT: [AtomicU8; Function::ALL.len()] = [const { AtomicU8::new(0) }; Function::ALL.len()];
/// To programs that are linked with the driver as well.
const LINKED: u8 = 1;
/// To programs that are not: who calls it has looked it up.
const ALONE: u8 = 2;
/// By a slot of a look-up, or an export of a runtime.
const APART: u8 = 3;

fn handed_out(function: Function) -> u8 {
    HANDED_OUT.get(function as usize).map_or(0, |state| state.load(Relaxed))
}

/// Notes that a look-up returns the trampoline of this slot.
pub(crate) fn hand_out(function: Function, position: usize) {
    let Some(state) = HANDED_OUT.get(function as usize) else { return };
    if position != UNVERSIONED || function.layer() != Layer::Driver {
        let _ = state.compare_exchange(0, APART, Relaxed, Relaxed);
    } else if state.load(Relaxed) != ALONE {
        let is_linked = wanted(function, position).is_some_and(|wanted| wanted.next_global().is_some());
        state.store(if is_linked { LINKED } else { ALONE }, Relaxed);
    }
}

/// The real functions that look-ups have handed out as ours.
pub(crate) fn looked_up(function: Function) -> impl Iterator<Item = *mut c_void> {
    let slots = of(function);
    let export = slots.get(UNVERSIONED).filter(|_| [LINKED, ALONE].contains(&handed_out(function)));
    slots.iter().take(CLAIMABLE).chain(export).map(Slot::real)
}

/// Whether look-ups have handed the function out as ours.
pub(crate) fn is_handed_out(function: Function) -> bool {
    handed_out(function) != 0
}

/// Whether calls by a slot are made by pointers that were looked up, or may be.
#[inline(always)]
pub(crate) fn is_looked_up(function: Function, slot: &Slot) -> bool {
    position(function, slot) < CLAIMABLE || handed_out(function) == ALONE
}

/// Finds the slot of the export that references to `real` are bound to; its position, or none if they are not bound to
/// us. A look-up that returns it gives the pointer that the program's own `&function` gives.
pub(crate) fn exported(function: Function, slots: &[Slot], real: *mut c_void) -> Option<usize> {
    let versions_first = (FIRST_VERSION..slots.len()).chain([UNVERSIONED]);
    for position in versions_first {
        let slot = slots.get(position)?;
        let next = wanted(function, position)?.next_global();
        let is_it = next == Some(real) || next.is_none() && is_of_the_driver(function, real);
        if is_it && slot.claim(real) {
            return Some(position);
        }
    }
    None
}

/// As [`exported`], but only where the definition behind ours is `real`: linked references to it are bound to us.
pub(crate) fn linked(function: Function, slots: &[Slot], real: *mut c_void) -> Option<usize> {
    let mut positions = (FIRST_VERSION..slots.len()).chain([UNVERSIONED]);
    positions.find(|&position| {
        let is_it = || wanted(function, position).is_some_and(|wanted| wanted.next_global() == Some(real));
        slots.get(position).is_some_and(|slot| is_it() && loader::pin(real) && slot.claim(real))
    })
}

/// Whether `real` is of the driver, which a process has once: it is the one by whatever scope a caller sees it. So each
/// route to it leads through one trampoline, and a tool that patches the code of that sees the calls by all.
fn is_of_the_driver(function: Function, real: *mut c_void) -> bool {
    function.layer() == Layer::Driver
        && Handle::to_loaded(c"libcuda.so.1").and_then(|driver| driver.symbol(function.c_name())) == Some(real)
}

/// The symbol that references to the export at `position` look for.
fn wanted(function: Function, position: usize) -> Option<Wanted> {
    let versions = match function.layer() {
        Layer::Runtime => RUNTIME_VERSIONS,
        Layer::Driver | Layer::Nvml => &[],
        Layer::Hip => HIP_VERSIONS,
    };
    let version = match position.checked_sub(FIRST_VERSION) {
        Some(index) => Some(*versions.get(index)?),
        None => None,
    };
    Some(Wanted { name: function.c_name(), version })
}

/// Finds the real function for a call that came by the export at `position` of `slots`.
///
/// A definition in the global scope is what every caller would be bound to without us, so the slot
/// keeps it. Otherwise the caller's own library decides, since two copies of one runtime may be
/// loaded out of each other's sight, and what was found is kept by caller.
pub(crate) fn resolve(
    function: Function,
    slots: &[Slot],
    position: usize,
    caller: *const c_void,
) -> Option<*mut c_void> {
    let slot = slots.get(position)?;
    let wanted = wanted(function, position)?;
    let own = || wanted.in_scope_of_caller(caller);
    if let Some(real) = wanted.next_global() {
        // A caller that was there before the definition is bound to that of its own libraries, if they have one.
        if loader::is_later(real, caller)
            && let Some(own) = own()
            && own != real
            && !loader::are_together(own, caller)
        {
            return Some(route_for_good(slot, caller, own));
        }
        // Once callers have been told apart they stay so: those that came first are bound to their own library.
        let is_for_all = loader::pin(real) && slot.claim(real);
        return Some(if is_for_all { real } else { route_for_good(slot, caller, real) });
    }
    let real = own().or_else(|| wanted.anywhere(caller));
    loader::forget_error();
    let real = real?;
    if is_of_the_driver(function, real) && loader::pin(real) && slot.claim(real) {
        return Some(real);
    }
    Some(route_for_good(slot, caller, real))
}

/// Keeps the route, and both ends of it loaded: another library at the caller's address would be taken for it.
fn route_for_good(slot: &Slot, caller: *const c_void, real: *mut c_void) -> *mut c_void {
    if loader::pin(real) && loader::pin(caller) { ROUTES.keep(slot, caller, real) } else { real }
}

/// Where this call site's calls by the slot go, if its own library decided.
pub(crate) fn route(slot: &Slot, caller: *const c_void) -> Option<*mut c_void> {
    ROUTES.find(slot, caller)
}

/// The real functions that call sites' own libraries decided for.
pub(crate) fn routed() -> impl Iterator<Item = *mut c_void> {
    ROUTES.all()
}

static ROUTES: Routes<1024> = Routes::new();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_same_pointer_same_slot_until_all_are_taken() {
        let slots = [const { Slot::empty() }; DRIVER_SLOTS];
        let real = |n: usize| (0x1000 * (n + 1)) as *mut c_void;
        for n in 0..CLAIMABLE {
            assert_eq!(claim(&slots, real(n)), Some(n));
        }
        for n in 0..CLAIMABLE {
            assert_eq!(claim(&slots, real(n)), Some(n));
        }
        assert_eq!(claim(&slots, real(CLAIMABLE)), None);
        assert!(slots[UNVERSIONED].real().is_null(), "exports' slots are not claimable");
    }

    #[test]
    fn resolve_function_that_no_library_has_is_none() {
        let slots = [const { Slot::empty() }; RUNTIME_SLOTS];
        let caller = resolve_function_that_no_library_has_is_none as *const c_void;
        for position in UNVERSIONED..RUNTIME_SLOTS {
            assert_eq!(resolve(Function::cudaMemcpyPeer, &slots, position, caller), None);
        }
    }
}
