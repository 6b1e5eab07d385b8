//! A driver for tests: devices, contexts and pools as plain values.
//!
//! Handles say what they are: context `0xc000 + n` belongs to device `n % 16`, pool `0xb000 + n` to device n, and memory of
//! `0x1_0000_0000 * (n + 1)` to context n; of `0x100_0000_0000 * (n + 1)` to pool n; mapped memory has bit 52.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use p2pshim_host::machine::Machine;

use crate::api::abi::Code;
use crate::policy::driver::{Driver, Holder, Memory, NodeCopy, Scratch, ScratchKind, Span, VerifyBackend};
use crate::policy::verdicts::{Gpu, Verdict};

/// The fate of direct copies from one device to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Drop,
    Hang,
    /// As `Hang`, and then copies from its source to the host take long, too.
    HangAndHost,
    /// Milliseconds.
    Slow(u64),
    /// As `Slow` with 3, as long as there were not more copies than this.
    SlowUpTo(u32),
}

pub(crate) struct Fake {
    pub(crate) device_memory_below: u64,
    pub(crate) limit: usize,
    pub(crate) no_path: BTreeSet<(i32, i32)>,
    pub(crate) faults: BTreeMap<(i32, i32), Fault>,
    pub(crate) verdicts: BTreeMap<(i32, i32), Verdict>,
    /// How many were read.
    pub(crate) readings: Cell<u32>,
    /// The name of the virtual machine.
    pub(crate) hypervisor: Option<String>,
    /// Pairs that NVLink joins.
    pub(crate) linked: BTreeSet<(i32, i32)>,
    pub(crate) mapping: Cell<Code>,
    pub(crate) allocating: Cell<Code>,
    pub(crate) busy: Cell<bool>,
    /// Whether copies to the host take long.
    pub(crate) sends_slowly: Cell<bool>,
    /// A stream with such a copy.
    pub(crate) sending: Cell<usize>,
    pub(crate) devices: i32,
    pub(crate) current: Cell<usize>,
    /// Devices whose primary context exists: that of the device's number.
    pub(crate) primaries: BTreeSet<i32>,
    /// By handle; a context that is not here has id 1.
    pub(crate) ids: RefCell<BTreeMap<usize, u64>>,
    pub(crate) enabled: RefCell<BTreeSet<(usize, usize)>>,
    pub(crate) granted: RefCell<BTreeSet<(usize, i32)>>,
    pub(crate) mapped: BTreeSet<(u64, i32)>,
    pub(crate) shared: RefCell<BTreeSet<(u64, i32)>>,
    pub(crate) bytes: RefCell<BTreeMap<u64, Vec<u8>>>,
    pub(crate) hung: RefCell<BTreeSet<usize>>,
    /// Direct copies between devices with a fault.
    pub(crate) sent: Cell<u32>,
    pub(crate) next: Cell<u64>,
    pub(crate) relaxed: Cell<u32>,
    pub(crate) enables: Cell<u32>,
    pub(crate) disables: Cell<u32>,
    pub(crate) queries: Cell<u32>,
    /// Addresses from here on are the host's, and not known.
    pub(crate) unknown_from: Cell<u64>,
    /// The contexts of streams.
    pub(crate) streams: RefCell<BTreeMap<usize, usize>>,
    /// Streams that have something to do.
    pub(crate) busy_streams: RefCell<BTreeSet<usize>>,
    /// The copies of graphs.
    pub(crate) graphs: RefCell<BTreeMap<usize, Vec<NodeCopy>>>,
    /// Events that were recorded and have not passed, each with its stream.
    pub(crate) events: RefCell<BTreeMap<usize, usize>>,
    /// Which nodes of graphs come directly before which.
    pub(crate) edges: RefCell<BTreeMap<usize, Vec<[usize; 2]>>>,
    /// Nodes of graphs that record events, each with the nodes before it and its event.
    pub(crate) records: RefCell<BTreeMap<usize, (Vec<usize>, usize)>>,
    /// Work of another thread before the next question about a context is answered.
    pub(crate) meanwhile: Cell<Option<Box<dyn FnOnce()>>>,
}

pub(crate) const fn context(number: usize) -> usize {
    0xc000 + number
}

pub(crate) const fn memory_of(number: usize) -> u64 {
    0x1_0000_0000 * (number as u64 + 1)
}

pub(crate) const fn pool(device: usize) -> usize {
    0xb000 + device
}

pub(crate) const fn pooled(device: usize) -> u64 {
    0x100_0000_0000 * (device as u64 + 1)
}

