//! Numbered names: handles of the program, and lives of objects that have handles.

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $($(#[$doc])* #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)] pub struct $name(pub u64);)*
    };
}

handles! {
    /// One life of a context: never used twice, while its handle may be.
    ContextId;
    /// The program's handle of a context.
    ContextHandle;
    /// One life of a stream, of a default stream too: never used twice.
    StreamId;
    /// The program's handle of a stream.
    StreamHandle;
    /// The program's handle of an event.
    EventHandle;
    /// The program's handle of an array.
    ArrayHandle;
    /// One capture: never used twice.
    CaptureId;
    /// The program's handle of a graph.
    GraphHandle;
    /// The program's handle of a node of a graph.
    NodeHandle;
    /// The program's handle of a graph that is ready to run.
    ExecHandle;
    /// The program's handle of a memory pool.
    PoolHandle;
    /// The program's handle of physical memory.
    PhysicalHandle;
    /// The program's handle of a module.
    ModuleHandle;
    /// The program's handle of a function of a module.
    FunctionHandle;
    /// The program's handle of a library.
    LibraryHandle;
    /// The program's handle of a kernel of a library.
    KernelHandle;
}

/// Which of the two default streams of a context is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultStream {
    /// The one that all threads share and that blocks.
    Legacy,
    /// The calling thread's own.
    PerThread,
}
