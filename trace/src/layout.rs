//! Where what lies in a file.

/// Major and minor version of the layout.
pub const VERSION: (u16, u16) = (1, 0);
/// The bit of [`header::EXIT`] that says that it has a status.
pub(crate) const HAS_EXITED: u64 = 1 << 32;
/// The first bytes of a file.
pub(crate) const MAGIC: [u8; 8] = *b"P2PTRACE";
/// Bytes of the header, where a page has no more: else it is a page, since chunks are mapped from their beginning on.
pub const HEADER_BYTES: usize = 4096;
/// Bytes of the largest header.
pub(crate) const LARGEST_HEADER: usize = 1 << 20;
/// Bytes of a chunk, its own header included.
pub const CHUNK_BYTES: usize = 16384;
/// Bytes of a chunk's header.
pub(crate) const CHUNK_HEADER_BYTES: usize = 64;
/// Bytes of the record of a call.
pub const RECORD_BYTES: usize = 64;
/// Records in a chunk.
pub(crate) const RECORDS: usize = (CHUNK_BYTES - CHUNK_HEADER_BYTES) / RECORD_BYTES;
/// Bytes of a note's header.
pub(crate) const NOTE_HEADER_BYTES: usize = 24;
/// Bytes that a note can have.
pub(crate) const NOTE_MOST: usize = CHUNK_BYTES - CHUNK_HEADER_BYTES - NOTE_HEADER_BYTES;
/// Room for calibrations in the header.
pub(crate) const CALIBRATIONS: usize = 64;
/// A note's commit word is its length XOR this.
pub(crate) const NOTE_COMMIT: u32 = 0x4e4f_5445;

/// Offsets in the header.
pub(crate) mod header {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const MAJOR: usize = 8;
    pub(crate) const MINOR: usize = 10;
    pub(crate) const HEADER_BYTES: usize = 12;
    pub(crate) const CHUNK_BYTES: usize = 16;
    pub(crate) const RECORD_BYTES: usize = 20;
    /// Process id.
    pub(crate) const PROCESS: usize = 24;
    /// A [`super::Clock`].
    pub(crate) const CLOCK: usize = 28;
    /// How many chunks were handed out; may be more than there was room for.
    pub(crate) const CHUNKS: usize = 32;
    /// How many calls found no room.
    pub(crate) const DROPPED: usize = 40;
    /// How many bytes the file may have.
    pub(crate) const LIMIT: usize = 48;
    /// 2^32 plus the status that the process gave to `exit`; 0 as long as it has not called that.
    pub(crate) const EXIT: usize = 56;
    /// [`super::CALIBRATIONS`] of 24 bytes.
    pub(crate) const CALIBRATIONS: usize = 64;
    /// How many ticks the clock has in a second; 0 if the machine does not say.
    pub(crate) const TICKS_PER_SECOND: usize = super::HEADER_BYTES - 16;
    /// How many copies, and enablings of access, succeeded in forked children, and are in no file.
    pub(crate) const UNSEEN: usize = super::HEADER_BYTES - 8;
}

/// Offsets in a chunk.
pub(crate) mod chunk {
    /// A [`super::ChunkKind`]; written last.
    pub(crate) const KIND: usize = 0;
    /// The thread's id, for calls.
    pub(crate) const THREAD: usize = 4;
    /// How many records the thread had before this chunk.
    pub(crate) const FIRST: usize = 8;
    /// The thread's name when the chunk was taken, 16 bytes, padded with zeros.
    pub(crate) const NAME: usize = 16;
    /// When it was taken, in ticks.
    pub(crate) const TIME: usize = 32;
    /// The thread's last call that has no record, and that may block: when it began or, once it has returned, ended, in ticks.
    pub(crate) const WAIT: usize = 40;
    /// Its first argument: mostly the handle of what it waits for.
    pub(crate) const HANDLE: usize = 48;
    /// As in a record: the number of the place in the code that called, the number of the function, and a [`super::State`], 0 for none.
    pub(crate) const SITE: usize = 56;
    pub(crate) const FUNCTION: usize = 58;
    pub(crate) const STATE: usize = 59;
    /// How many records further the next header is, if another thread has gone on behind this one, which has ended; else 0. 2 bytes.
    pub(crate) const NEXT: usize = 60;
}

