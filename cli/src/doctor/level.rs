//! How much is tested of a pair, and how much memory that takes.

use super::lines::Test;

/// The copies' sizes, and how often: a path may lose its first copy only, small ones only, or those beyond a window.
const SIZES: [(usize, u64); 4] = [(4 << 10, 2), (1 << 20, 2), (16 << 20, 1), (64 << 20, 1)];
/// The last of these is for the thorough tests.
const USUAL: usize = 3;
/// The tests of a pair within one process, in the order in which they are made.
const OF_PROCESS: [Test; 10] = [
    Test::Copies,
    Test::Loads,
    Test::Stores,
    Test::Atomics,
    Test::Flags,
    Test::Pools,
    Test::Graphs,
    Test::Pull,
    Test::Ll,
    Test::Ll128,
];
/// The last of these are for the thorough tests, as is the last of those between processes.
const USUAL_OF_PROCESS: usize = 6;
const USUAL_BETWEEN: usize = 2;

/// The tests of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Level {
    /// Copies within a process and between two, by IPC.
    Quick,
    /// All but what takes long.
    Usual,
    /// All of it, after memory was filled.
    Full,
}

impl Level {
    /// The argument for a worker.
    pub(super) fn argument(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Usual => "usual",
            Self::Full => "full",
        }
    }

    fn sizes(self) -> &'static [(usize, u64)] {
        let (usual, _) = SIZES.split_at(USUAL);
        if self == Self::Full { &SIZES } else { usual }
    }

    /// The largest copy whose data is looked at.
    pub(super) fn largest(self) -> usize {
        self.sizes().iter().map(|(size, _)| *size).max().unwrap_or_default()
    }

    /// How much memory the tests need of each device, if one copy of the speed measurement moves so many bytes.
    pub(super) fn memory(self, speed_bytes: usize) -> usize {
        if self == Self::Quick { self.largest() } else { self.largest().max(speed_bytes) }
    }

    /// Numbers and sizes of the trials, from 1.
    pub(super) fn rounds(self) -> impl Iterator<Item = (u64, usize)> {
        (1..).zip(self.sizes().iter().flat_map(|&(size, tries)| (0..tries).map(move |_| size)))
    }

    /// The tests within a process.
    pub(super) fn tests(self) -> &'static [Test] {
        match self {
            Self::Quick => &[Test::Copies],
            Self::Usual => OF_PROCESS.split_at(USUAL_OF_PROCESS).0,
            Self::Full => &OF_PROCESS,
        }
    }

    /// How many tests there are of a pair.
    pub(super) fn count(self) -> usize {
        self.tests().len() + self.between().len() + usize::from(self == Self::Full)
    }

    /// The tests between two processes.
    pub(super) fn between(self) -> &'static [Test] {
        match self {
            Self::Quick => &[Test::Ipc],
            Self::Usual => Test::BETWEEN_PROCESSES.split_at(USUAL_BETWEEN).0,
            Self::Full => &Test::BETWEEN_PROCESSES,
        }
    }
}
