//! Arrays that were made in sight. The driver says neither where an array lies nor whose it is.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::os;

/// An array, as it was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Width, height and depth in elements; 1 where it has none.
    pub(crate) extent: [u64; 3],
    /// Bytes of an element.
    pub(crate) element: u64,
}

/// The context that an array was made in: its handle, what tells it from later ones with the same handle, and its device.
pub(crate) type MadeIn = (usize, u64, i32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Array {
    There { shape: Option<Shape>, made_in: Option<MadeIn> },
    Destroyed,
}

/// How many destroyed arrays are remembered. Then all of them are forgotten.
const DESTROYED: usize = 4096;

pub(crate) struct Arrays(Mutex<All>);

struct All {
    known: BTreeMap<usize, Array>,
    /// How many were destroyed since destroyed ones were last forgotten.
    destroyed: usize,
}

impl Arrays {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(All { known: BTreeMap::new(), destroyed: 0 }))
    }

    /// The facts known of an array.
    pub(crate) fn find(&self, handle: usize) -> Option<Array> {
        os::lock(&self.0).known.get(&handle).copied()
    }

    /// The context that an array was made in which is there.
    pub(crate) fn made_in(&self, handle: usize) -> Option<MadeIn> {
        match self.find(handle)? {
            Array::There { made_in, .. } => made_in,
            Array::Destroyed => None,
        }
    }

    /// One was made. Its handle may have been another's, of which nothing holds any more.
    pub(crate) fn note_made(&self, handle: usize, shape: Option<Shape>, made_in: Option<MadeIn>) {
        os::lock(&self.0).known.insert(handle, Array::There { shape, made_in });
    }

    /// One is about to be destroyed. Whether it was known.
    pub(crate) fn mark_destroyed(&self, handle: usize) -> bool {
        let All { known, destroyed } = &mut *os::lock(&self.0);
        if *destroyed >= DESTROYED {
            *destroyed = 0;
            known.retain(|_, array| *array != Array::Destroyed);
        }
        let was_there =
            known.get_mut(&handle).is_some_and(|array| std::mem::replace(array, Array::Destroyed) != Array::Destroyed);
        *destroyed += usize::from(was_there);
        was_there
    }

    /// There is an array where one was destroyed, or was to be.
    pub(crate) fn unmark_destroyed(&self, handle: usize) {
        let known = &mut os::lock(&self.0).known;
        if known.get(&handle) == Some(&Array::Destroyed) {
            known.remove(&handle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn array_destroyed_is_not_unknown() {
        let arrays = Arrays::new();
        let shape = Some(Shape { extent: [4, 1, 1], element: 4 });
        arrays.note_made(0x10, shape, Some((0xa0, 1, 0)));
        assert_eq!(arrays.find(0x10), Some(Array::There { shape, made_in: Some((0xa0, 1, 0)) }));
        assert_eq!(
            [arrays.mark_destroyed(0x10), arrays.mark_destroyed(0x10), arrays.mark_destroyed(0x20)],
            [true, false, false]
        );
        assert_eq!((arrays.find(0x10), arrays.find(0x20)), (Some(Array::Destroyed), None));
        assert_eq!(arrays.made_in(0x10), None);
        arrays.unmark_destroyed(0x10);
        assert_eq!(arrays.find(0x10), None);
    }

    #[test]
    fn destroyed_arrays_do_not_pile_up() {
        let arrays = Arrays::new();
        for handle in 1..=3 * DESTROYED {
            arrays.note_made(handle, None, None);
            arrays.mark_destroyed(handle);
        }
        assert!(os::lock(&arrays.0).known.len() <= DESTROYED);
        assert_eq!(arrays.find(3 * DESTROYED), Some(Array::Destroyed));
    }
}
