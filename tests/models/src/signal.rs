//! Atomics for code that is interrupted by signals: a handler comes between any two accesses, or the process is killed there. Stores that
//! nothing orders, as a compiler may make them in any order, are made by then or later, in each combination.

use std::cell::{RefCell, UnsafeCell};

pub(crate) use std::sync::atomic::Ordering;

/// So many stores that are under way are tried in all combinations. A reader sees no earlier one.
const MOST: usize = 8;

/// A store that the handler may see or not.
struct Store {
    at: *mut u8,
    bytes: usize,
    value: u64,
}

impl Store {
    fn make(&self) {
        // SAFETY: an atomic of so many bytes, which only this thread uses.
        unsafe { std::ptr::copy_nonoverlapping(self.value.to_le_bytes().as_ptr(), self.at, self.bytes) };
    }
}

#[derive(Default)]
struct Run {
    /// Accesses until the handler comes.
    left: usize,
    /// Which of the stores that were under way it sees.
    seen: usize,
    handler: Option<Box<dyn FnOnce()>>,
    /// Whether it is a reader, who comes though signals are held back.
    reads: bool,
    is_held: bool,
    pending: Vec<Store>,
    /// How many stores were under way.
    found: usize,
}

thread_local! {
    static RUN: RefCell<Run> = RefCell::default();
}

/// Runs a model once for each moment in which a signal can arrive after its [`interrupt_by`]. How many orders there are.
pub(crate) fn each_interruption(model: impl Fn()) -> usize {
    let mut orders = 0;
    for left in 0.. {
        for seen in 0.. {
            RUN.take();
            RUN.with_borrow_mut(|run| (run.left, run.seen) = (left, seen));
            model();
            settle();
            if RUN.with_borrow(|run| run.handler.is_some()) {
                return orders;
            }
            orders += 1;
            if seen + 1 >= 1 << RUN.with_borrow(|run| run.found).min(MOST) {
                break;
            }
        }
    }
    orders
}

/// From now on the handler may come.
pub(crate) fn interrupt_by(handler: impl FnOnce() + 'static) {
    settle();
    RUN.with_borrow_mut(|run| run.handler = Some(Box::new(handler)));
}

/// From now on the process may be killed: the reader finds what there is then.
pub(crate) fn read_by(reader: impl FnOnce() + 'static) {
    interrupt_by(reader);
    RUN.with_borrow_mut(|run| run.reads = true);
}

/// No signal arrives in the midst of the work. All stores of it are made when the next may.
pub(crate) fn held<T>(work: impl FnOnce() -> T) -> T {
    settle();
    RUN.with_borrow_mut(|run| run.is_held = true);
    let result = work();
    settle();
    RUN.with_borrow_mut(|run| run.is_held = false);
    result
}

/// All stores are made by now.
pub(crate) fn settle() {
    let pending = RUN.with_borrow_mut(|run| std::mem::take(&mut run.pending));
    pending.iter().for_each(Store::make);
}

pub(crate) fn compiler_fence(_: Ordering) {
    moment();
    settle();
}

/// Stores before it are made before stores after it.
pub(crate) fn fence(order: Ordering) {
    compiler_fence(order);
}

/// The handler comes here, if it is time.
fn moment() {
    let handler = RUN.with_borrow_mut(|run| match run.left.checked_sub(1) {
        _ if run.is_held && !run.reads => None,
        Some(left) if run.handler.is_some() => {
            run.left = left;
            None
        }
        _ => run.handler.take(),
    });
    let Some(handler) = handler else { return };
    let later = RUN.with_borrow_mut(|run| {
        run.found = run.pending.len();
        let (mut later, seen) = (Vec::new(), run.seen);
        for (number, store) in std::mem::take(&mut run.pending).into_iter().rev().enumerate().rev() {
            if number < MOST && seen >> number & 1 == 1 {
                // Those to one place keep their order.
                later.retain(|other: &Store| other.at != store.at);
                store.make();
            } else {
                later.push(store);
            }
        }
        later
    });
    handler();
    settle();
    RUN.with_borrow_mut(|run| run.pending = later);
}

