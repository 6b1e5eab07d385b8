//! The golden table of conformance, as text for readers.

use std::fmt::Write;

/// The codes that occur, with their names in both APIs.
const CODES: &[(&str, &str, &str)] = &[
    ("1", "cudaErrorInvalidValue", "CUDA_ERROR_INVALID_VALUE"),
    ("3", "cudaErrorInitializationError", "CUDA_ERROR_NOT_INITIALIZED"),
    ("12", "cudaErrorInvalidPitchValue", ""),
    ("49", "cudaErrorIncompatibleDriverContext", ""),
    ("101", "cudaErrorInvalidDevice", "CUDA_ERROR_INVALID_DEVICE"),
    ("201", "cudaErrorDeviceUninitialized", "CUDA_ERROR_INVALID_CONTEXT"),
    ("205", "cudaErrorMapBufferObjectFailed", "CUDA_ERROR_MAP_FAILED"),
    ("217", "cudaErrorPeerAccessUnsupported", "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"),
    ("400", "cudaErrorInvalidResourceHandle", "CUDA_ERROR_INVALID_HANDLE"),
    ("401", "cudaErrorIllegalState", "CUDA_ERROR_ILLEGAL_STATE"),
    ("700", "cudaErrorIllegalAddress", "CUDA_ERROR_ILLEGAL_ADDRESS"),
    ("704", "cudaErrorPeerAccessAlreadyEnabled", "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"),
    ("705", "cudaErrorPeerAccessNotEnabled", "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED"),
    ("709", "cudaErrorContextIsDestroyed", "CUDA_ERROR_CONTEXT_IS_DESTROYED"),
    ("719", "cudaErrorLaunchFailure", "CUDA_ERROR_LAUNCH_FAILED"),
    ("801", "cudaErrorNotSupported", "CUDA_ERROR_NOT_SUPPORTED"),
    ("900", "cudaErrorStreamCaptureUnsupported", "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"),
    ("901", "cudaErrorStreamCaptureInvalidated", "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"),
    ("906", "cudaErrorStreamCaptureImplicit", "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"),
];

struct Row<'a> {
    setup: &'a str,
    call: &'a str,
    documented: &'a str,
    real: &'a str,
}

impl<'a> Row<'a> {
    fn new(line: &'a str) -> Row<'a> {
        let columns: Vec<_> = line.split('\t').collect();
        let [setup, call, documented, real, _, _] = columns[..] else { panic!("{line}: not six columns") };
        Row { setup, call, documented, real }
    }

    /// Forms for per-thread default streams count as the function that they are of.
    fn function(&self) -> &'a str {
        let name = self.call.split('(').next().unwrap();
        name.strip_suffix("_ptds").or(name.strip_suffix("_ptsz")).unwrap_or(name)
    }

    fn is_silent(&self) -> bool {
        self.documented.is_empty()
    }

    fn differs(&self) -> bool {
        !self.is_silent() && !self.documented.split(',').any(|code| code == self.real)
    }
}

/// Where documentation and hardware differ, and what documentation leaves open.
pub(crate) fn markdown(table: &str) -> String {
    let (comments, lines): (Vec<_>, Vec<_>) = table.lines().partition(|line| line.starts_with('#'));
    let rows: Vec<_> = lines.into_iter().skip(1).map(Row::new).collect();
    let mut functions = Vec::new();
    for row in &rows {
        if !functions.contains(&row.function()) {
            functions.push(row.function());
        }
    }

    let mut text = String::from(
        "# What the documentation says, and what the hardware does\n\n\
         Generated from tests/golden/conformance.tsv by `make header`; do not edit.\n\n",
    );
    let differing: Vec<_> = rows.iter().filter(|row| row.differs()).collect();
    let silent: Vec<_> = rows.iter().filter(|row| row.is_silent()).collect();
    writeln!(
        text,
        "{} calls, each in a process of its own. For {} of them CUDA 13's documentation gives a code or a choice of codes; \
         {} return another code. For {} it gives none. Calls that are not measured yet are in \
         c-tests/conformance-unmeasured.tsv. Copies that name no devices, and batches and graphs, have tables of their own: \
         [conformance-regular.tsv](../../tests/golden/conformance-regular.tsv) and \
         [conformance-graphs.tsv](../../tests/golden/conformance-graphs.tsv). The head of this table explains its columns:\n\n```text",
        rows.len(),
        rows.len() - silent.len(),
        differing.len(),
        silent.len(),
    )
    .unwrap();
    comments.iter().for_each(|line| writeln!(text, "{}", line.trim_start_matches("# ")).unwrap());
    text.push_str(
        "```\n\n| function | calls | as documented | otherwise | not documented |\n| --- | --- | --- | --- | --- |\n",
    );
    for function in &functions {
        let of_it = || rows.iter().filter(|row| row.function() == *function);
        let (all, differ) = (of_it().count(), of_it().filter(|row| row.differs()).count());
        let silent = of_it().filter(|row| row.is_silent()).count();
        writeln!(text, "| `{function}` | {all} | {} | {differ} | {silent} |", all - silent - differ).unwrap();
    }

    section(&mut text, "Where they differ", &functions, &differing);
    section(&mut text, "What the documentation leaves open", &functions, &silent);

    text.push_str("\n## Codes\n\n| code | runtime | driver |\n| --- | --- | --- |\n");
    let occur: Vec<_> = rows.iter().flat_map(|row| row.documented.split(',').chain([row.real])).collect();
    for (code, runtime, driver) in CODES.iter().filter(|known| occur.contains(&known.0)) {
        let driver = if driver.is_empty() { String::new() } else { format!("`{driver}`") };
        writeln!(text, "| {code} | `{runtime}` | {driver} |").unwrap();
    }
    for code in occur {
        let is_word = ["", "0", "crash", "timeout"].contains(&code);
        assert!(is_word || CODES.iter().any(|known| known.0 == code), "code {code} has no name in {}", file!());
    }
    text
}

/// A table a function; documented codes are shown if there are any.
fn section(text: &mut String, title: &str, functions: &[&str], rows: &[&Row]) {
    let any_documented = rows.iter().any(|row| !row.is_silent());
    let (head, line) = if any_documented { (" documented |", " --- |") } else { ("", "") };
    write!(text, "\n## {title}\n").unwrap();
    for function in functions {
        let found: Vec<_> = rows.iter().filter(|row| row.function() == *function).collect();
        if found.is_empty() {
            continue;
        }
        writeln!(text, "\n### {function}\n\n| before | call |{head} real |\n| --- | --- |{line} --- |").unwrap();
        for Row { setup, call, documented, real } in found {
            let steps: Vec<_> =
                setup.split(';').filter(|step| !step.is_empty()).map(|step| format!("`{step}`")).collect();
            let documented =
                if any_documented { format!(" {} |", documented.replace(',', " or ")) } else { String::new() };
            writeln!(text, "| {} | `{call}` |{documented} {real} |", steps.join("; ")).unwrap();
        }
    }
}
