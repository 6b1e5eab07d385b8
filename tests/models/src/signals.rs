//! The state of a thread, interrupted anywhere: its calls in progress, and its part of a trace.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::api::Function;
use crate::frame::{Frame, Innermost};
use crate::layout::{CHUNK_BYTES, CHUNK_HEADER_BYTES, Capture, ChunkKind, RECORD_BYTES, RECORDS, State, chunk, record};
use crate::machine::Entry;
use crate::signal::Ordering::SeqCst;
use crate::signal::{compiler_fence, each_interruption, held, interrupt_by, read_by, settle};
use crate::writer::{OpenRecord, Segment, Writer};

/// Tries a model, and says how many orders there were.
fn model(name: &str, run: impl Fn()) {
    let since = std::time::Instant::now();
    let orders = each_interruption(run);
    println!("MODEL {orders:>7} orders {:5.1} s  {name}", since.elapsed().as_secs_f64());
    assert!(orders > 1);
}

/// An entry of two words, by the first.
fn entry(stack: usize) -> Entry {
    Entry { stack, link: stack + 1 }
}

fn enter(calls: &Innermost, function: Function, stack: usize) -> (usize, Frame) {
    calls.enter(Frame::new(function, 1, entry(stack)), || true)
}

/// Calls of the runtime and, inside, of the driver, one after the other; `handler` is told between which.
fn calls(name: &str, handler: impl Fn(&'static Innermost, Option<usize>) + Copy + 'static) {
    model(name, || {
        // SAFETY: all zero is no call.
        let calls: &Innermost = Box::leak(Box::new(unsafe { std::mem::zeroed() }));
        let runtime: &Cell<Option<usize>> = Box::leak(Box::default());
        interrupt_by(move || handler(calls, runtime.get()));
        for stack in [900, 800] {
            runtime.set(Some(stack));
            let (depth, before) = enter(calls, Function::CopyAsync, stack);
            assert_eq!(depth, 0);
            for stack in [stack - 100, stack - 50] {
                let (depth, before) = enter(calls, Function::DriverCopy, stack);
                assert_eq!((depth, calls.enclosing(stack)), (1, runtime.get().map(entry)));
                calls.set(before);
            }
            calls.set(before);
            assert!(!calls.is_in_progress());
        }
        runtime.set(None);
        assert_eq!(enter(calls, Function::DriverCopy, 700).0, 0);
    });
}

#[test]
fn calls_of_a_handler_are_its_own_and_leave_nothing_behind() {
    calls("handler's calls", |calls, _| {
        let (depth, before) = enter(calls, Function::Copy, 500);
        assert_eq!(depth, 0);
        let (depth, inside) = enter(calls, Function::DriverCopy, 400);
        assert_eq!((depth, calls.enclosing(400)), (1, Some(entry(500))));
        calls.set(inside);
        calls.set(before);
    });
}

/// It may be taken for one that the runtime's call makes, but then for no other call's.
#[test]
fn driver_call_of_a_handler_is_its_own_or_inside_the_whole_call_that_it_finds() {
    calls("handler's driver call", |calls, runtime| {
        let (depth, before) = enter(calls, Function::DriverCopy, 400);
        match depth {
            0 => assert_eq!(calls.enclosing(400), None),
            _ => assert_eq!((depth, calls.enclosing(400)), (1, runtime.map(entry))),
        }
        calls.set(before);
    });
}

fn bytes<const N: usize>(from: *const u8, offset: usize) -> [u8; N] {
    // SAFETY: in a chunk, and aligned.
    unsafe { from.add(offset).cast::<[u8; N]>().read() }
}

fn u64_at(from: *const u8, offset: usize) -> u64 {
    u64::from_le_bytes(bytes(from, offset))
}

/// Records that have begun, in the order of the file: where each lies.
fn records(chunks: &[*mut u8]) -> Vec<*const u8> {
    let of_calls =
        chunks.iter().filter(|&&chunk| u32::from_le_bytes(bytes(chunk, chunk::KIND)) == ChunkKind::Calls.number());
    let all = of_calls.flat_map(|chunk| {
        (0..RECORDS).map(|number| chunk.wrapping_add(CHUNK_HEADER_BYTES + number * RECORD_BYTES).cast_const())
    });
    all.filter(|record| bytes::<1>(*record, record::STATE)[0] & 3 != 0).collect()
}

/// A thread's trace, in which every field of a record follows from its number.
struct Trace(Writer, Segment, RefCell<Vec<Since>>);

/// The number of a record, and how many had begun when its call began.
type Since = (u64, usize);

impl Trace {
    /// One of a thread that has made so many calls.
    fn after(calls: usize) -> &'static Self {
        let chunks = (0..4).map(|_| Box::leak(vec![0_u64; CHUNK_BYTES / 8].into_boxed_slice()).as_mut_ptr().cast());
        let trace: &Self =
            Box::leak(Box::new(Self(Writer(chunks.collect(), Cell::new(0)), Segment::default(), RefCell::default())));
        (0..calls).for_each(|_| trace.begin(0, 200).done(600, 200, Capture::None));
        settle();
        trace
    }

    /// Returns a function that puts it back to its present state.
    fn reset(&'static self) -> impl Fn() {
        fn copy(from: *const u8, bytes: usize) -> impl Fn() {
            // SAFETY: there are so many bytes, which nobody writes meanwhile, here and below.
            let saved = unsafe { std::slice::from_raw_parts(from, bytes) }.to_vec();
            move || unsafe { std::ptr::copy_nonoverlapping(saved.as_ptr(), from.cast_mut(), bytes) }
        }
        let chunks: Vec<_> = self.0.0.iter().map(|chunk| copy(*chunk, CHUNK_BYTES)).collect();
        let (segment, taken) = (copy((&raw const self.1).cast(), size_of::<Segment>()), self.0.1.get());
        move || {
            chunks.iter().for_each(|chunk| chunk());
            segment();
            self.0.1.set(taken);
            self.2.borrow_mut().clear();
        }
    }

    fn begin(&self, depth: usize, number: u64) -> OpenRecord {
        let before = self.2.borrow().len();
        loop {
            if let Some(begun) = self.1.begin(depth, number as u8, number as u16, number) {
                self.2.borrow_mut().push((number, before));
                begun.copies(number, number, number, number);
                return begun;
            }
            assert_eq!(held(|| self.0.extend(&self.1)), Ok(true));
        }
    }

    /// A call, and one that it makes.
    fn copy(&self, number: u64) {
        let outer = self.begin(0, number);
        let inner = self.begin(1, number + 1);
        for (begun, number) in [(inner, number + 1), (outer, number)] {
            begun.done(3 * number, number as i32, Capture::None);
        }
    }

    /// Checks the file as a reader would find it now: each thing that it says is so.
    fn check(&self) {
        for record in records(&self.0.0) {
            let number = u64_at(record, record::START);
            let said = (bytes::<1>(record, record::FUNCTION)[0], u16::from_le_bytes(bytes(record, record::SITE)));
            assert!(number != 0 && said == (number as u8, number as u16), "a record has begun and does not say which");
            if bytes::<1>(record, record::STATE)[0] & 3 == State::Done.number() {
                let took = u32::from_le_bytes(bytes(record, record::TOOK));
                let said =
                    [record::SRC, record::DST, record::BYTES, record::STREAM].map(|offset| u64_at(record, offset));
                assert_eq!(
                    (said, u64::from(took)),
                    ([number; 4], 2 * number),
                    "a call has returned and does not say what it was"
                );
            }
        }
        for &chunk in &self.0.0 {
            if u32::from_le_bytes(bytes(chunk, chunk::KIND)) != 0 {
                assert_ne!(u32::from_le_bytes(bytes(chunk, chunk::THREAD)), 0, "a chunk does not say whose it is");
            }
        }
    }
}

