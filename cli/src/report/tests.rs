//! The parts together, on traces in memory that are damaged in every way.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use p2pshim_trace::{CHUNK_BYTES, Capture, HEADER_BYTES, NoteKind, Path as Taken, RECORD_BYTES, REMOTE, Trace};

use super::gather::{Options, gather_from};
use super::model::Report;
use super::scene::{Call, DIRECT, ENABLE, Folder, MEMCPY_PEER, OVERLAP, STAGED, START, Scene};
use super::term::Style;
use super::{calls, csv, hang, json, live, merge, nvlink, perfetto, processes, text};
use crate::fuzz::{Random, each, is_plain, put_odd};
use crate::kept::Kept;
use crate::nvlink::Reading;
use crate::runs::Run;

/// The number of the path within a device.
const SAME: u8 = Taken::SameDevice.number();

/// The bytes of a trace with something of all there is.
fn trace_of_all() -> Vec<u8> {
    let folder = Folder::new("all");
    let mut scene = Scene::named(&folder.0, "app.p2ptrace", 7, "node");
    scene.gpus(&[("GPU-a", "0000:1a:00.0"), ("GPU-b", "0000:3b:00.0")]);
    scene.note(0, NoteKind::Variable, 0, &["RANK", "3"]);
    scene.note(0, NoteKind::Module, 0, &["1000", "2000", "0", "/bin/true"]);
    scene.note(1, NoteKind::Site, 1, &["1234"]);
    scene.note(
        1,
        NoteKind::Site,
        2,
        &["1234", "python=/home/u/train.py", "line=88", "function=step", "callers=1240 99"],
    );
    scene.note(1000, NoteKind::Decision, 1, &["enabled"]);
    scene.note(1000, NoteKind::Finding, OVERLAP.into(), &["overlap"]);
    scene.note(1000, NoteKind::Message, 0, &["full"]);
    for number in 0..40 {
        let at = number * 10_000;
        let path = if number % 2 == 0 { DIRECT } else { STAGED };
        let copy = Call::copy(at, ((number % 2) as u8, 1), number << 12, path);
        scene.calls(&Call {
            device: Some((at + 500, 5_000)),
            result: i32::from(number == 5),
            rules: if number == 6 { vec![OVERLAP] } else { Vec::new() },
            site: if number % 8 == 0 { 2 } else { copy.site },
            capture: if number == 7 { Capture::Rewritten } else { Capture::None },
            ..copy
        });
    }
    scene.another_segment();
    let hanging = Call { function: MEMCPY_PEER, took: None, ..Call::copy(400_000, (1, 0), 64, DIRECT) };
    scene.calls(&hanging);
    let mut bytes = std::fs::read(scene.finish()).unwrap();
    // Space that was taken for more chunks is zeros.
    let chunks = u64::from_le_bytes(bytes[32..40].try_into().unwrap()) as usize;
    bytes.truncate(HEADER_BYTES + chunks * CHUNK_BYTES);
    bytes
}

/// A form of the report.
#[derive(Clone, Copy)]
enum Form {
    Text,
    Json,
    Csv,
    Calls,
    Events,
}

const FORMS: [Form; 5] = [Form::Text, Form::Json, Form::Csv, Form::Calls, Form::Events];

/// Makes a report of files in memory, and of what lies beside them.
fn gathered(files: &[Vec<u8>], symbols: bool, beside: &Beside) -> (Report, Vec<String>) {
    let names: Vec<String> = (0..files.len()).map(|index| format!("{index}.p2ptrace")).collect();
    let sizes: Vec<u64> = files.iter().map(|file| file.len() as u64).collect();
    let open = |index: usize| Trace::from_bytes(files[index].clone(), Path::new(&names[index]));
    let mut report =
        gather_from(&names, &sizes, &open, &Options { symbols, with_arguments: true, suppress: None, filter: None });
    processes::complete(&mut report, &beside.runs);
    report.nvlink = nvlink::compare(&report, &beside.readings);
    (report, names)
}

