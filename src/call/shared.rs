//! Calls of the program that share memory with other processes: they export and open it.

use super::{mode, read, recording};
use crate::api::Function;
use crate::api::abi::{Code, Value};
use crate::policy::access::How;
use crate::policy::{ACCESS, capture, exports};
use crate::real::driver::RealDriver;
use crate::record::trace;

/// Memory was exported: a note in the trace says so, and the run's other processes are told.
#[cold]
pub(super) fn on_export(function: Function, arguments: &[Value]) {
    mode::unseen(|| {
        if trace::file().is_none() && !exports::are_shared() {
            return None;
        }
        recording::note_gpus_before_a_copy();
        match *arguments {
            [_, Value::UInt(physical), ..] => ACCESS.physical_is_exported(&RealDriver, physical as usize),
            [Value::Address(out), Value::Address(address)] => {
                let how = if function == Function::cuIpcGetMemHandle { How::Ipc } else { How::Pool };
                ACCESS.memory_is_exported(&RealDriver, how, address as u64, &read::shared_handle(out)?);
            }
            _ => {}
        }
        Some(())
    });
}

/// Physical memory was made; the call returns its handle, and may say that it is for others too.
#[cold]
pub(super) fn on_creation(out: usize, bytes: u64, properties: usize) {
    mode::unseen(|| {
        let physical = read::handle_at(out)?;
        ACCESS.is_not_imported(physical);
        if read::may_be_exported(properties) {
            ACCESS.physical_is_made(physical, bytes);
        }
        Some(())
    });
}

/// Memory of another process is about to be opened. A code, if that must not be done: the program gets it.
#[cold]
pub(super) fn before_open(handle: usize) -> Option<Code> {
    let refused = || ACCESS.refused_opening(&RealDriver, &read::shared_handle(handle)?);
    if ACCESS.may_hide() { mode::unseen(refused) } else { None }
}

/// Memory of another process was opened, which may lie behind a path that the program is not to use.
#[cold]
pub(super) fn warn_of_opened(handle: usize) {
    if !capture::may_be_under_way() {
        mode::unseen(|| {
            ACCESS.warn_of_foreign_memory(&RealDriver, &read::shared_handle(handle)?);
            Some(())
        });
    }
}

/// Memory of another process was opened by a handle.
#[cold]
pub(super) fn on_open(how: How, out: usize, handle: usize) {
    mode::unseen(|| {
        recording::note_gpus_before_a_copy();
        ACCESS.memory_is_opened(&RealDriver, how, read::handle_at(out)? as u64, &read::shared_handle(handle)?);
        Some(())
    });
}
