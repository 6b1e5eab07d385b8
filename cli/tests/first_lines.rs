//! The report's first words about traces of every kind: `first_lines.txt` has them, with the words of the page.
//! `P2PSHIM_UPDATE=1` writes it anew.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails so")]

#[path = "scene/mod.rs"]
mod scene;

use std::fs;
use std::process::Command;

use p2pshim_trace::{ACCESS_ENABLED, CHUNK_BYTES, HEADER_BYTES, NoteKind, Path, Why};
use scene::opposites;
use scene::{
    BLOCKED, Call, DIRECT, ENABLE, ENABLE_TWICE, Folder, MEMCPY_PEER, NEVER_ENABLED, OVERLAP, STAGED, START, Scene,
};
use serde_json::Value;

const GB: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
/// Numbers of other paths.
const START_UP: u8 = Path::Staged(Why::NotYetWorth).number();
const DENIED: u8 = Path::Staged(Why::Denied).number();
const SAME: u8 = Path::SameDevice.number();
const MAPPED: u8 = Path::MappedOnUse.number();
const LIMIT: u8 = Path::Staged(Why::Limit).number();
const UNVERIFIED: u8 = Path::Staged(Why::Unverified).number();
const VERIFYING: u8 = Path::Staged(Why::Verifying).number();
const NO_PATH: u8 = Path::Staged(Why::NoPath).number();
const BUSY: u8 = Path::Staged(Why::Busy).number();
const CAPTURED: u8 = Path::Captured.number();
const BROKEN_NOT_ENABLED: u8 = Path::Staged(Why::BrokenNotEnabled).number();
const BY_HAND: u8 = Path::ByHand.number();
/// Numbers of other rules.
const ACCESS_LOST: u8 = 9;
const ACCIDENT: u8 = 10;
const NO_ORDER: u8 = 12;

fn two_gpus(folder: &Folder, name: &str, process: u32) -> Scene {
    let mut scene = Scene::named(&folder.0, name, process, "node");
    scene.gpus(&[("GPU-a", "0000:1a:00.0"), ("GPU-b", "0000:3b:00.0")]);
    scene
}

/// Four GPUs, which the program numbers the other way round than the report.
fn four_gpus(folder: &Folder, calls: &[Call]) -> Scene {
    let mut scene = Scene::named(&folder.0, "a.p2ptrace", 7, "node");
    let gpus = ["d", "c", "b", "a"].map(|gpu| (format!("GPU-{gpu}"), format!("0000:{gpu}a:00.0")));
    scene.gpus(&gpus.each_ref().map(|(uuid, pci)| (uuid.as_str(), pci.as_str())));
    calls.iter().for_each(|call| scene.call(call));
    scene
}

fn small(number: u64, path: u8, bytes: u64) -> Call {
    Call { bytes, ..copy(number, path) }
}

fn on(src: u8, dst: u8, call: Call) -> Call {
    Call { pair: Some((src, dst)), ..call }
}

/// Notes the verdict of verification on the first two GPUs.
fn decided(scene: &mut Scene, at: u64, verified: &str) {
    let what = if verified == "right" { "verified: data arrives" } else { "4092 of 4092 bytes were wrong" };
    scene.note(at, NoteKind::Decision, 1, &[what, &format!("verified={verified}")]);
}

/// Notes that p2pshim has verified the first two GPUs, and given them access.
fn enabled(scene: &mut Scene) {
    decided(scene, 0, "right");
    scene.note(0, NoteKind::Decision, 1, &[&format!("{ACCESS_ENABLED} both directions")]);
}

/// A process of which the trace says that it is this one, since then.
fn is_of_here(scene: &mut Scene, program: &str, since: u64) {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap();
    scene.note(0, NoteKind::Host, 0, &["node", boot.trim(), namespace.to_str().unwrap()]);
    scene.note(0, NoteKind::Program, 0, &[program, "app"]);
    scene.origin = since;
    scene.exit = None;
}

fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// Gives a trace another name, as it has where its process has become another program: then it is not mapped any more.
fn no_longer_mapped(path: &std::path::Path) {
    let kept = path.with_extension("kept.p2ptrace");
    fs::copy(path, kept).unwrap();
    fs::remove_file(path).unwrap();
}

fn own_program() -> String {
    std::env::current_exe().unwrap().to_str().unwrap().to_owned()
}

/// One process that makes these calls.
fn one(folder: &Folder, calls: &[Call]) -> Scene {
    let mut scene = two_gpus(folder, "a.p2ptrace", 7);
    calls.iter().for_each(|call| scene.call(call));
    scene
}

/// A copy of another function.
fn copy(number: u64, path: u8) -> Call {
    Call { function: MEMCPY_PEER, ..queued(number, path) }
}

fn queued(number: u64, path: u8) -> Call {
    Call::copy(number * MS, (0, 1), GB, path)
}

fn timed(number: u64, path: u8, took: u64) -> Call {
    Call { device: Some((number * MS, took)), ..queued(number, path) }
}

/// One process that makes these calls, of a pair that was verified.
fn verified(folder: &Folder, calls: &[Call]) -> Scene {
    let mut scene = one(folder, calls);
    decided(&mut scene, 0, "right");
    scene
}

/// Writes the file that `p2pshim run` keeps of a run whose program was process 7.
fn run(folder: &Folder, code: Option<i32>, signal: Option<i32>) {
    run_of(folder, 7, code, signal);
}

fn run_of(folder: &Folder, process: u32, code: Option<i32>, signal: Option<i32>) {
    run_file(folder, process, 900, code, signal);
}

/// Writes the file of a run that took so many milliseconds.
fn run_until(folder: &Folder, end: u64, code: Option<i32>, signal: Option<i32>) {
    run_file(folder, 7, end, code, signal);
}

fn run_file(folder: &Folder, process: u32, end: u64, code: Option<i32>, signal: Option<i32>) {
    let id = format!("node-{process}-1");
    let run = serde_json::json!({
        "version": 1, "id": id, "host": "node", "process": process, "command": ["/opt/app/bin/app", "-n"],
        "start": START - MS, "end": START + end * MS, "code": code, "signal": signal,
    });
    fs::write(folder.0.join(format!("{id}.run.json")), run.to_string()).unwrap();
}

