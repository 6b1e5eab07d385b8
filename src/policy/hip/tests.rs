//! A HIP of plain values: devices with memory, access of devices, a last error, by the rules of either age.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use p2pshim_host::machine::Machine;
use p2pshim_host::verdict::{Finding, Part};

use super::*;
use crate::config::{Broken, Denied, Verify};
use crate::model::{Named, Shape};
use crate::objects::memory::Place;
use crate::policy::access::verify::WHOLE;
use crate::policy::driver::{Scratch, ScratchKind, Span};
use crate::policy::verdicts::{Gpu, Verdict};

/// Where each device's memory begins: at its ordinal, plus one, times this.
const BASE: u64 = 1 << 32;

struct State {
    devices: i32,
    current: i32,
    enabled: Vec<(i32, i32)>,
    last: Code,
    calls: usize,
    /// Memory of ours, of devices and the host, by where it begins: at multiples of [`BLOCK`].
    memory: BTreeMap<u64, Vec<u8>>,
    /// How much there is of it: each piece has a stream of that number, and the next for what goes through the host.
    scratches: usize,
    hung: BTreeSet<usize>,
    /// How many copies there were between two devices.
    copies: usize,
    kept: BTreeMap<(i32, i32), Verdict>,
}

const BLOCK: u64 = 1 << 30;

impl State {
    fn block(&mut self, address: u64) -> &mut [u8] {
        let block = self.memory.entry(address / BLOCK).or_insert_with(|| vec![0; 4 * WHOLE]);
        &mut block[(address % BLOCK) as usize..]
    }
}

/// A fault between two devices.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    Drop,
    /// The first copies only.
    First,
    Hang,
    /// The copies, and from then on what goes through the host.
    HangAll,
}

/// A simulated copy of HIP. `sticky` is how it is from 7.0 on: only failures reach the last error.
struct Fake {
    sticky: bool,
    /// Pairs of devices that cannot reach each other.
    apart: Vec<(i32, i32)>,
    /// Whether it fails for another reason instead of saying that it does not know an address.
    is_mute: bool,
    /// Whether all memory is registered memory of the host.
    registers: bool,
    /// The faults of copies from one device to another.
    faults: Vec<(i32, i32, Fault)>,
    /// The faults of copies from and to the host.
    host_fault: Option<Fault>,
    has_no_memory: bool,
    /// Whether enabling panics.
    panics: bool,
    hypervisor: Option<&'static str>,
    state: RefCell<State>,
}

impl Fake {
    fn new(devices: i32, sticky: bool) -> Self {
        let state = State {
            devices,
            current: 0,
            enabled: Vec::new(),
            last: Code::SUCCESS,
            calls: 0,
            memory: BTreeMap::new(),
            scratches: 0,
            hung: BTreeSet::new(),
            copies: 0,
            kept: BTreeMap::new(),
        };
        Self {
            sticky,
            apart: Vec::new(),
            is_mute: false,
            registers: false,
            faults: Vec::new(),
            host_fault: None,
            has_no_memory: false,
            panics: false,
            hypervisor: None,
            state: RefCell::new(state),
        }
    }

    fn with(fault: Fault) -> Self {
        Self { faults: vec![(0, 1, fault)], ..Self::new(3, true) }
    }

    /// How many copies there were between two devices to verify pairs.
    fn copies(&self) -> usize {
        self.state.borrow().copies
    }

    fn moves(&self, from: u64, to: u64, bytes: usize) {
        let mut state = self.state.borrow_mut();
        let moved = state.block(from)[..bytes].to_vec();
        state.block(to)[..bytes].copy_from_slice(&moved);
    }

    /// Like [`Fake::moves`], on a stream, from or to the host.
    fn moves_by_host(&self, scratch: &Scratch, from: u64, to: u64, bytes: usize) -> Result<(), Code> {
        let is_hung = self.host_fault == Some(Fault::Hang);
        if is_hung {
            self.state.borrow_mut().hung.insert(scratch.stream);
        } else if self.host_fault.is_none() {
            self.moves(from, to, bytes);
        }
        self.returning(Code::SUCCESS);
        Ok(())
    }

    fn returning(&self, ret: Code) -> Code {
        let mut state = self.state.borrow_mut();
        state.calls += 1;
        if !self.sticky || ret != Code::SUCCESS {
            state.last = ret;
        }
        ret
    }

    fn check(&self, peer: i32) -> Option<i32> {
        let (current, devices) = (self.current(), self.state.borrow().devices);
        let is_peer = (0..devices).contains(&peer) && peer != current && !self.apart.contains(&(current, peer));
        is_peer.then_some(current)
    }

    fn current(&self) -> i32 {
        self.state.borrow().current
    }

    fn last(&self) -> Code {
        self.state.borrow().last
    }

    fn calls(&self) -> usize {
        self.state.borrow().calls
    }

    fn enabled(&self) -> Vec<(i32, i32)> {
        let mut enabled = self.state.borrow().enabled.clone();
        enabled.sort_unstable();
        enabled
    }

