//! Commands that are no programs of ours, and folders outside of the tree.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::once::alone;

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// The output of a command that must succeed.
pub(crate) fn told(command: &mut Command) -> String {
    let output = run(command);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}\n{err}", output.status);
    out
}

/// A new folder outside the tree.
pub(crate) fn outside(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("p2pshim-{}-{name}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// All files and links below a folder, seen from it, in order.
pub(crate) fn files(folder: &Path) -> Vec<String> {
    let list = told(Command::new("find").arg(folder).args(["-not", "-type", "d", "-printf", "%P\n"]));
    let mut files: Vec<_> = list.lines().map(str::to_owned).collect();
    files.sort();
    files
}

/// The folder of pinned tools, which are fetched if they are not there.
fn fetched(name: &str) -> PathBuf {
    let _alone = alone("tools");
    told(Command::new(super::path("packaging/get-tools")).arg(name));
    super::path(&format!("target/tools/{name}"))
}

/// A tool of the machine, or, where it has none, the pinned one.
fn tool(name: &str, pinned: &str) -> Command {
    if Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success()) {
        return Command::new(name);
    }
    let tools = fetched("test");
    let mut command = Command::new(tools.join(pinned));
    command.env("PYTHONPATH", tools);
    command
}

pub(crate) fn cmake() -> Command {
    tool("cmake", "bin/cmake")
}

pub(crate) fn ctest() -> Command {
    tool("ctest", "bin/ctest")
}

/// The folder of pytest and what it needs, for `PYTHONPATH`.
pub(crate) fn pytest() -> PathBuf {
    fetched("pytest")
}

pub(crate) fn pkg_config() -> Command {
    tool("pkg-config", "pkgconf/.bin/pkgconf")
}
