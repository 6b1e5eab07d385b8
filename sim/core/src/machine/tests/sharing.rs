//! Memory that another process allocated: by handles, and from pools. The other process is this one, which a thread goes by another number in.

use std::os::fd::AsRawFd;
use std::sync::mpsc;

use super::*;
use crate::access::{NO_ACCESS, READ_WRITE};
use crate::space::Owner;

/// A process number that is not this process's, in which its descriptors are seen.
fn other_process() -> u32 {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let link = std::fs::read_link("/proc/thread-self").unwrap();
        sender.send(link.file_name().unwrap().to_str().unwrap().parse().unwrap()).unwrap();
        // For as long as the tests take.
        loop {
            thread::park();
        }
    });
    receiver.recv().unwrap()
}

/// The handle of memory, as if another process had made it.
fn exported(rig: &Rig, address: u64) -> Export {
    Export { process: other_process(), ..rig.machine.export(address).unwrap() }
}

fn with(variables: &[(&str, &str)]) -> Config {
    let lookup = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    Config::parse(lookup).0
}

/// A machine of so many devices, of which a process sees some.
fn showing(devices: usize, visible: &[usize]) -> Rig {
    let mut config = Config { devices, ..Config::default() };
    config.show(visible);
    Rig::with(config)
}

#[test]
fn handle_is_the_same_each_time_and_of_the_base() {
    let rig = Rig::new(2);
    let (memory, other) = (rig.memory(1, 1), rig.memory(1, 2));
    let handle = rig.machine.export(memory).unwrap();
    assert_eq!([memory, memory + 100].map(|address| rig.machine.export(address)), [Ok(handle); 2]);
    assert_eq!((handle.process, handle.size, handle.address), (std::process::id(), SIZE as u64, memory));
    assert_ne!(rig.machine.export(other), Ok(handle));
    rig.machine.free(memory, Kind::Device).unwrap();
    let again = rig.memory(1, 3);
    assert_eq!(again, memory);
    assert_ne!(rig.machine.export(again), Ok(handle), "new memory at the same address");
    assert_eq!(rig.machine.import(handle), Err(Error::INVALID_CONTEXT), "its own process");
}

#[test]
fn memory_that_cannot_be_exported_is_an_invalid_value() {
    let rig = Rig::new(1);
    let pool = rig.machine.create_shareable_pool(0).unwrap();
    let pooled = rig.machine.allocate_async(SIZE as u64, Some(pool), LEGACY).unwrap();
    let physical = rig.machine.create_shareable_physical(0, MAPPING_GRANULE).unwrap();
    let mapped = rig.machine.reserve_addresses(MAPPING_GRANULE).unwrap();
    rig.machine.map(mapped, MAPPING_GRANULE, physical).unwrap();
    let pinned = rig.machine.allocate(Kind::Pinned, SIZE as u64, 0).unwrap();
    for address in [pooled, mapped, pinned, 0, 1 << 20] {
        assert_eq!(rig.machine.export(address), Err(Error::INVALID_VALUE));
    }
    let plain = rig.machine.allocate_async(SIZE as u64, None, LEGACY).unwrap();
    let has_descriptor = |address| rig.machine.has_descriptor(&rig.machine.find(address).unwrap());
    assert_eq!([pooled, mapped, plain, rig.memory(0, 1)].map(has_descriptor), [true, true, false, false]);
}

#[test]
fn import_is_counted_for_each_device_and_gone_with_the_last_close() {
    let rig = Rig::new(3);
    let owned = rig.memory(1, 7);
    let handle = exported(&rig, owned);
    let first = rig.on(0).import(handle).unwrap();
    assert_eq!(rig.machine.import(handle), Ok(first));
    let third = rig.on(2).import(handle).unwrap();
    assert_ne!(third, first);
    assert_eq!([first, third].map(first_byte), [7, 7]);
    let context = |address| rig.machine.find(address).and_then(|found| found.owner.context());
    let own = |device: usize| rig.machine.context(rig.contexts[device]).unwrap().id;
    assert_eq!([first, third].map(context), [Some(own(0)), Some(own(2))]);
    // Another context of a device that has opened it.
    let created = rig.machine.create_context(0, 0).unwrap();
    current::set(Some(created));
    assert_eq!(rig.machine.import(handle), Err(Error::INVALID_CONTEXT));
    let _ = rig.on(0).close_import(first);
    assert_eq!(first_byte(first), 7, "open once more");
    rig.machine.close_import(first).unwrap();
    assert_eq!(rig.machine.close_import(first), Err(Error::INVALID_VALUE));
    let own = rig.memory(0, 1);
    let copied = rig.machine.copy(LEGACY, &linear(own, first, 8), Completion::Sync);
    assert_eq!(copied, Err(Error::INVALID_VALUE), "it is no host memory");
    assert_eq!(first_byte(third), 7);
}

