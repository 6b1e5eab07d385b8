//! The quick verification: data is copied between two devices, both ways, and read back by the device that got it.
//!
//! A kernel of the program may run for ever, waiting for its host. So nothing here waits for a device: own streams that
//! block no other, asynchronous copies by the copy engines, and asking whether they are done.
//!
//! A pair passes if known patterns, new ones each time, at two sizes, twice each, arrive whole. A
//! copy must not be slower than one through the host, as it is on some machines whose devices hang on two processors.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use crate::api::abi::Code;
use crate::policy::driver::{HALF, Scratch, Span, VerifyBackend};

/// The two sizes that are copied: less than a page, and much more. Where a page ends the larger one begins.
const SMALL: Span = Span { offset: 0, bytes: 4092 };
const LARGE: Span = Span { offset: 4096, bytes: 256 << 10 };
pub(crate) const WHOLE: usize = LARGE.offset + LARGE.bytes;
const _: () = assert!(WHOLE <= HALF);
const ROUNDS: u32 = 2;
/// A path hangs if a copy of so few bytes does not end within this time.
pub(crate) const TIME_OUT: Duration = Duration::from_millis(200);

/// How a verification ended that the pair did not pass.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Failure {
    /// Bytes were wrong: how many, of how many; from which device, to which.
    Lost {
        wrong: usize,
        bytes: usize,
        src: i32,
        dst: i32,
    },
    Hung {
        src: i32,
        dst: i32,
    },
    /// Copies are right but slower than through the host.
    Slower {
        direct: Duration,
        staged: Duration,
        src: i32,
        dst: i32,
    },
    /// The verdict that is kept is that it failed: this is said of it.
    Kept(String),
    /// It could not be tried. Says nothing about the pair.
    Unknown(Code),
}

impl From<Code> for Failure {
    fn from(code: Code) -> Self {
        Self::Unknown(code)
    }
}

/// Copies between two devices, both ways at once; then compares the times of direct and staged copies, if wanted.
pub(super) fn quick(driver: &impl VerifyBackend, pair: [&Scratch; 2], is_timed: bool) -> Result<(), Failure> {
    arrives(driver, pair)?;
    let [a, b] = pair;
    [(a, b), (b, a)].into_iter().filter(|_| is_timed).try_for_each(|direction| not_slower(driver, direction))
}

/// Copies between two devices, both ways at once.
pub(crate) fn arrives(copies: &impl VerifyBackend, [a, b]: [&Scratch; 2]) -> Result<(), Failure> {
    let directions = [(a, b), (b, a)];
    for _ in 0..ROUNDS {
        let sent = [next_pattern()?, next_pattern()?];
        for ((src, dst), sent) in directions.into_iter().zip(&sent) {
            copies.upload(src, sent)?;
            copies.send(src, dst, SMALL)?;
            copies.send(src, dst, LARGE)?;
        }
        for direction in directions {
            wait(copies, direction.0, direction)?;
        }
        for (_, dst) in directions {
            copies.download(dst, WHOLE)?;
        }
        for (direction, sent) in directions.into_iter().zip(&sent) {
            wait(copies, direction.1, direction)?;
            compare(copies.downloaded(direction.1, WHOLE).as_deref(), sent, direction)?;
        }
    }
    Ok(())
}

/// Copies from the host to a device and back, where it sends and receives in one place.
pub(crate) fn returns(copies: &impl VerifyBackend, on: &Scratch) -> Result<(), Failure> {
    let sent = next_pattern()?;
    copies.upload(on, &sent)?;
    copies.download(on, WHOLE)?;
    wait(copies, on, (on, on))?;
    compare(copies.downloaded(on, WHOLE).as_deref(), &sent, (on, on))
}

fn compare(got: Option<&[u8]>, sent: &[u8], (src, dst): (&Scratch, &Scratch)) -> Result<(), Failure> {
    let got = got.ok_or(Failure::Unknown(Code::OUT_OF_MEMORY))?;
    let count_wrong = |span: Span| {
        let end = span.offset + span.bytes;
        match (got.get(span.offset..end), sent.get(span.offset..end)) {
            (Some(got), Some(sent)) => got.iter().zip(sent).filter(|(got, sent)| got != sent).count(),
            _ => span.bytes,
        }
    };
    match count_wrong(SMALL) + count_wrong(LARGE) {
        0 => Ok(()),
        wrong => {
            let [src, dst] = [src, dst].map(|scratch| scratch.device);
            Err(Failure::Lost { wrong, bytes: SMALL.bytes + LARGE.bytes, src, dst })
        }
    }
}

/// Whether a device has other things to do than to copy: a small copy takes far longer than usual. A verification is no good
/// then: what it needs from the driver takes long as well, and times mean nothing.
pub(crate) fn is_busy(copies: &impl VerifyBackend, on: &Scratch) -> Result<bool, Failure> {
    /// Far more than the 12 to 35 µs that it takes on an idle device.
    const USUAL: Duration = Duration::from_micros(400);
    takes_long(copies, USUAL, [on; 2], || copies.upload(on, &[0; 64]))
}

/// Whether a copy that did not end in time says nothing about the path on which it is: the devices have other things to do, copies through
/// the host are as slow, or it has ended since. `own` are what the copies of the verification use, `controls` others of the same devices.
pub(crate) fn is_held_up(
    copies: &impl VerifyBackend,
    from: i32,
    controls: [&Scratch; 2],
    own: [&Scratch; 2],
) -> Result<bool, Failure> {
    const USUAL: Duration = Duration::from_micros(800);
    let [one, other] = controls;
    let [src, dst] = if one.device == from { [one, other] } else { [other, one] };
    // The engines of the copy that has not ended: the one by which its source sends, and the one by which its destination receives.
    let is_slow = || {
        takes_long(copies, USUAL, [src, dst], || {
            copies.download(src, 64)?;
            copies.upload(dst, &[0; 64])
        })
    };
    Ok(is_busy(copies, one)? || is_busy(copies, other)? || is_slow()? || own.iter().all(|own| has_ended(copies, own)))
}

