//! Flags between kernels that run at the same time, as libraries have them that exchange data without the host. One kernel stores data
//! and flags to memory of B; another waits for the flags, looks at the data, and answers.
//!
//! *Push:* the first runs on A, so that stores take the path. *Pull:* the second runs on A, so that loads do. *Lines:* flags are in line
//! with the data, as NCCL's protocols LL and LL128 have them.

use super::additions::words;
use super::cuda::{Address, Function, Result};
use super::kernel::{self, Kind};
use super::level::Level;
use super::lines::{Finding, Test};
use super::rig::Side;
use super::verify::Verification;

/// Rounds, each a way there and back of some microseconds; of simulated GPUs far more, where the machine is busy.
pub(super) const ROUNDS: u64 = 200;
/// Rounds of the thorough test.
const MANY_ROUNDS: u64 = 1000;
/// Words that a round sends, where flags are not in line.
const SENT: u64 = 64;
/// How often it is tried while nothing is lost, and one kernel waits in vain: the GPUs may be busy.
pub(super) const TRIES: usize = 2;
/// Bytes of B's memory before that where the kernel there counts; the mailbox comes first.
pub(super) const COUNTED: usize = 32768;
/// Bytes of the mailbox before the answers: of one thread, and of many that have lines.
const ANSWER: usize = 128;
const ANSWERS: usize = 16384;
/// Threads of the kernels that exchange lines.
const LANES: usize = 1024;

/// The counts that two kernels have left, or two of their threads.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Rounds that there were to be.
    pub(super) rounds: u64,
    /// Rounds that were answered, as the sender has counted.
    pub(super) answered: u64,
    /// Rounds that have come to the receiver.
    pub(super) received: u64,
    /// Words that were not there yet when their flag was.
    pub(super) wrong: u64,
    /// The first round that had one.
    pub(super) first: u64,
    /// The last flag in the mailbox.
    pub(super) flag: u64,
    /// The last answer there.
    pub(super) answer: u64,
}

/// The memory of two kernels after they ran, as it was read.
pub(super) struct Left<'a> {
    /// The sender's counts.
    pub(super) sender: &'a [u64],
    /// The receiver's.
    pub(super) receiver: &'a [u64],
    pub(super) mailbox: &'a [u64],
}

impl Counts {
    /// The counts of all threads that exchange data.
    pub(super) fn read(kind: Kind, rounds: u64, left: &Left<'_>) -> Vec<Self> {
        let word = |words: &[u64], place: usize| words.get(place).copied().unwrap_or_default();
        let lanes = if kind.has_lines() { LANES } else { 1 };
        let of = |lane: usize| {
            let line = [0, 1].map(|half| word(left.mailbox, lane * 2 + half));
            let (flag, answers) = match kind {
                // Both flags of a line are there, or it is not.
                Kind::Ll => (line.map(|half| half >> 32).into_iter().min().unwrap_or_default(), ANSWERS / 8),
                Kind::Ll128 => (word(left.mailbox, (lane | 7) * 2 + 1), ANSWERS / 8),
                _ => (word(left.mailbox, 0), ANSWER / 8),
            };
            Self {
                rounds,
                answered: word(left.sender, lane),
                received: word(left.receiver, lane * 3),
                wrong: word(left.receiver, lane * 3 + 1),
                first: word(left.receiver, lane * 3 + 2),
                flag,
                answer: word(left.mailbox, answers + lane),
            }
        };
        (0..lanes).map(of).collect()
    }

    /// The finding of the counts; none if one kernel has waited for the other in vain.
    pub(super) fn finding(all: &[Self], kind: Kind) -> Option<Finding> {
        let wrong: u64 = all.iter().map(|counts| counts.wrong).sum();
        let first = all.iter().filter(|counts| counts.wrong > 0).map(|counts| counts.first).min();
        if let Some(first) = first {
            let of_round = if kind.has_lines() { 2 } else { SENT };
            let words = all.iter().map(|counts| counts.received * of_round).sum::<u64>();
            let text = format!("{wrong} of {words} words arrived after their flag, the first in round {first}");
            return Some(Finding::Wrong(text));
        }
        let stored = |counts: &Self| counts.rounds.min(counts.answered + 1);
        if let Some(lost) = all.iter().find(|counts| counts.flag < stored(counts)) {
            let round = stored(lost);
            return Some(Finding::Wrong(format!("a flag that a kernel stored never arrived (round {round})")));
        }
        if let Some(Self { received, .. }) = all.iter().find(|counts| counts.answer < counts.received) {
            return Some(Finding::Wrong(format!("an answer that a kernel stored never arrived (round {received})")));
        }
        let is_whole = |counts: &Self| counts.answered == counts.rounds && counts.received == counts.rounds;
        all.iter().all(is_whole).then_some(Finding::Right)
    }