pub(crate) const fn mapped(device: usize) -> u64 {
    1 << 52 | device as u64
}

/// Memory of another process.
pub(crate) const fn opened(number: usize) -> u64 {
    1 << 53 | (number as u64) << 24
}

impl Fake {
    pub(crate) fn new() -> Self {
        Self {
            device_memory_below: u64::MAX,
            limit: 8,
            no_path: BTreeSet::new(),
            faults: BTreeMap::new(),
            verdicts: BTreeMap::new(),
            readings: Cell::new(0),
            hypervisor: None,
            linked: BTreeSet::new(),
            mapping: Cell::new(Code::SUCCESS),
            allocating: Cell::new(Code::SUCCESS),
            busy: Cell::new(false),
            sends_slowly: Cell::new(false),
            sending: Cell::new(0),
            devices: 16,
            current: Cell::new(context(0)),
            primaries: BTreeSet::new(),
            ids: RefCell::default(),
            enabled: RefCell::default(),
            granted: RefCell::default(),
            mapped: BTreeSet::new(),
            shared: RefCell::default(),
            bytes: RefCell::default(),
            hung: RefCell::default(),
            sent: Cell::default(),
            next: Cell::new(0x10_0000),
            relaxed: Cell::new(0),
            enables: Cell::new(0),
            disables: Cell::new(0),
            queries: Cell::new(0),
            unknown_from: Cell::new(u64::MAX),
            streams: RefCell::default(),
            busy_streams: RefCell::default(),
            graphs: RefCell::default(),
            events: RefCell::default(),
            edges: RefCell::default(),
            records: RefCell::default(),
            meanwhile: Cell::default(),
        }
    }

    pub(crate) fn with_memory_below(end: u64) -> Self {
        Self { device_memory_below: end, ..Self::new() }
    }

    fn device(handle: usize) -> i32 {
        (handle as i32 - 0xc000) % 16
    }

    /// As the program does it.
    pub(crate) fn disable(&self, context: usize, peer: usize) -> Code {
        self.disables.set(self.disables.get() + 1);
        if self.enabled.borrow_mut().remove(&(context, peer)) { Code::SUCCESS } else { Code(705) }
    }

    fn is_direct(&self, from: &Scratch, to: &Scratch) -> bool {
        self.shared.borrow().contains(&(from.address, to.device))
            || self.shared.borrow().contains(&(to.address, from.device))
    }
}

impl VerifyBackend for Fake {
    fn device_count(&self) -> i32 {
        self.devices
    }

