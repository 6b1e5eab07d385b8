//! What a program gets wrong with its peer calls, and what the errors mean that it gets.
//!
//! A call is looked at when it has returned: the answer is the program's already, and nothing here changes it, but for
//! `P2PSHIM_VALIDATE=strict`. A copy that succeeded, between memory that was seen before, on a stream that was seen before, is
//! looked at without a lock and without asking the driver ([`Validate::is_clean`]); what is not clean by that is looked at
//! again with what the driver says now, so that nothing is said by what is out of date.
//!
//! Only the outermost call is looked at: a call of the driver inside one of the runtime has the runtime's arguments.

mod answers;
mod arguments;
mod call;
mod facts;
mod handles;
mod hazards;
mod hip;
mod rules;
#[cfg(test)]
mod tests;

pub(crate) use arguments::Finding;
use call::{Given, PeerCall};
pub(crate) use call::{Kind, Parameters, Seen};
pub(crate) use facts::Array;
pub(crate) use handles::Fact;
pub(crate) use hazards::Run;
pub(crate) use hip::{HipCall, is_clean as is_clean_hip};
pub(crate) use rules::{Rule, Severity};

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU64};
use std::sync::{Mutex, PoisonError};

use self::facts::Facts;
use super::Driver;
use super::access::Access;
use super::changes;
use super::memory::{self, Place};
use super::path::{Path, Why};
use crate::api::abi::{
    CUDA_MEMCPY3D_PEER, Code, Value, cudaExtent, cudaMemcpy3DPeerParms, cudaPitchedPtr, cudaPos, is_pointer,
};
use crate::api::{Function, Layer};
use crate::config;

/// All that is known for the rules.
pub(crate) struct Validate {
    mode: AtomicU8,
    facts: Facts,
    /// How many devices there are, once a copy has succeeded.
    devices: AtomicI32,
    /// How often the program has enabled access: whether of HIP, from device, to device.
    enabled: Mutex<BTreeMap<(bool, i32, i32), u32>>,
    /// How often each rule has spoken of each place in the program.
    found: Mutex<BTreeMap<(usize, Rule), u64>>,
    counts: [AtomicU64; Rule::ALL.len()],
}

/// What is done instead of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instead {
    /// Nothing.
    Forward,
    /// The program gets the documented code.
    Answer(Code),
}

/// Who calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    /// The tag of the thread.
    pub(crate) thread: u8,
    /// Whether what must be asked of the driver each time is asked.
    pub(crate) is_looked_at: bool,
}

/// A tag for one more thread: its own, as long as there are any.
#[cold]
pub(crate) fn next_tag() -> u8 {
    static NEXT: AtomicU8 = AtomicU8::new(Fact::NO_THREAD + 1);
    let next = NEXT.fetch_update(Relaxed, Relaxed, |next| (next < Fact::MANY).then_some(next + 1));
    next.unwrap_or(Fact::MANY)
}

const OFF: u8 = 0;
const WARN: u8 = 1;
const STRICT: u8 = 2;
/// The options have not been read: a call is looked at, and they are read then.
const UNKNOWN: u8 = 3;

impl Validate {
    pub(crate) const fn new() -> Self {
        Self {
            mode: AtomicU8::new(UNKNOWN),
            facts: Facts::new(),
            devices: AtomicI32::new(0),
            enabled: Mutex::new(BTreeMap::new()),
            found: Mutex::new(BTreeMap::new()),
            counts: [const { AtomicU64::new(0) }; Rule::ALL.len()],
        }
    }

    /// Takes over the option.
    pub(crate) fn configure(&self, validate: config::Validate) {
        let mode = match validate {
            config::Validate::Warn => WARN,
            config::Validate::Strict => STRICT,
            config::Validate::Off => OFF,
        };
        // What came and went while nobody looked is not known.
        if !self.is_on() && mode != OFF {
            self.facts.forget();
        }
        self.mode.store(mode, Relaxed);
        changes::happened();
    }

    /// Looks at nothing any more.
    pub(crate) fn stop(&self) {
        self.mode.store(OFF, Relaxed);
    }

