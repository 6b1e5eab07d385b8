//! The parts together, on traces in memory that are damaged in every way.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use p2pshim_trace::{CHUNK_BYTES, Capture, HEADER_BYTES, NoteKind, Path as Taken, RECORD_BYTES, REMOTE, Trace};

use super::gather::{Options, gather_from};
use super::model::Report;
use super::scene::{Call, DIRECT, ENABLE, Folder, MEMCPY_PEER, OVERLAP, STAGED, Scene};
use super::term::Style;
use super::{calls, csv, json, merge, perfetto, text};

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

/// Makes a report of files in memory, and writes it in a form.
fn report_of(files: &[Vec<u8>], symbols: bool, form: Form) -> (Report, Vec<u8>) {
    let names: Vec<String> = (0..files.len()).map(|index| format!("{index}.p2ptrace")).collect();
    let sizes: Vec<u64> = files.iter().map(|file| file.len() as u64).collect();
    let open = |index: usize| Trace::from_bytes(files[index].clone(), Path::new(&names[index]));
    let report = gather_from(&names, &sizes, &open, &Options { symbols, with_arguments: true, filter: None });
    let sources = || merge::sources(&report, |file| open(file.index)).unwrap();
    let mut out = Vec::new();
    match form {
        Form::Text => text::write(&report, Style { colour: true, width: Some(80) }, &mut out),
        Form::Json => json::write(&report, &mut out),
        Form::Csv => csv::write(&report, &mut out),
        Form::Calls => calls::write(&report, &sources(), &[], u64::MAX, symbols, &mut out),
        Form::Events => perfetto::write(&report, &sources(), &[], symbols, &mut out),
    }
    .unwrap();
    (report, out)
}

/// Numbers that look random, the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit.max(1)
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
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

/// How many damaged files are tried, and a seed: of `make fuzz`, which sets P2PSHIM_FUZZ, of `make soak`, which sets P2PSHIM_SOAK, or else of
/// `make test`.
fn tries() -> (usize, u64) {
    let number = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let (tries, seed) = number("P2PSHIM_SOAK").map_or((1_000, 20_000), |seed| (20_000, seed));
    (number("P2PSHIM_FUZZ").map_or(tries, |tries| tries as usize), seed)
}

/// Whether each figure of a report can be one, by its name.
fn are_plausible(name: &str, value: &Value) -> bool {
    /// GB/s, bytes of some hundred calls, and nanoseconds of ten years.
    const FASTEST: f64 = 100_000.0;
    const MOST: f64 = 1e18;
    const LONGEST: f64 = 3.2e17;
    let is_time_of_day = matches!(name, "started" | "ended" | "from" | "to");
    match value {
        Value::Object(all) => all.iter().all(|(name, value)| are_plausible(name, value)),
        Value::Array(all) => all.iter().all(|value| are_plausible(name, value)),
        Value::Number(number) => {
            let most = match name {
                _ if name.contains("gb_per_s") => FASTEST,
                _ if name.contains("bytes") => MOST,
                "p50" | "p99" | "max" | "total" => LONGEST,
                _ if name.ends_with("_ns") => LONGEST,
                _ => f64::MAX,
            };
            is_time_of_day || number.as_f64().is_some_and(|number| (0.0..=most).contains(&number.abs()))
        }
        _ => true,
    }
}

#[test]
fn report_of_damaged_files_is_made_of_what_is_left() {
    let good = trace_of_all();
    let (whole, _) = report_of(std::slice::from_ref(&good), true, Form::Text);
    assert!(whole.is_whole() && whole.files[0].calls == 41 && whole.unfinished.len() == 1);
    let (tries, seed) = tries();
    let mut random = Random(seed);
    let mut read = 0;
    let mut calls = 0;
    for number in 0..tries {
        let mut files = vec![damage(&mut random, &good)];
        if number % 16 == 0 {
            files.push(damage(&mut random, &good));
            files.push(good.clone());
        }
        let form = FORMS[number % FORMS.len()];
        let (report, out) = report_of(&files, number % 64 == 0, form);
        read += usize::from(report.files[0].process.is_some());
        calls += report.files[0].calls as usize;
        if matches!(form, Form::Calls) {
            let lines = out.iter().filter(|&&byte| byte == b'\n').count();
            // Parts of calls, which damaged files may have, have lines of their own.
            assert!(lines as u64 >= report.functions.iter().map(|function| function.calls).sum::<u64>());
        }
        if matches!(form, Form::Json | Form::Events) && number % 8 == 0 {
            let parsed: Result<Value, _> = serde_json::from_slice(&out);
            let is_sound = parsed.is_ok_and(|parsed| are_plausible("", &parsed));
            assert!(is_sound, "{number}: {}", String::from_utf8_lossy(&out));
        }
    }
    println!("{tries} damaged files: {read} could be read, {calls} calls");
    assert!(read > tries / 2 && calls > 20 * read, "the damage is too great to tell anything: {read}, {calls}");
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
        let report =
            gather_from(&names, &[size], &open, &Options { symbols: false, with_arguments: true, filter: None });
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
            &Options { symbols: false, with_arguments: true, filter: None },
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
