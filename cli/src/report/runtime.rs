//! NVIDIA's static runtime in a program's file: where it is, by its symbols, and of which release, by its strings.
//!
//! `libcudart_static.a` has one object, whose functions so lie side by side in a program: public ones with their names, and others
//! that are called `libcudart_static_` and a number (`__cudart` and a number before 12). The code between two of the latter, with
//! nothing else between, is the runtime.

use std::fs::File;
use std::ops::Range;

use object::{Object, ObjectSection, ObjectSymbol, ReadCache, SymbolKind};

/// A text that every runtime has.
const MARK: &[u8] = b"startup failure in cuda runtime";

/// Releases, and a name that each is the first to have in its table of names of functions and codes, which is in programs without
/// symbols too. Those that are not told apart have the same names, or were not at hand. Source:
/// libraries of PyPI, docs/MEASUREMENTS.md.
const RELEASES: [(&str, &str); 16] = [
    ("9.0 to 9.2", "cudaLaunchCooperativeKernel_ptsz"),
    ("10.0", "cudaGraphLaunch_ptsz"),
    ("10.1", "cudaStreamGetCaptureInfo_ptsz"),
    ("10.2", "cudaStreamSetFlags_ptsz"),
    ("11.0", "cudaStreamCopyAttributes_ptsz"),
    ("11.1 to 11.7", "cudaGraphUpload_ptsz"),
    ("11.8", "cudaLaunchKernelExC_ptsz"),
    ("12.0", "cudaStreamGetId_ptsz"),
    ("12.1", "cudaErrorUnsupportedDevSideSync"),
    ("12.2", "cudaGraphExecNodeSetParams"),
    ("12.3", "cudaStreamBeginCaptureToGraph_ptsz"),
    ("12.4", "cudaDeviceUnregisterAsyncNotification"),
    ("12.5", "cudaGetDriverEntryPointByVersion_ptsz"),
    ("12.6", "cudaErrorInvalidResourceConfiguration"),
    ("12.8 or 12.9", "cudaLibraryEnumerateKernels"),
    ("13.0 or later", "cudaMemDiscardBatchAsync_ptsz"),
];
const BEFORE_RELEASES: &str = "8.0 or earlier";

/// The release of the runtime that is in a file, by its strings; none if there is no runtime.
pub(super) fn release(path: &str) -> Option<&'static str> {
    let cache = ReadCache::new(File::open(path).ok()?);
    let object = object::File::parse(&cache).ok()?;
    release_among(object.section_by_name(".rodata")?.data().ok()?)
}

fn release_among(strings: &[u8]) -> Option<&'static str> {
    let (mut is_runtime, mut has_old, mut has) = (false, false, [false; RELEASES.len()]);
    for string in strings.split(|&byte| byte == 0) {
        is_runtime |= string == MARK;
        // The simulated one lacks it.
        has_old |= string == b"cudaThreadExit";
        if string.starts_with(b"cuda") {
            for (has, (_, name)) in has.iter_mut().zip(RELEASES) {
                *has |= string == name.as_bytes();
            }
        }
    }
    // A program may have the name of a later function itself, to look it up.
    let (releases, mut found) = (RELEASES.iter().zip(has), BEFORE_RELEASES);
    for ((release, _), _) in releases.take_while(|(_, has)| *has) {
        found = release;
    }
    (is_runtime && (has_old || found != BEFORE_RELEASES)).then_some(found)
}

/// Addresses in a file, in its own terms.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Runtime(Vec<Range<u64>>);

/// Whether a name is of a function that only the static runtime itself has.
pub(super) fn is_internal(name: &str) -> bool {
    ["libcudart_static_", "__cudart"].iter().any(|prefix| {
        let rest = name.strip_prefix(prefix).unwrap_or_default();
        rest.starts_with(|char: char| char.is_ascii_hexdigit())
    })
}

fn is_public(name: &str) -> bool {
    ["cuda", "__cuda", "atexit"].iter().any(|prefix| name.starts_with(prefix))
}

