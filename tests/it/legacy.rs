//! The runtimes of CUDA 8.0 to 10.2, simulated: which codes they return, in which numbers, and what the shim says of them.
//!
//! Golden files: tests/golden/legacy-VERSION.tsv, a row for each of `legacy.c`. Return codes of NVIDIA's own runtimes on one H200 are in
//! tests/golden/legacy-one-h200-VERSION.tsv. 8.0 and 9.0 have those of 10.0, without captures, and 10.2 those of 10.1.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::support::legacy::VERSIONS;
use crate::support::{Outcome, Program, Scratch, path, say, shim};

/// Versions whose runtimes by NVIDIA were measured.
const MEASURED: [&str; 4] = ["9.0", "10.0", "10.1", "10.2"];
const HEAD: &str = "before\tcall\tret\tname\tlast\tagain\tv";

/// The version whose golden files are those of this one.
fn like(version: &str) -> &str {
    match version {
        "8.0" | "9.0" => "10.0",
        "10.2" => "10.1",
        other => other,
    }
}

fn captures(version: &str) -> bool {
    !["8.0", "9.0"].contains(&version)
}

fn is_of_capture(row: &str) -> bool {
    row.split('\t').next().unwrap().contains("CAPTURE")
}

/// The golden rows of a version, and what they say.
fn golden(version: &str) -> String {
    let of_like = fs::read_to_string(path(&format!("tests/golden/legacy-{}.tsv", like(version)))).unwrap();
    let row = |row: &str| match row.split('\t').collect::<Vec<_>>()[..] {
        [before, call, ..] if !captures(version) && is_of_capture(row) => format!("{before}\t{call}\tno captures\t\n"),
        _ => format!("{row}\n"),
    };
    of_like.lines().map(row).collect()
}

fn rows(version: &str) -> usize {
    let table = Program::case(&format!("legacy-{version}")).plain();
    table.assert_success();
    table.stdout.lines().count()
}

/// The rule of each finding and what it says of codes: `P2P-enable-self: returned A (64), documented: B (10)`.
fn said(outcome: &Outcome) -> String {
    let lines = outcome.lines.iter().filter(|line| line.contains(": P2P-"));
    let of_codes = |line: &String| {
        let rule = line[line.find("P2P-").unwrap()..].split(' ').next().unwrap().to_owned();
        let (_, rest) = line.split_once("; ").unwrap_or_default();
        let codes = rest.split_once(". ").map_or(rest, |(codes, _)| codes);
        if codes.is_empty() { rule } else { format!("{rule}: {codes}") }
    };
    lines.map(of_codes).collect::<Vec<_>>().join("; ")
}

/// Copies that can be captured since the shim makes others in their place.
fn is_captured_copy(row: &str) -> bool {
    row.starts_with("CAPTURE\tcudaMemcpyPeerAsync(")
        || row.starts_with("CAPTURE\tcudaMemcpy3DPeerAsync(")
        || row.starts_with("(CAPTURE, cudaMemcpyPeerAsync(")
}

#[test]
fn legacy_codes_are_the_same_preloaded_and_findings_speak_the_runtimes_numbers() {
    for version in VERSIONS {
        let mut table = format!("{HEAD}\tfindings\n");
        for row in 1..=rows(version) {
            let program =
                Program::case(&format!("legacy-{version}")).arg(row.to_string()).findings_apart().with_notes();
            let (plain, preloaded) = (program.plain(), program.preloaded());
            plain.assert_success();
            let line = plain.stdout.trim_end_matches('\n');
            if !is_captured_copy(line) {
                assert_eq!(plain.stdout, preloaded.stdout, "{version}, row {row}");
            } else if !line.ends_with("no captures") {
                assert!(preloaded.stdout.contains("\t0\tcudaSuccess\t0\t0\t"), "{}", preloaded.stdout);
            }
            table += &format!("{line}\t{}\n", said(&preloaded));
        }
        if std::env::var_os("P2PSHIM_UPDATE").is_none() {
            assert_eq!(golden(version), table, "{version}; P2PSHIM_UPDATE=1 writes it anew");
        } else if version == like(version) {
            fs::write(path(&format!("tests/golden/legacy-{version}.tsv")), &table).unwrap();
        }
    }
}

