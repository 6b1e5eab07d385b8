//! Which version of the runtime this is.

#[cfg(not(test))]
unsafe extern "C" {
    /// From a C file of one line that sim.mk makes for each library.
    safe static p2psim_cudart_version: i32;
}

#[cfg(test)]
#[allow(non_upper_case_globals, reason = "stands in for the linker's")]
static p2psim_cudart_version: i32 = 13000;

/// 8000, 9000, 10000, 10010, 10020, 11080, 12090 or 13000.
pub(crate) fn version() -> i32 {
    p2psim_cudart_version
}

/// 8 to 13.
pub(crate) fn major() -> i32 {
    version() / 1000
}

/// Whether codes have the driver's numbers, and not those that the runtime had of its own.
pub(crate) fn has_the_drivers_codes() -> bool {
    version() >= 10010
}
