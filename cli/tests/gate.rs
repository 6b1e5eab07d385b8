//! `p2pshim report --fail-on`: each condition is told where it is true, and only there.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails so")]

mod scene;

use std::fs;
use std::process::{Command, Output};

use p2pshim_trace::{NoteKind, Path, Why};
use scene::{BLOCKED, Call, DIRECT, ENABLE_TWICE, Folder, NEVER_ENABLED, OVERLAP, STAGED, Scene};

const MS: u64 = 1_000_000;
const MIB: u64 = 1 << 20;
const START_UP: u8 = Path::Staged(Why::NotYetWorth).number();

fn copy(path: u8) -> Call {
    Call::copy(0, (0, 1), MIB, path)
}

/// A copy whose GPU took so many microseconds.
fn timed(micros: u64) -> Call {
    Call { device: Some((MS, micros * 1000)), ..copy(DIRECT) }
}

fn write(folder: &Folder, name: &str, calls: &[Call], notes: &[(NoteKind, u32, &[&str])]) {
    // Two of one process would be one trace.
    let process = 1 + fs::read_dir(&folder.0).unwrap().count() as u32;
    let mut scene = Scene::named(&folder.0, name, process, "node");
    scene.gpus(&[("GPU-a", ""), ("GPU-b", "")]);
    notes.iter().for_each(|(kind, number, strings)| scene.note(0, *kind, *number, strings));
    for (number, call) in calls.iter().enumerate() {
        scene.call(&Call { at: number as u64 * 10 * MS, ..call.clone() });
    }
    scene.finish();
}

fn judged(folder: &Folder, options: &[&str]) -> (String, i32) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_p2pshim"));
    let Output { stderr, status, .. } = command.arg("report").arg(&folder.0).args(options).output().unwrap();
    (String::from_utf8(stderr).unwrap(), status.code().unwrap())
}

/// The words about a trace of these calls, and the exit status.
fn said_with(calls: &[Call], notes: &[(NoteKind, u32, &[&str])], condition: &str) -> (String, i32) {
    let folder = Folder::new("gate");
    write(&folder, "a.p2ptrace", calls, notes);
    judged(&folder, &["--fail-on", condition])
}

#[track_caller]
fn assert_kept(calls: &[Call], condition: &str) {
    assert_eq!(said_with(calls, &[], condition), (String::new(), 0), "{condition}");
}

#[track_caller]
fn assert_broken(calls: &[Call], condition: &str, why: &str) {
    let (said, status) = said_with(calls, &[], condition);
    assert_eq!((said.as_str(), status), (format!("p2pshim: exit 120: --fail-on {condition}: {why}.\n").as_str(), 120));
}

#[test]
fn staged_copies_fail_and_the_first_of_a_pair_do_not() {
    let why = "2.1 MB in 2 copies were staged, GPU 0 > GPU 1 (access not enabled). Run without `--access app` (P2PSHIM_ACCESS=app), so that \
               p2pshim enables peer access; or call cudaDeviceEnablePeerAccess on both devices of a pair";
    assert_broken(&[copy(STAGED), copy(DIRECT), copy(STAGED)], "staged", why);
    assert_kept(&[copy(START_UP), copy(DIRECT)], "staged");
    let small = Call { bytes: 4096, ..copy(START_UP) };
    assert_kept(&vec![small.clone(); 17], "staged");
    let (said, status) = said_with(&vec![small; 18], &[], "staged");
    assert!(
        status == 120 && said.contains("in 18 copies were staged, GPU 0 > GPU 1 (not yet worth enabling)"),
        "{said}"
    );
    assert!(said.contains("counts first copies for each pair of contexts, and anew when a context ends"), "{said}");
    assert_eq!(said_with(&vec![copy(START_UP); 4], &[], "staged").1, 120, "more than 1 MiB and a copy");
    assert_kept(&[Call { pair: Some((0, 0)), ..copy(STAGED) }], "staged");
    assert_kept(&[Call { result: 1, ..copy(STAGED) }], "staged");
}

#[test]
fn staged_bytes_are_those_of_all_pairs_and_may_be_as_many_as_said() {
    let back = || Call { pair: Some((1, 0)), bytes: 3 * MIB, ..copy(BLOCKED) };
    let why = "4.2 MB in 2 copies were staged, most of it GPU 1 > GPU 0 (broken: failed verification). These pairs failed verification: \
               direct copies arrive wrong, or hang. `p2pshim doctor` names the likely cause, such as an IOMMU, and tests staged copies too";
    assert_broken(&[copy(STAGED), back()], "staged=4194303", why);
    assert_kept(&[copy(STAGED), back()], "staged=4MiB");
}

