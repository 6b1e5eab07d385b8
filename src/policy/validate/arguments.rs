//! Faults that a call's arguments show by themselves, or by what the driver knows of them.

use super::call::{Given, Seen, Side, Sides, pitch_name};
use super::facts::{Array, Facts};
use super::rights;
use crate::api::abi::Code;
use crate::api::{Function, Layer};
use crate::model::{Access, Asks, Finding, Named, Rule, Shape};
use crate::policy::driver::{Driver, Holder, Memory};

/// The findings about a call's arguments, the weightiest first.
pub(super) fn check(driver: &impl Driver, facts: &Facts, seen: &Seen<'_>) -> Vec<Finding> {
    if device_count(driver).is_none() {
        return Vec::new();
    }
    match seen.request.asks {
        Asks::Copy(_) => check_copy(driver, facts, seen),
        Asks::Access(Access::Enable { peer, flags }) => check_access(driver, seen, peer, Some(flags)),
        Asks::Access(Access::Disable { peer }) => check_access(driver, seen, peer, None),
        Asks::Access(query @ Access::Query { .. }) => check_query(driver, seen, query),
        Asks::Batch(_) | Asks::Other => Vec::new(),
    }
}

/// How many devices there are; none before the driver is initialised.
fn device_count(driver: &impl Driver) -> Option<i32> {
    Some(driver.device_count()).filter(|&count| count > 0)
}

/// The fault of an ordinal, if it has one.
fn bad_ordinal(driver: &impl Driver, name: &str, ordinal: i32) -> Option<String> {
    let count = device_count(driver)?;
    (!(0..count).contains(&ordinal))
        .then(|| format!("{name}={ordinal}, but this process sees {count} devices, 0 to {}", count - 1))
}

// ---- Peer access ----

/// `flags` are those of enabling; none for disabling.
fn check_access(driver: &impl Driver, seen: &Seen<'_>, named: Named, flags: Option<u32>) -> Vec<Finding> {
    let mut found = Vec::new();
    let of = |rule, what| Finding::new(rule, seen.layer(), what);
    let current = driver.current_context();
    let device = current.and_then(|context| driver.device_of_context(context));
    let peer = match named {
        Named::Ordinal(peer) => {
            if let Some(what) = bad_ordinal(driver, "peerDevice", peer) {
                found.push(of(Rule::EnableDeviceOrdinal, what));
                None
            } else {
                Some(peer)
            }
        }
        Named::Context(context) => {
            match current {
                None => found.push(of(Rule::AccessNoContext, "no context is current in this thread".to_owned())),
                Some(current) if driver.context_id(current).is_none() => {
                    let what = format!("the current context {current:#x} no longer exists");
                    // The documentation speaks of the peer's only.
                    found.push(of(Rule::AccessInvalidContext, what).without_code());
                }
                Some(_) => {}
            }
            if driver.context_id(context).is_none() {
                let what = if context == 0 { "NULL" } else { "not a context, or no longer" };
                found.push(of(Rule::AccessInvalidContext, format!("peerContext={context:#x} is {what}")));
                None
            } else {
                driver.device_of_context(context)
            }
        }
        Named::Pointer => None,
    };
    let Some(flags) = flags else { return found };
    let is_self = match named {
        Named::Context(context) => current == Some(context),
        Named::Ordinal(_) | Named::Pointer => device == peer,
    };
    match (device, peer) {
        (Some(device), Some(peer)) if device == peer => {
            let finding = of(Rule::EnableSelf, format!("the peer is device {peer}, and so is the current device"));
            // To another context of the same device there is no path, by the documentation.
            let code = if is_self { finding.code } else { Some(Code::PEER_ACCESS_UNSUPPORTED) };
            found.push(Finding { code, ..finding });
        }
        (Some(device), Some(peer)) if driver.can_access(device, peer) == Ok(false) => {
            found.push(of(Rule::EnableUnsupported, format!("device {device} cannot access memory of device {peer}")));
        }
        _ => {}
    }
    if flags != 0 {
        found.push(of(Rule::EnableFlags, format!("flags={flags}")));
    }
    found
}