/// Writes a report in a form, without colours.
fn written(report: &Report, (files, names): (&[Vec<u8>], &[String]), form: Form) -> Vec<u8> {
    let open = |index: usize| Trace::from_bytes(files[index].clone(), Path::new(&names[index]));
    let sources = || merge::sources(report, |file| open(file.index)).unwrap();
    let mut out = Vec::new();
    match form {
        Form::Text => text::write(report, Style { colour: false, width: Some(80) }, &mut out),
        Form::Json => json::write(report, &mut out),
        Form::Csv => csv::write(report, &mut out),
        Form::Calls => calls::write(report, &sources(), &[], u64::MAX, false, &mut out),
        Form::Events => perfetto::write(report, &sources(), &[], false, &mut out),
    }
    .unwrap();
    out
}

/// The files beside a trace.
#[derive(Default)]
struct Beside {
    runs: Vec<Run>,
    readings: Vec<Reading>,
}

impl Beside {
    /// The run of [`trace_of_all`], and what NVLink carried meanwhile, in JSON.
    fn good() -> [Value; 2] {
        let run = Run {
            version: 1,
            id: "run-1".to_owned(),
            host: "node".to_owned(),
            process: 7,
            command: vec!["/opt/app".to_owned(), "-n".to_owned()],
            start: START - 1_000_000,
            end: START + 90_000_000_000,
            signal: Some(9),
            ..Run::default()
        };
        let gpu = |uuid: &str| crate::nvlink::Gpu {
            uuid: uuid.to_owned(),
            sent: [5 << 20, 60 << 20],
            received: [7 << 20, 90 << 20],
            ours: true,
            others: vec![4711],
        };
        let gpus = ["GPU-a", "GPU-b"].map(gpu).to_vec();
        let reading =
            Reading { version: 1, host: run.host.clone(), start: run.start, end: run.end, gpus, ..Reading::default() };
        [serde_json::to_value(run).unwrap(), serde_json::to_value(reading).unwrap()]
    }

    /// Takes over as much as can be read.
    fn read([run, reading]: [Value; 2]) -> Self {
        fn possible<T: Kept>(value: Value) -> Vec<T> {
            serde_json::from_value(value).into_iter().filter(T::is_possible).collect()
        }
        Self { runs: possible(run), readings: possible(reading) }
    }
}

/// Where damage may matter: headers of the file, of chunks, of notes, and records.
fn place(random: &mut Random, bytes: &[u8]) -> usize {
    let chunks = (bytes.len() - HEADER_BYTES) / CHUNK_BYTES;
    let chunk = HEADER_BYTES + random.below(chunks) * CHUNK_BYTES;
    let place = match random.below(6) {
        0 => random.below(64 + 48),
        1 => chunk + random.below(64),
        2 => chunk + 64 + random.below(4096),
        3 | 4 => chunk + 64 + random.below(90) * RECORD_BYTES + random.below(RECORD_BYTES),
        _ => random.below(bytes.len()),
    };
    place.min(bytes.len() - 1)
}

fn damage(random: &mut Random, good: &[u8]) -> Vec<u8> {
    let mut bytes = good.to_vec();
    for _ in 0..=random.below(12) {
        let at = place(random, &bytes);
        let value = match random.below(5) {
            0 => 0,
            1 => u64::MAX,
            2 => 1 << random.below(64),
            _ => (random.below(1 << 31) as u64) << 33 | random.below(1 << 31) as u64,
        };
        let width = random.one_of(&[1, 1, 1, 2, 4, 8]).min(bytes.len() - at);
        bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
    }
    if random.below(8) == 0 {
        let (from, to) = (place(random, &bytes), place(random, &bytes));
        let length = random.below(300).min(bytes.len() - from.max(to));
        bytes.copy_within(from..from + length, to);
    }
    if random.below(8) == 0 {
        bytes.truncate(random.below(bytes.len()));
    }
    bytes
}

