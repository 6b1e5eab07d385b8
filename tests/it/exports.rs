//! The library exports what the table says and nothing else, however it was built.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// The functions of a layer.
fn functions(layer: &str) -> Vec<String> {
    let output = Command::new(crate::support::command()).arg("apis").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row[1] == layer).map(|row| row[0].to_owned()).collect()
}

fn expected() -> BTreeSet<String> {
    const VERSIONS: &str = "8.0 9.0 9.1 9.2 10.0 10.1 10.2 11.0 12 13 14";
    let unversioned = ["driver", "nvml"].into_iter().flat_map(functions);
    let mut symbols: BTreeSet<String> = unversioned.collect();
    for name in functions("runtime") {
        symbols.extend(VERSIONS.split(' ').map(|version| format!("{name}@libcudart.so.{version}")));
        symbols.insert(format!("{name}@@P2PSHIM"));
    }
    for name in functions("hip") {
        symbols.extend(
            ["4.2", "4.3", "5.1", "5.2", "5.3", "6.1", "7.1", "7.2"].map(|version| format!("{name}@hip_{version}")),
        );
        symbols.insert(format!("{name}@@P2PSHIM"));
    }
    symbols.insert("dlsym".to_owned());
    let own = crate::support::capi_functions();
    assert!(own.len() > 20, "the header was not read");
    symbols.extend(own);
    symbols
}

fn exported(library: &Path) -> BTreeSet<String> {
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    // The versions themselves are listed as absolute symbols by some linkers.
    let rows = text.lines().map(|line| line.split(' ').collect::<Vec<_>>()).filter(|row| row[1] != "A");
    rows.map(|row| row[2].to_owned()).collect()
}

fn check(library: &Path) {
    let (expected, exported) = (expected(), exported(library));
    let missing: Vec<_> = expected.difference(&exported).collect();
    let surplus: Vec<_> = exported.difference(&expected).collect();
    assert!(missing.is_empty() && surplus.is_empty(), "missing {missing:?}, surplus {surplus:?}");
    assert!(expected.len() > 100, "the table was not read");
}

#[test]
fn exports_release_build_are_the_rows_and_nothing_else() {
    check(&crate::support::shim());
}

#[test]
#[ignore = "make soak"]
fn exports_debug_build_are_the_rows_and_nothing_else() {
    check(&crate::support::debug_shim());
}

/// Whatever the library finds by such an entry may be another library's function of that name, or that of a tool which changes
/// tables of addresses.
fn check_table_of_addresses(library: &Path) {
    let output = Command::new("readelf").args(["-rW"]).arg(library).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let exports = expected();
    let named = text.lines().filter_map(|line| line.split_whitespace().nth(4));
    // Rust's standard library looks for optional functions by `dlsym`, whichever library's that is.
    let ours: Vec<_> = named.filter(|name| exports.contains(*name) && *name != "dlsym").collect();
    assert!(text.contains("R_X86_64_GLOB_DAT") && ours.is_empty(), "{}: {ours:?}", library.display());
}

#[test]
fn table_of_addresses_names_none_of_our_exports() {
    check_table_of_addresses(&crate::support::shim());
}

#[test]
#[ignore = "make soak"]
fn table_of_addresses_debug_build_names_none_of_our_exports() {
    check_table_of_addresses(&crate::support::debug_shim());
}

/// The library's lines for the dynamic linker.
fn dynamic_section(library: &Path) -> String {
    let output = Command::new("readelf").args(["-dW"]).arg(library).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn needed_nothing_beyond_the_c_library_and_libgcc() {
    let section = dynamic_section(&crate::support::shim());
    let needed: Vec<_> = section.lines().filter(|line| line.contains("(NEEDED)")).collect();
    assert!(!needed.is_empty());
    for line in needed {
        let known = [
            "libc.so.6",
            "libgcc_s.so.1",
            "ld-linux-x86-64.so.2",
            "libdl.so.2",
            "libpthread.so.0",
            "libm.so.6",
            "librt.so.1",
        ];
        assert!(known.iter().any(|name| line.contains(&format!("[{name}]"))), "{line}");
    }
}

#[test]
fn constructors_there_is_one_of_ours() {
    let section = dynamic_section(&crate::support::shim());
    assert!(section.contains("NODELETE"), "pointers into the library are handed out: it must stay loaded");
    // The standard library's capture of the arguments, and ours that remembers what descriptor 2 was; before them, in a
    // library that gcc has linked, crt1's frame_dummy.
    let size = section.lines().find(|line| line.contains("(INIT_ARRAYSZ)")).unwrap();
    assert!(size.contains(" 16 (bytes)") || size.contains(" 24 (bytes)"), "{size}");
}
