//! `p2pshim report` as its users run it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails so")]

mod scene;

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Output};

use p2pshim_trace::{CHUNK_BYTES, HEADER_BYTES, NoteKind};
use scene::{BLOCKED, Call, DIRECT, ENABLE, ENABLE_TWICE, Folder, MEMCPY_PEER, OVERLAP, STAGED, START, Scene};
use serde_json::Value;

const GB: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

/// Runs the command, and gives standard output, standard error and the exit status.
fn report(arguments: &[&str]) -> (String, String, i32) {
    let Output { stdout, stderr, status } =
        Command::new(env!("CARGO_BIN_EXE_p2pshim")).arg("report").args(arguments).output().unwrap();
    (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap(), status.code().unwrap())
}

/// A folder, and options after it; fails if not all was read.
fn report_of(folder: &Folder, options: &[&str]) -> String {
    let (out, error, status) = report(&[&[folder.0.to_str().unwrap()], options].concat());
    assert_eq!((error.as_str(), status), ("", 0), "{out}");
    out
}

fn json_of(folder: &Folder) -> Value {
    serde_json::from_str(&report_of(folder, &["--json"])).unwrap()
}

/// Systems with larger pages have traces with larger headers.
#[test]
fn pages_of_any_size_the_report_is_the_same() {
    let reports = [4096, 16_384, 65_536].map(|page| {
        let folder = Folder::new(&format!("pages-{page}"));
        let mut scene = Scene::for_pages(&folder.0, "app.p2ptrace", 1234, page).with_names("nodeA");
        (1..1_000).for_each(|number| scene.calls(&Call::copy(number * 10_000, (0, 1), 5_000, DIRECT)));
        let bytes = fs::read(scene.finish()).unwrap();
        assert_eq!(u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize, page);
        report_of(&folder, &[]).replace(folder.0.to_str().unwrap(), "FOLDER")
    });
    assert!(reports[0].contains("999"), "{}", reports[0]);
    assert_eq!([&reports[1], &reports[2]], [&reports[0]; 2]);
}

/// A process that staged 1 GB, went direct, met errors and findings, and hangs.
fn one_process(name: &str) -> Folder {
    let folder = Folder::new(name);
    let mut scene = Scene::named(&folder.0, "app.p2ptrace", 1234, "nodeA");
    scene.gpus(&[("GPU-a", "0000:1a:00.0"), ("GPU-b", "0000:3b:00.0")]);
    scene.note(0, NoteKind::Module, 0, &["400000", "500000", "0", "/nowhere/app"]);
    scene.note(10, NoteKind::Site, 1, &["401234"]);
    scene.note(MS, NoteKind::Decision, 1, &["verified and enabled: 394 GB/s"]);
    scene.note(MS, NoteKind::Finding, OVERLAP.into(), &["source and destination overlap by 4096 bytes"]);
    scene.note(30 * MS + MS / 2, NoteKind::Mark, 7, &["epoch 2"]);
    // The time on the device stands with the driver's call, or with both.
    let staged = Call::copy(1_000, (0, 1), GB, STAGED);
    scene.call(&staged);
    scene.call(&Call { device: Some((2_000, 25 * MS)), ..staged.inside() });
    scene.calls(&Call { device: Some((30 * MS, 2_500_000)), ..Call::copy(29 * MS, (0, 1), GB, DIRECT) });
    let enable = Call { function: ENABLE, result: 704, rules: vec![ENABLE_TWICE], ..Call::copy(30 * MS, (0, 1), 0, 0) };
    scene.call(&enable);
    scene.call(&Call { rules: vec![OVERLAP], ..Call::copy(31 * MS, (1, 0), 5000, BLOCKED) });
    scene.call(&Call { result: 1, ..Call::copy(32 * MS, (1, 0), 5000, 0) });
    let hanging = Call { function: MEMCPY_PEER, took: None, ..Call::copy(33 * MS, (1, 0), 64 << 20, DIRECT) };
    scene.call(&Call { bytes: 0, pair: None, path: 0, ..hanging.clone() });
    scene.call(&Call { took: None, ..hanging.inside() });
    scene.finish();
    folder
}

#[test]
fn text_of_a_process_reads_like_this() {
    let expected = "\
Data may be WRONG: 1.0 GB of submitted copies were direct between GPU 0 and GPU 1, where peer access failed verification.
To send its copies through the host, run it with P2PSHIM_ACCESS=off, or with P2PSHIM_DENY=0-1.
5.0 kB of submitted copies were staged: peer access between GPU 0 and GPU 1 failed verification.
Copies are kept off that path. `p2pshim doctor` tests the direct path and the one through the host.
Data may be wrong although the calls succeed: P2P-copy-overlap in 1 call.
The findings name the place; `p2pshim explain` with a finding's name says what to do.
The process ended in a call: cudaMemcpyPeer, GPU 1 > GPU 0, 67.1 MB, direct.
How long it had taken is not known, nor whether it would have returned. `p2pshim run` records how and when its program ends.
2 calls failed, 1 of them cudaMemcpyPeerAsync with cudaErrorInvalidValue.
1.0 GB of submitted copies were direct; 1.0 GB were staged though CUDA offers a direct path; that took about 22.5 ms longer.
Staged because: access not enabled. This rests on 1 of 1 copy, compared with direct copies of like size of the same pair.

program    /opt/app/bin/app …
ran on     nodeA: pid 1234
GPUs       GPU 0 NVIDIA H200 (0000:1a:00.0), GPU 1 NVIDIA H200 (0000:3b:00.0)
versions   p2pshim 0.1.0, driver 13.0
time       at least 33.0 ms from 2027-01-15 08:00:00 UTC on
calls      6, none dropped

Calls in which a process ended, or became another program
  nodeA, pid 1234, thread 100 (main) was in this call when the process ended: cudaMemcpyPeer, inside it cuMemcpyPeerAsync, GPU 1 > GPU 0, 67.1 MB, direct, begun at 0.033 s, 100ns before the last sign of life, from app+0x1234

Copies
  pair           copies   bytes  path                                  GB/s  busy GB/s  host p50    p99    max  errors
  GPU 1 > GPU 0       1  5.0 kB  staged: broken: failed verification      -          -     1.3us  1.3us  1.3us       1
  GPU 0 > GPU 1       1  1.0 GB  direct                               400.0       72.7     1.3us  1.3us  1.3us       -
                      1  1.0 GB  staged: access not enabled            40.0                1.3us  1.3us  1.3us

Findings (p2pshim explain ID says more)
  hazard P2P-copy-overlap, found in 1 call
      source and destination overlap by 4096 bytes
      at app+0x1234
  note P2P-enable-twice, found in 1 call
      at app+0x1234

Errors
  cudaDeviceEnablePeerAccess = cudaErrorPeerAccessAlreadyEnabled (704), 1 call
      at app+0x1234
  cudaMemcpyPeerAsync = cudaErrorInvalidValue (1), 1 call
      at app+0x1234

Decisions
  0.001 s  GPU 0 > GPU 1: verified and enabled: 394 GB/s

Marks
  0.030 s  nodeA, pid 1234, thread 7: epoch 2

Functions, by their time on the host
  function                    layer    calls  errors  total    p50    p99    max
  cudaMemcpyPeerAsync         runtime      4       1  5.2us  1.3us  1.3us  1.3us
  cuMemcpyPeerAsync           driver       3       -  1.8us  900ns  900ns  900ns
  cudaDeviceEnablePeerAccess  runtime      1       1  1.3us  1.3us  1.3us  1.3us
  cudaMemcpyPeer              runtime      1       -    0ns      -      -      -
";
    assert_eq!(report_of(&one_process("text"), &[]), expected);
}

#[test]
fn text_of_terminal_letters_in_a_file_does_not_reach_the_terminal() {
    let folder = Folder::new("escapes");
    let mut scene = Scene::new(&folder.0, "a.p2ptrace", 1);
    scene.note(0, NoteKind::Program, 0, &["/bin/\x1b[2Jx"]);
    scene.note(0, NoteKind::Host, 0, &["no\nde"]);
    scene.note(0, NoteKind::Function, 2, &["runtime", "cudaMemcpy\x1b]0;x\x07Peer"]);
    scene.note(0, NoteKind::Decision, 1, &["\x1b[31m"]);
    scene.call(&Call { result: 5, ..Call::copy(0, (0, 1), 5, 1) });
    scene.finish();
    for options in [&[][..], &["--calls"], &["--csv"]] {
        let out = report_of(&folder, options);
        assert!(!out.contains(|letter: char| letter.is_control() && letter != '\n'), "{out:?}");
    }
}

/// NVLink's traffic while [`one_process`] ran.
const READING: &str = r#"{"version":1,"host":"nodeA","start":1799999999000000000,"end":1800000001000000000,"killed":false,
    "in_container":false,"gpus":[{"uuid":"GPU-a","sent":[7,3000000007],"received":[0,0],"ours":true,"others":[]},
    {"uuid":"GPU-b","sent":[0,0],"received":[0,3000000000],"ours":true,"others":[1234]}]}"#;

#[test]
fn text_tells_what_nvlink_carried_and_of_which_gpu() {
    let folder = one_process("nvlink");
    let without = report_of(&folder, &[]);
    assert!(!without.contains("NVLink carried") && !without.contains("NVML"), "{without}");
    fs::write(folder.0.join("nodeA.nvlink.json"), READING).unwrap();
    let text = report_of(&folder, &[]);
    // The process that is listed is the one that is traced. It hangs in a copy.
    let verdict = "
NVLink carried 3.0 GB between these GPUs; copies explain at least 1.0 GB of it.
Something unseen moved the rest: kernels that access a peer's memory (NCCL, NVSHMEM, custom all-reduce), managed memory, or processes without p2pshim, for example. The trace may also lack copies.

program ";
    let table = "
NVLink, by NVML's counters
  GPU      sent  of this by copies  received  of this by copies
  GPU 0  3.0 GB             1.0 GB       0 B                0 B
  GPU 1     0 B                0 B    3.0 GB             1.0 GB

";
    assert!(text.contains(verdict) && text.contains(table), "{text}");
}

