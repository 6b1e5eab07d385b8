//! The kernels that can run, which touch memory as kernels do: one copies words, one adds to them, and two exchange data and
//! flags.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::error::Error;
use crate::ids::ContextId;
use crate::os;

/// A kernel that can run, by the name of its entry point: (to, from, number of words of 8 bytes).
pub const COPY_KERNEL: &str = "p2pshim_probe_copy";
/// Another: (1024 words of 8 bytes, what each addition found there, number of additions).
pub const ADD_KERNEL: &str = "p2pshim_probe_add";

/// One that sends: (mailbox, where it counts, number of rounds).
pub const SEND_KERNEL: &str = "p2pshim_probe_send";
/// One that receives: (mailbox, where it counts, number of rounds).
pub const RECEIVE_KERNEL: &str = "p2pshim_probe_receive";

/// The work of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// Copies words.
    Copy,
    /// Adds 1, 2 and so on to words in turn, by atomic operations.
    Add,
    /// Stores words and then a flag, and waits for another, round by round.
    Send,
    /// Waits for the flag, looks at the words, and stores the other.
    Receive,
}

impl Kernel {
    pub(crate) fn named(name: &str) -> Option<Kernel> {
        match name {
            COPY_KERNEL => Some(Kernel::Copy),
            ADD_KERNEL => Some(Kernel::Add),
            SEND_KERNEL => Some(Kernel::Send),
            RECEIVE_KERNEL => Some(Kernel::Receive),
            _ => None,
        }
    }
}

/// A kernel with its arguments, not yet sent on its way.
#[derive(Clone, Copy)]
pub(crate) struct Launch {
    pub(crate) kernel: Kernel,
    pub(crate) context: ContextId,
    pub(crate) to: u64,
    pub(crate) from: u64,
    pub(crate) words: u64,
}

impl Launch {
    /// The addresses that it begins to touch memory at.
    pub(crate) fn touched(&self) -> [u64; 2] {
        [self.to, self.from]
    }
}

/// The fate of a kernel's accesses to one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touch {
    /// They have their effect.
    Right,
    /// Stores vanish, and loads find all bits set.
    Lost,
    /// Flags arrive before what was stored earlier.
    Reordered,
    /// They end the context.
    Illegal,
}

/// A kernel, checked and ready to run.
#[derive(Clone, Debug)]
pub(crate) struct KernelRun {
    /// Its work.
    pub kernel: Kernel,
    /// The destination.
    pub to: u64,
    /// The source; what additions have found goes there.
    pub from: u64,
    /// How many words of 8 bytes, or additions.
    pub words: u64,
    /// The fate of its stores, or its additions.
    pub stores: Touch,
    /// The fate of its loads.
    pub loads: Touch,
    /// Where its context keeps what broke it.
    pub broken: Arc<OnceLock<Error>>,
}

/// The words that additions go to, in turn.
pub(crate) const ADDED_WORDS: u64 = 1024;
/// The words of a mailbox: the flag, the one that answers it, and from the 32nd on the data.
pub(crate) const MAILBOX_WORDS: u64 = DATA / 8 + SENT_WORDS;
/// Words that kernels that exchange flags count in: rounds, wrong words, and the first round that had one.
pub(crate) const COUNTED_WORDS: u64 = 3;
/// Bytes of a mailbox before the second flag, and before the data.
const ANSWER: u64 = 128;
const DATA: u64 = 256;
/// Words of data a round.
const SENT_WORDS: u64 = 64;
/// How long kernels wait for a flag.
const FLAG_PATIENCE: Duration = Duration::from_secs(1);
/// How long data that arrives later than its flag waits for an answer to the flag.
const LATENESS: Duration = Duration::from_millis(100);

impl KernelRun {
    /// Runs it on the calling thread.
    pub(crate) fn run(&self) {
        let (&Self { to, from, words, .. }, bytes) = (self, self.words * 8);
        match (self.kernel, self.stores, self.loads) {
            (_, Touch::Illegal, _) | (.., Touch::Illegal) => {
                self.broken.get_or_init(|| Error::ILLEGAL_ADDRESS);
            }
            (Kernel::Send, stores, _) => self.send(stores),
            (Kernel::Receive, ..) => self.receive(),
            (Kernel::Copy, Touch::Lost, _) => {}
            (Kernel::Copy, _, Touch::Lost) => os::fill(to, u32::MAX, 1, bytes),
            (Kernel::Copy, ..) => os::copy(to, from, bytes),
            // The words that it finds go to memory from which nothing is loaded.
            (Kernel::Add, Touch::Lost, _) => os::fill(from, u32::MAX, 1, bytes),
            (Kernel::Add, ..) => {
                for addition in 0..words {
                    let found = os::add(to + addition % ADDED_WORDS * 8, addition + 1);
                    os::copy(from + addition * 8, &raw const found as u64, 8);
                }
            }
        }
    }

    fn send(&self, stores: Touch) {
        let &Self { to, from, words: rounds, .. } = self;
        for round in 1..=rounds {
            let data = || (0..SENT_WORDS).for_each(|word| os::store(to + DATA + word * 8, round << 32 | word));
            match stores {
                Touch::Lost => {}
                Touch::Reordered => {
                    os::store(to, round);
                    os::reaches(to + ANSWER, round, LATENESS);
                    data();
                }
                Touch::Right | Touch::Illegal => {
                    data();
                    os::store(to, round);
                }
            }
            if !os::reaches(to + ANSWER, round, FLAG_PATIENCE) {
                return;
            }
            os::store(from, round);
        }
    }

    fn receive(&self) {
        let &Self { to, from, words: rounds, .. } = self;
        let (mut wrong, mut first) = (0, 0);
        for round in 1..=rounds {
            if !os::reaches(to, round, FLAG_PATIENCE) {
                return;
            }
            let differ = (0..SENT_WORDS).filter(|word| os::load(to + DATA + word * 8) != round << 32 | word).count();
            wrong += differ as u64;
            if differ > 0 && first == 0 {
                first = round;
            }
            [round, wrong, first].iter().zip(0..).for_each(|(value, word)| os::store(from + word * 8, *value));
            os::store(to + ANSWER, round);
        }
    }
}
