//! Reading what a call's arguments point to.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

use super::thread;
use crate::api::abi::{CUDA_MEMCPY3D_PEER, Code, Value};
use crate::api::{Copies, FAIL_INDEX, Function};
use crate::model::{Memcpy, Origin, Request, Shape, is_array};
use crate::os::{self, alloc};
use crate::policy::driver::NodeCopy;
use crate::policy::graph::Change;
use crate::policy::staging::linear;
use crate::policy::validate::Array;
use crate::real::driver::{
    self, AccessDesc, Array3dDescriptor, ArrayDescriptor, BatchAttributes, BatchNodeParams, BatchOp,
    ChildGraphNodeParams, Location, MemcpyNodeParams, PoolProps,
};
use crate::real::loader;
use crate::record::{Argument, CallSite, Contents, Place};

/// A request whose parameters could not be read before the call, which has succeeded: the real function has just read them.
pub(crate) fn read_again<'a>(request: &Request<'a>, ret: Code) -> Option<Request<'a>> {
    let Shape::Unread(p) = request.copy()?.shape else { return None };
    // SAFETY: the real function reports success, so it has read the parameters.
    (ret == Code::SUCCESS).then(|| request.with_copy(Memcpy::of_runtime(unsafe { &*p }, request.stream())))
}

/// The parameters of a regular copy of the driver; none if there are none.
#[inline(always)]
pub(super) fn read_driver<T: Copy>(from: *const T) -> Option<T> {
    match read_input(from, &mut MaybeUninit::uninit(), true) {
        Ok(parameters) => Some(*parameters),
        // SAFETY: the load does what the real function does next, which reads the parameters before anything else.
        Err(Unread::NotAllowed) => unsafe { from.as_ref() }.copied(),
        Err(Unread::NotThere) => None,
    }
}

/// Why an input could not be read.
pub(super) enum Unread {
    /// There is no memory.
    NotThere,
    /// The system does not let us ask.
    NotAllowed,
}

#[inline(always)]
pub(super) fn read_input<T: Copy>(from: *const T, room: &mut MaybeUninit<T>, is_of_driver: bool) -> Result<&T, Unread> {
    if thread::current().is_readable(from, is_of_driver) {
        // SAFETY: aligned, made of integers, and where some were read before. The program leaves them alone until the call has
        // returned, since the real function reads them as well.
        return Ok(unsafe { &*from });
    }
    ask(from, is_of_driver).map(|value| &*room.write(value))
}

/// Reads where it is not known whether there is memory.
#[cold]
#[inline(never)]
fn ask<T: Copy>(from: *const T, is_of_driver: bool) -> Result<T, Unread> {
    // SAFETY: the vendor's structs are made of integers: any bytes are a valid one.
    let value = os::keep_errno(|| unsafe { os::read(from) }).map_err(|error| match error.raw_os_error() {
        Some(libc::EFAULT) => Unread::NotThere,
        _ => Unread::NotAllowed,
    })?;
    thread::current().mark_readable(from, is_of_driver);
    Ok(value)
}

/// Names the arguments of a call that has returned `ret`, with what they point to: outputs only if it succeeded, nothing
/// through NULL.
pub(crate) fn arguments(request: &Request<'_>, ret: Code) -> Vec<Argument> {
    let names = request.function.arguments().iter();
    let is_fewer = request.arguments.len() < names.len();
    let names = names.filter(|&&name| !(is_fewer && name == FAIL_INDEX));
    let named = names.zip(request.arguments);
    named.map(|(&name, &value)| Argument { name, value, contents: contents(request, value, ret) }).collect()
}

fn contents(request: &Request<'_>, value: Value, ret: Code) -> Option<Contents> {
    match (value, request.copy().map(|copy| copy.shape)) {
        (Value::OutInt(output), _) if ret == Code::SUCCESS => {
            // SAFETY: the real function reports success, so it has just written the output unless the pointer is NULL.
            unsafe { output.as_ref() }.map(|&n| Contents::Int(n.into()))
        }
        (Value::RuntimePeer3D(_), Some(Shape::Runtime3D(p))) => Some(Contents::RuntimePeer3D(*p)),
        (Value::DriverPeer3D(_), Some(Shape::Driver3D(p))) => Some(Contents::DriverPeer3D(*p)),
        (Value::Runtime3D(_), Some(Shape::Runtime3D(p))) => Some(Contents::Runtime3D(*p)),
        (Value::Driver2D(_) | Value::Driver3D(_), Some(Shape::Driver3D(p))) => Some(Contents::Driver3D(*p)),
        _ => None,
    }
}

