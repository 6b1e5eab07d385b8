//! Programs of the machine that `make dist` was for: DIST_MACHINE. Those of another are run under emulation, as `make test-arm-dist` has prepared it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// As Rust calls it.
pub(crate) fn name() -> String {
    std::env::var("DIST_MACHINE").unwrap_or_else(|_| "x86_64".to_owned())
}

pub(crate) fn is_emulated() -> bool {
    name() != "x86_64"
}

/// As Debian calls it.
pub(crate) fn in_debian() -> &'static str {
    if is_emulated() { "arm64" } else { "amd64" }
}

/// A program or script. Under emulation this is one program of this machine, which starts no other: c-tests/lib/starts_programs.c does that.
pub(crate) fn program(path: &Path) -> Command {
    if !is_emulated() {
        return Command::new(path);
    }
    let mut command = Command::new(super::path("target/arm/lib/qemu-aarch64"));
    let stand_ins =
        ["starts_programs", "reads_by_pipe"].map(|name| super::path(&format!("target/arm/dist/lib{name}.so")));
    command.arg("-E").arg(format!("LD_PRELOAD={}:{}", stand_ins[0].display(), stand_ins[1].display()));
    command.arg("-L").arg(super::path("target/arm/dist/root")).arg("-0");
    let script = fs::read(path).unwrap();
    if let Some(line) = script.strip_prefix(b"#!") {
        let end = line.iter().position(|&byte| byte == b'\n').unwrap();
        let interpreter = std::str::from_utf8(&line[..end]).unwrap().trim();
        command.args([interpreter, interpreter]).arg(path);
    } else {
        command.arg(path).arg(path);
    }
    command
}

pub(crate) fn python_path() -> PathBuf {
    if is_emulated() { super::path("target/arm-python/root/usr/bin/python3.11") } else { "python3".into() }
}

pub(crate) fn python() -> Command {
    program(&python_path())
}

/// pip for an environment with this Python, which has none.
pub(crate) fn with_pip(python: &Path) -> Command {
    if !is_emulated() {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "--python"]).arg(python);
        return pip;
    }
    let wheels = super::path("target/arm-python/root/usr/share/python-wheels");
    let pip = fs::read_dir(wheels)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.to_string_lossy().contains("/pip-"));
    let mut command = program(python);
    command.args(["-m", "pip"]).env("PYTHONPATH", pip.unwrap());
    command
}

/// The words of a compiler for this language.
pub(crate) fn compiler(language: &str) -> Vec<String> {
    if !is_emulated() {
        return vec![language.to_owned()];
    }
    let zig = super::path("target/tools/dist/ziglang/zig").display().to_string();
    vec![zig, language.to_owned(), "-target".to_owned(), format!("{}-linux-gnu.2.36", name())]
}
