//! Initialisation, versions, error texts, and what tests ask the simulation.

use p2psim_core::{Error, Machine, Result};

use super::require;
use crate::abi::{Opaque, Out};
use crate::entry::{api, config_now, driver_version, initialise, inside, machine};

/// This process only, and all at once.
fn checkpoint(process: i32) -> Result<&'static Machine> {
    require(u32::try_from(process) == Ok(std::process::id()))?;
    machine()
}

/// Whether the driver has a code: one came with 13.3.
fn is_of_driver(error: u32) -> bool {
    Error(error) != Error::GRAPH_RECAPTURE_FAILURE || driver_version() >= 13_030
}

api! {
    fn cuInit(flags: u32) {
        require(flags == 0)?;
        initialise()
    }

    fn cuDriverGetVersion(version: Out<i32>) {
        version.required()?.set(driver_version());
        Ok(())
    }

    fn cuCheckpointProcessLock(process: i32, _arguments: Opaque) { checkpoint(process).map(drop) }
    fn cuCheckpointProcessCheckpoint(process: i32, _arguments: Opaque) { checkpoint(process).map(drop) }
    fn cuCheckpointProcessUnlock(process: i32, _arguments: Opaque) { checkpoint(process).map(drop) }

    /// Onto other devices: what goes wrong between them the environment says by now.
    fn cuCheckpointProcessRestore(process: i32, _arguments: Opaque) {
        checkpoint(process)?.set_faults(config_now().faults);
        Ok(())
    }

    fn cuGetErrorName(error: u32, name: Out<Opaque>) {
        set_text(name, Error::name(error).filter(|_| is_of_driver(error)))
    }

    fn cuGetErrorString(error: u32, text: Out<Opaque>) {
        set_text(text, Error::text(error).filter(|_| is_of_driver(error)))
    }

    /// The tables behind it are the vendor's own.
    fn cuGetExportTable(table: Out<Opaque>, _id: Opaque) {
        table.required()?.set(Opaque::NULL);
        Err(Error::NOT_FOUND)
    }

    /// For tests: how many copies went from one device to another, directly and staged.
    fn p2psim_copies(from: i32, to: i32, direct: Out<u64>, staged: Out<u64>) {
        let machine = machine()?;
        let counts = machine.copies(machine.device(from)?, machine.device(to)?);
        direct.set(counts.0);
        staged.set(counts.1);
        Ok(())
    }

    /// For tests: how many calls of the driver the thread is in that a signal handler has interrupted.
    fn p2psim_inside(calls: Out<u32>) {
        calls.set(inside());
        Ok(())
    }

    /// For tests: a thing that a process can hold, by its number, and how much there is of it now.
    fn p2psim_held(number: u32, name: Out<Opaque>, count: Out<u64>) {
        let (thing, held) = *machine()?.held().get(number as usize).ok_or(Error::INVALID_VALUE)?;
        count.set(held);
        set_text(name, Some(thing))
    }
}

fn set_text(out: Out<Opaque>, text: Option<&'static std::ffi::CStr>) -> p2psim_core::Result<()> {
    let out = out.required()?;
    out.set(text.map_or(Opaque::NULL, |text| Opaque(text.as_ptr().cast_mut().cast())));
    if text.is_some() { Ok(()) } else { Err(Error::INVALID_VALUE) }
}
