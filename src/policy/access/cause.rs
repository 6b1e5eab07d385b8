//! What is likely to blame for a pair that loses data, from what the system says of itself.

use std::fs;

/// A sentence or two: the likely cause, and what to do about it.
pub(super) fn likely() -> String {
    let command_line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let has_iommu = fs::read_dir("/sys/class/iommu").is_ok_and(|mut entries| entries.next().is_some());
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let is_virtual = cpu
        .lines()
        .find(|line| line.starts_with("flags"))
        .is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"));
    told(&command_line, has_iommu, is_virtual)
}

fn told(command_line: &str, has_iommu: bool, is_virtual: bool) -> String {
    let settings: Vec<&str> = command_line
        .split_whitespace()
        .filter(|word| ["iommu=", "intel_iommu=", "amd_iommu="].iter().any(|name| word.starts_with(name)))
        .collect();
    let is_passed_through = settings.iter().any(|word| word.ends_with("=pt") || word.ends_with("=off"));
    if is_virtual {
        return "Likely cause: this is a virtual machine, whose host redirects traffic between devices (ACS, IOMMU). \
                Ask its operator for peer-to-peer support between these GPUs, or set P2PSHIM_ACCESS=off to save the \
                time of verifying"
            .to_owned();
    }
    if has_iommu && !is_passed_through {
        let shown = if settings.is_empty() { "no iommu= option".to_owned() } else { settings.join(" ") };
        return format!(
            "Likely cause: the IOMMU is on ({shown} on the kernel's command line). Boot with iommu=pt, or switch it and \
             ACS off in the firmware's settings"
        );
    }
    "Likely cause: PCIe access control (ACS) on a switch between the devices, or a fault of the driver. See `lspci -vvv` \
     for ACSCtl, and `nvidia-smi topo -p2p r` for what the driver believes"
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn told_names_what_the_system_shows() {
        assert!(told("quiet intel_iommu=on", true, false).contains("(intel_iommu=on on the kernel's command line)"));
        assert!(told("quiet", true, false).contains("no iommu= option"));
        assert!(told("quiet iommu=pt", true, false).contains("ACS"));
        assert!(told("", false, true).contains("virtual machine"));
        assert!(told("", false, false).contains("ACS"));
    }
}
