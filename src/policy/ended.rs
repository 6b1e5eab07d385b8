//! Which contexts have ended, after a call by which some may have.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::driver::Driver;

/// Asks the driver once about each context.
pub(crate) struct Ended<'a, D> {
    driver: &'a D,
    /// The device whose primary context has ended, if one has.
    pub(crate) primary_of: Option<i32>,
    /// The context that has ended, if it is known which.
    destroyed: Option<usize>,
    asked: RefCell<BTreeMap<(usize, u64), bool>>,
}

impl<'a, D: Driver> Ended<'a, D> {
    pub(crate) fn new(driver: &'a D, primary_of: Option<i32>, destroyed: Option<usize>) -> Self {
        Self { driver, primary_of, destroyed, asked: RefCell::new(BTreeMap::new()) }
    }

    /// Whether it is known of any context that it has ended.
    pub(crate) fn is_any_known(&self) -> bool {
        self.primary_of.is_some() || self.destroyed.is_some()
    }

    /// Whether a context has ended. A driver that does not number contexts does not tell: then only the one has that the program has ended.
    pub(crate) fn has(&self, context @ (handle, id): (usize, u64)) -> bool {
        let ask = || match id {
            0 => self.destroyed == Some(handle),
            _ => self.driver.context_id(handle) != Some(id),
        };
        *self.asked.borrow_mut().entry(context).or_insert_with(ask)
    }
}
