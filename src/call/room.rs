//! Room for what a call's arguments point to.

use std::mem::MaybeUninit;

use super::read::value;
use crate::api::abi::{
    CUDA_MEMCPY3D_PEER, Value, cudaExtent, cudaMemcpy3DPeerParms, cudaPitchedPtr, cudaPos, is_between_devices,
};
use crate::model::Shape;

/// Room for the parameters of a 3D copy, in a frame that lasts until the call has returned. One place for both: stacks may be small.
pub(crate) union Room {
    runtime: MaybeUninit<cudaMemcpy3DPeerParms>,
    driver: MaybeUninit<CUDA_MEMCPY3D_PEER>,
}

impl Room {
    /// Empty.
    #[inline(always)]
    pub(crate) const fn new() -> Self {
        Self { driver: MaybeUninit::uninit() }
    }

    #[inline(always)]
    fn runtime(&mut self) -> &mut MaybeUninit<cudaMemcpy3DPeerParms> {
        // SAFETY: whatever is there is one.
        unsafe { &mut self.runtime }
    }

    #[inline(always)]
    fn driver(&mut self) -> &mut MaybeUninit<CUDA_MEMCPY3D_PEER> {
        // SAFETY: as above.
        unsafe { &mut self.driver }
    }

    /// Reads the parameters of a 3D copy before it is made.
    #[inline(always)]
    pub(crate) fn parameters(&mut self, of: Value) -> Shape<'_> {
        // SAFETY: the vendor's structs are made of integers: any bytes are a valid one.
        let (shape, from) = unsafe {
            match of {
                Value::RuntimePeer3D(p) => {
                    (value(p).map(|parms| Shape::Runtime3D(self.runtime().write(parms))), p as usize)
                }
                Value::DriverPeer3D(p) => (value(p).map(|peer| Shape::Driver3D(self.driver().write(peer))), p as usize),
                _ => return Shape::Linear,
            }
        };
        shape.unwrap_or(Shape::Unreadable(from))
    }

    /// Reads the arguments of a regular 2D or 3D copy as those of a peer copy; none if it need not be looked at.
    #[inline(always)]
    pub(crate) fn regular_parameters(&mut self, arguments: &[Value]) -> Option<Shape<'_>> {
        Some(match *arguments {
            [Value::Runtime3D(p), ..] => {
                // SAFETY: as above.
                let parms = unsafe { value(p) }?;
                is_between_devices(parms.kind).then_some(())?;
                Shape::Runtime3D(self.runtime().write(parms.into()))
            }
            [Value::Driver3D(p), ..] => {
                // SAFETY: as above.
                let parameters = unsafe { value(p) }?;
                Shape::Driver3D(self.driver().write(CUDA_MEMCPY3D_PEER { srcContext: 0, dstContext: 0, ..parameters }))
            }
            // SAFETY: as above.
            [Value::Driver2D(p), ..] => Shape::Driver3D(self.driver().write(unsafe { value(p) }?.into())),
            [
                Value::Address(dst),
                Value::UInt(dpitch),
                Value::Address(src),
                Value::UInt(spitch),
                Value::UInt(width),
                Value::UInt(height),
                ..,
            ] => {
                let (width, height) = (width as usize, height as usize);
                let side = |ptr, pitch| cudaPitchedPtr { ptr, pitch: pitch as usize, xsize: width, ysize: height };
                let start = cudaPos { x: 0, y: 0, z: 0 };
                Shape::Runtime3D(self.runtime().write(cudaMemcpy3DPeerParms {
                    srcArray: 0,
                    srcPos: start,
                    srcPtr: side(src, spitch),
                    srcDevice: 0,
                    dstArray: 0,
                    dstPos: start,
                    dstPtr: side(dst, dpitch),
                    dstDevice: 0,
                    extent: cudaExtent { width, height, depth: 1 },
                }))
            }
            _ => return None,
        })
    }
}
