//! Faults of a call of HIP, by what was known before it was made. HIP is asked nothing afterwards: a question would take
//! the place of the program's last error.

use super::arguments::{bad_device, check_given, check_peer, check_query, unreadable};
use super::call::{CallView, Operand, Side, Sides, pitch_name};
use super::hazards::blocked;
use super::objects::{Object, Part, check_both, check_object};
use super::returned::{explain, unsupported};
use super::{Validate, crashes_hip, is_apart};
use crate::api::Layer;
use crate::api::abi::Code;
use crate::model::{Access, Asks, Finding, Memcpy, Named, Path, Rule, Traffic};
use crate::objects::memory::{Kind as MemoryKind, Place};
use crate::policy::driver::{Holder, Memory};
use crate::policy::hip::Endpoint;

impl Validate {
    /// The finding before a call of HIP is made, by what is known of the ends of its copy: see [`Validate::before`].
    pub(crate) fn before_hip(&self, seen: &CallView<'_>, ends: [Endpoint; 2]) -> Option<Finding> {
        let mut wrong = check(seen, ends);
        if !self.is_strict() {
            return wrong.into_iter().find(|finding| crashes_hip(finding.rule));
        }
        // HIP refuses these itself, with the documented code.
        let first = wrong.iter().position(|finding| finding.code.is_some())?;
        Some(wrong.swap_remove(first)).filter(|first| is_accepted(first.rule))
    }

    /// The findings about a call of HIP that has returned. `traffic` is the copy's, if it is known.
    pub(crate) fn after_hip(&self, seen: &CallView<'_>, ends: [Endpoint; 2], traffic: Option<Traffic>) -> Vec<Finding> {
        let mut wrong = check(seen, ends);
        match seen.ret {
            Some(Code::SUCCESS) if seen.request.copy().is_some() => {
                wrong.extend(traffic.filter(|it| it.path == Path::Broken).map(|it| blocked(seen, [it.src, it.dst])));
                wrong
            }
            Some(Code::SUCCESS) => self.churn(seen).into_iter().collect(),
            Some(ret) => vec![explain((self.objects, seen, ret), wrong, || false, || by_arguments(seen, ret))],
            None => Vec::new(),
        }
    }
}

/// Whether HIP takes what is documented to be an error.
fn is_accepted(rule: Rule) -> bool {
    matches!(rule, Rule::CopyHostMemory | Rule::CopyUnknownPointer)
}

/// Whether there is nothing to say of a copy that succeeds, as far as that is known without asking. `known` tells whose
/// memory an address is, and where its allocation ends.
pub(crate) fn is_clean(copy: &Memcpy, known: impl Fn(u64) -> Option<(Place, u64)>) -> bool {
    let (Some((src, _)), Some((dst, _))) = (known(copy.src), known(copy.dst)) else { return false };
    let is_on = |named: Named, place: Place| match named {
        Named::Ordinal(ordinal) => ordinal == i32::from(place.device),
        Named::Context(_) => false,
        Named::Pointer => true,
    };
    src.kind == MemoryKind::Plain
        && dst.kind == MemoryKind::Plain
        && is_apart(copy, [src, dst])
        && is_on(copy.src_named, src)
        && is_on(copy.dst_named, dst)
}

/// The faults of a call's arguments.
fn check(seen: &CallView<'_>, ends: [Endpoint; 2]) -> Vec<Finding> {
    let mut found = Vec::new();
    match seen.request.asks {
        Asks::Copy(_) => check_copy(seen, ends, &mut found),
        Asks::Access(Access::Enable { peer, .. } | Access::Disable { peer }) => {
            check_peer(seen, (peer, peer.ordinal(), true), |_| true, &mut found);
        }
        Asks::Access(query @ Access::Query { .. }) => return check_query(seen, query),
        Asks::Batch { .. } | Asks::Other => {}
    }
    found
}

/// Adds the faults of a copy, in the order in which HIP checks them.
fn check_copy(seen: &CallView<'_>, ends: [Endpoint; 2], found: &mut Vec<Finding>) {
    found.extend(unreadable(seen.request));
    let Some(copy) = Sides::of(seen.request) else { return };
    found.extend(copy.sides.iter().filter_map(|side| bad_device(seen, side)));
    // A copy of nothing succeeds, whatever it is given otherwise.
    if !found.is_empty() || copy.is_empty() {
        return;
    }
    copy.sides.iter().for_each(|side| check_given(Layer::Hip, side, found));
    if !found.is_empty() {
        return;
    }
    let ([src, dst], [src_known, dst_known]) = (&copy.sides, ends);
    let [src_object, dst_object] = [object(&copy, src, src_known), object(&copy, dst, dst_known)];
    for (side, object) in [(src, &src_object), (dst, &dst_object)] {
        let part = Part { function: seen.request.function, call: &copy, side, unit: Some(1), has_succeeded: false };
        check_object(|_| None, Layer::Hip, &part, object, found);
    }
    check_both(|_| None, &copy, [&src_object, &dst_object], Layer::Hip, found);
}

/// One side of a copy, by what was known before the call.
fn object(copy: &Sides, side: &Side, known: Endpoint) -> Object {
    let (Operand::Device(address) | Operand::Any(address)) = side.given else { return Object::Other };
    let rule = match known {
        Endpoint::NotAsked => return Object::Other,
        Endpoint::Unregistered => Rule::CopyHostMemory,
        Endpoint::Nothing => Rule::CopyUnknownPointer,
        Endpoint::Place(Place { kind, device, .. }, end) => {
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

/// Which side's rows go past its pitch, in a 3D copy that HIP has refused.
fn beyond_rows(seen: &CallView<'_>) -> Option<String> {
    let copy = Sides::of(seen.request).filter(|copy| copy.is_3d && !copy.has_array())?;
    let [width, ..] = copy.extent;
    let side = copy.sides.iter().find(|side| {
        let [x, ..] = side.position;
        x.saturating_add(width) > side.pitch
    })?;
    let ([x, ..], pitch) = (side.position, side.pitch);
    let name = pitch_name(seen.request.function, side.name);
    Some(format!("a row of {width} bytes begins at byte {x}, but {name}={pitch}"))
}

/// Explains an error that HIP returned for arguments which are right by what was known of them.
fn by_arguments(seen: &CallView<'_>, ret: Code) -> Option<Finding> {
    let of = |rule, what| Some(Finding::new(rule, Layer::Hip, what));
    match ret {
        Code::INVALID_PITCH if seen.request.copy().is_some() => {
            of(Rule::Copy3dPitch, "the pitch or height of one side is too small".to_owned())
        }
        Code::INVALID_VALUE => of(Rule::Copy3dPosition, beyond_rows(seen)?),
        Code::INVALID_DEVICE if seen.changes_access() => seen.device.map(|_| unsupported(seen, true)),
        // How many devices there are may not have been asked.
        Code::INVALID_DEVICE => match Sides::of(seen.request)?.sides.map(|side| side.ordinal) {
            [Some(src), Some(dst)] => {
                of(Rule::CopyDeviceOrdinal, format!("srcDevice={src}, dstDevice={dst}: not both exist"))
            }
            _ => None,
        },
        _ => None,
    }
}