/// A figure of a report that can be none, by its name.
fn implausible(name: &str, value: &Value) -> Option<String> {
    /// GB/s, bytes of some hundred calls, copies of them (a call may make many), and nanoseconds of ten years.
    const FASTEST: f64 = 100_000.0;
    const MOST: f64 = 1e18;
    const MANY: f64 = 1e13;
    const LONGEST: f64 = 3.2e17;
    let most = match name {
        // Times of day; traces of a job may be of several days.
        "started" | "ended" | "from" | "to" | "ts" => return None,
        "calls" | "copies" | "errors" | "records" => MANY,
        "direct" | "staged" | "sent" | "received" | "max" | "median" | "min" => MOST,
        "p50" | "p99" | "total" => LONGEST,
        "dur" => LONGEST / 1e3,
        _ if name.contains("gb_per_s") || name == "GB/s" => FASTEST,
        _ if name.ends_with("_calls") => MANY,
        _ if name.contains("bytes") => MOST,
        // Of all calls together.
        _ if name.ends_with("seconds") => LONGEST / 1e6,
        _ if name.ends_with("_ns") => LONGEST,
        _ => f64::MAX,
    };
    match value {
        Value::Object(all) => all.iter().find_map(|(name, value)| implausible(name, value)),
        Value::Array(all) => all.iter().find_map(|value| implausible(name, value)),
        Value::Number(number) => {
            let is_plausible = number.as_f64().is_some_and(|number| number.abs() <= most);
            (!is_plausible).then(|| format!("{name}: {number}"))
        }
        _ => None,
    }
}

/// Checks what is written of a report: nothing in it commands a terminal, and each figure may be one.
fn check(report: &Report, form: Form, out: &[u8]) {
    let text = str::from_utf8(out).unwrap();
    assert!(is_plain(text), "{text:?}");
    let parsed = match form {
        Form::Json | Form::Events => serde_json::from_slice(out).unwrap(),
        _ => json::value(report).unwrap(),
    };
    assert_eq!(implausible("", &parsed), None);
}

#[test]
fn report_of_damaged_files_is_made_of_what_is_left() {
    let good = trace_of_all();
    let (whole, _) = gathered(std::slice::from_ref(&good), true, &Beside::default());
    assert!(whole.is_whole() && whole.files[0].calls == 41 && whole.unfinished.len() == 1);
    let [run, reading] = Beside::good();
    let (mut read, mut calls) = (0, 0);
    let inputs = each(600, |number, random| {
        let mut files = vec![damage(random, &good)];
        if number % 16 == 0 {
            files.push(damage(random, &good));
            files.push(good.clone());
        }
        let mut beside = [run.clone(), reading.clone()];
        if number % 4 == 0 {
            put_odd(&mut beside[random.below(2)], random);
        }
        let form = FORMS[number % FORMS.len()];
        let (report, names) = gathered(&files, number % 64 == 0, &Beside::read(beside));
        let out = written(&report, (&files, &names), form);
        check(&report, form, &out);
        read += usize::from(report.files[0].process.is_some());
        calls += report.files[0].calls as usize;
        if matches!(form, Form::Calls) {
            let lines = out.iter().filter(|&&byte| byte == b'\n').count();
            // Parts of calls, which damaged files may have, have lines of their own.
            assert!(lines as u64 >= report.functions.iter().map(|function| function.calls).sum::<u64>());
        }
    });
    println!("{read} could be read, {calls} calls");
    assert!(read > inputs / 2 && calls > 20 * read, "the damage is too great to tell anything: {read}, {calls}");
}

#[test]
fn damaged_files_beside_a_trace_change_no_figure_of_it() {
    let good = [trace_of_all()];
    let pairs = |report: &Report| serde_json::to_value(&report.pairs).unwrap();
    let whole = pairs(&gathered(&good, false, &Beside::default()).0);
    let beside = Beside::good();
    each(200, |number, random| {
        let mut beside = beside.clone();
        for _ in 0..=random.below(4) {
            put_odd(&mut beside[random.below(2)], random);
        }
        let (report, names) = gathered(&good, false, &Beside::read(beside));
        assert_eq!(pairs(&report), whole);
        let form = [Form::Text, Form::Json][number % 2];
        check(&report, form, &written(&report, (&good, &names), form));
    });
}

