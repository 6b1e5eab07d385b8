//! Every route by which a call of the program reaches us.
//!
//! [`exports`]: symbols that the dynamic linker binds. [`lookup`]: functions that the program asks
//! for by name. Both lead to a trampoline, and that to a hook in [`hooks`].

mod exports;
mod hooks;
mod lookup;
