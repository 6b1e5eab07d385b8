//! Memory of pools and memory that the program maps itself.

use super::*;
use crate::access::{NO_ACCESS, READ_WRITE};

impl Rig {
    /// Memory of a pool, or of the device's current one, holding `byte` throughout.
    fn pooled(&self, device: usize, pool: Option<PoolHandle>, byte: u8) -> u64 {
        let address = self.on(device).allocate_async(SIZE as u64, pool, LEGACY).unwrap();
        write(address, &[byte; SIZE]);
        address
    }

    fn owner(&self, address: u64) -> Option<crate::Owner> {
        self.machine.find(address).map(|found| found.owner)
    }

    /// Whether a copy from device 0 to device 1 goes directly.
    fn is_direct(&self, dst: u64, src: u64) -> bool {
        let before = self.machine.copies(0, 1);
        self.peer_copy(dst, src).unwrap();
        self.machine.synchronize_stream(LEGACY).unwrap();
        let after = self.machine.copies(0, 1);
        assert_eq!(before.0 + before.1 + 1, after.0 + after.1);
        after.0 > before.0
    }

    fn access(&self, device: usize, address: u64) -> u32 {
        let found = self.machine.find(address).unwrap();
        self.on(device).access(&found).unwrap()
    }
}

#[test]
fn pool_memory_is_direct_only_where_one_side_reaches_the_others() {
    let rig = Rig::new(2);
    let (pooled, there) = (rig.pooled(0, None, 1), rig.pooled(1, None, 0));
    let pool = rig.machine.default_pool(0).unwrap();
    assert!(!rig.is_direct(there, pooled));
    for (from, to) in [(0, 1), (1, 0)] {
        rig.on(from).enable_peer(rig.contexts[to], 0).unwrap();
        assert!(!rig.is_direct(there, pooled));
    }
    assert_eq!((rig.access(0, pooled), rig.access(1, pooled)), (READ_WRITE, NO_ACCESS));
    rig.machine.set_pool_access(pool, &[(1, READ_WRITE)]).unwrap();
    assert!(rig.is_direct(there, pooled));
    assert_eq!(rig.access(1, pooled), READ_WRITE);
    rig.machine.set_pool_access(pool, &[(1, NO_ACCESS)]).unwrap();
    assert!(!rig.is_direct(there, pooled));
    assert_eq!(first_byte(there), 1);
}

#[test]
fn pool_memory_to_plain_memory_follows_the_contexts_of_its_device() {
    let rig = Rig::new(2);
    let (pooled, plain) = (rig.pooled(0, None, 1), rig.memory(1, 0));
    rig.on(1).enable_peer(rig.contexts[0], 0).unwrap();
    assert!(!rig.is_direct(plain, pooled));
    rig.on(0).enable_peer(rig.contexts[1], 0).unwrap();
    assert!(rig.is_direct(plain, pooled));
}

#[test]
fn set_pool_access_checks_device_and_path() {
    let rig = Rig::with(Config { devices: 3, no_path: vec![(1, 0)], ..Config::default() });
    let pool = rig.machine.default_pool(0).unwrap();
    assert_eq!(rig.machine.set_pool_access(pool, &[(1, READ_WRITE)]), Err(Error::INVALID_DEVICE));
    assert_eq!(rig.machine.set_pool_access(pool, &[(2, READ_WRITE)]), Ok(()));
    assert_eq!(rig.machine.set_pool_access(pool, &[(0, READ_WRITE)]), Ok(()));
    assert_eq!(rig.machine.set_pool_access(pool, &[(0, NO_ACCESS)]), Err(Error::INVALID_DEVICE));
    assert_eq!([0, 1, 2].map(|device| rig.machine.pool_access(pool, device).unwrap()), [3, 0, 3]);
    assert_eq!(rig.machine.pool_access(PoolHandle(1), 0), Err(Error::INVALID_VALUE));
}

#[test]
fn pool_that_refuses_late_has_no_memory_for_a_device_without_a_path() {
    let rig = Rig::with(Config { no_path: vec![(1, 0)], has_late_pools: true, ..Config::default() });
    let pool = rig.machine.default_pool(0).unwrap();
    let used = rig.pooled(0, None, 1);
    assert_eq!(rig.machine.set_pool_access(pool, &[(1, READ_WRITE)]), Err(Error::INVALID_DEVICE));
    rig.on(0).free(used, Kind::Device).unwrap();
    assert_eq!(rig.machine.set_pool_access(pool, &[(1, READ_WRITE)]), Ok(()));
    assert_eq!(rig.on(0).allocate_async(SIZE as u64, None, LEGACY), Err(Error::INVALID_DEVICE));
}

#[test]
fn free_async_hides_at_once_and_frees_in_the_streams_order() {
    let rig = Rig::new(1);
    let pool = rig.machine.default_pool(0).unwrap();
    let used = || rig.machine.pool_attribute(pool, PoolAttribute::Used).unwrap();
    let stream = rig.stream(0, Role::NonBlocking);
    let gate = rig.block(stream);
    let first = rig.pooled(0, None, 1);
    assert_eq!(used(), SIZE as u64);
    rig.machine.free_async(first, stream).unwrap();
    assert_eq!((rig.owner(first), used(), first_byte(first)), (None, 0, 1));
    assert_ne!(rig.pooled(0, None, 2), first);
    gate.signal();
    rig.machine.synchronize_stream(stream).unwrap();
    assert_eq!(rig.pooled(0, None, 3), first);
    assert_eq!(rig.machine.free(first, Kind::Device), Ok(()));
    assert_eq!(rig.machine.free_async(first, stream), Err(Error::INVALID_VALUE));
    let plain = rig.memory(0, 1);
    assert_eq!(rig.machine.free_async(plain, stream), Ok(()));
    assert_eq!(rig.machine.pool_attribute(pool, PoolAttribute::UsedMost), Ok(2 * SIZE as u64));
}