/// Damaged traces on the disk: of programs that may hang, and beside those of another run.
#[test]
fn damaged_traces_of_programs_that_hang_or_are_compared_are_shown_as_far_as_they_go() {
    let good = trace_of_all();
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = ["a", "b"].map(|name| folder.path().join(name));
    [&one, &other].into_iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
    std::fs::write(other.join("a.p2ptrace"), &good).unwrap();
    let mut compared = 0;
    let inputs = each(50, |_, random| {
        std::fs::write(one.join("a.p2ptrace"), damage(random, &good)).unwrap();
        if let Ok((Some(report), meant)) = live::read(std::slice::from_ref(&one), 64, true)
            && let Ok(found) = hang::found(&report, &meant)
        {
            let shown = |is_json| {
                let mut out = Vec::new();
                hang::write(
                    &report,
                    &found,
                    (&meant, is_json, true),
                    Style { colour: false, width: Some(80) },
                    &mut out,
                )
                .unwrap();
                String::from_utf8(out).unwrap()
            };
            [false, true].map(shown).iter().for_each(|text| assert!(is_plain(text), "{text:?}"));
            let parsed: Value = serde_json::from_str(&shown(true)).unwrap();
            assert_eq!(implausible("", &parsed), None);
        }
        let pair = if random.below(2) == 0 { [&one, &other] } else { [&other, &one] };
        if let Some((text, parsed)) = crate::compare::of_folders(pair) {
            compared += 1;
            assert!(is_plain(&text), "{text:?}");
            assert_eq!(implausible("", &parsed), None);
        }
    });
    assert!(compared > inputs / 2, "{compared}");
}

#[test]
fn report_of_a_large_file_is_the_same_by_several_threads() {
    let folder = Folder::new("large");
    let mut scene = Scene::named(&folder.0, "app.p2ptrace", 7, "node");
    scene.gpus(&[("GPU-a", ""), ("GPU-b", "")]);
    // So that parts of the file begin with a call inside another.
    scene.call(&Call { function: ENABLE, path: 0, ..Call::copy(0, (0, 1), 0, 0) });
    for number in 0..50_000 {
        let at = number * 10_000;
        scene.calls(&Call {
            device: Some((at + 500, 5_000)),
            took: Some(1000 + number),
            ..Call::copy(at, (0, 1), 1 << 20, DIRECT)
        });
    }
    let bytes = std::fs::read(scene.finish()).unwrap();
    let json_of = |size: u64| {
        let names = ["a".to_owned()];
        let open = |_| Trace::from_bytes(bytes.clone(), Path::new("a"));
        let report = gather_from(
            &names,
            &[size],
            &open,
            &Options { symbols: false, with_arguments: true, suppress: None, filter: None },
        );
        let mut json = Vec::new();
        json::write(&report, &mut json).unwrap();
        let pair = &report.pairs[0];
        let path = &pair.paths[0];
        assert_eq!((pair.calls, path.device_calls, path.device_ns), (50_000, 50_000, 250_000_000), "each once");
        json
    };
    assert_eq!(json_of(0), json_of(u64::MAX));
}

