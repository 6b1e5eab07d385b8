//! Batches of copies. The forms of 12.8 say which copy is to blame; those of 13.0 do not.
//!
//! A stream that takes no batch is found before anything else, and then the index of the copy to blame is left alone, as was measured.
//! All other arguments are looked at before what the stream is; whether a real driver does so was not measured. The copies
//! with attributes of 13.2 were not measured at all: they are taken to be batches of one.

use std::result;

use p2psim_core::Extent;
use p2psim_core::machine::{
    ArrayHandle, BatchError, Completion, DefaultStream, Locus, Place, Request, SourceOrder, StreamRef,
};
use p2psim_core::{Error, Machine, Result};

use super::require;
use super::structs::{BatchOperand, BatchOperation, CopyAttributes};
use crate::abi::{In, Out};
use crate::entry::{api, machine, stream};

type BatchResult<T> = result::Result<T, BatchError>;

/// A copy of a batch.
type Part = (Request, Completion);

/// The attribute of a copy that matters: `CUmemcpySrcAccessOrder`.
pub(super) fn completion(access_order: u32, flags: u32) -> Result<Completion> {
    require(flags <= 1)?;
    match access_order {
        1 => Ok(Completion::Batch(SourceOrder::Stream)),
        2 => Ok(Completion::Batch(SourceOrder::DuringCall)),
        3 => Ok(Completion::Batch(SourceOrder::Any)),
        _ => Err(Error::INVALID_VALUE),
    }
}

/// A batch of copies from pointer to pointer.
#[derive(Clone, Copy)]
struct Batch {
    dsts: In<u64>,
    srcs: In<u64>,
    sizes: In<u64>,
    count: u64,
    attributes: In<CopyAttributes>,
    /// The first copy that each of the attributes applies to.
    firsts: In<u64>,
    attribute_count: u64,
}

impl Batch {
    fn submit(self, stream: StreamRef) -> BatchResult<()> {
        machine()?.copy_batch(stream, &self.parts()?)
    }

    fn parts(self) -> BatchResult<Vec<Part>> {
        let mut parts = Vec::new();
        for (number, (first, end)) in self.ranges()?.into_iter().enumerate() {
            let CopyAttributes { access_order, flags, .. } = self.attributes.read_nth(number)?;
            let completion = completion(access_order, flags)?;
            for index in first..end {
                let [dst, src] = [self.dsts.read_nth(index)?, self.srcs.read_nth(index)?].map(Locus::Any);
                let extent = Extent::linear(self.sizes.read_nth(index)?);
                parts.push((Request { dst: Place::linear(dst), src: Place::linear(src), extent }, completion));
            }
        }
        Ok(parts)
    }

    /// The copies that each of the attributes applies to: all, and each one once.
    fn ranges(self) -> BatchResult<Vec<(usize, usize)>> {
        require((1..=self.count).contains(&self.attribute_count))?;
        let mut bounds = Vec::new();
        for number in 0..self.attribute_count as usize {
            bounds.push(self.firsts.read_nth(number)? as usize);
        }
        bounds.push(self.count as usize);
        require(bounds.first() == Some(&0) && bounds.is_sorted_by(|first, next| first < next))?;
        Ok(bounds.iter().copied().zip(bounds.iter().copied().skip(1)).collect())
    }
}

fn submit_3d(count: u64, operations: In<BatchOperation>, flags: u64, stream: StreamRef) -> BatchResult<()> {
    let machine = machine()?;
    require(count > 0 && flags == 0)?;
    let mut parts = Vec::new();
    for index in 0..count as usize {
        let operation = operations.read_nth(index)?;
        parts.push(part_3d(machine, &operation).map_err(|error| BatchError::at(index, error))?);
    }
    machine.copy_batch(stream, &parts)
}

/// The extent is in elements of the array that takes part, else in bytes; two arrays have to agree in them.
fn part_3d(machine: &Machine, operation: &BatchOperation) -> Result<Part> {
    let BatchOperation { src, dst, extent, access_order, flags } = *operation;
    let completion = completion(access_order, flags)?;
    let element = match (bytes_of_element(machine, &dst)?, bytes_of_element(machine, &src)?) {
        (Some(dst), Some(src)) if dst != src => return Err(Error::INVALID_VALUE),
        (Some(bytes), _) | (None, Some(bytes)) => bytes,
        (None, None) => 1,
    };
    let [width, height, depth] = extent;
    let extent = Extent { width: in_bytes(width, element)?, height, depth };
    require(!extent.is_empty())?;
    Ok((Request { dst: place(&dst, element, extent)?, src: place(&src, element, extent)?, extent }, completion))
}

fn in_bytes(elements: u64, element: u64) -> Result<u64> {
    elements.checked_mul(element).ok_or(Error::INVALID_VALUE)
}

