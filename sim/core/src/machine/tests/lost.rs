//! If memory or access is taken from under queued work, the work ends, and its context.

use super::*;
use crate::access::{NO_ACCESS, READ, READ_WRITE};

/// Two devices with memory, and a stream of the first that waits.
struct Queued {
    rig: Rig,
    own: u64,
    peers: u64,
    stream: StreamRef,
    gate: Arc<Fence>,
}

impl Queued {
    fn new() -> Queued {
        let rig = Rig::new(2);
        let (own, peers) = (rig.memory(0, 1), rig.memory(1, 2));
        let stream = rig.stream(0, Role::NonBlocking);
        let gate = rig.block(stream);
        Queued { rig, own, peers, stream, gate }
    }

    fn copy(&self, dst: u64, src: u64) {
        self.rig.on(0).copy(self.stream, &linear(dst, src, 8), Completion::Async).unwrap();
    }

    /// Memory of device 0 that is mapped with rights of its own.
    fn mapped(&self) -> u64 {
        let machine = &self.rig.machine;
        let base = machine.reserve_addresses(MAPPING_GRANULE).unwrap();
        machine.map(base, MAPPING_GRANULE, machine.create_physical(0, MAPPING_GRANULE).unwrap()).unwrap();
        machine.set_access(base, MAPPING_GRANULE, &[(0, READ_WRITE)]).unwrap();
        base
    }

    /// Lets the stream go on; what it comes to is what the first device's context answers from then on.
    fn end(&self) -> Result<()> {
        self.gate.signal();
        let end = self.rig.on(0).synchronize_stream(self.stream);
        assert_eq!(self.rig.machine.allocate(Kind::Device, 512, 0).map(drop), end);
        assert_eq!(self.rig.machine.enable_peer(ContextHandle(0), 1), end.and(Err(Error::INVALID_CONTEXT)));
        assert_eq!(self.rig.on(1).synchronize_context(), Ok(()));
        end
    }
}

#[test]
fn unmap_waits_for_nobody_and_ends_what_comes_to_the_memory() {
    let touches: [fn(&Queued, u64); 3] = [
        |queued, mapped| queued.copy(queued.own, mapped),
        |queued, mapped| queued.copy(mapped, queued.peers),
        |queued, mapped| {
            let place = Place::linear(Locus::Device(mapped));
            queued.rig.on(0).fill(queued.stream, place, Extent::linear(8), (1, 1), Completion::Async).unwrap();
        },
    ];
    for touch in touches {
        let queued = Queued::new();
        let mapped = queued.mapped();
        touch(&queued, mapped);
        queued.rig.machine.unmap(mapped, MAPPING_GRANULE).unwrap();
        queued.rig.machine.free_addresses(mapped, MAPPING_GRANULE).unwrap();
        assert_eq!(queued.end(), Err(Error::ILLEGAL_ADDRESS));
        assert_eq!(first_byte(queued.own), 1);
    }
}

#[test]
fn unmap_leaves_other_work_alone() {
    let queued = Queued::new();
    let [gone, stays] = [(); 2].map(|()| queued.mapped());
    write(stays, &[9]);
    queued.copy(queued.own, stays);
    queued.rig.machine.unmap(gone, MAPPING_GRANULE).unwrap();
    assert_eq!(queued.end(), Ok(()));
    assert_eq!(first_byte(queued.own), 9);
}

#[test]
fn graph_of_unmapped_memory_ends_its_context() {
    let queued = Queued::new();
    let (machine, mapped) = (&queued.rig.machine, queued.mapped());
    let capturing = queued.rig.stream(0, Role::NonBlocking);
    machine.begin_capture(capturing, crate::CaptureMode::Relaxed, None).unwrap();
    machine.copy(capturing, &linear(queued.own, mapped, 8), Completion::Async).unwrap();
    let graph = machine.end_capture(capturing).unwrap();
    let exec = machine.instantiate_graph(graph).unwrap();
    machine.unmap(mapped, MAPPING_GRANULE).unwrap();
    machine.launch_graph(exec, queued.stream).unwrap();
    assert_eq!(queued.end(), Err(Error::ILLEGAL_ADDRESS));
}

#[test]
fn closing_access_ends_queued_direct_copies() {
    let queued = Queued::new();
    let Queued { rig, own, peers, .. } = &queued;
    rig.machine.enable_peer(rig.contexts[1], 0).unwrap();
    queued.copy(*peers, *own);
    rig.machine.disable_peer(rig.contexts[1]).unwrap();
    assert_eq!(queued.end(), Err(Error::LAUNCH_FAILED));
    assert_eq!(first_byte(*peers), 2);

    let queued = Queued::new();
    let machine = &queued.rig.machine;
    let pool = machine.default_pool(0).unwrap();
    let pooled = machine.allocate_async(512, None, LEGACY).unwrap();
    machine.set_pool_access(pool, &[(1, READ_WRITE)]).unwrap();
    queued.copy(queued.peers, pooled);
    machine.set_pool_access(pool, &[(1, NO_ACCESS)]).unwrap();
    assert_eq!(queued.end(), Err(Error::LAUNCH_FAILED));
}

#[test]
fn closing_access_leaves_other_copies_alone() {
    let queued = Queued::new();
    let Queued { rig, own, peers, .. } = &queued;
    queued.copy(*peers, *own);
    for device in [0, 1] {
        rig.on(device).enable_peer(rig.contexts[1 - device], 0).unwrap();
    }
    queued.copy(*peers + 8, *own);
    assert_eq!(rig.machine.copies(0, 1), (1, 1));
    rig.on(1).disable_peer(rig.contexts[0]).unwrap();
    assert_eq!(queued.end(), Ok(()));
    assert_eq!([*peers, *peers + 8, *peers + 16].map(first_byte), [1, 1, 2]);

    let queued = Queued::new();
    let Queued { rig, own, peers, .. } = &queued;
    queued.copy(*peers, *own);
    rig.machine.enable_peer(rig.contexts[1], 0).unwrap();
    rig.machine.disable_peer(rig.contexts[1]).unwrap();
    assert_eq!(queued.end(), Ok(()));
}

#[test]
fn memory_that_nobody_may_write_is_read_only() {
    let queued = Queued::new();
    let (machine, mapped) = (&queued.rig.machine, queued.mapped());
    machine.set_access(mapped, MAPPING_GRANULE, &[(0, READ)]).unwrap();
    assert_eq!(queued.rig.on(0).copy(LEGACY, &linear(queued.own, mapped, 8), Completion::Async), Ok(()));
    let into = machine.copy(LEGACY, &linear(mapped, queued.own, 8), Completion::Async);
    assert_eq!(into, Err(Error::INVALID_VALUE));
}
