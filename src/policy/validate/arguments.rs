//! Faults that a call's arguments show by themselves, or by what the driver knows of them.

use super::call::{CallView, Operand, Side, Sides};
use super::objects::{Object, Part, check_both, check_object};
use super::rights;
use crate::api::Layer;
use crate::api::abi::Code;
use crate::model::{Access, Asks, Finding, Named, Request, Rule, Shape};
use crate::objects::Objects;
use crate::policy::driver::Driver;

/// The findings about a call's arguments, the weightiest first.
pub(super) fn check(driver: &impl Driver, objects: &Objects, seen: &CallView<'_>) -> Vec<Finding> {
    if seen.devices.is_none() {
        return Vec::new();
    }
    match seen.request.asks {
        Asks::Copy(_) => check_copy(driver, objects, seen),
        Asks::Access(Access::Enable { peer, .. } | Access::Disable { peer }) => check_access(driver, seen, peer),
        Asks::Access(query @ Access::Query { .. }) => check_query(seen, query),
        Asks::Batch { .. } | Asks::Other => Vec::new(),
    }
}

/// The fault of an ordinal, if it has one, where there are so many devices.
fn bad_ordinal(count: Option<i32>, name: impl FnOnce() -> String, ordinal: i32) -> Option<String> {
    let count = count.filter(|&count| count > 0)?;
    (!(0..count).contains(&ordinal))
        .then(|| format!("{}={ordinal}, but this process sees {count} devices, 0 to {}", name(), count - 1))
}

// ---- Peer access ----

fn check_access(driver: &impl Driver, seen: &CallView<'_>, named: Named) -> Vec<Finding> {
    let mut found = Vec::new();
    let (peer, is_current) = match named {
        Named::Context(context) => {
            check_contexts(driver, seen, context, &mut found);
            let peer = driver.context_id(context).and_then(|_| driver.device_of_context(context));
            (peer, driver.current_context() == Some(context))
        }
        Named::Ordinal(peer) => (Some(peer), true),
        Named::Pointer => (None, false),
    };
    let has_path = |[device, peer]: [i32; 2]| driver.can_access(device, peer) != Ok(false);
    check_peer(seen, (named, peer, is_current), has_path, &mut found);
    found
}

/// Whether the current context and the peer's are any.
fn check_contexts(driver: &impl Driver, seen: &CallView<'_>, peer: usize, found: &mut Vec<Finding>) {
    let of = |rule, what| Finding::new(rule, seen.layer(), what);
    match driver.current_context() {
        None => found.push(of(Rule::AccessNoContext, "no context is current in this thread".to_owned())),
        Some(current) if driver.context_id(current).is_none() => {
            let what = format!("the current context {current:#x} no longer exists");
            // The documentation speaks of the peer's only.
            found.push(of(Rule::AccessInvalidContext, what).without_code());
        }
        Some(_) => {}
    }
    if driver.context_id(peer).is_none() {
        let what = if peer == 0 { "NULL" } else { "not a context, or no longer" };
        found.push(of(Rule::AccessInvalidContext, format!("peerContext={peer:#x} is {what}")));
    }
}

/// Adds the faults of a peer, as it is named and by its ordinal, and of the flags. `is_current` says that a peer on the current device
/// is the current context.
pub(super) fn check_peer(
    seen: &CallView<'_>,
    (named, peer, is_current): (Named, Option<i32>, bool),
    has_path: impl Fn([i32; 2]) -> bool,
    found: &mut Vec<Finding>,
) {
    let of = |rule, what| Finding::new(rule, seen.layer(), what);
    let name = || seen.request.function.arguments().next().unwrap_or_default().to_owned();
    let bad = named.ordinal().and_then(|peer| bad_ordinal(seen.devices, name, peer));
    let flags = match seen.request.access() {
        Some(Access::Enable { flags, .. }) => flags,
        // HIP checks a peer of disabling as well.
        _ if seen.layer() == Layer::Hip => 0,
        _ => return found.extend(bad.map(|what| of(Rule::EnableDeviceOrdinal, what))),
    };
    match (bad, seen.device, peer) {
        (Some(what), ..) => found.push(of(Rule::EnableDeviceOrdinal, what)),
        (None, Some(device), Some(peer)) if device == peer => {
            let finding = of(Rule::EnableSelf, format!("the peer is device {peer}, and so is the current device"));
            // To another context of the same device there is no path, by the documentation.
            let code = if is_current { finding.code } else { Some(Code::PEER_ACCESS_UNSUPPORTED) };
            found.push(Finding { code, ..finding });
        }
        (None, Some(device), Some(peer)) if !has_path([device, peer]) => {
            found.push(of(Rule::EnableUnsupported, format!("device {device} cannot access memory of device {peer}")));
        }
        _ => {}
    }
    if flags != 0 {
        found.push(of(Rule::EnableFlags, format!("flags={flags}")));
    }
}

