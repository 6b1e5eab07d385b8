//! Decisions about pairs, on a driver that is plain values.

use std::time::Duration;

use p2pshim_host::verdict::{Finding, Part};
use p2pshim_trace::REMOTE;

use super::fake::{Fake, Fault, context, mapped, memory_of, opened, pool, pooled};
use super::*;
use crate::api::abi::Code;
use crate::config::{self, Broken, Denied, GpuName, Verify};
use crate::model::{Hidden, Named, Shape};
use crate::policy::Ended;
use crate::policy::verdicts::Verdict;
use crate::policy::{HarmlessEnable, VerifyBackend};

struct Process {
    access: Box<Access>,
    driver: Fake,
}

const ENOUGH: u64 = 2 << 20;

impl Process {
    fn new(driver: Fake) -> Self {
        Self::configured(driver, &Config::default())
    }

    fn configured(driver: Fake, config: &Config) -> Self {
        let access = Box::new(Access::new());
        access.configure(config);
        Self { access, driver }
    }

    fn copy_on(&self, src: u64, dst: u64, bytes: u64, on: Circumstances) -> Option<Path> {
        let named = Named::Ordinal(0);
        let copy = Memcpy { src, dst, src_named: named, dst_named: named, bytes, stream: None, shape: Shape::Linear };
        let decided = self.access.decided(&copy);
        let traffic = decided.or_else(|| self.access.consider(&self.driver, &copy, on));
        assert_eq!(self.driver.relaxed.get(), 0);
        traffic.map(|traffic| traffic.path)
    }

    /// The path of a copy between the memory of two contexts.
    fn copy(&self, src: usize, dst: usize, bytes: u64) -> Path {
        self.copy_on(memory_of(src), memory_of(dst), bytes, Circumstances::default()).unwrap()
    }

    fn staged(&self, src: usize, dst: usize, why: Why) {
        assert_eq!(self.copy(src, dst, ENOUGH), Path::Staged(why));
    }

    /// As the hook does it.
    fn enable(&self, from: usize, to: usize) -> i32 {
        self.driver.current.set(context(from));
        if let Some(harmless) = self.access.enabling(&self.driver, context(to), 0) {
            assert_eq!((harmless.flags, harmless.from), (1, Code(1)), "enables nothing");
            return harmless.to.0;
        }
        let ret = self.driver.relaxed(|| self.driver.enable(context(from), context(to))).unwrap();
        self.access.enabled(&self.driver, context(to), 0, ret).0
    }

    fn disable(&self, from: usize, to: usize) -> i32 {
        self.driver.current.set(context(from));
        let harmless = self.access.disabling(&self.driver, context(to));
        let ret = match harmless {
            Some(HarmlessEnable { peer, flags: 0, from: expected, to }) => {
                let ret = self.driver.relaxed(|| self.driver.enable(context(from), peer)).unwrap();
                assert_eq!(ret, expected);
                to
            }
            _ => self.driver.disable(context(from), context(to)),
        };
        self.access.disabled(&self.driver, context(to), ret, harmless).0
    }
}

#[test]
fn consider_small_copies_pair_is_enabled_at_the_seventeenth() {
    let process = Process::new(Fake::new());
    for _ in 0..16 {
        assert_eq!(process.copy(0, 1, 4), Path::Staged(Why::NotYetWorth));
    }
    assert_eq!(process.driver.enables.get(), 0);
    assert_eq!(process.copy(0, 1, 4), Path::Direct);
    assert_eq!(process.driver.enables.get(), 2, "both directions");
    assert_eq!(process.copy(1, 0, 4), Path::Direct);
}

#[test]
fn prepare_pair_is_enabled_before_any_copy_once_both_devices_have_a_context() {
    let mut process = Process::new(Fake::new());
    let prepare = |process: &Process| process.access.prepare(&process.driver, [0, 1]);
    process.driver.current.set(context(0));
    assert_eq!(prepare(&process), None);
    process.driver.primaries.insert(1);
    process.driver.busy.set(true);
    assert_eq!(prepare(&process), Some(Path::Staged(Why::Busy)));
    process.driver.busy.set(false);
    assert_eq!(prepare(&process), Some(Path::Direct), "though a copy would not try again yet");
    assert_eq!(process.driver.enables.get(), 2, "both directions");
    assert_eq!(process.copy(0, 1, 4), Path::Direct);
}

#[test]
fn prepare_pair_that_loses_data_or_is_denied_is_never_enabled() {
    for faults in [[((0, 1), Fault::Drop)], [((1, 0), Fault::Drop)]] {
        let process = Process::new(Fake { faults: faults.into(), primaries: [0, 1].into(), ..Fake::new() });
        for _ in 0..2 {
            assert_eq!(process.access.prepare(&process.driver, [0, 1]), Some(Path::Staged(Why::Broken)));
        }
        assert_eq!(process.driver.enables.get(), 0);
    }
    let denied = vec![Denied { device: GpuName::Ordinal(0), peer: GpuName::Ordinal(1) }];
    let driver = Fake { primaries: [0, 1].into(), ..Fake::new() };
    let process = Process::configured(driver, &Config { denied, ..Config::default() });
    assert_eq!(process.access.prepare(&process.driver, [1, 0]), Some(Path::Staged(Why::Denied)));
}

#[test]
fn consider_regular_copies_that_are_refused_change_nothing() {
    let process = Process::new(Fake::new());
    let copy = |src: u64, dst: u64, current: usize, made_by: usize| {
        process.driver.current.set(context(current));
        let copy = Memcpy::linear(src, dst, ENOUGH);
        let on = Circumstances { made_by, ..Circumstances::default() };
        process.access.consider(&process.driver, &copy, on).unwrap().path
    };
    let refused = Path::Staged(Why::Pool);
    for _ in 0..20 {
        assert_eq!(copy(pooled(0), pooled(1), 0, 0), refused, "no device can access both");
        assert_eq!(copy(pooled(0), memory_of(1), 1, 0), refused);
        assert_eq!(copy(pooled(0), memory_of(1), 0, context(1)), refused, "a batch on a stream of device 1");
        assert_eq!(copy(mapped(0), pooled(1), 1, 0), Path::Staged(Why::Mapped));
    }
    assert!(process.driver.granted.borrow().is_empty());
    assert_eq!(copy(pooled(0), memory_of(1), 0, 0), Path::Direct, "one that is not");
    assert_eq!(copy(pooled(0), memory_of(1), 1, 0), Path::Direct, "nor is this any more");
}

#[test]
fn consider_large_copy_pair_is_enabled_before_it() {
    let process = Process::new(Fake::new());
    assert_eq!(process.copy(0, 1, (-1i64).cast_unsigned()), Path::Staged(Why::NotYetWorth), "no memory is so large");
    assert_eq!(process.copy(0, 1, 1 << 20), Path::Staged(Why::NotYetWorth), "1 MiB is not over 1 MiB");
    assert_eq!(process.copy(0, 1, 1), Path::Direct);
}

#[test]
fn decided_seen_before_the_driver_is_not_asked() {
    let process = Process::new(Fake::new());
    process.copy(0, 1, ENOUGH);
    process.copy(0, 1, ENOUGH);
    let queries = process.driver.queries.get();
    for _ in 0..100 {
        assert_eq!(process.copy(0, 1, ENOUGH), Path::Direct);
    }
    assert_eq!(process.driver.queries.get(), queries);
    process.access.forget_all_memory();
    assert_eq!(process.copy(0, 1, ENOUGH), Path::Direct);
    assert_eq!(process.driver.queries.get(), queries + 2, "asked once after memory went away");
}

#[test]
fn consider_one_device_or_unknown_memory_nothing_is_done() {
    let process = Process::new(Fake::new());
    assert_eq!(process.copy(0, 16, ENOUGH), Path::SameDevice);
    assert_eq!(process.copy_on(0x10, memory_of(1), ENOUGH, Circumstances::default()), None);
    assert_eq!(process.driver.enables.get(), 0);
}

#[test]
fn consider_pair_that_loses_data_is_never_enabled() {
    for fault in [Fault::Drop, Fault::Hang] {
        for direction in [(0, 1), (1, 0)] {
            let driver = Fake { faults: [(direction, fault)].into(), ..Fake::new() };
            let process = Process::new(driver);
            process.staged(0, 1, Why::Broken);
            process.staged(1, 0, Why::Broken);
            assert_eq!(process.driver.enables.get(), 0, "{fault:?}");
            assert_eq!(process.copy(2, 1, ENOUGH), Path::Direct, "another pair");
        }
    }
}

