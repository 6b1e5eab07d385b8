//! The p2pshim command, as a user calls it.

use std::process::{Command, Output};

fn p2pshim(arguments: &[&str]) -> Output {
    Command::new(crate::support::command()).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn version_is_the_packages() {
    let output = p2pshim(&["--version"]);
    assert_eq!(text(&output.stdout), concat!("p2pshim ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn apis_lists_functions_of_both_layers() {
    let output = p2pshim(&["apis"]);
    assert!(output.status.success());
    let list = text(&output.stdout);
    for expected in ["cudaMemcpyPeerAsync ", "cuCtxEnablePeerAccess ", "cuGetProcAddress_v2 "] {
        assert!(list.lines().any(|line| line.starts_with(expected)), "{expected} in {list}");
    }
}

#[test]
fn options_lists_each_variable_with_its_default() {
    let list = text(&p2pshim(&["options"]).stdout);
    assert!(list.contains("P2PSHIM=on|off  [default: on]"), "{list}");
    assert!(list.contains("P2PSHIM_LOG_FILE=path  [default: unset]"), "{list}");
}

#[test]
fn unknown_command_is_a_usage_error() {
    assert_eq!(p2pshim(&["apos"]).status.code(), Some(2));
}

#[test]
fn explain_tells_one_finding_or_lists_all() {
    let list = text(&p2pshim(&["explain"]).stdout);
    assert!(list.lines().count() > 40 && list.lines().all(|line| line.starts_with("P2P-")), "{list}");
    for line in list.lines() {
        let id = line.split(' ').next().unwrap();
        let one = p2pshim(&["explain", id]);
        assert!(one.status.success());
        let one = text(&one.stdout);
        for part in [id, "\nFunctions:\n", "\nWhy it matters:\n", "\nWhat to do:\n", "\nDocumentation:\n"] {
            assert!(one.contains(part), "{id}: {part}\n{one}");
        }
    }
}

#[test]
fn explain_unknown_id_names_the_nearest() {
    let output = p2pshim(&["explain", "P2P-enable-twise"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("did you mean P2P-enable-twice?"), "{}", text(&output.stderr));
}

/// The commands that a user sees.
const COMMANDS: [&str; 12] =
    ["run", "doctor", "fleet", "report", "compare", "hang", "ps", "apis", "options", "explain", "completions", "man"];

#[test]
fn completions_name_every_command_and_nothing_hidden() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = p2pshim(&["completions", shell]);
        assert!(output.status.success(), "{shell}");
        let script = text(&output.stdout);
        for expected in COMMANDS.into_iter().chain(["access", "json", "sim"]) {
            assert!(script.contains(expected), "{shell}: no {expected}");
        }
        assert!(!script.contains("gpu-worker"), "{shell}");
    }
    assert!(
        text(&p2pshim(&["completions", "zhs"]).stderr)
            .contains("[possible values: bash, elvish, fish, powershell, zsh]")
    );
}

#[test]
fn completions_of_bash_complete_a_command() {
    let script = "source <(\"$0\" completions bash) && COMP_WORDS=(p2pshim doc) COMP_CWORD=1 && _p2pshim p2pshim doc p2pshim \
                  && echo \"${COMPREPLY[@]}\"";
    let output = Command::new("bash").arg("-c").arg(script).arg(crate::support::command()).output().unwrap();
    assert_eq!(text(&output.stdout), "doctor\n", "{}", text(&output.stderr));
}

#[test]
fn completions_know_conditions_and_what_is_explained() {
    for shell in ["bash", "fish", "zsh"] {
        let script = text(&p2pshim(&["completions", shell]).stdout);
        let explained = ["P2P-enable-twice", "CUDA_ERROR_INVALID_CONTEXT"];
        // Those of fish are about options only.
        let explained = explained.iter().filter(|_| shell != "fish");
        for word in ["possible-race", "unverified", "staged"].iter().chain(explained) {
            assert!(script.contains(word), "{shell}: no {word}");
        }
    }
}

#[test]
fn doctor_merge_names_the_command_in_its_place() {
    let output = p2pshim(&["doctor", "merge", "nodes"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("`p2pshim fleet`"), "{}", text(&output.stderr));
}

#[test]
fn run_help_lists_what_is_needed_first_and_the_library_last() {
    let help = text(&p2pshim(&["run", "-h"]).stdout);
    let (_, options) = help.split_once("\nOptions:\n").unwrap();
    let options = options.split("\n\n").next().unwrap().lines();
    let name = |line: &str| line.trim_start().split("--").nth(1).unwrap().split([' ', '<']).next().unwrap().to_owned();
    let names: Vec<String> = options.map(name).collect();
    assert_eq!(names[..6], ["output", "quiet", "trace", "fail-on", "access", "sim"], "{help}");
    assert!(names.iter().rev().take(2).any(|name| name == "library"), "{help}");
}

#[test]
fn verbose_command_logs_what_it_does_and_the_library_does_not_mind_its_variable() {
    let run = |arguments: &[&str], level: &str| {
        let arguments = [&["run", "--no-check", "--no-report", "--sim", "2"], arguments].concat();
        let mut command = Command::new(crate::support::command());
        let output = command.args(arguments).env("P2PSHIM_COMMAND_LOG", level).output().unwrap();
        assert!(output.status.success());
        text(&output.stderr)
    };
    let program = crate::support::path("target/c-tests/guide_sample-12").to_string_lossy().into_owned();
    for (arguments, level) in [(&["-v", &program][..], ""), (&[&program], "info")] {
        let said = run(arguments, level);
        assert!(said.contains("p2pshim: the library: /") && !said.contains("no such option"), "{said}");
    }
    assert!(!run(&[&program], "").contains("the library: "));
}

#[test]
fn man_writes_a_page_for_every_command() {
    let scratch = crate::support::Scratch::new("man");
    let folder = scratch.join("man1");
    let output = p2pshim(&["man", folder.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page =
        |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let main = page("p2pshim.1");
    for command in COMMANDS {
        assert!(main.contains(&format!("p2pshim\\-{command}(1)")), "{command}: {main}");
        let page = page(&format!("p2pshim-{command}.1"));
        assert!(page.contains(".SH SYNOPSIS") && page.contains(&format!("p2pshim {command}")), "{page}");
    }
    for section in [".SH \"EXAMPLES\"", ".SH \"EXIT STATUS\"", ".SH \"SIGNALS\""] {
        assert!(page("p2pshim-run.1").contains(section), "{section}: {}", page("p2pshim-run.1"));
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), COMMANDS.len() + 1);
    assert_eq!(text(&p2pshim(&["man"]).stdout), main);
}

#[test]
fn man_folder_that_cannot_be_made_is_named() {
    let output = p2pshim(&["man", "/proc/no-such"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).starts_with("p2pshim: /proc/no-such: "), "{}", text(&output.stderr));
}

#[test]
fn unknown_words_are_answered_with_the_nearest() {
    for (arguments, expected) in [
        (&["doktor"][..], "a similar subcommand exists: 'doctor'"),
        (&["hang", "--jsn"], "a similar argument exists: '--json'"),
    ] {
        let output = p2pshim(arguments);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
    }
}

#[test]
fn explain_no_code_for_this_gpu_says_so_by_either_number() {
    for number in ["209", "48"] {
        let said = text(&p2pshim(&["explain", number]).stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains("has no code for this GPU") && said.contains("CUDA_FORCE_PTX_JIT=1"), "{said}");
        assert!(!said.contains("No finding"), "{said}");
    }
}

#[test]
fn explain_codes_of_cuda_13_5_say_what_they_mean() {
    for (number, name, meaning) in [
        ("47", "CUDA_ERROR_MULTICAST_RESOURCE_FULL", "multicast object"),
        ("227", "CUDA_ERROR_INSUFFICIENT_LOADER_VERSION", "newer driver"),
        ("917", "cudaErrorStreamDetached", "green context"),
        ("918", "cudaErrorGraphRecaptureFailure", "captured anew"),
        ("919", "cudaErrorFabricNotReady", "fabric manager"),
    ] {
        let by_number = text(&p2pshim(&["explain", number]).stdout);
        let said = by_number.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.starts_with(&format!("{number}: ")) && said.contains(name), "{said}");
        assert!(said.contains(meaning) && said.contains("To do: ") && !said.contains("No finding"), "{said}");
        assert_eq!(text(&p2pshim(&["explain", name]).stdout), by_number);
    }
}