    /// The program's `hipDeviceEnablePeerAccess`, as the hook makes it.
    fn program_enables(&self, peers: &Peers, peer: i32, flags: u32) -> Code {
        let asked = peers.enabling(0, self, peer, flags);
        let ret = match asked.ask {
            AccessCall::Succeed => self.returning(Code::SUCCESS),
            AccessCall::Unreachable if flags == 0 => self.returning(Code::INVALID_DEVICE),
            _ if flags != 0 => self.returning(Code::INVALID_VALUE),
            _ => self.enable(peer),
        };
        peers.asked(0, asked, true, ret);
        ret
    }

    /// The program's `hipDeviceDisablePeerAccess`, and what it gets.
    fn program_disables(&self, peers: &Peers, peer: i32) -> Code {
        let asked = peers.disabling(0, self, peer);
        let ret = match asked.ask {
            AccessCall::Unreachable => self.returning(Code::INVALID_DEVICE),
            _ => self.disable(peer),
        };
        peers.asked(0, asked, false, ret);
        ret
    }

    /// Whether `hipDeviceCanAccessPeer` says yes, as the hook has it.
    fn program_asks(&self, peers: &Peers, device: i32, peer: i32) -> bool {
        peers.read_verdict(0, self, device, peer);
        self.can_access(device, peer) == Ok(true) && !peers.is_hidden(device, peer, None)
    }

    /// The program's copy between two devices, as the hook makes it.
    fn program_copies(&self, peers: &Peers, src: i32, dst: i32) -> Option<Traffic> {
        let copy = copy(src, dst);
        let traffic = peers.decided(0, &copy).or_else(|| peers.consider(0, self, Some(&copy)).0);
        self.returning(Code::SUCCESS);
        traffic
    }
}

fn copy(src: i32, dst: i32) -> Memcpy<'static> {
    let at = |device: i32| BASE * (device as u64 + 1) + 256;
    Memcpy {
        src: at(src),
        dst: at(dst),
        src_named: Named::Ordinal(src),
        dst_named: Named::Ordinal(dst),
        bytes: 16,
        stream: None,
        shape: Shape::Linear,
    }
}

impl VerifyBackend for Fake {
    fn device_count(&self) -> i32 {
        self.returning(Code::SUCCESS);
        self.state.borrow().devices
    }

    fn upload(&self, to: &Scratch, bytes: &[u8]) -> Result<(), Code> {
        let host = to.host as u64;
        self.make_current(to.device);
        self.state.borrow_mut().block(host)[..bytes.len()].copy_from_slice(bytes);
        self.moves_by_host(to, host, to.address, bytes.len())
    }

    fn send(&self, from: &Scratch, to: &Scratch, span: Span) -> Result<(), Code> {
        self.make_current(from.device);
        let offset = span.offset as u64;
        let is_first = {
            let mut state = self.state.borrow_mut();
            state.copies += 1;
            state.copies <= 4
        };
        let fault = self.faults.iter().find(|fault| (fault.0, fault.1) == (from.device, to.device));
        match fault.map(|fault| fault.2) {
            Some(Fault::Drop) => {}
            Some(Fault::First) if is_first => {}
            Some(Fault::Hang) => _ = self.state.borrow_mut().hung.insert(from.stream),
            Some(Fault::HangAll) => self.state.borrow_mut().hung.extend([from.stream, from.control]),
            _ => self.moves(from.address + offset, to.receives + offset, span.bytes),
        }
        self.returning(Code::SUCCESS);
        Ok(())
    }

    fn download(&self, from: &Scratch, bytes: usize) -> Result<(), Code> {
        self.moves_by_host(from, from.receives, (from.host + WHOLE) as u64, bytes)
    }

    fn downloaded(&self, from: &Scratch, bytes: usize) -> Option<Vec<u8>> {
        let at = (from.host + WHOLE) as u64;
        Some(self.state.borrow_mut().block(at)[..bytes].to_vec())
    }

    fn is_done(&self, scratch: &Scratch) -> Result<bool, Code> {
        let is_hung = self.state.borrow().hung.contains(&scratch.stream);
        self.returning(if is_hung { Code::NOT_READY } else { Code::SUCCESS });
        Ok(!is_hung)
    }

    fn can_access(&self, device: i32, peer: i32) -> Result<bool, Code> {
        self.returning(Code::SUCCESS);
        Ok(!self.apart.contains(&(device, peer)))
    }