#[test]
fn consider_pair_slower_than_the_host_is_not_enabled() {
    for times in [8, 100] {
        let process = Process::new(Fake { faults: [((0, 1), Fault::Slow(times))].into(), ..Fake::new() });
        process.staged(0, 1, Why::Slower);
        assert_eq!(process.driver.enables.get(), 0);
    }
}

#[test]
fn consider_pair_that_was_disturbed_for_some_rounds_is_enabled() {
    // A busy machine may take the host's copies to be slower still, so that no further round is made.
    let has_disturbed_rounds = |_| {
        let process = Process::new(Fake { faults: [((0, 1), Fault::SlowUpTo(10))].into(), ..Fake::new() });
        assert_eq!(process.copy(0, 1, ENOUGH), Path::Direct);
        process.driver.sent.get() > 10
    };
    assert!((0..50).any(has_disturbed_rounds), "there were never as many");
}

#[test]
fn begin_threads_at_once_on_pairs_without_a_device_in_common() {
    static ACCESS: Access = Access::new();
    let begin = |src: u8, dst: u8| ACCESS.verifier.begin([src, dst], Duration::ZERO, None);
    let (first, other) = (begin(0, 1), begin(2, 3));
    assert!(first.is_some() && other.is_some());
    assert!(begin(1, 4).is_none() && begin(1, 0).is_none() && begin(4, 3).is_none());
    drop(first);
    assert!(begin(1, 4).is_some() && begin(0, 2).is_none(), "others are still at it");
}

#[test]
fn forget_imported_handle_of_memory_that_the_program_makes_under_it() {
    let (handle, mut driver) = (mapped(0) as usize, Fake::new());
    driver.mapped.insert((mapped(0), 0));
    let process = Process::new(driver);
    process.access.note_imported(&process.driver, handle);
    assert!(process.access.is_imported(&process.driver, mapped(0)));
    process.access.forget_imported(handle);
    assert!(!process.access.has_imported() && !process.access.is_imported(&process.driver, mapped(0)));
}

#[test]
fn consider_no_mapped_memory_nothing_is_enabled() {
    for code in [Code(801), Code::SHARED_OBJECT_SYMBOL_NOT_FOUND] {
        let process = Process::new(Fake::new());
        process.driver.mapping.set(code);
        (0..3).for_each(|_| process.staged(0, 1, Why::Unverified));
        let taken = process.driver.next.get();
        process.staged(2, 3, Why::Unverified);
        assert_eq!(process.driver.next.get(), taken, "no other pair is tried");
        assert_eq!(process.driver.enables.get(), 0);
        assert_eq!(process.enable(0, 1), 0);
        assert_eq!(process.copy(0, 1, ENOUGH), Path::Direct, "the program's own");
        assert_eq!(process.disable(0, 1), 0);
        process.staged(0, 1, Why::Unverified);
        assert_eq!(process.driver.disables.get(), 1, "nothing stays that is not verified");
        let on = Circumstances { contexts: [context(0), context(1)], ..Circumstances::default() };
        assert_eq!(process.copy_on(pooled(0), pooled(1), ENOUGH, on), Some(Path::Direct), "verified by a pool");
    }
}

#[test]
fn consider_no_memory_for_the_verification_blocks_nothing() {
    let process = Process::new(Fake::new());
    process.driver.allocating.set(Code(2));
    process.staged(0, 1, Why::Unverified);
    process.driver.allocating.set(Code::SUCCESS);
    let paths: Vec<Path> = (0..3).map(|_| process.copy(0, 1, ENOUGH)).collect();
    assert_eq!(paths.last(), Some(&Path::Direct), "tried again: {paths:?}");
}

#[test]
fn consider_busy_devices_it_is_put_off_and_then_done() {
    let process = Process::new(Fake::new());
    process.driver.busy.set(true);
    process.staged(0, 1, Why::Busy);
    assert_eq!(process.driver.enables.get(), 0);
    let mut copies = 1;
    while process.copy(0, 1, ENOUGH) != Path::Direct {
        copies += 1;
        assert!(copies < 100);
    }
    assert!(copies > 10, "{copies}");
}

/// A program may make and destroy a pool in each iteration.
#[test]
fn consider_busy_devices_pools_that_go_do_not_put_it_off_for_ever() {
    let process = Process::new(Fake::new());
    process.driver.busy.set(true);
    process.staged(0, 1, Why::Busy);
    let mut copies = 1;
    while process.copy(0, 1, ENOUGH) != Path::Direct {
        process.copy_on(memory_of(0), pooled(1), 4, Circumstances::default());
        process.access.on_pool_destroy(pool(1));
        process.access.on_pool_destroy_returned(pool(1), true);
        process.access.on_pool_created(&process.driver, pool(1), Some(1));
        copies += 1;
        assert!(copies < 200);
    }
}

/// A time-out is no proof: the pair is judged again, once what did not end in time has ended.
#[test]
fn consider_copy_that_was_late_once_pair_is_refused_for_now_and_then_enabled() {
    let mut process = Process::new(Fake { faults: [((0, 1), Fault::Hang)].into(), ..Fake::new() });
    process.staged(0, 1, Why::Broken);
    assert_eq!(process.access.pair_state(0, 1).verification, Some(Verification::Late));
    assert_eq!(process.access.lock().why_hidden(1, 0), Some(Hidden::Late));
    assert_eq!(process.enable(0, 1), 217);
    let sent = process.driver.sent.get();
    (0..100).for_each(|_| process.staged(0, 1, Why::Broken));
    assert_eq!(process.driver.sent.get(), sent, "nothing else is sent where a copy has not ended");
    process.driver.faults.clear();
    process.driver.hung.borrow_mut().clear();
    let copies = (0..10_000).find(|_| process.copy(0, 1, ENOUGH) == Path::Direct);
    assert!(copies.is_some());
    assert_eq!((process.enable(0, 1), process.access.blocks()), (0, false));
}

#[test]
fn consider_copy_that_was_late_by_what_else_the_program_finds_out() {
    for by in ["it enables", "it asks", "a copy was wrong", "its pools"] {
        let mut process = Process::new(Fake { faults: [((0, 1), Fault::Hang)].into(), ..Fake::new() });
        process.driver.primaries.insert(1);
        assert_eq!(process.enable(0, 1), 217);
        assert!(process.access.is_hidden(&process.driver, 0, 1, None));
        process.driver.faults.clear();
        assert_eq!(process.enable(0, 1), 217, "it has not ended");
        process.driver.hung.borrow_mut().clear();
        process.access.lock().asked.clear();
        match by {
            "it enables" => {}
            "it asks" => assert!(!process.access.is_hidden(&process.driver, 0, 1, None)),
            "a copy was wrong" => assert_eq!(process.access.verify_again(&process.driver, [0, 1]), Some(true)),
            _ => {
                let on = Circumstances { contexts: [context(0), context(1)], ..Circumstances::default() };
                let copy = || process.copy_on(pooled(0), pooled(1), ENOUGH, on);
                assert!((0..100).any(|_| copy() == Some(Path::Direct)));
            }
        }
        assert_eq!((process.enable(0, 1), process.access.blocks()), (0, false), "{by}");
    }
}

#[test]
fn consider_copy_that_was_late_in_use_is_staged_until_it_is_judged_again() {
    let mut process = Process::new(Fake { faults: [((0, 1), Fault::Hang)].into(), ..Fake::new() });
    process.access.configure(&Config { broken: Broken::Warn, ..Config::default() });
    assert_eq!(process.enable(0, 1), 0);
    process.staged(0, 1, Why::BrokenInUse);
    process.driver.busy.set(true);
    (0..4).for_each(|_| process.staged(0, 1, Why::BrokenInUse));
    process.driver.busy.set(false);
    process.driver.faults.clear();
    process.driver.hung.borrow_mut().clear();
    assert!((0..10_000).any(|_| process.copy(0, 1, ENOUGH) == Path::Direct));
}

#[test]
fn consider_copy_that_was_late_while_copies_through_the_host_were_too_is_undecided() {
    let process = Process::new(Fake { faults: [((0, 1), Fault::HangAndHost)].into(), ..Fake::new() });
    process.staged(0, 1, Why::Busy);
    assert_eq!(process.access.pair_state(0, 1).verification, None);
    assert_eq!(process.enable(0, 1), 0, "what is undecided is left to the program");
}