pub(crate) trait Word: Copy {
    fn bits(self) -> u64;
    fn of(bits: u64) -> Self;
}

macro_rules! words {
    ($($type:ty)*) => { $(
        impl Word for $type {
            fn bits(self) -> u64 {
                self as u64
            }
            fn of(bits: u64) -> Self {
                bits as Self
            }
        }
    )* };
}
words!(u8 u16 i16 u32 u64 usize);

impl<T> Word for *mut T {
    fn bits(self) -> u64 {
        self.expose_provenance() as u64
    }
    fn of(bits: u64) -> Self {
        std::ptr::with_exposed_provenance_mut(bits as usize)
    }
}

/// As large as what it holds, so that it may lie in a file.
#[repr(transparent)]
pub(crate) struct Atomic<T>(UnsafeCell<T>);

pub(crate) type AtomicU8 = Atomic<u8>;
pub(crate) type AtomicU16 = Atomic<u16>;
pub(crate) type AtomicI16 = Atomic<i16>;
pub(crate) type AtomicU32 = Atomic<u32>;
pub(crate) type AtomicU64 = Atomic<u64>;
pub(crate) type AtomicUsize = Atomic<usize>;
pub(crate) type AtomicPtr<T> = Atomic<*mut T>;

// SAFETY: only one thread uses them.
unsafe impl<T> Sync for Atomic<T> {}

impl<T: Word> Atomic<T> {
    fn at(&self) -> *mut u8 {
        self.0.get().cast()
    }

    pub(crate) fn load(&self, _: Ordering) -> T {
        moment();
        let at = self.at();
        let own = RUN.with_borrow(|run| run.pending.iter().rfind(|store| store.at == at).map(|store| store.value));
        // SAFETY: nobody writes meanwhile.
        own.map_or_else(|| unsafe { *self.0.get() }, T::of)
    }

    pub(crate) fn store(&self, value: T, order: Ordering) {
        moment();
        if order != Ordering::Relaxed {
            settle();
        }
        let store = Store { at: self.at(), bytes: size_of::<T>(), value: value.bits() };
        RUN.with_borrow_mut(|run| run.pending.push(store));
    }

    /// One instruction, which is made where it stands.
    pub(crate) fn update(&self, order: Ordering, change: impl Fn(T) -> Option<T>) -> Result<T, T> {
        moment();
        let at = self.at();
        let is_ordered = order != Ordering::Relaxed;
        let (before, after) = RUN
            .with_borrow_mut(|run| std::mem::take(&mut run.pending))
            .into_iter()
            .partition(|store| is_ordered || store.at == at);
        let before: Vec<Store> = before;
        before.iter().for_each(Store::make);
        RUN.with_borrow_mut(|run| run.pending = after);
        // SAFETY: nobody else uses it meanwhile.
        let word = unsafe { &mut *self.0.get() };
        let was = *word;
        *word = change(was).ok_or(was)?;
        Ok(was)
    }

    pub(crate) fn fetch_update(&self, order: Ordering, _: Ordering, change: impl Fn(T) -> Option<T>) -> Result<T, T> {
        self.update(order, change)
    }

    pub(crate) fn compare_exchange(&self, from: T, to: T, order: Ordering, _: Ordering) -> Result<T, T> {
        self.update(order, |word| (word.bits() == from.bits()).then_some(to))
    }

    pub(crate) fn wrapping_add(&self, more: T) -> T {
        self.update(Ordering::Relaxed, |word| Some(T::of(word.bits().wrapping_add(more.bits()))))
            .unwrap_or_else(|word| word)
    }
}

impl<T: Word> Default for Atomic<T> {
    fn default() -> Self {
        Self(UnsafeCell::new(T::of(0)))
    }
}

impl<T> std::fmt::Debug for Atomic<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("_")
    }
}
