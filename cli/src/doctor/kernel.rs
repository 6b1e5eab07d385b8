//! The kernel of the verification, as PTX text that every driver can compile for every GPU it knows.

use std::ffi::CString;

/// The name of its entry point; the simulated GPUs know the kernel by it.
pub(super) const ENTRY_POINT: &std::ffi::CStr = c"p2pshim_probe_copy";

/// All but the header.
const BODY: &str = include_str!("copy.ptx");

/// PTX versions with the oldest GPU that each is for, newest first: (compute capability, PTX version, target). A driver
/// takes PTX for an older GPU than the one at hand, but drops the oldest targets in time (CUDA 13 begins with 7.5); and
/// it takes any PTX version up to its own, so each is the one that brought its target.
///
/// Source: `ptxas` of CUDA 11.8, 12.9 and 13.0 takes each of them for every GPU from its target up to 12.0 that it knows.
const HEADERS: &[((i32, i32), &str, &str)] =
    &[((7, 5), "6.3", "sm_75"), ((5, 0), "4.0", "sm_50"), ((0, 0), "3.0", "sm_30")];

/// The kernel's text for a GPU of that compute capability (major, minor).
pub(super) fn ptx(capability: (i32, i32)) -> CString {
    let header = HEADERS.iter().find(|(least, ..)| capability >= *least);
    let (version, target) = header.map_or(("3.0", "sm_30"), |&(_, version, target)| (version, target));
    CString::new(format!(".version {version}\n.target {target}\n{BODY}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ptx_target_is_the_newest_that_the_gpu_knows() {
        for (capability, target) in
            [((3, 5), "sm_30"), ((5, 0), "sm_50"), ((7, 0), "sm_50"), ((7, 5), "sm_75"), ((9, 0), "sm_75")]
        {
            let text = ptx(capability).into_string().unwrap();
            assert!(text.contains(&format!(".target {target}\n")), "{capability:?}: {text}");
            assert!(text.starts_with(".version ") && text.contains(".entry p2pshim_probe_copy("), "{text}");
        }
    }
}