    fn relaxed<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        self.returning(Code::SUCCESS);
        Some(work())
    }

    fn scratch(&self, kind: ScratchKind, context: (usize, u64), device: i32) -> Result<Scratch, Code> {
        self.make_current(device);
        if self.has_no_memory {
            return Err(self.returning(Code::OUT_OF_MEMORY));
        }
        let mut state = self.state.borrow_mut();
        state.scratches += 1;
        let address = 2 * BLOCK * state.scratches as u64;
        let (stream, bytes, (context, context_id)) = (2 * state.scratches, 2 * WHOLE, context);
        let (receives, host, control) = (address + WHOLE as u64, (address + BLOCK) as usize, stream + 1);
        Ok(Scratch { kind, context, context_id, device, address, receives, bytes, stream, control, pool: 0, host })
    }

    fn gpu(&self, _: i32) -> Option<Gpu> {
        None
    }

    fn version(&self) -> Option<i32> {
        None
    }

    fn machine(&self, _: [i32; 2]) -> Option<Machine> {
        Some(Machine { hypervisor: Some(self.hypervisor?.to_owned()), ..Machine::default() })
    }

    fn is_linked(&self, _: [i32; 2]) -> bool {
        false
    }

    fn verdict(&self, device: i32, peer: i32) -> Option<Verdict> {
        self.state.borrow().kept.get(&(device, peer)).cloned()
    }

    fn keep_verdict(&self, device: i32, peer: i32, verdict: Verdict) {
        self.state.borrow_mut().kept.insert((device, peer), verdict);
    }

    fn is_readable(&self, _: u64) -> bool {
        true
    }
}

impl Hip for Fake {
    fn last_error(&self) -> Option<Code> {
        Some(self.last())
    }

    fn clear_last_error(&self) {
        self.state.borrow_mut().last = Code::SUCCESS;
    }

    fn current_device(&self) -> Option<i32> {
        let has_devices = self.state.borrow().devices > 0;
        self.returning(if has_devices { Code::SUCCESS } else { Code(100) });
        has_devices.then(|| self.current())
    }

    fn make_current(&self, device: i32) -> Code {
        self.state.borrow_mut().current = device;
        self.returning(Code::SUCCESS)
    }

    fn enable(&self, peer: i32) -> Code {
        assert!(!self.panics, "on purpose");
        let Some(current) = self.check(peer) else { return self.returning(Code::INVALID_DEVICE) };
        if self.state.borrow().enabled.contains(&(current, peer)) {
            return self.returning(Code::PEER_ACCESS_ALREADY_ENABLED);
        }
        self.state.borrow_mut().enabled.push((current, peer));
        self.returning(Code::SUCCESS)
    }

    fn disable(&self, peer: i32) -> Code {
        let Some(current) = self.check(peer) else { return self.returning(Code::INVALID_DEVICE) };
        if !self.state.borrow().enabled.contains(&(current, peer)) {
            return self.returning(Code::PEER_ACCESS_NOT_ENABLED);
        }
        self.state.borrow_mut().enabled.retain(|&link| link != (current, peer));
        self.returning(Code::SUCCESS)
    }

    fn memory(&self, address: u64) -> Result<Option<Memory>, Code> {
        let device = i32::try_from(address / BASE).unwrap_or_default() - 1;
        if !(0..self.state.borrow().devices).contains(&device) {
            // An address that it does not know is an error that it leaves behind.
            let ret = self.returning(Code::INVALID_VALUE);
            return if self.is_mute { Err(ret) } else { Ok(None) };
        }
        self.returning(Code::SUCCESS);
        let range = (BASE * (device as u64 + 1), 1 << 20);
        let holder = if self.registers { Holder::Host } else { Holder::Context(0) };
        Ok(Some(Memory { range, device, holder }))
    }

    fn keeps_last_error(&self) -> bool {
        self.sticky
    }
}

fn peers(config: &Config) -> Box<Peers> {
    let peers = Box::new(Peers::new());
    peers.configure(config);
    peers
}

#[test]
fn consider_first_copy_of_a_pair_enables_both_directions_and_restores_the_device() {
    for sticky in [false, true] {
        let (hip, peers) = (Fake::new(3, sticky), peers(&Config::default()));
        hip.make_current(2);
        let traffic = hip.program_copies(&peers, 0, 1);
        assert_eq!(traffic, Some(Traffic::new([0, 1], Path::MappedOnUse, 16)));
        assert_eq!(hip.enabled(), [(0, 1), (1, 0)]);
        assert_eq!((hip.current(), hip.last()), (2, Code::SUCCESS));
        let calls = hip.calls();
        assert_eq!(hip.program_copies(&peers, 1, 0).map(|traffic| traffic.path), Some(Path::MappedOnUse));
        assert_eq!(hip.calls(), calls + 1, "nothing is asked twice");
    }
}

#[test]
fn enabling_what_is_ours_succeeds_once_and_is_the_programs_then() {
    for sticky in [false, true] {
        let (hip, peers) = (Fake::new(2, sticky), peers(&Config::default()));
        hip.program_copies(&peers, 0, 1);
        assert_eq!(hip.program_enables(&peers, 1, 1), Code::INVALID_VALUE, "flags go before all else");
        hip.clear_last_error();
        assert_eq!((hip.program_enables(&peers, 1, 0), hip.last()), (Code::SUCCESS, Code::SUCCESS));
        assert_eq!(hip.program_enables(&peers, 1, 0), Code::PEER_ACCESS_ALREADY_ENABLED);
        assert_eq!(hip.program_disables(&peers, 1), Code::SUCCESS);
        assert_eq!(hip.enabled(), [(1, 0)], "what the program disables is gone");
        assert_eq!((hip.program_disables(&peers, 1), hip.last()), (Code(705), Code(705)));
    }
}