#[test]
fn json_of_a_process_counts_each_copy_once() {
    let json = json_of(&one_process("json"));
    let pair = &json["pairs"][0];
    assert_eq!(
        (&pair["src"], &pair["dst"], &pair["calls"], &pair["bytes"]),
        (&0.into(), &1.into(), &2.into(), &(2 * GB).into())
    );
    assert_eq!((&pair["access"], &pair["link"]), (&true.into(), &"probably NVLink".into()));
    for (path, gb_per_s) in [(&pair["paths"][0], 400.0), (&pair["paths"][1], 40.0)] {
        assert_eq!((&path["device_calls"], &path["device_bytes"]), (&1.into(), &GB.into()), "{path}");
        assert_eq!(path["gb_per_s"], gb_per_s);
    }
    assert_eq!((&json["pairs"][1]["errors"], &json["pairs"][1]["bytes"]), (&1.into(), &5000.into()));
    let lost = &json["lost"];
    assert_eq!((&lost["staged_bytes"], &lost["could_be_direct_bytes"]), (&(GB + 5000).into(), &GB.into()));
    assert!((lost["seconds"].as_f64().unwrap() - 0.0225).abs() < 1e-9, "{lost}");
    let hanging = &json["unfinished"][0];
    assert_eq!(
        (&hanging["function"], &hanging["bytes"], &hanging["src"]),
        (&"cudaMemcpyPeer".into(), &(64 << 20).into(), &1.into())
    );
    assert_eq!(json["unfinished"].as_array().unwrap().len(), 1, "not the driver's call inside it too");
    let timeline = &json["timeline"];
    let rows = timeline["pairs"].as_array().unwrap();
    let sum = |row: &Value, which: &str| row[which].as_array().unwrap().iter().filter_map(Value::as_u64).sum::<u64>();
    assert_eq!((sum(&rows[0], "direct"), sum(&rows[0], "staged"), sum(&rows[1], "staged")), (GB, GB, 5000));
    assert!(rows[0]["direct"].as_array().unwrap().len() <= 400);
    let own = &timeline["files"][0];
    assert_eq!((&own["file"], sum(own, "direct"), sum(own, "staged")), (&0.into(), GB, GB + 5000), "of all pairs");
    let found = serde_json::json!([{"time": scene::START + MS, "file": 0}]);
    assert_eq!((&json["findings"][0]["rule"], &json["findings"][0]["times"]), (&"P2P-copy-overlap".into(), &found));
    assert!(timeline["start"].as_u64().unwrap() <= scene::START + 1000);
}

#[test]
fn csv_has_a_line_for_each_way() {
    let expected = "\
src_host,src,src_uuid,dst_host,dst,dst_uuid,pair_calls,pair_errors,path,why,calls,bytes,device_calls,device_bytes,device_ns,gb_per_s,gb_per_s_off,host_p50_ns,host_p99_ns,host_max_ns,host_total_ns,access,link,python_lines,call_sites,between_processes
nodeA,GPU 0,GPU-a,nodeA,GPU 1,GPU-b,2,0,direct,,1,1000000000,1,1000000000,2500000,400.000,0.000,1296,1296,1300,1300,1,probably NVLink,,,0
nodeA,GPU 0,GPU-a,nodeA,GPU 1,GPU-b,,,staged,access not enabled,1,1000000000,1,1000000000,25000000,40.000,0.000,1296,1296,1300,1300,1,probably NVLink,,,0
nodeA,GPU 1,GPU-b,nodeA,GPU 0,GPU-a,3,1,staged,broken: failed verification,1,5000,0,0,0,,,1296,1296,1300,1300,1,probably NVLink,,,0
";
    assert_eq!(report_of(&one_process("csv"), &["--csv"]), expected);
}

/// A process whose Python copies from two lines by one place in a library, of which some copies were looked at.
fn with_python(name: &str) -> Folder {
    let folder = Folder::new(name);
    let mut scene = Scene::named(&folder.0, "app.p2ptrace", 7, "nodeA");
    scene.gpus(&[("GPU-a", ""), ("GPU-b", "")]);
    scene.note(0, NoteKind::Module, 0, &["1000", "2000", "0", "/opt/libframework.so"]);
    scene.note(0, NoteKind::Site, 1, &["1234"]);
    let line = |line, function| ["1234", "python=/home/u/train.py", line, function];
    scene.note(0, NoteKind::Site, 2, &line("line=88", "function=step"));
    scene.note(0, NoteKind::Site, 3, &line("line=12", "function=Net.forward"));
    for (number, site) in [2, 2, 3, 2, 1, 1, 1, 2, 1, 1].into_iter().enumerate() {
        let rules = if number == 2 { vec![OVERLAP] } else { Vec::new() };
        scene.call(&Call { site, rules, ..Call::copy(number as u64 * 10_000, (0, 1), 4096, DIRECT) });
    }
    scene.call(&Call { site: 1, ..Call::copy(200_000, (1, 0), 4096, DIRECT) });
    scene.finish();
    folder
}

#[test]
fn lines_of_python_are_shown_with_how_many_calls_were_looked_at() {
    let folder = with_python("python");
    let text = report_of(&folder, &[]);
    let expected = "
Lines of Python that copy
  GPU 0 > GPU 1: 10 from libframework.so+0x234
      train.py:88 in step (4 of 10 looked at, 16.4 kB in 5.2us)
      train.py:12 in Net.forward (1 of 10 looked at, 4.1 kB in 1.3us)
";
    assert!(text.contains(expected), "{text}");
    assert!(text.contains("\n      at train.py:12 in Net.forward, libframework.so+0x234\n"), "{text}");
    assert!(!text.contains("GPU 1 > GPU 0: 1 from"), "{text}");
    let json = json_of(&folder);
    let sites = serde_json::json!([{"site": "libframework.so+0x234", "calls": 10, "lines": [
        {"file": "/home/u/train.py", "line": 88, "function": "step", "calls": 4, "bytes": 16384, "host_ns": 5200},
        {"file": "/home/u/train.py", "line": 12, "function": "Net.forward", "calls": 1, "bytes": 4096, "host_ns": 1300},
    ], "callers": []}]);
    assert_eq!(json["pairs"][0]["sites"], sites);
    let line = serde_json::json!({"file": "/home/u/train.py", "line": 12, "function": "Net.forward"});
    assert_eq!(json["findings"][0]["sites"][0]["python"], line);
    let calls = report_of(&folder, &["--calls"]);
    assert_eq!(calls.matches(" at train.py:88 in step, libframework.so+0x234\n").count(), 4, "{calls}");
    assert_eq!(calls.matches(" at libframework.so+0x234\n").count(), 6, "{calls}");
    let csv = report_of(&folder, &["--csv"]);
    let lines = "/home/u/train.py:88 in step (4 of 10: 16384 B in 5200 ns); /home/u/train.py:12 in Net.forward (1 of 10: 4096 B in 1300 ns)";
    assert!(csv.contains(&format!(",probably NVLink,{lines},,0\n")), "{csv}");
    let events = checked_events(&report_of(&folder, &["--perfetto", "-"]));
    let found = events.iter().filter(|event| event["args"]["python"] == "/home/u/train.py:88 in step").count();
    assert_eq!(found, 4);
}

#[test]
fn calls_are_lines_in_the_manner_of_strace() {
    let text = report_of(&one_process("calls"), &["--calls"]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 9);
    assert_eq!(
        lines[0],
        "0.000001000 [nodeA] 1234/100 cudaMemcpyPeerAsync(dst=0x7e0000000000, 1, src=0x7f0000000000, 0, 1000000000, \
         stream=0x5500) = cudaSuccess <1.3us> 0>1 staged: access not enabled at app+0x1234"
    );
    assert_eq!(
        lines[1],
        "0.000001100 [nodeA] 1234/100   cuMemcpyPeerAsync(dst=0x7e0000000000, 1, src=0x7f0000000000, 0, 1000000000, \
         stream=0x5500) = CUDA_SUCCESS <900ns> 0>1 staged: access not enabled (device 25.0ms, 40.0 GB/s)"
    );
    assert_eq!(
        lines[4],
        "0.030000000 [nodeA] 1234/100 cudaDeviceEnablePeerAccess(1) = cudaErrorPeerAccessAlreadyEnabled <1.3us> on device 0 \
         [P2P-enable-twice] at app+0x1234"
    );
    assert_eq!(
        lines[7],
        "0.033000000 [nodeA] 1234/100 cudaMemcpyPeer(dst=NULL, ?, src=NULL, ?, 0) <unfinished ...> at app+0x1234"
    );
}

#[test]
fn calls_each_filter_shows_what_it_says() {
    let folder = one_process("filter");
    let cases: &[(&[&str], usize)] = &[
        (&["--pair", "0>1"], 5),
        (&["--pair", "1>0"], 3),
        (&["--pair", "0-1"], 8),
        (&["--api", "cudaMemcpy*"], 5),
        (&["--api", "peeraccess"], 1),
        (&["--api", "cuMemcpyPeerAsync"], 3),
        (&["--since", "0.03"], 5),
        (&["--until", "0.03"], 5),
        (&["--since", "0.0295", "--until", "0.0305"], 1),
        (&["--result", "ok"], 5),
        (&["--result", "error"], 2),
        (&["--result", "704"], 1),
        (&["--result", "cudaErrorInvalidValue"], 1),
        (&["--result", "unfinished"], 2),
        (&["--thread", "100"], 9),
        (&["--thread", "main"], 9),
        (&["--path", "direct"], 3),
        (&["--path", "staged"], 3),
        (&["--path", "broken"], 1),
        (&["--limit", "2"], 2),
        (&["--limit", "2", "--result", "error", "--api", "cuda*"], 2),
    ];
    for (filter, expected) in cases {
        let text = report_of(&folder, &[&["--calls"], *filter].concat());
        assert_eq!(text.lines().count(), *expected, "{filter:?}\n{text}");
    }
    let (_, error, status) = report(&[folder.0.to_str().unwrap(), "--calls", "--pair", "01"]);
    assert!(status == 2 && error.contains("0>1 or 0-1"), "{error}");
}

