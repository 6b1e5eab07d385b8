//! Calls of the program that share memory with other processes: they export and open it.

use p2pshim_trace::NoteKind;

use super::arrival::Caller;
use super::{failures, mode, origin, read, recording};
use crate::api::abi::{Code, Value};
use crate::api::{Function, Layer, codes};
use crate::objects::captures;
use crate::os::{self, table::Table};
use crate::policy::access::{Handle, How};
use crate::policy::driver::Holder;
use crate::policy::{ACCESS, Driver};
use crate::real::driver::{AccessDesc, RealDriver};
use crate::record::{exports, trace};

/// Memory was exported: a note in the trace says so, and the run's other processes are told.
#[cold]
pub(super) fn on_export(function: Function, caller: Caller, arguments: &[Value]) {
    mode::unseen(|| {
        if trace::file().is_none() && !exports::are_shared() {
            return None;
        }
        recording::note_gpus_before_a_copy();
        match *arguments {
            [_, Value::UInt(physical), ..] => ACCESS.on_physical_exported(&RealDriver, physical as usize),
            [Value::Address(out), Value::Address(address)] => {
                let how = if function == Function::cuIpcGetMemHandle { How::Ipc } else { How::Pool };
                ACCESS.on_memory_exported(&RealDriver, how, address as u64, &read::shared_handle(out)?);
                if how == How::Ipc && RealDriver.memory(address as u64)?.range.0 != address as u64 {
                    note(function, caller, Code::SUCCESS, "inside");
                }
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
        ACCESS.forget_imported(physical);
        if read::may_be_exported(properties) {
            ACCESS.note_physical(physical, bytes);
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

/// Memory of another process was opened by a handle. It may lie behind a path that the program is not to use.
#[cold]
pub(super) fn on_open(how: How, out: usize, handle: usize) {
    mode::unseen(|| {
        recording::note_gpus_before_a_copy();
        let handle = read::shared_handle(handle)?;
        ACCESS.on_memory_opened(&RealDriver, how, read::handle_at(out)? as u64, &handle);
        if how == How::Ipc && ACCESS.may_hide() && !captures::may_be_under_way() {
            ACCESS.warn_of_foreign_memory(&RealDriver, &handle);
        }
        Some(())
    });
}

/// A call by which processes share memory has failed: a note in the trace says where it was made, and of which memory.
#[cold]
#[inline(never)]
pub(super) fn note_failure(function: Function, caller: Caller, arguments: &[Value], code: Code) {
    if trace::file().is_some() {
        mode::unseen(|| note(function, caller, code, fault(function, arguments)?));
    }
}

/// Notes a call by which processes share memory. Inside our own work.
fn note(function: Function, caller: Caller, code: Code, of: &str) -> Option<()> {
    /// By function, code and what is special: libraries try fabric handles for ever, and others must be noted all the same.
    static TIMES: Table<512, 32> = Table::new();
    const NOTED: u64 = 4096;
    let special = of.bytes().fold(0u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte));
    let kind = (function as u64 + 1) << 20 | u64::from(code.0.unsigned_abs() & 0xfff) << 8 | u64::from(special);
    let trace = trace::file().filter(|_| TIMES.count(kind) < NOTED)?;
    let site = origin::of_untraced(caller, function, false).unwrap_or_else(|| failures::site(trace, caller));
    let name = codes::name(Layer::Driver, code).unwrap_or_default();
    trace::note(NoteKind::Unshared, site.into(), &[function.base(), &code.0.to_string(), name, of]);
    Some(())
}

/// The number that the process has, in its PID namespace, that made a handle of memory (as measured on H200).
fn owner(handle: &Handle) -> Option<i32> {
    handle.get(8..12)?.try_into().ok().map(i32::from_le_bytes)
}

/// The special feature of the memory, or of the handle, of a call that has failed; none if it is not about sharing.
fn fault(function: Function, arguments: &[Value]) -> Option<&'static str> {
    /// `CU_MEM_HANDLE_TYPE_FABRIC`.
    const FABRIC: i64 = 8;
    /// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, the one flag that there is.
    const LAZY_ENABLE_PEER_ACCESS: u64 = 1;
    Some(match *arguments {
        [_, _, Value::Address(properties), _] => return read::wants(properties, FABRIC).then_some("fabric"),
        [.., Value::Int(FABRIC)] | [.., Value::Int(FABRIC), _] => "fabric",
        [_, Value::Address(handle), Value::UInt(flags)] if function.base() == "cuIpcOpenMemHandle" => match flags {
            LAZY_ENABLE_PEER_ACCESS => match read::shared_handle(handle)? {
                handle if ACCESS.has_exported(&handle) => "own",
                handle if owner(&handle) == Some(os::process_id()) => "namespace",
                _ => "",
            },
            _ => "flags",
        },
        [_, Value::Address(grants), Value::UInt(count)] => {
            let grants = read::grants(grants as *const AccessDesc, count).unwrap_or_default();
            if grants.iter().any(AccessDesc::takes_away) { "none" } else { "" }
        }
        [_, Value::Address(address)] => match RealDriver.memory(address as u64).map(|memory| memory.holder) {
            Some(Holder::Mapped) => "mapped",
            Some(Holder::Pool(_)) => "pool",
            Some(Holder::Foreign) => "managed",
            Some(Holder::Opened) => "opened",
            _ => "",
        },
        _ => "",
    })
}
