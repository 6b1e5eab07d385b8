//! Every order in which threads use what they share without a lock, as loom tries them (`threads`), and every moment in which a signal handler, or
//! the end of the process, finds what a thread has for itself (`signals`). The code is the library's own (build.rs); what surrounds it is here.
//! `make models` runs this.

#![allow(dead_code, unused, unreachable_pub, reason = "the models use a part of these files")]
#![cfg(test)]

mod signal;
mod signals;
mod threads;

macro_rules! library {
    ($file:literal) => {
        include!(concat!(env!("OUT_DIR"), "/", $file));
    };
}

mod os {
    pub(crate) mod table {
        library!("table.rs");
    }

    /// Rows as the library's, of which there are few.
    pub(crate) mod arena {
        use loom::sync::atomic::AtomicU64;

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

    pub(crate) mod streams {
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
    pub(crate) const fn prefetch_to_write(_: *const i8) {}
}

mod frame {
    library!("frame.rs");
}

mod api {
    #[derive(Clone, Copy, PartialEq)]
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
        pub(crate) fn layer(self) -> Layer {
            if self == Function::DriverCopy { Layer::Driver } else { Layer::Runtime }
        }
    }

    pub(crate) mod abi {
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub(crate) struct Code(pub(crate) u32);

        impl Code {
            pub(crate) const NOT_READY: Self = Self(600);
        }
    }
}

mod policy {
    pub(crate) mod driver {
        pub(crate) use super::Driver;
    }

    pub(crate) trait Driver {
        fn context_id(&self, handle: usize) -> Option<u64>;

        fn device_of_context(&self, _: usize) -> Option<i32> {
            None
        }
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