#[test]
fn disabling_what_is_ours_returns_what_it_does_without_us() {
    for sticky in [false, true] {
        let (hip, peers) = (Fake::new(2, sticky), peers(&Config::default()));
        hip.program_copies(&peers, 0, 1);
        assert_eq!((hip.program_disables(&peers, 1), hip.last()), (Code(705), Code(705)));
        assert_eq!(hip.enabled(), [(1, 0)]);
        hip.clear_last_error();
        hip.program_copies(&peers, 0, 1);
        assert_eq!(hip.enabled(), [(1, 0)], "it is not enabled again");
        assert_eq!(hip.program_enables(&peers, 1, 0), Code::SUCCESS);
    }
}

#[test]
fn enabled_by_the_program_before_stays_its_own() {
    let (hip, peers) = (Fake::new(2, true), peers(&Config::default()));
    assert_eq!(hip.program_enables(&peers, 1, 0), Code::SUCCESS);
    hip.program_copies(&peers, 0, 1);
    assert_eq!(hip.last(), Code::SUCCESS, "our own 704 is cleared");
    assert_eq!(hip.program_enables(&peers, 1, 0), Code::PEER_ACCESS_ALREADY_ENABLED);
    assert_eq!(hip.program_disables(&peers, 1), Code::SUCCESS);
}

#[test]
fn consider_while_an_error_is_left_nothing_is_asked() {
    for sticky in [false, true] {
        let (hip, peers) = (Fake::new(2, sticky), peers(&Config::default()));
        hip.returning(Code::INVALID_VALUE);
        let calls = hip.calls();
        assert_eq!(peers.consider(0, &hip, Some(&copy(0, 1))), (None, Before::NOTHING));
        assert_eq!((hip.calls(), hip.last()), (calls, Code::INVALID_VALUE));
        hip.clear_last_error();
        assert!(peers.consider(0, &hip, Some(&copy(0, 1))).0.is_some());
    }
}

#[test]
fn consider_memory_that_is_not_known_leaves_no_error() {
    let (hip, peers) = (Fake::new(2, true), peers(&Config::default()));
    let unknown = Memcpy { src: 64, ..copy(0, 1) };
    let (traffic, before) = peers.consider(0, &hip, Some(&unknown));
    assert_eq!((traffic, before.endpoints[0], hip.last()), (None, Endpoint::Unregistered, Code::SUCCESS));
    assert!(matches!(before.endpoints[1], Endpoint::Place(Place { device: 1, .. }, _)));
    assert!(hip.enabled().is_empty());
}

#[test]
fn consider_library_that_cannot_tell_says_nothing_of_the_memory() {
    let (mut hip, peers) = (Fake::new(2, true), peers(&Config::default()));
    hip.is_mute = true;
    let (traffic, before) = peers.consider(0, &hip, Some(&Memcpy { src: 64, dst: 64, ..copy(0, 1) }));
    assert_eq!((traffic, before.endpoints, hip.last()), (None, [Endpoint::NotAsked; 2], Code::SUCCESS));
}

/// Registered memory that HIP knows by another address: how much is left from this one on is not known.
#[test]
fn consider_memory_outside_its_range_has_no_end() {
    let (mut hip, peers) = (Fake::new(2, true), peers(&Config::default()));
    hip.registers = true;
    let beyond = BASE + (2 << 20);
    let (_, before) = peers.consider(0, &hip, Some(&Memcpy { src: beyond, dst: BASE, ..copy(0, 1) }));
    let ends = before.endpoints.map(|known| match known {
        Endpoint::Place(Place { kind: Kind::Host, .. }, end) => end,
        other => panic!("{other:?}"),
    });
    assert_eq!(ends, [u64::MAX, BASE + (1 << 20)]);
    assert_eq!(peers.known(beyond), None);
}

#[test]
fn consider_app_and_denied_and_apart_enable_nothing() {
    let denied = vec![Denied { device: config::GpuName::Hip(0), peer: config::GpuName::Hip(1) }];
    let app = Config { access: config::Access::App, ..Config::default() };
    let off = Config { access: config::Access::Off, ..Config::default() };
    for (config, enabled) in [(app, &[][..]), (off, &[]), (Config { denied, ..Config::default() }, &[(1, 0)])] {
        let (hip, peers) = (Fake::new(2, true), peers(&config));
        assert_eq!(hip.program_copies(&peers, 0, 1).map(|traffic| traffic.path), Some(Path::MappedOnUse));
        assert_eq!(hip.enabled(), enabled);
    }
    let mut hip = Fake::new(2, true);
    hip.apart = vec![(0, 1), (1, 0)];
    let peers = peers(&Config::default());
    assert_eq!(hip.program_copies(&peers, 0, 1).map(|traffic| traffic.path), Some(Path::Staged(Why::NoPath)));
    assert!(hip.enabled().is_empty());
}

