//! Models of state that threads share without a lock.

use std::ffi::c_void;
use std::ptr;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use crate::api::abi::Code;
use crate::left::Shared;
use crate::model::Path;
use crate::objects::map::Map;
use crate::objects::memory::{Cache, Kind, Place};
use crate::objects::past::Past;
use crate::objects::streams::Stream;
use crate::ordered::Ordering::{Acquire, Relaxed, Release};
use crate::ordered::{AtomicBool, AtomicU64, AtomicUsize};
use crate::os::table::{Table, spread};
use crate::policy::Driver;
use crate::policy::access::cells::Cells;
use crate::route::{Routes, Slot};
use crate::staging::ring::{Contexts, Host, NEEDED, Ring, Stager};
use crate::staging::transfer::Transfer;
use crate::staging::{Rings, StepAdmission};
use crate::timed::{RATIO, Writer};
use crate::writer::{A_REGION, Opened};

/// Tries all orders in which threads are interrupted so often, and says how many there were.
pub(crate) fn model(name: &str, interruptions: usize, run: impl Fn() + Sync + Send + 'static) {
    let since = std::time::Instant::now();
    let orders = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions);
    let count = std::sync::Arc::clone(&orders);
    builder.check(move || {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        run();
    });
    let orders = orders.load(std::sync::atomic::Ordering::Relaxed);
    println!("MODEL {orders:>7} orders {:5.1} s  {name}", since.elapsed().as_secs_f64());
}

const ADDRESS: u64 = 0x7000_0000_0100;

fn place(owner: u8) -> Place {
    Place { kind: Kind::Plain, device: owner, owner, of: owner.into() }
}

/// An allocation of an owner: they differ in all words.
fn range(owner: u8) -> (u64, u64) {
    (ADDRESS - u64::from(owner), 0x100 + u64::from(owner))
}

