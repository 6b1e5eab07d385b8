//! Calls by which processes share memory and that have failed: why processes do not reach each other's memory, and what to do.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::failures;
use super::model::{Origin, Report, Run, Site, Unshared};
use super::names::Names;
use super::term::{count, counted};
use crate::judge::Words;

/// Faults that a sentence names.
const NAMED: usize = 2;

/// The reason of a failure, and the remedy; none if the failure is of no interest.
type Why = (&'static str, &'static str);

const ALLOCATE: &str = "Allocate it by cudaMalloc, in PyTorch with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False; or share it by \
                        a descriptor: cuMemExportToShareableHandle.";
const POOL: &str =
    "Allocate it by cudaMalloc; or share the pool: cudaMemPoolExportToShareableHandle, cudaMemPoolExportPointer.";
const TYPES: &str =
    "Ask for a descriptor when it is made: requestedHandleTypes of cuMemCreate, handleTypes of cudaMemPoolCreate.";
const IMEX: &str = "Start nvidia-imex, and give containers /dev/nvidia-caps-imex-channels/channel0; or leave fabric handles alone: \
                    NCCL_MNNVL_ENABLE=0, UCX_CUDA_IPC_ENABLE_MNNVL=n. On one host descriptors do as well.";
/// Source: NVIDIA/nccl#1647 and kubernetes-sigs/dra-driver-nvidia-gpu#294, where two processes of one GH200 machine saw a GPU each.
const ONE_MACHINE: &str = "Let each process see all GPUs of the machine; or leave fabric handles to other machines: NCCL_MNNVL_ENABLE=0, \
                           UCX_CUDA_IPC_ENABLE_MNNVL=n.";
/// Source: kubernetes-sigs/dra-driver-nvidia-gpu#1417 (GB200, GB300: nvidia-imex that does not answer), pytorch/pytorch#178989 (ranks of several
/// NVLink domains).
const DOMAIN: &str = "`nvidia-imex-ctl -N` says which machines nvidia-imex is connected to, or hangs: then restart nvidia-imex. Between NVLink \
                      domains there are no fabric handles: NCCL_MNNVL_ENABLE=0, UCX_CUDA_IPC_ENABLE_MNNVL=n.";
/// Source: the driver's documentation of cuMemImportFromShareableHandle.
const CHANNEL: &str =
    "Give both processes one IMEX channel: /dev/nvidia-caps-imex-channels/channel0, in their containers too.";
const OWN: &str = "Use the pointer itself: a handle is for other processes.";
const VISIBLE: &str =
    "Let each process see all GPUs, as CUDA_VISIBLE_DEVICES numbers them, and select its own by cudaSetDevice.";
const INSIDE: &str = "A handle opens the start of the allocation: whoever opens it has to add the offset.";
const KEEP: &str = "Keep the owner running, and its memory allocated, until the other process has closed it.";
const CLOSE: &str = "Close the older memory first: cudaIpcCloseMemHandle.";
const PATH: &str =
    "`p2pshim doctor` says why. p2pshim itself returns this code if the pair is denied, or its data does not arrive.";
const NAMESPACE: &str = "Processes in containers need one IPC namespace and one PID namespace: --ipc=host --pid=host. On WSL, NVIDIA's guide lists IPC handles as not supported.";
const PIDS: &str = "Let both processes share a PID namespace: --pid=host, or shareProcessNamespace in a pod.";
const IMPORT: &str = "Send descriptors through a Unix socket (SCM_RIGHTS), let each process see all GPUs, and check who closes the descriptor.";
const PEERS: &str = "A context has eight peers without NVSwitch. Close memory, or disable peers, that are not used.";
const OWNER: &str = "Leave the device of the pool out: it always has access.";