/// Bytes of an array's element; none for a pointer.
fn bytes_of_element(machine: &Machine, operand: &BatchOperand) -> Result<Option<u64>> {
    let BatchOperand { kind, fields: [array, ..] } = *operand;
    match kind {
        1 => Ok(None),
        2 => Ok(Some(machine.array_shape(ArrayHandle(array))?.element)),
        _ => Err(Error::INVALID_VALUE),
    }
}

/// Rows and slices without a length of their own lie one after another.
fn place(operand: &BatchOperand, element: u64, extent: Extent) -> Result<Place> {
    let BatchOperand { kind, fields: [at, first, second, third] } = *operand;
    if kind == 2 {
        let (x, y, z) = (in_bytes(first, element)?, second, third);
        return Ok(Place { x, y, z, ..Place::linear(Locus::Array(ArrayHandle(at))) });
    }
    let pitch = if first == 0 { extent.width } else { in_bytes(first, element)? };
    let rows = if second == 0 { extent.height } else { second };
    Ok(Place { pitch, rows, ..Place::linear(Locus::Any(at)) })
}

/// The stream of a batch: no legacy one, and in no form NULL, as was measured.
fn taking(queue: u64, default: DefaultStream) -> Result<StreamRef> {
    require(queue != 0)?;
    Ok(stream(queue, default))
}

/// The stream of a 3D batch: looks first whether the stream captures.
fn taking_3d(queue: u64, default: DefaultStream) -> Result<StreamRef> {
    let stream = taking(queue, default)?;
    machine()?.refuse_captured_batch(stream)?;
    Ok(stream)
}

/// The index that tells the program that no copy is to blame.
const NOBODY: u64 = u64::MAX;

/// Tells the program which copy is to blame.
fn tell(fail_index: Out<u64>, submit: impl FnOnce() -> BatchResult<()>) -> Result<()> {
    fail_index.set(NOBODY);
    submit().map_err(|BatchError { error, index }| {
        fail_index.set(index.map_or(NOBODY, |index| index as u64));
        error
    })
}

api! {
    fn cuMemcpyBatchAsync | cuMemcpyBatchAsync_ptsz [default] (
        dsts: In<u64>,
        srcs: In<u64>,
        sizes: In<u64>,
        count: u64,
        attributes: In<CopyAttributes>,
        firsts: In<u64>,
        attribute_count: u64,
        fail_index: Out<u64>,
        queue: u64,
    ) {
        let batch = Batch { dsts, srcs, sizes, count, attributes, firsts, attribute_count };
        let stream = taking(queue, default)?;
        tell(fail_index, || batch.submit(stream))
    }

    fn cuMemcpyBatchAsync_v2 | cuMemcpyBatchAsync_v2_ptsz [default] (
        dsts: In<u64>,
        srcs: In<u64>,
        sizes: In<u64>,
        count: u64,
        attributes: In<CopyAttributes>,
        firsts: In<u64>,
        attribute_count: u64,
        queue: u64,
    ) {
        let batch = Batch { dsts, srcs, sizes, count, attributes, firsts, attribute_count };
        Ok(batch.submit(taking(queue, default)?)?)
    }

    fn cuMemcpy3DBatchAsync | cuMemcpy3DBatchAsync_ptsz [default] (
        count: u64,
        operations: In<BatchOperation>,
        fail_index: Out<u64>,
        flags: u64,
        queue: u64,
    ) {
        let stream = taking_3d(queue, default)?;
        tell(fail_index, || submit_3d(count, operations, flags, stream))
    }

    fn cuMemcpy3DBatchAsync_v2 | cuMemcpy3DBatchAsync_v2_ptsz [default] (
        count: u64,
        operations: In<BatchOperation>,
        flags: u64,
        queue: u64,
    ) {
        Ok(submit_3d(count, operations, flags, taking_3d(queue, default)?)?)
    }

    fn cuMemcpyWithAttributesAsync | cuMemcpyWithAttributesAsync_ptsz [default] (
        dst: u64,
        src: u64,
        size: u64,
        attributes: In<CopyAttributes>,
        queue: u64,
    ) {
        let CopyAttributes { access_order, flags, .. } = attributes.read()?;
        let [dst, src] = [dst, src].map(|address| Place::linear(Locus::Any(address)));
        let part = (Request { dst, src, extent: Extent::linear(size) }, completion(access_order, flags)?);
        Ok(machine()?.copy_batch(stream(queue, default), &[part])?)
    }

    fn cuMemcpy3DWithAttributesAsync | cuMemcpy3DWithAttributesAsync_ptsz [default] (
        operation: In<BatchOperation>,
        flags: u64,
        queue: u64,
    ) {
        Ok(submit_3d(1, operation, flags, stream(queue, default))?)
    }
}