    /// Whether calls are looked at.
    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        self.mode.load(Relaxed) != OFF
    }

    /// Whether documented errors are answered, or may be.
    #[inline(always)]
    pub(crate) fn is_strict(&self) -> bool {
        self.mode.load(Relaxed) >= STRICT
    }

    /// What has been seen of handles and memory.
    pub(crate) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Whether a stream may be one that the program destroyed.
    #[inline(always)]
    pub(crate) fn is_destroyed(&self, stream: usize) -> bool {
        stream > 2 && self.facts.streams.find(stream).is_some_and(|fact| fact.is_destroyed)
    }

    /// Whether a stream was created in sight, and is not destroyed.
    pub(crate) fn is_there(&self, stream: usize) -> bool {
        stream > 2 && self.is_on() && self.facts.streams.find(stream).is_some_and(|fact| !fact.is_destroyed)
    }

    /// Whether there is nothing to say of a copy that succeeded, as far as that is known without asking.
    #[inline(always)]
    pub(crate) fn is_clean(&self, driver: &impl Driver, access: &Access, copy: &Linear, by: Caller) -> bool {
        // To ask costs as much as all the rest, so that not each copy of a place is.
        if by.is_looked_at && lacks_context(driver, copy) {
            return false;
        }
        if copy.bytes == 0 {
            return self.is_clean_nothing(copy);
        }
        let (Some((src, _)), Some((dst, _))) = (access.known(copy.src), access.known(copy.dst)) else {
            return false;
        };
        // It lies inside its memory: the library looks at that.
        let [src_reach, dst_reach] = copy.reach;
        // Of these it is not known where they are.
        if src.kind == memory::Kind::Foreign || dst.kind == memory::Kind::Foreign {
            return true;
        }
        is_of_a_device(src)
            && is_of_a_device(dst)
            && (src.device != dst.device || copy.src.abs_diff(copy.dst) >= src_reach.max(dst_reach))
            && self.is_on_device(copy.src_at, src)
            && self.is_on_device(copy.dst_at, dst)
            && self.is_stream_near(driver, copy.stream, [src.device, dst.device], by)
    }

    /// The same of a copy of nothing, of which only the handles matter.
    #[cold]
    fn is_clean_nothing(&self, copy: &Linear) -> bool {
        let is_there = |at| match at {
            Value::Ordinal(ordinal) => (0..self.devices.load(Relaxed)).contains(&ordinal),
            Value::Address(context) => self.knows_context(context),
            _ => false,
        };
        // A box of nothing must have memory all the same.
        let is_given = !copy.is_box || (copy.src != 0 && copy.dst != 0);
        is_given
            && is_there(copy.src_at)
            && is_there(copy.dst_at)
            && !copy.stream.is_some_and(|stream| self.is_destroyed(stream))
    }

    /// Whether an ordinal or a context is that of some memory.
    #[inline(always)]
    fn is_on_device(&self, at: Value, place: Place) -> bool {
        match at {
            Value::Ordinal(ordinal) => ordinal == i32::from(place.device),
            Value::Address(context) => {
                self.facts.contexts.find(context).is_some_and(|fact| fact.device == place.device)
            }
            _ => false,
        }
    }

    /// Whether a stream belongs to one of two devices; for a copy without a stream, whether neither has a stream that it does
    /// not wait for.
    #[inline(always)]
    fn is_stream_near(&self, driver: &impl Driver, stream: Option<usize>, devices: [u8; 2], by: Caller) -> bool {
        let fact = match stream {
            None => {
                let has_stream = |device: &u8| self.facts.has_non_blocking(*device, by.thread);
                return !by.is_looked_at || !devices.iter().any(has_stream);
            }
            Some(0..=2) if !by.is_looked_at => return true,
            Some(0..=2) => driver.current_context().and_then(|context| self.facts.contexts.find(context)),
            Some(stream) => self.facts.streams.find(stream).filter(|fact| !fact.is_destroyed),
        };
        fact.is_some_and(|fact| devices.contains(&fact.device) || fact.device == Fact::NOWHERE)
    }

    /// What is to be said and done before a call is made: where the documentation defines an error, in strict mode; and what
    /// would crash the library, which can be said of at no other time.
    pub(crate) fn before(&self, driver: &impl Driver, seen: &Seen<'_>) -> (Option<Finding>, Instead) {
        let mut wrong = arguments::check(driver, &self.facts, seen);
        if self.is_strict() {
            // A code that the function's own page lists goes before one that is another page's.
            let is_listed = |code: Code| documents(seen.function, code);
            let first = wrong.iter().position(|finding| finding.code.is_some_and(is_listed));
            let first = first.or_else(|| wrong.iter().position(|finding| finding.code.is_some()));
            let first = first.map(|position| wrong.swap_remove(position));
            let code = first.as_ref().and_then(|finding| finding.code);
            return (first, code.map_or(Instead::Forward, Instead::Answer));
        }
        let crashing = wrong.into_iter().find(|finding| crashes(finding.rule, seen.layer()));
        (crashing, Instead::Forward)
    }

    /// What there is to say of a call that has returned.
    pub(crate) fn after(&self, driver: &impl Driver, seen: &Seen<'_>) -> Vec<Finding> {
        if seen.has_succeeded() {
            self.revive(seen);
        }
        let mut wrong = arguments::check(driver, &self.facts, seen);
        match seen.ret {
            Some(Code::SUCCESS) if Kind::of(seen.function).copies() => {
                self.devices.store(driver.device_count(), Relaxed);
                self.remember(driver, seen);
                hazards::find(driver, &self.facts, seen, &mut wrong);
                wrong
            }
            Some(Code::SUCCESS) => {
                wrong.clear();
                wrong.extend(self.churn(driver, seen));
                wrong
            }
            Some(ret) => vec![answers::explain(driver, seen, ret, wrong)],
            None => Vec::new(),
        }
    }

    /// What was destroyed, and has been copied with, is there again, made in a way that is not seen. A copy of nothing is no
    /// proof of it: nobody looks at its handles, but the driver at the stream.
    fn revive(&self, seen: &Seen<'_>) {
        let Some(call) = PeerCall::new(seen.values, &seen.parameters) else { return };
        let is_stream_used = !call.is_empty() || call.is_box || seen.layer() == Layer::Driver;
        if let Some(stream) = call.stream.filter(|&stream| is_stream_used && self.is_destroyed(stream)) {
            self.facts.streams.forget(stream);
        }
        if call.is_empty() {
            return;
        }
        for side in call.sides {
            if let Given::Array(array) = side.given {
                self.facts.array_is_there(array);
            }
        }
    }

    /// What a run of copies shows.
    pub(crate) fn of_run(&self, seen: &Seen<'_>, run: Run) -> Vec<Finding> {
        let mut found = Vec::new();
        hazards::of_run(seen, run, &mut found);
        found
    }

    /// Whether a context was seen, and exists.
    #[inline(always)]
    pub(crate) fn knows_context(&self, context: usize) -> bool {
        self.facts.contexts.find(context).is_some()
    }

    /// The device of a context that exists.
    pub(crate) fn device_of(&self, driver: &impl Driver, context: usize) -> Option<u8> {
        if let Some(fact) = self.facts.contexts.find(context) {
            return Some(fact.device);
        }
        driver.context_id(context)?;
        let device = u8::try_from(driver.device_of_context(context)?).ok()?;
        self.facts.contexts.set(context, Fact::on(device));
        Some(device)
    }

    /// Remembers the devices of the contexts that a copy names.
    fn remember(&self, driver: &impl Driver, seen: &Seen<'_>) {
        let contexts = match (seen.values, &seen.parameters) {
            (&[_, Value::Address(dst), _, Value::Address(src), ..], _) => [src, dst],
            (_, Parameters::Driver(peer)) => self::contexts(peer),
            _ => return,
        };
        for context in contexts.into_iter().filter(|&context| context != 0) {
            self.device_of(driver, context);
        }
    }

    /// Whether a program enables access to the same peer again and again. It has succeeded just now.
    fn churn(&self, driver: &impl Driver, seen: &Seen<'_>) -> Option<Finding> {
        let peer = match (seen.function, seen.values) {
            (Function::cudaDeviceEnablePeerAccess, &[Value::Ordinal(peer), ..]) => peer,
            (Function::cuCtxEnablePeerAccess, &[Value::Address(context), ..]) => driver.device_of_context(context)?,
            _ => return None,
        };
        let device = driver.device_of_context(driver.current_context()?)?;
        self.enabled_again(seen.layer(), device, peer)
    }

    /// Counts how often a device's access to another was enabled.
    fn enabled_again(&self, layer: Layer, device: i32, peer: i32) -> Option<Finding> {
        /// So often is not by chance.
        const OFTEN: u32 = 4;
        let mut enabled = self.enabled.lock().unwrap_or_else(PoisonError::into_inner);
        let times = enabled.entry((layer == Layer::Hip, device, peer)).or_default();
        *times = times.saturating_add(1);
        (*times >= OFTEN).then(|| {
            let what = format!("access of device {device} to device {peer} was enabled {times} times");
            Finding::new(Rule::SlowEnableChurn, layer, what)
        })
    }

    /// Counts a finding, and answers how often its rule has spoken of this place by now.
    pub(crate) fn count(&self, site: usize, rule: Rule) -> u64 {
        /// More places than any program has that a reader would look at.
        const MOST: usize = 4096;
        if let Some(count) = self.counts.get(rule as usize) {
            count.fetch_add(1, Relaxed);
        }
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if found.len() >= MOST && !found.contains_key(&(site, rule)) {
            return u64::MAX;
        }
        let count = found.entry((site, rule)).or_default();
        *count = count.saturating_add(1);
        *count
    }

    /// How often a rule has spoken.
    pub(crate) fn times(&self, rule: Rule) -> u64 {
        self.counts.get(rule as usize).map_or(0, |count| count.load(Relaxed))
    }
}

