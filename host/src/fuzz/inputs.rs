//! Damaged inputs: how many, by which numbers, and what reading one may take. The tests of several crates share this file.

use std::fs;

/// Numbers that look random, the same for a seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit.max(1)
    }

    pub(crate) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// A text with a few changes: bytes, pieces that go, come twice, or come from `words`.
    pub(crate) fn damaged(&mut self, good: &[u8], words: &[&str]) -> Vec<u8> {
        let mut bytes = good.to_vec();
        for _ in 0..self.below(5) {
            let (from, to) = (self.below(bytes.len() + 1), self.below(bytes.len() + 1));
            let (from, to) = (from.min(to), from.max(to).min(from.min(to) + 40));
            match self.below(10) {
                0 if from < bytes.len() => bytes[from] = self.below(256) as u8,
                1 if from < bytes.len() => bytes[from] ^= 1 << self.below(8),
                2 => drop(bytes.drain(from..to)),
                3 => {
                    let piece = bytes[from..to].to_vec();
                    bytes.splice(to..to, piece);
                }
                4 => bytes.truncate(from),
                5 => {
                    let many = vec![self.below(256) as u8; self.below(300)];
                    bytes.splice(from..from, many);
                }
                6 => drop(bytes.splice(from..to, self.one_of(words).bytes())),
                _ => {
                    // A whole word.
                    let is_space = |byte: &u8| byte.is_ascii_whitespace();
                    let start = bytes[..from].iter().rposition(is_space).map_or(0, |at| at + 1);
                    let end = bytes[from..].iter().position(is_space).map_or(bytes.len(), |at| from + at);
                    bytes.splice(start..end, self.one_of(words).bytes());
                }
            }
        }
        bytes
    }
}

/// Numbers that are none, or too large for most types.
pub(crate) const NUMBERS: [&str; 14] = [
    "0",
    "-1",
    "1",
    "64",
    "255",
    "4294967295",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "nan",
    "inf",
    "-0.0",
    "0x10",
    "99999999999999999999999999",
];

/// Whether a terminal would obey nothing in a text.
pub(crate) fn is_plain(text: &str) -> bool {
    !text.chars().any(|letter| letter.is_control() && letter != '\n')
}

/// Says which input a test has failed with.
struct Input {
    number: usize,
    seed: u64,
}

impl Drop for Input {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("input {} from `P2PSHIM_SOAK={}` on", self.number, self.seed);
        }
    }
}

/// Has inputs made of random numbers and read: as many as `make fuzz` asks for, more for `make soak`, or else `few`. Returns how many.
///
/// None may take a minute of the processor; all of `make fuzz` together not more than 1 GiB.
pub(crate) fn each(few: usize, mut read: impl FnMut(usize, &mut Random)) -> usize {
    const MOST_NANOS: u64 = 60_000_000_000;
    const MOST_KIB: u64 = 1 << 20;
    let number = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let (asked, seed) = (number("P2PSHIM_FUZZ"), number("P2PSHIM_SOAK"));
    let inputs = asked.map_or(if seed.is_some() { 10 * few } else { few }, |asked| asked as usize);
    let seed = seed.unwrap_or(1);
    let (mut random, mut before, mut longest) = (Random(seed), processor(), (0, 0));
    for number in 0..inputs {
        let input = Input { number, seed };
        read(number, &mut random);
        let now = processor();
        longest = longest.max((now - before, number));
        assert!(longest.0 < MOST_NANOS, "it took {} ns of the processor", longest.0);
        before = now;
        drop(input);
    }
    let (nanos, number) = longest;
    let most = most_memory();
    println!(
        "{inputs} inputs from `P2PSHIM_SOAK={seed}` on; number {number} took longest, {} us of the processor; memory: {} MiB at most",
        nanos / 1000,
        most >> 10
    );
    assert!(asked.is_none() || most < MOST_KIB, "{most} KiB");
    assert!(asked.is_none() || before > 0 && most > 0, "/proc does not say how much time and memory they took");
    inputs
}

/// Nanoseconds that this thread has had a processor.
fn processor() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or_default()
}

/// The most memory that the process has had, in KiB.
fn most_memory() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}
