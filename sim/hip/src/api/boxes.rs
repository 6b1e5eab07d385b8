//! Copies of boxes: in 2D, in 3D, and in 3D between devices that are named.

use p2psim_core::machine::{Followed, InCapture, Locus, Place, Request, StreamRef};
use p2psim_core::{Error, Extent};

use super::copies::{
    BY_ENGINES, DEFAULT, DEVICE_TO_DEVICE, DEVICE_TO_HOST, HOST_TO_DEVICE, HOST_TO_HOST, NULL_STREAM, check_ordinals,
    legacy, per_thread,
};
use super::require;
use super::structs::{Box3d, Copy3d, Object, Peer3d, PitchedPointer, Position};
use crate::abi::In;
use crate::entry::{Gpus, api};
use crate::error::{INVALID_DIRECTION, INVALID_PITCH, Result, silent};
use crate::flavour;

use Followed::{ByCaller, ByNobody};
use InCapture::{Captured, DoneAtOnce};

/// Pitches end below this.
const MOST_PITCH: u64 = i32::MAX as u64;

/// 5.7 does not know the newest kind yet.
fn check_kind(kind: u32) -> Result<()> {
    let is_known = kind <= DEFAULT || (kind == BY_ENGINES && flavour::major() >= 6);
    if is_known { Ok(()) } else { Err(INVALID_DIRECTION.into()) }
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

/// Where a box begins, its rows and slices as far apart as the pointer's are. In memory that is known all of it lies in the
/// pointer's allocation; other memory is the host's, where a kind allows that.
fn place(gpus: &Gpus, object: &Object, extent: &Box3d, may_be_host: bool) -> Result<Place> {
    let PitchedPointer { pointer, pitch, height, .. } = object.pitched;
    let found = gpus.find(pointer);
    require(found.is_some() || (may_be_host && pointer != 0))?;
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
    require(found.is_none_or(|found| found.holds(start, span)))?;
    Ok(Place { pitch, rows, ..Place::linear(Locus::Any(start)) })
}

/// Checks a 3D copy, in HIP's order.
fn check_3d(gpus: &Gpus, copy: &Copy3d) -> Result<()> {
    let Copy3d { src, dst, extent, kind } = copy;
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
    check_kind(*kind)?;
    let is_known = sides.iter().any(|side| gpus.find(side.pitched.pointer).is_some());
    require(is_known || matches!(*kind, HOST_TO_HOST | DEFAULT))
}

/// Copies a box whose arguments are right as far as they are looked at before its memory is.
fn submit(gpus: &Gpus, copy: &Copy3d, stream: StreamRef, followed: Followed, in_capture: InCapture) -> Result<()> {
    let Copy3d { src, dst, extent, kind } = copy;
    if extent.width == 0 || extent.height == 0 || extent.depth == 0 {
        return Ok(());
    }
    let request = Request {
        dst: place(gpus, dst, extent, matches!(*kind, HOST_TO_HOST | DEVICE_TO_HOST | DEFAULT))?,
        src: place(gpus, src, extent, matches!(*kind, HOST_TO_HOST | HOST_TO_DEVICE | DEFAULT))?,
        extent: Extent { width: extent.width, height: extent.height, depth: extent.depth },
    };
    // From device to device, as the kind says, nobody waits.
    let followed = if matches!(*kind, DEVICE_TO_DEVICE | BY_ENGINES) { ByNobody } else { followed };
    Ok(gpus.copy_by_device(stream, &request, followed, in_capture)?)
}

/// A 3D copy on a stream.
pub(super) fn copy_3d(gpus: &Gpus, copy: &Copy3d, stream: Result<StreamRef>, in_capture: InCapture) -> Result<()> {
    check_3d(gpus, copy)?;
    submit(gpus, copy, stream?, ByNobody, in_capture)
}

fn copy_3d_at_once(gpus: &Gpus, parameters: In<Copy3d>, stream: StreamRef) -> Result<()> {
    gpus.refuse_in_captures()?;
    let copy = parameters.read()?;
    check_3d(gpus, &copy)?;
    submit(gpus, &copy, stream, ByCaller, DoneAtOnce)
}

/// The 3D peer copy. 7.1 puts the asynchronous form on the null stream too, whatever its stream.
fn copy_3d_peer(gpus: &Gpus, copy: &Peer3d) -> Result<()> {
    let Peer3d { src, dst, extent, .. } = *copy;
    copy_3d(gpus, &Copy3d { src, dst, extent, kind: DEVICE_TO_DEVICE }, Ok(NULL_STREAM), DoneAtOnce)
}

fn read_3d_peer(gpus: &Gpus, parameters: In<Peer3d>) -> Result<Peer3d> {
    let copy = parameters.read()?;
    check_ordinals(gpus, [copy.src_device, copy.dst_device])?;
    Ok(copy)
}

/// A 2D copy: pointers and pitches of destination and source, width, height.
#[derive(Clone, Copy)]
struct Flat {
    dst: (u64, u64),
    src: (u64, u64),
    size: (u64, u64),
    kind: u32,
}

impl Flat {
    /// Looks at all but the memory, in the release's order. False if there is nothing to copy.
    fn check(self, stream: &Result<StreamRef>) -> Result<bool> {
        let Flat { dst, src, size: (width, height), kind } = self;
        check_kind(kind)?;
        if flavour::major() < 7 {
            require(stream.is_ok())?;
        }
        let is_empty = width == 0 || height == 0;
        if flavour::major() < 6 {
            for (pointer, pitch) in [src, dst] {
                require(pointer != 0)?;
                is_pitch(pitch != 0 && pitch >= width)?;
            }
        }
        if !is_empty {
            is_pitch(width <= dst.1 && width <= src.1)?;
        }
        Ok(!is_empty)
    }

    fn on_stream(
        self,
        gpus: &Gpus,
        stream: Result<StreamRef>,
        followed: Followed,
        in_capture: InCapture,
    ) -> Result<()> {
        if !self.check(&stream)? {
            return Ok(());
        }
        let Flat { dst, src, size: (width, height), kind } = self;
        let object = |(pointer, pitch)| Object {
            array: 0,
            position: Position { x: 0, y: 0, z: 0 },
            pitched: PitchedPointer { pointer, pitch, width, height: 0 },
        };
        let extent = Box3d { width, height, depth: 1 };
        let copy = Copy3d { src: object(src), dst: object(dst), extent, kind };
        submit(gpus, &copy, stream?, followed, in_capture)
    }

    /// Its refusal beside a capture does not become the last error.
    fn at_once(self, gpus: &Gpus, stream: Result<StreamRef>) -> Result<()> {
        gpus.refuse_in_captures().map_err(silent)?;
        self.on_stream(gpus, stream, ByCaller, DoneAtOnce)
    }
}

fn is_pitch(condition: bool) -> Result<()> {
    if condition { Ok(()) } else { Err(INVALID_PITCH.into()) }
}

api! {
    fn hipMemcpy2D [gpus] (
        dst: u64, dst_pitch: u64, src: u64, src_pitch: u64, width: u64, height: u64, kind: u32,
    ) {
        let copy = Flat { dst: (dst, dst_pitch), src: (src, src_pitch), size: (width, height), kind };
        copy.at_once(gpus, Ok(NULL_STREAM))
    }

    fn hipMemcpy2D_spt [gpus] (
        dst: u64, dst_pitch: u64, src: u64, src_pitch: u64, width: u64, height: u64, kind: u32,
    ) {
        let copy = Flat { dst: (dst, dst_pitch), src: (src, src_pitch), size: (width, height), kind };
        copy.at_once(gpus, per_thread(gpus, 0))
    }

    fn hipMemcpy2DAsync [gpus] (
        dst: u64, dst_pitch: u64, src: u64, src_pitch: u64, width: u64, height: u64, kind: u32, queue: u64,
    ) {
        let copy = Flat { dst: (dst, dst_pitch), src: (src, src_pitch), size: (width, height), kind };
        copy.on_stream(gpus, legacy(gpus, queue), ByNobody, Captured)
    }

    fn hipMemcpy2DAsync_spt [gpus] (
        dst: u64, dst_pitch: u64, src: u64, src_pitch: u64, width: u64, height: u64, kind: u32, queue: u64,
    ) {
        let copy = Flat { dst: (dst, dst_pitch), src: (src, src_pitch), size: (width, height), kind };
        copy.on_stream(gpus, per_thread(gpus, queue), ByNobody, Captured)
    }

    fn hipMemcpy3D [gpus] (parameters: In<Copy3d>) { copy_3d_at_once(gpus, parameters, NULL_STREAM) }

    fn hipMemcpy3D_spt [gpus] (parameters: In<Copy3d>) {
        copy_3d_at_once(gpus, parameters, per_thread(gpus, 0)?)
    }

    fn hipMemcpy3DAsync [gpus] (parameters: In<Copy3d>, queue: u64) {
        copy_3d(gpus, &parameters.read()?, legacy(gpus, queue), Captured)
    }

    fn hipMemcpy3DAsync_spt [gpus] (parameters: In<Copy3d>, queue: u64) {
        copy_3d(gpus, &parameters.read()?, per_thread(gpus, queue), Captured)
    }

    fn hipMemcpy3DPeer [gpus] (parameters: In<Peer3d>) {
        copy_3d_peer(gpus, &read_3d_peer(gpus, parameters)?)
    }

    fn hipMemcpy3DPeerAsync [gpus] (parameters: In<Peer3d>, queue: u64) {
        let copy = read_3d_peer(gpus, parameters)?;
        gpus.stream(queue).map_err(silent)?;
        copy_3d_peer(gpus, &copy)
    }
}
