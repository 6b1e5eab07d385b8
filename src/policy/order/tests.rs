use std::ops::Range;

use super::state::MOST;
use super::*;
use crate::api::Function;

const GPU_0: usize = 0x1000;
const GPU_1: usize = 0x2000;
const BUFFER: Range<u64> = 0x10_0000..0x20_0000;
const OTHER: Range<u64> = 0x30_0000..0x40_0000;

/// A stream that no default stream waits for.
fn stream(handle: usize) -> Queue {
    Queue::Created { handle, context: GPU_0, is_blocking: false }
}

fn blocking(handle: usize) -> Queue {
    Queue::Created { handle, context: GPU_0, is_blocking: true }
}

fn access(kind: Kind, memory: Range<u64>) -> Access {
    let span = Span::bytes(memory.start, memory.end - memory.start);
    Access { memory, span, kind, device: Some(0) }
}

fn reads() -> Access {
    access(Kind::Reads, BUFFER)
}

fn writes() -> Access {
    access(Kind::Writes, BUFFER)
}

/// A program: its calls are at places 1, 2, and so on.
struct Program {
    order: Order,
    calls: usize,
}

impl Program {
    fn new() -> Self {
        Self { order: Order::new(), calls: 0 }
    }

    /// An operation that is queued.
    fn made(&mut self, queue: Queue, accesses: &[Access], publishes: Publishes, with: &[usize]) -> Submitted {
        let submitted = self.submitted(queue, accesses, publishes, with);
        self.order.settle(&submitted, accesses);
        submitted
    }

    /// An operation that is about to be queued.
    fn submitted(&mut self, queue: Queue, accesses: &[Access], publishes: Publishes, with: &[usize]) -> Submitted {
        self.calls += 1;
        self.order.submit(&Operation {
            queue,
            with: if let Queue::Legacy { .. } = queue { with } else { &[] },
            accesses,
            work_of: with,
            publishes,
            function: Function::cuMemcpyAsync,
            place: Place { site: 0, address: self.calls },
        })
    }

    /// Which earlier calls an operation is not ordered behind, and how sure that is.
    fn queue(&mut self, queue: Queue, accesses: &[Access]) -> Vec<(Level, usize)> {
        let Submitted { races, .. } = self.made(queue, accesses, Publishes::Nothing, &[]);
        races.iter().map(|race| (race.level, race.first.place.address)).collect()
    }

    fn kernel(&mut self, queue: Queue, accesses: &[Access]) -> Vec<(Level, usize)> {
        let Submitted { races, .. } = self.made(queue, accesses, Publishes::Before, &[]);
        races.iter().map(|race| (race.level, race.first.place.address)).collect()
    }

    fn synchronize(&self, queue: Queue) {
        self.order.reach(&self.order.of_stream(queue));
    }

    fn free(&self, memory: Range<u64>, context: Option<usize>) -> Vec<(Level, usize)> {
        let clock = context.map_or_else(Clock::new, |context| self.order.of_context(Some(context)));
        let by = Side {
            kind: Kind::Frees,
            function: Function::cuMemFree_v2,
            place: Place { site: 0, address: 99 },
            queue: None,
        };
        let races = self.order.before_release(memory.start, memory.end, &clock, by);
        races.iter().map(|race| (race.level, race.first.place.address)).collect()
    }
}

#[test]
fn writes_and_reads_on_two_streams_race_unless_something_orders_them() {
    let mut program = Program::new();
    assert_eq!(program.queue(stream(8), &[writes()]), []);
    assert_eq!(program.queue(stream(16), &[reads()]), [(Level::Race, 1)]);
    // The later writer races with both.
    assert_eq!(program.queue(stream(24), &[writes()]), [(Level::Race, 1), (Level::Race, 2)]);
    program.synchronize(stream(8));
    assert_eq!(program.queue(stream(32), &[reads()]), [(Level::Race, 3)]);
    // Reads do not race with reads, nor anything with other bytes.
    assert_eq!(program.queue(stream(40), &[access(Kind::Writes, OTHER)]), []);
}

#[test]
fn event_orders_what_was_queued_before_it_was_recorded() {
    let mut program = Program::new();
    program.queue(stream(8), &[writes()]);
    program.order.record(5, stream(8));
    program.queue(stream(8), &[access(Kind::Writes, OTHER)]);
    program.order.wait(stream(16), 5);
    assert_eq!(program.queue(stream(16), &[reads()]), []);
    assert_eq!(program.queue(stream(16), &[access(Kind::Reads, OTHER)]), [(Level::Race, 2)]);
    // By way of a third stream.
    program.order.record(6, stream(16));
    program.order.wait(stream(24), 6);
    assert_eq!(program.queue(stream(24), &[writes()]), []);
    // An event of the host.
    program.order.record(7, stream(24));
    program.order.reach(&program.order.of_event(7));
    assert_eq!(program.queue(stream(32), &[writes()]), []);
}

