//! Calls that queue work: copies, memsets, kernels and graphs, with what each touches.

use super::calls::{Call, FLAG, Parts};
use super::memory::{ALL_OF_HIP, Found, memory, spans, with_parameters};
use super::then::{Also, Then};
use crate::api::abi::Value;
use crate::api::{Copies, Layer};
use crate::call::read::{self, BatchArrays};
use crate::call::room::Room;
use crate::model::{Memcpy, Request};
use crate::policy::driver::NodeCopy;
use crate::policy::order::{Access, Kind, Place, Publishes, Queue, Race, Side, Span, races_within};
use crate::policy::{Driver, GRAPHS, ORDER};
use crate::real::driver::RealDriver;
use crate::record::trace;

impl Call<'_> {
    pub(super) fn copy(&self) -> Option<Then> {
        let mut room = Room::new();
        let request = match self.function.is_regular() {
            true => Request::regular(self.function, self.arguments, |arguments| room.regular_parameters(arguments)),
            false => Request::new(self.function, self.arguments, |of| room.parameters(of)),
        };
        match request.copy() {
            Some(copy) => self.copy_of(copy),
            // It says that the host takes part.
            None => self.host_copy(),
        }
    }

    fn copy_of(&self, copy: &Memcpy<'_>) -> Option<Then> {
        let stream = copy.stream.unwrap_or(0);
        // Nothing is asked about a copy that becomes part of a graph.
        let queue = self.queue(stream)?;
        let ends = match self.function.layer() {
            Layer::Hip => self.ends_of_hip(),
            _ => [copy.src, copy.dst].map(memory),
        };
        let is_host = |end: &Option<Found>| end.as_ref().is_none_or(|found| found.is_host);
        let [of_host, to_host] = [0, 1].map(|end| ends.get(end).is_none_or(is_host));
        let is_pageable = ends.last().is_none_or(Option::is_none);
        let accesses = ends.iter().zip(spans(copy)).zip([Kind::Reads, Kind::Writes]);
        // A source that is read during the call is read when it returns.
        let is_later = read::may_be_put_off(self.function, self.arguments);
        let accesses = accesses
            .skip(if is_later { 0 } else { 1 })
            .filter_map(|((end, span), kind)| Some(end.as_ref()?.access(span?, kind)))
            .collect();
        // A copy with the host returns when it is done, if it is synchronous, or if the memory is pageable and written.
        let waits = copy.stream.is_none() && (of_host || to_host) || to_host && is_pageable;
        let sides = self.sides(copy);
        let parts = Parts { accesses, work_of: self.work_of(copy, &sides), with: sides };
        // A few bytes may be a flag that says that all before is done.
        let publishes = if to_host || copy.bytes <= FLAG { Publishes::Before } else { Publishes::Nothing };
        Some(self.queued_with(queue, parts, publishes, if waits { Also::Reaches } else { Also::Nothing }))
    }

    /// The ends of a copy of HIP that are memory of a device, as the function and its arguments say. HIP is not asked: that could leave an error pending.
    fn ends_of_hip(&self) -> [Option<Found>; 2] {
        let kind = self.arguments.iter().find_map(|value| match *value {
            Value::MemcpyKind(kind) => Some(kind),
            _ => None,
        });
        // `hipMemcpyHostToHost`, `…HostToDevice`, `…DeviceToHost`; `hipMemcpyDefault` says nothing.
        let are_devices = match kind {
            Some(0 | 4) => [false; 2],
            Some(1) => [false, true],
            Some(2) => [true, false],
            _ => [true; 2],
        };
        are_devices.map(|is_device| is_device.then_some(ALL_OF_HIP))
    }

    /// A copy between the host and a device in one dimension.
    pub(super) fn host_copy(&self) -> Option<Then> {
        let [Value::Address(dst), Value::Address(src), Value::UInt(bytes), ref rest @ ..] = *self.arguments else {
            return None;
        };
        let stream = match *rest {
            [.., Value::Stream(stream)] => Some(stream),
            _ => None,
        };
        self.copy_of(&Memcpy { stream, ..Memcpy::linear(src as u64, dst as u64, bytes) })
    }

    pub(super) fn batch(&self, kind: Copies) -> Option<Then> {
        let &[.., Value::Stream(stream)] = self.arguments else { return None };
        let queue = self.queue(stream)?;
        let arrays = BatchArrays::of(kind, self.arguments).filter(BatchArrays::are_there)?;
        // SAFETY: they are there.
        let (copies, is_later) = unsafe { (arrays.copies().collect(), arrays.may_be_put_off(self.arguments)) };
        Some(self.copies(queue, copies, is_later, Also::Nothing))
    }

    /// Several copies without a shape, which are one operation. Any of them may be with the host.
    fn copies(&self, queue: Queue, copies: Vec<Memcpy<'_>>, read_later: bool, also: Also) -> Then {
        // In a graph something may come behind the copies that tells of them.
        let publishes = if let Also::Launches(_) = also { Publishes::Itself } else { Publishes::Before };
        let (mut accesses, mut work_of) = (Vec::new(), Vec::new());
        for copy in &copies {
            // Sources that are read during the call are read when it returns.
            let src = Some((copy.src, Kind::Reads)).filter(|_| read_later);
            let ends = src.into_iter().chain([(copy.dst, Kind::Writes)]);
            let known = ends.filter_map(|(end, kind)| Some((end, kind, self.memory(end)?)));
            accesses.extend(known.map(|(end, kind, found)| found.access(Span::bytes(end, copy.bytes), kind)));
            work_of.extend(self.work_of(copy, &self.sides(copy)));
        }
        self.queued_with(queue, Parts { accesses, with: Vec::new(), work_of }, publishes, also)
    }

    pub(super) fn graph(&self, exec: usize, stream: usize) -> Option<Then> {
        let queue = self.queue(stream)?;
        ORDER.before_launch(exec, queue);
        let copies = GRAPHS.copied(exec).into_iter().map(|(src, dst, bytes)| Memcpy::linear(src, dst, bytes)).collect();
        let mut then = self.copies(queue, copies, true, Also::Launches(exec));
        let within = ORDER.take_races_within(exec);
        if let (Then::Queued { submitted, .. }, false) = (&mut then, within.is_empty()) {
            let site = self.place().site;
            let at = |side: Side| Side { place: Place { site, ..side.place }, function: self.named(), ..side };
            let within = within.into_iter().map(|race| Race { first: at(race.first), second: at(race.second), ..race });
            submitted.races.extend(within);
        }
        Some(then)
    }

    /// The races between copies of a graph that is about to be instantiated.
    pub(super) fn races_within(graph: usize) -> Option<Vec<Race>> {
        let (nodes, edges) = RealDriver.graph_order(graph)?;
        let mut accesses = Vec::new();
        for NodeCopy { within, parameters, .. } in RealDriver.graph_copies(graph)? {
            let copy = Memcpy::of_driver(&parameters, None).regular();
            let ends = [(copy.src, Kind::Reads), (copy.dst, Kind::Writes)].into_iter().zip(spans(&copy));
            let known = ends.filter_map(|((end, kind), span)| Some((within, memory(end)?.access(span?, kind))));
            accesses.extend(known);
        }
        let races = races_within(&nodes, &edges, &accesses);
        if races.is_none() {
            ORDER.note_lost();
        }
        races
    }

    /// A kernel, and the addresses among its parameters.
    pub(super) fn kernel(&self, stream: usize, parameters: Option<(usize, usize)>) -> Option<Then> {
        let queue = self.queue(stream)?;
        let of = |(kernel, at)| {
            with_parameters(kernel, |parameters| {
                let found = read::kernel_addresses(at, parameters.iter().map(|parameter| parameter.bytes));
                let is_constant = |index: usize| parameters.get(index).is_some_and(|parameter| parameter.is_constant);
                found.into_iter().map(|(index, address)| (address, is_constant(index))).collect::<Vec<_>>()
            })
        };
        let addresses = parameters.map(of);
        let mut accesses: Vec<Access> = Vec::new();
        for (address, is_constant) in addresses.unwrap_or_default() {
            let Some(found) = self.memory(address).filter(|found| !found.is_host) else {
                continue;
            };
            match accesses.iter_mut().find(|access| access.memory == found.range) {
                Some(access) if !is_constant => access.kind = Kind::Kernel,
                Some(_) => {}
                None => {
                    let span = Span { start: found.range.start, end: found.range.end, rows: None };
                    let kind = if is_constant { Kind::KernelReads } else { Kind::Kernel };
                    accesses.push(found.access(span, kind));
                }
            }
        }
        // To find the caller of a launch out would take many times as long as the launch: the kernel's name says more.
        let kernel = parameters.map_or(0, |(kernel, _)| kernel);
        let site = trace::file().and_then(|trace| trace.known_site(self.caller.program_address() as usize));
        let place = Place { site: site.unwrap_or(0), address: kernel };
        let parts = Parts { accesses, ..Parts::default() };
        Some(self.queued_at(queue, parts, Publishes::Before, Also::Nothing, place))
    }

    /// Memory is set, in one dimension or in two.
    pub(super) fn set(&self, start: u64, rest: &[Value]) -> Option<Then> {
        let width = match self.function.base() {
            name if name.contains("D32") => 4,
            name if name.contains("D16") => 2,
            _ => 1,
        };
        let (span, stream) = match *rest {
            [_, Value::UInt(count)] | [_, Value::UInt(count), Value::Stream(_)] => {
                (Span::bytes(start, count * width), rest)
            }
            [Value::UInt(pitch), _, Value::UInt(columns), Value::UInt(rows), ..] => {
                let reach = pitch.saturating_mul(rows.saturating_sub(1)).saturating_add(columns * width);
                (Span::rows(start, reach, pitch, columns * width), rest)
            }
            _ => return None,
        };
        let (stream, is_async) = match *stream {
            [.., Value::Stream(stream)] => (stream, true),
            _ => (0, false),
        };
        let queue = self.queue(stream)?;
        let found = self.memory(start)?;
        // To set memory of the host is synchronous.
        let also = if found.is_host && !is_async { Also::Reaches } else { Also::Nothing };
        let is_flag = span.end.saturating_sub(span.start) <= FLAG;
        let publishes = if is_flag { Publishes::Before } else { Publishes::Nothing };
        let parts = Parts { accesses: vec![found.access(span, Kind::Writes)], ..Parts::default() };
        Some(self.queued_with(queue, parts, publishes, also))
    }
}
