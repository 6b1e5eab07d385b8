//! The state of a thread of the program: its device, its context, its last error.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::driver::Driver;
use crate::error::{Error, Result};

thread_local! {
    static LAST_ERROR: Cell<u32> = const { Cell::new(0) };
    static DEVICE: Cell<i32> = const { Cell::new(0) };
}

/// More devices than any machine has.
const MAX_DEVICES: usize = 128;

/// Primary contexts by device, as far as the runtime has retained them; 0 where not.
static PRIMARIES: [AtomicU64; MAX_DEVICES] = [const { AtomicU64::new(0) }; MAX_DEVICES];

/// Remembers a failure; a success leaves what was there.
pub(crate) fn remember(code: u32) {
    if code != 0 {
        LAST_ERROR.set(code);
    }
}

/// The last failure.
pub(crate) fn last_error() -> u32 {
    LAST_ERROR.get()
}

/// The last failure, which is forgotten.
pub(crate) fn take_last_error() -> u32 {
    LAST_ERROR.replace(0)
}

/// Refuses ordinals that no device has.
pub(crate) fn check_device(driver: &Driver, device: i32) -> Result<()> {
    if (0..driver.devices).contains(&device) { Ok(()) } else { Err(Error::INVALID_DEVICE) }
}

/// The device of the current context, or the one that the next context will be of.
pub(crate) fn device(driver: &Driver) -> Result<i32> {
    let mut device = 0;
    if current(driver)? != 0 && driver.cuCtxGetDevice(&raw mut device).is_ok() {
        return Ok(device);
    }
    // No context, or one that has been destroyed: the runtime's own choice holds.
    Ok(DEVICE.get())
}

/// Makes a device's primary context current.
pub(crate) fn set_device(driver: &Driver, device: i32) -> Result<()> {
    check_device(driver, device)?;
    driver.cuCtxSetCurrent(primary(driver, device)?)?;
    DEVICE.set(device);
    Ok(())
}

/// Sees to it that the thread has a current context; one that was reset comes to life again.
pub(crate) fn bind(driver: &Driver) -> Result<()> {
    let context = current(driver)?;
    if context != 0 && is_alive(driver, context) {
        return Ok(());
    }
    driver.cuCtxSetCurrent(primary(driver, DEVICE.get())?)
}

/// As [`bind`], where only a primary context will do; the program may have made another one current by the driver API.
pub(crate) fn bind_primary(driver: &Driver) -> Result<()> {
    bind(driver)?;
    let mut device = 0;
    driver.cuCtxGetDevice(&raw mut device)?;
    if current(driver)? == primary(driver, device)? { Ok(()) } else { Err(Error::INCOMPATIBLE_DRIVER_CONTEXT) }
}

/// The primary context of a device, retained and alive.
pub(crate) fn primary(driver: &Driver, device: i32) -> Result<u64> {
    let slot = usize::try_from(device).ok().and_then(|device| PRIMARIES.get(device)).ok_or(Error::INVALID_DEVICE)?;
    let known = slot.load(Ordering::Acquire);
    if known != 0 && is_alive(driver, known) {
        return Ok(known);
    }
    let mut context = 0;
    driver.cuDevicePrimaryCtxRetain(&raw mut context, device)?;
    slot.store(context, Ordering::Release);
    Ok(context)
}

/// Whether the runtime has made a device's primary context, and it lives.
pub(crate) fn is_in_use(driver: &Driver, device: i32) -> bool {
    let slot = usize::try_from(device).ok().and_then(|device| PRIMARIES.get(device));
    slot.map(|slot| slot.load(Ordering::Acquire)).is_some_and(|context| context != 0 && is_alive(driver, context))
}

fn current(driver: &Driver) -> Result<u64> {
    let mut context = 0;
    driver.cuCtxGetCurrent(&raw mut context)?;
    Ok(context)
}

fn is_alive(driver: &Driver, context: u64) -> bool {
    let mut version = 0;
    driver.cuCtxGetApiVersion(context, &raw mut version).is_ok()
}
