//! Functions, by the time that their calls took on the host.

use std::io::{self, Write};

use super::table::{Side, roughly, table};
use super::{SHOWN, Text};
use crate::report::model::Durations;
use crate::report::term::{clean, count, duration};

impl Text<'_> {
    pub(super) fn functions(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.report.functions.is_empty() {
            return Ok(());
        }
        self.title(out, "Functions, by their time on the host")?;
        let names = ["function", "layer", "calls", "errors", "total", "p50", "p99", "max"];
        let mut rows = vec![names.map(str::to_owned).to_vec()];
        for function in self.report.functions.iter().take(SHOWN) {
            let time = |time: Option<u64>| time.map_or_else(|| "-".to_owned(), duration);
            let Durations { p50, p99, max, total } = function.host_ns;
            let errors = if function.errors == 0 { "-".to_owned() } else { count(function.errors) };
            rows.push(vec![
                clean(&function.name),
                clean(&function.layer),
                count(function.calls),
                errors,
                duration(total),
                roughly(p50, max),
                roughly(p99, max),
                time(max),
            ]);
        }
        use Side::{Left, Right};
        let sides = [Left, Left, Right, Right, Right, Right, Right, Right];
        for line in table(&rows, &sides, self.style.width, 0, &[6, 5, 7]) {
            writeln!(out, "{line}")?;
        }
        self.more(out, self.report.functions.len(), "--json has all")
    }
}
