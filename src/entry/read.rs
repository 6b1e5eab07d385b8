//! Reading what a call's arguments point to, to show it.

use std::ffi::c_void;

use super::thread;
use crate::api::Function;
use crate::api::abi::is_pointer;
use crate::api::abi::{Code, Value, cudaMemcpy3DPeerParms};
use crate::os;
use crate::policy::validate::{Array, Linear, Parameters};
use crate::policy::{Copied, Ends, PeerCopy};
use crate::real::driver::{self, AccessDesc, Array3dDescriptor, ArrayDescriptor, Location, PoolProps};
use crate::real::loader;
use crate::record::{Argument, CallSite, Contents};

/// Names the values of a call that has returned `ret`, and reads what they point to: outputs only
/// if it succeeded, nothing through NULL.
pub(crate) fn arguments(function: Function, values: &[Value], ret: Code) -> Vec<Argument> {
    let named = function.arguments().iter().zip(values);
    named.map(|(&name, &value)| Argument { name, value, contents: contents(value, ret) }).collect()
}

fn contents(value: Value, ret: Code) -> Option<Contents> {
    match value {
        // SAFETY: the real function reports success, so it has just written the output unless the pointer is NULL.
        Value::OutInt(output) if ret == Code::SUCCESS => unsafe { output.as_ref() }.map(|&n| Contents::Int(n.into())),
        Value::RuntimePeer3D(parms) => read(parms, ret).map(Contents::RuntimePeer3D),
        Value::DriverPeer3D(parms) => read(parms, ret).map(Contents::DriverPeer3D),
        _ => None,
    }
}

/// Reads an input. A function that failed may have done so before it followed the pointer, which can then be anything.
fn read<T: Copy>(input: *const T, ret: Code) -> Option<T> {
    // SAFETY: the vendor's structs are made of integers: any bytes are a valid one.
    match unsafe { os::read(input) } {
        Ok(value) => Some(value),
        Err(error) if error.raw_os_error() == Some(libc::EFAULT) => None,
        // SAFETY: a system that does not let us ask; but the real function reports success, so it has just read the
        // input unless the pointer is NULL.
        Err(_) if ret == Code::SUCCESS => unsafe { input.as_ref() }.copied(),
        Err(_) => None,
    }
}

/// Whether a value lies where this thread has read before, so that it can be read without asking the system.
#[inline(always)]
pub(crate) fn is_readable<T>(from: *const T) -> bool {
    // SAFETY: the block is this thread's own; no other reference to it lives.
    unsafe { &*thread::current() }.is_readable(from)
}

/// What a call is about, as far as its arguments tell without a question; 0 and none for what there is not.
pub(crate) struct Subject {
    /// Source and destination.
    pub(crate) ends: [u64; 2],
    /// How many bytes are copied.
    pub(crate) bytes: u64,
    /// The stream's handle.
    pub(crate) stream: u64,
    /// The devices: source and destination, or who accesses and whose memory it is.
    pub(crate) devices: [Option<u8>; 2],
}

/// What a call is about.
#[inline(always)]
pub(crate) fn subject(values: &[Value]) -> Subject {
    let device = |ordinal: i32| u8::try_from(ordinal).ok().filter(|&device| device < u8::MAX);
    let stream = match values.last() {
        Some(&Value::Stream(stream)) => stream as u64,
        _ => 0,
    };
    let nothing = Subject { ends: [0; 2], bytes: 0, stream, devices: [None; 2] };
    match *values {
        [
            Value::Address(dst),
            Value::Ordinal(to),
            Value::Address(src),
            Value::Ordinal(from),
            Value::UInt(bytes),
            ..,
        ] => Subject { ends: [src as u64, dst as u64], bytes, devices: [device(from), device(to)], ..nothing },
        [.., Value::Ordinal(one), Value::Ordinal(other)] => {
            Subject { devices: [device(one), device(other)], ..nothing }
        }
        [Value::Ordinal(peer), ..] => Subject { devices: [None, device(peer)], ..nothing },
        [Value::RuntimePeer3D(p), ..] => of_runtime_box(p, nothing),
        [Value::DriverPeer3D(_), ..] => of_ends(ends_of_box(values), nothing),
        _ => of_ends(ends(values), nothing),
    }
}

#[inline(always)]
fn of_ends(ends: Option<Ends>, nothing: Subject) -> Subject {
    match ends {
        Some(Ends { src, dst, bytes }) => Subject { ends: [src, dst], bytes, ..nothing },
        None => nothing,
    }
}

/// A box of a runtime, if its parameters were read before: HIP's has no driver's call inside that says more.
#[inline(never)]
fn of_runtime_box(p: *const cudaMemcpy3DPeerParms, nothing: Subject) -> Subject {
    if !is_readable(p) {
        return nothing;
    }
    // SAFETY: the parameters are aligned, made of integers, and where some were read before.
    let p = unsafe { &*p };
    let bytes = p.extent.width.saturating_mul(p.extent.height).saturating_mul(p.extent.depth);
    let ends = [p.srcPtr.ptr, p.dstPtr.ptr].map(|pointer| pointer as u64);
    let devices =
        [p.srcDevice, p.dstDevice].map(|ordinal| u8::try_from(ordinal).ok().filter(|&device| device < u8::MAX));
    Subject { ends, bytes: bytes as u64, devices, ..nothing }
}

