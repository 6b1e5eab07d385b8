//! Look-up of functions by name and version: every exported function with its address.

use std::ffi::c_char;

use p2psim_core::Error;

use crate::abi::{In, Opaque, Out};
use crate::api::{
    batches::*, contexts::*, copies::*, devices::*, events::*, global::*, graphics::*, graphs::*, mappings::*,
    memory::*, modules::*, nodes::*, peers::*, pools::*, sharing::*, streams::*,
};
use crate::entry::api;
use crate::functions::Address;
use crate::table::functions;

/// `CUdriverProcAddressQueryResult`: found.
const STATUS_FOUND: u32 = 0;
/// `CUdriverProcAddressQueryResult`: no such name.
const STATUS_UNKNOWN: u32 = 1;
/// `CUdriverProcAddressQueryResult`: the name exists, but not yet in the version asked for.
const STATUS_TOO_OLD: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Any,
    PerThread,
}

struct Row {
    name: &'static str,
    since: i32,
    form: Form,
    address: Address,
}

/// Why a look-up found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    /// No function has that name.
    Unknown,
    /// The function appeared after the version asked for.
    TooOld,
    /// The flags mean nothing.
    BadFlags,
}

/// `CU_GET_PROC_ADDRESS_DEFAULT` and `…_LEGACY_STREAM`.
const LEGACY_FLAGS: std::ops::RangeInclusive<u64> = 0..=1;
/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
const PER_THREAD_FLAGS: u64 = 2;

/// The newest form of a function that a program of `version` can know.
fn find(name: &str, version: i32, flags: u64) -> Result<Opaque, Missing> {
    if !LEGACY_FLAGS.contains(&flags) && flags != PER_THREAD_FLAGS {
        return Err(Missing::BadFlags);
    }
    let wanted = |row: &&Row| row.name == name && (row.form == Form::Any || flags == PER_THREAD_FLAGS);
    let known = ROWS.iter().filter(wanted);
    // A per-thread form wins over a common one, whichever is newer.
    let usable = known.clone().filter(|row| row.since <= version);
    match usable.max_by_key(|row| (row.form == Form::PerThread, row.since)) {
        Some(row) => Ok(Opaque(row.address.0.cast_mut().cast())),
        None if known.count() > 0 => Err(Missing::TooOld),
        None => Err(Missing::Unknown),
    }
}

macro_rules! rows {
    ($($name:ident $since:literal $symbol:ident $(per_thread $per_thread_since:literal $per_thread:ident)?;)*) => {
        static ROWS: &[Row] = &[$(
            Row { name: stringify!($name), since: $since, form: Form::Any, address: Address($symbol as *const ()) },
            $(Row {
                name: stringify!($name),
                since: $per_thread_since,
                form: Form::PerThread,
                address: Address($per_thread as *const ()),
            },)?
        )*];
    };
}

functions!(rows);

api! {
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
}

fn look_up(
    symbol: In<c_char>,
    function: Out<Opaque>,
    version: i32,
    flags: u64,
    status: Out<u32>,
) -> p2psim_core::Result<()> {
    let (name, function) = (symbol.text()?, function.required()?);
    let found = find(name, version, flags);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, version: i32, flags: u64) -> Result<*const (), Missing> {
        find(name, version, flags).map(|function| function.0.cast_const().cast())
    }

    #[test]
    fn find_version_decides_the_form() {
        assert_eq!(found("cuGetProcAddress", 11030, 0), Ok(cuGetProcAddress as *const ()));
        assert_eq!(found("cuGetProcAddress", 12000, 0), Ok(cuGetProcAddress_v2 as *const ()));
        assert_eq!(found("cuGetProcAddress", 11020, 0), Err(Missing::TooOld));
        assert_eq!(found("cuDeviceGetP2PAttribute", 7000, 0), Err(Missing::TooOld));
        assert_eq!(found("cuMemcpyBatchAsync", 12070, 2), Err(Missing::TooOld));
        assert_eq!(found("cuMemcpyBatchAsync", 12090, 0), Ok(cuMemcpyBatchAsync as *const ()));
        assert_eq!(found("cuMemcpyBatchAsync", 12090, 2), Ok(cuMemcpyBatchAsync_ptsz as *const ()));
        assert_eq!(found("cuMemcpyBatchAsync", 13000, 2), Ok(cuMemcpyBatchAsync_v2_ptsz as *const ()));
    }

    #[test]
    fn find_flags_decide_the_default_stream() {
        assert_eq!(found("cuMemcpyPeer", 4000, 0), Ok(cuMemcpyPeer as *const ()));
        assert_eq!(found("cuMemcpyPeer", 7000, 1), Ok(cuMemcpyPeer as *const ()));
        assert_eq!(found("cuMemcpyPeer", 7000, 2), Ok(cuMemcpyPeer_ptds as *const ()));
        assert_eq!(found("cuMemcpyPeer", 4000, 2), Ok(cuMemcpyPeer as *const ()));
        assert_eq!(found("cuMemAlloc", 13000, 2), Ok(cuMemAlloc_v2 as *const ()));
        assert_eq!(found("cuMemcpyPeer", 7000, 3), Err(Missing::BadFlags));
    }

    #[test]
    fn find_unknown_names() {
        for name in ["", "cuMemcpyPee", "cuMemcpyPeer_ptds", "cuMemAlloc_v2"] {
            assert_eq!(found(name, 13000, 0), Err(Missing::Unknown), "{name}");
        }
    }
}
