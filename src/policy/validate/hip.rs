//! Faults of a call of HIP, by what was known before it was made. HIP is asked nothing afterwards: a question would take
//! the place of the program's last error.

use super::arguments::{bad_ordinal, check_given, unreadable};
use super::call::{Given, Side, Sides, pitch_name};
use super::objects::{Object, Part, check_both, check_object};
use super::returned::{is_of_the_machine, is_sticky, names, of_capture, of_pair, unexplained};
use super::{Validate, crashes_hip};
use crate::api::Layer;
use crate::api::abi::Code;
use crate::model::{Access, Asks, Finding, Hidden, Memcpy, Named, Path, Request, Rule, Traffic};
use crate::policy::driver::{Holder, Memory};
use crate::policy::hip::{Before, Known};
use crate::policy::memory::{Kind as MemoryKind, Place};

/// A call of HIP that is checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HipCall<'a> {
    pub(crate) request: &'a Request<'a>,
    pub(crate) before: Before,
    /// From where to where it goes, if it is a copy and that is known.
    pub(crate) traffic: Option<Traffic>,
    /// Why p2pshim refuses the access that the call is about, if it does.
    pub(crate) hidden: Option<Hidden>,
}

impl Validate {
    /// The finding before a call of HIP is made: see [`Validate::before`].
    pub(crate) fn before_hip(&self, call: &HipCall<'_>) -> Option<Finding> {
        let mut wrong = check(call);
        if !self.is_strict() {
            return wrong.into_iter().find(|finding| crashes_hip(finding.rule));
        }
        // What HIP refuses itself it refuses with the documented code.
        let first = wrong.iter().position(|finding| finding.code.is_some())?;
        Some(wrong.swap_remove(first)).filter(|first| is_accepted(first.rule))
    }

    /// The findings about a call of HIP that has returned.
    pub(crate) fn after_hip(&self, call: &HipCall<'_>, ret: Code) -> Vec<Finding> {
        let wrong = check(call);
        match ret {
            Code::SUCCESS if call.request.copy().is_some() => wrong.into_iter().chain(blocked(call)).collect(),
            Code::SUCCESS => self.churn_hip(call).into_iter().collect(),
            ret => vec![explain(call, ret, wrong)],
        }
    }

    fn churn_hip(&self, call: &HipCall<'_>) -> Option<Finding> {
        let Some(Access::Enable { peer: Named::Ordinal(peer), .. }) = call.request.access() else { return None };
        let device = call.before.current?;
        self.enabled_again(Layer::Hip, device, peer)
    }
}

/// Whether a copy was made on a path that is blocked.
fn blocked(call: &HipCall<'_>) -> Option<Finding> {
    let Traffic { src, dst, path, .. } = call.traffic.filter(|traffic| traffic.path == Path::Broken)?;
    Some(of(Rule::DataBlocked, format!("a copy from device {src} to device {dst} was {path}")))
}

/// Whether HIP takes what is documented to be an error.
fn is_accepted(rule: Rule) -> bool {
    matches!(rule, Rule::CopyHostMemory | Rule::CopyUnknownPointer)
}

/// Whether there is nothing to say of a copy that succeeds, as far as that is known without asking. `known` tells whose
/// memory an address is, and where its allocation ends.
#[inline(always)]
pub(crate) fn is_clean(copy: &Memcpy, known: impl Fn(u64) -> Option<(Place, u64)>) -> bool {
    let (Some((src, _)), Some((dst, _))) = (known(copy.src), known(copy.dst)) else { return false };
    // It lies inside its memory: the library checks that.
    let Some([src_reach, dst_reach]) = copy.reach() else { return false };
    let is_on = |named: Named, place: Place| match named {
        Named::Ordinal(ordinal) => ordinal == i32::from(place.device),
        Named::Context(_) => false,
        Named::Pointer => true,
    };
    src.kind == MemoryKind::Plain
        && dst.kind == MemoryKind::Plain
        && (src.device != dst.device || copy.src.abs_diff(copy.dst) >= src_reach.max(dst_reach))
        && is_on(copy.src_named, src)
        && is_on(copy.dst_named, dst)
}

