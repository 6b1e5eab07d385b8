//! Edges that are added where an earlier run raced (`P2PSHIM_ORDER=enforce`, `P2PSHIM_RACES`).
//!
//! Behind an operation at the first place of such a race an event is recorded. Before one at the second place is queued, it is compared with what is kept;
//! if it races with an operation that has such an event, its stream waits for the event first. So an edge is added only where this run, too, lacks it,
//! and each makes a stream wait for work that was queued before. A stream that waits for its own later work would need a wait of the host between, by a
//! value in memory or a semaphore: behind such a wait no event is recorded. (A function of the host must not wait for other work, as CUDA says.)
//! A kernel that waits for another kernel by memory is not seen to: with such kernels an added wait may hang the program, as ORDER.md says.
//!
//! An operation of another process has no event of ours: there the stream waits for the program's own, if it was opened here, and was last recorded behind
//! the operation.
//!
//! Nothing waits on the host, nothing is added while anything is captured, and neither possible races nor memory that is freed get an edge.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use p2pshim_host::races::{self, Pairs};

use super::say::say;
use crate::call::arrival::Caller;
use crate::config::{self, Config};
use crate::objects::captures;
use crate::objects::streams::{LEGACY, PER_THREAD};
use crate::os;
use crate::policy::order::{Clock, Level, Operation, Place, Queue, Race, Stamp, Submitted};
use crate::policy::waits::Context;
use crate::policy::{Driver, ORDER};
use crate::real::driver::{RealDriver, waits};
use crate::real::hip::Library;
use crate::record::modules;

/// Whether edges are added.
pub(super) static IS_ON: AtomicBool = AtomicBool::new(false);

pub(super) fn is_on() -> bool {
    IS_ON.load(Relaxed)
}

/// An event behind an operation. It is destroyed once nobody is about to wait for it.
struct Event {
    of: Stamp,
    clock: Clock,
    event: usize,
    context: Context,
    library: Option<Library>,
}

impl Drop for Event {
    fn drop(&mut self) {
        match self.library {
            Some(library) => library.drop_event(self.event),
            None if RealDriver.context_id(self.context.0) == Some(self.context.1) => {
                waits::drop_mark(self.context.0, self.event);
            }
            None => {}
        }
    }
}

struct Edges {
    pairs: Pairs,
    /// By address.
    places: HashMap<usize, String>,
    events: VecDeque<Arc<Event>>,
}

/// Events that are kept. Beyond, the oldest go; a race with an access before them stays a race, and is reported.
const MOST: usize = 256;

static EDGES: Mutex<Option<Edges>> = Mutex::new(None);

fn with<T>(work: impl FnOnce(&mut Edges) -> T) -> T {
    work(os::lock(&EDGES).get_or_insert_with(Edges::read))
}

/// An operation is about to be queued. The library is that of HIP, if it is HIP's.
pub(super) fn order(operation: &Operation<'_>, caller: Caller, library: Option<Library>) {
    let mut ordered = Clock::new();
    for race in ORDER.races_of(operation).into_iter().filter(|race| race.level == Level::Race) {
        if ordered.has(race.stamp) || captures::may_be_under_way() {
            continue;
        }
        let Some((event, clock, _kept)) = with(|edges| edges.event_behind(&race)) else { continue };
        if waits_for(operation.queue, event, library) {
            ORDER.order_behind(operation.queue, &clock);
            ordered.join(&clock);
            say(&Race { level: Level::Enforced, ..race }, caller);
        }
    }
}

/// An operation was queued.
pub(super) fn mark((queue, place): (Queue, Place), submitted: &Submitted, library: Option<Library>) {
    if captures::may_be_under_way() || !with(|edges| edges.is_first(place)) {
        return;
    }
    if ORDER.waits_for_host(&submitted.clock) {
        static IS_SAID: AtomicBool = AtomicBool::new(false);
        if !IS_SAID.swap(true, Relaxed) {
            log::warn!(
                "P2PSHIM_ORDER=enforce adds no wait for work behind a wait for a value in memory or a semaphore: the host may have to write that first"
            );
        }
        return;
    }
    let Some((event, context)) = recorded(queue, library) else { return };
    let made = Arc::new(Event { of: submitted.stamp, clock: submitted.clock.clone(), event, context, library });
    let old = with(|edges| {
        edges.events.push_back(made);
        if edges.events.len() > MOST { edges.events.pop_front() } else { None }
    });
    // Without the lock: the driver may be asked to destroy it.
    drop(old);
}

impl Edges {
    fn read() -> Self {
        let (config, _) = Config::read(os::environment(config::PREFIX));
        let read = |folder| fs::read_to_string(Path::new(&folder).join(races::FILE));
        let text = config.races.map(read).and_then(Result::ok).unwrap_or_default();
        Self { pairs: races::parse(&text), places: HashMap::new(), events: VecDeque::new() }
    }

    fn place(&mut self, Place { address, .. }: Place) -> &str {
        self.places.entry(address).or_insert_with(|| modules::place(address).unwrap_or_default())
    }

    fn is_first(&mut self, place: Place) -> bool {
        let place = self.place(place).to_owned();
        self.pairs.iter().any(|[first, _]| *first == place)
    }

    /// The event behind the first access of a race that is to end, all that comes before it, and what keeps it from being destroyed.
    fn event_behind(&mut self, race: &Race) -> Option<(usize, Clock, Option<Arc<Event>>)> {
        let other = ORDER.of_other(&race.first).map(|(_, place)| place);
        let is_other = other.is_some();
        let first = match other {
            Some(place) => place.rsplit('/').next().unwrap_or_default().to_owned(),
            None => self.place(race.first.place).to_owned(),
        };
        let pair = [first, self.place(race.second.place).to_owned()];
        self.pairs.contains(&pair).then_some(())?;
        if is_other {
            return ORDER.event_behind(race.stamp).map(|(event, clock)| (event, clock, None));
        }
        // Any later event serves as well, if its context is there.
        let is_behind = |event: &Event| event.of == race.stamp || event.clock.has(race.stamp);
        let is_there =
            |event: &Event| event.library.is_some() || RealDriver.context_id(event.context.0) == Some(event.context.1);
        let event = self.events.iter().find(|event| is_behind(event) && is_there(event))?;
        Some((event.event, event.clock.clone(), Some(Arc::clone(event))))
    }
}

/// A stream, as functions take it; HIP has no name of the default stream of all threads.
fn handle(queue: Queue, is_hip: bool) -> usize {
    match queue {
        Queue::Created { handle, .. } => handle,
        Queue::Legacy { .. } if is_hip => 0,
        Queue::Legacy { .. } => LEGACY,
        Queue::PerThread { .. } | Queue::Foreign { .. } | Queue::Node { .. } => PER_THREAD,
    }
}

/// A new event, behind all that a stream has to do.
fn recorded(queue: Queue, library: Option<Library>) -> Option<(usize, Context)> {
    if let Some(library) = library {
        return Some((library.record_event(handle(queue, true))?, (0, 0)));
    }
    let context = (queue.context(), RealDriver.context_id(queue.context())?);
    let event = RealDriver.new_event(context)?;
    if RealDriver.record(event, handle(queue, false)) {
        return Some((event, context));
    }
    waits::drop_mark(context.0, event);
    None
}

/// Has a stream wait for an event. Whether it does.
fn waits_for(queue: Queue, event: usize, library: Option<Library>) -> bool {
    match library {
        Some(library) => library.wait_for_event(handle(queue, true), event),
        None => waits::wait_on_stream(handle(queue, false), event),
    }
}
