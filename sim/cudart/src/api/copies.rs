//! Copies.

use super::structs::{Extent, Memcpy3dParameters, Memcpy3dPeerParameters, Object};
use crate::abi::In;
use crate::driver::{ArrayDescriptor, DefaultStream, Driver, Memcpy2d, Memcpy3d, Side2d, Side3d};
use crate::entry::api;
use crate::error::{Error, Result};
use crate::{flavour, thread};

/// `CUmemorytype`.
const HOST: u32 = 1;
const DEVICE: u32 = 2;
const ARRAY: u32 = 3;
const UNIFIED: u32 = 4;

/// `cudaMemcpyKind`, as far as it changes which driver function is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    HostToHost,
    HostToDevice,
    DeviceToHost,
    DeviceToDevice,
    Default,
}

impl Kind {
    fn new(number: u32) -> Result<Kind> {
        Ok(match number {
            0 => Kind::HostToHost,
            1 => Kind::HostToDevice,
            2 => Kind::DeviceToHost,
            3 => Kind::DeviceToDevice,
            4 => Kind::Default,
            _ => return Err(Error::INVALID_MEMCPY_DIRECTION),
        })
    }

    /// `CUmemorytype` of the two sides, destination first.
    fn memory_types(self) -> (u32, u32) {
        match self {
            Kind::HostToHost => (HOST, HOST),
            Kind::HostToDevice => (DEVICE, HOST),
            Kind::DeviceToHost => (HOST, DEVICE),
            Kind::DeviceToDevice => (DEVICE, DEVICE),
            Kind::Default => (UNIFIED, UNIFIED),
        }
    }
}

pub(super) fn copy(driver: &Driver, default: DefaultStream, dst: u64, src: u64, size: u64, kind: u32) -> Result<()> {
    thread::bind(driver)?;
    let kind = Kind::new(kind)?;
    match kind {
        _ if size == 0 => Ok(()),
        Kind::HostToHost | Kind::Default => driver.cuMemcpy(default, dst, src, size),
        Kind::HostToDevice => driver.cuMemcpyHtoD(default, dst, src, size),
        Kind::DeviceToHost => driver.cuMemcpyDtoH(default, dst, src, size),
        Kind::DeviceToDevice => driver.cuMemcpyDtoD(default, dst, src, size),
    }
}

fn copy_async(
    driver: &Driver,
    default: DefaultStream,
    (dst, src, size): (u64, u64, u64),
    kind: u32,
    stream: u64,
) -> Result<()> {
    thread::bind(driver)?;
    let kind = Kind::new(kind)?;
    match kind {
        _ if size == 0 => Ok(()),
        Kind::HostToHost | Kind::Default => driver.cuMemcpyAsync(default, dst, src, size, stream),
        Kind::HostToDevice => driver.cuMemcpyHtoDAsync(default, dst, src, size, stream),
        Kind::DeviceToHost => driver.cuMemcpyDtoHAsync(default, dst, src, size, stream),
        Kind::DeviceToDevice => driver.cuMemcpyDtoDAsync(default, dst, src, size, stream),
    }
}

/// Linear memory as a side of a 2D copy.
fn rows(pointer: u64, pitch: u64, memory_type: u32) -> Side2d {
    Side2d { memory_type, host: pointer, device: pointer, pitch, ..Side2d::default() }
}

/// An array as a side of a 2D copy; offsets are in bytes and rows.
fn array_rows(array: u64, x: u64, y: u64) -> Side2d {
    Side2d { memory_type: ARRAY, array, x, y, ..Side2d::default() }
}

/// Linear to linear. None for nothing to copy.
fn rows_to_rows(dst: (u64, u64), src: (u64, u64), width: u64, height: u64, kind: u32) -> Result<Option<Memcpy2d>> {
    // A kind that is none was an invalid value here until 10.2.
    let kind = Kind::new(kind).map_err(|error| if flavour::major() < 11 { Error::INVALID_VALUE } else { error })?;
    let (dst_type, src_type) = kind.memory_types();
    if width == 0 || height == 0 {
        return Ok(None);
    }
    if dst.1 < width || src.1 < width {
        return Err(Error::INVALID_PITCH_VALUE);
    }
    Ok(Some(Memcpy2d { dst: rows(dst.0, dst.1, dst_type), src: rows(src.0, src.1, src_type), width, height }))
}

fn bytes_of_element(driver: &Driver, array: u64) -> Result<u64> {
    let mut descriptor = ArrayDescriptor::default();
    driver.cuArray3DGetDescriptor(&raw mut descriptor, array)?;
    let bytes = match descriptor.format {
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        _ => 4,
    };
    Ok(bytes * u64::from(descriptor.channels))
}

/// The extent of a 3D copy in bytes, and each side's bytes of an element: positions are in elements of the
/// side's own object, the extent in elements of the array if one takes part; two arrays have to agree in them.
struct Units {
    dst: u64,
    src: u64,
    extent: u64,
}