/// The faults of a call's arguments, in the order in which HIP checks them.
fn check(call: &HipCall<'_>) -> Vec<Finding> {
    match call.request.asks {
        Asks::Copy(_) => check_copy(call),
        Asks::Access(Access::Enable { peer, flags }) => check_access(call, peer, flags),
        Asks::Access(Access::Disable { peer }) => check_access(call, peer, 0),
        Asks::Access(query @ Access::Query { .. }) => check_query(call, query),
        Asks::Batch(_) | Asks::Other => Vec::new(),
    }
}

fn of(rule: Rule, what: String) -> Finding {
    Finding::new(rule, Layer::Hip, what)
}

fn check_copy(call: &HipCall<'_>) -> Vec<Finding> {
    if let Some(finding) = unreadable(call.request) {
        return vec![finding];
    }
    let Some(copy) = Sides::of(call.request) else { return Vec::new() };
    let bad = |side: &Side| bad_ordinal(call.before.devices, &format!("{}Device", side.name), side.ordinal?);
    let mut found: Vec<Finding> =
        copy.sides.iter().filter_map(bad).map(|what| of(Rule::CopyDeviceOrdinal, what)).collect();
    // A copy of nothing succeeds, whatever it is given otherwise.
    if !found.is_empty() || copy.is_empty() {
        return found;
    }
    copy.sides.iter().for_each(|side| check_given(Layer::Hip, side, &mut found));
    if !found.is_empty() {
        return found;
    }
    let ([src, dst], [src_known, dst_known]) = (&copy.sides, call.before.ends);
    let [src_object, dst_object] = [object(&copy, src, src_known), object(&copy, dst, dst_known)];
    for (side, object) in [(src, &src_object), (dst, &dst_object)] {
        let part = Part { function: call.request.function, call: &copy, side, unit: Some(1), has_succeeded: false };
        check_object(|_| None, Layer::Hip, &part, object, &mut found);
    }
    check_both(|_| None, &copy, [&src_object, &dst_object], Layer::Hip, &mut found);
    found
}

/// One side of a copy, by what was known before the call.
fn object(copy: &Sides, side: &Side, known: Known) -> Object {
    let (Given::Device(address) | Given::Any(address)) = side.given else { return Object::Other };
    let rule = match known {
        Known::NotAsked => return Object::Other,
        Known::Unregistered => Rule::CopyHostMemory,
        Known::Nothing => Rule::CopyUnknownPointer,
        Known::Place(Place { kind, device, .. }, end) => {
            let holder = match kind {
                MemoryKind::Host => Holder::Host,
                MemoryKind::Plain => Holder::Context(0),
                _ => Holder::Foreign,
            };
            return Object::Memory { address, memory: Memory { range: (0, end), device: device.into(), holder } };
        }
    };
    Object::Unknown { address, may_be_host: copy.is_3d, rule }
}

fn check_access(call: &HipCall<'_>, peer: Named, flags: u32) -> Vec<Finding> {
    let Named::Ordinal(peer) = peer else { return Vec::new() };
    if flags != 0 {
        return vec![of(Rule::EnableFlags, format!("flags={flags}"))];
    }
    if let Some(what) = bad_ordinal(call.before.devices, "peerDeviceId", peer) {
        return vec![of(Rule::EnableDeviceOrdinal, what)];
    }
    if call.before.current == Some(peer) {
        return vec![of(Rule::EnableSelf, format!("the peer is device {peer}, and so is the current device"))];
    }
    Vec::new()
}

fn check_query(call: &HipCall<'_>, query: Access) -> Vec<Finding> {
    let Access::Query { output, attribute, device, peer, .. } = query else { return Vec::new() };
    if output.is_null() {
        return vec![of(Rule::QueryNullOutput, "the output is NULL".to_owned())];
    }
    let pair = [device, peer];
    match attribute {
        // By this function a device is simply no peer of itself, even one that there is not.
        None if device == peer => return Vec::new(),
        Some(_) if device == peer => {
            return vec![of(Rule::QuerySameDevice, format!("both are device {device}"))];
        }
        _ => {}
    }
    let names = call.request.function.arguments();
    let names = names.get(names.len().saturating_sub(2)..).unwrap_or_default();
    // Attributes are checked after ordinals that are too large, and before those below 0.
    let is_unknown = attribute.filter(|attribute| !(0..=3).contains(attribute));
    let bad = names.iter().zip(pair).filter(|&(_, ordinal)| is_unknown.is_none() || ordinal >= 0);
    let bad = bad.filter_map(|(name, ordinal)| bad_ordinal(call.before.devices, name, ordinal));
    let found: Vec<Finding> = bad.map(|what| of(Rule::QueryDeviceOrdinal, what)).collect();
    match is_unknown {
        Some(attribute) if found.is_empty() => vec![of(Rule::QueryAttribute, format!("attr={attribute}"))],
        _ => found,
    }
}