#[test]
fn hidden_peers_return_what_unreachable_ones_do() {
    let off = Config { access: config::Access::Off, ..Config::default() };
    let (hip, peers) = (Fake::new(2, true), peers(&off));
    assert_eq!(hip.program_enables(&peers, 1, 0), Code::INVALID_DEVICE);
    assert_eq!(hip.program_enables(&peers, 1, 2), Code::INVALID_VALUE, "flags go first");
    assert_eq!(hip.program_disables(&peers, 1), Code::INVALID_DEVICE);
    assert!(peers.is_hidden(0, 1, None) && peers.is_hidden(1, 0, Some(1)));
    assert!(!peers.is_hidden(0, 1, Some(0)) && !peers.is_hidden(1, 1, None));
}

#[test]
fn resetting_disables_what_is_ours_and_enables_it_again_later() {
    let (hip, peers) = (Fake::new(3, true), peers(&Config::default()));
    hip.program_copies(&peers, 0, 1);
    hip.program_copies(&peers, 1, 2);
    peers.resetting(0, &hip);
    assert_eq!((hip.enabled(), hip.current()), (vec![(1, 2), (2, 1)], 0));
    peers.on_reset();
    peers.forget_all_memory();
    assert_eq!(hip.program_enables(&peers, 1, 0), Code::SUCCESS);
    hip.program_copies(&peers, 0, 1);
    assert_eq!(hip.enabled(), [(0, 1), (1, 0), (1, 2), (2, 1)]);
    assert_eq!(hip.last(), Code::SUCCESS);
}

#[test]
fn resetting_what_somebody_else_has_disabled_leaves_no_error() {
    for sticky in [false, true] {
        let (hip, peers) = (Fake::new(2, sticky), peers(&Config::default()));
        hip.program_copies(&peers, 0, 1);
        hip.state.borrow_mut().enabled.clear();
        peers.resetting(0, &hip);
        assert_eq!((hip.current(), hip.last()), (0, Code::SUCCESS));
    }
}

#[test]
fn consider_while_the_program_asks_waits_for_a_later_copy() {
    let (hip, peers) = (Fake::new(2, true), peers(&Config::default()));
    let asked = peers.enabling(0, &hip, 1, 0);
    assert_eq!(asked.ask, AccessCall::Forward);
    hip.program_copies(&peers, 0, 1);
    assert!(hip.enabled().is_empty());
    peers.asked(0, asked, true, Code::INVALID_VALUE);
    hip.program_copies(&peers, 0, 1);
    assert_eq!(hip.enabled(), [(0, 1), (1, 0)]);
}

#[test]
fn decided_is_by_pointers_and_by_library() {
    let (hip, peers) = (Fake::new(2, true), peers(&Config::default()));
    hip.program_copies(&peers, 0, 1);
    assert!(peers.decided(0, &copy(1, 0)).is_some());
    assert_eq!(peers.decided(1, &copy(1, 0)), None, "another copy of HIP has its own access");
    assert_eq!(peers.decided(LIBRARIES, &copy(1, 0)), None);
    peers.forget_all_memory();
    assert_eq!(peers.decided(0, &copy(1, 0)), None);
}

#[test]
fn take_of_a_link_that_is_slow_to_enable_waits_for_it() {
    let peers = peers(&Config::default());
    let (from, to) = peers.numbers(0, [0, 1]).unwrap();
    let becomes = |ours| peers.verifier.lock().link_mut(from, to).ours = ours;
    becomes(Ours::Intended);
    std::thread::scope(|scope| {
        let taker = scope.spawn(|| peers.take(0, [0, 1], Ours::No));
        std::thread::sleep(std::time::Duration::from_millis(400));
        becomes(Ours::Held);
        assert!(taker.join().unwrap(), "it would be enabled twice, and return 704");
    });
}

#[test]
fn look_around_without_devices_says_so() {
    let (hip, peers) = (Fake::new(0, false), peers(&Config::default()));
    assert_eq!(peers.look_around(0, &hip), Before { devices: Some(0), ..Before::NOTHING });
}

// ---- Verification ----

fn warns() -> Config {
    Config { broken: Broken::Warn, ..Config::default() }
}

