//! The table of copies whose waits are kept: entries in blocks, and blocks of pairs of ends. It says where the entry of a stream is, which
//! entries have copies under way, and which are unused.
//!
//! A copy finds and marks its entry without a lock. Chains, unused entries and spare pairs change under the lock of [`Locked`].

use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use super::stream::Stream;
use crate::model::Endpoints;
use crate::objects::index::{Index, set_low};
use crate::os::arena::Arena;
use crate::os::table::spread;

/// A context, with what tells it from later ones with the same handle.
pub(crate) type Context = (usize, u64);

/// Copies of a stream, or of an executable graph, between two ends. Numbers of entries, blocks, pairs and contexts are stored plus one; 0 is none.
pub(super) type Entry = [AtomicU64; 6];
/// The handle of a [`Stream`]; 0 once the stream is destroyed.
pub(super) const STREAM: usize = 0;
/// The kind of the stream ([`Stream::key`]); in the upper half the stream's context in [`Locked::contexts`], none for a legacy default stream.
pub(super) const KIND: usize = 1;
pub(super) const EVENT: usize = 2;
/// How many announcements were not recorded, [`TAKEN`] and [`USED`]. The upper half is the turn: it changes when another thread has dealt with
/// announcements, and when the entry begins or ceases to be used.
pub(super) const STATE: usize = 3;
/// How often the event was recorded.
pub(super) const RECORDED: usize = 4;
/// The next entry in the chain, or the next unused one; in the upper half the pair (not plus one).
const NEXT: usize = 5;

pub(super) const USED: u64 = 1 << 31;
/// Another thread has dealt with an announcement whose call may still be under way: the entry serves no other stream until this one is destroyed.
pub(super) const TAKEN: u64 = 1 << 30;
pub(super) const ANNOUNCED: u64 = TAKEN - 1;
pub(super) const TURN: u64 = 1 << 32;
const LOW: u64 = TURN - 1;

/// 64 entries of one pair.
pub(super) type Block = [AtomicU64; 3];
/// A bit for each entry whose copies may be under way.
pub(super) const PENDING: usize = 0;
/// The pair's next block.
const NEXT_BLOCK: usize = 1;
/// The pair (not plus one).
const PAIR: usize = 2;

/// Two ends.
pub(super) type Pair = [AtomicU64; 9];
/// The contexts of the source and of the destination.
const SRC: usize = 0;
const DST: usize = 1;
/// The next pair in the chain.
const NEXT_PAIR: usize = 2;
const FIRST_BLOCK: usize = 3;
/// The first unused entry.
const UNUSED: usize = 4;
/// How many entries have copies that may be under way, and how many entries there are.
pub(super) const COUNT: usize = 5;
const ENTRIES: usize = 6;
/// The entry, and the block, at which [`super::Waits::reuse`] continues.
pub(super) const HAND: usize = 7;
const IDLE_HAND: usize = 8;

/// Entries of a block.
const BITS: u32 = u64::BITS;

/// All entries, with their blocks and pairs.
pub(super) struct Entries {
    rows: Index<6, NEXT>,
    blocks: Arena<3>,
    pairs: Index<9, NEXT_PAIR>,
    pair_count: AtomicU32,
}

/// The part that changes under the lock.
pub(super) struct Locked {
    pub(super) contexts: Vec<Own>,
    pub(super) block_count: u32,
    /// Pairs whose contexts have ended.
    spare_pairs: Vec<u32>,
    /// Entries on whose streams a thread that waits records an event. Another thread that destroys such a stream waits for that.
    pub(super) in_use: Vec<u32>,
}

/// A context with streams, and events of it that no entry has.
pub(super) struct Own {
    pub(super) context: Context,
    pub(super) spare: Vec<usize>,
}

impl Own {
    pub(super) const fn new(context: Context) -> Self {
        Self { context, spare: Vec::new() }
    }
}

#[inline(always)]
pub(super) fn low(word: &AtomicU64) -> u32 {
    word.load(Acquire) as u32
}

#[inline(always)]
fn high(word: &AtomicU64) -> u32 {
    (word.load(Acquire) >> 32) as u32
}

#[inline(always)]
fn hash((handle, kind): (u64, u32), pair: u32) -> u32 {
    spread(handle.wrapping_add(spread(u64::from(kind) << 32 | u64::from(pair), u64::BITS) as u64), u32::BITS) as u32
}

impl Entries {
    pub(super) const fn new() -> Self {
        Self { rows: Index::new(), blocks: Arena::new(), pairs: Index::new(), pair_count: AtomicU32::new(0) }
    }

