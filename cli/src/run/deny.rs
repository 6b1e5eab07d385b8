//! `P2PSHIM_DENY` for the program: ordinals become UUIDs. A launcher may give each rank other GPUs, and the ordinals of the user mean
//! nothing there. HIP knows ordinals only, so that they stay for it.

use p2pshim_host::config::{Denied, GpuName};

/// The option.
pub(super) const DENY: &str = "P2PSHIM_DENY";

/// Whether any of the pairs is named by an ordinal, so that the GPUs have to be known.
pub(super) fn names_ordinals(denied: &[Denied]) -> bool {
    names(denied).any(|name| matches!(name, GpuName::Ordinal(_)))
}

fn names(denied: &[Denied]) -> impl Iterator<Item = &GpuName> {
    denied.iter().flat_map(|Denied { device, peer }| [device, peer])
}

/// Whether any of the pairs may be there, of GPUs that have these UUIDs by ordinals.
pub(super) fn is_any_there(denied: &[Denied], uuids: &[String]) -> bool {
    let is_there = |name: &GpuName| match name {
        GpuName::Ordinal(ordinal) => usize::try_from(*ordinal).is_ok_and(|ordinal| ordinal < uuids.len()),
        GpuName::Uuid(name) => uuids.iter().any(|uuid| uuid.eq_ignore_ascii_case(name)),
        GpuName::Hip(_) | GpuName::BusId(_) => true,
    };
    denied.iter().any(|Denied { device, peer }| is_there(device) && is_there(peer))
}

/// Its value for the program, with UUIDs in place of ordinals. An ordinal that no device has stays, and the shim warns of it.
pub(super) fn value(denied: &[Denied], uuids: &[String]) -> String {
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
    fn pair_that_is_not_there_is_known() {
        let read = |text: &str| Config::read([(DENY.into(), text.into())].into_iter()).0.denied;
        let uuids = ["0", "1"].map(|last| format!("GPU-70327073-696d-2047-5055-202e2e2e2e0{last}"));
        let there = |text: &str| is_any_there(&read(text), &uuids);
        assert!(there("0-1") && there("0-7,1>0") && there("1a:00.0-1b:00.0") && there(&format!("{}>0", uuids[1])));
        assert!(!there("0-7") && !there("5>6") && !there("GPU-70327073-696d-2047-5055-202e2e2e2e0f>0"));
        assert!(names_ordinals(&read("0-1")) && !names_ordinals(&read("1a:00.0-1b:00.0")));
    }
}