#[test]
fn enabling_healthy_pair_is_verified_first_and_nothing_shows() {
    for sticky in [false, true] {
        for access in [config::Access::Auto, config::Access::App] {
            let (hip, peers) = (Fake::new(3, sticky), peers(&Config { access, ..Config::default() }));
            hip.make_current(1);
            assert_eq!(
                (hip.program_enables(&peers, 0, 0), hip.last(), hip.current()),
                (Code::SUCCESS, Code::SUCCESS, 1)
            );
            assert_eq!(peers.verification([0, 1]), Some(Verification::Passed));
            let copies = hip.copies();
            assert!(copies > 0 && hip.state.borrow().scratches == 2);
            hip.make_current(0);
            assert_eq!(hip.program_enables(&peers, 1, 0), Code::SUCCESS);
            assert_eq!(hip.program_enables(&peers, 1, 0), Code::PEER_ACCESS_ALREADY_ENABLED);
            assert_eq!(hip.copies(), copies, "a pair is verified once");
        }
    }
}

#[test]
fn enabling_broken_pair_looks_like_devices_without_a_path() {
    for (fault, sticky) in [(Fault::Drop, false), (Fault::Drop, true), (Fault::Hang, true)] {
        for access in [config::Access::Auto, config::Access::App] {
            let mut hip = Fake::with(fault);
            hip.sticky = sticky;
            let peers = peers(&Config { access, ..Config::default() });
            assert!(hip.program_asks(&peers, 1, 0), "nothing is verified for a question");
            hip.make_current(1);
            assert_eq!((hip.program_enables(&peers, 0, 0), hip.current()), (Code::INVALID_DEVICE, 1));
            assert!(!hip.program_asks(&peers, 1, 0) && !hip.program_asks(&peers, 0, 1));
            assert!(hip.program_asks(&peers, 2, 0), "another pair");
            assert_eq!(hip.program_enables(&peers, 0, 2), Code::INVALID_VALUE, "flags go first");
            assert_eq!(hip.program_disables(&peers, 0), Code::INVALID_DEVICE);
            assert!(hip.enabled().is_empty());
            hip.clear_last_error();
            assert_eq!(hip.program_copies(&peers, 0, 1).map(|traffic| traffic.path), Some(Path::Broken));
            assert!(hip.enabled().is_empty() && hip.last() == Code::SUCCESS);
        }
    }
}

#[test]
fn enabling_broken_pair_warn_forwards_and_enables_nothing_itself() {
    let (hip, peers) = (Fake::with(Fault::Drop), peers(&warns()));
    assert_eq!(hip.program_enables(&peers, 1, 0), Code::SUCCESS);
    assert!(hip.program_asks(&peers, 0, 1));
    assert_eq!(hip.program_copies(&peers, 0, 1).map(|traffic| traffic.path), Some(Path::Broken));
    assert_eq!(hip.enabled(), [(0, 1)], "not the other direction");
    assert_eq!(hip.program_disables(&peers, 1), Code::SUCCESS);
}

#[test]
fn consider_broken_pair_enables_nothing_and_refuses_from_then_on() {
    for fault in [Fault::Drop, Fault::First, Fault::Hang] {
        let (hip, peers) = (Fake::with(fault), peers(&Config::default()));
        assert_eq!(hip.program_copies(&peers, 1, 0).map(|traffic| traffic.path), Some(Path::Broken));
        assert_eq!((hip.enabled(), hip.current(), hip.last()), (vec![], 0, Code::SUCCESS));
        let copies = hip.copies();
        assert_eq!(hip.program_copies(&peers, 0, 1).map(|traffic| traffic.path), Some(Path::Broken));
        assert_eq!((hip.copies(), hip.program_enables(&peers, 1, 0)), (copies, Code::INVALID_DEVICE));
    }
}

/// If a pair cannot be decided, the program gets it as without us, and the shim does not enable it.
#[test]
fn undecided_pair_is_forwarded_not_enabled_and_tried_again() {
    type Change = fn(&mut Fake);
    let reasons: [Change; 4] = [
        |hip| hip.host_fault = Some(Fault::Drop),
        |hip| hip.host_fault = Some(Fault::Hang),
        |hip| hip.faults = vec![(0, 1, Fault::HangAll)],
        |hip| hip.has_no_memory = true,
    ];
    for (number, change) in reasons.into_iter().enumerate() {
        let mut hip = Fake::new(2, true);
        change(&mut hip);
        let peers = peers(&Config::default());
        assert_eq!(hip.program_copies(&peers, 0, 1).map(|traffic| traffic.path), Some(Path::MappedOnUse), "{number}");
        assert_eq!((hip.enabled(), hip.current(), hip.last()), (vec![], 0, Code::SUCCESS), "{number}");
        assert_eq!((peers.verification([0, 1]), hip.program_enables(&peers, 1, 0)), (None, Code::SUCCESS));
        let calls = hip.copies();
        (hip.faults, hip.host_fault, hip.has_no_memory) = (Vec::new(), None, false);
        hip.state.borrow_mut().hung.clear();
        hip.program_copies(&peers, 0, 1);
        assert_eq!((hip.copies(), hip.enabled()), (calls, vec![(0, 1)]), "{number}: not at once");
        peers.verifier.lock().asked.clear();
        assert!(hip.program_copies(&peers, 0, 1).is_some());
        assert_eq!(hip.enabled(), [(0, 1), (1, 0)], "{number}");
    }
}

