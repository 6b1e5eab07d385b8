//! The kernels that can run, which touch memory as kernels do: one copies words, one adds to them, and pairs of others exchange
//! data and flags.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::declared::{self, Declared, PARAMETERS, Span};
use crate::error::Error;
use crate::ids::ContextId;
use crate::os;
use crate::traffic::Traffic;

/// A kernel that can run, by the name of its entry point: (to, from, number of words of 8 bytes).
pub const COPY_KERNEL: &str = "p2pshim_probe_copy";
/// Another: (1024 words of 8 bytes, what each addition found there, number of additions).
pub const ADD_KERNEL: &str = "p2pshim_probe_add";

/// One that sends: (mailbox, where it counts, number of rounds).
pub const SEND_KERNEL: &str = "p2pshim_probe_send";
/// One that receives: (mailbox, where it counts, number of rounds).
pub const RECEIVE_KERNEL: &str = "p2pshim_probe_receive";
/// One that adds words: (to, from, number of words).
pub(crate) const REDUCE_KERNEL: &str = "p2pshim_probe_reduce";
/// Both are there with releases and acquires as well.
const ACQUIRING: &str = "_acquire";

/// The kernel that sends data with flags in line, and the one that receives it: (mailbox, where it counts, number of rounds).
pub(crate) const LL_KERNELS: [&str; 2] = ["p2pshim_probe_ll_send", "p2pshim_probe_ll_receive"];
/// Protocol LL128: each line of 128 bytes has a flag.
pub(crate) const LL128_KERNELS: [&str; 2] = ["p2pshim_probe_ll128_send", "p2pshim_probe_ll128_receive"];

/// The work of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// Copies words.
    Copy,
    /// Adds words to others.
    Reduce,
    /// Adds 1, 2 and so on to words in turn, by atomic operations.
    Add,
    /// Stores words and then a flag, and waits for another, round by round.
    Send,
    /// Waits for the flag, looks at the words, and stores the other.
    Receive,
    /// Stores lines with flags in them, and waits for the answer to each, round by round.
    SendLines(Lines),
    /// Waits for the flags, looks at the lines, and answers.
    ReceiveLines(Lines),
    /// Accesses memory as the environment says.
    Declared(&'static Declared),
}

/// Lines with flags in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lines {
    /// Lines of 16 bytes, whose second and fourth word of 4 bytes are the flag.
    Short,
    /// Lines of 128 bytes, whose last word of 8 bytes is the flag.
    Long,
}

impl Kernel {
    pub(crate) fn named(name: &str) -> Option<Kernel> {
        let [ll, ll128] = [(LL_KERNELS, Lines::Short), (LL128_KERNELS, Lines::Long)];
        let lines = |([send, receive], lines): ([&str; 2], Lines)| match name {
            _ if name == send => Some(Kernel::SendLines(lines)),
            _ if name == receive => Some(Kernel::ReceiveLines(lines)),
            _ => None,
        };
        match name.strip_suffix(ACQUIRING).unwrap_or(name) {
            COPY_KERNEL => Some(Kernel::Copy),
            REDUCE_KERNEL => Some(Kernel::Reduce),
            ADD_KERNEL => Some(Kernel::Add),
            SEND_KERNEL => Some(Kernel::Send),
            RECEIVE_KERNEL => Some(Kernel::Receive),
            _ => lines(ll).or_else(|| lines(ll128)),
        }
    }

    /// How many parameters have to be read for a launch.
    pub(crate) fn parameters(self) -> usize {
        if let Kernel::Declared(declared) = self { declared.parameters() } else { 3 }
    }

    /// How many words it touches on either side: the number that it is launched with, or fewer.
    fn reach(self, words: u64) -> [u64; 2] {
        match self {
            Kernel::Copy | Kernel::Reduce => [words; 2],
            Kernel::Declared(_) => [0; 2],
            Kernel::Add => [ADDED_WORDS, words],
            Kernel::Send | Kernel::Receive => [MAILBOX_WORDS, COUNTED_WORDS],
            Kernel::SendLines(_) => [(ANSWERS + LANES * 8) / 8, LANES],
            Kernel::ReceiveLines(_) => [(ANSWERS + LANES * 8) / 8, LANES * COUNTED_WORDS],
        }
    }
}

/// A kernel with its arguments, not yet sent on its way.
#[derive(Clone, Copy)]
pub(crate) struct Launch {
    pub(crate) kernel: Kernel,
    pub(crate) context: ContextId,
    pub(crate) parameters: [u64; PARAMETERS],
}

impl Launch {
    /// The spans that it accesses: that of stores or, of another kernel than a declared one, of its other work there, and that of loads.
    pub(crate) fn spans(&self) -> Vec<Span> {
        if let Kernel::Declared(declared) = self.kernel {
            return declared.spans(self.parameters).filter(|span| span.bytes > 0).collect();
        }
        let [to, from, words, ..] = self.parameters;
        let [at_to, at_from] = self.kernel.reach(words);
        let span =
            |address, words: u64, writes| Span { address, bytes: words.saturating_mul(8), writes, is_lost: false };
        vec![span(to, at_to, true), span(from, at_from, false)]
    }