/// The shape of an array that was created from a `CUDA_ARRAY_DESCRIPTOR`.
pub(crate) fn array_2d(descriptor: usize) -> Option<Array> {
    // SAFETY: the struct is made of integers: any bytes are a valid one.
    let descriptor = unsafe { input(descriptor as *const ArrayDescriptor) }?;
    shape([descriptor.width, descriptor.height, 0], descriptor.format, descriptor.channels)
}

/// An array by its `CUDA_ARRAY3D_DESCRIPTOR`.
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
    Some(Array { extent: extent.map(|size| size.max(1) as u64), element: bytes * u64::from(channels), device: None })
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

/// Reads an array in this way, by one question to the system.
///
/// # Safety
/// Any bytes are a valid `T`.
unsafe fn inputs<T: Copy>(from: *const T, count: usize) -> Option<Vec<T>> {
    // SAFETY: the caller's.
    match unsafe { os::read_array(from, count) } {
        Ok(values) => Some(values),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EFAULT | libc::ENOMEM)) || from.is_null() => None,
        // SAFETY: as for one; the real function reads so many.
        Err(_) => alloc::collect((0..count).map(|index| unsafe { from.add(index).read_unaligned() })),
    }
}

/// The copies of a batch, read from what its arguments point to: once the arrays' pages were read before they are loaded, since a loop
/// has them in one place; else the system is asked, since the real function may refuse the call before it follows the pointers.
pub(crate) enum BatchArrays {
    /// Addresses of sources and of destinations, and sizes; of so many copies.
    Linear([*const u64; 3], usize),
    /// Operations, so many.
    Of3D(*const BatchOp, usize),
}

impl BatchArrays {
    /// The arrays that the arguments of a function name; none if there are none.
    #[inline(always)]
    pub(crate) fn of(kind: Copies, arguments: &[Value]) -> Option<Self> {
        /// More than this no program means.
        const MOST: u64 = 1 << 24;
        match (kind, arguments) {
            (
                Copies::batch,
                &[Value::Address(dsts), Value::Address(srcs), Value::Address(sizes), Value::UInt(count @ 1..MOST), ..],
            ) => Some(Self::Linear([srcs, dsts, sizes].map(|array| array as *const u64), count as usize)),
            (Copies::batch_3d, &[Value::UInt(count @ 1..MOST), Value::Address(operations), ..]) => {
                Some(Self::Of3D(operations as *const BatchOp, count as usize))
            }
            (Copies::batch_3d, &[Value::Address(operation), Value::UInt(_), Value::Stream(_)]) => {
                Some(Self::Of3D(operation as *const BatchOp, 1))
            }
            _ => None,
        }
    }

    /// Whether all can be loaded.
    #[inline(always)]
    pub(crate) fn are_known(&self) -> bool {
        match *self {
            Self::Linear(arrays, count) => arrays.iter().all(|&array| is_known(array, count)),
            Self::Of3D(operations, count) => is_known(operations, count),
        }
    }

    /// Asks the system whether there is memory, and remembers that there is.
    pub(crate) fn learn(&self) -> Option<()> {
        match *self {
            Self::Linear(arrays, count) => arrays.iter().try_for_each(|&array| learn(array, count)),
            Self::Of3D(operations, count) => learn(operations, count),
        }
    }

    /// The copies. One with an array names no memory whose device is known, and is left out.
    ///
    /// # Safety
    /// There is memory. The program leaves it alone until the call has returned, since the real function reads it as well.
    #[inline(always)]
    pub(crate) unsafe fn copies(&self) -> impl Iterator<Item = Memcpy<'static>> {
        let count = match *self {
            Self::Linear(_, count) | Self::Of3D(_, count) => count,
        };
        (0..count).filter_map(move |index| match *self {
            Self::Linear(arrays, _) => {
                // SAFETY: the caller's; any bytes are a number.
                let [src, dst, bytes] = arrays.map(|array| unsafe { array.add(index).read_unaligned() });
                Some(Memcpy::linear(src, dst, bytes))
            }
            Self::Of3D(operations, _) => {
                // SAFETY: the caller's; the struct is made of integers, and any bytes are a valid one.
                let op = unsafe { operations.add(index).read_unaligned() };
                let [width, height, depth] = op.extent;
                let bytes = width.saturating_mul(height).saturating_mul(depth);
                (op.src.is_pointer() && op.dst.is_pointer()).then(|| Memcpy::linear(op.src.ptr, op.dst.ptr, bytes))
            }
        })
    }
}