impl Runtime {
    /// Finds the runtime in a file; none if the file has no table of symbols.
    pub(super) fn find(path: &str) -> Option<Self> {
        let cache = ReadCache::new(File::open(path).ok()?);
        let object = object::File::parse(&cache).ok()?;
        let functions = object.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition());
        let mut functions: Vec<(u64, u64, &str)> = functions
            .filter_map(|symbol| Some((symbol.address(), symbol.address() + symbol.size().max(1), symbol.name().ok()?)))
            .collect();
        functions.sort_unstable();
        (!functions.is_empty()).then(|| Self::among(&functions))
    }

    /// Among functions in the order of their addresses, each with the address after it and its name.
    fn among(functions: &[(u64, u64, &str)]) -> Self {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let mut goes_on = false;
        for &(start, end, name) in functions {
            if is_internal(name) {
                match ranges.last_mut() {
                    Some(last) if goes_on => last.end = last.end.max(end),
                    _ => ranges.push(start..end),
                }
                goes_on = true;
            } else {
                goes_on &= is_public(name);
            }
        }
        Self(ranges)
    }

    pub(super) fn has(&self, address: u64) -> bool {
        self.0.iter().any(|range| range.contains(&address))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::Command;

    use super::*;

    /// A program that `make c-tests` links with NVIDIA's own.
    #[test]
    fn find_nvidia_s_functions_are_its_own_and_the_program_s_are_not() {
        for version in [12, 13] {
            let path = format!("{}/../target/c-tests/guide_sample-nvidia{version}", env!("CARGO_MANIFEST_DIR"));
            let runtime = Runtime::find(&path).unwrap_or_else(|| panic!("there is no {path}: run `make c-tests`"));
            let file = std::fs::read(&path).unwrap();
            let object = object::File::parse(file.as_slice()).unwrap();
            let functions =
                object.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition());
            let (theirs, ours): (Vec<_>, Vec<_>) = functions.partition(|symbol| {
                let name = symbol.name().unwrap();
                is_internal(name) || name.starts_with("cuda") || name.starts_with("__cuda")
            });
            assert!(theirs.len() > 500 && theirs.iter().all(|symbol| runtime.has(symbol.address())), "{runtime:?}");
            let ours: Vec<&str> =
                ours.iter().filter(|one| runtime.has(one.address())).map(|one| one.name().unwrap()).collect();
            assert_eq!(ours, Vec::<&str>::new(), "{runtime:?}");
        }
    }

    /// The release that is read in a file of `target/`.
    fn assert_release(file: &str, expected: Option<&str>) {
        assert_eq!(release(&format!("{}/../target/{file}", env!("CARGO_MANIFEST_DIR"))), expected, "{file}");
    }

    #[test]
    fn release_of_nvidia_s_is_told_by_its_strings() {
        assert_release("c-tests/guide_sample-nvidia12", Some("12.8 or 12.9"));
        assert_release("c-tests/guide_sample-nvidia13", Some("13.0 or later"));
        assert_release("c-tests/guide_sample-static", None);
        // A shared one has the same table.
        assert_release("nvidia/cu11/lib/libcudart.so.11.0", Some("11.8"));
    }

    #[test]
    fn release_of_nvidia_s_old_ones_is_told_by_its_strings() {
        let fetch = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../c-tests/fetch-legacy")).output().unwrap();
        if !fetch.status.success() {
            let line = format!("skipped: old runtimes: {}\n", String::from_utf8_lossy(&fetch.stderr).trim());
            // tests/run shows and counts it.
            let skipped = std::env::var_os("SKIPPED_TESTS").unwrap_or_else(|| "/dev/stderr".into());
            return File::options().append(true).open(skipped).unwrap().write_all(line.as_bytes()).unwrap();
        }
        let shared = [("9.0", "9.0 to 9.2"), ("10.0", "10.0"), ("10.1", "10.1"), ("10.2", "10.2")];
        for (version, expected) in shared {
            assert_release(&format!("legacy/libcudart.so.{version}"), Some(expected));
        }
    }

    #[test]
    fn release_among_names_is_the_last_of_an_unbroken_row() {
        let with = |names: &[&str]| {
            release_among([&["startup failure in cuda runtime"], names].concat().join("\0").as_bytes())
        };
        assert_eq!(release_among(b"cudaLaunchCooperativeKernel_ptsz\0"), None);
        assert_eq!(with(&["cudaThreadExit"]), Some("8.0 or earlier"));
        assert_eq!(with(&[]), None, "simulated");
        assert_eq!(with(&["cudaGraphLaunch_ptsz", "cudaLaunchCooperativeKernel_ptsz"]), Some("10.0"));
        assert_eq!(with(&["cudaLaunchCooperativeKernel_ptsz", "cudaGraphUpload_ptsz"]), Some("9.0 to 9.2"));
        assert_eq!(with(&RELEASES.map(|(_, name)| name)), Some("13.0 or later"));
    }

    #[test]
    fn among_runtime_is_what_lies_between_its_own_functions() {
        let functions = [
            (0, 10, "main"),
            (10, 20, "cudaCopyOfOurs"),
            (20, 30, "libcudart_static_00aa"),
            (30, 40, "cudaMemcpyPeerAsync"),
            (40, 50, "libcudart_static_ff"),
            (50, 60, "cudaOfOurs"),
            (60, 70, "other"),
            (70, 80, "cudaOfOthers"),
            (80, 90, "__cudart1234"),
            (90, 99, "__cudart_of_ours"),
        ];
        let runtime = Runtime::among(&functions);
        assert_eq!(runtime, Runtime(vec![20..50, 80..90]));
        assert!(runtime.has(35) && !runtime.has(15) && !runtime.has(50) && !runtime.has(75));
    }
}
