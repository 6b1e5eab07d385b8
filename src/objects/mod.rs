//! The driver's objects, as far as they are known: one place for each kind. Nothing here asks the driver.

#![forbid(unsafe_code)]

pub(crate) mod arrays;
pub(crate) mod captures;
pub(crate) mod contexts;
pub(crate) mod generations;
pub(crate) mod graphs;
pub(crate) mod index;
pub(crate) mod map;
pub(crate) mod memory;
pub(crate) mod past;
pub(crate) mod pools;
pub(crate) mod shared;
pub(crate) mod streams;

use arrays::Arrays;
use contexts::Contexts;
use past::Past;
use streams::Streams;

/// The objects of this process.
pub(crate) static OBJECTS: Objects = Objects::new();

pub(crate) struct Objects {
    pub(crate) arrays: Arrays,
    pub(crate) contexts: Contexts,
    pub(crate) past: Past,
    pub(crate) streams: Streams,
}

impl Objects {
    pub(crate) const fn new() -> Self {
        Self { arrays: Arrays::new(), contexts: Contexts::new(), past: Past::new(), streams: Streams::new() }
    }

    /// Forgets contexts and streams, and what happened to memory: nobody looked for a time. Arrays are looked at all the time.
    pub(crate) fn forget(&self) {
        self.contexts.forget(None, None);
        self.streams.forget_all();
        captures::let_askers_finish();
        self.past.forget();
    }

    /// A context has ended: the one with this handle, or the primary one of a device. If neither is known, any may be it.
    pub(crate) fn forget_context(&self, context: Option<usize>, primary_of: Option<i32>) {
        self.contexts.forget(context, primary_of);
        self.streams.forget_context(context, primary_of);
    }

    /// A context may be about to end. Threads that ask the driver about its streams are waited for.
    pub(crate) fn on_context_ending(&self, context: Option<usize>, primary_of: Option<i32>) {
        self.forget_context(context, primary_of);
        captures::let_askers_finish();
    }
}