#[test]
fn what_is_found_while_two_threads_remember_is_of_one_of_them_and_whole() {
    model("two threads remember", 1, || {
        let cache = Arc::new(Cache::new());
        let writers = [1, 2].map(|owner| {
            let cache = Arc::clone(&cache);
            thread::spawn(move || cache.insert(ADDRESS, range(owner), place(owner), cache.now()))
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

fn free(cache: &Cache, start: u64) {
    if cache.may_know_freed(start) {
        cache.forget_at(start);
    }
}

/// One thread frees memory, which another context gets at that address, while another asks whose it is and remembers the answer.
fn free_beside_a_question(reads_time_first: bool, is_known: bool) {
    model("a free beside a question", 2, move || {
        let (cache, driver) = (Arc::new(Cache::new()), Arc::new(AtomicU64::new(1)));
        if is_known {
            cache.insert(ADDRESS, (ADDRESS, 0x100), place(1), cache.now());
        }
        let asks = {
            let (cache, driver) = (Arc::clone(&cache), Arc::clone(&driver));
            thread::spawn(move || {
                let early = reads_time_first.then(|| cache.now());
                let owner = driver.load(Acquire) as u8;
                cache.insert(ADDRESS, (ADDRESS, 0x100), place(owner), early.unwrap_or_else(|| cache.now()));
            })
        };
        driver.store(2, Release);
        free(&cache, ADDRESS);
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
    free_beside_a_question(true, false);
    free_beside_a_question(true, true);
}

/// The model can fail.
#[test]
#[should_panic(expected = "owner == 2")]
fn time_that_is_read_after_the_question_is_found_out() {
    free_beside_a_question(false, false);
}

/// An owner ends, and another gets its memory, while a thread asks whose that is and remembers the answer.
#[test]
fn memory_of_an_owner_that_ends_beside_a_question_is_not_remembered() {
    model("an owner that ends beside a question", 2, || {
        let (cache, driver) = (Arc::new(Cache::new()), Arc::new(AtomicU64::new(1)));
        let asks = {
            let (cache, driver) = (Arc::clone(&cache), Arc::clone(&driver));
            thread::spawn(move || {
                let now = cache.now();
                cache.insert(ADDRESS, (ADDRESS, 0x100), place(driver.load(Acquire) as u8), now);
            })
        };
        driver.store(2, Release);
        cache.forget(1);
        assert!(cache.find(ADDRESS).is_none_or(|found| found.owner == 2));
        asks.join().unwrap();
        assert!(cache.find(ADDRESS).is_none_or(|found| found.owner == 2));
    });
}

/// One thread remembers the second piece of an allocation, while others have its first piece pushed out. Once it is freed nothing is left of it.
#[test]
fn memory_whose_first_piece_is_pushed_out_is_forgotten_when_it_is_freed() {
    const BYTES: u64 = 0x100;
    model("a first piece that is pushed out", 2, || {
        let cache = Arc::new(Cache::new());
        let piece = |address: u64| spread(address >> 8, 1);
        let second = ADDRESS + BYTES;
        // Two more in the place of the first piece.
        let others: Vec<u64> =
            (2..).map(|n| ADDRESS + n * BYTES).filter(|&at| piece(at) == piece(ADDRESS)).take(2).collect();
        let pushes = {
            let cache = Arc::clone(&cache);
            thread::spawn(move || {
                others.into_iter().for_each(|at| cache.insert(at, (at, BYTES), place(7), cache.now()))
            })
        };
        cache.insert(second, (ADDRESS, 2 * BYTES - 1), place(1), cache.now());
        pushes.join().unwrap();
        free(&cache, ADDRESS);
        assert_eq!(cache.find(second), None);
        assert_eq!(cache.find(ADDRESS), None);
    });
}

type Small = Table<8, 48>;
const KEY: u64 = 0x1000;

#[test]
fn who_finds_a_key_sees_what_was_done_before_it_was_set() {
    model("what was done before a key", 3, || {
        let (table, done) = (Arc::new(Small::new()), Arc::new(AtomicU64::new(0)));
        let finds = {
            let (table, done) = (Arc::clone(&table), Arc::clone(&done));
            thread::spawn(move || {
                if table.find(KEY) == Some(5) {
                    assert_eq!(done.load(Relaxed), 7);
                }
            })
        };
        done.store(7, Relaxed);
        assert!(table.set(KEY, 5, |_| false, false));
        finds.join().unwrap();
    });
}

#[test]
fn counts_of_two_threads_are_never_more_than_there_were() {
    model("two threads count", 3, || {
        let table = Arc::new(Small::new());
        let counts = [(); 2].map(|()| {
            let table = Arc::clone(&table);
            thread::spawn(move || _ = table.count(KEY))
        });
        counts.into_iter().for_each(|count| count.join().unwrap());
        assert!((1..=2).contains(&table.find(KEY).unwrap()));
    });
}

// ---- Objects by their handles ----

/// One thread changes a map, and another looks for what is in it.
fn changes_beside_a_look(
    name: &str,
    interruptions: usize,
    known: &'static [(usize, u32)],
    change: impl Fn(&Map) + Copy + Send + Sync + 'static,
    look: impl Fn(&Map) + Copy + Send + Sync + 'static,
) {
    model(name, interruptions, move || {
        let map = Arc::new(Map::new(8));
        known.iter().for_each(|&(handle, word)| _ = map.set(handle, word));
        let changes = {
            let map = Arc::clone(&map);
            thread::spawn(move || change(&map))
        };
        let looks = {
            let map = Arc::clone(&map);
            thread::spawn(move || look(&map))
        };
        changes.join().unwrap();
        looks.join().unwrap();
        look(&map);
    });
}

/// Handles by the last bits of their hashes, which say which chains they are in.
fn handle(bits: usize) -> usize {
    (0x10..).find(|&handle| spread(handle as u64, 32) & 3 == bits).unwrap()
}

#[test]
fn object_whose_row_goes_to_another_is_found_with_its_own_word_or_not() {
    let [one, other] = [handle(0), handle(2)];
    let known: &'static [(usize, u32)] = Box::leak(Box::new([(one, 1)]));
    let change = move |map: &Map| {
        map.remove(one);
        map.set(other, 2);
    };
    let look = move |map: &Map| {
        assert!(map.find(one).is_none_or(|found| found == 1));
        assert!(map.find(other).is_none_or(|found| found == 2));
    };
    changes_beside_a_look("a row that goes to another object", 3, known, change, look);
}

#[test]
fn object_that_stays_is_found_while_there_come_to_be_more_chains() {
    let [one, stays, comes] = [handle(0), handle(1), handle(2)];
    let known: &'static [(usize, u32)] = Box::leak(Box::new([(one, 1), (stays, 2)]));
    let look = move |map: &Map| assert_eq!(map.find(stays), Some(2));
    changes_beside_a_look("more chains", 3, known, move |map| _ = map.set(comes, 3), look);
}

#[test]
fn object_that_stays_is_found_while_the_one_before_it_goes_to_another_chain() {
    let [stays, goes, comes] = [handle(0), handle(2), handle(1)];
    let known: &'static [(usize, u32)] = Box::leak(Box::new([(stays, 1), (goes, 2)]));
    // Twice, since whoever finds nothing looks again.
    let change = move |map: &Map| {
        for _ in 0..2 {
            map.remove(goes);
            map.set(comes, 3);
            map.remove(comes);
            map.set(goes, 2);
        }
    };
    let look = move |map: &Map| assert_eq!(map.find(stays), Some(1));
    changes_beside_a_look("a row that goes to another chain", 3, known, change, look);
}

// ---- Slots of real functions ----

const GLOBAL: *mut c_void = ptr::without_provenance_mut(0x100);
const OWN: *mut c_void = ptr::without_provenance_mut(0x200);

/// Slots and routes live for ever.
fn routes() -> Arc<(Slot, Slot, Routes<2>)> {
    Arc::new((Slot::empty(), Slot::empty(), Routes::new()))
}

fn call_site(number: usize) -> *const c_void {
    ptr::without_provenance(0x5000 + number)
}

/// Where a call goes by a slot: what is known, or what the caller has found out.
fn call((slot, _, routes): &(Slot, Slot, Routes<2>), caller: *const c_void, found: *mut c_void) -> *mut c_void {
    let known = Some(slot.real()).filter(|real| !real.is_null()).or_else(|| routes.find(slot, caller));
    known.unwrap_or_else(|| {
        let is_for_all = found == GLOBAL && slot.claim(found);
        if is_for_all { found } else { routes.keep(slot, caller, found) }
    })
}

#[test]
fn call_site_that_was_told_its_own_function_is_told_the_same_again() {
    model("a route beside a claim", 3, || {
        let routes = routes();
        let other = {
            let routes = Arc::clone(&routes);
            thread::spawn(move || {
                let first = call(&routes, call_site(2), GLOBAL);
                assert_eq!(call(&routes, call_site(2), GLOBAL), first);
            })
        };
        let first = call(&routes, call_site(1), OWN);
        assert_eq!(call(&routes, call_site(1), OWN), first);
        other.join().unwrap();
        assert_eq!(call(&routes, call_site(1), OWN), first);
    });
}

#[test]
fn routes_that_two_threads_keep_are_both_found_and_never_mixed() {
    model("two routes", 2, || {
        let routes = routes();
        let keeps = |number: usize| {
            let routes = Arc::clone(&routes);
            move || {
                let slot = if number == 1 { &routes.0 } else { &routes.1 };
                let real = ptr::without_provenance_mut(0x1000 * number);
                routes.2.keep(slot, call_site(number), real);
                assert_eq!(routes.2.find(slot, call_site(number)), Some(real));
            }
        };
        let threads = [1, 2].map(|number| thread::spawn(keeps(number)));
        for (slot, number) in [(&routes.0, 1), (&routes.1, 2)] {
            let found = routes.2.find(slot, call_site(number));
            assert!(found.is_none_or(|real| real as usize == 0x1000 * number));
        }
        assert!(routes.2.all().all(|real| [0x1000, 0x2000].contains(&(real as usize))));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn who_finds_a_route_sees_what_was_done_before_it_was_kept() {
    model("what was done before a route", 3, || {
        let (routes, pinned) = (routes(), Arc::new(AtomicU64::new(0)));
        let keeps = {
            let (routes, pinned) = (Arc::clone(&routes), Arc::clone(&pinned));
            thread::spawn(move || {
                pinned.store(1, Relaxed);
                routes.2.keep(&routes.0, call_site(1), OWN);
            })
        };
        if routes.2.find(&routes.0, call_site(1)).is_some() {
            assert_eq!(pinned.load(Relaxed), 1, "its library may be gone");
        }
        keeps.join().unwrap();
    });
}

#[test]
fn slots_that_two_threads_claim_for_two_functions_are_two() {
    model("two claims", 3, || {
        let slots = Arc::new([Slot::empty(), Slot::empty()]);
        let claim = |slots: &[Slot; 2], real| slots.iter().position(|slot| slot.claim(real)).unwrap();
        let other = {
            let slots = Arc::clone(&slots);
            thread::spawn(move || claim(&slots, OWN))
        };
        let own = claim(&slots, GLOBAL);
        assert_eq!(claim(&slots, GLOBAL), own);
        assert_ne!(other.join().unwrap(), own);
        assert_eq!(slots[own].real(), GLOBAL);
    });
}

// ---- Chunks of a trace ----

#[test]
fn chunk_that_is_handed_out_is_mapped_and_one_threads() {
    model("two threads take chunks as the file grows", 3, || {
        let (room, is_mapped) = (Arc::new(Opened::new(2 * A_REGION)), Arc::new(AtomicBool::new(false)));
        let handed_out = Arc::new(AtomicU64::new(A_REGION - 1));
        let regions = [0x10_0000_usize, 0x80_0000].map(ptr::without_provenance_mut::<u8>);
        room.open(A_REGION - 1, regions[0]);
        let takes = || {
            let (room, is_mapped, handed_out) = (Arc::clone(&room), Arc::clone(&is_mapped), Arc::clone(&handed_out));
            let second = regions[1] as usize;
            move || {
                let chunk = room.take(&handed_out)? as usize;
                assert!(chunk != second || is_mapped.load(Relaxed), "nothing is there yet");
                Some(chunk)
            }
        };
        let threads = [thread::spawn(takes()), thread::spawn(takes())];
        is_mapped.store(true, Relaxed);
        room.open(A_REGION, regions[1]);
        let [one, other] = threads.map(|thread| thread.join().unwrap());
        let left = takes()();
        let taken: std::collections::BTreeSet<_> = [one, other, left].into_iter().flatten().collect();
        assert_eq!(taken.len(), 2, "{one:?} {other:?} {left:?}");
        assert_eq!(handed_out.load(Relaxed), A_REGION + 1);
    });
}

// ---- Rings of staged copies ----

/// A driver: whether anything is under way in the ring of a memory, and whether the second context is there.
struct Gpus {
    busy: [AtomicBool; 3],
    has_context: AtomicBool,
    /// The users of memory of the host.
    user: [AtomicUsize; 3],
    made: AtomicUsize,
    parts: AtomicUsize,
}

impl Gpus {
    fn new() -> Self {
        let is_not = || std::array::from_fn(|_| AtomicBool::new(false));
        let user = std::array::from_fn(|_| AtomicUsize::new(0));
        Self {
            busy: is_not(),
            has_context: AtomicBool::new(true),
            user,
            made: AtomicUsize::new(0),
            parts: AtomicUsize::new(0),
        }
    }
}

impl Driver for Gpus {
    fn context_id(&self, handle: usize) -> Option<u64> {
        (handle == 1 || self.has_context.load(Acquire)).then_some(1)
    }
}

impl Stager for Gpus {
    fn host_memory(&self, bytes: usize) -> Result<Host, Code> {
        Ok(Host { address: self.made.fetch_add(1, Relaxed), bytes, locked_in: Host::UNLOCKED })
    }

    fn complete(&self, ring: &mut Ring, _: bool) -> Result<(), Code> {
        let lacks = ring.parts().filter(|(_, handle)| **handle == 0);
        lacks.for_each(|(_, handle)| *handle = self.parts.fetch_add(1, Relaxed) + 1);
        Ok(())
    }

    fn is_over(&self, ring: &Ring) -> Result<bool, Code> {
        Ok(!self.busy[ring.host.address].load(Acquire))
    }

    fn is_past(&self, ring: &Ring, _: usize) -> bool {
        self.is_ring_done(ring)
    }

    fn bytes_of(&self, _: &Ring) -> &[u8] {
        &[]
    }
}

const MEMORY: [(u64, u64); 2] = [(0x1000, 0x2000), (0x8000, 0x9000)];

/// A copy from memory of a context by a stream, of a thread, in one step. False if its context is gone, or its ring is another's in this moment.
fn copy((rings, gpus): &(Rings, Gpus), context: usize, stream: usize, ends: (u64, u64)) -> bool {
    let kind: (Contexts, usize) = ([(1, 1), (context, 1), (1, 1)], NEEDED);
    let ring = rings.ring(gpus, kind, Stream::Created(stream), || gpus.host_memory(NEEDED).unwrap());
    rings.keep(&ring, stream);
    let step = Transfer { ring, chunk: 1, endpoints: [ends; 2] };
    let is_taken = matches!(rings.begin_step(gpus, &step), StepAdmission::Taken { .. });
    if is_taken {
        let user = &gpus.user[ring.host.address];
        assert_eq!(user.swap(stream, Relaxed), 0, "another is using this memory");
        gpus.busy[ring.host.address].store(true, Release);
        assert_eq!(user.swap(0, Relaxed), stream);
        rings.end_step(&ring, stream, true);
    }
    rings.release(&ring, stream);
    is_taken
}

#[test]
fn memory_of_a_copy_that_is_under_way_is_not_freed_before_it() {
    model("a free beside two copies", 2, || {
        let both = Arc::new((Rings::empty(), Gpus::new()));
        let other = {
            let both = Arc::clone(&both);
            thread::spawn(move || _ = copy(&both, 1, 5, MEMORY[1]))
        };
        let is_copied = copy(&both, 1, 5, MEMORY[0]);
        let (start, end) = MEMORY[0];
        let waits_for = both.0.copies_of(&both.1, &(start..end), Some(Stream::Created(6)));
        assert!(!is_copied || !waits_for.is_empty(), "nothing waits for the copy");
        other.join().unwrap();
    });
}

#[test]
fn ring_is_used_by_one_thread_at_a_time() {
    model("two streams and a ring with nothing to do", 2, || {
        let both = Arc::new((Rings::empty(), Gpus::new()));
        copy(&both, 1, 5, MEMORY[0]);
        both.1.busy[0].store(false, Release);
        let threads = [6, 7].map(|stream| {
            let both = Arc::clone(&both);
            thread::spawn(move || _ = copy(&both, 1, stream, MEMORY[1]))
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn memory_of_a_ring_that_goes_with_its_context_serves_one_other() {
    model("a context that ends beside copies", 2, || {
        let both = Arc::new((Rings::empty(), Gpus::new()));
        copy(&both, 2, 5, MEMORY[0]);
        both.1.busy[0].store(false, Release);
        let threads = [6, 7].map(|stream| {
            let both = Arc::clone(&both);
            thread::spawn(move || _ = copy(&both, 1, stream, MEMORY[1]))
        });
        both.1.has_context.store(false, Release);
        both.0.on_contexts_ended(&both.1, (&|&(context, _)| context == 2, true));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(!both.0.is_in_use(&both.1, 2));
        assert!(both.0.are_apart(), "two rings have one stream, or one memory");
    });
}

// ---- Decisions about pairs ----

/// A thread decides a pair by what the driver says, while another changes that.
#[test]
fn decision_that_was_made_beside_a_change_does_not_outlive_it() {
    model("a decision beside a change", 3, || {
        let (cells, driver) = (Arc::new(Cells::<2>::new()), Arc::new(AtomicU64::new(1)));
        let decides = {
            let (cells, driver) = (Arc::clone(&cells), Arc::clone(&driver));
            thread::spawn(move || {
                let rests = cells.now(0, 1);
                let path = Path(driver.load(Relaxed) as u8);
                cells.keep(cells.get(0, 1).unwrap(), (path, false), rests);
            })
        };
        driver.store(2, Relaxed);
        cells.change(1);
        let is_right = || cells.decided(0, 1).is_none_or(|decided| decided == (Path(2), false));
        assert!(is_right());
        decides.join().unwrap();
        assert!(is_right());
    });
}

// ---- Memory that was freed ----

#[test]
fn memory_between_two_that_were_freed_was_not_freed() {
    for [first, second] in [[0x1000, 0x8000], [0x8000, 0x1000]] {
        model("two frees in one place", 3, move || {
            let past = Arc::new(Past::new());
            past.note_freed(first, first + 0x1000);
            let frees = {
                let past = Arc::clone(&past);
                thread::spawn(move || past.note_freed(second, second + 0x1000))
            };
            assert!(!past.was_freed(0x5000));
            frees.join().unwrap();
            assert!(past.was_freed(second) && !past.was_freed(first));
        });
    }
}

// ---- What a trace has ----

/// The rest of a chunk, and a place in it that is one thread's.
#[test]
fn rest_of_a_chunk_goes_to_one_thread_which_finds_what_the_last_has_written() {
    model("two threads take what one leaves", 3, || {
        let left = Arc::new((Shared::new(), UnsafeCell::new(0_u64)));
        let takes = || {
            let left = Arc::clone(&left);
            move || {
                let taken = left.0.take();
                // loom finds it if the place is another's meanwhile.
                taken.inspect(|_| left.1.with_mut(|place| unsafe { *place += 1 })).is_some()
            }
        };
        let threads = [takes(), takes()].map(thread::spawn);
        left.1.with_mut(|place| unsafe { *place = 10 });
        left.0.put(7);
        let taken = threads.map(|thread| thread.join().unwrap());
        assert!(taken != [true; 2]);
        assert!(taken[0] || taken[1] || left.0.take() == Some(7));
    });
}

#[test]
fn comparison_of_clocks_is_one_whatever_is_written_meanwhile() {
    model("clocks are compared anew", 3, || {
        let writer = Arc::new(Writer::new());
        [100, 200, 400].into_iter().for_each(|now| writer.compare(now));
        let compares = {
            let writer = Arc::clone(&writer);
            // In the second's place.
            thread::spawn(move || writer.compare(800))
        };
        assert_eq!(writer.ticks(1000 * RATIO), 1000);
        compares.join().unwrap();
        assert_eq!(writer.ticks(1000 * RATIO), 1000);
    });
}
