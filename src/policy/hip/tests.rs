//! A HIP of plain values: devices with memory, access of devices, a last error, by the rules of either age.

use std::cell::RefCell;

use super::*;
use crate::model::{Named, Shape};
use crate::policy::memory::Place;

/// Where each device's memory begins: at its ordinal, plus one, times this.
const BASE: u64 = 1 << 32;

struct State {
    devices: i32,
    current: i32,
    enabled: Vec<(i32, i32)>,
    last: Code,
    calls: usize,
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
    state: RefCell<State>,
}

impl Fake {
    fn new(devices: i32, sticky: bool) -> Self {
        let state = State { devices, current: 0, enabled: Vec::new(), last: Code::SUCCESS, calls: 0 };
        Self { sticky, apart: Vec::new(), is_mute: false, registers: false, state: RefCell::new(state) }
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
        let ret = match peers.enabling(0, self, peer, flags) {
            Ask::Succeed => self.returning(Code::SUCCESS),
            Ask::Unreachable if flags == 0 => self.returning(Code::INVALID_DEVICE),
            _ if flags != 0 => self.returning(Code::INVALID_VALUE),
            _ => self.enable(peer),
        };
        peers.asked(0);
        ret
    }

    /// The same of `hipDeviceDisablePeerAccess`.
    fn program_disables(&self, peers: &Peers, peer: i32) -> Code {
        let ret = match peers.disabling(0, self, peer) {
            Ask::Unreachable => self.returning(Code::INVALID_DEVICE),
            _ => self.disable(peer),
        };
        peers.asked(0);
        ret
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

    fn device_count(&self) -> i32 {
        self.returning(Code::SUCCESS);
        self.state.borrow().devices
    }

    fn can_access(&self, device: i32, peer: i32) -> bool {
        self.returning(Code::SUCCESS);
        !self.apart.contains(&(device, peer))
    }

    fn enable(&self, peer: i32) -> Code {
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

    fn memory(&self, address: u64) -> Queried {
        let device = i32::try_from(address / BASE).unwrap_or_default() - 1;
        if !(0..self.state.borrow().devices).contains(&device) {
            // What it does not know is an error that it leaves behind.
            self.returning(Code::INVALID_VALUE);
            return if self.is_mute { Queried::Nothing } else { Queried::Unknown };
        }
        self.returning(Code::SUCCESS);
        let range = (BASE * (device as u64 + 1), 1 << 20);
        Queried::Memory(Memory { range, device, is_host: self.registers, is_managed: false })
    }

    fn is_readable(&self, _: u64) -> bool {
        true
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
        assert_eq!(traffic, Some(Traffic { src: 0, dst: 1, path: Path::MappedOnUse, bytes: 16 }));
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
    assert_eq!((traffic, before.ends[0], hip.last()), (None, Known::Unregistered, Code::SUCCESS));
    assert!(matches!(before.ends[1], Known::Place(Place { device: 1, .. }, _)));
    assert!(hip.enabled().is_empty());
}

#[test]
fn consider_library_that_cannot_tell_says_nothing_of_the_memory() {
    let (mut hip, peers) = (Fake::new(2, true), peers(&Config::default()));
    hip.is_mute = true;
    let (traffic, before) = peers.consider(0, &hip, Some(&Memcpy { src: 64, dst: 64, ..copy(0, 1) }));
    assert_eq!((traffic, before.ends, hip.last()), (None, [Known::NotAsked; 2], Code::SUCCESS));
}

/// Registered memory that HIP knows by another address: how much is left from this one on is not known.
#[test]
fn consider_memory_outside_its_range_has_no_end() {
    let (mut hip, peers) = (Fake::new(2, true), peers(&Config::default()));
    hip.registers = true;
    let beyond = BASE + (2 << 20);
    let (_, before) = peers.consider(0, &hip, Some(&Memcpy { src: beyond, dst: BASE, ..copy(0, 1) }));
    let ends = before.ends.map(|known| match known {
        Known::Place(Place { kind: Kind::Host, .. }, end) => end,
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
    peers.asked(0);
    peers.memory_has_changed();
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
    assert_eq!(peers.enabling(0, &hip, 1, 0), Ask::Forward);
    hip.program_copies(&peers, 0, 1);
    assert!(hip.enabled().is_empty());
    peers.asked(0);
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
    peers.memory_has_changed();
    assert_eq!(peers.decided(0, &copy(1, 0)), None);
}

#[test]
fn look_around_without_devices_says_so() {
    let (hip, peers) = (Fake::new(0, false), peers(&Config::default()));
    assert_eq!(peers.look_around(0, &hip), Before { devices: Some(0), ..Before::NOTHING });
}
