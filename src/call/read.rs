//! Reading what a call's arguments point to.

use super::thread;
use crate::api::abi::{CUDA_MEMCPY3D_PEER, Code, Value};
use crate::api::{Copies, Effect, FAIL_INDEX, Function};
use crate::model::{Memcpy, Origin, Request, Shape, is_array};
use crate::objects::arrays::Shape as ArrayShape;
use crate::objects::memory::Kind;
use crate::os::{self, alloc};
use crate::policy::ACCESS;
use crate::policy::access::Handle;
use crate::policy::driver::NodeCopy;
use crate::policy::graph::Change;
use crate::policy::staging::linear;
use crate::real::driver::{
    self, AccessDesc, AllocationProp, Array3dDescriptor, ArrayDescriptor, BatchAttributes, BatchNodeParams, BatchOp,
    ChildGraphNodeParams, Location, MemcpyNodeParams, PoolProps,
};
use crate::real::loader;
use crate::record::{Argument, CallSite, Contents, Place};
use std::ffi::{c_int, c_void};

// ---- What is there ----

/// Whether there is memory that the real function reads, unless it refuses the call before. It was there the last time, since a loop has
/// its arguments in one place, or the system says so. Where that does not let us ask, as in some containers, a load does what the real
/// function does next.
#[inline(always)]
fn is_there<T>(from: *const T, count: usize) -> bool {
    let (start, bytes) = (from as usize, count.saturating_mul(size_of::<T>()));
    thread::current().was_there(start, bytes) || ask(start, bytes)
}

#[cold]
#[inline(never)]
fn ask(start: usize, bytes: usize) -> bool {
    let is_refused = |page: usize| {
        // SAFETY: any byte is one.
        let read = os::keep_errno(|| unsafe { os::read((page * thread::PAGE) as *const u8) });
        read.is_err_and(|error| error.raw_os_error() == Some(libc::EFAULT))
    };
    if start == 0 || thread::pages(start, bytes).any(is_refused) {
        return false;
    }
    thread::current().mark_there(start, bytes);
    true
}

/// Reads what the real function reads too, before it does.
///
/// # Safety
/// Any bytes are a valid `T`.
#[inline(always)]
pub(super) unsafe fn value<T: Copy>(from: *const T) -> Option<T> {
    // SAFETY: there is memory, and the program leaves it alone until the call has returned; the caller's.
    if is_there(from, 1) { Some(unsafe { from.read_unaligned() }) } else { None }
}

/// Reads what the real function has read or written, which has succeeded.
///
/// # Safety
/// It has, unless the pointer is NULL, and any bytes are a valid `T`.
unsafe fn used<T: Copy>(from: *const T) -> Option<T> {
    // SAFETY: the caller's.
    if from.is_null() { None } else { Some(unsafe { from.read_unaligned() }) }
}

