//! Copies and memsets.

use p2psim_core::machine::{ArrayHandle, Completion, ContextHandle, DefaultStream, Locus, Place, Request, StreamRef};
use p2psim_core::{Error, Extent, Result};

use super::structs::{Memcpy2d, Memcpy3d, SideFields};
use crate::abi::In;
use crate::entry::{api, machine, stream};

use Completion::{Async, Sync};
use Locus::{Any, Device, Host};

fn linear(dst: Locus, src: Locus, size: u64) -> Request {
    Request { dst: Place::linear(dst), src: Place::linear(src), extent: Extent::linear(size) }
}

/// Bytes in an array of one dimension.
fn in_array(handle: u64, x: u64) -> Place {
    Place { x, ..Place::linear(Locus::Array(ArrayHandle(handle))) }
}

fn copy_arrays(dst: Place, src: Place, size: u64, default: DefaultStream) -> Result<()> {
    machine()?.copy(own(default), &Request { dst, src, extent: Extent::linear(size) }, Sync)
}

fn copy(dst: Locus, src: Locus, size: u64, stream: StreamRef, completion: Completion) -> Result<()> {
    machine()?.copy(stream, &linear(dst, src, size), completion)
}

/// One side of a described copy: `CUmemorytype` decides which of the fields hold.
fn place(side: SideFields) -> Result<Place> {
    let at = match side.memory_type {
        1 => Host(side.host),
        2 => Device(side.device),
        3 => Locus::Array(ArrayHandle(side.array)),
        4 => Any(side.device),
        _ => return Err(Error::INVALID_VALUE),
    };
    let SideFields { pitch, height: rows, x, y, z, .. } = side;
    Ok(Place { at, pitch, rows, x, y, z })
}

fn request_2d(copy: In<Memcpy2d>) -> Result<Request> {
    let Memcpy2d { src, dst, width, height } = copy.read()?;
    let extent = Extent { width, height, depth: 1 };
    Ok(Request { dst: place(dst.into())?, src: place(src.into())?, extent })
}

pub(super) fn request_3d(copy: &Memcpy3d) -> Result<Request> {
    let Memcpy3d { src, dst, width, height, depth } = *copy;
    let extent = Extent { width, height, depth };
    Ok(Request { dst: place(dst.into())?, src: place(src.into())?, extent })
}

/// A 3D peer copy and its contexts. A pitch or a height of 0 is accepted, as was measured: rows or slices are taken to lie one
/// after another then.
fn request_3d_peer(copy: In<Memcpy3d>) -> Result<(Request, [ContextHandle; 2])> {
    let copy = copy.read()?;
    let mut request = request_3d(&copy)?;
    let Extent { width, height, depth } = request.extent;
    for place in [&mut request.dst, &mut request.src] {
        if place.pitch == 0 && (height > 1 || depth > 1) {
            place.pitch = width;
        }
        if place.rows == 0 && depth > 1 {
            place.rows = height;
        }
    }
    Ok((request, [copy.dst.context, copy.src.context].map(ContextHandle)))
}

/// A memset of rows; `unit` is the size of `value`.
#[derive(Clone, Copy)]
struct Set {
    dst: u64,
    pitch: u64,
    value: u32,
    unit: u64,
    width: u64,
    height: u64,
}

impl Set {
    fn linear(dst: u64, value: u32, unit: u64, count: u64) -> Set {
        Set { dst, pitch: 0, value, unit, width: count, height: 1 }
    }

    fn submit(self, stream: StreamRef, completion: Completion) -> Result<()> {
        let machine = machine()?;
        let width = self.width.checked_mul(self.unit).ok_or(Error::INVALID_VALUE)?;
        let extent = Extent { width, height: self.height, depth: 1 };
        let place = Place { pitch: self.pitch, ..Place::linear(Device(self.dst)) };
        machine.fill(stream, place, extent, (self.value, self.unit), completion)
    }
}

/// The default stream that a call without a stream argument goes to.
fn own(default: DefaultStream) -> StreamRef {
    StreamRef::Default(default)
}

