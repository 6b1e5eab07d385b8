//! `p2pshim doctor --try-override`: whether data arrives where CUDA is told not to ask about IOMMU and ACS. The variable is set for a
//! process of our own only.
//!
//! It copies less than the tests do before more: all pairs 4 KiB, then all pairs more. Around the data on the accessed GPU are guards. After
//! each step the data, the guards and the kernel's log are looked at, and it ends with the first that is wrong.

use std::error::Error;
use std::ffi::OsString;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use p2pshim_host::machine::{self, By};
use p2pshim_host::text::Escaped;

use super::cuda::{CudaError, Result as Done};
use super::gates::OVERRIDE;
use super::lines::{Finding, Line, Task, Test, Verdict};
use super::report::{Row, short};
use super::rig::{Rig, Side};
use super::session::{Session, Settings};
use super::verify::Verification;
use super::{Inventory, place};
use crate::processes::say;
use crate::status::{GOOD, NEGATIVE, UNKNOWN};
use crate::{complain, status};

/// Bytes of each step.
const STEPS: [usize; 4] = [4 << 10, 256 << 10, 4 << 20, 16 << 20];
/// Bytes of a guard before the data, and of one behind it.
const GUARD: usize = 1 << 20;
/// Variables of schedulers, whose jobs have no machine of their own.
const JOBS: [&str; 3] = ["SLURM_JOB_ID", "KUBERNETES_SERVICE_HOST", "PBS_JOBID"];

/// Tries it, and says whether to use it.
///
/// # Errors
/// The output could not be written.
pub(super) fn run(settings: Settings<'_>, is_sure: bool, out: &mut impl Write) -> Result<ExitCode, Box<dyn Error>> {
    let are_simulated = !settings.environment.is_empty();
    let root = machine::root(are_simulated, std::env::var_os("P2PSIM_ROOT"));
    let root = root.unwrap_or_else(|| Path::new("/nonexistent").to_owned());
    let tried = refusal(&root, is_sure).map_or_else(|| tried(settings, &root), Err);
    settings.progress.clear();
    let (status, text) = match tried {
        Ok(said) => said,
        Err(why) => {
            complain(format_args!("nothing was tried: {why}"));
            return Ok(ExitCode::from(UNKNOWN));
        }
    };
    let written = writeln!(out, "{text}");
    Ok(status::end(status, [super::shown(out, written)]))
}

/// Why it must not be tried here, or now.
fn refusal(root: &Path, is_sure: bool) -> Option<String> {
    if let Some(job) = JOBS.into_iter().find(|name| std::env::var_os(name).is_some()) {
        return Some(format!("this is a job ({job} is set). Try it by hand, on a machine that does nothing else"));
    }
    if let Some(container) = place::container(root) {
        return Some(format!(
            "this is a container ({container}). Try it on the machine itself, while it does nothing else"
        ));
    }
    if machine::kernel_log(root).is_none() {
        return Some("the kernel's log cannot be read, which tells of misrouted accesses. Try it as root".to_owned());
    }
    complain(format_args!(
        "WARNING: with {OVERRIDE}=1 misrouted accesses can overwrite the host's memory or stop the machine. Go on only if it is idle, and all is saved"
    ));
    if is_sure {
        return None;
    }
    if !io::stdin().is_terminal() {
        return Some("nobody has confirmed the warning: give --yes, or start it on a terminal".to_owned());
    }
    let _ = write!(io::stderr(), "Type yes to go on: ");
    let mut answer = String::new();
    let _ = io::stdin().lock().read_line(&mut answer);
    (answer.trim() != "yes").then(|| "the warning was not confirmed".to_owned())
}

/// Tries it: the exit status and words for the user.
///
/// # Errors
/// Why it could not be tried.
fn tried(settings: Settings<'_>, root: &Path) -> Result<(u8, String), String> {
    let listed = |settings| {
        let mut session = Session::start(settings)?;
        let inventory = session.list()?;
        Ok::<_, String>((session, inventory))
    };
    let (session, before) = listed(settings)?;
    session.end();
    let lacking: Vec<[usize; 2]> = before.wanted(&[])?.into_iter().filter(|pair| !before.has_path(*pair)).collect();
    if lacking.is_empty() {
        return Ok((GOOD, "Leave it off: every pair has peer access without it.".to_owned()));
    }
    let variable = [(OsString::from(OVERRIDE), OsString::from("1"))];
    let environment = [settings.environment, &variable].concat();
    let (mut session, after) = listed(Settings { environment: &environment, ..settings })?;
    let opened: Vec<[usize; 2]> = lacking.into_iter().filter(|pair| after.has_path(*pair)).collect();
    if opened.is_empty() {
        session.end();
        return Ok((
            UNKNOWN,
            format!("Leave it off: {OVERRIDE}=1 opens no pair here. `p2pshim doctor` names the gate."),
        ));
    }
    let trouble = STEPS.into_iter().find_map(|bytes| {
        settings.progress.begin(opened.len(), &format!("trying {} KiB", bytes >> 10));
        opened.iter().find_map(|&pair| {
            let trouble = step(&mut session, (pair, bytes), root);
            settings.progress.step();
            trouble
        })
    });
    session.end();
    Ok(match trouble {
        Some(text) => (NEGATIVE, format!("Leave it off: {text}.")),
        None => (GOOD, recommended(&opened, &after)),
    })
}

