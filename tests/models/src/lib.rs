//! Every order in which threads can use what they share without a lock, as loom tries them: the cache of whose memory an address is, beside frees, and
//! the table of objects. The code is the library's own (build.rs). `make models` runs this.

#![allow(dead_code, unreachable_pub, reason = "the models use a part of these files")]
#![cfg(test)]

mod os {
    pub(crate) mod table {
        include!(concat!(env!("OUT_DIR"), "/table.rs"));
    }
}

mod memory {
    include!(concat!(env!("OUT_DIR"), "/memory.rs"));
}

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use loom::thread;

use memory::{Cache, Kind, Place};
use os::table::Table;

/// Tries all orders in which threads are interrupted so often.
fn model(interruptions: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions);
    builder.check(run);
}

const ADDRESS: u64 = 0x7000_0000_0100;

fn place(owner: u8) -> Place {
    Place { kind: Kind::Plain, device: owner, owner, reach: owner.into() }
}

/// An allocation of an owner: they differ in all words.
fn range(owner: u8) -> (u64, u64) {
    (ADDRESS - u64::from(owner), 0x100 + u64::from(owner))
}

#[test]
fn what_is_found_while_two_threads_remember_is_of_one_of_them_and_whole() {
    model(1, || {
        let cache = Arc::new(Cache::new());
        let writers = [1, 2].map(|owner| {
            let cache = Arc::clone(&cache);
            thread::spawn(move || cache.insert(ADDRESS, range(owner), place(owner), cache.epoch()))
        });
        if let Some((found, at)) = cache.find_any(ADDRESS) {
            let owner = found.owner;
            assert!([1, 2].contains(&owner));
            let (start, bytes) = range(owner);
            assert_eq!((found, at), (place(owner), start..start + bytes));
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
}

/// One thread frees memory, which another context gets at that address, while another asks whose it is and remembers the answer.
fn free_beside_a_question(reads_epoch_first: bool) {
    model(3, move || {
        let (cache, driver) = (Arc::new(Cache::new()), Arc::new(AtomicU64::new(1)));
        let asks = {
            let (cache, driver) = (Arc::clone(&cache), Arc::clone(&driver));
            thread::spawn(move || {
                let early = reads_epoch_first.then(|| cache.epoch());
                let owner = driver.load(Acquire) as u8;
                cache.insert(ADDRESS, range(owner), place(owner), early.unwrap_or_else(|| cache.epoch()));
            })
        };
        driver.store(2, Release);
        cache.forget();
        // From here on nobody may be told of the first owner.
        for _ in 0..2 {
            assert!(cache.find(ADDRESS).is_none_or(|found| found.owner == 2));
        }
        asks.join().unwrap();
        assert!(cache.find(ADDRESS).is_none_or(|found| found.owner == 2));
    });
}

#[test]
fn memory_that_is_freed_beside_a_question_is_not_remembered() {
    free_beside_a_question(true);
}

/// The model can fail.
#[test]
#[should_panic(expected = "owner == 2")]
fn epoch_that_is_read_after_the_question_is_found_out() {
    free_beside_a_question(false);
}

type Small = Table<8, 48>;
const KEY: u64 = 0x1000;

#[test]
fn key_that_two_threads_set_beside_another_that_goes_is_gone_once_it_is_forgotten() {
    model(3, || {
        let table = Arc::new(Small::new());
        // In the first place of the key, from where it goes meanwhile.
        let other =
            (1..).find(|&other| other != KEY && os::table::spread(other, 3) == os::table::spread(KEY, 3)).unwrap();
        assert!(table.set(other, 9, |_| false, false));
        let sets = [1, 2].map(|value| {
            let table = Arc::clone(&table);
            thread::spawn(move || _ = table.set(KEY, value, |_| false, false))
        });
        table.forget(other);
        assert!(table.find(KEY).is_none_or(|value| [1, 2].contains(&value)));
        sets.into_iter().for_each(|set| set.join().unwrap());
        assert!(table.find(KEY).is_some() && table.find(other).is_none());
        table.forget(KEY);
        assert_eq!(table.find(KEY), None);
    });
}

#[test]
fn who_finds_a_key_sees_what_was_done_before_it_was_set() {
    model(3, || {
        let (table, done) = (Arc::new(Small::new()), Arc::new(AtomicU64::new(0)));
        let sets = {
            let (table, done) = (Arc::clone(&table), Arc::clone(&done));
            thread::spawn(move || {
                done.store(7, Relaxed);
                assert!(table.set(KEY, 5, |_| false, false));
            })
        };
        if table.find(KEY) == Some(5) {
            assert_eq!(done.load(Relaxed), 7);
        }
        sets.join().unwrap();
    });
}

#[test]
fn counts_of_two_threads_are_never_more_than_there_were() {
    model(3, || {
        let table = Arc::new(Small::new());
        let counts = [(); 2].map(|()| {
            let table = Arc::clone(&table);
            thread::spawn(move || _ = table.count(KEY))
        });
        counts.into_iter().for_each(|count| count.join().unwrap());
        assert!((1..=2).contains(&table.find(KEY).unwrap()));
    });
}