/// The reason of a failed call.
fn why(function: &str, code: i32, of: &str) -> Why {
    let is_open = function == "cuIpcOpenMemHandle";
    let is_import = function.ends_with("ImportFromShareableHandle");
    match (of, code) {
        ("inside", _) => ("a handle was made of an address inside an allocation", INSIDE),
        ("fabric", 101) if is_import => {
            ("the fabric handle is of a GPU of this machine that the process does not see", ONE_MACHINE)
        }
        ("fabric", 400) if is_import => ("nvidia-imex does not reach the owner of the fabric handle", DOMAIN),
        ("fabric", 800) if is_import => {
            ("the owner of the fabric handle has another IMEX channel, or one of both has none", CHANNEL)
        }
        ("fabric", code) if code != 1 => ("there are no fabric handles here", IMEX),
        ("mapped", _) => ("memory of cuMemCreate has no IPC handle", ALLOCATE),
        ("pool", _) if function == "cuIpcGetMemHandle" => ("memory of a pool has no IPC handle", POOL),
        ("managed", _) => ("managed memory cannot be shared", "Allocate it by cudaMalloc."),
        ("opened", _) => ("memory of another process cannot be passed on", "Send the handle of its owner on."),
        ("none", _) => ("the device of a pool cannot lose access to it", OWNER),
        ("flags", 1) => ("a flag does not exist", "Pass cudaIpcMemLazyEnablePeerAccess."),
        ("own", 201) => ("a handle was opened by the process that made it", OWN),
        ("namespace", 201) => (
            "a handle has the number of this process, which is not known to have made it: its owner is in another PID namespace, or had the number before",
            PIDS,
        ),
        (_, 201) if is_open => ("another context of the device has the memory open, or no context is current", CLOSE),
        (_, 101) if is_open => ("the memory is of a GPU that the process does not see", VISIBLE),
        ("fabric", 1) if is_import => ("the fabric handle is of another IMEX domain, or its memory is gone", IMEX),
        (_, 1) if function == "cuMemPoolImportPointer" => ("the data does not describe a pointer of the pool", POOL),
        (_, 1 | 101) if is_import => {
            ("the driver does not know the descriptor, or its memory is on a GPU that the process does not see", IMPORT)
        }
        (_, 205) if is_open => ("the memory, or the process that owns it, is gone", KEEP),
        (_, 208) => ("older memory of the same address is still open", CLOSE),
        (_, 217) => ("there is no usable path to the GPU of the memory", PATH),
        (_, 101) if function == "cuMemPoolSetAccess" => ("there is no usable path to the GPU of the pool", PATH),
        (_, 711) => ("the context has too many peers", PEERS),
        (_, 1 | 400) if is_open => ("the handle is not one that the process can open", NAMESPACE),
        (_, 1) if function == "cuIpcGetMemHandle" => {
            ("the address is not that of memory of a device", "Allocate it by cudaMalloc.")
        }
        ("pool", _) => ("memory of a pool without handle types cannot be shared", TYPES),
        (_, 1) if function.contains("Export") => ("memory that was made without handle types cannot be shared", TYPES),
        _ => ("see the code", "`p2pshim explain` says what it means."),
    }
}

/// The purpose of a call of this kind.
type Key = (String, i32, String);

#[derive(Debug, Default)]
struct Total {
    name: Option<String>,
    sites: HashMap<Origin, u64>,
    files: BTreeSet<usize>,
}

/// The failures of all files.
#[derive(Debug, Default)]
pub(super) struct Totals(BTreeMap<Key, Total>);

impl Totals {
    /// Adds those of a file.
    pub(super) fn add(&mut self, file: usize, names: &Names, site: impl Fn(u16) -> Origin) {
        for ((place, function, code, of), (name, count)) in &names.unshared {
            let total = self.0.entry((function.clone(), *code, of.clone())).or_default();
            total.name = Some(name.clone()).filter(|name| !name.is_empty());
            *total.sites.entry(site(*place)).or_default() += count;
            total.files.insert(file);
        }
    }

    /// The failures, those of a path first, then the most frequent.
    pub(super) fn into_rows(self, sites: impl Fn(HashMap<Origin, u64>) -> Vec<Site>) -> Vec<Unshared> {
        let row = |((function, code, of), total): (Key, Total)| {
            let (why, remedy) = why(&function, code, &of);
            let sites = sites(total.sites);
            let count = sites.iter().map(|site| site.count).sum();
            Unshared { function, code, name: total.name, why, remedy, count, sites, files: total.files }
        };
        let mut rows: Vec<Unshared> = self.0.into_iter().map(row).collect();
        rows.sort_by_key(|row| (is_only_listed(row), row.remedy != PATH, std::cmp::Reverse(row.count)));
        rows
    }
}

/// Fabric handles, which libraries try first, and calls that have succeeded and may be right.
fn is_only_listed(row: &Unshared) -> bool {
    row.remedy == IMEX || row.code == 0
}