#[inline(never)]
fn ends_of_box(values: &[Value]) -> Option<Ends> {
    ends(values)
}

/// A copy between two pointers, if that can be told without asking the system whether the parameters are there.
#[inline(always)]
pub(crate) fn linear(values: &[Value]) -> Option<Linear> {
    match *values {
        [Value::RuntimePeer3D(p), ref rest @ ..] => {
            is_readable(p).then_some(())?;
            // SAFETY: the parameters are aligned, made of integers, and where some were read before.
            Linear::of_runtime(unsafe { &*p }, rest)
        }
        [Value::DriverPeer3D(p), ref rest @ ..] => {
            is_readable(p).then_some(())?;
            // SAFETY: as above.
            Linear::of_driver(unsafe { &*p }, rest)
        }
        _ => Linear::new(values),
    }
}

/// The parameters that a call's first argument points to, before the call or after it has answered `ret`.
pub(crate) fn parameters(values: &[Value], ret: Option<Code>) -> Parameters {
    fn noted<T: Copy>(from: *const T, ret: Option<Code>, wrapped: fn(T) -> Parameters) -> Parameters {
        let found = match from.is_null() {
            true => return Parameters::Unreadable,
            // SAFETY: the vendor's structs are made of integers: any bytes are a valid one.
            false => match unsafe { os::read(from) } {
                Ok(value) => value,
                Err(error) if error.raw_os_error() == Some(libc::EFAULT) => return Parameters::Unreadable,
                // SAFETY: a system that does not let us ask; but the real function reports success, so it has read them.
                Err(_) if ret == Some(Code::SUCCESS) => unsafe { *from },
                Err(_) => return Parameters::None,
            },
        };
        // SAFETY: the block is this thread's own; no other reference to it lives.
        unsafe { &mut *thread::current() }.note_readable(from);
        wrapped(found)
    }
    match *values {
        [Value::RuntimePeer3D(p), ..] => noted(p, ret, Parameters::Runtime),
        [Value::DriverPeer3D(p), ..] => noted(p, ret, Parameters::Driver),
        _ => Parameters::None,
    }
}

/// The shape of an array that was created from a `CUDA_ARRAY_DESCRIPTOR`.
pub(crate) fn array_2d(descriptor: usize) -> Option<Array> {
    // SAFETY: the struct is made of integers: any bytes are a valid one.
    let descriptor = unsafe { input(descriptor as *const ArrayDescriptor) }?;
    shape([descriptor.width, descriptor.height, 0], descriptor.format, descriptor.channels)
}

/// The same from a `CUDA_ARRAY3D_DESCRIPTOR`.
pub(crate) fn array_3d(descriptor: usize) -> Option<Array> {
    // SAFETY: the struct is made of integers: any bytes are a valid one.
    let descriptor = unsafe { input(descriptor as *const Array3dDescriptor) }?;
    shape([descriptor.width, descriptor.height, descriptor.depth], descriptor.format, descriptor.channels)
}

fn shape(extent: [usize; 3], format: u32, channels: u32) -> Option<Array> {
    // `CUarray_format`; others have no element of whole bytes.
    let bytes = match format {
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        0x03 | 0x0a | 0x20 => 4,
        _ => return None,
    };
    Some(Array { extent: extent.map(|size| size.max(1) as u64), element: bytes * u64::from(channels) })
}

/// Where a copy of the driver begins and ends, if that can be told without asking the system whether the parameters are
/// there.
#[inline(always)]
pub(crate) fn ends(values: &[Value]) -> Option<Ends> {
    match *values {
        [Value::Address(dst), _, Value::Address(src), _, Value::UInt(bytes), ..] => {
            Some(Ends { src: src as u64, dst: dst as u64, bytes })
        }
        // SAFETY: the block is this thread's own; no other reference to it lives.
        [Value::DriverPeer3D(parameters), ..] if unsafe { &*thread::current() }.is_readable(parameters) => {
            // SAFETY: the parameters are aligned, made of integers, and where some were read before.
            Ends::of_box(unsafe { &*parameters })
        }
        _ => None,
    }
}

/// The contexts that the program names for a copy: the source's, the destination's.
pub(crate) fn contexts(values: &[Value], copy: &PeerCopy) -> [usize; 2] {
    match (values, &copy.copied) {
        (&[_, Value::Address(dst), _, Value::Address(src), ..], Copied::Linear { .. }) => [src, dst],
        (_, Copied::Box(peer)) => [peer.srcContext, peer.dstContext],
        _ => [0, 0],
    }
}

/// Reads what the real function reads too: where the system does not let us ask whether it is there, as in some containers,
/// the load does what that would do.
///
/// # Safety
/// Any bytes are a valid `T`.
unsafe fn input<T: Copy>(from: *const T) -> Option<T> {
    // SAFETY: the caller's.
    match unsafe { os::read(from) } {
        Ok(value) => Some(value),
        Err(error) if error.raw_os_error() == Some(libc::EFAULT) => None,
        // SAFETY: see above.
        Err(_) => unsafe { from.as_ref() }.copied(),
    }
}

