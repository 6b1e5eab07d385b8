//! Writes the code that data files stand for, into files that one can open: `target/*/build/p2pshim-*/out/`.

mod functions;
mod rules;

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

const FUNCTIONS: &str = "src/api/functions.txt";
const RULES: &str = "src/model/rules.txt";

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let machine = format!("{}/src/machine/{}", env::var("CARGO_MANIFEST_DIR")?, env::var("CARGO_CFG_TARGET_ARCH")?);
    let trampoline = format!("{machine}/trampoline.s");
    for read in ["build", FUNCTIONS, RULES, &trampoline] {
        println!("cargo::rerun-if-changed={read}");
    }
    let read = |path: &str| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
    let table = read(FUNCTIONS)?;
    let table = functions::Table::read(&table).map_err(|error| format!("{FUNCTIONS}: {error}"))?;
    let map = out.join("exports.map");
    fs::write(&map, table.export_map())?;
    fs::write(out.join("functions.rs"), table.functions())?;
    fs::write(out.join("slots.rs"), table.slots())?;
    fs::write(out.join("hooks.rs"), table.hooks())?;
    fs::write(out.join("trampolines.rs"), table.trampolines(&read(&trampoline)?))?;
    fs::write(out.join("rules.rs"), rules::rules(&read(RULES)?)?)?;

    println!("cargo::rustc-env=MACHINE={machine}");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={}", map.display());
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libp2pshim.so.0");
    // Pointers into the library are handed to the program: it must never be unloaded.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    Ok(())
}
