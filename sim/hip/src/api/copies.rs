//! Copies and memsets.

use p2psim_core::machine::{DefaultStream, Followed, InCapture, Locus, Place, Request, StreamRef};
use p2psim_core::{Error, Extent};

use super::require;
use super::structs::{Box3d, Object, Peer3d, PitchedPointer, Position};
use crate::abi::In;
use crate::entry::{Gpus, Result, api, silent};
use crate::error::{INVALID_DIRECTION, INVALID_PITCH};
use crate::flavour;

use Followed::{ByCaller, ByDestination, ByNobody};
use InCapture::{Captured, DoneAtOnce};

/// `hipMemcpyKind`; `DEFAULT` goes by the pointers, `BY_ENGINES` is device to device without compute units.
const HOST_TO_HOST: u32 = 0;
const HOST_TO_DEVICE: u32 = 1;
const DEVICE_TO_HOST: u32 = 2;
const DEVICE_TO_DEVICE: u32 = 3;
const DEFAULT: u32 = 4;
const BY_ENGINES: u32 = 1024;
/// Pitches end below this.
const MOST_PITCH: u64 = i32::MAX as u64;
const NULL_STREAM: StreamRef = StreamRef::Default(DefaultStream::Legacy);

fn check_kind(kind: u32) -> Result<()> {
    if kind > DEFAULT && kind != BY_ENGINES { Err(INVALID_DIRECTION.into()) } else { Ok(()) }
}

fn is_known(gpus: &Gpus, pointer: u64) -> bool {
    gpus.find(pointer).is_some()
}

/// A linear copy of a kind, between any memories; what the kind says of them is not looked at unless both are the
/// program's own.
#[derive(Clone, Copy)]
struct Linear {
    dst: u64,
    src: u64,
    size: u64,
    kind: u32,
}

impl Linear {
    /// Of what kind does not matter here.
    fn of_devices(dst: u64, src: u64, size: u64) -> Linear {
        Linear { dst, src, size, kind: DEVICE_TO_DEVICE }
    }

    fn submit(self, gpus: &Gpus, stream: StreamRef, followed: Followed, in_capture: InCapture) -> Result<()> {
        let Linear { dst, src, size, kind } = self;
        if size == 0 {
            return Ok(());
        }
        require(dst != 0 && src != 0)?;
        check_kind(kind)?;
        require(is_known(gpus, dst) || is_known(gpus, src) || matches!(kind, HOST_TO_HOST | DEFAULT))?;
        if src == dst && kind == DEFAULT {
            return Ok(());
        }
        let [dst, src] = [dst, src].map(|address| Place::linear(Locus::Any(address)));
        let request = Request { dst, src, extent: Extent::linear(size) };
        Ok(gpus.copy_by_device(stream, &request, followed, in_capture)?)
    }

    /// A call that nothing may be captured beside.
    fn at_once(self, gpus: &Gpus) -> Result<()> {
        gpus.refuse_beside_captures(Error::STREAM_CAPTURE_IMPLICIT)?;
        self.submit(gpus, NULL_STREAM, ByCaller, DoneAtOnce)
    }

    fn on_stream(self, gpus: &Gpus, queue: u64) -> Result<()> {
        check_kind(self.kind)?;
        self.submit(gpus, gpus.stream(queue)?, ByNobody, Captured)
    }
}

/// Ordinals are looked at, and say nothing: pointers do.
fn check_ordinals(gpus: &Gpus, ordinals: [i32; 2]) -> Result<()> {
    Ok(ordinals.into_iter().try_for_each(|ordinal| gpus.device(ordinal).map(drop))?)
}

/// Whether an allocation is smaller than what of a box begins in it, by its own measures.
fn is_too_small(gpus: &Gpus, object: &Object, extent: &Box3d) -> bool {
    let (PitchedPointer { pointer, width, height, .. }, position) = (object.pitched, object.position);
    let slice = width.wrapping_mul(height);
    let Some(found) = gpus.find(pointer).filter(|_| slice != 0) else { return false };
    let rows = height.wrapping_sub(position.y);
    let slices = (found.size / slice).wrapping_sub(position.z);
    let wanted = extent.width.wrapping_mul(extent.height).wrapping_mul(extent.depth);
    width.wrapping_mul(rows).wrapping_mul(slices) < wanted
}

