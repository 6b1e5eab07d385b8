//! Functions, by the time that their calls took on the host.

use std::io::{self, Write};

use super::table::{Side, hide_timed, roughly, table, timed};
use super::{SHOWN, Text};
use crate::report::model::Durations;
use crate::report::term::{clean, count, duration};

impl Text<'_> {
    pub(super) fn functions(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.report.functions.is_empty() {
            return Ok(());
        }
        self.title(out, "Functions, by their time on the host")?;
        // Calls inside others are timed now and then: their sum is not that of all.
        const TIMED: usize = 5;
        let names = ["function", "layer", "calls", "errors", "total", "timed", "p50", "p99", "max"];
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
                if function.untimed_calls > 0 { "-".to_owned() } else { duration(total) },
                timed(function.timed_calls, function.timed_calls + function.untimed_calls),
                roughly(p50, max),
                roughly(p99, max),
                time(max),
            ]);
        }
        hide_timed(&mut rows, TIMED);
        use Side::{Left, Right};
        let sides = [Left, Left, Right, Right, Right, Right, Right, Right, Right];
        for line in table(&rows, &sides, self.style.width, 0, &[7, 6, 8, TIMED]) {
            writeln!(out, "{line}")?;
        }
        self.more(out, self.report.functions.len(), "--json has all")
    }
}