/// Names the arguments of a call that has returned `ret`, with what they point to: outputs only if it succeeded, nothing
/// through NULL.
pub(crate) fn arguments(request: &Request<'_>, ret: Code) -> Vec<Argument> {
    let names = request.function.arguments();
    let is_fewer = request.arguments.len() < names.clone().count();
    let names = names.filter(|name| !(is_fewer && *name == FAIL_INDEX));
    let named = names.zip(request.arguments);
    named.map(|(name, &value)| Argument { name, value, contents: contents(request, value, ret) }).collect()
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
pub(crate) fn array_2d(descriptor: usize) -> Option<ArrayShape> {
    // SAFETY: the array was created; the struct is made of integers: any bytes are a valid one.
    let descriptor = unsafe { used(descriptor as *const ArrayDescriptor) }?;
    shape([descriptor.width, descriptor.height, 0], descriptor.format, descriptor.channels)
}

/// The shape of an array that was created from a `CUDA_ARRAY3D_DESCRIPTOR`.
pub(crate) fn array_3d(descriptor: usize) -> Option<ArrayShape> {
    // SAFETY: as above.
    let descriptor = unsafe { used(descriptor as *const Array3dDescriptor) }?;
    shape([descriptor.width, descriptor.height, descriptor.depth], descriptor.format, descriptor.channels)
}

fn shape(extent: [usize; 3], format: u32, channels: u32) -> Option<ArrayShape> {
    // `CUarray_format`; others have no element of whole bytes.
    let bytes = match format {
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        0x03 | 0x0a | 0x20 => 4,
        _ => return None,
    };
    Some(ArrayShape { extent: extent.map(|size| size.max(1) as u64), element: bytes * u64::from(channels) })
}

// ---- Batches ----

/// The arrays with the copies of a batch.
pub(crate) enum BatchArrays {
    /// Addresses of sources and of destinations, and sizes; of so many copies.
    Linear([*const u64; 3], usize),
    /// Operations, so many.
    Of3D(*const BatchOp, usize),
}

/// A copy of a batch, as its arrays have it.
enum One {
    /// Source, destination and size.
    Linear([u64; 3]),
    Op(BatchOp),
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

    #[inline(always)]
    pub(crate) fn are_there(&self) -> bool {
        match *self {
            Self::Linear(arrays, count) => arrays.iter().all(|&array| is_there(array, count)),
            Self::Of3D(operations, count) => is_there(operations, count),
        }
    }

    /// The copies, one by one.
    ///
    /// # Safety
    /// The arrays are there. The program leaves them alone until the call has returned, since the real function reads them as well.
    #[inline(always)]
    unsafe fn each(&self) -> impl Iterator<Item = One> {
        let (Self::Linear(_, count) | Self::Of3D(_, count)) = *self;
        (0..count).map(move |index| match *self {
            // SAFETY: the caller's; any bytes are a number.
            Self::Linear(arrays, _) => One::Linear(arrays.map(|array| unsafe { array.add(index).read_unaligned() })),
            // SAFETY: the caller's; the struct is made of integers, and any bytes are a valid one.
            Self::Of3D(operations, _) => One::Op(unsafe { operations.add(index).read_unaligned() }),
        })
    }

    /// The copies that copy anything. One with an array names no memory whose device is known, and is left out.
    ///
    /// # Safety
    /// As for [`Self::each`].
    #[inline(always)]
    pub(crate) unsafe fn copies(&self) -> impl Iterator<Item = Memcpy<'static>> {
        // SAFETY: the caller's.
        let copies = unsafe { self.each() }.filter_map(|one| match one {
            One::Linear([src, dst, bytes]) => Some(Memcpy::linear(src, dst, bytes)),
            One::Op(op) => {
                let [width, height, depth] = op.extent;
                let bytes = width.saturating_mul(height).saturating_mul(depth);
                (op.src.is_pointer() && op.dst.is_pointer()).then(|| Memcpy::linear(op.src.ptr, op.dst.ptr, bytes))
            }
        });
        copies.filter(|copy| copy.bytes != 0)
    }
}

impl BatchArrays {
    /// Whether the copies have attributes that the driver knows, and those of one dimension may read their sources later.
    fn are_plain(&self, arguments: &[Value]) -> bool {
        match (self, arguments) {
            (
                &Self::Linear(_, count),
                &[_, _, _, _, Value::Address(attributes), Value::Address(firsts), Value::UInt(number), ..],
            ) => are_attributes_plain((attributes as *const _, firsts as *const _), number, count),
            (Self::Of3D(..), [.., Value::UInt(0), Value::Stream(_)]) => true,
            _ => false,
        }
    }

    /// Whether all of them may read their sources when the stream has come there.
    ///
    /// # Safety
    /// As for [`Self::each`].
    pub(super) unsafe fn may_be_put_off(&self, arguments: &[Value]) -> bool {
        let may_be = |one| match one {
            One::Linear(_) => true,
            One::Op(op) => is_put_off(op.order, op.flags),
        };
        // SAFETY: the caller's.
        self.are_plain(arguments) && unsafe { self.each() }.all(may_be)
    }
}

impl One {
    /// The copy as a call of its own asks for it. None if it has to read its source during the call, or has an array; nor of what the real
    /// function refuses before it copies anything.
    fn alone(self) -> Option<CUDA_MEMCPY3D_PEER> {
        let copy = match self {
            Self::Linear([src, dst, bytes]) => Some(linear(src, dst, usize::try_from(bytes).ok()?)),
            Self::Op(op) => Some(op).filter(|op| is_put_off(op.order, op.flags))?.alone(),
        };
        copy.filter(|copy| copy.WidthInBytes != 0 && copy.Height != 0 && copy.Depth != 0)
    }
}

/// The copies of a batch, as calls of their own ask for them; none if any cannot be one.
pub(crate) fn each_alone(request: &Request<'_>) -> Option<Vec<CUDA_MEMCPY3D_PEER>> {
    let (Effect::Copies(kind), arguments) = (request.function.effect(), request.arguments) else { return None };
    let arrays = BatchArrays::of(kind, arguments).filter(BatchArrays::are_there)?;
    // SAFETY: they are there.
    arrays.are_plain(arguments).then(|| alloc::collect_all(unsafe { arrays.each() }.map(One::alone)))?
}

