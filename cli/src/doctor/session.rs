//! The process that touches the GPUs, as the command has it: it is asked, read, and not waited for for ever.

use std::cell::Cell;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::Inventory;
use super::journal::{MEETING, waits};
use super::level::Level;
use super::lines::{Line, Task, Verdict};
use super::progress::Progress;
use crate::processes;

/// How long after its own limits the process is waited for.
const GRACE: Duration = Duration::from_secs(2);
/// How often somebody who waits is shown something.
const LOOK: Duration = Duration::from_millis(500);

/// Test processes are started with these.
#[derive(Clone, Copy)]
pub(super) struct Settings<'a> {
    /// The variables that they find in their environment besides ours.
    pub(super) environment: &'a [(OsString, OsString)],
    pub(super) level: Level,
    /// How long CUDA may take to start, and how long a pair may make no progress when it is tested once more.
    pub(super) timeout: Duration,
    /// How long it may make none the first time.
    pub(super) patience: Duration,
    pub(super) progress: &'a Progress,
    /// Whether they see all GPUs, whatever `CUDA_VISIBLE_DEVICES` says.
    pub(super) sees_all: bool,
    /// How long all pairs copy at once after their tests.
    pub(super) soak: Duration,
}

/// A test process.
pub(super) struct Session<'a> {
    settings: Settings<'a>,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<Line>,
    partners: Vec<u32>,
    /// The GPUs that it told of before it refused to continue.
    pub(super) told: Inventory,
    /// Whether it can be asked for more.
    pub(super) is_whole: bool,
}

impl<'a> Session<'a> {
    /// Starts one.
    ///
    /// # Errors
    /// A sentence for the user.
    pub(super) fn start(settings: Settings<'a>) -> Result<Self, String> {
        let started = Self::command(&settings).and_then(|mut command| command.spawn());
        let mut child = started.map_err(|error| format!("the test process could not be started: {error}"))?;
        let (sender, lines) = mpsc::channel();
        if let Some(output) = child.stdout.take() {
            // It may wait for ever for a process that nothing can end; then it ends with us.
            thread::spawn(move || {
                let lines = BufReader::new(output).lines().map_while(Result::ok);
                lines.filter_map(|line| Line::parse(&line)).try_for_each(|line| sender.send(line))
            });
        }
        Ok(Self {
            settings,
            input: child.stdin.take(),
            child,
            lines,
            partners: Vec::new(),
            told: Inventory::default(),
            is_whole: true,
        })
    }

    fn command(settings: &Settings<'_>) -> std::io::Result<Command> {
        let mut command = processes::own("gpu-worker", settings.environment)?;
        command.args(["--timeout", &settings.timeout.as_secs().to_string()]);
        command.args(["--patience", &settings.patience.as_millis().to_string()]);
        command.args(["--level", settings.level.argument()]);
        command.args(["--soak", &settings.soak.as_secs().to_string()]);
        if settings.sees_all {
            command.env_remove("CUDA_VISIBLE_DEVICES");
        }
        // Kernels are to run at the same time, which loading at the first launch may prevent.
        command.env("CUDA_MODULE_LOADING", "EAGER").env_remove("CUDA_LAUNCH_BLOCKING");
        // Compiled kernels are not worth keeping.
        command.env("CUDA_CACHE_DISABLE", "1");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok(command)
    }

    /// The GPUs that it sees.
    ///
    /// # Errors
    /// Why it sees none, in a sentence for the user.
    pub(super) fn list(&mut self) -> Result<Inventory, String> {
        let (mut lines, mut said) = (Vec::new(), None);
        self.read(&Cell::new(self.settings.timeout), |line| match line {
            Line::Verdict(verdict) => said = Some(verdict),
            line => lines.push(line),
        });
        match said {
            Some(Verdict::Failed(why) | Verdict::Unknown(why)) => {
                self.told = Inventory::new(lines);
                Err(why)
            }
            _ if self.is_whole => Ok(Inventory::new(lines)),
            _ => Err(self.why_none()),
        }
    }

    /// Why it has not said what it was to say.
    pub(super) fn why_none(&mut self) -> String {
        match self.child.try_wait() {
            Ok(Some(status)) => format!("the test process ended without a verdict ({status})"),
            _ => super::not_started(self.settings.timeout),
        }
    }

    /// Has something done with pairs, and hands on the lines about them by their places. The verdict on all of them is returned.
    pub(super) fn ask(
        &mut self,
        task: Task,
        pairs: &[[usize; 2]],
        mut said: impl FnMut(usize, Line),
    ) -> Option<Verdict> {
        let sent = self.input.as_mut().map(|input| processes::tell(input, &(task, pairs)));
        if !matches!(sent, Some(Ok(()))) {
            self.is_whole = false;
            return None;
        }
        let (mut of_all, mut partners) = (None, Vec::new());
        // A round of all pairs at once takes as long as its slowest.
        // A soak says something with each of its rounds.
        let limit = Cell::new(self.settings.timeout.max(self.settings.patience * 5) + GRACE);
        self.read(&limit, |line| match line {
            Line::Pair(place, line) => {
                if matches!(*line, Line::Begun(test) if waits(test)) {
                    limit.set(limit.get().max(MEETING + GRACE));
                }
                said(place, *line);
            }
            Line::Partner(process) => partners.push(process),
            Line::Verdict(verdict) => of_all = Some(verdict),
            _ => {}
        });
        self.partners.append(&mut partners);
        of_all
    }

    /// Reads until it has done what it was asked for, or says nothing for so long.
    fn read(&mut self, limit: &Cell<Duration>, mut take: impl FnMut(Line)) {
        let mut latest = Instant::now();
        loop {
            match self.lines.recv_timeout(LOOK) {
                Ok(Line::Done(is_whole)) => {
                    self.is_whole = is_whole;
                    return;
                }
                Ok(line) => {
                    latest = Instant::now();
                    take(line);
                }
                Err(RecvTimeoutError::Timeout) if latest.elapsed() < limit.get() => {}
                Err(_) => {
                    self.is_whole = false;
                    return;
                }
            }
            self.settings.progress.show();
        }
    }

    /// Ends it; returns a process that does not end.
    pub(super) fn end(mut self) -> Option<u32> {
        // It ends when nobody can ask it any more.
        drop(self.input.take());
        let status = processes::end(&mut self.child);
        let left = self.partners.iter().copied().find(|process| !processes::is_gone(process.cast_signed()));
        status.is_none().then(|| self.child.id()).or(left)
    }
}