#[test]
fn created_pool_is_current_until_destroyed_and_lives_as_long_as_its_memory() {
    let rig = Rig::new(2);
    let machine = &rig.machine;
    let pool = machine.create_pool(0).unwrap();
    assert_eq!(machine.set_current_pool(1, pool), Err(Error::INVALID_VALUE));
    machine.set_current_pool(0, pool).unwrap();
    machine.set_pool_access(pool, &[(1, READ_WRITE)]).unwrap();
    let (pooled, there) = (rig.pooled(0, None, 1), rig.memory(1, 0));
    assert_eq!(rig.owner(pooled), Some(crate::Owner::Pool(pool)));
    let from_elsewhere = rig.pooled(1, Some(pool), 1);
    assert_eq!(machine.find(from_elsewhere).map(|found| found.device), Some(0));
    machine.destroy_pool(pool).unwrap();
    assert_eq!(machine.current_pool(0), machine.default_pool(0));
    assert_eq!(machine.destroy_pool(pool), Err(Error::INVALID_VALUE));
    assert_eq!(machine.destroy_pool(machine.default_pool(0).unwrap()), Err(Error::INVALID_VALUE));
    assert!(rig.is_direct(there, pooled));
    machine.free(pooled, Kind::Device).unwrap();
    machine.free(from_elsewhere, Kind::Device).unwrap();
    assert_eq!(machine.lock().pools.len(), 2);
}

#[test]
fn reset_ends_pool_memory_and_grants() {
    let rig = Rig::new(2);
    let pool = rig.machine.default_pool(0).unwrap();
    let pooled = rig.pooled(0, None, 1);
    rig.machine.set_pool_access(pool, &[(1, READ_WRITE)]).unwrap();
    rig.machine.reset_primary(0).unwrap();
    assert_eq!(rig.owner(pooled), None);
    assert_eq!(rig.machine.pool_access(pool, 1), Ok(NO_ACCESS));
    rig.machine.retain_primary(0).unwrap();
    assert_eq!(rig.pooled(0, None, 1), pooled);
}

#[test]
fn allocate_async_on_a_stream_that_captures_is_refused() {
    let rig = Rig::new(1);
    let stream = rig.stream(0, Role::NonBlocking);
    rig.machine.begin_capture(stream, crate::CaptureMode::Relaxed, None).unwrap();
    let refused = rig.machine.allocate_async(512, None, stream);
    assert_eq!(refused, Err(Error::STREAM_CAPTURE_UNSUPPORTED));
    assert_eq!(rig.machine.end_capture(stream), Err(Error::STREAM_CAPTURE_INVALIDATED));
}

#[test]
fn mapped_memory_needs_rights_and_follows_them() {
    const SIZE: u64 = MAPPING_GRANULE;
    let rig = Rig::new(2);
    let machine = &rig.machine;
    let there = rig.memory(1, 0);
    let physical = machine.create_physical(0, SIZE).unwrap();
    let base = machine.reserve_addresses(2 * SIZE).unwrap();
    assert_eq!(rig.peer_copy(there, base), Err(Error::INVALID_VALUE));
    machine.map(base, SIZE, physical).unwrap();
    // A second mapping is one of the same bytes.
    assert_eq!(machine.map(base + SIZE, SIZE, physical), Ok(()));
    write(base, &[7]);
    assert_eq!(first_byte(base + SIZE), 7);
    assert_eq!(machine.unmap(base + SIZE, SIZE), Ok(()));
    assert_eq!(rig.peer_copy(there, base), Err(Error::INVALID_VALUE));
    machine.set_access(base, SIZE, &[(0, READ_WRITE)]).unwrap();
    write(base, &[4]);
    rig.on(1).enable_peer(rig.contexts[0], 0).unwrap();
    assert!(!rig.is_direct(there, base));
    assert_eq!(first_byte(there), 4);
    machine.set_access(base, SIZE, &[(1, READ_WRITE)]).unwrap();
    assert!(rig.is_direct(there, base));
    assert_eq!(machine.access_at(base + 5, 1), Ok(READ_WRITE));
    assert_eq!(machine.set_access(base, SIZE / 2, &[(1, READ_WRITE)]), Err(Error::INVALID_VALUE));
    assert_eq!(machine.reservation(base + SIZE), Some((base, 2 * SIZE)));

    assert_eq!(machine.retain_physical(base + 1), Ok(physical));
    machine.release_physical(physical).unwrap();
    machine.release_physical(physical).unwrap();
    assert_eq!(machine.release_physical(physical), Err(Error::INVALID_VALUE));
    let before = rig.on(0).memory_info().unwrap().0;
    assert_eq!(machine.unmap(base, 2 * SIZE), Err(Error::INVALID_VALUE));
    machine.unmap(base, SIZE).unwrap();
    assert_eq!(machine.memory_info().unwrap().0, before + SIZE);
    assert_eq!(rig.owner(base), None);
    machine.free_addresses(base, 2 * SIZE).unwrap();
}