/// What rights are set; none if any descriptor is one that the driver refuses.
pub(crate) fn grants(grants: *const AccessDesc, count: u64) -> Option<Vec<AccessDesc>> {
    /// More than any machine has devices.
    const MOST: u64 = 1024;
    let count = usize::try_from(count.min(MOST)).unwrap_or_default();
    // SAFETY: the struct is made of integers: any bytes are a valid one.
    let each = (0..count).map(|index| unsafe { input(grants.wrapping_add(index)) });
    each.map(|grant| grant.filter(|grant| grant.device().is_some())).collect()
}

/// The device of a pool that is made with these properties.
pub(crate) fn device_of_pool(properties: *const PoolProps) -> Option<i32> {
    // SAFETY: the struct is made of integers: any bytes are a valid one.
    driver::device_of_pool(&unsafe { input(properties) }?)
}

/// The device at a location.
pub(crate) fn device_at(location: *const Location) -> Option<i32> {
    // SAFETY: the struct is made of integers: any bytes are a valid one.
    unsafe { input(location) }?.device_id()
}

/// A handle that a call which succeeded has written.
pub(crate) fn handle_at(output: *const usize) -> Option<usize> {
    // SAFETY: any bytes are a valid number.
    unsafe { input(output) }
}

/// The peer copy that a call of the driver with these values asks for.
pub(crate) fn peer_copy(values: &[Value]) -> Option<PeerCopy> {
    let stream = match values.last() {
        Some(&Value::Stream(stream)) => stream,
        _ => 0,
    };
    match *values {
        [Value::Address(dst), _, Value::Address(src), _, Value::UInt(bytes), ..] => {
            let bytes = usize::try_from(bytes).ok()?;
            Some(PeerCopy { copied: Copied::Linear { dst, src, bytes }, stream })
        }
        [Value::DriverPeer3D(parameters), ..] if !parameters.is_null() => {
            // As if it had succeeded: where the system does not let us ask, the load does what the real function, which
            // reads the parameters next, would do.
            let copied = Copied::Box(read(parameters, Code::SUCCESS)?);
            // SAFETY: the block is this thread's own; no other reference to it lives.
            unsafe { &mut *thread::current() }.note_readable(parameters);
            Some(PeerCopy { copied, stream })
        }
        _ => None,
    }
}

/// One side of a copy, as far as the arguments tell.
#[derive(Clone, Copy, Default)]
struct End {
    address: Option<u64>,
    ordinal: Option<i32>,
}

impl End {
    /// The pointer decides: an ordinal that does not match it is accepted and has no effect.
    fn device(self) -> Option<i32> {
        self.address.and_then(driver::device_of).or(self.ordinal)
    }
}

/// The devices of a copy, source first; none for a call that copies nothing.
pub(crate) fn pair(arguments: &[Argument]) -> Option<(i32, i32)> {
    let (mut src, mut dst) = (End::default(), End::default());
    for argument in arguments {
        match (argument.name, argument.value, &argument.contents) {
            ("src" | "srcDevice", Value::Address(address), _) => src.address = Some(address as u64),
            ("dst" | "dstDevice", Value::Address(address), _) => dst.address = Some(address as u64),
            // Behind the pointer in each signature; without one it is a query.
            ("srcDevice" | "srcDeviceId", Value::Ordinal(ordinal), _) if src.address.is_some() => {
                src.ordinal = Some(ordinal)
            }
            ("dstDevice" | "dstDeviceId", Value::Ordinal(ordinal), _) if dst.address.is_some() => {
                dst.ordinal = Some(ordinal)
            }
            (_, _, Some(Contents::RuntimePeer3D(p))) => {
                let end = |array, pointer, device| End {
                    address: (array == 0).then_some(pointer as u64),
                    ordinal: Some(device),
                };
                src = end(p.srcArray, p.srcPtr.ptr, p.srcDevice);
                dst = end(p.dstArray, p.dstPtr.ptr, p.dstDevice);
            }
            (_, _, Some(Contents::DriverPeer3D(p))) => {
                let end = |kind, pointer| End { address: is_pointer(kind).then_some(pointer), ordinal: None };
                src = end(p.srcMemoryType, p.srcDevice);
                dst = end(p.dstMemoryType, p.dstDevice);
            }
            _ => {}
        }
    }
    Some((src.device()?, dst.device()?))
}

/// Where a call came from, by its return address.
pub(crate) fn call_site(return_address: *const c_void) -> Option<CallSite> {
    // The call instruction lies before the address to return to, perhaps in another function.
    let (object, symbol) = loader::describe(return_address.wrapping_byte_sub(1))?;
    Some(CallSite {
        module: String::from_utf8_lossy(object.file_name()).into_owned(),
        offset: (return_address as usize).wrapping_sub(object.base),
        symbol: symbol.map(|symbol| symbol.name.to_string_lossy().into_owned()),
    })
}