#[test]
fn filter_is_of_every_format_and_said() {
    let folder = one_process("every");
    let filter = ["--pair", "0>1", "--path", "direct"];
    let of = |format: &str| report_of(&folder, &[&filter[..], &["--format", format]].concat());
    let text = of("text");
    assert!(text.starts_with(
        "Only calls that fit --pair '0>1' --path \"direct\" are counted here.\n1.0 GB of copies were direct"
    ));
    assert!(!text.contains("nothing was staged"), "of what is left out that is not known: {text}");
    assert!(!text.contains("staged:") && !text.contains("\nErrors\n") && text.contains("\ncalls      1, "), "{text}");
    let json: Value = serde_json::from_str(&of("json")).unwrap();
    assert_eq!(json["filter"], "--pair '0>1' --path \"direct\"");
    assert_eq!((json["pairs"][0]["bytes"].as_u64(), json["pairs"].as_array().unwrap().len()), (Some(GB), 1));
    assert_eq!((&json["files"][0]["calls"], &json["unfinished"]), (&Value::from(1), &Value::Array(Vec::new())));
    assert_eq!(of("csv").lines().count(), 2);
    assert_eq!(of("calls").lines().count(), 2, "the driver's call inside it, too");
    let events = checked_events(&of("perfetto"));
    let calls = events.iter().filter(|event| event["ph"] == "X" && event["cat"] != "copy");
    assert_eq!((calls.count(), events.iter().filter(|event| event["ph"] == "s").count()), (2, 1));
    assert!(of("html").contains("--pair '0\\u003e1'"), "the page has it too");
    assert!(json_of(&folder).get("filter").is_none(), "all calls need no word");
    // A call inside one that is not wanted counts for itself.
    let inner = report_of(&folder, &["--api", "cuMemcpyPeerAsync"]);
    assert!(inner.contains("\ncalls      3, ") && inner.contains("GPU 0 > GPU 1       1  1.0 GB  "), "{inner}");
    assert!(!inner.contains("P2P-copy-overlap"), "{inner}");
}

/// Which process used a broken pair is not said by copies that a filter has left out.
#[test]
fn filter_leaves_open_what_others_did_with_a_broken_pair() {
    let folder = Folder::new("broken-ranks");
    for (rank, verified) in ["right", "in use"].into_iter().enumerate() {
        let mut scene = Scene::named(&folder.0, &format!("{rank}.p2ptrace"), 7 + rank as u32, "node");
        scene.gpus(&[("GPU-a", "0000:1a:00.0"), ("GPU-b", "0000:3b:00.0")]);
        scene.note(0, NoteKind::Variable, 0, &["RANK", &rank.to_string()]);
        scene.note(0, NoteKind::Decision, 1, &["verified", &format!("verified={verified}")]);
        scene.call(&Call::copy(1_000_000, (0, 1), 1_000_000_000, DIRECT));
        scene.finish();
    }
    let of_both = report_of(&folder, &[]);
    assert!(of_both.starts_with("Data may be WRONG: "), "{of_both}");
    let of_one = report_of(&folder, &["--rank", "0"]);
    assert!(of_one.contains("all copies that fit are from processes in which it did not fail"), "{of_one}");
}

#[test]
fn filter_that_nothing_can_fit_says_what_there_is() {
    let one = one_process("nothing");
    let job = job("nothing-job");
    for (folder, filter, expected) in [
        (&one, "--pair 0>2", "--pair '0>2': there is no GPU 2; there is GPU 0, GPU 1\n"),
        (&one, "--pair 1-1", "--pair 1-1: nothing was copied between them; there is GPU 0 > GPU 1, GPU 1 > GPU 0\n"),
        (&one, "--api peers", "--api \"peers\": no function with that name was called; there is cuMemcpyPeerAsync, "),
        (&one, "--since 2 --until 1", "--since 2 --until 1: the end is before the start\n"),
        (&one, "--since 9", "--since 9: the report ends 0.033 s after its start\n"),
        (&one, "--rank 0", "--rank \"0\": no process has that rank\n"),
        (&job, "--rank 4", "--rank \"4\": no process has that rank; there is 0, 1, 2, 3\n"),
        (&one, "--thread 101", "--thread \"101\": no thread has that number or name; there is 100, main\n"),
        (&one, "--path fast", "--path \"fast\": no copy took such a path; there is direct, "),
        (&one, "--result 217", "no call fits --result 217; the program got 1 (cudaErrorInvalidValue), 704"),
        (&one, "--pair 0>1 --result unfinished", "no call fits --pair '0>1' --result unfinished\n"),
    ] {
        for format in ["text", "calls"] {
            let arguments: Vec<&str> = filter.split(' ').chain(["--format", format]).collect();
            let (out, error, status) = report(&[&[folder.0.to_str().unwrap()], &arguments[..]].concat());
            let refused = if filter.contains("--until") { 2 } else { 1 };
            assert_eq!((out.as_str(), status), ("", refused), "{filter}");
            assert!(error.starts_with(&format!("p2pshim: {expected}")), "{filter}: {error}");
        }
    }
    assert_eq!(report_of(&job, &["--rank", "2", "--calls"]).lines().count(), 6);
    let of_rank = report_of(&job, &["--rank", "2"]);
    assert!(of_rank.contains("\ncalls      3, ") && of_rank.contains(": pid 52, 1 rank\n"), "{of_rank}");
    for (wrong, expected) in [
        (["--since", "x"], "write seconds, such as 0.25 or 3"),
        (["--result", "foo"], "write ok, error, unfinished, a code such as 217, or the name of one"),
        (["--limit", "x"], "write a whole number from 0 on"),
        (["--format", "xml"], "text, json, csv, html, perfetto, calls"),
    ] {
        let (_, error, status) = report(&[&["traces"], &wrong[..]].concat());
        assert!(status == 2 && error.contains(expected) && !error.contains("digit"), "{error}");
    }
}

#[test]
fn command_lines_are_counted_in_words_that_fit() {
    let folder = Folder::new("lines");
    let line = |count: u32| {
        let name = format!("{count}.p2ptrace");
        let mut scene = Scene::new(&folder.0, &name, count);
        scene.note(0, NoteKind::Program, 0, &[&format!("/bin/{count}")]);
        scene.call(&Call::copy(0, (0, 1), 5, DIRECT));
        scene.finish();
        let text = report_of(&folder, &[]);
        text.lines().find(|line| line.starts_with("program ")).unwrap().to_owned()
    };
    assert_eq!(line(1), "program    /bin/1");
    assert_eq!(line(2), "program    /bin/1, and 1 other command line");
    assert_eq!(line(3), "program    /bin/1, and 2 other command lines");
}

#[test]
fn format_and_output_are_what_the_short_forms_are() {
    let folder = one_process("format");
    let at = |name: &str| folder.0.join(name).to_str().unwrap().to_owned();
    let read = |name: &str| fs::read_to_string(folder.0.join(name)).unwrap();
    for (format, short) in
        [("json", "--json"), ("csv", "--csv"), ("calls", "--calls"), ("html", "--html=-"), ("perfetto", "--perfetto=-")]
    {
        let long = report_of(&folder, &["--format", format]);
        // Calls that have not returned are older each time.
        let of_now = |text: &str| text.replace(|letter: char| letter.is_ascii_digit(), "");
        assert_eq!(of_now(&long), of_now(&report_of(&folder, &[short])), "{format}");
        assert_eq!(report_of(&folder, &["--format", format, "-o", &at("out")]), "");
        assert_eq!(of_now(&read("out")), of_now(&long), "{format}");
    }
    assert_eq!(report_of(&folder, &["--csv", "-o", &at("out")]), "");
    assert!(read("out").starts_with("src_host"));
    let (_, error, status) = report(&[folder.0.to_str().unwrap(), "-o", &at("out.report")]);
    assert!(status == 2 && error.contains("out.report: the suffix is the name of no form"), "{error}");
    for name in ["out", "out.txt", "out.text"] {
        assert_eq!(report_of(&folder, &["-o", &at(name)]), "");
        assert!(read(name).contains("\nCopies\n"), "{name}");
    }
    for (name, begins) in [("out.json", "{"), ("out.csv", "src_host"), ("out.html", "<!"), ("OUT.HTM", "<!")] {
        assert_eq!(report_of(&folder, &["-o", &at(name)]), "");
        assert!(read(name).starts_with(begins), "{name}");
    }
    assert_eq!(report_of(&folder, &["--format", "text", "-o", &at("out.json")]), "");
    assert!(read("out.json").contains("\nCopies\n"), "what was asked for counts more");
    let (_, error, status) = report(&[folder.0.to_str().unwrap(), &format!("--json={}", at("x")), "--html", &at("x")]);
    assert!(status == 2 && error.contains("only one form can go to") && error.contains("x; name another"), "{error}");
}

#[test]
fn lines_are_as_long_as_columns_says() {
    let folder = one_process("columns");
    let longest = |columns: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_p2pshim"));
        let output = command.arg("report").arg(&folder.0).env("COLUMNS", columns).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| line.chars().count()).max().unwrap()
    };
    assert!(longest("0") > 100, "nothing is asked for");
    assert!((50..=60).contains(&longest("60")), "{}", longest("60"));
}