    /// A finding for kernels that waited in vain each time: nothing is known to be lost, and others may have kept a GPU busy.
    pub(super) fn stalled(all: &[Self]) -> Finding {
        let least = all.iter().map(|counts| counts.answered).min().unwrap_or_default();
        let rounds = all.first().map_or(0, |counts| counts.rounds);
        Finding::Untested(match least {
            0 => "the two kernels did not meet within a second".to_owned(),
            answered => format!("after {answered} of {rounds} rounds a kernel waited for the other for a second"),
        })
    }
}

/// A finding with more words.
fn said(finding: Finding, more: &str) -> Finding {
    match finding {
        Finding::Wrong(text) => Finding::Wrong(text + more),
        Finding::Untested(text) => Finding::Untested(text + more),
        finding => finding,
    }
}

/// One of two kernels.
struct End<'a> {
    side: &'a Side,
    kernel: Function,
    counts: Address,
}

impl Verification<'_> {
    /// Has kernels of both devices exchange flags, and data that they push or pull.
    pub(super) fn flags(&self, test: Test) -> Result<Finding> {
        let is_full = self.rig.level == Level::Full;
        let has_scopes = kernel::has_scopes(self.capability()?);
        let kinds: &[(Kind, u64)] = match test {
            Test::Ll => &[(Kind::Ll, ROUNDS)],
            Test::Ll128 => &[(Kind::Ll128, ROUNDS)],
            _ if !is_full => &[(Kind::Flags, ROUNDS)],
            Test::Pull => &[(Kind::Flags, ROUNDS), (Kind::Acquire, ROUNDS)],
            _ => &[(Kind::Flags, MANY_ROUNDS), (Kind::Acquire, ROUNDS)],
        };
        for &(kind, rounds) in kinds.iter().filter(|(kind, _)| *kind != Kind::Acquire || has_scopes) {
            let finding = self.exchange(kind, test == Test::Pull, rounds, false)?;
            if finding != Finding::Right {
                let how = if kind == Kind::Acquire { " (release and acquire)" } else { "" };
                return Ok(said(finding, how));
            }
        }
        if is_full && test == Test::Flags {
            let finding = self.exchange(Kind::Flags, false, ROUNDS, true)?;
            return Ok(said(finding, " (beside large copies)"));
        }
        Ok(Finding::Right)
    }

    /// Enqueues large copies of other memory from A to B.
    fn copy_beside(&self) -> Result<()> {
        const BESIDE: usize = 16 << 20;
        const COPIES: usize = 8;
        let (driver, [a, b]) = (&self.rig.driver, &self.sides);
        let place = |side: &Side| (side.memory + BESIDE as u64, side.context);
        driver.enter(a.context)?;
        (0..COPIES).try_for_each(|_| driver.copy(place(b), place(a), self.rig.memory() - BESIDE, a.beside))
    }

    /// The compute capability of the older of both devices.
    pub(super) fn capability(&self) -> Result<(i32, i32)> {
        let [a, b] = &self.sides;
        let of = |side: &Side| self.rig.driver.capability(side.device);
        Ok(of(a)?.min(of(b)?))
    }

    fn exchange(&self, kind: Kind, is_pull: bool, rounds: u64, is_beside_copies: bool) -> Result<Finding> {
        let (driver, [a, b]) = (&self.rig.driver, &self.sides);
        // Loading may wait for all work, so it comes before any.
        let [of_a, of_b] = if is_pull { [kind.receive(), kind.send()] } else { [kind.send(), kind.receive()] };
        let on_a = End { side: a, kernel: self.rig.kernel(a, of_a)?, counts: a.memory };
        let on_b = End { side: b, kernel: self.rig.kernel(b, of_b)?, counts: b.memory + COUNTED as u64 };
        let [sender, receiver] = if is_pull { [&on_b, &on_a] } else { [&on_a, &on_b] };
        let mut counts = Vec::new();
        for _ in 0..TRIES {
            self.entry.moves();
            let (mut there, mut here) = (vec![0; COUNTED + LANES * 24], vec![0; LANES * 24]);
            driver.write(b.context, b.memory, &there)?;
            driver.write(a.context, a.memory, &here)?;
            driver.synchronize(a.context)?;
            driver.synchronize(b.context)?;
            if is_beside_copies {
                self.copy_beside()?;
            }
            for end in [receiver, sender] {
                driver.enter(end.side.context)?;
                driver.launch(end.kernel, (b.memory, end.counts, rounds), end.side.stream)?;
            }
            for side in [a, b] {
                driver.enter(side.context)?;
                driver.wait(side.stream)?;
                driver.wait(side.beside)?;
            }
            driver.read(a.context, a.memory, &mut here)?;
            driver.read(b.context, b.memory, &mut there)?;
            let (here, there) = (words(&here), words(&there));
            let (mailbox, on_b) = there.split_at(COUNTED / 8);
            let [sender, receiver] = if is_pull { [on_b, &here] } else { [&here, on_b] };
            counts = Counts::read(kind, rounds, &Left { sender, receiver, mailbox });
            if let Some(finding) = Counts::finding(&counts, kind) {
                return Ok(finding);
            }
        }
        Ok(Counts::stalled(&counts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RIGHT: Counts =
        Counts { rounds: ROUNDS, answered: ROUNDS, received: ROUNDS, wrong: 0, first: 0, flag: ROUNDS, answer: ROUNDS };

    fn wrong(counts: Counts) -> String {
        match Counts::finding(&[RIGHT, counts], Kind::Flags) {
            Some(Finding::Wrong(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn finding_is_right_if_all_rounds_were_answered_and_no_word_came_late() {
        assert_eq!(Counts::finding(&[RIGHT; 3], Kind::Ll), Some(Finding::Right));
    }

    #[test]
    fn finding_says_what_came_late_or_never() {
        let late = Counts { wrong: 3, first: 7, ..RIGHT };
        assert_eq!(wrong(late), "3 of 25600 words arrived after their flag, the first in round 7");
        let lost = Counts { answered: 0, received: 0, flag: 0, answer: 0, ..RIGHT };
        assert_eq!(wrong(lost), "a flag that a kernel stored never arrived (round 1)");
        assert_eq!(
            wrong(Counts { answered: 4, received: 4, flag: 4, answer: 4, ..RIGHT }),
            "a flag that a kernel stored never arrived (round 5)"
        );
        let unanswered = Counts { answered: 6, received: 7, flag: 7, answer: 6, ..RIGHT };
        assert_eq!(wrong(unanswered), "an answer that a kernel stored never arrived (round 7)");
    }

    #[test]
    fn stalled_kernels_say_nothing_of_the_path() {
        let never_met = Counts { answered: 0, received: 0, flag: 1, answer: 0, ..RIGHT };
        assert_eq!(Counts::finding(&[never_met], Kind::Flags), None);
        assert!(matches!(Counts::stalled(&[never_met]), Finding::Untested(_)));
        let stuck = Counts { answered: 4, received: 5, flag: 5, answer: 5, ..RIGHT };
        assert_eq!(Counts::finding(&[RIGHT, stuck], Kind::Ll128), None);
        let said = Counts::stalled(&[RIGHT, stuck]);
        assert!(matches!(said, Finding::Untested(text) if text.starts_with("after 4 of 200 rounds")));
    }

    #[test]
    fn read_takes_each_thread_and_the_flags_of_its_line() {
        let mut mailbox = vec![0; COUNTED / 8];
        // Thread 5 has stored a line of round 3; its answer is that of round 2.
        (mailbox[10], mailbox[11], mailbox[ANSWERS / 8 + 5]) = (3 << 32 | 17, 3 << 32 | 18, 2);
        let (mut sender, mut receiver) = (vec![0; LANES], vec![0; LANES * 3]);
        (sender[5], receiver[15], receiver[16], receiver[17]) = (2, 3, 1, 2);
        let left = Left { sender: &sender, receiver: &receiver, mailbox: &mailbox };
        let all = Counts::read(Kind::Ll, 9, &left);
        let Counts { rounds, answered, received, wrong, first, flag, answer } = all[5];
        assert_eq!([rounds, answered, received, wrong, first, flag, answer], [9, 2, 3, 1, 2, 3, 2]);
        assert_eq!((all.len(), all[4].flag, all[4].received), (LANES, 0, 0));
        mailbox[15] = 7;
        let left = Left { sender: &sender, receiver: &receiver, mailbox: &mailbox };
        assert_eq!(Counts::read(Kind::Ll128, 9, &left)[..9].iter().filter(|counts| counts.flag == 7).count(), 8);
        assert_eq!(Counts::read(Kind::Acquire, 9, &left).len(), 1);
    }
}