impl Units {
    fn of(driver: &Driver, dst: &Object, src: &Object) -> Result<Units> {
        let bytes = |object: &Object| match object.array {
            0 => Ok(1),
            array => bytes_of_element(driver, array),
        };
        let (dst_bytes, src_bytes) = (bytes(dst)?, bytes(src)?);
        if dst.array != 0 && src.array != 0 && dst_bytes != src_bytes {
            return Err(Error::INVALID_VALUE);
        }
        Ok(Units { dst: dst_bytes, src: src_bytes, extent: dst_bytes.max(src_bytes) })
    }
}

/// Exactly one of array and pointer has to be given. The pitch is compared with the extent as the program gives it, in
/// elements if an array takes part on the other side; the driver compares bytes.
fn check_side(object: &Object, extent: Extent) -> Result<()> {
    let pointer = object.pointer;
    match (object.array, pointer.pointer) {
        (0, 0) => Err(Error::INVALID_VALUE),
        (0, _) if pointer.pitch < extent.width || (extent.depth > 1 && pointer.ysize < extent.height) => {
            Err(Error::INVALID_PITCH_VALUE)
        }
        (0, _) | (_, 0) => Ok(()),
        _ => Err(Error::INVALID_VALUE),
    }
}

/// One side of a 3D copy; `bytes` are those of an element.
fn side(object: &Object, bytes: u64, memory_type: u32) -> Result<Side3d> {
    let Object { array, position, pointer } = *object;
    let x = position.x.checked_mul(bytes).ok_or(Error::INVALID_VALUE)?;
    let placed = Side3d { x, y: position.y, z: position.z, ..Side3d::default() };
    if array != 0 {
        return Ok(Side3d { memory_type: ARRAY, array, ..placed });
    }
    let (address, pitch, height) = (pointer.pointer, pointer.pitch, pointer.ysize);
    Ok(Side3d { memory_type, host: address, device: address, pitch, height, ..placed })
}

/// The driver's description of a 3D copy of something; `types` are those of linear memory, destination first.
fn box_to_box(driver: &Driver, dst: &Object, src: &Object, extent: Extent, types: (u32, u32)) -> Result<Memcpy3d> {
    let units = Units::of(driver, dst, src)?;
    let width = extent.width.checked_mul(units.extent).ok_or(Error::INVALID_VALUE)?;
    check_side(dst, extent)?;
    check_side(src, extent)?;
    let (dst, src) = (side(dst, units.dst, types.0)?, side(src, units.src, types.1)?);
    Ok(Memcpy3d { dst, src, width, height: extent.height, depth: extent.depth })
}

/// A copy from pointer to pointer, as a node of a graph takes it.
pub(super) fn linear(dst: u64, src: u64, size: u64, kind: u32) -> Result<Memcpy3d> {
    let (dst_type, src_type) = Kind::new(kind)?.memory_types();
    let side = |pointer, memory_type| Side3d { memory_type, host: pointer, device: pointer, ..Side3d::default() };
    Ok(Memcpy3d { dst: side(dst, dst_type), src: side(src, src_type), width: size, height: 1, depth: 1 })
}

/// The parameters of a 3D copy, as a node of a graph takes them.
pub(super) fn node_3d(driver: &Driver, parameters: In<Memcpy3dParameters>) -> Result<Memcpy3d> {
    let Memcpy3dParameters { dst, src, extent, kind } = parameters.read()?;
    box_to_box(driver, &dst, &src, extent, Kind::new(kind)?.memory_types())
}

/// The driver's copy for one of the runtime; none if there is nothing to copy.
fn copy_3d(driver: &Driver, parameters: In<Memcpy3dParameters>) -> Result<Option<Memcpy3d>> {
    thread::bind(driver)?;
    let Memcpy3dParameters { dst, src, extent, kind } = parameters.read()?;
    let types = Kind::new(kind)?.memory_types();
    if extent.is_empty() { Ok(None) } else { box_to_box(driver, &dst, &src, extent, types).map(Some) }
}

/// The driver is asked even if there is nothing to copy, as was measured: a capture is lost all the same. The copy that it is asked
/// for then has no memory, whatever the program gave.
fn copy_3d_peer(driver: &Driver, parameters: In<Memcpy3dPeerParameters>) -> Result<Memcpy3d> {
    let Memcpy3dPeerParameters { src, src_device, dst, dst_device, extent } = parameters.read()?;
    thread::bind(driver)?;
    let contexts = peer_contexts(driver, dst_device, src_device)?;
    let mut copy = if extent.is_empty() {
        let nowhere = Side3d { memory_type: DEVICE, ..Side3d::default() };
        Memcpy3d { src: nowhere, dst: nowhere, width: 0, height: 1, depth: 1 }
    } else {
        box_to_box(driver, &dst, &src, extent, (DEVICE, DEVICE))?
    };
    (copy.dst.context, copy.src.context) = contexts;
    Ok(copy)
}

/// The primary contexts of both devices of a peer copy, whose ordinals have to be in range.
fn peer_contexts(driver: &Driver, dst: i32, src: i32) -> Result<(u64, u64)> {
    thread::check_device(driver, dst)?;
    thread::check_device(driver, src)?;
    Ok((thread::primary(driver, dst)?, thread::primary(driver, src)?))
}

