//! Pieces of memory that come and go.

use super::*;

fn place(owner: u8) -> Place {
    Place::new(Kind::Plain, owner, owner % 128)
}

#[test]
fn find_any_address_inside_and_none_outside() {
    let cache = Box::new(Cache::new());
    for (start, size, owner) in [(0x7f00_0000_0000, 64 << 20, 1), (0x7f10_0000_0200, 512, 2)] {
        cache.insert(start, (start, size), place(owner), cache.now());
        assert_eq!(cache.find(start), Some(place(owner)));
        assert_eq!(cache.find(start + size - 1).map_or(owner, |found| found.owner), owner);
        assert_eq!(cache.find(start - 1), None);
        assert_eq!(cache.find(start + size), None);
    }
}

/// How many of these addresses are not known, in allocations of `bytes` each; then they are.
fn learn(cache: &Cache, bytes: u64, addresses: impl Iterator<Item = u64>) -> usize {
    let unknown = addresses.filter(|address| cache.find(*address).is_none());
    unknown.map(|address| cache.insert(address, (address / bytes * bytes, bytes), place(1), cache.now())).count()
}

#[test]
fn find_a_walk_through_large_allocations_is_learnt_once() {
    const BYTES: u64 = 1 << 30;
    for distance in 1..500 {
        let cache = Box::new(Cache::new());
        let starts = [0x7f00_0000_0000, 0x7f00_0000_0000 + distance * BYTES];
        let walk = || (0..256).flat_map(|step| starts.map(|start| start + step * (4 << 20)));
        assert_eq!(learn(&cache, BYTES, walk()), 32, "pieces of 64 MiB");
        assert_eq!(learn(&cache, BYTES, walk()), 0, "{distance} GiB apart");
    }
}

#[test]
fn find_small_allocations_side_by_side_are_all_known() {
    for (bytes, count) in [(256, 512), (512, 512), (4096, 256), (1 << 20, 64)] {
        let cache = Box::new(Cache::new());
        let starts = || (0..count).flat_map(|n| [0x7f00_0000_0000 + n * bytes, 0x7f10_0000_0000 + n * bytes]);
        assert_eq!(learn(&cache, bytes, starts()), 2 * count as usize);
        assert_eq!(learn(&cache, bytes, starts()), 0, "{count} of {bytes} bytes");
    }
}

#[test]
fn find_neighbours_that_share_a_piece_are_both_known() {
    const BYTES: u64 = 100 << 20;
    let cache = Box::new(Cache::new());
    let start = 700 * BYTES;
    // The first piece of 64 MiB that both lie in, and the others.
    let both = || (0..100).flat_map(|step| [start + step * (1 << 20), start + BYTES + step * (1 << 20)]);
    learn(&cache, BYTES, both());
    assert_eq!(learn(&cache, BYTES, both()), 0);
}

#[test]
fn find_small_allocation_in_address_space_that_is_unknown_elsewhere() {
    let cache = Box::new(Cache::new());
    let start = 0x7f00_0020_0000;
    cache.insert_unknown(start + 0x40000, cache.now());
    cache.insert(start, (start, 4096), place(1), cache.now());
    assert_eq!(cache.find(start + 64), Some(place(1)));
    assert_eq!(cache.find(start + 0x40000), None);
    assert_eq!(cache.find_any(start + 0x40000).map(|(place, _)| place.kind), Some(Kind::Unknown));
}

#[test]
fn forget_all_and_late_results_are_dropped() {
    let cache = Box::new(Cache::new());
    let before = cache.now();
    cache.insert(0x1000, (0x1000, 64), place(1), before);
    cache.forget_all();
    assert_eq!(cache.find(0x1000), None);
    cache.insert(0x1000, (0x1000, 64), place(1), before);
    assert_eq!(cache.find(0x1000), None, "the result is from before");
    cache.insert(0x1000, (0x1000, 64), place(2), cache.now());
    assert_eq!(cache.find(0x1000), Some(place(2)));
}

#[test]
fn forget_while_nothing_is_known_late_results_are_dropped() {
    let cache = Box::new(Cache::new());
    let before = cache.now();
    cache.forget_all();
    cache.insert(0x1000, (0x1000, 64), place(1), before);
    assert_eq!(cache.find(0x1000), None, "the driver was asked before");
}

fn free(cache: &Cache, start: u64) {
    if cache.may_know_freed(start) {
        cache.forget_at(start);
    }
}

#[test]
fn forget_at_late_answer_about_it_leaves_what_came_after() {
    const BYTES: u64 = 2 << 20;
    let cache = Box::new(Cache::new());
    let (start, late) = (0x7f00_0000_0000, cache.now());
    free(&cache, start + 8 * BYTES);
    cache.insert(start + BYTES, (start, 2 * BYTES), place(1), cache.now());
    cache.insert(start, (start, 2 * BYTES), place(1), late);
    assert_eq!((cache.find(start), cache.find(start + BYTES)), (Some(place(1)), Some(place(1))));
    free(&cache, start);
    assert_eq!((cache.find(start), cache.find(start + BYTES)), (None, None));
}

