//! Copies from A to B that another process makes, where one end is memory of ours that it has opened; and kernels of both processes that
//! use such memory at the same time.

use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::additions::words;
use super::cuda::{Address, CudaError};
use super::flags::{COUNTED, Counts, Left, ROUNDS, TRIES};
use super::journal::Entry;
use super::kernel::Kind;
use super::lines::{Finding, Line, Test};
use super::partner::{BESIDE, Channel, Partner, Reply, Request, SIZES, Ticket};
use super::pattern::difference;
use super::rig::{Lent, Rig};
use super::verify::{Verification, of_error};
use crate::lock::lock;
use crate::processes::say;

/// Why a test ends before its end.
enum Stop {
    /// A call of ours failed.
    Error(CudaError),
    /// A finding of the other process, or of this one.
    Found(Finding),
}

impl From<CudaError> for Stop {
    fn from(error: CudaError) -> Self {
        Self::Error(error)
    }
}

/// Memory of ours that another process can open; or why it cannot.
type Shared = Result<(Address, Ticket), String>;

fn shared(lent: Lent, test: Test) -> Shared {
    if test != Test::Vmm {
        lent.ipc.map(|(address, handle)| (address, Ticket::Ipc(handle)))
    } else {
        lent.vmm.map(|(address, descriptor)| (address, Ticket::Vmm(descriptor.as_raw_fd())))
    }
}

/// The other process.
pub(super) struct Between(Mutex<Result<Partner, String>>);

impl Between {
    /// Starts it for some devices. It gets the descriptors from us that there are by now.
    pub(super) fn start(rig: &Rig, devices: &[usize]) -> Arc<Self> {
        let lent = devices.iter().filter_map(|&device| rig.lent(device).ok()?.vmm.ok());
        let descriptors: Vec<_> = lent.map(|(_, descriptor)| descriptor).collect();
        let partner = Partner::start(devices, &descriptors);
        partner.iter().for_each(|partner| say(&Line::Partner(partner.process())));
        Arc::new(Self(Mutex::new(partner)))
    }

    /// Waits until it has started CUDA.
    ///
    /// # Errors
    /// Why it takes no part, for the user.
    pub(super) fn wait(&self, time: Duration) -> Result<(), String> {
        let mut partner = lock(&self.0);
        let started = partner.as_mut().map_err(|why| why.clone()).and_then(|partner| partner.wait(time));
        if let Err(why) = &started
            && let Ok(partner) = std::mem::replace(&mut *partner, Err(why.clone()))
        {
            partner.end();
        }
        started
    }

    /// Has it make the copies of a pair.
    pub(super) fn test(&self, verification: &Verification<'_>, entry: &Entry) {
        let pair = verification.pair;
        let channel = lock(&self.0).as_ref().map_err(Clone::clone).map(|partner| partner.channel(pair));
        for &test in verification.rig.level.between() {
            let sides = pair.map(|device| shared(verification.rig.lent(device)?, test));
            let finding = match (&channel, &sides) {
                (Err(why), _) | (Ok(_), [Err(why), _] | [_, Err(why)]) => Finding::Untested(why.clone()),
                (Ok(channel), [Ok(from), Ok(to)]) => {
                    entry.begin(test);
                    let result = match test {
                        Test::IpcKernels => kernels(verification, channel, *to),
                        _ => copies(verification, channel, [*from, *to]),
                    };
                    // A resource that stays open says nothing of the path.
                    channel.ask(&Request::Close);
                    match result {
                        Ok(()) => Finding::Right,
                        Err(Stop::Found(finding)) => finding,
                        Err(Stop::Error(error)) => of_error(&error, entry),
                    }
                }
            };
            entry.found(test, finding);
        }
    }

    /// Ends it.
    pub(super) fn end(&self) {
        let partner = std::mem::replace(&mut *lock(&self.0), Err(String::new()));
        partner.into_iter().for_each(Partner::end);
    }
}

