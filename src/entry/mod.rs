//! Every way by which a call of the program reaches us.
//!
//! [`exports`]: symbols that the dynamic linker binds. [`lookup`]: functions that the program asks
//! for by name. Both lead to a trampoline, and that to a hook in [`hooks`]. [`control`]: what the program asks of the shim
//! itself, by the C interface.

mod callbacks;
mod check;
pub(crate) mod control;
mod exports;
mod familiar;
mod fence;
mod guard;
mod hip;
mod hooks;
mod lookup;
mod read;
mod thread;
mod timing;