#[test]
fn consider_copy_that_was_late_nothing_is_asked_of_a_context_that_is_gone() {
    let mut process = Process::new(Fake { faults: [((0, 1), Fault::Hang)].into(), ..Fake::new() });
    process.staged(0, 1, Why::Broken);
    process.driver.faults.clear();
    process.driver.ids.borrow_mut().insert(context(0), 2);
    process.access.forget_all_memory();
    assert!((0..10_000).any(|_| process.copy(0, 1, ENOUGH) == Path::Direct), "its streams are gone with it");
}

#[test]
fn consider_no_hardware_path_is_staged() {
    let process = Process::new(Fake { no_path: [(0, 1), (1, 0)].into(), ..Fake::new() });
    process.staged(0, 1, Why::NoPath);
    process.staged(0, 1, Why::NoPath);
    let one_way = Process::new(Fake { no_path: [(0, 1)].into(), ..Fake::new() });
    assert_eq!(one_way.copy(0, 1, ENOUGH), Path::Direct);
    assert_eq!(*one_way.driver.enabled.borrow(), [(context(1), context(0))].into());
}

#[test]
fn view_of_a_pair_that_we_enabled_is_the_programs_own() {
    let process = Process::new(Fake::new());
    process.copy(0, 1, ENOUGH);
    assert_eq!(process.disable(0, 1), 705, "never enabled by the program");
    assert_eq!(process.enable(0, 1), 0);
    assert_eq!(process.enable(0, 1), 704);
    assert_eq!(process.disable(0, 1), 0);
    assert_eq!(process.disable(0, 1), 705);
    assert_eq!(process.enable(0, 1), 0);
    assert_eq!(process.enable(1, 0), 0, "each direction for itself");
    assert_eq!(process.copy(0, 1, 4), Path::Direct);
    assert_eq!(process.driver.disables.get(), 0, "graphs may need it");
}

#[test]
fn view_nothing_is_enabled_while_the_program_disables() {
    let process = Process::new(Fake::new());
    // The contexts are known, and nothing is enabled: the function is called.
    process.copy(0, 1, 4);
    process.driver.current.set(context(0));
    assert_eq!(process.access.disabling(&process.driver, context(1)), None);
    process.staged(0, 1, Why::Busy);
    assert!(process.driver.enabled.borrow().is_empty());
    let ret = process.access.disabled(&process.driver, context(1), Code::PEER_ACCESS_NOT_ENABLED, None);
    assert_eq!(ret, Code::PEER_ACCESS_NOT_ENABLED);
    assert_eq!(process.copy(0, 1, 2 * ENOUGH), Path::Direct);
    assert_eq!(process.disable(0, 1), 705);
    assert_eq!(process.driver.disables.get(), 0);
}

#[test]
fn view_thread_that_ends_while_it_disables_keeps_nobody_from_enabling() {
    let process = Process::new(Fake::new());
    process.copy(0, 1, 4);
    std::thread::scope(|scope| scope.spawn(|| process.access.disablings.begins()).join()).unwrap();
    assert_eq!(process.copy(0, 1, ENOUGH), Path::Direct);
}

#[test]
fn view_program_that_disables_keeps_fast_copies() {
    let process = Process::new(Fake::new());
    assert_eq!((process.enable(0, 1), process.enable(0, 1)), (0, 704));
    assert_eq!(process.copy(0, 1, ENOUGH), Path::Direct);
    assert_eq!(process.copy(0, 1, ENOUGH), Path::Direct);
    assert_eq!((process.disable(0, 1), process.disable(0, 1)), (0, 705));
    assert_eq!(process.copy(0, 1, ENOUGH), Path::Direct);
    assert_eq!((process.enable(0, 1), process.enable(0, 1)), (0, 704));
}

#[test]
fn view_access_app_leaves_everything_to_the_program() {
    let process = Process::configured(Fake::new(), &Config { access: config::Access::App, ..Config::default() });
    process.staged(0, 1, Why::NotEnabled);
    assert_eq!(process.enable(0, 1), 0);
    assert_eq!(process.copy(0, 1, ENOUGH), Path::Direct);
    assert_eq!(process.disable(0, 1), 0);
    process.staged(0, 1, Why::NotEnabled);
    assert_eq!((process.driver.enables.get(), process.driver.disables.get()), (1, 1), "the program's");
}

#[test]
fn on_context_created_where_the_driver_has_no_path_that_is_why_copies_are_staged_whoever_enables_access() {
    for access in [config::Access::Auto, config::Access::App] {
        let driver = Fake { no_path: [(0, 1), (1, 0), (2, 0)].into(), ..Fake::new() };
        let process = Process::configured(driver, &Config { access, ..Config::default() });
        (0..3).for_each(|device| process.access.on_context_created(&process.driver, device));
        process.staged(0, 1, Why::NoPath);
        let one_way = process.copy(0, 2, ENOUGH);
        let is_left = access == config::Access::App;
        assert_eq!(
            one_way,
            if is_left { Path::Staged(Why::NotEnabled) } else { Path::Direct },
            "a direction is enough"
        );
    }
}

/// A process on a machine whose path from device 0 to device 1 loses data.
fn broken(config: &Config) -> Process {
    Process::configured(Fake { faults: [((0, 1), Fault::Drop)].into(), ..Fake::new() }, config)
}

#[test]
fn admit_broken_pair_is_refused_and_hidden_before_anything_is_enabled() {
    for access in [config::Access::Auto, config::Access::App] {
        for (from, to) in [(0, 1), (1, 0)] {
            let process = broken(&Config { access, ..Config::default() });
            assert_eq!(process.enable(from, to), 217);
            assert_eq!(process.driver.enables.get(), 0, "the harmless call is not counted here");
            assert_eq!(process.disable(from, to), 705);
            process.staged(from, to, Why::Broken);
            for pair in [[0, 1], [1, 0]] {
                assert!(process.access.is_hidden(&process.driver, pair[0], pair[1], None));
            }
            let mapped = Grants::OfMapped { address: mapped(0), bytes: 4 };
            for of in [Grants::OfPool(pool(0)), mapped] {
                assert_eq!(process.access.refused(&process.driver, of, &[0, 1]), Some(Code(101)));
                assert_eq!(process.access.refused(&process.driver, of, &[0, 2]), None);
            }
            assert_eq!((process.enable(0, 2), process.enable(2, 3)), (0, 0), "other pairs are healthy");
        }
    }
}

#[test]
fn admit_healthy_pair_is_verified_once_and_the_program_gets_what_it_asks_for() {
    let process = Process::new(Fake::new());
    assert_eq!(process.enable(0, 1), 0);
    let used = process.driver.next.get();
    assert_eq!((process.enable(1, 0), process.disable(0, 1), process.enable(0, 1)), (0, 0, 0));
    assert_eq!(process.driver.next.get(), used, "no more memory was taken");
    assert_eq!(process.access.pair_state(0, 1).verification, Some(Verification::Passed));
}

#[test]
fn admit_rights_to_memory_of_a_broken_pair_are_refused_before_they_are_given() {
    for of in [Grants::OfPool(pool(0)), Grants::OfMapped { address: mapped(0), bytes: 4 }] {
        let process = broken(&Config::default());
        let process = Process { driver: Fake { primaries: [0, 1].into(), ..process.driver }, ..process };
        assert_eq!(process.access.refused(&process.driver, of, &[0]), None, "its own device");
        assert_eq!(process.access.refused(&process.driver, of, &[1]), Some(Code(101)));
    }
}

#[test]
fn admit_question_is_answered_by_verifying_where_both_devices_have_a_context() {
    for (primaries, is_hidden) in [(vec![], false), (vec![1], true)] {
        let process = broken(&Config::default());
        let process =
            Process { driver: Fake { primaries: primaries.into_iter().collect(), ..process.driver }, ..process };
        assert_eq!(
            process.access.is_hidden(&process.driver, 0, 1, None),
            is_hidden,
            "device 0 has the current context"
        );
        assert!(!process.access.is_hidden(&process.driver, 0, 1, Some(1)), "the rank of the link is no access");
    }
}

fn passed() -> Verdict {
    Verdict::of(Part::Copies, Finding::Right)
}

fn failed(text: &str) -> Verdict {
    Verdict::of(Part::Copies, Finding::Wrong(text.to_owned()))
}

#[test]
fn admit_verdict_that_failed_holds_without_any_context() {
    let verdicts = [((0, 1), failed("lost")), ((1, 0), passed())].into();
    let process = Process::new(Fake { verdicts, ..Fake::new() });
    assert!(process.access.is_hidden(&process.driver, 1, 0, None));
    assert_eq!((process.enable(0, 1), process.enable(1, 0)), (217, 217));
}