    /// The addresses that it begins to touch memory at.
    pub(crate) fn touched(&self) -> Vec<u64> {
        self.spans().iter().map(|span| span.address).collect()
    }
}

/// The fate of a kernel's accesses to one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touch {
    /// They have their effect.
    Right,
    /// Stores vanish, and loads find all bits set.
    Lost,
    /// Flags arrive before what was stored earlier, or with it.
    Reordered,
    /// Loads find what they found the first time, but for flags.
    Stale,
    /// Stores vanish if kernels of other pairs run meanwhile.
    Crowded,
    /// It never ends.
    Endless,
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
    /// The accesses of a declared kernel.
    pub spans: Vec<Span>,
    /// The fate of its stores, or its additions.
    pub stores: Touch,
    /// The fate of its loads.
    pub loads: Touch,
    /// Counts it while it runs, if it stores to another device.
    pub traffic: Option<Arc<Traffic>>,
    /// Where its context keeps what broke it.
    pub broken: Arc<OnceLock<Error>>,
}

/// The words that additions go to, in turn.
const ADDED_WORDS: u64 = 1024;
/// The words of a mailbox: the flag, the one that answers it, and from the 32nd on the data.
const MAILBOX_WORDS: u64 = DATA / 8 + SENT_WORDS;
/// Words that kernels that exchange flags count in: rounds, wrong words, and the first round that had one.
const COUNTED_WORDS: u64 = 3;
/// Bytes of a mailbox before the second flag, and before the data.
const ANSWER: u64 = 128;
const DATA: u64 = 256;
/// Words of data a round.
const SENT_WORDS: u64 = 64;
/// Threads that exchange lines, each 16 bytes of them, and bytes before the answers.
const LANES: u64 = 1024;
const ANSWERS: u64 = LANES * 16;
/// Threads of a line that has one flag.
const LINE_LANES: u64 = 8;
/// How long kernels wait for a flag.
const FLAG_PATIENCE: Duration = Duration::from_secs(1);
/// How long they go on. Real ones take milliseconds; these share the host's processors with others.
const MEETING: Duration = Duration::from_secs(8);
/// How long data that arrives later than its flag waits for an answer to the flag.
const LATENESS: Duration = Duration::from_millis(100);
/// How long a kernel that minds others waits for them.
const CROWDED: Duration = Duration::from_millis(50);

/// The time in which a kernel and another one wait for each other.
struct Meeting(Instant);

impl Meeting {
    fn begin() -> Self {
        Self(Instant::now() + MEETING)
    }

    /// Waits until a word has at least that value; false if the other kernel does not come.
    fn reaches(&self, address: u64, value: u64) -> bool {
        os::reaches(address, value, FLAG_PATIENCE.min(self.0.saturating_duration_since(Instant::now())))
    }
}

impl KernelRun {
    /// How long it takes by the modelled clock, besides what it copies.
    pub(crate) fn time(&self) -> Duration {
        if let Kernel::Declared(declared) = self.kernel { declared.time } else { Duration::ZERO }
    }

