//! The machine that the command is built for.

use object::elf::{EM_AARCH64, EM_X86_64, Machine};

/// Its name, for texts that are put together when they are compiled.
#[cfg(target_arch = "aarch64")]
macro_rules! name {
    () => {
        "aarch64"
    };
}
#[cfg(target_arch = "x86_64")]
macro_rules! name {
    () => {
        "x86-64"
    };
}
pub(crate) use name;

/// Its number in the headers of ELF files.
pub(crate) const IN_ELF: Machine = if cfg!(target_arch = "aarch64") { EM_AARCH64 } else { EM_X86_64 };

/// The shim in Debian's folder for the machine's libraries, seen from the folder of the command.
pub(crate) const DEBIANS_PLACE: &str = if cfg!(target_arch = "aarch64") {
    "../lib/aarch64-linux-gnu/libp2pshim.so.0"
} else {
    "../lib/x86_64-linux-gnu/libp2pshim.so.0"
};
