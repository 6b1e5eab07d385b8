//! The second process of the test between processes, and how the first talks to it: one process for each GPU is how training
//! runs.
//!
//! Data goes from A to B, as within a process. The first owns memory of both and exports it. The second opens that of B on
//! device A, and copies to it from its own; and opens that of A on device B, and copies from there. Each says a line, and waits
//! for one; both begin with the ordinals of A and B, since pairs that have no device in common are tested at the same time:
//!
//! ```text
//! first                                    second
//!                                          "ready", or {"refused":"TEXT"}
//! [[0,1],{"destination":TICKET}]           {"reply":[[0,1],"done"]}, or {"reply":[[0,1],{"cannot":"TEXT"}]}
//! [[0,1],{"write":[NUMBER,BYTES]}]         done, cannot, or fault
//! [[0,1],{"source":TICKET}]                done, or cannot
//! [[0,1],{"read":[NUMBER,BYTES]}]          as write, or wrong
//! [[0,1],{"fill":[NUMBER,BYTES]}]          done, or cannot
//! [[0,1],{"receive":[ROUNDS,BYTES]}]       {"counted":[RECEIVED,WRONG,FIRST]}, cannot, or fault
//! [[0,1],"close"]                          done
//! ```
//! For the last test each has a kernel run, the first on B and the second on A, which exchange flags and data in memory of B, and
//! meanwhile the second copies to what is beside it.
//!
//! A ticket is what memory is opened by, `{"ipc":HANDLE}` or `{"vmm":DESCRIPTOR}`: descriptors are inherited under the same number.
//! The second ends when the first does: nobody writes to it any more.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader};
use std::os::fd::{OwnedFd, RawFd};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::additions::words;
use super::cuda::{Address, Context, Device, Driver, Handle, Result, Stream};
use super::kernel::Kind;
use super::lines::Finding;
use super::pattern::{Patterns, difference};
use super::rig::{LARGEST, Modules};
use crate::lock::lock;
use crate::processes;

/// How much is copied each way.
pub(super) const SIZES: [usize; 3] = [4 << 10, 1 << 20, LARGEST];
/// Bytes of memory before what is copied while kernels use the first of it.
pub(super) const BESIDE: usize = 1 << 20;
/// In so many copies.
const PIECES: usize = 16;

/// The second process's reply to a request.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Reply {
    Done,
    /// The counts of a kernel that received flags.
    Counted([u64; 3]),
    /// Data was wrong.
    Wrong(String),
    /// Its device faulted.
    Fault(String),
    /// A call could not be made.
    Cannot(String),
}

impl Reply {
    fn of(result: Result<Option<String>>) -> Self {
        match result {
            Ok(None) => Self::Done,
            Ok(Some(wrong)) => Self::Wrong(wrong),
            Err(error) if error.is_fault() => Self::Fault(error.to_string()),
            Err(error) => Self::Cannot(error.to_string()),
        }
    }

    /// The finding about the pair; none if all is right so far.
    pub(super) fn finding(self) -> Option<Finding> {
        match self {
            Self::Done | Self::Counted(_) => None,
            Self::Wrong(text) => Some(Finding::Wrong(text)),
            Self::Fault(text) => Some(Finding::Wrong(format!("{text}, in the process that opened the memory"))),
            Self::Cannot(text) => Some(Finding::Untested(text)),
        }
    }
}

/// How memory comes to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Means {
    /// By `cuIpcGetMemHandle`.
    Ipc,
    /// By `cuMemExportToShareableHandle`.
    Vmm,
}

/// A ticket, by which the second process opens memory of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Ticket {
    Ipc(Handle),
    Vmm(RawFd),
}

/// A request to the second process.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Request {
    /// To open memory of B on A.
    Destination(Ticket),
    /// To copy the part of the pattern of that number there.
    Write(u64, usize),
    /// To open memory of A on B.
    Source(Ticket),
    /// To copy from there, and see whether it is the part of that number.
    Read(u64, usize),
    /// To have the part of that number ready on A, and a kernel.
    Fill(u64, usize),
    /// To have a kernel on A receive so many rounds of flags from memory of B, and to copy that part beside it meanwhile.
    Receive(u64, usize),
    /// To close both.
    Close,
}