/// Offsets in a record: a line of the processor's cache.
pub(crate) mod record {
    /// Ticks when the call began.
    pub(crate) const START: usize = 0;
    /// How many ticks later it returned, [packed](super::pack).
    pub(crate) const TOOK: usize = 8;
    /// The call's result; 2 bytes. With [`super::UNTIL_10_0`] added, a code of a runtime of CUDA 10.0 or older, which has numbers
    /// of its own.
    pub(crate) const RESULT: usize = 12;
    /// Number of the function; [`super::PART`] for the copies between two devices of a call that makes many copies.
    pub(crate) const FUNCTION: usize = 14;
    /// Number of the path that the copy took; 0 for none.
    pub(crate) const PATH: usize = 15;
    /// Source address; of a part how many copies it is of.
    pub(crate) const SRC: usize = 16;
    /// Destination address.
    pub(crate) const DST: usize = 24;
    /// Bytes that the copy moves.
    pub(crate) const BYTES: usize = 32;
    /// Stream handle.
    pub(crate) const STREAM: usize = 40;
    /// How many ticks after `START` the GPU began with the copy, packed. Of a copy with the host: when its bytes were sampled.
    pub(crate) const DEVICE_AFTER: usize = 48;
    /// How many nanoseconds the GPU took, packed. Of a copy with the host: the sample, and whether the copy had ended when its call returned.
    pub(crate) const DEVICE_NANOS: usize = 52;
    /// Number of the place in the code that called; 0 if it is not known.
    pub(crate) const SITE: usize = 56;
    /// The device that the bytes come from, plus 1; 0 if there is none, or it is not known.
    pub(crate) const SRC_DEVICE: usize = 58;
    /// The device that they go to, likewise.
    pub(crate) const DST_DEVICE: usize = 59;
    /// Numbers of the rules that the call breaks, plus 1; 0 for none. 2 bytes.
    pub(crate) const FINDINGS: usize = 60;
    /// How many records of the thread before this one the call is that made it; 0 if the program did, or if they are more
    /// than 255.
    pub(crate) const PARENT: usize = 62;
    /// From the lowest bit on, two bits each: a [`super::State`], a [`super::Capture`], a [`super::DeviceTime`], and how
    /// many intercepted calls enclose it, 3 for 3 or more. The last that is written.
    pub(crate) const STATE: usize = 63;
}

/// In place of a function's number, in the record of a part: what a call copies from one device to another on one path that makes
/// many copies. It stands behind the record of the call, as if the call had made it, and returned when that did.
pub const PART: u8 = u8::MAX;

/// Added to the results of calls of CUDA runtimes until 10.0: their numbers are others.
pub const UNTIL_10_0: i32 = 1 << 14;

/// The number that the program got, of a result that may be one of a runtime until 10.0; and whether it is.
pub fn given(result: i32) -> (i32, bool) {
    /// No runtime has had codes from here on.
    const END: i32 = UNTIL_10_0 + 10_240;
    let is_old = (UNTIL_10_0..END).contains(&result);
    (if is_old { result - UNTIL_10_0 } else { result }, is_old)
}

/// In place of a device's ordinal in records: from this number on, memory of another process, as a note says.
pub const REMOTE: u8 = 128;
/// The last such number. It stands for all memory of other processes for which there is no other number, and no note says more of it.
pub const REMOTE_LAST: u8 = 254;

/// A large number loses so many bits at its end when it is packed.
const PACKED: u32 = 20;
const IS_LARGE: u32 = 1 << 31;

/// Packs a number into 4 bytes: below 2^31 as it is; above without its last 20 bits; from 2^51 on as the largest.
pub(crate) fn pack(number: u64) -> u32 {
    match u32::try_from(number) {
        Ok(small) if small < IS_LARGE => small,
        _ => IS_LARGE | (number >> PACKED).min(u64::from(IS_LARGE - 1)) as u32,
    }
}

pub(crate) fn unpack(packed: u32) -> u64 {
    if packed < IS_LARGE { u64::from(packed) } else { u64::from(packed & !IS_LARGE) << PACKED }
}