#[test]
fn legacy_simulated_runtimes_return_what_nvidias_do_on_one_gpu() {
    for version in MEASURED {
        let simulated = Program::case(&format!("legacy-{version}")).env("P2PSIM_DEVICES", "1").plain().stdout;
        let measured =
            fs::read_to_string(path(&format!("tests/golden/legacy-one-h200-{}.tsv", like(version)))).unwrap();
        let is_row =
            |line: &&str| !line.starts_with('#') && *line != HEAD && (captures(version) || !is_of_capture(line));
        let measured: Vec<&str> = measured.lines().filter(is_row).collect();
        let missing = measured.iter().filter(|row| !simulated.lines().any(|line| line == **row));
        assert_eq!(missing.collect::<Vec<_>>(), Vec::<&&str>::new(), "{version}");
        assert!(measured.len() > 55, "{}", measured.len());
    }
}

#[test]
fn legacy_trace_log_and_report_have_number_and_name() {
    for (version, number) in [("9.0", " (50)"), ("10.0", " (50)"), ("10.1", "")] {
        let folder = Scratch::new(&format!("legacy-{version}"));
        let row = golden(version);
        let row = row.lines().position(|line| line.starts_with("ENABLE\tcudaDeviceEnablePeerAccess")).unwrap();
        let program = Program::case(&format!("legacy-{version}")).arg(row.to_string()).findings_apart();
        let (_, trace) = program.env("P2PSHIM_TRACE", folder.to_str().unwrap()).traced();
        let twice = &trace.of("cudaDeviceEnablePeerAccess")[1].text;
        assert!(twice.contains(&format!(") = cudaErrorPeerAccessAlreadyEnabled{number} <")), "{twice}");
        let report = |words: &[&str]| {
            let output =
                std::process::Command::new(crate::support::command()).arg("report").arg(&folder).args(words).output();
            String::from_utf8(output.unwrap().stdout).unwrap()
        };
        let calls = report(&["--format", "calls", "--result", "cudaErrorPeerAccessAlreadyEnabled"]);
        assert!(calls.contains(&format!(" = cudaErrorPeerAccessAlreadyEnabled{number} <")), "{calls}");
        let (code, numbering) = if number.is_empty() { (704, "usual") } else { (50, "until-10.0") };
        let (json, words) = (report(&["--json"]), format!("\"code\":{code},\"numbering\":\"{numbering}\""));
        assert!(json.contains(&words), "no {words}: {json}");
        assert!(report(&[]).contains(&format!("cudaErrorPeerAccessAlreadyEnabled ({code})")), "{}", report(&[]));
    }
}

#[test]
fn legacy_program_of_an_old_linker_is_seen() {
    let row = |program: &str| {
        let program = Program::case(program).env("P2PSHIM_ACCESS", "app").arg("14").findings_apart();
        let (outcome, trace) = program.traced();
        outcome.assert_success();
        let calls: Vec<(usize, String)> = trace.calls.into_iter().map(|call| (call.depth, call.name)).collect();
        (outcome.stdout, calls)
    };
    let (stdout, calls) = row("legacy-old_linker");
    assert!(stdout.starts_with("ENABLE\tcudaDeviceEnablePeerAccess(last, 0)\t50\t"), "{stdout}");
    assert!(calls.contains(&(0, "cudaDeviceEnablePeerAccess".to_owned())), "{calls:?}");
    assert_eq!((stdout, calls), row("legacy-9.0"));
}

/// Contexts that are current nowhere, and pushed and popped by threads in turn.
#[test]
fn floating_contexts_same_output_preloaded() {
    let (plain, trace) = Program::case("floating_contexts").findings_apart().assert_same_preloaded();
    plain.assert_success();
    assert!(plain.stdout.ends_with("current at the end: none\n"), "{}", plain.stdout);
    assert_eq!(trace.of("cuMemcpyPeer").len(), 3 * 4 * 3, "{:#?}", trace.calls);
}