/// Copies that did not end in time may have been held up by what others do.
#[test]
fn late_pair_is_refused_until_its_copies_have_ended_and_arrive() {
    for passes in [true, false] {
        let (mut hip, peers) = (Fake::with(Fault::Hang), peers(&Config::default()));
        assert_eq!(hip.program_copies(&peers, 0, 1).map(|traffic| traffic.path), Some(Path::Broken));
        assert_eq!(hip.program_enables(&peers, 1, 0), Code::INVALID_DEVICE);
        let copies = hip.copies();
        peers.verifier.lock().asked.clear();
        assert_eq!((hip.program_enables(&peers, 1, 0), hip.copies()), (Code::INVALID_DEVICE, copies), "not ended yet");
        hip.state.borrow_mut().hung.clear();
        hip.faults = if passes { Vec::new() } else { vec![(0, 1, Fault::Drop)] };
        assert_eq!((hip.program_enables(&peers, 1, 0), hip.copies()), (Code::INVALID_DEVICE, copies), "not at once");
        peers.verifier.lock().asked.clear();
        hip.clear_last_error();
        let path = hip.program_copies(&peers, 0, 1).map(|traffic| traffic.path);
        assert_eq!(path, Some(if passes { Path::MappedOnUse } else { Path::Broken }));
        assert_eq!(hip.enabled(), if passes { vec![(0, 1), (1, 0)] } else { Vec::new() });
        let expected = if passes { Code::SUCCESS } else { Code::INVALID_DEVICE };
        assert_eq!(hip.program_enables(&peers, 1, 0), expected);
        assert_eq!(hip.state.borrow().scratches, 2, "what copies have ended in is used again");
    }
}

/// However often it is tried: what is taken is lost where it cannot be used.
#[test]
fn undecided_pair_takes_memory_a_few_times_only() {
    let (mut hip, peers) = (Fake::new(2, true), peers(&Config::default()));
    hip.host_fault = Some(Fault::Hang);
    for number in 0..50 {
        peers.verifier.lock().asked.clear();
        hip.program_copies(&peers, 0, 1);
        let scratch = |device| peers.verifier.lock().scratch(ScratchKind::Mapped, (device, 0));
        assert_eq!(scratch(0).is_some(), number < 4);
        if let [Some(one), Some(other)] = [0, 1].map(scratch) {
            peers.verifier.lock().put_aside(((8, number), 0), [one, other]);
        }
    }
    let may_take = |device| peers.verifier.lock().count_taken((device, 0));
    (0..2).for_each(|device| assert!(!may_take(device)));
    peers.verifier.lock().reset_scratch((0, 0));
    assert!(may_take(0));
}

#[test]
fn device_and_last_error_come_back_after_a_panic_and_nobody_waits_for_what_was_under_way() {
    let (mut hip, peers) = (Fake::new(2, true), peers(&Config::default()));
    let panics = |work: &dyn Fn()| catch_unwind(AssertUnwindSafe(work)).is_err();
    let work = || {
        hip.make_current(1);
        hip.state.borrow_mut().last = Code::INVALID_VALUE;
        panic!("on purpose");
    };
    assert!(panics(&|| peers.aside(&hip, work)));
    assert_eq!((hip.current(), hip.last()), (0, Code::SUCCESS));
    hip.panics = true;
    hip.make_current(1);
    assert!(panics(&|| _ = hip.program_copies(&peers, 0, 1)));
    assert_eq!(hip.current(), 1);
    hip.panics = false;
    assert_eq!(hip.program_copies(&peers, 0, 1).map(|traffic| traffic.path), Some(Path::MappedOnUse));
    assert_eq!(hip.enabled(), [(0, 1), (1, 0)]);
}

#[test]
fn what_the_program_has_it_keeps() {
    let (mut hip, peers) = (Fake::with(Fault::Drop), peers(&Config::default()));
    hip.host_fault = Some(Fault::Drop);
    assert_eq!(hip.program_enables(&peers, 1, 0), Code::SUCCESS, "undecided");
    hip.host_fault = None;
    peers.verifier.lock().asked.clear();
    hip.make_current(1);
    assert_eq!(hip.program_enables(&peers, 0, 0), Code::INVALID_DEVICE);
    hip.make_current(0);
    assert_eq!(hip.program_enables(&peers, 1, 0), Code::PEER_ACCESS_ALREADY_ENABLED);
    assert_eq!(hip.program_disables(&peers, 1), Code::SUCCESS);
    assert_eq!(hip.program_enables(&peers, 1, 0), Code::INVALID_DEVICE);
}

