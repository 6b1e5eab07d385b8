//! Functions of the program, called later, and of this library, handed out.

use crate::abi::{Null, Opaque};

/// A `CUhostFn` of the program.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct HostFunction(Option<unsafe extern "C" fn(Opaque)>);

impl HostFunction {
    /// The call, to be made later on a stream's thread; refuses NULL.
    pub fn with(self, data: Opaque) -> Result<impl Fn() + Send + Sync + 'static, Null> {
        let function = self.0.ok_or(Null)?;
        // SAFETY: who launches a host function promises that it may be called with its data when its turn comes.
        Ok(move || unsafe { function(data) })
    }
}

/// A `CUstreamCallback` of the program.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct StreamCallback(Option<unsafe extern "C" fn(Opaque, u32, Opaque)>);

impl StreamCallback {
    /// The call, to be made later on a stream's thread; refuses NULL.
    pub fn with(self, stream: Opaque, data: Opaque) -> Result<impl Fn() + Send + Sync + 'static, Null> {
        let function = self.0.ok_or(Null)?;
        // SAFETY: who adds a callback promises that it may be called with its data when its turn comes.
        Ok(move || unsafe { function(stream, 0, data) })
    }
}

/// A `CUgraphRecaptureCallback` of the program, whose parameters are `T`.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct RecaptureCallback<T>(Option<unsafe extern "C" fn(Opaque, u64, *const T, *const T, u32) -> u32>);

impl<T> RecaptureCallback<T> {
    /// Asks with parameters of a node, old and new, whether it may change; it may if there is no callback.
    pub fn allows(self, data: Opaque, node: u64, [old, new]: &[T; 2]) -> bool {
        /// `CU_GRAPH_RECAPTURE_ELIGIBLE_FOR_UPDATE`.
        const ELIGIBLE: u32 = 0;
        // SAFETY: who begins a recapture promises that it may be called with its data; the parameters are there meanwhile.
        self.0.is_none_or(|function| unsafe { function(data, node, old, new, ELIGIBLE) } == 0)
    }
}

/// The address of an exported function.
#[derive(Clone, Copy)]
pub struct Address(pub *const ());

// SAFETY: code is the same for all threads, and nobody writes through it.
unsafe impl Sync for Address {}
