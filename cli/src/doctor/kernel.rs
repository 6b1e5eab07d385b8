//! The kernels of the verification, as PTX text that every driver can compile for every GPU it knows.

use std::ffi::{CStr, CString};

/// The name of the entry point of the kernel that copies; the simulated GPUs know a kernel by it.
pub(super) const COPY: &CStr = c"p2pshim_probe_copy";
/// The name of the entry point of the kernel that adds.
pub(super) const ADD: &CStr = c"p2pshim_probe_add";

/// The name of the entry point of the kernel that sends flags.
pub(super) const SEND: &CStr = c"p2pshim_probe_send";
/// The name of the entry point of the kernel that receives flags.
pub(super) const RECEIVE: &CStr = c"p2pshim_probe_receive";

/// All but the header of the kernel that copies.
const COPY_BODY: &str = include_str!("copy.ptx");
/// All but the header of the kernel that adds.
const ADD_BODY: &str = include_str!("add.ptx");

/// All but the header of the kernels that exchange flags.
const FLAGS_BODY: &str = include_str!("flags.ptx");

/// PTX versions with the oldest GPU that each is for, newest first: (compute capability, PTX version, target). A driver
/// takes PTX for an older GPU than the one at hand, but drops the oldest targets in time (CUDA 13 begins with 7.5); and
/// it takes any PTX version up to its own, so each is the one that brought its target.
///
/// Source: `ptxas` of CUDA 11.8, 12.9 and 13.0 takes each of them for every GPU from its target up to 12.0 that it knows.
const HEADERS: &[((i32, i32), &str, &str)] =
    &[((7, 5), "6.3", "sm_75"), ((5, 0), "4.0", "sm_50"), ((0, 0), "3.0", "sm_30")];
/// PTX versions for atomic operations of system scope. No older GPU has NVLink, and so none has native atomics.
///
/// Source: `ptxas` of CUDA 11.8 and 12.9, as for [`HEADERS`].
const ATOMIC_HEADERS: &[((i32, i32), &str, &str)] = &[((7, 5), "6.3", "sm_75"), ((6, 0), "5.0", "sm_60")];

/// PTX versions for kernels that read the time.
///
/// Source: `ptxas` of CUDA 11.8 and 12.9, as for [`HEADERS`].
const TIMED_HEADERS: &[((i32, i32), &str, &str)] =
    &[((7, 5), "6.3", "sm_75"), ((5, 0), "4.0", "sm_50"), ((0, 0), "3.1", "sm_30")];

/// The text of the kernel that copies for a GPU of that compute capability (major, minor).
pub(super) fn copy(capability: (i32, i32)) -> CString {
    text(HEADERS, capability, COPY_BODY).unwrap_or_default()
}

/// The text of the kernel that adds; none for a GPU that is too old.
pub(super) fn add(capability: (i32, i32)) -> Option<CString> {
    text(ATOMIC_HEADERS, capability, ADD_BODY)
}

/// The text of the kernels that exchange flags.
pub(super) fn flags(capability: (i32, i32)) -> CString {
    text(TIMED_HEADERS, capability, FLAGS_BODY).unwrap_or_default()
}

fn text(headers: &[((i32, i32), &str, &str)], capability: (i32, i32), body: &str) -> Option<CString> {
    let (_, version, target) = headers.iter().find(|(least, ..)| capability >= *least)?;
    CString::new(format!(".version {version}\n.target {target}\n{body}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ptx_target_is_the_newest_that_the_gpu_knows() {
        for (capability, target) in
            [((3, 5), "sm_30"), ((5, 0), "sm_50"), ((7, 0), "sm_50"), ((7, 5), "sm_75"), ((9, 0), "sm_75")]
        {
            let text = copy(capability).into_string().unwrap();
            assert!(text.contains(&format!(".target {target}\n")), "{capability:?}: {text}");
            assert!(text.starts_with(".version ") && text.contains(".entry p2pshim_probe_copy("), "{text}");
            let text = flags(capability).into_string().unwrap();
            assert!(text.contains(&format!(".target {target}\n")), "{capability:?}: {text}");
            for name in [SEND, RECEIVE] {
                assert!(text.contains(&format!(".entry {}(", name.to_str().unwrap())), "{text}");
            }
        }
    }

    #[test]
    fn add_is_for_gpus_that_may_have_native_atomics() {
        for (capability, target) in
            [((5, 2), None), ((6, 0), Some("sm_60")), ((7, 0), Some("sm_60")), ((9, 0), Some("sm_75"))]
        {
            let text = add(capability).map(|text| text.into_string().unwrap());
            assert_eq!(text.is_some(), target.is_some(), "{capability:?}");
            let is_right = |text: &String| {
                text.contains(&format!(".target {}\n", target.unwrap_or_default()))
                    && text.contains(".entry p2pshim_probe_add(")
            };
            assert!(text.iter().all(is_right), "{capability:?}");
        }
        assert!(ADD_BODY.contains(&format!(", {};", super::super::additions::WORDS - 1)));
    }
}
