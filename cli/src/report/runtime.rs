//! Where in a program's file NVIDIA's static runtime is: by its symbols.
//!
//! `libcudart_static.a` has one object, whose functions so lie side by side in a program: public ones with their names, and others
//! that are called `libcudart_static_` and a number (`__cudart` and a number before 12). What lies between two of the latter, with
//! nothing else between, is the runtime.

use std::fs::File;
use std::ops::Range;

use object::{Object, ObjectSymbol, ReadCache, SymbolKind};

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
    /// None if the file has no table of symbols.
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
    use super::*;

    /// A program that `make c-tests` links with NVIDIA's own.
    #[test]
    fn find_nvidia_s_functions_are_its_own_and_the_program_s_are_not() {
        for version in [12, 13] {
            let path = format!("{}/../target/c-tests/guide_sample-nvidia{version}", env!("CARGO_MANIFEST_DIR"));
            let Some(runtime) = Runtime::find(&path) else {
                println!("skipped: there is no {path} (make c-tests)");
                continue;
            };
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
