//! Figures of reports: each is true of traces made at random, as a second count of the same calls has it; and none is shown that the trace
//! does not carry.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails so")]

mod scene;

use std::collections::BTreeMap;
use std::process::Command;

use p2pshim_trace::NoteKind;
use scene::{BLOCKED, Call, DIRECT, ENABLE, Folder, MEMCPY_PEER, STAGED, Scene};
use serde_json::Value;

/// Numbers that look random, the same for a seed.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

fn report(folder: &Folder, options: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_p2pshim"));
    let output = command.arg("report").arg(&folder.0).args(options).env_remove("COLUMNS").output().unwrap();
    assert!([Some(0), Some(3)].contains(&output.status.code()), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(folder: &Folder) -> Value {
    serde_json::from_str(&report(folder, &["--json"])).unwrap()
}

/// The second count of the copies of a pair that took a path.
#[derive(Clone, Debug, Default, PartialEq)]
struct Counted {
    calls: u64,
    bytes: u64,
    device_calls: u64,
    device_bytes: u64,
    device_ns: u64,
    host_ns: u64,
    host_max: u64,
}

/// By pair and number of the path.
type Count = BTreeMap<((u8, u8), u8), Counted>;

/// Traces of some processes, and what is in them: copies, and errors of copies by pair.
fn job(folder: &Folder, dice: &mut Dice) -> (Count, BTreeMap<(u8, u8), u64>, u64) {
    let (mut count, mut errors, mut calls) = (Count::new(), BTreeMap::new(), 0);
    for process in 0..1 + dice.below(3) {
        let mut scene = Scene::named(&folder.0, &format!("{process}.p2ptrace"), 10 + process as u32, "node");
        scene.gpus(&[("GPU-a", ""), ("GPU-b", ""), ("GPU-c", "")]);
        let mut at = dice.below(1_000_000);
        for _ in 0..dice.below(200) {
            at += 2_000 + dice.below(1_000_000);
            calls += 1;
            if dice.below(20) == 0 {
                scene.call(&Call { function: ENABLE, pair: None, path: 0, ..Call::copy(at, (0, 1), 0, 0) });
                continue;
            }
            let src = dice.below(3) as u8;
            let pair = (src, (src + 1 + dice.below(2) as u8) % 3);
            let path = [DIRECT, STAGED, BLOCKED][dice.below(3) as usize];
            let bytes = 1 << dice.below(31);
            let took = 500 + dice.below(20_000);
            let is_timed = dice.below(2) == 0;
            let nanos = 1_000 + bytes / 100;
            let result = if dice.below(10) == 0 { 1 } else { 0 };
            let device = (is_timed && result == 0).then_some((at + 100, nanos));
            let function = if dice.below(2) == 0 { MEMCPY_PEER } else { scene::MEMCPY_PEER_ASYNC };
            scene.call(&Call { function, took: Some(took), result, device, ..Call::copy(at, pair, bytes, path) });
            if result != 0 {
                *errors.entry(pair).or_default() += 1;
                continue;
            }
            let of_path = count.entry((pair, path)).or_default();
            of_path.calls += 1;
            of_path.bytes += bytes;
            of_path.host_ns += took;
            of_path.host_max = of_path.host_max.max(took);
            if is_timed {
                of_path.device_calls += 1;
                of_path.device_bytes += bytes;
                of_path.device_ns += nanos;
            }
        }
        scene.finish();
    }
    (count, errors, calls)
}

/// Bytes as the text has them, in three digits before the point.
fn in_words(bytes: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let place = (0..units.len()).rfind(|&place| bytes as f64 >= 1000f64.powi(place as i32) * 0.99995).unwrap_or(0);
    match place {
        0 => format!("{bytes} B"),
        _ => format!("{:.1} {}", bytes as f64 / 1000f64.powi(place as i32), units[place]),
    }
}

/// `P2PSHIM_FIGURES_SEED` makes one job again.
fn seeds() -> Vec<u64> {
    let given = std::env::var("P2PSHIM_FIGURES_SEED").ok();
    given.map_or_else(|| (1..=60).collect(), |seed| vec![seed.parse().unwrap()])
}

#[test]
fn figures_of_random_traces_are_those_of_a_second_count() {
    for seed in seeds() {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let folder = Folder::new("random");
        let (count, errors, calls) = job(&folder, &mut dice);
        if calls == 0 {
            continue;
        }
        let (json, csv, text) = (json(&folder), report(&folder, &["--csv"]), report(&folder, &[]));
        let label = |gpu: u8| format!("GPU {gpu}");
        let index = |gpu: u8| {
            json["gpus"].as_array().unwrap().iter().position(|it| it["label"] == label(gpu).as_str()).unwrap()
        };
        let mut of_csv = Count::new();
        let mut reader = csv.lines();
        let names: Vec<&str> = reader.next().unwrap().split(',').collect();
        for line in reader {
            let cells: BTreeMap<&str, &str> = names.iter().copied().zip(line.split(',')).collect();
            let gpu = |name: &str| cells[name].strip_prefix("GPU ").unwrap().parse().unwrap();
            let number = |name: &str| cells[name].parse().unwrap_or(0);
            let path = match (cells["path"], cells["why"]) {
                ("direct", _) => DIRECT,
                ("staged", "access not enabled") => STAGED,
                ("staged", _) => BLOCKED,
                _ => continue,
            };
            let counted = Counted {
                calls: number("calls"),
                bytes: number("bytes"),
                device_calls: number("device_calls"),
                device_bytes: number("device_bytes"),
                device_ns: number("device_ns"),
                host_ns: number("host_total_ns"),
                host_max: number("host_max_ns"),
            };
            assert_eq!(of_csv.insert(((gpu("src"), gpu("dst")), path), counted), None, "seed {seed}: a row of its own");
        }
        assert_eq!(of_csv, count, "seed {seed}");
        for pair in json["pairs"].as_array().unwrap() {
            let ends = (0..3).flat_map(|src| (0..3).map(move |dst| (src, dst)));
            let mut ends = ends.filter(|&(src, dst)| pair["src"] == index(src) && pair["dst"] == index(dst));
            let ends = ends.next().unwrap();
            let own: Vec<&Counted> = count.iter().filter(|((pair, _), _)| *pair == ends).map(|(_, it)| it).collect();
            let sum = |what: fn(&Counted) -> u64| own.iter().map(|it| what(it)).sum::<u64>();
            let failed = errors.get(&ends).copied().unwrap_or(0);
            let expected = [sum(|it| it.calls) + failed, sum(|it| it.bytes), failed];
            let found = ["calls", "bytes", "errors"].map(|name| pair[name].as_u64().unwrap());
            assert_eq!(found, expected, "seed {seed}, {ends:?}");
            for path in pair["paths"].as_array().unwrap() {
                let [timed, of] = ["device_calls", "calls"].map(|name| path[name].as_u64().unwrap());
                let Some(rate) = path["gb_per_s"].as_f64() else {
                    assert!(timed < of, "seed {seed}: all were timed, and no rate is shown: {path}");
                    continue;
                };
                if timed == of {
                    let exact = path["device_bytes"].as_f64().unwrap() / path["device_ns"].as_f64().unwrap();
                    assert!((rate / exact - 1.0).abs() < 1e-9 && path["gb_per_s_off"] == 0.0, "seed {seed}: {path}");
                }
                // All are made at the same pace but for a microsecond.
                assert!(rate <= 100.0, "seed {seed}: {path}");
            }
        }
        for counted in count.values() {
            let words = in_words(counted.bytes);
            assert!(text.contains(&format!(" {words} ")), "seed {seed}: no {words}: {text}");
        }
        let direct: u64 = count.iter().filter(|((_, path), _)| *path == DIRECT).map(|(_, it)| it.bytes).sum();
        let risky = count.keys().any(|(_, path)| *path == BLOCKED);
        if direct > 0 && !risky {
            assert!(text.contains(&in_words(direct)), "seed {seed}: {text}");
        }
    }
}

#[test]
fn rate_of_samples_stands_for_all_copies_and_says_how_far_it_may_be_off() {
    let folder = Folder::new("rate");
    let mut scene = Scene::named(&folder.0, "app.p2ptrace", 1, "node");
    scene.gpus(&[("GPU-a", ""), ("GPU-b", "")]);
    // The first hundred are all timed, and slow; of the other 9,900, which are ten times as fast, one of a hundred.
    for number in 0..10_000u64 {
        let pace = if number < 100 { 4.0 } else { 40.0 + (number / 100 % 5) as f64 };
        let is_timed = number < 100 || number % 100 == 99;
        let device = is_timed.then_some((number * 10_000 + 50, (1_000_000.0 / pace) as u64));
        scene.call(&Call { device, ..Call::copy(number * 10_000, (0, 1), 1_000_000, DIRECT) });
    }
    scene.finish();
    let path = &json(&folder)["pairs"][0]["paths"][0];
    let (rate, off) = (path["gb_per_s"].as_f64().unwrap(), path["gb_per_s_off"].as_f64().unwrap());
    let truth = 10_000.0
        / (100.0 / 4.0 + (0..9_900).map(|number| 1.0 / (40.0 + f64::from((number + 100) / 100 % 5))).sum::<f64>());
    assert!((rate - truth).abs() <= off, "{rate} ±{off}, in truth {truth}");
    assert!((rate - truth).abs() < 1.0 && off < truth / 2.0, "{rate} ±{off}, in truth {truth}");
    let text = report(&folder, &[]);
    assert!(text.contains(&format!("  ~{rate:.1} ±{off:.1}  199 of 10 000  ")), "{text}");
}

#[test]
fn spread_of_few_samples_is_wide_and_of_those_that_are_alike_not_known() {
    // Of ten copies the first few are timed: each takes so many nanoseconds.
    let rate = |nanos: &[u64]| {
        let folder = Folder::new("spread");
        let mut scene = Scene::named(&folder.0, "app.p2ptrace", 1, "node");
        scene.gpus(&[("GPU-a", ""), ("GPU-b", "")]);
        for number in 0..10u64 {
            let device = nanos.get(number as usize).map(|&nanos| (number * 100_000 + 50, nanos));
            scene.call(&Call { device, ..Call::copy(number * 100_000, (0, 1), 1_000_000, DIRECT) });
        }
        scene.finish();
        let path = json(&folder)["pairs"][0]["paths"][0].take();
        let text = report(&folder, &[]);
        (path["gb_per_s_off"].as_f64(), text.lines().find(|line| line.contains(" direct ")).unwrap().to_owned())
    };
    let (off, line) = rate(&[10_000, 10_000]);
    assert!(off.is_none() && line.contains("  ~100.0  2 of 10  "), "{line}");
    // One difference tells little, and several tell more.
    let offs = [&[10_000, 10_100][..], &[10_000, 10_100, 10_000], &[10_000, 10_100, 10_000, 10_100, 10_000]];
    let offs = offs.map(|nanos| rate(nanos).0.unwrap());
    assert!(offs[0] > 2.5 * offs[1] && offs[1] > 1.5 * offs[2] && offs[2] > 0.5, "{offs:?}");
    let (_, line) = rate(&[10_000, 10_001, 10_000, 10_001, 10_000, 10_001, 10_000, 10_001, 10_000]);
    assert!(line.contains("  ~100.0 ±0.1  9 of 10  "), "{line}");
    let (off, line) = rate(&[10_000; 10]);
    assert!(off == Some(0.0) && line.contains("  100.0  "), "{line}");
}

#[test]
fn rate_that_few_samples_do_not_carry_is_not_shown() {
    let folder = Folder::new("few");
    let mut scene = Scene::named(&folder.0, "app.p2ptrace", 1, "node");
    scene.gpus(&[("GPU-a", ""), ("GPU-b", "")]);
    for number in 0..1_000u64 {
        let nanos = if number == 10 { 1_000_000 } else { 10_000 };
        let device = (number == 10 || number == 20).then_some((number * 10_000 + 50, nanos));
        scene.call(&Call { device, ..Call::copy(number * 10_000, (0, 1), 1_000_000, DIRECT) });
    }
    // Of another size, which has most of the bytes, none was timed.
    for number in 0..10u64 {
        let device = Some((20_000_000 + number * 10_000 + 50, 10_000));
        scene.call(&Call { device, ..Call::copy(20_000_000 + number * 10_000, (1, 0), 1_000, DIRECT) });
        scene.call(&Call::copy(30_000_000 + number * 10_000, (1, 0), 1_000_000_000, DIRECT));
    }
    scene.finish();
    let json = json(&folder);
    for pair in json["pairs"].as_array().unwrap() {
        assert!(pair["gb_per_s"].is_null() && pair["paths"][0]["gb_per_s"].is_null(), "{pair}");
    }
    assert!(report(&folder, &[]).contains("`--gpu-timing all` times all but those that are synchronous"));
}

#[test]
fn damaged_records_are_left_out_and_counted() {
    let folder = Folder::new("damaged");
    let mut scene = Scene::named(&folder.0, "app.p2ptrace", 1, "node");
    scene.gpus(&[("GPU-a", ""), ("GPU-b", "")]);
    let good = Call::copy(1_000, (0, 1), 1_000_000, DIRECT);
    scene.call(&good);
    for (number, damaged) in [
        Call { bytes: 1 << 60, ..good.clone() },
        Call { pair: Some((0, 38)), ..good.clone() },
        Call { pair: Some((77, 1)), ..good.clone() },
        Call { function: 99, ..good.clone() },
        Call { device: Some((2_000, 1)), bytes: 1 << 40, ..good.clone() },
    ]
    .into_iter()
    .enumerate()
    {
        scene.call(&Call { at: 10_000 * (number as u64 + 1), ..damaged });
    }
    // A program may ask for anything.
    scene.call(&Call { at: 100_000, bytes: u64::MAX, result: 1, ..good.clone() });
    scene.finish();
    let (text, json) = (report(&folder, &[]), json(&folder));
    assert!(text.contains("5 records are damaged and left out: no call can have such values"), "{text}");
    assert!(
        text.contains("at least 1.0 MB of submitted copies") || text.contains("At least 1.0 MB of submitted copies"),
        "{text}"
    );
    assert_eq!((&json["pairs"][0]["bytes"], json["pairs"].as_array().unwrap().len()), (&1_000_000.into(), 1));
    for wrong in ["EB", "device 38", "GPU 38", "unknown device"] {
        assert!(!text.contains(wrong), "{wrong}: {text}");
    }
    assert_eq!(report(&folder, &["--calls"]).matches("cudaMemcpyPeerAsync").count(), 2);
}

#[test]
fn path_that_was_slower_in_one_run_is_no_advice_for_another() {
    let folder = Folder::new("runs");
    let run = |name: &str, process: u32, verified: &str, path: u8| {
        let mut scene = Scene::named(&folder.0, name, process, "node");
        scene.note(0, NoteKind::Variable, 0, &["PMIX_NAMESPACE", name]);
        scene.gpus(&[("GPU-a", ""), ("GPU-b", "")]);
        scene.note(500, NoteKind::Decision, 1, &["verified", &format!("verified={verified}")]);
        scene.call(&Call::copy(1_000, (0, 1), 1_000_000, path));
        scene.finish();
    };
    run("a.p2ptrace", 1, "slower", STAGED);
    run("b.p2ptrace", 2, "right", DIRECT);
    let text = report(&folder, &[]);
    assert!(text.starts_with("2 runs, added together") && !text.contains("slower one way at least"), "{text}");
    run("c.p2ptrace", 3, "slower", DIRECT);
    assert!(report(&folder, &[]).contains("slower one way at least"), "it was in the third");
}

#[test]
fn report_files_are_private_and_name_no_arguments_unless_asked() {
    use std::os::unix::fs::MetadataExt;
    let folder = Folder::new("private");
    let mut scene = Scene::named(&folder.0, "app.p2ptrace", 1, "node");
    scene.call(&Call::copy(1_000, (0, 1), 1_000, DIRECT));
    scene.finish();
    let forms = ["text", "json", "csv", "html", "perfetto", "calls"];
    let options = forms.iter().flat_map(|form| [vec!["--format", form], vec!["--format", form, "--with-arguments"]]);
    for (number, options) in options.enumerate() {
        let name = format!("{number}.out");
        let file = folder.0.join(&name);
        report(&folder, &[&["-o", file.to_str().unwrap()], &options[..]].concat());
        let text = std::fs::read_to_string(&file).unwrap();
        let is_shown = options.len() == 3 && ["text", "json", "html"].contains(&options[1]);
        assert_eq!(text.contains("--steps"), is_shown, "{options:?}");
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600, "{options:?}");
    }
}

#[test]
fn counts_of_a_trace_that_lacks_records_are_at_least_for_findings_and_errors_too() {
    let folder = Folder::new("least");
    let mut scene = Scene::named(&folder.0, "app.p2ptrace", 1, "node");
    scene.gpus(&[("GPU-a", ""), ("GPU-b", "")]);
    let copy = Call::copy(1_000, (0, 1), 1_000_000, DIRECT);
    scene.call(&Call { rules: vec![scene::OVERLAP], ..copy.clone() });
    scene.call(&Call { at: 2_000, result: 1, ..copy.clone() });
    scene.call(&Call { at: 3_000, result: 1, ..copy.clone() });
    let trace = scene.finish();
    let text = report(&folder, &[]);
    assert!(
        text.contains("P2P-copy-overlap in 1 call.") && text.contains("\n2 calls of cudaMemcpyPeerAsync"),
        "{text}"
    );
    let mut bytes = std::fs::read(&trace).unwrap();
    // Calls that found no room.
    bytes[40] = 7;
    std::fs::write(&trace, bytes).unwrap();
    let text = report(&folder, &[]);
    for part in [
        "P2P-copy-overlap in at least 1 call.",
        "hazard P2P-copy-overlap, found in at least 1 call\n",
        "\nAt least 2 calls of cudaMemcpyPeerAsync failed with cudaErrorInvalidValue.",
        "cudaMemcpyPeerAsync = cudaErrorInvalidValue (1), at least 2 calls\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn damaged_call_that_never_returned_and_damaged_notes_name_no_impossible_figure() {
    let folder = Folder::new("hanging");
    let mut scene = Scene::named(&folder.0, "app.p2ptrace", 1, "node");
    scene.gpus(&[("GPU-a", ""), ("GPU-b", "")]);
    scene.call(&Call::copy(1_000, (0, 1), 1_000_000, DIRECT));
    scene.note(2_000, NoteKind::Decision, 38 << 8 | 1, &["verified", "verified=right"]);
    scene.note(2_000, NoteKind::Decision, 1, &["verified: fine", "verified=right"]);
    scene.note(2_000, NoteKind::Exported, 38, &["ipc", "5eed", "1000"]);
    scene.note(1_500_000_000_000_000_000, NoteKind::Message, 0, &["47 years later"]);
    scene.call(&Call { bytes: u64::MAX - 5, took: None, pair: Some((38, 1)), ..Call::copy(3_000, (0, 1), 0, DIRECT) });
    scene.exit = None;
    scene.finish();
    let (text, json) = (report(&folder, &[]), report(&folder, &["--json"]));
    for wrong in ["EB", "device 38", "GPU 38", "18446744073709551610"] {
        assert!(!text.contains(wrong) && !json.contains(wrong), "{wrong}: {text}");
    }
    assert!(text.contains("1 decision left out as damaged") && text.contains("verified: fine"), "{text}");
    let json = serde_json::from_str::<Value>(&json).unwrap();
    let [started, ended] = ["started", "ended"].map(|name| json["files"][0][name].as_u64().unwrap());
    assert!(json["gpus"].as_array().unwrap().len() == 2 && ended - started < 1_000_000, "{started} to {ended}");
}

#[test]
fn broken_path_is_said_to_be_unused_only_if_each_copy_is_known() {
    let said = |extra: &dyn Fn(&mut Scene)| {
        let folder = Folder::new("unused");
        let mut scene = Scene::named(&folder.0, "app.p2ptrace", 1, "node");
        scene.gpus(&[("GPU-a", ""), ("GPU-b", ""), ("GPU-c", "")]);
        scene.note(500, NoteKind::Decision, 1, &["blocked", "verified=avoided"]);
        scene.call(&Call::copy(1_000, (1, 2), 1_000_000, DIRECT));
        extra(&mut scene);
        scene.finish();
        report(&folder, &[])
    };
    assert!(said(&|_| ()).contains("failed verification; no copy of the program used it."));
    let unknown = said(&|scene| scene.call(&Call { path: 0, ..Call::copy(2_000, (0, 1), 1_000, 0) }));
    assert!(
        unknown.contains("no copy is known to have used it") && !unknown.contains("of the program used"),
        "{unknown}"
    );
    let hangs = said(&|scene| scene.call(&Call { took: None, ..Call::copy(2_000, (0, 1), 1_000, DIRECT) }));
    assert!(!hangs.contains("of the program used"), "{hangs}");
    let used = said(&|scene| scene.call(&Call::copy(2_000, (0, 1), 1_000, DIRECT)));
    assert!(used.contains("Data may be WRONG") && !used.contains("used it"), "{used}");
}

/// A run of its own: what was decided about the pair, then its copies.
fn run_of(folder: &Folder, name: &str, process: u32, verified: Option<&str>, copies: &[Call]) {
    let mut scene = Scene::named(&folder.0, &format!("{name}.p2ptrace"), process, "node");
    scene.note(0, NoteKind::Variable, 0, &["PMIX_NAMESPACE", name]);
    scene.gpus(&[("GPU-a", ""), ("GPU-b", "")]);
    if let Some(verified) = verified {
        scene.note(500, NoteKind::Decision, 1, &["verified", &format!("verified={verified}")]);
    }
    copies.iter().for_each(|copy| scene.call(copy));
    scene.finish();
}

#[test]
fn each_run_is_judged_by_itself_and_never_by_what_another_found() {
    const START_UP: u8 = p2pshim_trace::Path::Staged(p2pshim_trace::Why::NotYetWorth).number();
    let copy = |path: u8| Call { function: MEMCPY_PEER, ..Call::copy(1_000, (0, 1), 1_000_000_000, path) };
    let timed = |path: u8, nanos: u64| Call { device: Some((1_100, nanos)), ..copy(path) };
    let folder = Folder::new("verified-in-one");
    run_of(&folder, "a", 1, Some("right"), &[copy(DIRECT)]);
    run_of(&folder, "b", 2, None, &[copy(DIRECT)]);
    let text = report(&folder, &[]);
    assert!(text.contains("Peer access between GPU 0 and GPU 1 was not verified in 1 of 2 runs."), "{text}");

    let folder = Folder::new("switched-in-one");
    run_of(&folder, "a", 1, Some("right"), &[Call { bytes: 4096, ..copy(START_UP) }]);
    run_of(&folder, "b", 2, Some("right"), &[copy(DIRECT)]);
    assert!(!report(&folder, &[]).contains("switched"), "no run switched: {}", report(&folder, &[]));
    let folder = Folder::new("switched");
    run_of(&folder, "a", 1, Some("right"), &[Call { bytes: 4096, ..copy(START_UP) }, copy(DIRECT)]);
    run_of(&folder, "b", 2, Some("right"), &[copy(DIRECT)]);
    assert!(report(&folder, &[]).contains("before p2pshim switched the pair over"), "{}", report(&folder, &[]));

    // Staged in one run, direct in the other: neither run tells what its own staging cost.
    let folder = Folder::new("staged-in-one");
    run_of(&folder, "a", 1, None, &[timed(STAGED, 25_000_000)]);
    run_of(&folder, "b", 2, Some("right"), &[timed(DIRECT, 2_500_000)]);
    let text = report(&folder, &[]);
    let first = "1.0 GB of copies were direct; 1.0 GB were staged in 1 of 2 runs though CUDA offers a direct path.";
    assert!(text.contains(first) && !text.contains("longer;") && !text.contains("about 22.5 ms"), "{text}");
    assert!(text.contains(" was not verified in 1 of 2 runs; `--access auto` does that first."), "{text}");
    let folder = Folder::new("staged-beside");
    run_of(&folder, "a", 1, None, &[timed(STAGED, 25_000_000), timed(DIRECT, 2_500_000)]);
    run_of(&folder, "b", 2, Some("right"), &[timed(DIRECT, 12_500_000)]);
    assert!(report(&folder, &[]).contains("that took about 22.5 ms longer"), "{}", report(&folder, &[]));
}

#[test]
fn bytes_over_the_time_in_which_a_pair_was_busy_count_each_moment_once() {
    let of = |calls: &[Call]| {
        let folder = Folder::new("busy");
        let mut scene = Scene::named(&folder.0, "app.p2ptrace", 1, "node");
        scene.gpus(&[("GPU-a", ""), ("GPU-b", "")]);
        calls.iter().for_each(|call| scene.call(call));
        scene.finish();
        (json(&folder)["pairs"][0].clone(), report(&folder, &[]))
    };
    // Two beside each other, on two streams, and one much later: 3 MB in 15 us + 10 us.
    let copy =
        |at: u64, device: u64| Call { device: Some((device, 10_000)), ..Call::copy(at, (0, 1), 1_000_000, DIRECT) };
    let all = [copy(1_000, 10_000), Call { stream: 0x6600, ..copy(2_000, 15_000) }, copy(3_000, 900_000)];
    let (pair, text) = of(&all);
    assert_eq!(
        (&pair["busy_ns"], &pair["gb_per_s_busy"], &pair["gb_per_s"]),
        (&25_000.into(), &120.0.into(), &100.0.into())
    );
    assert!(text.contains("GB/s  busy GB/s") && text.contains("  100.0      120.0  "), "{text}");
    let (pair, text) = of(&[&all[..2], &[Call { device: None, ..copy(3_000, 0) }]].concat());
    assert!(pair["busy_ns"].is_null() && pair["gb_per_s_busy"].is_null() && !text.contains("busy"), "{pair} {text}");
}

/// A copy as the model has it.
#[derive(Clone)]
struct Made {
    process: u64,
    pair: (u8, u8),
    path: u8,
    function: u8,
    bytes: u64,
    /// On the host: how long, and whether it failed.
    took: u64,
    failed: bool,
    /// On the GPU: from when on, and how long.
    device: Option<(u64, u64)>,
    rule: Option<u8>,
}

/// Traces of several processes, some of whose copies are timed, and the copies in the order in which they were made.
fn copies_of(folder: &Folder, dice: &mut Dice) -> Vec<Made> {
    let mut all = Vec::new();
    // In some jobs everything is timed, in some a part, in some nothing.
    let timed_in = [1, 2, 5, u64::MAX][dice.below(4) as usize];
    for process in 0..1 + dice.below(3) {
        let mut scene = Scene::named(&folder.0, &format!("{process}.p2ptrace"), 10 + process as u32, "node");
        scene.gpus(&[("GPU-a", ""), ("GPU-b", ""), ("GPU-c", "")]);
        let mut at = dice.below(1_000_000);
        for _ in 0..1 + dice.below(150) {
            at += 2_000 + dice.below(300_000);
            let src = dice.below(3) as u8;
            let most = 1 << (1 + dice.below(32));
            let bytes = 1 + dice.below(most);
            let failed = dice.below(12) == 0;
            let is_timed = !failed && timed_in < u64::MAX && dice.below(timed_in) == 0;
            let made = Made {
                process,
                pair: (src, (src + 1 + dice.below(2) as u8) % 3),
                path: [DIRECT, STAGED][dice.below(2) as usize],
                function: [MEMCPY_PEER, scene::MEMCPY_PEER_ASYNC][dice.below(2) as usize],
                bytes,
                took: 500 + dice.below(20_000),
                failed,
                device: is_timed.then(|| (at + dice.below(200_000), 1 + bytes / 400 + dice.below(500_000))),
                rule: (dice.below(6) == 0).then_some([scene::OVERLAP, scene::NEVER_ENABLED][dice.below(2) as usize]),
            };
            let Made { pair, path, function, took, device, .. } = made.clone();
            let (result, rules) = (i32::from(failed), made.rule.into_iter().collect());
            scene.call(&Call {
                function,
                took: Some(took),
                result,
                device,
                rules,
                ..Call::copy(at, pair, bytes, path)
            });
            all.push(made);
        }
        scene.finish();
    }
    all
}

/// The rate of copies, if each that was timed stands for those of its size and process since the one before, the last for those after it too,
/// and the mean of all of a size for processes that timed none. And which share of the bytes has a size of which some were timed.
fn rate_of(copies: &[&Made]) -> Option<(f64, f64)> {
    let mut sizes: BTreeMap<u32, BTreeMap<u64, Vec<&Made>>> = BTreeMap::new();
    for copy in copies {
        sizes.entry(copy.bytes.ilog2()).or_default().entry(copy.process).or_default().push(copy);
    }
    let (mut known, mut nanos, mut all) = (0.0, 0.0, 0.0);
    for processes in sizes.values() {
        let pace = |copy: &Made| copy.device.map(|(_, nanos)| nanos as f64 / copy.bytes as f64);
        let paces: Vec<f64> = processes.values().flatten().filter_map(|copy| pace(copy)).collect();
        let bytes: f64 = processes.values().flatten().map(|copy| copy.bytes as f64).sum();
        all += bytes;
        if paces.is_empty() {
            continue;
        }
        known += bytes;
        for copies in processes.values() {
            for (index, copy) in copies.iter().enumerate() {
                let next = copies[index..].iter().find_map(|copy| pace(copy));
                let last = copies[..index].iter().rev().find_map(|copy| pace(copy));
                let mean = paces.iter().sum::<f64>() / paces.len() as f64;
                nanos += copy.bytes as f64 * next.or(last).unwrap_or(mean);
            }
        }
    }
    (nanos > 0.0).then(|| (known / nanos, known / all))
}

/// The time in which at least one of some copies was under way: each moment between two bounds is looked at.
fn busy(copies: &[&Made]) -> u64 {
    let spans: Vec<(u64, u64)> =
        copies.iter().filter_map(|copy| copy.device).map(|(from, nanos)| (from, from + nanos)).collect();
    let mut bounds: Vec<u64> = spans.iter().flat_map(|&(from, to)| [from, to]).collect();
    bounds.sort_unstable();
    let is_busy = |from: u64, to: u64| spans.iter().any(|&(begin, end)| begin <= from && to <= end);
    bounds.windows(2).filter(|it| is_busy(it[0], it[1])).map(|it| it[1] - it[0]).sum()
}

#[test]
fn each_figure_of_random_traces_is_that_of_a_model() {
    let (mut shown, mut hidden, mut whole) = (0, 0, 0);
    for seed in seeds() {
        let mut dice = Dice(seed.wrapping_mul(0xd134_2543_de82_ef95) | 1);
        let folder = Folder::new("model");
        let all = copies_of(&folder, &mut dice);
        let (json, text) = (json(&folder), report(&folder, &[]));
        let words: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let label = |gpu: &Value| json["gpus"][gpu.as_u64().unwrap() as usize]["label"].as_str().unwrap();
        let number = |gpu: &Value| label(gpu).strip_prefix("GPU ").unwrap().parse::<u8>().unwrap();
        let what = |name: &str, of: &Value| format!("seed {seed}, {name}: {of}");

        for pair in json["pairs"].as_array().unwrap() {
            let ends = (number(&pair["src"]), number(&pair["dst"]));
            let of_pair: Vec<&Made> = all.iter().filter(|it| it.pair == ends && !it.failed).collect();
            let is_whole = !of_pair.is_empty() && of_pair.iter().all(|it| it.device.is_some());
            let expected = if is_whole { Value::from(busy(&of_pair)) } else { Value::Null };
            assert_eq!(pair["busy_ns"], expected, "{}", what("busy", pair));
            whole += usize::from(is_whole);
            let took: u64 = all.iter().filter(|it| it.pair == ends).map(|it| it.took).sum();
            assert_eq!(pair["host_ns"]["total"], took, "{}", what("host time, of failed copies too", pair));
            for path in pair["paths"].as_array().unwrap() {
                let taken = if path["path"] == "direct" { DIRECT } else { STAGED };
                let copies: Vec<&Made> = of_pair.iter().filter(|it| it.path == taken).copied().collect();
                let timed = copies.iter().filter(|it| it.device.is_some()).count();
                let (bytes, count) = (copies.iter().map(|it| it.bytes).sum::<u64>(), copies.len());
                let facts = (&path["calls"], &path["bytes"], &path["device_calls"]);
                assert_eq!(facts, (&count.into(), &bytes.into(), &timed.into()), "{}", what("path", path));
                let title = if taken == DIRECT { "direct" } else { "staged: access not enabled" };
                let rate = match (path["gb_per_s"].as_f64(), rate_of(&copies)) {
                    (Some(rate), Some((expected, share))) => {
                        assert!(
                            (rate / expected - 1.0).abs() < 1e-9 && share >= 0.9,
                            "{}: {expected}",
                            what("rate", path)
                        );
                        shown += 1;
                        let (digits, least) = if rate < 0.1 { (4, 0.0001) } else { (1, 0.1f64) };
                        let off = path["gb_per_s_off"].as_f64();
                        let is_meant =
                            off.map_or(timed < count, |off| off <= rate / 2.0 && (timed < count) == (off > 0.0));
                        assert!(is_meant, "{}", what("spread", path));
                        match off {
                            Some(off) if timed < count => format!("~{rate:.digits$} ±{:.digits$}", off.max(least)),
                            None => format!("~{rate:.digits$}"),
                            Some(_) => format!("{rate:.digits$}"),
                        }
                    }
                    (None, expected) => {
                        assert!(timed < count, "{}: {expected:?}", what("all were timed", path));
                        hidden += 1;
                        "-".to_owned()
                    }
                    (Some(_), None) => panic!("{}", what("a rate of nothing", path)),
                };
                let row = format!(" {count} {} {title} {rate} ", in_words(bytes));
                assert!(words.contains(&row), "seed {seed}: no row `{row}`: {text}");
            }
            for size in pair["sizes"].as_array().unwrap() {
                let taken = if size["path"] == "direct" { DIRECT } else { STAGED };
                let from = size["from"].as_u64().unwrap().max(1).ilog2();
                let own = of_pair.iter().filter(|it| it.path == taken && it.bytes.ilog2() == from);
                let (calls, bytes) = own.fold((0u64, 0), |(calls, bytes), it| (calls + 1, bytes + it.bytes));
                assert_eq!((&size["calls"], &size["bytes"]), (&calls.into(), &bytes.into()), "{}", what("size", size));
            }
            let of_sizes: u64 = pair["sizes"].as_array().unwrap().iter().map(|it| it["calls"].as_u64().unwrap()).sum();
            assert_eq!(of_sizes as usize, of_pair.len(), "{}", what("sizes are all", pair));
        }
        for (function, name) in [(MEMCPY_PEER, "cudaMemcpyPeer"), (scene::MEMCPY_PEER_ASYNC, "cudaMemcpyPeerAsync")] {
            let own: Vec<&Made> = all.iter().filter(|it| it.function == function).collect();
            let failed = own.iter().filter(|it| it.failed).count();
            let Some(row) = json["functions"].as_array().unwrap().iter().find(|it| it["name"] == name) else {
                assert!(own.is_empty(), "seed {seed}: no {name}");
                continue;
            };
            let host = (&row["host_ns"]["total"], &row["host_ns"]["max"]);
            let sum: u64 = own.iter().map(|it| it.took).sum();
            let max = own.iter().map(|it| it.took).max();
            assert_eq!(
                (&row["calls"], &row["errors"]),
                (&own.len().into(), &failed.into()),
                "{}",
                what("function", row)
            );
            assert_eq!(host, (&sum.into(), &max.into()), "{}", what("function", row));
            let errors = if failed == 0 { "-".to_owned() } else { failed.to_string() };
            assert!(words.contains(&format!("{name} runtime {} {errors} ", own.len())), "seed {seed}: {text}");
            let counted: u64 = json["errors"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|it| it["function"] == name)
                .map(|it| it["count"].as_u64().unwrap())
                .sum();
            assert_eq!(counted as usize, failed, "seed {seed}: errors of {name}");
        }
        for (rule, name) in [(scene::OVERLAP, "P2P-copy-overlap"), (scene::NEVER_ENABLED, "P2P-staged-never-enabled")] {
            let found = all.iter().filter(|it| it.rule == Some(rule)).count();
            let row = json["findings"].as_array().unwrap().iter().find(|it| it["rule"] == name);
            let counted = row.map_or(0, |row| row["count"].as_u64().unwrap());
            assert_eq!(counted as usize, found, "seed {seed}: {name}");
            let least = if rule == scene::NEVER_ENABLED { "at least " } else { "" };
            let calls = if found == 1 { "call" } else { "calls" };
            assert_eq!(
                words.contains(&format!(" {name}, found in {least}{found} {calls}")),
                found > 0,
                "seed {seed}: {text}"
            );
        }
        let done = || all.iter().filter(|it| !it.failed);
        for file in json["files"].as_array().unwrap() {
            let process = file["process"].as_u64().unwrap() - 10;
            let sum = |only_staged: bool| -> u64 {
                let own = done().filter(|it| it.process == process && (it.path == STAGED || !only_staged));
                own.map(|it| it.bytes).sum()
            };
            let facts = (&file["copied_bytes"], &file["staged_bytes"]);
            assert_eq!(facts, (&sum(false).into(), &sum(true).into()), "{}", what("process", &file["process"]));
        }
        let staged: u64 = done().filter(|it| it.path == STAGED).map(|it| it.bytes).sum();
        assert_eq!(json["lost"]["staged_bytes"], staged, "seed {seed}");
        let in_time = |name: &str| -> u64 {
            let pairs = json["timeline"]["pairs"].as_array().unwrap().iter();
            pairs.flat_map(|pair| pair[name].as_array().unwrap()).map(|it| it.as_u64().unwrap()).sum()
        };
        let direct: u64 = done().filter(|it| it.path == DIRECT).map(|it| it.bytes).sum();
        assert_eq!((in_time("direct"), in_time("staged")), (direct, staged), "seed {seed}: the timeline");
    }
    println!("{shown} rates are shown, {hidden} are not, and of {whole} pairs all is timed");
    assert!(seeds().len() < 60 || shown > 50 && hidden > 50 && whole > 20, "{shown} {hidden} {whole}");
}