pub(super) fn check_query(seen: &CallView<'_>, query: Access) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut add = |rule, what| found.push(Finding::new(rule, seen.layer(), what));
    let Access::Query { output, attribute, device, peer, .. } = query else { return found };
    let pair = [device, peer];
    let names = seen.request.function.arguments();
    let before = names.clone().count().saturating_sub(2);
    for (name, ordinal) in names.clone().skip(before).zip(pair) {
        if let Some(what) = bad_ordinal(seen.devices, || name.to_owned(), ordinal) {
            add(Rule::QueryDeviceOrdinal, what);
        }
    }
    if let Some(attribute) = attribute {
        if device == peer {
            add(Rule::QuerySameDevice, format!("both are device {device}"));
        }
        // The newest that CUDA 13.0 has; a newer library says itself what it knows.
        let known = if seen.layer() == Layer::Hip { 0..=3 } else { 1..=5 };
        if !known.contains(&attribute) && !seen.has_succeeded() {
            add(Rule::QueryAttribute, format!("the attribute is {attribute}"));
        }
    }
    if output.is_null() {
        let name = names.clone().next().unwrap_or_default();
        let finding = Finding::new(Rule::QueryNullOutput, seen.layer(), format!("{name} is NULL"));
        // The page of CUDA's other function says nothing of it.
        let has_code = attribute.is_some() || seen.layer() == Layer::Hip;
        found.push(if has_code { finding } else { finding.without_code() });
    }
    found
}

// ---- Copies ----

/// The finding about a copy whose parameters cannot be read.
pub(super) fn unreadable(request: &Request<'_>) -> Option<Finding> {
    let Shape::Unreadable(pointer) = request.copy()?.shape else { return None };
    let name = request.function.arguments().next().unwrap_or_default();
    let what = if pointer == 0 { " is NULL".to_owned() } else { format!("={pointer:#x} cannot be read") };
    Some(Finding::new(Rule::Copy3dNullParameters, request.function.layer(), format!("{name}{what}")))
}

fn check_copy(driver: &impl Driver, objects: &Objects, seen: &CallView<'_>) -> Vec<Finding> {
    let layer = seen.layer();
    let mut found: Vec<Finding> = unreadable(seen.request).into_iter().collect();
    let Some(call) = Sides::of(seen.request) else { return found };
    // These arguments are not checked for a copy of nothing.
    if layer == Layer::Driver && driver.current_context().is_none() {
        found.push(Finding::new(Rule::CopyNoContext, layer, "no context is current in this thread".to_owned()));
    }
    for side in &call.sides {
        check_place(driver, seen, side, &mut found);
    }
    // So NVIDIA's runtimes ask the driver for a 3D copy of nothing, whatever they were given.
    let is_of_no_memory = call.sides.iter().all(|side| side.given == Operand::Device(0));
    let is_of_nothing = call.is_empty() && (!call.is_3d || layer == Layer::Driver && is_of_no_memory);
    if !is_of_nothing {
        for side in &call.sides {
            check_given(layer, side, &mut found);
        }
    }
    if let Some(stream) = seen.request.stream()
        && objects.streams.is_destroyed(stream)
    {
        found.push(Finding::new(Rule::CopyDestroyedStream, layer, format!("stream={stream:#x} was destroyed")));
    }
    if is_of_nothing {
        return found.into_iter().filter_map(|finding| as_of_zero_bytes(layer, finding)).collect();
    }
    if call.is_empty() {
        return found;
    }
    let sides = [0, 1].map(|index| call.sides.get(index).map(|side| Object::of(driver, objects, side)));
    let [Some(src), Some(dst)] = sides else { return found };
    // In the runtime an array decides what the extent counts.
    let unit = match (layer, src.element().or(dst.element())) {
        (Layer::Runtime, Some(bytes)) => Some(bytes),
        (Layer::Runtime, None) if call.has_array() => None,
        _ => Some(1),
    };
    for (side, object) in call.sides.iter().zip([&src, &dst]) {
        if let (false, Object::Memory { address, memory, .. }) = (seen.has_succeeded(), object) {
            found.extend(rights::check(driver, objects, seen, side, (*address, *memory)));
        }
        let function = seen.request.function;
        let part = Part { function, call: &call, side, unit, has_succeeded: seen.has_succeeded() };
        check_object(|address| driver.memory(address), layer, &part, object, &mut found);
    }
    check_both(|context| driver.device_of_context(context), &call, [&src, &dst], layer, &mut found);
    found
}