/// Where a box begins, its rows and slices as far apart as the pointer's are. All of it lies in the pointer's allocation.
fn place(gpus: &Gpus, object: &Object, extent: &Box3d) -> Result<Place> {
    let PitchedPointer { pointer, pitch, height, .. } = object.pitched;
    let found = gpus.find(pointer).ok_or(Error::INVALID_VALUE)?;
    require(pitch > 0 && pitch >= extent.width)?;
    // Products wrap around in the real library, too, and none is as good as none given.
    let slice = Some(pitch.wrapping_mul(height)).filter(|slice| *slice != 0);
    let slice = slice.or_else(|| pitch.checked_mul(extent.height)).ok_or(Error::INVALID_VALUE)?;
    let rows = slice / pitch;
    require(slice.is_multiple_of(pitch) && rows >= extent.height)?;
    let at = |x: u64, y: u64, z: u64| z.checked_mul(slice)?.checked_add(y.checked_mul(pitch)?)?.checked_add(x);
    let Position { x, y, z } = object.position;
    let start = at(x, y, z).and_then(|offset| pointer.checked_add(offset)).ok_or(Error::INVALID_VALUE)?;
    let span = at(extent.width, extent.height - 1, extent.depth - 1).ok_or(Error::INVALID_VALUE)?;
    require(found.holds(start, span))?;
    Ok(Place { pitch, rows, ..Place::linear(Locus::Any(start)) })
}

/// The one 3D peer copy, in its order of checks. 7.1 puts the asynchronous form on the null stream too, whatever its stream.
fn copy_3d_peer(gpus: &Gpus, copy: &Peer3d) -> Result<()> {
    let Peer3d { src, dst, extent, .. } = copy;
    let sides = [src, dst];
    for Object { array, pitched, .. } in sides {
        require((*array != 0) != (pitched.pointer != 0))?;
    }
    if sides.iter().any(|side| side.pitched.pitch < side.pitched.width) {
        return Err(INVALID_PITCH.into());
    }
    require(sides.iter().all(|side| side.pitched.pitch < MOST_PITCH))?;
    if sides.iter().any(|side| side.array != 0) {
        return Err(Error::NOT_SUPPORTED.into());
    }
    let fits = |side: &&Object| extent.width.wrapping_add(side.position.x) <= side.pitched.pitch;
    require([dst, src].iter().all(fits))?;
    require(![dst, src].into_iter().any(|side| is_too_small(gpus, side, extent)))?;
    require(sides.iter().any(|side| is_known(gpus, side.pitched.pointer)))?;
    if extent.width == 0 || extent.height == 0 || extent.depth == 0 {
        return Ok(());
    }
    let request = Request {
        dst: place(gpus, dst, extent)?,
        src: place(gpus, src, extent)?,
        extent: Extent { width: extent.width, height: extent.height, depth: extent.depth },
    };
    Ok(gpus.copy_by_device(NULL_STREAM, &request, ByNobody, DoneAtOnce)?)
}

fn read_3d_peer(gpus: &Gpus, parameters: In<Peer3d>) -> Result<Peer3d> {
    let copy = parameters.read()?;
    check_ordinals(gpus, [copy.src_device, copy.dst_device])?;
    Ok(copy)
}

/// Sets `count` values of `unit` bytes.
fn set(gpus: &Gpus, stream: StreamRef, dst: u64, (value, unit): (u32, u64), count: u64, wait: bool) -> Result<()> {
    let size = count.checked_mul(unit).ok_or(Error::INVALID_VALUE)?;
    if size == 0 {
        return Ok(());
    }
    require(dst != 0 && is_known(gpus, dst))?;
    let place = Place::linear(Locus::Device(dst));
    Ok(gpus.fill_by_device(stream, place, Extent::linear(size), (value, unit), wait)?)
}

