//! Every order in which threads use what they share without a lock, as loom tries them (`threads`), and every moment in which a signal handler, or
//! the end of the process, finds what a thread has for itself (`signals`). The code is the library's own (build.rs); what surrounds it is here.
//! `make models` runs this.

#![allow(dead_code, unused, unreachable_pub, reason = "the models use a part of these files")]
#![cfg(test)]

macro_rules! library {
    ($file:literal) => {
        include!(concat!(env!("OUT_DIR"), "/", $file));
    };
}

mod ordered;
mod signal;
mod signals;
mod threads;
mod waits;

mod os {
    pub(crate) mod table {
        library!("table.rs");
    }

    /// Rows as the library's, of which there are few.
    pub(crate) mod arena {
        use crate::ordered::AtomicU64;

        pub(crate) const FIRST: usize = 1;
        const ROWS: usize = 7;

        pub(crate) struct Arena<const WORDS: usize>([[AtomicU64; WORDS]; ROWS]);

        impl<const WORDS: usize> Arena<WORDS> {
            pub(crate) fn new() -> Self {
                Self(std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))))
            }

            pub(crate) fn get(&self, number: u32) -> Option<&[AtomicU64; WORDS]> {
                self.0.get(number as usize)
            }

            pub(crate) fn at(&self, chunk: usize, row: usize) -> Option<&[AtomicU64; WORDS]> {
                self.0.get((FIRST << chunk) - FIRST + row)
            }

            pub(crate) fn reach(&self, number: u32) -> bool {
                (number as usize) < ROWS
            }

            pub(crate) fn reach_chunk(&self, chunk: usize) -> bool {
                (FIRST << chunk) * 2 - FIRST <= ROWS
            }
        }
    }

    pub(crate) fn pause() {
        loom::thread::yield_now();
    }

    /// No time passes.
    pub(crate) fn until(_: std::time::Duration, mut is_so: impl FnMut() -> bool) -> bool {
        is_so()
    }

    pub(crate) fn lock<T>(mutex: &loom::sync::Mutex<T>) -> loom::sync::MutexGuard<'_, T> {
        mutex.lock().unwrap()
    }
}

mod objects {
    pub(crate) mod generations {
        library!("generations.rs");
    }

    pub(crate) mod index {
        library!("index.rs");
    }

    pub(crate) mod map {
        library!("map.rs");
    }

    pub(crate) mod memory {
        library!("memory.rs");
    }

    pub(crate) mod past {
        library!("past.rs");
    }

    pub(crate) mod streams {
        pub(crate) const LEGACY: usize = 1;
        pub(crate) const PER_THREAD: usize = 2;

        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Stream {
            Created(usize),
        }

        impl Stream {
            pub(crate) fn handle(self) -> usize {
                let Self::Created(handle) = self;
                handle
            }
        }
    }
}

mod route {
    library!("route.rs");
}

mod layout {
    library!("layout.rs");
}

/// The machine's instructions that the library uses between atomics. The models have none of their own.
mod machine {
    use std::sync::atomic::Ordering::Relaxed;

    use crate::signal::AtomicUsize;

    pub(crate) const fn prefetch_to_write(_: *const i8) {}

    pub(crate) const fn ticks_per_second() -> Option<u64> {
        None
    }

    /// As long as the model says.
    pub(crate) fn ticks() -> u64 {
        crate::timed::NOW.load(std::sync::atomic::Ordering::SeqCst)
    }

    /// How a call was entered, on aarch64: with which stack pointer and link register.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct Entry {
        pub(crate) stack: usize,
        pub(crate) link: usize,
    }

    impl Entry {
        pub(crate) fn stack(self) -> usize {
            self.stack
        }
    }

    library!("entry.rs");
}

mod model {
    pub(crate) type Endpoints = [usize; 2];

    /// Two that differ.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub(crate) struct Path(pub(crate) u8);

    impl Path {
        pub(crate) fn number(self) -> u8 {
            self.0
        }

