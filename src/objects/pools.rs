//! Memory pools: where they are, whether they are there still, and which devices were let access them.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    There,
    /// The program is about to destroy it. Memory of it may still be there, and have its handle.
    Going,
    Gone,
}

#[derive(Default)]
struct Pool {
    /// The device, if that is known.
    device: Option<i32>,
    state: State,
    /// The devices that p2pshim, or the program, has let access it.
    by_us: BTreeSet<i32>,
    by_program: BTreeSet<i32>,
    /// The UUID and PCI address of the GPU that an imported pool lies on. None until the program imports memory of the pool.
    imported_from: Option<[String; 2]>,
}

/// By their handles. A handle is a new pool's only after [`Pools::on_created`].
#[derive(Default)]
pub(crate) struct Pools {
    known: BTreeMap<usize, Pool>,
    /// The devices that p2pshim let access any pool so far.
    pub(crate) granted_to: BTreeSet<i32>,
}

impl Pools {
    fn of(&mut self, pool: usize) -> &mut Pool {
        self.known.entry(pool).or_default()
    }

    pub(crate) fn set_device(&mut self, pool: usize, device: i32) {
        self.of(pool).device = Some(device);
    }

    /// Whether the program has destroyed the pool, or is about to.
    pub(crate) fn is_gone(&self, pool: usize) -> bool {
        self.known.get(&pool).is_some_and(|known| known.state != State::There)
    }

    /// The program is about to destroy a pool.
    pub(crate) fn mark_going(&mut self, pool: usize) {
        let known = self.of(pool);
        if known.state == State::There {
            known.state = State::Going;
        }
    }

    /// The program has destroyed a pool, or `cuMemPoolDestroy` has failed. Returns whether the pool is there still.
    pub(crate) fn on_destroy_returned(&mut self, pool: usize, is_gone: bool) -> bool {
        let known = self.of(pool);
        // It was gone before, or its handle is another's by now.
        if known.state != State::Going {
            return false;
        }
        known.state = if is_gone { State::Gone } else { State::There };
        if is_gone {
            known.by_us.clear();
            known.by_program.clear();
        }
        !is_gone
    }

    /// The program has created or imported a pool, perhaps with the handle of one that is gone. `by_us` are devices to which p2pshim had granted an
    /// earlier pool, and whose access the driver has left to this one.
    pub(crate) fn on_created(&mut self, pool: usize, device: Option<i32>, by_us: BTreeSet<i32>) {
        self.known.insert(pool, Pool { device, by_us, ..Pool::default() });
    }

    /// P2pshim is about to let a device access a pool.
    pub(crate) fn grant(&mut self, pool: usize, to: i32) {
        self.of(pool).by_us.insert(to);
        self.granted_to.insert(to);
    }

    /// The driver has refused that.
    pub(crate) fn withdraw_grant(&mut self, pool: usize, to: i32) {
        self.of(pool).by_us.remove(&to);
    }

    /// The program has let a device access a pool, or has taken that right away.
    pub(crate) fn set_by_program(&mut self, pool: usize, device: i32, has_access: bool) {
        let by_program = &mut self.of(pool).by_program;
        if has_access {
            by_program.insert(device);
        } else {
            by_program.remove(&device);
        }
    }

    pub(crate) fn is_granted_by_us(&self, pool: usize, to: i32) -> bool {
        self.known.get(&pool).is_some_and(|known| known.by_us.contains(&to))
    }

    pub(crate) fn is_granted_by_program(&self, pool: usize, to: i32) -> bool {
        self.known.get(&pool).is_some_and(|known| known.by_program.contains(&to))
    }

    /// The UUID and PCI address of the GPU that an imported pool lies on, if they are known.
    pub(crate) fn imported_from(&self, pool: usize) -> Option<&[String; 2]> {
        self.known.get(&pool)?.imported_from.as_ref()
    }

    pub(crate) fn set_imported_from(&mut self, pool: usize, names: &[String; 2]) {
        self.of(pool).imported_from = Some(names.clone());
    }

    /// A reset ends the pools of a device; and those of which it is not known whose they are, perhaps. The GPU of one that was imported stays known.
    pub(crate) fn on_device_reset(&mut self, device: i32) {
        let elsewhere = |known: &Pool| known.device.is_some_and(|of| of != device);
        self.known.retain(|_, known| elsewhere(known) || known.imported_from.is_some());
        for known in self.known.values_mut().filter(|known| !elsewhere(known)) {
            *known = Pool { imported_from: known.imported_from.take(), ..Pool::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_destroy_returned_rights_go_and_stay_if_it_could_not_be_destroyed() {
        let mut pools = Pools::default();
        pools.on_created(0x10, Some(0), BTreeSet::new());
        pools.grant(0x10, 1);
        pools.set_by_program(0x10, 2, true);
        pools.mark_going(0x10);
        assert!(pools.is_gone(0x10));
        assert!(pools.on_destroy_returned(0x10, false), "it is there still");
        assert!(!pools.is_gone(0x10) && pools.is_granted_by_us(0x10, 1) && pools.is_granted_by_program(0x10, 2));
        pools.mark_going(0x10);
        assert!(!pools.on_destroy_returned(0x10, true) && pools.is_gone(0x10) && !pools.is_granted_by_us(0x10, 1));
        pools.mark_going(0x10);
        assert!(!pools.on_destroy_returned(0x10, false), "it was gone before");
        assert!(pools.is_gone(0x10));
        pools.on_created(0x10, Some(0), [1].into());
        assert!(!pools.is_gone(0x10) && pools.is_granted_by_us(0x10, 1) && !pools.is_granted_by_program(0x10, 2));
    }

    #[test]
    fn on_device_reset_pools_elsewhere_stay() {
        let mut pools = Pools::default();
        for (pool, device) in [(0x10, Some(0)), (0x20, Some(1)), (0x30, None)] {
            pools.on_created(pool, device, [3].into());
        }
        pools.set_imported_from(0x30, &["GPU-1".to_owned(), "0000:01:00.0".to_owned()]);
        pools.on_device_reset(1);
        assert_eq!([0x10, 0x20, 0x30].map(|pool| pools.is_granted_by_us(pool, 3)), [true, false, false]);
        assert!(pools.imported_from(0x30).is_some() && pools.imported_from(0x20).is_none());
    }
}
