//! `make soak` does all of what `make test` does a part of, with seeds that nobody has tried: `P2PSHIM_SOAK` is what they begin
//! with, and the same value takes the same seeds again. Where `make test` does another part each time, `P2PSHIM_DRAW` repeats one.

use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;

/// The number that is added to each seed, if this is `make soak`.
pub(crate) fn soak() -> Option<u32> {
    let value = std::env::var("P2PSHIM_SOAK").ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("P2PSHIM_SOAK={value} is no number")))
}

/// The first seed of a random test, and how many of `count` it takes: a tenth, or, in `make soak`, all.
pub(crate) fn seeds(first: u32, count: u32) -> (u32, u32) {
    soak().map_or((first, count.div_ceil(10)), |more| (first.checked_add(more).unwrap(), count))
}

/// As [`seeds`], of what takes long: a twentieth, or, in `make soak`, all.
pub(crate) fn few_seeds(first: u32, count: u32) -> (u32, u32) {
    let (first, all) = seeds(first, count);
    (first, if soak().is_some() { all } else { count.div_ceil(20) })
}

/// Whether nothing may be left to chance: in `make soak`, and where golden files are written anew.
pub(crate) fn is_all() -> bool {
    soak().is_some() || std::env::var_os("P2PSHIM_UPDATE").is_some()
}

/// A part that differs from run to run, of what a test could do.
pub(crate) struct Draw(u64);

impl Draw {
    /// For something that has a name. The seed is printed, which a test that fails shows.
    pub(crate) fn of(name: &str) -> Draw {
        static SEED: OnceLock<u32> = OnceLock::new();
        let seed = *SEED.get_or_init(|| match std::env::var("P2PSHIM_DRAW") {
            Ok(value) => value.parse().unwrap_or_else(|_| panic!("P2PSHIM_DRAW={value} is no number")),
            Err(_) => soak().unwrap_or_else(|| RandomState::new().hash_one(0) as u32 >> 8),
        });
        println!("P2PSHIM_DRAW={seed} draws the same again for {name}");
        let mut hasher = DefaultHasher::new();
        (seed, name).hash(&mut hasher);
        Draw(hasher.finish())
    }

    /// One of 0 to `end`, without that.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        self.0 = hasher.finish();
        (self.0 % end as u64) as usize
    }
}

/// The flavours of the runtime that programs are built with: a shared one, and the static one, whose calls are not seen; or all.
pub(crate) fn flavours(name: &str) -> Vec<&'static str> {
    let shared = ["11", "12", "13"];
    if is_all() { [&shared[..], &["static"]].concat() } else { vec![shared[Draw::of(name).below(3)], "static"] }
}

/// How a call is interrupted at its instructions: so many further each time, from one on that is drawn. `make soak` has a stride of its own.
pub(crate) fn stride(name: &str, every: usize, in_soak: usize) -> [String; 2] {
    let every = if soak().is_some() { in_soak } else { every };
    [every, 1 + Draw::of(name).below(every)].map(|number| number.to_string())
}

/// Tries programs by their seeds, so many at a time: the faults of those that are wrong, and the output of the others, in the order of their seeds.
pub(crate) fn compare_all(
    seeds: Range<u32>,
    at_a_time: usize,
    compare: impl Fn(u32) -> Result<String, String> + Sync,
) -> (Vec<String>, Vec<String>) {
    let (next, done) = (AtomicU32::new(seeds.start), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..at_a_time {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let compared = compare(seed);
                    done.lock().unwrap().push((seed, compared));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap();
    done.sort();
    let (same, wrong): (Vec<_>, Vec<_>) = done.into_iter().map(|(_, compared)| compared).partition(Result::is_ok);
    (wrong.into_iter().filter_map(Result::err).collect(), same.into_iter().flatten().collect())
}
