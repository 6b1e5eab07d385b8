//! Functions, by the time that their calls took on the host.

use std::io::{self, Write};

use super::table::{faults, roughly, time};
use super::{SHOWN, Text};
use crate::report::term::{clean, count, duration};
use crate::table::Table;

impl Text<'_> {
    pub(super) fn functions(&self, out: &mut dyn Write) -> io::Result<()> {
        let functions = &self.report.functions;
        if functions.is_empty() {
            return Ok(());
        }
        self.title(out, "Functions, by their time on the host")?;
        let table = Table::of(functions.iter().take(SHOWN))
            .text("function", |it| clean(&it.name))
            .text("layer", |it| clean(&it.layer))
            .number("calls", |it| count(it.calls))
            .number("errors", |it| faults(it.errors))
            .number("total", |it| duration(it.host_ns.total))
            .number("p50", |it| roughly(it.host_ns.p50, it.host_ns.max))
            .number("p99", |it| roughly(it.host_ns.p99, it.host_ns.max))
            .number("max", |it| time(it.host_ns.max))
            .flexible(0)
            .spare(&[6, 5, 7]);
        self.table(out, table, |_| false, (functions.len(), "--json has all"))
    }
}
