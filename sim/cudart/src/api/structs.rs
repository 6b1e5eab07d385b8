//! Structures of the runtime API; sizes and offsets were checked against the vendor's headers.

use std::mem::{offset_of, size_of};

use crate::abi::Out;
use crate::driver::Driver;
use crate::error::Result;

/// `cudaExtent`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Extent {
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) depth: u64,
}

impl Extent {
    /// Whether there is nothing to copy.
    pub(crate) fn is_empty(&self) -> bool {
        self.width == 0 || self.height == 0 || self.depth == 0
    }
}

/// `cudaPos`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Position {
    pub(crate) x: u64,
    pub(crate) y: u64,
    pub(crate) z: u64,
}

/// `cudaPitchedPtr`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct PitchedPointer {
    pub(crate) pointer: u64,
    pub(crate) pitch: u64,
    pub(crate) xsize: u64,
    pub(crate) ysize: u64,
}

/// The array or pointer that one side of a 3D copy names.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Object {
    pub(crate) array: u64,
    pub(crate) position: Position,
    pub(crate) pointer: PitchedPointer,
}

/// `cudaMemcpy3DParms`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Memcpy3dParameters {
    pub(crate) src: Object,
    pub(crate) dst: Object,
    pub(crate) extent: Extent,
    pub(crate) kind: u32,
}

/// `cudaMemcpy3DPeerParms`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Memcpy3dPeerParameters {
    pub(crate) src: Object,
    pub(crate) src_device: i32,
    pub(crate) dst: Object,
    pub(crate) dst_device: i32,
    pub(crate) extent: Extent,
}

/// `cudaChannelFormatDesc`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ChannelFormat {
    pub(crate) bits: [i32; 4],
    pub(crate) kind: u32,
}

const _: () = {
    assert!(size_of::<Object>() == 64 && size_of::<ChannelFormat>() == 20);
    assert!(size_of::<Memcpy3dParameters>() == 160 && offset_of!(Memcpy3dParameters, dst) == 64);
    assert!(offset_of!(Memcpy3dParameters, extent) == 128 && offset_of!(Memcpy3dParameters, kind) == 152);
    assert!(size_of::<Memcpy3dPeerParameters>() == 168 && offset_of!(Memcpy3dPeerParameters, src_device) == 64);
    assert!(offset_of!(Memcpy3dPeerParameters, dst) == 72 && offset_of!(Memcpy3dPeerParameters, dst_device) == 136);
    assert!(offset_of!(Memcpy3dPeerParameters, extent) == 144);
};

/// Size of `cudaDeviceProp` in 11.x, and in 12.x for programs that were compiled for 11.
pub(crate) const PROPERTIES_11: usize = 728;
/// Size of `cudaDeviceProp` in 12.x.
pub(crate) const PROPERTIES_12: usize = 1032;
/// Size of `cudaDeviceProp` in 13.x.
pub(crate) const PROPERTIES_13: usize = 1008;

/// Offsets of the name, the UUID and the total memory in every `cudaDeviceProp`.
const NAME: (usize, usize) = (0, 256);
const UUID: usize = 256;
const TOTAL_MEMORY: usize = 288;

/// Members that are attributes of the device: number, bytes, offset before 13.0, offset since.
const MEMBERS: &[(i32, usize, usize, usize)] = &[
    (8, 8, 296, 296),
    (12, 4, 304, 304),
    (10, 4, 308, 308),
    (11, 8, 312, 312),
    (1, 4, 320, 320),
    (2, 4, 324, 324),
    (3, 4, 328, 328),
    (4, 4, 332, 332),
    (5, 4, 336, 336),
    (6, 4, 340, 340),
    (7, 4, 344, 344),
    (9, 8, 352, 352),
    (75, 4, 360, 360),
    (76, 4, 364, 364),
    (14, 8, 368, 368),
    (51, 8, 376, 376),
    (16, 4, 388, 384),
    (19, 4, 400, 392),
    (31, 4, 576, 560),
    (33, 4, 584, 568),
    (34, 4, 588, 572),
    (50, 4, 592, 576),
    (40, 4, 600, 584),
    (41, 4, 604, 588),
    (37, 4, 612, 592),
    (38, 4, 616, 596),
    (39, 4, 624, 604),
    (78, 4, 628, 608),
    (81, 8, 640, 624),
    (82, 4, 648, 632),
];

/// `cudaDeviceProp` of some version; members that no test asks about are 0.
pub(crate) struct DeviceProperties {
    bytes: [u8; PROPERTIES_12],
}

impl DeviceProperties {
    /// Asks the driver.
    pub(crate) fn of(driver: &Driver, device: i32, major: i32) -> Result<DeviceProperties> {
        let mut properties = DeviceProperties { bytes: [0; PROPERTIES_12] };
        let mut name = [0u8; NAME.1];
        driver.cuDeviceGetName(name.as_mut_ptr().cast(), NAME.1 as i32, device)?;
        properties.put(NAME.0, &name);
        let mut uuid = [0; 16];
        driver.cuDeviceGetUuid(&raw mut uuid, device)?;
        properties.put(UUID, &uuid);
        let mut total = 0u64;
        driver.cuDeviceTotalMem(&raw mut total, device)?;
        properties.put(TOTAL_MEMORY, &total.to_ne_bytes());
        for (attribute, size, before, since) in MEMBERS {
            let mut value = 0;
            driver.cuDeviceGetAttribute(&raw mut value, *attribute, device)?;
            let bytes = i64::from(value).to_ne_bytes();
            properties.put(if major >= 13 { *since } else { *before }, bytes.get(..*size).unwrap_or_default());
        }
        Ok(properties)
    }

    fn put(&mut self, offset: usize, bytes: &[u8]) {
        if let Some(room) = self.bytes.get_mut(offset..offset + bytes.len()) {
            room.copy_from_slice(bytes);
        }
    }

    /// Stores the first `size` bytes.
    pub(crate) fn store(&self, out: Out<u8>, size: usize) {
        self.bytes.iter().take(size).enumerate().for_each(|(index, byte)| out.set_nth(index, *byte));
    }
}
