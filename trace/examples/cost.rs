//! The cost of a call's record: nanoseconds a call, by threads. `cargo run --release -p p2pshim-trace --example cost`

use std::env;
use std::time::Instant;

use p2pshim_trace::{Capture, Options, Segment, Writer};

fn main() -> std::io::Result<()> {
    let calls: u64 = env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(2_000_000);
    for threads in [1, 2, 8] {
        let folder = env::temp_dir().join("p2pshim-trace-cost");
        let name = format!("{}-{threads}.p2ptrace", std::process::id());
        let options = Options { folder: folder.clone(), name, limit: 1 << 33, limit_in_memory: u64::MAX };
        let writer = Writer::create(&options)?;
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let segment = Segment::default();
                    for number in 0..calls {
                        let start = writer.now();
                        let begun = segment.begin(0, 7, 0x1234, start).or_else(|| {
                            writer.extend(&segment).ok().filter(|&more| more)?;
                            segment.begin(0, 7, 0x1234, start)
                        });
                        if let Some(begun) = begun {
                            begun.copies(0x10, 0x20, number, 0x30);
                            begun.between(Some(0), Some(1));
                            begun.takes(1);
                            let end = writer.now();
                            begun.done(end, 0, Capture::None);
                            writer.calibrate_if_due(end);
                        }
                    }
                });
            }
        });
        let nanos = begun.elapsed().as_nanos() as f64 / calls as f64;
        println!("{threads} threads: {nanos:.1} ns a call of a thread");
        std::fs::remove_file(folder.join(&options.name))?;
    }
    Ok(())
}