#[test]
fn import_outlives_what_its_owner_frees_and_bars_new_memory_there() {
    let rig = Rig::new(2);
    let owned = rig.memory(1, 7);
    let handle = exported(&rig, owned);
    let there = rig.on(0).import(handle).unwrap();
    rig.on(1).free(owned, Kind::Device).unwrap();
    assert_eq!(rig.on(0).import(handle), Ok(there), "known");
    assert_eq!(rig.memory(1, 8), owned);
    let new = Export { process: handle.process, ..rig.machine.export(owned).unwrap() };
    assert_eq!(rig.on(0).import(new), Err(Error::ALREADY_MAPPED));
    assert_eq!(first_byte(there), 7);
    for _ in 0..2 {
        rig.machine.close_import(there).unwrap();
    }
    assert_eq!(rig.machine.import(handle), Err(Error::MAP_FAILED), "gone");
    assert_eq!(rig.machine.import(new).map(first_byte), Ok(8));
}

#[test]
fn import_is_refused_without_a_path_or_a_free_place_for_a_peer() {
    let config = with(&[("P2PSIM_DEVICES", "3"), ("P2PSIM_NO_P2P", "0>1"), ("P2PSIM_MAX_PEERS", "1")]);
    let rig = Rig::with(config);
    let [own, first, second] = [0, 1, 2].map(|device| exported(&rig, rig.memory(device, 1)));
    assert_eq!(rig.on(0).import(first), Err(Error::PEER_ACCESS_UNSUPPORTED));
    assert!(rig.machine.import(own).is_ok() && rig.machine.import(second).is_ok());
    assert!(rig.on(1).import(own).is_ok());
    assert_eq!(rig.machine.import(second), Err(Error::TOO_MANY_PEERS));
    let other = Rig::new(2);
    let handle = exported(&other, other.memory(1, 1));
    let blind = showing(2, &[0]);
    let there = blind.machine.import(handle).unwrap();
    assert_eq!(
        (first_byte(there), blind.machine.find(there).unwrap().device),
        (1, 1),
        "of a device that is not visible"
    );
    let turned = showing(2, &[1, 0]);
    let there = turned.machine.import(handle).unwrap();
    assert_eq!(turned.machine.find(there).unwrap().device, 0, "by the numbers of the process that opens it");
}

/// A pool of device 1 that other processes may import, memory of it, and both as such a process has them.
fn shared_pool(owner: &Rig, importer: &Rig) -> (PoolHandle, u64, PoolHandle, u64) {
    let pool = owner.on(1).create_shareable_pool(1).unwrap();
    // Its memory does not begin where the pool does.
    owner.machine.allocate_async(100, Some(pool), LEGACY).unwrap();
    let memory = owner.machine.allocate_async(SIZE as u64, Some(pool), LEGACY).unwrap();
    write(memory, &[7; SIZE]);
    let descriptor = owner.machine.export_pool(pool).unwrap();
    let imported = importer.on(0).import_pool(descriptor.as_raw_fd()).unwrap();
    let there =
        importer.machine.import_from_pool(imported, owner.machine.export_from_pool(memory + 9).unwrap()).unwrap();
    (pool, memory, imported, there)
}

#[test]
fn pool_is_shared_with_rights_of_its_own_and_no_allocations() {
    let (owner, importer) = (Rig::new(2), Rig::new(2));
    let (pool, memory, imported, there) = shared_pool(&owner, &importer);
    let found = importer.machine.find(there).unwrap();
    assert_eq!((found.base, found.size, found.device), (there, SIZE as u64, 1));
    assert_eq!((found.owner, first_byte(there)), (Owner::Pool(imported), 7));
    let rights = |device| importer.machine.pool_access(imported, device).unwrap();
    assert_eq!([0, 1].map(rights), [NO_ACCESS, READ_WRITE]);
    owner.machine.set_pool_access(pool, &[(0, READ_WRITE)]).unwrap();
    assert_eq!(rights(0), NO_ACCESS, "what the other process grants is no matter here");
    let own = importer.memory(0, 1);
    let copied = importer.on(0).copy(LEGACY, &linear(there, own, 8), Completion::Sync);
    assert_eq!(copied, Err(Error::INVALID_VALUE));
    importer.machine.set_pool_access(imported, &[(0, READ_WRITE)]).unwrap();
    importer.machine.copy(LEGACY, &linear(there, own, 8), Completion::Sync).unwrap();
    importer.machine.synchronize_stream(LEGACY).unwrap();
    assert_eq!((first_byte(memory), importer.machine.copies(0, 1)), (1, (1, 0)));
    let refused = importer.machine.allocate_async(8, Some(imported), LEGACY);
    assert_eq!(refused, Err(Error::INVALID_VALUE));
    assert_eq!(importer.machine.set_current_pool(1, imported), Err(Error::INVALID_VALUE));
    assert_eq!(importer.machine.export_pool(imported).err(), Some(Error::INVALID_VALUE));
    assert_eq!(importer.machine.export_from_pool(there), Err(Error::INVALID_VALUE));
}