/// The second process's words.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    /// It has started CUDA.
    Ready,
    /// It cannot take part.
    Refused(String),
    /// About a pair.
    Reply([usize; 2], Reply),
}

/// Whom the replies to a pair go to.
type Asking = Arc<Mutex<HashMap<[usize; 2], Sender<Reply>>>>;

/// The second process, as the first has it.
pub(super) struct Partner {
    child: Child,
    input: Arc<Mutex<Option<ChildStdin>>>,
    ready: Receiver<std::result::Result<(), String>>,
    asking: Asking,
}

/// The channel to the second process for one pair.
pub(super) struct Channel {
    pair: [usize; 2],
    input: Arc<Mutex<Option<ChildStdin>>>,
    replies: Receiver<Reply>,
}

impl Channel {
    /// Has it do something, which may never end.
    pub(super) fn ask(&self, request: &Request) -> Reply {
        let sent = lock(&self.input).as_mut().map(|input| processes::tell(input, &(self.pair, request)));
        let reply = sent.and_then(std::result::Result::ok).and_then(|()| self.replies.recv().ok());
        reply.unwrap_or_else(|| Reply::Cannot("the other process ended".to_owned()))
    }
}

impl Partner {
    /// Starts it for the devices of these ordinals, and hands down these descriptors.
    ///
    /// # Errors
    /// A sentence for the user.
    pub(super) fn start(devices: &[usize], descriptors: &[Arc<OwnedFd>]) -> std::result::Result<Self, String> {
        descriptors.iter().for_each(|descriptor| processes::set_inherited(descriptor, true));
        let started = Self::command(devices).and_then(|mut command| command.spawn());
        descriptors.iter().for_each(|descriptor| processes::set_inherited(descriptor, false));
        let mut child = started.map_err(|error| format!("another process could not be started: {error}"))?;
        let (sender, ready) = mpsc::channel();
        let (asking, input) = (Asking::default(), Arc::new(Mutex::new(child.stdin.take())));
        if let Some(output) = child.stdout.take() {
            let asking = Arc::clone(&asking);
            thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(io::Result::ok) {
                    match serde_json::from_str(&line) {
                        Ok(Word::Reply(pair, reply)) => {
                            let _ = lock(&asking).get(&pair).map(|whom| whom.send(reply));
                        }
                        Ok(Word::Ready) => drop(sender.send(Ok(()))),
                        Ok(Word::Refused(why)) => drop(sender.send(Err(why))),
                        // A library's.
                        Err(_) => {}
                    }
                }
                // Nobody gets a reply any more.
                lock(&asking).clear();
            });
        }
        Ok(Self { child, input, ready, asking })
    }

    /// A channel for the tests of a pair.
    pub(super) fn channel(&self, pair: [usize; 2]) -> Channel {
        let (sender, replies) = mpsc::channel();
        lock(&self.asking).insert(pair, sender);
        Channel { pair, input: Arc::clone(&self.input), replies }
    }

    fn command(devices: &[usize]) -> io::Result<Command> {
        let mut command = processes::own("gpu-worker", &[])?;
        command.arg("--partner").args(devices.iter().map(usize::to_string));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok(command)
    }

    pub(super) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has started CUDA.
    ///
    /// # Errors
    /// Why it has not, for the user.
    pub(super) fn wait(&mut self, time: Duration) -> std::result::Result<(), String> {
        match self.ready.recv_timeout(time) {
            Ok(said) => said.map_err(|why| format!("in the other process {why}")),
            Err(RecvTimeoutError::Timeout) => {
                Err(format!("the other process had not started CUDA after {} s", time.as_secs()))
            }
            Err(RecvTimeoutError::Disconnected) => Err("the other process ended before it had started CUDA".to_owned()),
        }
    }

    /// Waits for its end.
    pub(super) fn end(mut self) {
        drop(lock(&self.input).take());
        processes::end(&mut self.child);
    }
}

