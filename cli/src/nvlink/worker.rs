//! The process that reads NVML around a program. It writes `ready` once the counters were read, which is when the program
//! may start, and what was read in all when its standard input ends. If there is nothing to read it ends at once.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use clap::Args;
use libc::pid_t;
use p2pshim_host::machine;

use super::{Gpu, Reading, VERSION};
use crate::nvml::{Handle, Nvml};
use crate::processes::{descends, leave, parent};

/// The line that it writes when the program may start.
pub(super) const READY: &str = "ready";

/// The process whose program it is.
#[derive(Args)]
pub(crate) struct WorkerArguments {
    /// The process whose descendants are the program
    #[arg(value_name = "PID")]
    root: pid_t,
}

/// A GPU with counters.
struct Watched {
    device: Handle,
    gpu: Gpu,
}

/// Reads the counters before and after the program.
pub(crate) fn run(arguments: &WorkerArguments) -> ExitCode {
    let end = end_of_input();
    let read = watch(arguments.root, &end);
    // Nobody may be reading any more, and the library's own way out might hang.
    let _ = read.and_then(|reading| serde_json::to_string(&reading).ok()).map(|text| say(&text));
    leave(0)
}

fn watch(root: pid_t, end: &Receiver<()>) -> Option<Reading> {
    /// Programs that end soon are to be seen, too.
    const OFTEN: (u32, Duration) = (20, Duration::from_millis(100));
    const SELDOM: Duration = Duration::from_secs(1);
    let nvml = Nvml::start()?;
    let counted = |device: Handle| {
        let [sent, received] = nvml.nvlink_traffic(device)?.map(|bytes| [bytes, bytes]);
        Some(Watched { device, gpu: Gpu { uuid: nvml.uuid(device)?, sent, received, ..Gpu::default() } })
    };
    let mut watched: Vec<Watched> = nvml.devices().into_iter().filter_map(counted).collect();
    if watched.is_empty() {
        return None;
    }
    let start = machine::now();
    let mut kin = Kin { root, known: HashMap::new() };
    kin.note_users(&nvml, &mut watched);
    say(READY).ok()?;
    let (often, soon) = OFTEN;
    for round in 0u64.. {
        let pause = if round < u64::from(often) { soon } else { SELDOM };
        match end.recv_timeout(pause) {
            Err(RecvTimeoutError::Timeout) => kin.note_users(&nvml, &mut watched),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    for Watched { device, gpu } in &mut watched {
        let [sent, received] = nvml.nvlink_traffic(*device)?;
        gpu.sent[1] = sent;
        gpu.received[1] = received;
    }
    kin.note_users(&nvml, &mut watched);
    let gpus = watched.into_iter().map(|it| it.gpu).collect();
    let host = machine::host_name();
    let (version, end, killed, in_container) = (VERSION, machine::now(), false, is_in_container());
    Some(Reading { version, host, start, end, killed, in_container, gpus })
}

/// Which processes are the program's.
struct Kin {
    root: pid_t,
    /// Processes that were seen. One that descends from the program still does when those between have ended.
    known: HashMap<u32, bool>,
}

impl Kin {
    /// Notes who uses the GPUs now.
    fn note_users(&mut self, nvml: &Nvml, watched: &mut [Watched]) {
        for Watched { device, gpu } in watched {
            for process in nvml.processes(*device).unwrap_or_default() {
                if self.has(process) {
                    gpu.ours = true;
                } else if !gpu.others.contains(&process) {
                    gpu.others.push(process);
                }
            }
        }
    }

    fn has(&mut self, process: u32) -> bool {
        let root = self.root;
        *self.known.entry(process).or_insert_with(|| descends(process.cast_signed(), root, parent))
    }
}

/// Whether the PID namespace is not the machine's first, whose number the kernel has fixed (`PROC_PID_INIT_INO`).
fn is_in_container() -> bool {
    const FIRST: u64 = 0xEFFF_FFFC;
    fs::metadata("/proc/self/ns/pid").map_or(true, |namespace| namespace.ino() != FIRST)
}

/// Hangs up when standard input ends. If the process is still there some time after that, NVML hangs: it is ended.
fn end_of_input() -> Receiver<()> {
    const GRACE: Duration = Duration::from_secs(5);
    let (sender, receiver) = mpsc::channel();
    let wait = move || {
        let mut byte = [0];
        while io::stdin().read(&mut byte).is_ok_and(|count| count > 0) {}
        drop(sender);
        thread::sleep(GRACE);
        leave(1)
    };
    // Without it there is nothing to wait for: the receiver hangs up at once.
    let _ = thread::Builder::new().name("end".to_owned()).spawn(wait);
    receiver
}

fn say(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}
