//! Copies and who waits for them, on a driver that is plain values.

use std::sync::atomic::AtomicU64;

use super::*;
use crate::policy::access::fake::{Fake, context};

const OWN: Option<Context> = Some((context(0), 1));
const ENDS: Endpoints = [context(0), context(1)];

fn stream(number: usize) -> Stream {
    Stream::Created(0x5000 + number * 0x10)
}

/// A copy on a stream of context 0 from there to context 1.
fn copied(waits: &Waits, fake: &Fake, stream: Stream) {
    let add = || waits.add(fake, stream, OWN.filter(|_| stream != Stream::Legacy), ENDS);
    let announced = waits.announce(stream, ENDS).or_else(add).unwrap();
    assert!(waits.finish(fake, announced));
}

fn all(waits: &Waits, of: SyncScope) -> Vec<Pending> {
    let mut last = None;
    let next = || {
        last = waits.next(&of, last.as_ref());
        last
    };
    std::iter::from_fn(next).collect()
}

fn count(waits: &Waits, of: SyncScope) -> usize {
    let count = all(waits, of).len();
    assert!(count == 0 || waits.are_pending(&of));
    count
}

/// Waits for all that a call waits for.
fn wait(waits: &Waits, fake: &Fake, of: SyncScope) {
    for mut pending in all(waits, of) {
        let left = waits.record_left(fake, &pending, 0);
        let events = [pending.event, left.and_then(|Left(left)| Some(left?.1))];
        events.iter().flatten().for_each(|event| _ = fake.events.borrow_mut().remove(event));
        left.into_iter().for_each(|left| waits.finish_left(&mut pending, left));
        waits.mark_done(&pending);
    }
}

/// How many events were made.
fn made(fake: &Fake) -> u64 {
    fake.next.get() - Fake::new().next.get()
}

#[test]
fn next_at_the_far_end_until_it_is_over() {
    let (waits, fake) = (Waits::new(), Fake::new());
    assert!(waits.are_none());
    copied(&waits, &fake, stream(0));
    assert_eq!(count(&waits, SyncScope::Context(context(1))), 1);
    assert_eq!(count(&waits, SyncScope::Context(context(0))), 0, "the driver waits for the stream's own context");
    assert_eq!(count(&waits, SyncScope::Context(context(2))), 0);
    assert_eq!(count(&waits, SyncScope::Memory(context(0))), 1, "but not before it takes memory away");
    let pending = all(&waits, SyncScope::Context(context(1)))[0];
    assert_eq!(fake.events.borrow().get(&pending.event.unwrap()), Some(&0x5000));
    // One more copy, before it is known that the first is over.
    copied(&waits, &fake, stream(0));
    waits.mark_done(&pending);
    assert_eq!(count(&waits, SyncScope::All), 1);
    wait(&waits, &fake, SyncScope::Memory(context(1)));
    assert!(!waits.are_pending(&SyncScope::All) && !waits.are_none());
    copied(&waits, &fake, stream(0));
    assert_eq!((count(&waits, SyncScope::All), made(&fake)), (1, 1));
}

#[test]
fn next_of_a_third_device_at_both_ends() {
    let (waits, fake) = (Waits::new(), Fake::new());
    let announced = waits.add(&fake, stream(0), Some((context(2), 1)), ENDS).unwrap();
    assert!(waits.finish(&fake, announced));
    assert_eq!([0, 1, 2].map(|number| count(&waits, SyncScope::Context(context(number)))), [1, 1, 0]);
}

#[test]
fn next_on_the_legacy_stream_only_for_who_takes_away() {
    let (waits, fake) = (Waits::new(), Fake::new());
    copied(&waits, &fake, Stream::Legacy);
    assert!(fake.events.borrow().is_empty());
    assert_eq!([SyncScope::Context(context(1)), SyncScope::All].map(|of| count(&waits, of)), [0, 1]);
    let pending = all(&waits, SyncScope::Memory(context(1)))[0];
    assert_eq!((pending.event, pending.endpoint), (None, context(0)));
}