/// The copies of a batch, as calls of their own ask for them. None if one has to read its source during the call, or has an array; nor of
/// what the real function refuses before it copies anything.
pub(crate) fn each_alone(kind: Copies, arguments: &[Value]) -> Option<Vec<CUDA_MEMCPY3D_PEER>> {
    let copies: Option<Vec<CUDA_MEMCPY3D_PEER>> = match BatchArrays::of(kind, arguments)? {
        BatchArrays::Linear([srcs, dsts, sizes], count) => {
            let &[_, _, _, _, Value::Address(attributes), Value::Address(firsts), Value::UInt(number), ..] = arguments
            else {
                return None;
            };
            are_attributes_plain(attributes as *const BatchAttributes, firsts as *const usize, number, count)?;
            // SAFETY: any bytes are a number.
            let [srcs, dsts, sizes] = [srcs, dsts, sizes].map(|array| unsafe { inputs(array, count) });
            let each = srcs?.into_iter().zip(dsts?).zip(sizes?);
            alloc::collect_all(each.map(|((src, dst), bytes)| Some(linear(src, dst, usize::try_from(bytes).ok()?))))
        }
        BatchArrays::Of3D(operations, count) => {
            let &[.., Value::UInt(0), Value::Stream(_)] = arguments else { return None };
            // SAFETY: the struct is made of integers: any bytes are a valid one.
            let each = unsafe { inputs(operations, count) }?.into_iter();
            alloc::collect_all(each.map(|op| Some(op).filter(|op| is_put_off(op.order, op.flags))?.alone()))
        }
    };
    copies.filter(|copies| copies.iter().all(|copy| copy.WidthInBytes != 0 && copy.Height != 0 && copy.Depth != 0))
}

/// Whether a copy may read its source when the stream has come there: not if its attributes say otherwise, or the driver refuses them.
pub(crate) fn may_be_put_off(function: Function, arguments: &[Value]) -> bool {
    match (function, arguments) {
        (
            Function::cuMemcpyWithAttributesAsync | Function::cuMemcpyWithAttributesAsync_ptsz,
            &[_, _, _, Value::Address(attributes), _],
        ) => {
            // SAFETY: made of integers: any bytes are valid.
            let attributes = unsafe { input(attributes as *const BatchAttributes) };
            attributes.is_some_and(|attributes| is_put_off(attributes.order, attributes.flags))
        }
        _ => true,
    }
}

/// Whether a source may be read when the stream has come there, and the driver knows the flags.
fn is_put_off(order: c_int, flags: u32) -> bool {
    /// `CU_MEMCPY_SRC_ACCESS_ORDER_STREAM` and `…_ANY`.
    const STREAM: c_int = 1;
    const ANY: c_int = 3;
    /// `CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE`.
    const OVERLAP: u32 = 1;
    (order == STREAM || order == ANY) && flags <= OVERLAP
}

/// Whether each copy of a batch has attributes, and may read its source later.
fn are_attributes_plain(
    attributes: *const BatchAttributes,
    firsts: *const usize,
    number: u64,
    count: usize,
) -> Option<()> {
    let number = usize::try_from(number).ok().filter(|number| (1..=count).contains(number))?;
    let mut last = None;
    // SAFETY: made of integers: any bytes are valid.
    let (attributes, firsts) = unsafe { (inputs(attributes, number)?, inputs(firsts, number)?) };
    for (of, first) in attributes.into_iter().zip(firsts) {
        let is_next = last.map_or(first == 0, |last| last < first);
        (is_put_off(of.order, of.flags) && is_next && first < count).then_some(())?;
        last = Some(first);
    }
    Some(())
}

#[inline(always)]
fn is_known<T>(array: *const T, count: usize) -> bool {
    thread::current().has_pages(array as usize, count * size_of::<T>())
}

fn learn<T>(array: *const T, count: usize) -> Option<()> {
    let (start, bytes) = (array as usize, count * size_of::<T>());
    for page in thread::pages(start, bytes) {
        // SAFETY: any byte is one.
        match unsafe { os::read((page * thread::PAGE) as *const u8) } {
            Ok(_) => {}
            // Where the system does not let us ask, the loads do what the real function does next.
            Err(error) if error.raw_os_error() == Some(libc::EFAULT) || array.is_null() => return None,
            Err(_) => break,
        }
    }
    thread::current().mark_pages(start, bytes);
    Some(())
}