api! {
    fn cudaMemcpy | cudaMemcpy_ptds [driver, default] (dst: u64, src: u64, size: u64, kind: u32) {
        copy(driver, default, dst, src, size, kind)
    }

    fn cudaMemcpyAsync | cudaMemcpyAsync_ptsz [driver, default] (
        dst: u64,
        src: u64,
        size: u64,
        kind: u32,
        stream: u64,
    ) {
        copy_async(driver, default, (dst, src, size), kind, stream)
    }

    fn cudaMemcpy2D | cudaMemcpy2D_ptds [driver, default] (
        dst: u64,
        dst_pitch: u64,
        src: u64,
        src_pitch: u64,
        width: u64,
        height: u64,
        kind: u32,
    ) {
        thread::bind(driver)?;
        match rows_to_rows((dst, dst_pitch), (src, src_pitch), width, height, kind)? {
            Some(copy) => driver.cuMemcpy2DUnaligned(default, &raw const copy),
            None => Ok(()),
        }
    }

    fn cudaMemcpy2DAsync | cudaMemcpy2DAsync_ptsz [driver, default] (
        dst: u64,
        dst_pitch: u64,
        src: u64,
        src_pitch: u64,
        width: u64,
        height: u64,
        kind: u32,
        stream: u64,
    ) {
        thread::bind(driver)?;
        match rows_to_rows((dst, dst_pitch), (src, src_pitch), width, height, kind)? {
            Some(copy) => driver.cuMemcpy2DAsync(default, &raw const copy, stream),
            None => Ok(()),
        }
    }

    fn cudaMemcpy2DToArray | cudaMemcpy2DToArray_ptds [driver, default] (
        array: u64,
        x: u64,
        y: u64,
        src: u64,
        pitch: u64,
        width: u64,
        height: u64,
        kind: u32,
    ) {
        thread::bind(driver)?;
        let (_, src_type) = Kind::new(kind)?.memory_types();
        let copy = Memcpy2d { dst: array_rows(array, x, y), src: rows(src, pitch, src_type), width, height };
        driver.cuMemcpy2DUnaligned(default, &raw const copy)
    }

    fn cudaMemcpy2DFromArray | cudaMemcpy2DFromArray_ptds [driver, default] (
        dst: u64,
        pitch: u64,
        array: u64,
        x: u64,
        y: u64,
        width: u64,
        height: u64,
        kind: u32,
    ) {
        thread::bind(driver)?;
        let (dst_type, _) = Kind::new(kind)?.memory_types();
        let copy = Memcpy2d { dst: rows(dst, pitch, dst_type), src: array_rows(array, x, y), width, height };
        driver.cuMemcpy2DUnaligned(default, &raw const copy)
    }

    fn cudaMemcpy3D | cudaMemcpy3D_ptds [driver, default] (parameters: In<Memcpy3dParameters>) {
        match copy_3d(driver, parameters)? {
            Some(copy) => driver.cuMemcpy3D(default, &raw const copy),
            None => Ok(()),
        }
    }

    fn cudaMemcpy3DAsync | cudaMemcpy3DAsync_ptsz [driver, default] (
        parameters: In<Memcpy3dParameters>,
        stream: u64,
    ) {
        match copy_3d(driver, parameters)? {
            Some(copy) => driver.cuMemcpy3DAsync(default, &raw const copy, stream),
            None => Ok(()),
        }
    }

    /// No bytes are success, whatever the other arguments are; no other form is exported.
    fn cudaMemcpyPeer [driver] (dst: u64, dst_device: i32, src: u64, src_device: i32, size: u64) {
        if size == 0 {
            return Ok(());
        }
        thread::bind(driver)?;
        let (dst_context, src_context) = peer_contexts(driver, dst_device, src_device)?;
        driver.cuMemcpyPeer(DefaultStream::Legacy, dst, dst_context, src, src_context, size)
    }

    /// No bytes are success, whatever the other arguments are; no other form is exported.
    fn cudaMemcpyPeerAsync [driver] (
        dst: u64,
        dst_device: i32,
        src: u64,
        src_device: i32,
        size: u64,
        stream: u64,
    ) {
        if size == 0 {
            return Ok(());
        }
        thread::bind(driver)?;
        let (dst_context, src_context) = peer_contexts(driver, dst_device, src_device)?;
        driver.cuMemcpyPeerAsync(DefaultStream::Legacy, dst, dst_context, src, src_context, size, stream)
    }

    fn cudaMemcpy3DPeer | cudaMemcpy3DPeer_ptds [driver, default] (parameters: In<Memcpy3dPeerParameters>) {
        let copy = copy_3d_peer(driver, parameters)?;
        driver.cuMemcpy3DPeer(default, &raw const copy)
    }

    fn cudaMemcpy3DPeerAsync | cudaMemcpy3DPeerAsync_ptsz [driver, default] (
        parameters: In<Memcpy3dPeerParameters>,
        stream: u64,
    ) {
        let copy = copy_3d_peer(driver, parameters)?;
        driver.cuMemcpy3DPeerAsync(default, &raw const copy, stream)
    }
}