#[test]
fn file_of_another_major_version_says_what_to_do() {
    let folder = one_process("version");
    let path = folder.0.join("app.p2ptrace");
    let mut bytes = fs::read(&path).unwrap();
    assert_eq!(bytes[8..12], [1, 0, 0, 0]);
    bytes[8] = 2;
    fs::write(&path, &bytes).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_p2pshim")).arg("report").arg(&folder.0).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    let expected = "written in version 2.0 of the format; this command reads version 1 only. Read it with the p2pshim command of the \
                    release that wrote it, or record it again";
    assert!(said.contains(expected), "{said}");
}

/// Two hosts with two ranks each. The ranks of a host see the same two GPUs, each its own as ordinal 0.
fn job(name: &str) -> Folder {
    let folder = Folder::new(name);
    for rank in 0..4u64 {
        let host = ["nodeA", "nodeB"][rank as usize / 2];
        let below = folder.0.join(host);
        fs::create_dir_all(&below).unwrap();
        let mut scene = Scene::named(&below, &format!("rank-{rank}.p2ptrace"), 50 + rank as u32, host);
        scene.origin += rank * MS;
        scene.note(0, NoteKind::Variable, 0, &["SLURM_PROCID", &rank.to_string()]);
        let mut gpus = [("GPU-a", "0000:1a:00.0"), ("GPU-b", "0000:3b:00.0")];
        if rank % 2 == 1 {
            gpus.reverse();
        }
        scene.gpus(&gpus);
        for number in 0..3 {
            scene.calls(&Call {
                device: Some((number * 10 * MS + 500, 5_000)),
                ..Call::copy(number * 10 * MS, (0, 1), 1000, DIRECT)
            });
        }
        scene.finish();
    }
    folder
}

#[test]
fn ranks_of_several_hosts_share_gpus_and_time() {
    let folder = job("job");
    let json = json_of(&folder);
    let labels: Vec<&str> = json["gpus"].as_array().unwrap().iter().map(|gpu| gpu["label"].as_str().unwrap()).collect();
    assert_eq!(labels, ["nodeA GPU 0", "nodeA GPU 1", "nodeB GPU 0", "nodeB GPU 1"]);
    assert_eq!(json["gpus"][0]["ordinals"], serde_json::json!({"0": 0, "1": 1}));
    let pairs: Vec<_> =
        json["pairs"].as_array().unwrap().iter().map(|pair| (&pair["src"], &pair["dst"], &pair["calls"])).collect();
    let pair = |src: u64, dst: u64| (Value::from(src), Value::from(dst), Value::from(3));
    let expected = [pair(0, 1), pair(1, 0), pair(2, 3), pair(3, 2)];
    assert_eq!(pairs, expected.iter().map(|(src, dst, calls)| (src, dst, calls)).collect::<Vec<_>>());
    assert_eq!(json["files"][3]["rank"], "3");
    assert_eq!(json["files"][3]["variables"]["SLURM_PROCID"], "3");

    let text = report_of(&folder, &["--calls", "--api", "cudaMemcpy*"]);
    let of: Vec<&str> = text.lines().map(|line| line.split(' ').nth(1).unwrap()).collect();
    let round = ["[nodeA/0]", "[nodeA/1]", "[nodeB/2]", "[nodeB/3]"];
    assert_eq!(of, [round, round, round].concat(), "by the clock on the wall");
    assert!(
        text.lines()
            .nth(1)
            .unwrap()
            .contains("0.001000000 [nodeA/1] 51/100 cudaMemcpyPeerAsync(dst=0x7e0000000000, 1,")
    );
    assert!(text.lines().nth(1).unwrap().contains(" 1>0 direct"), "its device 0 is GPU 1: {text}");

    let text = report_of(&folder, &[]);
    assert!(text.starts_with("12.0 kB of copies were direct; nothing was staged."), "{text}");
    assert!(text.contains("ran on     nodeA, nodeB: 4 processes, 4 ranks\n"), "{text}");
    let both = [folder.0.join("nodeA"), folder.0.join("nodeA/rank-1.p2ptrace")];
    let (out, ..) = report(&[both[0].to_str().unwrap(), both[1].to_str().unwrap(), "--json"]);
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["files"].as_array().unwrap().len(), 2, "a file that is named twice is read once");
}

#[test]
fn gpus_without_a_note_are_not_taken_for_each_other() {
    let folder = Folder::new("unnamed");
    for (name, at) in [("a.p2ptrace", 0), ("b.p2ptrace", MS)] {
        let mut scene = Scene::named(&folder.0, name, 1, "node");
        scene.origin = START + at;
        scene.call(&Call::copy(0, (0, 3), 1000, STAGED));
        scene.finish();
    }
    let json = json_of(&folder);
    let labels: Vec<&str> = json["gpus"].as_array().unwrap().iter().map(|gpu| gpu["label"].as_str().unwrap()).collect();
    assert_eq!(
        labels,
        ["device 0 of a.p2ptrace", "device 3 of a.p2ptrace", "device 0 of b.p2ptrace", "device 3 of b.p2ptrace"]
    );
    assert_eq!(json["lost"]["seconds"], Value::Null);
    assert!(json["lost"]["basis"].as_str().unwrap().contains("not known whether"), "{json}");
}

/// A number of microseconds in nanoseconds.
fn nanos(value: &Value) -> u64 {
    (value.as_f64().unwrap() * 1000.0).round() as u64
}

/// Checks trace events by the rules of their format, and gives them.
fn checked_events(text: &str) -> Vec<Value> {
    let json: Value = serde_json::from_str(text).unwrap();
    let events = json["traceEvents"].as_array().unwrap().clone();
    // Slices by track.
    let mut tracks: BTreeMap<(u64, u64), Vec<(u64, u64)>> = BTreeMap::new();
    let mut flows: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    // Slices that have no end yet, by track.
    let mut open: BTreeMap<(u64, u64), Vec<&Value>> = BTreeMap::new();
    for event in &events {
        for key in ["name", "ph", "ts", "pid", "tid"] {
            assert!(!event[key].is_null(), "{key} of {event}");
        }
        assert!(event["ts"].as_f64().unwrap() >= 0.0 && event["pid"].is_u64() && event["tid"].is_u64(), "{event}");
        match event["ph"].as_str().unwrap() {
            "M" => assert!(event["args"]["name"].is_string() || event["args"]["sort_index"].is_u64(), "{event}"),
            "X" => {
                assert!(event["dur"].as_f64().unwrap() >= 0.0, "{event}");
                let slice = (nanos(&event["ts"]), nanos(&event["ts"]) + nanos(&event["dur"]));
                tracks.entry((event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap())).or_default().push(slice);
            }
            "B" => {
                open.entry((event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap())).or_default().push(event)
            }
            "E" => {
                let track = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
                let begin = open.get_mut(&track).unwrap().pop().unwrap();
                assert_eq!((&begin["name"], &begin["cat"]), (&event["name"], &event["cat"]));
                tracks.entry(track).or_default().push((nanos(&begin["ts"]), nanos(&event["ts"])));
            }
            phase @ ("s" | "f") => {
                flows.entry(event["id"].as_u64().unwrap()).or_default().push(phase);
                assert!(phase == "s" || event["bp"] == "e", "{event}");
            }
            // A mark is of a thread, the rest of a process.
            "i" => {
                let scope = if event["cat"] == "mark" { "t" } else { "p" };
                assert!(
                    event["s"] == scope && ["mark", "decision", "finding"].map(Value::from).contains(&event["cat"])
                );
            }
            "C" => {
                let series = event["args"].as_object().unwrap();
                assert!(series.len() == 1 && series["GB/s"].as_f64().is_some_and(|rate| rate >= 0.0), "{event}");
            }
            other => panic!("{other}"),
        }
    }
    assert!(open.values().all(Vec::is_empty), "{open:?}");
    for flow in flows.values() {
        assert_eq!(flow, &["s", "f"]);
    }
    for event in events.iter().filter(|event| event["ph"] == "s" || event["ph"] == "f") {
        let at = nanos(&event["ts"]);
        let slices = &tracks[&(event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap())];
        assert!(slices.iter().any(|(start, end)| (*start..=*end).contains(&at)), "a flow outside of slices: {event}");
    }
    for slices in tracks.values() {
        for (index, one) in slices.iter().enumerate() {
            for other in &slices[index + 1..] {
                let apart = one.1 <= other.0 || other.1 <= one.0;
                let inside = one.0 <= other.0 && other.1 <= one.1 || other.0 <= one.0 && one.1 <= other.1;
                assert!(apart || inside, "{one:?} {other:?}");
            }
        }
    }
    events
}

#[test]
fn perfetto_events_keep_the_rules_of_their_format() {
    let events = checked_events(&report_of(&one_process("events"), &["--perfetto", "-"]));
    let named =
        |name: &str| events.iter().filter(|event| event["name"] == name && event["ph"] == "X").collect::<Vec<_>>();
    assert_eq!(named("cudaMemcpyPeerAsync").len(), 4);
    let copy = named("1.0 GB staged: access not enabled");
    assert_eq!((copy.len(), &copy[0]["ts"], &copy[0]["dur"]), (1, &2.0.into(), &25_000.0.into()));
    assert_eq!(named("1.0 GB direct")[0]["args"]["gb_per_s"], 400.0);
    let hanging = named("cudaMemcpyPeer")[0];
    assert_eq!(
        (&hanging["args"]["unfinished"], &hanging["dur"]),
        (&true.into(), &0.101.into()),
        "a nanosecond more than to the last that is known"
    );
    // For viewers, that of the driver would else not be inside it.
    let begun_last = named("cuMemcpyPeerAsync").pop().unwrap();
    assert_eq!((&begun_last["ts"], &begun_last["dur"]), (&33_000.1.into(), &0.001.into()));
    assert_eq!(events.iter().filter(|event| event["ph"] == "s").count(), 2);
    let mark = events.iter().find(|event| event["ph"] == "i").unwrap();
    assert_eq!((&mark["name"], &mark["ts"], &mark["tid"]), (&"epoch 2".into(), &30_500.0.into(), &7.into()));

    let events = checked_events(&report_of(&job("events-job"), &["--perfetto", "-"]));
    let processes = events.iter().filter(|event| event["name"] == "process_name");
    let processes: Vec<&str> = processes.map(|event| event["args"]["name"].as_str().unwrap()).collect();
    assert_eq!(
        processes,
        [
            "rank 0: app (nodeA, pid 50)",
            "rank 1: app (nodeA, pid 51)",
            "rank 2: app (nodeB, pid 52)",
            "rank 3: app (nodeB, pid 53)",
            "GPU copies (nodeA)",
            "GPU copies (nodeB)"
        ]
    );
    let first = |pid: u64| events.iter().find(|event| event["ph"] == "X" && event["pid"] == pid).unwrap()["ts"].clone();
    assert_eq!([1, 2, 3, 4].map(first), [0.0, 1000.0, 2000.0, 3000.0].map(Value::from));
}