#[test]
fn runs_are_judged_one_by_one() {
    let folder = Folder::new("gate");
    for run in ["node-1-1", "node-2-1"] {
        let id: &[&str] = &["P2PRUN_ID", run];
        write(&folder, &format!("{run}.p2ptrace"), &[copy(STAGED)], &[(NoteKind::Variable, 0, id)]);
    }
    assert_eq!(judged(&folder, &["--fail-on", "staged=1MiB"]), (String::new(), 0));
    assert_eq!(judged(&folder, &["--fail-on", "staged=1MB"]).1, 120);
}

#[test]
fn filter_narrows_what_is_judged() {
    let folder = Folder::new("gate");
    write(&folder, "a.p2ptrace", &[copy(DIRECT), Call { pair: Some((1, 0)), ..copy(STAGED) }], &[]);
    assert_eq!(judged(&folder, &["--fail-on", "staged", "--pair", "0>1"]), (String::new(), 0));
    assert_eq!(judged(&folder, &["--fail-on", "staged", "--pair", "1>0"]).1, 120);
}

#[test]
fn hazards_and_errors_fail_and_other_findings_do_not() {
    let with = |rules| [Call { rules, ..copy(DIRECT) }];
    let why =
        "hazard P2P-copy-overlap in at least 1 call at app+0x1234. `p2pshim explain P2P-copy-overlap` says what to do";
    let notes: &[(NoteKind, u32, &[&str])] =
        &[(NoteKind::Module, 0, &["400000", "500000", "0", "/nowhere/app"]), (NoteKind::Site, 1, &["401234"])];
    let (said, status) = said_with(&with(vec![OVERLAP]), notes, "hazard");
    assert_eq!((said.as_str(), status), (format!("p2pshim: exit 120: --fail-on hazard: {why}.\n").as_str(), 120));
    assert_kept(&with(vec![ENABLE_TWICE, NEVER_ENABLED]), "hazard");
    assert_kept(&with(vec![OVERLAP]), "error");
    for condition in ["finding", "finding=P2P-copy-overlap", "finding=p2p-COPY-overlap"] {
        let (said, status) = said_with(&with(vec![OVERLAP]), notes, condition);
        assert_eq!(
            (said.as_str(), status),
            (format!("p2pshim: exit 120: --fail-on {condition}: {why}.\n").as_str(), 120)
        );
    }
    // A note, and a finding of another name.
    assert_kept(&with(vec![ENABLE_TWICE]), "finding");
    assert_kept(&with(vec![OVERLAP]), "finding=P2P-enable-twice");
    assert_eq!(said_with(&with(vec![ENABLE_TWICE]), notes, "finding=P2P-enable-twice").1, 120);
    let (said, status) = said_with(&[Call { result: 1, ..copy(DIRECT) }], notes, "error");
    let why = "a call failed, cudaMemcpyPeerAsync with cudaErrorInvalidValue at app+0x1234. `p2pshim explain cudaErrorInvalidValue` says when that is returned";
    assert_eq!((said.as_str(), status), (format!("p2pshim: exit 120: --fail-on error: {why}.\n").as_str(), 120));
    // Peer access that is enabled already.
    assert_kept(&[Call { result: 704, ..copy(DIRECT) }], "error");
    assert_kept(&[Call { result: 1, ..copy(DIRECT) }], "hazard");
}

#[test]
fn direct_copies_of_a_pair_that_was_not_verified_fail() {
    let decided = |verified: &str| -> (String, i32) {
        let verdict = format!("verified={verified}");
        said_with(&[copy(DIRECT)], &[(NoteKind::Decision, 1, &["verified", &verdict])], "unverified")
    };
    assert_eq!(decided("right"), (String::new(), 0));
    let (said, status) = decided("in use");
    assert!(
        status == 120 && said.contains("1.0 MB in 1 copy were direct, GPU 0 > GPU 1, although the pair failed"),
        "{said}"
    );
    let (said, status) = decided("unknown");
    assert!(status == 120 && said.contains("GPU 0 > GPU 1, and the pair was not verified. "), "{said}");
    assert_kept(&[copy(STAGED)], "unverified");
}

#[test]
fn copies_by_hand_fail_if_samples_show_that_they_are_that() {
    let way_of = |samples: [u32; 2], condition: &str| {
        let folder = Folder::new("gate");
        let mut scene = Scene::named(&folder.0, "a.p2ptrace", 1, "node");
        scene.gpus(&[("GPU-a", ""), ("GPU-b", "")]);
        (0..3).for_each(|number| scene.by_hand(number * 10 * MS, samples));
        scene.finish();
        judged(&folder, &["--fail-on", condition])
    };
    let [same, differ, unknown] = [[5, 5], [5, 6], [0, 5]];
    let passes = "p2pshim: --fail-on staged passes, but 3.1 MB in 3 copies went through the host by the program's own copies, \
                  GPU 0 > GPU 1: `--fail-on bounce` checks that.\n";
    assert_eq!(way_of(same, "staged"), (passes.to_owned(), 0));
    assert!(!way_of(same, "staged,bounce").0.contains("--fail-on staged passes"), "it fails by itself");
    assert_eq!([way_of(differ, "staged"), way_of(same, "hazard")], [(String::new(), 0), (String::new(), 0)]);
    let (said, status) = way_of(same, "bounce");
    assert!(status == 120 && said.contains("3.1 MB in 3 copies went through the host by the program's own copies, GPU 0 > GPU 1. Copy directly from GPU to GPU, such as"), "{said}");
    assert_eq!(way_of(differ, "bounce"), (String::new(), 0));
    let (said, status) = way_of(unknown, "bounce");
    assert!(status == 120 && said.contains("GPU 0 > GPU 1: p2pshim did not compare these bytes"), "{said}");
    assert_kept(&[copy(STAGED), copy(DIRECT)], "bounce");
}

