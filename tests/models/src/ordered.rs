//! loom's atomics. It takes SeqCst for AcqRel, so here each such access has a fence before it, as processors have that know no more. So two threads that
//! each store one word and then load the other's do not both miss what the other has stored.

pub(crate) use loom::sync::atomic::{AtomicBool, AtomicPtr, Ordering, fence};
use Ordering::SeqCst;

fn before(order: Ordering) {
    if order == SeqCst {
        fence(SeqCst);
    }
}

macro_rules! ordered {
    ($($name:ident $value:ty)*) => { $(
        #[derive(Debug)]
        pub(crate) struct $name(loom::sync::atomic::$name);

        impl $name {
            pub(crate) fn new(value: $value) -> Self {
                Self(loom::sync::atomic::$name::new(value))
            }

            pub(crate) fn load(&self, order: Ordering) -> $value {
                before(order);
                self.0.load(order)
            }

            pub(crate) fn store(&self, value: $value, order: Ordering) {
                before(order);
                self.0.store(value, order);
            }

            pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                before(order);
                self.0.swap(value, order)
            }

            pub(crate) fn compare_exchange(&self, from: $value, to: $value, order: Ordering, failed: Ordering) -> Result<$value, $value> {
                before(order);
                self.0.compare_exchange(from, to, order, failed)
            }

            pub(crate) fn fetch_update(&self, order: Ordering, failed: Ordering, change: impl FnMut($value) -> Option<$value>) -> Result<$value, $value> {
                before(order);
                self.0.fetch_update(order, failed, change)
            }

            ordered! { each $value; fetch_add fetch_sub fetch_and fetch_or fetch_max }
        }
    )* };
    (each $value:ty; $($name:ident)*) => { $(
        pub(crate) fn $name(&self, value: $value, order: Ordering) -> $value {
            before(order);
            self.0.$name(value, order)
        }
    )* };
}
ordered!(AtomicU32 u32 AtomicU64 u64 AtomicUsize usize);