/// The others, which have a sentence.
fn told(report: &Report) -> Vec<&Unshared> {
    // Fabric handles alone are of interest if a program has ended badly, and nothing else has failed.
    let has_failed = |run: &Run| run.end.signal.is_some() || run.end.code.is_some_and(|code| code != 0);
    let are_all = report.errors.is_empty() && !failures::are_others(report) && report.runs.iter().any(has_failed);
    let mut rows: Vec<&Unshared> = report.unshared.iter().filter(|row| !is_only_listed(row)).collect();
    if rows.is_empty() && are_all {
        rows.extend(report.unshared.iter().filter(|row| row.code != 0));
    }
    rows
}

/// Whether there is such a sentence.
pub(super) fn has_failed(report: &Report) -> bool {
    !told(report).is_empty()
}

/// Whether all of them are calls that give access to a pool: within a process memory is shared by rights alone.
fn are_rights(rows: &[&Unshared]) -> bool {
    rows.iter().all(|row| row.function == "cuMemPoolSetAccess" && row.remedy == PATH)
}

/// The sentence that pools got no access.
pub(super) fn no_access(report: &Report) -> Option<Words> {
    let rows = told(report);
    are_rights(&rows).then(|| words(&rows, "to give access to a pool"))?
}

/// The sentence that processes do not share memory.
pub(super) fn not_shared(report: &Report) -> Option<Words> {
    let rows = told(report);
    (!are_rights(&rows)).then(|| words(&rows, "to share memory between processes"))?
}

