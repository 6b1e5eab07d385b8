//! Calls without a record that have failed: whose context was lost, and what else kept a program from its work.

use super::model::{Error, Failure, Report};
use super::symbols::UNKNOWN;
use crate::judge::{Level, Row, Words};

/// A kind of failure: a word for it, which functions (part of a name, empty for all) and codes it is, the sentence behind "returned N (name)", and
/// what to do. The first row that fits counts.
type Kind = (&'static str, &'static str, &'static [i32], &'static str, &'static str);

const LOST: &str = "Context lost";
const NO_ACCESS: &str = "No access";
const CAPTURE: &str = "Capture failed";

const RIGHTS: &str = "`p2pshim doctor` says why there is no path. p2pshim itself returns this code if the pair is \
                      denied, or its data does not arrive.";
const AFTER_LOSS: &str = "All later calls there fail. The work that failed was queued earlier: compute-sanitizer, or CUDA_LAUNCH_BLOCKING=1, names it \
                          (with HIP AMD_SERIALIZE_KERNEL=3).";
const HARDWARE: &str = "Xid lines in the kernel log name the GPU or the link; it may have to be reset or replaced.";

const NO_GPUS: &str = "No GPUs";
/// No more than a note: programs also find out in this way how many GPUs there are.
const NO_ORDINAL: &str = "No such GPU";
const NOT_CLOSED: &str = "Not closed";
const TOO_LATE: &str = "Too late";
/// The row about memory that the current GPU may not set: it fits only where another GPU is known to have the memory.
const MEMSET: &str = "emset";

const KINDS: &[Kind] = &[
    (
        NO_GPUS,
        "",
        &[802],
        "the GPUs are not ready: on a machine with NVSwitch that is so until the fabric manager has set it up",
        "`systemctl status nvidia-fabricmanager` says whether it runs; its version has to be that of the driver. `nvidia-smi -q` shows the state under Fabric.",
    ),
    (
        NO_GPUS,
        "",
        &[35, 803, 804],
        "the driver is older than the CUDA runtime, or does not fit libcuda.so",
        "Install a newer driver, or a runtime of the driver's version; cuda-compat lets data centre GPUs run a newer one. After an upgrade load the kernel module again: a reboot does.",
    ),
    (
        NO_GPUS,
        "",
        &[46],
        "another process has the GPU for itself, or it is in a state in which nobody may use it",
        "`nvidia-smi -q -d COMPUTE` shows the compute mode (Exclusive_Process), and `nvidia-smi` which processes use the GPU; with MIG, it needs an instance.",
    ),
    (
        NO_GPUS,
        "",
        &[100],
        "the process sees no GPU",
        "Look at CUDA_VISIBLE_DEVICES, at `nvidia-smi -L`, at the rights of /dev/nvidia*, and in a container at the option that hands GPUs to it (--gpus all).",
    ),
    (
        NO_ORDINAL,
        "SetDevice",
        &[101],
        "the process sees no GPU of that ordinal",
        "Ordinals count the GPUs in CUDA_VISIBLE_DEVICES (with HIP HIP_VISIBLE_DEVICES) from 0 on, and a process uses one MIG instance. If each rank sees \
         one GPU, all use 0.",
    ),
    (
        NO_GPUS,
        "cuda",
        &[3],
        "CUDA could not be initialized in the process, as in a child that was forked after its parent had called CUDA",
        "In Python that is the usual cause: start workers by spawn (multiprocessing.set_start_method(\"spawn\")), or call nothing of CUDA before the fork.",
    ),
    (
        LOST,
        "",
        &[700],
        "work on the GPU used an address that it cannot reach: past the end of memory, freed, or of a GPU to which it has no peer access (copies need none)",
        AFTER_LOSS,
    ),
    (LOST, "", &[716], "a kernel used an address that is not aligned", AFTER_LOSS),
    (LOST, "", &[714, 715, 717, 718], "a kernel could not go on: bad instruction, stack or address space", AFTER_LOSS),
    (LOST, "", &[719], "work on the GPU failed, as a copy does if peer access is disabled under it", AFTER_LOSS),
    (LOST, "", &[710], "a kernel's assertion failed", "The kernel has printed which."),
    (LOST, "", &[214, 220, 226], "the hardware reported an error that could not be corrected", HARDWARE),
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
        "the driver could not map the peer's memory",
        "Without NVLink a cause is a PCI window (BAR1) smaller than the peer's memory: Resizable BAR and Above 4G Decoding in the firmware. NVRM lines \
         in the kernel log say more.",
    ),
    (
        NO_ACCESS,
        "cuMemSetAccess",
        &[101, 217],
        "a GPU may not have access to the memory: there is no path, or p2pshim refuses it",
        RIGHTS,
    ),
    (
        NO_ACCESS,
        MEMSET,
        &[1],
        "a GPU sets memory of another one only with access to it",
        "Make the memory's device current (cudaSetDevice) and take a stream of it, or enable access.",
    ),
    (
        TOO_LATE,
        "",
        &[4],
        "the driver had been shut down, as it is once main has returned or exit was called",
        "Make such calls before: not in destructors of libraries or global objects, nor in functions of atexit.",
    ),
    (
        NOT_CLOSED,
        "cuIpcCloseMemHandle",
        &[201, 709],
        "no context is current there, or the one that had the memory open has ended",
        "Close memory of other processes before main returns, and before cudaDeviceReset.",
    ),
    (
        NOT_CLOSED,
        "cuIpcCloseMemHandle",
        &[1],
        "no memory of another process is open at this address, or it was closed as often as it was opened",
        "Close each handle as often as it was opened: parts of a program that open one handle get one address.",
    ),
    (
        CAPTURE,
        "StreamEndCapture",
        &[904],
        "another stream joined the capture, by an event, and did not come back to it",
        "Have the capturing stream wait for an event of the other one before the capture ends.",
    ),
    (
        CAPTURE,
        "StreamEndCapture",
        &[908],
        "a capture that is not relaxed has to end on the thread that began it",
        "End it there, or begin it with cudaStreamCaptureModeRelaxed.",
    ),
    (
        CAPTURE,
        "StreamEndCapture",
        &[900, 901, 905, 906, 907],
        "a call during the capture was not permitted: on the stream, in another capture or, in global mode, by another thread",
        "The log names it where p2pshim sees it: P2PSHIM_LOG=info.",
    ),
];