        pub(crate) fn numbered(number: u8) -> Option<Self> {
            Some(Self(number))
        }
    }
}

/// The clock of a trace.
mod timed {
    use std::sync::atomic;

    use loom::sync::Mutex;

    use crate::layout::{Clock, header};
    use crate::ordered::AtomicU64;

    /// All clocks of the system.
    pub(crate) static NOW: atomic::AtomicU64 = atomic::AtomicU64::new(0);
    /// The system's have so many steps for each of the processor's.
    pub(crate) const RATIO: u64 = 8;

    pub(crate) struct Writer {
        clock: Clock,
        calibration_due: AtomicU64,
        calibration: Mutex<(usize, u64)>,
        words: [AtomicU64; 9],
    }

    impl Writer {
        pub(crate) fn new() -> Self {
            Self {
                clock: Clock::TimeStampCounter,
                calibration_due: AtomicU64::new(0),
                calibration: Mutex::new((0, 1)),
                words: std::array::from_fn(|_| AtomicU64::new(0)),
            }
        }

        fn u64_at(&self, at: usize) -> &AtomicU64 {
            &self.words[(at - header::CALIBRATIONS) / 8]
        }

        /// Compares the clocks at a time of the processor's.
        pub(crate) fn compare(&self, now: u64) {
            NOW.store(now, atomic::Ordering::SeqCst);
            self.calibrate(now);
        }
    }

    mod clock {
        library!("clock.rs");

        fn nanos(_: libc::clockid_t) -> u64 {
            super::NOW.load(std::sync::atomic::Ordering::SeqCst) * super::RATIO
        }
    }
}

/// The rests of chunks that threads leave as they end.
mod left {
    use crate::ordered::Ordering::{Acquire, Relaxed, Release};
    use crate::ordered::{AtomicU64, AtomicUsize};

    const MOST: usize = 2;

    library!("left.rs");

    /// For the models.
    pub(crate) struct Shared(Left);

    impl Shared {
        pub(crate) fn new() -> Self {
            Self(Left::new())
        }

        pub(crate) fn put(&self, word: u64) {
            self.0.put(word);
        }

        pub(crate) fn take(&self) -> Option<u64> {
            self.0.take()
        }
    }
}

mod frame {
    library!("frame.rs");
}

mod api {
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub(crate) enum Function {
        Copy,
        CopyAsync,
        DriverCopy,
    }

    #[derive(Clone, Copy, PartialEq)]
    pub(crate) enum Layer {
        Runtime,
        Driver,
        Hip,
    }

    impl Function {
        pub(crate) const ALL: [Self; 3] = [Self::Copy, Self::CopyAsync, Self::DriverCopy];

        pub(crate) fn layer(self) -> Layer {
            if self == Function::DriverCopy { Layer::Driver } else { Layer::Runtime }
        }
    }

    pub(crate) mod abi {
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub(crate) struct Code(pub(crate) u32);

        impl Code {
            pub(crate) const SUCCESS: Self = Self(0);
            pub(crate) const NOT_READY: Self = Self(600);
        }
    }
}

mod policy {
    pub(crate) mod driver {
        pub(crate) use super::Driver;
    }

    /// No model asks the rest.
    pub(crate) trait Driver {
        fn context_id(&self, handle: usize) -> Option<u64>;

        fn device_of_context(&self, _: usize) -> Option<i32> {
            None
        }

        fn new_event(&self, _: (usize, u64)) -> Option<usize> {
            unreachable!()
        }

        fn record(&self, _event: usize, _stream: usize) -> bool {
            unreachable!()
        }

        fn may_record(&self, _stream: usize) -> bool {
            true
        }

        fn stream_context(&self, _stream: usize, _per_thread: bool) -> Option<usize> {
            None
        }

        fn record_within(&self, _context: usize, _event: usize, _stream: usize) -> bool {
            false
        }

        fn has_passed(&self, _event: usize) -> bool {
            false
        }
    }

    pub(crate) mod access {
        pub(crate) mod cells {
            library!("cells.rs");
        }
    }