/// Which side's rows go past its pitch, in a 3D copy that HIP has refused.
fn beyond_rows(call: &HipCall<'_>) -> Option<String> {
    let copy = Sides::of(call.request).filter(|copy| copy.is_3d && !copy.has_array())?;
    let [width, ..] = copy.extent;
    let side = copy.sides.iter().find(|side| {
        let [x, ..] = side.position;
        x.saturating_add(width) > side.pitch
    })?;
    let ([x, ..], pitch) = (side.position, side.pitch);
    let name = pitch_name(call.request.function, side.name);
    Some(format!("a row of {width} bytes begins at byte {x}, but {name}={pitch}"))
}

/// The device whose access a call changes, and the peer.
fn pair(call: &HipCall<'_>) -> Option<[i32; 2]> {
    let (Access::Enable { peer: Named::Ordinal(peer), .. } | Access::Disable { peer: Named::Ordinal(peer) }) =
        call.request.access()?
    else {
        return None;
    };
    Some([call.before.current?, peer])
}

fn changes_access(call: &HipCall<'_>) -> bool {
    call.request.access().is_some_and(|access| !matches!(access, Access::Query { .. }))
}

/// Explains an error that the program gets, by what is wrong with the arguments if that is it.
fn explain(call: &HipCall<'_>, ret: Code, wrong: Vec<Finding>) -> Finding {
    /// `hipErrorInvalidHandle`, `hipErrorContextIsDestroyed`.
    const NO_STREAM: [Code; 2] = [Code(400), Code(709)];
    /// `hipErrorInvalidPitchValue`.
    const INVALID_PITCH: Code = Code(12);
    let copies = call.request.copy().is_some();
    let plain = |rule, what: &str| of(rule, what.to_owned());
    if is_sticky(ret) {
        return plain(Rule::ErrorEarlierWork, "an error of work that was queued earlier");
    }
    // Releases before 6 return invalid device on a machine without any.
    if is_of_the_machine(ret) || (ret == Code::INVALID_DEVICE && call.before.devices == Some(0)) {
        return plain(Rule::ErrorNoDriver, "no driver, no device, or not initialised");
    }
    let of_state = || if changes_access(call) { of_pair(Layer::Hip, pair(call), ret) } else { None };
    if let Some(finding) = of_capture(call.request, false, ret).or_else(of_state) {
        return finding;
    }
    let is_why = |finding: &Finding| {
        finding.code == Some(ret) || (finding.rule == Rule::CopyHostMemory && ret == Code::INVALID_VALUE)
    };
    let by_code = wrong.iter().position(is_why);
    if let Some(finding) = by_code.and_then(|position| wrong.into_iter().nth(position)) {
        return finding;
    }
    if let (true, Some(stream)) = (NO_STREAM.contains(&ret), call.request.stream()) {
        return plain(Rule::CopyDestroyedStream, &format!("stream={stream:#x} is not a stream, or no longer"));
    }
    if copies && ret == INVALID_PITCH {
        return plain(Rule::Copy3dPitch, "the pitch or height of one side is too small");
    }
    if let (Code::INVALID_VALUE, Some(what)) = (ret, beyond_rows(call)) {
        return of(Rule::Copy3dPosition, what);
    }
    // How many devices there are may not have been asked.
    if let (Code::INVALID_DEVICE, Some(copy)) = (ret, Sides::of(call.request))
        && let [Some(src), Some(dst)] = copy.sides.map(|side| side.ordinal)
    {
        return of(Rule::CopyDeviceOrdinal, format!("srcDevice={src}, dstDevice={dst}: not both exist"));
    }
    // Its arguments are right, by what was known of them.
    if changes_access(call) && ret == Code::INVALID_DEVICE && call.before.current.is_some() {
        let pair = pair(call);
        let [device, peer] = names(pair);
        return match pair.zip(call.hidden) {
            Some((devices, hidden)) => hidden.finding(Layer::Hip, devices),
            None => of(Rule::EnableUnsupported, format!("{device} cannot access memory of {peer}")),
        };
    }
    unexplained(call.request.function, ret)
}