#[test]
fn find_what_begins_in_unknown_address_space_is_kept() {
    const BYTES: u64 = 4 << 20;
    let cache = Box::new(Cache::new());
    let start = 0x7f00_0000_1000;
    cache.insert_unknown(0x7f00_0000_0000, cache.now());
    for at in [start + BYTES / 2, start] {
        cache.insert(at, (start, BYTES), place(1), cache.now());
        assert_eq!((cache.find(at), cache.find(start)), (Some(place(1)), Some(place(1))));
    }
    assert_eq!(cache.find_any(0x7f00_0000_0000).map(|(place, _)| place.kind), Some(Kind::Unknown));
}

#[test]
fn forget_at_one_allocation_goes_and_others_stay() {
    for bytes in [256, 700, 4096, 100_000, 3 << 20, 1 << 30, 5 << 30] {
        let cache = Box::new(Cache::new());
        let starts = [0, 1, 2].map(|n| 0x7f00_0000_0000 + n * bytes);
        let places = |start: u64| (0..24).map(move |step| start + step * bytes / 24);
        // Not from the beginning: a free names it all the same.
        let learn = |start| {
            let all = places(start).skip(5).filter(|&address| cache.find(address).is_none());
            all.for_each(|address| cache.insert(address, (start, bytes), place(1), cache.now()));
        };
        starts.into_iter().for_each(learn);
        cache.insert_unknown(0x1000, cache.now());
        let late = cache.now();
        free(&cache, starts[1]);
        let known = starts.map(|start| places(start).filter(|&address| cache.find(address).is_some()).count());
        assert_eq!([known[0] >= 19, known[1] == 0, known[2] >= 19], [true; 3], "{bytes} bytes: {known:?}");
        assert_eq!(cache.find_any(0x1000), None, "it may be a device's now");
        cache.insert(starts[1], (starts[1], bytes), place(1), late);
        assert_eq!(cache.find(starts[1]), None, "the driver was asked before");
        free(&cache, starts[0] + 1);
        assert_eq!(cache.find(places(starts[2]).next_back().unwrap()), None, "no allocation begins there");
    }
}

/// However many push each other out: of one that was freed nothing is left.
#[test]
fn forget_at_while_others_are_pushed_out_leaves_nothing() {
    const BYTES: u64 = 128 << 20;
    let cache = Box::new(Cache::new());
    let starts = || (0..600).map(|n| 0x7f00_0000_0000 + n * BYTES);
    let places = |start| [3, 1, 0, 2].map(|part| start + part * (BYTES / 4));
    for start in starts().chain(starts()) {
        places(start).into_iter().for_each(|at| cache.insert(at, (start, BYTES), place(1), cache.now()));
    }
    for start in starts() {
        free(&cache, start);
        assert!(places(start).into_iter().all(|at| cache.find(at).is_none()), "{start:#x}");
    }
}

/// Whoever asks while another thread frees: once the free is over nothing is known that was asked for before it.
#[test]
fn forget_at_beside_answers_leaves_none_from_before() {
    const FREES: u64 = 100_000;
    let cache: &Cache = Box::leak(Box::new(Cache::new()));
    let owner = AtomicU64::new(1);
    let mut stale = Vec::new();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let owner = &owner;
            scope.spawn(move || {
                while owner.load(Relaxed) < FREES {
                    let now = cache.now();
                    let whose = owner.load(SeqCst) as u8;
                    cache.insert(0x10_0000 + thread * 0x1000, (0x10_0000, 0x8000), place(whose), now);
                }
            });
        }
        for next in 2..=FREES {
            owner.store(next, SeqCst);
            free(cache, 0x10_0000);
            let found = [0x10_0000, 0x10_1000].map(|at| cache.find(at).map(|found| found.device));
            stale.extend(found.into_iter().flatten().filter(|&found| found != next as u8));
        }
    });
    assert_eq!(stale, [0; 0], "owners from before a free");
}

#[test]
fn find_while_written_gives_a_whole_entry_or_none() {
    let cache: &Cache = Box::leak(Box::new(Cache::new()));
    std::thread::scope(|scope| {
        for owner in 1..=2u8 {
            scope.spawn(move || {
                for _ in 0..20_000 {
                    let of = u64::from(owner);
                    cache.insert(0x1000, (0x1000, 64), Place { of, ..place(owner) }, cache.now());
                }
            });
        }
        for _ in 0..20_000 {
            if let Some(found) = cache.find(0x1010) {
                assert!(u64::from(found.owner) == found.of, "{found:?}");
            }
        }
    });
}

#[test]
fn pack_every_kind_comes_back() {
    for kind in [Kind::Host, Kind::Plain, Kind::Pool, Kind::Mapped, Kind::Foreign, Kind::Remote, Kind::Unknown] {
        let place = Place { of: u64::MAX, ..Place::new(kind, 63, 127) };
        assert_eq!(Place::unpack(place.pack(), place.of), place);
    }
}