#[test]
fn admit_verdict_that_passed_nothing_is_copied() {
    let verdicts = [((0, 1), passed()), ((1, 0), passed())].into();
    let process = Process::new(Fake { verdicts, faults: [((0, 1), Fault::Drop)].into(), ..Fake::new() });
    assert_eq!(process.enable(0, 1), 0, "the verdict says so");
}

#[test]
fn on_context_created_verdicts_are_read_once_and_before_the_program_enables_a_pair() {
    let verdicts = [((0, 1), passed()), ((1, 0), passed())].into();
    let process = Process::new(Fake { verdicts, ..Fake::new() });
    let make = |device| {
        if process.access.is_first_context(device) {
            process.access.on_context_created(&process.driver, device);
        }
        process.driver.readings.get()
    };
    assert_eq!([make(0), make(1), make(0), make(1)], [0, 2, 2, 2], "each direction, once there are two devices");
    assert_eq!((process.enable(0, 1), process.enable(1, 0)), (0, 0));
    assert_eq!(process.driver.readings.get(), 2);
    assert_eq!([make(2), process.enable(0, 2).cast_unsigned(), process.driver.readings.get()], [6, 0, 6]);
    process.access.configure(&Config::default());
    assert_eq!((process.enable(1, 2), process.driver.readings.get()), (0, 8), "options may make others of them");
    let hidden = Process::configured(Fake::new(), &Config { access: config::Access::Off, ..Config::default() });
    (0..2).for_each(|device| hidden.access.on_context_created(&hidden.driver, device));
    assert!(hidden.driver.readings.get() == 0 && !process.access.is_first_context(-1));
}

#[test]
fn on_context_created_pair_that_failed_before_says_so_of_its_first_copy_and_of_those_that_the_program_leaves_staged() {
    let (app, off) = (config::Access::App, Verify::Off);
    let (failed_before, not_enabled) = (Path::Staged(Why::Broken), Path::Staged(Why::BrokenNotEnabled));
    for (config, verdict, few, enough) in [
        (Config::default(), failed("lost"), failed_before, failed_before),
        (Config::default(), passed(), Path::Staged(Why::NotYetWorth), Path::Direct),
        (Config { access: app, ..Config::default() }, failed("lost"), not_enabled, not_enabled),
        (Config { access: app, verify: off, ..Config::default() }, failed("lost"), not_enabled, not_enabled),
        (Config { verify: off, ..Config::default() }, failed("lost"), Path::Staged(Why::NotYetWorth), Path::Direct),
    ] {
        let process = Process::configured(Fake { verdicts: [((1, 0), verdict)].into(), ..Fake::new() }, &config);
        (0..2).for_each(|device| process.access.on_context_created(&process.driver, device));
        assert_eq!([process.copy(0, 1, 1), process.copy(0, 1, ENOUGH)], [few, enough], "{config:?}");
    }
}

#[test]
fn admit_undecided_pair_is_left_to_the_program() {
    let busy = broken(&Config::default());
    busy.driver.busy.set(true);
    let no_memory = Fake { mapping: std::cell::Cell::new(Code(2)), ..broken(&Config::default()).driver };
    for process in [busy, Process::new(no_memory)] {
        assert_eq!((process.enable(0, 1), process.access.pair_state(0, 1).verification), (0, None));
    }
}

#[test]
fn admit_question_before_there_are_contexts_is_asked_again() {
    let mut process = broken(&Config::default());
    assert!(!process.access.is_hidden(&process.driver, 0, 1, None));
    process.driver.primaries.insert(1);
    assert!(process.access.is_hidden(&process.driver, 0, 1, None));
}

#[test]
fn question_about_a_verified_pair_is_answered_from_memory_until_a_pair_is_blocked() {
    let process = Process::new(Fake { primaries: [1].into(), ..Fake::new() });
    let access = &process.access;
    assert!(!access.is_shown(0, 1), "nothing is verified");
    assert!(!access.is_hidden(&process.driver, 0, 1, None));
    assert!(access.is_shown(0, 1) && !access.is_shown(0, 2) && !access.is_shown(-1, 1) && !access.is_shown(0, 64));
    access.on_process_restored(&process.driver);
    assert!(!access.is_shown(0, 1) && !access.is_hidden(&process.driver, 0, 1, None) && access.is_shown(0, 1));
    access.configure(&Config { access: config::Access::Off, ..Config::default() });
    assert!(!access.is_shown(0, 1) && access.is_shown(0, 0) && access.is_hidden(&process.driver, 0, 1, None));
    let broken = broken(&Config::default());
    assert!(!broken.access.is_hidden(&broken.driver, 0, 1, None));
    assert!(!broken.access.is_shown(0, 1), "it could not be verified");
}

#[test]
fn admit_question_that_cannot_be_decided_is_not_verified_each_time() {
    let process = Process::new(Fake { primaries: [1].into(), mapping: std::cell::Cell::new(Code(2)), ..Fake::new() });
    assert!(!process.access.is_hidden(&process.driver, 0, 1, None));
    let used = process.driver.next.get();
    for _ in 0..10 {
        assert!(!process.access.is_hidden(&process.driver, 0, 1, None));
    }
    assert_eq!(process.driver.next.get(), used, "nothing was tried again");
}

#[test]
fn admit_is_left_out_as_options_say() {
    let warn = Config { broken: Broken::Warn, ..Config::default() };
    for (config, verification) in
        [(warn, Some(Verification::Broken)), (Config { verify: Verify::Off, ..Config::default() }, None)]
    {
        let process = broken(&config);
        assert_eq!(process.enable(0, 1), 0);
        assert!(!process.access.is_hidden(&process.driver, 0, 1, None));
        assert_eq!(process.access.pair_state(0, 1).verification, verification);
    }
}

#[test]
fn admit_slower_pair_is_the_programs_to_enable() {
    let process = Process::new(Fake { faults: [((0, 1), Fault::Slow(3))].into(), ..Fake::new() });
    assert_eq!(process.enable(0, 1), 0);
    assert_eq!(process.access.pair_state(0, 1).verification, Some(Verification::Slower));
}

#[test]
fn verify_again_says_whether_data_arrives_and_a_pair_that_passed_stays() {
    let mut process = Process::new(Fake::new());
    let verify_again = |process: &Process| process.access.verify_again(&process.driver, [0, 1]);
    assert_eq!(process.enable(0, 1), 0);
    process.driver.faults = [((0, 1), Fault::Slow(3))].into();
    assert_eq!(verify_again(&process), Some(true), "speed is no matter");
    assert_eq!(process.access.pair_state(0, 1).verification, Some(Verification::Passed));
    process.driver.faults = [((0, 1), Fault::Drop)].into();
    assert_eq!(verify_again(&process), Some(true), "not at once");
    process.access.lock().verified_again.clear();
    process.driver.busy.set(true);
    assert_eq!((verify_again(&process), process.access.lock().verified_again.len()), (None, 1));
    process.driver.busy.set(false);
    process.access.lock().verified_again.clear();
    assert_eq!(verify_again(&process), Some(false));
    assert_eq!(process.access.pair_state(0, 1).verification, Some(Verification::Broken));
    process.driver.faults.clear();
    assert_eq!(verify_again(&process), Some(false), "it is not tried again");
}

/// A process in a virtual machine, whose path from device 0 to device 1 hangs.
fn in_a_virtual_machine(fake: Fake) -> Process {
    Process::new(Fake { hypervisor: Some("QEMU".to_owned()), faults: [((0, 1), Fault::Hang)].into(), ..fake })
}

#[test]
fn risk_pair_is_neither_verified_nor_enabled_without_a_verdict() {
    let process = in_a_virtual_machine(Fake::new());
    process.staged(0, 1, Why::Unverified);
    assert_eq!(process.driver.hung.borrow().len(), 0, "nothing was tried");
    assert!(!process.access.is_hidden(&process.driver, 0, 1, None));
    assert_eq!(process.enable(2, 3), 0, "left to the program");
    assert_eq!(process.driver.hung.borrow().len(), 0);
}

#[test]
fn risk_pair_with_a_verdict_or_joined_by_nvlink_is_as_anywhere() {
    let verdicts = [((0, 1), failed("hung"))].into();
    let process = in_a_virtual_machine(Fake { verdicts, ..Fake::new() });
    assert_eq!(process.enable(0, 1), 217);
    let verdicts = [((2, 3), passed()), ((3, 2), passed())].into();
    let process = in_a_virtual_machine(Fake { verdicts, linked: [(4, 5), (5, 4)].into(), ..Fake::new() });
    assert_eq!(process.copy(2, 3, ENOUGH), Path::Direct);
    assert_eq!(process.copy(4, 5, ENOUGH), Path::Direct);
}