/// Makes an enum that a byte stands for in files. Values that a later version may add are read as nothing.
macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident: $type:ident { $( $(#[$variant_doc:meta])* $variant:ident = $number:literal, )* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr($type)]
        pub enum $name {
            $( $(#[$variant_doc])* $variant = $number, )*
        }

        impl $name {
            /// The number that stands for it in a file.
            pub const fn number(self) -> $type {
                self as $type
            }

            /// The variant that a number in a file stands for.
            pub const fn numbered(number: $type) -> Option<Self> {
                match number {
                    $( $number => Some(Self::$variant), )*
                    _ => None,
                }
            }
        }
    };
}

numbered! {
    /// The clock of a file's ticks.
    Clock: u32 {
        /// `clock_gettime(CLOCK_MONOTONIC)`, in nanoseconds.
        Monotonic = 1,
        /// The processor's counter: the time-stamp counter of x86-64, the generic timer of aarch64.
        TimeStampCounter = 2,
    }
}

numbered! {
    /// The contents of a chunk.
    ChunkKind: u32 {
        /// Calls of one thread.
        Calls = 1,
        /// Notes.
        Notes = 2,
    }
}

numbered! {
    /// How far a call has come.
    State: u8 {
        /// It has begun, and not returned.
        Begun = 1,
        /// It has returned.
        Done = 2,
    }
}

numbered! {
    /// A call's part in a capture.
    Capture: u8 {
        /// It has none.
        None = 0,
        /// Its stream was being captured, and it was forwarded as it came.
        Forwarded = 1,
        /// Its stream was being captured, and the equal copy that CUDA can capture was made in its place.
        Rewritten = 2,
    }
}

numbered! {
    /// Whether the time that the GPU took is known.
    DeviceTime: u8 {
        /// It was not measured.
        None = 0,
        /// It is being measured; at the end of a file: the process ended before it was known.
        Pending = 1,
        /// It is known.
        Known = 2,
        /// It could not be measured.
        Failed = 3,
    }
}

/// The message of a process whose order was not checked in full.
pub const ORDER_LOST: &str =
    "order: there were more accesses of an allocation, or more races, than are kept; not all were compared and named";

/// So many copies of a pair, and so many bytes of them, are staged as not yet worth enabling it: the copy that exceeds either is.
pub const FIRST_COPIES: u32 = 16;
/// See [`FIRST_COPIES`].
pub const FIRST_BYTES: u64 = 1 << 20;

/// A word of [`NoteKind::Failed`].
pub const CAPTURING: &str = "capturing";

/// How the text of a decision begins that gave a pair access.
pub const ACCESS_ENABLED: &str = "peer access enabled in";

numbered! {
    /// The kind of a note. A note's text is strings, separated by zeros.
    NoteKind: u16 {
        /// The program's file, then its arguments from the 0th on.
        Program = 1,
        /// A variable and its value: one of ours, or one that says which rank of a job the process is.
        Variable = 2,
        /// The name of a part that has a version (`p2pshim`, `driver`, `runtime`), and the version.
        Version = 3,
        /// The host's name, its boot id, the namespace that the number of the process is of (`pid:[…]`), and when the process was
        /// started, in clock ticks after boot.
        Host = 4,
        /// By number: a function's layer and name.
        Function = 10,
        /// By number: a rule's id and severity.
        Rule = 12,
        /// By code, a runtime's as since 10.1: the layer, and the code's name there.
        Code = 13,
        /// By ordinal: a GPU's name, UUID and PCI bus id, then `key=value`.
        Gpu = 20,
        /// By 256 × device + peer: `key=value` about the access of a device to the memory of a peer (`access`,
        /// `performance_rank`, `native_atomics`).
        Peer = 21,
        /// By ordinal: memory of that GPU that the process lets others open: how (`ipc`, `vmm`, `pool`), the handle in hexadecimal
        /// (empty for a descriptor, which has none that others know), and its bytes; 0 bytes of a handle: it was freed.
        Exported = 22,
        /// By the number that stands for its device in records, from [`REMOTE`] on: memory of another process that this one has opened: how,
        /// the handle, its bytes (0 if not known), the opener's ordinal, then `key=value` (`gpu`: the UUID of the GPU where it lies, if
        /// that is known). Below [`REMOTE`] the number is the ordinal of a visible GPU; then `at` is the address, and 0 bytes mean that it is closed.
        Opened = 23,
        /// By number of the place: a call by which processes share memory, and that has failed: the driver's function, the code and its name, what is
        /// special about the memory (`mapped`, `pool`, `managed`, `opened`), its handle (`own`, `namespace`, `fabric`), flags or rights (`none`). With code 0 and `inside`: it has succeeded, of an
        /// address inside an allocation.
        Unshared = 25,
        /// By number of the place: another call without a record that has failed, or one about peer access that is forgiven, and the first, second, fourth, … of its function and code: the function,
        /// the code, a runtime's as since 10.1, and its name; the ordinals of the current context's GPU and, of a memset, of the memory's, if they are
        /// known; [`CAPTURING`] if the thread had begun a capture.
        Failed = 26,
        /// Two accesses that nothing orders; by 65536 × the number of the place of the first + that of the second. How sure it is (`race`, `possible race`,
        /// `lifetime`); of each access the function, its verb (`reads`, `writes`, `may use`, `frees`) and its stream; the bytes of the range in which both lie;
        /// the ordinal of the GPU that has them, if one has.
        Race = 27,
        /// By ordinal: the first context of the process on that GPU was made, or its primary context retained: the kernel's number of the thread,
        /// and the number of the place.
        Context = 28,
        /// By the kernel's number of a thread: where its Python can be read while the process runs, as numbers in hexadecimal: the thread's state and `pthread_t`,
        /// `Py_Version`, and the addresses of `_PyRuntime`, `PyCode_Type`, `PyUnicode_Type` and `PyBytes_Type`.
        Python = 29,
        /// By number: a place in the code that calls were made from, as an address in hexadecimal, then `key=value` (`python`,
        /// `line`, `function`, with 2 and 3 for lines in other files that called it; `callers`).
        Site = 31,
        /// A piece of code in memory from now on: first address, address after the last, and offset in the file, in
        /// hexadecimal, then the file's name, then `key=value` (`build_id`, in hexadecimal).
        Module = 30,
        /// By number of the rule: what was found, in full, then `key=value` (`size` of a copy, if it is negative as a signed number, and its
        /// `function`).
        Finding = 40,
        /// By 256 × source + destination: something that was decided about a pair.
        Decision = 41,
        /// Another message of the shim, such as why nothing is traced any more.
        Message = 42,
        /// By thread: the program's words about itself.
        Mark = 43,
    }
}

/// The time, by three clocks at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calibration {
    /// The file's clock; not 0.
    pub ticks: u64,
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    pub monotonic: u64,
    /// `CLOCK_REALTIME`, in nanoseconds since 1970.
    pub real: u64,
}
