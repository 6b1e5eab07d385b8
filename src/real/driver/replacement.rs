//! The copy that is made in place of one that CUDA would refuse.

use std::ffi::c_void;
use std::mem::transmute;

use super::contexts::within;
use super::functions::{MEMCPY_3D_ASYNC, MEMCPY_ASYNC, checked};
use super::graphs;
use crate::api::abi::{CUDA_MEMCPY3D_PEER, Code};
use crate::os::alloc;
use crate::policy::capture::Replacement;
use crate::policy::staging::{as_row, linear};

/// The function that makes a replacement, with its arguments. It has nothing to drop, so that it can be called outside
/// the panic fence.
#[derive(Clone, Copy)]
pub(crate) struct ReadyCopy {
    function: *mut c_void,
    replacement: Replacement,
    pub(crate) note: &'static str,
}

/// Finds the function for a replacement; none if the driver does not have it.
pub(crate) fn ready(replacement: &Replacement) -> Option<ReadyCopy> {
    let function = match replacement.parameters.is_some() {
        false => MEMCPY_ASYNC.get(replacement.per_thread)?,
        true => MEMCPY_3D_ASYNC.get(replacement.per_thread)?,
    };
    Some(ReadyCopy { function, replacement: *replacement, note: replacement.note() })
}

/// Finds the functions for all copies that take the place of a batch; none if the driver does not take each of them.
pub(crate) fn ready_all(replacements: &[Replacement]) -> Option<Vec<ReadyCopy>> {
    let parameters = |of: &Replacement| of.parameters.unwrap_or_else(|| linear(of.src, of.dst, of.bytes as usize));
    let can_copy = graphs::can_copy(replacements.iter().map(parameters));
    if can_copy { alloc::collect_all(replacements.iter().map(ready)) } else { None }
}

/// Makes one copy of a batch, in its stream, and in the context of that, whose rights are those of a batch.
#[inline(never)]
pub(crate) fn make_copy(context: usize, copy: &CUDA_MEMCPY3D_PEER, stream: usize, per_thread: bool) -> Code {
    let row = as_row(copy);
    let (dst, src, bytes) = row.unwrap_or_default();
    let parameters = if row.is_some() { None } else { Some(*copy) };
    let replacement = Replacement { dst, src, bytes: bytes as u64, stream, parameters, per_thread };
    match ready(&replacement) {
        // SAFETY: the program has asked for the copy, as part of a batch.
        Some(ready) => within(context, || checked(unsafe { ready.make() })).err().unwrap_or(Code::SUCCESS),
        None => Code::SHARED_OBJECT_SYMBOL_NOT_FOUND,
    }
}

impl ReadyCopy {
    /// Makes the copy.
    ///
    /// # Safety
    /// The caller meets the conditions of the peer copy.
    pub(crate) unsafe fn make(&self) -> Code {
        type MemcpyAsync = unsafe extern "C-unwind" fn(usize, usize, usize, usize) -> Code;
        type Memcpy3DAsync = unsafe extern "C-unwind" fn(*const CUDA_MEMCPY3D_PEER, usize) -> Code;
        let Replacement { dst, src, bytes, stream, .. } = self.replacement;
        // SAFETY: `ready` looked the function up under the name that goes with the copy. CUDA_MEMCPY3D has the layout
        // of CUDA_MEMCPY3D_PEER, with reserved words for the contexts.
        unsafe {
            match &self.replacement.parameters {
                Some(parameters) => transmute::<*mut c_void, Memcpy3DAsync>(self.function)(parameters, stream),
                None => {
                    let (dst, src, bytes) = (dst as usize, src as usize, bytes as usize);
                    transmute::<*mut c_void, MemcpyAsync>(self.function)(dst, src, bytes, stream)
                }
            }
        }
    }
}