#[test]
fn pool_memory_that_is_imported_twice_is_freed_once() {
    let (owner, importer) = (Rig::new(2), Rig::new(2));
    let (_, memory, imported, there) = shared_pool(&owner, &importer);
    let export = owner.machine.export_from_pool(memory).unwrap();
    assert_eq!(importer.machine.import_from_pool(imported, export), Ok(there));
    let used = || importer.machine.pool_attribute(imported, PoolAttribute::Used);
    assert_eq!(used(), Ok(SIZE as u64));
    importer.on(0).free(there, Kind::Device).unwrap();
    assert_eq!((importer.machine.free(there, Kind::Device), used()), (Err(Error::INVALID_VALUE), Ok(0)));
    let again = importer.machine.import_from_pool(imported, export).unwrap();
    importer.machine.free_async(again, LEGACY).unwrap();
    assert!(importer.machine.find(again).is_none());
    assert_eq!((first_byte(memory), used()), (7, Ok(0)), "the owner keeps it");
}

#[test]
fn pool_memory_outlives_what_its_owner_frees_and_its_process() {
    let importer = Rig::new(2);
    let owner = Rig::new(2);
    let (pool, memory, _, there) = shared_pool(&owner, &importer);
    owner.on(1).free(memory, Kind::Device).unwrap();
    owner.machine.destroy_pool(pool).unwrap();
    assert_eq!(first_byte(there), 7);
    drop(owner);
    assert_eq!(first_byte(there), 7);
}

#[test]
fn pool_of_a_hidden_device_is_reached_by_those_that_are_granted_it() {
    let (owner, importer) = (Rig::new(2), showing(2, &[0]));
    let (_, memory, imported, there) = shared_pool(&owner, &importer);
    assert_eq!(importer.machine.find(there).unwrap().device, 1);
    assert_eq!(importer.machine.pool_access(imported, 0), Ok(NO_ACCESS));
    importer.machine.set_pool_access(imported, &[(0, READ_WRITE)]).unwrap();
    let own = importer.memory(0, 3);
    importer.machine.copy(LEGACY, &linear(there, own, 8), Completion::Sync).unwrap();
    importer.machine.synchronize_stream(LEGACY).unwrap();
    assert_eq!((first_byte(memory), importer.machine.copies(0, 1)), (3, (1, 0)));
}

