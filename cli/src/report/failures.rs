//! Calls without a record that have failed: whose context was lost, and what else kept a program from its work.

use super::model::{Error, Failure, Report};
use super::sentence::{Level, Sentence};
use super::symbols::UNKNOWN;

/// A kind of failure: a word for it, which functions (part of a name, empty for all) and codes it is, the sentence behind "returned N (name)", and
/// what to do. The first row that fits counts.
type Row = (&'static str, &'static str, &'static [i32], &'static str, &'static str);

const LOST: &str = "Context lost";
const NO_ACCESS: &str = "No access";
const CAPTURE: &str = "Capture failed";

const RIGHTS: &str =
    "`p2pshim doctor` says why. p2pshim answers this itself where the pair is denied, or its data does not arrive.";
const AFTER_LOSS: &str = "All later calls there fail. The work that failed was queued earlier: compute-sanitizer, or CUDA_LAUNCH_BLOCKING=1, names it; so may \
                          Xid lines in the kernel log.";

const ROWS: &[Row] = &[
    (
        LOST,
        "",
        &[700, 714, 715, 716, 717, 718],
        "a kernel used an address that its GPU cannot reach: memory that was freed, or memory of a GPU to which it has no peer access (copies need none)",
        AFTER_LOSS,
    ),
    (LOST, "", &[719], "work on the GPU failed; so it does if peer access is taken away under a copy", AFTER_LOSS),
    (LOST, "", &[710], "a kernel's assertion failed", "The kernel has printed which."),
    (LOST, "", &[214, 220, 226], "the hardware reported an error that could not be corrected", AFTER_LOSS),
    (
        LOST,
        "",
        &[702],
        "a kernel took longer than the system lets it",
        "A GPU that also shows a screen stops long kernels.",
    ),
    (
        NO_ACCESS,
        "EnablePeerAccess",
        &[205],
        "the driver could not map the peer's memory: the peer's PCI window (BAR1) must hold all of its memory",
        "Turn on Resizable BAR and Above 4G Decoding in the firmware. NVRM lines in the kernel log name the window.",
    ),
    (
        NO_ACCESS,
        "cuMemSetAccess",
        &[1, 101, 217],
        "a GPU that was to get access to the memory has no path to it",
        RIGHTS,
    ),
    (
        "Not closed",
        "cuIpcCloseMemHandle",
        &[4, 201, 709],
        "no context is current there, or the one that had the memory open has ended",
        "Close memory of other processes before main returns, and before cudaDeviceReset.",
    ),
    (
        CAPTURE,
        "cuStreamEndCapture",
        &[904],
        "another stream joined the capture, by an event, and did not come back to it",
        "Have the capturing stream wait for an event of the other one before the capture ends.",
    ),
    (
        CAPTURE,
        "cuStreamEndCapture",
        &[900, 901, 905, 906, 907, 908],
        "a call while the stream was captured is none that a graph can hold",
        "The first call that failed before names it.",
    ),
];

/// A failure that a sentence is about: its code in the usual numbers.
struct Told<'a> {
    function: &'a str,
    code: i32,
    name: Option<&'a str>,
    gpu: Option<usize>,
    place: String,
}

/// The row that a failure is of, and its place.
fn place(function: &str, code: i32) -> Option<(usize, &'static Row)> {
    ROWS.iter().enumerate().find(|(_, (_, part, codes, ..))| function.contains(part) && codes.contains(&code))
}

fn row(function: &str, code: i32) -> Option<&'static Row> {
    place(function, code).map(|(_, row)| row)
}

/// Whether a sentence is about calls of this kind.
pub(super) fn explains(error: &Error) -> bool {
    error.numbering.usual(error.code).is_some_and(|code| row(&error.function, code).is_some())
}

/// Whether work of the program has failed, so that a context is of no use any more.
pub(super) fn is_context_lost(report: &Report) -> bool {
    let is_lost = |function: &str, code: i32| row(function, code).is_some_and(|row| row.0 == LOST);
    let recorded = |error: &Error| error.numbering.usual(error.code).is_some_and(|code| is_lost(&error.function, code));
    report.errors.iter().any(recorded) || report.failures.iter().any(|it| is_lost(&it.function, it.code))
}

/// The sentences: of each kind the first failure.
pub(super) fn sentences(report: &Report) -> Vec<Sentence> {
    let mut told: Vec<((usize, &Row), Told)> = Vec::new();
    let noted = report.failures.iter().map(|Failure { function, code, name, gpu, from, .. }| Told {
        function,
        code: *code,
        name: name.as_deref(),
        gpu: *gpu,
        place: from.in_short(),
    });
    // Those of copies between GPUs, of which the time is not known, come after.
    let recorded = report.errors.iter().filter_map(|error| {
        let place = error.sites.first().map(|site| site.from.in_short()).unwrap_or_default();
        let code = error.numbering.usual(error.code)?;
        Some(Told { function: &error.function, code, name: error.name.as_deref(), gpu: None, place })
    });
    for failure in noted.chain(recorded) {
        let Some(place) = place(failure.function, failure.code) else { continue };
        if told.iter().all(|((_, other), _)| other.0 != place.1.0) {
            told.push((place, failure));
        }
    }
    told.sort_by_key(|((place, _), _)| *place);
    told.into_iter().map(|((_, row), failure)| sentence(report, row, &failure)).collect()
}

fn sentence(report: &Report, &(word, _, _, why, remedy): &Row, told: &Told) -> Sentence {
    let name = told.name.map(|name| format!(" ({name})")).unwrap_or_default();
    let at = if told.place.is_empty() || told.place == UNKNOWN { String::new() } else { format!(" at {}", told.place) };
    let call = format!("{} returned {}{name}{at}: {why}", told.function, told.code);
    let (level, text) = match (word, told.gpu) {
        (LOST, Some(gpu)) => (Level::Bad, format!("The context of {} was lost: {call}.", report.label(gpu))),
        (LOST, None) => (Level::Bad, format!("A context was lost: {call}.")),
        _ => (Level::Warn, format!("{call}.")),
    };
    Sentence::new(level, word, text).more(remedy).section("errors")
}
