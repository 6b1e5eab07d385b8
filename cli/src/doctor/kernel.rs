//! The kernels of the verification, as PTX text that every driver can compile for every GPU it knows.

use std::ffi::{CStr, CString};

/// A module: kernels that are compiled together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// The kernel that copies.
    Copy,
    /// The kernel that adds words to others.
    Reduce,
    /// The kernel that adds by atomic operations.
    Add,
    /// The kernels that exchange flags, with fences.
    Flags,
    /// As `Flags`, with releases and acquires.
    Acquire,
    /// The kernels that exchange flags in line with 4 bytes of data each.
    Ll,
    /// The kernels that exchange lines of 128 bytes with one flag.
    Ll128,
}

/// A kernel: its module, and the name of the entry point. The simulated GPUs know a kernel by it.
pub(super) type Kernel = (Kind, &'static CStr);

/// The kernel that copies.
pub(super) const COPY: Kernel = (Kind::Copy, c"p2pshim_probe_copy");
/// The kernel that adds words to others.
pub(super) const REDUCE: Kernel = (Kind::Reduce, c"p2pshim_probe_reduce");
/// The kernel that adds by atomic operations.
pub(super) const ADD: Kernel = (Kind::Add, c"p2pshim_probe_add");

/// PTX versions with the oldest GPU that each is for, newest first: (compute capability, PTX version, target). A driver
/// takes PTX for an older GPU than the one at hand, but drops the oldest targets in time (CUDA 13 begins with 7.5); and
/// it takes any PTX version up to its own, so each is the one that brought its target.
///
/// Source: `ptxas` of CUDA 11.8, 12.9 and 13.0 takes each of them for every GPU from its target up to 12.0 that it knows.
type Headers = &'static [((i32, i32), &'static str, &'static str)];

const HEADERS: Headers = &[((7, 5), "6.3", "sm_75"), ((5, 0), "4.0", "sm_50"), ((0, 0), "3.0", "sm_30")];

/// PTX versions for atomic operations of system scope. No older GPU has NVLink, and so none has native atomics.
const ATOMIC_HEADERS: Headers = &[((7, 5), "6.3", "sm_75"), ((6, 0), "5.0", "sm_60")];

/// PTX versions for kernels that read the time.
const TIMED_HEADERS: Headers = &[((7, 5), "6.3", "sm_75"), ((5, 0), "4.0", "sm_50"), ((0, 0), "3.1", "sm_30")];

/// PTX versions for releases and acquires, and for instructions that synchronise a warp.
const SCOPED_HEADERS: Headers = &[((7, 5), "6.3", "sm_75"), ((7, 0), "6.0", "sm_70")];

/// Instructions by the words that stand for them, with fences.
const FENCED: [(&str, &str); 4] = [
    ("FENCE", "membar.sys;"),
    ("STORE", "st.volatile.global.u64"),
    ("LOAD", "ld.volatile.global.u64"),
    ("FETCH", "ld.volatile.global.u64"),
];
/// Those with releases and acquires, which need no fence, and load data as any data.
const ACQUIRING: [(&str, &str); 5] = [
    ("FENCE", ""),
    ("STORE", "st.release.sys.global.u64"),
    ("LOAD", "ld.acquire.sys.global.u64"),
    ("FETCH", "ld.global.u64"),
    // The names of the kernels.
    ("(\n", "_acquire(\n"),
];

impl Kind {
    /// The best that a GPU of that compute capability has for flags.
    pub(super) fn of_flags(capability: (i32, i32)) -> Self {
        if has_scopes(capability) { Self::Acquire } else { Self::Flags }
    }

    /// The kernel that sends.
    pub(super) fn send(self) -> Kernel {
        let name = match self {
            Self::Acquire => c"p2pshim_probe_send_acquire",
            Self::Ll => c"p2pshim_probe_ll_send",
            Self::Ll128 => c"p2pshim_probe_ll128_send",
            _ => c"p2pshim_probe_send",
        };
        (self, name)
    }

    /// The kernel that receives.
    pub(super) fn receive(self) -> Kernel {
        let name = match self {
            Self::Acquire => c"p2pshim_probe_receive_acquire",
            Self::Ll => c"p2pshim_probe_ll_receive",
            Self::Ll128 => c"p2pshim_probe_ll128_receive",
            _ => c"p2pshim_probe_receive",
        };
        (self, name)
    }

    /// Whether each thread of its kernels has a line of its own.
    pub(super) fn has_lines(self) -> bool {
        matches!(self, Self::Ll | Self::Ll128)
    }

    /// The text for a GPU of that compute capability (major, minor); none for one that is too old.
    pub(super) fn text(self, capability: (i32, i32)) -> Option<CString> {
        let (headers, body, words): (_, _, &[(&str, &str)]) = match self {
            Self::Copy => (HEADERS, include_str!("copy.ptx"), &[]),
            Self::Reduce => (HEADERS, include_str!("reduce.ptx"), &[]),
            Self::Add => (ATOMIC_HEADERS, include_str!("add.ptx"), &[]),
            Self::Flags => (TIMED_HEADERS, include_str!("flags.ptx"), &FENCED),
            Self::Acquire => (SCOPED_HEADERS, include_str!("flags.ptx"), &ACQUIRING),
            Self::Ll => (TIMED_HEADERS, include_str!("ll.ptx"), &[]),
            Self::Ll128 => (SCOPED_HEADERS, include_str!("ll128.ptx"), &[]),
        };
        let (_, version, target) = headers.iter().find(|(least, ..)| capability >= *least)?;
        let body = words.iter().fold(body.to_owned(), |body, (word, instruction)| body.replace(word, instruction));
        CString::new(format!(".version {version}\n.target {target}\n{body}")).ok()
    }
}

/// Whether a GPU of that compute capability knows releases and acquires.
pub(super) fn has_scopes(capability: (i32, i32)) -> bool {
    Kind::Acquire.text(capability).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(kind: Kind, capability: (i32, i32)) -> Option<String> {
        kind.text(capability).map(|text| text.into_string().unwrap())
    }

    #[test]
    fn ptx_target_is_the_newest_that_the_gpu_knows() {
        for (capability, target, scoped) in [
            ((3, 5), "sm_30", None),
            ((5, 0), "sm_50", None),
            ((7, 0), "sm_50", Some("sm_70")),
            ((7, 5), "sm_75", Some("sm_75")),
            ((9, 0), "sm_75", Some("sm_75")),
        ] {
            for kind in [Kind::Copy, Kind::Reduce, Kind::Flags, Kind::Ll, Kind::Acquire, Kind::Ll128] {
                let target = if matches!(kind, Kind::Acquire | Kind::Ll128) { scoped } else { Some(target) };
                let text = text(kind, capability);
                assert_eq!(text.is_some(), target.is_some(), "{kind:?} {capability:?}");
                let (Some(text), Some(target)) = (text, target) else { continue };
                assert!(text.starts_with(".version ") && text.contains(&format!(".target {target}\n")), "{text}");
                let kernels = match kind {
                    Kind::Copy => vec![COPY],
                    Kind::Reduce => vec![REDUCE],
                    _ => vec![kind.send(), kind.receive()],
                };
                for (of, name) in kernels {
                    assert!(of == kind && text.contains(&format!(".entry {}(\n", name.to_str().unwrap())), "{text}");
                }
                assert_eq!(has_scopes(capability), scoped.is_some());
            }
        }
    }

    #[test]
    fn ptx_has_no_word_left_that_stands_for_an_instruction() {
        for kind in [Kind::Flags, Kind::Acquire] {
            let text = text(kind, (9, 0)).unwrap();
            for (word, _) in FENCED {
                let is_left = text.lines().any(|line| line.trim_start().starts_with(word));
                assert!(!is_left, "{word}: {text}");
            }
            assert_eq!(text.contains("st.release.sys.global.u64"), kind == Kind::Acquire);
            assert_eq!(text.contains("membar"), kind == Kind::Flags);
        }
    }

    #[test]
    fn add_is_for_gpus_that_may_have_native_atomics() {
        for (capability, target) in
            [((5, 2), None), ((6, 0), Some("sm_60")), ((7, 0), Some("sm_60")), ((9, 0), Some("sm_75"))]
        {
            let text = text(Kind::Add, capability);
            assert_eq!(text.is_some(), target.is_some(), "{capability:?}");
            let is_right = |text: &String| {
                text.contains(&format!(".target {}\n", target.unwrap_or_default()))
                    && text.contains(".entry p2pshim_probe_add(")
            };
            assert!(text.iter().all(is_right), "{capability:?}");
            let words = format!(", {};", super::super::additions::WORDS - 1);
            assert!(text.is_none_or(|text| text.contains(&words)));
        }
    }
}