fn recommended(opened: &[[usize; 2]], inventory: &Inventory) -> String {
    let rows: Vec<Row> = opened.iter().map(|&pair| Row::new(pair, Verdict::Passed)).collect();
    let pairs = short(&rows.iter().collect::<Vec<_>>(), inventory.devices.len());
    format!(
        "Data arrived in all tests of {pairs}, and the kernel's log has no new line about an error: put this variable into the job:\n  export {OVERRIDE}=1\n\
         Test it in the job too: {OVERRIDE}=1 p2pshim doctor --full"
    )
}

/// Has a pair copy so much; the trouble, if there is any.
fn step(session: &mut Session<'_>, ([from, to], bytes): ([usize; 2], usize), root: &Path) -> Option<String> {
    let lost = || "the kernel's log cannot be read any more".to_owned();
    let Some(before) = machine::kernel_log(root) else { return Some(lost()) };
    let (last, mut found) = (before.iter().map(|record| record.number).max(), None);
    let verdict = session.ask(Task::Guarded(bytes), &[[from, to]], |_, line| match line {
        Line::Found(_, Finding::Right) => {}
        Line::Found(_, finding) => found = finding.detail().map(|text| format!("{text} from {from} to {to}")),
        _ => {}
    });
    // A line may come a moment later.
    thread::sleep(Duration::from_millis(100));
    let Some(log) = machine::kernel_log(root) else { return Some(lost()) };
    let is_new = |record: &&machine::Record| last.is_none_or(|last| record.number > last);
    let is_trouble = |line: &str| By::of(line).is_some() || line.contains("Hardware Error") || line.contains("mce:");
    let said = log.iter().filter(is_new).find(|record| is_trouble(&record.line));
    let said = said.map(|record| format!("the kernel's log says `{}`", Escaped(record.line.trim())));
    let ended = match verdict {
        Some(Verdict::Passed) => None,
        Some(Verdict::Failed(why) | Verdict::Unknown(why)) => Some(format!("{why}, from {from} to {to}")),
        _ => Some(format!("the test process ended, from {from} to {to}")),
    };
    match [found.or(ended), said] {
        [Some(found), Some(said)] => Some(format!("{found}; {said}")),
        [found, said] => found.or(said),
    }
}

/// Copies so much from A to B, in the process that has the variable, and gives up if it hangs.
pub(super) fn guarded(rig: &Arc<Rig>, pairs: &[[usize; 2]], bytes: usize, time: Duration) {
    let Some(&pair) = pairs.first() else { return };
    rig.journal.open(&[pair]);
    rig.prepare(&pair, time);
    let (sender, ended) = mpsc::channel();
    let used = Arc::clone(rig);
    thread::spawn(move || {
        let tried = Verification::new(&used, pair, used.journal.entry(0));
        let _ = sender.send(tried.and_then(|it| it.guarded(bytes).map_err(|error: CudaError| error.to_string())));
    });
    let verdict = match ended.recv_timeout(rig.patience) {
        Ok(Ok(finding)) => {
            say(&Line::Pair(0, Box::new(Line::Found(Test::Copies, finding))));
            Verdict::Passed
        }
        Ok(Err(why)) => Verdict::Unknown(why),
        Err(_) => Verdict::Failed(format!("a copy had not ended after {} s", rig.patience.as_secs_f64())),
    };
    say(&Line::Verdict(verdict));
}

impl Verification<'_> {
    /// Moves data to memory of B that has guards around it: by copy engine, by stores and by loads of a kernel on A.
    fn guarded(&self, bytes: usize) -> Done<Finding> {
        let (driver, [a, b], kernel) = (&self.rig.driver, &self.sides, self.kernel()?);
        self.connect()?;
        let memory = driver.allocate(b.context, bytes + 2 * GUARD)?;
        let there = &Side { memory: memory + GUARD as u64, ..*b };
        let [guards, _] = self.rig.patterns.part(0, bytes + 2 * GUARD);
        driver.write(b.context, memory, guards)?;
        let mut all = vec![0; guards.len()];
        for (how, to, from) in [("copies", there, a), ("kernel stores", there, a), ("kernel loads", a, there)] {
            let moved = self.trial(to, from, 1, bytes, || {
                driver.enter(a.context)?;
                match how {
                    "copies" => driver.copy(to.place(), from.place(), bytes, a.stream)?,
                    _ => driver.launch(kernel, (to.memory, from.memory, bytes as u64 / 8), a.stream)?,
                }
                driver.wait(a.stream)
            })?;
            driver.read(b.context, memory, &mut all)?;
            let is_kept = |from: usize| all.get(from..from + GUARD) == guards.get(from..from + GUARD);
            let wrong = moved.map(|wrong| format!("{} of bytes lost by {how}", wrong.percent()));
            let beside =
                || (!is_kept(0) || !is_kept(GUARD + bytes)).then(|| format!("bytes beside the data changed by {how}"));
            if let Some(wrong) = wrong.or_else(beside) {
                return Ok(Finding::Wrong(wrong));
            }
        }
        driver.free(b.context, memory)?;
        self.disconnect()?;
        Ok(Finding::Right)
    }
}