    /// Runs it on the calling thread.
    pub(crate) fn run(&self) {
        let (&Self { to, from, words, .. }, bytes) = (self, self.words * 8);
        let under_way = self.traffic.as_deref().map(Traffic::begin);
        match (self.kernel, self.stores, self.loads) {
            (_, Touch::Illegal, _) | (.., Touch::Illegal) => {
                self.broken.get_or_init(|| Error::ILLEGAL_ADDRESS);
            }
            (_, Touch::Endless, _) => os::hang(),
            (Kernel::Declared(declared), ..) => {
                os::pause(declared.time);
                declared::run(&self.spans);
            }
            (Kernel::Send, stores, _) => self.send(stores),
            (Kernel::Receive, loads, _) => self.receive(loads),
            (Kernel::SendLines(lines), stores, _) => self.send_lines(lines, stores),
            (Kernel::ReceiveLines(lines), ..) => self.receive_lines(lines),
            (Kernel::Copy, Touch::Lost, _) => {}
            (Kernel::Copy, Touch::Crowded, _) if under_way.is_some_and(|begun| begun.meets_others(CROWDED)) => {}
            (Kernel::Copy, _, Touch::Lost) => os::fill(to, u32::MAX, 1, bytes),
            (Kernel::Copy, ..) => os::copy(to, from, bytes),
            (Kernel::Reduce, Touch::Lost, _) => {}
            (Kernel::Reduce, _, loads) => {
                for at in (0..bytes).step_by(8) {
                    let more = if loads == Touch::Lost { u64::MAX } else { os::load(from + at) };
                    os::store(to + at, os::load(to + at).wrapping_add(more));
                }
            }
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
        let (&Self { to, from, words: rounds, .. }, meeting) = (self, Meeting::begin());
        for round in 1..=rounds {
            let data = || (0..SENT_WORDS).for_each(|word| os::store(to + DATA + word * 8, round << 32 | word));
            match stores {
                Touch::Lost => {}
                Touch::Reordered => {
                    os::store(to, round);
                    os::reaches(to + ANSWER, round, LATENESS);
                    data();
                }
                _ => {
                    data();
                    os::store(to, round);
                }
            }
            if !meeting.reaches(to + ANSWER, round) {
                return;
            }
            os::store(from, round);
        }
    }

    fn receive(&self, loads: Touch) {
        let (&Self { to, from, words: rounds, .. }, meeting) = (self, Meeting::begin());
        let (mut wrong, mut first) = (0, 0);
        let mut seen: Option<Vec<u64>> = None;
        for round in 1..=rounds {
            let data = || (0..SENT_WORDS).map(|word| os::load(to + DATA + word * 8)).collect::<Vec<_>>();
            let found = match loads {
                Touch::Lost => vec![u64::MAX; SENT_WORDS as usize],
                _ if !meeting.reaches(to, round) => return,
                Touch::Stale => seen.get_or_insert_with(data).clone(),
                _ => data(),
            };
            let differ = found.iter().zip(0..).filter(|(found, word)| **found != (round << 32 | word)).count();
            wrong += differ as u64;
            if differ > 0 && first == 0 {
                first = round;
            }
            [round, wrong, first].iter().zip(0..).for_each(|(value, word)| os::store(from + word * 8, *value));
            if loads != Touch::Lost {
                os::store(to + ANSWER, round);
            }
        }
    }

    fn send_lines(&self, lines: Lines, stores: Touch) {
        let &Self { to, from, words: rounds, .. } = self;
        let (answer, meeting) = (|lane: u64| to + ANSWERS + lane * 8, Meeting::begin());
        for round in 1..=rounds {
            let put = |lane: u64, words: [u64; 2]| {
                words.iter().zip(0..).for_each(|(word, place)| os::store(to + lane * 16 + place * 8, *word));
            };
            let put_all = || (0..LANES).for_each(|lane| put(lane, lines.words(lane, round)));
            match stores {
                Touch::Lost => {}
                Touch::Reordered => {
                    // The flags come first, with the data of the round before.
                    for lane in (0..LANES).filter(|&lane| lines.has_flag(lane)) {
                        let old = lines.words(lane, round - 1);
                        put(
                            lane,
                            match lines {
                                Lines::Short => old.map(|word| round << 32 | word & u64::from(u32::MAX)),
                                Lines::Long => [old[0], round],
                            },
                        );
                    }
                    os::reaches(answer(0), round, LATENESS);
                    put_all();
                }
                _ => put_all(),
            }
            if !(0..LANES).all(|lane| meeting.reaches(answer(lane), round)) {
                return;
            }
            (0..LANES).for_each(|lane| os::store(from + lane * 8, round));
        }
    }

    fn receive_lines(&self, lines: Lines) {
        let (&Self { to, from, words: rounds, .. }, meeting) = (self, Meeting::begin());
        let mut counts = vec![[0u64; COUNTED_WORDS as usize]; LANES as usize];
        for round in 1..=rounds {
            for lane in (0..LANES).filter(|&lane| lines.has_flag(lane)) {
                let flags: &[u64] = if lines == Lines::Short { &[0, 1] } else { &[1] };
                let least = if lines == Lines::Short { round << 32 } else { round };
                if !flags.iter().all(|place| meeting.reaches(to + lane * 16 + place * 8, least)) {
                    return;
                }
            }
            for (lane, [received, wrong, first]) in (0..).zip(&mut counts) {
                let found = [0, 8].map(|place| os::load(to + lane * 16 + place));
                let differ =
                    found.iter().zip(lines.words(lane, round)).filter(|(found, right)| **found != *right).count();
                *received = round;
                *wrong += differ as u64;
                if differ > 0 && *first == 0 {
                    *first = round;
                }
                let all = [*received, *wrong, *first];
                all.iter().zip(0..).for_each(|(value, word)| os::store(from + (lane * 3 + word) * 8, *value));
                os::store(to + ANSWERS + lane * 8, round);
            }
        }
    }
}

impl Lines {
    /// Whether a thread's 16 bytes have a flag.
    fn has_flag(self, lane: u64) -> bool {
        self == Lines::Short || lane % LINE_LANES == LINE_LANES - 1
    }

    /// The two words of 8 bytes that a thread stores in a round.
    fn words(self, lane: u64, round: u64) -> [u64; 2] {
        match self {
            Lines::Short => {
                let data = (round as u32).wrapping_mul(0x9E37_79B1) ^ lane as u32;
                [data, !data].map(|data| round << 32 | u64::from(data))
            }
            Lines::Long => {
                let data = round.wrapping_mul(0x1E37_79B9_7F4A_7C15) ^ lane;
                [data, if self.has_flag(lane) { round } else { !data }]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meeting_that_has_gone_on_for_too_long_ends_where_a_kernel_would_wait() {
        let word = 7u64;
        let reaches = |meeting: &Meeting, value| meeting.reaches(&raw const word as u64, value);
        let is_over = Meeting(Instant::now());
        assert!(reaches(&is_over, 7) && !reaches(&is_over, 8));
        assert!(reaches(&Meeting::begin(), 7));
    }
}