#[test]
fn announced_and_left_is_recorded_by_the_next_that_waits() {
    let (waits, fake) = (Waits::new(), Fake::new());
    copied(&waits, &fake, stream(0));
    wait(&waits, &fake, SyncScope::All);
    let left = waits.announce(stream(0), ENDS).unwrap();
    let mut pending = all(&waits, SyncScope::Context(context(1)))[0];
    waits.mark_done(&pending);
    assert_eq!(count(&waits, SyncScope::All), 1, "a thread that recorded nothing has not waited for it");
    let recorded = waits.record_left(&fake, &pending, 0).unwrap();
    let Left(Some((_, event))) = recorded else { panic!("{recorded:?}") };
    assert_eq!((fake.events.borrow().get(&event), pending.event == Some(event)), (Some(&0x5000), false));
    waits.finish_left(&mut pending, recorded);
    waits.mark_done(&pending);
    assert_eq!(count(&waits, SyncScope::All), 0);
    // The call was only under way: its copy may have come after that event.
    assert!(waits.finish(&fake, left));
    assert_eq!(count(&waits, SyncScope::All), 1);
    wait(&waits, &fake, SyncScope::All);
    let failed = waits.announce(stream(0), ENDS).unwrap();
    waits.withdraw(failed);
    let pending = all(&waits, SyncScope::All)[0];
    assert!(waits.record_left(&fake, &pending, 0).is_none(), "the copy was not made");
}

/// The call returns, and the stream gets more work, while another thread is about to record an event for it.
#[test]
fn announced_and_finished_meanwhile_keeps_the_event_of_its_call() {
    let (waits, fake) = (Waits::new(), Fake::new());
    copied(&waits, &fake, stream(0));
    let under_way = waits.announce(stream(0), ENDS).unwrap();
    let mut pending = all(&waits, SyncScope::All)[0];
    assert!(waits.finish(&fake, under_way));
    let late = waits.record_left(&fake, &pending, 0).unwrap();
    let Left(Some((_, event))) = late else { panic!("{late:?}") };
    assert_ne!(pending.event, Some(event), "whoever comes later does not wait for later work");
    waits.finish_left(&mut pending, late);
    waits.mark_done(&pending);
    assert_eq!(all(&waits, SyncScope::All)[0].event, pending.event);
}

#[test]
fn announced_on_another_threads_stream_is_not_recorded() {
    let (waits, fake) = (Waits::new(), Fake::new());
    let stream = Stream::PerThread(context(0), 7);
    copied(&waits, &fake, stream);
    fake.events.borrow_mut().clear();
    let _left = waits.announce(stream, ENDS).unwrap();
    let pending = all(&waits, SyncScope::All)[0];
    assert!(waits.record_left(&fake, &pending, 8).is_none() && fake.events.borrow().is_empty());
    assert!(waits.record_left(&fake, &pending, 7).is_some());
    assert_eq!(fake.events.borrow().len(), 1);
}

/// A call that returns after its entry has ceased to be used.
#[test]
fn finish_of_an_entry_that_serves_another_stream_fails() {
    let (waits, fake) = (Waits::new(), Fake::new());
    copied(&waits, &fake, stream(0));
    let late = waits.announce(stream(0), ENDS).unwrap();
    fake.ids.borrow_mut().insert(context(0), 2);
    waits.on_contexts_ended(&fake, &Ended::new(&fake, None, None));
    assert!(!waits.finish(&fake, late));
    waits.withdraw(late);
    assert!(!waits.are_pending(&SyncScope::All));
}

#[test]
fn on_stream_destroy_its_handle_is_given_anew() {
    let (waits, fake) = (Waits::new(), Fake::new());
    copied(&waits, &fake, stream(0));
    waits.on_stream_destroy(&fake, stream(0));
    assert!(waits.announce(stream(0), ENDS).is_none());
    copied(&waits, &fake, stream(0));
    assert_eq!((count(&waits, SyncScope::All), made(&fake)), (2, 2), "the copy continues, each by an event of its own");
    let _left = waits.announce(stream(0), ENDS).unwrap();
    fake.events.borrow_mut().clear();
    waits.on_stream_destroy(&fake, stream(0));
    assert_eq!(fake.events.borrow().len(), 1, "recorded while there is the stream");
    wait(&waits, &fake, SyncScope::All);
    (1..3).for_each(|number| copied(&waits, &fake, stream(number)));
    assert_eq!((count(&waits, SyncScope::All), made(&fake)), (2, 2), "they serve other streams");
}

#[test]
fn contexts_that_are_gone_take_their_events_along() {
    let (waits, fake) = (Waits::new(), Fake::new());
    copied(&waits, &fake, stream(0));
    copied(&waits, &fake, Stream::Legacy);
    waits.on_context_ending(context(0));
    assert!(waits.announce(stream(0), ENDS).is_none());
    fake.ids.borrow_mut().insert(context(0), 2);
    waits.on_contexts_ended(&fake, &Ended::new(&fake, None, None));
    assert_eq!(count(&waits, SyncScope::All), 1, "its legacy default stream is another, too, but that is not known");
    assert!(waits.add(&fake, stream(0), Some((context(0), 2)), ENDS).is_some());
    assert_eq!(made(&fake), 2, "no event of the former context serves the next");
    fake.ids.borrow_mut().insert(context(0), 0);
    waits.on_contexts_ended(&fake, &Ended::new(&fake, None, None));
    assert!(!waits.are_pending(&SyncScope::All) && waits.announce(stream(0), ENDS).is_none());
    copied(&waits, &fake, stream(0));
    assert_eq!(waits.entries.pair_count(), 1);
}