fn check_query(driver: &impl Driver, seen: &Seen<'_>, query: Access) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut add = |rule, what| found.push(Finding::new(rule, seen.layer(), what));
    let Access::Query { output, attribute, device, peer, .. } = query else { return found };
    let pair = [device, peer];
    let names = seen.request.function.arguments();
    let names = names.get(names.len().saturating_sub(2)..).unwrap_or_default();
    for (name, ordinal) in names.iter().zip(pair) {
        if let Some(what) = bad_ordinal(driver, name, ordinal) {
            add(Rule::QueryDeviceOrdinal, what);
        }
    }
    if let Some(attribute) = attribute {
        if pair[0] == pair[1] {
            add(Rule::QuerySameDevice, format!("both are device {}", pair[0]));
        }
        // The newest that CUDA 13.0 has; a newer library says itself what it knows.
        if !(1..=5).contains(&attribute) && !seen.has_succeeded() {
            add(Rule::QueryAttribute, format!("the attribute is {attribute}"));
        }
    }
    if output.is_null() {
        let name = seen.request.function.arguments().first().copied().unwrap_or_default();
        let finding = Finding::new(Rule::QueryNullOutput, seen.layer(), format!("{name} is NULL"));
        // The page of the other function says nothing of it.
        found.push(if attribute.is_some() { finding } else { finding.without_code() });
    }
    found
}

// ---- Copies ----

fn check_copy(driver: &impl Driver, facts: &Facts, seen: &Seen<'_>) -> Vec<Finding> {
    let layer = seen.layer();
    let mut found = Vec::new();
    if let Some(Shape::Unreadable(pointer)) = seen.request.copy().map(|copy| copy.shape) {
        let name = seen.request.function.arguments().first().copied().unwrap_or_default();
        let what = if pointer == 0 { " is NULL".to_owned() } else { format!("={pointer:#x} cannot be read") };
        found.push(Finding::new(Rule::Copy3dNullParameters, layer, format!("{name}{what}")));
    }
    let Some(call) = Sides::of(seen.request) else { return found };
    // What a copy of nothing is not asked for.
    if layer == Layer::Driver && driver.current_context().is_none() {
        found.push(Finding::new(Rule::CopyNoContext, layer, "no context is current in this thread".to_owned()));
    }
    for side in &call.sides {
        check_place(driver, layer, side, &mut found);
    }
    // So NVIDIA's runtimes ask the driver for a 3D copy of nothing, whatever they were given.
    let is_of_no_memory = call.sides.iter().all(|side| side.given == Given::Device(0));
    let is_of_nothing = call.is_empty() && (!call.is_3d || layer == Layer::Driver && is_of_no_memory);
    if !is_of_nothing {
        for side in &call.sides {
            check_given(layer, side, &mut found);
        }
    }
    if let Some(stream) = seen.request.stream()
        && facts.streams.find(stream).is_some_and(|fact| fact.is_destroyed)
    {
        found.push(Finding::new(Rule::CopyDestroyedStream, layer, format!("stream={stream:#x} was destroyed")));
    }
    if is_of_nothing {
        return found.into_iter().filter_map(|finding| as_of_zero_bytes(layer, finding)).collect();
    }
    if call.is_empty() {
        return found;
    }
    let objects = [0, 1].map(|index| call.sides.get(index).map(|side| Object::of(driver, facts, side)));
    let [Some(src), Some(dst)] = objects else { return found };
    // In the runtime an array decides what the extent counts.
    let unit = match (layer, src.element().or(dst.element())) {
        (Layer::Runtime, Some(bytes)) => Some(bytes),
        (Layer::Runtime, None) if call.has_array() => None,
        _ => Some(1),
    };
    for (side, object) in call.sides.iter().zip([&src, &dst]) {
        if let (false, Object::Memory { address, memory, .. }) = (seen.has_succeeded(), object) {
            found.extend(rights::check(driver, facts, seen, side, (*address, *memory)));
        }
        let function = seen.request.function;
        let part = Part { function, call: &call, side, unit, has_succeeded: seen.has_succeeded() };
        check_object(driver, layer, &part, object, &mut found);
    }
    check_both(driver, &call, [&src, &dst], layer, &mut found);
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
            })
        }
        _ => None,
    }
}

