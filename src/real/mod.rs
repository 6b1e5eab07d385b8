//! Finding the real functions: where a call goes once we have seen it.
//!
//! Every route in has a [`Slot`](slot::Slot): one for each symbol version under which a function is exported,
//! and a few that are claimed as the program looks functions up. A slot holds the pointer of the
//! real function, and a call through it goes there and nowhere else; so two runtimes in one process
//! each get their own calls.

pub(crate) mod driver;
pub(crate) mod hip;
pub(crate) mod loader;
pub(crate) mod nvml;
pub(crate) mod python;
pub(crate) mod runtime;
pub(crate) mod slot;
pub(crate) mod stack;

use crate::api::abi::Code;

/// An error unless the code is success.
fn checked(code: Code) -> Result<(), Code> {
    if code == Code::SUCCESS { Ok(()) } else { Err(code) }
}

/// The value that a function writes which takes a place for it.
fn asked<T: Default>(ask: impl FnOnce(&mut T) -> Code) -> Result<T, Code> {
    let mut place = T::default();
    checked(ask(&mut place)).map(|()| place)
}