api! {
    fn cuMemcpy | cuMemcpy_ptds [default] (dst: u64, src: u64, size: u64) {
        copy(Any(dst), Any(src), size, own(default), Sync)
    }

    fn cuMemcpyAsync | cuMemcpyAsync_ptsz [default] (dst: u64, src: u64, size: u64, queue: u64) {
        copy(Any(dst), Any(src), size, stream(queue, default), Async)
    }

    fn cuMemcpyHtoD_v2 | cuMemcpyHtoD_v2_ptds [default] (dst: u64, src: u64, size: u64) {
        copy(Device(dst), Any(src), size, own(default), Sync)
    }

    fn cuMemcpyHtoDAsync_v2 | cuMemcpyHtoDAsync_v2_ptsz [default] (dst: u64, src: u64, size: u64, queue: u64) {
        copy(Device(dst), Any(src), size, stream(queue, default), Async)
    }

    fn cuMemcpyDtoH_v2 | cuMemcpyDtoH_v2_ptds [default] (dst: u64, src: u64, size: u64) {
        copy(Any(dst), Device(src), size, own(default), Sync)
    }

    fn cuMemcpyDtoHAsync_v2 | cuMemcpyDtoHAsync_v2_ptsz [default] (dst: u64, src: u64, size: u64, queue: u64) {
        copy(Any(dst), Device(src), size, stream(queue, default), Async)
    }

    fn cuMemcpyDtoD_v2 | cuMemcpyDtoD_v2_ptds [default] (dst: u64, src: u64, size: u64) {
        copy(Device(dst), Device(src), size, own(default), Sync)
    }

    fn cuMemcpyDtoDAsync_v2 | cuMemcpyDtoDAsync_v2_ptsz [default] (dst: u64, src: u64, size: u64, queue: u64) {
        copy(Device(dst), Device(src), size, stream(queue, default), Async)
    }

    fn cuMemcpyDtoA_v2 | cuMemcpyDtoA_v2_ptds [default] (array: u64, offset: u64, src: u64, size: u64) {
        copy_arrays(in_array(array, offset), Place::linear(Device(src)), size, default)
    }

    fn cuMemcpyAtoD_v2 | cuMemcpyAtoD_v2_ptds [default] (dst: u64, array: u64, offset: u64, size: u64) {
        copy_arrays(Place::linear(Device(dst)), in_array(array, offset), size, default)
    }

    fn cuMemcpyAtoA_v2 | cuMemcpyAtoA_v2_ptds [default] (
        dst: u64,
        dst_offset: u64,
        src: u64,
        src_offset: u64,
        size: u64,
    ) {
        copy_arrays(in_array(dst, dst_offset), in_array(src, src_offset), size, default)
    }

    fn cuMemcpy2D_v2 | cuMemcpy2D_v2_ptds [default] (copy: In<Memcpy2d>) {
        machine()?.copy(own(default), &request_2d(copy)?, Sync)
    }

    fn cuMemcpy2DUnaligned_v2 | cuMemcpy2DUnaligned_v2_ptds [default] (copy: In<Memcpy2d>) {
        machine()?.copy(own(default), &request_2d(copy)?, Sync)
    }

    fn cuMemcpy2DAsync_v2 | cuMemcpy2DAsync_v2_ptsz [default] (copy: In<Memcpy2d>, queue: u64) {
        machine()?.copy(stream(queue, default), &request_2d(copy)?, Async)
    }

    fn cuMemcpy3D_v2 | cuMemcpy3D_v2_ptds [default] (copy: In<Memcpy3d>) {
        machine()?.copy(own(default), &request_3d(&copy.read()?)?, Sync)
    }

    fn cuMemcpy3DAsync_v2 | cuMemcpy3DAsync_v2_ptsz [default] (copy: In<Memcpy3d>, queue: u64) {
        machine()?.copy(stream(queue, default), &request_3d(&copy.read()?)?, Async)
    }

    fn cuMemcpyPeer | cuMemcpyPeer_ptds [default] (
        dst: u64,
        dst_context: u64,
        src: u64,
        src_context: u64,
        size: u64,
    ) {
        let contexts = [dst_context, src_context].map(ContextHandle);
        machine()?.copy_peer(default, &linear(Device(dst), Device(src), size), contexts)
    }

    fn cuMemcpyPeerAsync | cuMemcpyPeerAsync_ptsz [default] (
        dst: u64,
        dst_context: u64,
        src: u64,
        src_context: u64,
        size: u64,
        queue: u64,
    ) {
        let contexts = [dst_context, src_context].map(ContextHandle);
        machine()?.copy_peer_async(stream(queue, default), &linear(Device(dst), Device(src), size), contexts)
    }

    fn cuMemcpy3DPeer | cuMemcpy3DPeer_ptds [default] (copy: In<Memcpy3d>) {
        let machine = machine()?;
        let (request, contexts) = request_3d_peer(copy)?;
        machine.copy_peer(default, &request, contexts)
    }

    fn cuMemcpy3DPeerAsync | cuMemcpy3DPeerAsync_ptsz [default] (copy: In<Memcpy3d>, queue: u64) {
        let machine = machine()?;
        let (request, contexts) = request_3d_peer(copy)?;
        machine.copy_peer_async(stream(queue, default), &request, contexts)
    }

    fn cuMemsetD8_v2 | cuMemsetD8_v2_ptds [default] (dst: u64, value: u8, count: u64) {
        Set::linear(dst, value.into(), 1, count).submit(own(default), Sync)
    }

    fn cuMemsetD16_v2 | cuMemsetD16_v2_ptds [default] (dst: u64, value: u16, count: u64) {
        Set::linear(dst, value.into(), 2, count).submit(own(default), Sync)
    }

    fn cuMemsetD32_v2 | cuMemsetD32_v2_ptds [default] (dst: u64, value: u32, count: u64) {
        Set::linear(dst, value, 4, count).submit(own(default), Sync)
    }

    fn cuMemsetD8Async | cuMemsetD8Async_ptsz [default] (dst: u64, value: u8, count: u64, queue: u64) {
        Set::linear(dst, value.into(), 1, count).submit(stream(queue, default), Async)
    }

    fn cuMemsetD16Async | cuMemsetD16Async_ptsz [default] (dst: u64, value: u16, count: u64, queue: u64) {
        Set::linear(dst, value.into(), 2, count).submit(stream(queue, default), Async)
    }

    fn cuMemsetD32Async | cuMemsetD32Async_ptsz [default] (dst: u64, value: u32, count: u64, queue: u64) {
        Set::linear(dst, value, 4, count).submit(stream(queue, default), Async)
    }

    fn cuMemsetD2D8_v2 | cuMemsetD2D8_v2_ptds [default] (dst: u64, pitch: u64, value: u8, width: u64, height: u64) {
        Set { dst, pitch, value: value.into(), unit: 1, width, height }.submit(own(default), Sync)
    }

    fn cuMemsetD2D8Async | cuMemsetD2D8Async_ptsz [default] (
        dst: u64,
        pitch: u64,
        value: u8,
        width: u64,
        height: u64,
        queue: u64,
    ) {
        Set { dst, pitch, value: value.into(), unit: 1, width, height }.submit(stream(queue, default), Async)
    }
}