/// A device of the second process; or why it has none.
type Ready = std::result::Result<Side, String>;

/// Serves the first process's requests, in the second; it ends with the first.
pub(super) fn serve(driver: &Arc<Driver>, devices: &[(usize, Device)]) {
    let asked = processes::asked();
    let starting = devices.iter().map(|&(ordinal, device)| {
        let driver = Arc::clone(driver);
        (ordinal, thread::spawn(move || Side::new(&driver, device).map_err(|error| error.to_string())))
    });
    let starting: Vec<_> = starting.collect();
    let sides: HashMap<usize, Ready> = starting
        .into_iter()
        .map(|(ordinal, side)| (ordinal, side.join().unwrap_or_else(|_| Err("a thread ended".to_owned()))))
        .collect();
    let patterns = Arc::new(Patterns::new(LARGEST));
    let mut guests: HashMap<[usize; 2], Sender<Request>> = HashMap::new();
    processes::say(&Word::Ready);
    while let Ok((pair, request)) = asked.recv() {
        let guest = guests.entry(pair).or_insert_with(|| {
            let side =
                |ordinal: usize| sides.get(&ordinal).cloned().unwrap_or_else(|| Err(format!("no GPU {ordinal}")));
            let (driver, patterns, sides) = (Arc::clone(driver), Arc::clone(&patterns), pair.map(side));
            let (sender, requests) = mpsc::channel();
            // A call that hangs keeps its thread.
            thread::spawn(move || serve_pair(&driver, &patterns, pair, sides, &requests));
            sender
        });
        let _ = guest.send(request);
    }
}

fn serve_pair(driver: &Driver, patterns: &Patterns, pair: [usize; 2], sides: [Ready; 2], requests: &Receiver<Request>) {
    let mut guest = match sides {
        [Ok(a), Ok(b)] => Ok(Guest { driver, patterns, sides: [a, b], modules: Modules::default() }),
        [Err(why), _] | [_, Err(why)] => Err(why),
    };
    while let Ok(request) = requests.recv() {
        let copies = matches!(request, Request::Write(..) | Request::Read(..) | Request::Receive(..));
        let reply = match guest.as_mut().map(|guest| guest.serve(request)) {
            Err(why) => Reply::Cannot(format!("in the other process {why}")),
            Ok(Ok(Served::Counted(counts))) => Reply::Counted(counts),
            // Whatever error a call returns that only opens memory, it says nothing of the path.
            Ok(Err(error)) if !copies => Reply::Cannot(error.to_string()),
            Ok(Ok(Served::Copied(wrong))) => Reply::of(Ok(wrong)),
            Ok(Err(error)) => Reply::of(Err(error)),
        };
        processes::say(&Word::Reply(pair, reply));
    }
}

/// Says why the second process cannot take part.
pub(super) fn refuse(why: &str) {
    processes::say(&Word::Refused(why.to_owned()));
}

/// The second process's context and memory on a device.
#[derive(Clone, Copy)]
struct Side {
    device: Device,
    context: Context,
    own: Address,
    /// Memory of the other device, which the first process owns.
    opened: Option<(Address, Means)>,
    stream: Stream,
    /// For a kernel that runs beside copies.
    beside: Stream,
}

impl Side {
    fn new(driver: &Driver, device: Device) -> Result<Self> {
        let context = driver.context(device)?;
        Ok(Self {
            device,
            context,
            own: driver.allocate(context, LARGEST)?,
            opened: None,
            stream: driver.stream(context)?,
            beside: driver.stream(context)?,
        })
    }
}

/// The second process's side of a pair.
struct Guest<'a> {
    driver: &'a Driver,
    patterns: &'a Patterns,
    sides: [Side; 2],
    modules: Modules,
}

/// The result of a request.
enum Served {
    /// How data is wrong that was copied.
    Copied(Option<String>),
    /// The counts of a kernel.
    Counted([u64; 3]),
}