fn set_at_once(gpus: &Gpus, dst: u64, value: (u32, u64), count: u64) -> Result<()> {
    gpus.refuse_beside_captures(Error::STREAM_CAPTURE_IMPLICIT)?;
    set(gpus, NULL_STREAM, dst, value, count, true)
}

api! {
    /// From 7.1 on it is refused beside any capture, before anything else is looked at.
    fn hipMemcpyPeer [gpus] (dst: u64, dst_device: i32, src: u64, src_device: i32, size: u64) {
        if flavour::major() >= 7 {
            gpus.refuse_beside_captures(Error::STREAM_CAPTURE_IMPLICIT).map_err(silent)?;
        }
        check_ordinals(gpus, [dst_device, src_device])?;
        Linear::of_devices(dst, src, size).submit(gpus, NULL_STREAM, ByDestination, DoneAtOnce)
    }

    /// On a stream that captures it is done at once, and is not in the graph.
    fn hipMemcpyPeerAsync [gpus] (dst: u64, dst_device: i32, src: u64, src_device: i32, size: u64, queue: u64) {
        check_ordinals(gpus, [dst_device, src_device])?;
        let stream = gpus.stream(queue).map_err(silent)?;
        Linear::of_devices(dst, src, size).submit(gpus, stream, ByNobody, DoneAtOnce)
    }

    fn hipMemcpy3DPeer [gpus] (parameters: In<Peer3d>) {
        copy_3d_peer(gpus, &read_3d_peer(gpus, parameters)?)
    }

    fn hipMemcpy3DPeerAsync [gpus] (parameters: In<Peer3d>, queue: u64) {
        let copy = read_3d_peer(gpus, parameters)?;
        gpus.stream(queue).map_err(silent)?;
        copy_3d_peer(gpus, &copy)
    }

    fn hipMemcpy [gpus] (dst: u64, src: u64, size: u64, kind: u32) {
        Linear { dst, src, size, kind }.at_once(gpus)
    }

    fn hipMemcpyAsync [gpus] (dst: u64, src: u64, size: u64, kind: u32, queue: u64) {
        Linear { dst, src, size, kind }.on_stream(gpus, queue)
    }

    /// Asynchronous for the device, and the caller waits.
    fn hipMemcpyWithStream [gpus] (dst: u64, src: u64, size: u64, kind: u32, queue: u64) {
        Linear { dst, src, size, kind }.submit(gpus, gpus.stream(queue)?, ByCaller, Captured)
    }

    fn hipMemcpyDtoD [gpus] (dst: u64, src: u64, size: u64) {
        Linear::of_devices(dst, src, size).at_once(gpus)
    }

    fn hipMemcpyDtoDAsync [gpus] (dst: u64, src: u64, size: u64, queue: u64) {
        Linear::of_devices(dst, src, size).on_stream(gpus, queue)
    }

    fn hipMemcpyHtoD [gpus] (dst: u64, src: u64, size: u64) {
        Linear { dst, src, size, kind: HOST_TO_DEVICE }.at_once(gpus)
    }

    fn hipMemcpyDtoH [gpus] (dst: u64, src: u64, size: u64) {
        Linear { dst, src, size, kind: DEVICE_TO_HOST }.at_once(gpus)
    }

    fn hipMemset [gpus] (dst: u64, value: i32, size: u64) {
        set_at_once(gpus, dst, (value as u32, 1), size)
    }

    fn hipMemsetAsync [gpus] (dst: u64, value: i32, size: u64, queue: u64) {
        set(gpus, gpus.stream(queue)?, dst, (value as u32, 1), size, false)
    }

    fn hipMemsetD8 [gpus] (dst: u64, value: u8, count: u64) {
        set_at_once(gpus, dst, (value.into(), 1), count)
    }

    fn hipMemsetD32 [gpus] (dst: u64, value: i32, count: u64) {
        set_at_once(gpus, dst, (value as u32, 4), count)
    }
}
