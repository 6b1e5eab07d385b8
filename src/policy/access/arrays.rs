//! Which device an array lies on.

use super::{Access, Kind, Place};
use crate::model::{array_of, of_array};
use crate::objects::OBJECTS;
use crate::objects::arrays::Shape;
use crate::policy::driver::Driver;

impl Access {
    /// An array was made, in the current context.
    pub(crate) fn on_array_created(&self, driver: &impl Driver, handle: usize, shape: Option<Shape>) {
        let made_in = driver.current_context().and_then(|context| {
            let (id, device) = (driver.context_id(context)?, driver.device_of_context(context)?);
            Some((context, id, device))
        });
        let before = OBJECTS.arrays.made_in(handle);
        OBJECTS.arrays.note_made(handle, shape, made_in);
        if before.is_some() && before != made_in {
            self.forget_memory(of_array(handle));
        }
    }

    /// An array is about to be destroyed.
    pub(crate) fn on_array_destroy(&self, handle: usize) {
        if OBJECTS.arrays.mark_destroyed(handle) {
            self.forget_memory(of_array(handle));
        }
    }

    /// The owner of an array's memory, unless its context is gone.
    pub(super) fn array_place(&self, driver: &impl Driver, end: u64) -> Option<Place> {
        let (context, id, device) = OBJECTS.arrays.made_in(array_of(end)?)?;
        (driver.context_id(context)? == id).then_some(())?;
        let owner = self.context_number(context, id, device)?;
        Some(Place { of: context as u64, ..Place::new(Kind::Plain, u8::try_from(device).ok()?, owner) })
    }
}
