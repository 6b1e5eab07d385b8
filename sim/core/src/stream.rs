//! Streams: queues of work, each carried out in order by a thread of its own while there is any.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::fence::{Fence, lock, now, wait_all};
use crate::ids::{ContextId, StreamHandle, StreamId};
use crate::os;
use crate::work::{Places, Work, delay};

/// A worker that has had nothing to do for so long ends; the next work starts another.
const IDLE: Duration = Duration::from_millis(200);

thread_local! {
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread carries out a stream's work, so that it is inside a host function of the program.
pub fn on_worker() -> bool {
    IS_WORKER.get()
}

/// Which role a stream has in the order of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The legacy default stream: waits for, and blocks, all blocking streams of its context.
    Legacy,
    /// Ordered with the legacy default stream.
    Blocking,
    /// Ordered with nothing.
    NonBlocking,
}

struct Item {
    /// Its place among the work of the stream.
    number: u64,
    after: Vec<Arc<Fence>>,
    /// It begins no earlier, by the modelled clock.
    floor: Duration,
    work: Work,
    done: Arc<Fence>,
}

struct Queue {
    items: VecDeque<Item>,
    tail: Arc<Fence>,
    /// The modelled time of the last item that was carried out.
    clock: Duration,
    has_worker: bool,
    /// Items so far.
    count: u64,
    /// How far this stream's work comes after other streams': the last item of each that it has waited for.
    follows: HashMap<StreamId, u64>,
    /// Whether an item is being carried out.
    is_running: bool,
}

impl Queue {
    fn waits(&self) -> bool {
        self.is_running || self.items.is_empty()
    }

    /// Takes the next item if it can be carried out at once.
    fn take_prompt(&mut self) -> Option<Item> {
        let is_prompt = |item: &Item| item.work.is_prompt() && item.after.iter().all(|fence| fence.is_done());
        let item = if self.is_running { None } else { self.items.pop_front_if(|item| is_prompt(item)) };
        self.is_running |= item.is_some();
        item
    }
}

/// A stream of a context.
pub(crate) struct Stream {
    /// Never used twice.
    pub id: StreamId,
    /// The program's handle of it.
    pub handle: StreamHandle,
    /// Its context.
    pub context: ContextId,
    /// Its role.
    pub role: Role,
    /// As it was created with.
    pub priority: i32,
    queue: Mutex<Queue>,
    filled: Condvar,
}