#[test]
fn view_broken_pair_that_the_program_enabled_stays_enabled_and_no_copy_is_direct() {
    let process = broken(&Config { broken: Broken::Warn, ..Config::default() });
    assert_eq!(process.enable(0, 1), 0);
    for bytes in [1, ENOUGH, 1] {
        assert_eq!(process.copy(0, 1, bytes), Path::Staged(Why::BrokenInUse));
    }
    assert_eq!(process.access.pair_state(0, 1).path, Path::Staged(Why::BrokenInUse));
    assert_eq!(process.driver.disables.get(), 0);
    assert_eq!(process.disable(0, 1), 0);
    // Another thread may enable it again at any time.
    process.staged(0, 1, Why::BrokenInUse);
    let copy = Circumstances { keeps_path: true, ..Circumstances::default() };
    assert_eq!(process.copy_on(memory_of(0), memory_of(1), 4, copy), Some(Path::Staged(Why::Broken)), "a graph's");
}

/// Memory whose address another thread has got since is not what is remembered of it; nor is it needed that anything is.
#[test]
fn blocked_pair_the_driver_is_asked_about_each_copy() {
    let process = broken(&Config { broken: Broken::Warn, ..Config::default() });
    assert_eq!(process.enable(0, 1), 0);
    let copy = Memcpy::linear(memory_of(0), memory_of(1), 4);
    for address in [copy.src, copy.dst] {
        let (place, range) = process.access.place_and_range(&process.driver, address).unwrap();
        let host = Place { kind: Kind::Host, owner: 0, ..place };
        process.access.cache.insert(address, (range.start, range.end - range.start), host, process.access.cache.now());
    }
    process.staged(0, 1, Why::BrokenInUse);
    let asked = process.driver.queries.get();
    process.staged(0, 1, Why::BrokenInUse);
    assert_eq!(process.driver.queries.get(), asked + 2);
    // Another thread frees memory after the copy was decided.
    process.access.forget_all_memory();
    assert!(process.access.contexts_of(&process.driver, &copy).is_some(), "without them it could not be staged");
    assert!(process.access.decided(&copy).is_none());
}

#[test]
fn blocked_pair_that_was_verified_in_use_or_anew_is_staged_from_then_on() {
    let mut process = Process::new(Fake::new());
    process.copy(0, 1, ENOUGH);
    assert_eq!(process.copy(0, 1, 4), Path::Direct, "enabled by us");
    process.driver.faults = [((0, 1), Fault::Drop)].into();
    assert_eq!(process.access.verify_again(&process.driver, [0, 1]), Some(false));
    process.staged(0, 1, Why::BrokenInUse);
    // While the devices are busy, what the program asks for it gets; once they are not, it is found out.
    let mut process = broken(&Config::default());
    process.driver.busy.set(true);
    assert_eq!(process.enable(0, 1), 0);
    process.driver.busy.set(false);
    process.driver.primaries.insert(1);
    for _ in 0..3 {
        process.copy(0, 1, ENOUGH);
    }
    process.staged(0, 1, Why::BrokenInUse);
}

/// Memory of a pool and mapped memory that the other device may access, in spite of everything; and what it was refused.
#[test]
fn blocked_pair_memory_with_rights_is_staged_if_cuda_would_copy_or_refuse() {
    let off = Config { access: config::Access::Off, ..Config::default() };
    let regular = |process: &Process, src: u64, dst: u64| {
        let copy = Memcpy::linear(src, dst, 4);
        process.driver.current.set(context(0));
        let traffic = process.access.consider(&process.driver, &copy, Circumstances::default());
        traffic.map(|traffic| traffic.path)
    };
    let process = Process::configured(Fake::new(), &off);
    let on = Circumstances::default();
    assert_eq!(regular(&process, memory_of(0), pooled(1)), Some(Path::Staged(Why::Pool)), "CUDA refuses what it would");
    assert_eq!(process.access.refused(&process.driver, Grants::OfPool(pool(1)), &[0]), Some(Code::INVALID_DEVICE));
    assert_eq!(regular(&process, memory_of(0), pooled(1)), Some(Path::Staged(Why::Pool)), "denied by the user");
    assert_eq!(
        process.copy_on(memory_of(0), pooled(1), 4, on),
        Some(Path::Staged(Why::Denied)),
        "a peer copy it stages"
    );
    process.driver.grant(pool(1), 0);
    assert_eq!(process.copy_on(memory_of(0), pooled(1), 4, on), Some(Path::Staged(Why::DeniedInUse)));
    assert_eq!(process.copy_on(memory_of(0), mapped(1), 4, on), Some(Path::Staged(Why::Denied)));
    let process = broken(&Config::default());
    assert_eq!(process.enable(0, 1), 217);
    assert_eq!(regular(&process, memory_of(0), pooled(1)), Some(Path::Staged(Why::Pool)));
    assert_eq!(process.access.refused(&process.driver, Grants::OfPool(pool(1)), &[0]), Some(Code::INVALID_DEVICE));
    assert_eq!(
        regular(&process, memory_of(0), pooled(1)),
        Some(Path::Staged(Why::BrokenInUse)),
        "but for us it would not"
    );
    let process = Process::configured(Fake { mapped: [(mapped(1), 0)].into(), ..Fake::new() }, &off);
    assert_eq!(process.copy_on(memory_of(0), mapped(1), 4, on), Some(Path::Staged(Why::DeniedInUse)));
}

/// Another thread may destroy a context of its own while the copy is staged; it resets no device beside a copy there.
#[test]
fn memory_of_no_context_is_staged_in_a_primary_context_rather_than_in_one_that_another_thread_made() {
    let process = Process::new(Fake { primaries: [1].into(), ..Fake::new() });
    process.copy_on(memory_of(0), memory_of(17), 4, Circumstances::default());
    process.driver.current.set(context(0));
    for there in [pooled(1), mapped(1)] {
        let copy = Memcpy::linear(memory_of(0), there, 4);
        let contexts = process.access.contexts_of(&process.driver, &copy).unwrap();
        assert_eq!(contexts.map(|(handle, _)| handle), [context(0), context(1)]);
    }
}

/// Memory outlives its pool, of which nothing can be asked any more; and there may be more contexts than are told apart.
#[test]
fn blocked_pair_memory_that_nobody_holds_is_staged() {
    let process = broken(&Config::default());
    assert_eq!(process.enable(0, 1), 217);
    let staged = |src, dst| {
        let copy = Memcpy::linear(src, dst, 4);
        assert!(process.access.contexts_of(&process.driver, &copy).is_some());
        assert_eq!(process.copy_on(src, dst, 4, Circumstances::default()), Some(Path::Staged(Why::BrokenInUse)));
    };
    assert_eq!(
        process.copy_on(memory_of(0), memory_of(1), 4, Circumstances::default()),
        Some(Path::Staged(Why::Broken))
    );
    process.access.on_pool_destroy(pool(1));
    staged(memory_of(0), pooled(1));
    staged(pooled(1), memory_of(0));
    assert_eq!(
        process.copy_on(memory_of(2), pooled(1), 4, Circumstances::default()),
        Some(Path::Unknown),
        "not blocked"
    );
    process.access.on_pool_destroy_returned(pool(1), false);
    assert_eq!(
        process.copy_on(memory_of(0), pooled(1), 4, Circumstances::default()),
        Some(Path::Staged(Why::Broken)),
        "it was not destroyed"
    );
    for number in 2..140 {
        process.copy(number, 0, 4);
    }
    staged(memory_of(144), memory_of(145));
}

/// One thread destroys a pool, and before it has said so another has made one with the same handle.
#[test]
fn pool_whose_handle_is_given_anew_is_there() {
    let process = Process::new(Fake::new());
    process.access.on_pool_destroy(pool(1));
    process.access.on_pool_created(&process.driver, pool(1), Some(1));
    process.access.on_pool_access_set(pool(1), [(0, true)].into_iter());
    process.access.on_pool_destroy_returned(pool(1), true);
    assert!(process.access.lock().pools.is_granted_by_program(pool(1), 0));
    assert_ne!(process.copy_on(memory_of(0), pooled(1), 4, Circumstances::default()), Some(Path::Unknown));
}