/// Whether a call of the driver is made without a current context, where that succeeds: a created stream has its own.
#[inline(always)]
fn lacks_context(driver: &impl Driver, copy: &Linear) -> bool {
    matches!((copy.stream, copy.src_at), (Some(3..), Value::Address(_))) && driver.current_context().is_none()
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

/// The contexts that a 3D copy names; 0 for a side that has none: memory of the host and arrays.
pub(crate) fn contexts(peer: &CUDA_MEMCPY3D_PEER) -> [usize; 2] {
    let context = |kind, context| if is_pointer(kind) { context } else { 0 };
    [context(peer.srcMemoryType, peer.srcContext), context(peer.dstMemoryType, peer.dstContext)]
}

/// Whether the documentation of a function lists a code.
pub(crate) fn documents(function: Function, code: Code) -> bool {
    answers::documented(function).contains(&code.0)
}

/// What a call of the runtime leaves in the last-error slot that is no failure of its own: a code, or 0.
pub(crate) fn left_by(seen: &Seen<'_>) -> i32 {
    match seen.ret {
        Some(code @ (Code::PEER_ACCESS_ALREADY_ENABLED | Code::PEER_ACCESS_NOT_ENABLED))
            if Kind::of(seen.function) == Kind::Access =>
        {
            code.0
        }
        _ => 0,
    }
}

/// What there is to say of a call if such a code was left before.
pub(crate) fn of_left(left: i32, seen: &Seen<'_>) -> Option<Finding> {
    (left != 0).then(|| {
        let what = format!("nobody has cleared the last-error slot of this thread since a call left {left} in it");
        Finding::new(Rule::ErrorLeftBehind, seen.layer(), what)
    })
}

/// Parameters of a copy that the runtime refuses before it does anything: for a pitch that is too small, or an ordinal that
/// is no device.
pub(crate) fn refused(parms: &cudaMemcpy3DPeerParms, pitch: usize, device: i32) -> cudaMemcpy3DPeerParms {
    let somewhere = [parms.srcPtr.ptr, parms.dstPtr.ptr].into_iter().find(|&ptr| ptr != 0).unwrap_or(1 << 20);
    let origin = cudaPos { x: 0, y: 0, z: 0 };
    let side = cudaPitchedPtr { ptr: somewhere, pitch, xsize: 4, ysize: 4 };
    cudaMemcpy3DPeerParms {
        srcArray: 0,
        srcPos: origin,
        srcPtr: side,
        srcDevice: device,
        dstArray: 0,
        dstPos: origin,
        dstPtr: side,
        extent: cudaExtent { width: 4, height: 4, depth: 1 },
        ..*parms
    }
}

/// Whether a detour is the program's to spare.
#[inline(always)]
pub(crate) fn is_detour(path: Option<Path>) -> bool {
    matches!(path, Some(Path::Staged(Why::NeverEnabled | Why::Pool | Why::Mapped)))
}

#[inline(always)]
fn is_of_a_device(place: Place) -> bool {
    matches!(place.kind, memory::Kind::Plain | memory::Kind::Pool | memory::Kind::Mapped)
}

/// A copy between two pointers, as far as it can be looked at without asking.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Linear {
    /// Where the bytes come from.
    src: u64,
    /// Where they go to.
    dst: u64,
    /// Ordinal or context of the source.
    src_at: Value,
    /// Ordinal or context of the destination.
    dst_at: Value,
    /// How far from each pointer on bytes are touched.
    reach: [u64; 2],
    /// How many bytes are copied.
    pub(crate) bytes: u64,
    /// Whether it is a box.
    is_box: bool,
    /// None for a synchronous copy.
    stream: Option<usize>,
}

