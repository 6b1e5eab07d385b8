//! `p2pshim report` as its users run it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails so")]

mod scene;

use std::process::{Command, Output};

use p2pshim_trace::NoteKind;
use scene::{Call, DIRECT, ENABLE, ENABLE_TWICE, Folder, MEMCPY_PEER, OVERLAP, STAGED, Scene};

fn report(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_p2pshim")).arg("report").args(arguments).output().unwrap()
}

#[test]
fn one() {
    let folder = Folder::new("one");
    let mut scene = Scene::named(&folder.0, "app-1234.p2ptrace", 1234, "nodeA");
    scene.gpus(&[("GPU-a", "0000:1a:00.0"), ("GPU-b", "0000:3b:00.0")]);
    scene.note(1000, NoteKind::Decision, 1, &["verified, and enabled: 394 GB/s"]);
    scene.note(1000, NoteKind::Finding, OVERLAP.into(), &["source and destination overlap by 4096 bytes"]);
    let staged = Call { device: Some((2_000, 25_000_000)), ..Call::copy(1_000, (0, 1), 1_000_000_000, STAGED) };
    scene.calls(&staged);
    scene.calls(&Call {
        device: Some((30_000_000, 2_500_000)),
        ..Call::copy(29_000_000, (0, 1), 1_000_000_000, DIRECT)
    });
    scene.call(&Call {
        function: ENABLE,
        bytes: 0,
        path: 0,
        result: 704,
        rules: vec![ENABLE_TWICE],
        ..Call::copy(30_000_000, (0, 1), 0, 0)
    });
    scene.call(&Call { rules: vec![OVERLAP], ..Call::copy(31_000_000, (1, 0), 5000, STAGED) });
    scene.call(&Call { result: 1, ..Call::copy(32_000_000, (1, 0), 5000, 0) });
    let hanging = Call { function: MEMCPY_PEER, took: None, ..Call::copy(33_000_000, (1, 0), 64 << 20, DIRECT) };
    scene.call(&Call { bytes: 0, pair: None, path: 0, ..hanging.clone() });
    scene.call(&Call { took: None, ..hanging.inside() });
    scene.finish();
    for options in [&[][..], &["--json"], &["--csv"], &["--calls"], &["--perfetto", "-"]] {
        let folder = folder.0.to_str().unwrap();
        let output = report(&[&[folder], options].concat());
        println!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    }
}
