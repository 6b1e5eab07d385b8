//! Prints all that a trace file holds, for whoever works on the format. `cargo run -p p2pshim-trace --example dump FILE`

use std::env;
use std::path::PathBuf;

use p2pshim_trace::Trace;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for path in env::args_os().skip(1).map(PathBuf::from) {
        let trace = Trace::open(&path)?;
        println!(
            "{}: process {}, {} dropped, {:?}",
            path.display(),
            trace.process(),
            trace.dropped(),
            trace.problems()
        );
        for note in trace.notes() {
            println!("{:?} {} {:?}", note.kind, note.number, note.strings);
        }
        let mut buffer = Vec::new();
        for number in 0..trace.blocks() {
            let Some(block) = trace.block(number, &mut buffer)? else { continue };
            println!("thread {} {}, from {}", block.thread, block.name(), block.first);
            block.calls().for_each(|call| println!("{call:?}"));
        }
    }
    Ok(())
}