/// A failure that a sentence is about: its code in the usual numbers.
struct Told<'a> {
    function: &'a str,
    code: i32,
    name: Option<&'a str>,
    gpu: Option<usize>,
    memory_gpu: Option<usize>,
    place: String,
}

/// The kind of a failure.
fn kind(function: &str, code: i32) -> Option<&'static Kind> {
    KINDS.iter().find(|(_, part, codes, ..)| function.contains(part) && codes.contains(&code))
}

/// The meanings of a code: part of the names of the functions that they are about, empty for all; the meaning; the remedy.
pub(crate) fn meanings(code: i32) -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let kinds = KINDS.iter().filter(move |(.., codes, _, _)| codes.contains(&code));
    kinds.map(|&(_, function, _, why, remedy)| (function, why, remedy))
}

/// Whether a sentence is about calls of this kind.
pub(super) fn explains(error: &Error) -> bool {
    error.numbering.usual(error.code).is_some_and(|code| kind(&error.function, code).is_some())
}

/// Whether it is about a check that found the code of a call about peer access.
pub(super) fn is_left(failure: &Failure) -> bool {
    failure.function.ends_with("GetLastError") && matches!(failure.code, 704 | 705)
}

/// Whether it is about a call whose code P2PSHIM_FORGIVE has turned into success: of calls with a record no other has a note.
pub(super) fn is_forgiven(failure: &Failure) -> bool {
    failure.function.ends_with("PeerAccess") && matches!(failure.code, 704 | 705)
}

/// Whether a call without a record has failed that is neither forgiven nor left behind.
pub(super) fn are_others(report: &Report) -> bool {
    !report.failures.iter().all(|it| is_forgiven(it) || is_left(it))
}