#[test]
fn what_is_no_shareable_pool_is_refused() {
    let rig = Rig::new(2);
    let own = rig.machine.create_pool(0).unwrap();
    for pool in [own, rig.machine.default_pool(0).unwrap(), PoolHandle(1)] {
        assert_eq!(rig.machine.export_pool(pool).err(), Some(Error::INVALID_VALUE));
    }
    let pooled = rig.machine.allocate_async(8, Some(own), LEGACY).unwrap();
    for address in [pooled, rig.memory(0, 1), 1 << 20] {
        assert_eq!(rig.machine.export_from_pool(address), Err(Error::INVALID_VALUE));
    }
    let physical = rig.machine.create_shareable_physical(0, MAPPING_GRANULE).unwrap();
    let mapped = rig.machine.export_physical(physical).unwrap();
    let [first, second] = [0, 1].map(|device| rig.machine.create_shareable_pool(device).unwrap());
    let descriptor = rig.machine.export_pool(first).unwrap();
    for wrong in [-1, mapped.as_raw_fd()] {
        assert_eq!(rig.machine.import_pool(wrong), Err(Error::INVALID_VALUE));
    }
    assert_eq!(rig.machine.import_physical(descriptor.as_raw_fd()), Err(Error::INVALID_VALUE));
    let imported = rig.machine.import_pool(descriptor.as_raw_fd()).unwrap();
    let memory = rig.machine.allocate_async(8, Some(second), LEGACY).unwrap();
    let export = rig.machine.export_from_pool(memory).unwrap();
    for pool in [imported, first, own] {
        assert_eq!(rig.machine.import_from_pool(pool, export), Err(Error::INVALID_VALUE), "of another pool");
    }
    let inode = rig.machine.allocate_async(8, Some(first), LEGACY).and_then(|base| rig.machine.export_from_pool(base));
    for (place, size) in [(1, 8), (0, u64::MAX), (u64::MAX - 4095, 8), (1 << 40, 8), (0, 0)] {
        let wrong = PoolExport { place, size, ..inode.unwrap() };
        assert!(rig.machine.import_from_pool(imported, wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn event_of_another_process_is_waited_for_by_streams_and_threads() {
    let (owner, other) = (Rig::new(2), Rig::new(2));
    let event = owner.on(1).create_shareable_event().unwrap();
    let handle = owner.machine.export_event(event).unwrap();
    assert_eq!(owner.machine.import_event(handle), Err(Error::INVALID_CONTEXT), "its own process");
    let handle = EventExport { process: other_process(), ..handle };
    let opened = other.on(0).import_event(handle).unwrap();
    let stream = other.stream(0, Role::NonBlocking);
    assert_eq!(other.machine.event_is_done(opened), Ok(true), "never recorded");
    let busy = owner.stream(1, Role::NonBlocking);
    let gate = owner.block(busy);
    owner.machine.record_event(event, busy).unwrap();
    other.on(0).wait_event(stream, opened).unwrap();
    settle();
    assert_eq!([other.machine.event_is_done(opened), other.machine.stream_is_done(stream)], [Ok(false); 2]);
    gate.signal();
    other.machine.synchronize_stream(stream).unwrap();
    other.machine.synchronize_event(opened).unwrap();
    assert_eq!(other.machine.event_is_done(opened), Ok(true));
    // The other way round.
    let gate = other.block(stream);
    other.machine.record_event(opened, stream).unwrap();
    assert_eq!(owner.on(1).event_is_done(event), Ok(false));
    gate.signal();
    owner.machine.synchronize_event(event).unwrap();
    owner.machine.destroy_event(event).unwrap();
    assert_eq!(other.on(0).import_event(handle), Err(Error::MAP_FAILED), "gone");
    assert_eq!(other.machine.event_is_done(opened), Ok(true));
}

#[test]
fn event_that_is_not_for_other_processes_has_no_handle() {
    let rig = Rig::new(1);
    let event = rig.machine.create_event(false).unwrap();
    assert_eq!(rig.machine.export_event(event), Err(Error::INVALID_HANDLE));
    let shared = rig.machine.create_shareable_event().unwrap();
    let stream = rig.stream(0, Role::NonBlocking);
    rig.machine.begin_capture(stream, crate::CaptureMode::Relaxed, None).unwrap();
    rig.machine.wait_event(stream, shared).unwrap();
    rig.machine.end_capture(stream).unwrap();
    assert_eq!(rig.machine.record_event_of_context(shared, rig.contexts[0]), Err(Error::NOT_SUPPORTED));
}

#[test]
fn vmm_fault_is_of_pool_memory_too() {
    let (owner, importer) = (Rig::new(2), Rig::with(with(&[("P2PSIM_FAULT", "vmm:0>1,ipc:1>0")])));
    let (_, memory, imported, there) = shared_pool(&owner, &importer);
    importer.machine.set_pool_access(imported, &[(0, READ_WRITE)]).unwrap();
    let own = importer.memory(0, 1);
    for (dst, src) in [(there, own), (own, there)] {
        importer.on(0).copy(LEGACY, &linear(dst, src, 8), Completion::Sync).unwrap();
        importer.machine.synchronize_stream(LEGACY).unwrap();
    }
    assert_eq!([memory, own].map(first_byte), [7, 7], "the first copy is lost, the second one is not");
}

/// Processes with one folder have one limit; two machines in this process stand for them.
#[test]
fn enable_peer_beyond_the_limit_of_all_processes_is_refused() {
    let folder = std::env::temp_dir().join(format!("p2psim-peers-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let [first, second] = [(); 2].map(|()| {
        Rig::with(with(&[
            ("P2PSIM_DEVICES", "3"),
            ("P2PSIM_MAX_PEERS", "2"),
            ("P2PSIM_PEERS", folder.to_str().unwrap()),
        ]))
    });
    let enable = |rig: &Rig, peer: usize| rig.on(0).enable_peer(rig.contexts[peer], 0);
    assert_eq!((enable(&first, 1), enable(&second, 1)), (Ok(()), Ok(())));
    assert_eq!((enable(&first, 2), enable(&second, 2)), (Err(Error::TOO_MANY_PEERS), Err(Error::TOO_MANY_PEERS)));
    assert_eq!(first.on(1).enable_peer(first.contexts[2], 0), Ok(()), "another device has places of its own");
    assert_eq!(second.on(0).disable_peer(second.contexts[1]), Ok(()));
    assert_eq!(enable(&first, 2), Ok(()));
    std::fs::remove_dir_all(folder).unwrap();
}