#[test]
fn contexts_that_are_gone_their_numbers_are_given_anew_meanwhile() {
    let access: &Access = Box::leak(Box::new(Access::new()));
    let driver = Fake::new();
    let [one, other] = [0, 1].map(|device| access.context_number(context(device), 1, device as i32).unwrap());
    // The handle of a context that was destroyed is another's now, which gets the number, and access, while this thread still looks.
    driver.ids.borrow_mut().insert(context(1), 2);
    driver.meanwhile.set(Some(Box::new(move || {
        assert_eq!(access.context_number(context(1), 2, 1), Some(other));
        access.lock().link_mut(one, other).program = true;
    })));
    access.on_contexts_ended(&Ended::new(&driver, None, None));
    assert!(access.lock().link(one, other).is_some_and(|link| link.program));
}

#[test]
fn contexts_that_are_gone_lose_their_peers() {
    let process = Process::new(Fake::new());
    process.copy(0, 1, ENOUGH);
    assert_eq!(process.enable(0, 1), 0);
    // The primary context of device 1 is reset: the handle stays, the id does not, and the driver has no links.
    process.driver.ids.borrow_mut().insert(context(1), 2);
    process.driver.enabled.borrow_mut().clear();
    process.access.on_contexts_ended(&Ended::new(&process.driver, None, None));
    assert_eq!(process.disable(0, 1), 705);
    assert_eq!(process.enable(0, 1), 0);
    assert_eq!(process.copy(0, 1, 4), Path::Direct);
}

#[test]
fn limit_a_pair_beyond_it_stays_staged_and_says_limit() {
    let process = Process::new(Fake { limit: 2, no_path: [(1, 0), (2, 0), (3, 0)].into(), ..Fake::new() });
    for peer in 1..=2 {
        assert_eq!(process.copy(0, peer, ENOUGH), Path::Direct);
    }
    for _ in 0..100 {
        process.staged(0, 3, Why::Limit);
    }
    assert_eq!(process.driver.disables.get(), 0, "first come, first served");
    assert_eq!((process.copy(0, 1, 4), process.copy(0, 2, 4)), (Path::Direct, Path::Direct));
}

#[test]
fn limit_of_one_side_the_other_direction_will_do() {
    let process = Process::new(Fake { limit: 1, ..Fake::new() });
    for peer in 1..=5 {
        assert_eq!(process.copy(0, peer, ENOUGH), Path::Direct);
    }
    assert_eq!(process.driver.disables.get(), 0);
}

/// A process of 12 devices all of which reach each other.
fn many() -> Process {
    Process::new(Fake { devices: 12, ..Fake::new() })
}

#[test]
fn limit_of_few_devices_program_may_enable_all_peers() {
    // The others do not matter: they reach nobody.
    let apart = (0..9).flat_map(|one| (9..16).flat_map(move |other| [(one, other), (other, one)])).collect();
    for driver in [Fake { devices: 9, ..Fake::new() }, Fake { no_path: apart, ..Fake::new() }] {
        let process = Process::new(driver);
        (1..9).for_each(|peer| assert_eq!(process.copy(0, peer, ENOUGH), Path::Direct));
        (1..9).for_each(|peer| assert_eq!(process.enable(0, peer), 0));
        (1..9).for_each(|peer| assert_eq!(process.enable(peer, 0), 0));
    }
}

#[test]
fn limit_of_many_devices_half_of_the_places_are_the_programs() {
    let process = many();
    (1..5).for_each(|peer| assert_eq!(process.copy(0, peer, ENOUGH), Path::Direct));
    for peer in [5, 6] {
        // From the other side there is room.
        assert_eq!(process.copy(0, peer, ENOUGH), Path::Direct);
    }
    let ours = |from| process.driver.enabled.borrow().iter().filter(|link| link.0 == context(from)).count();
    assert_eq!((ours(0), ours(5)), (4, 1));
    (8..12).for_each(|peer| assert_eq!(process.enable(0, peer), 0));
    assert_eq!(process.enable(0, 7), 711, "as the ninth");
    assert_eq!(process.enable(0, 1), 0, "it has that place");
    assert_eq!(process.disable(0, 11), 0);
    assert_eq!(process.enable(0, 7), 0);
}

#[test]
fn limit_of_many_devices_pair_that_is_full_on_both_sides_is_staged_unverified() {
    let process = many();
    for one in [0, 1] {
        (2..6).for_each(|peer| assert_eq!(process.copy(one, peer, ENOUGH), Path::Direct));
    }
    let taken = process.driver.next.get();
    for _ in 0..100 {
        process.staged(0, 1, Why::Limit);
    }
    assert_eq!(process.driver.next.get(), taken, "nothing is verified that is not enabled");
    assert_eq!((process.enable(0, 1), process.copy(0, 1, ENOUGH)), (0, Path::Direct));
}

#[test]
fn limit_of_many_devices_no_more_than_half_stays_that_the_program_disables() {
    let process = many();
    for peer in 1..9 {
        assert_eq!(process.enable(0, peer), 0);
        (0..2).for_each(|_| assert_eq!(process.copy(0, peer, ENOUGH), Path::Direct));
    }
    (1..9).for_each(|peer| assert_eq!(process.disable(0, peer), 0));
    assert_eq!(process.driver.enabled.borrow().len(), 4);
    (8..12).for_each(|peer| assert_eq!(process.enable(0, peer), 0));
}

#[test]
fn captures_nothing_is_verified_until_they_end() {
    let process = Process::new(Fake::new());
    let captured = Circumstances { thread_captures: true, ..Circumstances::default() };
    let copy = || process.copy_on(memory_of(0), memory_of(1), ENOUGH, captured).unwrap();
    assert_eq!(copy(), Path::Staged(Why::Capturing));
    assert_eq!((copy(), process.driver.enables.get()), (Path::Staged(Why::Capturing), 0));
    assert_eq!(process.copy(0, 1, ENOUGH), Path::Direct);
    assert_eq!((copy(), process.driver.enables.get()), (Path::Direct, 2));
}

#[test]
fn pools_memory_is_granted_after_its_own_verification() {
    let process = Process::new(Fake::new());
    let copy = |src, dst, contexts| {
        process.copy_on(src, dst, ENOUGH, Circumstances { contexts, ..Circumstances::default() }).unwrap()
    };
    let contexts = [context(0), context(1)];
    assert_eq!(copy(pooled(0), pooled(1), contexts), Path::Direct);
    assert_eq!(*process.driver.granted.borrow(), [(pool(0), 1), (pool(1), 0)].into());
    assert_eq!(copy(pooled(1), pooled(0), contexts), Path::Direct, "granted already");
    assert_eq!(process.driver.enables.get(), 0);
    assert_eq!(copy(memory_of(2), pooled(3), [context(2), context(3)]), Path::Direct);
    assert!(process.driver.granted.borrow().contains(&(pool(3), 2)));

    let left = Process::configured(Fake::new(), &Config { grants_pools: false, ..Config::default() });
    let on = Circumstances { contexts, ..Circumstances::default() };
    assert_eq!(left.copy_on(pooled(0), pooled(1), ENOUGH, on), Some(Path::Staged(Why::Pool)));
}

#[test]
fn pools_nothing_is_granted_while_the_program_takes_a_right_away() {
    let process = Process::new(Fake::new());
    let contexts = Circumstances { contexts: [context(0), context(1)], ..Circumstances::default() };
    let copy = || process.copy_on(pooled(0), memory_of(1), ENOUGH, contexts);
    process.access.disablings.begins();
    assert!(!process.access.keeps_right(pool(0), 1), "it is forwarded");
    (0..4).for_each(|_| assert_ne!(copy(), Some(Path::Direct)));
    assert!(process.driver.granted.borrow().is_empty());
    process.access.disablings.mark_over();
    assert!((0..8).any(|_| copy() == Some(Path::Direct)));
    assert!(process.access.keeps_right(pool(0), 1));
}

#[test]
fn pools_rights_that_an_earlier_pool_has_left_are_ours_still() {
    let process = Process::new(Fake::new());
    let contexts = Circumstances { contexts: [context(0), context(1)], ..Circumstances::default() };
    assert_eq!(process.copy_on(pooled(0), memory_of(1), ENOUGH, contexts), Some(Path::Direct));
    process.access.on_pool_destroy(pool(0));
    process.access.on_pool_destroy_returned(pool(0), true);
    // Another right of the driver's that the program may see: no right of ours was left to that device.
    process.driver.grant(pool(0), 2);
    process.access.on_pool_created(&process.driver, pool(0), Some(0));
    assert!(process.access.has_granted(pool(0), 1) && !process.access.has_granted(pool(0), 2));
    process.driver.granted.borrow_mut().clear();
    process.access.on_pool_created(&process.driver, pool(0), Some(0));
    assert!(!process.access.has_granted(pool(0), 1));
}