#[test]
fn perfetto_copies_that_overlap_have_tracks_of_their_own() {
    let folder = Folder::new("overlap");
    let mut scene = Scene::named(&folder.0, "a.p2ptrace", 1, "node");
    scene.gpus(&[("GPU-a", ""), ("GPU-b", "")]);
    for number in 0..20u64 {
        let device = Some((number % 3 * 40_000 + number * 10_000, 25_000));
        scene.call(&Call { device, ..Call::copy(number * 2_000, (0, 1), 4096, DIRECT) });
    }
    // Left by an exception: what comes after it is not inside.
    scene.call(&Call { took: None, ..Call::copy(100_000, (0, 1), 4096, DIRECT) });
    // So long that the file does not have the end of it, with a call inside that ends as late.
    let long = Call { took: Some(3_000_000_123), ..Call::copy(200_000, (0, 1), 4096, DIRECT) };
    scene.call(&long);
    scene.call(&Call { took: Some(2_147_400_000), at: 200_000 + 852_600_000, ..long.inside() });
    scene.finish();
    let events = checked_events(&report_of(&folder, &["--perfetto", "-"]));
    let tracks = events.iter().filter(|event| event["name"] == "thread_name" && event["pid"].as_u64() > Some(1000));
    let tracks: Vec<&str> = tracks.map(|event| event["args"]["name"].as_str().unwrap()).collect();
    assert!((2..6).contains(&tracks.len()) && tracks[..2] == ["GPU 0 > GPU 1", "GPU 0 > GPU 1 (2)"], "{tracks:?}");
    let text = report_of(&folder, &[]);
    assert!(text.contains("left this call by an exception, a cancellation or a jump"), "{text}");
}

#[test]
fn perfetto_tracks_have_numbers_in_the_order_of_pairs() {
    let folder = Folder::new("tracks");
    let mut scene = Scene::named(&folder.0, "a.p2ptrace", 1, "node");
    scene.gpus(&[("GPU-a", ""), ("GPU-b", ""), ("GPU-c", "")]);
    for (number, pair) in [(2, 1), (0, 1), (2, 1), (1, 0), (0, 1)].into_iter().enumerate() {
        let device = Some((number as u64 * 1_000, 25_000));
        scene.call(&Call { device, ..Call::copy(number as u64 * 2_000, pair, 4096, DIRECT) });
    }
    scene.finish();
    let events = checked_events(&report_of(&folder, &["--perfetto", "-"]));
    let names = events.iter().filter(|event| event["name"] == "thread_name" && event["pid"].as_u64() > Some(1000));
    let tracks: BTreeMap<u64, &str> =
        names.map(|event| (event["tid"].as_u64().unwrap(), event["args"]["name"].as_str().unwrap())).collect();
    let expected = [
        (1001, "GPU 0 > GPU 1"),
        (1002, "GPU 0 > GPU 1 (2)"),
        (2001, "GPU 1 > GPU 0"),
        (3001, "GPU 2 > GPU 1"),
        (3002, "GPU 2 > GPU 1 (2)"),
    ];
    assert_eq!(tracks, BTreeMap::from(expected));
}

#[test]
fn perfetto_has_decisions_and_findings_at_their_time_and_the_rate_of_a_pair() {
    let events = checked_events(&report_of(&one_process("instants"), &["--perfetto", "-"]));
    let instants = events.iter().filter(|event| event["ph"] == "i" && event["s"] == "p");
    let instants: Vec<_> =
        instants.map(|event| (&event["name"], &event["ts"], &event["pid"], &event["args"])).collect();
    let decision = serde_json::json!({"from": "GPU 0", "to": "GPU 1"});
    let finding = serde_json::json!({"severity": "hazard", "text": "source and destination overlap by 4096 bytes"});
    let expected = [("GPU 0 > GPU 1: verified and enabled: 394 GB/s", decision), ("P2P-copy-overlap", finding)];
    let expected = expected.map(|(name, args)| (Value::from(name), Value::from(1000.0), Value::from(1), args));
    assert_eq!(
        instants,
        expected.iter().map(|(name, at, process, args)| (name, at, process, args)).collect::<Vec<_>>()
    );
    let counters: Vec<&Value> = events.iter().filter(|event| event["ph"] == "C").collect();
    assert!(counters.iter().all(|event| event["name"] == "GPU 0 > GPU 1"), "no other pair was timed: {counters:?}");
    let rates: Vec<f64> = counters.iter().map(|event| event["args"]["GB/s"].as_f64().unwrap()).collect();
    assert!(rates.contains(&40.0) && rates.contains(&400.0) && rates.last() == Some(&0.0), "{rates:?}");
}

#[test]
fn perfetto_call_that_was_left_lasts_until_the_end_of_what_was_inside() {
    let folder = Folder::new("left");
    let mut scene = Scene::named(&folder.0, "a.p2ptrace", 1, "node");
    scene.gpus(&[("GPU-a", ""), ("GPU-b", "")]);
    let left = Call { took: None, ..Call::copy(1_000, (0, 1), 4096, DIRECT) };
    // Left after the driver had returned, in the driver, and with nothing inside.
    scene.call(&left);
    scene.call(&Call { took: Some(900), ..left.inside() });
    scene.call(&Call { at: 3_000, ..left.clone() });
    scene.call(&Call { at: 3_100, took: None, ..left.inside() });
    scene.call(&Call { at: 5_000, ..left.clone() });
    scene.call(&Call::copy(9_000, (0, 1), 4096, DIRECT));
    scene.finish();
    let events = checked_events(&report_of(&folder, &["--perfetto", "-"]));
    let of = |phase: &str, key: &str| -> Vec<f64> {
        events.iter().filter(|event| event["ph"] == phase).map(|event| event[key].as_f64().unwrap()).collect()
    };
    assert_eq!((of("X", "ts"), of("X", "dur")), (vec![1.1, 9.0], vec![0.9, 1.3]));
    assert_eq!((of("B", "ts"), of("E", "ts")), (vec![1.0, 3.0, 3.1, 5.0], vec![2.0, 3.101, 3.101, 5.001]));
}

#[test]
fn outputs_to_files_are_written_together() {
    let folder = one_process("outputs");
    let at = |name: &str| folder.0.join(name).to_str().unwrap().to_owned();
    let (out, error, status) = report(&[
        folder.0.to_str().unwrap(),
        &format!("--json={}", at("a.json")),
        &format!("--csv={}", at("a.csv")),
        "--calls",
        "--perfetto",
        &at("events.json"),
    ]);
    assert_eq!((error.as_str(), status), ("", 0));
    assert!(out.contains("cudaMemcpyPeerAsync(") && !out.contains("Copies"), "{out}");
    checked_events(&fs::read_to_string(at("events.json")).unwrap());
    assert!(fs::read_to_string(at("a.csv")).unwrap().starts_with("src_host"));
    assert!(fs::read_to_string(at("a.json")).unwrap().starts_with("{\"version\":1,"));
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 4, "nothing unfinished is left");

    let (_, error, status) = report(&[folder.0.to_str().unwrap(), "--json", "--csv"]);
    assert!(status == 2 && error.contains("--json=out.json"), "{error}");
    let (_, error, status) = report(&[folder.0.to_str().unwrap(), "--json=/nowhere/a.json"]);
    assert!(status == 3 && error.contains("/nowhere/a.json cannot be written"), "{error}");
}

#[test]
fn folder_without_traces_says_what_to_do() {
    let folder = Folder::new("empty");
    fs::write(folder.0.join("notes.txt"), "x").unwrap();
    let (out, error, status) = report(&[folder.0.to_str().unwrap()]);
    assert_eq!((out.as_str(), status), ("", 1));
    assert!(error.contains("no trace (*.p2ptrace)") && error.contains("p2pshim run --trace"), "{error}");
    fs::write(folder.0.join("a.run.json"), "{}").unwrap();
    let (_, error, status) = report(&[folder.0.join("a.run.json").to_str().unwrap()]);
    assert!(status == 1 && error.contains("a.run.json: make one with"), "{error}");
    let (_, error, status) = report(&["/nowhere/at/all"]);
    assert!(status == 3 && error.contains("/nowhere/at/all: No such file"), "{error}");
    let (_, error, status) = report(&[folder.0.join("notes.txt").to_str().unwrap()]);
    assert!(status == 3 && error.contains("notes.txt: not a trace of p2pshim"), "{error}");
    let (_, error, status) = report(&[]);
    assert!(status == 2 && error.contains("<PATH>"), "{error}");
}

