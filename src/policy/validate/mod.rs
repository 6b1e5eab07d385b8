//! Faults of a program's peer calls, and the meaning of the errors that it gets.
//!
//! A call is checked when it has returned: what it returned is the program's already, and nothing here changes it, but for
//! `P2PSHIM_VALIDATE=strict`. A copy that succeeded, between memory that was seen before, on a stream that was seen before, is
//! checked without a lock and without asking the driver ([`Validate::is_clean`]); what is not clean by that is checked
//! again with what the driver says now, so that nothing is said by what is out of date.
//!
//! Only the outermost call is checked: a call of the driver inside one of the runtime has the runtime's arguments.
//!
//! **Streams** are known from the calls that create and destroy them, and asked for their context when first used. One is noted as
//! destroyed before it is, never after: by then another thread may have been given its handle. Non-blocking ones are counted by
//! device and by a tag of the thread that made them, so that a synchronous copy asks whether they are idle only where its own thread
//! has some: what threads do beside each other is not meant to be ordered. Nothing is asked about a stream that may be captured, be
//! destroyed, or belong to a context that is current elsewhere; those who are asking are waited for ([`captures::let_askers_finish`]).
//!
//! **The pending error.** 704 and 705 are noted by thread when an outermost call of the runtime returns them; `cudaGetLastError`,
//! a state row, takes the note away. The next peer call of the runtime that finds it speaks. The runtime is asked for any other error
//! by `cudaPeekAtLastError`, which leaves it there, after calls that are checked in full: what is pending behind a call that has
//! succeeded was so before it.
//!
//! **Strict.** The hook of a function returns the code itself. The runtime gets it as its last error by a call of its own that fails
//! with the code and does nothing else. When each finding is said, and why: docs/dev/decisions/said-before-and-after.md.

mod arguments;
mod call;
mod hazards;
mod hip;
mod objects;
mod returned;
mod rights;
#[cfg(test)]
mod tests;

pub(crate) use call::{CallView, access_pair};
use call::{Operand, Sides};
pub(crate) use hazards::Run;
pub(crate) use hip::is_clean as is_clean_hip;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;

use super::access::Access;
use super::driver::Driver;
use crate::api::abi::Code;
use crate::api::{AccessKind, Effect, Layer};
use crate::config;
use crate::model::finding::documents;
use crate::model::{self, Finding, Memcpy, Named, Path, Rule, Why, counters};
use crate::objects::memory::{self, Place};
use crate::objects::streams::{self, Known};
use crate::objects::{Objects, captures};

/// All that is known for the rules.
pub(crate) struct Validate {
    mode: AtomicU8,
    objects: &'static Objects,
    /// How often the program has enabled access: whether of HIP, from device, to device.
    enabled: Mutex<BTreeMap<(bool, i32, i32), u32>>,
    /// How often each rule has spoken of each place in the program.
    found: Mutex<BTreeMap<(usize, Rule), u64>>,
}

/// The thread that calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) thread: u8,
    /// Whether what must be asked of the driver each time is asked.
    pub(crate) is_check_due: bool,
}

const OFF: u8 = 0;
const WARN: u8 = 1;
const STRICT: u8 = 2;

impl Validate {
    pub(crate) const fn new(objects: &'static Objects) -> Self {
        Self {
            mode: AtomicU8::new(OFF),
            objects,
            enabled: Mutex::new(BTreeMap::new()),
            found: Mutex::new(BTreeMap::new()),
        }
    }

    pub(crate) fn configure(&self, validate: config::Validate) {
        let mode = match validate {
            config::Validate::Warn => WARN,
            config::Validate::Strict => STRICT,
            config::Validate::Off => OFF,
        };
        // Objects that came and went while nobody looked are not known.
        if !self.is_on() && mode != OFF {
            self.objects.forget();
        }
        self.mode.store(mode, Relaxed);
    }