/// Whether ordinal and context are any.
fn check_place(driver: &impl Driver, layer: Layer, side: &Side, found: &mut Vec<Finding>) {
    let name = side.name;
    if let Some(what) = side.ordinal.and_then(|ordinal| bad_ordinal(driver, "Device", ordinal)) {
        found.push(Finding::new(Rule::CopyDeviceOrdinal, layer, format!("{name}{what}")));
    }
    match (side.context, side.given) {
        (Some(0), Given::Device(_)) => {
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
fn check_given(layer: Layer, side: &Side, found: &mut Vec<Finding>) {
    let name = side.name;
    let mut add = |rule, what| found.push(Finding::new(rule, layer, what));
    match side.given {
        Given::Device(0) => add(Rule::CopyNullPointer, format!("{name} is NULL")),
        Given::Nothing => add(Rule::Copy3dNoMemory, format!("{name} has neither an array nor a pointer")),
        Given::Both { array, pointer } => {
            let what = format!("{name}Array={array:#x} and {name}Ptr.ptr={pointer:#x} are both set");
            add(Rule::Copy3dArrayAndPointer, what);
        }
        Given::Type(kind) => add(Rule::Copy3dMemoryType, format!("{name}MemoryType={kind}")),
        Given::Device(_) | Given::Any(_) | Given::Array(_) => {}
    }
    if side.lod != 0 {
        add(Rule::Copy3dReservedField, format!("{name}LOD={}", side.lod));
    }
}

/// One side of a copy, by the driver's account.
enum Object {
    /// Memory at an address.
    Memory { address: u64, memory: Memory },
    /// An address that the driver does not know.
    Unknown { address: u64, may_be_host: bool, was_freed: bool },
    /// An array that was created in sight.
    Array(Array),
    /// An array that was destroyed in sight.
    DestroyedArray(usize),
    /// Nothing is known of it, or it is wrong anyway.
    Other,
}

impl Object {
    fn of(driver: &impl Driver, facts: &Facts, side: &Side) -> Self {
        let (address, may_be_host) = match side.given {
            Given::Device(0) => return Self::Other,
            Given::Device(address) => (address, false),
            Given::Any(address) => (address, true),
            Given::Array(array) => {
                return match facts.array(array) {
                    Some(Some(known)) => Self::Array(known),
                    Some(None) => Self::DestroyedArray(array),
                    None => Self::Other,
                };
            }
            Given::Both { .. } | Given::Nothing | Given::Type(_) => return Self::Other,
        };
        match driver.memory(address) {
            Some(memory) => Self::Memory { address, memory },
            None => Self::Unknown { address, may_be_host, was_freed: facts.was_freed(address) },
        }
    }

    /// Bytes of an element, for an array.
    fn element(&self) -> Option<u64> {
        match self {
            Self::Array(array) => Some(array.element),
            _ => None,
        }
    }

    /// The device of memory that is some device's.
    fn device(&self) -> Option<i32> {
        match self {
            // Of managed memory, and of other processes', the driver names a device that need not be the right one.
            Self::Memory { memory, .. } if !matches!(memory.holder, Holder::Host | Holder::Foreign) => {
                Some(memory.device)
            }
            _ => None,
        }
    }
}

/// A side of a copy.
struct Part<'a> {
    function: Function,
    call: &'a Sides,
    side: &'a Side,
    /// How many bytes the extent's width counts by, if that is known.
    unit: Option<u64>,
    has_succeeded: bool,
}

/// Whether the object is what the call takes it for, and holds what is copied.
fn check_object(driver: &impl Driver, layer: Layer, part: &Part<'_>, object: &Object, found: &mut Vec<Finding>) {
    let &Part { call, side, has_succeeded, .. } = part;
    let name = side.name;
    let mut add = |finding: Finding| found.push(finding);
    match *object {
        Object::Unknown { address, may_be_host, was_freed } => {
            let (rule, what) = if was_freed {
                (Rule::CopyFreedMemory, "was freed")
            } else if driver.is_readable(address) {
                (Rule::CopyHostMemory, "is ordinary host memory")
            } else {
                (Rule::CopyUnknownPointer, "is not memory that CUDA knows")
            };
            let finding = Finding::new(rule, layer, format!("{name}={address:#x} {what}"));
            // A 3D copy may be from and to the host, by the documentation; the runtime refuses it all the same.
            match (may_be_host && rule == Rule::CopyHostMemory, layer) {
                (false, _) => add(finding),
                (true, Layer::Runtime) => add(finding.without_code()),
                (true, Layer::Driver | Layer::Hip | Layer::Nvml) => {}
            }
        }
        // A 3D copy may lie there, however the runtime says it to the driver.
        Object::Memory { address, memory: Memory { holder: Holder::Host, .. }, .. } if !call.is_3d => {
            let what = format!("{name}={address:#x} is page-locked host memory");
            add(Finding::new(Rule::CopyPinnedHost, layer, what));
        }
        Object::Memory { address, memory, .. } => {
            if call.is_3d {
                check_layout(layer, part, found);
            }
            // What has succeeded lies inside: the library checks that.
            if !has_succeeded {
                check_range(driver, layer, part, (address, memory), found);
            }
        }
        Object::Array(array) => check_array(layer, call, side, array, found),
        Object::DestroyedArray(array) => {
            add(Finding::new(Rule::Copy3dDestroyedArray, layer, format!("{name}Array={array:#x} was destroyed")));
        }
        Object::Other => {}
    }
}

/// Whether rows and slices of memory hold those of the extent.
fn check_layout(layer: Layer, &Part { function, call, side, unit, .. }: &Part<'_>, found: &mut Vec<Finding>) {
    /// `CU_DEVICE_ATTRIBUTE_MAX_PITCH` of every device so far.
    const MAX_PITCH: u64 = i32::MAX as u64;
    let Some(unit) = unit else { return };
    let [width, height, depth] = call.extent;
    let [x, y, _] = side.position;
    let (name, row) = (side.name, width.saturating_mul(unit));
    let has_rows = height > 1 || depth > 1;
    let rows = match layer {
        Layer::Runtime | Layer::Hip => "Ptr.ysize",
        Layer::Driver | Layer::Nvml => "Height",
    };
    // Nothing is formatted for a call that is right.
    let pitch = || pitch_name(function, name);
    let pitch_is_small = has_rows && side.pitch < row;
    if pitch_is_small || side.pitch > MAX_PITCH {
        let relation =
            if pitch_is_small { "is smaller than a row of" } else { "is larger than CUDA allows, for rows of" };
        let what = format!("{}={} {relation} {row} bytes", pitch(), side.pitch);
        let finding = Finding::new(Rule::Copy3dPitch, layer, what);
        // The driver's page leaves 0 open.
        found.push(if layer == Layer::Driver && side.pitch == 0 { finding.without_code() } else { finding });
    } else if has_rows && x.saturating_add(row) > side.pitch {
        let what = format!("a row of {row} bytes begins at byte {x}, but {}={}", pitch(), side.pitch);
        found.push(Finding::new(Rule::Copy3dPosition, layer, what));
    }
    if depth > 1 && side.rows < height {
        let what = format!("{name}{rows}={} is smaller than the extent's height of {height}", side.rows);
        let finding = Finding::new(Rule::Copy3dHeight, layer, what);
        found.push(if layer == Layer::Runtime && side.rows == 0 { finding.without_code() } else { finding });
    } else if depth > 1 && y.saturating_add(height) > side.rows {
        let what = format!("{height} rows begin at row {y}, but {name}{rows}={}", side.rows);
        found.push(Finding::new(Rule::Copy3dPosition, layer, what));
    }
}

/// Whether memory holds what is copied.
fn check_range(
    driver: &impl Driver,
    layer: Layer,
    &Part { call, side, unit, .. }: &Part<'_>,
    (address, memory): (u64, Memory),
    found: &mut Vec<Finding>,
) {
    let Some(bytes) = unit.map(|unit| bytes_from_address(call, side, unit)) else { return };
    let (start, size) = memory.range;
    let end = end_of(driver, memory, u128::from(address).saturating_add(bytes));
    let left = end.saturating_sub(address);
    if bytes > u128::from(left) {
        let what = format!(
            "{}={address:#x}: the copy needs {bytes} bytes, but {left} are left of the allocation of {size} bytes at {start:#x}",
            side.name,
        );
        found.push(Finding::new(Rule::CopyPastAllocation, layer, what));
    }
}

/// Where the memory ends that a copy up to `wanted` may touch. What the program maps piece by piece is one to a copy.
fn end_of(driver: &impl Driver, memory: Memory, wanted: u128) -> u64 {
    /// More than any program maps one after another.
    const PIECES: usize = 1 << 16;
    let end = |memory: Memory| memory.range.0.saturating_add(memory.range.1);
    let mut last = end(memory);
    for _ in 0..PIECES {
        if memory.holder != Holder::Mapped || u128::from(last) >= wanted {
            break;
        }
        match driver.memory(last).filter(|next| next.holder == Holder::Mapped && end(*next) > last) {
            Some(next) => last = end(next),
            None => break,
        }
    }
    last
}

/// How many bytes from the pointer to the end of what is copied.
pub(super) fn bytes_from_address(call: &Sides, side: &Side, unit: u64) -> u128 {
    let [width, height, depth] = call.extent.map(u128::from);
    let [x, y, z] = side.position.map(u128::from);
    let slices = (z + depth - 1).saturating_mul(u128::from(side.rows));
    let rows = slices.saturating_add(y + height - 1).saturating_mul(u128::from(side.pitch));
    rows.saturating_add(x).saturating_add(width.saturating_mul(u128::from(unit)))
}

/// Whether an array holds the extent.
fn check_array(layer: Layer, call: &Sides, side: &Side, array: Array, found: &mut Vec<Finding>) {
    // The driver counts bytes.
    let width = match layer {
        Layer::Runtime | Layer::Hip => array.extent[0],
        Layer::Driver | Layer::Nvml => array.extent[0].saturating_mul(array.element),
    };
    let [_, height, depth] = array.extent;
    let axes = ["width", "height", "depth"].into_iter().zip(call.extent).zip(side.position);
    for (((axis, extent), position), most) in axes.zip([width, height, depth]) {
        if position.saturating_add(extent) > most {
            let what =
                format!("{}Array has a {axis} of {most}, but the copy covers {extent} from {position} on", side.name);
            found.push(Finding::new(Rule::Copy3dOutsideArray, layer, what));
        }
    }
}

/// Adds the findings about both sides together.
fn check_both(driver: &impl Driver, call: &Sides, objects: [&Object; 2], layer: Layer, found: &mut Vec<Finding>) {
    let [src, dst] = objects;
    if let (Layer::Runtime, Some(one), Some(other)) = (layer, src.element(), dst.element())
        && one != other
    {
        let what = format!("srcArray has elements of {one} bytes, dstArray of {other}");
        found.push(Finding::new(Rule::Copy3dElementSize, layer, what));
    }
    // A call that is refused moves nothing, wherever it says.
    if found.iter().any(|finding| finding.code.is_some()) {
        return;
    }
    for (side, object) in call.sides.iter().zip(objects) {
        let Some(device) = object.device() else { continue };
        let (named, said) = match (side.ordinal, side.context) {
            (Some(ordinal), _) => (format!("{}Device={ordinal}", side.name), Some(ordinal)),
            (None, Some(context)) if context != 0 => {
                (format!("{}Context={context:#x}", side.name), driver.device_of_context(context))
            }
            _ => continue,
        };
        if let Some(said) = said.filter(|&said| said != device) {
            let of = if side.ordinal.is_some() { String::new() } else { format!(", a context of device {said}") };
            let what = format!("{named}{of}, but {} is memory of device {device}", side.name);
            found.push(Finding::new(Rule::CopyOrdinalMismatch, layer, what));
        }
    }
    if let (Object::Memory { address: src, .. }, Object::Memory { address: dst, .. }) = (src, dst) {
        let [bytes, ..] = call.extent;
        let overlap = match call.is_3d {
            false => src.abs_diff(*dst) < bytes,
            true => {
                let [one, other] = call.sides;
                src == dst && (one.position, one.pitch, one.rows) == (other.position, other.pitch, other.rows)
            }
        };
        if overlap {
            let what = format!("src={src:#x} and dst={dst:#x} overlap");
            found.push(Finding::new(Rule::CopyOverlap, layer, what));
        }
    }
}