impl Linear {
    /// None for what must be looked at in full.
    #[inline(always)]
    pub(crate) fn new(values: &[Value]) -> Option<Self> {
        let (&[Value::Address(dst), dst_at, Value::Address(src), src_at, Value::UInt(bytes)], rest) =
            values.split_first_chunk::<5>()?
        else {
            return None;
        };
        let stream = stream(rest)?;
        Some(Self { src: src as u64, dst: dst as u64, src_at, dst_at, reach: [bytes; 2], bytes, is_box: false, stream })
    }

    /// Its two addresses.
    pub(crate) fn ends(&self) -> [u64; 2] {
        [self.src, self.dst]
    }

    /// A box of the runtime between two pointers.
    #[inline(always)]
    pub(crate) fn of_runtime(p: &cudaMemcpy3DPeerParms, rest: &[Value]) -> Option<Self> {
        let extent = [p.extent.width, p.extent.height, p.extent.depth];
        let reach =
            |pointer: &cudaPitchedPtr, at: &cudaPos| reach(extent, [at.x, at.y, at.z], pointer.pitch, pointer.ysize);
        (p.srcArray == 0 && p.dstArray == 0).then_some(())?;
        Some(Self {
            src: p.srcPtr.ptr as u64,
            dst: p.dstPtr.ptr as u64,
            src_at: Value::Ordinal(p.srcDevice),
            dst_at: Value::Ordinal(p.dstDevice),
            reach: [reach(&p.srcPtr, &p.srcPos)?, reach(&p.dstPtr, &p.dstPos)?],
            bytes: bytes(extent),
            is_box: true,
            stream: stream(rest)?,
        })
    }