impl Side {
    fn open(&mut self, driver: &Driver, ticket: Ticket) -> Result<()> {
        self.opened = Some(match ticket {
            Ticket::Ipc(handle) => (driver.import(self.context, handle)?, Means::Ipc),
            Ticket::Vmm(descriptor) => (driver.map_shared(self.device, descriptor, LARGEST)?, Means::Vmm),
        });
        Ok(())
    }

    fn close(&mut self, driver: &Driver) -> Result<()> {
        match self.opened.take() {
            Some((address, Means::Ipc)) => driver.close(self.context, address),
            Some((address, Means::Vmm)) => driver.unmap(address, LARGEST),
            None => Ok(()),
        }
    }
}

impl Guest<'_> {
    /// Does what it is asked for.
    fn serve(&mut self, request: Request) -> Result<Served> {
        let Self { driver, patterns, sides: [a, b], .. } = self;
        match request {
            Request::Destination(ticket) => a.open(driver, ticket)?,
            Request::Source(ticket) => b.open(driver, ticket)?,
            Request::Write(number, bytes) => {
                let [sent, _] = patterns.part(number, bytes);
                driver.write(a.context, a.own, sent)?;
                driver.synchronize(a.context)?;
                if let Some((to, _)) = a.opened {
                    driver.copy_unified(to, a.own, bytes, a.stream)?;
                }
                driver.wait(a.stream)?;
            }
            Request::Read(number, bytes) => {
                let [sent, stale] = patterns.part(number, bytes);
                driver.write(b.context, b.own, stale)?;
                driver.synchronize(b.context)?;
                if let Some((from, _)) = b.opened {
                    driver.copy_unified(b.own, from, bytes, b.stream)?;
                }
                driver.wait(b.stream)?;
                let wrong = patterns.found(bytes, |found| {
                    driver.read(b.context, b.own, found)?;
                    Ok(difference(sent, found).map(|difference| difference.to_string()))
                });
                return wrong.map(Served::Copied);
            }
            Request::Fill(number, bytes) => {
                let [sent, _] = patterns.part(number, bytes);
                driver.write(a.context, a.own + BESIDE as u64, sent)?;
                driver.write(a.context, a.own, &[0; 24])?;
                let kind = Kind::of_flags(driver.capability(a.device)?);
                self.modules.kernel(driver, (a.device, a.context), kind.receive())?;
                driver.synchronize(a.context)?;
            }
            Request::Receive(rounds, bytes) => return self.receive(rounds, bytes),
            Request::Close => {
                a.close(driver)?;
                b.close(driver)?;
            }
        }
        Ok(Served::Copied(None))
    }

    /// Has a kernel on A receive flags and data from memory of B, and copies to what is beside it.
    fn receive(&self, rounds: u64, bytes: usize) -> Result<Served> {
        let Self { driver, sides: [a, _], modules, .. } = self;
        let Some((there, _)) = a.opened else { return Ok(Served::Counted([0; 3])) };
        let kind = Kind::of_flags(driver.capability(a.device)?);
        let kernel = modules.kernel(driver, (a.device, a.context), kind.receive())?;
        driver.enter(a.context)?;
        driver.launch(kernel, (there, a.own, rounds), a.beside)?;
        let piece = bytes / PIECES;
        for offset in (0..bytes).step_by(piece.max(1)) {
            let offset = (BESIDE + offset) as u64;
            driver.copy_unified(there + offset, a.own + offset, piece, a.stream)?;
        }
        driver.wait(a.stream)?;
        driver.wait(a.beside)?;
        let mut counts = [0; 24];
        driver.read(a.context, a.own, &mut counts)?;
        Ok(Served::Counted(words(&counts).try_into().unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_of_what_could_not_be_made_is_no_failure() {
        assert_eq!(Reply::Done.finding(), None);
        assert!(matches!(Reply::Cannot(String::new()).finding(), Some(Finding::Untested(_))));
        assert!(matches!(Reply::Fault(String::new()).finding(), Some(Finding::Wrong(_))));
    }
}
