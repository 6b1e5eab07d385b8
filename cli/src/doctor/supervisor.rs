//! Starts the process that touches the GPUs, reads what it says, and does not wait for it for ever.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use p2pshim_host::text::Escaped;

use super::lines::{Line, Verdict};
use super::verify::Tests;
use crate::processes;

/// How long after its own limit the process is waited for.
const GRACE: Duration = Duration::from_secs(1);

/// What a worker is started with.
pub(super) struct Job<'a> {
    /// What it does.
    pub(super) task: Task<'a>,
    /// When it has to end.
    pub(super) timeout: Duration,
    /// What it finds in its environment besides ours.
    pub(super) environment: &'a [(OsString, OsString)],
    /// What is done with the pair.
    pub(super) tests: Tests,
}

/// What a worker does; pairs by their UUIDs.
#[derive(Clone, Copy)]
pub(super) enum Task<'a> {
    /// Lists all devices.
    List,
    /// Verifies a pair.
    Pair([&'a str; 2]),
    /// Has all of these copy at once.
    AllPairs(&'a [[&'a str; 2]]),
}

/// What a worker said.
pub(super) struct Outcome {
    /// All but the verdict.
    pub(super) lines: Vec<Line>,
    /// Its verdict, or ours.
    pub(super) verdict: Verdict,
    /// The process, if it did not end although it was killed.
    pub(super) left_behind: Option<u32>,
}

impl Job<'_> {
    fn command(&self) -> std::io::Result<Command> {
        let mut command = processes::own("probe-worker", self.environment)?;
        command.args(["--timeout", &self.timeout.as_secs().to_string()]);
        let pairs = match &self.task {
            Task::List => &[],
            Task::Pair(pair) => std::slice::from_ref(pair),
            Task::AllPairs(pairs) => pairs,
        };
        if matches!(self.task, Task::AllPairs(_)) {
            command.arg("--all-pairs");
        }
        if !pairs.is_empty() {
            // Only these are started, which on large machines takes most of the time.
            let mut visible: Vec<&str> = Vec::new();
            for uuid in pairs.as_flattened() {
                if !visible.contains(uuid) {
                    visible.push(uuid);
                }
            }
            command.args(self.tests.argument()).args(pairs.as_flattened());
            command.env("CUDA_VISIBLE_DEVICES", visible.join(","));
        }
        // Kernels are to run at the same time, which loading at the first launch may prevent.
        command.env("CUDA_MODULE_LOADING", "EAGER").env_remove("CUDA_LAUNCH_BLOCKING");
        // What is compiled is not worth keeping.
        command.env("CUDA_CACHE_DISABLE", "1");
        Ok(command)
    }

    /// Runs it.
    pub(super) fn run(&self) -> Outcome {
        let started =
            self.command().and_then(|mut command| command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn());
        match started {
            Ok(child) => self.supervise(child),
            Err(error) => {
                let verdict = Verdict::Unknown(format!("the test process could not be started: {error}"));
                Outcome { lines: Vec::new(), verdict, left_behind: None }
            }
        }
    }

    fn supervise(&self, mut child: Child) -> Outcome {
        let deadline = Instant::now() + self.timeout + GRACE;
        let (sender, receiver) = mpsc::channel();
        if let Some(output) = child.stdout.take() {
            // It may wait for ever for a process that nothing can end; then it ends with us.
            thread::spawn(move || {
                let lines = BufReader::new(output).lines().map_while(Result::ok);
                // Names of devices and messages of libraries may have anything in them.
                let lines = lines.map(|line| Escaped(line).to_string());
                lines.filter_map(|line| Line::parse(&line)).try_for_each(|line| sender.send(line))
            });
        }
        let (mut lines, mut verdict, mut partner) = (Vec::new(), None, None);
        while verdict.is_none() {
            match receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Line::Verdict(said)) => verdict = Some(said),
                Ok(Line::Partner(process)) => partner = Some(process),
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Timeout) => verdict = Some(self.hanging(&mut lines)),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let status = processes::end(&mut child);
        // It ends with the process that started it.
        let partner = partner.filter(|&process| !processes::is_gone(process.cast_signed()));
        let left_behind = status.is_none().then(|| child.id()).or(partner);
        let verdict = verdict.unwrap_or_else(|| match status {
            Some(status) => Verdict::Unknown(format!("the test process ended without a verdict ({status})")),
            None => Verdict::Unknown("the test process gave no verdict".to_owned()),
        });
        Outcome { lines, verdict, left_behind }
    }

    /// The verdict on a process that could not even say that it hangs.
    fn hanging(&self, lines: &mut Vec<Line>) -> Verdict {
        let last = lines.iter().rev().find(|line| matches!(line, Line::Begin(_) | Line::Measuring(_)));
        let test = match last {
            Some(Line::Measuring(verdict)) => return verdict.clone(),
            Some(Line::Begin(test)) => Some(*test),
            _ => None,
        };
        lines.extend(test.map(|test| Line::Found(test, super::hung(self.timeout))));
        super::verdict_of_hanging(test, self.timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::super::lines::Test;
    use super::*;

    #[test]
    fn hanging_while_measuring_keeps_the_verdict() {
        let job = Job { task: Task::List, timeout: Duration::from_secs(1), environment: &[], tests: Tests::Measured };
        let mut lines = vec![Line::Begin(Test::Stores)];
        assert_eq!(job.hanging(&mut lines).status(), 1);
        let mut lines = vec![Line::Begin(Test::Stores), Line::Measuring(Verdict::Passed)];
        assert_eq!(job.hanging(&mut lines), Verdict::Passed);
        assert_eq!(lines.len(), 2, "and no test is blamed");
        lines.push(Line::Begin(Test::Ipc));
        assert_eq!(job.hanging(&mut lines).status(), 1, "a later test is");
    }
}