    pub(crate) mod ended {
        library!("ended.rs");
    }

    pub(crate) mod waits {
        library!("waits.rs");
    }
}

/// A thread's part of a trace; two files of the trace's writer.
mod writer {
    mod room {
        library!("room.rs");

        /// For the models: what the writer does under its lock.
        pub(crate) struct Opened(pub(super) Room);

        impl Opened {
            pub(crate) fn new(most: u64) -> Self {
                Self(Room::new(most).unwrap())
            }

            pub(crate) fn open(&self, from: u64, start: *mut u8) {
                if self.0.chunk(from).is_none() {
                    self.0.map(from, start);
                }
                self.0.open(from + 1);
            }

            pub(crate) fn take(&self, handed_out: &AtomicU64) -> Option<*mut u8> {
                self.0.take(handed_out)
            }
        }

        pub(crate) const A_REGION: u64 = REGION;
    }

    mod segment {
        library!("segment.rs");
    }

    impl segment::Stretch {
        fn link(self) {}
    }

    pub(crate) use room::{A_REGION, Opened};
    pub(crate) use segment::{OpenRecord, Segment};

    /// Chunks that there is space for, in order.
    pub(crate) struct Writer(pub(crate) Vec<*mut u8>, pub(crate) std::cell::Cell<usize>);

    impl Writer {
        /// A signal may arrive.
        fn now(&self) -> u64 {
            crate::signal::compiler_fence(std::sync::atomic::Ordering::SeqCst);
            1
        }

        /// No thread has left any.
        fn take_left(&self) -> Option<segment::Stretch> {
            None
        }

        fn take_chunk(&self) -> Result<Option<*mut u8>, String> {
            Ok(self.0.get(self.1.replace(self.1.get() + 1)).copied())
        }
    }
}

mod locks {
    /// As parking_lot's.
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }
}

/// Rings, by the copies that they take.
mod staging {
    pub(crate) mod links {
        pub(crate) const SLOTS: usize = 1;
    }

    pub(crate) mod ring {
        library!("ring.rs");
    }

    pub(crate) mod transfer {
        pub(crate) const QUEUED: usize = 900;
        pub(crate) type EndpointRanges = [(u64, u64); 2];

        pub(crate) struct Transfer {
            pub(crate) ring: super::ring::Ring,
            pub(crate) chunk: usize,
            pub(crate) endpoints: EndpointRanges,
        }

        impl Transfer {
            pub(crate) fn launches(&self) -> usize {
                1
            }
        }
    }

    mod rings {
        library!("rings.rs");

        impl Rings {
            /// Whether no two have anything in common.
            pub(crate) fn are_apart(&self) -> bool {
                let mut rings: Vec<Ring> = self.table.lock().entries.iter().map(|entry| entry.ring).collect();
                let mut handles: Vec<usize> =
                    rings.iter_mut().flat_map(|ring| ring.parts().map(|(_, handle)| *handle)).collect();
                let memory: BTreeSet<usize> = rings.iter().map(|ring| ring.host.address).collect();
                let all = handles.len();
                handles.sort_unstable();
                handles.dedup();
                handles.len() == all && memory.len() == rings.len()
            }

            pub(crate) fn empty() -> Self {
                Self::new()
            }

            /// For the models: a ring for a copy as [`Staging`] gets one.
            pub(crate) fn ring(
                &self,
                driver: &impl Stager,
                kind: (Contexts, usize),
                user: Stream,
                new: impl FnOnce() -> Host,
            ) -> Ring {
                let ring = self.find(kind, user).or_else(|| self.take_over(driver, kind, user));
                ring.unwrap_or_else(|| {
                    let host = self.begin_making(kind, None).unwrap().unwrap_or_else(new);
                    let mut ring = self.begin(kind.0, host);
                    driver.complete(&mut ring, false).unwrap();
                    self.end_making(kind.1, Ok(ring), user, [0, 1]);
                    ring
                })
            }
        }
    }

    pub(crate) use rings::{Rings, StepAdmission};
}
