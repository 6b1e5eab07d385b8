//! The sides of a copy: whether they hold what is copied.

use super::call::{Operand, Side, Sides, pitch_name};
use crate::api::{Function, Layer};
use crate::model::{Finding, Rule};
use crate::objects::Objects;
use crate::objects::arrays::{Array, Shape};
use crate::policy::driver::{Driver, Holder, Memory};

/// One side of a copy, by the driver's account.
pub(super) enum Object {
    /// Memory at an address.
    Memory { address: u64, memory: Memory },
    /// An address that the driver does not know.
    Unknown { address: u64, may_be_host: bool, rule: Rule },
    /// An array that was created in sight.
    Array(Shape),
    /// An array that was destroyed in sight.
    DestroyedArray(usize),
    /// Nothing is known of it, or it is wrong anyway.
    Other,
}

impl Object {
    pub(super) fn of(driver: &impl Driver, objects: &Objects, side: &Side) -> Self {
        let (address, may_be_host) = match side.given {
            Operand::Device(0) => return Self::Other,
            Operand::Device(address) => (address, false),
            Operand::Any(address) => (address, true),
            Operand::Array(array) => {
                return match objects.arrays.find(array) {
                    Some(Array::There { shape: Some(shape), .. }) => Self::Array(shape),
                    Some(Array::Destroyed) => Self::DestroyedArray(array),
                    Some(Array::There { shape: None, .. }) | None => Self::Other,
                };
            }
            Operand::Both { .. } | Operand::Nothing | Operand::Type(_) => return Self::Other,
        };
        match driver.memory(address) {
            Some(memory) => Self::Memory { address, memory },
            None if !driver.is_unknown(address) => Self::Other,
            None => {
                let rule = match objects.past.was_freed(address) {
                    true => Rule::CopyFreedMemory,
                    false if driver.is_readable(address) => Rule::CopyHostMemory,
                    false => Rule::CopyUnknownPointer,
                };
                Self::Unknown { address, may_be_host, rule }
            }
        }
    }

    /// Bytes of an element, for an array.
    pub(super) fn element(&self) -> Option<u64> {
        match self {
            Self::Array(array) => Some(array.element),
            _ => None,
        }
    }

    /// The device of memory that is some device's.
    fn device(&self) -> Option<i32> {
        match self {
            // Of managed memory, and of other processes', the driver names a device that need not be the right one.
            Self::Memory { memory, .. }
                if !matches!(memory.holder, Holder::Host | Holder::Opened | Holder::Foreign) =>
            {
                Some(memory.device)
            }
            _ => None,
        }
    }
}

/// A side of a copy.
pub(super) struct Part<'a> {
    pub(super) function: Function,
    pub(super) call: &'a Sides,
    pub(super) side: &'a Side,
    /// How many bytes the extent's width counts by, if that is known.
    pub(super) unit: Option<u64>,
    pub(super) has_succeeded: bool,
}