/// So many ranks, each of which does something else.
fn ranks(folder: &Folder, count: u32, job: Option<&str>, mut each: impl FnMut(u32, &mut Scene)) {
    let first = if job == Some("b.2") { 60 } else { 50 };
    for rank in 0..count {
        let name = format!("{}rank-{rank}.p2ptrace", job.unwrap_or_default());
        let mut scene = two_gpus(folder, &name, first + rank);
        scene.note(0, NoteKind::Variable, 0, &["RANK", &rank.to_string()]);
        job.into_iter().for_each(|job| scene.note(0, NoteKind::Variable, 0, &["PMIX_NAMESPACE", job]));
        each(rank, &mut scene);
        scene.finish();
    }
}

/// Two traces with the same number of a process, that were started then, in ticks since boot.
fn same_number(folder: &Folder, starts: [&str; 2]) {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    for (number, start) in starts.into_iter().enumerate() {
        let mut scene = two_gpus(folder, &format!("{number}.p2ptrace"), 7);
        scene.note(0, NoteKind::Host, 0, &["node", boot.trim(), "", start]);
        scene.origin = START + number as u64 * 100 * MS;
        scene.call(&copy(0, DIRECT));
        scene.exit = Some(0).filter(|_| number == 1);
        scene.finish();
    }
}