/// Where the program's call fails in any case, or nothing is to be verified, nothing is copied.
#[test]
fn enabling_what_cannot_succeed_or_is_not_to_be_verified_copies_nothing() {
    let off = Config { verify: Verify::Off, ..Config::default() };
    let denied = vec![Denied { device: config::GpuName::Hip(0), peer: config::GpuName::Hip(1) }];
    let denied = Config { denied, ..Config::default() };
    let hidden = Config { access: config::Access::Off, ..Config::default() };
    let default = Config::default();
    let cases = [
        (&off, 1, 0, Code::SUCCESS),
        (&denied, 1, 0, Code::INVALID_DEVICE),
        (&hidden, 1, 0, Code::INVALID_DEVICE),
        (&default, 1, 1, Code::INVALID_VALUE),
        (&default, 0, 0, Code::INVALID_DEVICE),
        (&default, 7, 0, Code::INVALID_DEVICE),
        (&default, 2, 0, Code::INVALID_DEVICE),
    ];
    for (config, peer, flags, code) in cases {
        let mut hip = Fake::with(Fault::Drop);
        hip.apart = vec![(0, 2), (2, 0)];
        let peers = peers(config);
        assert_eq!((hip.program_enables(&peers, peer, flags), hip.copies()), (code, 0), "{peer} {flags}");
    }
    let (hip, peers) = (Fake::with(Fault::Drop), peers(&off));
    hip.program_copies(&peers, 0, 1);
    assert_eq!(hip.enabled(), [(0, 1), (1, 0)], "as the user wishes");
}

/// From 7.0 on nothing but the program clears it; before, its own call overwrites it.
#[test]
fn enabling_while_an_error_is_pending_verifies_only_where_that_is_overwritten() {
    for sticky in [false, true] {
        let (mut hip, peers) = (Fake::with(Fault::Drop), peers(&Config::default()));
        hip.sticky = sticky;
        hip.returning(Code(704));
        let expected = if sticky { (Code::SUCCESS, Code(704)) } else { (Code::INVALID_DEVICE, Code::INVALID_DEVICE) };
        assert_eq!((hip.program_enables(&peers, 1, 0), hip.last()), expected);
    }
}

#[test]
fn enabling_where_a_copy_may_hang_is_left_to_the_program_and_not_to_us() {
    let mut hip = Fake::with(Fault::Hang);
    hip.hypervisor = Some("QEMU");
    let peers = peers(&Config::default());
    assert_eq!((hip.program_enables(&peers, 1, 0), hip.copies()), (Code::SUCCESS, 0));
    assert_eq!(hip.program_copies(&peers, 0, 1).map(|traffic| traffic.path), Some(Path::MappedOnUse));
    assert_eq!((hip.enabled(), hip.copies()), (vec![(0, 1)], 0));
}

#[test]
fn verdict_that_is_kept_counts_and_what_was_found_out_is_kept() {
    let full = Config { verify: Verify::Full, ..Config::default() };
    let passed = || Verdict::of(Part::Copies, Finding::Right);
    let failed = Verdict::of(Part::Copies, Finding::Wrong("lost".to_owned()));
    let (hip, first) = (Fake::new(2, true), peers(&full));
    hip.state.borrow_mut().kept.insert((1, 0), failed);
    assert!(!hip.program_asks(&first, 0, 1), "also where it is only asked");
    assert_eq!((hip.program_enables(&first, 1, 0), hip.copies()), (Code::INVALID_DEVICE, 0));

    let hip = Fake::new(2, true);
    hip.program_enables(&peers(&full), 1, 0);
    assert_eq!(hip.state.borrow().kept, BTreeMap::from([((0, 1), passed()), ((1, 0), passed())]));
    let (copies, again) = (hip.copies(), peers(&full));
    hip.make_current(1);
    assert_eq!((hip.program_enables(&again, 0, 0), hip.copies()), (Code::SUCCESS, copies), "the next process");

    let hip = Fake::with(Fault::Drop);
    hip.program_enables(&peers(&full), 1, 0);
    let kept = hip.state.borrow().kept.get(&(0, 1)).and_then(Verdict::within_process);
    assert!(kept.clone().is_some_and(|kept| kept.is_err_and(|what| what.contains("bytes"))), "{kept:?}");
}

#[test]
fn resetting_takes_the_memory_of_ours_with_it() {
    let (hip, peers) = (Fake::new(3, true), peers(&Config::default()));
    hip.program_enables(&peers, 1, 0);
    peers.resetting(0, &hip);
    peers.on_reset();
    hip.program_enables(&peers, 2, 0);
    assert_eq!(hip.state.borrow().scratches, 4, "those of 0 and 1, of 0 anew, and of 2");
}

/// Memory that it takes would go with the device.
#[test]
fn enabling_while_a_device_is_reset_verifies_nothing() {
    let (hip, peers) = (Fake::with(Fault::Drop), peers(&Config::default()));
    peers.resetting(0, &hip);
    assert_eq!((hip.program_enables(&peers, 1, 0), hip.copies()), (Code::SUCCESS, 0), "as without us");
    peers.on_reset();
    assert_eq!(hip.program_disables(&peers, 1), Code::SUCCESS);
    assert_eq!(hip.program_enables(&peers, 1, 0), Code::INVALID_DEVICE, "at once when that is over");
}
