//! A call, as callbacks get it.

use super::Path;
use crate::api::Function;
use crate::api::abi::Code;

/// How many rules the event of a call names.
pub(crate) const FOUND: usize = 4;

/// A call, as it is kept for callbacks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallEvent {
    pub(crate) function: Function,
    pub(crate) depth: usize,
    pub(crate) thread: i32,
    /// In nanoseconds.
    pub(crate) start: u64,
    pub(crate) took: u64,
    pub(crate) ret: Code,
    /// The code as the program gets it.
    pub(crate) given: Code,
    /// Source and destination; -1 for none.
    pub(crate) devices: [i32; 2],
    /// Source and destination, as addresses.
    pub(crate) ends: [u64; 2],
    pub(crate) bytes: u64,
    pub(crate) stream: u64,
    pub(crate) path: Option<Path>,
}