/// Functions until CUDA 3.1 have addresses of 32 bits, and names that have no `_v2`. They are none of the table: all that is seen is the form
/// since 3.2 beside each.
#[test]
fn old_driver_forms_are_forwarded() {
    let program = Program::case("old_driver_forms").libraries("target/c-tests/old-driver");
    let program = program.env("P2PSHIM_ACCESS", "app").findings_apart();
    let (plain, preloaded) = (program.plain(), program.preloaded());
    plain.assert_success();
    assert_eq!(plain.stdout.matches("cuMemcpyDtoD from 0x1000 to 0x2000, 0xfffffff0\n45\n").count(), 4);
    preloaded.assert_same_as(&plain, "preloaded");
    let (traced, trace) = program.traced();
    traced.assert_same_as(&plain, "preloaded with a trace");
    let seen: Vec<&str> = trace.calls.iter().map(|call| call.name.as_str()).collect();
    assert_eq!(seen, ["cuMemcpyDtoD_v2"; 4], "linked, by dlsym twice, and by cuGetProcAddress");
}

/// A program with the shim among its libraries, which runs with the rights of another user: its environment is not the place to say where
/// files are written. All else is as it is for its user.
#[test]
fn program_with_another_users_rights_writes_no_files() {
    let folder = Scratch::folder("rights");
    fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
    let (trace, log) = (folder.join("trace"), folder.join("log"));
    let programs = ["legacy-with_shim", "legacy-old_linker"].map(|name| {
        let copy = folder.join(name);
        fs::copy(path(&format!("target/c-tests/{name}")), &copy).unwrap();
        copy
    });
    let run = |program: &PathBuf, preload: &[&Path]| {
        let program = Program::new(program).arg("14").env("P2PSHIM_TRACE", trace.to_str().unwrap());
        let program = program.env("P2PSHIM_LOG", "trace").env("P2PSHIM_LOG_FILE", log.to_str().unwrap());
        program.env("LD_SHOW_AUXV", "1").findings_apart().run(preload)
    };
    // The dynamic linker shows that to a program's own user only.
    let without = |outcome: &Outcome| {
        let lines = outcome.stdout.lines().filter(|line| !line.starts_with("AT_")).map(|line| format!("{line}\n"));
        (lines.collect::<String>(), outcome.stdout.contains("AT_SECURE"))
    };
    let row = (run(&programs[1], &[]), "ENABLE\tcudaDeviceEnablePeerAccess(last, 0)\t50\t");
    assert!(without(&row.0).0.starts_with(row.1), "{:#?}", row.0);
    for (program, preload) in [(&programs[0], &[][..]), (&programs[1], &[shim().as_path()])] {
        let own = run(program, preload);
        assert_eq!(without(&own), without(&row.0), "{own:#?}");
        assert!(own.shim.is_empty(), "{own:#?}");
        assert!(fs::read_to_string(&log).unwrap().contains(" cudaDeviceEnablePeerAccess("));
        assert_eq!(fs::read_dir(&trace).unwrap().count(), 1);
        fs::remove_file(&log).unwrap();
        fs::remove_dir_all(&trace).unwrap();
        let changed = std::os::unix::fs::chown(program, Some(12345), None);
        if changed.is_err() {
            say("skipped: only root can give a file to another user");
            break;
        }
        fs::set_permissions(program, Permissions::from_mode(0o4755)).unwrap();
        let others = run(program, preload);
        if without(&others).1 {
            say("skipped: the file system gives no program the rights of another user");
            break;
        }
        assert_eq!(without(&others).0, without(&own).0);
        assert!(!log.exists() && !trace.exists(), "{others:#?}");
        // Where the shim is there at all, it says so.
        let said: Vec<bool> = others.shim.iter().map(|line| line.contains("P2PSHIM variables are ignored")).collect();
        assert_eq!(said, vec![true; usize::from(preload.is_empty())], "{:#?}", others.shim);
    }
}

/// In strict mode a call is refused with what is documented, in the runtime's own numbers: the driver's function returns it.
#[test]
fn legacy_strict_refuses_in_the_runtimes_numbers() {
    for (version, code) in [("9.0", "10"), ("10.1", "101")] {
        let table = golden(version);
        let row = table.lines().position(|line| line.starts_with("\tcudaDeviceEnablePeerAccess(0, 0)")).unwrap();
        let program = Program::case(&format!("legacy-{version}")).arg(row.to_string()).findings_apart();
        let strict = program.env("P2PSHIM_VALIDATE", "strict").preloaded();
        assert!(strict.stdout.contains(&format!("\t{code}\tcudaErrorInvalidDevice\t{code}\t")), "{}", strict.stdout);
    }
}
