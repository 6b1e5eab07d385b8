//! Has the counters read around a program, by a process that may hang or crash without harm.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::{Reading, worker};
use crate::{complain, processes};

/// How long the program waits for the counters at most. NVML takes a second a GPU where nothing keeps the driver loaded.
const FIRST: Duration = Duration::from_secs(3);
/// How long the end waits for them.
const LAST: Duration = Duration::from_secs(2);

/// The process, while the program runs.
pub(crate) struct Watch {
    child: Child,
    lines: Receiver<String>,
}

impl Watch {
    /// Has the counters read, before the program starts; none if there is nothing to read.
    pub(crate) fn start(environment: &[(OsString, OsString)]) -> Option<Self> {
        let mut command = processes::own("nvlink-worker", environment).ok()?;
        command.arg(std::process::id().to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // The terminal's signals are for the program: this one ends when its standard input does.
        let mut child = command.process_group(0).spawn().ok()?;
        let (sender, lines) = mpsc::channel();
        let output = child.stdout.take()?;
        let pass_on = move || BufReader::new(output).lines().map_while(Result::ok).try_for_each(|it| sender.send(it));
        thread::Builder::new().name("nvlink".to_owned()).spawn(pass_on).ok()?;
        let watch = Self { child, lines };
        match watch.lines.recv_timeout(FIRST) {
            Ok(line) if line == worker::READY => Some(watch),
            Err(RecvTimeoutError::Timeout) => watch.give_up("before the program"),
            _ => {
                watch.finish();
                None
            }
        }
    }

    /// The reading, now that the program has ended.
    pub(crate) fn finish(mut self) -> Option<Reading> {
        drop(self.child.stdin.take());
        match self.lines.recv_timeout(LAST) {
            Ok(line) => {
                processes::end(&mut self.child);
                serde_json::from_str(&line).ok()
            }
            Err(RecvTimeoutError::Timeout) => self.give_up("after the program"),
            Err(RecvTimeoutError::Disconnected) => {
                processes::end(&mut self.child);
                None
            }
        }
    }

    /// Goes on without.
    fn give_up<T>(mut self, when: &str) -> Option<T> {
        complain(format_args!("warning: NVML did not return {when}; the report does not say what NVLink carried"));
        // It may be in the kernel for ever, so it is not waited for.
        let _ = self.child.kill();
        None
    }
}