    #[inline(always)]
    pub(super) fn get(&self, number: u32) -> Option<&Entry> {
        self.rows.rows.get(number)
    }

    /// How many pairs there were at once.
    #[inline(always)]
    pub(super) fn pair_count(&self) -> u32 {
        self.pair_count.load(Acquire)
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = (u32, &Pair)> {
        (0..self.pair_count()).filter_map(|number| Some((number, self.pairs.rows.get(number)?)))
    }

    #[inline(always)]
    pub(super) fn find_pair(&self, ends: Endpoints) -> Option<(u32, &Pair)> {
        self.pairs.find(hash_of_ends(ends), |pair, _| is_between(pair, ends))
    }

    #[inline(always)]
    pub(super) fn find(&self, key @ (handle, kind): (u64, u32), pair: u32) -> Option<(u32, &Entry)> {
        self.rows.find(hash(key, pair), |entry, link| {
            entry[STREAM].load(Acquire) == handle && low(&entry[KIND]) == kind && (link >> 32) as u32 == pair
        })
    }

    pub(super) fn bit(&self, number: u32) -> Option<(&Block, u64)> {
        Some((self.blocks.get(number / BITS)?, 1 << (number % BITS)))
    }

    pub(super) fn is_pending(&self, number: u32) -> bool {
        self.bit(number).is_some_and(|(block, bit)| block[PENDING].load(SeqCst) & bit != 0)
    }

    /// The number of an entry's pair.
    pub(super) fn pair_number(&self, number: u32) -> Option<u32> {
        Some(low(&self.blocks.get(number / BITS)?[PAIR]))
    }

    pub(super) fn pair_of(&self, number: u32) -> Option<&Pair> {
        self.pairs.rows.get(self.pair_number(number)?)
    }

    /// Notes that copies of an entry may be under way. A thread may leave this at any instruction: then the count is too high, or another copy
    /// sets the bit.
    #[inline(always)]
    pub(super) fn mark(&self, number: u32, pair: &Pair) {
        let Some((block, bit)) = self.bit(number) else { return };
        if block[PENDING].load(SeqCst) & bit == 0 {
            pair[COUNT].fetch_add(1, SeqCst);
            if block[PENDING].fetch_or(bit, SeqCst) & bit != 0 {
                pair[COUNT].fetch_sub(1, SeqCst);
            }
        }
    }

    fn unmark(&self, number: u32, pair: &Pair) {
        let is_marked = |(block, bit): (&Block, u64)| block[PENDING].fetch_and(!bit, SeqCst) & bit != 0;
        if self.bit(number).is_some_and(is_marked) {
            pair[COUNT].fetch_sub(1, SeqCst);
        }
    }

    /// The entries of a pair whose copies may be under way; those behind one.
    pub(super) fn pending_of<'a>(&'a self, pair: &'a Pair, behind: Option<u32>) -> impl Iterator<Item = u32> + 'a {
        let first = behind.map_or(low(&pair[FIRST_BLOCK]), |entry| entry / BITS + 1);
        let blocks = std::iter::successors(first.checked_sub(1), |&number| {
            low(&self.blocks.get(number)?[NEXT_BLOCK]).checked_sub(1)
        });
        blocks.flat_map(move |number| {
            let mut bits = self.blocks.get(number).map_or(0, |block| block[PENDING].load(SeqCst));
            if let Some(entry) = behind.filter(|entry| entry / BITS == number) {
                bits &= (u64::MAX << (entry % BITS)) << 1;
            }
            std::iter::from_fn(move || {
                let bit = bits.trailing_zeros();
                bits &= bits.wrapping_sub(1);
                (bit < BITS).then_some(number * BITS + bit)
            })
        })
    }

    pub(super) fn used(&self, block_count: u32) -> impl Iterator<Item = (u32, &Entry)> {
        let entries = (0..block_count * BITS).filter_map(|number| Some((number, self.get(number)?)));
        entries.filter(|(_, entry)| entry[STATE].load(Acquire) & USED != 0)
    }

    /// Reclaims an entry of a stream without copies under way, if there are many. The stream's next copy gets another.
    pub(super) fn reuse_idle(&self, locked: &mut Locked, pair: &Pair) {
        const LEFT: u64 = 1024;
        const LOOKED_AT: usize = 4;
        if pair[UNUSED].load(Relaxed) != 0 || pair[ENTRIES].load(Relaxed) < pair[COUNT].load(SeqCst) + LEFT {
            return;
        }
        let is_idle = |number: &u32| {
            let entry = self.get(*number)?;
            let state = entry[STATE].load(Acquire);
            let is_free = state & LOW == USED && !self.is_pending(*number);
            // The event of a graph is in its nodes.
            (is_free && low(&entry[KIND]) != Stream::GRAPH).then_some((*number, entry, state))
        };
        for _ in 0..LOOKED_AT {
            let block = low(&pair[IDLE_HAND]).checked_sub(1).or_else(|| low(&pair[FIRST_BLOCK]).checked_sub(1));
            let Some(block) = block else { return };
            if let Some((number, entry, state)) = (block * BITS..(block + 1) * BITS).find_map(|number| is_idle(&number))
            {
                self.cease(locked, number, entry, state);
                return;
            }
            let next = self.blocks.get(block).map_or(0, |block| low(&block[NEXT_BLOCK]));
            pair[IDLE_HAND].store(u64::from(next), Relaxed);
        }
    }

    /// Adds an entry. False if there is one, or no memory.
    pub(super) fn insert(
        &self,
        locked: &mut Locked,
        stream: Stream,
        event: Option<(Context, usize)>,
        ends: Endpoints,
    ) -> bool {
        let Some((pair_number, pair)) = self.find_pair(ends).or_else(|| self.new_pair(locked, ends)) else {
            return false;
        };
        if self.find(stream.key(), pair_number).is_some() {
            return false;
        }
        let own = event.and_then(|(context, _)| locked.own(context)).map_or(0, |(number, _)| number as u64 + 1);
        let Some((number, entry)) = self.unused(locked, (pair_number, pair)) else { return false };
        self.unmark(number, pair);
        let (handle, kind) = stream.key();
        entry[KIND].store(own << 32 | u64::from(kind), Release);
        entry[EVENT].store(event.map_or(0, |(_, event)| event as u64), Release);
        entry[STREAM].store(handle, Release);
        // Nobody announces anything at an entry that is not used.
        let state = entry[STATE].load(Acquire);
        entry[STATE].store((state & !LOW).wrapping_add(TURN) | USED, SeqCst);
        let is_found = self.rows.add(number, hash_of);
        if !is_found {
            entry[EVENT].store(0, Release);
            self.cease(locked, number, entry, entry[STATE].load(Acquire));
        }
        is_found
    }

    /// An entry of a pair that nobody uses. None if there is no memory.
    fn unused(&self, locked: &mut Locked, (pair_number, pair): (u32, &Pair)) -> Option<(u32, &Entry)> {
        if pair[UNUSED].load(Relaxed) == 0 {
            let number = locked.block_count;
            let last = number * BITS + (BITS - 1);
            (self.blocks.reach(number) && self.rows.rows.reach(last)).then_some(())?;
            let block = self.blocks.get(number)?;
            block[PAIR].store(u64::from(pair_number), Relaxed);
            block[NEXT_BLOCK].store(pair[FIRST_BLOCK].load(Relaxed), Relaxed);
            pair[FIRST_BLOCK].store(u64::from(number) + 1, Release);
            locked.block_count += 1;
            pair[ENTRIES].fetch_add(u64::from(BITS), Relaxed);
            for entry in (number * BITS..=last).rev() {
                self.get(entry)?[NEXT].store(u64::from(pair_number) << 32, Relaxed);
                self.put_to_unused(entry, pair);
            }
        }
        let number = low(&pair[UNUSED]).checked_sub(1)?;
        let entry = self.get(number)?;
        pair[UNUSED].store(u64::from(low(&entry[NEXT])), Relaxed);
        Some((number, entry))
    }

    fn put_to_unused(&self, number: u32, pair: &Pair) {
        if let Some(entry) = self.get(number) {
            set_low(&entry[NEXT], low(&pair[UNUSED]));
            pair[UNUSED].store(u64::from(number) + 1, Relaxed);
        }
    }

    /// From now on no copy finds an entry. Those that have are waited for. Only under the lock.
    pub(super) fn detach(&self, number: u32, entry: &Entry) {
        if entry[STREAM].load(Relaxed) != 0 && self.rows.remove(number, hash_of(entry)) {
            entry[STREAM].store(0, Release);
            set_low(&entry[KIND], Stream::CREATED);
        }
    }

    /// Has an entry be used for another stream, if its state is this one still. Whether it was.
    pub(super) fn cease(&self, locked: &mut Locked, number: u32, entry: &Entry, state: u64) -> bool {
        let next = (state & !LOW).wrapping_add(TURN);
        if entry[STATE].compare_exchange(state, next, SeqCst, Acquire).is_err() {
            return false;
        }
        self.detach(number, entry);
        let context = locked.contexts.get(own_number(entry)).map(|own| own.context);
        let event = entry[EVENT].swap(0, SeqCst) as usize;
        if let Some(context) = context.filter(|_| event != 0) {
            locked.give_back(context, event);
        }
        if let Some(pair) = self.pair_of(number) {
            self.unmark(number, pair);
            self.put_to_unused(number, pair);
        }
        true
    }

    /// A pair that is not there. It takes the place of one whose contexts have ended, if there is any.
    fn new_pair(&self, locked: &mut Locked, ends: Endpoints) -> Option<(u32, &Pair)> {
        let spare = locked.spare_pairs.last().copied();
        let number = spare.unwrap_or(self.pair_count.load(Relaxed));
        self.pairs.rows.reach(number).then_some(())?;
        let pair = self.pairs.rows.get(number)?;
        set_ends(pair, ends);
        if !self.pairs.add(number, |pair| hash_of_ends(ends_of(pair))) {
            set_ends(pair, [0; 2]);
            return None;
        }
        match spare {
            Some(_) => drop(locked.spare_pairs.pop()),
            None => self.pair_count.store(number + 1, Release),
        }
        Some((number, pair))
    }

    /// Has a pair be used for other ends, if none of its copies is under way.
    pub(super) fn spare_pair(&self, locked: &mut Locked, number: u32, pair: &Pair) {
        for (number, entry) in self.used(locked.block_count).filter(|(_, entry)| high(&entry[NEXT]) == number) {
            let state = entry[STATE].load(Acquire);
            if self.is_pending(number) || state & ANNOUNCED != 0 || !self.cease(locked, number, entry, state) {
                return;
            }
        }
        if self.pairs.remove(number, hash_of_ends(ends_of(pair))) {
            set_ends(pair, [0; 2]);
            locked.spare_pairs.push(number);
        }
    }
}

#[inline(always)]
pub(super) fn stream_of(entry: &Entry) -> Stream {
    Stream::of_key(entry[STREAM].load(Acquire) as usize, low(&entry[KIND]))
}

/// The number of a legacy default stream's context.
pub(super) const NOBODY: usize = usize::MAX;

/// The number of the context of an entry's stream.
#[inline(always)]
pub(super) fn own_number(entry: &Entry) -> usize {
    (high(&entry[KIND]) as usize).wrapping_sub(1)
}

pub(super) fn has_end(pair: &Pair, ends: &[usize]) -> bool {
    ends_of(pair).iter().any(|end| ends.contains(end))
}

fn set_ends(pair: &Pair, [src, dst]: Endpoints) {
    pair[SRC].store(src as u64, Release);
    pair[DST].store(dst as u64, Release);
}

#[inline(always)]
pub(super) fn ends_of(pair: &Pair) -> Endpoints {
    [pair[SRC].load(Acquire) as usize, pair[DST].load(Acquire) as usize]
}

#[inline(always)]
pub(super) fn is_between(pair: &Pair, ends: Endpoints) -> bool {
    ends_of(pair) == ends
}

#[inline(always)]
fn hash_of_ends([src, dst]: Endpoints) -> u32 {
    spread((src as u64).wrapping_add((dst as u64).rotate_left(21)), u32::BITS) as u32
}

/// The hash by which an entry in use is found.
fn hash_of(entry: &Entry) -> u32 {
    hash((entry[STREAM].load(Relaxed), low(&entry[KIND])), high(&entry[NEXT]))
}

impl Locked {
    pub(super) const fn new() -> Self {
        Self { contexts: Vec::new(), block_count: 0, spare_pairs: Vec::new(), in_use: Vec::new() }
    }

    /// A context with streams, and its number.
    pub(super) fn own(&mut self, context: Context) -> Option<(usize, &mut Own)> {
        let known = self.contexts.iter().position(|own| own.context == context);
        let number = known.or_else(|| self.contexts.iter().position(|own| own.context == (0, 0)));
        let number = number.unwrap_or(self.contexts.len());
        if number == self.contexts.len() {
            self.contexts.push(Own::new(context));
        }
        let own = self.contexts.get_mut(number)?;
        own.context = context;
        Some((number, own))
    }

    pub(super) fn give_back(&mut self, context: Context, event: usize) {
        self.own(context).into_iter().for_each(|(_, own)| own.spare.push(event));
    }
}