/// Near the end of a chunk, and in its middle.
const BEFORE: [usize; 4] = [0, RECORDS - 3, RECORDS - 2, RECORDS - 1];

#[test]
fn record_is_whole_whenever_the_process_is_killed() {
    for before in BEFORE {
        let trace = Trace::after(before);
        let reset = trace.reset();
        model(&format!("killed after {before}"), || {
            reset();
            read_by(|| trace.check());
            trace.copy(10);
            trace.copy(20);
            settle();
            trace.check();
        });
    }
}

#[test]
fn no_record_is_lost_or_under_another_call_if_a_handler_copies() {
    for before in BEFORE {
        let trace = Trace::after(before);
        let reset = trace.reset();
        model(&format!("handler copies after {before}"), || {
            reset();
            interrupt_by(|| {
                let before = trace.1.open();
                trace.copy(10);
                trace.copy(20);
                trace.1.reopen(before);
            });
            trace.copy(30);
            trace.copy(40);
            settle();
            trace.check();
            let all = records(&trace.0.0);
            let there: Vec<u64> = all.iter().map(|record| u64_at(*record, record::START)).collect();
            let mut sorted: Vec<u64> = there[before..].to_vec();
            sorted.sort_unstable();
            // A handler that never came has no records.
            assert!(sorted == [10, 11, 20, 21, 30, 31, 40, 41] || sorted == [30, 31, 40, 41], "{sorted:?}");
            // One that began when another had begun comes after it.
            let begun = trace.2.borrow();
            let place = |number: u64| there.iter().position(|there| *there == number);
            for (later, before) in begun.iter() {
                assert!(
                    begun[..*before].iter().all(|(earlier, _)| place(*earlier) < place(*later)),
                    "{later}: {there:?}"
                );
            }
            for (at, number) in there.iter().enumerate().filter(|(_, number)| *number % 10 == 1) {
                let distance = usize::from(bytes::<1>(all[at], record::PARENT)[0]);
                assert!(
                    distance == 0 || there[at - distance] == number - 1,
                    "{number} is under {}: {there:?}",
                    there[at - distance]
                );
                // Only by a chunk that a handler began in between is it out of reach.
                assert!(distance != 0 || before + 8 > RECORDS, "{number} is under none");
            }
            for (number, chunk) in trace.0.0.iter().take(trace.0.1.get()).enumerate() {
                assert_eq!(u64_at(*chunk, chunk::FIRST), (number * RECORDS) as u64, "what comes before the chunk");
            }
        });
    }
}