/// Changes the bytes of the only trace.
fn damage(folder: &Folder, change: impl FnOnce(&mut Vec<u8>)) {
    let path = folder.0.join("a.p2ptrace");
    let mut bytes = fs::read(&path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

/// A rank that sees these GPUs.
fn rank(folder: &Folder, rank: u32, gpus: &[&str]) -> Scene {
    let mut scene = Scene::named(&folder.0, &format!("rank-{rank}.p2ptrace"), 50 + rank, "node");
    scene.note(0, NoteKind::Variable, 0, &["RANK", &rank.to_string()]);
    scene.gpus(&gpus.iter().map(|gpu| (*gpu, "")).collect::<Vec<_>>());
    scene
}

/// Rank 0 shares memory of its device, and rank 1 has opened it by this number, and copies.
fn shared(folder: &Folder, gpus: [&[&str]; 2], device: u32, calls: &[Call]) {
    let mut owner = rank(folder, 0, gpus[0]);
    owner.note(10, NoteKind::Exported, device, &["ipc", "5eed", "1000000000"]);
    owner.finish();
    let mut opener = rank(folder, 1, gpus[1]);
    opener.note(20, NoteKind::Opened, 128, &["ipc", "5eed", "1000000000", "0"]);
    calls.iter().for_each(|call| opener.call(call));
    opener.finish();
}

type Case = (&'static str, fn(&Folder));

const CASES: &[Case] = &[
    ("good", |folder| drop(verified(folder, &[copy(0, DIRECT), copy(1, DIRECT)]).finish())),
    ("good, by p2pshim run", |folder| {
        verified(folder, &[copy(0, DIRECT)]).finish();
        run(folder, Some(0), None);
    }),
    ("good, after the first copies", |folder| {
        let mut scene = one(folder, &[small(0, START_UP, 4096), copy(1, DIRECT)]);
        enabled(&mut scene);
        scene.finish();
    }),
    ("enabled for the program, from its first copy on", |folder| {
        let mut scene = one(folder, &[copy(0, DIRECT), on(1, 0, copy(1, DIRECT))]);
        enabled(&mut scene);
        scene.finish();
    }),
    ("enabled for the program, beside a pair without a path", |folder| {
        let mut scene = Scene::named(&folder.0, "a.p2ptrace", 7, "node");
        scene.gpus(&[("GPU-a", "0000:1a:00.0"), ("GPU-b", "0000:3b:00.0"), ("GPU-c", "0000:5e:00.0")]);
        [small(0, START_UP, 4096), copy(1, DIRECT), on(0, 2, copy(2, NO_PATH))].iter().for_each(|it| scene.call(it));
        enabled(&mut scene);
        scene.finish();
    }),
    ("enabled for the program, which enables another pair itself", |folder| {
        let enables = Call { function: ENABLE, bytes: 0, pair: None, path: 0, ..copy(0, DIRECT) };
        let mut scene = one(folder, &[enables, copy(1, DIRECT)]);
        enabled(&mut scene);
        scene.finish();
    }),
    ("first copies without end", |folder| {
        drop(one(folder, &[0_u64; 20].map(|_| small(0, START_UP, 4096))).finish());
    }),
    ("good, and the last is known to be made", |folder| {
        drop(verified(folder, &[queued(0, DIRECT), timed(1, DIRECT, 5 * MS / 2)]).finish());
    }),
    ("good, and the last that was looked at was made", |folder| {
        drop(verified(folder, &[timed(0, DIRECT, 5 * MS / 2), queued(1, DIRECT)]).finish());
    }),
    ("good, and the last one way is known to be made", |folder| {
        drop(verified(folder, &[on(1, 0, queued(0, DIRECT)), timed(1, DIRECT, 5 * MS / 2)]).finish());
    }),
    ("good, and the last on one of two streams is known to be made", |folder| {
        let other = Call { stream: 0x6600, ..queued(0, DIRECT) };
        drop(verified(folder, &[other, timed(1, DIRECT, 5 * MS / 2)]).finish());
    }),
    ("queued, and the last that was looked at was not made", |folder| {
        let last = Call { is_pending: true, ..queued(1, DIRECT) };
        drop(verified(folder, &[timed(0, DIRECT, 5 * MS / 2), last, queued(2, DIRECT)]).finish());
    }),
    ("queued, and none was looked at", |folder| drop(verified(folder, &[queued(0, DIRECT)]).finish())),
    ("queued behind work that failed", |folder| {
        let failed = Call { result: 719, ..copy(9, DIRECT) };
        drop(verified(folder, &[timed(0, DIRECT, 5 * MS / 2), failed]).finish());
    }),
    ("direct, and nobody has tested whether data arrives", |folder| drop(one(folder, &[copy(0, DIRECT)]).finish())),
    ("two ranks by p2pshim run, and a third that failed before its first call", |folder| {
        ranks(folder, 2, Some("a.1"), |_, scene| scene.call(&copy(0, DIRECT)));
        (50..52).for_each(|process| run_of(folder, process, Some(0), None));
        run_of(folder, 52, Some(1), None);
    }),
    ("a child in a copy that it began after the run", |folder| {
        for (process, at) in [(7, 0), (8, 2_000)] {
            let mut scene = two_gpus(folder, &format!("{process}.p2ptrace"), process);
            scene.note(0, NoteKind::Variable, 0, &["P2PRUN_ID", "node-7-1"]);
            scene.call(&Call { took: Some(1_300).filter(|_| process == 7), ..copy(at, DIRECT) });
            scene.exit = Some(0).filter(|_| process == 7);
            scene.finish();
        }
        run(folder, Some(0), None);
    }),
    ("staged, and slow calls were found", |folder| {
        drop(one(folder, &[Call { rules: vec![NEVER_ENABLED], ..copy(0, STAGED) }]).finish());
    }),
    ("first copies only", |folder| {
        drop(one(folder, &[Call { bytes: 4096, ..copy(0, START_UP) }]).finish());
    }),
    ("first copies only, and then the pair was verified for a graph", |folder| {
        drop(verified(folder, &[Call { bytes: 4096, ..copy(0, START_UP) }]).finish());
    }),
    ("slow", |folder| drop(one(folder, &[copy(0, STAGED), copy(1, STAGED)]).finish())),
    ("slow in part, timed in part", |folder| {
        let calls = [timed(0, STAGED, 25 * MS), copy(30, STAGED), copy(31, STAGED), timed(60, DIRECT, 5 * MS / 2)];
        drop(one(folder, &calls).finish());
    }),
    ("slow, timed in part, and the rest is small", |folder| {
        let small = |number| Call { bytes: 1000, ..copy(number, STAGED) };
        drop(one(folder, &[timed(0, STAGED, 25 * MS), small(30), small(31), timed(60, DIRECT, 5 * MS / 2)]).finish());
    }),
    ("slow, timed in part, and not all can have taken as long", |folder| {
        drop(one(folder, &[timed(0, STAGED, 800 * MS), copy(9, STAGED), timed(60, DIRECT, 5 * MS / 2)]).finish());
        run_until(folder, 900, Some(0), None);
    }),
    ("slow in one of four ranks", |folder| {
        ranks(folder, 4, None, |rank, scene| {
            let path = if rank == 2 { STAGED } else { DIRECT };
            scene.call(&timed(0, path, if rank == 2 { 25 * MS } else { 5 * MS / 2 }));
        });
    }),
    ("broken pair, avoided", |folder| {
        let mut scene = one(folder, &[copy(0, BLOCKED)]);
        scene.note(MS, NoteKind::Decision, 1, &["blocked: 4092 of 4092 bytes were wrong", "verified=avoided"]);
        scene.finish();
    }),
    ("broken pair, between which the program has enabled nothing by itself", |folder| {
        one(folder, &[copy(0, BROKEN_NOT_ENABLED)]).finish();
    }),
    ("broken pairs, one of which is the program's to enable", |folder| {
        let calls = [copy(0, BLOCKED), on(2, 3, copy(1, BROKEN_NOT_ENABLED))];
        four_gpus(folder, &calls).finish();
    }),
    ("broken pair, used in the other direction", |folder| {
        let back = Call { pair: Some((1, 0)), ..copy(1, DIRECT) };
        drop(one(folder, &[copy(0, BLOCKED), back]).finish());
    }),
    ("broken pair, staged before by the program's choice", |folder| {
        let mut scene = one(folder, &[copy(0, STAGED)]);
        scene.note(MS, NoteKind::Decision, 1, &["blocked: 4092 of 4092 bytes were wrong", "verified=avoided"]);
        scene.finish();
    }),
    ("broken pair, in use", |folder| {
        let mut scene = one(folder, &[copy(0, DIRECT)]);
        scene.note(500, NoteKind::Decision, 1, &["4092 of 4092 bytes were wrong", "verified=in use"]);
        scene.finish();
    }),
    ("broken pair, that the program enabled after it was avoided", |folder| {
        drop(one(folder, &[copy(0, BLOCKED), copy(1, DIRECT)]).finish());
    }),
    ("killed long after a copy that had begun before another, and returned after it", |folder| {
        let mut scene = one(folder, &[Call { took: Some(5_000 * MS), ..on(1, 0, copy(0, DIRECT)) }]);
        scene.another_segment();
        scene.call(&copy(10, DIRECT));
        scene.exit = None;
        scene.finish();
        run_until(folder, 90_000, None, Some(9));
    }),
    ("hung in a copy, and killed", |folder| {
        let mut scene = one(folder, &[copy(0, DIRECT), Call { took: None, ..copy(1, DIRECT) }]);
        scene.exit = None;
        scene.finish();
        run_until(folder, 90_000, None, Some(9));
    }),
    ("killed in launches of a graph, after a copy that failed", |folder| {
        let captured = Call { path: CAPTURED, ..queued(0, DIRECT) };
        let mut scene = one(folder, &[captured]);
        scene.launch(&queued(800, DIRECT));
        scene.call(&Call { result: 1, path: 0, ..queued(1_200, DIRECT) });
        scene.exit = None;
        scene.finish();
        run_until(folder, 9_000, None, Some(9));
    }),
    ("hung elsewhere, and killed", |folder| {
        let mut scene = one(folder, &[copy(0, DIRECT)]);
        scene.exit = None;
        scene.finish();
        run(folder, None, Some(15));
    }),
    ("segmentation fault", |folder| {
        let mut scene = one(folder, &[copy(0, DIRECT)]);
        scene.exit = None;
        scene.finish();
        run(folder, None, Some(11));
    }),
    ("killed, nobody knows how", |folder| {
        let mut scene = one(folder, &[copy(0, DIRECT)]);
        scene.exit = None;
        scene.finish();
    }),
    ("killed, or still running on another machine", |folder| {
        let mut scene = one(folder, &[copy(0, DIRECT), Call { took: None, ..copy(1, DIRECT) }]);
        scene.note(0, NoteKind::Host, 0, &["node", "another boot"]);
        scene.exit = None;
        scene.finish();
    }),
    ("killed, or still running in a container", |folder| {
        let mut scene = one(folder, &[copy(0, DIRECT)]);
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        scene.note(0, NoteKind::Host, 0, &["node", boot.trim(), "pid:[1]"]);
        scene.exit = None;
        scene.finish();
    }),
    ("failed", |folder| {
        let mut scene = one(folder, &[copy(0, DIRECT)]);
        scene.exit = Some(3);
        scene.finish();
        run(folder, Some(3), None);
    }),
    ("failed, without p2pshim run", |folder| {
        let mut scene = one(folder, &[copy(0, DIRECT)]);
        scene.exit = Some(3);
        scene.finish();
    }),
    ("full disk", |folder| {
        let mut scene = one(folder, &[copy(0, DIRECT)]);
        scene.note(MS, NoteKind::Message, 0, &["calls are not recorded any more: No space left on device"]);
        scene.finish();
        damage(folder, |bytes| bytes[40] = 9);
    }),
    ("full disk before any copy", |folder| {
        one(folder, &[]).finish();
        damage(folder, |bytes| bytes[40] = 9);
    }),
    ("limit, and what is known is slow", |folder| {
        one(folder, &[copy(0, STAGED)]).finish();
        damage(folder, |bytes| bytes[40] = 200);
    }),
    ("cut off", |folder| {
        one(folder, &[copy(0, DIRECT)]).finish();
        damage(folder, |bytes| bytes.truncate(HEADER_BYTES + CHUNK_BYTES + 100));
    }),
    ("lost in the middle", |folder| {
        one(folder, &(0..1000).map(|number| copy(number, DIRECT)).collect::<Vec<_>>()).finish();
        damage(folder, |bytes| bytes[HEADER_BYTES + 2 * CHUNK_BYTES..HEADER_BYTES + 3 * CHUNK_BYTES].fill(0));
    }),
    ("one of two traces is none", |folder| {
        one(folder, &[copy(0, DIRECT)]).finish();
        fs::write(folder.0.join("b.p2ptrace"), "no trace").unwrap();
    }),
    ("three of four traces are just being begun", |folder| {
        one(folder, &[copy(0, DIRECT)]).finish();
        let whole = fs::read(folder.0.join("a.p2ptrace")).unwrap();
        let mut header = whole[..HEADER_BYTES + CHUNK_BYTES].to_vec();
        header[24] = 8;
        header[32..40].fill(0);
        header[HEADER_BYTES..].fill(0);
        fs::write(folder.0.join("b.p2ptrace"), "").unwrap();
        fs::write(folder.0.join("c.p2ptrace"), &header).unwrap();
        header[..8].fill(0);
        fs::write(folder.0.join("d.p2ptrace"), &header).unwrap();
    }),
    ("one of two traces has lost its header", |folder| {
        one(folder, &[copy(0, DIRECT)]).finish();
        let mut bytes = fs::read(folder.0.join("a.p2ptrace")).unwrap();
        bytes[..HEADER_BYTES].fill(0);
        fs::write(folder.0.join("b.p2ptrace"), bytes).unwrap();
    }),
    ("clocks are lost", |folder| {
        one(folder, &[copy(0, DIRECT)]).finish();
        damage(folder, |bytes| bytes[64..64 + 64 * 24].fill(0));
    }),
    ("eight ranks", |folder| ranks(folder, 8, None, |_, scene| scene.call(&copy(0, DIRECT)))),
    ("eight ranks, one of which did not exit", |folder| {
        ranks(folder, 8, None, |rank, scene| {
            scene.call(&copy(0, DIRECT));
            scene.exit = Some(0).filter(|_| rank != 5);
        });
    }),
    ("three ranks, each by p2pshim run, one of which failed, and one was killed", |folder| {
        ranks(folder, 3, Some("a.1"), |rank, scene| {
            scene.call(&copy(0, DIRECT));
            scene.exit = [Some(0), Some(3), None][rank as usize];
        });
        for (process, code, signal) in [(50, Some(0), None), (51, Some(3), None), (52, None, Some(9))] {
            run_of(folder, process, code, signal);
        }
    }),
    ("a child failed, and the program did not", |folder| {
        ranks(folder, 2, Some("a.1"), |rank, scene| {
            scene.call(&copy(0, DIRECT));
            scene.exit = Some(3).filter(|_| rank == 1).or(Some(0));
        });
        run_of(folder, 50, Some(0), None);
    }),
    ("two jobs", |folder| {
        ranks(folder, 2, Some("a.1"), |_, scene| scene.call(&copy(0, DIRECT)));
        ranks(folder, 2, Some("b.2"), |_, scene| scene.call(&copy(0, STAGED)));
    }),
    ("no copy", |folder| drop(one(folder, &[Call { function: ENABLE, ..Call::copy(0, (0, 1), 0, 0) }]).finish())),
    ("no copy succeeded", |folder| drop(one(folder, &[Call { result: 1, ..copy(0, 0) }]).finish())),
    ("no copy within a GPU succeeded", |folder| {
        drop(
            one(folder, &[on(0, 0, Call { result: 1, ..copy(0, 0) }), on(0, 0, Call { result: 1, ..copy(1, 0) })])
                .finish(),
        );
    }),
    ("a device that is not there", |folder| {
        let wrong = Call { function: MEMCPY_PEER, result: 101, pair: Some((0, 8)), ..copy(1, 0) };
        drop(one(folder, &[copy(0, DIRECT), wrong]).finish());
    }),
    ("data at risk", |folder| drop(one(folder, &[Call { rules: vec![OVERLAP], ..copy(0, DIRECT) }]).finish())),
    ("copies without order", |folder| {
        let mut scene = one(folder, &[]);
        scene.note(0, NoteKind::Rule, NO_ORDER.into(), &["P2P-order-default-stream", "hazard"]);
        for start in 0..17 {
            scene.call(&Call { rules: vec![NO_ORDER], ..copy(start, DIRECT) });
        }
        scene.finish();
    }),
    ("a copy without order, beside other data at risk", |folder| {
        let mut scene = one(folder, &[]);
        scene.note(0, NoteKind::Rule, NO_ORDER.into(), &["P2P-order-stream-elsewhere", "hazard"]);
        scene.call(&Call { rules: vec![NO_ORDER, OVERLAP], ..copy(0, DIRECT) });
        scene.finish();
    }),
    ("first copies, of a program that enables access itself", |folder| {
        let enables = Call { function: ENABLE, bytes: 0, pair: None, path: 0, ..copy(0, DIRECT) };
        let calls = [enables, Call { bytes: 4096, ..copy(1, START_UP) }, copy(2, DIRECT)];
        drop(verified(folder, &calls).finish());
    }),
    ("calls that work by accident", |folder| {
        let mut scene = one(folder, &[]);
        scene.note(0, NoteKind::Rule, ACCIDENT.into(), &["P2P-copy-zero-bytes", "hazard"]);
        scene.call(&Call { rules: vec![ACCIDENT], bytes: 0, ..copy(0, DIRECT) });
        scene.call(&copy(1, DIRECT));
        scene.finish();
    }),
    ("a graph that lost access", |folder| {
        let mut scene = two_gpus(folder, "a.p2ptrace", 7);
        scene.note(0, NoteKind::Rule, ACCESS_LOST.into(), &["P2P-graph-access-lost", "error"]);
        scene.call(&Call { rules: vec![ACCESS_LOST], ..copy(0, DIRECT) });
        drop(scene.finish());
    }),
    ("between devices that are not known", |folder| {
        drop(one(folder, &[Call { pair: None, ..copy(0, 0) }, copy(1, DIRECT)]).finish());
    }),
    ("enabled twice", |folder| {
        let enable = Call { function: ENABLE, result: 704, rules: vec![ENABLE_TWICE], ..Call::copy(0, (0, 1), 0, 0) };
        drop(one(folder, &[enable, copy(1, DIRECT)]).finish());
    }),
    ("path not known", |folder| drop(one(folder, &[copy(0, DIRECT), copy(1, 77)]).finish())),
    ("broken pair of which no copy was made", |folder| {
        let mut scene = one(folder, &[Call { function: ENABLE, ..Call::copy(0, (0, 1), 0, 0) }]);
        decided(&mut scene, MS, "avoided");
        scene.finish();
    }),
    ("broken pair of which only the first copies were made", |folder| {
        let mut scene = one(folder, &[small(0, START_UP, 4096)]);
        decided(&mut scene, MS, "avoided");
        scene.finish();
    }),
    ("broken pair, that the program has enabled and not used", |folder| {
        let mut scene = one(folder, &[Call { function: ENABLE, ..Call::copy(0, (0, 1), 0, 0) }]);
        decided(&mut scene, MS, "in use");
        scene.finish();
    }),
    ("broken pair, used only before that was known", |folder| {
        let mut scene = one(folder, &[copy(0, DIRECT), copy(6, BLOCKED)]);
        decided(&mut scene, 5 * MS, "avoided");
        scene.finish();
    }),
    ("pair that was broken in one process, and right in a later one", |folder| {
        let mut scene = one(folder, &[small(0, START_UP, 4096)]);
        decided(&mut scene, MS, "avoided");
        scene.finish();
        let mut scene = two_gpus(folder, "b.p2ptrace", 8);
        decided(&mut scene, 2 * MS, "right");
        scene.call(&copy(3, DIRECT));
        scene.finish();
    }),
    ("broken pair, in use, of a program with other numbers", |folder| {
        let mut scene = four_gpus(folder, &[copy(0, DIRECT)]);
        decided(&mut scene, MS, "in use");
        scene.finish();
    }),
    ("broken pair, in use by processes whose numbers differ", |folder| {
        for (process, gpus, pair) in [(7, ["a", "b", "c"], 1), (8, ["c", "b", "a"], 0x102)] {
            let mut scene = Scene::named(&folder.0, &format!("{process}.p2ptrace"), process, "node");
            scene.gpus(&gpus.map(|gpu| (gpu, gpu)));
            scene.call(&on((pair >> 8) as u8, (pair & 255) as u8, copy(0, DIRECT)));
            scene.note(500, NoteKind::Decision, pair, &["4092 of 4092 bytes were wrong", "verified=in use"]);
            scene.finish();
        }
    }),
    ("peer limit", |folder| drop(one(folder, &[copy(0, LIMIT), copy(1, DIRECT)]).finish())),
    ("could not be verified", |folder| {
        let mut scene = one(folder, &[copy(0, UNVERIFIED)]);
        scene.note(MS, NoteKind::Decision, 1, &["could not be verified: out of memory", "verified=unknown"]);
        scene.finish();
    }),
    ("busy", |folder| drop(one(folder, &[copy(0, BUSY)]).finish())),
    ("much staged while another thread verified", |folder| {
        drop(one(folder, &[copy(0, VERIFYING), copy(1, VERIFYING)]).finish());
    }),
    ("staged for several reasons, none of which is the program's", |folder| {
        let calls = [small(0, DENIED, 1_000_000), on(2, 3, copy(1, NO_PATH)), small(2, START_UP, 4096)];
        drop(four_gpus(folder, &calls).finish());
    }),
    ("staged for several reasons, one of which is the program's", |folder| {
        drop(four_gpus(folder, &[copy(0, STAGED), on(2, 3, copy(1, DENIED))]).finish());
    }),
    ("slow, and only small direct copies were timed", |folder| {
        let direct = Call { device: Some((0, 6_600)), ..small(0, DIRECT, 4096) };
        drop(one(folder, &[direct, timed(1, STAGED, 26 * MS)]).finish());
    }),
    ("staged, and direct copies are slower", |folder| {
        drop(one(folder, &[timed(0, STAGED, 25 * MS), timed(60, DIRECT, 50 * MS)]).finish());
    }),
    ("within two GPUs", |folder| drop(one(folder, &[on(0, 0, copy(0, SAME)), on(1, 1, copy(1, SAME))]).finish())),
    ("mapped by HIP beside direct", |folder| drop(one(folder, &[copy(0, DIRECT), copy(1, MAPPED)]).finish())),
    ("only a copy that failed, and records are lost", |folder| {
        one(folder, &[Call { result: 1, ..copy(0, 0) }]).finish();
        damage(folder, |bytes| bytes[40] = 9);
    }),
    ("only a copy of 0 bytes, and records are lost", |folder| {
        one(folder, &[small(0, DIRECT, 0)]).finish();
        damage(folder, |bytes| bytes[40] = 9);
    }),
    ("killed by a signal, in a container", |folder| {
        let mut scene = one(folder, &[copy(0, DIRECT), Call { took: None, ..copy(1, DIRECT) }]);
        scene.note(0, NoteKind::Host, 0, &["node", "another boot"]);
        scene.exit = None;
        scene.finish();
        run_until(folder, 90_000, None, Some(9));
    }),
    ("interrupted in a copy that had just begun", |folder| {
        let mut scene = one(folder, &[copy(0, DIRECT), Call { took: None, ..copy(1, STAGED) }]);
        scene.exit = None;
        scene.finish();
        run_until(folder, 21, None, Some(2));
    }),
    ("interrupted in a copy, without p2pshim run", |folder| {
        let mut scene = one(folder, &[copy(0, DIRECT), Call { took: None, ..copy(1, STAGED) }]);
        scene.exit = None;
        scene.finish();
    }),
    ("two copies interrupted, without p2pshim run", |folder| {
        let mut scene = one(folder, &[Call { took: None, ..copy(0, DIRECT) }]);
        scene.another_segment();
        scene.call(&Call { took: None, ..copy(20, STAGED) });
        scene.exit = None;
        scene.finish();
    }),
    ("hung in a copy while another thread went on, without p2pshim run", |folder| {
        let mut scene = one(folder, &[Call { took: None, ..copy(0, DIRECT) }]);
        scene.another_segment();
        scene.call(&copy(40_000, DIRECT));
        scene.exit = None;
        scene.finish();
    }),
    ("a child in a copy when p2pshim run's program was interrupted", |folder| {
        for process in [7, 8] {
            let mut scene = two_gpus(folder, &format!("{process}.p2ptrace"), process);
            scene.note(0, NoteKind::Variable, 0, &["P2PRUN_ID", "node-7-1"]);
            scene.call(&Call { took: Some(1_300).filter(|_| process == 7), ..copy(0, DIRECT) });
            scene.exit = None;
            scene.finish();
        }
        run_until(folder, 90_000, None, Some(2));
    }),
    ("two threads waited when the program was killed", |folder| {
        let mut scene = one(folder, &[copy(0, DIRECT)]);
        scene.wait(5 * MS);
        scene.another_segment();
        scene.call(&copy(1, DIRECT));
        scene.wait(6 * MS);
        scene.exit = None;
        scene.finish();
        run_until(folder, 90_000, None, Some(9));
    }),
    ("two threads waited when the program ended, on a pair that failed", |folder| {
        let mut scene = one(folder, &[on(1, 0, copy(0, SAME))]);
        decided(&mut scene, 0, "avoided");
        scene.wait(5 * MS);
        scene.another_segment();
        scene.call(&on(1, 0, copy(0, SAME)));
        scene.wait(6 * MS);
        scene.finish();
        run_until(folder, 90_000, Some(0), None);
    }),
    ("an earlier check failed, and P2PSHIM_VERIFY=off ignores that", |folder| {
        let mut scene = one(folder, &[copy(0, DIRECT)]);
        decided(&mut scene, 0, "disregarded");
        scene.finish();
    }),
    ("the first copies of a pair that failed then", |folder| {
        let mut scene = one(folder, &[small(0, START_UP, 4096), copy(1, BLOCKED)]);
        decided(&mut scene, MS, "avoided");
        scene.finish();
    }),
    ("one of four ranks hangs", |folder| {
        ranks(folder, 4, None, |rank, scene| {
            scene.call(&copy(0, DIRECT));
            if rank == 2 {
                scene.call(&Call { took: None, ..copy(1, DIRECT) });
            }
            scene.exit = None;
        });
    }),
    ("became another program", |folder| {
        for (name, at) in [("a", 0), ("b", 100)] {
            let mut scene = two_gpus(folder, &format!("{name}.p2ptrace"), 7);
            scene.origin = START + at * MS;
            scene.note(0, NoteKind::Variable, 0, &["P2PRUN_ID", "node-7-1"]);
            scene.note(0, NoteKind::Host, 0, &["node", "boot", "pid:[1]", "4711"]);
            scene.call(&copy(0, DIRECT));
            scene.exit = Some(0).filter(|_| name == "b");
            scene.finish();
        }
        run(folder, Some(0), None);
    }),
    ("a rank that became another program, and has a child", |folder| {
        for (name, process, at) in [("a", 7, 0), ("b", 7, 100), ("c", 8, 200)] {
            let mut scene = two_gpus(folder, &format!("{name}.p2ptrace"), process);
            scene.origin = START + at * MS;
            scene.note(0, NoteKind::Variable, 0, &["P2PRUN_ID", "node-7-1"]);
            scene.note(0, NoteKind::Variable, 0, &["RANK", "0"]);
            scene.note(0, NoteKind::Host, 0, &["node", "boot", "pid:[1]", if process == 7 { "4711" } else { "4712" }]);
            scene.call(&copy(0, DIRECT));
            scene.exit = Some(0).filter(|_| name != "a");
            scene.finish();
        }
        run(folder, Some(0), None);
    }),
    ("became another program, without p2pshim run", |folder| same_number(folder, ["4711"; 2])),
    ("a later process had the same number", |folder| same_number(folder, ["4711", "4712"])),
    ("a process that the run did not start failed", |folder| {
        one(folder, &[copy(0, DIRECT)]).finish();
        run(folder, Some(0), None);
        let mut scene = two_gpus(folder, "b.p2ptrace", 999);
        scene.origin = START + 3_600_000 * MS;
        scene.call(&copy(0, DIRECT));
        scene.exit = Some(3);
        scene.finish();
    }),
    ("a rank of the second of two jobs failed", |folder| {
        ranks(folder, 2, Some("a.1"), |_, scene| scene.call(&copy(0, DIRECT)));
        ranks(folder, 2, Some("b.2"), |rank, scene| {
            scene.call(&copy(0, DIRECT));
            scene.exit = Some(rank as u8 * 3);
        });
    }),
    ("processes of two jobs that ended differently", |folder| {
        ranks(folder, 4, Some("a.1"), |rank, scene| {
            scene.call(&copy(0, DIRECT));
            scene.exit = Some(0).filter(|_| rank < 2);
        });
        run_of(folder, 52, None, Some(9));
        ranks(folder, 2, Some("b.2"), |_, scene| scene.call(&copy(0, DIRECT)));
    }),
    ("ranks that ended in several ways", |folder| {
        ranks(folder, 6, Some("a.1"), |rank, scene| {
            scene.call(&copy(0, DIRECT));
            scene.exit = [Some(0), Some(3), Some(4)].get(rank as usize).copied().flatten();
        });
        (53..56).for_each(|process| run_of(folder, process, None, Some(if process == 53 { 15 } else { 9 })));
    }),
    ("two days apart", |folder| {
        one(folder, &[copy(0, DIRECT)]).finish();
        let mut scene = two_gpus(folder, "b.p2ptrace", 8);
        scene.origin = START + 2 * 86_400_000 * MS;
        scene.call(&copy(0, DIRECT));
        scene.finish();
    }),
    ("two jobs two days apart", |folder| {
        for (job, days) in [("a.1", 0), ("b.2", 2)] {
            ranks(folder, 2, Some(job), |_, scene| {
                scene.origin = START + days * 86_400_000 * MS;
                scene.call(&copy(0, DIRECT));
                scene.call(&copy(1, DIRECT));
            });
        }
    }),
    ("two runs, and a child of the first went on for longer", |folder| {
        for (process, run, at) in [(7, 7, 0), (8, 7, 4_000), (17, 17, 60_000)] {
            let mut scene = two_gpus(folder, &format!("{process}.p2ptrace"), process);
            scene.note(0, NoteKind::Variable, 0, &["P2PRUN_ID", &format!("node-{run}-1")]);
            scene.origin = START + at * MS;
            scene.call(&copy(0, DIRECT));
            scene.finish();
        }
        run(folder, Some(0), None);
    }),
    ("a trace, and a copy that was made before its end", |folder| {
        let path = verified(folder, &[copy(0, DIRECT), copy(1, DIRECT)]).finish();
        let mut bytes = fs::read(&path).unwrap();
        bytes[56..64].fill(0);
        fs::create_dir(folder.0.join("0")).unwrap();
        fs::write(folder.0.join("0/a.p2ptrace"), bytes).unwrap();
    }),
    ("still runs, and its file was replaced", |folder| {
        let mut scene = two_gpus(folder, "a.p2ptrace", std::process::id());
        is_of_here(&mut scene, &format!("{} (deleted)", own_program()), now());
        scene.call(&copy(0, DIRECT));
        scene.finish();
    }),
    ("another process of the same program has its number now", |folder| {
        let mut scene = two_gpus(folder, "a.p2ptrace", std::process::id());
        is_of_here(&mut scene, &own_program(), now() - 3_600_000 * MS);
        scene.call(&copy(0, DIRECT));
        no_longer_mapped(&scene.finish());
    }),
    ("executed its own program again in a call, and that makes no calls", |folder| {
        let mut scene = two_gpus(folder, "a.p2ptrace", std::process::id());
        is_of_here(&mut scene, &own_program(), now() - 20_000 * MS);
        scene.call(&Call { took: None, ..copy(0, DIRECT) });
        no_longer_mapped(&scene.finish());
    }),
    ("between processes, which see both GPUs", |folder| {
        let calls = [on(0, 128, copy(0, DIRECT)), on(128, 0, copy(1, DIRECT)), on(128, 0, copy(2, DIRECT))];
        shared(folder, [&["GPU-a", "GPU-b"]; 2], 1, &calls);
    }),
    ("between processes, each of which sees its own GPU", |folder| {
        shared(folder, [&["GPU-b"], &["GPU-a"]], 0, &[on(0, 128, timed(0, DIRECT, 5 * MS / 2))]);
    }),
    ("between processes on one GPU, beside copies within it", |folder| {
        shared(folder, [&["GPU-a"]; 2], 0, &[on(0, 128, copy(0, DIRECT)), on(0, 0, copy(1, SAME))]);
    }),
    ("between processes on one GPU and on two", |folder| {
        let calls = [on(0, 128, copy(0, DIRECT)), on(1, 128, copy(1, DIRECT)), on(0, 1, copy(2, STAGED))];
        shared(folder, [&["GPU-a", "GPU-b"]; 2], 1, &calls);
    }),
    ("between processes, one of which left no trace", |folder| {
        let mut scene = rank(folder, 1, &["GPU-a"]);
        scene.note(20, NoteKind::Opened, 128, &["ipc", "5eed", "1000000000", "0"]);
        [on(0, 128, copy(0, DIRECT)), on(254, 0, copy(1, DIRECT))].iter().for_each(|call| scene.call(call));
        scene.finish();
    }),
    ("between processes, to a GPU that only the driver names", |folder| {
        let mut scene = rank(folder, 1, &["GPU-b"]);
        scene.note(20, NoteKind::Opened, 128, &["vmm", "", "0", "0", "gpu=GPU-a"]);
        scene.call(&on(0, 128, copy(0, DIRECT)));
        scene.finish();
    }),
    ("on one GPU of which another process shares memory, and it is not recorded whose memory it is", |folder| {
        shared(folder, [&["GPU-a"]; 2], 0, &[on(0, 0, copy(1, SAME))]);
    }),
    ("between two other processes, by a third", |folder| {
        for (number, handle) in [(2, "aa"), (3, "bb")] {
            let mut owner = rank(folder, number, &["GPU-a", "GPU-b"]);
            owner.note(10, NoteKind::Exported, number - 2, &["ipc", handle, "1000000000"]);
            owner.finish();
        }
        let mut scene = rank(folder, 1, &["GPU-a", "GPU-b"]);
        scene.note(20, NoteKind::Opened, 128, &["ipc", "aa", "1000000000", "0"]);
        scene.note(20, NoteKind::Opened, 129, &["ipc", "bb", "1000000000", "0"]);
        scene.call(&on(128, 129, copy(0, DIRECT)));
        scene.finish();
    }),
    ("by hand, between GPUs whose path failed verification", |folder| {
        let mut scene = one(folder, &[copy(0, BY_HAND)]);
        decided(&mut scene, 0, "avoided");
        scene.finish();
    }),
    ("first copies of a pair that has no path", |folder| {
        let mut scene = one(folder, &[small(0, START_UP, 4096)]);
        [1, 256].iter().for_each(|pair| scene.note(0, NoteKind::Peer, *pair, &["access=0"]));
        scene.finish();
    }),
    ("direct between GPUs that were right in a check in which others were not", |folder| {
        one(folder, &[copy(0, DIRECT)]).finish();
        run(folder, Some(0), None);
        let path = folder.0.join("node-7-1.run.json");
        let mut kept: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        kept["checked"] = serde_json::json!([["GPU-a", "GPU-b"], ["GPU-b", "GPU-a"]]);
        fs::write(path, kept.to_string()).unwrap();
    }),
    ("GPUs not known", |folder| {
        let mut scene = Scene::named(&folder.0, "a.p2ptrace", 7, "node");
        scene.call(&copy(0, STAGED));
        scene.finish();
    }),
];

/// Whether a line has the time at which the test runs.
fn is_of_today(line: &str) -> bool {
    line.contains(" UTC ") && !line.contains("2027-01-15")
}

fn report(folder: &Folder, option: &[&str]) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_p2pshim")).arg("report").arg(&folder.0).args(option).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn first_lines_are_true_of_each_kind_of_trace() {
    let mut all = String::new();
    for (name, build) in CASES {
        let folder = Folder::new("first");
        build(&folder);
        let text = report(&folder, &[]);
        let found = opposites::contradictions(&text);
        assert!(found.is_empty(), "{name}:\n{}", found.join("\n\n"));
        let json: Value = serde_json::from_str(&report(&folder, &["--json"])).unwrap();
        let words = json["verdict"].as_array().unwrap().iter();
        let words = words.map(|it| format!("{} ({})", it["word"].as_str().unwrap(), it["level"].as_str().unwrap()));
        all += &format!("# {name}: {}\n", words.collect::<Vec<_>>().join(", "));
        all.extend(text.lines().take_while(|line| !line.is_empty()).map(|line| format!("{line}\n")));
        all.extend(
            text.lines()
                .filter(|line| {
                    line.starts_with("GPUs ")
                        || line.starts_with("ran on ") && (line.contains("not known") || line.contains("rank"))
                        || line.starts_with("time ") && !is_of_today(line)
                })
                .map(|line| format!("    {line}\n")),
        );
        all += "\n";
    }
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/first_lines.txt");
    if std::env::var_os("P2PSHIM_UPDATE").is_some() {
        fs::write(golden, &all).unwrap();
    }
    assert_eq!(all, fs::read_to_string(golden).unwrap_or_default());
}

/// Each of these was once said in one report.
#[test]
fn contradictions_are_found_between_statements_about_the_same() {
    let checked = "p2pshim: checked 2 GPUs: copies right; 0.4 s, once per boot; --no-check";
    let unverified = "Peer access between GPU 0 and GPU 1 was not verified in this run.";
    let by_hand = "1.0 GB went from GPU 0 to GPU 1 through host memory by the program's own copies.\n\
                   Copy directly from GPU to GPU, such as by `x.to(\"cuda:1\")`.";
    for (text, count) in [
        (format!("{checked}\n  0.1 s  GPU 0 > GPU 1: not verified: an earlier check failed: wrong"), 1),
        (format!("peer access between GPU 0 and GPU 1 failed verification.\nThe direct path loses data, or hangs.\n{by_hand}"), 2),
        ("checked 2 GPUs: no pair has a path\n4.1 kB were staged (the first copies of a pair, before p2pshim looks for a direct path).".to_owned(), 1),
        (format!("{checked}\n{unverified}"), 1),
        (format!("{unverified}\n  0.018 s  GPU 1 > GPU 0: verified: data arrives in both directions"), 1),
        // These are about other GPUs.
        (format!("{unverified}\n  0.018 s  GPU 2 > GPU 3: verified: data arrives in both directions"), 0),
        (format!("peer access between GPU 2 and GPU 3 failed verification.\n{by_hand}"), 0),
        (checked.to_owned(), 0),
    ] {
        let found = opposites::contradictions(&text);
        assert_eq!(found.len(), count, "{text}: {found:?}");
    }
}

/// A statement that nothing says any more excludes nothing.
#[test]
fn opposites_are_statements_that_the_command_still_makes() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = ["src", "../trace/src", "../src"].map(|folder| root.join(folder)).to_vec();
    let mut said = fs::read_to_string(root.join("tests/first_lines.txt")).unwrap();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match entry.extension().and_then(|suffix| suffix.to_str()) {
                Some("rs") => said += &fs::read_to_string(&entry).unwrap(),
                None if entry.is_dir() => folders.push(entry),
                _ => {}
            }
        }
    }
    for statement in opposites::statements() {
        let words = statement.trim_matches(|letter: char| !letter.is_alphanumeric());
        assert!(said.contains(words), "nothing says {words:?} any more");
    }
}