/// Memory that a rank of a random job shares: its rank, GPU, how, handle and bytes.
type Export = (usize, usize, &'static str, String, u64);

/// A random job on three GPUs: which of them each rank sees, in which order.
fn visible(random: &mut Random) -> Vec<usize> {
    let mut gpus = vec![0, 1, 2];
    gpus.rotate_left(random.below(3));
    if random.below(2) == 0 {
        gpus.swap(0, 1);
    }
    gpus.truncate(1 + random.below(3));
    gpus
}

#[test]
fn report_of_ranks_that_share_memory_at_random_has_what_they_copied() {
    const GPUS: [&str; 3] = ["GPU-a", "GPU-b", "GPU-c"];
    let mut random = Random(46);
    for job in 0..300 {
        let folder = Folder::new("random");
        let ranks: Vec<Vec<usize>> = (0..2 + random.below(3)).map(|_| visible(&mut random)).collect();
        let mut exports: Vec<Export> = Vec::new();
        for number in 0..1 + random.below(6) {
            let rank = random.below(ranks.len());
            let gpu = ranks[rank][random.below(ranks[rank].len())];
            let how = random.one_of(&["ipc", "vmm", "pool"]);
            // A descriptor has no handle, and is known by its bytes.
            let handle = if how == "vmm" { String::new() } else { format!("{job:x}{number:02x}") };
            exports.push((rank, gpu, how, handle, (number as u64 + 1) << 21));
        }
        let (mut pairs, mut rows, mut shares) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for (rank, gpus) in ranks.iter().enumerate() {
            let host = random.one_of(&["one", "two", "three"]);
            let mut scene = Scene::named(&folder.0, &format!("{rank}.p2ptrace"), 50 + rank as u32, host);
            scene.exit = Some(0).filter(|_| random.below(4) > 0);
            scene.gpus(&gpus.iter().map(|&gpu| (GPUS[gpu], "")).collect::<Vec<_>>());
            for (_, gpu, how, handle, bytes) in exports.iter().filter(|it| it.0 == rank) {
                let ordinal = gpus.iter().position(|it| it == gpu).unwrap() as u32;
                scene.note(10, NoteKind::Exported, ordinal, &[how, handle, &bytes.to_string()]);
            }
            // Each place that it can copy from or to: its number, its GPU, and whose it is.
            let mut places: Vec<(u8, usize, usize)> =
                gpus.iter().enumerate().map(|(ordinal, &gpu)| (ordinal as u8, gpu, rank)).collect();
            for (number, (owner, gpu, how, handle, bytes)) in exports.iter().enumerate().filter(|(_, it)| it.0 != rank)
            {
                let number = REMOTE + number as u8;
                scene.note(20, NoteKind::Opened, number.into(), &[how, handle, &bytes.to_string(), "0"]);
                places.push((number, *gpu, *owner));
            }
            for at in 0..1 + random.below(12) as u64 {
                let (src, dst) = (random.one_of(&places), random.one_of(&places));
                let bytes = 1 + random.below(1 << 20) as u64;
                let path = if src.0 == dst.0 { SAME } else { DIRECT };
                scene.calls(&Call {
                    function: MEMCPY_PEER,
                    ..Call::copy(100 + at * 10_000, (src.0, dst.0), bytes, path)
                });
                *pairs.entry((src.1, dst.1)).or_default() += bytes;
                let is_between = src.0 != dst.0 && src.0.max(dst.0) >= REMOTE;
                if is_between {
                    *rows.entry((rank, src.2, dst.2, src.1, dst.1)).or_default() += bytes;
                }
                if src.1 != dst.1 {
                    *shares.entry(rank).or_default() += bytes;
                }
            }
            scene.finish();
        }
        let names: Vec<String> =
            (0..ranks.len()).map(|rank| format!("{}/{rank}.p2ptrace", folder.0.display())).collect();
        let open = |index: usize| Trace::open(Path::new(&names[index]));
        let report = gather_from(
            &names,
            &vec![0; names.len()],
            &open,
            &Options { symbols: false, with_arguments: true, suppress: None, filter: None },
        );
        let gpu = |index: usize| GPUS.iter().position(|&it| report.gpus[index].uuid.as_deref() == Some(it)).unwrap();
        let mut found: BTreeMap<(usize, usize), u64> = BTreeMap::new();
        for pair in report.pairs.iter() {
            *found.entry((gpu(pair.src), gpu(pair.dst))).or_default() += pair.bytes;
        }
        assert_eq!(found, pairs, "job {job}");
        let mut found: BTreeMap<_, u64> = BTreeMap::new();
        for it in &report.between_processes {
            let owners = (it.file, it.src_file.unwrap(), it.dst_file.unwrap());
            *found.entry((owners.0, owners.1, owners.2, gpu(it.src), gpu(it.dst))).or_default() += it.bytes;
        }
        assert_eq!(found, rows, "job {job}");
        let mut found: BTreeMap<usize, u64> = BTreeMap::new();
        report.shares.iter().for_each(|it| *found.entry(it.file).or_default() += it.path.bytes);
        assert_eq!(found, shares, "job {job}");
    }
}