/// Whether nothing is under way any more, right or wrong.
pub(crate) fn has_ended(copies: &impl VerifyBackend, on: &Scratch) -> bool {
    copies.is_done(on) != Ok(false)
}

/// Whether what is begun, on two streams, is never done within a time.
fn takes_long(
    copies: &impl VerifyBackend,
    usual: Duration,
    [one, other]: [&Scratch; 2],
    begin: impl Fn() -> Result<(), Code>,
) -> Result<bool, Failure> {
    const PATIENCE: Duration = Duration::from_millis(3);
    const MOST: Duration = Duration::from_millis(12);
    /// One may be slow for reasons of this process: it was not given a processor.
    const TRIES: u32 = 4;
    let started = Instant::now();
    let mut tries = 0..;
    while tries.next() < Some(TRIES) || started.elapsed() < PATIENCE {
        let tried = Instant::now();
        begin()?;
        while !(copies.is_done(one)? && copies.is_done(other)?) {
            if started.elapsed() > MOST {
                return Ok(true);
            }
            rest(tried);
        }
        if tried.elapsed() < usual {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Compares a copy with one through the host, in alternating rounds, until the quickest direct one beats the quickest
/// staged one. If none ever does, direct is the worse path. Other work of the machine can make any round slower but none
/// quicker, even three in a row, so only the quickest of many say something.
fn not_slower(driver: &impl VerifyBackend, direction: (&Scratch, &Scratch)) -> Result<(), Failure> {
    const MOST: u32 = 12;
    /// One round alone may have been disturbed.
    const LEAST: u32 = 3;
    /// Some rounds have so many copies, which hides what one alone costs besides. On a slow path that is nothing.
    const MANY: u32 = 8;
    const SLOW: Duration = Duration::from_millis(2);
    /// So slow a path would take long to measure any better, once the path through the host was measured.
    const FAR: Duration = Duration::from_millis(20);
    /// If the path through the host takes so long a copy, something else is going on, and times mean nothing.
    const UNUSUAL: Duration = Duration::from_millis(2);
    let (src, dst) = direction;
    let (mut direct, mut staged) = (Duration::MAX, Duration::MAX);
    for round in 1..=MOST {
        let copies = if round % 4 == 0 && direct < SLOW { MANY } else { 1 };
        let started = Instant::now();
        (0..copies).try_for_each(|_| driver.download(src, LARGE.bytes))?;
        wait(driver, src, direction)?;
        (0..copies).try_for_each(|_| driver.upload_downloaded(src, dst, LARGE.bytes))?;
        wait(driver, dst, direction)?;
        staged = staged.min(started.elapsed() / copies);
        let started = Instant::now();
        (0..copies).try_for_each(|_| driver.send(src, dst, LARGE))?;
        wait(driver, src, direction)?;
        direct = direct.min(started.elapsed() / copies);
        if direct <= staged && round >= LEAST {
            return Ok(());
        }
        if direct > FAR && staged < UNUSUAL && round >= LEAST {
            break;
        }
    }
    // Half as much again: less would be noise.
    if staged < UNUSUAL && direct > staged * 3 / 2 {
        return Err(Failure::Slower { direct, staged, src: src.device, dst: dst.device });
    }
    Ok(())
}

fn wait(copies: &impl VerifyBackend, on: &Scratch, (src, dst): (&Scratch, &Scratch)) -> Result<(), Failure> {
    let started = Instant::now();
    while !copies.is_done(on)? {
        // Once more: it may have been this thread that took so long.
        if started.elapsed() > TIME_OUT && !copies.is_done(on)? {
            let [src, dst] = [src, dst].map(|scratch| scratch.device);
            return Err(Failure::Hung { src, dst });
        }
        rest(started);
    }
    Ok(())
}

/// Between two questions whether a copy is done that was begun then. Copies of these sizes are done at once if nothing else
/// is going on; if something is, others should have the processor.
fn rest(since: Instant) {
    const SOON: Duration = Duration::from_micros(200);
    if since.elapsed() > SOON {
        thread::sleep(Duration::from_micros(50));
    } else {
        thread::yield_now();
    }
}

/// A pattern of its own. No two are the same: what was left by an earlier verification must not pass for what this one has copied.
fn next_pattern() -> Result<Vec<u8>, Failure> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    pattern(WHOLE, NUMBER.fetch_add(1, Relaxed))
}

/// Bytes that no two seeds share (SplitMix64).
///
/// # Errors
/// There is no memory.
fn pattern(bytes: usize, seed: u64) -> Result<Vec<u8>, Failure> {
    let mut pattern = Vec::new();
    pattern.try_reserve_exact(bytes).map_err(|_| Failure::Unknown(Code::OUT_OF_MEMORY))?;
    let mut state = seed;
    let words = std::iter::repeat_with(|| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = state;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    });
    pattern.extend(words.take(bytes.div_ceil(8)).flat_map(u64::to_le_bytes).take(bytes));
    Ok(pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_differs_by_seed_and_has_its_length() {
        let pattern = |bytes, seed| pattern(bytes, seed).unwrap();
        assert_eq!(pattern(13, 1).len(), 13);
        let same = pattern(4096, 1).iter().zip(&pattern(4096, 2)).filter(|(a, b)| a == b).count();
        assert!(same < 64, "{same} of 4096 bytes are the same");
    }
}