#[test]
fn pools_of_other_devices_are_known_after_a_reset() {
    let process = Process::new(Fake::new());
    let contexts = Circumstances { contexts: [context(0), context(1)], ..Circumstances::default() };
    process.access.on_pool_created(&process.driver, pool(2), Some(2));
    process.access.on_pool_created(&process.driver, pool(3), Some(3));
    for pool in [pool(2), pool(3)] {
        process.access.on_pool_destroy(pool);
        process.access.on_pool_destroy_returned(pool, true);
    }
    process.access.on_pool_access_set(pool(1), [(2, true)].into_iter());
    assert_eq!(process.copy_on(pooled(0), pooled(1), ENOUGH, contexts), Some(Path::Direct));
    process.access.on_contexts_ended(&Ended::new(&process.driver, Some(3), None));
    assert!(process.access.keeps_right(pool(0), 1) && process.access.has_granted(pool(1), 0));
    assert!(!process.access.has_granted(pool(1), 2));
    let is_gone = |of| process.access.lock().pools.is_gone(pool(of));
    assert_eq!([is_gone(2), is_gone(3)], [true, false], "what a reset has ended may be another pool soon");
    process.access.on_contexts_ended(&Ended::new(&process.driver, Some(0), None));
    assert!(!process.access.keeps_right(pool(0), 1) && process.access.keeps_right(pool(1), 0));
}

#[test]
fn pools_broken_path_is_not_granted() {
    let process = Process::new(Fake { faults: [((0, 1), Fault::Drop)].into(), ..Fake::new() });
    let on = Circumstances { contexts: [context(0), context(1)], ..Circumstances::default() };
    assert_eq!(process.copy_on(pooled(0), pooled(1), ENOUGH, on), Some(Path::Staged(Why::Broken)));
    assert!(process.driver.granted.borrow().is_empty());
}

#[test]
fn mapped_memory_is_left_as_it_is() {
    let process = Process::new(Fake { mapped: [(mapped(0), 1)].into(), ..Fake::new() });
    let copy = |src, dst| process.copy_on(src, dst, ENOUGH, Circumstances::default());
    assert_eq!(copy(mapped(0), memory_of(1)), Some(Path::Direct));
    assert_eq!(copy(mapped(0), memory_of(2)), Some(Path::Staged(Why::Mapped)));
    assert_eq!(process.driver.enables.get(), 0);
}

#[test]
fn denied_by_uuid_and_address_is_denied_by_ordinal() {
    let uuid = |ordinal: i32| GpuName::Uuid(format!("gpu-00000000-0000-0000-0000-{ordinal:012}"));
    let address = GpuName::BusId("0000:02:00.0".to_owned());
    let denied = vec![Denied { device: uuid(0), peer: uuid(1) }, Denied { device: address, peer: GpuName::Ordinal(0) }];
    let process = Process::configured(Fake::new(), &Config { denied, ..Config::default() });
    let hidden = |device, peer| process.access.is_hidden(&process.driver, device, peer, None);
    assert_eq!([hidden(0, 1), hidden(1, 0), hidden(2, 0), hidden(0, 2)], [true, false, true, false]);
    process.staged(0, 1, Why::Denied);
}

#[test]
fn hidden_pairs_are_seen_by_nobody() {
    let denied = |device, peer| Denied { device: GpuName::Ordinal(device), peer: GpuName::Ordinal(peer) };
    let denied = vec![denied(0, 1), denied(1, 0)];
    for config in [Config { denied, ..Config::default() }, Config { access: config::Access::Off, ..Config::default() }]
    {
        let process = Process::configured(Fake::new(), &config);
        process.staged(0, 1, Why::Denied);
        assert_eq!((process.enable(0, 1), process.disable(0, 1)), (217, 705));
        let hidden = |peer| process.access.is_hidden(&process.driver, 0, peer, None);
        assert!(hidden(1));
        let refused = |device| process.access.refused(&process.driver, Grants::OfPool(pool(0)), &[0, device]);
        assert_eq!(refused(1), Some(Code(101)));
        assert_eq!(
            process.access.refused(&process.driver, Grants::OfMapped { address: mapped(0), bytes: 4 }, &[1]),
            Some(Code(101))
        );
        let is_all = config.access == config::Access::Off;
        assert_eq!(hidden(2), is_all);
        assert_eq!(refused(2).is_some(), is_all);
        assert_eq!(process.enable(2, 3) == 217, is_all);
        assert_eq!(process.driver.enables.get() == 0, is_all);
        // The driver says what is wrong with a peer that lives no more: a flag would come first.
        process.driver.ids.borrow_mut().insert(context(1), 0);
        process.driver.current.set(context(0));
        assert_eq!(process.access.enabling(&process.driver, context(1), 0), None);
    }
}

#[test]
fn verdict_that_failed_on_either_direction_keeps_the_pair_blocked() {
    let failed = || failed("stores are lost");
    let blocked = Path::Staged(Why::Broken);
    let between_processes = || passed().updated(Verdict::of(Part::Ipc, Finding::Wrong("lost".to_owned())), false);
    for (verify, verdicts, path) in [
        (Verify::Full, vec![((0, 1), passed()), ((1, 0), passed())], Path::Direct),
        (Verify::Full, vec![((0, 1), passed()), ((1, 0), failed())], blocked),
        (Verify::Full, vec![((1, 0), failed())], blocked),
        (Verify::Full, vec![], Path::Direct),
        (Verify::Quick, vec![((1, 0), failed())], blocked),
        (Verify::Quick, vec![], Path::Direct),
        (Verify::Quick, vec![((0, 1), between_processes()), ((1, 0), passed())], Path::Direct),
        (Verify::Off, vec![((1, 0), failed())], Path::Direct),
    ] {
        let driver = Fake { verdicts: verdicts.into_iter().collect(), ..Fake::new() };
        let process = Process::configured(driver, &Config { verify, ..Config::default() });
        assert_eq!(process.copy(0, 1, ENOUGH), path);
        assert_eq!(process.driver.enables.get() == 0, path != Path::Direct);
    }
}

#[test]
fn probe_full_without_verdicts_what_quick_finds_holds() {
    for (verdict, path) in [(None, Path::Staged(Why::Broken)), (Some(passed()), Path::Staged(Why::Broken))] {
        let verdicts = verdict.into_iter().flat_map(|verdict| [((0, 1), verdict.clone()), ((1, 0), verdict)]).collect();
        let driver = Fake { verdicts, faults: [((0, 1), Fault::Drop)].into(), ..Fake::new() };
        let process = Process::configured(driver, &Config { verify: Verify::Full, ..Config::default() });
        assert_eq!(process.copy(0, 1, ENOUGH), path);
    }
}

#[test]
fn probe_off_pairs_are_trusted_untested() {
    let driver = Fake { faults: [((0, 1), Fault::Drop)].into(), ..Fake::new() };
    let process = Process::configured(driver, &Config { verify: Verify::Off, ..Config::default() });
    assert_eq!(process.copy(0, 1, ENOUGH), Path::Direct);
}

// ---- copies that name no devices ----

fn regular(src: u64, dst: u64) -> Memcpy<'static> {
    let named = Named::Pointer;
    Memcpy { src, dst, src_named: named, dst_named: named, bytes: 64, stream: None, shape: Shape::Linear }
}

/// The ends of a copy when nobody has asked, and then when somebody has.
fn between(process: &Process, src: u64, dst: u64) -> (Option<Between>, Between) {
    let copy = regular(src, dst);
    (process.access.between([copy.src, copy.dst]), process.access.ask_between(&process.driver, &copy))
}

#[test]
fn between_is_known_once_it_was_asked() {
    let process = Process::new(Fake::new());
    let [here, there, host] = [memory_of(0), memory_of(1), 0x7000];
    assert_eq!(between(&process, here, there), (None, Between::Devices));
    assert_eq!(between(&process, there, here), (Some(Between::Devices), Between::Devices));
    assert_eq!(between(&process, here, here + 64), (Some(Between::Others), Between::Others));
    assert_eq!(between(&process, pooled(0), there), (None, Between::Devices), "a pool's");
    assert_eq!(between(&process, host, here), (None, Between::Unknown));
    let queries = process.driver.queries.get();
    for (src, dst) in [(host, there), (here, host + 0x1000), (host, host)] {
        assert_eq!(process.access.between([src, dst]), Some(Between::Unknown), "what lies beside it too");
    }
    assert_eq!(process.driver.queries.get(), queries, "without a question");
    process.access.forget_all_memory();
    assert_eq!(process.access.between([here, there]), None);
}

