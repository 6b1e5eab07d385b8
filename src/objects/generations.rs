//! How long a fact about an allocation owner holds: until the owner's generation changes.
//!
//! A change raises the generation after it was made. A thread that keeps a fact reads the generation before it asks, and keeps the fact with it.
//! Only the driver's answer tells the owner of memory. So the cache reads a count of all changes before it asks the driver, and compares it after it has
//! read the owner's generation. Each change raises that count before the generation.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

/// How many contexts, pools and the like are told apart. Number 0 stands for memory that has no such owner: the host's, for example.
pub(crate) const OWNERS: usize = 128;

/// The generations of owners, by their numbers.
pub(crate) struct Generations<const COUNT: usize = OWNERS>([AtomicU64; COUNT]);

impl<const COUNT: usize> Generations<COUNT> {
    pub(crate) const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; COUNT])
    }

    #[inline(always)]
    pub(crate) fn of(&self, owner: u8) -> u64 {
        self.0.get(usize::from(owner)).map_or(0, |generation| generation.load(Acquire))
    }

    /// A number that changes with either owner, and never comes back: generations only grow.
    #[inline(always)]
    pub(crate) fn of_both(&self, one: u8, other: u8) -> u64 {
        self.of(one).wrapping_add(self.of(other))
    }

    /// Facts about an owner hold no longer.
    pub(crate) fn end(&self, owner: u8) {
        self.0.get(usize::from(owner)).into_iter().for_each(|generation| _ = generation.fetch_add(1, AcqRel));
    }

    /// Facts about all owners hold no longer.
    pub(crate) fn end_all(&self) {
        self.0.iter().for_each(|generation| _ = generation.fetch_add(1, AcqRel));
    }
}
