//! Flags between kernels that run at the same time, as libraries have them that exchange data without the host: one on A stores data
//! and then a flag to memory of B; one on B waits for the flag, looks at the data, and answers.

use super::additions::words;
use super::cuda::Result;
use super::kernel;
use super::level::Level;
use super::lines::Finding;
use super::verify::Verification;

/// Rounds, each a way there and back of some microseconds; of simulated GPUs far more, where the machine is busy.
const ROUNDS: u64 = 200;
/// Rounds of the thorough test.
const MANY_ROUNDS: u64 = 1000;
/// Words that a round sends.
const SENT: u64 = 64;
/// How often it is tried while nothing is lost, and one kernel waits in vain: the GPUs may be busy.
const TRIES: usize = 2;
/// Bytes of B's memory before that where the receiver counts; the mailbox comes first.
const COUNTED: usize = 4096;

/// The counts that the kernels have left.
#[derive(Clone, Copy, Debug)]
struct Counts {
    /// Rounds that there were to be.
    rounds: u64,
    /// Rounds that were answered, as the sender has counted.
    answered: u64,
    /// Rounds that have come to the receiver.
    received: u64,
    /// Words that were not there yet when their flag was.
    wrong: u64,
    /// The first round that had one.
    first: u64,
    /// The last flag in the mailbox.
    flag: u64,
}

impl Counts {
    /// The finding of the counts; none if one kernel has waited for the other in vain.
    fn finding(self) -> Option<Finding> {
        let Self { rounds, answered, received, wrong, first, flag } = self;
        let stored = rounds.min(answered + 1);
        if wrong > 0 {
            let words = received * SENT;
            let text = format!("{wrong} of {words} words arrived after their flag, the first in round {first}");
            Some(Finding::Wrong(text))
        } else if flag < stored {
            Some(Finding::Wrong(format!("a flag that a kernel stored never arrived (round {stored})")))
        } else {
            (answered == rounds && received == rounds).then_some(Finding::Right)
        }
    }

    /// A finding for kernels that waited in vain each time: nothing is known to be lost, and others may have kept a GPU busy.
    fn stalled(self) -> Finding {
        Finding::Untested(match self.answered {
            0 => "the two kernels did not meet within a second".to_owned(),
            answered => {
                format!("after {answered} of {} rounds a kernel waited for the other for a second", self.rounds)
            }
        })
    }
}

impl Verification<'_> {
    /// Has kernels of both devices exchange flags.
    pub(super) fn flags(&self) -> Result<Finding> {
        let (driver, [a, b]) = (&self.rig.driver, &self.sides);
        // Loading may wait for all work, so it comes before any.
        let [send, receive] = [(a, kernel::SEND), (b, kernel::RECEIVE)].map(|(side, name)| {
            let text = kernel::flags(driver.capability(side.device)?);
            self.function(side, name, &text)
        });
        let (send, receive) = (send?, receive?);
        let rounds = if self.rig.level == Level::Full { MANY_ROUNDS } else { ROUNDS };
        let mut counts = None;
        for _ in 0..TRIES {
            let (mut mailbox, mut answered) = (vec![0; COUNTED + 24], [0; 8]);
            driver.write(b.context, b.memory, &mailbox)?;
            driver.write(a.context, a.memory, &answered)?;
            driver.synchronize(a.context)?;
            driver.synchronize(b.context)?;
            driver.launch(receive, (b.memory, b.memory + COUNTED as u64, rounds), b.stream)?;
            driver.enter(a.context)?;
            driver.launch(send, (b.memory, a.memory, rounds), a.stream)?;
            driver.wait(a.stream)?;
            driver.read(a.context, a.memory, &mut answered)?;
            driver.enter(b.context)?;
            driver.wait(b.stream)?;
            driver.read(b.context, b.memory, &mut mailbox)?;
            let word = |bytes: &[u8]| words(bytes).first().copied().unwrap_or_default();
            let counted = |place: usize| word(mailbox.get(COUNTED + place..).unwrap_or_default());
            let found = Counts {
                rounds,
                answered: word(&answered),
                received: counted(0),
                wrong: counted(8),
                first: counted(16),
                flag: word(&mailbox),
            };
            if let Some(finding) = found.finding() {
                return Ok(finding);
            }
            counts = Some(found);
        }
        Ok(counts.map_or(Finding::Right, Counts::stalled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RIGHT: Counts =
        Counts { rounds: ROUNDS, answered: ROUNDS, received: ROUNDS, wrong: 0, first: 0, flag: ROUNDS };

    fn wrong(counts: Counts) -> String {
        match counts.finding() {
            Some(Finding::Wrong(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn finding_is_right_if_all_rounds_were_answered_and_no_word_came_late() {
        assert_eq!(RIGHT.finding(), Some(Finding::Right));
    }

    #[test]
    fn finding_says_what_came_late_or_never() {
        let late = Counts { wrong: 3, first: 7, ..RIGHT };
        assert_eq!(wrong(late), "3 of 12800 words arrived after their flag, the first in round 7");
        let lost = Counts { answered: 0, received: 0, flag: 0, ..RIGHT };
        assert_eq!(wrong(lost), "a flag that a kernel stored never arrived (round 1)");
        assert_eq!(
            wrong(Counts { answered: 4, received: 4, flag: 4, ..RIGHT }),
            "a flag that a kernel stored never arrived (round 5)"
        );
    }

    #[test]
    fn stalled_kernels_say_nothing_of_the_path() {
        let never_met = Counts { answered: 0, received: 0, flag: 1, ..RIGHT };
        assert_eq!(never_met.finding(), None);
        assert!(matches!(never_met.stalled(), Finding::Untested(_)));
        let stuck = Counts { answered: 4, received: 5, flag: 5, ..RIGHT };
        assert_eq!(stuck.finding(), None);
        assert!(matches!(stuck.stalled(), Finding::Untested(text) if text.starts_with("after 4 of 200 rounds")));
    }
}