/// The sentence about those that are forgiven.
pub(super) fn forgiven(report: &Report) -> Option<Words> {
    let all = || report.failures.iter().filter(|it| is_forgiven(it));
    let first = all().next()?;
    let of = |code| all().any(|it| it.code == code);
    let codes = match (of(704), of(705)) {
        (true, true) => "704 and 705",
        (true, false) => "704",
        _ => "705",
    };
    let text = format!(
        "The program got success in place of {codes}, as P2PSHIM_FORGIVE says: first for {} at {}.",
        first.function,
        first.from.in_short()
    );
    let more = "These calls had nothing to do. Without the option they fail.";
    Some(Words::from(text).more(more))
}

/// Whether work of the program has failed, so that a context is of no use any more.
pub(super) fn is_context_lost(report: &Report) -> bool {
    let is_lost = |function: &str, code: i32| kind(function, code).is_some_and(|kind| kind.0 == LOST);
    let recorded = |error: &Error| error.numbering.usual(error.code).is_some_and(|code| is_lost(&error.function, code));
    report.errors.iter().any(recorded) || report.failures.iter().any(|it| is_lost(&it.function, it.code))
}

/// A row for each kind of failure: about the first one that is known. Any but a lost context, which is the worst anyway, may be why a program ended.
pub(super) fn rows<'r>(ends: &'r [&'static str]) -> impl Iterator<Item = Row<'r, Report>> {
    KINDS.iter().map(move |kind| match kind.0 {
        LOST => Row::new(Level::Bad, LOST, move |it| words(it, kind)),
        NO_ORDINAL => Row::new(Level::Note, NO_ORDINAL, move |it| words(it, kind)).cause_of(ends),
        word => Row::new(Level::Warn, word, move |it| words(it, kind)).cause_of(ends),
    })
}

fn words(report: &Report, of: &'static Kind) -> Option<Words> {
    let noted = report.failures.iter().map(|Failure { function, code, name, gpu, memory_gpu, from, .. }| Told {
        function,
        code: *code,
        name: name.as_deref(),
        gpu: *gpu,
        memory_gpu: *memory_gpu,
        place: from.in_short(),
    });
    // Those of copies between GPUs, of which the time is not known, come after.
    let recorded = report.errors.iter().filter_map(|error| {
        let place = error.sites.first().map(|site| site.from.in_short()).unwrap_or_default();
        let code = error.numbering.usual(error.code)?;
        Some(Told { function: &error.function, code, name: error.name.as_deref(), gpu: None, memory_gpu: None, place })
    });
    let is_meant = |it: &Told| {
        let is_elsewhere = it.gpu.is_some() && it.memory_gpu.is_some_and(|gpu| Some(gpu) != it.gpu);
        kind(it.function, it.code) == Some(of) && (of.1 != MEMSET || is_elsewhere)
    };
    let told = noted.chain(recorded).find(is_meant)?;
    let (word, _, _, why, remedy) = *of;
    let name = told.name.map(|name| format!(" ({name})")).unwrap_or_default();
    let at = if told.place.is_empty() || told.place == UNKNOWN { String::new() } else { format!(" at {}", told.place) };
    let call = format!("{} returned {}{name}{at}: {why}", told.function, told.code);
    let text = match (word, told.gpu) {
        (NO_ACCESS, Some(gpu)) if let Some(of) = told.memory_gpu => {
            let [current, of] = [gpu, of].map(|gpu| report.label(gpu));
            format!("{call} ({current} was current, and {of} has the memory).")
        }
        (LOST, Some(gpu)) => format!("A context was lost ({} was current): {call}.", report.label(gpu)),
        (LOST, None) => format!("A context was lost: {call}."),
        _ => format!("{call}."),
    };
    let refused = report.findings.iter().find(|it| REFUSALS.contains(&it.rule.as_str()));
    let remedy = match refused.filter(|_| word == LOST && ACCESSES.contains(&told.code)) {
        Some(finding) => format!(
            "Before, p2pshim refused peer access that the program asked for ({}): kernels of a program that goes on without it end so. {remedy}",
            finding.rule
        ),
        None => remedy.to_owned(),
    };
    Some(Words::from(text).more(remedy))
}

/// Rules by which p2pshim refuses access, and the codes of contexts that are lost where a kernel uses memory without it.
const REFUSALS: [&str; 2] = ["P2P-enable-broken", "P2P-enable-denied"];
const ACCESSES: [i32; 2] = [700, 719];