#[test]
fn between_what_was_the_hosts_and_is_a_devices_is_found_out_when_it_is_asked_again() {
    let process = Process::new(Fake::new());
    let (here, there) = (memory_of(0), memory_of(1));
    process.driver.unknown_from.set(there);
    assert_eq!(between(&process, here, there), (None, Between::Unknown));
    process.driver.unknown_from.set(u64::MAX);
    assert_eq!(between(&process, here, there + 64), (Some(Between::Unknown), Between::Devices));
    assert_eq!(process.access.between([here, there]), Some(Between::Devices));
    // Peer copies never rest on what the driver did not know.
    process.driver.unknown_from.set(there);
    process.access.forget_all_memory();
    between(&process, here, there);
    process.driver.unknown_from.set(u64::MAX);
    assert_eq!(process.copy(0, 1, ENOUGH), Path::Direct);
}

// ---- Memory of other processes ----

/// The devices of a copy between two addresses, its path, and whether a regular copy is seen.
fn shared(process: &Process, src: u64, dst: u64) -> ([u8; 2], Path, Between) {
    let copy = Memcpy::linear(src, dst, ENOUGH);
    let between = process.access.ask_between(&process.driver, &copy);
    let traffic = process.access.consider(&process.driver, &copy, Circumstances::default()).unwrap();
    ([traffic.src, traffic.dst], traffic.path, between)
}

/// A handle has one number, however often it is opened, and the rest one together, of which nobody says that it is on one device.
#[test]
fn memory_of_other_processes_has_a_number_for_each_handle() {
    let process = Process::new(Fake::new());
    let open = |number: usize, handle: u8| {
        process.access.on_memory_opened(&process.driver, How::Ipc, opened(number), &[handle; 64]);
    };
    let direct = |pair| (pair, Path::Direct, Between::Devices);
    open(0, 1);
    open(1, 2);
    open(2, 1);
    assert_eq!(shared(&process, memory_of(0), opened(0) + 5), direct([0, REMOTE]));
    assert_eq!(shared(&process, opened(1), memory_of(0)), direct([REMOTE + 1, 0]));
    assert_eq!(shared(&process, opened(0), opened(1)), direct([REMOTE, REMOTE + 1]));
    assert_eq!(shared(&process, opened(2), opened(0)), ([REMOTE; 2], Path::SameDevice, Between::Others));
    for handle in 3..=200 {
        open(handle.into(), handle);
    }
    assert_eq!(shared(&process, opened(126), memory_of(3)), direct([REMOTE_LAST - 1, 3]));
    for number in [127, 200, 300] {
        assert_eq!(shared(&process, opened(number), opened(127)), direct([REMOTE_LAST; 2]), "{number}");
    }
    // Another handle's memory is where that was.
    open(0, 2);
    assert_eq!(shared(&process, memory_of(0), opened(0)), direct([0, REMOTE + 1]));
    assert_eq!(process.driver.enables.get(), 0);
}

/// CUDA accesses it, or nobody does.
#[test]
fn memory_of_other_processes_is_never_staged() {
    let denied = vec![Denied { device: GpuName::Ordinal(0), peer: GpuName::Ordinal(1) }];
    for config in [Config { denied, ..Config::default() }, Config { access: config::Access::Off, ..Config::default() }]
    {
        let process = Process::configured(Fake::new(), &config);
        process.access.on_memory_opened(&process.driver, How::Ipc, opened(0), &[1; 64]);
        let direct = ([0, REMOTE], Path::Direct, Between::Devices);
        assert_eq!(shared(&process, memory_of(0), opened(0)), direct);
        process.staged(0, 1, Why::Denied);
        assert_eq!(shared(&process, memory_of(0), opened(0)), direct);
    }
}

// ---- A change forgets what it concerns, and nothing else ----

/// A process that knows memory of contexts 0 to 3, and of a pool and mapped memory of device 1. Copies from 0 to 1, from 2 to 3, and from 0 to the pool and
/// the mapped memory are decided.
fn decided() -> Process {
    let app = Config { access: config::Access::App, ..Config::default() };
    let process = Process::configured(Fake::new(), &app);
    let copies = [
        (memory_of(0), memory_of(1)),
        (memory_of(2), memory_of(3)),
        (memory_of(0), pooled(1)),
        (memory_of(0), mapped(1)),
    ];
    for (src, dst) in copies {
        let _ = process.copy_on(src, dst, ENOUGH, Circumstances::default());
    }
    assert_eq!((are_decided(&process), are_known(&process)), ([true; 4], [true; 6]));
    process
}

fn are_decided(process: &Process) -> [bool; 4] {
    let copies = [
        (memory_of(0), memory_of(1)),
        (memory_of(2), memory_of(3)),
        (memory_of(0), pooled(1)),
        (memory_of(0), mapped(1)),
    ];
    copies.map(|(src, dst)| process.access.decided(&Memcpy::linear(src, dst, ENOUGH)).is_some())
}

fn are_known(process: &Process) -> [bool; 6] {
    let all = [memory_of(0), memory_of(1), memory_of(2), memory_of(3), pooled(1), mapped(1)];
    all.map(|address| process.access.known(address).is_some())
}

#[test]
fn forget_mappings_only_mapped_memory_is_forgotten() {
    let process = decided();
    assert!(process.access.forget_mappings());
    assert_eq!(are_known(&process), [true, true, true, true, true, false]);
    assert_eq!(are_decided(&process), [true, true, true, false]);
}

#[test]
fn on_context_ending_only_its_memory_is_forgotten() {
    let process = decided();
    assert!(process.access.on_context_ending(Some(context(2)), None));
    assert_eq!(are_known(&process), [true, true, false, true, true, true]);
    assert_eq!(are_decided(&process), [true, false, true, true]);
    assert!(process.access.on_context_ending(None, Some(1)));
    assert_eq!(are_known(&process), [true, false, false, true, false, false], "all that is on the device");
}

#[test]
fn on_contexts_ended_only_their_memory_is_forgotten() {
    let process = decided();
    process.driver.ids.borrow_mut().insert(context(3), 2);
    process.access.on_contexts_ended(&Ended::new(&process.driver, None, Some(context(3))));
    assert_eq!(are_known(&process), [true, true, true, false, true, true]);
    assert_eq!(are_decided(&process), [true, false, true, true]);
}

#[test]
fn on_pool_access_set_only_its_pairs_are_decided_anew() {
    let process = decided();
    process.access.on_pool_access_set(pool(2), [(0, true)].into_iter());
    assert_eq!(are_decided(&process), [true; 4], "another pool");
    process.access.on_pool_access_set(pool(1), [(0, true)].into_iter());
    assert_eq!(are_decided(&process), [true, true, false, true]);
    process.access.on_pool_destroy(pool(1));
    assert_eq!(are_known(&process), [true, true, true, true, false, true]);
}

#[test]
fn enabled_and_disabled_only_pairs_that_the_link_reaches_are_decided_anew() {
    let process = decided();
    assert_eq!(process.enable(2, 3), 0);
    assert_eq!(are_decided(&process), [true, false, true, true]);
    assert_eq!(process.copy(2, 3, ENOUGH), Path::Direct);
    assert_eq!(process.disable(2, 3), 0);
    assert_eq!(are_decided(&process), [true, false, true, true]);
    assert_eq!(process.copy(2, 3, ENOUGH), Path::Staged(Why::NotEnabled));
    // Memory of a pool is reached by whichever context of its device.
    assert_eq!(process.enable(1, 0), 0);
    assert_eq!(are_decided(&process), [false, true, false, false]);
}

#[test]
fn on_contexts_ended_pairs_that_were_reached_by_them_are_decided_anew() {
    let process = decided();
    assert_eq!(process.enable(1, 0), 0);
    assert_eq!(process.copy_on(pooled(1), memory_of(0), 4, Circumstances::default()), Some(Path::Direct));
    process.driver.ids.borrow_mut().insert(context(1), 2);
    process.access.on_contexts_ended(&Ended::new(&process.driver, None, Some(context(1))));
    let copy = Memcpy::linear(pooled(1), memory_of(0), 4);
    assert_eq!(process.access.decided(&copy).map(|traffic| traffic.path), None);
}

#[test]
fn begin_decisions_about_other_devices_stay() {
    let process = decided();
    drop(process.access.verifier.begin([2, 3], Duration::ZERO, Some(&process.access.cells)));
    assert_eq!(are_decided(&process), [true, false, true, true]);
    drop(process.access.verifier.begin([1, 2], Duration::ZERO, Some(&process.access.cells)));
    assert_eq!(are_decided(&process), [false; 4]);
}
