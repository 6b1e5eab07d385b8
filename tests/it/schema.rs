//! The output of `p2pshim report --json`, `compare --json`, `doctor --json` and `doctor --env=json` is as docs/schema/ says, by tests/schema/check.py.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::scene::{Call, DIRECT, Folder, OVERLAP, STAGED, Scene};
use crate::support::{Program, path};
use p2pshim_trace::NoteKind;

const MS: u64 = 1_000_000;

/// Runs tests/schema/check.py; what it prints is what is wrong.
fn check(name: &str, files: &[PathBuf]) {
    let output = Command::new("python3").arg(path("tests/schema/check.py")).arg(name).args(files).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// Puts what a command prints into a file. Its status may be any of these.
fn print(command: &mut Command, file: PathBuf, statuses: &[i32]) -> PathBuf {
    let output = command.output().unwrap();
    let status = output.status.code().unwrap();
    assert!(statuses.contains(&status), "{status}: {}", String::from_utf8_lossy(&output.stderr));
    fs::write(&file, &output.stdout).unwrap();
    file
}

fn report(traces: &Path, file: PathBuf) -> PathBuf {
    print(Command::new(crate::support::command()).arg("report").arg(traces).arg("--json"), file, &[0, 3])
}

/// Programs with Python, a static runtime, errors, decisions, and one that is killed in a call; and a file that is none.
fn traces_of_programs(traces: &Path) {
    let returned = crate::support::Scratch::new("returned");
    let programs = [
        Program::case("guide_sample-12"),
        Program::case("never_enables-12").env("P2PSIM_FAULT", "drop:0>1"),
        Program::case("call_sites-frames"),
        Program::case("by_hand-12"),
        Program::case("unshared"),
        Program::case("unordered-12").args(&["event", "wrong"]).env("P2PSHIM_ORDER", "on"),
        Program::case("ends_suddenly-12").arg("kill").arg(returned.to_string_lossy()),
    ];
    for program in programs {
        let program = program.env("P2PSHIM_GPU_TIMING", "all").env("P2PSHIM_LOG", "off").findings_apart();
        program.env("P2PSHIM_TRACE", traces.to_string_lossy()).preloaded();
    }
    fs::write(traces.join("none.p2ptrace"), "nothing").unwrap();
}

/// NVLink's traffic while the made-up process ran.
const READING: &str = r#"{"version":1,"host":"one","start":1799999999000000000,"end":1800000001000000000,"killed":false,
    "in_container":false,"gpus":[{"uuid":"GPU-a","sent":[7,3000000007],"received":[0,0],"ours":true,"others":[]},
    {"uuid":"GPU-b","sent":[0,0],"received":[0,3000000000],"ours":true,"others":[1234]}]}"#;

/// A process with all that a trace can hold.
fn made_up_trace(traces: &Path) {
    let mut scene = Scene::named(traces, "one.p2ptrace", 1, "one");
    scene.gpus(&[("GPU-a", "0000:1a:00.0"), ("GPU-b", "")]);
    scene.note(0, NoteKind::Module, 0, &["400000", "500000", "0", "/nowhere/app"]);
    scene.note(
        0,
        NoteKind::Site,
        1,
        &["401234", "python=/home/u/train.py", "line=88", "function=step", "callers=402345"],
    );
    scene.note(MS, NoteKind::Decision, 1, &["verified", "verified=right"]);
    scene.note(MS, NoteKind::Failed, 1, &["cudaStreamSynchronize", "700", "cudaErrorIllegalAddress", "0"]);
    scene.note(MS, NoteKind::Failed, 1, &["cuMemsetD8Async", "1", "CUDA_ERROR_INVALID_VALUE", "0", "1"]);
    scene.note(MS, NoteKind::Context, 1, &["1", "1"]);
    let kernel = ["cuLaunchKernel of ncclDevKernel_AllReduce", "may use", "stream 0x8"];
    let copy = ["cudaMemcpyPeerAsync", "reads", "stream 0x10"];
    scene.note(MS, NoteKind::Race, 0x1_0001, &[&["possible race"], &kernel[..], &copy[..], &["4096", "0"]].concat());
    scene.note(MS, NoteKind::Opened, 128, &["ipc", "5eed", "4096", "0"]);
    scene.calls(&Call::copy(MS / 2, (0, 128), 4096, DIRECT));
    let negative = ["source and destination overlap", "size=-1", "function=cudaMemcpyPeer"];
    scene.note(MS, NoteKind::Finding, OVERLAP.into(), &negative);
    scene.note(2 * MS, NoteKind::Mark, 100, &["epoch 1"]);
    scene.calls(&Call { device: Some((MS, 5000)), rules: vec![OVERLAP], ..Call::copy(0, (0, 1), 4096, DIRECT) });
    scene.calls(&Call { result: 1, ..Call::copy(MS, (1, 0), 4096, STAGED) });
    scene.calls(&Call { device: Some((MS, 50_000)), ..Call::copy(MS, (0, 1), 4096, STAGED) });
    scene.call(&Call { took: None, ..Call::copy(2 * MS, (1, 0), 4096, DIRECT) });
    scene.finish();
    fs::write(traces.join("one.nvlink.json"), READING).unwrap();
    fs::write(traces.join("one.run.json"), RUN).unwrap();
}

/// A program that `p2pshim run` ran and of which there is no trace.
const RUN: &str = r#"{"version":1,"id":"one-7-1","host":"one","process":7,"command":["/bin/false"],"start":1799999999000000000,
    "end":1800000001000000000,"code":1,"signal":null}"#;