#[test]
fn what_a_thread_waits_in_is_one_call_whenever_that_is_read() {
    let trace = Trace::after(1);
    let (reset, chunk) = (trace.reset(), trace.0.0[0]);
    model("waits", || {
        reset();
        interrupt_by(move || {
            if bytes::<1>(chunk, chunk::STATE)[0] == State::Begun.number() {
                let handle = u64_at(chunk, chunk::HANDLE);
                let said = (bytes::<1>(chunk, chunk::FUNCTION)[0], u16::from_le_bytes(bytes(chunk, chunk::SITE)));
                assert_eq!(said, (handle as u8, handle as u16), "of two calls");
                // When it returns, that is noted first.
                assert!((handle..=handle + 1).contains(&u64_at(chunk, chunk::WAIT)), "of two calls");
            }
        });
        for number in [10, 20] {
            assert!(trace.1.waits(number as u8, number as u16, number, number));
            trace.1.note_return(number + 1);
        }
    });
}

/// The time of the GPU is told by another thread, and so may be what a call breaks.
#[test]
fn what_is_found_out_later_is_added_to_a_record() {
    let trace = Trace::after(0);
    let reset = trace.reset();
    model("found out later", || {
        reset();
        let is_told: &Cell<bool> = Box::leak(Box::default());
        let begun = trace.begin(0, 10);
        begun.done(30, 10, Capture::Rewritten);
        begun.mark_timed();
        interrupt_by(move || {
            begun.timed(Some((20, 5)));
            begun.breaks(3);
            is_told.set(true);
        });
        begun.comes_from(10);
        begun.breaks(4);
        compiler_fence(SeqCst);
        trace.check();
        let record = records(&trace.0.0)[0];
        let mut rules: [u8; 2] = bytes(record, record::FINDINGS);
        rules.sort_unstable();
        assert_eq!(rules, if is_told.get() { [4, 5] } else { [0, 5] });
        assert_eq!(begun.capture(), Capture::Rewritten);
    });
}