    pub(crate) fn stop(&self) {
        self.mode.store(OFF, Relaxed);
    }

    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        self.mode.load(Relaxed) != OFF
    }

    /// Whether documented errors are returned, or may be.
    #[inline(always)]
    pub(crate) fn is_strict(&self) -> bool {
        self.mode.load(Relaxed) == STRICT
    }

    /// The last stream of direct copies between two devices, in either direction, that has something left to do.
    pub(crate) fn unfinished(&self, driver: &impl Driver, [one, other]: [u8; 2]) -> Option<([u8; 2], usize)> {
        captures::beside_none(|| {
            let last = |devices| Some((devices, self.objects.streams.last_of(devices)?));
            let mut copies = [[one, other], [other, one]].into_iter().filter_map(last);
            copies.find(|&(_, stream)| driver.is_stream_idle(stream) == Some(false))
        })
    }

    /// Whether there is nothing to say of a copy that succeeded, as far as that is known without asking; `ends` are its places, if they were looked up
    /// during the call.
    #[inline(always)]
    pub(crate) fn is_clean(
        &self,
        driver: &impl Driver,
        access: &Access,
        (copy, ends): (&Memcpy, Option<[Place; 2]>),
        by: Caller,
    ) -> bool {
        // To ask costs as much as all the rest, so that not each copy of a place is.
        if by.is_check_due && lacks_context(driver, copy) {
            return false;
        }
        // Of a copy of nothing only the handles matter.
        if copy.bytes == 0 {
            return false;
        }
        let looked_up = || Some([access.known(copy.src)?.0, access.known(copy.dst)?.0]);
        let Some([src, dst]) = ends.or_else(looked_up) else { return false };
        // Of these it is not known where they are.
        if [src, dst].iter().any(|place| matches!(place.kind, memory::Kind::Foreign | memory::Kind::Remote)) {
            return copy.reach().is_some();
        }
        is_of_a_device(src)
            && is_of_a_device(dst)
            && is_apart(copy, [src, dst])
            && self.is_on_device(copy.src_named, src)
            && self.is_on_device(copy.dst_named, dst)
            && self.is_stream_near(driver, copy.stream, [src.device, dst.device], by)
    }

    /// Whether an ordinal or a context is that of some memory.
    #[inline(always)]
    fn is_on_device(&self, named: Named, place: Place) -> bool {
        match named {
            Named::Ordinal(ordinal) => ordinal == i32::from(place.device),
            Named::Context(context) => self.objects.contexts.device_of(context) == Some(place.device),
            Named::Pointer => true,
        }
    }

    /// Whether a stream belongs to one of two devices; for a copy without a stream, whether neither has a stream that it does
    /// not wait for.
    #[inline(always)]
    fn is_stream_near(&self, driver: &impl Driver, stream: Option<usize>, devices: [u8; 2], by: Caller) -> bool {
        let objects = self.objects;
        let device = match stream {
            None => {
                let has_stream = |device: &u8| objects.streams.has_non_blocking(*device, by.thread);
                return !by.is_check_due || !devices.iter().any(has_stream);
            }
            Some(stream) if !streams::is_created(stream) && !by.is_check_due => return true,
            Some(stream) if !streams::is_created(stream) => {
                driver.current_context().and_then(|context| objects.contexts.device_of(context))
            }
            Some(stream) => objects.streams.there(stream).map(|known| known.device),
        };
        device.is_some_and(|device| devices.contains(&device) || device == Known::NOWHERE)
    }

    /// The finding before a call is made: in strict mode the documented error that the call is refused with, else what would
    /// crash the library, which can be said of at no other time.
    pub(crate) fn before(&self, driver: &impl Driver, seen: &CallView<'_>) -> Option<Finding> {
        let mut wrong = arguments::check(driver, self.objects, seen);
        if self.is_strict() {
            // A code that the function's own page lists goes before one that is another page's.
            let is_listed = |code: Code| documents(seen.request.function, code);
            let first = wrong.iter().position(|finding| finding.code.is_some_and(is_listed));
            let first = first.or_else(|| wrong.iter().position(|finding| finding.code.is_some()));
            return first.map(|position| wrong.swap_remove(position));
        }
        wrong.into_iter().find(|finding| crashes(finding.rule, seen.layer()))
    }

    /// The findings about a call that has returned.
    pub(crate) fn after(&self, driver: &impl Driver, seen: &CallView<'_>) -> Vec<Finding> {
        if seen.has_succeeded() {
            self.revive(seen);
        }
        let mut wrong = arguments::check(driver, self.objects, seen);
        match seen.ret {
            Some(Code::SUCCESS) if seen.request.copy().is_some() => {
                self.remember(driver, seen);
                hazards::find(driver, self.objects, seen, &mut wrong);
                wrong
            }
            Some(Code::SUCCESS) => {
                wrong.clear();
                wrong.extend(self.churn(seen));
                wrong
            }
            Some(ret) => {
                let is_context_gone = || returned::is_current_context_gone(driver);
                let by_driver = || returned::by_driver(driver, self.objects, seen, ret);
                vec![returned::explain((self.objects, seen, ret), wrong, is_context_gone, by_driver)]
            }
            None => Vec::new(),
        }
    }

    /// Notes that a handle which was destroyed, and has been copied with, is there again, made in a way that is not seen. A copy of nothing is no
    /// proof of it: nobody looks at its handles, but the driver at the stream.
    fn revive(&self, seen: &CallView<'_>) {
        let Some(call) = Sides::of(seen.request) else { return };
        let is_stream_used = !call.is_empty() || call.is_3d || seen.layer() == Layer::Driver;
        if let Some(stream) =
            seen.request.stream().filter(|&stream| is_stream_used && self.objects.streams.is_destroyed(stream))
        {
            self.objects.streams.forget(stream);
        }
        if call.is_empty() {
            return;
        }
        for side in call.sides {
            if let Operand::Array(array) = side.given {
                self.objects.arrays.unmark_destroyed(array);
            }
        }
    }

    pub(crate) fn of_run(&self, seen: &CallView<'_>, run: Run) -> Vec<Finding> {
        let mut found = Vec::new();
        hazards::of_run(seen, run, &mut found);
        found
    }

    /// The device of a context that exists.
    pub(crate) fn device_of(&self, driver: &impl Driver, context: usize) -> Option<u8> {
        let contexts = &self.objects.contexts;
        if let known @ Some(_) = contexts.device_of(context) {
            return known;
        }
        driver.context_id(context)?;
        let device = u8::try_from(driver.device_of_context(context)?).ok()?;
        contexts.note_device(context, device);
        Some(device)
    }

    /// Remembers the devices of the contexts that a copy names.
    fn remember(&self, driver: &impl Driver, seen: &CallView<'_>) {
        let contexts = seen.request.copy().map_or([0; 2], |copy| copy.contexts());
        for context in contexts.into_iter().filter(|&context| context != 0) {
            self.device_of(driver, context);
        }
    }

    /// Whether a program enables access to the same peer again and again. It has succeeded just now.
    fn churn(&self, seen: &CallView<'_>) -> Option<Finding> {
        /// So often is not by chance.
        const OFTEN: u32 = 4;
        let Some(model::Access::Enable { .. }) = seen.request.access() else { return None };
        let ([device, peer], layer) = (seen.pair?, seen.layer());
        let mut enabled = self.enabled.lock();
        let times = enabled.entry((layer == Layer::Hip, device, peer)).or_default();
        *times = times.saturating_add(1);
        (*times >= OFTEN).then(|| {
            let what = format!("access of device {device} to device {peer} was enabled {times} times");
            Finding::new(Rule::SlowEnableChurn, layer, what)
        })
    }

    /// Counts a finding, and returns how often its rule has spoken of this place by now.
    pub(crate) fn count(&self, site: usize, rule: Rule) -> u64 {
        /// More places than any program has that a reader would look at.
        const MOST: usize = 4096;
        counters::count_finding(rule);
        let mut found = self.found.lock();
        if found.len() >= MOST && !found.contains_key(&(site, rule)) {
            return u64::MAX;
        }
        let count = found.entry((site, rule)).or_default();
        *count = count.saturating_add(1);
        *count
    }
}