#[test]
fn event_that_is_recorded_again_orders_what_is_new() {
    let mut program = Program::new();
    program.order.record(5, stream(8));
    program.order.wait(stream(16), 5);
    program.queue(stream(8), &[writes()]);
    program.order.record(5, stream(8));
    assert_eq!(program.queue(stream(16), &[reads()]), [(Level::Race, 1)]);
    program.order.wait(stream(24), 5);
    assert_eq!(program.queue(stream(24), &[reads()]), []);
}

#[test]
fn legacy_default_stream_orders_blocking_streams_of_its_context_only() {
    let mut program = Program::new();
    let legacy = Queue::Legacy { context: GPU_0 };
    program.queue(blocking(8), &[writes()]);
    assert_eq!(program.queue(legacy, &[reads()]), []);
    assert_eq!(program.queue(blocking(16), &[writes()]), []);
    assert_eq!(program.queue(stream(24), &[writes()]), [(Level::Race, 3)]);
    let mut program = Program::new();
    program.queue(stream(24), &[writes()]);
    assert_eq!(program.queue(legacy, &[reads()]), [(Level::Race, 1)]);
    // Of another context.
    let mut program = Program::new();
    program.queue(blocking(8), &[writes()]);
    assert_eq!(program.queue(Queue::Legacy { context: GPU_1 }, &[reads()]), [(Level::Race, 1)]);
    // A copy between both is ordered by both default streams.
    let Submitted { races, .. } = program.made(legacy, &[reads()], Publishes::Nothing, &[GPU_0, GPU_1]);
    assert_eq!(races, []);
    assert_eq!(program.queue(Queue::Legacy { context: GPU_1 }, &[writes()]), []);
    // A thread's own default stream is a blocking one.
    assert_eq!(program.queue(Queue::PerThread { context: GPU_1, thread: 1 }, &[writes()]), []);
    assert_eq!(program.queue(Queue::PerThread { context: GPU_1, thread: 2 }, &[writes()]).len(), 1);
}

#[test]
fn kernels_and_what_may_have_been_told_make_races_possible_ones() {
    let mut program = Program::new();
    assert_eq!(program.kernel(stream(8), &[access(Kind::Kernel, BUFFER)]), []);
    assert_eq!(program.queue(stream(16), &[reads()]), [(Level::Possible, 1)]);
    assert_eq!(program.kernel(stream(24), &[access(Kind::Kernel, BUFFER)]), [(Level::Possible, 2)]);
    // Something without an access comes behind a write, and may tell of it.
    let mut program = Program::new();
    program.queue(stream(8), &[writes()]);
    program.kernel(stream(8), &[]);
    assert_eq!(program.queue(stream(16), &[reads()]), [(Level::Possible, 1)]);
    // On another stream it tells of nothing.
    let mut program = Program::new();
    program.queue(stream(8), &[writes()]);
    program.kernel(stream(24), &[]);
    assert_eq!(program.queue(stream(16), &[reads()]), [(Level::Race, 1)]);
}

#[test]
fn rows_that_lie_between_others_do_not_race() {
    let rows = |first: u64, kind| {
        let span = Span::rows(BUFFER.start + first, 64 * 256, 256, 128);
        Access { memory: BUFFER, span, kind, device: None }
    };
    let mut program = Program::new();
    program.queue(stream(8), &[rows(0, Kind::Writes)]);
    assert_eq!(program.queue(stream(16), &[rows(128, Kind::Writes)]), []);
    assert_eq!(program.queue(stream(24), &[rows(64, Kind::Reads)]).len(), 2);
}

#[test]
fn frees_wait_for_their_context_and_those_in_a_stream_for_that() {
    let mut program = Program::new();
    program.queue(stream(8), &[writes()]);
    assert_eq!(program.free(BUFFER, Some(GPU_0)), []);
    assert_eq!(program.free(BUFFER, Some(GPU_1)), [(Level::Lifetime, 1)]);
    assert_eq!(program.free(BUFFER, None), [(Level::Lifetime, 1)]);
    assert_eq!(program.free(OTHER, None), []);
    // A copy that is work of another context.
    let mut program = Program::new();
    program.made(stream(8), &[writes()], Publishes::Nothing, &[GPU_1]);
    assert_eq!(program.free(BUFFER, Some(GPU_1)), [(Level::Staged, 1)]);
    // In the order of a stream.
    let mut program = Program::new();
    program.queue(stream(8), &[reads()]);
    assert_eq!(program.queue(stream(16), &[access(Kind::Frees, BUFFER)]), [(Level::Lifetime, 1)]);
    assert_eq!(program.queue(stream(8), &[reads()]), [(Level::Lifetime, 2)]);
    // Whoever gets it from the pool comes after the free.
    program.order.allocated(Some(stream(8)), BUFFER.start);
    assert_eq!(program.queue(stream(8), &[writes()]), []);
    assert_eq!(program.queue(stream(16), &[writes()]), [(Level::Race, 4)]);
}

