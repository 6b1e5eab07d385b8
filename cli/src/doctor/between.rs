//! Copies from A to B that another process makes, where one end is memory of ours that it has opened.

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use super::cuda::{Address, CudaError, Driver};
use super::lines::{Finding, Test};
use super::partner::{LARGEST, Means, Partner, Request, SIZES, Ticket};
use super::pattern::{difference, pattern, stale};
use super::verify::{AFTER_FAULT, Side, Verification, Witness, of_error};

/// Why a test ends before its end.
enum Stop {
    /// A call of ours failed.
    Error(CudaError),
    /// What the other process found, or we.
    Found(Finding),
}

impl From<CudaError> for Stop {
    fn from(error: CudaError) -> Self {
        Self::Error(error)
    }
}

/// Memory of ours that another process can open.
struct Shared {
    address: Address,
    ticket: Ticket,
    /// What the ticket names, if it is a descriptor.
    descriptor: Option<OwnedFd>,
}

impl Shared {
    fn new(driver: &Driver, side: &Side, means: Means) -> Result<Self, CudaError> {
        match means {
            Means::Ipc => {
                let address = driver.allocate(side.context, LARGEST)?;
                Ok(Self { address, ticket: Ticket::Ipc(driver.export(side.context, address)?), descriptor: None })
            }
            Means::Vmm => {
                let (address, descriptor) = driver.map_shareable(side.device, LARGEST)?;
                let ticket = Ticket::Vmm(descriptor.as_raw_fd());
                Ok(Self { address, ticket, descriptor: Some(descriptor) })
            }
        }
    }

    fn free(self, driver: &Driver, side: &Side) -> Result<(), CudaError> {
        match self.ticket {
            Ticket::Ipc(_) => driver.free(side.context, self.address),
            Ticket::Vmm(_) => driver.unmap(self.address, LARGEST),
        }
    }
}

/// What the test is made with by one means; the reason if it cannot be made.
type Lent = (Test, Result<[Shared; 2], String>);

/// The other process, and what it can open.
pub(super) struct Between {
    partner: Result<Partner, String>,
    lent: [Lent; 2],
}

impl Between {
    /// Starts the other process. It gets descriptors from us, so they come first.
    pub(super) fn start(verification: &Verification<'_>, time: Duration, witness: &impl Witness) -> Self {
        let Verification { driver, sides: [a, b], .. } = verification;
        let lent = [(Test::Ipc, Means::Ipc), (Test::Vmm, Means::Vmm)].map(|(test, means)| {
            let share = |side| Shared::new(driver, side, means);
            // Whatever a call returns that only shares memory, it says nothing of the path.
            (test, share(a).and_then(|a| Ok([a, share(b)?])).map_err(|error| error.to_string()))
        });
        let descriptors = lent.iter().filter_map(|(_, shared)| shared.as_ref().ok()).flatten();
        let descriptors = descriptors.filter_map(|shared| shared.descriptor.as_ref()).collect::<Vec<_>>();
        let uuids = || Ok([driver.uuid(a.device)?, driver.uuid(b.device)?]);
        let partner = uuids().map_err(|error: CudaError| error.to_string()).and_then(|[a, b]| {
            let partner = Partner::start([&a, &b], &descriptors, time)?;
            witness.partner(partner.process());
            Ok(partner)
        });
        Self { partner, lent }
    }

    /// Has it make the copies; says how each test came out.
    pub(super) fn test(
        self,
        verification: &Verification<'_>,
        faulted: &mut bool,
        witness: &impl Witness,
    ) -> [(Test, Finding); 2] {
        let mut partner = self.partner.and_then(|mut partner| match partner.wait() {
            Ok(()) => Ok(partner),
            Err(why) => {
                partner.end();
                Err(why)
            }
        });
        let findings = self.lent.map(|(test, shared)| {
            let finding = match (&mut partner, shared) {
                _ if *faulted => Finding::Untested(AFTER_FAULT.to_owned()),
                (Err(why), _) => Finding::Untested(why.clone()),
                (_, Err(why)) => Finding::Untested(why),
                (Ok(partner), Ok(shared)) => {
                    witness.begin(test);
                    match copies(verification, partner, shared) {
                        Ok(()) => Finding::Right,
                        Err(Stop::Found(finding)) => finding,
                        Err(Stop::Error(error)) => of_error(&error, faulted),
                    }
                }
            };
            witness.found(test, &finding);
            (test, finding)
        });
        if let Ok(partner) = partner {
            partner.end();
        }
        findings
    }
}

fn copies(verification: &Verification<'_>, partner: &mut Partner, [from, to]: [Shared; 2]) -> Result<(), Stop> {
    let Verification { driver, sides: [a, b], .. } = verification;
    let mut ask = |request| partner.ask(&request).finding().map_or(Ok(()), |finding| Err(Stop::Found(finding)));
    ask(Request::Destination(to.ticket))?;
    for (round, size) in (1..).zip(SIZES) {
        let sent = pattern(400 + round, size);
        let mut found = stale(&sent);
        driver.write(b.context, to.address, &found)?;
        driver.synchronize(b.context)?;
        ask(Request::Write(400 + round, size))?;
        driver.read(b.context, to.address, &mut found)?;
        if let Some(difference) = difference(&sent, &found) {
            let wrong = format!("{difference} (copy {round}, to memory of another process)");
            return Err(Stop::Found(Finding::Wrong(wrong)));
        }
    }
    // As within a process, the other side makes the copies too, where it can.
    if driver.can_access(b.device, a.device)? {
        ask(Request::Source(from.ticket))?;
        for (round, size) in (1..).zip(SIZES) {
            driver.write(a.context, from.address, &pattern(500 + round, size))?;
            driver.synchronize(a.context)?;
            ask(Request::Read(500 + round, size)).map_err(|stop| match stop {
                Stop::Found(Finding::Wrong(wrong)) => {
                    Stop::Found(Finding::Wrong(format!("{wrong} (copy {round}, from memory of another process)")))
                }
                other => other,
            })?;
        }
    }
    if ask(Request::Close).is_ok() {
        from.free(driver, a)?;
        to.free(driver, b)?;
    }
    Ok(())
}
