//! The intercepted functions and the rules, in the words of their sources: the table that `make header` writes.

use serde::Deserialize;

#[derive(Deserialize)]
pub(crate) struct Tables {
    pub(crate) apis: Vec<Api>,
    pub(crate) rules: Vec<Rule>,
}

/// An intercepted function.
#[derive(Deserialize)]
pub(crate) struct Api {
    pub(crate) name: String,
    pub(crate) layer: String,
    pub(crate) kind: String,
    pub(crate) since: i32,
}

/// A rule about peer calls.
#[derive(Deserialize)]
pub(crate) struct Rule {
    pub(crate) id: String,
    pub(crate) severity: String,
    pub(crate) functions: String,
    pub(crate) documentation: String,
    pub(crate) hardware: String,
    pub(crate) why: String,
    pub(crate) remedy: String,
    /// The documented codes of the runtime and of the driver, 0 for none, with their names.
    pub(crate) runtime_code: i32,
    pub(crate) driver_code: i32,
    pub(crate) runtime_code_name: String,
    pub(crate) driver_code_name: String,
}

/// # Errors
/// The table is damaged.
pub(crate) fn read() -> serde_json::Result<Tables> {
    serde_json::from_str(include_str!("../../packaging/python/p2pshim/tables.json"))
}
