//! Copies and memsets.

use p2psim_core::machine::{DefaultStream, Followed, InCapture, Locus, Place, Request, StreamRef};
use p2psim_core::{Error, Extent};

use super::require;
use crate::entry::{Gpus, api};
use crate::error::{INVALID_DIRECTION, Result, silent};
use crate::flavour;

use Followed::{ByCaller, ByDestination, ByNobody};
use InCapture::{Captured, DoneAtOnce};

/// `hipMemcpyKind`; `DEFAULT` goes by the pointers, `BY_ENGINES` is device to device without compute units.
pub(super) const HOST_TO_HOST: u32 = 0;
pub(super) const HOST_TO_DEVICE: u32 = 1;
pub(super) const DEVICE_TO_HOST: u32 = 2;
pub(super) const DEVICE_TO_DEVICE: u32 = 3;
pub(super) const DEFAULT: u32 = 4;
pub(super) const BY_ENGINES: u32 = 1024;
pub(super) const NULL_STREAM: StreamRef = StreamRef::Default(DefaultStream::Legacy);

/// 5.7 takes any kind.
fn check_kind(kind: u32) -> Result<()> {
    let is_wrong = kind > DEFAULT && kind != BY_ENGINES && flavour::major() >= 6;
    if is_wrong { Err(INVALID_DIRECTION.into()) } else { Ok(()) }
}

/// The stream that a handle means.
pub(super) fn legacy(gpus: &Gpus, queue: u64) -> Result<StreamRef> {
    Ok(gpus.stream(queue)?)
}

/// The stream that a handle means to the `_spt` functions: for the null stream the calling thread's own default stream.
pub(super) fn per_thread(gpus: &Gpus, queue: u64) -> Result<StreamRef> {
    let stream = gpus.stream(queue)?;
    Ok(if stream == NULL_STREAM { StreamRef::Default(DefaultStream::PerThread) } else { stream })
}

/// A linear copy of a kind, between any memories; what the kind says of them is not looked at unless both are the
/// program's own.
#[derive(Clone, Copy)]
pub(super) struct Linear {
    pub(super) dst: u64,
    pub(super) src: u64,
    pub(super) size: u64,
    pub(super) kind: u32,
}

impl Linear {
    /// A copy whose kind does not matter.
    fn of_devices(dst: u64, src: u64, size: u64) -> Linear {
        Linear { dst, src, size, kind: DEVICE_TO_DEVICE }
    }

    pub(super) fn submit(
        self,
        gpus: &Gpus,
        stream: StreamRef,
        followed: Followed,
        in_capture: InCapture,
    ) -> Result<()> {
        let Linear { dst, src, size, kind } = self;
        if size == 0 {
            return Ok(());
        }
        require(dst != 0 && src != 0)?;
        check_kind(kind)?;
        let is_known = gpus.find(dst).is_some() || gpus.find(src).is_some();
        require(is_known || matches!(kind, HOST_TO_HOST | DEFAULT))?;
        if src == dst && kind == DEFAULT {
            return Ok(());
        }
        let [dst, src] = [dst, src].map(|address| Place::linear(Locus::Any(address)));
        let request = Request { dst, src, extent: Extent::linear(size) };
        Ok(gpus.copy_by_device(stream, &request, followed, in_capture)?)
    }

    /// A call that nothing may be captured beside.
    fn at_once(self, gpus: &Gpus, stream: StreamRef) -> Result<()> {
        gpus.refuse_in_captures()?;
        self.submit(gpus, stream, ByCaller, DoneAtOnce)
    }

    fn on_stream(self, gpus: &Gpus, stream: Result<StreamRef>) -> Result<()> {
        check_kind(self.kind)?;
        self.submit(gpus, stream?, ByNobody, Captured)
    }
}

/// Ordinals are looked at, and say nothing: pointers do.
pub(super) fn check_ordinals(gpus: &Gpus, ordinals: [i32; 2]) -> Result<()> {
    Ok(ordinals.into_iter().try_for_each(|ordinal| gpus.device(ordinal).map(drop))?)
}

/// Sets `count` values of `unit` bytes.
fn set(gpus: &Gpus, stream: StreamRef, dst: u64, (value, unit): (u32, u64), count: u64, wait: bool) -> Result<()> {
    let size = count.checked_mul(unit).ok_or(Error::INVALID_VALUE)?;
    if size == 0 {
        return Ok(());
    }
    require(dst != 0 && gpus.find(dst).is_some())?;
    let place = Place::linear(Locus::Device(dst));
    Ok(gpus.fill_by_device(stream, place, Extent::linear(size), (value, unit), wait)?)
}

fn set_at_once(gpus: &Gpus, dst: u64, value: (u32, u64), count: u64) -> Result<()> {
    gpus.refuse_in_captures()?;
    set(gpus, NULL_STREAM, dst, value, count, true)
}

api! {
    /// From 7.1 on it is refused beside any capture, before anything else is looked at.
    fn hipMemcpyPeer [gpus] (dst: u64, dst_device: i32, src: u64, src_device: i32, size: u64) {
        if flavour::major() >= 7 {
            gpus.refuse_in_captures().map_err(silent)?;
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

    fn hipMemcpy [gpus] (dst: u64, src: u64, size: u64, kind: u32) {
        Linear { dst, src, size, kind }.at_once(gpus, NULL_STREAM)
    }

    fn hipMemcpyAsync [gpus] (dst: u64, src: u64, size: u64, kind: u32, queue: u64) {
        Linear { dst, src, size, kind }.on_stream(gpus, legacy(gpus, queue))
    }

    fn hipMemcpy_spt [gpus] (dst: u64, src: u64, size: u64, kind: u32) {
        Linear { dst, src, size, kind }.at_once(gpus, per_thread(gpus, 0)?)
    }

    fn hipMemcpyAsync_spt [gpus] (dst: u64, src: u64, size: u64, kind: u32, queue: u64) {
        Linear { dst, src, size, kind }.on_stream(gpus, per_thread(gpus, queue))
    }

    /// Asynchronous for the device, and the caller waits.
    fn hipMemcpyWithStream [gpus] (dst: u64, src: u64, size: u64, kind: u32, queue: u64) {
        Linear { dst, src, size, kind }.submit(gpus, gpus.stream(queue)?, ByCaller, Captured)
    }

    fn hipMemcpyDtoD [gpus] (dst: u64, src: u64, size: u64) {
        Linear::of_devices(dst, src, size).at_once(gpus, NULL_STREAM)
    }

    fn hipMemcpyDtoDAsync [gpus] (dst: u64, src: u64, size: u64, queue: u64) {
        Linear::of_devices(dst, src, size).on_stream(gpus, legacy(gpus, queue))
    }

    fn hipMemcpyHtoD [gpus] (dst: u64, src: u64, size: u64) {
        Linear { dst, src, size, kind: HOST_TO_DEVICE }.at_once(gpus, NULL_STREAM)
    }

    fn hipMemcpyDtoH [gpus] (dst: u64, src: u64, size: u64) {
        Linear { dst, src, size, kind: DEVICE_TO_HOST }.at_once(gpus, NULL_STREAM)
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