#[test]
fn signals_values_and_other_processes_order_what_waits_for_them() {
    let mut program = Program::new();
    let submitted = program.made(stream(8), &[writes()], Publishes::Nothing, &[]);
    program.order.signal(&submitted.clock, Some(0x500));
    program.order.wait_for_signal(stream(16), Some(0x600));
    assert_eq!(program.queue(stream(16), &[reads()]), [(Level::Race, 1)]);
    program.order.wait_for_signal(stream(24), Some(0x500));
    assert_eq!(program.queue(stream(24), &[reads()]), []);
    // An event that another process has too: it may go on from there, and record one of its own.
    let mut program = Program::new();
    program.order.share_event(5, &[5], true);
    program.queue(stream(8), &[writes()]);
    program.order.record(5, stream(8));
    program.order.share_event(6, &[6], true);
    program.order.wait(stream(16), 6);
    assert_eq!(program.queue(stream(16), &[reads()]), []);
}

#[test]
fn work_behind_a_value_may_wait_for_the_host_until_that_has_waited_for_it() {
    let mut program = Program::new();
    let before = program.made(stream(8), &[], Publishes::Nothing, &[]);
    program.order.wait_for_signal(stream(8), Some(0x500));
    let behind = program.made(stream(8), &[writes()], Publishes::Nothing, &[]);
    program.order.record(5, stream(8));
    program.order.wait(stream(16), 5);
    let further = program.made(stream(16), &[reads()], Publishes::Nothing, &[]);
    let waits = [before, behind, further].map(|submitted| submitted.clock);
    assert_eq!([0, 1, 2].map(|index| program.order.waits_for_host(&waits[index])), [false, true, true]);
    program.synchronize(stream(8));
    assert!(waits.iter().all(|clock| !program.order.waits_for_host(clock)));
}

#[test]
fn order_that_only_a_staged_copy_has_is_told_until_the_host_waits_for_the_copy() {
    let staged = |program: &mut Program| program.made(stream(8), &[writes()], Publishes::Nothing, &[GPU_1]);
    let mut program = Program::new();
    staged(&mut program);
    program.order.reach(&program.order.of_context(Some(GPU_1)));
    assert_eq!(program.kernel(stream(16), &[reads()]), [(Level::Staged, 1)]);
    // Whatever a kernel does is not known.
    assert_eq!(program.kernel(stream(24), &[access(Kind::Kernel, BUFFER)]), [(Level::Possible, 2)]);
    let mut program = Program::new();
    staged(&mut program);
    program.order.reach(&program.order.of_context(Some(GPU_1)));
    program.synchronize(stream(8));
    assert_eq!(program.queue(stream(16), &[reads()]), []);
}

#[test]
fn launches_of_a_graph_come_one_after_another_and_may_record_events() {
    let mut program = Program::new();
    let submitted = program.made(stream(8), &[writes()], Publishes::Before, &[]);
    program.order.on_launch(77, submitted.clock);
    program.order.before_launch(77, stream(16));
    assert_eq!(program.queue(stream(16), &[writes()]), []);
    program.order.wait(stream(24), 5);
    assert_eq!(program.queue(stream(24), &[writes()]).len(), 1, "what came after the launch");
    let mut program = Program::new();
    let submitted = program.made(stream(8), &[writes()], Publishes::Before, &[]);
    program.order.on_launch(77, submitted.clock);
    program.order.wait(stream(24), 5);
    assert_eq!(program.queue(stream(24), &[writes()]), []);
}

#[test]
fn streams_that_come_and_go_take_the_slots_of_those_that_are_over() {
    let mut program = Program::new();
    for round in 0..1000 {
        let queue = stream(8 + round);
        assert_eq!(program.queue(queue, &[writes()]), []);
        program.synchronize(queue);
        program.order.forget_stream(8 + round);
    }
    assert_eq!(program.order.with(|state| state.slots.len()), 1);
    // One whose work is not over keeps its own.
    program.queue(stream(8), &[writes()]);
    program.order.forget_stream(8);
    assert_eq!(program.queue(stream(8), &[reads()]), [(Level::Race, 1001)]);
    assert_eq!(program.order.with(|state| state.slots.len()), 2);
}

#[test]
fn call_that_fails_leaves_nothing_and_takes_nothing_away() {
    let mut program = Program::new();
    program.queue(stream(8), &[reads()]);
    let submitted = program.submitted(stream(8), &[writes()], Publishes::Nothing, &[]);
    program.order.withdraw(submitted.stamp, &[writes()]);
    assert_eq!(program.queue(stream(16), &[writes()]), [(Level::Race, 1)]);
}

#[test]
fn accesses_that_others_stand_for_are_forgotten() {
    let mut program = Program::new();
    for _ in 0..10_000 {
        program.queue(stream(8), &[writes()]);
        program.queue(stream(8), &[reads()]);
        program.kernel(stream(8), &[access(Kind::Kernel, BUFFER)]);
    }
    let kept = program.order.with(|state| state.memory.get(&BUFFER.start).map_or(0, |memory| memory.kept.len()));
    assert!(kept <= 3, "{kept}");
    assert!(!program.order.has_lost());
    // Of pieces that nothing stands for the oldest go.
    for piece in 0..2 * MOST as u64 {
        let memory = Access { span: Span::bytes(OTHER.start + piece, 1), ..access(Kind::Writes, OTHER) };
        program.queue(stream(8), &[memory]);
    }
    assert!(program.order.has_lost());
}
