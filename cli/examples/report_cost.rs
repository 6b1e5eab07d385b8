//! The cost of a report of many calls: seconds, and memory at most.
//!
//! `cargo build --release -p p2pshim-cli && cargo run --release -p p2pshim-cli --example report_cost [RECORDS] [FILES]`

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "it ends so")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;
use std::{env, fs};

use p2pshim_trace::{Capture, NoteKind, Options, Segment, Writer};

#[expect(clippy::zombie_processes, reason = "wait4 waits for them, and says what they used")]
fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["--write", folder, records, files] = arguments[..] {
        // In a process of its own, since what it maps would be counted as memory of the report.
        let files: u64 = files.parse().unwrap();
        (0..files).for_each(|file| write(Path::new(folder), file, records.parse::<u64>().unwrap() / files));
        return;
    }
    let records = arguments.first().copied().unwrap_or("10000000");
    let files = arguments.get(1).copied().unwrap_or("1");
    let own = env::current_exe().unwrap();
    let command = own.parent().and_then(Path::parent).unwrap().join("p2pshim");
    let folder = env::temp_dir().join(format!("p2pshim-report-cost-{}", std::process::id()));
    let folder_name = folder.to_str().unwrap();
    assert!(Command::new(&own).args(["--write", folder_name, records, files]).status().unwrap().success());
    for options in [&[][..], &["--json"], &["--calls"], &["--perfetto", "-"]] {
        let begun = Instant::now();
        let mut report = Command::new(&command);
        let report = report.arg("report").arg(folder_name).args(options).stdout(Stdio::null()).spawn().unwrap();
        let mut status = 0;
        // SAFETY: a struct of numbers, which the call fills; the child is waited for here only.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::wait4(report.id().cast_signed(), &raw mut status, 0, &raw mut usage);
            usage
        };
        let seconds = begun.elapsed().as_secs_f64();
        assert_eq!(status, 0);
        println!(
            "report {}: {records} records in {files} files: {seconds:.2} s, at most {} MiB",
            options.join(" "),
            usage.ru_maxrss / 1024
        );
    }
    fs::remove_dir_all(&folder).unwrap();
}

/// A file of runtime calls with the driver's inside, of several threads between eight GPUs.
fn write(folder: &Path, file: u64, records: u64) {
    const THREADS: u64 = 4;
    let name = format!("rank-{file}.p2ptrace");
    let writer = Writer::create(&Options {
        folder: folder.to_owned(),
        name,
        limit: records * 80 + (1 << 20),
        limit_in_memory: u64::MAX,
    })
    .unwrap();
    writer.note(NoteKind::Host, 0, &[format!("node{}", file / 8).as_bytes(), b"boot"]);
    writer.note(NoteKind::Variable, 0, &[b"RANK", file.to_string().as_bytes()]);
    for (number, layer, name) in [(1, "runtime", "cudaMemcpyPeerAsync"), (2, "driver", "cuMemcpyPeerAsync")] {
        writer.note(NoteKind::Function, number, &[layer.as_bytes(), name.as_bytes()]);
    }
    for gpu in 0..8u32 {
        writer.note(NoteKind::Gpu, gpu, &[b"NVIDIA H200", format!("GPU-{gpu}").as_bytes(), b""]);
    }
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let writer = &writer;
            scope.spawn(move || write_calls(writer, thread, records / THREADS / 2));
        }
    });
}

fn write_calls(writer: &Writer, thread: u64, calls: u64) {
    let segment = Segment::default();
    let begin = |depth: usize, function: u8| {
        let now = writer.now();
        segment.begin(depth, function, 1, now).unwrap_or_else(|| {
            assert_eq!(writer.extend(&segment), Ok(true));
            segment.begin(depth, function, 1, now).unwrap()
        })
    };
    for number in 0..calls {
        let (outer, inner) = (begin(0, 1), begin(1, 2));
        let (src, dst) = ((number + thread) % 8, (number * 3 + 1) % 8);
        inner.copies(0x10, 0x20, number % 4096 * 4096, 0x30);
        inner.between(Some(src as u8), Some(dst as u8));
        inner.takes(1 + (number % 2) as u8);
        inner.done(writer.now(), 0, Capture::None);
        outer.like(inner);
        let end = writer.now();
        outer.done(end, i32::from(number % 1000 == 0), Capture::None);
        inner.timed(Some((end, 1000 + number % 4096 * 10)));
        writer.calibrate_if_due(end);
    }
}
