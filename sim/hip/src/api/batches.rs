//! Batches of copies, from 7.1 on.
//!
//! A batch is in no graph: on a stream that captures it is done at once.

use p2psim_core::Error;
use p2psim_core::machine::{Followed, InCapture, StreamRef};

use super::boxes::copy_3d;
use super::copies::{DEFAULT, Linear};
use super::require;
use super::structs::{BatchOperand, BatchOperation, Copy3d, CopyAttributes, Object, PitchedPointer, Position};
use crate::abi::{In, Out};
use crate::entry::{Gpus, api};
use crate::error::Result;

/// In the place of an index: no copy is to blame.
const NONE: u64 = u64::MAX;

/// Other than single copies, batches call what names no stream an invalid handle.
fn stream(gpus: &Gpus, queue: u64) -> Result<StreamRef> {
    Ok(gpus.stream(queue).map_err(|_| Error::INVALID_HANDLE)?)
}

fn tell(fail_index: Out<u64>, index: u64) {
    // The real library takes a pointer for granted in 3D.
    if fail_index.address() != 0 {
        fail_index.set(index);
    }
}

/// The attributes, each of which applies from one copy on to the next that has others.
fn check_attributes(attributes: In<CopyAttributes>, firsts: In<u64>, count: u64, copies: u64) -> Result<()> {
    if count == 0 {
        return Ok(());
    }
    attributes.read()?;
    require(firsts.read()? == 0 && count <= copies)?;
    for number in 1..count as usize {
        let first = firsts.read_nth(number)?;
        require(first > firsts.read_nth(number - 1)? && first < copies)?;
    }
    for number in 0..count as usize {
        require((1..=3).contains(&attributes.read_nth(number)?.access_order))?;
    }
    Ok(())
}

/// A batch is refused as a whole.
fn check_memory(gpus: &Gpus, copies: &[Linear]) -> Result<()> {
    for &Linear { dst, src, size, .. } in copies {
        require(dst != 0 && src != 0)?;
        require([src, dst].into_iter().all(|at| gpus.find(at).is_none_or(|found| found.holds(at, size))))?;
    }
    Ok(())
}

fn object(operand: &BatchOperand, width: u64, height: u64) -> Result<Object> {
    let BatchOperand { kind, at, row, layer, .. } = *operand;
    require(kind == 1 || kind == 2)?;
    let (array, pointer) = if kind == 1 { (0, at) } else { (at, 0) };
    let row = if row == 0 { width } else { row };
    let pitched = PitchedPointer { pointer, pitch: row, width: row, height: if layer == 0 { height } else { layer } };
    Ok(Object { array, position: Position { x: 0, y: 0, z: 0 }, pitched })
}

fn copy_operation(gpus: &Gpus, operation: &BatchOperation, stream: StreamRef) -> Result<()> {
    let BatchOperation { src, dst, extent, .. } = operation;
    let [src, dst] = [object(src, extent.width, extent.height)?, object(dst, extent.width, extent.height)?];
    copy_3d(gpus, &Copy3d { src, dst, extent: *extent, kind: DEFAULT }, Ok(stream), InCapture::DoneAtOnce)
}

api! {
    fn hipMemcpyBatchAsync [gpus] (
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
        let stream = stream(gpus, queue)?;
        require(count != 0)?;
        for array in [dsts, srcs, sizes] {
            array.read()?;
        }
        check_attributes(attributes, firsts, attribute_count, count)?;
        let mut copies = Vec::new();
        for index in 0..count as usize {
            let size = sizes.read_nth(index)?;
            if size == 0 {
                tell(fail_index, index as u64);
                return Err(Error::INVALID_VALUE.into());
            }
            copies.push(Linear { dst: dsts.read_nth(index)?, src: srcs.read_nth(index)?, size, kind: DEFAULT });
        }
        tell(fail_index, NONE);
        check_memory(gpus, &copies)?;
        copies.iter().try_for_each(|copy| copy.submit(gpus, stream, Followed::ByNobody, InCapture::DoneAtOnce))
    }

    /// The copies before one that is refused are made.
    fn hipMemcpy3DBatchAsync [gpus] (
        count: u64,
        operations: In<BatchOperation>,
        fail_index: Out<u64>,
        flags: u64,
        queue: u64,
    ) {
        require(flags == 0 && count != 0)?;
        operations.read()?;
        let stream = stream(gpus, queue)?;
        tell(fail_index, NONE);
        for index in 0..count as usize {
            let copied = copy_operation(gpus, &operations.read_nth(index)?, stream);
            copied.inspect_err(|_| tell(fail_index, index as u64))?;
        }
        Ok(())
    }
}
