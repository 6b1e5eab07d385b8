//! The trace files of p2pshim: one a process, written in place while it runs, so that what was written is there however the
//! process ends.
//!
//! # Layout
//!
//! All numbers are little-endian. A file is a [`HEADER_BYTES`] header and chunks of [`CHUNK_BYTES`]. A chunk belongs to a
//! thread and holds its calls, or holds notes: what else there is to know, names above all, so that a file explains itself.
//! Space is taken in steps, so that the end of a file may be chunks of zeros.
//!
//! Calls are records of [`RECORD_BYTES`], in the order in which they began. A record is begun when the call begins, and done
//! when it returns; the last byte says which. A call that began and never returned is where the thread was when the process ended.
//!
//! Times are ticks of a clock that [`Clock`] names; [`Calibration`]s in the header say what they are in nanoseconds.
//!
//! A reader takes a file of its own major version only. Later minor versions may add kinds of chunks and of notes, which are
//! skipped, and give a meaning to bytes that are 0 now.

mod layout;
mod machine;
mod path;
mod reader;
mod writer;

pub use layout::{
    ACCESS_ENABLED, CAPTURING, CHUNK_BYTES, Calibration, Capture, ChunkKind, Clock, DeviceTime, FIRST_BYTES,
    FIRST_COPIES, HEADER_BYTES, NoteKind, ORDER_LOST, PART, RECORD_BYTES, REMOTE, REMOTE_LAST, State, UNTIL_10_0,
    VERSION, given,
};
pub use path::{Class, Path, Verified, Why};
pub use reader::{Block, Calls, Error, GUESSED_TIMES, Note, Record, Timeline, Trace, Wait};
pub use writer::{Open, OpenRecord, Options, Segment, Writer};

/// The end of the names of trace files.
pub const SUFFIX: &str = ".p2ptrace";
