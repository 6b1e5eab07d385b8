//! Calls, as far as they matter to order.

use super::enforce;
use super::memory::{ALL_OF_HIP, Found, PARAMETERS, address, memory};
use super::then::{Also, Then};
use crate::api::abi::Value;
use crate::api::{Copies, Effect, Function, Layer, Order as Part, State};
use crate::call::arrival::Caller;
use crate::call::{origin, read, thread};
use crate::model::{Memcpy, Path};
use crate::objects::{OBJECTS, captures, streams};
use crate::os;
use crate::policy::order::{Access, Clock, Kind, Operation, Place, Publishes, Queue, Side, Span};
use crate::policy::{ACCESS, Driver, ORDER};
use crate::real::driver::{self, CaptureStatus, RealDriver};
use crate::real::hip::Library;
use crate::real::stack;
use crate::record::{modules, trace};

pub(super) struct Call<'a> {
    pub(super) function: Function,
    pub(super) caller: Caller,
    pub(super) arguments: &'a [Value],
}

impl Call<'_> {
    pub(super) fn then(&self) -> Option<Then> {
        match self.function.effect() {
            Effect::Copy(_) => self.copy(),
            Effect::Host(_) => self.host_copy(),
            Effect::Copies(Copies::graph) => self.launch(Part::launches_graph),
            Effect::Copies(kind) => self.batch(kind),
            Effect::State(state) => self.state(state),
            Effect::Order(part) => self.part(part),
            Effect::Traced | Effect::Access(_) | Effect::Lookup => None,
        }
    }

    fn part(&self, part: Part) -> Option<Then> {
        Some(match (part, self.arguments) {
            (Part::records_event, &[Value::Address(event), Value::Stream(stream), ..]) => {
                match self.queue(stream) {
                    Some(queue) => Then::Records { event, queue },
                    // In a capture: what the event was recorded for before counts no more.
                    None => Then::ForgetsEvent(event),
                }
            }
            (Part::waits_for_event, &[Value::Stream(stream), Value::Address(event), _]) => {
                Then::Waits { queue: self.queue(stream)?, event }
            }
            (Part::context_waits_for_event, &[Value::Address(context), Value::Address(event)]) => {
                Then::WaitsInContext { context: Some(context), event }
            }
            // Of a green context it is not known which streams are its own.
            (Part::green_context_waits_for_event, &[_, Value::Address(event)]) => {
                Then::WaitsInContext { context: None, event }
            }
            (Part::records_event_of_green_context, &[_, Value::Address(event)]) => {
                Then::RecordsContext { event, context: None }
            }
            (Part::queries_event, &[Value::Address(event)]) => Then::Reaches(ORDER.of_event(event)),
            (Part::queries_stream, &[Value::Stream(stream)]) => Then::Reaches(ORDER.of_stream(self.queue(stream)?)),
            // Before another thread may get the handle anew.
            (Part::destroys_event, &[Value::Address(event)]) => {
                ORDER.forget_event(event);
                return None;
            }
            (Part::exports_event, &[Value::Address(handle), Value::Address(event)]) => {
                Then::SharesEvent { event, handle }
            }
            (Part::opens_event, &[Value::Address(out), Value::Address(handle)]) => Then::OpensEvent { out, handle },
            (Part::sets_memory, &[Value::Address(start), ref rest @ ..]) => self.set(start as u64, rest)?,
            (Part::allocates_memory, &[Value::Address(out), .., Value::Stream(stream)]) => {
                Then::Allocates { queue: Some(self.queue(stream)?), out }
            }
            (Part::allocates_at_once, &[Value::Address(out), ..]) => Then::Allocates { queue: None, out },
            _ => return self.launch(part),
        })
    }

    /// Kernels, graphs and functions of the host.
    fn launch(&self, part: Part) -> Option<Then> {
        Some(match (part, self.arguments) {
            (Part::calls_host, &[Value::Stream(stream), ..]) => {
                self.queued(self.queue(stream)?, Vec::new(), Publishes::Before, Also::Nothing)
            }
            (Part::launches_graph, &[Value::Address(exec), Value::Stream(stream)]) => self.graph(exec, stream)?,
            (Part::launches, arguments) => {
                let stream = arguments.iter().find_map(|value| match *value {
                    Value::Stream(stream) => Some(stream),
                    _ => None,
                })?;
                let parameters = match *arguments {
                    [Value::Address(kernel), .., Value::Stream(_), Value::Address(parameters)]
                    | [Value::Address(kernel), .., Value::Stream(_), Value::Address(parameters), Value::Address(0)]
                        if self.function.layer() == Layer::Driver =>
                    {
                        Some((kernel, parameters))
                    }
                    _ => None,
                };
                self.kernel(stream, parameters)?
            }
            (
                Part::launches_configured,
                &[Value::Address(config), Value::Address(kernel), Value::Address(parameters), Value::Address(extra)],
            ) => {
                // The stream is behind the six sizes and the bytes of shared memory.
                let stream = read::word_at(config + 32)?;
                self.kernel(stream, (extra == 0).then_some((kernel, parameters)))?
            }
            // On a stream of each device, which are not looked for.
            (Part::launches_on_devices, _) => {
                ORDER.publish_all();
                return None;
            }
            (Part::allocates_memory | Part::allocates_at_once, _) if self.function.layer() == Layer::Hip => {
                return None;
            }
            _ => return self.signal(part),
        })
    }

    /// Values in memory and semaphores, by which streams wait for each other, and for others.
    fn signal(&self, part: Part) -> Option<Then> {
        Some(match (part, self.arguments) {
            (Part::waits_for_value, &[Value::Stream(stream), Value::Address(address), ..]) => {
                Then::WaitsForSignal { queue: self.queue(stream)?, address: Some(address as u64) }
            }
            (Part::waits_for_signals, &[.., Value::Stream(stream)]) => {
                Then::WaitsForSignal { queue: self.queue(stream)?, address: None }
            }
            (Part::writes_value, &[Value::Stream(stream), Value::Address(address), ..]) => {
                self.queued(self.queue(stream)?, Vec::new(), Publishes::Before, Also::Signals(Some(address as u64)))
            }
            // Waits among them count as for anything: what comes behind may come behind all that was told of.
            (Part::makes_memory_operations, &[Value::Stream(stream), ..]) => {
                ORDER.wait_for_signal(self.queue(stream)?, Some(0));
                self.queued(self.queue(stream)?, Vec::new(), Publishes::Before, Also::Signals(None))
            }
            (Part::signals, &[.., Value::Stream(stream)]) => {
                self.queued(self.queue(stream)?, Vec::new(), Publishes::Before, Also::Signals(None))
            }
            _ => return None,
        })
    }

    fn state(&self, state: State) -> Option<Then> {
        if ends_kernels(state) || self.function == Function::cuLibraryUnload {
            os::lock(&PARAMETERS).clear();
        }
        let is_hip = self.function.layer() == Layer::Hip;
        Some(match (state, self.arguments) {
            (State::waits_for_stream, &[Value::Stream(stream)]) => Then::Reaches(ORDER.of_stream(self.queue(stream)?)),
            (State::waits, &[Value::Stream(stream)]) => Then::Reaches(ORDER.of_stream(self.queue(stream)?)),
            (State::waits, &[Value::Address(event)]) => Then::Reaches(ORDER.of_event(event)),
            // Of HIP's current device it is not known which it is.
            (State::waits, _) if is_hip => Then::Reaches(ORDER.of_context(None)),
            (State::waits_for_context, &[Value::Address(context)])
                if self.function == Function::cuCtxSynchronize_v2 && context != 0 =>
            {
                Then::Reaches(ORDER.of_context(Some(context)))
            }
            // A capture of HIP: meanwhile nothing is seen, and all before and after it counts as ordered.
            (State::begins_capture | State::ends_capture, _) if is_hip => Then::Reaches(ORDER.of_context(None)),
            (State::sets_limit, _) => Then::Reaches(ORDER.of_context(Some(current()?))),
            (State::unloads_module, _) => Then::Reaches(ORDER.of_context(Some(current()?))),
            (State::waits_for_context | State::loads_module | State::destroys_array | State::creates_context, _) => {
                Then::Reaches(ORDER.of_context(Some(current()?)))
            }
            (State::records_event_of_context, &[Value::Address(context), Value::Address(event)]) => {
                Then::RecordsContext { event, context: Some(context) }
            }
            // Of HIP's memory it is not known where it ends.
            (State::frees_memory, &[_, Value::Stream(stream)]) if is_hip => {
                self.queued(self.queue(stream)?, Vec::new(), Publishes::Nothing, Also::Nothing)
            }
            (State::frees_memory, &[start, Value::Stream(stream)]) => {
                let memory = self.memory(address(start)?)?;
                let span = Span { start: memory.range.start, end: memory.range.end, rows: None };
                let access = Access { memory: memory.range, span, kind: Kind::Frees, device: memory.device };
                self.queued(self.queue(stream)?, vec![access], Publishes::Nothing, Also::Nothing)
            }
            // A copy by a handle waits for what its process has queued, as a free does.
            (State::frees_memory, &[start, ..]) => self.release(address(start)?, None, !is_hip)?,
            (State::unmaps_memory, &[start]) => self.release(address(start)?, None, true)?,
            (State::unmaps_memory, &[start, Value::UInt(bytes)]) => {
                self.release(address(start)?, Some(bytes), false)?
            }
            (State::creates_stream | State::creates_green_stream, &[Value::Address(out), ..]) => {
                Then::CreatesStream(out)
            }
            (State::destroys_stream, &[Value::Stream(stream)]) => {
                ORDER.forget_stream(stream);
                return None;
            }
            (State::destroys_context, &[Value::Address(context)]) => {
                Then::ForgetsContext { context: Some(context), is_reset: false }
            }
            (State::resets_primary_context | State::releases_primary_context, &[Value::Ordinal(device)]) => {
                let context = RealDriver.primary_context(device)?;
                if state == State::releases_primary_context {
                    Then::Reaches(Clock::new())
                } else {
                    Then::ForgetsContext { context: Some(context), is_reset: true }
                }
            }
            (State::resets_device, _) => Then::ForgetsContext { context: None, is_reset: true },
            _ => return self.object(state),
        })
    }

    /// Graphs, and memory that processes share.
    fn object(&self, state: State) -> Option<Then> {
        Some(match (state, self.arguments) {
            (State::instantiates_graph, &[Value::Address(out), Value::Address(graph), ..]) => {
                Then::Instantiates { out, races: Self::races_within(graph)? }
            }
            // Its nodes may copy other memory now.
            (State::updates_graph | State::sets_graph_node, &[Value::Address(exec), ..]) => {
                ORDER.take_races_within(exec);
                return None;
            }
            (State::destroys_graph, &[Value::Address(exec)]) => {
                ORDER.forget_graph(exec);
                return None;
            }
            (State::exports_memory, &[Value::Address(handle), Value::Address(address)])
                if self.function == Function::cuIpcGetMemHandle =>
            {
                Then::SharesMemory { address: address as u64, handle }
            }
            (State::opens_memory, &[Value::Address(out), Value::Address(handle), _]) => {
                Then::OpensMemory { out, handle }
            }
            _ => return None,
        })
    }

    /// Memory is freed or unmapped; `waits` says whether the call waits for the work of its context.
    fn release(&self, start: u64, bytes: Option<u64>, waits: bool) -> Option<Then> {
        let found = if self.function.layer() == Layer::Hip { None } else { memory(start) };
        let end = match (bytes, &found) {
            (Some(bytes), _) => start.saturating_add(bytes),
            (None, Some(found)) => found.range.end,
            (None, None) => start.saturating_add(1),
        };
        let is_of_pool = found.as_ref().is_some_and(|found| found.is_of_pool);
        let context = match self.function.layer() {
            Layer::Hip => None,
            _ => found.and_then(|found| found.context).or_else(|| RealDriver.context_of_memory(start)).or_else(current),
        };
        // Memory of a pool goes at once.
        let clock = match (waits && !is_of_pool) || self.function.layer() == Layer::Hip {
            true => ORDER.of_context(context),
            false => Clock::new(),
        };
        let by = Side { kind: Kind::Frees, function: self.named(), place: self.place(), queue: None };
        let races = ORDER.before_release(start, end, &clock, by);
        let memory = (self.function.layer() != Layer::Hip).then_some(start..end);
        Some(Then::Releases { memory, races, clock })
    }

    pub(super) fn memory(&self, address: u64) -> Option<Found> {
        if self.function.layer() == Layer::Hip { Some(ALL_OF_HIP) } else { memory(address) }
    }

    // ---- Operations ----

    pub(super) fn queued(&self, queue: Queue, accesses: Vec<Access>, publishes: Publishes, also: Also) -> Then {
        self.queued_with(queue, Parts { accesses, ..Parts::default() }, publishes, also)
    }

    pub(super) fn queued_with(&self, queue: Queue, parts: Parts, publishes: Publishes, also: Also) -> Then {
        let place = if parts.accesses.is_empty() { Place { site: 0, address: 0 } } else { self.place() };
        self.queued_at(queue, parts, publishes, also, place)
    }

    pub(super) fn queued_at(&self, queue: Queue, parts: Parts, publishes: Publishes, also: Also, place: Place) -> Then {
        let Parts { accesses, with, work_of } = parts;
        let operation = Operation {
            queue,
            with: if matches!(queue, Queue::Legacy { .. }) { &with } else { &[] },
            accesses: &accesses,
            work_of: &work_of,
            publishes,
            function: self.named(),
            place,
        };
        let mark = if enforce::is_on() && !accesses.is_empty() { Some((queue, place)) } else { None };
        if mark.is_some() {
            enforce::order(&operation, self.caller, self.library());
        }
        let submitted = ORDER.submit(&operation);
        let mark = mark.map(|mark| (mark, self.library()));
        Then::Queued { submitted, accesses, also, mark }
    }

    /// The HIP whose function it is.
    fn library(&self) -> Option<Library> {
        (self.function.layer() == Layer::Hip).then_some(())?;
        Library::of(self.caller.real(self.function)?.as_ptr())
    }

    /// The contexts of both endpoints: on a legacy default stream a copy between devices is ordered with the default streams of both.
    pub(super) fn sides(&self, copy: &Memcpy<'_>) -> Vec<usize> {
        if self.function.layer() == Layer::Hip {
            return Vec::new();
        }
        let ends = ACCESS.ends(&RealDriver, copy).unwrap_or_default();
        ends.into_iter().filter(|&context| context != 0).collect()
    }

    /// The contexts for which a copy between devices is work: those of both endpoints, unless it is direct by the program's own will.
    pub(super) fn work_of(&self, copy: &Memcpy<'_>, sides: &[usize]) -> Vec<usize> {
        let is_direct = || {
            let traffic = ACCESS.traffic_now(&RealDriver, copy);
            traffic.is_some_and(|traffic| !traffic.keeps_waits() && traffic.path == Path::Direct)
        };
        if sides.len() < 2 || is_direct() { Vec::new() } else { sides.to_vec() }
    }

    /// The stream that a handle names; none while it is captured, since nothing is queued then, or if no context is current.
    pub(super) fn queue(&self, handle: usize) -> Option<Queue> {
        let per_thread = self.function.per_thread();
        if self.function.layer() == Layer::Hip {
            let is_captured = captures::may_be_under_way();
            let stream = streams::Stream::new(handle, per_thread, thread::id());
            return (!is_captured).then_some(match stream {
                streams::Stream::Created(handle) => Queue::Created { handle, context: 0, is_blocking: true },
                streams::Stream::Legacy => Queue::Legacy { context: 0 },
                streams::Stream::PerThread(thread) => Queue::PerThread { context: 0, thread },
            });
        }
        if captures::may_be_under_way() && driver::capture_status(handle, per_thread) != Some(CaptureStatus::None) {
            return None;
        }
        Some(match streams::Stream::new(handle, per_thread, thread::id()) {
            streams::Stream::Created(handle) => {
                if let Some(known) = ORDER.known_queue(handle) {
                    return Some(known);
                }
                let context = RealDriver.stream_context(handle, per_thread).unwrap_or(0);
                // If it is not known, it counts as ordered by the default stream: so nothing is said that is not so.
                let is_blocking = OBJECTS.streams.there(handle).is_none_or(|known| !known.non_blocking);
                Queue::Created { handle, context, is_blocking }
            }
            streams::Stream::Legacy => Queue::Legacy { context: current()? },
            streams::Stream::PerThread(thread) => Queue::PerThread { context: current()?, thread },
        })
    }

    /// The function that the program has called: a runtime's, if that makes the call, and p2pshim sees it.
    pub(super) fn named(&self) -> Function {
        thread::current().enclosing_function(self.caller.stack()).unwrap_or(self.function)
    }

    /// The place of the call in the program.
    pub(super) fn place(&self) -> Place {
        let address = self.caller.program_address() as usize;
        let Some(trace) = trace::file() else { return Place { site: 0, address } };
        let site = origin::of_untraced(self.caller, self.function, true)
            .or_else(|| trace.known_site(address))
            .unwrap_or_else(|| trace.new_site(address));
        let place = Place { site, address };
        if ORDER.wants_name(place) {
            let callers =
                if self.caller.has_looked_up(self.function) { stack::callers(self.caller.stack()) } else { Vec::new() };
            modules::caller_of(address, &callers).into_iter().for_each(|name| ORDER.set_name(place, name));
        }
        place
    }
}

/// Whether handles of kernels may come again after such a call.
fn ends_kernels(state: State) -> bool {
    use State::{destroys_context, releases_primary_context, resets_primary_context, unloads_module};
    matches!(state, unloads_module | destroys_context | releases_primary_context | resets_primary_context)
}

fn current() -> Option<usize> {
    RealDriver.current_context()
}

/// So many bytes may be a flag.
pub(super) const FLAG: u64 = 64;

/// The memory and contexts that an operation touches.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) accesses: Vec<Access>,
    /// Contexts with default streams that it is ordered with, if it is on one.
    pub(super) with: Vec<usize>,
    /// Contexts for which it is work.
    pub(super) work_of: Vec<usize>,
}