/// The finding about a copy of nothing that would be an error else.
fn as_of_zero_bytes(layer: Layer, finding: Finding) -> Option<Finding> {
    match finding.rule {
        Rule::CopyNoContext => Some(finding),
        // The driver looks at it all the same.
        Rule::CopyDestroyedStream if layer == Layer::Driver => Some(finding),
        Rule::CopyDeviceOrdinal | Rule::CopyNullContext | Rule::CopyInvalidContext | Rule::CopyDestroyedStream => {
            Some(Finding {
                rule: Rule::CopyZeroBytes,
                // The runtime's page has no code for streams.
                code: finding.code.filter(|_| finding.rule != Rule::CopyDestroyedStream),
                what: format!("zero bytes, and {}", finding.what),
                size: None,
            })
        }
        _ => None,
    }
}

pub(super) fn bad_device(seen: &CallView<'_>, side: &Side) -> Option<Finding> {
    let what = bad_ordinal(seen.devices, || format!("{}Device", side.name), side.ordinal?)?;
    Some(Finding::new(Rule::CopyDeviceOrdinal, seen.layer(), what))
}

/// Whether ordinal and context are any.
fn check_place(driver: &impl Driver, seen: &CallView<'_>, side: &Side, found: &mut Vec<Finding>) {
    let (layer, name) = (seen.layer(), side.name);
    found.extend(bad_device(seen, side));
    match (side.context, side.given) {
        (Some(0), Operand::Device(_)) => {
            found.push(Finding::new(Rule::CopyNullContext, layer, format!("{name}Context is NULL")));
        }
        (Some(context), _) if context != 0 && driver.context_id(context).is_none() => {
            let what = format!("{name}Context={context:#x} is not a context, or no longer");
            found.push(Finding::new(Rule::CopyInvalidContext, layer, what));
        }
        _ => {}
    }
}

/// Whether there is something that could be memory.
pub(super) fn check_given(layer: Layer, side: &Side, found: &mut Vec<Finding>) {
    let name = side.name;
    let mut add = |rule, what| found.push(Finding::new(rule, layer, what));
    match side.given {
        Operand::Device(0) => add(Rule::CopyNullPointer, format!("{name} is NULL")),
        Operand::Nothing => add(Rule::Copy3dNoMemory, format!("{name} has neither an array nor a pointer")),
        Operand::Both { array, pointer } => {
            let what = format!("{name}Array={array:#x} and {name}Ptr.ptr={pointer:#x} are both set");
            add(Rule::Copy3dArrayAndPointer, what);
        }
        Operand::Type(kind) => add(Rule::Copy3dMemoryType, format!("{name}MemoryType={kind}")),
        Operand::Device(_) | Operand::Any(_) | Operand::Array(_) => {}
    }
    if side.lod != 0 {
        add(Rule::Copy3dReservedField, format!("{name}LOD={}", side.lod));
    }
}
