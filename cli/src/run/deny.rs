//! `P2PSHIM_DENY` for the program: ordinals become UUIDs. A launcher may give each rank other GPUs, and the ordinals of the user mean
//! nothing there. HIP knows ordinals only, so that they stay for it.

use std::ffi::OsString;

use p2pshim_host::config::{Denied, GpuName};

use crate::doctor;

/// The option.
pub(super) const DENY: &str = "P2PSHIM_DENY";

/// Its value for the program, where it names any GPU by an ordinal; `environment` is what the program gets besides. An ordinal that no
/// device has stays, and the shim warns of it.
///
/// # Errors
/// Why the GPUs are not known.
pub(super) fn by_uuid(denied: &[Denied], environment: &[(OsString, OsString)]) -> Result<Option<String>, String> {
    let names = || denied.iter().flat_map(|Denied { device, peer }| [device, peer]);
    if !names().any(|name| matches!(name, GpuName::Ordinal(_))) {
        return Ok(None);
    }
    Ok(Some(value(denied, &doctor::uuids(environment)?)))
}

fn value(denied: &[Denied], uuids: &[String]) -> String {
    let name = |name: &GpuName| match name {
        GpuName::Ordinal(ordinal) => {
            let uuid = usize::try_from(*ordinal).ok().and_then(|ordinal| uuids.get(ordinal));
            uuid.cloned().unwrap_or_else(|| ordinal.to_string())
        }
        GpuName::Hip(ordinal) => format!("hip:{ordinal}"),
        GpuName::Uuid(name) | GpuName::BusId(name) => name.clone(),
    };
    let pairs = denied.iter().map(|Denied { device, peer }| format!("{}>{}", name(device), name(peer)));
    let of_hip = denied.iter().filter_map(Denied::ordinals).map(|[device, peer]| format!("hip:{device}>hip:{peer}"));
    pairs.chain(of_hip).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use p2pshim_host::config::Config;

    #[test]
    fn value_ordinals_become_uuids_and_all_else_stays() {
        let read = |text: &str| Config::read([(DENY.into(), text.into())].into_iter()).0.denied;
        let uuids = ["0", "1"].map(|last| format!("GPU-70327073-696d-2047-5055-202e2e2e2e0{last}"));
        let [zero, one] = &uuids;
        let written = value(&read("0-1,1a:00.0>1,0>7"), &uuids);
        assert_eq!(
            written,
            format!("{one}>{zero},{zero}>{one},0000:1a:00.0>{one},{zero}>7,hip:1>hip:0,hip:0>hip:1,hip:0>hip:7")
        );
        assert_eq!(value(&read(&written), &[]), written.to_ascii_lowercase(), "and is read again");
    }

    #[test]
    fn by_uuid_without_ordinals_no_gpu_is_asked() {
        let denied = Config::read([(DENY.into(), "1a:00.0-1b:00.0".into())].into_iter()).0.denied;
        assert_eq!((by_uuid(&denied, &[]), by_uuid(&[], &[])), (Ok(None), Ok(None)));
    }
}
