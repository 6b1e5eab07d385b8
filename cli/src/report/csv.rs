//! `--csv`: the pairs, a line for each path that their copies took.

use std::io::{self, Write};

use super::model::{CopyCaller, CopyLine, CopySite, Durations, Gpu, Pair, Report};
use super::term;

const COLUMNS: &str = "src_host,src,src_uuid,dst_host,dst,dst_uuid,pair_calls,pair_errors,path,why,calls,bytes,device_calls,\
                       device_bytes,device_ns,gb_per_s,gb_per_s_off,host_p50_ns,host_p99_ns,host_max_ns,host_total_ns,access,link,\
                       python_lines,call_sites,between_processes";

/// Writes the table, with a line of names. A cell that is not known is empty. The counts of a pair stand in its first line alone, so that
/// each column can be added up.
pub(crate) fn write(report: &Report, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{COLUMNS}")?;
    for pair in &report.pairs {
        let gpu = |index: usize| {
            let gpu = report.gpus.get(index);
            let known =
                |what: fn(&Gpu) -> Option<&String>| gpu.and_then(what).map_or(String::new(), |text| field(text));
            let host = known(|gpu| gpu.host.as_ref());
            format!("{host},{},{}", field(report.label(index)), known(|gpu| gpu.uuid.as_ref()))
        };
        let mut ends = format!("{},{},{},{}", gpu(pair.src), gpu(pair.dst), pair.calls, pair.errors);
        let number = |number: Option<u64>| number.map_or(String::new(), |number| number.to_string());
        let host = |times: &Durations| {
            format!("{},{},{},{}", number(times.p50), number(times.p99), number(times.max), times.total)
        };
        let access = pair.access.map_or("", |access| if access { "1" } else { "0" });
        let link = field(pair.link.as_deref().unwrap_or_default());
        let lines = format!("{},{}", field(&lines(pair)), field(&callers(pair)));
        for path in &pair.paths {
            let rate = |rate: Option<f64>| rate.map_or(String::new(), |rate| format!("{rate:.3}"));
            let rate = format!("{},{}", rate(path.rate.gb_per_s), rate(path.rate.gb_per_s_off));
            let named = format!("{},{}", field(path.taken.name()), field(path.taken.why().unwrap_or_default()));
            let sums =
                format!("{},{},{},{},{}", path.calls, path.bytes, path.device_calls, path.device_bytes, path.device_ns);
            let times = host(&path.host_ns);
            writeln!(
                out,
                "{ends},{named},{sums},{rate},{times},{access},{link},{lines},{}",
                u8::from(path.taken.between_processes)
            )?;
            ends = format!("{},{},,", gpu(pair.src), gpu(pair.dst));
        }
        if pair.paths.is_empty() {
            let times = host(&pair.host_ns);
            writeln!(out, "{ends},,,0,0,0,0,0,,,{times},{access},{link},{lines},0")?;
        }
    }
    Ok(())
}

/// The lines of Python that copy, each with how many of its calls were looked at, of all from that place in the code.
fn lines(pair: &Pair) -> String {
    let of_site = |site: &CopySite| {
        let line = |it: &CopyLine| {
            format!("{} ({} of {}: {} B in {} ns)", it.line.in_full(), it.calls, site.calls, it.bytes, it.host_ns)
        };
        site.lines.iter().map(line).collect::<Vec<_>>()
    };
    pair.sites.iter().flat_map(of_site).collect::<Vec<_>>().join("; ")
}

/// The callers of the CUDA runtime, each with its calls, of all from that place in the code.
fn callers(pair: &Pair) -> String {
    let of_site = |site: &CopySite| {
        let caller = |it: &CopyCaller| format!("{} ({} of {})", it.caller, it.calls, site.calls);
        site.callers.iter().map(caller).collect::<Vec<_>>()
    };
    pair.sites.iter().flat_map(of_site).collect::<Vec<_>>().join("; ")
}

/// A text as a field: quoted if it would not stay one, and marked as text if a spreadsheet would take it for a formula.
pub(crate) fn field(text: &str) -> String {
    let text = term::clean(text);
    let text = if text.starts_with(['=', '+', '-', '@']) { format!("'{text}") } else { text };
    if text.contains(['"', ',']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::Path;
    use crate::report::paths::Taken;

    #[test]
    fn write_each_line_has_the_columns_of_the_first() {
        let taken = Taken::of(Some(p2pshim_trace::Path::Staged(p2pshim_trace::Why::BrokenInUse)));
        let staged = || Path { taken, ..Path::default() };
        let pair = |paths| Pair { paths, calls: 7, errors: 3, ..Pair::default() };
        let report = Report { pairs: vec![pair(vec![staged(), staged()]), pair(Vec::new())], ..Report::default() };
        let mut out = Vec::new();
        write(&report, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let commas: Vec<usize> = text.lines().map(|line| line.matches(',').count()).collect();
        assert_eq!(commas, [25; 4], "{text}");
        let of_pair = |line: &str| line.split(',').skip(6).take(2).map(str::to_owned).collect::<Vec<_>>().join(",");
        assert_eq!(text.lines().skip(1).map(of_pair).collect::<Vec<_>>(), ["7,3", ",", "7,3"], "{text}");
        assert!(text.contains(",staged,broken though access is enabled,0,"), "{text}");
    }

    #[test]
    fn field_that_looks_like_a_formula_is_text_and_numbers_stay() {
        for (text, shown) in
            [("=1+2", "'=1+2"), ("+1", "'+1"), ("-1", "'-1"), ("@x", "'@x"), ("a=1", "a=1"), ("\t=x", "\\t=x")]
        {
            assert_eq!(field(text), shown);
        }
        let pair = Pair { src: 0, dst: 0, calls: 5, ..Pair::default() };
        let mut out = Vec::new();
        write(&Report { pairs: vec![pair], ..Report::default() }, &mut out).unwrap();
        assert!(String::from_utf8(out).unwrap().contains(",5,0,,,0,0,0,0,0,,"));
    }

    #[test]
    fn field_quotes_only_what_needs_it() {
        assert_eq!((field("a b"), field("a,\"b\"")), ("a b".to_owned(), "\"a,\"\"b\"\"\"".to_owned()));
    }
}