#[test]
fn add_as_many_streams_as_there_are_and_no_more_events_than_copies_under_way() {
    const MANY: usize = 10_000;
    let (waits, fake) = (Waits::new(), Fake::new());
    (0..MANY).for_each(|number| copied(&waits, &fake, stream(number)));
    assert_eq!((count(&waits, SyncScope::Context(context(1))), made(&fake)), (MANY, MANY as u64));
    (0..MANY).for_each(|number| assert!(waits.announce(stream(number), ENDS).is_some(), "{number}"));
    (0..MANY).for_each(|number| waits.on_stream_destroy(&fake, stream(number)));
    wait(&waits, &fake, SyncScope::All);
    let blocks = os::lock(&waits.locked).block_count;
    // Some are under way all the time, and nobody waits.
    for number in 0..3 * MANY {
        copied(&waits, &fake, stream(number));
        waits.on_stream_destroy(&fake, stream(number));
        let keep = |_: &usize, stream: &mut usize| *stream < 0x5000 + 16 * 0x10;
        fake.events.borrow_mut().retain(keep);
    }
    assert!(count(&waits, SyncScope::All) <= 64, "{}", count(&waits, SyncScope::All));
    assert_eq!((os::lock(&waits.locked).block_count, made(&fake)), (blocks, MANY as u64));
}

#[test]
fn add_takes_the_events_of_streams_whose_copies_are_over() {
    const MANY: usize = 5000;
    let (waits, fake) = (Waits::new(), Fake::new());
    let event = waits.event(&fake, OWN.unwrap()).unwrap();
    assert!(waits.add_graph(0x7000, (OWN.unwrap(), event), ENDS));
    for round in 0..5 {
        (0..MANY).for_each(|number| copied(&waits, &fake, stream(round * MANY + number)));
        assert_eq!(count(&waits, SyncScope::All), MANY);
        wait(&waits, &fake, SyncScope::All);
    }
    assert!(made(&fake) <= MANY as u64 + 1024 + 64, "{}", made(&fake));
    assert!(waits.announce(Stream::Graph(0x7000), ENDS).is_some(), "its nodes record the event still");
}

#[test]
fn graph_records_its_event_itself() {
    const EXEC: Stream = Stream::Graph(0x7000);
    let (waits, fake) = (Waits::new(), Fake::new());
    let event = waits.event(&fake, OWN.unwrap()).unwrap();
    assert!(waits.announce(EXEC, ENDS).is_none() && waits.add_graph(0x7000, (OWN.unwrap(), event), ENDS));
    copied(&waits, &fake, EXEC);
    assert!(fake.events.borrow().is_empty());
    assert_eq!(
        [0, 1].map(|number| count(&waits, SyncScope::Context(context(number)))),
        [1, 1],
        "launched on any stream"
    );
    waits.on_stream_destroy(&fake, EXEC);
    assert_eq!(all(&waits, SyncScope::All)[0].event, Some(event));
    wait(&waits, &fake, SyncScope::All);
    assert_eq!(waits.event(&fake, OWN.unwrap()), Some(event));
}

/// Four threads copy on their own streams and wait now and then. No thread misses a copy that it made before.
#[test]
fn next_misses_no_copy_while_others_wait() {
    let (waits, seen) = (Waits::new(), [const { AtomicU64::new(0) }; 1024]);
    let of = SyncScope::Context(context(1));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (waits, seen, of) = (&waits, &seen, &of);
            scope.spawn(move || {
                let fake = Fake::new();
                for round in 0..5000 {
                    let own = stream(thread * 100 + round % 7);
                    copied(waits, &fake, own);
                    let (number, entry) = waits.entries.find(own.key(), 0).unwrap();
                    let recorded = entry[RECORDED].load(SeqCst);
                    let pending = all(waits, *of);
                    let is_over = || seen[number as usize].load(SeqCst) >= recorded;
                    let mine = pending.iter().find(|pending| pending.stream == own);
                    assert!(mine.is_some() || is_over(), "thread {thread}, round {round}");
                    for pending in pending.iter().filter(|_| round % 3 == 0) {
                        seen[pending.entry as usize].fetch_max(pending.recorded, SeqCst);
                        waits.mark_done(pending);
                    }
                    if round % 11 == 0 {
                        waits.on_stream_destroy(&fake, own);
                    }
                }
            });
        }
    });
}