/// Whether a copy may read its source when the stream has come there: not if its attributes say otherwise, or the driver refuses them.
pub(crate) fn may_be_put_off(function: Function, arguments: &[Value]) -> bool {
    match (function, arguments) {
        (
            Function::cuMemcpyWithAttributesAsync | Function::cuMemcpyWithAttributesAsync_ptsz,
            &[_, _, _, Value::Address(attributes), _],
        ) => {
            // SAFETY: made of integers: any bytes are valid.
            let attributes = unsafe { value(attributes as *const BatchAttributes) };
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
    (attributes, firsts): (*const BatchAttributes, *const usize),
    number: u64,
    count: usize,
) -> bool {
    let Some(number) = usize::try_from(number).ok().filter(|number| (1..=count).contains(number)) else { return false };
    let mut last = None;
    is_there(attributes, number)
        && is_there(firsts, number)
        && (0..number).all(|index| {
            // SAFETY: they are there, and made of integers: any bytes are valid.
            let (of, first) = unsafe { (attributes.add(index).read_unaligned(), firsts.add(index).read_unaligned()) };
            let is_next = last.replace(first).map_or(first == 0, |last| last < first);
            is_put_off(of.order, of.flags) && is_next && first < count
        })
}

// ---- Graphs, pools and handles ----

/// The change to an executable graph if a node gets other parameters, as `cuGraphExecNodeSetParams` takes them; none if it
/// copies nothing.
pub(crate) fn graph_node(node: usize, parameters: usize) -> Option<Change> {
    /// `CU_GRAPH_NODE_TYPE_MEMCPY`, `CU_GRAPH_NODE_TYPE_GRAPH`, `CU_GRAPH_NODE_TYPE_MEMCPY_BATCH`.
    const MEMCPY: u32 = 1;
    const GRAPH: u32 = 4;
    const MEMCPY_BATCH: u32 = 14;
    // SAFETY: the node has them; the structs are made of integers: any bytes are a valid one. The type says which it is.
    match unsafe { used(parameters as *const u32) }? {
        MEMCPY => {
            // SAFETY: as above.
            let parameters = unsafe { used(parameters as *const MemcpyNodeParams) }?.copy;
            Some(Change::Node(node_copy(node, parameters)))
        }
        GRAPH => {
            // SAFETY: as above.
            let graph = unsafe { used(parameters as *const ChildGraphNodeParams) }?.graph;
            Some(Change::Child { node, graph })
        }
        MEMCPY_BATCH => {
            // SAFETY: as above; pointers are not followed before the driver has followed them.
            let batch = unsafe { used(parameters as *const BatchNodeParams) }?;
            let one = |index: usize| {
                // SAFETY: any bytes are a number.
                let each =
                    [batch.srcs, batch.dsts, batch.sizes].map(|array| unsafe { used(array.wrapping_add(index)) });
                let [src, dst, bytes] = each;
                Some(NodeCopy { node, within: node, parameters: linear(src?, dst?, usize::try_from(bytes?).ok()?) })
            };
            Some(Change::Batch(alloc::collect_all((0..batch.count).map(one))?))
        }
        _ => None,
    }
}

/// The change, as `cuGraphExecMemcpyNodeSetParams` takes it.
pub(crate) fn memcpy_node(node: usize, parameters: *const CUDA_MEMCPY3D_PEER) -> Option<Change> {
    // SAFETY: the node has them; the struct is made of integers: any bytes are a valid one.
    Some(Change::Node(node_copy(node, unsafe { used(parameters) }?)))
}

fn node_copy(node: usize, parameters: CUDA_MEMCPY3D_PEER) -> NodeCopy {
    let parameters = CUDA_MEMCPY3D_PEER { srcContext: 0, dstContext: 0, ..parameters };
    NodeCopy { node, within: node, parameters }
}

/// The rights that are set; none if any descriptor is one that the driver refuses.
pub(crate) fn grants(grants: *const AccessDesc, count: u64) -> Option<Vec<AccessDesc>> {
    /// More than any machine has devices.
    const MOST: u64 = 1024;
    let count = usize::try_from(count.min(MOST)).unwrap_or_default();
    // SAFETY: the struct is made of integers: any bytes are a valid one.
    let each = (0..count).map(|index| unsafe { value(grants.wrapping_add(index)) });
    each.map(|grant| grant.filter(|grant| grant.device().is_some())).collect()
}

/// The device of a pool that is made with these properties.
pub(crate) fn device_of_pool(properties: *const PoolProps) -> Option<i32> {
    // SAFETY: the pool was made; the struct is made of integers: any bytes are a valid one.
    driver::device_of_pool(&unsafe { used(properties) }?)
}

/// A handle that a call has read or written, which has succeeded.
pub(crate) fn shared_handle(at: usize) -> Option<Handle> {
    // SAFETY: any bytes are valid ones.
    unsafe { used(at as *const Handle) }
}

/// Whether physical memory that was made with these properties may be exported.
pub(crate) fn may_be_exported(properties: usize) -> bool {
    // SAFETY: the memory was made; the struct is made of integers: any bytes are a valid one.
    unsafe { used(properties as *const AllocationProp) }.is_some_and(|properties| properties.handle_types != 0)
}

/// Whether physical memory that is to have these properties is to have handles of a type.
pub(crate) fn wants(properties: usize, handle_type: i64) -> bool {
    // SAFETY: the struct is made of integers: any bytes are a valid one.
    unsafe { value(properties as *const AllocationProp) }
        .is_some_and(|it| i64::from(it.handle_types) & handle_type != 0)
}

/// The device at a location.
pub(crate) fn device_at(location: *const Location) -> Option<i32> {
    // SAFETY: the query has succeeded; the struct is made of integers: any bytes are a valid one.
    unsafe { used(location) }?.device_id()
}

/// A word that a call is about to read, or may have written.
pub(crate) fn word_at(from: usize) -> Option<usize> {
    // SAFETY: any bytes are a valid number.
    unsafe { value(from as *const usize) }
}

/// The words among a kernel's parameters that may be addresses of a device, each with the number of its parameter. `sizes` are the bytes of each.
pub(super) fn kernel_addresses(parameters: usize, sizes: impl Iterator<Item = u16>) -> Vec<(usize, u64)> {
    const WORD: usize = size_of::<u64>();
    let mut found = Vec::new();
    for (index, bytes) in sizes.enumerate().filter(|(_, bytes)| usize::from(*bytes) >= WORD) {
        let Some(parameter) = word_at(parameters + index * WORD) else { break };
        let words = 0..usize::from(bytes) / WORD;
        found.extend(words.filter_map(|word| word_at(parameter + word * WORD)).map(|word| (index, word as u64)));
    }
    // Below lies nothing of a device, above no address.
    found.retain(|(_, word)| (1 << 20..1 << 56).contains(word));
    found
}

/// A handle that a call which succeeded has written.
pub(crate) fn handle_at(output: usize) -> Option<usize> {
    // SAFETY: it has; any bytes are a valid number.
    unsafe { used(output as *const usize) }
}

/// The devices of a copy, source first; none for a call that copies nothing. The pointer decides: an ordinal that does not match it
/// is accepted and has no effect.
pub(crate) fn pair(request: &Request<'_>) -> Option<(i32, i32)> {
    let copy = request.copy().filter(|copy| !matches!(copy.shape, Shape::Unreadable(_)))?;
    let device = |address: u64, ordinal| {
        let address = Some(address).filter(|&it| it != 0 && !is_array(it));
        // Of memory of another process the driver does not know it.
        let remote = address.and_then(|address| ACCESS.known(address)).filter(|(place, _)| place.kind == Kind::Remote);
        remote.map(|(place, _)| place.device.into()).or_else(|| address.and_then(driver::device_of)).or(ordinal)
    };
    let src = device(copy.src, copy.src_named.ordinal())?;
    Some((src, device(copy.dst, copy.dst_named.ordinal())?))
}

/// Where a call came from, by its return address, and the line of Python, if that is known.
pub(crate) fn call_site(return_address: *const c_void, origin: Option<Origin>) -> Option<CallSite> {
    let Origin { lines, callers } = origin.unwrap_or_default();
    let mut places = vec![place(return_address as usize)?];
    places.extend(callers.into_iter().map_while(place));
    // Of a shared runtime it is sure where it ends.
    match places.iter().position(|place| !place.module.starts_with("libcudart.so")) {
        Some(0) | None => {}
        Some(outside) => places = places.drain(outside..).take(1).collect(),
    }
    Some(CallSite { places, line: lines.into_iter().next() })
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
