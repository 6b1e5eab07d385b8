//! The environment, which is read once: C cannot keep another thread of the program from changing it meanwhile, and a change may move all of
//! it to another place. Of a program with more rights than its user nothing is read: options, and folders of verdicts, are then the
//! user's choice.

use std::ffi::{CStr, OsStr, OsString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use super::is_secure_execution;

type Variable = (OsString, OsString);

static REMEMBERED: OnceLock<Vec<Variable>> = OnceLock::new();

/// Copies the variables whose names begin with any of these, for all who ask from now on; the first time only.
pub(crate) fn remember_environment(prefixes: &[&str]) {
    REMEMBERED.get_or_init(|| read(prefixes));
}

/// A variable's value, likewise.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    environment(name).find(|(found, _)| found == name).map(|(_, value)| value)
}

/// The variables whose names begin with `prefix`: those that are remembered, or where nothing is yet, those that there are.
pub(crate) fn environment(prefix: &str) -> impl Iterator<Item = Variable> {
    let begins = |(name, _): &&Variable| name.as_bytes().starts_with(prefix.as_bytes());
    let known = REMEMBERED.get().map(|all| all.iter().filter(begins).cloned().collect());
    known.unwrap_or_else(|| read(&[prefix])).into_iter()
}

/// Whether there are variables whose names begin with `prefix`, but nobody is told of them.
pub(crate) fn ignores_variables(prefix: &str) -> bool {
    is_secure_execution() && !all(&[prefix]).is_empty()
}

fn read(prefixes: &[&str]) -> Vec<Variable> {
    if is_secure_execution() { Vec::new() } else { all(prefixes) }
}

fn all(prefixes: &[&str]) -> Vec<Variable> {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    let mut variables = Vec::new();
    let is_wanted = |entry: *const c_char| {
        // SAFETY: the entry is a C string; strncmp reads no further than its end.
        prefixes.iter().any(|prefix| unsafe { libc::strncmp(entry, prefix.as_ptr().cast(), prefix.len()) == 0 })
    };
    // SAFETY: `environ` ends with NULL, and its entries are C strings.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            if is_wanted(*entry) {
                variables.push(CStr::from_ptr(*entry).to_owned());
            }
            entry = entry.add(1);
        }
    }
    let both = |variable: std::ffi::CString| {
        let bytes = variable.to_bytes();
        let (name, value) = bytes.split_at_checked(bytes.iter().position(|&byte| byte == b'=')?)?;
        Some((OsStr::from_bytes(name).to_owned(), OsStr::from_bytes(value.get(1..)?).to_owned()))
    };
    variables.into_iter().filter_map(both).collect()
}
