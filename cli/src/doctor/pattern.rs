//! The data that is sent, and the differences in the data that has arrived.

use std::fmt::{self, Display, Formatter};
use std::sync::Mutex;

use crate::lock::lock;

/// How far apart parts of a pattern begin, of which there are so many.
const STEP: usize = 4096;
const PARTS: usize = 1021;

/// One long pattern, of which a part is sent: parts of different numbers differ at each place. To make one for each copy would take
/// longer than the copy.
pub(super) struct Patterns {
    sent: Vec<u8>,
    stale: Vec<u8>,
    /// Room for what is found, for whoever needs it next.
    rooms: Mutex<Vec<Vec<u8>>>,
}

impl Patterns {
    /// Patterns for parts of so many bytes at most.
    pub(super) fn new(largest: usize) -> Self {
        let sent = pattern(1, largest + PARTS * STEP);
        Self { stale: stale(&sent), sent, rooms: Mutex::default() }
    }

    /// The bytes that are sent, and those that their place holds before: they differ at every place.
    pub(super) fn part(&self, number: u64, length: usize) -> [&[u8]; 2] {
        let begin = (number % PARTS as u64) as usize * STEP;
        [&self.sent, &self.stale].map(|bytes| bytes.get(begin..begin + length).unwrap_or_default())
    }

    /// Has somebody fill and look at so much room.
    pub(super) fn found<T>(&self, length: usize, look: impl FnOnce(&mut [u8]) -> T) -> T {
        let mut room = lock(&self.rooms).pop().unwrap_or_default();
        room.resize(room.len().max(length), 0);
        let result = look(room.get_mut(..length).unwrap_or_default());
        lock(&self.rooms).push(room);
        result
    }
}

/// Bytes that are different for each seed and at each place, so that what is old or misplaced shows.
fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    for (index, word) in (0..).zip(bytes.chunks_mut(8)) {
        let mixed = mixed(seed.wrapping_mul(1 << 32).wrapping_add(index)).to_le_bytes();
        word.iter_mut().zip(mixed).for_each(|(byte, mixed)| *byte = mixed);
    }
    bytes
}

/// The bytes at a place before `bytes` are sent there: none is the same.
fn stale(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|&byte| stale_for(byte)).collect()
}

fn stale_for(byte: u8) -> u8 {
    byte ^ 0x5a
}

/// Spreads a number over 64 bits (the finaliser of MurmurHash3).
fn mixed(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    for multiplier in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53_u64] {
        bits = (bits ^ (bits >> 33)).wrapping_mul(multiplier);
    }
    bits ^ (bits >> 33)
}

/// How what arrived differs from what was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    wrong: usize,
    length: usize,
    first: usize,
    sent: u8,
    found: u8,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The wrong bytes are those that were there before.
    NotArrived,
    /// They are all the same.
    Constant,
    /// Anything else.
    Changed,
}

/// Compares what was found with what was sent to a place that held [`stale`] bytes; none if it is right.
pub(super) fn difference(sent: &[u8], found: &[u8]) -> Option<Difference> {
    // By far the most often, and fast.
    if sent == found {
        return None;
    }
    let wrong = || sent.iter().zip(found).enumerate().filter(|(_, (sent, found))| sent != found);
    let (first, (&sent_byte, &found_byte)) = wrong().next()?;
    let kind = if wrong().all(|(_, (&sent, &found))| found == stale_for(sent)) {
        Kind::NotArrived
    } else if wrong().all(|(_, (_, found))| *found == found_byte) {
        Kind::Constant
    } else {
        Kind::Changed
    };
    let (wrong, length) = (wrong().count(), sent.len());
    Some(Difference { wrong, length, first, sent: sent_byte, found: found_byte, kind })
}

impl Difference {
    /// The part that is wrong.
    pub(super) fn percent(&self) -> String {
        let percent = self.wrong as f64 * 100.0 / self.length.max(1) as f64;
        if percent < 0.1 { "less than 0.1 %".to_owned() } else { format!("{} %", (percent * 10.0).round() / 10.0) }
    }
}

impl Display for Difference {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let Self { wrong, length, first, sent, found, kind } = self;
        match kind {
            Kind::NotArrived => write!(out, "{wrong} of {length} bytes never arrived, the first at {first}"),
            Kind::Constant if wrong > &1 => write!(out, "{wrong} of {length} bytes arrived as {found:#04x}"),
            _ => write!(
                out,
                "{wrong} of {length} bytes arrived wrong, the first at {first}: {found:#04x} for {sent:#04x}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_differs_by_seed_and_place() {
        let (one, other) = (pattern(1, 4096), pattern(2, 4096));
        assert_ne!(one, other);
        assert!(one.chunks(8).skip(1).all(|word| *word != one[..8]));
        assert_eq!(pattern(1, 10), one[..10]);
    }

    #[test]
    fn parts_differ_at_each_place() {
        let patterns = Patterns::new(1 << 20);
        let [[first, _], [second, stale]] = [1, 3].map(|number| patterns.part(number, 1 << 20));
        assert!(first.len() == 1 << 20 && stale.len() == 1 << 20);
        assert!(first.chunks(8).zip(second.chunks(8)).all(|(one, other)| one != other));
        assert!(second.iter().zip(stale).all(|(sent, stale)| sent != stale));
        assert_eq!(patterns.part(PARTS as u64 + 1, 8), patterns.part(1, 8));
    }

    #[test]
    fn difference_tells_how_it_differs() {
        let sent = pattern(3, 64);
        let said = |found: &[u8]| difference(&sent, found).map(|difference| difference.to_string());
        assert_eq!(said(&sent), None);
        let mut half = stale(&sent);
        half[..32].copy_from_slice(&sent[..32]);
        assert_eq!(said(&half).unwrap(), "32 of 64 bytes never arrived, the first at 32");
        assert_eq!(said(&[0xff; 64]).unwrap(), "64 of 64 bytes arrived as 0xff");
        let mut changed = sent.clone();
        changed[5] ^= 1;
        let expected = format!("1 of 64 bytes arrived wrong, the first at 5: {:#04x} for {:#04x}", changed[5], sent[5]);
        assert_eq!(said(&changed).unwrap(), expected);
    }
}