/// Access between two devices is disabled while a stream of copies from one to the other has something left to do.
pub(crate) fn of_disabling(layer: Layer, [device, peer]: [i32; 2], ([src, dst], stream): ([u8; 2], usize)) -> Finding {
    let what = format!(
        "access of device {device} to device {peer} is disabled while stream {stream:#x}, with a copy from device {src} to device {dst}, has \
         unfinished work"
    );
    Finding::new(Rule::DisableUnderCopy, layer, what)
}

/// Whether a call of the driver is made without a current context, where that succeeds: a created stream has its own.
#[inline(always)]
fn lacks_context(driver: &impl Driver, copy: &Memcpy) -> bool {
    matches!((copy.stream, copy.src_named), (Some(3..), Named::Context(_))) && driver.current_context().is_none()
}

/// Whether the real library may not survive it.
fn crashes(rule: Rule, layer: Layer) -> bool {
    match rule {
        Rule::CopyDestroyedStream
        | Rule::Copy3dArrayAndPointer
        | Rule::Copy3dDestroyedArray
        | Rule::CopyInvalidContext => true,
        Rule::Copy3dNullParameters => layer == Layer::Driver,
        _ => false,
    }
}

/// Whether HIP may not survive it.
fn crashes_hip(rule: Rule) -> bool {
    rule == Rule::CopyUnknownPointer
}