fn words(rows: &[&Unshared], what: &str) -> Option<Words> {
    let remedy = rows.first()?.remedy;
    let all: u64 = rows.iter().map(|row| row.count).sum();
    let mut told: Vec<String> = (rows.iter().take(NAMED))
        .map(|row| format!("{} ({}, {})", row.why, row.function, counted(row.count, "call")))
        .collect();
    if let Some(more @ 1..) = rows.len().checked_sub(NAMED) {
        told.push(format!("and {} more", count(more as u64)));
    }
    let calls = if all == 1 { "A call".to_owned() } else { format!("{} calls", count(all)) };
    Some(Words::from(format!("{calls} {what} failed: {}.", told.join("; "))).more(remedy))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use p2pshim_trace::{NoteKind, Trace};

    use super::*;
    use crate::report::gather::{Options, gather_from};
    use crate::report::scene::{Folder, Scene};

    /// The report of two processes that note the same failures: function, code, what is special, and how many.
    fn report_of(failures: &[(&str, i32, &str, u32)]) -> Report {
        let folder = Folder::new("unshared");
        let names: Vec<String> = ["one", "two"].iter().map(|name| format!("{name}.p2ptrace")).collect();
        for (process, name) in (1..).zip(&names) {
            let mut scene = Scene::named(&folder.0, name, process, "node");
            scene.note(0, NoteKind::Site, 1, &["1234"]);
            for (function, code, of, count) in failures {
                for _ in 0..*count {
                    scene.note(5, NoteKind::Unshared, 1, &[function, &*code.to_string(), "CUDA_ERROR", of]);
                }
            }
            scene.finish();
        }
        let names: Vec<String> = names.iter().map(|name| folder.0.join(name).display().to_string()).collect();
        let open = |index: usize| Trace::open(Path::new(&names[index]));
        gather_from(
            &names,
            &[0; 2],
            &open,
            &Options { symbols: false, with_arguments: true, suppress: None, filter: None },
        )
    }

    #[test]
    fn unshared_for_its_path_comes_first() {
        let report = report_of(&[("cuIpcGetMemHandle", 1, "", 3), ("cuIpcOpenMemHandle", 217, "", 1)]);
        assert_eq!(report.unshared.iter().map(|row| row.code).collect::<Vec<_>>(), [217, 1]);
    }

    #[test]
    fn unshared_each_code_has_its_reason() {
        for (function, code, of, said) in [
            ("cuIpcOpenMemHandle", 101, "", "the memory is of a GPU that the process does not see"),
            (
                "cuIpcOpenMemHandle",
                201,
                "",
                "another context of the device has the memory open, or no context is current",
            ),
            ("cuIpcOpenMemHandle", 201, "own", "a handle was opened by the process that made it"),
            ("cuIpcOpenMemHandle", 205, "", "the memory, or the process that owns it, is gone"),
            ("cuIpcOpenMemHandle", 208, "", "older memory of the same address is still open"),
            ("cuIpcOpenMemHandle", 217, "", "there is no usable path to the GPU of the memory"),
            ("cuIpcOpenMemHandle", 400, "", "the handle is not one that the process can open"),
            ("cuIpcOpenMemHandle", 711, "", "the context has too many peers"),
            ("cuIpcGetMemHandle", 1, "mapped", "memory of cuMemCreate has no IPC handle"),
            ("cuIpcGetMemHandle", 1, "managed", "managed memory cannot be shared"),
            ("cuIpcGetMemHandle", 1, "opened", "memory of another process cannot be passed on"),
            ("cuIpcGetMemHandle", 1, "", "the address is not that of memory of a device"),
            ("cuMemPoolSetAccess", 101, "", "there is no usable path to the GPU of the pool"),
            ("cuMemCreate", 800, "fabric", "there are no fabric handles here"),
            ("cuMemExportToShareableHandle", 1, "fabric", "memory that was made without handle types cannot be shared"),
            ("cuMemImportFromShareableHandle", 999, "", "see the code"),
            (
                "cuMemImportFromShareableHandle",
                1,
                "fabric",
                "the fabric handle is of another IMEX domain, or its memory is gone",
            ),
            (
                "cuMemImportFromShareableHandle",
                101,
                "fabric",
                "the fabric handle is of a GPU of this machine that the process does not see",
            ),
            (
                "cuMemImportFromShareableHandle",
                400,
                "fabric",
                "nvidia-imex does not reach the owner of the fabric handle",
            ),
            (
                "cuMemImportFromShareableHandle",
                800,
                "fabric",
                "the owner of the fabric handle has another IMEX channel, or one of both has none",
            ),
            ("cuMemImportFromShareableHandle", 801, "fabric", "there are no fabric handles here"),
            ("cuMemPoolImportPointer", 1, "", "the data does not describe a pointer of the pool"),
            ("cuIpcGetMemHandle", 700, "", "see the code"),
            ("cuMemMap", 205, "", "see the code"),
        ] {
            assert_eq!(why(function, code, of).0, said, "{function} {code} {of}");
        }
    }

    #[test]
    fn unshared_calls_of_all_processes_are_counted_and_fabric_handles_come_last() {
        let report = report_of(&[
            ("cuMemCreate", 801, "fabric", 9),
            ("cuIpcOpenMemHandle", 101, "", 1),
            ("cuIpcGetMemHandle", 1, "mapped", 3),
        ]);
        let rows: Vec<_> = report.unshared.iter().map(|row| (row.code, row.count, row.files.len())).collect();
        assert_eq!(rows, [(1, 6, 2), (101, 2, 2), (801, 18, 2)]);
        let said = not_shared(&report).unwrap();
        assert_eq!(
            said.text,
            "8 calls to share memory between processes failed: memory of cuMemCreate has no IPC handle (cuIpcGetMemHandle, \
             6 calls); the memory is of a GPU that the process does not see (cuIpcOpenMemHandle, 2 calls)."
        );
        assert_eq!(said.more.as_deref(), Some(ALLOCATE));
    }

    #[test]
    fn unshared_fabric_handles_are_a_sentence_if_a_program_ended_badly_and_nothing_else_failed() {
        let ended = |failures: &[(&str, i32, &str, u32)], code| {
            let end = crate::report::model::End { code: Some(code), ..Default::default() };
            let report = Report { runs: vec![Run { end, ..Run::default() }], ..report_of(failures) };
            not_shared(&report).map(|said| said.text)
        };
        let fabric = ("cuMemCreate", 801, "fabric", 1);
        assert!(ended(&[fabric], 1).is_some_and(|text| text.contains("there are no fabric handles here")));
        assert_eq!(ended(&[fabric], 0), None);
        let text = ended(&[fabric, ("cuIpcOpenMemHandle", 217, "", 1)], 1);
        assert!(text.is_some_and(|text| text.starts_with("2 calls to share")), "each of two processes made one");
    }

    #[test]
    fn unshared_fabric_handles_and_addresses_inside_are_no_sentence() {
        assert!(not_shared(&report_of(&[("cuMemCreate", 801, "fabric", 1)])).is_none());
        assert!(not_shared(&report_of(&[("cuIpcGetMemHandle", 0, "inside", 1)])).is_none());
        assert!(not_shared(&report_of(&[])).is_none());
    }
}