fn copies(
    verification: &Verification<'_>,
    channel: &Channel,
    [(source, from), (destination, to)]: [(Address, Ticket); 2],
) -> Result<(), Stop> {
    let Verification { rig, sides: [a, b], .. } = verification;
    let driver = &rig.driver;
    let ask = |request| ask(channel, &request).map(drop);
    ask(Request::Destination(to))?;
    for (round, size) in (1..).zip(SIZES) {
        let number = verification.number(400 + round);
        let [sent, stale] = rig.patterns.part(number, size);
        driver.write(b.context, destination, stale)?;
        driver.synchronize(b.context)?;
        ask(Request::Write(number, size))?;
        let difference = rig.patterns.found(size, |found| {
            driver.read(b.context, destination, found)?;
            Ok(difference(sent, found))
        });
        if let Some(difference) = difference.map_err(Stop::Error)? {
            let wrong = format!("{difference} (copy {round}, to memory of another process)");
            return Err(Stop::Found(Finding::Wrong(wrong)));
        }
    }
    // As within a process, the other side makes the copies too, where it can.
    if !driver.can_access(b.device, a.device)? {
        return Ok(());
    }
    ask(Request::Source(from))?;
    for (round, size) in (1..).zip(SIZES) {
        let number = verification.number(500 + round);
        let [sent, _] = rig.patterns.part(number, size);
        driver.write(a.context, source, sent)?;
        driver.synchronize(a.context)?;
        ask(Request::Read(number, size)).map_err(|stop| match stop {
            Stop::Found(Finding::Wrong(wrong)) => {
                Stop::Found(Finding::Wrong(format!("{wrong} (copy {round}, from memory of another process)")))
            }
            other => other,
        })?;
    }
    Ok(())
}

/// Has the other process do something.
///
/// # Errors
/// A finding stands for its reply.
fn ask(channel: &Channel, request: &Request) -> Result<Reply, Stop> {
    let reply = channel.ask(request);
    if let Reply::Counted(_) = reply {
        Ok(reply)
    } else {
        reply.finding().map_or(Ok(Reply::Done), |it| Err(Stop::Found(it)))
    }
}

/// Has a kernel here, on B, and one of the other process, on A, exchange flags and data in memory of B, as custom all-reduces do, while the
/// other process copies to what is beside it.
fn kernels(
    verification: &Verification<'_>,
    channel: &Channel,
    (memory, ticket): (Address, Ticket),
) -> Result<(), Stop> {
    /// How much is copied.
    const SIZE: usize = 1 << 20;
    let Verification { rig, sides: [_, b], .. } = verification;
    let driver = &rig.driver;
    ask(channel, &Request::Destination(ticket))?;
    let kind = Kind::of_flags(driver.capability(b.device)?);
    let kernel = rig.kernel(b, kind.send())?;
    let mut counts = Vec::new();
    for _ in 0..TRIES {
        verification.entry.moves();
        let [sent, stale] = rig.patterns.part(verification.number(600), SIZE);
        let mut there = vec![0; COUNTED + 24];
        driver.write(b.context, memory, &there)?;
        driver.write(b.context, memory + BESIDE as u64, stale)?;
        driver.synchronize(b.context)?;
        ask(channel, &Request::Fill(verification.number(600), SIZE))?;
        driver.enter(b.context)?;
        driver.launch(kernel, (memory, memory + COUNTED as u64, ROUNDS), b.stream)?;
        let Reply::Counted(receiver) = ask(channel, &Request::Receive(ROUNDS, SIZE))? else { return Ok(()) };
        driver.enter(b.context)?;
        driver.wait(b.stream)?;
        driver.read(b.context, memory, &mut there)?;
        let there = words(&there);
        let (mailbox, sender) = there.split_at(COUNTED / 8);
        counts = Counts::read(kind, ROUNDS, &Left { sender, receiver: &receiver, mailbox });
        let finding = Counts::finding(&counts, kind);
        if let Some(wrong @ Finding::Wrong(_)) = finding {
            return Err(Stop::Found(wrong));
        }
        let difference = rig.patterns.found(SIZE, |found| {
            driver.read(b.context, memory + BESIDE as u64, found)?;
            Ok(difference(sent, found))
        });
        if let Some(difference) = difference.map_err(Stop::Error)? {
            return Err(Stop::Found(Finding::Wrong(format!("{difference} (copies beside kernels)"))));
        }
        if finding.is_some() {
            return Ok(());
        }
    }
    Err(Stop::Found(Counts::stalled(&counts)))
}