#[test]
fn report_json_is_what_its_schema_says() {
    let files = Folder::new("schema");
    let mut printed = Vec::new();
    for (name, write) in [("programs", traces_of_programs as fn(&Path)), ("made-up", made_up_trace)] {
        let traces = Folder::new(name);
        write(&traces.0);
        printed.push(report(&traces.0, files.0.join(name)));
    }
    check("report", &printed);
}

#[test]
fn compare_json_is_what_its_schema_says() {
    let files = Folder::new("schema");
    let sides = ["before", "after"].map(Folder::new);
    for (side, path) in sides.iter().zip([STAGED, DIRECT]) {
        let mut scene = Scene::named(&side.0, "one.p2ptrace", 1, "one");
        scene.note(0, NoteKind::Variable, 0, &["RANK", "0"]);
        scene.gpus(&[("GPU-a", ""), ("GPU-b", "")]);
        scene.calls(&Call { device: Some((MS, 5000)), rules: vec![OVERLAP], ..Call::copy(0, (0, 1), 4096, path) });
        scene.calls(&Call { result: 1, ..Call::copy(MS, (1, 0), 4096, path) });
        scene.finish();
    }
    let mut compare = Command::new(crate::support::command());
    compare.arg("compare").args([&sides[0].0, &sides[1].0]).arg("--json");
    check("compare", &[print(&mut compare, files.0.join("compare"), &[0])]);
}

#[test]
fn doctor_json_is_what_its_schema_says() {
    let files = Folder::new("schema");
    let mut printed = Vec::new();
    for (name, fault, devices) in [
        ("right", "", "2"),
        ("lost", "lost:0>1", "2"),
        ("untested", "code:cuModuleLoadData:221@1", "2"),
        ("full", "window:0>1", "2"),
        ("none", "", "0"),
    ] {
        let mut doctor = Command::new(crate::support::command());
        doctor.args(["doctor", "--json", "--timeout", "600"]).env("P2PSIM_FAULT", fault).env("P2PSIM_DEVICES", devices);
        doctor.env("LD_LIBRARY_PATH", path("target/sim/lib")).env("XDG_CACHE_HOME", &files.0);
        match name {
            "full" => doctor.args(["--full", "0>1"]),
            "lost" => doctor.args(["--quick", "--nccl=/nowhere/libnccl.so.2"]),
            "untested" => doctor.arg("--quick"),
            _ => &mut doctor,
        };
        if name == "lost" {
            let root = files.0.join("machine");
            fs::create_dir_all(root.join("dev")).unwrap();
            fs::write(root.join("dev/kmsg"), "4,1,1,-;NVRM: Xid (PCI:0000:01:00): 31, pid=1\n").unwrap();
            doctor.env("P2PSIM_ROOT", root).env("P2PSIM_NVLINK", &files.0);
        }
        printed.push(print(&mut doctor, files.0.join(name), &[0, 1, 2, 3]));
    }
    check("doctor", &printed);
    let mut doctor = Command::new(crate::support::command());
    doctor.args(["doctor", "--sim", "2", "--quick", "--env=json"]).env("P2PSIM_FAULT", "ipc:0>1");
    check("env", &[print(doctor.env("XDG_CACHE_HOME", &files.0), files.0.join("env"), &[1])]);
}

/// A file of YAML below .github/.
fn github(file: &str) -> serde_json::Value {
    serde_yaml_ng::from_str(&fs::read_to_string(path(&format!(".github/{file}"))).unwrap()).unwrap()
}

#[test]
fn workflow_is_what_the_schema_of_github_says_and_runs_what_a_developer_runs() {
    let files = Folder::new("workflow");
    let workflow = github("workflows/ci.yml");
    let as_json = files.0.join("ci.json");
    fs::write(&as_json, workflow.to_string()).unwrap();
    check("workflow", &[as_json]);
    let steps = workflow["jobs"]["check"]["steps"].as_array().unwrap();
    assert!(steps.iter().any(|step| step["run"] == ".ci/run"), "{steps:?}");
    assert!(!workflow.to_string().contains("secrets."), "{workflow}");
    assert_eq!(workflow["permissions"], serde_json::json!({"contents": "read"}));
}

#[test]
fn forms_of_issues_have_what_github_needs_and_ask_for_the_doctor() {
    for name in ["bug.yml", "wish.yml"] {
        let form = github(&format!("ISSUE_TEMPLATE/{name}"));
        let has_text = |value: &serde_json::Value| value.as_str().is_some_and(|text| !text.is_empty());
        assert!(has_text(&form["name"]) && has_text(&form["description"]), "{name}");
        let mut ids = Vec::new();
        for part in form["body"].as_array().unwrap() {
            if part["type"] == "markdown" {
                assert!(has_text(&part["attributes"]["value"]), "{name}: {part}");
                continue;
            }
            assert!(part["type"] == "textarea" || part["type"] == "input", "{name}: {part}");
            assert!(has_text(&part["attributes"]["label"]), "{name}: {part}");
            let id = part["id"].as_str().unwrap().to_owned();
            assert!(!ids.contains(&id), "{name}: {id} is there twice");
            ids.push(id);
        }
        assert!(!ids.is_empty() && form.to_string().contains("`p2pshim doctor --issue`"), "{name}");
    }
    assert!(github("ISSUE_TEMPLATE/bug.yml").to_string().contains("`p2pshim run ./app`"));
}