#[test]
fn files_that_are_newer_or_cut_off_are_told_of_and_the_rest_is_read() {
    let folder = one_process("damaged");
    let good = fs::read(folder.0.join("app.p2ptrace")).unwrap();
    let of = |process: u8| [&good[..24], &[process], &good[25..]].concat();
    let mut newer = of(1);
    newer[8] = 9;
    fs::write(folder.0.join("newer.p2ptrace"), newer).unwrap();
    fs::write(folder.0.join("cut.p2ptrace"), &of(2)[..HEADER_BYTES + CHUNK_BYTES + 100]).unwrap();
    fs::write(folder.0.join("empty.p2ptrace"), "").unwrap();
    fs::write(folder.0.join("begun.p2ptrace"), &of(3)[..1000]).unwrap();
    let (out, error, status) = report(&[folder.0.to_str().unwrap()]);
    assert_eq!((error.as_str(), status), ("", 3));
    let said = [
        "newer.p2ptrace: written in version 9.0",
        "cut.p2ptrace: 1 of 2 parts",
        "empty.p2ptrace: no call yet",
        "begun.p2ptrace: cut off within its header",
    ];
    for part in said {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert!(out.contains("calls      6 in what could be read\n"), "{out}");
    for option in ["--json", "--csv", "--calls"] {
        let (out, error, status) = report(&[folder.0.to_str().unwrap(), option]);
        assert!(status == 3 && !out.is_empty() && said.iter().all(|part| error.contains(part)), "{error}");
    }
    let (_, error, status) = report(&[folder.0.join("newer.p2ptrace").to_str().unwrap()]);
    assert!(status == 3 && error.contains("Read it with the p2pshim command of the release that wrote it"), "{error}");
}

fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// Has a scene begin at another time since 1970.
fn begin_at(path: &std::path::Path, start: u64) {
    let mut bytes = fs::read(path).unwrap();
    // Calibrations: ticks, and two times.
    for calibration in bytes[64..64 + 64 * 24].chunks_mut(24) {
        let real = u64::from_le_bytes(calibration[16..].try_into().unwrap());
        if real != 0 {
            calibration[16..].copy_from_slice(&(real - scene::START + start).to_le_bytes());
        }
    }
    fs::write(path, bytes).unwrap();
}

#[test]
fn last_copy_of_a_process_that_runs_is_told() {
    let folder = Folder::new("waiting");
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let program = std::env::current_exe().unwrap();
    for (process, is_running) in [(std::process::id(), true), (u32::MAX, false)] {
        let mut scene = Scene::named(&folder.0, "a.p2ptrace", process, "node");
        scene.exit = Some(0).filter(|_| !is_running);
        scene.note(0, NoteKind::Host, 0, &["node", boot_id.trim()]);
        scene.note(0, NoteKind::Program, 0, &[program.to_str().unwrap()]);
        scene.call(&Call::copy(0, (0, 1), 5, 1));
        scene.call(&Call { function: MEMCPY_PEER, ..Call::copy(10 * MS, (1, 0), 7, STAGED) });
        scene.call(&Call { function: ENABLE, ..Call::copy(20 * MS, (0, 1), 0, 0) });
        let path = scene.finish();
        begin_at(&path, now() - 5_000 * MS);
        let text = report_of(&folder, &[]);
        let last = "and it still runs: cudaMemcpyPeer, device 1 > device 0, 7 B, staged: access not enabled, from unknown place";
        assert_eq!(text.contains(last), is_running, "{text}");
        assert_eq!(text.contains("\nLast copy calls that returned\n"), is_running, "{text}");
        assert_eq!(text.contains("so far.\nThe last copy call that returned did so "), is_running, "{text}");
        let last = &json_of(&folder)["files"][0]["last_copy"];
        assert_eq!((&last["function"], &last["bytes"]), (&"cudaMemcpyPeer".into(), &7.into()), "{last}");
        assert_eq!(last["age_ns"].as_u64().is_some_and(|age| age > 4_900 * MS), is_running, "{last}");
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn pair_that_is_used_though_it_loses_data_comes_first() {
    let folder = Folder::new("lost");
    let mut scene = Scene::named(&folder.0, "a.p2ptrace", 1, "node");
    scene.gpus(&[("GPU-a", ""), ("GPU-b", "")]);
    scene.call(&Call::copy(0, (0, 1), 1000, DIRECT));
    for time in 0..30 {
        scene.note(time * MS, NoteKind::Decision, 0x100, &[&format!("all is well, {time}"), "verified=right"]);
    }
    scene.note(40 * MS, NoteKind::Decision, 1, &["data does not arrive", "verified=in use"]);
    scene.note(41 * MS, NoteKind::Decision, 1, &["data does not arrive", "verified=in use"]);
    scene.finish();
    let text = report_of(&folder, &[]);
    let first = "Data may be WRONG: 1.0 kB of submitted copies were direct between GPU 0 and GPU 1, where peer access failed verification.\n";
    assert!(text.starts_with(first), "{text}");
    assert!(
        text.contains(
            "\nDecisions\n  0.040 s  GPU 0 > GPU 1: data does not arrive\n  0.000 s  GPU 1 > GPU 0: all is well, 0\n"
        ),
        "{text}"
    );
    assert_eq!(text.matches("data does not arrive").count(), 1, "{text}");
}

#[test]
fn unfinished_call_of_a_process_that_runs_is_said_to_go_on() {
    let folder = Folder::new("running");
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let program = std::env::current_exe().unwrap();
    let what = "cudaMemcpyPeerAsync, device 0 > device 1, 5 B, direct.";
    let (just_now, long_ago) = (0, 20_000 * MS);
    let runs = "is in this call, and the process still runs: cudaMemcpyPeerAsync";
    let ended = "was in this call when the process ended, or became another program: cudaMemcpyPeerAsync";
    for (process, ago, expected, begins, title) in [
        (std::process::id(), long_ago, runs, "A call has not returned for 20.", "Calls that never returned"),
        (std::process::id(), just_now, runs, "", "Calls under way"),
        (
            u32::MAX,
            long_ago,
            ended,
            "The process ended, or became another program, in a call: ",
            "Calls in which a process ended, or became another program",
        ),
    ] {
        let mut scene = Scene::named(&folder.0, "a.p2ptrace", process, "node");
        scene.note(0, NoteKind::Host, 0, &["node", boot_id.trim()]);
        scene.note(0, NoteKind::Program, 0, &[program.to_str().unwrap()]);
        scene.call(&Call { took: None, ..Call::copy(10 * MS, (0, 1), 5, DIRECT) });
        scene.exit = None;
        let path = scene.finish();
        begin_at(&path, now() - 10 * MS - ago);
        let text = report_of(&folder, &[]);
        assert!(text.contains(expected), "{text}");
        let (first, _) = text.split_once('\n').unwrap();
        assert_eq!(first.starts_with(begins) && first.ends_with(what), !begins.is_empty(), "{text}");
        let ended = "Calls in which a process ended, or became another program";
        let titles = ["Calls that never returned", "Calls under way", ended];
        let shown: Vec<&str> = text.lines().filter(|line| titles.contains(line)).collect();
        assert_eq!(shown, [title], "{text}");
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn unfinished_copy_is_of_the_pair_that_the_drivers_call_inside_it_is_of() {
    let folder = Folder::new("pair");
    let mut scene = Scene::named(&folder.0, "app.p2ptrace", 1234, "nodeA");
    scene.gpus(&[("GPU-a", ""), ("GPU-b", ""), ("GPU-c", "")]);
    scene.call(&Call::copy(0, (0, 1), GB, STAGED));
    // The program names a device that the memory is not of.
    let hanging = Call { took: None, path: 0, ..Call::copy(MS, (2, 1), GB, 0) };
    scene.call(&hanging);
    scene.call(&Call { took: None, pair: Some((0, 1)), path: STAGED, ..hanging.inside() });
    scene.finish();
    let json = json_of(&folder);
    let pairs = json["pairs"].as_array().unwrap();
    let counts = |pair: &Value| ["src", "dst", "calls"].map(|name| pair[name].as_u64().unwrap());
    assert_eq!(pairs.iter().map(counts).collect::<Vec<_>>(), [[0, 1, 2]]);
    assert_eq!((&json["unfinished"][0]["src"], &json["unfinished"][0]["dst"]), (&0.into(), &1.into()));
    let text = report_of(&folder, &[]);
    assert!(!text.contains("GPU 2 > "), "{text}");
}

#[test]
fn calls_that_found_no_room_are_told_of() {
    let folder = one_process("dropped");
    let path = folder.0.join("app.p2ptrace");
    let mut bytes = fs::read(&path).unwrap();
    bytes[40] = 77;
    fs::write(&path, bytes).unwrap();
    let folder = folder.0.to_str().unwrap();
    let (text, _, status) = report(&[folder]);
    let first = "The report is incomplete: 77 of 86 records were not written. Counts and bytes are lower bounds.\n";
    assert!(status == 3 && text.starts_with(first), "{status} {text}");
    assert!(text.contains("calls      6, in 9 records; 77 more were not written\n"), "{text}");
    let json: Value = serde_json::from_str(&report(&[folder, "--json"]).0).unwrap();
    assert_eq!(json["files"][0]["dropped"], 77);
}

#[test]
fn tables_say_how_all_ended_and_that_not_all_was_staged() {
    let folder = Folder::new("jobs");
    for (process, job) in [(1, "a"), (2, "b"), (3, "b")] {
        let mut scene = Scene::named(&folder.0, &format!("{process}.p2ptrace"), process, "node");
        scene.note(0, NoteKind::Variable, 0, &["PMIX_NAMESPACE", job]);
        scene.gpus(&[("GPU-a", ""), ("GPU-b", "")]);
        scene.call(&Call::copy(0, (0, 1), 997 * GB / 1000, STAGED));
        scene.call(&Call::copy(MS, (0, 1), 3 * GB / 1000, DIRECT));
        scene.exit = Some(if process == 3 { 4 } else { 0 });
        scene.finish();
    }
    let text = report_of(&folder, &[]);
    let lines: Vec<String> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let has = |end: &str| lines.iter().any(|line| line.ends_with(end));
    assert!(
        has("a ./app … 1 1.0 GB >99 % called exit 0") && has("2 2.0 GB >99 % 1 called exit 0, 1 called exit 4"),
        "{text}"
    );
    assert!(has("pid 2 node 1.0 GB >99 % 0.001 s GPU 0 > GPU 1 called exit 0"), "{text}");
}

const PROGRAM: &str = r#"#include <stdio.h>
__attribute__((noinline)) void *called_from(void) { return __builtin_return_address(0); }
__attribute__((noinline)) void exchange(void) {
    printf("%p\n", called_from());
}
int main(void) {
    exchange();
    FILE *maps = fopen("/proc/self/maps", "r");
    for (int c; (c = getc(maps)) != EOF;) putchar(c);
}
"#;

/// Compiles a program that tells a place in it and its memory, runs it, and has a trace written of a failing call from there.
fn trace_of_program(folder: &Folder, host: &str, origin: u64, build_id: Option<&str>) -> String {
    let (source, program) = (folder.0.join("exchange.c"), folder.0.join("exchange"));
    if !program.exists() {
        fs::write(&source, PROGRAM).unwrap();
        let gcc = Command::new("gcc")
            .args(["-g", "-O1", "-Wl,--build-id=0x1234abcd", "-o"])
            .arg(&program)
            .arg(&source)
            .status();
        assert!(gcc.unwrap().success());
    }
    let output = String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap();
    let mut lines = output.lines();
    let address = lines.next().unwrap();
    let _ = fs::remove_file(folder.0.join("a.p2ptrace"));
    let mut scene = Scene::named(&folder.0, "a.p2ptrace", 1, host);
    scene.origin = origin;
    for line in lines.filter(|line| line.contains(" r-xp ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (first, end) = words[0].split_once('-').unwrap();
        let mut strings = vec![first, end, words[2], words.get(5).copied().unwrap_or_default()];
        strings.extend(build_id);
        scene.note(0, NoteKind::Module, 0, &strings);
    }
    scene.note(10, NoteKind::Site, 1, &[address]);
    scene.call(&Call { result: 1, ..Call::copy(20, (0, 1), 5, 1) });
    scene.finish();
    json_of(folder)["errors"][0]["sites"][0]["site"].as_str().unwrap().to_owned()
}

#[test]
fn sites_get_function_and_line_only_of_the_module_that_ran() {
    let folder = Folder::new("symbols");
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let (here, later) = (host.trim(), u64::MAX / 2);
    let site = trace_of_program(&folder, here, later, None);
    assert!(site.starts_with("exchange+0x") && site.ends_with(" exchange (exchange.c:4)"), "{site}");
    let plain = report_of(&folder, &["--json", "--no-symbols"]);
    let offset = site.split(' ').next().unwrap();
    assert!(plain.contains(&format!("\"{offset}\"")), "{plain}");
    let calls = report_of(&folder, &["--calls"]);
    assert!(calls.trim_end().ends_with(&format!(" at {site}")), "{calls}");
    for (host, origin, build_id, is_it) in [
        (here, 1_000_000_000_000_000_000, None, false),
        ("elsewhere", later, None, false),
        ("elsewhere", 1_000_000_000_000_000_000, Some("build_id=1234ABCD"), true),
        (here, later, Some("build_id=1234abce"), false),
    ] {
        let found = trace_of_program(&folder, host, origin, build_id);
        if is_it {
            assert!(found.ends_with(" exchange (exchange.c:4)"), "{found}");
        } else {
            assert!(found.starts_with("exchange+0x") && !found.contains(' '), "{host} {origin} {build_id:?}: {found}");
        }
    }
    fs::remove_file(folder.0.join("exchange")).unwrap();
    let gone = report_of(&folder, &["--json"]);
    assert!(gone.contains("\"exchange+0x") && !gone.contains("exchange.c"), "{gone}");
}

#[test]
fn path_that_is_no_text_is_read_twice_all_the_same() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let folder = one_process("path");
    fs::rename(folder.0.join("app.p2ptrace"), folder.0.join(OsStr::from_bytes(b"a\xff.p2ptrace"))).unwrap();
    assert_eq!(report_of(&folder, &["--calls"]).lines().count(), 9);
}

#[test]
fn verdict_of_each_kind_of_trace() {
    let folder = Folder::new("verdict");
    let verdict = |calls: &[Call], gpus: &[(&str, &str)]| {
        let _ = fs::remove_file(folder.0.join("a.p2ptrace"));
        let mut scene = Scene::named(&folder.0, "a.p2ptrace", 1, "node");
        scene.gpus(gpus);
        calls.iter().for_each(|call| scene.call(call));
        scene.finish();
        let text = report_of(&folder, &[]);
        text.lines().take_while(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
    };
    let copy = |path: u8| Call { function: MEMCPY_PEER, ..Call::copy(0, (0, 1), GB, path) };
    let two = [("GPU-a", ""), ("GPU-b", "")];
    let enable = Call { function: ENABLE, ..Call::copy(0, (0, 1), 0, 0) };
    let nothing = verdict(&[enable], &two);
    assert!(nothing.starts_with("No copy between GPUs was seen.\n"), "{nothing}");
    assert!(nothing.contains("Loads and stores of kernels"), "{nothing}");
    assert_eq!(
        verdict(&[Call { result: 1, ..copy(0) }], &two),
        "A call failed: cudaMemcpyPeer with cudaErrorInvalidValue.\nThe only copy between GPUs failed."
    );
    let direct = verdict(&[copy(DIRECT)], &two);
    assert!(direct.starts_with("1.0 GB of submitted copies were direct; nothing was staged.\n"), "{direct}");
    assert_eq!(
        verdict(&[copy(BLOCKED)], &two),
        "1.0 GB of submitted copies were staged: peer access between GPU 0 and GPU 1 failed verification.\n\
         Copies are kept off that path. `p2pshim doctor` tests the direct path and the one through the host."
    );
    assert_eq!(
        verdict(&[copy(STAGED), copy(DIRECT)], &two),
        "1.0 GB of submitted copies were direct; 1.0 GB were staged though CUDA offers a direct path.\n\
         Staged because: access not enabled. Peer access between GPU 0 and GPU 1 was not verified in this run; \
         `--access auto` does that first. How much longer that took is not known: no GPU times of the staged copies \
         are known (P2PSHIM_GPU_TIMING says which are taken)."
    );
    let run = serde_json::json!({
        "version": 1, "id": "one", "host": "node", "process": 1, "command": ["./app"], "start": START,
        "end": START + GB, "code": 0, "is_checked": true,
    });
    fs::write(folder.0.join("one.run.json"), run.to_string()).unwrap();
    let staged = verdict(&[copy(STAGED)], &two);
    let checked = "Direct copies between GPU 0 and GPU 1 were right in the check before the program started";
    assert!(staged.contains(&format!(" {checked}; `--access auto` enables access. ")), "{staged}");
    let direct = verdict(&[copy(DIRECT)], &two);
    assert!(direct.ends_with(&format!("\n{checked}.")), "{direct}");
    let mut earlier = run;
    earlier["checked_at"] = (START - 3_600 * GB).into();
    fs::write(folder.0.join("one.run.json"), earlier.to_string()).unwrap();
    let direct = verdict(&[copy(DIRECT)], &two);
    assert!(
        direct.ends_with("\nDirect copies between GPU 0 and GPU 1 were right in the check of 2027-01-15 07:00:00 UTC."),
        "{direct}"
    );
    fs::remove_file(folder.0.join("one.run.json")).unwrap();
    assert_eq!(
        verdict(&[copy(STAGED)], &[]),
        "1.0 GB of submitted copies were staged where it is not known whether the GPUs can access each other."
    );
}

/// Rank `rank` of a host, which sees these GPUs, with such notes about memory that is shared.
fn sharing(folder: &Folder, rank: u32, host: &str, gpus: &[&str], notes: &[(u64, NoteKind, u32, &[&str])]) -> Scene {
    let mut scene = Scene::named(&folder.0, &format!("{rank}.p2ptrace"), 10 + rank, host);
    scene.note(0, NoteKind::Variable, 0, &["RANK", &rank.to_string()]);
    scene.gpus(&gpus.iter().map(|gpu| (*gpu, "")).collect::<Vec<_>>());
    notes.iter().for_each(|(at, kind, number, strings)| scene.note(*at, *kind, *number, strings));
    scene
}

/// The pairs of GPUs, by their labels, with paths and bytes.
fn pairs_of(json: &Value) -> Vec<String> {
    let label = |gpu: &Value| json["gpus"][gpu.as_u64().unwrap() as usize]["label"].as_str().unwrap().to_owned();
    let pairs = json["pairs"].as_array().unwrap().iter().flat_map(|pair| {
        let paths = pair["paths"].as_array().unwrap().iter();
        paths.map(move |path| {
            let between = if path["between_processes"] == true { " between processes" } else { "" };
            format!(
                "{} > {} {}{between} {}",
                label(&pair["src"]),
                label(&pair["dst"]),
                path["path"].as_str().unwrap(),
                path["bytes"]
            )
        })
    });
    pairs.collect()
}

/// One line for each row of copies between processes: `1 push 0 > 1 of [1, 0]: 7`.
fn between_processes_of(json: &Value) -> Vec<String> {
    let all = json["between_processes"].as_array().unwrap().iter();
    all.map(|it| {
        let [file, src, dst, from, to] =
            ["file", "src", "dst", "src_file", "dst_file"].map(|name| it[name].to_string());
        format!("{file} {}s {src} > {dst}, memory of {from} and {to}: {}", it["does"].as_str().unwrap(), it["bytes"])
    })
    .collect()
}

const EXPORTED: NoteKind = NoteKind::Exported;
const OPENED: NoteKind = NoteKind::Opened;

#[test]
fn memory_of_another_process_is_found_by_its_handle_also_from_another_container() {
    for (hosts, gpus, expected) in [
        // The opener sees both GPUs, and has its own names for them.
        (["one", "two"], [&["GPU-b"][..], &["GPU-a", "GPU-b"]], "two GPU 0 > two GPU 1 direct between processes 5000"),
        (["one", "two"], [&["GPU-b"], &["GPU-a"]], "two GPU 0 > one GPU 0 direct between processes 5000"),
        (["one", "one"], [&["GPU-b"], &["GPU-a"]], "GPU 1 > GPU 0 direct between processes 5000"),
    ] {
        let folder = Folder::new("handles");
        let owner = sharing(&folder, 0, hosts[0], gpus[0], &[(10, EXPORTED, 0, &["pool", "5eed", "4096"])]);
        owner.finish();
        // Handles are of one way to share, so that this is another one.
        let other = sharing(&folder, 2, hosts[0], gpus[0], &[(10, EXPORTED, 0, &["ipc", "5eed", "4096"])]);
        other.finish();
        let mut opener = sharing(&folder, 1, hosts[1], gpus[1], &[(20, OPENED, 130, &["pool", "5eed", "4096", "0"])]);
        opener.call(&Call::copy(0, (0, 130), 5000, DIRECT));
        opener.finish();
        let json = json_of(&folder);
        assert_eq!(pairs_of(&json), [expected], "{hosts:?}");
        let [row] = &between_processes_of(&json)[..] else { panic!("{json:#}") };
        assert!(row.starts_with("1 pushs") && row.ends_with("memory of 1 and 0: 5000"), "{row}");
    }
}

#[test]
fn memory_by_a_descriptor_is_found_if_only_one_gpu_fits() {
    let vmm = |bytes: &'static str| -> &'static [&'static str] {
        match bytes {
            "4096" => &["vmm", "", "4096"],
            _ => &["vmm", "", "8192"],
        }
    };
    type Exports = &'static [(u32, u64, u32, &'static str)];
    // Rank, time, device and bytes of what is shared; the pair, and whose memory it is.
    let cases: [(Exports, &str, &str); 7] = [
        (&[(0, 10, 1, "4096")], "GPU 0 > GPU 1 direct between processes 5000", "1 and 0"),
        (&[(0, 10, 0, "4096")], "GPU 0 > GPU 0 same-device between processes 5000", "1 and 0"),
        (&[(0, 10, 1, "8192")], "GPU 0 > another process direct between processes 5000", "1 and null"),
        (&[(0, 40_000_000, 1, "4096")], "GPU 0 > another process direct between processes 5000", "1 and null"),
        (&[(1, 10, 1, "4096")], "GPU 0 > another process direct between processes 5000", "1 and null"),
        (&[(0, 10, 1, "4096"), (2, 10, 1, "4096")], "GPU 0 > GPU 1 direct between processes 5000", "1 and null"),
        (
            &[(0, 10, 1, "4096"), (2, 10, 0, "4096")],
            "GPU 0 > another process direct between processes 5000",
            "1 and null",
        ),
    ];
    for (exports, pair, owners) in cases {
        let folder = Folder::new("descriptors");
        for rank in 0..3 {
            let mut scene = sharing(&folder, rank, "one", &["GPU-a", "GPU-b"], &[]);
            for &(_, at, device, bytes) in exports.iter().filter(|(owner, ..)| *owner == rank) {
                scene.note(at, EXPORTED, device, vmm(bytes));
            }
            if rank == 1 {
                scene.note(20, OPENED, 128, &["vmm", "", "4096", "0"]);
                scene.call(&Call::copy(100, (0, 128), 5000, DIRECT));
            }
            scene.finish();
        }
        let json = json_of(&folder);
        assert_eq!(pairs_of(&json), [pair], "{exports:?}");
        let [row] = &between_processes_of(&json)[..] else { panic!("{json:#}") };
        assert!(row.ends_with(&format!("memory of {owners}: 5000")), "{exports:?}: {row}");
    }
}

#[test]
fn text_lists_copies_between_processes_and_their_owners() {
    let folder = Folder::new("processes");
    let shared: [(u64, NoteKind, u32, &[&str]); 2] =
        [(10, EXPORTED, 1, &["ipc", "aa", "4096"]), (10, EXPORTED, 0, &["ipc", "bb", "4096"])];
    sharing(&folder, 0, "one", &["GPU-a", "GPU-b"], &shared).finish();
    let opened: [(u64, NoteKind, u32, &[&str]); 3] = [
        (20, OPENED, 128, &["ipc", "aa", "4096", "0"]),
        (20, OPENED, 129, &["ipc", "bb", "4096", "0"]),
        (20, OPENED, 130, &["ipc", "cc", "4096", "0"]),
    ];
    let mut opener = sharing(&folder, 1, "one", &["GPU-a", "GPU-b"], &opened);
    for (at, pair, bytes) in
        [(100, (0, 128), 5000), (200, (128, 0), 6000), (300, (0, 129), 7000), (400, (0, 130), 8000)]
    {
        opener.calls(&Call { function: MEMCPY_PEER, ..Call::copy(at * 100, pair, bytes, DIRECT) });
    }
    opener.calls(&Call { function: MEMCPY_PEER, ..Call::copy(50_000, (0, 1), 9000, DIRECT) });
    opener.finish();
    let text = report_of(&folder, &[]);
    let table = "\
Copies between processes
  process  copies   bytes  from   memory of  to         memory of        opened by
  rank 1        1  8.0 kB  GPU 0  rank 1     not known  another process  ipc
  rank 1        1  7.0 kB  GPU 0  rank 1     GPU 0      rank 0           ipc
  rank 1        1  6.0 kB  GPU 1  rank 0     GPU 0      rank 1           ipc
  rank 1        1  5.0 kB  GPU 0  rank 1     GPU 1      rank 0           ipc
";
    assert!(text.contains(table), "{text}");
    for line in [
        "  GPU 0 > GPU 1                 1  9.0 kB  direct ",
        "                                1  5.0 kB  direct, between processes ",
        "  GPU 0 > GPU 0                 1  7.0 kB  same-device, between processes ",
        "  GPU 0 > another process       1  8.0 kB  direct, between processes ",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(text.contains("\nGPUs       GPU 0 NVIDIA H200, GPU 1 NVIDIA H200\n"), "{text}");
    let calls = report_of(&folder, &["--calls", "--pair", "0>1"]);
    assert_eq!(calls.lines().filter(|line| line.contains(" 0>1 direct")).count(), 4, "{calls}");
    assert!(calls.contains("dst=0x7e0000000000, another process, src=0x7f0000000000, 0, 5000"), "{calls}");
    assert!(report_of(&folder, &["--calls"]).contains(" 0>another process direct"), "{calls}");
    let events = report_of(&folder, &["--perfetto=-"]);
    assert!(
        events.contains("\"to\":\"another process, memory of another process\"")
            && events.contains("\"from\":\"GPU 1, memory of rank 0\""),
        "{events}"
    );
    let csv = report_of(&folder, &["--csv"]);
    assert_eq!(csv.lines().filter(|line| line.ends_with(",1")).count(), 4, "{csv}");
    assert_eq!(pairs_of(&json_of(&folder)).len(), 5);
}

#[test]
fn nvlink_is_explained_by_copies_between_processes_if_it_is_known_where_memory_lies() {
    let nvlink = |owns: bool| {
        let folder = Folder::new("nvlink-processes");
        let exported: [(u64, NoteKind, u32, &[&str]); 1] = [(10, EXPORTED, 0, &["ipc", "aa", "4096"])];
        sharing(&folder, 0, "nodeA", &["GPU-b"], if owns { &exported } else { &[] }).finish();
        let opened: (u64, NoteKind, u32, &[&str]) = (20, OPENED, 128, &["ipc", "aa", "4096", "0"]);
        let mut opener = sharing(&folder, 1, "nodeA", &["GPU-a"], &[opened]);
        opener.calls(&Call { function: MEMCPY_PEER, ..Call::copy(0, (0, 128), 3 * GB, DIRECT) });
        opener.finish();
        fs::write(folder.0.join("nodeA.nvlink.json"), READING).unwrap();
        json_of(&folder)["nvlink"].clone()
    };
    let (known, unknown) = (nvlink(true), nvlink(false));
    assert_eq!(known["text"], "NVLink carried 3.0 GB between these GPUs; copies explain all of it.");
    assert_eq!(known["copied_bytes"], 3 * GB);
    assert_eq!(unknown["text"], "NVLink carried 3.0 GB between these GPUs; no copy in the trace explains it.");
    let more = "3.0 GB of copies with memory of other processes can be a part: it is not known on which GPU that lies.";
    assert!(unknown["more"].as_str().unwrap().ends_with(more), "{unknown}");
}

#[test]
fn memory_on_a_gpu_that_the_opener_names_is_of_a_process_only_if_one_alone_shares_memory_there() {
    for (second, owner) in [("GPU-c", "1 and 0"), ("GPU-b", "1 and null")] {
        let folder = Folder::new("owners");
        for (rank, gpu, handle) in [(0, "GPU-b", "aa"), (2, second, "bb")] {
            let exported: [(u64, NoteKind, u32, &[&str]); 1] = [(10, EXPORTED, 0, &["ipc", handle, "4096"])];
            sharing(&folder, rank, "one", &[gpu], &exported).finish();
        }
        // All memory of that GPU has one number, and the note is about the first that was opened.
        let opened: [(u64, NoteKind, u32, &[&str]); 1] = [(20, OPENED, 128, &["ipc", "aa", "4096", "0", "gpu=GPU-b"])];
        let mut opener = sharing(&folder, 1, "one", &["GPU-a"], &opened);
        opener.call(&Call::copy(100, (0, 128), 5000, DIRECT));
        opener.finish();
        let json = json_of(&folder);
        assert_eq!(pairs_of(&json), ["GPU 1 > GPU 0 direct between processes 5000"], "{second}");
        let [row] = &between_processes_of(&json)[..] else { panic!("{json:#}") };
        assert!(row.ends_with(&format!("memory of {owner}: 5000")), "{second}: {row}");
    }
}