/// The change to an executable graph if a node gets other parameters, as `cuGraphExecNodeSetParams` takes them; none if it
/// copies nothing.
pub(crate) fn graph_node(node: usize, parameters: usize) -> Option<Change> {
    /// `CU_GRAPH_NODE_TYPE_MEMCPY`, `CU_GRAPH_NODE_TYPE_GRAPH`, `CU_GRAPH_NODE_TYPE_MEMCPY_BATCH`.
    const MEMCPY: u32 = 1;
    const GRAPH: u32 = 4;
    const MEMCPY_BATCH: u32 = 14;
    // SAFETY: the structs are made of integers: any bytes are a valid one. The type says which it is.
    match unsafe { input(parameters as *const u32) }? {
        MEMCPY => {
            // SAFETY: as above.
            let parameters = unsafe { input(parameters as *const MemcpyNodeParams) }?.copy;
            Some(Change::Node(node_copy(node, parameters)))
        }
        GRAPH => {
            // SAFETY: as above.
            let graph = unsafe { input(parameters as *const ChildGraphNodeParams) }?.graph;
            Some(Change::Child { node, graph })
        }
        MEMCPY_BATCH => {
            // SAFETY: as above; pointers are not followed before the driver has followed them.
            let batch = unsafe { input(parameters as *const BatchNodeParams) }?;
            let one = |index: usize| {
                // SAFETY: any bytes are a number.
                let each =
                    [batch.srcs, batch.dsts, batch.sizes].map(|array| unsafe { input(array.wrapping_add(index)) });
                let [src, dst, bytes] = each;
                Some(NodeCopy { node, parameters: linear(src?, dst?, usize::try_from(bytes?).ok()?) })
            };
            Some(Change::Batch(alloc::collect_all((0..batch.count).map(one))?))
        }
        _ => None,
    }
}

/// The change, as `cuGraphExecMemcpyNodeSetParams` takes it.
pub(crate) fn memcpy_node(node: usize, parameters: *const CUDA_MEMCPY3D_PEER) -> Option<Change> {
    // SAFETY: the struct is made of integers: any bytes are a valid one.
    Some(Change::Node(node_copy(node, unsafe { input(parameters) }?)))
}

fn node_copy(node: usize, parameters: CUDA_MEMCPY3D_PEER) -> NodeCopy {
    NodeCopy { node, parameters: CUDA_MEMCPY3D_PEER { srcContext: 0, dstContext: 0, ..parameters } }
}

/// The rights that are set; none if any descriptor is one that the driver refuses.
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

/// The devices of a copy, source first; none for a call that copies nothing. The pointer decides: an ordinal that does not match it
/// is accepted and has no effect.
pub(crate) fn pair(request: &Request<'_>) -> Option<(i32, i32)> {
    let copy = request.copy().filter(|copy| !matches!(copy.shape, Shape::Unreadable(_) | Shape::Unread(_)))?;
    let device = |address: u64, ordinal| {
        Some(address).filter(|&it| it != 0 && !is_array(it)).and_then(driver::device_of).or(ordinal)
    };
    let src = device(copy.src, copy.src_named.ordinal())?;
    Some((src, device(copy.dst, copy.dst_named.ordinal())?))
}

/// Where a call came from, by its return address, and the line of Python, if that is known.
pub(crate) fn call_site(return_address: *const c_void, origin: Option<Origin>) -> Option<CallSite> {
    let Origin { line, callers } = origin.unwrap_or_default();
    let mut places = vec![place(return_address as usize)?];
    places.extend(callers.into_iter().map_while(place));
    // Of a shared runtime it is sure where it ends.
    match places.iter().position(|place| !place.module.starts_with("libcudart.so")) {
        Some(0) | None => {}
        Some(outside) => places = places.drain(outside..).take(1).collect(),
    }
    Some(CallSite { places, line })
}

/// The name of a place in the code.
fn place(return_address: usize) -> Option<Place> {
    // The call instruction lies before the address to return to, perhaps in another function.
    let (object, symbol) = loader::describe(std::ptr::without_provenance(return_address.wrapping_sub(1)))?;
    Some(Place {
        module: String::from_utf8_lossy(object.file_name()).into_owned(),
        offset: return_address.wrapping_sub(object.base),
        symbol: symbol.map(|symbol| symbol.name.to_string_lossy().into_owned()),
    })
}
