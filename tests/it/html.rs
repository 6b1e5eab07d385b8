//! The page of a report, in a browser: pages are made of samples and opened by tests/html/check.py.

#[path = "../../cli/src/report/figures.rs"]
mod figures;
#[path = "../../cli/src/report/html.rs"]
mod page;
#[path = "../../cli/src/report/term.rs"]
#[allow(dead_code, reason = "the text uses the rest")]
mod term;

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;

use crate::support::{Program, Scratch, browser, path, say};

/// Runs tests/html/check.py. Its output is shown if the test fails.
fn check(arguments: &[&str]) -> bool {
    let output = Command::new("python3").arg(path("tests/html/check.py")).args(arguments).output().unwrap();
    print!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    output.status.success()
}

fn make_pages(folder: &Path) {
    for file in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let mut json = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        figures::add(&mut json);
        let mut page = BufWriter::new(File::create(file.with_extension("html")).unwrap());
        page::write(&json.to_string(), &mut page).unwrap();
        page.flush().unwrap();
    }
}

/// Puts what `p2pshim report` makes of a program's trace into the folder: `real.json`, the text, and the page.
fn report_of_a_program(folder: &Path) {
    let traces = Scratch::new("traces");
    let program = Program::case("multithreaded-12").env("P2PSHIM_ACCESS", "app").env("P2PSHIM_LOG", "off");
    program.env("P2PSHIM_TRACE", traces.to_string_lossy()).preloaded().assert_success();
    let (json, page) = (folder.join("real.json"), folder.join("real.html"));
    let mut report = Command::new(crate::support::command());
    report.arg("report").arg(&traces).arg("--json=".to_owned() + json.to_str().unwrap()).arg("--html").arg(page);
    report.arg("-o").arg(folder.join("real.txt")).arg("--format").arg("text").env_remove("COLUMNS");
    assert!(report.status().unwrap().success());
}

#[test]
fn page_policy_allows_its_own_style_and_script() {
    assert!(check(&["hashes"]), "P2PSHIM_UPDATE=1 writes them anew");
}

#[test]
fn page_in_a_browser_shows_what_the_samples_hold() {
    let browser = match browser() {
        Ok(browser) => browser,
        Err(why) => return say(&format!("skipped: page_in_a_browser_shows_what_the_samples_hold: {why}")),
    };
    let folder = Scratch::folder("html");
    let name = folder.to_str().unwrap();
    assert!(check(&["samples", name]));
    make_pages(&folder);
    report_of_a_program(&folder);
    // `P2PSHIM_PICTURES=FOLDER` keeps pictures of the pages, such as those of docs/images/.
    let pictures = std::env::var("P2PSHIM_PICTURES").ok();
    let right = check(&[&["pages", name, &browser], pictures.as_deref().as_slice()].concat());
    assert!(right, "a check failed");
}
