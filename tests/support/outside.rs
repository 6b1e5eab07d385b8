//! Commands that are no programs of ours, and folders outside of the tree.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// What a command that must succeed wrote.
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
