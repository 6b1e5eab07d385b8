//! Initialisation, versions, error texts, look-up of functions, and what tests ask the simulation.

use std::ffi::c_char;

use p2psim_core::{Error, Machine, Result};

use super::require;
use crate::abi::{In, Opaque, Out};
use crate::entry::{api, config_now, driver_version, initialise, machine};
use crate::table::{self, Missing};

/// `CUdriverProcAddressQueryResult`: found.
const STATUS_FOUND: u32 = 0;
/// `CUdriverProcAddressQueryResult`: no such name.
const STATUS_UNKNOWN: u32 = 1;
/// `CUdriverProcAddressQueryResult`: the name exists, but not yet in the version asked for.
const STATUS_TOO_OLD: u32 = 2;

/// This process only, and all at once.
fn checkpoint(process: i32) -> Result<&'static Machine> {
    require(u32::try_from(process) == Ok(std::process::id()))?;
    machine()
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
        set_text(name, Error::name(error))
    }

    fn cuGetErrorString(error: u32, text: Out<Opaque>) {
        set_text(text, Error::text(error))
    }

    /// As of 11.3.
    fn cuGetProcAddress(symbol: In<c_char>, function: Out<Opaque>, version: i32, flags: u64) {
        look_up(symbol, function, version, flags, Out::at(0))
    }

    /// As of 12.0.
    fn cuGetProcAddress_v2(
        symbol: In<c_char>,
        function: Out<Opaque>,
        version: i32,
        flags: u64,
        status: Out<u32>,
    ) {
        look_up(symbol, function, version, flags, status)
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
}

fn set_text(out: Out<Opaque>, text: Option<&'static std::ffi::CStr>) -> p2psim_core::Result<()> {
    let out = out.required()?;
    out.set(text.map_or(Opaque::NULL, |text| Opaque(text.as_ptr().cast_mut().cast())));
    if text.is_some() { Ok(()) } else { Err(Error::INVALID_VALUE) }
}

fn look_up(
    symbol: In<c_char>,
    function: Out<Opaque>,
    version: i32,
    flags: u64,
    status: Out<u32>,
) -> p2psim_core::Result<()> {
    let (name, function) = (symbol.text()?, function.required()?);
    let found = table::find(name, version, flags);
    status.set(match found {
        Ok(_) => STATUS_FOUND,
        Err(Missing::TooOld) => STATUS_TOO_OLD,
        Err(Missing::Unknown | Missing::BadFlags) => STATUS_UNKNOWN,
    });
    function.set(found.unwrap_or(Opaque::NULL));
    match found {
        Ok(_) => Ok(()),
        Err(Missing::BadFlags) => Err(Error::INVALID_VALUE),
        Err(Missing::Unknown | Missing::TooOld) => Err(Error::NOT_FOUND),
    }
}