/// The pending error that a call of the runtime leaves and that is no failure of its own: a code, or 0.
pub(crate) fn pending_after(seen: &CallView<'_>) -> i32 {
    let changes_access =
        matches!(seen.request.function.effect(), Effect::Access(AccessKind::enable | AccessKind::disable));
    match seen.ret {
        Some(code @ (Code::PEER_ACCESS_ALREADY_ENABLED | Code::PEER_ACCESS_NOT_ENABLED)) if changes_access => code.0,
        _ => 0,
    }
}

/// The finding about a call that meets a pending error, left by one about peer access or by one that is not checked.
pub(crate) fn of_pending(code: Code, is_of_access: bool, seen: &CallView<'_>) -> Finding {
    let who = if is_of_access { "an earlier call about peer access" } else { "a call that p2pshim does not check" };
    let name = crate::api::codes::name(seen.layer(), code).unwrap_or("an error");
    let what = if seen.request.copy().is_some() { "copy" } else { "call" };
    Finding::new(
        Rule::ErrorLeftBehind,
        seen.layer(),
        format!("{who} left {} ({name}) pending before this {what}", code.0),
    )
}

/// Whether of a copy on this path there may be something to say.
#[inline(always)]
pub(crate) fn is_of_note(path: Option<Path>) -> bool {
    is_detour(path) || path == Some(Path::Broken)
}

/// Whether a detour is the program's to spare.
#[inline(always)]
pub(crate) fn is_detour(path: Option<Path>) -> bool {
    matches!(path, Some(Path::Staged(Why::NotEnabled | Why::Pool | Why::Mapped)))
}

/// Whether the ends of a copy do not overlap. Each lies inside its memory: the library checks that.
#[inline(always)]
fn is_apart(copy: &Memcpy, [src, dst]: [Place; 2]) -> bool {
    let Some([src_reach, dst_reach]) = copy.reach() else { return false };
    src.device != dst.device || copy.src.abs_diff(copy.dst) >= src_reach.max(dst_reach)
}

#[inline(always)]
fn is_of_a_device(place: Place) -> bool {
    matches!(place.kind, memory::Kind::Plain | memory::Kind::Pool | memory::Kind::Mapped)
}