impl Stream {
    /// An idle stream.
    pub(crate) fn new(handle: StreamHandle, context: ContextId, role: Role, priority: i32) -> Arc<Stream> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let id = StreamId(LAST.fetch_add(1, Ordering::Relaxed) + 1);
        let (items, tail, clock) = (VecDeque::new(), Fence::reached(), Duration::ZERO);
        let queue =
            Queue { items, tail, clock, has_worker: false, count: 0, follows: HashMap::new(), is_running: false };
        Arc::new(Stream { id, handle, context, role, priority, queue: Mutex::new(queue), filled: Condvar::new() })
    }

    /// Appends work that starts when the stream's earlier work and all of `after` are done; returns its fence.
    pub(crate) fn submit(self: &Arc<Self>, mut after: Vec<Arc<Fence>>, work: Work) -> Result<Arc<Fence>> {
        let mut queue = lock(&self.queue);
        if !queue.has_worker {
            self.start_worker()?;
            queue.has_worker = true;
        }
        let floor = after.iter().filter_map(|fence| fence.done_at()).fold(now(), Duration::max);
        for (stream, number) in after.iter().filter_map(|fence| fence.place()) {
            let last = queue.follows.entry(stream).or_default();
            *last = number.max(*last);
        }
        after.retain(|fence| !fence.is_done());
        queue.count += 1;
        let number = queue.count;
        let done = Fence::of(self.id, number);
        queue.tail = Arc::clone(&done);
        queue.items.push_back(Item { number, after, floor, work, done: Arc::clone(&done) });
        self.filled.notify_one();
        Ok(done)
    }

    /// The places that are taken by work that was not begun.
    pub(crate) fn taken(&self) -> Places {
        lock(&self.queue).items.iter().map(|item| item.work.places()).sum()
    }

    /// Whether all work submitted from now on comes after a fence, by the order of this stream or a wait of it.
    pub(crate) fn is_after(&self, fence: &Fence, counts_waits: bool) -> bool {
        let Some((stream, number)) = fence.place() else { return false };
        let follows = || lock(&self.queue).follows.get(&stream).is_some_and(|last| *last >= number);
        stream == self.id || (counts_waits && follows())
    }

    /// The fence of the last work that was submitted.
    pub(crate) fn tail(&self) -> Arc<Fence> {
        Arc::clone(&lock(&self.queue).tail)
    }

    fn start_worker(self: &Arc<Self>) -> Result<()> {
        let stream = Arc::clone(self);
        let builder = thread::Builder::new().name("p2psim-stream".to_owned());
        // Nobody joins it: at exit of the process it ends wherever it is, as a GPU's work does.
        os::without_signals(|| builder.spawn(move || stream.work())).map(drop).map_err(|_| Error::OPERATING_SYSTEM)
    }

    fn work(&self) {
        IS_WORKER.set(true);
        while let Some(item) = self.next() {
            wait_all(&item.after);
            self.carry_out(&item);
        }
    }

    /// Does work on the calling thread that takes no time and could be done by now. A thread that asks again and again whether work is done
    /// has kept the worker from a processor, perhaps; a GPU has its own.
    pub(crate) fn help(&self) {
        os::without_signals(|| {
            while let Some(item) = { lock(&self.queue).take_prompt() } {
                self.carry_out(&item);
            }
        });
    }

    fn carry_out(&self, item: &Item) {
        let delay = if item.work.is_nothing() { Duration::ZERO } else { delay(self.id.0, item.number) };
        os::pause(delay);
        let took = delay + item.work.run();
        let begin = item.after.iter().filter_map(|fence| fence.done_at()).fold(item.floor, Duration::max);
        let mut queue = lock(&self.queue);
        queue.is_running = false;
        queue.clock = queue.clock.max(begin) + took;
        item.done.signal_at(queue.clock);
        drop(queue);
        self.filled.notify_one();
    }

    /// Waits for an item; there is none if nothing came for long.
    fn next(&self) -> Option<Item> {
        let mut queue = lock(&self.queue);
        loop {
            let waited = self.filled.wait_timeout_while(queue, IDLE, |queue| queue.waits());
            let timeout;
            (queue, timeout) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
            if !timeout.timed_out() || queue.items.is_empty() && !queue.is_running {
                break;
            }
        }
        let item = queue.items.pop_front();
        queue.has_worker = item.is_some();
        queue.is_running = item.is_some();
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn stream() -> Arc<Stream> {
        Stream::new(StreamHandle(1), ContextId(1), Role::NonBlocking, 0)
    }

    fn host(function: impl Fn() + Send + Sync + 'static) -> Work {
        Work::Host(Arc::new(function))
    }

    #[test]
    fn submit_runs_in_order_and_returns_at_once() {
        let stream = stream();
        let gate = Fence::pending();
        let (sender, log) = mpsc::channel();
        for number in 0..3 {
            let sender = sender.clone();
            stream.submit(vec![Arc::clone(&gate)], host(move || sender.send(number).unwrap())).unwrap();
        }
        assert!(log.try_recv().is_err());
        assert!(!stream.tail().is_done());
        gate.signal();
        stream.tail().wait();
        assert_eq!(log.try_iter().collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn submit_after_the_worker_has_gone_starts_another() {
        let stream = stream();
        stream.submit(vec![], Work::Nothing).unwrap().wait();
        thread::sleep(IDLE * 2);
        assert!(!lock(&stream.queue).has_worker);
        stream.submit(vec![], Work::Nothing).unwrap().wait();
    }

    #[test]
    fn help_does_what_can_be_done_at_once() {
        let stream = stream();
        let gate = Fence::pending();
        stream.submit(vec![Arc::clone(&gate)], Work::Nothing).unwrap();
        stream.help();
        assert!(!stream.tail().is_done());
        gate.signal();
        stream.tail().wait();

        let stream = self::stream();
        // No worker takes anything.
        lock(&stream.queue).has_worker = true;
        let prompt = stream.submit(vec![], Work::Nothing).unwrap();
        let function = stream.submit(vec![], host(|| ())).unwrap();
        let behind = stream.submit(vec![], Work::Nothing).unwrap();
        assert!(!prompt.is_done());
        stream.help();
        assert_eq!([prompt, function, behind].map(|fence| fence.is_done()), [true, false, false]);
    }

    #[test]
    fn on_worker_only_inside_host_functions() {
        let (sender, seen) = mpsc::channel();
        stream().submit(vec![], host(move || sender.send(on_worker()).unwrap())).unwrap().wait();
        assert!(seen.recv().unwrap());
        assert!(!on_worker());
    }
}