    /// A box of the driver between two pointers.
    #[inline(always)]
    pub(crate) fn of_driver(p: &CUDA_MEMCPY3D_PEER, rest: &[Value]) -> Option<Self> {
        let extent = [p.WidthInBytes, p.Height, p.Depth];
        let is_plain = is_pointer(p.srcMemoryType) && is_pointer(p.dstMemoryType) && p.srcLOD == 0 && p.dstLOD == 0;
        is_plain.then_some(())?;
        Some(Self {
            src: p.srcDevice,
            dst: p.dstDevice,
            src_at: Value::Address(p.srcContext),
            dst_at: Value::Address(p.dstContext),
            reach: [
                reach(extent, [p.srcXInBytes, p.srcY, p.srcZ], p.srcPitch, p.srcHeight)?,
                reach(extent, [p.dstXInBytes, p.dstY, p.dstZ], p.dstPitch, p.dstHeight)?,
            ],
            bytes: bytes(extent),
            is_box: true,
            stream: stream(rest)?,
        })
    }
}

#[inline(always)]
fn bytes([width, height, depth]: [usize; 3]) -> u64 {
    (width as u64).saturating_mul(height as u64).saturating_mul(depth as u64)
}

/// How far from a pointer on a box touches bytes; none for one whose rows or slices lie inside each other, or too far apart.
#[inline(always)]
fn reach(extent: [usize; 3], at: [usize; 3], pitch: usize, rows: usize) -> Option<u64> {
    let ([width, height, depth], [x, y, z]) = (extent, at);
    let in_rows = height <= 1 && depth <= 1 || x.checked_add(width)? <= pitch;
    let in_slices = depth <= 1 || y.checked_add(height)? <= rows;
    (in_rows && in_slices && pitch <= i32::MAX as usize).then_some(())?;
    let slices = z.checked_add(depth)?.checked_sub(1)?.checked_mul(rows)?;
    let rows = slices.checked_add(y)?.checked_add(height)?.checked_sub(1)?.checked_mul(pitch)?;
    rows.checked_add(x)?.checked_add(width).map(|reach| reach as u64)
}

#[inline(always)]
fn stream(rest: &[Value]) -> Option<Option<usize>> {
    match *rest {
        [] => Some(None),
        [Value::Stream(stream)] => Some(Some(stream)),
        _ => None,
    }
}