    fn upload(&self, to: &Scratch, bytes: &[u8]) -> Result<(), Code> {
        let mut all = self.bytes.borrow_mut();
        let memory = all.entry(to.address).or_insert_with(|| vec![0; 1 << 20]);
        memory[..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn send(&self, from: &Scratch, to: &Scratch, span: Span) -> Result<(), Code> {
        let fault = self.faults.get(&(from.device, to.device)).filter(|_| self.is_direct(from, to));
        self.sent.set(self.sent.get() + u32::from(fault.is_some()));
        match fault {
            Some(Fault::Drop) => return Ok(()),
            Some(fault @ (Fault::Hang | Fault::HangAndHost)) => {
                self.sends_slowly.set(*fault == Fault::HangAndHost);
                self.hung.borrow_mut().insert(from.stream);
                return Ok(());
            }
            Some(&Fault::Slow(milliseconds)) => {
                std::thread::sleep(std::time::Duration::from_millis(milliseconds));
            }
            Some(&Fault::SlowUpTo(copies)) if self.sent.get() <= copies => {
                std::thread::sleep(std::time::Duration::from_millis(3));
            }
            Some(Fault::SlowUpTo(_)) | None => {}
        }
        let mut all = self.bytes.borrow_mut();
        let sent = all.entry(from.address).or_insert_with(|| vec![0; 1 << 20])[span.offset..][..span.bytes].to_vec();
        let at = to.half() + span.offset;
        all.entry(to.address).or_insert_with(|| vec![0; 1 << 20])[at..][..span.bytes].copy_from_slice(&sent);
        Ok(())
    }

    fn download(&self, from: &Scratch, _: usize) -> Result<(), Code> {
        self.sending.set(if self.sends_slowly.get() { from.stream } else { 0 });
        Ok(())
    }

    fn downloaded(&self, from: &Scratch, bytes: usize) -> Option<Vec<u8>> {
        let all = self.bytes.borrow();
        Some(all.get(&from.address).map(|memory| memory[from.half()..][..bytes].to_vec()).unwrap_or_default())
    }

    fn is_done(&self, scratch: &Scratch) -> Result<bool, Code> {
        if self.busy.get() || self.sending.get() == scratch.stream {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Ok(!self.hung.borrow().contains(&scratch.stream))
    }

    fn can_access(&self, device: i32, peer: i32) -> Result<bool, Code> {
        Ok(!self.no_path.contains(&(device, peer)))
    }

    fn relaxed<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        self.relaxed.set(self.relaxed.get() + 1);
        let result = work();
        self.relaxed.set(self.relaxed.get() - 1);
        Some(result)
    }

    fn scratch(&self, kind: ScratchKind, context: (usize, u64), device: i32) -> Result<Scratch, Code> {
        assert_ne!(self.relaxed.get(), 0, "outside relaxed mode");
        let code = if kind == ScratchKind::Mapped { self.mapping.get() } else { self.allocating.get() };
        if code != Code::SUCCESS {
            return Err(code);
        }
        let address = self.next.replace(self.next.get() + 1);
        let bytes = if kind == ScratchKind::Page { 4096 } else { 1 << 20 };
        let (context, context_id) = context;
        let stream = address as usize;
        let receives = address + bytes as u64 / 2;
        Ok(Scratch {
            kind,
            context,
            context_id,
            device,
            address,
            receives,
            bytes,
            stream,
            control: 0,
            pool: 0,
            host: 0,
        })
    }

    fn share(&self, scratch: &Scratch, device: i32) -> Result<(), Code> {
        self.shared.borrow_mut().insert((scratch.address, device));
        Ok(())
    }

    /// If it is large, takes longer than any copy here that is not made slow. Beside a path that is always slow it takes no time, so that a busy
    /// machine cannot make it the slower one.
    fn upload_downloaded(&self, _: &Scratch, _: &Scratch, bytes: usize) -> Result<(), Code> {
        if bytes > 4096 && !self.faults.values().any(|fault| matches!(fault, Fault::Slow(_))) {
            std::thread::sleep(std::time::Duration::from_micros(300));
        }
        Ok(())
    }

    fn gpu(&self, device: i32) -> Option<Gpu> {
        let (uuid, bus_id) = (format!("GPU-00000000-0000-0000-0000-{device:012}"), format!("0000:0{device}:00.0"));
        Some(Gpu { uuid, bus_id, ..Gpu::default() })
    }

    fn version(&self) -> Option<i32> {
        None
    }

    fn machine(&self, _: [i32; 2]) -> Option<Machine> {
        Some(Machine { hypervisor: self.hypervisor.clone(), ..Machine::default() })
    }

    fn is_linked(&self, devices: [i32; 2]) -> bool {
        self.linked.contains(&(devices[0], devices[1]))
    }

    fn verdict(&self, src: i32, dst: i32) -> Option<Verdict> {
        self.readings.set(self.readings.get() + 1);
        self.verdicts.get(&(src, dst)).cloned()
    }

    fn is_readable(&self, address: u64) -> bool {
        address < 0x1000_0000
    }
}

impl Driver for Fake {
    fn graph_copies(&self, graph: usize) -> Option<Vec<NodeCopy>> {
        Some(self.graphs.borrow().get(&graph).cloned().unwrap_or_default())
    }

    fn child_graph(&self, node: usize) -> Option<usize> {
        Some(node)
    }

    fn is_device_memory(&self, address: u64) -> bool {
        address < self.device_memory_below
    }

    fn memory(&self, address: u64) -> Option<Memory> {
        self.queries.set(self.queries.get() + 1);
        let number = |unit: u64| (address / unit - 1) as usize;
        let (start, device, holder) = match address {
            0..0x1_0000_0000 => return None,
            _ if address >= self.unknown_from.get() => return None,
            0x1_0000_0000..0x100_0000_0000 => {
                let number = number(0x1_0000_0000);
                (memory_of(number), number as i32 % 16, Holder::Context(context(number)))
            }
            _ if address >> 53 != 0 => (address & !0xff_ffff, Self::device(self.current.get()), Holder::Opened),
            _ if address >> 52 != 0 => (address, (address & 15) as i32, Holder::Mapped),
            _ => {
                let number = number(0x100_0000_0000);
                (pooled(number), number as i32, Holder::Pool(pool(number)))
            }
        };
        Some(Memory { range: (start, 1 << 24), device, holder })
    }

    fn current_context(&self) -> Option<usize> {
        Some(self.current.get()).filter(|&context| context != 0)
    }

    fn context_id(&self, context: usize) -> Option<u64> {
        self.meanwhile.take().into_iter().for_each(|meanwhile| meanwhile());
        let id = self.ids.borrow().get(&context).copied().unwrap_or(1);
        (context >= 0xc000 && id != 0).then_some(id)
    }

    fn device_of_context(&self, context: usize) -> Option<i32> {
        self.context_id(context).map(|_| Self::device(context))
    }

    fn primary_context(&self, device: i32) -> Option<usize> {
        self.primaries.contains(&device).then(|| context(device as usize))
    }

    fn pool_access(&self, pool: usize, device: i32) -> bool {
        self.granted.borrow().contains(&(pool, device)) || pool as i32 - 0xb000 == device
    }

    fn default_pool(&self, device: i32) -> Option<usize> {
        Some(pool(device as usize))
    }

    fn mapped_access(&self, address: u64, device: i32) -> bool {
        self.mapped.contains(&(address, device))
    }

    fn mapped_memory(&self, address: u64) -> Option<usize> {
        self.mapped.iter().any(|(known, _)| *known == address).then_some(address as usize)
    }

    fn enable(&self, context: usize, peer: usize) -> Code {
        assert_ne!(self.relaxed.get(), 0, "outside relaxed mode");
        let mut enabled = self.enabled.borrow_mut();
        if enabled.contains(&(context, peer)) {
            return Code(704);
        }
        if enabled.iter().filter(|link| link.0 == context).count() >= self.limit {
            return Code(711);
        }
        self.enables.set(self.enables.get() + 1);
        enabled.insert((context, peer));
        Code::SUCCESS
    }

    fn grant(&self, pool: usize, device: i32) -> Code {
        self.granted.borrow_mut().insert((pool, device));
        Code::SUCCESS
    }

    fn verdict_between(&self, uuids: [&str; 2]) -> Option<Verdict> {
        let is_it = |&(&(src, dst), _): &(&(i32, i32), &Verdict)| {
            [src, dst].map(|device| self.names(device).unwrap_or_default()[0].clone()) == uuids
        };
        self.verdicts.iter().find(is_it).map(|(_, verdict)| verdict.clone())
    }

    fn stream_context(&self, stream: usize, _: bool) -> Option<usize> {
        self.streams.borrow().get(&stream).copied()
    }

    fn is_stream_idle(&self, stream: usize) -> Option<bool> {
        Some(!self.busy_streams.borrow().contains(&stream))
    }

    fn context_of_memory(&self, address: u64) -> Option<usize> {
        match self.memory(address)?.holder {
            Holder::Context(context) => Some(context),
            _ => None,
        }
    }

    fn new_event(&self, _: (usize, u64)) -> Option<usize> {
        Some(self.next.replace(self.next.get() + 1) as usize)
    }

    fn record(&self, event: usize, stream: usize) -> bool {
        self.events.borrow_mut().insert(event, stream);
        true
    }

    fn may_record(&self, _: usize) -> bool {
        true
    }

    fn record_within(&self, _: usize, event: usize, stream: usize) -> bool {
        self.record(event, stream)
    }

    fn has_passed(&self, event: usize) -> bool {
        !self.events.borrow().contains_key(&event)
    }

    fn can_lose_nodes(&self, _: usize) -> bool {
        true
    }

    fn graph_order(&self, graph: usize) -> Option<(Vec<usize>, Vec<[usize; 2]>)> {
        let copies = self.graphs.borrow().get(&graph).cloned().unwrap_or_default();
        let edges = self.edges.borrow().get(&graph).cloned().unwrap_or_default();
        let nodes = copies.iter().map(|copy| copy.node).chain(edges.iter().flatten().copied()).collect::<BTreeSet<_>>();
        Some((nodes.into_iter().collect(), edges))
    }

    fn add_record(&self, graph: usize, behind: &[usize], event: usize) -> Option<usize> {
        let behind = behind.to_vec();
        let is_own = self
            .graphs
            .borrow()
            .get(&graph)
            .is_some_and(|copies| behind.iter().all(|node| copies.iter().any(|copy| copy.node == *node)));
        let node = is_own.then(|| self.next.replace(self.next.get() + 1) as usize)?;
        self.records.borrow_mut().insert(node, (behind, event));
        Some(node)
    }

    fn remove_node(&self, node: usize) {
        self.records.borrow_mut().remove(&node);
    }
}