/// Whether the object is what the call takes it for, and holds what is copied. `memory_at` tells what lies behind mapped memory.
pub(super) fn check_object(
    memory_at: impl Fn(u64) -> Option<Memory>,
    layer: Layer,
    part: &Part<'_>,
    object: &Object,
    found: &mut Vec<Finding>,
) {
    let &Part { call, side, has_succeeded, .. } = part;
    let name = side.name;
    let mut add = |finding: Finding| found.push(finding);
    match *object {
        Object::Unknown { address, may_be_host, rule } => {
            let what = match rule {
                Rule::CopyFreedMemory => "was freed",
                Rule::CopyHostMemory => "is ordinary host memory",
                _ if layer == Layer::Hip => "is not memory that HIP knows",
                _ => "is not memory that CUDA knows",
            };
            let finding = Finding::new(rule, layer, format!("{name}={address:#x} {what}"));
            // A 3D copy may be from and to the host, by the documentation; the runtime refuses it all the same.
            match (may_be_host && rule == Rule::CopyHostMemory, layer) {
                (false, _) => add(finding),
                (true, Layer::Runtime | Layer::Hip) => add(finding.without_code()),
                (true, Layer::Driver | Layer::Nvml) => {}
            }
        }
        // A 3D copy may lie there, however the runtime says it to the driver.
        Object::Memory { address, memory: Memory { holder: Holder::Host, .. }, .. } if !call.is_3d => {
            let what = format!("{name}={address:#x} is page-locked host memory");
            add(Finding::new(Rule::CopyPinnedHost, layer, what));
        }
        Object::Memory { address, memory, .. } => {
            if call.is_3d && layer != Layer::Hip {
                check_layout(layer, part, found);
            }
            // A copy that has succeeded lies inside: the library checks that.
            if !has_succeeded {
                check_range(memory_at, layer, part, (address, memory), found);
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
    memory_at: impl Fn(u64) -> Option<Memory>,
    layer: Layer,
    &Part { call, side, unit, .. }: &Part<'_>,
    (address, memory): (u64, Memory),
    found: &mut Vec<Finding>,
) {
    let Some(bytes) = unit.map(|unit| bytes_from_address(call, side, unit)) else { return };
    let (start, size) = memory.range;
    let end = end_of(memory_at, memory, u128::from(address).saturating_add(bytes));
    let left = end.saturating_sub(address);
    if bytes > u128::from(left) {
        // Of HIP's only the end is kept.
        let of = if layer == Layer::Hip { String::new() } else { format!(" of {size} bytes at {start:#x}") };
        let negative = u64::try_from(bytes).ok().map(u64::cast_signed).filter(|&bytes| bytes < 0);
        let signed = negative.map(|bytes| format!(" ({bytes} as a signed number)")).unwrap_or_default();
        let what = format!(
            "{}={address:#x}: the copy needs {bytes} bytes{signed}, but {left} are left of the allocation{of}",
            side.name
        );
        found.push(Finding { size: negative, ..Finding::new(Rule::CopyPastAllocation, layer, what) });
    }
}

/// Where the memory ends that a copy up to `wanted` may touch. Memory that the program maps piece by piece is one to a copy.
fn end_of(memory_at: impl Fn(u64) -> Option<Memory>, memory: Memory, wanted: u128) -> u64 {
    /// More than any program maps one after another.
    const PIECES: usize = 1 << 16;
    let end = |memory: Memory| memory.range.0.saturating_add(memory.range.1);
    let mut last = end(memory);
    for _ in 0..PIECES {
        if memory.holder != Holder::Mapped || u128::from(last) >= wanted {
            break;
        }
        match memory_at(last).filter(|next| next.holder == Holder::Mapped && end(*next) > last) {
            Some(next) => last = end(next),
            None => break,
        }
    }
    last
}

/// How many bytes from the pointer to the end of what is copied.
fn bytes_from_address(call: &Sides, side: &Side, unit: u64) -> u128 {
    let [width, height, depth] = call.extent.map(u128::from);
    let [x, y, z] = side.position.map(u128::from);
    let slices = (z + depth - 1).saturating_mul(u128::from(side.rows));
    let rows = slices.saturating_add(y + height - 1).saturating_mul(u128::from(side.pitch));
    rows.saturating_add(x).saturating_add(width.saturating_mul(u128::from(unit)))
}

/// Whether an array holds the extent.
fn check_array(layer: Layer, call: &Sides, side: &Side, array: Shape, found: &mut Vec<Finding>) {
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
pub(super) fn check_both(
    device_of_context: impl Fn(usize) -> Option<i32>,
    call: &Sides,
    objects: [&Object; 2],
    layer: Layer,
    found: &mut Vec<Finding>,
) {
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
                (format!("{}Context={context:#x}", side.name), device_of_context(context))
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
            true if layer == Layer::Hip => false,
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
