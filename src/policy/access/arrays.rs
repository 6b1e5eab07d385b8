//! Which device an array lies on. The driver does not say, so this is known of arrays that were made in sight.

use super::registry::Owner;
use super::{Access, Kind, Place};
use crate::model::of_array;
use crate::policy::driver::Driver;

impl Access {
    /// An array was made, in the current context, whose device is returned.
    pub(crate) fn array_is_made(&self, driver: &impl Driver, handle: usize) -> Option<i32> {
        let context = driver.current_context();
        let made = context.and_then(|handle| {
            let (id, device) = (driver.context_id(handle)?, driver.device_of_context(handle)?);
            Some(Owner::Context { handle, id, device })
        });
        let before = {
            let arrays = &mut self.lock().arrays;
            match made {
                Some(owner) => arrays.insert(of_array(handle), owner),
                None => arrays.remove(&of_array(handle)),
            }
        };
        if before.is_some() && before != made {
            self.memory_is_gone(of_array(handle));
        }
        made.map(Owner::device)
    }

    /// The context of an array that was made in sight.
    pub(crate) fn context_of_array(&self, handle: usize) -> Option<usize> {
        match self.lock().arrays.get(&of_array(handle))? {
            Owner::Context { handle, .. } => Some(*handle),
            Owner::Pool { .. } | Owner::Mapped { .. } => None,
        }
    }

    /// An array is about to be destroyed.
    pub(crate) fn array_is_gone(&self, handle: usize) {
        let was_known = self.lock().arrays.remove(&of_array(handle)).is_some();
        if was_known {
            self.memory_is_gone(of_array(handle));
        }
    }

    /// The owner of an array's memory, unless its context is gone.
    pub(super) fn array_place(&self, driver: &impl Driver, end: u64) -> Option<Place> {
        let made = self.lock().arrays.get(&end).copied()?;
        let Owner::Context { handle, id, device } = made else { return None };
        (driver.context_id(handle)? == id).then_some(())?;
        let owner = self.context_number(handle, id, device)?;
        Some(Place { of: handle as u64, ..Place::new(Kind::Plain, u8::try_from(device).ok()?, owner) })
    }
}
