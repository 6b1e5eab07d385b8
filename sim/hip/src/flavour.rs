//! Which release of HIP this is.

#[cfg(not(test))]
unsafe extern "C" {
    /// From a C file of one line that link.mk makes for each library.
    safe static p2psim_hip_version: i32;
}

#[cfg(test)]
#[allow(non_upper_case_globals, reason = "stands in for the linker's")]
static p2psim_hip_version: i32 = 60_400_000;

/// The version that `hipRuntimeGetVersion` writes: major * 10^7 + minor * 10^5 + patch.
pub(crate) fn version() -> i32 {
    p2psim_hip_version
}

/// 5, 6 or 7.
pub(crate) fn major() -> i32 {
    version() / 10_000_000
}

/// Whether calls that succeed leave the last error as it is.
pub(crate) fn keeps_last_error() -> bool {
    major() >= 7
}
