//! Copies from A to B that another process makes, where one end is memory of ours that it has opened.

use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::cuda::{Address, CudaError};
use super::journal::Entry;
use super::lines::{Finding, Line, Test};
use super::partner::{Channel, Partner, Request, SIZES, Ticket};
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
    if test == Test::Ipc {
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
                    match copies(verification, channel, [*from, *to]) {
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
    let ask = |request| channel.ask(&request).finding().map_or(Ok(()), |finding| Err(Stop::Found(finding)));
    let all = || {
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
    };
    let result = all();
    // A resource that stays open says nothing of the path.
    channel.ask(&Request::Close);
    result
}
