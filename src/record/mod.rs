//! Calls and findings as plain data, and their ways out: log, trace, summary, and what the processes of a run tell each other.

#![forbid(unsafe_code)]

pub(crate) mod exports;
pub(crate) mod finding;
mod hipify;
pub(crate) mod log;
pub(crate) mod modules;
pub(crate) mod numbers;
pub(crate) mod summary;
mod text;
pub(crate) mod trace;

use std::time::Duration;

use crate::api::Function;
use crate::api::abi::{CUDA_MEMCPY3D_PEER, Code, Value, cudaMemcpy3DPeerParms};
use crate::api::codes::Numbering;
use crate::model::{Finding, Part, Path};

/// A call that has returned.
pub(crate) struct Event<'a> {
    pub(crate) function: Function,
    /// How many intercepted calls enclose it.
    pub(crate) depth: usize,
    pub(crate) arguments: &'a [Argument],
    pub(crate) ret: Code,
    /// The code as the program gets it.
    pub(crate) given: Code,
    /// How long the host was in the real function.
    pub(crate) elapsed: Duration,
    /// The device that was current, where the call depends on it.
    pub(crate) device: Option<i32>,
    /// The devices of a copy, source first.
    pub(crate) pair: Option<(i32, i32)>,
    pub(crate) path: Option<Path>,
    /// The copies between devices of a call that makes many.
    pub(crate) parts: &'a [Part],
    /// The words about a call that was made in place of the program's.
    pub(crate) note: Option<&'static str>,
    pub(crate) caller: Option<CallSite>,
}

/// A line of the log about a finding.
#[derive(Clone, Copy)]
pub(crate) struct FindingLine<'a> {
    pub(crate) function: Function,
    pub(crate) finding: &'a Finding,
    /// The code that the program gets; none before a call that may crash.
    pub(crate) ret: Option<Code>,
    /// The numbers in which it gets that.
    pub(crate) numbering: Numbering,
}

/// An argument by its C name.
pub(crate) struct Argument {
    pub(crate) name: &'static str,
    pub(crate) value: Value,
    /// The contents of its memory, where they were read.
    pub(crate) contents: Option<Contents>,
}

/// The contents of a pointer argument's memory.
pub(crate) enum Contents {
    /// A single number that the function wrote.
    Int(i64),
    RuntimePeer3D(cudaMemcpy3DPeerParms),
    DriverPeer3D(CUDA_MEMCPY3D_PEER),
    /// A regular copy, which names no devices.
    Runtime3D(cudaMemcpy3DPeerParms),
    Driver3D(CUDA_MEMCPY3D_PEER),
}

/// Where a call came from.
pub(crate) struct CallSite {
    /// The place in the program's code, and those that it was called from in turn, as far as they say something.
    pub(crate) places: Vec<Place>,
    /// The line of the Python program that called it, if that is known.
    pub(crate) line: Option<p2pshim_host::python::Line>,
}

/// A place in the program's code.
pub(crate) struct Place {
    /// File name of the program or library.
    pub(crate) module: String,
    /// From where the module is loaded, as addr2line takes it for position-independent code.
    pub(crate) offset: usize,
    /// The exported symbol before the place, if any.
    pub(crate) symbol: Option<String>,
}