#[test]
fn slow_pairs_fail_and_those_of_which_no_rate_is_known() {
    // 1 MiB in 10 us is 104.9 GB/s.
    assert_kept(&[timed(10)], "slow=100");
    let why = "copies of at least 1 MiB GPU 0 > GPU 1 made 104.9 GB/s (1 of 1 timed). `p2pshim doctor` measures what the pair can do";
    assert_broken(&[timed(10)], "slow=110", why);
    let small = || Call { bytes: 4096, ..timed(10) };
    assert_broken(&[small()], "slow=1", "no copy of at least 1 MiB was seen, so no rate is known");
    let why = "no copy of at least 1 MiB GPU 0 > GPU 1 was timed. Copies that are synchronous or on the legacy default stream cannot be timed; P2PSHIM_GPU_TIMING=all times all others";
    assert_broken(&[copy(DIRECT), small()], "slow=1", why);
    // Copies that were not timed take as long as those that were.
    let (said, _) = said_with(&[timed(10), copy(DIRECT), copy(DIRECT)], &[], "slow=110");
    assert!(said.contains("made 104.9 GB/s (1 of 3 timed)"), "{said}");
    // The first copies of a pair are no measure.
    assert_kept(&[Call { path: START_UP, ..timed(1000) }, timed(10)], "slow=100");
}

#[test]
fn trace_that_is_not_whole_does_not_pass() {
    let folder = Folder::new("gate");
    write(&folder, "a.p2ptrace", &[copy(DIRECT)], &[]);
    fs::write(folder.0.join("b.p2ptrace"), "nothing").unwrap();
    let (said, status) = judged(&folder, &["--fail-on", "staged"]);
    assert!(said.contains("--fail-on staged: not all is known: 1 of 2 traces could not be read"), "{said}");
    assert!(status == 120 && said.starts_with("p2pshim: exit 120: "), "what the line says: {said}");
}

#[test]
fn several_conditions_have_a_line_each_and_a_code_of_their_own() {
    let folder = Folder::new("gate");
    write(&folder, "a.p2ptrace", &[Call { result: 1, ..copy(DIRECT) }, copy(STAGED)], &[]);
    let (said, status) = judged(&folder, &["--fail-on", "staged,hazard", "--fail-on", "error", "--fail-code", "7"]);
    let lines: Vec<_> = said.lines().map(|line| line.split(':').nth(2).unwrap()).collect();
    assert_eq!((lines, status), (vec![" --fail-on staged", " --fail-on error"], 7));
    for (options, expected) in [
        (&["--fail-on", "stagd"][..], "did you mean staged? There are staged[=BYTES], bounce"),
        (&["--fail-on", ""], "is no condition. There are"),
        (&["--fail-on", "slow"], "such as slow=20"),
        (&["--fail-on", "staged", "--fail-code", "0"], "write a whole number from 1 to 255"),
        (&["--junit", "x.xml"], "--fail-on <CONDITION>"),
    ] {
        let (said, status) = judged(&folder, options);
        assert!(status == 2 && said.contains(expected), "{options:?}: {said}");
    }
}

#[test]
fn junit_has_a_case_for_each_condition_and_the_first_file_stays_if_it_cannot_be_written() {
    let folder = Folder::new("gate");
    write(&folder, "a.p2ptrace", &[copy(STAGED)], &[]);
    let file = folder.0.join("junit.xml");
    let junit = file.to_str().unwrap();
    assert_eq!(judged(&folder, &["--fail-on", "staged,hazard", "--junit", junit]).1, 120);
    let xml = fs::read_to_string(&file).unwrap();
    assert!(
        xml.contains(" tests=\"2\" failures=\"1\" ")
            && xml.contains("<testcase name=\"hazard\" classname=\"p2pshim.app\" time=\"0."),
        "{xml}"
    );
    assert!(xml.contains("timestamp=\"2027-01-15T08:00:00\""), "{xml}");
    let (said, status) = judged(&folder, &["--fail-on", "hazard", "--junit", "/nowhere/x.xml"]);
    assert!(status == 3 && said.contains("/nowhere/x.xml"), "{said}");
}
