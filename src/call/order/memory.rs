//! The memory that calls touch.

use std::collections::BTreeMap;
use std::iter;
use std::ops::Range;
use std::sync::Mutex;

use crate::api::abi::{Value, cudaPos};
use crate::model::{Memcpy, Shape};
use crate::objects::captures;
use crate::objects::memory::Kind as MemoryKind;
use crate::os;
use crate::policy::ACCESS;
use crate::policy::order::{Access, Kind, Span, constants};
use crate::real::driver::{self, RealDriver};

/// Memory at an address.
pub(super) struct Found {
    pub(super) range: Range<u64>,
    pub(super) is_host: bool,
    pub(super) is_of_pool: bool,
    /// Its device, if it is known.
    pub(super) device: Option<u8>,
    pub(super) context: Option<usize>,
}

impl Found {
    pub(super) fn access(&self, span: Span, kind: Kind) -> Access {
        Access { memory: self.range.clone(), span, kind, device: self.device }
    }
}

/// HIP does not tell where an allocation ends: all memory is looked at as one.
pub(super) const ALL_OF_HIP: Found =
    Found { range: 0..u64::MAX >> 1, is_host: false, is_of_pool: false, device: None, context: None };

/// The memory at an address, if it is a device's, or memory of the host that CUDA knows.
pub(super) fn memory(address: u64) -> Option<Found> {
    let known = || ACCESS.known(address);
    let asked = || {
        if !captures::may_be_under_way() {
            ACCESS.learn(&RealDriver, address);
        }
        known()
    };
    let (place, range) = known().or_else(asked)?;
    let device = match place.kind {
        MemoryKind::Unknown | MemoryKind::Foreign => return None,
        MemoryKind::Host => None,
        _ => Some(place.device),
    };
    let context = (place.kind == MemoryKind::Plain && place.of != 0).then_some(place.of as usize);
    Some(Found {
        range,
        is_host: place.kind == MemoryKind::Host,
        is_of_pool: place.kind == MemoryKind::Pool,
        device,
        context,
    })
}

/// The bytes that a copy reads and writes; none of an array, or of what cannot be read.
pub(super) fn spans(copy: &Memcpy<'_>) -> [Option<Span>; 2] {
    let Some([src, dst]) = copy.reach() else { return [None; 2] };
    let pitches = match copy.shape {
        Shape::Linear => return [Some(Span::bytes(copy.src, src)), Some(Span::bytes(copy.dst, dst))],
        Shape::Runtime3D(p) => {
            let origin =
                |ptr: u64, at: &cudaPos, pitch: usize, rows: usize| ptr + (at.x + pitch * (at.y + rows * at.z)) as u64;
            let (s, d) = (p.srcPtr, p.dstPtr);
            [
                (origin(copy.src, &p.srcPos, s.pitch, s.ysize), copy.src + src, s.pitch, p.extent.width),
                (origin(copy.dst, &p.dstPos, d.pitch, d.ysize), copy.dst + dst, d.pitch, p.extent.width),
            ]
        }
        Shape::Driver3D(p) => {
            let from = |start: u64, x: usize, y: usize, z: usize, pitch: usize, rows: usize| {
                start + (x + pitch * (y + rows * z)) as u64
            };
            [
                (
                    from(copy.src, p.srcXInBytes, p.srcY, p.srcZ, p.srcPitch, p.srcHeight),
                    copy.src + src,
                    p.srcPitch,
                    p.WidthInBytes,
                ),
                (
                    from(copy.dst, p.dstXInBytes, p.dstY, p.dstZ, p.dstPitch, p.dstHeight),
                    copy.dst + dst,
                    p.dstPitch,
                    p.WidthInBytes,
                ),
            ]
        }
        Shape::Unreadable(_) => return [None; 2],
    };
    pitches
        .map(|(start, end, pitch, width)| Some(Span::rows(start, end.checked_sub(start)?, pitch as u64, width as u64)))
}

pub(super) fn address(value: Value) -> Option<u64> {
    match value {
        Value::UInt(address) => Some(address),
        Value::Address(address) => Some(address as u64),
        _ => None,
    }
}

/// A parameter of a kernel.
pub(super) struct Parameter {
    pub(super) bytes: u16,
    /// Whether it points to constants.
    pub(super) is_constant: bool,
}

/// The parameters of kernels that were launched, until a module is unloaded: then a handle may come again.
pub(super) static PARAMETERS: Mutex<BTreeMap<usize, Vec<Parameter>>> = Mutex::new(BTreeMap::new());

pub(super) fn with_parameters<T>(kernel: usize, work: impl FnOnce(&[Parameter]) -> T) -> T {
    /// No kernel has more parameters.
    const MOST: usize = 4096;
    let asked = || {
        let sizes: Vec<usize> = (0..MOST).map_while(|index| driver::parameter_bytes(kernel, index)).collect();
        let constants = driver::kernel_name(kernel).and_then(|name| constants(&name));
        let constants = constants.filter(|all| all.len() == sizes.len()).unwrap_or_default();
        let constants = constants.into_iter().chain(iter::repeat(false));
        let parameters = sizes.into_iter().zip(constants);
        let bytes = |bytes| u16::try_from(bytes).unwrap_or(u16::MAX);
        parameters.map(|(size, is_constant)| Parameter { bytes: bytes(size), is_constant }).collect()
    };
    // The driver is not asked under the lock.
    let is_known = os::lock(&PARAMETERS).contains_key(&kernel);
    let parameters: Option<Vec<Parameter>> = if is_known { None } else { Some(asked()) };
    let mut known = os::lock(&PARAMETERS);
    parameters.into_iter().for_each(|parameters| _ = known.insert(kernel, parameters));
    work(known.get(&kernel).map_or(&[], Vec::as_slice))
}
