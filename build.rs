//! Hands the symbol versions to the linker.

fn main() {
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo::rerun-if-changed=exports.map");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={root}/exports.map");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libp2pshim.so.0");
    // Pointers into the library are handed to the program: it must never be unloaded.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
